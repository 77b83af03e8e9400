"""`asactl sow`: statements of work. Found in history, announced, priced, followed, charged."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from asad.admit.sow.announcements import MOST_CHARACTERS, read_announcements, time_s, written
from asad.api.control import ask
from asad.bounded import printable
from asad.cli import completion
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed
from asad.cli.live import (
    SOCKET,
    clock_of,
    control_socket,
    daemon_store,
    rows_of,
)
from asad.cli.screen import (
    JSON,
    cells,
    duration,
    respond,
    table_of,
)
from asad.cli.times import EPOCH_FROM_S, EPOCH_TO_S, moment
from asad.errors import AsadError, ConfigError, UsageError
from asad.model import HOUSE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from asad.admit.sow.infer import Calibration, Inferred

BAR = 32
"""Columns of the widest bar of a menu."""
MOST_SHOWN = 40
"""So many rows are shown; JSON holds all."""
FRESH_S = 30 * 86_400.0
"""A log that ends longer ago than this is history: what it foresees counts from its end, not from now."""
DAY_S = 86_400.0


@click.group()
def sow() -> None:
    """Statements of work: announce jobs to come, see prices, and what was charged."""


# ------------------------------------------------------------------------------------------------------- history


@sow.command(short_help="Find recurring jobs in an accounting log, as statements to edit.")
@click.argument("log", required=False, type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--store", "store_url", metavar="URL", help="Without LOG: read again the log of the newest replay there."
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the next run of each as a file."
)
@click.option("--user", metavar="NAME", help="Only this user's.")
@click.option(
    "--runs",
    "least_runs",
    type=click.IntRange(4),
    default=8,
    show_default=True,
    metavar="N",
    help="A job that came less often is not recurring.",
)
@click.option(
    "--value-per-core-hour",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="VALUE",
    help="What a run is taken to be worth, by the core-hours that it uses; edit it in the file.",
)
@click.option(
    "--columns", metavar="NAME,…", help="Columns of a log without a header, as sacct --helpformat names them."
)
@click.option(
    "--delimiter", metavar="TEXT", help="Delimiter of a text log [default: found from its first line]."
)
@click.option("--cluster", metavar="NAME", help="The cluster to read, of a log that names several.")
@click.option("--skip-bad", is_flag=True, help="Leave out bad lines of the log.")
@listed("sow infer")
@JSON
def infer(
    log: str | None,
    store_url: str | None,
    out: Path | None,
    user: str | None,
    least_runs: int,
    value_per_core_hour: float,
    columns: str | None,
    delimiter: str | None,
    cluster: str | None,
    skip_bad: bool,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """Find jobs of one user, name, number of cores and gres that keep a period in LOG (as `asactl replay` reads it).

    Shows when they come and how long they run, and how far that could have been relied on: for the last runs, each
    foreseen from those before it, the part that fell at or below each quantile that was foreseen.

    \b
    Examples:
      sacct -aP -S 2026-01-01 -o ALL | asactl sow infer - --out nightly.toml
      asactl sow submit nightly.toml
    """
    from asad.admit.sow.infer import infer as find
    from asad.replay.readers import read_log

    place = log or _log_of_newest_replay(store_url)
    named = [name.strip() for name in columns.split(",")] if columns else None
    recorded = read_log(place, columns=named, delimiter=delimiter, skip_bad=skip_bad, cluster=cluster)
    found = find(recorded.jobs, least_runs)
    shown = [one for one in found.recurring if user in (None, one.user)]
    end_s = float(recorded.jobs.submit_s.max()) if len(recorded.jobs) else 0.0
    now_s = time.time()
    as_of_s = now_s if 0.0 <= now_s - end_s <= FRESH_S else end_s
    dues = [one.next_due_s(as_of_s) for one in shown]
    announced = [one.announce(due_s, value_per_core_hour) for one, due_s in zip(shown, dues, strict=True)]

    rows = chosen.ordered(
        [
            one.to_json() | {"next_due_s": due_s, "statement": statement.to_json()}
            for one, due_s, statement in zip(shown, dues, announced, strict=True)
        ]
    )
    plain = {
        "log": place,
        "as_of_s": as_of_s,
        "jobs": found.jobs,
        "recurring_jobs": found.covered_jobs,
        "recurring_core_share": found.covered_core_s / found.core_s if found.core_s else None,
        "rejected": found.rejected,
        "calibration": found.calibration.to_json(),
        "recurring": rows,
    }

    def view() -> Iterator[Any]:
        table = chosen.shown(rows, most=MOST_SHOWN)
        if chosen.parts:
            yield from table
            return
        yield from _inferred(found)
        if shown:
            yield from (Text(""), *table, Text(""))
            yield from _calibration(sum((one.calibration for one in shown[1:]), shown[0].calibration))
        yield from more

    absent = "the log has no users, without whom no job is known again; write it with the column User"
    more = [absent] if "user" in recorded.absent else []
    respond(as_json, plain, view, indent=1)
    if out is None:
        return
    writable = [
        (one, statement) for one, statement in zip(shown, announced, strict=True) if one.name.isprintable()
    ]
    notes = [
        f"{printable(one.user)}: {one.runs} runs, every {duration(one.rhythm.period_s)}; value and deadline are assumed"
        for one, _ in writable
    ]
    text = written(
        [statement for _, statement in writable],
        [due_text(statement.due_s) for _, statement in writable],
        notes,
    )
    _write("--out", out, text)
    if not as_json and not chosen.parts:
        click.echo(
            f"\n{len(writable)} statements: {printable(str(out))}. Edit it, then asactl sow submit it."
        )


def _write(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AsadError(f"{option} {path}: {error.strerror}; name a file that can be written") from None


def _log_of_newest_replay(store_url: str | None) -> str:
    from asad.store.store import Store

    with Store.open(store_url, create=False) as store:
        for run in store.runs():
            path = run.log.get("path")
            if run.kind == "replay" and path and path != "-":
                if not Path(path).exists():
                    raise UsageError(f"{path}: the log of the newest replay is gone; name the LOG itself")
                return str(path)
        raise UsageError(f"{store} holds no replay of a log; name the LOG: asactl sow infer LOG")


def due_text(due_s: float) -> str:
    """A time as TOML has it: a date with its zone, or seconds where a log's clock is its own."""
    if EPOCH_FROM_S <= due_s < EPOCH_TO_S:
        return f"{datetime.fromtimestamp(round(due_s), UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{due_s:.0f}"


def _inferred(found: Inferred) -> Iterator[Any]:
    share = f"{found.covered_core_s / found.core_s:.1%}" if found.core_s else "none"
    yield Text(
        f"{found.jobs} jobs; {found.covered_jobs} of them ({share} of the core-hours) are runs of "
        f"{len(found.recurring)} recurring jobs"
    )
    for why, number in sorted(found.rejected.items()):
        yield Text(f"  {number} groups of jobs are not recurring: {why}")


def _calibration(total: Calibration) -> Iterator[Any]:
    if not total.runs:
        yield Text("too few runs to say how far that can be relied on")
        return
    facts: Mapping[str, Any] = total.to_json()
    yield Text(f"calibration over {total.runs} runs, each foreseen from those before it alone")
    table = table_of("foreseen: at or below", "came: arrival>", "duration>")
    for k, quantile in enumerate(facts["quantiles"]):
        parts = [f"{facts[key][k]:.0%}" for key in ("offset", "duration")]
        table.add_row(*cells(f"{quantile:.0%}", *parts))
    yield table


# ------------------------------------------------------------------------------------------------------ announcing


@sow.command(short_help="Announce the jobs of a file.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option(
    "--times",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="The next N runs of jobs that come again (`every`).",
)
@click.option("--user", metavar="NAME", help="Whose jobs they are; for root.")
@click.option("--dry-run", is_flag=True, help="Only check the file.")
@SOCKET
@JSON
def submit(
    file: Path, times: int, user: str | None, dry_run: bool, socket_path: str | None, as_json: bool
) -> None:
    """Announce the statements of FILE (TOML; - is standard input) to the daemon, and report the plan of each.

    A plan binds. When the job comes it starts by it: submit it with --comment=asad:sow=NUMBER, or under the name that
    is stated. Its owner is who asks, as the kernel says.
    """
    found = read_announcements(_text_of(file), str(file), time.time())
    if dry_run:
        checked = {"statements": [one.to_json() for one in found]}
        respond(as_json, checked, lambda: [f"{len(found)} statements, nothing wrong with them"], indent=1)
        return
    arguments: dict[str, Any] = {"statements": [one.to_json() for one in found], "times": times}
    if user is not None:
        arguments["user"] = user
    answer = ask(control_socket(socket_path), "sow-submit", **arguments)
    lines = [line for view in rows_of(answer, "statements") for line in announced_lines(view)]
    if not answer.get("acts"):
        lines.append("the daemon only advises: jobs are not held to these plans")
    respond(as_json, answer, lambda: map(printable, lines), indent=1)
    if not as_json and not answer.get("kept"):
        click.echo("the state store is away: a restart of the daemon may forget this", err=True)


def announced_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """What became of one statement, for its owner; not yet safe to print."""
    name = f" ({view['name']})" if view.get("name") else ""
    if view.get("state") != "planned":
        yield f"statement {view['statement']}{name}: {view.get('state')}: {view.get('reason')}"
        return
    yield f"statement {view['statement']}{name}: {view.get('reason')}"
    for arrival_s, start_s, failed in (view.get("plan") or [])[:MOST_SHOWN]:
        if start_s is None:
            yield f"  if it comes by {moment(arrival_s)}: no start is worth its price"
        else:
            yield f"  if it comes by {moment(arrival_s)}: starts {moment(start_s)}, fails with {failed:.1%}"
    yield f"  submit it with --comment=asad:sow={view['statement']}" + (
        f", or under the name {view['name']}" if view.get("name") else ""
    )


def _text_of(file: Path) -> str:
    """What a file of statements holds. Raises ConfigError."""
    place = printable(str(file))
    try:
        if str(file) == "-":
            raw = bytes(sys.stdin.buffer.read(4 * MOST_CHARACTERS + 1))
        else:
            with file.open("rb") as opened:
                raw = opened.read(4 * MOST_CHARACTERS + 1)
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}; name a file that can be read") from None


@sow.command(short_help="Take statements back.")
@click.argument(
    "statements",
    metavar="NUMBER...",
    nargs=-1,
    required=True,
    type=click.IntRange(1),
    shell_complete=completion.statements,
)
@SOCKET
@JSON
def cancel(statements: tuple[int, ...], socket_path: str | None, as_json: bool) -> None:
    """Take back statements whose jobs do not run yet. A job that waits keeps its place in the queue, without a plan."""
    answers = [ask(control_socket(socket_path), "sow-cancel", statement=number) for number in statements]
    respond(
        as_json,
        {"statements": answers},
        lambda: [f"statement {number} is taken back" for number in statements],
        indent=1,
    )


# --------------------------------------------------------------------------------------------------------- prices


@sow.command(short_help="The menu: what a start costs, and how likely it fails.")
@click.option("--cores", type=click.IntRange(1), required=True, metavar="N", help="Cores of the job.")
@click.option("--gres", metavar="GRES", help="Gres of the job over all its nodes: gpu:2, gpu:a100:2.")
@click.option("--licenses", metavar="NAME:N,…", help="Licences of the job.")
@click.option("--memory", metavar="SIZE", help="Its memory, where that is more than its cores' share: 64G.")
@click.option(
    "--time", "-t", "takes", default="1h", show_default=True, metavar="TIME",
    help="How long it runs: 90s, 20m, 1.5h, 2d.",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture of the menu (SVG)."
)
@SOCKET
@JSON
def quote(
    cores: int,
    gres: str | None,
    licenses: str | None,
    memory: str | None,
    takes: str,
    plot: Path | None,
    socket_path: str | None,
    as_json: bool,
) -> None:
    """Show, by start, what a job of that shape pays if it completes, and how likely it is not to, as announced now.

    Prices of a round never fall. Nothing is reserved: a statement gets the menu that is in force when it is made.
    """
    takes_s = time_s(takes)
    if not takes_s > 0:
        raise UsageError(f"--time {takes}: not a time; write 90s, 20m, 1.5h or 2d")
    asked = {"gres": gres, "licenses": licenses, "memory": memory}
    beside: dict[str, Any] = {key: text for key, text in asked.items() if text}
    menu = ask(control_socket(socket_path), "sow-quote", cores=cores, **beside)
    rows = menu_rows(menu, takes_s)
    if plot is not None:
        _write_plot(plot, menu, rows, takes)
    drawn = () if plot is None else (f"\nThe picture: {printable(str(plot))}",)
    plain = {**menu, "takes_s": takes_s, "menu": rows}
    respond(as_json, plain, lambda: [*_menu(menu, rows, takes), *drawn], indent=1)


def menu_rows(menu: Mapping[str, Any], takes_s: float) -> list[dict[str, Any]]:
    """By start: price (None where nothing is sold) and failure probability of a job that runs so long."""
    round_s = float(menu["round_s"])
    rounds = max(1, math.ceil(takes_s / round_s - 0.05))
    longest = len(menu["price"][0]) if menu["price"] else 0
    if rounds > longest:
        raise UsageError(
            f"--time: {takes_s:.0f} s are longer than the {longest * round_s:.0f} s that one job may be planned for"
        )
    return [
        {
            "start_s": menu["first_s"] + at * round_s,
            "price": prices[rounds - 1],
            "failure": failures[rounds - 1],
        }
        for at, (prices, failures) in enumerate(zip(menu["price"], menu["failure"], strict=True))
    ]


def _menu(menu: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], takes: str) -> Iterator[Any]:
    yield Text(
        printable(f"{menu['policy']}: {_size(menu)} for {takes}, in rounds of {duration(menu['round_s'])}")
    )
    yield Text("")
    most = max((row["price"] for row in rows if row["price"] is not None), default=0.0)

    def row_of(row: Mapping[str, Any]) -> Sequence[Any]:
        price, start = row["price"], moment(row["start_s"])
        if price is None:
            return start, "sold out", "", "-"
        bar = "" if most <= 0 else "█" * max(1, round(BAR * price / most))
        return start, f"{price:.4g}", bar, f"{row['failure']:.1%}"

    table = table_of("start", "price>", "", "fails>")
    for row in rows[:MOST_SHOWN]:
        table.add_row(*cells(*row_of(row)))
    yield table
    if len(rows) > MOST_SHOWN:
        yield Text(f"… {len(rows) - MOST_SHOWN} more starts; --json shows them")


def _size(facts: Mapping[str, Any]) -> str:
    """Cores, and what beside, of a menu or statement."""
    gres, licences, memory = (facts.get(key) for key in ("gres", "licenses", "memory"))
    more = (gres, f"licences {licences}" if licences else "", f"memory {memory}" if memory else "")
    return ", ".join([f"{facts.get('cores')} cores", *(text for text in more if text)])


def _write_plot(path: Path, menu: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], takes: str) -> None:
    from asad.report.drawing import axes_at, svg

    sold = [
        (at * menu["round_s"] / 3600.0, row["price"])
        for at, row in enumerate(rows)
        if row["price"] is not None
    ]

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, 64, 16, 560, 220)
        axes.step(
            [at for at, _ in sold], [price for _, price in sold], where="post", color="#1f7fd1", linewidth=2
        )
        axes.set_ylim(bottom=0)
        axes.set_xlabel(f"start, hours from {moment(menu['first_s'])}")
        axes.set_ylabel(f"price of {_size(menu)} for {takes}")

    _write("--plot", path, svg("sow-quote", 640, 290, draw))


# --------------------------------------------------------------------------------------------------------- following


@sow.command(short_help="Statements, their jobs, and what became of them.")
@click.argument(
    "statement",
    required=False,
    type=click.IntRange(1),
    metavar="[NUMBER]",
    shell_complete=completion.statements,
)
@SOCKET
@listed("sow status")
@JSON
def status(statement: int | None, socket_path: str | None, chosen: Chosen, as_json: bool) -> None:
    """List open statements, those that were over last, and the last few that were declined; of one NUMBER show all.

    Values and prices are its owner's.
    """
    facts = ask(control_socket(socket_path), "sow-status")
    rows = rows_of(facts, "statements")
    if statement is not None:
        rows = [row for row in rows if row.get("statement") == statement]
        if not rows:
            raise UsageError(
                f"there is no statement {statement}, or it was over long ago; asactl sow ledger has its line"
            )
    rows = chosen.ordered(rows, clock_of(facts))
    whole = statement is not None and not chosen.parts
    respond(
        as_json,
        {**facts, "statements": rows},
        lambda: map(printable, story(rows[0])) if whole else _status(facts, rows, chosen),
        indent=1,
    )


def _status(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], chosen: Chosen) -> Iterator[Any]:
    table = chosen.shown(rows, clock_of(facts), most=MOST_SHOWN)
    if chosen.parts:
        yield from table
        return
    counts = facts.get("counts") or {}
    view = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    yield Text(
        printable(
            f"{facts.get('policy')}, rounds of {duration(facts.get('round_s') or 0.0)}: {view or 'nothing stated'}"
        )
    )
    if rows:
        yield from (Text(""), *table)


def story(view: Mapping[str, Any]) -> Iterator[str]:
    """One statement as lines; not yet safe to print."""
    job = f", job {view['job']}" if view.get("job") else ""
    name = view.get("name") or "no name"
    yield f"statement {view.get('statement')} of {view.get('owner')}: {name}{job}: {view.get('state')}"
    if view.get("reason"):
        yield f"  {view['reason']}"
    yield (
        f"  announced {moment(view['born_s'])}: {_size(view)}, due {moment(view['due_s'])}, comes from "
        f"{moment(view['first_s'])} to {moment(view['last_s'])}"
    )
    if view.get("value") is not None:
        until = moment(view["deadline_s"])
        yield f"  worth {view['value']:.4g} ({view.get('shape')}) until {until}; evicted by {view.get('eviction')}"
        pays, gains = view["expected_payment"], view["expected_utility"]
        yield f"  expected to pay {pays:.4g}, and to gain {gains:.4g} beyond that"
    for key, word in (("start_s", "starts"), ("started_s", "started"), ("ended_s", "ended")):
        if view.get(key) is not None:
            yield f"  {word} {moment(view[key])}"
    if view.get("paid") is not None:
        yield f"  paid {view['paid']:.6g}"
    for arrival_s, start_s, failed in (view.get("plan") or [])[:MOST_SHOWN]:
        start = "never" if start_s is None else moment(start_s)
        yield f"    comes by {moment(arrival_s)}  starts {start}  fails {failed:.1%}"


@sow.command(short_help="What owners were charged; all lines sum to zero.")
@click.option(
    "--store", "store_url", metavar="URL", help="Read this state store, instead of asking the daemon."
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    help="Only lines of so many days [default: all that the store keeps]; with --store.",
)
@click.option("--lines", is_flag=True, help="Show each line, not only the balances.")
@SOCKET
@listed("sow ledger")
@JSON
def ledger(
    store_url: str | None,
    days: float | None,
    lines: bool,
    socket_path: str | None,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """Show balances by account: owners pay, the house is paid, in the site's unit of value, which is no money.

    Who completes pays the price that was announced; who was evicted, cancelled or failed has a line of nothing. Without
    --store the daemon shows you your own account; operators read all.
    """
    if days is not None and store_url is None:
        store_url = daemon_store()
    if store_url is not None:
        from asad.store import statements as stated
        from asad.store.store import Store

        since_s = -math.inf if days is None else time.time() - days * DAY_S
        with Store.open(store_url, create=False) as store:
            facts: Mapping[str, Any] = stated.ledger(store, None, None, since_s)
    else:
        facts = ask(control_socket(socket_path), "sow-ledger")
    facts = {**facts, "entries": chosen.ordered(rows_of(facts, "entries"))}
    respond(as_json, facts, lambda: _ledger(facts, lines, chosen), indent=1)


def _ledger(facts: Mapping[str, Any], lines: bool, chosen: Chosen) -> Iterator[Any]:
    balances = rows_of(facts, "balances")
    entries = [entry for entry in rows_of(facts, "entries") if entry["account"] != HOUSE]
    if chosen.parts:
        yield from chosen.shown(entries)
        return
    if not balances:
        yield Text("no statement has been charged yet")
        return
    table = table_of("account", "statements>", "paid>", "evicted>", "balance>")
    for one in balances:
        table.add_row(
            *cells(one["account"], one["entries"], one["paid"], one["evicted"], f"{one['balance']:+.6f}")
        )
    yield table
    if facts.get("sum") is not None:
        yield Text(f"all accounts together: {facts['sum']:+.6f}")
    if not lines:
        return
    yield Text("")
    yield from chosen.shown(entries if chosen.sort else entries[-MOST_SHOWN:], most=MOST_SHOWN)
    if len(entries) > MOST_SHOWN and not chosen.sort:
        yield Text("… the newest are shown; --json shows all")

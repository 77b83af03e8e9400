"""`asactl store`: the state store looked after, exported, backed up, and rid of one user."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from asad.bounded import printable
from asad.cli import completion
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed, mebibytes
from asad.cli.live import daemon_store
from asad.cli.screen import JSON, YES, counted, respond
from asad.errors import UsageError
from asad.report.terminal import terminal_console
from asad.store import erasure, exporting, upkeep
from asad.store.store import Store

STORE = click.option(
    "--store", "store_url", metavar="URL", help="State store [default: the daemon's, as asad.toml says]."
)
FORMATS = ("csv", "jsonl", "parquet")
MOST_JOBS_BYTES = 64 * 2**20


def _opened(store_url: str | None) -> Store:
    return Store.open(store_url or daemon_store(), create=False)


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], object]]:
    """A bar on a terminal that is looked at, on standard error; nothing anywhere else."""
    console = terminal_console(stderr=True, highlight=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole or None)


@click.group("store", short_help="Size, export, backup and upkeep of the state store.")
def store() -> None:
    """Look after the state store: how large it is, rows for other programs, a copy, space, and one user erased.

    All of it is safe while a daemon writes. What is kept for how long says `[store]` of asad.toml.
    """


# --------------------------------------------------------------------------------------------------------- size


@store.command(short_help="Rows and bytes, table by table.")
@STORE
@listed("store size")
@JSON
def size(store_url: str | None, chosen: Chosen, as_json: bool) -> None:
    """Print how many rows each table has and what it takes on the disk, with its indexes; reads the whole file."""
    with _opened(store_url) as opened:
        found = chosen.ordered([asdict(one) for one in upkeep.sizes(opened)])
        whole, place = upkeep.total_bytes(opened), str(opened)
    sums = [] if chosen.parts else [f"{printable(place)}: {mebibytes(whole)} on the disk"]
    plain = {"store": place, "bytes": whole, "tables": found}
    respond(as_json, plain, lambda: [*chosen.shown(found), *sums])


# ------------------------------------------------------------------------------------------------------- export


class Moment(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A date, a date with time, seconds of the epoch, or an age."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        with contextlib.suppress(ValueError):
            if value[-1:] in ("d", "h") and value[:-1].isdecimal():
                return time.time() - int(value[:-1]) * (86_400.0 if value.endswith("d") else 3600.0)
            given = float(value)
            if math.isfinite(given):
                return given
        try:
            read = datetime.fromisoformat(value)
        except ValueError:
            return self.fail(
                f"{printable(value)!r} is no time; write 2026-01-31, 2026-01-31T12:00 (UTC), seconds of the "
                "epoch, or an age such as 30d or 12h",
                param,
                ctx,
            )
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


@store.command(short_help="Rows of a table as CSV, JSON or Parquet.")
@click.argument("table_name", metavar="TABLE")
@STORE
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to [default: standard output].",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="jsonl: an object of JSON a line; parquet wants the extra parquet [default: by the end of FILE, else csv].",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl.")
@click.option(
    "--since", type=Moment(), help="Rows from then on: a date, seconds of the epoch, or an age (30d)."
)
@click.option("--until", type=Moment(), help="Rows before then.")
@click.option("--columns", metavar="A,B,…", help="These columns alone, in this order.")
@click.option(
    "--run", "run_id", type=int, metavar="ID", shell_complete=completion.runs, help="Rows of this run alone."
)
@click.option(
    "--raw", is_flag=True, help="CSV: leave text as it is that a spreadsheet would take for a formula."
)
def export(
    table_name: str,
    store_url: str | None,
    out: Path | None,
    form: str | None,
    as_json: bool,
    since: float | None,
    until: float | None,
    columns: str | None,
    run_id: int | None,
    raw: bool,
) -> None:
    """Write the rows of TABLE (`asactl store size` lists them), however many there are, page by page.

    Of CSV text that begins with one of = + - @ or a tab gets an apostrophe before it, since names come from users and a
    spreadsheet would carry them out. A FILE appears when it is whole, and only its owner may read it.
    """
    form = _format(form, as_json, out)
    table = exporting.table_of(table_name)
    chosen = exporting.columns_of(table, [name.strip() for name in columns.split(",")] if columns else [])
    if form == "parquet":
        exporting.arrow_modules()
        if out is None:
            raise UsageError("Parquet is no text; name a file with --out")
    with _opened(store_url) as opened:
        found = exporting.pages(
            opened,
            table,
            chosen,
            since_s=-math.inf if since is None else since,
            until_s=math.inf if until is None else until,
            run_id=run_id,
        )
        if out is None:
            shown = printable if sys.stdout.isatty() else str
            _write_text(form, raw, shown, sys.stdout, chosen, found)
            return
        upkeep.check_target(opened, out)
        rows = 0
        with _progress(f"{table_name}") as report, upkeep.whole_file(out) as made:
            if form == "parquet":
                for rows in exporting.write_parquet(made, chosen, found):
                    report(rows, 0)
            else:
                with made.open("w", encoding="utf-8", newline="") as file:
                    rows = _write_text(form, raw, str, file, chosen, found, report)
    click.echo(f"{counted(rows, 'row')} of {table_name} to {printable(str(out))}", err=True)


def _format(form: str | None, as_json: bool, out: Path | None) -> str:
    if as_json and form not in (None, "jsonl"):
        raise UsageError(f"--json and --format {form} contradict each other; leave one out")
    if as_json or form is not None:
        return form or "jsonl"
    end = "" if out is None else out.suffix.lstrip(".").lower()
    return end if end in FORMATS else "csv"


def _write_text(
    form: str,
    raw: bool,
    shown: Callable[[str], str],
    file: TextIO,
    columns: Sequence[Any],
    found: Iterator[exporting.Page],
    report: Callable[[int, int], object] = lambda done, whole: None,
) -> int:
    write = exporting.write_json_lines
    if form == "csv":
        write = partial(exporting.write_csv, raw=raw, shown=shown)
    rows = 0
    for rows in write(file, columns, found):
        report(rows, 0)
    return rows


# ---------------------------------------------------------------------------------------------- backup and vacuum


@store.command(short_help="A copy of the store, while others write.")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@STORE
@JSON
def backup(path: Path, store_url: str | None, as_json: bool) -> None:
    """Copy the store to FILE as it is at one moment, check the copy, and let it take its name when it is whole.

    Of SQLite FILE is a store itself: `--store FILE` reads it. Of PostgreSQL it is what pg_dump writes in its custom
    format, for pg_restore. Only its owner may read it. An older backup of that name is replaced, and nothing else.
    """
    with _opened(store_url) as opened, _progress("copying") as report:
        written = upkeep.backup(opened, path, report)
        place = str(opened)
    respond(
        as_json,
        {"store": place, "file": str(path), "bytes": written},
        lambda: [
            f"{printable(place)} is backed up to {printable(str(path))} ({mebibytes(written)}), checked"
        ],
    )


@store.command(short_help="Return free space to the disk.")
@STORE
@JSON
def vacuum(store_url: str | None, as_json: bool) -> None:
    """Return the space of removed rows to the disk, some at a time: others write meanwhile.

    What is removed for its age leaves space that new rows take, so that this is of use once: after runs were removed, a
    retention was shortened, or a user erased.
    """
    with _opened(store_url) as opened, _progress("freeing") as report:
        before, after = upkeep.vacuum(opened, report)
        place = str(opened)
    respond(
        as_json,
        {"store": place, "bytes_before": before, "bytes_after": after},
        lambda: [f"{printable(place)}: {mebibytes(before)} before, {mebibytes(after)} after"],
    )


# -------------------------------------------------------------------------------------------------------- erase


@store.command(short_help="Erase what is stored about one user.")
@click.option("--user", required=True, metavar="NAME", help="As Slurm calls the user.")
@click.option(
    "--jobs",
    type=click.File("r", encoding="utf-8", errors="replace"),
    metavar="FILE",
    help="Numbers of the user's jobs, a line each; - for standard input: sacct -nXP -o JobID -u NAME -S 2026-01-01.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be erased, and change nothing.")
@STORE
@YES
@JSON
def erase(
    user: str, jobs: TextIO | None, dry_run: bool, store_url: str | None, yes: bool, as_json: bool
) -> None:
    """Erase what the store knows of a user, after showing how much that is and asking.

    Single rows about the user's jobs become sums that name nobody; cases, statements that are over and what was learned
    of the user's applications are removed; ledgers go on under a pseudonym. Which jobs are the user's the store mostly
    does not know: give them with --jobs. What remains is named at the end. Stop the daemon meanwhile: it would write
    again what it knows.
    """
    if not user.strip() or "/" in user:
        raise UsageError(f"--user: {printable(user)!r} is no name of a user; give it as Slurm has it")
    given = (
        []
        if jobs is None
        else [line.split("|")[0].strip() for line in jobs.read(MOST_JOBS_BYTES).splitlines()]
    )
    with _opened(store_url) as opened:
        numbers = erasure.jobs_of(opened, user, given)
        found = erasure.look(opened, user, numbers)
        running = [run.id for run in opened.runs() if run.kind == "live" and run.state == "running"]
        if not dry_run and any(found.rows.values()):
            if not yes:
                for part in _erased(found, running):
                    click.echo(part, err=True)
                click.confirm(f"Erase this from {printable(str(opened))}?", abort=True, err=True)
            with _progress("erasing") as report:
                found = erasure.erase(opened, user, numbers, lambda table, rows: report(rows, 0))
    respond(
        as_json,
        {**asdict(found), "dry_run": dry_run, "live_runs": running},
        lambda: _erased(found, running),
    )


def _erased(found: erasure.Erased, running: Sequence[int]) -> Iterator[str]:
    user = printable(found.user)
    done = "erased" if found.pseudonym else "to be erased"
    yield f"{user}, {counted(found.jobs, 'job')} known or given:"
    rows = {name: count for name, count in found.rows.items() if count}
    yield from (f"  {name}: {counted(count, 'row')} {done}" for name, count in rows.items())
    if not rows:
        yield "  nothing to erase"
    if found.pseudonym:
        yield f"the ledgers call the user {found.pseudonym} from now on"
    if found.open_statements:
        yield f"{counted(found.open_statements, 'statement')} of work not over, left alone: erase again when they are"
    for place, count in found.mentions.items():
        yield f"  {place}: the name stands in {counted(count, 'row')}"
    if running:
        yield f"run {running[0]} is live: its daemon may write again what it knows; stop it and erase again"

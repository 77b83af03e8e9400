"""`asactl status`, `top`, `jobs`, `nodes`: what the daemon sees. `pause`, `resume`, `release`, `mode`: what it does."""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from asad.api.control import DaemonDown, Refused, ask
from asad.bounded import printable
from asad.cli import completion
from asad.cli.listing import Listing
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed
from asad.cli.live_fields import JOB_FIELDS
from asad.cli.screen import (
    JSON,
    cell_text,
    cells,
    duration,
    needs_text,
    nodes_text,
    respond,
    table_of,
)
from asad.config import DEFAULT_PATH, MODES, Config, DaemonSettings, load
from asad.errors import AsadError, ConfigError, UsageError
from asad.report import funnel, units
from asad.report.terminal import terminal_console
from asad.report.wait_reasons import live_sentence

Facts = Mapping[str, Any]

SOCKET = click.option(
    "--socket",
    "socket_path",
    metavar="PATH",
    envvar="ASAD_SOCKET",
    help="The daemon's control socket [default: as asad.toml says, else /run/asad/asad.sock].",
)


def control_socket(given: str | None) -> Path:
    """Where to ask: as given, as the configuration says, or the usual place."""
    if given:
        return Path(given)
    with contextlib.suppress(
        ConfigError
    ):  # not there, not ours to read, or wrong: `config check` is for that
        return load(os.environ.get("ASAD_CONFIG") or DEFAULT_PATH).daemon.socket
    return DaemonSettings().socket


def daemon_store() -> str:
    """Path or URL of the daemon's state store. Raises ConfigError where the configuration is wrong."""
    path = os.environ.get("ASAD_CONFIG")
    if path is None and not DEFAULT_PATH.exists():
        return Config().store_url
    return load(path or DEFAULT_PATH).store_url


# ------------------------------------------------------------------------------------------------------ looking


@click.command(short_help="One screen: what the live daemon sees, lends and gained.")
@SOCKET
@JSON
def status(socket_path: str | None, as_json: bool) -> None:
    """Show one screen: the cluster, the mode, the last cycle and what the daemon does if it takes long, silent actors,
    gains and vetoes since the start, where the idle CPU goes and what would free most of it, and who lends to whom.
    """
    facts = ask(control_socket(socket_path), "status")
    respond(as_json, facts, lambda: [status_screen(facts, clock_of(facts))])


@click.command(short_help="The same, live; q quits.")
@SOCKET
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the screen is drawn anew.",
)
@click.option("--once", is_flag=True, help="Draw it once and leave, as without a terminal.")
@JSON
def top(socket_path: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Watch the status and the running jobs, drawn anew every few seconds; q quits."""
    place = control_socket(socket_path)

    def look() -> dict[str, Any]:
        return {"status": ask(place, "status"), "jobs": ask(place, "jobs", state="running")}

    def screen(facts: Facts) -> RenderableType:
        jobs = rows_of(facts["jobs"], "jobs")
        order = sorted(jobs, key=lambda job: (job.get("state") != "guest", str(job.get("job"))))
        now_s = clock_of(facts["status"])
        table = Chosen(fields=JOB_FIELDS).shown(order, now_s, empty="no jobs")
        return Group(status_screen(facts["status"], now_s), Text(""), *table)

    if once or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        facts = look()
        respond(as_json, facts, lambda: [screen(facts)])
        return

    def shown() -> RenderableType:
        try:
            return screen(look())
        except DaemonDown:
            raise
        except AsadError as error:  # nothing has been seen yet: keep looking
            return Text(f"{printable(str(error))}\n\nq quits")

    with (
        _keys() as pressed,
        Live(shown(), console=terminal_console(), screen=True, auto_refresh=False) as live,
    ):
        while pressed(interval) not in ("q", "Q", "\x03", "\x04"):
            try:
                live.update(shown(), refresh=True)
            except DaemonDown as error:  # it starts again: keep looking
                live.update(Text(f"{printable(str(error))}\n\nq quits"), refresh=True)


@click.command(short_help="Jobs as the live daemon sees them.")
@SOCKET
@click.option(
    "--state",
    type=click.Choice(["waiting", "offered", "running", "guest"]),
    help="Only these.",
)
@click.option("--user", "-u", metavar="NAME", shell_complete=completion.users, help="Only this user's.")
@click.option(
    "--nodelist",
    "-w",
    metavar="NODES",
    shell_complete=completion.nodes,
    help="Only those on one of these nodes: n[01-16].",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="At most so many.",
)
@listed("jobs")
@JSON
def jobs(
    socket_path: str | None,
    state: str | None,
    user: str | None,
    nodelist: str | None,
    limit: int,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """List jobs, what was measured of them, and in plain text why they may not lend or be guests."""
    wanted = {"state": state, "user": user}
    arguments: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
    facts = ask(control_socket(socket_path), "jobs", limit=limit, **arguments)
    found, now_s = rows_of(facts, "jobs"), clock_of(facts)
    total = int(facts.get("total", len(found)))
    more = total - len(found)
    if nodelist is not None:
        where = set(nodes_of(nodelist))
        found = [job for job in found if where & set(job.get("nodes") or [])]
    found = chosen.ordered(found, now_s)
    respond(
        as_json,
        {"jobs": found, "total": total, "now_s": now_s},
        lambda: chosen.shown(found, now_s, empty="no jobs"),
    )
    if more > 0:
        click.echo(f"{more} more; --limit shows them", err=as_json or bool(chosen.parts))


@click.command(short_help="Nodes as the live daemon sees them.")
@click.argument("sets", metavar="[NODES]...", nargs=-1, shell_complete=completion.nodes)
@SOCKET
@listed("nodes")
@JSON
def nodes(sets: tuple[str, ...], socket_path: str | None, chosen: Chosen, as_json: bool) -> None:
    """List nodes, whether their actors answer, who is on them, and why nothing is lent there; of NODES (n[01-16]) these
    alone.
    """
    facts = ask(control_socket(socket_path), "nodes")
    found, now_s = rows_of(facts, "nodes"), clock_of(facts)
    if sets:
        wanted = dict.fromkeys(name for text in sets for name in nodes_of(text))
        missing = wanted.keys() - {node.get("node") for node in found}
        if missing:
            raise UsageError(
                f"the cluster has no {nodes_text(sorted(missing))}; `asactl nodes` lists its nodes"
            )
        found = [node for node in found if node.get("node") in wanted]
    found = chosen.ordered(found, now_s)
    respond(
        as_json,
        {"nodes": found},
        lambda: chosen.shown(found, now_s, empty="no nodes"),
    )


def nodes_of(text: str) -> list[str]:
    """The names in a set of nodes that somebody typed. Raises UsageError."""
    from asad.cluster.node_names import expand

    try:
        return list(expand(text))
    except ValueError as error:
        raise UsageError(printable(f"{error}; write n1,n2 or n[1-4,7]")) from None


# ------------------------------------------------------------------------------------------------------ changing


def _change(socket_path: str | None, as_json: bool, verb: str, done: str, **arguments: Any) -> None:
    answer = ask(control_socket(socket_path), verb, **arguments)

    def lines() -> Iterator[str]:
        yield done
        deeds = answer.get("done", []) if isinstance(answer, Mapping) else answer
        yield from (f"  {printable(str(one))}" for one in (deeds if isinstance(deeds, list) else []))
        meanwhile = answer.get("meanwhile") if isinstance(answer, Mapping) else None
        if meanwhile:
            yield f"  it holds from now on, although the daemon is {printable(str(meanwhile))}"

    respond(as_json, answer, lines)


@click.command(short_help="Lend nothing new until `resume`.")
@SOCKET
@JSON
def pause(socket_path: str | None, as_json: bool) -> None:
    """Lend nothing new; at once, also in a long cycle or while the daemon still compiles its policies.

    Guests that run go on; `release` withdraws what is offered. A pause outlives a restart.
    """
    _change(socket_path, as_json, "pause", "paused: nothing new is lent; `asactl resume` goes on")


@click.command(short_help="Lend again after `pause` or `release`.")
@SOCKET
@JSON
def resume(socket_path: str | None, as_json: bool) -> None:
    """Lend again."""
    _change(socket_path, as_json, "resume", "resumed")


@click.command(short_help="Release everything now.")
@SOCKET
@JSON
def release(socket_path: str | None, as_json: bool) -> None:
    """Pause, withdraw every offer, and lift every quota, now.

    Guests that run cannot be moved: they stay in the idle class beside their hosts, which hurts nobody.
    """
    _change(socket_path, as_json, "release", "released: offers are taken back, quotas lifted; asad is paused")


@click.command(short_help="Show or change what the daemon may do.")
@click.argument("name", metavar="[observe|advise|enforce]", type=click.Choice(MODES), required=False)
@SOCKET
@JSON
def mode(name: str | None, socket_path: str | None, as_json: bool) -> None:
    """Without an argument show the mode; with one change it, until the daemon starts again.

    observe: measure and learn. advise: decide and record too, act on nothing. enforce: lend.
    """
    if name is not None:
        _change(socket_path, as_json, "mode", f"mode is {name}", mode=name)
        return
    now = str(ask(control_socket(socket_path), "status").get("mode", ""))
    respond(as_json, {"mode": now}, lambda: [printable(now)], indent=None)


# ------------------------------------------------------------------------------------------------------ screens


def status_screen(facts: Facts, now_s: float) -> Group:
    """The daemon's status as one screen. Every text of it is made safe to print."""
    cluster, cycle = facts.get("cluster") or {}, facts.get("cycle") or {}
    gains, actors = facts.get("gains") or {}, facts.get("actors") or {}
    head = Text.assemble(
        ("asad ", "bold"), cell_text(facts.get("version")), " · ", (cell_text(facts.get("mode")), "bold")
    )
    if facts.get("paused"):
        head.append(" · paused", "bold yellow")
    if isinstance(facts.get("since_s"), int | float):
        head.append(f" · up {duration(max(0.0, time.time() - facts['since_s']))}")
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True, style="dim")
    lines.add_column()
    lines.add_row("cluster", Text(cell_text(cluster.get("sentence") or "nothing has been seen yet")))
    if cluster.get("nodes"):
        lines.add_row("jobs", _jobs_line(cluster))
    waits = [row for row in facts.get("waits") or [] if isinstance(row, Mapping) and _known(row.get("jobs"))]
    if any(row["jobs"] for row in waits):
        lines.add_row("queue", Text(cell_text(live_sentence(waits).replace(units.THIN, " "))))
    lines.add_row("cycle", _cycle_line(cycle, now_s, str(facts.get("doing") or "")))
    lines.add_row("actors", _actors_line(actors))
    lines.add_row("gains", _gains_line(gains))
    if advice := funnel.advice(funnel_of(facts), live=True):
        lines.add_row("idle", Text(cell_text(advice.replace(units.THIN, " "))))
    vetoes = facts.get("vetoes") or {}
    if vetoes:
        reported = sorted(vetoes.items(), key=lambda item: -item[1])
        lines.add_row("vetoes", Text(", ".join(f"{cell_text(name)} {number}" for name, number in reported)))
    lending = [pair for pair in facts.get("lending") or [] if isinstance(pair, Mapping)]
    body: RenderableType = lending_table(lending, now_s) if lending else Text("nobody lends at the moment")
    return Group(head, lines, Text(""), body)


def funnel_of(facts: Facts) -> list[tuple[str, float]]:
    """Where the CPU went that batch left idle, as a daemon reports it; empty if it does not."""
    return [
        (str(row.get("reason")), float(row["core_h"]))
        for row in facts.get("funnel") or []
        if isinstance(row, Mapping) and isinstance(row.get("core_h"), int | float)
    ]


def _jobs_line(cluster: Facts) -> Text:
    return Text(
        f"{_whole(cluster.get('running'))} running, {_whole(cluster.get('waiting'))} waiting, "
        f"{_whole(cluster.get('guests'))} as guests; on {_whole(cluster['nodes'])} nodes, "
        f"{_whole(cluster.get('cores'))} cores"
    )


def _cycle_line(cycle: Facts, now_s: float, doing: str) -> Text:
    if not cycle.get("number"):
        return Text(f"none yet; the daemon is {printable(doing) or 'about to begin the first'}")
    words = [f"{_whole(cycle['number'])}"]
    if isinstance(cycle.get("time_s"), int | float):
        words.append(f"{max(0.0, now_s - cycle['time_s']):.0f} s ago")
    if isinstance(cycle.get("wall_ms"), int | float):
        words.append(f"took {cycle['wall_ms']:.0f} ms")
    sentence = cell_text(cycle.get("sentence")).removeprefix(f"cycle {cycle['number']}").lstrip(": ")
    reported = f"{', '.join(words)}: {sentence}"
    return Text(f"{reported}; now {printable(doing)}" if doing else reported)


def _actors_line(actors: Facts) -> Text:
    connected = actors.get("connected", 0)
    text = Text(f"{len(connected) if isinstance(connected, list) else _whole(connected)} connected")
    if actors.get("silent"):
        text.append(f"; silent: {nodes_text(actors['silent'])}", "yellow")
    return text


def _gains_line(gains: Facts) -> Text:
    words = [f"{_whole(gains.get('guests', 0))} guests so far"]
    if _known(gains.get("lent_core_s")):
        words.append(f"{gains['lent_core_s'] / 3600:.1f} core-hours lent")
    if _known(gains.get("saved_wait_s")):
        words.append(f"{duration(gains['saved_wait_s'])} of waiting saved")
    if _known(gains.get("extended_s")):
        words.append(f"time limits extended by {duration(gains['extended_s'])}")
    return Text(", ".join(words))


def lending_table(lending: Sequence[Facts], now_s: float) -> Listing:
    """Who lends to whom."""
    table = table_of("guest", "of*", "beside", "of", "nodes", "share>", "for>", "pace>", "happiness>")
    for pair in lending:
        table.add_row(
            *cells(
                pair.get("guest"),
                pair.get("guest_user"),
                pair.get("host") or needs_text(pair),
                pair.get("host_user"),
                nodes_text(pair.get("nodes")),
                _percent(pair.get("share"), unknown="quota" if pair.get("needs") else "idle class"),
                _since(pair.get("since_s"), now_s),
                _percent(pair.get("pace")),
                _figure(pair.get("happiness")),
            )
        )
    return table


# ------------------------------------------------------------------------------------------------------- wordings


def clock_of(facts: Facts) -> float:
    """Now, by the daemon's clock: a recorded log has a time of its own."""
    now_s = facts.get("now_s")
    return float(now_s) if isinstance(now_s, int | float) else time.time()


def rows_of(answer: Any, key: str) -> list[Facts]:
    """The rows under `key` of an answer. Raises Refused if it has none."""
    found = answer.get(key) if isinstance(answer, Mapping) else None
    if not isinstance(found, list) or not all(isinstance(row, Mapping) for row in found):
        raise Refused(f"the daemon's answer holds no {key}; are asactl and the daemon of one version?", 1)
    return found


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> str:
    return f"{value:,.0f}".replace(",", " ") if _known(value) else "-"


def _percent(value: Any, unknown: str = "-") -> str:
    return f"{value * 100:.0f} %" if _known(value) else unknown


def _figure(value: Any) -> str:
    return f"{value:.2f}" if _known(value) else "-"


def _since(time_s: Any, now_s: float) -> str:
    return duration(max(0.0, now_s - time_s)) if _known(time_s) else "-"


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Keys without Enter: a function that waits for one for so many seconds."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def pressed(wait_s: float) -> str:
        ready, _, _ = select.select([terminal], [], [], wait_s)
        return os.read(terminal, 1).decode(errors="replace") or "q" if ready else ""

    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)

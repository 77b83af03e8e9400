"""What commands share on the terminal: options, tables, how times and names are written, and the one way to answer.

Names, comments and reasons come from users: all that is printed goes through `printable`, or is a cell of a table.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from asad.bounded import printable
from asad.status import FREE

PIPE_WIDTH = 160
"""What a pipe reads is not cut to a width that nobody looks at."""
NAMED = 4
"""So many nodes or jobs are named in one cell."""
EPOCH_FROM_S = 631_152_000.0
"""Times from here on (1990) are UTC epochs; logs whose clock starts at 0 stay below for twenty years."""

STORE = click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="Path, sqlite:///path or postgresql://… of the state store [default: $XDG_STATE_HOME/asad/asad.db].",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")


def respond(
    as_json: bool, plain: Any, screen: Callable[[], Iterable[RenderableType]], *, indent: int | None = 2
) -> None:
    """Print what a command found out: `plain` as JSON for machines, else the parts of the screen one after another.

    A text is a line that is safe to print. Only the one that is asked for is made: `plain` may be a function too.
    """
    if as_json:
        click.echo(json.dumps(plain() if callable(plain) else plain, indent=indent))
        return
    for part in screen():
        if isinstance(part, str):
            click.echo(part)
        else:
            print_screen(part)


def print_screen(screen: RenderableType) -> None:
    """As wide as the terminal; to a pipe without colours and blanks at line ends."""
    terminal = Console(file=sys.stdout, highlight=False)
    if terminal.is_terminal:  # FORCE_COLOR counts too
        terminal.print(screen)
        return
    console = Console(file=io.StringIO(), width=PIPE_WIDTH, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(screen)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def table_of(*headings: str, folded: str = "") -> Table:
    """Columns by heading; a `>` at its end puts them to the right. Only what is in the column `folded` is broken."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        right = heading.endswith(">")
        table.add_column(
            heading.rstrip(">"),
            justify="right" if right else "left",
            no_wrap=heading != folded,
            overflow="fold" if heading == folded else "ellipsis",
        )
    return table


def cells(*values: Any) -> Iterator[Text]:
    """Cells of a table, safe to print."""
    return (Text(cell_text(value)) for value in values)  # Text: names are no markup


def cell_text(value: Any) -> str:
    """One value of an answer, safe to print: `-` for none, of a long list the first few."""
    if value is None:
        return "-"
    if isinstance(value, list):
        more = f",… {len(value)}" if len(value) > NAMED else ""
        return printable(",".join(str(item) for item in value[:NAMED])) + more
    return printable(str(value))


def duration(seconds: float, *, sign: bool = False) -> str:
    """Slurm's way of writing a time: `1-02:03:04`, or `2:03:04` within a day; rounded to seconds."""
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(abs(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    if days:
        clock = f"{days}-{clock:0>8}"
    if seconds < 0 and whole:
        return f"-{clock}"
    return f"+{clock}" if sign else clock


def moment(time_s: float) -> str:
    """A time of the log: the date where its clock is the UTC epoch, else the log's own seconds."""
    if EPOCH_FROM_S <= time_s < 253_402_300_800:  # datetime ends with the year 9999
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"t={time_s:.0f} s"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def sources_of(job: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """By node, who gives a guest what it needs there; as far as the daemon's answer makes sense."""
    given = job.get("from")
    return {
        str(node): _amounts(parts) for node, parts in (given.items() if isinstance(given, Mapping) else ())
    }


def gives_to(job: Mapping[str, Any]) -> str:
    """`gives 1.9 cores to 41400 and 1 to 41401`; nothing of a job that gives nothing."""
    amounts = _amounts(job.get("gives"))
    if not amounts:
        return ""
    first, *rest = sorted(amounts.items(), key=lambda part: -part[1])
    parts = [f"{first[1]:.2g} {'core' if f'{first[1]:.2g}' == '1' else 'cores'} to {first[0]}"]
    parts += [f"{cores:.2g} to {guest}" for guest, cores in rest[:2]]
    parts += [f"{sum(cores for _, cores in rest[2:]):.2g} to {len(rest) - 2} more"] if len(rest) > 2 else []
    return "gives " + (" and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0])


def _amounts(plain: object) -> dict[str, float]:
    """Numbers by name."""
    if not isinstance(plain, Mapping):
        return {}
    return {str(name): cores for name, cores in plain.items() if isinstance(cores, int | float)}


def cores_on(amounts: Mapping[str, float], sources: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """Cores' worth of CPU by node, in words, with who gives them; of many nodes, and of many who give, the first
    three."""
    amount = [(f"{cores:.3g}", node + _from((sources or {}).get(node))) for node, cores in amounts.items()]
    parts = [f"{cores} of {node}" for cores, node in amount]
    cores, node = amount[0]
    parts[0] = f"{cores} {'core' if cores == '1' else 'cores'} of {node}"
    if len(parts) > 4:
        parts = [*parts[:3], f"{sum(amounts.values()):.3g} in all on {len(parts)} nodes"]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _from(parts: object) -> str:
    """Who gives cores of one node: ` (1.9 from 41344, 1 free)`; nothing if that is not known."""
    if not isinstance(parts, Mapping) or not parts:
        return ""
    found = sorted(parts.items(), key=lambda part: (part[0] == FREE, -part[1]))
    words = [f"{cores:.2g} {'free' if who == FREE else f'from {who}'}" for who, cores in found]
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return f" ({', '.join(words[:3])}{more})"

"""What commands share on the terminal: options, tables, how times and names are written, and the one way to answer.

Names, comments and reasons come from users: all that is printed goes through `printable`, or is a cell of a table.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from asad.bounded import printable
from asad.cli.listing import Listing
from asad.cli.output import schema_name
from asad.cli.times import with_dates
from asad.report.terminal import has_width, terminal_console
from asad.status import FREE

PIPE_WIDTH = 160
"""What a pipe reads is not cut to a width that nobody looks at."""
NAMED = 4
"""So many nodes or jobs are named in one cell."""

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
        print_json(plain() if callable(plain) else plain, indent=indent)
        return
    for part in screen():
        if isinstance(part, Copied):
            click.echo(part)
        elif isinstance(part, str):
            print_line(part)
        else:
            print_screen(part)


def print_json(plain: Mapping[str, Any], *, indent: int | None = 2) -> None:
    click.echo(json_text(plain, indent=indent))


def json_text(plain: Mapping[str, Any], *, indent: int | None = 2) -> str:
    """The answer of the command that runs, with its schema (`asad.cli.json_answers`) and dates beside times."""
    context: click.Context | None = click.get_current_context()
    words: list[str] = []
    while context is not None and context.command.name != "asactl":
        words.insert(0, str(context.command.name))
        context = context.parent
    command = " ".join(words)
    return json.dumps({"schema": schema_name(command), **with_dates(plain)}, indent=indent)


def print_screen(screen: RenderableType) -> None:
    """As wide as the terminal; to a pipe without colours and blanks at line ends, as wide as COLUMNS if that is set."""
    terminal = terminal_console()
    if terminal.is_terminal:
        terminal.print(screen)
        return
    width = terminal.width if "COLUMNS" in os.environ else PIPE_WIDTH
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(screen, crop=False)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def print_line(line: str, *, err: bool = False) -> None:
    """A line that is safe to print; what is too long for a terminal goes on below, indented, broken between words."""
    terminal = terminal_console(stderr=err)
    width = terminal.width if has_width(terminal) else 0
    if not width or cell_len(line) <= width:
        click.echo(line, err=err)
        return
    indent = len(line) - len(line.lstrip()) + 2
    first = Text(line.lstrip()).wrap(terminal, max(20, width - indent))
    for number, part in enumerate(first):
        click.echo(" " * (indent - (0 if number else 2)) + part.plain.rstrip(), err=err)


class Copied(str):
    """A line that is there to be copied, as of a configuration: it is printed as it is, however long it is."""


def table_of(*headings: str) -> Listing:
    """A table that fits the terminal; what stands behind a heading (`>`, `*`, `?`) is explained at `Listing`."""
    return Listing(*headings)


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


def nodes_text(names: Any) -> str:
    """Names of nodes as one folded set, `n[1-3,7]`, safe to print; `-` for none."""
    from asad.cluster.node_names import folded

    found = [str(name) for name in names] if isinstance(names, list | tuple) else []
    return printable(folded(found)) or "-"


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


def needs_text(job: Mapping[str, Any]) -> str | None:
    """What a guest that draws from pools needs of its nodes, in words; None of any other job. Not yet safe to print."""
    by_node = _amounts(job.get("needs"))
    return f"needs {cores_on(by_node, sources_of(job))}" if by_node else None


def cores_on(amounts: Mapping[str, float], sources: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """Cores' worth of CPU by node, in words, with who gives them; nodes that need the same of the same are folded, and
    of many amounts, and of many who give, the first three are named. Not yet safe to print."""
    from asad.cluster.node_names import folded

    alike: dict[tuple[str, str], list[str]] = {}
    for node, cores in amounts.items():
        alike.setdefault((f"{cores:.3g}", _from((sources or {}).get(node))), []).append(node)
    parts: list[str] = []
    for (amount, origin), nodes in alike.items():
        unit = "" if parts else " core" if amount == "1" else " cores"
        each = " each" if len(nodes) > 1 else ""
        parts.append(f"{amount}{unit} of {folded(nodes)}{each}{origin}")
    if len(parts) > 4:
        parts = [*parts[:3], f"{sum(amounts.values()):.3g} in all on {folded(amounts)}"]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _from(parts: object) -> str:
    """Who gives cores of one node: ` (1.9 from 41344, 1 free)`; nothing if that is not known."""
    if not isinstance(parts, Mapping) or not parts:
        return ""
    found = sorted(parts.items(), key=lambda part: (part[0] == FREE, -part[1]))
    words = [f"{cores:.2g} {'free' if who == FREE else f'from {who}'}" for who, cores in found]
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return f" ({', '.join(words[:3])}{more})"

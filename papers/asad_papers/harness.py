"""The one harness of all evaluations: parts are run, and what they found becomes JSON, tables in a terminal, or a page.

A paper says what its parts are (name → what runs it and gives a piece of the document), and how a document reads: its
verdict in sentences, and sections of tables, notes and plots. Everything else is here.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from asad.cli.output import require_folder
from asad.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

JSON = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
PAGE = click.option(
    "--page", type=click.Path(path_type=Path), metavar="FILE", help="Write them with plots to FILE (HTML)."
)

Document = Mapping[str, Any]
"""What `asactl bench … --json` prints."""
Step = Callable[[str], None]
"""Called with what is done next."""
Parts = Mapping[str, Callable[[], Mapping[str, Any]]]
"""Name of a part → what runs it, and gives its piece of the document."""


def quiet(_: str) -> None:
    """The `Step` of who shows nothing."""


class Table(NamedTuple):
    """Cells are plain text; the first column names its row."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False
    """Shown on a page alone, and there only when it is opened."""
    page_only: Sequence[str] = ()
    """Heads of columns for which a terminal has no room."""


class Plot(NamedTuple):
    """Shown on a page alone, drawn for the width of a page and of a telephone."""

    title: str
    explanation: str
    draw: Callable[[int], str]
    """Width in pixels → SVG, empty where there is nothing to draw."""


Piece = Table | Plot | str
"""Text is a note in whole sentences."""
Section = tuple[str, str, Sequence[Piece]]
"""Key, title, and what stands in it."""


class Reading(NamedTuple):
    """How a document reads."""

    kicker: str
    heading: str
    title: str
    facts: str
    verdict: Sequence[str]
    sections: Sequence[Section]
    method: str

    def page(self, command: str) -> str:
        """As HTML; `command` is what was typed."""
        from asad.report import html, units

        bodies = [("verdict", "Verdict", str(html.show.prose(self.verdict)))]
        for key, title, pieces in self.sections:
            body = "".join(_html(piece) for piece in pieces)
            if body:
                bodies.append((key, title, body))
        method = html.show.method(self.method, units.plain(command, 4_000))
        bodies.append(("method", "How it was found", str(method)))
        return html.render(
            "page.html",
            title=self.title,
            kicker=self.kicker,
            heading=self.heading,
            facts=self.facts,
            sections=[{"key": key, "title": title, "body": body} for key, title, body in bodies],
        )

    def print(self) -> None:
        """To a terminal: its tables and notes, without what a page folds."""
        from rich.console import Console

        console = Console()
        console.print(_typed_numbers(self.facts), style="bold", markup=False, soft_wrap=True)
        print_pieces([piece for _, _, pieces in self.sections for piece in pieces])


def print_pieces(pieces: Sequence[Piece]) -> None:
    """The tables and notes among them, to a terminal, without what a page folds."""
    from rich.console import Console

    console = Console()
    for piece in pieces:
        if isinstance(piece, str):
            console.print(_typed_numbers(piece), markup=False, highlight=False, soft_wrap=True)
        elif isinstance(piece, Table) and not piece.folded:
            _print_table(console, piece)


def _html(piece: Piece) -> str:
    from asad.report import html
    from asad.report.drawing import NARROW, WIDE

    if isinstance(piece, str):
        return str(html.TEMPLATES.from_string('<p class="prose">{{ text }}</p>').render(text=piece))
    if isinstance(piece, Table):
        table = str(html.show.table(*piece[:3]))
        return f"<details><summary>Each instance</summary>{table}</details>" if piece.folded else table
    wide = piece.draw(WIDE)
    if not wide:
        return ""
    return str(html.show.figure(piece.title, piece.explanation, piece.title, wide, piece.draw(NARROW)))


def _typed_numbers(text: str) -> str:
    """Numbers as one types them: pages set thin spaces between thousands and before units."""
    return re.sub(r"\u202f(?=%)", "", re.sub(r"(?<=\d)\u202f(?=\d)", ",", text)).replace("−", "-")


def _print_table(console: Console, piece: Table) -> None:
    from rich import table
    from rich.text import Text

    # a title of its own would be as wide as the table
    console.print(f"\n{_typed_numbers(piece.title)}", style="bold", markup=False, soft_wrap=True)
    made = table.Table(box=None, padding=(0, 1, 0, 0))
    shown = [number for number, head in enumerate(piece.heads) if head not in piece.page_only]
    for number in shown:
        words = number == 0 or any(row[number][:1].isalpha() for row in piece.rows)
        made.add_column(Text(piece.heads[number]), justify="left" if words else "right", no_wrap=True)
    for row in piece.rows:
        made.add_row(*(Text(_typed_numbers(row[number])) for number in shown))
    console.print(made)


# --------------------------------------------------------------------------------------------------- commands


def chosen(text: str, option: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names in a list with commas, each once. Raises UsageError for one that is not `known`, and for none."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}: there are {', '.join(known)}")
    if not names:
        raise UsageError(f"{option}: name some of {', '.join(known)}")
    return names


class Doing:
    """What was done last, on standard error; nothing where nobody looks."""

    def __init__(self, show: bool) -> None:
        self.show = show

    def __enter__(self) -> Step:
        if not self.show:
            return quiet
        from rich.console import Console

        self.status = Console(stderr=True).status("…")
        self.status.start()
        return self._update

    def _update(self, text: str) -> None:
        from rich.markup import escape

        from asad.report.units import plain

        self.status.update(escape(plain(text)))

    def __exit__(self, *_: object) -> None:
        if self.show:
            self.status.stop()


def evaluate(
    parts: Callable[[Step], Parts],
    wanted: Sequence[str],
    warm_up: Callable[[], object],
    reading: Callable[[Document], Reading],
    as_json: bool,
    page: Path | None,
    always: Mapping[str, Any] | None = None,
) -> None:
    """Run the parts that are wanted, each in its turn, and give what they found as was asked for.

    `warm_up` compiles first, so that nothing is timed with it; `always` stands in the document whatever was wanted.
    Raises UsageError where the page cannot be written.
    """
    require_folder(page)
    document: dict[str, Any] = {}
    with Doing(sys.stderr.isatty()) as step:
        step("compiling")
        warm_up()
        for name, run in parts(step).items():
            if name in wanted:
                step(name)
                for key, value in run().items():
                    document[key] = document[key] + value if key in document else value
    document |= always or {}
    if page is not None:
        from asad.report.html import write_whole

        try:
            write_whole(reading(document).page(typed()), page)
        except OSError as error:
            raise UsageError(f"--page {page}: cannot be written ({error.strerror})") from error
    if as_json:
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    reading(document).print()
    if page is not None:
        click.echo(f"The page: {page}", err=True)


def typed() -> str:
    """The command as it was typed, without what says where its answer goes."""
    context = click.get_current_context()
    return shlex.join((*context.command_path.split(), *_typed(context)))


def _typed(context: click.Context) -> Iterator[str]:
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in ("as_json", "page"):
            value = context.params[name]
            yield parameter.opts[0]
            if not isinstance(value, bool):
                yield f"{value:g}" if isinstance(value, float) else str(value)

"""How findings read: tables, notes and plots in sections, on a page or in a terminal.

Evaluations of papers and sweeps say what stands in them; what it looks like is here and in `templates/`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console


class Table(NamedTuple):
    """Cells are plain text; the first column names its row."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: str = ""
    """If given: shown on a page alone, and there only when these words are opened."""
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
        from asad.report.terminal import has_width, terminal_console

        console = terminal_console(highlight=True)
        console.print(
            _typed_numbers(self.facts), style="bold", markup=False, soft_wrap=not has_width(console)
        )
        print_pieces([piece for _, _, pieces in self.sections for piece in pieces])


def print_pieces(pieces: Sequence[Piece]) -> None:
    """The tables and notes among them, to a terminal, without what a page folds."""
    from asad.report.terminal import has_width, terminal_console

    console = terminal_console(highlight=True)
    for piece in pieces:
        if isinstance(piece, str):
            console.print(
                _typed_numbers(piece), markup=False, highlight=False, soft_wrap=not has_width(console)
            )
        elif isinstance(piece, Table) and not piece.folded:
            _print_table(console, piece)


def _html(piece: Piece) -> str:
    from asad.report import html
    from asad.report.drawing import NARROW, WIDE

    if isinstance(piece, str):
        return str(html.TEMPLATES.from_string('<p class="prose">{{ text }}</p>').render(text=piece))
    if isinstance(piece, Table):
        table = str(html.show.table(*piece[:3]))
        return f"<details><summary>{piece.folded}</summary>{table}</details>" if piece.folded else table
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

    from asad.report.terminal import has_width

    # a title of its own would be as wide as the table
    console.print(
        f"\n{_typed_numbers(piece.title)}", style="bold", markup=False, soft_wrap=not has_width(console)
    )
    made = table.Table(box=None, padding=(0, 1, 0, 0))
    shown = [number for number, head in enumerate(piece.heads) if head not in piece.page_only]
    for number in shown:
        words = number == 0 or any(row[number][:1].isalpha() for row in piece.rows)
        made.add_column(Text(piece.heads[number]), justify="left" if words else "right", no_wrap=True)
    for row in piece.rows:
        made.add_row(*(Text(_typed_numbers(row[number])) for number in shown))
    console.print(made)

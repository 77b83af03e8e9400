"""Tables that fit: on a narrow terminal rows are not broken, names stay whole, and what is least needed goes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from asad.report.terminal import has_width

LEAST = 8
"""Columns of the terminal that a text that is cut keeps."""
REASONED = 12
"""So many rows are named with what holds for them."""
EMPTY = ("", "-")


def first_of(names: Sequence[str]) -> str:
    """The first names, and how many there are besides."""
    more = f" and {len(names) - REASONED} more" if len(names) > REASONED else ""
    return f"{', '.join(names[:REASONED])}{more}"


class Listing:
    """A table of texts that are safe to print.

    Headings: one that ends with `>` stands to the right, one with `*` is not cut, nor left out if it has values (nor is
    the first), and one with `?` is a sentence: what does not fit beside a row is printed below the table, with the rows
    that it holds for. Where the rest is too wide columns without values go, then blanks between columns, then ends of
    long texts, then whole columns, numbers first and from the right.
    """

    def __init__(self, *headings: str) -> None:
        self.headings = [heading.rstrip(">*?") for heading in headings]
        self.right = [
            ">" in heading[len(bare) :] for heading, bare in zip(headings, self.headings, strict=True)
        ]
        self.whole = [
            not number or "*" in heading[len(bare) :]
            for number, (heading, bare) in enumerate(zip(headings, self.headings, strict=True))
        ]
        self.sentence = next((n for n, heading in enumerate(headings) if heading.endswith("?")), None)
        self.rows: list[list[Text]] = []
        self.notes: list[Text] = []
        """Lines below the table."""
        self.together: Callable[[Sequence[str]], str] = first_of
        """How rows that one sentence holds for are named: nodes are folded."""

    def add_row(self, *cells: Text) -> None:
        self.rows.append(list(cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widest = options.max_width if has_width(console) else 1 << 20
        widths = [
            max(cell_len(self.headings[column]), *(cell_len(row[column].plain) for row in self.rows), 0)
            for column in range(len(self.headings))
        ]
        shown, below, gap = list(range(len(widths))), False, 2

        def excess() -> int:
            return sum(widths[column] for column in shown) + gap * (len(shown) - 1) - widest

        if excess() > 0:
            shown = [column for column in shown if not column or self._filled(column)]
        if excess() > 0 and self.sentence in shown:
            shown.remove(self.sentence)
            below = True
        if excess() > 0:
            gap = 1
        while excess() > 0 and (texts := [c for c in shown if not self._fixed(c) and widths[c] > LEAST]):
            longest = max(texts, key=lambda column: widths[column])
            widths[longest] = max(LEAST, widths[longest] - excess())
        left_out: list[str] = []
        while excess() > 0 and (spare := [column for column in shown if not self.whole[column]]):
            last = max(spare, key=lambda column: (self.right[column], column))
            shown.remove(last)
            left_out.insert(0, self.headings[last])
        while (
            excess() > 0 and max(widths[column] for column in shown) > LEAST
        ):  # names of hundreds of letters
            longest = max(shown, key=lambda column: widths[column])
            widths[longest] = max(LEAST, widths[longest] - excess())
        table = self._table(shown, widths, gap)
        width = sum(widths[column] for column in shown) + gap * (len(shown) - 1)
        yield from console.render(table, options.update(width=max(width, 1), max_width=max(width, 1)))
        if below:
            yield from self._below()
        if left_out:
            yield Text(f"no place for {', '.join(left_out)}", "dim")
        yield from self.notes

    def _filled(self, column: int) -> bool:
        return any(row[column].plain not in EMPTY for row in self.rows)

    def _fixed(self, column: int) -> bool:
        """Numbers are not cut, nor are names."""
        return self.whole[column] or self.right[column]

    def _table(self, shown: Sequence[int], widths: Sequence[int], gap: int) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
        for column in shown:
            table.add_column(
                Text(self.headings[column]),
                justify="right" if self.right[column] else "left",
                width=widths[column],
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self.rows:
            table.add_row(*(row[column] for column in shown))
        return table

    def _below(self) -> RenderResult:
        """Each sentence with the rows that it holds for."""
        assert self.sentence is not None
        holds: dict[str, list[str]] = {}
        for row in self.rows:
            if row[self.sentence].plain not in EMPTY:
                holds.setdefault(row[self.sentence].plain, []).append(row[0].plain)
        for sentence, names in holds.items():
            yield Text(f"{sentence}: {self.together(names)}")

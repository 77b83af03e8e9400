"""`--format`, `--Format` and `--sort` of listings, as squeue and sinfo have them.

Of each listing the fields stand in one table (`asad.cli.listings`), with what the usual table shows of them; help, man
page and documentation are made of it. `-o "%.18i %.9u %T"`: a letter for a field, a width before it, a point for the
right side. `-O "jobid:18,name"`: names of fields, a width behind them. Letters and names that squeue or sinfo have mean
the same here; what only asad knows has a name and no letter.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.text import Text

from asad.bounded import printable
from asad.cli.completion import offered
from asad.cli.listing import Listing
from asad.cli.screen import Copied, cell_text, nodes_text
from asad.errors import UsageError

Facts = Mapping[str, Any]
WIDTH = 20
"""Of a field of `--Format` that names none, as squeue has it."""
MOST_WIDTH = 100_000
_LETTER = re.compile(
    r"%(?P<right>\.?)(?P<width>\d{0,6})(?P<letter>[A-Za-z%])|(?P<text>[^%]+)|(?P<wrong>%.?)", re.S
)
_NAME = re.compile(r"(?P<name>[A-Za-z]+)(?::(?P<right>\.?)(?P<width>\d{1,6}))?", re.ASCII)
_KEY = re.compile(r"(?P<order>[+-]?)(?P<name>[A-Za-z]+)", re.ASCII)


class Field(NamedTuple):
    """One field of the rows of a listing."""

    name: str
    """As `--Format` has it; capitals do not matter."""
    heading: str
    about: str
    value: Callable[[Facts, float], Any]
    """Of a row, and the time by the daemon's clock (s): what is printed, None for nothing. Numbers sort as numbers."""
    letter: str = ""
    """As `--format` has it; empty: it has none."""
    text: Callable[[Any], str] = str
    """The value as text."""
    column: str = ""
    """Heading in the usual table, with the marks of `Listing`; empty: it is no column of that."""
    brief: Callable[[Any], Any] | None = None
    """What stands there, where that is another text."""
    folded: bool = False
    """Are lines that differ in it alone one, with a set of nodes?"""

    def cell(self, row: Facts, now_s: float) -> str:
        """Safe to print."""
        value = self.value(row, now_s)
        return "N/A" if value is None else printable(self.text(value))

    def usual(self, row: Facts, now_s: float) -> Text:
        """Its cell of the usual table, safe to print."""
        value = self.value(row, now_s)
        if value is None and self.column.endswith("?"):
            return Text("")
        return Text(cell_text(value if value is None else (self.brief or self.text)(value)))


class Part(NamedTuple):
    """A field with its width in columns of a terminal (0: as long as it is), or text between fields."""

    field: Field | None
    width: int = 0
    right: bool = False
    text: str = ""

    def fitted(self, content: str) -> str:
        """Cut, or filled with blanks."""
        if self.field is None:
            return self.text
        if not self.width:
            return content
        blanks = " " * (self.width - cell_len(content))
        return blanks + content if self.right and blanks else set_cell_size(content, self.width)


class Chosen(NamedTuple):
    """What a caller wants of a listing."""

    parts: tuple[Part, ...] = ()
    """Empty: the usual table."""
    sort: tuple[tuple[Field, bool], ...] = ()
    """Fields and whether each falls, the first first."""
    header: bool = True
    fields: tuple[Field, ...] = ()
    """All that there are."""

    def shown(
        self, rows: Sequence[Facts], now_s: float = 0.0, *, empty: str = "", most: int | None = None
    ) -> Iterator[RenderableType]:
        """Lines of the fields that are asked for; else the usual table of the first `most` rows, or `empty`."""
        if self.parts:
            yield from self.lines(rows, now_s)
        elif empty and not rows:
            yield empty
        else:
            yield usual_table(self.fields, rows[:most], now_s)
            if len(rows) > len(rows[:most]):
                yield f"… {len(rows) - len(rows[:most])} more; --json shows them"

    def ordered(self, rows: Sequence[Facts], now_s: float = 0.0) -> list[Facts]:
        """The rows sorted; those without a value come last."""
        found = list(rows)
        for field, falls in reversed(self.sort):
            values = [(row, field.value(row, now_s)) for row in found]
            there = [pair for pair in values if pair[1] is not None]
            there.sort(key=lambda pair: _ordinal(pair[1]), reverse=falls)
            found = [row for row, _ in there] + [row for row, value in values if value is None]
        return found

    def lines(self, rows: Iterable[Facts], now_s: float) -> Iterator[Copied]:
        """The listing as lines; rows that differ in a field that is folded alone are one, as sinfo has it."""
        if self.header:
            yield self._line(part.field.heading if part.field else "" for part in self.parts)
        folds = [part.field is not None and part.field.folded for part in self.parts]
        if not any(folds):
            for row in rows:
                yield self._line(part.field.cell(row, now_s) if part.field else "" for part in self.parts)
            return
        alike: dict[tuple[str, ...], list[Facts]] = {}
        for row in rows:
            key = [
                part.field.cell(row, now_s) if part.field and not here else ""
                for part, here in zip(self.parts, folds, strict=True)
            ]
            alike.setdefault(tuple(key), []).append(row)
        for cells, group in alike.items():
            yield self._line(
                _together(part.field, group, now_s) if part.field and here else cell
                for part, here, cell in zip(self.parts, folds, cells, strict=True)
            )

    def _line(self, contents: Iterable[str]) -> Copied:
        return Copied(
            "".join(part.fitted(content) for part, content in zip(self.parts, contents, strict=True)).rstrip()
        )


def _ordinal(value: Any) -> tuple[int, Any]:
    """Numbers before texts, digits within texts as numbers: job 9 comes before job 10."""
    if isinstance(value, int | float):
        return 0, value
    pieces = re.split(r"(\d+)", str(value))
    return 1, [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces]


def _together(field: Field, rows: Sequence[Facts], now_s: float) -> str:
    from asad.cluster.node_names import folded

    return printable(folded(name for row in rows for name in field.value(row, now_s)))


def parsed(
    fields: Sequence[Field], letters: str | None, names: str | None, sort: str | None, header: bool
) -> Chosen:
    """What `--format`, `--Format` (which goes first) and `--sort` ask for. Raises UsageError that lists what there
    is."""
    parts = tuple(_of_letters(fields, letters) if letters is not None else ())
    parts = tuple(_of_names(fields, names)) if names is not None else parts
    return Chosen(parts, tuple(_keys(fields, sort or "")), header, tuple(fields))


def _of_letters(fields: Sequence[Field], text: str) -> Iterator[Part]:
    known = {field.letter: field for field in fields if field.letter}
    for found in _LETTER.finditer(text):
        if found["text"] is not None:
            yield Part(None, text=printable(found["text"]))
        elif found["letter"] == "%":
            yield Part(None, text="%")
        elif found["letter"] in known:
            yield Part(known[found["letter"]], _width(found["width"]), bool(found["right"]))
        else:
            raise UsageError(f"--format: there is no field {printable(found[0])!r}; {_there_is(fields)}")


def _of_names(fields: Sequence[Field], text: str) -> Iterator[Part]:
    for piece in text.split(","):
        found = _NAME.fullmatch(piece.strip())
        field = found and next((one for one in fields if one.name.lower() == found["name"].lower()), None)
        if not found or field is None:
            raise UsageError(f"--Format: there is no field {printable(piece[:40])!r}; {_there_is(fields)}")
        yield Part(field, _width(found["width"] or str(WIDTH)), bool(found["right"]))


def _width(digits: str) -> int:
    return min(int(digits or 0), MOST_WIDTH)


def _keys(fields: Sequence[Field], text: str) -> Iterator[tuple[Field, bool]]:
    by_name = {field.name.lower(): field for field in fields}
    by_letter = {field.letter: field for field in fields if field.letter}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        found = _KEY.fullmatch(piece)
        field = found and (by_letter.get(found["name"]) or by_name.get(found["name"].lower()))
        if not found or field is None:
            raise UsageError(f"--sort: there is no field {printable(piece[:40])!r}; {_there_is(fields)}")
        yield field, found["order"] == "-"


def _there_is(fields: Sequence[Field]) -> str:
    return "there are " + ", ".join(
        f"{field.name} (%{field.letter})" if field.letter else field.name for field in fields
    )


def usual_table(fields: Sequence[Field], rows: Iterable[Facts], now_s: float) -> Listing:
    """The table of those fields that are columns of it; nodes that one sentence holds for are folded."""
    columns = [field for field in fields if field.column]
    table = Listing(*(field.column for field in columns))
    if any(field.folded for field in fields):
        table.together = nodes_text
    for row in rows:
        table.add_row(*(field.usual(row, now_s) for field in columns))
    return table


def field_options(
    fields: Sequence[Field], variable: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of a listing, given to the command as one `Chosen`, its parameter `chosen`; its help lists the fields."""

    completed = offered(lambda _: ((field.name, field.about) for field in fields), many=True)

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(
            *given: Any,
            letters: str | None,
            names: str | None,
            sort: str | None,
            no_header: bool,
            **others: Any,
        ) -> Any:
            return command(*given, chosen=parsed(fields, letters, names, sort, not no_header), **others)

        for option in (
            click.option("--noheader", "no_header", is_flag=True, help="Leave out the line of headings."),
            click.option(
                "--sort",
                "-S",
                metavar="FIELDS",
                shell_complete=completed,
                help="Sort by these fields (letters or names); - before one: falling.",
            ),
            click.option(
                "--Format",
                "-O",
                "names",
                metavar="NAMES",
                shell_complete=completed,
                help='Fields by name: "jobid:18,name".',
            ),
            click.option(
                "--format",
                "-o",
                "letters",
                metavar="FORMAT",
                envvar=variable,
                help='Fields by letter, as squeue and sinfo have them: "%.18i %.8u %T".',
            ),
        ):
            called = option(called)
        listed = "\n".join(
            f"  {'%' + one.letter if one.letter else '':4}{one.name:<16}{one.about}" for one in fields
        )
        called.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n\b\nFields:\n{listed}"
        return called

    return decorated

"""The lines of a table as records, whatever users wrote into them: delimiters in names, and line breaks.

Most lines have one field a column and pass untouched. The others are taken apart so that every column which is used, or
whose shape is known, can be read; there must be one way to do that.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asad.replay.readers.accounting_log import BadValue, Reading

MOST_SURPLUS = 100
"""Delimiters in the names of one record; with more it counts as bad."""
MOST_LINES = 100
"""Of one record."""
CORRECT = "correct the line, or skip it with --skip-bad"

Row = list[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the records of a table are written; columns are meant by their places."""

    width: int
    delimiter: str
    header: str | None
    """The line that names the columns, wherever it stands again."""
    trailing: bool
    """Each record ends with the delimiter, as `sacct -p` has it."""
    quoted: bool
    """Fields may stand in quotes, as CSV has it."""
    used: Mapping[int, Callable[[str], Any]]
    """Columns that are used, and what of a text of theirs is: readings that agree in that are one."""
    free: frozenset[int]
    """Columns that may hold delimiters and line breaks."""
    readers: Mapping[int, Callable[[str], Any]]
    """What reads a column, and raises BadValue for what it cannot hold."""


@dataclass(slots=True)
class Records:
    """Records of a block, in the order of the log."""

    rows: list[Row] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    """(rows,) the line on which each begins."""


def records_of(blocks: Iterable[list[str]], layout: Layout, reading: Reading) -> Iterator[Records]:
    """The records of a log, block by block. Counts in `reading` the lines that are none, and notes the bad ones."""
    carried: list[str] = []
    number = 1
    for lines, last in _with_last(blocks):
        lines = carried + lines
        bare = [line.removesuffix(layout.delimiter) for line in lines] if layout.trailing else lines
        rows = [line.split(layout.delimiter) for line in bare]
        reading.count("lines", len(lines) - len(carried))
        stop = len(lines) if last else _last_beginning(rows, layout.width)
        carried = lines[stop:]
        yield _assembled(lines[:stop], rows[:stop], number, layout, reading)
        number += stop


def _with_last(blocks: Iterable[list[str]]) -> Iterator[tuple[list[str], bool]]:
    """Each block, and whether it is the last one."""
    before: list[str] | None = None
    for block in blocks:
        if before is not None:
            yield before, False
        before = block
    if before is not None:
        yield before, True


def _last_beginning(rows: list[Row], width: int) -> int:
    """Where the last record of a block begins, which may go on in the next one."""
    at = next((at for at in reversed(range(len(rows))) if len(rows[at]) >= width), 0)
    while at > 0 and len(rows[at - 1]) < width:  # it may itself be the rest of a line before
        at -= 1
    return at if len(rows) - at <= MOST_LINES else len(rows)


def _assembled(lines: list[str], rows: list[Row], first: int, layout: Layout, reading: Reading) -> Records:
    width, header = layout.width, layout.header
    plain = not layout.quoted or not any('"' in line for line in lines)
    if plain and all(len(row) == width for row in rows) and header not in lines:
        return Records(rows, list(range(first, first + len(rows))))
    records = Records()
    at = 0
    while at < len(lines):
        line, row, taken = lines[at], rows[at], 1
        if line == header:
            reading.count("header")
        elif not line.strip():
            reading.count("blank")
        else:
            try:
                if layout.quoted and '"' in line:
                    row, taken = _unquoted(lines, at, layout)
                row = _trimmed(row, width)
                if len(row) > width:
                    row = _resolved(row, layout)
                elif len(row) < width:
                    if _continues(records, row, layout):
                        records.rows[-1][-1] += "\n" + layout.delimiter.join(row)
                        reading.count("rest of a line before")
                        at += 1
                        continue
                    row, taken = _joined(lines, rows, at, layout)
            except BadValue as bad:
                reading.fault(first + at, None, bad)
            else:
                records.rows.append(row)
                records.line.append(first + at)
                reading.count("rest of a line before", taken - 1)
        at += taken
    return records


def _trimmed(row: Row, width: int) -> Row:
    """Of logs that were joined one may be of `sacct -p`, and end each line with the delimiter."""
    return row[:-1] if len(row) == width + 1 and row[-1] == "" else row


def _unquoted(lines: list[str], at: int, layout: Layout) -> tuple[Row, int]:
    """The fields of a record in which quotes stand, and how many lines it takes: quotes may hold line breaks."""
    text = lines[at]
    taken = 1
    while text.count('"') % 2 and taken < MOST_LINES and at + taken < len(lines):
        text += "\n" + lines[at + taken]
        taken += 1
    if text.count('"') % 2:  # a quote that never closes is a part of a name
        text, taken = lines[at], 1
    try:
        row = next(csv.reader((text,), delimiter=layout.delimiter))
    except (csv.Error, TypeError, StopIteration) as error:
        raise BadValue(f"its quotes cannot be read ({error})", "close each quote") from error
    bare = lines[at].split(layout.delimiter)
    return (row, taken) if len(row) == layout.width or len(bare) != layout.width else (bare, 1)


def _continues(records: Records, row: Row, layout: Layout) -> bool:
    """Is a line of too few fields the rest of the last column of the record before it?

    Not if it could be the beginning of a record itself.
    """
    if not records.rows or layout.width - 1 not in layout.free:
        return False
    first = layout.readers.get(0)
    return first is not None and not _reads(first, row[0])


def _joined(lines: list[str], rows: list[Row], at: int, layout: Layout) -> tuple[Row, int]:
    """A record that goes on in the lines after the first one, and how many lines it takes."""
    fields, problem = len(rows[at]), ""
    for following in range(at + 1, min(len(lines), at + MOST_LINES)):
        if lines[following] == layout.header or _whole(rows[following], layout):
            break
        fields += len(rows[following]) - 1
        if fields < layout.width:
            continue
        text = "\n".join(lines[at : following + 1])
        whole = text.removesuffix(layout.delimiter) if layout.trailing else text
        row = _trimmed(whole.split(layout.delimiter), layout.width)
        if len(row) < layout.width:
            continue
        try:
            return _resolved(row, layout), following - at + 1
        except BadValue as bad:
            problem = f", and with the {'line' if following == at + 1 else 'lines'} after it {bad.problem}"
            break
    raise BadValue(
        f"{len(rows[at])} fields where there are {layout.width} columns{problem}",
        f"a line break in a name, or cut off? {CORRECT}",
    )


def _whole(row: Row, layout: Layout) -> bool:
    """Is a line a record by itself?"""
    row = _trimmed(row, layout.width)
    return len(row) == layout.width and all(_reads(read, row[at]) for at, read in layout.readers.items())


def _reads(read: Callable[[str], Any], text: str) -> bool:
    try:
        read(text)
    except BadValue:
        return False
    return True


def _resolved(record: Row, layout: Layout) -> Row:
    """Give the surplus fields of a record to its names, so that every other column can be read.

    Where that can be done in several ways, they must agree in all columns that are used; those that are not are left
    empty. Raises BadValue.
    """
    width, delimiter = layout.width, layout.delimiter
    surplus = len(record) - width
    if surplus and not layout.free:
        raise BadValue(
            f"{len(record)} fields where there are {width} columns, none of which is free text", CORRECT
        )
    if surplus > MOST_SURPLUS:
        raise BadValue("too many delimiters in its names", "write the log with another --delimiter")
    # ways[column]: how many surplus fields are taken before it → how many it can take itself
    ways: list[dict[int, list[int]]] = []
    reached = {0}
    for place in range(width):
        read = layout.readers.get(place)
        takes: dict[int, list[int]] = {}
        for before in sorted(reached):
            most = surplus - before if place in layout.free else 0
            takes[before] = [
                more
                for more in range(most + 1)
                if read is None or _reads(read, _text(record, place, before, more, delimiter))
            ]
        ways.append(takes)
        reached = {before + more for before, several in takes.items() for more in several}
    # backwards: what of that leads to an end without a rest
    resolved = [""] * width
    ends = {surplus} & reached
    if not ends:
        raise BadValue(
            f"{len(record)} fields where there are {width} columns, and no way to read it", CORRECT
        )
    for place in reversed(range(width)):
        texts: dict[Any, str] = {}
        value = layout.used.get(place)
        starts = set()
        for before, several in ways[place].items():
            for more in several:
                if before + more in ends:
                    starts.add(before)
                    if value is not None:
                        text = _text(record, place, before, more, delimiter)
                        texts.setdefault(value(text), text)
        if value is not None:
            if len(texts) > 1:
                raise BadValue(
                    f"it has {surplus} delimiters too many, and more than one way to read it",
                    "write the log with another --delimiter",
                )
            (resolved[place],) = texts.values()
        ends = starts
    return resolved


def _text(record: Sequence[str], place: int, before: int, more: int, delimiter: str) -> str:
    first = place + before
    return record[first] if more == 0 else delimiter.join(record[first : first + more + 1])

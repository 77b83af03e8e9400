"""The lines of a table as records, whatever users wrote into them: delimiters in names, and line breaks.

Most lines have one field a column and pass untouched. The others are taken apart so that every column which is used, or
whose shape is known, can be read; there must be one way to do that.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from asad.errors import LogError
from asad.replay.readers.accounting_log import BadValue, Reading
from asad.replay.readers.table_header import Header, header_again

MOST_SURPLUS = 100
"""Delimiters in the names of one record; with more it counts as bad."""
MOST_LINES = 100
"""Of one record, where the line breaks are not in its last column."""
MOST_REST = 10_000
"""Lines of the last column of a record."""
CORRECT = "correct the line, or skip it with --skip-bad"
_RULE = re.compile(r"[-=+|: \t]*--[-=+|: \t]*")
"""What some programs draw below the names of columns."""

Row = list[str]


Readable = Callable[[str], bool]


class _Stretch(NamedTuple):
    """A column that may hold delimiters (the first stretch may have none) and those after it that do not."""

    place: int
    free: bool
    readable: Readable | None
    typed: list[tuple[int, Readable]]
    """Of the others: places, and what can stand there."""
    value: Callable[[str], Any] | None
    """As in `Layout.used`; None: not used."""
    used: list[tuple[int, Callable[[str], Any]]]
    """The same of the others."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the records of a table are written; columns are meant by their places."""

    width: int
    delimiter: str
    header: Header | None
    names: tuple[str, ...]
    """Of columns, as a header has them that stands among the records."""
    trailing: bool
    """Each record ends with the delimiter, as `sacct -p` has it."""
    quoted: bool
    """Fields may stand in quotes, as CSV has it."""
    used: Mapping[int, Callable[[str], Any]]
    """Columns that are used, and what of a text of theirs is: readings that agree in that are one."""
    free: frozenset[int]
    """Columns that may hold delimiters and line breaks."""
    readable: Mapping[int, Readable]
    """Whether a text can stand in a column, where not any can."""
    optional: frozenset[int] = frozenset()
    """Columns that are used and left empty where readings of a record do not agree in them."""
    usual: Mapping[int, Readable] = field(default_factory=dict)
    """Whether a text is one that usually stands in a column of free text; others count only if there is no other
    way."""
    _stretches: dict[bool, list[_Stretch]] = field(default_factory=dict)

    def stretches(self, usual: bool) -> list[_Stretch]:
        """All columns, divided before each one of free text."""
        if usual not in self._stretches:
            begins = sorted({0, *self.free})
            self._stretches[usual] = [
                self._stretch(*ends, usual) for ends in zip(begins, [*begins[1:], self.width], strict=True)
            ]
        return self._stretches[usual]

    def _stretch(self, first: int, stop: int, usual: bool) -> _Stretch:
        known = {**self.usual, **self.readable} if usual else self.readable
        return _Stretch(
            first,
            first in self.free,
            known.get(first),
            [(place, known[place]) for place in range(first + 1, stop) if place in known],
            self.used.get(first),
            [(place, self.used[place]) for place in range(first + 1, stop) if place in self.used],
        )


@dataclass(slots=True)
class Records:
    """Records of a block, in the order of the log."""

    rows: list[Row] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    """(rows,) the line on which each begins."""


def records_of(
    blocks: Iterable[list[str]], layout: Layout, reading: Reading, before: int = 0
) -> Iterator[Records]:
    """The records of a log, block by block, from the line after `before` on. Counts in `reading` the lines that are
    none, and notes the bad ones.

    Raises LogError where a header names other columns.
    """
    records, carried, number = Records(), list[str](), 1
    trailing = {layout.trailing}  # logs of `sacct -p` and `sacct -P` may have been joined
    for lines, last in _with_last(blocks):
        reading.count("lines", len(lines))
        if before:
            left_out = lines[:before]
            blank = sum(not line.strip() for line in left_out)
            reading.count("blank", blank)
            reading.count("before the header", len(left_out) - blank)
            lines = lines[before:]
            before -= len(left_out)
            number += len(left_out)
        lines = carried + lines
        taken = _assemble(records, lines, number, last, layout, reading, trailing)
        carried = lines[taken:]
        number += taken
        if last:
            yield records
        else:  # the last record may go on in the next block
            going_on = Records(records.rows[-1:], records.line[-1:])
            del records.rows[-1:], records.line[-1:]
            yield records
            records = going_on


def _with_last(blocks: Iterable[list[str]]) -> Iterator[tuple[list[str], bool]]:
    """Each block, and whether it is the last one."""
    before: list[str] | None = None
    for block in blocks:
        if before is not None:
            yield before, False
        before = block
    if before is not None:
        yield before, True


def _assemble(
    records: Records,
    lines: list[str],
    first: int,
    last: bool,
    layout: Layout,
    reading: Reading,
    trailing: set[bool],
) -> int:
    """Append the records of `lines` to `records`, and return how many lines were taken.

    If more follow (not `last`), lines of which a record might go on in the next ones are left. `trailing` holds whether
    the headers so far end with the delimiter.
    """
    width, delimiter = layout.width, layout.delimiter
    bare = [line.removesuffix(delimiter) for line in lines] if True in trailing else lines
    rows = [line.split(delimiter) for line in bare]
    headers = _headers(lines, first, layout, reading)
    plain = not layout.quoted or not any('"' in line for line in lines)
    if plain and not headers and all(len(row) == width for row in rows):
        records.rows += rows
        records.line += range(first, first + len(rows))
        return len(lines)
    stop = len(lines) if last else len(lines) - MOST_LINES
    at = 0
    while at < stop:
        line, row, taken = lines[at], rows[at], 1
        if at in headers:
            reading.count("header")
            trailing.add(headers[at].trailing)
        elif not line.strip():
            reading.count("blank")
        elif at - 1 in headers and _RULE.fullmatch(line):
            reading.count("header")
        else:
            try:
                if layout.quoted and '"' in line:
                    row, taken = _unquoted(lines, at, headers, layout)
                elif len(row) == width - 1 and len(trailing) > 1 and line.endswith(delimiter):
                    row = line.split(delimiter)  # one of `sacct -P` of which the last field is empty
                row = _trimmed(row, width)
                if len(row) > width:
                    row = _resolved(row, layout)
                elif len(row) < width:
                    rest = _rest(records, lines, rows, at, first, headers, layout)
                    if rest:
                        records.rows[-1][-1] += "\n" + "\n".join(map(delimiter.join, rows[at : at + rest]))
                        reading.count("rest of a line before", rest)
                        at += rest
                        continue
                    row, taken = _joined(lines, rows, at, headers, layout)
            except BadValue as bad:
                reading.fault(first + at, None, bad)
            else:
                records.rows.append(row)
                records.line.append(first + at)
                reading.count("rest of a line before", taken - 1)
        at += taken
    return at


def _headers(lines: list[str], first: int, layout: Layout, reading: Reading) -> dict[int, Header]:
    """Which lines name the columns once more. Raises LogError where they are other columns."""
    if "jobid" not in "\n".join(lines).lower():
        return {}
    found = {}
    for at, line in enumerate(lines):
        header = header_again(line, layout.header, layout.names, layout.delimiter)
        if header is None:
            continue
        if header.names != layout.names or header.delimiter != layout.delimiter:
            following = lines[at + 1] if at + 1 < len(lines) else line
            if following.count(header.delimiter) < len(header.names) - 1:
                continue  # a user's text that names columns: no record of theirs follows
            what = "columns" if header.delimiter == layout.delimiter else "delimiters"
            raise LogError(
                reading.path,
                first + at,
                None,
                f"another header, with other {what}, at line {first + at}",
                "give the logs one by one",
            )
        found[at] = header
    return found


def _trimmed(row: Row, width: int) -> Row:
    """Of logs that were joined one may be of `sacct -p`, and end each line with the delimiter."""
    return row[:-1] if len(row) == width + 1 and row[-1] == "" else row


def _unquoted(lines: list[str], at: int, headers: Mapping[int, Header], layout: Layout) -> tuple[Row, int]:
    """The fields of a record in which quotes stand, and how many lines it takes: quotes may hold line breaks.

    A quote that never closes, or closes only in another record, is a part of a name.
    """
    text, taken = lines[at], 1
    bare = text.split(layout.delimiter)
    alone = _whole(bare, layout)
    while text.count('"') % 2 and taken < MOST_LINES and at + taken < len(lines):
        line = lines[at + taken]
        if at + taken in headers or ((alone or not line.count('"') % 2) and _whole_of_line(line, layout)):
            break
        text += "\n" + line
        taken += 1
    if text.count('"') % 2:
        text, taken = lines[at], 1
    row = _fields(text, layout)
    if len(row) == layout.width or (row and len(bare) != layout.width):
        return row, taken
    return bare, 1


def _fields(text: str, layout: Layout) -> Row:
    """The fields of a text in which quotes stand as CSV has them; none if they stand otherwise."""
    try:
        return next(csv.reader((text,), delimiter=layout.delimiter))
    except (csv.Error, TypeError, StopIteration):
        return []


def _whole_of_line(line: str, layout: Layout) -> bool:
    """Is a line a record by itself, with quotes or without?"""
    if _whole(line.split(layout.delimiter), layout):
        return True
    return '"' in line and _whole(_fields(line, layout), layout)


def _rest(
    records: Records,
    lines: list[str],
    rows: list[Row],
    at: int,
    number: int,
    headers: Mapping[int, Header],
    layout: Layout,
) -> int:
    """How many lines of too few fields are the rest of the last column of the record before them.

    None that could be the beginning of a record itself.
    """
    begin = layout.readable.get(0)
    if not records.rows or layout.width - 1 not in layout.free or begin is None:
        return 0
    most = min(len(lines), at + MOST_REST, records.line[-1] + MOST_REST - number)
    stop = at
    while (
        stop < most
        and len(rows[stop]) < layout.width
        and stop not in headers
        and lines[stop].strip()
        and not begin(rows[stop][0])
    ):
        stop += 1
    return stop - at


def _joined(
    lines: list[str], rows: list[Row], at: int, headers: Mapping[int, Header], layout: Layout
) -> tuple[Row, int]:
    """A record that goes on in the lines after the first one, and how many lines it takes."""
    fields, problem = len(rows[at]), ""
    for following in range(at + 1, min(len(lines), at + MOST_LINES)):
        if following in headers or _whole(rows[following], layout):
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
    return len(row) == layout.width and all(readable(row[at]) for at, readable in layout.readable.items())


def _resolved(record: Row, layout: Layout) -> Row:
    """Give the surplus fields of a record to its names, so that every other column can be read.

    Where that can be done in several ways, they must agree in all columns that are used and not optional; those that
    are not used are left empty. Raises BadValue.
    """
    surplus = len(record) - layout.width
    if surplus and not layout.free:
        raise BadValue(
            f"{len(record)} fields where there are {layout.width} columns, none of which is free text",
            CORRECT,
        )
    if surplus > MOST_SURPLUS:
        raise BadValue("too many delimiters in its names", "write the log with another --delimiter")
    ways = _ways(record, surplus, layout, usual=True) if layout.usual else None
    ways = ways or _ways(record, surplus, layout, usual=False)
    if ways is None:
        raise BadValue(
            f"{len(record)} fields where there are {layout.width} columns, and no way to read it", CORRECT
        )
    # backwards: what of that leads to an end without a rest
    resolved = [""] * layout.width
    ends = [surplus]
    for stretch, ended in zip(reversed(layout.stretches(usual=False)), reversed(ways), strict=True):
        if len(ends) == 1 and len(ended[ends[0]]) == 1:  # as nearly all
            (end,) = ends
            for place, _ in stretch.used:
                resolved[place] = record[place + end]
            ends = ended[end]
            if stretch.value is not None:
                resolved[stretch.place] = _text(
                    record, stretch.place, ends[0], end - ends[0], layout.delimiter
                )
            continue
        for place, value in stretch.used:
            there = (record[place + end] for end in ends)
            resolved[place] = _agreed(value, there, surplus, place in layout.optional)
        begins = [(before, end - before) for end in ends for before in ended[end]]
        if stretch.value is not None:
            texts = (_text(record, stretch.place, *begin, layout.delimiter) for begin in begins)
            optional = stretch.place in layout.optional
            resolved[stretch.place] = _agreed(stretch.value, texts, surplus, optional)
        ends = list({before for before, _ in begins})
    return resolved


def _agreed(value: Callable[[str], Any], texts: Iterable[str], surplus: int, optional: bool) -> str:
    """The text of a column that is used, in which all ways to read a record agree. Where they do not, an `optional`
    one is empty. Raises BadValue for others."""
    found: dict[Any, str] = {}
    for text in texts:
        found.setdefault(value(text), text)
    if len(found) > 1:
        if optional:
            return ""
        raise BadValue(
            f"it has {surplus} delimiters too many, and more than one way to read it",
            "write the log with another --delimiter",
        )
    (text,) = found.values()
    return text


def _ways(record: Row, surplus: int, layout: Layout, *, usual: bool) -> list[dict[int, list[int]]] | None:
    """For each stretch of columns: how many surplus fields are taken up to its end → how many can have been taken
    before it. None if no way leads to the end."""
    stretches = layout.stretches(usual)
    possible = _possible_ends(record, surplus, stretches)
    if possible is None:
        return None
    ways: list[dict[int, list[int]]] = []
    reached: Sequence[int] = (0,)
    for (place, free, readable, *_), ends in zip(stretches, possible, strict=True):
        ended: dict[int, list[int]] = {}
        if len(ends) == 1 and reached == ends and readable is None:  # as nearly all
            ways.append({ends[0]: ends})
            continue
        for before in reached:
            for end in ends:
                if end < before or (end > before and not free):
                    continue
                if readable is None or readable(_text(record, place, before, end - before, layout.delimiter)):
                    ended.setdefault(end, []).append(before)
        if not ended:
            return None
        ways.append(ended)
        reached = sorted(ended)
    return ways


def _possible_ends(record: Row, surplus: int, stretches: Sequence[_Stretch]) -> list[list[int]] | None:
    """For each stretch, how many surplus fields can have been taken up to its end as far as its typed columns say, and
    those of the stretches after it, which take no fewer. None if nothing is possible."""
    found: list[list[int]] = []
    least, most = surplus, surplus  # the last column that can take some takes all that is left
    for number in range(len(stretches) - 1, -1, -1):
        stretch = stretches[number]
        if number == 0 and not stretch.free:
            least, most = 0, min(most, 0)
        ends = []
        for end in range(least, most + 1):
            for at, readable in stretch.typed:
                if not readable(record[at + end]):
                    break
            else:
                ends.append(end)
        if not ends:
            return None
        found.append(ends)
        least, most = 0, ends[-1]
    found.reverse()
    return found


def _text(record: Sequence[str], place: int, before: int, more: int, delimiter: str) -> str:
    first = place + before
    return record[first] if more == 0 else delimiter.join(record[first : first + more + 1])

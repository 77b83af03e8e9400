"""Which line of a table names its columns, and what stands between the names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from asad.errors import LogError
from asad.replay.readers.accounting_log import quoted
from asad.replay.readers.sacct_columns import column_name

DELIMITERS = ("|", ",", "\t", ";", "^", "~", ":", "\x1f", "\x1e", "\x01", "@", "#", "!")
"""Those that are tried where no header shows which it is."""
MOST_BEFORE = 20
"""Lines among which the header is looked for: banners, warnings and comments may stand before it."""
LEAST_KNOWN = 3
"""Names of sacct's columns by which a line is known as a header."""

_NAMES_JOB = re.compile(r"(?<!\w)jobid(?:raw)?(?!\w)", re.IGNORECASE | re.ASCII)
_CELL = re.compile(r"[\w .%()/\"'-]{0,60}")
_BETWEEN = re.compile(r"(?<=\w)[\"']?(%-?\d+)?[\"']?([^\w\"'%]+)[\"']?(?=\w)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Header:
    """A line that names columns."""

    line: str
    names: tuple[str, ...]
    """In lower case, sacct's by their newest name."""
    delimiter: str
    known: int
    """How many of the names are sacct's."""
    quoted: bool
    """Names stand in quotes, and so may fields."""
    trailing: bool
    """It ends with the delimiter, as `sacct -p` has it."""

    @property
    def names_job(self) -> bool:
        """Is one of the columns a job's id?"""
        return "jobid" in self.names or "jobidraw" in self.names


def header_of(line: str, delimiter: str | None = None, following: str = "") -> Header | None:
    """The columns that a line names; None if it names fewer than three of sacct's.

    `following` is the line after it, which shows whether blanks belong to the delimiter.
    """
    between = [delimiter] if delimiter else list(_between_names(line))
    found = [header for by in between if (header := _split(line, by)).known >= LEAST_KNOWN]

    def fit(header: Header) -> tuple[int, int]:
        by = header.delimiter
        return header.known, -abs(following.count(by) - line.count(by)) if following else 0

    return max(found, key=fit, default=None)


def header_again(line: str, header: Header | None, names: Sequence[str], delimiter: str) -> Header | None:
    """The columns that a line among records names, as where logs were joined; None if it is no header.

    `header` is the first one, if there is one, and `names` are its names. A user's text may name columns, too: a line
    that does nothing else is taken for a header of other ones.
    """
    if header is not None and line == header.line:
        return header
    if not _NAMES_JOB.search(line):
        return None
    again = _split(line, delimiter)
    if again.names == names:
        return again
    found = again if again.known >= LEAST_KNOWN else header_of(line)
    if found is None or not found.names_job or 2 * found.known < len(found.names):
        return None
    return found if all(_CELL.fullmatch(cell.strip()) for cell in line.split(found.delimiter)) else None


def find_header(path: str, lines: Sequence[str], delimiter: str | None) -> tuple[int, Header]:
    """The header among the first lines of a log, and how many lines stand before it that are no records.

    Raises LogError if there is none.
    """
    written = [at for at, line in enumerate(lines) if line.strip()][: MOST_BEFORE + 1]
    if not written:
        raise LogError(path, None, None, "it is empty", "give a log of jobs that ended")
    without_id = None
    for place, at in enumerate(written[:MOST_BEFORE]):
        following = lines[written[place + 1]] if place + 1 < len(written) else ""
        header = header_of(lines[at], delimiter, following)
        if header is None:
            continue
        if header.names_job:
            # records may stand before it, as where a log was written without a header first
            least = len(header.names) - 1
            return next(one for one in written if lines[one].count(header.delimiter) >= least), header
        without_id = without_id or (at + 1, header)
    if without_id is not None:
        number, header = without_id
        shown = ", ".join(name for name in header.names if column_name(name))[:60]
        raise LogError(
            path,
            number,
            "JobID",
            f"the log does not have this column (it has {shown})",
            "write the log again with it",
        )
    number = written[0] + 1
    for at in written[:MOST_BEFORE]:
        names = [column_name(word) for word in lines[at].split()]
        if ("jobid" in names or "jobidraw" in names) and len(names) - names.count(None) >= LEAST_KNOWN:
            raise LogError(
                path,
                at + 1,
                None,
                "columns are aligned by spaces and cut off",
                "write the log with `sacct -P`",
            )
    raise LogError(
        path,
        number,
        None,
        "this is no log that asad knows: not SWF, not JSON, no table whose first line names its columns (it begins "
        f"with {quoted(lines[written[0]].strip())})",
        "if it is a table without a header, name its columns with --columns, and with --delimiter what stands between "
        "them; or say what it is with --format",
    )


def check_columns(path: str, number: int, header: Header, names: Sequence[str]) -> None:
    """Raises LogError if a header names other columns than `names`, which were given with `--columns`."""
    if len(header.names) != len(names):
        problem = f"the header names {len(header.names)} columns, and --columns {len(names)}"
    else:
        pairs = enumerate(zip(header.names, names, strict=True), 1)
        other = next(
            ((place, ours, given) for place, (ours, given) in pairs if column_name(ours) and ours != given),
            None,
        )
        if other is None:
            return
        place, ours, given = other
        problem = f"the header calls column {place} {quoted(ours)}, and --columns {quoted(given)}"
    raise LogError(
        path, number, None, problem, "leave --columns away: a log that names its columns needs none"
    )


def _split(line: str, delimiter: str) -> Header:
    cells = line.split(delimiter)
    trailing = len(cells) > 1 and not cells[-1].strip()
    if trailing:
        cells.pop()
    names = tuple(column_name(cell) or cell.strip().strip("\"'").lower() for cell in cells)
    known = sum(column_name(name) is not None for name in names)
    in_quotes = sum(cell.strip()[:1] == '"' for cell in cells)
    return Header(line, names, delimiter, known, in_quotes * 2 > len(cells), trailing)


def _between_names(line: str) -> Iterator[str]:
    """What stands between names on a line, with blanks around it and without; nothing for blanks alone."""
    found = _BETWEEN.search(line)
    if found and found[2].strip(" "):
        yield found[2]
        if found[2].strip(" ") != found[2]:
            yield found[2].strip(" ")

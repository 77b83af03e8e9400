"""What a reader hands back, and how it keeps account of what it could not use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from asad.errors import LogError
from asad.model import JobLog

ABSENT = {
    "start_s": np.nan,
    "nodes": 0,
    "time_limit_s": np.nan,
    "memory_bytes": np.nan,
    "cpu_time_s": np.nan,
    "user": -1,
    "application": -1,
    "partition": -1,
    "depends_on": -1,
}
"""Optional columns of a `JobLog` → what stands in a row that has none."""


class NodeSeen(NamedTuple):
    """The most that jobs of the log held of one node at one time."""

    cores: int
    memory_bytes: float
    """NaN if the log does not record memory."""


class BadValue(ValueError):
    """One field of one line cannot be what its `column` holds (None: it is of the line as a whole)."""

    def __init__(self, problem: str, remedy: str, column: str | None = None) -> None:
        self.problem, self.remedy, self.column = problem, remedy, column
        super().__init__(problem)


@dataclass(slots=True)
class Faults:
    """Bad lines, at most one error each, found in any order."""

    path: str
    by_line: dict[int, LogError] = field(default_factory=dict)

    def add(self, line: int, column: str | None, bad: BadValue, *, numbered: bool = True) -> None:
        """Remember that `line` is bad; `numbered=False` if it is a record's number, not the file's."""
        if line not in self.by_line:
            self.by_line[line] = LogError(
                self.path, line if numbered else None, column, bad.problem, bad.remedy
            )

    def settle(self, skip_bad: bool) -> list[LogError]:
        """The bad lines in their order; raises the first of them unless they are to be skipped."""
        errors = [self.by_line[line] for line in sorted(self.by_line)]
        if errors and not skip_bad:
            raise errors[0]
        return errors


@dataclass(frozen=True, slots=True)
class Recorded:
    """An accounting log as it was read.

    `think_s` of the jobs is 0 where it was not recorded, so that adding it is always safe.
    """

    jobs: JobLog
    path: str
    format: str
    """`swf`, `sacct`, `sacct-json` or `csv`."""
    header: dict[str, str]
    """What the log says of itself: SWF's header fields (repeated ones joined by newlines), else empty."""
    absent: tuple[str, ...]
    """Columns of `jobs` that no row has."""
    counts: dict[str, int]
    """`lines` read, and why those that are not rows are not: lines = rows + the sum of all the others."""
    bad: list[LogError]
    """The bad lines that were skipped."""
    notes: list[str]
    """What was assumed, one sentence each."""
    nodes_seen: dict[str, NodeSeen]
    """By node name, from the log's node lists; empty if it has none."""


def absent_columns(jobs: JobLog) -> tuple[str, ...]:
    """The optional columns that no row has."""
    names = []
    for name, nothing in ABSENT.items():
        column = getattr(jobs, name)
        missing = np.isnan(column) if np.isnan(nothing) else column == nothing
        if missing.all():
            names.append(name)
    if "depends_on" in names:
        names.append("think_s")
    return tuple(names)


def recorded_of(
    jobs: JobLog,
    path: str,
    log_format: str,
    counts: dict[str, int],
    bad: list[LogError],
    notes: list[str],
    header: dict[str, str] | None = None,
    nodes_seen: dict[str, NodeSeen] | None = None,
) -> Recorded:
    """What was read. Raises LogError, which says where the lines went, for a log without a single usable job."""
    if not len(jobs):
        why = ", ".join(f"{number} {reason}" for reason, number in counts.items() if number)
        problem = f"no job in this log ran ({why or 'it is empty'})"
        raise LogError(path, None, None, problem, "give a log of jobs that ended")
    absent = absent_columns(jobs)
    return Recorded(jobs, path, log_format, header or {}, absent, counts, bad, notes, nodes_seen or {})


def quoted(text: str) -> str:
    """A user's text for an error message: cut to 60 characters, control characters escaped."""
    return repr(text if len(text) <= 60 else text[:57] + "...")

"""What a reader hands back, and how it keeps account of what it could not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asad.errors import LogError
from asad.model import Floats, JobLog

if TYPE_CHECKING:
    from asad.replay.readers.node_sets import NodeListTable

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


@dataclass(frozen=True, slots=True)
class Holdings:
    """What jobs held of which nodes, one row a run of a job (heterogeneous ones: a component)."""

    start_s: Floats
    stop_s: Floats
    cores: NDArray[np.int64]
    """Over all its nodes; how they were spread over them no log says."""
    memory_bytes: Floats
    """Over all its nodes; NaN if not recorded."""
    suspended: NDArray[np.bool_]
    """It was suspended for a time, in which others may have held the same cores."""
    node_set: NDArray[Any]
    """Codes of `lists`, of lists that name nodes."""
    lists: NodeListTable
    unlisted: int
    """So many jobs name no nodes, and are not among these."""
    earlier: NDArray[np.bool_]
    """It is a run that ended in a requeue: the job's last run is another row."""


class BadValue(ValueError):
    """One field of one line cannot be what its `column` holds (None: it is of the line as a whole)."""

    def __init__(self, problem: str, remedy: str, column: str | None = None) -> None:
        self.problem, self.remedy, self.column = problem, remedy, column
        super().__init__(problem)


@dataclass(slots=True)
class Reading:
    """What is noted of a log while it is read: what is bad, what is no row, what was assumed."""

    path: str
    numbered: bool = True
    """Are its lines those of the file? Else they are numbers of its records, from 0, and errors name `jobs[number]`."""
    places: dict[int, str] = field(default_factory=dict)
    """Records whose place is another → it."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Columns that the log calls otherwise → how."""
    faults: dict[int, LogError] = field(default_factory=dict)
    """Bad lines, at most one error each, found in any order."""
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """See `Recorded`."""

    def fault(self, line: int, column: str | None, bad: BadValue) -> None:
        """Note that `line` is bad."""
        if not self.numbered:
            place = self.places.get(line, f"jobs[{line}]")
            column = f"{place}.{self.keys.get(column, column)}" if column else place
        number = line if self.numbered else None
        self.faults.setdefault(line, LogError(self.path, number, column, bad.problem, bad.remedy))

    def count(self, reason: str, number: int = 1) -> None:
        """So many lines more are no rows, for that reason."""
        if number:
            self.counts[reason] = self.counts.get(reason, 0) + number

    def note(self, number: int, assumed: str) -> None:
        """Something was assumed of so many jobs, if of any."""
        if number:
            self.notes.append(f"{number} {assumed}")

    def settle(self, skip_bad: bool) -> list[LogError]:
        """The bad lines in their order; raises the first of them unless they are to be skipped."""
        errors = [self.faults[line] for line in sorted(self.faults)]
        if errors and not skip_bad:
            raise errors[0]
        self.count("bad", len(errors))
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
    held: Holdings | None
    """From the log's node lists; None if it has none."""
    local_times: bool = False
    """Times may be local ones, in which an hour comes twice when summer time ends."""


def absent_columns(jobs: JobLog) -> tuple[str, ...]:
    """The optional columns that no row has."""
    columns = ((name, nothing, getattr(jobs, name)) for name, nothing in ABSENT.items())
    names = [
        name
        for name, nothing, column in columns
        if (np.isnan(column) if np.isnan(nothing) else column == nothing).all()
    ]
    if "depends_on" in names:
        names.append("think_s")
    return tuple(names)


def recorded_of(
    jobs: JobLog,
    reading: Reading,
    log_format: str,
    bad: list[LogError],
    header: dict[str, str] | None = None,
    held: Holdings | None = None,
    local_times: bool = False,
) -> Recorded:
    """What was read. Raises LogError, which says where the lines went, for a log without a single usable job."""
    path, counts = reading.path, reading.counts
    if not len(jobs):
        why = ", ".join(f"{number} {reason}" for reason, number in counts.items() if number)
        problem = f"no job in this log ran ({why or 'it is empty'})"
        raise LogError(path, None, None, problem, "give a log of jobs that ended")
    absent = absent_columns(jobs)
    return Recorded(
        jobs, path, log_format, header or {}, absent, counts, bad, reading.notes, held, local_times
    )


def quoted(text: str) -> str:
    """A user's text for an error message: cut to 60 characters, control characters escaped."""
    return repr(text if len(text) <= 60 else text[:57] + "...")

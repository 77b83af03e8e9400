"""The rows of a snapshot: a job keeps its row while it lives, in columns that grow by doubling.

A row is used again only after its job was reported as finished (or was seen to be gone) and one more snapshot has
passed, so that a decision or a learner that still names it never means another job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, blank_jobs

FIRST_CAPACITY = 256


def blank(value: Any) -> dict[str, Any]:
    """Of a field that is a column: what its rows hold at first, which gives its type, too."""
    return {"blank": value}


@dataclass(slots=True)
class Measured:
    """What measuring keeps of a job besides the columns of `Jobs`; a plugin may add columns of its own."""

    cpu_time_s: Floats = field(metadata=blank(np.nan))
    cpu_time_at_s: Floats = field(metadata=blank(np.nan))
    """CPU time of its run so far, and when that was measured; NaN until it is."""
    lent_core_s: Floats = field(metadata=blank(0.0))
    """What it has lent, or was lent."""
    was_host: NDArray[np.bool_] = field(metadata=blank(False))
    """It has had a guest beside it."""


MeasuredT = TypeVar("MeasuredT", bound=Measured)


class Rows(Generic[MeasuredT]):
    """Columns of `Jobs`, and columns that nobody else sees."""

    latest_first = False
    """Is the row that was freed last used again first? Large tables then stay within few pages of memory."""

    def __init__(self, kind: type[MeasuredT], capacity: int = FIRST_CAPACITY) -> None:
        """`kind` is the table of the columns that nobody else sees."""
        self.of: dict[str, int] = {}
        """Row by the job's name."""
        self._kind = kind
        self.jobs, self.extra = blank_jobs(0), blank_table(kind, 0)
        self._free: deque[int] = deque()
        """Those that come next first."""
        self._gone: list[int] = []
        self._resting: list[int] = []
        self._grow(capacity)

    def __len__(self) -> int:
        return len(self.jobs.cores)

    def take(self, name: str) -> int:
        """The row of a job, a new one if need be."""
        row = self.of.get(name)
        if row is None:
            if not self._free:
                self._grow(2 * len(self))
            row = self.of[name] = self._free.popleft()
            self.jobs.job_id[row] = name
        return row

    def name(self, row: int) -> str:
        """The job in a row, the empty string if there is none."""
        name = str(self.jobs.job_id[row]) if 0 <= row < len(self) else ""
        return name if self.of.get(name) == row else ""

    def drop(self, row: int) -> None:
        """The job is gone: its row is free after one more snapshot."""
        name = str(self.jobs.job_id[row])
        if self.of.get(name) == row:  # it may have been requeued since, and have another
            del self.of[name]
        self._gone.append(row)

    def turn(self) -> None:
        """A new snapshot begins."""
        if self._resting:
            self._clear(self._resting)
            if self.latest_first:
                self._free.extendleft(reversed(self._resting))
            else:
                self._free.extend(self._resting)
        self._resting, self._gone = self._gone, []

    def _clear(self, rows: Sequence[int]) -> None:
        """Nothing is known of what lived in these rows."""
        for table, empty in ((self.jobs, blank_jobs(1)), (self.extra, blank_table(self._kind, 1))):
            for name, values in columns(empty):
                getattr(table, name)[rows] = values[0]

    def _grow(self, capacity: int) -> None:
        count = len(self)
        grown = blank_jobs(capacity), blank_table(self._kind, capacity)
        for old, new in zip((self.jobs, self.extra), grown, strict=True):
            for name, values in columns(old):
                getattr(new, name)[:count] = values
        self.jobs, self.extra = grown
        self._free.extend(range(count, capacity))


def blank_table(kind: type[MeasuredT], capacity: int) -> MeasuredT:
    """So many blank rows."""
    return kind(*(np.full(capacity, one.metadata["blank"]) for one in fields(kind)))


def columns(table: Any) -> list[tuple[str, NDArray[Any]]]:
    """Names and arrays of a table."""
    return [(one.name, getattr(table, one.name)) for one in fields(table)]

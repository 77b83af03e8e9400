"""The rows of the snapshot: a unit (a gang, or a task of an elastic job) keeps its row while it is there.

A row is used again only after its unit was told as finished (or was gone) and one more snapshot has passed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields

from asad.model import Jobs, blank_jobs

FIRST_CAPACITY = 256


class Rows:
    """Columns of `Jobs`, growing by doubling."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        """Row by unit."""
        self.jobs = blank_jobs(0)
        self._free: deque[int] = deque()
        """The longest unused first."""
        self._gone: list[int] = []
        self._resting: list[int] = []
        self._grow(FIRST_CAPACITY)

    def take(self, unit: str) -> int:
        """The row of a unit, a new one if need be."""
        row = self.of.get(unit)
        if row is None:
            if not self._free:
                self._grow(2 * len(self.jobs.cores))
            row = self.of[unit] = self._free.popleft()
            self.jobs.job_id[row] = unit
        return row

    def drop(self, unit: str) -> None:
        """The unit is gone: its row is free after one more snapshot."""
        row = self.of.pop(unit, None)
        if row is not None:
            self._gone.append(row)

    def turn(self) -> None:
        """A new snapshot begins."""
        blank = blank_jobs(1)
        for column in fields(Jobs):
            if self._resting:
                getattr(self.jobs, column.name)[self._resting] = getattr(blank, column.name)[0]
        self._free.extend(self._resting)
        self._resting, self._gone = self._gone, []

    def _grow(self, capacity: int) -> None:
        old, new = self.jobs, blank_jobs(capacity)
        count = len(old.cores)
        for column in fields(Jobs):
            getattr(new, column.name)[:count] = getattr(old, column.name)
        self.jobs = new
        self._free.extend(range(count, capacity))

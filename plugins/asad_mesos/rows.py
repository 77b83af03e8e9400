"""The rows of the snapshot: a unit (a gang, or a task of an elastic job) keeps its row while it is there.

A row is used again only after its unit was told as finished (or was gone) and one more snapshot has passed.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, fields

from asad.model import Jobs, blank_jobs

FIRST_CAPACITY = 256
NAN, INF = math.nan, math.inf


@dataclass(slots=True)
class Kept:
    """What is remembered of a unit's run besides its row."""

    run: str = ""
    """As `Unit.run` tells it."""
    share: float = NAN
    """Of the guest of a pair: the share that was decided for it, whether its host is capped too, and beside which host
    that was."""
    capped: bool = False
    share_host: str = ""
    quotas: dict[str, float] = field(default_factory=dict)
    """Of a guest that draws from pools: by agent, cores' worth of CPU that it may use there."""
    lent: float = NAN
    """Of a batch job: the share of itself that it lends to the pools of its nodes, as it was decided."""
    host: str = ""
    """Unit beside which it was started as a guest."""
    foreseen_s: float = NAN
    """When a guest would have started by itself, as far as could be told."""
    lent_core_s: float = 0.0
    """What it has lent, or was lent."""
    cpu_time_s: float = 0.0
    """CPU time at the last look."""
    cpu_fraction: float = NAN
    """The last that was measured."""
    lost_s: float = 0.0
    """By lending."""


class Rows:
    """Columns of `Jobs`, growing by doubling."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        """Row by unit."""
        self.jobs = blank_jobs(0)
        self._kept: dict[str, Kept] = {}
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
        self._kept.pop(unit, None)
        row = self.of.pop(unit, None)
        if row is not None:
            self._gone.append(row)

    def unit(self, row: int) -> str:
        """The unit in a row, the empty string if there is none."""
        name = str(self.jobs.job_id[row]) if 0 <= row < len(self.jobs.cores) else ""
        return name if self.of.get(name) == row else ""

    def kept(self, unit: str) -> Kept:
        """What is remembered of the run of a unit that was seen last, or was begun since."""
        return self._kept.get(unit) or Kept()

    def begin(self, unit: str, run: str) -> Kept:
        """What is remembered of this run of a unit: nothing yet if another was seen before."""
        known = self._kept.get(unit)
        if known is None or known.run != run:
            known = self._kept[unit] = Kept(run)
        return known

    def forget_shares(self) -> None:
        """Nothing is lent any more."""
        for kept in self._kept.values():
            kept.share, kept.capped, kept.share_host = NAN, False, ""
            kept.quotas, kept.lent = {}, NAN

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

"""The rows of the snapshot (`asad.cluster.job_rows`): a gang, or a task of an elastic job, has one while it lives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from asad.cluster import job_rows
from asad.cluster.job_rows import Measured

NAN, INF = math.nan, math.inf


@dataclass(slots=True)
class Kept:
    """What is kept of a unit's run besides its row."""

    run: str = ""
    """As of `Unit.run`."""
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
    """When a guest would have started by itself, as far as was known."""
    cpu_fraction: float = NAN
    """The last that was measured."""


class Rows(job_rows.Rows[Measured]):
    """Columns of `Jobs`, and what is kept of the run of a unit besides."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        super().__init__(Measured)

    def drop(self, row: int) -> None:
        """The unit is gone: its row is free after one more snapshot."""
        self._kept.pop(str(self.jobs.job_id[row]), None)
        super().drop(row)

    def kept(self, unit: str) -> Kept:
        """What is kept of the run of a unit that was seen last, or was begun since."""
        return self._kept.get(unit) or Kept()

    def begin(self, unit: str, run: str) -> Kept:
        """What is kept of this run of a unit: nothing yet if another was seen before."""
        known = self._kept.get(unit)
        if known is None or known.run != run:
            known = self._kept[unit] = Kept(run)
            row = self.of[unit]
            self.jobs.lost_s[row] = self.extra.lent_core_s[row] = self.extra.cpu_time_s[row] = 0.0
        return known

    def forget_shares(self) -> None:
        """Nothing is lent any more."""
        for kept in self._kept.values():
            kept.share, kept.capped, kept.share_host = NAN, False, ""
            kept.quotas, kept.lent = {}, NAN

"""`oasis-paper`: the text of the OASiS paper to the letter, beside `oasis`, which settles what it leaves open.

Source: Bao, Peng, Wu, Li (INFOCOM 2018), Algorithms 1 and 2, equations (22) to (26). The algorithm is that of `oasis`;
what differs is U and L:

- resources are summed as they stand, gigabytes beside GPUs;
- U (23), (24) from f(⌈E·M(τ + 2e/b)⌉ - a), the arrival subtracted from a duration; where that is below 0, f(0);
- L (25), (26) from f(T - a), the worth if it ends in the last slot, with the factor 1/4η. η is the least that its
  condition allows: of the job with the least work;
- parameter servers do E·N·M(τ + 2e/b) slots of work, as many as workers.

Two things cannot be taken literally. Where a job takes nothing of a resource, (23) divides by zero: that job is passed
over there. And f(T - a) is 0 to machine precision for time-critical jobs, and (22) divides by L: below 1e-300, L is
1e-300. On a cluster, where time has no end, T - a is the horizon.

Options and cost: those of `oasis`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asad.admit.elastic import ElasticJob, Servers
from asad.admit.oasis import Oasis
from asad.admit.prices import Bounds, Market, numbers_of
from asad.model import Floats, Json

LEAST = 1e-300


class OasisPaper(Oasis):
    """OASiS with U and L of the text."""

    name = "oasis-paper"
    normalised = False

    def _new_market(self) -> Market:
        return PaperMarket(self.servers, self.horizon, self.until)


class PaperMarket(Market):
    """Equations (23) to (26) over the jobs seen so far."""

    def __init__(self, servers: Servers, horizon: int, until: int | None) -> None:
        super().__init__(servers, horizon)
        self._until = until
        resources = len(servers.resources)
        self._kinds = tuple(
            Extremes(horizon * float(_once(servers, capacity).sum()), np.zeros(resources), math.inf, math.inf)
            for capacity in (servers.workers, servers.parameter_servers)
        )

    def meet(self, job: ElasticJob) -> None:
        """Learn from a job, whether it will be admitted or not."""
        fastest = -(-job.work // job.most_workers)
        best = float(job.utility(max(0.0, float(fastest - job.arrival))))
        last = float(job.utility(self._horizon if self._until is None else max(0, self._until - job.arrival)))
        kinds = []
        for kind, demand in zip(self._kinds, (job.worker, job.server), strict=True):
            takes, total = demand > 0.0, job.work * float(demand.sum())
            if total > 0.0:
                high = np.where(takes, best / np.where(takes, demand, 1.0), 0.0)
                high = np.maximum(kind.high, high)
                density, least = min(kind.density, last / total), min(kind.least, total)
                kinds.append(Extremes(kind.supply, high, density, least))
            else:
                kinds.append(kind)
        self._kinds = tuple(kinds)

    def bounds(self, slots: float | None = None) -> Bounds:
        """U and L of all jobs seen; the supply is always that of the whole timespan."""
        (low, high), (server_low, server_high) = (kind.bounds() for kind in self._kinds)
        return Bounds(low, high, server_low, server_high)

    def state(self) -> Json:
        """The extremes as plain data."""
        return [
            [*kind.high.tolist(), kind.density, kind.least]
            for kind in self._kinds
            if math.isfinite(kind.density)
        ]

    def restore(self, kept: Json, names: Sequence[str] | None = None) -> None:
        """Go on from what `state` described. What cannot be read, or sums other resources, is passed over."""
        if names is not None and tuple(names) != self._names:
            return
        kinds = list(self._kinds)
        for number, row in enumerate(kept if isinstance(kept, list) else []):
            values = numbers_of(row)
            if number < len(kinds) and values is not None and len(values) == len(kinds[number].high) + 2:
                kinds[number] = Extremes(
                    kinds[number].supply, values[:-2], float(values[-2]), float(values[-1])
                )
        self._kinds = tuple(kinds)


def _once(servers: Servers, capacity: Floats) -> Floats:
    """With what all servers share on the first of them alone."""
    once = capacity.copy()
    once[1:, servers.is_shared] = 0.0
    return once


class Extremes(NamedTuple):
    """Of one kind of servers."""

    supply: float
    """T·ΣΣc."""
    high: Floats
    """(R,) U."""
    density: float
    """Least f(T - a) / (W·Σw) of any job; inf before the first."""
    least: float
    """Least W·Σw of any job."""

    def bounds(self) -> tuple[float, Floats]:
        """L and U."""
        if not math.isfinite(self.density):
            return 0.0, np.zeros_like(self.high)
        low = max(LEAST, self.density * self.least / (4.0 * max(self.supply, 1e-9)))
        return low, np.maximum(self.high, low)

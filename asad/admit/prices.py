"""Prices of resources: equation (22) of OASiS, its bounds U and L, and how they are learned online.

Source: OASiS, equations (22) to (26), Theorem 4. A resource of which the part g/c is taken costs
P = L·(U/L)^(g/c) a unit and slot: L when nothing is taken, U when it is full. What the paper leaves open is settled:

- Units: capacities differ by resource (244 GB beside 2 GPUs), so every amount is divided by what all servers of that
  kind hold of the resource, before it is summed over resources. L and U here are prices of such a unit: all servers'
  worth of a resource, for one slot.
- U (23), (24): the argument of f is a duration already, and a resource of which a job takes nothing has no bound from
  it. One worker-slot at the price U costs all that the best job is worth, so nothing is admitted to what is full.
- L (25), (26): with f(T - a) it is 0 for whatever is time-critical, and all prices with it; here a job counts with its
  worth at its target (`ElasticJob.target_slots`), for every unit of its work. The paper takes the least job, and so
  lets everybody in for nearly nothing at first: cheap jobs of many worker-slots fill the cluster before the prices
  bite. That is right while there is room for all. Where there is not, L is instead half of what clears the market:
  the worth of a unit to the job at which the demand of all jobs worth more reaches half of the supply.
- Parameter servers: a job's work there is W·b/B, not W.

With a greater L, α = max ln(U/L) is smaller, but the condition on η that bounds the dual's initial value is gone:
the bound is then `Bounds.ratio_bound` of what was reached (proof of Theorem 4, without its last step).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from asad.admit.elastic import ElasticJob, Servers
from asad.model import Floats, Json

LEAST_SHARE = 0.25
"""Of the least job's worth a unit, with room for all: the ¼ of (25), so that no job is kept from an empty cluster."""
CLEARING_SHARE = 0.5
"""Of the price that clears the market: workers and parameter servers are each charged for."""
ROLLING_SHARE = 0.45
"""The same where time has no end. There one large job may be all the market for a while: with a half on either side it
would pay just what it is worth, and nobody would be admitted to an empty cluster."""
FILLED = 0.5
"""Part of the supply at which the market counts as cleared: beyond it, jobs no longer find the slots they need."""
LOOK_AHEAD = 3
"""Slots beyond the last arrival that count as supply of the jobs seen: so few would look like a crowd at first."""
MOST_JOBS = 2000
"""So many of the latest jobs are learned from."""


class Bounds(NamedTuple):
    """U and L for workers and for parameter servers, in units of all that the servers hold of a resource.

    A side that no job has used has L = U = 0.
    """

    worker_low: float
    """L1."""
    worker_high: Floats
    """(R,) U1, at least L1."""
    server_low: float
    """L2."""
    server_high: Floats
    """(R,) U2, at least L2."""

    @property
    def alpha(self) -> float:
        """Theorem 4: max over r of (1, ln(U1/L1), ln(U2/L2)); OASiS is 2α-competitive for the paper's L."""
        logs = [1.0]
        for low, high in ((self.worker_low, self.worker_high), (self.server_low, self.server_high)):
            logs += [math.log(value / low) for value in high.tolist() if value > low > 0.0]
        return max(logs)

    def ratio_bound(self, servers: Servers, slots: int, utility: float) -> float:
        """At most so many times the `utility` reached is the offline optimum: α + D0 / utility.

        D0 is the dual objective (19) at the beginning, `slots` slots at the prices L. It needs bounds that were fixed
        beforehand. Infinite where nothing was reached.
        """
        start = slots * (
            self.worker_low * np.count_nonzero(servers.workers.sum(axis=0))
            + self.server_low * np.count_nonzero(servers.parameter_servers.sum(axis=0))
        )
        return self.alpha + float(start) / utility if utility > 0.0 else math.inf


def whole(servers: Servers, capacity: Floats) -> Floats:
    """(R,) what one kind of servers holds of each resource in all: the unit of prices. 1 where there is none of it."""
    total = servers.total(capacity)
    return np.where(total > 0.0, total, 1.0)


def server_work(job: ElasticJob) -> float:
    """Parameter-server-slots of the whole job: W·b/B, at least one; 0 of a job without parameter servers."""
    if job.server_bandwidth <= 0:
        return 0.0
    return max(1.0, job.work * job.worker_bandwidth / job.server_bandwidth)


class Market:
    """The jobs seen so far, and the bounds that follow from them."""

    def __init__(
        self, servers: Servers, horizon: int, most_jobs: int = MOST_JOBS, rolling: bool = False
    ) -> None:
        """`rolling`: time has no end. Jobs with parameter servers then count with as many as they need at their full
        width, rounded up, and both kinds of servers together cost the job at the margin less than it is worth."""
        self._names = servers.resources
        self._workers, self._servers = (
            whole(servers, capacity) for capacity in (servers.workers, servers.parameter_servers)
        )
        self._horizon = horizon
        self._rolling = rolling
        self._cases: deque[list[Json]] = deque(maxlen=most_jobs)
        """Of each job its arrival, its worth if it had all the workers it can use and at its target, its work and that
        of its parameter servers, and (R,) (R,) what one of either takes in parts of the whole."""

    def meet(self, job: ElasticJob) -> None:
        """Learn from a job, whether it will be admitted or not."""
        best = _worth(job, -(-job.work // job.most_workers))
        at_target = _worth(job, min(job.target_slots, self._horizon))
        worker, server = job.worker / self._workers, job.server / self._servers
        self._cases.append(
            [
                job.arrival, best, at_target, float(job.work), self._server_work(job),
                *worker.tolist(), *server.tolist(),
            ]
        )  # fmt: skip

    def _server_work(self, job: ElasticJob) -> float:
        if not self._rolling:
            return server_work(job)
        width = min(job.most_workers, job.work)
        return job.work * job.servers_for(width) / width

    def bounds(self, slots: float | None = None) -> Bounds:
        """U and L where the supply is that of `slots` slots; None: from the first job to a little after the last."""
        if not self._cases:  # no demand, no price
            none = np.zeros(len(self._workers))
            return Bounds(0.0, none, 0.0, none)
        cases = np.array(self._cases, np.float64)
        arrival, best, at_target, work, server_work = cases[:, :5].T
        if slots is None:
            slots = arrival[-1] - arrival[0] + 1 + LOOK_AHEAD
        share = ROLLING_SHARE if self._rolling and (server_work > 0.0).any() else CLEARING_SHARE
        worker, server = np.split(cases[:, 5:], 2, axis=1)
        low, high = _side(best, at_target, worker, work, slots, share)
        return Bounds(low, high, *_side(best, at_target, server, server_work, slots, share))

    def state(self) -> Json:
        """The jobs as plain data."""
        return list(self._cases)

    def restore(self, kept: Json, names: Sequence[str] | None = None) -> None:
        """Go on from what `state` described, of resources under these `names`; None: under the first of the present
        ones, as many as there were.

        A job met before a resource was counted took none of it. Rows that cannot be read are passed over.
        """
        for row in kept if isinstance(kept, list) else []:
            values = numbers_of(row)
            if values is None or len(values) < 5 or len(values) % 2 == 0:
                continue
            amounts = values[5:].reshape(2, -1)
            before = self._names[: amounts.shape[1]] if names is None else tuple(names)
            if len(before) == amounts.shape[1]:
                by_name = dict(zip(before, amounts.T.tolist(), strict=True))
                taken = np.array([by_name.get(name, (0.0, 0.0)) for name in self._names]).T
                self._cases.append([int(values[0]), *values[1:5].tolist(), *taken.ravel().tolist()])


def numbers_of(row: Json) -> Floats | None:
    """A list of finite numbers ≥ 0 as an array; None if it is none."""
    try:
        values = np.array(row, np.float64)
    except (TypeError, ValueError):
        return None
    return values if values.ndim == 1 and bool((np.isfinite(values) & (values >= 0.0)).all()) else None


def bounds_of(jobs: Iterable[ElasticJob], servers: Servers, slots: int) -> Bounds:
    """U and L of all `jobs` of an instance of so many slots, as the paper's simulation is given them."""
    jobs = list(jobs)
    market = Market(servers, slots, most_jobs=len(jobs))
    for job in jobs:
        market.meet(job)
    return market.bounds(slots)


def _worth(job: ElasticJob, slots: float) -> float:
    value = float(job.utility(max(1.0, slots)))
    return value if math.isfinite(value) and value > 0.0 else 0.0


def _side(
    best: Floats, at_target: Floats, demand: Floats, work: Floats, slots: float, share: float
) -> tuple[float, Floats]:
    """(L, (R,) U) of one kind of servers; `demand` (J, R) of one task, `work` (J,) in task-slots; `share` of the
    worth of the job at the margin."""
    takes = demand > 0.0
    high = np.where(takes, best[:, None] / np.where(takes, demand, 1.0), 0.0).max(axis=0)  # (23), (24)
    amount = demand * work[:, None]
    total = amount.sum(axis=1)
    counts = (total > 0.0) & (at_target > 0.0)
    if not counts.any():
        return 0.0, np.zeros(demand.shape[1])
    amount, density = amount[counts], at_target[counts] / total[counts]
    low = LEAST_SHARE * float(density.min())
    order = np.argsort(-density, kind="stable")
    filled = np.cumsum(amount[order], axis=0).max(axis=1)
    marginal = int(np.searchsorted(filled, FILLED * slots))
    if marginal < len(order):
        low = max(low, share * float(density[order[marginal]]))
    return low, np.maximum(high, low)

"""What is taken of servers slot by slot, and what it costs: the books of OASiS, a ring of slots.

Prices are functions of what is taken (equation 22), and computed when they are looked at. What others than our jobs
hold counts as taken, too. Memory: O(horizon · (H + K) · R).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from asad.admit.best_run import best_run, take_run
from asad.admit.best_schedule import Found, best_schedule
from asad.admit.elastic import Allotment, ElasticJob, Servers
from asad.admit.prices import Bounds, whole
from asad.admit.server_prices import (
    Counts,
    Need,
    Side,
    least_by_slot,
    most_by_slot,
    refresh,
    servers_for,
    take,
)
from asad.admit.utility import worth_by_slot
from asad.model import Floats, Ints


class Ledger:
    """Of one kind of servers."""

    def __init__(self, servers: Servers, capacity: Floats, slots: int, normalised: bool = True) -> None:
        """`capacity` is that of one kind of the servers."""
        self.unit = whole(servers, capacity) if normalised else np.ones(capacity.shape[1])
        count, resources = capacity.shape
        shape = (slots, resources, count)
        self.others: Floats = np.zeros(shape)
        """Taken by others than our jobs."""
        self.side = Side(
            np.zeros(shape),
            np.zeros(shape),
            np.ones(slots, np.bool_),
            np.zeros(shape),
            np.ascontiguousarray(capacity.T, dtype=np.float64),
            np.zeros(resources),
            np.zeros(resources),
            servers.is_shared,
        )

    def price(self, low: float, high: Floats) -> None:
        """New bounds of equation (22); all prices follow from them, since they are functions of what is taken."""
        self.side.low[:] = low / self.unit
        self.side.growth[:] = np.log(np.maximum(high / low, 1.0)) if low > 0.0 else 0.0
        self.side.stale[:] = True

    def clear(self, row: int) -> None:
        """The slot of that row is past: it stands for a new one, of which nobody holds anything."""
        self.side.taken[row] = 0.0
        self.side.stale[row] = True
        self.others[row] = 0.0

    def add(self, row: int, server: Ints, tasks: Ints, demand: Floats, sign: float = 1.0) -> None:
        """Take (or with `sign` -1 release) so many tasks on these servers."""
        taken, shared = self.side.taken[row], self.side.shared
        taken[:, server] += sign * np.where(shared, 0.0, demand)[:, None] * tasks
        if shared.any():
            taken[shared] += sign * demand[shared, None] * int(tasks.sum())
            if sign < 0:
                taken[shared] = np.where(
                    taken[shared] < 1e-9 * self.side.capacity[shared], 0.0, taken[shared]
                )
        if sign < 0:
            # what is released leaves no rounding behind, which would be a price above L
            kept = taken[:, server]
            kept[np.abs(kept) < 1e-9 * self.side.capacity[:, server]] = 0.0
            taken[:, server] = kept
        self.side.stale[row] = True

    def occupy(self, rows: Counts, held: Floats) -> None:
        """(n, H, R) what others hold in these rows from now on; nothing in all the other rows."""
        new = np.zeros_like(self.side.taken)
        new[rows] = held.transpose(0, 2, 1)
        changed = np.flatnonzero((new != self.others).any(axis=(1, 2)))
        taken = self.side.taken[changed] + (new[changed] - self.others[changed])
        taken[np.abs(taken) < 1e-9 * self.side.capacity] = 0.0
        self.side.taken[changed] = taken
        self.side.stale[changed] = True
        self.others = new


class Ledgers:
    """Of both kinds of servers, from the present slot on."""

    def __init__(self, servers: Servers, horizon: int, until: int | None, normalised: bool) -> None:
        """Slots are numbered from 0; `horizon` of them are planned ahead, or up to `until` - 1 where time has an end.
        `normalised`: prices are of parts of all there is of a resource."""
        self.servers, self.horizon, self.until = servers, horizon, until
        self.workers = Ledger(servers, servers.workers, horizon, normalised)
        self.beside = Ledger(servers, servers.parameter_servers, horizon, normalised)
        self.slot = 0
        """First slot that they hold."""

    def length(self, first: int) -> int:
        """How many slots from `first` on can be planned."""
        end = self.slot + self.horizon
        return max(0, (end if self.until is None else min(end, self.until)) - first)

    def rows(self, first: int) -> Counts:
        """Of the slots from `first` on that can be planned."""
        rows: Counts = (first + np.arange(self.length(first))) % self.horizon
        return rows

    def advance(self, slot: int) -> None:
        """Slots before `slot` are past: their rows stand for slots further ahead."""
        for past in range(max(self.slot, slot - self.horizon), slot):
            self.workers.clear(past % self.horizon)
            self.beside.clear(past % self.horizon)
        self.slot = max(self.slot, slot)

    def price(self, bounds: Bounds) -> None:
        """By these bounds from now on."""
        self.workers.price(bounds.worker_low, bounds.worker_high)
        self.beside.price(bounds.server_low, bounds.server_high)

    def occupy(self, slot: int, workers: Floats, servers: Floats | None) -> None:
        """(n, H, R) what others hold from `slot` on, and (n, K, R) of the parameter servers (None: as before)."""
        rows = (slot + np.arange(min(len(workers), self.horizon))) % self.horizon
        self.workers.occupy(rows, workers[: self.horizon])
        if servers is not None:
            self.beside.occupy(rows, servers[: self.horizon])

    def best(
        self, job: ElasticJob, first: int, work: int, least_payoff: float = 0.0, earliest: bool = False
    ) -> Found:
        """The schedule of the greatest payoff for `work` worker-slots of the job from `first` on."""
        rows, before = self.rows(first), max(0, first - job.arrival)
        worth = worth_by_slot(job.utility, before + len(rows))[before:]
        need = self._need(job, work)
        sides = self.workers.side, self.beside.side
        if job.rigid:
            return best_run(*sides, rows, need, job.fixed_width, worth, least_payoff, earliest)
        floor = work * float(self.workers.side.low @ need.worker)
        if need.servers_per_worker > 0:
            beside = math.ceil(max(1.0, work * need.servers_per_worker) - 1e-9)
            floor += beside * float(self.beside.side.low @ need.server)
        return best_schedule(*sides, rows, need, worth, floor, least_payoff)

    def _need(self, job: ElasticJob, work: int) -> Need:
        worker, server = _plain(job.worker), _plain(job.server)
        takes = worker > 0.0
        most = min(job.most_workers, work)
        if takes.any():
            # an array may have more tasks than the servers could ever hold, and curves are as long as that
            fit = np.floor(self.servers.workers[:, takes] / worker[takes] + 1e-6)
            together = fit[:, self.servers.is_shared[takes]].min(initial=np.inf)
            most = int(min(most, fit.min(axis=1).sum(), together))
        return Need(worker, server, job.servers_per_worker, max(1, most), work)

    def all_there_is(self, job: ElasticJob, first: int, work: int) -> Counts:
        """As many workers as there is room for, slot after slot, up to `work`."""
        most = most_by_slot(self.workers.side, self.beside.side, self.rows(first), self._need(job, work))
        widths: Counts = np.clip(work - (np.cumsum(most) - most), 0, most)
        return widths

    def take_run(self, job: ElasticJob, first: int, widths: Counts) -> dict[int, Allotment]:
        """Hold the same servers for a rigid job in all slots from `first` on in which it has workers."""
        slots = (first + np.flatnonzero(widths)).tolist()
        rows, beside = np.array(slots, np.int64) % self.horizon, job.servers_for(job.fixed_width)
        here = take_run(self.workers.side, rows, _plain(job.worker), job.fixed_width)
        there = take_run(self.beside.side, rows, _plain(job.server), beside)
        held = Allotment(*(column.astype(np.int32) for column in (*here, *there)))
        return dict.fromkeys(slots, held)

    def take(self, job: ElasticJob, first: int, widths: Counts) -> dict[int, Allotment]:
        """Hold the cheapest servers for so many workers in each slot from `first` on."""
        at = np.flatnonzero(widths)
        rows, width = (first + at) % self.horizon, widths[at]
        beside = np.array([servers_for(job.servers_per_worker, int(count)) for count in width], np.int64)
        workers = _by_slot(*take(self.workers.side, rows, _plain(job.worker), width))
        servers = _by_slot(*take(self.beside.side, rows, _plain(job.server), beside))
        return {
            first + slot: Allotment(*here, *there)
            for slot, here, there in zip(at.tolist(), workers, servers, strict=True)
        }

    def add(self, job: ElasticJob, slot: int, there: Allotment, sign: float = 1.0) -> None:
        """The job holds that in a slot from now on, or with `sign` -1 no more."""
        row = slot % self.horizon
        self.workers.add(row, there.worker_server, there.workers, job.worker, sign)
        self.beside.add(row, there.parameter_server, there.servers, job.server, sign)

    def least_prices(self, slot: int, demand: Floats, most: int | None = None) -> list[float]:
        """What one worker costs in each slot from `slot` on (at most so many): least over the servers where it fits;
        infinite where it fits nowhere."""
        prices: list[float] = least_by_slot(
            self.workers.side, self.rows(slot)[:most], _plain(demand)
        ).tolist()
        return prices

    def core_prices(self, slot: int) -> list[float]:
        """What a unit of the first resource costs in each slot from `slot` on, mean over the worker servers."""
        return [float(prices[0]) for prices in self._unit_prices(self.rows(slot).tolist())]

    def unit_prices(self, slot: int) -> list[float]:
        """(R,) what a unit of each resource costs in a slot, mean over the worker servers."""
        return [float(price) for prices in self._unit_prices([slot % self.horizon]) for price in prices]

    def _unit_prices(self, rows: Sequence[int]) -> Iterator[Floats]:
        side = self.workers.side
        for row in rows:
            if side.stale[row]:
                refresh(side, row)
            servers = side.price.shape[2]
            yield side.price[row].mean(axis=1) if servers else np.full(len(self.servers.resources), math.nan)


def _plain(demand: Floats) -> Floats:
    """As compiled code wants it."""
    return np.ascontiguousarray(demand, np.float64)


def _by_slot(first: Counts, server: Counts, tasks: Counts) -> list[tuple[Ints, Ints]]:
    """Servers and tasks on them, slot by slot."""
    servers, counts = server.astype(np.int32), tasks.astype(np.int32)
    ends = first.tolist()
    return [(servers[a:b], counts[a:b]) for a, b in pairwise(ends)]

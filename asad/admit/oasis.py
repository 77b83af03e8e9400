"""`oasis`: admit a job if its worth exceeds the price of what it takes, and plan its workers slot by slot.

Source: Bao, Peng, Wu, Li: Online Job Scheduling in Distributed Machine Learning Clusters (INFOCOM 2018), Algorithms 1
and 2, settled where it is open (docs/explanation/oasis.md; `oasis-paper` is the letter). When a job arrives:

1. it is learned from: U and L follow from the jobs seen so far, this one included (`asad.admit.prices`), unless
   `bounds` are given;
2. the schedule of the greatest payoff is found (`asad.admit.best_schedule`): its utility at completion less the price
   of all it takes, over the slots from its arrival on. A rigid job has the same servers in consecutive slots;
3. if that is above 0 the job is admitted and holds what the schedule takes; the prices of that rise (22).

A schedule once promised is kept. It ends early by `leave`, and grows by `extend`. Slots roll over: at slot t, slots t
to t + `horizon` - 1 are planned, or to `until` - 1 at the last, where time has an end as in the paper.

Options: `horizon`, `until`, `bounds`, `tolerance`. Cost of an arrival: see `best_schedule`; about a millisecond with
300 slots and 100 servers. Memory: O(horizon · (H + K) · R).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from asad.admit.best_schedule import (
    Counts,
    Found,
    Need,
    Side,
    best_run,
    best_schedule,
    least_by_slot,
    most_by_slot,
    refresh,
    servers_for,
    take,
    take_run,
)
from asad.admit.elastic import Allotment, ElasticJob, Schedule, Scheme, Servers, Verdict
from asad.admit.prices import Bounds, Market, whole
from asad.admit.utility import worth_by_slot
from asad.errors import UsageError
from asad.model import Floats, Ints, Json

NOTHING = 1e-9
"""A worth up to this is none."""
TOLD_SLOTS = 60
"""So many slots from its arrival on are told of the prices that a job met."""
REMEMBERED = 1000
"""Jobs whose verdict can be explained; the earliest are forgotten."""


@dataclass(slots=True)
class Held:
    """An admitted job and what is planned for it."""

    job: ElasticJob
    schedule: dict[int, Allotment]


class Ledger:
    """What is taken of one kind of servers, and what it costs: a ring of slots."""

    def __init__(self, capacity: Floats, slots: int, normalised: bool = True) -> None:
        self.unit = whole(capacity) if normalised else np.ones(capacity.shape[1])
        servers, resources = capacity.shape
        shape = (slots, resources, servers)
        self.others: Floats | None = None
        """Taken by others than our jobs, of the same shape; None: nothing."""
        self.side = Side(
            np.zeros(shape),
            np.zeros(shape),
            np.ones(slots, np.bool_),
            np.zeros(shape),
            np.ascontiguousarray(capacity.T, dtype=np.float64),
            np.zeros(resources),
            np.zeros(resources),
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
        if self.others is not None:
            self.others[row] = 0.0

    def give(self, row: int, server: Ints, tasks: Ints, demand: Floats, sign: float = 1.0) -> None:
        """Take (or with `sign` -1 give back) so many tasks on these servers."""
        taken = self.side.taken[row]
        taken[:, server] += sign * demand[:, None] * tasks
        if sign < 0:
            # what is given back leaves no rounding behind, which would be a price above L
            kept = taken[:, server]
            kept[np.abs(kept) < 1e-9 * self.side.capacity[:, server]] = 0.0
            taken[:, server] = kept
        self.side.stale[row] = True

    def occupy(self, rows: Counts, held: Floats) -> None:
        """(n, H, R) what others hold in these rows from now on; nothing in all the other rows."""
        new = np.zeros_like(self.side.taken)
        new[rows] = held.transpose(0, 2, 1)
        if self.others is not None:
            changed = np.flatnonzero((new != self.others).any(axis=(1, 2)))
            self.side.taken[changed] += new[changed] - self.others[changed]
        else:
            changed = np.flatnonzero(new.any(axis=(1, 2)))
            self.side.taken[changed] += new[changed]
        taken = self.side.taken[changed]
        taken[np.abs(taken) < 1e-9 * self.side.capacity] = 0.0
        self.side.taken[changed] = taken
        self.side.stale[changed] = True
        self.others = new


class Oasis(Scheme):
    """Prices and best schedules (the module says how)."""

    name = "oasis"
    normalised = True
    """U and L count resources in parts of all there is, not in their own units."""

    def __init__(
        self,
        servers: Servers,
        horizon: int = 144,
        *,
        tolerance: float = 0.02,
        until: int | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """`tolerance`: bounds that were learned move the prices once L or a U is off by more than this part.

        Raises UsageError for a horizon below 1 or a tolerance outside [0, 1).
        """
        if horizon < 1:
            raise UsageError(f"oasis: horizon {horizon} plans no slot; set it to 1 or more")
        if not 0.0 <= tolerance < 1.0:
            raise UsageError(f"oasis: tolerance {tolerance:g} is no part; set it between 0 and 1")
        self.servers, self.horizon, self.until, self._tolerance = servers, horizon, until, tolerance
        self._workers = Ledger(servers.workers, horizon, self.normalised)
        self._servers = Ledger(servers.parameter_servers, horizon, self.normalised)
        self._fixed = bounds
        self._market = self._new_market()
        self._bounds = Bounds(0.0, np.zeros(len(servers.resources)), 0.0, np.zeros(len(servers.resources)))
        self._held: dict[int, Held] = {}
        self._stories: dict[int, dict[str, Json]] = {}
        self._slot = 0
        """First slot that the ledgers hold."""
        self._payoffs = 0.0
        if bounds is not None:
            self._set(bounds)

    # -------------------------------------------------------------------------------------------------- the scheme

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Algorithm 1. A job that arrived in a slot already past is planned from the present slot on."""
        self._advance(job.arrival)
        self._learn(job)
        first = max(job.arrival, self._slot)
        prices = self._least(first, job.worker, min(TOLD_SLOTS, self._length(first)))
        found = self._best(job, first, job.work)
        if found.end < 0:
            verdict = Verdict(
                False,
                self._why_not(job, found),
                # what is above 0 by rounding alone is not
                payoff=min(0.0, found.utility - found.cost) if math.isfinite(found.cost) else math.nan,
                cost=found.cost if math.isfinite(found.cost) else math.nan,
                utility=found.utility,
            )
        else:
            schedule = self._take(job, first, found.widths)
            self._held[number] = Held(job, schedule)
            self._payoffs += found.payoff
            widest = int(found.widths.max())
            verdict = Verdict(
                True,
                f"worth {found.utility:.3g} when it completes, for {found.cost:.3g} of resources: it runs in "
                f"{len(schedule)} slot{'s' if len(schedule) > 1 else ''}, at most {widest} at one time",
                schedule,
                found.payoff,
                found.cost,
                found.utility,
            )
        self._note(number, job, first, found, verdict, prices)
        return verdict

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        """What is planned for `slot`, of the jobs in `left`."""
        self._advance(slot)
        return {
            number: self._held[number].schedule[slot]
            for number in left
            if number in self._held and slot in self._held[number].schedule
        }

    def leave(self, number: int, slot: int) -> None:
        """Job `number` is done or gone: what it holds from `slot` on is free."""
        held = self._held.pop(number, None)
        if held is not None:
            self._release(held, slot)

    def extend(self, number: int, slot: int, work: int) -> Schedule:
        """Plan `work` more worker-slots from `slot` on, at present prices and whatever the payoff; never cancelled.

        What is still planned from `slot` on is planned anew with it. Returns its schedule from `slot` on; where the
        slots ahead have no room for all, it does as much as they have. A rigid job whose slot has come is planned as
        early as it fits. A job that is not known has no schedule.
        """
        self._advance(slot)
        held = self._held.get(number)
        if held is None:
            return {}
        first = max(slot, self._slot)
        work += sum(there.width for at, there in held.schedule.items() if at >= first)
        begun = held.job.rigid and min(held.schedule, default=first + 1) <= first
        self._release(held, first)
        found = self._best(held.job, first, work, least_payoff=-math.inf, earliest=begun)
        if found.end >= 0:
            held.schedule.update(self._take(held.job, first, found.widths))
        else:
            widths = self._all_there_is(held.job, first, work)
            held.schedule.update(self._take_slots(held.job, first, widths))
        return {at: there for at, there in sorted(held.schedule.items()) if at >= slot}

    def resume(self, number: int, job: ElasticJob, schedule: Schedule) -> None:
        """Hold what was promised in an earlier life, of slots not yet past, even where it no longer fits."""
        if number in self._held:
            self.leave(number, self._slot)
        if schedule:  # a new ledger begins at slot 0
            self._advance(max(schedule) - self.horizon + 1)
        held = Held(job, {})
        for slot, there in schedule.items():
            if self._slot <= slot < self._slot + self.horizon:
                self._workers.give(slot % self.horizon, there.worker_server, there.workers, job.worker)
                self._servers.give(slot % self.horizon, there.parameter_server, there.servers, job.server)
                held.schedule[slot] = there
        self._held[number] = held

    def occupy(self, slot: int, workers: Floats, servers: Floats | None = None) -> None:
        """(n, H, R) what others than our jobs hold from `slot` on, and (n, K, R) of the parameter servers.

        Replaces what was told before; prices follow total use. A server that is down is one of which all is held.
        """
        self._advance(slot)
        rows = (slot + np.arange(min(len(workers), self.horizon))) % self.horizon
        self._workers.occupy(rows, workers[: self.horizon])
        if servers is not None:
            self._servers.occupy(rows, servers[: self.horizon])

    set_background = occupy

    # ------------------------------------------------------------------------------------------------------ telling

    @property
    def bounds(self) -> Bounds:
        """U and L of the present prices."""
        return self._bounds

    @property
    def payoff(self) -> float:
        """Σ μ: payoffs of all jobs admitted."""
        return self._payoffs

    def explain(self, number: int) -> dict[str, Json] | None:
        """What was found when the job arrived, as plain data; None if it is not known (any more).

        `price_factor`: at less than this part of the prices it met, it would have been (for an admitted job: it would
        still have been) worth its price; None if it cannot be done while it is worth anything. `schedule`: slot,
        workers and parameter servers. `prices`: slot (from its arrival on, at most `TOLD_SLOTS`), and what one worker
        cost there, least over the servers; None where none had room.
        """
        return self._stories.get(number)

    def worker_prices(self, slot: int, demand: Floats) -> list[float]:
        """What a worker of this demand (R,) costs in each slot from `slot` on: least over the servers where it fits.

        Infinite where it fits nowhere.
        """
        self._advance(slot)
        return self._least(slot, demand, self._length(slot))

    def core_prices(self, slot: int) -> list[float]:
        """What a unit of the first resource costs in each slot from `slot` on, mean over the worker servers."""
        self._advance(slot)
        side = self._workers.side
        prices = []
        for at in range(slot, slot + self._length(slot)):
            row = at % self.horizon
            if side.stale[row]:
                refresh(side, row)
            prices.append(float(side.price[row, 0].mean()) if side.price.shape[2] else math.nan)
        return prices

    def state(self) -> dict[str, Json]:
        """What was learned, as plain data. Promises are kept by whoever drives this, and given back by `resume`."""
        return {"slot": self._slot, "jobs": self._market.state(), "payoffs": self._payoffs}

    def restore(self, kept: Mapping[str, Json]) -> None:
        """Know again what `state` told; what cannot be read is passed over: better a daemon that starts."""
        self._market.restore(kept.get("jobs"))
        payoffs, slot = kept.get("payoffs"), kept.get("slot")
        if isinstance(payoffs, float) and math.isfinite(payoffs):
            self._payoffs = payoffs
        if isinstance(slot, int) and slot > self._slot:
            self._advance(slot)
        if self._fixed is None:
            self._set(self._market.bounds())

    # ---------------------------------------------------------------------------------------------------- the rest

    def _new_market(self) -> Market:
        return Market(self.servers, self.horizon, rolling=self.until is None)

    def _learn(self, job: ElasticJob) -> None:
        if self._fixed is not None:
            return
        self._market.meet(job)
        new, old = self._market.bounds(), self._bounds
        before = np.concatenate(([old.worker_low, old.server_low], old.worker_high, old.server_high))
        after = np.concatenate(([new.worker_low, new.server_low], new.worker_high, new.server_high))
        if (np.abs(after - before) > self._tolerance * before).any():
            self._set(new)

    def _set(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._workers.price(bounds.worker_low, bounds.worker_high)
        self._servers.price(bounds.server_low, bounds.server_high)

    def _length(self, first: int) -> int:
        """How many slots from `first` on can be planned."""
        end = self._slot + self.horizon
        return max(0, (end if self.until is None else min(end, self.until)) - first)

    def _advance(self, slot: int) -> None:
        """Slots before `slot` are past: their rows stand for slots further ahead."""
        if slot <= self._slot:
            return
        for past in range(max(self._slot, slot - self.horizon), slot):
            self._workers.clear(past % self.horizon)
            self._servers.clear(past % self.horizon)
        self._slot = slot

    def _best(
        self, job: ElasticJob, first: int, work: int, least_payoff: float = 0.0, earliest: bool = False
    ) -> Found:
        slots = self._length(first)
        before = max(0, first - job.arrival)
        worth = worth_by_slot(job.utility, before + slots)[before:]
        need = self._need(job, work)
        floor = work * float(self._workers.side.low @ need.worker)
        if need.servers_per_worker > 0:
            beside = math.ceil(max(1.0, work * need.servers_per_worker) - 1e-9)
            floor += beside * float(self._servers.side.low @ need.server)
        rows = (first + np.arange(slots)) % self.horizon
        if job.rigid:
            return best_run(
                self._workers.side,
                self._servers.side,
                rows,
                need,
                job.fixed_width,
                worth,
                least_payoff,
                earliest,
            )
        return best_schedule(self._workers.side, self._servers.side, rows, need, worth, floor, least_payoff)

    def _need(self, job: ElasticJob, work: int) -> Need:
        worker = np.ascontiguousarray(job.worker, np.float64)
        takes = worker > 0.0
        most = min(job.most_workers, work)
        if takes.any():
            # an array may tell of more tasks than the servers could ever hold, and curves are as long as that
            capacity = self.servers.workers[:, takes] / worker[takes]
            most = min(most, int(np.floor(capacity + 1e-6).min(axis=1).sum()))
        return Need(
            worker,
            np.ascontiguousarray(job.server, np.float64),
            job.worker_bandwidth / job.server_bandwidth if job.server_bandwidth > 0 else 0.0,
            max(1, most),
            work,
        )

    def _all_there_is(self, job: ElasticJob, first: int, work: int) -> Counts:
        """As many workers as there is room for, slot after slot, up to `work`."""
        slots = self._length(first)
        rows = (first + np.arange(slots)) % self.horizon
        most = most_by_slot(self._workers.side, self._servers.side, rows, self._need(job, work))
        before = np.concatenate(([0], np.cumsum(most)[:-1])) if slots else np.zeros(0, np.int64)
        widths: Counts = np.clip(work - before, 0, most)
        return widths

    def _take(self, job: ElasticJob, first: int, widths: Counts) -> dict[int, Allotment]:
        """Hold servers for so many workers in each slot from `first` on."""
        if not job.rigid:
            return self._take_slots(job, first, widths)
        slots = (first + np.flatnonzero(widths)).tolist()
        rows = np.array(slots, np.int64) % self.horizon
        sides = (
            (self._workers.side, job.worker, job.fixed_width),
            (self._servers.side, job.server, job.servers_for(job.fixed_width)),
        )
        here, there = (
            take_run(side, rows, np.ascontiguousarray(demand, np.float64), count)
            for side, demand, count in sides
        )
        held = Allotment(*(column.astype(np.int32) for column in (*here, *there)))
        return dict.fromkeys(slots, held)

    def _take_slots(self, job: ElasticJob, first: int, widths: Counts) -> dict[int, Allotment]:
        """Hold the cheapest servers for so many workers in each slot from `first` on."""
        at = np.flatnonzero(widths)
        rows = (first + at) % self.horizon
        width = widths[at]
        ratio = job.worker_bandwidth / job.server_bandwidth if job.server_bandwidth > 0 else 0.0
        beside = np.array([servers_for(ratio, int(count)) for count in width], np.int64)
        worker = np.ascontiguousarray(job.worker, np.float64)
        server = np.ascontiguousarray(job.server, np.float64)
        workers = _split(*take(self._workers.side, rows, worker, width))
        servers = _split(*take(self._servers.side, rows, server, beside))
        return {
            first + slot: Allotment(*here, *there)
            for slot, here, there in zip(at.tolist(), workers, servers, strict=True)
        }

    def _release(self, held: Held, slot: int) -> None:
        for at in [at for at in held.schedule if at >= max(slot, self._slot)]:
            there = held.schedule.pop(at)
            row = at % self.horizon
            self._workers.give(row, there.worker_server, there.workers, held.job.worker, -1.0)
            self._servers.give(row, there.parameter_server, there.servers, held.job.server, -1.0)

    def _why_not(self, job: ElasticJob, found: Found) -> str:
        if found.utility <= NOTHING and worth_by_slot(job.utility, 1)[0] <= NOTHING:
            return "it is worth nothing, however soon it completes"
        if math.isfinite(found.cost) and found.utility <= NOTHING:
            return "it would be worth nothing by the time it could be done"
        if math.isfinite(found.cost):
            return (
                f"its worth of {found.utility:.3g} does not pay for {found.cost:.3g} of resources; at "
                f"{100 * found.utility / found.cost:.0f} % of the present prices it would"
            )
        return (
            f"the {self._length(max(job.arrival, self._slot))} slots ahead have no room for its {job.work} "
            "worker-slots while it is worth anything"
        )

    def _note(
        self,
        number: int,
        job: ElasticJob,
        first: int,
        found: Found,
        verdict: Verdict,
        prices: Sequence[float],
    ) -> None:
        factor: Json = None
        if math.isfinite(found.cost) and found.cost > 0.0 and found.utility > NOTHING:
            factor = found.utility / found.cost
        schedule: list[Json] = []
        for slot, there in (verdict.schedule or {}).items():
            schedule.append([slot, there.width, int(there.servers.sum())])
        self._stories[number] = {
            "admitted": verdict.admitted,
            "reason": verdict.reason,
            "arrival": job.arrival,
            "end": first + found.end if found.end >= 0 else None,
            "utility": found.utility,
            "cost": found.cost if math.isfinite(found.cost) else None,
            "payoff": verdict.payoff if math.isfinite(verdict.payoff) else None,
            "price_factor": factor,
            "gap": found.gap,
            "schedule": schedule,
            "prices": [
                [first + ahead, price if math.isfinite(price) else None] for ahead, price in enumerate(prices)
            ],
            "alpha": self._bounds.alpha,
            "worker_low": self._bounds.worker_low,
            "server_low": self._bounds.server_low,
        }
        if len(self._stories) > REMEMBERED:
            del self._stories[next(iter(self._stories))]

    def _least(self, slot: int, demand: Floats, slots: int) -> list[float]:
        rows = (slot + np.arange(slots)) % self.horizon
        prices = least_by_slot(self._workers.side, rows, np.ascontiguousarray(demand, np.float64))
        return [float(price) for price in prices]


def _split(first: Counts, server: Counts, tasks: Counts) -> list[tuple[Ints, Ints]]:
    """Servers and tasks on them, slot by slot."""
    servers, counts = server.astype(np.int32), tasks.astype(np.int32)
    ends = first.tolist()
    return [(servers[a:b], counts[a:b]) for a, b in pairwise(ends)]

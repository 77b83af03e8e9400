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

import numpy as np

from asad.admit.best_schedule import Found
from asad.admit.elastic import Allotment, ElasticJob, Schedule, Scheme, Servers, Verdict
from asad.admit.prices import Bounds, Market
from asad.admit.slot_ledgers import Ledgers
from asad.admit.utility import worth_by_slot
from asad.errors import UsageError
from asad.hold import plain
from asad.model import Floats, Json

NOTHING = 1e-9
"""A worth up to this is none."""
MOST_SLOTS = 60
"""So many slots from its arrival on are kept of the prices that a job met."""
MOST_STORIES = 1000
"""Jobs whose verdict can be explained; the earliest are forgotten."""


@dataclass(slots=True)
class Held:
    """An admitted job and what is planned for it."""

    job: ElasticJob
    schedule: dict[int, Allotment]


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
        self.ledgers = Ledgers(servers, horizon, until, self.normalised)
        self._fixed = bounds
        self._market = self._new_market()
        none = np.zeros(len(servers.resources))
        self._held: dict[int, Held] = {}
        self._stories: dict[int, dict[str, Json]] = {}
        self._payoffs = 0.0
        self._set(bounds or Bounds(0.0, none, 0.0, none))

    # -------------------------------------------------------------------------------------------------- the scheme

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Algorithm 1. A job that arrived in a slot already past is planned from the present slot on."""
        self.ledgers.advance(job.arrival)
        self._learn(job)
        first = max(job.arrival, self.ledgers.slot)
        prices = self.ledgers.least_prices(first, job.worker, MOST_SLOTS)
        found = self.ledgers.best(job, first, job.work)
        if found.end < 0:
            verdict = Verdict(
                False,
                self._why_not(job, first, found),
                # what is above 0 by rounding alone is not
                payoff=min(0.0, found.utility - found.cost) if math.isfinite(found.cost) else math.nan,
                cost=found.cost if math.isfinite(found.cost) else math.nan,
                utility=found.utility,
            )
        else:
            schedule = self._take(job, first, found)
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
        self.ledgers.advance(slot)
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
        self.ledgers.advance(slot)
        held = self._held.get(number)
        if held is None:
            return {}
        first = max(slot, self.ledgers.slot)
        work += sum(there.width for at, there in held.schedule.items() if at >= first)
        begun = held.job.rigid and min(held.schedule, default=first + 1) <= first
        self._release(held, first)
        found = self.ledgers.best(held.job, first, work, least_payoff=-math.inf, earliest=begun)
        if found.end >= 0:
            held.schedule.update(self._take(held.job, first, found))
        else:
            widths = self.ledgers.all_there_is(held.job, first, work)
            held.schedule.update(self.ledgers.take(held.job, first, widths))
        return {at: there for at, there in sorted(held.schedule.items()) if at >= slot}

    def resume(self, number: int, job: ElasticJob, schedule: Schedule) -> None:
        """Hold what was promised in an earlier life, of slots not yet past, even where it no longer fits."""
        if number in self._held:
            self.leave(number, self.ledgers.slot)
        if schedule:  # a new ledger begins at slot 0
            self.ledgers.advance(max(schedule) - self.horizon + 1)
        held = Held(job, {})
        for slot, there in schedule.items():
            if self.ledgers.slot <= slot < self.ledgers.slot + self.horizon:
                self.ledgers.add(job, slot, there)
                held.schedule[slot] = there
        self._held[number] = held

    def occupy(self, slot: int, workers: Floats, servers: Floats | None = None) -> None:
        """(n, H, R) what others than our jobs hold from `slot` on, and (n, K, R) of the parameter servers.

        Replaces what was given before; prices follow total use. A server that is down is one of which all is held.
        """
        self.ledgers.advance(slot)
        self.ledgers.occupy(slot, workers, servers)

    # ------------------------------------------------------------------------------------------------------ reports

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
        workers and parameter servers. `prices`: slot (from its arrival on, at most `MOST_SLOTS`), and what one worker
        cost there, least over the servers; None where none had room.
        """
        return self._stories.get(number)

    def worker_prices(self, slot: int, demand: Floats) -> list[float]:
        """What a worker of this demand (R,) costs in each slot from `slot` on: least over the servers where it fits.

        Infinite where it fits nowhere.
        """
        self.ledgers.advance(slot)
        return self.ledgers.least_prices(slot, demand)

    def core_prices(self, slot: int) -> list[float]:
        """What a unit of the first resource costs in each slot from `slot` on, mean over the worker servers."""
        self.ledgers.advance(slot)
        return self.ledgers.core_prices(slot)

    def unit_prices(self, slot: int) -> dict[str, float]:
        """What a unit of each resource costs in `slot`, mean over the worker servers."""
        self.ledgers.advance(slot)
        return dict(zip(self.servers.resources, self.ledgers.unit_prices(slot), strict=True))

    def state(self) -> dict[str, Json]:
        """What was learned, as plain data. Promises are kept by whoever drives this, and resumed by `resume`."""
        return {
            "slot": self.ledgers.slot,
            "jobs": self._market.state(),
            "resources": list(self.servers.resources),
            "payoffs": self._payoffs,
        }

    def restore(self, kept: Mapping[str, Json]) -> None:
        """Go on from what `state` described; what cannot be read is passed over: better a daemon that starts."""
        names = kept.get("resources")  # earlier versions knew cores and memory alone, and did not say so
        self._market.restore(
            kept.get("jobs"), [str(name) for name in names] if isinstance(names, list) else None
        )
        payoffs, slot = kept.get("payoffs"), kept.get("slot")
        if isinstance(payoffs, float) and math.isfinite(payoffs):
            self._payoffs = payoffs
        if isinstance(slot, int) and slot > self.ledgers.slot:
            self.ledgers.advance(slot)
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
        self.ledgers.price(bounds)

    def _take(self, job: ElasticJob, first: int, found: Found) -> dict[int, Allotment]:
        take = self.ledgers.take_run if job.rigid else self.ledgers.take
        return take(job, first, found.widths)

    def _release(self, held: Held, slot: int) -> None:
        for at in [at for at in held.schedule if at >= max(slot, self.ledgers.slot)]:
            self.ledgers.add(held.job, at, held.schedule.pop(at), -1.0)

    def _why_not(self, job: ElasticJob, first: int, found: Found) -> str:
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
            f"the {self.ledgers.length(first)} slots ahead have no room for its {job.work} worker-slots "
            "while it is worth anything"
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
        pays = math.isfinite(found.cost) and found.cost > 0.0 and found.utility > NOTHING
        planned = (verdict.schedule or {}).items()
        self._stories[number] = {
            "admitted": verdict.admitted,
            "reason": verdict.reason,
            "arrival": job.arrival,
            "end": first + found.end if found.end >= 0 else None,
            "utility": found.utility,
            "cost": plain(found.cost),
            "payoff": plain(verdict.payoff),
            "price_factor": found.utility / found.cost if pays else None,
            "gap": found.gap,
            "schedule": [[slot, there.width, int(there.servers.sum())] for slot, there in planned],
            "prices": [[first + ahead, plain(price)] for ahead, price in enumerate(prices)],
            "alpha": self._bounds.alpha,
            "worker_low": self._bounds.worker_low,
            "server_low": self._bounds.server_low,
        }
        if len(self._stories) > MOST_STORIES:
            del self._stories[next(iter(self._stories))]

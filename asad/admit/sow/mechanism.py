"""Algorithm 1: announce, plan, and evict latest born first. What is priced how, and how risky it is, comes in.

Source: 004, section 3, with prices and failures by Algorithm 2 (section 4, Theorem 4.1): from jobs that are uncertain
to tasks that are fractions. A statement becomes one task for each way in which the job may come, of its arrival and
duration, that takes the job's demand times its probability. A relaxed scheduler (`Relaxed`) sells that expected load,
of which there is never too much; what it asks is what the real job is asked. The job's plan is chosen with failure
probabilities besides, and the relaxed scheduler has to follow it. Estimates below a threshold count as 0: then its
choice is the job's, and the relaxed scheduler's guarantee holds for the real jobs.

Why it is truthful: the menu is computed before the statement is seen, the plan is the job's own best under it, and
both payment and failure depend on nothing that is stated later (Lemma 3.1). If all estimates are within μ of the true
probabilities, no report gains more than 2·μ·v_max (Theorem 3.2). Stating less demand than is needed makes the job
worthless; stating more only costs.

`cancel_waiting`: with it, jobs go latest born first over all that are active, as printed: one that only waits goes too
when somebody born earlier has to. Without it only those go that run or start in a round that is too full. A job's
fate then still depends on those born before it alone (by induction over births: whether the first k jobs hold a place
in a round is a function of their own arrivals and durations), so Lemma 3.1 and Theorem 3.2 stand; fewer jobs fail.

Several resources (`count`): each has a relaxed scheduler and loads of its own, a job pays the sum, and goes if any that
it needs is full. From the first job on that finds a resource full, in the order of birth, nobody born later that needs
it holds a place in that round; who needs none of it stays. So a job's fate depends on those born before it alone, and
all of the above stands. With one resource this is latest born first, as printed.

Cost of a statement: that of its menu, plan and draws; independent of how many came before. Memory: jobs active.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from asad.admit import AdmitPolicy
from asad.admit.sow.failures import Futures, sample_count
from asad.admit.sow.launch import Best, best_plan, rounds_sold, row_starts
from asad.admit.sow.statement import (
    MOST_UNITS,
    NEVER,
    Answer,
    Bounds,
    Eviction,
    LaunchPlan,
    Statement,
    readable,
    require,
)
from asad.admit.sow.statement_options import Options, require_values
from asad.errors import UsageError
from asad.model import Floats, Ints, Json
from asad.policy import Given, Policy, parameters, parted


class Relaxed(Protocol):
    """A scheduler of fractional tasks with a menu, that follows whatever is chosen from it (section 4.1)."""

    def advance(self, now: int) -> None:
        """Round `now` has begun."""

    def prices(self, demand: int, first: int, out: Floats) -> None:
        """(S, D) what `demand` units for 1, …, D rounds from `first`, `first` + 1, … on cost; inf: none are sold."""

    def take(self, start: Ints, duration: Ints, weight: Floats, demand: int) -> None:
        """(k,) tasks are allocated: `demand` units each, with probability `weight`; none where `start` is `NEVER`."""

    def state(self) -> dict[str, Json]:
        """As plain data."""

    def restore(self, kept: Mapping[str, Json]) -> None:
        """Raises UsageError for what `state` did not return."""


@dataclass(slots=True)
class Active:
    """A job that is announced, planned to run, and not over."""

    job: int
    statement: Statement
    plan: LaunchPlan
    price: Floats
    """(m, d_max) by row of the plan."""
    unsold: float
    """Stands in `price` for a round that is not sold: above what any round costs."""
    slot: int = -1
    row: int = -1
    """Of the plan, as which it has arrived; -1: not yet."""
    start: int = NEVER
    end: int | None = None
    """Round after the last that is sold to it, once it has arrived; None: as long as it lasts."""

    def arrive(self, row: int) -> None:
        """It has come as that row of its plan says."""
        self.row, self.start = row, int(self.plan.start[row])
        sold = rounds_sold(self.price[row], self.unsold)
        self.end = None if sold is None else self.start + sold

    def runs(self, round: int) -> bool:
        """Does it run or start in that round?"""
        return self.row >= 0 and self.start <= round

    def draw(self, number: int, futures: Futures) -> int:
        """Draw it into `futures`, as it has arrived if it has; `number` seeds its draws. Returns its slot there."""
        statement, plan, lengths = self.statement, self.plan, self.statement.duration.copy()
        for row, start in enumerate(plan.start.tolist()):
            sold = rounds_sold(self.price[row], self.unsold)
            if start != NEVER and sold is not None:
                here = (statement.arrival == plan.arrival[row]) & (statement.signal == plan.signal[row])
                lengths[here] = np.minimum(lengths[here], sold)
        slot = futures.add(number, statement, row_starts(statement, plan), lengths)
        if self.row >= 0:
            futures.arrived(slot, int(plan.arrival[self.row]), int(plan.signal[self.row]), self.start)
        return slot

    def to_json(self) -> dict[str, Json]:
        """As plain data, that a mechanism reads again."""
        return {
            "job": self.job,
            "statement": self.statement.to_json(),
            "plan": self.plan.to_json(),
            "price": self.price.tolist(),
            "row": self.row,
        }


def crowded(
    active: Collection[Active], round: int, most: Mapping[str, int], cancel_waiting: bool
) -> list[Eviction]:
    """Who has to go, latest born first, so that no more than `most` units of each resource run; the first has no name.

    `active` are in the order of birth.
    """
    run = [held.statement for held in active if held.runs(round)]
    loads = {
        name: sum(one.tres.get(name, 0) for one in run) if name else sum(one.demand for one in run)
        for name in most
    }
    if all(loads[name] <= units for name, units in most.items()):
        return []
    asked, released, gone = dict.fromkeys(most, 0), dict.fromkeys(most, 0), list[Eviction]()
    for held in active:
        runs = held.runs(round)
        if not runs and not cancel_waiting:
            continue
        needs = {"": held.statement.demand, **held.statement.tres}
        passed: list[str] = []
        for name in most:
            units = needs.get(name, 0)
            asked[name] += units if runs else 0
            load = asked[name] - released[name]
            if units and load > most[name]:
                what = "would hold" if held.start == round else "held" if runs else "waited for"
                need = f"need {load} {f'of {name}' if name else 'units'} and there are {most[name]}"
                why = f"in round {round} jobs born earlier and it {need}; it {what} {units} and was born last"
                gone.append(Eviction(held.job, round, runs, why))
                for other in passed if runs else ():  # who goes for one resource frees the others
                    released[other] += needs.get(other, 0)
                break
            passed.append(name)
    return gone[::-1]


def within(counted: Mapping[str, Bounds], tres: Mapping[str, int]) -> list[tuple[bool, str]]:
    """May one job have so much of the resources beside the first? As `require` takes it."""
    most = {name: counted[name].max_demand if name in counted else 0 for name in tres}
    return [
        (units <= most[name], f"{units} of {name} are above the {most[name]} that one job may have")
        for name, units in tres.items()
    ]


class Posted(Policy):
    """Algorithm 1 over any relaxed scheduler. `name`, prices and options are those of who derives from it.

    On a cluster `asad.admit.sow.statements_policy.Statements` drives it.
    """

    stage = "admit"
    option_type = Options
    signed = frozenset({"delta"})

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Its own, too."""
        return super().defaults() | parameters(cls)

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> AdmitPolicy:
        """The policy that drives it on a cluster."""
        from asad.admit.sow.statements_policy import Statements  # drives the mechanisms of this room

        common, own = parted(options, Options)
        require_values(common)
        make: Callable[..., Posted] = cls
        make(Bounds(8, 2, 4, 10.0, 8), **own)  # can the options be?
        return Statements(
            cls.name,
            lambda bounds: make(bounds, **own),
            given.applications,
            common,
            most_defer_s=given.most_defer_s,
        )

    def __init__(
        self,
        bounds: Bounds,
        relaxed: Relaxed,
        *,
        error: float,
        confidence: float,
        threshold: float,
        cancel_waiting: bool,
        seed: int,
    ) -> None:
        """`error` μ and `confidence` say how many futures are drawn; estimates below `threshold` count as 0.

        Raises UsageError for what is out of range.
        """
        if not 0.0 <= threshold < 1.0:
            raise UsageError(f"sow: threshold {threshold:g}: write a probability below 1")
        self.bounds, self.relaxed, self.threshold, self.error = bounds, relaxed, threshold, error
        self.cancel_waiting = cancel_waiting
        self.samples = sample_count(error, confidence, bounds.span)
        self._futures = Futures(bounds, self.samples, seed, cancel_waiting)
        self.counted: dict[str, Bounds] = {}
        """Of each resource that is priced beside the first, by name."""
        self._relaxed: dict[str, Relaxed] = {}
        self._active: dict[int, Active] = {}
        """In the order of birth."""
        self._now, self._births = 0, 0
        self._price, self._failure, self._part = np.zeros((3, bounds.span, bounds.max_duration))

    # --------------------------------------------------------------------------------------------------- the mechanism

    def count(self, name: str, capacity: int, max_demand: int) -> None:
        """From now on there is another resource. Raises UsageError where it cannot be priced."""
        limits = replace(self.bounds, capacity=min(capacity, MOST_UNITS), max_demand=max_demand)
        relaxed = self._relaxed_of(name, limits)
        relaxed.advance(self._now)
        self.counted[name], self._relaxed[name] = limits, relaxed
        self._futures.count(name, limits.capacity)

    def step(self, round: int) -> None:
        """A new round."""
        if round < self._now:
            raise UsageError(f"sow: round {round} is past, it is round {self._now}; rounds never go back")
        if round > self._now:
            for relaxed in (self.relaxed, *self._relaxed.values()):
                relaxed.advance(round)
            self._now = round
        self._futures.step(round)

    def submit(self, job: int, statement: Statement) -> Answer:
        """Algorithm 1, lines for one birth."""
        if job in self._active:
            raise UsageError(f"sow: job {job} has a plan already; plans bind")
        best = self.quote(statement)
        planned = not best.plan.never
        if planned:
            # the rows of a statement, as they are planned, are drawn and sold alike
            slot = self._futures.add(self._births, statement, best.row_start, best.row_length)
            for relaxed, units in self._sold_by(statement.demand, statement.tres):
                relaxed.take(best.row_start, best.row_length, statement.probability, units)
            self._active[job] = Active(job, statement, best.plan, best.price, self._unsold(statement), slot)
        self._births += 1
        self._met(statement, best, planned)
        return best

    def tables(self, demand: int, tres: Mapping[str, int] = MappingProxyType({})) -> tuple[Floats, Floats]:
        """(S, D) price and failure of `demand` units by start, from the present round on, and rounds of the run.

        `tres`: with units of other resources, that are counted, by name.
        """
        self._tables(demand, tres, np.ones(self.bounds.max_duration, np.bool_))
        return self._price.copy(), self._failure.copy()

    def quote(self, statement: Statement) -> Best:
        """What `submit` would answer now; nothing is planned."""
        bounds = self.bounds
        require(
            "statement: ",
            (
                (
                    statement.demand <= bounds.max_demand,
                    f"demand {statement.demand} is above the {bounds.max_demand} units that one job may have",
                ),
                *within(self.counted, statement.tres),
                (
                    statement.longest <= bounds.max_duration,
                    f"duration {statement.longest} is above the {bounds.max_duration} rounds that one job may last",
                ),
                (
                    statement.worth.most <= bounds.max_value,
                    f"value {statement.worth.most:g} is above {bounds.max_value:g}, the most that a job may be worth",
                ),
                (
                    statement.birth <= self._now,
                    f"birth in round {statement.birth}; it is round {self._now}",
                ),
            ),
        )
        needed = np.zeros(bounds.max_duration, np.bool_)
        needed[statement.duration - 1] = True
        self._tables(statement.demand, statement.tres, needed)
        return best_plan(
            self._now, statement, self._price, self._failure, bounds.least_value, self._unsold(statement)
        )

    def arrive(self, job: int, round: int, signal: int = 0) -> int | None:
        """A job with an arrival that was not stated waits for the next one that was; after the last it never starts."""
        self._be_in(round)
        held = self._active.get(job)
        if held is None or held.row >= 0:
            return None if held is None else held.start
        row = held.plan.row_of(round, signal)
        if row < 0 or held.plan.start[row] == NEVER:
            self._forget([job])
            return None
        held.arrive(row)
        self._futures.arrived(held.slot, int(held.plan.arrival[row]), signal, held.start)
        return held.start

    def evict(self, round: int, supply: int | Sequence[int] | None = None) -> tuple[Eviction, ...]:
        """Who runs on into a round that was not sold to him; then latest born first, until the rest fits.

        `supply`: of the first resource, or of it and of all that are counted in their order.
        """
        self._be_in(round)
        gone = [
            Eviction(
                held.job,
                round,
                True,
                f"round {round} was not sold to it: no more than {held.end - held.start} rounds were to be had from "
                f"round {held.start} on when it was born, and it has not finished",
            )
            for held in reversed(self._active.values())
            if held.end is not None and held.end <= round
        ]
        self._forget(eviction.job for eviction in gone)
        given = () if supply is None else (supply,) if isinstance(supply, int) else supply
        whole = [limits.capacity for limits in (self.bounds, *self.counted.values())]
        most = dict(zip(("", *self.counted), [*given, *whole[len(given) :]], strict=True))
        over = crowded(self._active.values(), round, most, self.cancel_waiting)
        self._forget(eviction.job for eviction in over)
        return (*gone, *over)

    def complete(self, job: int, round: int) -> float:
        """The price announced at birth, for as long as it ran. 0 of a job that is not known, or never started."""
        held = self._active.get(job)
        if held is None:
            return 0.0
        self._forget([job])
        if held.row < 0 or round <= held.start:
            return 0.0
        lasted = min(round - held.start, self.bounds.max_duration)
        return float(held.price[held.row, lasted - 1])

    def withdraw(self, job: int, round: int) -> None:
        """What it was expected to hold still counts in prices, which never fall; in failures it counts no more."""
        if job in self._active:
            self._forget([job])

    def occupy(self, round: int, held: Ints) -> None:
        """Failures follow what others hold. Prices do not: they could not fall again when others end.

        `held` may have a row of each resource, in the order of `evict`.
        """
        self._be_in(round)
        given = np.atleast_2d(held)
        capacity = np.array([limits.capacity for limits in (self.bounds, *self.counted.values())])[:, None]
        supply = np.repeat(capacity, self.bounds.span + self.bounds.max_duration, axis=1)
        known = min(supply.shape[1], given.shape[1])
        supply[: len(given), :known] -= np.clip(given[:, :known], 0, capacity[: len(given)])
        self._futures.limit(round, supply.astype(np.int16))

    # ----------------------------------------------------------------------------------------------------- saved state

    @property
    def now(self) -> int:
        """The present round."""
        return self._now

    @property
    def active(self) -> Mapping[int, Active]:
        """Jobs that are planned and not over, in the order of birth."""
        return self._active

    def state(self) -> dict[str, Json]:
        """Plans, prices and what has arrived. The futures are drawn anew from them."""
        jobs: list[Json] = [held.to_json() for held in self._active.values()]
        tres: dict[str, Json] = {name: self._of_resource(name) for name in self.counted}
        more: dict[str, Json] = {"tres": tres} if tres else {}
        prices = self.relaxed.state()
        return {"round": self._now, "births": self._births, "prices": prices, "jobs": jobs, **more}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from there: plans are binding, so every one of them stands as it was announced."""
        with readable("sow: what was kept"):
            now, births, prices = int(kept["round"]), int(kept["births"]), kept["prices"]
            found = [self._read(one) for one in kept["jobs"]]
            tres = {
                str(name): (int(one["capacity"]), int(one["max_demand"]), one["prices"])
                for name, one in kept.get("tres", {}).items()
            }
        self.relaxed.restore(prices)
        for name, (capacity, most, own_prices) in tres.items():
            if name not in self.counted:
                self.count(name, capacity, most)
            self._relaxed[name].restore(own_prices)
        for held in found:
            require("sow: what was kept: ", within(self.counted, held.statement.tres))
        self._forget(list(self._active))
        self._now, self._births = now, births
        self._futures.step(now)
        for held in found:
            held.slot = held.draw(held.job, self._futures)
            self._active[held.job] = held

    # -------------------------------------------------------------------------------------------------------- the rest

    def _unsold(self, statement: Statement) -> float:
        # above what any round costs: prices end about where nobody pays them
        return 2.0 * statement.units * self.bounds.max_value

    def _of_resource(self, name: str) -> dict[str, Json]:
        """What is kept of a resource beside the first."""
        limits, prices = self.counted[name], self._relaxed[name].state()
        return {"capacity": limits.capacity, "max_demand": limits.max_demand, "prices": prices}

    def _relaxed_of(self, name: str, limits: Bounds) -> Relaxed:
        """Prices of another resource. Raises UsageError where there are none."""
        raise UsageError(f"{self.name} prices cores alone, and not {name}; leave it out")

    def _sold_by(self, demand: int, tres: Mapping[str, int]) -> list[tuple[Relaxed, int]]:
        """Who sells it, of each resource, and how much."""
        more = [(self._relaxed[name], units) for name, units in tres.items() if units]
        return [(self.relaxed, demand), *more]

    def _read(self, kept: Mapping[str, Any]) -> Active:
        statement, plan = Statement.from_json(kept["statement"]), LaunchPlan.from_json(kept["plan"])
        price, row = np.array(kept["price"], np.float64), int(kept["row"])
        assert price.shape == (len(plan.start), self.bounds.max_duration) and -1 <= row < len(plan.start)
        held = Active(int(kept["job"]), statement, plan, price, self._unsold(statement))
        if row >= 0:
            held.arrive(row)
        return held

    def _be_in(self, round: int) -> None:
        if round != self._now:
            raise UsageError(f"sow: asked of round {round}, it is round {self._now}; `step` first")

    def _met(self, statement: Statement, best: Best, planned: bool) -> None:
        """For who learns: what a statement expects if it starts on arrival, and for how long it holds what it needs."""

    def _tables(self, demand: int, tres: Mapping[str, int], needed: NDArray[np.bool_]) -> None:
        self._futures.refresh(held.slot for held in self._active.values())
        self.relaxed.prices(demand, self._now, self._price)
        for relaxed, units in self._sold_by(demand, tres)[1:]:
            relaxed.prices(units, self._now, self._part)
            self._price += self._part
        self._futures.table(demand, self._now, self._failure, self.threshold, needed, tres)
        # who lasts into a round that is not sold is ended there
        self._failure[self._price == np.inf] = 1.0

    def _forget(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            self._futures.remove(self._active.pop(job).slot)

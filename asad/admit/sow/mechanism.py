"""Algorithm 1: announce, plan, and evict latest born first. What is priced how, and how risky it is, comes in.

Source: 004, section 3, with prices and failures by Algorithm 2 (`asad.admit.sow.reduction`).

Why it is truthful: the menu is computed before the statement is seen, the plan is the job's own best under it, and
both payment and failure depend on nothing that is stated later (Lemma 3.1). If all estimates are within μ of the true
probabilities, no report gains more than 2·μ·v_max (Theorem 3.2). Stating less demand than is needed makes the job
worthless; stating more only costs.

`cancel_waiting`: with it, jobs go latest born first over all that are active, as printed: one that only waits goes too
when somebody born earlier has to. Without it only those go that run or start in a round that is too full. A job's
fate then still depends on those born before it alone (by induction over births: whether the first k jobs hold a place
in a round is a function of their own arrivals and durations), so Lemma 3.1 and Theorem 3.2 stand; fewer jobs fail.

Cost of a statement: that of its menu, plan and draws; independent of how many came before. Memory: jobs active.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.admit import AdmitPolicy
from asad.admit.sow.failures import Futures, sample_count
from asad.admit.sow.launch import Best, best_plan, rounds_sold, row_starts
from asad.admit.sow.reduction import Relaxed
from asad.admit.sow.statement import NEVER, Answer, Bounds, Eviction, LaunchPlan, Menu, Statement
from asad.admit.sow.statement_options import Options
from asad.errors import UsageError
from asad.model import Floats, Ints, Json
from asad.policy import Given, Policy, parameters, parted


@dataclass(slots=True)
class Active:
    """A job that is announced, planned to run, and not over."""

    job: int
    statement: Statement
    plan: LaunchPlan
    price: Floats
    """(m, d_max) by row of the plan."""
    slot: int
    row: int = -1
    """Of the plan, as which it has arrived; -1: not yet."""
    start: int = NEVER
    end: int | None = None
    """Round after the last that is sold to it, once it has arrived; None: as long as it lasts."""


class Posted(Policy):
    """Algorithm 1 over any relaxed scheduler. `name`, prices and options are those of who derives from it.

    On a cluster `asad.admit.sow.statements_policy.Statements` drives it.
    """

    stage = "admit"
    signed = frozenset({"delta"})

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Those of all statements on a cluster, too."""
        return Options()._asdict() | parameters(cls)

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> AdmitPolicy:
        """The policy that drives it on a cluster."""
        from asad.admit.sow.statements_policy import Statements  # drives the mechanisms of this room

        common, own = parted(options, Options)
        common.check()
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
        self.bounds, self.relaxed, self.threshold = bounds, relaxed, threshold
        self.error, self.confidence = error, confidence
        self.cancel_waiting = cancel_waiting
        self.samples = sample_count(error, confidence, bounds.span)
        self._futures = Futures(bounds, self.samples, seed, cancel_waiting)
        self._active: dict[int, Active] = {}
        """In the order of birth."""
        self._now, self._births = 0, 0
        self._price = np.zeros((bounds.span, bounds.max_duration))
        self._failure = np.zeros((bounds.span, bounds.max_duration))
        self._needed = np.zeros(bounds.max_duration, np.bool_)
        self._all = np.ones(bounds.max_duration, np.bool_)

    # --------------------------------------------------------------------------------------------------- the mechanism

    def step(self, round: int) -> None:
        """A new round."""
        if round < self._now:
            raise UsageError(f"sow: round {round} is past, it is round {self._now}; rounds never go back")
        if round > self._now:
            self.relaxed.advance(round)
            self._now = round
        self._futures.step(round)

    def announce(self, round: int) -> Menu:
        """Of the present round, as far as a job born now may use it."""
        self._be_in(round)
        starts, demands, durations = self.bounds.span, self.bounds.max_demand, self.bounds.max_duration
        price, failure = np.zeros((2, starts, demands, durations))
        for demand in range(1, demands + 1):
            self._tables(demand)
            price[:, demand - 1], failure[:, demand - 1] = self._price, self._failure
        return Menu(round, price, failure)

    def submit(self, job: int, statement: Statement) -> Answer:
        """Algorithm 1, lines for one birth."""
        self._require(job, statement)
        best = self._best(statement)
        answer = _answer(best)
        planned = not answer.plan.never
        if planned:
            slot = self._futures.add(self._births, statement, best.row_start, best.row_length)
            self.relaxed.take(best.row_start, best.row_length, statement.probability, statement.demand)
            self._active[job] = Active(job, statement, best.plan, best.price, slot)
        self._births += 1
        self._met(best.at_once, statement.demand * best.volume, planned)
        return answer

    def tables(self, demand: int) -> tuple[Floats, Floats]:
        """(S, D) price and failure of `demand` units by start, from the present round on, and rounds of the run."""
        self._tables(demand)
        return self._price.copy(), self._failure.copy()

    def quote(self, statement: Statement) -> Answer:
        """What `submit` would answer now; nothing is planned."""
        self._require(None, statement)
        return _answer(self._best(statement))

    def arrive(self, job: int, round: int, signal: int = 0) -> int | None:
        """A job with an arrival that was not stated waits for the next one that was; after the last it never starts."""
        self._be_in(round)
        held = self._active.get(job)
        if held is None:
            return None
        if held.row >= 0:
            return held.start
        plan = held.plan
        row = -1
        for at, (stated, told) in enumerate(zip(plan.arrival.tolist(), plan.signal.tolist(), strict=True)):
            if stated >= round and told == signal:
                row = at
                break
        if row < 0 or plan.start[row] == NEVER:
            self._forget(job)
            return None
        held.row, held.start = row, int(plan.start[row])
        held.end = self._sold_until(held)
        self._futures.arrived(held.slot, int(plan.arrival[row]), signal, held.start)
        return held.start

    def evict(self, round: int, supply: int | None = None) -> tuple[Eviction, ...]:
        """Who runs on into a round that was not sold to him; then latest born first, until the rest fits."""
        self._be_in(round)
        most = self.bounds.capacity if supply is None else supply
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
        for eviction in gone:
            self._forget(eviction.job)
        return (*gone, *self._make_room(round, most))

    def _make_room(self, round: int, most: int) -> list[Eviction]:
        load = sum(held.statement.demand for held in self._active.values() if self._runs(held, round))
        gone: list[Eviction] = []
        if load <= most:
            return gone
        for job in reversed(self._active):
            held = self._active[job]
            runs = self._runs(held, round)
            if not runs and not self.cancel_waiting:
                continue
            what = "would hold" if held.start == round else "held" if runs else "waited for"
            gone.append(
                Eviction(
                    job,
                    round,
                    runs,
                    f"in round {round} jobs born earlier and it need {load} units and there are {most}; it {what} "
                    f"{held.statement.demand} and was born last",
                )
            )
            if runs:
                load -= held.statement.demand
            if load <= most:
                break
        for eviction in gone:
            self._forget(eviction.job)
        return gone

    def complete(self, job: int, round: int) -> float:
        """The price it was told at birth, for as long as it ran. 0 of a job that is not known, or never started."""
        held = self._active.get(job)
        if held is None:
            return 0.0
        self._forget(job)
        if held.row < 0 or round <= held.start:
            return 0.0
        lasted = min(round - held.start, self.bounds.max_duration)
        return float(held.price[held.row, lasted - 1])

    def withdraw(self, job: int, round: int) -> None:
        """What it was expected to hold still counts in prices, which never fall; in failures it counts no more."""
        if job in self._active:
            self._forget(job)

    def occupy(self, round: int, held: Ints) -> None:
        """Failures follow what others hold. Prices do not: they could not fall again when others end."""
        self._be_in(round)
        window = self.bounds.span + self.bounds.max_duration
        supply = np.full(window, self.bounds.capacity, np.int64)
        known = min(window, len(held))
        supply[:known] -= np.clip(held[:known], 0, self.bounds.capacity)
        self._futures.limit(round, supply.astype(np.int16))

    # --------------------------------------------------------------------------------------------------------- telling

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
        jobs: list[Json] = [
            {
                "job": held.job,
                "statement": held.statement.to_json(),
                "plan": held.plan.to_json(),
                "price": held.price.tolist(),
                "row": held.row,
            }
            for held in self._active.values()
        ]
        return {"round": self._now, "births": self._births, "prices": self.relaxed.state(), "jobs": jobs}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from there: plans are binding, so every one of them stands as it was told."""
        try:
            now, births = int(kept["round"]), int(kept["births"])
            prices, jobs = kept["prices"], kept["jobs"]
            assert isinstance(prices, dict) and isinstance(jobs, list)
            found = [self._read(one) for one in jobs]
        except (KeyError, TypeError, ValueError, AssertionError, OverflowError) as error:
            raise UsageError(f"sow: what was kept cannot be read ({str(error)[:120]}); begin anew") from error
        self.relaxed.restore(prices)
        for job in list(self._active):
            self._forget(job)
        self._now, self._births = now, births
        self._futures.step(now)
        for held in found:
            held.slot = self._futures.add(held.job, held.statement, *self.rows_of(held))
            if held.row >= 0:
                held.start = int(held.plan.start[held.row])
                held.end = self._sold_until(held)
                at = int(held.plan.arrival[held.row])
                self._futures.arrived(held.slot, at, int(held.plan.signal[held.row]), held.start)
            self._active[held.job] = held

    # -------------------------------------------------------------------------------------------------------- the rest

    def rows_of(self, held: Active) -> tuple[Ints, Ints]:
        """(k,) start of a job by row of its statement, and the rounds that it then runs at the most."""
        starts, lengths = row_starts(held.statement, held.plan), held.statement.duration.copy()
        for row, start in enumerate(held.plan.start.tolist()):
            sold = rounds_sold(held.price[row], self._unsold(held.statement))
            if start != NEVER and sold is not None:
                arrival, signal = held.plan.arrival[row], held.plan.signal[row]
                here = (held.statement.arrival == arrival) & (held.statement.signal == signal)
                lengths[here] = np.minimum(lengths[here], sold)
        return starts, lengths

    def _unsold(self, statement: Statement) -> float:
        # above what any round costs: prices end about where nobody pays them
        return 2.0 * statement.demand * self.bounds.max_value

    def _sold_until(self, held: Active) -> int | None:
        sold = rounds_sold(held.price[held.row], self._unsold(held.statement))
        return None if sold is None else held.start + sold

    def _read(self, told: Mapping[str, Any]) -> Active:
        statement = Statement.from_json(told["statement"])
        plan = LaunchPlan.from_json(told["plan"])
        price, row = np.array(told["price"], np.float64), int(told["row"])
        assert price.shape == (len(plan.start), self.bounds.max_duration) and -1 <= row < len(plan.start)
        return Active(int(told["job"]), statement, plan, price, -1, row)

    def _be_in(self, round: int) -> None:
        if round != self._now:
            raise UsageError(f"sow: asked of round {round}, it is round {self._now}; `step` first")

    def _require(self, job: int | None, statement: Statement) -> None:
        if job is not None and job in self._active:
            raise UsageError(f"sow: job {job} has a plan already; plans bind")
        bounds = self.bounds
        if statement.demand > bounds.max_demand:
            raise UsageError(
                f"statement: demand {statement.demand} is above the {bounds.max_demand} units that one job may have"
            )
        if statement.longest > bounds.max_duration:
            raise UsageError(
                f"statement: duration {statement.longest} is above the {bounds.max_duration} rounds that "
                "one job may last"
            )
        if statement.worth.most > bounds.max_value:
            raise UsageError(
                f"statement: value {statement.worth.most:g} is above {bounds.max_value:g}, the most that a job may be "
                "worth"
            )
        if statement.birth > self._now:
            raise UsageError(f"statement: birth in round {statement.birth}; it is round {self._now}")

    def _met(self, value: float, volume: float, planned: bool) -> None:
        """For who learns: a statement expects that value if it starts on arrival, for so many units times rounds."""

    def _tables(self, demand: int, needed: NDArray[np.bool_] | None = None) -> None:
        self._futures.refresh(held.slot for held in self._active.values())
        self.relaxed.prices(demand, self._now, self._price)
        needed = self._all if needed is None else needed
        self._futures.table(demand, self._now, self._failure, self.threshold, needed)
        # who lasts into a round that is not sold is ended there
        self._failure[self._price == np.inf] = 1.0

    def _best(self, statement: Statement) -> Best:
        bounds = self.bounds
        self._needed[:] = False
        self._needed[statement.duration - 1] = True
        self._tables(statement.demand, self._needed)
        unsold = self._unsold(statement)
        return best_plan(self._now, statement, self._price, self._failure, bounds.least_value, unsold)

    @staticmethod
    def _runs(held: Active, round: int) -> bool:
        return held.row >= 0 and held.start <= round

    def _forget(self, job: int) -> None:
        self._futures.remove(self._active.pop(job).slot)


def _answer(best: Best) -> Answer:
    return Answer(best.plan, best.utility, best.payment, best.failure, best.price, best.hopeless)

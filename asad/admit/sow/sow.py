"""`sow`: unit prices around the price that clears the market, and as much overbooking as keeps evictions few.

Source: 004, Algorithms 1 to 3, with terms of rounds (`asad.admit.sow.unit_prices`) that adapt. The letter is
`sow-paper`.

- Prices. The letter's L lets everybody in for nearly nothing at first, and its U is out of reach of most long before
  the supply is sold. Here the clearing price is learned from statements (`asad.admit.sow.demand`). A unit costs as
  much where the expected load is nine tenths of the capacity, a little less below that and a little more above. As
  long as nothing has been learned, prices rise steeply instead, around the middle of what may be bid.
- Supply. K = (1 - δ)·C with δ below 0 overbooks: not all that is expected comes. δ moves against the part of the
  planned jobs that had to go, towards `evictions` of it.
- Failures. Estimates are shown as they are from `threshold` on: who is born into a crowd sees it, and keeps out of it.
- Jobs that only wait are not cancelled when others have to go (`asad.admit.sow.mechanism` says why that is as
  truthful); `cancel_waiting` does it.

Of several resources each has a histogram, and a clearing price, of its own. A statement bids for one what it is worth
beyond what it would pay for the others at their clearing prices: what the dual of the linear program would take it for.

δ, L and U of a round are those at its announcement, max_duration + span rounds ahead, so no announced price moves and
no job has a part in its own prices. What the paper proves of Algorithm 3's competitive ratio is not proved of these.

Options: `delta` (where δ begins), `evictions` (their part of the planned jobs that δ moves towards), `memory` (rounds
after which what was stated counts half), `error` (μ) and `confidence` of the failure estimates, `threshold`,
`cancel_waiting`, `seed`. Cost: see `asad.admit.sow.mechanism`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from asad.admit.sow.demand import Demand
from asad.admit.sow.launch import Best
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import Bounds, Eviction, Statement, readable, require
from asad.admit.sow.unit_prices import Terms, UnitPrices, paper_terms
from asad.model import Json

ANCHOR = 0.9
"""Expected load over capacity at which a unit costs the clearing price."""
SLOPE, FIRST_SLOPE = 0.6, 4.0
"""Of ln λ over load / capacity; the second while nothing has been learned."""
FILL = 0.78
"""Part of the capacity that is sold above the clearing price: the rest is for what comes otherwise than expected."""
MOST_DELTA = 0.3
"""|δ| never adapts beyond it."""
GAIN = 0.03
"""Of δ a round, for each part of the planned jobs that is evicted beyond what is wanted."""
COUNTED = 0.98
"""Planned and evicted jobs count so much less each round."""
FEWEST = 20.0
"""Planned jobs, so counted, below which the rate of evictions is not taken for one."""


class Sow(Posted):
    """Terms that follow the market, and the evictions."""

    name = "sow"

    def __init__(
        self,
        bounds: Bounds,
        delta: float = -0.05,
        evictions: float = 0.03,
        memory: float = 100.0,
        error: float = 0.05,
        confidence: float = 0.99,
        threshold: float = 0.01,
        cancel_waiting: bool = False,
        seed: int = 0,
    ) -> None:
        """Raises UsageError for options out of range."""
        require(
            "sow: ",
            (
                (
                    -MOST_DELTA <= delta <= MOST_DELTA,
                    f"delta {delta:g}: write a number from {-MOST_DELTA:g} to {MOST_DELTA:g}",
                ),
                (
                    0.0 <= evictions <= 1.0,
                    f"evictions {evictions:g}: write a part of the planned jobs, such as 0.03",
                ),
                (1.0 <= memory < math.inf, f"memory {memory:g}: write rounds, 1 or more"),
            ),
        )
        paper_terms(bounds, delta)  # is there any supply left?
        self.bounds = bounds
        self._memory = memory
        self._demand = Demand(bounds, memory)
        self._demands: dict[str, Demand] = {}
        """Of the resources that are counted beside the first."""
        self._clearing: dict[str, float] = {}
        """Prices by resource, the first one's name being empty; only where there are several."""
        self._delta, self._wanted = delta, evictions
        self._planned, self._gone = 0.0, 0.0
        super().__init__(
            bounds,
            UnitPrices(bounds, partial(self._terms, bounds, self._demand)),
            error=error,
            confidence=confidence,
            threshold=threshold,
            cancel_waiting=cancel_waiting,
            seed=seed,
        )

    def step(self, round: int) -> None:
        """What was learned so far is in the terms of the rounds that come into view now."""
        passed = round - self._now
        if passed > 0:
            for demand in (self._demand, *self._demands.values()):
                demand.pass_rounds(passed)
            self._clear()
            if self._planned >= FEWEST:
                beyond = self._gone / self._planned - self._wanted
                self._delta = min(max(self._delta + GAIN * beyond, -MOST_DELTA), MOST_DELTA)
            counted = COUNTED**passed
            self._planned, self._gone = self._planned * counted, self._gone * counted
        super().step(round)

    def evict(self, round: int, supply: int | Sequence[int] | None = None) -> tuple[Eviction, ...]:
        """As in Algorithm 1; they are counted."""
        gone = super().evict(round, supply)
        self._gone += len(gone)
        return gone

    @property
    def delta(self) -> float:
        """δ of the rounds that are announced next."""
        return self._delta

    def state(self) -> dict[str, Json]:
        """With what was learned."""
        learned: dict[str, Json] = {
            "demand": self._demand.state(),
            "delta": self._delta,
            "planned": self._planned,
            "gone": self._gone,
        }
        return {**super().state(), "learned": learned}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Raises UsageError for what `state` did not return."""
        with readable("sow: what was learned"):
            learned = kept["learned"]
            delta, planned, gone = (float(learned[key]) for key in ("delta", "planned", "gone"))
            assert abs(delta) <= MOST_DELTA and 0.0 <= planned < math.inf and 0.0 <= gone < math.inf
            demand = learned["demand"]
            demands = {str(name): one["demand"] for name, one in kept.get("tres", {}).items()}
        super().restore(kept)
        self._demand.restore(demand)
        for name, one in demands.items():
            self._demands[name].restore(one)
        self._clear()
        self._delta, self._planned, self._gone = delta, planned, gone

    def _relaxed_of(self, name: str, limits: Bounds) -> UnitPrices:
        self._demands[name] = demand = Demand(limits, self._memory)
        return UnitPrices(limits, partial(self._terms, limits, demand))

    def _of_resource(self, name: str) -> dict[str, Json]:
        return {**super()._of_resource(name), "demand": self._demands[name].state()}

    def _clear(self) -> None:
        """Clearing prices as of now, where one resource is priced beside another."""
        self._clearing = {
            name: demand.clearing_price(FILL * limits.capacity) or 0.0
            for name, demand, limits in (
                ("", self._demand, self.bounds),
                *((name, self._demands[name], limits) for name, limits in self.counted.items()),
            )
            if self.counted
        }

    def _met(self, statement: Statement, best: Best, planned: bool) -> None:
        self._planned += planned
        if not statement.tres:
            self._demand.meet(best.at_once, statement.demand * best.volume)
            return
        needs = {"": statement.demand, **statement.tres}
        for name, units in needs.items():
            others = (self._clearing.get(other, 0.0) * needs[other] for other in needs if other != name)
            bid = best.at_once - best.volume * sum(others)
            (self._demands[name] if name else self._demand).meet(bid, units * best.volume)

    def _terms(self, limits: Bounds, demand: Demand, round: int) -> Terms:
        learned, capacity, most = (
            demand.clearing_price(FILL * limits.capacity),
            limits.capacity,
            limits.max_demand,
        )
        least = paper_terms(limits, 0.0).low if capacity > most else limits.least_value
        price = math.sqrt(least * limits.max_value) if learned is None else max(learned, least)
        slope = FIRST_SLOPE if learned is None else SLOPE
        supply = (1.0 - self._delta) * capacity
        if (
            limits is not self.bounds
        ):  # of few units one job may want all; they are sold while nobody is expected
            supply = max(supply, most * (1.0 + 1e-9))
        low = price * math.exp(-slope * ANCHOR)
        return Terms(low, low * math.exp(slope * (supply - most) / capacity), supply)

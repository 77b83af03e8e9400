"""`sow`: prices that follow the market, failures as they are, overbooking as far as evictions stay few.

Draft.
"""

from __future__ import annotations

import math

from asad.admit.sow.adversarial import UnitPrices
from asad.admit.sow.demand import Demand
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.prices import Terms, paper_terms
from asad.admit.sow.statement import Bounds, Eviction, Statement


class Sow(Posted):
    """Prices by a learned clearing price; δ by the measured rate of evictions."""

    name = "sow"

    def __init__(
        self,
        bounds: Bounds,
        delta: float = -0.1,
        evictions: float = 0.03,
        gain: float = 0.3,
        slope: float = 0.7,
        anchor: float = 0.9,
        fill: float = 0.77,
        prior: float = 0.3,
        memory: float = 100.0,
        error: float = 0.05,
        confidence: float = 0.99,
        threshold: float = 0.01,
        cancel_waiting: bool = False,
        seed: int = 0,
    ) -> None:
        """Raises UsageError for options out of range."""
        self.bounds = bounds
        paper = paper_terms(bounds, delta)
        self._low = paper.low
        self._prior = paper.low ** (1.0 - prior) * paper.high**prior
        self._demand = Demand(bounds, memory)
        self._delta, self._target, self._gain = delta, evictions, gain
        self._slope, self._anchor, self._fill = slope, anchor, fill
        self._planned, self._gone = 0.0, 0.0
        super().__init__(
            bounds, UnitPrices(bounds, self._terms), error=error, confidence=confidence, threshold=threshold,
            cancel_waiting=cancel_waiting, seed=seed,
        )  # fmt: skip

    def step(self, round: int) -> None:
        """Learn before the rounds that come into view are announced."""
        passed = round - self._now
        if passed > 0:
            self._demand.pass_rounds(passed)
            if self._planned > 20:
                off = self._gone / self._planned - self._target
                self._delta = min(max(self._delta + 0.1 * self._gain * off, -0.3), 0.3)
            keep = 0.98**passed
            self._planned *= keep
            self._gone *= keep
        super().step(round)

    def evict(self, round: int, supply: int | None = None) -> tuple[Eviction, ...]:
        """As Algorithm 1, and counted."""
        gone = super().evict(round, supply)
        self._gone += len(gone)
        return gone

    def _met(self, statement: Statement, at_once: float, planned: bool) -> None:
        volume = statement.demand * float(statement.probability @ statement.duration)
        self._demand.meet(at_once, volume)
        self._planned += planned

    def _terms(self, round: int) -> Terms:
        capacity = self.bounds.capacity
        supply = (1.0 - self._delta) * capacity
        price = self._demand.clearing_price(self._fill * capacity)
        price = self._prior if price is None else max(price, self._low)
        low = price * math.exp(-self._slope * self._anchor)
        return Terms(low, low * math.exp(self._slope * (supply - self.bounds.max_demand) / capacity), supply)

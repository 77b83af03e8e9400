"""`sow`: prices that follow the market, failures as they are, overbooking as far as evictions stay few.

Draft.
"""

from __future__ import annotations

import numpy as np

from asad.admit.sow.adversarial import UnitPrices
from asad.admit.sow.demand import Demand
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.prices import Terms, paper_terms
from asad.admit.sow.statement import Answer, Bounds, Eviction, Statement


class Sow(Posted):
    """Prices by a learned clearing price; δ by the measured rate of evictions."""

    name = "sow"

    def __init__(
        self,
        bounds: Bounds,
        delta: float = -0.1,
        evictions: float = 0.04,
        gain: float = 0.5,
        low: float = 0.5,
        high: float = 1.5,
        fill: float = 0.95,
        memory: float = 100.0,
        error: float = 0.05,
        confidence: float = 0.99,
        threshold: float = 0.01,
        cancel_waiting: bool = False,
        seed: int = 0,
    ) -> None:
        """Raises UsageError for options out of range."""
        self.bounds = bounds
        self._paper = paper_terms(bounds, delta)
        self._demand = Demand(bounds, memory)
        self._delta, self._target, self._gain = delta, evictions, gain
        self._shape = (low, high, fill)
        self._planned, self._gone = 0.0, 0.0
        super().__init__(
            bounds, UnitPrices(bounds, self._terms), error=error, confidence=confidence, threshold=threshold,
            cancel_waiting=cancel_waiting, seed=seed,
        )  # fmt: skip

    def step(self, round: int) -> None:
        """Learn before the rounds that come into view are announced."""
        if round > self._now:
            self._demand.pass_rounds(round - self._now)
            rate = self._gone / max(self._planned, 1.0)
            if self._planned > 20:
                self._delta = min(max(self._delta + self._gain * (rate - self._target) * 0.1, -0.5), 0.5)
            keep = 0.98 ** (round - self._now)
            self._planned *= keep
            self._gone *= keep
        super().step(round)

    def submit(self, job: int, statement: Statement) -> Answer:
        answer = super().submit(job, statement)
        worth = statement.worth.by_finish(statement.birth, self.bounds.span + self.bounds.max_duration)
        finish = np.minimum(statement.arrival + statement.duration - statement.birth, len(worth) - 1)
        value = float((statement.probability * worth[finish]).sum())
        volume = statement.demand * float((statement.probability * statement.duration).sum())
        if value >= self.bounds.least_value * 0.5:
            self._demand.meet(value, volume)
        if not answer.plan.never:
            self._planned += 1
        return answer

    def evict(self, round: int, supply: int | None = None) -> tuple[Eviction, ...]:
        gone = super().evict(round, supply)
        self._gone += len(gone)
        return gone

    def _terms(self, round: int) -> Terms:
        low, high, fill = self._shape
        supply = (1.0 - self._delta) * self.bounds.capacity
        price = self._demand.clearing_price(fill * self.bounds.capacity)
        if price is None:
            return self._paper
        least = max(self._paper.low, low * price)
        return Terms(least, max(high * price, least * 2), supply)

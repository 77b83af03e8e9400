"""`sow-paper`: the letter of the paper: fixed δ, the prices of Algorithm 3, eviction over all active jobs.

Source: 004, Algorithms 1 to 3; prices reconstructed (`asad.admit.sow.unit_prices`).

Options: `delta` (δ), `error` (μ) and `confidence` of the failure estimates; estimates below μ count as 0 (Algorithm 2).
Cost: see `asad.admit.sow.mechanism`.
"""

from __future__ import annotations

from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import Bounds
from asad.admit.sow.unit_prices import UnitPrices, paper_terms


class SowPaper(Posted):
    """Nothing adapts."""

    name = "sow-paper"

    def __init__(
        self,
        bounds: Bounds,
        delta: float = 0.0,
        error: float = 0.05,
        confidence: float = 0.99,
        cancel_waiting: bool = True,
        seed: int = 0,
    ) -> None:
        """Raises UsageError for options out of range."""
        terms = paper_terms(bounds, delta)
        self._delta = delta
        super().__init__(
            bounds,
            UnitPrices(bounds, lambda _: terms),
            error=error,
            confidence=confidence,
            threshold=error,
            cancel_waiting=cancel_waiting,
            seed=seed,
        )

    def _relaxed_of(self, name: str, limits: Bounds) -> UnitPrices:
        terms = paper_terms(limits, self._delta)
        return UnitPrices(limits, lambda _: terms)

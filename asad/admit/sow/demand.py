"""What jobs bid and how much they want, learned from statements: the price at which the market clears.

Source: own; the same idea as `asad.admit.prices`. A statement counts with the value that it expects if it starts on
arrival, over the units and rounds that it expects to hold (its density), and with those units and rounds (its volume).
Kept is a histogram of volume by density, in steps of 12 % and fading over rounds. The clearing price is the density
above which a round's demand is as much as is to be sold in it: 0 where there is room for all.

What is learned prices rounds that are announced later, so no statement has a part in the prices of its own job.
Cost: O(1) a statement, O(steps) a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from asad.admit.sow.statement import Bounds, readable
from asad.errors import UsageError
from asad.model import Floats, Json

STEP = 0.12
"""Of the natural logarithm of the density."""


class Demand:
    """A fading histogram of what is wanted, by what is bid for it."""

    def __init__(self, bounds: Bounds, memory: float) -> None:
        """`memory`: rounds after which what was stated counts half."""
        self._least = bounds.least_value / (bounds.max_demand * bounds.max_duration)
        steps = math.ceil(math.log(bounds.max_value / self._least) / STEP) + 1
        self._volume: Floats = np.zeros(steps)
        self._keep = 0.5 ** (1.0 / memory)
        self._rounds = 0.0
        """That were learned from, faded likewise."""

    def meet(self, value: float, volume: float) -> None:
        """A statement expects to be worth `value` and to hold `volume` units and rounds."""
        if volume > 0.0 and value > 0.0:
            density = value / volume
            at = int(math.log(max(density / self._least, 1.0)) / STEP)
            self._volume[min(at, len(self._volume) - 1)] += volume

    def pass_rounds(self, rounds: int) -> None:
        """So many rounds are over."""
        if rounds > 0:
            kept = self._keep**rounds
            self._volume *= kept
            self._rounds = self._rounds * kept + (1.0 - kept) / (1.0 - self._keep) * self._keep

    def clearing_price(self, units: float) -> float | None:
        """The density above which a round's demand comes to `units`; 0: room for all; None: nothing is known."""
        if self._rounds <= 0.0:
            return None
        wanted = units * self._rounds
        above = np.cumsum(self._volume[::-1])
        at = int(np.searchsorted(above, wanted))
        if at >= len(above):
            return 0.0
        before = float(above[at - 1]) if at else 0.0
        part = (wanted - before) / max(float(above[at]) - before, 1e-300)
        return float(self._least * math.exp(STEP * (len(above) - at - part)))

    def state(self) -> dict[str, Json]:
        """As plain data."""
        return {"volume": cast(Json, self._volume.tolist()), "rounds": self._rounds}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Raises UsageError for what `state` did not return, or returned of other bounds."""
        with readable("sow: kept demand"):
            volume, rounds = np.array(kept["volume"], np.float64), float(kept["rounds"])
        if volume.shape != self._volume.shape or not (np.isfinite(volume) & (volume >= 0.0)).all():
            raise UsageError("sow: kept demand is of other bounds; begin anew")
        self._volume, self._rounds = volume, rounds

"""The relaxed scheduler against any order of births: a price for each unit and round (Algorithm 3).

Source: 004, section 5, Theorem 5.1, equation (7), reconstructed. A job pays the sum of the unit prices of the rounds in
which it runs, times its demand. The formula of a unit's price is lost; what the text keeps of it is that prices rise
exponentially in the expected use, from half of the least value density of any job (appendix D) up to a price beyond
anybody's means when the supply is sold. Hence

    λ(y) = L·(U/L)^(y / (K - c_max)),  L = least value / (2·c_max·d_max),  U = v_max

with y the expected load and K = (1 - δ)·C the supply. Nobody pays U for even one unit and round, so nothing is sold
once y has reached K - c_max, and one job adds c_max at the most: y ≤ K. Where U is set lower, the same is kept by
selling nothing from y = K - c_max on. O(log(U/L))-competitive for the relaxed problem with the paper's terms.

L, U and K of a round are fixed when it is first announced. They never change after, and y never falls, so prices only
rise.

Cost: O(window) a menu, O(rows · d_max) a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from asad.admit.sow.statement import Bounds, readable
from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Floats, Ints, Json


class Terms(NamedTuple):
    """How a unit is priced in a round, fixed when the round is announced."""

    low: float
    """L, above 0: the price where nothing is expected."""
    high: float
    """U, at least L: the price when `supply` - c_max is expected; nothing is sold from there on."""
    supply: float
    """K = (1 - δ)·C: units that the expected load never exceeds."""


LEAST_DELTA = -10.0
"""Supply of eleven times the capacity, which is far above what is meant."""
ROWS = ("low", "steep", "supply", "used")
"""What is kept of each round of the window: L, ln(U/L), K and y."""


def paper_terms(bounds: Bounds, delta: float) -> Terms:
    """L, U and K of equation (7) with the bounds as they are known. Raises UsageError for a δ that leaves no supply."""
    if not delta >= LEAST_DELTA:
        raise UsageError(f"sow: delta {delta:g}: write a number from {LEAST_DELTA:g}")
    supply = (1.0 - delta) * bounds.capacity
    if not math.isfinite(supply) or supply <= bounds.max_demand:
        raise UsageError(
            f"sow: delta {delta:g} leaves {supply:g} of {bounds.capacity} units, and one job may need "
            f"{bounds.max_demand}; set it lower"
        )
    low = bounds.least_value / (2.0 * bounds.max_demand * bounds.max_duration)
    return Terms(low, max(bounds.max_value, low), supply)


class UnitPrices:
    """Prices of a unit in each round of a window that begins with the present one."""

    def __init__(self, bounds: Bounds, terms: Callable[[int], Terms]) -> None:
        """`terms`: of a round (given by its number) that is announced now."""
        self.bounds = bounds
        self._terms = terms
        self._window = bounds.span + bounds.max_duration
        self._rows, self._unit = np.zeros((len(ROWS), self._window)), np.zeros(self._window)
        """(4, window) as in `ROWS`, and λ; by round, in a ring."""
        self._now = 0
        self._announce(range(self._window))

    def advance(self, now: int) -> None:
        """Round `now` has begun: rounds that come into view are announced."""
        self._announce(range(max(now, self._now + self._window), now + self._window))
        self._now = now

    def prices(self, demand: int, first: int, out: Floats) -> None:
        """(S, D) what `demand` units for 1, …, D rounds from `first`, `first` + 1, … on cost; inf: none are sold."""
        _price_table(self._unit, first, demand, out)

    def take(self, start: Ints, duration: Ints, weight: Floats, demand: int) -> None:
        """(k,) tasks that hold `demand` units each with probability `weight` raise prices; none at `NEVER`."""
        _take(self._rows, self._unit, self.bounds.max_demand, start, duration, weight, demand)

    def state(self) -> dict[str, Json]:
        """As plain data."""
        rows = {key: cast(Json, row.tolist()) for key, row in zip(ROWS, self._rows, strict=True)}
        return {"now": self._now, **rows}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Raises UsageError for what `state` did not return, or returned of other bounds."""
        with readable("sow: kept prices"):
            rows, now = np.array([kept[key] for key in ROWS], np.float64), int(kept["now"])
        if rows.shape != self._rows.shape or not np.isfinite(rows).all():
            raise UsageError("sow: kept prices are of another span or duration; begin anew")
        self._rows, self._now = rows, now
        for at in range(self._window):
            self._unit[at] = _unit_price(self._rows, at, self.bounds.max_demand)

    def _announce(self, rounds: range) -> None:
        for round_ in rounds:
            at, terms = round_ % self._window, self._terms(round_)
            self._rows[:, at] = terms.low, math.log(terms.high / terms.low), terms.supply, 0.0
            self._unit[at] = _unit_price(self._rows, at, self.bounds.max_demand)


@compiled
def _unit_price(rows: Floats, at: int, max_demand: int) -> float:
    """λ of a round; inf where nothing is sold any more."""
    low, steep, room, load = rows[0, at], rows[1, at], rows[2, at] - max_demand, rows[3, at]
    if load >= room:
        return np.inf
    return float(low * np.exp(steep * load / room))


@compiled
def _price_table(unit: Floats, first: int, demand: int, out: Floats) -> None:
    """(S, D) price of `demand` units from each start on for 1, …, D rounds; `unit` is a ring of rounds."""
    starts, durations = out.shape
    ring = len(unit)
    for i in range(starts):
        total = 0.0
        for d in range(durations):
            total += unit[(first + i + d) % ring]
            out[i, d] = demand * total


@compiled
def _take(
    rows: Floats,
    unit: Floats,
    max_demand: int,
    start: Ints,
    duration: Ints,
    weight: Floats,
    demand: int,
) -> None:
    window = len(unit)
    first, last = np.int64(2**40), np.int64(-1)
    for k in range(len(start)):
        if start[k] < 0:
            continue
        for t in range(start[k], start[k] + duration[k]):
            rows[3, t % window] += weight[k] * demand
        first = min(first, np.int64(start[k]))
        last = max(last, np.int64(start[k] + duration[k]))
    for t in range(first, last):
        unit[t % window] = _unit_price(rows, t % window, max_demand)

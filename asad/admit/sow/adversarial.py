"""The relaxed scheduler against any order of births: a price for each unit and round (Algorithm 3).

Source: 004, section 5, Theorem 5.1. A job pays the sum of the unit prices of the rounds in which it runs, times its
demand; the unit prices follow the load that is expected in a round (`asad.admit.sow.prices`). The terms of a round are
asked for once, when it is first announced. O(log(U/L))-competitive for the relaxed problem with the paper's terms.

Cost: O(window) a menu, O(rows · d_max) a job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from asad.admit.sow.prices import Terms, price_table, unit_price
from asad.admit.sow.statement import Bounds
from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Floats, Ints, Json


class UnitPrices:
    """Prices of a unit in each round of a window that begins with the present one."""

    def __init__(self, bounds: Bounds, terms: Callable[[int], Terms]) -> None:
        """`terms`: of a round (given by its number) that is announced now."""
        self.bounds = bounds
        self._terms = terms
        self._window = bounds.span + bounds.max_duration
        self._low, self._steep, self._supply = (np.zeros(self._window) for _ in range(3))
        self._used, self._unit = np.zeros(self._window), np.zeros(self._window)
        self._now = 0
        self._announce(range(self._window))

    def advance(self, now: int) -> None:
        """Round `now` has begun: rounds that come into view are announced."""
        self._announce(range(max(now, self._now + self._window), now + self._window))
        self._now = now

    def prices(self, demand: int, first: int, out: Floats) -> None:
        """(S, D) what `demand` units for 1, …, D rounds from `first`, `first` + 1, … on cost; inf: none are sold."""
        price_table(self._unit, first, demand, out)

    def take(self, start: Ints, duration: Ints, weight: Floats, demand: int) -> None:
        """(k,) tasks that hold `demand` units each with probability `weight` raise prices; none at `NEVER`."""
        _take(
            self._low, self._steep, self._supply, self._used, self._unit,
            self.bounds.max_demand, start, duration, weight, demand,
        )  # fmt: skip

    def expected_load(self, rounds: int) -> Floats:
        """(rounds,) y: units expected from the present round on, as they were when each job was born."""
        return self._used[(self._now + np.arange(rounds)) % self._window]

    def supply(self, rounds: int) -> Floats:
        """(rounds,) K: what y never exceeds."""
        return self._supply[(self._now + np.arange(rounds)) % self._window]

    def unit_prices(self, rounds: int) -> Floats:
        """(rounds,) λ from the present round on; inf where nothing is sold."""
        return self._unit[(self._now + np.arange(rounds)) % self._window]

    def state(self) -> dict[str, Json]:
        """As plain data."""
        rows = {
            "low": self._low, "steep": self._steep, "supply": self._supply,
            "used": self._used,
        }  # fmt: skip
        return {"now": self._now, **{key: cast(Json, row.tolist()) for key, row in rows.items()}}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Raises UsageError for what `state` did not tell, or told of other bounds."""
        try:
            rows = {key: np.array(kept[key], np.float64) for key in ("low", "steep", "supply", "used")}
            now = int(kept["now"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise UsageError(f"sow: kept prices cannot be read ({str(error)[:120]}); begin anew") from error
        if any(row.shape != (self._window,) or not np.isfinite(row).all() for row in rows.values()):
            raise UsageError("sow: kept prices are of another span or duration; begin anew")
        self._low, self._steep, self._supply = rows["low"], rows["steep"], rows["supply"]
        self._used, self._now = rows["used"], now
        for at in range(self._window):
            self._price(at)

    def _announce(self, rounds: range) -> None:
        for round_ in rounds:
            at = round_ % self._window
            terms = self._terms(round_)
            self._low[at], self._steep[at] = terms.low, math.log(terms.high / terms.low)
            self._supply[at], self._used[at] = terms.supply, 0.0
            self._price(at)

    def _price(self, at: int) -> None:
        room = self._supply[at] - self.bounds.max_demand
        self._unit[at] = unit_price(self._low[at], self._steep[at], room, self._used[at])


@compiled
def _take(
    low: Floats,
    steep: Floats,
    supply: Floats,
    used: Floats,
    unit: Floats,
    max_demand: int,
    start: Ints,
    duration: Ints,
    weight: Floats,
    demand: int,
) -> None:
    window = len(used)
    first, last = np.int64(2**40), np.int64(-1)
    for k in range(len(start)):
        if start[k] < 0:
            continue
        for t in range(start[k], start[k] + duration[k]):
            used[t % window] += weight[k] * demand
        first = min(first, np.int64(start[k]))
        last = max(last, np.int64(start[k] + duration[k]))
    for t in range(first, last):
        at = t % window
        unit[at] = unit_price(low[at], steep[at], supply[at] - max_demand, used[at])

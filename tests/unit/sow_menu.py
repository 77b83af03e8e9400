"""What tests look at of a mechanism of statements of work: the whole menu, loads and unit prices of coming rounds."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from asad.admit.sow.statement import NEVER, LaunchPlan
from asad.admit.sow.unit_prices import ROWS
from asad.model import Floats


class Menu(NamedTuple):
    """Price and failure probability by start (`first`, `first` + 1, …), demand (1, …) and duration (1, …)."""

    first: int
    price: Floats
    failure: Floats

    def price_of(self, start: int, demand: int, duration: int) -> float:
        """Of a job that starts in round `start`; inf beyond what is announced."""
        return self._at(self.price, start, demand, duration, math.inf)

    def failure_of(self, start: int, demand: int, duration: int) -> float:
        """Of a job that starts in round `start`; 1 beyond what is announced."""
        return self._at(self.failure, start, demand, duration, 1.0)

    def _at(self, table: Floats, start: int, demand: int, duration: int, beyond: float) -> float:
        at = (start - self.first, demand - 1, duration - 1)
        inside = all(0 <= index < length for index, length in zip(at, table.shape, strict=True))
        return float(table[at]) if inside else beyond


def menu_of(mechanism: Any) -> Menu:
    """What is announced in the present round."""
    tables = [mechanism.tables(demand) for demand in range(1, mechanism.bounds.max_demand + 1)]
    price, failure = (np.stack(axis, axis=1) for axis in zip(*tables, strict=True))
    return Menu(mechanism.now, price, failure)


def ahead(prices: Any, what: str, rounds: int) -> Floats:
    """(rounds,) of `UnitPrices` from the present round on: `used` (the expected load), `supply` or `unit` (prices)."""
    row = prices._unit if what == "unit" else prices._rows[ROWS.index(what)]
    found: Floats = row[(prices._now + np.arange(rounds)) % len(row)]
    return found


def start_of(plan: LaunchPlan, arrival: int, signal: int = 0) -> int | None:
    """When a job that arrives so starts; None: never."""
    row = plan.row_of(arrival, signal)
    return None if row < 0 or plan.start[row] == NEVER else int(plan.start[row])

"""Prices of a unit in a round, from the load that is expected there: equation (7), reconstructed.

Source: 004, section 5, Algorithm 3. The formula is lost; what the text keeps of it is that prices rise exponentially
in the expected use, from half of the least value density of any job (appendix D) up to a price beyond anybody's means
when the supply is sold. Hence

    λ(y) = L·(U/L)^(y / (K - c_max)),  L = least value / (2·c_max·d_max),  U = v_max

with y the expected load and K = (1 - δ)·C the supply. Nobody pays U for even one unit and round, so nothing is sold
once y has reached K - c_max, and one job adds c_max at the most: y ≤ K. Where U is set lower, the same is kept by
selling nothing from y = K - c_max on.

L, U and K of a round are fixed when it is first announced. They never change after, and y never falls, so prices only
rise.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asad.admit.sow.statement import Bounds
from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Floats


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


@compiled
def unit_price(low: float, steep: float, room: float, load: float) -> float:
    """λ: `steep` is ln(U/L), `room` is K - c_max; inf where nothing is sold any more."""
    if load >= room:
        return np.inf
    return float(low * np.exp(steep * load / room))


@compiled
def price_table(unit: Floats, first: int, demand: int, out: Floats) -> None:
    """(S, D) price of `demand` units from each start on for 1, …, D rounds; `unit` is a ring of rounds."""
    starts, durations = out.shape
    ring = len(unit)
    for i in range(starts):
        total = 0.0
        for d in range(durations):
            total += unit[(first + i + d) % ring]
            out[i, d] = demand * total

"""`lookahead`: plans ahead with prices: a core has a price in each of the next steps, as high as it takes for what
wants to run there to fit into what is expected to be free; who gains most by starting now starts.

At each step, in turn:

1. **Expect** capacity and jobs that nobody has submitted yet (`expected.py`), with the known jobs and what runs.
2. **Price** the steps ahead: each known job, and each class of those to come, chooses among its starts (and none) by
   what a core gains, d − (ω1/c)·(t − e) − Σ π over its run; prices rise where the choices exceed what is free and fall
   where they do not. This is the dual of the offline problem (1), with the expectation for the future: its prices say
   what a core-step is worth later, which none of the heuristics knows. Choices are softened at first (temperature 1),
   then sharper, so that prices settle; those of the last rounds are averaged.
3. **Choose** among the jobs that may start: each is worth what it gains now, without the price of this step, less
   what it would gain by its best later start. Those whose difference is not above `margin` a core wait. Of the rest,
   the most valuable set that fits is found exactly (a knapsack), or greedily where that would take too long.

So who starts always fits, and prefix packing starts the same jobs as skip-fit. Where a trajectory ends, nothing beyond
is priced. Options: `horizon` (steps ahead that are priced), `rounds` of prices, `temperature` (of the last choices, in
core-steps a core), `margin` (the same), `delay` (ω1), `period` (steps a day, 0 for none), `expected`: a file of what
is to be expected, `recorded` for the one that was fitted to the recorded training trajectories, empty for what the
policy is shown alone. Cost: O(rounds · (jobs · window + horizon · classes)). Not in the OSDEC paper; the dual is
Bertsekas', *Nonlinear Programming*, section 6; see docs/explanation/osdec.md.
"""

from __future__ import annotations

import math

import numpy as np

from asad.compiling import compiled
from asad.defer.expected import Expected, of_past, read_expected
from asad.defer.jobs import Scorer, Waiting
from asad.defer.packing import fill
from asad.defer.prices import Auction, find_prices, gain_of
from asad.errors import UsageError
from asad.model import Floats, Ints

HIGHEST = 10.0
"""Price of a core-step, in core-steps: above 1, since one scarce step may stand before the whole run of a long job."""
WARMEST, COOLED, AVERAGED = 1.0, 0.6, 0.9
"""The first temperature; after which part of the rounds the last is reached; after which part prices are averaged."""


class Lookahead(Scorer):
    """Prices of the steps ahead, and the most valuable set now."""

    name = "lookahead"

    def __init__(
        self,
        horizon: int = 36,
        rounds: int = 120,
        temperature: float = 0.2,
        margin: float = 0.0,
        delay: float = 0.3,
        period: int = 0,
        expected: str = "",
    ) -> None:
        """Raises UsageError for an option that cannot be, ConfigError for a file of expectations."""
        for key, value, low, high in (
            ("horizon", horizon, 2, 1000),
            ("rounds", rounds, 1, 10_000),
            ("temperature", temperature, 1e-3, 1e3),
            ("margin", margin, -1e3, 1e3),
            ("delay", delay, 0.0, 1e6),
            ("period", period, 0, 100_000),
        ):
            if not low <= value <= high:
                raise UsageError(f"defer lookahead: {key} {value}; give {low:g} to {high:g}")
        self.horizon = horizon
        cooling = math.log(max(1.0, WARMEST / temperature)) / (COOLED * rounds)
        self.auction = Auction(
            rounds, 1.0, 0.0, HIGHEST, WARMEST, cooling, temperature, math.ceil(AVERAGED * rounds), False
        )
        self.margin, self.delay, self.period = margin, delay, period
        self.expected: Expected | None = None
        if expected:
            self.expected = read_expected("" if expected == "recorded" else expected)

    def score(self, waiting: Waiting) -> Floats:
        """(n,) The gain a core of those who are to start now; minus infinity of all others."""
        found = np.full(len(waiting), -np.inf)
        if waiting.free < 1 or not waiting.startable.any():
            return found
        gain = self.gains(waiting)
        able = np.flatnonzero(waiting.startable & (gain > self.margin) & (waiting.cores <= waiting.free))
        if len(able):
            chosen = able[fill(waiting.cores[able], gain[able] - self.margin, int(waiting.free))]
            found[chosen] = gain[chosen]
        return found

    def gains(self, waiting: Waiting) -> Floats:
        """(n,) What a core of each job gains by starting now rather than later, in core-steps."""
        e = self.expected or of_past(waiting, self.period)
        steps = self.horizon
        if waiting.end is not None:
            # nothing is priced beyond the end
            steps = max(1, min(steps, waiting.end - waiting.now))
        room = np.maximum(0.0, e.capacity(waiting.now, waiting.capacity, steps) - waiting.held(steps))
        jobs = (waiting.cores, waiting.duration, waiting.earliest - waiting.now, waiting.latest - waiting.now)
        price = np.empty(steps)
        find_prices(
            room, *jobs, np.ones(len(waiting), np.int32), np.column_stack((e.coming, e.duration, e.window)),
            np.append(e.unknown, e.unknown[-1:]), self.delay, self.auction, price,
        )  # fmt: skip
        found: Floats = _gains(price, *jobs, self.delay, self.auction.coldest)
        return found


@compiled(nogil=True)
def _gains(
    price: Floats, cores: Ints, duration: Ints, earliest: Ints, latest: Ints, delay: float, temperature: float
) -> Floats:
    """Steps are counted from now; `earliest` may be below 0."""
    upto = np.zeros(len(price) + 1)
    upto[1:] = np.cumsum(price)
    found = np.full(len(cores), -np.inf)
    for i in range(len(cores)):
        if earliest[i] <= 0:
            # the price of this step is what the knapsack finds
            now, later = gain_of(upto, cores[i], duration[i], earliest[i], latest[i], delay, temperature)
            found[i] = now - later
    return found

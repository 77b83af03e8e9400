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
        self.horizon, self.rounds, self.temperature = horizon, rounds, temperature
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
        unknown = np.append(e.unknown, e.unknown[-1:])
        found: Floats = _gains(
            room, waiting.cores, waiting.duration, waiting.earliest - waiting.now, waiting.latest - waiting.now,
            e.coming, e.duration, e.window, unknown, self.rounds, self.temperature, self.delay,
        )  # fmt: skip
        return found


@compiled(nogil=True)
def _gains(
    room: Floats,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    coming: Floats,
    coming_duration: Ints,
    coming_window: Ints,
    unknown: Floats,
    rounds: int,
    coldest: float,
    delay: float,
) -> Floats:
    """Steps are counted from now; `earliest` may be below 0."""
    steps = len(room)
    price, mean = np.zeros(steps), np.zeros(steps)
    upto = np.zeros(steps + 1)
    wanted = np.zeros(steps + 1)
    scale = max(1.0, room.mean())
    weight = np.empty(steps + 1)
    cooling = math.log(max(1.0, WARMEST / coldest)) / (COOLED * rounds)
    averaged = 0
    for number in range(rounds):
        temperature = max(coldest, WARMEST * math.exp(-cooling * number))
        for s in range(steps):
            upto[s + 1] = upto[s] + price[s]
        wanted[:] = 0.0
        for i in range(len(cores)):
            _want(
                upto, wanted, weight, cores[i], duration[i], max(0, earliest[i]), latest[i],
                delay / cores[i], min(0, earliest[i]), temperature,
            )  # fmt: skip
        for k in range(1, steps):
            share = unknown[min(k, len(unknown)) - 1]
            if share <= 0.0:
                continue
            for j in range(len(coming)):
                _want(
                    upto, wanted, weight, share * coming[j], coming_duration[j], k, k + coming_window[j],
                    0.1 * delay, 0, temperature,
                )  # fmt: skip
        level = 0.0
        pace = 1.0 / math.sqrt(1.0 + number)
        for s in range(steps):
            level += wanted[s]
            price[s] = min(HIGHEST, max(0.0, price[s] + pace * (level - room[s]) / scale))
        if number >= AVERAGED * rounds or number == rounds - 1:
            mean += price
            averaged += 1
    for s in range(steps):
        upto[s + 1] = upto[s] + mean[s] / averaged
    found = np.empty(len(cores))
    for i in range(len(cores)):
        if earliest[i] > 0:
            found[i] = -np.inf
            continue
        each = delay / cores[i]
        # the price of this step is what the knapsack finds
        now = duration[i] + each * earliest[i] - (upto[min(steps, duration[i])] - upto[1])
        best = 0.0
        total = 1.0
        for t in range(1, min(latest[i], steps - 1) + 1):
            g = duration[i] - each * (t - earliest[i]) - (upto[min(steps, t + duration[i])] - upto[t])
            if g > best:
                total = total * math.exp((best - g) / coldest) + 1.0
                best = g
            else:
                total += math.exp((g - best) / coldest)
        # the soft maximum of starting later, less what the number of choices alone would add to it
        found[i] = now - (best + coldest * math.log(total / (1.0 + max(0, latest[i]))))
    return found


@compiled(nogil=True)
def _want(
    upto: Floats,
    wanted: Floats,
    weight: Floats,
    cores: float,
    duration: int,
    begin: int,
    end: int,
    each: float,
    late: int,
    temperature: float,
) -> None:
    """Add to `wanted`, as differences from step to step, what a job of `cores` wants: its choices are softened."""
    steps = len(wanted) - 1
    end = min(end, steps - 1)
    if begin > end:
        return
    best = 0.0
    for t in range(begin, end + 1):
        g = duration - each * (t - begin - late) - (upto[min(steps, t + duration)] - upto[t])
        weight[t] = g
        best = max(best, g)
    total = math.exp(-best / temperature)
    for t in range(begin, end + 1):
        weight[t] = math.exp((weight[t] - best) / temperature)
        total += weight[t]
    for t in range(begin, end + 1):
        part = cores * weight[t] / total
        wanted[t] += part
        wanted[min(steps, t + duration)] -= part

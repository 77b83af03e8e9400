"""What a core costs in each of the next steps, where all that is known and expected wants to run.

Each known job, and each class of those to come, chooses among its starts (and none) by what a core gains: d −
(ω1/c)·(t − e) − Σ π over its run. Prices rise where the choices exceed what is expected to be free, and fall where they
do not: a dual ascent on the offline problem (1), with the expectation for the future. What runs on past the end of a
trajectory earns all of c·d and is charged nothing there, so that steps close to the end may be worth a whole run.

The same idea as `lookahead` has; here the prices are columns of what a network sees (`outlook.py`), so they are fewer
and coarser. Source: Bertsekas, *Nonlinear Programming*, section 6. Cost: O(rounds · (jobs · window + steps)).
"""

from __future__ import annotations

import math

import numpy as np

from asad.compiling import compiled
from asad.model import Floats, Ints

ROUNDS = 24
HORIZON = 36
"""Steps ahead that have a price."""
TEMPERATURE = 0.5
"""Of the choices, in core-steps a core."""
PACE = 3.0
FIRST = 0.5
"""Price of a core-step before anybody has chosen; 1 is what it earns."""
MOST = 24.0


@compiled(nogil=True)
def find_prices(
    room: Floats,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    wants: Ints,
    coming: Floats,
    unknown: Floats,
    delay: float,
    price: Floats,
) -> None:
    """Into `price` (steps,) what a core costs now, a step later, and so on.

    `room` (steps,) in cores. Jobs (n,): `earliest` and `latest` in steps from now; only those whose `wants` is above 0
    count. `coming` (K, 3): cores a step, duration and window of the classes of jobs to come; `unknown` (L,): the share
    of those that is not submitted yet, by steps ahead, from 1 on. `delay`: ω1.
    """
    steps = len(price)
    upto, wanted, weight = np.zeros(steps + 1), np.zeros(steps + 1), np.empty(steps + 1)
    scale = max(1.0, room[:steps].mean())
    price[:] = FIRST
    for number in range(ROUNDS):
        for s in range(steps):
            upto[s + 1] = upto[s] + price[s]
        wanted[:] = 0.0
        for i in range(len(cores)):
            if wants[i] > 0:
                _want(
                    upto, wanted, weight, float(cores[i]), duration[i], max(0, earliest[i]), latest[i],
                    delay / cores[i], min(0, earliest[i]),
                )  # fmt: skip
        for k in range(1, steps):
            share = unknown[min(k, len(unknown)) - 1]
            if share <= 0.0:
                continue
            for j in range(len(coming)):
                if coming[j, 0] > 0.0:
                    _want(
                        upto, wanted, weight, share * coming[j, 0], int(coming[j, 1]), k,
                        k + int(coming[j, 2]), 0.1 * delay, 0,
                    )  # fmt: skip
        level = 0.0
        pace = PACE / math.sqrt(1.0 + number)
        for s in range(steps):
            level += wanted[s]
            price[s] = min(MOST, max(0.0, price[s] + pace * (level - room[s]) / scale))


@compiled(nogil=True)
def _exp(x: float) -> float:
    """Of a number of 0 or less, to a hundredth: choices need no more, and it takes a fifth of the time."""
    y = max(1.0 + x / 64.0, 0.0)
    y *= y
    y *= y
    y *= y
    y *= y
    y *= y
    return y * y


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
) -> None:
    """Add to `wanted`, as differences from step to step, what `cores` want: their choices are softened."""
    steps = len(wanted) - 1
    end = min(end, steps - 1)
    best = 0.0
    for t in range(begin, end + 1):
        weight[t] = duration - each * (t - begin - late) - (upto[min(steps, t + duration)] - upto[t])
        best = max(best, weight[t])
    total = _exp(-best / TEMPERATURE)
    for t in range(begin, end + 1):
        weight[t] = _exp((weight[t] - best) / TEMPERATURE)
        total += weight[t]
    for t in range(begin, end + 1):
        part = cores * weight[t] / total
        wanted[t] += part
        wanted[min(steps, t + duration)] -= part


@compiled(nogil=True)
def gain_of(
    upto: Floats, cores: int, duration: int, earliest: int, latest: int, delay: float
) -> tuple[float, float]:
    """What a core of a job gains by starting now, and at its best later start; without the price of this step.

    `upto` (steps + 1,): sums of the prices. Later starts are softened, and none gains 0.
    """
    steps = len(upto) - 1
    each = delay / cores
    now = duration + each * min(earliest, 0) - (upto[min(steps, duration)] - upto[1])
    best, total = 0.0, 1.0
    last = min(latest, steps - 1)
    for t in range(1, last + 1):
        gain = duration - each * (t - earliest) - (upto[min(steps, t + duration)] - upto[t])
        if gain > best:
            total = total * math.exp((best - gain) / TEMPERATURE) + 1.0
            best = gain
        else:
            total += math.exp((gain - best) / TEMPERATURE)
    return now, best + TEMPERATURE * (math.log(total) - math.log(1.0 + max(latest, 0)))

"""What a core costs in each of the next steps, where all that is known and expected wants to run.

Each known job, and each class of those to come, chooses among its starts (and none) by what a core gains: d −
(ω1/c)·(t − e) − Σ π over its run. Prices rise where the choices exceed what is expected to be free, and fall where they
do not: a dual ascent on the offline problem (1), with the expectation for the future. What runs on past the end of a
trajectory earns all of c·d and is charged nothing there, so that steps close to the end may be worth a whole run.

`lookahead` decides by these prices; for a network they are columns of what it sees (`outlook.py`), so they are fewer
and coarser there. Source: Bertsekas, *Nonlinear Programming*, section 6. Cost: O(rounds · (jobs · window + steps)).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asad.compiling import compiled
from asad.model import Floats, Ints

HORIZON = 36
"""Steps ahead that have a price in what a network sees."""


class Auction(NamedTuple):
    """How prices are found."""

    rounds: int = 24
    pace: float = 3.0
    """By how much prices follow in the first round what is wanted too much."""
    first: float = 0.5
    """Price of a core-step before anybody has chosen; 1 is what it earns."""
    most: float = 24.0
    warmest: float = 0.0
    """Temperature of the first choices, in core-steps a core."""
    cooling: float = 0.0
    """It falls by this power of e a round, down to the coldest."""
    coldest: float = 0.5
    averaged_from: int = 24
    """The prices are the means of those after this round, and of the last."""
    quick: bool = True
    """Choices to a hundredth: a network needs no more, and they take a fifth of the time."""


COARSE = Auction()
"""For the columns of a network."""


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
    auction: Auction,
    price: Floats,
) -> None:
    """Into `price` (steps,) what a core costs now, a step later, and so on.

    `room` (steps,) in cores. Jobs (n,): `earliest` and `latest` in steps from now; only those whose `wants` is above 0
    count. `coming` (K, 3): cores a step, duration and window of the classes of jobs to come; `unknown` (L,): the share
    of those that is not submitted yet, by steps ahead, from 1 on. `delay`: ω1.
    """
    steps = len(price)
    upto, wanted, weight = np.zeros(steps + 1), np.zeros(steps + 1), np.empty(steps + 1)
    mean, averaged = np.zeros(steps), 0
    scale = max(1.0, room[:steps].mean())
    price[:] = auction.first
    for number in range(auction.rounds):
        temperature = max(auction.coldest, auction.warmest * math.exp(-auction.cooling * number))
        for s in range(steps):
            upto[s + 1] = upto[s] + price[s]
        wanted[:] = 0.0
        for i in range(len(cores)):
            if wants[i] > 0:
                _want(
                    upto, wanted, weight, float(cores[i]), duration[i], max(0, earliest[i]), latest[i],
                    delay / cores[i], min(0, earliest[i]), temperature, auction.quick,
                )  # fmt: skip
        for k in range(1, steps):
            share = unknown[min(k, len(unknown)) - 1]
            if share <= 0.0:
                continue
            for j in range(len(coming)):
                if coming[j, 0] > 0.0:
                    _want(
                        upto, wanted, weight, share * coming[j, 0], int(coming[j, 1]), k,
                        k + int(coming[j, 2]), 0.1 * delay, 0, temperature, auction.quick,
                    )  # fmt: skip
        level = 0.0
        pace = auction.pace / math.sqrt(1.0 + number)
        for s in range(steps):
            level += wanted[s]
            price[s] = min(auction.most, max(0.0, price[s] + pace * (level - room[s]) / scale))
        if number >= auction.averaged_from or number == auction.rounds - 1:
            mean += price
            averaged += 1
    price[:] = mean / averaged


@compiled(nogil=True)
def _exp(x: float, quick: bool) -> float:
    """Of a number of 0 or less; `quick` to a hundredth."""
    if not quick:
        return math.exp(x)
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
    temperature: float,
    quick: bool,
) -> None:
    """Add to `wanted`, as differences from step to step, what `cores` want: their choices are softened."""
    steps = len(wanted) - 1
    end = min(end, steps - 1)
    best = 0.0
    for t in range(begin, end + 1):
        weight[t] = duration - each * (t - begin - late) - (upto[min(steps, t + duration)] - upto[t])
        best = max(best, weight[t])
    total = _exp(-best / temperature, quick)
    for t in range(begin, end + 1):
        weight[t] = _exp((weight[t] - best) / temperature, quick)
        total += weight[t]
    for t in range(begin, end + 1):
        part = cores * weight[t] / total
        wanted[t] += part
        wanted[min(steps, t + duration)] -= part


@compiled(nogil=True)
def gain_of(
    upto: Floats, cores: int, duration: int, earliest: int, latest: int, delay: float, temperature: float
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
            total = total * math.exp((best - gain) / temperature) + 1.0
            best = gain
        else:
            total += math.exp((gain - best) / temperature)
    # the soft maximum of starting later, less what the number of choices alone would add to it
    return now, best + temperature * math.log(total / (1.0 + max(0, latest)))

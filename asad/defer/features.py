"""What a simple policy looks at, of each job: eight numbers, and a linear score of them.

FIFO, SJF, EDF, Tetris and biggest-first are such scores with weights set by hand; `linear` has tuned ones. So one
compiled loop plays all of them. Cost: O(n).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from asad.compiling import compiled
from asad.defer.jobs import Scorer, Waiting
from asad.errors import UsageError
from asad.model import Floats, Ints

FEATURES = ("cores", "duration", "area", "slack", "delay", "age", "fit", "drift")
"""The columns:

- `cores`: c. `duration`: d, in steps. `area`: c·d.
- `slack`: l − t, how many steps it can still wait. `delay`: t − e, how many it has. `age`: t − g, since submission.
- `fit`: c over what is free; 1 where it does not fit, 0 to 1.
- `drift`: area times the share by which C_t rose a step, over the last `TREND` steps; −1 to 1 times the area.
"""
TREND = 6
"""Steps over which the trend of C_t is taken."""


@compiled(nogil=True)
def trend(now: float, before: float, steps: int) -> float:
    """By which share of itself C_t rises a step, −1 to 1: `before` is what it was `steps` ago."""
    if steps <= 0:
        return 0.0
    return float(max(-1.0, min(1.0, (now - before) / (steps * max(1.0, now)))))


@compiled(nogil=True)
def linear_score(
    w: Floats, cores: float, duration: float, slack: float, delay: float, age: float, free: float, rise: float
) -> float:
    """The score of one job: the features, in their order, times `w` (8,)."""
    area = cores * duration
    fit = min(1.0, cores / free) if free > 0.0 else 1.0
    return float(
        w[0] * cores
        + w[1] * duration
        + w[2] * area
        + w[3] * slack
        + w[4] * delay
        + w[5] * age
        + w[6] * fit
        + w[7] * area * rise
    )


@compiled(nogil=True)
def _scores(
    w: Floats,
    now: int,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    submitted: Ints,
    free: float,
    rise: float,
) -> Floats:
    found = np.empty(len(cores))
    for i in range(len(cores)):
        found[i] = linear_score(
            w, cores[i], duration[i], latest[i] - now, now - earliest[i], now - submitted[i], free, rise
        )
    return found


class Weighted(Scorer):
    """A policy that is a linear score of the features. Those by hand derive from it."""

    name: str
    weights: Floats
    """(8,) In the order of `FEATURES`."""

    def score(self, waiting: Waiting) -> Floats:
        """(n,) The weighted sums."""
        back = min(TREND, len(waiting.past.capacity))
        before = float(waiting.past.capacity[-back]) if back else waiting.capacity
        found: Floats = _scores(
            self.weights,
            waiting.now,
            waiting.cores,
            waiting.duration,
            waiting.earliest,
            waiting.latest,
            waiting.submitted,
            waiting.free,
            trend(waiting.capacity, before, back),
        )
        return found


def weights(given: Mapping[str, float], place: str = "weights") -> Floats:
    """(8,) From numbers by the feature's name; who is not named weighs 0. Raises UsageError."""
    for name, value in given.items():
        if name not in FEATURES:
            raise UsageError(f"{place}: {name!r:.80}; the features are {', '.join(FEATURES)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
            raise UsageError(f"{place}: {name} is {value!r:.80}; give a number between −1e9 and 1e9")
    return np.array([float(given.get(name, 0.0)) for name in FEATURES])

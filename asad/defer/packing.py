"""Packing: from scores to those who start.

The paper (section 4.1.2) sorts jobs by score and starts "the maximum number from the beginning" that fit: a `prefix`.
`skip-fit` goes on past a job that does not fit, and starts every later one that does. Either way what starts never
exceeds what is free, whatever the scores. Where scores are what starting now gains, `worth_most` starts the set that
gains most together: a knapsack.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.deferral_options import Packing
from asad.defer.jobs import Scorer, Waiting
from asad.errors import UsageError
from asad.model import Floats, Ints

MOST_CELLS = 2_000_000
"""Of the knapsack: jobs times free cores; beyond, it is filled greedily."""


@compiled(nogil=True)
def pack(scores: Floats, cores: Ints, free: float, skip_fit: bool) -> NDArray[np.bool_]:
    """(n,) Who starts: by falling score, equal ones in the order of their rows, into `free` cores (below 0: nobody).

    A score of minus infinity or NaN holds a job back; it does not end a prefix either. Cost: O(n log n).
    """
    many = len(scores)
    starts = np.zeros(many, np.bool_)
    chosen = np.empty(many, np.int64)
    held_in = 0
    for i in range(many):
        if scores[i] > -np.inf:  # false of NaN too
            chosen[held_in] = i
            held_in += 1
    chosen = chosen[:held_in]
    order = np.argsort(-scores[chosen], kind="mergesort")
    left = free
    for place in order:
        i = chosen[place]
        if cores[i] <= left:
            starts[i] = True
            left -= cores[i]
        elif not skip_fit:
            break
    return starts


@compiled(nogil=True)
def fill(cores: Ints, gain: Floats, free: int) -> NDArray[np.int64]:
    """Rows of the set worth most, Σ c·gain, that fits into `free` cores; gains are above 0. Cost: O(n · free)."""
    many = len(cores)
    if many * free > MOST_CELLS:
        chosen = np.empty(many, np.int64)
        count = 0
        left = free
        for i in np.argsort(-gain, kind="mergesort"):
            if cores[i] <= left:
                chosen[count] = i
                count += 1
                left -= cores[i]
        return chosen[:count]
    best = np.zeros(free + 1)
    taken = np.zeros((many, free + 1), np.bool_)
    for i in range(many):
        c, worth = cores[i], cores[i] * gain[i]
        for room in range(free, c - 1, -1):
            if best[room - c] + worth > best[room]:
                best[room] = best[room - c] + worth
                taken[i, room] = True
    chosen = np.empty(many, np.int64)
    count = 0
    room = free
    for i in range(many - 1, -1, -1):
        if taken[i, room]:
            chosen[count] = i
            count += 1
            room -= cores[i]
    return chosen[:count]


@compiled(nogil=True)
def worth_most(scores: Floats, cores: Ints, free: float, spread: float) -> NDArray[np.bool_]:
    """(n,) Who starts: the set that gains most together and fits into `free` cores.

    Scores in (-1, 1) that stand for gains, as `score_of`; who would gain nothing (0 or less, NaN) does not start.
    """
    chosen = np.zeros(len(scores), np.bool_)
    able = np.flatnonzero((scores > 0.0) & (cores <= free))
    if len(able):
        gain = np.empty(len(able))
        for k in range(len(able)):
            score = min(scores[able[k]], 0.999)
            # atanh, which is not compiled
            inverse = 0.5 * math.log((1.0 + score) / (1.0 - score))
            gain[k] = (math.exp(4.0 * spread * inverse) - 1.0) / cores[able[k]]
        chosen[able[fill(cores[able], gain, int(free))]] = True
    return chosen


def score_of(gain: Floats, spread: float) -> Floats:
    """A gain in core-steps as a score in (-1, 1): tanh(± log(1 + |gain|) / 4 / spread); NaN stays NaN."""
    found: Floats = np.tanh(np.sign(gain) * np.log1p(np.abs(gain)) / 4.0 / spread)
    return found


def scores_of(scorer: Scorer, waiting: Waiting) -> Floats:
    """(n,) The scores of a policy. Raises UsageError if that is not one number a job."""
    given = np.asarray(scorer.score(waiting))
    if given.shape != (len(waiting),) or given.dtype.kind not in "fiub":
        raise UsageError(
            f"defer {scorer.name}: its scores are {given.dtype} {given.shape} for {len(waiting)} jobs; "
            "give one number a job"
        )
    return given.astype(np.float64)


def starts(scorer: Scorer, waiting: Waiting, packing: Packing = "skip-fit") -> NDArray[np.bool_]:
    """(n,) Who starts now by the scores of a policy. Raises UsageError if these are not one number a job."""
    scores = np.where(waiting.startable, scores_of(scorer, waiting), -np.inf)
    found: NDArray[np.bool_] = pack(scores, waiting.cores, waiting.free, packing == "skip-fit")
    return found

"""Packing: from scores to those who start.

The paper (section 4.1.2) sorts jobs by score and starts "the maximum number from the beginning" that fit: a `prefix`.
`skip-fit` goes on past a job that does not fit, and starts every later one that does. Either way what starts never
exceeds what is free, whatever the scores.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.jobs import Scorer, Waiting
from asad.errors import UsageError
from asad.model import Floats, Ints

Packing = Literal["prefix", "skip-fit"]
PACKINGS: tuple[Packing, ...] = ("prefix", "skip-fit")


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


def scores_of(scorer: Scorer, waiting: Waiting) -> Floats:
    """(n,) What a policy says of the jobs. Raises UsageError if that is not one number a job."""
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

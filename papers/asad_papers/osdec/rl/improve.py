"""Policy improvement: what starting each job now is worth, played both ways ahead, becomes the network's score.

In the states that the network comes to itself: of what it would start, and of this with one job more or one less, both
are played on in the same drawn futures (`asad.defer.rollout`: from the next step on `linear` decides). The difference
is what starting that job now is worth, all else being equal; the network learns it as the job's score. The futures
are the same for both, so that little of the difference is chance, and each job has its own, which the return of a whole
trajectory does not do.

Source: Lagoudakis and Parr, *Reinforcement Learning as Classification* (ICML 2003): policy iteration with a policy that
learns from rollouts; here it learns differences instead of the best action. The OSDEC paper has no such stage; this is
ours alone. Cost of a state: O(jobs · futures · depth · jobs), compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from asad.defer.jobs import Waiting
from asad.defer.packing import score_of
from asad.defer.rollout import Rollout
from asad.model import Floats, Ints
from asad_papers.osdec.rl.batch import Batch

MOST = 16
"""Jobs of a state that are compared at most: a draw of them, with more."""


def advantages(
    waiting: Waiting, rows: Ints, scores: Floats, started: NDArray[np.bool_], rollout: Rollout
) -> Floats:
    """(k,) What it is worth to start each of `rows` (k,) of `waiting` now rather than not now, in core-steps.

    Beside those of them that are `started` (k,). For a job that does not fit beside these, those of the lowest `scores`
    (k,) are left out, with it and without it. NaN for a job that does not fit at all.
    """
    found = np.full(len(rows), np.nan)
    free = waiting.free
    able = np.flatnonzero(waiting.cores[rows] <= free)
    if not len(able):
        return found
    if len(able) > MOST:
        able = np.sort(np.random.default_rng(rollout.seed).choice(able, MOST, replace=False))
    plan = np.zeros(len(waiting), np.bool_)
    plan[rows[started]] = True
    left = free - float(waiting.cores[plan].sum())
    lowest = rows[started][np.argsort(scores[started], kind="stable")]
    # of each the plan without it, then with it
    proposals = np.tile(plan, (2 * len(able), 1))
    for k, row in enumerate(rows[able]):
        both = proposals[2 * k : 2 * k + 2]
        if not plan[row] and waiting.cores[row] > left:
            needed = np.searchsorted(np.cumsum(waiting.cores[lowest]), waiting.cores[row] - left)
            both[:, lowest[: needed + 1]] = False
        both[:, row] = False, True
    unique, back = np.unique(proposals, axis=0, return_inverse=True)
    worth = rollout.play(waiting, unique)[back.reshape(-1)]
    found[able] = worth[1::2] - worth[::2]
    return found


class Improver:
    """A teacher (`asad_papers.osdec.rl.imitate`) who plays ahead."""

    def __init__(self, rollout: Rollout) -> None:
        """The rollout's `seed` is counted up: from one above it on, each state has futures of its own."""
        self.rollout = rollout

    def __call__(self, batch: Batch, scores: Floats) -> Floats:
        """(B, n) Scores that are the gains of rows (`asad.defer.packing.score_of`); NaN for those not compared."""
        gain = np.full(batch.startable.shape, np.nan)
        started = batch.chosen(scores) > -np.inf
        for b in range(len(gain)):
            # what one draw of futures has by chance is not learned
            self.rollout.seed += 1
            shown = np.flatnonzero(batch.startable[b])
            gain[b, shown] = advantages(
                batch.world.view(b), batch.places[b, shown], scores[b, shown], started[b, shown], self.rollout
            )
        return score_of(gain, batch.sight.spread)


def resize(head: nn.Linear, sizes: Sequence[float], earned: Callable[[], float]) -> None:
    """Multiply what `head` gives by 1 or one of `sizes`: by that with which most is `earned`.

    What was learned of large gains is too small: a mean of squashed gains lies below the squashed mean, and a knapsack
    adds gains up.
    """
    before = [(weights, weights.detach().clone()) for weights in head.parameters()]

    def set_size(factor: float) -> None:
        with torch.no_grad():
            for weights, was in before:
                weights.copy_(factor * was)

    def with_size(factor: float) -> float:
        set_size(factor)
        return earned()

    set_size(max((1.0, *sizes), key=with_size))

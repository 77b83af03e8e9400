"""Evolution strategies: a teacher for the network, and a yardstick beside it.

Source: Salimans, Ho, Chen, Sidor and Sutskever, *Evolution Strategies as a Scalable Alternative to Reinforcement
Learning* (2017): antithetic draws around the present weights, ranks instead of totals, Adam on what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.jobs import Trajectories
from asad.defer.outlook import CLUSTER_WIDTH, JOB_COLUMNS, JOB_WIDTH
from asad.model import Floats, Ints
from asad_papers.osdec import perceptron
from asad_papers.osdec.rl.batch import Batch, Singles


class Draws(NamedTuple):
    """Of one generation."""

    pairs: int = 24
    deviation: float = 0.05
    rate: float = 0.03
    decay: float = 0.002
    """Of the weights, a generation."""


def first_weights(hidden: int, rng: np.random.Generator) -> Floats:
    """Who gains most by starting now, by the prices; hidden units that see and say nearly nothing."""
    weights = np.zeros(perceptron.size(hidden))
    wide = JOB_WIDTH + CLUSTER_WIDTH + 2
    units = weights[: hidden * wide].reshape(hidden, wide)
    units[:, :-1] = rng.normal(0.0, 0.3, units[:, :-1].shape)
    direct = hidden * wide
    weights[direct + JOB_COLUMNS.index("gain_all")] = 1.0
    return weights


def total(weights: Floats, hidden: int, batch: Batch, trajectories: Trajectories) -> Floats:
    """(B,) Totals of trajectories played by these weights."""
    batch.begin(trajectories)
    found = np.zeros(len(trajectories))
    scores = np.empty(batch.jobs.shape[:2])
    while not batch.done:
        score_all(weights, hidden, batch.jobs, batch.count, batch.startable, batch.cluster, scores)
        found += batch.step(scores).total(batch.worth)
    return found


@compiled(nogil=True)
def score_all(
    weights: Floats,
    hidden: int,
    jobs: Singles,
    count: Ints,
    startable: NDArray[np.bool_],
    cluster: Singles,
    scores: Floats,
    held: bool = True,
) -> None:
    """Into `scores` (B, n) those of all rows; with `held`, of who is held back, or is no job, minus infinity."""
    for b in range(len(count)):
        perceptron.score_rows(weights, hidden, jobs[b, : count[b]], cluster[b], scores[b])
        scores[b, count[b] :] = -np.inf
        if not held:
            continue
        for i in range(count[b]):
            if not startable[b, i] or scores[b, i] <= 0.0:
                scores[b, i] = -np.inf


class Evolution:
    """Weights, and what Adam remembers; `step` makes the next generation."""

    def __init__(self, weights: Floats, draws: Draws, seed: int) -> None:
        """The draws of a generation follow from `seed` and its number alone, so that a training can be resumed."""
        self.weights, self.draws, self.seed = weights.copy(), draws, seed
        self.mean = weights.copy()
        """Of the last generations: better than any one of them."""
        self.moments, self.squares = np.zeros_like(weights), np.zeros_like(weights)
        self.generation = 0

    def step(self, evaluate: Callable[[list[Floats], int], Floats], rate: float) -> float:
        """One generation: `evaluate` (candidates, generation) says what each earns. Returns their mean."""
        self.generation += 1
        draws, g = self.draws, self.generation
        noise = np.random.default_rng((self.seed, g)).normal(size=(draws.pairs, len(self.weights)))
        candidates = [self.weights + sign * draws.deviation * one for one in noise for sign in (1.0, -1.0)]
        earned = np.asarray(evaluate(candidates, g))
        ranks = np.empty(len(earned))
        ranks[np.argsort(earned, kind="stable")] = np.linspace(-0.5, 0.5, len(earned))
        pairs = ranks.reshape(-1, 2)
        slope = (pairs[:, 0] - pairs[:, 1]) @ noise / (2 * draws.pairs * draws.deviation)
        slope -= draws.decay * self.weights
        self.moments = 0.9 * self.moments + 0.1 * slope
        self.squares = 0.999 * self.squares + 0.001 * slope * slope
        step = self.moments / (1 - 0.9**g) / (np.sqrt(self.squares / (1 - 0.999**g)) + 1e-8)
        self.weights = self.weights + rate * step
        self.mean = 0.9 * self.mean + 0.1 * self.weights
        return float(earned.mean())

"""Evolution strategies: a teacher for the network, and a yardstick beside it.

Source: Salimans, Ho, Chen, Sidor and Sutskever, *Evolution Strategies as a Scalable Alternative to Reinforcement
Learning* (2017): antithetic draws around the present weights, ranks instead of totals, Adam on what they say.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.jobs import Trajectories
from asad.defer.outlook import CLUSTER_WIDTH, JOB_COLUMNS, JOB_WIDTH
from asad.model import Floats, Ints
from asad_papers.osdec import perceptron
from asad_papers.osdec.rl.batch import Batch, Singles

PAIRS, DEVIATION = 24, 0.05
"""Of antithetic draws in a generation, and how far they lie from the present weights."""
RATE, DECAY = 0.03, 0.002
"""Of learning in the first generation (it falls to a fifth), and of the weights, a generation."""
MOST_PLAYED = 16
"""Trajectories that a generation is measured on, the same for all of its candidates."""


class Teacher:
    """A perceptron: whoever gains most by starting now, by the prices, until it is evolved."""

    def __init__(self, hidden: int, seed: int) -> None:
        """`hidden` units that see and say nearly nothing at first."""
        self.hidden, self.seed = hidden, seed
        self.weights = np.zeros(perceptron.size(hidden))
        wide = JOB_WIDTH + CLUSTER_WIDTH + 2
        units = self.weights[: hidden * wide].reshape(hidden, wide)
        units[:, :-1] = np.random.default_rng(seed).normal(0.0, 0.3, units[:, :-1].shape)
        self.weights[hidden * wide + JOB_COLUMNS.index("gain_all")] = 1.0

    def ask(self, batch: Batch, scores: Floats) -> None:
        """Into `scores` (B, n) its scores of all rows, also of those that may not start."""
        score_all(
            self.weights, self.hidden, batch.jobs, batch.count, batch.startable, batch.cluster, scores, False
        )

    def spread(self, batch: Batch, trajectories: Trajectories, scores: Floats) -> float:
        """By what its scores are divided, so that the network's tanh can say them: twice their root mean square.

        Its scores are gains as the column `gain_all` has them, so the network's are gains too.
        """
        squares, many = 0.0, 0

        def ask() -> Floats:
            nonlocal squares, many
            self.ask(batch, scores)
            counted = scores[batch.startable]
            squares, many = squares + float((counted * counted).sum()), many + len(counted)
            return batch.chosen(scores)

        batch.play(trajectories, ask)
        return 2.0 * float(np.sqrt(squares / max(many, 1))) or 1.0

    def total(self, weights: Floats, batch: Batch, trajectories: Trajectories) -> float:
        """The mean total of trajectories played by these weights."""
        scores = np.empty(batch.jobs.shape[:2])

        def ask() -> Floats:
            score_all(
                weights, self.hidden, batch.jobs, batch.count, batch.startable, batch.cluster, scores, True
            )
            return scores

        return float(batch.play(trajectories, ask).mean())

    def evolve(
        self,
        generations: int,
        trajectories: Trajectories,
        batch_of: Callable[[int], Batch],
        progress: Callable[[int, float], None],
    ) -> None:
        """So many generations; the mean of the last weights is better than any one of them, and stays.

        The draws of a generation follow from the seed and its number alone. `progress(generation, mean total)`.
        """
        weights = mean = self.weights
        moments = squares = np.zeros_like(weights)
        many = min(MOST_PLAYED, len(trajectories))
        batch = batch_of(many)
        for g in range(1, generations + 1):
            rows = np.random.default_rng((self.seed, 2, g)).choice(len(trajectories), many, replace=False)
            some = trajectories.take(rows)
            noise = np.random.default_rng((self.seed, g)).normal(size=(PAIRS, len(weights)))
            earned = np.array(
                [
                    self.total(weights + sign * DEVIATION * one, batch, some)
                    for one in noise
                    for sign in (1.0, -1.0)
                ]
            )
            ranks = np.empty(len(earned))
            ranks[np.argsort(earned, kind="stable")] = np.linspace(-0.5, 0.5, len(earned))
            slope = (ranks[::2] - ranks[1::2]) @ noise / (2 * PAIRS * DEVIATION) - DECAY * weights
            moments = 0.9 * moments + 0.1 * slope
            squares = 0.999 * squares + 0.001 * slope * slope
            step = moments / (1 - 0.9**g) / (np.sqrt(squares / (1 - 0.999**g)) + 1e-8)
            weights = weights + RATE * (1.0 - 0.8 * (g - 1) / generations) * step
            mean = 0.9 * mean + 0.1 * weights
            progress(g, float(earned.mean()))
        self.weights = mean


@compiled(nogil=True)
def score_all(
    weights: Floats,
    hidden: int,
    jobs: Singles,
    count: Ints,
    startable: NDArray[np.bool_],
    cluster: Singles,
    scores: Floats,
    held: bool,
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

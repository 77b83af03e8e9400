"""Trajectories side by side as networks learn from them: observations as arrays of one size, scores back, rewards.

The world is `asad_papers.osdec.environment.World`, and what is observed is what `asad.defer.osdec` observes of
`Waiting` when it serves; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.deferral_options import Packing
from asad.defer.jobs import Trajectories, Worth
from asad.defer.network import STEP_COLUMNS, TASKS
from asad.defer.osdec import SCALES
from asad.defer.outlook import CLUSTER_WIDTH, FUTURE, JOB_WIDTH, LOOK, RUNNING, WAITING, describe
from asad.defer.packing import worth_most
from asad.model import Floats, Ints
from asad_papers.osdec.environment import Gains, World

Singles = NDArray[np.float32]


REWARD = 8.0
"""A reward is in this many scales, so that what a state is worth is of the size of 1 to 10, as networks like it."""


class Sight(NamedTuple):
    """How a policy looks at the world; the same words as in `asad.defer.network.Model`."""

    scale: float
    period: float
    forecast: Floats
    coming: Floats
    unknown: Floats
    """As `asad.defer.outlook` fits them."""
    knows_end: bool
    running: bool
    """Are running jobs rows too?"""
    window: int
    """Steps that the auxiliary network is shown; 0 for none."""
    most_rows: int = 128
    """Jobs beyond these are neither seen nor started, in training."""
    future: bool = True
    """Are jobs that are known and may not start yet rows too?"""
    hold: bool = True
    """Does a score of 0 or less hold a job back?"""
    spread: float = 0.0
    """As `asad.defer.network.Model` has it."""


class Batch:
    """A world and what is seen of it. After `begin`, and after each `step` until `done`, the arrays are the state:

    `jobs` (B, n, JOB_WIDTH), of which the first `count` (B,) rows are jobs: those of the world's rows, then running
    ones; `startable` (B, n); `places` (B, n), the column of `world.rows` that a waiting row stands for; `cluster`
    (B, CLUSTER_WIDTH); `steps` (B, window, STEP_COLUMNS), of which the first `known` are steps.
    """

    def __init__(self, sight: Sight, size: int, worth: Worth, packing: Packing) -> None:
        self.sight, self.worth, self.packing = sight, worth, packing
        rows = sight.most_rows
        self.jobs = np.zeros((size, rows, JOB_WIDTH), np.float32)
        self.count = np.zeros(size, np.int32)
        self.startable = np.zeros((size, rows), np.bool_)
        self.places = np.zeros((size, rows), np.int32)
        self.cluster = np.zeros((size, CLUSTER_WIDTH), np.float32)
        self.steps = np.zeros((size, max(sight.window, 1), len(STEP_COLUMNS)), np.float32)
        self.known = 1
        self.history = np.zeros((size, 1, len(STEP_COLUMNS)))
        """(B, T, STEP_COLUMNS) of all steps; of those to come nothing."""

    def begin(self, trajectories: Trajectories) -> None:
        """At the first step of B trajectories."""
        self.world = World(trajectories, self.worth, self.packing)
        self.history = np.zeros((len(trajectories), trajectories.steps, len(STEP_COLUMNS)))
        self._look()

    @property
    def done(self) -> bool:
        """Are all steps decided?"""
        return self.world.done

    def chosen(self, scores: Floats | Singles) -> Floats:
        """(B, n) `scores` for `step` of whom a policy starts by them; minus infinity of all others."""
        ready = self.startable & (scores > 0.0) if self.sight.hold else self.startable
        if self.sight.spread:
            t, world = self.world.trajectories, self.world
            _keep_worth_most(
                np.asarray(scores, np.float64),
                ready,
                self.places,
                world.rows,
                t.cores,
                world.free,
                self.sight.spread,
            )
        return np.where(ready, scores, -np.inf)

    def step(self, scores: Floats | Singles) -> Gains:
        """Start jobs by `scores` (B, n), one for each row of `jobs`; minus infinity holds back. On to the next step."""
        given = np.full(self.world.rows.shape, -np.inf)
        row, column = np.nonzero(self.startable)
        given[row, self.places[row, column]] = scores[row, column]
        gains = self.world.step(given)
        if not self.world.done:
            self._look()
        return gains

    def reward(self, gains: Gains) -> Floats:
        """(B,) The objective's share of a step, scaled."""
        return gains.total(self.worth) / (REWARD * self.sight.scale)

    def observation(self) -> dict[str, Singles]:
        """Copies of all of it, as numbers."""
        return {
            "jobs": self.jobs.copy(),
            "count": self.count[:, None].astype(np.float32),
            "startable": self.startable.astype(np.float32),
            "cluster": self.cluster.copy(),
            "steps": self.steps.copy(),
            "known": np.full((len(self.count), 1), self.known, np.float32),
        }

    def targets(self) -> Floats:
        """(B, T, 4) What the auxiliary tasks foresee at each step, `TASKS` of the next one; after the last step."""
        return self.history[:, 1:, [STEP_COLUMNS.index(task) for task in TASKS]]

    def play(self, trajectories: Trajectories, scores: Callable[[], Floats | Singles]) -> Floats:
        """(B,) Totals of trajectories from their first step to their last, each by the `scores` then."""
        self.begin(trajectories)
        found = np.zeros(len(trajectories))
        while not self.done:
            found += self.step(scores()).total(self.worth)
        return found

    def _look(self) -> None:
        world, sight, now = self.world, self.sight, self.world.now
        t = world.trajectories
        self.startable[:] = False
        _look_at_all(
            now, t.steps - now if sight.knows_end else 0, sight.period, sight.scale, sight.forecast, sight.coming,
            sight.unknown, self.worth.delay, sight.running, sight.future, t.cores, t.duration, t.earliest, t.latest,
            t.first, t.capacity, world.started, world.rows, world.count, world.held, self.jobs, self.count,
            self.startable, self.places, self.cluster, self.history,
        )  # fmt: skip
        scales = np.where(SCALES > 0.0, SCALES, sight.scale)
        self.history[:, now] /= scales
        if sight.window:
            self.known = min(now + 1, sight.window)
            self.steps[:] = 0.0
            self.steps[:, : self.known] = self.history[:, now + 1 - self.known : now + 1]


@compiled(nogil=True)
def _keep_worth_most(
    scores: Floats,
    ready: NDArray[np.bool_],
    places: Ints,
    rows: Ints,
    cores: Ints,
    free: Floats,
    spread: float,
) -> None:
    """Of those `ready` (B, n), only the sets worth most stay."""
    for b in range(len(ready)):
        shown = np.flatnonzero(ready[b])
        wide = np.empty(len(shown), np.int32)
        for k in range(len(shown)):
            wide[k] = cores[rows[b, places[b, shown[k]]]]
        ready[b, shown] = worth_most(scores[b, shown], wide, free[b], spread)


@compiled(nogil=True)
def _look_at_all(
    now: int,
    to_end: int,
    period: float,
    scale: float,
    forecast: Floats,
    coming: Floats,
    unknown: Floats,
    delay: float,
    running: bool,
    future: bool,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    first: Ints,
    capacity: Floats,
    started: Ints,
    rows: Ints,
    count: Ints,
    held: Floats,
    jobs: Singles,
    seen: Ints,
    startable: NDArray[np.bool_],
    places: Ints,
    cluster: Singles,
    history: Floats,
) -> None:
    # all that are known are looked at, whoever is shown
    most = rows.shape[1] + (jobs.shape[1] if running else 0)
    kind, wide, long = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    soonest, last = np.empty(most, np.int32), np.empty(most, np.int32)
    table = np.empty((most, jobs.shape[2]), np.float32)
    ahead = np.zeros(LOOK)
    for b in range(len(count)):
        n = 0
        all_cores = all_steps = 0.0
        for place in range(count[b]):
            i = rows[b, place]
            all_cores += cores[i]
            all_steps += duration[i]
            kind[n] = WAITING if earliest[i] <= now else FUTURE
            wide[n], long[n], soonest[n], last[n] = cores[i], duration[i], earliest[i], latest[i]
            n += 1
        if running:
            for i in range(first[b], first[b + 1]):
                left = started[i] + duration[i] - now
                if started[i] >= 0 and left > 0 and n < most:
                    kind[n], wide[n], long[n], soonest[n], last[n] = RUNNING, cores[i], left, 0, 0
                    n += 1
        for h in range(LOOK):
            ahead[h] = held[b, now + h] if now + h < held.shape[1] else 0.0
        describe(
            now, to_end, period, scale, forecast, coming, unknown, delay, capacity[b, : now + 1], ahead, kind[:n],
            wide[:n], long[:n], soonest[:n], last[:n], table[:n], cluster[b], not future,
        )  # fmt: skip
        shown = 0
        for place in range(n):
            if shown < jobs.shape[1] and (future or kind[place] != FUTURE):
                jobs[b, shown] = table[place]
                places[b, shown] = place
                startable[b, shown] = kind[place] == WAITING
                shown += 1
        seen[b] = shown
        jobs[b, shown:] = 0.0
        here = history[b, now]
        here[0] = capacity[b, now]
        here[1] = held[b, now]
        here[3] = count[b]
        here[4] = all_cores / max(count[b], 1)
        here[5] = all_steps / max(count[b], 1)
        if now:
            begun = 0.0
            for i in range(first[b], first[b + 1]):
                if started[i] == now - 1:
                    begun += cores[i]
            here[2] = begun
            here[6] = max(held[b, now - 1] - capacity[b, now - 1], 0.0)

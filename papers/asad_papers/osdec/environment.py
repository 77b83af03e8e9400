"""The world of the OSDEC paper, compiled: trajectories side by side, step by step, and what policies earn in them.

At each step t the jobs submitted by then are known; a policy scores them, packing starts some (`packing.py`), and the
step earns (6): Σ over those started of c·d − ω1·(t − e), less ω2·max(0, held_t − C_t). A job that starts at t holds its
cores in steps t to t + d − 1 and is worth all of c·d, also where it ends after the trajectory. What starts fits into
what is free; but C_t may fall under what runs, and that is the violation. A job whose latest start is past is missed.

The paper's (1) sums starts in t − d … t, which holds a job's cores for d + 1 steps: `span = 1` is that letter.

Cost of a step: O(n log n) over the jobs that wait, with the sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.deferral_options import PACKINGS, Packing
from asad.defer.features import TREND, Weighted, linear_score, trend
from asad.defer.jobs import Past, Scorer, Trajectories, Waiting, Worth
from asad.defer.packing import pack, starts
from asad.errors import UsageError
from asad.model import Floats, Ints

WAITS, MISSED = -1, -2
"""Of a job that has no start."""


class Gains(NamedTuple):
    """What a step, or a trajectory, earned; (B,) each."""

    value: Floats
    """Σ c·d of those started: core-steps."""
    delay: Floats
    """Σ (t − e) of those started, in steps; not yet times ω1."""
    violation: Floats
    """Σ max(0, held − C): core-steps; not yet times ω2."""

    def total(self, worth: Worth) -> Floats:
        """The objective (1)."""
        found: Floats = self.value - worth.delay * self.delay - worth.violation * self.violation
        return found


class World:
    """B trajectories in lockstep: look, `step`, look again, until `done`.

    - `now`: the step to decide. `done`: there is none left.
    - `rows` (B, M): the jobs that wait, as rows of `trajectories`, in order of submission; `count` (B,) of them are,
      the rest of a row is −1. M is the most that can ever wait at once.
    - `held` (B, more than T): cores that those started so far hold in each step. `trajectories.capacity[:, : now + 1]`
      may be seen, nothing later.
    - `started` (N,): the step of each job's start, `WAITS` or `MISSED`.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        worth: Worth | None = None,
        packing: Packing = "skip-fit",
        span: int = 0,
        ends: bool = True,
    ) -> None:
        """`span` steps beyond its duration does a job hold its cores: 0, or 1 as printed. `ends`: do policies know
        when the trajectories end? A cluster's time does not. Raises UsageError.
        """
        if packing not in PACKINGS:
            raise UsageError(f"packing {packing!r}; there are {', '.join(PACKINGS)}")
        if span not in (0, 1):
            raise UsageError(f"span {span}; give 0, or 1 for the letter of the paper")
        self.trajectories = t = trajectories
        self.worth = worth or Worth()
        self.packing = packing
        self.span, self.ends = span, ends
        longest = min(int(t.duration.max(initial=1)), t.steps) + span
        self._most = _most_waiting(t.first, t.submitted, t.latest, t.steps)
        self.held = np.zeros((len(t), t.steps + longest))
        self.started = np.empty(len(t.cores), np.int32)
        self.rows = np.empty((len(t), self._most), np.int32)
        self.count = np.empty(len(t), np.int32)
        self._next = np.empty(len(t), np.int32)
        self._past = np.zeros((len(Past._fields), len(t), t.steps))
        self.reset()

    def reset(self) -> None:
        """Back to the first step."""
        self.now = 0
        self.held[:] = 0.0
        self.started[:] = WAITS
        self.rows[:] = -1
        self.count[:] = 0
        self._next[:] = self.trajectories.first[:-1]
        self._past[:] = 0.0
        self._look()

    @property
    def done(self) -> bool:
        """Are all steps decided?"""
        return self.now >= self.trajectories.steps

    @property
    def free(self) -> Floats:
        """(B,) C_t less what runs."""
        found: Floats = self.trajectories.capacity[:, self.now] - self.held[:, self.now]
        return found

    def _look(self) -> None:
        t = self.trajectories
        _look(
            self.now, t.cores, t.duration, t.latest, t.submitted, t.first, self.started, self.rows, self.count,
            self._next, self._past,
        )  # fmt: skip

    def step(self, scores: Floats) -> Gains:
        """Start jobs by `scores` (B, M), one for each of `rows`, as `Scorer.score` says; then on to the next step.

        Raises UsageError for another shape, and when it is done.
        """
        if self.done:
            raise UsageError(f"all {self.trajectories.steps} steps are decided; reset the world")
        if np.shape(scores) != self.rows.shape:
            raise UsageError(f"scores: {np.shape(scores)}; give {self.rows.shape}, one for each row")
        found = np.zeros((len(Gains._fields), len(self.count)))
        t = self.trajectories
        _step(
            self.now, np.ascontiguousarray(scores, np.float64), self.packing == "skip-fit", self.span, t.cores,
            t.duration, t.earliest, t.capacity, self.started, self.rows, self.count, self.held, self._past, found,
        )  # fmt: skip
        self.now += 1
        if not self.done:
            self._look()
        return Gains(*found)

    def weighted(self, weights: Floats) -> Floats:
        """(B, M) The linear scores of `asad.defer.features` with `weights` (8,), for `step`."""
        scores = np.empty(self.rows.shape)
        t = self.trajectories
        _score(
            self.now, weights, t.cores, t.duration, t.earliest, t.latest, t.submitted, t.capacity, self.rows,
            self.count, self.held, scores,
        )  # fmt: skip
        return scores

    def past(self, b: int) -> Past:
        """What trajectory b showed before now. Views: copy what is kept."""
        return Past(*self._past[:, b, : self.now])

    def view(self, b: int) -> Waiting:
        """What a policy sees of trajectory b now."""
        t = self.trajectories
        rows = self.rows[b, : self.count[b]]
        mine = slice(t.first[b], t.first[b + 1])
        left = self.started[mine] + t.duration[mine] + self.span - self.now
        runs = (self.started[mine] >= 0) & (left > 0)
        return Waiting(
            self.now,
            t.cores[rows],
            t.duration[rows],
            t.earliest[rows],
            t.latest[rows],
            t.submitted[rows],
            float(t.capacity[b, self.now]),
            t.cores[mine][runs],
            left[runs].astype(np.int32),
            self.past(b),
            t.steps if self.ends else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What a policy made of trajectories."""

    gains: Gains
    started: Ints
    """(N,) The step of each job's start, `WAITS` if the trajectory ended first, or `MISSED`."""
    held: Floats
    """(B, T) Cores held in each step."""


def play(
    trajectories: Trajectories,
    scorer: Scorer,
    packing: Packing = "skip-fit",
    span: int = 0,
    ends: bool = True,
) -> Played:
    """All steps of all trajectories by one policy; as `World` has it.

    Those that are a weighted sum are played without Python.
    """
    world = World(trajectories, None, packing, span, ends)
    gains = np.zeros((len(Gains._fields), len(trajectories)))
    if isinstance(scorer, Weighted):
        t = trajectories
        _play_weighted(
            scorer.weights, packing == "skip-fit", span, t.cores, t.duration, t.earliest, t.latest, t.submitted,
            t.first, t.capacity, world.started, world.rows, world.count, world._next, world.held, world._past, gains,
        )  # fmt: skip
    else:
        scores = np.empty(world.rows.shape)
        while not world.done:
            scores[:] = -np.inf
            for b in range(len(trajectories)):
                waiting = world.view(b)
                # of those chosen the packing is the same, and a wrong shape is named
                scores[b, : len(waiting)] = np.where(starts(scorer, waiting, packing), 1.0, -np.inf)
            gains += world.step(scores)
    return Played(Gains(*gains), world.started, world.held[:, : trajectories.steps])


def play_weights(
    trajectories: Trajectories, weights: Floats, packing: Packing = "skip-fit", span: int = 0
) -> Gains:
    """As `play`, of bare weights (8,)."""
    bare = Weighted()
    bare.weights = weights
    return play(trajectories, bare, packing, span).gains


# ------------------------------------------------------------------------------------------------------ compiled


@compiled(nogil=True)
def _most_waiting(first: Ints, submitted: Ints, latest: Ints, steps: int) -> int:
    most = 1
    here = np.empty(steps + 1, np.int64)
    for b in range(len(first) - 1):
        here[:] = 0
        for i in range(first[b], first[b + 1]):
            if submitted[i] < steps:
                here[submitted[i]] += 1
                here[min(steps, latest[i] + 1)] -= 1
        waiting = 0
        for t in range(steps):
            waiting += here[t]
            most = max(most, waiting)
    return most


@compiled(nogil=True)
def _look(
    now: int,
    cores: Ints,
    duration: Ints,
    latest: Ints,
    submitted: Ints,
    first: Ints,
    started: Ints,
    rows: Ints,
    count: Ints,
    coming: Ints,
    past: NDArray[np.float64],
) -> None:
    """Who waits in each trajectory at `now`: without those started or missed, with those submitted since.

    The arrays are those of `World`; `coming` (B,) is the first job that is not submitted yet, from `first`; `past` is
    (6, B, T), in the order of `Past`.
    """
    for b in range(len(count)):
        many = wide = long = 0
        for place in range(count[b]):
            i = rows[b, place]
            if started[i] == WAITS and latest[i] < now:
                started[i] = MISSED
            if started[i] == WAITS:
                rows[b, many] = i
                many += 1
        while coming[b] < first[b + 1] and submitted[coming[b]] <= now:
            rows[b, many] = coming[b]
            many += 1
            coming[b] += 1
        rows[b, many : count[b]] = -1
        count[b] = many
        for place in range(many):
            wide += cores[rows[b, place]]
            long += duration[rows[b, place]]
        past[3, b, now] = many
        past[4, b, now] = wide / max(many, 1)
        past[5, b, now] = long / max(many, 1)


@compiled(nogil=True)
def _score(
    now: int,
    weights: Floats,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    submitted: Ints,
    capacity: Floats,
    rows: Ints,
    count: Ints,
    held: Floats,
    scores: Floats,
) -> None:
    back = min(TREND, now)
    for b in range(len(count)):
        rise = trend(capacity[b, now], capacity[b, now - back], back)
        free = capacity[b, now] - held[b, now]
        for place in range(count[b]):
            i = rows[b, place]
            scores[b, place] = linear_score(
                weights,
                cores[i],
                duration[i],
                latest[i] - now,
                now - earliest[i],
                now - submitted[i],
                free,
                rise,
            )


@compiled(nogil=True)
def _step(
    now: int,
    scores: Floats,
    skip_fit: bool,
    span: int,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    capacity: Floats,
    started: Ints,
    rows: Ints,
    count: Ints,
    held: Floats,
    past: NDArray[np.float64],
    gains: NDArray[np.float64],
) -> None:
    """Decide step `now` by `scores` (B, M), one for each of `rows`; what it earns is added to `gains`."""
    for b in range(len(count)):
        many = count[b]
        mine, wide = np.empty(many), np.empty(many, np.int32)
        for place in range(many):
            i = rows[b, place]
            wide[place] = cores[i]
            mine[place] = scores[b, place] if earliest[i] <= now else -np.inf
        begun = 0.0
        who = pack(mine, wide, capacity[b, now] - held[b, now], skip_fit)
        for chosen in np.flatnonzero(who):
            i = rows[b, chosen]
            started[i] = now
            begun += cores[i]
            gains[0, b] += float(cores[i]) * duration[i]
            gains[1, b] += now - earliest[i]
            held[b, now : now + duration[i] + span] += cores[i]
        past[0, b, now] = capacity[b, now]
        past[1, b, now] = held[b, now]
        past[2, b, now] = begun
        gains[2, b] += max(0.0, held[b, now] - capacity[b, now])


@compiled(nogil=True)
def _play_weighted(
    weights: Floats,
    skip_fit: bool,
    span: int,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    submitted: Ints,
    first: Ints,
    capacity: Floats,
    started: Ints,
    rows: Ints,
    count: Ints,
    coming: Ints,
    held: Floats,
    past: NDArray[np.float64],
    gains: NDArray[np.float64],
) -> None:
    """All steps, from a world that was just reset."""
    scores = np.empty(rows.shape)
    steps = capacity.shape[1]
    for now in range(steps):
        if now:
            _look(now, cores, duration, latest, submitted, first, started, rows, count, coming, past)
        _score(
            now, weights, cores, duration, earliest, latest, submitted, capacity, rows, count, held, scores
        )
        _step(
            now, scores, skip_fit, span, cores, duration, earliest, capacity, started, rows, count, held, past, gains
        )  # fmt: skip

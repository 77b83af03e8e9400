"""`rollout`: plays a few decisions ahead in made-up futures, and takes the one that went best.

At each step, in turn:

1. **Propose**: what `lookahead` would start, what `linear`, EDF and biggest-first would, `lookahead`'s choice filled
   up by `linear`, and nobody.
2. **Play**: each proposal in the same `futures`: the capacity as expected, with drawn deviations; jobs to come drawn
   from a sample of jobs that were seen. From the next step on `linear` decides, for `depth` steps. Work counts as far
   as it lies within these, all of it where it runs beyond the end of a trajectory; delay and violation cost what they
   cost in (1).
3. **Choose** the proposal that is worth most in the mean.

The futures are the same for all proposals, so that their differences are not chance; they follow from `seed` and the
step alone. Nothing looks ahead: what is drawn was learned from other trajectories (`sample`) or, where no file is
named, from the jobs that are shown now.

Not in the OSDEC paper. Source: the rollout algorithm of Bertsekas and Castañon, *Rollout Algorithms for Stochastic
Scheduling Problems* (Journal of Heuristics, 1999): one step of policy improvement, by simulation. Options: `futures`,
`depth` (steps), `delay` (ω1), `violation` (ω2), `period` (steps a day), `expected` and `sample` (files; `recorded` for
those of the recorded training trajectories), `seed`. Cost: O(proposals · futures · depth · jobs), compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.expected import Expected, of_past
from asad.defer.features import linear_score
from asad.defer.jobs import Scorer, Waiting
from asad.defer.linear import Linear
from asad.defer.lookahead import Lookahead
from asad.defer.packing import pack
from asad.errors import ConfigError, UsageError
from asad.model import Floats, Ints
from asad.tables import fitted

SCHEMA = 1
ENDLESS = 1_000_000
MOST_WORK = 2_000_000
"""Proposals · futures · steps · jobs that are played at most; with more jobs there are fewer futures."""
LEAST = 8
"""Known jobs that are enough for a sample; with fewer, nobody else is expected."""


class Rollout(Scorer):
    """Proposals, played ahead."""

    name = "rollout"

    def __init__(
        self,
        futures: int = 64,
        depth: int = 30,
        delay: float = 0.3,
        violation: float = 1.0,
        period: int = 0,
        expected: str = "",
        sample: str = "",
        seed: int = 0,
    ) -> None:
        """Raises UsageError for an option that cannot be, ConfigError for a file that cannot be read."""
        for key, value, low, high in (
            ("futures", futures, 1, 10_000),
            ("depth", depth, 2, 1000),
            ("seed", seed, 0, 10**9),
        ):
            if not low <= value <= high:
                raise UsageError(f"defer rollout: {key} {value}; give {low} to {high}")
        if not 0.0 <= violation <= 1e6:
            raise UsageError(f"defer rollout: violation {violation}; give 0 to 1e6")
        self.futures, self.depth, self.delay, self.violation = futures, depth, delay, violation
        self.period, self.seed = period, seed
        self.lookahead = Lookahead(rounds=60, delay=delay, period=period, expected=expected)
        self.linear = Linear()
        self.expected: Expected | None = self.lookahead.expected
        self.sample: tuple[Ints, float, float] | None = None
        if sample:
            self.sample = read_sample("" if sample == "recorded" else sample)

    def score(self, waiting: Waiting) -> Floats:
        """(n,) What a core of those who are to start is worth; minus infinity of all others."""
        found = np.full(len(waiting), -np.inf)
        if waiting.free < 1 or not (waiting.startable & (waiting.cores <= waiting.free)).any():
            return found
        proposals = self.propose(waiting)
        best = int(np.argmax(self.play(waiting, proposals))) if len(proposals) > 1 else 0
        found[proposals[best]] = 1.0
        return found

    def propose(self, waiting: Waiting) -> NDArray[np.bool_]:
        """(P, n) Whom to start, each once; all fit."""
        ready = waiting.startable
        planned = np.isfinite(self.lookahead.score(waiting))
        by_linear = np.where(ready, self.linear.score(waiting), -np.inf)
        rest = (
            by_linear,
            np.where(ready, -waiting.latest.astype(np.float64), -np.inf),
            np.where(ready, waiting.cores.astype(np.float64) * waiting.duration, -np.inf),
            np.where(planned, np.inf, by_linear),
        )
        found = [planned, *(pack(scores, waiting.cores, waiting.free, True) for scores in rest)]
        found.append(np.zeros(len(waiting), np.bool_))
        # the first of equals stays, and of equal worth the first is taken: lookahead's
        return np.array(list({row.tobytes(): row for row in reversed(found)}.values())[::-1])

    def play(self, waiting: Waiting, proposals: NDArray[np.bool_]) -> Floats:
        """(P,) What each is worth in the mean over the futures, in core-steps."""
        left = waiting.end - waiting.now if waiting.end is not None else ENDLESS
        steps = min(self.depth, left)
        rate = self.sample[1] if self.sample is not None else 0.0
        each = len(proposals) * steps * (len(waiting) + rate * steps)
        futures = max(1, min(self.futures, int(MOST_WORK / max(each, 1.0))))
        capacity, first, coming = self.imagine(waiting, steps, futures)
        wide = coming[:, 0]
        worth: Floats = _play(
            self.linear.weights, capacity, waiting.held(steps), waiting.cores, waiting.duration,
            waiting.earliest - waiting.now, waiting.latest - waiting.now, waiting.submitted - waiting.now,
            first, wide, coming[:, 1], coming[:, 2], coming[:, 3], coming[:, 4], proposals, left, self.delay,
            self.violation,
        )  # fmt: skip
        return worth

    def imagine(self, waiting: Waiting, steps: int, futures: int) -> tuple[Floats, Ints, Ints]:
        """(F, steps) capacity; rows at which the jobs of each future begin; rows (c, d, e, l, g) from now on."""
        rng = np.random.default_rng((self.seed, waiting.now % 2**31))
        expected = self.expected or of_past(waiting, self.period)
        jobs, rate, deviation = self.sample or of_shown(waiting)
        capacity = np.tile(expected.capacity(waiting.now, waiting.capacity, steps), (futures, 1))
        off = np.zeros(futures)
        for step in range(1, steps):
            off = expected.persistence * off + rng.normal(0.0, deviation, futures)
            capacity[:, step] = np.maximum(0.0, capacity[:, step] + off)
        many = rng.poisson(rate, (futures, max(steps - 1, 0)))
        first = np.concatenate(([0], np.cumsum(many.sum(axis=1)))).astype(np.int32)
        rows = jobs[rng.integers(0, max(len(jobs), 1), int(first[-1]))] if len(jobs) else jobs
        submitted = np.repeat(np.tile(np.arange(1, max(steps, 1)), futures), many.reshape(-1))[: len(rows)]
        coming = np.column_stack(
            (rows[:, 0], rows[:, 1], submitted + rows[:, 2], submitted + rows[:, 2] + rows[:, 3], submitted)
        )
        if not len(jobs):
            first[:] = 0
        return capacity, first, np.ascontiguousarray(coming, np.int32)


def of_shown(waiting: Waiting) -> tuple[Ints, float, float]:
    """Jobs (n, 4): cores, duration, lead and window; how many come in a step; the deviation of the capacity's noise.

    From what a policy is shown alone: the jobs that it knows, the rate of their submissions, how the capacity moved.
    """
    table = np.column_stack(
        (
            waiting.cores,
            waiting.duration,
            waiting.earliest - waiting.submitted,
            waiting.latest - waiting.earliest,
        )
    ).astype(np.int32)
    recent = waiting.now - waiting.submitted
    # of the last two steps all are still there, but those that were started at once
    rate = float(((recent == 1) | (recent == 2)).sum()) / 2.0
    moved = np.diff(waiting.history[-48:])
    deviation = float(moved.std()) if len(moved) > 2 else 0.0
    return (table, rate, deviation) if len(table) >= LEAST else (table[:0], 0.0, deviation)


def read_sample(path: str = "") -> tuple[Ints, float, float]:
    """From a file, empty for the one that ships. Raises ConfigError with file, key and remedy."""
    document, path = fitted(path, "asad_profiles.defer/sample.toml", SCHEMA, "fit anew")
    numbers = []
    for key in ("rate", "deviation"):
        value = document.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e5:
            raise ConfigError(f"{path}: {key} is no number of 0 or more; fit anew")
        numbers.append(float(value))
    jobs = document.get("jobs")
    if not isinstance(jobs, list) or not 0 < len(jobs) <= 100_000 or not all(_is_job(row) for row in jobs):
        raise ConfigError(f"{path}: jobs is no list of [cores, duration, lead, window]; fit anew")
    return np.array(jobs, np.int32), numbers[0], numbers[1]


def _is_job(row: Any) -> bool:
    whole = isinstance(row, list) and len(row) == 4 and all(type(value) is int for value in row)
    return whole and all(0 <= value < 10**6 for value in row) and min(row[:2]) > 0


@compiled(nogil=True)
def _play(
    weights: Floats,
    capacity: Floats,
    held_now: Floats,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    submitted: Ints,
    first: Ints,
    coming_cores: Ints,
    coming_duration: Ints,
    coming_earliest: Ints,
    coming_latest: Ints,
    coming_submitted: Ints,
    proposals: NDArray[np.bool_],
    left: int,
    delay: float,
    violation: float,
) -> Floats:
    """Steps count from now; what is `left` of the trajectory may be more than is played."""
    futures, steps = capacity.shape
    known = len(cores)
    most = known
    for k in range(futures):
        most = max(most, known + first[k + 1] - first[k])
    c, d = np.empty(most, np.int64), np.empty(most, np.int64)
    e, l, g = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)  # noqa: E741
    begun = np.empty(most, np.bool_)
    c[:known], d[:known], e[:known], l[:known], g[:known] = cores, duration, earliest, latest, submitted
    held = np.empty(steps)
    able, scores = np.empty(most, np.int64), np.empty(most)
    worth = np.zeros(len(proposals))
    for k in range(futures):
        n = known
        for j in range(first[k], first[k + 1]):
            c[n], d[n], e[n] = coming_cores[j], coming_duration[j], coming_earliest[j]
            l[n], g[n] = min(coming_latest[j], left - 1), coming_submitted[j]
            n += 1
        for p in range(len(proposals)):
            held[:] = held_now[:steps]
            begun[:n] = False
            total = 0.0
            for t in range(steps):
                free = capacity[k, t] - held[t]
                if t == 0:
                    for i in range(known):
                        if proposals[p, i]:
                            begun[i] = True
                            total += c[i] * _counts(d[i], steps, left) - delay * max(0, -e[i])
                            for h in range(min(d[i], steps)):
                                held[h] += c[i]
                elif free >= 1.0:
                    back = max(0, t - 6)
                    rise = (capacity[k, t] - capacity[k, back]) / (
                        max(1, t - back) * max(1.0, capacity[k, t])
                    )
                    rise = min(1.0, max(-1.0, rise))
                    many = 0
                    for i in range(n):
                        if not begun[i] and e[i] <= t and l[i] >= t and c[i] <= free:
                            able[many] = i
                            scores[many] = linear_score(
                                weights, float(c[i]), float(d[i]), float(l[i] - t), float(t - e[i]),
                                float(t - g[i]), free, rise,
                            )  # fmt: skip
                            many += 1
                    # the best that still fits, until none does
                    while many > 0 and free >= 1.0:
                        best = 0
                        for j in range(1, many):
                            if scores[j] > scores[best]:
                                best = j
                        i = able[best]
                        many -= 1
                        able[best], scores[best] = able[many], scores[many]
                        if c[i] > free:
                            continue
                        begun[i] = True
                        free -= c[i]
                        total += c[i] * _counts(d[i], steps - t, left - t) - delay * (t - e[i])
                        for h in range(t, min(t + d[i], steps)):
                            held[h] += c[i]
                total -= violation * max(0.0, held[t] - capacity[k, t])
            worth[p] += total / futures
    return worth


@compiled(nogil=True)
def _counts(duration: int, steps: int, left: int) -> int:
    """Steps of a run that count: those that are played, and all where it runs beyond the end of the trajectory."""
    if duration >= left and left <= steps:
        return duration
    return min(duration, steps)

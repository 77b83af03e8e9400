"""The world of the OSDEC paper in plain Python, job for job, and made-up trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asad.defer.jobs import Trajectories, Worth

Job = tuple[int, int, int, int, int]
"""(c, d, e, l, g)."""


def reference(
    jobs: Sequence[Job],
    capacity: Sequence[float],
    score: Callable[[Job, int, float], float],
    skip_fit: bool,
    worth: Worth,
    span: int = 0,
) -> tuple[float, list[int | None]]:
    """The total (1) and each job's start: jobs in order of submission, scored anew at each step."""
    steps = len(capacity)
    begun: list[int | None] = [None] * len(jobs)

    def runs(i: int, t: int) -> bool:
        start = begun[i]
        return start is not None and start <= t < start + jobs[i][1] + span

    total = 0.0
    for t in range(steps):
        free = capacity[t] - sum(jobs[i][0] for i in range(len(jobs)) if runs(i, t))
        able = [
            i for i, (_, _, e, last, g) in enumerate(jobs) if begun[i] is None and g <= t and e <= t <= last
        ]
        scored = {i: score(jobs[i], t, free) for i in able}
        able = [i for i in able if not (math.isnan(scored[i]) or scored[i] == -math.inf)]
        able.sort(key=lambda i: (-scored[i], i))
        left = free
        for i in able:
            c, d, e, _, _ = jobs[i]
            if c <= left:
                left -= c
                begun[i] = t
                total += c * d - worth.delay * (t - e)
            elif not skip_fit:
                break
        held = sum(jobs[i][0] for i in range(len(jobs)) if runs(i, t))
        total -= worth.violation * max(0.0, held - capacity[t])
    return total, begun


def made_up(seed: int, trajectories: int = 3, steps: int = 20, jobs: int = 40) -> Trajectories:
    """Small crowded worlds, with what is seldom: no capacity, no window, jobs longer than the trajectory."""
    rng = np.random.default_rng(seed)
    many = rng.integers(0, jobs, trajectories)
    total = int(many.sum())
    g = rng.integers(0, steps, total)
    e = g + rng.integers(0, 5, total)
    rows = np.column_stack(
        (rng.choice([1, 2, 3, 8], total), rng.integers(1, 30, total), e, e + rng.integers(0, 6, total), g)
    )
    capacity = np.maximum(0, np.cumsum(rng.integers(-4, 5, (trajectories, steps)), axis=1) + 10)
    return Trajectories.of(rows, np.concatenate(([0], np.cumsum(many))), capacity)


def jobs_of(trajectories: Trajectories, number: int) -> list[Job]:
    t = trajectories
    return [
        (int(t.cores[i]), int(t.duration[i]), int(t.earliest[i]), int(t.latest[i]), int(t.submitted[i]))
        for i in range(t.first[number], t.first[number + 1])
    ]

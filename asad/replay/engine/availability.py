"""The availability profile: running jobs by planned end, and how many cores that leaves free from when on.

A profile is steps: `times[i]`, and `free[i]` cores from then on until the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing
from asad.replay.engine.queue import next_waiting
from asad.replay.engine.simulation_state import FREE, HEAD, NEVER, NOBODY, NOW, RUN, TAIL, State


@borrowing
def _run_position(s: State, end: float) -> int:
    """Where jobs begin that end at `end` or later."""
    low, high = 0, s.c[RUN]
    while low < high:
        middle = (low + high) >> 1
        if s.run[middle].end < end:
            low = middle + 1
        else:
            high = middle
    return low


@borrowing
def plan(s: State, job: int, end: float) -> None:
    """The scheduler now expects `job` to end at `end`."""
    i = _run_position(s, end)
    for k in range(s.c[RUN], i, -1):
        s.run[k] = s.run[k - 1]
    s.run[i].end, s.run[i].job = end, job
    s.job[job].planned_end = end
    s.c[RUN] += 1


@borrowing
def unplan(s: State, job: int) -> None:
    """The scheduler no longer counts `job` among those that run."""
    i = _run_position(s, s.job[job].planned_end)
    while s.run[i].job != job:
        i += 1
    s.c[RUN] -= 1
    for k in range(i, s.c[RUN]):
        s.run[k] = s.run[k + 1]


@borrowing
def running_profile(s: State, now: float, times: NDArray[np.float64], free: NDArray[np.int64]) -> int:
    """Free cores over time if running jobs end as planned: steps (time, cores free from then on)."""
    times[0] = now
    free[0] = s.c[FREE]
    count = 1
    for i in range(s.c[RUN]):
        if s.run[i].end > times[count - 1]:
            times[count] = s.run[i].end
            free[count] = free[count - 1]
            count += 1
        elif count == 1:  # overdue: it ends at any moment, but its cores are not there now
            times[count] = now + 1.0
            free[count] = free[count - 1]
            count += 1
        free[count - 1] += s.job[s.run[i].job].cores
    return count


@borrowing
def earliest(
    times: NDArray[np.float64], free: NDArray[np.int64], count: int, cores: int, duration: float, first: int
) -> int:
    """First step from `first` on at which `cores` are free for `duration`."""
    i = first
    while True:
        if free[i] < cores:
            i += 1
            continue
        end = times[i] + duration
        j = i + 1
        while j < count and times[j] < end and free[j] >= cores:
            j += 1
        if j >= count or times[j] >= end:
            return i
        i = j + 1


@borrowing
def step_at(
    times: NDArray[np.float64], free: NDArray[np.int64], count: int, time: float, low: int
) -> tuple[int, int]:
    """Index of the step that begins at `time`, made if need be, and the new number of steps."""
    high = count
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low < count and times[low] == time:
        return low, count
    for k in range(count, low, -1):
        times[k] = times[k - 1]
        free[k] = free[k - 1]
    times[low] = time
    free[low] = free[low - 1]
    return low, count + 1


@borrowing
def reserve(
    times: NDArray[np.float64], free: NDArray[np.int64], count: int, at: int, duration: float, cores: int
) -> int:
    """Take `cores` from step `at` on for `duration` (release them where negative); the new number of steps."""
    last, count = step_at(times, free, count, times[at] + duration, at)
    for k in range(at, last):
        free[k] -= cores
    return count


@allocating
def estimate_starts(s: State, depth: int, estimate: NDArray[np.float64]) -> None:
    """What Slurm's backfill would print as the start of each of the first `depth` waiting jobs, into `estimate`.

    Every job in turn gets the earliest time at which it fits among the planned ends of running jobs and the jobs
    before it; memory is left out.
    """
    now = s.f[NOW]
    size = s.c[RUN] + 2 * depth + 4
    times = np.empty(size + 2, np.float64)
    free = np.empty(size + 2, np.int64)
    count = running_profile(s, now, times, free)
    position = s.c[HEAD]
    seen = 0
    # who wants no less than the one before begins no sooner: what is free has only shrunk
    at, cores, planned = 0, NOBODY, NEVER
    while position < s.c[TAIL] and seen < depth:
        job = s.queue[position].job
        if s.job[job].cores < cores or s.job[job].planned < planned:
            at = 0
        cores, planned = s.job[job].cores, s.job[job].planned
        at = earliest(times, free, count, cores, planned, at)
        estimate[job] = times[at]
        count = reserve(times, free, count, at, s.job[job].planned, s.job[job].cores)
        position = next_waiting(s, position + 1)
        seen += 1

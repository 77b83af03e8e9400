"""The event heap: ends of jobs, arrivals of jobs that waited for another, ends of deferrals; O(log events) each."""

from __future__ import annotations

from asad.compiling import borrowing, compiled
from asad.replay.engine.simulation_state import ARRIVALS, HEAP, ORDER, State


@compiled(inline="always")
def _earlier(time: float, order: int, other_time: float, other_order: int) -> bool:
    """Earlier first; at the same moment ends in order of their starts, then arrivals in order of the log."""
    return time < other_time or (time == other_time and order < other_order)


@compiled(inline="always")
def _put_at(s: State, i: int, time: float, order: int, job: int) -> None:
    s.heap[i].time, s.heap[i].order, s.heap[i].job = time, order, job
    n = len(s.job)
    if job < n:
        s.job[job].heap_at = i
    elif job >= 2 * n:  # arrivals never move
        s.task[job - 2 * n].wake_at = i


@borrowing
def _sift_up(s: State, i: int) -> int:
    """Up to where it belongs; where that is."""
    time, order, job = s.heap[i].time, s.heap[i].order, s.heap[i].job
    while i > 0:
        up = (i - 1) >> 1
        if not _earlier(time, order, s.heap[up].time, s.heap[up].order):
            break
        _put_at(s, i, s.heap[up].time, s.heap[up].order, s.heap[up].job)
        i = up
    _put_at(s, i, time, order, job)
    return i


@borrowing
def _sift_down(s: State, i: int) -> None:
    time, order, job = s.heap[i].time, s.heap[i].order, s.heap[i].job
    while 2 * i + 1 < s.c[HEAP]:
        low = 2 * i + 1
        if low + 1 < s.c[HEAP] and _earlier(
            s.heap[low + 1].time, s.heap[low + 1].order, s.heap[low].time, s.heap[low].order
        ):
            low += 1
        if not _earlier(s.heap[low].time, s.heap[low].order, time, order):
            break
        _put_at(s, i, s.heap[low].time, s.heap[low].order, s.heap[low].job)
        i = low
    _put_at(s, i, time, order, job)


@borrowing
def push(s: State, job: int, time: float) -> None:
    """Something will happen at `time`; `job` says what and to whom, as in `State.heap`."""
    i = s.c[HEAP]
    s.c[HEAP] += 1
    s.c[ORDER] += 1
    order = s.c[ORDER] if job < len(s.job) else ARRIVALS + job
    s.heap[i].time, s.heap[i].order, s.heap[i].job = time, order, job
    _sift_up(s, i)


@borrowing
def pop(s: State) -> int:
    """The next event, which is no longer to come."""
    job = s.heap[0].job
    s.c[HEAP] -= 1
    if s.c[HEAP] > 0:
        s.heap[0] = s.heap[s.c[HEAP]]
        _sift_down(s, 0)
    return job


@borrowing
def _move(s: State, i: int, time: float) -> None:
    s.heap[i].time = time
    _sift_down(s, _sift_up(s, i))


@borrowing
def move(s: State, job: int, time: float) -> None:
    """A job that runs will end at `time` instead."""
    _move(s, s.job[job].heap_at, time)


@borrowing
def move_wake(s: State, lead: int, time: float) -> None:
    """What is deferred will be so until `time` instead."""
    _move(s, s.task[lead].wake_at, time)

"""Admission: who of those that wait is in the queue.

Jobs and arrays are admitted (tried before the others), deferred and throttled. A group is an array, or a job that is
no task of one; its first row stands for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.replay.engine.event_heap import move_wake, pop, push
from asad.replay.engine.queue import dequeue, look_again, put_before
from asad.replay.engine.simulation_state import (
    ASIDE,
    CHANGED,
    FRONT,
    NEVER,
    NOBODY,
    PENDING,
    RESERVED,
    WITHHELD,
    State,
    is_job,
)


@borrowing
def _withhold(s: State, job: int) -> None:
    """Out of the queue; it keeps its position."""
    dequeue(s, job)
    s.job[job].state = WITHHELD
    # back in the queue it needs another: by then its cores may be promised to others
    s.job[job].promised = NEVER
    s.c[ASIDE] += 1
    s.c[RESERVED] = 0
    s.c[CHANGED] = 1
    if s.task[job].array >= 0:
        s.task[s.task[job].array].shown -= 1


@borrowing
def _show(s: State, job: int) -> None:
    """Back to its position in the queue."""
    s.c[ASIDE] -= 1
    put_before(s, job)
    if s.task[job].array >= 0:
        s.task[s.task[job].array].shown += 1


@borrowing
def _allowance(s: State, lead: int) -> int:
    """How many waiting tasks of a group may be in the queue."""
    if not np.isnan(s.task[lead].until):
        return 0
    array = s.task[lead].array
    if array < 0 or s.task[array].throttle == 0:
        return NOBODY
    return max(0, s.task[array].throttle - s.task[array].running)


@borrowing
def _first_waiting(s: State, job: int) -> int:
    """The first row that waits of the array of `job`, or of the job itself; -1 if none does."""
    if not is_job(s, job):
        return -1
    if s.task[job].array >= 0:
        return s.task[s.task[job].array].waiting_row
    return job if s.job[job].state == PENDING or s.job[job].state == WITHHELD else -1


@borrowing
def _let_in(s: State, lead: int) -> None:
    """The first waiting tasks of a group into the queue, as many as may be there, and the others out of it."""
    may = _allowance(s, lead)
    array = s.task[lead].array
    left = 1
    if array >= 0:
        left = s.task[array].shown
        if left == min(may, s.task[array].waiting):
            return
    row = _first_waiting(s, lead)
    while row >= 0 and (may > 0 or left > 0):
        if s.job[row].state == PENDING:
            left -= 1
            if may > 0:
                may -= 1
            else:
                _withhold(s, row)
        elif s.job[row].state == WITHHELD and may > 0:
            _show(s, row)
            may -= 1
        row = s.task[row].next


@borrowing
def join_group(s: State, job: int) -> None:
    """A job has arrived: what was decided for the array of which it is a task holds for it too."""
    lead, array = s.task[job].lead, s.task[job].array
    if s.task[lead].admitted:
        dequeue(s, job)
        s.job[job].at -= s.c[FRONT]
        put_before(s, job)
    if array < 0:
        return
    s.task[array].waiting += 1
    s.task[array].shown += 1
    first = s.task[array].waiting_row
    if first < 0 or job < first:
        s.task[array].waiting_row = job
    if s.task[array].shown > _allowance(s, lead):
        _withhold(s, job)
        s.task[job].begin = s.task[lead].until


@borrowing
def leave_queue(s: State, job: int) -> None:
    """A job has started from the queue, by its turn or as a guest."""
    array = s.task[job].array
    if array < 0:
        return
    s.task[array].waiting -= 1
    s.task[array].shown -= 1
    s.task[array].running += 1
    if s.task[array].waiting_row == job:
        row = s.task[job].next
        while row >= 0 and s.job[row].state != PENDING and s.job[row].state != WITHHELD:
            row = s.task[row].next
        s.task[array].waiting_row = row


@borrowing
def leave_group(s: State, job: int) -> None:
    """A job has ended: the next task of its array may be tried."""
    array = s.task[job].array
    if array < 0:
        return
    s.task[array].running -= 1
    s.task[array].ended += 1
    if s.task[array].throttle > 0:
        _let_in(s, s.task[job].lead)


@borrowing
def wake_group(s: State, lead: int) -> None:
    """What deferred a group is over; its event is no longer in the heap."""
    s.task[lead].until = np.nan
    s.task[lead].wake_at = -1
    row = _first_waiting(s, lead)
    while row >= 0:
        s.task[row].begin = np.nan
        row = s.task[row].next
    _let_in(s, lead)


@borrowing
def waits(s: State, job: int) -> bool:
    """Does the job wait, or any task of its array, in the queue or outside of it?"""
    return _first_waiting(s, job) >= 0


@borrowing
def admit(s: State, job: int) -> int:
    """Try the job (all tasks of its array) before those not admitted. Returns 0, or 1 if none waits."""
    row = _first_waiting(s, job)
    if row < 0:
        return 1
    lead = s.task[job].lead
    if s.task[lead].admitted:
        return 0
    s.task[lead].admitted = True
    while row >= 0:
        if s.job[row].state == PENDING:
            promised = s.job[row].promised
            dequeue(s, row)
            s.job[row].at -= s.c[FRONT]
            put_before(s, row)
            s.job[row].promised = promised
        elif s.job[row].state == WITHHELD:
            s.job[row].at -= s.c[FRONT]
        row = s.task[row].next
    look_again(s)
    return 0


@borrowing
def defer(s: State, job: int, until: float, estimate: NDArray[np.float64]) -> int:
    """Take the job (the waiting tasks of its array) out of the queue until then. Returns 0, or 1 if none waits.

    Its start in `estimate` is void.
    """
    row = _first_waiting(s, job)
    if row < 0:
        return 1
    lead = s.task[job].lead
    if s.task[lead].wake_at < 0:
        push(s, 2 * len(s.job) + lead, until)
    else:
        move_wake(s, lead, until)
    s.task[lead].until = until
    while row >= 0:
        if s.job[row].state == PENDING:
            _withhold(s, row)
        if s.job[row].state == WITHHELD:
            s.task[row].begin = until
            estimate[row] = np.nan
        row = s.task[row].next
    look_again(s)
    return 0


@borrowing
def undefer(s: State, job: int) -> int:
    """The job (the waiting tasks of its array) may start now. Returns 0, or 1 if none waits."""
    if _first_waiting(s, job) < 0:
        return 1
    lead = s.task[job].lead
    if s.task[lead].wake_at >= 0:
        # to the top of the heap, from where alone an event can be taken
        move_wake(s, lead, -NEVER)
        pop(s)
        wake_group(s, lead)
        look_again(s)
    return 0


@borrowing
def throttle(s: State, job: int, tasks: int, estimate: NDArray[np.float64]) -> int:
    """At most `tasks` tasks of the array of `job` run at one time, 0 for no bound.

    Returns 0, or 1 if none waits, 2 if the job is no task of an array. Who leaves the queue has no start in `estimate`.
    """
    if not is_job(s, job):
        return 1
    array = s.task[job].array
    if array < 0:
        return 2
    if s.task[array].waiting == 0:
        return 1
    if s.task[array].throttle != tasks:
        s.task[array].throttle = tasks
        _let_in(s, s.task[job].lead)
        row = s.task[array].waiting_row
        while row >= 0:
            if s.job[row].state == WITHHELD:
                estimate[row] = np.nan
            row = s.task[row].next
        look_again(s)
    return 0

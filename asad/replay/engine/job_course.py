"""The course of a job: it starts, its limit is extended, it ends, is cancelled or requeued."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.replay.engine.availability import plan, unplan
from asad.replay.engine.event_heap import move, pop, push
from asad.replay.engine.guests import end_guest, leave_guests, meet_guests
from asad.replay.engine.held_back import defer, leave_group, leave_queue
from asad.replay.engine.placement import place, place_parts, release
from asad.replay.engine.queue import dequeue, look_again, put_before
from asad.replay.engine.rates import aim, settle
from asad.replay.engine.simulation_state import (
    ADMISSION,
    CHANGED,
    DONE,
    ENDED,
    FREE,
    GUEST,
    GUESTS,
    LOGGED,
    MEMORY,
    NEVER,
    NOW,
    PENDING,
    PLACED,
    RESERVED,
    RUNNING,
    SCHEDULER,
    SLURM,
    UNLOGGED,
    USE_SD,
    State,
    is_job,
)
from asad.replay.engine.use import begin_use


@borrowing
def start_job(s: State, job: int, now: float) -> None:
    """Start a batch job that is known to fit."""
    dequeue(s, job)
    s.job[job].state = RUNNING
    if s.c[ADMISSION]:
        leave_queue(s, job)
    s.job[job].start = now
    s.c[FREE] -= s.job[job].cores
    plan(s, job, now + s.job[job].planned)
    push(s, job, now + s.job[job].work)
    if s.c[PLACED]:
        s.job[job].since = now
        s.job[job].left = s.job[job].work
        s.job[job].rate = 1.0
        s.job[job].limit_end = now + s.job[job].limit
        if len(s.slot) > 0:
            place_parts(s, job)
        else:
            place(s, job)
        if s.f[USE_SD] > 0:
            begin_use(s, job)
        if s.c[GUESTS] > 0:
            meet_guests(s, job, now)
    s.c[CHANGED] = 1


@borrowing
def end_job(s: State, job: int, now: float) -> None:
    """End a batch job or a guest whose event is no longer in the heap; those that waited for it are to come."""
    was_guest = s.job[job].state == GUEST
    if s.c[PLACED]:
        settle(s, job, now)
        if s.job[job].left > 1e-6 * max(1.0, s.job[job].work):
            s.job[job].killed = True
        if was_guest:
            end_guest(s, job, now)
        else:
            release(s, job)
            s.job[job].state = DONE
            if s.c[GUESTS] > 0:
                leave_guests(s, job, now)
    s.job[job].state = DONE
    s.job[job].end = now
    if job < s.c[LOGGED]:
        s.job[s.c[ENDED]].ended = job
        s.c[ENDED] += 1
    else:
        s.c[UNLOGGED] -= 1
    if not was_guest:
        s.c[FREE] += s.job[job].cores
        unplan(s, job)
    if not was_guest or s.c[MEMORY] or s.c[SCHEDULER] == SLURM:  # limits count guests, too
        s.c[RESERVED] = 0
    child = s.job[job].child
    while child >= 0:
        push(s, len(s.job) + child, max(s.job[child].submit, now + s.job[child].think))
        child = s.job[child].sibling
    if s.c[ADMISSION]:
        leave_group(s, job)
    s.c[CHANGED] = 1


@borrowing
def extend(s: State, job: int, by: float) -> int:
    """Move a running job's time limit. Returns 0, or 1 if it does not run."""
    if not is_job(s, job) or (s.job[job].state != RUNNING and s.job[job].state != GUEST):
        return 1
    s.job[job].limit_end += by
    s.job[job].extended += by
    if s.job[job].state == RUNNING:
        unplan(s, job)
        plan(s, job, s.job[job].planned_end + by)
        s.c[RESERVED] = 0
    settle(s, job, s.f[NOW])
    aim(s, job)
    return 0


@borrowing
def _break_off(s: State, job: int) -> bool:
    """Is it a batch job that runs? Then its end is the next event, and not as planned."""
    if not is_job(s, job) or s.job[job].state != RUNNING:
        return False
    move(s, job, -NEVER)
    pop(s)
    return True


@borrowing
def cancel(s: State, job: int) -> int:
    """End a running batch job now. Returns 0, or 1 if it does not run."""
    if not _break_off(s, job):
        return 1
    end_job(s, job, s.f[NOW])
    look_again(s)
    return 0


@borrowing
def requeue(s: State, job: int, until: float, estimate: NDArray[np.float64]) -> int:
    """Put a running batch job back into the queue, to begin anew no sooner than `until`; what it has done is lost.

    It stands where it stood. Needs admission. Returns 0, or 1 if it does not run, 2 if it is a task of an array.
    """
    if not is_job(s, job) or s.job[job].state != RUNNING:
        return 1
    if s.task[job].array >= 0:
        return 2
    now = s.f[NOW]
    _break_off(s, job)
    if s.c[PLACED]:
        settle(s, job, now)
        release(s, job)
        s.job[job].lending = 0.0
        s.job[job].state = PENDING
        if s.c[GUESTS] > 0:
            leave_guests(s, job, now)
    s.c[FREE] += s.job[job].cores
    unplan(s, job)
    s.job[job].start = np.nan
    s.job[job].planned_end = np.nan
    s.job[job].limit_end = np.nan
    put_before(s, job)
    defer(s, job, until, estimate)
    look_again(s)
    return 0

"""The clock: from event to event, and from poll to poll."""

from __future__ import annotations

import numpy as np

from asad.compiling import borrowing
from asad.replay.engine.backfill import scheduling_pass
from asad.replay.engine.by_rules import next_wake
from asad.replay.engine.event_heap import move, pop
from asad.replay.engine.held_back import join_group, wake_group
from asad.replay.engine.job_course import end_job
from asad.replay.engine.queue import enqueue
from asad.replay.engine.recorded import next_due
from asad.replay.engine.simulation_state import (
    ADMISSION,
    ASIDE,
    CHANGED,
    EVERY,
    GUESTS,
    HEAP,
    NEVER,
    NEXT,
    NOW,
    ORIGIN,
    PENDING_END,
    PER_EVENT,
    PLACED,
    POLL,
    RUN,
    SETTLE,
    SHOWN,
    STEP,
    USE_SD,
    VERSION,
    WAITING,
    WINDOW,
    State,
    arrival,
)
from asad.replay.engine.use import STEP_S, vary_use


@borrowing
def next_event(s: State) -> float:
    """When something happens next: a submission, a recorded start, the opening of a closed node, or an event of the
    heap; inf if nothing does."""
    n = len(s.job)
    time = min(next_due(s), next_wake(s), s.heap[0].time if s.c[HEAP] > 0 else NEVER)
    if s.c[NEXT] < n:
        time = min(time, s.job[arrival(s, s.c[NEXT])].submit)
    return time


@borrowing
def skip_dependents(s: State) -> None:
    """Jobs that wait for another come through the heap, not by their time of submission."""
    while s.c[NEXT] < len(s.job) and s.job[arrival(s, s.c[NEXT])].depends >= 0:
        s.c[NEXT] += 1


@borrowing
def _end_planned(s: State, now: float) -> None:
    """End what ends at this very moment as planned: a pass counts such cores as free already.

    So did the published schedule that the per-event semantics answer to.
    """
    i = 0
    while i < s.c[RUN] and s.run[i].end <= now:
        job = s.run[i].job
        if s.heap[s.job[job].heap_at].time <= now:
            move(s, job, -NEVER)
            end_job(s, pop(s), now)
        else:
            i += 1  # overdue, because lending has slowed it


@borrowing
def run_until(s: State, until: float) -> None:
    """Let everything happen up to and including `until`."""
    n = len(s.job)
    per_event = s.c[PER_EVENT] != 0
    admission = s.c[ADMISSION] != 0
    varies = s.f[USE_SD] > 0 and s.c[PLACED] != 0
    if s.c[SETTLE]:
        # the queue has lost jobs to lending since the last pass
        s.c[SETTLE] = 0
        scheduling_pass(s, s.f[NOW], True)
    while True:
        now = next_event(s)
        if varies and s.f[STEP] < min(now, until):
            if s.c[RUN] + s.c[GUESTS] > 0:
                vary_use(s)
            else:  # nobody runs: on to the last step before something happens
                s.f[STEP] += STEP_S * np.floor((min(now, until) - s.f[STEP]) / STEP_S + 1.0)
            continue
        if now > until or now == NEVER:
            break
        s.f[NOW] = now
        freed = False
        arrived = False
        while (
            s.c[HEAP] > 0 and s.heap[0].time <= now
        ):  # ends first, but for jobs that start and end in this moment
            what = pop(s)
            if what < n:
                end_job(s, what, now)
                freed = True
                if per_event and not arrived:
                    _end_planned(s, now)
            elif what < 2 * n:
                enqueue(s, what - n, now)
                if admission:
                    join_group(s, what - n)
            else:
                wake_group(s, what - 2 * n)
            arrived = arrived or what >= n
            if per_event:
                scheduling_pass(s, now, what < n)
        while s.c[NEXT] < n and s.job[arrival(s, s.c[NEXT])].submit <= now:
            job = arrival(s, s.c[NEXT])
            enqueue(s, job, now)
            if admission:
                join_group(s, job)
            s.c[NEXT] += 1
            skip_dependents(s)
            if per_event:
                scheduling_pass(s, now, False)
        if not per_event:
            scheduling_pass(s, now, freed)
    if until < NEVER and until > s.f[NOW]:
        s.f[NOW] = until


@borrowing
def _newly_measured(s: State, tick: float) -> bool:
    """Is there a job that has run for a window at this poll and had not at the one before?"""
    latest = tick - s.f[WINDOW]
    for i in range(s.c[RUN]):
        if latest - s.f[POLL] < s.job[s.run[i].job].start <= latest:
            return True
    for i in range(s.c[GUESTS]):
        if latest - s.f[POLL] < s.job[s.job[i].guest_row].start <= latest:
            return True
    return False


@borrowing
def run_to_poll(s: State, wake: float) -> bool:
    """Run to the next poll at which there is something to see, or at or after `wake`; False when all is over.

    A poll at which nothing has changed since the last look is passed over, and so is one at which nobody waits and
    nobody is lent to; where all changes are shown, those while nobody waits no more often than once in a window.
    """
    origin, poll = s.f[ORIGIN], s.f[POLL]
    while True:
        event = next_event(s)
        due = min(event, wake)
        if s.f[USE_SD] > 0 and s.c[GUESTS] + s.c[WAITING] > 0:
            due = min(due, s.f[STEP])
        if s.c[SETTLE] or s.c[PENDING_END] > 0:
            due = s.f[NOW] + poll
        if due == NEVER or (event == NEVER and s.c[WAITING] == 0 and s.c[GUESTS] == 0):
            return False  # who is withheld waits for an event
        tick = origin + np.ceil((due - origin) / poll) * poll
        if tick <= s.f[NOW]:
            tick = origin + (np.floor((s.f[NOW] - origin) / poll) + 1) * poll
        run_until(s, tick)
        s.c[PENDING_END] = max(0, s.c[PENDING_END] - 1)
        if s.c[CHANGED]:
            s.c[CHANGED] = 0
            s.c[VERSION] += 1
            # what has only just started is measured one window later: look again then
            s.c[PENDING_END] = int(np.ceil(s.f[WINDOW] / poll))
        elif _newly_measured(s, tick) or s.f[USE_SD] > 0:
            s.c[VERSION] += 1
        elif wake > tick:
            continue
        if s.c[WAITING] == 0 and s.c[ASIDE] == 0 and tick < wake:
            if s.c[EVERY] and tick < s.f[SHOWN] + s.f[WINDOW]:
                s.c[CHANGED] = 1
                continue  # nobody waits: it is soon enough by then
            if not s.c[EVERY] and s.c[GUESTS] == 0:
                continue
        s.f[SHOWN] = tick
        return True

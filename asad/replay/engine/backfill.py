"""Scheduling passes: first come first served, EASY (with and without memory), conservative."""

from __future__ import annotations

import numpy as np

from asad.compiling import allocating, borrowing
from asad.replay.engine.availability import earliest, reserve, running_profile, step_at
from asad.replay.engine.by_rules import pass_by_rules
from asad.replay.engine.job_course import start_job
from asad.replay.engine.placement import fits, keep_clear
from asad.replay.engine.queue import next_candidate, next_waiting
from asad.replay.engine.rates import mark_nodes, refresh
from asad.replay.engine.recorded import recorded_pass
from asad.replay.engine.simulation_state import (
    CONSERVATIVE,
    EXTRA,
    FCFS,
    FREE,
    GUESTS,
    HEAD,
    MEMORY,
    NEVER,
    RECORDED,
    RESERVED,
    RUN,
    SCANNED,
    SCHEDULER,
    SHADOW,
    SLURM,
    TAIL,
    WAITING,
    State,
)


@borrowing
def scheduling_pass(s: State, now: float, freed: bool) -> None:
    """Start who may start now; `freed` says whether anything has ended since the last pass."""
    if s.c[SCHEDULER] == RECORDED:
        recorded_pass(s, now, freed)
        return
    if s.c[SCHEDULER] == SLURM:
        pass_by_rules(s, now, freed)
        return
    if s.c[WAITING] == 0:
        return
    if s.c[SCHEDULER] == CONSERVATIVE:
        _conservative(s, now, freed)  # promises are made even when nothing is free
    elif s.c[FREE] == 0:
        return
    elif s.c[SCHEDULER] == FCFS:
        _start_heads(s, now)
    elif s.c[MEMORY]:
        _easy_memory(s, now)
    else:
        _easy(s, now)


@borrowing
def _start_heads(s: State, now: float) -> None:
    """Start jobs in order until one does not fit."""
    while s.c[WAITING] > 0:
        job = s.queue[s.c[HEAD]].job
        if s.job[job].cores > s.c[FREE]:
            return
        if s.c[MEMORY] and not fits(s, job, False):
            return
        start_job(s, job, now)
        s.c[RESERVED] = 0


@borrowing
def _easy(s: State, now: float) -> None:
    """Start heads, reserve for the first that does not fit, backfill behind it.

    A job once passed over stays passed over until something ends: the reservation does not move and time only
    shrinks the window. So a pass after arrivals alone looks at the arrivals alone.
    """
    if s.c[RESERVED] == 0:
        _start_heads(s, now)
        if s.c[WAITING] == 0:
            return
        job = s.queue[s.c[HEAD]].job
        free = s.c[FREE]
        i = 0
        while free < s.job[job].cores:
            free += s.job[s.run[i].job].cores
            i += 1
        shadow = s.run[i - 1].end if i > 0 else now
        while i < s.c[RUN] and s.run[i].end <= shadow:
            free += s.job[s.run[i].job].cores
            i += 1
        # overdue jobs have planned ends in the past, and end no sooner than now
        s.f[SHADOW] = max(shadow, now)
        s.c[EXTRA] = free - s.job[job].cores
        s.c[RESERVED] = 1
        s.c[SCANNED] = s.c[HEAD] + 1
    position = s.c[SCANNED]
    while s.c[FREE] > 0:
        free = s.c[FREE]
        position = next_candidate(s, position, free, min(free, s.c[EXTRA]), s.f[SHADOW] - now)
        if position >= s.c[TAIL]:
            break
        job = s.queue[position].job
        if s.job[job].planned > s.f[SHADOW] - now:  # the very expression that let it through
            s.c[EXTRA] -= s.job[job].cores
        start_job(s, job, now)
        position += 1
    s.c[SCANNED] = s.c[TAIL]


@borrowing
def _easy_memory(s: State, now: float) -> None:
    """EASY where memory counts: the reservation is a set of nodes, and what runs past it stays clear of them."""
    _start_heads(s, now)
    if s.c[WAITING] == 0:
        return
    head = s.queue[s.c[HEAD]].job
    for node in range(len(s.node)):
        s.node[node].spare = s.node[node].free
        s.node[node].memory_spare = s.node[node].memory_free
    i = 0
    shadow = now
    while not fits(s, head, True):
        if i >= s.c[RUN]:
            shadow = NEVER  # only the end of a guest can make room, and nobody has planned that
            break
        shadow = max(now, s.run[i].end)
        while i < s.c[RUN] and s.run[i].end <= shadow:
            job = s.run[i].job
            core = s.job[job].owner_first
            while core >= 0:
                s.node[s.core[core].node].spare += 1
                s.node[s.core[core].node].memory_spare += s.job[job].memory
                core = s.core[core].owner_next
            i += 1
    for node in range(len(s.node)):
        s.node[node].later = s.node[node].spare
        s.node[node].memory_later = s.node[node].memory_spare
    keep_clear(s, head, shadow < NEVER)
    position = s.c[HEAD] + 1
    while s.c[FREE] > 0:
        position = next_candidate(s, position, s.c[FREE], s.c[FREE], NEVER)
        if position >= s.c[TAIL]:
            return
        job = s.queue[position].job
        position += 1
        if s.job[job].planned <= shadow - now:
            if fits(s, job, False):
                start_job(s, job, now)
                keep_clear(s, head, shadow < NEVER)
        elif fits(s, job, True):
            _start_on_spare(s, job, now)


@borrowing
def _start_on_spare(s: State, job: int, now: float) -> None:
    """Start a job on the part of each node that the head's reservation leaves: hide the rest meanwhile."""
    for node in range(len(s.node)):
        s.node[node].later -= s.node[node].spare
        s.node[node].spare, s.node[node].free = s.node[node].free - s.node[node].spare, s.node[node].spare
        if s.node[node].memory == NEVER:  # it is not known, so none of it is hidden
            continue
        s.node[node].memory_later -= s.node[node].memory_spare
        hidden = s.node[node].memory_free - s.node[node].memory_spare
        s.node[node].memory_spare, s.node[node].memory_free = hidden, s.node[node].memory_spare
    start_job(s, job, now)
    for node in range(len(s.node)):
        s.node[node].spare, s.node[node].free = s.node[node].free, s.node[node].free + s.node[node].spare
        s.node[node].later += s.node[node].spare
        if s.node[node].memory == NEVER:
            continue
        whole = s.node[node].memory_free + s.node[node].memory_spare
        s.node[node].memory_spare, s.node[node].memory_free = s.node[node].memory_free, whole
        s.node[node].memory_later += s.node[node].memory_spare
    if s.c[GUESTS] > 0:  # they have met it while part of the memory was hidden, and μ goes by memory
        refresh(s, mark_nodes(s, s.job[job].owner_first, False), now)


@allocating
def _conservative(s: State, now: float, freed: bool) -> None:
    """Every waiting job holds a promise; when something ends early, each in turn may move to an earlier one.

    A job is only ever moved to a time no later than its promise, so promises are kept.
    """
    size = s.c[RUN] + 3 * s.c[WAITING] + 4  # a start, an end, and another end when it is moved
    times = np.empty(size + 2, np.float64)
    free = np.empty(size + 2, np.int64)
    count = running_profile(s, now, times, free)
    position = s.c[HEAD]
    while position < s.c[TAIL]:
        job = s.queue[position].job
        if s.job[job].promised < NEVER:
            at, count = step_at(times, free, count, max(now, s.job[job].promised), 0)
            count = reserve(times, free, count, at, s.job[job].planned, s.job[job].cores)
        position = next_waiting(s, position + 1)
    position = s.c[HEAD]
    while position < s.c[TAIL]:
        job = s.queue[position].job
        if freed or s.job[job].promised == NEVER:
            if s.job[job].promised < NEVER:
                at, count = step_at(times, free, count, max(now, s.job[job].promised), 0)
                count = reserve(times, free, count, at, s.job[job].planned, -s.job[job].cores)
            at = earliest(times, free, count, s.job[job].cores, s.job[job].planned, 0)
            s.job[job].promised = times[at]
            count = reserve(times, free, count, at, s.job[job].planned, s.job[job].cores)
        if (
            s.job[job].promised <= now
            and s.job[job].cores <= s.c[FREE]
            and (not s.c[MEMORY] or fits(s, job, False))
        ):
            start_job(s, job, now)
        position = next_waiting(s, position + 1)

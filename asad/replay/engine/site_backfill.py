"""Scheduling passes of a cluster's own Slurm: partitions, gres, constraints, limits, priorities, and backfill by node.

As Slurm's backfill does it: jobs are looked at in order of priority, at most `depth` of them; who may start for his
limits and has room now starts, and for every other the first moment at which it has room is reserved, on nodes, if that
lies within the window. Nobody starts who would be in the way of a reservation. Slurm's two schedulers are one here, and
it looks at every event and not every half a minute.

A pass after which nothing has ended looks at those alone who have come since; and one in which nobody has room beside
what runs plans nothing.

Cost: O(those that wait + nodes that each kind of job can reach); where somebody has room, O(running + depth x changes
of the nodes in reach).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing
from asad.replay.engine.fair_share import priority, share_anew
from asad.replay.engine.job_course import start_job
from asad.replay.engine.node_profile import CHANGE, CLOSED, Profile, enter, find_start
from asad.replay.engine.placement import node_fits
from asad.replay.engine.queue import next_waiting
from asad.replay.engine.simulation_state import (
    FREE,
    GUESTS,
    HEAD,
    MEMORY,
    NEVER,
    NOBODY,
    NOW,
    RESERVED,
    RUN,
    TAIL,
    WAITING,
    State,
)

UNKNOWN, NO_ROOM, ROOM = 2, 0, 1
SLACK = 1 + 1e-9
"""Sums of memory that was recorded rounded are compared with it."""


@borrowing
def next_opening(s: State) -> float:
    """When a closed node opens next; inf if none does."""
    if s.rules.terms[0].woken >= len(s.rules.wake):
        return NEVER
    return s.rules.wake[s.rules.terms[0].woken]


@borrowing
def _wake(s: State, now: float) -> bool:
    """Has a closed node opened?"""
    woken = s.rules.terms[0].woken
    while s.rules.terms[0].woken < len(s.rules.wake) and s.rules.wake[s.rules.terms[0].woken] <= now:
        s.rules.terms[0].woken += 1
    return s.rules.terms[0].woken > woken


@allocating
def site_pass(s: State, now: float, freed: bool) -> None:
    """Start who may start now; `freed` says whether anything has ended since the last pass."""
    everybody = _wake(s, now) or freed or s.c[RESERVED] == 0
    s.c[RESERVED] = 1
    if s.c[WAITING] == 0 or s.c[FREE] == 0:
        return
    _count_gres(s)
    s.rules.room[:] = UNKNOWN
    if not _anybody_has_room(s, now, everybody):
        return
    _count_use(s)
    rows = in_order(s, now)
    had_room, able = np.empty(len(rows), np.bool_), 0
    for i in range(len(rows)):
        had_room[i] = (everybody or s.job[rows[i]].eligible == now) and has_room(s, rows[i])
        able += had_room[i]
    p = _empty(s, rows)
    planned, seen = False, 0
    closed = len(s.rules.closure) > 0
    node, cores = np.empty(len(s.node), np.int32), np.empty(len(s.node), np.int32)
    window = now + s.rules.terms[0].window
    for k in range(len(rows)):
        if able == 0 or seen >= s.rules.terms[0].depth:
            return
        job, able = rows[k], able - had_room[k]
        may = had_room[k] and has_room(s, job)
        if is_limited(s, job):
            continue
        seen += 1
        if not planned and (closed or not may):
            _plan_running(s, p, now)
            planned = True
        start, count = find_start(s, p, job, s.job[job].planned, now, window, node, cores)
        if start <= now and may:
            for i in range(count):
                part = s.slot[job].first + i
                s.part[part].node, s.part[part].cores = node[i], cores[i]
            s.slot[job].stop = s.slot[job].first + count
            start_job(s, job, now)
            _use(s, job, 1.0)
            _take_gres(s, job, -1)
            s.rules.room[:] = UNKNOWN
            if planned:
                for i in range(count):
                    _free_part(s, p, job, node[i], cores[i], now + s.job[job].planned)
        elif start < window:
            _reserve(s, p, job, start, s.job[job].planned, node, cores, count)


@borrowing
def _anybody_has_room(s: State, now: float, everybody: bool) -> bool:
    """Has any of those that wait room, or any of those that have come just now? They are the last of the queue."""
    if everybody:
        position = s.c[HEAD]
        while position < s.c[TAIL]:
            if has_room(s, s.queue[position].job):
                return True
            position = next_waiting(s, position + 1)
        return False
    for position in range(s.c[TAIL] - 1, s.c[HEAD] - 1, -1):
        if s.queue[position].cores == NOBODY:
            continue
        if s.job[s.queue[position].job].eligible < now:
            return False
        if has_room(s, s.queue[position].job):
            return True
    return False


@borrowing
def has_room(s: State, job: int) -> bool:
    """Is there room for it beside what runs, if nobody else is to have it?"""
    rule = s.rules.rule[job]
    if s.rules.room[rule.shape] != UNKNOWN:
        return s.rules.room[rule.shape] == ROOM
    wide, each, found = rule.wide, 0, 0
    if wide > 0:
        each = -(-s.job[job].cores // wide)
    else:
        wide = s.job[job].cores
    for k in range(s.rules.reach_at[rule.reach], s.rules.reach_at[rule.reach + 1]):
        node = s.rules.reach_node[k]
        if rule.gres >= 0 and s.rules.gres[node, rule.gres] < rule.gres_each:
            continue
        if each == 0:
            found += s.node[node].free
        elif node_fits(s, node, each, s.job[job].memory):
            found += 1
        if found >= wide:
            break
    s.rules.room[rule.shape] = ROOM if found >= wide else NO_ROOM
    return found >= wide


@allocating
def in_order(s: State, now: float) -> NDArray[np.int32]:
    """Those that wait, the highest priority first, and of equals the first that came."""
    share_anew(s, now)
    rows, values = np.empty(s.c[WAITING], np.int32), np.empty(s.c[WAITING])
    count, position = 0, s.c[HEAD]
    while position < s.c[TAIL]:
        rows[count] = s.queue[position].job
        values[count] = -priority(s, rows[count], now)
        count += 1
        position = next_waiting(s, position + 1)
    return rows[np.argsort(values[:count], kind="mergesort")]


# ------------------------------------------------------------------------------------------------------------- limits


@borrowing
def is_limited(s: State, job: int) -> bool:
    """Would its start lift a group above its ceiling? Not one that nobody of the group uses: it did start."""
    code = s.rules.rule[job].limits
    if code < 0:
        return False
    for place in range(s.rules.groups.shape[1]):
        group = s.rules.groups[code, place]
        if group < 0:
            break
        for at in range(s.rules.need.shape[1]):
            used, wants = s.rules.used[group, at], s.rules.need[job, at]
            if wants > 0 and used > 0 and used + wants > s.rules.ceiling[code, place, at] * SLACK:
                return True
    return False


@borrowing
def _use(s: State, job: int, sign: float) -> None:
    """One more, or less, in its groups."""
    code = s.rules.rule[job].limits
    if code < 0:
        return
    for place in range(s.rules.groups.shape[1]):
        group = s.rules.groups[code, place]
        if group < 0:
            break
        for at in range(s.rules.need.shape[1]):
            s.rules.used[group, at] += sign * s.rules.need[job, at]


@borrowing
def _count_use(s: State) -> None:
    """What each group uses now; guests count, as they do in Slurm."""
    s.rules.used[:] = 0.0
    for i in range(s.c[RUN]):
        _use(s, s.run[i].job, 1.0)
    for i in range(s.c[GUESTS]):
        _use(s, s.job[i].guest_row, 1.0)


# --------------------------------------------------------------------------------------------------------------- nodes


@borrowing
def _take_gres(s: State, job: int, sign: int) -> None:
    """Its gres are free, or are not, on its nodes."""
    kind = s.rules.rule[job].gres
    if kind >= 0:
        for i in range(s.slot[job].first, s.slot[job].stop):
            s.rules.gres[s.part[i].node, kind] += sign * s.rules.rule[job].gres_each


@borrowing
def _count_gres(s: State) -> None:
    """What is free of gres now."""
    if s.rules.gres.shape[1] == 0:
        return
    for node in range(len(s.node)):
        for kind in range(s.rules.gres.shape[1]):
            s.rules.gres[node, kind] = s.rules.node_gres[node, kind]
    for i in range(s.c[RUN]):
        _take_gres(s, s.run[i].job, -1)


@allocating
def _empty(s: State, rows: NDArray[np.int32]) -> Profile:
    """A profile with room for what runs, what is closed and what a pass may reserve."""
    size = 2 * len(s.rules.closure)
    for i in range(s.c[RUN]):
        size += s.slot[s.run[i].job].stop - s.slot[s.run[i].job].first
    for i in range(s.c[GUESTS]):
        size += s.job[s.job[i].guest_row].cores
    for job in rows[: s.rules.terms[0].depth]:
        wide = s.rules.rule[job].wide
        size += 2 * (wide if wide > 0 else min(s.job[job].cores, len(s.node)))
    first = np.empty(len(s.node), np.int32)
    first[:] = -1
    return Profile(np.empty(size + 1, CHANGE), first, np.zeros(1, np.int64))


@borrowing
def _free_part(s: State, p: Profile, job: int, node: int, cores: int, end: float) -> None:
    """A part of a job is free from its end on."""
    rule = s.rules.rule[job]
    enter(p, node, end, cores, cores * s.job[job].memory, rule.gres, rule.gres_each)


@borrowing
def _plan_running(s: State, p: Profile, now: float) -> None:
    """What runs ends as planned, guests at their limits; who is overdue ends at any moment, and is not gone now."""
    for i in range(s.c[RUN]):
        job = s.run[i].job
        end = max(now + 1.0, s.run[i].end)
        for k in range(s.slot[job].first, s.slot[job].stop):
            _free_part(s, p, job, s.part[k].node, s.part[k].cores, end)
    for i in range(s.c[GUESTS]):
        job = s.job[i].guest_row
        if s.c[MEMORY] == 0 or s.job[job].memory <= 0:
            continue
        core = s.job[job].guest_first
        while core >= 0:  # of its cores on a node only the memory is anybody's else
            end = max(now + 1.0, s.job[job].limit_end)
            enter(p, s.core[core].node, end, 0, s.job[job].memory, -1, 0)
            core = s.core[core].guest_next
    close_nodes(s, p, now)


@borrowing
def close_nodes(s: State, p: Profile, now: float) -> None:
    """Closed nodes have nothing while they are."""
    for i in range(len(s.rules.closure)):
        node, begin, end = s.rules.closure[i].node, s.rules.closure[i].begin, s.rules.closure[i].end
        if end <= now or (begin > now and not s.rules.closure[i].foreseen):
            continue
        # what is closed already has been from before now on
        enter(p, node, max(begin, now), -CLOSED, 0.0, -1, 0)
        if s.rules.closure[i].foreseen:
            enter(p, node, end, CLOSED, 0.0, -1, 0)


@borrowing
def _reserve(
    s: State,
    p: Profile,
    job: int,
    start: float,
    lasts: float,
    node: NDArray[np.int32],
    cores: NDArray[np.int32],
    count: int,
) -> None:
    """Nobody else may have these cores from `start` on, while the job lasts."""
    rule = s.rules.rule[job]
    for i in range(count):
        memory = cores[i] * s.job[job].memory
        enter(p, node[i], start, -cores[i], -memory, rule.gres, -rule.gres_each)
        enter(p, node[i], start + lasts, cores[i], memory, rule.gres, rule.gres_each)


# ----------------------------------------------------------------------------------------------------------- estimates


@allocating
def plan_starts(
    s: State,
    since: NDArray[np.float64],
    rows: NDArray[np.int32],
    lasts: NDArray[np.float64],
    run_end: NDArray[np.float64],
    estimate: NDArray[np.float64],
    now: float,
) -> None:
    """When each of some jobs would start, in the order of `rows`, each no sooner than its `since`, if it lasts so long
    and what runs ends at `run_end` (a row a running job, as in `State.run`), into `estimate`; NaN where a limit holds
    it, or there is no room within the window."""
    _count_gres(s)
    _count_use(s)
    p = _empty(s, rows)
    for i in range(s.c[RUN]):
        job = s.run[i].job
        for k in range(s.slot[job].first, s.slot[job].stop):
            _free_part(s, p, job, s.part[k].node, s.part[k].cores, max(now + 1.0, run_end[i]))
    close_nodes(s, p, now)
    node, cores = np.empty(len(s.node), np.int32), np.empty(len(s.node), np.int32)
    for i in range(min(len(rows), s.rules.terms[0].depth)):
        job = rows[i]
        estimate[job] = np.nan
        if is_limited(s, job):
            continue
        start, count = find_start(s, p, job, lasts[i], max(now, since[i]), NEVER, node, cores)
        if start < NEVER:
            estimate[job] = start
            _reserve(s, p, job, start, lasts[i], node, cores, count)


@allocating
def estimate_starts(s: State, estimate: NDArray[np.float64]) -> None:
    """What Slurm's backfill would print as the start of each waiting job that it looks at, into `estimate`."""
    now = s.f[NOW]
    rows = in_order(s, now)
    since, lasts, run_end = np.full(len(rows), now), np.empty(len(rows)), np.empty(s.c[RUN])
    for i in range(len(rows)):
        lasts[i] = s.job[rows[i]].planned
    for i in range(s.c[RUN]):
        run_end[i] = s.run[i].end
    plan_starts(s, since, rows, lasts, run_end, estimate, now)

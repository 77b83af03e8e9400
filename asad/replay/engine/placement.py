"""Placement: which cores, and how much memory of each node, a batch job takes."""

from __future__ import annotations

import numpy as np

from asad.compiling import borrowing, compiled
from asad.replay.engine.simulation_state import LOWEST, MEMORY, NEVER, State, note_change


@compiled(inline="always")
def _most(cores: int, memory_free: float, memory: float) -> int:
    """How many of so many cores a job can have that needs so much memory for each (0: it does not count).

    Free memory is inf on a node whose memory is not known: any job fits there.
    """
    if memory <= 0 or memory_free == NEVER:
        return cores
    return min(cores, int(memory_free / memory + 1e-9))


@borrowing
def place(s: State, job: int) -> None:
    """Take the lowest free cores (and their memory) for a batch job that is known to fit."""
    wanted = s.job[job].cores
    last, head = -1, -1
    if not s.c[MEMORY]:  # else what is free may be hidden for a moment
        while s.node[s.c[LOWEST]].free == 0:
            s.c[LOWEST] += 1
    for node in range(s.c[LOWEST], len(s.node)):
        take = min(s.node[node].free, wanted)
        if s.c[MEMORY]:
            take = _most(take, s.node[node].memory_free, s.job[job].memory)
        if take <= 0:
            continue
        wanted -= take
        last, head = _take(s, job, node, take, last, head)
        if wanted == 0:
            break


@borrowing
def place_parts(s: State, job: int) -> None:
    """Take the cores of its recorded parts, which are known to fit."""
    last, head = -1, -1
    for i in range(s.slot[job].first, s.slot[job].stop):
        last, head = _take(s, job, s.part[i].node, s.part[i].cores, last, head)


@borrowing
def _take(s: State, job: int, node: int, take: int, last: int, head: int) -> tuple[int, int]:
    """Take so many free cores of a node, those without guests first.

    `last` is the job's core before them, `head` its first one on the node before, -1 for none; returns both for the
    next node.
    """
    s.node[node].free -= take
    s.node[node].memory_free -= take * s.job[job].memory
    held = take
    note_change(s, node)
    for beside_guests in (False, True):
        core = s.node[node].first
        while take > 0 and core < s.node[node].first + s.node[node].cores:
            if s.core[core].owner < 0 and (s.core[core].guest >= 0) == beside_guests:
                s.core[core].owner = job
                s.core[core].owner_next = -1
                s.core[core].use = s.job[job].demand
                s.core[core].peak = np.nan
                s.core[core].owner_held, s.core[core].owner_skip = held, -1
                if held > 0:
                    if head >= 0:
                        s.core[head].owner_skip = core
                    head, held = core, 0
                if last < 0:
                    s.job[job].owner_first = core
                else:
                    s.core[last].owner_next = core
                last = core
                take -= 1
            core += 1
        if s.node[node].guests == 0:
            break
    return last, head


@borrowing
def node_fits(s: State, node: int, cores: int, memory: float) -> bool:
    """Has a node so many free cores, and so much memory for each?"""
    free = s.node[node].memory_free
    return s.node[node].free >= cores and (s.c[MEMORY] == 0 or _most(cores, free, memory) == cores)


@borrowing
def release(s: State, job: int) -> None:
    """Release what a batch job holds."""
    core = s.job[job].owner_first
    while core >= 0:
        node = s.core[core].node
        s.c[LOWEST] = min(s.c[LOWEST], node)
        note_change(s, node)
        s.core[core].owner = -1
        s.core[core].use = 0.0
        s.core[core].peak = np.nan
        s.node[node].free += 1
        s.node[node].memory_free += s.job[job].memory
        core = s.core[core].owner_next


@borrowing
def fits(s: State, job: int, spare: bool) -> bool:
    """Does `job` fit on what is free now, cores and memory, or on the `spare` part of that?"""
    wanted, memory = s.job[job].cores, s.job[job].memory
    for i in range(len(s.node)):
        if spare:
            wanted -= _most(s.node[i].spare, s.node[i].memory_spare, memory)
        else:
            wanted -= _most(s.node[i].free, s.node[i].memory_free, memory)
        if wanted <= 0:
            return True
    return False


@borrowing
def keep_clear(s: State, head: int, reserved: bool) -> None:
    """What is spare now, so that the head still fits later.

    The head takes first what is not free now, as the extra processors of EASY are counted; then it costs the others
    no more than it must, and nothing else than without memory if there is plenty.
    """
    memory = s.job[head].memory
    wanted = s.job[head].cores if reserved else 0
    for node in range(len(s.node)):
        s.node[node].spare = s.node[node].later
        s.node[node].memory_spare = s.node[node].memory_later
    for busy_now in (True, False):
        for node in range(len(s.node)):
            take = min(s.node[node].spare, wanted)
            if busy_now:
                take = min(take, s.node[node].later - s.node[node].free)
            take = _most(take, s.node[node].memory_spare, memory)
            if take > 0:
                wanted -= take
                s.node[node].spare -= take
                s.node[node].memory_spare -= take * memory
    for node in range(len(s.node)):
        s.node[node].spare = min(s.node[node].spare, s.node[node].free)
        s.node[node].memory_spare = min(s.node[node].memory_spare, s.node[node].memory_free)

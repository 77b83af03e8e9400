"""Lending: jobs that run as guests on the cores of batch jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.replay.engine.event_heap import push
from asad.replay.engine.held_back import leave_queue
from asad.replay.engine.queue import dequeue
from asad.replay.engine.rates import aim, mark_leads, mark_nodes, refresh, settle, touch
from asad.replay.engine.simulation_state import (
    ADMISSION,
    CHANGED,
    DONE,
    EVERY,
    GUEST,
    GUESTS,
    MEMORY,
    NOW,
    PENDING,
    RESERVED,
    RUNNING,
    SETTLE,
    STAMP,
    WITHHELD,
    State,
    is_job,
    note_change,
)


@borrowing
def _undecide(s: State, guest: int, nodes: int) -> int:
    """Its share is void; so all its nodes are touched, beside the `nodes` that are already. Their new number."""
    if not np.isnan(s.job[guest].share):
        s.job[guest].share = np.nan
        core = s.job[guest].guest_first
        while core >= 0:
            nodes = touch(s, s.core[core].node, nodes)
            core = s.core[core].guest_next
    return nodes


@borrowing
def meet_guests(s: State, job: int, now: float) -> None:
    """A batch job has started on cores where guests are: it is their host until shares are decided anew."""
    nodes = mark_nodes(s, s.job[job].owner_first, False)
    if nodes == 0:
        return
    s.job[job].was_host = True
    mark_leads(s, nodes)
    core = s.job[job].owner_first
    while core >= 0:
        guest = s.core[core].guest
        if guest >= 0 and not s.job[guest].pooled:
            if s.job[guest].host < 0:
                s.job[guest].host = job
            nodes = _undecide(s, guest, nodes)
        core = s.core[core].owner_next
    refresh(s, nodes, now)


@borrowing
def leave_guests(s: State, job: int, now: float) -> None:
    """A batch job has left cores where guests are: they take what is idle, or the host on their other cores."""
    nodes = mark_nodes(s, s.job[job].owner_first, False)
    if nodes == 0:
        return
    mark_leads(s, nodes)
    core = s.job[job].owner_first
    while core >= 0:
        guest = s.core[core].guest
        if guest >= 0 and s.job[guest].host == job:  # of a pair
            s.job[guest].host = -1
            nodes = _undecide(s, guest, nodes)
            other = s.job[guest].guest_first
            while other >= 0:
                if s.core[other].owner >= 0:
                    s.job[guest].host = s.core[other].owner
                    break
                other = s.core[other].guest_next
        core = s.core[core].owner_next
    refresh(s, nodes, now)


@borrowing
def spread(s: State, guest: int, nodes: NDArray[np.int32], cores: NDArray[np.int32]) -> bool:
    """Deal the guest's cores evenly over `nodes`, one guest a core, into `cores`; False if they do not fit."""
    cores[:] = 0
    if not is_job(s, guest):
        return False
    s.c[STAMP] += 1
    for i in range(len(nodes)):
        if nodes[i] < 0 or nodes[i] >= len(s.node) or s.node[nodes[i]].stamp == s.c[STAMP]:
            return False
        s.node[nodes[i]].stamp = s.c[STAMP]
    wanted = s.job[guest].cores
    while wanted > 0:
        hungry = 0
        for i in range(len(nodes)):
            if cores[i] < s.node[nodes[i]].cores - s.node[nodes[i]].guests:
                hungry += 1
        if hungry == 0:
            return False
        each = max(1, wanted // hungry)
        for i in range(len(nodes)):
            take = min(each, s.node[nodes[i]].cores - s.node[nodes[i]].guests - cores[i], wanted)
            cores[i] += take
            wanted -= take
    return True


@borrowing
def has_open_cores(s: State) -> bool:
    """Is there a node with a core that no guest has, and wholly held by one batch job where pairs alone lend?"""
    for i in range(len(s.node)):
        if s.c[EVERY] and s.node[i].guests < s.node[i].cores:
            return True
        first = s.node[i].first
        if s.node[i].guests < s.node[i].cores and s.node[i].free == 0:
            owner = s.core[first].owner
            whole = True
            for core in range(first + 1, first + s.node[i].cores):
                if s.core[core].owner != owner:
                    whole = False
                    break
            if whole:
                return True
    return False


@borrowing
def _refuse(s: State, guest: int, host: int, nodes: NDArray[np.int32], cores: NDArray[np.int32]) -> int:
    """Why the guest cannot start there, by the numbers of `lend`; 0 if it can. `host` is -1 for a guest of pools.

    `spread` has dealt its cores over the nodes: they are some, and each once.
    """
    if s.job[guest].state != PENDING:
        return 7 if s.job[guest].state == WITHHELD else 1
    if host != -1 and (not is_job(s, host) or s.job[host].state != RUNNING):
        return 2
    for i in range(len(nodes)):
        node = nodes[i]
        if s.node[node].guests > 0 and s.node[node].pools == (host >= 0):
            return 8
        open_cores = 0
        for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            if host >= 0 and s.core[core].owner != host:
                return 3
            if s.core[core].guest < 0:
                open_cores += 1
        if open_cores < cores[i]:
            return 4
        if s.c[MEMORY] and s.job[guest].memory * cores[i] > s.node[node].memory_free * (1 + 1e-9):
            return 5
    return 0


@borrowing
def _join_guests(s: State, guest: int, nodes: NDArray[np.int32], cores: NDArray[np.int32]) -> None:
    """Take the first open cores of each node, and memory, for a guest that is known to fit."""
    last, head_before = -1, -1
    for i in range(len(nodes)):
        node = nodes[i]
        take = cores[i]
        lead = True
        note_change(s, node)
        s.node[node].guests += take
        s.node[node].pools = s.job[guest].pooled
        s.node[node].memory_free -= take * s.job[guest].memory
        end = s.node[node].first + s.node[node].cores
        for held in (False, True):  # as Slurm does, cores that no batch job holds first
            core = s.node[node].first
            while take > 0 and core < end:
                if s.core[core].guest < 0 and (s.core[core].owner >= 0) == held:
                    s.core[core].guest = guest
                    s.core[core].guest_next = -1
                    s.core[core].lead = s.core[core].head = lead
                    if lead:
                        s.core[core].guest_skip = -1
                        if head_before >= 0:
                            s.core[head_before].guest_skip = core
                        head_before = core
                        s.core[core].wants = cores[i] * s.job[guest].demand
                        s.core[core].quota = cores[i]
                        if len(s.vary):
                            s.vary[len(s.core) + core, 1] = 0.0
                    lead = False
                    if last < 0:
                        s.job[guest].guest_first = core
                    else:
                        s.core[last].guest_next = core
                    last = core
                    take -= 1
                core += 1
    s.job[guest].guest_at = s.c[GUESTS]
    s.job[s.c[GUESTS]].guest_row = guest
    s.c[GUESTS] += 1


@borrowing
def end_guest(s: State, guest: int, now: float) -> None:
    """Release what a guest holds; who shared with it goes on faster."""
    last = s.c[GUESTS] - 1
    # the last takes its place, so that the list of guests has no gaps
    s.job[s.job[guest].guest_at].guest_row = s.job[last].guest_row
    s.job[s.job[last].guest_row].guest_at = s.job[guest].guest_at
    s.c[GUESTS] = last
    nodes = mark_nodes(s, s.job[guest].guest_first, True)
    core = s.job[guest].guest_first
    while core >= 0:
        node = s.core[core].node
        s.core[core].guest = -1
        s.core[core].lead = s.core[core].head = False
        note_change(s, node)
        s.node[node].guests -= 1
        s.node[node].memory_free += s.job[guest].memory
        core = s.core[core].guest_next
    s.job[guest].state = DONE
    refresh(s, nodes, now)


@borrowing
def lend(
    s: State,
    guest: int,
    host: int,
    share: float,
    capped: bool,
    nodes: NDArray[np.int32],
    cores: NDArray[np.int32],
) -> int:
    """Start the waiting job `guest` now on `cores[i]` cores of each of `nodes[i]`.

    It draws from their pools, and `share` is the demand expected of it, where `host` is -1; else `host` holds them all
    wholly and lends it that share. Returns 0 if done, else why not: 1 not waiting, 2 host not running, 3 a node is not
    wholly held, 4 no free core (one guest a core), 5 memory, 6 the cores do not add up, 7 it is deferred or beyond its
    array's throttle, 8 guests of the other kind are there.
    """
    refused = _refuse(s, guest, host, nodes, cores)
    if refused:
        return refused
    now = s.f[NOW]
    dequeue(s, guest)
    s.job[guest].state = GUEST
    if s.c[ADMISSION]:
        leave_queue(s, guest)
    s.job[guest].start = now
    s.job[guest].since = now
    s.job[guest].left = s.job[guest].work
    s.job[guest].rate = 1.0
    s.job[guest].wanted = np.nan
    s.job[guest].limit_end = now + s.job[guest].limit
    s.job[guest].host = host
    s.job[guest].pooled = host < 0
    s.job[guest].share = np.nan if host < 0 else share
    s.job[guest].offered = share if host < 0 else np.nan
    s.job[guest].capped = capped
    s.job[guest].was_guest = True
    for i in range(len(nodes)):
        for core in range(s.node[nodes[i]].first, s.node[nodes[i]].first + s.node[nodes[i]].cores):
            if s.core[core].owner >= 0:
                s.job[s.core[core].owner].was_host = True
    _join_guests(s, guest, nodes, cores)
    push(s, guest, now + s.job[guest].work)
    settle(s, guest, now)
    aim(s, guest)
    touched = mark_nodes(s, s.job[guest].guest_first, True)
    refresh(s, touched, now)
    # the reservation may have been for this very job: the next pass makes it anew
    s.c[RESERVED] = 0
    s.c[SETTLE] = 1
    s.c[CHANGED] = 1
    return 0


@borrowing
def set_share(s: State, guest: int, share: float, capped: bool) -> int:
    """Change a running guest's share. Returns 0, or 1 if it does not run as a guest."""
    if not is_job(s, guest) or s.job[guest].state != GUEST or s.job[guest].pooled:
        return 1
    s.job[guest].share = share
    s.job[guest].capped = capped
    refresh(s, mark_nodes(s, s.job[guest].guest_first, True), s.f[NOW])
    return 0

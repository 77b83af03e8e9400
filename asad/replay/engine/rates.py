"""Contention: how fast jobs run that share cores, and when they end by that.

The model is in docs/explanation/contention.md; μ are the constants of `asad.contention`.
"""

from __future__ import annotations

import numpy as np

from asad.compiling import borrowing
from asad.replay.engine.event_heap import move
from asad.replay.engine.simulation_state import (
    BOUND,
    CHANGED,
    GUEST,
    GUESTS,
    KILL,
    MEMORY,
    MU_GUEST_CPU,
    MU_GUEST_MEMORY,
    MU_HOST_CPU,
    MU_HOST_MEMORY,
    NEVER,
    STAMP,
    WIDENED,
    State,
)


@borrowing
def _mu(s: State, node: int, job: int, cpu: int, memory: int) -> float:
    """μ between its measured values for CPU-bound and memory-bound pairs, by the node's memory in use.

    Where it is known who is bound by memory bandwidth, by whether the job shares the node with another such.
    """
    if s.c[BOUND]:
        if s.job[job].bound:
            for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
                other = s.core[core].owner if s.job[job].state == GUEST else s.core[core].guest
                if other >= 0 and s.job[other].bound:
                    return float(s.f[memory])
        return float(s.f[cpu])
    in_use = 0.5
    if s.c[MEMORY] and 0 < s.node[node].memory < NEVER:  # of a node whose memory is not known, halfway
        in_use = 1.0 - s.node[node].memory_free / s.node[node].memory
        if s.node[node].pools:
            in_use = _memory_beside(s, node, job) / s.node[node].memory
    return s.f[cpu] + (s.f[memory] - s.f[cpu]) * min(1.0, max(0.0, in_use))


@borrowing
def _memory_beside(s: State, node: int, job: int) -> float:
    """Bytes on a node of a job and of those with whom it shares cores: a host's guests, or a guest's hosts.

    What batch jobs take from each other they take without lending too, so it is in the log's run times.
    """
    guest = s.job[job].state == GUEST
    memory = 0.0
    for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
        owner, other = s.core[core].owner, s.core[core].guest
        if owner >= 0 and (guest or owner == job):
            memory += s.job[owner].memory
        if other >= 0 and (not guest or other == job):
            memory += s.job[other].memory
    return memory


@borrowing
def _lent(s: State, guest: int, host: int, node: int) -> float:
    """Cores of a node that the host lends the guest there: its share, or its part of what the host leaves idle if that
    is less, and never more than it sits on."""
    here = 0
    overlap = 0
    claims = 0.0
    for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
        if s.core[core].owner == host:
            here += 1
            if s.core[core].guest == guest:
                overlap += 1
            if s.core[core].lead:
                claim = s.job[s.core[core].guest].share
                claims += 1.0 if np.isnan(claim) else claim
    mine = 1.0 if np.isnan(s.job[guest].share) else s.job[guest].share
    if not s.job[guest].capped or np.isnan(s.job[guest].share):
        # the host comes first and the guests divide what it leaves
        leftover = max(0.0, 1.0 - s.job[host].demand)
        if claims > leftover:
            mine *= leftover / claims
    return min(mine * here, float(overlap))


@borrowing
def _guest_rate(s: State, guest: int) -> float:
    """Rate of a guest: the slowest of its nodes; on each, idle cores plus what the hosts of its cores lend."""
    worst = 1.0
    got = 0.0
    core = s.job[guest].guest_first
    while core >= 0:
        node = s.core[core].node
        capacity = 0.0
        held = 0
        beside = False
        while core >= 0 and s.core[core].node == node:
            held += 1
            host = s.core[core].owner
            if host < 0:
                capacity += 1.0
            else:
                beside = True
                if s.core[core].lead:
                    lent = _lent(s, guest, host, node)
                    capacity += lent
                    got += lent
            core = s.core[core].guest_next
        rate = min(1.0, capacity / (held * s.job[guest].demand)) if s.job[guest].demand > 0 else 1.0
        if beside:
            rate *= _mu(s, node, guest, MU_GUEST_CPU, MU_GUEST_MEMORY)
        worst = min(worst, rate)
    s.job[guest].lending = got
    return worst


@borrowing
def _set_level(s: State, node: int) -> None:
    """Divide what batch jobs leave idle on a node equally among its guests, water-filled: nobody gets more than it
    wants, or than its quota."""
    idle, left = float(s.node[node].cores), 0
    for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
        idle -= s.core[core].use
        left += s.core[core].head
    idle = max(0.0, idle)
    level = -1.0
    while left > 0:
        rising, count = idle / left, 0
        for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            if s.core[core].head:
                want = min(s.core[core].wants, s.core[core].quota)
                if level < want <= rising:
                    idle -= want
                    count += 1
        if count == 0:
            s.node[node].level = rising
            return
        level = rising
        left -= count
    s.node[node].level = np.inf


@borrowing
def _pooled_rate(s: State, guest: int) -> float:
    """Rate of a guest that draws from pools: the slowest of its nodes.

    What has changed of it is in `low` and `lifted` of its row; only where the slowest node became faster are all looked
    at.
    """
    fresh = np.isnan(s.job[guest].wanted)
    if fresh:
        s.job[guest].wanted = 0.0
        head = s.job[guest].guest_first
        while head >= 0:
            s.job[guest].wanted += s.core[head].wants
            head = s.core[head].guest_skip
    worst = s.job[guest].rate
    if s.job[guest].low <= worst and not fresh:
        worst = s.job[guest].low
    elif s.job[guest].lifted or fresh:
        worst = 1.0
        head = s.job[guest].guest_first
        while head >= 0:
            worst = min(worst, s.core[head].rate)
            head = s.core[head].guest_skip
    s.job[guest].lending = worst * s.job[guest].wanted
    return worst


@borrowing
def _see_node(s: State, node: int, head: int) -> None:
    """What a guest gets of what it wants on one of its nodes, which has changed; `head` is its first core there."""
    guest, want = s.core[head].guest, s.core[head].wants
    most = s.node[node].level if s.c[WIDENED] else _idle_on(s, head)
    got = min(want, s.core[head].quota, most)
    rate = got / want if want > 0 else 1.0
    if s.node[node].free < s.node[node].cores:
        rate *= _mu(s, node, guest, MU_GUEST_CPU, MU_GUEST_MEMORY)
    if s.core[head].rate <= s.job[guest].rate < rate:
        s.job[guest].lifted = True
    s.job[guest].low = min(s.job[guest].low, rate)
    s.core[head].rate = rate


@borrowing
def _idle_on(s: State, head: int) -> float:
    """What the owners of a guest's cores on a node leave idle of them, from its first there on."""
    node, core, idle = s.core[head].node, head, 0.0
    while core >= 0 and s.core[core].node == node:
        idle += 1.0 - s.core[core].use  # the owner's; 0 on a free core
        core = s.core[core].guest_next
    return idle


@borrowing
def _given(s: State, node: int, use: float, held: int) -> float:
    """Cores' worth of CPU that the guests of a node's pool get of `held` cores there whose owner uses `use` of each."""
    if s.node[node].stale:
        idle, got = 0.0, 0.0
        for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            idle += 1.0 - s.core[core].use
            if s.core[core].head:
                got += s.job[s.core[core].guest].rate * s.core[core].wants
        s.node[node].given = min(1.0, got / idle) if idle > 0 else 0.0
        s.node[node].stale = False
    return s.node[node].given * held * (1.0 - use)


@borrowing
def _host_rate(s: State, host: int) -> float:
    """Rate of a batch job: 1 alone; beside guests μ, and where quotas bind both what they leave it."""
    worst = 1.0
    gives = 0.0
    core = s.job[host].owner_first
    while core >= 0:
        node = s.core[core].node
        if s.node[node].guests == 0:
            core = s.core[core].owner_skip
            continue
        if s.node[node].pools:
            gives += _given(s, node, s.core[core].use, s.core[core].owner_held)
            worst = min(worst, _mu(s, node, host, MU_HOST_CPU, MU_HOST_MEMORY))
            core = s.core[core].owner_skip
            continue
        quota = 0.0
        shared = False
        while core >= 0 and s.core[core].node == node:
            guest = s.core[core].guest
            if guest >= 0:
                shared = True
                if s.core[core].lead:
                    gives += _lent(s, guest, host, node)
                    if s.job[guest].capped and not np.isnan(s.job[guest].share):
                        quota += s.job[guest].share
            core = s.core[core].owner_next
        if shared:
            rate = min(1.0, max(0.0, 1.0 - quota) / s.job[host].demand) if s.job[host].demand > 0 else 1.0
            worst = min(worst, rate * _mu(s, node, host, MU_HOST_CPU, MU_HOST_MEMORY))
    s.job[host].lending = gives
    return worst


@borrowing
def settle(s: State, job: int, now: float) -> None:
    """Account the work done since the last look."""
    passed = now - s.job[job].since
    s.job[job].left -= s.job[job].rate * passed
    s.job[job].lost += (1.0 - s.job[job].rate) * passed
    if s.job[job].state == GUEST:
        s.job[job].lent += s.job[job].lending * passed
    else:
        s.job[job].given += s.job[job].lending * passed
    s.job[job].since = now


@borrowing
def aim(s: State, job: int) -> None:
    """Set the job's end event from its work left, its rate and, where jobs are killed at it, its limit."""
    end = s.job[job].since + s.job[job].left / max(s.job[job].rate, 1e-9)
    if s.c[KILL]:  # who ran past its limit in the log was allowed to
        end = min(end, s.job[job].limit_end + max(0.0, s.job[job].work - s.job[job].limit))
    move(s, job, max(end, s.job[job].since))


@borrowing
def _set_rate(s: State, job: int, rate: float, now: float) -> None:
    if rate != s.job[job].rate:
        s.job[job].rate = rate
        aim(s, job)
        s.c[CHANGED] = 1


@borrowing
def touch(s: State, node: int, count: int) -> int:
    """A node into the scratch list, unless it is one of the `count` that are in it already; how many are then."""
    if s.node[node].stamp == s.c[STAMP]:
        return count
    s.node[node].stamp = s.c[STAMP]
    s.node[count].touched = node
    return count + 1


@borrowing
def mark_nodes(s: State, first: int, of_guest: bool) -> int:
    """The nodes of a job's cores into the scratch list (of a batch job: those with guests); how many."""
    s.c[STAMP] += 1
    count = 0
    core = first
    while core >= 0:
        node = s.core[core].node
        if of_guest or s.node[node].guests > 0:
            count = touch(s, node, count)
        core = s.core[core].guest_skip if of_guest else s.core[core].owner_skip
    return count


@borrowing
def mark_guest_nodes(s: State) -> int:
    """The nodes of all guests into the scratch list; how many."""
    s.c[STAMP] += 1
    count = 0
    for i in range(s.c[GUESTS]):
        core = s.job[s.job[i].guest_row].guest_first
        while core >= 0:
            count = touch(s, s.core[core].node, count)
            core = s.core[core].guest_skip
    return count


@borrowing
def mark_leads(s: State, nodes: int) -> None:
    """Owners have changed on the touched nodes: a guest that straddles two hosts claims its share of each."""
    for i in range(nodes):
        first = s.node[s.node[i].touched].first
        for core in range(first, first + s.node[s.node[i].touched].cores):
            guest, owner = s.core[core].guest, s.core[core].owner
            if guest >= 0:
                before = first
                while s.core[before].guest != guest or s.core[before].owner != owner:
                    before += 1
                s.core[core].lead = before == core


@borrowing
def _add_hosts(s: State, guest: int, count: int, now: float) -> int:
    """A gang's rate has changed, and with it what the hosts on all of its nodes give: those that are not among the
    `count` affected jobs yet are added; how many there are then."""
    head = s.job[guest].guest_first
    while head >= 0:
        node = s.core[head].node
        s.node[node].stale = True
        for other in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            host = s.core[other].owner
            if host >= 0 and s.job[host].stamp != s.c[STAMP]:
                s.job[host].stamp = s.c[STAMP]
                settle(s, host, now)
                s.job[count].affected = host
                count += 1
            if host >= 0 and s.core[other].owner_held == s.node[node].cores:
                break  # the node is all its own
        head = s.core[head].guest_skip
    return count


@borrowing
def refresh(s: State, nodes: int, now: float) -> None:
    """Rates anew for everything on the touched nodes."""
    s.c[STAMP] += 1
    jobs = 0
    for i in range(nodes):
        node = s.node[i].touched
        s.node[node].stale = True
        if s.node[node].pools:
            _set_level(s, node)
        for core in range(s.node[node].first, s.node[node].first + s.node[node].cores):
            for job in (s.core[core].owner, s.core[core].guest):
                if job >= 0 and s.job[job].stamp != s.c[STAMP]:
                    s.job[job].stamp = s.c[STAMP]
                    s.job[jobs].affected = job
                    jobs += 1
                    s.job[job].low, s.job[job].lifted = NEVER, False
            if s.node[node].pools and s.core[core].head:
                _see_node(s, node, core)
    for i in range(jobs):
        settle(s, s.job[i].affected, now)
    last = jobs
    for i in range(jobs):
        job = s.job[i].affected
        if s.job[job].state == GUEST:
            before = s.job[job].rate
            _set_rate(s, job, _pooled_rate(s, job) if s.job[job].pooled else _guest_rate(s, job), now)
            if s.job[job].pooled and s.job[job].rate != before:
                last = _add_hosts(s, job, last, now)
    for i in range(last):  # what hosts give is known when their guests' rates are
        job = s.job[i].affected
        if s.job[job].state != GUEST:
            _set_rate(s, job, _host_rate(s, job), now)

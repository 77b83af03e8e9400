"""What is free on each node from when on, as far as it is planned: one list of changes a node, in order of time.

What runs frees its cores when it is planned to end, what is reserved takes them for a while, and a node that is
closed has none. A job fits where its part of cores, memory and gres is there for as long as it is planned to run.

Cost: O(changes of a node) to enter one, O(changes of all nodes in reach) to find a start, times the number of nodes
that a wide job has to find together, which are few moments mostly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing
from asad.replay.engine.simulation_state import MEMORY, NEVER, State

CHANGE = np.dtype(
    [("time", "f8"), ("memory", "f8"), ("cores", "i4"), ("gres", "i4"), ("amount", "i4"), ("next", "i4")],
    align=True,
)
CLOSED = 2**28
"""More cores than a node has: it has none until they are added again."""


class Profile(NamedTuple):
    """Beside `free`, `memory_free` and `Rules.gres`, which are what is free now."""

    change: NDArray[Any]  # CHANGE, as many as there is room for
    first: NDArray[np.int32]  # (N,) first of each node, -1 for none
    entered: NDArray[np.int64]  # (1,) so many there are


@borrowing
def enter(p: Profile, node: int, time: float, cores: int, memory: float, gres: int, amount: int) -> None:
    """From `time` on a node has so much more, or less. Of gres `amount` of the kind, -1 for none."""
    at = p.entered[0]
    p.entered[0] += 1
    p.change[at].time, p.change[at].memory, p.change[at].cores = time, memory, cores
    p.change[at].gres, p.change[at].amount = gres, amount
    before, behind = -1, p.first[node]
    while behind >= 0 and p.change[behind].time <= time:
        before, behind = behind, p.change[behind].next
    p.change[at].next = behind
    if before < 0:
        p.first[node] = at
    else:
        p.change[before].next = at


@borrowing
def _enough(s: State, job: int, cores: int, free: int, memory: float, gres: int) -> bool:
    """Is that enough for a part of a job of so many cores?"""
    if free < cores or gres < s.rules.rule[job].gres_each:
        return False
    return s.c[MEMORY] == 0 or memory + 0.5 >= cores * s.job[job].memory


@borrowing
def first_fit(s: State, p: Profile, node: int, job: int, cores: int, lasts: float, since: float) -> float:
    """The first moment from `since` on at which a node has room for a part of a job for as long as it `lasts`; inf if
    there is none."""
    free, memory = s.node[node].free, s.node[node].memory_free
    kind = s.rules.rule[job].gres
    gres = s.rules.gres[node, kind] if kind >= 0 else 0
    begin = since if _enough(s, job, cores, free, memory, gres) else NEVER
    at = p.first[node]
    while at >= 0:
        time = p.change[at].time
        if time >= begin + lasts:
            return begin
        while at >= 0 and p.change[at].time == time:
            free += p.change[at].cores
            memory += p.change[at].memory
            if kind >= 0 and p.change[at].gres == kind:
                gres += p.change[at].amount
            at = p.change[at].next
        if not _enough(s, job, cores, free, memory, gres):
            begin = NEVER
        elif begin == NEVER:
            begin = max(time, since)
    return begin


@borrowing
def _least(s: State, p: Profile, node: int, job: int, lasts: float, since: float) -> int:
    """How many cores a node has for a job from `since` on, all the time that it `lasts`."""
    free, memory = s.node[node].free, s.node[node].memory_free
    kind, each = s.rules.rule[job].gres, s.rules.rule[job].gres_each
    gres = s.rules.gres[node, kind] if kind >= 0 else 0
    least = -1
    at = p.first[node]
    while True:
        time = p.change[at].time if at >= 0 else NEVER
        if time > since:
            here = max(free, 0) if gres >= each else 0
            if s.c[MEMORY] and s.job[job].memory > 0 and memory < NEVER:
                here = min(here, int(max(memory, 0.0) / s.job[job].memory + 1e-9))
            least = here if least < 0 else min(least, here)
        if time >= since + lasts:
            return least
        while at >= 0 and p.change[at].time == time:
            free += p.change[at].cores
            memory += p.change[at].memory
            if kind >= 0 and p.change[at].gres == kind:
                gres += p.change[at].amount
            at = p.change[at].next


@allocating
def find_start(
    s: State,
    p: Profile,
    job: int,
    lasts: float,
    since: float,
    until: float,
    node: NDArray[np.int32],
    cores: NDArray[np.int32],
) -> tuple[float, int]:
    """The first moment from `since` on at which a job has room, and its nodes and the cores on each into `node` and
    `cores`: how many they are. Inf and 0 if there is none before `until`."""
    reach, wide = s.rules.rule[job].reach, s.rules.rule[job].wide
    begin, stop = s.rules.reach_at[reach], s.rules.reach_at[reach + 1]
    if wide == 0:
        return _find_any(s, p, job, lasts, since, until, node, cores)
    each = -(-s.job[job].cores // wide)
    if wide == 1:
        best, found = NEVER, -1
        for k in range(begin, stop):
            time = first_fit(s, p, s.rules.reach_node[k], job, each, lasts, since)
            if time < best:
                best, found = time, s.rules.reach_node[k]
                if time == since:
                    break
        if best >= until:
            return NEVER, 0
        node[0], cores[0] = found, each
        return best, 1
    times = np.empty(stop - begin)
    while since < until and stop - begin >= wide:
        count = 0
        for k in range(begin, stop):
            times[k - begin] = first_fit(s, p, s.rules.reach_node[k], job, each, lasts, since)
            if times[k - begin] == since and count < wide:
                node[count] = s.rules.reach_node[k]
                count += 1
        if count == wide:
            for i in range(wide):
                cores[i] = s.job[job].cores // wide + (i < s.job[job].cores % wide)
            return since, wide
        since = np.sort(times)[wide - 1]
    return NEVER, 0


@borrowing
def _find_any(
    s: State,
    p: Profile,
    job: int,
    lasts: float,
    since: float,
    until: float,
    node: NDArray[np.int32],
    cores: NDArray[np.int32],
) -> tuple[float, int]:
    """`find_start` of a job that takes whatever cores there are."""
    reach = s.rules.rule[job].reach
    while since < until:
        wanted, count, later = s.job[job].cores, 0, NEVER
        for k in range(s.rules.reach_at[reach], s.rules.reach_at[reach + 1]):
            take = min(wanted, _least(s, p, s.rules.reach_node[k], job, lasts, since))
            if take > 0 and count < len(node):
                node[count], cores[count] = s.rules.reach_node[k], take
                count += 1
                wanted -= take
            if wanted == 0:
                return since, count
            at = p.first[s.rules.reach_node[k]]
            while at >= 0 and p.change[at].time <= since:
                at = p.change[at].next
            if at >= 0:
                later = min(later, p.change[at].time)
        since = later
    return NEVER, 0

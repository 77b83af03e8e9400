"""The wait of each job in exclusive parts, from one event of the log to the next.

While a job waits, one reason holds at a time, the first of these: starting it would lift its user, account or QOS above
a *limit*; there is no room for it on the nodes of its partition, for the first of *cores* (too few are free in all),
*nodes* (enough are, but not so many on so many nodes), *memory* and *gres*; other jobs of its partition wait too, so it
is a matter of *order* (priority, reservation, the scheduler's depth); or it is *unexplained*.

It can also learn ceilings as it goes: what each group never held more of so far, where it was kept at that often
enough. At no moment does it then use anything that the log shows later.

Cost: O(jobs that wait) an event, and O(nodes of a partition) for each kind of job that waits there when its nodes
have changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import allocating, borrowing, compiled
from asad.model import Floats, Ints

NAMES = ("limit", "cores", "nodes", "memory", "gres", "order", "unexplained")
LIMIT, CORES, NODES, MEMORY, GRES, ORDER, UNEXPLAINED = range(7)
ROOM = -1
"""There is room."""
SLACK = 1 + 1e-9
"""Sums of memory that was recorded rounded are compared with it."""
PASSES, INTERVAL_S = 4, 30.0
"""At a ceiling for less than so many of the scheduler's passes, a group is there by chance of them; and Slurm's own
interval of backfill, where nobody says what it is."""


class Nodes(NamedTuple):
    """The machine; N nodes, K kinds of gres."""

    cores: NDArray[np.int64]
    memory: Floats
    gres: Floats
    """(N, K)"""
    reach_at: NDArray[np.int64]
    reach_node: Ints
    """The nodes of partition p are those from `reach_at[p]` to `reach_at[p + 1]`."""


class Rows(NamedTuple):
    """What ran, R rows: the J jobs of the log, then earlier runs of those that were requeued."""

    queued: Floats
    """(J,) from when on each waits."""
    start: Floats
    stop: Floats
    cores: NDArray[np.int64]
    memory: Floats
    """Bytes a core."""
    wide: Ints
    """Nodes, 0 for any number."""
    partition: Ints
    kind: Ints
    """Kind of gres, -1 for none."""
    amount: Floats
    """So much of it."""
    at: NDArray[np.int64]
    node: Ints
    part: Ints
    """Its parts, from `at[row]` to `at[row + 1]`: node and cores."""
    shape: Ints
    """(J,) Jobs of one shape want the same of the same partition."""


class Ceilings(NamedTuple):
    """What groups of jobs may hold together: G groups, R resources, C classes of jobs that count in the same groups, of
    which each has at most K (as `asad.replay.limits.LimitTable` has them)."""

    need: Floats
    """(J, R) what each job adds."""
    class_of: Ints
    """(J,)"""
    groups: Ints
    """(C, K) -1 for none."""
    most: Floats
    """(C, K, R) inf where there is no ceiling."""
    binds: NDArray[np.bool_]
    """(C, K, R) Is it a limit? Else it is looked at whether it might be one."""
    least_s: float
    """An occasion at a ceiling counts if it lasts so long."""


class Found(NamedTuple):
    """What a sweep finds."""

    part_s: Floats
    """(J, len(NAMES)) seconds of each job's wait by reason."""
    occasions: NDArray[np.int64]
    """(G, R) how often a group was at its ceiling for `least_s` while a job of it waited that had room, and nobody
    in that partition waited for room; once from one end of its jobs to the next."""
    held: Floats
    """(G, R) the most that each held at one time."""
    limited_by: NDArray[np.int64]
    """(J,) the place of the group whose limit a job waited for last, times R, and the resource; -1 for none."""
    changes: Floats
    """(M, 4) ceilings that were learned, in order of time: from which moment on, of which group and resource, the
    ceiling; inf where it is none any more."""


class _State(NamedTuple):
    free: NDArray[np.int64]
    memory: Floats
    gres: Floats
    version: NDArray[np.int64]
    """Of each partition: rises when its nodes change."""
    room: NDArray[np.int64]
    """Of each shape: what it lacks, or ROOM."""
    known: NDArray[np.int64]
    """Of each shape: the version at which that was so."""
    held: Floats
    partitions_of: NDArray[np.int64]
    partition_of: Ints
    """The partitions of node n are those from `partitions_of[n]` to `partitions_of[n + 1]`."""


@compiled
def sweep(
    nodes: Nodes,
    rows: Rows,
    ceilings: Ceilings,
    confirms: NDArray[np.bool_],
    enough: int = 0,
    lasts_s: float = 0.0,
) -> Found:
    """Go through the log once.

    With `enough` above 0 the ceilings of `ceilings` do not count: looked at is the most that each group held so far,
    and what was an occasion so often is learned as a ceiling, once it has stood for `lasts_s`, or `enough` jobs of the
    group have started of which the cluster's own last reason `confirms` a limit (J,). It is none any more when the
    group holds more, or when a job of it waits that wants more by itself; occasions then count anew.
    """
    jobs, groups, resources = len(rows.queued), 1 + ceilings.groups.max(), ceilings.need.shape[1]
    shapes = 1 + rows.shape.max() if jobs else 0
    partitions_of, partition_of = _partitions(nodes)
    s = _State(
        nodes.cores.copy(),
        nodes.memory.copy(),
        nodes.gres.copy(),
        np.zeros(len(nodes.reach_at) - 1, np.int64),
        np.full(shapes, ROOM, np.int64),
        np.full(shapes, -1, np.int64),
        np.zeros((groups, resources)),
        partitions_of,
        partition_of,
    )
    found = Found(
        np.zeros((jobs, len(NAMES))),
        np.zeros((groups, resources), np.int64),
        np.zeros((groups, resources)),
        np.full(jobs, -1, np.int64),
        np.zeros((0, 4)),
    )
    learns, known = enough > 0, np.zeros((groups, resources), np.bool_)
    reached, confirmed = np.zeros((groups, resources)), np.zeros(groups, np.int64)
    changes, count = np.zeros((64, 4)), 0
    since = np.full((groups, resources), np.nan)
    seen = np.zeros((groups, resources), np.bool_)
    listed = np.zeros((groups, resources), np.bool_)
    active = np.zeros((groups * resources, 2), np.int64)
    here = 0
    waits, where, waiting = np.zeros(jobs, np.int64), np.full(jobs, -1, np.int64), 0
    in_partition = np.zeros(len(nodes.reach_at) - 1, np.int64)
    no_room = np.zeros(len(nodes.reach_at) - 1, np.int64)
    # ends, then arrivals, then starts of one moment
    total = len(rows.start)
    when = np.concatenate((rows.stop, rows.queued, rows.start))
    order = np.argsort(when, kind="mergesort")
    for place in range(len(order)):
        event = order[place]
        if learns and count + here + ceilings.groups.shape[1] * resources > len(changes):
            more = np.zeros((2 * len(changes) + here, 4))
            more[:count] = changes[:count]
            changes = more
        if event < total:
            _hold(s, rows, ceilings, event, -1)
            if event < jobs:  # what follows is another occasion
                for k in range(ceilings.groups.shape[1]):
                    group = ceilings.groups[ceilings.class_of[event], k]
                    if group >= 0:
                        for r in range(resources):
                            _close(found, since, group, r, when[event], ceilings.least_s)
                            lasted = when[event] - reached[group, r] >= lasts_s or confirmed[group] >= enough
                            if (
                                learns
                                and lasted
                                and not known[group, r]
                                and found.occasions[group, r] >= enough
                            ):
                                known[group, r] = True
                                _note(changes, count, when[event], group, r, found.held[group, r])
                                count += 1
        elif event < total + jobs:
            job = event - total
            if rows.start[job] > rows.queued[job]:
                where[job], waits[waiting] = waiting, job
                waiting += 1
                in_partition[rows.partition[job]] += 1
                for k in range(ceilings.groups.shape[1] if learns else 0):
                    group = ceilings.groups[ceilings.class_of[job], k]
                    if group >= 0:
                        for r in range(resources):
                            if ceilings.need[job, r] > found.held[group, r] * SLACK and known[group, r]:
                                known[group, r] = False
                                found.occasions[group, r] = 0
                                _note(changes, count, when[event], group, r, np.inf)
                                count += 1
        else:
            row = event - total - jobs
            if row < jobs and where[row] >= 0:
                waiting -= 1
                waits[where[row]], where[waits[waiting]] = waits[waiting], where[row]
                where[row] = -1
                in_partition[rows.partition[row]] -= 1
            _hold(s, rows, ceilings, row, 1)
            if row < jobs:
                for k in range(ceilings.groups.shape[1]):
                    group = ceilings.groups[ceilings.class_of[row], k]
                    if group >= 0:
                        confirmed[group] += confirms[row]
                        for r in range(resources):
                            if s.held[group, r] <= found.held[group, r]:
                                continue
                            found.held[group, r], reached[group, r] = s.held[group, r], when[event]
                            if learns:  # what was so far says nothing of a higher ceiling
                                found.occasions[group, r], since[group, r] = 0, np.nan
                                if known[group, r]:
                                    known[group, r] = False
                                    _note(changes, count, when[event], group, r, np.inf)
                                    count += 1
        now = when[event]
        until = when[order[place + 1]] if place + 1 < len(order) else now
        if until <= now:
            continue
        no_room[:] = 0
        for i in range(waiting):
            no_room[rows.partition[waits[i]]] += _lacks(s, nodes, rows, waits[i]) != ROOM
        for i in range(here):
            seen[active[i, 0], active[i, 1]] = False
        for i in range(waiting):
            job = waits[i]
            lacks = s.room[rows.shape[job]]
            reason = lacks
            if lacks == ROOM:
                reason = ORDER if in_partition[rows.partition[job]] > 1 else UNEXPLAINED
            code = ceilings.class_of[job]
            for k in range(ceilings.groups.shape[1]):
                group = ceilings.groups[code, k]
                if group < 0:
                    continue
                for r in range(resources):
                    need = ceilings.need[job, r]
                    most = found.held[group, r] if learns else ceilings.most[code, k, r]
                    if need <= 0 or s.held[group, r] + need <= most * SLACK:
                        continue
                    if learns and need > most * SLACK:
                        continue
                    if ceilings.binds[code, k, r]:
                        reason = LIMIT
                        found.limited_by[job] = k * resources + r
                    elif lacks == ROOM and no_room[rows.partition[job]] == 0:
                        seen[group, r] = True
                        if np.isnan(since[group, r]):
                            since[group, r] = now
                        if not listed[group, r]:
                            listed[group, r] = True
                            active[here, 0], active[here, 1] = group, r
                            here += 1
            found.part_s[job, reason] += until - now
        left = 0
        for i in range(here):
            group, r = active[i, 0], active[i, 1]
            if seen[group, r]:
                active[left, 0], active[left, 1] = group, r
                left += 1
                continue
            _close(found, since, group, r, now, ceilings.least_s)
            listed[group, r] = False
            lasted = now - reached[group, r] >= lasts_s or confirmed[group] >= enough
            if learns and lasted and not known[group, r] and found.occasions[group, r] >= enough:
                known[group, r] = True
                _note(changes, count, now, group, r, found.held[group, r])
                count += 1
        here = left
    return Found(found.part_s, found.occasions, found.held, found.limited_by, changes[:count].copy())


@borrowing
def _close(found: Found, since: Floats, group: int, resource: int, now: float, least_s: float) -> None:
    """An occasion at a ceiling is over, if there was one: it counts if it lasted."""
    found.occasions[group, resource] += now - since[group, resource] >= least_s  # never of NaN
    since[group, resource] = np.nan


@borrowing
def _note(changes: Floats, count: int, moment: float, group: int, resource: int, ceiling: float) -> None:
    """From this moment on a group has a ceiling, or none."""
    changes[count, 0], changes[count, 1] = moment, group
    changes[count, 2], changes[count, 3] = resource, ceiling


@borrowing
def _hold(s: _State, rows: Rows, ceilings: Ceilings, row: int, sign: int) -> None:
    """A run begins to hold its nodes (1), or ends to (-1)."""
    width = rows.at[row + 1] - rows.at[row]
    for i in range(rows.at[row], rows.at[row + 1]):
        node = rows.node[i]
        s.free[node] -= sign * rows.part[i]
        s.memory[node] -= sign * rows.part[i] * rows.memory[row]
        if rows.kind[row] >= 0:
            left = s.gres[node, rows.kind[row]] - sign * rows.amount[row] / width
            # a node has what was held of it so far, where it is not known what it has
            s.gres[node, rows.kind[row]] = 0.0 if left < -1e-9 else left
        for k in range(s.partitions_of[node], s.partitions_of[node + 1]):
            s.version[s.partition_of[k]] += 1
    if row < len(rows.queued):
        for k in range(ceilings.groups.shape[1]):
            group = ceilings.groups[ceilings.class_of[row], k]
            if group >= 0:
                for r in range(ceilings.need.shape[1]):
                    s.held[group, r] += sign * ceilings.need[row, r]


@borrowing
def _lacks(s: _State, nodes: Nodes, rows: Rows, job: int) -> int:
    """What a job lacks on the nodes of its partition now, or ROOM."""
    shape, partition = rows.shape[job], rows.partition[job]
    if s.known[shape] == s.version[partition]:
        return int(s.room[shape])
    s.known[shape] = s.version[partition]
    wide, cores = max(1, rows.wide[job]), rows.cores[job]
    each = -(-cores // wide)
    free, fit, with_memory, with_gres = 0, 0, 0, 0
    memory, amount, kind = rows.memory[job], rows.amount[job] / wide, rows.kind[job]
    for k in range(nodes.reach_at[partition], nodes.reach_at[partition + 1]):
        node = nodes.reach_node[k]
        here = max(0, s.free[node])
        free += here
        count = here if rows.wide[job] == 0 else int(here >= each)
        fit += count
        if memory > 0 and s.memory[node] < np.inf:
            most = int(s.memory[node] / memory + 1e-9)
            count = min(count, max(0, most)) if rows.wide[job] == 0 else int(count and most >= each)
        with_memory += count
        with_gres += count if kind < 0 or s.gres[node, kind] >= amount - 1e-9 else 0
    needs = cores if rows.wide[job] == 0 else wide
    lacks = ROOM
    if free < cores:
        lacks = CORES
    elif fit < needs:
        lacks = NODES
    elif with_memory < needs:
        lacks = MEMORY
    elif with_gres < needs:
        lacks = GRES
    s.room[shape] = lacks
    return lacks


@allocating
def _partitions(nodes: Nodes) -> tuple[NDArray[np.int64], Ints]:
    """Of each node its partitions."""
    at = np.zeros(len(nodes.cores) + 1, np.int64)
    for k in range(len(nodes.reach_node)):
        at[nodes.reach_node[k] + 1] += 1
    at = np.cumsum(at)
    of = np.zeros(len(nodes.reach_node), np.int32)
    to = at[:-1].copy()
    for partition in range(len(nodes.reach_at) - 1):
        for k in range(nodes.reach_at[partition], nodes.reach_at[partition + 1]):
            of[to[nodes.reach_node[k]]] = partition
            to[nodes.reach_node[k]] += 1
    return at, of

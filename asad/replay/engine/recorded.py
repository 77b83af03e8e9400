"""Recorded starts: every job starts when and where the log has it, or as soon as there is room after that.

Who has become a guest before has vacated its slot, which is free; or another row holds it (`HELD`), from the slot's
begin to its end. Who finds its nodes taken starts on others that the log uses for its partition, where it may; else it
is late, and is tried again when something ends, in order of recorded starts.

Cost: O(parts) a start, for one that finds its nodes taken O(parts · nodes of its partition); where something has ended
as much for each that is late.
"""

from __future__ import annotations

from asad.compiling import borrowing
from asad.replay.engine.job_course import start_job
from asad.replay.engine.placement import node_fits
from asad.replay.engine.queue import enqueue
from asad.replay.engine.simulation_state import (
    ABSENT,
    DUE,
    HELD,
    IN_ORDER,
    LATE,
    LOGGED,
    NEVER,
    PENDING,
    PLACED,
    UNLOGGED,
    State,
)


@borrowing
def next_due(s: State) -> float:
    """When the next recorded start is; inf if none is to come."""
    return s.slot[s.slot[s.c[DUE]].order].start if s.c[DUE] < s.c[IN_ORDER] else NEVER


@borrowing
def recorded_pass(s: State, now: float, freed: bool) -> None:
    """Start who is due; `freed` says whether anything has ended since the last pass."""
    if freed and s.c[LATE] > 0:
        _try_late(s, now)
    while next_due(s) <= now:
        row = s.slot[s.c[DUE]].order
        s.c[DUE] += 1
        row = _holder(s, row, now)
        if row >= 0 and not _start(s, row, now):
            s.slot[s.c[LATE]].late = row
            s.c[LATE] += 1


@borrowing
def _try_late(s: State, now: float) -> None:
    """Start those that are late and have room by now; who has become a guest is late no more."""
    late = s.c[LATE]
    s.c[LATE] = 0
    for i in range(late):
        row = _holder(s, s.slot[i].late, now)
        if row >= 0 and not _start(s, row, now):
            s.slot[s.c[LATE]].late = row
            s.c[LATE] += 1


@borrowing
def _holder(s: State, row: int, now: float) -> int:
    """Who is to hold the slot of a row: itself while it waits, -1 for nobody."""
    if row >= s.c[LOGGED]:
        over = s.c[HELD] > 0 and row >= s.c[HELD] and s.slot[row].start + s.job[row].work <= now
        return -1 if over else row
    if s.job[row].state == PENDING:
        return row
    return row + s.c[HELD] if s.c[HELD] > 0 else -1


@borrowing
def _start(s: State, row: int, now: float) -> bool:
    """Start a row where its nodes have room, or others within its reach; False if there is none."""
    if s.c[PLACED] and not _parts_fit(s, row) and not _move(s, row):
        return False
    if s.job[row].state == ABSENT:  # it never waited
        if s.c[HELD] > 0 and row >= s.c[HELD]:
            s.job[row].work = s.slot[row].start + s.job[row].work - now
        enqueue(s, row, now)
        s.c[UNLOGGED] += 1
    start_job(s, row, now)
    return True


@borrowing
def _parts_fit(s: State, row: int) -> bool:
    for i in range(s.slot[row].first, s.slot[row].stop):
        if not node_fits(s, s.part[i].node, s.part[i].cores, s.job[row].memory):
            return False
    return True


@borrowing
def _move(s: State, row: int) -> bool:
    """Other nodes within its reach for the parts whose own have no room; False, and nothing has changed, if there are
    not enough."""
    reach = s.slot[row].reach
    if reach < 0:
        return False
    first, stop = s.slot[row].first, s.slot[row].stop
    for i in range(first, stop):
        if node_fits(s, s.part[i].node, s.part[i].cores, s.job[row].memory):
            continue
        found = -1
        for k in range(s.reach_at[reach], s.reach_at[reach + 1]):
            node = s.reach_node[k]
            if s.node[node].gone or _has_part(s, node, first, stop):
                continue
            if node_fits(s, node, s.part[i].cores, s.job[row].memory):
                found = node
                break
        if found < 0:
            for k in range(first, i):
                s.part[k].node = s.part[k].recorded
            return False
        s.part[i].node = found
    s.slot[row].moved = True
    return True


@borrowing
def _has_part(s: State, node: int, first: int, stop: int) -> bool:
    for i in range(first, stop):
        if s.part[i].node == node:
            return True
    return False

"""What on-demand jobs leave: cores over time, and where on the nodes.

On-demand are all jobs that are not deferrable. What runs holds its cores until its time limit; what waits takes its own
from when the cluster expects to start it, or from now if the cluster has not said. So a deferrable job that keeps to
what is left delays nobody, as far as time limits and the cluster's estimates show. Cost: O(cores + queue + cells).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asad.capacity import ROOM, cores_with_memory, held_memory, held_over_time, node_of_core, spread
from asad.compiling import compiled
from asad.model import Floats, Ints, Snapshot

CELL_S = 300.0
"""What is left is counted in cells of so many seconds, from now on."""


def cells(seconds: float, most: int, cell_s: float = CELL_S) -> int:
    """How many cells that is, a part of one counting as one; 1 to `most`."""
    if not seconds < most * cell_s:
        return most
    return max(1, math.ceil(seconds / cell_s - ROOM))


def holders(snapshot: Snapshot, nodes: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Rows of the batch jobs on these nodes, and how many of the nodes' cores each holds."""
    owner = snapshot.core_owner
    if not nodes.all():
        owner = owner[np.repeat(nodes, snapshot.machine.cores)]
    count = np.bincount(owner[owner >= 0], minlength=1)
    rows = np.flatnonzero(count)
    return rows.astype(np.int32), count[rows].astype(np.int32)


def left_over(
    snapshot: Snapshot, nodes: NDArray[np.bool_], planned: Iterable[tuple[int, int]], horizon: int
) -> Floats:
    """(horizon,) Cores of these nodes that nobody holds or is expected to take, cell by cell; below 0 is short.

    `planned` are the on-demand jobs that wait: row, and how many cores they take when they start.
    """
    now_s, jobs = snapshot.time_s, snapshot.jobs
    change = np.zeros(horizon + 1)
    rows, held = holders(snapshot, nodes)
    left_s = jobs.limit_end_s[rows] - now_s
    # who leaves has no limit any more, and who is overdue goes on for a while
    until = np.clip(np.ceil(np.nan_to_num(left_s, nan=0.0, posinf=1e15) / CELL_S), 1, horizon)
    for row, cores in planned:
        start_s = float(jobs.estimated_start_s[row]) - now_s
        first = math.floor(start_s / CELL_S) if 0.0 < start_s < horizon * CELL_S else 0
        if start_s >= horizon * CELL_S:
            continue
        limit_s = float(jobs.time_limit_s[row])
        last = first + cells(limit_s if limit_s > 0 else math.inf, horizon)
        if start_s > first * CELL_S:
            last += 1  # it begins within a cell, and ends within the one after its last
        change[first] -= cores
        change[min(last, horizon)] += cores
    total = float(snapshot.machine.cores[nodes].sum())
    found: Floats = total - held_over_time(until, held, horizon) + np.cumsum(change[:horizon])
    return found


@compiled
def first_fits(left: Floats, group: Ints, cores: Ints, length: Ints, earliest: Ints) -> Ints:
    """(n,) The first cell from which on each job fits for its length, each in turn beside those before it.

    `left` (G, H) is what is left of groups of nodes, row 0 that of all; it is used up. `group` (n,) is the row of a
    job's own nodes. Who fits nowhere gets H and takes nothing. Cost: O(n·H), compiled.
    """
    horizon = left.shape[1]
    found = np.empty(len(cores), np.int32)
    for i in range(len(cores)):
        g, first = group[i], min(earliest[i], horizon)
        cell = first
        while first < horizon and cell < min(first + length[i], horizon):
            if left[0, cell] < cores[i] or left[g, cell] < cores[i]:
                first = cell + 1
            cell += 1
        found[i] = first
        for at in range(first, min(first + length[i], horizon)):
            left[0, at] -= cores[i]
            if g > 0:
                left[g, at] -= cores[i]
    return found


@dataclass(slots=True)
class Places:
    """Idle cores and memory by node, less what has been promised since."""

    idle: Ints
    """(N,) cores; 0 on nodes that start nothing."""
    memory_bytes: Floats
    """(N,) memory that nobody has reserved; inf where a node's is not known."""
    largest: int
    """Cores of the largest node."""

    def take(
        self, cores: int, nodes: int, memory_bytes_per_core: float, allowed: NDArray[np.bool_] | None
    ) -> bool:
        """Promise a job the cores of so many nodes (0: of any number), evenly; False if they are not there.

        `allowed` (N,): only of these. Where one node could not hold its part, any number of nodes will do.
        """
        room = cores_with_memory(self.idle, self.memory_bytes, memory_bytes_per_core)
        if allowed is not None:
            room = np.where(allowed, room, 0.0)
        each = math.ceil(cores / nodes) if nodes > 0 else self.largest + 1
        taken = np.zeros(len(room), np.int32)
        if each > self.largest:
            before = np.concatenate(([0.0], np.cumsum(room)[:-1]))
            taken[:] = np.clip(cores - before, 0.0, room)
            if taken.sum() < cores:
                return False
        else:
            fit = np.flatnonzero(room >= each)
            if len(fit) < nodes:
                return False
            # the fullest nodes first, so that the others stay whole
            chosen = fit[np.argsort(room[fit], kind="stable")[:nodes]]
            taken[chosen] = spread(cores, nodes)
        self.idle -= taken
        if memory_bytes_per_core > 0:  # never of NaN
            self.memory_bytes -= taken * memory_bytes_per_core
        return True


def places(snapshot: Snapshot, usable: NDArray[np.bool_]) -> Places:
    """Where there is room now."""
    machine = snapshot.machine
    idle = np.bincount(node_of_core(machine)[snapshot.core_owner < 0], minlength=len(machine.cores)).astype(
        np.int32
    )
    idle[~usable] = 0
    memory = machine.memory_bound_bytes
    if np.isfinite(memory).any():
        memory -= held_memory(snapshot, snapshot.core_owner) + held_memory(snapshot, snapshot.core_guest)
    return Places(idle, memory, int(machine.cores.max(initial=0)))

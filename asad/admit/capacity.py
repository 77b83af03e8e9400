"""A cluster as the servers of the slotted world: what its nodes hold, and what others than admitted jobs hold of them.

A node is a server; workers never stand on nodes that are named for parameter servers. With `whole` the cluster is one
server: jobs of any size fit and a plan costs less, but what is left over on each node is taken for one piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from asad.admit.elastic import Servers
from asad.model import NODE_BARS, Floats, Ints, Machine, Snapshot

DOWN = NODE_BARS.index("it is drained, down or not answering")
CORES, MEMORY = 0, 1
"""Columns of a resource; memory is there only where all nodes tell of theirs."""
MOST_QUEUED = 200
"""So many of the jobs that wait without a plan are foreseen where the cluster expects them."""


@dataclass(frozen=True, slots=True)
class World:
    """Servers, and which node each of them is."""

    servers: Servers
    names: tuple[str, ...]
    """Of the nodes, as of the machine that this was built from."""
    worker_of: Ints
    """(N,) worker server of each node, -1 for none."""
    whole: bool

    @property
    def resources(self) -> int:
        """R."""
        return len(self.servers.resources)

    def demand(self, cores: float, memory_bytes_per_core: float) -> Floats:
        """(R,) what a job or task takes; memory that it does not tell counts as none."""
        taken = np.array([cores, cores * memory_bytes_per_core])[: self.resources]
        return np.where(np.isfinite(taken), taken, 0.0)


def world_of(machine: Machine, parameter_server_nodes: Sequence[str] = (), whole: bool = False) -> World:
    """The servers of a machine; nodes whose names fit a pattern of `parameter_server_nodes` hold no workers."""
    beside = np.array(
        [
            any(fnmatchcase(name, pattern) for pattern in parameter_server_nodes)
            for name in machine.node_names
        ],
        dtype=np.bool_,
    )
    columns = [machine.cores.astype(np.float64)]
    names: tuple[str, ...] = ("cores",)
    if np.isfinite(machine.memory_bytes).all():
        columns.append(machine.memory_bytes.astype(np.float64))
        names = ("cores", "memory")
    capacity = np.column_stack(columns)
    workers = capacity[~beside]
    worker_of = np.where(beside, -1, np.cumsum(~beside) - 1).astype(np.int32)
    if whole:
        workers = workers.sum(axis=0, keepdims=True)
        worker_of = np.minimum(worker_of, 0).astype(np.int32)
    return World(Servers(names, workers, capacity[beside]), machine.node_names, worker_of, whole)


def fits(world: World, demand: Floats) -> int:
    """How many of `demand` (R,) the empty worker servers hold in all."""
    capacity = world.servers.workers
    each = np.full(capacity.shape, np.inf)
    np.divide(capacity + 1e-9, demand, out=each, where=demand > 0)
    counts = np.floor(each.min(axis=1))
    return int(min(counts.sum(), 2**31 - 1)) if len(counts) else 0


def held_by_others(
    snapshot: Snapshot,
    world: World,
    first: int,
    slots: int,
    slot_s: float,
    end_s: Floats,
    ours: NDArray[np.bool_],
    planned: Mapping[int, Mapping[int, int]],
    group: Ints,
) -> Floats:
    """(slots, H, R) what is taken of the worker servers, from slot `first` on, by all that no plan holds.

    `end_s` is, by row, when a running job is expected to end. Of a job of group g ≥ 0 (`group`, by row: the tasks of
    one admitted array), only what goes beyond `planned[g]` (slot → tasks) counts. Rows of `ours` wait and have a plan;
    the other jobs of the queue are put where they fit when the cluster expects to start them. A job counts for its
    last slot if it holds at least half of it, and always for the present one.
    """
    capacity = world.servers.workers
    used: Floats = np.zeros((slots, *capacity.shape))
    if not len(capacity):
        return used
    row, server, cores = _holders(snapshot, world)
    if len(row):
        ends = np.minimum(np.floor(end_s[row] / slot_s + 0.5), first + slots)
        until = np.clip(np.nan_to_num(ends, nan=float(first + slots)) - first, 1, slots).astype(np.int64)
        memory = _memory(snapshot, row)
        amount = np.column_stack((cores, cores * memory))[:, : world.resources]
        free = group[row] < 0
        change = np.zeros((slots + 1, *capacity.shape))
        np.add.at(change[0], server[free], amount[free])
        np.add.at(change, (until[free], server[free]), -amount[free])
        used += np.cumsum(change[:-1], axis=0)
        for number in np.unique(group[row][~free]).tolist():
            at, plan = np.flatnonzero(group[row] == number), planned.get(number, {})
            _beyond_plan(used, row[at], server[at], amount[at], until[at], plan, first)
    _take_down(world, snapshot, used)
    _foresee(snapshot, world, first, slot_s, used, ours)
    return np.minimum(used, capacity)


def _beyond_plan(
    used: Floats, row: Ints, server: Ints, amount: Floats, until: Ints, plan: Mapping[int, int], first: int
) -> None:
    """Add the tasks of one array that run beyond its plan: of those that run in a slot, the ones that end last."""
    order = np.lexsort((row, -until))
    row, server, amount, until = row[order], server[order], amount[order], until[order]
    begins = np.concatenate(([True], row[1:] != row[:-1]))
    rank = np.cumsum(begins) - 1
    last = until[begins]
    for ahead in range(int(until[0])):
        too_many = int(np.count_nonzero(last > ahead)) - plan.get(first + ahead, 0)
        if too_many > 0:
            over = rank < too_many
            np.add.at(used[ahead], server[over], amount[over])


def _memory(snapshot: Snapshot, row: Ints) -> Floats:
    memory = snapshot.jobs.memory_bytes_per_core[row]
    return np.where(np.isfinite(memory), memory, 0.0)


def _holders(snapshot: Snapshot, world: World) -> tuple[Ints, Ints, Floats]:
    """Row, worker server and cores of every piece of a running job."""
    if world.whole:
        running = snapshot.running
        return running, np.zeros(len(running), np.int32), snapshot.jobs.cores[running].astype(np.float64)
    owner = snapshot.core_owner
    held = np.flatnonzero(owner >= 0)
    node = np.searchsorted(snapshot.machine.first_core, held, side="right") - 1
    server = world.worker_of[node]
    held, server = held[server >= 0], server[server >= 0]
    pair, count = np.unique(
        owner[held].astype(np.int64) * max(1, len(world.servers.workers)) + server, return_counts=True
    )
    row, at = np.divmod(pair, max(1, len(world.servers.workers)))
    return row.astype(np.int32), at.astype(np.int32), count.astype(np.float64)


def _take_down(world: World, snapshot: Snapshot, used: Floats) -> None:
    """Nodes that are down hold nothing, for as long as they are seen to be down."""
    for node in np.flatnonzero(snapshot.node_bar == DOWN).tolist():
        server = int(world.worker_of[node])
        if server < 0:
            continue
        if not world.whole:
            used[:, server] = world.servers.workers[server]
            continue
        machine = snapshot.machine
        whole = np.array([machine.cores[node], machine.memory_bytes[node]], dtype=np.float64)
        used[:, server] += whole[: world.resources]


def _foresee(
    snapshot: Snapshot, world: World, first: int, slot_s: float, used: Floats, ours: NDArray[np.bool_]
) -> None:
    """Put the jobs that wait without a plan where they fit when the cluster expects to start them."""
    jobs, slots = snapshot.jobs, len(used)
    for row in snapshot.queue[:MOST_QUEUED].tolist():
        start_s, limit_s = float(jobs.estimated_start_s[row]), float(jobs.time_limit_s[row])
        if ours[row] or not np.isfinite(start_s):
            continue
        begin = max(0, int(start_s // slot_s) - first)
        span = slots if not np.isfinite(limit_s) else max(1, round(limit_s / slot_s))
        if begin >= slots:
            continue
        piece = used[begin : begin + span]
        free = (world.servers.workers - piece.max(axis=0))[:, CORES].clip(min=0.0)
        before = np.concatenate(([0.0], np.cumsum(free)[:-1]))
        taken = np.clip(float(jobs.cores[row]) - before, 0.0, free)
        piece[:, :, CORES] += taken
        if world.resources > MEMORY:
            memory = float(jobs.memory_bytes_per_core[row])
            piece[:, :, MEMORY] += taken * (memory if np.isfinite(memory) else 0.0)

"""A cluster as the servers of the slotted world: what its nodes hold, and what others than admitted jobs hold of them.

Resources are cores, memory where all nodes say theirs, and those gres and licences that some job wants which was asked
for. A node is a server; workers never stand on nodes that are named for parameter servers. Where none are named, a
share of each node may be set aside for them: it is then two servers, one for workers and one for parameter servers, and
plans never put workers on what is set aside, whether a job has parameter servers or not. What the cluster itself puts
beyond either part is taken from the other. With `whole` the cluster is one server (and one for
parameter servers): jobs of any size fit and a plan costs less, but what is left over on each node is taken for one
piece. Licences are on no server but the whole cluster's. Of gres a share of a node for parameter servers has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.admit.elastic import Servers
from asad.capacity import held_over_time, usable_nodes
from asad.model import Floats, Ints, Machine, Snapshot, Tres, no_tres

CORES, MEMORY = 0, 1
"""Columns of a resource; memory is there only where that of all nodes is known."""
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
    server_of: Ints
    """(N,) parameter server of each node, -1 for none. In `Servers.parameter_servers`, as `worker_of` in `workers`."""
    whole: bool

    @property
    def worker_names(self) -> list[str]:
        """Names of the worker servers, in the order of their numbers."""
        return self._named(self.worker_of, len(self.servers.workers))

    @property
    def server_names(self) -> list[str]:
        """Names of the parameter servers."""
        return self._named(self.server_of, len(self.servers.parameter_servers))

    def _named(self, server_of: Ints, count: int) -> list[str]:
        if self.whole:
            return ["*"] * count
        return [name for name, server in zip(self.names, server_of.tolist(), strict=True) if server >= 0]

    @property
    def resources(self) -> int:
        """R."""
        return len(self.servers.resources)

    @property
    def plain(self) -> int:
        """How many of the resources are cores and memory; trackable resources come after them."""
        return 1 + ("memory" in self.servers.resources)

    def demand(
        self, cores: float, memory_bytes_per_core: float, tres: Mapping[str, float] = MappingProxyType({})
    ) -> Floats:
        """(R,) what a job or task takes; memory that is not known counts as none."""
        plain = (cores, cores * memory_bytes_per_core)[: self.plain]
        taken = np.array([*plain, *(tres.get(name, 0.0) for name in self.servers.resources[self.plain :])])
        return np.where(np.isfinite(taken), taken, 0.0)

    def amounts(self, tres: Tres, row: int) -> Floats:
        """(R,) of trackable resources, what the job in a row holds or wants; 0 of cores and memory."""
        found = tres.jobs.get(row)
        amounts = np.zeros(self.resources)
        if found is not None:
            amounts[self.plain :] = [
                found[tres.names.index(name)] if name in tres.names else 0.0
                for name in self.servers.resources[self.plain :]
            ]
        return amounts


def wanted(tres: Tres, row: int) -> dict[str, float]:
    """What the job in a row holds or wants of trackable resources, by name.

    A type of which all of its gres are is left out: to want it is to want the gres.
    """
    found = tres.jobs.get(row)
    if found is None:
        return {}
    amounts = dict(zip(tres.names, found.tolist(), strict=True))
    return {name: amount for name, amount in amounts.items() if amount > 0.0 and not only_type(tres, name)}


def only_type(tres: Tres, name: str) -> bool:
    """Is it a type of which all of its gres are?"""
    family, typed, _ = name.partition(":")
    if not typed or family not in tres.names:
        return False
    return np.array_equal(tres.nodes[:, tres.names.index(name)], tres.nodes[:, tres.names.index(family)])


def world_of(
    machine: Machine,
    parameter_server_nodes: Sequence[str] = (),
    whole: bool = False,
    server_share: float = 0.0,
    tres: Tres | None = None,
    counted: Collection[str] = (),
) -> World:
    """The servers of a machine, with those resources of `tres` that are named in `counted`.

    Nodes whose names fit a pattern of `parameter_server_nodes` hold no workers. If there are no patterns, parameter
    servers have `server_share` of each node, in whole cores (rounded down), and its memory in the same proportion.
    """
    columns = [machine.cores.astype(np.float64)]
    names: tuple[str, ...] = ("cores",)
    if np.isfinite(machine.memory_bytes).all():
        columns.append(machine.memory_bytes.astype(np.float64))
        names = ("cores", "memory")
    plain = len(names)
    tres = tres or no_tres(len(machine.cores))
    at = [number for number, name in enumerate(tres.names) if name in counted]
    shared = tuple(tres.names[number] for number in at if tres.cluster[number] > 0.0)
    capacity = np.column_stack((*columns, tres.nodes[:, at])) if at else np.column_stack(columns)
    names += tuple(tres.names[number] for number in at)
    if parameter_server_nodes:
        beside = np.array(
            [
                any(fnmatchcase(name, pattern) for pattern in parameter_server_nodes)
                for name in machine.node_names
            ],
            dtype=np.bool_,
        )
        part = beside.astype(np.float64)
    else:
        cores = np.maximum(capacity[:, CORES], 1.0)
        part = np.floor(server_share * cores + 1e-9) / cores
        beside = part >= 1.0
    holds = part > 0.0
    workers = ((1.0 - part)[:, None] * capacity)[~beside]
    servers = (part[:, None] * capacity)[holds]
    # cores stay whole in spite of the fractions
    workers[:, CORES], servers[:, CORES] = np.round(workers[:, CORES]), np.round(servers[:, CORES])
    if not parameter_server_nodes:
        workers[:, plain:], servers[:, plain:] = capacity[~beside, plain:], 0.0
    worker_of = np.where(beside, -1, np.cumsum(~beside) - 1).astype(np.int32)
    server_of = np.where(holds, np.cumsum(holds) - 1, -1).astype(np.int32)
    if whole:
        workers = workers.sum(axis=0, keepdims=True)
        servers = servers.sum(axis=0, keepdims=True)[: int(holds.any())]
        worker_of = np.minimum(worker_of, 0).astype(np.int32)
        server_of = np.minimum(server_of, 0).astype(np.int32)
    is_shared = np.array([name in shared for name in names])
    workers[:, is_shared] = tres.cluster[[number for number in at if tres.names[number] in shared]]
    return World(Servers(names, workers, servers, shared), machine.node_names, worker_of, server_of, whole)


def fits(servers: Servers, capacity: Floats, demand: Floats) -> int:
    """How many of `demand` (R,) empty servers of one kind, of `capacity` (H, R), hold in all."""
    each = np.full(capacity.shape, np.inf)
    np.divide(capacity + 1e-9, demand, out=each, where=demand > 0)
    counts = np.floor(each.min(axis=1, initial=np.inf))
    together = np.floor(each[:, servers.is_shared].min(initial=2.0**31 - 1))
    return int(min(counts.sum(), together)) if len(counts) else 0


class Claims(NamedTuple):
    """Which rows are those of admitted jobs, and what their plans hold."""

    ours: NDArray[np.bool_]
    """Rows that wait and have a plan."""
    group: Ints
    """By row: the number of the plan that a running task belongs to, -1 for none."""
    beside: NDArray[np.bool_]
    """By row: it is a parameter server, so that its plan is on the parameter servers."""
    planned: Mapping[int, Mapping[int, int]]
    """By number of a plan: slot → tasks."""


def held_by_others(
    snapshot: Snapshot,
    world: World,
    first: int,
    slots: int,
    slot_s: float,
    end_s: Floats,
    claims: Claims,
) -> tuple[Floats, Floats]:
    """(slots, H, R) and (slots, K, R) what is taken of worker and parameter servers, from slot `first` on, by all that
    no plan holds.

    `end_s` is, by row, when a running job is expected to end. Of tasks that have a plan only what goes beyond it
    counts. The jobs of the queue that have none are put where they fit when the cluster expects to start them. A job
    counts for its last slot if it holds at least half of it, and always for the present one.
    """
    sizes = len(world.servers.workers), len(world.servers.parameter_servers)
    capacity = np.concatenate((world.servers.workers, world.servers.parameter_servers))
    used: Floats = np.zeros((slots, *capacity.shape))
    if not len(capacity):
        return used, used
    row, server, cores = _holders(snapshot, world, claims.beside)
    if len(row):
        ends = np.minimum(np.floor(end_s[row] / slot_s + 0.5), first + slots)
        until = np.clip(np.nan_to_num(ends, nan=float(first + slots)) - first, 1, slots).astype(np.int64)
        memory = _memory(snapshot, row)
        amount = np.column_stack((cores, cores * memory))[:, : world.plain]
        if world.resources > world.plain:
            held = {one: world.amounts(snapshot.tres, one)[world.plain :] for one in set(row.tolist())}
            pieces = np.bincount(row)[row]  # a job has its gres evenly over its nodes
            tres = np.array([held[one] for one in row.tolist()]) / pieces[:, None]
            amount = np.column_stack((amount, tres))
        # a task on servers of the other kind takes what no plan has there
        at_home = (server >= sizes[0]) == claims.beside[row]
        group = np.where(at_home, claims.group[row], -1)
        free = group < 0
        used += held_over_time(until[free], amount[free], slots, server[free], len(capacity))
        for number in np.unique(group[~free]).tolist():
            at, plan = np.flatnonzero(group == number), claims.planned.get(number, {})
            _beyond_plan(used, row[at], server[at], amount[at], until[at], plan, first)
    shared = world.servers.is_shared
    on_no_server = used[:, :, shared].sum(axis=1, keepdims=True)
    used[:, :, shared] = 0.0
    _spill(used, capacity, world)
    _take_down(world, snapshot, used)
    used[:, : sizes[0], shared] = on_no_server
    _foresee(snapshot, world, first, slot_s, used[:, : sizes[0]], claims.ours)
    used = np.minimum(used, capacity)
    return used[:, : sizes[0]], used[:, sizes[0] :]


def _spill(used: Floats, capacity: Floats, world: World) -> None:
    """What is held beyond one part of a node is held of its other part."""
    both = np.flatnonzero((world.worker_of >= 0) & (world.server_of >= 0))
    if world.whole:
        both = both[:1]
    one, other = world.worker_of[both], world.server_of[both] + len(world.servers.workers)
    for here, there in ((one, other), (other, one)):
        over = np.maximum(used[:, here] - capacity[here], 0.0)
        used[:, there] += over
        used[:, here] -= over


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


def _holders(snapshot: Snapshot, world: World, beside: NDArray[np.bool_]) -> tuple[Ints, Ints, Floats]:
    """Row, server and cores of every piece of a running job; parameter servers are numbered after the worker servers.

    On a node that is both, a parameter server (`beside`, by row) is taken from its part.
    """
    workers, servers = len(world.servers.workers), len(world.servers.parameter_servers)
    if world.whole and not servers:
        running = snapshot.running
        return running, np.zeros(len(running), np.int32), snapshot.jobs.cores[running].astype(np.float64)
    owner = snapshot.core_owner
    held = np.flatnonzero(owner >= 0)
    node = np.searchsorted(snapshot.machine.first_core, held, side="right") - 1
    on_worker, on_server = world.worker_of[node], world.server_of[node]
    as_server = (on_server >= 0) & (beside[owner[held]] | (on_worker < 0))
    server = np.where(as_server, on_server + workers, on_worker)
    held, server = held[server >= 0], server[server >= 0]
    total = max(1, workers + servers)
    pair, count = np.unique(owner[held].astype(np.int64) * total + server, return_counts=True)
    row, at = np.divmod(pair, total)
    return row.astype(np.int32), at.astype(np.int32), count.astype(np.float64)


def _take_down(world: World, snapshot: Snapshot, used: Floats) -> None:
    """Nodes that are down hold nothing, for as long as they are seen to be down."""
    machine, workers = snapshot.machine, len(world.servers.workers)
    for node in np.flatnonzero(~usable_nodes(snapshot)).tolist():
        worker, server = int(world.worker_of[node]), int(world.server_of[node])
        if not world.whole:
            if worker >= 0:
                used[:, worker] = np.where(world.servers.is_shared, 0.0, world.servers.workers[worker])
            if server >= 0:
                used[:, workers + server] = world.servers.parameter_servers[server]
            continue
        # of a node that is both, what is set aside goes with its cores to either: the workers lose them all
        at = worker if worker >= 0 else workers + server
        gone = np.zeros(world.resources)
        gone[: world.plain] = (machine.cores[node], machine.memory_bytes[node])[: world.plain]
        for number, name in enumerate(world.servers.resources[world.plain :], world.plain):
            if name in snapshot.tres.names:
                gone[number] = snapshot.tres.nodes[node, snapshot.tres.names.index(name)]
        used[:, at] += gone


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
        amounts = world.amounts(snapshot.tres, row)
        if amounts.any():  # it starts where there is some of what it wants
            free = np.where((world.servers.workers[:, amounts > 0.0] > 0.0).all(axis=1), free, 0.0)
        before = np.concatenate(([0.0], np.cumsum(free)[:-1]))
        taken = np.clip(float(jobs.cores[row]) - before, 0.0, free)
        piece[:, :, CORES] += taken
        piece += np.where(world.servers.is_shared, 1.0, taken[:, None] / float(jobs.cores[row])) * amounts
        if world.plain > MEMORY:
            memory = float(jobs.memory_bytes_per_core[row])
            piece[:, :, MEMORY] += taken * (memory if np.isfinite(memory) else 0.0)

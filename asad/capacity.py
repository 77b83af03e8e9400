"""What the nodes of a cluster could lend: one compiled view, and the pool of every node.

A node lends what its batch jobs leave idle beyond what they may need, and what is left of its free cores beside a batch
job of usual use (docs/explanation/asax.md). Policies and the guard go by this one formula. Cost: O(cores) a look.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.ineligible import NodeIneligible
from asad.model import Changed, Floats, Ints, Jobs, Machine, Snapshot

ROOM = 1e-9
"""Pools are sums: what is smaller than this is rounding."""
MIXED, NOBODY = -2, -1
"""Share group of a node whose jobs are of several, and of one without jobs."""


JOB_COLUMNS = tuple(column.name for column in fields(Jobs) if column.name != "job_id")
"""All columns of `Jobs` but their names, which compiled code cannot read."""
if TYPE_CHECKING:

    @dataclass(frozen=True, slots=True)
    class Columns(Jobs):
        """What of a view stays the same arrays from snapshot to snapshot of most clusters: the columns of `Jobs` by
        their own names, rows as there, and those of cores and nodes."""

        core_owner: NDArray[np.int32]
        core_guest: NDArray[np.int32]
        core_peak: NDArray[np.float64]
        node_first: NDArray[np.int32]
        node_memory: NDArray[np.float64]
        node_bar: NDArray[np.int8]
        changes: NDArray[np.int64]
        """(1,) `Changed.entries`; this and the next are empty where the cluster keeps no account of changes."""
        changed_nodes: NDArray[np.int32]
        owner_first: NDArray[np.int32]
        owner_skip: NDArray[np.int32]
        guest_first: NDArray[np.int32]
        guest_skip: NDArray[np.int32]
        lends: NDArray[np.bool_]
        """(3,) does the cluster lend free cores, only nodes that one job holds wholly, and are guests widened?"""

else:
    Columns = namedtuple(
        "Columns",
        (
            "core_owner",
            "core_guest",
            "core_peak",
            "node_first",
            "node_memory",
            "node_bar",
            "changes",
            "changed_nodes",
            "owner_first",
            "owner_skip",
            "guest_first",
            "guest_skip",
            "lends",
            *JOB_COLUMNS,
        ),
    )


class View(NamedTuple):
    """A snapshot as compiled code wants it."""

    now: float
    own_known: float
    queue: NDArray[np.int32]
    running: NDArray[np.int32]
    guests: NDArray[np.int32]
    c: Columns


FREE_CORES, WHOLE_NODES, WIDENED = range(3)
"""Places in `Columns.lends`."""


def columns_of(snapshot: Snapshot, node_first: NDArray[np.int32]) -> Columns:
    """The snapshot's tables; `node_first` is the machine's (N + 1,) first cores."""
    nobody = np.zeros(0, np.int32)
    changed = snapshot.changed or Changed(np.zeros(0, np.int64), nobody, nobody, nobody, nobody, nobody)
    return Columns(
        core_owner=snapshot.core_owner,
        core_guest=snapshot.core_guest,
        core_peak=peaks(snapshot),
        node_first=node_first,
        node_memory=snapshot.machine.memory_bytes,
        node_bar=snapshot.node_bar,
        changes=changed.entries,
        changed_nodes=changed.nodes,
        owner_first=changed.owner_first,
        owner_skip=changed.owner_skip,
        guest_first=changed.guest_first,
        guest_skip=changed.guest_skip,
        lends=np.array([snapshot.lends_free_cores, snapshot.whole_nodes, snapshot.widened]),
        **{name: getattr(snapshot.jobs, name) for name in JOB_COLUMNS},
    )


def tables_of(snapshot: Snapshot) -> tuple[object, ...]:
    """What `columns_of` looks at: where each is the very object that it was, so are the columns."""
    peak = snapshot if snapshot.core_peak is None else snapshot.core_peak  # made up of means, anew each time
    return (
        snapshot.jobs,
        snapshot.machine,
        snapshot.core_owner,
        snapshot.core_guest,
        peak,
        snapshot.node_bar,
        snapshot.changed,
    )


def peaks(snapshot: Snapshot) -> Floats:
    """(cores,) 95th percentile of what the batch job on each core uses of it; its mean where no more is known."""
    if snapshot.core_peak is not None:
        return snapshot.core_peak
    owner = snapshot.core_owner
    known, held = np.full(len(owner), np.nan), owner >= 0  # there may be no job at all
    known[held] = snapshot.jobs.cpu_fraction[owner[held]]
    return known


@compiled
def see(
    columns: Columns,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
) -> View:
    """A view of the snapshot whose tables `columns` are."""
    return View(now, min(now, own_known), queue, running, guests, columns)


def seen(snapshot: Snapshot) -> tuple[float, float, Ints, Ints, Ints]:
    """What of a snapshot is new each time, as `see` takes it."""
    return snapshot.time_s, snapshot.own_known_s, snapshot.queue, snapshot.running, snapshot.guests


def spread(cores: int, nodes: int) -> list[int]:
    """So many cores over so many nodes, as evenly as can be, the largest part first."""
    return [cores // nodes + (k < cores % nodes) for k in range(nodes)]


def cores_of(first: Ints, nodes: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of every core of these nodes, one node after the other: its number, and the place of its node among them.

    `first` is the machine's (N + 1,) first cores.
    """
    counts = first[nodes + 1] - first[nodes]
    at = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    cores = np.repeat(first[nodes] - before, counts) + np.arange(len(at))
    return cores.astype(np.intp), at


def node_of_core(machine: Machine) -> NDArray[np.intp]:
    """(cores,) Number of the node of each core."""
    return np.repeat(np.arange(len(machine.cores)), machine.cores)


def held_memory(snapshot: Snapshot, holder: Ints) -> Floats:
    """(N,) Bytes that the jobs in `holder` (cores,) reserve of each node, as far as it is known."""
    held = np.flatnonzero(holder >= 0)
    bytes_ = np.nan_to_num(snapshot.jobs.memory_bytes_per_core[holder[held]])
    nodes = node_of_core(snapshot.machine)[held]
    reserved = np.bincount(nodes, weights=bytes_, minlength=len(snapshot.machine.cores))
    return reserved.astype(np.float64, copy=False)


def cores_with_memory(cores: NDArray[Any], free_bytes: Floats, need_bytes: float) -> Floats:
    """(N,) For how many of a node's `cores` its free memory (N,) is enough, where each needs so much; NaN needs none.

    Sums of memory are rounded: what lacks less than `ROOM` of a core is there.
    """
    if not need_bytes > 0:
        return cores.astype(np.float64)
    there = np.maximum(np.nan_to_num(free_bytes, posinf=np.inf), 0.0)
    fits: Floats = np.minimum(cores, np.floor(there / need_bytes + ROOM))
    return fits


def held_over_time(
    until: NDArray[Any], amount: NDArray[Any], steps: int, where: NDArray[Any] | None = None, places: int = 0
) -> Floats:
    """What is held in each step from the present one on, of n holders until their steps (n,), from 1.

    Of `amount` (n,) cores (steps,); of (n, R) resources on the places `where` (n,) they are held (steps, places, R).
    """
    at = () if where is None else (where,)
    change = np.zeros((steps + 1, *(() if where is None else (places, *amount.shape[1:]))))
    np.add.at(change, (np.zeros(len(until), np.int64), *at), amount)
    np.add.at(change, (until.astype(np.int64), *at), -amount)
    held: Floats = np.cumsum(change[:-1], axis=0)
    return held


def usable_nodes(snapshot: Snapshot) -> NDArray[np.bool_]:
    """(N,) Which nodes can start anything at all."""
    usable: NDArray[np.bool_] = snapshot.node_bar != NodeIneligible.DOWN
    return usable


class Pools(NamedTuple):
    """What the N nodes could lend; cores' worth of CPU unless it says otherwise. Filled by `fill_pools`."""

    spare: NDArray[np.float64]
    """What hosts leave beyond their 95th percentile and headroom."""
    lent: NDArray[np.float64]
    """The part of it that is lent: of each host no more than its share."""
    free: NDArray[np.float64]
    """What free cores give."""
    taken: NDArray[np.float64]
    """What guests take of it, at the rate at which they run."""
    pool: NDArray[np.float64]
    """`lent + free - taken`: what is left."""
    open: NDArray[np.int32]
    """Cores without a guest."""
    unheld: NDArray[np.int32]
    """Cores without a batch job."""
    memory: NDArray[np.float64]
    """Bytes that further guests may take, inf where memory is not known."""
    group: NDArray[np.int32]
    """Share group of the jobs that are there, MIXED or NOBODY."""
    bound: NDArray[np.int8]
    """Is one of them bound by memory bandwidth?"""
    closed: NDArray[np.bool_]
    """Does it take no further guests?"""
    usual: NDArray[np.float64]
    """(1,) mean use of a held core in the cluster, 1 before anything is known."""
    demands: NDArray[np.float64]
    """What guests would take if they got it all."""
    guests: NDArray[np.int32]
    """How many guests there are."""
    place_guest: NDArray[np.int32]
    """(cores,) a row for each guest of a node, from that of its first core on: who it is, and how many cores it has."""
    place_cores: NDArray[np.int32]
    reserved: NDArray[np.float64]
    """Bytes that batch jobs hold, and those that guests do."""
    guest_memory: NDArray[np.float64]
    seen: NDArray[np.int64]
    """(2,) entries of `Changed` that have been counted here, and by a policy that learns from them; -1: nothing has."""
    again: NDArray[np.bool_]
    """Is a node no longer what was computed of it, as offers have been made there?"""
    host_share: NDArray[np.float64]
    """(rows,) what was counted of each batch job, and of each guest."""
    host_peak: NDArray[np.float64]
    host_late: NDArray[np.bool_]
    guest_wants: NDArray[np.float64]
    guest_pace: NDArray[np.float64]
    host_seen: NDArray[np.int64]
    """(rows,) how many entries of `Changed` there were when a policy last learned of the job."""


def new_pools(nodes: int, cores: int, rows: int) -> Pools:
    """Nothing is known yet of so many nodes, cores of all of them, and rows of jobs."""
    return Pools(
        spare=np.zeros(nodes),
        lent=np.zeros(nodes),
        free=np.zeros(nodes),
        taken=np.zeros(nodes),
        pool=np.zeros(nodes),
        open=np.zeros(nodes, np.int32),
        unheld=np.zeros(nodes, np.int32),
        memory=np.zeros(nodes),
        group=np.zeros(nodes, np.int32),
        bound=np.zeros(nodes, np.int8),
        closed=np.zeros(nodes, np.bool_),
        usual=np.ones(1),
        demands=np.zeros(nodes),
        guests=np.zeros(nodes, np.int32),
        place_guest=np.zeros(cores, np.int32),
        place_cores=np.zeros(cores, np.int32),
        reserved=np.zeros(nodes),
        guest_memory=np.zeros(nodes),
        seen=np.full(2, -1),
        again=np.zeros(nodes, np.bool_),
        host_share=np.full(rows, np.nan),
        host_peak=np.full(rows, np.nan),
        host_late=np.zeros(rows, np.bool_),
        guest_wants=np.full(rows, np.nan),
        guest_pace=np.full(rows, np.nan),
        host_seen=np.full(rows, -1),
    )


@borrowing
def usual_use(view: View) -> float:
    """Mean use of a held core, over the running jobs that have been measured; 1 where none has."""
    used, held = 0.0, 0
    for i in range(len(view.running)):
        job = view.running[i]
        if not np.isnan(view.c.cpu_fraction[job]):
            used += view.c.cpu_fraction[job] * view.c.cores[job]
            held += view.c.cores[job]
    return used / held if held > 0 else 1.0


@borrowing
def joined(group: int, other: int) -> int:
    """Share group of a node of `group` where a job of group `other` is too."""
    return other if group in (NOBODY, other) else MIXED


@borrowing
def fill_pools(
    view: View,
    share: NDArray[np.float64],
    peak: NDArray[np.float64],
    late: NDArray[np.bool_],
    headroom: float,
    pools: Pools,
) -> None:
    """Fill `pools`. By row of a running job: `share` that it lends, and the `peak` of its use of a core that counts
    until it has been measured (NaN: it lends nothing until then); nodes of who is `late` are closed to more guests.

    Where the cluster keeps account of what has changed, only nodes that have since the last time are looked at core by
    core: O(nodes + jobs that run + cores of changed nodes), else O(cores). What comes out is the same.
    """
    c = view.c
    usual = usual_use(view)
    pools.usual[0] = usual
    nodes = len(c.node_first) - 1
    if len(c.changes) == 0 or pools.seen[0] < 0 or c.changes[0] - pools.seen[0] > nodes:
        pools.again[:] = True
    else:
        for k in range(pools.seen[0], c.changes[0]):
            pools.again[c.changed_nodes[k % nodes]] = True
    if len(c.changes):
        pools.seen[0] = c.changes[0]
        _compare_hosts(view, share, peak, late, pools)
        _compare_guests(view, pools)
    head = -1
    for i in range(len(view.queue)):
        if np.isnan(c.offered_s[view.queue[i]]):
            head = view.queue[i]
            break
    for node in range(nodes):
        if pools.again[node]:
            pools.again[node] = False
            _fill_node(view, share, peak, late, headroom, node, pools)
        # what the whole cluster has a say in
        unheld, group = pools.unheld[node], pools.group[node]
        free = 0.0
        if c.lends[FREE_CORES] and (group == NOBODY or group == 0):
            free = unheld * max(0.0, 1.0 - usual - headroom)
        if c.node_bar[node] != 0 or (c.lends[WHOLE_NODES] and unheld > 0):
            free = 0.0
        pools.free[node] = free
        pools.pool[node] = pools.lent[node] + free - pools.taken[node]
        memory = c.node_memory[node]
        if np.isnan(memory):
            pools.memory[node] = np.inf
        else:
            kept = memory * unheld / max(1, c.node_first[node + 1] - c.node_first[node])
            if head >= 0:
                kept = max(kept, c.memory_bytes_per_core[head] * min(unheld, c.cores[head]))
            pools.memory[node] = memory - pools.reserved[node] - pools.guest_memory[node] - kept


@borrowing
def _compare_hosts(
    view: View, share: NDArray[np.float64], peak: NDArray[np.float64], late: NDArray[np.bool_], pools: Pools
) -> None:
    """Nodes of batch jobs that lend otherwise than was counted are to be computed anew."""
    c = view.c
    for i in range(len(view.running)):
        job = view.running[i]
        same = share[job] == pools.host_share[job] and late[job] == pools.host_late[job]
        known = peak[job]
        if known != pools.host_peak[job] and not (np.isnan(known) and np.isnan(pools.host_peak[job])):
            pools.host_peak[job] = known
            same = same and not np.isnan(
                c.core_peak[c.owner_first[job]]
            )  # it counts only until it is measured
        if same:
            continue
        pools.host_share[job], pools.host_late[job] = share[job], late[job]
        core = c.owner_first[job]
        while core >= 0:
            pools.again[node_at(c.node_first, core)] = True
            core = c.owner_skip[core]


@borrowing
def _compare_guests(view: View, pools: Pools) -> None:
    """The same of nodes of guests that use or get another part of a core."""
    c = view.c
    for i in range(len(view.guests)):
        job = view.guests[i]
        wants, pace = demand_of(view, job), c.pace[job]
        if wants == pools.guest_wants[job] and (
            pace == pools.guest_pace[job] or (np.isnan(pace) and np.isnan(pools.guest_pace[job]))
        ):
            continue
        pools.guest_wants[job], pools.guest_pace[job] = wants, pace
        core = c.guest_first[job]
        while core >= 0:
            pools.again[node_at(c.node_first, core)] = True
            core = c.guest_skip[core]


@borrowing
def node_at(first: NDArray[np.int32], core: int) -> int:
    """The node of a core, by the (N + 1,) first cores."""
    nodes = len(first) - 1
    # most machines have equal nodes
    guess = core * nodes // first[nodes]
    if first[guess] <= core < first[guess + 1]:
        return int(guess)
    low, high = 0, nodes
    while low < high:
        middle = (low + high) >> 1
        if first[middle + 1] <= core:
            low = middle + 1
        else:
            high = middle
    return low


@borrowing
def _fill_node(
    view: View,
    share: NDArray[np.float64],
    peak: NDArray[np.float64],
    late: NDArray[np.bool_],
    headroom: float,
    node: int,
    pools: Pools,
) -> None:
    """What a node's own cores say."""
    c = view.c
    begin, end = c.node_first[node], c.node_first[node + 1]
    spare, lent, taken, demands, requested, guests = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    unheld, open_cores, group, bound = 0, 0, NOBODY, False
    whole, closed = True, False
    # cores of one job mostly follow each other: what is known of it is looked up once
    host, ineligible, host_memory, known, lends = NOBODY, False, 0.0, 0.0, 0.0
    places = begin
    other, place, other_memory, wants, takes = NOBODY, 0, 0.0, 0.0, 0.0
    for core in range(begin, end):
        owner, guest = c.core_owner[core], c.core_guest[core]
        if owner != c.core_owner[begin]:
            whole = False
        if owner < 0:
            unheld += 1
        else:
            if owner != host:
                host = owner
                ineligible, host_memory = c.host_bar[owner] != 0, c.memory_bytes_per_core[owner]
                known, lends = peak[owner], share[owner]
                closed = closed or late[owner]
                bound = bound or c.memory_bound[owner] != 0
                group = joined(group, c.share_group[owner])
            requested += host_memory
            use = c.core_peak[core]
            if np.isnan(use):
                use = known
            if not np.isnan(use) and not ineligible:
                left = max(0.0, 1.0 - use - headroom)
                spare += left
                lent += min(left, lends)
        if guest < 0:
            open_cores += 1
        else:
            if guest != other:
                other, other_memory, wants = guest, c.memory_bytes_per_core[guest], demand_of(view, guest)
                takes = wants * (1.0 if np.isnan(c.pace[guest]) else c.pace[guest])
                bound = bound or c.memory_bound[guest] != 0
                group = joined(group, c.share_group[guest])
                place = begin
                while place < places and pools.place_guest[place] != guest:
                    place += 1
                if place == places:
                    pools.place_guest[place], pools.place_cores[place] = guest, 0
                    places += 1
            pools.place_cores[place] += 1
            guests += other_memory
            demands += wants
            taken += takes
    if c.node_bar[node] != 0 or (c.lends[WHOLE_NODES] and (not whole or unheld > 0)):
        spare, lent = 0.0, 0.0
    pools.spare[node], pools.lent[node], pools.taken[node] = spare, lent, taken
    pools.demands[node], pools.guests[node] = demands, places - begin
    pools.open[node], pools.unheld[node] = open_cores, unheld
    pools.group[node], pools.bound[node], pools.closed[node] = group, bound, closed
    pools.reserved[node], pools.guest_memory[node] = requested, guests


@compiled
def _fill(
    columns: Columns,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    share: NDArray[np.float64],
    peak: NDArray[np.float64],
    late: NDArray[np.bool_],
    headroom: float,
    pools: Pools,
) -> None:
    """`fill_pools` in one call."""
    fill_pools(see(columns, now, own_known, queue, running, guests), share, peak, late, headroom, pools)


def pools_of(snapshot: Snapshot, headroom: float) -> Pools:
    """The pools where every host lends all that it has spare, and nothing until it has been measured."""
    rows, nodes = len(snapshot.jobs.cores), len(snapshot.machine.cores)
    pools = new_pools(nodes, len(snapshot.core_owner), rows)
    _fill(
        columns_of(snapshot, snapshot.machine.first_core),
        *seen(snapshot),
        np.ones(rows),
        np.full(rows, np.nan),
        np.zeros(rows, np.bool_),
        headroom,
        pools,
    )
    return pools


@borrowing
def demand_of(view: View, guest: int) -> float:
    """What a guest uses of a core if nobody takes any: measured, else what was expected of it, else all."""
    if not np.isnan(view.c.cpu_fraction[guest]):
        return float(view.c.cpu_fraction[guest])
    return 1.0 if np.isnan(view.c.demand[guest]) else float(view.c.demand[guest])

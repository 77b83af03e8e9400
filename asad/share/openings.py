"""Where a guest could go: nodes wholly held by one running batch job, with cores that no guest has, and room to lend.

Compiled, since it looks at every core of the cluster at every cycle (about 1 ns a core). The policies that lend in
pairs start from here (`asax-paper`, `static`, `greedy-oracle`); they differ in the ceiling of a host (how much of it
may be lent at all) and in the share they choose. Those that lend from pools start from `asad.capacity`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.model import Snapshot

ROOM = 1e-9
"""Shares are sums of tenths: what is smaller than this is rounding."""


class View(NamedTuple):
    """The columns of a snapshot that compiled policies read. Rows are those of `Snapshot.jobs`."""

    now: float
    queue: NDArray[np.int32]
    running: NDArray[np.int32]
    guests: NDArray[np.int32]
    core_owner: NDArray[np.int32]
    core_guest: NDArray[np.int32]
    node_first: NDArray[np.int32]
    node_memory: NDArray[np.float64]
    application: NDArray[np.int32]
    cores: NDArray[np.int32]
    nodes: NDArray[np.int32]
    limit: NDArray[np.float64]
    limit_end: NDArray[np.float64]
    memory: NDArray[np.float64]
    start: NDArray[np.float64]
    submit: NDArray[np.float64]
    estimate: NDArray[np.float64]
    own_start: NDArray[np.float64]
    own_estimate: NDArray[np.float64]
    cpu: NDArray[np.float64]
    pace: NDArray[np.float64]
    lost: NDArray[np.float64]
    host: NDArray[np.int32]
    share: NDArray[np.float64]
    share_group: NDArray[np.int32]
    memory_bound: NDArray[np.int8]
    host_bar: NDArray[np.int8]
    guest_bar: NDArray[np.int8]
    own_known: float


class Openings(NamedTuple):
    """Scratch of a policy for N nodes and the rows of its snapshots; see `find`."""

    found: NDArray[np.int64]  # [hosts with an opening]
    hosts: NDArray[np.int32]  # (N,) rows of those hosts, in the order of their first node
    open_total: NDArray[np.int32]  # (N,) open cores of each of those hosts, over its open nodes
    open_cores: NDArray[np.int32]  # (N,) cores of a node that no guest has
    room: NDArray[np.float64]  # (N,) share of the holder's CPU that may still be lent there
    memory_free: NDArray[np.float64]  # (N,) inf where memory is not known
    memory_guests: NDArray[np.float64]  # (N,) held by guests
    holder: NDArray[np.int32]  # (N,) the batch job that holds the node wholly, -1 for none
    following: NDArray[np.int32]  # (N,) next open node of the same host, -1 after the last
    first: NDArray[np.int32]  # (rows,) first open node of a host, -1 for none
    last: NDArray[np.int32]  # (rows,)
    chosen: NDArray[np.int32]  # (N,) nodes of the fit under consideration


def new_openings(nodes: int, rows: int) -> Openings:
    """Scratch for `nodes` nodes and snapshots of up to `rows` jobs."""
    return Openings(
        found=np.zeros(1, np.int64),
        hosts=np.zeros(nodes, np.int32),
        open_total=np.zeros(nodes, np.int32),
        open_cores=np.zeros(nodes, np.int32),
        room=np.zeros(nodes),
        memory_free=np.zeros(nodes),
        memory_guests=np.zeros(nodes),
        holder=np.full(nodes, -1, np.int32),
        following=np.full(nodes, -1, np.int32),
        first=np.full(rows, -1, np.int32),
        last=np.full(rows, -1, np.int32),
        chosen=np.zeros(nodes, np.int32),
    )


def view_of(snapshot: Snapshot, node_first: NDArray[np.int32]) -> View:
    """The snapshot as compiled code wants it; `node_first` is the machine's (N + 1,) first cores."""
    jobs = snapshot.jobs
    return View(
        now=snapshot.time_s,
        queue=snapshot.queue,
        running=snapshot.running,
        guests=snapshot.guests,
        core_owner=snapshot.core_owner,
        core_guest=snapshot.core_guest,
        node_first=node_first,
        node_memory=snapshot.machine.memory_bytes,
        application=jobs.application,
        cores=jobs.cores,
        nodes=jobs.nodes,
        limit=jobs.time_limit_s,
        limit_end=jobs.limit_end_s,
        memory=jobs.memory_bytes_per_core,
        start=jobs.start_s,
        submit=jobs.submit_s,
        estimate=jobs.estimated_start_s,
        own_start=jobs.own_start_s,
        own_estimate=jobs.own_estimate_s,
        cpu=jobs.cpu_fraction,
        pace=jobs.pace,
        lost=jobs.lost_s,
        host=jobs.host,
        share=jobs.share,
        share_group=jobs.share_group,
        memory_bound=jobs.memory_bound,
        host_bar=jobs.host_bar,
        guest_bar=jobs.guest_bar,
        own_known=min(snapshot.time_s, snapshot.own_known_s),
    )


@borrowing
def share_held(view: View, guest: int) -> float:
    """Share of its nodes that a guest holds: all the room there is while it is not decided yet."""
    return 1.0 if np.isnan(view.share[guest]) else view.share[guest]


@borrowing
def find(view: View, ceiling: NDArray[np.float64], least: float, openings: Openings) -> None:
    """Fill `openings`: hosts whose `ceiling` (by row) leaves at least the share `least` on some node."""
    for i in range(openings.found[0]):
        openings.first[openings.hosts[i]] = -1
    openings.found[0] = 0
    for node in range(
        len(view.node_first) - 2, -1, -1
    ):  # the scheduler fills from the lowest: guests from the highest
        begin, end = view.node_first[node], view.node_first[node + 1]
        owner = view.core_owner[begin] if begin < end else -1
        openings.following[node] = -1
        openings.holder[node] = -1
        if owner < 0:
            continue
        open_cores = 0
        lent = 0.0
        before = -1
        whole = True
        held = 0.0
        for core in range(begin, end):
            if view.core_owner[core] != owner:
                whole = False
                break
            guest = view.core_guest[core]
            if guest < 0:
                open_cores += 1
            else:
                held += view.memory[guest]
                if guest != before:
                    seen = False
                    for k in range(begin, core):
                        if view.core_guest[k] == guest:
                            seen = True
                            break
                    if not seen:
                        lent += share_held(view, guest)
                before = guest
        if not whole:
            continue
        openings.holder[node] = owner
        openings.open_cores[node] = open_cores
        room = ceiling[owner] - lent
        openings.room[node] = room
        openings.memory_guests[node] = held
        if np.isnan(view.node_memory[node]):
            openings.memory_free[node] = np.inf
        else:
            openings.memory_free[node] = view.node_memory[node] - held - (end - begin) * view.memory[owner]
        if open_cores == 0 or not room >= least - ROOM:
            continue
        if openings.first[owner] < 0:
            openings.hosts[openings.found[0]] = owner
            openings.found[0] += 1
            openings.first[owner] = node
        else:
            openings.following[openings.last[owner]] = node
        openings.last[owner] = node
    for k in range(openings.found[0]):
        openings.open_total[k] = 0
        node = openings.first[openings.hosts[k]]
        while node >= 0:
            openings.open_total[k] += openings.open_cores[node]
            node = openings.following[node]


@borrowing
def fit(
    view: View, openings: Openings, host: int, guest: int, share: float, cpu: float
) -> tuple[int, float, float]:
    """Where the guest would go beside `host` with at least `share` of it; `cpu` is what it is expected to use.

    On as few nodes as let it run at full speed, where there are enough, else on all; evenly, and not on the lowest,
    which the scheduler fills first. Returns the number of nodes in `openings.chosen` (0 if it does not fit), the
    share that each of them has room for, and the host's cores over the guest's on the worst of them.
    """
    wanted = view.cores[guest]
    given = view.nodes[guest]
    most = given if given > 0 else len(openings.chosen)
    for packed in (True, False):
        count, open_cores = 0, 0
        room, ratio = np.inf, np.inf
        node = openings.first[host]
        while node >= 0 and count < most and not (packed and given == 0 and open_cores >= wanted):
            cores = view.node_first[node + 1] - view.node_first[node]
            take = openings.open_cores[node]
            if view.memory[guest] > 0 and openings.memory_free[node] < np.inf:
                take = min(take, int(openings.memory_free[node] / view.memory[guest] + ROOM))
            if packed:
                take = min(take, int(openings.room[node] * cores / cpu + ROOM))
            if given > 0 and take * given < wanted:
                take = 0  # every node has to take its part
            if take > 0 and openings.room[node] >= share - ROOM:
                openings.chosen[count] = node
                count += 1
                open_cores += take
                room = min(room, openings.room[node])
            node = openings.following[node]
        if open_cores < wanted or (given > 0 and count < given):
            continue
        count = min(count, wanted)
        even = (wanted + count - 1) // count
        for i in range(count):
            node = openings.chosen[i]
            cores = view.node_first[node + 1] - view.node_first[node]
            ratio = min(ratio, cores / min(even, openings.open_cores[node]))
        return count, room, ratio
    return 0, 0.0, 0.0


@borrowing
def take(view: View, openings: Openings, guest: int, count: int, share: float) -> None:
    """The guest has been promised `share` on the first `count` chosen nodes: later guests find that taken."""
    wanted = view.cores[guest]
    even = (wanted + count - 1) // count
    for i in range(count):
        node = openings.chosen[i]
        cores = min(even, openings.open_cores[node], wanted)
        openings.open_cores[node] -= cores
        openings.room[node] -= share
        openings.memory_free[node] -= cores * view.memory[guest]
        openings.memory_guests[node] += cores * view.memory[guest]
        wanted -= cores

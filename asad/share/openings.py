"""Where a guest could go: nodes wholly held by one running batch job, with cores that no guest has, and room to lend.

Compiled, since it looks at every core of the cluster at every cycle (about 1 ns a core). The policies that lend in
pairs start from here (`asax-paper`, `static`, `greedy-oracle`); they differ in the ceiling of a host (how much of it
may be lent at all) and in the share they choose. Those that lend from pools start from `asad.capacity`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import ROOM, View
from asad.compiling import borrowing


class Openings(NamedTuple):
    """Scratch of a policy for N nodes and the rows of its snapshots; see `find`."""

    found: NDArray[np.int64]  # [hosts with an opening]
    hosts: NDArray[np.int32]  # (N,) rows of those hosts, in the order of their first node
    open_cores: NDArray[np.int32]  # (N,) cores of a node that no guest has
    room: NDArray[np.float64]  # (N,) share of the holder's CPU that may still be lent there
    memory_free: NDArray[np.float64]  # (N,) inf where memory is not known
    following: NDArray[np.int32]  # (N,) next open node of the same host, -1 after the last
    first: NDArray[np.int32]  # (rows,) first open node of a host, -1 for none
    last: NDArray[np.int32]  # (rows,)
    chosen: NDArray[np.int32]  # (N,) nodes of the fit under consideration


def new_openings(nodes: int, rows: int) -> Openings:
    """Scratch for `nodes` nodes and snapshots of up to `rows` jobs."""
    return Openings(
        found=np.zeros(1, np.int64),
        hosts=np.zeros(nodes, np.int32),
        open_cores=np.zeros(nodes, np.int32),
        room=np.zeros(nodes),
        memory_free=np.zeros(nodes),
        following=np.full(nodes, -1, np.int32),
        first=np.full(rows, -1, np.int32),
        last=np.full(rows, -1, np.int32),
        chosen=np.zeros(nodes, np.int32),
    )


@borrowing
def find(view: View, ceiling: NDArray[np.float64], least: float, openings: Openings) -> None:
    """Fill `openings`: hosts whose `ceiling` (by row) leaves at least the share `least` on some node."""
    c = view.c
    for i in range(openings.found[0]):
        openings.first[openings.hosts[i]] = -1
    openings.found[0] = 0
    # the scheduler fills from the lowest: guests from the highest
    for node in range(len(c.node_first) - 2, -1, -1):
        begin, end = c.node_first[node], c.node_first[node + 1]
        owner = c.core_owner[begin] if begin < end else -1
        openings.following[node] = -1
        if owner < 0:
            continue
        open_cores = 0
        lent = 0.0
        before = -1
        whole = True
        held = 0.0
        for core in range(begin, end):
            if c.core_owner[core] != owner:
                whole = False
                break
            guest = c.core_guest[core]
            if guest < 0:
                open_cores += 1
            else:
                held += c.memory_bytes_per_core[guest]
                if guest != before:
                    for k in range(begin, core):
                        if c.core_guest[k] == guest:
                            break
                    else:  # all the room there is while it is not decided yet
                        lent += 1.0 if np.isnan(c.share[guest]) else c.share[guest]
                before = guest
        if not whole:
            continue
        openings.open_cores[node] = open_cores
        room = ceiling[owner] - lent
        openings.room[node] = room
        if np.isnan(c.node_memory[node]):
            openings.memory_free[node] = np.inf
        else:
            openings.memory_free[node] = (
                c.node_memory[node] - held - (end - begin) * c.memory_bytes_per_core[owner]
            )
        if open_cores == 0 or not room >= least - ROOM:
            continue
        if openings.first[owner] < 0:
            openings.hosts[openings.found[0]] = owner
            openings.found[0] += 1
            openings.first[owner] = node
        else:
            openings.following[openings.last[owner]] = node
        openings.last[owner] = node


@borrowing
def fit(
    view: View, openings: Openings, host: int, guest: int, share: float, cpu: float
) -> tuple[int, float, float]:
    """Where the guest would go beside `host` with at least `share` of it; `cpu` is what it is expected to use.

    On as few nodes as let it run at full speed, where there are enough, else on all; evenly, and not on the lowest,
    which the scheduler fills first. Returns the number of nodes in `openings.chosen` (0 if it does not fit), the
    share that each of them has room for, and the host's cores over the guest's on the worst of them.
    """
    c = view.c
    wanted = c.cores[guest]
    given = c.nodes[guest]
    most = given if given > 0 else len(openings.chosen)
    for packed in (True, False):
        count, open_cores = 0, 0
        room, ratio = np.inf, np.inf
        node = openings.first[host]
        while node >= 0 and count < most and not (packed and given == 0 and open_cores >= wanted):
            cores = c.node_first[node + 1] - c.node_first[node]
            take = openings.open_cores[node]
            if c.memory_bytes_per_core[guest] > 0 and openings.memory_free[node] < np.inf:
                take = min(take, int(openings.memory_free[node] / c.memory_bytes_per_core[guest] + ROOM))
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
            cores = c.node_first[node + 1] - c.node_first[node]
            ratio = min(ratio, cores / min(even, openings.open_cores[node]))
        return count, room, ratio
    return 0, 0.0, 0.0


@borrowing
def take(view: View, openings: Openings, guest: int, count: int, share: float) -> None:
    """The guest has been promised `share` on the first `count` chosen nodes: later guests find that taken."""
    c = view.c
    wanted = c.cores[guest]
    even = (wanted + count - 1) // count
    for i in range(count):
        node = openings.chosen[i]
        cores = min(even, openings.open_cores[node], wanted)
        openings.open_cores[node] -= cores
        openings.room[node] -= share
        openings.memory_free[node] -= cores * c.memory_bytes_per_core[guest]
        wanted -= cores

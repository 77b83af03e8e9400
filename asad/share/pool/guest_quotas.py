"""Quotas of guests: what each is expected to use, and an equal part of what is left of the pool."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import Pools, View, demand_of
from asad.compiling import borrowing
from asad.share.pool.memo import Memo
from asad.share.pool.pool_options import Options

CHANGE = 0.2
"""A quota that would change by less of a guest's cores stays as it is."""
MOST = 512
"""Changes of one cycle at the most."""


class Quotas(NamedTuple):
    """Changes of one cycle: quotas as a fraction of the guest's cores on each of its nodes."""

    guest: NDArray[np.int32]
    quota: NDArray[np.float64]
    nodes_end: NDArray[np.int32]
    nodes: NDArray[np.int32]
    held: NDArray[np.int32]
    """Nodes of the guests, one after the other, and how many cores each has there; `nodes_end` says where those of one
    end."""
    wanted: NDArray[np.float64]
    """(rows,) scratch: the least quota over the nodes of each guest; NaN while one of them is under pressure."""


def new_quotas(rows: int, cores: int) -> Quotas:
    """None yet, for snapshots of so many rows and cores."""
    return Quotas(
        guest=np.zeros(MOST, np.int32),
        quota=np.zeros(MOST),
        nodes_end=np.zeros(MOST, np.int32),
        nodes=np.zeros(cores, np.int32),
        held=np.zeros(cores, np.int32),
        wanted=np.zeros(rows),
    )


@borrowing
def set_quotas(view: View, pools: Pools, o: Options, memo: Memo, quotas: Quotas) -> int:
    """Fill `quotas` with what has to change; how many changes there are.

    Never less than a guest is expected to use, and headroom, since use varies: in the idle class it takes nothing that
    a host wants. Who gives way where a host waits for CPU all the same is the guard's to say (`Guard.relieve`); until
    that is over nothing changes there.
    """
    c = view.c
    for i in range(len(view.guests)):
        quotas.wanted[view.guests[i]] = 1.0
    pressed = False
    for i in range(len(view.running)):
        pressed = pressed or c.pressure[view.running[i]] > o.pressure  # never of NaN
    for node in range(len(pools.guests)):
        if pools.guests[node] == 0:
            continue
        over = max(0.0, pools.lent[node] + pools.free[node] - pools.demands[node]) / pools.guests[node]
        squeezed = pressed and _is_pressed(view, node, o)
        for k in range(c.node_first[node], c.node_first[node] + pools.guests[node]):
            guest = pools.place_guest[k]
            quota = demand_of(view, guest) + o.headroom + over / pools.place_cores[k]
            quotas.wanted[guest] = np.minimum(quotas.wanted[guest], np.nan if squeezed else quota)
    count, used = 0, 0
    for i in range(len(view.guests)):
        guest = view.guests[i]
        if count == MOST or np.isnan(c.demand[guest]):
            continue
        if np.isnan(quotas.wanted[guest]):
            memo.quota[guest] = np.nan
            continue
        wanted = np.ceil(20.0 * quotas.wanted[guest] - 1e-9) / 20.0
        if not abs(wanted - memo.quota[guest]) < CHANGE:  # NaN: it has none yet
            memo.quota[guest] = wanted
            used = _list_nodes(view, pools, guest, quotas, used)
            quotas.guest[count], quotas.quota[count], quotas.nodes_end[count] = guest, wanted, used
            count += 1
    return count


@borrowing
def _is_pressed(view: View, node: int, o: Options) -> bool:
    """Does a host on the node wait for CPU?"""
    c = view.c
    for core in range(c.node_first[node], c.node_first[node + 1]):
        if c.core_owner[core] >= 0 and c.pressure[c.core_owner[core]] > o.pressure:
            return True
    return False


@borrowing
def _list_nodes(view: View, pools: Pools, guest: int, quotas: Quotas, used: int) -> int:
    """The nodes of a guest, behind the `used` ones that are listed already; how many are listed now."""
    first = view.c.node_first
    for node in range(len(pools.guests)):
        for k in range(first[node], first[node] + pools.guests[node]):
            if pools.place_guest[k] == guest:
                quotas.nodes[used], quotas.held[used] = node, pools.place_cores[k]
                used += 1
    return used

"""Lending in pairs, a host and its guest, as `static`, `asax-paper` and `greedy-oracle` do it.

A guest could go to nodes wholly held by one running batch job that may lend, with cores that no guest has, and room to
lend. The
policies differ in how much of a host may be lent at all (its ceiling), in whom they choose, and in the share. New
guests are found in one call of compiled code, since it looks at every core of the cluster (about 1 ns a core); what
that works on is handed to it once (`asad.share.jit_args`). Those that lend from pools start from `asad.capacity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import ROOM, View, columns_of, tables_of
from asad.compiling import borrowing
from asad.decisions import Cause, CoAllocate, Decision, SetShare
from asad.model import Floats, Snapshot
from asad.share import SharePolicy
from asad.share.jit_args import JitArgs, bind

MOST = 512
"""Decisions of one cycle at the most; the rest waits for the next."""


class Candidates(NamedTuple):
    """Scratch of a policy for N nodes and the rows of its snapshots; see `find`."""

    found: NDArray[np.int64]  # [hosts with a node that could take a guest]
    hosts: NDArray[np.int32]  # (N,) rows of those hosts, in the order of their first node
    open_cores: NDArray[np.int32]  # (N,) cores of a node that no guest has
    room: NDArray[np.float64]  # (N,) share of the holder's CPU that may still be lent there
    memory_free: NDArray[np.float64]  # (N,) inf where memory is not known
    following: NDArray[np.int32]  # (N,) next open node of the same host, -1 after the last
    first: NDArray[np.int32]  # (rows,) first open node of a host, -1 for none
    last: NDArray[np.int32]  # (rows,)
    chosen: NDArray[np.int32]  # (N,) nodes of the fit under consideration


def new_candidates(nodes: int, rows: int) -> Candidates:
    """Scratch for `nodes` nodes and snapshots of up to `rows` jobs."""
    return Candidates(
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
def find(view: View, ceiling: NDArray[np.float64], least: float, candidates: Candidates) -> None:
    """Fill `candidates`: hosts that may lend, and whose `ceiling` (by row) leaves at least the share `least` on some
    node."""
    c = view.c
    for i in range(candidates.found[0]):
        candidates.first[candidates.hosts[i]] = -1
    candidates.found[0] = 0
    # the scheduler fills from the lowest: guests from the highest
    for node in range(len(c.node_first) - 2, -1, -1):
        begin, end = c.node_first[node], c.node_first[node + 1]
        owner = c.core_owner[begin] if begin < end else -1
        candidates.following[node] = -1
        if owner < 0 or c.host_bar[owner] or c.node_bar[node]:
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
        candidates.open_cores[node] = open_cores
        room = ceiling[owner] - lent
        candidates.room[node] = room
        if np.isnan(c.node_memory[node]):
            candidates.memory_free[node] = np.inf
        else:
            candidates.memory_free[node] = (
                c.node_memory[node] - held - (end - begin) * c.memory_bytes_per_core[owner]
            )
        if open_cores == 0 or not room >= least - ROOM:
            continue
        if candidates.first[owner] < 0:
            candidates.hosts[candidates.found[0]] = owner
            candidates.found[0] += 1
            candidates.first[owner] = node
        else:
            candidates.following[candidates.last[owner]] = node
        candidates.last[owner] = node


@borrowing
def fit(
    view: View, candidates: Candidates, host: int, guest: int, share: float, cpu: float
) -> tuple[int, float, float]:
    """Where the guest would go beside `host` with at least `share` of it; `cpu` is what it is expected to use.

    On as few nodes as let it run at full speed, where there are enough, else on all; evenly, and not on the lowest,
    which the scheduler fills first. Returns the number of nodes in `candidates.chosen` (0 if it does not fit), the
    share that each of them has room for, and the host's cores over the guest's on the worst of them.
    """
    c = view.c
    wanted = c.cores[guest]
    given = c.nodes[guest]
    most = given if given > 0 else len(candidates.chosen)
    for packed in (True, False):
        count, open_cores = 0, 0
        room, ratio = np.inf, np.inf
        node = candidates.first[host]
        while node >= 0 and count < most and not (packed and given == 0 and open_cores >= wanted):
            cores = c.node_first[node + 1] - c.node_first[node]
            take = candidates.open_cores[node]
            if c.memory_bytes_per_core[guest] > 0 and candidates.memory_free[node] < np.inf:
                take = min(take, int(candidates.memory_free[node] / c.memory_bytes_per_core[guest] + ROOM))
            if packed:
                take = min(take, int(candidates.room[node] * cores / cpu + ROOM))
            if given > 0 and take * given < wanted:
                take = 0  # every node has to take its part
            if take > 0 and candidates.room[node] >= share - ROOM:
                candidates.chosen[count] = node
                count += 1
                open_cores += take
                room = min(room, candidates.room[node])
            node = candidates.following[node]
        if open_cores < wanted or (given > 0 and count < given):
            continue
        count = min(count, wanted)
        even = (wanted + count - 1) // count
        for i in range(count):
            node = candidates.chosen[i]
            cores = c.node_first[node + 1] - c.node_first[node]
            ratio = min(ratio, cores / min(even, candidates.open_cores[node]))
        return count, room, ratio
    return 0, 0.0, 0.0


@borrowing
def take(view: View, candidates: Candidates, guest: int, count: int, share: float) -> None:
    """The guest has been promised `share` on the first `count` chosen nodes: later guests find that taken."""
    c = view.c
    wanted = c.cores[guest]
    even = (wanted + count - 1) // count
    for i in range(count):
        node = candidates.chosen[i]
        cores = min(even, candidates.open_cores[node], wanted)
        candidates.open_cores[node] -= cores
        candidates.room[node] -= share
        candidates.memory_free[node] -= cores * c.memory_bytes_per_core[guest]
        wanted -= cores


class Pairs(NamedTuple):
    """The lendings that a cycle has chosen, in columns of `MOST`."""

    guest: NDArray[np.int32]
    host: NDArray[np.int32]
    share: NDArray[np.float64]
    nodes_end: NDArray[np.int32]
    nodes: NDArray[np.int32]
    """Nodes of all of them, one after the other; `nodes_end` says where those of each end."""


@borrowing
def choose(
    view: View,
    candidates: Candidates,
    pairs: Pairs,
    count: int,
    guest: int,
    host: int,
    used: int,
    room: float,
    share: float,
) -> int:
    """The guest gets `share` of the host on the `used` nodes of the last fit, and `room` of them is taken by it; how
    many lendings there are with this one behind the `count` before."""
    take(view, candidates, guest, used, room)
    end = pairs.nodes_end[count - 1] if count > 0 else 0
    for k in range(used):
        pairs.nodes[end + k] = candidates.chosen[k]
    pairs.guest[count], pairs.host[count] = guest, host
    pairs.share[count], pairs.nodes_end[count] = share, end + used
    return count + 1


class PairPolicy(SharePolicy):
    """Hosts lend a share of themselves to one guest a core, on nodes that they hold wholly."""

    properties = frozenset({"waits", "whole nodes", "one guest a core", "memory"})
    least: float
    """No node with less room than this is looked at."""
    _args: JitArgs
    """For compiled code: columns, ceilings, candidates, pairs, and what `_own` adds."""
    _tables: tuple[object, ...] = (None,)

    def _bind(self, snapshot: Snapshot) -> None:
        """See to it that compiled code holds the tables of this snapshot, most often those of the one before."""
        own = self._own()
        tables = (*tables_of(snapshot), *own)
        if all(map(is_, tables, self._tables)):
            return
        self._tables = tables
        rows, nodes = len(snapshot.jobs.cores), len(snapshot.machine.cores)
        self._ceiling = np.zeros(rows)
        self._pairs = Pairs(
            guest=np.zeros(MOST, np.int32),
            host=np.zeros(MOST, np.int32),
            share=np.zeros(MOST),
            nodes_end=np.zeros(MOST, np.int32),
            nodes=np.zeros(nodes + len(snapshot.core_owner), np.int32),
        )
        columns = columns_of(snapshot, snapshot.machine.first_core)
        self._args = bind(columns, self._ceiling, new_candidates(nodes, rows), self._pairs, *own)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """A share for guests beside a new host, then new guests."""
        self._bind(snapshot)
        jobs, guests, capped = snapshot.jobs, snapshot.guests, self.held == "static"
        decisions: list[Decision] = []
        # who has got a new host has no share of it yet; the guard has set those to 0 whose host it has relieved
        undecided = guests[self._without_share(jobs.share[guests]) & (jobs.host[guests] >= 0)]
        for guest in np.sort(undecided).tolist():
            found = self._anew(snapshot, guest, int(jobs.host[guest]))
            if found is not None:
                cause = Cause(self.name, found[0])
                decisions.append(SetShare(cause, guest, found[1], capped=capped))
        if len(snapshot.queue) == 0:
            return decisions
        self._ceiling[snapshot.running] = self._ceilings(snapshot)
        count = self._choose(snapshot)
        begin = 0
        for k, end in enumerate(self._pairs.nodes_end[:count].tolist()):
            guest, host, share = (column[k].item() for column in self._pairs[:3])
            where = tuple(self._pairs.nodes[begin:end].tolist())
            cause = self._cause(snapshot, k, host, share)
            decisions.append(CoAllocate(cause, guest, where, host=host, share=share, capped=capped))
            begin = end
        return decisions

    # -------------------------------------------------------------------------------------------- what is overridden

    def _own(self) -> tuple[Any, ...]:
        """What else compiled code holds; it is handed over anew where one of these is another object than before."""
        return ()

    def _without_share(self, share: Floats) -> NDArray[np.bool_]:
        """Which guests with these shares get another."""
        return np.isnan(share)

    def _anew(self, snapshot: Snapshot, guest: int, host: int) -> tuple[str, float] | None:
        """Why, and which share of its new host a guest gets; None: none yet."""
        raise NotImplementedError

    def _ceilings(self, snapshot: Snapshot) -> Floats:
        """(running,) The most of each running job that may be lent."""
        raise NotImplementedError

    def _choose(self, snapshot: Snapshot) -> int:
        """Find where guests could go (`find`), and fill `_pairs`; how many there are."""
        raise NotImplementedError

    def _cause(self, snapshot: Snapshot, k: int, host: int, share: float) -> Cause:
        """The story of lending `k`."""
        raise NotImplementedError

"""What the policies that lend in pairs, a host and its guest, have in common: `static`, `asax-paper`, `greedy-oracle`.

They differ in how much of a host may be lent at all (its ceiling), in whom they choose, and in the share. Where a guest
could go is found in `asad.share.openings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import View, columns_of
from asad.compiling import borrowing
from asad.decisions import Cause, CoAllocate, Decision, SetShare
from asad.model import Floats, Machine, Snapshot
from asad.share import SharePolicy
from asad.share.openings import Openings, find, new_openings, take

MOST = 512
"""Decisions of one cycle at the most; the rest waits for the next."""


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
    openings: Openings,
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
    take(view, openings, guest, used, room)
    end = pairs.nodes_end[count - 1] if count > 0 else 0
    for k in range(used):
        pairs.nodes[end + k] = openings.chosen[k]
    pairs.guest[count], pairs.host[count] = guest, host
    pairs.share[count], pairs.nodes_end[count] = share, end + used
    return count + 1


class PairPolicy(SharePolicy):
    """Hosts lend a share of themselves to one guest a core, on nodes that they hold wholly."""

    properties = frozenset({"waits", "whole nodes", "one guest a core", "memory"})
    least: float
    """No node with less room than this is looked at."""
    _rows = -1
    _machine: Machine | None = None

    def _fit_to(self, snapshot: Snapshot) -> None:
        """Scratch of the size of the snapshot."""
        rows, nodes = len(snapshot.jobs.cores), len(snapshot.machine.cores)
        if rows != self._rows or snapshot.machine is not self._machine:
            self._rows, self._machine = rows, snapshot.machine
            self._first = snapshot.machine.first_core
            self._openings = new_openings(nodes, rows)
            self._pairs = Pairs(
                guest=np.zeros(MOST, np.int32),
                host=np.zeros(MOST, np.int32),
                share=np.zeros(MOST),
                nodes_end=np.zeros(MOST, np.int32),
                nodes=np.zeros(nodes + len(snapshot.core_owner), np.int32),
            )

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """A share for guests beside a new host, then new guests."""
        self._fit_to(snapshot)
        jobs, guests, capped = snapshot.jobs, snapshot.guests, self.held == "static"
        columns = columns_of(snapshot, self._first)
        own_known_s = min(snapshot.time_s, snapshot.own_known_s)
        view = View(snapshot.time_s, own_known_s, snapshot.queue, snapshot.running, guests, columns)
        decisions: list[Decision] = []
        # who has got a new host has no share of it yet; the guard has set those to 0 whose host it has relieved
        undecided = guests[self._without_share(jobs.share[guests]) & (jobs.host[guests] >= 0)]
        for guest in np.sort(undecided).tolist():
            host = int(jobs.host[guest])
            found = self._anew(snapshot, view, guest, host)
            if found is not None:
                cause = Cause(self.name, found[0])
                decisions.append(SetShare(cause, guest, found[1], capped=capped))
        if len(snapshot.queue) == 0:
            return decisions
        find(view, self._ceilings(snapshot), self.least, self._openings)
        count = self._choose(snapshot, view) if self._openings.found[0] else 0
        begin = 0
        for k, end in enumerate(self._pairs.nodes_end[:count].tolist()):
            guest, host, share = (column[k].item() for column in self._pairs[:3])
            where = tuple(self._pairs.nodes[begin:end].tolist())
            cause = self._cause(snapshot, k, host, share)
            decisions.append(CoAllocate(cause, guest, where, host=host, share=share, capped=capped))
            begin = end
        return decisions

    # -------------------------------------------------------------------------------------------- what is overridden

    def _without_share(self, share: Floats) -> NDArray[np.bool_]:
        """Which guests with these shares get another."""
        return np.isnan(share)

    def _anew(self, snapshot: Snapshot, view: View, guest: int, host: int) -> tuple[str, float] | None:
        """Why, and which share of its new host a guest gets; None: none yet."""
        raise NotImplementedError

    def _ceilings(self, snapshot: Snapshot) -> Floats:
        """(rows,) The most of each host that may be lent."""
        raise NotImplementedError

    def _choose(self, snapshot: Snapshot, view: View) -> int:
        """Fill `_pairs` from `_openings`; how many there are."""
        raise NotImplementedError

    def _cause(self, snapshot: Snapshot, k: int, host: int, share: float) -> Cause:
        """The story of lending `k`."""
        raise NotImplementedError

"""A place policy and a share policy that both lend (`place = "oga"`, `share = "asax"`): each to jobs of its own.

Jobs whose user gives a number of components (`asad:components=4-8`) are the place policy's, all others the share
policy's. That is read off the job in every cycle, so that it is the same after a restart. Each policy sees the whole
cluster, with the jobs of the other as no candidates of its own, and not among the guests whose quotas and limits it
looks after. What the others hold of a node is taken from its pool (`asad.capacity`); the share policy decides after the
place policy, and sees the offers of this very cycle as guests that are there already.

Cost a cycle: O(rows + cores), 4 ms with 100 000 of either, 10 000 that wait and 2 000 guests (one core).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import spread
from asad.decisions import CoAllocate, Decision
from asad.ineligible import Ineligible
from asad.model import Jobs, Snapshot
from asad.place import PlacePolicy
from asad.place.components import read_components
from asad.share import SharePolicy


def place_lends(place: PlacePolicy) -> bool:
    """Does it make guests itself? `first-fit` leaves that to a share policy where there is one."""
    return place.held is not None and bool(place.properties)


def both_lend(place: PlacePolicy, share: SharePolicy) -> bool:
    """Do both make guests?"""
    return share.held is not None and place_lends(place)


def can_both(place: PlacePolicy, share: SharePolicy) -> bool:
    """Can both make guests at one time? They must count what nodes lend in the same way, and hold guests alike."""
    return place.pooled and share.pooled and place.held == share.held


@lru_cache(maxsize=4096)
def is_gang(text: str) -> bool:
    """Does a job's hint give a number of components? What cannot be read is none; the guard vetoes it, and says why."""
    try:
        return read_components(text) is not None
    except ValueError:
        return False


class Lenders(NamedTuple):
    """The cluster as each of the two sees it in one cycle."""

    place: Snapshot
    share: Snapshot
    gangs: NDArray[np.bool_]
    """(rows,) Which of the jobs that wait, and of the guests, are the place policy's."""


class TwoLenders:
    """Makes these; columns of the share policy's snapshot stay the same arrays, since compiled code holds them."""

    def __init__(self) -> None:
        self._of: tuple[Jobs, int] | None = None
        self._jobs: Jobs | None = None
        self._core_guest = np.zeros(0, np.int32)

    def see(self, snapshot: Snapshot) -> Lenders:
        """The cluster as each sees it. What was returned before holds no longer."""
        jobs, cores = snapshot.jobs, len(snapshot.core_guest)
        if self._jobs is None or self._of is None or self._of[0] is not jobs or self._of[1] != cores:
            self._of = jobs, cores
            self._jobs = replace(jobs, guest_bar=jobs.guest_bar.copy(), demand=jobs.demand.copy())
            self._core_guest = snapshot.core_guest.copy()
        gangs = np.zeros(len(jobs.cores), np.bool_)
        held = snapshot.core_guest[snapshot.core_guest >= 0]
        for row in np.unique(np.concatenate((snapshot.queue, snapshot.guests, held))).tolist():
            gangs[row] = is_gang(snapshot.hints.get(row, ""))
        not_mine = np.int8(Ineligible.OTHER_POLICY)
        self._jobs.guest_bar[:] = np.where(gangs, not_mine, jobs.guest_bar)
        self._jobs.demand[:] = jobs.demand
        self._core_guest[:] = snapshot.core_guest
        theirs = gangs[snapshot.guests]
        return Lenders(
            replace(
                snapshot,
                jobs=replace(jobs, guest_bar=np.where(gangs, jobs.guest_bar, not_mine)),
                guests=snapshot.guests[theirs],
                changed=None,
            ),
            replace(
                snapshot,
                jobs=self._jobs,
                core_guest=self._core_guest,
                guests=snapshot.guests[~theirs],
                changed=None,
            ),
            gangs,
        )


def promise(share: Snapshot, decisions: Sequence[Decision]) -> None:
    """Into what the share policy sees: offers of the place policy, as if those guests were there."""
    first = share.machine.first_core
    for offer in decisions:
        if not isinstance(offer, CoAllocate):
            continue
        wanted = int(share.jobs.cores[offer.guest])
        share.jobs.demand[offer.guest] = sum(offer.demands) / wanted
        for node, cores in zip(offer.nodes, spread(wanted, len(offer.nodes)), strict=True):
            here = share.core_guest[first[node] : first[node + 1]]
            here[np.flatnonzero(here < 0)[:cores]] = offer.guest

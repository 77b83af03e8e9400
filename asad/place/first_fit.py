"""`first-fit`: waiting gangs go beside the first host that has room for all of their components, or keep waiting.

In the cluster's order, each waiting job is offered as few nodes of one host as it fits on, all or nothing: a job of
several nodes with as many as it asks for, or between the bounds that its hint gives (`asad:components=4-8`), and the
tasks of an array with such a hint together, at least so many. Guests get a fixed share of each node, less where the
host leaves less, and none at all where they would not end sooner than by waiting. Where the share stage lends by itself
(`asax`, `static`), it decides the pairs and this policy decides nothing; bounds of components hold there too (guard).

Options: `share` of a host that a guest gets, `headroom` that a host keeps beyond what it uses, `capped`: quotas bind
the host too. Cost a cycle: O(cores + waiting · nodes). The allocation of Mesos frameworks that run gangs; what the
OgaSched and ASAx papers compare with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asad.errors import ConfigError
from asad.model import Cause, CoAllocate, Decision, Finished, SetShare, Snapshot
from asad.place.rooms import Extend, Gangs, Patience, Rooms, bounds_of, ends, extend_nothing

PROPERTIES = frozenset({"waits", "whole nodes", "one guest a core", "memory", "host floor", "better off"})
"""Of the guard, that bind whoever places guests."""
LEAST = 0.05
"""A guest with less of its host is not worth its memory."""


class Options(NamedTuple):
    """Of `[place.first-fit]`; shares in [0, 1]."""

    share: float = 0.5
    headroom: float = 0.1
    capped: bool = False


class FirstFit:
    """All components of a gang, beside the first host that has room for them."""

    name = "first-fit"
    properties = PROPERTIES

    def __init__(
        self,
        options: Options | None = None,
        *,
        pairs: bool = True,
        extend: Extend = extend_nothing,
        poll_s: float = 30.0,
    ) -> None:
        """`pairs` False: the share stage decides who goes beside whom. Raises ConfigError for a wrong option."""
        self.options = o = options or Options()
        if not LEAST <= o.share <= 1:
            raise ConfigError(f"[place.first-fit] share = {o.share:g}; give from {LEAST:g} to 1")
        if not 0 <= o.headroom < 1:
            raise ConfigError(f"[place.first-fit] headroom = {o.headroom:g}; give from 0 to below 1")
        self.pairs, self._extend, self._poll_s = pairs, extend, poll_s
        if not pairs:
            self.properties = frozenset()
        self._wake_s = math.inf
        self._patience = Patience(poll_s)

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Nothing to learn."""

    def wake_s(self) -> float:
        """When a limit must be looked at again."""
        return self._wake_s

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Offers to gangs that fit, shares for guests that have none, and limits that lending has used up."""
        if not self.pairs:
            return ()
        decisions, self._wake_s = self._extend(snapshot, self.name, self._poll_s)
        waiting = self._patience.candidates(snapshot)
        if len(snapshot.guests) == 0 and not waiting:
            return decisions
        rooms = Rooms.see(snapshot, self.options.headroom)
        decisions += self._shares(snapshot)
        gangs = Gangs(snapshot)
        told: set[int] = set()
        for guest in waiting:
            if guest not in told:
                offers = self._offer(rooms, gangs.together(guest, waiting))
                told |= {offer.guest for offer in offers}
                decisions += offers
        self._patience.note(snapshot, decisions)
        return decisions

    def _shares(self, snapshot: Snapshot) -> list[Decision]:
        """For guests beside a new host, and for those that the guard had to squeeze."""
        jobs, guests = snapshot.jobs, snapshot.guests
        share, host = jobs.share[guests], jobs.host[guests]
        decisions: list[Decision] = []
        for guest in np.sort(guests[(np.isnan(share) | (share == 0)) & (host >= 0)]).tolist():
            beside = int(jobs.host[guest])
            used = float(jobs.cpu_fraction[beside])
            given = 0.0 if math.isnan(used) else min(self.options.share, 1.0 - used - self.options.headroom)
            if given >= LEAST and not jobs.host_bar[beside]:
                cause = Cause(self.name, f"its share of its host {jobs.job_id[beside]}")
                decisions.append(SetShare(cause, guest, given, self.options.capped))
        return decisions

    def _offer(self, rooms: Rooms, gang: Sequence[int]) -> list[CoAllocate]:
        """An offer to every row of the gang, or none."""
        if not gang:
            return []
        snapshot, jobs = rooms.snapshot, rooms.snapshot.jobs
        trial = rooms.copy() if len(gang) > 1 else rooms
        offers: dict[int, CoAllocate] = {}
        for guest in gang:
            bounds = bounds_of(snapshot, guest)
            nodes = trial.fit(guest, LEAST, bounds)
            if len(nodes) == 0:
                return []
            share = min(self.options.share, math.floor(100 * float(trial.room[nodes].min())) / 100)
            if share < LEAST:
                return []
            guest_end_s, wait_end_s = ends(snapshot, guest, trial.speed(guest, nodes, share))
            if guest_end_s >= wait_end_s:
                return []
            trial.take(guest, nodes, share)
            if guest in offers:
                continue  # a row that stands for several tasks is offered one at a time
            host = int(trial.holder[nodes[0]])
            together = f", with {len(gang) - 1} more of its array" if len(gang) > 1 else ""
            reason = f"the first host with room for all of it is job {jobs.job_id[host]}{together}"
            detail = {
                "guest_end_s": guest_end_s,
                "wait_end_s": wait_end_s,
                "host_cpu": float(jobs.cpu_fraction[host]),
                "components": len(nodes),
            }
            offers[guest] = CoAllocate(
                Cause(self.name, reason, detail),
                guest,
                host,
                tuple(nodes.tolist()),
                share,
                self.options.capped,
            )
        if trial is not rooms:
            rooms.room, rooms.free, rooms.memory_free = trial.room, trial.free, trial.memory_free
        return list(offers.values())

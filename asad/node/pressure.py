"""Does a job want CPU that it does not get, and who beside it must give way? Pure.

Guests in the idle class yield to their hosts by themselves. What is left are caches, memory and the moment that the
kernel needs: when a host stalls for more of the last second than it did before guests came, they are squeezed. Whether
it was for them shows at once: a host of many threads may wait for itself, and then it waits on while they are squeezed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

THRESHOLD = 0.2
"""A host is under pressure when it stalls for this much more of the time than it does alone."""
LOOKS = 2
"""Looks over which fractions are averaged: the host's own hiccups are shorter."""


@dataclass(slots=True)
class Fractions:
    """For how much of the last looks counters of one job ran on: of waiting, or of CPU."""

    counters: dict[int, float] = field(default_factory=dict)
    """Seconds so far, by thread (waiting in v1) or of the whole job (key 0)."""
    time_s: float = math.nan
    looks: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKS))

    def look(self, counters: Mapping[int, float], now_s: float) -> float:
        """Take a look's counters; the mean fraction of the last `LOOKS` looks in [0, 1], NaN after the first look.

        Of several threads the one that waited longest counts: the kernel's `some` of a cgroup is at least that.
        """
        passed_s = now_s - self.time_s
        if passed_s > 0:
            grown = (seconds - self.counters.get(key, 0.0) for key, seconds in counters.items())
            self.looks.append(min(1.0, max(0.0, max(grown, default=0.0) / passed_s)))
        self.counters, self.time_s = dict(counters), now_s
        return sum(self.looks) / len(self.looks) if self.looks else math.nan


def gives_way(stalled: float, alone: float, guest_used: float, threshold: float = THRESHOLD) -> bool:
    """Must a guest give way to a host that stalled for the fraction `stalled` of the last second?

    `alone` is how much the host stalled before guests came (NaN: not at all), `guest_used` how much CPU the guest used
    in that second, in cores (NaN: not known). A guest cannot have kept anybody waiting for longer than it ran: a host
    that waits for others, or for itself, is not helped by squeezing it.
    """
    more = stalled - (0.0 if math.isnan(alone) else alone)
    return more > threshold and not guest_used <= threshold


def throttling_ineffective(stalled: float, without: float) -> bool:
    """Was a guest squeezed for nothing? The host stalled for `stalled` with it, and now for `without`."""
    return without > (1 - RELIEF) * stalled


RELIEF = 0.4
"""A guest was in the way of its host if squeezing it takes away at least this part of the waiting."""


def hosts_beside(
    guests: Iterable[str], cores: Mapping[str, frozenset[int]], named: Callable[[str], str]
) -> dict[str, set[str]]:
    """Host → guests that run on cores of it, for every job that is no guest.

    `cores` are the cores of each job by id; `named` gives the host that a guest's lease names ("" for none).
    """
    guests = set(guests)
    owners: dict[int, list[str]] = {}
    for job_id, held in cores.items():
        if job_id not in guests:
            for core in held:
                owners.setdefault(core, []).append(job_id)
    beside: dict[str, set[str]] = {}
    for guest in guests:
        hosts = {host for core in cores.get(guest, ()) for host in owners.get(core, ())}
        if named(guest) in cores.keys() - guests:
            hosts.add(named(guest))
        for host in hosts:
            beside.setdefault(host, set()).add(guest)
    return beside

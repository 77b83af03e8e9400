"""The looks at hosts that have guests beside them: who stalls, which guests are squeezed, and whether that helped."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Set

from asad.node.pressure import LOOKS, Fractions, gives_way, hosts_beside, throttling_ineffective
from asad.node.profile import Profile
from asad.node.quota_leases import Leases
from asad.port import JobSample

log = logging.getLogger(__name__)


class PressureWatch:
    """The hosts of a node. Squeezes are kept by `leases`, counters are read by `profile`."""

    def __init__(self, profile: Profile, leases: Leases) -> None:
        self.profile, self.leases = profile, leases
        self.beside: dict[str, set[str]] = {}
        """Host → guests beside it."""
        self.alone: dict[str, float] = {}
        """How much each job stalled while no guest was beside it."""
        self._stalls: dict[str, Fractions] = {}
        self._used: dict[str, Fractions] = {}
        """Waiting of hosts that have guests, and CPU of those guests."""
        self._pressed: dict[str, float] = {}
        """Hosts under pressure and how much they stalled, for as long as guests are squeezed for them."""
        self._trials: dict[str, int] = {}
        """Looks since the guests of these hosts were squeezed; it is yet to be seen whether for good reason."""

    def find_hosts(self, guests: Set[str], wide: Callable[[str], tuple[int, ...]]) -> None:
        """Who is beside whom: who shares a core, and a guest that runs wide shares all that `wide` gives."""
        cores = self.profile.cores()
        for job_id in guests & cores.keys():
            cores[job_id] = frozenset(wide(job_id)) or cores[job_id]
        self.beside = hosts_beside(guests, cores, self._named_host)

    def _named_host(self, guest: str) -> str:
        lease = self.leases.jobs.get(guest)
        return "" if lease is None else lease.host_id

    def sampled(self, samples: Mapping[str, JobSample]) -> None:
        """Note how much those stall that no guest is beside."""
        self.alone |= {
            job_id: found.pressure for job_id, found in samples.items() if job_id not in self.beside
        }

    def look(self, now_s: float) -> bool:
        """Look at the hosts that have guests beside them; was a guest squeezed, or let go?"""
        beside = self.beside
        self._stalls = {host: self._stalls.get(host) or Fractions() for host in beside}
        self._used = {
            guest: self._used.get(guest) or Fractions() for guests in beside.values() for guest in guests
        }
        squeezed = {squeeze.host_id for squeeze in self.leases.squeezes.values()}
        self._pressed = {host: found for host, found in self._pressed.items() if host in squeezed}
        self._trials = {host: looks + 1 for host, looks in self._trials.items() if host in squeezed}
        used: dict[str, float] = {}
        for guest, fractions in self._used.items():
            cpu_s = self.profile.cpu_s(guest)
            used[guest] = math.nan if math.isnan(cpu_s) else fractions.look({0: cpu_s}, now_s)
        acted = False
        for host, stalls in self._stalls.items():
            waits = self.profile.waits(host)
            lease = self.leases.jobs.get(host)
            if waits is None or (lease is not None and not math.isnan(lease.quota)):
                continue  # a host with a cap of its own waits because it was decided so
            stalled = stalls.look(waits, now_s)
            if self._trials.get(host) == LOOKS + 1:  # every look of the mean was taken without the guests
                acted = True
                if self._ends_trial(host, stalled):
                    continue
            acted |= self._squeeze(host, stalled, used, now_s)
        return acted

    def _ends_trial(self, host: str, stalled: float) -> bool:
        """Let the guests of a host go if it waits on without them."""
        del self._trials[host]
        if not throttling_ineffective(self._pressed[host], stalled):
            return False
        log.info("job %s waits for itself: its guests need not give way", host)
        self.alone[host] = max(stalled, self._pressed.pop(host))
        self.leases.acquit(host)
        return True

    def _squeeze(self, host: str, stalled: float, used: Mapping[str, float], now_s: float) -> bool:
        """Squeeze the guests that a host may wait for; was there one?"""
        alone, acted = self.alone.get(host, math.nan), False
        for guest in self.beside[host]:
            if gives_way(stalled, alone, used[guest]) and self.leases.squeeze(guest, host, now_s):
                acted = True
                self._pressed[host], self._trials[host] = stalled, 0
                waits = 100 * stalled
                log.info("job %s waits for CPU %.0f%% of the time: job %s gives way", host, waits, guest)
        return acted

    def reported(self, job_id: str, measured: float) -> float:
        """The pressure that is reported: waiting that guests are found to cause, for as long as they are squeezed.

        What a job waits for itself harms nobody and is nobody's doing.
        """
        if job_id in self._pressed and job_id not in self._trials:
            return self._pressed[job_id]
        return math.nan if math.isnan(measured) else 0.0

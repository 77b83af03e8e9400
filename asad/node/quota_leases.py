"""Which quotas hold now. Pure: no clock of its own, no file, no network.

Quotas are leases. The daemon renews all of them at once when it has completed a cycle; when it does not, for whatever
reason, they run out by themselves. Time is a clock that never goes back (`time.monotonic`), so a jump of the wall
clock neither ends a lease nor stretches it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from asad.port import Lease

LEAST_S = 1.0
MOST_S = 3600.0
"""No lease holds longer than this without renewal, whatever the daemon says."""
SQUEEZE_S = 15.0
"""How long a guest is squeezed at least when no lease says more."""
RENEWALS = 2
"""A squeeze ends with so many renewals that say the same: the cycle after the first has seen it and kept the share."""


@dataclass(frozen=True, slots=True)
class Squeeze:
    """A guest that the actor itself holds at the least quota, because its host wants CPU."""

    host_id: str
    share: float
    """What its lease said then; NaN for no quota or no lease."""
    renewals: int
    """How often the leases had been renewed then."""
    end_s: float
    """It ends then if the daemon says nothing."""


@dataclass(slots=True)
class Leases:
    """The leases of one node, and the guests that are squeezed."""

    jobs: dict[str, Lease] = field(default_factory=dict)
    end_s: float = -math.inf
    length_s: float = 0.0
    renewals: int = 0
    squeezes: dict[str, Squeeze] = field(default_factory=dict)

    def renew(self, jobs: Iterable[Lease], length_s: float, now_s: float) -> None:
        """All that holds for the next `length_s` (cut to [LEAST_S, MOST_S]); what is not named is lifted."""
        self.jobs = {lease.job_id: lease for lease in jobs}
        self.length_s = min(MOST_S, max(LEAST_S, length_s))
        self.end_s = now_s + self.length_s
        self.renewals += 1
        for job_id, squeeze in list(self.squeezes.items()):
            share = self._share(job_id)
            same = share == squeeze.share or (math.isnan(share) and math.isnan(squeeze.share))
            if not same or self.renewals - squeeze.renewals >= RENEWALS:
                del self.squeezes[job_id]

    def expire(self, now_s: float) -> bool:
        """Let go what has run out; was there anything?"""
        ended = [job_id for job_id, squeeze in self.squeezes.items() if squeeze.end_s <= now_s]
        for job_id in ended:
            del self.squeezes[job_id]
        if self.end_s > now_s:
            return bool(ended)
        had = bool(self.jobs)
        self.jobs = {}
        return had or bool(ended)

    def squeeze(self, job_id: str, host_id: str, now_s: float) -> bool:
        """Hold a guest at the least quota because `host_id` wants CPU; False if it is held so already."""
        if job_id in self.squeezes:
            return False
        end_s = now_s + max(SQUEEZE_S, self.length_s)
        self.squeezes[job_id] = Squeeze(host_id, self._share(job_id), self.renewals, end_s)
        return True

    def acquit(self, host_id: str) -> None:
        """Let go the guests that are squeezed for `host_id`: it did not wait for them."""
        for job_id, squeeze in list(self.squeezes.items()):
            if squeeze.host_id == host_id:
                del self.squeezes[job_id]

    def forget(self, job_id: str) -> None:
        """The job has ended on this node."""
        self.squeezes.pop(job_id, None)

    def caps(self, now_s: float) -> dict[str, tuple[float, str]]:
        """Job → (cores that it may use, why), of every job that has a quota at `now_s`; 0 means the least there is."""
        caps: dict[str, tuple[float, str]] = {}
        if now_s < self.end_s:
            for job_id, lease in self.jobs.items():
                if not math.isnan(lease.quota):
                    beside = f" beside job {lease.host_id}" if lease.host_id else ""
                    why = f"leased: {lease.quota:.0%} of {lease.cores} cores{beside}"
                    caps[job_id] = (lease.quota * lease.cores, why)
        for job_id, squeeze in self.squeezes.items():
            if now_s < squeeze.end_s:
                caps[job_id] = (0.0, f"its host, job {squeeze.host_id}, waits for CPU")
        return caps

    def wide(self, now_s: float) -> frozenset[str]:
        """The guests that may run on every core of the node at `now_s`."""
        if now_s >= self.end_s:
            return frozenset()
        return frozenset(job_id for job_id, lease in self.jobs.items() if lease.widen)

    def memory(self, now_s: float) -> dict[str, tuple[float, str]]:
        """Job → (bytes above which its memory is reclaimed, why), of every job that has such a limit at `now_s`."""
        if now_s >= self.end_s:
            return {}
        return {
            job_id: (lease.memory_high_bytes, f"leased: {lease.memory_high_bytes / 2**20:.0f} MiB")
            for job_id, lease in self.jobs.items()
            if not math.isnan(lease.memory_high_bytes)
        }

    def role(self, job_id: str) -> bool | None:
        """Is the job a guest, by the daemon's last word? None if it has not said, or its word has run out."""
        lease = self.jobs.get(job_id)
        return None if lease is None else lease.guest

    def next_s(self) -> float:
        """When something runs out next; inf if nothing does."""
        ends = [squeeze.end_s for squeeze in self.squeezes.values()]
        return min([self.end_s, *ends] if self.jobs else ends, default=math.inf)

    def _share(self, job_id: str) -> float:
        lease = self.jobs.get(job_id)
        return math.nan if lease is None else lease.quota

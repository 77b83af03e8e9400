"""`drf`: dominant resource fairness; in every slot each job gets as equal a dominant share as fits.

The default of YARN and Mesos (Ghodsi et al., NSDI 2011), as section V of the OASiS paper runs it: every job is admitted
that can run at all; in each slot workers go one by one to the unfinished job of the lowest dominant share (of equals
the one that arrived first), on the first server with room, with a parameter server whenever one more is needed. A job
drops out of the slot when it has `most_workers`, as many as it has work left, or no room. Its share is that of its
workers in all worker servers, or of its parameter servers (scaled by b/B, without rounding) in all parameter servers,
whichever is greater. A rigid job begins in the first slot in which it is dealt all its workers, and keeps what it has
from then on; jobs that are dealt only a part of theirs give it to the others. Options: none. Cost of a slot:
O(workers · jobs + jobs · (H + K) · R), since the first server with room for a job only moves on within a slot, and
that again for each rigid job that is dealt a part.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asad.admit.elastic import Allotment, ElasticJob, Scheme, Servers, Verdict
from asad.admit.first_fit_servers import Counts, Room, Shared, allotment, refusal, room_for, take_on
from asad.compiling import compiled
from asad.model import Floats, Ints


@compiled
def share_out(
    free_workers: Floats,
    free_servers: Floats,
    worker: Floats,
    server: Floats,
    ratio: Floats,
    step: Floats,
    most: Ints,
    shared: Shared,
    at: NDArray[np.int32],
    beside: NDArray[np.int32],
) -> None:
    """Fill `at` (J, H) and `beside` (J, K) with workers and parameter servers, lowest dominant share first.

    `worker`, `server` (J, R) are demands, `ratio` (J,) is b/B or 0, `step` (J,) the dominant share of one worker,
    `most` (J,) how many workers each may have. `free_workers` (H, R) and `free_servers` (K, R) are what is left at the
    end.
    """
    jobs = len(most)
    have = np.zeros(jobs, np.int64)
    have_servers = np.zeros(jobs, np.int64)
    first = np.zeros(jobs, np.int64)
    first_beside = np.zeros(jobs, np.int64)
    out = most <= 0
    while True:
        low = -1
        for i in range(jobs):
            if not out[i] and (low < 0 or have[i] * step[i] < have[low] * step[low]):
                low = i
        if low < 0:
            return
        h = first[low]
        while h < len(free_workers) and room_for(free_workers[h], worker[low], 1) == 0:
            h += 1
        first[low] = h
        if h == len(free_workers):
            out[low] = True
            continue
        needed = 0
        if ratio[low] > 0.0:
            needed = max(1, int(np.ceil((have[low] + 1) * ratio[low] - 1e-9)))
        taken = have_servers[low]
        k = first_beside[low]
        while have_servers[low] < needed and k < len(free_servers):
            if room_for(free_servers[k], server[low], 1) == 0:
                k += 1
                continue
            free_servers[k] -= server[low]
            beside[low, k] += 1
            have_servers[low] += 1
        if have_servers[low] < needed:
            # the last worker does without: return what was taken for it alone
            for back in range(len(free_servers) - 1, -1, -1):
                while have_servers[low] > taken and beside[low, back] > 0:
                    beside[low, back] -= 1
                    free_servers[back] += server[low]
                    have_servers[low] -= 1
            out[low] = True
            continue
        first_beside[low] = k
        take_on(free_workers, h, worker[low], shared)
        at[low, h] += 1
        have[low] += 1
        if have[low] >= most[low]:
            out[low] = True


def dominant_share(servers: Servers, job: ElasticJob) -> float:
    """What one worker takes of the whole cluster, by the resource of which it takes most; with its fraction of a
    parameter server."""

    def largest(demand: Floats, capacity: Floats) -> float:
        total = servers.total(capacity)
        return float(
            np.max(np.divide(demand, total, out=np.zeros(len(demand)), where=total > 0), initial=0.0)
        )

    share = largest(job.worker, servers.workers)
    if job.server_bandwidth > 0:
        share = max(share, job.servers_per_worker * largest(job.server, servers.parameter_servers))
    return share


def fair_shares(
    servers: Servers,
    jobs: Mapping[int, ElasticJob],
    left: Mapping[int, int],
    held: Mapping[int, Allotment] | None = None,
) -> dict[int, tuple[Counts, Counts]]:
    """Of each job in `left`: workers on each worker server (H,), parameter servers on each of theirs (K,).

    Those in `held` have that already, and are left out.
    """
    held = held or {}
    numbers = [number for number in jobs if number in left and number not in held]
    room = Room(servers)
    for number, there in held.items():
        room.take(jobs[number], there)
    at = np.zeros((len(numbers), len(room.workers)), np.int32)
    beside = np.zeros((len(numbers), len(room.parameter_servers)), np.int32)
    if numbers:
        some = [jobs[number] for number in numbers]
        share_out(
            room.workers,
            room.parameter_servers,
            np.array([job.worker for job in some], np.float64),
            np.array([job.server for job in some], np.float64),
            np.array([job.servers_per_worker for job in some]),
            np.array([dominant_share(servers, job) for job in some]),
            np.array(
                [
                    job.fixed_width if job.rigid else min(job.most_workers, left[n])
                    for n, job in zip(numbers, some, strict=True)
                ],
                np.int32,
            ),
            room.shared,
            at,
            beside,
        )
    return {number: (at[i], beside[i]) for i, number in enumerate(numbers)}


class Drf(Scheme):
    """Equal dominant shares in every slot."""

    name = "drf"

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self._jobs: dict[int, ElasticJob] = {}
        self._held: dict[int, Allotment] = {}
        """What rigid jobs have that have begun."""

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Admitted if the empty cluster holds one worker of it; of a rigid job all."""
        refused = refusal(self.servers, job, job.fixed_width if job.rigid else 1)
        if refused is not None:
            return refused
        self._jobs[number] = job
        return Verdict(True, "it shares the cluster with all others from now on")

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        """Shares are dealt anew in every slot."""
        for number in [number for number in self._jobs if number not in left]:
            del self._jobs[number]
            self._held.pop(number, None)
        some = dict(self._jobs)
        while True:
            shares = fair_shares(self.servers, some, left, self._held)
            short = [
                n for n, counts in shares.items() if some[n].rigid and counts[0].sum() < some[n].fixed_width
            ]
            partly = [number for number in short if shares[number][0].any()]
            if not partly:
                break
            # the one that arrived last gives its part to the others
            del some[max(partly)]
        dealt = {number: allotment(*counts) for number, counts in shares.items() if counts[0].any()}
        self._held |= {number: there for number, there in dealt.items() if some[number].rigid}
        return dict(sorted((self._held | dealt).items()))

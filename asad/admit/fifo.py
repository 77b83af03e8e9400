"""`fifo`: jobs run in the order of their arrival, each with a fixed number of workers from start to end.

The default of Hadoop and Spark as section V of the OASiS paper runs it: the head of the queue waits until all its
workers (`ElasticJob.fixed_workers`) and their parameter servers fit, and whoever is behind it waits too. Placed by
first fit. Every job is admitted that fits into the empty cluster. Options: none. Cost of a slot: O((H + K)·R) for each
job that starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from asad.admit.elastic import Allotment, ElasticJob, Scheme, Servers, Verdict
from asad.admit.first_fit_servers import Room, refusal


class Fifo(Scheme):
    """First in, first out; the head of the line blocks."""

    name = "fifo"

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self._jobs: dict[int, ElasticJob] = {}
        self._running: dict[int, Allotment] = {}
        self._room = Room(servers)

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Admitted if the empty cluster could hold it."""
        refused = refusal(self.servers, job, job.fixed_width)
        if refused is not None:
            return refused
        self._jobs[number] = job
        return Verdict(True, "it runs in its turn")

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        """Those that run go on; then the queue from its head, until one does not fit."""
        for number in [number for number in self._running if number not in left]:
            self._room.free(self._jobs[number], self._running.pop(number))
        for number in [number for number in self._jobs if number not in left]:
            del self._jobs[number]
        for number, job in self._jobs.items():  # in the order of arrival
            if number in self._running:
                continue
            placed = self._room.place(job, job.fixed_width)
            if placed is None:
                break
            self._running[number] = placed
        return dict(self._running)

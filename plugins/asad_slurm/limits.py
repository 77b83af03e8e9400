"""What bounds a job's end, the order of partitions, and licences: asked for seldom, and kept."""

from __future__ import annotations

import math
from collections.abc import Mapping

from asad.errors import ClusterError
from asad_slurm.command import Partition, Reservation, Transport
from asad_slurm.nodesets import expand, expanded
from asad_slurm.records import INF, JobRecord, clean

SELDOM_S = 300.0
"""Partitions and reservations are asked for no more often."""
RARELY_S = 3600.0
"""Limits of associations and QOS are asked for no more often."""
AGAIN_S = 30.0
"""After a failure."""
UNKNOWN = Partition("", "", INF, 1.0, "")
"""What holds of a partition of which nothing is known."""


class Limits:
    """Partitions, reservations and the limits of associations and QOS, as Slurm showed them last."""

    def __init__(self) -> None:
        self._partitions: dict[str, Partition] = {}
        self._reservations: list[tuple[Reservation, frozenset[str]]] = []
        self.licences: Mapping[str, float] = {}
        """How many there are of each, by name."""
        self._wall_of_user: dict[tuple[str, str, str], float] = {}
        self._wall_of_qos: dict[str, float] = {}
        self._next_s = self._next_walls_s = -INF
        self._asked_s = INF

    def ask(self, transport: Transport, now_s: float) -> str | None:
        """Ask Slurm if it is time to; why that failed, the empty string if it did not, None if it is not time."""
        if self._asked_s <= now_s < self._next_s:
            return None
        if now_s < self._asked_s:  # the clock was set back, or this is the first time
            self._next_walls_s = -INF
        self._asked_s = now_s
        self._next_s = now_s + AGAIN_S
        try:
            self._partitions.update((one.name, one) for one in transport.partitions())
            self._reservations = [(one, frozenset(expand(one.nodes))) for one in transport.reservations()]
            self.licences = transport.licences()
        except (ClusterError, ValueError) as error:
            return f"partitions, reservations and licences are as they were: {clean(str(error))[:300]}"
        self._next_s = now_s + SELDOM_S
        if now_s >= self._next_walls_s:
            try:
                self._wall_of_user, self._wall_of_qos = transport.wall_limits()
            except ClusterError as error:
                return f"limits of associations and QOS are as they were: {error}"
            self._next_walls_s = now_s + RARELY_S
        return ""

    def tier(self, partition: str) -> float:
        """PriorityTier of a partition, the highest of several (`a,b`)."""
        if "," not in partition:
            return self._partitions.get(partition, UNKNOWN).tier
        return max(self._partitions.get(name, UNKNOWN).tier for name in partition.split(","))

    def exclusive_user(self, partition: str) -> bool:
        """Is a node of the partition (of one of several, `a,b`) one user's at a time?"""
        names = partition.split(",")
        return any(self._partitions.get(name, UNKNOWN).exclusive_user for name in names)

    def latest_end_s(self, job: JobRecord) -> float:
        """Beyond this no extension may move a running job's end; inf for no bound.

        Its partition's, QOS' and associations' longest run time, and the next reservation of one of its nodes.
        """
        partition = self._partitions.get(job.partition, UNKNOWN)
        owners = (job.account, job.user, job.partition), (job.account, job.user, ""), (job.account, "", "")
        longest = min(
            partition.max_time_s,
            *(self._wall_of_user.get(owner, INF) for owner in owners),
            *(self._wall_of_qos.get(qos, INF) for qos in (job.qos, partition.qos)),
        )
        bound = job.start_s + longest
        nodes = expanded(job.nodes_text) if self._reservations else ()
        for one, reserved in self._reservations:
            if reserved.isdisjoint(nodes):
                continue
            if one.name == job.reservation:
                bound = min(bound, one.end_s)
            elif one.end_s > job.start_s:
                bound = min(bound, one.start_s)
        return INF if math.isnan(bound) else bound

"""What bounds a job's end, and the order of partitions: asked for seldom, and kept."""

from __future__ import annotations

import math

from asad.errors import ClusterError
from asad_slurm.command import Transport
from asad_slurm.nodesets import expand
from asad_slurm.records import INF, JobRecord, clean

SELDOM_S = 300.0
"""Partitions and reservations are asked for no more often."""
RARELY_S = 3600.0
"""Limits of associations and QOS are asked for no more often."""
AGAIN_S = 30.0
"""After a failure."""


class Limits:
    """Partitions, reservations and the limits of associations and QOS, as Slurm told them last."""

    def __init__(self) -> None:
        self._tier: dict[str, float] = {}
        self._max_time_s: dict[str, float] = {}
        self._partition_qos: dict[str, str] = {}
        self._exclusive_user: set[str] = set()
        self._reservations: list[tuple[str, float, float, frozenset[str]]] = []
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
            for partition in transport.partitions():
                self._tier[partition.name] = partition.tier
                self._max_time_s[partition.name] = partition.max_time_s
                self._partition_qos[partition.name] = partition.qos
                change = (
                    self._exclusive_user.add if partition.exclusive_user else self._exclusive_user.discard
                )
                change(partition.name)
            self._reservations = [
                (one.name, one.start_s, one.end_s, frozenset(expand(one.nodes)))
                for one in transport.reservations()
            ]
        except (ClusterError, ValueError) as error:
            return f"partitions and reservations are as they were: {clean(str(error))[:300]}"
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
            return self._tier.get(partition, 1.0)
        return max(self._tier.get(name, 1.0) for name in partition.split(","))

    def exclusive_user(self, partition: str) -> bool:
        """Is a node of the partition (of one of several, `a,b`) one user's at a time?"""
        return bool(self._exclusive_user) and not self._exclusive_user.isdisjoint(partition.split(","))

    def latest_end_s(self, job: JobRecord) -> float:
        """Beyond this no extension may move a running job's end; inf for no bound.

        Its partition's, QOS' and associations' longest run time, and the next reservation of one of its nodes.
        """
        longest = self._max_time_s.get(job.partition, INF)
        for key in (
            (job.account, job.user, job.partition),
            (job.account, job.user, ""),
            (job.account, "", ""),
        ):
            longest = min(longest, self._wall_of_user.get(key, INF))
        for qos in (job.qos, self._partition_qos.get(job.partition, "")):
            longest = min(longest, self._wall_of_qos.get(qos, INF))
        bound = job.start_s + longest
        if self._reservations:
            try:
                nodes = frozenset(expand(job.nodes_text))
            except ValueError:
                return bound
            for name, start_s, end_s, reserved in self._reservations:
                if nodes.isdisjoint(reserved):
                    continue
                if name == job.reservation:
                    bound = min(bound, end_s)
                elif end_s > job.start_s:
                    bound = min(bound, start_s)
        return INF if math.isnan(bound) else bound

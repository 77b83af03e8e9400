"""The port `Cluster` over Mesos. (The submit interface stands; the port follows.)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from asad.model import NodeLink
from asad_mesos.jobs import Spec
from asad_mesos.settings import Settings


class MesosCluster:
    """Jobs of our framework on the agents of a Mesos."""

    def __init__(
        self, settings: Settings, *, nodes: NodeLink, state_dir: Path, clock: Callable[[], float]
    ) -> None:
        raise NotImplementedError

    def submit(self, spec: Spec) -> str:
        """Queue a job, durably; its id (`m17`). Raises ClusterError if it cannot be kept."""
        raise NotImplementedError

    def cancel(self, job: str, why: str) -> bool:
        """End a job: its tasks are killed with grace. False if it has ended already. Raises UsageError if unknown."""
        raise NotImplementedError

    def status(self, job: str = "") -> list[dict[str, Any]]:
        """Of one job, or of all that have not ended and the last that have: `job`, `state` (queued, launching, running,
        stopping, completed, failed, cancelled, timeout), `why`, `attempt`, `spec`, times, and of each task id, group,
        index, state, agent, exit status. Raises UsageError if the job is unknown."""
        raise NotImplementedError

    def scale(self, job: str, tasks: dict[str, int]) -> bool:
        """So many tasks of each named group run from now on, more as offers come, fewer by killing the latest with
        grace (they run again later). Only of elastic jobs. Raises UsageError."""
        raise NotImplementedError

    def hold(self, job: str, until_s: float) -> None:
        """A queued job is not placed before then (−inf: it may be placed now)."""
        raise NotImplementedError

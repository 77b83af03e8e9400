"""The ports: what a cluster and its node actors answer, and the data that pass through."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from asad.decisions import Decision, Outcome
from asad.model import Finished, Snapshot


class Cluster(Protocol):
    """The port: everything that touches the world sits behind it. A recorded cluster and a real one are alike."""

    def snapshot(self) -> Snapshot:
        """The cluster as it is now."""
        ...

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided, and say for each what became of it. Never raises for a decision that came too late."""
        ...

    def finished(self, since_s: float) -> Finished:
        """The jobs that ended after `since_s`."""
        ...


@dataclass(frozen=True, slots=True)
class JobSample:
    """What the node actor saw of one job on its node, over the window of its profile."""

    job_id: str
    guest: bool
    cores: int
    """Cores of this node that the job may run on."""
    core_ids: tuple[int, ...]
    """Their numbers on the node."""
    cpu_fraction: float
    """CPU used over those cores, mean of the window; NaN until it is full."""
    cpu_peak: float
    """95th percentile of the same; NaN until the window is full."""
    cpu_time_s: float
    memory_bytes: float
    """What it needs on this node: without clean page cache that nobody has mapped. NaN if nobody counts it."""
    throttled: float
    """Fraction of the periods in which its quota stopped it; NaN if it has none."""
    pressure: float
    """Fraction of the last second for which it waited for CPU: of any kind in the actor's own samples, that its guests
    cause in a report; NaN if the kernel does not report it."""
    read_bytes: float
    written_bytes: float
    threads: int
    parallel: bool
    """More than one core was busy (stage)."""
    progress: float
    """Part of its work that the job says it has done, in [0, 1]; NaN if it says nothing."""
    since_s: float
    """When the actor first saw it (UTC epoch)."""
    quota: float
    """Share of its cores that its quota leaves it; NaN for no quota."""
    idle_class: bool
    delayed: float = math.nan
    """Part of the time since the last look that waiting for a core can have cost it: run delay over CPU and run delay,
    and not more than all its threads have waited together; NaN if the kernel does not report it, or nobody asked."""
    steps_done: int = 0
    """Numbered steps (`srun`) that have ended, as far as this node has seen steps of it."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One look of a node actor at its node."""

    node: str
    time_s: float
    """When it was taken, by the daemon's clock."""
    cgroup: Literal[1, 2]
    jobs: Mapping[str, JobSample]
    hyperthreaded_cores: int = 0
    """Cores of the machine if they have several hyper-threads each, else 0."""
    widens: bool = False
    """Does the actor let guests that a lease says so of run on every core of the node?"""


@dataclass(frozen=True, slots=True)
class Lease:
    """What may bind one job on one node until the lease runs out."""

    job_id: str
    guest: bool
    host_id: str
    """The host of a guest; empty for a host itself and for a guest on idle cores."""
    quota: float
    """Share of `cores` that it may use; NaN: no quota, the idle class alone holds a guest."""
    cores: int
    memory_high_bytes: float = math.nan
    """Above this its memory on the node is reclaimed; NaN: no such limit."""
    widen: bool = False
    """It may run on every core of the node that the cluster may use; of a guest with a quota alone."""


class NodeLink(Protocol):
    """The node actors, as a cluster plugin sees them."""

    def reports(self) -> Mapping[str, NodeReport]:
        """The latest report of every node whose actor answers."""
        ...

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """Announce to the actors of these nodes that a job will come as a guest; did all of them take note of it?"""
        ...

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """By node name, all that holds there until the lease runs out; what is not named is lifted.

        A daemon sends it when its cycle is completed; no leases at all are sent at once."""
        ...

"""The one loop. The daemon, `asactl replay` and every benchmark run this very cycle over their cluster.

The numbered steps are the table of contents. A cycle sees one snapshot; nothing in steps 3 to 7 touches the world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from asad.admit import AdmitPolicy
from asad.defer import DeferPolicy
from asad.guard import Guard
from asad.model import Cluster, Outcome, Snapshot
from asad.place import PlacePolicy
from asad.share import SharePolicy


@dataclass(slots=True)
class Cycle:
    """Stages by name around one cluster; `record` is given what became of every decision."""

    cluster: Cluster
    admit: AdmitPolicy
    defer: DeferPolicy
    place: PlacePolicy
    share: SharePolicy
    guard: Guard
    record: Callable[[int, Snapshot, Sequence[Outcome]], None] | None = None
    number: int = 0
    decisions: int = 0
    last_s: float = float("-inf")

    def run_once(self) -> float:
        """One cycle over what the cluster shows now; when the policies want the next one at the latest (s)."""
        # 1. observe: one snapshot, and the jobs that have ended since the last
        self.number += 1
        snapshot = self.cluster.snapshot()
        finished = self.cluster.finished(self.last_s)
        self.last_s = snapshot.time_s
        # 2. learn from what has happened since, before anything new is decided
        self.share.learn(snapshot, finished)
        # 3. admit: which jobs may run, when, how wide
        decisions = list(self.admit.decide(snapshot))
        # 4. defer: which deferrable jobs start now
        decisions += self.defer.decide(snapshot)
        # 5. place: which nodes
        decisions += self.place.decide(snapshot)
        # 6. share: how much of running allocations is lent, and to whom
        decisions += self.share.decide(snapshot)
        if decisions:
            # 7. guard: the last word on every decision
            allowed, outcomes = self.guard.check(snapshot, decisions)
            # 8. act
            outcomes += self.cluster.apply(allowed)
            self.decisions += sum(outcome.done for outcome in outcomes)
            # 9. record: only a cycle that decided something leaves a trace
            if self.record is not None:
                self.record(self.number, snapshot, outcomes)
        return self.share.wake_s()

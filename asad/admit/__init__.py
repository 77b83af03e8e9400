"""The admit stage: which jobs have a place in the slots to come, when, and how wide?

A policy is one file of this room. `asad.admit.live.Admission` turns snapshots into the slotted world of
`asad.admit.elastic` and drives any scheme there; `Everyone` lets the cluster be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from asad.model import Decision, Finished, Outcome, Snapshot


class AdmitPolicy(Protocol):
    """What the cycle asks of a policy of this stage."""

    name: str

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Take in what has happened since the last cycle."""
        ...

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What changes; nothing where the cluster's own way will do, or where it is already as it should be."""
        ...

    def relax(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Of a paused daemon: only what holds jobs back less than now. Nothing new is admitted or deferred."""
        ...

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """What became of decisions of this cycle, of any stage; what was not done may be wished again."""
        ...

    def given_back(self) -> None:
        """All that this stage has changed of jobs is as their users had it; the next cycle may decide it again."""
        ...

    def wake_s(self) -> float:
        """When it wants to look again even if nothing that can be seen has changed; inf for never."""
        ...


@runtime_checkable
class Steers(Protocol):
    """What such a policy may tell besides, so that the defer stage leaves its jobs to it and takes the others."""

    def steers(self, snapshot: Snapshot, row: int) -> bool:
        """Is it this policy's to say when the waiting job (or array) of that row starts?"""
        ...

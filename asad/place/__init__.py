"""The place stage: which nodes a job gets?

A policy is one file of this room. It sees snapshots and nothing else, and keeps what it has learned from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from asad.model import Decision, Finished, Snapshot


class PlacePolicy(Protocol):
    """What the cycle asks of a policy of this stage."""

    name: str
    properties: frozenset[str]
    """Names of the guard's properties that bind it."""

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Take in what has happened since the last cycle."""
        ...

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What changes; nothing where the cluster's own way will do."""
        ...

    def wake_s(self) -> float:
        """When it wants to look again even if nothing that can be seen has changed; inf for never."""
        ...

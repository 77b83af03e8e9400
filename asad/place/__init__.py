"""The place stage: which nodes a job gets?

A policy is one file of this room. It sees snapshots and nothing else, and keeps what it has learned from them.
`asad.place.port_placing.PortPlacing` drives those that divide capacities among ports (`asad.place.ports.PortPolicy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from asad.decisions import Decision
from asad.model import Finished, Snapshot
from asad.policy import Policy


class PlacePolicy(Policy):
    """What the cycle asks of a policy of this stage; nothing changes unless it says otherwise."""

    stage = "place"
    removed: ClassVar[Mapping[str, str]] = {
        "capped": "quotas bind guests alone, never their hosts; remove the line"
    }

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Take in what has happened since the last cycle."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What changes; nothing where the cluster's own way will do."""
        return ()

"""The place stage: which nodes a job gets?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from asad.model import Decision, Snapshot


class PlacePolicy(Protocol):
    """What the cycle asks of a policy of this stage."""

    name: str

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What changes; nothing where the cluster's own way will do."""
        ...

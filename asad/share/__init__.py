"""The share stage: how much of a running allocation is lent, and to whom?

A policy is one file of this room. It sees snapshots and nothing else, and keeps what it has learned from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from asad.decisions import Decision
from asad.model import Finished, Floats, ShareCases, Snapshot
from asad.policy import Policy


class SharePolicy(Policy):
    """What the cycle asks of a policy of this stage; nothing is lent unless it says otherwise."""

    stage = "share"
    draws: ClassVar[bool] = False
    """Does it draw shares, from which experts can learn (`take_cases`)?"""

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Take in what has happened since the last cycle."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What is lent, and what changes for those who already share."""
        return ()

    def funnel(self) -> list[tuple[str, float]]:
        """(reason, core-seconds) of the CPU that batch jobs left idle so far; empty where nobody accounts for it."""
        return []

    def pool_cores(self) -> Floats | None:
        """(N,) cores' worth of CPU that hosts and free cores of each node gave to its pool in the last cycle, whoever
        draws from it; None where nobody lends to pools."""
        return None

    def take_cases(self, snapshot: Snapshot, most: int) -> ShareCases | None:
        """The draws whose losses have been learned since the last call, at the `most` so many; None without draws."""
        return None

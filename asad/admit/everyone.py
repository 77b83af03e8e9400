"""`everyone`: Every job of the queue is admitted, as Slurm does.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from asad.model import Decision, Finished, Outcome, Snapshot


class Everyone:
    """Every job of the queue is admitted, as Slurm does."""

    name = "everyone"

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Nothing to learn."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing to decide."""
        return ()

    def relax(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nobody is held back."""
        return ()

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing to heed."""

    def given_back(self) -> None:
        """Nothing was changed."""

    def wake_s(self) -> float:
        """Never."""
        return math.inf

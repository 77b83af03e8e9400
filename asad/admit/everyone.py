"""`everyone`: Every job of the queue is admitted, as Slurm does.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from asad.model import Decision, Snapshot


class Everyone:
    """Every job of the queue is admitted, as Slurm does."""

    name = "everyone"

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing to decide."""
        return ()

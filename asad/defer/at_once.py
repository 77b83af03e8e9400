"""`at-once`: Nothing is put off.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from asad.model import Decision, Snapshot


class AtOnce:
    """Nothing is put off."""

    name = "at-once"

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing to decide."""
        return ()

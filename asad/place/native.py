"""`native`: The cluster's own scheduler places.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Sequence

from asad.model import Decision, Snapshot


class Native:
    """The cluster's own scheduler places."""

    name = "native"

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing to decide."""
        return ()

"""`native`: The cluster's own scheduler places.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from asad.model import Decision, Finished, Snapshot


class Native:
    """The cluster's own scheduler places."""

    name = "native"
    properties: frozenset[str] = frozenset()

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Nothing to learn."""

    def wake_s(self) -> float:
        """Never."""
        return math.inf

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing to decide."""
        return ()

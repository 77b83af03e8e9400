"""`at-once`: nothing is put off.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from asad.model import Decision, Finished, Outcome, Snapshot


class AtOnce:
    """Nothing is put off."""

    name = "at-once"

    def learn(
        self, snapshot: Snapshot, finished: Finished, steered: Callable[[Snapshot, int], bool] | None = None
    ) -> None:
        """Nothing to learn."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing to decide."""
        return ()

    def relax(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Nothing is held back."""
        return ()

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """Nothing came of nothing."""

    def given_back(self) -> None:
        """Nothing was taken."""

    def wake_s(self) -> float:
        """Never."""
        return math.inf

    def words(self) -> str:
        """Nothing to say."""
        return ""

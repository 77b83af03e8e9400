"""The limits of a recorded cluster: who of those that wait may not be a guest now, since one keeps it from starting."""

from __future__ import annotations

import numpy as np

from asad.ineligible import Ineligible
from asad.model import Codes, Ints
from asad.replay.limits.limit_table import LimitTable


class LimitBinding:
    """Holds the limits against what runs: batch jobs and guests both count, as they do in Slurm."""

    def __init__(self, table: LimitTable, guest_bar: Codes) -> None:
        """`guest_bar` is the column that snapshots show: what it has now is why jobs can never be guests."""
        self.table, self._shown = table, guest_bar
        self._marked: Ints = np.zeros(0, np.int32)

    def mark(self, queue: Ints, running: Ints, guests: Ints) -> None:
        """Show which of those that wait a limit keeps from starting now, and none of those shown before."""
        self._shown[self._marked] = Ineligible.NO
        rows = queue[self._shown[queue] == Ineligible.NO]
        if len(rows):
            rows = rows[self.table.over(self.table.usage(running, guests), rows)]
        self._shown[rows] = Ineligible.LIMIT
        self._marked = rows.copy()

    def refusal(self, row: int, running: Ints, guests: Ints) -> str:
        """The limit that a start of the job would exceed now, in a sentence; empty if none."""
        limit = self.table.exceeded(self.table.usage(running, guests), row)
        return f"it would exceed a limit ({limit})" if limit else ""

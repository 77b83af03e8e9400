"""The limits of a recorded cluster: who of those that wait may not be a guest now, since one keeps it from starting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from asad.ineligible import Ineligible
from asad.model import Codes, Floats, Ints
from asad.replay.limits.inferred_limits import InferredLimits
from asad.replay.limits.limit_table import LimitTable


class LimitBinding:
    """Holds the limits against what runs: batch jobs and guests both count, as they do in Slurm."""

    def __init__(self, limits: LimitTable | InferredLimits, guest_bar: Codes) -> None:
        """`guest_bar` is the column that snapshots show: what it has now is why jobs can never be guests. Limits that
        are inferred bind from the moments on at which they are known."""
        self._shown, self._changes, self._next = guest_bar, np.zeros((0, 4)), 0
        self._binds = isinstance(limits, LimitTable)
        """Is there a ceiling by now?"""
        if isinstance(limits, InferredLimits):
            self._changes = limits.changes
            limits = replace(limits.table, class_ceiling=limits.table.class_ceiling.copy())
        self.table = limits
        self._ceiling: Floats = np.full((len(limits.groups) + 1, len(limits.resources)), np.inf)
        """(G + 1, R) of inferred limits the ceilings now; the last row answers that there is no group."""
        self._marked: Ints = np.zeros(0, np.int32)
        self.kept: NDArray[np.bool_] = np.zeros(len(limits.need), np.bool_)
        """(n,) whom a limit kept from an offer at one look at least."""

    def mark(self, queue: Ints, running: Ints, guests: Ints, now_s: float) -> None:
        """Show which of those that wait a limit keeps from starting now, and none of those shown before."""
        self._shown[self._marked] = Ineligible.NO
        self._learn(now_s)
        rows = queue[self._shown[queue] == Ineligible.NO] if self._binds else queue[:0]
        if len(rows):
            rows = rows[self.table.over(self.table.usage(running, guests), rows)]
        self._shown[rows] = Ineligible.LIMIT
        self.kept[rows] = True
        self._marked = rows.copy()

    def refusal(self, row: int, running: Ints, guests: Ints) -> str:
        """The limit that a start of the job would exceed now, in a sentence; empty if none. Of what runs, rows that are
        no jobs of the log do not count."""
        if not self._binds:
            return ""
        jobs = running[running < len(self.kept)]
        limit = self.table.exceeded(self.table.usage(jobs, guests), row)
        return f"it would exceed a limit ({limit})" if limit else ""

    def _learn(self, now_s: float) -> None:
        """Take in what has become known up to now."""
        first = self._next
        while self._next < len(self._changes) and self._changes[self._next, 0] <= now_s:
            _, group, resource, ceiling = self._changes[self._next]
            self._ceiling[int(group), int(resource)] = ceiling
            self._next += 1
        if self._next > first:
            self.table.class_ceiling[:] = self._ceiling[self.table.class_groups]
            self._binds = bool(np.isfinite(self._ceiling).any())

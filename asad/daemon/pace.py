"""When cycles are due."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol


class Pace(Protocol):
    """When cycles are due."""

    def next_cycle(self, wake_s: float) -> float | None:
        """When the next one is due by the monotonic clock; None if there is none."""
        ...


class Steady:
    """A cycle every `interval_s` by the monotonic clock, whatever the wall clock does."""

    def __init__(self, interval_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.interval_s, self._monotonic = interval_s, monotonic
        self.skipped = 0
        """Cycles that were due while an earlier one still ran."""
        self._due: float | None = None

    def next_cycle(self, wake_s: float) -> float | None:
        """An interval after the last; those that have been missed are counted and left out."""
        now = self._monotonic()
        if self._due is None:
            self._due = now
            return now
        self._due += self.interval_s
        if self._due < now:
            missed = math.ceil((now - self._due) / self.interval_s)
            self.skipped += missed
            self._due += missed * self.interval_s
        return self._due

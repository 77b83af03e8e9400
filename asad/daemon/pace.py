"""When cycles are due, and what time it is then."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from asad.errors import AsadError

LEAP_S = 60.0
"""By so much a clock may be set at once without being doubted."""
DOUBT_S = 300.0
"""A clock that has leapt is believed when it has gone on evenly for so long: sooner than `asad-undo` takes a daemon for
gone, which holds no promise meanwhile."""


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

    def missed(self, wall_s: float) -> str:
        """What a cycle that took so long is to say of those that were due meanwhile; empty if none were."""
        if wall_s <= self.interval_s:
            return ""
        missed = int(wall_s / self.interval_s)
        return f"; it took {wall_s:.1f} s, so {missed} more {'was' if missed == 1 else 'were'} skipped"


class WallClock:
    """UTC epoch in seconds. A clock that leaps is not believed at once: until it is right again, or has gone on evenly
    for `DOUBT_S`, the time is what has passed since it leapt. May be asked in any thread."""

    def __init__(
        self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._lock = threading.Lock()
        self._ahead_s = clock() - monotonic()
        """Of the monotonic clock, as it is believed."""
        self._doubted: tuple[float, float] | None = None
        """By how much it is ahead of the monotonic clock since it leapt, and when that was by the latter."""

    def __call__(self) -> float:
        """Now."""
        with self._lock:
            passed_s, now_s = self._monotonic(), self._clock()
            ahead_s = now_s - passed_s
            if abs(ahead_s - self._ahead_s) > LEAP_S:
                if self._doubted is None or abs(ahead_s - self._doubted[0]) > LEAP_S:
                    self._doubted = ahead_s, passed_s
                if passed_s - self._doubted[1] < DOUBT_S:
                    return self._ahead_s + passed_s
            self._ahead_s, self._doubted = ahead_s, None
            return now_s

    def check(self) -> None:
        """Raises AsadError while the clock is doubted: what was promised and measured by the old time says nothing."""
        self()
        doubted = self._doubted
        if doubted is not None:
            leap_s = doubted[0] - self._ahead_s
            raise AsadError(
                f"the clock was set {'ahead' if leap_s > 0 else 'back'} by {abs(leap_s):.0f} s at once; nothing is "
                f"decided until it is right again, or has gone on evenly for {DOUBT_S:.0f} s; a restart believes it "
                "at once"
            )

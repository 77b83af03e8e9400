"""From jobs that are uncertain to tasks that are fractions: Algorithm 2.

Source: 004, section 4, Theorem 4.1. A statement becomes one task for each way in which the job may come, of its
arrival and duration, that takes the job's demand times its probability. A relaxed scheduler (`Relaxed`) sells that
expected load, of which there is never too much; what it asks is what the real job is asked. The job's plan is chosen
with failure probabilities besides, and the relaxed scheduler has to follow it. Estimates below a threshold count as 0:
then its choice is the job's, and the relaxed scheduler's guarantee holds for the real jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from asad.model import Floats, Ints, Json


class Relaxed(Protocol):
    """A scheduler of fractional tasks with a menu, that follows whatever is chosen from it (section 4.1)."""

    def advance(self, now: int) -> None:
        """Round `now` has begun."""
        ...

    def prices(self, demand: int, first: int, out: Floats) -> None:
        """(S, D) what `demand` units for 1, …, D rounds from `first`, `first` + 1, … on cost; inf: none are sold."""
        ...

    def take(self, start: Ints, duration: Ints, weight: Floats, demand: int) -> None:
        """(k,) tasks are allocated: `demand` units each, with probability `weight`; none where `start` is `NEVER`."""
        ...

    def expected_load(self, rounds: int) -> Floats:
        """(rounds,) units allocated from the present round on."""
        ...

    def state(self) -> dict[str, Json]:
        """As plain data."""
        ...

    def restore(self, kept: Mapping[str, Json]) -> None:
        """Raises UsageError for what `state` did not tell."""
        ...

"""What makes the cluster follow the policy for one job: it is held back for a lease, and let go."""

from __future__ import annotations

import math
from typing import NamedTuple

from asad.decisions import Decision, Defer, Start
from asad.defer.deferrable_job import Deferrable
from asad.defer.deferral_options import Options
from asad.defer.deferral_report import numbers
from asad.hold import EXACT_S, Event, Hold

LEASE_CYCLES = 5
UPDATES = 50
"""So many leases are renewed in a cycle: with more jobs they are longer."""


class Terms(NamedTuple):
    """By which jobs are held back and let go."""

    policy: str
    """Under which decisions are reported."""
    options: Options
    poll_s: float
    """Length of a cycle."""
    most_lease_s: float
    """No lease is longer."""

    @property
    def soon_s(self) -> float:
        """So long before its earliest start a job is held back, so that the cluster does not start it by itself."""
        return 2.0 * self.poll_s + 1.0

    def lease_s(self, many: int) -> float:
        """How long each of so many jobs is held back without a further look."""
        least = self.options.lease_s or max(10.0, LEASE_CYCLES * self.poll_s)
        return min(max(least, (2 + many / UPDATES) * self.poll_s), self.most_lease_s)

    def patience_s(self, job: Deferrable) -> float:
        """Longer after each time that it came to nothing, up to 16 times."""
        return self.options.patience_s * 2.0 ** min(job.tries, 4)

    def last_s(self, job: Deferrable) -> float:
        """When it is let go whatever is free."""
        return job.window.latest_s - self.options.margin_s


def retry_if_not_started(job: Deferrable, now_s: float, terms: Terms) -> bool:
    """It was let go and has not started for too long: then it is held back again, and tried again later."""
    if job.hold is not Hold.RELEASED or now_s - job.since_s < terms.patience_s(job):
        return False
    job.tries += 1
    job.again_s = now_s + terms.patience_s(job)
    job.on(Event.NOT_STARTED)
    return True


def too_late(job: Deferrable, ahead_s: float, now_s: float, terms: Terms) -> bool:
    """Would it start too late if it were held back any longer? `ahead_s`: in which room for it is expected."""
    last_s = terms.last_s(job)
    if now_s >= last_s:
        return True
    return job.window.earliest_s <= now_s and now_s + terms.options.lead * ahead_s >= last_s


def let_go(job: Deferrable, ahead_s: float, now_s: float, terms: Terms) -> Decision:
    """Its latest start comes: whatever is free, it is up to the cluster from now on."""
    job.on(Event.DEADLINE)
    left_s = job.window.latest_s - now_s
    job.reason = f"its latest start comes in {left_s:.0f} s" if left_s > 0 else "its latest start has passed"
    if ahead_s > 0:
        job.reason += f", and room for it is expected in {ahead_s:.0f} s"
    detail = numbers(job, now_s) | {"urgent": True, "expected_s": ahead_s}
    return Start(job.cause(terms.policy, job.reason, detail), job.row)


def start(job: Deferrable, now_s: float, terms: Terms) -> Decision:
    """By its score."""
    held = not math.isnan(job.until_s)
    job.reason = f"{job.place}, and {job.free:.0f} cores are free for its {job.cores} until its time limit"
    job.on(Event.RELEASE)
    job.since_s, job.until_s, job.wished_s = now_s, math.nan, math.nan
    detail = numbers(job, now_s) | {"urgent": False, "was_held": held}
    return Start(job.cause(terms.policy, job.reason, detail), job.row)


def hold(job: Deferrable, lease_s: float, now_s: float, terms: Terms) -> list[Decision]:
    """Hold a job back for a lease, if it is not held for long enough; never beyond its latest start."""
    if now_s < job.retry_s:
        return []
    early_s = job.window.earliest_s - now_s
    if early_s > terms.soon_s and job.hold is Hold.FREE:
        return []  # its own begin time holds it
    if early_s > 0:
        job.reason = "its earliest start has not come"
    until_s = min(max(now_s, job.window.earliest_s) + lease_s, terms.last_s(job), now_s + terms.most_lease_s)
    held_s = job.until_s - now_s if not math.isnan(job.until_s) else 0.0
    if held_s > 0.5 * lease_s or until_s <= max(now_s, job.window.earliest_s, now_s + held_s) + EXACT_S:
        return []
    job.ask(until_s)
    reason = job.reason or "it has not been looked at yet"
    detail = numbers(job, now_s) | {"renewal": job.reported}
    job.reported = True
    return [Defer(job.cause(terms.policy, reason, detail), job.row, until_s)]


def wake_s(job: Deferrable, lease_s: float, now_s: float, terms: Terms) -> float:
    """When it is to be looked at again: its lease ends, its latest start comes, patience ends, or a step does."""
    if job.hold is Hold.RELEASED:
        return job.since_s + terms.patience_s(job)
    if job.hold not in (Hold.FREE, Hold.HELD):
        return math.inf
    last_s = found = terms.last_s(job)
    if job.until_s < last_s - EXACT_S:  # never of NaN
        found = min(found, job.until_s - 0.5 * lease_s)
    if job.window.earliest_s > now_s:
        return min(found, job.window.earliest_s - terms.soon_s)
    step_s = terms.options.step_s
    return min(found, (math.floor(now_s / step_s) + 1) * step_s)

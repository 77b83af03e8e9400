"""Properties of what the stages admit and defer do: who is held back, for how long, and who starts."""

from __future__ import annotations

import math

from asad.decisions import Admit, Decline, Defer, SetThrottle, Start
from asad.guard.look import ADMISSION, TOLERANCE, Look
from asad.guard.property import of


@of(*ADMISSION)
def still_waits(look: Look, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
    """Only what waits is admitted, deferred or throttled, and nothing that has an offer to be a guest."""
    jobs = look.snapshot.jobs
    if not math.isnan(jobs.start_s[decision.job]):
        array = int(jobs.array[decision.job])
        # the bound of an array may be set by way of any of its tasks
        by_task = isinstance(decision, SetThrottle) and array >= 0
        if not by_task or look.snapshot.arrays.waiting[array] < 1:
            return "it does not wait any more"
    if isinstance(decision, Defer) and not math.isnan(jobs.offered_s[decision.job]):
        return "it has an offer to start as a guest"
    return ""


@of(SetThrottle)
def throttle_at_least_one(look: Look, decision: SetThrottle) -> str:
    """A throttle is of an array, and lets at least one task run: 0 would mean none at all to the reader, and no bound
    to Slurm."""
    if look.snapshot.jobs.array[decision.job] < 0:
        return "it is no array"
    if decision.tasks < 1:
        return f"{decision.tasks} tasks at one time are none; a deferral is how an array pauses"
    return ""


@of(Defer)
def most_defer(look: Look, decision: Defer) -> str:
    """Nobody is deferred further ahead than the setting: asad may be gone by then."""
    ahead_s, most_s = decision.until_s - look.snapshot.time_s, look.settings.most_defer_s
    if not ahead_s <= most_s + TOLERANCE:  # NaN: it is no time
        return f"{ahead_s:.0f} s ahead, more than {most_s:.0f} s"
    return ""


@of(Defer)
def never_beyond_deadline(look: Look, decision: Defer) -> str:
    """A deferral leaves a job the time that it needs to end by its deadline."""
    jobs = look.snapshot.jobs
    deadline_s, limit_s = float(jobs.deadline_s[decision.job]), float(jobs.time_limit_s[decision.job])
    needs_s = limit_s if math.isfinite(limit_s) else 0.0
    if decision.until_s + needs_s > deadline_s + TOLERANCE:  # never of NaN
        return f"it would end {decision.until_s + needs_s - deadline_s:.0f} s after its deadline"
    return ""


@of(Defer)
def short_lease(look: Look, decision: Defer) -> str:
    """Who is held back for being deferrable is held for a short time only: then the cluster starts him by itself."""
    if decision.cause.detail.get("stage") == "defer":
        ahead_s, most_s = decision.until_s - look.snapshot.time_s, look.settings.most_lease_s
        if not ahead_s <= most_s + TOLERANCE:  # NaN: it is no time
            return f"{ahead_s:.0f} s without a further look, more than {most_s:.0f} s"
    return ""


@of(Start)
def idle_cores(look: Look, decision: Start) -> str:
    """Deferrable jobs that start by their scores in one cycle have idle cores for all of them together.

    Whose latest start comes is let go whatever is idle, and of an array the tasks that its throttle lets run at once.
    """
    if not _by_score(decision):
        return ""
    others = [other.job for other in look.allowed if isinstance(other, Start) and _by_score(other)]
    wanted = sum(look.start_cores(job) for job in (*others, decision.job))
    return f"{look.idle} cores are idle, and {wanted} would be taken" if wanted > look.idle else ""


def _by_score(decision: Start) -> bool:
    """Does it start a deferrable job before it has to?"""
    detail = decision.cause.detail
    return detail.get("stage") == "defer" and detail.get("urgent") is False

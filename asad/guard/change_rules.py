"""Properties of what else is done to jobs: how often in a cycle, how limits move, who is evicted, who is held back,
for how long, and who starts."""

from __future__ import annotations

import math
from dataclasses import replace

from asad.decisions import (
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    SetMemory,
    SetThrottle,
    Start,
)
from asad.guard.look import ADMISSION, TOLERANCE, Look, changes, of
from asad.ineligible import OPTED_OUT, Ineligible


@of(Decision)
def one_change(look: Look, decision: Decision) -> str:
    """A job's lending changes once a cycle, so that its effect can be seen; its limit moves once at the most."""
    before = look.done.get(changes(decision))
    if before is None:
        if isinstance(decision, CoAllocate) and ("when it starts", decision.guest) in look.done:
            return "when it starts changes in this cycle already"
        return ""
    what = changes(decision)[0]
    return f"{what} changes in this cycle already" + (f" ({before})" if what == "its lending" else "")


@of(Evict)
def eviction_consented(look: Look, decision: Evict) -> str:
    """Nobody is evicted but a running batch job whose owner agreed to it, and in the way that he chose."""
    snapshot, row = look.snapshot, decision.job
    chosen = look.consents.get(str(snapshot.jobs.job_id[row]))
    if chosen is None:
        return "its owner has not agreed to an eviction"
    if decision.how != chosen:
        return f"its owner chose {chosen}, not {decision.how}"
    if row not in snapshot.running:
        return "it does not run as a batch job"
    reason = Ineligible(snapshot.jobs.host_bar[row])
    if reason in OPTED_OUT:
        return f"it is left alone: {reason.text}"
    if any(isinstance(other, Evict) and other.job == row for other in look.allowed):
        return "it is evicted in this cycle already"
    return ""


@of(SetMemory)
def memory_floor(look: Look, decision: SetMemory) -> str:
    """A memory limit is above what the job uses now, with some slack, and above what a host has reserved.

    Only jobs that share their nodes have one; that it is lifted is never held back.
    """
    if decision.high_bytes == 0:
        return ""
    snapshot, row = look.snapshot, decision.job
    if not 0.0 < decision.high_bytes < math.inf:  # NaN too
        return f"a limit of {decision.high_bytes:g} bytes is none"
    if row not in look.sharing:
        return "it shares its nodes with nobody"
    used = snapshot.memory_used.get(row, math.nan)
    if math.isnan(used):
        return "the memory that it uses has not been measured"
    slack = look.settings.memory_slack
    if decision.high_bytes < used * (1.0 + slack) * (1.0 - TOLERANCE):
        return f"it uses {used:.0f} bytes on a node and keeps {slack:.0%} of slack"
    reserved = float(snapshot.jobs.memory_bytes_per_core[row]) * look.most_on_a_node(row)
    if decision.high_bytes < reserved * (1.0 - TOLERANCE):  # never of NaN
        return f"the host has reserved {reserved:.0f} bytes on a node"
    return ""


@of(ExtendLimit)
def latest_end(look: Look, decision: ExtendLimit) -> str:
    """No extension reaches into a reservation or over a partition's or an association's limit."""
    if decision.by_s <= 0:
        return "a reservation or a limit of its partition or association leaves no room"
    return ""


def shortened(look: Look, decision: ExtendLimit) -> ExtendLimit:
    """The extension as far as the job's latest end allows, in whole minutes as limits are; by 0 if not at all."""
    jobs = look.snapshot.jobs
    room = float(jobs.latest_end_s[decision.job] - jobs.limit_end_s[decision.job])
    if not decision.by_s > room:  # NaN: no limit is known
        return decision
    # Slurm has limits in minutes: rounded up it would pass the latest end
    by_s = 60.0 * math.floor(max(0.0, room) / 60.0)
    cause = decision.cause
    reason = f"{cause.reason}; {decision.by_s:.0f} s would pass its latest end"
    return replace(decision, by_s=by_s, cause=replace(cause, reason=reason))


# ----------------------------------------------------------------------------------------- who is held back, who starts


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

"""Properties of what changes of jobs: how often in a cycle, how limits move, and who is evicted."""

from __future__ import annotations

import math
from dataclasses import replace

from asad.decisions import CoAllocate, Decision, Evict, ExtendLimit, SetMemory
from asad.guard.look import TOLERANCE, Look, changes
from asad.guard.property import of
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
    by_s = 60.0 * math.floor(max(0.0, room) / 60.0)
    cause = decision.cause
    reason = f"{cause.reason}; {decision.by_s:.0f} s would pass its latest end"
    return replace(decision, by_s=by_s, cause=replace(cause, reason=reason))

"""What makes the cluster follow the plan of one statement whose job is there: verdict, deferral and eviction."""

from __future__ import annotations

import math

from asad.admit.sow.promises import Promise
from asad.decisions import Admit, Decision, Decline, Defer, Evict, Start
from asad.hold import EXACT_S, Hold, Step, Terms, latest_begin_s
from asad.model import Json, Snapshot


def follow_plan(
    snapshot: Snapshot, promise: Promise, present: int, terms: Terms
) -> tuple[list[Decision], bool]:
    """What the job needs in round `present`, with whether anything is new that another process has to know."""
    now_s, row = snapshot.time_s, promise.row
    if promise.state == "evicting":
        return [Evict(promise.cause(terms.policy, promise.reason), row, promise.announced.eviction)], False
    if promise.state == "running":
        return [], False
    begin_s = float(snapshot.jobs.begin_s[row])
    waits_s = begin_s if begin_s > now_s else math.nan
    new = promise.observe(waits_s, now_s)
    decisions: list[Decision] = []
    if promise.state == "leaving":
        if not promise.reported:
            decisions.append(
                Decline(promise.cause(terms.policy, promise.reason, _story(promise, terms)), row)
            )
        if promise.defers(waits_s):
            decisions.append(Start(promise.cause(terms.policy, "nothing is promised to it any more"), row))
        return decisions, new
    if not promise.reported:
        decisions.append(Admit(promise.cause(terms.policy, promise.reason, _story(promise, terms)), row))
    by_hand = promise.hold is Hold.USER_OVERRIDE
    until_s = math.nan if by_hand else _until_s(snapshot, promise, terms)
    step, asked = promise.follow(until_s, waits_s, now_s)
    if step is Step.HOLD:
        why = f"by its plan it starts in round {promise.start}"
        decisions.append(Defer(promise.cause(terms.policy, why, {"until_s": until_s}), row, until_s))
    elif step is Step.RELEASE:
        cause = promise.cause(terms.policy, "its round has come", {"round": present})
        decisions.append(Start(cause, row))
    return decisions, asked or new


def loosen(snapshot: Snapshot, promise: Promise, terms: Terms) -> list[Decision]:
    """Its start, if it has come and only we still hold it back."""
    begin_s = float(snapshot.jobs.begin_s[promise.row])
    due = promise.state != "arrived" or start_s(promise, terms) <= snapshot.time_s + EXACT_S
    if begin_s > snapshot.time_s and promise.defers(begin_s) and due:
        return [Start(promise.cause(terms.policy, "its round has come"), promise.row)]
    return []


def start_s(promise: Promise, terms: Terms) -> float:
    """When its start comes by the plan."""
    return promise.start * terms.slot_s


def _until_s(snapshot: Snapshot, promise: Promise, terms: Terms) -> float:
    """When its start comes, no later than a deferral may be, and than its own deadline leaves."""
    jobs, row = snapshot.jobs, promise.row
    until_s = min(start_s(promise, terms), snapshot.time_s + terms.most_defer_s)
    deadline_s, limit_s = float(jobs.deadline_s[row]), float(jobs.time_limit_s[row])
    return min(until_s, latest_begin_s(deadline_s, limit_s, promise.longest * terms.slot_s))


def _story(promise: Promise, terms: Terms) -> dict[str, Json]:
    """The numbers behind a verdict; those of the plan of this arrival."""
    return {
        "statement": promise.number,
        "state": promise.state,
        "start_s": start_s(promise, terms) if promise.planned else None,
        "expected_payment": promise.payment,
        "expected_utility": promise.utility,
    }

"""What makes the cluster follow the plan of one statement whose job is there: verdict, deferral and eviction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from asad.admit.sow.promises import Promise
from asad.admit.steered import EXACT_S, before_deadline
from asad.model import Admit, Cause, Decision, Decline, Defer, Evict, Json, Snapshot, Start


class Terms(NamedTuple):
    """By which jobs are steered."""

    policy: str
    """Under which decisions are told."""
    round_s: float
    most_defer_s: float
    """No job is deferred further ahead than this."""


def steer(snapshot: Snapshot, promise: Promise, present: int, terms: Terms) -> tuple[list[Decision], bool]:
    """What the job needs in round `present`, with whether anything is new that another process has to know."""
    now_s, row = snapshot.time_s, promise.row
    if promise.state == "evicting":
        return [Evict(cause_of(promise, terms, promise.reason), row, promise.announced.eviction)], False
    if promise.state == "running":
        return [], False
    begin_s = float(snapshot.jobs.begin_s[row])
    waits_s = begin_s if begin_s > now_s else math.nan
    new = promise.accept(waits_s, now_s)
    decisions: list[Decision] = []
    if promise.state == "leaving":
        if not promise.told:
            decisions.append(Decline(cause_of(promise, terms, promise.reason, _story(promise, terms)), row))
        if promise.defers(waits_s):
            decisions.append(Start(cause_of(promise, terms, "nothing is promised to it any more"), row))
        return decisions, new
    if not promise.told:
        decisions.append(Admit(cause_of(promise, terms, promise.reason, _story(promise, terms)), row))
    until_s = math.nan if promise.let_go else _until_s(snapshot, promise, terms)
    if until_s > now_s:  # never of NaN
        if until_s > now_s + EXACT_S and promise.moves(until_s, waits_s):
            new = promise.wish(until_s) or new
            why = f"by its plan it starts in round {promise.start}"
            decisions.append(Defer(cause_of(promise, terms, why, {"until_s": until_s}), row, until_s))
    elif promise.defers(waits_s):
        decisions.append(Start(cause_of(promise, terms, "its round has come", {"round": present}), row))
    return decisions, new


def loosen(snapshot: Snapshot, promise: Promise, terms: Terms) -> list[Decision]:
    """Its start, if it has come and only we still hold it back."""
    begin_s = float(snapshot.jobs.begin_s[promise.row])
    due = promise.state != "arrived" or start_s(promise, terms) <= snapshot.time_s + EXACT_S
    if begin_s > snapshot.time_s and promise.defers(begin_s) and due:
        return [Start(cause_of(promise, terms, "its round has come"), promise.row)]
    return []


def start_s(promise: Promise, terms: Terms) -> float:
    """When its start comes by the plan."""
    return promise.start * terms.round_s


def _until_s(snapshot: Snapshot, promise: Promise, terms: Terms) -> float:
    """When its start comes, no later than a deferral may be, and than its own deadline leaves."""
    jobs, row = snapshot.jobs, promise.row
    until_s = min(start_s(promise, terms), snapshot.time_s + terms.most_defer_s)
    deadline_s, limit_s = float(jobs.deadline_s[row]), float(jobs.time_limit_s[row])
    return before_deadline(until_s, deadline_s, limit_s, promise.longest * terms.round_s)


def _story(promise: Promise, terms: Terms) -> dict[str, Json]:
    """The numbers behind a verdict; those of the plan of this arrival."""
    return {
        "statement": promise.number,
        "state": promise.state,
        "start_s": start_s(promise, terms) if promise.planned else None,
        "expected_payment": promise.payment,
        "expected_utility": promise.utility,
    }


def cause_of(promise: Promise, terms: Terms, reason: str, detail: Mapping[str, Json] | None = None) -> Cause:
    """Why something is decided of a job."""
    return Cause(terms.policy, reason, {"job": promise.job, "statement": promise.number, **(detail or {})})

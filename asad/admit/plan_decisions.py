"""What makes the cluster follow the plan of one job: its verdict, its deferral, and the throttle of an array."""

from __future__ import annotations

import math

from asad.admit.admission_report import story
from asad.admit.commitments import Commitment
from asad.admit.seen import Seen, throttle_of
from asad.decisions import Admit, Decision, Decline, Defer, SetThrottle, Start
from asad.hold import EXACT_S, Event, Hold, Step, Terms, latest_begin_s
from asad.model import Json, Snapshot


def verdict(entry: Commitment, terms: Terms) -> Decision:
    """Whether it is admitted, and the numbers behind it."""
    cause = entry.cause(terms.policy, entry.reason, story(entry, terms.slot_s))
    return Admit(cause, entry.row) if entry.state == "admitted" else Decline(cause, entry.row)


def follow_plan(
    snapshot: Snapshot, entry: Commitment, there: Seen, slot: int, width: int, terms: Terms
) -> tuple[list[Decision], bool]:
    """What an admitted job of which something waits needs; `width` is what it has in this slot.

    With whether anything is new that another process has to know.
    """
    jobs, now_s = snapshot.jobs, snapshot.time_s
    decisions: list[Decision] = []
    if not entry.array and width:
        entry.turn_came = True
    turn = width > 0 or entry.turn_came
    begin_s = float(jobs.begin_s[there.row])
    waits_s = begin_s if begin_s > now_s else math.nan
    new = entry.observe(waits_s, now_s)
    limit_s = float(jobs.time_limit_s[there.row])
    by_hand = entry.hold is Hold.USER_OVERRIDE
    until_s = math.nan if turn or by_hand else _until_s(entry, slot, limit_s, now_s, terms)
    coming, held = width, until_s > now_s + EXACT_S  # never of NaN
    step, asked = entry.follow(until_s if held else math.nan, waits_s, now_s)
    if step is Step.HOLD:
        detail: dict[str, Json] = {"until_s": until_s, "slot": slot}
        decisions.append(Defer(entry.cause(terms.policy, _why_not_now(entry), detail), there.row, until_s))
    elif step is Step.RELEASE:
        decisions.append(Start(entry.cause(terms.policy, "its slot has come", {"slot": slot}), there.row))
    if held:
        at = entry.next_slot(slot + 1)
        coming = 0 if at is None else entry.width(at)
    new = asked or new
    if entry.array and coming > 0:
        throttle = throttle_of(snapshot, there)
        if throttle not in (entry.throttled, entry.wished_tasks, entry.own_throttle):
            entry.own_throttle = throttle  # changed by other hands
        wanted = min(coming, entry.own_throttle or coming)
        if min(wanted, there.tasks) != min(throttle or there.tasks, there.tasks):
            if entry.wished_tasks != wanted:
                entry.wished_tasks, new = wanted, True
            decisions.append(set_throttle(entry, there, wanted, slot, terms))
    return decisions, new


def _until_s(entry: Commitment, slot: int, limit_s: float, now_s: float, terms: Terms) -> float:
    """When the next slot with workers begins, no later than a deferral may be; NaN if there is none."""
    slot_s = terms.slot_s
    if entry.schedule or terms.plans_ahead:
        at = entry.next_slot(slot + 1)
        if at is None:
            return math.nan  # its plan is over and something still waits: whenever the cluster can
        until_s = at * slot_s
    else:
        until_s = (slot + 2) * slot_s  # the next slot decides, and may not come too late for it
    until_s = min(until_s, math.floor((now_s + terms.most_defer_s) / slot_s) * slot_s)
    return min(until_s, latest_begin_s(entry.deadline_s, limit_s, entry.task_s))


def _why_not_now(entry: Commitment) -> str:
    what = "its tasks have" if entry.array else "it has"
    return f"{what} no place in this slot by its plan" if entry.schedule else f"{what} no place in this slot"


def loosen(snapshot: Snapshot, entry: Commitment, there: Seen, slot: int, terms: Terms) -> list[Decision]:
    """What an admitted job has coming in this slot and does not have yet; nothing holds it to less."""
    decisions: list[Decision] = []
    width, begin_s = entry.width(slot), float(snapshot.jobs.begin_s[there.row])
    if not begin_s > snapshot.time_s:
        entry.on(Event.GONE)
        entry.until_s = math.nan  # it was withdrawn, and not by its user's hand
    elif width and entry.defers(begin_s):
        decisions.append(Start(entry.cause(terms.policy, "its slot has come"), there.row))
    if entry.array and 0 < throttle_of(snapshot, there) < min(width, there.tasks):
        decisions.append(set_throttle(entry, there, width, slot, terms))
    return decisions


def release(snapshot: Snapshot, entry: Commitment, there: Seen, terms: Terms) -> tuple[list[Decision], bool]:
    """Its own begin time and throttle to a job that has lost its plan; nothing once it has them.

    With whether anything is new that another process has to know.
    """
    why = f"the workers that it served, {entry.beside}, have ended" if entry.beside else entry.reason
    decisions: list[Decision] = []
    begin_s = float(snapshot.jobs.begin_s[there.row])
    if begin_s > snapshot.time_s and entry.defers(begin_s):
        decisions.append(Start(entry.cause(terms.policy, why), there.row))
    if not entry.array:
        return decisions, False
    throttle, tasks, new = throttle_of(snapshot, there), there.tasks, False
    own = min(entry.own_throttle or tasks, tasks)
    if throttle in (entry.throttled, entry.wished_tasks) and min(throttle or tasks, tasks) != own:
        entry.wished_tasks, new = own, True
        decisions.append(SetThrottle(entry.cause(terms.policy, why), there.row, own))
    return decisions, new


def set_throttle(entry: Commitment, there: Seen, tasks: int, slot: int, terms: Terms) -> SetThrottle:
    """So many tasks of an array at one time."""
    cause = entry.cause(terms.policy, f"its plan has {tasks} at one time", {"slot": slot})
    return SetThrottle(cause, there.row, tasks)

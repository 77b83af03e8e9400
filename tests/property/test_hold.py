"""A job that is held back is let go in time, asad dead or alive, and a restart knows what holds it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from asad.decisions import Cause, Defer, Outcome, Start
from asad.hold import AFTER, EXACT_S, Event, HeldJob, Hold, Step, hold_of

EVENTS = some.lists(some.sampled_from(list(Event)), max_size=30)
WHY = Cause("test", "because")


def after(events: list[Event]) -> HeldJob:
    job = HeldJob()
    for event in events:
        job.on(event)
    return job


@given(EVENTS)
def test_a_job_can_be_let_go_from_every_state(events: list[Event]) -> None:
    job = after(events)
    job.on(Event.RELEASE)
    assert job.hold in (Hold.RELEASED, Hold.DEADLINE_RELEASED, Hold.USER_OVERRIDE)


@given(EVENTS)
def test_at_its_latest_begin_nothing_of_ours_holds_a_job(events: list[Event]) -> None:
    job = after(events)
    job.on(Event.DEADLINE)
    assert job.hold in (Hold.DEADLINE_RELEASED, Hold.USER_OVERRIDE)
    for event in set(Event) - {Event.REFUSED}:
        job.on(event)
        assert job.hold is not Hold.HELD, "only what the cluster refused is asked for again"


@given(EVENTS, EVENTS)
def test_what_a_user_took_back_by_hand_is_left_alone_for_good(
    before: list[Event], later: list[Event]
) -> None:
    job = after(before)
    if job.hold is Hold.DEADLINE_RELEASED:
        return  # nothing of ours is there to be taken back
    job.on(Event.OVERRIDE)
    for event in later:
        job.on(event)
    assert job.hold is Hold.USER_OVERRIDE


def test_every_state_is_reached_and_only_the_users_word_is_final() -> None:
    assert {Hold.FREE, *AFTER.values()} == set(Hold)
    assert {state for state, _ in AFTER} == set(Hold) - {Hold.USER_OVERRIDE}


@dataclass
class Cluster:
    """A job that waits, its begin time, and when it started."""

    now_s: float = 1000.0
    begin_s: float = math.nan
    own: bool = False
    """Did its user set the begin time?"""
    started: bool = False
    begins: list[float] = field(default_factory=list)

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        if not self.begin_s > self.now_s:
            self.begin_s, self.started = math.nan, True

    def apply(self, decision: Defer | Start) -> Outcome:
        if isinstance(decision, Defer):
            self.begin_s, self.own = float(round(decision.until_s)), False
            self.begins.append(self.begin_s)
        elif not self.own:
            self.begin_s = math.nan
        return Outcome(decision, True, "")


OPS = some.lists(
    some.tuples(
        some.sampled_from(("cycle", "cycle", "cycle", "refuse", "die", "user", "withdraw")),
        some.floats(0.0, 400.0),
        some.floats(0.0, 3000.0),
    ),
    min_size=1,
    max_size=25,
)


@given(OPS, some.floats(1100.0, 3000.0))
@example([("die", 0.0, 400.0), ("refuse", 0.0, 200.0)], 2000.0)
def test_no_path_holds_a_job_beyond_its_latest_begin(
    ops: list[tuple[str, float, float]], latest_s: float
) -> None:
    cluster, job = Cluster(), HeldJob()
    for what, pause_s, ahead_s in ops:
        if cluster.started:
            return
        now_s = cluster.now_s
        if what == "user":
            cluster.begin_s, cluster.own = math.nan, True
        elif what == "withdraw":
            cluster.begin_s = math.nan
            job.seen_held = False
        else:
            begin_s = cluster.begin_s
            job.observe(begin_s, now_s)
            by_hand = job.hold is Hold.USER_OVERRIDE
            until_s = math.nan if by_hand else min(now_s + ahead_s, latest_s)
            step, _ = job.follow(until_s, begin_s, now_s)
            kept = json.loads(
                json.dumps(job.hold_to_json(), allow_nan=False)
            )  # before the cluster hears of it
            decision = Defer(WHY, 0, until_s) if step is Step.HOLD else Start(WHY, 0)
            if step is not Step.NOTHING:
                if what == "refuse":
                    job.on_outcome(Outcome(decision, False, "no", transient=True), now_s)
                else:
                    outcome = cluster.apply(decision)
                    if what == "die":  # the outcome is never heard of
                        job = HeldJob(**hold_of(kept))
                    else:
                        job.on_outcome(outcome, now_s)
            elif what == "die":
                job = HeldJob(**hold_of(kept))
            begin_s = cluster.begin_s
            if begin_s > now_s and not cluster.own:
                assert job.defers(begin_s), "a successor knows it, so that it can be let go at any time"
                if job.hold is not Hold.USER_OVERRIDE:
                    assert job.follow(math.nan, begin_s, now_s)[0] is Step.RELEASE
        cluster.pass_time(pause_s)
    assert all(begin_s <= latest_s + EXACT_S for begin_s in cluster.begins)
    # asad is dead from now on
    cluster.pass_time(max(0.0, latest_s + EXACT_S - cluster.now_s))
    assert cluster.started


TIMES = some.one_of(some.just(math.nan), some.floats(-1e10, 1e10))


@given(some.sampled_from((Hold.FREE, Hold.HELD, Hold.USER_OVERRIDE)), TIMES, TIMES, some.booleans())
def test_a_hold_survives_the_process(hold: Hold, until_s: float, wished_s: float, reported: bool) -> None:
    if hold is not Hold.USER_OVERRIDE:
        hold = Hold.FREE if math.isnan(until_s) else Hold.HELD
    job = HeldJob(hold=hold, until_s=until_s, wished_s=wished_s, reported=reported)
    again = HeldJob(**hold_of(json.loads(json.dumps(job.hold_to_json(), allow_nan=False))))
    assert again.hold_to_json() == job.hold_to_json()
    assert (again.hold, again.seen_held) == (job.hold, False)


@pytest.mark.parametrize(
    "damage", [{}, {"deferred_s": "soon", "wished_s": None}, {"deferred_s": True, "wished_s": 1}]
)
def test_a_hold_that_cannot_be_read_is_an_error(damage: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError)):
        hold_of(damage)

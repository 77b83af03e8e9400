"""Deferral on a cluster: what it decides on made-up snapshots, and a whole life over a cluster that obeys."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from deferred_cluster import HOUR_S, POLL_S, Says, Yielding, cycle_of, deferral, job, live
from slotted_cluster import EPOCH, AsSoonAsRoom

from asad.admit.admission_options import Options as AdmitOptions
from asad.admit.admission_policy import Admission
from asad.capacity import usable_nodes
from asad.config import GuardSettings
from asad.decisions import Cause, Defer, Start
from asad.defer.history import COLUMNS, History
from asad.defer.jobs import Waiting
from asad.defer.room import CELL_S, Places, left_over
from asad.defer.windows import Rule, read_duration, read_window, window_of
from asad.guard import guard_for
from asad.ineligible import Ineligible
from asad.model import Snapshot


def leases(cluster: Yielding, name: str) -> list[tuple[float, float]]:
    """When a job was held back, and until when; seconds of the test."""
    return [
        (time_s - EPOCH, decision.until_s - EPOCH)
        for time_s, decision in cluster.done
        if isinstance(decision, Defer) and decision.cause.detail["job"] == name
    ]


# --------------------------------------------------------------------------------------------- who starts, and when


def test_deferrable_jobs_take_what_on_demand_jobs_leave() -> None:
    cluster = Yielding(
        [4],
        [job("1", 1000.0, 3), job("2", 600.0, 2, HOUR_S), job("3", 600.0, 1, HOUR_S), job("4", 1000.0, 1)],
    )
    cluster.jobs[3].submit_s = EPOCH + 120.0
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 3000.0)
    assert cluster.started("3") == 0.0, "one core was idle"
    assert cluster.started("4") == 600.0, "on-demand: as soon as a core was idle"
    # both on-demand jobs hold 4 cores until 1000, then 3
    assert cluster.started("2") == pytest.approx(1000.0, abs=2 * POLL_S)
    assert policy.reports() == [] and policy.overview()["counts"]["missed"] == 0  # type: ignore[index, call-overload]


def test_a_job_that_would_be_in_the_way_of_a_planned_one_waits() -> None:
    # 6 of 10 cores are held until 1000; then an on-demand job of 10 is expected to start
    jobs = [
        job("1", 1000.0, 6),
        job("2", 500.0, 10),
        job("long", 2000.0, 2, 4 * HOUR_S),
        job("short", 600.0, 2, HOUR_S),
    ]
    cluster = Yielding([10], jobs)
    cluster.estimates["2"] = EPOCH + 1000.0
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 300.0)
    assert cluster.started("short") == 0.0
    assert math.isnan(cluster.started("long"))
    story = policy.explain("long")
    assert story is not None and story["state"] == "held"
    assert "on-demand jobs are expected to need its cores before it would end" in str(story["reason"])
    cluster.estimates.clear()
    live(cluster, cycle_of(cluster, policy), 3000.0)
    assert cluster.started("2") == pytest.approx(1000.0, abs=POLL_S)
    assert cluster.started("long") == pytest.approx(1500.0, abs=2 * POLL_S)


def test_the_order_is_that_of_the_scores_and_a_prefix_ends_at_who_does_not_fit() -> None:
    def after(packing: str) -> dict[str, float]:
        jobs = [job("big", 600.0, 4, HOUR_S), job("a", 600.0, 2, 2 * HOUR_S), job("b", 600.0, 1, 3 * HOUR_S)]
        cluster = Yielding([4], [job("1", 900.0, 2), *jobs])
        live(cluster, cycle_of(cluster, deferral(packing=packing)), 1800.0)
        return {name: cluster.started(name) for name in ("big", "a", "b")}

    skipped, prefix = after("skip-fit"), after("prefix")
    assert skipped["a"] == 0.0 and skipped["big"] >= 900.0
    assert prefix["a"] >= prefix["big"] >= 900.0, "whoever stands behind the first that does not fit waits"


def test_a_reserve_is_left_free() -> None:
    cluster = Yielding([10], [job("1", 600.0, 6, HOUR_S), job("2", 600.0, 3, HOUR_S)])
    cycle_of(cluster, deferral("fifo", reserve=0.2)).run_once()
    kinds = {d.cause.detail["job"]: d.kind for _, d in cluster.done}
    assert kinds == {"1": "start", "2": "defer"}


def test_a_job_starts_only_where_a_node_has_room() -> None:
    # two cores are idle, one on each node
    cluster = Yielding([2, 2], [job("1", 900.0, 1), job("2", 900.0, 1), job("3", 600.0, 2, HOUR_S)])
    cluster.jobs[0].all[0].start_s = cluster.jobs[1].all[0].start_s = EPOCH - 10.0
    cluster.jobs[0].all[0].node, cluster.jobs[1].all[0].node = 0, 1
    policy = deferral()
    cycle_of(cluster, policy).run_once()
    assert [d.kind for _, d in cluster.done] == ["defer"]
    assert "no node has room" in str(policy.explain("3"))
    anywhere = deferral(by_node=False)
    cluster.done.clear()
    cycle_of(cluster, anywhere).run_once()
    assert [d.kind for _, d in cluster.done] == ["start"]


def test_a_job_starts_only_in_its_partition() -> None:
    cluster = Yielding([2, 2], [job("1", 900.0, 2), job("2", 600.0, 2, HOUR_S), job("3", 600.0, 2, HOUR_S)])
    cluster.jobs[0].all[0].start_s, cluster.jobs[0].all[0].node = EPOCH - 10.0, 0
    cluster.classes |= {"2": ("small", ""), "3": ("small,large", "")}
    cluster.partitions |= {"small": [0], "large": [1]}
    policy = deferral("fifo")
    cycle_of(cluster, policy).run_once()
    assert {d.cause.detail["job"]: d.kind for _, d in cluster.done} == {"2": "defer", "3": "start"}
    assert "0 cores are free for its 2" in str(policy.explain("2"))


def test_an_array_is_one_job_of_all_its_tasks() -> None:
    wide = job("7", 300.0, 1, HOUR_S, tasks=6, array=True)
    narrow = job("8", 300.0, 1, HOUR_S, tasks=6, array=True, throttle=2)
    cluster = Yielding([4], [wide, narrow])
    policy = deferral("fifo", margin_s=0.0, lead=0.0)
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert {d.cause.detail["job"]: d.kind for _, d in cluster.done} == {"7": "defer", "8": "start"}
    assert cluster.done[0][1].cause.detail["cores"] in (2, 6)
    story = policy.explain("7_3")
    assert story is not None and story["cores"] == 6
    live(cluster, cycle, 2000.0)
    assert cluster.most_used <= 4 and cluster.started("8") == 0.0


def test_a_partition_of_nothing_and_a_cluster_that_is_down_start_nobody() -> None:
    cluster = Yielding([4], [job("1", 600.0, 2, HOUR_S)])
    cluster.down.add(0)
    policy = deferral(lead=0.0)
    cycle_of(cluster, policy).run_once()
    assert [d.kind for _, d in cluster.done] == ["defer"]


# ------------------------------------------------------------------------------------------------- holding, letting go


def test_a_lease_is_short_renewed_in_time_and_never_beyond_the_latest_start() -> None:
    cluster = Yielding([2], [job("1", 7200.0, 2), job("2", 600.0, 1, 1800.0)])
    policy = deferral(margin_s=90.0, lead=0.0)
    live(cluster, cycle_of(cluster, policy), 2100.0)
    seen = leases(cluster, "2")
    assert all(at < until <= min(at + 5 * POLL_S, 1800.0 - 90.0) for at, until in seen), seen
    ends = [until for _, until in seen]
    assert all(at < before for (at, _), before in zip(seen[1:], ends, strict=False)), "renewed before it ends"
    assert len(seen) < 1800.0 / (2 * POLL_S), "and not in every cycle"
    (let_go,) = [(at - EPOCH, d) for at, d in cluster.done if isinstance(d, Start)]
    assert let_go[0] == pytest.approx(1710.0, abs=POLL_S) and let_go[1].cause.detail["urgent"] is True
    assert policy.reports() == ["job 2 has missed its latest start: it still waits, and has not run"]
    assert policy.overview()["missed"] == [["2", EPOCH + 1800.0]]
    assert [d.cause.detail["renewal"] for _, d in cluster.done if isinstance(d, Defer)].count(False) == 1


def test_on_a_busy_cluster_a_job_is_let_go_as_early_as_it_would_have_to_wait() -> None:
    def let_go(lead: float) -> tuple[float, bool]:
        # until 3000 all cores are held; then an on-demand job of an hour takes one of them
        jobs = [
            job("1", 3000.0, 2),
            job("2", 3600.0, 1, submit_s=EPOCH + 10.0),
            job("3", 600.0, 2, 2 * HOUR_S),
        ]
        cluster = Yielding([2], jobs)
        cluster.estimates["2"] = EPOCH + 3000.0
        live(cluster, cycle_of(cluster, deferral(lead=lead, margin_s=0.0)), 2 * HOUR_S + 60.0)
        at_s, decision = next((at_s, d) for at_s, d in cluster.done if isinstance(d, Start))
        urgent = decision.cause.detail["urgent"] is True
        assert ("room for it is expected in" in decision.cause.reason) == urgent
        return at_s - EPOCH, urgent

    # room for both of its cores is expected at 6600, and its latest start is at 7200
    assert let_go(0.0) == let_go(1.0) == (pytest.approx(6600.0, abs=2 * POLL_S), False)
    assert let_go(1.2) == (pytest.approx(0.0, abs=2 * POLL_S), True), "1.2 times 6600 is more than 7200"


@pytest.mark.slow
def test_many_jobs_have_longer_leases_within_the_bound() -> None:
    jobs = [job(str(number), 600.0, 1, 20 * HOUR_S) for number in range(1, 1001)]
    cluster = Yielding([1], [job("0", 20_000.0, 1), *jobs])
    cluster.jobs[0].all[0].start_s, cluster.jobs[0].all[0].node = EPOCH - 10.0, 0
    policy = deferral(lead=0.0)
    cycle = cycle_of(cluster, policy)
    calls = []
    for _ in range(40):
        cluster.done.clear()
        cycle.run_once()
        calls.append(len(cluster.done))
        for _, decision in cluster.done:
            assert isinstance(decision, Defer) and decision.until_s - cluster.now_s <= HOUR_S
        cluster.run(cluster.now_s + POLL_S)
        assert cluster.now_s < EPOCH + 40 * POLL_S + 1
        assert all(math.isnan(one.all[0].start_s) for one in cluster.jobs[1:]), "nobody slipped through"
    assert calls[0] == 1000 and max(calls[1:]) <= 100


def test_before_its_own_begin_time_nobody_is_touched_and_then_held_in_time() -> None:
    cluster = Yielding([2], [job("1", 7200.0, 2), job("2", 600.0, 1, HOUR_S, begin_s=EPOCH + 600.0)])
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 500.0)
    assert cluster.done == [] and policy.explain("2")["state"] == "future"  # type: ignore[index]
    live(cluster, cycle_of(cluster, policy), 400.0)
    first_at, first_until = leases(cluster, "2")[0]
    assert first_at < 600.0 < first_until
    story = policy.explain("2")
    assert story is not None and story["earliest_s"] == EPOCH + 600.0 and story["latest_s"] == EPOCH + 4200.0


def test_begin_and_deadline_make_a_job_deferrable_and_a_deadline_alone_if_that_is_wanted() -> None:
    facts = {"deadline_s": EPOCH + 4000.0, "limit_s": 1000.0}
    both = job("1", 600.0, 1, begin_s=EPOCH + 300.0, **facts)
    alone = job("2", 600.0, 1, **facts)
    cluster = Yielding([1], [job("0", 7200.0, 1), both, alone])
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 400.0)
    story = policy.explain("1")
    assert story is not None and (story["earliest_s"], story["latest_s"]) == (EPOCH + 300.0, EPOCH + 3000.0)
    assert policy.explain("2") is None
    eager = deferral(deadline_alone=True)
    cycle_of(cluster, eager).run_once()
    story = eager.explain("2")
    assert story is not None and (story["earliest_s"], story["latest_s"]) == (EPOCH, EPOCH + 3000.0)


def test_when_asad_dies_every_job_starts_by_itself() -> None:
    cluster = Yielding([4], [job("1", 900.0, 4), *(job(str(n), 300.0, 1, 8 * HOUR_S) for n in range(2, 9))])
    live(cluster, cycle_of(cluster, deferral()), 600.0)
    assert len(cluster.held) == 7
    cluster.run(EPOCH + 3000.0)
    assert cluster.over, "nobody looked at it any more, and all have run"


def test_a_daemon_that_starts_anew_goes_on_with_what_it_finds() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S, begin_s=EPOCH + 60.0)])
    first = deferral()
    live(cluster, cycle_of(cluster, first), 300.0)
    kept = json.loads(json.dumps(first.state(), allow_nan=False))
    story = first.explain("2")
    second = deferral()
    second.restore(kept)
    cluster.done.clear()
    cycle_of(cluster, second).run_once()
    again = second.explain("2")
    assert story is not None and again is not None
    assert (again["earliest_s"], again["latest_s"]) == (story["earliest_s"], story["latest_s"])
    assert again["held_until_s"] == story["held_until_s"] and again["state"] == "held"
    live(cluster, cycle_of(cluster, second), 4000.0)
    assert cluster.started("2") == pytest.approx(3000.0, abs=2 * POLL_S)


def test_what_is_held_for_somebody_who_is_not_deferrable_any_more_is_returned() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S)])
    live(cluster, cycle_of(cluster, deferral()), 60.0)
    assert cluster.held == {"2"}
    cluster.jobs[1].hint = ""
    cycle_of(cluster, deferral()).run_once()
    assert cluster.held == set() and cluster.done[-1][1].cause.reason == "nothing defers it any more"


def test_a_hold_that_somebody_takes_back_by_hand_is_not_made_again() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S)])
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 60.0)
    cluster.jobs[1].begin_s = math.nan
    cluster.held.clear()
    cluster.done.clear()
    live(cluster, cycle_of(cluster, policy), 300.0)
    assert cluster.done == [] and policy.explain("2")["state"] == "by hand"  # type: ignore[index]
    second = deferral()
    second.restore(json.loads(json.dumps(policy.state())))
    live(cluster, cycle_of(cluster, second), 300.0)
    assert cluster.done == [], "nor after a restart"


def test_what_was_returned_is_taken_for_nobodys_hand() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S)])
    policy = deferral()
    cycle = cycle_of(cluster, policy)
    live(cluster, cycle, 60.0)
    cluster.jobs[1].begin_s = math.nan
    cluster.held.clear()
    policy.on_withdrawn()
    live(cluster, cycle, 60.0)
    assert cluster.held == {"2"}


def test_who_was_let_go_and_does_not_start_is_held_back_again_and_tried_later() -> None:
    # the only idle cores are on two nodes, which this policy does not look at
    cluster = Yielding([2, 2], [job("1", 1500.0, 1), job("2", 1500.0, 1), job("3", 600.0, 2, 2 * HOUR_S)])
    cluster.jobs[0].all[0].start_s = cluster.jobs[1].all[0].start_s = EPOCH - 10.0
    cluster.jobs[0].all[0].node, cluster.jobs[1].all[0].node = 0, 1
    policy = deferral(by_node=False, patience_s=90.0)
    live(cluster, cycle_of(cluster, policy), 1200.0)
    kinds = [d.kind for _, d in cluster.done]
    assert kinds[0] == "start" and "defer" in kinds and 2 <= kinds.count("start") <= 5
    assert policy.explain("3")["tries"] >= 1  # type: ignore[index, operator]
    live(cluster, cycle_of(cluster, policy), 2400.0)
    assert cluster.over


def test_who_waits_for_something_else_is_neither_gone_nor_missed_before_his_time() -> None:
    cluster = Yielding([4], [job("1", 600.0, 2, 1800.0)])
    cluster.limited.add("1")
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 600.0)
    assert cluster.done == [] and policy.explain("1") is None, "it has never waited for its turn"
    cluster.limited.clear()
    cycle_of(cluster, policy).run_once()
    cluster.limited.add("1")
    live(cluster, cycle_of(cluster, policy), 900.0)
    story = policy.explain("1")
    assert (
        story is not None
        and "something other than its turn" in str(story["reason"])
        and policy.reports() == []
    )
    live(cluster, cycle_of(cluster, policy), 600.0)
    assert policy.reports() == ["job 1 has missed its latest start: it still waits, and has not run"]
    cluster.limited.clear()
    live(cluster, cycle_of(cluster, policy), 120.0)
    assert not math.isnan(cluster.started("1"))


def test_a_refusal_is_not_answered_by_the_same_wish_in_every_cycle() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S)])
    cluster.refuse = {"defer", "start"}
    policy = deferral()
    live(cluster, cycle_of(cluster, policy), 240.0)
    assert len(cluster.done) == 2, "at 0 and at 120"
    assert "not done: the test refuses" in str(policy.explain("2"))


def test_a_paused_daemon_lets_leases_run_out() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S)])
    cycle = cycle_of(cluster, deferral())
    live(cluster, cycle, 60.0)
    cycle.paused = True
    cluster.done.clear()
    live(cluster, cycle, 300.0)
    assert cluster.done == [] and cluster.held == set()


def test_a_daemon_that_observes_learns_and_one_that_advises_does_nothing() -> None:
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S)])
    policy = deferral(step_s=300.0)
    live(cluster, cycle_of(cluster, policy, mode="observe"), 900.0)
    assert cluster.done == [] and policy.overview()["known_days"] > 0  # type: ignore[operator]
    cycle = cycle_of(cluster, policy, mode="advise")
    cycle.run_once()
    assert [outcome.decision.kind for outcome in cycle.outcomes] == ["defer"] and cluster.done == []
    assert "1 deferrable held back" in cycle.sentence() and "1 job is deferred" in cycle.sentence()


# --------------------------------------------------------------------------------------------------- who is left alone


def test_whoever_is_admissions_is_left_to_it() -> None:
    both = job("2", 600.0, 1, 2 * HOUR_S)
    both.hint += ";utility=constant(10)"
    cluster = Yielding([2], [job("1", 3000.0, 2), both, job("3", 600.0, 1, 2 * HOUR_S)])
    admission = Admission(
        "as-soon", AsSoonAsRoom, cluster.applications, AdmitOptions(slot_s=100.0, horizon=40)
    )
    policy = deferral()
    admission.learn(cluster.snapshot(), cluster.finished(0.0))
    admission.decide(cluster.snapshot())
    policy.learn(cluster.snapshot(), cluster.finished(0.0), admission.decides_start)
    assert policy._world is not None
    decisions = policy.decide(policy._world.snapshot)
    assert [d.cause.detail["job"] for d in decisions] == ["3"]
    assert policy.explain("2") is None


@pytest.mark.parametrize("bar", ["opted out", "depends on a job", "heterogeneous"])
def test_who_is_ineligible_is_left_alone(bar: str) -> None:
    number = next(why for why in Ineligible if bar in why.text)
    cluster = Yielding([2], [job("1", 3000.0, 2), job("2", 600.0, 1, 2 * HOUR_S, bar=number)])
    cycle_of(cluster, deferral()).run_once()
    assert cluster.done == []


def test_rules_are_for_those_who_say_nothing() -> None:
    names = ("ann/train/1", "bob/night/1", "ann/store/1")
    jobs = [job("1", 3000.0, 2), *(job(str(n), 600.0, 1, application=n - 2) for n in (2, 3, 4))]
    cluster = Yielding([2], jobs)
    cluster.classes |= {"2": ("batch", "normal"), "3": ("batch", "normal"), "4": ("batch", "idle")}
    rules = [
        Rule(1000.0, names=("night*",)),
        Rule(2000.0, users=("ann",), qos=("idle",)),
        Rule(5.0, partitions=("x",)),
    ]
    policy = deferral(rules=rules, applications=names)
    cycle_of(cluster, policy).run_once()
    latest = {key: policy.explain(key) for key in ("2", "3", "4")}
    assert latest["2"] is None
    assert latest["3"] is not None and latest["3"]["latest_s"] == EPOCH + 1000.0
    assert latest["4"] is not None and latest["4"]["latest_s"] == EPOCH + 2000.0


@pytest.mark.parametrize(
    ("facts", "window"),
    [
        ({}, None),
        ({"hint": "deferrable=1h"}, (100.0, 3700.0)),
        ({"hint": "asad:deferrable=1h;x"}, (100.0, 3700.0)),
        ({"hint": "deferrable=1h", "begin_s": 400.0}, (400.0, 4000.0)),
        ({"hint": "deferrable=1h", "deadline_s": 3000.0}, (100.0, 2400.0)),
        ({"hint": "deferrable=now"}, None),
        ({"hint": "deferrable=-1h"}, None),
        ({"hint": "undeferrable=1h"}, None),
        ({"begin_s": 400.0, "deadline_s": 3000.0}, (400.0, 2400.0)),
        ({"deadline_s": 3000.0}, None),
        ({"deadline_s": 3000.0, "deadline_alone": True}, (100.0, 2400.0)),
        ({"rule": Rule(50.0)}, (100.0, 150.0)),
        ({"rule": Rule(50.0), "hint": "deferrable=20"}, (100.0, 120.0)),
        ({"rule": Rule(50.0), "needs_s": math.inf}, None),
        ({"rule": Rule(50.0), "needs_s": math.nan}, None),
    ],
)
def test_windows(facts: dict[str, Any], window: tuple[float, float] | None) -> None:
    given = {
        "submit_s": 100.0,
        "begin_s": math.nan,
        "deadline_s": math.nan,
        "needs_s": 600.0,
        "hint": "",
        "rule": None,
        "deadline_alone": False,
    }
    found = window_of(**given | facts)  # type: ignore[arg-type]
    assert (None if found is None else found[:2]) == window


def test_durations_and_hostile_hints() -> None:
    assert [read_duration(text) for text in ("90", "90s", " 20m", "1.5h", "2d")] == [
        90.0,
        90.0,
        1200.0,
        5400.0,
        172_800.0,
    ]
    for text in ("", "0", "1e3", "٣h", "1h2", "400d", "9" * 30, "-5"):
        assert math.isnan(read_duration(text)), text
    assert math.isnan(read_window("deferrable" * 1000)) and math.isnan(read_window("deferrable="))


# -------------------------------------------------------------------------------------------------- policies that err


def raising(waiting: Waiting) -> Any:
    raise ZeroDivisionError("1 / 0\nin the weights")


@pytest.mark.parametrize(
    "says",
    [raising, np.zeros(7), None, "text", np.array([["x"]]), lambda waiting: [[1.0] * len(waiting)]],
    ids=["raises", "shape", "none", "text", "strings", "list"],
)
def test_a_policy_that_errs_is_replaced_by_edf_with_one_line(says: Any) -> None:
    cluster = Yielding([2], [job("1", 600.0, 2, 3 * HOUR_S), job("2", 600.0, 2, 2 * HOUR_S)])
    policy = deferral(Says(says))
    cycle = cycle_of(cluster, policy)
    live(cluster, cycle, 300.0)
    assert cluster.started("2") == 0.0 and math.isnan(cluster.started("1")), "edf decides"
    (line,) = policy.reports()
    assert line.startswith("the policy says errs, edf decides meanwhile: ") and line.isprintable()
    assert policy.overview()["erred"]


@pytest.mark.parametrize("score", [math.nan, -math.inf])
def test_a_policy_may_hold_everybody_back_until_the_latest_start(score: float) -> None:
    cluster = Yielding([4], [job("1", 600.0, 2, 1800.0)])
    policy = deferral(Says(lambda waiting: np.full(len(waiting), score)))
    live(cluster, cycle_of(cluster, policy), 2400.0)
    assert cluster.started("1") == pytest.approx(1740.0, abs=POLL_S) and policy.reports() == []


@pytest.mark.parametrize("score", [math.inf, 1e308, 0.0])
def test_whatever_the_scores_what_starts_fits(score: float) -> None:
    cluster = Yielding([4], [job("1", 900.0, 3), *(job(str(n), 600.0, 1, HOUR_S) for n in range(2, 8))])
    policy = deferral(Says(lambda waiting: np.full(len(waiting), score)))

    def check(cycle: Any) -> None:
        started = [o.decision for o in cycle.outcomes if isinstance(o.decision, Start)]
        idle = int((cycle.snapshot.core_owner < 0).sum())
        assert sum(cycle.snapshot.jobs.cores[d.job] for d in started) <= idle

    live(cluster, cycle_of(cluster, policy), 4000.0, check)
    assert cluster.over


def test_policies_see_the_world_in_steps() -> None:
    seen = Says(lambda waiting: np.full(len(waiting), -math.inf))
    jobs = [
        job("1", 4000.0, 2),
        job("2", 4000.0, 3, 4 * HOUR_S),
        job("3", 700.0, 1, HOUR_S, begin_s=EPOCH + 2000.0),
    ]
    cluster = Yielding([8], jobs)
    policy = deferral(seen, step_s=600.0)
    live(cluster, cycle_of(cluster, policy), 1500.0)
    last = seen.seen[-1]
    step = math.floor(EPOCH / 600.0)
    assert last.cores.tolist() == [3, 1] and last.duration.tolist() == [7, 2]
    assert last.earliest.tolist() == [step, math.floor((EPOCH + 2000.0) / 600.0)]
    assert last.latest.tolist() == [
        math.floor((EPOCH + 4 * HOUR_S) / 600.0),
        math.floor((EPOCH + 5600.0) / 600.0),
    ]
    assert last.startable.tolist() == [True, False]
    assert last.capacity == 6.0 and last.free == 6.0 and len(last.running_cores) == 0
    assert last.past.capacity.tolist() == [6.0] * len(last.past.capacity) and len(last.past.capacity) >= 2
    assert last.past.waiting[-1] == 2.0 and last.past.mean_cores[-1] == 2.0
    assert {waiting.end for waiting in seen.seen} == {None}, "a cluster's time has no end that could be known"


def test_what_runs_and_was_deferrable_is_no_on_demand_job() -> None:
    cluster = Yielding(
        [8], [job("1", 4000.0, 2), job("2", 4000.0, 3, 4 * HOUR_S), job("3", 700.0, 7, HOUR_S)]
    )
    policy = deferral(lead=0.0)
    live(cluster, cycle_of(cluster, policy), 300.0)
    overview = policy.overview()
    assert overview["held_cores"] == 3.0 and overview["capacity"] == 6.0 and overview["running"] == 1
    assert policy.explain("2") == {"job": "2", "policy": "edf-defer", "state": "runs", "latest_s": None}
    again = deferral(lead=0.0)
    again.restore(json.loads(json.dumps(policy.state())))
    cycle_of(cluster, again).run_once()
    assert again.overview()["capacity"] == 6.0, "a restart knows it too"


# ------------------------------------------------------------------------------------------------- room, and history


def test_what_is_left_over_time() -> None:
    cluster = Yielding([4, 4], [job("1", 900.0, 3), job("2", 1200.0, 2), job("3", math.inf, 1)])
    cluster.run(EPOCH + 20.0)
    seen = cluster.snapshot()
    row = 1
    seen.jobs.estimated_start_s[row] = seen.time_s + 450.0
    found = left_over(seen, usable_nodes(seen), [(row, 5)], 8)
    # 6 of 8 run: 3 until 900, 2 until 1200, 1 for ever; 5 more come at 450 and stay for 1200 s
    assert found.tolist() == [2.0, 2.0 - 5, 2.0 - 5, 5.0 - 5, 7.0 - 5, 7.0 - 5, 7.0, 7.0]
    seen.jobs.estimated_start_s[row] = math.nan
    assert left_over(seen, usable_nodes(seen), [(row, 5)], 3).tolist() == [-3.0, -3.0, -3.0], (
        "soon, for all one knows"
    )
    assert CELL_S == 300.0


@pytest.mark.parametrize(
    ("cores", "nodes", "memory", "allowed", "left"),
    [
        (4, 1, 0.0, None, [8, 2, 0]),
        (6, 2, 0.0, None, [5, 1, 2]),
        (7, 1, 0.0, None, [1, 4, 2]),
        (5, 3, 0.0, None, [7, 2, 0]),
        (9, 1, 0.0, None, [0, 3, 2]),
        (12, 0, 0.0, None, [0, 0, 2]),
        (15, 0, 0.0, None, None),
        (14, 1, 0.0, None, [0, 0, 0]),
        (4, 1, 30.0, None, [4, 4, 2]),
        (4, 1, 60.0, None, None),
        (2, 1, 0.0, [True, True, False], [8, 2, 2]),
        (3, 1, math.nan, [False, False, True], None),
    ],
)
def test_room_is_looked_for_node_by_node(
    cores: int, nodes: int, memory: float, allowed: list[bool] | None, left: list[int] | None
) -> None:
    there = Places(np.array([8, 4, 2], np.int32), np.array([120.0, 100.0, np.inf]), 8)
    before = there.idle.copy()
    mask = None if allowed is None else np.array(allowed)
    done = there.take(cores, nodes, memory, mask)
    assert done == (left is not None)
    if cores == 4 and memory == 0.0:
        left = [8, 0, 2]  # the fullest node on which it fits
    if cores == 2:
        left = [8, 2, 2]
    assert there.idle.tolist() == (left or before.tolist())


def test_no_node_gets_back_what_a_job_is_promised_elsewhere() -> None:
    there = Places(np.array([2, 2, 2, 2], np.int32), np.full(4, np.inf), 2)
    assert there.take(5, 4, math.nan, None)  # two cores of one node and one of each other
    assert sorted(there.idle.tolist()) == [0, 1, 1, 1]


def test_history_is_kept_by_step_and_foretells_the_course_of_the_day() -> None:
    history = History(3600.0, 5)
    day = np.array([10.0 if 8 <= hour < 18 else 50.0 for hour in range(24)])
    for hour in range(3 * 24):
        for part in (0.0, 1200.0, 2400.0):
            history.see(hour * 3600.0 + part, [day[hour % 24], 1.0, 2.0, 3.0, 4.0, 5.0])
    now = 3 * 24 + 6
    for hour in range(3 * 24, now + 1):
        history.see(hour * 3600.0, [day[hour % 24], 1.0, 2.0, 3.0, 4.0, 5.0])
    past = history.past(now)
    assert past.capacity.tolist() == np.tile(day, 4)[24 : 24 + 54].tolist()
    assert set(past.started[:-6].tolist()) == {6.0}, "what started is added up, the rest is a mean"
    found = history.forecast(now, 50.0, 24, 0.2)
    assert found.tolist() == [*day[6:], *day[:6]]
    # with 10 more than usual now, that is forgotten within hours
    more = history.forecast(now, 60.0, 24, 0.2)
    assert more[0] == 60.0 and more[1] == pytest.approx(50.0 + 10.0 * math.exp(-1 / 3)) and more[20] < 50.1
    fewer = History(3600.0, 5)
    fewer.restore(json.loads(json.dumps(history.to_json(), allow_nan=False)))
    assert fewer.forecast(now, 50.0, 24, 0.2).tolist() == found.tolist()
    assert History(3600.0, 5).forecast(now, 50.0, 3, 0.2).tolist() == [50.0, math.inf, math.inf]


def test_history_forgets_and_passes_over_what_cannot_be_read() -> None:
    history = History(3600.0, 2)
    for hour in range(5 * 24):
        history.see(hour * 3600.0, [float(hour)] + [0.0] * 5)
    seen = history.to_json()
    assert len(seen) == 2 and {entry["day"] for entry in seen.values()} == {3, 4}
    broken = {
        "day 0": {**seen["day 0"], "capacity": "x"},
        "day 1": {**seen["day 1"], "step_s": 60.0},
        "day 2": {**seen["day 0"], "day": "soon"},
        "day 3": {**seen["day 0"], "capacity": [1e300] * 24},
        "day 4": {**seen["day 0"], "held": [1.0]},
    }
    again = History(3600.0, 2)
    again.restore(broken)  # type: ignore[arg-type]
    assert again.known_steps == 0 and len(COLUMNS) == 6
    history.see(400 * 24 * 3600.0, [1.0] * 6)
    assert len(history.past(400 * 24).capacity) == 0, "after so long a pause nothing is known"


@pytest.mark.parametrize("leap_days", [1, 30, 365, 20_000])
def test_history_outlives_a_clock_that_leaps_ahead_for_a_while(leap_days: int) -> None:
    history, present = History(3600.0, 5), [10.0] + [0.0] * 5
    for hour in range(100 * 24, 104 * 24):
        history.see(hour * 3600.0, present)
    known = history.known_steps
    leap_s = leap_days * 86_400.0
    for hour in range(104 * 24, 104 * 24 + 3):
        history.see(hour * 3600.0 + leap_s, [99.0] + [0.0] * 5)
    assert history.known_steps >= known - 24
    kept = History(3600.0, 5)
    kept.restore(json.loads(json.dumps(history.to_json(), allow_nan=False)))
    for one in (history, kept):
        for hour in range(104 * 24 + 3, 105 * 24):
            one.see(hour * 3600.0, present)
        ahead = one.forecast(105 * 24, 10.0, 24, 0.2)
        assert np.isfinite(ahead).all() and ahead[-6:].tolist() == [10.0] * 6
        for hour in range(105 * 24, 110 * 24):
            one.see(hour * 3600.0, present)
        assert {entry["day"] for entry in one.to_json().values()} == set(range(105, 110)), (
            "what was made up is gone"
        )


def test_history_bounds_what_starts() -> None:
    """Every day at 9 on-demand jobs take all but one core: whoever would still run then waits, or is small."""
    policy = deferral(step_s=1800.0, by_node=False)
    day_s = 86_400.0
    for step in range(3 * 48):
        hour = step % 48 / 2
        policy._history.see(EPOCH - 3 * day_s + step * 1800.0, [1.0 if 9 <= hour < 17 else 8.0] + [0.0] * 5)
    start_s = 20 * day_s + 7 * 3600.0
    policy._history = shifted = History(1800.0, 14)
    for step in range(-3 * 48, 14):
        at_s = 20 * day_s + step * 1800.0
        hour = step % 48 / 2
        shifted.see(at_s, [1.0 if 9 <= hour < 17 else 8.0] + [0.0] * 5)
    jobs = [
        job("long", 4 * 3600.0, 4, 23 * HOUR_S, submit_s=start_s),
        job("short", 1.5 * 3600.0, 4, 23 * HOUR_S, submit_s=start_s),
        job("small", 4 * 3600.0, 1, 23 * HOUR_S, submit_s=start_s),
    ]
    cluster = Yielding([8], jobs)
    cluster.now_s = start_s
    cycle_of(cluster, policy).run_once()
    kinds = {d.cause.detail["job"]: d.kind for _, d in cluster.done}
    assert kinds == {"long": "defer", "short": "start", "small": "start"}


# ------------------------------------------------------------------------------------------------------- the guard


def by_score(row: int, **detail: Any) -> Start:
    return Start(Cause("x", "y", {"stage": "defer", "urgent": False, **detail}), row)


def test_the_guard_counts_idle_cores_once_more() -> None:
    cluster = Yielding([4, 4], [job("1", 900.0, 3), *(job(str(n), 600.0, 3, HOUR_S) for n in (2, 3, 4))])
    cluster.jobs[0].all[0].start_s, cluster.jobs[0].all[0].node = EPOCH, 0
    seen: Snapshot = cluster.snapshot()
    guard = guard_for(frozenset(), GuardSettings())
    allowed, vetoed = guard.check(seen, [by_score(1), by_score(2), by_score(3, urgent=True)])
    assert [decision.job for decision in allowed] == [1, 3]
    assert vetoed[0].reason == "vetoed (idle cores): 5 cores are idle, and 6 would be taken"
    down = dataclasses.replace(seen, node_bar=np.array([0, 1], np.int8))
    assert guard.check(down, [by_score(1)])[0] == []
    # starts by admission itself are none of its matters
    other = Start(Cause("oasis", "its slot has come"), 1)
    assert guard.check(down, [other])[0] == [other]


def test_the_guard_bounds_a_lease() -> None:
    cluster = Yielding([4], [job("1", 600.0, 3, 20 * HOUR_S)])
    seen = cluster.snapshot()
    guard = guard_for(frozenset(), GuardSettings(most_lease_s=600.0))
    held = [Defer(Cause("x", "y", {"stage": "defer"}), 0, EPOCH + s) for s in (600.0, 601.0, math.nan)]
    for decision, done in zip(held, (True, False, False), strict=True):
        allowed, _ = guard.check(seen, [decision])
        assert bool(allowed) == done
    assert guard.check(seen, [Defer(Cause("oasis", "y"), 0, EPOCH + 3600.0)])[0], (
        "admission plans further ahead"
    )

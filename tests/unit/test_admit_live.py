"""Admission on a cluster: what it decides on made-up snapshots, and a whole life over a cluster that obeys."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.everyone import Everyone
from asad.admit.hints import Rule
from asad.admit.schemes import scheme_maker, scheme_names, warm_up_scheme
from asad.admit.server_prices import most_by_slot
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.decisions import Cause, Decision, Defer, Outcome, SetThrottle
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.ineligible import Ineligible
from asad.model import Snapshot
from asad.place.native import Native
from asad.share.exclusive import Exclusive

SLOT = 100.0
WORTH = "utility=constant(10)"
OPTIONS = Options(slot_s=SLOT, horizon=40, again_s=SLOT, early=False)
"""What is planned is what is seen."""


def admission(**more: Any) -> Admission:
    options = more.pop("options", OPTIONS)
    return Admission("as-soon", AsSoonAsRoom, Obedient.applications, options, **more)


def cycle_of(cluster: Obedient, policy: Admission, **more: Any) -> Cycle:
    return Cycle(
        cluster, policy, AtOnce(), Native(), Exclusive(), guard_for(frozenset(), GuardSettings()), **more
    )


def live(cluster: Obedient, cycle: Cycle, until_s: float = 20_000.0, every_s: float = 30.0) -> Obedient:
    """A cycle at every look, until all jobs have ended."""
    while not cluster.over and cluster.now_s < EPOCH + until_s:
        cycle.run_once()
        cluster.run(cluster.now_s + every_s)
    cycle.run_once()
    return cluster


def vetoes(cycle: Cycle) -> list[str]:
    return [outcome.reason for outcome in cycle.outcomes if not outcome.done]


# ------------------------------------------------------------------------------------------------------ one cycle


def test_an_array_is_admitted_and_held_to_its_plan() -> None:
    cluster = Obedient(
        [2], [Job("7", 100.0, 6, hint=WORTH, array=True), Job("8", 100.0, 6, hint=WORTH, array=True)]
    )
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert vetoes(cycle) == []
    assert cluster.kinds("7") == ["admit", "set-throttle"]
    assert cluster.kinds("8") == ["admit", "defer", "set-throttle"], "it has its turn when 7 is done"
    assert cluster.jobs[0].throttle == 2
    # 6 tasks of up to 200 s (their limit) on 2 cores: 6 slots
    assert cluster.jobs[1].begin_s == EPOCH + 6 * SLOT
    assert cluster.jobs[1].throttle == 2, "set while it waits, so that it starts rightly by itself"
    cycle.run_once()
    assert len(cluster.done) == 5, "nothing is decided twice"
    assert cluster.illegal == []


def test_what_was_decided_shows_its_numbers() -> None:
    cluster = Obedient([2], [Job("7", 100.0, 6, hint=WORTH, array=True)])
    cycle_of(cluster, admission()).run_once()
    detail = cluster.done[0][1].cause.detail
    assert detail["work"] == 12 and detail["most_workers"] == 2 and detail["slot_s"] == SLOT
    assert detail["schedule"] == [[EPOCH + i * SLOT, 2] for i in range(6)]
    assert detail["end_s"] == EPOCH + 6 * SLOT
    json.dumps(cluster.done[0][1].to_json(), allow_nan=False)


def test_a_rigid_job_starts_in_its_slot() -> None:
    jobs = [Job("7", 100.0, 2, hint=WORTH, array=True), Job("9", 150.0, cores=2, hint=WORTH)]
    cluster = Obedient([2], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert cluster.kinds("9") == ["admit", "defer"]
    assert jobs[1].begin_s == EPOCH + 2 * SLOT
    live(cluster, cycle)
    assert jobs[1].all[0].start_s >= EPOCH + 2 * SLOT
    assert cluster.over and cluster.illegal == []


@pytest.mark.parametrize("early", [False, True])
def test_capacity_that_no_plan_has_is_given_early(early: bool) -> None:
    # the two ordinary jobs hold every core until their limits, as far as anybody knows, and end soon
    ordinary = [Job(name, 150.0, limit_s=1500.0) for name in ("5", "6")]
    arrays = [Job("7", 90.0, 4, hint=WORTH, array=True), Job("8", 90.0, 4, hint=WORTH, array=True)]
    cluster = Obedient([2], [*ordinary, *arrays])
    cycle = cycle_of(cluster, admission(options=OPTIONS._replace(early=early)))
    cluster.run(EPOCH + 20.0)  # they run
    cycle.run_once()
    planned = EPOCH + 15 * SLOT
    if early:
        assert math.isnan(arrays[0].begin_s) and arrays[0].throttle == 2, (
            "it waits in the queue for its cores"
        )
        assert arrays[1].begin_s > planned, "its slots are no earlier, and 7 has what no plan has now"
    else:
        assert arrays[0].begin_s == planned
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []
    for job in arrays:
        ended_s = max(task.end_s for task in job.all)
        assert (ended_s < planned) == early, f"{job.name} ended {ended_s - planned:g} s after the slots began"


def test_where_every_job_has_a_plan_nothing_is_given_early() -> None:
    lives = []
    for early in (False, True):
        hints = (f"{WORTH};workers=1", WORTH)
        cluster = Obedient(
            [4], [Job(str(7 + i), 90.0, 6, hint=hint, array=True) for i, hint in enumerate(hints)]
        )
        cycle = cycle_of(cluster, admission(options=OPTIONS._replace(early=early)))
        live(cluster, cycle)
        assert cluster.over and cluster.illegal == []
        lives.append([(time_s, decision.to_json()) for time_s, decision in cluster.done])
    assert lives[0] == lives[1], "what is free in a plan waits for those who come"


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job("7", 100.0, hint="utility=bribe(3)"), "no kind of that name"),
        (Job("7", 100.0, hint="utility=;workers=2"), "utility is empty"),
        (Job("7", 100.0, hint=f"{WORTH};workers=many"), "workers=many is no number"),
        (Job("7", 100.0, hint=f"{WORTH};ps=store"), "no node here is named for them"),
        (Job("7", 100.0, cores=5, hint=WORTH), "it takes more than any one node holds"),
        (Job("7", 100.0, hint=WORTH, limit_s=math.inf), "it has no time limit"),
        (Job("7", 1e6, hint=WORTH), "do not fit into the plan"),
        (Job("7", 100.0, hint="utility=deadline(5, 50s)"), "too late to be worth anything"),
    ],
)
def test_who_is_not_admitted_learns_why_and_is_left_as_he_is(job: Job, reason: str) -> None:
    cluster = Obedient([4], [job])
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    (decision,) = [decision for _, decision in cluster.done]
    assert decision.kind == "decline"
    assert reason in decision.cause.reason
    cycle.run_once()
    assert len(cluster.done) == 1, "he is reported once"
    assert math.isnan(job.begin_s) and job.throttle == 0


@pytest.mark.parametrize(
    "job",
    [
        Job("7", 100.0),
        Job("7", 100.0, hint="memory-bound"),
        Job("7", 100.0, hint=WORTH, bar=Ineligible.USER_OPTED_OUT),
        Job("7", 100.0, hint=WORTH, begin_s=EPOCH + 1000.0),
        Job("7", 100.0, hint=WORTH, submit_s=EPOCH + 1000.0),
    ],
)
def test_whom_admission_does_not_touch(job: Job) -> None:
    cluster = Obedient([4], [job])
    policy = admission()
    cycle_of(cluster, policy).run_once()
    assert cluster.done == []
    assert policy.explain("7") is None


def test_the_first_rule_that_fits_gives_a_utility_to_who_states_none() -> None:
    jobs = [Job("7", 100.0, 2, array=True), Job("8", 100.0), Job("9", 100.0, hint="utility=constant(3)")]
    rules = (
        Rule("constant(500)", users=("ann",), rigid=False),
        Rule("constant(1)", names=("no*",)),
        Rule("constant(7)", users=("b*",), names=("sim",)),
    )
    policy = admission(rules=rules)
    cycle_of(Obedient([8], jobs), policy).run_once()
    overview = {job["job"]: (job["utility"], job["payoff"]) for job in policy.overview()["jobs"]}  # type: ignore
    assert overview == {
        "7": ("constant(500)", 500.0),
        "8": ("constant(7)", 7.0),
        "9": ("constant(3)", 3.0),
    }


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule("constant(7)", partitions=("gpu*",)), True),
        (Rule("constant(7)", partitions=("long",)), False),
        (Rule("constant(7)", qos=("high",), partitions=("batch",)), True),
        (Rule("constant(7)", qos=("low",)), False),
    ],
)
def test_rules_may_ask_for_partition_and_qos(rule: Rule, fits: bool) -> None:
    policy = admission(rules=(rule,))
    shown = replace(Obedient([8], [Job("7", 100.0)]).snapshot(), classes={0: ("batch,gpu2", "high")})
    assert bool(policy.decide(shown)) == fits
    blind = admission(rules=(rule,))
    assert blind.decide(replace(shown, classes={})) == []


def test_no_hint_is_worth_more_than_the_site_allows() -> None:
    policy = admission()
    cycle_of(Obedient([8], [Job("7", 100.0, hint="utility=constant(100000)")]), policy).run_once()
    assert (policy.explain("7") or {})["worth"] == 100.0


def test_a_job_is_worth_what_it_is_since_its_submission() -> None:
    job = Job("7", 100.0, hint="utility=linear(10, 100s, 1100s)", submit_s=EPOCH - 450.0)
    policy = admission()
    cycle_of(Obedient([8], [job]), policy).run_once()
    # its limit of 200 s is two slots: 650 s since its submission
    assert (policy.explain("7") or {})["worth"] == pytest.approx(10 * (1100 - 650) / 1000)


def test_nobody_is_planned_to_end_after_the_deadline_of_slurm() -> None:
    jobs = [
        Job("7", 250.0, cores=4, limit_s=300.0, hint=WORTH),
        Job("8", 90.0, cores=4, limit_s=100.0, hint=WORTH, deadline_s=EPOCH + 350.0),
    ]
    cluster = Obedient([4], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert cluster.kinds("8") == ["decline"], "it would end at 400 s"


# ------------------------------------------------------------------------------------------------------- a life


def two_arrays_and_rigid() -> list[Job]:
    return [
        Job("1", 80.0, 12, hint=WORTH, array=True, limit_s=100.0),
        Job("2", 250.0, cores=2, hint="utility=sigmoid(50, 0.01/s, 900s)"),
        Job("3", 130.0, 7, hint="utility=linear(20, 10m, 1h)", array=True, submit_s=EPOCH + 35.0),
        Job("4", 60.0, submit_s=EPOCH + 150.0),
        Job("5", 90.0, cores=3, hint=WORTH, submit_s=EPOCH + 250.0),
    ]


def test_all_jobs_end_and_nothing_illegal_or_repeated_is_decided() -> None:
    cluster = Obedient([2, 3], two_arrays_and_rigid())
    cycle = cycle_of(cluster, admission())
    live(cluster, cycle)
    assert cluster.over
    assert cluster.illegal == []
    assert cluster.most_used == 5
    assert "set-throttle" in cluster.kinds("1") and "4" not in {
        d.cause.detail["job"] for _, d in cluster.done
    }


@pytest.mark.parametrize("name", scheme_names())
def test_every_scheme_drives_a_cluster(name: str) -> None:
    cluster = Obedient([2, 3], two_arrays_and_rigid())
    policy = Admission(name, scheme_maker(name, {}), cluster.applications, OPTIONS)
    cycle = cycle_of(cluster, policy)
    live(cluster, cycle)
    assert cluster.over
    assert cluster.illegal == []
    assert cluster.done


@pytest.mark.parametrize("name", scheme_names())
def test_every_scheme_can_be_warmed_up(name: str) -> None:
    assert warm_up_scheme(scheme_maker(name, {})) > 0
    if name == "oasis":  # what is called where a job outgrows the plan, too
        assert most_by_slot.signatures


def test_early_finishers_release_what_was_planned_for_them() -> None:
    jobs = [
        Job("1", 100.0, 4, hint=WORTH, array=True, limit_s=1000.0),
        Job("2", 100.0, cores=2, limit_s=100.0, hint=WORTH),
    ]
    cluster = Obedient([2], jobs)
    policy = admission(options=OPTIONS._replace(horizon=60))
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert jobs[1].begin_s == EPOCH + 20 * SLOT, "after 4 tasks of up to 1000 s on 2 cores"
    live(cluster, cycle)
    scheme: Any = policy.planning.scheme
    assert ("leave", 1) in scheme.calls
    assert cluster.illegal == []


def test_late_ones_get_more_slots_and_are_never_cancelled() -> None:
    jobs = [Job("1", 250.0, 4, hint=WORTH, array=True, limit_s=100.0)]
    cluster = Obedient([2], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    live(cluster, cycle)
    scheme: Any = policy.planning.scheme
    assert ("extend", 1) in scheme.calls
    assert cluster.over and cluster.illegal == []


def test_how_long_tasks_ran_is_learned_for_the_next_array_of_the_application() -> None:
    jobs = [
        Job("1", 100.0, 2, hint=WORTH, array=True, limit_s=1000.0),
        Job("2", 100.0, 2, hint=WORTH, array=True, limit_s=1000.0, submit_s=EPOCH + 300.0),
    ]
    cluster = Obedient([2], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    for _ in range(12):
        cycle.run_once()
        cluster.run(cluster.now_s + 30.0)
    assert (policy.explain("2") or {})["task_s"] == 100.0


def test_who_was_not_admitted_is_asked_for_again_when_jobs_have_ended() -> None:
    jobs = [
        Job("1", 100.0, cores=2, hint=WORTH, limit_s=3000.0),
        Job("3", 400.0, cores=2, limit_s=400.0),
        Job("2", 100.0, cores=2, hint=WORTH, limit_s=1500.0),
    ]
    cluster = Obedient([2], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert cluster.kinds("2") == ["decline"], "not within 40 slots"
    live(cluster, cycle)
    assert cluster.kinds("2") == ["decline", "admit", "defer"], "deferred until 3 has ended"
    assert cluster.illegal == [] and cluster.over


def test_a_job_that_starts_by_itself_is_taken_as_it_is() -> None:
    jobs = [Job("1", 100.0, 4, hint=WORTH, array=True), Job("2", 100.0, cores=2, hint=WORTH)]
    cluster = Obedient([4], jobs)
    cycle = cycle_of(cluster, admission(options=OPTIONS), mode="advise")
    live(cluster, cycle)
    assert cluster.done == [], "advice is no deed"
    assert cluster.over


def test_advice_is_given_again_until_it_is_acted_on() -> None:
    cluster = Obedient(
        [2], [Job("1", 100.0, 4, hint=WORTH, array=True), Job("2", 100.0, cores=2, hint=WORTH)]
    )
    cycle = cycle_of(cluster, admission(), mode="advise")
    cycle.run_once()
    first = [outcome.decision.kind for outcome in cycle.outcomes]
    cycle.run_once()
    assert (
        [outcome.decision.kind for outcome in cycle.outcomes]
        == first
        == ["admit", "set-throttle", "admit", "defer"]
    )
    cycle.mode = "enforce"
    cycle.run_once()
    assert [decision.kind for _, decision in cluster.done] == first


def test_a_refusal_is_not_asked_for_again_at_once() -> None:
    cluster = Obedient([2], [Job("1", 100.0, 12, hint=WORTH, array=True)])
    cluster.refuse = {"admit"}
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert [outcome.reason for outcome in cycle.outcomes if not outcome.done] == ["the test refuses"]
    cluster.run(cluster.now_s + 30.0)
    cycle.run_once()
    assert cycle.outcomes == ()
    cluster.refuse = set()
    cluster.run(cluster.now_s + 120.0)
    cycle.run_once()
    assert "admit" in cluster.kinds("1")


def test_a_deferral_that_is_taken_back_by_hand_stays_so() -> None:
    jobs = [Job("1", 100.0, 4, hint=WORTH, array=True), Job("2", 100.0, cores=2, hint=WORTH)]
    cluster = Obedient([2], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert jobs[1].begin_s > cluster.now_s
    jobs[1].begin_s = math.nan  # scontrol update StartTime=now
    cycle.run_once()
    assert cluster.kinds("2") == ["admit", "defer"]
    assert (policy.explain("2") or {})["let_go"] is True
    assert live(cluster, cycle).over and cluster.illegal == []


def test_a_throttle_that_somebody_else_sets_is_a_bound_from_then_on() -> None:
    jobs = [Job("1", 500.0, 6, hint=WORTH, array=True)]
    cluster = Obedient([4], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert jobs[0].throttle == 4
    jobs[0].throttle = 1
    cycle.run_once()
    assert jobs[0].throttle == 1
    assert cluster.kinds("1") == ["admit", "set-throttle"]


def test_an_array_never_gets_more_than_its_users_own_throttle() -> None:
    jobs = [Job("1", 100.0, 6, hint=WORTH, array=True, throttle=2)]
    cluster = Obedient([4], jobs)
    cycle = cycle_of(cluster, admission())
    live(cluster, cycle)
    throttles = [d.tasks for _, d in cluster.done if isinstance(d, SetThrottle)]
    assert all(tasks <= 2 for tasks in throttles)
    assert cluster.over


def test_what_is_cancelled_is_forgotten_and_its_place_is_free() -> None:
    jobs = [Job("1", 1000.0, cores=2, hint=WORTH, limit_s=1000.0), Job("2", 100.0, cores=2, hint=WORTH)]
    cluster = Obedient([2], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert jobs[1].begin_s == EPOCH + 10 * SLOT
    jobs[1].all[0].start_s = jobs[1].all[0].end_s = cluster.now_s  # cancelled while it waited
    cycle.run_once()
    assert policy.explain("2") is None
    scheme: Any = policy.planning.scheme
    assert set(scheme.plans) == {1}


def test_tasks_that_run_on_beyond_their_plan_count_as_held() -> None:
    jobs = [
        Job("1", 450.0, 2, hint=WORTH, array=True, limit_s=500.0),
        Job("2", 100.0, cores=2, limit_s=100.0, hint=WORTH, submit_s=EPOCH + 100.0),
    ]
    cluster = Obedient([2], jobs)
    cycle = cycle_of(cluster, admission())
    for _ in range(5):
        cycle.run_once()
        cluster.run(cluster.now_s + 30.0)
    assert jobs[1].begin_s == EPOCH + 5 * SLOT


def test_a_node_that_is_down_holds_nobody() -> None:
    cluster = Obedient([2, 2], [Job("1", 100.0, 8, hint=WORTH, array=True, limit_s=100.0)])
    cluster.down = {1}
    policy = admission()
    cycle_of(cluster, policy).run_once()
    assert [width for _, width in (policy.explain("1") or {})["schedule"]] == [2, 2, 2, 2]  # type: ignore


def test_the_cluster_as_one_server_takes_jobs_of_several_nodes() -> None:
    cluster = Obedient([2, 2], [Job("1", 100.0, cores=3, hint=WORTH)])
    policy = admission(options=OPTIONS._replace(whole=True))
    cycle_of(cluster, policy).run_once()
    assert cluster.kinds("1") == ["admit"]


# --------------------------------------------------------------------------------------------- modes and restarts


def test_a_paused_daemon_admits_and_defers_nobody_and_lets_arrays_grow() -> None:
    jobs = [
        Job("1", 1000.0, 3, hint=WORTH, array=True, throttle=3, limit_s=1000.0),
        Job("2", 100.0, cores=2, hint=WORTH),
        Job("3", 100.0, cores=2, hint=WORTH, submit_s=EPOCH + 60.0),
    ]
    cluster = Obedient([2], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    before = len(cluster.done)
    cycle.paused = True
    jobs[0].throttle = 1
    cluster.run(cluster.now_s + 90.0)
    cycle.run_once()
    assert [decision.kind for _, decision in cluster.done[before:]] == ["set-throttle"]
    assert jobs[0].throttle == 2
    cycle.paused = False
    cycle.run_once()
    assert "3" in {decision.cause.detail["job"] for _, decision in cluster.done}


@pytest.mark.parametrize(("throttle", "done"), [(0, []), (3, []), (1, ["set-throttle"])])
def test_a_pause_in_the_middle_of_a_cycle_holds_no_array_to_less(throttle: int, done: list[str]) -> None:
    cluster = Obedient([2], [Job("7", 100.0, 6, hint=WORTH, array=True)])
    policy = admission()
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    before = len(cluster.done)
    cluster.jobs[0].throttle = throttle

    def slowly(snapshot: Snapshot) -> list[Decision]:
        cycle.paused = True
        return [SetThrottle(Cause(policy.name, "its plan has 2"), 0, 2)]

    policy.decide = slowly  # type: ignore[method-assign]
    cycle.run_once()
    assert [decision.kind for _, decision in cluster.done[before:]] == done
    assert len([reason for reason in vetoes(cycle) if reason.startswith("vetoed (paused)")]) == 1 - len(done)


def test_observing_decides_nothing_and_plans_nothing() -> None:
    cluster = Obedient([2], two_arrays_and_rigid())
    policy = admission()
    live(cluster, cycle_of(cluster, policy, mode="observe"))
    assert cluster.done == [] and policy.overview()["jobs"] == []


def test_a_restart_keeps_all_commitments_and_repeats_nothing() -> None:
    cluster = Obedient([2, 3], two_arrays_and_rigid())
    policy = admission()
    cycle = cycle_of(cluster, policy)
    for _ in range(3):
        cycle.run_once()
        cluster.run(cluster.now_s + 30.0)
    kept = json.loads(json.dumps(policy.state(), allow_nan=False))
    plans = {job["job"]: job for job in policy.overview()["jobs"]}  # type: ignore
    assert set(plans) == {"1", "2", "3"}
    for job in cluster.jobs:
        job.admitted = False  # its nice may have been returned: to be reported again is no fault
    before = len(cluster.done)
    again = admission()
    again.restore(kept)
    cycle = cycle_of(cluster, again)
    cycle.run_once()
    assert {job["job"]: job for job in again.overview()["jobs"]} == plans  # type: ignore
    assert {decision.kind for _, decision in cluster.done[before:]} <= {"admit"}
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []


def test_who_ended_while_the_daemon_was_away_holds_nobody_up() -> None:
    """The cluster may still show it, with its start, and not among those that run."""
    cluster = Obedient(
        [3], [Job("1", 340.0, 1, cores=3, hint=WORTH), Job("4", 10.0, 1, hint=WORTH, array=True)]
    )

    def drf() -> Admission:
        return Admission("drf", scheme_maker("drf", {}), Obedient.applications, OPTIONS)

    policy = drf()
    cycle = cycle_of(cluster, policy)
    while cluster.now_s < EPOCH + 330.0:
        cycle.run_once()
        cluster.run(cluster.now_s + 30.0)
    kept = json.loads(json.dumps(policy.state()))
    assert not math.isnan(cluster.jobs[1].begin_s), "the array was deferred for it"
    cluster.run(EPOCH + 400.0)
    assert not math.isnan(cluster.jobs[0].all[0].end_s)
    again = drf()
    again.restore(kept)
    live(cluster, cycle_of(cluster, again), until_s=1000.0)
    assert cluster.over


def test_a_restart_defers_again_what_the_stop_gave_back() -> None:
    jobs = [Job("1", 100.0, 4, hint=WORTH, array=True), Job("2", 100.0, cores=2, hint=WORTH)]
    cluster = Obedient([2], jobs)
    policy = admission()
    cycle_of(cluster, policy).run_once()
    begin_s = jobs[1].begin_s
    for job in jobs:
        job.begin_s, job.throttle, job.admitted = math.nan, 0, False
    again = admission()
    again.restore(policy.state())
    cycle_of(cluster, again).run_once()
    assert jobs[1].begin_s == begin_s and jobs[0].throttle == 2
    assert cluster.illegal == []


@pytest.mark.parametrize("slot_s", [50.0, 300.0])
def test_slots_of_another_length_give_back_what_was_planned_in_the_old(slot_s: float) -> None:
    jobs = [
        Job("7", 100.0, 6, hint=WORTH, array=True),
        Job("8", 100.0, 6, hint=WORTH, array=True),
        Job("9", 150.0, cores=2, hint=WORTH),
    ]
    cluster, policy = Obedient([2], jobs), admission()
    cycle_of(cluster, policy).run_once()
    assert [job.throttle for job in jobs] == [2, 2, 0] and jobs[1].begin_s > EPOCH and jobs[2].begin_s > EPOCH
    again = admission(options=OPTIONS._replace(slot_s=slot_s))
    again.restore(json.loads(json.dumps(policy.state(), allow_nan=False)))
    for job in jobs:
        job.admitted = False
    cycle = cycle_of(cluster, again)
    cycle.run_once()
    assert math.isnan(jobs[1].begin_s) and math.isnan(jobs[2].begin_s)
    assert [job.throttle for job in jobs] == [6, 6, 0], "as many as they have tasks: no bound"
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []
    assert (again.explain("8") or {"own": 0}).get("throttle") != 6, (
        "what we had set is not taken for its user's own"
    )


def test_what_a_scheme_learned_in_slots_of_another_length_is_not_restored() -> None:
    class Learning(AsSoonAsRoom):
        kept: object = None

        def restore(self, kept: object) -> None:
            self.kept = kept

    cluster, policy = Obedient([2], [Job("7", 100.0, hint=WORTH)]), admission()
    cycle_of(cluster, policy).run_once()
    for slot_s, kept in ((SLOT, {"plans": 1}), (300.0, None)):
        options = OPTIONS._replace(slot_s=slot_s)
        again = Admission("as-soon", Learning, Obedient.applications, options)
        again.restore(json.loads(json.dumps(policy.state())))
        again.decide(cluster.snapshot())
        scheme: Any = again.planning.scheme
        assert scheme.kept == kept


def test_before_the_first_look_only_jobs_of_an_earlier_process_are_controlled() -> None:
    cluster = Obedient([2], [Job("7", 100.0, hint=WORTH), Job("8", 100.0)])
    policy = admission()
    cycle_of(cluster, policy).run_once()
    again = admission()
    again.restore(policy.state())
    cluster.jobs[0].hint = ""
    seen = cluster.snapshot()
    # in mode observe it stays so: the defer stage must see the others all the same
    assert again.decides_start(seen, 0) and not again.decides_start(seen, 1)


def test_a_daemon_killed_between_deed_and_note_knows_its_own_deferral() -> None:
    jobs = [Job("1", 100.0, 4, hint=WORTH, array=True), Job("2", 100.0, cores=2, hint=WORTH)]
    cluster = Obedient([2], jobs)
    policy = admission()
    kept: list[Any] = []
    cycle_of(cluster, policy, keep=lambda: kept.append(policy.state())).run_once()
    again = admission()
    again.restore(kept[0])
    for job in jobs:
        job.admitted = False
    cycle = cycle_of(cluster, again)
    cycle.run_once()
    assert {decision.kind for _, decision in cluster.done[-2:]} == {"admit"}
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []
    assert all(not job.begin_s > cluster.now_s for job in jobs)


def test_places_are_used_again_so_that_a_store_does_not_grow() -> None:
    jobs = [Job(str(i), 20.0, hint=WORTH, limit_s=20.0, submit_s=EPOCH + 60.0 * i) for i in range(30)]
    cluster = Obedient([4], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    slots = 0
    while not cluster.over:
        cycle.run_once()
        slots = max(slots, sum(name.startswith("seat") for name in policy.state()))
        cluster.run(cluster.now_s + 30.0)
    assert slots <= 4


@pytest.mark.parametrize(
    "damage",
    [
        {"seat 0": {"state": "admitted"}},
        {"seat 0": {}},
        {"seat x": {"key": "1"}},
        {"*": {"slot_s": 50.0}},
        {"ann/train/1": {"runs": -1, "run_s": "many"}},
    ],
)
def test_what_was_kept_and_cannot_be_read_is_passed_over(damage: dict[str, Any]) -> None:
    cluster = Obedient([2], [Job("1", 100.0, 4, hint=WORTH, array=True)])
    policy = admission()
    cycle_of(cluster, policy).run_once()
    again = admission()
    again.restore({**policy.state(), **damage})
    cluster.jobs[0].admitted = False
    live(cluster, cycle_of(cluster, again))
    assert cluster.over


def test_plans_move_with_their_nodes_when_the_machine_changes() -> None:
    cluster = Obedient([2, 2], [Job("1", 100.0, 8, hint=WORTH, array=True)])
    policy = admission()
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    plan = (policy.explain("1") or {})["schedule"]
    bigger = Obedient([1, 2, 2], cluster.jobs)
    bigger.machine = type(bigger.machine)(
        ("a0", "n0", "n1"), bigger.machine.cores, bigger.machine.memory_bytes, "grown"
    )
    bigger.jobs[0].admitted = True
    cycle.cluster = bigger
    cycle.run_once()
    assert (policy.explain("1") or {})["schedule"] == plan
    scheme: Any = policy.planning.scheme
    assert scheme.plans[1][int(EPOCH / SLOT)].worker_server.tolist() == [1, 2]


def test_nodes_that_keep_their_names_and_grow_are_planned_as_they_are_now() -> None:
    class Learning(AsSoonAsRoom):
        kept: object = None

        def restore(self, kept: object) -> None:
            self.kept = kept

    jobs = [
        Job("1", 100.0, 8, hint=WORTH, array=True),
        Job("2", 100.0, cores=2, hint=WORTH, submit_s=EPOCH + 30.0),
    ]
    cluster = Obedient([2], jobs)
    policy = Admission("as-soon", Learning, Obedient.applications, OPTIONS)
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    cluster.nodes, machine = [4], cluster.machine
    cluster.machine = replace(machine, cores=np.array([4], np.int32))
    cluster.run(EPOCH + 30.0)
    cycle.run_once()
    assert math.isnan(jobs[1].begin_s), "there is room for it beside the array now"
    scheme: Any = policy.planning.scheme
    assert scheme.kept == {"plans": 1}, "what was learned of jobs is not lost"
    same = policy.planning.scheme
    cluster.machine = replace(cluster.machine)
    cycle.run_once()
    assert policy.planning.scheme is same
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []


# ------------------------------------------------------------------------------------------------- waking, reporting


def test_it_wakes_at_the_next_slot_if_there_is_anybody() -> None:
    policy = admission()
    assert policy.wake_s() == math.inf
    cycle = cycle_of(Obedient([2], [Job("1", 100.0, hint=WORTH)]), policy)
    assert cycle.run_once() == EPOCH + SLOT
    assert Everyone().wake_s() == math.inf


def test_the_overview_shows_who_holds_what_by_slot() -> None:
    jobs = [Job("1", 100.0, 4, hint=WORTH, array=True, limit_s=100.0), Job("4", 1000.0, limit_s=1000.0)]
    cluster = Obedient([3], jobs)
    jobs[1].all[0].start_s, jobs[1].all[0].node = EPOCH, 0
    policy = admission()
    cycle_of(cluster, policy).run_once()
    seen: Any = policy.overview()
    assert [(slot["planned_cores"], slot["other_cores"]) for slot in seen["slots"]] == [(2, 1.0), (2, 1.0)]
    json.dumps(seen, allow_nan=False)
    json.dumps(policy.explain("1_3"), allow_nan=False)


def test_respect_passes_over_what_others_decided() -> None:
    cluster = Obedient([2], [Job("1", 100.0, hint=WORTH)])
    policy = admission()
    cycle_of(cluster, policy).run_once()
    other: Decision = Defer(type(cluster.done[0][1].cause)("somebody", "else"), 0, EPOCH + 50.0)
    policy.on_outcomes([Outcome(other, True, "")])
    assert (policy.explain("1") or {})["deferred_s"] is None

"""Parameter servers on a cluster: a companion array that is scaled with its workers, slot by slot."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient
from test_admit_live import OPTIONS, SLOT, WORTH, cycle_of, live, vetoes

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.hints import WORKERS_PER_SERVER, Rule, read_hint
from asad.admit.schemes import scheme_maker, scheme_names
from asad.admit.slot_servers import Claims, held_by_others, world_of
from asad.decisions import SetThrottle
from asad.model import Machine

SHARED = OPTIONS._replace(server_share=0.25)
STORE = 2
"""Application of a companion: of the name `store`."""


def admission(name: str = "as-soon", options: Options = SHARED, **more: Any) -> Admission:
    make = AsSoonAsRoom if name == "as-soon" else scheme_maker(name, {})
    return Admission(name, make, Obedient.applications, options, **more)


def workers(hint: str = "ps=store:2", **more: Any) -> Job:
    facts: dict[str, Any] = {"limit_s": 100.0, "array": True, "hint": f"{WORTH};{hint}"} | more
    return Job(facts.pop("name", "7"), 90.0, facts.pop("tasks", 12), **facts)


def store(**more: Any) -> Job:
    facts: dict[str, Any] = {"limit_s": 100.0, "array": True, "application": STORE} | more
    return Job(facts.pop("name", "9"), 90.0, facts.pop("tasks", 12), **facts)


# ------------------------------------------------------------------------------------------------------------ hints


@pytest.mark.parametrize(
    ("text", "name", "ratio"),
    [("ps=store", "store", WORKERS_PER_SERVER), ("ps=12:3", "12", 3.0), ("ps=a:b:2.5", "a:b", 2.5)],
)
def test_a_companion_is_named_with_the_workers_that_one_server_serves(
    text: str, name: str, ratio: float
) -> None:
    assert read_hint(text)[2:4] == (name, ratio)


@pytest.mark.parametrize("text", ["ps=a:b", "ps=a:0.5", "ps=a:nan", "ps=:3", "ps=a:1e9", "ps=a:", "ps=a:²"])
def test_what_is_no_ratio_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="write ps=NAME or ps=NAME:4"):
        read_hint(text)


# --------------------------------------------------------------------------------------------------------- capacity


def test_a_share_of_each_node_is_set_aside_in_whole_cores() -> None:
    machine = Machine(("a", "b"), np.array([8, 3], np.int32), np.array([80.0, 30.0]), "two")
    world = world_of(machine, server_share=0.3)
    assert world.servers.workers.tolist() == [[6.0, 60.0], [3.0, 30.0]]
    assert world.servers.parameter_servers.tolist() == [[2.0, 20.0]]
    assert (world.worker_names, world.server_names) == (["a", "b"], ["a"])
    one = world_of(machine, whole=True, server_share=0.3)
    assert one.servers.workers.tolist() == [[9.0, 90.0]]
    assert one.servers.parameter_servers.tolist() == [[2.0, 20.0]]
    apart = world_of(machine, ("b",), server_share=0.3)
    assert apart.servers.workers.tolist() == [[8.0, 80.0]]
    assert apart.servers.parameter_servers.tolist() == [[3.0, 30.0]], "named nodes are for them alone"
    assert len(world_of(machine).servers.parameter_servers) == 0


@pytest.mark.parametrize("whole", [False, True])
def test_what_runs_beyond_one_part_of_a_node_is_taken_from_the_other(whole: bool) -> None:
    other = Job("4", 500.0, cores=7)
    cluster = Obedient([8], [other, store(tasks=4)])
    other.all[0].start_s, other.all[0].node = EPOCH, 0
    world = world_of(cluster.machine, server_share=0.25, whole=whole)

    def held(beside: bool, planned: int) -> tuple[float, float]:
        seen = cluster.snapshot()
        count = len(seen.jobs.job_id)
        mine, group = np.zeros(count, np.bool_), np.full(count, -1, np.int32)
        mine[1:] = beside
        if planned:
            group[1:] = 5
        claims = Claims(np.zeros(count, np.bool_), group, mine, {5: {10_000: planned}})
        used = held_by_others(seen, world, 10_000, 2, SLOT, seen.jobs.limit_end_s, claims)
        return float(used[0][0, 0, 0]), float(used[1][0, 0, 0])

    assert held(False, 0) == (6.0, 1.0), "7 cores are one more than the workers' part"
    cluster.jobs[1].all[0].start_s, cluster.jobs[1].all[0].node = EPOCH, 0
    assert held(True, 0) == (6.0, 2.0)
    assert held(True, 1) == (6.0, 1.0), "its plan holds it"
    assert held(False, 1) == (6.0, 1.0)
    cluster.down = {0}
    assert held(True, 1)[0] == 6.0


# -------------------------------------------------------------------------------------------------------- together


def test_workers_and_servers_are_admitted_and_throttled_together() -> None:
    jobs = [workers(), store()]
    cluster = Obedient([8], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert vetoes(cycle) == []
    # 2 of 8 cores are set aside: two servers serve four workers
    assert cluster.kinds("7") == cluster.kinds("9") == ["admit", "set-throttle"]
    assert (jobs[0].throttle, jobs[1].throttle) == (4, 2)
    seen: Any = policy.explain("9")
    assert seen["beside"] == "7" and "parameter servers of 7" in seen["reason"]
    assert (policy.explain("7") or {})["companion"] == "9"
    before = len(cluster.done)
    cycle.run_once()
    assert len(cluster.done) == before, "nothing is decided twice"
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []


def test_the_throttles_of_both_follow_every_slot() -> None:
    first = Job("1", 190.0, cores=4, limit_s=300.0, hint=WORTH)
    jobs = [first, workers(tasks=30), store(tasks=60)]
    cluster = Obedient([8], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    pairs = set()
    while not cluster.over and cluster.now_s < EPOCH + 10_000:
        cycle.run_once()
        seen: Any = policy.explain("7")
        if seen and seen["verdict"] == "admitted":
            pairs.add((jobs[1].throttle, jobs[2].throttle))
        cluster.run(cluster.now_s + 30.0)
    assert cluster.over and cluster.illegal == []
    assert pairs == {(2, 1), (4, 2)}, (
        "two of the six cores for workers while the first job runs, then four for two servers"
    )


def test_both_are_deferred_in_slots_without_workers() -> None:
    first = Job("1", 190.0, cores=6, limit_s=200.0, hint=WORTH)
    jobs = [first, workers(submit_s=EPOCH + 5.0), store(submit_s=EPOCH + 5.0)]
    cluster = Obedient([8], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    cluster.run(EPOCH + 10.0)
    for job in jobs[1:]:  # they did not start meanwhile
        for task in job.all:
            task.start_s = task.end_s = math.nan
    cycle.run_once()
    assert jobs[1].begin_s == jobs[2].begin_s == EPOCH + 2 * SLOT
    assert (jobs[1].throttle, jobs[2].throttle) == (4, 2), "of the slot that is to come"
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []


@pytest.mark.parametrize("name", scheme_names())
@pytest.mark.parametrize("options", [SHARED, OPTIONS._replace(parameter_server_nodes=("n1",))])
def test_every_scheme_controls_both(name: str, options: Options) -> None:
    jobs = [workers(), store(), Job("3", 150.0, 5, hint=WORTH, array=True, submit_s=EPOCH + 200.0)]
    cluster = Obedient([8, 4], jobs)
    cycle = cycle_of(cluster, admission(name, options))
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []
    throttled = {
        decision.cause.detail["job"] for _, decision in cluster.done if isinstance(decision, SetThrottle)
    }
    assert "9" in throttled and "admit" in cluster.kinds("9")


@pytest.mark.parametrize("ratio", [1, 2, 3, 5])
def test_oasis_admits_one_large_job_to_an_empty_cluster(ratio: int) -> None:
    """Workers and parameter servers are both paid for, and the job alone makes the prices."""
    jobs = [workers(hint=f"ps=store:{ratio}", tasks=60), store()]
    cluster = Obedient([8], jobs)
    policy = admission("oasis")
    cycle_of(cluster, policy).run_once()
    seen: Any = policy.explain("7")
    assert seen["verdict"] == "admitted" and seen["payoff"] > 0.0, seen["reason"]
    assert 0 < jobs[0].throttle <= min(6, 2 * ratio)
    assert jobs[1].throttle == math.ceil(jobs[0].throttle / ratio)


def test_declined_workers_decline_their_servers() -> None:
    jobs = [workers(hint="ps=store", tasks=900), store()]
    cluster = Obedient([8], jobs)
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    cycle.run_once()
    assert cluster.kinds("7") == cluster.kinds("9") == ["decline"]
    assert "which is not admitted" in jobs[1].comment
    assert jobs[1].throttle == 0 and math.isnan(jobs[1].begin_s)


# ------------------------------------------------------------------------------------------------ who is a companion


def test_workers_wait_for_a_companion_and_not_for_ever() -> None:
    jobs = [workers(tasks=200), store(submit_s=EPOCH + 800.0)]
    cluster = Obedient([8], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    assert cycle.run_once() == EPOCH + 300.0, "it wakes when the patience ends"
    assert cluster.done == []
    cluster.run(EPOCH + 290.0)
    cycle.run_once()
    assert cluster.done == []
    cluster.run(EPOCH + 310.0)
    cycle.run_once()
    assert cluster.kinds("7") == ["decline"]
    assert "the array store of the same user, were not there within 300 s" in jobs[0].comment
    cluster.run(EPOCH + 810.0)
    cycle.run_once()
    assert cluster.kinds("7")[-2:] == ["admit", "set-throttle"], "they have come"
    assert "admit" in cluster.kinds("9")


@pytest.mark.parametrize(
    "companion",
    [
        store(user=1),
        store(application=1),
        Job("9", 90.0, application=STORE),
        store(begin_s=EPOCH + 5000.0),
        store(hint=f"{WORTH};ps=store"),
    ],
)
def test_what_is_no_companion(companion: Job) -> None:
    jobs = [workers(), companion]
    cluster = Obedient([8], jobs)
    cycle = cycle_of(cluster, admission(options=SHARED._replace(ps_patience_s=0.0)))
    cycle.run_once()
    assert "were not there" in jobs[0].comment
    assert companion.throttle == 0


def test_of_several_of_one_name_each_has_its_own_and_numbers_name_them_too() -> None:
    jobs = [
        workers(),
        store(),
        workers(name="17", submit_s=EPOCH - 5.0),
        store(name="19", submit_s=EPOCH - 5.0),
        workers(name="27", hint="ps=29"),
        store(name="29", application=1),
    ]
    policy = admission()
    cycle_of(Obedient([40], jobs), policy).run_once()
    assert [(policy.explain(key) or {})["companion"] for key in ("7", "17", "27")] == ["9", "19", "29"]


def test_a_companion_is_never_asked_for_itself_and_what_was_planned_for_it_is_free() -> None:
    jobs = [workers(submit_s=EPOCH + 60.0), store(limit_s=1000.0)]
    cluster = Obedient([8], jobs)
    policy = admission(rules=(Rule("constant(3)", names=("store",)),))
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert (policy.explain("9") or {})["beside"] is None, "nobody has named it yet"
    cluster.run(EPOCH + 90.0)
    cycle.run_once()
    assert (policy.explain("9") or {})["beside"] == "7"
    assert jobs[1].throttle == 2
    scheme: Any = policy.planning.scheme
    assert len(scheme.plans) == 1
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []


def test_a_rigid_job_has_no_companion_and_a_cluster_without_room_none_either() -> None:
    jobs = [Job("7", 90.0, hint=f"{WORTH};ps=store"), store()]
    cycle_of(Obedient([8], jobs), admission()).run_once()
    assert "are for arrays" in jobs[0].comment
    jobs = [workers(), store(cores=3)]
    cycle_of(Obedient([8], jobs), admission()).run_once()
    assert "not one of its parameter servers" in jobs[0].comment
    jobs = [workers(), store()]
    cycle_of(Obedient([8], jobs), admission(options=OPTIONS)).run_once()
    assert "no share of nodes set aside" in jobs[0].comment


def test_few_servers_bound_the_workers() -> None:
    for companion in (store(tasks=1), store(throttle=1)):
        jobs = [workers(), companion]
        cluster = Obedient([8], jobs)
        policy = admission()
        cycle_of(cluster, policy).run_once()
        assert (policy.explain("7") or {})["most_workers"] == 2
        assert jobs[0].throttle == 2


# ------------------------------------------------------------------------------------------------------- afterwards


def test_when_the_workers_have_ended_what_is_left_is_returned() -> None:
    jobs = [workers(tasks=4), store(tasks=40, throttle=30)]
    cluster = Obedient([8], jobs)
    policy = admission()
    cycle = cycle_of(cluster, policy)
    cycle.run_once()
    assert jobs[1].throttle == 2
    live(cluster, cycle, until_s=300.0)
    assert not any(math.isnan(task.end_s) for task in jobs[0].all)
    assert jobs[1].throttle == 30 and not jobs[1].begin_s > cluster.now_s
    assert policy.explain("9") is None
    done = len(cluster.done)
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == [] and len(cluster.done) == done


@pytest.mark.parametrize("paused", [False, True])
def test_cancelled_workers_give_their_deferred_servers_back(paused: bool) -> None:
    first = Job("1", 190.0, cores=8, limit_s=200.0)
    jobs = [first, workers(), store()]
    cluster = Obedient([8], jobs)
    first.all[0].start_s, first.all[0].node = EPOCH, 0
    cycle = cycle_of(cluster, admission())
    cycle.run_once()
    assert jobs[2].begin_s == EPOCH + 2 * SLOT and jobs[2].throttle == 2
    for task in jobs[1].all:
        task.start_s = task.end_s = cluster.now_s
    cycle.paused = paused
    cycle.run_once()
    assert math.isnan(jobs[2].begin_s) and jobs[2].throttle == 12, "as many as it has tasks: no bound"
    cycle.run_once()
    assert cluster.illegal == []


def test_a_restart_keeps_both() -> None:
    first = Job("1", 190.0, cores=8, limit_s=200.0)
    jobs = [first, workers(), store()]
    cluster = Obedient([8], jobs)
    first.all[0].start_s, first.all[0].node = EPOCH, 0
    policy = admission()
    cycle_of(cluster, policy).run_once()
    kept = json.loads(json.dumps(policy.state(), allow_nan=False))
    overview = policy.overview()["jobs"]
    for job in jobs:
        job.admitted = False
    before = len(cluster.done)
    again = admission()
    again.restore(kept)
    cycle = cycle_of(cluster, again)
    cycle.run_once()
    assert again.overview()["jobs"] == overview
    assert {decision.kind for _, decision in cluster.done[before:]} == {"admit"}
    live(cluster, cycle)
    assert cluster.over and cluster.illegal == []


@pytest.mark.parametrize(
    "options", [OPTIONS, OPTIONS._replace(server_share=0.5), SHARED._replace(whole=True)]
)
def test_a_restart_with_other_nodes_for_servers_loses_nobody(options: Options) -> None:
    jobs = [workers(), store()]
    cluster = Obedient([8, 8], jobs)
    policy = admission()
    cycle_of(cluster, policy).run_once()
    for job in jobs:
        job.admitted = False
    again = admission(options=options)
    again.restore(policy.state())
    live(cluster, cycle_of(cluster, again))
    assert cluster.over and cluster.illegal == []


def test_what_an_earlier_version_kept_is_read() -> None:
    cluster = Obedient([8], [workers(hint="workers=3")])
    policy = admission()
    cycle_of(cluster, policy).run_once()
    kept = policy.state()
    for name in ("companion", "beside", "workers_per_server", "server_cores", "lacks_servers"):
        del kept["seat 0"][name]
    again = admission()
    again.restore(kept)
    cluster.jobs[0].admitted = False
    cycle_of(cluster, again).run_once()
    assert (again.explain("7") or {})["verdict"] == "admitted"


def test_tasks_that_run_when_an_array_is_asked_for_are_part_of_its_plan() -> None:
    job = workers(hint="workers=8", limit_s=1000.0, tasks=8)
    cluster = Obedient([8], [job])
    for task in job.all[:6]:
        task.start_s, task.node = EPOCH, 0
    policy = admission(options=OPTIONS)
    cycle_of(cluster, policy).run_once()
    assert (policy.explain("7") or {})["schedule"][0] == [EPOCH, 8]  # type: ignore[index]

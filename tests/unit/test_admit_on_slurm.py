"""Admission over the Slurm port in memory: what Slurm is asked, and what it is not asked twice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from slurm_samples import Lab, SlurmInMemory, a_job, running

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.schemes import scheme_maker
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.place.native import Native
from asad.share.exclusive import Exclusive

SLOT = 600.0


def an_array(number: int, tasks: str, hint: str, **facts: Any) -> dict[str, Any]:
    return a_job(
        number,
        array_job_id=number,
        array_task_string=tasks,
        array_max_tasks=0,
        cpus=2,
        time_limit=10,
        comment=f"asad:{hint}",
        **facts,
    )


def cycle_of(lab: Lab, policy: Admission) -> Cycle:
    guard = guard_for(frozenset(), GuardSettings())
    return Cycle(lab.cluster, policy, AtOnce(), Native(), Exclusive(), guard)


def admission(lab: Lab, early: bool = True) -> Admission:
    options = Options(slot_s=SLOT, horizon=30, early=early)
    return Admission("oasis", scheme_maker("oasis", {}), lab.cluster.applications, options)


def test_arrays_and_rigid_jobs_are_planned_and_slurm_is_asked_once(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    free = sum(int(node["cpus"]) for node in slurm.nodes)
    slurm.add(
        an_array(20, "0-39", "utility=linear(50, 1h, 10h)"),
        an_array(30, "0-19", "utility=linear(100, 1h, 10h);workers=3"),
        a_job(40, cpus=2, comment="asad:utility=constant(5)"),
        a_job(41, cpus=2, comment="asad:utility=charm(5)"),
        a_job(42, cpus=2),
    )
    lab = Lab(tmp_path, slurm)
    policy = admission(lab)
    cycle = cycle_of(lab, policy)
    cycle.run_once()
    assert [outcome.reason for outcome in cycle.outcomes if not outcome.done] == []
    seen: Any = {job["job"]: job["verdict"] for job in policy.overview()["jobs"]}  # type: ignore
    assert seen == {"20": "admitted", "30": "admitted", "40": "admitted", "41": "unfit"}
    assert slurm.jobs[30]["array_max_tasks"] in (1, 2, 3)
    assert 2 * int(slurm.jobs[20]["array_max_tasks"]) <= free
    assert slurm.jobs[20]["admin_comment"].startswith("asad: admitted by oasis: ")
    assert "no kind of that name" in slurm.jobs[41]["admin_comment"]
    assert "admin_comment" not in slurm.jobs[42] or not slurm.jobs[42]["admin_comment"]
    asked_slurm = len(slurm.updates)
    assert asked_slurm >= 5
    for _ in range(3):
        lab.snapshot(10)
        cycle.run_once()
        assert cycle.outcomes == ()
    assert len(slurm.updates) == asked_slurm


def test_a_deferred_job_keeps_its_place_while_slurm_does_not_try_it(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    names = [node["name"] for node in slurm.nodes]
    cores = int(slurm.nodes[0]["cpus"])
    slurm.add(
        *(running(50 + i, {name: cores}) for i, name in enumerate(names)),
        a_job(40, cpus=2, comment="asad:utility=constant(5)"),
    )
    lab = Lab(tmp_path, slurm)
    policy = admission(lab, early=False)
    cycle = cycle_of(lab, policy)
    cycle.run_once()
    seen: Any = policy.explain("40")
    assert seen["verdict"] == "admitted"
    begin_s = float(slurm.jobs[40]["eligible_time"])
    assert begin_s == seen["deferred_s"] == seen["next_s"] > lab.now_s
    assert begin_s % SLOT == 0
    for _ in range(3):
        lab.snapshot(30)
        cycle.run_once()
        assert cycle.outcomes == () and policy.explain("40") is not None

    # the daemon is killed, and the next one goes on
    kept = policy.state()
    lab.cluster = lab.open()
    lab.cluster.recover()
    again = admission(lab, early=False)
    again.restore(kept)
    cycle = cycle_of(lab, again)
    cycle.run_once()
    assert {outcome.decision.kind for outcome in cycle.outcomes} <= {"admit"}
    assert float(slurm.jobs[40]["eligible_time"]) == begin_s

    # who stops releases, and who starts then promises the same again
    lab.cluster.release()
    again.on_withdrawn()
    assert not float(slurm.jobs[40]["eligible_time"]) > lab.now_s
    lab.snapshot(10)
    cycle.run_once()
    assert float(slurm.jobs[40]["eligible_time"]) == begin_s
    assert not math.isnan(float((again.explain("40") or {})["deferred_s"]))  # type: ignore[arg-type]


def test_gpus_and_licences_bound_a_plan_and_what_cannot_be_counted_says_so(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    slurm.licensed = {"abaqus": 2.0}
    for node in slurm.nodes[:2]:
        node["gres"] = "gpu:a100:1"
    worth = "utility=linear(50, 1h, 10h)"
    slurm.add(
        an_array(20, "0-39", worth, tres_per_node="gres:gpu:a100:1"),
        an_array(30, "0-39", worth, licenses="abaqus:1"),
        a_job(40, comment=f"asad:{worth}", tres_per_socket="gres:gpu:1"),
        a_job(41, comment=f"asad:{worth}", tres_per_node="gres:gpu:h100:1"),
    )
    lab = Lab(tmp_path, slurm)
    policy = admission(lab)
    cycle_of(lab, policy).run_once()
    seen: Any = {job["job"]: job["verdict"] for job in policy.overview()["jobs"]}  # type: ignore
    assert seen == {"20": "admitted", "30": "admitted", "40": "unfit", "41": "unfit"}
    story: Any = policy.explain("20")
    assert story["tres"] == {"gres/gpu": 1.0} and story["most_workers"] == 2
    assert slurm.jobs[30]["array_max_tasks"] in (1, 2)
    assert "gres/gpu by socket" in slurm.jobs[40]["admin_comment"]
    assert "gres/gpu:h100" in slurm.jobs[41]["admin_comment"]

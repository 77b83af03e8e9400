"""The scheduler `slurm`: partitions, gres, constraints, limits, priorities, reservations and backfill by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from asad.contention import load_contention
from asad.model import Machine
from asad.replay import engine
from asad.replay.machine import from_flags
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

HOUR = 3600.0


class Job(NamedTuple):
    """A job, and the rules for it."""

    submit_s: float
    run_s: float
    cores: int
    limit_s: float = 0.0
    """0: as long as it runs."""
    reach: int = 0
    wide: int = 1
    gpus: int = 0
    group: int = -1
    """Whose cores are counted together."""
    base: float = 0.0
    leaf: int = -1
    memory: float = 0.0
    """Bytes a core."""


def workload(jobs: list[Job]) -> Workload:
    count = len(jobs)
    column = {name: np.array([getattr(job, name) for job in jobs]) for name in Job._fields}
    limit = np.where(column["limit_s"] > 0, column["limit_s"], column["run_s"])
    return Workload(
        job_id=np.arange(count),
        submit_s=column["submit_s"].astype(float),
        work_s=column["run_s"].astype(float),
        planned_s=limit.astype(float),
        limit_s=limit.astype(float),
        cores=column["cores"].astype(np.int32),
        nodes=column["wide"].astype(np.int32),
        memory_bytes_per_core=column["memory"].astype(float),
        demand=np.ones(count),
        depends_on=np.full(count, -1, np.int32),
        think_s=np.zeros(count),
        application=np.zeros(count, np.int32),
        user=np.zeros(count, np.int32),
    )


def rules(jobs: list[Job], nodes: int, **given: Any) -> engine.Rules:
    """Reach k are the nodes of `reaches[k]`; each node has `gpus`; `most` cores a group; `terms` by name."""
    reaches = given.get("reaches", [range(nodes)])
    rule = np.zeros(len(jobs), engine.RULE)
    for name, column in (("reach", "reach"), ("wide", "wide"), ("base", "base"), ("leaf", "leaf")):
        rule[name] = [getattr(job, column) for job in jobs]
    rule["gres"] = [0 if job.gpus else -1 for job in jobs]
    rule["gres_each"] = [-(-job.gpus // max(job.wide, 1)) for job in jobs]
    rule["limits"] = [job.group for job in jobs]
    shape = [(job.reach, job.wide, job.cores, job.memory, job.gpus) for job in jobs]
    rule["shape"] = [sorted(set(shape)).index(one) for one in shape]
    terms = np.zeros(1, engine.TERMS)
    terms["depth"], terms["window"], terms["max_age"], terms["half_life"], terms["period"] = (
        100,
        1e9,
        1,
        np.inf,
        60,
    )
    terms["shared"] = -np.inf
    for name, value in given.get("terms", {}).items():
        terms[name] = value
    groups = 1 + max(job.group for job in jobs)
    closure = np.array(given.get("closed", []), engine.CLOSURE)
    gres = np.full((nodes, 1), given.get("gpus", 0), np.int32)
    return engine.Rules(
        rule=rule,
        reach_at=np.cumsum([0, *map(len, reaches)]).astype(np.int64),
        reach_node=np.concatenate([np.array(one, np.int32) for one in reaches]),
        terms=terms,
        node_gres=gres,
        need=np.array([[float(job.cores)] for job in jobs]),
        groups=np.arange(groups, dtype=np.int32).reshape(-1, 1),
        ceiling=np.full((groups, 1, 1), float(given.get("most", np.inf))),
        closure=closure,
        wake=np.unique(closure["end"]),
        account=given.get("account", np.zeros(0, engine.ACCOUNT)),
        used=np.zeros((groups, 1)),
        gres=gres.copy(),
        room=np.zeros(len(set(shape)), np.int8),
    )


def starts(jobs: list[Job], machine: Machine, use_memory: bool = False, **given: Any) -> list[float]:
    """When each starts."""
    cluster = RecordedCluster(
        workload(jobs),
        machine,
        load_contention(),
        scheduler="slurm",
        lending=False,
        use_memory=use_memory,
        rules=rules(jobs, len(machine.cores), **given),
    )
    cluster.run()
    assert cluster.ended == len(jobs)
    started: list[float] = cluster.jobs["start"].tolist()
    return started


def test_jobs_that_share_the_gpus_of_a_node_run_one_after_the_other() -> None:
    jobs = [Job(0, HOUR, 4, gpus=4), Job(60, HOUR, 4, gpus=4), Job(120, HOUR, 4, gpus=4), Job(180, 60, 4)]
    assert starts(jobs, from_flags(1, 32), gpus=4) == [0, HOUR, 2 * HOUR, 180]


def test_a_full_partition_blocks_no_other() -> None:
    jobs = [Job(0, HOUR, 4), Job(1, HOUR, 4), Job(2, 60, 4, reach=1), Job(3, 60, 4, reach=1)]
    assert starts(jobs, from_flags(2, 4), reaches=[[0], [1]]) == [0, HOUR, 2, 62]


def test_nodes_are_taken_in_the_order_of_their_reach() -> None:
    jobs = [Job(0, HOUR, 4, reach=0), Job(1, 60, 4, reach=1)]
    assert starts(jobs, from_flags(2, 4), reaches=[[1, 0], [0]]) == [0, 1]
    assert starts(jobs, from_flags(2, 4), reaches=[[0, 1], [0]]) == [0, HOUR]


def test_backfill_keeps_clear_of_what_is_reserved() -> None:
    jobs = [
        Job(0, HOUR, 3),
        Job(1, 600, 4),  # waits for the first to end
        Job(2, 2 * HOUR, 1),  # would be in its way
        Job(3, 1800, 1),  # would not
    ]
    assert starts(jobs, from_flags(1, 4)) == [0, HOUR, HOUR + 600, 3]


def test_a_job_over_several_nodes_needs_them_at_one_time() -> None:
    jobs = [Job(0, HOUR, 2), Job(1, 2 * HOUR, 2), Job(2, 600, 4, wide=2), Job(3, 600, 2)]
    machine = from_flags(2, 2)
    assert starts(jobs, machine) == [0, 1, 1 + 2 * HOUR, HOUR]


def test_what_fits_in_all_but_on_no_node_waits() -> None:
    jobs = [Job(0, HOUR, 1, reach=1), Job(0, HOUR, 1, reach=2), Job(1, 60, 2)]
    assert starts(jobs, from_flags(2, 2), reaches=[[0, 1], [0], [1]]) == [0, 0, HOUR]
    loose = [*jobs[:2], jobs[2]._replace(wide=0)]
    assert starts(loose, from_flags(2, 2), reaches=[[0, 1], [0], [1]]) == [0, 0, 1]


def test_memory_of_a_node_counts() -> None:
    machine = replace(from_flags(1, 4, 8e9), memory_bytes=np.array([8e9]))
    jobs = [Job(0, HOUR, 1, memory=6e9), Job(1, 60, 1, memory=4e9), Job(2, 60, 1, memory=1e9)]
    assert starts(jobs, machine, use_memory=True) == [0, HOUR, 2]


def test_who_is_at_his_limit_waits_and_reserves_nothing() -> None:
    jobs = [Job(0, HOUR, 2, group=0), Job(1, HOUR, 2, group=0), Job(2, 2 * HOUR, 2, group=1)]
    assert starts(jobs, from_flags(1, 4), most=2) == [0, HOUR, 2]


def test_who_wants_more_than_its_limit_starts_alone() -> None:
    jobs = [Job(0, HOUR, 4, group=0), Job(1, 60, 1, group=0)]
    assert starts(jobs, from_flags(1, 8), most=2) == [0, HOUR]


def test_priority_comes_before_the_order_of_arrival() -> None:
    jobs = [Job(0, HOUR, 4), Job(1, HOUR, 4), Job(2, HOUR, 4, base=1.0)]
    assert starts(jobs, from_flags(1, 4)) == [0, 2 * HOUR, HOUR]


def test_age_adds_to_priority() -> None:
    jobs = [Job(0, HOUR, 4), Job(1, HOUR, 4), Job(1801, HOUR, 4, base=1.0)]
    aged = {"age": 10.0, "max_age": HOUR}
    assert starts(jobs, from_flags(1, 4), terms=aged) == [0, HOUR, 2 * HOUR]
    assert starts(jobs, from_flags(1, 4)) == [0, 2 * HOUR, HOUR]


def test_a_closed_node_takes_nobody_who_would_run_into_it() -> None:
    jobs = [Job(0, 600, 1), Job(1, 600, 1), Job(1100, 600, 1)]
    assert starts(jobs, from_flags(1, 4), closed=[(1000.0, 5000.0, 0, True)]) == [0, 1, 5000]


def test_of_a_node_that_is_gone_nobody_knows_beforehand() -> None:
    jobs = [Job(0, 600, 1), Job(1100, 600, 1), Job(900, 600, 1)]
    jobs = sorted(jobs)
    assert starts(jobs, from_flags(1, 4), closed=[(1000.0, 5000.0, 0, False)]) == [0, 900, 5000]


def test_only_so_many_jobs_are_looked_at() -> None:
    jobs = [Job(0, HOUR, 4), Job(1, HOUR, 4), Job(2, 2 * HOUR, 4), Job(3, 60, 1)]
    machine = from_flags(1, 5)
    assert starts(jobs, machine) == [0, HOUR, 2 * HOUR, 3]
    assert starts(jobs, machine, terms={"depth": 2}) == [0, HOUR, 2 * HOUR, 2 * HOUR]


def tree(parents: list[int], share: list[float]) -> np.ndarray[Any, Any]:
    made = np.zeros(len(parents), engine.ACCOUNT)
    made["parent"], made["share"] = parents, share
    made["child"] = made["sibling"] = -1
    made["user"] = [row not in parents for row in range(len(parents))]
    for row in range(len(parents) - 1, 0, -1):
        made["sibling"][row] = made["child"][parents[row]]
        made["child"][parents[row]] = row
    return made


@pytest.mark.parametrize("fair_tree", [True, False])
def test_who_has_used_less_than_his_share_goes_first(fair_tree: bool) -> None:
    jobs = [
        Job(0, HOUR, 4, leaf=1),
        Job(1, HOUR, 4, leaf=1),
        Job(2, HOUR, 4, leaf=2),
        Job(3, HOUR, 4, leaf=1),
        Job(4, HOUR, 4, leaf=2),
    ]
    given = {"account": tree([-1, 0, 0], [1, 1, 1]), "terms": {"fair_share": 1000.0, "tree": fair_tree}}
    # when the third has run, both have used as much: then it is who came first
    assert starts(jobs, from_flags(1, 4), **given) == [0, 2 * HOUR, HOUR, 4 * HOUR, 3 * HOUR]


def test_shares_that_differ() -> None:
    jobs = [
        Job(0, HOUR, 4, leaf=1),
        Job(1, HOUR, 4, leaf=2),
        *(Job(2, HOUR, 4, leaf=1 + k % 2) for k in range(6)),
    ]
    given = {"account": tree([-1, 0, 0], [1, 1, 3]), "terms": {"fair_share": 1.0, "tree": True}}
    order = np.argsort(starts(jobs, from_flags(1, 4), **given), kind="stable")
    of_second = [jobs[row].leaf == 2 for row in order]
    # who has three shares of four has three of the first four turns after his first
    assert sum(of_second[1:5]) == 3

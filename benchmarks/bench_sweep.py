"""A sweep over two nodes of a real Slurm beside one over two processes: tasks per second, in turns in one run."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
from stated import beside

from asad.cli.sweep_tasks import SweepFile, Task, made, replay_task, warm_up_task
from asad.sweep.coordinator import Workers, carry_out
from lab.slurm import RealSlurm, why_not

SAMPLES = Path(__file__).resolve().parent.parent / "profiles" / "samples"
TASKS, ROUNDS = 8, 3


def tasks(count: int) -> tuple[Task, ...]:
    """Replays of the generated sample under `static`, of some 0.85 s of CPU each."""
    log = {"log": "generated-cluster.sacct.gz", "nodes": 16, "cores": 32, "memory": "128G"}
    file = SweepFile(logs=[log], policies=("static",), seeds=tuple(range(count)), name="benchmark")
    return made(file, SAMPLES, "benchmark").tasks


def as_in_a_job(core: int) -> None:
    """In a process: one core and a session of its own, as a job has; Linux divides cores between sessions first."""
    os.setsid()
    os.sched_setaffinity(0, {core})
    time.sleep(1)  # the other one is for the other process


def spent_s(workers: Workers, wanted: tuple[Task, ...]) -> tuple[float, float]:
    """Seconds from the first task's beginning to the last one's end, and in which part of them two workers replayed."""
    outcomes: list[Any] = []
    begun = time.monotonic()
    carry_out(wanted, workers, replay_task, lambda task, outcome: outcomes.append(outcome))
    took_s = time.monotonic() - begun
    assert not any(one.failure for one in outcomes), outcomes
    return took_s, sum(one.ended_at - one.started_at for one in outcomes) / (2 * took_s)


@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_two_nodes_beside_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smallest: bool
) -> None:
    pytest.importorskip("dask_jobqueue", reason="no dask-jobqueue: pip install '.[cluster]'")
    obstacle = why_not(accounting=False)
    if obstacle:
        pytest.skip(obstacle)
    from asad.sweep.dask_workers import on_slurm
    from asad.sweep.local_processes import Processes

    count, rounds = (2, 1) if smallest else (TASKS, ROUNDS)
    wanted = tasks(count)
    with RealSlurm(accounting=False) as slurm:
        for name in ("PATH", "SLURM_CONF", "LC_ALL"):
            monkeypatch.setenv(name, slurm.env[name])
        begun = time.monotonic()
        with on_slurm(2, 1, ["--mem=1500M"], tmp_path, None) as nodes, Processes(2) as processes:
            while nodes.at_once() < 2:
                time.sleep(0.2)
            started_s = time.monotonic() - begun
            carry_out(sorted(os.sched_getaffinity(0))[:2], processes, as_in_a_job, lambda core, outcome: None)
            for workers in (processes, nodes):  # each of both has imported and compiled before the clock runs
                carry_out(wanted[:2] * 2, workers, warm_up_task, lambda task, outcome: None)
            ratios = []
            for number in range(rounds):
                order = (processes, nodes) if number % 2 == 0 else (nodes, processes)
                found = {id(workers): spent_s(workers, wanted) for workers in order}
                (plain_s, plain_busy), (nodes_s, nodes_busy) = found[id(processes)], found[id(nodes)]
                ratios.append(plain_s / nodes_s)
                print(
                    f"\n{count} tasks: processes {plain_s:.2f} s, {plain_busy:.1%} of it replaying; "
                    f"nodes {nodes_s:.2f} s, {nodes_busy:.1%} of it"
                )
    median = statistics.median(ratios)
    print(beside("throughput of two nodes over that of two processes, median", median, 0.8, "times"))
    print(f"  from {min(ratios):.2f} to {max(ratios):.2f}; the nodes were there after {started_s:.1f} s")

"""A cycle costs what has changed: ten thousand jobs of 3 kB on a thousand nodes, in CPU time of this process.

The limits are several times what was measured (docs/reference/slurm-plugin.md), for machines that are slow or busy.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from asad_slurm.command import Look
from asad_slurm.records import JobReader
from slurm_samples import Lab, SlurmInMemory, a_job, running, sample

JOBS, NODES = 10_000, 1_000


@pytest.fixture(scope="module")
def slurm() -> SlurmInMemory:
    slurm = SlurmInMemory(nodes=NODES)
    padding = {f"field_of_no_interest_{i}": "x" * 40 for i in range(30)}
    slurm.add(*(running(i, {f"n{i}": 2}) | padding for i in range(1, NODES + 1)))
    slurm.add(*(a_job(i, name=f"app{i % 97}") | padding for i in range(NODES + 1, JOBS + 1)))
    return slurm


def test_a_cycle_over_ten_thousand_jobs(tmp_path: Path, slurm: SlurmInMemory) -> None:
    lab = Lab(tmp_path, slurm)
    for number in range(1, NODES + 1):
        lab.actors.tell(f"n{number}", sample(number))
    reader, answer = JobReader(), json.dumps({"jobs": list(slurm.jobs.values())}, indent=2).encode()
    assert len(answer) > 25e6
    nodes = slurm.look().nodes

    def cycle() -> float:
        slurm.look = lambda: Look(reader.read(answer), nodes)  # type: ignore[method-assign]
        begun = time.process_time()
        snapshot = lab.snapshot(30)
        lab.cluster.finished(0.0)
        spent = time.process_time() - begun
        assert (
            len(snapshot.running) == NODES and snapshot.waiting == JOBS - NODES and len(snapshot.queue) == 100
        )
        return spent

    assert cycle() < 1.5 and reader.parsed == JOBS  # 0.2 measured
    assert cycle() < 0.25 and reader.parsed == 0  # 0.035 measured
    answer = answer.replace(b'"priority": 99', b'"priority": 89')
    assert cycle() < 1.5 and reader.parsed > 5000


def test_a_cycle_over_ten_thousand_arrays_that_all_tell_something(tmp_path: Path) -> None:
    slurm = SlurmInMemory(nodes=NODES)
    told = {"comment": "asad:utility=sigmoid(10, 0.1/m, 2h)"}
    slurm.add(
        *(
            running(i, {f"n{i}": 2}, array_job_id=JOBS + i, array_task_id=0) | told
            for i in range(1, NODES + 1)
        )
    )
    slurm.add(
        *(
            a_job(i, array_job_id=i, array_task_string="1-500%20", array_max_tasks=20) | told
            for i in range(JOBS + 1, 2 * JOBS + 1)
        )
    )
    lab = Lab(tmp_path, slurm)
    look = slurm.look()
    slurm.look = lambda: look  # type: ignore[method-assign]

    def cycle() -> float:
        begun = time.process_time()
        snapshot = lab.snapshot(30)
        lab.cluster.finished(0.0)
        spent = time.process_time() - begun
        assert len(snapshot.arrays) == JOBS and len(snapshot.hints) == JOBS + NODES
        assert snapshot.waiting == 500 * JOBS and int(snapshot.arrays.running.sum()) == NODES
        return spent

    cycle()
    assert cycle() < 0.25  # 0.02 measured

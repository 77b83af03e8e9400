"""A Slurm of many jobs, for the test of what a cycle reads and for the benchmark of what that costs."""

from __future__ import annotations

import json
from typing import Any

from asad_slurm.answers import JobReader
from asad_slurm.command import Look
from slurm_samples import Lab, SlurmInMemory, a_job, running

from asad.model import Snapshot


def machine(jobs: int, nodes: int) -> SlurmInMemory:
    """A job of 3 kB on every node, and the rest of them waiting."""
    slurm = SlurmInMemory(nodes=nodes)
    padding = {f"field_of_no_interest_{i}": "x" * 40 for i in range(30)}
    slurm.add(*(running(i, {f"n{i}": 2}) | padding for i in range(1, nodes + 1)))
    slurm.add(*(a_job(i, name=f"app{i % 97}") | padding for i in range(nodes + 1, jobs + 1)))
    return slurm


def arrays(jobs: int, nodes: int) -> SlurmInMemory:
    """Waiting arrays that all give a hint, and a running task on every node."""
    slurm = SlurmInMemory(nodes=nodes)
    hint = {"comment": "asad:utility=sigmoid(10, 0.1/m, 2h)"}
    slurm.add(
        *(
            running(i, {f"n{i}": 2}, array_job_id=jobs + i, array_task_id=0) | hint
            for i in range(1, nodes + 1)
        )
    )
    slurm.add(
        *(
            a_job(i, array_job_id=i, array_task_string="1-500%20", array_max_tasks=20) | hint
            for i in range(jobs + 1, 2 * jobs + 1)
        )
    )
    return slurm


def answer_of(slurm: SlurmInMemory) -> bytes:
    """What squeue prints of it."""
    return json.dumps({"jobs": list(slurm.jobs.values())}, indent=2).encode()


def cycle(lab: Lab, slurm: SlurmInMemory, reader: JobReader, answer: bytes, nodes: Any) -> Snapshot:
    """One look at such an answer."""
    slurm.look = lambda: Look(reader.read(answer), nodes)  # type: ignore[method-assign]
    snapshot = lab.snapshot(30)
    lab.cluster.finished(0.0)
    return snapshot

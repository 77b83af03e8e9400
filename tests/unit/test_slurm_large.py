"""What is read of Slurm in a cycle is what has changed. What that costs is measured in benchmarks/bench_slurm.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from asad_slurm.answers import JobReader
from large_slurm import answer_of, arrays, cycle, machine
from slurm_samples import Lab, SlurmInMemory, sample

JOBS, NODES = 1_000, 100


@pytest.fixture(scope="module")
def slurm() -> SlurmInMemory:
    return machine(JOBS, NODES)


def test_a_cycle_parses_the_jobs_that_have_changed(tmp_path: Path, slurm: SlurmInMemory) -> None:
    lab = Lab(tmp_path, slurm)
    for number in range(1, NODES + 1):
        lab.actors.report(f"n{number}", sample(number))
    reader, answer, nodes = JobReader(), answer_of(slurm), slurm.look().nodes

    def parsed(text: bytes) -> int:
        snapshot = cycle(lab, slurm, reader, text, nodes)
        assert len(snapshot.running) == NODES and snapshot.waiting == JOBS - NODES
        assert len(snapshot.queue) == 100
        return reader.parsed

    assert parsed(answer) == JOBS
    assert parsed(answer) == 0
    assert JOBS / 2 < parsed(answer.replace(b'"priority": 99', b'"priority": 89')) <= JOBS


def test_a_cycle_over_arrays_that_all_give_a_hint(tmp_path: Path) -> None:
    slurm = arrays(JOBS, NODES)
    lab, look = Lab(tmp_path, slurm), slurm.look()
    slurm.look = lambda: look  # type: ignore[method-assign]
    for _ in range(2):
        snapshot = lab.snapshot(30)
        lab.cluster.finished(0.0)
        assert len(snapshot.arrays) == JOBS and len(snapshot.hints) == JOBS + NODES
        assert snapshot.waiting == 500 * JOBS and int(snapshot.arrays.running.sum()) == NODES

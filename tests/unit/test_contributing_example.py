"""The policy that CONTRIBUTING.md shows is taken from its text and replayed, so that it cannot go stale."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.admit.everyone import Everyone
from asad.contention import load_contention
from asad.cycle import Cycle
from asad.decisions import CoAllocate, Outcome
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import Machine, Snapshot
from asad.place.native import Native
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
JOBS, NODES, NODE_CORES = 150, 3, 8


@pytest.fixture(scope="module")
def policy_class() -> Any:
    """The class of the one Python block in CONTRIBUTING.md."""
    blocks = re.findall(r"^```python\n(.*?)^```$", CONTRIBUTING.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 1
    namespace: dict[str, Any] = {"__name__": "one_tenth"}
    exec(compile(blocks[0], str(CONTRIBUTING), "exec"), namespace)
    return namespace["OneTenth"]


def workload() -> Workload:
    """More jobs than three nodes can run at once, each of which uses half of its cores."""
    rng = np.random.default_rng(3)
    work = rng.uniform(300.0, 3000.0, JOBS).round()
    return Workload(
        job_id=np.arange(JOBS),
        submit_s=np.sort(rng.uniform(0.0, 14_400.0, JOBS)).round(),
        work_s=work,
        planned_s=work * 4,
        limit_s=work * 4,
        cores=rng.choice(np.array([2, 4, 8, 8, 16], np.int32), JOBS),
        nodes=np.zeros(JOBS, np.int32),
        memory_bytes_per_core=np.zeros(JOBS),
        demand=np.full(JOBS, 0.5),
        depends_on=np.full(JOBS, -1, np.int32),
        think_s=np.zeros(JOBS),
        application=np.zeros(JOBS, np.int32),
        user=np.zeros(JOBS, np.int32),
    )


def test_the_example_lends_and_every_job_still_runs(policy_class: Any) -> None:
    machine = Machine(
        node_names=tuple(f"n{number}" for number in range(NODES)),
        cores=np.full(NODES, NODE_CORES, np.int32),
        memory_bytes=np.full(NODES, np.nan),
        origin="the test",
    )
    cluster = RecordedCluster(workload(), machine, load_contention())
    kept: list[tuple[Snapshot, Sequence[Outcome]]] = []
    policy = policy_class()
    cycle = Cycle(
        cluster,
        Everyone(),
        AtOnce(),
        Native(),
        policy,
        guard_for(policy.properties),
        lambda number, snapshot, outcomes: kept.append((snapshot, list(outcomes))),
    )
    wake_s = np.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()

    outcomes = [outcome for _, made in kept for outcome in made]
    assert cluster.ended == JOBS
    assert cycle.decisions > 5
    assert all(outcome.done for outcome in outcomes), "the guard vetoed it, or the cluster refused it"
    assert all(isinstance(outcome.decision, CoAllocate) for outcome in outcomes)
    assert {outcome.decision.cause.policy for outcome in outcomes} == {"one-tenth"}


def test_what_the_example_text_says_is_there() -> None:
    """Files and names that CONTRIBUTING.md points to."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    root = CONTRIBUTING.parent
    for path in re.findall(r"`((?:asad|tests|docs)/[\w/.-]+\.(?:py|md))`", text):
        if path != "asad/share/one_tenth.py":  # the file that the reader writes
            assert (root / path).is_file(), path

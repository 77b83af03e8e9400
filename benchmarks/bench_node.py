"""What the node actor takes of one core: 100 jobs on the kernel's own cgroups, at its usual intervals.

Ten of the jobs are guests beside a host. Measured are CPU seconds of each duty, on cgroup v1 as root; in cgroup v2 a
job has fewer files to read.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stated import beside

PLACE = Path(__file__).resolve().parents[1] / "tests" / "slurm" / "test_node_cgroups.py"
SPEC = importlib.util.spec_from_file_location("node_by_hand", PLACE)
assert SPEC is not None and SPEC.loader is not None
by_hand = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(by_hand)

STATED = 0.005
DUTIES = {"scan": 1.0, "watch_pressure": 2.0, "sample": 0.2}
"""How often a second each duty is done."""


@pytest.fixture
def jobs(smallest: bool) -> int:
    """How many run on the node."""
    return 10 if smallest else 100


@pytest.fixture
def node(tmp_path: Path, jobs: int) -> Iterator[Any]:
    """A node of jobs that sleep."""
    if os.geteuid() != 0 or not (by_hand.CGROUP / "cpu").is_dir():
        pytest.skip("needs root and cgroup v1")
    node = by_hand.Node(tmp_path)
    for number in range(1, jobs + 1):
        node.job(str(number), "sleep 3600; :", partition="guest" if number % 10 == 0 else "batch")
    yield node
    node.close()


def test_the_actor(node: Any, jobs: int, smallest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(node.actor()) as actor:
        measure(actor, jobs, (1, 2) if smallest else (5, 10), monkeypatch)


def measure(actor: Any, jobs: int, effort: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Print what its duties take; `effort` is how many rounds of how many times each."""
    rounds_of_each, times = effort
    actor.link = by_hand.Wire()

    # this machine has too few cores to give every job its own; of ten jobs the last is beside the first
    def cores() -> dict[str, frozenset[int]]:
        return {name: frozenset({int(name) - 9 * (int(name) % 10 == 0)}) for name in actor.jobs}

    monkeypatch.setattr(actor.profile, "cores", cores)
    actor.start()
    assert (len(actor.jobs), len(actor.guests)) == (jobs, jobs // 10)
    actor.sample(time.monotonic())
    cost = {}
    for name, a_second in DUTIES.items():
        duty, rounds = getattr(actor, name), []
        for _ in range(rounds_of_each):  # the best of them: what others do to the caches is not ours
            before = time.process_time()
            for _ in range(times):
                duty(time.monotonic())
            rounds.append((time.process_time() - before) / times * a_second)
        cost[name] = min(rounds)
    parts = ", ".join(f"{name} {share:.3%}" for name, share in cost.items())
    print(f"\n{jobs} jobs: {sum(cost.values()):.3%} of a core ({parts})")
    print(beside(f"{jobs} jobs", 100 * sum(cost.values()), 100 * STATED, "% of a core"))
    assert not math.isnan(actor.samples["1"].cpu_time_s)

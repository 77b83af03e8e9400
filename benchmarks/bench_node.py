"""What the node actor takes of one core: 100 jobs on the kernel's own cgroups, at its usual intervals.

Ten of the jobs are guests beside a host. Measured are CPU seconds of each duty, on cgroup v1 as root; in cgroup v2 a
job has fewer files to read.
"""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PLACE = Path(__file__).resolve().parents[1] / "tests" / "slurm" / "test_node_cgroups.py"
SPEC = importlib.util.spec_from_file_location("node_by_hand", PLACE)
assert SPEC is not None and SPEC.loader is not None
by_hand = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(by_hand)

JOBS, MOST = 100, 0.005
DUTIES = {"scan": 1.0, "watch_pressure": 2.0, "sample": 0.2}
"""How often a second each duty is done."""
ROUNDS, TIMES = 5, 10


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Any]:
    """A node of a hundred jobs that sleep."""
    if os.geteuid() != 0 or not (by_hand.CGROUP / "cpu").is_dir():
        pytest.skip("needs root and cgroup v1")
    node = by_hand.Node(tmp_path)
    for number in range(1, JOBS + 1):
        node.job(str(number), "sleep 600; :", partition="guest" if number % 10 == 0 else "batch")
    yield node
    node.close()


def test_the_actor_with_a_hundred_jobs(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = node.actor()
    actor.link = by_hand.Wire()

    # this machine has too few cores to give every job its own; of ten jobs the last is beside the first
    def cores() -> dict[str, frozenset[int]]:
        return {name: frozenset({int(name) - 9 * (int(name) % 10 == 0)}) for name in actor.jobs}

    monkeypatch.setattr(actor.profile, "cores", cores)
    actor.start()
    assert (len(actor.jobs), len(actor.guests)) == (JOBS, JOBS // 10)
    actor.sample(time.monotonic())
    cost = {}
    for name, a_second in DUTIES.items():
        duty, rounds = getattr(actor, name), []
        for _ in range(ROUNDS):  # the best of them: what others do to the caches is not ours
            before = time.process_time()
            for _ in range(TIMES):
                duty(time.monotonic())
            rounds.append((time.process_time() - before) / TIMES * a_second)
        cost[name] = min(rounds)
    told = ", ".join(f"{name} {share:.3%}" for name, share in cost.items())
    print(f"\n{JOBS} jobs: {sum(cost.values()):.3%} of a core ({told})")
    assert not math.isnan(actor.samples["1"].cpu_time_s)
    assert sum(cost.values()) < MOST
    actor.close()

"""How many cores are inferred of machines whose jobs held uneven parts of their nodes, over how many they have.

What even parts would need stands beside it. Small logs are solved by a linear program, larger ones in passes; where
these end early (the last log) a few more cores are found.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from full_machine import full_machine

from asad.replay import held_parts, inferred_machine
from asad.replay.readers import Recorded, read_log

MACHINES = (
    ("20 nodes of 16 cores", [16] * 20, 400),
    ("100 nodes of 64", [64] * 100, 5_000),
    ("50 nodes of 32 and 50 of 64", [32, 64] * 50, 5_000),
    ("200 nodes of 64", [64] * 200, 50_000),
)


@pytest.mark.parametrize(("what", "node_cores", "jobs"), MACHINES)
def test_cores_of_inferred_machines(
    what: str,
    node_cores: list[int],
    jobs: int,
    smallest: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node_cores, jobs = (node_cores[:20], 200) if smallest else (node_cores, jobs)
    path = tmp_path / "log"
    with path.open("w") as out:
        out.writelines(full_machine(node_cores, jobs, seed=5))
    recorded, there = read_log(path), sum(node_cores)
    inferred_machine.infer(recorded)  # compiled
    begin = time.perf_counter()
    found = inferred_machine.infer(recorded).total_cores
    took_s = time.perf_counter() - begin
    monkeypatch.setattr(held_parts, "MOST_WORK", 1)
    monkeypatch.setattr(held_parts, "MOST_TERMS", 0)
    even = inferred_machine.infer(recorded).total_cores
    print(
        f"\n{what}, {jobs:,} jobs: {found / there:.3f} of its cores, by even parts {even / there:.3f}; {took_s:.2f} s"
    )
    few = _with_least_passes(recorded, monkeypatch)
    print(f"in {held_parts.LEAST_PASSES} passes: {few / there:.3f}")
    assert found <= even


def _with_least_passes(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> int:
    """What is found where a log is so large that no more passes are made."""
    monkeypatch.setattr(held_parts, "LEVEL_PASSES", held_parts.LEAST_PASSES // 2)
    monkeypatch.setattr(held_parts, "SLACK_PASSES", held_parts.LEAST_PASSES // 2)
    monkeypatch.setattr(held_parts, "MOST_WORK", 1_000_000_000)
    return inferred_machine.infer(recorded).total_cores

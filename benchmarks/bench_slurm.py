"""What a look at Slurm costs: jobs of 3 kB on many nodes, in CPU time of this process.

A cycle costs what has changed: the ratio of one where nothing has to the first is what counts.
"""

from __future__ import annotations

import time
from pathlib import Path

from asad_slurm.answers import JobReader
from large_slurm import answer_of, arrays, cycle, machine
from slurm_samples import Lab
from stated import beside

SIZE, SMALLEST = (10_000, 1_000), (200, 20)
"""Jobs and nodes."""


def test_a_cycle_by_what_has_changed(tmp_path: Path, smallest: bool) -> None:
    jobs, nodes = SMALLEST if smallest else SIZE
    slurm = machine(jobs, nodes)
    lab, reader, answer = Lab(tmp_path, slurm), JobReader(), answer_of(slurm)
    found = slurm.look().nodes

    def spent_s(text: bytes) -> float:
        begun = time.process_time()
        cycle(lab, slurm, reader, text, found)
        return time.process_time() - begun

    first, unchanged = spent_s(answer), min(spent_s(answer) for _ in range(3))
    changed = spent_s(answer.replace(b'"priority": 99', b'"priority": 89'))
    print(f"\n{jobs} jobs of {len(answer) / jobs:.0f} bytes, {nodes} nodes, CPU seconds")
    print(beside("  the first look", first, 0.24, "s"))
    print(beside("  nothing has changed", unchanged, 0.035, "s"))
    print(beside("  most jobs have changed", changed, 0.19, "s"))
    print(beside("  nothing has changed, over the first look", unchanged / first, 0.035 / 0.24, "times"))


def test_a_cycle_over_arrays_with_hints(tmp_path: Path, smallest: bool) -> None:
    jobs, nodes = SMALLEST if smallest else SIZE
    slurm = arrays(jobs, nodes)
    lab, look = Lab(tmp_path, slurm), slurm.look()
    slurm.look = lambda: look  # type: ignore[method-assign]

    def spent_s() -> float:
        begun = time.process_time()
        lab.snapshot(30)
        lab.cluster.finished(0.0)
        return time.process_time() - begun

    first, unchanged = spent_s(), min(spent_s() for _ in range(3))
    print(f"\n{jobs} arrays with hints, {nodes} tasks that run: the first look {first:.3f} s of CPU")
    print(beside("  nothing has changed", unchanged, 0.02, "s"))

"""`lab.hosts` on a real Slurm: a host over two nodes, guests of asad's beside it, and all of them gone afterwards."""

from __future__ import annotations

from rich.console import Console

from lab.hosts import CASES, Bench
from lab.slurm import RealSlurm


def test_a_host_over_two_nodes_is_measured_alone_and_beside_guests(slurm: RealSlurm) -> None:
    result = Bench(slurm, Console(stderr=True)).run(CASES[0], pairs=1, segment_s=2.0)
    (pair,) = result.pairs
    assert min(pair.before_ms, pair.beside_ms, pair.after_ms) > 0.4
    assert 0 <= pair.guests <= 2 and pair.gained_core_s >= 0
    assert slurm.run("squeue", "-h", "--all") == ""

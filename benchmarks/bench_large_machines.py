"""A replay under `asax` on large machines, beside the same replay by an earlier commit: cost follows what changes.

    pytest benchmarks/bench_large_machines.py -s --against main --first 8000

checks `main` out into a folder of its own, replays the same log by both, each in a process of its own, in turns, and
prints the CPU seconds of each and their ratio; without `--against` this code alone. Compiling and reading are not
counted. The log is the made-up Curie of `made_up_curie.py`, whole unless `--first` says how many of its jobs; RICC,
where it is there, always whole. What both did is compared: they are the same replay.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import made_up_curie
import numpy as np
import pytest
from bench_replay import RICC, log_of
from stated import beside

HERE = Path(__file__).resolve().parents[1]
SOME = 60
"""Jobs in the smallest form."""
WARM_UP = 200
"""Jobs of the sample in a first replay, which compiles."""

REPLAY = """
import hashlib, sys, time
from pathlib import Path
checkout, path = sys.argv[1], Path(sys.argv[2])
sys.path[:0] = [checkout, checkout + "/benchmarks", checkout + "/tests/property"]
import bench_replay
from bench_replay import playing, prepare, read_log
import asad
from asad.replay.machine import from_flags
playing.beside(prepare(read_log(bench_replay.SAMPLE), int(sys.argv[3])), "asax")  # compile
nodes, cores = int(sys.argv[4]), int(sys.argv[5])
bench_replay.infer = lambda recorded: from_flags(nodes, cores)
assert Path(asad.__file__).is_relative_to(checkout), asad.__file__
recorded = read_log(path)
bench = prepare(recorded)
begin = time.process_time()
played = playing.beside(bench, "asax")
cpu_s = time.process_time() - begin
did = b"".join(played.column(name).tobytes() for name in ("start", "end", "was_guest", "lost"))
guests = int(played.column("was_guest").sum())
print(cpu_s, played.cycles, played.decisions, guests, hashlib.sha256(did).hexdigest()[:16])
"""


class Run(NamedTuple):
    """What one process measured."""

    cpu_s: float
    cycles: int
    decisions: int
    guests: int
    did: str
    """A digest of who started and ended when, who was a guest, and what it lost."""


def replay(checkout: Path, log: Path, machine: tuple[int, int]) -> Run:
    """The log under `asax` by the code of a checkout, in its own process; the machine is nodes, and cores of each."""
    command = [sys.executable, "-c", REPLAY, str(checkout), str(log), str(WARM_UP), *map(str, machine)]
    # from elsewhere, so that no other code is found first
    done = subprocess.run(command, cwd="/", env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cpu_s, cycles, decisions, guests, did = done.stdout.split()
    return Run(float(cpu_s), int(cycles), int(decisions), int(guests), did)


@pytest.fixture(scope="module")
def against(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path | None]:
    """A checkout of the commit to compare with; None where there is none."""
    commit = request.config.getoption("--against")
    if not commit:
        yield None
        return
    path = tmp_path_factory.mktemp("against") / "checkout"
    git = ["git", "-C", str(HERE), "worktree"]
    subprocess.run([*git, "add", "--detach", str(path), commit], check=True, capture_output=True)
    yield path
    subprocess.run([*git, "remove", "--force", str(path)], check=True, capture_output=True)


def compare(name: str, log: Path, machine: tuple[int, int], against: Path | None, turns: int) -> Run:
    """Print what the replay costs, in turns with the earlier code where there is one; the last run of ours."""
    ours, theirs = [], []
    for _ in range(turns):
        if against is not None:
            theirs.append(replay(against, log, machine))
        ours.append(replay(HERE, log, machine))
    cost = np.array([run.cpu_s for run in ours])
    last = ours[-1]
    print(
        f"\n{name}: {cost.min():.1f} s of CPU ({cost.min():.1f} to {cost.max():.1f}), {last.cycles:,} cycles of "
        f"{cost.min() / max(1, last.cycles) * 1e3:.2f} ms, {last.decisions:,} decisions, {last.guests:,} guests"
    )
    if theirs:
        before = np.array([run.cpu_s for run in theirs])
        same = "the same replay" if last.did == theirs[-1].did else "ANOTHER REPLAY"
        print(
            f"{name}, before: {before.min():.1f} s of CPU ({before.min():.1f} to {before.max():.1f}); {same}; "
            f"ratios of the turns: {', '.join(f'{ratio:.3f}' for ratio in cost / before)}"
        )
    return last


def test_made_up_curie(
    smallest: bool, request: pytest.FixtureRequest, tmp_path: Path, against: Path | None
) -> None:
    jobs = made_up_curie.draw()
    first = SOME if smallest else request.config.getoption("--first") or len(jobs.cores)
    print(f"\nmade-up Curie: {made_up_curie.describe(jobs)}; its first {first:,}")
    log = tmp_path / "made-up-curie.swf"
    made_up_curie.write(jobs, log, first)
    turns = 1 if smallest else request.config.getoption("--turns")
    machine = made_up_curie.NODES, made_up_curie.CORES_A_NODE
    run = compare("made-up Curie, asax", log, machine, against, turns)
    assert run.cycles > 0
    assert smallest or run.guests > 0


def test_ricc(smallest: bool, request: pytest.FixtureRequest, against: Path | None) -> None:
    log, machine = log_of(RICC, smallest, request), (16, 32) if smallest else (8192, 1)
    run = compare("RICC 8192x1, asax", log, machine, against, request.config.getoption("--turns"))
    print(beside("RICC 8192x1, asax, CPU", run.cpu_s, 90.0, "s"))
    assert run.guests > 0

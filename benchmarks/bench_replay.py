"""Speed and memory of the replay on real logs: one core, reading included where the issue of speed says so.

Each benchmark prints its figures and holds them against the bound it stands for. Absolute bounds hold on the kind of
machine they were set on; ratios are measured in one run.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from reference_scheduler import Job, Simulation

from asad.experts import load_experts
from asad.model import CoAllocate, Decision, Finished, Snapshot
from asad.replay.bench import Bench
from asad.replay.demand import assign
from asad.replay.machine import infer
from asad.replay.playing import leave_alone, lend
from asad.replay.readers import Recorded, read_log
from asad.replay.settings import Settings
from asad.replay.workload import build_workload
from asad.share.asax import Asax
from asad.share.asax.shares import choose, new_choice, note
from asad.share.asax.telling import tell
from asad.share.kept import Kept, keep
from asad.share.openings import columns_of, see

KTH = "KTH-SP2-1996-2.1-cln-filtered.swf.gz"
RICC = "RICC-2010-2.swf.gz"


def prepare(recorded: Recorded, jobs: int | None = None) -> Bench:
    """Everything a replay of the first `jobs` jobs needs, short of running it."""
    if jobs is not None:
        recorded = Recorded(
            **{
                field: getattr(recorded, field)
                for field in ("path", "format", "header", "absent", "counts", "bad", "notes", "nodes_seen")
            },
            jobs=recorded.jobs.take(np.arange(jobs)),
        )
    machine = infer(recorded)
    settings = Settings(policies=("asax",), vary_demand=False)
    fingerprint, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, fingerprint, names, settings.demand, 0)
    workload = build_workload(recorded, machine, settings, demand, [])
    return Bench(
        recorded, machine, settings, workload, names, load_experts(None), np.zeros(len(workload), np.bool_)
    )


def loop_rate(bench: Bench, times: int = 5) -> float:
    """Jobs a second of the simulation loop alone: the best of several, since others share the machine."""
    return len(bench.workload) / min(leave_alone(bench, "slurm").wall_s for _ in range(times))


def test_easy_on_kth_against_a_textbook_in_plain_python(traces: Path) -> None:
    bench = prepare(read_log(traces / KTH))
    loop_rate(bench, 1)  # compile
    ours = loop_rate(bench, 20)
    w = bench.workload
    some = 2000
    jobs = [
        Job(float(w.submit_s[k]), float(w.work_s[k]), float(w.planned_s[k]), int(w.cores[k]))
        for k in range(some)
    ]
    begin = time.perf_counter()
    reference = Simulation(jobs, bench.machine.total_cores, "easy").run()
    textbook = some / (time.perf_counter() - begin)
    same = leave_alone(prepare(bench.recorded, some), "slurm").column("start")
    assert same.tolist() == [reference.start[k] for k in range(some)]
    print(
        f"\nKTH, simulation loop: {ours:,.0f} jobs/s; textbook EASY in Python {textbook:,.0f}; ×{ours / textbook:.0f}"
    )
    assert ours >= 1e6


def test_easy_on_ricc_with_reading_and_flat_cost(traces: Path) -> None:
    begin = time.perf_counter()
    recorded = read_log(traces / RICC)
    read_s = time.perf_counter() - begin
    whole = prepare(recorded)
    leave_alone(prepare(recorded, 1000), "slurm")  # compile
    begin = time.perf_counter()
    played = leave_alone(whole, "slurm")
    run_s = time.perf_counter() - begin
    jobs = len(whole.workload)
    rate = jobs / (read_s + run_s)
    small = loop_rate(prepare(recorded, 10_000))
    large = max(jobs / run_s, loop_rate(whole, 2))
    wait = float((played.column("start") - whole.workload.submit_s).mean())
    print(
        f"\nRICC: {jobs:,} jobs, read {read_s:.2f} s, EASY {run_s:.2f} s: {rate:,.0f} jobs/s with reading; "
        f"loop {small:,.0f} jobs/s at 10 k, {large:,.0f} at {jobs // 1000} k; mean wait {wait:.2f} s"
    )
    assert wait == pytest.approx(22182.85, abs=0.01)
    assert rate >= 100_000
    assert large >= 0.4 * small, "the cost of a job grows with the log"


LENDING = """
import resource, sys, time
sys.path.insert(0, {benchmarks!r}); sys.path.insert(0, {tests!r})
from bench_replay import prepare, lend, leave_alone, read_log
path = {path!r}
small = prepare(read_log(path), 3000)
lend(small, "asax", 0)  # compile, or load what is compiled
begin = time.perf_counter()
bench = prepare(read_log(path))
played = lend(bench, "asax", 0)
wall = time.perf_counter() - begin
guests = int(played.column("was_guest").sum())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(wall, played.wall_s, played.cycles, played.decisions, guests, peak)
"""


def test_full_lending_replay_of_ricc(traces: Path) -> None:
    here = Path(__file__).parent
    code = LENDING.format(
        benchmarks=str(here), tests=str(here.parent / "tests" / "property"), path=str(traces / RICC)
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall, loop, cycles, decisions, guests, peak = map(float, done.stdout.split())
    print(
        f"\nRICC, asax: {wall:.1f} s with reading ({loop:.1f} s simulated), {cycles:,.0f} cycles, "
        f"{decisions:,.0f} decisions, {guests:,.0f} guests, peak {peak:.0f} MiB"
    )
    assert guests > 0
    assert peak < 1024
    assert wall <= 60


@njit(cache=True)
def choose_again(
    kept: Kept,
    now: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    guest: int,
    host: int,
    node: int,
    times: int,
) -> None:
    """All of a decision on a pair but the search for it, `times` over: state, experts, mixture, draw, note."""
    columns, experts, weights, history, o, memo, actions, rng, out = kept.all
    view = see(columns, now, now, queue, running, guests)
    choice = new_choice(weights.alpha.shape[1], len(actions))
    choice.allowed[:] = True
    for _ in range(times):
        mixture, u = out.mixture[0], rng.random()
        drawn = choose(
            view, experts, weights, history, o.exploration, 1.0, guest, host, node, u, choice, mixture
        )
        note(view, weights, memo, out, 0, guest, host, drawn, actions[drawn], choice)


class Stopwatch(Asax):
    """`asax`, timed: its cycles by whether they decide anything, and each decision once more by itself.

    The time of a cycle over its decisions would be no measure of a decision: most cycles look at everything and decide
    nothing. So what one more decision costs is measured apart, on the very snapshots: the choice (again, on copies of
    what it writes to) and its story for the log and the store.
    """

    AGAIN = 20

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.learning_s = 0.0
        self.cycle_s: dict[bool, list[float]] = {False: [], True: []}
        self.choice_s: list[float] = []
        self.story_s: list[float] = []

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        begin = time.perf_counter()
        super().learn(snapshot, finished)
        self.learning_s = time.perf_counter() - begin

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        before = self.decided
        begin = time.perf_counter()
        decisions = super().decide(snapshot)
        took = time.perf_counter() - begin + self.learning_s
        made = self.decided - before
        self.cycle_s[made > 0].append(took)
        if made:
            begin = time.perf_counter()
            for k in range(made):
                tell(snapshot, self.name, self.experts, self.leaf_names, self._out, k)
            self.story_s.append((time.perf_counter() - begin) / made)
            self._choose_again(snapshot, decisions)
        return decisions

    def _choose_again(self, snapshot: Snapshot, decisions: Sequence[Decision]) -> None:
        if not hasattr(self, "apart"):
            copies = [type(table)(*(column.copy() for column in table)) for table in (self._memo, self._out)]
            self.apart = keep(
                columns_of(snapshot, self._first),
                self.compiled,
                self.weights,
                self.history,
                self.options,
                copies[0],
                self.actions,
                np.random.default_rng(0),
                copies[1],
            )
        lists = (snapshot.time_s, snapshot.queue, snapshot.running, snapshot.guests)
        for decision in decisions:
            if isinstance(decision, CoAllocate):
                pair = (decision.guest, decision.host, decision.nodes[0])
                choose_again(self.apart, *lists, *pair, 1)  # to begin with what it reads in the cache
                begin = time.perf_counter()
                choose_again(self.apart, *lists, *pair, self.AGAIN)
                self.choice_s.append((time.perf_counter() - begin) / self.AGAIN)


def test_a_decision_of_asax(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one decision costs, and what a cycle costs that decides nothing."""
    bench = prepare(read_log(traces / KTH))
    clocks: list[Stopwatch] = []

    def timed(*arguments: Any) -> Stopwatch:
        clocks.append(Stopwatch(*arguments))
        return clocks[-1]

    monkeypatch.setattr("asad.replay.bench.Asax", timed)
    lend(prepare(bench.recorded, 3000), "asax", 0)  # compile
    played = lend(bench, "asax", 0)
    clock = clocks[-1]
    idle, busy = (1e6 * np.array(clock.cycle_s[made]) for made in (False, True))
    more = (busy.mean() - idle.mean()) * len(busy) / clock.decided
    choice, story = (1e6 * float(np.mean(part)) for part in (clock.choice_s, clock.story_s))
    print(
        f"\nKTH, asax: a decision {choice + story:.1f} µs ({choice:.2f} the choice, {story:.1f} its story; {more:.1f} "
        "with the search for a pair, by how much longer cycles with decisions take); a cycle of the policy, learning "
        f"included, {idle.mean():.0f} µs where nothing is decided ({len(idle):,}), {busy.mean():.0f} where something "
        f"is ({len(busy):,}); {clock.decided:,} decisions, {played.decisions:,} done with those on limits; all "
        f"{played.wall_s / played.cycles * 1e6:.0f} µs a cycle with the simulation"
    )
    assert choice + story < 50

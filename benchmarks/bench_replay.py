"""Speed and memory of the replay on real logs: one core, with reading where it says so.

Each benchmark prints its figures beside those that are stated, which were measured on one machine; ratios are of one
run. The smallest form takes some jobs of the generated sample instead of the logs.
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
from reference_scheduler import Job, Simulation
from stated import beside

from asad.catalog import policy_class
from asad.decisions import CoAllocate, Decision
from asad.experts import load_experts
from asad.model import Finished, Snapshot
from asad.replay import playing
from asad.replay.cpu_demand import assign
from asad.replay.inferred_machine import infer
from asad.replay.playing import leave_alone
from asad.replay.readers import Recorded, read_log
from asad.replay.replay_settings import Settings
from asad.replay.workbench import Bench
from asad.replay.workload import build_workload
from asad.share.asax import Asax

KTH = "KTH-SP2-1996-2.1-cln-filtered.swf.gz"
RICC = "RICC-2010-2.swf.gz"
SAMPLE = Path(__file__).resolve().parents[1] / "profiles" / "samples" / "generated-cluster.sacct.gz"
SOME = 200
"""Jobs of the sample in the smallest form."""


def log_of(name: str, smallest: bool, request: pytest.FixtureRequest) -> Path:
    """A real log, or the sample."""
    return SAMPLE if smallest else Path(request.getfixturevalue("traces")) / name


def prepare(recorded: Recorded, jobs: int | None = None) -> Bench:
    """Everything a replay of the first `jobs` jobs needs, short of running it."""
    if jobs is not None:
        recorded = Recorded(
            **{
                field: getattr(recorded, field)
                for field in ("path", "format", "header", "absent", "counts", "bad", "notes", "held")
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


def test_easy_on_kth_against_a_textbook_in_plain_python(
    smallest: bool, request: pytest.FixtureRequest
) -> None:
    some = SOME if smallest else 2000
    bench = prepare(read_log(log_of(KTH, smallest, request)), some if smallest else None)
    loop_rate(bench, 1)  # compile
    ours = loop_rate(bench, 1 if smallest else 20)
    w = bench.workload
    jobs = [
        Job(float(w.submit_s[k]), float(w.work_s[k]), float(w.planned_s[k]), int(w.cores[k]))
        for k in range(some)
    ]
    begin = time.perf_counter()
    reference = Simulation(jobs, bench.machine.total_cores, "easy").run()
    textbook = some / (time.perf_counter() - begin)
    same = leave_alone(prepare(bench.recorded, some), "slurm").column("start")
    if not smallest:  # the textbook knows no memory, which the sample has
        assert same.tolist() == [reference.start[k] for k in range(some)]
    print(
        f"\nKTH, simulation loop: {ours:,.0f} jobs/s; textbook EASY in Python {textbook:,.0f}; ×{ours / textbook:.0f}"
    )
    print(beside("the loop", ours, 1e6, "jobs/s"))


def test_easy_on_ricc_with_reading_and_flat_cost(smallest: bool, request: pytest.FixtureRequest) -> None:
    begin = time.perf_counter()
    recorded = read_log(log_of(RICC, smallest, request))
    read_s = time.perf_counter() - begin
    whole = prepare(recorded, 2 * SOME if smallest else None)
    leave_alone(prepare(recorded, SOME), "slurm")  # compile
    begin = time.perf_counter()
    played = leave_alone(whole, "slurm")
    run_s = time.perf_counter() - begin
    jobs = len(whole.workload)
    rate = jobs / (read_s + run_s)
    small = loop_rate(prepare(recorded, SOME if smallest else 10_000))
    large = max(jobs / run_s, loop_rate(whole, 2))
    wait = float((played.column("start") - whole.workload.submit_s).mean())
    print(
        f"\nRICC: {jobs:,} jobs, read {read_s:.2f} s, EASY {run_s:.2f} s: {rate:,.0f} jobs/s with reading; "
        f"loop {small:,.0f} jobs/s at 10 k, {large:,.0f} at {jobs // 1000} k; mean wait {wait:.2f} s"
    )
    print(beside("with reading", rate, 100_000, "jobs/s"))
    print(beside("the loop over all jobs, over that of the first", large / small, 0.4, "times"))
    assert smallest or wait == pytest.approx(22182.85, abs=0.01)


LENDING = """
import resource, sys, time
sys.path.insert(0, {benchmarks!r}); sys.path.insert(0, {tests!r})
from bench_replay import prepare, playing, leave_alone, read_log
path = {path!r}
small = prepare(read_log(path), {first})
playing.beside(small, "asax")  # compile, or load what is compiled
begin = time.perf_counter()
bench = prepare(read_log(path), {jobs})
played = playing.beside(bench, "asax")
wall = time.perf_counter() - begin
guests = int(played.column("was_guest").sum())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(wall, played.wall_s, played.cycles, played.decisions, guests, peak)
"""


def test_full_lending_replay_of_ricc(smallest: bool, request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    code = LENDING.format(
        benchmarks=str(here),
        tests=str(here.parent / "tests" / "property"),
        path=str(log_of(RICC, smallest, request)),
        first=SOME if smallest else 3000,
        jobs=SOME if smallest else None,
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall, loop, cycles, decisions, guests, peak = map(float, done.stdout.split())
    print(
        f"\nRICC, asax: {wall:.1f} s with reading ({loop:.1f} s simulated), {cycles:,.0f} cycles, "
        f"{decisions:,.0f} decisions, {guests:,.0f} guests, peak {peak:.0f} MiB"
    )
    print(beside("all of it", wall, 60.0, "s"))
    print(beside("memory at most", peak, 1024.0, "MiB"))
    assert smallest or guests > 0


class Stopwatch(Asax):
    """`asax`, timed: its cycles, learning included, by whether they offer anybody a place."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.learning_s = 0.0
        self.decided = 0
        self.cycle_s: dict[bool, list[float]] = {False: [], True: []}

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        begin = time.perf_counter()
        super().learn(snapshot, finished)
        self.learning_s = time.perf_counter() - begin

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        begin = time.perf_counter()
        decisions = super().decide(snapshot)
        took_s = time.perf_counter() - begin
        offers = sum(isinstance(decision, CoAllocate) for decision in decisions)
        self.decided += offers
        self.cycle_s[offers > 0].append(took_s + self.learning_s)
        return decisions


def test_a_decision_of_asax(
    smallest: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one decision costs, and what a cycle costs that decides nothing."""
    bench = prepare(read_log(log_of(KTH, smallest, request)), SOME if smallest else None)
    clocks: list[Stopwatch] = []

    class Timed(Stopwatch):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            clocks.append(self)

    def class_of(stage: str, name: str, **options: Any) -> Any:
        return Timed if name == "asax" else policy_class(stage, name, **options)

    monkeypatch.setattr("asad.stages.policy_class", class_of)
    playing.beside(prepare(bench.recorded, SOME if smallest else 3000), "asax")  # compile
    played = playing.beside(bench, "asax")
    clock = clocks[-1]
    idle, busy = (1e6 * np.array(clock.cycle_s[made]) for made in (False, True))
    offer = (busy.sum() - idle.mean() * len(busy)) / max(1, clock.decided)
    print(
        f"\nKTH, asax: {offer:.0f} µs an offer with its story (by how much longer such cycles take); a cycle of the "
        f"policy, learning included, {idle.mean():.0f} µs without an offer ({len(idle):,}), {busy.mean():.0f} with one "
        f"({len(busy):,}); {clock.decided:,} offers, {played.decisions:,} decisions done; all "
        f"{played.wall_s / played.cycles * 1e6:.0f} µs a cycle with the simulation"
    )
    print(beside("an offer", offer, 50.0, "µs"))
    print(beside("a cycle with offers, its 99th percentile", float(np.percentile(busy, 99)), 20_000.0, "µs"))

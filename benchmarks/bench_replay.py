"""Speed and memory of the replay on real logs: one core, reading included where the issue of speed says so.

Each benchmark prints its figures and holds them against the bound it stands for. Absolute bounds hold on the kind of
machine they were set on; ratios are measured in one run.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from reference_scheduler import Job, Simulation

from asad.experts import load_experts
from asad.replay.demand import assign
from asad.replay.machine import infer
from asad.replay.readers import Recorded, read_log
from asad.replay.run import Bench, Settings, build_workload, leave_alone, lend

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


def test_a_decision_of_asax(traces: Path) -> None:
    """Time of the policy itself, learning included, over the decisions it made."""
    bench = prepare(read_log(traces / KTH))
    lend(prepare(read_log(traces / KTH), 3000), "asax", 0)
    from asad.share.asax import Asax

    spent = [0.0]
    original = Asax.decide

    def timed(self: Asax, snapshot: object) -> object:
        begin = time.perf_counter()
        decisions = original(self, snapshot)  # type: ignore[arg-type]
        spent[0] += time.perf_counter() - begin
        return decisions

    Asax.decide = timed  # type: ignore[method-assign,assignment]
    try:
        played = lend(bench, "asax", 0)
    finally:
        Asax.decide = original  # type: ignore[method-assign]
    each = spent[0] / max(1, played.decisions)
    cycle = spent[0] / played.cycles
    print(
        f"\nKTH, asax: {each * 1e6:.0f} µs a decision made, {cycle * 1e6:.0f} µs a cycle, {played.decisions} decisions"
    )

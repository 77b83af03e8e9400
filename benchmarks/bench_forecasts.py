"""How good forecasts of starts are: asad's own beside plain rivals, by the pinball loss at 0.3 of the remaining wait.

    pytest benchmarks/bench_forecasts.py -s

Each job is forecast when it becomes eligible and every hour after that until it starts, from what the log shows until
then: recorded starts of pozidriv, and KTH under exact EASY. The loss of a forecast f of a remaining wait y is
0.3 (y - f) where the job waits longer, and 0.7 (f - y) where it starts sooner: being late with a promise costs more.
"""

from __future__ import annotations

import csv
import gzip
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from bench_replay import KTH, SAMPLE, SOME

from asad.compiling import compiled
from asad.model import Floats, JobLog, Machine
from asad.replay.cpu_demand import assign
from asad.replay.engine.twin import follow, forecast_starts, outwait
from asad.replay.inferred_machine import infer
from asad.replay.machine import uniform
from asad.replay.readers import Recorded, read_log
from asad.replay.replay_settings import Settings
from asad.replay.workbench import prepare
from asad.share.jit_args import JitArgs

TAU = 0.3
HOUR_S = 3600.0
LAST = 50
_POZIDRIV = """
jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed exitcode state nnodes
ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname
"""


class Moments(NamedTuple):
    """When which job is forecast, in order of time."""

    time: Floats
    job: np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def pinball(actual: Floats, forecast: Floats) -> float:
    """Mean loss, in seconds."""
    off = actual - forecast
    return float(np.maximum(TAU * off, (TAU - 1.0) * off).mean())


def moments_of(jobs: JobLog) -> Moments:
    """At the beginning of each wait, and hourly while it lasts; jobs that do not wait a second count once."""
    queued = np.minimum(jobs.queued_s, jobs.start_s)
    count = np.maximum(1, np.ceil((jobs.start_s - queued) / HOUR_S)).astype(np.int64)
    job = np.repeat(np.arange(len(jobs)), count)
    hour = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)
    time = queued[job] + hour * HOUR_S
    order = np.argsort(time, kind="stable")
    return Moments(time[order], job[order])


@compiled
def forecast(args: JitArgs, depth: int, outwaits: bool) -> None:
    """asad's own forecast of all that wait."""
    s, twin, looks = args.all
    follow(twin, s, looks.seen)
    forecast_starts(twin, s, looks.seen, depth, looks.own_estimate)
    if outwaits:
        outwait(twin, depth, looks.own_estimate)


def ours(recorded: Recorded, machine: Machine, at: Moments, *, outwaits: bool) -> Floats:
    """The remaining wait that the twin forecasts at each moment."""
    settings = Settings(("slurm", "measured"), baseline="recorded", vary_demand=False)
    codes, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, codes, names, settings.demand, 0)
    cluster = prepare(recorded, machine, settings, demand, []).cluster("recorded", "idle", pooled=True)
    found, depth = np.zeros(len(at.time)), len(recorded.jobs)
    last = -np.inf
    for k, (time, job) in enumerate(zip(at.time.tolist(), at.job.tolist(), strict=True)):
        if recorded.jobs.start_s[job] <= time:
            continue  # it starts at once
        if time > last:
            cluster.run(time)
            if cluster._gone is not None:
                cluster._gone.mark(time)
            forecast(cluster._args, depth, outwaits)
            last = time
        estimate = float(cluster._looks.own_estimate[job])
        found[k] = max(0.0, estimate - time) if np.isfinite(estimate) else 0.0
    return found


def sizes(jobs: JobLog) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.ceil(np.log2(jobs.cores)).astype(np.int64)


def of_past(jobs: JobLog, keys: list[tuple[int, ...]], at: Moments, quantile: float) -> Floats:
    """The quantile of the last waits of the same key that were longer than the wait so far, less that."""
    starts = np.argsort(jobs.start_s, kind="stable")
    queued = np.minimum(jobs.queued_s, jobs.start_s)
    past: dict[tuple[int, ...], deque[float]] = {}
    found, begun = np.zeros(len(at.time)), 0
    for k, (time, job) in enumerate(zip(at.time.tolist(), at.job.tolist(), strict=True)):
        while begun < len(starts) and jobs.start_s[starts[begun]] < time:
            one = int(starts[begun])
            past.setdefault(keys[one], deque(maxlen=LAST)).append(float(jobs.start_s[one] - queued[one]))
            begun += 1
        waited = time - queued[job]
        longer = [one for one in past.get(keys[job], ()) if one >= waited]
        found[k] = max(0.0, float(np.quantile(longer, quantile)) - waited) if longer else waited
    return found


def rivals(jobs: JobLog, at: Moments) -> Iterator[tuple[str, Callable[[], Floats]]]:
    """Name of each plain way, and what it forecasts."""
    size, none = sizes(jobs), np.full(len(jobs), -1, np.int64)
    account, qos = (none if code is None else code for code in (jobs.account, jobs.qos))
    by_partition = [(int(a), int(b)) for a, b in zip(jobs.partition, size, strict=True)]
    by_account = [(int(a), int(b), int(c)) for a, b, c in zip(account, qos, size, strict=True)]
    by_user = [(int(a), int(b), int(c)) for a, b, c in zip(jobs.user, jobs.partition, size, strict=True)]
    yield "at once", lambda: np.zeros(len(at.time))
    for name, keys in (
        ("partition and size", by_partition),
        ("account, QOS and size", by_account),
        ("user, partition and size", by_user),
    ):
        yield f"median of the last {LAST} by {name}", lambda keys=keys: of_past(jobs, keys, at, 0.5)  # type: ignore[misc]
        yield f"{TAU:g} quantile of the last {LAST} by {name}", lambda keys=keys: of_past(jobs, keys, at, TAU)  # type: ignore[misc]


def table(title: str, recorded: Recorded, machine: Machine) -> dict[str, float]:
    """Print the loss of each way, the least first."""
    jobs, at = recorded.jobs, moments_of(recorded.jobs)
    actual = jobs.start_s[at.job] - at.time
    losses = {
        "the twin (EASY, expected runs)": pinball(actual, ours(recorded, machine, at, outwaits=False)),
        "the twin, and who has room outwaits": pinball(actual, ours(recorded, machine, at, outwaits=True)),
        **{name: pinball(actual, make()) for name, make in rivals(jobs, at)},
    }
    print(
        f"\n{title}: {len(at.time):,} forecasts of {len(jobs):,} jobs, mean remaining wait {actual.mean():,.0f} s"
    )
    for name, loss in sorted(losses.items(), key=lambda pair: pair[1]):
        print(f"  {loss:10,.1f} s  {name}")
    return losses


def test_pozidriv(smallest: bool, request: pytest.FixtureRequest) -> None:
    if smallest:
        recorded = read_log(SAMPLE)
        recorded = replace(recorded, jobs=recorded.jobs.take(np.arange(SOME)))
    else:
        path = Path(request.getfixturevalue("traces")) / "pozidriv.sacct.gz"
        recorded = read_log(path, columns=_POZIDRIV.split())
    assert all(np.isfinite(loss) for loss in table("pozidriv", recorded, infer(recorded)).values())


def test_kth_under_easy(smallest: bool, request: pytest.FixtureRequest) -> None:
    if smallest:
        recorded = read_log(SAMPLE)
        jobs = recorded.jobs.take(np.arange(SOME))
        assert table("KTH", replace(recorded, jobs=jobs), infer(recorded))
        return
    traces = Path(request.getfixturevalue("traces"))
    recorded = read_log(traces / KTH)
    golden = traces / "golden" / KTH.replace(".swf.gz", ".easy_per_timestamp.csv.gz")
    with gzip.open(golden, "rt") as file:
        rows = {row["job_id"]: row for row in csv.DictReader(file)}
    start = np.array([float(rows[str(one)]["start"]) for one in recorded.jobs.job_id])
    run = np.array([float(rows[str(one)]["run"]) for one in recorded.jobs.job_id])
    recorded = replace(recorded, jobs=replace(recorded.jobs, start_s=start, run_s=run))
    assert table("KTH under EASY", recorded, uniform(100, 1, np.nan, "KTH-SP2"))

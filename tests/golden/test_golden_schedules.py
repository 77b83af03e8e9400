"""Start times and figures of real logs against schedules that others have made, job for job."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from asad.model import JobLog
from asad.replay import engine
from asad.replay.readers import read_log

pytestmark = pytest.mark.traces

KTH = "KTH-SP2-1996-2.1-cln-filtered"


def schedule(
    jobs: JobLog, total_cores: int, *, kill: bool = True, per_event: bool = False, placed: bool = False
) -> engine.State:
    """EASY over a log; a job without a limit is planned with its run time."""
    count = len(jobs)
    limit = np.where(np.isnan(jobs.time_limit_s), jobs.run_s, jobs.time_limit_s)
    state = engine.new_state(
        {
            "submit": jobs.submit_s,
            "work": np.minimum(jobs.run_s, limit) if kill else jobs.run_s,
            "planned": limit if kill else np.maximum(limit, jobs.run_s),
            "limit": limit,
            "memory": np.zeros(count),
            "demand": np.full(count, 0.6),
            "think": np.zeros(count),
            "cores": jobs.cores,
            "wide": np.zeros(count, np.int32),
            "depends": np.full(count, -1, np.int32),
        },
        np.full(total_cores // 4, 4, np.int32),
        np.full(total_cores // 4, np.nan),
        scheduler=engine.EASY,
        per_event=per_event,
        kill=kill,
        placed=placed,
        use_memory=False,
        poll_s=30.0,
        window_s=60.0,
        mu=(1.0, 1.0, 1.0, 1.0),
    )
    engine.run_until(state, np.inf)
    assert state.c[engine.ENDED] == count
    return state


def golden(path: Path) -> dict[str, NDArray[np.float64]]:
    """The columns of a golden schedule."""
    with gzip.open(path, "rt") as lines:
        rows = list(csv.DictReader(lines))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def requested(path: Path, **how: bool) -> JobLog:
    """The jobs of a log with the processors that they asked for, which those schedules give them; a replay gives them
    what they were given."""
    jobs = read_log(path, **how).jobs
    with gzip.open(path, "rt") as lines:
        rows = [line.split() for line in lines if line.strip() and line.lstrip()[0] != ";"]
    asked = {int(row[0]): int(row[7]) for row in rows if len(row) == 18 and int(row[7]) > 0}
    given = zip(jobs.job_id.tolist(), jobs.cores.tolist(), strict=True)
    cores = [asked.get(number, processors) for number, processors in given]
    return replace(jobs, cores=np.array(cores, dtype=np.int32))


@pytest.fixture(scope="module")
def kth(traces: Path) -> JobLog:
    return requested(traces / f"{KTH}.swf.gz")


@pytest.mark.parametrize(
    ("per_event", "name", "wait", "slowdown"),
    [
        (False, "easy_per_timestamp", 6834.59, 92.688),
        (True, "easy_per_event_published2015", 6836.87, 92.577),
    ],
    ids=["per-timestamp", "per-event"],
)
def test_kth_starts_are_the_golden_ones_job_for_job(
    traces: Path, kth: JobLog, per_event: bool, name: str, wait: float, slowdown: float
) -> None:
    expected = golden(traces / "golden" / f"{KTH}.{name}.csv.gz")
    job = schedule(kth, 100, per_event=per_event).job
    by_id = np.argsort(kth.job_id, kind="stable")
    other = np.argsort(expected["job_id"], kind="stable")
    np.testing.assert_array_equal(kth.job_id[by_id], expected["job_id"][other])
    np.testing.assert_array_equal(kth.cores[by_id], expected["procs"][other])
    np.testing.assert_array_equal(job["work"][by_id], expected["run"][other])
    # the golden schedule counts from its own first submission
    shift = expected["submit"].min() - kth.submit_s.min()
    np.testing.assert_array_equal(kth.submit_s[by_id] + shift, expected["submit"][other])
    np.testing.assert_array_equal(job["start"][by_id] + shift, expected["start"][other])

    waits, runs = job["start"] - job["submit"], job["work"]
    assert waits.mean() == pytest.approx(wait, abs=0.005)
    bounded = np.maximum(1.0, (waits + runs) / np.maximum(runs, 10.0))
    assert bounded.mean() == pytest.approx(slowdown, abs=0.0005)


def test_kth_utilization_and_makespan_are_the_published_ones(kth: JobLog) -> None:
    job = schedule(kth, 100).job
    makespan = job["end"].max() - job["submit"].min()
    assert makespan == 29_363_626
    assert (job["cores"] * job["work"]).sum() / (100 * makespan) == pytest.approx(0.685613, abs=5e-7)


def test_kth_starts_do_not_depend_on_tracking_placement(kth: JobLog) -> None:
    plain, placed = schedule(kth, 100), schedule(kth, 100, placed=True)
    np.testing.assert_array_equal(placed.job["start"], plain.job["start"])
    np.testing.assert_array_equal(placed.job["end"], plain.job["end"])
    assert not placed.job["killed"].any()


@pytest.mark.slow
def test_ricc_mean_waits_are_the_published_ones(traces: Path) -> None:
    jobs = requested(traces / "RICC-2010-2.swf.gz", skip_bad=True)
    assert len(jobs) == 447_784
    for kill, wait in ((True, 22_182.85), (False, 36_863.27)):
        job = schedule(jobs, 8192, kill=kill).job
        assert (job["start"] - job["submit"]).mean() == pytest.approx(wait, abs=0.005)

"""Deferral on the recorded cluster and in a replay: against Slurm left alone, and what is reported of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as some

from asad.admit.everyone import Everyone
from asad.cli.asactl import asactl
from asad.contention import load_contention
from asad.cycle import Cycle
from asad.decisions import Start
from asad.defer.deferral_options import Options
from asad.defer.deferral_policy import Deferral
from asad.defer.scorers import make_scorer
from asad.errors import UsageError
from asad.guard import guard_for
from asad.model import Machine
from asad.place.native import Native
from asad.replay.deferrable_in_log import Declared, deferrable_of, read_declared
from asad.replay.policies import DEFAULT_POLICIES, usual_policies
from asad.replay.readers import read_log
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload
from asad.replay.worth import arrays_of
from asad.share.exclusive import Exclusive

HOUR = 3600.0


def workload_of(jobs: list[tuple[float, float, float, int, int, float]]) -> Workload:
    """Jobs of (submit, run time, limit, cores, array, window; 0 for on-demand)."""
    submit, run, limit, cores, array, window = (np.array(column) for column in zip(*jobs, strict=True))
    count = len(jobs)
    # arrays are numbered through: their columns stand in the rows of the jobs
    array = np.where(array < 0, -1, np.searchsorted(np.unique(array[array >= 0]), array))
    return Workload(
        job_id=np.arange(count),
        submit_s=submit.astype(float),
        work_s=run.astype(float),
        planned_s=limit.astype(float),
        limit_s=limit.astype(float),
        cores=cores.astype(np.int32),
        nodes=np.zeros(count, np.int32),
        memory_bytes_per_core=np.zeros(count),
        demand=np.full(count, 0.5),
        depends_on=np.full(count, -1, np.int32),
        think_s=np.zeros(count),
        application=np.zeros(count, np.int32),
        user=np.zeros(count, np.int32),
        array=array.astype(np.int32),
        hints={row: f"deferrable={float(s):.0f}s" for row, s in enumerate(window) if s},
    )


def cluster_of(workload: Workload, nodes: int = 2, cores: int = 4, admission: bool = True) -> RecordedCluster:
    machine = Machine(
        tuple(f"n{k}" for k in range(nodes)),
        np.full(nodes, cores, np.int32),
        np.full(nodes, np.nan),
        "made up",
    )
    return RecordedCluster(
        workload, machine, load_contention(), lending=False or admission, twin=False, admission=admission,
        gather_arrays=admission, poll_s=30.0,
    )  # fmt: skip


def deferred(workload: Workload, scorer: str = "edf", **options: Any) -> tuple[RecordedCluster, Deferral]:
    """The workload to its end under a policy; whatever starts by its score has idle cores."""
    cluster = cluster_of(workload)
    made = Options(**{"lease_s": 12 * HOUR, "by_node": False} | options)
    policy = Deferral(f"{scorer}-defer", make_scorer(scorer), ["-/-/1"], made, poll_s=30.0)

    def record(_: int, snapshot: Any, outcomes: Any) -> None:
        starts = [o.decision for o in outcomes if isinstance(o.decision, Start)]
        by_score = [d for d in starts if d.cause.detail["urgent"] is False]
        assert sum(int(d.cause.detail["cores"]) for d in by_score) <= int((snapshot.core_owner < 0).sum())
        assert all(outcome.done for outcome in outcomes)

    cycle = Cycle(cluster, Everyone(), policy, Native(), Exclusive(), guard_for(frozenset()), record)
    wake_s = np.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
    assert cluster.ended == len(workload)
    return cluster, policy


@some.composite
def workloads(draw: Any, windows: tuple[int, ...] = (0, 0, 600, 3600, 100_000)) -> Workload:
    jobs = []
    clock = 0.0
    for _ in range(draw(some.integers(1, 25))):
        clock += draw(some.sampled_from((0.0, 10.0, 60.0, 400.0)))
        run = 30.0 * draw(some.integers(1, 60))
        jobs.append(
            (
                clock,
                run,
                run * draw(some.sampled_from((1.0, 2.0, 5.0))),
                draw(some.sampled_from((1, 1, 2, 3, 5, 8))),
                draw(some.sampled_from((-1, -1, -1, 0, 1))),
                draw(some.sampled_from(windows)),
            )
        )
    return workload_of(jobs)


@settings(deadline=None, max_examples=60)
@given(workloads(), some.sampled_from(("fifo", "edf", "biggest")), some.sampled_from(("prefix", "skip-fit")))
def test_everybody_runs_and_nobody_starts_too_early(workload: Workload, scorer: str, packing: str) -> None:
    cluster, _ = deferred(workload, scorer, packing=packing)
    assert (cluster.state.job["start"] >= workload.submit_s).all()


@settings(deadline=None, max_examples=30)
@given(workloads(windows=(0,)))
def test_where_nobody_is_deferrable_it_is_slurm_left_alone(workload: Workload) -> None:
    cluster, policy = deferred(workload)
    alone = cluster_of(workload, admission=False)
    alone.run()
    assert cluster.state.job["start"].tolist() == alone.state.job["start"].tolist()
    assert policy.overview()["counts"] == {"started": 0, "missed": 0, "let go": 0}


def test_a_deferrable_job_yields_to_those_that_come_later() -> None:
    jobs = [
        (0.0, 1000.0, 1000.0, 6, -1, 0),
        (10.0, 3000.0, 3000.0, 4, -1, 6 * HOUR),
        (20.0, 500.0, 500.0, 4, -1, 0),
        (30.0, 200.0, 200.0, 2, -1, HOUR),
    ]
    cluster, policy = deferred(workload_of(jobs))
    start = cluster.state.job["start"]
    alone = cluster_of(workload_of(jobs), admission=False)
    alone.run()
    assert alone.state.job["start"].tolist() == [0.0, 1000.0, 1000.0, 30.0]
    assert start[2] == 1000.0 and start[3] == pytest.approx(30.0, abs=60.0)
    assert start[1] == pytest.approx(1000.0, abs=60.0), "beside the other: 4 and 4 of 8"
    assert policy.overview()["missed"] == []


# ---------------------------------------------------------------------------------------------------------- declared


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of three users in two partitions, with a window in one comment."""
    rng = np.random.default_rng(5)
    lines = ["JobID|User|JobName|Partition|Submit|Start|End|ElapsedRaw|Timelimit|NCPUS|Comment|State"]
    clock = 1_700_000_000
    for number in range(1, 121):
        clock += int(rng.integers(60, 900))
        run = int(rng.integers(600, 7200))
        lines.append(
            f"{number}|{('ann', 'bob', 'eve')[number % 3]}|app{number % 5}|{('day', 'night')[number % 2]}|{clock}|"
            f"{clock}|{clock + run}|{run}|{2 * run // 3600}:{2 * run % 3600 // 60:02}:{2 * run % 60:02}|"
            f"{int(rng.choice([1, 2, 4, 8]))}|{'asad:deferrable=5h' if number == 7 else ''}|COMPLETED"
        )
    path = tmp_path_factory.mktemp("deferral") / "log.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_who_is_declared_is_drawn_by_the_seed_and_whole_arrays_together(log: Path) -> None:
    jobs = read_log(log).jobs
    none = np.full(len(jobs), -1, np.int32)
    found = deferrable_of(jobs, jobs.time_limit_s, none, [Declared(HOUR, 0.3)], 1)
    assert found.stated == 1 and 15 <= found.assumed <= 60
    assert found.latest_s[6] == jobs.submit_s[6] + 5 * HOUR and np.isnan(found.deadline_s[6])
    row = int(np.flatnonzero(found.rows & (np.arange(len(jobs)) != 6))[0])
    assert found.latest_s[row] == jobs.submit_s[row] + HOUR
    assert found.deadline_s[row] == found.latest_s[row] + jobs.time_limit_s[row]
    again = deferrable_of(jobs, jobs.time_limit_s, none, [Declared(HOUR, 0.3)], 1)
    other = deferrable_of(jobs, jobs.time_limit_s, none, [Declared(HOUR, 0.3)], 2)
    assert (again.rows == found.rows).all() and (other.rows != found.rows).any()
    array = none.copy()
    array[10:30] = 4
    together = deferrable_of(jobs, jobs.time_limit_s, array, [Declared(HOUR, 0.5)], 3).rows[10:30]
    assert together.all() or not together.any()
    of_ann = deferrable_of(jobs, jobs.time_limit_s, none, [Declared(HOUR, column="user", name="ann")], 0)
    assert of_ann.assumed == 40
    limits = np.where(np.arange(len(jobs)) < 60, np.nan, jobs.time_limit_s)
    assert not deferrable_of(jobs, limits, none, [Declared(HOUR)], 0).rows[:60].any()
    with pytest.raises(UsageError, match="the log has no user 'zoe'"):
        deferrable_of(jobs, jobs.time_limit_s, none, [Declared(HOUR, column="user", name="zoe")], 0)
    assert (arrays_of(jobs.job_id, jobs.user) == -1).all()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no KEY=VALUE"),
        ("share=0.2", "there is no window"),
        ("window=soon", "there is no window, or it is no time"),
        ("window=4h,share=2", "share is no number above 0 and at most 1"),
        ("window=4h,share=x", "share is no number"),
        ("window=4h,window=5h", "window is given twice"),
        ("window=4h,user=a,partition=b", "give user or partition"),
        ("window=4h,qos=b", "is no KEY=VALUE of share, window, user, partition"),
    ],
)
def test_wrong_declarations_are_named(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_declared(text)
    assert read_declared("window=4h, share=0.5,user=ann") == Declared(4 * HOUR, 0.5, "user", "ann")


def replay(log: Path, *words: str) -> Any:
    result = CliRunner().invoke(
        asactl,
        ["replay", str(log), "--store", "none", "--nodes", "4", "--cores", "8", *words],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.output) if "--json" in words else result.output


def test_a_replay_shows_what_becomes_of_both_kinds(log: Path) -> None:
    words = ("--policy", "slurm,fifo-defer,edf-defer", "--deferrable", "share=0.4,window=8h")
    document = replay(log, "--json", *words)
    slurm, edf = (document["policies"][name] for name in ("slurm", "edf-defer"))
    assert slurm["deferrable"] == edf["deferrable"] > 20 and slurm["jobs"] == 120
    assert edf["on_demand_wait_mean_s"] <= slurm["on_demand_wait_mean_s"]
    assert edf["deferrable_delay_mean_s"] >= slurm["deferrable_delay_mean_s"]
    assert 0 < edf["deferrable_utilization"] < 1 and edf["missed"] <= edf["deferrable"]
    assert any("is assumed (share=0.4,window=8h)" in note for note in document["log"]["notes"])
    assert document["settings"]["deferrable"] == ["share=0.4,window=8h"]
    same = replay(log, "--json", *words)
    for policy in (*same["policies"].values(), *document["policies"].values()):
        policy.pop("wall_s")
    assert same == document


def test_the_table_and_the_page_show_it_and_that_it_is_assumed(log: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = (
        "--policy",
        "slurm,edf-defer",
        "--deferrable",
        "share=0.4,window=8h",
        "--report",
        str(page),
        "--full",
    )
    output = " ".join(replay(log, *words).split())
    assert "What becomes of" in output and "deferrable jobs would have missed their latest start" in output
    assert "which jobs can wait is assumed." in output
    text = page.read_text()
    assert "What becomes of deferrable jobs" in text and "which jobs can wait is assumed." in text


def test_a_log_that_shows_nobody_deferrable_is_refused(tmp_path: Path, log: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text(log.read_text().replace("asad:deferrable=5h", ""))
    with pytest.raises(UsageError, match="there is nobody to defer"):
        replay(path, "--policy", "edf-defer")
    document = replay(log, "--policy", "edf-defer", "--json")
    assert document["policies"]["edf-defer"]["deferrable"] == 1 and not document["settings"]["deferrable"]


def test_where_no_policy_is_named_the_best_for_what_is_declared_is_replayed(log: Path) -> None:
    document = replay(log, "--json", "--deferrable", "share=0.4,window=8h")
    assert list(document["policies"]) == ["slurm", "rollout-defer"]
    assert usual_policies(utilities=True, deferrable=True, statements=False) == (
        "slurm",
        "oasis",
        "rollout-defer",
    )
    assert usual_policies(utilities=False, deferrable=False, statements=True) == ("slurm", "sow")
    assert usual_policies(utilities=False, deferrable=False, statements=False) == DEFAULT_POLICIES

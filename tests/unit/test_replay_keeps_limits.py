"""A replay with `--limits` offers nothing against a limit of users, accounts and QOS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from log_of_jobs import log_of

from asad.cli.asactl import asactl
from asad.contention import load_contention
from asad.decisions import Cause, CoAllocate
from asad.ineligible import Ineligible
from asad.model import JobLog
from asad.replay import engine
from asad.replay.cpu_demand import DemandProfile, assign
from asad.replay.limits.limit_table import LimitTable
from asad.replay.machine import from_flags
from asad.replay.playing import Played, beside
from asad.replay.readers import Recorded
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.replay_settings import Settings
from asad.replay.workbench import Bench, prepare

ASSOC = """Cluster|Account|User|Partition|GrpJobs|GrpTRES|MaxJobs|QOS|Def QOS
c|root|||||||
c| top||||cpu=14|||
c|  a|||||||
c|   a|ann|||||normal,big|
c|   a|bob||||3|normal,big|
c|  b||||cpu=9|||
c|   b|cat|||||normal,big|
"""
QOS = """Name|Priority|GrpTRES|MaxTRESPU|MaxJobsPU
normal|0||cpu=6|4
big|0|cpu=10||
"""


def bench_of(jobs: JobLog, limits: tuple[Path, ...], notes: list[str] | None = None) -> Bench:
    recorded = Recorded(jobs, "log", "sacct", {}, (), {"lines": len(jobs)}, [], [], None)
    settings = Settings(policies=("slurm", "measured"), limits=limits, seed=1)
    fingerprint, names = jobs.fingerprints()
    demand = assign(jobs, fingerprint, names, DemandProfile(), 1)
    return prepare(recorded, from_flags(2, 8, None), settings, demand, [] if notes is None else notes)


def drawn(seed: int) -> JobLog:
    """Jobs of three users that crowd a machine."""
    rng = np.random.default_rng(seed)
    users = (("ann", "a"), ("bob", "a"), ("cat", "b"))
    submit = np.sort(rng.integers(0, 4000, 90))
    rows = []
    for at in submit.tolist():
        user, account = users[rng.integers(3)]
        run = float(rng.integers(300, 1500))
        rows.append(
            {
                "user": user,
                "account": account,
                "qos": ("normal", "big")[rng.integers(2)],
                "cores": int(rng.integers(1, 5)),
                "submit": at,
                "run": run,
                "limit": run + 600,
            }
        )
    return log_of(rows)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    path = tmp_path / "limits.txt"
    path.write_text(ASSOC + QOS)
    return (path,)


def watched(
    monkeypatch: pytest.MonkeyPatch, bench: Bench, table: LimitTable
) -> tuple[Played, list[int], list[int]]:
    """The policy played, who became a guest, and who of them lifted a group above its ceiling then."""
    guests: list[int] = []
    broke: list[int] = []
    plain = RecordedCluster._co_allocate

    def co_allocate(self: RecordedCluster, decision: CoAllocate) -> str:
        state = self.state.job["state"]
        runs = np.flatnonzero((state == engine.RUNNING) | (state == engine.GUEST)).astype(np.int32)
        limit = table.exceeded(table.usage(runs), decision.guest)
        refused = plain(self, decision)
        if not refused:
            guests.append(decision.guest)
            if limit:
                broke.append(decision.guest)
        return refused

    monkeypatch.setattr(RecordedCluster, "_co_allocate", co_allocate)
    return beside(bench, "measured"), guests, broke


@pytest.mark.parametrize("seed", range(4))
def test_no_guest_is_offered_against_a_limit(
    seed: int, files: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = drawn(seed)
    bound = bench_of(jobs, files)
    assert bound.limits is not None
    played, guests, broke = watched(monkeypatch, bound, bound.limits)
    assert guests
    assert broke == []
    assert int(played.column("was_guest").sum()) == len(guests)
    monkeypatch.undo()
    _, free, would_break = watched(monkeypatch, bench_of(jobs, ()), bound.limits)
    assert would_break, "the limits of this test bind nobody"
    assert len(free) > 0


def test_who_may_not_start_is_shown_and_refused_by_the_limits_name(files: tuple[Path, ...]) -> None:
    one: dict[str, Any] = {"user": "ann", "account": "a", "qos": "normal", "run": 5000, "limit": 6000}
    other = one | {"user": "cat", "account": "b"}
    jobs = log_of(
        [
            other | {"cores": 8, "qos": "big"},
            other | {"cores": 8, "qos": ""},
            one | {"cores": 4, "submit": 10},
            one | {"cores": 3, "submit": 11},
            one | {"cores": 2, "submit": 12},
        ]
    )
    rich = files[0].with_name("rich.txt")
    rich.write_text(QOS.replace("cpu=10", "cpu=20"))
    bench = bench_of(jobs, (rich,))
    cluster = RecordedCluster(
        bench.workload, bench.machine, load_contention(None, lending="idle"), limits=bench.limits, every=True
    )
    while cluster.now_s < 30 and cluster.advance():
        snapshot = cluster.snapshot()
    snapshot = cluster.snapshot()
    assert snapshot.queue.tolist() == [2, 3, 4]
    shown = snapshot.jobs.guest_bar
    assert shown[[2, 3, 4]].tolist() == [0, 0, 0]
    cause = Cause("test", "it may")
    offers = [CoAllocate(cause, row, (node,), demands=(1.0,)) for row, node in ((2, 0), (3, 1), (4, 1))]
    first, second, third = cluster.apply(offers)
    assert first.done
    assert not second.done
    assert second.reason == "it would exceed a limit (QOS normal: MaxTRESPU cpu=6 of user ann)"
    assert third.done
    snapshot = cluster.snapshot()
    assert snapshot.queue.tolist() == [3]
    assert snapshot.jobs.guest_bar is shown
    assert shown[3] == Ineligible.LIMIT
    while cluster.state.job["state"][3] == engine.PENDING and cluster.advance():
        cluster.snapshot()
    assert shown[3] == Ineligible.NO or cluster.state.job["state"][3] != engine.PENDING


def test_the_replay_reports_its_limits(files: tuple[Path, ...], tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    header = "JobID|User|Account|QOS|Submit|Start|End|State|AllocCPUS|Timelimit|Partition"
    stamps = [f"2024-01-01T00:{minute:02}:00" for minute in range(0, 60, 2)]
    rows = [
        f"{number}|ann|a|normal|{at}|{at}|2024-01-01T02:00:00|COMPLETED|{1 + number % 8}|03:00:00|batch"
        for number, at in enumerate(stamps, 1)
    ]
    log.write_text("\n".join([header, *rows]) + "\n")
    minutes = tmp_path / "qos.txt"
    minutes.write_text("Name|GrpTRESMins|MaxWall\nother|cpu=100|1-00:00:00\n")
    words = ["replay", str(log), "--json", "--store", "none", "--policy", "slurm,measured", "--nodes", "2"]
    words += ["--cores", "8", "--limits", str(files[0]), "--limits", str(minutes)]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    limits = document["log"]["limits"]
    assert limits["files"] == [str(files[0]), str(minutes)]
    assert (limits["associations"], limits["qos"], limits["jobs_counted"]) == (7, 3, len(rows))
    assert limits["groups"] > 0
    assert "GrpTRESMins (1), MaxWall (1)" in limits["not_applied"][0]
    assert document["settings"]["limits"] == limits["files"]
    assert any("limits of associations and QOS" in note for note in document["log"]["notes"])


def test_a_file_that_cannot_be_read_ends_the_replay(tmp_path: Path) -> None:
    log, limits = tmp_path / "log.swf", tmp_path / "limits.txt"
    log.write_text("1 0 0 100 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n")
    limits.write_text("Name|GrpTRES\nnormal|cpu=x\n")
    result = CliRunner().invoke(asactl, ["replay", str(log), "--store", "none", "--limits", str(limits)])
    assert result.exit_code != 0
    assert f"{limits}:2: column grptres: 'x' is not an amount" in str(result.exception or result.output)

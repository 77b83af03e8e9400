"""The state store, on SQLite and on a PostgreSQL that the tests start themselves."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Timer
from typing import ClassVar

import numpy as np
import pytest
from sqlalchemy import create_engine, inspect

from asad.decisions import (
    DECISIONS,
    Admit,
    Cause,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Outcome,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
    vetoed,
)
from asad.errors import StoreError, UsageError
from asad.store import learned, lending_ledger, migrations, process, quota_audit, retention, schema, store
from asad.store.database import BULK_CACHE_MIB, CACHE_MIB, default_path
from asad.store.encoding import to_text
from asad.store.process import this_process
from asad.store.records import AccountTotal, JobEnd, LedgerEntry, QuotaChange
from asad.store.store import Store, file_sha256

LOG = {"path": "/logs/KTH.swf", "sha256": "ab" * 32, "jobs": 3}
MACHINE = {"nodes": 2, "cores": 8}
SETTINGS = {"seed": 1, "poll_s": 30.0}
NAMES = np.array(["100", "101", "12_3", "evil\x1b[2J"])
CAUSE = Cause("asax", "the host uses 35 % of its CPU", {"weights": [0.25, 0.75], "leaf": {"cpu": "light"}})
STARTS = CoAllocate(cause=CAUSE, guest=1, host=0, nodes=(0, 1), share=0.4, capped=True)
CHANGES = SetShare(cause=CAUSE, guest=1, share=0.2)
EXTENDS = ExtendLimit(cause=CAUSE, job=0, by_s=90.0)


def outcomes(*decisions: Decision) -> list[Outcome]:
    return [Outcome(decision, True, "") for decision in decisions]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/asad.db"
    folder = request.getfixturevalue("postgresql")
    server = create_engine(f"postgresql+psycopg://asad@/postgres?host={folder}", isolation_level="AUTOCOMMIT")
    name = f"t{abs(hash(request.node.name)) % 10**12}"
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    server.dispose()
    return f"postgresql://asad@/{name}?host={folder}"


@pytest.fixture
def opened(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


def begin(opened: Store, policy: str = "asax", **options: object) -> store.Run:
    return opened.begin_run("replay", policy, LOG, MACHINE, SETTINGS, **options)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- recording


def test_connections_of_the_daemon_hold_little_of_the_file(tmp_path: Path) -> None:
    kib = []
    for options in ({}, {"cache_mib": BULK_CACHE_MIB}):
        with Store.open(str(tmp_path / "asad.db"), **options) as store, store.reading("test") as connection:
            kib.append(-connection.exec_driver_sql("PRAGMA cache_size").scalar_one())
    assert kib == [1024 * CACHE_MIB, 1024 * BULK_CACHE_MIB]
    assert CACHE_MIB <= 8


def test_decisions_come_back_as_they_were(opened: Store) -> None:
    run = begin(opened)
    run.record(1, 30.0, outcomes(STARTS), NAMES)
    run.record(
        2, 60.0, [Outcome(CHANGES, False, "the guest has ended")], NAMES, host_rows=np.array([-1, 0, -1])
    )
    run.record(3, 90.0, [vetoed(EXTENDS, "limits", "the partition's")], NAMES)
    run.finish({"response_mean_s": 12.5, "losers": 0})

    first, second, third = opened.decisions(run.id)
    assert [record.decision() for record in (first, second, third)] == [STARTS, CHANGES, EXTENDS]
    assert (first.seq, first.cycle, first.time_s, first.job, first.host) == (0, 1, 30.0, "101", "100")
    assert (first.share, first.seconds, first.outcome, first.outcome_reason) == (0.4, None, "done", "")
    assert (second.outcome, second.outcome_reason) == ("refused", "the guest has ended")
    assert second.host == "100", "the snapshot said beside which host the guest runs"
    assert (third.outcome, third.job, third.host, third.seconds) == ("vetoed", "100", None, 90.0)


def test_every_kind_of_decision_can_be_recorded(opened: Store) -> None:
    samples = [
        STARTS,
        CHANGES,
        CoAllocate(cause=CAUSE, guest=1, nodes=(0, 2), demands=(0.5, 1.25)),
        SetShare(cause=CAUSE, share=0.25, host=0),
        SetQuota(cause=CAUSE, guest=1, nodes=(2,), cores=(1.5,)),
        EXTENDS,
        Withdraw(cause=CAUSE, guest=1),
        Admit(cause=CAUSE, job=1),
        Decline(cause=CAUSE, job=0),
        Defer(cause=CAUSE, job=1, until_s=3600.0),
        Start(cause=CAUSE, job=1),
        SetThrottle(cause=CAUSE, job=0, tasks=3),
        SetMemory(cause=CAUSE, job=1, high_bytes=2.0**30),
        Evict(cause=CAUSE, job=1, how="cancel"),
    ]
    assert {type(sample) for sample in samples} == set(DECISIONS.values()), "a new kind needs a sample here"
    run = begin(opened)
    run.record(1, 0.0, outcomes(*samples), NAMES)
    run.flush()
    assert [record.decision() for record in opened.decisions(run.id)] == samples


def test_a_guest_without_a_host_is_stored_with_the_names_of_its_nodes(opened: Store) -> None:
    offers = CoAllocate(cause=CAUSE, guest=1, nodes=(0, 2), demands=(0.5, 1.25))
    quota = SetQuota(cause=CAUSE, guest=1, nodes=(2,), cores=(1.5,))
    lends = SetShare(cause=CAUSE, share=0.25, host=0)
    run = begin(opened)
    run.record(
        1, 0.0, outcomes(offers, quota, lends, STARTS), NAMES, host_rows=[-1, -1], node_names=("a", "b", "c")
    )
    run.flush()
    records = list(opened.decisions(run.id))
    assert [record.decision() for record in records] == [offers, quota, lends, STARTS]
    assert [(record.job, record.host) for record in records] == [
        *(("101", None), ("101", None)),
        *(("100", "100"), ("101", "100")),
    ]
    assert records[0].more == {
        "nodes": [0, 2],
        "demands": [0.5, 1.25],
        "capped": False,
        "node_names": ["a", "c"],
    }
    assert records[1].more == {"nodes": [2], "cores": [1.5], "node_names": ["c"]}
    assert "node_names" not in records[3].more
    assert [record.job for record in opened.decisions(run.id, job="100")] == ["100", "101"]


def test_decisions_that_were_stored_before_there_were_pools_are_read(opened: Store) -> None:
    run = begin(opened)
    run.record(1, 0.0, outcomes(STARTS, CHANGES), NAMES, host_rows=[-1, 0])
    run.flush()
    with opened.writing("test") as connection:
        connection.exec_driver_sql(
            """UPDATE decisions SET more = '{"nodes":[0,1],"capped":true}' WHERE kind = 'co-allocate'"""
        )
    starts, changes = opened.decisions(run.id)
    assert (starts.host, changes.host) == ("100", "100")
    assert [starts.decision(), changes.decision()] == [STARTS, CHANGES]


def test_a_kind_that_names_no_job_is_refused(opened: Store) -> None:
    @dataclass(frozen=True, slots=True)
    class Reboot(Decision):
        kind: ClassVar[str] = "reboot"
        node: int

    with pytest.raises(StoreError, match="'reboot' cannot be stored"):
        begin(opened).record(1, 0.0, outcomes(Reboot(cause=CAUSE, node=1)), NAMES)


@pytest.mark.parametrize("change", ["kind = 'teleport'", """more = '{"colour":"red"}'"""])
def test_a_decision_of_another_version_is_read_as_a_record(opened: Store, change: str) -> None:
    run = begin(opened)
    run.record(1, 0.0, outcomes(STARTS), NAMES)
    run.flush()
    with opened.writing("test") as connection:
        connection.exec_driver_sql(f"UPDATE decisions SET {change}")
    [record] = opened.decisions(run.id)
    assert (record.job, record.host, record.share) == ("101", "100", 0.4)
    assert record.decision() is None


def test_a_share_that_is_not_decided_stays_so(opened: Store) -> None:
    run = begin(opened)
    run.record(1, 0.0, outcomes(SetShare(cause=CAUSE, guest=1, share=math.nan)), NAMES)
    run.flush()
    [record] = opened.decisions(run.id)
    decision = record.decision()
    assert record.share is None
    assert isinstance(decision, SetShare)
    assert math.isnan(decision.share)


def test_decisions_of_one_job_are_those_as_guest_and_as_host(opened: Store) -> None:
    run = begin(opened)
    other = CoAllocate(cause=CAUSE, guest=2, host=3, nodes=(1,), share=0.1)
    run.record(1, 0.0, outcomes(STARTS, other, EXTENDS), NAMES)
    run.flush()
    assert [record.seq for record in opened.decisions(run.id, "100")] == [0, 2]
    assert [record.seq for record in opened.decisions(run.id, "12_3")] == [1]
    assert list(opened.decisions(run.id, "1")) == []
    assert opened.jobs_touched(run.id) == sorted(["100", "101", "12_3", "evil\x1b[2J"])
    assert [record.id for record in opened.runs_of("100")] == [run.id]
    assert opened.runs_of("1") == []


def test_rows_are_written_when_enough_are_gathered(opened: Store) -> None:
    run = begin(opened, flush_every=10)
    for cycle in range(9):
        run.record(cycle, cycle * 30.0, outcomes(STARTS), NAMES)
    assert list(opened.decisions(run.id)) == []
    run.record(9, 270.0, outcomes(STARTS), NAMES)
    assert len(list(opened.decisions(run.id))) == 10
    assert (opened.run(run.id).decisions, opened.run(run.id).checkpoint_s) == (10, 270.0)


def test_reading_goes_page_by_page(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PAGE", 7)
    run = begin(opened)
    for cycle in range(21):
        run.record(cycle, 0.0, outcomes(STARTS), NAMES)
    run.record_ends(JobEnd(str(row), "guest", 0.0, 1.0, 2.0, None, None, False) for row in range(15))
    run.flush()
    assert [record.cycle for record in opened.decisions(run.id)] == list(range(21))
    assert [end.job for end in opened.job_ends(run.id)] == [str(row) for row in range(15)]


def test_a_row_that_is_no_job_is_refused(opened: Store) -> None:
    run = begin(opened)
    with pytest.raises(IndexError, match="row -1"):
        run.record(1, 0.0, outcomes(CoAllocate(cause=CAUSE, guest=-1, host=0, nodes=(), share=0.1)), NAMES)


def test_ends_of_jobs_come_back(opened: Store) -> None:
    run = begin(opened)
    host = JobEnd("100", "host", 0.0, 10.0, 500.0, 5.0, 450.0, True)
    guest = JobEnd("101", "guest", 5.0, math.nan, math.nan, math.nan, math.nan, False)
    run.record_ends([host, guest])
    run.finish({})
    assert list(opened.job_ends(run.id)) == [host, JobEnd("101", "guest", 5.0, None, None, None, None, False)]
    assert list(opened.job_ends(run.id, "100")) == [host]
    assert [record.id for record in opened.runs_of("101")] == [run.id]


def test_hostile_names_come_back_or_are_spelt_out(opened: Store) -> None:
    names = ["'; DROP TABLE runs; --", "%s %(x)s ?", "nul\0", "half \udc80", "ünïcode\u202e"]
    run = begin(opened)
    cause = Cause("asax", "nul\0 and \udc80", {"name": "nul\0 \udc80"})
    for row in range(len(names)):
        run.record(row, 0.0, outcomes(SetShare(cause=cause, guest=row, share=0.1)), names)
    run.finish({})
    records = list(opened.decisions(run.id))
    assert [record.job for record in records] == [*names[:2], "nul\\x00", "half \\udc80", names[4]]
    assert records[0].reason == "nul\\x00 and \\udc80"
    assert records[0].detail == {"name": "nul\0 \udc80"}
    for row, name in enumerate(names):
        assert [record.seq for record in opened.decisions(run.id, name)] == [row]


def test_numbers_of_numpy_are_plain_in_the_store(opened: Store) -> None:
    cause = Cause("asax", "", {"weights": np.array([0.5, np.nan]), "node": np.int32(3)})  # type: ignore[dict-item]
    decision = CoAllocate(
        cause=cause,
        guest=np.int32(1),  # type: ignore[arg-type]
        host=np.int64(0),  # type: ignore[arg-type]
        nodes=(np.int32(4),),  # type: ignore[arg-type]
        share=np.float32(0.5),  # type: ignore[arg-type]
    )
    run = begin(opened)
    run.record(1, np.float64(3.0), outcomes(decision), np.array([7, 8]))
    run.finish({"response_mean_s": math.nan, "losers": np.int64(2)})  # type: ignore[dict-item]
    [record] = opened.decisions(run.id)
    assert (record.job, record.host, record.share) == ("8", "7", 0.5)
    assert record.detail == {"weights": [0.5, None], "node": 3}
    assert record.more == {"nodes": [4], "demands": [], "capped": False}
    assert opened.run(run.id).metrics == {"response_mean_s": None, "losers": 2}


def test_what_is_no_data_is_refused() -> None:
    with pytest.raises(TypeError, match="object is no plain data"):
        to_text({"x": object()})
    assert to_text({"b": math.inf, "a": (1, 2)}, canonical=True) == '{"a":[1,2],"b":null}'


# ------------------------------------------------------------------------------------------------------- runs


def test_a_run_keeps_what_it_was_begun_with(opened: Store) -> None:
    with begin(opened) as run:
        assert opened.run(run.id).state == "running"
        run.record(1, 30.0, outcomes(STARTS), NAMES)
        run.finish({"losers": 1})
    record = opened.run(run.id)
    assert (record.log, record.machine, record.settings) == (LOG, MACHINE, SETTINGS)
    assert (record.kind, record.policy, record.state, record.failure) == ("replay", "asax", "done", "")
    assert record.metrics == {"losers": 1}
    assert record.ended_at is not None
    assert record.started_at <= record.ended_at
    assert record.process == this_process()
    assert json.loads(json.dumps(record.to_json()))["log"] == LOG


def test_a_run_that_breaks_off_says_why(opened: Store) -> None:
    with pytest.raises(ZeroDivisionError), begin(opened) as failed:
        failed.record(1, 30.0, outcomes(STARTS), NAMES)
        raise ZeroDivisionError("no cores")
    with pytest.raises(KeyboardInterrupt), begin(opened) as stopped:
        raise KeyboardInterrupt
    with begin(opened) as forgotten:
        pass
    assert (opened.run(failed.id).state, opened.run(failed.id).failure) == (
        "failed",
        "ZeroDivisionError: no cores",
    )
    assert opened.run(failed.id).decisions == 1, "what was decided before is kept"
    assert opened.run(stopped.id).state == "killed"
    assert opened.run(forgotten.id).failure == "ended without figures"


def test_an_unknown_kind_of_run_is_refused(opened: Store) -> None:
    with pytest.raises(UsageError, match="replay, live, bench"):
        opened.begin_run("dream", "asax", LOG, MACHINE, SETTINGS)  # type: ignore[arg-type]


def test_runs_are_listed_newest_first_and_numbers_never_return(opened: Store) -> None:
    for policy in ("slurm", "static", "asax"):
        begin(opened, policy).finish({})
    assert [(record.id, record.policy) for record in opened.runs(limit=2)] == [(3, "asax"), (2, "static")]
    assert opened.remove_runs([3, 1]) == 2
    assert [record.id for record in opened.runs()] == [2]
    assert begin(opened).id == 4
    with pytest.raises(UsageError, match="no run 3"):
        opened.run(3)


def test_removing_takes_everything_of_a_run_or_nothing(opened: Store) -> None:
    run = begin(opened)
    run.record(1, 0.0, outcomes(STARTS), NAMES)
    run.record_ends([JobEnd("100", "host", 0.0, 1.0, 2.0, None, 2.0, False)])
    run.finish({})
    with pytest.raises(UsageError, match="no run 77"):
        opened.remove_runs([run.id, 77])
    assert len(list(opened.decisions(run.id))) == 1
    opened.remove_runs([run.id])
    assert list(opened.decisions(run.id)) == []
    assert list(opened.job_ends(run.id)) == []


def test_a_run_that_goes_on_is_removed_only_by_force(opened: Store) -> None:
    run = begin(opened)
    with pytest.raises(UsageError, match=f"process {os.getpid()} "):
        opened.remove_runs([run.id])
    opened.remove_runs([run.id], force=True)
    run.record(1, 0.0, outcomes(STARTS), NAMES)
    with pytest.raises(StoreError, match="was removed while it was being recorded"):
        run.flush()


# ----------------------------------------------------------------------------------------------------- killed

KILLED = """
import os, signal, sys
from asad.decisions import Cause, CoAllocate, Outcome
from asad.store.store import Store
opened = Store.open(sys.argv[1])
log, settings = {"path": "x", "sha256": sys.argv[3]}, {"seed": int(sys.argv[4])}
run = opened.begin_run("replay", sys.argv[2], log, {}, settings, flush_every=100)
for cycle in range(250):
    decision = CoAllocate(cause=Cause("asax", "", {}), guest=1, host=0, nodes=(0,), share=0.5)
    run.record(cycle, float(cycle), [Outcome(decision, True, "")], ["a", "b"])
os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_run(url: str, policy: str = "asax", sha256: str = "aa", seed: int = 1) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, url, policy, sha256, str(seed)], check=False, timeout=300
    )
    assert killed.returncode == -signal.SIGKILL


def test_a_killed_run_is_whole_up_to_its_last_flush(url: str) -> None:
    kill_a_run(url)
    with Store.open(url) as opened:
        [record] = [run for run in opened.runs() if run.state == "killed"]
        assert (record.state, record.decisions, record.checkpoint_s) == ("killed", 200, 199.0)
        assert "went away" in record.failure
        assert [decision.seq for decision in opened.decisions(record.id)] == list(range(200))


@pytest.mark.slow
def test_starting_again_supersedes_the_killed_run_and_no_other(url: str) -> None:
    for policy, sha256, seed in (
        ("asax", "aa", 1),
        ("static", "aa", 1),
        ("asax", "bb", 1),
        ("asax", "aa", 2),
    ):
        kill_a_run(url, policy, sha256, seed)
    with Store.open(url) as opened:
        live = opened.begin_run("replay", "asax", {"path": "x", "sha256": "aa"}, {}, {"seed": 1})
        assert len(opened.runs()) == 5, "without being asked to, nothing is superseded"
        again = opened.begin_run(
            "replay", "asax", {"path": "elsewhere", "sha256": "aa"}, {}, {"seed": 1}, supersede_killed=True
        )
        assert [record.id for record in opened.runs()] == [again.id, live.id, 4, 3, 2]
        assert list(opened.decisions(1)) == []
        assert [run.id for run in opened.runs() if run.state == "killed"] == [4, 3, 2]
        with opened.reading("test") as connection:
            stored = connection.exec_driver_sql(
                "SELECT id FROM runs WHERE state = 'killed' ORDER BY id"
            ).all()
        assert [row.id for row in stored] == [2, 3, 4], "what is known to be killed is written down"


def test_of_another_machine_nothing_is_certain() -> None:
    here = this_process()
    assert not here.is_gone()
    fields = {name: getattr(here, name) for name in here.__slots__}

    def gone(**changes: object) -> bool:
        return process.ProcessMark(**{**fields, **changes}).is_gone()

    assert gone(pid_started=here.pid_started + 1), "the number came back, the process did not"
    assert gone(boot_id="before the reboot")
    assert not gone(boot_id="elsewhere", host="another-node")
    assert not gone(pid_namespace="pid:[1]", pid=2**22 + 1)
    assert gone(pid=2**22 + 1)


def test_a_process_that_ended_but_was_not_waited_for_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.started_ticks(child.pid) is None
    child.wait()
    assert process.started_ticks(child.pid) is None


def test_a_process_that_proc_hides_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    mark = process.ProcessMark(
        **{**{n: getattr(this_process(), n) for n in this_process().__slots__}, "pid": 2**22 + 1}
    )
    monkeypatch.setattr(os, "kill", refuse)
    assert not mark.is_gone()


# ----------------------------------------------------------------------------------------------------- schema


def test_tables_and_migrations_agree(opened: Store) -> None:
    with opened.reading("test") as connection:
        found = inspect(connection)
        assert set(found.get_table_names()) == set(schema.METADATA.tables)
        for name, table in schema.METADATA.tables.items():
            columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
            assert list(columns) == [column.name for column in table.columns]
            for column in table.columns:
                if not column.primary_key:  # SQLite calls those nullable
                    assert columns[column.name] == column.nullable, f"{name}.{column.name}"


def test_migrations_apply_once_in_order(url: str) -> None:
    first = migrations.installed_migrations()
    second = migrations.Migration(len(first) + 1, "more", ("ALTER TABLE runs ADD COLUMN note TEXT",))
    with Store.open(url) as opened:
        begin(opened).finish({})
        with opened.writing("test") as connection:
            migrations.upgrade(connection, [*first, second], "store")
            migrations.upgrade(connection, [*first, second], "store")
        with opened.reading("test") as connection:
            assert migrations.version_of(connection, "store") == second.version
            assert connection.exec_driver_sql("SELECT id, note FROM runs").all() == [(1, None)]


def test_a_migration_that_fails_leaves_the_old_schema(url: str) -> None:
    first = migrations.installed_migrations()
    broken = migrations.Migration(len(first) + 1, "broken", ("CREATE TABLE half (x INTEGER)", "NONSENSE"))
    with Store.open(url) as opened:
        with pytest.raises(StoreError), opened.writing("test") as connection:
            migrations.upgrade(connection, [*first, broken], "store")
        with opened.reading("test") as connection:
            assert not inspect(connection).has_table("half")
            assert migrations.version_of(connection, "store") == len(first)


def test_a_store_newer_than_the_code_is_refused(url: str) -> None:
    with Store.open(url) as opened, opened.writing("test") as connection:
        connection.exec_driver_sql("INSERT INTO schema_version VALUES (99, 'future', 0)")
    with pytest.raises(StoreError, match=r"has schema version 99, .*upgrade asad"):
        Store.open(url)


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "firefox.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (x)")
    with pytest.raises(StoreError, match=r"tables of something else \(bookmarks\)"):
        Store.open(str(path))


def test_scripts_are_cut_at_semicolons_at_the_end_of_a_line() -> None:
    script = (
        "-- first; a comment\nCREATE TABLE a (\n    x TEXT DEFAULT ';' -- no\n);\n\nINSERT INTO a VALUES (1);"
    )
    cut = migrations.statements(
        "-- first; a comment\nCREATE TABLE a (\n  x TEXT DEFAULT ';x'\n);\n\nDROP TABLE a;"
    )
    assert cut == ("CREATE TABLE a (\n  x TEXT DEFAULT ';x'\n)", "DROP TABLE a")
    assert len(migrations.statements(script)) == 2


# ---------------------------------------------------------------------------------------------------- opening


def test_sqlite_is_opened_in_wal_mode_with_foreign_keys(tmp_path: Path) -> None:
    with (
        Store.open(str(tmp_path / "new" / "folder" / "asad.db")) as opened,
        opened.reading("test") as connection,
    ):
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 30_000}


def test_the_default_store_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Store.open() as opened:
        begin(opened).finish({})
        assert str(opened) == f"{tmp_path}/asad/asad.db"
    assert (tmp_path / "asad" / "asad.db").is_file()
    assert (tmp_path / "asad").stat().st_mode & 0o077 == 0, "job names are nobody else's business"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", "/home/op")
    assert default_path() == Path("/home/op/.local/state/asad/asad.db")


def test_a_path_and_its_url_are_the_same_store(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "a.db")) as opened:
        begin(opened).finish({})
    with Store.open(f"sqlite:///{tmp_path}/a.db", create=False) as opened:
        assert len(opened.runs()) == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("mysql://root:secret@db/asad", "not by mysql"),
        ("postgresql://x:secret@db:port/asad", "cannot be read"),
        ("", "is empty"),
    ],
)
def test_a_wrong_url_is_a_usage_error_that_keeps_the_password(wrong: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Store.open(wrong)
    assert "secret" not in str(caught.value)


def test_a_missing_store_is_not_made_for_a_reader(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no store"):
        Store.open(str(tmp_path / "none" / "asad.db"), create=False)
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_no_database_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is text, and enough of it to be read as the header of a database file\n" * 20)
    with pytest.raises(StoreError, match=r"notes\.txt: .*not a database; move the file away"):
        Store.open(str(path))
    folder = tmp_path / "file"
    folder.write_text("")
    with pytest.raises(StoreError, match="its folder cannot be made"):
        Store.open(str(folder / "asad.db"))


def test_postgresql_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    missing = find_spec("psycopg") is None
    expected = r"pip install '/path/to/asad\[postgres\]'" if missing else "check that the database is there"
    with pytest.raises(StoreError, match=expected) as caught:
        Store.open(f"postgresql://asad:secret@/asad?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_many_may_open_a_new_store_at_once(url: str) -> None:
    def record(_: int) -> int:
        with Store.open(url) as opened:
            run = begin(opened)
            for cycle in range(20):
                run.record(cycle, 0.0, outcomes(STARTS), NAMES)
                run.flush()
            run.finish({})
            return run.id

    with ThreadPoolExecutor(4) as pool:
        numbers = sorted(pool.map(record, range(4)))
    assert numbers == [1, 2, 3, 4]
    with Store.open(url) as opened:
        assert [record.decisions for record in opened.runs()] == [20] * 4


def test_a_new_store_that_another_is_making_is_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / "asad.db")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA user_version = 0")  # the file has a header
    other.execute("BEGIN IMMEDIATE")  # from here on SQLite refuses a change of the journal at once
    let_go = Event()

    def end() -> None:
        let_go.set()
        other.rollback()

    timer = Timer(0.2, end)
    timer.start()
    try:
        with Store.open(path) as opened:
            assert let_go.is_set()
            assert opened.runs() == []
    finally:
        timer.join()
        other.close()


def test_a_new_store_that_another_keeps_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asad.store.database.BUSY_TIMEOUT_S", 0.1)
    path = str(tmp_path / "asad.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"asad\.db: opening: database is locked; another process"):
            Store.open(path)


def test_reading_goes_on_while_another_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "asad.db")
    with Store.open(path) as writer, Store.open(path) as reader:
        begin(writer).finish({})
        with writer.writing("test") as connection:
            connection.exec_driver_sql("DELETE FROM runs")
            assert len(reader.runs()) == 1


def test_removing_gives_the_room_back(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    with Store.open(str(path)) as opened:
        run = begin(opened)
        run.record(1, 0.0, outcomes(*[STARTS] * 5_000), NAMES)
        run.finish({})
        opened.remove_runs([])  # writes the journal back
        before = path.stat().st_size
        opened.remove_runs([run.id])
        assert path.stat().st_size < before / 5


def test_a_log_is_known_by_its_sha256(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"abc")
    assert file_sha256(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# ------------------------------------------------------------------------------------------------ live clusters

LIVE = outcomes(STARTS, CHANGES)


def test_what_was_learned_is_kept_by_application(opened: Store) -> None:
    learned.save(opened, "slurm/asax", {"ann/sim/8": {"a": 1.5}, "*": {"b": [1, math.nan]}})
    learned.save(opened, "slurm/asax", {"ann/sim/8": {"a": 2}})
    learned.save(opened, "other", {"ann/sim/8": {"a": 3}})
    learned.save(opened, "other", {})
    assert learned.load(opened, "slurm/asax") == {"ann/sim/8": {"a": 2}, "*": {"b": [1, None]}}
    assert learned.load(opened, "nobody") == {}


def test_many_applications_are_kept_at_once(opened: Store) -> None:
    many = {f"user{number}/name/1": {"n": number} for number in range(5000)}
    learned.save(opened, "s", many)
    learned.save(opened, "s", many)
    assert learned.load(opened, "s") == many


def test_applications_whose_names_are_spelt_out_alike_are_one(opened: Store) -> None:
    learned.save(opened, "s", {"user/\ud83d/1": {"n": 1}, "user/\\ud83d/1": {"n": 2}})
    assert learned.load(opened, "s") == {"user/\\ud83d/1": {"n": 2}}


def test_the_ledger_is_summed_by_account_and_entries_count_once(opened: Store) -> None:
    entry = LedgerEntry("10", "host", 100.0, "physics", 50.0, 60.0)
    lending_ledger.add(opened, [entry, entry])
    lending_ledger.add(opened, [entry, LedgerEntry("11", "host", 200.0, "physics", 25.0, 0.0)])
    lending_ledger.add(opened, [LedgerEntry("12", "guest", 300.0, "evil\0\x1b[2J", 75.0, 0.0)])
    assert lending_ledger.totals(opened) == [
        AccountTotal("evil\\x00\x1b[2J", "guest", 1, 75.0, 0.0),
        AccountTotal("physics", "host", 2, 75.0, 60.0),
    ]
    assert [total.jobs for total in lending_ledger.totals(opened, since_s=150.0)] == [1, 1]


def test_changes_of_quotas_are_reported_by_job(opened: Store) -> None:
    changes = [QuotaChange("n1", float(t), "10", "cpu.max", "max", f"{t}000", "leased") for t in (1, 2, 3)]
    quota_audit.add(opened, [*changes, QuotaChange("n1", 2.0, "11", "cpu.idle", None, "1", "guest")])
    assert quota_audit.of_job(opened, "10") == changes
    assert quota_audit.of_job(opened, "10", limit=2) == changes[1:]
    assert quota_audit.of_job(opened, "11")[0].old is None


def test_what_is_old_is_forgotten_and_replays_stay(opened: Store) -> None:
    for kind, policy in (("live", "old"), ("live", "new"), ("replay", "kept")):
        with opened.begin_run(kind, policy, None, {}, {}) as run:  # type: ignore[arg-type]
            time_s = 500.0 if policy == "new" else 50.0
            run.record(1, time_s, LIVE, NAMES)
            run.record_ends([JobEnd("10", "host", 0.0, 1.0, time_s, None, None, False)])
            run.finish({})
    running = opened.begin_run("live", "running", None, {}, {})
    running.record(1, 50.0, LIVE, NAMES)
    running.flush()
    lending_ledger.add(opened, [LedgerEntry("10", "host", t, "a", 1.0, 0.0) for t in (50.0, 500.0)])
    quota_audit.add(opened, [QuotaChange("n", t, "10", "f", None, None, "") for t in (50.0, 500.0)])
    # of the old run two decisions, an end and the run itself; two decisions of the running one; an entry, a change
    assert retention.forget_before(opened, 100.0) == 4 + 2 + 2
    assert {run.policy for run in opened.runs()} == {"new", "kept", "running"}
    assert len(quota_audit.of_job(opened, "10")) == 1
    assert retention.forget_before(opened, 100.0) == 0


def test_a_run_goes_on_where_it_stopped(opened: Store) -> None:
    run = opened.begin_run("live", "asax", None, {}, {})
    run.record(1, 1.0, LIVE, NAMES)
    run.flush()
    again = opened.continue_run(run.id)
    again.record(2, 2.0, LIVE, NAMES)
    again.finish({})
    assert [decision.seq for decision in opened.decisions(run.id)] == [0, 1, 2, 3]
    assert opened.run(run.id).decisions == 4
    with pytest.raises(UsageError, match="there is no run 99"):
        opened.continue_run(99)

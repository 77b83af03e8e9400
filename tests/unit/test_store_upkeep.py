"""A store is exported, backed up, vacuumed and rid of a user while a daemon writes it, and whatever kills that."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import func, select
from test_store_databases import opened, url

from asad.cli.asactl import asactl
from asad.decisions import Cause, CoAllocate, Outcome
from asad.errors import StoreError, UsageError
from asad.experts import FEATURES
from asad.model import ShareCases
from asad.store import (
    erasure,
    learned,
    lending_ledger,
    quota_audit,
    schema,
    share_cases,
    statements,
    upkeep,
)
from asad.store.records import (
    JobEnd,
    LedgerEntry,
    PlanRecord,
    QuotaChange,
    StatementChanges,
    StatementEntry,
    StatementRecord,
)
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

__all__ = ["opened", "url"]  # fixtures

START_S = 1_800_000_000.0
HOSTILE = ("=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\tx", "\r=1", 'quo"te,\n', "evil\x1b[2J", "é\0")
SCOPE = "slurm/admit/sow"


def fill(opened: Store, *, jobs: int = 20) -> int:
    """A live run of jobs of ann (even) and bob (odd); each lends to the next. The run."""
    states, ones = np.full((jobs, len(FEATURES)), 0.5, np.float32), np.full(jobs, 0.5)
    users = ["bob" if k % 2 else "ann" for k in range(jobs)]
    names = [str(k) for k in range(jobs)]
    with opened.begin_run("live", "asax", None, {}, {}) as run:
        for k in range(jobs - 1):
            share = CoAllocate(Cause("asax", "because", {"k": k}), k, (0,), host=k + 1, share=0.5)
            run.record(k, START_S + k, [Outcome(share, True, "")], names)
        run.record_ends([JobEnd(name, "host", 0.0, 1.0, START_S, None, None, False) for name in names])
        run.finish({})
    share_cases.add(
        opened,
        run.id,
        [ShareCases(names, [f"{user}/sim/8" for user in users], ones * START_S, states, ones, ones, ones)],
    )
    lending_ledger.add(
        opened,
        [
            LedgerEntry(name, "host", START_S, f"{user}s", 1.0, 0.0)
            for name, user in zip(names, users, strict=True)
        ],
    )
    quota_audit.add(
        opened, [QuotaChange("n1", START_S, name, f"/job_{name}/cpu.max", "a", "b", "c") for name in names]
    )
    learned.save(opened, "slurm/asax", {f"{user}/sim/8": {"n": 1} for user in ("ann", "bob", "annette")})
    stated = {
        k: StatementRecord(k, user, f"{user}'s job", str(k), state, "", 1.0, START_S, {"u": user}, {})
        for k, (user, state) in enumerate([("ann", "completed"), ("bob", "completed"), ("ann", "planned")])
    }
    entries = [
        StatementEntry(k, account, START_S, str(k), "paid", amount)
        for k, user in enumerate(("ann", "bob"))
        for account, amount in ((user, -5), ("(house)", 5))
    ]
    plans = {k: PlanRecord(k, 1.0, {"job": f"{user}'s"}) for k, user in enumerate(("ann", "bob"))}
    statements.save(opened, SCOPE, StatementChanges(stated, plans, entries))
    return run.id


def asked(*words: str, status: int = 0, given: str | None = None) -> Result:
    result = CliRunner().invoke(asactl, ["store", *words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def count(opened: Store, table: str) -> int:
    with opened.reading("test") as connection:
        return connection.scalar(select(func.count()).select_from(schema.METADATA.tables[table])) or 0


# ------------------------------------------------------------------------------------------------------- size


def test_size_counts_rows_and_bytes_of_every_table(url: str, opened: Store) -> None:
    fill(opened)
    reported = json.loads(asked("size", "--store", url, "--json").stdout)
    tables = {one["table"]: one for one in reported["tables"]}
    assert set(tables) == set(schema.METADATA.tables)
    assert tables["decisions"]["rows"] == 19 and tables["decisions"]["bytes"] >= 4096
    assert sum(one["bytes"] for one in tables.values()) <= reported["bytes"] + 2**20
    assert "decisions" in asked("size", "--store", url).stdout


# ----------------------------------------------------------------------------------------------------- export


@pytest.fixture
def hostile(opened: Store) -> Store:
    lending_ledger.add(
        opened,
        [LedgerEntry(name, "host", START_S + k, name, -1.5, 0.0) for k, name in enumerate(HOSTILE)],
    )
    return opened


def test_csv_has_no_formulas_of_users_and_numbers_stay(url: str, hostile: Store, tmp_path: Path) -> None:
    text = asked("export", "ledger", "--store", url).stdout
    rows = {float(row["time_s"]) - START_S: row for row in csv.DictReader(io.StringIO(text, newline=""))}
    for k, name in enumerate(HOSTILE):
        safe = name.replace("\0", "\\x00")
        assert rows[k]["job"] == (f"'{safe}" if k < 6 else safe)
        assert rows[k]["lent_core_s"] == "-1.5", "a number is no formula"
    out = tmp_path / "raw.csv"
    asked("export", "ledger", "--store", url, "--raw", "-o", str(out))
    with out.open(newline="", encoding="utf-8") as file:
        assert {row["job"] for row in csv.DictReader(file)} == {
            name.replace("\0", "\\x00") for name in HOSTILE
        }
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_json_lines_and_parquet_hold_what_the_store_holds(url: str, hostile: Store, tmp_path: Path) -> None:
    lines = [
        json.loads(line) for line in asked("export", "ledger", "--store", url, "--json").stdout.splitlines()
    ]
    assert [set(line) for line in lines] == [set(schema.ledger.c.keys())] * len(HOSTILE)
    out = tmp_path / "ledger.parquet"
    asked("export", "ledger", "--store", url, "-o", str(out))
    read = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
    assert sorted(read, key=str) == sorted(lines, key=str)
    empty = tmp_path / "none.parquet"
    asked("export", "statements", "--store", url, "-o", str(empty))
    assert pytest.importorskip("pyarrow.parquet").read_table(empty).column_names == schema.statements.c.keys()


def test_rows_are_chosen_by_time_run_and_column(url: str, opened: Store) -> None:
    run = fill(opened)
    words = ["export", "decisions", "--store", url, "--columns", "job,seq"]
    chosen = asked(*words, "--since", "2027-01-15T08:00:03", "--until", str(START_S + 6)).stdout
    assert chosen.splitlines() == ["job,seq", "3,3", "4,4", "5,5"]
    assert len(asked(*words, "--run", str(run)).stdout.splitlines()) == 20
    assert asked(*words, "--run", "99").stdout == "job,seq\n"
    assert asked(*words, "--until", "99999d").stdout == "job,seq\n"


def test_a_table_larger_than_a_page_comes_whole_and_once(url: str, opened: Store) -> None:
    rows = [QuotaChange("n", float(k), str(k), "f", None, "1", "") for k in range(4500)]
    quota_audit.add(opened, rows)
    found = asked("export", "quota_audit", "--store", url, "--columns", "job,old").stdout.splitlines()
    assert sorted(found[1:]) == sorted(f"{k}," for k in range(4500))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["decision"], "there is no such table; did you mean 'decisions'?"),
        (["ledger", "--columns", "jobs"], "there is no such column; did you mean 'job'?"),
        (["run_number", "--since", "1d"], "has no time"),
        (["ledger", "--run", "1"], "belongs to no run"),
        (["ledger", "--format", "parquet"], "name a file with --out"),
        (["ledger", "--json", "--format", "csv"], "contradict each other"),
    ],
)
def test_what_cannot_be_exported_is_named(tmp_path: Path, words: list[str], problem: str) -> None:
    place = str(tmp_path / "asad.db")
    with Store.open(place), pytest.raises(UsageError) as caught:
        asked("export", *words, "--store", place)
    assert problem in str(caught.value)


def test_a_time_that_is_none_is_named() -> None:
    output = asked("export", "ledger", "--since", "yester\x1bday", status=2).output
    assert "write 2026-01-31" in output and "\x1b" not in output


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install '/path/to/asad\[parquet\]'"):
        asked("export", "ledger", "-o", str(tmp_path / "a.parquet"))
    assert list(tmp_path.iterdir()) == []


def test_an_export_takes_the_place_of_no_store(tmp_path: Path) -> None:
    place = tmp_path / "asad.db"
    with Store.open(str(place)), pytest.raises(UsageError, match="is the store itself"):
        asked("export", "ledger", "--store", str(place), "-o", str(place))
    with Store.open(str(place)), pytest.raises(UsageError, match="cannot be written"):
        asked("export", "ledger", "--store", str(place), "-o", str(tmp_path / "none" / "a.csv"))


# ----------------------------------------------------------------------------------------------------- backup


def writing(place: str, stop: threading.Event, every_s: float = 0.0) -> threading.Thread:
    """Somebody who writes some 10 kB without end, again after `every_s`."""

    def write() -> None:
        with Store.open(place) as store:
            number = 0
            while not stop.wait(every_s):
                changes = [
                    QuotaChange("n", START_S, str(number), "f", None, "x" * 500, "") for _ in range(20)
                ]
                quota_audit.add(store, changes)
                number += 1

    thread = threading.Thread(target=write)
    thread.start()
    return thread


def test_a_backup_beside_a_writer_is_whole_and_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "PAGES", 5)
    place, copy, stop = str(tmp_path / "asad.db"), tmp_path / "backup.db", threading.Event()
    with Store.open(place) as opened:
        run = fill(opened)
        quota_audit.add(opened, [QuotaChange("n", 0.0, "0", "f", None, "y" * 900, "") for _ in range(2000)])
    thread = writing(place, stop)
    try:
        copy.write_bytes(b"")
        report = json.loads(asked("backup", str(copy), "--store", place, "--json").stdout)
        assert report["bytes"] == copy.stat().st_size
        asked("backup", str(copy), "--store", place)  # of the same name again
    finally:
        stop.set()
        thread.join()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if "backup" in path.name) == ["backup.db"]
    with Store.open(str(copy)) as store, store.reading("test") as connection:
        assert len(list(store.decisions(run))) == 19
        each = select(func.count()).select_from(schema.quota_audit).group_by(schema.quota_audit.c.job)
        written = connection.scalars(
            each.where(schema.quota_audit.c.node == "n", schema.quota_audit.c.time_s > 1)
        ).all()
        assert set(written) <= {20, 21}, "no transaction is cut in two"


def test_a_backup_replaces_nothing_but_a_backup(tmp_path: Path) -> None:
    place, other = tmp_path / "asad.db", tmp_path / "thesis.tex"
    other.write_text("years of work")
    with Store.open(str(place)):
        for path, problem in (
            (other, "is no backup"),
            (place, "is the store itself"),
            (tmp_path, "is a folder"),
        ):
            with pytest.raises(UsageError, match=problem):
                asked("backup", str(path), "--store", str(place))
    assert other.read_text() == "years of work"


def test_a_damaged_copy_is_not_kept(tmp_path: Path) -> None:
    place = tmp_path / "asad.db"
    with Store.open(str(place)) as store:
        quota_audit.add(store, [QuotaChange("n", 0.0, str(k), "f", None, "y" * 900, "") for k in range(500)])
    with place.open("r+b") as file:
        for page in range(30, 90, 3):
            file.seek(4096 * page)
            file.write(os.urandom(4096))
    old = tmp_path / "backup.db"
    old.write_bytes(upkeep.HEADER + b"the backup of yesterday")
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        asked("backup", str(old), "--store", str(place))
    assert old.read_bytes().endswith(b"yesterday")
    assert sorted(path.name for path in tmp_path.iterdir() if "partial" in path.name) == []


SCRIPT = """
import os, signal, sys
from pathlib import Path
from asad.store import upkeep
from asad.store.store import Store

what, place, out = sys.argv[1:]
upkeep.PAGES = 20
calls = []
def kill(done, whole):
    calls.append(done)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
with Store.open(place) as store:
    if what == "backup":
        upkeep.backup(store, Path(out), kill)
    else:
        upkeep.vacuum(store, kill)
"""


@pytest.mark.parametrize("what", ["backup", "vacuum"])
def test_kill_9_leaves_the_store_and_the_old_backup_as_they_were(tmp_path: Path, what: str) -> None:
    place, out = tmp_path / "asad.db", tmp_path / "backup.db"
    with Store.open(str(place)) as store:
        quota_audit.add(store, [QuotaChange("n", 0.0, str(k), "f", None, "y" * 900, "") for k in range(2000)])
        run = fill(store)
        with store.writing("test") as connection:
            connection.exec_driver_sql("DELETE FROM quota_audit WHERE why = ''")
    upkeep_old = upkeep.HEADER + b"yesterday"
    out.write_bytes(upkeep_old)
    died = subprocess.run([sys.executable, "-c", SCRIPT, what, str(place), str(out)])
    assert died.returncode == -signal.SIGKILL
    assert out.read_bytes() == upkeep_old
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if what == "backup":
        assert len(list(tmp_path.glob(".backup.db.*.partial"))) == 1
        asked("backup", str(out), "--store", str(place))
        assert list(tmp_path.glob(".backup.db.*")) == [], "what was left is removed by the next"
    else:
        before = place.stat().st_size
        asked("vacuum", "--store", str(place))
        assert place.stat().st_size < before / 3
    with Store.open(str(place)) as store:
        assert len(list(store.decisions(run))) == 19


def test_a_partial_file_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a[1]*.db"
    with upkeep.whole_file(path) as first, upkeep.whole_file(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


def test_postgresql_is_dumped_and_comes_back(postgresql: str, tmp_path: Path) -> None:
    if upkeep._program("pg_dump") is None:
        pytest.skip("no pg_dump (apt-get install postgresql)")
    names = [f"b{os.getpid()}", f"c{os.getpid()}"]
    place, again = (f"postgresql://asad:hunter2@/{name}?host={postgresql}" for name in names)
    with Store.open(f"postgresql://asad@/postgres?host={postgresql}") as server:
        for name in names:
            with server.autocommit("test") as connection:
                connection.exec_driver_sql(f"CREATE DATABASE {name}")
    with Store.open(place) as store:
        run = fill(store)
    out = tmp_path / "store.dump"
    asked("backup", str(out), "--store", place)
    asked("backup", str(out), "--store", place)
    assert out.read_bytes()[:5] == b"PGDMP" and stat.S_IMODE(out.stat().st_mode) == 0o600
    restore = [
        str(upkeep._program("pg_restore")),
        f"--dbname=postgresql://asad@/{names[1]}?host={postgresql}",
        str(out),
    ]
    subprocess.run(restore, check=True)
    with Store.open(again) as store:
        assert len(list(store.decisions(run))) == 19


def test_without_pg_dump_its_line_is_printed(
    opened: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opened.url.get_backend_name() == "sqlite":
        monkeypatch.setattr(upkeep.shutil, "which", lambda name: None)
        upkeep.backup(opened, tmp_path / "copy.db", lambda done, whole: None)  # needs none
        return
    monkeypatch.setattr(upkeep, "_program", lambda name: None)
    with pytest.raises(
        StoreError, match=r"pg_dump is not installed here; .* pg_dump --format=custom --file=FILE"
    ):
        upkeep.backup(opened, tmp_path / "copy", lambda done, whole: None)
    assert list(tmp_path.glob("*copy*")) == []


# ------------------------------------------------------------------------------------------------- vacuum


def test_vacuum_gives_space_back_beside_a_writer(tmp_path: Path) -> None:
    place, stop = str(tmp_path / "asad.db"), threading.Event()
    with Store.open(place) as opened:
        # Much more than the writer can add meanwhile, its journal of 4 MB included.
        quota_audit.add(opened, [QuotaChange("m", 0.0, "0", "f", None, "y" * 900, "") for _ in range(30_000)])
        with opened.writing("test") as connection:
            connection.exec_driver_sql("DELETE FROM quota_audit")
        size = upkeep.total_bytes(opened)
        thread = writing(place, stop, every_s=0.02)
        try:
            report = json.loads(asked("vacuum", "--store", place, "--json").stdout)
        finally:
            stop.set()
            thread.join()
        assert report["bytes_before"] >= size > 2 * report["bytes_after"]
    with closing(sqlite3.connect(place)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_vacuum_of_postgresql_and_of_a_file_that_cannot(url: str, opened: Store, tmp_path: Path) -> None:
    fill(opened)
    assert "before" in asked("vacuum", "--store", url).stdout
    if opened.url.get_backend_name() == "sqlite":
        place = tmp_path / "whole.db"
        with closing(sqlite3.connect(str(opened.url.database))) as connection:
            connection.execute("PRAGMA auto_vacuum = NONE")
            connection.execute(f"VACUUM INTO '{place}'")
        with Store.open(str(place)) as other, pytest.raises(StoreError, match="stop the daemon and run"):
            upkeep.vacuum(other, lambda done, whole: None)


# -------------------------------------------------------------------------------------------------- erase


def erase(url: str, *words: str, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked("erase", "--store", url, "--json", *words, **options).stdout)
    return found


def test_a_user_is_erased_and_everybody_else_stays(url: str, opened: Store, tmp_path: Path) -> None:
    run = fill(opened)
    looked = erase(url, "--user", "ann", "--dry-run")
    assert looked["dry_run"] and not looked["pseudonym"] and looked["jobs"] == 10
    assert count(opened, "decisions") == 19, "nothing has changed"
    done = erase(url, "--user", "ann", "--yes")
    assert {name: rows for name, rows in done["rows"].items() if name != "share_cases"} == {
        name: rows for name, rows in looked["rows"].items() if name != "share_cases"
    }
    decisions = list(opened.decisions(run))
    assert {int(one.job) % 2 for one in decisions} == {1}, "bob's"
    assert {one.host for one in decisions} == {erasure.NOBODY}, "they were lent to by ann's"
    assert sorted(int(end.job) % 2 for end in opened.job_ends(run)) == [1] * 10
    assert set(share_cases.load(opened, [run]).application) == {"bob/sim/8"}
    assert set(learned.load(opened, "slurm/asax")) == {"bob/sim/8", "annette/sim/8"}
    stated = statements.statements(opened, SCOPE)
    assert [(one.number, one.owner) for one in stated] == [(2, "ann"), (1, "bob")]
    assert done["open_statements"] == 1 and list(statements.plans(opened, SCOPE, [0, 1])) == [1]
    balances = {one.account: one.balance_micro for one in statements.balances(opened)}
    assert balances == {"(house)": 10, "bob": -5, done["pseudonym"]: -5}
    assert lending_ledger.totals(opened)[0].jobs == 10, "the charge account anns still has its sums"
    assert done["mentions"]["statements.owner"] == 1, "the open one is named"
    again = erase(url, "--user", "ann", "--yes")
    assert not any(again["rows"].values()) and not again["pseudonym"]


def test_jobs_that_only_the_operator_knows_are_given(url: str, opened: Store) -> None:
    run = fill(opened)
    with opened.writing("test") as connection:
        for table in ("share_cases", "statements"):
            connection.exec_driver_sql(f"DELETE FROM {table}")
    assert erase(url, "--user", "ann", "--dry-run")["jobs"] == 0
    assert erase(url, "--user", "ann", "--yes", "--jobs", "-", given="0|\n2\n\n4\n")["jobs"] == 3
    assert {one.job for one in opened.decisions(run)} == {str(k) for k in range(19)} - {"0", "2", "4"}


def test_erasing_asks_first(url: str, opened: Store) -> None:
    fill(opened)
    result = CliRunner().invoke(asactl, ["store", "erase", "--user", "ann", "--store", url], input="n\n")
    assert result.exit_code == 1 and "to be erased" in result.output
    assert count(opened, "decisions") == 19
    assert "nothing to erase" in asked("erase", "--user", "nobody\x1b[2J", "--store", url, "--yes").output


def test_nothing_of_the_name_is_left_in_the_file(tmp_path: Path) -> None:
    place, name = tmp_path / "asad.db", "annabel-of-the-lab"
    with Store.open(str(place)) as store:
        share_cases.add(
            store,
            store.begin_run("live", "asax", None, {}, {}).id,
            [
                ShareCases(
                    ["1"] * 300,
                    [f"{name}/sim/8"] * 300,
                    np.full(300, START_S),
                    np.full((300, len(FEATURES)), 0.5, np.float32),
                    *[np.full(300, 0.5)] * 3,
                )
            ],
        )
        learned.save(store, "s", {f"{name}/x/1": {"n": 1}})
    assert name.encode() in place.read_bytes()
    assert erase(str(place), "--user", name, "--yes")["mentions"] == {}
    left = [path for path in tmp_path.iterdir() if name.encode() in path.read_bytes()]
    assert left == []


@pytest.mark.parametrize("name", ["%", "_", "a%", "ANN", "ann' OR '1'='1", "", "ann/sim"])
def test_a_name_is_no_pattern(url: str, opened: Store, name: str) -> None:
    fill(opened)
    if not name or "/" in name:
        with pytest.raises(UsageError, match="--user"):
            asked("erase", "--user", name, "--store", url, "--yes")
    else:
        erase(url, "--user", name, "--yes")
    assert count(opened, "decisions") == 19 and len(learned.load(opened, "slurm/asax")) == 3


# ------------------------------------------------------------------------------------------------- restore


def test_a_daemon_starts_on_a_backup_and_goes_on(tmp_path: Path) -> None:
    place, folder = tmp_path / "asad.db", tmp_path / "restored"
    with Store.open(str(place)) as store:
        run = fill(store)
        learned.save(store, "recorded/static", {"ann/sim/8": {"n": 1}})
    folder.mkdir(mode=0o700)
    asked("backup", str(folder / "asad.db"), "--store", str(place))
    log = tmp_path / "two.swf"
    log.write_text("; MaxNodes: 1\n; MaxProcs: 2\n1 0 -1 60 2 -1 -1 -1 90 -1 1 1 1 1 -1 -1 -1 -1\n")
    config = tmp_path / "asad.toml"
    config.write_text(
        f'[daemon]\ncluster = "recorded"\nstate_dir = "{folder}"\nsocket = "{tmp_path}/s"\n'
        f'[policies]\nshare = "exclusive"\n[metrics]\nlisten = ""\n[recorded]\nlog = "{log}"\nspeed = 1e9\n'
    )
    daemon = [sys.executable, "-c", "from asad.cli.daemon import main; main()", "--config", str(config)]
    ended = subprocess.run(daemon, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    with Store.open(str(folder / "asad.db")) as store:
        assert [(one.id, one.state) for one in store.runs()] == [(run + 1, "done"), (run, "done")]
        assert len(list(store.decisions(run))) == 19
        assert learned.load(store, "recorded/static") == {"ann/sim/8": {"n": 1}}

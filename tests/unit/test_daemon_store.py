"""The writer of a live daemon, for whom the store may be away."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from asad.decisions import Cause, CoAllocate, Outcome, SetShare, vetoed
from asad.errors import StoreError
from asad.experts import FEATURES
from asad.model import ShareCases
from asad.store import learned, lending_ledger, quota_audit, share_cases
from asad.store import writer as writing
from asad.store.records import JobEnd, LedgerEntry, QuotaChange
from asad.store.store import Store
from asad.store.writer import RunStart, Writer

START = RunStart("asax", {"nodes": 2}, {"seed": 1})
CAUSE = Cause("asax", "because")
OUTCOMES = [
    Outcome(CoAllocate(CAUSE, 1, (0,), host=0, share=0.4), True, ""),
    vetoed(SetShare(CAUSE, 2, 0.2), "pressure", "no"),
]
NAMES, HOSTS = ["10", "11", "12_3"], [-1, -1, 0]


# ------------------------------------------------------------------------------------------------------ writer


def say_everything(writer: Writer) -> None:
    writer.record(1, 10.0, OUTCOMES, NAMES, HOSTS)
    writer.record_ends([JobEnd("10", "host", 0.0, 1.0, 9.0, None, None, False)])
    state = np.full((1, len(FEATURES)), 0.5, np.float32)
    one = np.array([0.5])
    writer.record_cases(ShareCases(["10"], ["app"], np.array([3.0]), state, one, one, one))
    writer.add_ledger([LedgerEntry("10", "host", 9.0, "a", 1.0, 0.0)])
    writer.add_quota_changes([QuotaChange("n1", 9.0, "10", "cpu.max", "max", "1", "leased")])
    writer.save_learned("s", {"app": {"n": 1}})


def check_everything(path: Path, run_id: int) -> None:
    with Store.open(str(path)) as store:
        decisions = list(store.decisions(run_id))
        assert [(d.kind, d.job, d.host, d.outcome) for d in decisions] == [
            ("co-allocate", "11", "10", "done"),
            ("set-share", "12_3", "10", "vetoed"),
        ]
        assert [end.job for end in store.job_ends(run_id)] == ["10"]
        assert share_cases.load(store, [run_id]).job == ["10"]
        assert [total.jobs for total in lending_ledger.totals(store)] == [1]
        assert len(quota_audit.of_job(store, "10")) == 1
        assert learned.load(store, "s") == {"app": {"n": 1}}


def test_everything_that_is_reported_is_written(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    writer = Writer(str(path), START)
    say_everything(writer)
    assert writer.wait_until_written(300.0)
    assert writer.run_id is not None
    check_everything(path, writer.run_id)
    assert writer.close({"guests": 3})
    with Store.open(str(path)) as store:
        (run,) = store.runs()
        assert (run.kind, run.state, run.metrics) == ("live", "done", {"guests": 3})


def test_what_is_forgotten_is_written_and_does_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MOST_LEARNED", 5)
    path, away = tmp_path / "asad.db", threading.Event()

    def open_store(url: str) -> Store:
        if away.is_set():
            raise StoreError(f"{url}: away; bring it back")
        return Store.open(url)

    with Store.open(str(path)) as store:
        learned.save(store, "s", {"ann/old/1": {"n": 1}})
    away.set()
    writer = Writer(str(path), START, open_store=open_store, again_s=(0.01, 0.05))
    for number in range(100):
        writer.save_learned("s", {f"ann/{number}x/1": None, "ann/new/1": {"n": number}})
    assert sum(map(len, writer._waiting.learned.values())) <= 6
    writer.save_learned("s", {"ann/old/1": None})
    away.clear()
    assert writer.wait_until_written(300.0)
    with Store.open(str(path)) as store:
        assert learned.load(store, "s") == {"ann/new/1": {"n": 99}}
    assert writer.close({})


def test_names_are_those_of_the_cycle_even_if_rows_are_given_to_others(tmp_path: Path) -> None:
    names, hosts = list(NAMES), list(HOSTS)
    writer = Writer(str(tmp_path / "asad.db"), START)
    writer.record(1, 10.0, OUTCOMES, names, hosts)
    names[:], hosts[:] = ["x", "y", "z"], [9, 9, 9]
    assert writer.close({})
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert {decision.job for decision in store.decisions(1)} == {"11", "12_3"}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it did not happen within 300 s"
        threading.Event().wait(0.01)


def test_a_store_that_is_away_is_written_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "asad.db"
    away = True

    def open_store(url: str) -> Store:
        if away:
            raise StoreError(f"{url}: away; bring it back")
        return Store.open(url)

    writer = Writer(str(path), START, open_store=open_store, again_s=(0.01, 0.05))
    wait_for(lambda: bool(writer.trouble))
    say_everything(writer)
    assert not writer.wait_until_written(0.2)
    assert "away; bring it back" in writer.trouble
    away = False
    assert writer.wait_until_written(300.0)
    assert writer.close({})
    assert writer.trouble == ""
    assert writer.run_id == 1
    check_everything(path, 1)
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1, "reported once"


def test_a_store_that_breaks_while_it_is_written_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    writer = Writer(str(path), START, again_s=(0.01, 0.05))
    wait_for(lambda: writer.run_id is not None)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE ledger RENAME TO hidden")
        connection.commit()
        say_everything(writer)
        wait_for(lambda: "ledger" in writer.trouble)
        connection.execute("ALTER TABLE hidden RENAME TO ledger")
        connection.commit()
    assert writer.wait_until_written(300.0)
    assert writer.close({})
    assert writer.run_id == 1
    check_everything(path, 1)


def test_a_corrupt_store_that_is_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    path.write_bytes(b"this is no database" * 1000)
    writer = Writer(str(path), START, again_s=(0.01, 0.05))
    wait_for(lambda: "not a database" in writer.trouble)
    say_everything(writer)
    path.rename(tmp_path / "broken.db")
    assert writer.wait_until_written(300.0)
    assert writer.close({})
    check_everything(path, 1)


def test_a_lost_run_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    writer = Writer(str(path), START, again_s=(0.01, 0.05))
    wait_for(lambda: writer.run_id is not None)
    with Store.open(str(path)) as store:
        store.remove_runs([1], force=True)
    say_everything(writer)
    assert writer.wait_until_written(300.0)
    assert writer.run_id == 2
    assert writer.close({})
    check_everything(path, 2)


def test_what_waits_is_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    away = True

    def open_store(url: str) -> Store:
        if away:
            raise StoreError("away; bring it back")
        return Store.open(url)

    writer = Writer(str(path), START, open_store=open_store, again_s=(0.01, 0.05))
    most = writing.MOST_WAITING
    for part in range(3):
        numbers = range(part * most, (part + 1) * most)
        writer.add_ledger([LedgerEntry(str(n), "host", float(n), "a", 1.0, 0.0) for n in numbers])
    assert writer.dropped == 2 * most
    away = False
    assert writer.wait_until_written(300.0)
    assert writer.close({})
    with Store.open(str(path)) as store:
        assert lending_ledger.totals(store)[0].jobs == most
        assert lending_ledger.totals(store, since_s=2.0 * most)[0].jobs == most


def test_a_locked_store_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    Store.open(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        writer = Writer(str(path), START)
        say_everything(writer)
        assert not writer.close({}, timeout_s=0.3)
        connection.execute("ROLLBACK")
    wait_for(lambda: not writer._thread.is_alive())
    check_everything(path, 1)


def test_figures_that_a_busy_store_did_not_take_at_once_are_not_lost_by_closing_again(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    Store.open(str(path)).close()
    writer = Writer(str(path), START)
    wait_for(lambda: writer.run_id is not None)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert not writer.close({"guests": 3}, timeout_s=0.2)
        assert not writer.close({}, timeout_s=0.2)
        connection.execute("ROLLBACK")
    wait_for(lambda: not writer._thread.is_alive())
    with Store.open(str(path)) as store:
        (run,) = store.runs()
        assert (run.state, run.metrics) == ("done", {"guests": 3})

"""What a live daemon keeps: the store's tables for it, and the writer for whom the store may be away."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from asad.errors import StoreError, UsageError
from asad.model import Cause, CoAllocate, Outcome, SetShare
from asad.store import writer as writing
from asad.store.records import AccountTotal, JobEnd, LedgerEntry, QuotaChange
from asad.store.store import Store
from asad.store.writer import RunStart, Writer

START = RunStart("asax", {"nodes": 2}, {"seed": 1})
CAUSE = Cause("asax", "because")
OUTCOMES = [
    Outcome(CoAllocate(CAUSE, 1, 0, (0,), 0.4), True, ""),
    Outcome(SetShare(CAUSE, 2, 0.2), False, "vetoed (pressure): no"),
]
NAMES, HOSTS = ["10", "11", "12_3"], [-1, -1, 0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "asad.db")) as opened:
        yield opened


# ------------------------------------------------------------------------------------------------------ tables


def test_what_was_learned_is_kept_by_application(store: Store) -> None:
    store.save_learned("slurm/asax", {"ann/sim/8": {"a": 1.5}, "*": {"b": [1, math.nan]}})
    store.save_learned("slurm/asax", {"ann/sim/8": {"a": 2}})
    store.save_learned("other", {"ann/sim/8": {"a": 3}})
    store.save_learned("other", {})
    assert store.load_learned("slurm/asax") == {"ann/sim/8": {"a": 2}, "*": {"b": [1, None]}}
    assert store.load_learned("nobody") == {}


def test_many_applications_are_kept_at_once(store: Store) -> None:
    many = {f"user{number}/name/1": {"n": number} for number in range(5000)}
    store.save_learned("s", many)
    store.save_learned("s", many)
    assert store.load_learned("s") == many


def test_the_ledger_is_summed_by_account_and_entries_count_once(store: Store) -> None:
    entry = LedgerEntry("10", "host", 100.0, "physics", 50.0, 60.0)
    store.add_ledger([entry, entry])
    store.add_ledger([entry, LedgerEntry("11", "host", 200.0, "physics", 25.0, 0.0)])
    store.add_ledger([LedgerEntry("12", "guest", 300.0, "evil\0\x1b[2J", 75.0, 0.0)])
    assert store.account_totals() == [
        AccountTotal("evil\\x00\x1b[2J", "guest", 1, 75.0, 0.0),
        AccountTotal("physics", "host", 2, 75.0, 60.0),
    ]
    assert [total.jobs for total in store.account_totals(since_s=150.0)] == [1, 1]


def test_changes_of_quotas_are_told_by_job(store: Store) -> None:
    changes = [QuotaChange("n1", float(t), "10", "cpu.max", "max", f"{t}000", "leased") for t in (1, 2, 3)]
    store.add_quota_changes([*changes, QuotaChange("n1", 2.0, "11", "cpu.idle", None, "1", "guest")])
    assert store.quota_changes("10") == changes
    assert store.quota_changes("10", limit=2) == changes[1:]
    assert store.quota_changes("11")[0].old is None


def test_what_is_old_is_forgotten_and_replays_stay(store: Store) -> None:
    for kind, policy in (("live", "old"), ("live", "new"), ("replay", "kept")):
        with store.begin_run(kind, policy, None, {}, {}) as run:  # type: ignore[arg-type]
            time_s = 500.0 if policy == "new" else 50.0
            run.record(1, time_s, OUTCOMES, NAMES, host_rows=HOSTS)
            run.record_ends([JobEnd("10", "host", 0.0, 1.0, time_s, None, False)])
            run.finish({})
    running = store.begin_run("live", "running", None, {}, {})
    running.record(1, 50.0, OUTCOMES, NAMES)
    running.flush()
    store.add_ledger([LedgerEntry("10", "host", t, "a", 1.0, 0.0) for t in (50.0, 500.0)])
    store.add_quota_changes([QuotaChange("n", t, "10", "f", None, None, "") for t in (50.0, 500.0)])
    # of the old run two decisions, an end and the run itself; two decisions of the running one; an entry, a change
    assert store.forget_before(100.0) == 4 + 2 + 2
    assert {run.policy for run in store.runs()} == {"new", "kept", "running"}
    assert len(store.quota_changes("10")) == 1
    assert store.forget_before(100.0) == 0


def test_a_run_goes_on_where_it_stopped(store: Store) -> None:
    run = store.begin_run("live", "asax", None, {}, {})
    run.record(1, 1.0, OUTCOMES, NAMES)
    run.flush()
    again = store.continue_run(run.id)
    again.record(2, 2.0, OUTCOMES, NAMES)
    again.finish({})
    assert [decision.seq for decision in store.decisions(run.id)] == [0, 1, 2, 3]
    assert store.run(run.id).decisions == 4
    with pytest.raises(UsageError, match="there is no run 99"):
        store.continue_run(99)


# ------------------------------------------------------------------------------------------------------ writer


def say_everything(writer: Writer) -> None:
    writer.record(1, 10.0, OUTCOMES, NAMES, HOSTS)
    writer.record_ends([JobEnd("10", "host", 0.0, 1.0, 9.0, None, False)])
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
        assert [total.jobs for total in store.account_totals()] == [1]
        assert len(store.quota_changes("10")) == 1
        assert store.load_learned("s") == {"app": {"n": 1}}


def test_everything_that_is_said_is_written(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    writer = Writer(str(path), START)
    say_everything(writer)
    assert writer.wait_until_written(30.0)
    assert writer.run_id is not None
    check_everything(path, writer.run_id)
    assert writer.close({"guests": 3})
    with Store.open(str(path)) as store:
        (run,) = store.runs()
        assert (run.kind, run.state, run.metrics) == ("live", "done", {"guests": 3})


def test_names_are_those_of_the_cycle_even_if_rows_are_given_to_others(tmp_path: Path) -> None:
    names, hosts = list(NAMES), list(HOSTS)
    writer = Writer(str(tmp_path / "asad.db"), START)
    writer.record(1, 10.0, OUTCOMES, names, hosts)
    names[:], hosts[:] = ["x", "y", "z"], [9, 9, 9]
    assert writer.close({})
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert {decision.job for decision in store.decisions(1)} == {"11", "12_3"}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen within 30 s"
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
    assert writer.wait_until_written(30.0)
    assert writer.close({})
    assert writer.trouble == ""
    assert writer.run_id == 1
    check_everything(path, 1)
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1, "told once"


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
    assert writer.wait_until_written(30.0)
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
    assert writer.wait_until_written(30.0)
    assert writer.close({})
    check_everything(path, 1)


def test_a_lost_run_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    writer = Writer(str(path), START, again_s=(0.01, 0.05))
    wait_for(lambda: writer.run_id is not None)
    with Store.open(str(path)) as store:
        store.remove_runs([1], force=True)
    say_everything(writer)
    assert writer.wait_until_written(30.0)
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
    assert writer.wait_until_written(60.0)
    assert writer.close({})
    with Store.open(str(path)) as store:
        assert store.account_totals()[0].jobs == most
        assert store.account_totals(since_s=2.0 * most)[0].jobs == most


def test_a_locked_store_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "asad.db"
    Store.open(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        writer = Writer(str(path), START)
        begin = time.monotonic()
        say_everything(writer)
        assert not writer.close({}, timeout_s=0.3)
        assert time.monotonic() - begin < 5.0
        connection.execute("ROLLBACK")
    wait_for(lambda: not writer._thread.is_alive())
    check_everything(path, 1)

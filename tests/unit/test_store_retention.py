"""What is old is removed, and nothing on the word of a clock that leapt."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from test_store_databases import url

from asad.decisions import Cause, Outcome, SetShare
from asad.errors import StoreError
from asad.model import Json
from asad.store import learned, lending_ledger, quota_audit, retention, schema
from asad.store.process import this_process
from asad.store.records import AccountTotal, JobEnd, LedgerEntry, QuotaChange
from asad.store.retention import SCOPE, Believed, Keep, forget, steps
from asad.store.store import Store
from asad.store.summaries import AT_ONCE
from asad.store.writer import RunStart, Writer

__all__ = ["url"]  # a fixture

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
KEEP_S = 90 * DAY_S
KEEP = Keep(KEEP_S)
START_S = 1_800_000_000.0


@dataclass
class Site:
    """A daemon that writes a line each day and forgets thereafter, and the clocks of its host."""

    clock_s: float = START_S
    passed_s: float = 1000.0
    boot: str = "boot 1"
    lines: list[float] = field(default_factory=list)
    known: Believed = field(default_factory=lambda: Believed(START_S, START_S, 1000.0, "boot 1", 0.0))

    def go_on(self, days: int) -> None:
        for _ in range(days):
            self.clock_s += DAY_S
            self.passed_s += DAY_S
            self.lines.append(self.clock_s)
            self.forget()

    def forget(self) -> None:
        self.known = self.known.go_on(self.clock_s, self.passed_s, self.boot, KEEP_S)
        self.lines = [time_s for time_s in self.lines if time_s > self.known.time_s - KEEP_S]

    def restart(self, down_s: float, *, boot: bool) -> None:
        self.clock_s += down_s
        self.passed_s += down_s
        if boot:
            self.boot, self.passed_s = f"{self.boot}+", 50.0

    @property
    def kept(self) -> int:
        return len(self.lines)


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_is_older_than_the_retention_is_removed_day_by_day(site: Site) -> None:
    site.go_on(95)
    assert site.kept == 90


@pytest.mark.parametrize("leap_s", [DAY_S, 30 * DAY_S, YEAR_S, 40 * YEAR_S])
def test_a_clock_that_leaps_ahead_and_back_removes_nothing_that_is_not_old(site: Site, leap_s: float) -> None:
    site.go_on(60)
    site.clock_s += leap_s
    site.go_on(20)
    assert site.kept == 80
    site.clock_s -= leap_s
    site.go_on(5)
    assert site.kept == 85
    site.clock_s += leap_s
    site.forget()
    assert site.kept == 85


@pytest.mark.parametrize("leap_s", [-DAY_S, -YEAR_S])
def test_a_clock_that_is_set_back_and_right_again_removes_nothing_that_is_not_old(
    site: Site, leap_s: float
) -> None:
    site.go_on(60)
    site.clock_s += leap_s
    site.go_on(10)
    assert site.kept == 70
    site.clock_s -= leap_s
    site.go_on(10)
    assert site.kept == 80


@pytest.mark.parametrize("leap_s", [2 * DAY_S, YEAR_S, -YEAR_S])
def test_a_clock_that_stays_where_it_leapt_is_believed_when_all_before_is_old(
    site: Site, leap_s: float
) -> None:
    site.go_on(60)
    site.clock_s += leap_s
    site.go_on(89)
    assert site.kept >= 89
    site.go_on(95)
    from_ahead = 60 if leap_s < 0 else 0  # by the clock as it is now these are of next year
    assert site.kept <= 91 + from_ahead, "the store does not grow for ever"


def test_leaps_in_a_row_are_not_added_up(site: Site) -> None:
    site.go_on(60)
    for _ in range(20):
        site.clock_s += 30 * DAY_S
        site.go_on(1)
    assert site.kept == 80


@pytest.mark.parametrize("boot", [False, True])
def test_a_clock_that_leapt_while_nobody_looked_is_not_believed(site: Site, boot: bool) -> None:
    site.go_on(60)
    site.restart(900.0, boot=boot)
    site.clock_s += YEAR_S
    site.go_on(1)
    assert site.kept == 61


@pytest.mark.parametrize("boot", [False, True])
def test_restarts_keep_nothing_for_ever(site: Site, boot: bool) -> None:
    for _ in range(100):
        site.go_on(1)
        site.restart(600.0, boot=boot)
    assert 89 <= site.kept <= 91


def test_a_week_without_the_daemon_counts_while_the_host_ran(site: Site) -> None:
    site.go_on(89)
    site.restart(7 * DAY_S, boot=False)
    site.forget()
    assert site.kept < 85


# ------------------------------------------------------------------------------------------------------- in a store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "asad.db")) as opened:
        yield opened


def add(store: Store, *times_s: float) -> None:
    lending_ledger.add(
        store, [LedgerEntry(f"{time_s:.0f}", "host", time_s, "a", 1.0, 0.0) for time_s in times_s]
    )


def kept(store: Store) -> int:
    with store.reading("test") as connection:
        return connection.scalar(select(func.count()).select_from(schema.ledger)) or 0


def live_run(store: Store, time_s: float) -> int:
    with store.begin_run("live", "asax", None, {}, {}) as run:
        run.record(1, time_s, [Outcome(SetShare(Cause("x", "y"), 0, 0.1, host=0), True, "")], ["7"])
        run.finish({})
        return run.id


def test_the_time_that_is_believed_is_in_the_store(store: Store) -> None:
    add(store, START_S - 100 * DAY_S, START_S - 80 * DAY_S)
    assert forget(store, 0, START_S, KEEP, 100.0) == 1
    add(store, START_S)
    assert forget(store, 0, START_S + YEAR_S, KEEP, 3700.0) == 0
    assert forget(store, 0, START_S + YEAR_S + 11 * DAY_S, KEEP, 3700.0 + 11 * DAY_S) == 1
    assert kept(store) == 1


def test_at_the_first_look_of_all_the_newest_row_shows_how_late_it_is(store: Store) -> None:
    live_run(store, START_S)
    add(store, START_S - 80 * DAY_S)
    now_s = START_S + YEAR_S  # the clock leapt while an earlier version ran, or nobody did
    assert forget(store, live_run(store, now_s), now_s, KEEP, 3600.0) == 0
    assert kept(store) == 1 and len(store.runs()) == 2


@pytest.mark.parametrize("nonsense", [{"time_s": "x"}, {"boot_id": 3}, {}])
def test_what_is_noted_of_a_clock_and_makes_no_sense_is_noted_anew(
    store: Store, nonsense: dict[str, Json]
) -> None:
    host = this_process().host
    learned.save(store, SCOPE, {host: nonsense})
    forget(store, 0, START_S, KEEP, 100.0)
    assert learned.load(store, SCOPE)[host]["time_s"] == START_S


def test_the_clock_of_a_log_is_as_it_is(store: Store) -> None:
    add(store, START_S)
    forget(store, 0, START_S, KEEP, 100.0)
    assert forget(store, 0, START_S + YEAR_S, KEEP, None) == 1


def test_a_writer_removes_what_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "asad.db")
    with Store.open(path) as store:
        quota_audit.add(store, [QuotaChange("n", t, "10", "f", None, None, "") for t in (50.0, 500.0)])
    writer = Writer(path, RunStart("asax", {}, {}))
    writer.forget(600.0, Keep(300.0), 10.0)
    assert writer.wait_until_written(300.0, removed=True)
    writer.forget(600.0 + YEAR_S, Keep(300.0), 20.0)
    assert writer.close({})
    with Store.open(path) as store:
        assert [change.time_s for change in quota_audit.of_job(store, "10")] == [500.0]


# ----------------------------------------------------------------------------------------------------- sums


TIERS = Keep(90 * DAY_S, 30 * DAY_S, 14 * DAY_S, 60 * DAY_S, 200 * DAY_S)
HOUR_S = 3600.0


def sums(store: Store, table: str) -> list[tuple[object, ...]]:
    with store.reading("test") as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table} ORDER BY 1, 2, 3")]


def a_day(store: Store, begin_s: float, decisions: int = 6) -> None:
    """Rows of each kind, at the beginning of the hours of a day."""
    times = [begin_s + k * HOUR_S for k in range(decisions)]
    with store.begin_run("live", "asax", None, {}, {}) as run:
        for k, time_s in enumerate(times):
            shared = SetShare(Cause("asax", "the job of ann"), 0, 0.1 * (k + 1), host=0)
            run.record(1, time_s, [Outcome(shared, True, "")], ["7"])
        run.record_ends(
            [JobEnd("7", "host", times[0], times[0], time_s, None, None, False) for time_s in times]
        )
        run.finish({})
    lending_ledger.add(store, [LedgerEntry("7", "host", time_s, "physics", 2.0, 1.0) for time_s in times])
    quota_audit.add(
        store, [QuotaChange("n1", time_s, "7", "/sys/job_7/cpu.max", "a", "b", "ann") for time_s in times]
    )


def test_what_is_old_is_summed_up_by_hour_and_later_by_day(store: Store) -> None:
    day_s = START_S // DAY_S * DAY_S
    a_day(store, day_s)
    assert sum(steps(store, day_s + 20 * DAY_S, None, TIERS)) == 6
    assert sums(store, "quota_summaries")[0] == (3600, day_s, "n1", "cpu.max", 1)
    assert sums(store, "decision_summaries") == []
    assert sum(steps(store, day_s + 40 * DAY_S, None, TIERS)) == 6
    hours = sums(store, "decision_summaries")
    assert len(hours) == 6 and hours[2] == (
        *(3600, day_s + 2 * HOUR_S, "asax", "set-share", "done", 1),
        *(pytest.approx(0.3), pytest.approx(0.3)),
    )
    sum(steps(store, day_s + 95 * DAY_S, None, TIERS))
    assert sums(store, "decision_summaries") == [
        (86400, day_s, "asax", "set-share", "done", 6, pytest.approx(2.1), pytest.approx(0.6))
    ]
    assert sums(store, "quota_summaries") == [(86400, day_s, "n1", "cpu.max", 6)]
    assert sums(store, "ledger_summaries") == [(86400, day_s, "physics", "host", 6, 12.0, 2.0, 6.0, 1.0)]
    (ends,) = sums(store, "job_end_summaries")
    assert ends == (86400, day_s, "host", 0, 6, 15 * HOUR_S, 5 * HOUR_S)
    assert store.runs() == [], "nothing is left of the run"
    assert lending_ledger.totals(store) == [AccountTotal("physics", "host", 6, 12.0, 6.0)]
    sum(steps(store, day_s + 202 * DAY_S, None, TIERS))
    assert sums(store, "decision_summaries") == sums(store, "ledger_summaries") == []


def test_the_ledger_sums_to_the_same_in_whatever_table_its_entries_are(store: Store) -> None:
    day_s = START_S // DAY_S * DAY_S
    for day in range(0, 120, 10):
        a_day(store, day_s + day * DAY_S)
    before = lending_ledger.totals(store)
    assert sum(steps(store, day_s + 120 * DAY_S, None, TIERS)) > 0
    assert kept(store) < 72 and {row[0] for row in sums(store, "ledger_summaries")} == {86400}
    assert lending_ledger.totals(store) == before
    assert [total.jobs for total in lending_ledger.totals(store, day_s + 15 * DAY_S)] == [60]


def test_each_step_is_a_short_transaction_and_replays_stay(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("live", "replay"):
        with store.begin_run(kind, "asax", None, {}, {}) as run:  # type: ignore[arg-type]
            for k in range(3 * AT_ONCE):
                run.record(k, 1.0 + k, [Outcome(SetShare(Cause("x", "y"), 0, 0.1, host=0), True, "")], ["7"])
            run.finish({})
    removed = [count for count in steps(store, START_S, None, TIERS) if count]
    assert removed == [AT_ONCE] * 3 + [1, 1], "decisions, their sum of a day, and the run that is empty"
    assert [run.kind for run in store.runs()] == ["replay"]
    assert len(list(store.decisions(store.runs()[0].id))) == 3 * AT_ONCE


def test_news_are_written_between_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "asad.db")
    with Store.open(path) as store:
        quota_audit.add(
            store, [QuotaChange("n", float(k), "10", "f", None, None, "") for k in range(3 * AT_ONCE)]
        )
    writer = Writer(path, RunStart("asax", {}, {}))
    seen: list[int] = []
    taken = retention.sum_up

    def step(given: Store, *what: Any) -> int:
        removed = taken(given, *what)
        if removed and not seen:
            writer.add_quota_changes([QuotaChange("n", START_S, "new", "f", None, None, "")])
        if removed:
            with Store.open(path) as beside:
                seen.append(len(quota_audit.of_job(beside, "new")))
        return removed

    monkeypatch.setattr(retention, "sum_up", step)
    writer.forget(START_S, Keep(300.0), None)
    assert writer.wait_until_written(300.0, removed=True) and writer.close({})
    assert seen == [0, 1, 1]


def test_a_store_that_goes_away_between_two_steps_is_cleared_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "asad.db")
    with Store.open(path) as store:
        quota_audit.add(
            store, [QuotaChange("n", float(k), "10", "f", None, None, "") for k in range(3 * AT_ONCE)]
        )
    taken, calls = retention.sum_up, []

    def step(given: Store, *what: Any) -> int:
        calls.append(what)
        if len(calls) == 2:
            raise StoreError("away; bring it back")
        return taken(given, *what)

    monkeypatch.setattr(retention, "sum_up", step)
    writer = Writer(path, RunStart("asax", {}, {}), again_s=(0.01, 0.05))
    writer.forget(START_S, Keep(300.0), None)
    while not (writer.wait_until_written(300.0, removed=True) and not writer.trouble):
        pass
    assert writer.close({})
    with Store.open(path) as store:
        assert sum(int(str(row[4])) for row in sums(store, "quota_summaries")) == 3 * AT_ONCE


KILLED = """
import os, signal, sys
from sqlalchemy import event
from asad.store import retention
from asad.store.store import Store

url, end_s, *statements = sys.argv[1:]
for statement in map(int, statements):
    if os.fork() == 0:
        with Store.open(url) as store:
            left = [statement]
            def count(*given):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            event.listen(store._engine, "before_cursor_execute", count)
            for _ in retention.steps(store, float(end_s), None, retention.Keep(90e5, 30e5, 14e5, 60e5, 1e9)):
                pass
        os._exit(0)
    killed = os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGKILL
    with Store.open(url) as store, store.reading("test") as connection:
        for table in ("ledger", "quota"):
            raw = "quota_audit" if table == "quota" else table
            one = connection.exec_driver_sql(f"SELECT count(*) FROM {raw}").scalar()
            summed = connection.exec_driver_sql(f"SELECT sum(entries) FROM {table}_summaries").scalar()
            print(killed, one, int(summed or 0))
"""


def test_kill_9_at_any_statement_loses_nothing_and_counts_nothing_twice(url: str) -> None:
    """A process that is killed, and the next that goes on, until one comes to the end."""
    amount, statements = 2 * AT_ONCE, ["1", "2", "3", "4", "5", "6", "7", "9", "13", "1000"]
    with Store.open(url) as store:
        rows = [QuotaChange("n", k * 50.0, str(k), "f", None, None, "") for k in range(amount)]
        quota_audit.add(store, rows)
        lending_ledger.add(
            store, [LedgerEntry(str(k), "host", k * 50.0, "a", 1.0, 0.5) for k in range(amount)]
        )
        before = lending_ledger.totals(store)
    found = subprocess.run(
        [sys.executable, "-c", KILLED, url, str(90e5 + amount * 50), *statements],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split() for line in found.stdout.splitlines()]
    assert [killed for killed, _, _ in lines] == ["True"] * 18 + ["False"] * 2
    assert all(int(single) + int(summed) == amount for _, single, summed in lines)
    partly = [line for line in lines if line[0] == "True" and 0 < int(line[1]) < amount]
    assert partly, "some were killed between two steps"
    assert lines[-1][1:] == ["0", str(amount)]
    with Store.open(url) as store:
        assert lending_ledger.totals(store) == before

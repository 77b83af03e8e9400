"""What is old is removed, and nothing on the word of a clock that leapt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from asad.decisions import Cause, Outcome, SetShare
from asad.model import Json
from asad.store import learned, lending_ledger, quota_audit
from asad.store.process import this_process
from asad.store.records import LedgerEntry, QuotaChange
from asad.store.retention import SCOPE, Believed, forget
from asad.store.store import Store
from asad.store.writer import RunStart, Writer

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
KEEP_S = 90 * DAY_S
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
    return sum(total.jobs for total in lending_ledger.totals(store))


def live_run(store: Store, time_s: float) -> int:
    with store.begin_run("live", "asax", None, {}, {}) as run:
        run.record(1, time_s, [Outcome(SetShare(Cause("x", "y"), 0, 0.1, host=0), True, "")], ["7"])
        run.finish({})
        return run.id


def test_the_time_that_is_believed_is_in_the_store(store: Store) -> None:
    add(store, START_S - 100 * DAY_S, START_S - 80 * DAY_S)
    assert forget(store, 0, START_S, KEEP_S, 100.0) == 1
    add(store, START_S)
    assert forget(store, 0, START_S + YEAR_S, KEEP_S, 3700.0) == 0
    assert forget(store, 0, START_S + YEAR_S + 11 * DAY_S, KEEP_S, 3700.0 + 11 * DAY_S) == 1
    assert kept(store) == 1


def test_at_the_first_look_of_all_the_newest_row_shows_how_late_it_is(store: Store) -> None:
    live_run(store, START_S)
    add(store, START_S - 80 * DAY_S)
    now_s = START_S + YEAR_S  # the clock leapt while an earlier version ran, or nobody did
    assert forget(store, live_run(store, now_s), now_s, KEEP_S, 3600.0) == 0
    assert kept(store) == 1 and len(store.runs()) == 2


@pytest.mark.parametrize("nonsense", [{"time_s": "x"}, {"boot_id": 3}, {}])
def test_what_is_noted_of_a_clock_and_makes_no_sense_is_noted_anew(
    store: Store, nonsense: dict[str, Json]
) -> None:
    host = this_process().host
    learned.save(store, SCOPE, {host: nonsense})
    forget(store, 0, START_S, KEEP_S, 100.0)
    assert learned.load(store, SCOPE)[host]["time_s"] == START_S


def test_the_clock_of_a_log_is_as_it_is(store: Store) -> None:
    add(store, START_S)
    forget(store, 0, START_S, KEEP_S, 100.0)
    assert forget(store, 0, START_S + YEAR_S, KEEP_S, None) == 1


def test_a_writer_removes_what_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "asad.db")
    with Store.open(path) as store:
        quota_audit.add(store, [QuotaChange("n", t, "10", "f", None, None, "") for t in (50.0, 500.0)])
    writer = Writer(path, RunStart("asax", {}, {}))
    writer.forget(600.0, 300.0, 10.0)
    assert writer.wait_until_written(300.0)
    writer.forget(600.0 + YEAR_S, 300.0, 20.0)
    assert writer.close({})
    with Store.open(path) as store:
        assert [change.time_s for change in quota_audit.of_job(store, "10")] == [500.0]

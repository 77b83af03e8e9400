"""Recurring jobs in made-up accounting: found with their period, foreseen as well as is stated, nothing else found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asad.admit.sow.announcements import read_announcements, written
from asad.admit.sow.infer import (
    NEWEST,
    QUANTILES,
    calibrated,
    foresee,
    infer,
    rhythm_of,
    rows_of,
)
from asad.model import JobLog
from asad.replay.readers import read_log
from asad.replay.readers.sacct_json import _gres as gres_of_record

HOUR_S, DAY_S = 3600.0, 86_400.0
NAMES = ("nightly", "hourly", "sim")


def log(*groups: tuple[int, int, int, np.ndarray, np.ndarray]) -> JobLog:
    """Of user, name, cores, arrivals and run times of each group."""
    columns = [
        (user, name, cores, float(at), float(run))
        for user, name, cores, arrivals, runs in groups
        for at, run in zip(arrivals, runs, strict=True)
    ]
    columns.sort(key=lambda row: row[3])
    count = len(columns)
    none = np.full(count, -1, np.int32)
    return JobLog(
        job_id=np.arange(count),
        submit_s=np.array([row[3] for row in columns]),
        start_s=np.array([row[3] + 60.0 for row in columns]),
        run_s=np.array([row[4] for row in columns]),
        cores=np.array([row[2] for row in columns], np.int32),
        nodes=np.ones(count, np.int32),
        time_limit_s=np.full(count, np.inf),
        memory_bytes=np.full(count, np.nan),
        cpu_time_s=np.full(count, np.nan),
        user=np.array([row[0] for row in columns], np.int32),
        application=np.array([row[1] for row in columns], np.int32),
        partition=none,
        depends_on=none,
        think_s=np.zeros(count),
        users=("ann", "bob"),
        applications=NAMES,
    )


def recurring(
    period_s: float, runs: int, seed: int = 0, spread: float = 0.02
) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals around a period, and how long each ran."""
    chance = np.random.default_rng(seed)
    due = 1_700_000_000.0 + period_s * np.arange(runs)
    arrivals = due + period_s * spread * chance.gamma(2.0, 1.0, runs)
    return np.sort(arrivals), np.exp(chance.normal(np.log(period_s / 8), 0.3, runs))


@pytest.mark.parametrize("period_s", [900.0, HOUR_S, 5000.0, DAY_S, 7 * DAY_S])
def test_a_recurring_job_is_found_with_its_period(period_s: float) -> None:
    arrivals, runs = recurring(period_s, 40)
    (found,) = infer(log((0, 0, 8, arrivals, runs))).recurring
    assert (found.user, found.name, found.cores, found.runs) == ("ann", "nightly", 8, 40)
    assert found.rhythm.period_s == pytest.approx(period_s, rel=0.005)
    assert found.rhythm.covered == 1.0 and found.rhythm.spread < 0.1
    due_s = found.next_due_s(arrivals[-1])
    assert 0 < due_s - arrivals[-1] < 1.5 * period_s


def test_runs_that_are_missing_or_late_do_not_change_the_period() -> None:
    arrivals, runs = recurring(DAY_S, 60)
    keep = np.ones(60, np.bool_)
    keep[[5, 6, 7, 20, 33, 50]] = False
    arrivals[40] += 9 * HOUR_S
    rhythm = rhythm_of(arrivals[keep])
    assert rhythm is not None and rhythm.regular
    assert rhythm.period_s == DAY_S and 0.85 < rhythm.covered < 1.0
    (found,) = infer(log((0, 0, 8, arrivals[keep], runs[keep]))).recurring
    assert found.offset_s.max() > 6 * HOUR_S


@pytest.mark.parametrize("seed", range(20))
def test_jobs_that_come_by_chance_are_not_recurring(seed: int) -> None:
    chance = np.random.default_rng(seed)
    arrivals = np.cumsum(chance.exponential(HOUR_S, 60))
    found = infer(log((0, 2, 4, arrivals, np.full(60, 600.0))))
    assert found.recurring == () and sum(found.rejected.values()) == 1


def test_who_comes_seldom_or_without_a_name_is_not_looked_at() -> None:
    arrivals, runs = recurring(DAY_S, 7)
    unnamed, others = recurring(DAY_S, 40, 1)
    found = infer(log((0, 0, 8, arrivals, runs), (1, -1, 8, unnamed, others)))
    assert found.recurring == () and found.rejected == {} and found.jobs == 47
    assert len(infer(log((0, 0, 8, arrivals, runs)), least_runs=6).recurring) == 1


def test_a_log_without_names_has_jobs_of_one_user_and_size() -> None:
    arrivals, runs = recurring(DAY_S, 40)
    (found,) = infer(log((0, -1, 8, arrivals, runs))).recurring
    assert (found.user, found.name, found.cores) == ("ann", "-", 8)
    assert foresee(log((0, -1, 8, arrivals, runs)))[0].announcement.name == "-"


def test_a_burst_is_not_recurring() -> None:
    found = infer(log((0, 0, 8, 3.0 * np.arange(50), np.full(50, 3.0))))
    assert found.rejected == {"its runs follow each other within a minute": 1}


def test_users_names_and_sizes_are_distinguished() -> None:
    groups = [(user, name, cores) for user in (0, 1) for name in (0, 1) for cores in (4, 8)]
    made = [(*group, *recurring(DAY_S, 20, seed)) for seed, group in enumerate(groups)]
    found = infer(log(*made))
    assert {(one.user, one.name, one.cores) for one in found.recurring} == {
        (("ann", "bob")[user], NAMES[name], cores) for user, name, cores in groups
    }
    assert found.covered_jobs == found.jobs == 160 and found.covered_core_s == pytest.approx(found.core_s)


def test_what_is_foreseen_is_calibrated() -> None:
    """Over many recurring jobs, as many runs fall below each quantile as are foreseen to (binomial, 4 deviations)."""
    listed = [recurring(DAY_S, 60, seed, spread=0.03) for seed in range(40)]
    total = calibrated(*listed[0])
    for arrivals, runs in listed[1:]:
        total += calibrated(arrivals, runs)
    assert total.runs == 40 * 18
    for k, quantile in enumerate(QUANTILES):
        slack = 4 * (quantile * (1 - quantile) / total.runs) ** 0.5
        assert abs(total.duration[k] / total.runs - quantile) < slack
        # the anchor is fitted to the same arrivals, so that offsets are a little less certain
        assert abs(total.offset[k] / total.runs - quantile) < slack + 0.02


def test_habits_that_change_show_in_the_calibration() -> None:
    arrivals, runs = recurring(DAY_S, 40)
    runs[28:] *= 5
    total = calibrated(arrivals, runs)
    assert total.runs == 12 and total.duration[-1] <= 6 < total.offset[-1]
    plain = total.to_json()
    assert plain["duration"][-1] == total.duration[-1] / 12  # type: ignore[index, call-overload]


def test_rows_of_a_distribution_keep_its_mass_and_its_latest_and_longest() -> None:
    chance = np.random.default_rng(3)
    offset_s, duration_s = chance.normal(0, 600, 50), chance.gamma(2, 1800, 50)
    rows = rows_of(offset_s, duration_s)
    assert len(rows) <= 30 and sum(run.probability for run in rows) == pytest.approx(1.0)
    assert max(run.offset_s for run in rows) == pytest.approx(offset_s.max(), abs=1)
    # and one run in 51 lasts longer than all fifty before it
    longer = [run for run in rows if run.duration_s > duration_s.max() + 1]
    assert {run.duration_s for run in longer} == {np.ceil(1.5 * duration_s.max())}
    assert sum(run.probability for run in longer) == pytest.approx(1 / 51)
    others = [run.duration_s for run in rows if run not in longer]
    assert max(others) == pytest.approx(duration_s.max(), abs=1)
    for quantile in (0.25, 0.5, 0.75):  # no earlier and no shorter than it was
        mass = sum(run.probability for run in rows if run.duration_s <= np.quantile(duration_s, quantile))
        assert mass <= quantile + 0.05
    assert rows_of(np.zeros(9), np.full(9, 60.0)) == ((0.0, 60.0, 0.9), (0.0, 90.0, pytest.approx(0.1)))


def test_an_announcement_is_of_the_next_run_and_worth_its_core_hours() -> None:
    arrivals, runs = recurring(DAY_S, 40)
    (found,) = infer(log((0, 0, 8, arrivals, runs))).recurring
    answers = found.announce(found.next_due_s(arrivals[-1]), 2.0)
    assert answers.value == pytest.approx(2.0 * 8 * found.duration_s.mean() / 3600)
    assert answers.every_s == DAY_S == answers.deadline_s and answers.eviction == "requeue-hold"
    facts = found.to_json()
    assert facts["offset_quantiles_s"] == sorted(facts["offset_quantiles_s"])  # type: ignore[type-var, arg-type]


def test_foreseen_statements_know_nothing_of_what_comes_later() -> None:
    arrivals, runs = recurring(DAY_S, 60)
    noise = recurring(HOUR_S, 30, 5, spread=0.9)
    whole = log((0, 0, 8, arrivals, runs), (1, 2, 4, *noise))
    seen = foresee(whole)
    assert sum(one.user == "ann" for one in seen) >= 45
    assert [one.birth_s for one in seen] == sorted(one.birth_s for one in seen)
    # the same from a log that ends right after the birth
    for one in seen[:: len(seen) // 5]:
        until = whole.take(np.flatnonzero(whole.submit_s <= one.birth_s))
        assert one in foresee(until)
    # most runs were foreseen near their time
    due, ahead = np.array(
        [(one.announcement.due_s, one.announcement.due_s - one.birth_s) for one in seen if one.user == "ann"]
    ).T
    assert (ahead > 0).all() and np.median(np.abs(due[:, None] - arrivals[None, :]).min(axis=1)) < 0.1 * DAY_S


def test_only_the_newest_runs_count() -> None:
    old, new = recurring(DAY_S, 60), recurring(DAY_S, NEWEST, 9)
    arrivals = np.concatenate((old[0], new[0] + 90 * DAY_S))
    (found,) = infer(log((0, 0, 8, arrivals, np.concatenate((old[1], np.full(NEWEST, 60.0)))))).recurring
    assert found.runs == 110 and set(found.duration_s.tolist()) == {60.0}


def test_times_that_all_are_one_have_no_rhythm() -> None:
    assert rhythm_of(np.full(9, 5.0)) is None and rhythm_of(np.arange(3.0)) is None
    found = infer(log((0, 0, 8, np.full(20, 5.0), np.full(20, 60.0))))
    assert found.rejected == {"its runs were submitted at one time": 1}


SACCT = "JobID|User|JobName|NCPUS|AllocTRES|Submit|Start|End|Elapsed|State\n"


def test_jobs_with_gpus_are_found_as_statements_that_name_them(tmp_path: Path) -> None:
    def line(number: int, day: int, hour: int, tres: str) -> str:
        at = f"2026-01-{day:02d}T{hour:02d}:{{}}:00"
        times = "|".join((at.format("00"), at.format("05"), at.format("35"), "00:30:00"))
        return f"{number}|ann|nightly|4|cpu=4,node=1{tres}|{times}|COMPLETED\n"

    gpus = ",gres/gpu=3,gres/gpu:a100=2,gres/bad\x1bname=2,gres/fpga=1"
    days = range(1, 13)
    text = "".join(line(day, day, 2, gpus) + line(100 + day, day, 14, "") for day in days)
    (file := tmp_path / "log.txt").write_text(SACCT + text)
    log = read_log(str(file)).jobs
    assert log.gres_texts == ("gpu:a100:2,gpu:1,fpga:1",)
    assert log.take(np.arange(4)).gres_texts == log.gres_texts
    found = {one.gres: one for one in infer(log).recurring}
    assert {*found} == {"", "gpu:a100:2,gpu:1,fpga:1"}, "two jobs of one name that need other things"
    assert all(one.runs == 12 and one.rhythm.period_s == 86_400.0 for one in found.values())
    one = found["gpu:a100:2,gpu:1,fpga:1"].announce(1e9, 1.0)
    assert one.tres == {"gres/gpu": 3, "gres/gpu:a100": 2, "gres/fpga": 1}
    assert "gres" not in found[""].to_json() and not found[""].announce(1e9, 1.0).beside
    assert read_announcements(written([one], ["1000000000"]), "again.toml", 0.0)[0].tres == one.tres
    assert all(not seen.announcement.gres for seen in foresee(log)), "a replayed cluster has no gres"


def test_gres_of_jobs_are_read_from_json_likewise() -> None:
    amounts = [
        ("gpu:a100", 2),
        ("gpu", 2),
        ("fpga", 1),
        ("odd\n", 1),
        ("gpu:b", -1),
        (None, 3),
        ("c", 10**30),
    ]
    allocated = [{"type": "gres", "name": name, "count": count} for name, count in amounts]
    record = {"tres": {"allocated": [{"type": "cpu", "count": 4}, *allocated]}}
    assert gres_of_record(record) == "gpu:a100:2,fpga:1"
    assert gres_of_record({}) == ""

"""A slice of `python -m lab.soak`: an hour of a small cluster through the daemon, and figures that report growth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from asad.store.store import Store
from lab.soak.__main__ import Soak
from lab.soak.figures import Series, census, slope
from lab.soak.slurm import Load, MadeUpSlurm

SETTINGS = {"interval_s": 60.0, "retention_days": 7.0, "admit": "everyone", "defer": "at-once"}
SMALL = Load(nodes=8, cores=4, jobs=60, applications=12, days=1 / 24, users=3, busy=1.5)


def test_an_hour_of_a_cluster_goes_by_in_a_moment(tmp_path: Path) -> None:
    soak = Soak(SMALL, 1, SETTINGS, tmp_path)
    soak.run()
    result = soak.result()
    assert result["cycles"] == 60
    assert result["failed"] == result["unanswered"] == result["dropped"] == 0
    assert result["submitted"] > 30
    assert result["finished"] > 0
    assert result["asked"] > 0
    assert {"rss_mib", "descriptors", "threads", "cycle_cpu_ms", "store_mib", "rows learned"} <= result[
        "slopes"
    ].keys()
    with Store.open(str(tmp_path / "asad.db"), create=False) as store:
        assert [run.state for run in store.runs()] == ["done"]


def test_the_same_seed_is_the_same_cluster() -> None:
    def day(seed: int) -> tuple[int, int, bytes]:
        slurm = MadeUpSlurm(SMALL, seed, 1_800_000_000)
        for step in range(1, 61):
            slurm.pass_until(1_800_000_000 + 60 * step)
        return slurm.submitted, slurm.finished, slurm.squeue()

    assert day(1) == day(1)
    assert day(1) != day(2)


def test_the_made_up_cluster_is_as_busy_as_it_is_to_be() -> None:
    load = Load(nodes=50, cores=16, jobs=6000, applications=600, days=6.0, busy=0.8)
    slurm = MadeUpSlurm(load, 1, 1_800_000_000)
    held = []
    for step in range(1, 12 * 24 * 6):
        slurm.pass_until(1_800_000_000 + 300 * step)
        held.append(1.0 - slurm.free.mean() / load.cores)
        assert (slurm.free >= 0).all()
    assert np.mean(held[12 * 24 :]) == pytest.approx(0.8, abs=0.15)
    assert slurm.submitted == pytest.approx(load.jobs, rel=0.1)
    assert slurm.named == pytest.approx(load.applications, rel=0.3)


def test_a_slope_shows_growth_from_noise() -> None:
    days = np.arange(0.0, 10.0, 1 / 24)
    noise = np.random.default_rng(1).normal(0.0, 1.0, len(days))
    flat, rising = slope(days, 100.0 + noise), slope(days, 100.0 + noise + 2.0 * days)
    assert not flat.grows
    assert rising.grows
    assert rising.a_day == pytest.approx(2.0, abs=0.2)
    assert rising.points == 9  # means of whole days
    assert abs(flat.a_day) < 4 * flat.error


def test_a_few_points_are_taken_as_they_are_and_two_show_nothing() -> None:
    few = slope([0.0, 0.1, 0.2, 0.3], [1.0, 2.0, 3.0, 4.0])
    assert few.a_day == pytest.approx(10.0)
    assert few.error == pytest.approx(0.0, abs=1e-9)
    nothing = slope([0.0, 1.0], [1.0, 2.0])
    assert math.isnan(nothing.a_day)
    assert not nothing.grows


def test_slopes_begin_where_it_has_settled() -> None:
    series = Series()
    for hour in range(96):
        series.add(hour / 24, {"x": 100.0 if hour >= 48 else float(hour)})
    assert series.slopes(2.0, 3.0)["x"].a_day == 0.0


def test_rows_of_the_store_may_grow_until_the_first_are_forgotten() -> None:
    series = Series()
    for hour in range(240):
        series.add(hour / 24, {"rows ledger": float(min(hour, 168)), "rows learned": float(hour)})
    slopes = series.slopes(2.0, 7.0)
    assert not slopes["rows ledger"].grows
    assert slopes["rows learned"].grows
    assert not math.isfinite(series.slopes(2.0, 11.0)["rows ledger"].a_day)


def test_what_never_changed_is_not_kept_with_the_result() -> None:
    series = Series()
    for day in range(3):
        series.add(float(day), {"entries a": 100.0, "entries b": 100.0 + day, "threads": 5.0})
    assert series.to_json().keys() == {"entries b", "threads"}


def test_a_census_names_what_grows() -> None:
    class Holder:
        """Of a module whose name begins as asad's do."""

        def __init__(self) -> None:
            self.kept = list(range(500))
            self.inner = {"one": {number: number for number in range(200)}, "few": [1, 2]}

    Holder.__module__ = "asad.made_up"
    found = census(Holder())
    assert found == {"daemon.kept": 500, "daemon.inner[one]": 200}


def test_the_made_up_cluster_forgets_what_is_over() -> None:
    load = Load(nodes=4, cores=16, jobs=6000, applications=200, days=10.0, busy=0.5)
    slurm = MadeUpSlurm(load, 1, 1_800_000_000)
    for step in range(1, 1440):
        slurm.pass_until(1_800_000_000 + 600 * step)
    assert slurm.finished > 4000
    assert len(slurm._past) <= 2000
    assert len(slurm._ended) < 20
    assert len(slurm.waiting) + len(slurm.running) < 200

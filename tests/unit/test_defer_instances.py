"""Trajectories of deferral: what is read, drawn, cut and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.defer.jobs import Trajectories
from asad.errors import ConfigError, UsageError
from asad_papers.osdec.deferral_instances import (
    SETTINGS,
    Setting,
    draw_trajectories,
    lognormal_shares,
    read_trajectories,
    setting_of,
)
from asad_papers.osdec.environment import World

JOBS = [[1, 2, 3, 4, 0], [2, 1, 1, 1, 1], [4, 3, 0, 2, 0]]


def archive(**changes: Any) -> dict[str, Any]:
    """The arrays of a good file; None leaves one out."""
    table: dict[str, Any] = {
        "jobs": np.array(JOBS, np.int32),
        "offsets": np.array([0, 2, 3]),
        "capacity": np.full((2, 5), 6, np.int32),
    }
    return {key: value for key, value in (table | changes).items() if value is not None}


def test_a_file_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "small.npz", **archive())
    found = read_trajectories(tmp_path / "small.npz")
    assert (len(found), found.steps) == (2, 5)
    assert found.cores.tolist() == [1, 2, 4]
    assert found.first.tolist() == [0, 2, 3]
    assert found.capacity.dtype == np.float64


def test_jobs_are_put_in_order_of_submission() -> None:
    rows = [[1, 1, 5, 5, 5], [2, 1, 3, 3, 3], [3, 1, 5, 5, 5], [4, 1, 0, 0, 0]]
    found = Trajectories.of(np.array(rows), np.array([0, 3, 4]), np.ones((2, 9)))
    assert found.cores.tolist() == [2, 1, 3, 4]


def test_some_of_them_are_taken() -> None:
    drawn = draw_trajectories(range(5))
    some = drawn.take([3, 1])
    for at, number in enumerate((3, 1)):
        here = slice(some.first[at], some.first[at + 1])
        there = slice(drawn.first[number], drawn.first[number + 1])
        for column in ("cores", "duration", "earliest", "latest", "submitted"):
            assert np.array_equal(getattr(some, column)[here], getattr(drawn, column)[there])
        assert np.array_equal(some.capacity[at], drawn.capacity[number])


def test_without_windows_each_job_starts_when_it_is_submitted_or_never() -> None:
    drawn = draw_trajectories([4])
    now = drawn.real_time()
    assert np.array_equal(now.submitted, now.earliest)
    assert np.array_equal(now.latest, now.earliest)
    assert (np.diff(now.submitted) >= 0).all()
    work = sorted(zip(drawn.cores, drawn.duration, drawn.earliest, strict=True))
    assert sorted(zip(now.cores, now.duration, now.earliest, strict=True)) == work


def wrong(row: int, column: int, value: int) -> Any:
    table = np.array(JOBS)
    table[row, column] = value
    return table


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"jobs": None}, "jobs is missing; add it"),
        ({"capacity": None}, "capacity is missing"),
        ({"jobs": np.ones((3, 4), np.int64)}, "jobs has 4 columns; give cores, duration"),
        ({"jobs": np.ones(5, np.int64)}, r"jobs is int64 \(5,\); give whole numbers in 2 dimensions"),
        ({"jobs": np.ones((3, 5))}, "jobs is float64"),
        ({"jobs": np.full((3, 5), 2**40)}, "jobs holds numbers beyond 32 bits"),
        ({"jobs": wrong(1, 0, 0)}, "jobs row 1 asks for no cores"),
        ({"jobs": wrong(2, 1, 0)}, "jobs row 2 has no duration"),
        ({"jobs": wrong(0, 1, 20_000_000)}, "jobs row 0 has no duration, or too long a one"),
        ({"jobs": wrong(0, 4, -1)}, "jobs row 0 lies outside of time"),
        ({"jobs": wrong(0, 4, 4)}, "jobs row 0 may start before it is submitted"),
        ({"jobs": wrong(0, 3, 2)}, "jobs row 0 has its latest start before its earliest"),
        ({"offsets": np.array([0, 3])}, "offsets has 2 rows for 2 trajectories of capacity; give 3"),
        ({"offsets": np.array([0, 4, 3])}, "offsets does not rise from 0 to 3"),
        ({"offsets": np.array([1, 2, 3])}, "offsets does not rise"),
        ({"offsets": np.array([0.0, 2.0, 3.0])}, "offsets is float64"),
        ({"capacity": np.ones(5)}, r"capacity is float64 \(5,\)"),
        ({"capacity": np.array([["a"]])}, "capacity is <U1"),
        ({"capacity": np.array([[1.0, np.nan], [1, 1]])}, "capacity of trajectory 0, step 1, is nan"),
        ({"capacity": np.array([[1.0, 1.0], [1, -1]])}, "capacity of trajectory 1, step 1, is -1"),
    ],
)
def test_a_wrong_file_is_reported_with_its_key_and_the_remedy(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, **archive(**changes))
    with pytest.raises(ConfigError, match=message) as error:
        read_trajectories(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x00" * 300, b'{"jobs": []}'])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken.npz: cannot be read as .npz"):
        read_trajectories(path)


def test_one_array_and_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ConfigError, match="is one array, not an archive"):
        read_trajectories(path)
    np.savez(tmp_path / "objects.npz", **archive(jobs=np.array([{"a": 1}], dtype=object)))
    with pytest.raises(ConfigError, match=r"cannot be read as \.npz"):
        read_trajectories(tmp_path / "objects.npz")


def test_a_seed_draws_the_same_alone_and_among_others() -> None:
    alone, among = draw_trajectories([7]), draw_trajectories([3, 7, 9]).take([1])
    assert np.array_equal(alone.capacity, among.capacity)
    assert np.array_equal(alone.cores, among.cores)
    assert not np.array_equal(alone.capacity, draw_trajectories([8]).capacity)


def test_what_is_drawn_is_what_was_stated() -> None:
    drawn = draw_trajectories(range(200))
    shares = [float((drawn.cores == size).mean()) for size in (1, 2, 4, 8, 16)]
    assert shares == pytest.approx([0.42, 0.26, 0.18, 0.09, 0.05], abs=0.01)
    assert np.median(drawn.duration) == 3
    assert (drawn.duration.min(), drawn.duration.max()) == (1, 24)
    assert set(np.unique(drawn.earliest - drawn.submitted)) == set(range(13))
    assert set(np.unique(drawn.latest - drawn.earliest)) == set(range(9))
    assert drawn.latest.max() == 95
    assert len(drawn.cores) / 200 == pytest.approx(340, rel=0.03)
    capacity = drawn.capacity
    assert (capacity == np.rint(capacity)).all()
    assert capacity.min() >= 5
    assert capacity.mean() == pytest.approx(45, abs=0.5)
    left = capacity - capacity.mean(axis=0)
    assert left[:, 30:].std() == pytest.approx(5.0, rel=0.05)
    assert (left[:, 31:] * left[:, 30:-1]).mean() / left[:, 30:].var() == pytest.approx(0.8, abs=0.04)
    # submitted in the steps whose jobs are all kept, as a share of what is free in the mean
    early = drawn.submitted < 84
    load = (drawn.cores * drawn.duration)[early].sum() / (84 * capacity.mean() * 200)
    assert load == pytest.approx(1.1, rel=0.03)


@pytest.mark.parametrize("name", SETTINGS)
def test_other_distributions_are_drawn(name: str) -> None:
    setting = SETTINGS[name]
    drawn = draw_trajectories(range(60), setting)
    sizes = [float((drawn.cores == size).mean()) for size in setting.cores]
    assert sizes == pytest.approx(setting.core_shares, abs=0.02)
    shares = setting.duration_shares or lognormal_shares(setting)
    lengths = np.bincount(drawn.duration, minlength=len(shares) + 1)[1:] / len(drawn.duration)
    assert lengths == pytest.approx(np.array(shares), abs=0.02)


def test_settings_that_cannot_be_are_refused() -> None:
    for setting, message in (
        (Setting(steps=0), "steps is 0"),
        (Setting(lead=-1), "lead is -1"),
        (Setting(load=0.0), "load is 0"),
        (Setting(cores=(1, 2)), "core_shares is"),
        (Setting(duration_shares=(0.5, 0.4)), "duration_shares is"),
        (Setting(cores=(0,), core_shares=(1.0,)), "cores is"),
    ):
        with pytest.raises(UsageError, match=message):
            draw_trajectories([0], setting)
    with pytest.raises(UsageError, match="no seeds"):
        draw_trajectories([])
    with pytest.raises(UsageError, match="there are recorded, cores-1"):
        setting_of("other")
    assert setting_of("recorded", load=2.0).load == 2.0


def test_a_world_refuses_what_cannot_be() -> None:
    drawn = draw_trajectories([0])
    with pytest.raises(UsageError, match="packing 'best'; there are prefix, skip-fit"):
        World(drawn, packing="best")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="span 2"):
        World(drawn, span=2)
    world = World(drawn)
    with pytest.raises(UsageError, match=r"scores: \(1, 3\); give"):
        world.step(np.zeros((1, 3)))
    while not world.done:
        world.step(np.zeros(world.rows.shape))
    with pytest.raises(UsageError, match="all 96 steps are decided; reset the world"):
        world.step(np.zeros(world.rows.shape))
    world.reset()
    assert world.now == 0
    assert (world.started < 0).all()

"""Policies of deferral: what they are by name, tuned weights, prices, what is expected, and the offline optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.defer.expected import Expected, of_past, read_expected
from asad.defer.features import FEATURES, weights
from asad.defer.jobs import Past, Trajectories, Waiting, Worth
from asad.defer.linear import Linear, read_weights
from asad.defer.lookahead import Lookahead
from asad.defer.packing import fill, score_of, starts, worth_most
from asad.defer.scorers import make_scorer, scorer_names, scorer_options
from asad.errors import ConfigError, UsageError
from asad_papers.osdec.deferral_fitting import fit, written_expected
from asad_papers.osdec.deferral_instances import draw_trajectories
from asad_papers.osdec.environment import play
from asad_papers.osdec.offline_starts import optimum
from asad_papers.osdec.tuning import tune, written_weights

BY_HAND = ("fifo", "sjf", "edf", "tetris", "biggest")


def waiting(**changes: Any) -> Waiting:
    """Three jobs at step 10 in a room of 4 cores, one of them not before step 12."""
    table = {
        "now": 10,
        "cores": np.array([4, 2, 2], np.int32),
        "duration": np.array([2, 5, 3], np.int32),
        "earliest": np.array([10, 8, 12], np.int32),
        "latest": np.array([12, 11, 14], np.int32),
        "submitted": np.array([3, 5, 9], np.int32),
        "capacity": 6.0,
        "running_cores": np.array([1, 1], np.int32),
        "running_left": np.array([1, 3], np.int32),
        "past": Past(*(np.full(10, 6.0) for _ in Past._fields)),
    }
    return Waiting(**(table | changes))


# ------------------------------------------------------------------------------------------------------- by name


@pytest.mark.parametrize("name", [name for name in scorer_names() if name != "osdec"])
def test_every_policy_scores_every_job_and_leaves_what_it_saw_alone(name: str) -> None:
    seen, before = waiting(), waiting()
    policy = make_scorer(name)
    assert policy.name == name
    assert policy.score(seen).shape == (3,)
    for column in ("cores", "duration", "earliest", "latest", "submitted", "running_cores", "running_left"):
        assert np.array_equal(getattr(seen, column), getattr(before, column))
    # the same question has the same answer, whatever was asked in between
    first = policy.score(seen)
    policy.score(waiting(capacity=60.0))
    assert np.array_equal(policy.score(seen), first)
    nobody = waiting(**{
        column: np.zeros(0, np.int32) for column in ("cores", "duration", "earliest", "latest", "submitted")
    })  # fmt: skip
    assert policy.score(nobody).shape == (0,)
    assert starts(policy, nobody).shape == (0,)


def test_the_baselines_say_what_their_names_say() -> None:
    order = {
        name: np.argsort(-make_scorer(name).score(waiting()), kind="stable").tolist() for name in BY_HAND
    }
    assert order == {
        "fifo": [0, 1, 2],
        "sjf": [0, 2, 1],
        "edf": [1, 0, 2],
        "tetris": [0, 2, 1],
        "biggest": [1, 0, 2],
    }


def test_only_who_may_start_is_packed() -> None:
    assert starts(make_scorer("sjf"), waiting()).tolist() == [True, False, False]
    assert starts(make_scorer("edf"), waiting()).tolist() == [False, True, False]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="no policy of the defer stage is called 'best'; did you mean"):
        make_scorer("best")
    with pytest.raises(UsageError, match="defer fifo: it has no option 'speed'; it has none"):
        make_scorer("fifo", {"speed": 1})
    with pytest.raises(
        UsageError, match="defer linear: it has no option 'speed'; there are packing, weights"
    ):
        make_scorer("linear", {"speed": 1})
    assert scorer_options("lookahead")["horizon"] == 36

    class Wrong:
        name = "wrong"

        def score(self, waiting: Waiting) -> Any:
            return np.zeros(len(waiting) + 1)

    with pytest.raises(UsageError, match=r"defer wrong: its scores are float64 \(4,\) for 3 jobs"):
        starts(Wrong(), waiting())


# -------------------------------------------------------------------------------------------------------- linear


def test_weights_ship_for_both_packings() -> None:
    assert not np.array_equal(Linear("prefix").weights, Linear("skip-fit").weights)
    with pytest.raises(UsageError, match="packing 'best'"):
        Linear("best")


def test_weights_are_written_and_read(tmp_path: Path) -> None:
    found = np.arange(8) / 7
    path = tmp_path / "mine.toml"
    path.write_text(written_weights({"prefix": found}, {"seed": 3, "of": "a test"}), encoding="utf-8")
    assert read_weights("prefix", str(path)) == pytest.approx(found, rel=1e-4)
    assert Linear("prefix", str(path)).weights == pytest.approx(found, rel=1e-4)
    with pytest.raises(ConfigError, match=r"mine.toml: has no weights \[skip-fit\]"):
        read_weights("skip-fit", str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = ", "cannot be read as TOML"),
        ("schema = 9", "schema is 9, not 1; tune anew"),
        ("schema = 1\n[prefix]\nspeed = 1", r"\[prefix\]: 'speed'; the features are cores"),
        ("schema = 1\n[prefix]\ncores = 'a'", r"\[prefix\]: cores is 'a'; give a number"),
        ("schema = 1\n[prefix]\ncores = nan", "cores is nan"),
        ("schema = 1\n[prefix]\ncores = true", "cores is True"),
    ],
)
def test_weights_that_cannot_be_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as error:
        read_weights("prefix", str(path))
    assert str(path) in str(error.value)
    with pytest.raises(ConfigError, match="No such file"):
        read_weights("prefix", str(tmp_path / "none.toml"))


def test_tuning_finds_more_than_the_baselines_and_the_same_again() -> None:
    drawn = draw_trajectories(range(24))
    seen: list[int] = []
    settings: dict[str, Any] = {"rounds": 8, "population": 24, "batch": 16}
    found = tune(
        drawn, np.random.default_rng(0), progress=lambda number, total: seen.append(number), **settings
    )
    again = tune(drawn, np.random.default_rng(0), **settings)
    assert np.array_equal(found, again)
    assert seen == list(range(1, 9))
    policy = Linear()
    policy.weights = found
    fresh = draw_trajectories(range(100, 140))
    total = {name: play(fresh, make_scorer(name)).gains.total(Worth()).mean() for name in ("fifo", "edf")}
    assert play(fresh, policy).gains.total(Worth()).mean() > max(total.values())


def test_weights_by_name() -> None:
    assert weights({"age": 2}).tolist() == [0, 0, 0, 0, 0, 2, 0, 0]
    assert len(FEATURES) == 8


# ----------------------------------------------------------------------------------------------------- lookahead


def test_the_knapsack_is_the_best_set() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        cores = rng.integers(1, 9, 8).astype(np.int32)
        gain = rng.uniform(0.1, 5.0, 8)
        free = int(rng.integers(0, 30))
        chosen = fill(cores, gain, free)
        assert cores[chosen].sum() <= free
        best = max(
            (float((cores * gain)[list(mask)].sum()))
            for mask in (np.flatnonzero(bits) for bits in product([0, 1], repeat=8))
            if cores[list(mask)].sum() <= free
        )
        assert (cores * gain)[chosen].sum() == pytest.approx(best)


def test_of_scores_that_show_gains_the_set_that_gains_most_starts() -> None:
    rng = np.random.default_rng(2)
    spread = 0.65
    for _ in range(40):
        cores = rng.integers(1, 9, 8).astype(np.int32)
        gain = rng.normal(3.0, 10.0, 8)
        free = float(rng.uniform(-3, 30))
        starts = worth_most(score_of(gain, spread), cores, free, spread)
        assert not starts.any() or cores[starts].sum() <= free
        assert (gain[starts] > 0).all()
        best = max(
            float(gain[list(mask)].sum())
            for mask in (np.flatnonzero(bits) for bits in product([0, 1], repeat=8))
            if not len(mask) or cores[list(mask)].sum() <= free
        )
        assert gain[starts].sum() == pytest.approx(best)
    odd = np.array([np.nan, 0.0, -1.0, np.inf, -np.inf])
    assert worth_most(odd, np.ones(5, np.int32), 3.0, spread).tolist() == [False, False, False, True, False]


def test_where_it_would_take_too_long_the_set_is_filled_greedily() -> None:
    rng = np.random.default_rng(1)
    cores = rng.integers(1, 9, 500).astype(np.int32)
    chosen = fill(cores, rng.uniform(0.1, 5.0, 500), 5000 // 2)
    greedy = fill(np.repeat(cores, 40), np.repeat(rng.uniform(0.1, 5.0, 500), 40), 1500)
    assert cores[chosen].sum() <= 2500
    assert np.repeat(cores, 40)[greedy].sum() <= 1500
    assert len(np.unique(greedy)) == len(greedy)


def expected(profile: list[float], coming: float = 0.0) -> Expected:
    return Expected(
        np.array(profile),
        0.0,
        np.array([coming]),
        np.array([3], np.int32),
        np.array([2], np.int32),
        np.array([1.0]),
    )


def planner(found: Expected, **options: Any) -> Lookahead:
    made = Lookahead(**options)
    made.expected = found
    return made


def two(now: int = 0) -> Waiting:
    """A job that must start now or never, one that may wait; both as wide as all that is free."""
    return waiting(
        now=now,
        cores=np.array([4, 4], np.int32),
        duration=np.array([3, 3], np.int32),
        earliest=np.full(2, now, np.int32),
        latest=np.array([now, now + 8], np.int32),
        submitted=np.zeros(2, np.int32),
        capacity=4.0,
        running_cores=np.zeros(0, np.int32),
        running_left=np.zeros(0, np.int32),
        past=Past(*(np.zeros(0) for _ in Past._fields)),
    )


def test_who_can_wait_lets_him_go_first_who_cannot() -> None:
    assert starts(planner(expected([4.0])), two()).tolist() == [True, False]


def test_a_job_that_would_run_into_a_time_without_room_waits_for_a_better_one() -> None:
    # steps 1 and 2 of eight have no room; from step 3 on there is plenty
    scarce = expected([4.0, 0.0, 0.0, 40.0, 40.0, 40.0, 40.0, 40.0])
    one = replace(two(), **{
        column: getattr(two(), column)[1:] for column in ("cores", "duration", "earliest", "latest", "submitted")
    })  # fmt: skip
    assert starts(planner(expected([40.0])), one).tolist() == [True]
    assert starts(planner(scarce), one).tolist() == [False]
    # whose last step it is does not wait
    last = replace(one, latest=np.array([0], np.int32))
    assert starts(planner(expected([4.0])), last).tolist() == [True]


def test_both_packings_start_the_same() -> None:
    drawn = draw_trajectories([3])
    policy = make_scorer("lookahead", {"expected": "recorded"})
    prefix, skip_fit = (play(drawn, policy, packing) for packing in ("prefix", "skip-fit"))
    assert np.array_equal(prefix.started, skip_fit.started)


def test_it_earns_more_than_the_heuristics() -> None:
    drawn = draw_trajectories(range(500, 508))
    total = {
        name: play(drawn, make_scorer(name, options)).gains.total(Worth()).mean()
        for name, options in (
            ("fifo", {}), ("edf", {}), ("biggest", {}), ("linear", {}), ("lookahead", {"expected": "recorded"}),
        )
    }  # fmt: skip
    assert total["lookahead"] == max(total.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 1}, "horizon 1; give 2 to 1000"),
        ({"rounds": 0}, "rounds 0"),
        ({"temperature": 0.0}, "temperature 0"),
        ({"delay": float("nan")}, "delay nan"),
        ({"period": -1}, "period -1"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Lookahead(**options)


# ------------------------------------------------------------------------------------------------------ expected


def test_what_was_fitted_is_written_and_read(tmp_path: Path) -> None:
    found = fit(draw_trajectories(range(40)), 48)
    assert found.persistence == pytest.approx(0.8, abs=0.05)
    # 45 less a sine of 20 with its height at step 7
    assert found.profile.argmin() == pytest.approx(7, abs=2)
    assert found.profile.mean() == pytest.approx(45, abs=1)
    # what comes is 1.1 times the mean capacity in core-steps
    assert float(found.coming @ found.duration) == pytest.approx(1.1 * 45, rel=0.08)
    assert found.unknown[0] == pytest.approx(1 / 13, abs=0.02)
    assert found.unknown[-1] == 1.0
    path = tmp_path / "mine.toml"
    path.write_text(written_expected(found), encoding="utf-8")
    again = read_expected(str(path))
    for name in ("profile", "coming", "duration", "window", "unknown", "persistence"):
        assert getattr(again, name) == pytest.approx(getattr(found, name), rel=1e-5)


def test_the_forecast_begins_at_the_present_and_ends_at_the_day() -> None:
    found = replace(expected([10.0, 20.0]), persistence=0.5)
    assert found.capacity(1, 24.0, 4).tolist() == [24.0, 12.0, 21.0, 10.5]
    assert found.capacity(0, 0.0, 3).tolist() == [0.0, 15.0, 7.5]


def test_without_a_file_it_is_taken_from_what_is_shown() -> None:
    days = np.tile([10.0, 20.0, 30.0], 5)
    seen = waiting(now=15, earliest=np.array([15, 8, 17], np.int32), latest=np.array([19, 19, 19], np.int32),
                   capacity=10.0, past=Past(days, *(np.zeros(15) for _ in Past._fields[1:])))  # fmt: skip
    found = of_past(seen, 3)
    assert found.profile.tolist() == [10.0, 20.0, 30.0]
    assert found.capacity(15, 10.0, 4) == pytest.approx([10.0, 20.0, 30.0, 10.0])
    assert found.coming.sum() == pytest.approx(2 / 3)  # one job of two cores in the next three steps
    assert len(of_past(seen, 0).profile) == 1
    first = replace(seen, past=Past(*(np.zeros(0) for _ in Past._fields)))
    assert of_past(first, 3).profile.tolist() == [10.0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "schema is 2, not 1"),
        ("persistence = 0", "persistence = 7", "persistence is 7; give a number, 0 to 1"),
        ("profile = [4]", "profile = []", "profile or unknown is empty"),
        ("profile = [4]", "profile = [-1]", "profile is not a list of numbers"),
        ("coming = [0]", "coming = [0, 1]", "coming, duration and window differ in length"),
        ("duration = [3]", "duration = [0]", "duration holds 0"),
    ],
)
def test_expectations_that_cannot_be_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = written_expected(expected([4.0]))
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        read_expected(str(path))
    with pytest.raises(ConfigError, match="No such file"):
        Lookahead(expected=str(tmp_path / "none.toml"))


# ------------------------------------------------------------------------------------------------------- offline


def best_by_trying(trajectories: Trajectories, worth: Worth, packed: bool) -> float:
    """All plans of a tiny trajectory."""
    t, capacity = trajectories, trajectories.capacity[0]
    many, steps = len(t.cores), trajectories.steps
    best = 0.0
    for plan in product(*([-1, *range(t.earliest[i], min(t.latest[i], steps - 1) + 1)] for i in range(many))):
        held, total = np.zeros(steps), 0.0
        for i, start in enumerate(plan):
            if start >= 0:
                held[start : start + t.duration[i]] += t.cores[i]
                total += t.cores[i] * t.duration[i] - worth.delay * (start - t.earliest[i])
        over = held > capacity
        if packed and any(start >= 0 and over[start] for start in plan):
            continue
        best = max(best, total - worth.violation * float(np.maximum(0.0, held - capacity).sum()))
    return best


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_the_best_of_all_plans(seed: int, packed: bool) -> None:
    rng = np.random.default_rng(seed)
    g = rng.integers(0, 4, 6)
    e = g + rng.integers(0, 2, 6)
    jobs = np.column_stack((rng.integers(1, 5, 6), rng.integers(1, 5, 6), e, e + rng.integers(0, 3, 6), g))
    small = Trajectories.of(jobs, np.array([0, 6]), rng.integers(0, 8, (1, 6)))
    worth = Worth(0.3, 1.0)
    plan = optimum(small, 0, worth, packed=packed, gap=0.0)
    assert plan.total == pytest.approx(best_by_trying(small, worth, packed), abs=1e-6)
    assert plan.gap == pytest.approx(0.0, abs=1e-6)
    for name in ("edf", "biggest"):
        assert play(small, make_scorer(name)).gains.total(worth)[0] <= plan.bound + 1e-6


def test_nobody_to_plan_for_is_worth_nothing() -> None:
    none = Trajectories.of(np.zeros((0, 5), np.int64), np.array([0, 0]), np.ones((1, 4)))
    assert optimum(none, 0).total == 0.0

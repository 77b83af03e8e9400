"""What starting a job now is worth, played both ways: signs that anybody can see, and the sums that make them."""

from __future__ import annotations

import numpy as np
import pytest

from asad.defer.jobs import Past, Trajectories, Waiting
from asad.defer.packing import pack
from asad.defer.rollout import Rollout
from asad_papers.osdec.deferral_fitting import learned_rollout
from asad_papers.osdec.deferral_instances import Setting, draw_trajectories

pytest.importorskip("torch")

from asad_papers.osdec.rl.improve import MOST, advantages

pytestmark = pytest.mark.slow

SETTING = Setting(steps=24, period=24)


@pytest.fixture(scope="module")
def seen() -> Trajectories:
    return draw_trajectories(range(8000, 8008), SETTING)


def state(
    cores: list[int], duration: list[int], latest: list[int], capacity: float, end: int | None = 24
) -> Waiting:
    """At step 0 of a trajectory: jobs that may start, and nobody runs."""
    many = len(cores)
    none = np.zeros(many, np.int32)
    empty = np.zeros(0)
    return Waiting(
        0, np.array(cores, np.int32), np.array(duration, np.int32), none, np.array(latest, np.int32), none,
        capacity, np.zeros(0, np.int32), np.zeros(0, np.int32), Past(*[empty] * len(Past._fields)), end,
    )  # fmt: skip


def improved(waiting: Waiting, scores: list[float], rollout: Rollout) -> list[float]:
    rows, scored = np.arange(len(waiting)), np.array(scores)
    started = pack(np.where(scored > 0.0, scored, -np.inf), waiting.cores, waiting.free, True)
    return advantages(waiting, rows, scored, started, rollout).tolist()


def test_a_job_that_must_start_now_is_worth_its_run(seen: Trajectories) -> None:
    rollout = learned_rollout(seen, 24, futures=4, depth=8)
    rollout.sample = (
        np.zeros((0, 4), np.int32),
        0.0,
        0.0,
    )  # nobody else comes, and the capacity does not waver
    (worth,) = improved(state([2], [3], [0], 1e6), [1.0], rollout)
    assert worth == pytest.approx(2 * 3)
    # the same if the network would have held it back
    assert improved(state([2], [3], [0], 1e6), [-1.0], rollout) == [worth]


def test_who_does_not_fit_beside_those_preferred_is_asked_in_place_of_the_least_of_them(
    seen: Trajectories,
) -> None:
    rollout = learned_rollout(seen, 24, futures=2, depth=4)
    waiting = state([3, 2, 1, 9], [4, 4, 4, 4], [9, 9, 9, 9], 4.0)
    worth = improved(waiting, [0.9, 0.5, 0.1, 0.3], rollout)
    assert np.isnan(worth).tolist() == [False, False, False, True], "of 4 cores nobody gets 9"
    without, with_it = rollout.play(
        waiting, np.array([[False, False, False, False], [False, True, False, False]])
    )
    assert worth[1] == pytest.approx(with_it - without), (
        "the least, of one core, does not suffice: both are left out"
    )


def test_each_is_played_beside_what_the_others_do_in_the_same_futures(seen: Trajectories) -> None:
    rollout = learned_rollout(seen, 24, futures=16, depth=12, seed=5)
    waiting = state([4, 2, 6, 1], [6, 3, 8, 2], [5, 2, 9, 1], 30.0)
    plan = np.array([True, False, True, False])
    worth = improved(waiting, [0.5, -0.2, 0.3, -0.4], rollout)
    for row, value in enumerate(worth):
        both = np.array([plan, plan])
        both[:, row] = True, False
        started, held = rollout.play(waiting, both)
        assert value == pytest.approx(started - held)


def test_of_very_many_a_draw_is_reported(seen: Trajectories) -> None:
    many = MOST + 7
    rollout = learned_rollout(seen, 24, futures=1, depth=2)
    worth = improved(state([1] * many, [2] * many, [5] * many, 1e6), [1.0] * many, rollout)
    assert np.isfinite(worth).sum() == MOST

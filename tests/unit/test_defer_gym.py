"""The world of deferral for gymnasium: its checkers pass, and it is the world of every benchmark."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="gymnasium is not installed (pip install './papers[rl]')")

from gymnasium.utils.env_checker import check_env

from asad.defer.deferral_options import PACKINGS, Packing
from asad.defer.jobs import Trajectories, Worth
from asad.defer.scorers import make_scorer
from asad.errors import UsageError
from asad_papers.osdec.deferral_gym import DeferEnv, DeferVectorEnv
from asad_papers.osdec.deferral_instances import draw_trajectories
from asad_papers.osdec.environment import play


@pytest.fixture(scope="module")
def drawn() -> Trajectories:
    return draw_trajectories(range(6))


def test_the_checker_of_gymnasium_passes(drawn: Trajectories) -> None:
    with warnings.catch_warnings():
        # it is no game: there is nothing to render, and what is observed has no bounds
        warnings.simplefilter("ignore")
        check_env(DeferEnv(drawn), skip_render_check=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(DeferEnv(drawn, most_jobs=16, hold=-0.5), skip_render_check=True)
    assert not [one for one in seen if "deprecat" in str(one.message)]


def edf(seen: dict[str, np.ndarray]) -> np.ndarray:
    """Scores by the latest start, from what is observed."""
    return (1.0 - seen["jobs"][..., 4]).astype(np.float32)


@pytest.mark.parametrize("packing", PACKINGS)
def test_an_episode_earns_what_the_policy_earns(drawn: Trajectories, packing: Packing) -> None:
    env = DeferEnv(drawn, packing=packing, most_jobs=200)
    expected = play(drawn, make_scorer("edf"), packing).gains.total(Worth())
    scale = drawn.capacity.mean()
    for number in range(len(drawn)):
        seen, info = env.reset(seed=0, options={"trajectory": number})
        assert info == {"trajectory": number}
        total, steps, done = 0.0, 0, False
        while not done:
            seen, reward, done, cut, _ = env.step(edf(seen))
            total, steps = total + reward, steps + 1
            assert not cut
        assert steps == drawn.steps
        assert total * scale == pytest.approx(expected[number])


def test_many_side_by_side_are_the_same_and_begin_anew(drawn: Trajectories) -> None:
    env = DeferVectorEnv(drawn, 4, most_jobs=200)
    expected = play(drawn, make_scorer("edf")).gains.total(Worth()) / drawn.capacity.mean()
    seen, info = env.reset(seed=3)
    assert all(value.shape[0] == 4 for value in seen.values())
    for _ in range(2):
        assert env.observation_space.contains(seen)
        chosen, total, done = info["trajectory"], np.zeros(4), np.zeros(4, bool)
        while not done.any():
            seen, reward, done, cut, _ = env.step(edf(seen))
            total += reward
            assert not cut.any()
        assert done.all()
        assert total == pytest.approx(expected[chosen])
        seen, reward, done, _, info = env.step(edf(seen))
        assert not reward.any()
        assert not done.any()


def test_who_is_not_shown_and_who_is_held_waits(drawn: Trajectories) -> None:
    env = DeferEnv(drawn, most_jobs=4)
    seen, _ = env.reset(options={"trajectory": 0})
    for _ in range(20):
        seen, _, _, _, info = env.step(edf(seen))
        assert (seen["mask"] > 0).sum() <= 4
    nobody = DeferEnv(drawn, hold=0.5)
    nobody.reset(options={"trajectory": 0})
    for _ in range(20):
        _, reward, _, _, info = nobody.step(np.zeros(128, np.float32))
        assert reward == 0.0
        assert info["value"] == 0.0


def test_what_cannot_be_is_refused(drawn: Trajectories) -> None:
    with pytest.raises(UsageError, match="most_jobs 0"):
        DeferEnv(drawn, most_jobs=0)
    env = DeferEnv(drawn)
    with pytest.raises(UsageError, match="trajectory 6: there are 6, from 0 on"):
        env.reset(options={"trajectory": 6})
    env.reset()
    with pytest.raises(UsageError, match=r"action: \(1, 3\); give scores \(1, 128\)"):
        env.step(np.zeros(3, np.float32))

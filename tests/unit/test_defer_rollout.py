"""Rollout: futures are played as the world plays them, proposals fit, and nothing that is to come is looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asad.defer.jobs import Trajectories, Waiting, Worth
from asad.defer.linear import Linear
from asad.defer.lookahead import Lookahead
from asad.defer.packing import starts
from asad.defer.rollout import Rollout, of_shown, read_sample
from asad.errors import ConfigError, UsageError
from asad.model import Floats, Ints
from asad_papers.osdec.deferral_figures import crowd
from asad_papers.osdec.deferral_fitting import fit, fit_sample, written_sample
from asad_papers.osdec.deferral_instances import draw_trajectories, read_trajectories
from asad_papers.osdec.environment import World, play


def learned(**options: int) -> Rollout:
    return Rollout(expected="recorded", sample="recorded", **options)


class Scripted(Rollout):
    """One future: the real one, with nobody to come."""

    def imagine(self, waiting: Waiting, steps: int, futures: int) -> tuple[Floats, Ints, Ints]:
        return self.real[None, :steps], np.zeros(2, np.int32), np.zeros((0, 5), np.int32)

    real: Floats


def test_what_is_played_is_what_the_world_would_earn() -> None:
    rng = np.random.default_rng(0)
    many, steps = 60, 24
    cores = rng.choice([1, 2, 4, 8, 16], many)
    earliest = rng.integers(0, 12, many)
    jobs = np.column_stack(
        (
            cores,
            rng.integers(1, 20, many),
            earliest,
            np.minimum(23, earliest + rng.integers(0, 9, many)),
            0 * cores,
        )
    )
    capacity = np.maximum(5, 40 + 15 * np.sin(np.arange(steps) / 4))[None, :]
    trajectories = Trajectories.of(jobs, [0, many], capacity)
    world = World(trajectories)
    waiting = world.view(0)
    seen = Scripted(depth=steps)
    seen.real = capacity[0]
    proposals = seen.propose(waiting)
    text = seen.play(waiting, proposals)
    linear, worth = Linear(), Worth()
    for proposal, value in zip(proposals, text, strict=True):
        world = World(trajectories)
        total = world.step(np.where(proposal, 1.0, -np.inf)[None, :]).total(worth)[0]
        while not world.done:
            total += world.step(world.weighted(linear.weights)).total(worth)[0]
        assert value == pytest.approx(total)


def test_proposals_fit_and_none_is_twice() -> None:
    scorer = learned()
    for seed in range(5):
        waiting = crowd(60, seed)
        proposals = scorer.propose(waiting)
        assert len({row.tobytes() for row in proposals}) == len(proposals) > 1
        assert (proposals @ waiting.cores <= max(waiting.free, 0)).all()
        assert not proposals[:, ~waiting.startable].any()
        assert (proposals[0] == np.isfinite(scorer.lookahead.score(waiting))).all()


def test_the_same_view_gives_the_same_answer_and_nothing_to_come_matters() -> None:
    drawn = draw_trajectories([5])
    changed = replace(drawn, capacity=np.where(np.arange(96) > 40, 7.0, drawn.capacity))
    answers = []
    for trajectories in (drawn, changed):
        world, scorer, rows = World(trajectories), learned(futures=4), []
        while world.now <= 40:
            scored = scorer.score(world.view(0))
            assert (scored == learned(futures=4).score(world.view(0))).all() or world.now % 10
            scores = np.full(world.rows.shape, -np.inf)
            scores[0, : len(scored)] = scored
            rows.append(scored)
            world.step(scores)
        answers.append(rows)
    assert all((one == two).all() for one, two in zip(*answers, strict=True))


@pytest.mark.parametrize("scorer", [Rollout(futures=4), learned(futures=4)], ids=["shown", "learned"])
def test_whatever_is_shown_it_starts_what_fits(scorer: Rollout) -> None:
    for many in (0, 1, 7, 60):
        for end in (None, 61, 75):
            waiting = replace(crowd(many), end=end)
            begun = starts(scorer, waiting, "prefix")
            assert waiting.cores[begun].sum() <= max(waiting.free, 0)
            assert (begun == starts(scorer, waiting, "skip-fit")).all()
    full = replace(crowd(30), capacity=1.0)
    assert not np.isfinite(scorer.score(full)).any()


def test_with_few_jobs_shown_nobody_else_is_expected() -> None:
    jobs, rate, _ = of_shown(crowd(3))
    assert jobs.shape == (0, 4) and rate == 0.0
    jobs, _, deviation = of_shown(crowd(30))
    assert jobs.shape == (30, 4) and deviation > 0


@pytest.mark.slow
def test_it_earns_more_than_what_it_proposes(data: Path) -> None:
    some = read_trajectories(data / "osdec" / "test_50.npz").take(range(12))
    worth = Worth()
    ahead = play(some, Lookahead(expected="recorded")).gains.total(worth).mean()
    linear = play(some, Linear()).gains.total(worth).mean()
    mine = play(some, learned()).gains.total(worth).mean()
    assert mine > ahead and mine > linear


def test_a_sample_is_written_and_read(tmp_path: Path) -> None:

    drawn = draw_trajectories(range(8))
    sample = fit_sample(drawn, fit(drawn, 48))
    path = tmp_path / "mine.toml"
    path.write_text(written_sample(sample, "made up\nhere"))
    jobs, rate, deviation = read_sample(str(path))
    assert (jobs == sample[0]).all() and rate == pytest.approx(sample[1], rel=1e-5)
    assert deviation == pytest.approx(sample[2], rel=1e-5) == pytest.approx(3.0, abs=0.5)
    assert len(read_sample()[0]) == 400


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("schema = 2", "schema is 2"),
        ("schema = 1\nrate = -1", "rate"),
        ("schema = 1\nrate = 1\ndeviation = true", "deviation"),
        ("schema = 1\nrate = 1\ndeviation = 1\njobs = []", "jobs is no list"),
        ("schema = 1\nrate = 1\ndeviation = 1\njobs = [[1, 0, 0, 0]]", "jobs is no list"),
        ("schema = 1\nrate = 1\ndeviation = 1\njobs = [[1, 1, 0.5, 0]]", "jobs is no list"),
        ("=", "cannot be read as TOML"),
    ],
)
def test_a_wrong_sample_is_refused(text: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=shown):
        read_sample(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sample(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    "options", [{"futures": 0}, {"depth": 1}, {"seed": -1}, {"violation": -1.0}, {"delay": -1.0}]
)
def test_wrong_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="defer "):
        Rollout(**options)  # type: ignore[arg-type]

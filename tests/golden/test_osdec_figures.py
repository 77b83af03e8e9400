"""The recorded trajectories of deferral: figures that were measured elsewhere, and that must come out here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asad.defer.deferral_options import Packing
from asad.defer.jobs import Trajectories, Worth
from asad.defer.scorers import make_scorer
from asad_papers.osdec import deferral_figures as defer_bench
from asad_papers.osdec.deferral_instances import draw_trajectories, read_trajectories
from asad_papers.osdec.environment import play
from asad_papers.osdec.offline_starts import optimum

pytestmark = pytest.mark.traces


@pytest.fixture(scope="module")
def recorded(data: Path) -> Trajectories:
    return read_trajectories(data / "osdec" / "test_50.npz")


def total(trajectories: Trajectories, name: str, packing: Packing) -> float:
    (row,) = defer_bench.entrants([name])
    (policy,) = row[1](packing)
    return float(play(trajectories, policy, packing).gains.total(Worth()).mean())


@pytest.mark.parametrize(
    ("name", "packing", "figure"),
    [
        ("fifo", "prefix", 3438),
        ("sjf", "prefix", 3344),
        ("tetris", "prefix", 3388),
        ("edf", "prefix", 3510),
        ("fifo", "skip-fit", 3540),
        ("biggest", "skip-fit", 3608),
        ("edf", "skip-fit", 3630),
    ],
)
def test_baselines(recorded: Trajectories, name: str, packing: Packing, figure: float) -> None:
    assert total(recorded, name, packing) == pytest.approx(figure, rel=0.005)


def test_the_tuned_linear_score(recorded: Trajectories) -> None:
    assert total(recorded, "linear", "skip-fit") >= 3662


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("lookahead", 3720), ("rollout", 3750)])
def test_what_plans_ahead(recorded: Trajectories, name: str, least: float) -> None:
    # the sets they choose fit, whichever way they are packed
    assert total(recorded, name, "prefix") >= least


def test_the_offline_optimum_and_fifo_on_the_first_six(recorded: Trajectories) -> None:
    some = recorded.take(range(6))
    assert total(some, "fifo", "prefix") == pytest.approx(3423, rel=0.005)
    plan = optimum(recorded, 2, time_limit_s=30.0, gap=0.01)
    assert plan.gap <= 0.0101
    # all six take half a minute to a thousandth: 4062 in the mean
    assert plan.total == pytest.approx(3710, rel=0.01)


@pytest.mark.parametrize(
    ("name", "packing"), [("fifo", "prefix"), ("edf", "skip-fit"), ("biggest", "skip-fit")]
)
def test_what_is_drawn_here_earns_what_the_recorded_do(
    recorded: Trajectories, name: str, packing: Packing
) -> None:
    drawn = draw_trajectories(range(1000, 1200))
    ours = play(drawn, make_scorer(name), packing).gains.total(Worth())
    theirs = play(recorded, make_scorer(name), packing).gains.total(Worth())
    noise = np.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
    assert abs(ours.mean() - theirs.mean()) < 3 * noise

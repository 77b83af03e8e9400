"""How many steps a second the world of deferral does, how long a decision takes, and what policies are worth.

Times are of one core, compiled beforehand: the best of several runs, since others share the machine. The page goes to
build/bench/osdec.html.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from asad.defer.jobs import Worth
from asad.replay import defer_bench
from asad.replay.defer_instances import read_trajectories
from asad.report import deferral as report
from asad.report.page import write_whole

PAGE = Path(__file__).resolve().parents[1] / "build" / "bench" / "osdec.html"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    defer_bench.warm_up()


def test_steps_a_second_and_decisions_with_200_jobs() -> None:
    found = defer_bench.speed(defer_bench.entrants())
    print(
        f"\n{found['steps_per_s']:,.0f} steps/s of edf, {found['steps_per_s_stepped']:,.0f} stepped from outside"
    )
    for name, ms in found["decide_ms_each"].items():  # type: ignore[union-attr]
        print(f"{name}: {ms:.3f} ms")
    assert found["steps_per_s"] >= 50_000  # type: ignore[operator]
    assert found["steps_per_s_stepped"] >= 50_000  # type: ignore[operator]
    assert found["decide_ms"] < 5.0  # type: ignore[operator]


@pytest.mark.traces
def test_totals_on_the_recorded_trajectories(data: Path) -> None:
    trajectories = read_trajectories(data / "osdec" / "test_50.npz")
    document = defer_bench.compare(trajectories, defer_bench.entrants(), Worth())
    print()
    for name, row in document["skip_fit"].items():
        spread = (
            f" ± {row['seeds_std']:.1f} over {row['seeds']} seeds" if row["seeds_std"] is not None else ""
        )
        prefix = document["prefix"][name]["total_mean"]
        print(f"{name:>16}: prefix {prefix:8.1f}, skip-fit {row['total_mean']:8.1f}{spread}")
    about = {
        "name": "test_50", "trajectories": len(trajectories), "steps": trajectories.steps,
        "jobs": len(trajectories.cores), "omega_1": 0.3, "omega_2": 1.0, "as_printed": False,
    }  # fmt: skip
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(report.page({**document, "about": about}, "make bench"), PAGE)
    print(f"the page: {PAGE}")
    fifo = document["skip_fit"]["fifo"]["total_mean"]
    assert max(row["total_mean"] for row in document["skip_fit"].values()) > 1.03 * fifo

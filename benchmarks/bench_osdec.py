"""How many steps a second the world of deferral does, how long a decision takes, and what policies are worth.

Times are of one core, compiled beforehand: the best of several runs, since others share the machine. The page goes to
build/bench/osdec.html.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stated import beside

from asad.defer.jobs import Worth
from asad.report.html import write_whole
from asad_papers.osdec import deferral_figures as defer_bench
from asad_papers.osdec import deferral_page as report
from asad_papers.osdec.deferral_instances import draw_trajectories, read_trajectories

PAGE = Path(__file__).resolve().parents[1] / "build" / "bench" / "osdec.html"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    defer_bench.warm_up()


def test_steps_a_second_and_decisions_with_200_jobs(smallest: bool) -> None:
    found: dict[str, Any] = defer_bench.speed(defer_bench.entrants(), 1 if smallest else 5)
    print("\n" + beside("steps of edf", found["steps_per_s"], 50_000, "/s"))
    print(beside("stepped from outside", found["steps_per_s_stepped"], 50_000, "/s"))
    for name, ms in found["decide_ms_each"].items():
        print(beside(f"a decision of {name}", ms, 5.0, "ms"))


def test_totals_on_the_recorded_trajectories(smallest: bool, request: pytest.FixtureRequest) -> None:
    trajectories = (
        draw_trajectories(range(2))
        if smallest
        else read_trajectories(request.getfixturevalue("data") / "osdec" / "test_50.npz")
    )
    document = defer_bench.compare(trajectories, defer_bench.entrants(), Worth())
    print()
    for name, row in document["skip_fit"].items():
        spread = (
            f" ± {row['seeds_std']:.1f} over {row['seeds']} seeds" if row["seeds_std"] is not None else ""
        )
        prefix = document["prefix"][name]["total_mean"]
        print(f"{name:>16}: prefix {prefix:8.1f}, skip-fit {row['total_mean']:8.1f}{spread}")
    about = {
        "name": "drawn" if smallest else "test_50", "trajectories": len(trajectories), "steps": trajectories.steps,
        "jobs": len(trajectories.cores), "omega_1": 0.3, "omega_2": 1.0, "as_printed": False,
    }  # fmt: skip
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(report.reading({**document, "about": about}).page("make bench"), PAGE)
    print(f"the page: {PAGE}")
    if smallest:
        return
    fifo = document["skip_fit"]["fifo"]["total_mean"]
    assert max(row["total_mean"] for row in document["skip_fit"].values()) > 1.03 * fifo

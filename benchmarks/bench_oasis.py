"""How long OASiS takes to decide about one job, and what it is worth beside other schemes.

Times are those of `asactl bench oasis`: of `Oasis.arrive` alone, compiled beforehand, on one core. The plot of their
growth goes to build/bench/oasis.html.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from stated import beside

from asad.report.html import write_whole
from asad_papers.oasis import scheme_figures as admission
from asad_papers.oasis import scheme_page as report
from asad_papers.oasis.scheme_instances import Instance, draw_instance, read_folder

PAGE = Path(__file__).resolve().parents[1] / "build" / "bench" / "oasis.html"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    admission.warm_up(("oasis", "oasis-informed", "drf", "rrh"))


def decide_ms(instance: Instance, scheme: str, times: int = 3) -> NDArray[np.float64]:
    """Time of each decision: the best of several runs, which decide the same, since others share the machine."""
    runs = [admission.play(instance, scheme).jobs for _ in range(times)]
    found: NDArray[np.float64] = 1000 * np.array([[job.decide_s for job in run] for run in runs]).min(axis=0)
    return found


@pytest.mark.parametrize("scheme", ["oasis", "oasis-informed"])
def test_a_decision_at_300_slots_and_50_servers(scheme: str, smallest: bool) -> None:
    jobs, slots, servers = (10, 30, 5) if smallest else (300, 300, 50)
    took = decide_ms(draw_instance(jobs, 0, slots=slots, servers=servers), scheme)
    print(f"\n{scheme}, T = {slots}, H = K = {servers}: worst {took.max():.1f} ms")
    print(beside("  mean", float(took.mean()), 2.0, "ms"))
    print(beside("  p99", float(np.percentile(took, 99)), 15.0, "ms"))


def test_a_decision_at_1000_servers(smallest: bool) -> None:
    jobs, servers = (5, 100) if smallest else (200, 1000)
    took = decide_ms(draw_instance(jobs, 0, slots=300, servers=servers), "oasis", times=2)
    print(f"\noasis, T = 300, H = K = {servers}: p99 {np.percentile(took, 99):.2f} ms")
    print(beside("  mean", float(took.mean()), 20.0, "ms"))


def test_growth_with_slots_workers_and_servers(smallest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if smallest:
        monkeypatch.setattr(admission, "GROWTH", {"servers": (10, 20)})
    rows = admission.growth(10 if smallest else 200)
    print()
    for row in rows:
        mean, p99 = row["decide_ms_mean"], row["decide_ms_p99"]
        print(f"{row['by']:>8} {row['value']:>5}: mean {mean:7.2f} ms, p99 {p99:7.2f} ms")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(report.reading({"growth": rows}).page("make bench"), PAGE)
    print(f"the plot: {PAGE}")
    servers = {row["value"]: row["decide_ms_mean"] for row in rows if row["by"] == "servers"}
    # a hundred times the servers: sorting them costs little more than reading their prices
    most = max(servers)
    print(beside(f"{most} servers over 10", servers[most] / max(servers[10], 0.05), 2 * most / 10, "times"))


def test_utility_on_the_recorded_instances(smallest: bool, request: pytest.FixtureRequest) -> None:
    instances = (
        [draw_instance(20, 0, slots=30, servers=5)]
        if smallest
        else read_folder(request.getfixturevalue("data") / "oasis")
    )
    schemes = ("oasis", "oasis-informed", "oasis-paper", "fifo", "drf", "rrh")
    totals = admission.sums(instances, admission.compare(instances, schemes))
    print()
    for jobs, row in totals.items():
        print(f"{jobs:>4} jobs: " + ", ".join(f"{name} {row[name]:,.0f}" for name in schemes))
    if smallest:
        return
    for jobs, asked in (("50", 4400), ("100", 5450), ("200", 8000)):
        assert totals[jobs]["oasis-informed"] >= asked
        assert totals[jobs]["oasis"] >= 0.95 * totals[jobs]["oasis-informed"]
        for other in ("fifo", "drf", "rrh"):
            assert totals[jobs]["oasis"] > totals[jobs][other], f"{other} is worth more with {jobs} jobs"

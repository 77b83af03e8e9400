"""How long OASiS takes to decide about one job, and what it is worth beside other schemes.

Times are those of `asactl bench oasis`: of `Oasis.arrive` alone, compiled beforehand, on one core. The plot of their
growth goes to build/bench/oasis.html.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from asad.replay import admission
from asad.replay.instances import Instance, draw_instance, read_folder
from asad.report import admission as report
from asad.report.page import write_whole

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
def test_a_decision_at_300_slots_and_50_servers(scheme: str) -> None:
    took = decide_ms(draw_instance(300, 0, slots=300, servers=50), scheme)
    mean, p99 = took.mean(), np.percentile(took, 99)
    print(f"\n{scheme}, T = 300, H = K = 50: mean {mean:.2f} ms, p99 {p99:.2f} ms, worst {took.max():.1f} ms")
    assert mean <= 2.0
    assert p99 <= 15.0


def test_a_decision_at_1000_servers() -> None:
    took = decide_ms(draw_instance(200, 0, slots=300, servers=1000), "oasis", times=2)
    print(f"\noasis, T = 300, H = K = 1000: mean {took.mean():.2f} ms, p99 {np.percentile(took, 99):.2f} ms")
    assert took.mean() <= 20.0


def test_growth_with_slots_workers_and_servers() -> None:
    rows = admission.growth()
    print()
    for row in rows:
        mean, p99 = row["decide_ms_mean"], row["decide_ms_p99"]
        print(f"{row['by']:>8} {row['value']:>5}: mean {mean:7.2f} ms, p99 {p99:7.2f} ms")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(report.page({"growth": rows}, "make bench"), PAGE)
    print(f"the plot: {PAGE}")
    servers = {row["value"]: row["decide_ms_mean"] for row in rows if row["by"] == "servers"}
    # a hundred times the servers: sorting them costs little more than reading their prices
    assert servers[1000] <= 200 * max(servers[10], 0.05)


@pytest.mark.traces
def test_utility_on_the_recorded_instances(data: Path) -> None:
    instances = read_folder(data / "oasis")
    schemes = ("oasis", "oasis-informed", "oasis-paper", "fifo", "drf", "rrh")
    totals = admission.sums(instances, admission.compare(instances, schemes))
    print()
    for jobs, row in totals.items():
        print(f"{jobs:>4} jobs: " + ", ".join(f"{name} {row[name]:,.0f}" for name in schemes))
    for jobs, asked in (("50", 4400), ("100", 5450), ("200", 8000)):
        assert totals[jobs]["oasis-informed"] >= asked
        assert totals[jobs]["oasis"] >= 0.95 * totals[jobs]["oasis-informed"]
        for other in ("fifo", "drf", "rrh"):
            assert totals[jobs]["oasis"] > totals[jobs][other], f"{other} is worth more with {jobs} jobs"

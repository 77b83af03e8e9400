"""The recorded OgaSched instances: figures that were measured elsewhere, and that must come out here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asad.place.oga import Oga, Options
from asad_papers.oga import port_figures as ports_bench
from asad_papers.oga.best_fixed import best_fixed
from asad_papers.oga.port_instances import PortInstance, draw_port_instance, read_port_instance

pytestmark = pytest.mark.traces


@pytest.fixture(scope="module")
def mixed(data: Path) -> PortInstance:
    return read_port_instance(data / "ogasched" / "inst_mixed_s64_c10_T2000.npz")


@pytest.mark.parametrize(
    ("policy", "reward"), [("fairness", 173.03), ("drf", 152.94), ("spread", 103.30), ("binpack", 94.46)]
)
def test_baselines(mixed: PortInstance, policy: str, reward: float) -> None:
    found = ports_bench.play(mixed, policy)
    assert found["reward_mean"] == pytest.approx(reward, abs=0.01)
    assert found["violations"] == 0


def test_the_best_fixed_allocation(mixed: PortInstance) -> None:
    best = best_fixed(mixed.ports, mixed.arrivals.mean(axis=0))
    assert best.reward == pytest.approx(201.44, abs=0.005)
    assert 0 <= best.bound - best.reward <= 1e-4


def test_the_three_modes(mixed: PortInstance) -> None:
    def mean(oga: Oga) -> float:
        total = 0.0
        for x in mixed.arrivals:
            y = oga.allot(x)
            assert mixed.ports.violation(y) <= 1e-12
            total += mixed.ports.reward(y, x)
        return total / len(mixed.arrivals)

    strict = mean(Oga(mixed.ports, "strict", Options(eta=0.39, decay=0.9999)))
    assert strict >= 198.0
    assert strict >= 0.98 * 201.45
    assert mean(Oga(mixed.ports, "reactive", Options(eta=1.0))) == pytest.approx(226.8, abs=0.05)
    assert mean(Oga(mixed.ports, "reclaim", Options(eta=1.0))) >= 241.0


@pytest.mark.slow
def test_the_ordering_holds_on_ten_fresh_seeds() -> None:
    found = ports_bench.seeds(range(1, 11), slots=1000)["same_parameters"]
    assert isinstance(found, dict)
    means = found["gain_mean"]
    assert isinstance(means, dict)
    assert means["oga-strict"] >= 0.12  # type: ignore[operator]
    assert means["oga-reclaim"] >= 0.35  # type: ignore[operator]
    rows = found["rows"]
    assert isinstance(rows, list)
    for row in rows:
        assert isinstance(row, dict)
        gain = row["gain"]
        assert isinstance(gain, dict)
        assert 0 < gain["oga-strict"] < gain["oga-reclaim"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("inst_mixed_s64_c10_T2000", {}),
        ("linear_T2000_c10", {"utility": "linear"}),
        (
            "large_L100_R1024",
            {"utility": "linear", "ports": 100, "instances": 1024, "contention": 5.0, "beta": (0.01, 0.015),
             "slots": 4},
        ),
    ],
)  # fmt: skip
def test_seed_0_draws_the_recorded_instances_again(
    data: Path, name: str, settings: dict[str, object]
) -> None:
    read = read_port_instance(data / "ogasched" / f"{name}.npz")
    drawn = draw_port_instance(0, **settings)  # type: ignore[arg-type]
    for table in ("requests", "capacities", "port", "instance", "alpha", "form", "beta"):
        assert np.array_equal(getattr(read.ports, table), getattr(drawn.ports, table)), table
    assert np.array_equal(read.arrivals, drawn.arrivals)
    assert (read.eta, read.decay) == (drawn.eta, drawn.decay)

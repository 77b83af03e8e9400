"""How many slots a second OgaSched divides, against the number of edges.

Timed is dividing and learning, compiled beforehand, on one core: the best of several runs, since others share the
machine. The plot of the growth goes to build/bench/oga.html.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stated import beside

from asad.place.oga import MODES
from asad.report.html import write_whole
from asad_papers.oga import port_figures as ports_bench
from asad_papers.oga import port_page as report
from asad_papers.oga.port_instances import PortInstance, draw_port_instance, read_port_instance

PAGE = Path(__file__).resolve().parents[1] / "build" / "bench" / "oga.html"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    ports_bench.warm_up()


def slots_per_s(instance: PortInstance, name: str, stated: float, repeat: int = 7) -> None:
    found = ports_bench.play(instance, name, repeat=repeat)
    assert found["violations"] == 0
    with_reward = found["slots_per_s_with_reward"]
    print(
        f"\n{instance.name}, {name}: {found['slots_per_s']:,.0f} slots/s, {with_reward:,.0f} with the reward"
    )
    print(beside("slots a second", float(found["slots_per_s"]), stated, "slots/s"))


@pytest.mark.parametrize("mode", MODES)
def test_ten_ports_on_128_instances(mode: str, smallest: bool) -> None:
    instance = draw_port_instance(0, instances=8, slots=20) if smallest else draw_port_instance(0)
    slots_per_s(instance, f"oga-{mode}", 10_000, 1 if smallest else 7)


@pytest.mark.parametrize("mode", MODES)
def test_100_ports_on_1024_instances(mode: str, smallest: bool, request: pytest.FixtureRequest) -> None:
    if smallest:
        slots_per_s(draw_port_instance(0, ports=20, instances=32, slots=20), f"oga-{mode}", 1_500, 1)
        return
    read = read_port_instance(request.getfixturevalue("data") / "ogasched" / "large_L100_R1024.npz")
    x = ports_bench.large_arrivals(len(read.ports.requests))
    instance = PortInstance("L = 100, R = 1024", read.ports, x, read.eta, read.decay)
    slots_per_s(instance, f"oga-{mode}", 1_500, 5)


def test_cost_grows_linearly_with_the_edges(smallest: bool) -> None:
    rows = ports_bench.growth(sizes=(8, 16) if smallest else ports_bench.GROWTH)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(report.reading({"growth": rows}).page("make bench"), PAGE)
    for mode in MODES:
        edges = np.array([row["edges"] for row in rows], np.float64)  # type: ignore[index, call-overload]
        took = np.array([row["slot_us"][f"oga-{mode}"] for row in rows])  # type: ignore[index, call-overload]
        each = took / edges
        print(
            f"\n{mode}: " + ", ".join(f"{e:.0f} edges {t:.0f} µs" for e, t in zip(edges, took, strict=True))
        )
        # 240 times the edges: no more than twice the time of an edge (caches), where a square would be 240 times
        print(beside("an edge of the most, over one of the second row", each[-1] / each[1], 2.0, "times"))

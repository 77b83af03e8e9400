"""Statements of work: how many are planned in a second, whether that falls with time, and what they are worth.

Speeds are those of `asactl bench sow`: rounds, plans, arrivals, evictions and ends, compiled beforehand, of CPU time.
The plot of welfare over fresh instances goes to build/bench/sow.html.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from stated import beside

from asad.report.html import write_whole
from asad_papers.sow import statement_figures as sow_bench
from asad_papers.sow import statement_page as report
from asad_papers.sow.statement_instances import draw_sow_instance, read_sow_instance

PAGE = Path(__file__).resolve().parents[1] / "build" / "bench" / "sow.html"


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    sow_bench.warm_up()


@pytest.fixture(autouse=True)
def effort(smallest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if smallest:
        for name, value in {"SPEED_STATEMENTS": 200, "SPEED_RUNS": 1, "JOBS_TRIED": 2, "TRIES": 1}.items():
            monkeypatch.setattr(sow_bench, name, value)
        monkeypatch.setattr(sow_bench, "LOADS", (1.0,))


@pytest.mark.parametrize("load", sow_bench.LOADS)
def test_statements_a_second(load: float) -> None:
    found = sow_bench.speed(draw_sow_instance(load, 0))
    print("\n" + beside(f"load {load:g}, C = 100", found, 10_000, "statements/s"))


def test_a_statement_costs_no_more_after_100_000_others(smallest: bool) -> None:
    statements = 500 if smallest else 100_000
    found = sow_bench.growth(draw_sow_instance(2.0, 0), statements=statements)
    early, late = found["first_tenth_per_s"], found["last_tenth_per_s"]
    print(f"\n{statements} statements: the first tenth {early:,.0f}/s, the last {late:,.0f}/s")
    print(beside("the last over the first", late / early, 0.8, "times"))


def test_welfare_on_fresh_instances(smallest: bool) -> None:
    rows = sow_bench.seeds(range(1, 2 if smallest else 4))
    print()
    for row in rows:
        ratios = {name: policy["welfare_ratio"] for name, policy in row["policies"].items()}
        print(
            f"load {row['load']:g}, seed {row['seed']}: "
            + ", ".join(f"{k} {v:.3f}" for k, v in ratios.items())
        )
        own = row["policies"]["sow"]
        assert own["welfare_ratio"] >= {1.0: 0.94, 2.0: 0.82, 4.0: 0.70}[row["load"]]
        assert own["evicted"] <= 0.05 * own["planned"]
        assert own["welfare_ratio"] >= 1.5 * ratios["reservation"]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_whole(report.reading({"seeds": rows}, "fresh instances").page("make bench"), PAGE)
    print(f"the plot: {PAGE}")


@pytest.mark.parametrize("load", [1, 2, 4])
def test_no_misreport_gains_on_the_recorded_instances(
    load: int, smallest: bool, request: pytest.FixtureRequest
) -> None:
    instance = (
        draw_sow_instance(float(load), 0)
        if smallest
        else read_sow_instance(request.getfixturevalue("data") / "sow" / f"load{load}.json")
    )
    found = sow_bench.truthfulness(instance)
    print(f"\nload {load}: best gains {found['by_kind']}")
    print(
        f"at birth none above {found['bound']:.4f}; the last job to be born, by waiting, {found['birth_of_last']:.3f}"
    )
    assert found["announced"] <= 1e-9
    assert found["misreport_gain_max"] <= found["allowed"]

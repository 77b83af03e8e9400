"""`asactl bench sow`: its JSON, its page, its instances and their errors, and what its figures are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asad.admit.sow.sow import Sow
from asad.admit.sow.statement import Bounds, Statement, Worth
from asad.cli.asactl import asactl
from asad.errors import AsadError, ConfigError, UsageError
from asad_papers.sow import statement_figures as sow_bench
from asad_papers.sow import statement_page
from asad_papers.sow.hindsight import hindsight_lp
from asad_papers.sow.rounds import Instance, Job, needs_of, simulate
from asad_papers.sow.sow_command import PARTS
from asad_papers.sow.statement_instances import (
    draw_gpu_instance,
    draw_sow_instance,
    fresh_seed,
    read_sow_instance,
    to_document,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "bench-sow.md"
POLICY_KEYS = {"welfare_ratio", "planned", "evicted"}


def small(seed: int = 3) -> Instance:
    return draw_sow_instance(2.0, seed, rounds=40, name="small")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("instance") / "small.json"
    made.write_text(json.dumps(to_document(small())), encoding="utf-8")
    return made


def invoke(*words: str) -> Any:
    result = CliRunner().invoke(asactl, ["bench", "sow", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def document(path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sow_bench, "JOBS_TRIED", 4)
        patch.setattr(sow_bench, "TRIES", 3)
        patch.setattr(sow_bench, "PATHS", 2)
        patch.setattr(sow_bench, "SPEED_STATEMENTS", 200)
        patch.setattr(sow_bench, "SPEED_RUNS", 2)
        page = tmp_path_factory.mktemp("page") / "bench.html"
        found: dict[str, Any] = json.loads(
            invoke("--instance", str(path), "--json", "--page", str(page)).stdout
        )
    found["page"] = page.read_text(encoding="utf-8")
    return found


def test_the_json_is_of_the_form_that_is_promised(document: dict[str, Any]) -> None:
    assert set(document) - {"page", "schema"} == {
        "hindsight_lp",
        "policies",
        "statements_per_s",
        "misreport_gain_max",
    }
    assert set(document["policies"]) == {"sow", "sow-paper", "fcfs", "reservation", "density"}
    for row in document["policies"].values():
        assert set(row) == POLICY_KEYS
        assert 0.0 <= row["welfare_ratio"] <= 1.0 + 1e-9
        assert 0 <= row["evicted"] <= row["planned"]
    assert document["statements_per_s"] > 0.0 and document["misreport_gain_max"] >= 0.0


def test_the_page_shows_what_the_json_says(document: dict[str, Any]) -> None:
    page = document["page"]
    assert "sow-paper" in page and "asactl bench sow --instance" in page
    assert f"{document['policies']['sow']['welfare_ratio']:.3f}" in page
    assert "<script" not in page


def test_every_part_and_every_key_is_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sow_bench, "JOBS_TRIED", 3)
    monkeypatch.setattr(sow_bench, "TRIES", 2)
    monkeypatch.setattr(sow_bench, "PATHS", 2)
    monkeypatch.setattr(sow_bench, "SPEED_STATEMENTS", 200)
    monkeypatch.setattr(sow_bench, "SPEED_RUNS", 1)
    monkeypatch.setattr(sow_bench, "GROWTH_STATEMENTS", 400)
    monkeypatch.setattr(sow_bench, "LOADS", (0.5,))
    draw = sow_bench.draw_sow_instance
    prior = sow_bench.draw_prior
    monkeypatch.setattr(sow_bench, "draw_sow_instance", lambda *_, **__: draw(0.5, 1, rounds=36))
    monkeypatch.setattr(sow_bench, "draw_prior", lambda *_: prior(0.5, 1, kinds=2, rounds=30))
    found = json.loads(invoke("--load", "0.3", "--part", "all", "--json").stdout)
    text = PAGE.read_text(encoding="utf-8")
    missing = {key for key in keys(found) if f"`{key}`" not in text}
    assert not missing, f"docs/reference/bench-sow.md does not say {sorted(missing)}"
    for part in PARTS:
        assert f"`{part}`" in text


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*(keys(one) for one in value.values()))
    return set().union(*(keys(one) for one in value)) if isinstance(value, list) else set()


def test_it_is_printed_for_people_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sow_bench, "JOBS_TRIED", 2)
    monkeypatch.setattr(sow_bench, "PATHS", 2)
    monkeypatch.setattr(sow_bench, "SPEED_STATEMENTS", 200)
    monkeypatch.setattr(sow_bench, "SPEED_RUNS", 1)
    text = invoke("--instance", str(path)).stdout
    assert re.search(r"sow-paper +0\.\d{3} +\d+", text)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop("span"), "span is missing"),
        (lambda d: d.update(capacity=0), "capacity is 0"),
        (lambda d: d.update(max_value="much"), 'max_value is "much"'),
        (lambda d: d.update(max_demand=200), "max_demand 200 is more than the capacity"),
        (lambda d: d["statements"][2].update(demand=5), "statements[2].demand is 5"),
        (lambda d: d["statements"][2].update(shape="cubic"), 'statements[2].shape is "cubic"'),
        (lambda d: d["statements"][0].update(support=[[1, 2]]), "statements[0].support[0] is [1, 2]"),
        (lambda d: d["statements"][0].update(support=[[1, 2, 0.4]], realised=[1, 2]), "sum up to 0.4"),
        (lambda d: d["statements"][0].update(support=[]), "0 rows of arrival"),
        (lambda d: d["statements"][0].update(realised=[999, 1]), "statements[0].realised is [999, 1]"),
        (lambda d: d.update(statements={}), "statements is no list of them"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_remedy(
    change: Callable[[dict[str, Any]], object], says: str, tmp_path: Path
) -> None:
    document = json.loads(json.dumps(to_document(small())))
    change(document)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        read_sow_instance(path)
    assert str(error.value).startswith(f"{path}: ") and says in str(error.value)


@pytest.mark.parametrize("text", ["", "[", "[]", "null", '{"capacity": 1e999}'])
def test_what_is_no_instance_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        read_sow_instance(path)


def test_a_false_optimum_in_a_file_is_reported() -> None:
    instance = small()
    seen = Instance(instance.name, instance.bounds, instance.rounds, instance.jobs, 1.0)
    with pytest.raises(AsadError, match="hindsight_lp is 1 in the file"):
        sow_bench.compare(seen, ())


def test_the_same_seed_draws_the_same_and_reads_back(path: Path) -> None:
    assert to_document(small()) == to_document(small()) == to_document(read_sow_instance(path))
    assert to_document(small(4)) != to_document(small())
    demand = sum(
        job.statement.demand * float(job.statement.probability @ job.statement.duration)
        for job in draw_sow_instance(2.0, 0).jobs
    )
    assert demand / (100 * 176) == pytest.approx(2.0, rel=0.1)
    with pytest.raises(UsageError):
        draw_sow_instance(0.0, 1)


def test_a_hindsight_lp_that_can_be_done_by_hand() -> None:
    bounds = Bounds(2, 2, 2, 20.0, 4)
    made = [
        Job(Statement.of(0, 2, [(0, 2, 1.0)], Worth("deadline", 10.0, 2)), 0, 2),
        Job(Statement.of(0, 2, [(0, 1, 1.0)], Worth("deadline", 4.0, 1)), 0, 1),
        Job(Statement.of(0, 1, [(1, 1, 1.0)], Worth("deadline", 3.0, 3)), 1, 1),
    ]
    assert hindsight_lp(Instance("by hand", bounds, 4, tuple(made))) == pytest.approx(13.0)


def test_the_same_instance_gives_the_same_outcome() -> None:
    instance = small()
    one, two = (simulate(instance, Sow(instance.bounds)) for _ in range(2))
    assert one.start.tolist() == two.start.tolist() and one.payment.tolist() == two.payment.tolist()


@pytest.mark.traces
@pytest.mark.parametrize(("load", "paper", "default"), [(1, 0.76, 0.955), (2, 0.66, 0.82), (4, 0.57, 0.70)])
def test_welfare_on_the_recorded_instances(load: int, paper: float, default: float, data: Path) -> None:
    instance = read_sow_instance(data / "sow" / f"load{load}.json")
    best = instance.hindsight_lp
    assert best is not None
    if load == 1:  # of the others it takes seconds
        assert hindsight_lp(instance) == pytest.approx(best, rel=1e-9)
    found = {name: sow_bench.run(instance, name) for name in ("sow", "sow-paper", "reservation")}
    assert found["sow-paper"].welfare >= paper * best
    assert found["sow"].welfare >= default * best
    assert found["sow"].evicted <= 0.05 * found["sow"].planned
    assert found["sow"].welfare >= 1.5 * found["reservation"].welfare


def test_a_constant_of_a_mechanism_changes_which_instances_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fresh_seed()
    assert first == fresh_seed() and first > 1000
    monkeypatch.setattr("asad.admit.sow.sow.FILL", 0.5)
    assert fresh_seed() != first


def test_more_futures_are_drawn_for_a_smaller_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sow_bench, "ERRORS", (0.4, 0.2))
    rows = sow_bench.samples(draw_sow_instance(1.0, 0, rounds=40))
    assert [row["error"] for row in rows] == [0.4, 0.2]
    assert 0 < rows[0]["samples"] < rows[1]["samples"]
    assert all(0.0 < row["welfare_ratio"] <= 1.0 + 1e-9 for row in rows)


def test_what_the_paper_proves_stands_beside_what_came_out() -> None:
    truth = {"misreport_gain_max": 3.0, "allowed": 2.0}
    stochastic = [{"load": 1.0, "welfare_ratio": 0.9, "proven": 0.4}]
    (table,) = statement_page._beside_paper({"truthfulness": truth, "stochastic": stochastic})
    assert [row[1:] for row in table.rows] == [
        ("2", "3", "exceeded"),
        ("0.400", "0.900", "more than proven"),
    ]
    assert not [*statement_page._beside_paper({})]


def test_gpus_are_priced_beside_the_plain_way_and_never_run_beyond_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sow_bench, "LOADS", (2.0,))
    monkeypatch.setattr(sow_bench, "draw_gpu_instance", partial(draw_gpu_instance, rounds=48))
    (row,) = sow_bench.gpus([1])
    assert [*row["policies"]] == ["sow", "sow-paper", sow_bench.CORES_ALONE, "fcfs", "density"]
    assert all(0.0 < one["welfare_ratio"] <= 1.0 + 1e-9 for one in row["policies"].values())
    pieces = [*statement_page._drawn({"gpus": [row]}, "gpus", "Two types of GPUs")]
    assert f"{row['policies']['sow']['welfare_ratio']:.3f}" in str(pieces[1])
    instance = draw_gpu_instance(2.0, 1, rounds=48)
    for policy in (sow_bench.CORES_ALONE, "fcfs"):  # `simulate` looks at mechanisms itself
        start = sow_bench.run(instance, policy).start.tolist()
        for name, most in instance.capacity.items():
            load = np.zeros(60)
            for job, begun in zip(instance.jobs, start, strict=True):
                if begun >= 0:
                    load[begun : begun + job.duration] += needs_of(job.statement).get(name, 0)
            assert load.max() <= most
    demand = dict.fromkeys(instance.capacity, 0.0)
    for job in draw_gpu_instance(1.0, 5).jobs:
        for name, units in needs_of(job.statement).items():
            demand[name] += units * job.duration / (176 * instance.capacity[name])
    assert all(0.8 < demand[name] < 1.2 for name in ("", "gres/gpu", "gres/gpu:a100"))

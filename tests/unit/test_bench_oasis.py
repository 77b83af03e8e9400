"""`asactl bench oasis`: the form of its JSON, its page, its errors, and what its figures are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.errors import ConfigError, UsageError
from asad_papers.oasis import scheme_figures as admission
from asad_papers.oasis import scheme_page as report
from asad_papers.oasis.oasis_command import PARTS
from asad_papers.oasis.paper_claims import claims
from asad_papers.oasis.scheme_instances import Instance, draw_instance, lateness, read_testbed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "bench-oasis.md"


def as_file(instance: Instance, folder: Path) -> None:
    """Write an instance in the form that is read."""
    document = {
        "slots": instance.slots,
        "resources": list(instance.servers.resources),
        "worker_servers": instance.servers.workers.tolist(),
        "parameter_servers": instance.servers.parameter_servers.tolist(),
        "jobs": [
            {
                "arrival": job.arrival,
                "worker": job.worker.tolist(),
                "ps": job.server.tolist(),
                "worker_bandwidth": job.worker_bandwidth,
                "ps_bandwidth": job.server_bandwidth,
                "max_workers": job.most_workers,
                "worker_slots": job.work,
                "gamma": [job.utility.worth, job.utility.decay, job.target_slots],  # type: ignore[attr-defined]
                "fixed_workers": job.fixed_workers,
            }
            for job in instance.jobs
        ],
    }
    (folder / f"{instance.name}.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("instances")
    for seed in range(2):
        as_file(draw_instance(12, seed, slots=20, servers=10, name=f"case{seed}"), made)
    return made


def a_testbed(folder: Path, **wrong: Any) -> Path:
    row = lateness([-3.5, -2.5, -0.5, 1.5], 4)
    late = lateness([2.0, 3.0, 4.0], 4)
    found = {
        "utility": {"oasis": 40.0, "drf": 32.0},
        "runs": {"oasis": [38.0, 42.0], "drf": [32.0]},
        "timeliness": {"oasis": {"sensitive": row}, "drf": {"sensitive": late}},
    }
    path = folder / "testbed.json"
    path.write_text(json.dumps(found | wrong), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def document(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "SWEEPS", {"jobs": (5, 10), "slots": (10, 20), "servers": (5, 10)})
        patch.setattr(admission, "GROWTH", {"slots": (20, 40), "workers": (10, 20), "servers": (5, 10)})
        patch.setattr(admission, "SMALL_SERVERS", (10,))
        patch.setattr(admission, "TIMELINESS_JOBS", 20)
        patch.setattr(admission, "DRAWN_JOBS", 15)
        page = tmp_path_factory.mktemp("page") / "bench.html"
        words = ["bench", "oasis", "--instances", str(folder), "--small", "2", "--seeds", "1", "--json"]
        words += ["--part", ",".join(PARTS), "--testbed", str(a_testbed(page.parent))]
        result = CliRunner().invoke(asactl, [*words, "--page", str(page)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    found["page"] = page.read_text(encoding="utf-8")
    return found


def test_the_json_is_of_the_form_that_is_promised(document: dict[str, Any]) -> None:
    assert set(document["instances"]) == {"case0", "case1"}
    for schemes in document["instances"].values():
        assert set(schemes) == {"oasis", "oasis-paper", "oasis-informed", "fifo", "drf", "rrh", "dorm"}
        for found in schemes.values():
            assert {"utility", "admitted", "decide_ms_mean", "decide_ms_p99"} <= set(found)
            assert found["utility"] >= 0
            assert 0 <= found["admitted"] <= 12
            assert found["decide_ms_mean"] > 0
            assert found["decide_ms_p99"] > 0
    assert {"ratio_median", "ratio_max", "cases"} <= set(document["small"])
    assert document["small"]["cases"] == 2 == len(document["small"]["rows"])
    assert document["small"]["ratio_median"] >= 1 - 1e-6


def test_sums_are_over_instances_of_as_many_jobs(document: dict[str, Any]) -> None:
    for scheme in ("oasis", "drf"):
        total = sum(schemes[scheme]["utility"] for schemes in document["instances"].values())
        assert document["sums"]["12"][scheme] == pytest.approx(total)


def test_misjudged_by_a_factor_of_one_is_the_informed_scheme(document: dict[str, Any]) -> None:
    for of in ("U", "L"):
        true = next(row for row in document["sensitivity"] if row["of"] == of and row["factor"] == 1)
        assert true["utility"] == pytest.approx(document["sums"]["12"]["oasis-informed"])


def test_timeliness_counts_every_job_once(document: dict[str, Any]) -> None:
    for kinds in document["timeliness"].values():
        assert sum(row["jobs"] for row in kinds.values()) == 20
        for row in kinds.values():
            assert row["done"] <= row["jobs"]
            if row["done"]:
                assert row["p10"] <= row["p25"] <= row["median"] <= row["p75"] <= row["p90"]


def test_what_is_slow_is_not_swept_unless_named(document: dict[str, Any]) -> None:
    assert all("dorm" not in row["utility"] and "oasis" in row["utility"] for row in document["sweep"])
    assert [(row["by"], row["value"]) for row in document["growth"]][:2] == [("slots", 20), ("slots", 40)]


def test_every_key_of_the_json_is_documented(document: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")

    def keys(value: object, names: bool = False) -> set[str]:
        if isinstance(value, dict):
            here = set() if names else set(value)
            return here.union(*(keys(item, key in NAMED) for key, item in value.items()))
        return set().union(*(keys(item) for item in value)) if isinstance(value, list) else set()

    NAMED = {"instances", "sums", "competitive_bound", "timeliness", "utility", "case0", "case1", "12"}
    NAMED |= {"alone", "over_drf"}
    found = keys({key: value for key, value in document.items() if key not in ("page", "schema")})
    found -= {"sensitive", "critical"}
    missing = {key for key in found if f"`{key}`" not in text and key not in admission.SCHEMES}
    assert not missing, f"docs/reference/bench-oasis.md does not say {sorted(missing)}"


@pytest.mark.parametrize("kind", ["gpus", "bursts"])
def test_drawn_instances_are_summed_and_bounded(document: dict[str, Any], kind: str) -> None:
    found = document[kind]
    assert found["seeds"] == [0] and found["jobs"] == 15
    (row,) = found["instances"].values()
    assert found["sums"] == {name: of["utility"] for name, of in row.items()}
    assert max(found["sums"].values()) <= found["alone"] * (1 + 1e-9)
    assert found["over_drf"]["oasis"] == pytest.approx(found["sums"]["oasis"] / found["sums"]["drf"])


def test_types_of_gpus_change_nothing_else_of_an_instance() -> None:
    plain, typed = draw_instance(40, 3), draw_instance(40, 3, gpu_types=True)
    assert typed.servers.resources == (*plain.servers.resources, "gpu:k80", "gpu:m60")
    for capacity, before in (
        (typed.servers.workers, plain.servers.workers),
        (typed.servers.parameter_servers, plain.servers.parameter_servers),
    ):
        assert (capacity[:, :5] == before).all() and (capacity[:, 5:].sum(axis=1) == capacity[:, 0]).all()
        assert (capacity[:, 5:] > 0).any(axis=1).sum() == (capacity[:, 0] > 0).sum(), "of one type each"
    kinds = set()
    for job, was in zip(typed.jobs, plain.jobs, strict=True):
        assert (job.worker[:5] == was.worker).all() and job.utility == was.utility and job.work == was.work
        assert sorted(job.worker[5:]) in ([0.0, 0.0], [0.0, job.worker[0]])
        kinds.add(tuple(job.worker[5:] > 0))
    assert len(kinds) == 3


def test_bursts_change_nothing_but_arrivals() -> None:
    plain, burst = draw_instance(100, 3), draw_instance(100, 3, bursts=True)
    assert [job.work for job in burst.jobs] == [job.work for job in plain.jobs]
    arrivals = [[job.arrival for job in one.jobs] for one in (plain, burst)]
    assert len(set(arrivals[1])) < len(set(arrivals[0])) / 2 and max(arrivals[1]) < 90
    assert arrivals[1] == sorted(arrivals[1])


def test_with_two_types_of_gpus_oasis_is_worth_a_third_more_than_drf() -> None:
    found = admission.drawn_apart("gpus", range(5), ("oasis", "drf"))
    assert found["over_drf"]["oasis"] >= 1.3
    for row in found["instances"].values():
        assert row["oasis"]["utility"] > row["drf"]["utility"]


def test_every_figure_of_the_paper_has_its_paragraph(document: dict[str, Any]) -> None:
    notes = list(claims(document))
    assert [note.partition(",")[0] for note in notes] == [f"Figure {number}" for number in (3, 4, 5, 6, 8, 9)]
    for note in notes:
        parts = [
            note.find(words) for words in ("The paper: ", "Here: ", "Yardstick: ", "Where they differ: ")
        ]
        assert parts == sorted(parts) and parts[0] > 0 and "nan" not in note
        assert note.partition("Here: ")[0] in document["page"].replace("’", "'")
    assert "1.25 times drf" in notes[4] and notes[4].endswith("differ: nowhere.")
    assert "1.5 slots early" in notes[5] and "drf varies less" in notes[5]
    assert not list(claims({}))


def test_paragraphs_say_where_oasis_is_beaten() -> None:
    rows = [
        {"by": "jobs", "value": 50, "utility": {"oasis": 8.0, "drf": 10.0}, "alone": 20.0},
        {"by": "jobs", "value": 100, "utility": {"oasis": 30.0, "drf": 10.0}, "alone": 40.0},
    ]
    (note,) = claims({"sweep": rows})
    assert (
        "0.80 times drf at 50 jobs, 3.00 times drf at 100" in note and "not the best at jobs 50 (drf)" in note
    )
    assert "75% of what all jobs" in note and "fifo, rrh, dorm was not swept" in note


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"utility": 3}, "utility is not a table"),
        ({"utility": {"oasis": "many"}}, "utility.oasis is"),
        ({"runs": {"oasis": [1.0]}}, "runs.drf is missing"),
        ({"runs": {"oasis": [1.0], "drf": []}}, "runs.drf is"),
        ({"timeliness": {"oasis": {"critical": {"jobs": 1}}}}, "timeliness.oasis.critical.done is missing"),
        (
            {"timeliness": {"oasis": {"critical": lateness([], 1) | {"median": "x"}}}},
            "median is .x.; write slots, or null",
        ),
    ],
)
def test_a_wrong_testbed_is_refused(tmp_path: Path, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_testbed(a_testbed(tmp_path, **wrong))


def test_the_page_is_whole_and_asks_for_nothing(document: dict[str, Any]) -> None:
    page = document["page"]
    assert page.startswith("<!doctype html>")
    assert page.count('class="drawing wide"') == 10  # three sweeps, timeliness, testbed, ratio, U, L, growth
    assert page.count("<svg") == 20  # each for a page and for a telephone
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert "case0" in page
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_names_of_files_are_escaped() -> None:
    row = {"utility": 1.0, "admitted": 1, "done": 1, "decide_ms_mean": 1.0, "decide_ms_p99": 1.0}
    hostile = {"instances": {"<script>x</script>": {"oasis": row}}, "sums": {"1": {"oasis": 1.0}}}
    assert "<script" not in report.reading(hostile).page("asactl bench oasis --instances '<script>'")


def test_the_table_says_what_the_json_says(folder: Path) -> None:
    words = ["bench", "oasis", "--instances", str(folder), "--part", "instances,small", "--small", "2"]
    result = CliRunner().invoke(asactl, [*words, "--scheme", "drf,fifo,oasis"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "12 jobs" in result.output
    assert re.search(r"^drf +[\d,]+", result.output, re.M)
    assert "rrh" not in result.output
    assert re.search(
        r"2 cases of 10 jobs in 10 slots, \d optima proven: median 1\.\d+, worst 1\.\d+", result.output
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--scheme", "sow"], "--scheme sow: there are oasis,"),
        (["--scheme", ","], "--scheme: name some of"),
        (["--part", "figure7"], "--part figure7: there are instances,"),
        (["--page", "missing/bench.html"], "there is no folder missing; make it first"),
    ],
)
def test_wrong_words_are_refused(words: list[str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        CliRunner().invoke(asactl, ["bench", "oasis", *words], catch_exceptions=False)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        CliRunner().invoke(
            asactl, ["bench", "oasis", "--instances", str(tmp_path / "x")], catch_exceptions=False
        )


def test_the_ratio_bound_holds_on_small_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SMALL_SERVERS", (12,))
    small = admission.small_cases(4)
    for row in small["rows"]:  # type: ignore[union-attr]
        if row["ratio"] is not None:  # type: ignore[index,call-overload]
            assert row["ratio"] <= row["ratio_bound"]  # type: ignore[index,call-overload,operator]

"""`asactl bench oga`: the form of its JSON, its page, its errors, and what its figures are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.errors import AsadError, ConfigError, UsageError
from asad.place.ports import Ports
from asad_papers.oga import port_beside_paper as beside
from asad_papers.oga import port_curves
from asad_papers.oga import port_figures as ports_bench
from asad_papers.oga import port_page as report
from asad_papers.oga.oga_command import PARTS
from asad_papers.oga.port_instances import PortInstance, draw_port_instance, read_port_instance

pytestmark = pytest.mark.slow

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "bench-oga.md").read_text(encoding="utf-8")


def archive(**changes: Any) -> dict[str, Any]:
    """The arrays of a good file; None leaves one out."""
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {
        "A": rng.uniform(0.5, 2.0, (3, 2)),
        "C": rng.uniform(0.5, 2.0, (4, 2)),
        "adj": np.ones((3, 4), np.bool_),
        "X": (rng.random((30, 3)) < 0.7).astype(np.float64),
        "alphas": rng.uniform(1.0, 1.5, (2, 4)),
        "betas": np.array([0.3, 0.4]),
        "utils": np.array(["linear", "log", "reciprocal", "poly"]),
        "eta0": np.float64(0.2),
        "decay": np.float64(0.999),
    }
    return {key: value for key, value in (table | changes).items() if value is not None}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.npz"
    np.savez(path, **archive())
    return path


def run(*words: str) -> str:
    result = CliRunner().invoke(asactl, ["bench", "oga", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_json_is_what_was_agreed(file: Path) -> None:
    document = json.loads(run("--instance", str(file), "--json", "--repeat", "1"))
    assert set(document["policies"]) == {
        "fairness", "drf", "binpack", "spread", "oga-strict", "oga-reactive", "oga-reclaim",
    }  # fmt: skip
    for row in document["policies"].values():
        assert row["slots_per_s"] > 0
        assert row["violations"] == 0
    strict = document["policies"]["oga-strict"]["reward_mean"]
    assert document["regret_per_slot"] == pytest.approx(document["best_fixed"] - strict)
    assert 0 <= document["best_fixed_bound"] - document["best_fixed"] <= 1e-4
    assert document["regret_per_slot"] <= document["regret_bound_per_slot"]
    assert document["instance"]["eta"] == pytest.approx(
        {"oga-strict": 0.2, "oga-reactive": 0.512, "oga-reclaim": 0.512}
    )


def keys(table: Any) -> set[str]:
    if isinstance(table, dict):
        return {key for key in table if re.fullmatch(r"[a-z_]+", key)} | {
            key for value in table.values() for key in keys(value)
        }
    return {key for row in table for key in keys(row)} if isinstance(table, list) else set()


def small_document(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All parts, of few slots."""
    monkeypatch.setattr(ports_bench, "SWEEPS", {by: values[:2] for by, values in ports_bench.SWEEPS.items()})
    drawn = draw_port_instance
    for module in (ports_bench, port_curves):
        monkeypatch.setattr(
            module,
            "draw_port_instance",
            lambda seed, **given: drawn(seed, **(given | {"slots": 20, "instances": 12})),
        )
    monkeypatch.setattr(ports_bench, "large_arrivals", lambda ports: np.ones((5, ports)))
    found: dict[str, Any] = json.loads(run("--json", "--part", "all", "--repeat", "1"))
    return found


def test_every_part_runs_and_every_key_is_documented(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document = small_document(monkeypatch)
    assert {row["by"] for row in document["sweep"]} == set(ports_bench.SWEEPS)
    for part in ("figure2", "figure5", "seeds", "several", "gangs", "large", "growth"):
        assert document[part]
    missing = {key for key in keys(document) if f"`{key}`" not in REFERENCE}
    assert not missing, f"docs/reference/bench-oga.md does not say {sorted(missing)}"
    page = report.reading(document).page("asactl bench oga --part all")
    assert page.count("<figure>") == len(report.AXES) + 2 + 3 * 3
    assert "Beside the paper" in page
    assert "<script" not in page
    assert str(len(document["seeds"]["same_parameters"]["rows"])) == "10"
    table = run("--part", "seeds,gangs,utilities", "--repeat", "1", "--page", str(tmp_path / "oga.html"))
    for word in ("mean", "relaxed", "Gangs that ran", "linear"):
        assert word in table
    assert (tmp_path / "oga.html").read_text(encoding="utf-8").startswith("<!")


def test_parts_are_documented() -> None:
    for part in PARTS:
        assert f"`{part}`" in REFERENCE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--part", "figure3"], "--part figure3: there are instance, figure2"),
        (["--part", ","], "--part: name some of"),
        (["--page", "missing/page.html"], "there is no folder missing; make it first"),
        (["--instance", "missing.npz"], r"missing.npz: cannot be read as .npz \(No such file"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(asactl, ["bench", "oga", *words], catch_exceptions=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": None}, "A is missing; add it"),
        ({"utils": None}, "utils is missing"),
        ({"A": np.ones(3)}, r"A is float64 \(3,\); write numbers \(any, any\)"),
        ({"A": np.array([["a", "b"]] * 3)}, "A is <U1"),
        ({"A": np.array([[1.0, np.nan]] * 3)}, "A holds what is below 0, infinite or no number"),
        ({"A": np.zeros((0, 2)), "adj": np.ones((0, 4), np.bool_)}, "A is empty"),
        ({"C": -np.ones((4, 2))}, "C holds what is below 0"),
        ({"C": np.ones((4, 3))}, r"C is float64 \(4, 3\); write numbers \(any, 2\)"),
        ({"adj": np.ones((4, 3), np.bool_)}, r"adj is bool \(4, 3\); write bool \(3, 4\)"),
        ({"adj": np.ones((3, 4))}, "adj is float64"),
        ({"X": np.full((5, 3), 0.5)}, "X holds what is no number of jobs"),
        ({"X": np.full((5, 3), 1e9)}, "X holds what is no number of jobs"),
        ({"X": np.ones((0, 3))}, "X holds no slots"),
        ({"alphas": np.zeros((2, 4))}, "alphas holds 0; write numbers above 0"),
        ({"alphas": np.ones((4, 2))}, r"alphas is float64 \(4, 2\); write numbers \(2, 4\)"),
        ({"betas": np.ones(3)}, r"betas is float64 \(3,\); write numbers \(2,\)"),
        ({"utils": np.array(["cubic"] * 4)}, "utils holds 'cubic'; there are linear, log"),
        ({"utils": np.arange(4)}, "utils is int64"),
        ({"utils": np.array(["linear"] * 3)}, r"write words \(4,\) or \(2, 4\)"),
        ({"eta0": np.float64(0)}, "eta0 is 0; write a number above 0"),
        ({"decay": np.ones(2)}, r"decay is float64 \(2,\)"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_reported_with_its_key_and_the_remedy(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, **archive(**changes))
    with pytest.raises(ConfigError, match=message) as error:
        read_port_instance(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"\x00" * 300, b'{"A": []}'])
def test_what_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken.npz: cannot be read as .npz"):
        read_port_instance(path)


def test_one_array_and_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(ConfigError, match="is one array, not an archive"):
        read_port_instance(path)
    np.savez(tmp_path / "objects.npz", **archive(A=np.array([{"a": 1}], dtype=object)))
    with pytest.raises(ConfigError, match=r"cannot be read as \.npz"):
        read_port_instance(tmp_path / "objects.npz")


def test_counts_of_arrivals_become_copies(tmp_path: Path) -> None:
    x = np.array([[0, 2, 1], [1, 1, 0], [0, 0, 0]])
    np.savez(tmp_path / "counts.npz", **archive(X=x))
    found = read_port_instance(tmp_path / "counts.npz")
    assert found.ports.names == ("0#1", "1#1", "1#2", "2#1")
    assert found.arrivals.tolist() == [[0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]


def test_utilities_may_differ_by_resource_and_reciprocals_by_scale(tmp_path: Path) -> None:
    words = np.array([["linear"] * 4, ["reciprocal"] * 4])
    np.savez(tmp_path / "both.npz", **archive(utils=words))
    one, three = (read_port_instance(tmp_path / "both.npz", scale).ports for scale in (1.0, 3.0))
    assert one.form.tolist() == [[0, 2]] * 4
    assert (three.alpha[:, 1] == 3 * one.alpha[:, 1]).all()
    assert (three.alpha[:, 0] == one.alpha[:, 0]).all()


def test_drawing_is_by_seed_and_density() -> None:
    one, two = draw_port_instance(4, slots=5), draw_port_instance(4, slots=5)
    assert (one.ports.requests == two.ports.requests).all()
    assert (one.arrivals == two.arrivals).all()
    assert (draw_port_instance(5, slots=5).ports.alpha == one.ports.alpha).all()  # the same parameters
    assert (draw_port_instance(5, parameters=None, slots=5).ports.alpha != one.ports.alpha).any()
    for density in (2.0, 2.25, 2.5, 3.0):
        drawn = draw_port_instance(1, density=density, instances=4000, slots=1)
        assert drawn.ports.edges / 4000 == pytest.approx(density, abs=0.1)
    with pytest.raises(UsageError, match="density 9"):
        draw_port_instance(0, density=9)
    with pytest.raises(UsageError, match="utility 'cubic'"):
        draw_port_instance(0, utility="cubic")


def test_a_violation_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy:
        name = "fairness"

        def __init__(self, ports: Ports) -> None:
            self.ports = ports

        def allot(self, x: Any) -> Any:
            return self.ports.caps

    monkeypatch.setattr(ports_bench, "Fairness", Greedy)
    found = ports_bench.play(draw_port_instance(0, slots=7), "fairness")
    assert found["violations"] == 7
    assert found["violation_max"] > 1


def test_ports_that_cannot_be_are_refused() -> None:
    a, c, joined = np.ones((2, 3)), np.ones((4, 3)), np.ones((2, 4), np.bool_)
    for wrong, message in (
        ({"requests": np.ones(3)}, "requests: 1 dimensions"),
        ({"requests": -a}, "requests: some are below 0"),
        ({"capacities": np.ones((4, 2))}, "capacities: 2 resources, requests 3"),
        ({"adjacent": joined.T}, "adjacent: bool"),
        ({"alpha": 0.0}, "alpha: some are not above 0"),
        ({"alpha": np.ones(2)}, r"alpha: \(2,\); give one number or \(4, 3\)"),
        ({"beta": -1.0}, "beta: some are below 0"),
        ({"beta": np.nan}, "beta: some are infinite or no numbers"),
        ({"form": "cubic"}, "form: 'cubic'; there are"),
        ({"form": np.full((4, 3), 9, np.int8)}, "form: .*give codes 0 to 3"),
        ({"names": ["a", "a"]}, "names: 2 given, 1 of them different; give 2"),
    ):
        given: dict[str, Any] = {"requests": a, "capacities": c, "adjacent": joined} | wrong
        with pytest.raises(AsadError, match=message):
            Ports.of(**given)


def test_nothing_at_all_is_an_instance_too() -> None:
    ports = Ports.of(np.ones((2, 1)), np.zeros((1, 1)), np.zeros((2, 1), np.bool_))
    found = ports_bench.compare(PortInstance("empty", ports, np.ones((3, 2)), None, 0.99))
    assert found["best_fixed"] == 0
    assert all(row["reward_mean"] == 0 for row in found["policies"].values())


def test_a_difference_from_the_paper_is_explained_by_what_was_measured() -> None:
    rewards = dict.fromkeys(ports_bench.POLICIES, 100.0) | {"oga-strict": 90.0, "oga-reclaim": 120.0}
    row = {"utility": "mixed", "slots": 7, "reward_mean": rewards, "best_fixed": 95.0, "seconds": {"oga-strict": 7.0,
           "oga-reclaim": 3.5}}  # fmt: skip
    sweep = [{"by": "arrivals", "value": 0.3, "reward_mean": rewards | {"oga-strict": 150.0}}]
    gains, speeds = beside.tables({"figure5": [row], "sweep": sweep})
    (table, leads), (figure, cannot) = [(cells[1], cells[-1]) for cells in gains.rows]
    assert (table, figure) == ("arrivals 0.3", "mixed utilities")
    assert "by more" in leads
    assert "No fixed allocation is worth more than 95" in cannot
    assert speeds.rows == [("Figure 5", "mixed", "0.19", "1", "2")]

"""`asactl bench osdec`: the form of its JSON, its page, its errors, and what its figures are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.defer.scorers import make_scorer
from asad.errors import AsadError, ConfigError, UsageError
from asad_papers.osdec import deferral_figures as defer_bench
from asad_papers.osdec import deferral_instances
from asad_papers.osdec import deferral_page as report
from asad_papers.osdec.deferral_instances import draw_trajectories, fresh_seed
from asad_papers.osdec.trajectories import on_real_load, real_loads

pytestmark = pytest.mark.slow

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "bench-osdec.md").read_text(encoding="utf-8")
POLICY = {
    "total_mean", "total_std", "utilization", "delay", "violation", "seeds", "seeds_std", "started", "capacity_used",
    "total_error", "over_fifo_error", "endless_mean",
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    drawn = draw_trajectories(range(3))
    jobs = np.column_stack((drawn.cores, drawn.duration, drawn.earliest, drawn.latest, drawn.submitted))
    np.savez(tmp_path / "three.npz", jobs=jobs, offsets=drawn.first, capacity=drawn.capacity)
    return tmp_path / "three.npz"


def run(*words: str) -> str:
    result = CliRunner().invoke(asactl, ["bench", "osdec", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


FEW = ("--policy", "fifo,edf,lookahead")


def test_the_json_is_what_was_agreed(file: Path) -> None:
    words = ("--json", *FEW, "--offline", "1", "--time-limit", "2", "--part", "instances,offline,speed")
    document = json.loads(run("--instances", str(file), *words))
    for packing in ("prefix", "skip_fit"):
        assert list(document[packing]) == ["fifo", "edf", "lookahead"]
        for row in document[packing].values():
            assert set(row) == POLICY
            parts = row["utilization"] - row["delay"] - row["violation"]
            assert row["total_mean"] == pytest.approx(parts)
            assert 0 < row["capacity_used"] <= 1
    found = document["offline"]
    assert found["total_mean"] <= found["bound_mean"]
    assert found["packed_total_mean"] <= found["bound_mean"] + 1e-6
    for each in found["policies"].values():
        assert all(value <= found["packed_bound_mean"] + 1e-6 for value in each.values())
    assert document["steps_per_s"] > 0
    assert document["decide_ms"] == max(document["decide_ms_each"].values())
    # a planner's set fits whichever way it is packed
    either = [document[key]["lookahead"] for key in ("prefix", "skip_fit")]
    assert len({row["total_mean"] for row in either}) == len({row["endless_mean"] for row in either}) == 1
    # a heuristic does not ask when the end is, a planner does
    assert document["prefix"]["edf"]["endless_mean"] == document["prefix"]["edf"]["total_mean"]
    assert either[0]["endless_mean"] != either[0]["total_mean"]
    assert document["skip_fit"]["fifo"]["over_fifo_error"] == 0 < either[1]["over_fifo_error"]
    backwards = json.loads(
        run("--instances", str(file), "--json", "--part", "instances", "--policy", "edf,fifo")
    )
    error = backwards["skip_fit"]["edf"]["over_fifo_error"]
    assert error == document["skip_fit"]["edf"]["over_fifo_error"] > 0


def keys(table: Any) -> set[str]:
    if isinstance(table, dict):
        return {key for key in table if re.fullmatch(r"[a-z0-9_]+", key)} | {
            key for value in table.values() for key in keys(value)
        }
    return {key for row in table for key in keys(row)} if isinstance(table, list) else set()


def test_all_keys_are_documented_and_the_page_shows_them(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    swf(tmp_path / "mine.swf", 12)
    monkeypatch.setenv("ASAD_TRACES", str(tmp_path))
    document = json.loads(
        run("--instances", str(file), "--json", "--page", str(page), *FEW, "--offline", "1", "--time-limit", "1",
            "--seeds", "1")
    )  # fmt: skip
    names = {"fifo", "edf", "lookahead", "sjf", "tetris", "osdec"}
    missing = {key for key in keys(document) if key not in names | {"mine"} and f"`{key}`" not in REFERENCE}
    assert not missing
    text = page.read_text(encoding="utf-8")
    for words in (
        "Prefix packing",
        "Skip-fit packing",
        "clairvoyant",
        "MILP, within the capacity",
        "real-time",
        "cores-1",
        "durations-3",
        "mine",
        "end unknown",
        "ω1",
    ):
        assert words in text
    assert text.count("<svg") == 2


def test_the_table_for_a_terminal(file: Path) -> None:
    text = run("--instances", str(file), *FEW, "--part", "instances,real-time")
    assert "three: 3 trajectories of 96 steps" in text
    assert "Skip-fit packing (Table 1)" in text
    row = next(line for line in text.splitlines() if line.startswith("edf"))
    document = json.loads(run("--instances", str(file), *FEW, "--part", "instances", "--json"))
    assert f"{document['prefix']['edf']['total_mean']:,.1f}" in row


def test_worth_and_the_letter_of_the_paper_are_respected(file: Path) -> None:
    words = ("--instances", str(file), "--policy", "edf", "--part", "instances", "--json")
    usual = json.loads(run(*words))["skip_fit"]["edf"]
    dear = json.loads(run(*words, "--delay", "2", "--violation", "10"))["skip_fit"]["edf"]
    assert dear["utilization"] == usual["utilization"]
    assert dear["delay"] == pytest.approx(usual["delay"] * 2 / 0.3)
    assert dear["violation"] == pytest.approx(10 * usual["violation"])
    letter = json.loads(run(*words, "--as-printed"))["skip_fit"]["edf"]
    assert letter["total_mean"] < usual["total_mean"]  # a step more of each job's cores


def test_without_the_end_every_part_is_judged_so(file: Path) -> None:
    words = ("--instances", str(file), "--policy", "lookahead", "--part", "instances", "--json")
    known, unknown = (json.loads(run(*words, "--end", end)) for end in ("known", "unknown"))
    assert unknown["about"]["end"] == "unknown"
    row = unknown["prefix"]["lookahead"]
    assert row["total_mean"] == row["endless_mean"] == known["prefix"]["lookahead"]["endless_mean"]


def swf(path: Path, days: int) -> Path:
    """A log of a cluster of 64 processors: one job of 16 from hour 0 to 12 of each day, and one of 32 all the time."""
    lines = ["; MaxProcs: 64", f"1 0 0 {days * 86400} 32 -1 -1 32 {days * 86400} -1 1 1 1 1 -1 -1 -1 -1"]
    for day in range(days):
        lines.append(f"{day + 2} {day * 86400} 0 43200 16 -1 -1 16 43200 -1 1 1 1 1 -1 -1 -1 -1")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_load_of_a_log_is_what_its_jobs_leave(tmp_path: Path) -> None:
    found, period = on_real_load(swf(tmp_path / "a.swf", 12), None)
    assert period == 48 and len(found) == 6 and found.steps == 96
    # half of 100 cores, and a quarter less in the morning
    assert np.array_equal(found.capacity, np.tile([25.0] * 24 + [50.0] * 24, (6, 2)))
    asked = (found.cores * found.duration).sum() / found.capacity.sum()
    assert 0.8 < asked < 1.4


def test_a_log_is_a_part_of_its_own(tmp_path: Path) -> None:
    words = ("--part", "logs", "--policy", "fifo,linear,lookahead,rollout,ppo-att", "--seeds", "1")
    log = swf(tmp_path / "mine.swf", 12)
    (found,) = json.loads(run(*words, "--log", str(log), "--json"))["logs"].values()
    assert (found["trajectories"], found["learned_from"]) == (1, 5)
    assert found["policies"]["lookahead"]["total_mean"] > found["policies"]["fifo"]["total_mean"]
    assert "mine" in run(*words[:3], "fifo,edf", "--seeds", "1", "--log", str(log))


def test_logs_in_the_folder_of_traces_are_taken_and_what_cannot_be_read_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swf(tmp_path / "mine.swf", 12)
    (tmp_path / "bare.sacct").write_text("1|2|3\n")
    monkeypatch.setenv("ASAD_TRACES", str(tmp_path))
    assert [name for name, _, _ in real_loads((), None)] == ["mine"]
    with pytest.raises(AsadError, match=r"bare\.sacct"):
        real_loads([tmp_path / "bare.sacct"], None)
    monkeypatch.setenv("ASAD_TRACES", str(tmp_path / "nowhere"))
    assert real_loads((), None) == []


def test_drawn_trajectories_are_the_same_each_time() -> None:
    words = ("--seeds", "2", "--policy", "fifo", "--part", "instances", "--json")
    assert run(*words) == run(*words)


def test_hostile_names_do_not_reach_the_page() -> None:
    row = {**dict.fromkeys(POLICY, 1.0), "seeds": 1, "seeds_std": None}
    about = {
        "name": "<script>\x1b[31m", "trajectories": 1, "steps": 1, "jobs": 1, "omega_1": 0.3, "omega_2": 1.0,
        "as_printed": False,
    }  # fmt: skip
    text = report.reading({"about": about, "prefix": {"<b>": row}, "skip_fit": {"<b>": row}}).page("x '<i>'")
    assert "<script>" not in text.split("</header>")[0].split("<header>")[1]
    assert "<b>" not in text
    assert "<i>" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "best"], "--policy best: there are biggest, edf"),
        (["--part", "all"], "--part all: there are instances, offline"),
        (["--part", ","], "--part: name some of"),
        (["--part", "trained"], "--part trained: name the folder"),
        (["--part", "trained", "--models", "."], "--models .: holds no networks"),
        (["--page", "missing/page.html"], "there is no folder missing; make it first"),
        (["--instances", "missing.npz"], r"missing.npz: cannot be read as .npz \(No such file"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(asactl, ["bench", "osdec", *words], catch_exceptions=False)


def test_an_archive_without_jobs_is_refused(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "none.npz",
        jobs=np.zeros((0, 5), np.int64),
        offsets=np.array([0, 0]),
        capacity=np.ones((1, 4)),
    )
    with pytest.raises((UsageError, ConfigError), match="holds no jobs"):
        CliRunner().invoke(
            asactl, ["bench", "osdec", "--instances", str(tmp_path / "none.npz")], catch_exceptions=False
        )


def test_a_crowd_is_what_it_says() -> None:
    waiting = defer_bench.crowd(200)
    assert len(waiting) == 200
    assert 50 < waiting.startable.sum() < 150
    assert waiting.free > 0
    assert (waiting.latest >= waiting.now).all()
    assert (waiting.submitted <= waiting.now).all()
    assert make_scorer("fifo").score(waiting).shape == (200,)


def test_a_new_network_meets_days_that_nobody_has_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = fresh_seed()
    assert shipped == fresh_seed() and shipped > 1_000_000, "not among the seeds of training and tuning"
    (tmp_path / "new-s1.json").write_text("{}")
    monkeypatch.setattr(deferral_instances.resources, "files", lambda _: tmp_path)
    one = fresh_seed()
    (tmp_path / "new-s1.npz").write_bytes(b"weights")
    assert len({shipped, one, fresh_seed()}) == 3


def test_drawn_trajectories_are_fresh_unless_a_seed_is_given() -> None:
    words = ("--json", "--policy", "fifo", "--part", "instances", "--seeds", "2")
    fresh, old = (json.loads(run(*words, *more)) for more in ((), ("--first-seed", "1000")))
    assert fresh["about"]["name"] == f"drawn, seeds {fresh_seed()} to {fresh_seed() + 1}"
    assert old["about"]["name"] == "drawn, seeds 1000 to 1001"
    assert fresh["prefix"]["fifo"]["total_mean"] != old["prefix"]["fifo"]["total_mean"]

"""`asactl experts`: what it prints, where, and its exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from plain_answers import plain_of

from asad.cli.asactl import main
from asad.experts import default_folder, load_expert

pytestmark = pytest.mark.usefixtures("published_schemas")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["asactl", "experts", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    text = (
        (default_folder() / "cpu.toml").read_text().replace('feature = "happiness"', 'feature = "hapiness"')
    )
    path = tmp_path / "cpu.toml"
    path.write_text(text.replace("around = 0.2,", "around = 2,"))
    return path


def test_check_says_that_all_is_well(run: Run) -> None:
    status, out, err = run("check")
    assert (status, err) == (0, "")
    assert "memory: sound (" in out
    assert len(out.splitlines()) == 8
    status, out, _ = run("check", "--json")
    assert status == 0
    assert plain_of(out) == {
        "problems": [],
        "experts": ["cpu", "fair-share", "happiness", "interval", "load", "memory", "pressure", "stage"],
    }


def test_check_names_every_problem(run: Run, broken: Path) -> None:
    status, out, err = run("check", broken)
    assert status == 2
    assert "1 problem;" in err
    assert out.splitlines() == [
        f"{broken}:{line_of(broken, 'lend 20 %', 'around')}: leaf 'lend 20 %': 2 is not among the actions; "
        "give a share from 0 to 0.9"
    ]
    broken.write_text(broken.read_text().replace("around = 2,", "around = 0.2,"))
    status, out, _ = run("check", "--json", broken.parent)
    assert status == 2
    (problem,) = json.loads(out)["problems"]
    assert problem["place"] == "node 'time to spare?'"
    assert problem["line"] == line_of(broken, "time to spare?", "hapiness")
    assert "did you mean 'happiness'" in problem["mend"]


def line_of(path: Path, *parts: str) -> int:
    lines = path.read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if all(part in line for part in parts))


def test_show_draws_by_name_and_by_path(run: Run, broken: Path) -> None:
    status, out, _ = run("show", "cpu")
    assert status == 0
    assert load_expert(default_folder() / "cpu.toml").draw() in out
    status, out, _ = run("show", default_folder() / "extra" / "never.toml")
    assert out == "never: Never lends anything.\nlend nothing  0 %: 1.00\n"
    status, _, err = run("show", "cqu")
    assert status == 2
    assert "none is called 'cqu'" in err
    status, _, err = run("show", broken)
    assert status == 2
    assert "asactl: " in err and "cpu.toml:" in err


def test_show_gives_json(run: Run) -> None:
    status, out, _ = run("show", "interval", "--json")
    assert status == 0
    (plain,) = json.loads(out)["experts"]
    expert = load_expert(default_folder() / "interval.toml")
    assert plain["root"] == expert.root and plain["actions"] == list(expert.actions)
    by_name = {entry["name"]: entry for entry in plain["nodes"] + plain["leaves"]}
    assert by_name.keys() == expert.by_name.keys()
    assert by_name["near its limit?"] == {
        "name": "near its limit?",
        "feature": "interval",
        "above": 0.9,
        "yes": "nearly done?",
        "no": "begun?",
        "unknown": "uses over 80 %?",
    }


def test_show_draws_in_colour_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    status, out, _ = run("show", "happiness")
    assert status == 0
    assert "\x1b[" in out
    assert "plenty?" in out and "(as above)" in out


def test_eval_says_why(run: Run) -> None:
    status, out, _ = run("eval", "cpu", "--state", "cpu=0.3,cpu_p95=0.42")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("cpu: lend 40 %  30 %: 0.11, 40 %: 0.79")
    assert "    busy?  cpu_p95 0.42 ≤ 0.75 → no" in lines
    assert lines[-1].startswith("together: equal weights") and lines[-1].endswith("mean 40.0 %")


def test_eval_gives_json(run: Run) -> None:
    status, out, _ = run("eval", "--json", "--state", "cpu_p95=0.95", "--state", "load=unknown")
    assert status == 0
    answer = json.loads(out)
    assert [one["expert"] for one in answer["experts"]] == [
        "cpu", "fair-share", "happiness", "interval", "load", "memory", "pressure", "stage",
    ]  # fmt: skip
    assert answer["state"]["cpu_p95"] == 0.95
    assert answer["state"]["load"] is None
    assert sum(answer["mixture"]) == pytest.approx(1)
    assert answer["mean"] < 0.02
    assert answer["experts"][0]["path"][0] == {
        "node": "busy?", "test": "cpu_p95 0.95 > 0.75", "answer": "yes",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("cpu", "is not NAME=VALUE"),
        ("cpu=much", "is not NAME=VALUE"),
        ("cpu=0.1,cpu=0.2", "'cpu' twice"),
        ("cpus=0.1", "no feature is called 'cpus'"),
        ("cpu=7", "out of range; give 0 … 1"),
        ("\x1b[2J=1", r"no feature is called '\x1b[2J'"),
    ],
)
def test_eval_refuses_a_state_that_cannot_be(run: Run, state: str, says: str) -> None:
    status, _, err = run("eval", "--state", state)
    assert status == 2
    assert says in err


def test_fit_writes_an_expert_that_checks(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    history, out = tmp_path / "lent.csv", tmp_path / "learned.toml"
    rows = ["job,action,loss,cpu,memory"]
    for cpu, memory in rng.random((600, 2)):
        action = rng.integers(0, 10) / 10
        loss = min(1.0, abs(1 - cpu - action) * 2)
        rows.append(f"1,{action},{loss:.3f},{cpu:.3f},{memory:.3f}")
    history.write_text("\n".join(rows) + "\n")

    status, output, err = run("fit", "--history", history, "--out", out, "--max-depth", "3")
    assert status == 0, err
    assert "from 600 rows" in output
    assert "ignored columns: 'job'" in err
    learned = load_expert(out)
    assert learned.name == "learned"
    assert learned.depth <= 3
    assert run("check", out)[0] == 0
    idle, busy = (
        json.loads(run("eval", out, "--state", f"cpu={cpu}", "--json")[1])["mean"] for cpu in (0.1, 0.9)
    )
    assert idle > 0.5 > 0.35 > busy

    again = out.read_text()
    assert run("fit", "--history", history, "--out", out)[0] == 2
    assert out.read_text() == again
    status, output, _ = run(
        "fit", "--history", history, "--out", out, "--max-depth", "3", "--force", "--json"
    )
    assert status == 0
    assert out.read_text() == again
    document = json.loads(output)
    assert (document["file"], document["name"], document["rows"], document["ignored"]) == (
        str(out),
        "learned",
        600,
        ["job"],
    )
    assert (document["nodes"], document["leaves"]) == (len(learned.nodes), len(learned.leaves))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--features", "happiness"], "is no column of the history; it has cpu"),
        (["--actions", "0.5,0.1"], "lending nothing is missing"),
        (["--actions", "some"], "0 actions"),
        (["--name", "a b"], "cannot name an expert"),
        (["--max-depth", "0"], "--max-depth"),
    ],
)
def test_fit_refuses(run: Run, tmp_path: Path, words: list[str], says: str) -> None:
    history = tmp_path / "lent.csv"
    history.write_text("action,loss,cpu\n0,0,0.5\n")
    status, _, err = run("fit", "--history", history, "--out", tmp_path / "x.toml", *words)
    assert status == 2
    assert says in err
    assert not (tmp_path / "x.toml").exists()


def test_help_lists_the_features(run: Run) -> None:
    for command in ("eval", "fit"):
        status, out, _ = run(command, "--help")
        assert status == 0
        assert "memory_pair" in out and "Examples:" in out

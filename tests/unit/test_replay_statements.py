"""Statements of work in a replay: inferred as the log goes on, or given; planned, charged, evicted, reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.errors import AsadError, UsageError
from asad.replay.readers import read_log
from asad.replay.stated import stated_of


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four jobs that come every two hours, and others, on 16 cores that are too few for all."""
    chance = np.random.default_rng(3)
    rows = []
    for job in range(4):
        for k in range(36):
            at = 1000 * job + 7200 * k + chance.gamma(2.0, 100.0)
            rows.append((at, 3000 * np.exp(chance.normal(0, 0.2)), 4, job, job))
    rows += [
        (chance.uniform(0, 250_000), chance.exponential(4000) + 60, 4, 9, 50 + k % 5) for k in range(160)
    ]
    lines = ["; MaxNodes: 4", "; MaxProcs: 16"]
    for number, (at, run, cores, user, name) in enumerate(sorted(rows), 1):
        limit = int(2 * run)
        lines.append(
            f"{number} {int(at)} 0 {int(run)} {cores} -1 -1 {cores} {limit} -1 1 {user} 1 {name} -1 -1 -1 -1"
        )
    path = tmp_path_factory.mktemp("stated") / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def replay(log: Path, *words: str) -> dict[str, Any]:
    command = ["replay", str(log), "--json", "--store", "none", *words]
    result = CliRunner().invoke(asactl, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    seen: dict[str, Any] = json.loads(result.output)
    return seen


@pytest.mark.slow
def test_inferred_statements_are_planned_and_reported_as_such(log: Path) -> None:
    output = replay(log, "--policy", "slurm,sow,sow-paper")
    slurm, *planned = output["policies"].values()
    assert slurm["planned"] is None and slurm["welfare"] > 0
    for one in planned:
        assert one["stated"] == slurm["stated"] > 80 and one["stated_jobs"] == slurm["stated_jobs"]
        assert 0 < one["planned"] <= one["stated"] and 0 < one["welfare_share"] <= 1
        assert one["evicted"] <= one["planned"] and one["payments"] >= 0
    assert output["settings"]["statements"] == "inferred"
    assert any("statements are inferred" in note and "assumed" in note for note in output["log"]["notes"])
    again = replay(log, "--policy", "slurm,sow,sow-paper")
    for one in (*output["policies"].values(), *again["policies"].values()):
        del one["wall_s"]
    assert output["policies"] == again["policies"]


def test_what_is_kept_of_a_replay_names_plans_and_evictions(log: Path, tmp_path: Path) -> None:
    from asad.store.store import Store

    path = str(tmp_path / "asad.db")
    words = ["replay", str(log), "--json", "--store", path, "--policy", "slurm,sow"]
    document = json.loads(CliRunner().invoke(asactl, words, catch_exceptions=False).output)
    with Store.open(path) as store:
        (run,) = store.runs()
        decided = list(store.decisions(run.id))
    kinds = {one.kind for one in decided if one.outcome == "done"}
    assert {"admit", "defer"} <= kinds
    evicted = [one for one in decided if one.kind == "evict" and one.outcome == "done"]
    assert len(evicted) == document["policies"]["sow"]["evicted"]
    assert not any(one.outcome == "vetoed" for one in decided if one.kind == "evict")


def test_given_statements_are_those_that_are_planned(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    made = CliRunner().invoke(asactl, ["sow", "infer", str(log), "--out", str(file)], catch_exceptions=False)
    assert "4 recurring jobs" in made.output and "calibration over" in made.output
    text = file.read_text().replace("value =", "value = 7 #")
    # from the third day of the log on
    lines = [
        f"due = {int(line.split()[2]) % 7200 + 172_800}" if line.startswith("due") else line
        for line in text.splitlines()
    ]
    file.write_text("\n".join(lines) + "\n")
    output = replay(log, "--policy", "slurm,sow", "--statements", str(file))
    assert output["settings"]["statements"] == str(file)
    one = output["policies"]["sow"]
    assert one["stated"] >= one["stated_jobs"] > 10 and one["planned"] > 0
    assert one["welfare"] == pytest.approx(7 * round(one["welfare"] / 7))


def test_statements_know_nothing_of_what_comes_after_their_birth(log: Path) -> None:
    jobs = read_log(str(log)).jobs
    stated = stated_of(jobs, None, 600.0, 1.0, 8)
    assert len(stated.pairs) > 0.8 * len(stated) and len({row for _, row in stated.pairs}) == len(
        stated.pairs
    )
    for number, row in stated.pairs:
        one = stated.made[number]
        assert jobs.submit_s[row] > one.birth_s
        assert int(jobs.cores[row]) == one.announcement.cores


def test_without_statements_there_is_nobody_to_plan(log: Path, tmp_path: Path) -> None:
    lines = log.read_text().splitlines()
    short = tmp_path / "short.swf"
    short.write_text("\n".join(lines[:8]) + "\n")
    with pytest.raises(UsageError, match="no job of it comes again"):
        CliRunner().invoke(
            asactl, ["replay", str(short), "--store", "none", "--policy", "sow"], catch_exceptions=False
        )
    for text, why in (
        ("version = 1\n[[statement]]\ncores = 1\n", "mine.toml:2: statement 1: `runs` is missing"),
        (
            'version = 1\n[[statement]]\ncores = 1\ndue = 5\nruns = [[0, 60, 1.0]]\nvalue = 1\ndeadline = "1h"\n',
            "a statement has no name",
        ),
    ):
        file = tmp_path / "mine.toml"
        file.write_text(text)
        words = ["replay", str(log), "--store", "none", "--policy", "sow", "--statements", str(file)]
        with pytest.raises(AsadError) as error:
            CliRunner().invoke(asactl, words, catch_exceptions=False)
        assert why in str(error.value)


def test_the_page_and_the_table_show_of_statements(log: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ["replay", str(log), "--store", "none", "--policy", "slurm,sow", "--report", str(page), "--full"]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    assert result.exit_code == 0 and "stated jobs are worth" in result.output
    text = page.read_text()
    assert "Under sow, stated jobs are worth" in text and "What becomes of statements of work" in text


def test_a_log_without_users_says_why_nothing_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{k},{1000 + k * 86400},{1000 + k * 86400},{4600 + k * 86400},8,COMPLETED" for k in range(1, 30)]
    log.write_text("\n".join(["JobID,Submit,Start,End,AllocCPUS,State", *rows]) + "\n")
    output = CliRunner().invoke(asactl, ["sow", "infer", str(log)], catch_exceptions=False).output
    assert "the log has no users, without whom no job is known again" in output

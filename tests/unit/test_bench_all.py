"""All evaluations by one command: each runs by its own, with pages in a folder and one object of JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asad.cli.asactl import asactl
from asad.cli.bench import PAPERS
from asad.errors import UsageError
from asad_papers import all_command
from asad_papers.asax.asax_command import asax_paper
from asad_papers.oasis.oasis_command import oasis

FEW = (
    (asax_paper, ("--seeds", "1", "--sizes", "64", "--policy", "slurm,static")),
    (oasis, ("--seeds", "1", "--part", "instances", "--scheme", "fifo,drf")),
)


def bench_all(*words: str) -> Result:
    return CliRunner().invoke(asactl, ["bench", "all", *words], catch_exceptions=False)


def test_every_evaluation_is_run() -> None:
    assert {command.name for command, _ in all_command.EVALUATIONS} == PAPERS.keys() - {"all"}


def test_each_runs_by_its_own_command_and_writes_its_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(all_command, "EVALUATIONS", FEW)
    done = bench_all("--page", str(tmp_path), "--json")
    documents = json.loads(done.stdout)
    assert list(documents) == ["schema", "asax-paper", "oasis"]
    assert documents["asax-paper"]["64"]["static"]["makespan_s"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asax-paper.html", "oasis.html"]
    command = "asactl bench asax-paper --seeds 1 --sizes 64 --policy slurm,static"
    assert command in (tmp_path / "asax-paper.html").read_text(), "the page says how to make it again"
    assert "1 of 2: asactl bench asax-paper" in done.stderr and "oasis took" in done.stderr


def test_without_json_its_tables_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_command, "EVALUATIONS", FEW[:1])
    assert "Clusters, third submission (Table 3)" in bench_all().stdout


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder; make it first"):
        bench_all("--page", str(tmp_path / "x"))

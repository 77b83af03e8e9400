"""The evaluation of the ASAx paper: its workload, what is summed of stages, and how the document reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from asad.cli.asactl import asactl
from asad.errors import UsageError
from asad_papers.asax import expert_ablation, static_fit
from asad_papers.asax.asax_command import asax_paper
from asad_papers.asax.paper_page import reading
from asad_papers.asax.paper_workload import PAPER, PAPER_RUNS, STAGES, TABLE_2, WORKFLOWS, workload


def bench(*words: str) -> Result:
    return CliRunner().invoke(asax_paper, words, catch_exceptions=False)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    done = bench("--seeds", "2", "--sizes", "64", "--policy", "slurm,static", "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_papers_tables_agree_with_each_other() -> None:
    for size, rows in TABLE_2.items():
        printed = [(hours, cpu) for hours, _, cpu in PAPER_RUNS[size]["slurm"]]
        assert printed == [(hours, cpu / 100) for hours, _, cpu, _ in rows]
        assert PAPER[size].keys() == PAPER_RUNS[size].keys()


def test_stages_of_a_run_follow_each_other_and_last_as_long_as_the_run() -> None:
    whole, chained = workload(128, 3), workload(128, 3, chained=True)
    jobs, stages = whole.recorded.jobs, chained.recorded.jobs
    assert len(jobs) == 45 and whole.run.tolist() == list(range(45)) and (jobs.depends_on == -1).all()
    assert np.bincount(chained.run).tolist() == [len(STAGES[WORKFLOWS[kind]]) for kind in jobs.application]
    first = np.flatnonzero(np.diff(chained.run, prepend=-1))
    assert np.add.reduceat(stages.run_s, first) == pytest.approx(jobs.run_s, abs=2.0)
    behind = np.delete(np.arange(len(stages)), first)
    assert (stages.depends_on[first] == -1).all() and (stages.depends_on[behind] == behind - 1).all()
    assert (stages.cores <= jobs.cores[chained.run]).all()
    sequential = [not parallel for kind in jobs.application for parallel in STAGES[WORKFLOWS[kind]]]
    assert (stages.cores[sequential] == 8).all()


def test_alone_a_run_takes_what_was_drawn_and_waits_for_what_is_before_it(document: dict[str, Any]) -> None:
    alone = document["64"]["slurm"]
    for number, name in enumerate(WORKFLOWS):
        found = alone["workflows"][name]
        hours, deviation, cpu, _ = TABLE_2[64][number]
        assert found["cpu_of_cores"] == pytest.approx(cpu / 100)
        assert found["run_mean_s"] == pytest.approx(3600 * hours, rel=3 * deviation / 100)
    last = alone["by_submission"][-1]
    assert len(alone["by_submission"]) == 3 and last["wait_mean_s"] == pytest.approx(alone["wait_mean_s"])
    assert alone["makespan_ratio"] == 1.0 and alone["makespan_sd_s"] == last["makespan_s_sd"]
    assert alone["response_mean_s"] > alone["wait_mean_s"]


def test_of_chained_stages_the_wait_is_between_them_and_the_run_their_sum() -> None:
    words = ("--seeds", "1", "--sizes", "256", "--policy", "slurm", "--json")
    whole, chained = (
        json.loads(bench(*words, *more).stdout)["256"]["slurm"] for more in ((), ("--chained",))
    )
    for name in WORKFLOWS:
        run_s = whole["workflows"][name]["run_mean_s"]
        assert chained["workflows"][name]["run_mean_s"] == pytest.approx(run_s, abs=2.0)
    assert chained["delivered_core_s"] < 0.8 * whole["delivered_core_s"], "a sequential stage holds one node"


def test_the_page_has_both_tables_both_figures_and_a_sentence_where_it_differs(
    document: dict[str, Any], tmp_path: Path
) -> None:
    page = tmp_path / "asax.html"
    done = bench("--seeds", "1", "--sizes", "64", "--policy", "slurm,static", "--page", str(page))
    assert "Clusters, third submission (Table 3)" in done.stdout and "×1.09" in done.stdout
    assert "Workflows, third submission (Table 2)" in done.stdout
    text = page.read_text()
    assert text.count("<svg") == 6, "three figures, each for a page and for a telephone"
    assert "Makespan of the queue (Figure 3a)" in text and "asactl bench" not in done.stdout
    gains = dict(document["64"]["static"], makespan_ratio=0.9)
    loses = dict(document["64"]["static"], makespan_ratio=1.2)
    for figures, differs in ((gains, True), (loses, False)):
        sizes = {"64": {"slurm": document["64"]["slurm"], "static": figures}}
        clusters = reading({"sizes": sizes, "seeds": 2}).sections[0][2]
        assert any("contradicts the paper on 64 cores" in str(piece) for piece in clusters) == differs


@pytest.mark.parametrize(
    ("words", "text"), [(("--sizes", "32"), "--sizes 32"), (("--policy", "nobody"), "--policy nobody")]
)
def test_wrong_words_are_refused(words: tuple[str, ...], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        CliRunner().invoke(asactl, ["bench", "asax-paper", *words], catch_exceptions=False)


def test_the_fit_is_the_point_of_the_grid_with_least_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_fit, "GRID", (1.0, 0.4))
    found: Any = static_fit.fit_static(seeds=[0], sizes=(64,), policies=("slurm", "static"))
    assert [(one["mu_cpu"], one["mu_memory"]) for one in found["grid"]] == [
        (1.0, 1.0),
        (1.0, 0.4),
        (0.4, 0.4),
    ]
    assert found["residual"] == min(one["residual"] for one in found["grid"])
    assert found["mu_memory"] == 0.4, "the paper's Static is slower than sharing without cost"
    assert static_fit.residual(found["sizes"]) == found["residual"]


def test_nothing_is_left_where_static_is_as_in_the_paper() -> None:
    table = {
        str(size): {"static": {"makespan_ratio": rows["static"].response_h / rows["slurm"].response_h}}
        for size, rows in PAPER.items()
    }
    assert static_fit.residual(table) == pytest.approx(0.0)
    table["64"]["static"]["makespan_ratio"] *= 2.0
    assert static_fit.residual(table) == pytest.approx(np.log(2.0) / np.sqrt(3.0))


def test_who_is_held_in_another_way_counts_with_the_other_constants() -> None:
    found = json.loads(
        bench("--seeds", "1", "--sizes", "64", "--policy", "slurm,static,static/idle", "--json").stdout
    )["64"]
    assert found["static"]["runtime_stretch_mean"] != found["static/idle"]["runtime_stretch_mean"]


@pytest.mark.slow
def test_what_the_experts_add_is_measured_with_other_trees() -> None:
    plain = expert_ablation.SETTINGS[:1]
    variants = ("slurm", "fluid", "asax", *expert_ablation.VARIANTS[4:6])
    table: Any = expert_ablation.evaluate(settings=plain, variants=variants)[plain[0]]
    assert table["slurm"]["response_ratio"] == 1.0
    assert table["asax"]["response_ratio"] < 0.7 < table["asax, one tree never lends"]["response_ratio"] < 1.0

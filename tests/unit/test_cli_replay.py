"""`asactl replay` as an operator types it.

The logs are of two dozen jobs, and one replay of all policies is shared by the tests that only read what it gave.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from plain_answers import validate

from asad.cli.asactl import asactl
from asad.errors import UsageError
from asad.store.store import Store

pytestmark = pytest.mark.slow

KEYS = {
    "jobs",
    "makespan_s",
    "response_mean_s",
    "wait_mean_s",
    "wait_p95_s",
    "bounded_slowdown_mean",
    "utilization",
    "cpu_utilization",
    "delivered_core_s",
    "host_stretch_mean",
    "guest_stretch_mean",
    "runtime_stretch_mean",
    "runtime_stretch_p95",
    "lent_core_s",
    "guests",
    "losers",
    "loss_p95_s",
    "loss_max_s",
    "displaced",
    "displaced_placebo",
    "displaced_unshared",
    "displaced_unshared_placebo",
    "late",
    "late_guests",
    "stretched_guests",
    "stretched_hosts",
    "stretched_lateness_s",
    "lateness_over_saved",
    "killed",
    "killed_by_lending",
    "wall_s",
}


JOBS = 24
LENDING = "slurm,fcfs,conservative,static,asax,asax-paper,greedy-oracle"
PLACING = "first-fit,fairness,drf,binpack,spread,oga"


def swf(jobs: int = JOBS, cores: int = 8) -> str:
    """A busy day of a small machine: light jobs of half the machine, that could share."""
    lines = ["; MaxNodes: 4", f"; MaxProcs: {cores}"]
    for k in range(jobs):
        run, width, cpu = 3000 + 37 * (k % 7), (cores, cores // 2, 2)[k % 3], 600
        lines.append(
            f"{k + 1} {k * 900} -1 {run} {width} {cpu} -1 {width} 7200 -1 1 {k % 4} 1 {k % 3} -1 -1 -1 -1"
        )
    return "\n".join(lines) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "small.swf"
    path.write_text(swf())
    return path


class Replay(NamedTuple):
    """What one replay gave."""

    document: dict[str, Any]
    page: str
    store: str


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """The small log under every policy, once: its JSON, its page and its store."""
    folder = tmp_path_factory.mktemp("replayed")
    path, page, url = folder / "small.swf", folder / "page.html", str(folder / "asad.db")
    path.write_text(swf())
    words = ["replay", str(path), "--json", "--policy", f"{LENDING},{PLACING}", "--seed", "3"]
    result = CliRunner().invoke(
        asactl, [*words, "--store", url, "--report", str(page)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return Replay(json.loads(result.stdout), page.read_text(), url)


def run(*words: object) -> tuple[str, int]:
    """Standard output and exit status of `asactl WORDS`, in a process of its own."""
    command = [sys.executable, "-c", "from asad.cli.asactl import main; main()", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr, done.returncode


def as_json(log: Path, *words: object) -> dict[str, object]:
    result = CliRunner().invoke(
        asactl, ["replay", str(log), "--json", "--store", "none", *map(str, words)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    document: dict[str, object] = json.loads(result.output)
    validate(document)
    return document


def without_wall_times(document: dict[str, object]) -> str:
    means = document["repeats"].get("policies", {})  # type: ignore[attr-defined]
    for figures in (*document["policies"].values(), *means.values()):  # type: ignore[attr-defined]
        figures.pop("wall_s")
    return json.dumps(document)


def test_the_json_has_every_figure_of_every_policy(replayed: Replay) -> None:
    document = replayed.document
    assert list(document["policies"]) == f"{LENDING},{PLACING}".split(",")
    for name, figures in document["policies"].items():
        assert figures.keys() >= KEYS
        assert figures["jobs"] == JOBS
        assert figures["killed_by_lending"] == 0, name
    assert document["demand_sources"] == {"measured": 1.0, "profiled": 0.0, "assumed": 0.0}
    assert document["machine"]["cores"] == 8


def test_same_log_configuration_and_seed_give_the_same_bytes(log: Path) -> None:
    words = ("--policy", "slurm,static,asax,asax-paper,greedy-oracle", "--seed", 7)
    assert without_wall_times(as_json(log, *words)) == without_wall_times(as_json(log, *words))


def test_with_lending_off_every_policy_is_slurm(log: Path) -> None:
    policies = as_json(log, "--policy", "slurm,static,asax,asax-paper,greedy-oracle", "--no-lending")[
        "policies"
    ]
    slurm = {key: value for key, value in policies["slurm"].items() if key != "wall_s"}  # type: ignore[index]
    for name, figures in policies.items():  # type: ignore[attr-defined]
        own = {key: value for key, value in figures.items() if key != "wall_s"}
        if name != "slurm":
            assert own.pop("displaced_placebo") == own.pop("displaced_unshared_placebo") == 0
            slurm_own = {key: value for key, value in slurm.items() if not key.endswith("_placebo")}
            assert own == slurm_own


def test_lending_helps_light_jobs_and_loses_no_work(replayed: Replay) -> None:
    policies = replayed.document["policies"]
    assert policies["greedy-oracle"]["guests"] > 0
    assert policies["greedy-oracle"]["response_mean_s"] < policies["slurm"]["response_mean_s"]
    for name in ("asax", "greedy-oracle"):
        assert policies[name]["delivered_core_s"] == pytest.approx(policies["slurm"]["delivered_core_s"])


def test_memory_of_the_machine_must_hold_every_job(tmp_path: Path) -> None:
    path = tmp_path / "heavy.txt"
    path.write_text("JobID|Submit|Start|End|NCPUS|ReqMem\n1|1000|1000|1100|2|8G\n2|1000|1000|1100|2|1G\n")
    words = ("replay", path, "--nodes", 2, "--cores", 2, "--memory", "2G", "--store", "none")
    output, status = run(*words)
    assert status == 2
    assert "job 1" in output
    assert "--skip-bad" in output
    document = as_json(path, "--nodes", 2, "--cores", 2, "--memory", "2G", "--skip-bad", "--policy", "slurm")
    assert document["policies"]["slurm"]["jobs"] == 1  # type: ignore[index]
    assert document["log"]["does_not_fit"] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--policy", "magic"), "magic"),
        (("--nodes", 3), "--cores"),
        (("--memory", "1G"), "--nodes"),
        (("--poll", "soon"), "--poll"),
        (("--demand", "beta:2"), "above 0 and below 1"),
    ],
)
def test_wrong_usage_is_reported_and_leaves_with_two(log: Path, words: tuple[object, ...], what: str) -> None:
    output, status = run("replay", log, "--store", "none", *words)
    assert status == 2
    assert what in output
    assert "Traceback" not in output


def test_a_missing_log_and_a_bad_line_are_reported(tmp_path: Path) -> None:
    output, status = run("replay", tmp_path / "nothing.swf", "--store", "none")
    assert (status, "Traceback" in output) == (2, False)
    bad = tmp_path / "bad.swf"
    bad.write_text(swf(5) + "6 nonsense 0 1 1 -1 -1 1 10 -1 1 1 1 1 -1 -1 -1 -1\n")
    output, status = run("replay", bad, "--store", "none")
    assert status == 2
    assert "bad.swf:8" in output
    document = as_json(bad, "--skip-bad", "--policy", "slurm")
    assert document["log"]["skipped"] == 1  # type: ignore[index]


def test_a_log_on_standard_input(log: Path) -> None:
    result = CliRunner().invoke(
        asactl, ["replay", "-", "--policy", "slurm", "--json", "--store", "none"], input=log.read_bytes()
    )
    assert json.loads(result.output)["policies"]["slurm"]["jobs"] == JOBS


def test_the_store_keeps_what_was_decided_and_explain_shows_it(replayed: Replay) -> None:
    with Store.open(replayed.store) as store:
        runs = {one.policy: one for one in store.runs()}
        assert runs.keys() == set(f"{LENDING},{PLACING}".split(",")) - {"slurm", "fcfs", "conservative"}
        guests = [d.job for d in store.decisions(runs["greedy-oracle"].id) if d.kind == "co-allocate"]
    assert guests
    output = CliRunner().invoke(
        asactl, ["explain", guests[0], "--store", replayed.store], catch_exceptions=False
    )
    assert output.exit_code == 0, output.output
    assert guests[0] in output.output


def test_repeats_report_mean_and_deviation(log: Path) -> None:
    document = as_json(log, "--policy", "asax-paper", "--repeat", 3)
    repeats = document["repeats"]
    assert repeats["seeds"] == [0, 1, 2]  # type: ignore[index]
    mean = repeats["policies"]["asax-paper"]["response_mean_s"]["mean"]  # type: ignore[index]
    assert document["policies"]["asax-paper"]["response_mean_s"] == mean  # type: ignore[index]


def test_a_replay_that_lends_has_five_seeds_and_its_store_the_first_ones_runs(log: Path) -> None:
    url = str(log.parent / "asad.db")
    words = ["replay", str(log), "--json", "--policy", "slurm,asax-paper"]
    result = CliRunner().invoke(asactl, [*words, "--store", url], catch_exceptions=False)
    document = json.loads(result.stdout)
    validate(document)
    assert document["repeats"]["seeds"] == [0, 1, 2, 3, 4] and document["settings"]["repeat"] == 5
    assert len(document["repeats"]["response_change"]["asax-paper"]) == 5
    with Store.open(url) as store:
        assert len(store.runs()) == 1
    assert as_json(log, "--policy", "slurm,fcfs")["repeats"] == {}, "nothing is lent"


def test_groups_and_baseline_are_in_the_json() -> None:
    sample = Path(__file__).parents[2] / "profiles/samples/lab-cluster.sacct"
    words = ("--nodes", 2, "--cores", 1, "--memory", "4G", "--policy", "slurm,measured", "--repeat", 1)
    document = as_json(sample, *words, "--poll", "2s")
    groups: list[dict[str, Any]] = document["groups"]  # type: ignore[assignment]
    assert sum(one["jobs"] for one in groups if one["by"] == "partition") == 40
    assert all(one["recorded_wait_mean_s"] >= 0 and one["policy"] == "measured" for one in groups)
    baseline: dict[str, Any] = document["baseline"]  # type: ignore[assignment]
    assert baseline["kind"] == "recorded" and baseline["chosen"] == 0 and baseline["policy"] == "measured"


def test_the_page_is_written(replayed: Replay) -> None:
    assert "<svg" in replayed.page


def test_times_of_options() -> None:
    from asad.cli.replay import seconds

    assert [seconds(text, "--poll") for text in ("30", "30s", "5m", "1h", "0.5s")] == [30, 30, 300, 3600, 0.5]
    for text in ("", "0", "-1s", "nan", "inf", "1d", "s"):
        with pytest.raises(UsageError, match="--poll"):
            seconds(text, "--poll")


WORTH = ("utility", "valued", "in_time", "timeliness_mean_s", "admitted", "declined")


def sacct_of_arrays(folder: Path) -> Path:
    """Two arrays of eight tasks and rigid jobs on eight cores, some worth much and soon, some little and late."""
    lines = ["JobID|User|Submit|Start|ElapsedRaw|NCPUS|TimelimitRaw|TotalCPU|Comment"]
    row = "{0}|u{1}|2024-01-01T{2}:00|2024-01-02T00:00:00|{3}|{4}|40|00:10:00|{5}"
    for task in range(8):
        lines.append(row.format(f"10_{task}", 1, "00:00", 1800, 2, "asad:utility=sigmoid(5,0.5,6h)"))
        lines.append(row.format(f"20_{task}", 2, "00:10", 1200, 2, "asad:utility=sigmoid(90,1,90m)"))
    for job in range(12):
        lines.append(row.format(30 + job, 3, f"0{job // 4}:{11 + 4 * job % 40:02}", 1500, 4, ""))
    path = folder / "arrays.sacct"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("policy", ["fifo-admit", "drf-admit", "rrh-admit", "oasis", "oasis-paper"])
def test_policies_that_admit_show_what_jobs_are_worth(tmp_path: Path, policy: str) -> None:
    path = sacct_of_arrays(tmp_path)
    words = ("--policy", f"slurm,{policy}", "--slot", "5m", "--nodes", 2, "--cores", 4, "--poll", "10s")
    document = as_json(path, *words, "--utility", "user=u3:sigmoid(20,0.5,2h)")
    slurm, ours = (document["policies"][name] for name in ("slurm", policy))  # type: ignore[index]
    for figures in (slurm, ours):
        assert figures.keys() >= KEYS | set(WORTH)
        assert figures["valued"] == 14
        assert 0 <= figures["in_time"] <= 14
        assert 0 < figures["utility"] <= 5 + 90 + 12 * 20
        assert figures["jobs"] == 28
        assert figures["delivered_core_s"] == slurm["delivered_core_s"]
    assert slurm["admitted"] is slurm["declined"] is None
    assert 0 < ours["admitted"] + ours["declined"] <= 14
    assert document["settings"]["slot_s"] == 300.0  # type: ignore[index]
    assert any("16 jobs are tasks of 2 arrays" in note for note in document["log"]["notes"])  # type: ignore[index]
    again = as_json(path, *words, "--utility", "user=u3:sigmoid(20,0.5,2h)")
    assert without_wall_times(again) == without_wall_times(document)


def test_without_a_question_of_worth_nothing_is_reported_of_it(tmp_path: Path) -> None:
    document = as_json(sacct_of_arrays(tmp_path), "--policy", "slurm,fcfs", "--nodes", 2, "--cores", 4)
    for figures in document["policies"].values():  # type: ignore[attr-defined]
        assert not figures.keys() & set(WORTH)
    assert "slot_s" not in document["settings"]  # type: ignore[operator]
    assert not any("arrays" in note for note in document["log"]["notes"])  # type: ignore[index]


def test_schedulers_are_valued_too(log: Path) -> None:
    document = as_json(log, "--policy", "slurm,fcfs", "--utility", "deadline(1,90m)")
    for figures in document["policies"].values():  # type: ignore[attr-defined]
        assert figures["utility"] == figures["in_time"] <= figures["valued"] == JOBS
        assert figures["admitted"] is None


def test_decisions_of_a_policy_that_admits_are_kept(tmp_path: Path) -> None:
    where = f"sqlite:///{tmp_path / 'asad.db'}"
    words = ["--policy", "slurm,oasis", "--slot", "5m", "--nodes", "2", "--cores", "4", "--json"]
    path = str(sacct_of_arrays(tmp_path))
    result = CliRunner().invoke(asactl, ["replay", path, *words, "--store", where], catch_exceptions=False)
    assert result.exit_code == 0
    with Store.open(where) as store:
        (run_record,) = store.runs()
        kinds = {decision.kind for decision in store.decisions(run_record.id) if decision.outcome == "done"}
    assert run_record.policy == "oasis"
    assert kinds & {"admit", "decline"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--policy", "oasis"), "no job of"),
        (("--policy", "oasis", "--utility", "sigmoid(1)"), "sigmoid takes 3 arguments"),
        (("--policy", "oasis", "--utility", "constant(1)", "--slot", "0.1"), "--slot 0.1"),
        (("--slot", "soon"), "--slot soon"),
        (("--policy", "fifo"), "unknown policy 'fifo'"),
    ],
)
def test_wrong_words_about_admission_say_what_to_do(log: Path, words: tuple[str, ...], text: str) -> None:
    with pytest.raises(UsageError) as raised:
        as_json(log, *words)
    assert text in str(raised.value)


def test_policies_that_place_have_guests_and_oga_draws_nothing(replayed: Replay, log: Path) -> None:
    found: dict[str, dict[str, float]] = replayed.document["policies"]
    assert found["first-fit"]["guests"] > 0
    assert found["oga"]["guests"] > 0
    again = as_json(log, "--policy", "slurm,oga", "--seed", 4)["policies"]
    drawn = ("wall_s", "displaced_placebo", "displaced_unshared_placebo")
    first, second = (
        {key: value for key, value in figures.items() if key not in drawn}
        for figures in (found["oga"], again["oga"])  # type: ignore[index]
    )
    assert first == second


def test_bounds_of_components_in_a_log_are_kept_in_a_replay(tmp_path: Path) -> None:
    """Light jobs hold the machine of two nodes; another could share both, and says that it needs three."""
    head = (
        "JobID|JobIDRaw|User|JobName|Partition|State|Submit|Start|End|ElapsedRaw|Timelimit|NCPUS|NNodes|"
        "CPUTimeRAW|TotalCPU|Comment"
    )
    rows = [head]
    for number in range(12):
        light = number % 2 == 0
        submit, run = 1_700_000_000 + 100 * number, 3000
        start = submit + 3000 * number
        cpus, name = (8, "host") if light else (4, "guest")
        rows.append(
            f"{number + 1}|{number + 1}|ann|{name}|batch|COMPLETED|{submit}|{start}|{start + run}|{run}|02:00:00|"
            f"{cpus}|2|{run * cpus}|00:20:00|{'' if light else 'asad:components=3'}"
        )
    seen, free = tmp_path / "told.txt", tmp_path / "free.txt"
    seen.write_text("\n".join(rows) + "\n")
    free.write_text("\n".join(rows).replace("asad:components=3", "") + "\n")

    def guests(log: Path) -> dict[str, float]:
        words = ("--policy", "slurm,first-fit,oga", "--nodes", 2, "--cores", 4)
        found: dict[str, dict[str, float]] = as_json(log, *words)["policies"]  # type: ignore[assignment]
        return {name: figures["guests"] for name, figures in found.items()}

    assert guests(free)["first-fit"] > 0
    hosted = guests(seen)
    assert hosted["first-fit"] < guests(free)["first-fit"], "who needs three nodes is no guest of two"


def test_what_is_left_out_and_what_was_inferred_is_reported_on_the_terminal(log: Path) -> None:
    with log.open("a") as file:
        file.write("25 99999 -1 600 4 -1 -1 4\n26 99999 -1 600 4000 -1 -1 4000 900 -1 1 1 1 1 -1 -1 -1 -1\n")
    words = ("replay", log, "--store", "none", "--policy", "slurm", "--skip-bad")
    output, status = run(*words, "--nodes", "4", "--cores", "8")
    assert status == 0
    words_of = " ".join(output.split())
    assert "1 line cannot be read and is left out." in words_of
    assert "1 job is too large for the machine and is left out." in words_of
    assert "The machine is inferred" not in words_of and "jobs get, and" not in words_of
    log.write_text("".join(line for line in log.read_text().splitlines(True) if not line.startswith(";")))
    output, _ = run(*words)
    assert "The machine is inferred from the log, for want of --machine" in " ".join(output.split())
    output, _ = run(*words, "--full")
    assert "The machine is inferred from the log: " in output and "What 25 jobs get" in output

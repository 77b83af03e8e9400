"""`asactl sweep`: tasks of a sweep, who carries them out, what is kept, and what they come to together."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from test_cli_replay import swf

from asad.cli.asactl import asactl
from asad.cli.sweep_tasks import read_sweep, replay_task
from asad.errors import AsadError
from asad.store import sweeps
from asad.store.store import Store
from asad.store.sweeps import Place, SweepResult
from asad.sweep.coordinator import carry_out
from asad.sweep.estimates import cells, estimate
from asad.sweep.local_processes import Processes, WorkerDied
from asad.sweep.sweep_page import reading

pytestmark = pytest.mark.usefixtures("published_schemas")

SWEEP = """
name = "small"
policies = ["slurm", "fcfs"]
seeds = 3

[[logs]]
log = "one.swf"
nodes = 4
cores = 2

[[logs]]
log = "other.swf"
"""


class Inline:
    """Workers that are this very process."""

    def at_once(self) -> int:
        return 1

    def submit(self, function: Callable[[Any], Any], task: Any, /) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(task))
        return future


@contextmanager
def inline(*_: Any, **__: Any) -> Iterator[Inline]:
    yield Inline()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep file with its two logs; its tasks run in this process."""
    monkeypatch.setattr("asad.cli.sweep._workers", inline)
    (tmp_path / "one.swf").write_text(swf(12))
    (tmp_path / "other.swf").write_text(swf(9))
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


def asked(folder: Path, *words: str, command: str = "run") -> Result:
    return CliRunner().invoke(asactl, ["sweep", command, *words, "--store", str(folder / "asad.db")])


def kept(folder: Path, name: str = "small") -> list[SweepResult]:
    with Store.open(str(folder / "asad.db")) as store:
        return sweeps.results(store, name)


def without_times(results: list[SweepResult]) -> list[tuple[Any, ...]]:
    return [
        (
            one.place,
            one.task,
            one.state,
            {key: value for key, value in one.metrics.items() if key != "wall_s"},
        )
        for one in results
    ]


def test_every_log_under_every_configuration_with_every_seed(folder: Path) -> None:
    done = asked(folder, str(folder / "sweep.toml"), "--report", str(folder / "page.html"))
    assert done.exit_code == 0, done.output
    assert "2 logs x 2 configurations x 3 seeds = 12 tasks; 12 to do" in done.stderr
    results = kept(folder)
    assert [one.place for one in results] == [
        Place(log, policy, seed)
        for seed in range(3)
        for log in ("one", "other")
        for policy in ("slurm", "fcfs")
    ]
    assert len({one.task for one in results}) == 12
    assert {one.machine["cores"] for one in results if one.place.log == "one"} == {8}
    page = (folder / "page.html").read_text()
    assert "Response, mean" in page and "<svg" in page
    assert asked(folder, "--json", command="list").exit_code == 0
    alone = CliRunner().invoke(asactl, ["runs", "--store", str(folder / "asad.db"), "--json"])
    assert json.loads(alone.output)["runs"] == [], "tasks of sweeps are no runs to be listed one by one"


def test_what_is_there_is_not_run_again_and_what_is_new_is(folder: Path) -> None:
    file = folder / "sweep.toml"
    assert asked(folder, str(file)).exit_code == 0
    before = kept(folder)
    again = asked(folder, str(file), "--json")
    assert "in the store already: 12 done; nothing to do" in again.stderr
    assert kept(folder) == before
    file.write_text(SWEEP.replace("seeds = 3", "seeds = [1, 2, 7]"))
    more = asked(folder, str(file), "--json")
    assert "in the store already: 8 done; 4 to do" in more.stderr
    assert {one["seed"] for one in json.loads(more.stdout)["results"]} == {1, 2, 7}
    (folder / "other.swf").write_text(swf(10))
    changed = asked(folder, str(file))
    assert "in the store already: 6 done; 6 to do" in changed.stderr, "a log of other content is another task"


def test_a_task_is_what_decides_its_outcome(folder: Path) -> None:
    file, config = folder / "sweep.toml", folder / "asad.toml"

    def identities(text: str) -> set[str]:
        file.write_text(text)
        return {task.identity for task in read_sweep(file, {}).tasks}

    config.write_text("[guard]\nhost_floor = 0.2\n")
    text = SWEEP + '[[configurations]]\nname = "mine"\nconfig = "asad.toml"\n'
    first = identities(text)
    assert identities(text.replace('"mine"', '"ours"').replace('"small"', '"large"')) == first, (
        "names decide nothing"
    )
    assert len(identities(text + "set.guard.host_floor = 0.3\n") - first) == 6
    assert identities(text + "set.guard.host_floor = 0.2\n") == first, "nor does where a setting was written"
    assert len(identities(text + "use-sd = 0.1\n") - first) == 6
    config.write_text("[guard]\nhost_floor = 0.25\n")
    assert len(identities(text) - first) == 6
    text = SWEEP.replace("nodes = 4\ncores = 2", 'machine = "slurm.conf"')
    (folder / "slurm.conf").write_text("NodeName=n[1-4] CPUs=2 RealMemory=1000\n")
    before = identities(text)
    (folder / "slurm.conf").write_text("NodeName=n[1-4] CPUs=2 RealMemory=2000\n")
    assert len(identities(text) - before) == 6, "of the one log whose machine it is"
    text = text.replace('"slurm.conf"', '["slurm.conf", "partitions"]', 1)
    (folder / "partitions").write_text("PartitionName=p\n   AllowGroups=ALL\n   Nodes=n1\n")
    before = identities(text)
    (folder / "partitions").write_text("PartitionName=p\n   AllowGroups=ALL\n   Nodes=n2\n")
    assert len(identities(text) - before) == 6, "and what stands beside it"


def test_a_task_that_fails_is_recorded_and_the_rest_goes_on(folder: Path) -> None:
    text = SWEEP.replace("cores = 2", "cores = 1")  # no job of eight cores fits
    (folder / "sweep.toml").write_text(text)
    failed = asked(folder, str(folder / "sweep.toml"))
    assert failed.exit_code == 1
    results = kept(folder)
    assert {one.place.log: one.state for one in results} == {"one": "failed", "other": "done"}
    assert len(results) == 12
    assert "does not fit" in results[0].failure or "fit" in results[0].failure
    assert "What failed" in failed.stdout
    again = asked(folder, str(folder / "sweep.toml"))
    assert again.exit_code == 1 and "6 done, 6 failed; nothing to do" in again.stderr
    assert "6 to do" in asked(folder, str(folder / "sweep.toml"), "--retry-failed").stderr


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("seeds = 0", "sweep.toml:4: seeds: 0 is neither a number of seeds from 1 to"),
        ("seed = 3", "sweep.toml:4: seed: unknown key; did you mean 'seeds'?"),
        ('seeds = 3\nbaseline = "fcf"', "baseline 'fcf': did you mean 'fcfs'?"),
        (
            "seeds = 3\nreplay.polls = 3",
            "log 'one', configuration 'slurm': polls: unknown key; did you mean 'poll'?",
        ),
        ("seeds = 3\nreplay.use-sd = 7", "Invalid value for '--use-sd'"),
        ("seeds = 3\nreplay.skip-bad = 1", "skip-bad = 1; write true or false"),
        ("seeds = 3\nreplay.repeat = 2", "repeat: unknown key"),
        ('seeds = 3\n[[configurations]]\nname = "x"', "policy '' is not one that can be replayed"),
        ('seeds = 3\n[[configurations]]\npolicy = "assax"', "did you mean 'asax'?"),
        ('seeds = 3\n[[configurations]]\npolicy = "slurm"', "two of its configurations are called 'slurm'"),
        ('seeds = 3\n[[configurations]]\nname = "x"\nset.guard.floor = 3', "guard.floor: unknown key"),
        ('seeds = 3\n[[configurations]]\nname = "x"\nconfig = "no.toml"', "no.toml"),
        ('seeds = 3\n[[logs]]\nlog = "no.swf"', "no.swf: No such file or directory"),
        ("seeds = 3\n[[logs]]\nlog = 3", "[[logs]] 1: "),
    ],
)
def test_wrong_files_are_refused_with_place_and_hint(folder: Path, wrong: str, error: str) -> None:
    (folder / "sweep.toml").write_text(SWEEP.replace("seeds = 3", wrong))
    refused = asked(folder, str(folder / "sweep.toml"))
    assert isinstance(refused.exception, AsadError) and refused.exception.exit_status == 2
    assert error in str(refused.exception)


def test_without_a_file_options_say_the_same(folder: Path) -> None:
    log = str(folder / "other.swf")
    words = (
        "--log",
        log,
        "--policy",
        "slurm,fcfs",
        "--seeds",
        "2,",
        "--set",
        "use-sd=0.1",
        "--set",
        "no-widen=true",
    )
    assert "give one with --name" in str(asked(folder, *words).exception)
    done = asked(folder, *words, "--name", "typed", "--json")
    document = json.loads(done.stdout)
    assert (document["tasks"], document["done"], document["baseline"]) == (2, 2, "slurm")
    assert kept(folder, "typed")[0].settings["use_sd"] == 0.1
    removed = asked(folder, "typed", "--yes", command="rm")
    assert "removed sweep typed with 2 results" in removed.stdout
    assert "there is no sweep 'typed'" in str(asked(folder, "typed", command="show").exception)


KILLED = """
import sys, time
from asad.store import sweeps
keep = sweeps.keep
def slow(*words):
    keep(*words)
    print("kept", flush=True)
    time.sleep(0.2)
sweeps.keep = slow
sys.argv = ["asactl", "sweep", "run", {file!r}, "--store", {store!r}, "--workers", "1", "--quiet"]
from asad.cli.asactl import main
main()
"""


@pytest.mark.slow
def test_a_killed_coordinator_loses_what_is_in_flight_and_nobody_stays_behind(folder: Path) -> None:
    file, store = str(folder / "sweep.toml"), str(folder / "asad.db")
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(file=file, store=store)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for _ in range(3):
        assert child.stdout.readline() == "kept\n"
    workers = psutil.Process(child.pid).children(recursive=True)
    assert workers
    os.kill(child.pid, signal.SIGKILL)
    child.wait(300)
    child.stdout.close()
    assert psutil.wait_procs(workers, timeout=300)[1] == []
    before = kept(folder)
    assert 3 <= len(before) < 12 and {one.state for one in before} == {"done"}
    resumed = asked(folder, file)
    assert f"in the store already: {len(before)} done; {12 - len(before)} to do" in resumed.stderr
    after = kept(folder)
    assert [one for one in after if one in before] == before, "what was there stays"
    undisturbed = folder / "undisturbed"
    undisturbed.mkdir()
    assert asked(undisturbed, file).exit_code == 0
    assert without_times(after) == without_times(kept(undisturbed))


def _die(task: int) -> int:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_worker_that_is_killed_takes_its_own_task_with_it_alone() -> None:
    ended: dict[int, Any] = {}
    with Processes(2) as workers:
        carry_out(range(5), workers, _die, ended.__setitem__)
    died = ended.pop(1)
    assert isinstance(died, WorkerDied) and "killed by SIGKILL" in str(died)
    assert ended == {0: 0, 2: 2, 3: 3, 4: 4}


def test_a_worker_of_another_version_refuses(folder: Path) -> None:
    import dataclasses

    task = read_sweep(folder / "sweep.toml", {}).tasks[0]
    assert "install the same" in replay_task(dataclasses.replace(task, version="0")).failure
    (folder / "one.swf").write_text(swf(3))
    assert "it is not the file that the sweep began with" in replay_task(task).failure


def result(log: str, configuration: str, seed: int, value: float) -> SweepResult:
    place = {"log": log, "configuration": configuration, "seed": seed, "rank": 0, "tasks": 9, "baseline": "a"}
    settings = {"sweep": place}
    metrics = {"response_mean_s": value, "losers": 0}
    return SweepResult(
        "s", f"{log}{configuration}{seed}", "p", {}, {}, settings, 0.0, 1.0, "done", "", metrics
    )


def test_intervals_are_students_and_differences_are_taken_seed_by_seed() -> None:
    # of Student's own sleep data (1908), whose paired interval R's t.test gives as -2.4598858 … -0.7001142
    drug_1 = (0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0)
    drug_2 = (1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4)
    results = [
        result("log", name, seed, value)
        for name, values in (("b", drug_1), ("a", drug_2))
        for seed, value in enumerate(values)
    ]
    (found,) = [
        cell for cell in cells(results, "a") if (cell.configuration, cell.figure) == ("b", "response_mean_s")
    ]
    assert found.difference is not None and found.difference.half_width is not None
    assert found.difference.mean - found.difference.half_width == pytest.approx(-2.4598858)
    assert found.difference.mean + found.difference.half_width == pytest.approx(-0.7001142)
    assert found.difference.sign == -1
    assert found.relative == pytest.approx(-1.58 / 2.33)
    assert estimate([3.0]).half_width is None and estimate([3.0, 3.0]).half_width == 0.0
    assert math.isclose(estimate([0.0, 2.0]).half_width or 0.0, 12.7062, rel_tol=1e-5)


def test_no_interval_is_printed_where_no_seed_drew_anything() -> None:
    results = [
        result("log", name, seed, value) for name, value in (("a", 0.1), ("b", 0.3)) for seed in range(3)
    ]
    found = reading(results)
    assert "±" not in str(found.sections)
    assert found.verdict[1].startswith("Where no interval stands all seeds came to the same")


def test_the_page_says_what_is_shown_and_what_is_not() -> None:
    hostile = "<script>alert(1)</script>"
    results = [
        result("log", name, seed, value)
        for name, values in (("a", (10.0, 12.0, 11.0)), ("b", (9.0, 11.0, 10.1)), (hostile, (1.0, 30.0, 2.0)))
        for seed, value in enumerate(values)
    ]
    found = reading(results)
    rows = {row[1]: row[-1] for row in found.sections[0][2][0].rows}  # type: ignore[union-attr]
    assert rows == {"a": "baseline", "b": "better", hostile: "not shown"}
    assert found.verdict[0] == "log: response, mean is best under b, −8.8 % against a."
    assert found.facts.startswith("1 log · 3 configurations · 3 seeds · 9 of 9 tasks done")
    page = found.page("asactl sweep run")
    assert hostile not in page and "&lt;script&gt;" in page

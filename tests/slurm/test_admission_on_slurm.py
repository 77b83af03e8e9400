"""The admit stage's decisions on a real Slurm: arrays throttled and deferred, jobs put first, all of it released."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_slurm import open_cluster
from asad_slurm.admission import MOST_COMMENT
from asad_slurm.undo import ALIVE, boot_id, open_changes, undo_changes
from asad_slurm.undo import main as asad_undo
from asad_under_test import PATIENCE_S, Asad, until
from test_cluster_contract import check_arrays, copied

from asad.admit.admission_options import Options as AdmitOptions
from asad.admit.admission_policy import Admission
from asad.admit.schemes import scheme_maker
from asad.api.control import ask
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.daemon import NoNodes
from asad.decisions import Admit, Cause, Decision, Decline, Defer, SetThrottle, Start
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import Snapshot
from asad.place.native import Native
from asad.share.exclusive import Exclusive
from lab.slurm import RealSlurm

WHY = Cause("oasis", "payoff 3.2; 2 workers in slots 5 to 9")
MINUTES = "--time=10"
_numbers = itertools.count()


class Port:
    """A cluster object as the daemon holds one, jobs that end when they are let, and what Slurm says of them."""

    def __init__(self, slurm: RealSlurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.gate = slurm.folder / "jobs" / f"admission-{next(_numbers)}"
        self.cluster = self.open()

    def open(self) -> Any:
        """A cluster object; the second one is the next daemon's."""
        settings = {"transport": "command", "share_users": "any", "timeout_s": 20}
        return open_cluster(settings, nodes=NoNodes(), state_dir=self.folder, clock=time.time)

    def submit(self, *options: str, seconds: float | None = None) -> str:
        """Queue a job that runs so long, or until `let_end`."""
        script = (
            f"sleep {seconds}" if seconds is not None else f"until [ -e {self.gate} ]; do sleep 0.2; done"
        )
        return self.slurm.submit(script, MINUTES, *options)

    def fill(self) -> list[str]:
        """A job on every node, running."""
        jobs = [self.submit(f"--nodelist={node}") for node in self.slurm.node_names]
        self.slurm.wait(*jobs, state="RUNNING")
        return jobs

    def let_end(self) -> None:
        self.gate.touch()

    def look(self) -> Snapshot:
        snapshot: Snapshot = copied(self.cluster.snapshot())
        check_arrays(snapshot)
        self.cluster.finished(snapshot.time_s)
        return snapshot

    def row(self, job: str, snapshot: Snapshot | None = None) -> int:
        """The row of a job; of an array that of its waiting tasks."""
        seen = snapshot or self.look()
        names = [str(name).partition("_")[0] for name in seen.jobs.job_id]
        row = names.index(job)
        array = int(seen.jobs.array[row])
        return row if array < 0 else int(seen.arrays.waiting_row[array])

    def do(self, kind: Callable[..., Decision], job: str, *facts: float) -> str:
        """Decide something on a job now; why it was not done."""
        (outcome,) = self.cluster.apply([kind(WHY, self.row(job), *facts)])
        assert outcome.done == (outcome.reason == "")
        return str(outcome.reason)

    def array(self, job: str) -> dict[str, int]:
        """Counts of an array as a snapshot shows them."""
        seen = self.look()
        arrays = seen.arrays
        at = int(seen.jobs.array[self.row(job, seen)])
        names = ("waiting", "running", "ended", "throttle")
        return {name: int(getattr(arrays, name)[at]) for name in names}

    def records(self, job: str) -> list[dict[str, Any]]:
        """What squeue has of a job, of an array one record of those that wait together and one of each other task."""
        return [one for one in self.slurm.squeue() if job in (str(one["job_id"]), str(one["array_job_id"]))]

    def waiting(self, job: str) -> dict[str, Any]:
        """The one record of what waits of a job."""
        (found,) = [one for one in self.records(job) if one["job_state"] == "PENDING"]
        return found

    def facts(self, job: str) -> tuple[int, int, float]:
        """Throttle, nice and begin time (0 for one that has passed) of what waits of a job."""
        found = self.waiting(job)
        begin = found["eligible_time"]
        nice = (found["nice"] or 0) % 2**32
        return found["array_max_tasks"], nice - 2**32 * (nice >= 2**31), begin if begin > time.time() else 0

    def changes(self) -> set[tuple[str, str]]:
        """What the journal has open."""
        return set(open_changes(self.folder / "offers.journal"))

    def undo(self) -> list[str]:
        """`asad-undo`, as after the daemon's stop."""
        lines, failed = undo_changes(self.folder / "offers.journal", older_than_s=0.0, now_s=time.time())
        assert failed == 0, lines
        return lines


@pytest.fixture
def port(slurm: RealSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    """A new cluster object on an idle cluster of two cores."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    port = Port(slurm, tmp_path)
    yield port
    port.cluster.release()
    port.cluster.close()
    port.let_end()


# ---------------------------------------------------------------------------------------------------------- throttles


def test_the_throttle_of_an_array_moves_up_and_down_while_it_runs(port: Port) -> None:
    job = port.submit("--array=0-9", seconds=4)
    until(lambda: port.array(job)["running"] == 2, "both cores are taken")
    assert port.do(SetThrottle, job, 1) == ""
    until(lambda: port.array(job)["running"] == 1, lambda: f"one task at a time: {port.array(job)}")
    shown = port.array(job)
    assert shown["throttle"] == 1 and sum(shown[name] for name in ("waiting", "running", "ended")) == 10
    for _ in range(6):  # the next one comes only when it is over
        time.sleep(1)
        assert port.array(job)["running"] <= 1
    assert port.do(SetThrottle, job, 2) == ""
    until(lambda: port.array(job)["running"] == 2, "two at a time again")
    assert port.changes() == {(job, "ArrayTaskThrottle")}
    assert port.cluster.release() == [f"{job}: it has its own throttle again"]
    assert port.facts(job)[0] == 0 and not port.changes()
    until(
        lambda: {(one["job_state"], one["exit_code"]) for one in port.records(job)} == {("COMPLETED", 0)},
        lambda: f"all tasks have ended well: {port.records(job)}",
    )


def test_the_users_own_throttle_comes_back(port: Port) -> None:
    job = port.submit("--array=0-9%2")
    until(lambda: port.array(job)["running"] == 2, "two tasks run")
    assert port.array(job)["throttle"] == 2
    for tasks in (1, 7, 3):
        assert port.do(SetThrottle, job, tasks) == ""
        assert port.array(job)["throttle"] == tasks
    assert port.undo() == [f"{job}: ArrayTaskThrottle=2 as before"]
    assert port.facts(job)[0] == 2


# ---------------------------------------------------------------------------------------------------------- deferring


def test_waiting_tasks_are_deferred_together_while_others_run(port: Port) -> None:
    job = port.submit("--array=0-5", seconds=6)
    until(lambda: port.array(job)["running"] == 2, "two tasks run")
    until_s = math.ceil(time.time()) + 15
    assert port.do(Defer, job, until_s) == ""
    found = port.waiting(job)  # one record still: nothing is split
    assert found["eligible_time"] == until_s and found["array_task_string"] == "2-5"
    seen = port.look()
    row = port.row(job, seen)
    assert seen.jobs.begin_s[row] == until_s and row not in seen.queue
    assert port.array(job) == {"waiting": 4, "running": 2, "ended": 0, "throttle": 0}
    until(lambda: port.array(job)["running"] == 0, "those that ran have ended")
    assert port.array(job) == {"waiting": 4, "running": 0, "ended": 2, "throttle": 0}
    until(lambda: port.waiting(job)["state_reason"] == "BeginTime", "Slurm says why they wait")
    assert port.do(Start, job) == ""
    until(lambda: port.array(job)["running"] == 2, "they run")
    assert time.time() < until_s + 10 and not port.changes()


def test_a_job_that_waits_for_its_slot_starts_by_itself_when_asad_is_dead(port: Port) -> None:
    port.fill()
    job = port.submit(seconds=1)
    until_s = math.ceil(time.time()) + 10
    assert port.do(Defer, job, until_s) == ""
    port.cluster.close()
    port.let_end()  # both cores are free from here on
    port.slurm.wait(job, timeout_s=PATIENCE_S)
    (found,) = port.records(job)
    assert until_s <= found["start_time"] <= until_s + 6


def test_nobody_is_started_before_the_time_of_its_user(port: Port) -> None:
    port.fill()
    job = port.submit("--begin=now+3600")
    own = port.waiting(job)["eligible_time"]
    assert port.look().jobs.begin_s[port.row(job)] == own
    assert port.do(Start, job) == "its user, or Slurm, has it begin later"
    assert port.do(Defer, job, time.time() + 60) == "" and port.facts(job)[2] == own
    assert port.do(Defer, job, own + 600) == "" and port.facts(job)[2] == own + 600
    assert port.do(Start, job) == "its user has it begin later"
    assert port.facts(job)[2] == own and not port.changes()


# ------------------------------------------------------------------------------------------- admitted, and not admitted


def test_who_is_admitted_is_tried_first(port: Port) -> None:
    hosts = port.fill()
    first, second, array = port.submit(), port.submit(), port.submit("--array=0-1")
    until(lambda: len(port.look().queue) >= 3, "three jobs wait")
    assert port.do(Admit, second) == "" and port.do(Admit, array) == ""
    seen = port.look()
    queue = [str(seen.jobs.job_id[row]) for row in seen.queue]
    assert queue == [second, f"{array}_0", first]
    assert all(0 < one["priority"] < 2**32 for one in map(port.waiting, (first, second, array)))
    port.slurm.run("scancel", hosts[0])
    port.slurm.wait(second, state="RUNNING", timeout_s=PATIENCE_S)
    assert port.slurm.state(first) == "PENDING"
    assert f"{array}: it has its own nice again" in port.cluster.release()
    assert port.facts(array)[1] == 0


def test_the_reason_stands_where_the_user_reads_it(port: Port) -> None:
    job, other = port.submit("--hold"), port.submit("--array=0-3")
    evil = "costs 5 > 3; \"x\" 'y' $(touch /tmp/never) `id` +1\n\x1b[31m\tJobState=FAILED " + "é" * 900
    port.cluster.apply([Decline(Cause("oasis", evil), port.row(job))])
    shown = port.slurm.run("scontrol", "show", "job", job)
    (line,) = [line for line in shown.splitlines() if "AdminComment=" in line]
    text = line.partition("AdminComment=")[2].strip()
    assert text.startswith("asad: not admitted by oasis: costs 5 > 3; \"x\" 'y' $(touch /tmp/never) `id` +1")
    assert text.isprintable() and len(text) == MOST_COMMENT and text.endswith("é…")
    assert port.waiting(job)["admin_comment"] == text
    assert port.facts(job) == (0, 0, 0) and port.waiting(job)["priority"] == 0 and not port.changes()
    # a nice would release it
    assert port.do(Admit, job) == "it is held, and its nice would release it"
    assert port.waiting(job)["priority"] == 0
    port.slurm.run("scancel", job)

    until(lambda: port.array(other)["running"] == 2, "two tasks run")
    assert port.do(Decline, other) == ""
    port.let_end()
    port.slurm.wait(other, timeout_s=PATIENCE_S)
    reported = f"asad: not admitted by oasis: {WHY.reason}"

    def reported_by_slurm() -> set[str]:
        rows = port.slurm.sacct("-X", "-j", other, fields="State,AdminComment")
        return {row["AdminComment"] for row in rows if row["State"] == "COMPLETED"}

    until(lambda: reported_by_slurm() == {reported}, lambda: f"accounting reports: {reported_by_slurm()}")


@pytest.fixture
def operator(port: Port) -> Iterator[tuple[str, ...]]:
    """How a program is run by an ordinary user whom the accounting database calls an operator."""
    port.slurm.sacctmgr("modify user games set adminlevel=operator")
    yield "setpriv", "--reuid=games", "--regid=games", "--clear-groups"
    port.slurm.sacctmgr("modify user games set adminlevel=none")


def test_an_operator_may_do_all_but_comment(
    port: Port, operator: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    port.fill()
    job = port.submit("--array=0-3")
    run = subprocess.Popen

    def as_operator(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return run([*operator, *argv], **options)

    monkeypatch.setattr("asad_slurm.command.subprocess.Popen", as_operator)
    until(lambda: port.do(SetThrottle, job, 2) == "", "the controller knows that games is an operator")
    assert port.do(Admit, job) == port.do(Defer, job, time.time() + 600) == ""
    monkeypatch.undo()
    throttle, nice, begin = port.facts(job)
    assert (throttle, nice) == (2, -10_000) and begin > 0
    assert port.waiting(job)["admin_comment"] == ""
    assert ["only administrators" in text for text in port.cluster.notices] == [True]


# ----------------------------------------------------------------------------------------------------- after the daemon


def test_undo_gives_back_everything(port: Port) -> None:
    port.fill()
    own = math.ceil(time.time()) + 7200
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(own))
    array, later = port.submit("--array=0-9%4", "--nice=50"), port.submit(f"--begin={begin}", "--nice=7")
    before = port.facts(array), port.facts(later)
    assert before == ((4, 50, 0), (0, 7, own))
    for job in (array, later):
        assert port.do(Admit, job) == "" and port.do(Defer, job, own + 600) == ""
    assert port.do(SetThrottle, array, 2) == ""
    assert (port.facts(array), port.facts(later)) == ((2, -9950, own + 600), (0, -9993, own + 600))
    assert len(port.changes()) == 5
    command = [sys.executable, "-m", "asad_slurm.undo", "--state-dir", str(port.folder)]
    environ = {**port.slurm.env, "TZ": "America/New_York"}  # whatever the machine's own is
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (port.facts(array), port.facts(later)) == before and not port.changes()


def test_undo_leaves_a_living_daemon_its_changes(port: Port) -> None:
    port.fill()
    job = port.submit("--array=0-3")
    assert port.do(SetThrottle, job, 2) == ""
    port.look()  # a completed look is the daemon's pulse
    journal = port.folder / "offers.journal"
    assert undo_changes(journal, older_than_s=600.0, now_s=time.time()) == ([], 0)
    assert port.facts(job)[0] == 2
    # as it would have been ten minutes ago, by the clock that nobody sets
    (port.folder / ALIVE).write_text(f"{boot_id()} {time.monotonic() - 601.0}\n", encoding="ascii")
    lines, failed = undo_changes(journal, older_than_s=600.0, now_s=time.time())
    assert (lines, failed) == ([f"{job}: ArrayTaskThrottle=0 as before"], 0)


def test_a_restart_keeps_what_was_promised(port: Port) -> None:
    port.fill()
    array, job = port.submit("--array=0-5"), port.submit()
    until_s = math.ceil(time.time()) + 600
    assert port.do(SetThrottle, array, 3) == port.do(Admit, array) == port.do(Defer, job, until_s) == ""
    port.cluster = port.open()
    assert port.cluster.recover() == []
    assert port.array(array)["throttle"] == 3 and port.facts(array)[1] == -10_000
    assert port.look().jobs.begin_s[port.row(job)] == until_s
    assert len(port.changes()) == 3
    assert port.do(SetThrottle, array, 1) == ""
    port.cluster = port.open()
    port.cluster.recover()
    assert sorted(port.cluster.give_back()) == [
        f"{array}: it has its own throttle, nice again",
        f"{job}: it has its own begin time again",
    ]
    assert port.facts(array) == port.facts(job) == (0, 0, 0) and not port.changes()


RESTLESS = """
    import sys, time
    from pathlib import Path
    from asad_slurm import open_cluster
    from asad.daemon import NoNodes
    from asad.decisions import Admit, Cause, Defer, SetThrottle, Start
    why = Cause("oasis", "because it is tested")
    cluster = open_cluster({"transport": "command"}, nodes=NoNodes(), state_dir=Path(sys.argv[1]), clock=time.time)
    cluster.recover()
    print("begins", flush=True)
    for number in range(10_000):
        seen = cluster.snapshot()
        cluster.finished(0.0)
        array = int(seen.arrays.waiting_row[0])
        rigid = next(row for row, name in enumerate(seen.jobs.job_id) if name == sys.argv[2])
        later = time.time() + 3600 + number
        cluster.apply(
            [
                SetThrottle(why, array, 1 + number % 5),
                Defer(why, rigid, later),
                Admit(why, rigid),
                *([Start(why, rigid)] if number % 2 else []),
                Defer(why, array, later),
            ]
        )
        print("applied", flush=True)
"""


def test_a_daemon_that_is_killed_at_any_moment_leaves_what_undo_repairs(port: Port) -> None:
    port.fill()
    array, rigid = port.submit("--array=0-9%7"), port.submit("--nice=3")
    own = port.facts(array), port.facts(rigid)
    assert own == ((7, 0, 0), (0, 3, 0))
    rng = np.random.default_rng(11)
    seen: set[tuple[Any, ...]] = set()
    for kill in range(8):
        argv = [sys.executable, "-c", textwrap.dedent(RESTLESS), str(port.folder), rigid]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=port.slurm.env) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begins\n"
            for _ in range(kill % 3):  # on a busy machine nothing may be done before
                assert process.stdout.readline() == b"applied\n"
            time.sleep(float(rng.uniform(0.05, 0.6)))
            os.kill(process.pid, signal.SIGKILL)
        seen.add((port.facts(array)[0], port.facts(rigid)[1]))

        def repaired() -> bool:
            port.undo()
            return (port.facts(array), port.facts(rigid)) == own

        until(repaired, lambda: f"{port.facts(array)}, {port.facts(rigid)}, {port.changes()}")
    assert len(seen) > 1, "it has to be killed in the middle of something to mean anything"


# ------------------------------------------------------------------------------------------------------ the daemon


SLOT_S = 30.0
WORTH = ("--time=1", "--comment=asad:utility=linear(50, 30m, 10h)")


@pytest.fixture
def asad(slurm: RealSlurm) -> Iterator[Asad]:
    """The daemon with `oasis`, lending nothing."""
    settings = {
        "policies": {"share": "exclusive", "admit": "oasis"},
        "admit.oasis": {"slot_s": SLOT_S, "horizon": 120, "early": False},
    }
    with Asad(slurm, settings) as asad:
        yield asad


def plan(asad: Asad, job: str) -> Any:
    """When a job runs by its plan, and how wide."""
    answer = ask(asad.socket, "admission", job=job)
    assert isinstance(answer, dict) and answer["verdict"] == "admitted", answer
    return answer["schedule"]


def test_a_killed_daemon_keeps_its_promises_when_it_starts_again(port: Port, asad: Asad) -> None:
    port.fill()  # for ten minutes, as far as anybody knows
    array, job = port.submit("--array=0-7%5", *WORTH), port.submit(*WORTH)
    journal = asad.journal

    def deferred() -> bool:
        return {(array, "StartTime"), (job, "StartTime")} <= set(open_changes(journal))

    until(deferred, lambda: f"both wait for their slots: {ask(asad.socket, 'admission')}")
    promised = plan(asad, array), plan(asad, job)
    facts = port.facts(array), port.facts(job)
    assert facts[1][2] > 0 and facts[1][2] % SLOT_S == 0 and facts[0][2] % SLOT_S == 0
    assert facts[0][0] in (1, 2) and facts[0][1] == facts[1][1] == -10_000
    assert port.waiting(job)["admin_comment"].startswith("asad: admitted by oasis: worth ")

    asad.kill("asad")
    assert (port.facts(array), port.facts(job)) == facts  # whoever is dead takes nothing back
    asad.start("asad")
    asad.wait_until_whole()
    asad.next_cycles(3)
    assert (plan(asad, array), plan(asad, job)) == promised
    assert (port.facts(array), port.facts(job)) == facts

    # for good: what the unit's ExecStopPost does
    asad.kill("asad")
    assert asad_undo(["--state-dir", str(journal.parent)]) == 0
    assert port.facts(array) == (5, 0, 0) and port.facts(job) == (0, 0, 0)
    assert not open_changes(journal)


def test_a_daemon_that_stops_gives_back_and_one_that_admits_nobody_too(port: Port, asad: Asad) -> None:
    port.fill()
    job = port.submit(*WORTH)
    until(lambda: port.facts(job)[2] > 0, lambda: f"it waits for its slot: {asad.last_words()}")
    asad.kill("asad", signal.SIGTERM)
    assert port.facts(job) == (0, 0, 0) and not open_changes(asad.journal)

    asad.start("asad")
    asad.wait_until_whole()
    until(lambda: port.facts(job)[2] > 0, lambda: f"what was promised is so again: {asad.last_words()}")
    asad.kill("asad")
    text = asad.config.read_text()
    asad.config.write_text(text.replace('admit = "oasis"', 'admit = "everyone"'))
    asad.start("asad")
    asad.wait_until_whole()
    assert port.facts(job) == (0, 0, 0) and not open_changes(asad.journal)


# ------------------------------------------------------------------------------------------------- parameter servers


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    """A cluster of its own: two nodes of four CPUs. Its jobs sleep, so that no cores need be pinned."""
    with RealSlurm(nodes=2, cpus=4, accounting=False, pin=False) as slurm:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, slurm.env[name])
        port = Port(slurm, tmp_path)
        yield port
        port.cluster.release()
        port.cluster.close()
        port.let_end()


def test_a_companion_is_throttled_with_its_workers_and_returned(wide: Port) -> None:
    first, second = wide.slurm.node_names
    policy = Admission(
        "drf",
        scheme_maker("drf", {}),
        wide.cluster.applications,
        AdmitOptions(slot_s=5.0, parameter_server_nodes=(second,)),
    )
    guard = guard_for(frozenset(), GuardSettings())
    cycle = Cycle(wide.cluster, policy, AtOnce(), Native(), Exclusive(), guard)
    on_first = ("--time=1", f"--nodelist={first}")
    store = wide.slurm.submit(
        "sleep 3", "--time=1", f"--nodelist={second}", "--array=0-199%50", "--job-name=store"
    )
    hint = "--comment=asad:utility=constant(50)"
    workers = wide.slurm.submit("sleep 3", *on_first, "--array=0-199", f"{hint};ps=store:2")
    throttles: list[tuple[int, int]] = []

    def turned(*wanted: int) -> bool:
        cycle.run_once()
        refused = [outcome.reason for outcome in cycle.outcomes if not outcome.done]
        assert refused == [], refused
        now = wide.facts(workers)[0], wide.facts(store)[0]
        if throttles[-1:] != [now]:
            throttles.append(now)
        return now == wanted

    until(lambda: turned(4, 2), lambda: f"four CPUs for workers: {throttles}, {policy.explain(workers)}")
    text = wide.waiting(store)["admin_comment"]
    assert text.startswith("asad: admitted by drf: its tasks are the parameter servers of")
    assert wide.facts(store)[1] == wide.facts(workers)[1] == -10_000
    # half of them go to another array as soon as it comes
    rival = wide.slurm.submit("sleep 3", *on_first, "--array=0-199", "--job-name=rival", hint)
    until(lambda: turned(2, 1), lambda: f"two of four: {throttles}, {policy.explain(workers)}")
    until(
        lambda: (wide.array(workers)["running"], wide.array(store)["running"]) == (2, 1),
        lambda: f"so many run: {wide.array(workers)}, {wide.array(store)}",
    )
    wide.slurm.run("scancel", rival)
    until(lambda: turned(4, 2), lambda: f"all four again: {throttles}, {policy.explain(workers)}")
    assert throttles[-3:] == [(4, 2), (2, 1), (4, 2)], "never the one without the other"
    wide.slurm.run("scancel", workers)

    def restored() -> bool:
        cycle.run_once()
        return wide.facts(store)[0] == 50 and policy.explain(store) is None

    until(restored, lambda: f"it has its user's throttle again: {wide.facts(store)}")
    assert wide.array(store)["waiting"] > 0, "nothing is cancelled"
    until(lambda: wide.array(store)["running"] == 4, "as many as there are CPUs")

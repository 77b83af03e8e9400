"""The defer stage on a real Slurm: what begin times and deadlines do, who is held, let go, and freed when asad dies."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asad_slurm import open_cluster
from asad_slurm.undo import open_changes
from asad_under_test import PATIENCE_S, Asad, until

from asad.api.control import ask
from asad.daemon import NoNodes
from asad.decisions import Cause, Defer, Start
from asad.model import Snapshot
from lab.slurm import RealSlurm

HELD_BY = {"edf-defer": "0 cores are free for its 1", "osdec": "osdec holds it back for now"}
"""By policy, why a job is held where nothing is free: a network starts none that it gains nothing by."""
WHY = Cause("edf-defer", "0 cores are free for it", {"stage": "defer"})
CYCLE_S = 1.0
LEASE_S = 12.0
_numbers = itertools.count()


class Queue:
    """Jobs that end when they are let, and what Slurm says of them."""

    def __init__(self, slurm: RealSlurm) -> None:
        self.slurm = slurm
        self.gate = slurm.folder / "jobs" / f"deferral-{next(_numbers)}"

    def submit(self, *options: str, seconds: float | None = None) -> str:
        """Queue a job that runs so long, or until `let_end`."""
        script = (
            f"sleep {seconds}" if seconds is not None else f"until [ -e {self.gate} ]; do sleep 0.2; done"
        )
        return self.slurm.submit(script, *options)

    def fill(self) -> list[str]:
        """An on-demand job on every node, running."""
        jobs = [self.submit("--time=10", f"--nodelist={node}") for node in self.slurm.node_names]
        self.slurm.wait(*jobs, state="RUNNING")
        return jobs

    def let_end(self) -> None:
        self.gate.touch()

    def record(self, job: str) -> dict[str, Any]:
        (found,) = [one for one in self.slurm.squeue() if str(one["job_id"]) == job]
        return found

    def begin_s(self, job: str) -> float:
        """Its begin time; 0 for one that has passed, and for none."""
        begin_s = float(self.record(job)["eligible_time"])
        return begin_s if begin_s > time.time() else 0.0


@pytest.fixture
def queue(slurm: RealSlurm) -> Iterator[Queue]:
    """An idle cluster of two cores."""
    queue = Queue(slurm)
    yield queue
    queue.let_end()


def deferrable(window_s: int = 1500, begin: str = "now+2") -> tuple[str, ...]:
    """Options of a job of one minute that may start for so long."""
    return "--time=1", f"--begin={begin}", f"--deadline=now+{window_s + 60}"


# ------------------------------------------------------------------------------------------------------ Slurm itself


def test_slurm_shows_begin_and_deadline_and_cancels_who_cannot_meet_it(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, queue.slurm.env[name])
    queue.fill()
    submitted_s = time.time()
    late = queue.submit(*deferrable(10))
    job = queue.submit(*deferrable(1000, "now+500"))
    cluster = open_cluster({"transport": "command"}, nodes=NoNodes(), state_dir=tmp_path, clock=time.time)

    def look() -> tuple[Snapshot, int]:
        seen: Snapshot = cluster.snapshot()
        cluster.finished(seen.time_s)
        return seen, [str(name) for name in seen.jobs.job_id].index(job)

    seen, row = look()
    assert seen.jobs.begin_s[row] == pytest.approx(submitted_s + 500, abs=5)
    assert seen.jobs.deadline_s[row] == pytest.approx(submitted_s + 1060, abs=5)
    assert row not in seen.queue and not seen.own_begins and seen.classes[row][0] == "batch"
    assert seen.partition_nodes["batch"].tolist() == list(range(len(queue.slurm.node_names)))

    own_s, until_s = float(seen.jobs.begin_s[row]), math.ceil(time.time()) + 700
    (outcome,) = cluster.apply([Defer(WHY, row, float(until_s))])
    assert outcome.done
    seen, row = look()
    assert seen.jobs.begin_s[row] == until_s and seen.own_begins == {row: own_s}
    # another object is the next daemon's
    cluster.close()
    cluster = open_cluster({"transport": "command"}, nodes=NoNodes(), state_dir=tmp_path, clock=time.time)
    cluster.recover()
    seen, row = look()
    assert seen.own_begins == {row: own_s}
    assert cluster.give_back(begin=False) == [], "begin times are taken up by the defer stage"
    queue.slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now+900")  # an operator's hand
    seen, row = look()
    assert not seen.own_begins and seen.jobs.begin_s[row] > until_s
    queue.slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    seen, row = look()
    assert math.isnan(seen.jobs.begin_s[row]) and not open_changes(tmp_path / "offers.journal")
    (outcome,) = cluster.apply([Start(WHY, row)])
    assert outcome.done, "nothing defers it any more"
    cluster.close()

    until(lambda: queue.slurm.state(late) == "DEADLINE", lambda: f"it is cancelled: {queue.record(late)}")
    assert time.time() >= submitted_s + 9, "and not before its latest start"


# --------------------------------------------------------------------------------------------------------- the daemon


@pytest.fixture(params=["edf", "osdec"])
def asad(slurm: RealSlurm, request: pytest.FixtureRequest) -> Iterator[Asad]:
    """The daemon with a plain policy, and with the shipped network; lending nothing."""
    settings = {
        "daemon": {"interval_s": CYCLE_S},
        "policies": {"share": "exclusive", "defer": request.param},
        f"defer.{request.param}": {"lease_s": LEASE_S, "margin_s": 5.0, "step_s": 60.0},
    }
    with Asad(slurm, settings) as asad:
        yield asad


def story_of(asad: Asad, job: str) -> Any:
    return ask(asad.socket, "deferral", job=job)


def test_a_deferrable_job_is_held_freed_when_asad_is_killed_and_found_again(queue: Queue, asad: Asad) -> None:
    hosts = queue.fill()
    job, other = queue.submit(*deferrable()), queue.submit(*deferrable(1800))
    for one in (job, other):
        until(
            lambda one=one: (one, "StartTime") in open_changes(asad.journal), lambda: asad.last_words("asad")
        )  # type: ignore[misc]
    begin_s = queue.begin_s(job)
    assert 0 < begin_s - time.time() <= LEASE_S + 2 * CYCLE_S + 1
    facts = story_of(asad, job)
    assert facts["state"] == "held" and facts["because"] == "it has a begin time and a deadline"
    earliest = {one: story_of(asad, one)["earliest_s"] for one in (job, other)}
    until(
        lambda: HELD_BY[facts["policy"]] in story_of(asad, job)["reason"],
        lambda: str(story_of(asad, job)),
    )
    until(lambda: queue.begin_s(job) > begin_s, "its lease is renewed")

    # killed: nobody renews, and Slurm starts them by itself as soon as there is room
    asad.kill("asad")
    killed_s = time.time()
    assert queue.begin_s(job) > killed_s
    queue.slurm.run("scancel", hosts[0])
    # whose lease ends first takes the node: leases are renewed one by one, not in the order of the queue
    until(
        lambda: "RUNNING" in [queue.slurm.state(one) for one in (job, other)],
        lambda: f"Slurm starts one: {queue.record(job)} {queue.record(other)}",
    )
    first, other = sorted((job, other), key=lambda one: queue.slurm.state(one) != "RUNNING")
    assert float(queue.record(first)["start_time"]) <= killed_s + LEASE_S + 20
    until(lambda: queue.begin_s(other) == 0.0, "no hold is left behind")

    # started again: it knows from the journal what the other's own begin time was, and who runs from the store
    asad.start("asad")
    asad.wait_until_whole()
    asad.next_cycles(2)
    assert story_of(asad, other)["earliest_s"] == pytest.approx(earliest[other], abs=5)
    queue.let_end()
    queue.slurm.wait(job, other, timeout_s=PATIENCE_S)
    assert {queue.slurm.job(one)["ExitCode"] for one in (job, other)} == {"0:0"}
    until(lambda: not open_changes(asad.journal), "nothing is left in the journal")


def test_a_deferrable_job_starts_when_there_is_room_and_yields_to_others(queue: Queue, asad: Asad) -> None:
    hosts = queue.fill()
    job = queue.submit("--time=1", "--comment=asad:deferrable=10m", seconds=3)
    until(lambda: queue.begin_s(job) > 0, lambda: f"it is held: {asad.last_words('asad')}")
    # one that is on-demand comes later and goes first
    urgent = queue.submit("--time=1", seconds=4)
    until(lambda: asad.next_cycles() or asad.status()["cluster"]["waiting"] >= 2, "the daemon sees both")
    queue.slurm.run("scancel", hosts[0])
    queue.slurm.wait(urgent, job, timeout_s=PATIENCE_S)
    starts = [float(queue.record(one)["start_time"]) for one in (urgent, job)]
    assert starts[0] < starts[1], "although it was submitted later"
    assert asad.kinds_decided(job) == {"defer", "start"}
    counts = ask(asad.socket, "deferral")["counts"]  # type: ignore[index, call-overload]
    assert counts["let go"] >= 1 and counts["missed"] == 0


def test_whose_latest_start_comes_is_let_go_and_reported_if_he_misses_it(queue: Queue, asad: Asad) -> None:
    queue.fill()
    job = queue.submit(*deferrable(14))
    until(lambda: (job, "StartTime") in open_changes(asad.journal), lambda: asad.last_words("asad"))
    until(
        lambda: queue.slurm.state(job) == "DEADLINE", lambda: f"nobody had room for it: {queue.record(job)}"
    )

    def missed() -> list[str]:
        return [name for name, _ in ask(asad.socket, "deferral")["missed"]]  # type: ignore[index, call-overload]

    until(lambda: missed() == [job], lambda: asad.last_words("asad"))
    assert f"job {job} has missed its latest start" in asad.last_words("asad")
    assert not open_changes(asad.journal)

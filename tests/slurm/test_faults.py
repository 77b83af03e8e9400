"""Faults of asad, of Slurm and of the machine, on a real Slurm: nothing is lost, and no quota is left behind.

Each test lends a node to a job that waits, breaks something, and lets all jobs come to their ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from asad_under_test import (
    Asad,
    Lent,
    fill,
    held,
    idle_class,
    nothing_is_lost_or_left,
    queue,
    small_disk,
    until,
)

from asad.api.control import ask
from asad.config import load
from lab.slurm import RealSlurm

PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def asad_of_module(slurm_session: RealSlurm) -> Iterator[Asad]:
    """The asad of all tests here. Its store is on a disk of its own, which tests fill and break."""
    disk = slurm_session.folder / "disk"
    with (
        small_disk(disk, megabytes=4),
        Asad(slurm_session, {"daemon": {"store": str(disk / "asad.db")}}) as asad,
    ):
        yield asad


@pytest.fixture
def asad(asad_of_module: Asad, slurm: RealSlurm) -> Iterator[Asad]:
    """The same, whole; what a test has broken is corrected after it."""
    yield asad_of_module
    asad_of_module.repair()


@pytest.fixture
def lent(asad: Asad, slurm: RealSlurm) -> Lent:
    """A guest that runs beside its host under a quota, while another host runs alone."""
    lent = queue(slurm)
    lent.await_lending()
    return lent


# ------------------------------------------------------------------------------------------------------ killed: asad


@contextlib.contextmanager
def closed(slurm: RealSlurm) -> Iterator[None]:
    """The guest partition takes no jobs, so that offers stay open."""
    slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
    try:
        yield
    finally:
        slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")


def offer_another(asad: Asad, lent: Lent) -> str:
    """One more job, which gets an offer that it cannot take while the guest partition is closed."""
    slurm = asad.slurm
    job = lent.add()
    until(lambda: slurm.job(job)["Partition"] == "guest", lambda: f"it is offered a node: {slurm.job(job)}")
    assert slurm.state(job) == "PENDING"
    assert job in asad.offers(), "an offer is in the journal before it is made"
    slurm.run("scontrol", "update", f"jobid={job}", "Comment=asad:no")  # that it gets no other later
    return job


def back_in_batch(slurm: RealSlurm, job: str) -> bool:
    facts = slurm.job(job)
    return (facts["Partition"], facts["ReqNodeList"], facts["JobState"]) == ("batch", "(null)", "PENDING")


def test_kill_9_of_the_daemon_lets_quotas_run_out_and_the_next_one_goes_on(asad: Asad, lent: Lent) -> None:
    slurm = asad.slurm
    with closed(slurm):
        waiting = offer_another(asad, lent)
        asad.kill("asad")
        until(lambda: not held(slurm), "the actors lift all quotas by themselves")
        assert lent.runs_as_guest()
        assert idle_class(lent.node, lent.guest), "a guest stays in the idle class, asad dead or alive"
        asad.start("asad")
        until(lambda: back_in_batch(slurm, waiting), "the offer of the killed one is taken back")
    until(lambda: lent.quota() is not None, "the next daemon takes the guest over")
    nothing_is_lost_or_left(asad, lent)
    assert "co-allocate" in asad.kinds_decided(lent.guest)


def test_an_offer_of_a_killed_daemon_is_taken_back_without_it_and_its_guests_stay(
    asad: Asad, lent: Lent
) -> None:
    slurm = asad.slurm
    with closed(slurm):
        waiting = offer_another(asad, lent)
        for name in ("asad", lent.node):  # and the actor of the guest's node with it
            asad.kill(name)
        undo = [str(PROGRAMS / "asad-undo"), f"--state-dir={asad.folder}/state"]
        for options, restored in ((["--older-than=3600"], False), ([], True)):
            argv = [*undo, *options]
            done = subprocess.run(
                argv, env=slurm.env, capture_output=True, text=True, timeout=3000, check=False
            )
            assert done.returncode == 0, done
            assert back_in_batch(slurm, waiting) == restored, done.stdout
    assert lent.runs_as_guest()
    assert asad.offers().keys() == {lent.guest}
    assert lent.quota() is not None, "nobody is there to lift it"
    asad.start(lent.node)
    until(lambda: lent.quota() is None, "the actor's start lifts what the killed one has left")
    assert idle_class(lent.node, lent.guest) and lent.runs_as_guest()
    asad.start("asad")
    nothing_is_lost_or_left(asad, lent)


def test_a_killed_actor_is_missed_and_its_guest_held_again_when_it_is_back(asad: Asad, lent: Lent) -> None:
    node = lent.node
    asad.kill(node)
    until(lambda: node in asad.status()["actors"]["silent"], "the daemon misses it")
    assert idle_class(node, lent.guest)
    asad.start(node)
    until(lambda: not asad.status()["actors"]["silent"], "it is heard again")
    asad.next_cycles()
    until(lambda: lent.quota() is not None, "the guest is held again")
    nothing_is_lost_or_left(asad, lent)


def test_both_start_again_in_either_order_and_the_lending_goes_on(asad: Asad, lent: Lent) -> None:
    node = lent.node
    for names in (("asad", node), (node, "asad")):
        for name in ("asad", node):
            asad.kill(name, signal.SIGTERM)
        assert lent.quota() is None, "both release what they hold when they stop"
        assert lent.runs_as_guest()
        for name in names:
            asad.start(name)
            if name == "asad":
                asad.next_cycles()
        until(lambda: lent.quota() is not None, "the guest is held again")
    nothing_is_lost_or_left(asad, lent)


def test_the_second_of_two_daemons_refuses_and_the_first_goes_on(asad: Asad, lent: Lent) -> None:
    second = subprocess.run(
        [str(PROGRAMS / "asad"), "--config", str(asad.config)],
        env=asad.slurm.env,
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert second.returncode == 1
    assert f"another daemon runs here (process {asad.processes['asad'].pid})" in second.stderr
    asad.next_cycles(2)
    assert lent.runs_as_guest() and lent.quota() is not None
    nothing_is_lost_or_left(asad, lent)


# ----------------------------------------------------------------------------------------------------- killed: Slurm


def test_kill_9_of_slurmctld_costs_cycles_and_nothing_else(asad: Asad, lent: Lent) -> None:
    slurm = asad.slurm
    slurm.wait_until_saved()
    slurm.kill("slurmctld")
    until(lambda: "skipped" in asad.sentence(), "a cycle says that Slurm does not answer")
    until(lambda: not held(slurm), "quotas that nobody renews are lifted")
    slurm.start("slurmctld")
    until(lambda: lent.quota() is not None, "the lending goes on where it was")
    nothing_is_lost_or_left(asad, lent)


def test_kill_9_of_slurmd_leaves_guest_host_and_quota_alone(asad: Asad, lent: Lent) -> None:
    slurm, node = asad.slurm, lent.node
    slurm.kill(node)
    asad.next_cycles(2)
    assert lent.quota() is not None
    assert slurm.job_processes(lent.guest, node) and slurm.job_processes(lent.host, node)
    slurm.start(node)
    nothing_is_lost_or_left(asad, lent)


def test_a_slurmctld_that_hangs_for_cycles_is_waited_for_and_asactl_is_still_answered(
    asad: Asad, lent: Lent
) -> None:
    slurm = asad.slurm
    slurm.stop("slurmctld")
    until(lambda: "no answer within" in asad.sentence(), "a cycle is skipped")
    failed = asad.status()["cycles"]["failed"]
    until(lambda: asad.status()["cycles"]["failed"] > failed, "and another")
    until(lambda: not held(slurm), "quotas that nobody renews are lifted")
    slurm.cont("slurmctld")
    asad.next_cycles(2)
    assert lent.runs_as_guest()
    until(lambda: lent.quota() is not None, "the lending goes on where it was")
    nothing_is_lost_or_left(asad, lent)


# ------------------------------------------------------------------------------------------------------- the network


@dataclass
class Cable:
    """Two ends of a virtual cable, one of them in a network of its own."""

    namespace: str
    ours: str
    address: str

    def set(self, state: str) -> None:
        """`up` or `down`."""
        ip("link", "set", self.ours, state)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=300)


@pytest.fixture
def cable() -> Iterator[Cable]:
    name = f"asadtest{os.getpid()}"
    ours, theirs = f"va{os.getpid()}a", f"va{os.getpid()}b"
    net = f"10.213.{os.getpid() % 256}"
    ip("netns", "add", name)
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
        ip("link", "set", theirs, "netns", name)
        ip("addr", "add", f"{net}.1/30", "dev", ours)
        ip("link", "set", ours, "up")
        ip("-n", name, "addr", "add", f"{net}.2/30", "dev", theirs)
        ip("-n", name, "link", "set", theirs, "up")
        yield Cable(name, ours, f"{net}.1")
    finally:
        ip("netns", "del", name)  # and the cable with it


def test_a_cut_network_lets_quotas_of_that_node_run_out_and_no_others(
    asad: Asad, slurm: RealSlurm, cable: Cable
) -> None:
    far, near = slurm.node_names
    config = asad.folder / "far.toml"
    port = load(asad.config).nodes.listen.rpartition(":")[2]
    config.write_text(asad.config.read_text().replace(f'"127.0.0.1:{port}"', f'"{cable.address}:{port}"'))
    asad.kill(far, signal.SIGTERM)
    asad.start(far, config, "/usr/bin/nsenter", f"--net=/run/netns/{cable.namespace}")
    try:
        asad.wait_until_whole()
        lose_and_find_again(asad, cable, far, near)
    finally:
        asad.kill(far, signal.SIGTERM)


def lose_and_find_again(asad: Asad, cable: Cable, far: str, near: str) -> None:
    slurm = asad.slurm
    lent = queue(
        slurm, 2, lambda: "\n".join((asad.sentence(), asad.last_words("asad"), asad.last_words(far)))
    )
    for guest in lent.guests:
        lent.await_lending(guest)
    here = next(guest for guest in lent.guests if slurm.job(guest)["NodeList"] == near)
    (there,) = {*lent.guests} - {here}
    cable.set("down")
    try:
        until(lambda: lent.quota(there) is None, "the actor beyond the cut lifts it by itself")
        assert lent.quota(here) is not None
        assert idle_class(far, there) and lent.runs_as_guest(there)
        until(lambda: far in asad.status()["actors"]["silent"], "the daemon misses the actor")
        asad.next_cycles()
        assert nodes_that_may_lend(asad) == {near}
    finally:
        cable.set("up")
    until(lambda: lent.quota(there) is not None, "it is held again when the network is back")
    nothing_is_lost_or_left(asad, lent)


def nodes_that_may_lend(asad: Asad) -> set[str]:
    answer = ask(asad.socket, "nodes")
    assert isinstance(answer, dict)
    return {row["node"] for row in answer["nodes"] if not row["bar"]}


# --------------------------------------------------------------------------------------------------------- the store


def store_path(asad: Asad) -> Path:
    return Path(asad.store_url.removeprefix("sqlite:///"))


def lending_goes_on_without_the_store(asad: Asad, reported: bool = True) -> Lent:
    """A lending while the store is broken; the status describes that."""
    lent = queue(asad.slurm)
    lent.await_lending()
    if reported:
        until(lambda: asad.status()["store"]["trouble"], "the trouble is reported")
    asad.next_cycles(2)
    assert lent.quota() is not None
    return lent


def await_kept(asad: Asad, job: str) -> None:
    until(
        lambda: not asad.status()["store"]["trouble"],
        lambda: f"the store works again: {asad.status()['store']}",
        120,
    )
    until(lambda: "co-allocate" in asad.kinds_decided(job), "what was decided meanwhile is in the store")
    assert asad.status()["store"]["dropped"] == 0


def test_a_full_disk_of_the_store_costs_neither_lending_nor_history(asad: Asad, slurm: RealSlurm) -> None:
    filler = fill(store_path(asad).parent)
    try:
        lent = lending_goes_on_without_the_store(asad)
    finally:
        filler.unlink()
    await_kept(asad, lent.guest)
    nothing_is_lost_or_left(asad, lent)


def test_a_locked_store_costs_neither_lending_nor_history(asad: Asad, slurm: RealSlurm) -> None:
    with contextlib.closing(sqlite3.connect(store_path(asad), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        # SQLite itself waits longer for a lock than this takes
        lent = lending_goes_on_without_the_store(asad, reported=False)
        seen = other.execute("SELECT count(*) FROM decisions WHERE job = ?", (lent.guest,)).fetchone()
        assert seen == (0,), "the lock holds"
        other.execute("ROLLBACK")
    await_kept(asad, lent.guest)
    nothing_is_lost_or_left(asad, lent)


def test_a_corrupt_store_costs_no_lending_and_is_made_anew_when_it_is_moved_away(
    asad: Asad, slurm: RealSlurm
) -> None:
    path = store_path(asad)
    asad.kill("asad")  # one that runs has its pages in memory, and may not notice for long
    for file in path.parent.glob(f"{path.name}*"):  # with its log, which holds the newest pages
        file.write_bytes(os.urandom(file.stat().st_size))
    asad.start("asad")
    asad.wait_until_whole()
    lent = lending_goes_on_without_the_store(asad)
    for file in path.parent.glob(f"{path.name}*"):
        file.rename(file.with_suffix(".broken"))
    await_kept(asad, lent.guest)
    nothing_is_lost_or_left(asad, lent)

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
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # what tests of this folder share

from asad_under_test import (
    LEASE_S,
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
    """The same, whole; what a test has broken is mended after it."""
    yield asad_of_module
    asad_of_module.mend()


@pytest.fixture
def lent(asad: Asad, slurm: RealSlurm) -> Lent:
    """A guest that runs beside its host under a quota, while another host runs alone."""
    lent = queue(slurm)
    lent.await_lending()
    return lent


# ------------------------------------------------------------------------------------------------------ killed: asad


def test_kill_9_of_the_daemon_lets_quotas_run_out_and_the_next_one_goes_on(asad: Asad, lent: Lent) -> None:
    asad.kill("asad")
    until(lambda: not held(asad.slurm), "the actors lift all quotas by themselves", LEASE_S + 20)
    assert lent.runs_as_guest()
    assert idle_class(lent.node, lent.guest), "a guest stays in the idle class, asad dead or alive"
    asad.start("asad")
    until(lambda: lent.quota() is not None, "the next daemon takes the guest over")
    nothing_is_lost_or_left(asad, lent)
    assert "co-allocate" in asad.kinds_decided(lent.guest)


@pytest.fixture
def offered(asad: Asad, slurm: RealSlurm) -> Iterator[Lent]:
    """A job with an offer that it cannot take: the guest partition is closed."""
    slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
    try:
        lent = queue(slurm)
        until(lambda: slurm.job(lent.guest)["Partition"] == "guest", "it is offered a node")
        assert slurm.state(lent.guest) == "PENDING"
        assert lent.guest in asad.offers(), "an offer is in the journal before it is made"
        yield lent
    finally:
        slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")


def back_in_batch(lent: Lent) -> bool:
    job = lent.slurm.job(lent.guest)
    return (job["Partition"], job["ReqNodeList"], job["JobState"]) == ("batch", "(null)", "PENDING")


def test_an_offer_of_a_killed_daemon_is_taken_back_without_it(asad: Asad, offered: Lent) -> None:
    asad.kill("asad")
    undo = [str(PROGRAMS / "asad-undo"), "--state-dir", str(asad.folder / "state")]
    done = subprocess.run(undo, env=asad.slurm.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert back_in_batch(offered), done.stdout
    assert not asad.offers()
    nothing_is_lost_or_left(asad, offered)


def test_an_offer_of_a_killed_daemon_is_taken_back_by_the_next(asad: Asad, offered: Lent) -> None:
    asad.kill("asad")
    slurm = asad.slurm
    slurm.run(
        "scontrol", "update", f"jobid={offered.guest}", "Comment=asad:no"
    )  # it would be offered one anew
    asad.start("asad")
    until(lambda: back_in_batch(offered), lambda: f"it waits where it waited: {slurm.job(offered.guest)}")
    nothing_is_lost_or_left(asad, offered)


def test_kill_9_of_a_node_actor_is_mended_at_its_next_start(asad: Asad, lent: Lent) -> None:
    node = lent.node
    asad.kill(node)
    until(lambda: node in asad.status()["actors"]["silent"], "the daemon misses it")
    assert lent.quota() is not None, "nobody is there to lift it"
    assert idle_class(node, lent.guest)
    asad.kill("asad")  # so that nobody renews: what lifts it is the start itself
    asad.start(node)
    until(lambda: lent.quota() is None, "the start lifts what the killed one has left")
    assert idle_class(node, lent.guest) and lent.runs_as_guest()
    nothing_is_lost_or_left_after_mending(asad, lent)


def nothing_is_lost_or_left_after_mending(asad: Asad, lent: Lent) -> None:
    asad.mend()
    nothing_is_lost_or_left(asad, lent)


@pytest.mark.parametrize("first", ["daemon", "actor"])
def test_both_start_again_in_either_order_and_the_lending_goes_on(asad: Asad, lent: Lent, first: str) -> None:
    node = lent.node
    for name in ("asad", node):
        asad.kill(name, signal.SIGTERM)
    assert lent.quota() is None, "both give back what they hold when they stop"
    assert lent.runs_as_guest()
    names = ("asad", node) if first == "daemon" else (node, "asad")
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
        timeout=120,
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
    until(lambda: not held(slurm), "quotas that nobody renews are lifted", LEASE_S + 20)
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
    until(lambda: not held(slurm), "quotas that nobody renews are lifted", LEASE_S + 20)
    slurm.cont("slurmctld")
    asad.next_cycles(2)
    assert lent.runs_as_guest()
    until(lambda: lent.quota() is not None, "the lending goes on where it was")
    nothing_is_lost_or_left(asad, lent)


# --------------------------------------------------------------------------------------------------------- the store


def store_path(asad: Asad) -> Path:
    return Path(asad.store_url.removeprefix("sqlite:///"))


def lending_goes_on_without_the_store(asad: Asad) -> Lent:
    """A lending while the store is broken, until the status tells of that."""
    lent = queue(asad.slurm)
    lent.await_lending()
    until(lambda: asad.status()["store"]["trouble"], "the trouble is told")
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
        lent = lending_goes_on_without_the_store(asad)
        other.execute("ROLLBACK")
    await_kept(asad, lent.guest)
    nothing_is_lost_or_left(asad, lent)


def test_a_corrupt_store_costs_no_lending_and_is_made_anew_when_it_is_moved_away(
    asad: Asad, slurm: RealSlurm
) -> None:
    path = store_path(asad)
    files = [path, path.with_name(path.name + "-wal")]
    for file in files:
        if file.exists():
            with file.open("r+b") as content:
                content.write(os.urandom(max(4096, file.stat().st_size)))
    lent = lending_goes_on_without_the_store(asad)
    for file in (*files, path.with_name(path.name + "-shm")):
        if file.exists():
            file.rename(file.with_name(file.name + ".broken"))
    await_kept(asad, lent.guest)
    for file in path.parent.glob("*.broken"):
        file.unlink()
    nothing_is_lost_or_left(asad, lent)

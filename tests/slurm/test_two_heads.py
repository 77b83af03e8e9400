"""A second head node beside a real Slurm: it goes on where the first was lost, and is obeyed where both run."""

from __future__ import annotations

import contextlib
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asad_slurm.undo import open_offers
from asad_under_test import PATIENCE_S, Asad, Lent, nothing_is_lost_or_left, queue, toml, until

from asad.api.control import ask
from asad.errors import ExitStatus
from lab import LabError
from lab.slurm import BACKUP, RealSlurm, free_ports, why_not


@contextlib.contextmanager
def two_heads(slurm: RealSlurm, **settings: Any) -> Iterator[Asad]:
    """Actors that know of two head nodes, and the daemon of the first; `settings` are those of Slurm's plugin."""
    first, second = free_ports(2)
    both = f"127.0.0.1:{first},127.0.0.1:{second}"
    tables = {"nodes": {"listen": f"127.0.0.1:{first}"}, "node": {"daemon": both}}
    if settings:
        # the first command after a controller is lost takes Slurm's commands some seconds
        tables["slurm"] = {"timeout_s": 8.0, **settings}
    with Asad(slurm, tables) as asad:
        yield asad


@pytest.fixture
def asad(slurm: RealSlurm) -> Iterator[Asad]:
    """The two head nodes of the tests with one controller."""
    with two_heads(slurm) as asad:
        yield asad


def second_configuration(asad: Asad, **settings: Any) -> Path:
    """The configuration of the daemon of the second head node; `settings` are those of Slurm's plugin."""
    other = asad.folder / "other"
    other.mkdir()
    plain = _tables(asad)
    listen = plain["node"]["daemon"].split(",")[1]
    plain["daemon"] |= {"state_dir": f"{other}/state", "socket": f"{other}/asad.sock"}
    plain["nodes"]["listen"] = listen
    plain["metrics"]["listen"] = f"127.0.0.1:{free_ports(1)[0]}"
    plain["slurm"] |= settings
    config = other / "asad.toml"
    config.write_text(toml(plain))
    return config


def waits_with_offer(asad: Asad, lent: Lent) -> tuple[str, str]:
    """A job whose user wants the node that has no guest yet, offered it, and that node."""
    slurm = asad.slurm
    (node,) = set(slurm.node_names) - {lent.node}
    job = lent.add(f"--nodelist={node}")
    until(lambda: slurm.job(job)["Partition"] == "guest", lambda: f"it is offered a node: {slurm.job(job)}")
    return job, node


def test_the_daemon_of_another_head_node_takes_over_with_what_the_first_has_lost(
    asad: Asad, slurm: RealSlurm
) -> None:
    lent = queue(slurm)
    lent.await_lending()
    slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
    waiting, node = waits_with_offer(asad, lent)

    # copied, as the how-to says
    config = second_configuration(asad, mark_key=f"{asad.folder}/state/mark.key")
    other = config.parent
    first = asad.processes.pop("asad")
    asad.start("asad", config)
    until(
        lambda: slurm.job(waiting)["Partition"] == "batch",
        lambda: f"the offer is taken back: {slurm.job(waiting)}\n{asad.last_words()}",
    )
    assert slurm.job(waiting)["ReqNodeList"] == node, "its user wants that one"
    assert first.wait(PATIENCE_S) == ExitStatus.SUPERSEDED, asad.last_words()
    asad.socket = other / "asad.sock"
    until(lambda: len(asad.slurm.node_names) == _connected(asad), "the actors speak to the second")
    slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")
    until(
        lambda: lent.runs_as_guest(waiting), lambda: f"the second lends: {lent.facts()}\n{asad.last_words()}"
    )
    asad.folder, folder = other, asad.folder
    nothing_is_lost_or_left(asad, lent)
    asad.folder = folder


def test_a_head_node_that_is_lost_with_all_it_knew_strands_no_job(asad: Asad, slurm: RealSlurm) -> None:
    lent = queue(slurm)
    lent.await_lending()
    slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
    waiting = lent.add()
    until(lambda: slurm.job(waiting)["Partition"] == "guest", "it is offered a node")
    slurm.run("scontrol", "update", f"jobid={waiting}", "Comment=asad:no")
    asad.kill("asad")
    shutil.rmtree(asad.folder / "state")
    (asad.folder / "state").mkdir()
    asad.start("asad")
    until(
        lambda: (slurm.job(waiting)["Partition"], slurm.job(waiting)["ReqNodeList"]) == ("batch", "(null)"),
        lambda: f"it is home again: {slurm.job(waiting)}\n{asad.last_words()}",
    )
    slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")
    nothing_is_lost_or_left(asad, lent)


# --------------------------------------------------------------------------------------- with Slurm's backup controller


@pytest.fixture(scope="module")
def backed_of_module() -> Iterator[RealSlurm]:
    """A cluster with two controllers and one StateSaveLocation."""
    obstacle = why_not()
    if obstacle:
        pytest.skip(obstacle)
    with RealSlurm(backup=True) as slurm:
        yield slurm


@pytest.fixture
def backed(backed_of_module: RealSlurm) -> Iterator[RealSlurm]:
    """The same, idle, with the first controller in charge."""
    yield backed_of_module
    if not backed_of_module.daemons["slurmctld"].alive:
        backed_of_module.start("slurmctld")
    set_guest_partition(backed_of_module, "UP")
    until(lambda: "DOWN" not in backed_of_module.run("scontrol", "ping", check=False), "both controllers run")
    backed_of_module.clear()


def set_guest_partition(slurm: RealSlurm, state: str) -> None:
    """UP, or DOWN so that offers stay open. In slurm.conf, since a controller that starts goes by what is there."""
    guest = re.compile(r"(?m)^(PartitionName=guest .*?)(?: State=\w+)?$")
    slurm.conf.write_text(guest.sub(rf"\1 State={state}", slurm.conf.read_text()))
    slurm.run("scontrol", "reconfigure")


def as_shown(slurm: RealSlurm, job: str) -> dict[str, str]:
    """What Slurm says of a job; nothing while no controller answers."""
    with contextlib.suppress(LabError):
        return slurm.job(job)
    return {}


def bring_back(slurm: RealSlurm) -> None:
    """Start the first controller again, and wait until it has taken over from the second."""
    log = slurm.folder / "log" / "slurmctld.log"
    before = log.read_text(errors="replace").count("Running as primary controller")
    slurm.start("slurmctld")
    until(
        lambda: log.read_text(errors="replace").count("Running as primary controller") > before,
        lambda: f"the first controller is in charge: {slurm.last_words('slurmctld')}",
    )


def runs_as_guest(lent: Lent, job: str) -> bool:
    """The same as of `lent`, also while no controller answers."""
    facts = as_shown(lent.slurm, job)
    return (facts.get("JobState"), facts.get("Partition")) == ("RUNNING", "guest")


def test_the_second_head_node_takes_over_daemon_and_controller(backed: RealSlurm) -> None:
    slurm, shared = backed, backed.folder / "shared"
    shared.mkdir(mode=0o700)
    with two_heads(slurm, journal_dir=str(shared)) as asad:
        lent = queue(slurm, witness=asad.last_words)
        lent.await_lending()
        set_guest_partition(slurm, "DOWN")
        waiting, node = waits_with_offer(asad, lent)
        slurm.wait_until_saved()  # so that the second controller finds the job where the offer has put it
        config = second_configuration(asad)

        asad.kill("asad")
        slurm.kill("slurmctld")
        asad.start("asad", config)  # before any controller answers
        until(
            lambda: as_shown(slurm, waiting).get("Partition") == "batch",
            lambda: (
                f"the offer is taken back: {as_shown(slurm, waiting)}\n{asad.last_words()}\n"
                f"{slurm.last_words(BACKUP, 60)}"
            ),
        )
        assert not slurm.daemons["slurmctld"].alive, "it was the second controller that was asked"
        at_home = slurm.job(waiting)
        assert (at_home["ReqNodeList"], at_home["JobState"]) == (node, "PENDING"), at_home
        assert at_home["Priority"] != "0", "it is not held"
        assert lent.runs_as_guest(), f"what ran runs on: {lent.facts()}"

        set_guest_partition(slurm, "UP")
        bring_back(slurm)
        until(
            lambda: runs_as_guest(lent, waiting),
            lambda: f"the second daemon lends: {as_shown(slurm, waiting)}\n{asad.last_words()}",
        )
        asad.folder, folder = config.parent, asad.folder
        nothing_is_lost_or_left(asad, lent)
        asad.folder = folder
        journal = shared / "offers.journal"
        until(lambda: not open_offers(journal), lambda: f"no offer is left open: {open_offers(journal)}")


def test_a_daemon_outlives_the_controller_and_goes_on_with_the_second(backed: RealSlurm) -> None:
    slurm = backed
    with two_heads(slurm) as asad:
        lent = queue(slurm, witness=asad.last_words)
        lent.await_lending()
        set_guest_partition(slurm, "DOWN")
        waiting, _ = waits_with_offer(asad, lent)
        slurm.wait_until_saved()

        slurm.kill("slurmctld")
        until(lambda: as_shown(slurm, waiting), "the second controller has taken over")
        set_guest_partition(slurm, "UP")
        until(
            lambda: runs_as_guest(lent, waiting),
            lambda: f"it is lent a node under the second: {as_shown(slurm, waiting)}\n{asad.last_words()}",
        )
        bring_back(slurm)
        late = lent.add()
        asad.next_cycles(3)
        assert slurm.job(late)["JobState"] == "PENDING", "both nodes have a guest"
        nothing_is_lost_or_left(asad, lent)


def _tables(asad: Asad) -> dict[str, dict[str, Any]]:
    return tomllib.loads(asad.config.read_text())


def _connected(asad: Asad) -> int:
    return int(ask(asad.socket, "status")["actors"]["connected"])

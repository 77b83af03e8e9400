"""A second head node beside a real Slurm: it goes on where the first was lost, and is obeyed where both run."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from asad_under_test import PATIENCE_S, Asad, Lent, nothing_is_lost_or_left, queue, toml, until

from asad.api.control import ask
from asad.daemon.daemon import SUPERSEDED
from lab.slurm import RealSlurm, free_ports


@pytest.fixture
def asad(slurm: RealSlurm) -> Iterator[Asad]:
    """Actors that know of two head nodes, and the daemon of the first."""
    first, second = free_ports(2)
    both = f"127.0.0.1:{first},127.0.0.1:{second}"
    with Asad(slurm, {"nodes": {"listen": f"127.0.0.1:{first}"}, "node": {"daemon": both}}) as asad:
        yield asad


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

    other = asad.folder / "other"
    other.mkdir()
    config = other / "asad.toml"
    plain = _tables(asad)
    listen = plain["node"]["daemon"].split(",")[1]
    plain["daemon"] |= {"state_dir": f"{other}/state", "socket": f"{other}/asad.sock"}
    plain["nodes"]["listen"] = listen
    plain["metrics"]["listen"] = f"127.0.0.1:{free_ports(1)[0]}"
    plain["slurm"]["mark_key"] = f"{asad.folder}/state/mark.key"  # copied, as the how-to says
    config.write_text(toml(plain))

    first = asad.processes.pop("asad")
    asad.start("asad", config)
    until(
        lambda: slurm.job(waiting)["Partition"] == "batch",
        lambda: f"the offer is taken back: {slurm.job(waiting)}\n{asad.last_words()}",
    )
    assert slurm.job(waiting)["ReqNodeList"] == node, "its user wants that one"
    assert first.wait(PATIENCE_S) == SUPERSEDED, asad.last_words()
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


def _tables(asad: Asad) -> dict[str, dict[str, Any]]:
    return tomllib.loads(asad.config.read_text())


def _connected(asad: Asad) -> int:
    return int(ask(asad.socket, "status")["actors"]["connected"])

"""The daemon in front of a cluster that takes jobs itself, and acts by itself: Mesos, and Slurm's queue on it."""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Callable, Mapping

import pytest
from test_daemon import Held, Life, live, stop, wait_for

from asad.api.control import Refused
from asad.decisions import Cause, Outcome, Start
from asad.errors import UsageError
from asad.model import Json, Snapshot

__all__ = ["live"]  # the fixture


class Taking(Held):
    """A cluster with a queue of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Mapping[str, Json], str, int]] = []
        self.acted: list[tuple[str, Outcome]] = []
        self.may: list[bool] = []

    def request(self, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
        if arguments.get("job") == "m9":
            raise UsageError("m9: there is no such job")
        self.asked.append((verb, arguments, user, uid))
        return {"job": "m1"}

    def may_act(self, may: bool) -> None:
        self.may.append(may)


class Slow(Taking):
    """Its first look lasts until the test lets it; what became of jobs it knows besides."""

    def __init__(self) -> None:
        super().__init__()
        self.may_look = threading.Event()

    def snapshot(self) -> Snapshot:
        self.looks += 1
        self.may_look.wait(300)
        return self.shown

    def story(self, job: str) -> Json:
        if job != "m1":
            return None
        return {
            "job": "m1",
            "state": "queued",
            "waits": "nothing is offered",
            "story": [[1.0, "it was submitted"]],
        }


@pytest.fixture
def taking(live: Callable[..., Life]) -> Callable[..., Life]:
    """Daemons over such a cluster."""
    return lambda: live(held=Taking())


def test_requests_reach_the_cluster_with_the_user_whom_the_kernel_names(taking: Callable[..., Life]) -> None:
    life = taking()
    cluster = life.cluster
    assert isinstance(cluster, Taking)
    assert life.ask("submit", spec={"command": "x"}) == {"job": "m1"}
    user = pwd.getpwuid(os.getuid()).pw_name
    assert cluster.asked == [("submit", {"spec": {"command": "x"}}, user, os.getuid())]
    with pytest.raises(Refused, match="no such job") as refused:
        life.ask("cancel", job="m9")
    assert refused.value.exit_status == 2


def test_a_cluster_that_takes_none_says_where_to_submit(live: Callable[..., Life]) -> None:
    with pytest.raises(Refused, match="sbatch"):
        live().ask("submit", spec={})


def test_it_acts_in_enforce_alone_and_not_while_it_is_paused(taking: Callable[..., Life]) -> None:
    life = taking()
    cluster = life.cluster
    assert isinstance(cluster, Taking)
    life.cycles(1)
    assert cluster.may[-1]
    life.ask("pause")
    life.cycles(1)
    assert not cluster.may[-1]
    life.ask("resume")
    life.cycles(1)
    assert cluster.may[-1]
    life.ask("mode", mode="observe")
    life.cycles(1)
    assert not cluster.may[-1]


def test_what_it_did_is_in_the_store_and_explained(taking: Callable[..., Life]) -> None:
    life = taking()
    cluster = life.cluster
    assert isinstance(cluster, Taking)
    cause = Cause("slurm+mesos", "it runs on Mesos as m1 on a1,a2", {"mesos": "m1"})
    cluster.acted.append(("4711", Outcome(Start(cause, 0), True, "")))
    wait_for(lambda: not cluster.acted)
    answer = life.ask("explain", job="4711")
    (decision,) = answer["decisions"]
    assert (decision["kind"], decision["job"], decision["outcome"]) == ("start", "4711", "done")
    assert decision["reason"] == "it runs on Mesos as m1 on a1,a2"
    assert decision["policy"] == "slurm+mesos"
    stop(life)


def test_jobs_are_taken_and_reported_of_while_the_first_cycle_lasts(live: Callable[..., Life]) -> None:
    cluster = Slow()
    life = live(held=cluster, first_cycle=False)
    wait_for(lambda: cluster.looks)
    try:
        for verb in ("submit", "cancel", "tasks"):
            assert life.ask(verb, job="m1") == {"job": "m1"}
        assert [verb for verb, *_ in cluster.asked] == ["submit", "cancel", "tasks"]
        answer = life.ask("explain", job="m1")
        assert answer["gang"] == cluster.story("m1") and answer["live"] is None and answer["decisions"] == []
        with pytest.raises(Refused, match="nothing has been seen yet"):
            life.ask("explain", job="m2")
    finally:
        cluster.may_look.set()
    life.cycles(1)
    assert life.ask("explain", job="m1")["gang"]["waits"] == "nothing is offered"

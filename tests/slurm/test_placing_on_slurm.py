"""The place stage on a real Slurm: what `oga` lets classes use is written and lifted, gangs go whole or stay."""

from __future__ import annotations

import itertools
import math
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from asad_under_test import Asad, Lent, held, nothing_is_lost_or_left, until, until_exists

from asad.api.control import ask
from asad.store import learned
from asad.store.store import Store
from lab.slurm import CGROUP, RealSlurm, unified

MIB = 1 << 20
HOST_MB, GUEST_MB, OTHER_MB = 1000, 2500, 1000
"""A node has 4000: a host leaves less than two classes have reserved, and what waits fits beside the large guest."""
SHORT = "--time=2"
_numbers = itertools.count()


def memory_high(node: str, job: str) -> float:
    """Above how many bytes the kernel reclaims memory of a job on a node; inf for no limit.

    In v1 Slurm itself says there what the job has reserved.
    """
    if unified():
        found = list(CGROUP.glob(f"system.slice/{node}_slurmstepd.scope/job_{job}/memory.high"))
    else:
        found = list(CGROUP.glob(f"memory/slurm_{node}/uid_*/job_{job}/memory.soft_limit_in_bytes"))
    (path,) = found
    text = path.read_text().strip()
    return math.inf if text == "max" or int(text) > 1 << 62 else int(text)


def hosts(slurm: RealSlurm, asad: Asad, *options: str) -> Lent:
    """A host on every node, running, that leaves most of its core; jobs are added as guests by `add`."""
    gate = slurm.folder / "jobs" / f"placing-{next(_numbers)}"
    running = [
        slurm.submit(until_exists(gate), "--time=10", f"--mem={HOST_MB}", f"--nodelist={node}", *options)
        for node in slurm.node_names
    ]
    slurm.wait(*running, state="RUNNING")
    return Lent(slurm, running, [], gate, lambda: f"{asad.sentence()}\n{asad.last_words('asad')}")


def add(lent: Lent, *options: str) -> str:
    """One more job that waits."""
    lent.guests.append(lent.slurm.submit(until_exists(lent.gate), SHORT, *options))
    return lent.guests[-1]


def policies(place: str, **options: Any) -> dict[str, dict[str, Any]]:
    return {"policies": {"place": place, "share": "exclusive"}, "place": {place: options}}


@pytest.fixture
def oga(slurm: RealSlurm) -> Iterator[Asad]:
    with Asad(slurm, policies("oga", ports=4)) as asad:
        yield asad


def test_what_a_class_may_use_is_written_reported_and_lifted_when_the_lease_ends(
    oga: Asad, slurm: RealSlurm
) -> None:
    lent = hosts(slurm, oga)
    first = add(lent, "--job-name=alpha", f"--mem={GUEST_MB}")
    for _ in range(3):  # another class, of which one always waits
        add(lent, "--job-name=beta", f"--mem={OTHER_MB}")
    lent.await_lending(first)
    node = slurm.job(first)["NodeList"]
    until(
        lambda: memory_high(node, first) < GUEST_MB * MIB,
        lambda: f"its memory is limited: {oga.sentence()}\n{oga.last_words('asad')}\n{oga.last_words(node)}",
    )
    # two classes share what the host leaves: neither has all that it reserved, and both have something
    limit = memory_high(node, first)
    assert limit > 64 * MIB
    quota_us = held(slurm)[f"asad_{node}/job_{first}"]
    assert 5_000 <= quota_us <= 90_000, "of a core, less what the host uses and its headroom"
    story = ask(oga.socket, "explain", job=first)
    assert isinstance(story, dict)
    placed = next(seen for seen in story["decisions"] if seen["kind"] == "co-allocate")
    assert placed["policy"] == "oga"
    assert placed["detail"]["class"].split("/")[1] == "alpha"
    assert placed["detail"]["y_cores"] > 0
    assert len(placed["detail"]["gradient"]) == 2
    assert placed["detail"]["slot"] > 0
    limited = next(seen for seen in story["decisions"] if seen["kind"] == "set-memory")
    assert limited["outcome"] == "done"
    assert (
        limited["detail"]["used_bytes"] < limited["more"]["high_bytes"] < limited["detail"]["reserved_bytes"]
    )
    # nobody renews the lease: the node actor lifts both by itself
    oga.kill("asad", signal.SIGKILL)
    until(lambda: not held(slurm), "no quota is left")
    until(lambda: memory_high(node, first) >= GUEST_MB * MIB, "nor a limit of its memory")
    assert lent.runs_as_guest(first), "and nobody was stopped"
    oga.start("asad")
    oga.wait_until_whole()
    until(lambda: lent.quota(first) is not None, "the next daemon goes on with it")
    nothing_is_lost_or_left(oga, lent)


def test_what_was_learned_outlives_the_daemon(oga: Asad, slurm: RealSlurm) -> None:
    lent = hosts(slurm, oga)
    add(lent, "--job-name=gamma", f"--mem={GUEST_MB}")
    lent.await_lending()
    oga.next_cycles(3)
    oga.kill("asad", signal.SIGTERM)
    with Store.open(oga.store_url, create=False) as store:
        known = learned.load(store, "slurm/place/oga")
    gamma = next(name for name in known if "/gamma/" in name)
    assert set(known[gamma]["y"]) == set(slurm.node_names)
    slot = known["*"]["slot"]
    assert slot >= 3
    oga.start("asad")
    oga.wait_until_whole()
    oga.next_cycles(2)
    oga.kill("asad", signal.SIGTERM)
    with Store.open(oga.store_url, create=False) as store:
        assert learned.load(store, "slurm/place/oga")["*"]["slot"] > slot, "it went on from there"
    oga.start("asad")
    oga.wait_until_whole()
    nothing_is_lost_or_left(oga, lent)


@pytest.mark.parametrize(("place", "options"), [("first-fit", {"share": 0.6}), ("oga", {"ports": 4})])
def test_a_gang_goes_beside_a_host_of_two_nodes_whole_or_not_at_all(
    slurm: RealSlurm, place: str, options: dict[str, Any]
) -> None:
    settings = policies(place, **options) | {"slurm": {"timeout_s": 3.0}}
    with Asad(slurm, settings) as asad:
        gate = slurm.folder / "jobs" / f"placing-{next(_numbers)}"
        host = slurm.submit(
            f"srun sh -c '{until_exists(gate)}'", "--time=10", "--nodes=2", f"--mem={HOST_MB}"
        )
        slurm.wait(host, state="RUNNING")
        lent = Lent(slurm, [host, host], [], gate, lambda: f"{asad.sentence()}\n{asad.last_words('asad')}")
        wide = slurm.submit(until_exists(gate), SHORT, "--mem=500", "--comment=asad:components=3")
        pair = slurm.submit(
            f"srun sh -c '{until_exists(gate)}'",
            SHORT,
            "--nodes=2",
            "--mem=500",
            "--comment=asad:components=2",
        )
        until(lambda: lent.runs_as_guest(pair), lambda: f"the gang runs: {slurm.job(pair)}\n{lent.witness()}")
        assert slurm.job(pair)["NumNodes"] == "2"
        until(
            lambda: (
                {name for name in held(slurm) if name.endswith(f"job_{pair}")}
                == {f"asad_{node}/job_{pair}" for node in slurm.node_names}
            ),
            lambda: f"a quota on both nodes: {held(slurm)}",
        )
        asad.next_cycles(3)
        assert not lent.runs_as_guest(wide), "three components were reported, and there are two nodes"
        gate.touch()
        slurm.wait(host, pair, wide)
        assert {slurm.job(job)["JobState"] for job in (host, pair, wide)} == {"COMPLETED"}
        until(lambda: not held(slurm), "no quota is left")

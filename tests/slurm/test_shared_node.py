"""A node that jobs share, on a real Slurm: it lends, its guest runs on every core, and nothing of that outlives asad.

The cluster is one node of two cores, each held by a job of one core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from asad_under_test import MINUTES, Asad, groups_of_ours, held, idle_class, until, until_exists

from lab.slurm import CGROUP, RealSlurm, why_not

CORES = set(sorted(os.sched_getaffinity(0))[:2])


@pytest.fixture(scope="module")
def asad() -> Iterator[Asad]:
    if obstacle := why_not(accounting=False):
        pytest.skip(obstacle)
    if len(CORES) < 2 or not (CGROUP / "cpuset").is_dir():
        pytest.skip("needs root and cgroup v1, and two cores")
    share = {"policies": {"share": "measured"}, "share": {"measured": {"patience_s": 20, "again_s": 6}}}
    with RealSlurm(nodes=1, cpus=2, accounting=False) as slurm, Asad(slurm, share) as asad:
        yield asad


class Guest:
    """A job that starts five steps, one after the other, and then waits until it is let go."""

    def __init__(self, asad: Asad) -> None:
        self.asad, self.slurm, (self.node,) = asad, asad.slurm, asad.slurm.node_names
        self.gate = self.slurm.folder / "jobs" / "gate-of-guest"
        alone = ("--nodes=1", "--ntasks=1", "--mem=100", MINUTES)
        self.hosts = [self.slurm.submit(until_exists(self.gate), *alone) for _ in CORES]
        self.slurm.wait(*self.hosts, state="RUNNING")
        steps = "for i in 1 2 3 4 5; do srun -n1 sleep 0.3 && echo step $i; done"
        self.job = self.slurm.submit(f"{steps}; {until_exists(self.gate)}", *alone)
        until(
            lambda: self.slurm.state(self.job) == "RUNNING",
            lambda: f"it is a guest: {self.slurm.job(self.job)}\n{asad.last_words()}",
        )

    @property
    def wide(self) -> Path:
        """The group in which its threads are while they may run on every core."""
        return CGROUP / "cpuset" / f"asad_{self.node}" / f"job_{self.job}"

    def affinities(self) -> set[frozenset[int]]:
        """Of all of its processes, whatever group they are in."""
        found = set()
        for place, _, _ in os.walk(CGROUP / "freezer" / f"slurm_{self.node}" / "uid_0" / f"job_{self.job}"):
            if "step_" in place:
                for pid in map(int, (Path(place) / "cgroup.procs").read_text().split()):
                    try:
                        found.add(frozenset(os.sched_getaffinity(pid)))
                    except ProcessLookupError:
                        continue
        return found

    def is_wide(self) -> bool:
        return self.wide.exists() and self.affinities() == {frozenset(CORES)}

    def is_narrow(self) -> bool:
        """On one core of Slurm's choice, without a quota."""
        return not self.wide.exists() and not held(self.slurm) and max(map(len, self.affinities())) == 1


def test_a_node_that_jobs_share_lends_and_its_guest_runs_wide_for_as_long_as_asad_says(asad: Asad) -> None:
    guest, slurm = Guest(asad), asad.slurm
    facts = slurm.job(guest.job)
    assert (facts["Partition"], facts["NodeList"]) == ("guest", guest.node)
    until(guest.is_wide, lambda: f"it runs wide: {guest.affinities()}\n{asad.last_words(guest.node)}")
    assert held(slurm), "and has a quota"
    until(lambda: asad.status()["lending"], "the daemon has seen it run")
    (lending,) = asad.status()["lending"]
    assert (lending["guest"], lending["nodes"]) == (guest.job, [guest.node])
    until(lambda: "step 5" in slurm.output(guest.job), "five steps run, one after the other")

    asad.kill("asad")
    until(guest.is_narrow, lambda: f"the lease runs out: {guest.affinities()}, {held(slurm)}")
    assert idle_class(guest.node, guest.job), "the idle class holds it, asad dead or alive"
    asad.start("asad")
    until(guest.is_wide, lambda: f"the next daemon widens it: {guest.affinities()}\n{asad.last_words()}")

    asad.kill(guest.node)
    slurm.kill(guest.node)
    assert guest.is_wide(), "nobody is there to bring it back"
    asad.kill("asad")  # so that nobody widens it again
    slurm.start(guest.node)
    asad.start(guest.node)
    until(guest.is_narrow, lambda: f"the next actor brings it back: {guest.affinities()}, {held(slurm)}")
    asad.start("asad")
    until(guest.is_wide, lambda: f"all are there again: {guest.affinities()}\n{asad.last_words()}")

    guest.gate.touch()
    slurm.wait(guest.job, *guest.hosts)
    assert {slurm.state(job) for job in (guest.job, *guest.hosts)} == {"COMPLETED"}
    until(lambda: not groups_of_ours(slurm) and not guest.wide.exists(), "no group is left")
    until(lambda: not asad.offers(), "and no offer")

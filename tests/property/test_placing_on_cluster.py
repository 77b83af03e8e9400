"""Policies of the place stage on recorded clusters with gangs: what holds whatever the jobs are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asad.admit.everyone import Everyone
from asad.config import GuardSettings
from asad.contention import load_contention
from asad.cycle import Cycle
from asad.decisions import CoAllocate, Decision, Outcome, SetMemory, SetQuota, SetShare
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.model import Machine, Snapshot
from asad.place import PlacePolicy
from asad.place.first_fit import FirstFit
from asad.place.free_capacity import bounds_of
from asad.place.port_placing import PortPlacing
from asad.place.ports import OgaOptions
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload
from asad.share.exclusive import Exclusive

JOBS, NODES, CORES, APPLICATIONS = 40, 5, 4, 6
LEAST_TASKS, HEADROOM = 3, 0.1
NAMES = [f"user/app{number}/4" for number in range(APPLICATIONS)]
POLICIES = ["first-fit", "oga-strict", "oga-reactive", "oga-reclaim", "binpack", "drf", "fairness", "spread"]


def policy(name: str) -> PlacePolicy:
    if name == "first-fit":
        return FirstFit()
    plain, _, mode = name.partition("-")
    learning = OgaOptions(mode=mode) if mode else OgaOptions()
    return PortPlacing(plain, NAMES, learning=learning)


def workload(seed: int, memory: bool) -> Workload:
    """Jobs that hold all cores of one to four nodes, jobs that hold parts of a node, and some that fit beside them."""
    rng = np.random.default_rng(seed)
    nodes = rng.choice(np.array([0, 1, 2, 4], np.int32), JOBS)
    cores = np.where(nodes > 0, nodes * rng.choice(np.array([1, 2, CORES]), JOBS), rng.integers(1, 9, JOBS))
    work = rng.uniform(60.0, 4000.0, JOBS).round()
    limit = work * rng.uniform(1.0, 3.0, JOBS)
    array = np.full(JOBS, -1, np.int32)
    array[::4] = np.arange(len(array[::4])) % 2
    hints = dict.fromkeys(range(1, JOBS, 5), "components=2-4")
    hints |= dict.fromkeys(range(0, JOBS, 4), f"components={LEAST_TASKS}-9")
    return Workload(
        job_id=np.arange(JOBS),
        submit_s=np.sort(rng.uniform(0.0, 6000.0, JOBS)).round(),
        work_s=work,
        planned_s=limit,
        limit_s=limit,
        cores=cores.astype(np.int32),
        nodes=nodes,
        memory_bytes_per_core=rng.uniform(0.5e9, 3e9, JOBS) if memory else np.zeros(JOBS),
        demand=rng.uniform(0.05, 0.9, JOBS),
        depends_on=np.full(JOBS, -1, np.int32),
        think_s=np.zeros(JOBS),
        application=rng.integers(0, APPLICATIONS, JOBS).astype(np.int32),
        user=np.zeros(JOBS, np.int32),
        array=array,
        hints=hints,
    )


def pools(snapshot: Snapshot) -> list[float]:
    """What guests may still take of every node, in cores' worth of CPU: written apart from asad."""
    jobs, first = snapshot.jobs, snapshot.machine.first_core.tolist()
    measured = [row for row in snapshot.running.tolist() if not math.isnan(jobs.cpu_fraction[row])]
    held = sum(int(jobs.cores[row]) for row in measured)
    usual = (
        sum(float(jobs.cpu_fraction[row]) * int(jobs.cores[row]) for row in measured) / held if held else 1.0
    )
    assert snapshot.core_peak is not None
    found = []
    for node in range(NODES):
        left = 0.0
        for core in range(first[node], first[node + 1]):
            owner, guest = int(snapshot.core_owner[core]), int(snapshot.core_guest[core])
            used = usual if owner < 0 else float(snapshot.core_peak[core])
            left += 0.0 if math.isnan(used) else max(0.0, 1.0 - used - HEADROOM)
            if guest >= 0:
                known = not math.isnan(jobs.cpu_fraction[guest])
                demand = float(jobs.cpu_fraction[guest] if known else jobs.demand[guest])
                left -= demand * float(jobs.pace[guest])
        found.append(left)
    return found


UNCAPPED = GuardSettings(node_share_cap=math.inf)
"""What policies offer is looked at here, and not what a node of one core may lend."""


class Watch:
    """Looks at every cycle's outcomes."""

    def __init__(self) -> None:
        self.offers = 0
        self.kinds: set[type[Any]] = set()
        self.left: list[float] = []

    def over(self, placing: PlacePolicy) -> None:
        """Note the pools before each decision of the policy: outcomes are reported when guests have started."""
        decide = placing.decide

        def noted(snapshot: Snapshot) -> Sequence[Decision]:
            self.left = pools(snapshot)
            return decide(snapshot)

        placing.decide = noted  # type: ignore[method-assign]

    def __call__(self, number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        jobs = snapshot.jobs
        gangs: dict[int, int] = {}
        for outcome in outcomes:
            decision = outcome.decision
            self.kinds.add(type(decision))
            assert not isinstance(decision, SetMemory), "memory in use is not known here"
            assert not isinstance(decision, SetShare), "nobody is paired"
            if isinstance(decision, CoAllocate | SetQuota):
                assert outcome.done, (outcome.reason, decision)
                assert not outcome.veto
            if isinstance(decision, SetQuota):
                assert len(decision.nodes) == len(decision.cores)
                assert 0 < sum(decision.cores) <= jobs.cores[decision.guest] + 1e-9
            if not isinstance(decision, CoAllocate):
                continue
            self.offers += 1
            guest = decision.guest
            bounds = bounds_of(snapshot, guest)
            asked = int(jobs.nodes[guest])
            if jobs.array[guest] >= 0:
                gangs[int(jobs.array[guest])] = gangs.get(int(jobs.array[guest]), 0) + 1
            elif bounds is not None:
                assert max(asked, bounds.least) <= len(decision.nodes) <= max(asked, bounds.most)
            if asked:
                assert len(decision.nodes) == asked or bounds is not None
            for node, demand in zip(decision.nodes, decision.demands, strict=True):
                self.left[node] -= demand
                assert demand > 0
                assert self.left[node] >= -1e-6
        for array, together in gangs.items():
            assert together + int(snapshot.arrays.running[array]) >= LEAST_TASKS


def play(name: str, seed: int, memory: bool, widened: bool = True) -> tuple[RecordedCluster, Watch]:
    machine = Machine(
        tuple(f"n{number}" for number in range(NODES)),
        np.full(NODES, CORES, np.int32),
        np.full(NODES, 16e9),
        "test",
    )
    jobs = workload(seed, memory)
    cluster = RecordedCluster(
        jobs, machine, load_contention(), use_memory=memory, widened=widened, every=True
    )
    placing, watch = policy(name), Watch()
    watch.over(placing)
    cycle = Cycle(
        cluster, Everyone(), AtOnce(), placing, Exclusive(), guard_for(placing.properties, UNCAPPED), watch
    )
    wake_s = math.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
        if isinstance(placing, PortPlacing) and placing.oga is not None:
            ports = placing.oga.ports
            assert ports.violation(placing.oga.play()) <= 1e-9
    assert cluster.ended == JOBS
    assert not cluster.state.job["killed"].any(), "limits move by what lending took"
    return cluster, watch


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(seed=st.integers(0, 2**31), memory=st.booleans(), widened=st.booleans())
def test_hosts_keep_what_they_use_and_gangs_are_whole(
    name: str, seed: int, memory: bool, widened: bool
) -> None:
    play(name, seed, memory, widened)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_places_somebody_and_twice_the_same(name: str) -> None:
    ends, offers = [], 0
    for _ in range(2):
        found = 0
        ends.append([])
        for seed in range(4):
            cluster, watch = play(name, seed, False)
            ends[-1].append(cluster.state.job["end"].tolist())
            found += watch.offers
        offers = found
    assert offers > 0
    assert ends[0] == ends[1]

"""Guests that draw from pools on the recorded cluster: what must hold whatever is decided, computed anew plainly."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.decisions import Cause, CoAllocate, Decision, SetQuota, SetShare
from asad.model import Machine, Snapshot
from asad.replay import engine
from asad.replay.engine.use import centres
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

from .test_lending import MOST_POLLS, MU, POLL_S, Case, cases, check_nobody_else_can_start, picture

CAUSE = Cause("test", "because")


def cluster_of(case: Case, widened: bool, use_sd: float = 0.0) -> RecordedCluster:
    return RecordedCluster(
        case.workload,
        case.machine,
        MU,
        kill=case.kill,
        use_memory=case.use_memory,
        poll_s=POLL_S,
        window_s=2 * POLL_S,
        widened=widened,
        use_sd=use_sd,
        every=True,
    )


class Water:
    """Rates by docs/explanation/recorded-cluster.md, from who is where, who uses what, and the quotas."""

    def __init__(self, case: Case, cluster: RecordedCluster, widened: bool) -> None:
        self.case, self.widened = case, widened
        core = cluster.state.core
        first = case.machine.first_core.tolist()
        self.nodes = [range(first[k], first[k + 1]) for k in range(len(first) - 1)]
        self.owner, self.guest = core["owner"].tolist(), core["guest"].tolist()
        self.use = [float(case.workload.demand[row]) if row >= 0 else 0.0 for row in self.owner]
        self.quota = {
            (node, self.guest[k]): float(core["quota"][k])
            for node, cores in enumerate(self.nodes)
            for k in cores
            if core["head"][k]
        }

    def held(self, node: int, guest: int) -> list[int]:
        return [k for k in self.nodes[node] if self.guest[k] == guest]

    def want(self, node: int, guest: int) -> float:
        return len(self.held(node, guest)) * float(self.case.workload.demand[guest])

    def gets(self, node: int) -> dict[int, float]:
        """Cores' worth of CPU of each guest on a node: the poorest first, each an equal part of what is left."""
        cap = {g: min(self.want(n, g), quota) for (n, g), quota in self.quota.items() if n == node}
        if not self.widened:
            return {g: min(cap[g], sum(1 - self.use[k] for k in self.held(node, g))) for g in cap}
        left, found = sum(1 - self.use[k] for k in self.nodes[node]), {}
        for number, guest in enumerate(sorted(cap, key=lambda g: cap[g])):
            found[guest] = min(cap[guest], max(0.0, left) / (len(cap) - number))
            left -= found[guest]
        return found

    def mu(self, node: int, row: int, is_guest: bool, alone: float, streaming: float) -> float:
        weight = 0.5
        if self.case.use_memory:
            memory = self.case.workload.memory_bytes_per_core
            mine, others = (self.guest, self.owner) if is_guest else (self.owner, self.guest)
            bytes_ = sum(float(memory[row]) for k in self.nodes[node] if mine[k] == row)
            bytes_ += sum(float(memory[others[k]]) for k in self.nodes[node] if others[k] >= 0)
            weight = bytes_ / float(self.case.machine.memory_bytes[node])
        return (1 - weight) * alone + weight * streaming

    def of_guest(self, guest: int) -> float:
        slowest = 1.0
        for node, cores in enumerate(self.nodes):
            if not self.held(node, guest):
                continue
            want = self.want(node, guest)
            pace = self.gets(node)[guest] / want if want > 0 else 1.0
            if any(self.owner[k] >= 0 for k in cores):
                pace *= self.mu(node, guest, True, MU.mu_guest_cpu, MU.mu_guest_memory)
            slowest = min(slowest, pace)
        return slowest

    def of_host(self, host: int) -> float:
        shared = [
            node
            for node, cores in enumerate(self.nodes)
            if any(self.owner[k] == host for k in cores) and any(self.guest[k] >= 0 for k in cores)
        ]
        paces = [self.mu(node, host, False, MU.mu_host_cpu, MU.mu_host_memory) for node in shared]
        return min(paces, default=1.0)


def check(case: Case, cluster: RecordedCluster, widened: bool) -> None:
    """Everything that must hold of who is where and how fast, at any moment; use does not vary."""
    state, jobs = cluster.state, case.workload
    job, core, node = state.job, state.core, state.node
    water = Water(case, cluster, widened)
    for row in np.flatnonzero(job["state"] == engine.RUNNING).tolist():
        assert (core["owner"] == row).sum() == jobs.cores[row]
        assert job["rate"][row] == pytest.approx(water.of_host(row), rel=1e-9, abs=1e-12)
    for row in np.flatnonzero(job["state"] == engine.GUEST).tolist():
        assert (core["guest"] == row).sum() == jobs.cores[row]
        assert job["host"][row] == -1
        assert job["rate"][row] == pytest.approx(water.of_guest(row), rel=1e-9, abs=1e-12)
    assert state.c[engine.FREE] == len(core) - jobs.cores[job["state"] == engine.RUNNING].sum()
    memory = jobs.memory_bytes_per_core
    for number, cores in enumerate(water.nodes):
        on = [row for k in cores for row in (water.owner[k], water.guest[k]) if row >= 0]
        assert node["free"][number] == sum(water.owner[k] < 0 for k in cores)
        assert node["guests"][number] == sum(water.guest[k] >= 0 for k in cores)
        if case.use_memory:
            held = float(memory[on].sum()) if on else 0.0
            assert held <= case.machine.memory_bytes[number]
            assert node["memory_free"][number] == pytest.approx(case.machine.memory_bytes[number] - held)


def random_decisions(case: Case, snapshot: Snapshot, rng: np.random.Generator) -> Iterator[Decision]:
    """Good ones and bad ones."""
    nodes, count = len(case.machine.cores), len(case.workload)
    first = case.machine.first_core
    for _ in range(rng.integers(0, 5)):
        kind = rng.integers(0, 10)
        wild = int(rng.integers(-2, count + 2))
        if kind < 6 and len(snapshot.queue):
            guest = int(rng.choice(snapshot.queue))
            some = rng.permutation(nodes)[: rng.integers(1, nodes + 1)].tolist()
            cores = int(case.workload.cores[guest])
            yield CoAllocate(CAUSE, guest, tuple(some), tuple([0.3 * cores / len(some)] * len(some)))
        elif kind < 7:
            some = rng.integers(-1, nodes + 1, rng.integers(0, 4)).tolist()
            yield CoAllocate(CAUSE, wild, tuple(some), (0.5,) * int(rng.integers(0, 4)))
        elif kind < 9 and len(snapshot.guests):
            guest = int(rng.choice(snapshot.guests))
            on = np.unique(
                np.searchsorted(first, np.flatnonzero(snapshot.core_guest == guest), side="right") - 1
            )
            yield SetQuota(CAUSE, guest, tuple(on.tolist()), tuple(rng.uniform(0.1, 2.0, len(on)).tolist()))
        elif kind < 9:
            yield SetQuota(CAUSE, wild, (0,), (0.0,))
        else:
            yield SetShare(CAUSE, share=0.3, host=wild)


@pytest.mark.slow
@settings(max_examples=120)
@given(case=cases(), widened=st.booleans())
def test_whatever_is_decided_pools_are_water_filled(case: Case, widened: bool) -> None:
    cluster, rng = cluster_of(case, widened), np.random.default_rng(case.seed)
    state = cluster.state
    done = np.zeros(len(case.workload))

    def step(until: float) -> float:
        begin = cluster.now_s
        event = float(engine.next_event(state))
        rate, active = state.job["rate"].copy(), np.isin(state.job["state"], (engine.RUNNING, engine.GUEST))
        cluster.run(min(event, until))
        done[active] += rate[active] * (cluster.now_s - begin)
        check(case, cluster, widened)
        if event <= until:
            check_nobody_else_can_start(case, cluster)
        return cluster.now_s

    poll = cluster.now_s
    for _ in range(MOST_POLLS):
        poll += POLL_S
        while step(poll) < poll:
            pass
        for decision in random_decisions(case, cluster.snapshot(), rng):
            before = picture(state)
            (outcome,) = cluster.apply([decision])
            if not outcome.done:
                assert outcome.reason
                for was, now in zip(before, picture(state), strict=True):
                    np.testing.assert_array_equal(was, now)
            elif isinstance(decision, CoAllocate):
                assert state.job["state"][decision.guest] == engine.GUEST
                on = state.core["node"][state.core["guest"] == decision.guest]
                owners = state.core["owner"][np.isin(state.core["node"], on)]
                assert state.job["was_host"][owners[owners >= 0]].all()
            check(case, cluster, widened)
        cluster.run(cluster.now_s)  # the pass that lending has caused
        check(case, cluster, widened)
    while engine.next_event(state) < math.inf:
        step(math.inf)
    job, work = state.job, case.workload.work_s
    assert cluster.ended == len(work)
    np.testing.assert_allclose(job["lost"], job["end"] - job["start"] - done, atol=1e-6)
    assert job["given"].sum() <= job["lent"].sum() + 1e-6  # the rest came from free cores
    ran = ~job["killed"]
    np.testing.assert_allclose(done[ran], work[ran], atol=1e-5)
    assert (state.core["owner"] == -1).all()
    assert (state.core["guest"] == -1).all()


@settings(max_examples=40)
@given(case=cases(), sd=st.sampled_from([0.1, 0.2, 0.5]))
def test_use_that_varies_changes_no_schedule_where_nobody_lends(case: Case, sd: float) -> None:
    varied, plain = cluster_of(case, True, sd), cluster_of(case, True)
    while varied.advance():
        snapshot = varied.snapshot()
        assert snapshot.core_peak is not None
        peaks = snapshot.core_peak[~np.isnan(snapshot.core_peak)]
        assert ((peaks >= 0) & (peaks <= 1)).all()
        use = varied.state.core["use"]
        assert ((use >= 0) & (use <= 1)).all()
    plain.run()
    np.testing.assert_array_equal(varied.state.job["end"], plain.state.job["end"])


@given(st.lists(st.floats(0.02, 0.98), min_size=1, max_size=5), st.sampled_from([0.05, 0.2, 0.4]))
def test_clipping_does_not_move_the_mean(means: list[float], sd: float) -> None:
    wanted = np.array(means)
    centre = centres(wanted, sd)
    noise = np.random.default_rng(0).standard_normal(200_000)
    found = [np.clip(c + sd * noise, 0, 1).mean() for c in centre]
    np.testing.assert_allclose(found, wanted, atol=0.004)


def test_use_has_the_deviation_and_the_memory_that_are_stated() -> None:
    """One long job: its use on a node is an AR(1) of 60 s steps."""
    sd = 0.1
    one = np.ones(1)
    job = Workload(
        job_id=np.arange(1),
        submit_s=0 * one,
        work_s=4e6 * one,
        planned_s=4e6 * one,
        limit_s=4e6 * one,
        cores=np.full(1, 2, np.int32),
        nodes=np.zeros(1, np.int32),
        memory_bytes_per_core=0 * one,
        demand=0.5 * one,
        depends_on=np.full(1, -1, np.int32),
        think_s=0 * one,
        application=np.zeros(1, np.int32),
        user=np.zeros(1, np.int32),
    )
    machine = Machine(("a",), np.full(1, 2, np.int32), np.array([math.nan]), "made up")
    cluster = RecordedCluster(job, machine, MU, use_sd=sd)
    seen = []
    for k in range(60_000):
        cluster.run(60.0 * k + 61.0)
        seen.append(float(cluster.state.core["use"][0]))
    use = np.array(seen)
    assert use.mean() == pytest.approx(0.5, abs=0.005)
    assert use.std() == pytest.approx(sd, rel=0.05)
    centred = use - use.mean()
    correlation = float((centred[1:] * centred[:-1]).mean() / (centred**2).mean())
    assert correlation == pytest.approx(math.exp(-0.1), abs=0.01)

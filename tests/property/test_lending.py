"""Lending on the recorded cluster: what must hold whatever is decided, against plain re-computation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from asad.contention import Contention
from asad.decisions import Cause, CoAllocate, Decision, ExtendLimit, SetShare
from asad.model import Machine, Snapshot
from asad.replay import engine
from asad.replay.engine.simulation_state import CHANGED
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

from .reference_scheduler import Held, easy_pass

CAUSE = Cause("test", "because")
MU = Contention(0.95, 0.9, 0.8, 0.7, "made up")
POLL_S = 5.0
MOST_POLLS = 40
"""Decisions are made at this many polls; then the cluster is left alone, so that it comes to an end."""


@dataclass(frozen=True)
class Case:
    """A workload and a machine that holds each of its jobs."""

    workload: Workload
    machine: Machine
    use_memory: bool
    kill: bool
    seed: int
    """Of the decisions."""

    def cluster(self, scheduler: str = "easy", window_s: float = 2 * POLL_S) -> RecordedCluster:
        return RecordedCluster(
            self.workload,
            self.machine,
            MU,
            scheduler=scheduler,
            kill=self.kill,
            use_memory=self.use_memory,
            poll_s=POLL_S,
            window_s=window_s,
        )


@st.composite
def cases(draw: st.DrawFn, most_jobs: int = 25) -> Case:
    nodes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    use_memory, kill = draw(st.booleans()), draw(st.booleans())
    node_memory = 12
    count = draw(st.integers(5, most_jobs))

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    memory = column(st.sampled_from([0.0, 1.0, 2.0, 5.0, 12.0])) if use_memory else [0.0] * count
    room = [sum(min(c, int(node_memory // each)) if each else c for c in nodes) for each in memory]
    # half of them as wide as can be: only they hold whole nodes
    cores = [min(wish, most) for wish, most in zip(column(st.sampled_from([1, 2, 4, 99])), room, strict=True)]
    run = np.array(column(st.integers(1, 60).map(float)))
    limit = np.array(column(st.integers(1, 90).map(float)))
    return Case(
        Workload(
            job_id=np.arange(count),
            submit_s=np.sort(np.array(column(st.integers(0, 100).map(float)))),
            work_s=np.minimum(run, limit) if kill else run,
            planned_s=limit if kill else np.maximum(run, limit),
            limit_s=limit,
            cores=np.array(cores, np.int32),
            nodes=np.zeros(count, np.int32),
            memory_bytes_per_core=np.array(memory),
            demand=np.array(column(st.sampled_from([0.0, 0.1, 0.35, 0.6, 0.95, 1.0]))),
            depends_on=np.full(count, -1, np.int32),
            think_s=np.zeros(count),
            application=np.zeros(count, np.int32),
            user=np.zeros(count, np.int32),
        ),
        Machine(
            tuple(f"n{i}" for i in range(len(nodes))),
            np.array(nodes, np.int32),
            np.full(len(nodes), float(node_memory) if use_memory else math.nan),
            "made up",
        ),
        use_memory,
        kill,
        draw(st.integers(0, 2**32 - 1)),
    )


# --------------------------------------------------------------------------------- the contention model again


class Shares:
    """Rates by docs/explanation/contention.md, from who is where and nothing else."""

    def __init__(self, case: Case, state: engine.State) -> None:
        self.owner, self.guest = state.core["owner"], state.core["guest"]
        first = case.machine.first_core
        self.node_cores = [range(a, b) for a, b in pairwise(first.tolist())]
        self.share, self.capped = state.job["share"], state.job["capped"]
        self.demand = case.workload.demand
        self.memory, self.case = case.workload.memory_bytes_per_core, case

    def mu(self, node: int, alone: float, streaming: float) -> float:
        """μ between a pair that computes and one that streams, by the memory of the node in use."""
        weight = 0.5
        if self.case.use_memory:
            weight = self.memory_held(node) / float(self.case.machine.memory_bytes[node])
        return (1 - weight) * alone + weight * streaming

    def memory_held(self, node: int) -> float:
        on = [
            job for core in self.node_cores[node] for job in (self.owner[core], self.guest[core]) if job >= 0
        ]
        return float(self.memory[on].sum()) if on else 0.0

    def claim(self, guest: int) -> float:
        """An undecided guest wants all that is left."""
        return 1.0 if math.isnan(self.share[guest]) else float(self.share[guest])

    def quota(self, guest: int) -> bool:
        """Do quotas hold this guest and its host? Else it is in the idle class."""
        return bool(self.capped[guest]) and not math.isnan(self.share[guest])

    def beside(self, node: int, host: int) -> set[int]:
        """The guests on cores of `host` on `node`."""
        return {
            int(self.guest[core])
            for core in self.node_cores[node]
            if self.owner[core] == host and self.guest[core] >= 0
        }

    def lent(self, node: int, guest: int, host: int) -> float:
        """Cores of `node` that `host` lends to `guest`, which is on some of them."""
        fraction = self.claim(guest)
        if not self.quota(guest):
            left = max(0.0, 1.0 - float(self.demand[host]))
            claims = sum(self.claim(other) for other in self.beside(node, host))
            if claims > left:
                fraction *= left / claims
        held = [core for core in self.node_cores[node] if self.owner[core] == host]
        return min(fraction * len(held), float(sum(self.guest[core] == guest for core in held)))

    def given(self, host: int) -> float:
        """Cores that `host` lends to all guests."""
        nodes = range(len(self.node_cores))
        return sum(self.lent(node, guest, host) for node in nodes for guest in self.beside(node, host))

    def got(self, guest: int) -> float:
        """Cores that all hosts lend to `guest`."""
        on = {
            (node, int(self.owner[core]))
            for node, cores in enumerate(self.node_cores)
            for core in cores
            if self.guest[core] == guest and self.owner[core] >= 0
        }
        return sum(self.lent(node, guest, host) for node, host in on)

    def of_host(self, host: int) -> float:
        slowest = 1.0
        for node in range(len(self.node_cores)):
            guests = self.beside(node, host)
            if guests:
                kept = max(0.0, 1.0 - sum(self.claim(guest) for guest in guests if self.quota(guest)))
                needs = float(self.demand[host])
                pace = min(1.0, kept / needs) if needs > 0 else 1.0
                slowest = min(slowest, pace * self.mu(node, MU.mu_host_cpu, MU.mu_host_memory))
        return slowest

    def of_guest(self, guest: int) -> float:
        slowest = 1.0
        for node, cores in enumerate(self.node_cores):
            mine = [core for core in cores if self.guest[core] == guest]
            if not mine:
                continue
            owners = [int(self.owner[core]) for core in mine]
            gets = owners.count(-1) + sum(self.lent(node, guest, host) for host in set(owners) - {-1})
            needs = len(mine) * float(self.demand[guest])
            pace = min(1.0, gets / needs) if needs > 0 else 1.0
            if set(owners) != {-1}:
                pace *= self.mu(node, MU.mu_guest_cpu, MU.mu_guest_memory)
            slowest = min(slowest, pace)
        return slowest


# --------------------------------------------------------------------------------------------- what must hold


def check(case: Case, cluster: RecordedCluster) -> None:
    """Everything that must hold of who is where and how fast, at any moment."""
    state, jobs = cluster.state, case.workload
    job, core, node = state.job, state.core, state.node
    shares = Shares(case, state)
    rows: dict[int, NDArray[np.intp]] = {
        kind: np.flatnonzero(job["state"] == kind) for kind in (engine.RUNNING, engine.GUEST)
    }
    # gangs are whole, a core has one batch job and one guest at most, and nobody else is on it
    for row in rows[engine.RUNNING]:
        assert (core["owner"] == row).sum() == jobs.cores[row]
        assert job["rate"][row] == pytest.approx(shares.of_host(row), rel=1e-12, abs=1e-15)
        assert job["lending"][row] == pytest.approx(shares.given(row), rel=1e-12, abs=1e-15)
    for row in rows[engine.GUEST]:
        assert (core["guest"] == row).sum() == jobs.cores[row]
        assert job["rate"][row] == pytest.approx(shares.of_guest(row), rel=1e-12, abs=1e-15)
        assert job["lending"][row] == pytest.approx(shares.got(row), rel=1e-12, abs=1e-15)
        hosts = set(core["owner"][core["guest"] == row].tolist()) - {-1}
        assert job["host"][row] in (hosts or {-1})
    assert set(core["owner"].tolist()) - {-1} == set(rows[engine.RUNNING].tolist())
    assert set(core["guest"].tolist()) - {-1} == set(rows[engine.GUEST].tolist())
    assert sorted(state.job["guest_row"][: state.c[engine.GUESTS]].tolist()) == rows[engine.GUEST].tolist()
    # the batch scheduler never counts guests
    assert state.c[engine.FREE] == len(core) - jobs.cores[rows[engine.RUNNING]].sum()
    for number, cores in enumerate(shares.node_cores):
        assert node["free"][number] == (core["owner"][list(cores)] < 0).sum()
        assert node["guests"][number] == (core["guest"][list(cores)] >= 0).sum()
        if case.use_memory:
            held = shares.memory_held(number)
            assert held <= case.machine.memory_bytes[number]
            assert node["memory_free"][number] == pytest.approx(case.machine.memory_bytes[number] - held)


def check_nobody_else_can_start(case: Case, cluster: RecordedCluster) -> None:
    """By the definition of EASY, on the batch jobs alone; guests and their cores are not there for it."""
    if case.use_memory:
        return
    state, jobs = cluster.state, case.workload
    running = np.flatnonzero(state.job["state"] == engine.RUNNING)
    waiting = np.flatnonzero(state.job["state"] == engine.PENDING)
    held = [
        Held(
            float(state.job["start"][row] + jobs.planned_s[row] + state.job["extended"][row]),
            int(jobs.cores[row]),
        )
        for row in running
    ]
    queue = [(float(jobs.planned_s[row]), int(jobs.cores[row])) for row in waiting]
    assert easy_pass(cluster.now_s, len(state.core), held, queue) == []


IGNORED = {"stamp", "rate", "since", "left", "lost", "lent", "given"}
"""Marks of the engine's own, and the running account of work, which may be brought up to date by any look."""


def picture(state: engine.State) -> list[NDArray[Any]]:
    """A copy of everything that a refused decision must not change."""
    counters = np.delete(state.c, engine.STAMP)
    columns: list[NDArray[Any]] = [counters, state.f.copy(), state.job["rate"].copy()]
    tables = (
        state.job,
        state.core,
        state.node,
        state.queue[: state.c[engine.TAIL]],
        state.run[: state.c[engine.RUN]],
        state.heap[: state.c[engine.HEAP]],
    )
    for table in tables:
        columns += [table[name].copy() for name in table.dtype.names or () if name not in IGNORED]
    return columns


# ---------------------------------------------------------------------------------------------------- driving


def random_decisions(case: Case, snapshot: Snapshot, rng: np.random.Generator) -> Iterator[Decision]:
    """Good ones and bad ones: rows and nodes that are not there, jobs that do not wait, nodes named twice."""
    count, nodes = len(case.workload), len(case.machine.cores)
    first = case.machine.first_core
    for _ in range(rng.integers(0, 4)):
        kind, share, capped = rng.integers(0, 10), float(rng.integers(0, 11)) / 10, bool(rng.integers(0, 2))
        wild = int(rng.integers(-2, count + 2))
        if kind < 6 and len(snapshot.queue) and len(snapshot.running):
            guest, host = int(rng.choice(snapshot.queue)), int(rng.choice(snapshot.running))
            whole = [n for n in range(nodes) if (snapshot.core_owner[first[n] : first[n + 1]] == host).all()]
            some = rng.permutation(whole)[: rng.integers(1, nodes + 1)].tolist()
            yield CoAllocate(CAUSE, guest, tuple(int(n) for n in some), host=host, share=share, capped=capped)
        elif kind < 7:
            some = rng.integers(-1, nodes + 1, rng.integers(0, 4)).tolist()
            yield CoAllocate(
                CAUSE, wild, tuple(some), host=int(rng.integers(-2, count + 2)), share=share, capped=capped
            )
        elif kind < 9:
            guest = int(rng.choice(snapshot.guests)) if len(snapshot.guests) and kind < 8 else wild
            yield SetShare(CAUSE, guest, share, capped)
        else:
            yield ExtendLimit(CAUSE, wild, float(rng.integers(0, 20)))


def expected(case: Case, cluster: RecordedCluster, decision: Decision) -> bool | None:
    """Must it be done? None where that hangs on how memory or surplus nodes are dealt."""
    job, core = cluster.state.job, cluster.state.core

    def is_in(row: int, *states: int) -> bool:
        return 0 <= row < len(job) and int(job["state"][row]) in states

    if isinstance(decision, SetShare):
        return is_in(decision.guest, engine.GUEST)
    if isinstance(decision, ExtendLimit):
        return decision.by_s > 0 and is_in(decision.job, engine.RUNNING, engine.GUEST)
    assert isinstance(decision, CoAllocate)
    first, nodes = case.machine.first_core, decision.nodes
    if not (is_in(decision.guest, engine.PENDING) and is_in(decision.host, engine.RUNNING)):
        return False
    if len(set(nodes)) < len(nodes) or any(not 0 <= n < len(case.machine.cores) for n in nodes):
        return False
    cores = [number for n in nodes for number in range(first[n], first[n + 1])]
    if sum(core["guest"][cores] < 0) < case.workload.cores[decision.guest]:
        return False
    if len(nodes) > case.workload.cores[decision.guest]:
        return None
    if any(core["owner"][number] != decision.host for number in cores if core["guest"][number] < 0):
        return False
    if any(core["owner"][number] != decision.host for number in cores):
        return None  # a node that is full of guests is dealt nothing
    return None if case.use_memory else True


def decide(case: Case, cluster: RecordedCluster, decision: Decision) -> None:
    """Apply one decision and check what became of it."""
    must = expected(case, cluster, decision)
    before, state = picture(cluster.state), cluster.state
    limit_end, planned_end = state.job["limit_end"].copy(), state.job["planned_end"].copy()
    (outcome,) = cluster.apply([decision])
    assert outcome.decision is decision
    assert must is None or outcome.done == must, outcome.reason
    if not outcome.done:
        assert outcome.reason
        for was, now in zip(before, picture(state), strict=True):
            np.testing.assert_array_equal(was, now)
    elif isinstance(decision, CoAllocate):
        guest = state.job[decision.guest]
        on = state.core["node"][state.core["guest"] == decision.guest]
        dealt = [int((on == node).sum()) for node in decision.nodes]
        assert sum(dealt) == case.workload.cores[decision.guest]
        assert guest["state"] == engine.GUEST
        assert guest["start"] == cluster.now_s
        assert (guest["host"], guest["share"], guest["capped"]) == (
            decision.host,
            decision.share,
            decision.capped,
        )
        for node, cores in zip(decision.nodes, dealt, strict=True):
            full = state.node["guests"][node] == state.node["cores"][node]
            assert full or cores >= max(dealt) - 1  # evenly
    elif isinstance(decision, SetShare):
        assert state.job["share"][decision.guest] == decision.share
        assert state.job["capped"][decision.guest] == decision.capped
    elif isinstance(decision, ExtendLimit):
        row = decision.job
        assert state.job["limit_end"][row] == limit_end[row] + decision.by_s
        if state.job["state"][row] == engine.RUNNING:
            assert state.job["planned_end"][row] == planned_end[row] + decision.by_s
    check(case, cluster)


class Account:
    """Σ rate·dt of every job, and core-seconds lent, integrated from what is so between events."""

    def __init__(self, case: Case, cluster: RecordedCluster) -> None:
        self.case, self.cluster = case, cluster
        self.done, self.given, self.got = np.zeros((3, len(case.workload)))

    def step(self, until: float) -> float:
        """On to the next event, or `until` if that is earlier; returns the time."""
        state = self.cluster.state
        begin, event = self.cluster.now_s, float(engine.next_event(state))
        end = min(event, until)
        rate, lending = state.job["rate"].copy(), state.job["lending"].copy()
        hosts, guests = state.job["state"] == engine.RUNNING, state.job["state"] == engine.GUEST
        active = hosts | guests
        host, share = state.job["host"].copy(), state.job["share"].copy()
        owners = {row: self._owners(row) for row in np.flatnonzero(guests).tolist()}
        self.cluster.run(end)
        self.done[active] += rate[active] * (end - begin)
        self.given[hosts] += lending[hosts] * (end - begin)
        self.got[guests] += lending[guests] * (end - begin)
        check(self.case, self.cluster)
        if event <= until:
            check_nobody_else_can_start(self.case, self.cluster)
        for row, were in owners.items():
            if state.job["state"][row] == engine.GUEST:
                if self._owners(row) - were or host[row] not in self._owners(row) | {-1}:
                    assert math.isnan(state.job["share"][row])  # a new host, or the old one gone
                elif self._owners(row) == were:
                    np.testing.assert_equal(state.job["share"][row], share[row])
                    assert state.job["host"][row] == host[row]
        return end

    def _owners(self, guest: int) -> set[int]:
        core = self.cluster.state.core
        return set(core["owner"][core["guest"] == guest].tolist()) - {-1}

    def close(self) -> None:
        """Everything is over: nobody is missing, every second of work was done, and what was given was got."""
        job, work = self.cluster.state.job, self.case.workload.work_s
        count = len(work)
        assert sorted(self.cluster.state.job["ended"].tolist()) == list(range(count))
        assert self.cluster.ended == count
        assert (job["state"] == engine.DONE).all()
        np.testing.assert_allclose(job["lost"], job["end"] - job["start"] - self.done, atol=1e-6)
        np.testing.assert_allclose(job["given"], self.given, atol=1e-6)
        np.testing.assert_allclose(job["lent"], self.got, atol=1e-6)
        assert job["given"].sum() == pytest.approx(job["lent"].sum(), abs=1e-6)
        assert not job["given"][~job["was_host"]].any()
        limit_end = job["start"] + self.case.workload.limit_s + job["extended"]
        for row in range(count):
            assert job["start"][row] >= self.case.workload.submit_s[row]
            if job["killed"][row]:
                assert self.case.kill
                assert job["end"][row] == pytest.approx(limit_end[row])
                assert self.done[row] < work[row]
            else:
                assert self.done[row] == pytest.approx(work[row], abs=1e-6 * max(1.0, work[row]))
                if self.case.kill:
                    assert job["end"][row] <= limit_end[row] + 1e-9
        core = self.cluster.state.core
        assert (core["owner"] == -1).all()
        assert (core["guest"] == -1).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(case=cases())
def test_whatever_is_decided_the_cluster_stays_whole(case: Case) -> None:
    cluster, rng = case.cluster(), np.random.default_rng(case.seed)
    account = Account(case, cluster)
    poll = cluster.now_s
    for _ in range(MOST_POLLS):
        poll += POLL_S
        while account.step(poll) < poll:
            pass
        for decision in random_decisions(case, cluster.snapshot(), rng):
            decide(case, cluster, decision)
        cluster.run(cluster.now_s)  # the pass that lending has caused
        check(case, cluster)
    while engine.next_event(cluster.state) < math.inf:
        account.step(math.inf)
    account.close()


@pytest.mark.parametrize("scheduler", ["easy", "fcfs", "conservative"])
@settings(deadline=None, max_examples=30)
@given(case=cases())
def test_looking_without_deciding_changes_nothing(scheduler: str, case: Case) -> None:
    watched, alone = case.cluster(scheduler), case.cluster(scheduler)
    while watched.advance():
        watched.snapshot()
        watched.finished()
    alone.run()
    plain = RecordedCluster(
        case.workload,
        case.machine,
        MU,
        scheduler=scheduler,
        kill=case.kill,
        lending=False,
        use_memory=case.use_memory,
    )
    plain.run()
    for other in (watched, alone):
        np.testing.assert_array_equal(other.state.job["start"], plain.state.job["start"])
        np.testing.assert_array_equal(other.state.job["end"], plain.state.job["end"])
        assert not other.state.job["killed"].any()


# ------------------------------------------------------------------------------------------------------ polls


def played(case: Case, window_s: float, decide_too: bool) -> tuple[list[float], list[Decision], engine.State]:
    """The polls that are visited, what was decided there, and how it ended."""
    cluster, rng = case.cluster(window_s=window_s), np.random.default_rng(case.seed)
    visits: list[float] = []
    decisions: list[Decision] = []
    while cluster.advance():
        visits.append(cluster.now_s)
        some = list(random_decisions(case, cluster.snapshot(), rng)) if decide_too else []
        if len(visits) <= MOST_POLLS:
            decisions += [outcome.decision for outcome in cluster.apply(some) if outcome.done]
    return visits, decisions, cluster.state


@settings(deadline=None, max_examples=60)
@given(case=cases(), window=st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.7]), decide_too=st.booleans())
def test_polls_that_show_something_are_visited_and_no_others(
    case: Case, window: float, decide_too: bool
) -> None:
    window_s = window * POLL_S
    visits, decisions, state = played(case, window_s, decide_too)
    again, same_decisions, same_state = played(case, window_s, decide_too)
    assert (visits, decisions) == (again, same_decisions)
    np.testing.assert_array_equal(state.job["end"], same_state.job["end"])

    # the same once more, but stopping at every poll there is
    cluster, rng = case.cluster(window_s=window_s), np.random.default_rng(case.seed)
    state = cluster.state

    def seen() -> NDArray[np.float64]:
        job = state.job
        running = np.isin(job["state"], (engine.RUNNING, engine.GUEST))
        measured = running & (cluster.now_s - job["start"] >= window_s)
        columns = [job[name].astype(float) for name in ("state", "start", "host", "rate", "limit_end")]
        return np.asarray(np.nan_to_num([*columns, measured.astype(float)], nan=-2.0, posinf=-3.0))

    tick, visited = cluster.now_s, 0
    by_others, by_anyone = seen(), seen()
    while cluster.ended < len(case.workload):
        tick += POLL_S
        cluster.run(tick)
        now_seen = seen()
        anything_to_do = state.c[engine.WAITING] > 0 or state.c[engine.GUESTS] > 0
        visit = visited < len(visits) and visits[visited] == tick
        if anything_to_do and not np.array_equal(now_seen, by_others):
            assert visit, f"at {tick} s something has changed"
        if visit:
            assert anything_to_do, f"at {tick} s nobody waits and nobody is lent to"
            # a rate may have moved and moved back between two polls: the mark of a change reports that
            changed = not np.array_equal(now_seen, by_anyone) or state.c[CHANGED] != 0
            assert changed, f"at {tick} s nothing has changed"
            visited += 1
        state.c[CHANGED] = 0
        if visit and decide_too:
            some = list(random_decisions(case, cluster.snapshot(), rng))
            if visited <= MOST_POLLS:
                cluster.apply(some)
        by_anyone, by_others = now_seen, seen()  # before what we did ourselves, and after
    assert visited == len(visits)


@settings(deadline=None, max_examples=20)
@given(case=cases(most_jobs=10), ahead=st.integers(1, 40))
def test_a_wake_is_kept_while_there_is_anything_to_do_and_ends_with_the_last_job(
    case: Case, ahead: int
) -> None:
    cluster = case.cluster()
    last = cluster.now_s
    for _ in range(10_000):
        wake = cluster.now_s + ahead
        if not cluster.advance(wake):
            break
        assert cluster.now_s > last
        last = cluster.now_s
    else:
        raise AssertionError("it never ends")
    assert cluster.ended == len(case.workload)

"""What every `Cluster` must hold, whatever is behind it. A new kind of cluster adds a factory to `CLUSTERS`.

The suite looks at the port alone: it makes its own decisions (the first waiting job that fits beside a host)
and keeps its own account of what it was shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from desk_of_the_docs import desk_cluster
from mesos_on_paper import paper_cluster

from asad.contention import load_contention
from asad.decisions import (
    EVICTIONS,
    Admit,
    Cause,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
)
from asad.model import Finished, Jobs, Machine, Snapshot
from asad.port import Cluster
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

CAUSE = Cause("contract", "because the contract is tested")
NODES, NODE_CORES, JOBS = 4, 8, 80
JOB_COLUMNS = [column.name for column in dataclasses.fields(Jobs)]
SHOWN = ("queue", "running", "guests", "core_owner", "core_guest")


@dataclass(frozen=True)
class Driven:
    """A cluster with `total` jobs to run, and a way to let it live until there is something new to see."""

    cluster: Cluster
    total: int
    advance: Callable[[], bool]
    """False when all jobs have ended."""


def recorded(scheduler: str) -> Driven:
    """Jobs of 1 to 24 cores on 4 nodes of 8, more than fit at once; they use 20 to 90 % of their cores.

    Every third is a task of one of two arrays; every fifth states something.
    """
    rng = np.random.default_rng(7)
    array = np.full(JOBS, -1, np.int32)
    array[::3] = np.arange(len(array[::3])) % 2
    work = rng.uniform(60.0, 3600.0, JOBS).round()
    limit = work * rng.uniform(1.1, 4.0, JOBS)
    workload = Workload(
        job_id=np.arange(100, 100 + JOBS),
        submit_s=np.sort(rng.uniform(0.0, 14_400.0, JOBS)).round(),
        work_s=work,
        planned_s=limit,
        limit_s=limit,
        cores=rng.choice(np.array([1, 2, 4, 8, 8, 16, 24], np.int32), JOBS),
        nodes=np.zeros(JOBS, np.int32),
        memory_bytes_per_core=np.full(JOBS, 1e9),
        demand=rng.uniform(0.2, 0.9, JOBS),
        depends_on=np.full(JOBS, -1, np.int32),
        think_s=np.zeros(JOBS),
        application=(np.arange(JOBS) % 5).astype(np.int32),
        user=(np.arange(JOBS) % 3).astype(np.int32),
        array=array,
        hints={row: f"utility=constant({row})" for row in range(0, JOBS, 5)},
    )
    machine = Machine(
        node_names=tuple(f"n{number}" for number in range(NODES)),
        cores=np.full(NODES, NODE_CORES, np.int32),
        memory_bytes=np.full(NODES, 64e9),
        origin="the contract test",
    )
    cluster = RecordedCluster(workload, machine, load_contention(), scheduler=scheduler, use_memory=True)
    return Driven(cluster, JOBS, cluster.advance)


def mesos(inside: bool = False) -> Driven:
    """The same machine under Mesos: gangs of 1 to 24 tasks, and two elastic jobs as arrays."""
    cluster, paper, total = paper_cluster(NODES, NODE_CORES, JOBS, inside=inside)
    return Driven(cluster, total, paper.advance)


def desk() -> Driven:
    """The toy that docs/how-to/write-a-cluster.md makes."""
    cluster, manager = desk_cluster(NODES, NODE_CORES, JOBS)
    return Driven(cluster, JOBS, manager.advance)


CLUSTERS: dict[str, Callable[[], Driven]] = {
    "desk": desk,
    "mesos": mesos,
    "mesos-inside": lambda: mesos(inside=True),
    "recorded-easy": lambda: recorded("easy"),
    "recorded-fcfs": lambda: recorded("fcfs"),
    "recorded-conservative": lambda: recorded("conservative"),
}


@pytest.fixture(params=CLUSTERS)
def driven(request: pytest.FixtureRequest) -> Driven:
    """A cluster before its first job."""
    return CLUSTERS[request.param]()


def copied(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it is now: a cluster may show views, which are true until it moves on."""
    jobs = Jobs(**{name: getattr(snapshot.jobs, name).copy() for name in JOB_COLUMNS})
    return dataclasses.replace(
        snapshot, jobs=jobs, **{name: getattr(snapshot, name).copy() for name in SHOWN}
    )


def looks(driven: Driven) -> Iterator[Snapshot]:
    """Every look at the cluster until all is over."""
    while driven.advance():
        yield copied(driven.cluster.snapshot())


def offers(snapshot: Snapshot) -> list[CoAllocate]:
    """For each host without a guest, the first waiting job not yet offered that fits on its whole nodes."""
    first = snapshot.machine.first_core
    waiting = snapshot.queue.tolist()
    made = []
    for host in snapshot.running.tolist():
        nodes = [
            node
            for node in range(len(snapshot.machine.cores))
            if (snapshot.core_owner[first[node] : first[node + 1]] == host).all()
            and (snapshot.core_guest[first[node] : first[node + 1]] < 0).all()
        ]
        room = int(snapshot.machine.cores[nodes].sum())
        guest = next((row for row in waiting if snapshot.jobs.cores[row] <= room), None)
        if nodes and guest is not None:
            waiting.remove(guest)
            made.append(CoAllocate(CAUSE, guest, tuple(nodes), host=host, share=0.3))
    return made


def pool_offers(snapshot: Snapshot) -> list[CoAllocate]:
    """The same, for guests that draw from the pools of those nodes half of what their cores are worth."""
    made = []
    for offer in offers(snapshot):
        count, cores = len(offer.nodes), int(snapshot.jobs.cores[offer.guest])
        spread = [cores // count + (k < cores % count) for k in range(count)]
        nodes = tuple(node for node, held in zip(offer.nodes, spread, strict=True) if held)
        demands = tuple(0.5 * held for held in spread if held)
        made.append(CoAllocate(CAUSE, offer.guest, nodes, demands))
    return made


def same_sight(one: Snapshot, other: Snapshot) -> bool:
    """Do two looks show the same jobs in the same places?"""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in SHOWN)


# -------------------------------------------------------------------------------------------------- snapshots


def check_consistent(snapshot: Snapshot) -> None:
    """Who waits, who runs, who is a guest, and who is on which core agree."""
    jobs, now = snapshot.jobs, snapshot.time_s
    queue, running, guests = snapshot.queue, snapshot.running, snapshot.guests
    rows = np.concatenate((queue, running, guests))
    assert len(set(rows.tolist())) == len(rows), "a job is in two places"
    assert snapshot.waiting >= len(queue)
    assert (jobs.submit_s[rows] <= now).all()

    if (waits := snapshot.waits) is not None:
        assert set(queue.tolist()) <= set(waits.row.tolist()), "who is in the queue waits"
        assert np.isnan(jobs.start_s[waits.row]).all() and waits.tasks.sum() == snapshot.waiting
        assert waits.reason.max(initial=0) < len(waits.reasons)
        assert waits.partition.max(initial=0) < len(waits.partitions)
    assert np.isnan(jobs.start_s[queue]).all()
    assert np.isnan(jobs.limit_end_s[queue]).all()
    assert (jobs.host[queue] == -1).all()
    for row in np.concatenate((running, guests)).tolist():
        assert jobs.start_s[row] <= now
        assert jobs.limit_end_s[row] >= now
        assert jobs.lost_s[row] >= -1e-6
        assert 0 <= jobs.pace[row] <= 1 or np.isnan(jobs.pace[row])
        assert np.isnan(jobs.cpu_fraction[row]) or 0 <= jobs.cpu_fraction[row] <= 1

    total = snapshot.machine.total_cores
    assert snapshot.core_owner.shape == snapshot.core_guest.shape == (total,)
    for cores, on_them in ((snapshot.core_owner, running), (snapshot.core_guest, guests)):
        held = np.bincount(cores[cores >= 0], minlength=len(jobs.cores))
        assert sorted(np.flatnonzero(held)) == sorted(on_them.tolist())
        assert (held[on_them] == jobs.cores[on_them]).all(), "a gang is whole or not there at all"
    assert (jobs.host[running] == -1).all()
    for guest in guests.tolist():
        beside = set(snapshot.core_owner[snapshot.core_guest == guest].tolist())
        host = int(jobs.host[guest])
        assert host == -1 or host in beside, "a guest's host is not where the guest is"
        assert np.isnan(jobs.share[guest]) or 0 <= jobs.share[guest] <= 1

    memory = np.zeros(total)
    for cores in (snapshot.core_owner, snapshot.core_guest):
        memory[cores >= 0] += jobs.memory_bytes_per_core[cores[cores >= 0]]
    by_node = np.add.reduceat(memory, snapshot.machine.first_core[:-1])
    assert (by_node <= snapshot.machine.memory_bytes * (1 + 1e-9)).all(), "memory is oversubscribed"


def test_every_look_is_consistent_with_and_without_lending(driven: Driven) -> None:
    lent = 0
    for snapshot in looks(driven):
        check_consistent(snapshot)
        outcomes = list(driven.cluster.apply(offers(snapshot)))
        lent += sum(outcome.done for outcome in outcomes)
        check_consistent(driven.cluster.snapshot())
    assert lent > 5, "the test has to lend something to mean anything"


def test_the_version_rises_when_what_is_seen_has_changed_and_never_falls(driven: Driven) -> None:
    before: Snapshot | None = None
    changes = 0
    for snapshot in looks(driven):
        if before is not None:
            assert snapshot.time_s > before.time_s
            assert snapshot.version >= before.version
            if not same_sight(before, snapshot):
                changes += 1
                assert snapshot.version > before.version
        before = snapshot
        driven.cluster.apply(offers(snapshot)[:1])
    assert changes > 20


def test_looking_twice_shows_the_same(driven: Driven) -> None:
    for snapshot in looks(driven):
        again = driven.cluster.snapshot()
        assert again.version == snapshot.version
        assert again.time_s == snapshot.time_s
        assert same_sight(snapshot, again)
        for name in JOB_COLUMNS:
            np.testing.assert_array_equal(getattr(snapshot.jobs, name), getattr(again.jobs, name))


def test_nothing_of_the_future_is_visible(driven: Driven) -> None:
    """Of a job that has not started nothing is known but what its user asked for."""
    ended: set[int] = set()
    for snapshot in looks(driven):
        ended |= set(driven.cluster.finished(-np.inf).row.tolist())
        started = ended | set(snapshot.running.tolist()) | set(snapshot.guests.tolist())
        others = np.array(sorted(set(range(len(snapshot.jobs.cores))) - started), np.intp)
        for name in ("start_s", "limit_end_s", "cpu_fraction", "share"):
            assert np.isnan(getattr(snapshot.jobs, name)[others]).all(), name
        for name in ("lost_s", "extended_s"):
            assert (getattr(snapshot.jobs, name)[others] == 0).all(), name
        estimates = snapshot.jobs.estimated_start_s[snapshot.queue]
        assert (np.isnan(estimates) | (estimates >= snapshot.jobs.submit_s[snapshot.queue])).all()
    assert ended


# -------------------------------------------------------------------------------------------------- decisions


def test_a_lending_puts_the_whole_guest_beside_its_host_at_once(driven: Driven) -> None:
    done = 0
    for snapshot in looks(driven):
        for outcome in driven.cluster.apply(offers(snapshot)):
            if not outcome.done:
                continue
            done += 1
            assert outcome.reason == ""
            decision = outcome.decision
            assert isinstance(decision, CoAllocate)
            after = driven.cluster.snapshot()
            assert decision.guest in after.guests
            assert decision.guest not in after.queue
            assert after.jobs.host[decision.guest] == decision.host
            assert after.jobs.share[decision.guest] == decision.share
            first = after.machine.first_core
            offered = np.concatenate([np.arange(first[node], first[node + 1]) for node in decision.nodes])
            cores = np.flatnonzero(after.core_guest == decision.guest)
            assert len(cores) == after.jobs.cores[decision.guest]
            assert np.isin(cores, offered).all()
    assert done > 5


def test_outcomes_come_one_a_decision_in_order(driven: Driven) -> None:
    sizes = set()
    for snapshot in looks(driven):
        made: list[Decision] = [*offers(snapshot)]
        made += [ExtendLimit(CAUSE, row, 60.0) for row in snapshot.queue.tolist()[:2]]  # they do not run
        made += [SetShare(CAUSE, row, 0.2) for row in snapshot.running.tolist()[:2]]  # they are no guests
        outcomes = list(driven.cluster.apply(made))
        assert [outcome.decision for outcome in outcomes] == made
        assert all(outcome.done == (outcome.reason == "") for outcome in outcomes)
        sizes.add(len(made))
    assert list(driven.cluster.apply([])) == []
    assert max(sizes) > 3


def test_shares_and_limits_move_as_decided(driven: Driven) -> None:
    moved = 0
    for snapshot in looks(driven):
        guests = snapshot.guests.tolist()
        limit = {row: float(snapshot.jobs.limit_end_s[row]) for row in guests}
        extended = {row: float(snapshot.jobs.extended_s[row]) for row in guests}
        for row in guests:
            outcomes = list(
                driven.cluster.apply([SetShare(CAUSE, row, 0.45), ExtendLimit(CAUSE, row, 120.0)])
            )
            assert [outcome.done for outcome in outcomes] == [True, True]
            jobs = driven.cluster.snapshot().jobs
            assert jobs.share[row] == 0.45
            assert jobs.limit_end_s[row] == pytest.approx(limit[row] + 120.0)
            assert jobs.extended_s[row] == pytest.approx(extended[row] + 120.0)
            moved += 1
        driven.cluster.apply(offers(snapshot)[:1])
    assert moved > 5


@dataclass(frozen=True, slots=True)
class Unheard(Decision):
    """A kind of decision that no cluster knows."""

    kind: ClassVar[str] = "unheard-of"


def test_late_and_impossible_decisions_are_refused_with_a_reason_and_change_nothing(driven: Driven) -> None:
    ended: list[int] = []
    tried = 0
    for snapshot in looks(driven):
        ended += driven.cluster.finished(-np.inf).row.tolist()
        late: list[Decision] = [Unheard(CAUSE)]
        if ended:
            gone = ended[-1]
            late += [SetShare(CAUSE, gone, 0.5), ExtendLimit(CAUSE, gone, 60.0)]
            if len(snapshot.running):
                late.append(
                    CoAllocate(CAUSE, gone, (0,), host=int(snapshot.running[0]), share=0.3)
                )  # the guest has ended
            if len(snapshot.queue):
                late.append(
                    CoAllocate(CAUSE, int(snapshot.queue[0]), (0,), host=gone, share=0.3)
                )  # the host has ended
        if len(snapshot.queue) > 1:
            waiting = snapshot.queue.tolist()
            late.append(
                CoAllocate(CAUSE, waiting[0], (0,), host=waiting[1], share=0.3)
            )  # the host has not started
        for node in range(NODES):
            owner = int(snapshot.core_owner[snapshot.machine.first_core[node]])
            for host in snapshot.running.tolist():
                if owner not in (-1, host) and len(snapshot.queue):
                    late.append(
                        CoAllocate(CAUSE, int(snapshot.queue[0]), (node,), host=host, share=0.3)
                    )  # another's node
        outcomes = list(driven.cluster.apply(late))
        tried += len(late)
        assert [outcome.decision for outcome in outcomes] == late
        assert not any(outcome.done for outcome in outcomes)
        assert all(outcome.reason for outcome in outcomes)
        assert same_sight(snapshot, driven.cluster.snapshot())
    assert tried > 100


def test_the_same_lending_twice_is_done_once(driven: Driven) -> None:
    tried = 0
    for snapshot in looks(driven):
        for offer in offers(snapshot)[:1]:
            first, second = driven.cluster.apply([offer, offer])
            tried += first.done
            assert not second.done
            assert second.reason
    assert tried > 3


def test_a_guest_that_draws_from_pools_has_a_demand_and_no_host(driven: Driven) -> None:
    lent = 0
    for snapshot in looks(driven):
        assert np.isnan(snapshot.jobs.demand[snapshot.running]).all()
        assert np.isnan(snapshot.jobs.demand[snapshot.queue]).all()
        for outcome in driven.cluster.apply(pool_offers(snapshot)):
            if not outcome.done:
                assert outcome.reason
                continue
            lent += 1
            decision = outcome.decision
            assert isinstance(decision, CoAllocate)
            after = driven.cluster.snapshot()
            assert decision.guest in after.guests and decision.guest not in after.queue
            assert after.jobs.host[decision.guest] == -1
            demand = sum(decision.demands) / after.jobs.cores[decision.guest]
            assert after.jobs.demand[decision.guest] == pytest.approx(demand)
            check_consistent(after)
    assert lent > 5, "the test has to lend something to mean anything"


def test_quotas_and_what_hosts_lend_move_as_decided(driven: Driven) -> None:
    moved = seen = 0
    ended: list[int] = []
    for snapshot in looks(driven):
        ended += driven.cluster.finished(-np.inf).row.tolist()
        first = snapshot.machine.first_core
        for guest in snapshot.guests.tolist():
            held = np.flatnonzero(snapshot.core_guest == guest)
            nodes = sorted(set((np.searchsorted(first, held, side="right") - 1).tolist()))
            quota = SetQuota(CAUSE, guest, tuple(nodes), (0.25,) * len(nodes))
            wrong = [
                SetQuota(CAUSE, guest, tuple(nodes), (value,) * len(nodes)) for value in (0.0, np.nan, np.inf)
            ]
            wrong.append(SetQuota(CAUSE, guest, (nodes[0],), (1.0, 1.0)))
            others = sorted(set(range(NODES)) - set(nodes))
            wrong += [SetQuota(CAUSE, guest, (node,), (1.0,)) for node in others[:1]]
            outcomes = list(driven.cluster.apply([quota, *wrong]))
            assert [outcome.done for outcome in outcomes] == [True, *([False] * len(wrong))]
            assert all(outcome.reason for outcome in outcomes[1:])
            moved += 1
        for host in snapshot.running[:1].tolist():
            (outcome,) = driven.cluster.apply([SetShare(CAUSE, share=0.35, host=host)])
            assert outcome.done, outcome.reason
            assert driven.cluster.snapshot().jobs.share[host] == 0.35
            seen += 1
        late: list[Decision] = [SetShare(CAUSE, share=0.3, host=row) for row in snapshot.queue[:1].tolist()]
        late += [SetQuota(CAUSE, row, (0,), (1.0,)) for row in snapshot.running[:1].tolist()]
        late += [SetQuota(CAUSE, row, (0,), (1.0,)) for row in ended[-1:]]
        late += [SetShare(CAUSE, share=0.3, host=row) for row in ended[-1:]]
        outcomes = list(driven.cluster.apply(late))
        assert not any(outcome.done for outcome in outcomes) and all(outcome.reason for outcome in outcomes)
        assert same_sight(snapshot, driven.cluster.snapshot())
        driven.cluster.apply(pool_offers(snapshot)[:1])
    assert moved > 5 and seen > 5


# -------------------------------------------------------------------------------------------------- admission


def check_arrays(snapshot: Snapshot) -> None:
    """Counts of arrays show what the jobs show, and who waits can be found."""
    jobs, arrays = snapshot.jobs, snapshot.arrays
    columns = [getattr(arrays, column.name) for column in dataclasses.fields(arrays)]
    assert {len(column) for column in columns} == {len(arrays)}
    assert (jobs.array < len(arrays)).all()
    for number, row in enumerate(arrays.waiting_row.tolist()):
        on = np.concatenate((snapshot.running, snapshot.guests))
        assert arrays.running[number] == (jobs.array[on] == number).sum()
        assert (row >= 0) == (arrays.waiting[number] > 0)
        if row >= 0:
            assert jobs.array[row] == number
            assert np.isnan(jobs.start_s[row])
    assert (arrays.throttle >= 0).all()
    assert all(isinstance(text, str) and text for text in snapshot.hints.values())
    assert (jobs.submit_s[sorted(snapshot.hints)] <= snapshot.time_s).all()


def first_waiting(snapshot: Snapshot, *, task: bool) -> int:
    """The first job of the queue that is a task of an array, or is none; -1 if there is none."""
    return next((row for row in snapshot.queue.tolist() if (snapshot.jobs.array[row] >= 0) == task), -1)


def test_arrays_and_hints_are_consistent(driven: Driven) -> None:
    waiting = hinted = 0
    for snapshot in looks(driven):
        check_arrays(snapshot)
        waiting += int((snapshot.arrays.waiting > 0).sum())
        hinted += len(snapshot.hints)
    assert waiting > 5
    assert hinted > 5


def test_a_throttle_holds_from_then_on_and_stops_nobody(driven: Driven) -> None:
    throttle: dict[int, int] = {}
    running: dict[int, int] = {}
    for snapshot in looks(driven):
        check_arrays(snapshot)
        for number, tasks in throttle.items():
            assert snapshot.arrays.running[number] <= max(tasks, running[number])
            running[number] = int(snapshot.arrays.running[number])
        row = first_waiting(snapshot, task=True)
        number = int(snapshot.jobs.array[row])
        if row >= 0 and number not in throttle:
            tasks = 1 + number
            (outcome,) = driven.cluster.apply([SetThrottle(CAUSE, row, tasks)])
            assert outcome.done, outcome.reason
            after = driven.cluster.snapshot()
            assert after.arrays.throttle[number] == tasks
            assert after.arrays.running[number] == snapshot.arrays.running[number]
            throttle[number], running[number] = tasks, int(snapshot.arrays.running[number])
    assert len(throttle) == 2


def test_who_is_deferred_does_not_start_until_then_and_starts_after_all(driven: Driven) -> None:
    until: dict[int, float] = {}
    called: set[int] = set()
    started: dict[int, float] = {}
    for snapshot in looks(driven):
        for row in np.concatenate((snapshot.running, snapshot.guests)).tolist():
            started.setdefault(row, float(snapshot.jobs.start_s[row]))
        row = first_waiting(snapshot, task=False)
        if row >= 0 and row not in until and len(until) < 12:
            until[row] = snapshot.time_s + 1800.0
            (outcome,) = driven.cluster.apply([Defer(CAUSE, row, until[row])])
            assert outcome.done, outcome.reason
            after = driven.cluster.snapshot()
            assert after.jobs.begin_s[row] == pytest.approx(until[row], abs=1.0)
            assert row not in after.queue
            assert np.isnan(after.own_begins[row]), "its user gave none"
            if len(until) % 3 == 0:
                (outcome,) = driven.cluster.apply([Start(CAUSE, row)])
                assert outcome.done, outcome.reason
                after = driven.cluster.snapshot()
                assert not after.jobs.begin_s[row] > snapshot.time_s and row not in after.own_begins
                called.add(row)
    assert len(until) == 12
    for row in until.keys() - called:
        assert started.get(row, np.inf) >= until[row]
    assert any(started[row] < until[row] for row in called & started.keys())


def test_the_admitted_stand_before_all_others_and_a_decline_moves_nobody(driven: Driven) -> None:
    moved = 0
    admitted: list[int] = []
    for snapshot in looks(driven):
        rigid = [row for row in snapshot.queue.tolist() if snapshot.jobs.array[row] < 0]
        if len(rigid) > 3 and rigid[-1] not in admitted:
            (declined,) = driven.cluster.apply([Decline(CAUSE, rigid[1])])
            assert declined.done, declined.reason
            assert same_sight(snapshot, driven.cluster.snapshot())
            (outcome,) = driven.cluster.apply([Admit(CAUSE, rigid[-1])])
            assert outcome.done, outcome.reason
            admitted.append(rigid[-1])
            queue = driven.cluster.snapshot().queue.tolist()
            before = queue.index(rigid[-1])
            assert all(row in admitted for row in queue[:before])
            assert [row for row in queue if row not in admitted] == [
                row for row in snapshot.queue.tolist() if row not in admitted
            ]
            moved += 1
    assert moved > 3


def test_admission_that_comes_too_late_is_refused(driven: Driven) -> None:
    tried = 0
    for snapshot in looks(driven):
        alone = [row for row in snapshot.running.tolist() if snapshot.jobs.array[row] < 0]
        late: list[Decision] = [SetThrottle(CAUSE, row, 1) for row in alone[:1]]
        for row in alone[:1]:
            late += [Admit(CAUSE, row), Decline(CAUSE, row), Start(CAUSE, row)]
            late.append(Defer(CAUSE, row, snapshot.time_s + 600.0))
        outcomes = list(driven.cluster.apply(late))
        assert not any(outcome.done for outcome in outcomes)
        assert all(outcome.reason for outcome in outcomes)
        assert same_sight(snapshot, driven.cluster.snapshot())
        tried += len(late)
    assert tried > 20


def test_evictions_end_running_jobs_or_are_refused(driven: Driven) -> None:
    gone = 0
    for snapshot in looks(driven):
        alone = [row for row in snapshot.running.tolist() if snapshot.jobs.array[row] < 0]
        waits = snapshot.queue.tolist()
        wrong = [Evict(CAUSE, row, how) for row in waits[:1] for how in EVICTIONS]
        wrong += [Evict(CAUSE, row, "by force") for row in alone[:1]]
        outcomes = list(driven.cluster.apply(wrong))
        assert not any(outcome.done for outcome in outcomes) and all(outcome.reason for outcome in outcomes)
        assert same_sight(snapshot, driven.cluster.snapshot())
        for row in alone[-1:]:
            (outcome,) = driven.cluster.apply([Evict(CAUSE, row, EVICTIONS[gone % 2])])
            assert outcome.done == (not outcome.reason)
            if outcome.done:
                gone += 1
                assert row not in driven.cluster.snapshot().running
        if gone == 4:
            break


# ---------------------------------------------------------------------------------------------------- the end


def test_every_job_is_reported_finished_exactly_once(driven: Driven) -> None:
    seen: list[int] = []
    since = -np.inf

    def take(now: float) -> None:
        ended: Finished = driven.cluster.finished(since)
        shown = (getattr(ended, column.name) for column in dataclasses.fields(Finished))
        columns = [column for column in shown if column is not None]
        assert len({len(column) for column in columns}) == 1
        assert ((ended.end_s > since) & (ended.end_s <= now)).all()
        assert (ended.run_s > 0).all()
        assert ((ended.lost_s >= -1e-6) & (ended.lost_s <= ended.run_s)).all()
        seen.extend(ended.row.tolist())

    for snapshot in looks(driven):
        take(snapshot.time_s)
        assert not set(seen) & set(
            np.concatenate((snapshot.queue, snapshot.running, snapshot.guests)).tolist()
        )
        since = snapshot.time_s
        driven.cluster.apply(offers(snapshot))
    take(np.inf)
    assert sorted(seen) == list(range(driven.total))
    assert len(driven.cluster.finished(-np.inf).row) == 0


def test_memory_limits_are_answered_and_never_raised(driven: Driven) -> None:
    seen = 0
    for snapshot in looks(driven):
        rows = [*snapshot.running[:2].tolist(), *snapshot.queue[:1].tolist(), *snapshot.guests[:1].tolist()]
        decisions = [
            SetMemory(CAUSE, row, bytes_) for row in rows for bytes_ in (0.0, 1e9, -1.0, float("nan"))
        ]
        outcomes = list(driven.cluster.apply(decisions))
        assert [outcome.decision for outcome in outcomes] == decisions
        assert all(outcome.done == (not outcome.reason) for outcome in outcomes)
        seen += len(outcomes)
    assert seen > 0

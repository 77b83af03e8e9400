"""The recorded cluster in situations small enough to compute by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from asad.contention import Contention
from asad.decisions import Cause, CoAllocate, Decision, ExtendLimit, SetShare
from asad.model import Machine
from asad.replay import engine
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

CAUSE = Cause("test", "because")
FREE_SHARING = Contention(1.0, 1.0, 1.0, 1.0, "made up")
COSTLY_SHARING = Contention(0.9, 0.8, 0.5, 0.4, "made up")


@dataclass(frozen=True)
class J:
    """One job; it runs as long as planned unless `work_s` says otherwise."""

    submit_s: float
    planned_s: float
    cores: int
    work_s: float | None = None
    demand: float = 0.5
    memory: float = 0.0
    depends_on: int = -1
    think_s: float = 0.0


def cluster(
    jobs: Sequence[J],
    node_cores: Sequence[int],
    *,
    scheduler: str = "easy",
    kill: bool = True,
    node_memory: float | None = None,
    contention: Contention = FREE_SHARING,
    per_event: bool = False,
    window_s: float = 20.0,
    depth: int = 100,
) -> RecordedCluster:
    """A cluster polled every 10 s."""

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([getattr(job, name) for job in jobs], float)

    workload = Workload(
        job_id=np.arange(len(jobs)),
        submit_s=column("submit_s"),
        work_s=np.array([job.planned_s if job.work_s is None else job.work_s for job in jobs]),
        planned_s=column("planned_s"),
        limit_s=column("planned_s"),
        cores=column("cores").astype(np.int32),
        nodes=np.zeros(len(jobs), np.int32),
        memory_bytes_per_core=column("memory"),
        demand=column("demand"),
        depends_on=column("depends_on").astype(np.int32),
        think_s=column("think_s"),
        application=np.zeros(len(jobs), np.int32),
        user=np.zeros(len(jobs), np.int32),
    )
    memory = np.full(len(node_cores), math.nan if node_memory is None else node_memory)
    names = tuple(f"n{i}" for i in range(len(node_cores)))
    return RecordedCluster(
        workload,
        Machine(names, np.array(node_cores, np.int32), memory, "made up"),
        contention,
        scheduler=scheduler,
        per_event=per_event,
        kill=kill,
        use_memory=node_memory is not None,
        poll_s=10.0,
        window_s=window_s,
        depth=depth,
    )


def do(simulated: RecordedCluster, decision: Decision) -> str:
    """Apply it; why it was refused, or the empty string."""
    (outcome,) = simulated.apply([decision])
    assert outcome.done == (not outcome.reason)
    return outcome.reason


def lend(
    guest: int, host: int, nodes: Sequence[int] = (0,), share: float = 0.5, capped: bool = False
) -> Decision:
    return CoAllocate(CAUSE, guest, tuple(nodes), host=host, share=share, capped=capped)


def starts(simulated: RecordedCluster) -> list[float]:
    simulated.run()
    assert simulated.ended == len(simulated.workload)
    return [float(start) for start in simulated.state.job["start"]]


# --------------------------------------------------------------------------------------------- the scheduler


BACKFILL = [
    J(0, 100, 4),  # 2 cores stay free
    J(1, 100, 5),  # head: reserved at 100, 1 extra core
    J(2, 200, 2),  # too long, and wider than the extra
    J(3, 200, 1),  # too long, but on the extra core
    J(4, 96, 1),  # ends by 100
    J(5, 95, 1),  # would end by 100, but nothing is free
]


def test_easy_backfills_by_the_shadow_time_and_by_the_extra_processors() -> None:
    assert starts(cluster(BACKFILL, [6])) == [0, 100, 200, 3, 4, 200]


def test_fcfs_lets_nobody_pass() -> None:
    assert starts(cluster(BACKFILL, [6], scheduler="fcfs")) == [0, 100, 200, 200, 200, 200]


def test_conservative_promises_even_when_nothing_is_free() -> None:
    jobs = [
        J(0, 100, 4, work_s=50),
        J(1, 100, 3),  # promised 100
        J(2, 150, 1),  # promised 100, beside it
        J(3, 100, 1),  # comes third, so at 200
    ]
    # it ends at 50 already, and everybody moves up in the order of arrival
    assert starts(cluster(jobs, [4], scheduler="conservative")) == [0, 50, 50, 150]


@pytest.mark.parametrize("scheduler", ["easy", "conservative"])
def test_a_job_of_unlimited_time_holds_its_cores_for_ever_as_far_as_anybody_plans(scheduler: str) -> None:
    jobs = [J(0, 100, 4), J(1, math.inf, 4, work_s=50), J(2, 10, 1), J(3, 10, 4)]
    simulated = cluster(jobs, [4], scheduler=scheduler)
    simulated.run(10.0)
    snapshot = simulated.snapshot()
    assert snapshot.queue.tolist() == [1, 2, 3]
    assert snapshot.jobs.estimated_start_s[[1, 2, 3]].tolist() == [100, math.inf, math.inf]
    assert starts(simulated) == [0, 100, 150, 160]


def test_estimated_starts_let_nobody_disturb_those_before() -> None:
    simulated = cluster(BACKFILL, [4, 2])
    simulated.run(10.0)
    # the head at 100, when it leaves none of six cores free but the one that the long job holds
    assert simulated.snapshot().jobs.estimated_start_s[[1, 2, 5]].tolist() == [100, 200, 200]


def test_every_job_that_waits_for_the_same_one_arrives_once() -> None:
    jobs = [J(0, 10, 1), *(J(1, 5, 1, depends_on=0, think_s=think) for think in (3.0, 0.0, 7.0)), J(2, 5, 1)]
    simulated = cluster(jobs, [8])
    assert starts(simulated) == [0, 13, 10, 17, 2]
    assert simulated.state.job["eligible"].tolist() == [0, 13, 10, 17, 2]


def test_dependencies_chain_and_never_bring_a_job_before_its_own_submission() -> None:
    jobs = [J(0, 10, 1), J(1, 10, 1, depends_on=0), J(50, 10, 1, depends_on=1, think_s=5.0)]
    assert starts(cluster(jobs, [4])) == [0, 10, 50]


def test_where_passes_follow_events_ends_come_before_arrivals_of_the_same_moment() -> None:
    jobs = [
        J(0, 10, 1),
        J(0, 20, 1, depends_on=0, think_s=10.0),  # known at 10, arrives at 20
        J(11, 9, 2),  # ends at 20, started after that arrival was known
        J(12, 5, 3),  # waits for it
    ]
    assert starts(cluster(jobs, [3], per_event=True)) == [0, 25, 11, 20]


# ---------------------------------------------------------------------------------------------------- memory


def test_a_job_waits_for_memory_and_the_head_keeps_its_nodes() -> None:
    jobs = [
        J(0, 100, 2, memory=8),  # all memory of node 0
        J(1, 100, 4, memory=8),  # head: needs both nodes, at 100
        J(2, 98, 2, memory=8),  # fits beside until 100
        J(3, 500, 1, memory=1),  # cores but no memory are left by then
    ]
    assert starts(cluster(jobs, [2, 2], node_memory=16)) == [0, 100, 2, 200]


def test_the_head_leaves_others_the_nodes_that_it_does_not_need() -> None:
    jobs = [
        J(0, 100, 2, memory=1),  # on node 1, for node 0 is taken first by …
        J(0, 50, 2, memory=1),
        J(1, 100, 3, memory=1),  # head: two nodes of two, at 50 one is free and one is idle
        J(2, 500, 1, memory=1),  # the sixth core is extra
    ]
    assert starts(cluster(jobs, [2, 2, 2], node_memory=100)) == [0, 0, 50, 2]


def test_conservative_starts_nobody_without_memory() -> None:
    jobs = [J(0, 100, 1, memory=10), J(1, 10, 1, memory=10), J(2, 10, 1, memory=0)]
    assert starts(cluster(jobs, [4], scheduler="conservative", node_memory=16)) == [0, 100, 2]


# ------------------------------------------------------------------------------------------------------ the twin


def test_the_twin_shows_the_starts_of_the_cluster_left_alone_and_only_what_is_certain() -> None:
    jobs = [J(0, 1000, 4, work_s=100), J(1, 1000, 4, work_s=50), J(2, 1000, 4, work_s=30)]
    alone_start = starts(cluster(jobs, [4]))
    assert alone_start == [0, 100, 150]
    simulated = cluster(jobs, [4], contention=Contention(0.7, 0.7, 0.7, 0.7, "made up"))
    known = {}
    lent = False
    while simulated.advance(simulated.now_s + 10):
        seen = simulated.snapshot()
        if not lent and simulated.now_s >= 10:
            assert do(simulated, lend(1, 0)) == ""
            lent = True
        known[seen.time_s] = seen.own_known_s
        assert seen.own_known_s <= seen.time_s
        for row, start in enumerate(seen.jobs.counterfactual_start_s.tolist()):
            if start <= seen.own_known_s:
                assert start == pytest.approx(alone_start[row])
            else:
                assert math.isnan(start)
    assert known[10] == 10
    # the host has been slowed since: alone it may have ended at any moment from here on
    assert known[80] == pytest.approx(10 + 70 * 0.7)
    assert max(known.values()) > 100  # it ended, and the second job's start is known


def test_whoever_waits_behind_guests_has_a_forecast_too() -> None:
    # two jobs are shown; without lending four wait, and those that are shown are the last of them
    jobs = [J(0, 1000, 4), *(J(1, 100, 1) for _ in range(4))]
    simulated = cluster(jobs, [4], depth=2)
    simulated.run(10.0)
    assert do(simulated, lend(1, 0)) == do(simulated, lend(2, 0)) == ""
    for time_s in (20.0, 60.0, 100.0):
        simulated.advance(time_s)
        seen = simulated.snapshot()
    assert seen.queue.tolist() == [3, 4]
    assert not np.isnan(seen.jobs.own_estimate_s[seen.queue]).any()


# --------------------------------------------------------------------------------------------------- lending


def test_a_guest_takes_what_its_host_leaves_and_is_never_counted() -> None:
    jobs = [J(0, 100, 4, demand=0.5), J(1, 1000, 4, work_s=40, demand=1.0), J(2, 100, 4)]
    simulated = cluster(jobs, [4])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, share=0.25)) == ""
    job = simulated.state.job
    assert job["rate"][:2].tolist() == [1.0, 0.25]
    assert simulated.state.c[engine.FREE] == 0
    simulated.run(100.0)
    # 90 s at 0.25 are done when the host ends; on came the next batch job, on all the cores it never held
    assert job["start"][2] == 100
    assert job["host"][1] == 2
    assert math.isnan(job["share"][1])
    assert job["rate"][1] == 0.5  # undecided, the idle class: all that the new host leaves
    simulated.run()
    assert job["end"].tolist() == [100, 135, 200]
    assert job["lost"].tolist() == pytest.approx([0, 125 - 40, 0])
    assert not job["killed"].any()


def test_a_guest_stays_when_its_host_ends_and_takes_the_idle_cores() -> None:
    jobs = [J(0, 100, 4, demand=1.0), J(1, 1000, 2, work_s=60, demand=1.0)]
    simulated = cluster(jobs, [4])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0)) == ""
    job = simulated.state.job
    assert job["rate"][1] == 0.0  # its host leaves nothing
    simulated.run(100.0)
    assert job["host"][1] == -1
    assert job["rate"][1] == 1.0
    simulated.run()
    assert job["end"].tolist() == [100, 160]
    assert job["lent"][1] == 0.0


def test_quotas_bind_host_and_guest_until_the_host_changes() -> None:
    jobs = [
        J(0, 1000, 4, work_s=100, demand=0.8),
        J(1, 1000, 4, work_s=500, demand=1.0),
        J(2, 100, 4, demand=0.8),
    ]
    simulated = cluster(jobs, [4], contention=COSTLY_SHARING)
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, share=0.6, capped=True)) == ""
    job = simulated.state.job
    # memory is not known: μ halfway
    assert job["rate"][0] == pytest.approx(0.4 / 0.8 * 0.7)
    assert job["rate"][1] == pytest.approx(0.6 * 0.6)
    simulated.run(300.0)
    assert job["start"][2] == pytest.approx(10 + 90 / 0.35)
    # quotas are not carried over to a host that nobody has decided on
    assert job["rate"][2] == pytest.approx(0.7)
    assert job["rate"][1] == pytest.approx(0.2 * 0.6)
    assert do(simulated, SetShare(CAUSE, 1, 0.3, True)) == ""
    assert job["rate"][2] == pytest.approx(0.7 / 0.8 * 0.7)
    assert job["rate"][1] == pytest.approx(0.3 * 0.6)


def test_a_guest_that_straddles_two_hosts_claims_its_share_of_each() -> None:
    jobs = [
        J(0, 50, 4, demand=0.5),
        J(1, 1000, 4, work_s=500, demand=1.0),  # the guest, on all four cores
        J(2, 200, 2, demand=0.5),
        J(3, 200, 2, demand=0.9),
    ]
    simulated = cluster(jobs, [4])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0)) == ""
    simulated.run(60.0)
    job = simulated.state.job
    assert job["start"][2:].tolist() == [50, 50]
    assert job["host"][1] == 2
    assert do(simulated, SetShare(CAUSE, 1, 0.4, True)) == ""
    assert job["rate"][1] == pytest.approx(0.4)
    assert job["rate"][2] == 1.0  # needs no more than the 60 % that it keeps
    assert job["rate"][3] == pytest.approx(0.6 / 0.9)


def test_when_a_share_is_void_the_hosts_on_other_nodes_feel_it_too() -> None:
    jobs = [
        J(0, 50, 4, demand=0.5),
        J(1, 1000, 4, work_s=500, demand=1.0),  # the guest, on both nodes
        J(2, 60, 2, demand=0.2),  # host on node 0, until 110
        J(3, 200, 2, demand=0.8),  # host on node 1
    ]
    simulated = cluster(jobs, [2, 2])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, [0, 1])) == ""
    simulated.run(60.0)
    job = simulated.state.job
    assert job["host"][1] == 2
    assert do(simulated, SetShare(CAUSE, 1, 0.6, True)) == ""
    assert job["rate"][[2, 3]].tolist() == pytest.approx([1.0, 0.4 / 0.8])
    simulated.run(120.0)
    assert job["host"][1] == 3
    assert math.isnan(job["share"][1])
    assert job["rate"][[1, 3]].tolist() == pytest.approx([0.2, 1.0])


def test_what_hosts_gave_is_what_their_guests_got() -> None:
    jobs = [
        J(0, 50, 4, demand=0.5),
        J(1, 1000, 4, work_s=60, demand=1.0),  # the guest, on both nodes
        J(2, 60, 2, demand=0.2),  # host on node 0, until 110
        J(3, 300, 2, demand=0.8),  # host on node 1
    ]
    simulated = cluster(jobs, [2, 2])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, [0, 1], share=0.3)) == ""
    simulated.run(60.0)
    assert do(simulated, SetShare(CAUSE, 1, 0.1, True)) == ""
    simulated.run()
    job = simulated.state.job
    # 30 % of four cores, all that the new hosts leave, a tenth of each; when one has ended, what the other leaves
    guest_end = 110 + (60 - 40 * 0.3 - 10 * 0.2 - 50 * 0.1) / 0.2
    assert job["end"][1] == pytest.approx(guest_end)
    by_host = [
        40 * 0.3 * 4,
        10 * 0.8 * 2 + 50 * 0.1 * 2,
        10 * 0.2 * 2 + 50 * 0.1 * 2 + (guest_end - 110) * 0.2 * 2,
    ]
    assert job["given"][[0, 2, 3]].tolist() == pytest.approx(by_host)
    assert job["lent"].tolist() == pytest.approx([0, sum(by_host), 0, 0])
    assert job["given"][1] == 0.0


def test_a_gang_is_as_slow_as_its_slowest_node() -> None:
    jobs = [
        J(0, 100, 2, demand=0.5),
        J(0, 30, 2, demand=0.0),
        J(1, 1000, 4, work_s=80, demand=1.0),
        J(2, 100, 4),
    ]
    simulated = cluster(jobs, [2, 2])
    simulated.run(10.0)
    assert do(simulated, lend(2, 0, [0, 1])) == "a node is no longer wholly held by its host"
    simulated = cluster([J(0, 50, 4, demand=0.5), *jobs[2:3], J(2, 100, 2, demand=0.9)], [2, 2])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, [1, 0])) == ""
    simulated.run(50.0)
    # node 0 has a new host that leaves 10 %, node 1 is idle
    assert simulated.state.job["rate"][1] == pytest.approx(0.1)


def test_two_guests_divide_what_their_host_leaves() -> None:
    jobs = [J(0, 100, 4, demand=0.4), J(1, 100, 2, demand=1.0), J(1, 100, 2, demand=1.0), J(1, 100, 1)]
    simulated = cluster(jobs, [4])
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, share=0.6)) == ""
    assert simulated.state.job["rate"][1] == 1.0  # 0.6 of four cores is more than its two
    assert do(simulated, lend(2, 0, share=0.3)) == ""
    assert simulated.state.job["rate"][1:3].tolist() == pytest.approx(
        [0.6 * 0.6 / 0.9 * 2, 0.3 * 0.6 / 0.9 * 2]
    )
    assert do(simulated, lend(3, 0)) == "its cores do not fit on the offered nodes"


@pytest.mark.parametrize("kill", [True, False])
def test_a_guest_is_killed_at_its_limit_where_jobs_are(kill: bool) -> None:
    jobs = [J(0, 1000, 2, demand=0.5), J(1, 100, 2, work_s=80, demand=1.0)]
    simulated = cluster(jobs, [2], kill=kill)
    simulated.run(10.0)
    assert do(simulated, lend(1, 0)) == ""
    simulated.run()
    job = simulated.state.job
    assert job["end"][1] == (110 if kill else 170)
    assert bool(job["killed"][1]) == kill
    assert job["left"][1] == pytest.approx(30 if kill else 0)


def test_an_extension_moves_the_limit_and_what_the_scheduler_plans_with() -> None:
    jobs = [J(0, 100, 4, demand=1.0), J(1, 1000, 2, work_s=10, demand=0.2), J(2, 10, 1)]
    simulated = cluster(jobs, [4], scheduler="fcfs")
    simulated.run(10.0)
    assert do(simulated, lend(1, 0, share=0.5, capped=True)) == ""
    assert do(simulated, ExtendLimit(CAUSE, 0, 25.0)) == ""
    job = simulated.state.job
    assert (job["limit_end"][0], job["planned_end"][0], job["extended"][0]) == (125, 125, 25)
    assert do(simulated, ExtendLimit(CAUSE, 1, 5.0)) == ""
    assert job["limit_end"][1] == 1015
    assert simulated.snapshot().jobs.estimated_start_s[2] == 125
    simulated.run()
    # the guest took 10 s, in which the host did 5: the host would have been killed without more time
    assert job["end"].tolist() == [105, 20, 115]
    assert not job["killed"].any()
    assert do(simulated, ExtendLimit(CAUSE, 0, 25.0)) == "it does not run any more"


def test_what_cannot_be_done_is_refused_with_the_reason() -> None:
    jobs = [J(0, 100, 4, memory=0.25), J(1, 100, 2), J(1, 100, 4), J(1, 100, 4, memory=0.75), J(1, 100, 1)]
    simulated = cluster(jobs, [2, 2, 1], node_memory=1.5)
    simulated.run(10.0)
    # job 4 sits on the last node by itself
    nowhere = "its cores do not fit on the offered nodes"
    assert do(simulated, lend(1, 0, [])) == nowhere
    assert do(simulated, lend(2, 0, [0, 0])) == nowhere
    assert do(simulated, lend(1, 0, [7])) == nowhere
    assert do(simulated, lend(1, 0, [-1])) == nowhere
    assert do(simulated, lend(-1, 0)) == nowhere
    assert do(simulated, lend(99, 0)) == nowhere
    assert do(simulated, lend(4, 0)) == "it does not wait any more"
    assert do(simulated, lend(1, 2)) == "its host does not run any more"
    assert do(simulated, lend(1, -1)) == "demands () are not one for each of 1 nodes"
    assert do(simulated, lend(1, 4)) == "a node is no longer wholly held by its host"
    assert do(simulated, lend(3, 0, [0, 1])) == "its memory does not fit beside the host"
    assert do(simulated, SetShare(CAUSE, 1, 0.5)) == "it does not run as a guest any more"
    assert do(simulated, SetShare(CAUSE, 99, 0.5)) == "it does not run as a guest any more"
    assert do(simulated, ExtendLimit(CAUSE, -1, 5.0)) == "it does not run any more"
    assert simulated.state.c[engine.GUESTS] == 0
    assert starts(simulated) == [0, 100, 200, 300, 1]


def test_finished_shows_each_end_once() -> None:
    simulated = cluster([J(0, 10, 1), J(1, 20, 1, demand=0.7), J(2, 5, 1)], [4])
    simulated.run(15.0)
    first = simulated.finished()
    assert (first.row.tolist(), first.end_s.tolist(), first.run_s.tolist()) == ([2, 0], [7, 10], [5, 10])
    simulated.run()
    second = simulated.finished()
    assert (second.row.tolist(), second.cpu_fraction.tolist(), second.lost_s.tolist()) == ([1], [0.7], [0])
    assert len(simulated.finished().row) == 0


# ----------------------------------------------------------------------------------------------------- polls


def test_only_polls_with_something_new_are_visited() -> None:
    # alone at first; from 100 on somebody waits; the end at 305 is the next thing to happen
    simulated = cluster([J(0, 305, 4), J(100, 10, 4), J(500, 10, 4)], [4])
    visits, versions = [], []
    while simulated.advance():
        visits.append(simulated.now_s)
        versions.append(simulated.snapshot().version)
    # at 310 the last one that waited has started, and nobody waits any more
    assert visits == [100]
    assert len(set(versions)) == len(versions)


def test_a_job_is_looked_at_again_once_it_has_been_measured() -> None:
    simulated = cluster([J(0, 305, 2, demand=0.3), J(3, 50, 2), J(4, 100, 2)], [4], window_s=20.0)
    seen = []
    while simulated.advance():
        snapshot = simulated.snapshot()
        seen.append((snapshot.time_s, bool(np.isfinite(snapshot.jobs.cpu_fraction[0])), snapshot.version))
    times, measured, versions = zip(*seen, strict=True)
    # 10: new. 20: job 0 has run for 20 s. 30: so has job 1. Then nothing until job 1 ends at 53.
    assert times == (10, 20, 30)
    assert measured == (False, True, True)
    assert versions == tuple(sorted(set(versions)))


def test_a_wake_comes_at_the_first_poll_after_it_and_not_after_the_end() -> None:
    simulated = cluster([J(0, 305, 4), J(1, 10, 4)], [4], window_s=0.0)
    assert simulated.advance()
    assert simulated.now_s == 10
    assert simulated.advance(123.0)
    assert simulated.now_s == 130
    simulated.run()
    assert not simulated.advance(1000.0)


@pytest.mark.parametrize("share", [math.nan, -0.1, 1.1, math.inf])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    simulated = cluster([J(0, 100, 2), J(0, 100, 2)], [2])
    assert simulated.advance()
    assert "share" in do(simulated, lend(1, 0, share=share))
    assert do(simulated, lend(1, 0)) == ""
    assert "share" in do(simulated, SetShare(CAUSE, 1, share))


@pytest.mark.parametrize("by_s", [math.nan, 0.0, -60.0, math.inf])
def test_a_limit_moves_by_a_real_time_or_not_at_all(by_s: float) -> None:
    simulated = cluster([J(0, 100, 2), J(0, 100, 2)], [2])
    assert simulated.advance()
    assert "extended" in do(simulated, ExtendLimit(CAUSE, 0, by_s))
    assert simulated.state.job["limit_end"][0] == 100.0

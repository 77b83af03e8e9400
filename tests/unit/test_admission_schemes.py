"""Baselines of admission on clusters small enough to compute by hand, and the slots that they run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from asad.admit.dorm import Dorm, kinds_of
from asad.admit.drf import Drf, dominant_share
from asad.admit.elastic import Allotment, ElasticJob, Scheme, Servers, Verdict
from asad.admit.fifo import Fifo
from asad.admit.first_fit_servers import Room, most_at_once
from asad.admit.rrh import Rrh
from asad.admit.utility import Constant, Deadline, Sigmoid
from asad.errors import AsadError
from asad_papers.oasis.offline_schedule import optimum
from asad_papers.oasis.scheme_instances import draw_instance
from asad_papers.oasis.slots import simulate

NOTHING = np.zeros(0)


def cluster(*cores: float, beside: tuple[float, ...] = ()) -> Servers:
    """Worker servers of so many cores each, and parameter servers."""
    return Servers(("cores",), np.array(cores, float).reshape(-1, 1), np.array(beside, float).reshape(-1, 1))


def job(
    work: int,
    *,
    arrival: int = 0,
    cores: float = 1.0,
    most: int = 100,
    fixed: int = 1,
    worth: float = 10.0,
    by: float | None = None,
    ratio: tuple[float, float] = (0.0, 0.0),
) -> ElasticJob:
    """A job on cores alone; `ratio` is (b, B), and a parameter server takes one core."""
    return ElasticJob(
        "job", arrival, np.array([cores]), np.array([1.0]), *ratio, most, work,
        Constant(worth) if by is None else Deadline(worth, by), by or 100.0, fixed,
    )  # fmt: skip


def finished(servers: Servers, jobs: list[ElasticJob], scheme: Scheme, slots: int = 20) -> list[int | None]:
    return [ran.finished for ran in simulate(servers, jobs, scheme, slots).jobs]


# ------------------------------------------------------------------------------------------------------- fifo


def test_fifo_keeps_the_order_though_the_second_would_fit() -> None:
    servers = cluster(4)
    jobs = [job(6, fixed=3), job(4, fixed=2), job(1, fixed=1)]
    # 3 of 4 cores are taken for two slots; the job of one core waits behind the job of two
    assert finished(servers, jobs, Fifo(servers)) == [1, 3, 2]


def test_fifo_turns_away_what_the_empty_cluster_cannot_hold() -> None:
    servers = cluster(4)
    outcome = simulate(servers, [job(4, fixed=5), job(2, fixed=2)], Fifo(servers), 5)
    assert [ran.verdict.admitted for ran in outcome.jobs] == [False, True]
    assert "5 workers do not fit" in outcome.jobs[0].verdict.reason
    assert outcome.jobs[1].finished == 0


def test_a_fixed_width_is_never_above_the_most() -> None:
    servers = cluster(8)
    outcome = simulate(servers, [job(8, fixed=8, most=2)], Fifo(servers), 9)
    assert {width for slot in outcome.widths for width in slot.values()} == {2}
    assert outcome.jobs[0].finished == 3


# -------------------------------------------------------------------------------------------------------- drf


def test_drf_deals_equal_dominant_shares() -> None:
    servers = Servers(("cpu", "memory"), np.array([[9.0, 18.0]]), np.zeros((0, 2)))
    # the example of the DRF paper: <1 CPU, 4 GB> and <3 CPU, 1 GB> on 9 CPU, 18 GB: 3 tasks and 2 tasks
    one = replace(job(100), worker=np.array([1.0, 4.0]), server=np.zeros(2))
    two = replace(job(100), worker=np.array([3.0, 1.0]), server=np.zeros(2))
    outcome = simulate(servers, [one, two], Drf(servers), 1)
    assert dict(outcome.widths[0]) == {0: 3, 1: 2}
    assert dominant_share(servers, one) == pytest.approx(4 / 18)
    assert dominant_share(servers, two) == pytest.approx(3 / 9)


def test_drf_counts_parameter_servers_and_stops_where_they_end() -> None:
    servers = cluster(10, beside=(2,))
    narrow = job(100, ratio=(1.0, 2.0))  # a parameter server for each two workers
    outcome = simulate(servers, [narrow], Drf(servers), 1)
    assert dict(outcome.widths[0]) == {0: 4}
    assert dominant_share(servers, narrow) == pytest.approx(0.5 / 2)


def test_drf_gives_no_more_workers_than_there_is_work() -> None:
    servers = cluster(10)
    outcome = simulate(servers, [job(3), job(20)], Drf(servers), 2)
    assert dict(outcome.widths[0]) == {0: 3, 1: 7}
    assert dict(outcome.widths[1]) == {1: 10}


# -------------------------------------------------------------------------------------------------------- rrh


def test_rrh_pauses_a_job_for_one_that_gains_more() -> None:
    servers = cluster(2)
    patient, urgent = job(8, fixed=2, worth=10), job(2, arrival=1, fixed=2, worth=10, by=1)
    outcome = simulate(servers, [patient, urgent], Rrh(servers), 10)
    assert [ran.finished for ran in outcome.jobs] == [4, 1]
    assert outcome.utility == pytest.approx(20)


def test_rrh_turns_away_what_costs_the_others_more() -> None:
    servers = cluster(2)
    urgent = job(4, fixed=2, worth=50, by=2)
    cheap = job(2, fixed=2, worth=1, by=1)
    outcome = simulate(servers, [urgent, cheap], Rrh(servers), 10)
    assert [ran.verdict.admitted for ran in outcome.jobs] == [True, False]
    assert outcome.utility == pytest.approx(50)
    assert "would be worth" in outcome.jobs[1].verdict.reason


def test_rrh_threshold_asks_for_a_gain() -> None:
    servers = cluster(2)
    assert simulate(servers, [job(2, worth=5)], Rrh(servers, threshold=6), 5).admitted == 0
    assert simulate(servers, [job(2, worth=5)], Rrh(servers, threshold=4), 5).admitted == 1


def test_rrh_never_changes_a_width() -> None:
    drawn = draw_instance(30, 3, slots=40, servers=10)
    outcome = simulate(drawn.servers, drawn.jobs, Rrh(drawn.servers), drawn.slots)
    for number, one in enumerate(drawn.jobs):
        assert {slot[number] for slot in outcome.widths if number in slot} <= {one.fixed_workers}


# ------------------------------------------------------------------------------------------------------- dorm


def test_dorm_fills_the_cluster_and_resizes_when_a_job_ends() -> None:
    servers = cluster(4, 4)
    outcome = simulate(servers, [job(8), job(24)], Dorm(servers, fairness_loss=0.0), 8)
    assert dict(outcome.widths[0]) == {0: 4, 1: 4}
    assert outcome.jobs[0].finished == 1
    assert dict(outcome.widths[2]) == {1: 8}
    assert outcome.jobs[1].finished == 3


def test_dorm_changes_few_partitions_at_a_time() -> None:
    servers = cluster(4, 4, 4)
    jobs = [job(300, most=4), job(300, most=4), job(300, most=4), job(40, arrival=2, most=4)]
    outcome = simulate(servers, jobs, Dorm(servers, adjustment=0.1, fairness_loss=0.0), 4)
    before, after = outcome.widths[1], outcome.widths[2]
    assert sum(before[number] != after.get(number, 0) for number in before) <= 1  # ⌈0.1·3⌉


def test_servers_that_differ_only_in_a_resource_of_many_values_are_alike() -> None:
    capacity = np.column_stack([[4.0, 8.0] * 20, np.linspace(20, 50, 40)])
    assert [kind.tolist() for kind in kinds_of(capacity)] == [list(range(0, 40, 2)), list(range(1, 40, 2))]
    assert [kind.tolist() for kind in kinds_of(capacity[:4])] == [[0], [2], [1], [3]]


# ---------------------------------------------------------------------------------------------------- offline


def test_the_optimum_by_hand() -> None:
    servers = cluster(2)
    # three jobs of four worker-slots each, two of them worth anything only in slots 1 and 2 together with the third
    jobs = [job(4, worth=10, by=2), job(4, worth=9, by=2), job(4, worth=3, by=4)]
    best = optimum(servers, jobs, 4)
    assert best.proven
    assert best.utility == pytest.approx(13)
    assert best.finished[0] == 1
    assert best.finished[1] is None
    assert best.finished[2] == 3


def test_the_optimum_respects_parameter_servers() -> None:
    servers = cluster(10, beside=(2,))
    best = optimum(servers, [job(8, worth=10, by=2, ratio=(1.0, 2.0))], 3)
    assert best.finished == (1,)
    assert [given.width for given in best.schedules[0].values()] == [4, 4]
    assert optimum(servers, [job(9, worth=10, by=2, ratio=(1.0, 2.0))], 3).utility == 0


@pytest.mark.parametrize("seed", range(6))
def test_no_scheme_beats_the_optimum_and_its_schedule_is_feasible(seed: int) -> None:
    drawn = draw_instance(8, seed, slots=8, servers=6, most_chunks=10)
    best = optimum(drawn.servers, drawn.jobs, drawn.slots)
    assert best.proven

    class Replay:
        name = "optimum"

        def arrive(self, number: int, one: ElasticJob) -> Verdict:
            return Verdict(best.finished[number] is not None, "")

        def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
            return {number: best.schedules[number][slot] for number in left if slot in best.schedules[number]}

    replayed = simulate(drawn.servers, drawn.jobs, Replay(), drawn.slots)
    assert replayed.utility >= best.utility * (1 - 1e-6)
    for scheme in (Fifo, Drf, Rrh, Dorm):
        assert (
            simulate(drawn.servers, drawn.jobs, scheme(drawn.servers), drawn.slots).utility
            <= best.bound + 1e-6
        )


# ------------------------------------------------------------------------------------------- slots and placing


class Greedy:
    """Gives what it is asked to."""

    name = "greedy"

    def __init__(self, given: Allotment) -> None:
        self.given = given

    def arrive(self, number: int, one: ElasticJob) -> Verdict:
        return Verdict(True, "")

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        return {0: self.given}


def given(workers: int, servers: int = 0) -> Allotment:
    def one(count: int) -> tuple[np.ndarray, np.ndarray]:
        return (np.zeros(1, np.int32), np.array([count], np.int32)) if count else (
            np.zeros(0, np.int32), np.zeros(0, np.int32)
        )  # fmt: skip

    return Allotment(*one(workers), *one(servers))


@pytest.mark.parametrize(
    ("allotted", "text"),
    [
        (given(5), "worker server 0 holds 4 of cores and got 5"),
        (given(4), "1 parameter servers are too few|0 parameter servers are too few"),
        (given(1, 2), "2 parameter servers for 1 workers"),
        (given(4, 4), "parameter server 0 holds 3 of cores and got 4"),
        (given(9, 3), "can use 8"),
    ],
)
def test_a_scheme_that_breaks_a_constraint_is_an_error(allotted: Allotment, text: str) -> None:
    servers = cluster(4, beside=(3,))
    one = job(20, most=8, ratio=(1.0, 2.0)) if "cores and got 5" not in text else job(20, most=8)
    with pytest.raises(AsadError, match=text):
        simulate(servers, [one], Greedy(allotted), 2)


def test_a_job_that_is_done_may_not_run_on() -> None:
    servers = cluster(4)
    with pytest.raises(AsadError, match="slot 1: job 0 is not admitted, or done"):
        simulate(servers, [job(4)], Greedy(given(4)), 2)


def test_utility_counts_the_slot_of_arrival_and_the_unfinished_count_nothing() -> None:
    servers = cluster(2)
    sigmoid = Sigmoid(10.0, 1.0, 2.0)
    jobs = [replace(job(4, arrival=3), utility=sigmoid), job(100, arrival=5, worth=7)]
    outcome = simulate(servers, jobs, Drf(servers), 8)
    assert outcome.jobs[0].finished == 4
    assert outcome.jobs[0].utility == pytest.approx(sigmoid(2))
    assert outcome.jobs[1].finished is None
    assert outcome.utility == pytest.approx(sigmoid(2))
    assert outcome.admitted == 2


def test_decisions_are_timed_by_the_clock_that_is_given() -> None:
    ticks = iter(range(1000))
    servers = cluster(2)
    outcome = simulate(servers, [job(2)], Fifo(servers), 2, clock=lambda: float(next(ticks)))
    assert outcome.jobs[0].decide_s == 1.0
    assert outcome.allot_s == (1.0, 1.0)


def test_room_is_all_or_nothing_and_returned() -> None:
    servers = cluster(3, 3, beside=(1,))
    room = Room(servers)
    one = job(10, cores=2.0, ratio=(1.0, 1.0))
    assert room.place(one, 2) is None
    assert room.workers.tolist() == [[3.0], [3.0]]
    held = room.place(one, 1)
    assert held is not None
    assert room.parameter_servers.tolist() == [[0.0]]
    assert not room.take(one, held)
    room.free(one, held)
    assert room.take(one, held)
    assert most_at_once(servers, one, 2) == 1
    assert most_at_once(servers, job(10, cores=2.0), 9) == 2

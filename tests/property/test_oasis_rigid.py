"""Rigid jobs: the best run against trying everything, and schemes that never stop or move what cannot be stopped."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_oasis_schedule import Case, draw

from asad.admit.best_run import best_run, take_run
from asad.admit.elastic import ElasticJob, Servers
from asad.admit.oasis import Oasis
from asad.admit.schemes import scheme_maker, scheme_names
from asad.admit.server_prices import servers_for
from asad.admit.utility import Constant, Linear
from asad_papers.oasis.constraints import violation
from asad_papers.oasis.slots import simulate

CASES = 600


def cheapest(
    price: NDArray[np.float64], free: NDArray[np.float64], demand: NDArray[np.float64], count: int
) -> float:
    """Of all ways to put `count` tasks on servers for all of these slots (n, R, H): the least price."""
    takes = demand > 0
    room = np.floor(free[:, takes] / demand[takes, None] + 1e-9).min(axis=(0, 1))
    each = (price * demand[:, None]).sum(axis=(0, 1))
    ways = itertools.product(*(range(int(min(count, most)) + 1) for most in room))
    return min((float(each @ np.array(way)) for way in ways if sum(way) == count), default=math.inf)


def best_of_all(case: Case, width: int) -> float:
    """The greatest payoff of any start and any servers; 0 where the job is better left out."""
    need, slots = case.need, len(case.worth)
    length, beside = -(-need.work // width), servers_for(need.servers_per_worker, width)
    best = 0.0
    for start in range(slots - length + 1):
        if beside > width:
            break
        span = slice(start, start + length)
        cost = cheapest(case.price[span], case.free[span], need.worker, width)
        if beside:
            cost += cheapest(case.server_price[span], case.server_free[span], need.server, beside)
        best = max(best, case.worth[start + length - 1] - cost)
    return best


def a_case(seed: int) -> tuple[Case, int]:
    case = draw(seed)
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 4))
    work = int(rng.integers(1, width * len(case.worth) + 2))
    return case._replace(need=case.need._replace(work=work)), width


def test_the_best_run_is_the_best_of_all() -> None:
    paid = several = 0
    for seed in range(CASES):
        case, width = a_case(seed)
        workers, servers = case.sides()
        rows = np.arange(len(case.worth))
        found = best_run(workers, servers, rows, case.need, width, case.worth)
        expected = best_of_all(case, width)
        assert max(0.0, found.payoff) == pytest.approx(expected, abs=1e-6), seed
        if found.end < 0:
            continue
        paid += 1
        busy = np.flatnonzero(found.widths)
        several += len(busy) > 1
        assert busy.tolist() == list(range(busy[0], found.end + 1))
        assert len(busy) == -(-case.need.work // width)
        # what is taken costs what was stated, and fits
        cost = 0.0
        beside = servers_for(case.need.servers_per_worker, width)
        for side, demand, count in ((workers, case.need.worker, width), (servers, case.need.server, beside)):
            at, tasks = take_run(side, rows[busy], demand, count)
            assert tasks.sum() == count
            cost += float((side.price[busy][:, :, at] * demand[:, None] * tasks).sum())
            used = np.zeros(side.price.shape[1:])
            used[:, at] = demand[:, None] * tasks
            assert (side.free[busy] + 1e-9 >= used).all()
        assert cost == pytest.approx(found.cost)
    assert paid > CASES / 6 and several > CASES / 12, "they have to be cases that show something"


def test_of_starts_that_pay_alike_it_is_the_first_and_earliest_asks_for_no_payoff() -> None:
    case = draw(3)
    price, free = np.ones((6, 1, 2)), np.full((6, 1, 2), 4.0)
    free[0] = 0.0
    price[1:3] = 9.0
    need = case.need._replace(worker=np.ones(1), servers_per_worker=0.0, work=2, server=np.ones(1))
    case = Case(price, free, price, free, need, np.full(6, 100.0))
    rows = np.arange(6)
    found = best_run(*case.sides(), rows, need, 1, case.worth)
    assert (found.end, found.cost) == (4, 2.0) and found.widths.tolist() == [0, 0, 0, 1, 1]
    soon = best_run(*case.sides(), rows, need, 1, case.worth, -math.inf, True)
    assert (soon.end, soon.cost) == (2, 18.0)
    worthless = best_run(*case.sides(), rows, need, 1, np.full(6, 1.0))
    assert worthless.end < 0 and worthless.cost == 2.0 and worthless.utility == 1.0


def some_jobs(rng: np.random.Generator) -> list[ElasticJob]:
    jobs = []
    for number in range(int(rng.integers(4, 14))):
        rigid, ratio = bool(rng.integers(0, 2)), float(rng.choice([0.0, 2.0, 3.0]))
        width = int(rng.integers(1, 4))
        jobs.append(
            ElasticJob(
                f"job {number}",
                int(rng.integers(0, 10)),
                np.array([float(rng.integers(1, 4)), float(rng.integers(0, 3))]),
                np.array([1.0, float(rng.integers(0, 2))]),
                1.0 if ratio else 0.0,
                ratio,
                int(rng.integers(width, 6)),
                int(rng.integers(1, 15)),
                Linear(float(rng.uniform(1, 100)), 4.0, 40.0) if rng.integers(0, 2) else Constant(20.0),
                10.0,
                width,
                rigid,
            )
        )
    return jobs


@pytest.mark.parametrize("name", scheme_names())
def test_no_scheme_stops_or_moves_what_cannot_be_stopped(name: str) -> None:
    """The judge knows rigid jobs; of those that are done it sees every slot."""
    rigid = waited = 0
    for seed in range(6 if name == "dorm" else 30):
        jobs = some_jobs(np.random.default_rng(seed))
        servers = Servers(("cores", "memory"), np.array([[4.0, 6.0], [6.0, 8.0]]), np.array([[3.0, 3.0]]))
        outcome = simulate(servers, jobs, scheme_maker(name, {})(servers, 60), 60)
        schedules = outcome.schedules()
        assert violation(servers, jobs, schedules, 60) is None, (name, seed)
        for number, schedule in schedules.items():
            if jobs[number].rigid and len(schedule) > 1:
                rigid += 1
                waited += min(schedule) > jobs[number].arrival
    assert rigid > 5 and waited > 0


def test_the_judge_sees_pauses_moves_and_widths() -> None:
    servers = Servers(("cores",), np.full((2, 1), 4.0), np.zeros((0, 1)))
    none = np.zeros(0, np.int32)
    one = np.ones(1)
    job = ElasticJob("job", 0, one, one, 0.0, 0.0, 4, 4, Constant(5.0), 9.0, 2, True)
    scheme = Oasis(servers, 10)
    good: dict[int, Any] = dict(scheme.arrive(0, job).schedule or {})
    assert violation(servers, [job], {0: good}, 10) is None
    first = good[0]
    other = type(first)(np.array([1 - first.worker_server[0]], np.int32), first.workers, none, none)
    less = type(first)(first.worker_server, first.workers - 1, none, none)
    for wrong, word in (
        ({0: first, 2: first}, "pauses between slots 0 and 2"),
        ({0: first, 1: other}, "slot 1: on other servers"),
        ({0: first, 1: less, 2: first}, "slot 1: 1 workers, and it has 2"),
    ):
        assert word in str(violation(servers, [job], {0: wrong}, 10))


def test_what_is_late_goes_on_where_it_is_as_soon_as_it_can() -> None:
    servers = Servers(("cores",), np.full((1, 1), 2.0), np.zeros((0, 1)))
    one = np.ones(1)
    job = ElasticJob("job", 0, one, one, 0.0, 0.0, 1, 3, Constant(5.0), 9.0, 1, True)
    scheme = Oasis(servers, 12)
    assert list(scheme.arrive(0, job).schedule or {}) == [0, 1, 2]
    assert list(scheme.extend(0, 2, 2)) == [2, 3, 4]
    # nothing of one piece is left: it does as much as there is room for, and is not cancelled
    full = np.zeros((12, 1, 1))
    full[::2] = 2.0
    scheme.occupy(4, full)
    assert list(scheme.extend(0, 4, 3)) == [5, 7, 9, 11]

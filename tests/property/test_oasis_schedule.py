"""The best schedule against an integer programme of problem (27) that HiGHS solves; both sides know only the model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from asad.admit.best_schedule import Found, best_schedule
from asad.admit.server_prices import (
    Need,
    Side,
    fixed_side,
    most_by_slot,
    refresh,
    servers_for,
    take,
)

CASES = 640
CHUNKS = 16


class Case(NamedTuple):
    """A job, what is free, at which prices, and what it is worth by the slot in which it ends."""

    price: NDArray[np.float64]
    free: NDArray[np.float64]
    server_price: NDArray[np.float64]
    server_free: NDArray[np.float64]
    need: Need
    worth: NDArray[np.float64]

    def sides(self) -> tuple[Side, Side]:
        return fixed_side(self.price, self.free.copy()), fixed_side(
            self.server_price, self.server_free.copy()
        )

    def find(self, least_payoff: float = 0.0, most_steps: int = 10**9) -> Found:
        rows = np.arange(len(self.worth))
        return best_schedule(*self.sides(), rows, self.need, self.worth, 0.0, least_payoff, most_steps)


def draw(seed: int) -> Case:
    """Small, and of every kind: tight room, ties, one resource or several, with and without parameter servers."""
    rng = np.random.default_rng(seed)
    slots, hosts, keepers, resources = (int(rng.integers(1, most)) for most in (7, 5, 4, 4))
    worker, server = rng.integers(0, 4, resources).astype(float), rng.integers(0, 4, resources).astype(float)
    worker[0], server[-1] = max(1.0, worker[0]), max(1.0, server[-1])
    free = rng.integers(0, 12, (slots, resources, hosts)).astype(float)
    server_free = rng.integers(0, 9, (slots, resources, keepers)).astype(float)
    match rng.integers(0, 4):
        case 0:
            price, server_price = rng.uniform(0.1, 3, free.shape), rng.uniform(0.1, 6, server_free.shape)
        case 1:
            price = rng.integers(1, 3, free.shape).astype(float)
            server_price = rng.integers(1, 5, server_free.shape).astype(float)
        case 2:
            price, server_price = np.ones(free.shape), np.full(server_free.shape, 2.0)
        case _:  # every slot like the others: as many ties as can be
            price = np.tile(rng.uniform(0.1, 3, free.shape[1:]), (slots, 1, 1))
            server_price = np.tile(rng.uniform(0.1, 6, server_free.shape[1:]), (slots, 1, 1))
            free, server_free = np.tile(free[:1], (slots, 1, 1)), np.tile(server_free[:1], (slots, 1, 1))
    ratio = float(rng.choice([0.0, 0.1, 0.25, 0.3, 1 / 3, 0.37, 0.5, 0.7, 1.0, 1.3]))
    most = int(rng.integers(1, 9))
    work = int(rng.integers(1, 3 * slots + 2))
    top = rng.uniform(20, 500)
    time = np.arange(1, slots + 1)
    worth = (
        np.full(slots, top),
        top / (1 + np.exp(rng.uniform(0.1, 3) * (time - rng.uniform(1, slots + 1)))),
        np.sort(rng.uniform(0, top, slots))[::-1].copy(),
        np.where(time <= rng.integers(1, slots + 1), top, 0.0),
    )[rng.integers(0, 4)]
    return Case(price, free, server_price, server_free, Need(worker, server, ratio, most, work), worth)


def optimum(case: Case) -> float:
    """The greatest payoff by an ILP, 0 where the job is better left out.

    Columns: y (slot, host), z (slot, keeper), and e (slot): it completes there.
    """
    need = case.need
    slots, resources, hosts = case.free.shape
    keepers = case.server_free.shape[2]
    ny, nz = slots * hosts, slots * keepers
    columns = ny + nz + slots
    beside = need.servers_per_worker > 0
    cost = np.concatenate(
        (
            (case.price * need.worker[:, None]).sum(axis=1).ravel(),
            (case.server_price * need.server[:, None]).sum(axis=1).ravel(),
            -case.worth,
        )
    )
    rows: list[NDArray[np.float64]] = []
    low: list[float] = []
    high: list[float] = []

    def add(entries: list[tuple[slice, float]], least: float, most: float) -> None:
        row = np.zeros(columns)
        for where, value in entries:
            row[where] = value
        rows.append(row)
        low.append(least)
        high.append(most)

    ends = slice(ny + nz, columns)
    add([(ends, 1.0)], 0.0, 1.0)
    add([(slice(0, ny), 1.0), (ends, -need.work)], 0.0, np.inf)  # (2)
    for t in range(slots):
        y, z = slice(t * hosts, (t + 1) * hosts), slice(ny + t * keepers, ny + (t + 1) * keepers)
        add([(y, 1.0), (slice(ny + nz + t, columns), -need.most_workers)], -np.inf, 0.0)  # (3), (8)
        if beside:
            add([(y, need.servers_per_worker), (z, -1.0)], -np.inf, 0.0)  # (6)
            add([(z, 1.0), (y, -1.0)], -np.inf, 0.0)  # (7)
        for r in range(resources):
            for h in range(hosts):
                add([(slice(t * hosts + h, t * hosts + h + 1), need.worker[r])], -np.inf, case.free[t, r, h])
            for k in range(keepers):
                at = ny + t * keepers + k
                add([(slice(at, at + 1), need.server[r])], -np.inf, case.server_free[t, r, k])
    upper = np.full(columns, np.inf)
    upper[ends] = 1.0
    if not beside:
        upper[ny : ny + nz] = 0.0
    solved = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=np.ones(columns),
        bounds=Bounds(0, upper),
        options={"mip_rel_gap": 0.0},
    )
    assert solved.success, solved.message
    return -float(solved.fun)


def cost_of(case: Case, widths: NDArray[np.int64]) -> float:
    """What these widths cost, servers chosen one task at a time; asserts that there is room."""
    total = 0.0
    for t, count in enumerate(widths.tolist()):
        beside = 0
        if count and case.need.servers_per_worker > 0:
            beside = next(z for z in range(1, count + 1) if z >= count * case.need.servers_per_worker - 1e-9)
        for tasks, demand, price, free in (
            (count, case.need.worker, case.price[t], case.free[t].copy()),
            (beside, case.need.server, case.server_price[t], case.server_free[t].copy()),
        ):
            each = demand @ price
            for _ in range(tasks):
                fits = (free >= demand[:, None]).all(axis=0)
                assert fits.any()
                at = int(np.argmin(np.where(fits, each, np.inf)))
                free[:, at] -= demand
                total += each[at]
    return total


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_payoff_is_that_of_an_integer_programme(chunk: int) -> None:
    paid = 0
    for seed in range(chunk, CASES, CHUNKS):
        case = draw(seed)
        best, found = optimum(case), case.find()
        assert found.gap == 0.0, seed
        assert max(0.0, found.payoff) == pytest.approx(best, abs=1e-6, rel=1e-6), seed
        if found.end >= 0:
            paid += 1
            assert found.widths.sum() >= case.need.work
            assert found.widths.max() <= case.need.most_workers
            assert found.widths[found.end] > 0 and len(found.widths) == found.end + 1
            assert found.utility == case.worth[found.end]
            assert found.cost == pytest.approx(cost_of(case, found.widths))
            assert found.payoff == pytest.approx(found.utility - found.cost)
    assert paid >= CASES // CHUNKS // 5  # jobs that do not pay prove little


def dense(case: Case) -> float:
    """The greatest payoff by the plain dynamic programme of the paper's Algorithm 2, for cases too large for an ILP."""
    slots = len(case.worth)
    done = np.full(case.need.work + 1, np.inf)
    done[0] = 0.0
    best = 0.0
    for t in range(slots):
        after = done.copy()
        for y in range(1, case.need.most_workers + 1):
            widths = np.zeros(slots, np.int64)
            widths[t] = y
            try:
                cost = cost_of(case, widths)
            except (AssertionError, StopIteration):
                break
            for w in range(case.need.work + 1):
                to = min(case.need.work, w + y)
                after[to] = min(after[to], done[w] + cost)
        done = after
        best = max(best, case.worth[t] - done[-1])
    return best


@pytest.mark.parametrize("seed", range(24))
def test_payoff_is_that_of_the_paper_s_dynamic_programme(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    slots, hosts, keepers, resources = 20, 4, 3, 2
    same = seed % 3 == 0

    def table(low: float, high: float, servers: int) -> NDArray[np.float64]:
        one = rng.uniform(low, high, (1 if same else slots, resources, servers))
        return np.tile(one, (slots, 1, 1)) if same else one

    price, server_price = table(0.5, 1.5, hosts), table(1.0, 4.0, keepers)
    free, server_free = np.floor(table(0, 14, hosts)), np.floor(table(0, 8, keepers))
    work = int(rng.integers(20, 60))
    worth = np.full(slots, 8.0 * work) / (1 + np.exp((seed % 4) * 0.2 * (np.arange(slots) - 8)))
    need = Need(np.array([1.0, 2.0]), np.array([2.0, 1.0]), (0.23, 0.41, 0.3)[seed % 3], 12, work)
    case = Case(price, free, server_price, server_free, need, worth)
    found = case.find()
    assert found.gap == 0.0
    assert max(0.0, found.payoff) == pytest.approx(dense(case), rel=1e-9, abs=1e-9)


def test_without_steps_it_says_by_how_much_it_may_fall_short() -> None:
    gaps = 0
    for seed in range(300):
        case = draw(seed)
        best, rough = case.find(), case.find(most_steps=0)
        assert rough.payoff <= best.payoff + 1e-9
        assert best.payoff <= rough.payoff + rough.gap + 1e-9
        gaps += rough.gap > 0
    assert gaps > 5


def test_of_a_job_that_does_not_pay_it_shows_what_prices_would_let_it_in() -> None:
    seen = 0
    for seed in range(300):
        case = draw(seed)
        case = case._replace(worth=case.worth / 10)
        found = case.find()
        if found.end >= 0 or not np.isfinite(found.cost):
            continue
        seen += 1
        factor = found.utility / found.cost
        assert factor <= 1 + 1e-9
        lower = case._replace(
            price=case.price * factor * 0.999, server_price=case.server_price * factor * 0.999
        )
        assert lower.find().payoff > 0
    assert seen > 20


def test_a_job_that_pays_nothing_is_planned_where_any_payoff_will_do() -> None:
    planned = 0
    for seed in range(200):
        case = draw(seed)._replace(worth=np.zeros(len(draw(seed).worth)))
        found = case.find(least_payoff=-np.inf)
        room = most_by_slot(*case.sides(), np.arange(len(case.worth)), case.need).sum()
        assert (found.end >= 0) == (room >= case.need.work)
        if found.end >= 0:
            planned += 1
            assert found.payoff == pytest.approx(-cost_of(case, found.widths))
    assert planned > 20


def test_servers_are_taken_from_the_cheapest_on() -> None:
    for seed in range(100):
        case = draw(seed)
        found = case.find()
        if found.end < 0:
            continue
        workers, _ = case.sides()
        rows = np.flatnonzero(found.widths)
        first, server, tasks = take(workers, rows, case.need.worker, found.widths[rows])
        for i, row in enumerate(rows.tolist()):
            here, count = server[first[i] : first[i + 1]], tasks[first[i] : first[i + 1]]
            assert count.sum() == found.widths[row] and (count > 0).all() and (np.diff(here) > 0).all()
            used = np.zeros_like(case.free[row])
            used[:, here] = case.need.worker[:, None] * count
            assert (used <= case.free[row]).all()
            assert (workers.taken[row] == used).all()


def test_prices_are_the_printed_function() -> None:
    low, growth, capacity = (
        np.array([0.5, 2.0]),
        np.log(np.array([8.0, 3.0])),
        np.array([[4.0, 10.0], [1.0, 0.0]]),
    )
    taken = np.array([[[0.0, 5.0], [1.0, 0.0]]])
    none = np.zeros((1, 2, 2))
    shared = np.zeros(2, np.bool_)
    side = Side(none, none.copy(), np.ones(1, np.bool_), taken, capacity, low, growth, shared)
    refresh(side, 0)
    assert not side.stale[0]
    assert side.price[0, 0, 0] == 0.5  # L, exactly
    assert side.price[0, 0, 1] == pytest.approx(0.5 * 8.0**0.5)
    assert side.price[0, 1, 0] == pytest.approx(6.0)  # U, where it is full
    assert (side.free[0] == [[4.0, 5.0], [0.0, 0.0]]).all()


@pytest.mark.parametrize(
    ("ratio", "workers", "servers"), [(0.0, 5, 0), (0.25, 4, 1), (0.25, 5, 2), (0.1, 1, 1), (1.0, 7, 7)]
)
def test_parameter_servers(ratio: float, workers: int, servers: int) -> None:
    assert servers_for(ratio, workers) == servers

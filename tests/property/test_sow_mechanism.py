"""Statements of work: what holds whatever is stated, in whatever order, and whatever then happens."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sow_menu import ahead, menu_of, start_of

from asad.admit.sow.failures import Futures, sample_count
from asad.admit.sow.launch import best_plan, row_starts
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.sow import Sow
from asad.admit.sow.sow_paper import SowPaper
from asad.admit.sow.statement import NEVER, Bounds, LaunchPlan, Statement, Worth
from asad_papers.sow.misreport import search
from asad_papers.sow.rounds import Instance, Job, simulate

BOUNDS = Bounds(capacity=6, max_demand=3, max_duration=3, max_value=20.0, span=6)
ROUNDS = 14

Make = Callable[[], Posted]

MAKES: dict[str, Make] = {
    "sow": lambda: Sow(BOUNDS, error=0.1),
    "sow, waiting cancelled": lambda: Sow(BOUNDS, error=0.1, cancel_waiting=True),
    "sow-paper": lambda: SowPaper(BOUNDS, error=0.1),
    "sow-paper, overbooked": lambda: SowPaper(BOUNDS, delta=-0.5, error=0.1),
}
EVERY = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())


@st.composite
def statements(draw: st.DrawFn, birth: int) -> Job:
    ways = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 5)),
            min_size=1, max_size=4, unique_by=lambda way: way[:2],
        )
    )  # fmt: skip
    total = sum(part for _, _, part in ways)
    support = [(birth + ahead, duration, part / total) for ahead, duration, part in ways]
    worth = Worth(
        draw(st.sampled_from(("deadline", "linear"))),
        draw(st.floats(0.5, 20.0)),
        birth + draw(st.integers(1, 8)),
        draw(st.integers(2, 9)),
    )
    odd = [duration % 2 for _, duration, _ in support]
    signal: Any = draw(st.sampled_from(("none", "duration", odd)))
    came = draw(st.sampled_from(support))
    demand = draw(st.integers(1, BOUNDS.max_demand))
    return Job(Statement.of(birth, demand, support, worth, signal), came[0], came[1])


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Half of them crowded: wide jobs of high value that mostly come at the same time, so that some have to go."""
    births = sorted(draw(st.lists(st.integers(0, 5), min_size=1, max_size=20)))
    jobs = [draw(statements(birth)) for birth in births]
    if draw(st.booleans()):
        seed = draw(st.integers(0, 2**32 - 1))
        jobs = sorted([*jobs, *crowd(seed, 14)], key=lambda job: job.statement.birth)
    return Instance("drawn", BOUNDS, ROUNDS, tuple(jobs))


def crowd(seed: int, count: int) -> list[Job]:
    chance = np.random.default_rng(seed)
    made = []
    for birth in sorted(chance.integers(0, 4, count).tolist()):
        ways = [(birth + ahead, duration) for ahead in (0, 1, 2) for duration in (1, 3)]
        weight = chance.dirichlet(np.ones(len(ways))) * 0.94 + 0.01
        support = [(*way, float(part)) for way, part in zip(ways, weight, strict=True)]
        worth = Worth("linear", float(chance.uniform(12.0, 20.0)), birth + 6, 8)
        came = ways[int(chance.choice(len(ways), p=weight / weight.sum()))]
        made.append(Job(Statement.of(birth, int(chance.integers(1, 4)), support, worth), *came))
    return made


@pytest.mark.slow
@EVERY
@settings(max_examples=50, deadline=None)
@given(instance=instances(), kept=st.integers(0, 30))
def test_what_becomes_of_a_job_does_not_depend_on_who_is_born_later(
    make: Make, instance: Instance, kept: int
) -> None:
    fewer = replace(instance, jobs=instance.jobs[:kept])
    all_of_them, some = simulate(instance, make()), simulate(fewer, make())
    count = len(fewer.jobs)
    assert some.start.tolist() == all_of_them.start[:count].tolist()
    assert some.payment.tolist() == all_of_them.payment[:count].tolist()
    assert some.expected.tolist() == all_of_them.expected[:count].tolist()


class Watched:
    """A mechanism that is asked for its menu before and after all it does."""

    def __init__(self, mechanism: Posted) -> None:
        self.inner, self.name, self.bounds = mechanism, mechanism.name, mechanism.bounds
        self.highest: dict[tuple[int, int, int], float] = {}
        self.terms: dict[int, tuple[float, float, float]] = {}
        self.announced: dict[int, list[list[float]]] = {}
        self.completed: set[int] = set()

    def look(self) -> None:
        menu = menu_of(self.inner)
        starts, demands, durations = menu.price.shape
        with np.errstate(invalid="ignore"):
            for axis in (1, 2):
                for table in (menu.price, menu.failure):
                    low = np.take(table, range(table.shape[axis] - 1), axis)
                    assert (low <= np.take(table, range(1, table.shape[axis]), axis)).all(), axis
        assert (menu.failure >= 0.0).all() and (menu.failure <= 1.0).all() and (menu.price > 0.0).all()
        for start, demand, duration in itertools.product(range(starts), range(demands), range(durations)):
            key = (menu.first + start, demand, duration)
            price = float(menu.price[start, demand, duration])
            assert price >= self.highest.get(key, 0.0)
            self.highest[key] = price
        prices = self.inner.relaxed
        window = self.bounds.span + self.bounds.max_duration
        assert (ahead(prices, "used", window) <= ahead(prices, "supply", window) + 1e-9).all()
        for round in range(self.inner.now, self.inner.now + window):
            terms = tuple(prices._rows[:3, round % window].tolist())  # type: ignore[attr-defined]
            assert self.terms.setdefault(round, terms) == terms  # type: ignore[arg-type]

    def step(self, round: int) -> None:
        self.inner.step(round)
        self.look()

    def submit(self, job: int, statement: Statement) -> object:
        before = menu_of(self.inner)
        answer = self.inner.submit(job, statement)
        for row, start in enumerate(answer.plan.start.tolist()):
            if start != NEVER:
                seen = before.price[start - before.first, statement.demand - 1]
                sold = np.isfinite(seen)
                assert answer.price[row][sold].tolist() == seen[sold].tolist()
                assert start >= answer.plan.arrival[row]
        assert answer.utility >= 0.0 and answer.payment >= 0.0
        self.announced[job] = answer.price.tolist()
        self.look()
        return answer

    def arrive(self, job: int, round: int, signal: int = 0) -> int | None:
        return self.inner.arrive(job, round, signal)

    def evict(self, round: int, supply: int | None = None) -> object:
        before = {job: (held.start, held.row) for job, held in self.inner.active.items()}
        ended = [job for job, held in self.inner.active.items() if held.end is not None and held.end <= round]
        demand = {job: held.statement.demand for job, held in self.inner.active.items()}
        gone = self.inner.evict(round, supply)
        order = [eviction.job for eviction in gone]
        assert order[: len(ended)] == ended[::-1], "they run on into what was not sold to them"
        order = order[len(ended) :]
        running = [job for job, (start, row) in before.items() if row >= 0 and start <= round]
        running = [job for job in running if job not in ended]
        candidates = [job for job in before if job not in ended] if self.inner.cancel_waiting else running
        assert order == candidates[::-1][: len(order)], "latest born first"
        left = [job for job in running if job not in order]
        assert sum(demand[job] for job in left) <= self.bounds.capacity
        if order and order[-1] in running:
            assert sum(demand[job] for job in left) + demand[order[-1]] > self.bounds.capacity, "one too many"
        assert not order or order[-1] in running, "nobody is sent away in vain at the end"
        self.look()
        return gone

    def complete(self, job: int, round: int) -> float:
        self.completed.add(job)
        paid = self.inner.complete(job, round)
        assert any(paid in row for row in self.announced[job])
        return paid


@pytest.mark.slow
@EVERY
@settings(max_examples=40, deadline=None)
@given(instance=instances())
def test_prices_never_fall_rise_with_demand_and_duration_and_are_what_is_paid(
    make: Make, instance: Instance
) -> None:
    watched = Watched(make())
    outcome = simulate(instance, watched)  # type: ignore[arg-type]
    for number in range(len(instance.jobs)):
        if number not in watched.completed:
            assert outcome.payment[number] == 0.0
            assert outcome.start[number] == NEVER


@EVERY
@settings(max_examples=40, deadline=None)
@given(instance=instances(), at=st.integers(1, 8))
def test_a_restart_changes_no_plan_and_no_price(make: Make, instance: Instance, at: int) -> None:
    class Restarted(Posted):
        def __init__(self) -> None:
            self.inner = make()
            self.name, self.bounds = self.inner.name, BOUNDS  # type: ignore[misc]

        def step(self, round: int) -> None:
            self.inner.step(round)
            if round == at:
                kept = json.loads(json.dumps(self.inner.state()))
                menu = menu_of(self.inner)
                plans = {job: held.plan.to_json() for job, held in self.inner.active.items()}
                starts = [(held.start, held.row) for held in self.inner.active.values()]
                self.inner = make()
                self.inner.restore(kept)
                again = menu_of(self.inner)
                assert again.price.tolist() == menu.price.tolist()
                # drawn anew: off by two errors at the most
                assert (
                    np.abs(again.failure - menu.failure).max() <= 2 * self.inner.error + self.inner.threshold
                )
                assert {job: held.plan.to_json() for job, held in self.inner.active.items()} == plans
                assert [(held.start, held.row) for held in self.inner.active.values()] == starts
                assert json.loads(json.dumps(self.inner.state())) == kept

        def __getattribute__(self, name: str) -> object:
            if name in ("inner", "step", "name", "bounds"):
                return object.__getattribute__(self, name)
            return getattr(object.__getattribute__(self, "inner"), name)

    simulate(instance, Restarted())


# ------------------------------------------------------------------------------------------ failures, by enumeration


def exact(
    jobs: list[tuple[Statement, LaunchPlan]], new: tuple[int, int, int], cancel: bool, capacity: int
) -> float:
    """Probability that a job of (demand, start, duration), born last, is evicted, over all ways to come."""
    total = 0.0
    for ways in itertools.product(*(range(len(seen.arrival)) for seen, _ in jobs)):
        weight = math.prod(float(seen.probability[way]) for (seen, _), way in zip(jobs, ways, strict=True))
        runs = []
        for (seen, plan), way in zip(jobs, ways, strict=True):
            start = start_of(plan, int(seen.arrival[way]), int(seen.signal[way]))
            runs.append(None if start is None else [seen.demand, start, start + int(seen.duration[way])])
        demand, start, duration = new
        runs.append([demand, start, start + duration])
        alive = [run is not None for run in runs]
        for now in range(start + duration):
            holds = [bool(a and run and run[1] <= now < run[2]) for a, run in zip(alive, runs, strict=True)]
            load = sum(run[0] for run, held in zip(runs, holds, strict=True) if run and held)
            for at in reversed(range(len(runs))):
                if load <= capacity:
                    break
                run = runs[at]
                active = alive[at] and run is not None and now < run[2]
                if holds[at] or (cancel and active):
                    alive[at] = False
                    if holds[at] and run is not None:
                        load -= run[0]
        total += weight * (not alive[-1])
    return total


@pytest.mark.parametrize("cancel", [False, True])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_failures_are_those_of_all_ways_in_which_jobs_may_come(cancel: bool, data: st.DataObject) -> None:
    capacity, samples = 4, 20_000
    bounds = replace(BOUNDS, capacity=capacity)
    futures = Futures(bounds, samples, 1, cancel)
    jobs = []
    for number in range(data.draw(st.integers(1, 4))):
        statement = data.draw(statements(0)).statement
        rows = sorted(set(zip(statement.arrival.tolist(), statement.signal.tolist(), strict=True)))
        starts = [data.draw(st.one_of(st.just(NEVER), st.integers(arrival, 5))) for arrival, _ in rows]
        plan = LaunchPlan(
            np.array([row[0] for row in rows], np.int32),
            np.array([row[1] for row in rows], np.int32),
            np.array(starts, np.int32),
        )
        if not plan.never:
            futures.add(number, statement, row_starts(statement, plan), statement.duration)
            jobs.append((statement, plan))
    out = np.zeros((bounds.span, bounds.max_duration))
    for demand in (1, 3):
        futures.table(demand, 0, out, 0.0, np.ones(bounds.max_duration, np.bool_))
        for start, duration in ((0, 1), (1, 3), (3, 2), (5, 3)):
            true = exact(jobs, (demand, start, duration), cancel, capacity)
            assert out[start, duration - 1] == pytest.approx(true, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(job=statements(0), seed=st.integers(0, 2**32 - 1))
def test_a_plan_is_the_best_there_is(job: Job, seed: int) -> None:
    statement = job.statement
    chance = np.random.default_rng(seed)
    starts, durations = BOUNDS.span, BOUNDS.max_duration
    price = np.cumsum(chance.uniform(0, 6, (starts, durations)), axis=1)
    price[chance.uniform(size=starts) < 0.2] = np.inf
    failure = np.sort(chance.uniform(0, 1, (starts, durations)), axis=1)
    worth = statement.worth.by_finish(0, starts + durations)
    worth[worth < 1.0] = 0.0
    best = best_plan(0, statement, price, failure, 1.0, 60.0)
    expected = 0.0
    for at, heard in sorted(set(zip(statement.arrival.tolist(), statement.signal.tolist(), strict=True))):
        gains = [0.0]
        for begin in range(at, starts):
            if np.isfinite(price[begin, 0]):
                fits = (statement.arrival == at) & (statement.signal == heard)
                rows = zip(
                    statement.duration[fits].tolist(), statement.probability[fits].tolist(), strict=True
                )
                gains.append(
                    sum(
                        p * (1 - failure[begin, d - 1]) * (worth[begin + d] - price[begin, d - 1])
                        for d, p in rows
                        if np.isfinite(price[begin, d - 1])
                    )
                )
        expected += max(gains)
    assert best.utility == pytest.approx(expected)
    assert len(best.plan.start) == len(
        set(zip(statement.arrival.tolist(), statement.signal.tolist(), strict=True))
    )
    assert best.payment >= 0.0
    assert row_starts(statement, best.plan).tolist() == best.row_start.tolist()


@EVERY
@settings(max_examples=4, deadline=None)
@given(instance=instances(), seed=st.integers(0, 1000))
def test_no_misreport_gains_more_than_the_error_allows(make: Make, instance: Instance, seed: int) -> None:
    mechanism = make()
    found = search(
        instance,
        mechanism,
        range(0, len(instance.jobs), 3),
        tries=6,
        delays=(),
        paths=0,
        samples=4000,
        seed=seed,
    )
    assert found
    for one in found:
        assert one.announced_gain <= 1e-9, "truth is best under what was announced"
        worst = max(one.gain.values())
        assert worst <= one.bound + 1e-9
        assert worst <= 2.0 * (mechanism.error + mechanism.threshold) * BOUNDS.max_value


def test_the_number_of_samples_follows_from_error_and_confidence() -> None:
    assert sample_count(0.05, 0.99, 24) == math.ceil(math.log(2 * 24 / 0.01) / (2 * 0.05**2)) == 1696

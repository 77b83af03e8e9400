"""Statements of several resources: none is ever promised beyond what there is, and truth pays for GPUs as for cores."""

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
from sow_menu import ahead

from asad.admit.sow.failures import Futures
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.sow import Sow
from asad.admit.sow.sow_paper import SowPaper
from asad.admit.sow.statement import NEVER, Bounds, Statement, Worth
from asad.errors import UsageError
from asad_papers.sow.misreport import search
from asad_papers.sow.rounds import Instance, Job, needs_of, simulate

BOUNDS = Bounds(capacity=6, max_demand=3, max_duration=3, max_value=20.0, span=6)
COUNTED = {
    "gres/gpu": replace(BOUNDS, capacity=4, max_demand=2),
    "gres/gpu:a100": replace(BOUNDS, capacity=2, max_demand=2),
    "license/x": replace(BOUNDS, capacity=3, max_demand=1),
}
CAPACITY = {"": 6, "gres/gpu": 4, "gres/gpu:a100": 2, "license/x": 3}
ROUNDS = 14

Make = Callable[[], Posted]


def counting(mechanism: Posted) -> Posted:
    for name, limits in COUNTED.items():
        mechanism.count(name, limits.capacity, limits.max_demand)
    return mechanism


MAKES: dict[str, Make] = {
    "sow": lambda: counting(Sow(BOUNDS, error=0.1)),
    "sow, waiting cancelled": lambda: counting(Sow(BOUNDS, error=0.1, cancel_waiting=True)),
    "sow-paper, overbooked": lambda: counting(SowPaper(BOUNDS, delta=-0.5, error=0.1)),
}
EVERY = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())


@st.composite
def statements(draw: st.DrawFn, birth: int) -> Job:
    """Half of them take GPUs, of any type or of one, some a licence."""
    rows = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 5))
    ways = draw(st.lists(rows, min_size=1, max_size=4, unique_by=lambda way: way[:2]))
    total = sum(part for _, _, part in ways)
    support = [(birth + ahead, duration, part / total) for ahead, duration, part in ways]
    worth = Worth("deadline", draw(st.floats(4.0, 20.0)), birth + draw(st.integers(3, 8)))
    gpus, typed, licences = draw(st.integers(-2, 2)), draw(st.booleans()), draw(st.integers(0, 1))
    tres = {"gres/gpu": gpus, "gres/gpu:a100": gpus if typed else 0, "license/x": licences}
    came = draw(st.sampled_from(support))
    demand, wants = draw(st.integers(1, 2)), {name: units for name, units in tres.items() if units > 0}
    return Job(Statement.of(birth, demand, support, worth, tres=wants), came[0], came[1])


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    births = sorted(draw(st.lists(st.integers(0, 5), min_size=1, max_size=24)))
    jobs = tuple(draw(statements(birth)) for birth in births)
    return Instance("drawn", BOUNDS, ROUNDS, jobs, counted=COUNTED)


class Watched:
    """A mechanism that is looked at after each thing that it does."""

    def __init__(self, mechanism: Posted) -> None:
        self.inner, self.name, self.bounds = mechanism, mechanism.name, mechanism.bounds
        self.paid: dict[int, list[list[float]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, job: int, statement: Statement) -> Any:
        price, _ = self.inner.tables(statement.demand, statement.tres)
        answer = self.inner.submit(job, statement)
        for row, start in enumerate(answer.plan.start.tolist()):
            if start != NEVER:
                sold = np.isfinite(price[start - self.inner.now])
                announced = price[start - self.inner.now][sold]
                assert answer.price[row][sold].tolist() == announced.tolist(), "the menu is what is paid"
        self.paid[job] = answer.price.tolist()
        window = BOUNDS.span + BOUNDS.max_duration
        for prices in (self.inner.relaxed, *self.inner._relaxed.values()):
            assert (ahead(prices, "used", window) <= ahead(prices, "supply", window) + 1e-9).all()
        return answer

    def complete(self, job: int, round: int) -> float:
        paid = self.inner.complete(job, round)
        assert any(paid in row for row in self.paid[job])
        return paid


@EVERY
@settings(max_examples=15, deadline=None)
@given(instance=instances())
def test_no_resource_is_promised_or_run_beyond_what_there_is(make: Make, instance: Instance) -> None:
    # `simulate` refuses what runs beyond any capacity; `Watched` what is sold beyond any supply
    outcome = simulate(instance, Watched(make()))  # type: ignore[arg-type]
    assert (outcome.payment[outcome.start == NEVER] == 0.0).all()
    load: dict[tuple[str, int], int] = {}
    for job, start in zip(instance.jobs, outcome.start.tolist(), strict=True):
        for name, units in needs_of(job.statement).items() if start != NEVER else ():
            for round in range(start, start + job.duration):
                load[name, round] = load.get((name, round), 0) + units
    assert all(units <= CAPACITY[name] for (name, _), units in load.items())


@EVERY
@settings(max_examples=10, deadline=None)
@given(instance=instances(), kept=st.integers(0, 23))
def test_what_becomes_of_a_job_does_not_depend_on_who_is_born_later(
    make: Make, instance: Instance, kept: int
) -> None:
    fewer = replace(instance, jobs=instance.jobs[:kept])
    whole, part = simulate(instance, make()), simulate(fewer, make())
    count = len(fewer.jobs)
    assert part.start.tolist() == whole.start[:count].tolist()
    assert part.payment.tolist() == whole.payment[:count].tolist()


@EVERY
@settings(max_examples=8, deadline=None)
@given(instance=instances(), at=st.integers(1, 8))
def test_prices_and_risks_rise_with_every_resource_and_outlive_a_restart(
    make: Make, instance: Instance, at: int
) -> None:
    mechanism = make()
    simulate(replace(instance, rounds=at), mechanism)
    none, gpu = {"gres/gpu": 0, "license/x": 0}, {"gres/gpu": 1}
    menus = [
        mechanism.tables(1, wants)
        for wants in (none, gpu, {"gres/gpu": 2}, {"gres/gpu": 2, "gres/gpu:a100": 2})
    ]
    assert [*map(np.ndarray.tolist, mechanism.tables(1))] == [*map(np.ndarray.tolist, menus[0])]
    for (price, failure), (dearer, riskier) in itertools.pairwise(menus):
        assert (price <= dearer).all() and (failure <= riskier).all()
        with np.errstate(invalid="ignore"):
            assert not (np.diff(dearer, axis=1) < 0).any() and not (np.diff(riskier, axis=1) < 0).any()
    # it learns from what was kept which resources there are
    other = Sow(BOUNDS, error=0.1) if mechanism.name == "sow" else SowPaper(BOUNDS, -0.5, error=0.1)
    other.restore(json.loads(json.dumps(mechanism.state())))
    assert other.state() == mechanism.state() and [*other.counted] == [*COUNTED]
    assert other.tables(1, gpu)[0].tolist() == menus[1][0].tolist()


def exact(jobs: list[tuple[Statement, int]], new: tuple[dict[str, int], int, int], cancel: bool) -> float:
    """Probability that a job of (needs, start, duration), born last, has to go, over all ways in which others come."""
    total = 0.0
    for ways in itertools.product(*(range(len(seen.duration)) for seen, _ in jobs)):
        weight = math.prod(float(seen.probability[way]) for (seen, _), way in zip(jobs, ways, strict=True))
        runs = [
            (needs_of(seen), start, start + int(seen.duration[way]))
            for (seen, start), way in zip(jobs, ways, strict=True)
        ]
        runs.append((new[0], new[1], new[1] + new[2]))
        alive = [True] * len(runs)
        for now in range(new[1] + new[2]):
            held, full = dict.fromkeys(CAPACITY, 0), set[str]()
            for at, (needs, begin, end) in enumerate(runs):
                runs_now = begin <= now < end
                if not alive[at] or not (runs_now or (cancel and now < end)):
                    continue
                for name in CAPACITY:  # in this order a resource is found full
                    units = needs.get(name, 0)
                    if units and runs_now and held[name] + units > CAPACITY[name]:
                        full.add(name)
                    if units and name in full:
                        alive[at] = False
                        break
                for name, units in needs.items() if alive[at] and runs_now else ():
                    held[name] += units
        total += weight * (not alive[-1])
    return total


@pytest.mark.parametrize("cancel", [False, True])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_failures_are_those_of_all_ways_in_which_jobs_may_come(cancel: bool, data: st.DataObject) -> None:
    futures = Futures(BOUNDS, 10_000, 1, cancel)
    for name, limits in COUNTED.items():
        futures.count(name, limits.capacity)
    jobs: list[tuple[Statement, int]] = []
    for number in range(data.draw(st.integers(1, 4))):
        drawn = data.draw(statements(0)).statement
        start = data.draw(st.integers(0, 4))
        lasts = np.unique(drawn.duration).tolist()
        ways = [(0, duration, 1.0 / len(lasts)) for duration in lasts]
        statement = Statement.of(0, drawn.demand, ways, drawn.worth, tres=drawn.tres)
        futures.add(number, statement, np.full(len(ways), start, np.int32), statement.duration)
        jobs.append((statement, start))
    out = np.zeros((BOUNDS.span, BOUNDS.max_duration))
    for demand, tres in (
        (1, {}),
        (1, {"gres/gpu": 2}),
        (2, {"gres/gpu": 1, "gres/gpu:a100": 1, "license/x": 1}),
    ):
        futures.table(demand, 0, out, 0.0, np.ones(BOUNDS.max_duration, np.bool_), tres)
        for start, duration in ((0, 1), (1, 3), (3, 2)):
            true = exact(jobs, ({"": demand, **tres}, start, duration), cancel)
            assert out[start, duration - 1] == pytest.approx(true, abs=0.03)


@EVERY
@settings(max_examples=2, deadline=None)
@given(instance=instances(), seed=st.integers(0, 1000))
def test_no_misreport_of_gpus_gains_more_than_the_error_allows(
    make: Make, instance: Instance, seed: int
) -> None:
    mechanism = make()
    numbers = range(0, len(instance.jobs), 3)
    found = search(instance, mechanism, numbers, tries=6, delays=(), paths=0, samples=4000, seed=seed)
    assert found
    for one in found:
        assert one.announced_gain <= 1e-9, "truth is best under what was announced"
        worst = max(one.gain.values())
        assert worst <= one.bound + 1e-9
        assert worst <= 2.0 * (mechanism.error + mechanism.threshold) * BOUNDS.max_value


def test_who_needs_none_of_what_is_full_stays() -> None:
    mechanism = counting(Sow(BOUNDS, error=0.2))
    for number, tres in enumerate(({"gres/gpu": 2}, {"gres/gpu": 2}, {"license/x": 1}, {})):
        mechanism.submit(number, Statement.of(0, 1, [(0, 1, 1.0)], Worth("deadline", 20.0, 1), tres=tres))
        mechanism.arrive(number, 0)
    gone = mechanism.evict(0, (6, 3, 2, 3))
    assert [one.job for one in gone] == [1]
    assert "need 4 of gres/gpu and there are 3; it would hold 2" in gone[0].reason


def test_what_is_not_counted_or_more_than_one_job_may_have_is_refused() -> None:
    mechanism = counting(Sow(BOUNDS))
    worth = Worth("deadline", 9.0, 9)
    for tres, why in (
        ({"gres/fpga": 1}, "1 of gres/fpga"),
        ({"gres/gpu": 3}, "3 of gres/gpu are above the 2"),
    ):
        with pytest.raises(UsageError, match=why):
            mechanism.submit(1, Statement.of(0, 1, [(0, 1, 1.0)], worth, tres=tres))
    with pytest.raises(UsageError, match="gres/gpu 0: write a whole number from 1"):
        Statement.of(0, 1, [(0, 1, 1.0)], worth, tres={"gres/gpu": 0})

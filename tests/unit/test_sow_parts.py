"""Parts of statements of work by themselves: statements, prices, what is learned, others' load, overruns, bundles."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from sow_menu import ahead, menu_of

from asad.admit.sow.demand import Demand
from asad.admit.sow.failures import Futures
from asad.admit.sow.mechanisms import mechanism_names, mechanism_of
from asad.admit.sow.sow import Sow
from asad.admit.sow.sow_paper import SowPaper
from asad.admit.sow.statement import NEVER, Bounds, LaunchPlan, Statement, Worth
from asad.admit.sow.unit_prices import Terms, UnitPrices, paper_terms
from asad.catalog import policy_class
from asad.errors import UsageError
from asad_papers.sow.rounds import simulate
from asad_papers.sow.statement_instances import draw_prior
from asad_papers.sow.stochastic import SowStochastic, bundles_of

BOUNDS = Bounds(capacity=20, max_demand=4, max_duration=3, max_value=20.0, span=8)


def sure(birth: int, demand: int, arrival: int, duration: int, value: float, deadline: int = 99) -> Statement:
    return Statement.of(birth, demand, [(arrival, duration, 1.0)], Worth("deadline", value, deadline))


# ------------------------------------------------------------------------------------------------------ statements


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Statement.of(3, 1, [(2, 1, 1.0)], Worth("deadline", 1.0, 9)),
            "arrives before its birth in round 3",
        ),
        (lambda: Statement.of(0, 1, [(2, 0, 1.0)], Worth("deadline", 1.0, 9)), "duration 0"),
        (lambda: Statement.of(0, 0, [(2, 1, 1.0)], Worth("deadline", 1.0, 9)), "demand 0"),
        (lambda: Statement.of(0, 1, [(2, 1, 0.5)], Worth("deadline", 1.0, 9)), "sum up to 0.5"),
        (lambda: Statement.of(0, 1, [(2, 1, math.nan)], Worth("deadline", 1.0, 9)), "sum up to nan"),
        (lambda: Statement.of(0, 1, [(2, 1, 2.0), (3, 1, -1.0)], Worth("deadline", 1.0, 9)), "above 0"),
        (lambda: Statement.of(0, 1, [], Worth("deadline", 1.0, 9)), "0 rows"),
        (lambda: Statement.of(0, 1, [(2, 1, 1.0)], Worth("deadline", 1.0, 9), [-1]), "signal -1"),
        (lambda: Worth("deadline", math.inf, 9), "value inf"),
        (lambda: Worth("own", 0.0, 9, 1, (1.0, 2.0)), "never rise"),
        (lambda: Worth("linear", 1.0, 9, 0), "span 0"),
        (lambda: Worth("cubic", 1.0, 9), "shape 'cubic'"),  # type: ignore[arg-type]
        (lambda: Statement.from_json({"birth": 0}), "cannot be read"),
        (
            lambda: Statement.from_json({"birth": 0, "demand": 1, "rows": [[1]], "worth": {}}),
            "cannot be read",
        ),
        (lambda: Worth.from_json({"kind": "deadline", "value": "x", "deadline": 1}), "cannot be read"),
        (lambda: LaunchPlan.from_json([[1, 2]]), "cannot be read"),
        (lambda: Bounds(10, 20, 1, 1.0, 1), "max_demand 20 is more"),
        (lambda: Bounds(10, 0, 1, 1.0, 1), "max_demand 0"),
        (lambda: Bounds(10, 1, 1, 0.5, 1), "least_value"),
    ],
)
def test_what_is_no_statement_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        make()


@pytest.mark.parametrize(
    "worth",
    [Worth("deadline", 5.0, 7), Worth("linear", 6.0, 9, 8), Worth("own", 0.0, 6, 1, (9.0, 9.0, 4.0, 1.0))],
    ids=lambda worth: worth.kind,
)
def test_values_by_finish_are_the_same_one_by_one_in_a_row_and_in_a_plan(worth: Worth) -> None:
    row = worth.by_finish(2, 12)
    assert row.tolist() == [worth.at(2, 2 + after) for after in range(13)]
    assert (np.diff(row) <= 0.0).all()
    assert Worth.from_json(json.loads(json.dumps(worth.to_json()))) == worth
    mechanism = SowPaper(BOUNDS, error=0.2)
    mechanism.step(2)
    statement = Statement.of(2, 1, [(3, 1, 0.5), (4, 2, 0.5)], worth)
    answer = mechanism.submit(1, statement)
    # nobody else is there: it starts on arrival, if that is worth anything, for the price of the first units
    expected = sum(
        part * max(0.0, value - price) if value >= 1.0 else 0.0
        for part, value, price in (
            (0.5, worth.at(2, 4), float(answer.price[0, 0])),
            (0.5, worth.at(2, 6), float(answer.price[1, 1])),
        )
    )
    assert answer.utility == pytest.approx(expected)


def test_rows_are_kept_in_order_and_read_back() -> None:
    statement = Statement.of(
        1, 2, [(5, 2, 0.25), (3, 1, 0.5), (5, 1, 0.25)], Worth("linear", 5.0, 9, 8), "duration"
    )
    assert statement.arrival.tolist() == [3, 5, 5] and statement.duration.tolist() == [1, 1, 2]
    assert statement.probability.tolist() == [0.5, 0.25, 0.25] and statement.signal.tolist() == [1, 1, 2]
    again = Statement.from_json(json.loads(json.dumps(statement.to_json())))
    assert again.to_json() == statement.to_json() and again.longest == 2
    assert statement.with_signal("none").signal.tolist() == [0, 0, 0]


def test_an_arrival_that_was_not_stated_is_the_next_later_one() -> None:
    mechanism = SowPaper(BOUNDS, error=0.2)
    statement = Statement.of(0, 1, [(2, 1, 0.5), (5, 1, 0.5)], Worth("deadline", 9.0, 9))
    for job in (1, 2, 3):
        assert not mechanism.submit(job, statement).plan.never
    mechanism.step(3)
    start = mechanism.arrive(1, 3)
    assert start is not None and start >= 5
    assert mechanism.arrive(1, 3) == start, "once promised, it stands"
    mechanism.step(6)
    assert mechanism.arrive(2, 6) is None and 2 not in mechanism.active
    assert mechanism.arrive(99, 6) is None


# ---------------------------------------------------------------------------------------------------------- prices


def test_unit_prices_are_those_of_the_formula() -> None:
    terms = paper_terms(BOUNDS, 0.25)
    assert terms == Terms(1.0 / (2 * 4 * 3), 20.0, 15.0)
    prices = UnitPrices(BOUNDS, lambda _: terms)
    start, duration = np.array([2], np.int32), np.array([3], np.int32)
    for _ in range(5):
        prices.take(start, duration, np.array([0.5]), 4)
    load = ahead(prices, "used", 8)
    assert load.tolist() == [0, 0, 10, 10, 10, 0, 0, 0]
    expected = [terms.low * (terms.high / terms.low) ** (y / 11.0) for y in load]
    assert ahead(prices, "unit", 8).tolist() == pytest.approx(expected)
    prices.take(start, duration, np.array([0.25]), 4)
    assert math.isinf(ahead(prices, "unit", 8)[2]), "nothing is sold from K - c_max on"
    out = np.zeros((3, 3))
    prices.prices(2, 0, out)
    assert out[0, 0] == pytest.approx(2 * terms.low) and out[0, 1] == pytest.approx(4 * terms.low)
    assert math.isinf(out[0, 2])
    with pytest.raises(UsageError, match=r"leaves 4 of 20"):
        paper_terms(BOUNDS, 0.8)


def test_what_others_hold_is_in_failures_and_in_no_price() -> None:
    mechanism = SowPaper(BOUNDS, error=0.1)
    before = menu_of(mechanism)
    mechanism.occupy(0, np.array([0, 18, 18, 0], np.int32))
    held = menu_of(mechanism)
    assert held.price.tolist() == before.price.tolist()
    assert (
        held.failure_of(1, 2, 1) == 0.0
        and held.failure_of(1, 3, 1) == 1.0
        and held.failure_of(0, 3, 2) == 1.0
    )
    mechanism.occupy(0, np.zeros(4, np.int32))
    freed = menu_of(mechanism)
    assert freed.price.tolist() == held.price.tolist()
    assert freed.failure.max() == 0.0
    assert freed.price_of(99, 1, 1) == math.inf and freed.failure_of(0, 99, 1) == 1.0


def test_the_clearing_price_is_where_demand_meets_what_is_sold() -> None:
    demand = Demand(BOUNDS, 1e6)
    assert demand.clearing_price(10.0) is None
    demand.meet(10.0, 20.0)  # density 0.5
    demand.meet(40.0, 20.0)  # 2
    demand.meet(160.0, 20.0)  # 8
    demand.pass_rounds(1)
    assert demand.clearing_price(61.0) == 0.0
    low, middle, high = (demand.clearing_price(units) for units in (50.0, 30.0, 10.0))
    assert low is not None and middle is not None and high is not None
    assert low == pytest.approx(0.5, rel=0.13) and middle == pytest.approx(2.0, rel=0.13)
    assert high == pytest.approx(8.0, rel=0.13)
    again = Demand(BOUNDS, 1e6)
    again.restore(json.loads(json.dumps(demand.state())))
    assert again.clearing_price(30.0) == middle and again._rounds == demand._rounds
    with pytest.raises(UsageError):
        again.restore({"volume": [1.0], "rounds": 1.0})


def crowd(mechanism: Sow, rounds: int, value: float) -> None:
    """Every round, as many units are wanted as there are four times over."""
    number = 0
    for now in range(rounds):
        mechanism.step(now)
        for _ in range(20):
            mechanism.submit(number, sure(now, 4, now, 1, value))
            mechanism.arrive(number, now)
            number += 1
        mechanism.evict(now)
        for job in list(mechanism.active):
            mechanism.complete(job, now + 1)


def test_prices_follow_what_is_bid_and_only_in_rounds_announced_later() -> None:
    cheap, dear = Sow(BOUNDS, error=0.2), Sow(BOUNDS, error=0.2)
    first = ahead(cheap.relaxed, "unit", 11).tolist()
    crowd(cheap, 30, 2.0)
    crowd(dear, 30, 16.0)
    last = [ahead(one.relaxed, "unit", 11)[-1] for one in (cheap, dear)]
    assert last[1] > 4 * last[0]
    assert first == [first[0]] * 11, "before anything is stated, all rounds cost the same"
    unlearned = math.sqrt(paper_terms(BOUNDS, 0.0).low * BOUNDS.max_value)
    assert unlearned != pytest.approx(last[0])


def test_delta_moves_against_evictions_within_its_bounds() -> None:
    mechanism = Sow(BOUNDS, delta=-0.1, evictions=0.02, error=0.2)
    for now in range(1, 200):
        mechanism._planned, mechanism._gone = 100.0, 30.0
        before = mechanism.delta
        mechanism.step(now)
        assert mechanism.delta > before or mechanism.delta == 0.3
    assert mechanism.delta == 0.3
    for now in range(200, 900):
        mechanism._planned, mechanism._gone = 100.0, 0.0
        mechanism.step(now)
    assert mechanism.delta == pytest.approx(0.3 - 700 * 0.03 * 0.02)


# ------------------------------------------------------------------------------------------------------- mechanism


def test_who_runs_longer_than_stated_is_counted_on_and_pays_for_it() -> None:
    mechanism = SowPaper(BOUNDS, error=0.1)
    mechanism.submit(1, sure(0, 4, 0, 1, 9.0))
    assert mechanism.arrive(1, 0) == 0
    mechanism.step(2)
    menu = menu_of(mechanism)
    assert menu.failure_of(2, 4, 1) == 0.0
    mechanism.occupy(2, np.array([16], np.int32))
    assert menu_of(mechanism).failure_of(2, 1, 1) == 1.0, "it still runs"
    assert menu_of(mechanism).failure_of(3, 1, 1) == 0.0
    price = mechanism.active[1].price[0]
    assert mechanism.complete(1, 2) == price[1] > price[0]


@pytest.mark.parametrize("restart", [False, True])
def test_who_runs_into_a_round_that_was_not_sold_to_him_is_ended_there(restart: bool) -> None:
    mechanism = SowPaper(BOUNDS, error=0.2)
    mechanism.relaxed.take(np.array([1, 1], np.int32), np.array([2, 2], np.int32), np.array([2.0, 2.0]), 4)
    menu = menu_of(mechanism)
    assert math.isinf(menu.price_of(0, 2, 2)) and menu.failure_of(0, 2, 2) == 1.0
    assert math.isfinite(menu.price_of(0, 2, 1)) and menu.failure_of(0, 2, 1) == 0.0
    short, both = Worth("deadline", 9.0, 1), Worth("deadline", 9.0, 2)
    hidden = mechanism.submit(1, Statement.of(0, 2, [(0, 1, 1.0)], short))
    statement = mechanism.submit(2, Statement.of(0, 2, [(0, 1, 0.5), (0, 2, 0.5)], both))
    for answer in (hidden, statement):
        assert answer.plan.start.tolist() == [0]
    assert statement.failure.tolist() == [0.5] and hidden.failure.tolist() == [0.0]
    assert statement.utility == pytest.approx(0.5 * (9.0 - statement.price[0, 0]))
    load = ahead(mechanism.relaxed, "used", 3).tolist()
    assert load[1:] == [16.0, 16.0], "of what is not sold nothing is expected"
    for job in (1, 2):
        assert mechanism.arrive(job, 0) == 0
    if restart:
        kept = json.loads(json.dumps(mechanism.state()))
        mechanism = SowPaper(BOUNDS, error=0.2)
        mechanism.restore(kept)
    assert mechanism.evict(0) == ()
    mechanism.step(1)
    gone = mechanism.evict(1)
    assert [eviction.job for eviction in gone] == [2, 1]
    assert all("was not sold to it" in eviction.reason and eviction.running for eviction in gone)
    assert mechanism.complete(1, 2) == 0.0


def test_what_goes_beyond_the_bounds_or_back_in_time_is_refused() -> None:
    mechanism = Sow(BOUNDS, error=0.2)
    mechanism.step(3)
    mechanism.submit(1, sure(3, 1, 3, 1, 5.0))
    for seen, says in (
        (sure(3, 5, 3, 1, 5.0), "demand 5 is above the 4 units"),
        (sure(3, 1, 3, 4, 5.0), "duration 4 is above the 3 rounds"),
        (sure(3, 1, 3, 1, 21.0), "value 21 is above 20"),
        (sure(4, 1, 4, 1, 5.0), "birth in round 4; it is round 3"),
    ):
        with pytest.raises(UsageError, match=says):
            mechanism.submit(2, seen)
        assert 2 not in mechanism.active
    with pytest.raises(UsageError, match="job 1 has a plan already"):
        mechanism.submit(1, sure(3, 1, 3, 1, 5.0))
    with pytest.raises(UsageError, match="round 2 is past"):
        mechanism.step(2)
    with pytest.raises(UsageError, match="`step` first"):
        mechanism.evict(4)
    for kept in ({}, {**mechanism.state(), "jobs": [{}]}, {**mechanism.state(), "learned": None}):
        with pytest.raises(UsageError):
            Sow(BOUNDS, error=0.2).restore(kept)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="other span"):
        Sow(replace(BOUNDS, span=9), error=0.2).restore(mechanism.state())


def test_a_withdrawn_job_holds_nothing_and_pays_nothing() -> None:
    mechanism = SowPaper(BOUNDS, error=0.1)
    for job in range(5):
        mechanism.submit(job, sure(0, 4, 0, 2, 9.0))
        mechanism.arrive(job, 0)
    price = menu_of(mechanism).price
    full = [job for job, held in mechanism.active.items() if held.start == 0]
    mechanism.withdraw(full[0], 0)
    assert mechanism.complete(full[0], 2) == 0.0
    assert menu_of(mechanism).price.tolist() == price.tolist()


@pytest.mark.parametrize("name", mechanism_names())
def test_a_mechanism_is_made_by_name_and_its_options_are_checked(name: str) -> None:
    assert {"error", "confidence", "delta", "cancel_waiting"} <= policy_class("admit", name).defaults().keys()
    made = mechanism_of(name, BOUNDS, {"error": 0.2})
    assert made.name == name
    for options in ({"error": 0.0}, {"confidence": 1.0}, {"error": 1e-6}, {"delta": 0.95}):
        with pytest.raises(UsageError):
            mechanism_of(name, BOUNDS, options)


# -------------------------------------------------------------------------------------------------------- failures


def failure(futures: Futures, demand: int, first: int) -> list[float]:
    """Of one round, by start from `first` on."""
    out = np.zeros((3, 1))
    futures.table(demand, first, out, 0.0, np.ones(1, np.bool_))
    return [float(one) for one in out[:, 0]]


def test_in_a_round_that_is_too_full_a_small_job_goes_before_a_wide_one_that_was_born_earlier() -> None:
    futures = Futures(replace(BOUNDS, capacity=4), 100, 1, False)
    for number, (demand, duration) in enumerate(((3, 1), (3, 1), (1, 3))):
        statement = sure(0, demand, 0, duration, 9.0)
        futures.add(number, statement, np.zeros(1, np.int32), statement.duration)
    # the second has to go, and the third before it: it holds nothing in round 1
    assert failure(futures, 4, 0) == [1.0, 0.0, 0.0]
    assert futures._load[0, :3].mean(axis=1).tolist() == [3.0, 0.0, 0.0]


def test_that_a_job_still_runs_or_has_not_come_is_learned_once_a_round() -> None:
    mechanism = SowPaper(BOUNDS, error=0.05, cancel_waiting=False)
    mechanism.submit(1, Statement.of(0, 4, [(0, 1, 0.5), (0, 3, 0.5)], Worth("linear", 9.0, 9, 10)))
    mechanism.submit(2, Statement.of(0, 4, [(1, 1, 0.5), (3, 1, 0.5)], Worth("linear", 9.0, 9, 10)))
    mechanism.occupy(0, np.full(8, 16, np.int32))
    at_birth = [menu_of(mechanism).failure_of(start, 1, 1) for start in range(4)]
    assert at_birth == pytest.approx([1.0, 0.75, 0.5, 0.5], abs=0.05)
    assert mechanism.arrive(1, 0) == 0
    mechanism.step(1)
    mechanism.occupy(1, np.full(8, 16, np.int32))
    assert [menu_of(mechanism).failure_of(start, 1, 1) for start in (1, 2)] == [1.0, 1.0], (
        "it is not done at 1"
    )
    mechanism.step(2)
    mechanism.occupy(2, np.full(8, 16, np.int32))
    # the first did not finish at 1, so it lasts until 3; the second did not come in 1, so it comes in 3
    assert [menu_of(mechanism).failure_of(start, 1, 1) for start in (2, 3, 4)] == [1.0, 1.0, 0.0]


def test_jobs_are_drawn_independently() -> None:
    mechanism = SowPaper(BOUNDS, error=0.05)
    for job in (7, 8):
        mechanism.submit(job, Statement.of(0, 4, [(1, 1, 0.5), (3, 1, 0.5)], Worth("linear", 9.0, 9, 10)))
    mechanism.occupy(0, np.full(8, 12, np.int32))
    menu = menu_of(mechanism)
    assert menu.failure_of(1, 4, 1) == pytest.approx(0.25, abs=0.05)
    assert menu.failure_of(3, 4, 1) == pytest.approx(0.25, abs=0.05)


# ------------------------------------------------------------------------------------------------------ stochastic


def test_bundles_keep_the_conditions_of_a_fractional_unit_allocation() -> None:
    instance, prior = draw_prior(1.5, 5, rounds=34)
    bounds = instance.bounds
    bundles = bundles_of(prior, bounds, 100.0, instance.rounds)
    assert len(bundles.first) > 20 and (bundles.weight <= bounds.max_demand + 1e-9).all()
    covered = np.zeros(instance.rounds + bounds.max_duration)
    for first, end in zip(bundles.first.tolist(), bundles.end.tolist(), strict=True):
        covered[first:end] += bounds.max_demand
    assert covered.max() <= 50.0 + 1e-9, "half of the supply"
    assert 0.0 < bundles.value <= bundles.lp_value + 1e-6
    assert float((2 * bundles.price * bundles.weight).sum()) == pytest.approx(bundles.value)
    with pytest.raises(UsageError):
        bundles_of([[(1.5, instance.jobs[0].statement)]], bounds, 100.0, instance.rounds)
    none = bundles_of([], bounds, 100.0, instance.rounds)
    assert len(none.first) == 0 and none.lp_value == 0.0


def test_prices_of_bundles_only_rise_and_nothing_is_sold_beyond_the_supply() -> None:
    instance, prior = draw_prior(1.5, 5, rounds=34)
    mechanism = SowStochastic(instance.bounds, prior, instance.rounds, error=0.2)
    highest: dict[tuple[int, int, int], float] = {}
    number = 0
    for now in range(12):
        mechanism.step(now)
        menu = menu_of(mechanism)
        assert (menu.price[:, :, :-1] <= menu.price[:, :, 1:]).all()
        for at in np.ndindex(menu.price.shape):
            key = (now + at[0], at[1], at[2])
            assert menu.price[at] >= highest.get(key, 0.0) - 1e-12
            highest[key] = float(menu.price[at])
        while number < len(instance.jobs) and instance.jobs[number].statement.birth == now:
            mechanism.submit(number, instance.jobs[number].statement)
            number += 1
        # the runs that are sold of a bundle lie in it: no round is expected to hold more than this
        expected = np.zeros(instance.rounds + instance.bounds.max_duration)
        bundles, sold = mechanism.bundles, mechanism.relaxed._sold  # type: ignore[attr-defined]
        for first, end, units in zip(bundles.first, bundles.end, sold, strict=True):
            expected[first:end] += units
        assert 0.0 < expected.max() <= 100.0 + 1e-9
    kept = json.loads(json.dumps(mechanism.state()))
    again = SowStochastic(instance.bounds, prior, instance.rounds, error=0.2)
    again.restore(kept)
    assert menu_of(again).price.tolist() == menu_of(mechanism).price.tolist()


def test_half_of_the_bundles_value_is_reached_in_the_mean() -> None:
    welfare, promised = 0.0, 0.0
    for seed in range(4):
        instance, prior = draw_prior(1.0, seed, kinds=3, rounds=32)
        mechanism = SowStochastic(instance.bounds, prior, instance.rounds, error=0.2)
        welfare += simulate(instance, mechanism).welfare
        promised += mechanism.bundles.value / 2.0
    assert welfare >= promised > 0.0
    assert NEVER == -1

"""OASiS over whole instances: promises keep constraints (2) to (13), prices follow what is taken, nothing is lost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from asad.admit.elastic import Allotment, ElasticJob, Schedule, Servers, Verdict
from asad.admit.oasis import Oasis
from asad.admit.oasis_paper import OasisPaper
from asad.admit.prices import Bounds, bounds_of, whole
from asad.admit.server_prices import refresh
from asad.admit.slot_ledgers import Ledger
from asad.admit.utility import Constant, Deadline, Sigmoid
from asad.errors import UsageError
from asad_papers.oasis.constraints import violation
from asad_papers.oasis.offline_schedule import optimum
from asad_papers.oasis.scheme_instances import Instance, draw_instance, read_instance
from asad_papers.oasis.slots import simulate

Make = Callable[[Instance], Oasis]


def informed(instance: Instance) -> Oasis:
    bounds = bounds_of(instance.jobs, instance.servers, instance.slots)
    return Oasis(instance.servers, instance.slots, until=instance.slots, bounds=bounds)


def online(instance: Instance) -> Oasis:
    return Oasis(instance.servers, instance.slots, until=instance.slots)


def paper(instance: Instance) -> Oasis:
    return OasisPaper(instance.servers, instance.slots, until=instance.slots)


MAKES = pytest.mark.parametrize("make", [informed, online, paper])


def busy(seed: int) -> Instance:
    """Half of the jobs have no parameter servers, or no GPUs."""
    instance = draw_instance(60, seed, slots=40, servers=12, most_chunks=20)
    jobs = list(instance.jobs)
    for at in range(0, len(jobs), 4):
        jobs[at] = replace(jobs[at], server_bandwidth=0.0)
    return replace(instance, jobs=tuple(jobs))


def promised(schemes_verdicts: Iterable[Verdict]) -> dict[int, Schedule]:
    return {
        number: verdict.schedule
        for number, verdict in enumerate(schemes_verdicts)
        if verdict.admitted and verdict.schedule is not None
    }


def taken_by(instance: Instance, schedules: Mapping[int, Schedule]) -> tuple[NDArray[np.float64], ...]:
    """(T, H, R) and (T, K, R): what the schedules take, added up plainly."""
    servers = instance.servers
    workers = np.zeros((instance.slots, *servers.workers.shape))
    beside = np.zeros((instance.slots, *servers.parameter_servers.shape))
    for number, schedule in schedules.items():
        job = instance.jobs[number]
        for slot, there in schedule.items():
            for server, count in zip(there.worker_server, there.workers, strict=True):
                workers[slot, server] += job.worker * count
            for server, count in zip(there.parameter_server, there.servers, strict=True):
                beside[slot, server] += job.server * count
    return workers, beside


@MAKES
@pytest.mark.parametrize("seed", range(6))
def test_what_is_promised_keeps_every_constraint_and_happens(make: Make, seed: int) -> None:
    instance = busy(seed)
    outcome = simulate(instance.servers, instance.jobs, make(instance), instance.slots)
    schedules = promised(ran.verdict for ran in outcome.jobs)
    assert len(schedules) >= 5
    ends = {number: ran.finished for number, ran in enumerate(outcome.jobs) if ran.finished is not None}
    assert ends.keys() == schedules.keys()
    assert violation(instance.servers, instance.jobs, schedules, instance.slots, ends) is None
    for ran in outcome.jobs:
        verdict = ran.verdict
        if verdict.admitted:
            assert verdict.payoff > 0
            assert verdict.payoff == pytest.approx(verdict.utility - verdict.cost)
            assert ran.utility == pytest.approx(verdict.utility)
        else:
            assert verdict.schedule is None and not verdict.payoff > 0
        assert verdict.reason.isprintable() and len(verdict.reason) < 200


@MAKES
def test_prices_follow_what_is_taken(make: Make) -> None:
    instance = busy(1)
    scheme = make(instance)
    verdicts = [scheme.arrive(number, job) for number, job in enumerate(instance.jobs) if job.arrival == 0]
    assert any(verdict.admitted for verdict in verdicts)
    workers, beside = taken_by(instance, promised(verdicts))
    bounds = scheme.bounds
    for taken, capacity, low, high in (
        (workers, instance.servers.workers, bounds.worker_low, bounds.worker_high),
        (beside, instance.servers.parameter_servers, bounds.server_low, bounds.server_high),
    ):
        ledger: Ledger = scheme.ledgers.workers if taken is workers else scheme.ledgers.beside
        unit = whole(instance.servers, capacity) if scheme.normalised else np.ones(5)
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.where(capacity > 0, np.minimum(taken / capacity, 1.0), 0.0)
            expected = low * (high / low) ** part / unit if low > 0 else np.zeros_like(part)
        for slot in range(instance.slots):
            refresh(ledger.side, slot)
            price = ledger.side.price[slot].T
            assert price == pytest.approx(expected[slot], rel=1e-9)
            assert (price >= low / unit * (1 - 1e-12)).all() and (price <= high / unit * (1 + 1e-12)).all()


def test_prices_begin_at_l_and_reach_u_where_a_resource_is_full() -> None:
    servers = Servers(("cores",), np.array([[4.0], [4.0]]), np.zeros((0, 1)))
    bounds = Bounds(1.0, np.array([64.0]), 0.0, np.zeros(1))
    scheme = Oasis(servers, 10, bounds=bounds)
    job = rigid("a", 0, worth=1000.0, cores=4.0)
    one = job.worker
    assert (
        scheme.worker_prices(0, one / 4) == [1.0 / 8] * 10
    )  # a unit of price is all eight cores for one slot
    assert scheme.core_prices(0) == [1.0 / 8] * 10
    assert scheme.arrive(0, job).admitted
    assert scheme.core_prices(0)[0] == pytest.approx((1.0 / 8 + 64.0 / 8) / 2)
    assert scheme.arrive(1, job).admitted
    assert scheme.core_prices(0)[0] == pytest.approx(64.0 / 8)
    assert scheme.worker_prices(0, one)[0] == math.inf  # no room at any price
    scheme.leave(0, 0)
    scheme.leave(1, 0)
    assert scheme.core_prices(0) == [1.0 / 8] * 10


@MAKES
def test_who_leaves_leaves_nothing_behind(make: Make) -> None:
    instance = busy(2)
    scheme = make(instance)
    for number, job in enumerate(instance.jobs):
        scheme.arrive(number, replace(job, arrival=0))
    assert scheme.ledgers.workers.side.taken.any() and scheme.ledgers.beside.side.taken.any()
    for number in range(len(instance.jobs)):
        scheme.leave(number, 0)
    assert not scheme.ledgers.workers.side.taken.any() and not scheme.ledgers.beside.side.taken.any()


def rigid(
    name: str, arrival: int, *, worth: float = 10.0, cores: float = 1.0, work: int = 1, most: int = 1
) -> ElasticJob:
    return ElasticJob(
        name=name,
        arrival=arrival,
        worker=np.array([cores]),
        server=np.zeros(1),
        worker_bandwidth=0.0,
        server_bandwidth=0.0,
        most_workers=most,
        work=work,
        utility=Sigmoid(worth, 0.5, 6.0),
        target_slots=6.0,
    )


ONE_RESOURCE = Servers(("cores",), np.array([[4.0], [2.0], [3.0]]), np.zeros((0, 1)))


@pytest.mark.parametrize("seed", range(5))
def test_slots_roll_over_for_ever(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scheme, horizon = Oasis(ONE_RESOURCE, 12), 12
    jobs: list[ElasticJob] = []
    left: dict[int, int] = {}
    for slot in range(1_000_000, 1_000_150):  # slots of a daemon count from the epoch
        for _ in range(rng.integers(0, 3)):
            job = rigid(
                "j",
                slot,
                worth=rng.uniform(1, 20),
                cores=float(rng.integers(1, 4)),
                work=int(rng.integers(1, 9)),
            )
            job = replace(job, most_workers=int(rng.integers(1, 4)))
            jobs.append(job)
            verdict = scheme.arrive(len(jobs) - 1, job)
            if verdict.admitted:
                assert verdict.schedule is not None
                assert min(verdict.schedule) >= slot and max(verdict.schedule) < slot + horizon
                left[len(jobs) - 1] = job.work
        given = scheme.allot(slot, left)
        used = np.zeros(3)
        for number, there in given.items():
            np.add.at(used, there.worker_server, jobs[number].worker[0] * there.workers)
            left[number] -= there.width
            if rng.random() < 0.1:  # done early
                left[number] = 0
            if rng.random() < 0.1:  # late
                left[number] += 2
                more = scheme.extend(number, slot + 1, 2)
                assert all(at > slot for at in more)
            if left[number] <= 0:
                del left[number]
                scheme.leave(number, slot + 1)
        assert (used <= ONE_RESOURCE.workers[:, 0]).all()
    for number in list(left):
        scheme.leave(number, 0)
    scheme.allot(1_000_200, {})
    assert not scheme.ledgers.workers.side.taken.any()
    assert len(jobs) > 50


def test_more_work_is_planned_at_any_payoff_and_as_much_as_there_is_room() -> None:
    scheme = Oasis(ONE_RESOURCE, 8, bounds=Bounds(1.0, np.array([1e9]), 0.0, np.zeros(1)))
    job = replace(rigid("a", 0, worth=1000.0, cores=1.0, work=4, most=2), utility=Deadline(1000.0, 3.0))
    assert scheme.arrive(0, job).admitted
    scheme.allot(5, {})  # past its deadline: its worth is nothing
    more = scheme.extend(0, 5, 3)
    assert sum(there.width for there in more.values()) == 3
    assert violation(ONE_RESOURCE, [replace(job, work=3)], {0: more}, 13) is None
    more = scheme.extend(0, 5, 1000)
    assert [there.width for there in more.values()] == [2] * 8
    assert scheme.extend(77, 5, 3) == {}


def test_what_others_hold_is_not_taken() -> None:
    scheme = Oasis(ONE_RESOURCE, 4)
    held = np.zeros((4, 3, 1))
    held[:, 0], held[1:, 2] = 4.0, 3.0  # the first is down, the third from slot 11 on
    scheme.occupy(10, held)
    wide = replace(rigid("a", 10, cores=1.0, work=9, most=9), utility=Constant(50.0), target_slots=math.inf)
    verdict = scheme.arrive(0, wide)
    assert verdict.admitted and verdict.schedule is not None
    for slot, there in verdict.schedule.items():
        assert 0 not in there.worker_server
        assert slot == 10 or 2 not in there.worker_server
    too_much = replace(wide, work=9 + 2 * 3)
    assert not scheme.arrive(1, too_much).admitted
    scheme.occupy(10, np.zeros((4, 3, 1)))
    assert scheme.arrive(2, too_much).admitted
    assert np.isclose(scheme.ledgers.workers.side.taken.sum(), 9 + 15)


@MAKES
@pytest.mark.parametrize("seed", range(2))
def test_a_restart_keeps_promises_and_prices(make: Make, seed: int) -> None:
    instance = busy(seed)
    scheme = make(instance)
    schedules: dict[int, Schedule] = {}
    half = len(instance.jobs) // 2
    for number, job in enumerate(instance.jobs[:half]):
        verdict = scheme.arrive(number, job)
        if verdict.admitted and verdict.schedule is not None:
            schedules[number] = verdict.schedule
    now = instance.jobs[half].arrival
    scheme.allot(now, {})
    again = make(instance)
    again.restore(json.loads(json.dumps(scheme.state())))
    for number, schedule in schedules.items():
        again.resume(
            number, instance.jobs[number], {at: there for at, there in schedule.items() if at >= now}
        )
    for number in range(half, len(instance.jobs)):
        one, other = (each.arrive(number, instance.jobs[number]) for each in (scheme, again))
        assert one.admitted == other.admitted
        assert one.payoff == pytest.approx(other.payoff, nan_ok=True, rel=1e-6)
        everyone = dict.fromkeys(range(number + 1), 1)
        mine, theirs = (each.allot(instance.jobs[number].arrival, everyone) for each in (scheme, again))
        assert mine.keys() == theirs.keys()


@pytest.mark.parametrize(
    "kept", [{}, {"jobs": 3, "slot": "x"}, {"jobs": [[1], ["a"] * 15, None]}, {"payoffs": math.nan}]
)
def test_what_was_kept_badly_is_passed_over(kept: dict[str, object]) -> None:
    scheme = Oasis(ONE_RESOURCE, 4)
    scheme.restore(kept)  # type: ignore[arg-type]
    assert scheme.arrive(0, rigid("a", 0)).admitted


def test_one_can_read_why() -> None:
    scheme = Oasis(ONE_RESOURCE, 6, bounds=Bounds(9.0, np.array([90.0]), 0.0, np.zeros(1)))
    scheme.arrive(0, rigid("a", 0, worth=10.0))
    scheme.arrive(1, rigid("b", 0, worth=0.5))
    scheme.arrive(2, rigid("c", 0, worth=10.0, work=50))
    story, poor, long = (scheme.explain(number) for number in range(3))
    assert story is not None and poor is not None and long is not None
    json.dumps([story, poor, long], allow_nan=False)
    assert story["admitted"] and story["price_factor"] == pytest.approx(story["utility"] / story["cost"])
    assert not poor["admitted"] and 0 < poor["price_factor"] < 1  # type: ignore[operator]
    assert long["price_factor"] is None and "no room" in str(long["reason"])
    assert scheme.explain(3) is None
    factor = float(poor["price_factor"])  # type: ignore[arg-type]
    for part, admitted in ((0.99, True), (1.01, False)):
        cheaper = Oasis(
            ONE_RESOURCE, 6, bounds=Bounds(9.0 * factor * part, np.array([90.0]), 0.0, np.zeros(1))
        )
        assert cheaper.arrive(0, rigid("b", 0, worth=0.5)).admitted is admitted


@pytest.mark.parametrize("options", [{"horizon": 0}, {"tolerance": 1.0}, {"tolerance": -0.1}])
def test_options_that_cannot_be(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="oasis: "):
        Oasis(ONE_RESOURCE, **options)  # type: ignore[arg-type]


def test_the_optimum_is_within_what_the_dual_allows() -> None:
    """Theorem 4's proof without its last step: optimum ≤ α·utility + D0, for bounds fixed beforehand."""
    checked = 0
    for seed in range(8):
        instance = draw_instance(8, seed, slots=8, servers=20)
        bounds = bounds_of(instance.jobs, instance.servers, instance.slots)
        utility = simulate(instance.servers, instance.jobs, informed(instance), instance.slots).utility
        if utility > 0:
            best = optimum(instance.servers, instance.jobs, instance.slots, 20.0)
            checked += 1
            assert (
                best.utility <= bounds.ratio_bound(instance.servers, instance.slots, utility) * utility + 1e-6
            )
            assert bounds.alpha >= 1.0
    assert checked >= 4


@pytest.mark.traces
@pytest.mark.parametrize(("jobs", "least"), [(50, 4400.0), (100, 5450.0), (200, 8000.0)])
def test_utility_on_the_recorded_instances(data: Path, jobs: int, least: float) -> None:
    instances = [read_instance(data / "oasis" / f"jobs{jobs}_seed{seed}.json") for seed in range(5)]

    def total(make: Make) -> float:
        return sum(simulate(one.servers, one.jobs, make(one), one.slots).utility for one in instances)

    known = total(informed)
    assert known >= least
    assert total(online) >= 0.95 * known


# ---------------------------------------------------------------------------------------------------------- the judge


def given(workers: dict[int, int], servers: dict[int, int] | None = None) -> Allotment:
    beside = servers or {}
    return Allotment(
        *(
            np.array(column, np.int32)
            for side in (workers, beside)
            for column in (list(side), list(side.values()))
        )
    )


JUDGED = ElasticJob(
    name="a",
    arrival=1,
    worker=np.array([1.0, 2.0]),
    server=np.array([1.0, 1.0]),
    worker_bandwidth=1.0,
    server_bandwidth=2.0,
    most_workers=3,
    work=4,
    utility=Constant(1.0),
    target_slots=2.0,
)
TWO = Servers(("cores", "memory"), np.array([[4.0, 4.0], [9.0, 9.0]]), np.array([[2.0, 2.0]]))


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ({1: given({0: 2}, {0: 1}), 2: given({1: 2}, {0: 1})}, None),
        ({1: given({0: 2}, {0: 1}), 2: given({1: 1}, {0: 1})}, "(2): job 0: 3 worker-slots of 4"),
        ({1: given({1: 4}, {0: 2})}, "(3): job 0, slot 1: 4 workers"),
        ({1: given({0: 3}, {0: 2}), 2: given({0: 1}, {0: 1})}, "(4): slot 1, worker server 0: 6 of memory"),
        ({1: given({1: 3}, {0: 3}), 2: given({1: 1}, {0: 1})}, "(5): slot 1, parameter server 0: 3 of cores"),
        ({1: given({1: 3}, {0: 1}), 2: given({1: 1}, {0: 1})}, "(6): job 0, slot 1"),
        ({1: given({1: 1}, {0: 2}), 2: given({1: 3}, {0: 2})}, "(7): job 0, slot 1"),
        ({1: given({1: 2}, {0: 1}), 9: given({1: 2}, {0: 1})}, "(8): job 0 runs in slot 9"),
        ({0: given({1: 2}, {0: 1}), 1: given({1: 2}, {0: 1})}, "(9): job 0, slot 0"),
        ({0: given({}, {0: 1}), 1: given({1: 3}, {0: 2})}, "(10): job 0, slot 0"),
        ({1: given({2: 1}, {0: 1})}, "(12): job 0, slot 1: worker server 2, of 2"),
        ({1: given({1: -1}, {0: 1})}, "(12): job 0, slot 1, worker server 1: -1"),
        ({1: given({1: 1}, {1: 1})}, "(13): job 0, slot 1: parameter server 1, of 1"),
    ],
)
def test_the_judge_names_constraint_and_place(schedule: Schedule, says: str | None) -> None:
    found = violation(TWO, [JUDGED], {0: schedule}, 5)
    if says is None:
        assert found is None
    else:
        assert found is not None and found.startswith(says)


def test_the_judge_names_jobs_and_completions() -> None:
    fine = {1: given({0: 2}, {0: 1}), 2: given({1: 2}, {0: 1})}
    assert violation(TWO, [JUDGED], {0: fine}, 5, {0: 2}) is None
    assert "completes in slot 2, not in 3" in str(violation(TWO, [JUDGED], {0: fine}, 5, {0: 3}))
    assert str(violation(TWO, [JUDGED], {1: fine}, 5)).startswith("(11)")
    both = violation(TWO, [JUDGED, JUDGED], {0: fine, 1: fine}, 5)
    assert str(both).startswith("(4): slot 1, worker server 0")

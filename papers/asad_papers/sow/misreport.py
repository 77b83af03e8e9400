"""What a job could gain by stating something else than it knows.

A mechanism runs the other jobs as they are. At a job's birth it is asked for plans for misreports, and each is judged
by what the job would really have of it: its own value and distribution, prices as announced, and failure probabilities
from an independent and larger set of futures. Nothing is planned for misreports.

- Value, deadline, shape, distribution, demand: stated otherwise, several at a time. Whatever is stated ends in some
  plan for some demand, and more demand than is needed only costs. So nothing that could be stated is worth more than
  the best plan there is under the independent probabilities (`Tried.bound`): no search has to be trusted for it.
- Birth: announced later, when the job may know whether it has arrived. What that is worth is a mean over possible
  histories of the others until then, drawn from their statements, and exact over its own arrivals.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from asad.admit.sow.failures import Futures
from asad.admit.sow.launch import best_plan
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import NEVER, Answer, Bounds, Statement, Worth
from asad.model import Floats
from asad_papers.sow.rounds import Instance, Job

KINDS = ("value", "deadline", "distribution", "demand", "several")
"""Misreports at birth; `birth` is the one besides."""
AGAIN = 4
"""So many times more histories judge a birth that seems worth putting off."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What was found of one job. Utilities and gains are in units of value."""

    job: int
    truth: float
    """Utility of stating the truth, under the independent probabilities."""
    announced: float
    """The same as the mechanism announced it."""
    gain: dict[str, float]
    """By kind of misreport: the most found beyond `truth`, 0 or more; `birth` beyond what was announced."""
    announced_gain: float
    """The most found beyond `announced` if the announced probabilities are taken as true; 0 by construction."""
    bound: float
    """No misreport at birth gains more, under the independent probabilities."""
    birth_error: float
    """Standard error of the mean that `gain["birth"]` rests on."""


class World:
    """The other jobs on a mechanism, one round after the other; it may be copied at any point."""

    def __init__(self, instance: Instance, mechanism: Posted) -> None:
        self.instance, self.mechanism = instance, mechanism
        self.now = 0
        self.next = 0
        """The first job that is not yet born."""
        self.came: dict[int, tuple[int, int]] = {}
        """Arrival and duration of jobs that are not over, as they will be."""
        mechanism.step(0)

    def submit_next(self) -> Answer:
        """Let the next job be born as it is."""
        number = self.next
        self.next += 1
        return self._submit(number, (self.instance.jobs[number].arrival, self.instance.jobs[number].duration))

    def end_round(self) -> None:
        """Arrivals and evictions of this round, then the next begins and what has finished by then pays."""
        mechanism = self.mechanism
        for number in [number for number, (arrival, _) in self.came.items() if arrival == self.now]:
            if (
                mechanism.arrive(
                    number, self.now, _signal(self.instance.jobs[number].statement, self.came[number])
                )
                is None
            ):
                del self.came[number]
        for eviction in mechanism.evict(self.now):
            self.came.pop(eviction.job, None)
        self.now += 1
        mechanism.step(self.now)
        for number, (_, duration) in list(self.came.items()):
            held = mechanism.active.get(number)
            if held is not None and held.row >= 0 and held.start + duration <= self.now:
                mechanism.complete(number, self.now)
                del self.came[number]

    def elsewhere(self, chance: np.random.Generator) -> World:
        """The same up to now; what is not yet known of the jobs comes as drawn."""
        other = copy.copy(self)
        other.mechanism = copy.deepcopy(self.mechanism)
        other.came = {}
        for number in self.came:
            held = other.mechanism.active[number]
            told = held.statement
            if held.row >= 0:
                fits = (told.arrival == held.plan.arrival[held.row]) & (
                    told.signal == held.plan.signal[held.row]
                )
                fits &= held.start + told.duration > self.now
            else:
                fits = told.arrival >= self.now
            other.came[number] = _drawn(told, fits, chance)
        return other

    def submit_all(self, chance: np.random.Generator) -> None:
        """Let all jobs that are still to be born in this round be born, and come as drawn."""
        jobs = self.instance.jobs
        while self.next < len(jobs) and jobs[self.next].statement.birth == self.now:
            told = jobs[self.next].statement
            self.next += 1
            self._submit(self.next - 1, _drawn(told, np.ones(len(told.arrival), np.bool_), chance))

    def _submit(self, number: int, came: tuple[int, int]) -> Answer:
        answer = self.mechanism.submit(number, self.instance.jobs[number].statement)
        if not answer.plan.never:
            self.came[number] = came
        return answer


def search(
    instance: Instance,
    mechanism: Posted,
    numbers: Sequence[int],
    *,
    tries: int,
    delays: Sequence[int],
    paths: int,
    samples: int,
    seed: int,
) -> list[Tried]:
    """Let `mechanism`, as new, run the instance, and try misreports for the jobs in `numbers`.

    `tries` of each kind; births later by each of `delays` rounds, each over `paths` histories; `samples` of the
    independent futures.
    """
    chance = np.random.default_rng(seed)
    world = World(instance, mechanism)
    wanted, found = set(numbers), []
    while world.next < len(instance.jobs) and wanted:
        job = instance.jobs[world.next]
        while world.now < job.statement.birth:
            world.end_round()
        if world.next in wanted:
            wanted.discard(world.next)
            found.append(_try(world, job, chance, tries, delays, paths, samples))
        world.submit_next()
    return found


def _try(
    world: World,
    job: Job,
    chance: np.random.Generator,
    tries: int,
    delays: Sequence[int],
    paths: int,
    samples: int,
) -> Tried:
    mechanism, told = world.mechanism, job.statement
    truth = mechanism.quote(told)
    tables = _tables(mechanism, _independent(mechanism, samples, int(chance.integers(2**62))))
    announced = _tables(mechanism, None)
    least = mechanism.bounds.least_value
    own = _utility(told, told.demand, truth, tables[told.demand][1], mechanism.now, least)
    gain = dict.fromkeys((*KINDS, "birth"), 0.0)
    announced_gain = 0.0
    for kind in KINDS:
        for _ in range(tries):
            lie = misreport(told, kind, mechanism.bounds, chance)
            answer = mechanism.quote(lie)
            worth = _utility(told, lie.demand, answer, tables[lie.demand][1], mechanism.now, least)
            gain[kind] = max(gain[kind], worth - own)
            seen = _utility(told, lie.demand, answer, announced[lie.demand][1], mechanism.now, least)
            announced_gain = max(announced_gain, seen - truth.utility)
    bound = max(0.0, _best(told, *tables[told.demand], mechanism.now, least) - own)
    put_off, error = 0.0, 0.0
    for delay in delays if paths else ():
        mean = np.mean([_later(world, told, delay, chance) for _ in range(paths)])
        if mean > truth.utility:
            # the best of several noisy means is too high: judged by histories of its own
            anew = [_later(world, told, delay, chance) for _ in range(AGAIN * paths)]
            if float(np.mean(anew)) - truth.utility > put_off:
                put_off = float(np.mean(anew)) - truth.utility
                error = float(np.std(anew, ddof=1) / np.sqrt(len(anew)))
    gain["birth"] = put_off
    return Tried(world.next, own, truth.utility, gain, announced_gain, bound, error)


def misreport(told: Statement, kind: str, bounds: Bounds, chance: np.random.Generator) -> Statement:
    """A statement that is not `told`, in what `kind` says."""
    worth, demand = told.worth, told.demand
    arrival, duration = told.arrival, told.duration
    probability, signal = told.probability, told.signal
    if kind in ("value", "several"):
        times = float(np.exp(chance.uniform(-3.0, 3.0)))
        table = tuple(min(one * times, bounds.max_value) for one in worth.table)
        worth = replace(worth, value=min(worth.value * times, bounds.max_value), table=table)
    if kind in ("deadline", "several"):
        moved = max(told.birth, worth.deadline + int(chance.integers(-12, 13)))
        shape = worth.kind if worth.kind == "own" or chance.random() < 0.5 else "deadline"
        worth = Worth(shape, worth.value, moved, worth.span, worth.table)
    if kind == "demand" or (kind == "several" and chance.random() < 0.3):
        demand = int(chance.integers(demand, bounds.max_demand + 1))
    if kind in ("distribution", "several"):
        shift, longer = (int(chance.integers(-2, 3)) for _ in range(2))
        if chance.random() < 0.5:
            shift = longer = 0
        kept = np.sort(chance.choice(len(arrival), int(chance.integers(1, len(arrival) + 1)), replace=False))
        arrival = np.maximum(arrival[kept] + np.int32(shift), np.int32(told.birth))
        duration = np.clip(duration[kept] + np.int32(longer), 1, bounds.max_duration).astype(np.int32)
        weight = chance.dirichlet(np.full(len(kept), 0.5)) + 1e-6
        probability, signal = weight / weight.sum(), signal[kept]
    return Statement(told.birth, demand, arrival, duration, probability, worth, signal)


def _independent(mechanism: Posted, samples: int, seed: int) -> Futures:
    futures = Futures(mechanism.bounds, samples, seed, mechanism.cancel_waiting)
    futures.step(mechanism.now)
    slots = [held.draw(held.job, futures) for held in mechanism.active.values()]
    futures.refresh(slots)
    return futures


Tables = dict[int, tuple[Floats, Floats]]
"""By demand: (S, D) prices and failures."""


def _tables(mechanism: Posted, futures: Futures | None) -> Tables:
    """Prices as announced, with failures of `futures`, or as announced too."""
    bounds = mechanism.bounds
    found = {}
    for demand in range(1, bounds.max_demand + 1):
        price, failure = mechanism.tables(demand)
        if futures is not None:
            futures.table(demand, mechanism.now, failure, 0.0, np.ones(bounds.max_duration, np.bool_))
            failure[price == np.inf] = 1.0
        found[demand] = (price, failure)
    return found


def _utility(told: Statement, demand: int, answer: Answer, failure: Floats, now: int, least: float) -> float:
    """Of a job that is as `told`, under the plan that it got for `demand` units."""
    total = 0.0
    plan = answer.plan
    for arrival, duration, probability, signal in zip(
        told.arrival.tolist(),
        told.duration.tolist(),
        told.probability.tolist(),
        told.signal.tolist(),
        strict=True,
    ):
        rows = np.flatnonzero((plan.arrival >= arrival) & (plan.signal == signal))
        if not len(rows) or plan.start[rows[0]] == NEVER:
            continue
        row, start = int(rows[0]), int(plan.start[rows[0]])
        worth = told.worth.at(told.birth, start + duration) if demand >= told.demand else 0.0
        gain = (worth if worth >= least else 0.0) - answer.price[row, duration - 1]
        total += probability * (1.0 - failure[start - now, duration - 1]) * gain
    return float(total)


def _best(told: Statement, price: Floats, failure: Floats, now: int, least: float) -> float:
    """Utility of the best plan there is."""
    return best_plan(now, told, price, failure, least, 0.0).utility


def _later(world: World, told: Statement, delay: int, chance: np.random.Generator) -> float:
    """What the job expects if it is announced `delay` rounds later, in one possible history of the others."""
    other = world.elsewhere(chance)
    other.next += 1
    other.submit_all(chance)
    for ahead in range(delay):
        other.end_round()
        if ahead < delay - 1:
            other.submit_all(chance)
    now, total = other.now, 0.0
    cases = [told.arrival == arrival for arrival in np.unique(told.arrival[told.arrival < now])]
    cases.append(told.arrival >= now)
    for fits in cases:
        weight = float(told.probability[fits].sum())
        if weight > 0.0:
            known = Statement(
                told.birth, told.demand, np.maximum(told.arrival[fits], now).astype(np.int32), told.duration[fits],
                told.probability[fits] / weight, told.worth, told.signal[fits],
            )  # fmt: skip
            total += weight * other.mechanism.quote(known).utility
    return total


def _drawn(
    told: Statement, fits: np.typing.NDArray[np.bool_], chance: np.random.Generator
) -> tuple[int, int]:
    rows = np.flatnonzero(fits)
    if not len(rows):  # it runs longer than was stated
        return int(told.arrival[-1]), int(told.duration.max())
    weight = told.probability[rows]
    row = rows[int(chance.choice(len(rows), p=weight / weight.sum()))]
    return int(told.arrival[row]), int(told.duration[row])


def _signal(told: Statement, came: tuple[int, int]) -> int:
    rows = np.flatnonzero((told.arrival == came[0]) & (told.duration == came[1]))
    return int(told.signal[rows[0]]) if len(rows) else 0

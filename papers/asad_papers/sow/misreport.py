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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from asad.admit.sow.failures import Futures
from asad.admit.sow.launch import best_plan
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import NEVER, Answer, Bounds, Statement
from asad.model import Floats
from asad_papers.sow.rounds import Instance, Job, needs_of, signal_of

KINDS = ("value", "deadline", "distribution", "demand", "several")
"""Misreports at birth; `birth` is the one besides."""
AGAIN = 4
"""So many times more histories judge a birth that seems worth delaying."""


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
            signal = signal_of(self.instance.jobs[number].statement, *self.came[number])
            if mechanism.arrive(number, self.now, signal) is None:
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
            statement = held.statement
            fits = statement.arrival >= self.now
            if held.row >= 0:
                arrival, signal = held.plan.arrival[held.row], held.plan.signal[held.row]
                fits = (statement.arrival == arrival) & (statement.signal == signal)
                fits &= held.start + statement.duration > self.now
            other.came[number] = _drawn(statement, fits, chance)
        return other

    def submit_all(self, chance: np.random.Generator) -> None:
        """Let all jobs that are still to be born in this round be born, and come as drawn."""
        jobs = self.instance.jobs
        while self.next < len(jobs) and jobs[self.next].statement.birth == self.now:
            statement = jobs[self.next].statement
            self.next += 1
            self._submit(self.next - 1, _drawn(statement, np.ones(len(statement.arrival), np.bool_), chance))

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
    mechanism, statement = world.mechanism, job.statement
    truth = mechanism.quote(statement)
    tables = Tables(mechanism, _independent(mechanism, samples, int(chance.integers(2**62))))
    announced = Tables(mechanism, None)
    least = mechanism.bounds.least_value
    own = _utility(statement, statement, truth, tables.of(statement)[1], mechanism.now, least)
    gain = dict.fromkeys((*KINDS, "birth"), 0.0)
    announced_gain = 0.0
    for kind in KINDS:
        for _ in range(tries):
            lie = misreport(statement, kind, mechanism.bounds, chance, mechanism.counted)
            answer = mechanism.quote(lie)
            worth = _utility(statement, lie, answer, tables.of(lie)[1], mechanism.now, least)
            gain[kind] = max(gain[kind], worth - own)
            seen = _utility(statement, lie, answer, announced.of(lie)[1], mechanism.now, least)
            announced_gain = max(announced_gain, seen - truth.utility)
    bound = max(0.0, best_plan(mechanism.now, statement, *tables.of(statement), least, 0.0).utility - own)
    delayed, error = 0.0, 0.0
    for delay in delays if paths else ():
        mean = np.mean([_later(world, statement, delay, chance) for _ in range(paths)])
        if mean > truth.utility:
            # the best of several noisy means is too high: judged by histories of its own
            anew = [_later(world, statement, delay, chance) for _ in range(AGAIN * paths)]
            if float(np.mean(anew)) - truth.utility > delayed:
                delayed = float(np.mean(anew)) - truth.utility
                error = float(np.std(anew, ddof=1) / np.sqrt(len(anew)))
    gain["birth"] = delayed
    return Tried(world.next, own, truth.utility, gain, announced_gain, bound, error)


def misreport(
    statement: Statement,
    kind: str,
    bounds: Bounds,
    chance: np.random.Generator,
    counted: Mapping[str, Bounds] = MappingProxyType({}),
) -> Statement:
    """A statement that is not the true one, in what `kind` says."""
    worth, demand, tres = statement.worth, statement.demand, statement.tres
    arrival, duration = statement.arrival, statement.duration
    probability, signal = statement.probability, statement.signal
    if kind in ("value", "several"):
        times = float(np.exp(chance.uniform(-3.0, 3.0)))
        table = tuple(min(one * times, bounds.max_value) for one in worth.table)
        worth = replace(worth, value=min(worth.value * times, bounds.max_value), table=table)
    if kind in ("deadline", "several"):
        moved = max(statement.birth, worth.deadline + int(chance.integers(-12, 13)))
        shape = worth.kind if worth.kind == "own" or chance.random() < 0.5 else "deadline"
        worth = replace(worth, kind=shape, deadline=moved)
    if kind == "demand" or (kind == "several" and chance.random() < 0.3):
        demand = int(chance.integers(demand, bounds.max_demand + 1))
        tres = {
            name: int(chance.integers(tres.get(name, 0), limits.max_demand + 1))
            for name, limits in counted.items()
        }
        tres = {name: units for name, units in tres.items() if units}
    if kind in ("distribution", "several"):
        shift, longer = (int(chance.integers(-2, 3)) for _ in range(2))
        if chance.random() < 0.5:
            shift = longer = 0
        kept = np.sort(chance.choice(len(arrival), int(chance.integers(1, len(arrival) + 1)), replace=False))
        arrival = np.maximum(arrival[kept] + np.int32(shift), np.int32(statement.birth))
        duration = np.clip(duration[kept] + np.int32(longer), 1, bounds.max_duration).astype(np.int32)
        weight = chance.dirichlet(np.full(len(kept), 0.5)) + 1e-6
        probability, signal = weight / weight.sum(), signal[kept]
    return Statement(statement.birth, demand, arrival, duration, probability, worth, signal, tres)


def _independent(mechanism: Posted, samples: int, seed: int) -> Futures:
    futures = Futures(mechanism.bounds, samples, seed, mechanism.cancel_waiting)
    for name, limits in mechanism.counted.items():
        futures.count(name, limits.capacity)
    futures.step(mechanism.now)
    futures.refresh([held.draw(held.job, futures) for held in mechanism.active.values()])
    return futures


class Tables:
    """Prices as announced, with failures of `futures`, or as announced too; computed where they are looked up."""

    def __init__(self, mechanism: Posted, futures: Futures | None) -> None:
        self._mechanism, self._futures = mechanism, futures
        self._found: dict[tuple[int, tuple[tuple[str, int], ...]], tuple[Floats, Floats]] = {}

    def of(self, statement: Statement) -> tuple[Floats, Floats]:
        """(S, D) price and failure for what the statement demands."""
        demand, tres, mechanism = statement.demand, statement.tres, self._mechanism
        key = demand, tuple(sorted(tres.items()))
        if key not in self._found:
            self._found[key] = price, failure = mechanism.tables(demand, tres)
            if self._futures is not None:
                every = np.ones(mechanism.bounds.max_duration, np.bool_)
                self._futures.table(demand, mechanism.now, failure, 0.0, every, tres)
                failure[price == np.inf] = 1.0
        return self._found[key]


def _utility(
    statement: Statement, stated: Statement, answer: Answer, failure: Floats, now: int, least: float
) -> float:
    """Of a job that is as `statement`, under the plan that it got for what was `stated` of its demand."""
    total = 0.0
    held = needs_of(stated)
    plan = answer.plan
    served = all(held.get(name, 0) >= units for name, units in needs_of(statement).items())
    ways = zip(statement.arrival, statement.duration, statement.probability, statement.signal, strict=True)
    for arrival, duration, probability, signal in ways:
        row = plan.row_of(arrival, signal)
        if row >= 0 and plan.start[row] != NEVER:
            start = int(plan.start[row])
            worth = statement.worth.at(statement.birth, start + int(duration)) if served else 0.0
            gain = (worth if worth >= least else 0.0) - answer.price[row, duration - 1]
            total += probability * (1.0 - failure[start - now, duration - 1]) * gain
    return float(total)


def _later(world: World, statement: Statement, delay: int, chance: np.random.Generator) -> float:
    """What the job expects if it is announced `delay` rounds later, in one possible history of the others."""
    other = world.elsewhere(chance)
    other.next += 1
    other.submit_all(chance)
    for ahead in range(delay):
        other.end_round()
        if ahead < delay - 1:
            other.submit_all(chance)
    now, total = other.now, 0.0
    past = np.unique(statement.arrival[statement.arrival < now])
    for fits in (*(statement.arrival == arrival for arrival in past), statement.arrival >= now):
        weight = float(statement.probability[fits].sum())
        if weight > 0.0:
            known = replace(
                statement,
                arrival=np.maximum(statement.arrival[fits], now).astype(np.int32),
                duration=statement.duration[fits],
                probability=statement.probability[fits] / weight,
                signal=statement.signal[fits],
            )
            total += weight * other.mechanism.quote(known).utility
    return total


def _drawn(
    statement: Statement, fits: np.typing.NDArray[np.bool_], chance: np.random.Generator
) -> tuple[int, int]:
    rows = np.flatnonzero(fits)
    if not len(rows):  # it runs longer than was stated
        return int(statement.arrival[-1]), int(statement.duration.max())
    weight = statement.probability[rows]
    row = rows[int(chance.choice(len(rows), p=weight / weight.sum()))]
    return int(statement.arrival[row]), int(statement.duration[row])

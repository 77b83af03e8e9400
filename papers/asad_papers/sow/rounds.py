"""A machine that lives from round to round: a mechanism, or a queue without plans, over a list of jobs.

Each round: jobs that finish at it pay; jobs born in it are planned, one after the other; jobs that arrive in it are
told when they start; who has to go goes; all others run. What runs is checked against the capacity: a mechanism that
lets more run is an error and not a result. A job that does not finish within the rounds is worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from asad.admit.sow import Mechanism
from asad.admit.sow.statement import NEVER, Bounds, Statement
from asad.errors import AsadError
from asad.model import Floats, Ints

Clock = Callable[[], float]
"""Seconds, of any beginning; it only ever times decisions."""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A statement, and how the job really comes."""

    statement: Statement
    arrival: int
    duration: int

    def value(self, start: int, least: float) -> float:
        """What it is worth if it starts then and completes; below `least`: nothing."""
        worth = self.statement.worth.at(self.statement.birth, start + self.duration)
        return worth if worth >= least else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Jobs of a machine, in the order of birth."""

    name: str
    bounds: Bounds
    rounds: int
    jobs: tuple[Job, ...]
    hindsight_lp: float | None = None
    """As the file gives it."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of all jobs."""

    name: str
    welfare: float
    """Values of all jobs that completed."""
    paid: float
    planned: int
    """Jobs that were promised a start for some arrival; of a queue: that started."""
    completed: int
    evicted: int
    """Evicted or cancelled; they are worth nothing."""
    start: Ints
    """(J,) `NEVER` of those that did not complete."""
    payment: Floats
    """(J,)."""
    load: Ints
    """(rounds,) units in use."""
    expected: Floats
    """(J,) utility that each was told to expect; 0 of a queue."""
    seconds: float
    """All decisions, with a clock; else NaN."""


def simulate(
    instance: Instance, mechanism: Mechanism, clock: Clock | None = None, marks: list[float] | None = None
) -> Outcome:
    """Let a mechanism run the jobs. Raises AsadError where it lets more run than there is.

    `marks` gets what the clock says after each statement.
    """
    jobs, bounds = instance.jobs, instance.bounds
    births, arrivals = _by_round(jobs, instance.rounds)
    signals = [_signal(job) for job in jobs]
    finishing: dict[int, list[int]] = {}
    start, payment, expected = (np.full(len(jobs), fill) for fill in (NEVER, 0.0, 0.0))
    load = np.zeros(instance.rounds, np.int32)
    running: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    welfare, planned, evicted, completed = 0.0, 0, 0, 0
    begin = clock() if clock else float("nan")
    for now in range(instance.rounds + 1):
        mechanism.step(now)
        for number in finishing.pop(now, ()):
            if number in running:
                payment[number] = mechanism.complete(number, now)
                start[number] = running.pop(number)
                welfare += jobs[number].value(int(start[number]), bounds.least_value)
                completed += 1
        if now == instance.rounds:
            break
        for number in births[now]:
            answer = mechanism.submit(number, jobs[number].statement)
            expected[number] = answer.utility
            planned += not answer.plan.never
            if marks is not None and clock is not None:
                marks.append(clock())
        for number in arrivals[now]:
            begins = mechanism.arrive(number, now, signals[number])
            if begins is not None:
                waiting.setdefault(begins, []).append(number)
        for number in waiting.pop(now, ()):
            running[number] = now
            finishing.setdefault(now + jobs[number].duration, []).append(number)
        for eviction in mechanism.evict(now):
            running.pop(eviction.job, None)
            for later in waiting.values():
                if eviction.job in later:
                    later.remove(eviction.job)
            evicted += 1
        load[now] = sum(jobs[number].statement.demand for number in running)
        if load[now] > bounds.capacity:
            raise AsadError(
                f"{mechanism.name}, round {now}: {load[now]} units run and there are {bounds.capacity}"
            )
    seconds = clock() - begin if clock else float("nan")
    return Outcome(
        mechanism.name, welfare, float(payment.sum()), planned, completed, evicted,
        start.astype(np.int32), payment, load, expected, seconds,
    )  # fmt: skip


def run_queue(
    instance: Instance, name: str, order: Callable[[Job, int], float], clock: Clock | None = None
) -> Outcome:
    """Let jobs that have arrived start in the order of `order(job, round)`, least first, each that fits.

    Nobody is evicted. A queue knows how long a job lasts as soon as it has arrived, which is more than mechanisms are
    told; who would be worth nothing any more leaves it.
    """
    jobs, bounds = instance.jobs, instance.bounds
    _, arrivals = _by_round(jobs, instance.rounds)
    start = np.full(len(jobs), NEVER, np.int32)
    free = np.full(instance.rounds + bounds.max_duration, bounds.capacity, np.int32)
    queue: list[int] = []
    welfare = 0.0
    begin = clock() if clock else float("nan")
    for now in range(instance.rounds):
        queue.extend(arrivals[now])
        queue = [number for number in queue if worth_if_started(jobs[number], now, bounds) > 0.0]
        queue.sort(key=lambda number: order(jobs[number], now))
        left = []
        for number in queue:
            job = jobs[number]
            if job.statement.demand > free[now] or now + job.duration > instance.rounds:
                left.append(number)
                continue
            free[now : now + job.duration] -= job.statement.demand
            start[number] = now
            welfare += worth_if_started(job, now, bounds)
        queue = left
    seconds = clock() - begin if clock else float("nan")
    none, load = np.zeros(len(jobs)), (bounds.capacity - free[: instance.rounds]).astype(np.int32)
    ran = int((start != NEVER).sum())
    return Outcome(name, welfare, 0.0, ran, ran, 0, start, none, load, none, seconds)


def worth_if_started(job: Job, now: int, bounds: Bounds) -> float:
    """Value of a job that starts now, knowing how long it lasts; 0 after the last round in which one may start."""
    return job.value(now, bounds.least_value) if now - job.statement.birth < bounds.span else 0.0


def _signal(job: Job) -> int:
    told = job.statement
    rows = np.flatnonzero((told.arrival == job.arrival) & (told.duration == job.duration))
    return int(told.signal[rows[0]]) if len(rows) else 0


def _by_round(jobs: Sequence[Job], rounds: int) -> tuple[list[list[int]], list[list[int]]]:
    births: list[list[int]] = [[] for _ in range(rounds)]
    arrivals: list[list[int]] = [[] for _ in range(rounds)]
    for number, job in enumerate(jobs):
        if job.statement.birth < rounds:
            births[job.statement.birth].append(number)
        if job.arrival < rounds:
            arrivals[job.arrival].append(number)
    return births, arrivals

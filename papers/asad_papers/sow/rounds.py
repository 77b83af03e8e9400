"""A machine that lives from round to round: a mechanism over a list of jobs.

Each round: jobs that finish at it pay; jobs born in it are planned, one after the other; jobs that arrive in it
get their start; who has to go goes; all others run. What runs is checked against the capacity: a mechanism that
lets more run is an error and not a result. A job that does not finish within the rounds is worth nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from asad.admit.sow import Mechanism
from asad.admit.sow.statement import NEVER, Bounds, Statement
from asad.errors import AsadError
from asad.model import Floats, Ints


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
    counted: Mapping[str, Bounds] = field(default_factory=dict)
    """Of resources beside the first, by name."""

    @property
    def capacity(self) -> dict[str, int]:
        """Of every resource; the first one's name is empty."""
        more = {name: limits.capacity for name, limits in self.counted.items()}
        return {"": self.bounds.capacity, **more}


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of all jobs."""

    welfare: float
    """Values of all jobs that completed."""
    planned: int
    """Jobs that were promised a start for some arrival; of a queue: that started."""
    evicted: int
    """Evicted or cancelled; they are worth nothing."""
    start: Ints
    """(J,) `NEVER` of those that did not complete."""
    payment: Floats
    """(J,)."""
    expected: Floats
    """(J,) utility that was announced to each; 0 of a queue."""


def simulate(
    instance: Instance, mechanism: Mechanism, submitted: Callable[[], object] = lambda: None
) -> Outcome:
    """Let a mechanism run the jobs. Raises AsadError where it lets more run than there is.

    `submitted` is called after each statement.
    """
    jobs, bounds, capacity = instance.jobs, instance.bounds, instance.capacity
    births = by_round([job.statement.birth for job in jobs], instance.rounds)
    arrivals = by_round([job.arrival for job in jobs], instance.rounds)
    signals = [signal_of(job.statement, job.arrival, job.duration) for job in jobs]
    finishing: dict[int, list[int]] = {}
    start, payment, expected = (np.full(len(jobs), fill) for fill in (NEVER, 0.0, 0.0))
    running: dict[int, int] = {}
    waiting: dict[int, list[int]] = {}
    welfare, planned, evicted = 0.0, 0, 0
    for now in range(instance.rounds + 1):
        mechanism.step(now)
        for number in finishing.pop(now, ()):
            if number in running:
                payment[number] = mechanism.complete(number, now)
                start[number] = running.pop(number)
                welfare += jobs[number].value(int(start[number]), bounds.least_value)
        if now == instance.rounds:
            break
        for number in births[now]:
            answer = mechanism.submit(number, jobs[number].statement)
            expected[number] = answer.utility
            planned += not answer.plan.never
            submitted()
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
        for name, most in capacity.items():
            needs = (jobs[number].statement for number in running)
            load = sum(one.tres.get(name, 0) if name else one.demand for one in needs)
            if load > most:
                raise AsadError(
                    f"{mechanism.name}, round {now}: {load} units {name} run and there are {most}"
                )
    return Outcome(welfare, planned, evicted, start.astype(np.int32), payment, expected)


def needs_of(statement: Statement) -> dict[str, int]:
    """Units that it needs by resource, as in `Instance.capacity`."""
    return {"": statement.demand, **statement.tres}


def signal_of(statement: Statement, arrival: int, duration: int) -> int:
    """What a job reports that comes so; 0 if it comes as was not stated."""
    rows = np.flatnonzero((statement.arrival == arrival) & (statement.duration == duration))
    return int(statement.signal[rows[0]]) if len(rows) else 0


def by_round(when: Sequence[int], rounds: int) -> list[list[int]]:
    """Numbers of those for whom it is that round, of the first `rounds`."""
    found: list[list[int]] = [[] for _ in range(rounds)]
    for number, round_ in enumerate(when):
        if round_ < rounds:
            found[round_].append(number)
    return found

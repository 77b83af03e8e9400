"""What there is without a mechanism: two queues, and room that is reserved for the worst case.

- `fcfs`: first come, first served. Baseline of the specification.
- `density`: the job that is worth most per unit and round goes first, whatever it pays. A yardstick, not a mechanism:
  nothing keeps its jobs from overstating. Of several resources counts the one of which a job needs the largest part.
- `reservation`: room for the worst case, reserved at birth, or none. Source: 004, section 1.1 (the example). A job
  holds its demand from its earliest possible arrival to the latest possible end if it starts as it arrives.

Options: none. Cost: O(queue · log) a round; O(span) a job of `reservation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from asad.admit.sow.statement import NEVER, Bounds
from asad_papers.sow.rounds import Instance, Job, Outcome, by_round, needs_of


def run_queue(instance: Instance, order: Callable[[Job, int, Instance], float]) -> Outcome:
    """Let jobs that have arrived start in the order of `order(job, round, instance)`, least first, each that fits.

    Nobody is evicted. A queue knows how long a job lasts as soon as it has arrived, which is more than a mechanism
    does; who would be worth nothing any more leaves it.
    """
    jobs, bounds = instance.jobs, instance.bounds
    arrivals = by_round([job.arrival for job in jobs], instance.rounds)
    start = np.full(len(jobs), NEVER, np.int32)
    window = instance.rounds + bounds.max_duration
    free = {name: np.full(window, whole, np.int32) for name, whole in instance.capacity.items()}
    queue: list[int] = []
    welfare = 0.0
    for now in range(instance.rounds):
        queue = [
            number for number in queue + arrivals[now] if _worth_if_started(jobs[number], now, bounds) > 0.0
        ]
        queue.sort(key=lambda number: order(jobs[number], now, instance))
        left = []
        for number in queue:
            job = jobs[number]
            needs = needs_of(job.statement)
            fits = all(units <= free[name][now] for name, units in needs.items())
            if not fits or now + job.duration > instance.rounds:
                left.append(number)
                continue
            for name, units in needs.items():
                free[name][now : now + job.duration] -= units
            start[number] = now
            welfare += _worth_if_started(job, now, bounds)
        queue = left
    none = np.zeros(len(jobs))
    return Outcome(welfare, int((start != NEVER).sum()), 0, start, none, none)


def _worth_if_started(job: Job, now: int, bounds: Bounds) -> float:
    """Value of a job that starts now, knowing how long it lasts; 0 after the last round in which one may start."""
    return job.value(now, bounds.least_value) if now - job.statement.birth < bounds.span else 0.0


def _by_arrival(job: Job, now: int, instance: Instance) -> float:
    """Ties by birth; a job that does not fit lets later ones pass."""
    return float(job.arrival)


def _by_density(job: Job, now: int, instance: Instance) -> float:
    """Value if started now, over demand times duration."""
    whole, cores = instance.capacity, instance.bounds.capacity
    demand = max(units * cores / whole[name] for name, units in needs_of(job.statement).items())
    return -_worth_if_started(job, now, instance.bounds) / (demand * job.duration)


def reservation(instance: Instance) -> Outcome:
    """In the order of birth."""
    bounds, rounds = instance.bounds, instance.rounds
    held = [
        slice(int(one.arrival.min()), int((one.arrival + one.duration).max()))
        for one in (job.statement for job in instance.jobs)
    ]
    free = np.full(max((span.stop for span in held), default=0) + 1, bounds.capacity, np.int32)
    start = np.full(len(instance.jobs), NEVER, np.int32)
    welfare, planned = 0.0, 0
    for number, (job, span) in enumerate(zip(instance.jobs, held, strict=True)):
        if int(free[span].min()) < job.statement.demand:
            continue
        free[span] -= job.statement.demand
        planned += 1
        if job.arrival + job.duration <= rounds:
            start[number] = job.arrival
            welfare += job.value(job.arrival, bounds.least_value)
    none = np.zeros(len(instance.jobs))
    return Outcome(welfare, planned, 0, start, none, none)


BASELINES: Mapping[str, Callable[[Instance], Outcome]] = {
    "fcfs": partial(run_queue, order=_by_arrival),
    "reservation": reservation,
    "density": partial(run_queue, order=_by_density),
}

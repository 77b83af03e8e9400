"""`reservation`: what there is without statements: room for the worst case, reserved at birth, or none.

Source: 004, section 1.1 (the example). A job holds its demand from its earliest possible arrival to the latest
possible end if it starts as it arrives; if the rounds have no room for that, it does not run.

Options: none. Cost: O(span) a job.
"""

from __future__ import annotations

import numpy as np

from asad.admit.sow.statement import NEVER
from asad_papers.sow.rounds import Clock, Instance, Outcome


def run(instance: Instance, clock: Clock | None = None) -> Outcome:
    """In the order of birth."""
    bounds = instance.bounds
    begin = clock() if clock else float("nan")
    last = max(
        (int((job.statement.arrival + job.statement.duration).max()) for job in instance.jobs), default=0
    )
    free = np.full(max(last, instance.rounds) + 1, bounds.capacity, np.int32)
    start = np.full(len(instance.jobs), NEVER, np.int32)
    load = np.zeros(instance.rounds, np.int32)
    welfare, completed, planned = 0.0, 0, 0
    for number, job in enumerate(instance.jobs):
        told = job.statement
        held = slice(int(told.arrival.min()), int((told.arrival + told.duration).max()))
        if int(free[held].min()) < told.demand:
            continue
        free[held] -= told.demand
        planned += 1
        load[job.arrival : job.arrival + job.duration] += told.demand
        if job.arrival + job.duration <= instance.rounds:
            start[number] = job.arrival
            completed += 1
            welfare += job.value(job.arrival, bounds.least_value)
    seconds = clock() - begin if clock else float("nan")
    none = np.zeros(len(instance.jobs))
    return Outcome("reservation", welfare, 0.0, planned, completed, 0, start, none, load, none, seconds)

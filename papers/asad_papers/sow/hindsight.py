"""The hindsight LP: what the best schedule could be worth if all arrivals and durations were known.

Source: 004, section 2 (the offline benchmark), relaxed: a job may run in parts of its width from several starts.

    max  Σ v_j(s + d_j)·x_js   s.t.  Σ_s x_js ≤ 1,   Σ_j c_j·(Σ_{s ≤ t < s + d_j} x_js) ≤ C in every round t
                                     and the same of every other resource

No schedule without that knowledge, and none with it, is worth more. Solved by HiGHS (interior
point and crossover); six thousand jobs take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from asad.admit.sow.statement import Bounds, Statement
from asad.errors import AsadError
from asad.model import Floats
from asad_papers.sow.rounds import Instance

Run = tuple[int, int, int, float, int]
"""Demand, start, duration, value, and number of the job (or way) of which no more than a given part may run."""


def hindsight_lp(instance: Instance) -> float:
    """The optimum. Raises AsadError if the solver gives up."""
    runs: list[Run] = []
    needs: list[Mapping[str, int]] = []
    jobs = 0
    for job in instance.jobs:
        starts = starts_of(job.statement, job.arrival, job.duration, instance.bounds, instance.rounds)
        found = [(job.statement.demand, start, job.duration, value, jobs) for start, value in starts]
        runs += found
        needs += [job.statement.tres] * len(found)
        jobs += bool(found)
    beside = [
        ([units.get(name, 0) for units in needs], float(limits.capacity))
        for name, limits in instance.counted.items()
    ]
    return packed(runs, np.ones(jobs), instance.bounds.capacity, instance.rounds, beside)[1]


def starts_of(
    statement: Statement, arrival: int, duration: int, bounds: Bounds, rounds: int
) -> Iterator[tuple[int, float]]:
    """Starts of a job that comes so, with what it is then worth; none that is worth nothing or ends too late."""
    for start in range(arrival, min(statement.birth + bounds.span, rounds - duration + 1)):
        value = statement.worth.at(statement.birth, start + duration)
        if value >= bounds.least_value:
            yield start, value


def packed(
    runs: Sequence[Run],
    most: Sequence[float] | Floats,
    supply: float,
    rounds: int,
    beside: Sequence[tuple[Sequence[int], float]] = (),
) -> tuple[Floats, float]:
    """(len(runs),) how much of each runs at the optimum, and what that is worth.

    `most` (jobs,) bounds the sum over runs of one job, `supply` the units in each of `rounds` rounds. `beside`: of
    each other resource, what the runs demand of it and its supply.
    """
    if not runs:
        return np.zeros(0), 0.0
    demand, start, duration, value, job = (np.array(column) for column in zip(*runs, strict=True))
    columns = np.arange(len(runs))
    held = np.repeat(columns, duration)
    ahead = np.arange(len(held)) - np.repeat(np.cumsum(duration) - duration, duration)
    when, first = start[held] + ahead, rounds + len(most)
    entries = (
        demand[held].astype(np.float64),
        np.ones(len(runs)),
        *(np.array(one)[held] for one, _ in beside),
    )
    lines = (when, rounds + job, *(first + number * rounds + when for number in range(len(beside))))
    places = np.concatenate(lines), np.concatenate((held, columns, *([held] * len(beside))))
    matrix = csr_array((np.concatenate(entries), places), shape=(first + len(beside) * rounds, len(runs)))
    matrix.eliminate_zeros()
    limit = np.concatenate((np.full(rounds, supply), most, *(np.full(rounds, whole) for _, whole in beside)))
    solved = linprog(-value, A_ub=matrix, b_ub=limit, bounds=(0.0, None), method="highs-ipm")
    if solved.status != 0:
        raise AsadError(
            f"the solver found no optimum of {len(most)} jobs ({solved.message}); take fewer jobs"
        )
    return np.asarray(solved.x, np.float64), float(-solved.fun)

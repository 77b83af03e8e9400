"""The hindsight LP: what the best schedule could be worth if all arrivals and durations were known.

Source: 004, section 2 (the offline benchmark), relaxed: a job may run in parts of its width from several starts.

    max  Σ v_j(s + d_j)·x_js   s.t.  Σ_s x_js ≤ 1,   Σ_j c_j·(Σ_{s ≤ t < s + d_j} x_js) ≤ C in every round t

No schedule without that knowledge, and none with it, is worth more. Solved by HiGHS (interior
point and crossover); six thousand jobs take seconds.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from asad.errors import AsadError
from asad_papers.sow.rounds import Instance


def hindsight_lp(instance: Instance) -> float:
    """The optimum. Raises AsadError if the solver gives up."""
    bounds = instance.bounds
    gain: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    jobs = 0
    for job in instance.jobs:
        told = job.statement
        first, last = job.arrival, told.birth + bounds.span - 1
        last = min(last, instance.rounds - job.duration)
        if last < first:
            continue
        worth = told.worth.by_finish(told.birth, last - told.birth + job.duration)
        worth[worth < bounds.least_value] = 0.0
        found = False
        for start in range(first, last + 1):
            value = float(worth[start + job.duration - told.birth])
            if value <= 0.0:
                break
            column = len(gain)
            gain.append(-value)
            run = range(start, start + job.duration)
            rows.extend(run)
            columns.extend([column] * (job.duration + 1))
            values.extend([told.demand] * job.duration)
            rows.append(instance.rounds + jobs)
            values.append(1.0)
            found = True
        jobs += found
    if not gain:
        return 0.0
    matrix = csr_array((values, (rows, columns)), shape=(instance.rounds + jobs, len(gain)))
    most = np.concatenate((np.full(instance.rounds, bounds.capacity), np.ones(jobs)))
    solved = linprog(np.array(gain), A_ub=matrix, b_ub=most, bounds=(0.0, None), method="highs-ipm")
    if solved.status != 0:
        raise AsadError(f"the solver found no optimum of {jobs} jobs ({solved.message}); take fewer jobs")
    return float(-solved.fun)

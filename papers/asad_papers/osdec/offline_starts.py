"""The offline optimum of the OSDEC paper's (1): every job and all of the capacity known beforehand, by HiGHS.

A bound for what decides step by step. With x_it = 1 if job i starts at step t, and v_t the violation,

    max  Σ (c·d − ω1·(t − e))·x_it − ω2·Σ v_t
    s.t. Σ_t x_it ≤ 1
         Σ_{i: t − d < s ≤ t} c·x_is − v_t ≤ C_t,   v_t ≥ 0
         x binary, t from e to l

The paper's sum from t − d is that of `span = 1`. As in its (1) a plan may start jobs above C_t, as no policy may: that
pays where a job ends after the trajectory, since it earns all of c·d and violates only until then. With `packed` the
decision never exceeds C_t either, as the policies' does not: Σ c·x of what runs ≤ max(C_t, what ran before), by one
binary a step. Cost: exponential; a trajectory of 96 steps takes seconds to a gap of a thousandth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from asad.defer.jobs import Trajectories, Worth
from asad.errors import AsadError
from asad.model import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The best starts found."""

    total: float
    """The objective (1) of these."""
    bound: float
    """No plan is worth more."""
    started: Ints
    """(n,) The step of each job's start, −1 for none; in the order of the trajectory's jobs."""

    @property
    def gap(self) -> float:
        """By which share of the total the optimum may exceed it; 0 if it is proven."""
        return max(0.0, self.bound - self.total) / max(1e-9, abs(self.total))


def optimum(
    trajectories: Trajectories,
    number: int,
    worth: Worth | None = None,
    *,
    packed: bool = False,
    span: int = 0,
    time_limit_s: float = 60.0,
    gap: float = 1e-3,
) -> Plan:
    """Solve trajectory `number`. Within `time_limit_s` the plan and the bound may not meet: see `Plan.gap`.

    Raises AsadError if the solver has no plan by then.
    """
    worth = worth or Worth()
    t = trajectories
    mine = slice(t.first[number], t.first[number + 1])
    cores, duration = t.cores[mine].astype(np.int64), t.duration[mine].astype(np.int64)
    earliest, latest = t.earliest[mine].astype(np.int64), t.latest[mine].astype(np.int64)
    capacity, steps = t.capacity[number], t.steps
    choices = np.maximum(0, np.minimum(latest, steps - 1) - earliest + 1)
    job = np.repeat(np.arange(len(cores)), choices)
    many = len(job)
    if not many:
        return Plan(0.0, 0.0, np.full(len(cores), -1, np.int32))
    start = np.arange(many) - np.repeat(np.cumsum(choices) - choices, choices) + earliest[job]
    # which starts hold cores in which step
    runs = np.minimum(duration[job] + span, steps - start)
    column = np.repeat(np.arange(many), runs)
    step = np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs) + start[column]
    violation = many + np.arange(steps)
    extra = steps if packed else 0
    objective = np.concatenate(
        (
            -(cores * duration)[job] + worth.delay * (start - earliest[job]),
            np.full(steps, worth.violation),
            np.zeros(extra),
        )
    )
    width = many + steps + extra
    rows = [
        LinearConstraint(
            coo_array((np.ones(many), (job, np.arange(many))), (len(cores), width)), -np.inf, 1.0
        ),
        LinearConstraint(
            coo_array(
                (
                    np.concatenate((cores[job[column]], np.full(steps, -1.0))),
                    (np.concatenate((step, np.arange(steps))), np.concatenate((column, violation))),
                ),
                (steps, width),
            ),
            -np.inf,
            capacity,
        ),
    ]
    top = np.concatenate((np.ones(many), np.full(steps, np.inf), np.ones(extra)))
    if packed:
        # z_t = 1: C_t fell under what runs, and nothing starts: v_t ≤ all cores · z_t, started ≤ C_t · (1 − z_t)
        closed = many + steps + np.arange(steps)
        most = np.bincount(step, weights=cores[job[column]], minlength=steps)
        rows.append(
            LinearConstraint(
                coo_array(
                    (
                        np.concatenate((np.ones(steps), -most)),
                        (np.tile(np.arange(steps), 2), np.concatenate((violation, closed))),
                    ),
                    (steps, width),
                ),
                -np.inf,
                0.0,
            )
        )
        rows.append(
            LinearConstraint(
                coo_array(
                    (
                        np.concatenate((cores[job], capacity)),
                        (
                            np.concatenate((start, np.arange(steps))),
                            np.concatenate((np.arange(many), closed)),
                        ),
                    ),
                    (steps, width),
                ),
                -np.inf,
                capacity,
            )
        )
    solved = milp(
        objective,
        constraints=rows,
        integrality=np.concatenate((np.ones(many), np.zeros(steps), np.ones(extra))),
        bounds=Bounds(0, top),
        options={"time_limit": time_limit_s, "mip_rel_gap": gap},
    )
    if solved.x is None:
        raise AsadError(
            f"the solver found no plan of {len(cores)} jobs in {steps} steps within {time_limit_s:g} s "
            f"({solved.message}); take fewer jobs, or give it more time"
        )
    started = np.full(len(cores), -1, np.int32)
    chosen = np.flatnonzero(solved.x[:many] > 0.5)
    started[job[chosen]] = start[chosen]
    held = np.bincount(step, weights=cores[job[column]] * (solved.x[column] > 0.5), minlength=steps)
    total = float(
        (cores * duration)[job[chosen]].sum()
        - worth.delay * (start[chosen] - earliest[job[chosen]]).sum()
        - worth.violation * np.maximum(0.0, held - capacity).sum()
    )
    bound = -solved.mip_dual_bound if solved.mip_dual_bound is not None else -solved.fun
    return Plan(total, max(total, float(bound)), started)

"""What looks ask of the scheduler SLURM, compiled in only where a state has rules (see `by_rules`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from asad.compiling import allocating, chosen_by_type
from asad.replay.engine.rules import are_rules
from asad.replay.engine.simulation_state import NEXT, NOW, RUN, State, arrival
from asad.replay.engine.site_backfill import estimate_starts, in_order, plan_starts
from asad.replay.engine.twin import Experience, expected_run


@chosen_by_type(in_order)
def by_priority(s: State) -> NDArray[np.int32]:
    """Those that wait, the highest priority first."""
    return np.zeros(0, np.int32)


@overload(by_priority, strict=False)
def _by_priority(s: Any) -> Any:
    if are_rules(s):
        return lambda s: in_order(s, s.f[NOW])
    return lambda s: np.zeros(0, np.int32)


@chosen_by_type(estimate_starts)
def estimate_by_rules(s: State, estimate: NDArray[np.float64]) -> None:
    """What Slurm's backfill would print as the start of each waiting job that it looks at, into `estimate`."""


@overload(estimate_by_rules, strict=False)
def _estimate_by_rules(s: Any, estimate: Any) -> Any:
    if are_rules(s):
        return lambda s, estimate: estimate_starts(s, estimate)
    return lambda s, estimate: None


@allocating
def _forecast(s: State, other: State, seen: Experience, depth: int, estimate: NDArray[np.float64]) -> None:
    """`forecast_starts` by the rules of the cluster's own Slurm: in order of priority, each as soon as its nodes, gres
    and limits let it, if all run as long as is expected. Who is held by a limit waits on for as long as it has."""
    now = s.f[NOW]
    waiting = in_order(s, now)[:depth]
    most = len(waiting) + other.c[NEXT] - s.c[NEXT]
    rows, since, lasts, run_end = np.empty(most, np.int32), np.empty(most), np.empty(most), np.empty(s.c[RUN])
    count = len(waiting)
    rows[:count] = waiting
    for k in range(s.c[NEXT], other.c[NEXT]):  # those that have come since the time of this cluster
        job = arrival(s, k)
        if s.job[job].depends < 0:
            rows[count] = job
            count += 1
    for i in range(count):
        since[i] = max(now, s.job[rows[i]].submit)
        lasts[i] = max(1.0, expected_run(s, other, seen, rows[i]))
    for i in range(s.c[RUN]):
        job = s.run[i].job
        run_end[i] = s.job[job].start + expected_run(s, other, seen, job)
    plan_starts(s, since[:count], rows[:count], lasts[:count], run_end, estimate, now)
    for job in rows[:count]:
        if np.isnan(estimate[job]):
            estimate[job] = now + max(0.0, now - s.job[job].submit)


@chosen_by_type(_forecast)
def forecast_by_rules(
    s: State, other: State, seen: Experience, depth: int, estimate: NDArray[np.float64]
) -> None:
    """When the first `depth` jobs that wait here would start if all ran as long as is expected, into `estimate`."""


@overload(forecast_by_rules, strict=False)
def _forecast_by_rules(s: Any, other: Any, seen: Any, depth: Any, estimate: Any) -> Any:
    if are_rules(s):
        return lambda s, other, seen, depth, estimate: _forecast(s, other, seen, depth, estimate)
    return lambda s, other, seen, depth, estimate: None

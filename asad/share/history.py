"""What ended jobs tell of the next run of their application: run time, CPU use, and how early jobs really start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from asad.model import Finished, Jobs


class History(NamedTuple):
    """Sums over ended jobs for each of A applications; the last row is the whole cluster."""

    runs: NDArray[np.float64]
    """(A + 1,) ended jobs."""
    run: NDArray[np.float64]
    """(A + 1,) Σ isolated run time (s)."""
    run_squares: NDArray[np.float64]
    """(A + 1,) Σ of its square (s²)."""
    used: NDArray[np.float64]
    """(A + 1,) Σ run time over time limit, where there is a limit."""
    limited: NDArray[np.float64]
    """(A + 1,) jobs with a limit."""
    cpu: NDArray[np.float64]
    """(A + 1,) Σ CPU fraction, where measured."""
    measured: NDArray[np.float64]
    """(A + 1,) jobs with a measured CPU fraction."""


def new_history(applications: int) -> History:
    """Nothing has ended yet."""
    return History(*(np.zeros(applications + 1) for _ in History._fields))


def record(history: History, jobs: Jobs, finished: Finished) -> None:
    """Add ended jobs to the sums of their application and of the cluster."""
    application = jobs.application[finished.row]
    run = np.maximum(0.0, finished.run_s - finished.lost_s)
    limit = jobs.time_limit_s[finished.row]
    limited = np.isfinite(limit) & (limit > 0)
    used = np.divide(run, limit, out=np.zeros_like(run), where=limited)
    measured = np.isfinite(finished.cpu_fraction)
    cpu = np.where(measured, finished.cpu_fraction, 0.0)
    columns = (
        (history.runs, np.ones_like(run)),
        (history.run, run),
        (history.run_squares, run * run),
        (history.used, np.minimum(used, 1.0)),
    )
    for total, values in (
        *columns,
        (history.limited, limited.astype(float)),
        (history.cpu, cpu),
        (history.measured, measured.astype(float)),
    ):
        np.add.at(total, application, values)
        total[-1] += values.sum()


@njit(cache=True)
def expected_run(history: History, application: int, limit: float) -> float:
    """Isolated run time to expect (s): the application's mean, else the share of the limit that jobs here use.

    Never above the limit; NaN if there is neither history nor limit.
    """
    if history.runs[application] > 0:
        return float(min(limit, history.run[application] / history.runs[application]))
    if np.isinf(limit) or np.isnan(limit):
        return np.nan
    used = history.used[-1] / history.limited[-1] if history.limited[-1] > 0 else 0.5
    return float(limit * used)


@njit(cache=True)
def longest_run(history: History, application: int, limit: float, deviations: float) -> float:
    """Isolated run time that is seldom exceeded (s): mean and `deviations` standard deviations, at most the limit.

    An application with fewer than three runs is taken to need all of its limit.
    """
    runs = history.runs[application]
    if runs < 3:
        return float(limit)
    mean = history.run[application] / runs
    variance = max(0.0, history.run_squares[application] / runs - mean * mean)
    return float(min(limit, mean + deviations * np.sqrt(variance)))


@njit(cache=True)
def expected_cpu(history: History, application: int) -> float:
    """CPU fraction to expect: the application's mean, else the cluster's, else all of the allocation."""
    if history.measured[application] > 0:
        return float(history.cpu[application] / history.measured[application])
    if history.measured[-1] > 0:
        return float(history.cpu[-1] / history.measured[-1])
    return 1.0

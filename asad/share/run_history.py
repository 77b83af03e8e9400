"""What ended jobs say about the next run of their application: run time, CPU use, and how early jobs really start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.errors import UsageError
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
    used_squares: NDArray[np.float64]
    """(A + 1,) Σ of its square."""
    limited: NDArray[np.float64]
    """(A + 1,) jobs with a limit."""
    cpu: NDArray[np.float64]
    """(A + 1,) Σ CPU fraction, where measured."""
    measured: NDArray[np.float64]
    """(A + 1,) jobs with a measured CPU fraction."""
    peak: NDArray[np.float64]
    """(A + 1,) Σ of the last 95th percentile of their CPU use of a core, where that was measured."""
    peaks: NDArray[np.float64]
    """(A + 1,) jobs behind that."""


def new_history(applications: int) -> History:
    """Nothing has ended yet."""
    return History(*(np.zeros(applications + 1) for _ in History._fields))


def require_known(application: NDArray[np.int32], names: int) -> None:
    """Every code has a name, but for -1 in rows that hold no job; raises UsageError with the first that has none.

    Codes index tables in compiled code, which checks nothing, and they come from any cluster. Live clusters keep rows
    that are free (`blank_jobs`).
    """
    wrong = np.flatnonzero((application < -1) | (application >= names))
    if len(wrong):
        raise UsageError(
            f"jobs: column application, row {wrong[0]}: {application[wrong[0]]}, and {names} applications have a "
            "name; a cluster names an application before it shows a job of it"
        )


def record(history: History, jobs: Jobs, finished: Finished) -> None:
    """Add ended jobs to the sums of their application and of the cluster."""
    if len(finished.row):
        ended = (finished.row, finished.run_s, finished.lost_s, finished.cpu_fraction)
        add_ended(history, jobs.application, jobs.time_limit_s, *ended)


@borrowing
def add_ended(
    history: History,
    application: NDArray[np.int32],
    limit: NDArray[np.float64],
    rows: NDArray[np.int32],
    run_s: NDArray[np.float64],
    lost_s: NDArray[np.float64],
    cpu: NDArray[np.float64],
) -> None:
    """`record` within compiled code."""
    last = len(history.runs) - 1
    for i in range(len(rows)):
        alone_s = np.maximum(0.0, run_s[i] - lost_s[i])
        for k in range(2):
            scope = application[rows[i]] if k == 0 else last
            if not np.isnan(alone_s):  # nobody knows since when some are over
                history.runs[scope] += 1
                history.run[scope] += alone_s
                history.run_squares[scope] += alone_s * alone_s
                if limit[rows[i]] > 0 and not np.isinf(limit[rows[i]]):
                    used = min(1.0, alone_s / limit[rows[i]])
                    history.limited[scope] += 1
                    history.used[scope] += used
                    history.used_squares[scope] += used * used
            if not np.isnan(cpu[i]):
                history.measured[scope] += 1
                history.cpu[scope] += cpu[i]


@borrowing
def add_peak(history: History, application: int, peak: float) -> None:
    """The 95th percentile of a job's CPU use, as it was last measured; NaN if it never was."""
    if not np.isnan(peak):
        last = len(history.runs) - 1
        for k in range(2):
            scope = application if k == 0 else last
            history.peaks[scope] += 1
            history.peak[scope] += peak


@borrowing
def known_peak(history: History, application: int) -> float:
    """95th percentile of CPU use to expect of an application: that of its earlier runs, NaN before there were any."""
    if history.peaks[application] > 0:
        return float(history.peak[application] / history.peaks[application])
    return known_cpu(history, application)


@borrowing
def known_cpu(history: History, application: int) -> float:
    """Mean CPU fraction of an application's earlier runs, NaN before there were any."""
    if history.measured[application] > 0:
        return float(history.cpu[application] / history.measured[application])
    return np.nan


@borrowing
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


@borrowing
def expected_cpu(history: History, application: int) -> float:
    """CPU fraction to expect: the application's mean, else the cluster's, else all of the allocation."""
    if history.measured[application] > 0:
        return float(history.cpu[application] / history.measured[application])
    if history.measured[-1] > 0:
        return float(history.cpu[-1] / history.measured[-1])
    return 1.0

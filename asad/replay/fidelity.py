"""How like the cluster of a log a simulated Slurm is: recorded against simulated waits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, JobLog, Json

UNLIKE = 0.25
"""A simulated mean wait that is off by more than this part of the recorded one is not that of the cluster."""
UNORDERED = 0.5
"""Nor are waits whose ranks are correlated by less."""
CLOSE_S, CLOSE = 300.0, 0.25
"""A wait is close that is off by no more than so many seconds, or this part of the recorded one."""


class Fidelity(NamedTuple):
    """Of all jobs, or of a partition's."""

    partition: str
    """Empty: of all jobs, or of those without a partition."""
    jobs: int
    recorded_mean_s: float
    simulated_mean_s: float
    recorded_median_s: float
    simulated_median_s: float
    rank_correlation: float | None
    """Spearman's; None where all waits are the same, recorded or simulated."""
    close: float
    """Share of jobs whose wait is off by no more than `CLOSE_S` or `CLOSE` of the recorded one."""
    alike: bool
    """Neither is the mean off by more than `UNLIKE`, nor are ranks correlated by less than `UNORDERED`."""


def fidelity(jobs: JobLog, simulated_s: Floats) -> list[Json]:
    """Of all jobs, then of each partition, that of most jobs first; none where the log has no starts.

    `simulated_s` (n,) are the waits of the same jobs on the simulated Slurm.
    """
    recorded_s = np.maximum(jobs.start_s - jobs.queued_s, 0.0)
    if not len(jobs) or np.isnan(recorded_s).any():
        return []
    codes, counts = np.unique(jobs.partition, return_counts=True)
    found = [compared("", recorded_s, simulated_s)]
    for code in codes[np.argsort(-counts, kind="stable")].tolist():
        if code >= 0:
            rows = jobs.partition == code
            found.append(compared(jobs.partitions[code], recorded_s[rows], simulated_s[rows]))
    return [dict(one._asdict()) for one in found]


def compared(partition: str, recorded_s: Floats, simulated_s: Floats) -> Fidelity:
    """Waits that were (n,) against those that a simulation, or a forecast, said: n above 0, seconds."""
    mean, other = float(recorded_s.mean()), float(simulated_s.mean())
    correlation = rank_correlation(recorded_s, simulated_s)
    return Fidelity(
        partition,
        len(recorded_s),
        mean,
        other,
        float(np.median(recorded_s)),
        float(np.median(simulated_s)),
        correlation,
        float(np.mean(is_close(recorded_s, simulated_s))),
        abs(other - mean) <= UNLIKE * mean and (correlation is None or correlation >= UNORDERED),
    )


def is_close(recorded_s: Floats | float, simulated_s: Floats | float) -> NDArray[np.bool_]:
    """Which waits are off by no more than `CLOSE_S`, or `CLOSE` of the recorded one."""
    off_s = np.abs(np.subtract(simulated_s, recorded_s))
    return np.asarray(off_s <= np.maximum(CLOSE_S, np.multiply(CLOSE, recorded_s)))


def rank_correlation(one: Floats, other: Floats) -> float | None:
    """Spearman's; None where all of one are the same."""
    from scipy.stats import rankdata

    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1])

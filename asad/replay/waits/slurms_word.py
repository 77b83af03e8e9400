"""What Slurm itself says of waits in a log: why each job was kept waiting last, and who started it.

sacct's `Reason` is the last one other than the job's priority and resources, kept also of jobs that ran. It has no
time: so it can confirm a limit that was found in another way, and gives no part of a wait.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from asad.bounded import printable
from asad.cluster.reason_words import LIMIT, name_of, word_of
from asad.model import Floats, Ints, JobLog, Json

OTHERWISE = re.compile(r"Minutes|Wall|Time|Submit|PerJob|PerNode|Min[A-Z]|Threshold")
"""In the names of limits that do not bound what is held at one time."""


def _has(jobs: JobLog, wanted: list[bool]) -> NDArray[np.bool_]:
    """(J,) whose reason is one of those that are wanted; `wanted` has an entry for each of the log's reasons."""
    if jobs.reason is None:
        return np.zeros(len(jobs), np.bool_)
    found: NDArray[np.bool_] = np.array([*wanted, False])[jobs.reason]  # the last entry is of code -1
    return found


def names_limit(jobs: JobLog) -> NDArray[np.bool_]:
    """(J,) of which jobs Slurm says that a limit of an association or a QOS kept them waiting."""
    return _has(jobs, [_is_limit(reason) for reason in jobs.reasons])


def names_ceiling(jobs: JobLog) -> NDArray[np.bool_]:
    """(J,) the same of limits on what is held at one time: of cores, jobs, nodes, memory or gres."""
    return _has(jobs, [_is_limit(one) and OTHERWISE.search(one) is None for one in jobs.reasons])


def _is_limit(reason: str) -> bool:
    """Is it a limit of an association or a QOS, as `AssocGrpCpuLimit` or `QOSMaxJobsPerUserLimit`?"""
    return word_of(name_of(reason)) == LIMIT


def last_reasons(jobs: JobLog, wait_s: Floats) -> list[Json]:
    """A row for each last reason, of those whose jobs waited longest first; none if the log has no reasons."""
    rows = _by(jobs.reason, jobs.reasons, wait_s)
    return [{"reason": name, "jobs": count, "wait_h": hours} for name, count, hours in rows]


def started_by(jobs: JobLog, wait_s: Floats) -> list[Json]:
    """A row for each way in which jobs were started, by Slurm's `Flags`; `share` is of the jobs that have one."""
    rows = _by(jobs.start_flag, jobs.start_flags, wait_s)
    total = sum(count for _, count, _ in rows)
    return [
        {"flag": name, "jobs": count, "share": count / total, "wait_h": hours} for name, count, hours in rows
    ]


def _by(code: Ints | None, names: tuple[str, ...], wait_s: Floats) -> list[tuple[str, int, float]]:
    """Name, jobs and hours of wait of each code, most hours first."""
    if code is None:
        return []
    there = code >= 0
    count = np.bincount(code[there], minlength=len(names)).tolist()
    hours = (np.bincount(code[there], wait_s[there], minlength=len(names)) / 3600.0).tolist()
    rows = zip(map(printable, names), count, hours, strict=True)
    return sorted((row for row in rows if row[1]), key=lambda row: (-row[2], -row[1], row[0]))

"""Lending never kills: time limits of hosts and guests move by what lending took from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.decisions import Cause, Decision, ExtendLimit
from asad.model import Snapshot

AHEAD = 4
"""Polls before a limit at which it is extended: two may be missed."""


@compiled
def _near(
    now: float,
    poll_s: float,
    guests: NDArray[np.int32],
    running: NDArray[np.int32],
    pace: NDArray[np.float64],
    lost: NDArray[np.float64],
    extended: NDArray[np.float64],
    limit_end: NDArray[np.float64],
    rows: NDArray[np.int32],
    by: NDArray[np.float64],
) -> tuple[int, float]:
    """Rows of the limits to extend and by how much; how many, and when limits must be looked at again.

    Compiled, since it looks at every job that runs at every cycle, and as good as always finds nothing. Jobs that
    share cores or did are those that may have lost time.
    """
    count = 0
    again = np.inf
    for jobs in (guests, running):
        for i in range(len(jobs)):
            row = jobs[i]
            if not (pace[row] < 1.0 or lost[row] > extended[row]):
                continue
            owed = lost[row] + (1.0 - pace[row]) * 2 * AHEAD * poll_s - extended[row]
            more = 60.0 * np.ceil(owed / 60.0) if owed > 0 else 0.0
            due = limit_end[row] - AHEAD * poll_s
            if due <= now:
                if more > 0:
                    rows[count], by[count] = row, more
                    count += 1
                due = max(due + more, now + poll_s)
            again = min(again, due)
    return count, again


def extensions(snapshot: Snapshot, policy: str, poll_s: float) -> tuple[list[Decision], float]:
    """Extend near limits of jobs that lending has slowed, by what it took and will take soon, in whole minutes.

    Returns the decisions, and when limits must be looked at again (s; inf for never).
    """
    jobs = snapshot.jobs
    most = len(snapshot.guests) + len(snapshot.running)
    rows, by = np.empty(most, np.int32), np.empty(most)
    count, again = _near(
        snapshot.time_s,
        poll_s,
        snapshot.guests,
        snapshot.running,
        jobs.pace,
        jobs.lost_s,
        jobs.extended_s,
        jobs.limit_end_s,
        rows,
        by,
    )
    if count == 0:
        return [], again
    return [
        ExtendLimit(Cause(policy, f"lending has taken {jobs.lost_s[row]:.0f} s from it so far"), row, seconds)
        for row, seconds in zip(rows[:count].tolist(), by[:count].tolist(), strict=True)
    ], again

"""Lending never kills: time limits of hosts and guests move by what lending took from them."""

from __future__ import annotations

import math

import numpy as np

from asad.model import Cause, Decision, ExtendLimit, Ints, Snapshot

AHEAD = 4
"""Polls before a limit at which it is extended: two may be missed."""


def sharing(snapshot: Snapshot) -> Ints:
    """Rows of the jobs that share cores or did, and so may have lost time: guests, and hosts of guests."""
    jobs, running = snapshot.jobs, snapshot.running
    slowed = (jobs.lost_s[running] > 0) | (jobs.pace[running] < 1.0)
    return np.concatenate((snapshot.guests, running[slowed]))


def extensions(snapshot: Snapshot, policy: str, poll_s: float) -> tuple[list[Decision], float]:
    """Extend near limits of jobs that lending has slowed, by what it took and will take soon, in whole minutes.

    Returns the decisions, and when limits must be looked at again (s; inf for never).
    """
    jobs, now = snapshot.jobs, snapshot.time_s
    rows = sharing(snapshot)
    rows = rows[(jobs.pace[rows] < 1.0) | (jobs.lost_s[rows] > jobs.extended_s[rows])]
    if len(rows) == 0:
        return [], math.inf
    owed = jobs.lost_s[rows] + (1.0 - jobs.pace[rows]) * 2 * AHEAD * poll_s - jobs.extended_s[rows]
    by = np.where(owed > 0, 60.0 * np.ceil(owed / 60.0), 0.0)
    due = jobs.limit_end_s[rows] - AHEAD * poll_s
    near = due <= now
    decisions: list[Decision] = [
        ExtendLimit(Cause(policy, f"lending has taken {jobs.lost_s[row]:.0f} s from it so far"), row, seconds)
        for row, seconds in zip(rows[near].tolist(), by[near].tolist(), strict=True)
        if seconds > 0
    ]
    again = np.where(near, np.maximum(due + by, now + poll_s), due)
    return decisions, float(again.min())

"""Lending never kills: time limits of hosts and guests move by what lending took from them."""

from __future__ import annotations

import math

import numpy as np

from asad.model import Cause, Decision, ExtendLimit, Floats, Ints, Snapshot

AHEAD = 4
"""Polls before a limit at which it is extended: two may be missed."""


def sharing(snapshot: Snapshot) -> Ints:
    """Rows of the jobs that share cores or did, and so may have lost time: guests, and hosts of guests."""
    guests = snapshot.guests
    hosts = snapshot.running[snapshot.jobs.lost_s[snapshot.running] > 0]
    return np.concatenate((guests, hosts))


def _owed(snapshot: Snapshot, poll_s: float) -> tuple[Ints, Floats, Floats]:
    """(rows, seconds owed, time by which each must have got them) of the jobs whose limit has to move."""
    jobs = snapshot.jobs
    rows = sharing(snapshot)
    owed = jobs.lost_s[rows] + (1.0 - jobs.pace[rows]) * 2 * AHEAD * poll_s - jobs.extended_s[rows]
    some = owed > 0
    return rows[some], owed[some], jobs.limit_end_s[rows[some]] - AHEAD * poll_s


def extensions(snapshot: Snapshot, policy: str, poll_s: float) -> list[Decision]:
    """Extend near limits of jobs that lending has slowed, by what it took and will take soon, in whole minutes."""
    rows, owed, due = _owed(snapshot, poll_s)
    now_due = due <= snapshot.time_s
    return [
        ExtendLimit(
            Cause(policy, f"lending has taken {snapshot.jobs.lost_s[row]:.0f} s from it so far"),
            row,
            60.0 * math.ceil(seconds / 60.0),
        )
        for row, seconds in zip(rows[now_due].tolist(), owed[now_due].tolist(), strict=True)
    ]


def next_extension(snapshot: Snapshot, poll_s: float) -> float:
    """When the next limit will have to be looked at; inf if none."""
    _, _, due = _owed(snapshot, poll_s)
    return float(due[due > snapshot.time_s].min(initial=np.inf))

"""What a learned policy is shown: a row of numbers for each job that it knows of, and one for the cluster.

Source of the state: section 4.1.1 of the OSDEC paper (jobs that run, that may start and that are known for later, and
the capacity), as `PAPER` and `PAPER_CLUSTER`. The other columns are ours: what a planner would work out from the same
state by arithmetic, with a forecast of the capacity that was fitted to history. A network would have
to learn that arithmetic first; with it, a small one suffices (docs/how-to/train-osdec.md).

Nothing here looks ahead: the forecast sees the capacity up to and including the present step, and of the jobs only
those that were submitted. Cost: O(jobs · longest run), compiled; about 10 µs with 50 jobs.
"""

from __future__ import annotations

import numpy as np

from asad.compiling import compiled
from asad.defer.prices import COARSE, HORIZON, find_prices, gain_of
from asad.model import Floats, Ints

LOOK = 48
"""Steps ahead that are planned with, the present one included."""
LAGS = 4
"""Steps of the capacity, the present one included, that the forecast follows from."""
TERMS = 3 + LAGS
"""Of the forecast: 1, sine and cosine of the present phase, and the lags."""
LEAD = 24
"""Steps ahead for which it is known which share of the jobs is not submitted yet."""
CLASSES = 2
"""Of jobs to come, by their duration."""
FAR = 24
"""Steps to the end of a trajectory that count as many; so many are shown where time has no end."""

RUNNING, WAITING, FUTURE, CLUSTER = 0, 1, 2, 3
"""Kinds of rows. Waiting jobs may start now; future ones are known and may not. The last row stands for the cluster."""

JOB_COLUMNS = (
    "running",
    "waiting",
    "future",
    "cores",
    "duration",
    "until_earliest",
    "until_latest",
    "delay",
    "area",
    "delay_price",
    "share_of_free",
    "fits",
    "overflow",
    "room",
    "pressure",
    "pressure_later",
    "pressure_at_latest",
    "overflow_at_latest",
    "more_urgent",
    "past_end",
    "gain",
    "gain_all",
    "gain_later",
    "price",
)
"""Of one job: what it is, and from `share_of_free` on what starting it now would meet.

`cores` and all of the capacity are in parts of the scale; `duration` in 24 steps; `until_earliest`, `until_latest` and
`delay` in 8 steps; `area` is log2(1 + c·d) / 8; `delay_price` is 1 / (c·d); `overflow` the part of c·d that the
forecast does not hold if it starts now, and at its latest start; `room` the mean forecast room over its run;
`pressure` the mean of what known jobs would take less that room, now, at the best later start and at the latest;
`more_urgent` the cores of waiting jobs whose latest start comes before its own; `past_end` the part of its run after
the end of the trajectory. With the prices of `asad.defer.prices`: what a core `gain`s by starting now rather than
later, in 8 steps; of all its cores that, as sign and log(1 + x) / 4 (`gain_all`); what one gains later, in 8 steps; the
mean `price` over its run.
"""
CLUSTER_COLUMNS = (
    "capacity",
    "used",
    "free",
    "sine",
    "cosine",
    "to_end",
    "waiting_cores",
    "future_cores",
    "waiting_jobs",
    "slope",
    "room_2",
    "room_4",
    "room_8",
    "room_16",
    "demand_2",
    "demand_4",
    "demand_8",
    "demand_16",
    "price_now",
    "price_4",
    "price_12",
)
"""Of the cluster: capacity and what is held of it; the phase of its period; steps to the end in 24; what waits and is
known; the capacity's change over the last steps; means of room, of the demand of known jobs and of prices over the next
steps."""
PAPER = ("running", "waiting", "future", "cores", "duration", "until_earliest", "until_latest")
PAPER_CLUSTER = ("capacity", "used")
JOB_WIDTH, CLUSTER_WIDTH = len(JOB_COLUMNS), len(CLUSTER_COLUMNS)


@compiled(nogil=True)
def forecast(
    capacity: Floats, sine: float, cosine: float, scale: float, weights: Floats, ahead: Floats
) -> None:
    """Into `ahead` (LOOK,) the capacity from now on, in parts of the scale; the last of `capacity` is the present."""
    now = len(capacity) - 1
    for h in range(LOOK):
        level = weights[h, 0] + weights[h, 1] * sine + weights[h, 2] * cosine
        for lag in range(LAGS):
            level += weights[h, 3 + lag] * capacity[max(now - lag, 0)] / scale
        ahead[h] = max(level, 0.0)


@compiled(nogil=True)
def describe(
    now: int,
    to_end: int,
    period: float,
    scale: float,
    weights: Floats,
    coming: Floats,
    unknown: Floats,
    delay: float,
    capacity: Floats,
    held: Floats,
    kind: Ints,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    jobs: Floats,
    cluster: Floats,
    brief: bool = False,
) -> None:
    """Fill `jobs` (n, JOB_WIDTH) and `cluster` (CLUSTER_WIDTH,) for a decision at step `now`.

    `to_end`: steps of the trajectory that are left, 0 where time has no end. `capacity`: cores of the steps up to now,
    the last is that of now. `held` (LOOK,): cores that running jobs hold from now on. The other arrays are rows of n
    jobs: for one that runs, `duration` is what is left. `delay` is ω1. `brief`: rows of jobs that may not start now are
    left empty.
    """
    n = len(kind)
    sine, cosine = 0.0, 0.0
    if period > 0.0:
        angle = 2.0 * np.pi * now / period
        sine, cosine = np.sin(angle), np.cos(angle)
    ahead = np.empty(LOOK)
    forecast(capacity, sine, cosine, scale, weights, ahead)
    last_known = len(capacity) - 1
    present = capacity[last_known]
    shown_end = FAR if to_end <= 0 else min(to_end, FAR)
    free = present - held[0]
    room = np.empty(LOOK)
    for h in range(LOOK):
        room[h] = max(ahead[h] - held[h] / scale, 0.0)
    demand = np.zeros(LOOK + 1)
    waiting_cores, future_cores, waiting = 0.0, 0.0, 0
    for i in range(n):
        if kind[i] == WAITING or kind[i] == FUTURE:
            first = max(earliest[i] - now, 0)
            if kind[i] == WAITING:
                waiting_cores += cores[i]
                waiting += 1
            else:
                future_cores += cores[i]
            if first < LOOK:
                demand[first] += cores[i] / scale
                demand[min(first + duration[i], LOOK)] -= cores[i] / scale
    # sums up to a step, so that the mean over any run is two reads
    room_sums, pressure_sums, demand_sums = np.zeros(LOOK + 1), np.zeros(LOOK + 1), np.zeros(LOOK + 1)
    level = 0.0
    for h in range(LOOK):
        level += demand[h]
        room_sums[h + 1] = room_sums[h] + room[h]
        demand_sums[h + 1] = demand_sums[h] + level
        pressure_sums[h + 1] = pressure_sums[h] + min(max(level - room[h], -2.0), 2.0)
    cluster[0] = present / scale
    cluster[1] = held[0] / scale
    cluster[2] = free / scale
    cluster[3] = sine
    cluster[4] = cosine
    cluster[5] = shown_end / FAR
    cluster[6] = waiting_cores / scale
    cluster[7] = future_cores / scale
    cluster[8] = waiting / 32.0
    cluster[9] = (present - capacity[max(last_known - LAGS, 0)]) / scale
    for k in range(4):
        span = 2 << k
        cluster[10 + k] = room_sums[span] / span
        cluster[14 + k] = demand_sums[span] / span
    ends = HORIZON if to_end <= 0 else min(HORIZON, to_end)
    price, upto = np.empty(ends), np.zeros(ends + 1)
    find_prices(
        room[:ends] * scale,
        cores,
        duration,
        earliest - now,
        latest - now,
        kind != RUNNING,
        coming,
        unknown,
        delay,
        COARSE,
        price,
    )
    for h in range(ends):
        upto[h + 1] = upto[h] + price[h]
    cluster[18] = min(price[0], 4.0)
    cluster[19] = upto[min(4, ends)] / min(4, ends)
    cluster[20] = upto[min(12, ends)] / min(12, ends)
    for i in range(n):
        row = jobs[i]
        row[:] = 0.0
        if brief and kind[i] != WAITING:
            continue
        row[kind[i]] = 1.0
        wide, run = cores[i] / scale, float(duration[i])
        area = max(cores[i] * run, 1.0)
        row[3] = wide
        row[4] = min(run / FAR, 4.0)
        row[8] = np.log2(1.0 + area) / 8.0
        if kind[i] == RUNNING:
            continue
        row[5] = min(max(earliest[i] - now, 0) / 8.0, 4.0)
        row[6] = min(max(latest[i] - now, 0) / 8.0, 4.0)
        row[7] = min(max(now - earliest[i], 0) / 8.0, 4.0)
        row[9] = 1.0 / area
        row[10] = min(cores[i] / max(free, 1.0), 2.0)
        row[11] = 1.0 if cores[i] <= free else 0.0
        first = min(max(earliest[i] - now, 0), LOOK - 1)
        last = min(max(latest[i] - now, 0), LOOK - 1)
        span = min(duration[i], LOOK - first)
        over = 0.0
        for h in range(first, first + span):
            over += min(max(wide - room[h], 0.0), wide)
        row[12] = over / (wide * span)
        row[13] = (room_sums[first + span] - room_sums[first]) / span
        row[14] = (pressure_sums[first + span] - pressure_sums[first]) / span
        best = row[14]
        for later in range(first + 1, last + 1):
            stop = min(later + duration[i], LOOK)
            best = min(best, (pressure_sums[stop] - pressure_sums[later]) / (stop - later))
        row[15] = best
        stop = min(last + duration[i], LOOK)
        row[16] = (pressure_sums[stop] - pressure_sums[last]) / (stop - last)
        over = 0.0
        for h in range(last, stop):
            over += min(max(wide - room[h], 0.0), wide)
        row[17] = over / (wide * (stop - last))
        urgent = 0.0
        for j in range(n):
            if kind[j] == WAITING and (latest[j] < latest[i] or (latest[j] == latest[i] and j < i)):
                urgent += cores[j]
        row[18] = min(urgent / scale, 4.0)
        if to_end > 0:
            row[19] = max(run - to_end, 0.0) / run
        run_ends = min(duration[i], ends)
        row[23] = min(upto[run_ends] / run_ends, 4.0)
        if kind[i] == WAITING:
            gain, after = gain_of(
                upto, cores[i], duration[i], earliest[i] - now, latest[i] - now, delay, COARSE.coldest
            )
            row[20] = min(max((gain - after) / 8.0, -4.0), 4.0)
            row[21] = np.log1p(cores[i] * abs(gain - after)) * np.sign(gain - after) / 4.0
            row[22] = min(after / 8.0, 4.0)

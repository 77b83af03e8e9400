"""The state of a cluster as policies know it: in steps, numbered from the epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asad.defer.deferrable_job import Deferrable
from asad.defer.jobs import MOST_STEPS, Past, Waiting
from asad.defer.room import cells
from asad.defer.world import World


def steps_of(seconds: float, step_s: float) -> int:
    """Steps, a part of one counting as one; from 1."""
    return cells(seconds, MOST_STEPS, step_s)


def waiting_of(world: World, might: Sequence[Deferrable], past: Past, step_s: float) -> Waiting:
    """Jobs that wait, what is left to them, and what was seen before."""
    now_s, jobs = world.snapshot.time_s, world.snapshot.jobs
    now = math.floor(now_s / step_s)

    def step(time_s: float) -> int:
        return int(min(max(math.floor(time_s / step_s), now - MOST_STEPS), now + MOST_STEPS))

    earliest = np.array([step(job.window.earliest_s) for job in might], np.int64)
    # who may start within this step may start now, and who may not yet, not before the next
    may = np.array([job.window.earliest_s <= now_s for job in might])
    earliest = np.where(may, np.minimum(earliest, now), np.maximum(earliest, now + 1))
    latest = np.maximum(np.array([step(job.window.latest_s) for job in might], np.int64), earliest)
    left = [steps_of(float(jobs.limit_end_s[row]) - now_s, step_s) for row in world.running]
    return Waiting(
        now=now,
        cores=np.array([job.cores for job in might], np.int32),
        duration=np.array([steps_of(job.needs_s, step_s) for job in might], np.int32),
        earliest=earliest.astype(np.int32),
        latest=np.maximum(latest, now).astype(np.int32),
        submitted=np.minimum([step(job.submit_s) for job in might], now).astype(np.int32),
        capacity=world.capacity,
        running_cores=jobs.cores[world.running].astype(np.int32),
        running_left=np.array(left, np.int32),
        past=past,
    )

"""CPU use that varies: an AR(1) around what the log recorded, for each job on each of its nodes.

Stationary standard deviation `USE_SD` as a share of the job's cores, steps of a minute, a correlation of e^-0.1 from
step to step (so e-fold in ten minutes), clipped to [0, 1]; the mean that clipping moves is restored by an offset. The
noise depends on the job, the node's place among its nodes, the step and the seed alone: every policy sees the same.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from asad.compiling import borrowing
from asad.model import Floats
from asad.replay.engine.rates import mark_guest_nodes, refresh
from asad.replay.engine.simulation_state import (
    GUESTS,
    RECENT,
    RUN,
    SEED,
    STEP,
    USE_SD,
    WINDOW,
    State,
    note_change,
)

STEP_S = 60.0
PHI = float(np.exp(-0.1))
DEVIATION, STEPS = 0, 1
"""Columns of `State.vary` before its RECENT samples."""


def centres(mean: Floats, sd: float) -> Floats:
    """(n,) where to centre a normal deviate of `sd` so that, clipped to [0, 1], it has the mean `mean` (n,).

    By bisection of E[clip(X, 0, 1)] for X normal, which rises with the centre.
    """
    if sd <= 0:
        return mean.copy()
    wanted, back = np.unique(mean, return_inverse=True)

    def clipped_mean(centre: Floats) -> Floats:
        """∫₀¹ P(X > x) dx in closed form."""

        def below(z: Floats) -> Floats:
            result: Floats = z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
            return result

        found: Floats = 1.0 - sd * (below((1.0 - centre) / sd) - below(-centre / sd))
        return found

    low, high = np.full(len(wanted), -4.0 * sd - 1.0), np.full(len(wanted), 2.0 + 4.0 * sd)
    for _ in range(60):
        middle = 0.5 * (low + high)
        less = clipped_mean(middle) < wanted
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    found: Floats = (0.5 * (low + high))[back]
    return found


@borrowing
def _noise(job: int, place: int, step: int, seed: int) -> float:
    """A standard normal number of these four and nothing else (splitmix64, then Box and Muller)."""
    first = _mix(
        np.uint64(job) * np.uint64(0x9E3779B97F4A7C15)
        + np.uint64(place) * np.uint64(0xC2B2AE3D27D4EB4F)
        + np.uint64(seed) * np.uint64(0xD6E8FEB86659FD93)
    )
    bits = _mix(first + np.uint64(step) * np.uint64(0x165667B19E3779F9))
    u = (np.float64(bits >> np.uint64(11)) + 0.5) * 2.0**-53
    v = np.float64(_mix(bits) >> np.uint64(11)) * 2.0**-53
    return float(np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * v))


@borrowing
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@borrowing
def _step(s: State, job: int, place: int, row: int) -> float:
    """The use of a core by the job on its node `place`, whose process stands in `row` of `State.vary`, one step on."""
    steps = int(s.vary[row, STEPS])
    noise = _noise(job, place, steps, s.c[SEED])
    if steps > 0:
        noise = PHI * s.vary[row, DEVIATION] + np.sqrt(1.0 - PHI * PHI) * noise
    use = min(1.0, max(0.0, s.job[job].centre + s.f[USE_SD] * noise))
    s.vary[row, DEVIATION] = noise
    s.vary[row, STEPS] = steps + 1
    s.vary[row, 2 + steps % RECENT] = use
    s.job[job].measured += use
    s.job[job].samples += 1.0
    return use


@borrowing
def _peak(s: State, row: int) -> float:
    """95th percentile of the samples of the last ten minutes, between the two highest as numpy has it."""
    count = min(int(s.vary[row, STEPS]), RECENT)
    highest, second = -1.0, -1.0
    for i in range(2, 2 + count):
        sample = s.vary[row, i]
        if sample > highest:
            highest, second = sample, highest
        elif sample > second:
            second = sample
    if count == 1:
        return highest
    return second + (highest - second) * (0.95 * (count - 1) - (count - 2))


@borrowing
def begin_use(s: State, job: int) -> None:
    """A job has just started as a batch job: its use varies from here on, and steps begin anew."""
    core, place, node = s.job[job].owner_first, 0, -1
    use = 0.0
    while core >= 0:
        if s.core[core].node != node:
            node = s.core[core].node
            s.vary[core, STEPS] = 0.0
            use = _step(s, job, place, core)
            place += 1
        s.core[core].use = use
        core = s.core[core].owner_next


@borrowing
def vary_use(s: State) -> None:
    """A step of all jobs that run, and rates by that."""
    now = s.f[STEP]
    s.f[STEP] += STEP_S
    for i in range(s.c[RUN]):
        job = s.run[i].job
        core, place, node = s.job[job].owner_first, 0, -1
        use, peak = 0.0, np.nan
        while core >= 0:
            if s.core[core].node != node:
                node = s.core[core].node
                use = _step(s, job, place, core)
                if now - s.job[job].start >= s.f[WINDOW]:
                    note_change(s, node)
                    peak = min(1.0, _peak(s, core) * s.job[job].belief)
                place += 1
            s.core[core].use, s.core[core].peak = use, peak
            core = s.core[core].owner_next
    for i in range(s.c[GUESTS]):
        job = s.job[i].guest_row
        core, place, head, held = s.job[job].guest_first, 0, -1, 0
        s.job[job].wanted = np.nan
        while core >= 0:
            if s.core[core].head:
                head, held = core, 0
            held += 1
            core = s.core[core].guest_next
            if core < 0 or s.core[core].head:
                s.core[head].wants = held * _step(s, job, place, len(s.core) + head)
                place += 1
    if s.c[GUESTS]:
        refresh(s, mark_guest_nodes(s), now)

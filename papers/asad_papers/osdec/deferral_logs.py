"""From an accounting log, trajectories of deferral: what on-demand jobs leave, and jobs that are taken for deferrable.

Hardly any log says which jobs could have waited, so a share of them is drawn, by a seed: they may start between their
submission and a window after it. All others are on demand, and run when they did. Steps count from midnight (UTC), and
a trajectory is two days.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.defer.jobs import Trajectories
from asad.errors import UsageError
from asad.model import Floats, JobLog
from asad.replay.readers import Recorded

DAY_S = 86_400.0
DAYS = 2
"""Of a trajectory."""
MOST_STEPS_A_DAY = 24 * 60


def parse_deferrable(text: str) -> tuple[float, float]:
    """`share=0.2,window=4h` → the share, 0 to 1, and the window in seconds. Raises UsageError."""
    units = {"m": 60.0, "h": 3600.0, "d": DAY_S}
    found = {"share": 0.2, "window": 4 * 3600.0}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        unit = units.get(value[-1:], 1.0) if key == "window" else 1.0
        try:
            number = float(value[:-1] if value[-1:] in units and key == "window" else value) * unit
        except ValueError:
            number = -1.0
        if key not in found or not 0.0 < number < 1e7 or (key == "share" and number > 1.0):
            raise UsageError(f"--deferrable {text[:80]}: write share=0.2,window=4h")
        found[key] = number
    return found["share"], found["window"]


def from_log(
    jobs: JobLog, cores: int | None, step_s: float, share: float, window_s: float, seed: int = 0
) -> tuple[Trajectories, float]:
    """The trajectories of a log, and the steps of a day. `cores` of the cluster; None takes the most in use.

    Raises UsageError for a step that does not divide a day, and for a log that is too short.
    """
    ran, origin, steps, steps_a_day = _grid(jobs, step_s)
    days = steps // (DAYS * steps_a_day) * DAYS
    chosen = np.random.default_rng(seed).random(len(ran)) < share
    length = DAYS * steps_a_day
    held = _held(ran, ~chosen, origin, step_s, steps)
    most = (
        float(cores)
        if cores is not None
        else float(_held(ran, chosen | ~chosen, origin, step_s, steps).max())
    )
    capacity = np.maximum(0.0, np.rint(most - held[: days * steps_a_day])).reshape(-1, length)
    mine = ran.take(np.flatnonzero(chosen))
    submitted = ((mine.submit_s - origin) / step_s).astype(np.int64)
    # a job that was submitted within a step is known, and may start, from the next one on
    earliest = submitted + 1
    duration = np.maximum(1, np.ceil(mine.run_s / step_s).astype(np.int64))
    latest = earliest + int(window_s // step_s)
    of = earliest // length
    inside = of < len(capacity)
    base = of * length
    table = np.column_stack(
        (mine.cores, duration, earliest - base, np.minimum(latest - base, length - 1), earliest - base)
    )[inside]
    order = np.argsort(of[inside], kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(of[inside], minlength=len(capacity)))))
    return Trajectories.of(table[order].astype(np.int64), first, capacity, "the log"), float(steps_a_day)


def on_demand(recorded: Recorded, step_s: float, cores: float) -> tuple[Floats, int]:
    """(B, T) What all jobs of a log leave of a cluster that is scaled to so many `cores`, and the steps of a day.

    The log's cluster has the processors of its header, or else the most in use. Raises UsageError as `from_log`.
    """
    ran, origin, steps, steps_a_day = _grid(recorded.jobs, step_s)
    days = steps // (DAYS * steps_a_day) * DAYS
    held = _held(ran, np.ones(len(ran), np.bool_), origin, step_s, steps)
    header = recorded.header.get("MaxProcs", "")
    most = float(header) if header.isdigit() and int(header) > 0 else float(held.max())
    left = cores * np.maximum(0.0, 1.0 - held[: days * steps_a_day] / most)
    return np.rint(left).reshape(-1, DAYS * steps_a_day), steps_a_day


def _grid(jobs: JobLog, step_s: float) -> tuple[JobLog, float, int, int]:
    """Jobs that ran, the midnight before the first, steps from there to the last end, and steps of a day."""
    steps_a_day = round(DAY_S / step_s)
    if not 2 <= steps_a_day <= MOST_STEPS_A_DAY or abs(steps_a_day * step_s - DAY_S) > 1e-6:
        raise UsageError(f"--step {step_s:g}s: does not divide a day; take 10m, 15m, 30m or 1h")
    ran = jobs.take(np.flatnonzero(np.isfinite(jobs.start_s)))
    if not len(ran):
        raise UsageError("--log: no job has a start; there is nothing to learn from")
    origin = np.floor(float(ran.submit_s.min()) / DAY_S) * DAY_S
    steps = int(np.ceil((float((ran.start_s + ran.run_s).max()) - origin) / step_s))
    if steps < DAYS * steps_a_day:
        raise UsageError(f"--log: it is shorter than {DAYS} days; give a longer one")
    return ran, origin, steps, steps_a_day


def _held(jobs: JobLog, which: NDArray[np.bool_], origin: float, step_s: float, steps: int) -> Floats:
    """(steps,) Cores that those jobs held, in the mean of each step."""
    grid = np.zeros(steps + 1)
    for sign, at in ((1.0, jobs.start_s[which]), (-1.0, (jobs.start_s + jobs.run_s)[which])):
        place = np.clip((at - origin) / step_s, 0.0, steps)
        whole = np.minimum(place.astype(np.int64), steps - 1)
        rest = place - whole
        wide = sign * jobs.cores[which]
        np.add.at(grid, whole, wide * (1.0 - rest))
        np.add.at(grid, whole + 1, wide * rest)
    found: Floats = np.cumsum(grid)[:steps]
    return found

"""The placebo of a replay: what the schedule does to others when some jobs run a second longer and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from asad.replay.playing import Played, leave_alone
from asad.replay.replay_settings import VERDICT_JOBS
from asad.replay.schedule_figures import later
from asad.replay.workbench import Bench

PLACEBOS, PLACEBOS_LONG = 20, 3
"""Draws of the placebo, and for logs above VERDICT_JOBS."""


class Moved(NamedTuple):
    """How many jobs chance alone moves: means over the draws."""

    late: float
    """All jobs that end late."""
    unshared: float
    """Those of them whose own run times were left as they are."""


def placebo(bench: Bench, baseline: Played, touched: int, seed: int) -> Moved:
    """How many jobs end later, beyond the tolerance, when `touched` run times are made 1 s longer and nothing else.

    The means of several draws, since one may hit anything between nothing and a great many.
    """
    if touched == 0:
        return Moved(0.0, 0.0)
    workload = bench.workload
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0x9A)))
    late = []
    for _ in range(PLACEBOS if len(workload) <= VERDICT_JOBS else PLACEBOS_LONG):
        rows = rng.choice(len(workload), size=min(touched, len(workload)), replace=False)
        work = workload.work_s.copy()
        work[rows] += 1.0
        moved = replace(
            workload,
            work_s=work,
            planned_s=np.maximum(workload.planned_s, work),
            limit_s=np.maximum(workload.limit_s, work),
        )
        end = (
            leave_alone(bench, "slurm", moved, "placebo").cluster.state.job["end"].copy()
        )  # and no more: it is large
        worse = later(workload, end, baseline.cluster.state.job["end"])
        all_late = int(worse.sum())
        worse[rows] = False
        late.append((all_late, int(worse.sum())))
    return Moved(*np.mean(late, axis=0).tolist())

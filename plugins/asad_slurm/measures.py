"""From the reports of the node actors to the columns of the snapshot (`asad.cluster.samples`), as Slurm's jobs are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asad.cluster.samples import LEAST_PACE, Sample, Seen, fill, in_time, lending
from asad.model import Floats, Ints
from asad.port import NodeReport
from asad_slurm.ended_runs import Applications, Arrays
from asad_slurm.records import NAN
from asad_slurm.rows import Rows

SQUEEZED = 0.05
"""A job that is slowed by more than this does not show what it wants."""
STEPS = re.compile(r"(?:^|[\s,;])asad:steps=(\d{1,7})(?![^\s,;])", re.ASCII)
"""How a job says in its comment how many steps it will have."""


def samples_of(
    rows: Rows, reports: Mapping[str, NodeReport], holding: Ints, number: Mapping[str, int]
) -> list[Sample]:
    """What was seen of the jobs in `holding`; `number` has the numbers of nodes by name."""
    row_of = {str(rows.record(row).raw): row for row in holding.tolist()}
    return [
        Sample(row_of[name], number.get(report.node, -1), report, seen)
        for report in reports.values()
        for name, seen in report.jobs.items()
        if name in row_of
    ]


def measure(
    rows: Rows,
    applications: Applications,
    arrays: Arrays,
    samples: Sequence[Sample],
    holding: Ints,
    hosts: Mapping[int, Mapping[int, float]],
    now_s: float,
    elapsed_s: float,
    window_s: float,
) -> Seen:
    """Fill the measured columns of the jobs in `holding` (all that hold cores); `hosts` and `window_s` as of `fill`.

    `elapsed_s` is the time since the last look, not finite for the first.
    """
    jobs, extra = rows.jobs, rows.extra
    seen = fill(rows, holding, samples, hosts, window_s)
    there = seen.there
    work = np.array([applications.work_core_s(code) for code in jobs.application[there].tolist()])
    with np.errstate(divide="ignore", invalid="ignore"):
        by_cpu = np.where(work > 0, np.minimum(1.0, seen.cpu_time_s[there] / work), NAN)
    # what its steps say comes before what it says by a line, and that before what its CPU time makes likely
    progress = _by_steps(rows, there, seen.steps_done)
    for other in (seen.progress[there], by_cpu):
        progress = np.where(np.isnan(progress), other, progress)
    in_time(jobs, there, progress, now_s)
    for row, happiness in arrays.happiness(rows, holding, now_s).items():
        jobs.happiness[row] = happiness
    for row in hosts:
        # what a guest gets beside its host is not what it wants: that is known from earlier runs, or not at all
        got, wants = float(jobs.cpu_fraction[row]), applications.cpu_fraction(int(jobs.application[row]))
        jobs.cpu_fraction[row] = wants
        jobs.pace[row] = _pace(got, wants)
        extra.got[row], extra.most_got[row] = got, np.fmax(got, extra.most_got[row])
    if 0.0 < elapsed_s < np.inf:
        shares = holding[lending(hosts, len(rows))[holding] | extra.guest[holding]]
        # of a guest whose kind was never seen by itself it is at least known that it wants what it has once got
        least = [
            _pace(got, most) for got, most in zip(extra.got[shares], extra.most_got[shares], strict=True)
        ]
        pace = np.where(np.isnan(jobs.pace[shares]), least, jobs.pace[shares])
        slower = np.nan_to_num(1.0 - pace, nan=0.0)
        # a guest that uses less than its kind may sleep: it has lost what it waited for a core, where that is known
        waits = extra.guest[shares] & ~np.isnan(seen.delayed[shares])
        lost = np.where(waits, seen.delayed[shares], slower)
        jobs.lost_s[shares] += lost * np.clip(now_s - jobs.start_s[shares], 0.0, elapsed_s)
        extra.squeezed[shares] |= slower > SQUEEZED
    return seen


def _pace(got: float, wants: float) -> float:
    """Speed of a job that gets this of the CPU and wants that; NaN if either is not known."""
    return min(1.0, max(LEAST_PACE, got / wants)) if wants > 0 and got == got else NAN


def _by_steps(rows: Rows, there: NDArray[np.intp], done: Floats) -> Floats:
    """Ended steps over all that there will be, as the job's comment says; NaN until the first one has ended.

    Nodes that saw other steps of the job may differ: the fewest count.
    """
    progress: Floats = np.full(len(there), NAN)
    for at, row in enumerate(there.tolist()):
        comment = rows.record(row).comment
        if "asad:steps=" in comment and (found := STEPS.search(comment)) and int(found[1]) and done[row] > 0:
            progress[at] = min(1.0, done[row] / int(found[1]))
    return progress

"""From the reports of the node actors to the columns of the snapshot: CPU, pressure, pace, progress, what was lent."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, Ints, Machine
from asad.port import NodeReport
from asad_slurm.applications import Applications
from asad_slurm.arrays import Arrays
from asad_slurm.records import NAN
from asad_slurm.rows import Rows

LEAST_PACE = 0.01
SQUEEZED = 0.05
"""A job that is slowed by more than this does not show what it wants."""
STEPS = re.compile(r"(?:^|[\s,;])asad:steps=(\d{1,7})(?![^\s,;])", re.ASCII)
"""How a job tells in its comment how many steps it will have."""


def measure(
    rows: Rows,
    applications: Applications,
    arrays: Arrays,
    reports: Mapping[str, NodeReport],
    holding: Ints,
    hosts: Mapping[int, Mapping[int, float]],
    now_s: float,
    elapsed_s: float,
    window_s: float,
    core_owner: Ints,
    machine: Machine,
    number: Mapping[str, int],
) -> Floats:
    """Fill the measured columns of the jobs in `holding` (all that hold cores); (cores,) the peaks of batch jobs.

    The peak is the 95th percentile of what the job of `core_owner` uses of each core, on that node, NaN where it is not
    known. `number` has the numbers of nodes by name.

    `hosts` has for every guest of them the batch jobs beside which it runs, and its part from each (-1: free cores).
    `elapsed_s` is the time since the last look, not finite for the first. A job is measured when each of its nodes has
    watched it for `window_s`.
    """
    jobs, extra, size = rows.jobs, rows.extra, len(rows)
    guests = np.array(list(hosts), np.int32)
    lends = np.zeros(size, dtype=bool)
    lends[[host for beside in hosts.values() for host in beside if host >= 0]] = True
    extra.was_host |= lends
    for column in (jobs.cpu_fraction, jobs.pressure, jobs.pace, jobs.happiness):
        column[holding] = NAN
    at, table = _samples(rows, reports, holding, window_s, number)
    peaks: Floats = np.full(machine.total_cores, NAN)
    delayed: Floats = np.full(size, NAN)
    if len(at):
        cpu, cores, pressure, throttled, progress, cpu_time_s, times, steps, peak, node, waited = table
        delayed = _largest(at, waited, size)
        peaks = _peaks(at, node.astype(np.int64), peak, core_owner, machine)
        there = np.unique(at)
        full = ~np.isnan(cpu)
        count = np.bincount(at, weights=full, minlength=size)
        weight = np.bincount(at, weights=cores * full, minlength=size)
        used = np.bincount(at, weights=np.where(full, cpu, 0.0) * cores, minlength=size)
        known = there[(count[there] >= np.maximum(1, jobs.nodes[there])) & (weight[there] > 0)]
        jobs.cpu_fraction[known] = np.clip(used[known] / weight[known], 0.0, 1.0)
        jobs.pressure[there] = _largest(at, pressure, size)[there]
        held_back = np.fmax(jobs.pressure, _largest(at, throttled, size))
        jobs.pace[there] = 1.0
        slowed = there[lends[there]]
        jobs.pace[slowed] = np.clip(1.0 - np.nan_to_num(held_back[slowed], nan=0.0), LEAST_PACE, 1.0)
        total = np.bincount(at, weights=cpu_time_s, minlength=size).astype(np.float64)
        _lend(rows, hosts, there, total, _largest(at, times, size))
        told = _largest(at, progress, size)
        by_steps = _by_steps(rows, there, -_largest(at, -steps, size))
        told[there] = np.where(np.isnan(by_steps), told[there], by_steps)
        _happiness(rows, applications, there, told, total, now_s)
    for row, happiness in arrays.happiness(rows, holding, now_s).items():
        jobs.happiness[row] = happiness
    for row in guests.tolist():
        # what a guest gets beside its host is not what it wants: that is known from earlier runs, or not at all
        got, wants = float(jobs.cpu_fraction[row]), applications.cpu_fraction(int(jobs.application[row]))
        jobs.cpu_fraction[row] = wants
        jobs.pace[row] = _pace(got, wants)
        extra.got[row], extra.most_got[row] = got, np.fmax(got, extra.most_got[row])
    if 0.0 < elapsed_s < np.inf:
        shares = holding[lends[holding] | extra.guest[holding]]
        # of a guest whose kind was never seen by itself it is at least known that it wants what it has once got
        least = [
            _pace(got, most) for got, most in zip(extra.got[shares], extra.most_got[shares], strict=True)
        ]
        pace = np.where(np.isnan(jobs.pace[shares]), least, jobs.pace[shares])
        slower = np.nan_to_num(1.0 - pace, nan=0.0)
        # a guest that uses less than its kind may sleep: it has lost what it waited for a core, where that is known
        waits = extra.guest[shares] & ~np.isnan(delayed[shares])
        lost = np.where(waits, delayed[shares], slower)
        jobs.lost_s[shares] += lost * np.clip(now_s - jobs.start_s[shares], 0.0, elapsed_s)
        extra.squeezed[shares] |= slower > SQUEEZED
    return peaks


def _peaks(
    at: NDArray[np.intp], node: NDArray[np.int64], peak: Floats, core_owner: Ints, machine: Machine
) -> Floats:
    """(cores,) what was measured of the job on each core on that core's node; samples are of the jobs `at`."""
    found: Floats = np.full(machine.total_cores, NAN)
    there = node >= 0
    size = int(max(core_owner.max(initial=-1), at.max(initial=-1))) + 1
    keys = node[there] * size + at[there]
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], peak[there][order]
    held = np.flatnonzero(core_owner >= 0)
    if len(keys) and len(held):
        wanted = np.repeat(np.arange(len(machine.cores)), machine.cores)[held] * size + core_owner[held]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = keys[place] == wanted
        found[held[known]] = values[place[known]]
    return found


def memory_used(rows: Rows, reports: Mapping[str, NodeReport], holding: Ints) -> dict[int, float]:
    """By row of a job in `holding` the memory that it uses on that of its nodes where it uses most (bytes)."""
    row_of = {str(rows.record(row).raw): row for row in holding.tolist()}
    found: dict[int, float] = {}
    for report in reports.values():
        for name, sample in report.jobs.items():
            row = row_of.get(name)
            if row is not None and sample.memory_bytes >= 0:  # not NaN
                found[row] = max(found.get(row, 0.0), sample.memory_bytes)
    return found


def _samples(
    rows: Rows,
    reports: Mapping[str, NodeReport],
    holding: Ints,
    window_s: float,
    number: Mapping[str, int],
) -> tuple[NDArray[np.intp], Floats]:
    """Row of the job of every sample, and (11, samples) what it says."""
    row_of = {str(rows.record(row).raw): row for row in holding.tolist()}
    at: list[int] = []
    found: list[tuple[float, ...]] = []
    for report in reports.values():
        node = number.get(report.node, -1)
        for name, sample in report.jobs.items():
            row = row_of.get(name)
            if row is None:
                continue
            watched = report.time_s - sample.since_s >= window_s
            at.append(row)
            found.append(
                (
                    sample.cpu_fraction if watched else NAN,
                    sample.cores,
                    sample.pressure,
                    sample.throttled,
                    sample.progress,
                    sample.cpu_time_s,
                    report.time_s,
                    sample.steps_done,
                    sample.cpu_peak if watched else NAN,
                    node,
                    sample.delayed,
                )
            )
    return np.array(at, dtype=np.intp), np.array(found, dtype=np.float64).T


def _pace(got: float, wants: float) -> float:
    """Speed of a job that gets this of the CPU and wants that; NaN if either is not known."""
    return min(1.0, max(LEAST_PACE, got / wants)) if wants > 0 and got == got else NAN


def _lend(
    rows: Rows,
    hosts: Mapping[int, Mapping[int, float]],
    there: NDArray[np.intp],
    total: Floats,
    times: Floats,
) -> None:
    """CPU time that guests got beside their hosts since the last look, for the ledger."""
    extra, guests = rows.extra, np.array(list(hosts), np.int32)
    before = np.nan_to_num(extra.cpu_time_s[guests], nan=0.0)
    extra.cpu_time_s[there], extra.cpu_time_at_s[there] = total[there], times[there]
    more = np.maximum(0.0, np.nan_to_num(extra.cpu_time_s[guests], nan=0.0) - before)
    for (guest, beside), core_s in zip(hosts.items(), more.tolist(), strict=True):
        for host, part in beside.items():
            if host >= 0:
                extra.lent_core_s[guest] += part * core_s
                extra.lent_core_s[host] += part * core_s


def _by_steps(rows: Rows, there: NDArray[np.intp], done: Floats) -> Floats:
    """Ended steps over all that there will be, as the job's comment tells; NaN until the first one has ended.

    Nodes that saw other steps of the job may differ: the fewest count.
    """
    progress: Floats = np.full(len(there), NAN)
    for at, row in enumerate(there.tolist()):
        comment = rows.record(row).comment
        if "asad:steps=" in comment and (told := STEPS.search(comment)) and int(told[1]) and done[row] > 0:
            progress[at] = min(1.0, done[row] / int(told[1]))
    return progress


def _happiness(
    rows: Rows,
    applications: Applications,
    there: NDArray[np.intp],
    told: Floats,
    cpu_time_s: Floats,
    now_s: float,
) -> None:
    """Progress over the part of the time limit that has passed.

    Progress is what the job tells (by steps or by a line), else its CPU time against the mean of its application's
    earlier runs.
    """
    jobs = rows.jobs
    work = np.array([applications.work_core_s(code) for code in jobs.application[there].tolist()])
    with np.errstate(divide="ignore", invalid="ignore"):
        by_cpu = np.where(work > 0, np.minimum(1.0, cpu_time_s[there] / work), np.nan)
        progress = np.where(np.isnan(told[there]), by_cpu, told[there])
        passed = (now_s - jobs.start_s[there]) / (jobs.limit_end_s[there] - jobs.start_s[there])
        jobs.happiness[there] = np.where((passed > 0) & (passed < np.inf), progress / passed, np.nan)


def _largest(at: NDArray[np.intp], values: Floats, size: int) -> Floats:
    """By row the largest value that is known, NaN where none is."""
    largest: Floats = np.full(size, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(largest, at[known], values[known])
    largest[np.isneginf(largest)] = np.nan
    return largest

"""From what node actors report to the columns of a snapshot: CPU, pressure, pace, being in time, and what was lent.

A plugin says which sample is of which job; whatever follows from that is here. Jobs are rows; arrays by row have an
entry for each row there is, NaN where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.cluster.job_rows import Measured, MeasuredT, Rows
from asad.model import Floats, Ints, Jobs, Machine
from asad.port import JobSample, NodeReport

LEAST_PACE = 0.01
NAN = float("nan")


class Sample(NamedTuple):
    """What the actor of one node saw of one job."""

    row: int
    node: int
    """Number of the node, -1 where that is not known."""
    report: NodeReport
    seen: JobSample


class Seen(NamedTuple):
    """What was seen of jobs at one look."""

    at: NDArray[np.intp]
    """Row of each sample."""
    node: Ints
    peak: Floats
    """Of each sample: the node, and the 95th percentile of the CPU there; NaN until it was watched for long enough."""
    there: NDArray[np.intp]
    """Rows of the jobs that were seen."""
    cpu_time_s: Floats
    progress: Floats
    steps_done: Floats
    delayed: Floats
    """By row: CPU time on all nodes, the furthest progress, the fewest steps, the longest delay."""


def fill(
    rows: Rows[MeasuredT],
    holding: Sequence[int] | Ints,
    samples: Sequence[Sample],
    hosts: Mapping[int, Mapping[int, float]],
    window_s: float,
    *,
    by_allocation: bool = False,
) -> Seen:
    """Fill `cpu_fraction`, `pressure` and `pace` of the jobs in `holding`, and count what was lent.

    `hosts` has for every guest of them the batch jobs beside which it runs, and its part from each (-1: free cores).
    A job's CPU is known when each of its nodes has watched it for `window_s`: over the cores that it may use, or with
    `by_allocation` over those that it holds. Where it lends, it is as fast as its guests let it be.
    """
    jobs, size = rows.jobs, len(rows)
    for column in (jobs.cpu_fraction, jobs.pressure, jobs.pace, jobs.happiness):
        column[holding] = NAN
    lends = lending(hosts, size)
    rows.extra.was_host |= lends
    at = np.array([sample.row for sample in samples], np.intp)
    found = np.array([_facts(sample, window_s) for sample in samples], np.float64).reshape(-1, 11).T
    cpu, cores, pressure, throttled, progress, cpu_time_s, time_s, steps, peak, node, delayed = found
    there = np.unique(at)
    watched = ~np.isnan(cpu)
    count = np.bincount(at, weights=watched, minlength=size)
    used = np.bincount(at, weights=np.where(watched, cpu, 0.0) * cores, minlength=size)
    of = jobs.cores if by_allocation else np.bincount(at, weights=cores * watched, minlength=size)
    known = there[(count[there] >= np.maximum(1, jobs.nodes[there])) & (of[there] > 0)]
    jobs.cpu_fraction[known] = np.clip(used[known] / of[known], 0.0, 1.0)
    jobs.pressure[there] = largest(at, pressure, size)[there]
    jobs.pace[there] = 1.0
    slowed = there[lends[there]]
    held_back = np.fmax(jobs.pressure, largest(at, throttled, size))[slowed]
    jobs.pace[slowed] = np.clip(1.0 - np.nan_to_num(held_back, nan=0.0), LEAST_PACE, 1.0)
    total = np.bincount(at, weights=cpu_time_s, minlength=size).astype(np.float64)
    _lend(rows.extra, hosts, there, total, largest(at, time_s, size))
    fewest = -largest(at, -steps, size)
    furthest, longest = largest(at, progress, size), largest(at, delayed, size)
    return Seen(at, node.astype(np.int32), peak, there, total, furthest, fewest, longest)


def lending(hosts: Mapping[int, Mapping[int, float]], size: int) -> NDArray[np.bool_]:
    """By row: does a guest run beside it?"""
    lends = np.zeros(size, dtype=bool)
    lends[[host for beside in hosts.values() for host in beside if host >= 0]] = True
    return lends


def in_time(jobs: Jobs, there: NDArray[np.intp], progress: Floats, now_s: float) -> None:
    """Fill `happiness`: progress (one for each of `there`) over the part of the time limit that has passed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        passed = (now_s - jobs.start_s[there]) / (jobs.limit_end_s[there] - jobs.start_s[there])
        jobs.happiness[there] = np.where((passed > 0) & (passed < np.inf), progress / passed, NAN)


def peaks(seen: Seen, core_owner: Ints, machine: Machine) -> Floats:
    """(cores,) what was measured of the job on each core on that core's node, NaN where it is not known."""
    found: Floats = np.full(machine.total_cores, NAN)
    on = seen.node >= 0
    size = int(max(core_owner.max(initial=-1), seen.at.max(initial=-1))) + 1
    keys = seen.node[on].astype(np.int64) * size + seen.at[on]
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], seen.peak[on][order]
    held = np.flatnonzero(core_owner >= 0)
    if len(keys) and len(held):
        wanted = np.repeat(np.arange(len(machine.cores)), machine.cores)[held] * size + core_owner[held]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = keys[place] == wanted
        found[held[known]] = values[place[known]]
    return found


def memory_used(samples: Sequence[Sample]) -> dict[int, float]:
    """By row of a job the memory that it uses on that of its nodes where it uses most (bytes)."""
    found: dict[int, float] = {}
    for sample in samples:
        if sample.seen.memory_bytes >= 0:  # not NaN
            found[sample.row] = max(found.get(sample.row, 0.0), sample.seen.memory_bytes)
    return found


def largest(at: NDArray[np.intp], values: Floats, size: int) -> Floats:
    """By row the largest value that is known, NaN where none is."""
    most: Floats = np.full(size, -np.inf)
    known = ~np.isnan(values)
    np.maximum.at(most, at[known], values[known])
    most[np.isneginf(most)] = NAN
    return most


def _facts(sample: Sample, window_s: float) -> tuple[float, ...]:
    report, seen = sample.report, sample.seen
    watched = report.time_s - seen.since_s >= window_s
    return (
        seen.cpu_fraction if watched else NAN,
        seen.cores,
        seen.pressure,
        seen.throttled,
        seen.progress,
        seen.cpu_time_s,
        report.time_s,
        seen.steps_done,
        seen.cpu_peak if watched else NAN,
        sample.node,
        seen.delayed,
    )


def _lend(
    kept: Measured,
    hosts: Mapping[int, Mapping[int, float]],
    there: NDArray[np.intp],
    total: Floats,
    times: Floats,
) -> None:
    """CPU time that guests got beside their hosts since the last look, for the ledger."""
    guests = np.array(list(hosts), np.int32)
    before = np.nan_to_num(kept.cpu_time_s[guests], nan=0.0)
    kept.cpu_time_s[there], kept.cpu_time_at_s[there] = total[there], times[there]
    more = np.maximum(0.0, np.nan_to_num(kept.cpu_time_s[guests], nan=0.0) - before)
    for (guest, beside), core_s in zip(hosts.items(), more.tolist(), strict=True):
        for host, part in beside.items():
            if host >= 0:
                kept.lent_core_s[guest] += part * core_s
                kept.lent_core_s[host] += part * core_s

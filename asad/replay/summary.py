"""What one played policy comes to: its figures, who lost by it, and how jobs that it touched ended."""

from __future__ import annotations

import numpy as np

from asad.model import Floats
from asad.replay.limits.broken_starts import broken_starts
from asad.replay.limits.limit_table import LimitTable
from asad.replay.placebo import Moved, placebo
from asad.replay.playing import Played
from asad.replay.policies import admits, defers, states
from asad.replay.results import PolicyResult
from asad.replay.schedule_figures import figures, later, over_time, stretched
from asad.replay.workbench import Bench
from asad.store.records import JobEnd


def summarise(
    bench: Bench,
    name: str,
    played: Played,
    baseline: Played | None = None,
    moved: Moved | None = None,
) -> PolicyResult:
    """A policy's figures; against the cluster left alone if that is given, and whom chance alone moved there."""
    workload, machine = bench.workload, bench.machine
    job = played.cluster.jobs
    done = played.done_s
    start, end = job["start"].copy(), job["end"].copy()
    host, guest = job["was_host"].copy(), job["was_guest"].copy()
    baseline_end = None if baseline is None else baseline.cluster.jobs["end"]
    managed = None if played.managed is None else played.managed.rows
    metrics = figures(
        workload,
        machine.total_cores,
        start_s=start,
        end_s=end,
        done_s=done,
        demand=workload.demand,
        overran=bench.overran,
        cut=job["killed"].copy(),
        host=host,
        guest=guest,
        lent_core_s=float(job["lent"].sum()),
        baseline_end_s=baseline_end,
        displaced_placebo=None if moved is None else moved.late,
        displaced_unshared_placebo=None if moved is None else moved.unshared,
        managed=managed,
    )
    metrics["limits_broken"] = (
        None if bench.limits is None else _limits_broken(bench.limits, start, end, baseline)
    )
    binding = played.cluster.limits
    metrics["kept_by_limits"] = None if binding is None else int(np.count_nonzero(binding.kept))
    metrics["moved"] = None if bench.starts is None else played.moved
    metrics |= _figures_of_kinds(bench, name, played, float(metrics["makespan_s"] or 0.0))
    metrics["wall_s"] = played.wall_s
    busy = workload.cores * workload.demand * done / np.maximum(end - start, 1e-9)
    edges, allocated, used = over_time(workload, machine.total_cores, start, end, busy, ~guest)
    loser = np.zeros(len(workload), np.bool_)
    slowed = np.zeros(len(workload), np.bool_)
    if baseline_end is not None:
        loser = later(workload, end, baseline_end) & played.touched
        slowed = stretched(workload, start, end, done, baseline_end) & (host | guest)
    return PolicyResult(
        name=name,
        metrics=metrics,
        start_s=start,
        end_s=end,
        host=host,
        guest=guest,
        loser=loser,
        series_time_s=edges,
        allocated_fraction=allocated,
        used_fraction=used,
        experts=played.history,
        managed=managed,
        deferring=bench.settings.of(defers, name),
        stating=bench.settings.of(states, name),
        stretched=slowed,
        funnel=played.funnel,
    )


def _limits_broken(limits: LimitTable, start: Floats, end: Floats, baseline: Played | None) -> int:
    """How many starts break a limit that break none without the policy: who started early as a guest counts longer."""
    broken = broken_starts(limits, start, end)
    if baseline is None:
        return len(broken)
    own = baseline.cluster.jobs
    return len(np.setdiff1d(broken, broken_starts(limits, own["start"].copy(), own["end"].copy())))


def _figures_of_kinds(
    bench: Bench, name: str, played: Played, makespan_s: float
) -> dict[str, float | int | None]:
    """Of jobs that state what they are worth, that are deferrable, or that were stated: as far as anybody asked."""
    workload, job = bench.workload, played.cluster.jobs
    found: dict[str, float | int | None] = {}
    if bench.valued is not None:
        found |= bench.valued.figures(job["end"])
        found |= {"admitted": None, "declined": None}
        if played.managed is not None and bench.settings.of(admits, name):
            found |= played.managed.figures()
    if bench.deferrable is not None:
        capacity_core_s = bench.machine.total_cores * makespan_s
        found |= bench.deferrable.figures(
            workload.submit_s, job["start"], workload.cores, played.done_s, capacity_core_s
        )
    if bench.stated is not None:
        lost = job["killed"].copy()
        if played.foretold is not None:
            lost |= np.isin(workload.job_id.astype(str), sorted(played.foretold.evicted_jobs))
        found |= bench.stated.figures(job["end"], np.flatnonzero(lost).tolist(), played.foretold)
    return found


def with_placebo(bench: Bench, name: str, played: Played, baseline: Played) -> PolicyResult:
    """The same, with what a placebo on as many jobs as it touched would have done.

    Where jobs start as recorded, nothing but lending moves any: no placebo is needed."""
    if bench.starts is not None:
        return summarise(bench, name, played, baseline, Moved(0.0, 0.0))
    moved = placebo(bench, baseline, int(played.touched.sum()), bench.settings.seed)
    return summarise(bench, name, played, baseline, moved)


def job_ends(bench: Bench, result: PolicyResult, baseline: Played) -> list[JobEnd]:
    """How hosts and guests ended, and who was late although it shared nothing, for the store."""
    own = baseline.cluster.jobs
    # where a scheduler starts jobs, chance moves more of them than lending
    displaced = later(bench.workload, result.end_s, own["end"]) & ~result.touched & (bench.starts is not None)
    return [
        JobEnd(
            job=str(bench.workload.job_id[row]),
            role="guest" if result.guest[row] else "host" if result.host[row] else "displaced",
            submit_s=float(bench.workload.submit_s[row]),
            start_s=float(result.start_s[row]),
            end_s=float(result.end_s[row]),
            baseline_start_s=float(own["start"][row]),
            baseline_end_s=float(own["end"][row]),
            loser=bool(result.loser[row]),
        )
        for row in np.flatnonzero(result.host | result.guest | displaced).tolist()
    ]

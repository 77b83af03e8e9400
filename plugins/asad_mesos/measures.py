"""From the reports of the node actors to the columns of the snapshot: CPU, pressure, pace, progress, what was lent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asad.port import JobSample, NodeReport
from asad_mesos.launch import key
from asad_mesos.nodes import report_of
from asad_mesos.offers import Agents
from asad_mesos.rows import INF, NAN, Rows
from asad_mesos.view import Unit

LEAST_PACE = 0.01

Samples = list[tuple[NodeReport, JobSample]]


def measure(
    rows: Rows,
    units: Mapping[str, Unit],
    agents: Agents,
    reports: Mapping[str, NodeReport],
    running: Sequence[int],
    hosts: Mapping[int, Sequence[int]],
    now_s: float,
    elapsed_s: float,
    window_s: float,
) -> None:
    """Fill the measured columns of the units in `running` (guests too).

    `hosts` has for every guest of them the batch jobs beside which it runs, one for each part of it (-1: none).
    `elapsed_s` is the time since the last look, not finite for the first. A unit's CPU is known when each of its
    agents has watched it for `window_s`.
    """
    jobs = rows.jobs
    lending = {host for beside in hosts.values() for host in beside if host >= 0}
    for row in hosts:
        estimate_s = rows.kept(str(jobs.job_id[row])).foreseen_s
        jobs.own_estimate_s[row] = estimate_s
        jobs.own_start_s[row] = estimate_s if estimate_s <= now_s else NAN
    for row in running:
        unit = units[str(jobs.job_id[row])]
        samples = _samples(unit, agents, reports)
        if not samples:
            continue
        kept = rows.kept(unit.name)
        watched = [
            (sample.cpu_fraction, sample.cores)
            for report, sample in samples
            if report.time_s - sample.since_s >= window_s and sample.cpu_fraction == sample.cpu_fraction
        ]
        if len(watched) >= len(unit.cpus_of):
            # without cpusets a task may use its whole node: its part is of the cores that it holds
            used = sum(fraction * cores for fraction, cores in watched)
            jobs.cpu_fraction[row] = kept.cpu_fraction = min(1.0, used / max(1, int(jobs.cores[row])))
        pressures = [sample.pressure for _, sample in samples if sample.pressure == sample.pressure]
        throttled = [sample.throttled for _, sample in samples if sample.throttled == sample.throttled]
        jobs.pressure[row] = max(pressures, default=NAN)
        jobs.pace[row] = 1.0
        if row in lending:
            slowed = max([*pressures, *throttled], default=0.0)
            jobs.pace[row] = min(1.0, max(LEAST_PACE, 1.0 - slowed))
            if 0.0 < elapsed_s < INF:
                kept.lost_s += (1.0 - float(jobs.pace[row])) * elapsed_s
                jobs.lost_s[row] = kept.lost_s
        told = [sample.progress for _, sample in samples if sample.progress == sample.progress]
        passed = (now_s - jobs.start_s[row]) / (jobs.limit_end_s[row] - jobs.start_s[row])
        if told and 0 < passed < INF:
            jobs.happiness[row] = max(told) / passed
        total_s = sum(sample.cpu_time_s for _, sample in samples)
        beside = hosts.get(row, ())
        more = max(0.0, total_s - kept.cpu_time_s) / max(1, len(beside))
        for host in beside:
            if host >= 0:
                kept.lent_core_s += more
                rows.kept(str(jobs.job_id[host])).lent_core_s += more
        kept.cpu_time_s = total_s


def _samples(unit: Unit, agents: Agents, reports: Mapping[str, NodeReport]) -> Samples:
    """What the actors of its agents say of a unit."""
    known = key(unit.name, unit.job.spec.uid)
    found = []
    for agent in unit.cpus_of:
        report = report_of(agents, agents.number[agent], reports)
        if report is not None and known in report.jobs:
            found.append((report, report.jobs[known]))
    return found

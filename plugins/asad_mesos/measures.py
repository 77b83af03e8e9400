"""From the reports of the node actors to the columns of the snapshot (`asad.cluster.samples`), as Mesos' units are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asad.cluster.samples import Sample, fill, in_time, lending
from asad.port import NodeReport
from asad_mesos.launch import key
from asad_mesos.nodes import report_of
from asad_mesos.offers import Agents
from asad_mesos.rows import INF, NAN, Rows
from asad_mesos.view import Unit


def measure(
    rows: Rows,
    units: Mapping[str, Unit],
    agents: Agents,
    reports: Mapping[str, NodeReport],
    running: Sequence[int],
    hosts: Mapping[int, Mapping[int, float]],
    now_s: float,
    elapsed_s: float,
    window_s: float,
) -> None:
    """Fill the measured columns of the units in `running` (guests too); `hosts` and `window_s` as of `fill`.

    `elapsed_s` is the time since the last look, not finite for the first. Without cpusets a task may use its whole
    node: its part is of the cores that it holds.
    """
    jobs = rows.jobs
    for row in hosts:
        estimate_s = rows.kept(str(jobs.job_id[row])).foreseen_s
        jobs.own_estimate_s[row] = estimate_s
        jobs.counterfactual_start_s[row] = estimate_s if estimate_s <= now_s else NAN
    samples = [sample for row in running for sample in _samples(row, units[rows.name(row)], agents, reports)]
    seen = fill(rows, running, samples, hosts, window_s, by_allocation=True)
    for row in seen.there[~np.isnan(jobs.cpu_fraction[seen.there])].tolist():
        rows.kept(rows.name(row)).cpu_fraction = float(jobs.cpu_fraction[row])
    in_time(jobs, seen.there, seen.progress[seen.there], now_s)
    if 0.0 < elapsed_s < INF:
        lends = seen.there[lending(hosts, len(rows))[seen.there]]
        jobs.lost_s[lends] += (1.0 - jobs.pace[lends]) * elapsed_s


def _samples(row: int, unit: Unit, agents: Agents, reports: Mapping[str, NodeReport]) -> list[Sample]:
    """What the actors of its agents saw of a unit."""
    known = key(unit.name, unit.job.spec.uid)
    found = (report_of(agents, agents.number[agent], reports) for agent in unit.cpus_of)
    return [
        Sample(row, -1, report, report.jobs[known])
        for report in found
        if report is not None and known in report.jobs
    ]

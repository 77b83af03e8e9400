"""What a log shows of its cluster beside its jobs: why they waited, which nodes were gone, what its Slurm went by."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from asad.replay.fidelity import rank_correlation
from asad.replay.gone_nodes import gone_nodes
from asad.replay.limits.sacctmgr_output import read_limits
from asad.replay.recorded_starts import lacks, recorded_starts
from asad.replay.site_rules import SiteRules, as_sentences, by_fair_share, site_rules
from asad.replay.waits.wait_sweep import LIMIT
from asad.replay.waits.why_waited import split_waits

if TYPE_CHECKING:
    from asad.replay.workbench import Bench


def look_back(bench: Bench, notes: list[str]) -> None:
    """Give the bench what the log shows of why its jobs waited, and of nodes that could not be used."""
    recorded, memory = bench.recorded, bench.workload.memory_bytes_per_core
    if lacks(recorded):
        return
    starts = bench.starts or recorded_starts(recorded, bench.machine, bench.workload)
    bench.waits = split_waits(recorded.jobs, starts, memory, limits=bench.limits)
    if recorded.held is None:  # without node lists nobody knows which stood empty
        return
    limited = bench.waits.part_s[:, LIMIT] > 0
    bench.gone = gone = gone_nodes(recorded.jobs, memory, bench.machine, starts, limited)
    if len(gone):
        hours = float((gone.end_s - gone.begin_s).sum()) / 3600.0
        notes.append(
            f"{len(np.unique(gone.node))} nodes stood empty for {hours:.0f} hours in all beside jobs that waited and "
            "would have fitted: they are taken to have been down, or to have held jobs that the log does not have, and "
            "lend nothing then"
        )


def follow_site(bench: Bench, notes: list[str]) -> None:
    """Give the bench what its simulated Slurm goes by, as far as machine, limits and log say it."""
    jobs, workload, settings = bench.recorded.jobs, bench.workload, bench.settings
    if bench.waits is None:
        return
    starts = recorded_starts(bench.recorded, bench.machine, workload)
    given = read_limits(settings.limits, settings.cluster) if settings.limits else None
    bench.site = found = site_rules(
        jobs, bench.machine, workload, starts, bench.waits.ceilings, given, bench.gone
    )
    if found is None:
        return
    # who waits for no other job waits for his turn from when nothing else held him
    queued_s = np.where(workload.depends_on < 0, np.fmax(jobs.queued_s, jobs.submit_s), workload.submit_s)
    bench.workload = replace(workload, submit_s=queued_s)
    if not found.ordered:
        bench.site = found = _ordered(bench, by_fair_share(found, jobs, given))
    notes.append(f"the simulated Slurm goes by {', '.join(found.simulated)}")
    notes.extend(as_sentences(found.not_simulated))


def _ordered(bench: Bench, other: SiteRules) -> SiteRules:
    """Nobody says who comes first: the order in which jobs became eligible, or that of `other`, whichever comes nearer
    to the log's waits in their ranks."""
    assert bench.site is not None
    recorded_s = np.maximum(bench.recorded.jobs.start_s - bench.recorded.jobs.queued_s, 0.0)
    likeness = []
    for site in (bench.site, other):
        cluster = replace(bench, site=site).cluster("slurm", None)
        cluster.run()
        job = cluster.jobs
        likeness.append(rank_correlation(recorded_s, job["start"] - job["eligible"]) or 0.0)
    return other if likeness[1] > likeness[0] else bench.site

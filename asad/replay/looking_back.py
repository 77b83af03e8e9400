"""What a log shows of its cluster beside its jobs: why they waited, which nodes were gone, what its Slurm went by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from asad.model import Machine
from asad.replay.closed_nodes import Gone
from asad.replay.cpu_demand import assign
from asad.replay.fidelity import rank_correlation
from asad.replay.gone_nodes import known_gone
from asad.replay.limits.inferred_limits import InferredLimits, inferred_limits
from asad.replay.limits.limit_table import limit_table
from asad.replay.limits.sacctmgr_output import read_limits
from asad.replay.policies import lends
from asad.replay.readers import Recorded
from asad.replay.recorded_starts import lacks, recorded_starts
from asad.replay.replay_settings import Settings
from asad.replay.site_rules import SiteRules, as_sentences, by_fair_share, site_rules
from asad.replay.waits.why_waited import OCCASIONS, WhyWaited, split_waits
from asad.replay.workload import build_workload

if TYPE_CHECKING:
    from asad.replay.workbench import Bench


MOST = 10_000_000
"""Jobs times nodes up to which a simulated Slurm goes by more than cores: each event looks at many nodes."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a log shows beside its jobs; no seed changes it."""

    waits: WhyWaited | None = None
    """Why its jobs waited; None where it does not say when and where they ran."""
    gone: Gone | None = None
    """Which nodes could not be used for a while, from when that can be known on; None where it names no nodes."""
    inferred: InferredLimits | None = None
    """Limits that replays keep to; None where they keep to given ones, or to none."""

    def notes(self) -> Iterator[str]:
        """What is to be known of it."""
        if self.inferred is not None and len(self.inferred):
            yield (
                f"{len(self.inferred)} ceilings of users, accounts and QOS are inferred: no more was held at one time "
                f"for a day, with room for it on {OCCASIONS} occasions; each binds guests from then on, until more is "
                "held"
            )
        gone = None if self.waits is None else self.waits.gone
        if gone is not None and len(gone.node):
            hours = float((gone.end_s - gone.begin_s).sum()) / 3600.0
            yield (
                f"{len(np.unique(gone.node))} nodes stood empty for {hours:.0f} hours in all beside jobs that "
                "waited and would have fitted: they are taken to have been down, or to have held jobs that the log "
                "does not have, and lend nothing then"
            )


def look_back(recorded: Recorded, machine: Machine, settings: Settings) -> Shown:
    """What the log shows. Raises MachineError for a job that does not fit on the machine, LogError for files of limits
    that cannot be read."""
    if lacks(recorded):
        return Shown()
    jobs = recorded.jobs
    demand = assign(jobs, *jobs.fingerprints(), settings.demand, settings.seed)
    workload = build_workload(recorded, machine, settings, demand, [])
    starts, memory = recorded_starts(recorded, machine, workload), workload.memory_bytes_per_core
    given = limit_table(read_limits(settings.limits, settings.cluster), jobs) if settings.limits else None
    named = recorded.held is not None
    waits = split_waits(jobs, starts, memory, named, infer=settings.infer_limits, limits=given)
    inferred = inferred_limits(jobs, starts, memory) if _infers(settings) else None
    gone = known_gone(jobs, memory, starts.machine, starts) if named else None
    return Shown(waits, gone, inferred)


def _infers(settings: Settings) -> bool:
    """Does a replay keep to the limits that its log shows?"""
    asked = settings.baseline == "recorded" and settings.infer_limits and not settings.limits
    return asked and settings.lending and settings.any_of(lends)


def with_memory(settings: Settings, recorded: Recorded, machine: Machine) -> Settings:
    """The settings with memory on the simulated Slurm also where nobody said what nodes have, and the most that the log
    held of each is known: as its cores are."""
    known = np.isfinite(machine.memory_bytes).all() and machine.memory_counts and recorded.held is not None
    if settings.baseline != "simulated" or not known or lacks(recorded):
        return settings
    return replace(settings, use_memory=True)


def follow_site(bench: Bench, notes: list[str]) -> None:
    """Give the bench what its simulated Slurm goes by, as far as machine, limits and log say it."""
    jobs, workload, settings = bench.recorded.jobs, bench.workload, bench.settings
    if bench.shown.waits is None:
        return
    if len(jobs) * len(bench.machine.cores) > MOST:
        notes.append(
            f"partitions, limits and priorities ({len(jobs)} jobs on {len(bench.machine.cores)} nodes are too many): "
            "the simulated Slurm is EASY on one pool of nodes"
        )
        return
    starts = recorded_starts(bench.recorded, bench.machine, workload)
    given = read_limits(settings.limits, settings.cluster) if settings.limits else None
    ceilings = bench.shown.waits.ceilings
    bench.site = found = site_rules(
        jobs, bench.machine, workload, starts, ceilings, given, bench.shown.waits.gone
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

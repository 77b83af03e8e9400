"""The jobs of a log as they will be run on a machine, and which of them fit on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.capacity import cores_with_memory
from asad.cluster.eligibility import Lend, guests_ineligible, hosts_ineligible, lend_of
from asad.errors import MachineError
from asad.model import Floats, Ints, JobLog, Machine
from asad.replay.cpu_demand import Demand, believed
from asad.replay.readers import Recorded
from asad.replay.replay_settings import Settings
from asad.replay.workload_columns import Workload

YEAR_S = 365 * 86400.0
"""What the scheduler plans with for a job of unlimited time."""


def build_workload(
    recorded: Recorded, machine: Machine, settings: Settings, demand: Demand, notes: list[str]
) -> Workload:
    """The jobs of a log as they will be run on `machine`; assumptions are added to `notes`.

    Raises MachineError if a job could not run even on the empty machine.
    """
    jobs = recorded.jobs
    as_recorded = settings.baseline == "recorded"
    limit_s = _limits(jobs, machine, notes)
    absent = np.isnan(limit_s)
    if absent.any():
        how = "" if as_recorded else "the scheduler plans them with the run time they had, "
        notes.append(
            f"{int(absent.sum())} jobs have no time limit: {how}nothing kills them, and asad offers them nothing"
        )
    limit = np.where(absent, np.inf, limit_s)
    if endless := int(np.isinf(limit_s).sum()):
        notes.append(f"{endless} jobs have an unlimited time: asad offers them nothing")
    planned = np.where(np.isinf(limit), YEAR_S, limit)
    work = jobs.run_s.copy()
    if (
        not as_recorded
    ):  # there nobody knows beforehand how long a job runs, and who ran past its limit was allowed to
        planned = np.where(absent, jobs.run_s, planned)
        if settings.overrun == "kill":
            work = np.minimum(jobs.run_s, limit)
        else:
            planned = np.maximum(planned, jobs.run_s)
    fingerprint, _ = jobs.fingerprints()
    memory_per_core, uneven = _memory_per_core(jobs, machine, settings.use_memory)
    if settings.use_memory:
        _note_unknown_memory(jobs, machine, notes)
    if uneven:
        notes.append(
            f"{uneven} jobs over several nodes hold more of their memory than of their cores: each core is taken to "
            f"need as "
            "much as fits"
        )
    facts, lend = _facts(jobs, limit_s, machine), lend_of(settings.config.slurm)
    _note_ineligible(facts, lend, notes)
    workload = Workload(
        job_id=jobs.job_id,
        # who started before it was submitted, or became eligible, waited for nothing
        submit_s=np.fmin(jobs.queued_s, jobs.start_s) if as_recorded else jobs.submit_s,
        work_s=work,
        planned_s=planned,
        limit_s=limit_s,
        cores=jobs.cores,
        nodes=jobs.nodes,
        memory_bytes_per_core=memory_per_core,
        demand=demand.fraction,
        depends_on=np.full(len(jobs), -1, np.int32) if as_recorded else jobs.depends_on,
        think_s=jobs.think_s,
        application=fingerprint,
        user=jobs.user,
        name=jobs.application,
        names=jobs.applications,
        belief=_belief(demand, fingerprint, settings),
        host_bar=hosts_ineligible(facts, lend),
        guest_bar=guests_ineligible(facts),
    )
    _require_fit(workload, machine, recorded.path)
    return workload


def _limits(jobs: JobLog, machine: Machine, notes: list[str]) -> Floats:
    """(n,) time limits, of a job without one that of its partition on the machine; NaN where nothing is known."""
    of_partition = np.array([machine.time_limits_s.get(name, np.nan) for name in (*jobs.partitions, "")])
    limit_s = np.where(np.isnan(jobs.time_limit_s), of_partition[jobs.partition], jobs.time_limit_s)
    if filled := int(np.count_nonzero(np.isnan(jobs.time_limit_s) & ~np.isnan(limit_s))):
        notes.append(
            f"{filled} jobs have no time limit in the log: the longest of their partition (MaxTime, else DefaultTime) "
            "is taken"
        )
    return limit_s


def _facts(jobs: JobLog, limit_s: Floats, machine: Machine) -> dict[str, NDArray[Any]]:
    """What a log knows of what decides who may lend and who may be a guest (`asad.cluster.eligibility.JobFacts`).

    Of heterogeneous jobs it knows that they are on several nodes. It does not know who held all memory of his nodes, or
    had them for himself.
    """
    wide = np.maximum(jobs.nodes, np.where(jobs.cores > machine.cores.max(), 2, 1))
    gres = np.zeros(len(jobs), np.bool_) if jobs.gres is None else jobs.gres >= 0
    return {"nodes": wide, "gres": gres, "time_limit": np.isfinite(limit_s)}


def _note_ineligible(facts: Mapping[str, NDArray[Any]], lend: Lend, notes: list[str]) -> None:
    """How many jobs take no part, as live; of those without a time limit another note says so."""
    gres, wide = int(np.count_nonzero(facts["gres"])), int(np.count_nonzero(facts["nodes"] > 1))
    if gres:
        hosts = "" if lend.gres else "; they lend nothing, and nor do the nodes where they run"
        notes.append(f"{gres} jobs have gres: asad offers them nothing{hosts} ([slurm.lend] gres)")
    if wide and not lend.multi_node:
        notes.append(
            f"{wide} jobs on several nodes lend nothing, and nor do the nodes where they run "
            "([slurm.lend] multi_node)"
        )


def _belief(demand: Demand, fingerprint: Ints, settings: Settings) -> Floats | None:
    """What asad believes of each demand over what it is; None where it is right."""
    if settings.demand_error == 0:
        return None
    belief: Floats = (
        believed(demand.fraction, fingerprint, settings.demand_error, settings.seed) / demand.fraction
    )
    return belief


def fitting_rows(recorded: Recorded, machine: Machine, use_memory: bool) -> NDArray[np.intp]:
    """Rows of the jobs that would run on the empty machine."""
    jobs = recorded.jobs
    memory_per_core, _ = _memory_per_core(jobs, machine, use_memory)
    return np.flatnonzero(_fit_alone(jobs.cores, memory_per_core, machine))


def _fit_alone(cores: Ints, memory_per_core: Floats, machine: Machine) -> NDArray[np.bool_]:
    """Which jobs would run on the empty machine."""
    fits = cores <= machine.total_cores
    rows = np.flatnonzero(memory_per_core > 0)
    if len(rows):
        shapes, back = np.unique(memory_per_core[rows], return_inverse=True)
        most = _most_cores(machine)
        fits[rows] &= cores[rows] <= np.array([most(need) for need in shapes.tolist()])[back]
    return fits


def _most_cores(machine: Machine) -> Callable[[float], float]:
    """What says how many cores the empty machine has for a job that needs so many bytes for each."""
    kinds, nodes = np.unique(
        np.column_stack((machine.cores, machine.memory_bound_bytes)), axis=0, return_counts=True
    )

    def most(need_bytes: float) -> float:
        return float(nodes @ cores_with_memory(kinds[:, 0], kinds[:, 1], need_bytes))

    return most


def _memory_per_core(jobs: JobLog, machine: Machine, use_memory: bool) -> tuple[Floats, int]:
    """Bytes a core, 0 where memory does not count or is not recorded; and of how many jobs they are fewer than even
    parts.

    They are whole, rounded down: so all cores of a job never need more than it reserved, and what is summed of
    a node is exact. A job that holds all memory of a node fits on it, whatever its cores. One on several nodes may hold
    more of a node's memory than of its cores, since Slurm counts `--mem` by node: where it would not fit by even parts,
    and its nodes have what it holds, each core needs as much as fits.
    """
    if not use_memory:
        return np.zeros(len(jobs)), 0
    each = np.where(np.isfinite(jobs.memory_bytes), np.floor(jobs.memory_bytes / jobs.cores), 0.0)
    rows = np.flatnonzero(~_fit_alone(jobs.cores, each, machine) & (jobs.cores <= machine.total_cores))
    if not len(rows):
        return each, 0
    of_largest = np.concatenate(([0.0], np.cumsum(np.sort(machine.memory_bound_bytes)[::-1])))
    count = len(machine.cores)
    wide = np.where(jobs.nodes[rows] > 0, np.minimum(jobs.nodes[rows], count), count)
    rows = rows[(wide > 1) & (each[rows] * jobs.cores[rows] <= of_largest[wide])]
    most = _most_cores(machine)
    for cores in np.unique(jobs.cores[rows]).tolist():
        of_cores = rows[jobs.cores[rows] == cores]
        low, high = (
            0.0,
            float(each[of_cores].max()),
        )  # bisection: with so few they fit, with so many they do not
        while high - low > 1.0:
            middle = np.floor((low + high) / 2.0)
            low, high = (middle, high) if most(middle) >= cores else (low, middle)
        each[of_cores] = low
    return each, len(rows)


def _note_unknown_memory(jobs: JobLog, machine: Machine, notes: list[str]) -> None:
    """What is not known of memory fits anything, which is to be known."""
    lacking = int(np.count_nonzero(np.isnan(machine.memory_bytes)))
    without = int(np.count_nonzero(~np.isfinite(jobs.memory_bytes)))
    if without == len(jobs):
        notes.append("the log does not record what memory jobs reserved: none waits for memory")
    elif lacking == len(machine.cores):
        notes.append("the memory of the nodes is not known: no job waits for it")
    else:
        if lacking:
            notes.append(
                f"the memory of {lacking} of {len(machine.cores)} nodes is not known: any job fits there by its memory"
            )
        if without:
            notes.append(f"{without} jobs have no memory recorded: they are taken to need none")


def _require_fit(workload: Workload, machine: Machine, path: str) -> None:
    """Every job runs on the empty machine, or MachineError says which does not."""
    rows = np.flatnonzero(~_fit_alone(workload.cores, workload.memory_bytes_per_core, machine))
    if len(rows) == 0:
        return
    row = int(rows[0])
    what = f"{workload.cores[row]} cores"
    if workload.cores[row] <= machine.total_cores:
        what += f" with {workload.memory_bytes_per_core[row] / 2**20:.0f} MiB each"
    raise MachineError(
        f"{path}: job {workload.job_id[row]} wants {what}, and {len(rows) - 1} more jobs do not fit either on "
        f"{len(machine.cores)} nodes with {machine.total_cores} cores ({machine.origin}); describe the machine "
        "with --nodes, --cores and --memory or --machine FILE, or leave such jobs out with --skip-bad"
    )

"""Why the jobs of a log waited: given limits or inferred ones, room by resource, order, and what stays unexplained.

A limit is inferred where a group (a user, an account or a QOS, in one partition or in all, or a user in a QOS) never
held more at one time, although on `OCCASIONS` separate occasions a job of it waited for more, had room, and nobody in
its partition waited for room: a user who fills a partition is not limited, and neither is one whose jobs a reservation
for others holds up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.bounded import printable
from asad.model import Floats, Ints, JobLog, Json, Machine, name_of
from asad.replay.closed_nodes import Gone
from asad.replay.cpu_demand import DemandProfile, assign
from asad.replay.gone_nodes import gone_nodes
from asad.replay.gres_in_log import gres_of, most_held
from asad.replay.limits.limit_table import LimitTable
from asad.replay.readers import Recorded
from asad.replay.recorded_starts import RecordedStarts, recorded_starts
from asad.replay.replay_settings import Settings
from asad.replay.site import site_of
from asad.replay.waits.slurms_word import names_ceiling, names_limit
from asad.replay.waits.wait_sweep import INTERVAL_S, LIMIT, NAMES, PASSES, Ceilings, Found, Nodes, Rows, sweep
from asad.replay.workload import build_workload

OCCASIONS = 5
GROUPS = ("user", "account", "qos")
"""Columns of a log by which limits are inferred, each within a partition."""
RESOURCES = ("cores", "jobs", "gres")
"""What those are counted by; gres are those of the kind that a job holds most of."""


class Limit(NamedTuple):
    """A limit that jobs waited for."""

    text: str
    inferred: bool
    jobs: int
    """So many waited for it."""
    wait_s: float
    confirmed: int | None
    """Of so many of them Slurm says that a limit kept them waiting; None if the log has no reasons."""


@dataclass(frozen=True, slots=True)
class WhyWaited:
    """The waits of J jobs."""

    part_s: Floats
    """(J, len(NAMES)) by reason; a row sums to the job's wait."""
    not_eligible_s: Floats
    """(J,) from submission until it was eligible: begin time, dependency, hold. No part of the wait."""
    limits: tuple[Limit, ...]
    """Those that jobs waited for, most hours first."""
    notes: tuple[str, ...]
    ceilings: Ceilings
    """What groups of jobs may hold together, and which of it binds: given or inferred."""
    gone: Gone | None
    """Which nodes could not be used for a while; None where the log does not name nodes."""

    @property
    def wait_s(self) -> Floats:
        """(J,)"""
        total: Floats = self.part_s.sum(axis=1)
        return total

    def seconds(
        self, rows: NDArray[np.bool_] | None = None, weight: Floats | None = None
    ) -> dict[str, float]:
        """By reason, the wait of all jobs or of some, each times its `weight`."""
        part_s = self.part_s if weight is None else self.part_s * weight[:, None]
        total = (part_s if rows is None else part_s[rows]).sum(axis=0)
        return dict(zip(NAMES, total.tolist(), strict=True))

    def to_json(self, cores: Ints) -> dict[str, Json]:
        """Waits of all jobs by reason, in hours of jobs and core-hours; `cores` (J,)."""
        of_jobs, of_cores = self.seconds(), self.seconds(weight=cores.astype(float))
        total = sum(of_jobs.values())
        return {
            "wait_mean_s": float(self.wait_s.mean()),
            "wait_median_s": float(np.median(self.wait_s)),
            "not_eligible_h": float(self.not_eligible_s.sum()) / 3600.0,
            "reasons": [
                {
                    "reason": reason,
                    "wait_h": seconds / 3600.0,
                    "core_h": of_cores[reason] / 3600.0,
                    "share": seconds / total if total > 0 else 0.0,
                }
                for reason, seconds in of_jobs.items()
            ],
            "limits": [
                {
                    "limit": limit.text,
                    "inferred": limit.inferred,
                    "jobs": limit.jobs,
                    "wait_h": limit.wait_s / 3600.0,
                    "confirmed_by": limit.confirmed,
                }
                for limit in self.limits
            ],
        }


def why_jobs_waited(
    recorded: Recorded,
    machine: Machine,
    use_memory: bool,
    *,
    infer: bool = True,
    limits: LimitTable | None = None,
) -> WhyWaited:
    """Split the waits of a log with starts. Raises MachineError for a job that does not fit on the machine."""
    settings = Settings(baseline="recorded", use_memory=use_memory, vary_demand=False)
    jobs, notes = recorded.jobs, list[str]()
    codes, names = jobs.fingerprints()
    workload = build_workload(
        recorded, machine, settings, assign(jobs, codes, names, DemandProfile(), 0), notes
    )
    starts = recorded_starts(recorded, machine, workload)
    named = recorded.held is not None
    return split_waits(jobs, starts, workload.memory_bytes_per_core, named, infer=infer, limits=limits)


def split_waits(
    jobs: JobLog,
    starts: RecordedStarts,
    memory: Floats,
    named: bool,
    *,
    infer: bool = True,
    limits: LimitTable | None = None,
) -> WhyWaited:
    """The same for jobs of which it is known when and where they ran; `memory` (J,) in bytes a core, 0 where it does
    not count. Nodes that were gone have no room, if the log has `named` the nodes of its jobs. With `limits` none are
    inferred."""
    nodes, rows = tables_of(jobs, memory, starts)
    nothing = np.zeros(len(jobs), np.bool_)
    if limits is not None:
        ceilings = Ceilings(
            limits.need,
            limits.class_of,
            limits.class_groups,
            limits.class_ceiling,
            np.isfinite(limits.class_ceiling),
            least_s(starts.machine),
        )
        names = list[tuple[str, str, str]]()
        found = sweep(nodes, rows, ceilings, nothing)
    else:
        ceilings, names = inferable(jobs, rows, starts.machine)
        found = sweep(nodes, rows, ceilings, nothing)
        if infer and names:
            # what was held at one time is known by now; who was kept at that, the second time around
            most = found.held[ceilings.groups]
            most[ceilings.groups < 0] = np.inf
            ceilings = ceilings._replace(most=most)
            binds = (sweep(nodes, rows, ceilings, nothing).occasions >= OCCASIONS)[ceilings.groups]
            binds[ceilings.groups < 0] = False
            if binds.any():
                ceilings = ceilings._replace(binds=binds)
                found = sweep(nodes, rows, ceilings, nothing)
    gone = None
    if named:
        gone = gone_nodes(jobs, memory, starts.machine, starts, found.part_s[:, LIMIT] > 0)
        if len(gone.node):
            found = sweep(nodes, _beside_gone(rows, gone, nodes.cores), ceilings, nothing)
    if limits is not None:
        waited = _given_limits(jobs, found, limits)
    else:
        waited = _inferred_limits(jobs, found, ceilings, names)
    notes = (*starts.notes, *_unfound(jobs, found.limited_by))
    return WhyWaited(found.part_s, jobs.queued_s - jobs.submit_s, waited, notes, ceilings, gone)


def tables_of(jobs: JobLog, memory: Floats, starts: RecordedStarts) -> tuple[Nodes, Rows]:
    """What the sweep reads."""
    machine = starts.machine
    slots, earlier, count = starts.slots, starts.earlier, len(jobs)
    partition = (jobs.partition + 1).astype(np.int32)
    kind, amount, kinds = gres_of(jobs)
    more = np.full(len(earlier), -1, np.int32)
    all_rows = np.repeat(partition[:count], np.diff(slots.at)[:count])
    pairs = np.unique(all_rows.astype(np.int64) * len(machine.cores) + slots.node[: slots.at[count]])
    wanted = np.column_stack((partition, jobs.cores, jobs.nodes, memory, kind, amount))
    shape = np.unique(wanted, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)
    rows = Rows(
        queued=np.fmin(jobs.queued_s, jobs.start_s),
        start=slots.start,
        stop=slots.start + np.concatenate((jobs.run_s, earlier.work_s)),
        cores=np.concatenate((jobs.cores, earlier.cores)).astype(np.int64),
        memory=np.concatenate((memory, earlier.memory_bytes_per_core)),
        wide=np.concatenate((jobs.nodes, earlier.nodes)),
        partition=np.concatenate((partition, np.zeros(len(earlier), np.int32))),
        kind=np.concatenate((kind, more)),
        amount=np.concatenate((amount, np.zeros(len(earlier)))),
        at=slots.at,
        node=slots.node,
        part=slots.cores,
        shape=shape,
    )
    nodes = Nodes(
        machine.cores.astype(np.int64),
        machine.memory_bound_bytes,
        np.zeros((len(machine.cores), len(kinds))),
        np.searchsorted(pairs // len(machine.cores), np.arange(int(partition.max(initial=0)) + 2)),
        (pairs % len(machine.cores)).astype(np.int32),
    )
    held = rows.kind, rows.amount, rows.start, rows.stop, rows.at, rows.node
    nodes.gres[:] = most_held(*held, len(machine.cores), len(kinds))
    return nodes, rows


def _beside_gone(rows: Rows, gone: Gone, node_cores: NDArray[np.int64]) -> Rows:
    """As if all cores of nodes that were gone had been held meanwhile."""
    count, none = len(gone.node), np.zeros(len(gone.node))
    return rows._replace(
        start=np.concatenate((rows.start, gone.begin_s)),
        stop=np.concatenate((rows.stop, gone.end_s)),
        cores=np.concatenate((rows.cores, node_cores[gone.node])),
        memory=np.concatenate((rows.memory, none)),
        wide=np.concatenate((rows.wide, np.ones(count, np.int32))),
        partition=np.concatenate((rows.partition, np.zeros(count, np.int32))),
        kind=np.concatenate((rows.kind, np.full(count, -1, np.int32))),
        amount=np.concatenate((rows.amount, none)),
        at=np.concatenate((rows.at, rows.at[-1] + 1 + np.arange(count))),
        node=np.concatenate((rows.node, gone.node)),
        part=np.concatenate((rows.part, node_cores[gone.node].astype(np.int32))),
    )


def _groups(jobs: JobLog) -> tuple[Ints, list[tuple[str, str, str]]]:
    """(J, M) the groups that each job counts in, and their columns, names and partitions (`-`: all of the cluster)."""
    none = np.full(len(jobs), -1, np.int32)
    user, account = jobs.user, none if jobs.account is None else jobs.account
    qos = none if jobs.qos is None else jobs.qos
    scopes = [
        (column, code, texts, jobs.partition)
        for column, code, texts in (
            ("user", user, jobs.users),
            ("account", account, jobs.accounts),
            ("qos", qos, jobs.qos_names),
        )
    ]
    if len(np.unique(jobs.partition)) > 1:
        scopes += [(column, code, texts, none) for column, code, texts, _ in scopes]
    names: list[tuple[str, str, str]] = []
    columns = []

    def number(pairs: NDArray[np.int32], name: Callable[[int, int], tuple[str, str, str]]) -> None:
        """Number the pairs of codes; who lacks the first is in no group."""
        found, back = np.unique(pairs, axis=0, return_inverse=True)
        there = found[:, 0] >= 0
        numbers = np.where(there, np.cumsum(there) - 1 + len(names), -1).astype(np.int32)
        columns.append(numbers[back.reshape(-1)])
        names.extend(name(*pair) for pair in found[there].tolist())

    for column, code, texts, where in scopes:
        if (code >= 0).any():
            number(
                np.column_stack((code, where)),
                lambda of, at, column=column, texts=texts: (  # type: ignore[misc]
                    column,
                    name_of(texts, of),
                    name_of(jobs.partitions, at),
                ),
            )
    if len(np.unique(qos)) > 1:  # a limit of each user is mostly one of a QOS
        number(
            np.column_stack((user, qos)),
            lambda of, at: ("user", f"{name_of(jobs.users, of)} of QOS {name_of(jobs.qos_names, at)}", "-"),
        )
    return (np.column_stack(columns) if columns else none.reshape(-1, 1)), names


def inferable(jobs: JobLog, rows: Rows, machine: Machine) -> tuple[Ceilings, list[tuple[str, str, str]]]:
    """The groups that may have a limit, without any ceiling; and of each its column, name and partition."""
    group, names = _groups(jobs)
    groups, class_of = np.unique(group, axis=0, return_inverse=True)
    count = len(jobs)
    need = np.column_stack((rows.cores[:count].astype(float), np.ones(count), rows.amount[:count]))
    shape = (*groups.shape, len(RESOURCES))
    return Ceilings(
        need,
        class_of.reshape(-1).astype(np.int32),
        groups.astype(np.int32),
        np.full(shape, np.inf),
        np.zeros(shape, np.bool_),
        least_s(machine),
    ), names


def least_s(machine: Machine) -> float:
    """How long a group is at a ceiling at the least if that is no chance of the scheduler's passes."""
    site = site_of(machine)
    return PASSES * (INTERVAL_S if site is None or site.backfill is None else site.backfill.interval_s)


def _confirmed(jobs: JobLog, waited: NDArray[np.bool_]) -> int | None:
    """Of how many of those that waited for a limit Slurm says so; None if the log does not have what it said."""
    return None if jobs.reason is None else int((waited & names_ceiling(jobs)).sum())


def _unfound(jobs: JobLog, limited_by: NDArray[np.int64]) -> Iterator[str]:
    """Of whom Slurm says that a limit kept them waiting, and nothing was found that does."""
    which = names_limit(jobs) & (limited_by < 0)
    if jobs.reason is not None and which.any():
        most = printable(jobs.reasons[int(np.bincount(jobs.reason[which]).argmax())])
        yield (
            f"{int(which.sum())} jobs were kept waiting by a limit, by Slurm's last reason (most by {most}), and no "
            "limit was found that kept them: how long it did the log does not say"
        )


def _inferred_limits(
    jobs: JobLog, found: Found, ceilings: Ceilings, names: list[tuple[str, str, str]]
) -> tuple[Limit, ...]:
    """The inferred limits that jobs waited for."""
    by = found.limited_by
    place, resource = np.divmod(by, len(RESOURCES))
    group = ceilings.groups[ceilings.class_of, np.maximum(place, 0)]
    limits = []
    for one, of in np.unique(np.column_stack((group, resource))[by >= 0], axis=0).tolist():
        column, name, partition = names[one]
        where = "" if partition == "-" else f" in partition {partition}"
        waited = (by >= 0) & (group == one) & (resource == of)
        text = f"{column} {name}{where}: never more than {found.held[one, of]:g} {RESOURCES[of]} at one time"
        wait_s = float(found.part_s[waited, LIMIT].sum())
        limits.append(Limit(text, True, int(waited.sum()), wait_s, _confirmed(jobs, waited)))
    return tuple(sorted(limits, key=lambda limit: -limit.wait_s))


def _given_limits(jobs: JobLog, found: Found, table: LimitTable) -> tuple[Limit, ...]:
    """The given limits that jobs waited for."""
    by, resources = found.limited_by, len(table.resources)
    limits: dict[str, NDArray[np.bool_]] = {}
    for code, one in np.unique(np.column_stack((table.class_of, by))[by >= 0], axis=0).tolist():
        waited = (table.class_of == code) & (by == one)
        text = table.limit_text(code, *divmod(one, resources))
        limits[text] = limits.get(text, False) | waited
    found_limits = (
        Limit(text, False, int(who.sum()), float(found.part_s[who, LIMIT].sum()), _confirmed(jobs, who))
        for text, who in limits.items()
    )
    return tuple(sorted(found_limits, key=lambda limit: -limit.wait_s))

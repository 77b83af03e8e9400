"""From the framework as it is, and what node actors report, to the snapshot."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace

import numpy as np

from asad.cluster.samples import Sample, fill, in_time, lending
from asad.model import Applications, Ints, Jobs, Snapshot, Tres, no_tres
from asad.port import NodeLink, NodeReport
from asad_mesos.agent_nodes import Nodes, report_of
from asad_mesos.agent_offers import Agents
from asad_mesos.arrays import ArrayTable
from asad_mesos.framework import Framework
from asad_mesos.ineligible_units import mark_ineligible
from asad_mesos.master_calls import key
from asad_mesos.settings import Settings
from asad_mesos.unit_rows import INF, NAN, Rows
from asad_mesos.view import Cores, Unit, tried, units

Shown = Mapping[str, Mapping[str, tuple[int, ...]]]
"""By unit and agent the cores on which it is shown."""


class Assembly:
    """Makes one snapshot after another. Its columns are those of `rows`, true until the next one."""

    def __init__(self, settings: Settings, link: NodeLink, rows: Rows, nodes: Nodes) -> None:
        self._settings, self._link, self._rows, self._nodes = settings, link, rows, nodes
        self.applications = Applications()
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.units: dict[str, Unit] = {}
        """Those of the last snapshot, by name."""
        self.user_codes: dict[str, int] = {}
        """The codes in `Jobs.user`, by name."""
        self._cores, self._guest_cores = Cores(), Cores()
        self._arrays = ArrayTable()
        self._version = 0
        self._seen: tuple[bytes, ...] = ()
        self._looked_s = -INF

    def snapshot(self, framework: Framework, now_s: float, deferred: AbstractSet[str]) -> Snapshot:
        """The framework as it is now, but never before the last snapshot; `deferred` are jobs that we hold."""
        now_s = max(now_s, self._looked_s)
        rows, nodes, arrays = self._rows, self._nodes, self._arrays
        rows.turn()
        self.applications.look(rows.jobs.application, now_s)
        found = list(units(framework))
        self.units = {unit.name: unit for unit in found}
        ending = {one.unit for one in framework.endings}
        for name in [name for name in rows.of if name not in self.units and name not in ending]:
            rows.drop(rows.of[name])  # it never ran, or waits behind others of its array
        nodes.see(framework.agents, {agent for unit in found for agent in unit.cpus_of})
        machine = nodes.machine
        shown = self._show(found)
        arrays.turn()
        rows.jobs.array[:] = -1
        queue: list[int] = []
        waiting = 0
        hints: dict[int, str] = {}
        gpus: dict[int, float] = {}
        own_begins: dict[int, float] = {}
        for unit in found:
            row = rows.take(unit.name)
            if unit.tasks:
                rows.begin(unit.name, unit.run)
            self._describe(row, unit, now_s)
            rows.jobs.array[row] = arrays.see(unit, row) if unit.group >= 0 else -1
            if unit.gpus:
                gpus[row] = float(unit.gpus)
            if unit.job.spec.hint and unit.group <= 0:  # parameter servers follow their workers
                hints[row] = unit.job.spec.hint
            if unit.tasks:
                continue
            if unit.job.job_id in deferred and rows.jobs.begin_s[row] > now_s:
                own_begins[row] = NAN  # users give none here
            waiting += 1 if unit.group < 0 else len(unit.job.groups[unit.group].todo)
            if tried(unit, now_s) and len(queue) < self._settings.depth:
                queue.append(row)
        batch = [unit for unit in found if unit.tasks and not unit.guest]
        guests = [unit for unit in found if unit.tasks and unit.guest]
        core_owner, batch_rows = self._occupy(batch, shown)
        core_guest, guest_rows = self._occupy(guests, shown)
        running, guests_on, queued = (np.array(part, np.int32) for part in (batch_rows, guest_rows, queue))
        reports = self._link.reports()
        node_bar = nodes.ineligible(framework.agents, reports)
        hosts = self._show_hosts(running, guests_on, core_owner, core_guest)
        self._measure(framework.agents, reports, [*batch_rows, *guest_rows], hosts, now_s)
        estimate(rows.jobs, running, queued, machine.total_cores, now_s)
        multi_node = self._settings.lend_multi_node
        mark_ineligible(rows.jobs, self.units, running, queued, machine, core_owner, node_bar, multi_node)
        self._looked_s = now_s
        return self._versioned(
            Snapshot(
                time_s=now_s,
                version=self._version,
                machine=machine,
                jobs=rows.jobs,
                queue=queued,
                running=running,
                guests=guests_on,
                core_owner=core_owner,
                core_guest=core_guest,
                waiting=waiting,
                node_bar=node_bar,
                arrays=arrays.table(),
                hints=hints,
                own_begins=own_begins,
                gpus=gpus,
                node_gpus=nodes.gpus(framework.agents),
                tres=_tres(len(machine.cores), gpus, nodes.gpus(framework.agents)),
                names={rows.of[unit.name]: unit.job.spec.name for unit in found},
            )
        )

    def _versioned(self, snapshot: Snapshot) -> Snapshot:
        """With a version that has risen if anything that can be seen has changed."""
        seen = (
            *(
                np.asarray(getattr(table, column.name)).tobytes()
                for table in (snapshot.jobs, snapshot.arrays)
                for column in fields(table)
                if column.name != "job_id"
            ),
            *(
                getattr(snapshot, name).tobytes()
                for name in ("queue", "running", "guests", "core_owner", "core_guest", "node_bar")
            ),
            snapshot.machine.cores.tobytes(),
            repr((snapshot.hints, snapshot.gpus, snapshot.node_gpus)).encode(),
        )
        if seen != self._seen:
            self._version, self._seen = self._version + 1, seen
        return replace(snapshot, version=self._version)

    def _describe(self, row: int, unit: Unit, now_s: float) -> None:
        """What follows from a unit alone; what is measured, or depends on others, is blank again."""
        jobs, spec, runs = self._rows.jobs, unit.job.spec, bool(unit.tasks)
        cores, held_s = unit.wanted_cores, unit.job.hold_until_s
        user = self.user_codes.setdefault(spec.user, len(self.user_codes))
        values = {
            "application": self.applications.code(spec.user, spec.name, cores),
            "user": user,
            "cores": cores,
            "nodes": len(unit.cpus_of),
            "time_limit_s": spec.time_limit_s,
            "memory_bytes_per_core": unit.memory_bytes / cores,
            "submit_s": unit.job.submit_s,
            "start_s": min(unit.start_s, now_s) if runs else NAN,
            "limit_end_s": max(unit.limit_end_s, now_s) if runs else NAN,
            "begin_s": held_s if not runs and held_s > now_s else NAN,
            "extended_s": unit.extended_s if runs else 0.0,
            "lost_s": jobs.lost_s[row] if runs else 0.0,
            "share_group": 1 + user if self._settings.share_users == "same" else 0,
            "demand": unit.demand if runs and unit.guest else NAN,
            "host": -1,
            **dict.fromkeys(("host_bar", "guest_bar"), 0),
            **dict.fromkeys(("share", "cpu_fraction", "pace", "pressure", "happiness"), NAN),
            **dict.fromkeys(("estimated_start_s", "own_estimate_s", "counterfactual_start_s"), NAN),
        }
        for name, value in values.items():
            getattr(jobs, name)[row] = value

    # ------------------------------------------------------------------------------------------------ who is on what

    def _show(self, found: Sequence[Unit]) -> Shown:
        """On which cores each unit that runs is shown."""
        cores = self._nodes.cores()
        on = [unit for unit in found if unit.tasks]
        batch = self._cores.show([unit for unit in on if not unit.guest], cores)
        return batch | self._guest_cores.show([unit for unit in on if unit.guest], cores)

    def _occupy(self, on: Sequence[Unit], shown: Shown) -> tuple[Ints, list[int]]:
        """(cores,) the row of the unit on each core, -1 for none, and the rows of those that are on any."""
        jobs, machine = self._rows.jobs, self._nodes.machine
        cores = np.full(machine.total_cores, -1, np.int32)
        rows = []
        for unit in on:
            places = shown.get(unit.name, {})
            count = sum(len(numbers) for numbers in places.values())
            if not count:
                continue
            row = self._rows.of[unit.name]
            rows.append(row)
            jobs.cores[row] = count
            jobs.memory_bytes_per_core[row] = unit.memory_bytes / count
            for agent, numbers in places.items():
                cores[machine.first_core[self._nodes.number[agent]] + np.array(numbers)] = row
        return cores, rows

    def _show_hosts(
        self, running: Ints, guests: Ints, core_owner: Ints, core_guest: Ints
    ) -> dict[int, dict[int, float]]:
        """Beside whom the guest of each pair runs now, and the share that was decided for that pair; what hosts lend.

        Returns for every guest the batch jobs beside which it runs, and its part from each (-1: free cores).
        """
        jobs = self._rows.jobs
        hosts: dict[int, dict[int, float]] = {}
        for row in running.tolist():
            jobs.share[row] = self._rows.kept(str(jobs.job_id[row])).lent
        for row in guests.tolist():
            kept = self._rows.kept(str(jobs.job_id[row]))
            beside = core_owner[core_guest == row]
            if not math.isnan(jobs.demand[row]):
                found, counts = np.unique(beside, return_counts=True)
                hosts[row] = dict(zip(found.tolist(), (counts / len(beside)).tolist(), strict=True))
                continue
            beside = beside[beside >= 0]
            wanted = self._rows.of.get(kept.host, -1)
            host = wanted if wanted in beside else (int(np.bincount(beside).argmax()) if len(beside) else -1)
            name = str(jobs.job_id[host]) if host >= 0 else ""
            if kept.share_host != name:  # it was decided for another host
                kept.share, kept.capped, kept.share_host = NAN, False, ""
            jobs.host[row] = host
            jobs.share[row] = kept.share
            hosts[row] = {host: 1.0}
        return hosts

    def _measure(
        self,
        agents: Agents,
        reports: Mapping[str, NodeReport],
        running: Sequence[int],
        hosts: Mapping[int, Mapping[int, float]],
        now_s: float,
    ) -> None:
        """Fill the measured columns of the units in `running` (guests too); `hosts` as of `fill`.

        Without cpusets a task may use its whole node: its part is of the cores that it holds.
        """
        rows, jobs = self._rows, self._rows.jobs
        for row in hosts:
            estimate_s = rows.kept(rows.name(row)).foreseen_s
            jobs.own_estimate_s[row] = estimate_s
            jobs.counterfactual_start_s[row] = estimate_s if estimate_s <= now_s else NAN
        samples = []
        for row in running:
            unit = self.units[rows.name(row)]
            known = key(unit.name, unit.job.spec.uid)
            found = (report_of(agents, agents.number[agent], reports) for agent in unit.cpus_of)
            samples += [Sample(row, -1, at, at.jobs[known]) for at in found if at and known in at.jobs]
        seen = fill(rows, running, samples, hosts, self._settings.window_s, by_allocation=True)
        for row in seen.there[~np.isnan(jobs.cpu_fraction[seen.there])].tolist():
            rows.kept(rows.name(row)).cpu_fraction = float(jobs.cpu_fraction[row])
        in_time(jobs, seen.there, seen.progress[seen.there], now_s)
        elapsed_s = now_s - self._looked_s  # not finite at the first look
        if 0.0 < elapsed_s < INF:
            lends = seen.there[lending(hosts, len(rows))[seen.there]]
            jobs.lost_s[lends] += (1.0 - jobs.pace[lends]) * elapsed_s


def _tres(nodes: int, gpus: Mapping[int, float], node_gpus: Mapping[int, float]) -> Tres:
    """GPUs as trackable resources, as Slurm calls them."""
    if not node_gpus:
        return no_tres(nodes)
    has = np.zeros((nodes, 1))
    has[list(node_gpus), 0] = list(node_gpus.values())
    return Tres(("gres/gpu",), has, np.zeros(1), {row: np.array([n]) for row, n in gpus.items()}, {})


def estimate(jobs: Jobs, running: Ints, queue: Ints, total: int, now_s: float) -> None:
    """When each job that waits would start if all others ran to their limits, in order; NaN if nobody knows.

    `total` is the cores of all nodes. Fills `estimated_start_s` and `own_estimate_s` of the rows in `queue`.
    """
    free = total - int(jobs.cores[running].sum())
    ends = [(float(jobs.limit_end_s[row]), int(jobs.cores[row])) for row in running.tolist()]
    heapq.heapify(ends)
    at_s = now_s
    for row in queue.tolist():
        while free < jobs.cores[row] and ends and math.isfinite(ends[0][0]):
            end_s, cores = heapq.heappop(ends)
            at_s, free = max(at_s, end_s), free + cores
        if free < jobs.cores[row]:
            break
        free -= int(jobs.cores[row])
        jobs.estimated_start_s[row] = jobs.own_estimate_s[row] = at_s
        if math.isfinite(jobs.time_limit_s[row]):
            heapq.heappush(ends, (at_s + float(jobs.time_limit_s[row]), int(jobs.cores[row])))

"""The port `Cluster` over Mesos: jobs of our framework on the agents that it has seen."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from asad.errors import ClusterError, UsageError
from asad.model import (
    BARS,
    NODE_BARS,
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Finished,
    Ints,
    Jobs,
    Json,
    Lease,
    Machine,
    NodeLink,
    NodeReport,
    Outcome,
    SetShare,
    SetThrottle,
    Snapshot,
    Start,
    Withdraw,
)
from asad_mesos.arrays import ArrayTable
from asad_mesos.events import Beside, Cancelled, Event, Extended, Held, Prioritised, Scaled, TornDown
from asad_mesos.framework import Framework
from asad_mesos.jobs import MEBIBYTE, Spec
from asad_mesos.launch import key
from asad_mesos.offers import CPUS, GPUS, MEM
from asad_mesos.requests import answer
from asad_mesos.rows import Rows
from asad_mesos.scaling import scaled
from asad_mesos.session import Session
from asad_mesos.settings import Settings
from asad_mesos.status import status_of
from asad_mesos.view import Cores, Unit, tried, units

NAN, INF = math.nan, math.inf
FIRST_WAIT_S = 15.0
SILENCE_S = 30.0
"""Without a master for longer than this nothing is shown, and so no quota is renewed."""
LEAST_PACE = 0.01
MULTI_NODE = BARS.index("it runs on several nodes, and a host slowed on one is slowed on all")
NO_LIMIT = BARS.index("it has no time limit")
HELD = BARS.index("it is held, or waits for something other than its turn")
OTHER_USERS = BARS.index("its user's jobs may share with that user's alone")
TAKES_NONE = BARS.index("its node takes no guests")
SHARED_NODE = BARS.index("it shares its node with other batch jobs")
LOST_NODE = NODE_BARS.index("it is drained, down or not answering")
NO_ACTOR = NODE_BARS.index("its node actor does not answer")


class Engine(Protocol):
    """What drives the framework: a `Session`, or a test."""

    lock: threading.RLock
    framework: Framework
    trouble: str

    @property
    def subscribed(self) -> bool: ...

    def now_s(self) -> float: ...

    def start(self) -> None: ...

    def wait(self, timeout_s: float) -> bool: ...

    def submit(self, *specs: Spec) -> list[str]: ...

    def do(self, event: Event) -> None: ...

    def close(self) -> None: ...


class MesosCluster:
    """Gangs and elastic jobs as jobs, agents as nodes. Arrays of a snapshot are views, true until the next one."""

    def __init__(
        self,
        settings: Settings,
        *,
        nodes: NodeLink,
        state_dir: Path,
        clock: Callable[[], float],
        engine: Engine | None = None,
    ) -> None:
        """Raises ConfigError if pymesos is not installed, ClusterError if the journal cannot be used."""
        self._settings, self._link = settings, nodes
        self.engine: Engine = engine or Session(settings, state_dir, clock)
        self.applications: list[str] = []
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.ledger: list[dict[str, Any]] = []
        """Of every guest and host that has ended: what was lent, and by how much its limit was extended."""
        self.said: list[str] = []
        """Sentences about what happened outside of `apply`."""
        self._rows = Rows()
        self._codes: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._cores, self._guest_cores = Cores(), Cores()
        self._units: dict[str, Unit] = {}
        self._shares: dict[str, tuple[float, bool, str]] = {}
        """By guest: the share decided for it, whether its host is capped too, and beside which host that is."""
        self._hosts: dict[str, str] = {}
        """By guest: the unit beside which it was started."""
        self._foreseen_s: dict[str, float] = {}
        """By guest: when it would have started by itself, as far as could be told."""
        self._deferred: set[str] = set()
        """Jobs that admission has deferred."""
        self._lent: dict[str, float] = {}
        self._cpu_s: dict[str, float] = {}
        self._lost: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._arrays = ArrayTable()
        self._agents: list[str] = []
        self._version = 0
        self._seen: tuple[bytes, ...] = ()
        self._snapshot: Snapshot | None = None
        self._looked_s = -INF
        self._reached_s = -INF

    # ------------------------------------------------------------------------------------------------------ lifecycle

    def sentence(self) -> str:
        """One line about the way to Mesos and what it shows."""
        engine = self.engine
        with engine.lock:
            framework = engine.framework
            running = sum(1 for job in framework.jobs.values() if job.tasks)
            text = (
                f"Mesos framework {framework.framework_id or '(not registered yet)'}: {len(self._agents)} agents, "
                f"{running} jobs run and {len(framework.jobs) - running} wait"
            )
            if framework.agents.offers:
                text += f", {len(framework.agents.offers)} offers withheld"
        return text if engine.subscribed else f"{text}; not connected ({engine.trouble or 'no answer yet'})"

    def recover(self) -> list[str]:
        """At start: subscribe with the framework id of before; nothing is undone, all that runs is found again."""
        self.engine.start()
        with self.engine.lock:
            known = self.engine.framework
            if not known.framework_id or not known.jobs:
                return []
            return [
                f"framework {known.framework_id}: {len(known.jobs)} jobs, {len(known.tasks)} tasks are ours"
            ]

    def release(self) -> list[str]:
        """Lift every quota and give back what admission has changed; one sentence each. Jobs go on."""
        self._shares.clear()
        self._link.grant({})
        return self.give_back()

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Jobs that wait have their own place again, and with `begin` may start; one sentence for each."""
        said = []
        with self.engine.lock:
            for job in list(self.engine.framework.jobs.values()):
                names = []
                if job.priority:
                    names.append("place")
                    self.engine.do(Prioritised(job.job_id, 0.0))
                if begin and job.hold_until_s > self.engine.now_s() and job.job_id in self._deferred:
                    names.append("begin")
                    self.engine.do(Held(job.job_id, -INF))
                if names:
                    said.append(f"{job.job_id}: it has its own {' and '.join(names)} again")
            if begin:
                self._deferred.clear()
        return said

    def close(self) -> None:
        """Let go of the master. Tasks go on; Mesos keeps them for `failover_timeout_s`."""
        self.engine.close()

    # --------------------------------------------------------------------------------------------------------- jobs

    def submit(self, spec: Spec) -> str:
        """Queue a job, durably; its id (`m17`). Raises ClusterError if it cannot be kept."""
        (job,) = self.engine.submit(spec)
        return job

    def cancel(self, job: str, why: str) -> bool:
        """End a job: its tasks are killed with grace. False if it has ended already. Raises UsageError if unknown."""
        with self.engine.lock:
            self.engine.framework.job(job)
            if job not in self.engine.framework.jobs:
                return False
            self.engine.do(Cancelled(job, why))
            return True

    def scale(self, job: str, tasks: Mapping[str, int]) -> bool:
        """So many tasks of each named group run from now on, more as offers come, fewer by killing the latest with
        grace (they run again later). Only of elastic jobs; False if it has ended. Raises UsageError."""
        with self.engine.lock:
            self.engine.framework.job(job)
            if job not in self.engine.framework.jobs:
                return False
            self.engine.do(Scaled(job, dict(tasks)))
            return True

    def hold(self, job: str, until_s: float) -> None:
        """A queued job is not placed before then (−inf: it may be placed now). Raises UsageError if unknown."""
        with self.engine.lock:
            self.engine.framework.job(job)
            if job in self.engine.framework.jobs:
                self.engine.do(Held(job, until_s))

    def status(self, job: str = "") -> list[dict[str, Any]]:
        """Of one job, or of the last that have ended and all that have not: `job`, `state` (queued, launching, running,
        stopping, completed, failed, cancelled, timeout), `why`, `attempt`, `retries`, `spec`, times, of each task that
        is there id, group, index, state and host, and of the last that have ended the same with `exit`.
        Raises UsageError if the job is unknown."""
        with self.engine.lock:
            known = self.engine.framework
            found = [known.job(job)] if job else [*known.ended.values(), *known.jobs.values()]
            return [status_of(one, known) for one in found]

    def teardown(self, why: str) -> tuple[int, int]:
        """End the framework with all its jobs and tasks, for good; how many there were.

        It is done when a master has said so, which may be later; until then no job is taken. Whoever subscribes then is
        a new framework.
        """
        with self.engine.lock:
            known = self.engine.framework
            found = len(known.jobs), len(known.tasks)
            self.engine.do(TornDown(why))
        return found

    def request(self, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
        """The answer to `submit`, `cancel`, `tasks` or `teardown`, asked by that user. Raises AsadError."""
        return answer(self, verb, arguments, user, uid)

    # --------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The framework as it is now; renews the leases that were decided.

        Raises ClusterError when no master has taken us for a while: then nothing is renewed, and quotas run out.
        """
        engine = self.engine
        if not engine.subscribed and self._snapshot is None:
            engine.wait(FIRST_WAIT_S)
        with engine.lock:
            now_s = engine.now_s()
            if engine.subscribed:
                self._reached_s = now_s
            elif now_s - self._reached_s > SILENCE_S:
                raise ClusterError(
                    f"no Mesos master: {engine.trouble or 'none has answered'}; is [mesos] master right? "
                    "asactl doctor looks closer"
                )
            if now_s < self._looked_s:
                now_s = self._looked_s
            snapshot = self._assemble(engine.framework, now_s)
            told, engine.framework.said = engine.framework.said, []
        self.said += told
        del self.said[:-1000]
        self._link.grant(self._leases(snapshot))
        self._snapshot, self._looked_s = snapshot, now_s
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided on the last snapshot. A decision that came too late is answered, never raised."""
        outcomes = []
        for decision in decisions:
            with self.engine.lock:
                try:
                    why = self._apply(decision)
                except (UsageError, ClusterError) as error:
                    why = str(error)
            outcomes.append(Outcome(decision, not why, why))
        if self._snapshot is not None and any(outcome.done for outcome in outcomes):
            self._link.grant(self._leases(self._snapshot))
        return outcomes

    def finished(self, since_s: float) -> Finished:
        """The units that have ended and were not told yet, whatever `since_s`. Only those that ran are told."""
        with self.engine.lock:
            ended, self.engine.framework.endings = self.engine.framework.endings, []
        jobs = self._rows.jobs
        known = [ending for ending in ended if ending.unit in self._rows.of]
        rows = np.array([self._rows.of[ending.unit] for ending in known], dtype=np.int32)
        for ending, row in zip(known, rows.tolist(), strict=True):
            self._enter(ending.unit, row, ending.end_s)
        told = Finished(
            row=rows,
            end_s=np.array([ending.end_s for ending in known]),
            run_s=np.array([max(1e-3, ending.end_s - ending.start_s) for ending in known]),
            lost_s=jobs.lost_s[rows].copy(),
            cpu_fraction=np.array([self._cpu.get(ending.unit, NAN) for ending in known]),
            completed=np.array([ending.completed for ending in known], dtype=np.bool_),
        )
        for ending in known:
            self._rows.drop(ending.unit)
            memories: tuple[dict[str, Any], ...] = (self._shares, self._hosts, self._foreseen_s, self._lent)
            for memory in (*memories, self._cpu_s, self._lost, self._cpu):
                memory.pop(ending.unit, None)
        return told

    # ---------------------------------------------------------------------------------------------- what is seen

    def _assemble(self, framework: Framework, now_s: float) -> Snapshot:
        rows = self._rows
        rows.turn()
        found = list(units(framework))
        self._units = {unit.name: unit for unit in found}
        ending = {one.unit for one in framework.endings}
        for name in [name for name in rows.of if name not in self._units and name not in ending]:
            rows.drop(name)  # it never ran, or waits behind others of its array
        machine, cores_of = self._machine(framework, found)
        reports = self._link.reports()
        number = {agent: node for node, agent in enumerate(self._agents)}
        on = [unit for unit in found if unit.tasks]
        batch = self._cores.show([unit for unit in on if not unit.guest], cores_of)
        guests = self._guest_cores.show([unit for unit in on if unit.guest], cores_of)
        shown = {unit.name: (batch | guests).get(unit.name, {}) for unit in on}
        core_owner = np.full(machine.total_cores, -1, np.int32)
        core_guest = np.full(machine.total_cores, -1, np.int32)
        arrays = self._arrays
        arrays.turn()
        rows.jobs.array[:] = -1
        running_rows: list[int] = []
        guest_rows: list[int] = []
        queue_rows: list[int] = []
        waiting = 0
        hints: dict[int, str] = {}
        gpus: dict[int, float] = {}
        own_begins: dict[int, float] = {}
        first = machine.first_core
        for unit in found:
            row = rows.take(unit.name)
            self._describe(row, unit, now_s)
            rows.jobs.array[row] = arrays.see(unit, row) if unit.group >= 0 else -1
            if unit.gpus:
                gpus[row] = float(unit.gpus)
            if unit.job.spec.hint and unit.group <= 0:  # parameter servers follow their workers
                hints[row] = unit.job.spec.hint
            if not unit.tasks:
                if unit.job.job_id in self._deferred and rows.jobs.begin_s[row] > now_s:
                    own_begins[row] = NAN  # users give none here
                waiting += 1 if unit.group < 0 else len(unit.job.groups[unit.group].todo)
                if tried(unit, now_s) and len(queue_rows) < self._settings.depth:
                    queue_rows.append(row)
                continue
            places = shown[unit.name]
            count = sum(len(numbers) for numbers in places.values())
            if not count:
                continue
            rows.jobs.cores[row] = count
            rows.jobs.memory_bytes_per_core[row] = unit.memory_bytes / count
            cores = core_guest if unit.guest else core_owner
            for agent, numbers in places.items():
                cores[first[number[agent]] + np.array(numbers)] = row
            (guest_rows if unit.guest else running_rows).append(row)
        running, guests_on, queue = (
            np.array(part, np.int32) for part in (running_rows, guest_rows, queue_rows)
        )
        node_bar = self._node_bars(framework, reports)
        self._show_hosts(guests_on, shown, core_owner, core_guest)
        self._measure(reports, [*running_rows, *guest_rows], guests_on, now_s)
        self._estimate(running, queue, machine.total_cores, now_s)
        self._bar(running, queue, machine, core_owner, node_bar)
        snapshot = Snapshot(
            time_s=now_s,
            version=self._version,
            machine=machine,
            jobs=rows.jobs,
            queue=queue,
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
            node_gpus=self._node_gpus(framework),
        )
        return self._versioned(snapshot)

    def _versioned(self, snapshot: Snapshot) -> Snapshot:
        """With a version that has risen if anything that can be seen has changed."""
        jobs, arrays = snapshot.jobs, snapshot.arrays
        seen = tuple(
            np.asarray(getattr(table, column.name)).tobytes()
            for table in (jobs, arrays)
            for column in fields(table)
            if column.name != "job_id"
        ) + tuple(
            getattr(snapshot, name).tobytes()
            for name in ("queue", "running", "guests", "core_owner", "core_guest", "node_bar")
        )
        seen += (
            snapshot.machine.cores.tobytes(),
            repr((snapshot.hints, snapshot.gpus, snapshot.node_gpus)).encode(),
        )
        if seen != self._seen:
            self._version, self._seen = self._version + 1, seen
        values = {column.name: getattr(snapshot, column.name) for column in fields(Snapshot)}
        return Snapshot(**(values | {"version": self._version}))

    def _machine(self, framework: Framework, found: Sequence[Unit]) -> tuple[Machine, dict[str, int]]:
        """The agents that are there, or have tasks of ours; their names are those of their hosts."""
        agents = framework.agents
        used = {agent for unit in found for agent in unit.cpus_of}
        self._agents = [
            agent for row, agent in enumerate(agents.ids) if agents.total[CPUS, row] > 0 or agent in used
        ]
        at = [agents.number[agent] for agent in self._agents]
        hosts = [agents.hosts[row] for row in at]
        twice = {host for host in hosts if hosts.count(host) > 1} if len(set(hosts)) < len(hosts) else set()
        names = tuple(
            agents.addresses[row] if host in twice else host for row, host in zip(at, hosts, strict=True)
        )
        cores = np.maximum(agents.total[CPUS, at] // 1000, 0).astype(np.int32)
        memory = agents.total[MEM, at] / 1000 * MEBIBYTE
        machine = Machine(names, cores, memory.astype(np.float64), "offers of Mesos")
        return machine, dict(zip(self._agents, cores.tolist(), strict=True))

    def _node_gpus(self, framework: Framework) -> dict[int, float]:
        """GPUs of the nodes that have some; none where they are not asked for (`[mesos] gpus`)."""
        agents = framework.agents
        of = {node: agents.total[GPUS, agents.number[agent]] for node, agent in enumerate(self._agents)}
        return {node: float(count) / 1000 for node, count in of.items() if count > 0}

    def _describe(self, row: int, unit: Unit, now_s: float) -> None:
        jobs, spec = self._rows.jobs, unit.job.spec
        cores = unit.wanted_cores
        name = spec.name or "-"
        size = 2 ** max(0, math.ceil(math.log2(cores)))
        label = f"{spec.user}/{name}/{size}"
        code = self._codes.get(label)
        if code is None:
            code = self._codes[label] = len(self.applications)
            self.applications.append(label)
        jobs.application[row] = code
        jobs.user[row] = self._users.setdefault(spec.user, len(self._users))
        jobs.cores[row] = cores
        jobs.nodes[row] = len(unit.cpus_of)
        jobs.time_limit_s[row] = spec.time_limit_s
        jobs.memory_bytes_per_core[row] = unit.memory_bytes / cores
        jobs.submit_s[row] = unit.job.submit_s
        jobs.start_s[row] = min(unit.start_s, now_s) if unit.tasks else NAN
        jobs.limit_end_s[row] = max(unit.limit_end_s, now_s) if unit.tasks else NAN
        held_s = unit.job.hold_until_s
        jobs.begin_s[row] = held_s if not unit.tasks and held_s > now_s else NAN
        jobs.extended_s[row] = unit.extended_s if unit.tasks else 0.0
        jobs.lost_s[row] = self._lost.get(unit.name, 0.0) if unit.tasks else 0.0
        jobs.share_group[row] = 1 + int(jobs.user[row]) if self._settings.share_users == "same" else 0
        jobs.host[row], jobs.share[row] = -1, NAN
        jobs.cpu_fraction[row] = jobs.pace[row] = jobs.pressure[row] = jobs.happiness[row] = NAN
        jobs.estimated_start_s[row] = jobs.own_estimate_s[row] = jobs.own_start_s[row] = NAN
        jobs.host_bar[row] = jobs.guest_bar[row] = 0

    def _node_bars(self, framework: Framework, reports: Mapping[str, NodeReport]) -> NDArray[np.int8]:
        agents = framework.agents
        bars = np.zeros(len(self._agents), np.int8)
        for node, agent in enumerate(self._agents):
            row = agents.number[agent]
            if agents.total[CPUS, row] == 0:
                bars[node] = LOST_NODE
            elif self._report(reports, row) is None:
                bars[node] = NO_ACTOR
        return bars

    def _report(self, reports: Mapping[str, NodeReport], row: int) -> NodeReport | None:
        agents = self.engine.framework.agents
        for name in (agents.addresses[row], agents.hosts[row], agents.hosts[row].partition(".")[0]):
            if name in reports:
                return reports[name]
        return None

    def _show_hosts(
        self,
        guests: Ints,
        shown: Mapping[str, Mapping[str, tuple[int, ...]]],
        core_owner: Ints,
        core_guest: Ints,
    ) -> None:
        """Beside whom each guest runs now, and the share that was decided for that pair."""
        jobs = self._rows.jobs
        for row in guests.tolist():
            unit = str(jobs.job_id[row])
            beside = core_owner[core_guest == row]
            beside = beside[beside >= 0]
            wanted = self._rows.of.get(self._hosts.get(unit, ""), -1)
            host = wanted if wanted in beside else (int(np.bincount(beside).argmax()) if len(beside) else -1)
            name = str(jobs.job_id[host]) if host >= 0 else ""
            if self._shares.get(unit, (NAN, False, name))[2] != name:
                del self._shares[unit]  # it was decided for another host
            jobs.host[row] = host
            jobs.share[row] = self._shares.get(unit, (NAN, False, ""))[0]

    def _estimate(self, running: Ints, queue: Ints, total: int, now_s: float) -> None:
        """When each job that waits would start if all others ran to their limits, in order; NaN if nobody can tell."""
        jobs = self._rows.jobs
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

    def _measure(
        self, reports: Mapping[str, NodeReport], on: Sequence[int], guests: Ints, now_s: float
    ) -> None:
        """What node actors say: CPU, pressure, pace, progress, what was lent and what it cost."""
        jobs, settings = self._rows.jobs, self._settings
        elapsed_s = now_s - self._looked_s
        hosts = {int(jobs.host[row]) for row in guests.tolist() if jobs.host[row] >= 0}
        for row in guests.tolist():
            name = str(jobs.job_id[row])
            estimate_s = self._foreseen_s.get(name, NAN)
            jobs.own_estimate_s[row] = estimate_s
            jobs.own_start_s[row] = estimate_s if estimate_s <= now_s else NAN
        for row in on:
            name = str(jobs.job_id[row])
            unit = self._units[name]
            known = key(name, unit.job.spec.uid)
            samples = [
                (report, report.jobs[known])
                for agent in unit.cpus_of
                if (report := self._report(reports, self.engine.framework.agents.number[agent])) is not None
                and known in report.jobs
            ]
            if not samples:
                continue
            watched = [
                (sample.cpu_fraction, sample.cores)
                for report, sample in samples
                if report.time_s - sample.since_s >= settings.window_s
                and sample.cpu_fraction == sample.cpu_fraction
            ]
            if len(watched) >= len(unit.cpus_of):
                # without cpusets a task may use its whole node: its part is of the cores that it holds
                used = sum(fraction * cores for fraction, cores in watched)
                jobs.cpu_fraction[row] = self._cpu[name] = min(1.0, used / max(1, int(jobs.cores[row])))
            pressures = [sample.pressure for _, sample in samples if sample.pressure == sample.pressure]
            throttled = [sample.throttled for _, sample in samples if sample.throttled == sample.throttled]
            jobs.pressure[row] = max(pressures, default=NAN)
            jobs.pace[row] = 1.0
            if row in hosts:
                slowed = max([*pressures, *throttled], default=0.0)
                jobs.pace[row] = min(1.0, max(LEAST_PACE, 1.0 - slowed))
                if 0.0 < elapsed_s < INF:
                    lost_s = self._lost.get(name, 0.0) + (1.0 - float(jobs.pace[row])) * elapsed_s
                    self._lost[name] = jobs.lost_s[row] = lost_s
            told = [sample.progress for _, sample in samples if sample.progress == sample.progress]
            passed = (now_s - jobs.start_s[row]) / (jobs.limit_end_s[row] - jobs.start_s[row])
            if told and 0 < passed < INF:
                jobs.happiness[row] = max(told) / passed
            total_s = sum(sample.cpu_time_s for _, sample in samples)
            if row in guests:
                more = max(0.0, total_s - self._cpu_s.get(name, 0.0)) if jobs.host[row] >= 0 else 0.0
                self._lent[name] = self._lent.get(name, 0.0) + more
                host = str(jobs.job_id[jobs.host[row]]) if jobs.host[row] >= 0 else ""
                if host:
                    self._lent[host] = self._lent.get(host, 0.0) + more
            self._cpu_s[name] = total_s

    def _bar(
        self, running: Ints, queue: Ints, machine: Machine, core_owner: Ints, node_bar: NDArray[np.int8]
    ) -> None:
        """Who may not lend, and who may not be a guest."""
        jobs, first = self._rows.jobs, machine.first_core
        lending: set[int] = set()
        node_of = np.repeat(np.arange(len(machine.cores)), machine.cores)
        for row in running.tolist():
            unit = self._units[str(jobs.job_id[row])]
            nodes = np.unique(node_of[core_owner == row])
            owners = np.concatenate([core_owner[first[node] : first[node + 1]] for node in nodes.tolist()])
            if not math.isfinite(unit.job.spec.time_limit_s):
                jobs.host_bar[row] = NO_LIMIT
            elif len(nodes) > 1 and not self._settings.lend_multi_node:
                jobs.host_bar[row] = MULTI_NODE
            elif node_bar[nodes].any():
                jobs.host_bar[row] = TAKES_NONE
            elif bool(((owners != row) & (owners >= 0)).any()):
                jobs.host_bar[row] = SHARED_NODE
            else:
                lending.add(int(jobs.share_group[row]))
        for row in queue.tolist():
            unit = self._units[str(jobs.job_id[row])]
            if not math.isfinite(unit.job.spec.time_limit_s):
                jobs.guest_bar[row] = NO_LIMIT
            elif len(unit.job.groups) > 1:
                jobs.guest_bar[row] = HELD  # groups of several kinds start with each other
            elif lending and int(jobs.share_group[row]) not in lending:
                jobs.guest_bar[row] = OTHER_USERS

    def _enter(self, unit: str, row: int, end_s: float) -> None:
        """Into the ledger, if it has lent or was lent to."""
        lent = self._lent.get(unit, 0.0)
        guest = unit in self._hosts
        if lent <= 0 and not guest:
            return
        jobs = self._rows.jobs
        self.ledger.append(
            {
                "job": unit,
                "role": "guest" if guest else "host",
                "application": int(jobs.application[row]),
                "end_s": end_s,
                "lent_core_s": lent,
                "extended_s": float(jobs.extended_s[row]),
                "lost_s": float(jobs.lost_s[row]),
            }
        )
        del self.ledger[:-100_000]

    # ------------------------------------------------------------------------------------------------------- acting

    def _unit(self, row: int) -> Unit | None:
        """The unit of a row, as the framework has it now."""
        name = str(self._rows.jobs.job_id[row]) if 0 <= row < len(self._rows.jobs.cores) else ""
        if not name or self._rows.of.get(name) != row:
            return None
        return next((unit for unit in units(self.engine.framework) if unit.name == name), None)

    def _apply(self, decision: Decision) -> str:
        """Do it; why not, or the empty string. Raises UsageError for what the framework refuses."""
        if self._snapshot is None:
            return "there is no snapshot yet"
        match decision:
            case CoAllocate():
                return self._co_allocate(self._snapshot, decision)
            case SetShare():
                return self._set_share(decision)
            case ExtendLimit():
                return self._extend(decision)
            case Withdraw():
                return "nothing is offered to it"
            case Evict():
                return self._evict(decision)
            case Admit() | Decline() | Defer() | Start() | SetThrottle():
                return self._admit(decision)
        return f"Mesos does not know how to {decision.kind or type(decision).__name__}"

    def _co_allocate(self, snapshot: Snapshot, decision: CoAllocate) -> str:
        guest, host = self._unit(decision.guest), self._unit(decision.host)
        if guest is None or guest.tasks:
            return "it does not wait any more"
        if host is None or not host.tasks:
            return "its host does not run any more"
        if host.guest:
            return "its host is a guest itself"
        if not decision.nodes or not all(0 <= node < len(self._agents) for node in decision.nodes):
            return "there is no such node"
        first = snapshot.machine.first_core
        for node in decision.nodes:
            here = slice(first[node], first[node + 1])
            if first[node] == first[node + 1] or (snapshot.core_owner[here] != decision.host).any():
                return f"node {snapshot.machine.node_names[node]} is not wholly its host's"
            if (snapshot.core_guest[here] >= 0).any():
                return f"node {snapshot.machine.node_names[node]} has a guest already"
        names = tuple(snapshot.machine.node_names[node] for node in decision.nodes)
        if not self._link.announce(names, key(guest.name, guest.job.spec.uid)):
            return "the node actors have not taken note of it"
        agents = [self._agents[node] for node in decision.nodes]
        foreseen_s = float(self._rows.jobs.estimated_start_s[decision.guest])
        self.engine.do(Beside(guest.job.job_id, guest.name, host.name, agents))
        self._hosts[guest.name] = host.name
        self._shares[guest.name] = (decision.share, decision.capped, host.name)
        self._foreseen_s[guest.name] = foreseen_s
        jobs = self._rows.jobs
        jobs.host[decision.guest], jobs.share[decision.guest] = decision.host, decision.share
        for node in decision.nodes:  # nobody else is sent there on this snapshot
            here = slice(first[node], first[node + 1])
            snapshot.core_guest[here] = decision.guest
        return ""

    def _set_share(self, decision: SetShare) -> str:
        unit = self._unit(decision.guest)
        if unit is None or not unit.tasks or not unit.guest:
            return "it does not run as a guest any more"
        host = int(self._rows.jobs.host[decision.guest])
        name = str(self._rows.jobs.job_id[host]) if host >= 0 else ""
        self._shares[unit.name] = (decision.share, decision.capped, name)
        self._rows.jobs.share[decision.guest] = decision.share
        return ""

    def _extend(self, decision: ExtendLimit) -> str:
        unit = self._unit(decision.job)
        if unit is None or not unit.tasks:
            return "it does not run any more"
        if not math.isfinite(unit.job.spec.time_limit_s):
            return "it has no time limit"
        if not 0 < decision.by_s < INF:
            return "there is nothing to add"
        self.engine.do(Extended(unit.job.job_id, decision.by_s, unit.name))
        self._rows.jobs.extended_s[decision.job] += decision.by_s
        self._rows.jobs.limit_end_s[decision.job] += decision.by_s
        return ""

    def _evict(self, decision: Evict) -> str:
        unit = self._unit(decision.job)
        if unit is None or not unit.tasks:
            return "it does not run any more"
        if unit.group >= 0:
            return "it is a task of an elastic job, which is made narrower instead"
        if decision.how != "cancel":
            return f"nobody could release it from {decision.how}: Mesos has no queue of its own; cancel it is"
        self.engine.do(Cancelled(unit.job.job_id, f"evicted: {decision.cause.reason}"))
        return ""

    def _admit(self, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
        unit = self._unit(decision.job)
        if isinstance(decision, SetThrottle):
            if unit is None:
                return "it has ended"
            if unit.group < 0:
                return "it is no array: a gang starts whole"
            self.engine.do(Scaled(unit.job.job_id, scaled(unit.job.spec, unit.group, decision.tasks)))
            return ""
        if unit is not None and unit.group >= 0 and unit.tasks:
            unit = self._waiting_of(unit)
        if unit is None or unit.tasks:
            return "it does not wait any more"
        job = unit.job
        if isinstance(decision, Admit):
            self.engine.do(Prioritised(job.job_id, 1.0))
        elif isinstance(decision, Defer):
            self.engine.do(Held(job.job_id, decision.until_s))
            self._deferred.add(job.job_id)
        elif isinstance(decision, Start):
            self.engine.do(Held(job.job_id, -INF))
            self._deferred.discard(job.job_id)
        return ""

    def _waiting_of(self, unit: Unit) -> Unit | None:
        """What waits of the same array."""
        return next(
            (
                other
                for other in units(self.engine.framework)
                if other.job is unit.job and other.group == unit.group and not other.tasks
            ),
            None,
        )

    def _leases(self, snapshot: Snapshot) -> dict[str, list[Lease]]:
        """By node all that may bind a job there until the lease runs out."""
        wanted: dict[str, list[Lease]] = {}
        kept: dict[tuple[int, int], float] = {}
        first, jobs = snapshot.machine.first_core, snapshot.jobs
        node_of = np.repeat(np.arange(len(snapshot.machine.cores)), snapshot.machine.cores)
        for row in snapshot.guests.tolist():
            name = str(jobs.job_id[row])
            unit = self._units.get(name)
            if unit is None:
                continue
            share, capped, _ = self._shares.get(name, (NAN, False, ""))
            host = int(jobs.host[row])
            for node in np.unique(node_of[snapshot.core_guest == row]).tolist():
                here = slice(first[node], first[node + 1])
                cores = int((snapshot.core_guest[here] == row).sum())
                lent = int((snapshot.core_owner[here] == host).sum()) if host >= 0 else 0
                bound = lent > 0 and cores > 0 and not math.isnan(share)
                host_key = self._key(jobs, host) if host >= 0 else ""
                quota = min(1.0, share * lent / cores) if bound else NAN
                lease = Lease(key(name, unit.job.spec.uid), True, host_key, quota, cores)
                wanted.setdefault(self._actor_of(snapshot, node), []).append(lease)
                if host >= 0:
                    left = 1.0 - share if capped and bound else NAN
                    kept[host, node] = float(np.fmin(kept.get((host, node), NAN), left))
        for (host, node), quota in kept.items():
            cores = int((snapshot.core_owner[first[node] : first[node + 1]] == host).sum())
            lease = Lease(self._key(jobs, host), False, "", quota, max(1, cores))
            wanted.setdefault(self._actor_of(snapshot, node), []).append(lease)
        return wanted

    def _key(self, jobs: Jobs, row: int) -> str:
        unit = self._units.get(str(jobs.job_id[row]))
        return "" if unit is None else key(unit.name, unit.job.spec.uid)

    def _actor_of(self, snapshot: Snapshot, node: int) -> str:
        return snapshot.machine.node_names[node]

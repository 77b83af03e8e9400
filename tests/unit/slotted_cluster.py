"""A small cluster that obeys the admit stage, and a scheme that plans every job as soon as there is room.

Written apart from asad: arrays start task after task, those that are admitted first, where cores are free.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from asad.admit.elastic import Allotment, ElasticJob, Schedule, Servers, Verdict
from asad.decisions import Admit, Decision, Decline, Defer, Outcome, SetThrottle, Start
from asad.model import Arrays, Finished, Floats, Ints, Jobs, Machine, Snapshot

EPOCH = 1_000_000.0
"""The cluster's clock begins here, on the boundary of a slot of 100 s."""


@dataclass
class Task:
    """One row."""

    start_s: float = math.nan
    end_s: float = math.nan
    node: int = -1
    reported: bool = False


@dataclass
class Job:
    """An array, or a rigid job of one task."""

    name: str
    run_s: float
    tasks: int = 1
    cores: int = 1
    hint: str = ""
    submit_s: float = EPOCH
    limit_s: float = 0.0
    array: bool = False
    begin_s: float = math.nan
    deadline_s: float = math.nan
    throttle: int = 0
    bar: int = 0
    admitted: bool = False
    comment: str = ""
    application: int = -1
    """By default that of arrays, or that of others."""
    user: int = 0
    first_row: int = -1
    all: list[Task] = field(default_factory=list)


def _application(job: Job) -> int:
    return job.application if job.application >= 0 else 0 if job.array else 1


class Obedient:
    """The cluster; `nodes` are cores of each."""

    applications = ("ann/train/1", "bob/sim/1", "ann/store/1")

    def __init__(self, nodes: Sequence[int], jobs: Sequence[Job]) -> None:
        self.now_s = EPOCH
        self.nodes, self.jobs = list(nodes), list(jobs)
        self.machine = Machine(
            tuple(f"n{i}" for i in range(len(nodes))),
            np.array(nodes, np.int32),
            np.full(len(nodes), math.nan),
            "made up",
        )
        row = 0
        for job in self.jobs:
            job.limit_s = job.limit_s or 2 * job.run_s
            job.first_row, job.all = row, [Task() for _ in range(job.tasks)]
            row += job.tasks
        self.version = 0
        self.done: list[tuple[float, Decision]] = []
        self.refuse: set[str] = set()
        self.down: set[int] = set()
        self.illegal: list[str] = []
        self.most_used = 0

    # -------------------------------------------------------------------------------------------------- its life

    def run(self, until_s: float, step_s: float = 10.0) -> None:
        """Go on by itself."""
        while self.now_s < until_s:
            self._start()
            self.now_s += step_s
            for job in self.jobs:
                for task in job.all:
                    if math.isnan(task.end_s) and task.start_s + job.run_s <= self.now_s:
                        task.end_s = self.now_s
            self.version += 1

    @property
    def over(self) -> bool:
        return all(not math.isnan(task.end_s) for job in self.jobs for task in job.all)

    def running(self, job: Job) -> int:
        return sum(not math.isnan(task.start_s) and math.isnan(task.end_s) for task in job.all)

    def _waiting(self, job: Job) -> list[Task]:
        return [task for task in job.all if math.isnan(task.start_s)] if job.submit_s <= self.now_s else []

    def _free(self) -> list[int]:
        free = [0 if node in self.down else cores for node, cores in enumerate(self.nodes)]
        for job in self.jobs:
            for task in job.all:
                if not math.isnan(task.start_s) and math.isnan(task.end_s):
                    free[task.node] -= job.cores
        return free

    def _eligible(self, job: Job) -> bool:
        full = 0 < job.throttle <= self.running(job)
        return bool(self._waiting(job)) and not job.begin_s > self.now_s and not full

    def _order(self) -> list[Job]:
        return sorted(self.jobs, key=lambda job: (not job.admitted, job.submit_s, job.first_row))

    def _start(self) -> None:
        free = self._free()
        for job in self._order():
            for task in self._waiting(job):
                node = next((node for node, cores in enumerate(free) if cores >= job.cores), None)
                if not self._eligible(job) or node is None:
                    break
                task.start_s, task.node = self.now_s, node
                free[node] -= job.cores
        self.most_used = max(self.most_used, sum(self.nodes) - sum(free))

    # ----------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        rows = [(job, number, task) for job in self.jobs for number, task in enumerate(job.all)]
        count, nan = len(rows), math.nan
        arrays = [job for job in self.jobs if job.array]
        table = {
            "job_id": np.array([f"{j.name}_{n}" if j.array else j.name for j, n, _ in rows], object),
            "application": np.array([_application(j) for j, _, _ in rows], np.int32),
            "user": np.array([j.user for j, _, _ in rows], np.int32),
            "cores": np.array([j.cores for j, _, _ in rows], np.int32),
            "nodes": np.ones(count, np.int32),
            "time_limit_s": np.array([j.limit_s for j, _, _ in rows]),
            "memory_bytes_per_core": np.full(count, nan),
            "submit_s": np.array([j.submit_s for j, _, _ in rows]),
            "start_s": np.array([t.start_s for _, _, t in rows]),
            "limit_end_s": np.array([t.start_s + j.limit_s for j, _, t in rows]),
            "estimated_start_s": np.full(count, nan),
            "begin_s": np.array([j.begin_s for j, _, _ in rows]),
            "deadline_s": np.array([j.deadline_s for j, _, _ in rows]),
            "array": np.array([arrays.index(j) if j.array else -1 for j, _, _ in rows], np.int32),
            "guest_bar": np.array([j.bar for j, _, _ in rows], np.int8),
            "host": np.full(count, -1, np.int32),
            "latest_end_s": np.full(count, math.inf),
        }
        zeros = ("lost_s", "extended_s", "pressure")
        codes = ("host_bar", "memory_bound")
        for name in Jobs.__dataclass_fields__:
            if name not in table:
                kind = np.int8 if name in codes else np.int32 if name == "share_group" else np.float64
                table[name] = np.full(count, 0 if name in (*zeros, *codes, "share_group") else nan, kind)
        owner: list[int] = []
        for node, cores in enumerate(self.nodes):
            here = [
                row
                for row, (job, _, task) in enumerate(rows)
                if task.node == node and math.isnan(task.end_s)
                for _ in range(job.cores)
            ]
            owner += (here + [-1] * cores)[:cores]
        first = {
            id(job): job.first_row + sum(not math.isnan(t.start_s) for t in job.all) for job in self.jobs
        }
        waiting = {id(job): len(self._waiting(job)) for job in self.jobs}
        queue = [first[id(job)] for job in self._order() if self._eligible(job)]
        running = [
            row for row, (_, _, t) in enumerate(rows) if not math.isnan(t.start_s) and math.isnan(t.end_s)
        ]
        return Snapshot(
            time_s=self.now_s,
            version=self.version,
            machine=self.machine,
            jobs=Jobs(**table),
            queue=np.array(queue, np.int32),
            running=np.array(running, np.int32),
            guests=np.zeros(0, np.int32),
            core_owner=np.array(owner, np.int32),
            core_guest=np.full(len(owner), -1, np.int32),
            waiting=sum(waiting.values()),
            node_bar=np.array([1 if node in self.down else 0 for node in range(len(self.nodes))], np.int8),
            arrays=Arrays(
                np.array([first[id(j)] if waiting[id(j)] else -1 for j in arrays], np.int32),
                np.array([waiting[id(j)] for j in arrays], np.int32),
                np.array([self.running(j) for j in arrays], np.int32),
                np.array([sum(not math.isnan(t.end_s) for t in j.all) for j in arrays], np.int32),
                np.array([j.throttle for j in arrays], np.int32),
            ),
            hints={row: job.hint for row, (job, _, _) in enumerate(rows) if job.hint},
        )

    def finished(self, since_s: float) -> Finished:
        ended = [
            (job.first_row + number, task, job)
            for job in self.jobs
            for number, task in enumerate(job.all)
            if not math.isnan(task.end_s) and not task.reported
        ]
        for _, task, _ in ended:
            task.reported = True
        count = len(ended)
        return Finished(
            np.array([row for row, _, _ in ended], np.int32),
            np.array([task.end_s for _, task, _ in ended]),
            np.array([job.run_s for _, _, job in ended]),
            np.zeros(count),
            np.full(count, math.nan),
        )

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """Obey, and note what repeats what is so already or comes of a job that does not wait."""
        outcomes = []
        for decision in decisions:
            job = self._job_of(decision.job)  # type: ignore[attr-defined]
            if decision.kind in self.refuse:
                outcomes.append(Outcome(decision, False, "the test refuses"))
                continue
            if not self._waiting(job):
                self.illegal.append(f"{decision.kind} of {job.name}, of which nothing waits")
            match decision:
                case Admit():
                    if job.admitted:
                        self.illegal.append(f"{job.name} is admitted twice")
                    job.admitted = True
                case Decline():
                    if job.comment == decision.cause.reason:
                        self.illegal.append(f"{job.name} is twice reported as not admitted")
                    job.comment = decision.cause.reason
                case Defer():
                    if decision.until_s == job.begin_s or not decision.until_s > self.now_s:
                        self.illegal.append(f"{job.name} is deferred to where it is")
                    job.begin_s = decision.until_s
                case Start():
                    if not job.begin_s > self.now_s:
                        self.illegal.append(f"{job.name} is started and was not deferred")
                    job.begin_s = math.nan
                case SetThrottle():
                    if decision.tasks == job.throttle or decision.tasks < 1:
                        self.illegal.append(f"{job.name}: a throttle of {decision.tasks} for {job.throttle}")
                    job.throttle = decision.tasks
            self.done.append((self.now_s, decision))
            outcomes.append(Outcome(decision, True, ""))
        return outcomes

    def _job_of(self, row: int) -> Job:
        return next(job for job in self.jobs if job.first_row <= row < job.first_row + job.tasks)

    def kinds(self, name: str) -> list[str]:
        """What was decided of a job, in order."""
        return [decision.kind for _, decision in self.done if decision.cause.detail["job"] == name]


class AsSoonAsRoom:
    """Plans every job as early as it fits; admits it if it can be done within the horizon and is worth anything."""

    name = "as-soon"

    def __init__(self, servers: Servers, horizon: int) -> None:
        self.servers, self.horizon = servers, horizon
        self.plans: dict[int, dict[int, Allotment]] = {}
        self.known: dict[int, ElasticJob] = {}
        self.others: Floats = np.zeros((horizon, *servers.workers.shape))
        self.others_beside: Floats = np.zeros((horizon, *servers.parameter_servers.shape))
        self.others_from = 0
        self.calls: list[tuple[str, int]] = []

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        self.calls.append(("arrive", number))
        plan = self._plan(job, job.arrival, job.work, {})
        if plan is None:
            return Verdict(False, f"its {job.work} worker-slots do not fit into the plan")
        worth = job.utility(max(plan) - job.arrival + 1)
        if worth <= 0:
            return Verdict(
                False, "it would come too late to be worth anything", None, worth - 1.0, 1.0, worth
            )
        self.plans[number], self.known[number] = plan, job
        return Verdict(True, "there is room for it", plan, worth, 0.0, worth)

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        return {number: plan[slot] for number, plan in self.plans.items() if slot in plan and number in left}

    def leave(self, number: int, slot: int) -> None:
        self.calls.append(("leave", number))
        self.plans.pop(number, None)
        self.known.pop(number, None)

    def extend(self, number: int, slot: int, work: int) -> Schedule:
        self.calls.append(("extend", number))
        present = self.plans[number]
        more = self._plan(self.known[number], slot, work, present)
        if more is not None:
            for at, there in more.items():
                present[at] = there if at not in present else _sum(present[at], there)
        return {at: there for at, there in present.items() if at >= slot}

    def resume(self, number: int, job: ElasticJob, schedule: Schedule) -> None:
        self.calls.append(("resume", number))
        self.plans[number], self.known[number] = dict(schedule), job

    def occupy(self, slot: int, workers: Floats, servers: Floats | None = None) -> None:
        self.others, self.others_from = workers, slot
        if servers is not None:
            self.others_beside = servers

    def state(self) -> dict[str, int]:
        return {"plans": len(self.plans)}

    def _plan(
        self, job: ElasticJob, first: int, work: int, present: Mapping[int, Allotment]
    ) -> dict[int, Allotment] | None:
        plan: dict[int, Allotment] = {}
        for slot in range(first, first + self.horizon):
            free, beside = self.servers.workers.copy(), self.servers.parameter_servers.copy()
            ahead = slot - self.others_from
            if 0 <= ahead < len(self.others):
                free -= self.others[ahead]
                beside -= self.others_beside[ahead]
            for number, other in self.plans.items():
                if slot in other:
                    there, known = other[slot], self.known[number]
                    np.add.at(free, there.worker_server, -there.workers[:, None] * known.worker)
                    np.add.at(beside, there.parameter_server, -there.servers[:, None] * known.server)
            wanted = min(work, job.most_workers - (present[slot].width if slot in present else 0))
            while job.servers_for(wanted) > len(_fill(beside, job.server, job.servers_for(wanted))):
                wanted -= 1
            at = _fill(free, job.worker, wanted)
            if at:
                on = _fill(beside, job.server, job.servers_for(len(at)))
                plan[slot] = Allotment(*_counts(at), *_counts(on))
                work -= len(at)
            if work <= 0:
                return plan
        return None


def _fill(free: Floats, demand: Floats, wanted: int) -> list[int]:
    """The servers of up to `wanted` tasks, the first with room first."""
    at: list[int] = []
    for server in range(len(free)):
        takes = demand > 0.0
        room = (free[server][takes] / demand[takes]).min(initial=float(wanted))
        fit = int(max(0.0, np.floor(room + 1e-9)))
        at += [server] * min(fit, wanted - len(at))
    return at


def _counts(at: list[int]) -> tuple[Ints, Ints]:
    where, count = np.unique(np.array(at, np.int32), return_counts=True)
    return where, count.astype(np.int32)


def _sum(one: Allotment, other: Allotment) -> Allotment:
    server = np.concatenate((one.worker_server, other.worker_server))
    count = np.concatenate((one.workers, other.workers))
    beside = np.concatenate((one.parameter_server, other.parameter_server))
    return Allotment(server, count, beside, np.concatenate((one.servers, other.servers)))

"""A Slurm that is made up: jobs come, wait, run, are lent to and end as time goes on, and squeue's and sinfo's answers
report it in the JSON of 22.05. Nothing is kept of a job that squeue and sacct have forgotten."""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.command import Answer, Ended, Look, Partition, Reservation
from asad_slurm.nodesets import expand, fold

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "slurm" / "22.05"
DAY_S = 86_400.0
GUESTS = "guest"
SHOWN_S = 300
"""So long squeue shows a job that has ended (MinJobAge)."""
KEPT_ENDED = 2000
"""So many ended jobs sacct reports."""
TRIED = 300
"""So many waiting jobs are tried in one pass of the scheduler."""
PATIENCE_S = 6 * 3600
"""A job that has waited for so long is the next to start."""
ESTIMATED = 200
"""Of so many backfill says when they will start."""


class Load(NamedTuple):
    """What comes to the cluster."""

    nodes: int = 1000
    cores: int = 16
    """Of each node."""
    jobs: int = 500_000
    """In all of `days`."""
    applications: int = 100_000
    """Names of jobs in all of `days`; every other job bears one that was there lately."""
    days: float = 30.0
    users: int = 200
    busy: float = 0.92
    """Part of all cores that would be held if nobody waited, in the mean over a day."""


class Kind(NamedTuple):
    """What the jobs of one application have in common."""

    name: str
    user: int
    nodes: int
    cores: int
    mean_s: float
    busy: float
    """Part of its CPU that a job uses."""


@dataclass(slots=True)
class Job:
    """One job of the made-up cluster; of an array the tasks that still wait are one."""

    number: int
    name: str
    user: int
    nodes: int
    cores: int
    """On each of its nodes."""
    run_s: float
    limit_min: int
    submit_s: int
    busy: float
    """Part of its CPU that it uses."""
    comment: str = ""
    state: str = "PENDING"
    partition: str = "batch"
    required: str = ""
    start_s: int = 0
    end_s: int = 0
    estimate_s: int = 0
    at: tuple[int, ...] = ()
    """Its nodes."""
    array: int = 0
    task: int = -1
    left: deque[int] = field(default_factory=deque)
    """Tasks of an array that wait."""
    restarts: int = 0
    text: bytes = b""
    """As squeue writes it; empty if that has to be written anew."""


class MadeUpSlurm:
    """A `Transport`. `pass_until` brings it to a time; what comes then follows from the seed and what asad does."""

    answers = True

    def __init__(self, load: Load, seed: int, start_s: int) -> None:
        self.load, self.now_s, self._start_s = load, start_s, start_s
        self._rng = np.random.default_rng(seed)
        document = json.loads((GOLDEN / "squeue.json").read_bytes())
        golden = {job["job_id"]: job for job in document["jobs"]}
        self._waits, self._runs = golden[7], golden[1]
        self._head, self._tail = json.dumps(document | {"jobs": ["@"]}, indent=2).encode().split(b'"@"')
        self._sinfo = b""
        self._down: dict[int, float] = {}
        """Nodes that are down, and until when."""
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Job] = {}
        self._ended: deque[Job] = deque()
        self._past: dict[int, Ended] = {}
        self._ends: list[tuple[float, int, int]] = []
        self.free = np.full(load.nodes, load.cores)
        self.lent = np.zeros(load.nodes, np.int64)
        """Cores on which there are guests."""
        self._next = 1
        self._due = 0.0
        self.submitted = self.named = self.guests = self.finished = 0
        # core-seconds that make the cluster as busy as it is to be, over the mean cores of a job
        self._mean_s = load.busy * load.nodes * load.cores * load.days * DAY_S / load.jobs / 8.4
        self._kinds: deque[Kind] = deque((self._new_kind() for _ in range(100)), maxlen=3000)
        self._jobs, self._nodes = JobReader(), NodeReader()
        self.made_s = 0.0

    # -------------------------------------------------------------------------------------------------- what goes on

    def pass_until(self, now_s: int) -> None:
        """Time goes on: jobs end, come and start, nodes fail and are repaired."""
        step_s = now_s - self.now_s
        self.now_s = now_s
        while self._ends and self._ends[0][0] <= now_s:
            end_s, number, restarts = heapq.heappop(self._ends)
            job = self.running.get(number)
            if job is not None and job.restarts == restarts and self._end_s(job) <= now_s:
                self._end(job, int(end_s))
        while self._ended and self._ended[0].end_s < now_s - SHOWN_S:
            self._ended.popleft()
        self._fail(step_s)
        self._submit(step_s)
        self._schedule()

    def _fail(self, step_s: float) -> None:
        """Now and then a node is down for an hour. Its jobs go on: what becomes of them is not what is looked at."""
        back = [node for node, until_s in self._down.items() if until_s <= self.now_s]
        for node in back:
            del self._down[node]
        if self._rng.random() < step_s / 7200.0:
            node = int(self._rng.integers(self.load.nodes))
            self._down[node] = self.now_s + 3600.0
            back.append(node)
        if back:
            self._sinfo = b""

    def _submit(self, step_s: float) -> None:
        load, rng = self.load, self._rng
        day = 1.0 + 0.5 * np.sin(2 * np.pi * (self.now_s - self._start_s) / DAY_S)
        self._due += load.jobs / (load.days * DAY_S) * step_s * day
        while self._due > 0:
            kind = self._kind()
            tasks = int(rng.integers(4, 17)) if kind.nodes == 1 and rng.random() < 0.01 else 1
            self._due -= tasks
            self.submitted += tasks
            run_s = float(np.clip(kind.mean_s * rng.lognormal(-0.045, 0.3), 10.0, 5 * DAY_S))
            job = Job(
                number=self._next,
                name=kind.name,
                user=kind.user,
                nodes=kind.nodes,
                cores=kind.cores,
                run_s=run_s,
                limit_min=int(run_s * rng.uniform(1.05, 3.0) / 60.0) + 2,
                submit_s=self.now_s,
                busy=kind.busy,
                comment="asad:steps=100" if rng.random() < 0.05 else "",
            )
            if tasks > 1:
                job.array, job.left = job.number, deque(range(tasks))
            self.waiting[job.number] = job
            self._next += 1

    def _kind(self) -> Kind:
        """A new application, or one that was there lately."""
        # an array is submitted once: of a hundred submissions one, with ten tasks
        if self._rng.random() < self.load.applications / self.load.jobs * 1.09:
            self._kinds.append(self._new_kind())
            return self._kinds[-1]
        return self._kinds[int(self._rng.integers(len(self._kinds)))]

    def _new_kind(self) -> Kind:
        rng = self._rng
        self.named += 1
        return Kind(
            name=f"run-{self.named}",
            user=int(rng.integers(self.load.users)),
            nodes=1 if rng.random() < 0.9 else min(int(rng.integers(2, 9)), self.load.nodes),
            cores=min(int(rng.choice((1, 2, 4, 8, 16))), self.load.cores),
            mean_s=float(min(self._mean_s * rng.lognormal(-0.5, 1.0), 3 * DAY_S)),
            busy=float(rng.choice((0.2, 0.5, 0.9, 1.0))),
        )

    def _schedule(self) -> None:
        """First come, first served, and for some hours whoever fits meanwhile; guests where they were sent."""
        up = np.ones(self.load.nodes, np.bool_)
        up[list(self._down)] = False
        tried = 0
        for job in list(self.waiting.values()):
            if job.partition == GUESTS:
                at = [int(name[2:]) - 1 for name in expand(job.required)]
                if at and up[at].all() and (self.lent[at] + job.cores <= self.load.cores).all():
                    self._start(job, tuple(at))
                continue
            tried += 1
            if tried > TRIED:
                continue
            while job.number in self.waiting:
                fits = np.flatnonzero((self.free >= job.cores) & up)[: job.nodes]
                if len(fits) < job.nodes:
                    break
                self._start(job, tuple(fits.tolist()))
            if job.number in self.waiting and self.now_s - job.submit_s > PATIENCE_S:
                tried = TRIED  # nobody is let past it any more
        self._estimate()

    def _estimate(self) -> None:
        """When the first will start, to five minutes: nobody knows better, and the text of few changes."""
        rate_s = self.load.days * DAY_S / self.load.jobs
        for place, job in enumerate(self.waiting.values()):
            if place >= ESTIMATED:
                break
            estimate_s = self.now_s + 600 + int((1 + place) * rate_s * 10 // 300) * 300
            if abs(estimate_s - job.estimate_s) > 900:
                job.estimate_s, job.text = estimate_s, b""

    def _start(self, job: Job, at: tuple[int, ...]) -> None:
        if job.left:  # the next task of an array is a job of its own
            self._next += 1
            task = Job(
                self._next - 1, job.name, job.user, 1, job.cores, job.run_s, job.limit_min, job.submit_s, job.busy,
                array=job.array, task=job.left.popleft(), partition=job.partition,
            )  # fmt: skip
            job.text = b""
            if not job.left:
                del self.waiting[job.number]
            job = task
        else:
            del self.waiting[job.number]
        self.running[job.number] = job
        job.state, job.at, job.start_s, job.text = "RUNNING", at, self.now_s, b""
        if job.partition == GUESTS:
            self.guests += 1
            self.lent[list(at)] += job.cores
        else:
            self.free[list(at)] -= job.cores
        heapq.heappush(self._ends, (self._end_s(job), job.number, job.restarts))

    def _end_s(self, job: Job) -> float:
        """When it ends: its work or its time limit does."""
        run_s = job.run_s * (1.25 if job.partition == GUESTS else 1.0)
        return job.start_s + min(run_s, 60.0 * job.limit_min)

    def _end(self, job: Job, end_s: int) -> None:
        del self.running[job.number]
        (self.lent if job.partition == GUESTS else self.free)[list(job.at)] += (
            -job.cores if job.partition == GUESTS else job.cores
        )
        again = self._rng.random()
        if again < 0.001 and not job.array:  # requeued
            job.restarts += 1
            job.state, job.start_s, job.end_s, job.at, job.text = "PENDING", 0, 0, (), b""
            self.waiting[job.number] = job
            return
        self.finished += 1
        job.state, job.end_s, job.text = "COMPLETED", end_s, b""
        cores = job.cores * job.nodes
        self._past[job.number] = Ended(
            job.number, job.start_s, end_s, job.busy * cores * (end_s - job.start_s), True
        )
        if len(self._past) > KEPT_ENDED:
            del self._past[next(iter(self._past))]
        if again > 0.01:  # squeue has forgotten the others before anybody looked
            self._ended.append(job)

    # ------------------------------------------------------------------------------------------------------- answers

    def squeue(self) -> bytes:
        """As `squeue --json` prints it."""
        texts = []
        for jobs in (self.running.values(), self.waiting.values(), self._ended):
            for job in jobs:
                if not job.text:
                    job.text = orjson.dumps(self._plain(job), option=orjson.OPT_INDENT_2)
                texts.append(job.text)
        return self._head + b",\n".join(texts) + self._tail

    def _plain(self, job: Job) -> dict[str, Any]:
        waits = job.state == "PENDING"
        cores = job.cores * job.nodes
        tres = f"cpu={cores},mem={2000 * cores}M,node={job.nodes},billing={cores}"
        names = fold(tuple(f"cn{node + 1}" for node in job.at)) if job.at else ""
        part_of_array = bool(job.array) and bool(job.left)
        return (self._waits if waits else self._runs) | {
            "job_id": job.number,
            "name": job.name,
            "user_name": f"user{job.user}",
            "account": f"account{job.user % 20}",
            "comment": job.comment,
            "cpus": cores,
            "node_count": job.nodes,
            "partition": job.partition,
            "required_nodes": job.required,
            "nodes": names,
            "job_state": job.state,
            "state_reason": "Priority" if waits else "None",
            "priority": 4_000_000_000 - job.number if waits else 1,
            "submit_time": job.submit_s,
            "eligible_time": job.submit_s,
            "start_time": job.estimate_s if waits else job.start_s,
            "end_time": 0 if waits else job.end_s or job.start_s + 60 * job.limit_min,
            "time_limit": job.limit_min,
            "restart_cnt": job.restarts,
            "qos": "normal",
            "memory_per_node": None,
            "memory_per_cpu": 2000,
            "array_job_id": job.array,
            "array_task_id": job.task if job.task >= 0 else None,
            "array_task_string": f"{job.left[0]}-{job.left[-1]}" if part_of_array else "",
            "tres_req_str": tres,
            "tres_alloc_str": "" if waits else tres,
            "job_resources": {}
            if waits or not job.at
            else {
                "nodes": names,
                "allocated_nodes": [
                    {
                        "nodename": f"cn{node + 1}",
                        "sockets": {"0": {"cores": {str(core): "allocated" for core in range(job.cores)}}},
                    }
                    for node in job.at
                ],
            },
        }

    def sinfo(self) -> bytes:
        """As `sinfo --json` prints it; the very same while nothing changes."""
        if not self._sinfo:
            document = json.loads((GOLDEN / "sinfo.json").read_bytes())
            one = document["nodes"][0] | {"cpus": self.load.cores, "cores": self.load.cores, "sockets": 1}
            one |= {"real_memory": 4000 * self.load.cores, "partitions": ["batch", GUESTS], "state_flags": []}
            names = [f"cn{number + 1}" for number in range(self.load.nodes)]
            document["nodes"] = [
                one | {"name": name, "hostname": name, "state": "down" if number in self._down else "mixed"}
                for number, name in enumerate(names)
            ]
            self._sinfo = json.dumps(document).encode()
        return self._sinfo

    def is_up(self, node: int) -> bool:
        return node not in self._down

    # --------------------------------------------------------------------------------------------------- a Transport

    def look(self) -> Look:
        """All jobs and nodes now. `made_s` is the CPU that it took to make them up."""
        begin_s = time.thread_time()
        squeue, sinfo = self.squeue(), self.sinfo()
        self.made_s = time.thread_time() - begin_s
        return Look(self._jobs.read(squeue), self._nodes.read(sinfo))

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        """As `scontrol update` does."""
        job = self._job(str(raw))
        if job is None:
            return Answer(False, f"scontrol: Invalid job id specified for job {raw}")
        job.text = b""
        if "TimeLimit" in changes and job.state == "RUNNING":
            job.limit_min += int(changes["TimeLimit"])
            heapq.heappush(self._ends, (self._end_s(job), job.number, job.restarts))
        if "Partition" in changes:
            if job.state != "PENDING":
                return Answer(False, "Job is no longer pending execution")
            job.partition, job.required = changes["Partition"], changes["ReqNodeList"]
        elif "ReqNodeList" in changes and job.state == "PENDING":
            job.required = changes["ReqNodeList"]
        return Answer(True, "")

    def _job(self, name: str) -> Job | None:
        array, is_task, task = name.partition("_")
        if not is_task:
            return self.waiting.get(int(name)) or self.running.get(int(name))
        for jobs in (self.waiting, self.running):
            for job in jobs.values():
                if job.array == int(array) and (
                    job.task == int(task) or (job.left and job.left[0] == int(task))
                ):
                    return job
        return None

    def evict(self, job: str, how: str) -> Answer:
        """Nobody asks for it here."""
        return Answer(False, "not here")

    def split_task(self, text: str, excluded_nodes: str) -> int:
        """A waiting task of an array becomes a job of its own."""
        job = self._job(text)
        if job is None or not job.left:
            return 0
        task = job.left.popleft()
        one = Job(
            self._next, job.name, job.user, 1, job.cores, job.run_s, job.limit_min, job.submit_s, job.busy,
            array=job.array, task=task, estimate_s=job.estimate_s,
        )  # fmt: skip
        self._next += 1
        self.waiting[one.number] = one
        job.text = b""
        if not job.left:
            del self.waiting[job.number]
        return one.number

    def partitions(self) -> list[Partition]:
        """Where jobs wait, and where guests run."""
        return [Partition("batch", "", 10 * DAY_S, 1.0, ""), Partition(GUESTS, "", 10 * DAY_S, 2.0, "")]

    def reservations(self) -> list[Reservation]:
        """None."""
        return []

    def licences(self) -> dict[str, float]:
        """None."""
        return {}

    def wall_limits(self) -> tuple[dict[tuple[str, str, str], float], dict[str, float]]:
        """None."""
        return {}, {}

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        """What accounting knows."""
        return {raw: self._past[raw] for raw in raws if raw in self._past}

    def sentence(self) -> str:
        """The way to it."""
        return "a Slurm that is made up"

    def close(self) -> None:
        """Nothing is held."""

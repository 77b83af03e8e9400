"""What is known of jobs and tasks; it changes by records alone, now or when a successor reads the journal.

A record is a plain object that names what has become (`what`) and of whom. Whatever follows from one is here, so that
who applies the same records knows the same.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.cluster.bounded_lists import Sentences
from asad.errors import UsageError
from asad_mesos.agent_offers import CPUS, Agents, need
from asad_mesos.job_spec import Spec, spec_from_json
from asad_mesos.kinds import require_kinds
from asad_mesos.statuses import STARTED_STATES
from asad_mesos.submission_limits import Usage, usage_of

Record = dict[str, Any]

QUEUED, LAUNCHING, RUNNING, STOPPING = "queued", "launching", "running", "stopping"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "completed", "failed", "cancelled", "timeout"
ALIVE = (QUEUED, LAUNCHING, RUNNING, STOPPING)

ASK_FIRST_S = 10.0
"""A task that nothing was heard of is asked for after this."""
ENDED_KEPT = 1000
STORY_KEPT = 40
"""So many of the last things that became of a job are listed in its story."""
ENDINGS_KEPT = 16
"""So many of its last tasks that ended, too."""


class Executor(NamedTuple):
    """An executor of ours as the master has it: a guest that joins it must describe it in the very same way."""

    command: str
    user: str
    resources: list[dict[str, Any]]
    tasks: int
    """Of its own job, on that agent, at its start."""
    guest: bool
    open: bool = False
    """It has reported that it takes guests."""


@dataclass(slots=True)
class Task:
    """A task that Mesos knows, or is about to."""

    task_id: str
    job: str
    group: int
    index: int
    agent: str
    host: str
    revocable: bool
    launch_s: float
    executor: str = ""
    """Id of the executor that runs it; empty if an earlier version has launched it."""
    inside: str = ""
    """Unit whose executor that is, if it is not its own."""
    state: str = "TASK_STAGING"
    start_s: float = math.nan
    killing: bool = False
    late: bool = False
    """It is killed because its time limit is over."""
    extended_s: float = 0.0

    @property
    def started(self) -> bool:
        """Has it begun, as far as was heard?"""
        return self.state in STARTED_STATES or not math.isnan(self.start_s)


@dataclass(slots=True)
class Progress:
    """How far a group of a job is."""

    todo: list[int]
    """Indices of tasks that are still to be run, in order."""
    target: int
    """Most tasks at one time."""
    alive: int = 0
    done: int = 0
    failed: int = 0
    lost: dict[int, int] = field(default_factory=dict)
    """By index: how often it was lost."""


@dataclass(slots=True)
class Job:
    """A job and how it stands."""

    job_id: str
    number: int
    spec: Spec
    submit_s: float
    groups: list[Progress]
    state: str = QUEUED
    attempt: int = 0
    serial: int = 0
    """Tasks launched in this attempt."""
    retries: int = 0
    false_starts: int = 0
    priority: float = 0.0
    hold_until_s: float = -math.inf
    start_s: float = math.nan
    end_s: float = math.nan
    extended_s: float = 0.0
    outcome: str = ""
    """What a stopping job becomes when its last task is gone."""
    why: str = ""
    beside: str = ""
    """Unit beside which it was started as a guest."""
    guests: set[int] = field(default_factory=set)
    """Of an elastic job: indices of the first group's tasks that run as guests."""
    demands: dict[int, float] = field(default_factory=dict)
    """Of guests that draw from pools: CPU that each is expected to use, as a fraction of its cores; by index of the
    first group's task, and of a gang by -1."""
    tasks: dict[str, Task] = field(default_factory=dict)
    executors: dict[str, Executor] = field(default_factory=dict)
    """By id, those that guests may join."""
    endings: list[dict[str, Any]] = field(default_factory=list)
    """The last tasks that ended, for `status`."""
    story: list[list[Any]] = field(default_factory=list)
    """What became of it: time and sentence, the last of many."""
    usage: Usage = field(default_factory=Usage)
    """What it takes up of the quotas, as long as it has not ended."""
    needs: list[NDArray[np.int64]] = field(default_factory=list)
    """By group, what one task takes (`agent_offers.NAMES`, in thousandths)."""

    @property
    def limit_end_s(self) -> float:
        """When it is over time."""
        return self.start_s + self.spec.time_limit_s + self.extended_s

    def log(self, time_s: float | None, sentence: str) -> None:
        """Something has become of it; when, earlier versions did not always record."""
        if time_s is None:
            time_s = self.story[-1][0] if self.story else self.submit_s
        self.story.append([time_s, sentence])
        del self.story[:-STORY_KEPT]

    def launch(self, record: Record) -> None:
        """Tasks of it are launched; if it has waited, that is a new attempt."""
        tasks, beside, demand = record["tasks"], record.get("beside", ""), record.get("demand")
        if self.state == QUEUED:
            self.attempt += 1
            self.state, self.serial, self.beside = LAUNCHING, 0, beside
            self.start_s, self.why, self.outcome, self.executors = math.nan, "", "", {}
            if not self.spec.elastic:
                self.demands = {} if demand is None else {-1: demand}
                for progress in self.groups:
                    progress.todo, progress.done, progress.failed = [], 0, 0
        self.serial += len(tasks)
        launched = f"{len(tasks)} task{' is' if len(tasks) == 1 else 's are'} launched"
        launched += f" on {record.get('where') or 'agents'}"
        launched += f" (attempt {self.attempt})" if self.attempt > 1 else ""
        self.log(record["time_s"], launched + (f", beside {beside} as a guest" if beside else ""))
        if self.spec.elastic:
            first = [index for _, group, index, *_ in tasks if group == 0]
            for index in first:
                self.demands.pop(index, None)
            if not beside:
                self.guests.difference_update(first)
                return
            self.guests.update(first)
            if demand is not None:  # earlier versions knew of pairs alone
                self.demands.update(dict.fromkeys(first, demand))

    def queue_again(self, record: Record) -> None:
        """All of its tasks are gone, and it waits for another attempt."""
        self.log(record.get("time_s"), "it waits again")
        self.state, self.outcome, self.why, self.beside = QUEUED, "", record["text"], ""
        self.retries += record["retries"]
        self.false_starts += record.get("false_starts", 1 - record["retries"])
        self.hold_until_s = max(self.hold_until_s, record["until_s"])
        self.start_s, self.extended_s, self.executors = math.nan, 0.0, {}
        if not self.spec.elastic:
            self.demands = {}
            for progress, group in zip(self.groups, self.spec.groups, strict=True):
                progress.todo, progress.target = list(range(group.tasks)), group.tasks
                progress.done = progress.failed = 0

    def end_task(self, task: Task, record: Record) -> None:
        """One of its tasks is over; `again` in the record: it is to be run once more."""
        del self.tasks[task.task_id]
        progress = self.groups[task.group]
        progress.alive -= 1
        state, why, again = record["state"], record.get("text", ""), record.get("again")
        if state == "TASK_FINISHED":
            progress.done += 1
        elif again:
            bisect.insort(progress.todo, task.index)
            if record.get("lost"):
                progress.lost[task.index] = progress.lost.get(task.index, 0) + 1
        elif state in ("TASK_FAILED", "TASK_ERROR"):
            progress.failed += 1
        self.endings.append(
            {
                "task": task.task_id,
                "group": self.spec.groups[task.group].name,
                "index": task.index,
                "host": task.host,
                "state": state,
                "time_s": record["time_s"],
                "exit": record.get("exit"),
                "why": why,
                "agent": task.agent,
            }
        )
        del self.endings[:-ENDINGS_KEPT]
        if self.spec.elastic:
            self.executors.pop(task.executor, None)
            if self.state != STOPPING and state not in ("TASK_FINISHED", "TASK_KILLED"):
                became = "was lost" if again else "has failed"
                self.log(record["time_s"], f"{unit_of(self, task)} on {task.host} {became}: {why or state}")


@dataclass(slots=True)
class Ending:
    """A unit (a rigid job, or a task of an elastic one) that ran and has ended."""

    unit: str
    end_s: float
    start_s: float
    completed: bool


STATED = [column.name for column in fields(Job) if str(column.type) in ("int", "float", "str")][3:]
"""Of a job that has got on, without its id, number and time: what its record has by name."""
UNKNOWN = {"hold_until_s": -math.inf, "start_s": math.nan, "end_s": math.nan}
"""Those of them that a record may have as null, for JSON has no such numbers."""
NESTED: dict[str, Callable[[Any], Any]] = {
    "groups": lambda plain: [
        Progress(
            list(one["todo"]),
            one["target"],
            done=one["done"],
            failed=one["failed"],
            lost={int(index): count for index, count in one["lost"].items()},
        )
        for one in plain
    ],
    "guests": set,
    "demands": lambda plain: {int(index): demand for index, demand in plain.items()},
    "executors": lambda plain: {name: Executor(*columns) for name, columns in plain.items()},
    "endings": list,
    "story": list,
}
"""What is not one value → how it is read."""


def job_from_record(record: Record) -> Job:
    """A job as it stood when that was recorded, without its tasks. Raises KeyError and the like for nonsense."""
    spec = spec_from_json(record["spec"])
    groups = [Progress(list(range(group.tasks)), group.tasks) for group in spec.groups]
    job = Job(record["job"], record["number"], spec, record["submit_s"], groups)
    job.usage, job.needs = usage_of(spec, record["spec"]), [need(group) for group in spec.groups]
    for name, value in record.get("state", {}).items():
        if name in NESTED:
            setattr(job, name, NESTED[name](value))
        elif name in STATED:
            setattr(job, name, UNKNOWN.get(name) if value is None else value)
        elif name != "tasks":
            raise KeyError(f"a job has no {name!r:.40}")
    if len(job.groups) != len(groups):
        raise ValueError(
            f"{job.job_id}: {len(job.groups)} groups are not the {len(groups)} of its description"
        )
    return job


def record_of(job: Job) -> Record:
    """A job as it stands, as one record."""
    state = {name: finite(getattr(job, name)) for name in STATED} | {
        "guests": sorted(job.guests),
        "endings": job.endings,
        "story": job.story,
        "executors": {name: list(executor) for name, executor in job.executors.items()},
        "groups": [
            {
                "todo": progress.todo,
                "target": progress.target,
                "done": progress.done,
                "failed": progress.failed,
                "lost": {str(index): count for index, count in progress.lost.items()},
            }
            for progress in job.groups
        ],
        "tasks": [
            [
                *(task.task_id, task.group, task.index, task.agent, task.host, task.revocable),
                *(task.launch_s, task.extended_s, task.executor, task.inside),
            ]
            for task in job.tasks.values()
        ],
    }
    if job.demands:
        state["demands"] = {str(index): demand for index, demand in job.demands.items()}
    return {
        "what": "job",
        "job": job.job_id,
        "number": job.number,
        "spec": job.spec.to_json(),
        "submit_s": job.submit_s,
        "state": state,
    }


def finite(value: Any) -> Any:
    """For a record: JSON has neither infinity nor NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def unit_of(job: Job, task: Task) -> str:
    """What a task is a part of, for whoever looks at the cluster: its job, or itself in an elastic one."""
    return task_unit(job, task.group, task.index) if job.spec.elastic else job.job_id


def task_unit(job: Job, group: int, index: int) -> str:
    """Of a task of an elastic job, named as one of an array: `m1_3`, of another group than the first `m1.server_3`."""
    return f"{job.job_id}_{index}" if group == 0 else f"{job.job_id}.{job.spec.groups[group].name}_{index}"


def job_of(unit: str) -> str:
    """The job that a unit is, or is a task of."""
    return re.split(r"[_.]", unit, maxsplit=1)[0]


class State:
    """All jobs and tasks of ours, and the agents. Not thread-safe."""

    def __init__(self) -> None:
        self.framework_id = ""
        self.tearing = ""
        """Why the framework is being torn down; empty if it is not."""
        self.jobs: dict[str, Job] = {}
        """Those that have not ended."""
        self.ended: dict[str, Job] = {}
        """The last that have."""
        self.usage: dict[int, Usage] = {}
        """By number of a user: what his jobs that have not ended take up."""
        self.usage_of_all = Usage()
        self.tasks: dict[str, Task] = {}
        self.agents = Agents()
        self.endings: list[Ending] = []
        """Units that have ended since somebody took them."""
        self.last_number = 0
        self.connected = False
        """Is there a master? Nothing is sent while there is none."""
        self.sentences = Sentences()
        """What went wrong."""
        self.unheard: dict[str, tuple[float, float]] = {}
        """Task → when it is asked for next, and how long after that again."""
        self.kills: dict[str, float] = {}
        """Task → when its end was asked for; −inf: it is to be asked for anew."""
        self.unreachable: dict[str, float] = {}
        """Task → since when its agent cannot be reached."""
        self._order: list[tuple[float, int, str]] = []
        """Jobs that may want tasks: (-priority, number, id), sorted."""
        self._records: list[Record] = []

    def restore(self, records: Iterable[Record]) -> None:
        """Apply what an earlier one has recorded, in its order. Raises KeyError and the like for nonsense."""
        for record in records:
            self._apply(record)
        for job in (*self.jobs.values(), *self.ended.values()):
            for part in (job, *job.tasks.values(), *job.groups):
                require_kinds(part)
        self._records.clear()
        self.endings.clear()

    def dump(self) -> list[Record]:
        """Records of all that matters: a shorter journal."""
        first = {"what": "framework", "id": self.framework_id, "number": self.last_number}
        first |= self.addresses_of(task.agent for task in self.tasks.values())
        records: list[Record] = [first | ({"teardown": self.tearing} if self.tearing else {})]
        records += [record_of(job) for job in (*self.ended.values(), *self.jobs.values())]
        return records

    def addresses_of(self, agents: Iterable[str]) -> Record:
        """A part of a record: where these agents are, as far as that says more than the names of their hosts. An agent
        that is full offers nothing, so a successor would not learn it."""
        known = self.agents
        rows = sorted({known.number[agent] for agent in agents})
        places = {known.ids[row]: [known.hosts[row], known.addresses[row]] for row in rows}
        places = {agent: place for agent, place in places.items() if place[0] != place[1]}
        return {"agents": places} if places else {}

    def job(self, job_id: str) -> Job:
        """A job by its id. Raises UsageError."""
        found = self.jobs.get(job_id) or self.ended.get(job_id)
        if found is None:
            shown = "".join(c for c in job_id[:40] if c.isprintable())
            raise UsageError(f"{shown!r}: there is no such job; `asactl jobs` lists those that there are")
        return found

    def listed(self) -> Iterator[tuple[float, int, Job]]:
        """(-priority, number, job) of all that have not ended, in the order in which offers are dealt out."""
        for priority, number, job_id in self._order:
            yield priority, number, self.jobs[job_id]

    def note(self, **record: Any) -> None:
        """Record a change, and make it."""
        self._records.append(record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        """Make a change that was recorded, now or by an earlier one."""
        for agent, (host, address) in record.get("agents", {}).items():
            self.agents.know(agent, host, address)
        match record["what"]:
            case "framework":
                self.framework_id = record["id"]
                self.last_number = max(self.last_number, record.get("number", 0))
                self.tearing = record.get("teardown", "")
            case "teardown":
                self.tearing = record["text"]
            case "job":
                self._apply_job(record)
            case "end":
                self._apply_end(record)
            case what:
                self._apply_to(self.jobs[record["job"]], what, record)

    def _apply_to(self, job: Job, what: str, record: Record) -> None:
        match what:
            case "launch":
                job.launch(record)
                for plain in record["tasks"]:
                    self._add_task(job, plain, record["time_s"])
            case "executors":
                job.executors |= NESTED["executors"](record["executors"])
            case "open":
                job.executors[record["executor"]] = job.executors[record["executor"]]._replace(open=True)
            case "started":
                job.state, job.start_s = RUNNING, record["time_s"]
                job.log(job.start_s, "it runs" if job.spec.elastic else "all of its tasks run")
            case "stopping":
                job.state, job.outcome, job.why = STOPPING, record["outcome"], record["text"]
                if job.why:
                    job.log(record.get("time_s"), job.why)
                for task_id in job.tasks:
                    self.kills.setdefault(task_id, -math.inf)
            case "queued":
                job.queue_again(record)
            case "over":
                job.state, job.end_s, job.why = record["state"], record["time_s"], record["text"]
                job.log(job.end_s, f"it has ended: {job.state}")
                self._forget(job)
            case "held":
                job.hold_until_s = -math.inf if record["until_s"] is None else record["until_s"]
            case "priority":
                self._unlist(job)
                job.priority = record["priority"]
                self._list(job)
            case "extended":
                extends = job.tasks.get(record.get("task", ""), job)
                extends.extended_s += record["by_s"]
            case "target":
                progress, name = job.groups[record["group"]], job.spec.groups[record["group"]].name
                if progress.target != record["tasks"]:
                    progress.target = record["tasks"]
                    most = f"at most {progress.target} of {name} at one time from now on"
                    job.log(record.get("time_s"), most)
            case _:
                raise KeyError(f"record of an unknown kind {what!r:.40}")

    def _apply_job(self, record: Record) -> None:
        job = job_from_record(record)
        self.last_number = max(self.last_number, job.number)
        if job.state not in ALIVE:
            self._keep_ended(job)
            return
        self.jobs[job.job_id] = job
        self._count(job, 1)
        for plain in record.get("state", {}).get("tasks", ()):
            self._add_task(job, [*plain[:6], *plain[8:]], plain[6])
            self.tasks[plain[0]].extended_s = plain[7]
        self._list(job)

    def _add_task(self, job: Job, plain: Sequence[Any], launch_s: float) -> None:
        task_id, group, index, agent, host, revocable = plain[:6]
        executor, inside = (*plain[6:8], "", "")[:2]  # earlier versions did not say
        task = Task(task_id, job.job_id, group, index, agent, host, revocable, launch_s, executor, inside)
        job.tasks[task_id] = self.tasks[task_id] = task
        progress = job.groups[group]
        progress.alive += 1
        if index in progress.todo:
            progress.todo.remove(index)
        row = self.agents.know(agent, host)
        if not revocable:
            self.agents.used[:, row] += self._takes(job, task)
            np.maximum(self.agents.total[:, row], self.agents.used[:, row], out=self.agents.total[:, row])
        if job.state == STOPPING:
            self.kills[task_id] = -math.inf
        self.unheard[task_id] = (launch_s + ASK_FIRST_S, ASK_FIRST_S)

    def _takes(self, job: Job, task: Task) -> NDArray[np.int64]:
        """What a task holds of its agent's regular resources."""
        amounts = job.needs[task.group]
        if task.inside:
            amounts = amounts.copy()
            amounts[CPUS] = 0
        return amounts

    def _apply_end(self, record: Record) -> None:
        task = self.tasks.pop(record["task"])
        job = self.jobs[task.job]
        for known in (self.unheard, self.kills, self.unreachable):
            known.pop(task.task_id, None)
        if not task.revocable:
            self.agents.used[:, self.agents.number[task.agent]] -= self._takes(job, task)
        job.end_task(task, record)
        if job.spec.elastic and not math.isnan(task.start_s) and not record.get("again"):
            completed = record["state"] == "TASK_FINISHED"
            self.endings.append(Ending(unit_of(job, task), record["time_s"], task.start_s, completed))

    def _forget(self, job: Job) -> None:
        if not job.spec.elastic and not math.isnan(job.start_s):
            self.endings.append(Ending(job.job_id, job.end_s, job.start_s, job.state == COMPLETED))
        self._unlist(job)
        del self.jobs[job.job_id]
        self._count(job, -1)
        self._keep_ended(job)

    def _count(self, job: Job, sign: int) -> None:
        """Its user, and all together, have so much more or less."""
        self.usage_of_all = self.usage_of_all.plus(job.usage, sign)
        mine = self.usage.get(job.spec.uid, Usage()).plus(job.usage, sign)
        if mine.jobs:
            self.usage[job.spec.uid] = mine
        else:
            self.usage.pop(job.spec.uid, None)

    def _keep_ended(self, job: Job) -> None:
        for progress in job.groups:
            progress.todo = []  # a list of a hundred thousand numbers that nobody asks for any more
        job.spec = job.spec.shortened()
        self.ended[job.job_id] = job
        while len(self.ended) > ENDED_KEPT:
            del self.ended[next(iter(self.ended))]

    def _list(self, job: Job) -> None:
        bisect.insort(self._order, (-job.priority, job.number, job.job_id))

    def _unlist(self, job: Job) -> None:
        del self._order[bisect.bisect_left(self._order, (-job.priority, job.number, job.job_id))]

"""The framework as a pure state machine: events and the time come in, records and calls go out.

No I/O, no clock, no chance. Whatever changes a job or a task is a record, and is applied as one: the caller brings the
records to the disk before it sends the calls, and a successor that applies them again knows the same. So no task is
launched that nobody remembers, and no update is acknowledged that could be forgotten.

Mesos has no gangs. Offers are withheld in one pool, and the pool is dealt out anew each time, job after job in one
total order: what the first job that does not fit yet could use is kept for it, later jobs get what is left. No job owns
an offer, so two halves of gangs cannot wait for each other within the framework; and every offer is given back after
`hold_s`, so that they cannot with other frameworks either.

A gang that loses a task that it needs is stopped as a whole and queued again. The model is the worker state machine of
dask.distributed: an error carries the story of how it came to be.
"""

from __future__ import annotations

import bisect
import math
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.errors import ClusterError, UsageError
from asad_mesos import launch
from asad_mesos.jobs import Spec, spec_from_json
from asad_mesos.launch import Call
from asad_mesos.offers import MEM, Agents, Offer, draw, fit, need, thousandths

Record = dict[str, Any]

QUEUED, LAUNCHING, RUNNING, STOPPING = "queued", "launching", "running", "stopping"
COMPLETED, FAILED, CANCELLED, TIMEOUT = "completed", "failed", "cancelled", "timeout"
ALIVE = (QUEUED, LAUNCHING, RUNNING, STOPPING)

LOST_STATES = frozenset(("TASK_LOST", "TASK_DROPPED", "TASK_GONE", "TASK_GONE_BY_OPERATOR", "TASK_UNKNOWN"))
OVER_STATES = LOST_STATES | {"TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_ERROR"}
STARTED_STATES = frozenset(("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"))
OURS = frozenset(
    (
        "REASON_COMMAND_EXECUTOR_FAILED",
        "REASON_CONTAINER_LIMITATION",
        "REASON_CONTAINER_LIMITATION_DISK",
        "REASON_CONTAINER_LIMITATION_MEMORY",
        "REASON_MAX_COMPLETION_TIME_REACHED",
    )
)
"""Reasons of TASK_FAILED for which the task itself is to blame, and another attempt would end alike."""

PASS_S = 0.05
"""The pool is dealt out no more often than this, however offers trickle in."""
HOLD_MARGIN = 0.2
"""Offers are given back this part of `hold_s` before the bound (at most `HOLD_MARGIN_S`): a call takes its time."""
HOLD_MARGIN_S = 2.0
HOLD_SPREAD = 0.5
"""By up to this part they are given back earlier, differently each time."""
ASK_FIRST_S, ASK_MOST_S = 10.0, 300.0
"""A task that nothing was heard of is asked for after this, and then less and less often."""
ASK_ALL_S = 600.0
"""The master is asked for all tasks this often."""
KILL_AGAIN_S = 10.0
"""A kill that shows nothing is said again after this, beyond its grace."""
PASS_TASKS = 4000
"""No more tasks than this are launched at once."""
LOOK_S = 0.5
"""Limits, kills and silent tasks are looked at this often."""
REVIVE_S = 1.0
FALSE_STARTS = 100
"""So often a job may be queued again without any task having started."""
MOST_WAIT_S = 60.0
CHUNK = 1000
"""Offers or tasks in one call."""
ENDED_KEPT = 1000
STORY = 200


class Options(NamedTuple):
    """Out of `[mesos]`; the same names."""

    hold_s: float = 30.0
    refuse_s: float = 5.0
    unreachable_s: float = 300.0
    kill_grace_s: float = 30.0
    retries: int = 3
    executor: str = "asad-mesos-executor"
    executor_memory_mb: float = 32.0
    depth: int = 100
    revocable: bool = True


class FrameworkFault(ClusterError):
    """A fault of ours in the state machine; the message holds the last events."""


# -------------------------------------------------------------------------------------------------------------- events


class Subscribed(NamedTuple):
    """A master has taken us, perhaps again. Every offer of before is void."""

    framework_id: str


class Disconnected(NamedTuple):
    """The connection is gone, or was given up."""


class Offered(NamedTuple):
    """New offers."""

    offers: Sequence[Offer]


class Rescinded(NamedTuple):
    """An offer is not valid any more."""

    offer_id: str


class Updated(NamedTuple):
    """A status update, or an answer to `RECONCILE`, as the master writes it."""

    status: Mapping[str, Any]


class AgentLost(NamedTuple):
    """The master has removed an agent."""

    agent_id: str


class Removed(NamedTuple):
    """The master says that our framework has been removed: Mesos kills its tasks."""

    message: str


class Submitted(NamedTuple):
    """A new job."""

    spec: Spec


class Cancelled(NamedTuple):
    """A job is to end."""

    job: str
    why: str


class Scaled(NamedTuple):
    """So many tasks of each named group of an elastic job are to run at one time; surplus ones are killed."""

    job: str
    tasks: Mapping[str, int]


class Throttled(NamedTuple):
    """At most so many tasks of a group run at one time from now on (0: no bound); running ones go on."""

    job: str
    group: str
    tasks: int


class Held(NamedTuple):
    """A queued job is not placed before `until_s`."""

    job: str
    until_s: float


class Prioritised(NamedTuple):
    """Jobs of higher priority are placed before others."""

    job: str
    priority: float


class Extended(NamedTuple):
    """A running job may run longer, or of an elastic one the task of this unit."""

    job: str
    by_s: float
    unit: str = ""


class Beside(NamedTuple):
    """Start a queued job on these agents, beside a running one, if what they offer now lets it."""

    job: str
    unit: str
    host: str
    agents: Sequence[str]


class Ticked(NamedTuple):
    """Time has passed."""


Event = (
    Subscribed
    | Disconnected
    | Offered
    | Rescinded
    | Updated
    | AgentLost
    | Removed
    | Submitted
    | Cancelled
    | Scaled
    | Throttled
    | Held
    | Prioritised
    | Extended
    | Beside
    | Ticked
)


class Instructions(NamedTuple):
    """What follows from events: first all records are to be brought to the disk, then the calls sent in order."""

    records: list[Record]
    calls: list[Call]


# --------------------------------------------------------------------------------------------------------------- state


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
    state: str = "TASK_STAGING"
    start_s: float = math.nan
    killing: bool = False
    late: bool = False
    """It is killed because its time limit is over."""
    extended_s: float = 0.0


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
    tasks: dict[str, Task] = field(default_factory=dict)
    endings: list[dict[str, Any]] = field(default_factory=list)
    """The last tasks that ended, for `status`."""

    @property
    def limit_end_s(self) -> float:
        """When it is over time."""
        return self.start_s + self.spec.time_limit_s + self.extended_s


@dataclass(slots=True)
class Ending:
    """A unit (a rigid job, or a task of an elastic one) that ran and has ended."""

    unit: str
    end_s: float
    start_s: float
    completed: bool


def unit_of(job: Job, task: Task) -> str:
    """What a task is a part of, for whoever looks at the cluster: its job, or itself in an elastic one."""
    return task_unit(job, task.group, task.index) if job.spec.elastic else job.job_id


def task_unit(job: Job, group: int, index: int) -> str:
    """Of a task of an elastic job, named as one of an array: `m1_3`, of another group than the first `m1.server_3`."""
    return f"{job.job_id}_{index}" if group == 0 else f"{job.job_id}.{job.spec.groups[group].name}_{index}"


class Framework:
    """All jobs and tasks of ours, the agents, and the offers that are withheld.

    `handle` is the only way in, but for `restore` at the start. Not thread-safe.
    """

    def __init__(self, options: Options = Options()) -> None:  # noqa: B008 (a constant tuple)
        self.options = options
        self.framework_id = ""
        self.connected = False
        self.jobs: dict[str, Job] = {}
        """Those that have not ended."""
        self.ended: dict[str, Job] = {}
        """The last that have."""
        self.tasks: dict[str, Task] = {}
        self.agents = Agents()
        self.endings: list[Ending] = []
        """Units that have ended since somebody took them."""
        self.said: list[str] = []
        """Sentences about what went wrong."""
        self.last_number = 0
        self.version = 0
        """Rises with every record and every change of a task's state."""
        self.longest_hold_s = 0.0
        """The longest time that an offer was withheld."""
        self._order: list[tuple[float, int, str]] = []
        """Jobs that may want tasks: (-priority, number, id), sorted."""
        self._records: list[Record] = []
        self._calls: list[Call] = []
        self._story: deque[str] = deque(maxlen=STORY)
        self._dirty = self._revive = False
        self._passed_s = self._revived_s = self._asked_all_s = self._looked_s = -math.inf
        self._unheard: dict[str, tuple[float, float]] = {}
        """Task → when it is asked for next, and how long after that again."""
        self._kills: dict[str, float] = {}
        """Task → when it was told to end."""
        self._unreachable: dict[str, float] = {}
        self._interest: dict[int, float] = {}
        """Agent → until when its offers are kept for a guest."""
        self._possible: dict[str, tuple[int, bool]] = {}
        self._needs: dict[str, list[NDArray[np.int64]]] = {}
        self._gathers = ""
        """The first job that offers are withheld for."""
        self._now_s = -math.inf
        self._rounds = 0
        """How often offers were given back because they had been withheld for long."""

    # ----------------------------------------------------------------------------------------------------- the way in

    def handle(self, *events: Event, now_s: float) -> Instructions:
        """Take events in, in their order, at `now_s` (a clock that does not go back; seconds).

        Raises UsageError for a request that cannot be (then nothing has happened), FrameworkFault for a fault of ours.
        """
        self._now_s = now_s = max(now_s, self._now_s)
        flush = False
        for event in events:
            self._story.append(f"{now_s:.3f} {_told(event)}")
            try:
                self._take(event, now_s)
            except UsageError:
                raise
            except Exception as error:
                story = "\n  ".join(self._story)
                raise FrameworkFault(
                    f"{type(error).__name__}: {error}; the last events:\n  {story}"
                ) from error
            flush = flush or isinstance(event, Ticked | Submitted | Beside)
        if self.connected and self._dirty and (flush or now_s - self._passed_s >= PASS_S):
            self._deal(now_s)
        records, self._records = self._records, []
        calls, self._calls = self._calls, []
        return Instructions(records, calls)

    def restore(self, records: Iterable[Record]) -> None:
        """Apply what an earlier one has recorded, in its order. Raises KeyError and the like for nonsense."""
        for record in records:
            self._apply(record)
        self._records.clear()
        self.endings.clear()

    def dump(self) -> list[Record]:
        """Records that tell all that matters: a shorter journal."""
        records: list[Record] = [{"what": "framework", "id": self.framework_id, "number": self.last_number}]
        records += [_job_record(job) for job in (*self.ended.values(), *self.jobs.values())]
        return records

    def job(self, job_id: str) -> Job:
        """A job by its id. Raises UsageError."""
        found = self.jobs.get(job_id) or self.ended.get(job_id)
        if found is None:
            shown = "".join(c for c in job_id[:40] if c.isprintable())
            raise UsageError(f"{shown!r}: there is no such job; `asactl jobs` lists those that there are")
        return found

    def hopeless(self, job: Job) -> bool:
        """Does it wait for more than all agents that were seen have?"""
        known = self._possible.get(job.job_id)
        return known is not None and known == (self.agents.version, False)

    def needs(self, job: Job) -> list[NDArray[np.int64]]:
        """By group, what one task takes (`offers.NAMES`, in thousandths). Of a job that has not ended."""
        return self._needs[job.job_id]

    @property
    def withheld(self) -> int:
        """Offers that are withheld now."""
        return len(self.agents.offers)

    @property
    def gathers_for(self) -> str:
        """The first job that does not fit yet, "" for none."""
        return self._gathers

    def _take(self, event: Event, now_s: float) -> None:
        match event:
            case Offered():
                for offer in event.offers:
                    self.agents.add(offer, now_s)
                self._dirty = True
            case Updated():
                self._update(event.status, now_s)
            case Rescinded():
                self.agents.remove(event.offer_id)
                self._dirty = True
            case Ticked():
                self._tick(now_s)
            case Subscribed():
                self._subscribed(event.framework_id, now_s)
            case Disconnected():
                self.connected = False
                self.agents.clear()
            case AgentLost():
                self.agents.lose(event.agent_id)
                for task in self.tasks.values():
                    if task.agent == event.agent_id:
                        self._unheard.setdefault(task.task_id, (now_s, ASK_FIRST_S))
            case Removed():
                self._removed(event.message, now_s)
            case Submitted():
                number = self.last_number + 1
                spec = event.spec.to_json()
                spec_from_json(spec)  # what a successor could not read is not taken
                self._note(what="job", job=f"m{number}", number=number, spec=spec, submit_s=now_s)
                self._wake()
            case Cancelled():
                self._cancel(self.job(event.job), event.why, now_s)
            case Scaled():
                self._scale(self.job(event.job), event.tasks, now_s)
            case Throttled():
                job = self.job(event.job)
                self._set_target(
                    job, event.group, event.tasks or job.spec.groups[self._group(job, event.group)].tasks
                )
            case Held():
                self._note(what="held", job=self.job(event.job).job_id, until_s=_finite(event.until_s))
                self._wake()
            case Prioritised():
                self._note(what="priority", job=self.job(event.job).job_id, priority=event.priority)
                self._dirty = True
            case Extended():
                job = self.job(event.job)
                found = [task.task_id for task in job.tasks.values() if unit_of(job, task) == event.unit]
                task_id = found[0] if job.spec.elastic and found else ""
                self._note(what="extended", job=job.job_id, by_s=event.by_s, task=task_id)
            case Beside():
                self._beside(event, now_s)

    # ---------------------------------------------------------------------------------------------------- records

    def _note(self, **record: Any) -> None:
        """Record a change, and make it."""
        self._records.append(record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        """Make a change that was recorded, now or by an earlier one."""
        self.version += 1
        what = record["what"]
        if what == "framework":
            self.framework_id = record["id"]
            self.last_number = max(self.last_number, record.get("number", 0))
            return
        if what == "job":
            self._apply_job(record)
            return
        if what == "end":
            self._apply_end(record)
            return
        job = self.jobs[record["job"]]
        if what == "launch":
            self._apply_launch(job, record)
        elif what == "started":
            job.start_s = record["time_s"]
            job.state = RUNNING
        elif what == "stopping":
            job.state, job.outcome, job.why = STOPPING, record["outcome"], record["text"]
            for task_id in job.tasks:
                self._kills.setdefault(task_id, -math.inf)
        elif what == "queued":
            self._requeue(job, record)
        elif what == "over":
            job.state, job.end_s, job.why = record["state"], record["time_s"], record["text"]
            self._forget(job)
        elif what == "held":
            job.hold_until_s = -math.inf if record["until_s"] is None else record["until_s"]
        elif what == "priority":
            self._unlist(job)
            job.priority = record["priority"]
            self._list(job)
        elif what == "extended":
            extends = job.tasks.get(record.get("task", ""), job)
            extends.extended_s += record["by_s"]
        elif what == "target":
            job.groups[record["group"]].target = record["tasks"]
        else:
            raise KeyError(f"record of an unknown kind {what!r:.40}")

    def _apply_job(self, record: Record) -> None:
        spec = spec_from_json(record["spec"])
        job = Job(
            record["job"],
            record["number"],
            spec,
            record["submit_s"],
            [Progress(list(range(group.tasks)), group.tasks) for group in spec.groups],
        )
        self.last_number = max(self.last_number, job.number)
        for name, value in record.get("state", {}).items():
            if name == "groups":
                for progress, plain in zip(job.groups, value, strict=True):
                    progress.todo, progress.target = list(plain["todo"]), plain["target"]
                    progress.done, progress.failed = plain["done"], plain["failed"]
                    progress.lost = {int(index): count for index, count in plain["lost"].items()}
            elif name == "guests":
                job.guests = set(value)
            elif name not in ("tasks", "endings"):
                numbers = ("start_s", "end_s", "hold_until_s")
                empty = -math.inf if name == "hold_until_s" else math.nan
                setattr(job, name, empty if value is None and name in numbers else value)
        job.endings = list(record.get("state", {}).get("endings", ()))
        if job.state in ALIVE:
            self.jobs[job.job_id] = job
            self._needs[job.job_id] = [need(group) for group in spec.groups]
            for plain in record.get("state", {}).get("tasks", ()):
                self._add_task(job, plain[:6], plain[6])
                self.tasks[plain[0]].extended_s = plain[7]
            self._list(job)
        else:
            self._keep_ended(job)

    def _apply_launch(self, job: Job, record: Record) -> None:
        if job.state == QUEUED:
            job.attempt += 1
            job.serial = 0
            job.state = LAUNCHING
            job.start_s, job.why, job.outcome = math.nan, "", ""
            job.beside = record.get("beside", "")
            if not job.spec.elastic:
                for progress in job.groups:
                    progress.todo, progress.done, progress.failed = [], 0, 0
        for plain in record["tasks"]:
            self._add_task(job, plain, record["time_s"])
            job.serial += 1
        if job.spec.elastic:
            if record.get("beside"):
                job.guests.update(plain[2] for plain in record["tasks"])
            else:
                job.guests.difference_update(plain[2] for plain in record["tasks"] if plain[1] == 0)

    def _add_task(self, job: Job, plain: Sequence[Any], launch_s: float) -> None:
        task_id, group, index, agent, host, revocable = plain
        task = Task(task_id, job.job_id, group, index, agent, host, revocable, launch_s)
        job.tasks[task_id] = self.tasks[task_id] = task
        progress = job.groups[group]
        progress.alive += 1
        if index in progress.todo:
            progress.todo.remove(index)
        row = self.agents.know(agent, host)
        if not revocable:
            self.agents.used[:, row] += self._needs[job.job_id][group]
            np.maximum(self.agents.total[:, row], self.agents.used[:, row], out=self.agents.total[:, row])
        if job.state == STOPPING:
            self._kills[task_id] = -math.inf
        self._unheard[task_id] = (launch_s + ASK_FIRST_S, ASK_FIRST_S)

    def _apply_end(self, record: Record) -> None:
        task = self.tasks.pop(record["task"])
        job = self.jobs[task.job]
        del job.tasks[task.task_id]
        for known in (self._unheard, self._kills, self._unreachable):
            known.pop(task.task_id, None)
        progress = job.groups[task.group]
        progress.alive -= 1
        if not task.revocable:
            self.agents.used[:, self.agents.number[task.agent]] -= self._needs[job.job_id][task.group]
        if record["state"] == "TASK_FINISHED":
            progress.done += 1
        elif record.get("again"):
            bisect.insort(progress.todo, task.index)
            if record.get("lost"):
                progress.lost[task.index] = progress.lost.get(task.index, 0) + 1
        elif record["state"] in ("TASK_FAILED", "TASK_ERROR"):
            progress.failed += 1
        job.endings.append(
            {
                "task": task.task_id,
                "group": job.spec.groups[task.group].name,
                "index": task.index,
                "host": task.host,
                "state": record["state"],
                "time_s": record["time_s"],
                "exit": record.get("exit"),
                "why": record.get("text", ""),
            }
        )
        del job.endings[:-16]
        if job.spec.elastic and not math.isnan(task.start_s):
            completed = record["state"] == "TASK_FINISHED"
            if not record.get("again"):
                self.endings.append(Ending(unit_of(job, task), record["time_s"], task.start_s, completed))
        self._dirty = True

    def _requeue(self, job: Job, record: Record) -> None:
        job.state = QUEUED
        job.retries += record["retries"]
        job.false_starts += 1 - record["retries"]
        job.hold_until_s = max(job.hold_until_s, record["until_s"])
        job.start_s, job.outcome, job.why, job.beside = math.nan, "", record["text"], ""
        job.extended_s = 0.0
        if not job.spec.elastic:
            for progress, group in zip(job.groups, job.spec.groups, strict=True):
                progress.todo, progress.target = list(range(group.tasks)), group.tasks
                progress.done = progress.failed = 0

    def _forget(self, job: Job) -> None:
        if not job.spec.elastic and not math.isnan(job.start_s):
            self.endings.append(Ending(job.job_id, job.end_s, job.start_s, job.state == COMPLETED))
        self._unlist(job)
        del self.jobs[job.job_id]
        self._needs.pop(job.job_id, None)
        self._possible.pop(job.job_id, None)
        self._keep_ended(job)

    def _keep_ended(self, job: Job) -> None:
        self.ended[job.job_id] = job
        while len(self.ended) > ENDED_KEPT:
            del self.ended[next(iter(self.ended))]

    def _list(self, job: Job) -> None:
        bisect.insort(self._order, (-job.priority, job.number, job.job_id))

    def _unlist(self, job: Job) -> None:
        entry = (-job.priority, job.number, job.job_id)
        at = bisect.bisect_left(self._order, entry)
        if at < len(self._order) and self._order[at] == entry:
            del self._order[at]

    # ------------------------------------------------------------------------------------------------- connection

    def _subscribed(self, framework_id: str, now_s: float) -> None:
        if framework_id != self.framework_id:
            self._note(what="framework", id=framework_id)
        self.connected = True
        self.agents.clear()
        self._dirty = True
        self._ask(self.tasks, now_s)
        self._ask_all(now_s)
        for task_id in self._kills:
            self._kills[task_id] = -math.inf

    def _ask(self, task_ids: Iterable[str], now_s: float) -> None:
        asked = [(task_id, self.tasks[task_id].agent) for task_id in task_ids if task_id in self.tasks]
        for task_id, _ in asked:
            _, wait_s = self._unheard.get(task_id, (0.0, ASK_FIRST_S))
            self._unheard[task_id] = (now_s + wait_s, min(2 * wait_s, ASK_MOST_S))
        for at in range(0, len(asked), CHUNK):
            self._calls.append(launch.reconcile(asked[at : at + CHUNK]))

    def _ask_all(self, now_s: float) -> None:
        self._asked_all_s = now_s
        self._calls.append(launch.reconcile([]))

    def _removed(self, message: str, now_s: float) -> None:
        """Our id is of no use any more: whatever ran under it is being killed. All that ran is queued again."""
        self._say(
            f"Mesos has removed the framework {self.framework_id} ({_clean(message)}); it subscribes anew"
        )
        self.connected = False
        self.agents.clear()
        self._note(what="framework", id="")
        for task in list(self.tasks.values()):
            if task.task_id in self.tasks:
                self._over(task, "TASK_GONE", "the framework was removed", None, now_s)

    def _tick(self, now_s: float) -> None:
        self._give_back(now_s)
        if self.connected and self._revive and now_s - self._revived_s >= REVIVE_S:
            self._revive_now(now_s)
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for task_id, since_s in list(self._unreachable.items()):
            if now_s - since_s >= self.options.unreachable_s and task_id in self.tasks:
                self._over(self.tasks[task_id], "TASK_LOST", "its agent could not be reached", None, now_s)
        for job in list(self.jobs.values()):
            if -math.inf < job.hold_until_s <= now_s:
                self._note(what="held", job=job.job_id, until_s=None)
                self._wake()
            if job.state != RUNNING or math.isinf(job.spec.time_limit_s):
                continue
            if not job.spec.elastic:
                if now_s >= job.limit_end_s:
                    self._stop(job, TIMEOUT, "its time limit is over", now_s)
                continue
            for task in list(job.tasks.values()):
                if now_s >= task.start_s + job.spec.time_limit_s + task.extended_s and not task.killing:
                    task.late = True
                    self._kill(task, now_s)
        if self.connected:
            self._ask([task for task, (due_s, _) in self._unheard.items() if due_s <= now_s], now_s)
            if now_s - self._asked_all_s >= ASK_ALL_S:
                self._ask_all(now_s)
                self.agents.look_anew()
            again_s = now_s - self.options.kill_grace_s - KILL_AGAIN_S
            for task_id, told_s in list(self._kills.items()):
                if told_s <= again_s:
                    self._kill(self.tasks[task_id], now_s)

    def _give_back(self, now_s: float) -> None:
        """Let go what has been withheld for as long as it may be."""
        hold_s = self.options.hold_s
        bound_s = hold_s - min(HOLD_MARGIN * hold_s, HOLD_MARGIN_S)
        # were it always as long, two frameworks with half a gang each could change places for ever
        chance = zlib.crc32(f"{self.framework_id} {self._rounds}".encode()) / 2**32
        bound_s *= 1.0 - HOLD_SPREAD * chance
        due = []
        for offer_id, (_, since_s) in self.agents.offers.items():
            if now_s - since_s < bound_s:
                break
            due.append(offer_id)
        if due:
            self._rounds += 1
            self._decline(due, self.options.refuse_s, now_s)
            self._revive = True
            self._revived_s = now_s + self.options.refuse_s  # others shall have their turn first

    def _wake(self) -> None:
        """Somebody wants offers: those that were declined before too."""
        self._dirty = self._revive = True

    def _revive_now(self, now_s: float) -> None:
        self._revive = False
        self._revived_s = now_s
        if any(self._wants(job, now_s) for *_, job in self.listed()):
            self._calls.append({"type": "REVIVE"})

    def _decline(self, offer_ids: Sequence[str], refuse_s: float, now_s: float) -> None:
        for offer_id in offer_ids:
            self.longest_hold_s = max(self.longest_hold_s, now_s - self.agents.offers[offer_id][1])
            self.agents.remove(offer_id)
        for at in range(0, len(offer_ids), CHUNK):
            self._calls.append(launch.decline(offer_ids[at : at + CHUNK], refuse_s))

    def _say(self, sentence: str) -> None:
        self.said.append(sentence)
        del self.said[:-1000]

    # ------------------------------------------------------------------------------------------------------- updates

    def _update(self, status: Mapping[str, Any], now_s: float) -> None:
        task_id, state = str(status["task_id"]["value"]), str(status["state"])
        task = self.tasks.get(task_id)
        if task is not None:
            self._unheard.pop(task_id, None)
            self._see(task, state, status, now_s)
        elif state not in OVER_STATES and state != "TASK_UNREACHABLE" and "agent_id" in status:
            # it was given up, or belongs to a journal that was lost: it must not run beside its successor
            self._say(f"{_clean(task_id)}: it runs although it was given up; it is killed")
            self._calls.append(launch.kill(task_id, str(status["agent_id"]["value"]), 0.0))
        if "uuid" in status and "agent_id" in status:
            self._calls.append(launch.acknowledge(status))

    def _see(self, task: Task, state: str, status: Mapping[str, Any], now_s: float) -> None:
        text = _clean(str(status.get("message", "")))
        if state in OVER_STATES:
            if state == "TASK_FAILED" and _not_to_blame(status):
                state = "TASK_LOST"
                text = text or str(status.get("reason", ""))
            self._over(task, state, text, status, now_s)
            return
        if state == "TASK_UNREACHABLE":
            self._unreachable.setdefault(task.task_id, now_s)
        else:
            self._unreachable.pop(task.task_id, None)
        if state != task.state:
            task.state = state
            self.version += 1
        job = self.jobs[task.job]
        if state in ("TASK_RUNNING", "TASK_KILLING") and math.isnan(task.start_s):
            task.start_s = now_s
            if job.state == LAUNCHING and self._all_run(job):
                self._note(what="started", job=job.job_id, time_s=now_s)
        if task.killing and state == "TASK_RUNNING" and task.task_id not in self._kills:
            self._kill(task, now_s)

    def _all_run(self, job: Job) -> bool:
        return job.spec.elastic or all(not math.isnan(task.start_s) for task in job.tasks.values())

    def _over(
        self, task: Task, state: str, text: str, status: Mapping[str, Any] | None, now_s: float
    ) -> None:
        """A task is over; what that means for its job."""
        job = self.jobs[task.job]
        if task.late and state == "TASK_KILLED":
            state, text = "TASK_FAILED", "its time limit is over"
        started = task.state in STARTED_STATES or not math.isnan(task.start_s)
        lost = state in LOST_STATES or (state == "TASK_KILLED" and not task.killing)
        elastic = job.spec.elastic and job.state != STOPPING
        again = elastic and (lost or (state == "TASK_KILLED" and task.killing))
        if (
            again
            and lost
            and started
            and job.groups[task.group].lost.get(task.index, 0) >= self._retries(job)
        ):
            again = False
        self._note(
            what="end",
            task=task.task_id,
            state=state,
            time_s=now_s,
            exit=_exit_of(status),
            text=text,
            again=again,
            lost=lost and started,
        )
        name = f"task {task.task_id} on {_clean(task.host)}"
        if job.state == STOPPING:
            if not job.tasks:
                self._conclude(job, now_s)
        elif state == "TASK_FINISHED" or (elastic and state == "TASK_FAILED"):
            self._settle(job, now_s)
        elif state == "TASK_ERROR" or state == "TASK_FAILED":
            self._stop(job, FAILED, f"{name} failed: {text or state}", now_s)
        elif elastic:
            if not again:
                self._stop(
                    job, FAILED, f"{name} was lost {self._retries(job) + 1} times: {text or state}", now_s
                )
            self._wake()
        else:
            self._lose(job, f"{name} was lost: {text or state}", started, now_s)

    def _settle(self, job: Job, now_s: float) -> None:
        """Tasks have ended by themselves: the job is over when all of its first group have."""
        first = job.groups[0]
        if first.alive or first.todo:
            if job.state == LAUNCHING and self._all_run(job):
                self._note(what="started", job=job.job_id, time_s=now_s)
            return
        if math.isnan(job.start_s):  # it was over before the last of it told that it runs
            self._note(what="started", job=job.job_id, time_s=now_s)
        failed = sum(progress.failed for progress in job.groups)
        if failed:
            self._stop(job, FAILED, f"{failed} of its tasks failed", now_s)
        else:
            self._stop(job, COMPLETED, "", now_s)

    def _retries(self, job: Job) -> int:
        """So often may it be queued again when tasks that ran were lost."""
        return self.options.retries if job.spec.retries < 0 else job.spec.retries

    def _lose(self, job: Job, why: str, started: bool, now_s: float) -> None:
        """A gang has lost a task: the others are killed, and it is queued again."""
        tries = job.retries < self._retries(job) if started else job.false_starts < FALSE_STARTS
        self._say(f"{job.job_id}: {why}; " + ("it is queued again" if tries else "it fails"))
        self._stop(job, QUEUED if tries else FAILED, why, now_s, started)

    def _stop(self, job: Job, outcome: str, why: str, now_s: float, started: bool = True) -> None:
        """End what is left of a job; it becomes `outcome` then."""
        if outcome == QUEUED:
            outcome = "queued" if started else "queued-unstarted"
        self._note(what="stopping", job=job.job_id, outcome=outcome, text=why)
        for task in list(job.tasks.values()):
            self._kill(task, now_s)
        if not job.tasks:
            self._conclude(job, now_s)

    def _conclude(self, job: Job, now_s: float) -> None:
        """The last task of a stopping job is gone."""
        self._dirty = True
        if not job.outcome.startswith("queued"):
            self._note(what="over", job=job.job_id, state=job.outcome, time_s=now_s, text=job.why)
            return
        started = job.outcome == "queued"
        tried = job.retries if started else job.false_starts
        wait_s = min(MOST_WAIT_S, 0.5 * 2.0 ** min(tried, 10))
        self._note(what="queued", job=job.job_id, text=job.why, retries=int(started), until_s=now_s + wait_s)
        self._wake()

    def _kill(self, task: Task, now_s: float) -> None:
        task.killing = True
        self._kills[task.task_id] = now_s if self.connected else -math.inf
        if self.connected:
            self._calls.append(launch.kill(task.task_id, task.agent, self.options.kill_grace_s))

    def _cancel(self, job: Job, why: str, now_s: float) -> None:
        if job.job_id not in self.jobs:
            return
        if job.state == STOPPING:
            self._note(what="stopping", job=job.job_id, outcome=CANCELLED, text=_clean(why))
        else:
            self._stop(job, CANCELLED, _clean(why), now_s)

    # ------------------------------------------------------------------------------------------------------- scaling

    def _group(self, job: Job, name: str) -> int:
        names = [group.name for group in job.spec.groups]
        if name not in names:
            raise UsageError(f"{job.job_id} has no group {name[:40]!r}; there are {', '.join(names)}")
        return names.index(name)

    def _set_target(self, job: Job, name: str, tasks: int) -> int:
        group = self._group(job, name)
        most = job.spec.groups[group].tasks
        if not job.spec.elastic:
            raise UsageError(f"{job.job_id} is a gang, whose size is fixed; submit it as elastic to scale it")
        if not 0 <= tasks <= most:
            raise UsageError(f"{job.job_id}: {tasks} tasks of {name}; give from 0 to {most}")
        if job.job_id not in self.jobs:
            raise UsageError(f"{job.job_id} has ended")
        self._note(what="target", job=job.job_id, group=group, tasks=tasks)
        self._wake()
        return group

    def _scale(self, job: Job, tasks: Mapping[str, int], now_s: float) -> None:
        for name in tasks:  # all or nothing
            if not 0 <= tasks[name] <= job.spec.groups[self._group(job, name)].tasks:
                self._set_target(job, name, tasks[name])
        for name, count in tasks.items():
            group = self._set_target(job, name, count)
            alive = [task for task in job.tasks.values() if task.group == group and not task.killing]
            alive.sort(key=lambda task: (task.launch_s, task.index))
            for task in alive[count:]:
                self._kill(task, now_s)

    # ------------------------------------------------------------------------------------------------------ placing

    def listed(self) -> Iterator[tuple[float, int, Job]]:
        """(-priority, number, job) of all that have not ended, in the order in which offers are dealt out."""
        for priority, number, job_id in self._order:
            yield priority, number, self.jobs[job_id]

    def _wants(self, job: Job, now_s: float) -> list[tuple[int, int, int]]:
        """(group, least, most) of the tasks that a job wants now; none if it wants nothing."""
        if job.hold_until_s > now_s:
            return []
        if job.state == QUEUED:
            if not job.spec.elastic:
                return [(at, group.start_tasks, group.tasks) for at, group in enumerate(job.spec.groups)]
            wanted = []
            for at, (group, progress) in enumerate(zip(job.spec.groups, job.groups, strict=True)):
                most = min(len(progress.todo), progress.target)
                if most == 0 and progress.todo and group.start_tasks:
                    return []  # scaled to nothing
                wanted.append((at, min(group.start_tasks if group.least else 1, most), most))
            return wanted
        if job.spec.elastic and job.state in (LAUNCHING, RUNNING):
            room = [
                (at, 0, min(len(progress.todo), progress.target - progress.alive))
                for at, progress in enumerate(job.groups)
            ]
            return [entry for entry in room if entry[2] > 0]
        return []

    def _deal(self, now_s: float) -> None:
        """Deal the pool out, job after job; launch what fits, keep what a job gathers, give back the rest."""
        self._dirty, self._passed_s, self._gathers = False, now_s, ""
        agents = self.agents
        count = len(agents)
        if not agents.offers:
            return
        free = agents.free[:, :count].copy()
        kept: NDArray[np.bool_] = np.zeros(count, bool)
        plans: list[tuple[Job, list[tuple[int, NDArray[np.int64]]]]] = []
        misses = planned = 0
        for *_, job in self.listed():
            wanted = self._wants(job, now_s)
            if not wanted:
                continue
            placed, fits, there = self._place(job, wanted, free)
            if fits:
                if placed:
                    plans.append((job, placed))
                    planned += sum(int(counts.sum()) for _, counts in placed)
                    if planned >= PASS_TASKS:  # the master can begin with these
                        self._dirty = True
                        break
                continue
            misses += 1
            if self._can_ever(job, wanted):
                self._gathers = self._gathers or job.job_id
                kept |= there
            else:
                for group, counts in placed:  # it hoards nothing that it can never use
                    self._return(job, group, counts, free)
            if misses >= self.options.depth:
                break
        if plans:
            self._launch(plans, misses > 0 or self._dirty, now_s)
        if self._dirty:
            return
        for row, until_s in list(self._interest.items()):
            if until_s <= now_s:
                del self._interest[row]
            else:
                kept[row] = True
        for row in np.flatnonzero(
            self._hosting(count) & (agents.revocable[:, :count].max(axis=0) > 0)
        ).tolist():
            kept[row] = kept[row] or misses > 0
        idle = [
            offer_id
            for offer_id, (offer, _) in agents.offers.items()
            if not kept[agents.number[offer.agent_id]] or offer.unavailable
        ]
        if idle:
            self._decline(idle, self.options.refuse_s, now_s)

    def _hosting(self, count: int) -> NDArray[np.bool_]:
        """Agents on which tasks of ours run, beside which a guest could."""
        return (
            self.agents.used[:, :count].max(axis=0) > 0 if self.options.revocable else np.zeros(count, bool)
        )

    def _executor_memory(self) -> int:
        return thousandths(self.options.executor_memory_mb)

    def _place(
        self, job: Job, wanted: Sequence[tuple[int, int, int]], free: NDArray[np.int64]
    ) -> tuple[list[tuple[int, NDArray[np.int64]]], bool, NDArray[np.bool_]]:
        """(group, tasks by agent), whether all got their least, and the agents concerned. Takes it off `free`."""
        count = free.shape[1]
        charged = np.zeros(count, bool)
        there = np.zeros(count, bool)
        may = None
        if job.spec.attributes:
            may = self.agents.with_attributes(job.spec.attributes)[:count]
        once = 0 if job.spec.elastic else self._executor_memory()
        found: dict[int, NDArray[np.int64]] = {}
        # several groups: what each needs at the least first, or the first would leave the others nothing
        several = len(wanted) > 1 and any(least < most for _, least, most in wanted)
        parts = [(group, least) for group, least, _ in wanted] if several else []
        parts += [(group, most - least if several else most) for group, least, most in wanted]
        for group, tasks in parts:
            apart = job.spec.groups[group].apart
            bars = self._where_not(job, there, may) if apart else may
            counts = fit(free, self._need(job, group), tasks, once, charged, bars, 1 if apart else tasks)
            there |= counts > 0
            found[group] = found[group] + counts if group in found else counts
        fits = all(int(found[group].sum()) >= least for group, least, _ in wanted)
        placed = [(group, counts) for group, counts in found.items() if counts.any()]
        return placed, fits, there

    def _where_not(
        self, job: Job, there: NDArray[np.bool_], may: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_]:
        """Agents on which no task of the job is, or is about to be."""
        free = ~there
        for task in job.tasks.values():
            row = self.agents.number[task.agent]
            if row < len(free):
                free[row] = False
        return free if may is None else free & may

    def _need(self, job: Job, group: int) -> NDArray[np.int64]:
        """What a task takes, with an executor of its own in an elastic job."""
        wanted = self._needs[job.job_id][group]
        if job.spec.elastic:
            wanted = wanted.copy()
            wanted[MEM] += self._executor_memory()
        return wanted

    def _return(self, job: Job, group: int, counts: NDArray[np.int64], free: NDArray[np.int64]) -> None:
        free += self._need(job, group)[:, None] * counts

    def _can_ever(self, job: Job, wanted: Sequence[tuple[int, int, int]]) -> bool:
        """Would it fit if everything that was ever seen were free?"""
        known = self._possible.get(job.job_id)
        if known is not None and known[0] == self.agents.version:
            return known[1]
        _, fits, _ = self._place(job, wanted, self.agents.total[:, : len(self.agents)].copy())
        self._possible[job.job_id] = (self.agents.version, fits)
        return fits

    def _beside(self, event: Beside, now_s: float) -> None:
        job = self.job(event.job)
        wanted = self._wants(job, now_s)
        if job.state == QUEUED and not wanted:
            raise UsageError(f"{event.job} is held")
        if not wanted:
            raise UsageError(f"{event.job} does not wait")
        if job.spec.elastic:
            wanted = [(0, 1, 1)] if wanted[0][0] == 0 and len(job.groups) == 1 else []
        if not wanted:
            raise UsageError(f"{event.job} has several groups, which do not start beside another job")
        rows = [self.agents.number[agent] for agent in event.agents if agent in self.agents.number]
        allowed = np.zeros(len(self.agents), bool)
        allowed[rows] = True
        kinds = (True, False) if self.options.revocable else (False,)
        for revocable in kinds:
            pool = self.agents.revocable if revocable else self.agents.free
            free = np.where(allowed, pool[:, : len(self.agents)], 0)
            if revocable:  # CPU is what is revocable; memory, devices and disk are not
                regular = self.agents.free[:, : len(self.agents)]
                free[MEM:] = np.where(allowed, regular[MEM:], 0) + free[MEM:]
            placed, fits, _ = self._place(job, wanted, free)
            if fits and placed:
                self._launch([(job, placed)], True, now_s, beside=event.host, revocable=revocable)
                return
        until_s = now_s + self.options.hold_s
        for row in rows:
            self._interest[row] = until_s
        self._revive = True
        raise UsageError(
            "the agents of its host have offered nothing that it could run on; they are asked again"
        )

    def _launch(
        self,
        plans: Sequence[tuple[Job, list[tuple[int, NDArray[np.int64]]]]],
        more_wait: bool,
        now_s: float,
        *,
        beside: str = "",
        revocable: bool = False,
    ) -> None:
        """Record tasks, and accept the offers of every agent that gets some, all its tasks in one call."""
        agents = self.agents
        by_agent: dict[int, list[tuple[Job, list[Task]]]] = {}
        for job, placed in plans:
            fresh = job.state == QUEUED
            attempt = job.attempt + 1 if fresh else job.attempt
            serial = 0 if fresh else job.serial
            tasks: list[list[Any]] = []
            for group, counts in placed:
                todo = iter(list(job.groups[group].todo))
                for row in np.flatnonzero(counts).tolist():
                    for _ in range(int(counts[row])):
                        task_id = f"{job.job_id}.{attempt}.{serial}"
                        place = (agents.ids[row], agents.hosts[row])
                        tasks.append([task_id, group, next(todo), *place, revocable])
                        serial += 1
            self._note(what="launch", job=job.job_id, time_s=now_s, tasks=tasks, beside=beside)
            by_row: dict[int, list[Task]] = {}
            for plain in tasks:
                task = job.tasks[plain[0]]
                by_row.setdefault(agents.number[task.agent], []).append(task)
            for at_row, found in by_row.items():
                by_agent.setdefault(at_row, []).append((job, found))
        where = {job.job_id: _where(job) for job, _ in plans}
        for row, launched in by_agent.items():
            since_s = min(agents.offers[offer_id][1] for offer_id in agents.of_agent[row])
            self.longest_hold_s = max(self.longest_hold_s, now_s - since_s)
            offer_ids, pieces = agents.consume(row)
            infos: list[dict[str, Any]] = []
            for job, found in launched:
                infos += self._describe(job, found, pieces, where[job.job_id])
            refuse_s = 0.0 if more_wait else self.options.refuse_s
            self._calls.append(launch.accept(offer_ids, infos, refuse_s))

    def _describe(
        self, job: Job, tasks: Sequence[Task], pieces: list[Any], where: str
    ) -> list[dict[str, Any]]:
        """TaskInfos of tasks of one job on one agent."""
        infos = []
        memory = [0, self._executor_memory()]
        executor: dict[str, Any] = {}
        total = sum(progress.alive for progress in job.groups)
        guest = bool(job.beside) or any(task.revocable for task in tasks)
        for task in tasks:
            group = job.spec.groups[task.group]
            if not executor or job.spec.elastic:
                executor = launch.executor_info(
                    job.spec,
                    unit_of(job, task),
                    task.task_id,
                    self.framework_id,
                    self.options.executor,
                    draw(pieces, memory, False),
                    guest,
                    1 if job.spec.elastic else len(tasks),
                )
            amounts = self._needs[job.job_id][task.group]
            if task.revocable:
                has = [
                    sum(p.amount for p in pieces if p.name == name and p.revocable)
                    for name in range(len(amounts))
                ]
                soft = [int(amount) if has[name] >= amount else 0 for name, amount in enumerate(amounts)]
                hard = [int(amount) - soft[name] for name, amount in enumerate(amounts)]
                resources = draw(pieces, soft, True) + draw(pieces, hard, False)
            else:
                resources = draw(pieces, amounts.tolist(), False)
            place = {
                "rank": int(task.task_id.rpartition(".")[2]),
                "tasks": total,
                "index": task.index,
                "of": group.tasks if job.spec.elastic else job.groups[task.group].alive,
                "nodes": where,
                "attempt": job.attempt,
            }
            infos.append(
                launch.task_info(
                    job.spec,
                    group,
                    task.task_id,
                    task.agent,
                    place,
                    executor,
                    resources,
                    self.options.kill_grace_s,
                )
            )
        return infos


# ------------------------------------------------------------------------------------------------------ of one task


def _where(job: Job) -> str:
    """Nodes and tasks on each, in order of rank: `n1*4,n2*2`."""
    runs: list[tuple[str, int]] = []
    for task in job.tasks.values():
        if runs and runs[-1][0] == task.host:
            runs[-1] = (task.host, runs[-1][1] + 1)
        else:
            runs.append((task.host, 1))
    return ",".join(f"{host}*{count}" for host, count in runs)


def _not_to_blame(status: Mapping[str, Any]) -> bool:
    """Did a task fail for a reason outside of itself?"""
    if status.get("source") == "SOURCE_EXECUTOR":
        return False
    return "reason" in status and status["reason"] not in OURS


def _exit_of(status: Mapping[str, Any] | None) -> int | None:
    """The exit status that our executor tells in a label; minus the number of a signal."""
    for label in (status or {}).get("labels", {}).get("labels", ()):
        if label.get("key") == "exit":
            try:
                return int(label.get("value", ""))
            except ValueError:
                return None
    return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _clean(text: str) -> str:
    """Text of users and agents, for terminals."""
    return "".join(c if c.isprintable() else " " for c in text[:300])


def _told(event: Event) -> str:
    """An event in a word or two, for the story."""
    if isinstance(event, Offered):
        return f"Offered {len(event.offers)}"
    if isinstance(event, Updated):
        status = event.status
        return f"Updated {str(status.get('task_id', {}).get('value', ''))[:80]!r} {str(status.get('state', ''))[:40]}"
    if isinstance(event, Submitted):
        return f"Submitted {event.spec.tasks} tasks"
    return repr(event)[:200]


def _job_record(job: Job) -> Record:
    """A job as it stands, as one record."""
    plain_numbers = {
        name: getattr(job, name)
        for name in ("state", "attempt", "serial", "retries", "false_starts", "priority", "extended_s")
    }
    return {
        "what": "job",
        "job": job.job_id,
        "number": job.number,
        "spec": job.spec.to_json(),
        "submit_s": job.submit_s,
        "state": {
            **plain_numbers,
            "outcome": job.outcome,
            "why": job.why,
            "beside": job.beside,
            "hold_until_s": _finite(job.hold_until_s),
            "start_s": _finite(job.start_s),
            "end_s": _finite(job.end_s),
            "guests": sorted(job.guests),
            "endings": job.endings,
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
                    *(task.launch_s, task.extended_s),
                ]
                for task in job.tasks.values()
            ],
        },
    }

"""The framework as a pure state machine: events and the time come in, records and calls go out.

No I/O, no clock, no chance. Whatever changes a job or a task is a record, and is applied as one: the caller brings the
records to the disk before it sends the calls, and a successor that applies them again knows the same. So no task is
launched that nobody remembers, and no update is acknowledged that could be forgotten.

Mesos has no gangs: offers are withheld in a `Pool` until one fits.

A gang that loses a task that it needs is stopped as a whole and queued again. The model is the worker state machine of
dask.distributed: an error carries the story of how it came to be.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from asad.errors import ClusterError, UsageError
from asad_mesos import launch
from asad_mesos.events import (
    AgentLost,
    Beside,
    Cancelled,
    Disconnected,
    Event,
    Extended,
    Held,
    Offered,
    Prioritised,
    Removed,
    Rescinded,
    Scaled,
    Submitted,
    Subscribed,
    Throttled,
    Ticked,
    TornDown,
    Updated,
    told,
)
from asad_mesos.jobs import spec_from_json
from asad_mesos.launch import Call
from asad_mesos.options import Options
from asad_mesos.pool import Pool
from asad_mesos.state import (
    ASK_FIRST_S,
    CANCELLED,
    COMPLETED,
    FAILED,
    LAUNCHING,
    RUNNING,
    STOPPING,
    TIMEOUT,
    Job,
    Record,
    State,
    Task,
    finite,
    unit_of,
)
from asad_mesos.statuses import (
    LOST_STATES,
    OVER_STATES,
    STARTED_STATES,
    exit_of,
    not_to_blame,
    refused,
    takes_guests,
)

ASK_MOST_S = 300.0
"""A task that nothing is heard of is asked for less and less often, and no less than this."""
ASK_ALL_S = 600.0
"""The master is asked for all tasks this often."""
KILL_AGAIN_S = 10.0
"""A kill that shows nothing is said again after this, beyond its grace."""
LOOK_S = 0.5
"""Limits, kills and silent tasks are looked at this often."""
FALSE_STARTS = 100
"""So often a job may be queued again without any task having started."""
MOST_WAIT_S = 60.0
CHUNK = 1000
"""Tasks in one call."""
STORY = 200
AGAIN, UNSTARTED, REFUSED = "queued", "queued-unstarted", "queued-refused"
"""Outcomes of a stopping job that waits again: tasks had run, none had, or the executor of its host has refused it."""


class FrameworkFault(ClusterError):
    """A fault of ours in the state machine; the message holds the last events."""


class Instructions(NamedTuple):
    """What follows from events: first all records are to be brought to the disk, then the calls sent in order."""

    records: list[Record]
    calls: list[Call]


class Framework(State):
    """The state, the offers that are withheld, and what to do about both.

    `handle` is the only way in, but for `restore` at the start. Not thread-safe.
    """

    def __init__(self, options: Options = Options()) -> None:  # noqa: B008 (a constant tuple)
        super().__init__()
        self.options = options
        self.connected = False
        self.said: list[str] = []
        """Sentences about what went wrong."""
        self._calls: list[Call] = []
        self.pool = Pool(self, options, self._calls)
        self._story: deque[str] = deque(maxlen=STORY)
        self._asked_all_s = self._looked_s = self._now_s = -math.inf

    # ----------------------------------------------------------------------------------------------------- the way in

    def handle(self, *events: Event, now_s: float) -> Instructions:
        """Take events in, in their order, at `now_s` (a clock that does not go back; seconds).

        Raises UsageError for a request that cannot be (then nothing has happened), FrameworkFault for a fault of ours.
        """
        self._now_s = now_s = max(now_s, self._now_s)
        flush = False
        for event in events:
            self._story.append(f"{now_s:.3f} {told(event)}")
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
        if self.connected and not self.tearing:
            self.pool.deal(now_s, at_once=flush)
        records, self._records = self._records, []
        calls = self._calls.copy()
        self._calls.clear()
        return Instructions(records, calls)

    def _take(self, event: Event, now_s: float) -> None:
        match event:
            case Offered():
                for offer in event.offers:
                    self.agents.add(offer, now_s)
                self.pool.changed()
            case Updated():
                self._update(event.status, now_s)
            case Rescinded():
                self.agents.remove(event.offer_id)
                self.pool.changed()
            case Ticked():
                self._tick(event.behind, now_s)
            case Subscribed():
                self._subscribed(event.framework_id, now_s)
            case Disconnected():
                self.connected = False
                self.agents.clear()
            case AgentLost():
                self.agents.lose(event.agent_id)
                for task in self.tasks.values():
                    if task.agent == event.agent_id:
                        self.unheard.setdefault(task.task_id, (now_s, ASK_FIRST_S))
            case Removed():
                self._removed(event.message, now_s)
            case TornDown():
                self._tear_down(event.why, now_s)
            case Submitted():
                if self.tearing:
                    raise UsageError("the framework is being torn down; submit it again when that is over")
                number = self.last_number + 1
                spec = event.spec.to_json()
                spec_from_json(spec)  # what a successor could not read is not taken
                self.note(what="job", job=f"m{number}", number=number, spec=spec, submit_s=now_s)
                self.pool.wake()
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
                self.note(what="held", job=self.job(event.job).job_id, until_s=finite(event.until_s))
                self.pool.wake()
            case Prioritised():
                self.note(what="priority", job=self.job(event.job).job_id, priority=event.priority)
                self.pool.changed()
            case Extended():
                job = self.job(event.job)
                found = [task.task_id for task in job.tasks.values() if unit_of(job, task) == event.unit]
                task_id = found[0] if job.spec.elastic and found else ""
                self.note(what="extended", job=job.job_id, by_s=event.by_s, task=task_id)
            case Beside():
                self.pool.beside(event, now_s)

    # ------------------------------------------------------------------------------------------------- connection

    def _subscribed(self, framework_id: str, now_s: float) -> None:
        if framework_id != self.framework_id:
            self.note(what="framework", id=framework_id)
        self.connected = True
        self.agents.clear()
        if self.tearing:  # the master has not heard of it, or another one leads
            self._calls.append({"type": "TEARDOWN"})
            return
        self.pool.changed()
        self._ask(self.tasks, now_s)
        self._ask_all(now_s)
        for task_id in self.kills:
            self.kills[task_id] = -math.inf

    def _ask(self, task_ids: Iterable[str], now_s: float) -> None:
        asked = [(task_id, self.tasks[task_id].agent) for task_id in task_ids if task_id in self.tasks]
        for task_id, _ in asked:
            _, wait_s = self.unheard.get(task_id, (0.0, ASK_FIRST_S))
            self.unheard[task_id] = (now_s + wait_s, min(2 * wait_s, ASK_MOST_S))
        for at in range(0, len(asked), CHUNK):
            self._calls.append(launch.reconcile(asked[at : at + CHUNK]))

    def _ask_all(self, now_s: float) -> None:
        self._asked_all_s = now_s
        self._calls.append(launch.reconcile([]))

    def _removed(self, message: str, now_s: float) -> None:
        """Our id is of no use any more: whatever ran under it is being killed. All that ran is queued again."""
        why = self.tearing or f"Mesos has removed it ({_clean(message)})"
        self._say(f"framework {self.framework_id}: {why}; the next subscription is another framework's")
        self.connected = False
        self.agents.clear()
        self.note(what="framework", id="")
        for task in list(self.tasks.values()):
            if task.task_id in self.tasks:
                self._over(task, "TASK_GONE", "the framework was removed", None, now_s)

    def _tear_down(self, why: str, now_s: float) -> None:
        """Every job is cancelled, and the master told to end all tasks, again and again until it says that it has."""
        for job in list(self.jobs.values()):
            self.note(what="stopping", job=job.job_id, outcome=CANCELLED, text=_clean(why), time_s=now_s)
            for task in job.tasks.values():
                task.killing = True
            if not job.tasks:
                self._conclude(job, now_s)
        if self.framework_id and not self.tearing:
            self.note(what="teardown", text=_clean(why))
            if self.connected:
                self._calls.append({"type": "TEARDOWN"})

    def _tick(self, behind: bool, now_s: float) -> None:
        self.pool.give_back(now_s)
        if self.connected:
            self.pool.revive(now_s)
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for task_id, since_s in list(self.unreachable.items()):
            if now_s - since_s >= self.options.unreachable_s and task_id in self.tasks:
                self._over(self.tasks[task_id], "TASK_LOST", "its agent could not be reached", None, now_s)
        for job in list(self.jobs.values()):
            if -math.inf < job.hold_until_s <= now_s:
                self.note(what="held", job=job.job_id, until_s=None)
                self.pool.wake()
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
            if not behind:
                self._ask([task for task, (due_s, _) in self.unheard.items() if due_s <= now_s], now_s)
            if now_s - self._asked_all_s >= ASK_ALL_S:
                self._ask_all(now_s)
                self.agents.look_anew()
            again_s = now_s - self.options.kill_grace_s - KILL_AGAIN_S
            for task_id, told_s in list(self.kills.items()):
                if told_s <= again_s:
                    self._kill(self.tasks[task_id], now_s)

    def _say(self, sentence: str) -> None:
        self.said.append(sentence)
        del self.said[:-1000]

    # ------------------------------------------------------------------------------------------------------- updates

    def _update(self, status: Mapping[str, Any], now_s: float) -> None:
        task_id, state = str(status["task_id"]["value"]), str(status["state"])
        task = self.tasks.get(task_id)
        if task is not None:
            self.unheard.pop(task_id, None)
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
            if state == "TASK_FAILED" and not_to_blame(status):
                state = "TASK_LOST"
                text = text or str(status.get("reason", ""))
            if task.inside and not _started(task) and (refused(status) or state == "TASK_ERROR"):
                state = "TASK_DROPPED"
                self.pool.shut(task.executor, text)
            self._over(task, state, text, status, now_s)
            return
        if state == "TASK_UNREACHABLE":
            self.unreachable.setdefault(task.task_id, now_s)
        else:
            self.unreachable.pop(task.task_id, None)
        if state != task.state:
            task.state = state
            self.version += 1
        job = self.jobs[task.job]
        executor = None if task.inside else job.executors.get(task.executor)
        if executor is not None and not executor.open and takes_guests(status):
            self.note(what="open", job=job.job_id, executor=task.executor)
        if state in ("TASK_RUNNING", "TASK_KILLING") and math.isnan(task.start_s):
            task.start_s = now_s
            if job.state == LAUNCHING and self._all_run(job):
                self.note(what="started", job=job.job_id, time_s=now_s)
        if task.killing and state == "TASK_RUNNING" and task.task_id not in self.kills:
            self._kill(task, now_s)

    def _all_run(self, job: Job) -> bool:
        # the last are the last to start, and one that does not run is enough
        return job.spec.elastic or not any(math.isnan(task.start_s) for task in reversed(job.tasks.values()))

    def _over(
        self, task: Task, state: str, text: str, status: Mapping[str, Any] | None, now_s: float
    ) -> None:
        """A task is over; what that means for its job."""
        job = self.jobs[task.job]
        if task.late and state == "TASK_KILLED":
            state, text = "TASK_FAILED", "its time limit is over"
        started = _started(task)
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
        self.note(
            what="end",
            task=task.task_id,
            state=state,
            time_s=now_s,
            exit=exit_of(status),
            text=text,
            again=again,
            lost=lost and started,
        )
        self.pool.changed()
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
            self.pool.wake()
        else:
            refusal = bool(task.inside) and not started
            self._lose(job, f"{name} was lost: {text or state}", started, now_s, refusal)

    def _settle(self, job: Job, now_s: float) -> None:
        """Tasks have ended by themselves: the job is over when all of its first group have."""
        first = job.groups[0]
        if first.alive or first.todo:
            if job.state == LAUNCHING and self._all_run(job):
                self.note(what="started", job=job.job_id, time_s=now_s)
            return
        if math.isnan(job.start_s):  # it was over before the last of it told that it runs
            self.note(what="started", job=job.job_id, time_s=now_s)
        failed = sum(progress.failed for progress in job.groups)
        if failed:
            self._stop(job, FAILED, f"{failed} of its tasks failed", now_s)
        else:
            self._stop(job, COMPLETED, "", now_s)

    def _retries(self, job: Job) -> int:
        """So often may it be queued again when tasks that ran were lost."""
        return self.options.retries if job.spec.retries < 0 else job.spec.retries

    def _lose(self, job: Job, why: str, started: bool, now_s: float, refusal: bool = False) -> None:
        """A gang has lost a task: the others are killed, and it is queued again. That an executor of another job has
        refused it is held against nobody."""
        tries = job.retries < self._retries(job) if started else job.false_starts < FALSE_STARTS
        tries = tries or refusal
        self._say(f"{job.job_id}: {why}; " + ("it is queued again" if tries else "it fails"))
        again = AGAIN if started else REFUSED if refusal else UNSTARTED
        self._stop(job, again if tries else FAILED, why, now_s)

    def _stop(self, job: Job, outcome: str, why: str, now_s: float) -> None:
        """End what is left of a job; it becomes `outcome` then, or is queued again."""
        self.note(what="stopping", job=job.job_id, outcome=outcome, text=why, time_s=now_s)
        for task in list(job.tasks.values()):
            self._kill(task, now_s)
        if not job.tasks:
            self._conclude(job, now_s)

    def _conclude(self, job: Job, now_s: float) -> None:
        """The last task of a stopping job is gone."""
        self.pool.changed()
        if job.outcome not in (AGAIN, UNSTARTED, REFUSED):
            self.note(what="over", job=job.job_id, state=job.outcome, time_s=now_s, text=job.why)
            self.pool.forget(job.job_id)
            return
        tried = job.retries if job.outcome == AGAIN else job.false_starts
        wait_s = min(MOST_WAIT_S, 0.5 * 2.0 ** min(tried, 10))
        self.note(
            what="queued",
            job=job.job_id,
            text=job.why,
            retries=int(job.outcome == AGAIN),
            false_starts=int(job.outcome == UNSTARTED),
            until_s=now_s + wait_s,
            time_s=now_s,
        )
        self.pool.wake()

    def _kill(self, task: Task, now_s: float) -> None:
        task.killing = True
        self.kills[task.task_id] = now_s if self.connected else -math.inf
        if self.connected:
            self._calls.append(launch.kill(task.task_id, task.agent, self.options.kill_grace_s))

    def _cancel(self, job: Job, why: str, now_s: float) -> None:
        if job.job_id not in self.jobs:
            return
        if job.state == STOPPING:
            self.note(what="stopping", job=job.job_id, outcome=CANCELLED, text=_clean(why), time_s=now_s)
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
        self.note(what="target", job=job.job_id, group=group, tasks=tasks, time_s=self._now_s)
        self.pool.wake()
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


def _started(task: Task) -> bool:
    """Has it begun, as far as was heard?"""
    return task.state in STARTED_STATES or not math.isnan(task.start_s)


def _clean(text: str) -> str:
    """Text of users and agents, for terminals."""
    return "".join(c if c.isprintable() else " " for c in text[:300])

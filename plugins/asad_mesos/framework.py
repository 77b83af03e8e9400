"""The framework as a pure state machine: events and the time come in, records and calls go out.

No I/O, no clock, no chance. Whatever changes a job or a task is a record, and is applied as one: the caller brings the
records to the disk before it sends the calls, and a successor that applies them again knows the same. So no task is
launched that no record names, and no update is acknowledged that could be forgotten.

Mesos has no gangs: offers are withheld in a `Pool` until one fits, and what the end of a task means for its gang is in
`Lives`. The model is the worker state machine of dask.distributed: an error carries the story of how it came to be.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from asad.errors import ClusterError, UsageError
from asad_mesos import master_calls
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
    Ticked,
    TornDown,
    Updated,
    shown,
)
from asad_mesos.framework_state import (
    ASK_FIRST_S,
    CANCELLED,
    RUNNING,
    TIMEOUT,
    Record,
    State,
    Task,
    finite,
    unit_of,
)
from asad_mesos.job_spec import spec_from_json
from asad_mesos.lives import Lives, clean
from asad_mesos.master_calls import Call
from asad_mesos.pool import Pool
from asad_mesos.settings import Settings
from asad_mesos.statuses import OVER_STATES, not_to_blame, refused, takes_guests

ASK_MOST_S = 300.0
"""A task that nothing is heard of is asked for less and less often, and no less than this."""
ASK_ALL_S = 600.0
"""The master is asked for all tasks this often."""
KILL_AGAIN_S = 10.0
"""A kill that shows nothing is sent again after this, beyond its grace."""
LOOK_S = 0.5
"""Limits, kills and silent tasks are looked at this often."""
CHUNK = 1000
"""Tasks in one call."""
STORY = 200


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

    def __init__(self, settings: Settings = Settings()) -> None:  # noqa: B008 (it is frozen)
        super().__init__()
        self.settings = settings
        self._calls: list[Call] = []
        self.pool = Pool(self, settings, self._calls)
        self._lives = Lives(self, self.pool, settings, self._calls)
        self._story: deque[str] = deque(maxlen=STORY)
        self._asked_all_s = self._looked_s = self._now_s = -math.inf

    # ----------------------------------------------------------------------------------------------------- the way in

    def handle(self, *events: Event, now_s: float) -> Instructions:
        """Take events in, in their order, at `now_s` (a clock that does not go back; seconds).

        Raises UsageError for a request that cannot be (then nothing has happened), FrameworkFault for a fault of ours.
        """
        self._now_s = now_s = max(now_s, self._now_s)
        for event in events:
            self._story.append(f"{now_s:.3f} {shown(event)}")
            try:
                self._take(event, now_s)
            except UsageError:
                raise
            except Exception as error:
                story = "\n  ".join(self._story)
                raise FrameworkFault(
                    f"{type(error).__name__}: {error}; the last events:\n  {story}"
                ) from error
        if self.connected and not self.tearing:
            at_once = any(isinstance(event, Ticked | Submitted | Beside) for event in events)
            self.pool.deal(now_s, at_once=at_once)
        found = Instructions(self._records.copy(), self._calls.copy())
        self._records.clear()
        self._calls.clear()
        return found

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
                self._lives.cancel(self.job(event.job), event.why, now_s)
            case Scaled():
                self._lives.scale(self.job(event.job), event.tasks, now_s)
            case Held():
                if self.job(event.job).job_id in self.jobs:
                    self.note(what="held", job=event.job, until_s=finite(event.until_s))
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
                self.pool.start_guest(event, now_s)

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
        self._ask(list(self.tasks.values()), now_s)
        self._ask_all(now_s)
        for task_id in self.kills:
            self.kills[task_id] = -math.inf

    def _ask(self, tasks: Sequence[Task], now_s: float) -> None:
        for task in tasks:
            _, wait_s = self.unheard.get(task.task_id, (0.0, ASK_FIRST_S))
            self.unheard[task.task_id] = (now_s + wait_s, min(2 * wait_s, ASK_MOST_S))
        for at in range(0, len(tasks), CHUNK):
            self._calls.append(master_calls.reconcile(tasks[at : at + CHUNK]))

    def _ask_all(self, now_s: float) -> None:
        self._asked_all_s = now_s
        self._calls.append(master_calls.reconcile([]))

    def _removed(self, message: str, now_s: float) -> None:
        """Our id is of no use any more: whatever ran under it is being killed. All that ran is queued again."""
        why = self.tearing or f"Mesos has removed it ({clean(message)})"
        self.sentences.add(
            [f"framework {self.framework_id}: {why}; the next subscription is another framework's"]
        )
        self.connected = False
        self.agents.clear()
        self.note(what="framework", id="")
        for task in list(self.tasks.values()):
            self._lives.over(task, "TASK_GONE", "the framework was removed", now_s)

    def _tear_down(self, why: str, now_s: float) -> None:
        """Every job is cancelled, and the master asked to end all tasks, again and again until it has."""
        for job in list(self.jobs.values()):
            self._lives.stop(job, CANCELLED, clean(why), now_s, kills=False)
        if self.framework_id and not self.tearing:
            self.note(what="teardown", text=clean(why))
            if self.connected:
                self._calls.append({"type": "TEARDOWN"})

    def _tick(self, behind: bool, now_s: float) -> None:
        self.pool.return_overdue(now_s)
        if self.connected:
            self.pool.revive(now_s)
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for task_id, since_s in list(self.unreachable.items()):
            if now_s - since_s >= self.settings.unreachable_s:
                self._lives.over(self.tasks[task_id], "TASK_LOST", "its agent could not be reached", now_s)
        self._look_at_times(now_s)
        if self.connected:
            if not behind:
                due = [task_id for task_id, (due_s, _) in self.unheard.items() if due_s <= now_s]
                self._ask([self.tasks[task_id] for task_id in due], now_s)
            if now_s - self._asked_all_s >= ASK_ALL_S:
                self._ask_all(now_s)
                self.agents.look_anew()
            again_s = now_s - self.settings.kill_grace_s - KILL_AGAIN_S
            for task_id, asked_s in list(self.kills.items()):
                if asked_s <= again_s:
                    self._lives.kill(self.tasks[task_id], now_s)

    def _look_at_times(self, now_s: float) -> None:
        """Whose hold is over, and whose time limit?"""
        for job in list(self.jobs.values()):
            if -math.inf < job.hold_until_s <= now_s:
                self.note(what="held", job=job.job_id, until_s=None)
                self.pool.wake()
            if job.state != RUNNING or math.isinf(job.spec.time_limit_s):
                continue
            if not job.spec.elastic:
                if now_s >= job.limit_end_s:
                    self._lives.stop(job, TIMEOUT, "its time limit is over", now_s)
                continue
            for task in job.tasks.values():
                if now_s >= task.start_s + job.spec.time_limit_s + task.extended_s and not task.killing:
                    task.late = True
                    self._lives.kill(task, now_s)

    # ------------------------------------------------------------------------------------------------------- updates

    def _update(self, status: Mapping[str, Any], now_s: float) -> None:
        task_id, state = str(status["task_id"]["value"]), str(status["state"])
        task = self.tasks.get(task_id)
        if task is not None:
            self.unheard.pop(task_id, None)
            self._see(task, state, status, now_s)
        elif state not in OVER_STATES and state != "TASK_UNREACHABLE" and "agent_id" in status:
            # it was given up, or belongs to a journal that was lost: it must not run beside its successor
            self.sentences.add([f"{clean(task_id)}: it runs although it was given up; it is killed"])
            self._calls.append(master_calls.kill(task_id, str(status["agent_id"]["value"]), 0.0))
        if "uuid" in status and "agent_id" in status:
            self._calls.append(master_calls.acknowledge(status))

    def _see(self, task: Task, state: str, status: Mapping[str, Any], now_s: float) -> None:
        text = clean(str(status.get("message", "")))
        if state in OVER_STATES:
            if state == "TASK_FAILED" and not_to_blame(status):
                state = "TASK_LOST"
                text = text or str(status.get("reason", ""))
            if task.inside and not task.started and (refused(status) or state == "TASK_ERROR"):
                state = "TASK_DROPPED"
                self.pool.guests.shut(task.executor, text)
            self._lives.over(task, state, text, now_s, status)
            return
        if state == "TASK_UNREACHABLE":
            self.unreachable.setdefault(task.task_id, now_s)
        else:
            self.unreachable.pop(task.task_id, None)
        task.state = state
        job = self.jobs[task.job]
        executor = None if task.inside else job.executors.get(task.executor)
        if executor is not None and not executor.open and takes_guests(status):
            self.note(what="open", job=job.job_id, executor=task.executor)
        if state in ("TASK_RUNNING", "TASK_KILLING") and math.isnan(task.start_s):
            task.start_s = now_s
            self._lives.started(job, now_s)
        if task.killing and state == "TASK_RUNNING" and task.task_id not in self.kills:
            self._lives.kill(task, now_s)

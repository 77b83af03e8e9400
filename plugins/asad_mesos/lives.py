"""The lives of jobs: what the end of a task means for its job, and how jobs are ended, made narrower or queued again.

Mesos has no gangs: one that loses a task that it needs is stopped as a whole, and queued again. No I/O, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from asad.errors import UsageError
from asad_mesos import master_calls
from asad_mesos.framework_state import CANCELLED, COMPLETED, FAILED, LAUNCHING, STOPPING, Job, State, Task
from asad_mesos.master_calls import Call
from asad_mesos.pool import Pool
from asad_mesos.settings import Settings
from asad_mesos.statuses import LOST_STATES, exit_of

FALSE_STARTS = 100
"""So often a job may be queued again without any task having started."""
MOST_WAIT_S = 60.0
AGAIN, UNSTARTED, REFUSED = "queued", "queued-unstarted", "queued-refused"
"""Outcomes of a stopping job that waits again: tasks had run, none had, or the executor of its host has refused it."""


class Lives:
    """Ends tasks and jobs of a state: what becomes of them is noted there, and kills become calls."""

    def __init__(self, state: State, pool: Pool, settings: Settings, calls: list[Call]) -> None:
        """`calls` is where calls for the master are put."""
        self._state, self._pool, self._settings, self._calls = state, pool, settings, calls

    def started(self, job: Job, now_s: float) -> None:
        """Perhaps it runs by now: an elastic one with its first task, a gang when all of its tasks do."""
        # of a gang the last are the last to start, and one that does not run is enough
        waits = (math.isnan(task.start_s) for task in reversed(job.tasks.values()))
        if job.state == LAUNCHING and (job.spec.elastic or not any(waits)):
            self._state.note(what="started", job=job.job_id, time_s=now_s)

    def over(
        self, task: Task, state: str, text: str, now_s: float, status: Mapping[str, Any] | None = None
    ) -> None:
        """A task is over; what that means for its job."""
        job = self._state.jobs[task.job]
        if task.late and state == "TASK_KILLED":
            state, text = "TASK_FAILED", "its time limit is over"
        started = task.started
        lost = state in LOST_STATES or (state == "TASK_KILLED" and not task.killing)
        elastic = job.spec.elastic and job.state != STOPPING
        losses = job.groups[task.group].lost.get(task.index, 0)
        worn = lost and started and losses >= self._retries(job)
        again = elastic and (lost or state == "TASK_KILLED") and not worn
        self._state.note(
            what="end",
            task=task.task_id,
            state=state,
            time_s=now_s,
            exit=exit_of(status),
            text=text,
            again=again,
            lost=lost and started,
        )
        self._pool.changed()
        name, why = f"task {task.task_id} on {clean(task.host)}", text or state
        if job.state == STOPPING:
            if not job.tasks:
                self._conclude(job, now_s)
        elif state == "TASK_FINISHED" or (elastic and state == "TASK_FAILED"):
            self._settle(job, now_s)
        elif state in ("TASK_ERROR", "TASK_FAILED"):
            self.stop(job, FAILED, f"{name} failed: {why}", now_s)
        elif elastic:
            if worn:
                self.stop(job, FAILED, f"{name} was lost {self._retries(job) + 1} times: {why}", now_s)
            self._pool.wake()
        else:
            refusal = bool(task.inside) and not started
            self._lose(job, f"{name} was lost: {why}", started, refusal, now_s)

    def _settle(self, job: Job, now_s: float) -> None:
        """Tasks have ended by themselves: the job is over when all of its first group have."""
        if job.groups[0].alive or job.groups[0].todo:
            self.started(job, now_s)
            return
        if math.isnan(job.start_s):  # it was over before the last of it was seen to run
            self._state.note(what="started", job=job.job_id, time_s=now_s)
        failed = sum(progress.failed for progress in job.groups)
        self.stop(
            job, FAILED if failed else COMPLETED, f"{failed} of its tasks failed" if failed else "", now_s
        )

    def _retries(self, job: Job) -> int:
        """So often may it be queued again when tasks that ran were lost."""
        return self._settings.retries if job.spec.retries < 0 else job.spec.retries

    def _lose(self, job: Job, why: str, started: bool, refusal: bool, now_s: float) -> None:
        """A gang has lost a task: the others are killed, and it is queued again. That an executor of another job has
        refused it is held against nobody."""
        tries = job.retries < self._retries(job) if started else job.false_starts < FALSE_STARTS
        tries = tries or refusal
        self._state.sentences.add([f"{job.job_id}: {why}; {'it is queued again' if tries else 'it fails'}"])
        again = AGAIN if started else REFUSED if refusal else UNSTARTED
        self.stop(job, again if tries else FAILED, why, now_s)

    def stop(self, job: Job, outcome: str, why: str, now_s: float, *, kills: bool = True) -> None:
        """End what is left of a job; it becomes `outcome` then, or is queued again.

        Without `kills` its tasks are being ended already, by us or by the master.
        """
        self._state.note(what="stopping", job=job.job_id, outcome=outcome, text=why, time_s=now_s)
        for task in job.tasks.values():
            if kills:
                self.kill(task, now_s)
            task.killing = True
        if not job.tasks:
            self._conclude(job, now_s)

    def cancel(self, job: Job, why: str, now_s: float) -> None:
        """End it, unless it has ended; of one that is being ended anyway only the outcome changes."""
        if job.job_id not in self._state.jobs:
            return
        self.stop(job, CANCELLED, clean(why), now_s, kills=job.state != STOPPING)

    def _conclude(self, job: Job, now_s: float) -> None:
        """The last task of a stopping job is gone."""
        self._pool.changed()
        if job.outcome not in (AGAIN, UNSTARTED, REFUSED):
            self._state.note(what="over", job=job.job_id, state=job.outcome, time_s=now_s, text=job.why)
            self._pool.placing.forget(job.job_id)
            return
        tried = job.retries if job.outcome == AGAIN else job.false_starts
        self._state.note(
            what="queued",
            job=job.job_id,
            text=job.why,
            retries=int(job.outcome == AGAIN),
            false_starts=int(job.outcome == UNSTARTED),
            until_s=now_s + min(MOST_WAIT_S, 0.5 * 2.0 ** min(tried, 10)),
            time_s=now_s,
        )
        self._pool.wake()

    def kill(self, task: Task, now_s: float) -> None:
        """Ask for its end; when there is a master again, if there is none now."""
        task.killing = True
        self._state.kills[task.task_id] = now_s if self._state.connected else -math.inf
        if self._state.connected:
            self._calls.append(master_calls.kill(task.task_id, task.agent, self._settings.kill_grace_s))

    def scale(self, job: Job, tasks: Mapping[str, int], now_s: float) -> None:
        """So many tasks of each named group run at one time from now on; surplus ones are killed, the latest first.

        Raises UsageError for what cannot be; then nothing has changed.
        """
        groups = {group.name: number for number, group in enumerate(job.spec.groups)}
        for name, count in tasks.items():
            if name not in groups:
                known = ", ".join(groups)
                raise UsageError(f"{job.job_id} has no group {name[:40]!r}; there are {known}")
            if not job.spec.elastic:
                raise UsageError(
                    f"{job.job_id} is a gang, whose size is fixed; submit it as elastic to scale it"
                )
            if not 0 <= count <= (most := job.spec.groups[groups[name]].tasks):
                raise UsageError(f"{job.job_id}: {count} tasks of {name}; give from 0 to {most}")
        if job.job_id not in self._state.jobs:
            raise UsageError(f"{job.job_id} has ended")
        for name, count in tasks.items():
            group = groups[name]
            self._state.note(what="target", job=job.job_id, group=group, tasks=count, time_s=now_s)
            alive = [task for task in job.tasks.values() if task.group == group and not task.killing]
            alive.sort(key=lambda task: (task.launch_s, task.index))
            for task in alive[count:]:
                self.kill(task, now_s)
        self._pool.wake()


def clean(text: str) -> str:
    """Text of users and agents, for terminals."""
    return "".join(c if c.isprintable() else " " for c in text[:300])

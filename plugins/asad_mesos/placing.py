"""Which tasks of which job go to which agent: first fit over amounts. Pure arithmetic; nothing is launched here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asad_mesos.agent_offers import MEM, fit
from asad_mesos.framework_state import LAUNCHING, QUEUED, RUNNING, Job, State

Wanted = list[tuple[int, int, int]]
"""(group, least, most) of the tasks that a job wants."""
Placed = list[tuple[int, NDArray[np.int64]]]
"""(group, tasks by agent)."""


def wants(job: Job, now_s: float) -> Wanted:
    """The tasks that a job wants now; none if it wants nothing."""
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


class Placing:
    """Fits jobs of a state into amounts by agent. `executor_memory` is what an executor takes (thousandths of MiB)."""

    def __init__(self, state: State, executor_memory: int) -> None:
        self._state, self._executor_memory = state, executor_memory
        self._possible: dict[str, tuple[int, bool]] = {}
        """By job: at which version of the agents it was looked whether it could ever run, and what came out."""

    def hopeless(self, job: Job) -> bool:
        """Does it wait for more than all agents that were seen have?"""
        known = self._possible.get(job.job_id)
        return known is not None and known == (self._state.agents.version, False)

    def place(
        self,
        job: Job,
        wanted: Sequence[tuple[int, int, int]],
        free: NDArray[np.int64],
        *,
        executors: bool = True,
    ) -> tuple[Placed, bool, NDArray[np.bool_]]:
        """(group, tasks by agent), whether all got their least, and the agents concerned. Takes it off `free`.

        Without `executors` its tasks join those that are there.
        """
        count = free.shape[1]
        charged = np.zeros(count, bool)
        there = np.zeros(count, bool)
        may = None
        if job.spec.attributes:
            may = self._state.agents.with_attributes(job.spec.attributes)[:count]
        once = 0 if job.spec.elastic or not executors else self._executor_memory
        found: dict[int, NDArray[np.int64]] = {}
        # several groups: what each needs at the least first, or the first would leave the others nothing
        several = len(wanted) > 1 and any(least < most for _, least, most in wanted)
        parts = [(group, least) for group, least, _ in wanted] if several else []
        parts += [(group, most - least if several else most) for group, least, most in wanted]
        for group, tasks in parts:
            apart = job.spec.groups[group].apart
            allowed = self._where_not(job, there, may) if apart else may
            need = self._need(job, group) if executors else job.needs[group]
            counts = fit(free, need, tasks, once, charged, allowed, 1 if apart else tasks)
            there |= counts > 0
            found[group] = found[group] + counts if group in found else counts
        fits = all(int(found[group].sum()) >= least for group, least, _ in wanted)
        placed = [(group, counts) for group, counts in found.items() if counts.any()]
        return placed, fits, there

    def _where_not(
        self, job: Job, there: NDArray[np.bool_], may: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_]:
        """Agents on which no task of the job is, or is about to be."""
        free = ~there if may is None else ~there & may
        free[[self._state.agents.number[task.agent] for task in job.tasks.values()]] = False
        return free

    def _need(self, job: Job, group: int) -> NDArray[np.int64]:
        """What a task takes, with an executor of its own in an elastic job."""
        wanted = job.needs[group]
        if job.spec.elastic:
            wanted = wanted.copy()
            wanted[MEM] += self._executor_memory
        return wanted

    def put_back(self, job: Job, group: int, counts: NDArray[np.int64], free: NDArray[np.int64]) -> None:
        """What was placed on agents is not used after all."""
        free += self._need(job, group)[:, None] * counts

    def can_ever(self, job: Job, wanted: Sequence[tuple[int, int, int]]) -> bool:
        """Would it fit if everything that was ever seen were free?"""
        known = self._possible.get(job.job_id)
        if known is not None and known[0] == self._state.agents.version:
            return known[1]
        _, fits, _ = self.place(job, wanted, self._state.agents.total[:, : len(self._state.agents)].copy())
        self._possible[job.job_id] = (self._state.agents.version, fits)
        return fits

    def forget(self, job_id: str) -> None:
        """It has ended."""
        self._possible.pop(job_id, None)

"""Guests on Mesos: launched beside their hosts, out of the offers of the agents that were named for it. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError
from asad_mesos.agent_offers import CPUS, MEM
from asad_mesos.events import Beside
from asad_mesos.framework_state import LAUNCHING, QUEUED, RUNNING, Job, State, job_of, unit_of
from asad_mesos.offer_replies import NOT_INSIDE, OfferReplies, tasks_in
from asad_mesos.placing import Placing, wants
from asad_mesos.settings import Settings

MOST_SHUT = 10_000


class BesideHosts:
    """Starts guests, and says which offers are withheld for guests to come."""

    def __init__(self, state: State, settings: Settings, placing: Placing, replies: OfferReplies) -> None:
        self._state, self._settings, self._placing, self._replies = state, settings, placing, replies
        self._interest: dict[int, float] = {}
        """Agent → until when its offers are kept for a guest."""
        self._shut: dict[str, str] = {}
        """Executors that have refused a guest, and why."""

    def shut(self, executor: str, why: str) -> None:
        """An executor has refused a guest: no other is sent there."""
        if len(self._shut) >= MOST_SHUT:
            self._shut.clear()
        self._shut[executor] = why

    def kept(self, now_s: float, misses: bool) -> NDArray[np.bool_]:
        """By agent: are its offers withheld for guests?

        They are where one was asked for lately; and while jobs wait in vain (`misses`) where tasks of ours run, and a
        guest could use what is there: revocable resources, or memory where nobody can use CPUs.
        """
        agents = self._state.agents
        count = len(agents)
        useful: NDArray[np.bool_] = np.zeros(count, bool)
        if misses and self._settings.revocable:
            useful |= agents.revocable[:, :count].max(axis=0) > 0
        if misses and self._settings.inside:
            useful |= (agents.free[CPUS, :count] == 0) & (agents.free[MEM, :count] > 0)
        useful &= agents.used[:, :count].max(axis=0) > 0
        self._interest = {row: until_s for row, until_s in self._interest.items() if until_s > now_s}
        useful[list(self._interest)] = True
        return useful

    def start(self, event: Beside, now_s: float) -> str:
        """Launch a guest beside its host; why the offers do not suffice, or the empty string.

        What is offered there is withheld for a guest from then on. Raises UsageError for a job that cannot be one.
        """
        job, agents = self._state.job(event.job), self._state.agents
        wanted = wants(job, now_s)
        if not wanted:
            raise UsageError(f"{event.job} {'is held' if job.state == QUEUED else 'does not wait'}")
        if job.spec.elastic:
            if wanted[0][0] != 0 or len(job.groups) > 1:
                raise UsageError(f"{event.job} has several groups, which do not start beside another job")
            wanted = [(0, 1, 1)]
        rows = [agents.number[agent] for agent in event.agents if agent in agents.number]
        inside, why = self._joinable(job, event.host, rows)
        for free, revocable, executors in self._ways(rows, inside):
            placed, fits, _ = self._placing.place(job, wanted, free, executors=not executors)
            if fits and placed:
                self._replies.launch(
                    [(job, placed)], True, now_s, beside=event, revocable=revocable, inside=executors
                )
                return ""
        self._interest |= dict.fromkeys(rows, now_s + self._settings.hold_s)
        more = f" ({why})" if why else ""
        return f"the agents of its host have offered nothing that it could run on; they are asked again{more}"

    def _ways(
        self, rows: Sequence[int], inside: Mapping[int, str]
    ) -> Iterator[tuple[NDArray[np.int64], bool, Mapping[int, str]]]:
        """What a guest may run on, the least costly first: amounts by agent, whether they are revocable, and by agent
        the executor of the host that it joins without CPUs of its own."""
        agents = self._state.agents
        here = np.zeros(len(agents), bool)
        here[rows] = True
        free = np.where(here, agents.free[:, : len(agents)], 0)
        if self._settings.revocable:  # CPU is what is revocable; memory, devices and disk are not
            cpus = np.where(here, agents.revocable[:MEM, : len(agents)], 0)
            yield np.vstack((cpus, free[MEM:])), True, NOT_INSIDE
        if inside:
            within = np.zeros_like(free)
            within[MEM:, list(inside)] = free[MEM:, list(inside)]
            for row, executor in inside.items():
                for task in tasks_in(self._state, executor):
                    if not task.inside:  # what its host has there is what it may use
                        within[CPUS, row] += self._state.jobs[task.job].needs[task.group][CPUS]
            yield within, False, inside
        yield free, False, NOT_INSIDE

    def _joinable(self, job: Job, unit: str, rows: Sequence[int]) -> tuple[dict[int, str], str]:
        """By agent the executor of the unit there, if tasks of the job may join it; and why they may not at all."""
        host = self._state.jobs.get(job_of(unit))
        if not self._settings.inside or host is None or host.state not in (LAUNCHING, RUNNING):
            return {}, ""
        if any(group.gpus for one in (host, job) for group in one.spec.groups):
            return {}, f"within the executor of {unit} each could use the GPUs of the other"
        found: dict[int, str] = {}
        unreachable = self._state.unreachable
        for task in host.tasks.values():
            runs = not math.isnan(task.start_s) and not task.killing and task.task_id not in unreachable
            if unit_of(host, task) == unit and runs and task.executor in host.executors:
                if host.executors[task.executor].user not in (job.spec.user, "root"):
                    return {}, (
                        f"within the executor of {unit} only jobs of {host.spec.user} can run; with [mesos] "
                        'executor_user = "root" any could'
                    )
                if not host.executors[task.executor].open:
                    return {}, (
                        f"the executor of {unit} takes no guests; is asad on its agent of the same version?"
                    )
                found[self._state.agents.number[task.agent]] = task.executor
        shut = [row for row in rows if found.get(row, "") in self._shut]
        return {row: found[row] for row in rows if row in found and row not in shut}, (
            f"the executor of {unit} has refused a guest: {self._shut[found[shut[0]]]}" if shut else ""
        )

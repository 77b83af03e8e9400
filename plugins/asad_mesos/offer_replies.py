"""What offers are answered with: tasks that are launched on them, or that they are declined. No I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asad_mesos import master_calls
from asad_mesos.agent_offers import Agents
from asad_mesos.events import Beside
from asad_mesos.framework_state import QUEUED, Job, State, Task, unit_of
from asad_mesos.master_calls import Call
from asad_mesos.placing import Placed
from asad_mesos.settings import Settings

IDLE_S = 60.0
"""While nobody waits, what is declined is not offered again within this; who comes then has it offered by REVIVE."""
CHUNK = 1000
"""Offers in one call."""
MOST_NAMED = 8
"""So many nodes of a launch are named."""
NOT_INSIDE: Mapping[int, str] = {}


def tasks_in(state: State, executor: str) -> list[Task]:
    """Tasks of an executor's own job that it runs; its id is that of the first of them."""
    job = state.jobs[executor.partition(".")[0]]
    return [task for task in job.tasks.values() if task.executor == executor]


def named(agents: Agents, counts: Mapping[int, int]) -> str:
    """Nodes, and tasks on each, for people; `counts` are tasks by the agents' rows."""
    names = agents.names()
    shown = [f"{names[row]}*{tasks}" for row, tasks in list(counts.items())[:MOST_NAMED]]
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    return "".join(char if char.isprintable() else "?" for char in ",".join(shown)) + more


class OfferReplies:
    """Takes offers from `state.agents`: launches are noted in the state, and all of it becomes calls."""

    def __init__(self, state: State, settings: Settings, calls: list[Call]) -> None:
        """`calls` is where calls for the master are put."""
        self._state, self._settings, self._calls = state, settings, calls
        self.longest_hold_s = 0.0
        """The longest time that an offer was withheld."""

    def refusal_s(self, waits: bool) -> float:
        """For how long what is declined need not be offered again; `waits`: somebody wants offers."""
        return self._settings.refuse_s if waits else max(self._settings.refuse_s, IDLE_S)

    def decline(self, offer_ids: Sequence[str], refuse_s: float, now_s: float) -> None:
        """They are the master's again."""
        for offer_id in offer_ids:
            self._held(offer_id, now_s)
            self._state.agents.remove(offer_id)
        for at in range(0, len(offer_ids), CHUNK):
            self._calls.append(master_calls.decline(offer_ids[at : at + CHUNK], refuse_s))

    def _held(self, offer_id: str, now_s: float) -> None:
        since_s = self._state.agents.offers[offer_id][1]
        self.longest_hold_s = max(self.longest_hold_s, now_s - since_s)

    def launch(
        self,
        plans: Sequence[tuple[Job, Placed]],
        more_wait: bool,
        now_s: float,
        *,
        beside: Beside | None = None,
        revocable: bool = False,
        inside: Mapping[int, str] = NOT_INSIDE,
    ) -> None:
        """Record tasks, and accept the offers of every agent that gets some, all its tasks in one call.

        `beside` is what asked for guests; `inside` are executors of the host by agent, if they run there.
        """
        agents, settings = self._state.agents, self._settings
        by_agent: dict[int, list[tuple[Job, list[Task]]]] = {}
        for job, placed in plans:
            for row, tasks in self._record(job, placed, now_s, beside, revocable, inside).items():
                by_agent.setdefault(row, []).append((job, tasks))
        where = {job.job_id: master_calls.where(job) for job, _ in plans}
        hosts = {executor: self._executor_info(executor) for executor in inside.values()}
        refuse_s = 0.0 if more_wait else self.refusal_s(False)
        joinable: dict[str, dict[str, list[Any]]] = {}
        for row, launched in by_agent.items():
            for offer_id in agents.of_agent[row]:
                self._held(offer_id, now_s)
            offer_ids, pieces = agents.consume(row)
            infos: list[dict[str, Any]] = []
            for job, tasks in launched:
                needs, nodes = job.needs, where[job.job_id]
                described, made = master_calls.described(
                    job, tasks, pieces, nodes, needs, self._state.framework_id, settings, hosts
                )
                infos += described
                if settings.inside and math.isfinite(job.spec.time_limit_s) and not job.beside:
                    of = joinable.setdefault(job.job_id, {})
                    of.update((name, list(executor)) for name, executor in made.items())
            self._calls.append(master_calls.accept(offer_ids, infos, refuse_s))
        for job_id, executors in joinable.items():  # what a guest has to know to join them
            if executors:
                self._state.note(what="executors", job=job_id, executors=executors)

    def _record(
        self,
        job: Job,
        placed: Placed,
        now_s: float,
        beside: Beside | None,
        revocable: bool,
        inside: Mapping[int, str],
    ) -> dict[int, list[Task]]:
        """Give the tasks that were placed their ids and executors, and note their launch; by agent, the tasks."""
        agents = self._state.agents
        attempt, serial = (job.attempt + 1, 0) if job.state == QUEUED else (job.attempt, job.serial)
        host = beside.host if beside is not None else ""
        tasks: list[list[Any]] = []
        ids: dict[int, list[str]] = {}
        for group, counts in placed:
            at = np.flatnonzero(counts)
            rows = np.repeat(at, counts[at]).tolist()
            for row, index in zip(rows, job.groups[group].todo, strict=False):
                task_id = f"{job.job_id}.{attempt}.{serial + len(tasks)}"
                there = ids.setdefault(row, [])
                there.append(task_id)
                executor = inside.get(row) or (task_id if job.spec.elastic else there[0])
                where_in = host if row in inside else ""
                place = (agents.ids[row], agents.hosts[row])
                tasks.append([task_id, group, index, *place, revocable, executor, where_in])
        demand = {} if beside is None or math.isnan(beside.demand) else {"demand": beside.demand}
        self._state.note(
            what="launch",
            job=job.job_id,
            time_s=now_s,
            tasks=tasks,
            beside=host,
            where=named(agents, {row: len(there) for row, there in ids.items()}),
            **self._state.addresses_of(agents.ids[row] for row in ids),
            **demand,
        )
        return {row: [job.tasks[task_id] for task_id in there] for row, there in ids.items()}

    def _executor_info(self, executor: str) -> dict[str, Any]:
        """What the master knows of an executor that runs."""
        task = tasks_in(self._state, executor)[0]
        job = self._state.jobs[task.job]
        return master_calls.executor_info(
            job.spec, unit_of(job, task), executor, self._state.framework_id, job.executors[executor]
        )

"""The offers that are withheld, in one pool that is dealt out anew each time: job after job in one total order.

What the first job that does not fit yet could use is kept for it, later jobs get what is left. No job owns an offer, so
two halves of gangs cannot wait for each other within the framework; and every offer is given back after `hold_s`, so
that they cannot with other frameworks either. A guest is launched out of the same pool, on agents that were named for
it. No I/O, no clock, no chance.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError
from asad_mesos import launch
from asad_mesos.events import Beside
from asad_mesos.launch import Call
from asad_mesos.offers import CPUS, MEM, thousandths
from asad_mesos.placing import Placed, Placing, wants
from asad_mesos.settings import Settings
from asad_mesos.state import LAUNCHING, QUEUED, RUNNING, Job, State, Task, job_of, unit_of

PASS_S = 0.05
"""The pool is dealt out no more often than this, however offers trickle in."""
HOLD_MARGIN = 0.2
"""Offers are given back this part of `hold_s` before the bound (at most `HOLD_MARGIN_S`): a call takes its time."""
HOLD_MARGIN_S = 2.0
HOLD_SPREAD = 0.5
"""By up to this part they are given back earlier, differently each time."""
PASS_TASKS = 4000
"""No more tasks than this are launched at once."""
REVIVE_S = 1.0
IDLE_S = 60.0
"""While nobody waits, what is declined is not offered again within this; who comes then has it offered by REVIVE."""
CHUNK = 1000
"""Offers in one call."""
MOST_SHUT = 10_000
MOST_NAMED = 8
"""So many nodes of a launch are named."""
EMPTY: Mapping[int, str] = {}


class Miss(NamedTuple):
    """A job for which the offers did not suffice."""

    fit: int
    """Tasks for which there was room, behind the jobs before it."""
    needed: int
    agents: int
    """So many agents have their offers withheld for it."""


class Pool:
    """Deals out what `state.agents` has of offers: launches are noted in the state, and become calls."""

    def __init__(self, state: State, options: Settings, calls: list[Call]) -> None:
        """`calls` is where calls for the master are put."""
        self._state, self._options, self._calls = state, options, calls
        self._placing = Placing(state, thousandths(options.executor_memory_mb))
        self.longest_hold_s = 0.0
        """The longest time that an offer was withheld."""
        self.gathers = ""
        """The first job that offers are withheld for."""
        self._dirty = self._revive = False
        self._passed_s = self._revived_s = -math.inf
        self._interest: dict[int, float] = {}
        """Agent → until when its offers are kept for a guest."""
        self._shut: dict[str, str] = {}
        """Executors that have refused a guest, and why."""
        self._rounds = 0
        """How often offers were given back because they had been withheld for long."""
        self._misses: dict[str, Miss] = {}
        """By job: why it was not launched when the pool was dealt out last."""

    # ------------------------------------------------------------------------------------------------------ being told

    def changed(self) -> None:
        """There is something to be dealt out, or somebody else wants it."""
        self._dirty = True

    def wake(self) -> None:
        """Somebody wants offers: those that were declined before too."""
        self._dirty = self._revive = True

    def shut(self, executor: str, why: str) -> None:
        """An executor has refused a guest: no other is sent there."""
        if len(self._shut) >= MOST_SHUT:
            self._shut.clear()
        self._shut[executor] = why

    def forget(self, job_id: str) -> None:
        """A job has ended."""
        self._placing.forget(job_id)

    def hopeless(self, job: Job) -> bool:
        """Does it wait for more than all agents that were seen have?"""
        return self._placing.hopeless(job)

    def why_not(self, job: Job, now_s: float) -> str:
        """Why a job that waits has not been launched; empty for one that wants nothing."""
        if job.hold_until_s > now_s:
            return f"it is held for {job.hold_until_s - now_s:.0f} s more"
        if not wants(job, now_s):
            return "it is scaled to no tasks" if job.state == QUEUED else ""
        if self.hopeless(job):
            return "it needs more than all agents that were seen have"
        held = len(self._state.agents.offers)
        if not held:
            return "the master offers nothing just now"
        miss = self._misses.get(job.job_id)
        if miss is None:
            return f"its turn has not come: the first {self._options.depth} jobs that wait for offers are looked at"
        first = self.gathers if self.gathers != job.job_id else ""
        behind = f", behind {first}, which comes before it" if first else ""
        kept = (
            f"those of {miss.agents} agent{'s' if miss.agents > 1 else ''} are" if miss.agents else "none is"
        )
        return f"{miss.fit} of {miss.needed} tasks fit into the offers{behind}; {kept} withheld for it"

    # ------------------------------------------------------------------------------------------------------ giving back

    def give_back(self, now_s: float) -> None:
        """Let go what has been withheld for as long as it may be."""
        hold_s = self._options.hold_s
        bound_s = hold_s - min(HOLD_MARGIN * hold_s, HOLD_MARGIN_S)
        # were it always as long, two frameworks with half a gang each could change places for ever
        chance = zlib.crc32(f"{self._state.framework_id} {self._rounds}".encode()) / 2**32
        bound_s *= 1.0 - HOLD_SPREAD * chance
        due = []
        for offer_id, (_, since_s) in self._state.agents.offers.items():
            if now_s - since_s < bound_s:
                break
            due.append(offer_id)
        if due:
            self._rounds += 1
            self._decline(due, self._options.refuse_s, now_s)
            self._revive = True
            self._revived_s = now_s + self._options.refuse_s  # others shall have their turn first

    def revive(self, now_s: float) -> None:
        """Have the master offer again what was declined, if somebody wants it and it is time to."""
        if not self._revive or now_s - self._revived_s < REVIVE_S:
            return
        self._revive = False
        self._revived_s = now_s
        if any(wants(job, now_s) for *_, job in self._state.listed()):
            self._calls.append({"type": "REVIVE"})

    def _refusal_s(self, waits: bool) -> float:
        return self._options.refuse_s if waits else max(self._options.refuse_s, IDLE_S)

    def _decline(self, offer_ids: Sequence[str], refuse_s: float, now_s: float) -> None:
        for offer_id in offer_ids:
            self.longest_hold_s = max(self.longest_hold_s, now_s - self._state.agents.offers[offer_id][1])
            self._state.agents.remove(offer_id)
        for at in range(0, len(offer_ids), CHUNK):
            self._calls.append(launch.decline(offer_ids[at : at + CHUNK], refuse_s))

    # ------------------------------------------------------------------------------------------------------ dealing out

    def deal(self, now_s: float, *, at_once: bool) -> None:
        """Deal the pool out, job after job; launch what fits, keep what a job gathers, give back the rest.

        Only if something has changed, and but for `at_once` not too often.
        """
        if not self._dirty or (not at_once and now_s - self._passed_s < PASS_S):
            return
        self._dirty, self._passed_s, self.gathers = False, now_s, ""
        self._misses = {}
        agents = self._state.agents
        count = len(agents)
        if not agents.offers:
            return
        free = agents.free[:, :count].copy()
        kept: NDArray[np.bool_] = np.zeros(count, bool)
        plans: list[tuple[Job, Placed]] = []
        misses = planned = 0
        for *_, job in self._state.listed():
            wanted = wants(job, now_s)
            if not wanted:
                continue
            placed, fits, there = self._placing.place(job, wanted, free)
            if fits:
                if placed:
                    plans.append((job, placed))
                    planned += sum(int(counts.sum()) for _, counts in placed)
                    if planned >= PASS_TASKS:  # the master can begin with these
                        self._dirty = True
                        break
                continue
            misses += 1
            possible = self._placing.can_ever(job, wanted)
            fit = sum(int(counts.sum()) for _, counts in placed)
            needed = sum(least for _, least, _ in wanted)
            self._misses[job.job_id] = Miss(fit, needed, int(there.sum()) if possible else 0)
            if possible:
                self.gathers = self.gathers or job.job_id
                kept |= there
            else:
                for group, counts in placed:  # it hoards nothing that it can never use
                    self._placing.give_back(job, group, counts, free)
            if misses >= self._options.depth:
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
        if misses:
            kept |= self._for_guests(count)
        idle = [
            offer_id
            for offer_id, (offer, _) in agents.offers.items()
            if not kept[agents.number[offer.agent_id]] or offer.unavailable
        ]
        if idle:
            self._decline(idle, self._refusal_s(misses > 0), now_s)

    def _for_guests(self, count: int) -> NDArray[np.bool_]:
        """Agents on which tasks of ours run, and of which a guest could use what is withheld: revocable resources, or
        memory where nobody can use CPUs."""
        agents = self._state.agents
        useful: NDArray[np.bool_] = np.zeros(count, bool)
        if self._options.revocable:
            useful |= agents.revocable[:, :count].max(axis=0) > 0
        if self._options.inside:
            useful |= (agents.free[CPUS, :count] == 0) & (agents.free[MEM, :count] > 0)
        useful &= agents.used[:, :count].max(axis=0) > 0
        return useful

    def beside(self, event: Beside, now_s: float) -> None:
        """Launch a guest beside its host. Raises UsageError that says why it cannot be, now or at all."""
        job, agents = self._state.job(event.job), self._state.agents
        wanted = wants(job, now_s)
        if job.state == QUEUED and not wanted:
            raise UsageError(f"{event.job} is held")
        if not wanted:
            raise UsageError(f"{event.job} does not wait")
        if job.spec.elastic:
            wanted = [(0, 1, 1)] if wanted[0][0] == 0 and len(job.groups) == 1 else []
        if not wanted:
            raise UsageError(f"{event.job} has several groups, which do not start beside another job")
        rows = [agents.number[agent] for agent in event.agents if agent in agents.number]
        count = len(agents)
        allowed = np.zeros(count, bool)
        allowed[rows] = True
        inside, why = self._insides(job, event.host, rows)
        for revocable in (True, False) if self._options.revocable else (False,):
            if not revocable and inside and self._join(job, wanted, inside, event, now_s):
                return
            free = np.where(allowed, (agents.revocable if revocable else agents.free)[:, :count], 0)
            if revocable:  # CPU is what is revocable; memory, devices and disk are not
                free[MEM:] = np.where(allowed, agents.free[MEM:, :count], 0)
            placed, fits, _ = self._placing.place(job, wanted, free)
            if fits and placed:
                self._launch([(job, placed)], True, now_s, beside=event, revocable=revocable)
                return
        until_s = now_s + self._options.hold_s
        for row in rows:
            self._interest[row] = until_s
        self._revive = True
        raise UsageError(
            "the agents of its host have offered nothing that it could run on; they are asked again"
            + (f" ({why})" if why else "")
        )

    def _insides(self, job: Job, unit: str, rows: Iterable[int]) -> tuple[dict[int, str], str]:
        """By agent the executor of the unit there, if tasks of the job may join it; and why they may not at all."""
        host = self._state.jobs.get(job_of(unit))
        if not self._options.inside or host is None or host.state not in (LAUNCHING, RUNNING):
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

    def _join(
        self,
        job: Job,
        wanted: Sequence[tuple[int, int, int]],
        inside: Mapping[int, str],
        event: Beside,
        now_s: float,
    ) -> bool:
        """Launch it within the executors of its host, without CPUs of its own. False if it does not fit."""
        agents = self._state.agents
        free = np.zeros_like(agents.free[:, : len(agents)])
        at = list(inside)
        free[:, at] = agents.free[:, at]
        free[CPUS] = 0
        for row, executor in inside.items():
            for task in self._tasks_in(executor):
                if not task.inside:  # what its host has there is what it may use
                    needs = self._state.needs(self._state.jobs[task.job])
                    free[CPUS, row] += needs[task.group][CPUS]
        placed, fits, _ = self._placing.place(job, wanted, free, executors=False)
        if fits and placed:
            self._launch([(job, placed)], True, now_s, beside=event, inside=inside)
        return fits and bool(placed)

    def _tasks_in(self, executor: str) -> list[Task]:
        """Tasks of an executor's own job that it runs; its id is that of the first of them."""
        job = self._state.jobs[executor.partition(".")[0]]
        return [task for task in job.tasks.values() if task.executor == executor]

    def _launch(
        self,
        plans: Sequence[tuple[Job, Placed]],
        more_wait: bool,
        now_s: float,
        *,
        beside: Beside | None = None,
        revocable: bool = False,
        inside: Mapping[int, str] = EMPTY,
    ) -> None:
        """Record tasks, and accept the offers of every agent that gets some, all its tasks in one call.

        `beside` is what asked for guests; `inside` are executors of the host by agent, if they run there.
        """
        agents = self._state.agents
        by_agent: dict[int, list[tuple[Job, list[Task]]]] = {}
        for job, placed in plans:
            for row, tasks in self._record(job, placed, now_s, beside, revocable, inside).items():
                by_agent.setdefault(row, []).append((job, tasks))
        where = {job.job_id: launch.where(job) for job, _ in plans}
        hosts = {executor: self._executor_info(executor) for executor in inside.values()}
        refuse_s = 0.0 if more_wait else self._refusal_s(False)
        joinable: dict[str, dict[str, list[Any]]] = {}
        for row, launched in by_agent.items():
            since_s = min(agents.offers[offer_id][1] for offer_id in agents.of_agent[row])
            self.longest_hold_s = max(self.longest_hold_s, now_s - since_s)
            offer_ids, pieces = agents.consume(row)
            infos: list[dict[str, Any]] = []
            for job, tasks in launched:
                told, made = launch.described(
                    job,
                    tasks,
                    pieces,
                    where[job.job_id],
                    self._state.needs(job),
                    self._state.framework_id,
                    self._options,
                    hosts,
                )
                infos += told
                if self._options.inside and math.isfinite(job.spec.time_limit_s) and not job.beside:
                    of = joinable.setdefault(job.job_id, {})
                    of.update((name, list(executor)) for name, executor in made.items())
            self._calls.append(launch.accept(offer_ids, infos, refuse_s))
        for job_id, executors in joinable.items():  # what a guest has to say to join them
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
        agents, fresh = self._state.agents, job.state == QUEUED
        host = beside.host if beside is not None else ""
        attempt = job.attempt + 1 if fresh else job.attempt
        serial = 0 if fresh else job.serial
        tasks: list[list[Any]] = []
        first: dict[int, str] = {}
        for group, counts in placed:
            todo = iter(list(job.groups[group].todo))
            for row in np.flatnonzero(counts).tolist():
                for _ in range(int(counts[row])):
                    task_id = f"{job.job_id}.{attempt}.{serial}"
                    place = (agents.ids[row], agents.hosts[row])
                    executor = inside.get(row) or (
                        task_id if job.spec.elastic else first.setdefault(row, task_id)
                    )
                    where_in = host if row in inside else ""
                    tasks.append([task_id, group, next(todo), *place, revocable, executor, where_in])
                    serial += 1
        demand = {} if beside is None or math.isnan(beside.demand) else {"demand": beside.demand}
        counts_of = Counter(agents.number[plain[3]] for plain in tasks)
        self._state.note(
            what="launch",
            job=job.job_id,
            time_s=now_s,
            tasks=tasks,
            beside=host,
            where=self.where(counts_of),
            **self._state.addresses_of(agents.ids[row] for row in counts_of),
            **demand,
        )
        by_row: dict[int, list[Task]] = {}
        for plain in tasks:
            task = job.tasks[plain[0]]
            by_row.setdefault(agents.number[task.agent], []).append(task)
        return by_row

    def where(self, counts: Mapping[int, int]) -> str:
        """Nodes, and tasks on each, for people; `counts` are tasks by the agents' rows."""
        names = self._state.agents.names()
        shown = [f"{names[row]}*{tasks}" for row, tasks in list(counts.items())[:MOST_NAMED]]
        more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
        return "".join(char if char.isprintable() else "?" for char in ",".join(shown)) + more

    def _executor_info(self, executor: str) -> dict[str, Any]:
        """What the master was told of an executor that runs."""
        task = self._tasks_in(executor)[0]
        job = self._state.jobs[task.job]
        return launch.executor_info(
            job.spec, unit_of(job, task), executor, self._state.framework_id, job.executors[executor]
        )

"""What holds of the framework whatever comes: random masters that lose calls, agents and connections."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from asad_mesos.agent_offers import read_offer
from asad_mesos.events import (
    AgentLost,
    Beside,
    Cancelled,
    Disconnected,
    Event,
    Offered,
    Rescinded,
    Scaled,
    Submitted,
    Subscribed,
    Ticked,
    Updated,
)
from asad_mesos.framework import Framework
from asad_mesos.framework_state import unit_of
from asad_mesos.job_spec import Group, Spec
from asad_mesos.settings import Settings
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.errors import UsageError

OPTIONS = Settings(
    hold_s=20.0, refuse_s=2.0, unreachable_s=30.0, kill_grace_s=1.0, retries=3, executor_memory_mb=1.0
)
CPUS, MEM = 4.0, 1000.0
OVER = "over"


def spec(rng: random.Random) -> Spec:
    if rng.random() < 0.2:
        groups = (
            Group("worker", tasks=rng.randint(1, 6), least=1, memory_bytes=50 * 2**20),
            Group("server", tasks=rng.randint(1, 3), least=1, memory_bytes=50 * 2**20),
        )
        return Spec(user="u", uid=1, command="c", groups=groups, elastic=True, time_limit_s=1e6)
    cpus = rng.choice([0.5, 1.0, 2.0])
    tasks = rng.randint(1, 14 if cpus <= 1.0 else 8)  # it fits on all agents together
    least = rng.randint(1, tasks) if rng.random() < 0.3 else 0
    group = Group(tasks=tasks, least=least, cpus=cpus, memory_bytes=40 * 2**20)
    limit_s = rng.choice([1e6, 1e7])  # it may be a host
    return Spec(user="u", uid=1, command="c", groups=(group,), time_limit_s=limit_s)


class World:
    """A master, agents and the time, against one framework."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.framework = Framework(OPTIONS)
        self.now_s = 0.0
        self.agents = {f"S{number}" for number in range(5)}
        self.offers: dict[str, tuple[str, float, float]] = {}
        self.tasks: dict[str, tuple[str, str, float, float]] = {}
        """Task → agent, state, CPUs and memory."""
        self.launched: Counter[str] = Counter()
        self.executors: dict[str, tuple[dict[str, Any], set[str]]] = {}
        """What was sent of each executor, and its tasks."""
        self.records: list[dict[str, Any]] = []
        self.number = self.guests = 0
        self.connected = False
        self.longest_s = 0.0
        self.since: dict[str, float] = {}

    def handle(self, *events: Event) -> None:
        records, calls = self.framework.handle(*events, now_s=self.now_s)
        self.records += json.loads(json.dumps(records))
        if not self.connected:
            return
        for call in calls:
            if self.rng.random() < self.lossy:
                self.disconnect()  # this call and all after it never arrive
                return
            self.answer(call)

    lossy = 0.0

    def disconnect(self) -> None:
        self.connected = False
        self.offers.clear()
        self.since.clear()
        self.handle(Disconnected())

    def connect(self) -> None:
        self.connected = True
        self.handle(Subscribed("framework-1"))

    def gone(self, offer_id: str) -> tuple[str, float, float] | None:
        if offer_id in self.since:
            self.longest_s = max(self.longest_s, self.now_s - self.since.pop(offer_id))
        return self.offers.pop(offer_id, None)

    def free(self, agent: str) -> tuple[float, float]:
        cpus, mem = CPUS, MEM
        for at, state, taken, memory in self.tasks.values():
            if at == agent and state != OVER:
                cpus, mem = cpus - taken, mem - memory
        for at, taken, memory in self.offers.values():
            if at == agent:
                cpus, mem = cpus - taken, mem - memory
        return cpus, mem

    def offer(self) -> None:
        made = []
        for agent in sorted(self.agents):
            cpus, mem = self.free(agent)
            if cpus < 0.01 or self.rng.random() < 0.3:
                continue
            if self.rng.random() < 0.3:
                cpus, mem = cpus / 2, mem / 2  # others have a part of it
            cpus, mem = round(cpus, 3), round(mem, 3)
            self.number += 1
            offer_id = f"O{self.number}"
            self.offers[offer_id] = (agent, cpus, mem)
            self.since[offer_id] = self.now_s
            resources = [
                {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"}
                for name, value in (("cpus", cpus), ("mem", mem))
            ]
            made.append(
                read_offer(
                    {
                        "id": {"value": offer_id},
                        "agent_id": {"value": agent},
                        "hostname": agent.lower(),
                        "resources": resources,
                    }
                )
            )
        if made:
            self.handle(Offered(made))

    def answer(self, call: dict[str, Any]) -> None:
        kind = call["type"]
        if kind == "DECLINE":
            for offer in call["decline"]["offer_ids"]:
                self.gone(offer["value"])
        elif kind == "ACCEPT":
            self.accept(call["accept"])
        elif kind == "KILL":
            task_id = call["kill"]["task_id"]["value"]
            if task_id in self.tasks and self.rng.random() < 0.9:
                self.become(task_id, "TASK_KILLED")
        elif kind == "RECONCILE":
            asked = [task["task_id"]["value"] for task in call["reconcile"]["tasks"]]
            mine = [task_id for task_id, task in self.tasks.items() if task[1] != OVER]
            for task_id in asked or mine:
                known = self.tasks.get(task_id)
                if known is None or known[1] == OVER:
                    self.update(task_id, "TASK_UNKNOWN" if known is None else "TASK_GONE")
                else:
                    self.update(task_id, known[1] if known[0] in self.agents else "TASK_UNREACHABLE")

    def accept(self, body: dict[str, Any]) -> None:
        given = [self.gone(offer["value"]) for offer in body["offer_ids"]]
        infos = body["operations"][0]["launch"]["task_infos"]
        if None in given:
            for info in infos:
                self.update(info["task_id"]["value"], "TASK_DROPPED")
            return
        (agent,) = {offer[0] for offer in given if offer is not None}
        cpus = sum(offer[1] for offer in given if offer is not None)
        mem = sum(offer[2] for offer in given if offer is not None)
        for info in infos:
            executor = info["executor"]
            name, resources = executor["executor_id"]["value"], list(info["resources"])
            known = self.executors.get(name)
            if known is not None and not any(self.tasks[t][1] != OVER for t in known[1]):
                known = None  # it has ended, and this is another one
            if known is None:
                known = self.executors[name] = (executor, set())
                resources += executor["resources"]
            assert known[0] == executor, "an executor that is there is another"
            known[1].add(info["task_id"]["value"])
            assert resources, "a task uses nothing"
            taken = sum(r["scalar"]["value"] for r in resources if r["name"] == "cpus")
            memory = sum(r["scalar"]["value"] for r in resources if r["name"] == "mem")
            cpus, mem = cpus - taken, mem - memory
            assert cpus > -1e-6, "more CPUs are used than were offered"
            assert mem > -1e-6, "more memory is used than was offered"
            task_id = info["task_id"]["value"]
            self.launched[task_id] += 1
            self.tasks[task_id] = (agent, "TASK_STAGING", taken, memory)

    def update(self, task_id: str, state: str) -> None:
        status: dict[str, Any] = {"task_id": {"value": task_id}, "state": state, "source": "SOURCE_EXECUTOR"}
        if task_id in self.tasks:
            status |= {"agent_id": {"value": self.tasks[task_id][0]}, "uuid": "eA=="}
        if state == "TASK_RUNNING":
            status["labels"] = {"labels": [{"key": "guests", "value": "yes"}]}
        if self.connected:
            self.handle(Updated(status))

    def become(self, task_id: str, state: str) -> None:
        agent, known, taken, memory = self.tasks[task_id]
        if known == OVER or agent not in self.agents:
            return
        over = state not in ("TASK_STARTING", "TASK_RUNNING")
        self.tasks[task_id] = (agent, OVER if over else state, taken, memory)
        self.update(task_id, state)

    def step(self) -> None:
        rng = self.rng
        self.now_s += rng.choice([0.0, 0.06, 0.5, 2.0])
        if not self.connected:
            if rng.random() < 0.5:
                self.connect()
            return
        if self.offers and self.framework.jobs and rng.random() < 0.5:
            self.beside()
        what = rng.random()
        alive = [task_id for task_id, task in self.tasks.items() if task[1] != OVER]
        if what < 0.25:
            self.offer()
        elif what < 0.35:
            self.handle(Submitted(spec(rng)))
        elif what < 0.65 and alive:
            task_id = rng.choice(alive)
            self.become(
                task_id,
                rng.choice(["TASK_RUNNING"] * 4 + ["TASK_FINISHED"] * 3 + ["TASK_LOST", "TASK_FAILED"]),
            )
        elif what < 0.68 and self.offers:
            offer_id = rng.choice(sorted(self.offers))
            self.gone(offer_id)
            if rng.random() < 0.7:
                self.handle(Rescinded(offer_id))
        elif what < 0.71:
            self.disconnect()
        elif what < 0.74 and self.framework.jobs:
            self.handle(Cancelled(rng.choice(sorted(self.framework.jobs)), "because"))
        elif what < 0.77:
            elastic = [job for job in self.framework.jobs.values() if job.spec.elastic]
            if elastic:
                job = rng.choice(elastic)
                wanted = {group.name: rng.randint(0, group.tasks) for group in job.spec.groups}
                self.handle(Scaled(job.job_id, wanted))
        elif what < 0.79 and len(self.agents) > 2:
            agent = rng.choice(sorted(self.agents))
            self.agents.discard(agent)
            for offer_id in [o for o, offer in self.offers.items() if offer[0] == agent]:
                self.gone(offer_id)
                self.handle(Rescinded(offer_id))
            self.handle(AgentLost(agent))
        elif what < 0.82 and len(self.agents) < 5:
            self.agents.add(rng.choice(sorted({f"S{n}" for n in range(5)} - self.agents)))
        else:
            self.handle(Ticked())

    def beside(self) -> None:
        """The smallest job that waits is sent beside a unit that runs, where that can be."""
        jobs = self.framework.jobs
        waiting = [job for job in jobs.values() if job.state == "queued"]
        tasks = [task for task in self.framework.tasks.values() if not jobs[task.job].beside]
        if waiting and tasks:
            guest = min(waiting, key=lambda job: job.spec.cpus).job_id
            task = self.rng.choice(tasks)
            unit = unit_of(jobs[task.job], task)
            agents = sorted({t.agent for t in tasks if unit_of(jobs[t.job], t) == unit})
            with contextlib.suppress(UsageError):
                self.handle(Beside(guest, guest, unit, agents))
                self.guests += any(task.inside for task in jobs[guest].tasks.values())

    def check(self) -> None:
        assert all(count == 1 for count in self.launched.values()), "a task was launched twice"
        for job in self.framework.jobs.values():
            if job.spec.elastic or not job.tasks:
                continue
            started = Counter(int(name.split(".")[1]) for name in job.tasks)
            assert len(started) == 1, "tasks of two attempts at once"
            assert job.serial >= job.spec.groups[0].start_tasks, "a part of a gang was launched"
        used = self.framework.agents.used
        assert (used >= 0).all()
        assert (self.framework.agents.free >= 0).all()

    def drain(self) -> None:
        """No faults any more: what runs ends, and what fits starts."""
        self.lossy = 0.0
        self.agents = {f"S{number}" for number in range(5)}
        for job in self.framework.jobs.values():
            if job.spec.elastic:
                self.handle(Scaled(job.job_id, {group.name: group.tasks for group in job.spec.groups}))
        for _ in range(1500):
            if not self.framework.jobs and all(task[1] == OVER for task in self.tasks.values()):
                return  # one that was given up is heard of when its agent is back
            self.now_s += 3.0
            if not self.connected:
                self.connect()
            for task_id in [task_id for task_id, task in self.tasks.items() if task[1] != OVER]:
                known = self.tasks[task_id][1]
                self.become(task_id, "TASK_RUNNING" if known == "TASK_STAGING" else "TASK_FINISHED")
            self.offer()
            self.handle(Ticked())


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), lossy=st.sampled_from([0.0, 0.02]))
@settings(max_examples=60, deadline=None)
def test_gangs_stay_whole_offers_are_returned_and_everything_ends(seed: int, lossy: float) -> None:
    world = World(seed)
    world.lossy = lossy
    for _ in range(250):
        world.step()
        world.check()
    world.drain()
    world.check()
    left = {job.job_id: (job.state, job.why) for job in world.framework.jobs.values()}
    assert not left, "a job neither runs nor ends although there is room"
    alive = [task_id for task_id, task in world.tasks.items() if task[1] != OVER]
    assert not alive, "tasks run that nobody knows"


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_no_offer_is_withheld_beyond_its_bound(seed: int) -> None:
    world = World(seed)
    for _ in range(300):
        world.step()
        world.handle(Ticked())  # somebody looks at least every two seconds
    assert max(world.longest_s, world.framework.pool.replies.longest_hold_s) <= OPTIONS.hold_s


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_a_successor_knows_from_the_journal_what_its_predecessor_knew(seed: int) -> None:
    world = World(seed)
    world.lossy = 0.01
    for _ in range(150):
        world.step()
    replayed, condensed = Framework(OPTIONS), Framework(OPTIONS)
    replayed.restore(world.records)
    assert replayed.dump() == world.framework.dump()
    condensed.restore(json.loads(json.dumps(world.framework.dump())))
    assert condensed.dump() == world.framework.dump()
    assert condensed.tasks.keys() == world.framework.tasks.keys()
    assert (condensed.agents.used.sum(axis=1) == world.framework.agents.used.sum(axis=1)).all()


@pytest.mark.parametrize("seed", range(3))
def test_two_frameworks_with_half_a_gang_each_do_not_wait_for_each_other(seed: int) -> None:
    """Both want all four agents. Each is given two at a time; who holds releases in time, and in the end both ran."""
    rng = random.Random(seed)
    frameworks = [Framework(replace(OPTIONS, hold_s=5.0, refuse_s=float(1 + seed))) for _ in range(2)]
    owner: dict[str, int] = {}
    out: dict[str, str] = {}
    filters: dict[tuple[int, str], float] = {}
    running: dict[str, tuple[int, str, float]] = {}
    ran = [0, 0]
    number = 0
    now_s = 0.0
    gang = Spec(user="u", uid=1, command="c", groups=(Group(tasks=4, cpus=4.0, memory_bytes=40 * 2**20),))

    def take(which: int, *events: Event) -> None:
        for call in frameworks[which].handle(*events, now_s=now_s).calls:
            if call["type"] == "DECLINE":
                for offer in call["decline"]["offer_ids"]:
                    agent = out.pop(offer["value"])
                    owner.pop(agent)
                    filters[which, agent] = now_s + call["decline"]["filters"]["refuse_seconds"]
            elif call["type"] == "ACCEPT":
                for info in call["accept"]["operations"][0]["launch"]["task_infos"]:
                    running[f"{which}/{info['task_id']['value']}"] = (
                        which,
                        info["agent_id"]["value"],
                        now_s + 3,
                    )
            elif call["type"] == "REVIVE":
                for key in [key for key in filters if key[0] == which]:
                    del filters[key]

    for which in range(2):
        take(which, Subscribed(f"f{which}"), Submitted(gang))
    for _ in range(3000):
        now_s += 0.25
        for agent in rng.sample(["A", "B", "C", "D"], 4):
            if agent in owner:
                continue
            fair = sorted(
                range(2), key=lambda which: (sum(1 for o in owner.values() if o == which), rng.random())
            )
            which = next((w for w in fair if filters.get((w, agent), 0.0) <= now_s), None)
            if which is None:
                continue
            number += 1
            owner[agent] = which
            out[f"O{number}"] = agent
            resources = [
                {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"}
                for name, value in (("cpus", 4.0), ("mem", 500.0))
            ]
            take(
                which,
                Offered(
                    [
                        read_offer(
                            {
                                "id": {"value": f"O{number}"},
                                "agent_id": {"value": agent},
                                "hostname": agent,
                                "resources": resources,
                            }
                        )
                    ]
                ),
            )
        for name, (which, agent, end_s) in list(running.items()):
            if now_s >= end_s:
                del running[name]
                owner.pop(agent, None)
                ran[which] += 1
                status = {
                    "task_id": {"value": name.partition("/")[2]},
                    "state": "TASK_FINISHED",
                    "agent_id": {"value": agent},
                    "source": "SOURCE_EXECUTOR",
                }
                take(which, Updated(status))
        for which in range(2):
            take(which, Ticked())
        if ran == [4, 4]:
            break
    assert ran == [4, 4]
    assert all(framework.pool.replies.longest_hold_s <= 5.0 for framework in frameworks)


def test_guests_join_executors_in_these_worlds() -> None:
    """Or what holds above would say nothing of them."""
    joined = 0
    for seed in range(20):
        world = World(seed)
        for _ in range(250):
            world.step()
        joined += world.guests
    assert joined > 0

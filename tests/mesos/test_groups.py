"""Groups of tasks: apart, not run again, and workers with their parameter servers that are scaled together."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import pytest
from asad_mesos.agent_offers import Offer, Piece
from asad_mesos.framework import (
    Disconnected,
    Event,
    Framework,
    Instructions,
    Offered,
    Scaled,
    Submitted,
    Subscribed,
    Ticked,
    Updated,
)
from asad_mesos.job_spec import MEBIBYTE, Group, Spec
from asad_mesos.settings import Settings

from asad.errors import UsageError

OPTIONS = Settings(executor_memory_mb=1.0, refuse_s=0.0)


class Mesos:
    """A framework in the test's hand, and what a master would have done with its calls."""

    def __init__(self, options: Settings = OPTIONS) -> None:
        self.framework, self.now_s, self.offered = Framework(options), 100.0, 0
        self.records: list[dict[str, Any]] = []
        self.where: dict[str, str] = {}
        """Host of each task that was launched and has not ended."""
        self.killed: list[str] = []
        self.launched: Counter[str] = Counter()
        self.do(Subscribed("f"))

    def do(self, *events: Event) -> Instructions:
        self.now_s += 1.0
        seen = self.framework.handle(*events, now_s=self.now_s)
        self.records += seen.records
        for call in seen.calls:
            if call["type"] == "ACCEPT":
                for operation in call["accept"]["operations"]:
                    for info in operation["launch"]["task_infos"]:
                        name = info["task_id"]["value"]
                        self.where[name] = info["agent_id"]["value"]
                        self.launched[name] += 1
            elif call["type"] == "KILL":
                self.killed.append(call["kill"]["task_id"]["value"])
        return seen

    def offer(self, *agents: str, cpus: int = 8, mem: int = 8192) -> None:
        made = []
        for agent in agents:
            self.offered += 1
            pieces = tuple(
                Piece(name, 1000 * amount, {"name": text, "type": "SCALAR"}, False)
                for name, text, amount in ((0, "cpus", cpus), (1, "mem", mem))
            )
            made.append(Offer(f"o{self.offered}", agent, agent, f"{agent}:5051", {}, pieces, False))
        self.do(Offered(made), Ticked())

    def say(self, task: str, state: str, **more: Any) -> None:
        status = {"task_id": {"value": task}, "state": state, "agent_id": {"value": self.where[task]}, **more}
        if state not in ("TASK_STARTING", "TASK_RUNNING"):
            del self.where[task]
        self.do(Updated(status), Ticked())

    def run_all(self) -> None:
        for task in list(self.where):
            self.say(task, "TASK_RUNNING")

    def obey(self) -> None:
        """What was asked to end has ended."""
        for task in list(dict.fromkeys(self.killed)):
            if task in self.where:
                self.say(task, "TASK_KILLED")

    def groups(self, job: str) -> dict[str, int]:
        """Tasks of each group that are there and not being ended."""
        found = self.framework.job(job)
        names = [group.name for group in found.spec.groups]
        counts = Counter(names[task.group] for task in found.tasks.values() if not task.killing)
        return {name: counts[name] for name in names}


def spec(*groups: Group, **more: Any) -> Spec:
    return Spec(user="ann", uid=1000, command="true", groups=groups, **more)


def oasis(workers: int = 8, servers: int = 2) -> Spec:
    """As `asactl submit --worker … --server …` makes it."""
    return spec(
        Group("worker", tasks=workers, least=2, cpus=1.0, memory_bytes=64 * MEBIBYTE),
        Group("server", tasks=servers, least=1, cpus=1.0, memory_bytes=64 * MEBIBYTE),
        elastic=True,
    )


def test_tasks_that_stand_apart_wait_for_agents_of_their_own() -> None:
    mesos = Mesos()
    mesos.do(Submitted(spec(Group("batch", apart=True), Group("node", tasks=2, apart=True))))
    mesos.offer("a1", "a2")
    assert not mesos.where, "there is room on two, but it wants three agents"
    mesos.offer("a1", "a2", "a3")
    assert sorted(mesos.where.values()) == ["a1", "a2", "a3"]


def test_tasks_that_need_not_stand_apart_do_not() -> None:
    mesos = Mesos()
    mesos.do(Submitted(spec(Group("batch"), Group("node", tasks=2))))
    mesos.offer("a1")
    assert sorted(mesos.where.values()) == ["a1", "a1", "a1"]


@pytest.mark.parametrize(("retries", "state"), [(0, "failed"), (-1, "queued"), (1, "queued")])
def test_a_job_that_must_not_run_again_does_not(retries: int, state: str) -> None:
    mesos = Mesos()
    mesos.do(Submitted(spec(Group(tasks=2), retries=retries)))
    mesos.offer("a1")
    mesos.run_all()
    first, _ = mesos.where
    mesos.say(first, "TASK_LOST")
    mesos.obey()
    assert mesos.framework.job("m1").state == state


def test_workers_and_servers_start_together_and_are_scaled_together() -> None:
    mesos = Mesos()
    mesos.do(Submitted(oasis()))
    mesos.offer("a1", cpus=2)
    assert not mesos.where, "two workers without their server are no start"
    mesos.offer("a1", "a2", cpus=4)
    assert mesos.groups("m1") == {"worker": 7, "server": 1}, "each its least, and workers what is left"
    mesos.run_all()
    mesos.do(Scaled("m1", {"worker": 2, "server": 1}), Ticked())
    assert mesos.groups("m1") == {"worker": 2, "server": 1}
    mesos.obey()
    assert Counter(task.split(".")[0] for task in mesos.where) == {"m1": 3}
    # what was killed runs again when there is a slot for it: nothing of the work is lost
    mesos.do(Scaled("m1", {"worker": 8, "server": 2}), Ticked())
    mesos.offer("a3", cpus=16)
    assert mesos.groups("m1") == {"worker": 8, "server": 2}
    assert set(mesos.launched.values()) == {1}, "no task id is launched twice"
    with pytest.raises(UsageError, match="give from 0 to 2"):
        mesos.do(Scaled("m1", {"worker": 1, "server": 3}))
    assert mesos.framework.job("m1").groups[0].target == 8, "all or nothing"


def test_servers_end_with_the_last_worker_and_that_is_a_good_end() -> None:
    mesos = Mesos()
    mesos.do(Submitted(oasis(workers=2, servers=1)))
    mesos.offer("a1")
    mesos.run_all()
    job = mesos.framework.job("m1")
    workers = [task.task_id for task in job.tasks.values() if task.group == 0]
    (server,) = [task.task_id for task in job.tasks.values() if task.group == 1]
    mesos.say(workers[0], "TASK_FINISHED")
    assert server not in mesos.killed
    mesos.say(workers[1], "TASK_FINISHED")
    assert server in mesos.killed
    mesos.obey()
    assert mesos.framework.job("m1").state == "completed"


def test_the_batch_script_ends_the_nodes_that_were_held_for_it() -> None:
    mesos = Mesos()
    mesos.do(
        Submitted(spec(Group("batch", apart=True), Group("node", tasks=2, apart=True), origin="slurm:1:0:1"))
    )
    mesos.offer("a1", "a2", "a3")
    mesos.run_all()
    job = mesos.framework.job("m1")
    (batch,) = [task.task_id for task in job.tasks.values() if task.group == 0]
    mesos.say(batch, "TASK_FINISHED")
    mesos.obey()
    assert mesos.framework.job("m1").state == "completed"


def test_a_successor_knows_widths_and_apartness() -> None:
    mesos = Mesos()
    mesos.do(Submitted(oasis()), Submitted(spec(Group(tasks=2, apart=True), retries=0)))
    mesos.offer("a1", cpus=16)
    mesos.run_all()
    mesos.do(Scaled("m1", {"worker": 3, "server": 1}), Ticked())
    heir = Framework(OPTIONS)
    heir.restore(mesos.records)
    assert [progress.target for progress in heir.job("m1").groups] == [3, 1]
    assert heir.job("m2").spec.groups[0].apart
    assert heir.job("m2").spec.retries == 0
    again = Framework(OPTIONS)
    again.restore(heir.dump())
    assert [progress.target for progress in again.job("m1").groups] == [3, 1]
    assert math.isinf(again.job("m1").spec.time_limit_s)
    heir.handle(Disconnected(), now_s=1e6)
    assert dataclasses.asdict(again.job("m2").spec) == dataclasses.asdict(heir.job("m2").spec)

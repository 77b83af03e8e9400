"""A Mesos on paper: the framework's own state machine over agents that a test moves by a clock of its own."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from asad_mesos.agent_offers import read_offer
from asad_mesos.framework import Event, Framework, Offered, Submitted, Subscribed, Ticked, Updated
from asad_mesos.job_spec import Group, Spec
from asad_mesos.master_calls import Call
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.settings import Settings

from asad.port import Lease, NodeReport


class WillingNodes:
    """Node actors that take note of everything."""

    def __init__(self) -> None:
        self.granted: dict[str, list[Lease]] = {}
        self.announced: list[tuple[tuple[str, ...], str]] = []

    def reports(self) -> Mapping[str, NodeReport]:
        return {}

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        self.announced.append((tuple(node_names), job_id))
        return True

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        self.granted = {node: list(those) for node, those in leases.items()}


class PaperMesos:
    """Drives the state machine: answers its calls as a master would, and lets tasks end when they are due."""

    def __init__(
        self,
        nodes: int,
        cores: int,
        revocable: float,
        jobs: list[tuple[float, Spec, float]],
        **options: Any,
    ) -> None:
        """`jobs`: when each is submitted, what it is, and how long each of its tasks runs."""
        self.lock = threading.RLock()
        self.framework = Framework(
            Settings(executor_memory_mb=1.0, hold_s=60.0, refuse_s=1.0, kill_grace_s=0.0, **options)
        )
        self.trouble = ""
        self.clock_s = 1000.0
        self.nodes, self.cores, self.revocable = nodes, cores, revocable
        self.mem, self.gpus = 64_000.0, 0.0
        """Of each node, as `cores`."""
        self._counter = itertools.count()
        self._due: list[tuple[float, int, str, Any]] = []
        self._run_s: dict[str, float] = {}
        self._offers: dict[str, tuple[int, Counter[str]]] = {}
        self.used: list[Counter[str]] = [Counter() for _ in range(nodes)]
        self.tasks: dict[str, tuple[int, Counter[str], str]] = {}
        self.executors: dict[str, tuple[Any, set[str]]] = {}
        """What was sent of each executor, and the tasks that it has."""
        for submit_s, spec, run_s in jobs:
            self._at(self.clock_s + submit_s, "submit", (spec, run_s))
        self.handle(Subscribed("paper-0000"))

    # what a cluster uses

    @property
    def subscribed(self) -> bool:
        return True

    def now_s(self) -> float:
        return self.clock_s

    def start(self) -> None:
        return None

    def wait(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        return None

    def submit(self, *specs: Spec) -> list[str]:
        first = self.framework.last_number + 1
        self.handle(*(Submitted(spec) for spec in specs))
        return [f"m{first + number}" for number in range(len(specs))]

    def do(self, event: Event) -> None:
        self.handle(event)

    # what a master does

    def handle(self, *events: Event) -> None:
        """Events in, and everything that follows at this moment."""
        calls = self.framework.handle(*events, now_s=self.clock_s).calls
        for call in calls:
            self.answer(call)

    def answer(self, call: Call) -> None:
        """Do what a call asks for."""
        if call["type"] == "DECLINE":
            for offer in call["decline"]["offer_ids"]:
                self._offers.pop(offer["value"], None)
        elif call["type"] == "ACCEPT":
            self._accept(call["accept"])
        elif call["type"] == "KILL":
            self._end(str(call["kill"]["task_id"]["value"]), "TASK_KILLED")

    def _accept(self, body: Mapping[str, Any]) -> None:
        nodes = {self._offers.pop(offer["value"])[0] for offer in body["offer_ids"]}
        (node,) = nodes  # of one agent only, as the real one wants it
        for info in body["operations"][0]["launch"]["task_infos"]:
            held: Counter[str] = Counter()
            executor = info["executor"]
            known = self.executors.get(executor["executor_id"]["value"])
            assert known is None or known[0] == executor, "an executor that is there is another"
            if known is None:
                known = self.executors[executor["executor_id"]["value"]] = (executor, set())
            own = [] if known[1] else executor["resources"]  # taken once, and held by its first task here
            known[1].add(str(info["task_id"]["value"]))
            for resource in [*info["resources"], *own]:
                name = "revocable" if "revocable" in resource else resource["name"]
                held[name] += resource["scalar"]["value"]
            self.used[node].update(held)
            assert self.used[node]["cpus"] <= self.cores + 1e-6, "more was launched than there is"
            assert self.used[node]["mem"] <= self.mem + 1e-6
            assert self.used[node]["revocable"] <= self.revocable + 1e-6
            task_id = str(info["task_id"]["value"])
            assert task_id not in self.tasks, "launched twice"
            job = task_id.partition(".")[0]
            self.tasks[task_id] = (node, held, "TASK_STAGING")
            self._at(self.clock_s, "running", task_id)
            self._at(self.clock_s + self._run_s.get(job, 60.0), "end", task_id)

    def _end(self, task_id: str, state: str) -> None:
        if task_id not in self.tasks or self.tasks[task_id][2] == "over":
            return
        node, held, _ = self.tasks[task_id]
        self.used[node].subtract(held)
        for name in [name for name, (_, tasks) in self.executors.items() if task_id in tasks]:
            self.executors[name][1].discard(task_id)
            if not self.executors[name][1]:
                del self.executors[name]
        self.tasks[task_id] = (node, held, "over")
        self._update(task_id, state)

    def _update(self, task_id: str, state: str) -> None:
        status = {
            "task_id": {"value": task_id},
            "agent_id": {"value": f"S{self.tasks[task_id][0]}"},
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "uuid": "eA==",
            "labels": {"labels": [{"key": "guests", "value": "yes"}]},
        }
        self.handle(Updated(status))

    def _at(self, time_s: float, what: str, thing: Any) -> None:
        heapq.heappush(self._due, (time_s, next(self._counter), what, thing))

    def offer(self) -> None:
        """Offer all that is free and not offered."""
        out: dict[int, Counter[str]] = {node: Counter() for node in range(self.nodes)}
        for node, amounts in self._offers.values():
            out[node].update(amounts)
        offers = []
        for node in range(self.nodes):
            amounts: Counter[str] = Counter()
            for name, total in (
                ("cpus", float(self.cores)),
                ("mem", self.mem),
                ("gpus", self.gpus),
                ("revocable", self.revocable),
            ):
                amounts[name] = round(total - self.used[node][name] - out[node][name], 3)  # type: ignore[assignment]
            if amounts["cpus"] + amounts["revocable"] < 0.01 and amounts["mem"] < 32:
                continue
            offer_id = f"O{next(self._counter)}"
            self._offers[offer_id] = (node, amounts)
            scalars = [(name, amounts[name], {}) for name in ("cpus", "mem", "gpus")]
            scalars.append(("cpus", amounts["revocable"], {"revocable": {}}))
            offers.append(
                read_offer(
                    {
                        "id": {"value": offer_id},
                        "agent_id": {"value": f"S{node}"},
                        "hostname": f"n{node}",
                        "resources": [
                            {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*", **more}
                            for name, value, more in scalars
                            if value > 0
                        ],
                    }
                )
            )
        if offers:
            self.handle(Offered(offers))

    def settle(self) -> None:
        """Everything that happens without time passing."""
        for _ in range(50):
            due = []
            while self._due and self._due[0][0] <= self.clock_s:
                due.append(heapq.heappop(self._due))
            for _, _, what, thing in due:
                if what == "submit":
                    spec, run_s = thing
                    (job,) = self.submit(spec)
                    self._run_s[job] = run_s
                elif what == "running" and self.tasks[thing][2] == "TASK_STAGING":
                    node, held, _ = self.tasks[thing]
                    self.tasks[thing] = (node, held, "TASK_RUNNING")
                    self._update(thing, "TASK_RUNNING")
                elif what == "end":
                    self._end(thing, "TASK_FINISHED")
            before = len(self.tasks)
            self.offer()
            self.handle(Ticked())
            if not due and len(self.tasks) == before:
                return

    def advance(self, step_s: float = 600.0) -> bool:
        """Until something is due; False when all is over."""
        if not self._due and not self.framework.jobs:
            return False
        due_s = self._due[0][0] if self._due else self.clock_s + step_s
        # a hold may end before
        self.clock_s = max(self.clock_s + 1.0, min(due_s, self.clock_s + step_s))
        self.settle()
        return True


def paper_jobs(count: int, seed: int = 7) -> tuple[list[tuple[float, Spec, float]], int]:
    """Gangs of 1 to 24 tasks and two elastic jobs; how many units that makes in all."""
    rng = np.random.default_rng(seed)
    arrays, tasks = 2, 13
    jobs = []
    for number in range(count - arrays * tasks):
        cores = int(rng.choice([1, 2, 4, 8, 8, 16, 24]))
        work_s = round(float(rng.uniform(60.0, 3600.0)))
        spec = Spec(
            user=f"user{number % 3}",
            uid=1000 + number % 3,
            command="sleep",
            groups=(Group(tasks=cores, memory_bytes=500.0 * 2**20),),
            name=f"app{number % 5}",
            time_limit_s=work_s * float(rng.uniform(1.1, 4.0)),
            hint=f"utility=constant({number})" if number % 5 == 0 else "",
        )
        jobs.append((round(float(rng.uniform(0.0, 14_400.0))), spec, work_s))
    for number in range(arrays):
        spec = Spec(
            user="user0",
            uid=1000,
            command="sleep",
            groups=(Group("worker", tasks=tasks, least=1, cpus=2.0, memory_bytes=500.0 * 2**20),),
            elastic=True,
            name="array",
            time_limit_s=7200.0,
            hint="utility=constant(1)",
        )
        jobs.append((1800.0 + 600 * number, spec, 900.0))
    return jobs, count


def paper_cluster(
    nodes: int, cores: int, count: int, folder: Path | None = None, *, inside: bool = False
) -> tuple[MesosCluster, PaperMesos, int]:
    """The cluster over a Mesos on paper, and how many units will run.

    Guests run on revocable CPUs, or with `inside` within the executors of their hosts.
    """
    jobs, total = paper_jobs(count)
    paper = PaperMesos(nodes, cores, 0.0 if inside else float(cores), jobs, executor_user="root")
    cluster = MesosCluster(
        Settings(share_users="any", executor_user="root"),
        nodes=WillingNodes(),
        state_dir=folder or Path("/nonexistent"),
        clock=paper.now_s,
        engine=paper,
    )
    return cluster, paper, total

"""Random faults at random moments of the life of the Slurm plugin, over a Slurm in memory; a seed repeats each.

A life is some dozens of cycles in which jobs are offered nodes, held back and admitted, start, end and are requeued,
while daemons are killed in the middle of a change, head nodes lost, controllers killed before they have saved, answers
lost, disks full and clocks set. Then all is whole again, and nothing may be left.
"""

from __future__ import annotations

import copy
import errno
import math
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from asad_slurm.command import Answer
from asad_slurm.offers import Offers
from slurm_samples import BECAUSE, Lab, SlurmInMemory, a_job, running, sample

from asad.cluster import durable_lines
from asad.decisions import Admit, CoAllocate, Decision, Defer, ExtendLimit, SetQuota, Start, Withdraw
from asad.errors import ClusterError

NODES = ("n1", "n2", "n3", "n4")
STEPS = 30
OWN = ("partition", "required_nodes", "nice", "state_reason", "node_count")
FAULTS = (
    "daemon killed",
    "daemon killed in a change",
    "head node lost",
    "controller forgets",
    "answers lost",
    "answers late",
    "refused",
    "disk full",
    "clock ahead",
    "clock back",
    "actors deaf",
)


class Killed(BaseException):
    """The daemon's process is gone in the middle of something."""


class Chaotic(SlurmInMemory):
    """Answers as its mood is: "", "lost" (not done, no answer), "late" (done, no answer), "refuses"."""

    mood = ""
    dies_in = 0
    """The daemon is killed at so many changes from now on; 0: it is not."""

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        self.dies_in -= 1
        if self.dies_in == 0:
            if self.mood != "lost":
                super().update(raw, changes)  # what was asked for is done without us
            raise Killed
        if self.mood == "refuses":
            return Answer(False, "scontrol: Resource temporarily unavailable")
        answer = super().update(raw, changes) if self.mood != "lost" else Answer(False, "", certain=False)
        if self.mood:
            self.answers = False
            return Answer(False, "scontrol: no answer within 1 s", certain=False)
        return answer


@dataclass
class Life:
    """One life by a seed: `play` goes through it, `complaints` says what is left that should not be."""

    folder: Path
    seed: int
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.slurm = Chaotic()
        self.slurm.add(*(running(i, {f"n{i}": 2}) for i in (1, 2, 3)))
        for number in range(10, 30):
            facts: dict[str, Any] = {}
            if self.chance.random() < 0.3:
                facts["required_nodes"] = self.chance.choice(NODES)
            if self.chance.random() < 0.2:
                facts["nice"] = 50
            self.slurm.add(a_job(number, **facts))
        self.own = {
            number: {key: self.slurm.jobs[number].get(key) for key in OWN} for number in range(10, 30)
        }
        self.saved = copy.deepcopy(self.slurm.jobs)
        (folder := self.folder / "head0").mkdir(parents=True)
        self.lab = Lab(folder, self.slurm, mark_key=str(self.folder / "mark.key"))
        for i in (1, 2, 3):
            self.lab.actors.report(f"n{i}", sample(i))
        self.lab.cluster.recover()
        self.heads = 0
        self.marks_lost = False
        self.full = False
        self.faults = self.chance.sample(FAULTS, self.chance.choice((1, 1, 2)))

    # --------------------------------------------------------------------------------------------------- the life

    def play(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """All of it, to the last daemon's end."""
        write = durable_lines.os.write

        def write_if_there_is_room(handle: int, data: bytes) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(handle, data)

        monkeypatch.setattr(durable_lines.os, "write", write_if_there_is_room)
        at = sorted(self.chance.sample(range(3, STEPS - 3), len(self.faults)))
        until: dict[int, str] = {}
        for step in range(STEPS):
            if step in at:
                fault = self.faults[at.index(step)]
                self.log.append(f"step {step}: {fault}")
                until[step + self.chance.randint(1, 4)] = fault
                self._break(fault)
            if step in until:
                self._repair()
            self._world()
            try:
                self._cycle()
            except Killed:
                self.log.append(f"step {step}: killed in a change")
                self._next_daemon()
        self._repair()
        self._recover()

    def _break(self, fault: str) -> None:
        match fault:
            case "daemon killed":
                self._next_daemon()
            case "daemon killed in a change":
                self.slurm.dies_in = self.chance.randint(1, 4)
                self.slurm.mood = self.chance.choice(("", "lost"))
            case "head node lost":
                self.heads += 1
                self.lab.state_dir = self.folder / f"head{self.heads}"
                self.lab.state_dir.mkdir()
                self._next_daemon()
            case "controller forgets":
                kept = {number for number, job in self.slurm.jobs.items() if job["job_state"] == "PENDING"}
                for number in kept & self.saved.keys():
                    if self.saved[number]["job_state"] == "PENDING":
                        self.slurm.jobs[number] = copy.deepcopy(self.saved[number])
            case "answers lost" | "answers late":
                self.slurm.mood = fault.rpartition(" ")[2]
            case "refused":
                self.slurm.mood = "refuses"
            case "disk full":
                self.full = True
            case "clock ahead" | "clock back":
                self.lab.now_s += 86_400.0 if fault == "clock ahead" else -86_400.0
            case "actors deaf":
                self.lab.actors.deaf = True

    def _repair(self) -> None:
        self.slurm.mood, self.slurm.dies_in = "", 0
        self.full = self.lab.actors.deaf = False

    def _next_daemon(self) -> None:
        self.slurm.dies_in, self.slurm.answers = 0, True
        self.lab.cluster = self.lab.open()
        for _ in range(3):
            try:
                self.lab.cluster.recover()
                return
            except Killed:  # killed again while it undoes
                self.lab.cluster = self.lab.open()

    def _world(self) -> None:
        """What Slurm and users do by themselves."""
        jobs, now_s = self.slurm.jobs, self.lab.now_s
        if self.chance.random() < 0.2:  # state is saved now and then
            self.saved = copy.deepcopy(jobs)
        for number, job in list(jobs.items()):
            if number < 10:
                continue
            if job["job_state"] == "PENDING" and job["partition"] == "guest" and self.chance.random() < 0.3:
                node = job["required_nodes"]
                if node in NODES:
                    self.slurm.start(number, node, now_s)
            elif job["job_state"] == "RUNNING" and self.chance.random() < 0.1:
                if self.chance.random() < 0.3:
                    waits = a_job(number)
                    job |= {key: waits[key] for key in ("job_state", "nodes", "job_resources", "node_count")}
                    job |= {"state_reason": "Priority", "start_time": int(now_s) + 3600, "end_time": 0}
                    job["restart_cnt"] = job.get("restart_cnt", 0) + 1
                else:
                    self.slurm.end(number, now_s)

    def _cycle(self) -> None:
        """A cycle that decides at random."""
        lab, chance = self.lab, self.chance
        try:
            snapshot = lab.snapshot(chance.choice((5.0, 30.0)))
        except ClusterError:
            return
        jobs = snapshot.jobs
        waiting = [row for row in snapshot.queue.tolist() if math.isnan(jobs.start_s[row])]
        decisions: list[Decision] = []
        for row in chance.sample(waiting, min(4, len(waiting))):
            host = chance.choice(snapshot.running.tolist())
            node = int(chance.choice(range(3)))
            later_s = snapshot.time_s + chance.choice((60.0, 600.0))
            decisions.append(
                chance.choice(
                    (
                        CoAllocate(BECAUSE, row, (node,), host=host, share=0.5),
                        CoAllocate(BECAUSE, row, (node,), demands=(0.5,)),
                        CoAllocate(BECAUSE, row, (node,), demands=(0.5,)),
                        Defer(BECAUSE, row, later_s),
                        Admit(BECAUSE, row, "", later_s, 1, 1.0) if False else Start(BECAUSE, row),
                        Withdraw(BECAUSE, row),
                    )
                )
            )
        for row in snapshot.guests.tolist():
            decisions.append(
                chance.choice((SetQuota(BECAUSE, row, (0,), (0.5,)), ExtendLimit(BECAUSE, row, 60.0)))
            )
        lab.cluster.apply(decisions)

    def _recover(self) -> None:
        """All is whole: a daemon that lends no more, or one that stops."""
        lab = self.lab
        stops = self.chance.random() < 0.5
        if not stops:
            lab.cluster = lab.open()
            lab.cluster.recover()
            lab.cluster.give_back()
        for _ in range(20):
            lab.snapshot(30)
        if stops:
            lab.cluster.release()
        else:
            lab.cluster.give_back()
        for _ in range(3):
            lab.snapshot(30)
        self.log.append("the daemon stops" if stops else "the next one lends no more")

    # ------------------------------------------------------------------------------------------------ what is left

    def complaints(self) -> list[str]:
        """What is not as its user had it, or is left."""
        found: list[str] = []
        lost = any(fault == "head node lost" for fault in self.faults)
        for number, own in self.own.items():
            job = self.slurm.jobs.get(number)
            if job is None:
                found.append(f"job {number} is lost")
                continue
            if job["job_state"] != "PENDING":
                continue
            for key in ("partition", "required_nodes", "nice"):
                now = job.get(key)
                if (now or None) != (own[key] or None):
                    found.append(f"job {number}: {key} is {now!r} and was {own[key]!r}")
            if job["state_reason"] == "BeginTime" and job["eligible_time"] > self.lab.now_s and not lost:
                found.append(f"job {number} is held back until {job['eligible_time']}")
            if job["priority"] == 0:
                found.append(f"job {number} is held")
        opened: Offers = self.lab.cluster._offers
        found += [f"the offer to {job} is open" for job, offer in opened.open.items() if not offer.started]
        changes = self.lab.cluster._obligations.changes.open
        found += [f"a change of {job} is open: {key}" for job, key in changes]
        if self.lab.actors.granted:
            leases = [lease for some in self.lab.actors.granted[-1].values() for lease in some]
            found += [f"a quota for {lease.job_id}" for lease in leases if not math.isnan(lease.quota)]
        return found


def live(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Life]:
    """A life, and what is left of it."""
    life = Life(folder, seed)
    life.play(monkeypatch)
    return life.complaints(), life


def table(lives: list[Life]) -> str:
    """How often each fault was lived through."""
    count = Counter(fault for life in lives for fault in life.faults)
    return "\n".join(f"{fault:28} {count[fault]:5}" for fault in FAULTS)

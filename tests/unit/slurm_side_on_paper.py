"""A Slurm and a Mesos on paper, for the queue between them: what was done is counted, and both may fail at any call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from asad_mesos.job_spec import Spec
from asad_mesos.slurm_jobs import PENDING, Queued, argued, read_job
from asad_mesos.slurm_side import Denied, Short, Unknown

from asad.errors import ClusterError, UsageError

SCRIPT = "#!/bin/sh\necho hi\n"


def job_of(number: int, **changed: Any) -> Queued:
    """A job of two tasks in the partition `mesos`, as squeue reports it."""
    plain: dict[str, Any] = {
        "job_id": number,
        "job_state": "PENDING",
        "state_reason": "PartitionDown",
        "priority": 1000 - number % 1000,
        "partition": "mesos",
        "user_name": "nobody",
        "user_id": 65534,
        "name": f"job{number}",
        "submit_time": 1000,
        "tasks": 2,
        "cpus": 2,
        "tres_req_str": "cpu=2,mem=400M,node=1,billing=2",
        "memory_per_cpu": 200,
        "time_limit": 10,
        "current_working_directory": "/tmp",
        "batch_flag": True,
        "requeue": True,
    }
    return read_job(plain | changed)


@dataclass
class Killed(BaseException):
    """The daemon dies here."""


@dataclass
class PaperSlurm:
    """Jobs by number; a call may be made to fail, or to be done and then to look as if it had failed."""

    jobs: dict[int, Queued] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    scripts: dict[int, str] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)
    """What accounting knows of how they were submitted."""
    comments: dict[int, dict[str, str]] = field(default_factory=dict)
    accounts: dict[int, tuple[int, str]] = field(default_factory=dict)
    ended: Counter[int] = field(default_factory=Counter)
    denied: set[str] = field(default_factory=set)
    trouble: Callable[[str], None] = lambda verb: None

    def add(self, number: int, script: str = SCRIPT, **changed: Any) -> None:
        self.jobs[number] = job_of(number, **changed)
        self.scripts[number] = script

    def _call(self, verb: str) -> None:
        if verb in self.denied:
            raise Denied(f"{verb}: Access/permission denied")
        self.trouble(verb)

    def _number(self, name: str) -> int:
        """Of a job by the name that commands take. The number of an array must not be used for one of its tasks."""
        array, _, task = name.partition("_")
        for number, job in self.jobs.items():
            if (str(job.array), str(job.task)) == (array, task):
                return number
            assert str(number) != name or not job.array or job.task < 0, "all tasks of an array were meant"
        return int(array)

    def split(self, job: Queued, task: int) -> None:
        self._call("split")
        left = [int(number) for number in self.jobs[job.job].tasks_left.split(",")]
        left.remove(task)
        fresh = max(self.jobs) + 1 if left else job.job
        self.jobs[fresh] = replace(self.jobs[job.job], job=fresh, task=task, tasks_left="")
        self.scripts[fresh] = self.scripts[job.job]
        if left:
            self.jobs[job.job] = replace(self.jobs[job.job], tasks_left=",".join(map(str, left)))
        self.trouble("split done")

    def _seen(self, job: Queued) -> Queued:
        held = job.job in self.held
        return replace(job, priority=0.0, reason="JobHeldAdmin") if held else job

    def look(self) -> dict[int, Short]:
        self._call("look")
        seen = [self._seen(job) for job in self.jobs.values()]
        return {
            job.job: Short(job.job, job.state, int(job.priority), job.partition, job.reason) for job in seen
        }

    def details(self, jobs: Collection[int]) -> dict[int, Queued]:
        self._call("details")
        return {number: self._seen(self.jobs[number]) for number in jobs if number in self.jobs}

    def argued(self, job: Queued) -> Queued:
        self._call("argued")
        return argued(job, self.lines.get(job.job, ""))

    def script(self, job: str) -> str:
        self._call("script")
        if self._number(job) not in self.jobs:
            raise Unknown("Invalid job id")
        return self.scripts[self._number(job)]

    def hold(self, job: str) -> None:
        self._call("hold")
        self.held.add(self._number(job))
        self.trouble("hold done")

    def release(self, job: str) -> None:
        self._call("release")
        self.held.discard(self._number(job))
        self.trouble("release done")

    def comment(self, job: str, texts: Mapping[str, str]) -> None:
        for key in texts:
            self._call(key)
        self.comments.setdefault(self._number(job), {}).update(texts)
        self.trouble("comment done")

    def end(self, job: str) -> None:
        self._call("end")
        number = self._number(job)
        self.jobs[number] = replace(self.jobs[number], state="CANCELLED")
        self.ended[number] += 1
        self.trouble("end done")

    def account(self, job: str, status: int, text: str) -> None:
        self._call("account")
        self.accounts[self._number(job)] = (status, text)
        self.trouble("account done")

    def past(self, job: str) -> str:
        number = self._number(job)
        return self.jobs[number].state if number in self.jobs else "CANCELLED"

    def waits(self, job: int) -> bool:
        """Could Slurm start it?"""
        return self.jobs[job].state == PENDING and job not in self.held


class PaperMesos:
    """The submit interface of Mesos over rows that the test moves; they outlive the daemon, as its journal does."""

    def __init__(self, trouble: Callable[[str], None] = lambda verb: None) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, Spec] = {}
        self.trouble = trouble
        self.ran: Counter[str] = Counter()
        """By origin, without the number of the take: how often the script was started."""
        self.held: set[str] = set()

    def submit(self, spec: Spec, *, bounded: bool = False) -> str:
        self.trouble("submit")
        name = f"m{len(self.rows) + 1}"
        self.rows[name] = {
            "job": name,
            "state": "queued",
            "why": "",
            "attempt": 0,
            "spec": spec.to_json(),
            "start_s": None,
            "end_s": None,
            "tasks": [],
        }
        self.specs[name] = spec
        self.trouble("submit done")
        return name

    def cancel(self, job: str, why: str) -> bool:
        self.trouble("cancel")
        row = self.rows[job]
        if row["state"] not in ("queued", "running"):
            return False
        row.update(state="cancelled", why=why, end_s=0.0)
        self.trouble("cancel done")
        return True

    def status(self, job: str = "") -> list[dict[str, Any]]:
        if not job:
            return list(self.rows.values())
        if job not in self.rows:
            raise UsageError(f"{job}: there is no such job")
        return [self.rows[job]]

    def hold(self, job: str, until_s: float) -> None:
        (self.held.add if until_s > 0 else self.held.discard)(job)

    # what Mesos does by itself

    def start(self, job: str, *hosts: str) -> None:
        """Offers came."""
        row = self.rows[job]
        assert row["state"] == "queued"
        if job in self.held:
            return
        self.ran[self.specs[job].origin.rpartition(":")[0]] += 1
        row.update(state="running", attempt=1, start_s=5.0)
        row["tasks"] = [
            {
                "task": f"{job}.1.{at}",
                "group": "batch" if at == 0 else "node",
                "index": max(0, at - 1),
                "state": "TASK_RUNNING",
                "host": host,
                "exit": None,
            }
            for at, host in enumerate(hosts or ("a1",))
        ]

    def finish(self, job: str, status: int = 0) -> None:
        """Its script has ended."""
        row = self.rows[job]
        row.update(state="completed" if status == 0 else "failed", end_s=65.0)
        row["tasks"][0].update(state="TASK_FINISHED", exit=status)


def failing(verb_to_fail: str) -> Callable[[str], None]:
    """Trouble with one kind of call."""

    def trouble(verb: str) -> None:
        if verb == verb_to_fail:
            raise ClusterError(f"{verb}: no answer within 10 s")

    return trouble

"""A cluster on which jobs can be evicted, and a mechanism that plans each statement where it fits first."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from slotted_cluster import EPOCH, Job, Obedient
from sow_menu import start_of

from asad.admit.sow import Mechanism
from asad.admit.sow.announcements import Announcement, Run
from asad.admit.sow.statement import NEVER, Answer, Bounds, Eviction, LaunchPlan, Statement
from asad.admit.sow.statement_options import Options
from asad.admit.sow.statements_policy import Statements
from asad.cycle import Cycle
from asad.decisions import Decision, Evict, Outcome
from asad.defer.at_once import AtOnce
from asad.errors import UsageError
from asad.guard import REPLAY, guard_for
from asad.ineligible import Ineligible
from asad.model import Finished, Floats, Ints, Json, Snapshot
from asad.place.native import Native
from asad.share.exclusive import Exclusive

ROUND_S = 100.0
HELD = Ineligible.NOT_ITS_TURN
OPTIONS = Options(
    round_s=ROUND_S, span=20, most_rounds=10, most_cores=4, most_value=100.0, window_s=500.0, patience_s=0.0
)
APPLICATIONS = ["ann/train/1", "bob/sim/1", "ann/store/1"]


class Evicting(Obedient):
    """Obeys Evict too. Jobs whose name is in `fails` do not end well; `held` jobs wait for their owner's release.

    Those in `leaves` neither run nor have ended: they still hold their cores, as while Slurm completes a job.
    """

    def __init__(self, nodes: Sequence[int], jobs: Sequence[Job]) -> None:
        super().__init__(nodes, jobs)
        self.fails: set[str] = set()
        self.held: set[str] = set()
        self.leaves: set[str] = set()
        self.evicted: list[str] = []

    def snapshot(self) -> Snapshot:
        """Nobody's hint is seen before he is."""
        seen = super().snapshot()
        hints = {row: text for row, text in seen.hints.items() if seen.jobs.submit_s[row] <= self.now_s}
        stay = [row for row in seen.running.tolist() if self._job_of(row).name not in self.leaves]
        return replace(seen, hints=hints, running=np.array(stay, np.int32))

    def _eligible(self, job: Job) -> bool:
        return job.name not in self.held and super()._eligible(job)

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        outcomes = []
        for decision in decisions:
            if not isinstance(decision, Evict):
                outcomes += super().apply([decision])
                continue
            job = self._job_of(decision.job)
            (task,) = job.all
            if decision.kind in self.refuse:
                outcomes.append(Outcome(decision, False, "the test refuses"))
                continue
            if math.isnan(task.start_s) or not math.isnan(task.end_s):
                self.illegal.append(f"{job.name} is evicted and does not run")
            self.evicted.append(job.name)
            if decision.how == "cancel":
                task.end_s = self.now_s
                self.fails.add(job.name)
            else:
                task.start_s, task.node = math.nan, -1
                self.held.add(job.name)
                job.bar = HELD
            self.done.append((self.now_s, decision))
            outcomes.append(Outcome(decision, True, ""))
        return outcomes

    def finished(self, since_s: float) -> Finished:
        ended = super().finished(since_s)
        names = [self._job_of(row).name for row in ended.row.tolist()]
        run_s = np.array([task.end_s - task.start_s for job in self.jobs for task in job.all])[ended.row]
        well = np.array([name not in self.fails for name in names], np.bool_)
        return Finished(ended.row, ended.end_s, run_s, ended.lost_s, ended.cpu_fraction, well)


class FirstFit:
    """A `Mechanism`: the first start at which its longest run fits beside what was planned before, at 1 a unit and
    round; nothing, if that is worth less."""

    name = "first-fit"

    def __init__(self, bounds: Bounds, mu: float = 0.0) -> None:
        self.bounds, self.mu = bounds, mu
        self.counted: dict[str, Bounds] = {}
        self.now = 0
        self.held: dict[int, int] = {}
        self.jobs: dict[int, tuple[Statement, LaunchPlan]] = {}
        self.start: dict[int, int] = {}
        self.submitted: list[int] = []

    def count(self, name: str, capacity: int, max_demand: int) -> None:
        raise UsageError(f"first-fit prices cores alone, and not {name}")

    def step(self, round: int) -> None:
        if round < self.now:
            raise UsageError(f"round {round} is past")
        self.now = round

    def submit(self, job: int, statement: Statement) -> Answer:
        assert job not in self.submitted, "a plan was made twice"
        self.submitted.append(job)
        longest = int(statement.duration.max())
        load = self.load()
        arrivals = np.unique(statement.arrival)
        starts = []
        for arrival in arrivals.tolist():
            fits = [
                start
                for start in range(arrival, self.now + self.bounds.span)
                if all(
                    load.get(at, 0) + statement.demand <= self.room(at)
                    for at in range(start, start + longest)
                )
            ]
            start = fits[0] if fits else NEVER
            worth = statement.worth.by_finish(statement.birth, 1000)
            if start != NEVER and worth[start + longest - statement.birth] < statement.demand * longest:
                start = NEVER
            starts.append(start)
        plan = LaunchPlan(
            arrivals.astype(np.int32), np.zeros(len(arrivals), np.int32), np.array(starts, np.int32)
        )
        price = np.outer(plan.start != NEVER, statement.demand * np.arange(1.0, self.bounds.max_duration + 1))
        if not plan.never:
            self.jobs[job] = statement, plan
        return Answer(plan, 1.0, float(price.mean()), np.zeros(len(arrivals)), price, hopeless=False)

    def load(self) -> dict[int, int]:
        load: dict[int, int] = {}
        for job, (statement, plan) in self.jobs.items():
            start = self.start.get(job, int(plan.start.max()))
            for at in range(max(0, start), start + int(statement.duration.max())):
                load[at] = load.get(at, 0) + statement.demand
        return load

    def room(self, at: int) -> int:
        return self.bounds.capacity - self.held.get(at, 0)

    def arrive(self, job: int, round: int, signal: int = 0) -> int | None:
        assert round == self.now
        if job not in self.jobs:
            return None
        start = start_of(self.jobs[job][1], round, signal)
        if start is None:
            del self.jobs[job]
        else:
            self.start[job] = start
        return start

    def evict(self, round: int, supply: int | None = None) -> tuple[Eviction, ...]:
        assert round == self.now
        most = self.bounds.capacity if supply is None else supply
        due = [job for job in self.jobs if self.start.get(job, round + 1) <= round]
        load, gone = sum(self.jobs[job][0].demand for job in due), []
        while due and load > most:
            job = due.pop()
            load -= self.jobs[job][0].demand
            gone.append(Eviction(job, round, True, f"{load} units are needed by those born before it"))
            self._forget(job)
        return tuple(gone)

    def complete(self, job: int, round: int) -> float:
        statement, _ = self.jobs[job]
        lasted = round - self.start[job]
        self._forget(job)
        return float(statement.demand * min(lasted, self.bounds.max_duration))

    def withdraw(self, job: int, round: int) -> None:
        if job in self.jobs:
            self._forget(job)

    def occupy(self, round: int, held: Ints) -> None:
        self.held = {round + at: int(units) for at, units in enumerate(held.tolist())}

    def tables(self, demand: int) -> tuple[Floats, Floats]:
        price = np.tile(demand * np.arange(1.0, self.bounds.max_duration + 1), (self.bounds.span, 1))
        price[0] = np.inf
        return price, np.zeros_like(price)

    def state(self) -> dict[str, Json]:
        return {"round": self.now, "jobs": list(self.jobs)}

    def restore(self, kept: Mapping[str, Json]) -> None:
        self.now = kept["round"]  # type: ignore[assignment]
        for row in kept["jobs"]:  # type: ignore[union-attr]
            assert isinstance(row, dict)
            job = int(row["job"])  # type: ignore[arg-type]
            plan = LaunchPlan.from_json(row["plan"])
            self.jobs[job] = Statement.from_json(row["statement"]), plan  # type: ignore[arg-type]
            if row["row"] != -1:
                self.start[job] = int(plan.start[row["row"]])  # type: ignore[index]

    def _forget(self, job: int) -> None:
        del self.jobs[job]
        self.start.pop(job, None)


def policy(
    options: Options = OPTIONS,
    kept: Mapping[str, Mapping[str, Json]] | None = None,
    make: Callable[[Bounds], Mechanism] = FirstFit,  # type: ignore[assignment]
) -> Statements:
    """Statements of work by that mechanism, that know what was kept."""
    made = Statements("sow", make, APPLICATIONS, options)
    made.restore(json.loads(json.dumps(kept or {}, allow_nan=False)))
    return made


def announced(
    name: str = "train",
    due: float = 3,
    runs: Sequence[tuple[float, ...]] = ((0, 2, 1.0),),
    **facts: object,
) -> Announcement:
    """In rounds from the cluster's epoch."""
    known: dict[str, object] = {
        "name": name,
        "cores": 1,
        "due_s": EPOCH + due * ROUND_S,
        "runs": tuple(Run(row[0] * ROUND_S, row[1] * ROUND_S, row[2]) for row in runs),
        "value": 50.0,
        "shape": "deadline",
        "deadline_s": 15 * ROUND_S,
        "eviction": "requeue-hold",
    }
    return Announcement(**(known | facts))  # type: ignore[arg-type]


class World:
    """A cluster with the cycle over it, and all that was to be kept."""

    def __init__(
        self,
        jobs: Sequence[Job],
        nodes: Sequence[int] = (4,),
        *,
        options: Options = OPTIONS,
        make: Callable[[Bounds], Mechanism] = FirstFit,  # type: ignore[assignment]
    ) -> None:
        self.make = make
        self.cluster = Evicting(nodes, jobs)
        self.options = options
        self.lines: list[dict[str, Json]] = []
        self.plans: list[dict[str, Json]] = []
        self.rows: dict[int, dict[str, Json]] = {}
        self.memory: dict[str, dict[str, Json]] = {}
        self.policy = policy(options, None, make)
        self.cycle = self._cycle()

    def _cycle(self) -> Cycle:
        share = Exclusive()
        guard = guard_for(share.properties, REPLAY, consents=self.policy.consents)
        return Cycle(self.cluster, self.policy, AtOnce(), Native(), share, guard, keep=self.keep)

    def keep(self) -> None:
        """What the daemon writes before it acts."""
        seen = self.policy.unkept()
        self.lines += seen["entries"]  # type: ignore[arg-type, operator]
        for row in seen["plans"]:  # type: ignore[union-attr]
            self.plans.append(row)  # type: ignore[arg-type]
        for row in seen["statements"]:  # type: ignore[union-attr]
            self.rows[row["number"]] = row  # type: ignore[index, call-overload]
        self.memory |= seen["memory"]  # type: ignore[operator]

    def restart(self, *, keep: bool = True) -> None:
        """The daemon is killed, and another one starts from what was kept; `keep` False: before it kept the last."""
        if keep:
            self.keep()
        record = dict(self.memory)
        plans = {row["number"]: row for row in reversed(self.plans)}
        for number, row in self.rows.items():
            record[f"statement {number}"] = {"row": row, "plan": plans.get(number)}
        self.policy = policy(self.options, record, self.make)
        for job in self.cluster.jobs:
            job.admitted, job.comment = False, ""  # to be reported again is no fault then
        self.cycle = self._cycle()

    def submit(self, *announcements: Announcement, owner: str = "ann") -> list[dict[str, Json]]:
        """Announce, as the daemon does: what was promised is kept before it is announced."""
        if self.policy.planning.mechanism is None:
            self.cycle.run_once()
        answers = self.policy.submit(announcements, owner, self.cluster.now_s)
        self.keep()
        return answers

    def run(self, rounds: float, step_s: float = 50.0) -> None:
        """A cycle, then so long; again and again until so many rounds from the epoch are over."""
        until_s = EPOCH + rounds * ROUND_S
        while self.cluster.now_s < until_s:
            self.cycle.run_once()
            self.cluster.run(min(until_s, self.cluster.now_s + step_s))
        self.cycle.run_once()
        self.keep()

    def state_of(self, number: int) -> str:
        return str(self.rows[number]["state"])

    def charged(self, number: int) -> dict[str, int]:
        """Micro-units by account."""
        return {
            str(line["account"]): int(line["amount_micro"]) for line in self.lines if line["number"] == number
        }  # type: ignore[arg-type]


def job(name: str, run: float = 2, at: float = 0, hint: str = "", **facts: object) -> Job:
    """One that runs so many rounds and is submitted so many rounds after the epoch."""
    limit_s = 2 * run * ROUND_S
    return Job(
        name,
        run * ROUND_S,
        submit_s=EPOCH + at * ROUND_S,
        hint=hint,
        limit_s=limit_s,
        application=0,
        **facts,  # type: ignore[arg-type]
    )


__all__ = ["EPOCH", "Evicting", "FirstFit", "World", "announced", "job", "policy"]

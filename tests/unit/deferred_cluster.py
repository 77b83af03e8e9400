"""The small cluster of the admission tests, with begin times of users beside those that the defer stage sets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from slotted_cluster import EPOCH, Job, Obedient

from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.decisions import Decision, Defer, Outcome, Start
from asad.defer.deferral_options import Options
from asad.defer.deferral_policy import Deferral
from asad.defer.jobs import Scorer, Waiting
from asad.defer.scorers import make_scorer
from asad.defer.windows import Rule
from asad.guard import guard_for
from asad.model import Floats, Snapshot
from asad.place.native import Native
from asad.share.exclusive import Exclusive

POLL_S = 30.0
HOUR_S = 3600.0


class Yielding(Obedient):
    """Obeys the defer stage as Slurm does; nobody starts before the begin time of its own user."""

    def __init__(self, nodes: Sequence[int], jobs: Sequence[Job]) -> None:
        super().__init__(nodes, jobs)
        self.own = {job.name: job.begin_s for job in self.jobs}
        self.held: set[str] = set()
        self.classes: dict[str, tuple[str, str]] = {}
        """By name of a job: its partition and QOS."""
        self.partitions: dict[str, list[int]] = {}
        self.estimates: dict[str, float] = {}
        self.limited: set[str] = set()
        """Jobs that wait for something other than their turn, as at a limit of their QOS."""

    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        for job in self.jobs:
            if job.begin_s <= self.now_s:
                self.held.discard(job.name)
            rows = slice(job.first_row, job.first_row + job.tasks)
            waits = (
                np.isnan(seen.jobs.start_s[rows]) & (job.submit_s <= self.now_s) & (job.begin_s > self.now_s)
            )
            seen.jobs.begin_s[rows] = np.where(waits, job.begin_s, math.nan)
            seen.jobs.estimated_start_s[rows] = self.estimates.get(job.name, math.nan)
        lead = {
            job.name: int(job.first_row + sum(not math.isnan(t.start_s) for t in job.all))
            for job in self.jobs
        }
        waiting = [job for job in self.jobs if self._waiting(job)]
        others = {lead[job.name] for job in waiting if job.name in self.limited}
        return dataclasses.replace(
            seen,
            queue=np.array([row for row in seen.queue.tolist() if row not in others], np.int32),
            own_begins={lead[job.name]: self.own[job.name] for job in waiting if job.name in self.held},
            classes={lead[job.name]: self.classes[job.name] for job in waiting if job.name in self.classes},
            partition_nodes={name: np.array(at, np.int32) for name, at in self.partitions.items()},
        )

    def _eligible(self, job: Job) -> bool:
        return job.name not in self.limited and super()._eligible(job)

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        outcomes = []
        for decision in decisions:
            assert isinstance(decision, Defer | Start), decision
            job = self._job_of(decision.job)
            self.done.append((self.now_s, decision))
            if decision.kind in self.refuse or not self._waiting(job):
                outcomes.append(Outcome(decision, False, "the test refuses"))
                continue
            own_s = self.own[job.name]
            if isinstance(decision, Defer):
                job.begin_s = max(decision.until_s, own_s) if own_s > self.now_s else decision.until_s
                self.held.add(job.name)
            else:
                job.begin_s = own_s if own_s > self.now_s else math.nan
                self.held.discard(job.name)
            outcomes.append(Outcome(decision, True, ""))
        return outcomes

    def started(self, name: str) -> float:
        """When the first task of a job started, in seconds of the test; NaN if it did not."""
        job = next(job for job in self.jobs if job.name == name)
        return min(
            (task.start_s - EPOCH for task in job.all if not math.isnan(task.start_s)), default=math.nan
        )


def job(name: str, run_s: float, cores: int = 1, window_s: float = 0.0, **more: Any) -> Job:
    """A job whose limit is its run time; with a window it says so, without one it is on-demand."""
    hint = f"deferrable={window_s:.0f}s" if window_s else ""
    return Job(name, run_s, cores=cores, hint=hint, limit_s=more.pop("limit_s", run_s), **more)


def deferral(
    scorer: Scorer | str = "edf", rules: Sequence[Rule] = (), applications: Sequence[str] = (), **options: Any
) -> Deferral:
    """A policy as a daemon with cycles of `POLL_S` has it."""
    made = make_scorer(scorer) if isinstance(scorer, str) else scorer
    names = applications or Obedient.applications
    return Deferral(
        f"{made.name}-defer", made, names, Options(**options), rules, poll_s=POLL_S, most_lease_s=HOUR_S
    )


def cycle_of(cluster: Obedient, policy: Deferral, **more: Any) -> Cycle:
    """A cycle in which nothing but deferral decides."""
    guard = guard_for(frozenset(), GuardSettings())
    admit = more.pop("admit", None)
    if admit is None:
        from asad.admit.everyone import Everyone

        admit = Everyone()
    return Cycle(cluster, admit, policy, Native(), Exclusive(), guard, **more)


def live(cluster: Yielding, cycle: Cycle, for_s: float, check: Any = None) -> None:
    """A cycle at every look for so long; `check` is called after each."""
    until_s = cluster.now_s + for_s
    while cluster.now_s < until_s:
        cycle.run_once()
        assert all(outcome.done or cluster.refuse for outcome in cycle.outcomes), cycle.outcomes
        if check is not None:
            check(cycle)
        cluster.run(cluster.now_s + POLL_S)


class Says:
    """A scorer that says whatever it is asked to."""

    name = "says"

    def __init__(self, says: Any) -> None:
        self.says = says
        self.seen: list[Waiting] = []

    def score(self, waiting: Waiting) -> Floats:
        self.seen.append(waiting)
        return self.says(waiting) if callable(self.says) else self.says

"""Deferral on a cluster: drives any policy of this room over snapshots.

Deferrable jobs (`asad.defer.windows`) fill what on-demand jobs leave. In every cycle the policy scores those that wait;
by falling score they start as far as they fit (`asad.defer.packing`), now and until their time limits, beside what
runs, what on-demand jobs are expected to take, and what the history of the cluster foretells. Whatever the scores, what
starts by them fits on idle cores.

- A job that does not start is held back by its begin time, for a lease of a few cycles that is renewed: when asad is
  gone it starts by itself. No lease reaches beyond its latest start less a margin.
- When its latest start comes, or by all that runs and waits it is expected to start too late (with that margin), it is
  let go whatever is free: then it waits in the cluster's own queue as any other job. If it has not started by its
  latest start it is reported as missed, by name.
- A job that was let go and has not started within `patience_s` is held back again, and tried again later.
- A policy that errs is replaced by `edf` for that cycle; the first time it is reported in one line.
- Jobs that admission steers, that opted out, that wait for another job or have an offer to be a guest are left alone,
  and so is a job whose deferral somebody has taken back by hand.

An array is one job: all of its tasks that its throttle lets run at one time start together, or none.

State that outlives the process: the capacity that on-demand jobs left (`asad.defer.history`), and who runs that was
deferrable. What is held back, the cluster itself knows (`Snapshot.own_begins`). Cost of a cycle: O(cores + jobs) for
what is left, and for n deferrable jobs O(n·H) over H cells and what the policy takes.
Source of the policies: Dong et al. (OSDEC); the mapping to a batch system is asad's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from asad.decisions import Cause, Decision, Outcome, Start
from asad.defer import DeferPolicy, deferral_report
from asad.defer.deferrable_job import Deferrable
from asad.defer.deferrable_jobs import MOST_LISTED, DeferrableJobs, IsHeldElsewhere
from asad.defer.deferral_options import Options
from asad.defer.edf import Edf
from asad.defer.history import History
from asad.defer.jobs import Scorer, Waiting
from asad.defer.lease_decisions import (
    UPDATES,
    Terms,
    hold,
    let_go,
    retry_if_not_started,
    start,
    too_late,
    wake_s,
)
from asad.defer.packing import scores_of
from asad.defer.room import first_fits
from asad.defer.steps import steps_of, waiting_of
from asad.defer.windows import Rule
from asad.defer.world import World
from asad.hold import Hold, outcomes_of, plain
from asad.model import Finished, Floats, Json, Snapshot


class Deferral(DeferPolicy):
    """A policy of deferral on a cluster."""

    holds = True

    def __init__(
        self,
        name: str,
        scorer: Scorer,
        applications: Sequence[str],
        options: Options | None = None,
        rules: Sequence[Rule] = (),
        *,
        poll_s: float = 30.0,
        most_lease_s: float = math.inf,
    ) -> None:
        """`applications` names the codes of `Jobs.application` and may grow; `poll_s` is the length of a cycle."""
        self.name, self.options = name, options or Options()
        self.scorer = scorer
        self.terms = Terms(name, self.options, poll_s, most_lease_s)
        self.deferrable = DeferrableJobs(applications, self.options, rules)
        self._edf = Edf()
        self._erred = ""
        self._history = History(self.options.step_s, max(1, self.options.days))
        self._now_s = -math.inf
        self._world: World | None = None
        self._let_go = 0
        """How many were let go, by score or because it was time."""
        self._started_cores = 0.0
        """Cores that were let go since the last look."""

    @property
    def deferral(self) -> Deferral:
        """Itself."""
        return self

    def reports(self) -> list[str]:
        """What errs, and whose latest start was missed."""
        found = list(self.deferrable.to_report)
        self.deferrable.to_report.clear()
        return found

    def warm_up(self) -> None:
        """Made-up jobs through the scores and what looks ahead for room."""
        two, none = np.ones(2, np.int32), np.zeros(0, np.int32)
        scores_of(self.scorer, Waiting(10, two, two, 10 * two, 12 * two, 9 * two, 4.0, none, none))
        first_fits(np.full((1, 4), 4.0), 0 * two, two, two, 0 * two)

    @property
    def changed(self) -> bool:
        """Who runs has changed since `state` was asked for."""
        return self.deferrable.changed

    # ------------------------------------------------------------------------------------------------- the cycle

    def learn(
        self, snapshot: Snapshot, finished: Finished, held_elsewhere: IsHeldElsewhere | None = None
    ) -> None:
        """Who waits and who has gone, and what on-demand jobs leave. `held_elsewhere`: who is admission's."""
        self._now_s = snapshot.time_s
        self.deferrable.look(snapshot, held_elsewhere or _nobody)
        self.deferrable.follow(snapshot, {str(snapshot.jobs.job_id[row]) for row in finished.row.tolist()})
        self._world = world = World(snapshot, self.deferrable, self.options)
        waiting = self.deferrable.waiting()
        steps = [steps_of(job.needs_s, self.options.step_s) for job in waiting]
        present = (
            world.capacity,
            world.held,
            self._started_cores,
            len(waiting),
            np.mean([job.cores for job in waiting]) if waiting else 0.0,
            np.mean(steps) if steps else 0.0,
        )
        self._started_cores = 0.0
        self._history.see(snapshot.time_s, [float(number) for number in present])

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who starts now, and whose lease is renewed."""
        world = self._world
        if world is None or world.snapshot is not snapshot:
            return []
        now_s, terms = snapshot.time_s, self.terms
        # who is held back by us, and is not deferrable (any more)
        decisions: list[Decision] = [
            Start(Cause(self.name, "nothing defers it any more", {"stage": "defer", "job": str(name)}), row)
            for row, name in zip(
                self.deferrable.stray, snapshot.jobs.job_id[self.deferrable.stray], strict=True
            )
        ]
        waiting = self.deferrable.waiting()
        for job in waiting:  # who was let go and has not started takes his cores, or is held back again
            if job.hold is Hold.RELEASED and not retry_if_not_started(job, now_s, terms):
                world.take(job)
        might = sorted(
            (job for job in waiting if job.hold not in (Hold.RELEASED, Hold.DEADLINE_RELEASED)),
            key=lambda job: (job.submit_s, job.row),
        )
        expected_s = world.expected_s(might) if might and self.options.lead else [0.0] * len(might)
        for job, ahead_s in zip(might, expected_s, strict=True):
            if now_s >= job.retry_s and too_late(job, ahead_s, now_s, terms):
                self._count(job)
                decisions.append(let_go(job, ahead_s, now_s, terms))
        might = [job for job in might if job.hold is not Hold.DEADLINE_RELEASED]
        startable = [job.window.earliest_s <= now_s for job in might]
        if any(startable):
            decisions += self._choose(world, might, np.array(startable))
        return decisions + self._renew(might)

    def decide_while_paused(self, snapshot: Snapshot) -> list[Decision]:
        """Of a paused daemon: nothing is renewed, so leases run out and every job goes to the cluster's own queue."""
        return []

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        for job, outcome, _ in outcomes_of(self.name, self.deferrable.jobs.values(), outcomes):
            job.on_outcome(outcome, self._now_s)

    def on_withdrawn(self) -> None:
        """Every job has its own begin time again: what is missing of ours, nobody took by hand."""
        for job in self.deferrable.jobs.values():
            job.withdrawn()

    def wake_s(self) -> float:
        """When a lease ends, a latest start comes, patience ends, or a step does."""
        jobs = self.deferrable.jobs.values()
        lease_s = self.terms.lease_s(len(jobs))
        found = min(
            (wake_s(job, lease_s, self._now_s, self.terms) for job in jobs if job.seen), default=math.inf
        )
        return max(found, self._now_s + 1.0)

    # ---------------------------------------------------------------------------------------------------- deciding

    def _choose(
        self, world: World, might: Sequence[Deferrable], startable: NDArray[np.bool_]
    ) -> list[Decision]:
        """Who starts, by the scores."""
        now_s, options = self._now_s, self.options
        world.foretell(self._history, options)
        past = self._history.past(math.floor(now_s / options.step_s))
        scores = self._scores(waiting_of(world, might, past, options.step_s))
        scores = np.where(startable, scores, -np.inf)
        falling = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable").tolist()
        of = int(startable.sum())
        decisions: list[Decision] = []
        blocked = False
        for rank, k in enumerate((k for k in falling if startable[k]), 1):
            job = might[k]
            job.score, job.rank, job.of, job.free = float(scores[k]), rank, of, world.free(job)
            if not scores[k] > -np.inf:
                job.reason = f"{self.scorer.name} holds it back for now"
            elif blocked:
                job.reason = f"{job.place}, and one before it does not fit"
            elif now_s < job.again_s:
                continue
            elif lacks := world.lacks(job):
                job.reason = f"{job.place}, and {lacks}"
                blocked = options.packing == "prefix"
            else:
                world.take(job)
                self._count(job)
                decisions.append(start(job, now_s, self.terms))
        return decisions

    def _scores(self, waiting: Waiting) -> Floats:
        """The policy's scores; those of `edf` if it errs."""
        try:
            found = scores_of(self.scorer, waiting)
            self._erred = ""
        except Exception as error:  # whatever it is, the cycle goes on
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            if not self._erred:
                self.deferrable.to_report.append(
                    f"the policy {self.scorer.name} errs, edf decides meanwhile: {why}"
                )
            self._erred = why
            found = scores_of(self._edf, waiting)
        return found

    def _renew(self, might: Sequence[Deferrable]) -> list[Decision]:
        """Hold back those that do not start; of leases that go on no more in a cycle than a cluster takes easily."""
        decisions: list[Decision] = []
        lease_s = self.terms.lease_s(len(might))
        renewed = 0
        for job in sorted(might, key=lambda job: math.inf if math.isnan(job.until_s) else job.until_s):
            if job.hold in (Hold.FREE, Hold.HELD) and (not job.reported or renewed < 2 * UPDATES):
                renewed += job.reported
                decisions += hold(job, lease_s, self._now_s, self.terms)
        return decisions

    def _count(self, job: Deferrable) -> None:
        """It is let go."""
        self._let_go += 1
        self._started_cores += job.cores

    # ----------------------------------------------------------------------------------------------------- reporting

    def explain(self, job: str) -> dict[str, Json] | None:
        """Why a deferrable job waits or was let go; None if it is not known."""
        deferrable = self.deferrable
        key = job if job in deferrable.jobs or job in deferrable.missed else job.partition("_")[0]
        known = deferrable.jobs.get(key)
        if known is not None:
            return {"policy": self.name, **deferral_report.story(known, self._now_s)}
        if key not in deferrable.missed and key not in deferrable.running:
            return None
        missed_s = deferrable.missed.get(key)
        state = "runs" if missed_s is None else "missed"
        return {"job": key, "policy": self.name, "state": state, "latest_s": missed_s}

    def overview(self) -> dict[str, Json]:
        """All deferrable jobs that wait, and what is left to them."""
        world, deferrable = self._world, self.deferrable
        order = sorted(deferrable.jobs.values(), key=lambda job: (job.rank or math.inf, job.submit_s))
        return {
            "policy": self.name,
            "now_s": plain(self._now_s),
            "step_s": self.options.step_s,
            "packing": self.options.packing,
            "capacity": None if world is None else world.capacity,
            "held_cores": None if world is None else world.held,
            "known_days": round(self._history.known_steps / self._history.steps_a_day, 2),
            "waiting": len(deferrable.jobs),
            "running": len(deferrable.running),
            "counts": {"started": deferrable.started, "missed": deferrable.late, "let go": self._let_go},
            "erred": self._erred or None,
            "missed": [[key, late_s] for key, late_s in deferrable.missed.items()],
            "forecast": [] if world is None else self._ahead(world),
            "jobs": [deferral_report.row(job, self._now_s) for job in order[:MOST_LISTED]],
        }

    def _ahead(self, world: World) -> list[Json]:
        """[beginning of the step, what the history foretells] for a day from now on."""
        step_s = self.options.step_s
        at = math.floor(self._now_s / step_s)
        found = self._history.forecast(at, world.capacity, self._history.steps_a_day, self.options.quantile)
        return [[(at + k) * step_s, plain(value)] for k, value in enumerate(found.tolist())]

    def words(self) -> str:
        """The deferrable jobs, for the sentence of a cycle; empty if there are none."""
        deferrable = self.deferrable
        if not deferrable.jobs and not deferrable.running:
            return ""
        held = sum(job.hold in (Hold.FREE, Hold.HELD) for job in deferrable.jobs.values())
        return f"{held} deferrable held back, {len(deferrable.running)} run"

    # ---------------------------------------------------------------------------------------------------- knowledge

    def state(self) -> dict[str, dict[str, Json]]:
        """Everything that another process needs: the history, and which jobs that run were deferrable."""
        self.deferrable.changed = False
        return {**self._history.to_json(), "*": self.deferrable.to_json()}

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Take over what `state` gave; what cannot be read is passed over."""
        self._history.restore(memory)
        self.deferrable.restore(memory.get("*", {}))


def _nobody(snapshot: Snapshot, row: int) -> bool:
    return False

"""Statements of work on a cluster: drives a mechanism of this room over snapshots, round after round.

Time is cut into rounds of `round_s` seconds, numbered from the epoch, so that a restart finds the same ones. An owner
announces a job; it gets a number and a launch plan, which binds. When the job comes it is known by its hint
(`sow=NUMBER`), else by user, name and cores within the time in which it was announced. Then

- it has its start by the plan, and is deferred until there by a begin time: a dead asad leaves a job that starts by
  itself. It is admitted, so that the cluster tries it before those that were promised nothing;
- a job whose plan has no start for such an arrival stays in the cluster's queue as if nothing had been stated of it;
- when it completes its owner is charged the price that was announced for that start and the rounds that it ran: a
  line of his account and one of the house, which sum to zero. Who fails, is evicted or cancelled pays nothing;
- if a job waits for cores though its start has come, and what runs and is due by plans needs more than jobs without a
  statement leave, those born last go: a job that runs is evicted as its owner chose in the statement, one that waits
  loses its plan and waits on in the queue.

Jobs without a statement are left as they are; what those that run hold is taken from the capacity, for as long as
jobs of their kind ran before, else up to the end of their time limits. Nobody is evicted for their sake but by way of
what is left to statements.

All that was promised is described by `unkept` as plain data before the cluster hears of it, and restored. A
plan that was made is never made again: an entry whose mechanism was lost (other bounds, another capacity) keeps to its
plan and price.

Options, beside those of the mechanism: see `Options`. Cost of a cycle: O(queue + running jobs + open statements), in a
new round what the mechanism takes besides. Source: 004, Algorithm 1; the mapping to jobs is asad's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from asad.admit.sow import Mechanism
from asad.admit.sow.arrivals import Arrival, Arrivals, number_of
from asad.admit.sow.desk import StatementsDesk
from asad.admit.sow.promises import SLACK, Promise
from asad.admit.sow.start_decisions import follow_plan, loosen, start_s
from asad.admit.sow.statement import NEVER, Bounds, Statement, Worth
from asad.admit.sow.statement_options import Options
from asad.decisions import Cause, Decision, Decline, Evict, Outcome
from asad.hold import Terms, find_rows, outcomes_of
from asad.model import Finished, Json, Snapshot


class Statements(StatementsDesk):
    """A mechanism on a cluster."""

    @property
    def statements(self) -> Statements:
        """Itself."""
        return self

    def __init__(
        self,
        name: str,
        make: Callable[[Bounds], Mechanism],
        applications: Sequence[str],
        options: Options | None = None,
        *,
        most_defer_s: float = 86_400.0,
    ) -> None:
        """`make` a mechanism for a cluster; `applications` names the codes of `Jobs.application` and may grow."""
        super().__init__(name, make, applications, options)
        self._make = make
        self._terms = Terms(name, self.options.round_s, most_defer_s)
        self._arrivals = Arrivals(applications, self.options)

    # ------------------------------------------------------------------------------------------------- the cycle

    @property
    def slot_s(self) -> float:
        """Length of the rounds."""
        return self.options.round_s

    def warm_up(self) -> None:
        """Made-up statements through a mechanism that is thrown away, so that all is compiled before real ones come."""
        mechanism = self._make(Bounds(8, 2, 4, 10.0, 8))
        for number, present in enumerate((1, 2)):
            mechanism.step(present)
            mechanism.occupy(present, np.ones(12, np.int32))
            ways, worth = [(present, 1, 0.5), (present, 3, 0.5)], Worth("deadline", 5.0, 12)
            mechanism.submit(number, Statement.of(present, 1, ways, worth))
            mechanism.tables(1)
            mechanism.arrive(number, present)
            mechanism.evict(present)
            mechanism.complete(number, present + 1)
        mechanism.restore(mechanism.state())

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Whose job has ended, and how."""
        self.register.now_s = snapshot.time_s
        self.planning.others.learn(snapshot, finished)
        well = finished.completed
        for at, row in enumerate(finished.row.tolist()):
            number = self.register.of_job.get(str(snapshot.jobs.job_id[row]))
            if number is not None:
                completed = well is None or bool(well[at])
                self._end(
                    self.register.open[number],
                    float(finished.end_s[at]),
                    float(finished.run_s[at]),
                    completed,
                )

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who is held until when, who may start, who has to go."""
        if not self.planning.ready:
            return []
        mechanism = self.planning.begin(snapshot)
        if mechanism is None:
            return []
        self._miss()
        arrived, wrong = self._arrivals.look(snapshot, self.register.open, self.register.of_job)
        decisions: list[Decision] = [
            Decline(Cause(self.name, one.why, {"job": one.job}), one.row) for one in wrong
        ]
        if arrived or self.planning.occupied != self.planning.round:
            self.planning.occupy(snapshot, mechanism)
        for arrival in arrived:
            self._arrive(arrival)
        rows = self._look(snapshot)
        self.planning.enter(mechanism)
        self._evict(snapshot, mechanism, rows)
        return decisions + self._follow_plans(snapshot, rows)

    def decide_while_paused(self, snapshot: Snapshot) -> list[Decision]:
        """Only those whose start has come, and whom we still hold back."""
        if not self.planning.ready:
            return []
        mechanism = self.planning.begin(snapshot)
        decisions: list[Decision] = []
        if mechanism is None:
            return decisions
        for number, row in self._look(snapshot).items():
            promise = self.register.open[number]
            promise.row = row
            decisions += loosen(snapshot, promise, self._terms)
        return decisions

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        for promise, outcome, decision in outcomes_of(self.name, self.register.open.values(), outcomes):
            if promise.on_outcome(outcome, self.register.now_s):
                if isinstance(decision, Evict):
                    self.register.close(promise, "evicted", promise.reason, charged=True)
                else:
                    self.register.touch(promise)

    def on_withdrawn(self) -> None:
        """Whoever was deferred may start as its user had it: what is missing of it, nobody took by hand."""
        for promise in self.register.open.values():
            promise.seen_held = False
            promise.reported = promise.reported and promise.state != "arrived"

    def decides_start(self, snapshot: Snapshot, row: int) -> bool:
        """Jobs of statements, those that name one, and all while it is not known what was promised."""
        known = str(snapshot.jobs.job_id[row]) in self.register.of_job
        return known or not self.planning.ready or number_of(snapshot.hints.get(row, "")) is not None

    def wake_s(self) -> float:
        """The beginning of the next round, if there is anything open."""
        return (
            (self.planning.round + 1) * self.options.round_s
            if self.register.open and self.planning.round >= 0
            else math.inf
        )

    def _miss(self) -> None:
        """Jobs that have not come in all the time in which they were announced to."""
        for promise in list(self.register.open.values()):
            if promise.state == "planned" and self.planning.round > promise.last_arrival + 1:
                self.planning.forget(promise)
                self.register.close(promise, "missed", "its job has not come when it was announced to")

    def _arrive(self, arrival: Arrival) -> None:
        """A job has come: its start by the plan, which holds whatever the mechanism still knows."""
        promise = arrival.promise
        from_round = math.ceil(arrival.from_s / self.options.round_s - SLACK)
        promise.job, promise.row = arrival.job, arrival.row
        promise.arrival = max(promise.birth, self.planning.round, from_round)
        self.register.of_job[arrival.job] = promise.number
        row = promise.plan_row_of(promise.arrival)
        start = NEVER if row < 0 else int(promise.plan.start[row])
        if start != NEVER:
            promise.become("arrived")
            promise.start = start
        else:
            self.planning.forget(promise)
            promise.become("leaving", "declined")
            promise.reason = (
                "it has come later than it was announced to"
                if row < 0
                else "by its plan it does not run if it comes then: no start is worth its price"
            )
        self.register.touch(promise)

    def _look(self, snapshot: Snapshot) -> dict[int, int]:
        """Rows of jobs of statements that wait or run, by number; who is gone is closed, who has started is noted."""
        jobs = snapshot.jobs
        running = {*snapshot.running.tolist(), *snapshot.guests.tolist()}
        rows: dict[int, int] = {}
        find_rows(((one.job, one) for one in self.register.open.values() if one.job), jobs.job_id)
        for number, promise in list(self.register.open.items()):
            row = promise.row
            if not promise.job:
                continue
            there = 0 <= row < len(jobs.job_id) and str(jobs.job_id[row]) == promise.job
            waits = there and math.isnan(jobs.start_s[row])
            runs = there and row in running
            if runs and promise.state == "arrived":
                promise.become("running")
                promise.started_s = float(jobs.start_s[row])
                self.register.consents[promise.job] = promise.announced.eviction
                self.register.touch(promise)
            elif runs and promise.state == "leaving":
                self.register.let_go(promise)  # it runs as any other
                continue
            elif waits and promise.state == "evicting":
                self.register.close(promise, "evicted", promise.reason, charged=True)
                continue
            elif waits and promise.state == "running":
                self.planning.forget(promise)
                self.register.close(promise, "failed", "it was requeued, and not by a plan", charged=True)
                continue
            elif not waits and not runs:
                if not (there and _holds_cores(snapshot, row)):
                    self._end(promise)
                continue  # who leaves, and has not left, is reported when he has
            rows[number] = row
        return rows

    def _end(
        self,
        promise: Promise,
        end_s: float = math.nan,
        run_s: float = math.nan,
        completed: bool = False,
    ) -> None:
        """Its job has ended, or is gone without a word of its end (NaN). On completion it is charged what was announced
        for its start and for so many rounds."""
        promise.ended_s = end_s
        if promise.state == "leaving":
            self.register.let_go(promise)
            return
        if promise.state == "evicting":
            why = "it completed before it could be evicted, and is not charged"
            self.register.close(promise, "evicted", why if completed else promise.reason, charged=True)
            return
        unknown = math.isnan(run_s)
        if not completed or unknown:
            self.planning.forget(promise)
            why = "how it ended is not known" if unknown else "it did not end well"
            becomes = "failed"
            if promise.state == "arrived" and math.isnan(end_s):
                becomes, why = "withdrawn", "its job was gone before it was seen to begin"
            self.register.close(promise, becomes, why, charged=becomes == "failed")
            return
        rounds = max(1, math.ceil(run_s / self.options.round_s - SLACK))
        self.planning.forget(promise, promise.start + rounds)
        promise.rounds, sold = rounds, promise.sold(self.options.most_value)
        # nobody needed the rounds that were not sold to it, or it would have been evicted there
        more = f", of which {sold} were sold to it" if rounds > sold else ""
        why = f"it ran {rounds} rounds from its start on{more}"
        self.register.close(
            promise, "completed", why, price=promise.price_of(min(rounds, sold)), charged=True
        )

    def _evict(self, snapshot: Snapshot, mechanism: Mechanism, rows: Mapping[int, int]) -> None:
        """Who has to go in this round, latest born first; nobody, unless somebody has waited for his start for long."""
        late_s = self.register.now_s - self.options.patience_s
        queued = set(snapshot.queue.tolist())  # who is held, or waits for another job, needs no cores yet
        late = [
            promise.number
            for promise in self.register.open.values()
            if promise.state == "arrived" and promise.entered and start_s(promise, self._terms) <= late_s
            if promise.row in queued
        ]
        if not late:
            return
        ahead = [
            promise
            for number, promise in self.register.open.items()
            if promise.state == "running" and promise.start > self.planning.round and number > min(late)
        ]
        if ahead:  # the cluster was quicker than we: who runs before his start is in no plan of this round
            gone = ahead[-1]
            self.planning.forget(gone)
            gone.become("evicting")
            due = f"statement {min(late)}, born earlier, is due"
            gone.reason = f"it ran before its start in round {gone.start}, and {due}"
            self.register.touch(gone)
            return
        for eviction in mechanism.evict(self.planning.round, self.planning.supply(snapshot, mechanism)):
            promise = self.register.open.get(eviction.job)
            self.register.known.discard(eviction.job)
            if promise is None:
                continue
            promise.reason = eviction.reason
            if promise.state == "running" and promise.number in rows:
                promise.become("evicting")
                self.register.touch(promise)
            elif promise.state == "arrived":
                promise.become("leaving", "cancelled")
                self.register.touch(promise)
            else:
                self.register.close(promise, "cancelled", eviction.reason, charged=True)

    def _follow_plans(self, snapshot: Snapshot, rows: Mapping[int, int]) -> list[Decision]:
        """What makes the cluster follow the plans of those jobs that are there."""
        decisions: list[Decision] = []
        for number, promise in list(self.register.open.items()):
            row = rows.get(number, -1)
            if row < 0 or snapshot.time_s < promise.retry_s:
                continue
            promise.row = row
            found, new = follow_plan(snapshot, promise, self.planning.round, self._terms)
            if new:
                self.register.touch(promise)
            if promise.state == "leaving" and not found:
                self.register.let_go(promise)
            decisions += found
        return decisions

    # ------------------------------------------------------------------------------------------------- saved state

    def unkept(self) -> dict[str, Any]:
        """What has changed since the last time, as rows of the store: statements, plans, entries, and our memory."""
        return {**self.register.unkept(), "memory": self.planning.to_json()}

    def state(self) -> dict[str, dict[str, Json]]:
        """All that another one of us needs, as plain data: our memory, and open statements with their plans."""
        return self.planning.to_json() | self.register.to_json()

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Go on from what `state` described; what cannot be read is passed over. Until this is called nothing is
        decided."""
        self.register.restore(memory)
        self.planning.restore(memory)


def _holds_cores(snapshot: Snapshot, row: int) -> bool:
    """A job that neither waits nor runs any more is leaving as long as it does: its end is still to be reported."""
    return bool((snapshot.core_owner == row).any() or (snapshot.core_guest == row).any())

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

All that was promised is told by `unkept` as plain data before the cluster hears of it, and known again by `restore`. A
plan that was made is never made again: an entry whose mechanism was lost (other bounds, another capacity) keeps to its
plan and price.

Options, beside those of the mechanism: see `Options`. Cost of a cycle: O(queue + running jobs + open statements), in a
new round what the mechanism takes besides. Source: 004, Algorithm 1; the mapping to jobs is asad's own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from asad.admit import AdmitPolicy
from asad.admit.sow import Mechanism
from asad.admit.sow.announcements import Announcement
from asad.admit.sow.arrivals import Arrival, Arrivals, number_of
from asad.admit.sow.book import Book
from asad.admit.sow.mechanism_warm_up import warm_up_mechanism
from asad.admit.sow.others import Others
from asad.admit.sow.promises import (
    SLACK,
    Promise,
    mechanism_row,
    promise_from_json,
    statement_of,
)
from asad.admit.sow.start_decisions import loosen, start_s, steer
from asad.admit.sow.statement import NEVER, Bounds
from asad.admit.sow.statement_options import Options
from asad.decisions import Cause, Decision, Decline, Evict, Outcome
from asad.errors import AsadError, UsageError
from asad.hold import Terms, find_rows, outcomes_of, plain
from asad.model import STATEMENTS_OVER, Finished, Json, Snapshot

MOST_UNITS = 30_000
"""A mechanism counts no further; a larger cluster is counted in units of several cores."""
REMEMBERED = 1000
"""So many statements that are over are still told of."""
MOST_DECLINED = 20
"""And so many of those that were not planned at all, which nobody keeps."""


class Statements(AdmitPolicy):
    """A mechanism on a cluster."""

    promises = True

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
        self.name, self.options = name, options or Options()
        self._make = make
        self._terms = Terms(name, self.options.round_s, most_defer_s)
        self._arrivals = Arrivals(applications, self.options)
        self._others = Others(self.options.round_s, applications)
        self._book = Book()
        self._mechanism: Mechanism | None = None
        self._unit = 1
        self._cores = 0
        self._promises: dict[int, Promise] = {}
        """Those that are open, by number, in the order of their births."""
        self._of_job: dict[str, int] = {}
        self._known: set[int] = set()
        """Numbers that the mechanism knows."""
        self.over: deque[Promise] = deque(maxlen=REMEMBERED)
        """Those of which nothing more becomes, the newest last."""
        self._declined: deque[Promise] = deque(maxlen=MOST_DECLINED)
        """The last that were never planned."""
        self._next = 1
        self._round = -1
        self._occupied: int | None = None
        """The round in which the mechanism was told last what others hold."""
        self._now_s = -math.inf
        self._other_rounds = False
        """What is promised counts in rounds of another length."""
        self._trouble = "no node was seen yet"
        """Why there is no mechanism."""
        self._kept: Mapping[str, Mapping[str, Json]] | None = None
        self._ready = False
        self.consents: dict[str, str] = {}
        """By number of a job: how its owner agreed to its eviction. The guard holds us to it."""
        self.changed = False
        """There is something that `unkept` has not told."""
        self.counts = dict.fromkeys(("stated", "planned", *STATEMENTS_OVER), 0)
        self.paid_micro = 0

    # ------------------------------------------------------------------------------------------------- what is asked

    @property
    def ready(self) -> bool:
        """Is it known what was promised before? Until then nothing is."""
        return self._ready

    def submit(self, announced: Sequence[Announcement], owner: str, now_s: float) -> list[dict[str, Json]]:
        """Plan jobs that their owner announces, in this order. One that is wrong keeps those before it from being made.

        Raises UsageError with the number of the statement, what is wrong and the mend; AsadError if it is too early.
        """
        mechanism = self._at(now_s)
        mine = sum(promise.owner == owner for promise in self._promises.values())
        for whose, there, key in (
            (f"{owner} has", mine, "most_open"),
            ("all owners together have", len(self._promises), "most_open_all"),
        ):
            most = getattr(self.options, key)
            if there + len(announced) > most:
                raise UsageError(
                    f"{whose} {there} open statements, and {len(announced)} more are beyond the {most} that may be "
                    f"open at one time ([admit.{self.name}] {key}); wait until some are over, or withdraw some: "
                    "asactl sow cancel NUMBER"
                )
        options, stated = self.options, []
        for at, one in enumerate(announced, 1):
            try:
                if one.value > options.most_value:
                    raise UsageError(
                        f"value: {one.value:g} is more than the {options.most_value:g} that counts here; write less"
                    )
                stated.append(statement_of(one, self._round, options.round_s, self._unit, mechanism.bounds))
            except UsageError as error:
                raise UsageError(f"statement {at}: {error}") from None
        answers = []
        for one, statement in zip(announced, stated, strict=True):
            number, self._next = self._next, self._next + 1
            answer = mechanism.submit(number, statement)
            promise = Promise(
                number=number,
                owner=owner,
                announced=one,
                state="declined" if answer.plan.never else "planned",
                reason=answer.reason,
                born_s=now_s,
                birth=self._round,
                demand=statement.demand,
                longest=int(statement.duration.max()),
                plan=answer.plan,
                utility=answer.utility,
                payment=answer.payment,
                failure=answer.failure.tolist(),
                price=np.array([[round(float(price), 9) for price in row] for row in answer.price]),
                changed_s=now_s,
            )
            self.counts["stated"] += 1
            self.counts[promise.state] += 1
            answers.append(self.told(promise))
            if answer.plan.never:  # nothing was promised, so there is nothing to keep
                self._declined.append(promise)
                promise.forget_prices()
                continue
            self._promises[number] = promise
            self._book.plan(promise)
            self._known.add(number)
            self._touch(promise)
        self.changed = True  # the numbers that were given
        return answers

    def withdraw(self, number: int, owner: str | None, now_s: float) -> dict[str, Json]:
        """Take a statement back; `owner` None may take back anybody's. Its job, if it waits, waits on without it.

        Raises UsageError for a number that is not open, not his, or of a job that runs.
        """
        mechanism = self._at(now_s)
        promise = self._promises.get(number)
        if promise is None or (owner is not None and promise.owner != owner):
            raise UsageError(
                f"there is no open statement {number} of yours; asactl sow status lists those that there are"
            )
        if promise.state in ("running", "evicting"):
            raise UsageError(f"statement {number}: its job {promise.job} runs; scancel {promise.job} ends it")
        self._leave(mechanism, promise)
        self._take_leave(promise, "withdrawn", "its owner has taken it back")
        return self.told(promise)

    def quote(self, cores: int, now_s: float) -> dict[str, Json]:
        """The menu for jobs of so many cores: price and failure probability by start and rounds.

        Raises UsageError for a job that is not planned here; AsadError if it is too early.
        """
        mechanism, options = self._at(now_s), self.options
        demand = math.ceil(cores / self._unit)
        if not 1 <= demand <= mechanism.bounds.max_demand:
            most = mechanism.bounds.max_demand * self._unit
            raise UsageError(f"{cores} cores: jobs of 1 to {most} cores are planned here")
        price, failure = mechanism.tables(demand)
        return {
            "policy": self.name,
            "cores": cores,
            "round_s": options.round_s,
            "first_s": self._round * options.round_s,
            "price": [[plain(one) for one in row] for row in price.tolist()],
            "failure": [[float(one) for one in row] for row in failure.tolist()],
        }

    def status(self, owner: str | None = None) -> dict[str, Json]:
        """Open statements and those that were over last; values and prices only of `owner`, of all if it is None."""
        rows = [*self._promises.values(), *self.over, *self._declined]
        return {
            "policy": self.name,
            "now_s": plain(self._now_s),
            "round_s": self.options.round_s,
            "cores": self._cores,
            "counts": dict(self.counts),
            "statements": [self.told(promise, own=owner in (None, promise.owner)) for promise in rows],
        }

    def told(self, promise: Promise, own: bool = True) -> dict[str, Json]:
        """One statement as its owner may read it; others read no values and prices."""
        return promise.to_read(self.options.round_s, own=own)

    def explain(self, job: str) -> dict[str, Json] | None:
        """The statement of a job; None if it has none."""
        number = self._of_job.get(job)
        if number is not None:
            return self.told(self._promises[number])
        found = next((promise for promise in reversed(self.over) if promise.job == job), None)
        return None if found is None else self.told(found)

    def overview(self) -> dict[str, Json]:
        """What `status` tells of everybody's."""
        return self.status()

    # ------------------------------------------------------------------------------------------------- the cycle

    @property
    def slot_s(self) -> float:
        """Length of the rounds."""
        return self.options.round_s

    def warm_up(self) -> None:
        """Made-up statements through a mechanism that is thrown away."""
        warm_up_mechanism(self._make)

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Whose job has ended, and how."""
        self._now_s = snapshot.time_s
        self._others.learn(snapshot, finished)
        well = finished.completed
        for at, row in enumerate(finished.row.tolist()):
            number = self._of_job.get(str(snapshot.jobs.job_id[row]))
            if number is not None:
                completed = well is None or bool(well[at])
                self._end(
                    self._promises[number], float(finished.end_s[at]), float(finished.run_s[at]), completed
                )

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who is held until when, who may start, who has to go."""
        if not self._ready:
            return []
        mechanism = self._begin(snapshot)
        if mechanism is None:
            return []
        self._miss(mechanism)
        arrived, wrong = self._arrivals.look(snapshot, self._promises, self._of_job)
        decisions: list[Decision] = [
            Decline(Cause(self.name, one.why, {"job": one.job}), one.row) for one in wrong
        ]
        if arrived or self._occupied != self._round:
            self._occupy(snapshot, mechanism)
        for arrival in arrived:
            self._arrive(mechanism, arrival)
        rows = self._look(snapshot, mechanism)
        self._enter(mechanism)
        self._evict(snapshot, mechanism, rows)
        return decisions + self._steer(snapshot, rows)

    def relax(self, snapshot: Snapshot) -> list[Decision]:
        """Only those whose start has come, and whom we still hold back."""
        if not self._ready:
            return []
        mechanism = self._begin(snapshot)
        decisions: list[Decision] = []
        if mechanism is None:
            return decisions
        for number, row in self._look(snapshot, mechanism).items():
            promise = self._promises[number]
            promise.row = row
            decisions += loosen(snapshot, promise, self._terms)
        return decisions

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        for promise, outcome, decision in outcomes_of(self.name, self._promises.values(), outcomes):
            if promise.on_outcome(outcome, self._now_s):
                if isinstance(decision, Evict):
                    self._close(promise, "evicted", promise.reason, charged=True)
                else:
                    self._touch(promise)

    def given_back(self) -> None:
        """Whoever was deferred may start as its user had it: what is missing of it, nobody took by hand."""
        for promise in self._promises.values():
            promise.seen_held = False
            promise.reported = promise.reported and promise.state != "arrived"

    def steers(self, snapshot: Snapshot, row: int) -> bool:
        """Jobs of statements, those that name one, and all while it is not known what was promised."""
        known = str(snapshot.jobs.job_id[row]) in self._of_job
        return known or not self._ready or number_of(snapshot.hints.get(row, "")) is not None

    def wake_s(self) -> float:
        """The beginning of the next round, if there is anything open."""
        return (self._round + 1) * self.options.round_s if self._promises and self._round >= 0 else math.inf

    # ------------------------------------------------------------------------------------------------- the mechanism

    def _at(self, now_s: float) -> Mechanism:
        """The mechanism in the round of `now_s`. Raises AsadError if the cluster was not seen yet."""
        if self._mechanism is None or not self._ready:
            why = self._trouble if self._ready else "the store has not told yet what was promised before"
            raise AsadError(f"statements cannot be taken now: {why}; try again in a moment")
        self._now_s = max(self._now_s, now_s)
        self._advance(self._mechanism, now_s)
        return self._mechanism

    def _advance(self, mechanism: Mechanism, now_s: float) -> None:
        """The round of that time begins, if it has not."""
        present = math.floor(now_s / self.options.round_s)
        if present > self._round:
            self._round = present
            mechanism.step(present)

    def _begin(self, snapshot: Snapshot) -> Mechanism | None:
        """The mechanism of this machine in the present round; on another one it is made anew, and promises stand."""
        self._now_s = snapshot.time_s
        if self._other_rounds:
            self._other_rounds, self._kept = False, None  # what the mechanism knew counts in them too
            for promise in list(self._promises.values()):
                promise.start = NEVER
                why = "the site has changed the length of its rounds: announce it anew"
                self._take_leave(promise, "cancelled", why)
        cores = snapshot.machine.total_cores
        if cores == self._cores:
            if self._mechanism is not None:
                self._advance(self._mechanism, snapshot.time_s)
            return self._mechanism
        options = self.options
        self._cores, self._unit = cores, max(1, math.ceil(cores / MOST_UNITS))
        capacity = max(1, cores // self._unit)
        most = math.ceil(options.most_cores / self._unit) if options.most_cores else max(1, capacity // 4)
        try:
            bounds = Bounds(
                capacity=capacity,
                max_demand=min(most, capacity),
                max_duration=options.most_rounds,
                max_value=options.most_value,
                span=options.span,
                least_value=options.least_value,
            )
            mechanism = self._make(bounds)
        except UsageError as error:
            self._mechanism, self._trouble = None, str(error)
            return None
        kept = self._memory().get("mechanism", {})
        self._mechanism, self._known, self._round, self._occupied = mechanism, set(), -1, None
        self._restore(mechanism, kept)
        self._advance(mechanism, snapshot.time_s)
        self.changed = True
        return mechanism

    def _restore(self, mechanism: Mechanism, kept: Mapping[str, Json]) -> None:
        """What was known in an earlier life; if the machine is another one, plans and prices stand without it."""
        state, known, present = kept.get("state"), kept.get("known"), kept.get("round")
        self._kept = None
        for promise in self._promises.values():
            promise.entered = False
        same = kept.get("bounds") == _bounds_json(mechanism.bounds)
        if not (same and isinstance(state, dict) and isinstance(known, list) and isinstance(present, int)):
            return
        rows: dict[int, dict[str, Json]] = {}
        for number in known:
            held = self._promises.get(cast(int, number))
            if held is not None:
                try:
                    rows[held.number] = mechanism_row(
                        held, self.options.round_s, self._unit, mechanism.bounds, present
                    )
                except UsageError:
                    continue
        try:
            mechanism.restore({**state, "jobs": [rows[number] for number in sorted(rows)]})
        except UsageError:
            return  # of another version
        self._known, self._round = set(rows), present
        for number in rows:
            self._promises[number].entered = rows[number]["row"] != -1

    def _occupy(self, snapshot: Snapshot, mechanism: Mechanism) -> None:
        """Tell what others hold, from this round on; and what a plan held, and runs on for longer than was stated."""
        bounds, present = mechanism.bounds, self._round
        planned = {
            promise.job for promise in self._held_by_plans() if present < promise.start + promise.longest
        }
        rounds = bounds.span + bounds.max_duration
        held = self._others.held(snapshot, planned, present, rounds, self._unit, bounds.capacity)
        mechanism.occupy(present, held)
        self._occupied = present

    def _supply(self, snapshot: Snapshot, mechanism: Mechanism) -> int:
        """Units that are left for plans in this round; who runs before its start is in no plan of it.

        What somebody holds who is being evicted is left to them: it is for their sake that he has to go.
        """
        planned = {promise.job for promise in self._held_by_plans() if promise.start <= self._round}
        planned |= {promise.job for promise in self._promises.values() if promise.state == "evicting"}
        return self._others.supply(snapshot, planned, self._round, self._unit, mechanism.bounds.capacity)

    def _held_by_plans(self) -> list[Promise]:
        """Those that run and that the mechanism knows."""
        return [
            promise
            for number, promise in self._promises.items()
            if promise.state in ("running", "evicting") and number in self._known
        ]

    # ------------------------------------------------------------------------------------------------- who has come

    def _miss(self, mechanism: Mechanism) -> None:
        """Jobs that have not come in all the time in which they were announced to."""
        for promise in list(self._promises.values()):
            if promise.state == "planned" and self._round > promise.last_arrival + 1:
                self._leave(mechanism, promise)
                self._close(promise, "missed", "its job has not come when it was announced to")

    def _arrive(self, mechanism: Mechanism, arrival: Arrival) -> None:
        """A job has come: its start by the plan, which holds whatever the mechanism still knows."""
        promise = arrival.promise
        from_round = math.ceil(arrival.from_s / self.options.round_s - SLACK)
        promise.job, promise.row = arrival.job, arrival.row
        promise.arrival = max(promise.birth, self._round, from_round)
        self._of_job[arrival.job] = promise.number
        row = promise.plan_row_of(promise.arrival)
        start = NEVER if row < 0 else int(promise.plan.start[row])
        if start != NEVER:
            promise.become("arrived")
            promise.start = start
        else:
            self._leave(mechanism, promise)
            promise.become("leaving", "declined")
            promise.reason = (
                "it has come later than it was announced to"
                if row < 0
                else "by its plan it does not run if it comes then: no start is worth its price"
            )
        self._touch(promise)

    def _enter(self, mechanism: Mechanism) -> None:
        """Tell the mechanism who has come, in the round in which each could start."""
        for number in sorted(self._known):
            promise = self._promises[number]
            if promise.entered or not promise.planned or promise.arrival > self._round:
                continue
            promise.entered = True
            if mechanism.arrive(number, self._round) != promise.start:
                # rounds were missed: its own plan stands, and to the mechanism it is one of the others
                self._leave(mechanism, promise)

    def _look(self, snapshot: Snapshot, mechanism: Mechanism) -> dict[int, int]:
        """Rows of jobs of statements that wait or run, by number; who is gone is closed, who has started is noted."""
        jobs = snapshot.jobs
        running = {*snapshot.running.tolist(), *snapshot.guests.tolist()}
        rows: dict[int, int] = {}
        find_rows(((one.job, one) for one in self._promises.values() if one.job), jobs.job_id)
        for number, promise in list(self._promises.items()):
            row = promise.row
            if not promise.job:
                continue
            there = 0 <= row < len(jobs.job_id) and str(jobs.job_id[row]) == promise.job
            waits = there and math.isnan(jobs.start_s[row])
            runs = there and row in running
            if runs and promise.state == "arrived":
                promise.become("running")
                promise.started_s = float(jobs.start_s[row])
                self.consents[promise.job] = promise.announced.eviction
                self._touch(promise)
            elif runs and promise.state == "leaving":
                self._let_go(promise)  # it runs as any other
                continue
            elif waits and promise.state == "evicting":
                self._close(promise, "evicted", promise.reason, charged=True)
                continue
            elif waits and promise.state == "running":
                self._leave(mechanism, promise)
                self._close(promise, "failed", "it was requeued, and not by a plan", charged=True)
                continue
            elif not waits and not runs:
                if not (there and _holds_cores(snapshot, row)):
                    self._gone(mechanism, promise)
                continue  # who leaves, and has not left, is told of when he has
            rows[number] = row
        return rows

    def _gone(self, mechanism: Mechanism, promise: Promise) -> None:
        """A job that is neither there nor was told to have ended."""
        self._leave(mechanism, promise)
        if promise.state == "evicting":
            self._close(promise, "evicted", promise.reason, charged=True)
        elif promise.state == "running":
            self._close(promise, "failed", "how it ended is not known", charged=True)
        elif promise.state == "leaving":
            self._let_go(promise)
        else:
            self._close(promise, "withdrawn", "its job was gone before it was seen to begin")

    def _take_leave(self, promise: Promise, becomes: str, reason: str) -> None:
        """Nothing is promised any more to a job; one that waits, and is held back by us, is let go first."""
        if promise.state in ("arrived", "leaving") and (promise.reported or promise.may_be_held(self._now_s)):
            promise.become("leaving", becomes)
            promise.reason = reason
            self._touch(promise)
        else:
            self._close(promise, becomes, reason, charged=becomes == "cancelled")

    def _let_go(self, promise: Promise) -> None:
        """Nothing is left to be told or taken back of one that is leaving."""
        self._close(promise, promise.becomes, promise.reason, charged=promise.becomes == "cancelled")

    def _end(self, promise: Promise, end_s: float, run_s: float, completed: bool) -> None:
        """Its job has ended: on completion it is charged what was announced for its start and for so many rounds."""
        promise.ended_s = end_s
        if promise.state == "leaving":
            self._let_go(promise)
            return
        if promise.state == "evicting":
            why = "it completed before it could be evicted, and is not charged"
            self._close(promise, "evicted", promise.reason if not completed else why, charged=True)
            return
        unknown = math.isnan(run_s)
        if not completed or unknown:
            if self._mechanism is not None:
                self._leave(self._mechanism, promise)
            why = "how it ended is not known" if unknown else "it did not end well"
            self._close(promise, "failed", why, charged=True)
            return
        rounds = max(1, math.ceil(run_s / self.options.round_s - SLACK))
        if self._mechanism is not None and promise.number in self._known:
            self._known.discard(promise.number)
            self._mechanism.complete(promise.number, promise.start + rounds)
        promise.rounds, sold = rounds, promise.sold(self.options.most_value)
        # nobody needed the rounds that were not sold to it, or it would have been evicted there
        more = f", of which {sold} were sold to it" if rounds > sold else ""
        why = f"it ran {rounds} rounds from its start on{more}"
        self._close(promise, "completed", why, price=promise.price_of(min(rounds, sold)), charged=True)

    def _leave(self, mechanism: Mechanism, promise: Promise) -> None:
        """The mechanism forgets it."""
        if promise.number in self._known:
            self._known.discard(promise.number)
            mechanism.withdraw(promise.number, self._round)

    def _close(
        self, promise: Promise, state: str, reason: str, *, price: float = 0.0, charged: bool = False
    ) -> None:
        """Nothing more becomes of it. `charged`: there is a line of the ledger, though it may be of nothing."""
        promise.state, promise.reason = state, reason
        self._promises.pop(promise.number, None)
        self._of_job.pop(promise.job, None)
        self.consents.pop(promise.job, None)
        self._known.discard(promise.number)
        self.over.append(promise)
        self.counts[state] += 1
        self._touch(promise)
        self._book.end(promise)
        if not charged:
            return
        time_s = self._now_s if math.isnan(promise.ended_s) else promise.ended_s
        self._book.charge(promise, price, time_s)
        self.paid_micro += promise.paid_micro

    # ------------------------------------------------------------------------------------------------- steering

    def _evict(self, snapshot: Snapshot, mechanism: Mechanism, rows: Mapping[int, int]) -> None:
        """Who has to go in this round, latest born first; nobody, unless somebody has waited for his start for long."""
        late_s = self._now_s - self.options.patience_s
        queued = set(snapshot.queue.tolist())  # who is held, or waits for another job, needs no cores yet
        late = [
            promise.number
            for promise in self._promises.values()
            if promise.state == "arrived" and promise.entered and start_s(promise, self._terms) <= late_s
            if promise.row in queued
        ]
        if not late:
            return
        ahead = [
            promise
            for number, promise in self._promises.items()
            if promise.state == "running" and promise.start > self._round and number > min(late)
        ]
        if ahead:  # the cluster was quicker than we: who runs before his start is in no plan of this round
            gone = ahead[-1]
            self._leave(mechanism, gone)
            gone.become("evicting")
            due = f"statement {min(late)}, born earlier, is due"
            gone.reason = f"it ran before its start in round {gone.start}, and {due}"
            self._touch(gone)
            return
        for eviction in mechanism.evict(self._round, self._supply(snapshot, mechanism)):
            promise = self._promises.get(eviction.job)
            self._known.discard(eviction.job)
            if promise is None:
                continue
            promise.reason = eviction.reason
            if promise.state == "running" and promise.number in rows:
                promise.become("evicting")
                self._touch(promise)
            elif promise.state == "arrived":
                promise.become("leaving", "cancelled")
                self._touch(promise)
            else:
                self._close(promise, "cancelled", eviction.reason, charged=True)

    def _steer(self, snapshot: Snapshot, rows: Mapping[int, int]) -> list[Decision]:
        """What makes the cluster follow the plans of those jobs that are there."""
        decisions: list[Decision] = []
        for number, promise in list(self._promises.items()):
            row = rows.get(number, -1)
            if row < 0 or snapshot.time_s < promise.retry_s:
                continue
            promise.row = row
            found, new = steer(snapshot, promise, self._round, self._terms)
            if new:
                self._touch(promise)
            if promise.state == "leaving" and not found:
                self._let_go(promise)
            decisions += found
        return decisions

    # ------------------------------------------------------------------------------------------------- knowledge

    def _touch(self, promise: Promise) -> None:
        promise.changed_s = max(promise.changed_s, self._now_s)
        self._book.change(promise)
        self.changed = True

    def unkept(self) -> dict[str, Any]:
        """What has changed since the last time, as rows of the store: statements, plans, entries, and our memory."""
        self.changed = False
        return {**self._book.unkept(self._promises), "memory": self._memory()}

    def _memory(self) -> dict[str, dict[str, Json]]:
        told: dict[str, dict[str, Json]] = {"*": {"next": self._next, "round_s": self.options.round_s}}
        if self._mechanism is not None:
            told["mechanism"] = {
                "bounds": _bounds_json(self._mechanism.bounds),
                "round": self._round,
                "known": list[Json](sorted(self._known)),
                # its jobs are our rows: they are not kept twice
                "state": {key: value for key, value in self._mechanism.state().items() if key != "jobs"},
            }
        elif self._kept is not None and "mechanism" in self._kept:
            told["mechanism"] = dict(self._kept["mechanism"])
        return told

    def state(self) -> dict[str, dict[str, Json]]:
        """All that another one of us needs, as plain data: our memory, and open statements with their plans."""
        told = self._memory()
        for number, promise in self._promises.items():
            told[f"statement {number}"] = {"row": promise.to_row(), "plan": promise.plan_row()}
        return told

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `state` told; what cannot be read is passed over. Until this is called nothing is decided."""
        common = memory.get("*", {})
        for name, known in memory.items():
            if not name.startswith("statement "):
                continue
            promise = promise_from_json(known.get("row"), known.get("plan"))
            if promise is None or promise.number in self._promises:
                continue
            self._promises[promise.number] = promise
            if promise.job:
                self._of_job[promise.job] = promise.number
                if promise.state in ("running", "evicting"):
                    self.consents[promise.job] = promise.announced.eviction
        self._promises = dict(sorted(self._promises.items()))
        following = common.get("next")
        self._next = max(
            max(self._promises, default=0) + 1, following if isinstance(following, int) else 1, self._next
        )
        self._other_rounds = common.get("round_s") not in (None, self.options.round_s)
        self._kept = memory
        self._mechanism, self._cores, self._ready = None, 0, True


def _holds_cores(snapshot: Snapshot, row: int) -> bool:
    """A job that neither waits nor runs any more is leaving as long as it does: its end is still to be told."""
    return bool((snapshot.core_owner == row).any() or (snapshot.core_guest == row).any())


def _bounds_json(bounds: Bounds) -> dict[str, Json]:
    return {
        "capacity": bounds.capacity,
        "max_demand": bounds.max_demand,
        "max_duration": bounds.max_duration,
        "max_value": bounds.max_value,
        "span": bounds.span,
        "least_value": bounds.least_value,
    }

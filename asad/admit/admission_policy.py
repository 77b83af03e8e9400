"""Admission on a cluster: drives any scheme of this room over snapshots, slot after slot.

Time is cut into slots of `slot_s` seconds, numbered from the epoch, so that a restart finds the same ones. Jobs that
have a utility (by hint, else by a rule of the configuration) are put to the scheme once, in the order of their
submission; all others are left as they are, and what they hold is taken from the servers' capacity.

- An array is an elastic job, its tasks are the workers: its throttle follows the plan, and while the plan has no
  workers for it, its waiting tasks are deferred to its next slot that has. The throttle of that slot is set meanwhile.
- A job that is no array is rigid, one worker in consecutive slots: it is deferred to the first slot of its plan.
- An array of workers may name another array whose tasks are its parameter servers (`ps=NAME`): the companion. It is
  admitted with its workers, deferred with them, and has as many tasks at one time as their number in the slot needs.
  When all workers have ended, what is left of it gets its own throttle and begin time again.
- A job that is not admitted stays in the cluster's queue. It is asked for again `again_s` later, if jobs have ended.

Plans are kept against facts at the beginning of each slot: what is done early is released, what is late is given more
slots at present prices; tasks that run on beyond their plan count as held. Whoever starts, ends or is changed by other
hands is taken as it is. The plan bounds how many tasks run; where they run is the cluster's own affair.

Cost of a cycle: O(queue + running tasks of arrays + admitted jobs); with arrivals or at a new slot O(T·H·R) more and
what the scheme takes. Source: OASiS (Bao, Peng, Wu, Li, INFOCOM 2018), algorithm 1; the mapping to jobs is asad's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from asad.admit import AdmitPolicy, admission_report
from asad.admit.admission_options import Options
from asad.admit.asking import Asking
from asad.admit.commitment_book import CommitmentBook
from asad.admit.commitments import (
    Commitment,
)
from asad.admit.companions import companions, follow, released, taken_in
from asad.admit.elastic import Allotment
from asad.admit.hints import Rule
from asad.admit.plan_decisions import follow_plan, loosen, release, verdict
from asad.admit.scheme_plans import Make, SchemePlans
from asad.admit.schemes import warm_up_scheme
from asad.admit.seen import Seen, look
from asad.admit.utility import Maker
from asad.decisions import Decision, Outcome
from asad.hold import key_of, outcomes_of, plain
from asad.model import Finished, Json, Snapshot


class Admission(AdmitPolicy):
    """A scheme on a cluster."""

    promises = True

    def __init__(
        self,
        name: str,
        make: Make,
        applications: Sequence[str],
        options: Options | None = None,
        rules: Sequence[Rule] = (),
        *,
        own_utilities: Mapping[str, Maker] | None = None,
        most_defer_s: float = 86_400.0,
    ) -> None:
        """`applications` names the codes of `Jobs.application` and may grow; `own_utilities` are the site's kinds."""
        self.name, self.options = name, options or Options()
        own = dict(own_utilities or {})
        self.book = CommitmentBook(applications, self.options.slot_s, own)
        self.planning = SchemePlans(name, make, self.options, self.book, own, most_defer_s)
        self.asking = Asking(self.options, rules, self.book, self.planning)
        self._gone: set[str] = set()
        """Jobs that have ended since `decide` looked last."""
        self._slot: int | None = None
        self._now_s = -math.inf

    @property
    def admission(self) -> Admission:
        """Itself."""
        return self

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """How long applications run, and who has ended."""
        self._now_s = snapshot.time_s
        self.book.run_times.learn(snapshot, finished)
        names = [str(snapshot.jobs.job_id[row]) for row in finished.row.tolist()]
        self._gone |= self.book.jobs.keys() & set(names)
        self.asking.endings += len(names)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who is admitted, and what the present slot asks for."""
        seen, slot = self._look(snapshot)
        new_slot = slot != self._slot
        self._slot = slot
        self.asking.claimed = companions(snapshot, seen, self.book.jobs, self.book.run_times)
        asked = self.asking.candidates(snapshot, seen)
        if asked:
            asked_rows = [seen[key].any_row for key, _ in asked]
            self.planning.count(snapshot, [*asked_rows, *(seen[key].any_row for key in self.asking.claimed)])
        if new_slot or asked:
            self.planning.occupy(snapshot, seen, slot, [key for key, _ in asked])
        if new_slot:
            self.planning.stale = True
            self.planning.follow_facts(snapshot, seen, slot)
        described = ((key, self.asking.user(snapshot, seen[key]), hint) for key, hint in asked)
        claims = self.asking.budgets.claims(described, self.book.jobs)
        for number, (key, hint) in enumerate(asked, 1):
            self.asking.ask(snapshot, seen, key, hint, slot, claims)
            if seen[key].running and self.book.jobs[key].state != "admitted":
                # no plan holds what of it runs
                self.planning.occupy(snapshot, seen, slot, [later for later, _ in asked[number:]])
        widths = self.planning.widths(snapshot, seen, slot)
        self._pair(snapshot, seen, slot)
        return self._follow_plans(snapshot, seen, slot, widths)

    def decide_while_paused(self, snapshot: Snapshot) -> list[Decision]:
        """Admitted jobs that have more coming than they have now; nobody is asked for, deferred or held to less."""
        seen, slot = self._look(snapshot)
        decisions: list[Decision] = []
        for key, entry in self.book.jobs.items():
            there = seen.get(key)
            if entry.state not in ("admitted", "released") or there is None or there.row < 0:
                continue
            entry.row = there.row
            if snapshot.time_s < entry.retry_s:
                continue
            if entry.state == "released":
                decisions += self._release(snapshot, entry, there)
            else:
                decisions += loosen(snapshot, entry, there, slot, self.planning.terms)
        return decisions

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        for entry, outcome, _ in outcomes_of(self.name, self.book.jobs.values(), outcomes):
            self.book.changed = entry.on_outcome(outcome, self._now_s) or self.book.changed

    def on_withdrawn(self) -> None:
        """Whatever was deferred or throttled is as its user had it: what is missing of it, nobody took by hand."""
        for entry in self.book.jobs.values():
            entry.seen_held = False
            entry.reported = entry.reported and entry.state != "admitted"

    @property
    def slot_s(self) -> float:
        """Length of the slots."""
        return self.options.slot_s

    @property
    def changed(self) -> bool:
        """Is there something that `state` has not described?"""
        return self.book.changed

    def warm_up(self) -> None:
        """Made-up jobs through a scheme that is thrown away."""
        warm_up_scheme(self.planning.make)

    def decides_start(self, snapshot: Snapshot, row: int) -> bool:
        """Whoever has a utility, by hint or rule, and companions; also those of an earlier process."""
        key, array, text = key_of(snapshot, row), int(snapshot.jobs.array[row]), snapshot.hints.get(row, "")
        if key in self.book.jobs or key in self.book.kept_jobs:
            return True
        return (
            self.asking.ignored.get(key) != text
            and self.asking.hint_of(snapshot, Seen(row, array), text) is not None
        )

    def wake_s(self) -> float:
        """The beginning of the next slot, if there is any job that it could matter to."""
        if not self.book.jobs or self._slot is None:
            return self.asking.patient_until_s
        return min(self.asking.patient_until_s, (self._slot + 1) * self.options.slot_s)

    def _look(self, snapshot: Snapshot) -> tuple[dict[str, Seen], int]:
        """What the cluster shows, by job, and the present slot; who is gone is forgotten."""
        self._now_s = snapshot.time_s
        self.planning.begin(snapshot)
        seen = look(snapshot, self.book.jobs, self._gone)
        slot = self.planning.slot_of(snapshot.time_s)
        self._forget(seen, slot)
        return seen, slot

    def _forget(self, seen: Mapping[str, Seen], slot: int) -> None:
        """Those that are gone release what was planned."""
        for key in [key for key in self.book.jobs if key not in seen]:
            self.planning.leave(self.book.jobs.pop(key), slot)
            self.book.changed = self.planning.stale = True
        for key in [key for key in self.asking.ignored if key not in seen]:
            del self.asking.ignored[key]
        for key, entry in list(self.book.jobs.items()):
            workers = self.book.jobs.get(entry.beside)
            if entry.beside and (workers is None or workers.companion != key):
                if not released(entry, seen[key]):
                    del self.book.jobs[key]
                self.book.changed = True
        self._gone.clear()

    def _pair(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> None:
        """Companions follow their workers: the same verdict, and a plan that is theirs in parameter servers."""
        for mate, key in self.asking.claimed.items():
            workers = self.book.jobs.get(key)
            if workers is None:
                continue
            if workers.companion != mate:
                # admitted workers whose companion has ended get the next one of that name
                if workers.state != "admitted" or not workers.companion:
                    continue
                workers.companion, self.book.changed = mate, True
            entry = self.book.jobs.get(mate)
            if entry is None or entry.beside != key:
                if entry is not None:  # what had been planned for it as a job of its own is free
                    self.planning.leave(self.book.jobs.pop(mate), slot)
                    self.planning.stale = True
                number = self.book.number()
                entry = taken_in(
                    snapshot, seen[mate], mate, number, workers, entry, slot, self.asking.endings
                )
                self.book.jobs[mate] = entry
            self.book.changed = follow(entry, workers, slot) or self.book.changed

    def _follow_plans(
        self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int, widths: Mapping[int, Allotment]
    ) -> list[Decision]:
        """What makes the cluster follow the plans, and the verdicts for its users."""
        decisions: list[Decision] = []
        early = self.planning.early(snapshot, seen, slot)
        for key, entry in self.book.jobs.items():
            there = seen.get(key)
            if there is None or there.row < 0 or snapshot.time_s < entry.retry_s:
                continue
            entry.row = there.row
            if not entry.reported and entry.state not in ("ended", "released"):
                decisions.append(verdict(entry, self.planning.terms))
            if entry.state == "admitted":
                width = early.get(entry.number) or self._width_now(entry, seen, widths)
                found, new = follow_plan(snapshot, entry, there, slot, width, self.planning.terms)
                self.book.changed = new or self.book.changed
                decisions += found
            elif entry.state == "released":
                decisions += self._release(snapshot, entry, there)
        return decisions

    def _width_now(self, entry: Commitment, seen: Mapping[str, Seen], widths: Mapping[int, Allotment]) -> int:
        """Tasks that the array, or the rigid job, has in this slot."""
        if not entry.beside:
            return widths[entry.number].width if entry.number in widths else 0
        workers = self.book.jobs[entry.beside]
        if workers.state == "ended":  # no plan any more: those that run are served to their end
            return workers.servers_for(len(seen[workers.key].running))
        there = widths.get(workers.number)
        return 0 if there is None else workers.servers_for(there.width)

    def _release(self, snapshot: Snapshot, entry: Commitment, there: Seen) -> list[Decision]:
        """A companion without workers gets back what is its own; then it is forgotten."""
        decisions, new = release(snapshot, entry, there, self.planning.terms)
        self.book.changed = new or self.book.changed
        if not decisions:
            # forgotten by the next `_forget`: what iterates over the jobs is not changed under its hands
            entry.state, entry.reported = "ended", True
        return decisions

    def explain(self, job: str) -> dict[str, Json] | None:
        """What was decided of a job (or of a task's array) and what is planned; None if it is not known."""
        entry = self.book.jobs.get(job) or self.book.jobs.get(job.partition("_")[0])
        if entry is None:
            return None
        slot = self._slot or 0
        return {
            "policy": self.name,
            "now_s": plain(self._now_s),
            **admission_report.job(entry, slot, self.options.slot_s),
            "prices": self.planning.prices(entry, slot),
        }

    def overview(self) -> dict[str, Json]:
        """All jobs that are known, and by slot what the plans and others hold of the cores."""
        slot_s, slot = self.options.slot_s, self._slot or 0
        capacity, others, prices = self.planning.cores(slot)
        entries = self.book.jobs.values()
        return {
            "policy": self.name,
            "now_s": plain(self._now_s),
            "slot_s": slot_s,
            "horizon": self.options.horizon,
            "cores": capacity,
            "unit_prices": self.planning.unit_prices(slot),
            "jobs": [admission_report.row(entry, slot, slot_s) for entry in entries],
            "slots": admission_report.slots(entries, slot, slot_s, others, prices),
        }

    def state(self) -> dict[str, dict[str, Json]]:
        """Everything that another process needs: commitments, by place, and how long applications ran."""
        return self.book.to_json(self.planning.to_json())

    def changes(self) -> dict[str, dict[str, Json] | None]:
        """What `state` describes otherwise than when this was asked last; None of applications that are forgotten."""
        return self.book.changes(self.planning.to_json())

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `state` described, as soon as the first snapshot is seen; what cannot be read is passed
        over."""
        self.book.restore(memory)
        self.planning.world = None

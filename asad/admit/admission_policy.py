"""Admission on a cluster: drives any scheme of this room over snapshots, slot after slot.

Time is cut into slots of `slot_s` seconds, numbered from the epoch, so that a restart finds the same ones. Jobs that
tell a utility (by hint, else by a rule of the configuration) are put to the scheme once, in the order of their
submission; all others are left as they are, and what they hold is taken from the servers' capacity.

- An array is an elastic job, its tasks are the workers: its throttle follows the plan, and while the plan has no
  workers for it, its waiting tasks are deferred to its next slot that has. The throttle of that slot is set meanwhile.
- A job that is no array is rigid, one worker in consecutive slots: it is deferred to the first slot of its plan.
- An array of workers may name another array whose tasks are its parameter servers (`ps=NAME`): the companion. It is
  admitted with its workers, deferred with them, and has as many tasks at one time as their number in the slot needs.
  When all workers have ended, what is left of it gets its own throttle and begin time back.
- A job that is not admitted stays in the cluster's queue. It is asked for again `again_s` later, if jobs have ended.

Plans are kept against facts at the beginning of each slot: what is done early is released, what is late is given more
slots at present prices; tasks that run on beyond their plan count as held. Whoever starts, ends or is changed by other
hands is taken as it is. The plan bounds how many tasks run; where they run is the cluster's own affair.

Cost of a cycle: O(queue + running tasks of arrays + admitted jobs); with arrivals or at a new slot O(T·H·R) more and
what the scheme takes. Source: OASiS (Bao, Peng, Wu, Li, INFOCOM 2018), algorithm 1; the mapping to jobs is asad's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from asad.admit import AdmitPolicy, admission_report
from asad.admit.admission_options import Options
from asad.admit.budget import NOTHING, Budgets, Claim
from asad.admit.capacity import CORES, Claims, World, held_by_others, world_of
from asad.admit.commitments import (
    Commitment,
    commitment_from_json,
    commitment_of,
    renumbered,
)
from asad.admit.companions import companions, follow, released, taken_in
from asad.admit.elastic import Allotment, PlansAhead, Scheme, Servers
from asad.admit.hints import Hint, Rule
from asad.admit.job_size import Companion, Measures, told
from asad.admit.plan_decisions import give_back, loosen, steer, verdict
from asad.admit.run_times import RunTimes
from asad.admit.saved_places import SavedPlaces
from asad.admit.scheme_warm_up import warm_up_scheme
from asad.admit.seen import Seen, can_start, key_of, look, own_throttle_of
from asad.admit.utility import Maker, parse_utility
from asad.decisions import Decision, Outcome
from asad.errors import UsageError
from asad.hold import Terms, outcomes_of, plain
from asad.model import Finished, Floats, Json, Machine, Snapshot

MOST_ASKED = 100
"""So many jobs are put to the scheme in one cycle; the others in the next ones."""

Make = Callable[[Servers, int], Scheme]
"""A new scheme over servers, that plans so many slots ahead."""


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
        self.make = make
        self._rules = tuple(rules)
        self._own, self._most_defer_s = dict(own_utilities or {}), most_defer_s
        self._budgets = Budgets(self.options, self._own)
        self._run_times = RunTimes(applications)
        self._machine: Machine | None = None
        self._world: World | None = None
        self._scheme: Scheme | None = None
        self._jobs: dict[str, Commitment] = {}
        self._ignored: dict[str, str] = {}
        """Jobs that tell no utility and have none by a rule, and their hints."""
        self._next = 1
        self._gone: set[str] = set()
        """Jobs that have ended since `decide` looked last."""
        self._endings = 0
        self._slot: int | None = None
        self._now_s = -math.inf
        self._allotted: tuple[int, Mapping[int, Allotment]] | None = None
        self._stale = True
        """Somebody came or went since `_allotted`."""
        self._kept: Mapping[str, Mapping[str, Json]] | None = None
        """What an earlier process has kept, until the first snapshot is looked at; in mode observe none ever is."""
        self._kept_jobs: set[str] = set()
        """The jobs that it knew."""
        self._used: Floats | None = None
        self._used_beside: Floats | None = None
        self._claimed: dict[str, str] = {}
        """Arrays that are companions, and of which workers; of this cycle."""
        self._patient_until_s = math.inf
        """When the patience of the next array that waits for its companion ends."""
        self._places = SavedPlaces()
        self._told_promises: dict[str, dict[str, Json]] = {}
        """By `changes`, when it was asked last."""
        self._changed = False
        """What `state` tells has changed since it was told last."""

    # ------------------------------------------------------------------------------------------------- the cycle

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """How long applications run, and who has ended."""
        self._now_s = snapshot.time_s
        self._run_times.learn(snapshot, finished)
        names = [str(snapshot.jobs.job_id[row]) for row in finished.row.tolist()]
        self._gone |= self._jobs.keys() & set(names)
        self._endings += len(names)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who is admitted, and what the present slot asks for."""
        seen, slot = self._look(snapshot)
        new_slot = slot != self._slot
        self._slot = slot
        self._claimed = companions(snapshot, seen, self._jobs, self._run_times)
        asked = self._candidates(snapshot, seen)
        if new_slot or asked:
            self._occupy(snapshot, seen, slot, [key for key, _ in asked])
        if new_slot:
            self._stale = True
            self._keep_plans(snapshot, seen, slot)
        told_of = ((key, self._user(snapshot, seen[key]), hint) for key, hint in asked)
        claims = self._budgets.claims(told_of, self._jobs)
        for number, (key, hint) in enumerate(asked, 1):
            self._ask(snapshot, seen, key, hint, slot, claims)
            if seen[key].running and self._jobs[key].state != "admitted":
                # no plan holds what of it runs
                self._occupy(snapshot, seen, slot, [later for later, _ in asked[number:]])
        widths = self._widths(snapshot, seen, slot)
        self._pair(snapshot, seen, slot)
        return self._steer(snapshot, seen, slot, widths)

    def relax(self, snapshot: Snapshot) -> list[Decision]:
        """Admitted jobs that have more coming than they have now; nobody is asked for, deferred or held to less."""
        seen, slot = self._look(snapshot)
        decisions: list[Decision] = []
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if entry.state not in ("admitted", "released") or there is None or there.row < 0:
                continue
            entry.row = there.row
            if snapshot.time_s < entry.retry_s:
                continue
            if entry.state == "released":
                decisions += self._give_back(snapshot, entry, there)
            else:
                decisions += loosen(snapshot, entry, there, slot, self._terms)
        return decisions

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        for entry, outcome, _ in outcomes_of(self.name, self._jobs.values(), outcomes):
            self._changed = entry.on_outcome(outcome, self._now_s) or self._changed

    def given_back(self) -> None:
        """Whatever was deferred or throttled is as its user had it: what is missing of it, nobody took by hand."""
        for entry in self._jobs.values():
            entry.seen_held = False
            entry.reported = entry.reported and entry.state != "admitted"

    @property
    def slot_s(self) -> float:
        """Length of the slots."""
        return self.options.slot_s

    @property
    def changed(self) -> bool:
        """Is there something that `state` has not described?"""
        return self._changed

    def warm_up(self) -> None:
        """Made-up jobs through a scheme that is thrown away."""
        warm_up_scheme(self.make)

    def steers(self, snapshot: Snapshot, row: int) -> bool:
        """Whoever tells a utility, by hint or rule, and companions; also those of an earlier process."""
        key, array, text = key_of(snapshot, row), int(snapshot.jobs.array[row]), snapshot.hints.get(row, "")
        if key in self._jobs or key in self._kept_jobs:
            return True
        return self._ignored.get(key) != text and self._told(snapshot, Seen(row, array), text) is not None

    def wake_s(self) -> float:
        """The beginning of the next slot, if there is any job that it could matter to."""
        if not self._jobs or self._slot is None:
            return self._patient_until_s
        return min(self._patient_until_s, (self._slot + 1) * self.options.slot_s)

    # ------------------------------------------------------------------------------------------------- what is seen

    def _look(self, snapshot: Snapshot) -> tuple[dict[str, Seen], int]:
        """What the cluster shows, by job, and the present slot; who is gone is forgotten."""
        self._begin(snapshot)
        seen = look(snapshot, self._jobs, self._gone)
        slot = self._slot_of(snapshot.time_s)
        self._forget(seen, slot)
        return seen, slot

    def _slot_of(self, time_s: float) -> int:
        return math.floor(time_s / self.options.slot_s)

    def _begin(self, snapshot: Snapshot) -> None:
        """Servers and scheme as of this machine; on another one (or in a new process) all plans are taken over."""
        self._now_s = snapshot.time_s
        world, machine = self._world, snapshot.machine
        if world is not None and self._machine is not None and _same(machine, self._machine):
            return
        self._machine = machine
        options = self.options
        new = world_of(machine, options.parameter_server_nodes, options.whole, options.server_share)
        self._world = new
        self._measures = Measures(new, options, self._own, self._run_times)
        learned = self._learned()
        self._scheme = self.make(new.servers, options.horizon)
        self._plans = self._scheme if isinstance(self._scheme, PlansAhead) else None
        self._terms = Terms(self.name, options.slot_s, self._most_defer_s, self._plans is not None)
        self._stale, self._allotted = True, None
        before = (world.worker_names, world.server_names) if world is not None else ([], [])
        if self._kept is not None:
            before = self._restore(self._kept)
            self._kept, self._kept_jobs = None, set()
        else:
            self._learn_again(learned)
        slot = self._slot_of(snapshot.time_s)
        for entry in sorted(self._jobs.values(), key=lambda entry: entry.number):
            if entry.state != "admitted" or entry.beside:
                continue
            if before != (new.worker_names, new.server_names):
                entry.schedule = renumbered(
                    entry.schedule, before[0], new.worker_names, before[1], new.server_names
                )
            self._take_up(entry, slot)

    def _learned(self) -> Json:
        """What the scheme has learned of the jobs that it met; None if it learns nothing."""
        state = getattr(self._scheme, "state", None)
        return None if state is None else cast(Json, state())

    def _learn_again(self, learned: Json) -> None:
        """The scheme knows again what `_learned` told of it."""
        restore = getattr(self._scheme, "restore", None)
        if restore is not None and isinstance(learned, dict):
            restore(learned)

    def _take_up(self, entry: Commitment, slot: int) -> None:
        """The scheme knows the job again."""
        assert self._scheme is not None
        job = self._measures.elastic(entry)
        if self._plans is None:
            self._scheme.arrive(entry.number, job)
        else:
            ahead = {at: there for at, there in entry.schedule.items() if at >= slot}
            self._plans.resume(entry.number, job, ahead)

    def _forget(self, seen: Mapping[str, Seen], slot: int) -> None:
        """Those that are gone release what was planned."""
        for key in [key for key in self._jobs if key not in seen]:
            self._leave(self._jobs.pop(key), slot)
            self._changed = self._stale = True
        for key in [key for key in self._ignored if key not in seen]:
            del self._ignored[key]
        for key, entry in list(self._jobs.items()):
            workers = self._jobs.get(entry.beside)
            if entry.beside and (workers is None or workers.companion != key):
                if not released(entry, seen[key]):
                    del self._jobs[key]
                self._changed = True
        self._gone.clear()

    def _leave(self, entry: Commitment, slot: int) -> None:
        """Its plan from `slot` on is free."""
        if entry.state == "admitted" and self._plans is not None and not entry.beside:
            self._plans.leave(entry.number, slot)
        entry.schedule = {at: there for at, there in entry.schedule.items() if at < slot}

    # ---------------------------------------------------------------------------------------------------- asking

    def _candidates(self, snapshot: Snapshot, seen: Mapping[str, Seen]) -> list[tuple[str, Hint | str]]:
        """Who is to be asked for now, in order of submission, with what they tell (a text: why that is wrong)."""
        jobs = snapshot.jobs
        found: list[tuple[float, str, Hint | str]] = []
        self._patient_until_s = math.inf
        for key, there in seen.items():
            row = there.row
            if row < 0 or key in self._claimed:
                continue
            entry = self._jobs.get(key)
            text = snapshot.hints.get(row, "")
            if entry is None:
                if self._ignored.get(key) == text:
                    continue
            elif not self._again(snapshot, entry, text):
                continue
            if not can_start(snapshot, there):
                continue
            hint = self._told(snapshot, there, text)
            if hint is None:
                self._ignored[key] = text
                continue
            if isinstance(hint, Hint) and hint.parameter_servers and self._lacks_servers(seen, key):
                until_s = float(jobs.submit_s[row]) + self.options.ps_patience_s
                if snapshot.time_s < until_s:
                    self._patient_until_s = min(self._patient_until_s, until_s)
                    continue
            found.append((float(jobs.submit_s[row]), key, hint))
        found.sort(key=lambda one: one[:2])
        return [(key, hint) for _, key, hint in found[:MOST_ASKED]]

    def _told(self, snapshot: Snapshot, there: Seen, text: str) -> Hint | str | None:
        """What a job's user, else a rule, tells (see `asad.admit.job_size.told`)."""
        return told(snapshot, there, text, self._run_times.application(snapshot, there.row), self._rules)

    def _user(self, snapshot: Snapshot, there: Seen) -> str:
        return self._run_times.application(snapshot, there.row).partition("/")[0]

    def _again(self, snapshot: Snapshot, entry: Commitment, text: str) -> bool:
        """Is a job that we know to be asked for again?"""
        if entry.state in ("admitted", "released"):
            return False
        if entry.lacks_servers and entry.key in self._claimed.values():
            return True  # they have come
        if entry.hint != text or entry.state == "ended":  # a task of it was requeued
            return True
        asked_s = entry.arrival * self.options.slot_s
        return (
            entry.state in ("declined", "unfit")
            and snapshot.time_s - asked_s >= self.options.again_s
            and self._endings > entry.asked_at
        )

    def _lacks_servers(self, seen: Mapping[str, Seen], key: str) -> bool:
        """It is an array that could have parameter servers here, and its companion is not there."""
        possible = len(self._measures.world.servers.parameter_servers) > 0 and seen[key].array >= 0
        return possible and key not in self._claimed.values()

    def _ask(
        self,
        snapshot: Snapshot,
        seen: Mapping[str, Seen],
        key: str,
        hint: Hint | str,
        slot: int,
        claims: Mapping[str, Claim],
    ) -> None:
        """Put a job to the scheme; it is known from then on, admitted or not."""
        assert self._scheme is not None
        there, before = seen[key], self._jobs.pop(key, None)
        entry = commitment_of(
            snapshot,
            there.row,
            key=key,
            number=self._number(),
            state="unfit",
            utility=hint.utility if isinstance(hint, Hint) else "",
            by_rule=isinstance(hint, Hint) and hint.by_rule,
            reason=hint if isinstance(hint, str) else "",
            arrival=slot,
            array=there.array >= 0,
            asked_at=self._endings,
        )
        self._jobs[key] = entry
        self._changed = True
        if isinstance(hint, Hint):
            companion = self._companion_of(snapshot, seen, key)
            entry.reason = self._measures.measure(snapshot, there, entry, hint, before, companion)
        cut = claims[key].enter(entry) if key in claims and not entry.reason else ""
        if cut and entry.counted <= NOTHING:
            entry.state, entry.reason = "declined", cut
        if not entry.reason:
            answer = self._scheme.arrive(entry.number, self._measures.elastic(entry))
            entry.state = "admitted" if answer.admitted else "declined"
            entry.reason = f"{answer.reason}; {cut}" if cut else answer.reason
            entry.payoff, entry.cost, entry.worth = answer.payoff, answer.cost, answer.utility
            entry.schedule = dict(answer.schedule or {}) if answer.admitted else {}
            self._stale = True
        # has its user been told just this already?
        same = before is not None and (before.state, before.reason) == (entry.state, entry.reason)
        entry.reported = same and before is not None and before.reported

    def _number(self) -> int:
        """By which the scheme is to know the next job."""
        number, self._next = self._next, self._next + 1
        return number

    def _companion_of(self, snapshot: Snapshot, seen: Mapping[str, Seen], key: str) -> Companion | None:
        """Who has come as the parameter servers of a job."""
        mate = next((mate for mate, workers in self._claimed.items() if workers == key), None)
        if mate is None:
            return None
        entry = self._jobs.get(mate)
        own = own_throttle_of(snapshot, seen[mate]) if entry is None else entry.own_throttle
        return Companion(mate, seen[mate], own)

    # ------------------------------------------------------------------------------------------------ plan and facts

    def _occupy(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int, asked: Sequence[str]) -> None:
        """Tell a scheme that plans ahead what others hold.

        What runs of an array that is about to be asked for is work of its plan to come, and held by nobody else.
        """
        world, slot_s, horizon = self._world, self.options.slot_s, self.options.horizon
        if self._plans is None or world is None:
            return
        jobs = snapshot.jobs
        count = len(jobs.job_id)
        ours, beside = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        group = np.full(count, -1, np.int32)
        planned: dict[int, Mapping[int, int]] = {}
        end_s = jobs.limit_end_s.copy()
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if there is None or entry.state not in ("admitted", "ended"):
                continue
            if there.row >= 0:
                ours[there.row] = True
            beside[there.running] = entry.beside != ""
            if there.running:
                task_s = self._run_times.task_s(snapshot, there.running[0])
                rows = np.array(there.running)
                expected_s = np.maximum(jobs.start_s[rows] + task_s, snapshot.time_s + slot_s / 2)
                end_s[rows] = np.fmin(end_s[rows], expected_s)
            if entry.array and there.running and entry.state == "admitted":
                group[there.running] = entry.number
                planned[entry.number] = {
                    at: there.width for at, there in entry.schedule.items() if at >= slot
                }
        for number, key in enumerate(asked, self._next):
            running = seen[key].running
            if seen[key].array >= 0 and running:
                group[running] = number
                planned[number] = dict.fromkeys(range(slot, slot + horizon), len(running))
        claims = Claims(ours, group, beside, planned)
        self._used, self._used_beside = held_by_others(snapshot, world, slot, horizon, slot_s, end_s, claims)
        if len(world.servers.parameter_servers):
            self._plans.occupy(slot, self._used, self._used_beside)
        else:
            self._plans.occupy(slot, self._used)

    def _keep_plans(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> None:
        """A new slot: release what is done or started, extend what is late. In the order of arrival."""
        if self._plans is None:
            return
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if there is None or there.row < 0 or entry.state != "admitted" or entry.beside:
                continue
            if not entry.array and entry.next_slot(0) is not None and slot >= min(entry.schedule):
                entry.turn_came = True
            left = self._measures.work_left(snapshot, entry, there)
            planned = entry.planned(slot)
            if left > planned:
                more = self._plans.extend(entry.number, slot, left - planned)
                past = {at: there for at, there in entry.schedule.items() if at < slot}
                entry.schedule = past | dict(more)
                self._changed = True

    def _widths(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> Mapping[int, Allotment]:
        """Who has what in this slot."""
        assert self._scheme is not None
        left: dict[int, int] = {}
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if entry.state != "admitted" or entry.beside or there is None:
                continue
            if there.row < 0 and self._plans is not None:
                # nothing of it waits: what still runs counts as held, and its plan is free
                self._leave(entry, slot)
                entry.state = "ended"
                self._changed = self._stale = True
                continue
            left[entry.number] = self._measures.work_left(snapshot, entry, there)
        if self._stale or self._allotted is None or self._allotted[0] != slot:
            self._allotted = slot, self._scheme.allot(slot, left)
            self._stale = False
        return self._allotted[1]

    # ---------------------------------------------------------------------------------------------------- steering

    def _pair(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> None:
        """Companions follow their workers: the same verdict, and a plan that is theirs in parameter servers."""
        for mate, key in self._claimed.items():
            workers = self._jobs.get(key)
            if workers is None:
                continue
            if workers.companion != mate:
                # admitted workers whose companion has ended get the next one of that name
                if workers.state != "admitted" or not workers.companion:
                    continue
                workers.companion, self._changed = mate, True
            entry = self._jobs.get(mate)
            if entry is None or entry.beside != key:
                if entry is not None:  # what had been planned for it as a job of its own is free
                    self._leave(self._jobs.pop(mate), slot)
                    self._stale = True
                number = self._number()
                entry = taken_in(snapshot, seen[mate], mate, number, workers, entry, slot, self._endings)
                self._jobs[mate] = entry
            self._changed = follow(entry, workers, slot) or self._changed

    def _steer(
        self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int, widths: Mapping[int, Allotment]
    ) -> list[Decision]:
        """What makes the cluster follow the plans, and what its users are told."""
        decisions: list[Decision] = []
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if there is None or there.row < 0 or snapshot.time_s < entry.retry_s:
                continue
            entry.row = there.row
            if not entry.reported and entry.state not in ("ended", "released"):
                decisions.append(verdict(entry, self._terms))
            if entry.state == "admitted":
                width = self._width_now(entry, seen, widths)
                found, new = steer(snapshot, entry, there, slot, width, self._terms)
                self._changed = new or self._changed
                decisions += found
            elif entry.state == "released":
                decisions += self._give_back(snapshot, entry, there)
        return decisions

    def _width_now(self, entry: Commitment, seen: Mapping[str, Seen], widths: Mapping[int, Allotment]) -> int:
        """Tasks that the array, or the rigid job, has in this slot."""
        if not entry.beside:
            return widths[entry.number].width if entry.number in widths else 0
        workers = self._jobs[entry.beside]
        if workers.state == "ended":  # no plan any more: those that run are served to their end
            return workers.servers_for(len(seen[workers.key].running))
        there = widths.get(workers.number)
        return 0 if there is None else workers.servers_for(there.width)

    def _give_back(self, snapshot: Snapshot, entry: Commitment, there: Seen) -> list[Decision]:
        """A companion without workers gets back what is its own; then it is forgotten."""
        decisions, new = give_back(snapshot, entry, there, self._terms)
        self._changed = new or self._changed
        if not decisions:
            # forgotten by the next `_forget`: what iterates over the jobs is not changed under its hands
            entry.state, entry.reported = "ended", True
        return decisions

    # ----------------------------------------------------------------------------------------------------- telling

    def explain(self, job: str) -> dict[str, Json] | None:
        """What was said of a job (or of a task's array) and what is planned; None if it is not known."""
        entry = self._jobs.get(job) or self._jobs.get(job.partition("_")[0])
        if entry is None:
            return None
        slot = self._slot or 0
        return {
            "policy": self.name,
            "now_s": plain(self._now_s),
            **admission_report.job(entry, slot, self.options.slot_s),
            "prices": self._prices(entry, slot),
        }

    def _prices(self, entry: Commitment, slot: int) -> Json:
        """What one worker of the job costs now, by slot: least over the servers. None of schemes without prices."""
        ask = getattr(self._scheme, "worker_prices", None)
        if ask is None or self._world is None or entry.cores == 0 or entry.beside:
            return None
        demand = self._world.demand(entry.cores, entry.memory_bytes_per_core)
        prices = cast("Sequence[float]", ask(slot, demand))
        return admission_report.prices_by_slot(prices, slot, self.options.slot_s)

    def overview(self) -> dict[str, Json]:
        """All jobs that are known, and by slot what the plans and others hold of the cores."""
        slot_s, slot = self.options.slot_s, self._slot or 0
        capacity = 0.0
        if self._world is not None:
            servers = self._world.servers
            capacity = float(servers.workers[:, CORES].sum() + servers.parameter_servers[:, CORES].sum())
        others = None if self._used is None else self._used[:, :, CORES].sum(axis=1)
        if others is not None and self._used_beside is not None:
            others = others + self._used_beside[:, :, CORES].sum(axis=1)
        ask = getattr(self._scheme, "core_prices", None)
        prices = None if ask is None else cast("Sequence[float]", ask(slot))
        entries = self._jobs.values()
        return {
            "policy": self.name,
            "now_s": plain(self._now_s),
            "slot_s": slot_s,
            "horizon": self.options.horizon,
            "cores": capacity,
            "jobs": [admission_report.row(entry, slot, slot_s) for entry in entries],
            "slots": admission_report.slots(
                entries, slot, slot_s, None if others is None else others.tolist(), prices
            ),
        }

    # ---------------------------------------------------------------------------------------------------- knowledge

    def state(self) -> dict[str, dict[str, Json]]:
        """Everything that another process needs: commitments, by place, and how long applications ran."""
        self._changed = False
        if self._kept is not None:  # nothing was seen yet
            return {name: dict(known) for name, known in self._kept.items()}
        return self._run_times.to_json() | self._promises()

    def changes(self) -> dict[str, dict[str, Json] | None]:
        """What `state` tells otherwise than when this was asked last; None of applications that are forgotten."""
        self._changed = False
        if self._kept is not None:
            return {}
        before, self._told_promises = self._told_promises, self._promises()
        changed = {name: known for name, known in self._told_promises.items() if before.get(name) != known}
        return self._run_times.changes() | changed

    def _promises(self) -> dict[str, dict[str, Json]]:
        """Commitments, by place, and what they have in common."""
        kept: dict[str, dict[str, Json]] = {}
        for number, holder in enumerate(self._places.assign(self._jobs)):
            kept[f"seat {number}"] = {} if holder is None else self._jobs[holder].to_json()
        kept["*"] = {
            "next": self._next,
            "slot_s": self.options.slot_s,
            "workers": list(self._world.worker_names) if self._world is not None else [],
            "servers": list(self._world.server_names) if self._world is not None else [],
            "scheme": self._learned(),
        }
        return kept

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `state` told, as soon as the first snapshot is seen; what cannot be read is passed over."""
        self._kept = memory
        self._kept_jobs = {
            str(known.get("key")) for name, known in memory.items() if name.startswith("seat ") and known
        }
        self._world = None

    def _restore(self, memory: Mapping[str, Mapping[str, Json]]) -> tuple[list[str], list[str]]:
        """Take over what was kept; the names of the worker and of the parameter servers of that time."""
        common = memory.get("*", {})
        same_slots = common.get("slot_s") == self.options.slot_s
        numbers = {entry.number for entry in self._jobs.values()}
        for name, known in memory.items():
            if name.startswith("seat "):
                number = name.removeprefix("seat ")
                if not (number.isdecimal() and len(number) < 8):
                    continue
                entry = self._restored(known, same_slots)
                if entry is not None and (entry.key in self._jobs or entry.number in numbers):
                    entry = None
                self._places.give(int(number), None if entry is None else entry.key)
                if entry is not None:
                    self._jobs[entry.key] = entry
                    numbers.add(entry.number)
            elif name != "*":
                self._run_times.restore(name, known)
        following = common.get("next")
        self._next = max(
            max(numbers, default=0) + 1, following if isinstance(following, int) else 1, self._next
        )
        if same_slots:
            self._learn_again(common.get("scheme"))
        names = common.get("workers"), common.get("servers")
        workers, servers = ([str(name) for name in one] if isinstance(one, list) else [] for one in names)
        return workers, servers

    def _restored(self, known: Mapping[str, Json], same_slots: bool) -> Commitment | None:
        """One job as it was kept; None if it cannot be read. What was planned in other slots is to be given back."""
        entry = commitment_from_json(known) if known else None
        if entry is None:
            return None
        if not same_slots:
            return entry if entry.lose_plan("the site has changed the length of its slots") else None
        if entry.state == "admitted" and not entry.beside:
            try:
                parse_utility(entry.utility, self.options.slot_s, self._own)
            except UsageError:
                return None  # a site's own kind that is gone
            entry.reported = False  # whoever stopped may have taken it back
        return entry


def _same(machine: Machine, other: Machine) -> bool:
    """The same nodes, of the same sizes?"""
    return machine is other or (
        machine.node_names == other.node_names
        and np.array_equal(machine.cores, other.cores)
        and np.array_equal(machine.memory_bytes, other.memory_bytes, equal_nan=True)
    )

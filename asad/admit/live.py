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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from asad.admit.capacity import CORES, Claims, World, fits, held_by_others, world_of
from asad.admit.commitments import EXACT_S, Commitment, commitment_from_json, renumbered
from asad.admit.elastic import Allotment, ElasticJob, Schedule, Scheme, Servers, Utility
from asad.admit.hints import Hint, Rule, read_hint, shown
from asad.admit.seen import Seen, can_start, key_of, look, name_of, own_throttle_of, throttle_of
from asad.admit.utility import Maker, parse_utility, target_slots
from asad.errors import UsageError
from asad.model import (
    Admit,
    Cause,
    Decision,
    Decline,
    Defer,
    Finished,
    Floats,
    Json,
    Outcome,
    SetThrottle,
    Snapshot,
    Start,
)

MOST_ASKED = 100
"""So many jobs are put to the scheme in one cycle; the others in the next ones."""
REFUSED_S = 120.0
"""What the cluster refused is not wished again sooner."""
TOLD_SLOTS = 60
"""So many slots of a plan are told with a decision."""


class Options(NamedTuple):
    """Options of every scheme on a cluster, by name as in asad.toml."""

    slot_s: float = 600.0
    """Length of a slot."""
    horizon: int = 144
    """Slots that are planned ahead."""
    again_s: float = 600.0
    """A job that was not admitted is asked for again so much later, if any job has ended meanwhile."""
    most_worth: float = 100.0
    """No hint of a user is worth more than this; rules of the configuration may be."""
    whole: bool = False
    """The cluster is one server instead of one a node: for jobs of several nodes, and for many nodes."""
    parameter_server_nodes: tuple[str, ...] = ()
    """Patterns of the names of nodes that hold parameter servers, and no workers."""
    server_share: float = 0.0
    """Part of each node that is set aside for parameter servers where no nodes are named for them."""
    ps_patience_s: float = 300.0
    """So long after its submission an array waits for the companion that it names; then it is not admitted."""


class PlansAhead(Scheme, Protocol):
    """What a scheme can do besides that fixes its schedules when a job arrives."""

    def leave(self, number: int, slot: int) -> None:
        """Job `number` is done or gone: what it holds from `slot` on is free."""
        ...

    def extend(self, number: int, slot: int, work: int) -> Schedule:
        """Plan `work` more worker-slots from `slot` on at present prices; its schedule from then on."""
        ...

    def resume(self, number: int, job: ElasticJob, schedule: Schedule) -> None:
        """Hold what was planned in an earlier life."""
        ...

    def occupy(self, slot: int, workers: Floats, servers: Floats | None = None) -> None:
        """(T, H, R) what others hold of the worker servers from `slot` on; replaces what was told before.

        (T, K, R) of the parameter servers, if there are any.
        """
        ...


Make = Callable[[Servers, int], Scheme]
"""A new scheme over servers, that plans so many slots ahead."""


@dataclass(frozen=True, slots=True)
class OfSubmission:
    """A utility that counts from the arrival in a slot instead of the submission, with its worth bounded."""

    utility: Utility
    before: float
    """Slots from the submission to the beginning of the slot of arrival; below 0 if it was submitted within it."""
    most: float
    slots: float
    """What completes later is worth nothing: the job's deadline, in slots from the arrival; inf for none."""

    def __call__(self, slots: float) -> float:
        if slots > self.slots:
            return 0.0
        return min(self.most, self.utility(slots + self.before))

    @property
    def target(self) -> float:
        """Slots from the arrival by which it is to be done."""
        return max(1.0, min(self.slots, float(getattr(self.utility, "target", math.nan)) - self.before))


class Admission:
    """A scheme on a cluster."""

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
        self._applications, self._rules = applications, tuple(rules)
        self._own, self._most_defer_s = dict(own_utilities or {}), most_defer_s
        self._world: World | None = None
        self._scheme: Scheme | None = None
        self._jobs: dict[str, Commitment] = {}
        self._of_number: dict[int, str] = {}
        self._ignored: dict[str, str] = {}
        self._next = 1
        self._runs: dict[str, tuple[float, float]] = {}
        """Name of an application → jobs that ended, and the sum of how long they ran (s)."""
        self._gone: set[str] = set()
        """Jobs that have ended since `decide` looked last."""
        self._endings = 0
        self._slot: int | None = None
        self._now_s = -math.inf
        self._allotted: tuple[int, Mapping[int, Allotment]] | None = None
        self._stale = True
        """Somebody came or went since `_allotted`."""
        self._kept: Mapping[str, Mapping[str, Json]] | None = None
        self._used: Floats | None = None
        self._used_beside: Floats | None = None
        self._claimed: dict[str, str] = {}
        """Arrays that are companions, and of which workers; of this cycle."""
        self._patient_until_s = math.inf
        """When the patience of the next array that waits for its companion ends."""
        self._seats: list[str | None] = []
        self.changed = False
        """What `state` tells has changed since it was told last."""

    # ------------------------------------------------------------------------------------------------- the cycle

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """How long applications run, and who has ended."""
        self._now_s = snapshot.time_s
        jobs = snapshot.jobs
        for row, run_s, lost_s in zip(
            finished.row.tolist(), finished.run_s.tolist(), finished.lost_s.tolist(), strict=True
        ):
            if str(jobs.job_id[row]) in self._jobs:
                self._gone.add(str(jobs.job_id[row]))
            name = self._application(snapshot, row)
            if name and run_s > 0:
                count, total_s = self._runs.get(name, (0.0, 0.0))
                self._runs[name] = count + 1.0, total_s + max(0.0, run_s - lost_s)
        self._endings += len(finished.row)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who is admitted, and what the present slot asks for."""
        self._begin(snapshot)
        seen = look(snapshot, self._jobs, self._gone)
        slot = self._slot_of(snapshot.time_s)
        self._forget(seen, slot)
        new_slot = slot != self._slot
        self._slot = slot
        self._claimed = self._companions(snapshot, seen)
        asked = self._candidates(snapshot, seen)
        if new_slot or asked:
            self._occupy(snapshot, seen, slot, [key for key, _ in asked])
        if new_slot:
            self._stale = True
            self._keep_plans(snapshot, seen, slot)
        for number, (key, hint) in enumerate(asked, 1):
            self._ask(snapshot, seen, key, hint, slot)
            if seen[key].running and self._jobs[key].state != "admitted":
                # no plan holds what of it runs
                self._occupy(snapshot, seen, slot, [later for later, _ in asked[number:]])
        widths = self._widths(snapshot, seen, slot)
        self._pair(snapshot, seen, slot)
        decisions: list[Decision] = []
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if there is None or there.row < 0 or snapshot.time_s < entry.again_s:
                continue
            entry.row = there.row
            if not entry.told and entry.state not in ("ended", "released"):
                decisions.append(self._verdict(entry))
            if entry.state == "admitted":
                decisions += self._steer(
                    snapshot, entry, there, slot, self._width_now(entry, seen, slot, widths)
                )
            elif entry.state == "released":
                decisions += self._give_back(snapshot, entry, there)
        return decisions

    def relax(self, snapshot: Snapshot) -> list[Decision]:
        """Admitted jobs that have more coming than they have now; nobody is asked for, deferred or held to less."""
        self._begin(snapshot)
        seen = look(snapshot, self._jobs, self._gone)
        slot = self._slot_of(snapshot.time_s)
        self._forget(seen, slot)
        decisions: list[Decision] = []
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if entry.state not in ("admitted", "released") or there is None or there.row < 0:
                continue
            entry.row = there.row
            if snapshot.time_s < entry.again_s:
                continue
            if entry.state == "released":
                decisions += self._give_back(snapshot, entry, there)
                continue
            begin_s = float(snapshot.jobs.begin_s[there.row])
            if not begin_s > snapshot.time_s:
                entry.deferred_s = math.nan  # it was given back, and not by its user's hand
            elif entry.width(slot) and entry.defers(begin_s):
                decisions.append(Start(self._cause(entry, "its slot has come"), there.row))
            if entry.array:
                throttle, tasks = throttle_of(snapshot, there), there.waiting + len(there.running)
                if 0 < throttle < min(entry.width(slot), tasks):
                    decisions.append(self._set_throttle(entry, there, entry.width(slot), slot))
        return decisions

    def heed(self, outcomes: Sequence[Outcome]) -> None:
        """What was done is known from now on; what was refused is wished again some time later."""
        by_row = {entry.row: entry for entry in self._jobs.values() if entry.row >= 0}
        for outcome in outcomes:
            decision = outcome.decision
            if not isinstance(decision, Admit | Decline | Defer | Start | SetThrottle):
                continue
            entry = by_row.get(decision.job)
            if entry is None or decision.cause.policy != self.name:
                continue
            if not outcome.done:
                if outcome.reason != "advise":
                    entry.again_s = self._now_s + REFUSED_S
                continue
            self.changed = True
            match decision:
                case Admit() | Decline():
                    entry.told = True
                case Defer():
                    entry.deferred_s, entry.found_deferred = decision.until_s, True
                case Start():
                    entry.deferred_s = math.nan
                case SetThrottle():
                    entry.throttled = decision.tasks

    def given_back(self) -> None:
        """Whatever was deferred or throttled is as its user had it: what is missing of it, nobody took by hand."""
        for entry in self._jobs.values():
            entry.found_deferred = False
            entry.told = entry.told and entry.state != "admitted"

    def steers(self, snapshot: Snapshot, row: int) -> bool:
        """Whoever tells a utility, by hint or rule, and companions; all while nothing has been looked at yet."""
        key, array, text = key_of(snapshot, row), int(snapshot.jobs.array[row]), snapshot.hints.get(row, "")
        if self._kept is not None or key in self._jobs:
            return True
        return self._ignored.get(key) != text and self._told(snapshot, Seen(row, array), text) is not None

    def wake_s(self) -> float:
        """The beginning of the next slot, if there is any job that it could matter to."""
        if not self._jobs or self._slot is None:
            return self._patient_until_s
        return min(self._patient_until_s, (self._slot + 1) * self.options.slot_s)

    # ------------------------------------------------------------------------------------------------- what is seen

    def _slot_of(self, time_s: float) -> int:
        return math.floor(time_s / self.options.slot_s)

    def _begin(self, snapshot: Snapshot) -> None:
        """Servers and scheme as of this machine; on another one (or in a new process) all plans are taken over."""
        self._now_s = snapshot.time_s
        world, machine = self._world, snapshot.machine
        if world is not None and (world.names is machine.node_names or world.names == machine.node_names):
            return
        options = self.options
        new = world_of(machine, options.parameter_server_nodes, options.whole, options.server_share)
        self._world = new
        self._scheme = self.make(new.servers, self.options.horizon)
        self._stale, self._allotted = True, None
        before = (world.worker_names, world.server_names) if world is not None else ([], [])
        if self._kept is not None:
            before = self._restore(self._kept)
            self._kept = None
        slot = self._slot_of(snapshot.time_s)
        for entry in sorted(self._jobs.values(), key=lambda entry: entry.number):
            if entry.state != "admitted" or entry.beside:
                continue
            if before != (new.worker_names, new.server_names):
                entry.schedule = renumbered(
                    entry.schedule, before[0], new.worker_names, before[1], new.server_names
                )
            self._take_up(entry, slot)

    def _take_up(self, entry: Commitment, slot: int) -> None:
        """The scheme knows the job again."""
        assert self._scheme is not None
        job = self._elastic(entry)
        resume = getattr(self._scheme, "resume", None)
        if resume is None:
            self._scheme.arrive(entry.number, job)
        else:
            resume(entry.number, job, {at: there for at, there in entry.schedule.items() if at >= slot})

    def _forget(self, seen: Mapping[str, Seen], slot: int) -> None:
        """Those that are gone release what was planned."""
        for key in [key for key in self._jobs if key not in seen]:
            self._drop(key, slot)
        for key in [key for key in self._ignored if key not in seen]:
            del self._ignored[key]
        for key, entry in list(self._jobs.items()):
            workers = self._jobs.get(entry.beside)
            if entry.beside and (workers is None or workers.companion != key):
                self._release(seen[key], entry)
        self._gone.clear()

    def _drop(self, key: str, slot: int) -> None:
        entry = self._jobs.pop(key)
        self._of_number.pop(entry.number, None)
        self._leave(entry, slot)
        self.changed = self._stale = True

    def _leave(self, entry: Commitment, slot: int) -> None:
        leave = getattr(self._scheme, "leave", None)
        if entry.state == "admitted" and leave is not None and not entry.beside:
            leave(entry.number, slot)
        entry.schedule = {at: there for at, there in entry.schedule.items() if at < slot}

    def _application(self, snapshot: Snapshot, row: int) -> str:
        code = int(snapshot.jobs.application[row])
        return self._applications[code] if 0 <= code < len(self._applications) else ""

    def _task_s(self, snapshot: Snapshot, row: int) -> float:
        """How long a task is expected to run: as its application did, at most its limit; NaN if neither is known."""
        limit_s = float(snapshot.jobs.time_limit_s[row])
        count, total_s = self._runs.get(self._application(snapshot, row), (0.0, 0.0))
        if count:
            mean_s = max(1.0, total_s / count)
            return min(mean_s, limit_s) if limit_s > 0 else mean_s
        return limit_s if 0 < limit_s < math.inf else math.nan

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
            if isinstance(hint, Hint) and hint.parameter_servers and self._lacks_servers(snapshot, seen, key):
                until_s = float(jobs.submit_s[row]) + self.options.ps_patience_s
                if snapshot.time_s < until_s:
                    self._patient_until_s = min(self._patient_until_s, until_s)
                    continue
            found.append((float(jobs.submit_s[row]), key, hint))
        found.sort(key=lambda one: one[:2])
        return [(key, hint) for _, key, hint in found[:MOST_ASKED]]

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

    def _told(self, snapshot: Snapshot, there: Seen, text: str) -> Hint | str | None:
        """What a job's user, else a rule, tells; a text where it is wrong; None if there is no utility."""
        if text:
            try:
                hint = read_hint(text)
            except ValueError as error:
                return str(error)
            if hint.utility:
                return hint
        else:
            hint = Hint()
        application = self._application(snapshot, there.row)
        partitions, qos = snapshot.classes.get(there.row, ("", ""))
        for rule in self._rules:
            if rule.fits(application, partitions, qos, array=there.array >= 0):
                return hint._replace(utility=rule.utility, by_rule=True)
        return None

    def _ask(
        self, snapshot: Snapshot, seen: Mapping[str, Seen], key: str, hint: Hint | str, slot: int
    ) -> None:
        """Put a job to the scheme; it is known from then on, admitted or not."""
        there = seen[key]
        assert self._scheme is not None
        before = self._jobs.pop(key, None)
        if before is not None:
            self._of_number.pop(before.number, None)
        row, jobs = there.row, snapshot.jobs
        entry = Commitment(
            key=key,
            number=self._next,
            state="unfit",
            hint=snapshot.hints.get(row, ""),
            utility=hint.utility if isinstance(hint, Hint) else "",
            by_rule=isinstance(hint, Hint) and hint.by_rule,
            reason=hint if isinstance(hint, str) else "",
            submit_s=float(jobs.submit_s[row]),
            arrival=slot,
            cores=int(jobs.cores[row]),
            memory_bytes_per_core=float(np.nan_to_num(jobs.memory_bytes_per_core[row])),
            deadline_s=float(jobs.deadline_s[row]),
            array=there.array >= 0,
            asked_at=self._endings,
            row=row,
        )
        self._next += 1
        self._jobs[key] = entry
        self._of_number[entry.number] = key
        self.changed = True
        if isinstance(hint, Hint):
            entry.reason = self._measure(snapshot, seen, entry, hint, before)
        if entry.reason:
            entry.told = _same_verdict(before, entry)
            return
        verdict = self._scheme.arrive(entry.number, self._elastic(entry))
        entry.state = "admitted" if verdict.admitted else "declined"
        entry.reason = verdict.reason
        entry.payoff, entry.cost, entry.worth = verdict.payoff, verdict.cost, verdict.utility
        entry.schedule = dict(verdict.schedule or {}) if verdict.admitted else {}
        entry.told = _same_verdict(before, entry)
        self._stale = True

    def _measure(
        self,
        snapshot: Snapshot,
        seen: Mapping[str, Seen],
        entry: Commitment,
        hint: Hint,
        before: Commitment | None,
    ) -> str:
        """Work, width and worth of the job; why it cannot be put to a scheme, or the empty string."""
        world, slot_s, there = self._world, self.options.slot_s, seen[entry.key]
        assert world is not None
        try:
            parse_utility(entry.utility, slot_s, self._own)
        except UsageError as error:
            return str(error)
        entry.task_s = self._task_s(snapshot, there.row)
        if math.isnan(entry.task_s):
            return "it has no time limit, and none of its kind has ended: how long it runs is not known"
        most = fits(world.servers.workers, world.demand(entry.cores, entry.memory_bytes_per_core))
        if most < 1:
            return (
                "it takes more than any one node holds"
                if not world.whole
                else "it takes more than the whole cluster holds"
            )
        tasks = there.waiting + len(there.running) if entry.array else 1
        if entry.array:
            entry.own_throttle = own_throttle_of(snapshot, there)
            if before is not None and entry.own_throttle in (before.throttled, before.wished_tasks):
                entry.own_throttle, entry.throttled = before.own_throttle, before.throttled
        if hint.parameter_servers:
            served = self._measure_servers(snapshot, seen, entry, hint)
            if isinstance(served, str):
                return served
            most = min(most, served)
        bounds = [tasks, most, hint.workers or tasks, entry.own_throttle or tasks]
        entry.most_workers = max(1, min(bounds))
        entry.work = self._work_left(snapshot, entry, there)
        return ""

    def _measure_servers(
        self, snapshot: Snapshot, seen: Mapping[str, Seen], entry: Commitment, hint: Hint
    ) -> int | str:
        """What the companion's tasks take, and how many workers they can serve at one time; a text where none."""
        world, jobs, name = self._world, snapshot.jobs, shown(hint.parameter_servers)
        assert world is not None
        capacity = world.servers.parameter_servers
        if not len(capacity):
            return "it wants parameter servers (ps=…); no node here is named for them, and no share of nodes set aside"
        if not entry.array:
            return "parameter servers (ps=…) are for arrays, and it is none"
        key = next((key for key, workers in self._claimed.items() if workers == entry.key), "")
        if not key:
            entry.lacks_servers = True
            return (
                f"its parameter servers, the array {name} of the same user, were not there within "
                f"{self.options.ps_patience_s:.0f} s"
            )
        there = seen[key]
        entry.companion, entry.workers_per_server = key, hint.workers_per_server
        entry.server_cores = int(jobs.cores[there.any_row])
        entry.server_memory_bytes_per_core = float(np.nan_to_num(jobs.memory_bytes_per_core[there.any_row]))
        room = fits(capacity, world.demand(entry.server_cores, entry.server_memory_bytes_per_core))
        mate = self._jobs.get(key)
        own = own_throttle_of(snapshot, there) if mate is None else mate.own_throttle
        tasks = there.waiting + len(there.running)
        served = math.floor(min(room, tasks, own or tasks) * hint.workers_per_server + 1e-9)
        return served if served else "not one of its parameter servers (ps=…) fits where they may stand"

    def _work_left(self, snapshot: Snapshot, entry: Commitment, there: Seen) -> int:
        """Worker-slots of the waiting and of the running tasks, as long as tasks are expected to run now."""
        task_s = self._task_s(snapshot, there.any_row)
        if math.isnan(task_s):
            task_s = entry.task_s
        left_s = task_s * (there.waiting if entry.array else 1 if there.row >= 0 else 0)
        started = snapshot.jobs.start_s[there.running]
        ran_s = snapshot.time_s - started
        left_s += float(np.maximum(task_s - ran_s, 0.0).sum())
        return max(1, math.ceil(left_s / self.options.slot_s - 1e-6))

    def _elastic(self, entry: Commitment) -> ElasticJob:
        """The job as schemes know it."""
        world, slot_s = self._world, self.options.slot_s
        assert world is not None
        demand = world.demand(entry.cores, entry.memory_bytes_per_core)
        served = entry.workers_per_server if entry.companion else 0.0
        late = (entry.deadline_s / slot_s - entry.arrival) if math.isfinite(entry.deadline_s) else math.inf
        utility = OfSubmission(
            parse_utility(entry.utility, slot_s, self._own),
            entry.arrival - entry.submit_s / slot_s,
            math.inf if entry.by_rule else self.options.most_worth,
            late,
        )
        return ElasticJob(
            name=entry.key,
            arrival=entry.arrival,
            worker=demand,
            server=world.demand(entry.server_cores, entry.server_memory_bytes_per_core),
            worker_bandwidth=1.0 if served else 0.0,
            server_bandwidth=served,
            most_workers=entry.most_workers,
            work=entry.work,
            utility=utility,
            target_slots=target_slots(utility, self.options.horizon),
            fixed_workers=entry.most_workers,
            rigid=not entry.array,
        )

    # ------------------------------------------------------------------------------------------------ plan and facts

    def _occupy(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int, asked: Sequence[str]) -> None:
        """Tell a scheme that plans ahead what others hold.

        What runs of an array that is about to be asked for is work of its plan to come, and held by nobody else.
        """
        occupy = getattr(self._scheme, "occupy", None)
        world, slot_s, horizon = self._world, self.options.slot_s, self.options.horizon
        if occupy is None or world is None:
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
                task_s = self._task_s(snapshot, there.running[0])
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
            occupy(slot, self._used, self._used_beside)
        else:
            occupy(slot, self._used)

    def _keep_plans(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> None:
        """A new slot: release what is done or started, extend what is late. In the order of arrival."""
        extend = getattr(self._scheme, "extend", None)
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if there is None or entry.state != "admitted" or entry.beside or extend is None:
                continue
            if there.row < 0:
                continue
            if not entry.array and entry.next_slot(0) is not None and slot >= min(entry.schedule):
                entry.turn_came = True
            left, planned = self._work_left(snapshot, entry, there), entry.planned(slot)
            if left > planned:
                more = extend(entry.number, slot, left - planned)
                past = {at: there for at, there in entry.schedule.items() if at < slot}
                entry.schedule = past | dict(more)
                self.changed = True

    def _widths(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> Mapping[int, Allotment]:
        """Who has what in this slot."""
        assert self._scheme is not None
        extend = hasattr(self._scheme, "extend")
        left: dict[int, int] = {}
        for key, entry in self._jobs.items():
            there = seen.get(key)
            if entry.state != "admitted" or entry.beside or there is None:
                continue
            if there.row < 0 and extend:
                # nothing of it waits: what still runs counts as held, and its plan is free
                self._leave(entry, slot)
                entry.state = "ended"
                self.changed = self._stale = True
                continue
            left[entry.number] = self._work_left(snapshot, entry, there)
        if self._stale or self._allotted is None or self._allotted[0] != slot:
            self._allotted = slot, self._scheme.allot(slot, left)
            self._stale = False
        return self._allotted[1]

    # --------------------------------------------------------------------------------------------------- companions

    def _companions(self, snapshot: Snapshot, seen: Mapping[str, Seen]) -> dict[str, str]:
        """Arrays whose tasks are parameter servers → the workers that name them.

        By number or by name, of the same user; none that names parameter servers itself. Of several of one name each
        array of workers has its own, in the order of their submission.
        """
        jobs = snapshot.jobs
        wanted: list[tuple[float, str, str]] = []
        found: dict[str, str] = {}
        for key, there in seen.items():
            entry, text = self._jobs.get(key), snapshot.hints.get(there.any_row, "")
            if entry is not None and entry.companion in seen:
                found[entry.companion] = key
            elif there.array >= 0 and "ps" in text and (entry is None or not entry.beside):
                try:
                    name = read_hint(text).parameter_servers
                except ValueError:
                    continue
                if name:
                    wanted.append((float(jobs.submit_s[there.any_row]), key, name))
        if not wanted:
            return found
        workers = {key for _, key, _ in wanted} | set(found.values())
        named: dict[tuple[int, str], list[str]] = {}
        arrays = [(key, there.any_row) for key, there in seen.items() if there.array >= 0]
        for key, row in sorted(arrays, key=lambda one: (float(jobs.submit_s[one[1]]), one[0])):
            if key in workers or not can_start(snapshot, seen[key], self._jobs.get(key)):
                continue
            user = int(jobs.user[row])
            for name in {key, name_of(self._application(snapshot, row))}:
                named.setdefault((user, name), []).append(key)
        for _, key, name in sorted(wanted):
            user = int(jobs.user[seen[key].any_row])
            mate = next((one for one in named.get((user, name), ()) if one not in found), None)
            if mate is not None:
                found[mate] = key
        return found

    def _lacks_servers(self, snapshot: Snapshot, seen: Mapping[str, Seen], key: str) -> bool:
        """It is an array that could have parameter servers here, and its companion is not there."""
        world = self._world
        possible = world is not None and len(world.servers.parameter_servers) > 0 and seen[key].array >= 0
        return possible and key not in self._claimed.values()

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
                workers.companion, self.changed = mate, True
            entry = self._jobs.get(mate)
            if entry is None or entry.beside != key:
                entry = self._take_in(snapshot, seen[mate], mate, workers, slot)
            state = "admitted" if workers.state == "ended" else workers.state
            verdict = "admitted" if state == "admitted" else "not admitted"
            reason = f"its tasks are the parameter servers of {key}, which is {verdict}"
            if (entry.state, entry.reason) != (state, reason):
                # who was admitted for itself need not be told again
                entry.told = entry.told and entry.state == state
                entry.state, entry.reason, self.changed = state, reason, True
            plan = {at: there for at, there in workers.schedule.items() if there.width and at >= slot}
            if plan.keys() != entry.schedule.keys() or any(
                entry.width(at) != self._servers_for(workers, there.width) for at, there in plan.items()
            ):
                entry.schedule = {
                    at: _only(self._servers_for(workers, there.width)) for at, there in plan.items()
                }
                self.changed = True

    def _take_in(
        self, snapshot: Snapshot, there: Seen, mate: str, workers: Commitment, slot: int
    ) -> Commitment:
        """A new companion; what had been planned for it as a job of its own is free."""
        jobs, row = snapshot.jobs, there.any_row
        before = self._jobs.pop(mate, None)
        entry = Commitment(
            key=mate,
            number=self._next,
            state="ended",
            hint=snapshot.hints.get(row, ""),
            utility="",
            by_rule=False,
            reason="",
            submit_s=float(jobs.submit_s[row]),
            arrival=slot,
            cores=int(jobs.cores[row]),
            memory_bytes_per_core=float(np.nan_to_num(jobs.memory_bytes_per_core[row])),
            deadline_s=float(jobs.deadline_s[row]),
            array=True,
            beside=workers.key,
            own_throttle=own_throttle_of(snapshot, there),
            asked_at=self._endings,
            row=row,
        )
        if before is not None:
            self._of_number.pop(before.number, None)
            self._leave(before, slot)
            self._stale = True
            entry.state = "admitted" if before.state == "released" else before.state
            entry.told = before.told
            for name in ("own_throttle", "throttled", "wished_tasks", "deferred_s", "wished_s", "let_go"):
                setattr(entry, name, getattr(before, name))
        self._next += 1
        self._jobs[mate] = entry
        self._of_number[entry.number] = mate
        return entry

    def _servers_for(self, workers: Commitment, width: int) -> int:
        """Parameter servers for so many workers (constraints 6 and 7), as many as the user of the companion allows."""
        return math.ceil(width / workers.workers_per_server - 1e-9)

    def _width_now(
        self, entry: Commitment, seen: Mapping[str, Seen], slot: int, widths: Mapping[int, Allotment]
    ) -> int:
        """Tasks that the array, or the rigid job, has in this slot."""
        if not entry.beside:
            return widths[entry.number].width if entry.number in widths else 0
        workers = self._jobs[entry.beside]
        if workers.state == "ended":  # no plan any more: those that run are served to their end
            return self._servers_for(workers, len(seen[workers.key].running))
        there = widths.get(workers.number)
        return 0 if there is None else self._servers_for(workers, there.width)

    def _release(self, there: Seen, entry: Commitment) -> None:
        """The workers are gone: the companion is given back as it was."""
        entry.schedule = {}
        if entry.state == "admitted" and there.row >= 0:
            entry.state = "released"
        elif entry.state != "released" or there.row < 0:
            self._jobs.pop(entry.key)
            self._of_number.pop(entry.number, None)
        self.changed = True

    def _give_back(self, snapshot: Snapshot, entry: Commitment, there: Seen) -> list[Decision]:
        """Its own begin time and throttle; nothing once it has them, and it is forgotten then."""
        begin_s, throttle = float(snapshot.jobs.begin_s[there.row]), throttle_of(snapshot, there)
        tasks = there.waiting + len(there.running)
        why = f"the workers that it served, {entry.beside}, have ended"
        decisions: list[Decision] = []
        if begin_s > snapshot.time_s and entry.defers(begin_s):
            decisions.append(Start(self._cause(entry, why), there.row))
        own = min(entry.own_throttle or tasks, tasks)
        if throttle in (entry.throttled, entry.wished_tasks) and min(throttle or tasks, tasks) != own:
            entry.wished_tasks, self.changed = own, True
            decisions.append(SetThrottle(self._cause(entry, why), there.row, own))
        if not decisions:
            # forgotten by the next `_forget`: what iterates over the jobs is not changed under its hands
            entry.state, entry.told = "ended", True
        return decisions

    # ---------------------------------------------------------------------------------------------------- steering

    def _steer(
        self,
        snapshot: Snapshot,
        entry: Commitment,
        there: Seen,
        slot: int,
        width: int,
    ) -> Iterator[Decision]:
        """What makes the cluster follow the plan of one job of which something waits; `width` is that of this slot."""
        if not entry.array and width:
            entry.turn_came = True
        turn = width > 0 or entry.turn_came
        jobs, now_s = snapshot.jobs, snapshot.time_s
        begin_s = float(jobs.begin_s[there.row])
        waits_s = begin_s if begin_s > now_s else math.nan
        self._accept(entry, waits_s, now_s)
        own = entry.defers(waits_s)
        limit_s = float(jobs.time_limit_s[there.row])
        until_s = math.nan if turn or entry.let_go else self._until_s(entry, slot, limit_s, now_s)
        coming = width
        if not math.isnan(until_s) and until_s > now_s + EXACT_S:
            if math.isnan(waits_s) or until_s > waits_s + EXACT_S or (own and until_s < waits_s - EXACT_S):
                if not abs(until_s - entry.wished_s) < EXACT_S:
                    entry.wished_s, self.changed = until_s, True
                detail: dict[str, Json] = {"until_s": until_s, "slot": slot}
                yield Defer(self._cause(entry, self._why_not_now(entry), detail), there.row, until_s)
            at = entry.next_slot(slot + 1)
            coming = 0 if at is None else entry.width(at)
        elif own:
            yield Start(self._cause(entry, "its slot has come", {"slot": slot}), there.row)
        if entry.array and coming > 0:
            throttle = throttle_of(snapshot, there)
            tasks = there.waiting + len(there.running)
            if throttle not in (entry.throttled, entry.wished_tasks, entry.own_throttle):
                entry.own_throttle = throttle  # changed by other hands
            wanted = min(coming, entry.own_throttle or coming)
            if min(wanted, tasks) != min(throttle or tasks, tasks):
                if entry.wished_tasks != wanted:
                    entry.wished_tasks, self.changed = wanted, True
                yield self._set_throttle(entry, there, wanted, slot)

    def _accept(self, entry: Commitment, waits_s: float, now_s: float) -> None:
        """Our deferral may have been taken back: by a restart, that is put right; by hand, it stays so."""
        if entry.deferred_s > now_s + EXACT_S:
            if math.isnan(waits_s):
                if entry.found_deferred:
                    entry.let_go = True
                entry.deferred_s = math.nan
                self.changed = True
            else:
                entry.found_deferred = True

    def _until_s(self, entry: Commitment, slot: int, limit_s: float, now_s: float) -> float:
        """When the next slot with workers begins, no later than a deferral may be; NaN if there is none."""
        slot_s = self.options.slot_s
        if entry.schedule or hasattr(self._scheme, "extend"):
            at = entry.next_slot(slot + 1)
            if at is None:
                return math.nan  # its plan is over and something still waits: whenever the cluster can
            until_s = at * slot_s
        else:
            until_s = (slot + 2) * slot_s  # the next slot decides, and may not come too late for it
        until_s = min(until_s, math.floor((now_s + self._most_defer_s) / slot_s) * slot_s)
        if math.isfinite(entry.deadline_s):
            needs_s = limit_s if math.isfinite(limit_s) else entry.task_s
            until_s = min(until_s, entry.deadline_s - needs_s)
        return until_s

    def _why_not_now(self, entry: Commitment) -> str:
        what = "its tasks have" if entry.array else "it has"
        return (
            f"{what} no place in this slot by its plan" if entry.schedule else f"{what} no place in this slot"
        )

    def _set_throttle(self, entry: Commitment, there: Seen, tasks: int, slot: int) -> SetThrottle:
        cause = self._cause(entry, f"its plan has {tasks} at one time", {"slot": slot})
        return SetThrottle(cause, there.row, tasks)

    def _verdict(self, entry: Commitment) -> Decision:
        cause = self._cause(entry, entry.reason, self._story(entry))
        return Admit(cause, entry.row) if entry.state == "admitted" else Decline(cause, entry.row)

    def _cause(self, entry: Commitment, reason: str, detail: Mapping[str, Json] | None = None) -> Cause:
        return Cause(self.name, reason, {"job": entry.key, **(detail or {})})

    # ----------------------------------------------------------------------------------------------------- telling

    def _story(self, entry: Commitment) -> dict[str, Json]:
        """The numbers behind a verdict, as plain data."""
        slot_s = self.options.slot_s
        plan = sorted((at, there.width) for at, there in entry.schedule.items() if there.width)
        story: dict[str, Json] = {
            "verdict": entry.state,
            "utility": entry.utility,
            "by_rule": entry.by_rule,
            "slot_s": slot_s,
            "arrival_s": entry.arrival * slot_s,
            "submit_s": _finite(entry.submit_s),
            "task_s": _finite(entry.task_s),
            "work": entry.work,
            "most_workers": entry.most_workers,
            "cores": entry.cores,
            "companion": entry.companion or None,
            "workers_per_server": _finite(entry.workers_per_server),
            "beside": entry.beside or None,
            "payoff": _finite(entry.payoff),
            "worth": _finite(entry.worth),
            "cost": _finite(entry.cost),
            "schedule": [[at * slot_s, width] for at, width in plan[:TOLD_SLOTS]],
            "end_s": (plan[-1][0] + 1) * slot_s if plan else None,
        }
        if entry.state != "admitted" and entry.cost > 0 and math.isfinite(entry.worth):
            # its cost is linear in prices, so at this part of them it would have paid
            story["let_in_at"] = max(0.0, entry.worth / entry.cost)
        return story

    def explain(self, job: str) -> dict[str, Json] | None:
        """What was said of a job (or of a task's array) and what is planned; None if it is not known."""
        entry = self._jobs.get(job) or self._jobs.get(job.partition("_")[0])
        if entry is None:
            return None
        slot = self._slot or 0
        return {
            "job": entry.key,
            "policy": self.name,
            "now_s": _finite(self._now_s),
            "reason": entry.reason,
            "hint": shown(entry.hint),
            **self._story(entry),
            "prices": self._prices(entry, slot),
            "deferred_s": _finite(entry.deferred_s),
            "throttle": entry.throttled if entry.throttled >= 0 else None,
            "next_s": _slot_start(entry.next_slot(slot), self.options.slot_s),
            "let_go": entry.let_go,
        }

    def _prices(self, entry: Commitment, slot: int) -> Json:
        """What one worker of the job costs now, by slot: least over the servers. None of schemes without prices."""
        ask = getattr(self._scheme, "worker_prices", None)
        if ask is None or self._world is None or entry.cores == 0 or entry.beside:
            return None
        demand = self._world.demand(entry.cores, entry.memory_bytes_per_core)
        prices = cast("Sequence[float]", ask(slot, demand))
        return [
            [(slot + ahead) * self.options.slot_s, _finite(price)]
            for ahead, price in enumerate(prices[:TOLD_SLOTS])
        ]

    def overview(self) -> dict[str, Json]:
        """All jobs that are known, and by slot what the plans and others hold of the cores."""
        slot_s, slot = self.options.slot_s, self._slot or 0
        capacity = 0.0
        if self._world is not None:
            servers = self._world.servers
            capacity = float(servers.workers[:, CORES].sum() + servers.parameter_servers[:, CORES].sum())
        planned: dict[int, int] = {}
        for entry in self._jobs.values():
            for at, there in entry.schedule.items():
                if at >= slot:
                    planned[at] = planned.get(at, 0) + there.width * entry.cores
        others = None if self._used is None else self._used[:, :, CORES].sum(axis=1)
        if others is not None and self._used_beside is not None:
            others = others + self._used_beside[:, :, CORES].sum(axis=1)
        last = max(planned, default=slot)
        ask = getattr(self._scheme, "core_prices", None)
        prices = None if ask is None else cast("Sequence[float]", ask(slot))
        slots: list[Json] = []
        for at in range(slot, min(last + 1, slot + TOLD_SLOTS)):
            ahead = at - slot
            slots.append(
                {
                    "start_s": at * slot_s,
                    "planned_cores": planned.get(at, 0),
                    "other_cores": None if others is None or ahead >= len(others) else _finite(others[ahead]),
                    "price": None if prices is None or ahead >= len(prices) else _finite(prices[ahead]),
                }
            )
        return {
            "policy": self.name,
            "now_s": _finite(self._now_s),
            "slot_s": slot_s,
            "horizon": self.options.horizon,
            "cores": capacity,
            "jobs": [
                {
                    "job": entry.key,
                    "verdict": entry.state,
                    "utility": entry.utility,
                    "reason": entry.reason,
                    "payoff": _finite(entry.payoff),
                    "workers": entry.width(slot) if entry.schedule else None,
                    "work": entry.work,
                    "next_s": _slot_start(entry.next_slot(slot), slot_s),
                    "end_s": (max(entry.schedule) + 1) * slot_s if entry.schedule else None,
                }
                for entry in self._jobs.values()
            ],
            "slots": slots,
        }

    # ---------------------------------------------------------------------------------------------------- knowledge

    def state(self) -> dict[str, dict[str, Json]]:
        """Everything that another process needs: commitments, by seat, and how long applications ran.

        Seats are used again, so that a store that only ever replaces entries holds no more than there were jobs at
        one time.
        """
        self.changed = False
        if self._kept is not None:  # nothing was seen yet
            return {name: dict(known) for name, known in self._kept.items()}
        taken = {key: number for number, key in enumerate(self._seats) if key is not None}
        for key in [key for key in taken if key not in self._jobs]:
            self._seats[taken.pop(key)] = None
        free = [number for number, key in enumerate(self._seats) if key is None]
        for key in self._jobs:
            if key not in taken:
                if not free:
                    free.append(len(self._seats))
                    self._seats.append(None)
                self._seats[free.pop(0)] = key
        told: dict[str, dict[str, Json]] = {
            name: {"runs": count, "run_s": total_s} for name, (count, total_s) in self._runs.items()
        }
        for number, holder in enumerate(self._seats):
            told[f"seat {number}"] = {} if holder is None else self._jobs[holder].to_json()
        scheme = getattr(self._scheme, "state", None)
        told["*"] = {
            "next": self._next,
            "slot_s": self.options.slot_s,
            "workers": list(self._world.worker_names) if self._world is not None else [],
            "servers": list(self._world.server_names) if self._world is not None else [],
            "scheme": scheme() if scheme is not None else None,
        }
        return told

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `state` told, as soon as the first snapshot is seen; what cannot be read is passed over."""
        self._kept = memory
        self._world = None

    def _restore(self, memory: Mapping[str, Mapping[str, Json]]) -> tuple[list[str], list[str]]:
        """Take over what was kept; the names of the worker and of the parameter servers of that time."""
        common = memory.get("*", {})
        same_slots = common.get("slot_s") == self.options.slot_s
        for name, known in memory.items():
            if name == "*":
                continue
            if not name.startswith("seat "):
                count, total_s = known.get("runs"), known.get("run_s")
                if _positive(count) and _positive(total_s):
                    self._runs.setdefault(name, (float(cast(float, count)), float(cast(float, total_s))))
                continue
            number = name.removeprefix("seat ")
            seat = int(number) if number.isdecimal() and len(number) < 8 else -1
            entry = commitment_from_json(known) if known and same_slots else None
            if seat < 0:
                continue
            while len(self._seats) <= seat:
                self._seats.append(None)
            if entry is None or entry.key in self._jobs or entry.number in self._of_number:
                continue
            if entry.state == "admitted" and not entry.beside:
                try:
                    parse_utility(entry.utility, self.options.slot_s, self._own)
                except UsageError:
                    continue  # a site's own kind that is gone
                entry.told = False  # whoever stopped may have taken it back
            self._seats[seat] = entry.key
            self._jobs[entry.key] = entry
            self._of_number[entry.number] = entry.key
        following = common.get("next")
        highest = max(self._of_number, default=0) + 1
        self._next = max(highest, following if isinstance(following, int) else 1, self._next)
        restore = getattr(self._scheme, "restore", None)
        kept = common.get("scheme")
        if restore is not None and isinstance(kept, dict):
            restore(kept)
        names = common.get("workers"), common.get("servers")
        workers, servers = ([str(name) for name in one] if isinstance(one, list) else [] for one in names)
        return workers, servers


def _only(tasks: int) -> Allotment:
    """So many tasks, wherever they stand."""
    none = np.zeros(0, np.int32)
    return Allotment(np.zeros(1, np.int32), np.array([tasks], np.int32), none, none)


def _same_verdict(before: Commitment | None, now: Commitment) -> bool:
    """Has the user been told just this already?"""
    return before is not None and before.told and (before.state, before.reason) == (now.state, now.reason)


def _slot_start(slot: int | None, slot_s: float) -> float | None:
    return None if slot is None else slot * slot_s


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _positive(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf

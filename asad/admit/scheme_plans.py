"""The scheme over the slots of a cluster: made for its machine, shown what others hold, its plans held to the facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from asad.admit import admission_report
from asad.admit.admission_options import Options
from asad.admit.commitment_book import CommitmentBook
from asad.admit.commitments import Commitment, renumbered
from asad.admit.elastic import Allotment, PlansAhead, Scheme, Servers
from asad.admit.job_size import Measures
from asad.admit.seen import Seen
from asad.admit.slot_servers import CORES, Claims, World, held_by_others, wanted, world_of
from asad.admit.utility import Maker
from asad.hold import Terms, plain
from asad.model import Floats, Json, Machine, Snapshot, Tres, no_tres

Make = Callable[[Servers, int], Scheme]
"""A new scheme over servers, that plans so many slots ahead."""


class SchemePlans:
    """What a scheme plans for the jobs of a book."""

    def __init__(
        self,
        name: str,
        make: Make,
        options: Options,
        book: CommitmentBook,
        own_utilities: Mapping[str, Maker],
        most_defer_s: float,
    ) -> None:
        self._name, self.make, self.options, self.book = name, make, options, book
        self.own_utilities, self._most_defer_s = own_utilities, most_defer_s
        self.machine: Machine | None = None
        self._tres = no_tres()
        self._counted: set[str] = set()
        """Trackable resources that some job wanted which was asked for."""
        self.world: World | None = None
        self.scheme: Scheme | None = None
        self.allotted: tuple[int, Mapping[int, Allotment]] | None = None
        self.stale = True
        """Somebody came or went since `allotted`."""
        self.used: Floats | None = None
        self.used_beside: Floats | None = None

    def slot_of(self, time_s: float) -> int:
        """The slot in which that time is."""
        return math.floor(time_s / self.options.slot_s)

    def begin(self, snapshot: Snapshot) -> None:
        """Servers and scheme as of this machine; on another one (or in a new process) all plans are taken over."""
        world, machine = self.world, snapshot.machine
        tres, same = snapshot.tres, self.machine is not None and _same(machine, self.machine)
        if world is not None and same and (tres is self._tres or self._same_tres(tres)):
            self._tres = tres
            return
        self.machine, self._tres = machine, tres
        options, common = self.options, None
        if self.book.kept is not None:
            common = self.book.take_over(self.book.kept)
        for entry in self.book.jobs.values():
            self._counted |= entry.tres.keys() | entry.server_tres.keys()
        new = world_of(
            machine,
            options.parameter_server_nodes,
            options.whole,
            options.server_share,
            tres,
            self._counted,
        )
        self.world = new
        self.sizes = Measures(new, options, self.own_utilities, self.book.run_times)
        learned = self.learned()
        self.scheme = self.make(new.servers, options.horizon)
        self.ahead = self.scheme if isinstance(self.scheme, PlansAhead) else None
        self.terms = Terms(self._name, options.slot_s, self._most_defer_s, self.ahead is not None)
        self.stale, self.allotted = True, None
        before = (world.worker_names, world.server_names) if world is not None else ([], [])
        if common is not None:
            before = _names(common.get("workers")), _names(common.get("servers"))
            self.learn_again(common.get("scheme"))
        else:
            self.learn_again(learned)
        slot = self.slot_of(snapshot.time_s)
        for entry in sorted(self.book.jobs.values(), key=lambda entry: entry.number):
            if entry.state != "admitted" or entry.beside:
                continue
            if before != (new.worker_names, new.server_names):
                entry.schedule = renumbered(
                    entry.schedule, before[0], new.worker_names, before[1], new.server_names
                )
            self.take_up(entry, slot)

    def count(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        """The jobs in these rows are about to be asked for: what they want has prices from now on."""
        new = {name for row in rows for name in wanted(snapshot.tres, row)} - self._counted
        if new:
            self._counted |= new
            self.machine = None
            self.begin(snapshot)

    def _same_tres(self, tres: Tres) -> bool:
        """Does the cluster have as much as before of what is counted?"""
        return all(_amounts_of(tres, name) == _amounts_of(self._tres, name) for name in self._counted)

    def learned(self) -> Json:
        """What the scheme has learned of the jobs that it met; None if it learns nothing."""
        state = getattr(self.scheme, "state", None)
        return None if state is None else cast(Json, state())

    def learn_again(self, learned: Json) -> None:
        """The scheme knows again what `_learned` described of it."""
        restore = getattr(self.scheme, "restore", None)
        if restore is not None and isinstance(learned, dict):
            restore(learned)

    def take_up(self, entry: Commitment, slot: int) -> None:
        """The scheme knows the job again."""
        assert self.scheme is not None
        job = self.sizes.elastic(entry)
        if self.ahead is None:
            self.scheme.arrive(entry.number, job)
        else:
            ahead = {at: there for at, there in entry.schedule.items() if at >= slot}
            self.ahead.resume(entry.number, job, ahead)

    def leave(self, entry: Commitment, slot: int) -> None:
        """Its plan from `slot` on is free."""
        if entry.state == "admitted" and self.ahead is not None and not entry.beside:
            self.ahead.leave(entry.number, slot)
        entry.schedule = {at: there for at, there in entry.schedule.items() if at < slot}

    def occupy(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int, asked: Sequence[str]) -> None:
        """Give a scheme that plans ahead what others hold.

        What runs of an array that is about to be asked for is work of its plan to come, and held by nobody else.
        """
        world, slot_s, horizon = self.world, self.options.slot_s, self.options.horizon
        if self.ahead is None or world is None:
            return
        jobs = snapshot.jobs
        count = len(jobs.job_id)
        ours, beside = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        group = np.full(count, -1, np.int32)
        planned: dict[int, Mapping[int, int]] = {}
        end_s = jobs.limit_end_s.copy()
        for key, entry in self.book.jobs.items():
            there = seen.get(key)
            if there is None or entry.state not in ("admitted", "ended"):
                continue
            if there.row >= 0:
                ours[there.row] = True
            beside[there.running] = entry.beside != ""
            if there.running:
                task_s = self.book.run_times.task_s(snapshot, there.running[0])
                rows = np.array(there.running)
                expected_s = np.maximum(jobs.start_s[rows] + task_s, snapshot.time_s + slot_s / 2)
                end_s[rows] = np.fmin(end_s[rows], expected_s)
            if entry.array and there.running and entry.state == "admitted":
                group[there.running] = entry.number
                planned[entry.number] = {
                    at: there.width for at, there in entry.schedule.items() if at >= slot
                }
        for number, key in enumerate(asked, self.book.next):
            running = seen[key].running
            if seen[key].array >= 0 and running:
                group[running] = number
                planned[number] = dict.fromkeys(range(slot, slot + horizon), len(running))
        claims = Claims(ours, group, beside, planned)
        self.used, self.used_beside = held_by_others(snapshot, world, slot, horizon, slot_s, end_s, claims)
        if len(world.servers.parameter_servers):
            self.ahead.occupy(slot, self.used, self.used_beside)
        else:
            self.ahead.occupy(slot, self.used)

    def follow_facts(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> None:
        """A new slot: release what is done or started, extend what is late. In the order of arrival."""
        if self.ahead is None:
            return
        for key, entry in self.book.jobs.items():
            there = seen.get(key)
            if there is None or there.row < 0 or entry.state != "admitted" or entry.beside:
                continue
            if not entry.array and entry.next_slot(0) is not None and slot >= min(entry.schedule):
                entry.turn_came = True
            left = self.sizes.work_left(snapshot, entry, there)
            planned = entry.planned(slot)
            if self.options.early and entry.array and left < planned:
                self._trim(entry, slot, planned - left)
            if left > planned:
                more = self.ahead.extend(entry.number, slot, left - planned)
                past = {at: there for at, there in entry.schedule.items() if at < slot}
                entry.schedule = past | dict(more)
                self.book.changed = True

    def widths(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> Mapping[int, Allotment]:
        """Who has what in this slot."""
        assert self.scheme is not None
        left: dict[int, int] = {}
        for key, entry in self.book.jobs.items():
            there = seen.get(key)
            if entry.state != "admitted" or entry.beside or there is None:
                continue
            if there.row < 0 and self.ahead is not None:
                # nothing of it waits: what still runs counts as held, and its plan is free
                self.leave(entry, slot)
                entry.state = "ended"
                self.book.changed = self.stale = True
                continue
            left[entry.number] = self.sizes.work_left(snapshot, entry, there)
        if self.stale or self.allotted is None or self.allotted[0] != slot:
            self.allotted = slot, self.scheme.allot(slot, left)
            self.stale = False
        return self.allotted[1]

    def _trim(self, entry: Commitment, slot: int, surplus: int) -> None:
        """Its last slots are free again: so much of its work was done before they have come."""
        assert self.ahead is not None
        for at in sorted(entry.schedule, reverse=True):
            surplus -= entry.width(at)
            if at <= slot or surplus < 0:
                break
            del entry.schedule[at]
            self.book.changed = self.stale = True
        self.take_up(entry, slot)

    def early(self, snapshot: Snapshot, seen: Mapping[str, Seen], slot: int) -> dict[int, int]:
        """Tasks at one time that admitted jobs can have in this slot beyond their plans, by number.

        No more than what jobs without a plan hold, since that was never there to be planned and mostly falls free
        sooner than their limits say; what no plan wants although it is free waits for those who come. And only
        where the plans of all others, and what of them runs beyond its plan, leave room for as long as a task runs.
        Who arrived first is served first. Until cores fall free these jobs only wait in the queue, as without a plan.
        """
        world = self.world
        if world is None or self.ahead is None or not self.options.early or self.used is None:
            return {}
        unplanned = np.where(world.servers.is_shared, self.used[0].max(axis=0), self.used[0].sum(axis=0))
        held = np.zeros((self.options.horizon, world.resources))
        mine: list[tuple[Commitment, Seen, Floats, Floats]] = []
        for key, entry in self.book.jobs.items():
            there = seen.get(key)
            if there is None or entry.beside or entry.state not in ("admitted", "ended"):
                continue
            demand = world.demand(entry.cores, entry.memory_bytes_per_core, entry.tres)
            takes = np.zeros(self.options.horizon)
            for at, planned in entry.schedule.items():
                if 0 <= at - slot < len(takes):
                    takes[at - slot] = planned.width
            tasks = np.maximum(takes[: self._slots(snapshot, entry, there)], len(there.running))
            takes[: len(tasks)] = tasks
            own = takes[:, None] * demand
            held += own
            if entry.state == "admitted" and there.row >= 0 and not entry.companion:
                mine.append((entry, there, demand, own))
        total = world.servers.total(world.servers.workers)
        found: dict[int, int] = {}
        for entry, there, demand, own in sorted(mine, key=lambda one: one[0].number):
            slots = self._slots(snapshot, entry, there)
            room = (total - held[:slots] + own[:slots]).min(axis=0)
            wants, now = demand > 0, entry.width(slot)
            beyond, most = (
                np.floor((free[wants] + 1e-9) / demand[wants]).min(initial=np.inf)
                for free in (unplanned, room)
            )
            width = int(min(now + beyond, most, entry.most_workers, there.tasks))
            if width > now:
                found[entry.number] = width
                held[:slots] += max(0, width - max(now, len(there.running))) * demand
        return found

    def _slots(self, snapshot: Snapshot, entry: Commitment, there: Seen) -> int:
        """That a task of it runs."""
        task_s = self.book.run_times.task_s(snapshot, there.any_row)
        return max(1, math.ceil((entry.task_s if math.isnan(task_s) else task_s) / self.options.slot_s))

    def prices(self, entry: Commitment, slot: int) -> Json:
        """What one worker of the job costs now, by slot: least over the servers. None of schemes without prices."""
        ask = getattr(self.scheme, "worker_prices", None)
        if ask is None or self.world is None or entry.cores == 0 or entry.beside:
            return None
        demand = self.world.demand(entry.cores, entry.memory_bytes_per_core, entry.tres)
        prices = cast("Sequence[float]", ask(slot, demand))
        return admission_report.prices_by_slot(prices, slot, self.options.slot_s)

    def cores(self, slot: int) -> tuple[float, list[float] | None, Sequence[float] | None]:
        """Cores of all servers, and by slot from that one on what others hold of them and what a core costs."""
        capacity = 0.0
        if self.world is not None:
            servers = self.world.servers
            capacity = float(servers.workers[:, CORES].sum() + servers.parameter_servers[:, CORES].sum())
        others = None if self.used is None else self.used[:, :, CORES].sum(axis=1)
        if others is not None and self.used_beside is not None:
            others = others + self.used_beside[:, :, CORES].sum(axis=1)
        ask = getattr(self.scheme, "core_prices", None)
        prices = None if ask is None else cast("Sequence[float]", ask(slot))
        return capacity, None if others is None else others.tolist(), prices

    def unit_prices(self, slot: int) -> dict[str, Json] | None:
        """What a unit of each resource costs now; None of schemes without prices."""
        ask = getattr(self.scheme, "unit_prices", None)
        return None if ask is None else {name: plain(price) for name, price in ask(slot).items()}

    def to_json(self) -> dict[str, Json]:
        """What the plans in the book count in, and what the scheme has learned."""
        return {
            "workers": list(self.world.worker_names) if self.world is not None else [],
            "servers": list(self.world.server_names) if self.world is not None else [],
            "scheme": self.learned(),
        }


def _names(kept: Json) -> list[str]:
    return [str(name) for name in kept] if isinstance(kept, list) else []


def _amounts_of(tres: Tres, name: str) -> list[float] | None:
    """Of each node, then of the cluster; None where it is not counted."""
    if name not in tres.names:
        return None
    at = tres.names.index(name)
    amounts: list[float] = [*tres.nodes[:, at].tolist(), float(tres.cluster[at])]
    return amounts


def _same(machine: Machine, other: Machine) -> bool:
    """The same nodes, of the same sizes?"""
    return machine is other or (
        machine.node_names == other.node_names
        and np.array_equal(machine.cores, other.cores)
        and np.array_equal(machine.memory_bytes, other.memory_bytes, equal_nan=True)
    )

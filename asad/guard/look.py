"""What a property of the guard is, and what it looks at: a snapshot, and what the cycle has allowed so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from asad.capacity import cores_of, peaks
from asad.config import GuardSettings
from asad.decisions import (
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    ExtendLimit,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.ineligible import NodeIneligible
from asad.model import Floats, Ints, Json, Snapshot

D = TypeVar("D", bound=Decision)
TOLERANCE = 1e-6
ADMISSION = (Admit, Decline, Defer, Start, SetThrottle)
"""Decisions of the admit stage; of the defer stage Defer and Start."""
CHANGES = {
    "admit": "whether it is admitted",
    "decline": "whether it is admitted",
    "defer": "when it starts",
    "start": "when it starts",
    "set-throttle": "its throttle",
}
"""What a decision of that kind changes of a job."""


@dataclass
class Look:
    """What a property looks at: a snapshot, the settings, and what was allowed before in the same cycle."""

    snapshot: Snapshot
    settings: GuardSettings
    allowed: list[Decision] = field(default_factory=list)
    memory_loss: float = 0.0
    """Part of its pace that a memory-bound host loses beside a memory-bound guest, as it was calibrated."""
    consents: Mapping[str, str] = field(default_factory=dict)
    """By number of a job: how its owner agreed to its eviction, out of `EVICTIONS`."""
    asked: Sequence[Decision] = ()
    """All decisions of the cycle, whether they are allowed or not."""
    poll_s: float = 30.0
    """From the beginning of one cycle to that of the next."""
    done: dict[tuple[str, int], str] = field(default_factory=dict)
    """What of whom is changed in this cycle already, and by which kind of decision."""
    promised: dict[int, float] = field(default_factory=dict)
    """By node: cores' worth of CPU that offers of this cycle take."""
    memory_promised: dict[int, float] = field(default_factory=dict)
    """By node: bytes that guests which are offered a place in this cycle will hold, at the worst split."""

    def allow(self, decision: Decision) -> None:
        """It is done: what it changes and promises counts from here on."""
        self.allowed.append(decision)
        change = changes(decision)
        if change[0]:
            self.done.setdefault(change, decision.kind)
        if isinstance(decision, CoAllocate):
            jobs, guest, nodes = self.snapshot.jobs, decision.guest, decision.nodes
            # how the cluster will split a gang is not known here: every node may get the largest part
            each = -(-int(jobs.cores[guest]) // max(1, len(nodes))) * float(jobs.memory_bytes_per_core[guest])
            for node in nodes:
                self.memory_promised[node] = self.memory_promised.get(node, 0.0) + each
            for node, demand in zip(nodes, decision.demands, strict=False):
                self.promised[node] = self.promised.get(node, 0.0) + demand

    @cached_property
    def first(self) -> Ints:
        """(N + 1,) first core of each node."""
        return self.snapshot.machine.first_core

    @cached_property
    def places(self) -> frozenset[tuple[int, int]]:
        """(node, guest) for every guest on every node it is on."""
        cores = np.flatnonzero(self.snapshot.core_guest >= 0)
        nodes = np.searchsorted(self.first, cores, side="right") - 1
        return frozenset(zip(nodes.tolist(), self.snapshot.core_guest[cores].tolist(), strict=True))

    @cached_property
    def guests_on(self) -> dict[int, list[int]]:
        """Node → the guests on it."""
        found: dict[int, list[int]] = {}
        for node, guest in sorted(self.places):
            found.setdefault(node, []).append(guest)
        return found

    @cached_property
    def nodes_of(self) -> dict[int, list[int]]:
        """Guest → the nodes it is on."""
        found: dict[int, list[int]] = {}
        for node, guest in sorted(self.places):
            found.setdefault(guest, []).append(node)
        return found

    @cached_property
    def sharing(self) -> frozenset[int]:
        """Guests beside a host, and their hosts."""
        snapshot = self.snapshot
        found: set[int] = set(snapshot.guests.tolist())
        for node in self.guests_on:
            found.update(self.jobs_on(node))
        return frozenset(found - {-1})

    def jobs_on(self, node: int) -> list[int]:
        """Batch jobs and guests of a node."""
        cores = slice(self.first[node], self.first[node + 1])
        there = {*self.snapshot.core_owner[cores].tolist(), *self.snapshot.core_guest[cores].tolist()}
        return sorted(there - {-1})

    def beside(self, decision: CoAllocate) -> list[int]:
        """With whom a guest would share its nodes: of a pair its host, else whoever is there or is offered a place in
        this cycle."""
        if not decision.pooled:
            return [decision.host]
        snapshot = self.snapshot
        cores, _ = cores_of(self.first, np.array(decision.nodes, np.int32))
        there = np.unique(np.concatenate((snapshot.core_owner[cores], snapshot.core_guest[cores])))
        found = set(there[there >= 0].tolist())
        nodes = set(decision.nodes)
        # the snapshot shows no offer of this very cycle: two guests could meet who may not share
        for other in self.allowed:
            if isinstance(other, CoAllocate) and other.guest != decision.guest and nodes & set(other.nodes):
                found.add(other.guest)
        return sorted(found)

    @cached_property
    def usual_use(self) -> float:
        """Mean use of a held core, 1 where nobody has been measured."""
        running = self.snapshot.running
        use, cores = self.snapshot.jobs.cpu_fraction[running], self.snapshot.jobs.cores[running]
        known = ~np.isnan(use)
        return float((use * cores)[known].sum() / cores[known].sum()) if known.any() else 1.0

    @cached_property
    def asked_nodes(self) -> Ints:
        """(M,) the nodes of all offers of the cycle."""
        offers = [decision for decision in self.asked if isinstance(decision, CoAllocate)]
        return np.array(sorted({node for offer in offers for node in offer.nodes}), np.int32)

    @cached_property
    def asked_cores(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Of every core of those nodes: its number, and the place of its node in `asked_nodes`."""
        return cores_of(self.first, self.asked_nodes)

    def of_asked(self, amounts: NDArray[Any]) -> dict[int, float]:
        """By node: the sum of what there is on each of its cores, in the order of `asked_cores`."""
        sums = np.bincount(self.asked_cores[1], amounts, minlength=len(self.asked_nodes))
        return dict(zip(self.asked_nodes.tolist(), sums.tolist(), strict=True))

    @cached_property
    def open_cores(self) -> dict[int, float]:
        """Cores without a guest of each of those nodes."""
        return self.of_asked(self.snapshot.core_guest[self.asked_cores[0]] < 0)

    @cached_property
    def pools(self) -> dict[int, float]:
        """Cores' worth of CPU that guests could still take of each of those nodes; who has not been measured lends
        nothing."""
        snapshot, jobs, headroom = self.snapshot, self.snapshot.jobs, self.settings.host_floor
        nodes, (cores, at) = self.asked_nodes, self.asked_cores
        owner, guest, peak = snapshot.core_owner[cores], snapshot.core_guest[cores], self._peaks[cores]
        lends = (owner >= 0) & (jobs.host_bar[owner] == 0)
        left = np.where(lends, np.maximum(0.0, 1.0 - np.nan_to_num(peak, nan=1.0) - headroom), 0.0)
        if snapshot.lends_free_cores:
            left = np.where(owner < 0, max(0.0, 1.0 - self.usual_use - headroom), left)
        demand = np.where(np.isnan(jobs.cpu_fraction[guest]), jobs.demand[guest], jobs.cpu_fraction[guest])
        pace = jobs.pace[guest]
        takes = np.where(np.isnan(demand), 1.0, demand) * np.where(np.isnan(pace), 1.0, pace)
        closed = snapshot.node_bar[nodes] != 0
        if snapshot.whole_nodes:
            host = snapshot.core_owner[self.first[nodes]]
            closed |= (np.bincount(at, owner != host[at], minlength=len(nodes)) > 0) | (host < 0)
        return self.of_asked(np.where(closed[at], 0.0, left - np.where(guest >= 0, takes, 0.0)))

    def assumed_of(self, node: int, assumed: Mapping[str, Json]) -> float:
        """What hosts of a node that have not been measured leave beside headroom, by the 95th percentiles of their use
        that are `assumed`, by number of the job."""
        snapshot, jobs = self.snapshot, self.snapshot.jobs
        cores = slice(self.first[node], self.first[node + 1])
        left = 0.0
        for row, use in zip(snapshot.core_owner[cores].tolist(), self._peaks[cores].tolist(), strict=True):
            known = assumed.get(str(jobs.job_id[row])) if row >= 0 and math.isnan(use) else None
            if isinstance(known, float) and not jobs.host_bar[row]:
                left += max(0.0, 1.0 - known - self.settings.host_floor)
        return left

    @cached_property
    def _peaks(self) -> Floats:
        return peaks(self.snapshot)

    @cached_property
    def one_group(self) -> bool:
        """May all jobs share with all others?"""
        return not self.snapshot.jobs.share_group.any()

    @cached_property
    def some_pressed(self) -> bool:
        """Does a running job wait for CPU, or report being late?"""
        jobs, running = self.snapshot.jobs, self.snapshot.running
        pressed = jobs.pressure[running] > self.settings.pressure
        return bool((pressed | (jobs.happiness[running] < self.settings.happiness_floor)).any())

    def most_on_a_node(self, job: int) -> int:
        """Cores that a running job holds on that of its nodes where it holds most; 0 for a guest or if none."""
        cores = np.flatnonzero(self.snapshot.core_owner == job)
        nodes = np.searchsorted(self.first, cores, side="right") - 1
        return int(np.bincount(nodes).max()) if len(nodes) else 0

    @cached_property
    def idle(self) -> int:
        """Cores without a batch job, on nodes that can start one."""
        usable = self.snapshot.node_bar != NodeIneligible.DOWN
        return int(
            np.count_nonzero(self.snapshot.core_owner[np.repeat(usable, self.snapshot.machine.cores)] < 0)
        )

    def start_cores(self, job: int) -> int:
        """Cores that a waiting job takes when it starts; of an array the tasks that its throttle lets run at once."""
        jobs, arrays = self.snapshot.jobs, self.snapshot.arrays
        array, tasks = int(jobs.array[job]), 1
        if array >= 0:
            tasks, throttle = int(arrays.waiting[array]), int(arrays.throttle[array])
            if throttle:
                tasks = min(tasks, max(1, throttle - int(arrays.running[array])))
        return tasks * int(jobs.cores[job])

    @cached_property
    def offered(self) -> list[int]:
        """Waiting jobs that have an offer."""
        queue = self.snapshot.queue
        return [int(row) for row in queue[~np.isnan(self.snapshot.jobs.offered_s[queue])]]


def changes(decision: Decision) -> tuple[str, int]:
    """What of whom a decision changes; the empty string for what may change more than once a cycle."""
    if isinstance(decision, ExtendLimit):
        return "its limit", decision.job
    if isinstance(decision, SetMemory):
        return "its memory limit", decision.job
    if isinstance(decision, SetShare) and decision.host >= 0:
        return "what it lends", decision.host
    if isinstance(decision, CoAllocate | SetShare | SetQuota | Withdraw):
        return "its lending", decision.guest
    if isinstance(decision, ADMISSION):
        return CHANGES[decision.kind], decision.job
    return "", -1


@dataclass(frozen=True, slots=True)
class Property:
    """A property of decisions of some `kinds`."""

    kinds: tuple[type[Decision], ...]
    why_not: Callable[[Look, Any], str]
    binds_all: bool
    """Does it bind every policy, or those alone that name it?"""

    @property
    def name(self) -> str:
        """By which policies, vetoes and metrics call it."""
        return self.why_not.__name__.replace("_", " ")


def of(*kinds: type[Decision], binds_all: bool = True) -> Callable[[Callable[[Look, D], str]], Property]:
    """A decorator: the function is a property that decisions of these kinds have to keep, and no others."""
    return lambda function: Property(kinds, function, binds_all)

"""The guard: named safety properties. It looks at every decision before it is done and vetoes, with the reason.

A policy is expected to keep these by itself; the guard is written apart from the policies, looks at the plain
snapshot, and has the last word. Each property is a function (look, decision) → why not, or the empty string. Those of
`ALWAYS` bind every policy, the others those that name them. `relieve` is the guard's own: what it takes back by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from asad.capacity import peaks
from asad.config import GuardSettings
from asad.decisions import (
    Admit,
    Cause,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Outcome,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.ineligible import OPTED_OUT, Ineligible, NodeIneligible
from asad.model import Floats, Ints, Json, Snapshot
from asad.place.components import read_components

REPLAY = GuardSettings(node_share_cap=math.inf, most_lease_s=math.inf)
"""Of a replay: its policies are compared with each other as they are, and a log knows no happiness and no pressure."""

TOLERANCE = 1e-6
LEAST_QUOTA = 0.05
"""Part of its cores that a guest keeps which gives way, so that it goes on."""


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
    _done: dict[tuple[str, int], str] = field(default_factory=dict)
    _counted: int = 0
    _promised: dict[int, float] = field(default_factory=dict)
    _memory_promised: dict[int, float] = field(default_factory=dict)
    _promised_of: int = 0

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

    @property
    def done(self) -> dict[tuple[str, int], str]:
        """What of whom is changed in this cycle already, and by which kind of decision."""
        while self._counted < len(self.allowed):
            decision = self.allowed[self._counted]
            change = _changes(decision)
            if change[0]:
                self._done.setdefault(change, decision.kind)
            self._counted += 1
        return self._done

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
        found = {job for node in decision.nodes for job in self.jobs_on(node)}
        nodes = set(decision.nodes)
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
        counts = self.snapshot.machine.cores[self.asked_nodes]
        at = np.repeat(np.arange(len(counts)), counts)
        before = np.cumsum(counts) - counts
        cores = np.repeat(self.first[self.asked_nodes] - before, counts) + np.arange(len(at))
        return cores.astype(np.intp), at

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
        """Does a running job wait for CPU, or tell of being late?"""
        jobs, running = self.snapshot.jobs, self.snapshot.running
        pressed = jobs.pressure[running] > self.settings.pressure
        return bool((pressed | (jobs.happiness[running] < self.settings.happiness_floor)).any())

    def _count_promised(self) -> None:
        while self._promised_of < len(self.allowed):
            other = self.allowed[self._promised_of]
            self._promised_of += 1
            if not isinstance(other, CoAllocate):
                continue
            jobs = self.snapshot.jobs
            each = -(-int(jobs.cores[other.guest]) // len(other.nodes)) * float(
                jobs.memory_bytes_per_core[other.guest]
            )
            for node in other.nodes:
                self._memory_promised[node] = self._memory_promised.get(node, 0.0) + each
            for node, demand in zip(other.nodes, other.demands, strict=False):
                self._promised[node] = self._promised.get(node, 0.0) + demand

    @property
    def promised(self) -> dict[int, float]:
        """By node: cores' worth of CPU that offers of this cycle take."""
        self._count_promised()
        return self._promised

    @property
    def memory_promised(self) -> dict[int, float]:
        """By node: bytes that guests which are offered a place in this cycle will hold, at the worst split."""
        self._count_promised()
        return self._memory_promised

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


D = TypeVar("D", bound=Decision)


@dataclass(frozen=True, slots=True)
class Property:
    """A property of decisions of some `kinds`."""

    kinds: tuple[type[Decision], ...]
    why_not: Callable[[Look, Any], str]


def of(*kinds: type[Decision]) -> Callable[[Callable[[Look, D], str]], Property]:
    """A decorator: the function is a property that decisions of these kinds have to keep, and no others."""
    return lambda function: Property(kinds, function)


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


def lends_more(look: Look, decision: Decision) -> int:
    """The host of whom `decision` would take more than now; -1 if it takes no more.

    A share for a guest that had none takes less: until then the idle class alone held it.
    """
    if isinstance(decision, CoAllocate):
        return decision.host
    if isinstance(decision, SetShare) and decision.host < 0:
        jobs = look.snapshot.jobs
        if decision.share > jobs.share[decision.guest] + TOLERANCE:  # NaN: no share yet
            return int(jobs.host[decision.guest])
    return -1


def lenders(look: Look, decision: Decision) -> list[int]:
    """The batch jobs of whom `decision` would take more than now."""
    if not look.some_pressed:
        return []
    if isinstance(decision, CoAllocate) and decision.pooled:
        starts = look.snapshot.jobs.start_s
        running = set(look.snapshot.running.tolist())
        return [job for job in look.beside(decision) if job in running and not math.isnan(starts[job])]
    host = lends_more(look, decision)
    return [host] if host >= 0 else []


@of(CoAllocate)
def waits(look: Look, decision: CoAllocate) -> str:
    """Only a waiting job becomes a guest, and only a running batch job a host."""
    jobs = look.snapshot.jobs
    if not math.isnan(jobs.start_s[decision.guest]):
        return "the guest does not wait"
    if not math.isnan(jobs.offered_s[decision.guest]):
        return "it has an offer already"
    if not decision.pooled and math.isnan(jobs.start_s[decision.host]):
        return "the host does not run"
    return ""


@of(CoAllocate)
def whole_nodes(look: Look, decision: CoAllocate) -> str:
    """The guest of a pair is only offered nodes that one batch job, its host, holds wholly."""
    snapshot = look.snapshot
    first = look.first
    for node in decision.nodes:
        if (snapshot.core_owner[first[node] : first[node + 1]] != decision.host).any():
            return f"node {snapshot.machine.node_names[node]} is not wholly held by the host"
    return ""


@of(CoAllocate)
def one_guest_a_core(look: Look, decision: CoAllocate) -> str:
    """There is at most one guest on a core."""
    if sum(look.open_cores[node] for node in decision.nodes) < look.snapshot.jobs.cores[decision.guest]:
        return "there are not enough cores without a guest"
    return ""


@of(CoAllocate)
def memory(look: Look, decision: CoAllocate) -> str:
    """Memory of a guest fits beside the batch jobs of its nodes and the guests that are there.

    Of a guest that draws from pools, beside what whoever starts on free cores may need too: of every free core its part
    of the node's memory.
    """
    snapshot = look.snapshot
    jobs, machine = snapshot.jobs, snapshot.machine
    need = float(jobs.memory_bytes_per_core[decision.guest])
    if need > 0:
        first = look.first
        fits = 0
        for node in decision.nodes:
            if math.isnan(machine.memory_bytes[node]):
                return ""
            cores = slice(first[node], first[node + 1])
            owner, guests = snapshot.core_owner[cores], snapshot.core_guest[cores]
            held = float(jobs.memory_bytes_per_core[owner[owner >= 0]].sum())
            held += float(jobs.memory_bytes_per_core[guests[guests >= 0]].sum())
            held += look.memory_promised.get(node, 0.0)
            if decision.pooled:
                held += float(machine.memory_bytes[node]) * np.count_nonzero(owner < 0) / len(owner)
            if math.isnan(held):
                return "it is not known how much memory is left there"
            fits += max(0, int((machine.memory_bytes[node] - held) / need + TOLERANCE))
        if fits < jobs.cores[decision.guest]:
            return "its memory does not fit there"
    return ""


@of(CoAllocate)
def pool(look: Look, decision: CoAllocate) -> str:
    """A guest takes from a node no more than its pool has left: hosts keep their 95th percentile, and headroom.

    Per node Σ (cores - spare) + free cores · (usual use + headroom) + Σ demand · rate ≤ cores. A guest is expected to
    run at the rate that its offer names; a host that has not been measured counts as the offer says.
    """
    if not decision.pooled:
        return ""
    if len(decision.demands) != len(decision.nodes):
        return f"{len(decision.nodes)} nodes, and {len(decision.demands)} demands on them"
    machine, before = look.snapshot.machine, look.promised
    assumed = decision.cause.detail.get("assumed_peak")
    for node, demand in zip(decision.nodes, decision.demands, strict=True):
        left = look.pools[node] - before.get(node, 0.0)
        if demand > left and isinstance(assumed, Mapping) and not look.snapshot.node_bar[node]:
            left += look.assumed_of(node, assumed)
        if not 0.0 <= demand <= left + TOLERANCE:  # never of NaN
            name = machine.node_names[node]
            return f"node {name} has {max(0.0, left):.2f} cores' worth of CPU left, not {demand:.2f}"
    return ""


@of(CoAllocate, SetShare)
def host_floor(look: Look, decision: Decision) -> str:
    """A host keeps what it uses, measured or else known from earlier runs of its application, and some headroom."""
    if isinstance(decision, CoAllocate | SetShare):
        jobs, headroom = look.snapshot.jobs, look.settings.host_floor
        if decision.host < 0 and (isinstance(decision, CoAllocate) or decision.guest < 0):
            return ""
        host = decision.host if isinstance(decision, CoAllocate) else int(jobs.host[decision.guest])
        if host < 0 or decision.share <= 0:
            return ""
        used = float(jobs.cpu_fraction[host])
        known = decision.cause.detail.get("host_cpu")
        if math.isnan(used) and isinstance(known, float):
            used = known
        if math.isnan(used):
            return "the CPU use of its host has not been measured"
        if decision.share > 1.0 - used - headroom + TOLERANCE:
            return f"the host uses {used:.0%} and keeps {headroom:.0%} of headroom"
    return ""


@of(CoAllocate)
def better_off(look: Look, decision: CoAllocate) -> str:
    """A guest has a time limit and an estimated start, and should end sooner than by waiting."""
    jobs = look.snapshot.jobs
    if not math.isfinite(jobs.time_limit_s[decision.guest]):
        return "it has no time limit"
    if math.isnan(jobs.estimated_start_s[decision.guest]):
        return "its own start has not been estimated"
    detail = decision.cause.detail
    guest_end, wait_end = detail.get("guest_end_s"), detail.get("wait_end_s")
    if not isinstance(guest_end, float) or not isinstance(wait_end, float) or guest_end >= wait_end:
        return "it would not end sooner than by waiting"
    return ""


@of(CoAllocate)
def share_group(look: Look, decision: CoAllocate) -> str:
    """Jobs share only with jobs of the same group: of one user or account, as the site has it."""
    group = look.snapshot.jobs.share_group
    if not look.one_group and any(group[decision.guest] != group[other] for other in look.beside(decision)):
        return "those there may not share with it: they are of different users or accounts"
    return ""


@of(CoAllocate)
def memory_bandwidth(look: Look, decision: CoAllocate) -> str:
    """No two jobs that are said to be memory-bound share a node, where calibration says that it costs too much."""
    if look.memory_loss > look.settings.memory_bandwidth:
        bound = look.snapshot.jobs.memory_bound
        if bound[decision.guest] and any(bound[other] for other in look.beside(decision)):
            return f"both are memory-bound, which costs a host {look.memory_loss:.1%} of its pace here"
    return ""


@of(CoAllocate)
def components(look: Look, decision: CoAllocate) -> str:
    """A gang is placed whole: on at least as many nodes as its hint says, and no more than that; or not at all."""
    text = look.snapshot.hints.get(decision.guest, "")
    try:
        bounds = read_components(text) if text else None
    except ValueError as error:
        return str(error)
    if bounds is None or look.snapshot.jobs.array[decision.guest] >= 0:  # of an array they are its tasks
        return ""
    if not bounds.least <= len(decision.nodes) <= bounds.most:
        return (
            f"{len(decision.nodes)} of its components would start; it wants {bounds.least} to {bounds.most}"
        )
    return ""


@of(Admit, Defer, SetThrottle, SetMemory, SetShare, CoAllocate)
def opted_out(look: Look, decision: Decision) -> str:
    """Jobs and nodes that are barred from lending, or from being a guest, are left alone.

    Jobs that opted out are neither admitted nor held back either; they may always be let go.
    """
    if isinstance(decision, Admit | Defer | SetThrottle):
        bar = int(look.snapshot.jobs.guest_bar[decision.job])
        return f"it is left alone: {Ineligible(bar).text}" if bar in OPTED_OUT else ""
    if isinstance(decision, SetMemory) and decision.high_bytes > 0:
        bar = int(look.snapshot.jobs.host_bar[decision.job])
        return f"it is left alone: {Ineligible(bar).text}" if bar in OPTED_OUT else ""
    if isinstance(decision, SetShare) and decision.host >= 0 and decision.share > 0:
        bar = int(look.snapshot.jobs.host_bar[decision.host])
        return f"the host cannot lend: {Ineligible(bar).text}" if bar else ""
    host = lends_more(look, decision)
    pooled = isinstance(decision, CoAllocate) and decision.pooled
    if host < 0 and not pooled:
        return ""
    jobs = look.snapshot.jobs
    if not pooled and jobs.host_bar[host]:
        return f"the host cannot lend: {Ineligible(jobs.host_bar[host]).text}"
    if isinstance(decision, CoAllocate):
        if jobs.guest_bar[decision.guest]:
            return f"it cannot be a guest: {Ineligible(jobs.guest_bar[decision.guest]).text}"
        nodes: Iterable[int] = decision.nodes
    else:
        assert isinstance(decision, SetShare)
        nodes = look.nodes_of.get(decision.guest, ())
    for node in nodes:
        if look.snapshot.node_bar[node]:
            name = look.snapshot.machine.node_names[node]
            return f"node {name} cannot lend: {NodeIneligible(look.snapshot.node_bar[node]).text}"
    return ""


@of(CoAllocate, SetShare)
def happiness_floor(look: Look, decision: Decision) -> str:
    """A host that tells of being late lends nothing more."""
    for host in lenders(look, decision):
        happiness, floor = float(look.snapshot.jobs.happiness[host]), look.settings.happiness_floor
        if happiness < floor:  # never of NaN
            return f"the host's happiness is {happiness:.2f}, below {floor:.2f}"
    return ""


@of(CoAllocate, SetShare)
def pressure(look: Look, decision: Decision) -> str:
    """Beside a host that waits for CPU nobody gets more."""
    for host in lenders(look, decision):
        if look.snapshot.jobs.pressure[host] > look.settings.pressure:
            return f"the host waited for CPU {look.snapshot.jobs.pressure[host]:.0%} of the time"
    return ""


@of(CoAllocate, SetShare)
def node_share_cap(look: Look, decision: Decision) -> str:
    """All guests on a node together get no more of their host than the cap."""
    host, cap = lends_more(look, decision), look.settings.node_share_cap
    if cap < math.inf and isinstance(decision, CoAllocate) and decision.pooled:
        return _pool_cap(look, decision, cap)
    if host < 0 or cap == math.inf:
        return ""
    assert isinstance(decision, CoAllocate | SetShare)
    jobs = look.snapshot.jobs
    decided = {other.guest: other.share for other in look.allowed if isinstance(other, SetShare)}

    def share(guest: int) -> float:
        known = decided.get(guest, float(jobs.share[guest]))
        return 1.0 if math.isnan(known) else known

    # which nodes of its host an offer is for is not in the snapshot: it counts on each
    promised = sum(share(guest) for guest in look.offered if jobs.host[guest] == host)
    nodes = decision.nodes if isinstance(decision, CoAllocate) else look.nodes_of.get(decision.guest, ())
    for node in nodes:
        lent = promised + sum(
            share(guest) for guest in look.guests_on.get(node, ()) if guest != decision.guest
        )
        lent += sum(
            other.share for other in look.allowed if isinstance(other, CoAllocate) and node in other.nodes
        )
        if lent + decision.share > cap + TOLERANCE:
            name = look.snapshot.machine.node_names[node]
            return f"node {name} would lend {lent + decision.share:.0%}, more than {cap:.0%}"
    return ""


def _pool_cap(look: Look, decision: CoAllocate, cap: float) -> str:
    """All guests on a node that draw from its pool together are expected to use no more of its cores than the cap."""
    snapshot, promised = look.snapshot, look.promised
    for node, demand in zip(decision.nodes, decision.demands, strict=True):
        cores = int(snapshot.machine.cores[node])
        used = demand + promised.get(node, 0.0)
        first = int(look.first[node])
        for row in snapshot.core_guest[first : first + cores].tolist():
            if row >= 0:
                own = float(snapshot.jobs.demand[row])
                used += 1.0 if math.isnan(own) else own
        if used / cores > cap + TOLERANCE:
            name = snapshot.machine.node_names[node]
            return f"node {name} would lend {used / cores:.0%}, more than {cap:.0%}"
    return ""


@of(CoAllocate)
def guests_cap(look: Look, decision: CoAllocate) -> str:
    """There are no more guests than the cap, with those that have an offer."""
    cap = look.settings.guests_cap
    if cap and isinstance(decision, CoAllocate):
        new = sum(isinstance(other, CoAllocate) for other in look.allowed)
        if len(look.snapshot.guests) + len(look.offered) + new >= cap:
            return f"there are {cap} guests already"
    return ""


@of(Decision)
def one_change(look: Look, decision: Decision) -> str:
    """A job's lending changes once a cycle, so that what comes of it can be told; its limit moves once at the most."""
    before = look.done.get(_changes(decision))
    if before is None:
        if isinstance(decision, CoAllocate) and ("when it starts", decision.guest) in look.done:
            return "when it starts changes in this cycle already"
        return ""
    what = _changes(decision)[0]
    return f"{what} changes in this cycle already" + (f" ({before})" if what == "its lending" else "")


def _changes(decision: Decision) -> tuple[str, int]:
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


@of(*ADMISSION)
def still_waits(look: Look, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
    """Only what waits is admitted, deferred or throttled, and nothing that has an offer to be a guest."""
    jobs = look.snapshot.jobs
    if not math.isnan(jobs.start_s[decision.job]):
        array = int(jobs.array[decision.job])
        # the bound of an array may be set by way of any of its tasks
        by_task = isinstance(decision, SetThrottle) and array >= 0
        if not by_task or look.snapshot.arrays.waiting[array] < 1:
            return "it does not wait any more"
    if isinstance(decision, Defer) and not math.isnan(jobs.offered_s[decision.job]):
        return "it has an offer to start as a guest"
    return ""


@of(SetThrottle)
def throttle_at_least_one(look: Look, decision: SetThrottle) -> str:
    """A throttle is of an array, and lets at least one task run: 0 would mean none at all to the reader, and no bound
    to Slurm."""
    if look.snapshot.jobs.array[decision.job] < 0:
        return "it is no array"
    if decision.tasks < 1:
        return f"{decision.tasks} tasks at one time are none; a deferral is how an array pauses"
    return ""


@of(Defer)
def most_defer(look: Look, decision: Defer) -> str:
    """Nobody is deferred further ahead than the setting: asad may be gone by then."""
    ahead_s, most_s = decision.until_s - look.snapshot.time_s, look.settings.most_defer_s
    if not ahead_s <= most_s + TOLERANCE:  # NaN: it is no time
        return f"{ahead_s:.0f} s ahead, more than {most_s:.0f} s"
    return ""


@of(Defer)
def never_beyond_deadline(look: Look, decision: Defer) -> str:
    """A deferral leaves a job the time that it needs to end by its deadline."""
    jobs = look.snapshot.jobs
    deadline_s, limit_s = float(jobs.deadline_s[decision.job]), float(jobs.time_limit_s[decision.job])
    needs_s = limit_s if math.isfinite(limit_s) else 0.0
    if decision.until_s + needs_s > deadline_s + TOLERANCE:  # never of NaN
        return f"it would end {decision.until_s + needs_s - deadline_s:.0f} s after its deadline"
    return ""


@of(Defer)
def short_lease(look: Look, decision: Defer) -> str:
    """Who is held back for being deferrable is held for a short time only: then the cluster starts him by itself."""
    if decision.cause.detail.get("stage") == "defer":
        ahead_s, most_s = decision.until_s - look.snapshot.time_s, look.settings.most_lease_s
        if not ahead_s <= most_s + TOLERANCE:  # NaN: it is no time
            return f"{ahead_s:.0f} s without a further look, more than {most_s:.0f} s"
    return ""


@of(Start)
def idle_cores(look: Look, decision: Start) -> str:
    """Deferrable jobs that start by their scores in one cycle have idle cores for all of them together.

    Whose latest start comes is let go whatever is idle, and of an array the tasks that its throttle lets run at once.
    """
    if not _by_score(decision):
        return ""
    others = [other.job for other in look.allowed if isinstance(other, Start) and _by_score(other)]
    wanted = sum(look.start_cores(job) for job in (*others, decision.job))
    return f"{look.idle} cores are idle, and {wanted} would be taken" if wanted > look.idle else ""


def _by_score(decision: Start) -> bool:
    """Does it start a deferrable job before it has to?"""
    detail = decision.cause.detail
    return detail.get("stage") == "defer" and detail.get("urgent") is False


@of(Evict)
def eviction_consented(look: Look, decision: Evict) -> str:
    """Nobody is evicted but a running batch job whose owner agreed to it, and in the way that he chose."""
    snapshot, row = look.snapshot, decision.job
    chosen = look.consents.get(str(snapshot.jobs.job_id[row]))
    if chosen is None:
        return "its owner has not agreed to an eviction"
    if decision.how != chosen:
        return f"its owner chose {chosen}, not {decision.how}"
    if row not in snapshot.running:
        return "it does not run as a batch job"
    bar = int(snapshot.jobs.host_bar[row])
    if bar in OPTED_OUT:
        return f"it is left alone: {Ineligible(bar).text}"
    if any(isinstance(other, Evict) and other.job == row for other in look.allowed):
        return "it is evicted in this cycle already"
    return ""


@of(SetMemory)
def memory_floor(look: Look, decision: SetMemory) -> str:
    """A memory limit is above what the job uses now, with some slack, and above what a host has reserved.

    Only jobs that share their nodes have one; that it is lifted is never held back.
    """
    if decision.high_bytes == 0:
        return ""
    snapshot, row = look.snapshot, decision.job
    if not 0.0 < decision.high_bytes < math.inf:  # NaN too
        return f"a limit of {decision.high_bytes:g} bytes is none"
    if row not in look.sharing:
        return "it shares its nodes with nobody"
    used = snapshot.memory_used.get(row, math.nan)
    if math.isnan(used):
        return "the memory that it uses has not been measured"
    slack = look.settings.memory_slack
    if decision.high_bytes < used * (1.0 + slack) * (1.0 - TOLERANCE):
        return f"it uses {used:.0f} bytes on a node and keeps {slack:.0%} of slack"
    reserved = float(snapshot.jobs.memory_bytes_per_core[row]) * look.most_on_a_node(row)
    if decision.high_bytes < reserved * (1.0 - TOLERANCE):  # never of NaN
        return f"the host has reserved {reserved:.0f} bytes on a node"
    return ""


@of(ExtendLimit)
def latest_end(look: Look, decision: ExtendLimit) -> str:
    """No extension reaches into a reservation or over a partition's or an association's limit."""
    if decision.by_s <= 0:
        return "a reservation or a limit of its partition or association leaves no room"
    return ""


def shortened(look: Look, decision: ExtendLimit) -> ExtendLimit:
    """The extension as far as the job's latest end allows, in whole minutes as limits are; by 0 if not at all."""
    jobs = look.snapshot.jobs
    room = float(jobs.latest_end_s[decision.job] - jobs.limit_end_s[decision.job])
    if not decision.by_s > room:  # NaN: no limit is known
        return decision
    by_s = 60.0 * math.floor(max(0.0, room) / 60.0)
    cause = decision.cause
    reason = f"{cause.reason}; {decision.by_s:.0f} s would pass its latest end"
    return replace(decision, by_s=by_s, cause=replace(cause, reason=reason))


PROPERTIES: dict[str, Property] = {
    "waits": waits,
    "whole nodes": whole_nodes,
    "one guest a core": one_guest_a_core,
    "memory": memory,
    "pool": pool,
    "host floor": host_floor,
    "better off": better_off,
    "opted out": opted_out,
    "components": components,
    "share group": share_group,
    "memory bandwidth": memory_bandwidth,
    "happiness floor": happiness_floor,
    "pressure": pressure,
    "node share cap": node_share_cap,
    "guests cap": guests_cap,
    "one change": one_change,
    "memory floor": memory_floor,
    "latest end": latest_end,
    "still waits": still_waits,
    "throttle at least one": throttle_at_least_one,
    "most defer": most_defer,
    "never beyond deadline": never_beyond_deadline,
    "short lease": short_lease,
    "idle cores": idle_cores,
    "eviction consented": eviction_consented,
}

ALWAYS = frozenset(list(PROPERTIES)[7:])
"""Properties that bind every policy, whether it names them or not."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The properties in force, and their settings."""

    properties: tuple[str, ...]
    settings: GuardSettings = REPLAY
    memory_loss: float = 0.0
    """What calibration says of two memory-bound jobs, see `Look`."""
    consents: Mapping[str, str] = field(default_factory=dict)
    """Who may be evicted and how, see `Look`; it may change between two checks."""

    def check(
        self, snapshot: Snapshot, decisions: Sequence[Decision], relief: Sequence[Decision] = ()
    ) -> tuple[list[Decision], list[Outcome]]:
        """The decisions that may be done, `relief` first, and a vetoed outcome for each of the others.

        `relief` is what `relieve` told for this snapshot; nothing is vetoed of it.
        """
        look = Look(snapshot, self.settings, list(relief), self.memory_loss, self.consents, decisions)
        vetoed: list[Outcome] = []
        about: dict[str, list[tuple[str, Callable[[Look, Any], str]]]] = {}
        for decision in decisions:
            if isinstance(decision, ExtendLimit):
                decision = shortened(look, decision)
            if decision.kind not in about:
                about[decision.kind] = self._about(decision)
            for name, why_not in about[decision.kind]:
                why = why_not(look, decision)
                if why:
                    vetoed.append(Outcome(decision, False, f"vetoed ({name}): {why}"))
                    break
            else:
                look.allowed.append(decision)
        return look.allowed, vetoed

    def _about(self, decision: Decision) -> list[tuple[str, Callable[[Look, Any], str]]]:
        """By name, the properties that decisions of its kind have to keep."""
        held = [(name, PROPERTIES[name]) for name in self.properties]
        return [(name, one.why_not) for name, one in held if isinstance(decision, one.kinds)]

    def relieve(self, snapshot: Snapshot) -> list[Decision]:
        """What is taken back whatever the policy says: from guests beside hosts under pressure, and stale offers."""
        jobs, settings = snapshot.jobs, self.settings
        relief: list[Decision] = []
        running, guests = snapshot.running, snapshot.guests
        pressed = running[jobs.pressure[running] > settings.pressure]  # never of NaN
        if len(pressed) and len(guests):
            hosts = jobs.host[guests]
            squeezed = (hosts >= 0) & (jobs.pressure[hosts] > settings.pressure) & ~(jobs.share[guests] <= 0)
            squeezed &= np.isnan(jobs.demand[guests])  # of pairs
            for guest in guests[squeezed].tolist():
                host = int(jobs.host[guest])
                waited = f"its host {jobs.job_id[host]} waited for CPU {jobs.pressure[host]:.0%} of the time"
                relief.append(SetShare(Cause("guard", waited), guest, 0.0))
            relief += self._squeeze(snapshot)
        if len(snapshot.queue):
            offered = jobs.offered_s[snapshot.queue]
            for guest in snapshot.queue[~np.isnan(offered)].tolist():
                waited_s, host = snapshot.time_s - float(jobs.offered_s[guest]), int(jobs.host[guest])
                if waited_s > settings.offer_patience_s:
                    why = f"the offer was not taken for {waited_s:.0f} s"
                elif host >= 0 and jobs.pressure[host] > settings.pressure:
                    why = f"its host {jobs.job_id[host]} waits for CPU itself"
                else:
                    continue
                relief.append(Withdraw(Cause("guard", why), guest))
        return relief

    def _squeeze(self, snapshot: Snapshot) -> list[Decision]:
        """On each node where a host is under pressure the newest guest that draws from its pool gives way."""
        jobs = snapshot.jobs
        look = Look(snapshot, self.settings)
        squeezed: dict[int, tuple[int, str]] = {}
        for node, guests in look.guests_on.items():
            pooled = [guest for guest in guests if not math.isnan(jobs.demand[guest])]
            owners = set(snapshot.core_owner[look.first[node] : look.first[node + 1]].tolist()) - {-1}
            pressed = [host for host in sorted(owners) if jobs.pressure[host] > self.settings.pressure]
            if pooled and pressed:
                newest = max(pooled, key=lambda guest: (float(jobs.start_s[guest]), guest))
                host = pressed[0]
                waited = f"job {jobs.job_id[host]} waited for CPU {jobs.pressure[host]:.0%} of the time"
                squeezed.setdefault(newest, (node, waited))
        relief: list[Decision] = []
        for guest, (node, waited) in squeezed.items():
            nodes = look.nodes_of[guest]
            cores = [
                int((snapshot.core_guest[look.first[n] : look.first[n + 1]] == guest).sum()) for n in nodes
            ]
            cause = Cause("guard", f"on node {snapshot.machine.node_names[node]} {waited}")
            relief.append(SetQuota(cause, guest, tuple(nodes), tuple(LEAST_QUOTA * count for count in cores)))
        return relief


def guard_for(
    properties: frozenset[str],
    settings: GuardSettings = REPLAY,
    memory_loss: float = 0.0,
    consents: Mapping[str, str] | None = None,
) -> Guard:
    """A guard that enforces `properties` and those of `ALWAYS`, in the order of `PROPERTIES`.

    `memory_loss` is the part of its pace in [0, 1] that a memory-bound host loses beside a memory-bound guest;
    `consents` tells who agreed to be evicted, by number of the job, and is looked at anew in every check.

    Raises KeyError for an unknown name.
    """
    unknown = properties - PROPERTIES.keys()
    if unknown:
        raise KeyError(f"unknown properties: {sorted(unknown)}")
    names = tuple(name for name in PROPERTIES if name in properties | ALWAYS)
    return Guard(names, settings, memory_loss, {} if consents is None else consents)


__all__ = ["ALWAYS", "PROPERTIES", "REPLAY", "Guard", "Look", "guard_for"]

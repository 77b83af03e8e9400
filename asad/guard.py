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

import numpy as np

from asad.config import GuardSettings
from asad.model import (
    BARS,
    NODE_BARS,
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
    SetShare,
    SetThrottle,
    Snapshot,
    Start,
    Withdraw,
)
from asad.place.components import read_components

REPLAY = GuardSettings(node_share_cap=math.inf, most_lease_s=math.inf)
"""Of a replay: its policies are compared with each other as they are, and a log knows no happiness and no pressure."""

TOLERANCE = 1e-6
OPTED_OUT = frozenset(number for number, bar in enumerate(BARS) if bar.endswith("opted out"))
"""Bars by which a job is left alone by all stages; the others tell of lending alone."""


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
    _changed: set[tuple[int, str]] = field(default_factory=set)
    _counted: int = 0

    @cached_property
    def places(self) -> frozenset[tuple[int, int]]:
        """(node, guest) for every guest on every node it is on."""
        cores = np.flatnonzero(self.snapshot.core_guest >= 0)
        nodes = np.searchsorted(self.snapshot.machine.first_core, cores, side="right") - 1
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
    def changed(self) -> set[tuple[int, str]]:
        """Jobs, and what the admit stage changes of them in this cycle."""
        while self._counted < len(self.allowed):
            decision = self.allowed[self._counted]
            if isinstance(decision, ADMISSION):
                self._changed.add((decision.job, CHANGES[decision.kind]))
            self._counted += 1
        return self._changed

    @cached_property
    def sharing(self) -> frozenset[int]:
        """Guests beside a host, and their hosts."""
        guests = self.snapshot.guests
        hosts = self.snapshot.jobs.host[guests]
        return frozenset(guests[hosts >= 0].tolist()) | frozenset(hosts[hosts >= 0].tolist())

    def most_on_a_node(self, job: int) -> int:
        """Cores that a running job holds on that of its nodes where it holds most; 0 for a guest or if none."""
        cores = np.flatnonzero(self.snapshot.core_owner == job)
        nodes = np.searchsorted(self.snapshot.machine.first_core, cores, side="right") - 1
        return int(np.bincount(nodes).max()) if len(nodes) else 0

    @cached_property
    def idle(self) -> int:
        """Cores without a batch job, on nodes that can start one."""
        usable = self.snapshot.node_bar != NODE_DOWN
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


NODE_DOWN = NODE_BARS.index("it is drained, down or not answering")
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
    if isinstance(decision, SetShare):
        jobs = look.snapshot.jobs
        if decision.share > jobs.share[decision.guest] + TOLERANCE:  # NaN: no share yet
            return int(jobs.host[decision.guest])
    return -1


def waits(look: Look, decision: Decision) -> str:
    """Only a waiting job becomes a guest, and only a running batch job a host."""
    if isinstance(decision, CoAllocate):
        jobs = look.snapshot.jobs
        if not math.isnan(jobs.start_s[decision.guest]):
            return "the guest does not wait"
        if not math.isnan(jobs.offered_s[decision.guest]):
            return "it has an offer already"
        if math.isnan(jobs.start_s[decision.host]):
            return "the host does not run"
    return ""


def whole_nodes(look: Look, decision: Decision) -> str:
    """A guest is only offered nodes that one batch job, its host, holds wholly: idle cores are the scheduler's."""
    if isinstance(decision, CoAllocate):
        snapshot = look.snapshot
        first = snapshot.machine.first_core
        for node in decision.nodes:
            if (snapshot.core_owner[first[node] : first[node + 1]] != decision.host).any():
                return f"node {snapshot.machine.node_names[node]} is not wholly held by the host"
    return ""


def one_guest_a_core(look: Look, decision: Decision) -> str:
    """There is at most one guest on a core."""
    if isinstance(decision, CoAllocate):
        snapshot = look.snapshot
        first = snapshot.machine.first_core
        free = sum(
            int((snapshot.core_guest[first[node] : first[node + 1]] < 0).sum()) for node in decision.nodes
        )
        if free < snapshot.jobs.cores[decision.guest]:
            return "there are not enough cores without a guest"
    return ""


def memory(look: Look, decision: Decision) -> str:
    """Memory of a guest fits beside its host and the guests that are there."""
    if isinstance(decision, CoAllocate):
        snapshot = look.snapshot
        jobs, machine = snapshot.jobs, snapshot.machine
        need = float(jobs.memory_bytes_per_core[decision.guest])
        if need > 0:
            first = machine.first_core
            fits = 0
            for node in decision.nodes:
                if math.isnan(machine.memory_bytes[node]):
                    return ""
                cores = slice(first[node], first[node + 1])
                guests = snapshot.core_guest[cores]
                held = float(jobs.memory_bytes_per_core[decision.host]) * (first[node + 1] - first[node])
                held += float(jobs.memory_bytes_per_core[guests[guests >= 0]].sum())
                if math.isnan(held):
                    return "it is not known how much memory is left beside the host"
                fits += max(0, int((machine.memory_bytes[node] - held) / need + TOLERANCE))
            if fits < jobs.cores[decision.guest]:
                return "its memory does not fit beside the host"
    return ""


def host_floor(look: Look, decision: Decision) -> str:
    """A host keeps what it uses, measured or else known from earlier runs of its application, and some headroom."""
    if isinstance(decision, CoAllocate | SetShare):
        jobs, headroom = look.snapshot.jobs, look.settings.host_floor
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


def better_off(look: Look, decision: Decision) -> str:
    """A guest has a time limit and an estimated start, and should end sooner than by waiting."""
    if isinstance(decision, CoAllocate):
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


def share_group(look: Look, decision: Decision) -> str:
    """Jobs share only with jobs of the same group: of one user or account, as the site has it."""
    if isinstance(decision, CoAllocate):
        group = look.snapshot.jobs.share_group
        if group[decision.guest] != group[decision.host]:
            return "the two may not share: they are of different users or accounts"
    return ""


def memory_bandwidth(look: Look, decision: Decision) -> str:
    """No two jobs that are said to be memory-bound share a node, where calibration says that it costs too much."""
    if isinstance(decision, CoAllocate) and look.memory_loss > look.settings.memory_bandwidth:
        bound = look.snapshot.jobs.memory_bound
        if bound[decision.guest] and bound[decision.host]:
            return f"both are memory-bound, which costs a host {look.memory_loss:.1%} of its pace here"
    return ""


def components(look: Look, decision: Decision) -> str:
    """A gang is placed whole: on at least as many nodes as its hint says, and no more than that; or not at all."""
    if isinstance(decision, CoAllocate):
        text = look.snapshot.hints.get(decision.guest, "")
        try:
            bounds = read_components(text) if text else None
        except ValueError as error:
            return str(error)
        if bounds is None or look.snapshot.jobs.array[decision.guest] >= 0:  # of an array they are its tasks
            return ""
        if not bounds.least <= len(decision.nodes) <= bounds.most:
            return f"{len(decision.nodes)} of its components would start; it wants {bounds.least} to {bounds.most}"
    return ""


def opted_out(look: Look, decision: Decision) -> str:
    """Jobs and nodes that are barred from lending, or from being a guest, are left alone.

    Jobs that opted out are neither admitted nor held back either; they may always be let go.
    """
    if isinstance(decision, Admit | Defer | SetThrottle):
        bar = int(look.snapshot.jobs.guest_bar[decision.job])
        return f"it is left alone: {BARS[bar]}" if bar in OPTED_OUT else ""
    if isinstance(decision, SetMemory) and decision.high_bytes > 0:
        bar = int(look.snapshot.jobs.host_bar[decision.job])
        return f"it is left alone: {BARS[bar]}" if bar in OPTED_OUT else ""
    host = lends_more(look, decision)
    if host < 0:
        return ""
    jobs = look.snapshot.jobs
    if jobs.host_bar[host]:
        return f"the host cannot lend: {BARS[jobs.host_bar[host]]}"
    if isinstance(decision, CoAllocate):
        if jobs.guest_bar[decision.guest]:
            return f"it cannot be a guest: {BARS[jobs.guest_bar[decision.guest]]}"
        nodes: Iterable[int] = decision.nodes
    else:
        assert isinstance(decision, SetShare)
        nodes = look.nodes_of.get(decision.guest, ())
    for node in nodes:
        if look.snapshot.node_bar[node]:
            name = look.snapshot.machine.node_names[node]
            return f"node {name} cannot lend: {NODE_BARS[look.snapshot.node_bar[node]]}"
    return ""


def happiness_floor(look: Look, decision: Decision) -> str:
    """A host that tells of being late lends nothing more."""
    host = lends_more(look, decision)
    if host >= 0:
        happiness, floor = float(look.snapshot.jobs.happiness[host]), look.settings.happiness_floor
        if happiness < floor:  # never of NaN
            return f"the host's happiness is {happiness:.2f}, below {floor:.2f}"
    return ""


def pressure(look: Look, decision: Decision) -> str:
    """Beside a host that waits for CPU nobody gets more."""
    host = lends_more(look, decision)
    if host >= 0 and look.snapshot.jobs.pressure[host] > look.settings.pressure:
        return f"the host waited for CPU {look.snapshot.jobs.pressure[host]:.0%} of the time"
    return ""


def node_share_cap(look: Look, decision: Decision) -> str:
    """All guests on a node together get no more of their host than the cap."""
    host, cap = lends_more(look, decision), look.settings.node_share_cap
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


def guests_cap(look: Look, decision: Decision) -> str:
    """There are no more guests than the cap, with those that have an offer."""
    cap = look.settings.guests_cap
    if cap and isinstance(decision, CoAllocate):
        new = sum(isinstance(other, CoAllocate) for other in look.allowed)
        if len(look.snapshot.guests) + len(look.offered) + new >= cap:
            return f"there are {cap} guests already"
    return ""


def one_change(look: Look, decision: Decision) -> str:
    """A job's lending changes once a cycle, so that what comes of it can be told; its limit moves once at the most."""
    if isinstance(decision, ExtendLimit):
        if any(isinstance(other, ExtendLimit) and other.job == decision.job for other in look.allowed):
            return "its limit has been moved in this cycle already"
    elif isinstance(decision, SetMemory):
        if any(isinstance(other, SetMemory) and other.job == decision.job for other in look.allowed):
            return "its memory limit changes in this cycle already"
    elif isinstance(decision, CoAllocate | SetShare | Withdraw):
        for other in look.allowed:
            if isinstance(other, CoAllocate | SetShare | Withdraw) and other.guest == decision.guest:
                return f"its lending changes in this cycle already ({other.kind})"
        if isinstance(decision, CoAllocate) and (decision.guest, "when it starts") in look.changed:
            return "when it starts changes in this cycle already"
    elif isinstance(decision, ADMISSION):
        change = (decision.job, CHANGES[decision.kind])
        if change in look.changed:
            return f"{change[1]} changes in this cycle already"
    return ""


def still_waits(look: Look, decision: Decision) -> str:
    """Only what waits is admitted, deferred or throttled, and nothing that has an offer to be a guest."""
    if isinstance(decision, ADMISSION):
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


def throttle_at_least_one(look: Look, decision: Decision) -> str:
    """A throttle is of an array, and lets at least one task run: 0 would mean none at all to the reader, and no bound
    to Slurm."""
    if isinstance(decision, SetThrottle):
        if look.snapshot.jobs.array[decision.job] < 0:
            return "it is no array"
        if decision.tasks < 1:
            return f"{decision.tasks} tasks at one time are none; a deferral is how an array pauses"
    return ""


def most_defer(look: Look, decision: Decision) -> str:
    """Nobody is deferred further ahead than the setting: asad may be gone by then."""
    if isinstance(decision, Defer):
        ahead_s, most_s = decision.until_s - look.snapshot.time_s, look.settings.most_defer_s
        if not ahead_s <= most_s + TOLERANCE:  # NaN: it is no time
            return f"{ahead_s:.0f} s ahead, more than {most_s:.0f} s"
    return ""


def never_beyond_deadline(look: Look, decision: Decision) -> str:
    """A deferral leaves a job the time that it needs to end by its deadline."""
    if isinstance(decision, Defer):
        jobs = look.snapshot.jobs
        deadline_s, limit_s = float(jobs.deadline_s[decision.job]), float(jobs.time_limit_s[decision.job])
        needs_s = limit_s if math.isfinite(limit_s) else 0.0
        if decision.until_s + needs_s > deadline_s + TOLERANCE:  # never of NaN
            return f"it would end {decision.until_s + needs_s - deadline_s:.0f} s after its deadline"
    return ""


def short_lease(look: Look, decision: Decision) -> str:
    """Who is held back for being deferrable is held for a short time only: then the cluster starts him by itself."""
    if isinstance(decision, Defer) and decision.cause.detail.get("stage") == "defer":
        ahead_s, most_s = decision.until_s - look.snapshot.time_s, look.settings.most_lease_s
        if not ahead_s <= most_s + TOLERANCE:  # NaN: it is no time
            return f"{ahead_s:.0f} s without a further look, more than {most_s:.0f} s"
    return ""


def idle_cores(look: Look, decision: Decision) -> str:
    """Deferrable jobs that start by their scores in one cycle have idle cores for all of them together.

    Whose latest start comes is let go whatever is idle, and of an array the tasks that its throttle lets run at once.
    """
    if not isinstance(decision, Start) or not _by_score(decision):
        return ""
    others = [other.job for other in look.allowed if isinstance(other, Start) and _by_score(other)]
    wanted = sum(look.start_cores(job) for job in (*others, decision.job))
    return f"{look.idle} cores are idle, and {wanted} would be taken" if wanted > look.idle else ""


def _by_score(decision: Start) -> bool:
    """Does it start a deferrable job before it has to?"""
    detail = decision.cause.detail
    return detail.get("stage") == "defer" and detail.get("urgent") is False


def eviction_consented(look: Look, decision: Decision) -> str:
    """Nobody is evicted but a running batch job whose owner agreed to it, and in the way that he chose."""
    if not isinstance(decision, Evict):
        return ""
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
        return f"it is left alone: {BARS[bar]}"
    if any(isinstance(other, Evict) and other.job == row for other in look.allowed):
        return "it is evicted in this cycle already"
    return ""


def memory_floor(look: Look, decision: Decision) -> str:
    """A memory limit is above what the job uses now, with some slack, and above what a host has reserved.

    Only jobs that share their nodes have one; that it is lifted is never held back.
    """
    if not isinstance(decision, SetMemory) or decision.high_bytes == 0:
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


def latest_end(look: Look, decision: Decision) -> str:
    """No extension reaches into a reservation or over a partition's or an association's limit."""
    if isinstance(decision, ExtendLimit) and decision.by_s <= 0:
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


PROPERTIES: dict[str, Callable[[Look, Decision], str]] = {
    "waits": waits,
    "whole nodes": whole_nodes,
    "one guest a core": one_guest_a_core,
    "memory": memory,
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

ALWAYS = frozenset(list(PROPERTIES)[6:])
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
        look = Look(snapshot, self.settings, list(relief), self.memory_loss, self.consents)
        vetoed: list[Outcome] = []
        for decision in decisions:
            if isinstance(decision, ExtendLimit):
                decision = shortened(look, decision)
            for name in self.properties:
                why = PROPERTIES[name](look, decision)
                if why:
                    vetoed.append(Outcome(decision, False, f"vetoed ({name}): {why}"))
                    break
            else:
                look.allowed.append(decision)
        return look.allowed, vetoed

    def relieve(self, snapshot: Snapshot) -> list[Decision]:
        """What is taken back whatever the policy says: from guests beside hosts under pressure, and stale offers."""
        jobs, settings = snapshot.jobs, self.settings
        relief: list[Decision] = []
        guests = snapshot.guests
        if len(guests):
            hosts = jobs.host[guests]
            squeezed = (hosts >= 0) & (jobs.pressure[hosts] > settings.pressure) & ~(jobs.share[guests] <= 0)
            for guest in guests[squeezed].tolist():
                host = int(jobs.host[guest])
                waited = f"its host {jobs.job_id[host]} waited for CPU {jobs.pressure[host]:.0%} of the time"
                relief.append(SetShare(Cause("guard", waited), guest, 0.0))
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

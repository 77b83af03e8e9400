"""Properties of lending: who becomes a guest, where, and how much of a host is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from asad.decisions import Admit, CoAllocate, Decision, Defer, SetMemory, SetShare, SetThrottle
from asad.guard.look import TOLERANCE, Look, of
from asad.ineligible import OPTED_OUT, Ineligible, NodeIneligible
from asad.place.components import read_components

LOOKS = 2
"""Polls before a time limit ends in which it can be moved: one in which lending shows, and one that may be late."""


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


@of(CoAllocate, binds_all=False)
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


@of(CoAllocate, binds_all=False)
def whole_nodes(look: Look, decision: CoAllocate) -> str:
    """The guest of a pair is only offered nodes that one batch job, its host, holds wholly."""
    snapshot = look.snapshot
    first = look.first
    for node in decision.nodes:
        if (snapshot.core_owner[first[node] : first[node + 1]] != decision.host).any():
            return f"node {snapshot.machine.node_names[node]} is not wholly held by the host"
    return ""


@of(CoAllocate, binds_all=False)
def one_guest_a_core(look: Look, decision: CoAllocate) -> str:
    """There is at most one guest on a core."""
    if sum(look.open_cores[node] for node in decision.nodes) < look.snapshot.jobs.cores[decision.guest]:
        return "there are not enough cores without a guest"
    return ""


@of(CoAllocate, binds_all=False)
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


@of(CoAllocate, binds_all=False)
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
        # a host that was not measured lends nothing in `pools`: what the policy assumed of it is in the
        # decision, so that the record shows on what the guard relied
        if demand > left and isinstance(assumed, Mapping) and not look.snapshot.node_bar[node]:
            left += look.assumed_of(node, assumed)
        if not 0.0 <= demand <= left + TOLERANCE:  # never of NaN
            name = machine.node_names[node]
            return f"node {name} has {max(0.0, left):.2f} cores' worth of CPU left, not {demand:.2f}"
    return ""


@of(CoAllocate, SetShare, binds_all=False)
def host_floor(look: Look, decision: CoAllocate | SetShare) -> str:
    """A host keeps what it uses, measured or else known from earlier runs of its application, and some headroom."""
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


@of(CoAllocate, binds_all=False)
def better_off(look: Look, decision: CoAllocate) -> str:
    """A guest has a time limit and an estimated start, and should end sooner than by waiting."""
    jobs = look.snapshot.jobs
    if not math.isfinite(jobs.time_limit_s[decision.guest]):
        return "it has no time limit"
    if math.isnan(jobs.estimated_start_s[decision.guest]):
        return "its start has not been estimated"
    detail = decision.cause.detail
    guest_end, wait_end = detail.get("guest_end_s"), detail.get("wait_end_s")
    if not isinstance(guest_end, float) or not isinstance(wait_end, float) or guest_end >= wait_end:
        return "it would not end sooner than by waiting"
    return ""


@of(CoAllocate, binds_all=False)
def time_to_extend(look: Look, decision: CoAllocate) -> str:
    """No guest is started that its time limit ends within two polls, nor beside a job whose limit ends so soon: that
    lending slows them is only seen at the next look, and their limits are moved then."""
    jobs, soon_s = look.snapshot.jobs, LOOKS * look.poll_s
    if jobs.time_limit_s[decision.guest] < soon_s:
        return f"its limit of {jobs.time_limit_s[decision.guest]:.0f} s would end it before that can be moved"
    there = look.beside(decision)
    left = jobs.limit_end_s[there] - look.snapshot.time_s
    for k in np.flatnonzero(left < soon_s)[:1].tolist():  # never of NaN: who waits
        return (
            f"job {jobs.job_id[there[k]]} there is at its limit in {left[k]:.0f} s, before that can be moved"
        )
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
    """No two jobs that are stated to be memory-bound share a node, where calibration says that it costs too much."""
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
    """Jobs and nodes that are ineligible for lending, or from being a guest, are left alone.

    Jobs that opted out are neither admitted nor held back either; they may always be let go.
    """
    jobs, reason = look.snapshot.jobs, Ineligible.NO
    if isinstance(decision, Admit | Defer | SetThrottle):
        reason = Ineligible(jobs.guest_bar[decision.job])
    elif isinstance(decision, SetMemory) and decision.high_bytes > 0:
        reason = Ineligible(jobs.host_bar[decision.job])
    elif isinstance(decision, SetShare) and decision.host >= 0 and decision.share > 0:
        reason = Ineligible(jobs.host_bar[decision.host])
        return f"the host cannot lend: {reason.text}" if reason else ""
    if reason in OPTED_OUT:
        return f"it is left alone: {reason.text}"
    host = lends_more(look, decision)
    pooled = isinstance(decision, CoAllocate) and decision.pooled
    if host < 0 and not pooled:
        return ""
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
def happiness_floor(look: Look, decision: CoAllocate | SetShare) -> str:
    """A host that reports to be late lends nothing more."""
    for host in lenders(look, decision):
        happiness, floor = float(look.snapshot.jobs.happiness[host]), look.settings.happiness_floor
        if happiness < floor:  # never of NaN
            return f"the host's happiness is {happiness:.2f}, below {floor:.2f}"
    return ""


@of(CoAllocate, SetShare)
def pressure(look: Look, decision: CoAllocate | SetShare) -> str:
    """Beside a host that waits for CPU nobody gets more."""
    for host in lenders(look, decision):
        if look.snapshot.jobs.pressure[host] > look.settings.pressure:
            return f"the host waited for CPU {look.snapshot.jobs.pressure[host]:.0%} of the time"
    return ""


@of(CoAllocate, SetShare)
def node_share_cap(look: Look, decision: CoAllocate | SetShare) -> str:
    """All guests on a node together get no more of their host than the cap."""
    host, cap = lends_more(look, decision), look.settings.node_share_cap
    if cap < math.inf and isinstance(decision, CoAllocate) and decision.pooled:
        return _pool_cap(look, decision, cap)
    if host < 0 or cap == math.inf:
        return ""
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
    if cap:
        new = sum(isinstance(other, CoAllocate) for other in look.allowed)
        if len(look.snapshot.guests) + len(look.offered) + new >= cap:
            return f"there are {cap} guests already"
    return ""

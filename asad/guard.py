"""The guard: named safety properties. It looks at every decision before it is done and vetoes, with the reason.

A policy is expected to keep these by itself; the guard is written apart from the policies, looks at the plain
snapshot, and has the last word. Each property is a function (snapshot, decision) → why not, or the empty string.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from asad.model import CoAllocate, Decision, Outcome, SetShare, Snapshot

TOLERANCE = 1e-6


def waits(snapshot: Snapshot, decision: Decision) -> str:
    """Only a waiting job becomes a guest, and only a running batch job a host."""
    if isinstance(decision, CoAllocate):
        if not math.isnan(snapshot.jobs.start_s[decision.guest]):
            return "the guest does not wait"
        if math.isnan(snapshot.jobs.start_s[decision.host]):
            return "the host does not run"
    return ""


def whole_nodes(snapshot: Snapshot, decision: Decision) -> str:
    """A guest is only offered nodes that one batch job, its host, holds wholly: idle cores are the scheduler's."""
    if isinstance(decision, CoAllocate):
        first = snapshot.machine.first_core
        for node in decision.nodes:
            if (snapshot.core_owner[first[node] : first[node + 1]] != decision.host).any():
                return f"node {snapshot.machine.node_names[node]} is not wholly held by the host"
    return ""


def one_guest_a_core(snapshot: Snapshot, decision: Decision) -> str:
    """There is at most one guest on a core."""
    if isinstance(decision, CoAllocate):
        first = snapshot.machine.first_core
        free = sum(
            int((snapshot.core_guest[first[node] : first[node + 1]] < 0).sum()) for node in decision.nodes
        )
        if free < snapshot.jobs.cores[decision.guest]:
            return "there are not enough cores without a guest"
    return ""


def memory(snapshot: Snapshot, decision: Decision) -> str:
    """Memory of a guest fits beside its host and the guests that are there."""
    if isinstance(decision, CoAllocate):
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
                fits += max(0, int((machine.memory_bytes[node] - held) / need + TOLERANCE))
            if fits < jobs.cores[decision.guest]:
                return "its memory does not fit beside the host"
    return ""


HEADROOM = 0.1


def host_floor(snapshot: Snapshot, decision: Decision) -> str:
    """A host keeps what it uses and some headroom."""
    if isinstance(decision, CoAllocate | SetShare):
        jobs = snapshot.jobs
        host = decision.host if isinstance(decision, CoAllocate) else int(jobs.host[decision.guest])
        if host < 0:
            return ""
        used = float(jobs.cpu_fraction[host])
        if math.isnan(used):
            return "the CPU use of its host has not been measured"
        if decision.share > 1.0 - used - HEADROOM + TOLERANCE:
            return f"the host uses {used:.0%} and keeps {HEADROOM:.0%} of headroom"
    return ""


def better_off(snapshot: Snapshot, decision: Decision) -> str:
    """A guest has a time limit and an estimated start, and should end sooner than by waiting."""
    if isinstance(decision, CoAllocate):
        jobs = snapshot.jobs
        if not math.isfinite(jobs.time_limit_s[decision.guest]):
            return "it has no time limit"
        if math.isnan(jobs.estimated_start_s[decision.guest]):
            return "its own start has not been estimated"
        detail = decision.cause.detail
        guest_end, wait_end = detail.get("guest_end_s"), detail.get("wait_end_s")
        if not isinstance(guest_end, float) or not isinstance(wait_end, float) or guest_end >= wait_end:
            return "it would not end sooner than by waiting"
    return ""


PROPERTIES: dict[str, Callable[[Snapshot, Decision], str]] = {
    "waits": waits,
    "whole nodes": whole_nodes,
    "one guest a core": one_guest_a_core,
    "memory": memory,
    "host floor": host_floor,
    "better off": better_off,
}


@dataclass(frozen=True, slots=True)
class Guard:
    """The properties in force."""

    properties: tuple[str, ...]

    def check(
        self, snapshot: Snapshot, decisions: Sequence[Decision]
    ) -> tuple[list[Decision], list[Outcome]]:
        """The decisions that may be done, and a vetoed outcome for each of the others."""
        allowed: list[Decision] = []
        vetoed: list[Outcome] = []
        for decision in decisions:
            for name in self.properties:
                why = PROPERTIES[name](snapshot, decision)
                if why:
                    vetoed.append(Outcome(decision, False, f"vetoed ({name}): {why}"))
                    break
            else:
                allowed.append(decision)
        return allowed, vetoed


def guard_for(properties: frozenset[str]) -> Guard:
    """A guard that enforces `properties`, in the order of `PROPERTIES`. Raises KeyError for an unknown name."""
    unknown = properties - PROPERTIES.keys()
    if unknown:
        raise KeyError(f"unknown properties: {sorted(unknown)}")
    return Guard(tuple(name for name in PROPERTIES if name in properties))


__all__ = ["HEADROOM", "PROPERTIES", "Guard", "guard_for"]

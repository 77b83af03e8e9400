"""Why an offer is not made after all: looked at once more, right before Slurm is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asad.model import BARS, NODE_BARS, CoAllocate, Snapshot
from asad_slurm import bars
from asad_slurm.nodesets import expand
from asad_slurm.records import MIB, JobRecord, NodeRecord
from asad_slurm.settings import Settings


def refusal(
    snapshot: Snapshot,
    decision: CoAllocate,
    guest: JobRecord,
    host: JobRecord,
    nodes: list[NodeRecord],
    guest_nodes: Mapping[str, NDArray[np.bool_]],
    settings: Settings,
) -> str:
    """Why `guest` (waits) cannot be offered the nodes of `host` (runs); the empty string if it can.

    `guest_nodes` says for each guest partition which nodes are in it.
    """
    jobs, first, names = snapshot.jobs, snapshot.machine.first_core, snapshot.machine.node_names
    if not decision.nodes or not all(0 <= node < len(names) for node in decision.nodes):
        return "there is no such node"
    barred = bars.guest_bar(guest, settings) or int(jobs.guest_bar[decision.guest])
    if barred:
        return BARS[barred]
    if jobs.host_bar[decision.host]:
        return f"its host may not lend: {BARS[jobs.host_bar[decision.host]]}"
    if settings.share_users != "any" and group(guest, settings) != group(host, settings):
        return BARS[bars.OTHER_USERS]
    partition = bars.guest_partition(guest.partition, settings)
    free = 0
    for node in decision.nodes:
        here = slice(first[node], first[node + 1])
        if snapshot.node_bar[node]:
            return f"{names[node]}: {NODE_BARS[snapshot.node_bar[node]]}"
        if not guest_nodes[partition][node]:
            return f"{names[node]} is not in the partition {partition}"
        if (snapshot.core_owner[here] != decision.host).any():
            return "a node is no longer wholly held by its host"
        if not has_features(guest.features, nodes[node].features):
            return f"{names[node]} lacks a feature that it wants"
        free += int((snapshot.core_guest[here] < 0).sum())
    if free < guest.cores:
        return "another guest is on these cores"
    if guest.nodes > len(decision.nodes):
        return f"it wants {guest.nodes:.0f} nodes"
    chosen = frozenset(names[node] for node in decision.nodes)
    try:
        if not chosen.issuperset(expand(guest.required_nodes)):
            return "its user asked for other nodes"
        if not chosen.isdisjoint(expand(guest.excluded_nodes)):
            return "its user excluded a node"
    except ValueError as error:
        return str(error)
    return _in_the_way(snapshot, decision, guest)


def _in_the_way(snapshot: Snapshot, decision: CoAllocate, guest: JobRecord) -> str:
    """Batch does not count a guest's cores, but it counts its memory.

    A guest that outlasts its host keeps its memory: what waits now and would fit on the node without it must fit beside
    it as well.
    """
    jobs, machine, first = snapshot.jobs, snapshot.machine, snapshot.machine.first_core
    need = guest.memory_bytes_per_core * guest.cores / len(decision.nodes)
    if math.isnan(need):
        return "its memory is not known"
    waits = snapshot.queue[(snapshot.queue != decision.guest) & np.isnan(jobs.offered_s[snapshot.queue])]
    wants = jobs.memory_bytes_per_core[waits] * jobs.cores[waits] / np.maximum(1, jobs.nodes[waits])
    for node in decision.nodes:
        memory = float(machine.memory_bytes[node])
        if math.isnan(memory):
            continue
        others = snapshot.core_guest[first[node] : first[node + 1]]
        most = memory - float(np.nansum(jobs.memory_bytes_per_core[others[others >= 0]]))
        hindered = np.flatnonzero((wants > most - need + MIB) & (wants <= most))
        if len(hindered):
            return f"its memory would be in the way of {jobs.job_id[waits[hindered[0]]]}"
    return ""


def group(job: JobRecord, settings: Settings) -> str:
    """Whom it may share with, as `share_users` says: those of the same user, or of the same account."""
    return job.user if settings.share_users == "same" else job.account


def has_features(wanted: str, there: frozenset[str]) -> bool:
    """Does a node have what a job wants? Only `a&b` and `a,b` are understood; anything else is left to Slurm."""
    words = wanted.replace(",", "&").split("&")
    if not wanted or any(not word.replace("_", "").replace("-", "").isalnum() for word in words):
        return True
    return there.issuperset(words)

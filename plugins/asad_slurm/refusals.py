"""Why an offer is not made after all: looked at once more, right before Slurm is asked."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from asad.cluster.lending_rules import nodes_refused
from asad.decisions import CoAllocate
from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Snapshot
from asad_slurm import bars
from asad_slurm.nodesets import expand
from asad_slurm.offers import nodes_asked
from asad_slurm.records import MIB, JobRecord, NodeRecord
from asad_slurm.settings import Settings


def refusal(
    snapshot: Snapshot,
    decision: CoAllocate,
    guest: JobRecord,
    nodes: list[NodeRecord],
    guest_nodes: Mapping[str, NDArray[np.bool_]],
    settings: Settings,
) -> str:
    """Why `guest` (waits) cannot be offered these nodes; the empty string if it can.

    Of a pair the host must hold all of each node. `guest_nodes` says for each guest partition which nodes are in it.
    """
    jobs, first, names = snapshot.jobs, snapshot.machine.first_core, snapshot.machine.node_names
    if why := nodes_refused(decision, len(names)):
        return why
    barred = bars.guest_bar(guest, settings) or int(jobs.guest_bar[decision.guest])
    if barred:
        return Ineligible(barred).text
    partition = bars.guest_partition(guest.partition, settings)
    free, widest = 0, -(-int(guest.cores) // len(decision.nodes))
    for node in decision.nodes:
        here = slice(first[node], first[node + 1])
        hosts = set(snapshot.core_owner[here].tolist()) - {-1}
        for host in hosts:
            if jobs.host_bar[host]:
                return f"{jobs.job_id[host]} on {names[node]} may not lend: {Ineligible(jobs.host_bar[host]).text}"
        others = hosts | (set(snapshot.core_guest[here].tolist()) - {-1, decision.guest})
        if any(jobs.share_group[other] != jobs.share_group[decision.guest] for other in others):
            return Ineligible.OTHER_USERS.text
        if snapshot.node_bar[node]:
            return f"{names[node]}: {NodeIneligible(snapshot.node_bar[node]).text}"
        if not guest_nodes[partition][node]:
            return f"{names[node]} is not in the partition {partition}"
        if not decision.pooled and (snapshot.core_owner[here] != decision.host).any():
            return "a node is no longer wholly held by its host"
        if not has_features(guest.features, nodes[node].features):
            return f"{names[node]} lacks a feature that it wants"
        open_cores = int((snapshot.core_guest[here] < 0).sum())
        if decision.pooled and open_cores < widest:
            return f"other guests are on the cores of {names[node]}"
        free += open_cores
    if free < guest.cores:
        return "another guest is on these cores"
    if guest.nodes > len(decision.nodes):
        return f"it wants {guest.nodes:.0f} nodes"
    if guest.most_nodes and guest.most_nodes < len(decision.nodes):
        return f"it wants at most {guest.most_nodes} nodes"
    if nodes_asked(guest, len(decision.nodes)) is None:
        return "how many nodes its user asked for could not be given back"
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


def group(job: JobRecord, settings: Settings, exclusive_user: bool = False) -> str:
    """Whom it may share with, as `share_users` says: those of the same group, which the empty string is too.

    `exclusive_user`: Slurm gives the nodes of its partition to one user at a time.
    """
    if settings.share_users == "same" or (settings.share_users == "as-slurm" and exclusive_user):
        return f"user {job.user}"
    if settings.share_users == "account":
        return f"account {job.account}"
    return f"label {job.mcs_label}" if settings.share_users == "as-slurm" and job.mcs_label else ""


def has_features(wanted: str, there: frozenset[str]) -> bool:
    """Does a node have what a job wants? Only `a&b` and `a,b` are understood; anything else is left to Slurm."""
    words = wanted.replace(",", "&").split("&")
    if not wanted or any(not word.replace("_", "").replace("-", "").isalnum() for word in words):
        return True
    return there.issuperset(words)

"""Decisions to lend, as every plugin takes them: what is refused, and what may bind a job until its lease runs out.

Each refusal is a reason in words, or the empty string.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from asad.decisions import CoAllocate, SetQuota, SetShare
from asad.model import Ints, Jobs, Snapshot
from asad.port import Lease

Role = Literal["host", "guest", ""]
"""What a job is now; empty where it does not run."""
RoleOf = Callable[[int], Role]


def first_reason(*reasons: tuple[str, object]) -> str:
    """The first of these reasons that holds, or the empty string."""
    return next((reason for reason, holds in reasons if holds), "")


def nodes_refused(decision: CoAllocate, count: int) -> str:
    """Are its nodes among `count`, each once, and has each a demand where the guest draws from pools?"""
    nodes, demands = decision.nodes, decision.demands
    asked = len(demands) == len(nodes) and all(0 <= cores < math.inf for cores in demands)
    return first_reason(
        ("there is no such node", not nodes or not all(0 <= node < count for node in nodes)),
        ("a node is named twice", len(set(nodes)) < len(nodes)),
        (f"demands {demands} are not one for each of {len(nodes)} nodes", decision.pooled and not asked),
    )


def share_refused(decision: SetShare, jobs: Jobs, role: RoleOf) -> str:
    """Is it the guest of a pair, or a host that lends a part of itself?"""
    if decision.host >= 0:
        return first_reason(
            ("it does not run any more", role(decision.host) != "host"),
            (f"a share of {decision.share:g} is none", not 0.0 <= decision.share <= 1.0),
        )
    if role(decision.guest) != "guest":
        return "it does not run as a guest any more"
    pooled = not math.isnan(jobs.demand[decision.guest])
    return "it draws from the pools of its nodes: quotas bind it, and no share of one host" if pooled else ""


def quota_refused(
    decision: SetQuota, jobs: Jobs, role: RoleOf, nodes_of: Callable[[int], Collection[int]]
) -> str:
    """Is it a guest that draws from the pools of these nodes? `nodes_of` has the nodes of one that runs."""
    guest, nodes, quotas = decision.guest, decision.nodes, decision.cores
    if role(guest) != "guest":
        return "it does not run as a guest any more"
    asked = len(nodes) == len(quotas) and all(0 < cores < math.inf for cores in quotas)
    return first_reason(
        ("it is the guest of a pair: a share of its host binds it", math.isnan(jobs.demand[guest])),
        (f"quotas {quotas} are not one above 0 for each of {len(nodes)} nodes", not asked),
        ("it is not on such a node", not set(nodes) <= set(nodes_of(guest))),
    )


def guest_nodes(snapshot: Snapshot, row: int) -> list[int]:
    """Numbers of the nodes on which a guest is shown, in their order."""
    held = np.flatnonzero(snapshot.core_guest == row)
    nodes = np.unique(np.searchsorted(snapshot.machine.first_core, held, side="right") - 1)
    return [int(node) for node in nodes]


def beside(snapshot: Snapshot, nodes: Iterable[int]) -> dict[int, list[int]]:
    """By node the batch jobs that hold cores there."""
    first, owner = snapshot.machine.first_core, snapshot.core_owner
    return {
        node: sorted(set(owner[first[node] : first[node + 1]].tolist()) - {-1}) for node in sorted(set(nodes))
    }


def leases(
    snapshot: Snapshot,
    nodes_of: Mapping[int, Sequence[int]],
    shares: Mapping[int, tuple[float, bool]],
    quotas: Mapping[int, Mapping[int, float]],
    known_as: Callable[[int], str],
    memory: Mapping[int, float],
) -> dict[str, list[Lease]]:
    """By node name the leases of the guests in `nodes_of` (running or offered; their node numbers), and of those beside
    whom they are.

    `shares` has the share decided for the guest of a pair and whether its host is capped; `quotas` has for a guest that
    draws from pools by node how many cores' worth of CPU it may use there, and with such a quota it is widened where
    the cluster is; `known_as` is by what the node actors know a job. A share is one of the host's cores: on few cores
    of its own a guest may use them whole. While nothing is decided, and beside nobody, a guest has no quota and its own
    cores: the idle class holds it. `memory` has by row above how many bytes on a node a job's memory is reclaimed.
    """
    first, names = snapshot.machine.first_core, snapshot.machine.node_names
    wanted: dict[str, list[Lease]] = {}
    lefts: dict[int, float] = {}
    hosts_of = beside(snapshot, (node for nodes in nodes_of.values() for node in nodes))
    for row, nodes in nodes_of.items():
        share, capped = shares.get(row, (math.nan, False))
        for node in nodes:
            here = slice(first[node], first[node + 1])
            owner = snapshot.core_owner[here]
            host = _most(owner, hosts_of[node])
            cores = int((snapshot.core_guest[here] == row).sum())
            drawn = cores > 0 and node in quotas.get(row, ()) and host >= 0
            quota = math.nan
            if drawn:
                quota = min(1.0, quotas[row][node] / cores)
            elif host >= 0 and cores > 0 and not math.isnan(share):
                quota = min(1.0, share * int((owner == host).sum()) / cores)
                if capped:
                    lefts[host] = float(np.fmin(lefts.get(host, math.nan), 1.0 - share))
            # where another guest has taken the cores of an offer, it holds none; but a lease for none is no lease
            lease = Lease(
                known_as(row),
                True,
                known_as(host) if host >= 0 else "",
                quota,
                max(1, cores),
                memory.get(row, math.nan),
                widen=drawn and snapshot.widened,
            )
            wanted.setdefault(names[node], []).append(lease)
    for node, hosts in hosts_of.items():
        owner = snapshot.core_owner[first[node] : first[node + 1]]
        for host in hosts:
            cores, left = int((owner == host).sum()), lefts.get(host, math.nan)
            high_bytes = memory.get(host, math.nan)
            wanted[names[node]].append(Lease(known_as(host), False, "", left, cores, high_bytes))
    return wanted


def _most(owner: Ints, hosts: Sequence[int]) -> int:
    """The batch job with the most of these cores, -1 for none."""
    return max(hosts, key=lambda host: int((owner == host).sum()), default=-1)

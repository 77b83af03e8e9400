"""What may bind a job until its lease runs out, node by node."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from asad.model import Ints, Snapshot
from asad.port import Lease
from asad_slurm.records import NAN


def leases(
    snapshot: Snapshot,
    nodes_of: Mapping[int, list[int]],
    shares: Mapping[int, tuple[float, bool]],
    quotas: Mapping[int, Mapping[int, float]],
    raw: Mapping[int, str],
    beside: Mapping[int, Sequence[int]],
    memory: Mapping[int, float],
) -> dict[str, list[Lease]]:
    """By node name the leases of the guests in `nodes_of` (running or offered; their node numbers), and of those beside
    whom they are.

    `shares` has the share decided for the guest of a pair and whether its host is capped; `quotas` has for a guest that
    draws from pools by node how many cores' worth of CPU it may use there, and with such a quota it is widened where
    the cluster is; `raw` has Slurm's number of a job by row, which cgroups are named by; `beside` has the batch jobs of
    each of these nodes. A share is one of the host's cores: on few cores of its own a guest may use them whole. While
    nothing is decided, and beside nobody, a guest has no quota and its own cores: the idle class holds it. `memory`
    has by row above how many bytes on a node a job's memory is reclaimed.
    """
    first, names = snapshot.machine.first_core, snapshot.machine.node_names
    wanted: dict[str, list[Lease]] = {}
    lefts: dict[int, float] = {}
    for row, nodes in nodes_of.items():
        share, capped = shares.get(row, (NAN, False))
        for node in nodes:
            here = slice(first[node], first[node + 1])
            owner = snapshot.core_owner[here]
            host = _most(owner, beside[node])
            cores = int((snapshot.core_guest[here] == row).sum())
            drawn = cores > 0 and node in quotas.get(row, ()) and host >= 0
            quota = NAN
            if drawn:
                quota = min(1.0, quotas[row][node] / cores)
            elif host >= 0 and cores > 0 and not math.isnan(share):
                quota = min(1.0, share * int((owner == host).sum()) / cores)
                if capped:
                    lefts[host] = float(np.fmin(lefts.get(host, NAN), 1.0 - share))
            # where another guest has taken the cores of an offer, it holds none; but a lease for none is no lease
            lease = Lease(
                raw[row],
                True,
                raw[host] if host >= 0 else "",
                quota,
                max(1, cores),
                memory.get(row, NAN),
                widen=drawn and snapshot.widened,
            )
            wanted.setdefault(names[node], []).append(lease)
    for node in {node for nodes in nodes_of.values() for node in nodes}:
        owner = snapshot.core_owner[first[node] : first[node + 1]]
        for host in beside[node]:
            cores = int((owner == host).sum())
            left = lefts.get(host, NAN)
            wanted[names[node]].append(Lease(raw[host], False, "", left, cores, memory.get(host, NAN)))
    return wanted


def _most(owner: Ints, hosts: Sequence[int]) -> int:
    """The batch job with the most of these cores, -1 for none."""
    return max(hosts, key=lambda host: int((owner == host).sum()), default=-1)

"""What may bind a job until its lease runs out, node by node."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from asad.model import Lease, Snapshot
from asad_slurm.records import NAN


def leases(
    snapshot: Snapshot,
    nodes_of: Mapping[int, list[int]],
    shares: Mapping[int, tuple[float, bool]],
    raw: Mapping[int, str],
    holder: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
    memory: Mapping[int, float],
) -> dict[str, list[Lease]]:
    """By node name the leases of the guests in `nodes_of` (running or offered; their node numbers) and of their hosts.

    `shares` has the share decided for a guest and whether its host is capped; `raw` has Slurm's number of a job by row,
    which cgroups are named by; `holder` has the batch job with the most cores of each node. A share is one of the
    host's cores: on few cores of its own a guest may use them whole. Beside no host, and while nothing is decided, a
    guest has no quota: the idle class holds it. `memory` has by row above how many bytes on a node a job's memory is
    reclaimed.
    """
    first, names = snapshot.machine.first_core, snapshot.machine.node_names
    wanted: dict[str, list[Lease]] = {}
    kept: dict[tuple[int, int], float] = {}
    for row, nodes in nodes_of.items():
        share, capped = shares.get(row, (NAN, False))
        for node in nodes:
            here = slice(first[node], first[node + 1])
            host = int(holder[node])
            cores = int((snapshot.core_guest[here] == row).sum())
            lent = int((snapshot.core_owner[here] == host).sum()) if host >= 0 else 0
            bound = host >= 0 and cores > 0 and not math.isnan(share)
            quota = min(1.0, share * lent / cores) if bound else NAN
            high_bytes = memory.get(row, NAN)
            # where another guest has taken the cores of an offer, it holds none; but a lease for none is no lease
            lease = Lease(raw[row], True, raw[host] if host >= 0 else "", quota, max(1, cores), high_bytes)
            wanted.setdefault(names[node], []).append(lease)
            if host >= 0:
                left = 1.0 - share if capped and bound else NAN
                kept[host, node] = float(np.fmin(kept.get((host, node), NAN), left))
    for (host, node), quota in kept.items():
        cores = int((snapshot.core_owner[first[node] : first[node + 1]] == host).sum())
        wanted[names[node]].append(Lease(raw[host], False, "", quota, cores, memory.get(host, NAN)))
    return wanted

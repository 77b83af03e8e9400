"""The funnel: where the idle CPU of a cluster goes, by exclusive reasons in a fixed order.

What batch jobs leave idle is lent, or it is not for the first of the reasons that holds: so the parts sum to all of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.capacity import FREE_CORES, NOBODY, WHOLE_NODES, Pools, View
from asad.compiling import borrowing
from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Floats
from asad.share.pool.memo import Memo

(
    UNMEASURED,
    PEAK,
    HEADROOM,
    KEPT,
    GROUPS,
    SHARE,
    MEMORY,
    CORES,
    NO_GAIN,
    LENT,
    WHOLE,
    INELIGIBLE_FROM,
) = range(12)
"""Places in the row of a funnel; from INELIGIBLE_FROM on why jobs are ineligible, and then nodes."""
WIDTH = INELIGIBLE_FROM + len(Ineligible) + len(NodeIneligible)
NODES_FROM = INELIGIBLE_FROM + len(Ineligible)
INELIGIBLE = "opted out or ineligible: "


@borrowing
def account(
    view: View,
    pools: Pools,
    memo: Memo,
    headroom: float,
    needs: NDArray[np.float64],
    row: NDArray[np.float64],
) -> None:
    """Fill `row` (WIDTH,) with the cores' worth of CPU that are idle now, by reason.

    `needs` (2,) are the fewest cores and the least memory (bytes) that a job which would gain needs on a node; inf
    where no such job waits.
    """
    c = view.c
    row[:] = 0.0
    usual = pools.usual[0]
    for node in range(len(c.node_first) - 1):
        begin, end = c.node_first[node], c.node_first[node + 1]
        lent = pools.taken[node]
        row[LENT] += lent
        pool, groups = 0.0, pools.group[node] != NOBODY and pools.group[node] != 0
        partly = c.lends[WHOLE_NODES] and pools.unheld[node] > 0
        for core in range(begin, end):
            partly = partly or (c.lends[WHOLE_NODES] and c.core_owner[core] != c.core_owner[begin])
        for core in range(begin, end):
            owner = c.core_owner[core]
            if owner < 0:
                idle = 1.0
                if c.node_bar[node]:
                    row[NODES_FROM + c.node_bar[node]] += idle
                    continue
                kept = min(1.0, usual + headroom)
                row[KEPT] += kept
                if groups or not c.lends[FREE_CORES] or partly:
                    row[GROUPS if groups else WHOLE] += idle - kept
                else:
                    pool += idle - kept
                continue
            mean = c.cpu_fraction[owner]
            if np.isnan(mean):
                mean = memo.mean[owner]
            peak = c.core_peak[core]
            if np.isnan(peak):
                peak = memo.peak[owner]
            if np.isnan(mean) or np.isnan(peak):
                row[UNMEASURED] += 1.0 - (usual if np.isnan(mean) else mean)
                continue
            idle = 1.0 - mean
            if c.host_bar[owner] or c.node_bar[node] or partly:
                place = (
                    INELIGIBLE_FROM + c.host_bar[owner]
                    if c.host_bar[owner]
                    else NODES_FROM + c.node_bar[node]
                )
                row[WHOLE if partly and not c.host_bar[owner] and not c.node_bar[node] else place] += idle
                continue
            above = min(idle, max(0.0, peak - mean))
            kept = min(idle - above, headroom)
            spare = idle - above - kept
            shared = min(spare, memo.share[owner])
            row[PEAK] += above
            row[HEADROOM] += kept
            row[SHARE] += spare - shared
            pool += shared
        left = pool - lent
        if left < 0.0:  # guests use more than is lent: what else is idle
            for place in (HEADROOM, PEAK, KEPT, SHARE, UNMEASURED):
                back = min(row[place], -left)
                row[place] -= back
                left += back
        elif needs[0] == np.inf:
            row[NO_GAIN] += left
        elif pools.memory[node] < needs[1]:
            row[MEMORY] += left
        elif pools.open[node] < needs[0]:
            row[CORES] += left
        else:
            row[NO_GAIN] += left


REASONS = (
    ("unmeasured", UNMEASURED),
    *((f"{INELIGIBLE}{why.text}", INELIGIBLE_FROM + why) for why in Ineligible if why),
    *((f"{INELIGIBLE}node: {why.text}", NODES_FROM + why) for why in NodeIneligible if why),
    (f"{INELIGIBLE}its node is not wholly held by one job", WHOLE),
    ("p95 above the mean", PEAK),
    ("headroom", HEADROOM),
    ("kept for batch on free cores", KEPT),
    ("share groups", GROUPS),
    ("expert's share", SHARE),
    ("no memory", MEMORY),
    ("no cores", CORES),
    ("no waiting job that would gain", NO_GAIN),
    ("lent", LENT),
)
"""Why idle CPU was not lent, or that it was, and its place in the row of a funnel, in the order asked for."""


def reasons(row: Floats) -> list[tuple[str, float]]:
    """(reason, amount) of a funnel's row (WIDTH,), in the fixed order; ineligibility only where something is."""
    return [(text, float(row[place])) for text, place in REASONS if place < WHOLE or row[place] > 0]

"""What was measured last of the jobs that run, and one of the nodes of each."""

from __future__ import annotations

import numpy as np

from asad.capacity import Pools, View, node_at
from asad.compiling import borrowing
from asad.share.pool.memo import Memo

LEARNED = 1
"""Place in `Pools.seen` of what has been learned from."""


@borrowing
def note_measured(view: View, pools: Pools, memo: Memo) -> None:
    """Fill `memo.last_peak` and `memo.node`: those on the last of its nodes where it is measured, and where it has the
    first core. O(nodes of jobs on changed nodes) where the cluster keeps account of those, else O(cores)."""
    c = view.c
    nodes = len(c.node_first) - 1
    seen = pools.seen[LEARNED]
    if len(c.changes) == 0 or seen < 0 or c.changes[0] - seen > nodes:
        _note_all(view, memo)
    else:
        for k in range(seen, c.changes[0]):
            node, before = c.changed_nodes[k % nodes], -1
            for core in range(c.node_first[node], c.node_first[node + 1]):
                job = c.core_owner[core]
                if job >= 0 and job != before and pools.host_seen[job] != c.changes[0]:
                    pools.host_seen[job] = c.changes[0]
                    _note_one(view, job, memo)
                before = job
    if len(c.changes):
        pools.seen[LEARNED] = c.changes[0]


@borrowing
def _note_all(view: View, memo: Memo) -> None:
    """All that run, core by core."""
    c = view.c
    for core in range(len(c.core_owner)):
        if c.core_owner[core] >= 0 and not np.isnan(c.core_peak[core]):
            memo.last_peak[c.core_owner[core]] = c.core_peak[core]
    for node in range(len(c.node_first) - 1):
        for core in range(c.node_first[node], c.node_first[node + 1]):  # a node may have none
            if c.core_owner[core] >= 0:
                memo.node[c.core_owner[core]] = node
            break


@borrowing
def _note_one(view: View, job: int, memo: Memo) -> None:
    """One that runs, node by node; its 95th percentile is the same on all of its cores of a node."""
    c = view.c
    last, highest = -1, -1
    core = c.owner_first[job]
    while core >= 0:
        node = node_at(c.node_first, core)
        if core > last and not np.isnan(c.core_peak[core]):
            last = core
        if c.core_owner[c.node_first[node]] == job:
            highest = max(highest, node)
        core = c.owner_skip[core]
    if last >= 0:
        memo.last_peak[job] = c.core_peak[last]
    if highest >= 0:
        memo.node[job] = highest

"""Which nodes of a recorded cluster take no guests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Floats, Ints
from asad.replay import engine
from asad.share.jit_args import JitArgs

CLOSED = int(NodeIneligible.JOB_MAY_NOT_LEND)
HELD_CORES = int(Ineligible.NOT_A_JOB)


class Gone(NamedTuple):
    """Nodes that could not be used for a while, in order of the begin (`asad.replay.gone_nodes`)."""

    node: Ints
    begin_s: Floats
    end_s: Floats


class GoneNodes:
    """Closes nodes while they are gone, as time goes on."""

    def __init__(self, gone: Gone, node_bar: NDArray[np.int8], args: JitArgs) -> None:
        """`node_bar` (N,) says why nodes are always closed; it has those that are gone as well."""
        self._bar, self._args = node_bar, args
        self._always = node_bar.copy()
        times = np.concatenate((gone.end_s, gone.begin_s))
        order = np.lexsort((np.repeat([0, 1], len(gone.node)), times))
        self._times, self._nodes = times[order], np.tile(gone.node, 2)[order]
        self._begins = order >= len(gone.node)
        self._next = 0

    def mark(self, now_s: float) -> bool:
        """Close and open nodes as it is now; has any?"""
        first = self._next
        while self._next < len(self._times) and self._times[self._next] <= now_s:
            node, begins = int(self._nodes[self._next]), bool(self._begins[self._next])
            self._bar[node] = NodeIneligible.GONE if begins else self._always[node]
            engine.set_gone(self._args, node, begins)
            self._next += 1
        return self._next > first


@borrowing
def close_nodes(
    node_bar: NDArray[np.int8],
    always: NDArray[np.int8],
    host_bar: NDArray[np.int8],
    core_owner: NDArray[np.int32],
    first_core: NDArray[np.int32],
) -> None:
    """Nodes where a job runs that may not lend take no guests: live, Slurm chooses on whose cores they would be.

    So do those that are `always` closed, and all others are open. `core_owner` has the rows of `host_bar` that run, -1
    for none; the cores of node k are those from `first_core[k]` to before `first_core[k + 1]`.
    """
    for node in range(len(node_bar)):
        node_bar[node] = always[node]
        for core in range(first_core[node], first_core[node + 1]):
            owner = core_owner[core]
            if node_bar[node] == 0 and owner >= 0 and host_bar[owner] != 0 and host_bar[owner] != HELD_CORES:
                node_bar[node] = CLOSED

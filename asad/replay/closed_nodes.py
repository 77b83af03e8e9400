"""Which nodes of a recorded cluster take no guests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.ineligible import Ineligible, NodeIneligible

CLOSED = int(NodeIneligible.JOB_MAY_NOT_LEND)
HELD_CORES = int(Ineligible.NOT_A_JOB)


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

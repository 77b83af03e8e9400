"""What decisions of lending do to the simulation, each in one compiled call, since there are many in a cycle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.replay.engine.guests import lend, spread
from asad.replay.engine.rates import mark_nodes, refresh
from asad.replay.engine.simulation_state import GUEST, NOW, RUNNING, is_job
from asad.share.jit_args import JitArgs


@compiled
def co_allocate(
    args: JitArgs, guest: int, host: int, share: float, capped: bool, nodes: NDArray[np.int32]
) -> int:
    """`lend` with the guest's cores dealt evenly over `nodes`; 0 if done, else why not, as `lend` says it.

    Where `host` is -1, `share` is what the guest is expected to use of all the nodes together, in cores' worth of CPU.
    """
    s, _, _ = args.all
    cores = np.zeros(len(nodes), np.int32)
    if not spread(s, guest, nodes, cores):
        return 6
    count = 0
    for i in range(len(nodes)):
        if cores[i] > 0:
            nodes[count], cores[count] = nodes[i], cores[i]
            count += 1
    if host < 0:
        share /= s.job[guest].cores
    return lend(s, guest, host, share, capped, nodes[:count], cores[:count])


@compiled
def allot(args: JitArgs, guest: int, nodes: NDArray[np.int32], quota: NDArray[np.float64]) -> int:
    """From now on a guest uses at most `quota[i]` cores' worth of CPU on `nodes[i]`.

    Returns 0 if done, 1 if it does not run as a guest of pools, 2 if it is not on one of the nodes.
    """
    s, _, _ = args.all
    if not is_job(s, guest) or s.job[guest].state != GUEST or not s.job[guest].pooled:
        return 1
    for i in range(len(nodes)):
        found = False
        core = s.job[guest].guest_first
        while core >= 0:
            if s.core[core].node == nodes[i] and s.core[core].head:
                s.core[core].quota = quota[i]
                found = True
            core = s.core[core].guest_next
        if not found:
            return 2
    refresh(s, mark_nodes(s, s.job[guest].guest_first, True), s.f[NOW])
    return 0


@compiled
def lend_more(args: JitArgs, host: int, share: float) -> int:
    """A batch job lends this share of itself to the pools. Returns 0, or 1 if it does not run."""
    s, _, _ = args.all
    if not is_job(s, host) or s.job[host].state != RUNNING:
        return 1
    s.job[host].share = share
    return 0

"""What decisions of lending do to the simulation, each in one compiled call, since there are many in a cycle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.replay.engine.lending import lend, lend_share, set_quota, spread
from asad.share.kept import Kept


@compiled
def co_allocate(
    kept: Kept, guest: int, host: int, share: float, capped: bool, nodes: NDArray[np.int32]
) -> int:
    """`lend` with the guest's cores dealt evenly over `nodes`; 0 if done, else why not, as `lend` says it.

    Where `host` is -1, `share` is what the guest is expected to use of all the nodes together, in cores' worth of CPU.
    """
    s, _, _ = kept.all
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
def allot(kept: Kept, guest: int, nodes: NDArray[np.int32], quota: NDArray[np.float64]) -> int:
    """`set_quota`."""
    s, _, _ = kept.all
    return set_quota(s, guest, nodes, quota)


@compiled
def lend_more(kept: Kept, host: int, share: float) -> int:
    """`lend_share`."""
    s, _, _ = kept.all
    return lend_share(s, host, share)

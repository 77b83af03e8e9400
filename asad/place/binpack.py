"""`binpack`: ports with an arrival, by number, fill instance after instance, the fullest first.

Of each resource on its own a port takes a_l^k in all, from the connected instances in order of what is left of it,
least first (of equals the one of the lower number), all that is left before the next is touched. Options: none. Cost of
a slot: O(E · K · log R). Source: Zhao et al., section 4: BinPacking, Kubernetes' MostAllocated.
"""

from __future__ import annotations

import numpy as np

from asad.compiling import compiled
from asad.model import Floats, Ints
from asad.place.ports import PortPolicy, Ports


class BinPack(PortPolicy):
    """The fullest instance first."""

    name = "binpack"
    emptiest_first = False

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        # the edges of each port together
        self._edges = np.lexsort((ports.instance, ports.port)).astype(np.int32)
        self._begin = np.searchsorted(
            ports.port[self._edges], np.arange(len(ports.requests) + 1), "left"
        ).astype(np.int32)

    def allot(self, x: Floats) -> Floats:
        """y (E, K) for arrivals x (L,)."""
        p = self.ports
        found: Floats = _fill(
            self._begin, self._edges, p.instance, p.requests, p.capacities, x, self.emptiest_first
        )
        return found


@compiled
def _fill(
    begin: Ints,
    edges: Ints,
    instance: Ints,
    requests: Floats,
    capacities: Floats,
    x: Floats,
    emptiest_first: bool,
) -> Floats:
    resources = capacities.shape[1]
    y = np.zeros((len(instance), resources))
    left = capacities.copy()
    for p in range(len(x)):
        if x[p] <= 0.0:
            continue
        own = edges[begin[p] : begin[p + 1]]
        there = np.empty(len(own))
        for k in range(resources):
            for i in range(len(own)):
                there[i] = left[instance[own[i]], k]
            if emptiest_first:
                there = -there
            wanted = requests[p, k]
            for i in np.argsort(there, kind="mergesort"):
                if wanted <= 0.0:
                    break
                r = instance[own[i]]
                taken = min(wanted, left[r, k])
                y[own[i], k] = taken
                left[r, k] -= taken
                wanted -= taken
    return y

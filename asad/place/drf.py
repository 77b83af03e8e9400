"""`drf`: dominant resource fairness; ports with an arrival take in the order of their dominant share, least first.

The dominant share of port l is max_k a_l^k / Σ_r c_r^k over the instances it is connected to. In its turn it takes
min(left, a_l^k) of every resource on each of them. Options: none. Cost of a slot: O(E · K + L log L). Source: Zhao et
al., section 4, after Ghodsi et al., NSDI 2011 (the default of YARN and Mesos).
"""

from __future__ import annotations

import numpy as np

from asad.compiling import compiled
from asad.model import Floats, Ints
from asad.place.ports import PortPolicy, Ports


class Drf(PortPolicy):
    """Least dominant share first."""

    name = "drf"

    def __init__(self, ports: Ports) -> None:
        self.ports = ports
        within = np.zeros_like(ports.requests)
        np.add.at(within, ports.port, ports.capacities[ports.instance])
        asks = ports.requests > 0
        share = np.divide(ports.requests, within, out=np.where(asks, np.inf, 0.0), where=within > 0)
        self.dominant_share = share.max(axis=1, initial=0.0)
        """(L,) inf where a port asks for what is nowhere to be had."""
        rank = np.empty(len(share), np.int32)
        rank[np.argsort(self.dominant_share, kind="stable")] = np.arange(len(share))
        # the ports of each instance in their order; an instance knows nothing of the others
        self._order = np.lexsort((rank[ports.port], ports.instance)).astype(np.int32)

    def allot(self, x: Floats) -> Floats:
        """y (E, K) for arrivals x (L,)."""
        p = self.ports
        found: Floats = _in_order(p.first, p.port, self._order, p.requests, p.capacities, x)
        return found


@compiled
def _in_order(
    first: Ints, port: Ints, order: Ints, requests: Floats, capacities: Floats, x: Floats
) -> Floats:
    resources = capacities.shape[1]
    y = np.zeros((len(port), resources))
    for r in range(len(first) - 1):
        for k in range(resources):
            left = capacities[r, k]
            for position in range(first[r], first[r + 1]):
                e = order[position]
                if x[port[e]] > 0.0:
                    y[e, k] = min(left, requests[port[e], k])
                    left -= y[e, k]
    return y

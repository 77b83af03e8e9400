"""`fairness`: the ports with an arrival share each resource of each instance in proportion to what they ask for.

y = min(a_l, c_r · a_l / Σ a), the sum over the ports connected to r that have an arrival. What a port cannot take goes
to nobody. Options: none. Cost of a slot: O(E · K). Source: Zhao et al., section 4, the best of its baselines.
"""

from __future__ import annotations

import numpy as np

from asad.compiling import compiled
from asad.model import Floats, Ints
from asad.place.ports import PortPolicy, Ports


class Fairness(PortPolicy):
    """In proportion to what ports ask for."""

    name = "fairness"

    def __init__(self, ports: Ports) -> None:
        self.ports = ports

    def allot(self, x: Floats) -> Floats:
        """y (E, K) for arrivals x (L,)."""
        return fair(self.ports, x)


def fair(ports: Ports, x: Floats) -> Floats:
    """Fairness among the ports with x > 0."""
    found: Floats = _fair(ports.first, ports.port, ports.requests, ports.capacities, x)
    return found


@compiled
def _fair(first: Ints, port: Ints, requests: Floats, capacities: Floats, x: Floats) -> Floats:
    resources = capacities.shape[1]
    y = np.zeros((len(port), resources))
    for r in range(len(first) - 1):
        for k in range(resources):
            total = 0.0
            for e in range(first[r], first[r + 1]):
                if x[port[e]] > 0.0:
                    total += requests[port[e], k]
            if total <= 0.0:
                continue
            part = min(1.0, capacities[r, k] / total)
            for e in range(first[r], first[r + 1]):
                if x[port[e]] > 0.0:
                    y[e, k] = requests[port[e], k] * part
    return y

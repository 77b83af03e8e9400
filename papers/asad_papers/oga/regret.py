"""The regret bound of OgaSched: Theorem 1, equation (41), and the step size (55) for which it holds."""

from __future__ import annotations

import math

import numpy as np

from asad.model import Floats
from asad.place.ports import Ports
from asad.place.utilities import slope


def steepest(ports: Ports) -> Floats:
    """(R,) ϖ_r: the greatest f'(0) of any resource of an instance."""
    return np.array(
        [
            max(slope(int(form), float(alpha), 0.0) for form, alpha in zip(forms, alphas, strict=True))
            for forms, alphas in zip(ports.form, ports.alpha, strict=True)
        ]
    )


def diameter_bound(ports: Ports) -> float:
    """(53): no two allocations are further apart."""
    most = ports.requests.max(axis=0, initial=0.0)
    return math.sqrt(2 * float((most * ports.capacities).sum()))


def gradient_bound(ports: Ports) -> float:
    """(50): no gradient is longer, of arrivals of at most one job a port."""
    dominant = float(ports.beta.max(initial=0.0)) ** 2
    steep = steepest(ports)[ports.instance] ** 2
    return math.sqrt(float((dominant + len(ports.beta) * steep).sum()))


def regret_bound(ports: Ports, slots: int) -> float:
    """(41): by how much the strict mode falls behind the best fixed allocation in `slots` slots, at the most, with
    the constant step `step_size`."""
    return math.sqrt(slots) * diameter_bound(ports) * gradient_bound(ports)


def step_size(ports: Ports, slots: int) -> float:
    """η = diam(Y) / (‖∇q‖ √T) with the bounds of both, as in the proof of Theorem 1."""
    steep = gradient_bound(ports)
    return diameter_bound(ports) / (steep * math.sqrt(slots)) if steep > 0 else 1.0

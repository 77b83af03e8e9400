"""The Euclidean projection onto what is feasible (equation 32), exactly, in one pass over all (r, k).

For each instance r and resource k on its own: if Σ_l clip(z_l, 0, a_l) <= c, that is the projection; else it is
clip(z_l - τ, 0, a_l) with the τ > 0 at which the sum is c. That sum falls with τ, linearly between the breakpoints z_l
and z_l - a_l. τ is sought by Newton's method from where it was in the slot before, kept between two bounds by halving:
when the step stays within the piece on which it was computed, it is exact. Most of the time that is the first or
second pass over the few ports of an instance. What rounding leaves above c is taken off the greatest y.

What is called for each (r, k) borrows the arrays of its caller (`_nrt=False`, as `borrowing` in `asad.compiling`): to
count references to them took a third of a slot.

The paper's Algorithm 1 tests only its first port against its cap, and takes it that the capacity is always used up; so
it does not project where another cap binds, or where there is slack.
"""

from __future__ import annotations

import numpy as np

from asad.compiling import compiled
from asad.model import Floats, Ints
from asad.place.ports import Ports


def project(ports: Ports, z: Floats) -> Floats:
    """The allocation nearest to z (E, K), which must be finite. Cost: O(E · K) in all but contrived cases."""
    y = np.array(z, np.float64, order="C")
    tau = np.zeros_like(ports.capacities)
    project_all(ports.first, ports.port, ports.requests, ports.capacities, y, tau)
    return y


@compiled(error_model="numpy")
def project_all(
    first: Ints, port: Ints, requests: Floats, capacities: Floats, y: Floats, tau: Floats
) -> None:
    """Project y (E, K) where it stands; `tau` (R, K) is where to look for τ first, and τ afterwards."""
    widest = 1
    for r in range(len(first) - 1):
        widest = max(widest, first[r + 1] - first[r])
    z, most = np.empty(widest), np.empty(widest)
    for r in range(len(first) - 1):
        begin, many = first[r], first[r + 1] - first[r]
        for k in range(capacities.shape[1]):
            for i in range(many):
                z[i], most[i] = y[begin + i, k], requests[port[begin + i], k]
            tau[r, k] = project_one(z, most, many, capacities[r, k], tau[r, k])
            for i in range(many):
                y[begin + i, k] = z[i]


@compiled(error_model="numpy", _nrt=False)
def project_one(z: Floats, most: Floats, many: int, capacity: float, guess: float) -> float:
    """Project z[:many] onto 0 <= y <= most, Σy <= capacity, where it stands.

    Returns τ; where there is slack, which needs none, `guess`: it may be of use again.
    """
    if many == 1:  # nobody to divide with
        z[0] = min(max(z[0], 0.0), most[0], capacity)
        return guess
    tau = _exact_step(z, most, many, capacity, guess) if guess > 0.0 else -1.0
    if tau <= 0.0:
        total = 0.0
        for i in range(many):
            total += min(max(z[i], 0.0), most[i])
        if total <= capacity:
            for i in range(many):
                z[i] = min(max(z[i], 0.0), most[i])
            return guess
        tau = _threshold(z, most, many, capacity, guess)
    total = 0.0
    for i in range(many):
        z[i] = min(max(z[i] - tau, 0.0), most[i])
        total += z[i]
    excess, growing = total - capacity, 1.0
    while excess > 0.0:
        top = 0
        for i in range(many):
            if z[i] > z[top]:
                top = i
        z[top] = max(0.0, z[top] - growing * excess)
        growing *= 2.0
        total = 0.0
        for i in range(many):
            total += z[i]
        excess = total - capacity
    return tau


@compiled(error_model="numpy", _nrt=False)
def _exact_step(z: Floats, most: Floats, many: int, capacity: float, tau: float) -> float:
    """τ if one Newton step from `tau` gives it; else -1. What is above 0 and fills the capacity is τ."""
    total, falling, left, right = 0.0, 0, -np.inf, np.inf
    for i in range(many):
        over = z[i] - most[i]
        total += min(max(z[i] - tau, 0.0), most[i])
        # without branches: which port stands where is a toss-up
        falling += int(tau > over) & int(tau < z[i])
        left = max(left, z[i] if tau >= z[i] else over if tau > over else -np.inf)
        right = min(right, over if tau <= over else z[i] if tau < z[i] else np.inf)
    if falling == 0:
        return -1.0
    step = tau + (total - capacity) / falling
    return step if left <= step <= right else -1.0


@compiled(error_model="numpy", _nrt=False)
def _threshold(z: Floats, most: Floats, many: int, capacity: float, guess: float) -> float:
    low, high = 0.0, 0.0
    for i in range(many):
        high = max(high, z[i])
    if capacity <= 0.0:
        return high
    tau = guess if low < guess < high else 0.0
    while True:
        # the sum at τ, how many of it fall with τ, and between which breakpoints that holds
        total, falling, left, right = 0.0, 0, low, high
        for i in range(many):
            over = z[i] - most[i]
            if tau <= over:
                total += most[i]
                right = min(right, over)
            elif tau < z[i]:
                total += z[i] - tau
                falling += 1
                left, right = max(left, over), min(right, z[i])
            else:
                left = max(left, z[i])
        if total > capacity:
            low = tau
        else:
            high = tau
        if falling > 0:
            step = tau + (total - capacity) / falling
            if left <= step <= right:
                return step
        else:
            step = right if total > capacity else left  # flat here: on to the end of the piece
        if not low < step < high:
            step = 0.5 * (low + high)
            if not low < step < high:
                return high
        tau = step

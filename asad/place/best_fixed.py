"""The best fixed allocation in hindsight (equation 10), with a bound that proves how good it is.

What a slot is worth on average is concave in y: Σ_l w_l [Σ f(y) - max_k β_k Σ_r y] with w_l the share of slots in which
port l has an arrival. An interior-point method maximises it over y and t_l >= β_k Σ_r y: capacities touch one (r, k)
each and overheads one (l, k), so that a Newton step is K systems of L unknowns beside sums over edges. For any weights
λ_l of the resources (in place of the maximum) and any prices ν_rk of the capacities the dual function bounds the
optimum from above; those that the barrier leaves prove the result to `tolerance`. Cost: O(R · L² · K) a Newton step,
40 to 90 of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from asad.errors import AsadError
from asad.model import Codes, Floats, Ints
from asad.place.ports import Ports
from asad.place.projection import project
from asad.place.utilities import curvature, gain, slope, taken_at

SHRINK = 0.15
STEPS = 400


class BestFixed(NamedTuple):
    """An optimum and its proof."""

    y: Floats
    """(E, K)."""
    reward: float
    """What it is worth in a mean slot."""
    bound: float
    """No fixed allocation is worth more."""


def best_fixed(ports: Ports, weights: Floats, tolerance: float = 1e-7) -> BestFixed:
    """Of arrivals with means `weights` (L,), to `tolerance` of the optimum (relative, or absolute below 1).

    Raises AsadError if it cannot be proven so closely.
    """
    solver = _Barrier(ports, weights)
    found = solver.run(tolerance)
    gap = found.bound - found.reward
    if gap > 100 * tolerance * max(1.0, abs(found.reward)):
        raise AsadError(f"the best fixed allocation is known to {gap:.3g} only, of {found.reward:.6g}")
    return found


class _Barrier:
    """Minimise -F(y, t) - μ Σ log(slacks) for falling μ."""

    def __init__(self, ports: Ports, weights: Floats) -> None:
        self.ports = ports
        self.weights = np.ascontiguousarray(weights, np.float64)
        resources = ports.requests.shape[1]
        # pairs that can hold anything, and are ever asked to
        edge, k = np.nonzero(
            (ports.caps > 0) & (ports.capacities[ports.instance] > 0) & (weights[ports.port] > 0)[:, None]
        )
        self.edge, self.k = edge, k
        self.l, self.r = ports.port[edge].astype(np.int64), ports.instance[edge].astype(np.int64)
        self.most = ports.requests[self.l, k]
        self.alpha, self.form = ports.alpha[self.r, k], ports.form[self.r, k]
        self.w = self.weights[self.l]
        self.block = self.r * resources + k
        self.total = self.l * resources + k
        self.shape = (len(ports.requests), resources)
        self.blocks = len(ports.capacities) * resources
        self.c = ports.capacities.reshape(-1)
        self.used = np.bincount(self.block, minlength=self.blocks) > 0
        self.busy = np.flatnonzero(weights > 0)
        self.slacks = 2 * len(edge) + int(self.used.sum()) + len(self.busy) * resources

    def sums(self, values: Floats, index: NDArray[np.int64], many: int) -> Floats:
        return np.bincount(index, values, many)

    def totals(self, y: Floats) -> Floats:
        return self.sums(y, self.total, self.shape[0] * self.shape[1]).reshape(self.shape)

    def allocation(self, y: Floats) -> Floats:
        found = self.ports.empty()
        found[self.edge, self.k] = y
        return project(self.ports, found)

    def run(self, tolerance: float) -> BestFixed:
        if not len(self.edge):
            return BestFixed(self.ports.empty(), 0.0, 0.0)
        beta = self.ports.beta
        many = np.bincount(self.block, minlength=self.blocks)
        y = 0.5 * np.minimum(self.most, self.c[self.block] / many[self.block])
        overhead = (beta * self.totals(y)).max(axis=1)
        t = overhead + 0.1 * overhead.max() + 1e-3
        mu = max(1e-3, abs(self.ports.reward(self.allocation(y), self.weights))) / self.slacks
        best: BestFixed | None = None
        left = STEPS
        while left > 0:
            y, t, used = self.centre(y, t, mu, left)
            left -= used
            allocation = self.allocation(y)
            reward = self.ports.reward(allocation, self.weights)
            bound = self.bound(y, t, mu)
            if best is None or reward > best.reward:
                best = BestFixed(allocation, reward, bound if best is None else min(bound, best.bound))
            else:
                best = best._replace(bound=min(bound, best.bound))
            if best.bound - best.reward <= tolerance * max(1.0, abs(best.reward)):
                break
            mu *= SHRINK
        assert best is not None
        return best

    def merit(self, y: Floats, t: Floats, mu: float) -> float:
        """The barrier function, inf outside."""
        room = self.c - self.sums(y, self.block, self.blocks)
        gaps = t[:, None] - self.ports.beta * self.totals(y)
        parts = (y, self.most - y, room[self.used], gaps[self.busy].ravel())
        if any(part.min() <= 0 for part in parts):
            return np.inf
        logs = sum(float(np.log(part).sum()) for part in parts)
        gains = _gains(self.form, self.alpha, y)
        return float(-(self.w @ gains) + self.weights @ t - mu * logs)

    def centre(self, y: Floats, t: Floats, mu: float, left: int) -> tuple[Floats, Floats, int]:
        """Newton's method for one μ."""
        worth = self.merit(y, t, mu)
        for step in range(min(left, 40)):
            dy, dt, slope_along = self.newton(y, t, mu)
            if -slope_along <= 1e-7 * mu * self.slacks:
                return y, t, step + 1
            length = 1.0
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(dy < 0, -y / dy, np.where(dy > 0, (self.most - y) / dy, np.inf)).min()
            length = min(1.0, 0.99 * float(reach))
            while length > 1e-10:
                y_new, t_new = y + length * dy, t + length * dt
                there = self.merit(y_new, t_new, mu)
                if there <= worth + 0.1 * length * slope_along:
                    break
                length *= 0.6
            else:
                return y, t, step + 1  # rounding stands in the way: as good as it gets
            y, t, worth = y_new, t_new, there
        return y, t, min(left, 40)

    def newton(self, y: Floats, t: Floats, mu: float) -> tuple[Floats, Floats, float]:
        """The Newton step and the derivative along it."""
        beta = self.ports.beta
        ports, resources = self.shape
        room = np.where(self.used, self.c - self.sums(y, self.block, self.blocks), 1.0)
        gaps = t[:, None] - beta * self.totals(y)
        pull = np.where((self.weights > 0)[:, None], mu / gaps, 0.0)
        over = self.most - y
        slopes, curves = _derivatives(self.form, self.alpha, y)
        gy = -self.w * slopes - mu / y + mu / over + (mu / room)[self.block]
        gy += (beta * pull)[self.l, self.k]
        gt = self.weights - pull.sum(axis=1)
        diagonal = -self.w * curves + mu / (y * y) + mu / (over * over)
        # the inverse of the Hessian without overheads: a diagonal and one vector a block (Sherman and Morrison)
        inverse = 1.0 / diagonal
        stiff = mu / (room * room)
        h = stiff / (1.0 + stiff * self.sums(inverse, self.block, self.blocks))

        def solve(v: Floats) -> Floats:
            out = inverse * v
            return out - inverse * (h * self.sums(out, self.block, self.blocks))[self.block]

        base = solve(gy)
        right = self.totals(base) * beta
        busy = self.busy
        dt = np.zeros(ports)
        force = np.zeros((ports, resources))
        inverses = []
        left_side = np.zeros((len(busy), len(busy)))
        right_side = -gt[busy]
        for k in range(resources):
            here = self.k == k
            table = np.zeros((len(self.ports.capacities), ports))
            table[self.r[here], self.l[here]] = inverse[here]
            table = table[:, busy]
            of_k = h.reshape(-1, resources)[:, k]
            matrix = np.diag(table.sum(axis=0)) - table.T @ (of_k[:, None] * table)
            matrix *= beta[k] * beta[k]
            matrix[np.diag_indices_from(matrix)] += gaps[busy, k] ** 2 / mu
            inverted = np.linalg.inv(matrix)
            inverses.append(inverted)
            left_side += inverted
            right_side = right_side - inverted @ right[busy, k]
        dt[busy] = np.linalg.solve(left_side, right_side)
        for k in range(resources):
            force[busy, k] = inverses[k] @ (right[busy, k] + dt[busy])
        dy = -base + solve((beta * force)[self.l, self.k])
        return dy, dt, float(gy @ dy + gt @ dt)

    def bound(self, y: Floats, t: Floats, mu: float) -> float:
        """The dual function at the weights and prices that the barrier leaves."""
        gaps = t[:, None] - self.ports.beta * self.totals(y)
        pull = np.where((self.weights > 0)[:, None], mu / np.maximum(gaps, 1e-300), 0.0)
        whole = pull.sum(axis=1, keepdims=True)
        shares = np.divide(pull, whole, out=np.zeros_like(pull), where=whole > 0)
        prices = self.weights[:, None] * shares * self.ports.beta
        p = self.ports
        return float(
            _dual(p.first, p.port, p.requests, p.capacities, p.alpha, p.form, self.weights, prices)
        )


@njit(cache=True)
def _gains(form: Codes, alpha: Floats, y: Floats) -> Floats:
    found = np.empty(len(y))
    for i in range(len(y)):
        found[i] = gain(form[i], alpha[i], y[i])
    return found


@njit(cache=True)
def _derivatives(form: Codes, alpha: Floats, y: Floats) -> tuple[Floats, Floats]:
    first, second = np.empty(len(y)), np.empty(len(y))
    for i in range(len(y)):
        first[i] = slope(form[i], alpha[i], y[i])
        second[i] = curvature(form[i], alpha[i], y[i])
    return first, second


@njit(cache=True)
def _dual(
    first: Ints,
    port: Ints,
    requests: Floats,
    capacities: Floats,
    alpha: Floats,
    form: Codes,
    weights: Floats,
    overheads: Floats,
) -> float:
    """Σ over (r, k) of the least, over prices ν, of ν c + Σ_l max_y w f(y) - (overhead + ν) y. Any ν is a bound."""
    bound = 0.0
    for r in range(len(first) - 1):
        for k in range(capacities.shape[1]):
            low, high = 0.0, 0.0
            for e in range(first[r], first[r + 1]):
                l = port[e]  # noqa: E741
                high = max(high, weights[l] * slope(form[r, k], alpha[r, k], 0.0))
            for turn in range(100):
                price = 0.0 if turn == 0 else 0.5 * (low + high)
                total = 0.0
                for e in range(first[r], first[r + 1]):
                    l = port[e]  # noqa: E741
                    if weights[l] > 0.0:
                        each = (overheads[l, k] + price) / weights[l]
                        total += taken_at(form[r, k], alpha[r, k], each, requests[l, k])
                if total > capacities[r, k]:
                    low = price
                else:
                    high = price
                    if turn == 0:
                        break
            price = high
            bound += price * capacities[r, k]
            for e in range(first[r], first[r + 1]):
                l = port[e]  # noqa: E741
                if weights[l] > 0.0:
                    each = overheads[l, k] + price
                    y = taken_at(form[r, k], alpha[r, k], each / weights[l], requests[l, k])
                    bound += weights[l] * gain(form[r, k], alpha[r, k], y) - each * y
    return bound

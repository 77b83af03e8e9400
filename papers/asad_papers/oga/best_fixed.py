"""The best fixed allocation in hindsight (equation 10), with a bound that proves how good it is.

What a slot is worth on average is concave in y: Σ_l w_l [Σ f(y) - max_k β_k Σ_r y] with w_l the share of slots in which
port l has an arrival. An interior-point method maximises it over y and t_l >= β_k Σ_r y: capacities touch one (r, k)
each and overheads one (l, k), so that a Newton step is one system of L · (K + 1) unknowns beside sums over edges. For
any weights λ_l of the resources (in place of the maximum) and any prices ν_rk of the capacities the dual function
bounds the optimum from above; those that the barrier leaves prove the result to `tolerance`. Cost of a Newton step:
O(E · D · K + L³ · K³) with D ports an instance; it takes 60 to 150.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from asad.compiling import compiled
from asad.errors import AsadError
from asad.model import Codes, Floats, Ints
from asad.place.ports import Ports
from asad.place.projection import project
from asad.place.utilities import curvature, gain, slope, taken_at

SHRINK = 0.15
STEPS = 400
REFINEMENTS = 2
"""Of a Newton step, whose matrix is ill-conditioned where linear utilities meet a capacity."""


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
        self.order = np.argsort(self.block, kind="stable")
        self.start = np.searchsorted(
            self.block[self.order], np.arange(len(ports.capacities) * resources + 1), "left"
        )
        self.shape = (len(ports.requests), resources)
        self.blocks = len(ports.capacities) * resources
        self.c = ports.capacities.reshape(-1)
        self.used = np.bincount(self.block, minlength=self.blocks) > 0
        self.busy = np.flatnonzero(weights > 0)
        self.slacks = 2 * len(edge) + int(self.used.sum()) + len(self.busy) * resources

    def sums(self, values: Floats, index: NDArray[np.int64], many: int) -> Floats:
        return np.bincount(index, values, many).astype(np.float64, copy=False)

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
            if mu * self.slacks < 1e-3 * tolerance * max(1.0, abs(best.reward)):
                break  # beyond what rounding lets it see
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
        slack = 1e-13 * abs(worth)  # what rounding may do to it
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
                if there <= worth + 0.1 * length * slope_along + slack:
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
        # the Hessian without overheads: a diagonal and one vector a block
        inverse, stiff = 1.0 / diagonal, mu / (room * room)

        def solve(v: Floats) -> Floats:
            found: Floats = _solve_blocks(self.order, self.start, inverse, stiff, v)
            return found

        busy = self.busy
        matrices = _overhead_matrices(self.order, self.start, self.l, self.k, inverse, stiff, beta, ports)
        # overheads' forces v and the steps of t together, scaled, by elimination with pivots: G is near singular where
        # ports of equal requests share instances, and inverses of its parts would not do
        some = len(busy)
        system = np.zeros((some * (resources + 1),) * 2)
        size = np.empty(some * resources)
        for k in range(resources):
            here = slice(k * some, (k + 1) * some)
            matrix = matrices[k][np.ix_(busy, busy)]
            matrix[np.diag_indices_from(matrix)] += gaps[busy, k] ** 2 / mu
            size[here] = 1.0 / np.sqrt(np.diag(matrix))
            system[here, here] = size[here, None] * matrix * size[here]
            system[here, some * resources :] = -np.diag(size[here])
            system[some * resources :, here] = np.diag(size[here])
        factors = lu_factor(system, check_finite=False)

        def back(ry: Floats, rt: Floats) -> tuple[Floats, Floats]:
            """Solve for a right side."""
            moved = (beta * self.totals(solve(ry)))[busy].T.ravel()
            found = lu_solve(factors, np.concatenate([-size * moved, rt[busy]]), check_finite=False)
            dt = np.zeros(ports)
            dt[busy] = found[some * resources :]
            force = np.zeros((ports, resources))
            force[busy] = (size * found[: some * resources]).reshape(resources, some).T
            return solve(ry + (beta * force)[self.l, self.k]), dt

        dy, dt = back(-gy, -gt)
        firm = np.where((self.weights > 0)[:, None], mu / (gaps * gaps), 0.0)
        for _ in range(REFINEMENTS):
            pushed = firm * (dt[:, None] - beta * self.totals(dy))
            ry = diagonal * dy + (stiff * self.sums(dy, self.block, self.blocks))[self.block]
            ry -= (beta * pushed)[self.l, self.k]
            ey, et = back(-gy - ry, -gt - pushed.sum(axis=1))
            dy, dt = dy + ey, dt + et
        return dy, dt, float(gy @ dy + gt @ dt)

    def bound(self, y: Floats, t: Floats, mu: float) -> float:
        """The dual function at the weights and prices that the barrier leaves."""
        gaps = t[:, None] - self.ports.beta * self.totals(y)
        pull = np.where((self.weights > 0)[:, None], mu / np.maximum(gaps, 1e-300), 0.0)
        whole = pull.sum(axis=1, keepdims=True)
        shares = np.divide(pull, whole, out=np.zeros_like(pull), where=whole > 0)
        prices = self.weights[:, None] * shares * self.ports.beta
        p = self.ports
        return float(_dual(p.first, p.port, p.requests, p.capacities, p.alpha, p.form, self.weights, prices))


@compiled
def _solve_blocks(
    order: NDArray[np.int64], start: NDArray[np.int64], inverse: Floats, stiff: Floats, v: Floats
) -> Floats:
    """(D + Σ_block s 1 1ᵀ)⁻¹ v, with inverse = 1/D. (Sherman and Morrison; written with differences of v, since s/D
    reaches 1e14 where a capacity binds, and the usual form would lose as many digits.)"""
    out = np.empty(len(v))
    for b in range(len(start) - 1):
        total = 0.0
        for p in range(start[b], start[b + 1]):
            total += inverse[order[p]]
        for p in range(start[b], start[b + 1]):
            i = order[p]
            apart = 0.0
            for q in range(start[b], start[b + 1]):
                j = order[q]
                apart += inverse[j] * (v[i] - v[j])
            out[i] = inverse[i] * (stiff[b] * apart + v[i]) / (1.0 + stiff[b] * total)
    return out


@compiled
def _overhead_matrices(
    order: NDArray[np.int64],
    start: NDArray[np.int64],
    port: NDArray[np.int64],
    resource: NDArray[np.int64],
    inverse: Floats,
    stiff: Floats,
    beta: Floats,
    ports: int,
) -> Floats:
    """(K, L, L): of each resource, the inverse Hessian as seen from the overheads β_k Σ_r y of the ports."""
    out = np.zeros((len(beta), ports, ports))
    for b in range(len(start) - 1):
        total = 0.0
        for p in range(start[b], start[b + 1]):
            total += inverse[order[p]]
        for p in range(start[b], start[b + 1]):
            i = order[p]
            k = resource[i]
            scale = beta[k] * beta[k] * inverse[i] / (1.0 + stiff[b] * total)
            others = 0.0
            for q in range(start[b], start[b + 1]):
                j = order[q]
                if j != i:
                    others += inverse[j]
                    out[k, port[i], port[j]] -= scale * stiff[b] * inverse[j]
            out[k, port[i], port[i]] += scale * (1.0 + stiff[b] * others)
    return out


@compiled
def _gains(form: Codes, alpha: Floats, y: Floats) -> Floats:
    found = np.empty(len(y))
    for i in range(len(y)):
        found[i] = gain(form[i], alpha[i], y[i])
    return found


@compiled
def _derivatives(form: Codes, alpha: Floats, y: Floats) -> tuple[Floats, Floats]:
    first, second = np.empty(len(y)), np.empty(len(y))
    for i in range(len(y)):
        first[i] = slope(form[i], alpha[i], y[i])
        second[i] = curvature(form[i], alpha[i], y[i])
    return first, second


@compiled
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
                p = port[e]
                high = max(high, weights[p] * slope(form[r, k], alpha[r, k], 0.0))
            for turn in range(100):
                price = 0.0 if turn == 0 else 0.5 * (low + high)
                total = 0.0
                for e in range(first[r], first[r + 1]):
                    p = port[e]
                    if weights[p] > 0.0:
                        each = (overheads[p, k] + price) / weights[p]
                        total += taken_at(form[r, k], alpha[r, k], each, requests[p, k])
                if total > capacities[r, k]:
                    low = price
                else:
                    high = price
                    if turn == 0:
                        break
            price = high
            bound += price * capacities[r, k]
            for e in range(first[r], first[r + 1]):
                p = port[e]
                if weights[p] > 0.0:
                    each = overheads[p, k] + price
                    y = taken_at(form[r, k], alpha[r, k], each / weights[p], requests[p, k])
                    bound += weights[p] * gain(form[r, k], alpha[r, k], y) - each * y
    return bound

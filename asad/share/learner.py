"""Algorithm 1 of ASAx: exponential weights over experts, per application, with a cluster-wide prior.

Sources: the ASAx paper, Algorithm 1, eqs. (2)-(5), Theorem 1. Two updates are shipped:

`paper`
    α_t ∝ α_{t-1}·exp(-γ_t r_t), as printed. Its proof bounds the excess risk *weighted by γ* by ln n + ½Σγ_s²; the
    last step to Theorem 1 divides by γ_t, which needs every term of the sum to be non-negative. It is not: with the
    best expert changing late, E_t grows linearly (tests/property/test_learner.py has the case).
`asad`
    α_t ∝ exp(-γ_t·(prior + Σ_s r_s)), the same weights but for one γ over all the past. For it E_t ≤ ln n/γ_t + ½Σγ_s
    (exponential weights with a non-increasing rate and losses in [0, 2]), which is at most Theorem 1's bound.

Both keep r_t within [0, 2], which Hoeffding's lemma in the proof needs: a round ends when r exceeds 1, and one case
adds at most 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled

PAPER, ASAD = 0, 1


class Weights(NamedTuple):
    """What is known of n experts for each of A applications; the last row is the whole cluster."""

    alpha: NDArray[np.float64]
    """(A + 1, n) weights; each row sums to 1."""
    prior: NDArray[np.float64]
    """(A + 1, n) risk that stands for what the cluster had learned when the application was first seen."""
    round_risk: NDArray[np.float64]
    """(A + 1, n) r of the round under way."""
    risk: NDArray[np.float64]
    """(A + 1, n) Σ r over ended rounds."""
    mixture_risk: NDArray[np.float64]
    """(A + 1,) Σ α·r over ended rounds."""
    gamma_squares: NDArray[np.float64]
    """(A + 1,) Σ γ²."""
    rounds: NDArray[np.int64]
    """(A + 1,) ended rounds; -1 for an application never seen."""
    cases: NDArray[np.int64]
    """(A + 1,) cases of the round under way."""


def new_weights(applications: int, experts: int) -> Weights:
    """Uniform weights over `experts`, nothing seen yet."""
    shape = (applications + 1, experts)
    weights = Weights(
        alpha=np.full(shape, 1.0 / experts),
        prior=np.zeros(shape),
        round_risk=np.zeros(shape),
        risk=np.zeros(shape),
        mixture_risk=np.zeros(applications + 1),
        gamma_squares=np.zeros(applications + 1),
        rounds=np.full(applications + 1, -1, np.int64),
        cases=np.zeros(applications + 1, np.int64),
    )
    weights.rounds[-1] = 0
    return weights


@compiled
def gamma(experts: int, t: int) -> float:
    """γ_t = √(ln n / t) for t ≥ 1; non-increasing."""
    return float(np.sqrt(np.log(max(experts, 2)) / t))


@compiled
def meet(w: Weights, application: int) -> None:
    """An application seen for the first time starts from what the whole cluster has learned."""
    if w.rounds[application] < 0:
        w.rounds[application] = 0
        w.alpha[application] = w.alpha[-1]
        rate = gamma(w.alpha.shape[1], 1)
        for i in range(w.alpha.shape[1]):
            w.prior[application, i] = -np.log(max(w.alpha[-1, i], 1e-300)) / rate


@borrowing
def draw(
    p: NDArray[np.float64],
    alpha: NDArray[np.float64],
    exploration: float,
    mixture: NDArray[np.float64],
    u: float,
) -> int:
    """Mix the experts into `mixture`, add the exploration floor, draw an action by `u` in [0, 1); its index."""
    count = len(mixture)
    total = 0.0
    for j in range(count):
        mixture[j] = 0.0
        for i in range(len(alpha)):
            mixture[j] += alpha[i] * p[i, j]
        total += mixture[j]
    drawn = -1
    for j in range(count):
        part = mixture[j] / total if total > 0 else 1 / count
        mixture[j] = exploration / count + (1 - exploration) * part
        if u >= 0:
            drawn = j
        u -= mixture[j]
    return drawn


@compiled
def add_case(w: Weights, row: int, increments: NDArray[np.float64], mode: int, most_cases: int) -> bool:
    """Add one case's risk p_i(a_j)·ℓ (each in [0, 1]) to the round of `row`; end the round if it is due.

    A round ends when the greatest risk exceeds 1, or after `most_cases` cases (0: never for that reason, which is
    the paper's). Returns whether it ended.
    """
    n = w.alpha.shape[1]
    greatest = 0.0
    for i in range(n):
        w.round_risk[row, i] += increments[i]
        greatest = max(greatest, w.round_risk[row, i])
    w.cases[row] += 1
    if greatest <= 1.0 and (most_cases == 0 or w.cases[row] < most_cases):
        return False
    w.rounds[row] += 1
    rate = gamma(n, w.rounds[row])
    w.gamma_squares[row] += rate * rate
    total = 0.0
    for i in range(n):
        w.mixture_risk[row] += w.alpha[row, i] * w.round_risk[row, i]
        w.risk[row, i] += w.round_risk[row, i]
    if mode == PAPER:
        for i in range(n):
            w.alpha[row, i] *= np.exp(-rate * w.round_risk[row, i])
            total += w.alpha[row, i]
    else:
        following = gamma(n, w.rounds[row] + 1)
        least = (w.prior[row] + w.risk[row]).min()
        for i in range(n):
            w.alpha[row, i] = np.exp(-following * (w.prior[row, i] + w.risk[row, i] - least))
            total += w.alpha[row, i]
    for i in range(n):
        w.alpha[row, i] /= total
        w.round_risk[row, i] = 0.0
    w.cases[row] = 0
    return True


@compiled
def excess_risk(w: Weights, row: int) -> float:
    """E_t of eq. (4): risk of the mixture over that of the best expert."""
    return float(w.mixture_risk[row] - w.risk[row].min())


@compiled
def bound(w: Weights, row: int) -> float:
    """Theorem 1's bound on the excess risk, (ln n + ½ Σ γ²)/γ_t; 0 before the first round."""
    if w.rounds[row] < 1:
        return 0.0
    n = w.alpha.shape[1]
    return float((np.log(n) + 0.5 * w.gamma_squares[row]) / gamma(n, w.rounds[row]))

"""The launch plan that is best for a job under a menu: equations (1) and (2).

Source: 004, section 3. For each arrival and signal on its own, the start s that maximises

    Σ_d P(d | arrival, signal) · (1 - π(s, c, d)) · (v(s + d) - λ(s, c, d))

or never, where that is nowhere above 0. Ties go to the earliest start. Cost: O(rows · span).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from asad.admit.sow.statement import NEVER


@njit(cache=True)
def best_plan(  # type: ignore[no-untyped-def]
    now, arrival, signal, duration, probability, worth, price, failure,
    plan_arrival, plan_signal, plan_start, plan_failure, plan_price,
):  # fmt: skip
    """Rows (k,) of a statement sorted by arrival and signal → rows (m,) of its plan; `worth` by finish, from `now` on.

    Returns m, the expected utility and the expected payment.
    """
    rows = len(arrival)
    starts, durations = price.shape
    m, row = 0, 0
    utility, payment = 0.0, 0.0
    while row < rows:
        end = row + 1
        while end < rows and arrival[end] == arrival[row] and signal[end] == signal[row]:
            end += 1
        best, at = 0.0, -1
        for i in range(max(0, arrival[row] - now), starts):
            gain = 0.0
            for k in range(row, end):
                d = duration[k]
                if not price[i, d - 1] < np.inf:
                    gain = -np.inf
                    break
                gain += probability[k] * (1.0 - failure[i, d - 1]) * (worth[i + d] - price[i, d - 1])
            if gain > best:
                best, at = gain, i
        plan_arrival[m], plan_signal[m] = arrival[row], signal[row]
        plan_failure[m] = 0.0
        plan_price[m, :] = 0.0
        if at < 0:
            plan_start[m] = NEVER
        else:
            plan_start[m] = now + at
            weight, failed = 0.0, 0.0
            for k in range(row, end):
                d = duration[k] - 1
                weight += probability[k]
                failed += probability[k] * failure[at, d]
                payment += probability[k] * (1.0 - failure[at, d]) * price[at, d]
            plan_failure[m] = failed / weight
            for d in range(durations):
                # where longer is not sold, that it lasts longer than stated costs what the longest does
                longest = price[at, d] < np.inf
                plan_price[m, d] = price[at, d] if longest else plan_price[m, d - 1]
            utility += best
        m += 1
        row = end
    return m, utility, payment

"""The launch plan that is best for a job under a menu: equations (1) and (2).

Source: 004, section 3. For each arrival and signal on its own, the start s that maximises

    Σ_d P(d | arrival, signal) · (1 - π(s, c, d)) · (v(s + d) - λ(s, c, d))

or never, where that is nowhere above 0. Ties go to the earliest start. Cost: O(rows · span).

A start is sold for so many rounds as have a price. A run that lasts into a round that is not sold is ended there: it
fails for sure, and pays nothing. So nobody gains by hiding that he may last longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asad.admit.sow.statement import NEVER, Answer, LaunchPlan, Statement
from asad.compiling import compiled
from asad.model import Floats, Ints

KINDS = {"deadline": 0, "linear": 1, "own": 2}


@dataclass(frozen=True, slots=True, eq=False)
class Best(Answer):
    """What `best_plan` found, with what is planned and learned of the statement besides."""

    row_start: Ints
    """(k,) by row of the statement."""
    row_length: Ints
    """(k,) rounds that it runs if it comes so, at most those that are sold."""
    at_once: float
    """Expected value if it started on arrival and did not fail."""
    volume: float
    """Expected units times rounds of its run."""


def best_plan(
    now: int, statement: Statement, price: Floats, failure: Floats, least: float, unsold: float
) -> Best:
    """For a job born in round `now`; (S, D) `price` and `failure` by start from `now` on.

    What is worth less than `least` is worth nothing. `unsold`, more than any round costs, stands for the price of one
    that is not sold, in the rows of prices that jobs are announced.
    """
    rows, worth = len(statement.arrival), statement.worth
    plan = np.empty((3, rows), np.int32)
    row_start, row_length = np.empty((2, rows), np.int32)
    failed, paid = np.empty(rows), np.empty((rows, price.shape[1]))
    count, utility, payment, at_once, volume, hopeless = _best(
        now, statement.arrival, statement.signal, statement.duration, statement.probability, statement.birth,
        KINDS[worth.kind], worth.value, worth.deadline, worth.span, np.array(worth.table, np.float64),
        price, failure, least, unsold, plan, row_start, row_length, failed, paid,
    )  # fmt: skip
    made = LaunchPlan(plan[0, :count], plan[1, :count], plan[2, :count])
    return Best(
        made, utility, payment, failed[:count], paid[:count], hopeless, row_start, row_length, at_once, volume
    )


def rounds_sold(price: Floats, unsold: float) -> int | None:
    """Of a row of prices that a job was announced: the rounds that are sold to it; None: as many as it lasts."""
    steps = np.flatnonzero(np.diff(price) >= unsold * (1.0 - 1e-6))
    return int(steps[0]) + 1 if len(steps) else None


def row_starts(statement: Statement, plan: LaunchPlan) -> Ints:
    """(k,) by row of the statement: when it starts if it comes so; `NEVER` where it does not run."""
    starts = np.full(len(statement.arrival), NEVER, np.int32)
    for arrival, signal, start in zip(plan.arrival, plan.signal, plan.start, strict=True):
        starts[(statement.arrival == arrival) & (statement.signal == signal)] = start
    return starts


@compiled
def _best(
    now: int, arrival: Ints, signal: Ints, duration: Ints, probability: Floats,
    birth: int, kind: int, value: float, deadline: int, span: int, table: Floats,
    price: Floats, failure: Floats, least: float, unsold: float,
    plan: Ints, row_start: Ints, row_length: Ints, plan_failure: Floats, plan_price: Floats,
) -> tuple[int, float, float, float, float, bool]:  # fmt: skip
    rows = len(arrival)
    starts, durations = price.shape
    m, row = 0, 0
    utility, payment, at_once, volume = 0.0, 0.0, 0.0, 0.0
    worth = np.empty(starts + durations)
    for i in range(len(worth)):
        finish = now + i
        after = finish - birth
        if finish > deadline:
            worth[i] = 0.0
        elif kind == 0:
            worth[i] = value
        elif kind == 1:
            worth[i] = value * max(0.0, 1.0 - after / span)
        else:
            worth[i] = table[after] if after < len(table) else 0.0
        if worth[i] < least:
            worth[i] = 0.0
    # values never rise with time
    most = worth[min(len(worth) - 1, max(0, arrival[0] - now) + 1)]
    while row < rows:
        end = row + 1
        while end < rows and arrival[end] == arrival[row] and signal[end] == signal[row]:
            end += 1
        earliest = max(0, arrival[row] - now)
        best, at = 0.0, -1
        for i in range(earliest, starts):
            gain = 0.0
            for k in range(row, end):
                d = duration[k]
                if price[i, d - 1] < np.inf:
                    gain += probability[k] * (1.0 - failure[i, d - 1]) * (worth[i + d] - price[i, d - 1])
            if gain > best:
                best, at = gain, i
        plan[0, m], plan[1, m] = arrival[row], signal[row]
        plan[2, m] = NEVER if at < 0 else now + at
        plan_failure[m] = 0.0
        plan_price[m, :] = 0.0
        weight, failed = 0.0, 0.0
        for k in range(row, end):
            row_start[k] = plan[2, m]
            row_length[k] = duration[k]
            if at >= 0:
                while not price[at, row_length[k] - 1] < np.inf:
                    row_length[k] -= 1
            volume += probability[k] * duration[k]
            if earliest < starts:
                at_once += probability[k] * worth[earliest + duration[k]]
            if at >= 0:
                d = duration[k] - 1
                weight += probability[k]
                if price[at, d] < np.inf:
                    failed += probability[k] * failure[at, d]
                    payment += probability[k] * (1.0 - failure[at, d]) * price[at, d]
                else:
                    failed += probability[k]
        if at >= 0:
            plan_failure[m] = failed / weight
            for d in range(durations):
                plan_price[m, d] = price[at, d] if price[at, d] < np.inf else plan_price[m, d - 1] + unsold
            utility += best
        m += 1
        row = end
    return m, utility, payment, at_once, volume, bool(most <= 0.0)

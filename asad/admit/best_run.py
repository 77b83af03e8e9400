"""The run of the greatest payoff for one rigid job at given prices: consecutive slots, the same servers in all of them.

The OASiS paper does not have such jobs. For every start, a server's price is the sum over the slots and its room the
least of them; greedy again. Cost: O(T·(H + K)·(R + log T)) to prepare, and O((H + K)·log(H + K)) for every start that
may be the best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asad.admit.best_schedule import Found
from asad.admit.server_prices import (
    ROUNDING,
    Array,
    Counts,
    Need,
    Side,
    choose,
    hold,
    offers,
    servers_for,
    sums,
)
from asad.compiling import compiled


class Windows(NamedTuple):
    """What one task costs on each server, and how many fit there, over the same number of slots from each start."""

    total: Array
    """(n + 1, H) price of a task, summed over the slots before."""
    room: Array
    """(starts, H)"""
    most: Counts
    """(starts,) how many fit on all servers together, as far as one slot after the other shows."""


@compiled
def _windows(side: Side, rows: Counts, demand: Array, most: int, length: int) -> Windows:
    """Over `length` slots, which are as many as there are rows at most."""
    slots, servers = len(rows), side.price.shape[2]
    total, room = np.zeros((slots + 1, servers)), np.empty((slots, servers))
    unit, together = np.empty(servers), np.empty(slots, np.int64)
    for t in range(slots):
        together[t] = offers(side, rows[t], demand, most, unit, room[t])
        total[t + 1] = total[t] + unit
    span = 1
    while 2 * span <= length:  # the least of two slots, of four, …
        for t in range(slots - 2 * span + 1):
            room[t] = np.minimum(room[t], room[t + span])
            together[t] = min(together[t], together[t + span])
        span *= 2
    for t in range(slots - length + 1):
        room[t] = np.minimum(room[t], room[t + length - span])
        together[t] = min(together[t], together[t + length - span])
    return Windows(total, room[: slots - length + 1], together[: slots - length + 1])


@compiled
def _run_cost(windows: Windows, start: int, length: int, count: int) -> float:
    """Of `count` tasks that stay where they are for `length` slots; infinite if they do not fit."""
    if count == 0:
        return 0.0
    room = windows.room[start]
    if room.sum() < count or windows.most[start] < count:
        return np.inf
    unit = windows.total[start + length] - windows.total[start]
    cost: float = sums(unit, room, count)[count]
    return cost


@compiled
def best_run(
    workers: Side,
    servers: Side,
    rows: Counts,
    need: Need,
    width: int,
    worth: Array,
    least_payoff: float = 0.0,
    earliest: bool = False,
) -> Found:
    """As `best_schedule`, for a job that has `width` workers on the same servers in consecutive slots.

    `earliest`: the first start at which it fits, whatever the payoff.
    """
    none = np.zeros(0, np.int64)
    nothing = Found(-1, least_payoff, np.inf, 0.0, 0.0, none)
    slots, length = len(rows), -(-need.work // width)
    beside = servers_for(need.servers_per_worker, width)
    if length > slots or beside > width:
        return nothing
    at = _windows(workers, rows, need.worker, width, length)
    at_beside = _windows(servers, rows, need.server, max(1, beside), length)
    start, best, closest = -1, nothing, nothing
    for s in range(slots - length + 1):
        end = s + length - 1
        if best.end >= 0 and worth[end] <= best.payoff:
            break
        cost = _run_cost(at, s, length, width)
        if cost < np.inf:
            cost += _run_cost(at_beside, s, length, beside)
        if cost == np.inf:
            continue
        payoff = worth[end] - cost
        if earliest or payoff > best.payoff + ROUNDING * max(1.0, abs(worth[end])):
            start, best = s, Found(end, payoff, cost, worth[end], 0.0, none)
        if worth[end] * closest.cost > closest.utility * cost or closest.cost == np.inf:
            closest = Found(-1, least_payoff, cost, worth[end], 0.0, none)
        if earliest:
            break
    if start < 0:
        return closest
    widths = np.zeros(best.end + 1, np.int64)
    widths[start:] = width
    return Found(best.end, best.payoff, best.cost, best.utility, 0.0, widths)


@compiled
def take_run(side: Side, rows: Counts, demand: Array, count: int) -> tuple[Counts, Counts]:
    """Take the servers that are cheapest over all these rows together for `count` tasks: servers and tasks on each.

    There must be room for them.
    """
    windows = _windows(side, rows, demand, max(1, count), len(rows))
    chosen = choose(windows.total[len(rows)], windows.room[0], count)
    for row in rows:
        hold(side, row, demand, chosen)
    server = np.flatnonzero(chosen)
    return server, chosen[server]

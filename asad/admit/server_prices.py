"""What servers offer slot by slot, and what it costs: the curves from which OASiS chooses a schedule.

Source: Bao, Peng, Wu, Li (INFOCOM 2018), equation (22) and COST_t of Algorithm 2 (lines 23-46): in one slot the
cheapest servers with room are taken, and as many of the cheapest parameter servers as the workers need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

ROUNDING = 1e-9
"""Relative: amounts and payoffs that differ by less count as equal."""


class Side(NamedTuple):
    """What one kind of server offers, by row (a slot), resource and server. Prices are computed when looked at."""

    price: Array
    """(T, R, H) price of one unit of a resource for one slot."""
    free: Array
    """(T, R, H) amount not yet taken."""
    stale: NDArray[np.bool_]
    """(T,) rows in which price and free do not yet follow from what stands below."""
    taken: Array
    """(T, R, H) amount taken."""
    capacity: Array
    """(R, H)"""
    low: Array
    """(R,) price of a unit where nothing is taken: L of equation (22)."""
    growth: Array
    """(R,) ln(U / L): the price rises by e^growth until all is taken."""
    shared: NDArray[np.bool_]
    """(R,) resources that are on no server: the columns of all servers are alike, and change together."""


def fixed_side(price: Array, free: Array) -> Side:
    """A side whose prices are given, and stay."""
    none = np.zeros(price.shape[1])
    shared = np.zeros(price.shape[1], np.bool_)
    return Side(price, free, np.zeros(len(price), np.bool_), np.zeros_like(free), free[0], none, none, shared)


class Need(NamedTuple):
    """What one job needs, in plain numbers."""

    worker: Array
    """(R,)"""
    server: Array
    """(R,)"""
    servers_per_worker: float
    """b / B; 0 for a job without parameter servers."""
    most_workers: int
    work: int


@compiled
def servers_for(ratio: float, workers: int) -> int:
    """Parameter servers that `workers` workers need (constraints 6 and 7), as `ElasticJob.servers_for`."""
    if workers == 0 or ratio <= 0.0:
        return 0
    return max(1, int(np.ceil(workers * ratio - ROUNDING)))


@compiled
def refresh(side: Side, row: int) -> None:
    """Prices and free amounts of one slot, by equation (22)."""
    price, free, taken, capacity = side.price, side.free, side.taken, side.capacity
    for r in range(capacity.shape[0]):
        low, growth = side.low[r], side.growth[r]
        for h in range(capacity.shape[1]):
            amount = taken[row, r, h]
            free[row, r, h] = capacity[r, h] - amount
            if amount <= 0.0:
                price[row, r, h] = low
            elif amount >= capacity[r, h]:
                price[row, r, h] = low * np.exp(growth)
            else:
                price[row, r, h] = low * np.exp(growth * (amount / capacity[r, h]))
    side.stale[row] = False


@compiled
def offers(side: Side, row: int, demand: Array, most: int, unit: Array, room: Array) -> int:
    """Price of one task on each server (`unit`), and how many fit there (`room`, at most `most`).

    Returns how many fit in all, at most `most`.
    """
    if side.stale[row]:
        refresh(side, row)
    price, free = side.price, side.free
    servers = price.shape[2]
    together = float(most)
    for h in range(servers):
        unit[h] = 0.0
        room[h] = most
    for r in range(price.shape[1]):
        amount = demand[r]
        if amount > 0.0:
            for h in range(servers):
                unit[h] += price[row, r, h] * amount
                room[h] = min(room[h], np.floor(free[row, r, h] / amount + ROUNDING))
            if side.shared[r] and servers > 0:
                together = min(together, np.floor(free[row, r, 0] / amount + ROUNDING))
    most = int(max(0.0, together))
    total = 0
    for h in range(servers):
        if room[h] > 0.0:
            total += int(room[h])
            if total >= most:
                return most
    return total


@compiled
def _cheapest(unit: Array, room: Array, most: int) -> Counts:
    """Servers with room, the cheapest first (ties: the first), as many as `most` tasks may need."""
    candidates = np.flatnonzero(room > 0.0)
    if len(candidates) > 2 * most:
        # each has room for one at least: those beyond the `most` cheapest are never used
        bar = np.partition(unit[candidates], most - 1)[most - 1]
        candidates = candidates[unit[candidates] <= bar]
    return candidates[np.argsort(unit[candidates], kind="mergesort")]


@compiled
def sums(unit: Array, room: Array, most: int) -> Array:
    """Cost of the cheapest 0, 1, … `most` tasks."""
    out = np.empty(most + 1)
    out[0] = 0.0
    count = 0
    for h in _cheapest(unit, room, most):
        for _ in range(min(int(room[h]), most - count)):
            out[count + 1] = out[count] + unit[h]
            count += 1
        if count == most:
            break
    return out


@compiled
def curve(workers: Side, servers: Side, row: int, need: Need, scratch: Array, out: Array) -> int:
    """COST_t of Algorithm 2 for every number of workers: `out[y]`, y from 0 to the number returned."""
    limit = min(need.most_workers, need.work)
    hosts, keepers = workers.price.shape[2], servers.price.shape[2]
    unit, room = scratch[0, :hosts], scratch[1, :hosts]
    most = offers(workers, row, need.worker, limit, unit, room)
    if most == 0:
        out[0] = 0.0
        return 0
    ratio = need.servers_per_worker
    if ratio <= 0.0:
        out[: most + 1] = sums(unit, room, most)
        return most
    if servers_for(ratio, 1) > 1:  # more parameter servers than workers: constraint (7) forbids it
        out[0] = 0.0
        return 0
    s_unit, s_room = scratch[2, :keepers], scratch[3, :keepers]
    most_servers = offers(servers, row, need.server, servers_for(ratio, most), s_unit, s_room)
    while most > 0 and servers_for(ratio, most) > most_servers:
        most = min(most - 1, int(np.floor(most_servers / ratio + ROUNDING)))
    if most == 0:
        out[0] = 0.0
        return 0
    by_workers = sums(unit, room, most)
    by_servers = sums(s_unit, s_room, servers_for(ratio, most))
    for y in range(most + 1):
        out[y] = by_workers[y] + by_servers[servers_for(ratio, y)]
    return most


@compiled
def choose(unit: Array, room: Array, count: int) -> Counts:
    """(H,) how many of `count` tasks each server gets: the cheapest first. There must be room for them."""
    chosen = np.zeros(len(unit), np.int64)
    left = count
    if left > 0:
        for h in _cheapest(unit, room, left):
            chosen[h] = min(int(room[h]), left)
            left -= chosen[h]
            if left == 0:
                break
    return chosen


@compiled
def hold(side: Side, row: int, demand: Array, chosen: Counts) -> None:
    """Take `demand` for so many tasks on each server, in one row."""
    for h in np.flatnonzero(chosen):
        for r in range(len(demand)):
            if not side.shared[r]:
                side.taken[row, r, h] += demand[r] * chosen[h]
            elif demand[r] > 0.0:
                for every in range(side.taken.shape[2]):
                    side.taken[row, r, every] += demand[r] * chosen[h]
    side.stale[row] = True


@compiled
def least_by_slot(side: Side, rows: Counts, demand: Array) -> Array:
    """(n,) what one task costs in each of these rows: least over the servers; infinite where none has room."""
    servers = side.price.shape[2]
    unit, room = np.empty(servers), np.empty(servers)
    out = np.full(len(rows), np.inf)
    for i in range(len(rows)):
        offers(side, rows[i], demand, 1, unit, room)
        for h in range(servers):
            if room[h] > 0.0:
                out[i] = min(out[i], unit[h])
    return out


@compiled
def most_by_slot(workers: Side, servers: Side, rows: Counts, need: Need) -> Counts:
    """(n,) how many workers the job could have in each of these rows."""
    scratch = np.empty((4, max(workers.price.shape[2], servers.price.shape[2])))
    costs = np.empty(min(need.most_workers, need.work) + 1)
    out = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        out[i] = curve(workers, servers, rows[i], need, scratch, costs)
    return out


@compiled
def take(side: Side, rows: Counts, demand: Array, counts: Counts) -> tuple[Counts, Counts, Counts]:
    """Take the cheapest servers for `counts[i]` tasks in row `rows[i]` (lines 25-40 and, of Algorithm 1, 9 and 11).

    Returns (first, server, tasks): slot i has the servers `server[first[i]:first[i + 1]]`, in rising order, and so
    many tasks on each. There must be room for them.
    """
    servers = side.price.shape[2]
    unit, room = np.empty(servers), np.empty(servers)
    first = np.zeros(len(rows) + 1, np.int64)
    most = np.minimum(counts, servers).sum()
    server, tasks = np.empty(most, np.int64), np.empty(most, np.int64)
    for i in range(len(rows)):
        begin = end = first[i]
        if counts[i] > 0:
            offers(side, rows[i], demand, counts[i], unit, room)
            chosen = choose(unit, room, counts[i])
            where = np.flatnonzero(chosen)
            end = begin + len(where)
            server[begin:end], tasks[begin:end] = where, chosen[where]
            hold(side, rows[i], demand, chosen)
        first[i + 1] = end
    return first, server[: first[-1]], tasks[: first[-1]]

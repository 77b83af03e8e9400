"""The schedule of the greatest payoff for one job at given prices: Algorithm 2 of OASiS, exactly, in a millisecond.

Source: Bao, Peng, Wu, Li (INFOCOM 2018), section IV-C, problem (27) and Algorithm 2. The paper enumerates end times
and, for each, distributes the work over slots by dynamic programming over data chunks: O(T·(N·E)²) steps. The same
optimum is found here so:

1. A slot's cost c_t(y) of y workers is greedy (lines 23-46): the cheapest servers with room, and the cheapest
   ceil(y·b / B) parameter servers. The workers' part is convex in y; only the rounding of parameter servers is not.
2. For every end time, the lower convex envelopes of the slots up to it, filled in order of their slopes, bound the
   cost from below; one pass serves all end times, since each adds one slot. It stops where the utility, less a floor
   of the cost, cannot beat the best payoff found. A schedule near the envelope bounds the optimum from above.
3. End times whose bound beats the best payoff are solved exactly, the most promising first. With the multiplier λ (the
   slope at which the envelopes are full), every choice has a reduced cost ≥ 0, and only choices, and partial sums,
   whose reduced cost is below the gap between the two bounds can be part of something better. What is left goes
   through dynamic programming over the deviations from the envelope's choice.

Where nothing is rounded (no parameter servers) the envelope is the optimum, whatever the size. Cost: O(T·(H + K)·R) to
read the prices, O(T·N) for the curves, and for the few end times in question O(n·D·N) with the n slots and the D
deviations that the gap leaves. `most_steps` bounds that last product; beyond it the schedule of the upper bound is
taken, and `Found.gap` says by how much at most its payoff falls short (0 where it is exact).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asad.admit.server_prices import ROUNDING, Array, Counts, Need, Side, curve
from asad.compiling import compiled

MOST_STEPS = 400_000_000
"""Steps of one dynamic programme; about a third of a second."""


class Found(NamedTuple):
    """The best schedule of one job."""

    end: int
    """Slot in which it completes, counted from the first one looked at; -1 if there is no schedule."""
    payoff: float
    """Utility less cost; the least payoff that was asked for if there is no schedule."""
    cost: float
    utility: float
    """Of that schedule; if there is none, of the one that would pay at the highest prices, near enough to the best one.
    Cost is infinite if the work cannot be done at all."""
    gap: float
    """The optimum's payoff is at most this much above; 0 where it was proven to be the optimum."""
    widths: Counts
    """(end + 1,) workers by slot."""


@compiled
def _envelope(curve: Array, most: int, vertex: Counts) -> int:
    """The vertices of the lower convex envelope of `curve[0..most]`; returns how many."""
    count = 0
    for y in range(most + 1):
        while count >= 2:
            a, b = vertex[count - 2], vertex[count - 1]
            if (curve[b] - curve[a]) * (y - a) >= (curve[y] - curve[a]) * (b - a):
                count -= 1
            else:
                break
        vertex[count] = y
        count += 1
    return count


class _Near(NamedTuple):
    """Where the envelopes of some slots, filled in order of their slopes, come to for a given work."""

    slope: float
    """λ: the slope of the segment that the work ends in."""
    choice: Counts
    """(slots,) workers where that segment is left out."""
    short: int
    """Work still missing then, at least 1; 0 if the choice does exactly the work, and so is the optimum."""
    slot: int
    """Where that segment lies."""
    longer: int
    """Its length, at least `short`."""


@compiled
def _nearest(curves: Array, vertex: Counts, vertices: Counts, slots: int, work: int, slope: float) -> _Near:
    """The choice on the envelopes of the first `slots` slots, `slope` being where they are full."""
    choice = np.zeros(slots, np.int64)
    done = 0
    for t in range(slots):
        for j in range(1, vertices[t]):
            a, b = vertex[t, j - 1], vertex[t, j]
            if (curves[t, b] - curves[t, a]) / (b - a) >= slope:
                break
            choice[t] = b
        done += choice[t]
    for t in range(slots):
        for j in range(1, vertices[t]):
            a, b = vertex[t, j - 1], vertex[t, j]
            if a >= choice[t] and (curves[t, b] - curves[t, a]) / (b - a) <= slope:
                if done + b - a > work:
                    return _Near(slope, choice, work - done, t, b - a)
                choice[t] = b
                done += b - a
    return _Near(slope, choice, work - done, -1, 0)


@compiled
def _change_one(curves: Array, most: Counts, choice: Counts, change: int) -> tuple[float, int]:
    """The cheapest single slot to do `change` more work in (or less): what it adds to the cost, and which it is."""
    best, slot = np.inf, -1
    for t in range(len(choice)):
        y = choice[t] + change
        if 0 <= y <= most[t]:
            added = curves[t, y] - curves[t, choice[t]]
            if added < best:
                best, slot = added, t
    return best, slot


@compiled
def _cost_of(curves: Array, choice: Counts) -> float:
    """Of so many workers in each slot."""
    cost = 0.0
    for t in range(len(choice)):
        cost += curves[t, choice[t]]
    return cost


@compiled
def _rounded(curves: Array, most: Counts, near: _Near) -> tuple[float, Counts]:
    """A schedule close to the envelope: cost and widths. Always possible, since the envelope's vertices are."""
    choice = near.choice.copy()
    cost = _cost_of(curves, choice)
    if near.short <= 0:
        return cost, choice
    added, slot = _change_one(curves, most, choice, near.short)
    full = choice.copy()
    full[near.slot] += near.longer
    more = curves[near.slot, full[near.slot]] - curves[near.slot, choice[near.slot]]
    fewer, other = _change_one(curves, most, full, near.short - near.longer)
    if fewer > 0.0:  # doing more than needed is allowed, and no dearer here
        fewer, other = 0.0, -1
    if added <= more + fewer:
        choice[slot] += near.short
        return cost + added, choice
    if other >= 0:
        full[other] += near.short - near.longer
    return cost + more + fewer, full


class _Slack(NamedTuple):
    """How much reduced cost it takes at least to change the work by so much from the choice, over all slots."""

    position: Array
    """Rising; 0 is one of them."""
    reduced: Array
    """≥ 0, convex, 0 at 0."""
    left: float
    right: float
    """Slope beyond the ends."""


@compiled
def _slack(curves: Array, vertex: Counts, vertices: Counts, near: _Near, gap: float) -> _Slack:
    """Segments of the envelopes whose single unit costs less than `gap`, in the order of their reduced slopes."""
    slots = len(near.choice)
    count = 0
    for t in range(slots):
        count += vertices[t]
    reduced, length = np.empty(count), np.empty(count)
    below = above = 0
    for t in range(slots):
        for j in range(1, vertices[t]):
            a, b = vertex[t, j - 1], vertex[t, j]
            extra = (curves[t, b] - curves[t, a]) / (b - a) - near.slope
            if b <= near.choice[t]:
                if -extra < gap:  # below: taken back, from the front of the arrays
                    reduced[below], length[below] = max(0.0, -extra), b - a
                    below += 1
            elif extra < gap:  # above: added, from their back
                above += 1
                reduced[count - above], length[count - above] = max(0.0, extra), b - a
    order_below = np.argsort(reduced[:below])
    order_above = np.argsort(reduced[count - above :])
    position, cost = np.zeros(below + above + 1), np.zeros(below + above + 1)
    for i in range(below):
        k = order_below[i]
        position[below - i - 1] = position[below - i] - length[k]
        cost[below - i - 1] = cost[below - i] + length[k] * reduced[k]
    for i in range(above):
        k = count - above + order_above[i]
        position[below + i + 1] = position[below + i] + length[k]
        cost[below + i + 1] = cost[below + i] + length[k] * reduced[k]
    return _Slack(position, cost, min(gap, near.slope), gap)


@compiled
def _at_least(slack: _Slack, change: float) -> float:
    """Reduced cost of doing `change` more work than the choice (less: negative, or doing too much at λ a unit)."""
    position, reduced = slack.position, slack.reduced
    last = len(position) - 1
    least: float
    if change <= position[0]:
        least = reduced[0] + slack.left * (position[0] - change)
    elif change >= position[last]:
        least = reduced[last] + slack.right * (change - position[last])
    else:
        hi = np.searchsorted(position, change)
        lo = hi - 1
        part = (change - position[lo]) / (position[hi] - position[lo])
        least = reduced[lo] + part * (reduced[hi] - reduced[lo])
    return least


@compiled
def _improve(
    curves: Array,
    vertex: Counts,
    vertices: Counts,
    most: Counts,
    near: _Near,
    bound: float,
    below: float,
    most_steps: int,
) -> tuple[bool, float, Counts]:
    """The cheapest schedule of all that cost less than `below`; `bound` is the envelopes' cost, none is cheaper.

    Returns whether it was searched to the end (False: `most_steps` would not do), its cost (`below` if there is none)
    and its widths.
    """
    slots = len(near.choice)
    gap = below - bound
    slack = _slack(curves, vertex, vertices, near, gap)
    # which choices are left, slot by slot: their deviation, and its reduced cost
    first = np.zeros(slots + 1, np.int64)
    room = 0
    for t in range(slots):
        room += most[t] + 1
    deviation, reduced = np.empty(room, np.int64), np.empty(room)
    count = 0
    for t in range(slots):
        base = curves[t, near.choice[t]]
        for y in range(most[t] + 1):
            d = y - near.choice[t]
            extra = max(0.0, curves[t, y] - base - near.slope * d)
            if d == 0 or (extra < gap and extra + _at_least(slack, near.short - d) < gap):
                deviation[count], reduced[count] = d, extra
                count += 1
        first[t + 1] = count
    # sums of deviations from which the rest can still be done for less than the gap; what is convex is an interval
    low = high = 0
    while low > -(room + near.short) and _at_least(slack, near.short - (low - 1)) < gap:
        low -= 1
    while high < room + near.short and _at_least(slack, near.short - (high + 1)) < gap:
        high += 1
    reach_low = reach_high = 0
    steps = 0
    for t in range(slots):
        if first[t + 1] - first[t] > 1:
            options = first[t + 1] - first[t]
            reach_low = max(low, reach_low + deviation[first[t]])
            reach_high = min(high, reach_high + deviation[first[t + 1] - 1])
            steps += options * (reach_high - reach_low + 1)
    none = near.choice
    if steps > most_steps:
        return False, below, none
    width = high - low + 1
    free = 0
    for t in range(slots):
        free += first[t + 1] - first[t] > 1
    rest = np.empty(width)
    for i in range(width):
        rest[i] = _at_least(slack, near.short - (low + i))
    now, after = np.full(width, np.inf), np.full(width, np.inf)
    taken = np.zeros((free, width), np.int32)
    now[-low] = 0.0
    lo = hi = -low
    row = 0
    for t in range(slots):
        if first[t + 1] - first[t] == 1:
            continue
        new_lo = max(0, lo + deviation[first[t]])
        new_hi = min(width - 1, hi + deviation[first[t + 1] - 1])
        after[new_lo : new_hi + 1] = np.inf
        mark = taken[row]
        for j in range(first[t], first[t + 1]):
            d, extra = deviation[j], reduced[j]
            for i in range(max(lo, new_lo - d), min(hi, new_hi - d) + 1):
                value = now[i] + extra
                if value < after[i + d]:
                    after[i + d] = value
                    mark[i + d] = d
        for i in range(new_lo, new_hi + 1):
            if after[i] + rest[i] >= gap:
                after[i] = np.inf
        while new_lo <= new_hi and after[new_lo] == np.inf:
            new_lo += 1
        while new_hi >= new_lo and after[new_hi] == np.inf:
            new_hi -= 1
        if new_lo > new_hi:
            return True, below, none
        lo, hi = new_lo, new_hi
        now, after = after, now
        row += 1
    best, end = gap, -1
    for i in range(max(lo, near.short - low), hi + 1):
        value = now[i] + near.slope * (i + low - near.short)
        if value < best:
            best, end = value, i
    if end < 0:
        return True, below, none
    choice = near.choice.copy()
    at = end
    for t in range(slots - 1, -1, -1):
        if first[t + 1] - first[t] > 1:
            row -= 1
            d = taken[row, at]
            choice[t] += d
            at -= d
    return True, _cost_of(curves, choice), choice


@compiled
def _curves_and_bounds(
    workers: Side,
    servers: Side,
    rows: Counts,
    need: Need,
    worth: Array,
    floor: float,
    least: float,
) -> tuple[Array, Counts, Counts, Counts, Array, Array]:
    """Step 1 and 2: curves of the slots, their envelopes, and for every end time the envelopes' cost and slope λ.

    It looks at no more slots than can matter. Returns (curves, most, vertex, vertices, bound, slope), of that length.
    """
    slots = len(worth)
    limit = min(need.most_workers, need.work)
    scratch = np.empty((4, max(workers.price.shape[2], servers.price.shape[2])))
    costs, corner = np.empty(limit + 1), np.empty(limit + 1, np.int64)
    curves = np.empty((slots, limit + 1))
    vertex = np.empty((slots, limit + 1), np.int64)
    most, vertices = np.zeros(slots, np.int64), np.zeros(slots, np.int64)
    bound, slope = np.full(slots, np.inf), np.zeros(slots)
    # segments of all envelopes so far in the order of their slopes, as many as the work takes
    size = min(need.work, slots * limit) + 1
    kept_slope, kept_length = np.empty(size), np.empty(size, np.int64)
    next_slope, next_length = np.empty(size), np.empty(size, np.int64)
    kept = 0
    best = least
    promise = 0.0  # the best worth over cost, while nothing pays
    looked = 0
    for t in range(slots):
        if worth[t] - floor <= best and (best > least or worth[t] <= promise * floor or worth[t] <= 0.0):
            break
        looked += 1
        top = curve(workers, servers, rows[t], need, scratch, costs)
        corners = _envelope(costs, top, corner)
        most[t], vertices[t] = top, corners
        curves[t, : top + 1] = costs[: top + 1]
        vertex[t, :corners] = corner[:corners]
        if corners > 1 and (t == 0 or bound[t - 1] == np.inf or costs[corner[1]] / corner[1] < slope[t - 1]):
            i, j, count, done = 0, 1, 0, 0
            while done < need.work and (i < kept or j < corners):
                mine = np.inf
                if j < corners:
                    mine = (costs[corner[j]] - costs[corner[j - 1]]) / (corner[j] - corner[j - 1])
                if i < kept and kept_slope[i] <= mine:
                    next_slope[count], next_length[count] = kept_slope[i], kept_length[i]
                    i += 1
                else:
                    next_slope[count], next_length[count] = mine, corner[j] - corner[j - 1]
                    j += 1
                done += next_length[count]
                count += 1
            kept = count
            kept_slope, next_slope = next_slope, kept_slope
            kept_length, next_length = next_length, kept_length
            if done >= need.work:
                cost = 0.0
                for i in range(kept):
                    cost += kept_slope[i] * kept_length[i]
                slope[t] = kept_slope[kept - 1]
                bound[t] = cost - slope[t] * (done - need.work)
                best = max(best, worth[t] - cost)
                promise = max(promise, worth[t] / cost if cost > 0.0 else np.inf)
        elif t > 0:
            bound[t], slope[t] = bound[t - 1], slope[t - 1]
    return curves[:looked], most[:looked], vertex[:looked], vertices[:looked], bound[:looked], slope[:looked]


@compiled
def _nearly(
    curves: Array,
    most: Counts,
    vertex: Counts,
    vertices: Counts,
    bound: Array,
    slope: Array,
    worth: Array,
    work: int,
    nothing: Found,
) -> Found:
    """Of a job that does not pay: cost and utility of the schedule with the most utility for its cost."""
    closest, end = 0.0, -1
    for k in range(len(bound)):
        if worth[k] > closest * bound[k]:
            closest, end = worth[k] / bound[k], k
    if end < 0:
        return nothing
    cost, _ = _rounded(curves, most, _nearest(curves, vertex, vertices, end + 1, work, slope[end]))
    return Found(-1, nothing.payoff, cost, worth[end], 0.0, nothing.widths)


@compiled
def best_schedule(
    workers: Side,
    servers: Side,
    rows: Counts,
    need: Need,
    worth: Array,
    floor: float = 0.0,
    least_payoff: float = 0.0,
    most_steps: int = MOST_STEPS,
) -> Found:
    """The schedule of the greatest payoff (27).

    `rows` (n,) are the rows of the slots that it may use, the first being that of its arrival; `worth` (n,) is its
    utility if it completes in each of them, never rising; no schedule costs less than `floor`. Of schedules of equal
    payoff, the one that ends first. Only those of a payoff above `least_payoff` count.
    """
    curves, most, vertex, vertices, bound, slope = _curves_and_bounds(
        workers, servers, rows, need, worth, floor, least_payoff
    )
    looked = len(bound)
    nothing = Found(-1, least_payoff, np.inf, 0.0, 0.0, np.zeros(0, np.int64))
    best = nothing
    # the upper bounds first, of the end times whose lower bound is better than the best of them;
    # those that differ by rounding alone in the order of time
    hope = worth[:looked] - bound
    order = np.argsort(-np.round(hope / (ROUNDING * max(1.0, abs(worth[0])))), kind="mergesort")
    for k in order:
        if hope[k] == -np.inf or hope[k] <= best.payoff:
            break
        near = _nearest(curves, vertex, vertices, k + 1, need.work, slope[k])
        cost, widths = _rounded(curves, most, near)
        if worth[k] - cost > best.payoff + ROUNDING * max(1.0, abs(worth[k])):
            best = Found(k, worth[k] - cost, cost, worth[k], 0.0, widths)
    gap = 0.0
    done = np.zeros(looked, np.bool_)
    for first in order:
        least = ROUNDING * max(1.0, abs(worth[first]))
        if hope[first] == -np.inf or hope[first] <= best.payoff + least:
            break
        if done[first]:
            continue
        # what ends earlier for the same worth is among what may end later
        k = first
        while k + 1 < looked and worth[k + 1] == worth[first]:
            k += 1
        done[worth[:looked] == worth[first]] = True
        near = _nearest(curves, vertex, vertices, k + 1, need.work, slope[k])
        if near.short <= 0:
            continue
        below = worth[k] - best.payoff - least
        proven, cost, widths = _improve(curves, vertex, vertices, most, near, bound[k], below, most_steps)
        if not proven:
            gap = max(gap, hope[k] - best.payoff)
        elif cost < below:
            best = Found(k, worth[k] - cost, cost, worth[k], 0.0, widths)
    if best.end < 0:  # nothing pays
        return _nearly(curves, most, vertex, vertices, bound, slope, worth, need.work, nothing)
    end = best.end
    while best.widths[end] == 0:
        end -= 1
    payoff = worth[end] - best.cost
    return Found(end, payoff, best.cost, worth[end], gap, best.widths[: end + 1])

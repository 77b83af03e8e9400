"""The pairs of waiting jobs and hosts whose forecast is best, over a few scenarios of run times.

Pair after pair, the one that saves most; then again and again from what was found, with some of it taken apart and one
pair made by chance (an iterated local search). Cost: O(waiting · hosts) forecasts a pair and scenario, at most
`MOST_STEPS`, and `AGAIN_STEPS` a second of the cycle's interval for what follows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.share.asax.forecast import forecast
from asad.share.asax.options import Options
from asad.share.asax.outlook import MOST_STEPS, Outlook, forecast_steps, scenario
from asad.share.openings import ROOM

MOVES = 40
"""Changes of the pairs that one descent makes at the most."""
AGAIN_STEPS = 3_000_000
"""Steps of forecasts a second of the interval: a thirtieth of it, about, goes to searching on."""
SHAKES = 50
"""Draws of a pair that may be, before a search goes on without."""


class Ends(NamedTuple):
    """What some pairs come to (s); Q waiting jobs, G guests."""

    end: NDArray[np.float64]
    """(Q,) mean over the scenarios of when each ends"""
    slow: NDArray[np.float64]
    """(Q,) of what each loses as a guest"""
    one_end: NDArray[np.float64]
    one_slow: NDArray[np.float64]
    guest_end: NDArray[np.float64]
    """(Q,), (Q,) and (G,) of the last scenario alone"""
    tries: NDArray[np.int64]
    """(1,) sets of pairs that may still be forecast"""


@compiled
def best_pairs(
    a: Outlook,
    deviation: NDArray[np.float64],
    o: Options,
    rng: np.random.Generator,
    beside: NDArray[np.int32],
    alone_end: NDArray[np.float64],
    end: NDArray[np.float64],
) -> None:
    """Fill `beside` (Q,) with the host of each waiting job (of the R + Q, -1 for none), `alone_end` and `end` (Q,).

    Pairs are made also with hosts that have yet to start. No guest is stretched more than `most_stretch` or ends later
    than it would with nobody lent to. Ends are means over the scenarios: the expected one and others drawn from `rng`.
    """
    Q, G = len(a.wait_run), len(a.guest_left)
    outlooks = [a]
    for _ in range(o.scenarios - 1):
        outlooks.append(scenario(a, deviation, rng))  # noqa: PERF401 — compiled code knows no extend by a generator
    steps = o.scenarios * forecast_steps(len(a.rows), G, len(a.node_cores))
    ends = Ends(end, np.zeros(Q), np.zeros(Q), np.zeros(Q), np.zeros(G), np.full(1, MOST_STEPS // steps))
    beside[:] = -1
    alone = _mean_cost(outlooks, beside, o, ends)
    alone_end[:] = end
    bound = alone_end + o.slack_s
    cost = _improve(a, outlooks, o, beside, alone, bound, ends)
    if cost < alone:
        other = np.empty_like(beside)
        ends.tries[0] = int(AGAIN_STEPS * o.poll_s) // steps
        for _ in range(o.restarts):
            if ends.tries[0] <= 0:
                break
            _shake(a, rng, beside, other)
            other_cost = _improve(a, outlooks, o, other, _mean_cost(outlooks, other, o, ends), bound, ends)
            if other_cost < cost - o.least_gain_s and _hurts_nobody(a, outlooks, o, other, bound, ends):
                cost = other_cost
                beside[:] = other
    _mean_cost(outlooks, beside, o, ends)


@compiled
def _shake(a: Outlook, rng: np.random.Generator, beside: NDArray[np.int32], other: NDArray[np.int32]) -> None:
    """Fill `other` with half of the pairs of `beside`, and one more that may be."""
    R, Q = len(a.run_end), len(a.wait_run)
    for i in range(Q):
        other[i] = beside[i] if rng.random() < 0.5 else -1
    for _ in range(SHAKES):
        i, host = int(rng.integers(0, Q)), int(rng.integers(0, R + Q))
        if a.joins[i] and other[i] < 0 and not (other == R + i).any() and _may_pair(a, i, host, other):
            other[i] = host
            break


@compiled
def _improve(
    a: Outlook,
    outlooks: list[Outlook],
    o: Options,
    beside: NDArray[np.int32],
    cost: float,
    bound: NDArray[np.float64],
    ends: Ends,
) -> float:
    """Change one pair after the other of `beside`, which cost `cost`, as long as that saves `least_gain_s`.

    No guest may end at its `bound` (Q,) (s) or later. What they cost then.
    """
    R, Q = len(a.run_end), len(a.wait_run)
    for _ in range(MOVES):
        best_gain, best_guest, best_host = o.least_gain_s, -1, -1
        for i in range(Q):
            if not a.joins[i] or (beside == R + i).any():
                continue
            was = beside[i]
            for host in range(-1, R + Q):
                if host == was or ends.tries[0] <= 0 or not _may_pair(a, i, host, beside):
                    continue
                beside[i] = host
                gain = cost - _mean_cost(outlooks, beside, o, ends)
                beside[i] = was
                if gain > best_gain and _is_served(a, i, o, bound, ends):
                    best_gain, best_guest, best_host = gain, i, host
        if best_guest < 0:
            break
        beside[best_guest] = best_host
        cost -= best_gain
    return cost


@compiled
def _is_served(a: Outlook, waiting: int, o: Options, bound: NDArray[np.float64], ends: Ends) -> bool:
    """Is a waiting job neither stretched too much nor late, by the ends of the last forecast?"""
    stretched = ends.slow[waiting] > (o.most_stretch - 1) * a.wait_run[waiting]
    return bool(not stretched and ends.end[waiting] < bound[waiting])


@compiled
def _hurts_nobody(
    a: Outlook,
    outlooks: list[Outlook],
    o: Options,
    beside: NDArray[np.int32],
    bound: NDArray[np.float64],
    ends: Ends,
) -> bool:
    """Are all guests of some pairs served? A pair that was made by chance, or before others, may not be."""
    _mean_cost(outlooks, beside, o, ends)
    for i in range(len(beside)):
        if beside[i] >= 0 and not _is_served(a, i, o, bound, ends):
            return False
    return True


@compiled
def _may_pair(a: Outlook, waiting: int, host: int, beside: NDArray[np.int32]) -> bool:
    """May this waiting job be a guest of that batch job? -1 stands for no host, and is always possible."""
    R = len(a.run_end)
    if host < 0:
        return True
    if host == R + waiting or not a.lends[host] or a.group[host] != a.group[R + waiting]:
        return False
    if a.memory_bound[host] and a.memory_bound[R + waiting]:
        return False
    if a.cores[host] < a.cores[R + waiting] or a.cpu[host] + a.headroom > 0.9 + ROOM:
        return False
    return bool(host < R or beside[host - R] < 0)


@compiled
def _mean_cost(outlooks: list[Outlook], beside: NDArray[np.int32], o: Options, ends: Ends) -> float:
    """Mean cost of some pairs over the scenarios; fills `ends`."""
    ends.tries[0] -= 1
    ends.end[:] = 0.0
    ends.slow[:] = 0.0
    cost = 0.0
    for one in outlooks:
        forecast(one, beside, ends.one_end, ends.guest_end, ends.one_slow)
        cost += _cost(ends.one_end, ends.guest_end, ends.one_slow, o)
        ends.end[:] += ends.one_end
        ends.slow[:] += ends.one_slow
    ends.end[:] /= len(outlooks)
    ends.slow[:] /= len(outlooks)
    return cost / len(outlooks)


@compiled
def _cost(
    end: NDArray[np.float64],
    guest_end: NDArray[np.float64],
    slow: NDArray[np.float64],
    o: Options,
) -> float:
    """Sum of all ends, seconds that guests lose, and the last end, weighted."""
    cost, last = 0.0, 0.0
    for i in range(len(end)):
        cost += end[i] + o.stretch_weight * slow[i]
        last = max(last, end[i])
    for g in range(len(guest_end)):
        if guest_end[g] < np.inf:
            cost += guest_end[g]
            last = max(last, guest_end[g])
    return cost + o.makespan_weight * last

"""The pairs of waiting jobs and hosts whose forecast is best, over a few scenarios of run times.

Cost: O(waiting · hosts) forecasts a pair and scenario.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.share.asax.forecast import forecast
from asad.share.asax.options import Options
from asad.share.asax.outlook import Outlook, scenario
from asad.share.openings import ROOM

MOVES = 40
"""Changes of the pairs that one search makes at the most."""


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

    Pair after pair, the one that saves most, also with hosts that have yet to start and by changing pairs found
    before, until none saves `least_gain_s`. No guest is stretched more than `most_stretch` or ends later than it would
    with nobody lent to. Ends are means over the scenarios: the expected one and others drawn from `rng`.
    """
    Q, G = len(a.wait_run), len(a.guest_left)
    outlooks = [a]
    for _ in range(o.scenarios - 1):
        outlooks.append(scenario(a, deviation, rng))  # noqa: PERF401 — compiled code knows no extend by a generator
    ends = Ends(end, np.zeros(Q), np.zeros(Q), np.zeros(Q), np.zeros(G))
    beside[:] = -1
    cost = _mean_cost(outlooks, beside, o, ends)
    alone_end[:] = end
    _improve(a, outlooks, o, beside, cost, alone_end + o.slack_s, ends)
    _mean_cost(outlooks, beside, o, ends)


@compiled
def _improve(
    a: Outlook,
    outlooks: list[Outlook],
    o: Options,
    beside: NDArray[np.int32],
    cost: float,
    bound: NDArray[np.float64],
    ends: Ends,
) -> None:
    """Change one pair after the other of `beside`, which cost `cost`, as long as that saves `least_gain_s`.

    No guest may end at its `bound` (Q,) (s) or later.
    """
    R, Q = len(a.run_end), len(a.wait_run)
    for _ in range(MOVES):
        best_gain, best_guest, best_host = o.least_gain_s, -1, -1
        for i in range(Q):
            if not a.joins[i] or (beside == R + i).any():
                continue
            was = beside[i]
            for host in range(-1, R + Q):
                if host == was or not _may_pair(a, i, host, beside):
                    continue
                beside[i] = host
                other = _mean_cost(outlooks, beside, o, ends)
                beside[i] = was
                if ends.slow[i] <= (o.most_stretch - 1) * a.wait_run[i] and ends.end[i] < bound[i]:
                    gain = cost - other
                    if gain > best_gain:
                        best_gain, best_guest, best_host = gain, i, host
        if best_guest < 0:
            break
        beside[best_guest] = best_host
        cost -= best_gain


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

"""Waiting jobs onto the nodes with the most fitting pools, in the order of the queue."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import MIXED, NOBODY, ROOM, WIDENED, Pools, View
from asad.compiling import borrowing, compiled
from asad.share.pool.memo import Memo
from asad.share.pool.pool_options import Options
from asad.share.pool.starts import counterfactual_start
from asad.share.run_history import History, expected_run, known_cpu

STEP = 0.125
"""Pools are sorted in steps of so many cores."""
FAILED = 16
"""So many jobs that found no place are noted within a cycle."""
MOST = 512
"""Offers of one cycle at the most; the rest waits for the next."""


class Offers(NamedTuple):
    """Offers of one cycle, in columns."""

    guest: NDArray[np.int32]
    nodes_end: NDArray[np.int32]
    nodes: NDArray[np.int32]
    """Nodes of all offers, one after the other; `nodes_end` says where those of an offer end."""
    demand: NDArray[np.float64]
    """What the guest is expected to use of a core."""
    rate: NDArray[np.float64]
    run: NDArray[np.float64]
    start: NDArray[np.float64]
    """Expected rate and run time alone of the guest, and its counterfactual start (s)."""
    chosen: NDArray[np.int32]
    """(N,) scratch: nodes of the fit under consideration."""
    pool: NDArray[np.float64]
    """(N,) scratch: the pools with all that is spare."""
    needs: NDArray[np.float64]
    """(2,) fewest cores and least memory (bytes) that a job which would gain, and has found no place, needs on a node;
    inf where no such job waits."""
    order: NDArray[np.int32]
    """(N,) scratch: the first `sorted` are nodes that have open cores, by their pools."""
    sorted: NDArray[np.int64]
    counts: NDArray[np.int64]
    opens: NDArray[np.int64]
    """(widest + 2,) so many of the sorted nodes have as many open cores or more."""
    spared: NDArray[np.int64]
    """Like the bins of `counts`: in so many of the sorted nodes there is as much or more with all that is spare; the
    last is 0 until they have been counted in this cycle."""
    failed: NDArray[np.int32]
    """(FAILED,) scratch: jobs that found no place in this cycle."""
    failed_use: NDArray[np.float64]
    widest: NDArray[np.int64]
    """(1,) cores of the widest node."""


def new_offers(nodes: int, cores: int, widest: int) -> Offers:
    """None yet, for a cluster of so many nodes and cores, the widest node of `widest`."""
    return Offers(
        guest=np.zeros(MOST, np.int32),
        nodes_end=np.zeros(MOST, np.int32),
        nodes=np.zeros(cores + nodes, np.int32),
        demand=np.zeros(MOST),
        rate=np.zeros(MOST),
        run=np.zeros(MOST),
        start=np.zeros(MOST),
        chosen=np.zeros(nodes, np.int32),
        pool=np.zeros(nodes),
        needs=np.full(2, np.inf),
        order=np.zeros(nodes, np.int32),
        sorted=np.zeros(1, np.int64),
        counts=np.zeros(int(widest / STEP) + 2, np.int64),
        opens=np.zeros(widest + 2, np.int64),
        spared=np.zeros(int(widest / STEP) + 3, np.int64),
        failed=np.zeros(FAILED, np.int32),
        failed_use=np.zeros(FAILED),
        widest=np.array([widest]),
    )


@compiled
def offer(
    view: View,
    pools: Pools,
    history: History,
    known_demand: NDArray[np.float64],
    known_run: NDArray[np.float64],
    o: Options,
    memo: Memo,
    offers: Offers,
) -> int:
    """Fill `offers` and take them from `pools`; how many there are.

    `known_demand` and `known_run` (rows,) replace what history expects, where they are not empty: a yardstick's. Where
    a job found no place only because of what hosts' shares withhold, `memo.withheld` of those hosts is set.
    """
    c = view.c
    count, used, failed = 0, 0, 0
    offers.needs[:] = np.inf
    widest, most, withheld = -1, 0.0, 0.0
    for i in range(len(view.queue)):
        guest = view.queue[i]
        if count == MOST or used + c.cores[guest] > len(offers.nodes):
            break
        if c.guest_bar[guest] or not np.isnan(c.offered_s[guest]):
            continue
        if np.isnan(c.time_limit_s[guest]) or c.host[guest] >= 0:
            continue
        start = counterfactual_start(view, memo, guest)
        run = expected_run(history, c.application[guest], c.time_limit_s[guest])
        demand = known_cpu(history, c.application[guest])
        if len(known_run):
            run, demand = known_run[guest], known_demand[guest]
        if np.isnan(demand):
            demand = 1.0
        demand = max(0.01, demand)
        # at full rate it would be better off by waiting, or nobody knows
        if not start - view.now > o.margin * run:
            continue
        if widest < 0:
            widest, most, withheld = _open(pools)
            _sort(pools, pools.pool, offers)
        least = max(o.least_rate, run / (start + run - view.now - o.margin * run))
        nodes, rate = 0, 0.0
        if view.now >= memo.retry_at[guest] and not _hopeless(view, guest, demand * least, failed, offers):
            if most >= c.cores[guest] * demand * least:
                nodes, rate = _place(view, pools, pools.pool, True, guest, demand, least, widest, o, offers)
            if nodes == 0:
                failed = _note_failed(view, guest, demand * least, failed, offers)
                if withheld > 0 and most + withheld >= c.cores[guest] * demand * least:
                    _note_withheld(view, pools, guest, demand, least, widest, o, memo, offers)
                memo.retry_at[guest] = view.now + o.again_s
        if nodes == 0:
            cores = min(c.cores[guest], offers.widest[0])
            offers.needs[0] = min(offers.needs[0], float(cores))
            offers.needs[1] = min(offers.needs[1], cores * c.memory_bytes_per_core[guest])
            continue
        for k in range(nodes):
            offers.nodes[used + k] = offers.chosen[k]
        used += nodes
        offers.guest[count], offers.nodes_end[count] = guest, used
        offers.demand[count], offers.rate[count] = demand, rate
        offers.run[count], offers.start[count] = run, start
        memo.retry_at[guest] = np.inf
        memo.counterfactual_start_s[guest] = start
        _take(view, pools, guest, nodes, demand * rate, offers.chosen)
        most -= c.cores[guest] * demand * rate
        count += 1
    return count


@borrowing
def _open(pools: Pools) -> tuple[int, float, float]:
    """The most cores without a guest that a node has, what all pools together have left at the most, and what hosts'
    shares withhold from them."""
    widest, most, withheld = 0, 0.0, 0.0
    for node in range(len(pools.open)):
        widest = max(widest, pools.open[node])
        if pools.open[node] > 0:
            most += max(0.0, pools.pool[node])
            more = pools.spare[node] - pools.lent[node]
            withheld += more if more > ROOM else 0.0
    return widest, most, withheld


@borrowing
def _sort(pools: Pools, pool: NDArray[np.float64], offers: Offers) -> None:
    """Nodes that take guests and have a core without one into `offers.order`, by their pools in steps of `STEP` cores;
    a counting sort, since this is done in every cycle."""
    counts, opens = offers.counts, offers.opens
    counts[:] = 0
    opens[:] = 0
    offers.spared[-1] = 0
    for node in range(len(pool)):
        if pools.open[node] > 0 and not pools.closed[node]:
            counts[_bin(pool[node], len(counts)) + 1] += 1
            opens[pools.open[node]] += 1
    for k in range(1, len(counts)):
        counts[k] += counts[k - 1]
    for k in range(len(opens) - 2, -1, -1):
        opens[k] += opens[k + 1]
    offers.sorted[0] = counts[-1]
    for node in range(len(pool)):
        if pools.open[node] > 0 and not pools.closed[node]:
            k = _bin(pool[node], len(counts))
            offers.order[counts[k]] = node
            counts[k] += 1


@borrowing
def _first_with(least: float, offers: Offers) -> int:
    """Where in `offers.order` the first node stands whose pool may have so much left: none before it has."""
    k = _bin(least - ROOM, len(offers.counts))
    return int(offers.counts[k - 1]) if k > 0 else 0


@borrowing
def _bin(pool: float, bins: int) -> int:
    return int(min(bins - 2, max(0.0, pool / STEP)))


@borrowing
def _hopeless(view: View, guest: int, use: float, failed: int, offers: Offers) -> bool:
    """Has a job that asks for no more found no place in this cycle? Pools only shrink meanwhile.

    `use` is what the guest needs of a core at the least rate at which it would gain.
    """
    c = view.c
    for k in range(min(failed, FAILED)):
        other = offers.failed[k]
        if (
            c.nodes[guest] == c.nodes[other]
            and c.cores[guest] >= c.cores[other]
            and use >= offers.failed_use[k]
            and c.memory_bytes_per_core[guest] >= c.memory_bytes_per_core[other]
            and c.share_group[guest] == c.share_group[other]
            and c.memory_bound[guest] >= c.memory_bound[other]
        ):
            return True
    return False


@borrowing
def _note_failed(view: View, guest: int, use: float, failed: int, offers: Offers) -> int:
    """It found no place; how many have not now."""
    offers.failed[failed % FAILED] = guest
    offers.failed_use[failed % FAILED] = use
    return failed + 1


@borrowing
def _place(
    view: View,
    pools: Pools,
    pool: NDArray[np.float64],
    sorted: bool,
    guest: int,
    demand: float,
    least: float,
    widest: int,
    o: Options,
    offers: Offers,
) -> tuple[int, float]:
    """Nodes for a guest into `offers.chosen`; how many (0: none at a rate of `least`), and the rate on the worst.

    If `sorted`, `offers.order` are the nodes by their `pool`, which may have shrunk since; none has more than `widest`
    open cores.
    On as few nodes as it fits on, or as it asks for: the smallest pools that leave it `pace_target`; where there are
    too few of those, the largest. A rate of `least` is what it gains by at all.
    """
    order, chosen = offers.order, offers.chosen
    wanted, given, total = view.c.cores[guest], view.c.nodes[guest], offers.sorted[0]
    if widest == 0 or given > total:
        return 0, 0.0
    count = given if given > 0 else (wanted + widest - 1) // widest
    while count <= min(total, wanted):
        even = (wanted + count - 1) // count
        found = 0
        if _enough(even, even * demand * least, count, sorted, offers):
            target = max(o.pace_target, least)
            least_at = _first_with(even * demand * least, offers) if sorted else 0
            # pools have only shrunk since they were sorted; with some room, as it is a bound
            first = max(least_at, _first_with(even * demand * target - ROOM, offers)) if sorted else 0
            for k in range(first, total if total - first >= count else first):
                if found == count:
                    break
                if _rate(view, pools, pool, order[k], guest, even, demand) >= target:
                    chosen[found] = order[k]
                    found += 1
            if found < count:
                found = 0
                for k in range(total - 1, least_at - 1, -1):
                    if found == count or found + k - least_at + 1 < count:
                        break
                    if _rate(view, pools, pool, order[k], guest, even, demand) >= least:
                        chosen[found] = order[k]
                        found += 1
        if found == count:
            rate = 1.0
            for k in range(count):
                rate = min(rate, _rate(view, pools, pool, chosen[k], guest, even, demand))
            return count, rate
        if given > 0 or count == min(total, wanted):
            break
        count = min(2 * count, total, wanted)
    return 0, 0.0


@borrowing
def _enough(cores: int, use: float, count: int, sorted: bool, offers: Offers) -> bool:
    """May there be so many nodes with so many open cores and so much in their pools? A bound, without a look at any."""
    if cores >= len(offers.opens) or offers.opens[cores] < count:
        return False
    if sorted:
        return bool(offers.sorted[0] - _first_with(use, offers) >= count)
    return bool(offers.spared[_bin(use - 2 * ROOM, len(offers.counts))] >= count)


@borrowing
def _rate(
    view: View, pools: Pools, pool: NDArray[np.float64], node: int, guest: int, cores: int, demand: float
) -> float:
    """How fast a guest would run with so many cores of a node, as far as its pool goes; 0 where it may not."""
    if pools.closed[node] or pools.open[node] < cores:
        return 0.0
    if pools.memory[node] < cores * view.c.memory_bytes_per_core[guest]:
        return 0.0
    group = view.c.share_group[guest]
    if pools.group[node] != group and (pools.group[node] != NOBODY or pools.group[node] == MIXED):
        return 0.0
    if view.c.memory_bound[guest] and pools.bound[node]:
        return 0.0
    most = pool[node]
    if not view.c.lends[WIDENED]:  # what is idle on its own cores, as far as cores are alike
        most *= cores / pools.open[node]
    return min(1.0, max(0.0, most + ROOM) / (cores * demand))


@borrowing
def _take(view: View, pools: Pools, guest: int, nodes: int, use: float, chosen: NDArray[np.int32]) -> None:
    """The guest has been promised the chosen nodes, and uses so much of a core there: later guests find that taken."""
    wanted = view.c.cores[guest]
    even = (wanted + nodes - 1) // nodes
    for k in range(nodes):
        node = chosen[k]
        cores = min(even, wanted)
        wanted -= cores
        pools.open[node] -= cores
        pools.taken[node] += cores * use
        pools.pool[node] -= cores * use
        pools.memory[node] -= cores * view.c.memory_bytes_per_core[guest]
        pools.bound[node] |= view.c.memory_bound[guest]
        pools.group[node] = view.c.share_group[guest]
        pools.again[node] = True


@borrowing
def _count_spared(pools: Pools, offers: Offers) -> None:
    """The pools with all that is spare; they are counted once in a cycle, as a bound: later they have shrunk."""
    bins = len(offers.counts)
    if offers.spared[-1] == 0:
        offers.spared[:] = 0
        for k in range(offers.sorted[0]):
            node = offers.order[k]
            offers.spared[_bin(pools.pool[node] + pools.spare[node] - pools.lent[node], bins)] += 1
        for k in range(bins - 2, -1, -1):
            offers.spared[k] += offers.spared[k + 1]
        offers.spared[-1] = 1
    for node in range(len(pools.pool)):
        offers.pool[node] = pools.pool[node] + pools.spare[node] - pools.lent[node]


@borrowing
def _note_withheld(
    view: View,
    pools: Pools,
    guest: int,
    demand: float,
    least: float,
    widest: int,
    o: Options,
    memo: Memo,
    offers: Offers,
) -> None:
    """Would the guest have found a place, had hosts lent all that is spare? Then those there have withheld it."""
    _count_spared(pools, offers)
    nodes, _ = _place(view, pools, offers.pool, False, guest, demand, least, widest, o, offers)
    for k in range(nodes):
        node = offers.chosen[k]
        if pools.spare[node] > pools.lent[node] + ROOM:
            part = 1.0 - pools.lent[node] / pools.spare[node]
            for core in range(view.c.node_first[node], view.c.node_first[node + 1]):
                host = view.c.core_owner[core]
                if host >= 0:
                    memo.withheld[host] = max(memo.withheld[host], part)

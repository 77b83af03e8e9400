"""What jobs held of named nodes at each time, and how those on several nodes may have been spread over them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.model import Floats
from asad.replay.readers import Holdings

MOST_PARTS = 5_000_000
"""Of jobs over several nodes uneven parts are looked for where there are no more parts of so many nodes."""
MOST_TERMS = 5_000
MOST_STEPS = 20_000
"""They are the best ones, by a linear program, where that has no more terms and needs no more steps."""
LEVEL_PASSES, SLACK_PASSES, LEAST_PASSES = 10, 30, 8
MOST_WORK = 300_000_000
"""Else good ones, in so many passes over all jobs; in fewer where those take more additions, but in the least, unless
one of them takes half as many."""
UNTRIED = "; uneven ones, for which smaller nodes may do, are too many to be looked for"
DAY_S = 86400.0


class Events(NamedTuple):
    """Begins and ends of holdings in order of time, ends before begins; one row an event."""

    holding: NDArray[np.int64]
    rises: NDArray[np.bool_]
    counts: NDArray[np.bool_]
    """It does not in an hour that may be two on the clock."""


class Spread(NamedTuple):
    """Which nodes each holding is on (`NodeSets`, `node_set`), and how much it has of each."""

    node_set: NDArray[np.int64]
    begin: NDArray[np.int64]
    first: NDArray[np.int64]
    stop: NDArray[np.int64]
    each: Floats
    """(holdings,) so much of every node, where it has no parts."""
    parts: Floats
    """Of holding h on several nodes what it has of each: from `offset[h]` on. Empty: nobody has parts."""
    offset: NDArray[np.int64]
    nodes: int


def even_parts(cores: NDArray[np.int64], width: NDArray[np.int64], offset: NDArray[np.int64]) -> Floats:
    """Whole cores of each node of holdings on so many (0: it has no parts), the first ones one more where that is
    needed."""
    first = np.repeat(offset[:-1], width)
    each, rest = np.divmod(cores, np.maximum(width, 1))
    return np.repeat(each, width) + (np.arange(len(first)) - first < np.repeat(rest, width)).astype(
        np.float64
    )


def needed(events: Events, together: NDArray[np.bool_], spread: Spread) -> Floats:
    """(nodes,) the whole cores that the holdings need of each node."""
    peak, _ = peaks(events, together, spread, np.zeros(spread.nodes))
    needed: Floats = np.ceil(np.maximum(peak, largest(spread)) - 1e-6)
    return needed


def events_of(held: Holdings, local_times: bool) -> Events:
    count = len(held.start_s)
    # times are whole seconds: a job may begin in the second in which another ends
    stop = np.where(held.stop_s - held.start_s > 10.0, held.stop_s - 1.0, held.stop_s)
    when = np.concatenate((stop, held.start_s))
    order = np.argsort(when, kind="stable")
    counts = np.ones(2 * count, dtype=bool)
    if local_times:
        counts = ~hours_that_come_twice(when[order])
    return Events(order % count, order >= count, counts)


def hours_that_come_twice(when_s: Floats) -> NDArray[np.bool_]:
    """Which local times lie in a night in which clocks are put back: on the last Sunday of October, the first of
    November or the first of April (in the south), from midnight to four."""
    days = np.floor(when_s / DAY_S).astype(np.int64)
    dates = days.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    of_month = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    month = months.astype(np.int64) % 12 + 1
    back = ((month == 10) & (of_month >= 25)) | (((month == 11) | (month == 4)) & (of_month <= 7))
    sunday = days % 7 == 3  # 1970-01-01 was a Thursday
    night: NDArray[np.bool_] = sunday & back & (when_s % DAY_S < 4 * 3600.0)
    return night


@compiled(nogil=True)
def peaks(
    events: Events, taken: NDArray[np.bool_], spread: Spread, full: Floats
) -> tuple[Floats, NDArray[np.int64]]:
    """(nodes,) the most that the `taken` holdings had of each node at one time, where that counts; and how often they
    came to have the last whole core of `full`."""
    now, peak = np.zeros(spread.nodes), np.zeros(spread.nodes)
    often = np.zeros(spread.nodes, dtype=np.int64)
    for event in range(events.holding.size):
        one = events.holding[event]
        if not taken[one]:
            continue
        at = spread.offset[one]
        uneven = spread.parts.size > 0 and spread.offset[one + 1] > at
        for run in range(spread.begin[spread.node_set[one]], spread.begin[spread.node_set[one] + 1]):
            for node in range(spread.first[run], spread.stop[run]):
                amount = spread.parts[at] if uneven else spread.each[one]
                at += 1
                if not events.rises[event]:
                    if events.counts[event] and now[node] > peak[node]:  # it was held until then
                        peak[node] = now[node]
                    now[node] -= amount
                    continue
                last = full[node] - 1.0 + 1e-6
                often[node] += now[node] <= last and now[node] + amount > last
                now[node] += amount
                if events.counts[event] and now[node] > peak[node]:
                    peak[node] = now[node]
    return peak, often


@compiled(nogil=True)
def largest(spread: Spread) -> Floats:
    """(nodes,) the most that one holding has of each node."""
    largest = np.zeros(spread.nodes)
    for one in range(spread.node_set.size):
        at = spread.offset[one]
        uneven = spread.parts.size > 0 and spread.offset[one + 1] > at
        for run in range(spread.begin[spread.node_set[one]], spread.begin[spread.node_set[one] + 1]):
            for node in range(spread.first[run], spread.stop[run]):
                largest[node] = max(largest[node], spread.parts[at] if uneven else spread.each[one])
                at += 1
    return largest


def uneven_parts(
    events: Events, taken: NDArray[np.bool_], cores: NDArray[np.int64], even: Spread, enough: float
) -> tuple[Floats | None, str]:
    """Parts of the holdings over several nodes with which all nodes together need few cores, and what is to be known
    of them; None where even parts, with which nodes need `enough` cores, are as good as any, or others were not looked
    for.

    Each has at least one core of each of its nodes (or even parts, where it has fewer cores than nodes). A small
    linear program finds the best, passes over the jobs good ones (benchmarks/bench_inferred_machine.py).
    """
    width = np.diff(even.offset)
    alone = even._replace(each=np.where(width > 0, 1.0, even.each), parts=np.zeros(0))
    least = np.maximum(peaks(events, taken & (width == 0), alone, np.zeros(even.nodes))[0], largest(alone))
    if np.ceil(least - 1e-6).sum() >= enough:
        return None, ""
    if len(even.parts) > MOST_PARTS:
        return None, UNTRIED
    best = _fewest(events, taken, cores, even, least)
    if best is not None:
        return best, ""
    good = _levelled(events, taken, cores, even)
    return (None, UNTRIED) if good is None else (good, "; that may be a tenth too many cores")


# ------------------------------------------------------------------------------------------------- a linear program


def _fewest(
    events: Events, taken: NDArray[np.bool_], cores: NDArray[np.int64], even: Spread, least: Floats
) -> Floats | None:
    """The parts with which nodes, each of at least `least` cores, need the fewest; of several such spreads one with
    small nodes. None where that is too large a program."""
    from scipy.optimize import linprog
    from scipy.sparse import block_array, csr_array, eye_array

    node, alone, part, stop = _held_at_once(events, taken, even, MOST_TERMS)
    if len(part) > MOST_TERMS:
        return None
    # what counts at no time, a node has room for all the same
    unseen = np.ones(len(even.parts), dtype=bool)
    unseen[part] = False
    more = np.flatnonzero(unseen)
    node = np.append(node, _node_of_part(even)[more])
    alone = np.append(alone, np.zeros(len(more)))
    stop = np.concatenate(([0], stop, len(part) + 1 + np.arange(len(more))))
    part = np.append(part, more)
    # columns: parts, cores of nodes, cores of the largest node; rows: what is held at once, and every node
    rows, parts, nodes, width = len(node), len(even.parts), even.nodes, np.diff(even.offset)
    held = csr_array((np.ones(len(part)), part, stop), shape=(rows, parts))
    of_node = csr_array((-np.ones(rows), node, np.arange(rows + 1)), shape=(rows, nodes))
    several = np.flatnonzero(width)
    whole = csr_array(
        (np.ones(parts), np.arange(parts), even.offset[np.append(several, len(width))]),
        shape=(len(several), parts + nodes + 1),
    )
    one_each = np.minimum(1.0, np.repeat(cores / np.maximum(width, 1), width))
    found = linprog(
        np.concatenate((np.zeros(parts), np.ones(nodes), [1e-3])),
        A_ub=block_array([[held, of_node, None], [None, eye_array(nodes), -np.ones((nodes, 1))]]),
        b_ub=np.append(-alone, np.zeros(nodes)),
        A_eq=whole,
        b_eq=cores[several],
        bounds=np.column_stack(
            (np.concatenate((one_each, least, [0.0])), np.full(parts + nodes + 1, np.inf))
        ),
        method="highs",
        options={"maxiter": MOST_STEPS},
    )
    return found.x[:parts] if found.success else None


@compiled(nogil=True)
def _held_at_once(
    events: Events, taken: NDArray[np.bool_], even: Spread, most: int
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64], NDArray[np.int64]]:
    """What is held at once of one node, each time that no more comes before something ends: (rows,) the node, what
    holdings on it alone have of it, which parts are held, all in one, and where those of each row stop. It ends when
    there are more than `most` parts."""
    # the parts that are held of each node are a list in both directions, first come last; -1: none
    newest = np.full(even.nodes, -1)
    older, newer = np.full(even.parts.size, -1), np.full(even.parts.size, -1)
    alone = np.zeros(even.nodes)
    # of each node: has something begun since the last row, and at a time that counts?
    grown, sure = np.zeros(even.nodes, dtype=np.bool_), np.zeros(even.nodes, dtype=np.bool_)
    nodes, had, stops = (
        [np.int64(0) for _ in range(0)],
        [0.0 for _ in range(0)],
        [np.int64(0) for _ in range(0)],
    )
    held = [np.int64(0) for _ in range(0)]
    for event in range(events.holding.size):
        one, rises, counts = events.holding[event], events.rises[event], events.counts[event]
        if not taken[one]:
            continue
        part = even.offset[one]
        several = even.offset[one + 1] > part
        for run in range(even.begin[even.node_set[one]], even.begin[even.node_set[one] + 1]):
            for node in range(even.first[run], even.stop[run]):
                row_ends = sure[node] if rises and not counts else not rises and (sure[node] or counts)
                if grown[node] and row_ends:
                    at = newest[node]
                    if at >= 0:
                        nodes.append(np.int64(node))
                        had.append(alone[node])
                        while at >= 0:
                            held.append(at)
                            at = older[at]
                        stops.append(np.int64(len(held)))
                    grown[node] = sure[node] = False
                if rises:
                    grown[node], sure[node] = True, sure[node] or counts
                if not several:
                    alone[node] += even.each[one] if rises else -even.each[one]
                    continue
                if rises:
                    older[part], newer[part] = newest[node], -1
                    if newest[node] >= 0:
                        newer[newest[node]] = part
                    newest[node] = part
                else:
                    if newer[part] >= 0:
                        older[newer[part]] = older[part]
                    else:
                        newest[node] = older[part]
                    if older[part] >= 0:
                        newer[older[part]] = newer[part]
                part += 1
        if len(held) > most:
            break
    return np.array(nodes), np.array(had), np.array(held), np.array(stops)


@compiled(nogil=True)
def _node_of_part(even: Spread) -> NDArray[np.int64]:
    """(parts,) the node of each."""
    nodes = np.zeros(even.parts.size, dtype=np.int64)
    for one in range(even.node_set.size):
        at = even.offset[one]
        if even.offset[one + 1] > at:
            for run in range(even.begin[even.node_set[one]], even.begin[even.node_set[one] + 1]):
                for node in range(even.first[run], even.stop[run]):
                    nodes[at] = node
                    at += 1
    return nodes


# ------------------------------------------------------------------------------------------------- pass by pass


class _Levels(NamedTuple):
    """What is held of each node from one event of it to the next, one node after the other."""

    held: Floats
    counts: NDArray[np.bool_]
    since: NDArray[np.int64]
    until: NDArray[np.int64]
    """(parts,) from which row on, and up to which, a part is held."""


def _levelled(
    events: Events, taken: NDArray[np.bool_], cores: NDArray[np.int64], even: Spread
) -> Floats | None:
    """Parts that jobs, one after the other, choose by what others hold of their nodes meanwhile: first so that all
    nodes are as full, then so that all have as much room below the most that is held of them. None where a pass
    takes too long."""
    spread = even._replace(parts=even.parts.copy())
    levels = _levels(events, taken, spread)
    work = 2 * int((levels.until - levels.since).sum()) + 20 * len(even.parts)
    if work > MOST_WORK // 2:
        return None
    passes = min(LEVEL_PASSES + SLACK_PASSES, max(LEAST_PASSES, MOST_WORK // work))
    level_passes = min(LEVEL_PASSES, passes // 2)
    nothing = np.zeros(even.nodes)
    for _ in range(level_passes):
        _choose(levels, taken, cores, spread, nothing)
    for _ in range(passes - level_passes):
        room = np.maximum(peaks(events, taken, spread, nothing)[0], largest(spread))
        _choose(levels, taken, cores, spread, room)
    return spread.parts


@compiled(nogil=True)
def _levels(events: Events, taken: NDArray[np.bool_], spread: Spread) -> _Levels:
    rows = np.zeros(spread.nodes + 1, dtype=np.int64)
    for event in range(events.holding.size):
        one = events.holding[event]
        if taken[one]:
            for run in range(spread.begin[spread.node_set[one]], spread.begin[spread.node_set[one] + 1]):
                for node in range(spread.first[run], spread.stop[run]):
                    rows[node + 1] += 1
    begin = np.cumsum(rows)
    row, now = begin[:-1].copy(), np.zeros(spread.nodes)
    held, counts = np.zeros(begin[-1]), np.zeros(begin[-1], dtype=np.bool_)
    since, until = np.zeros(spread.parts.size, dtype=np.int64), np.zeros(spread.parts.size, dtype=np.int64)
    for event in range(events.holding.size):
        one, rises = events.holding[event], events.rises[event]
        if not taken[one]:
            continue
        at = spread.offset[one]
        several = spread.offset[one + 1] > at
        for run in range(spread.begin[spread.node_set[one]], spread.begin[spread.node_set[one] + 1]):
            for node in range(spread.first[run], spread.stop[run]):
                amount = spread.parts[at] if several else spread.each[one]
                now[node] += amount if rises else -amount
                held[row[node]] = now[node]
                if events.counts[event]:  # what ends was held until then
                    counts[row[node] if rises else row[node] - 1] = True
                if several:
                    if rises:
                        since[at] = row[node]
                    else:
                        until[at] = row[node]
                    at += 1
                row[node] += 1
    return _Levels(held, counts, since, until)


@compiled(nogil=True)
def _choose(
    levels: _Levels, taken: NDArray[np.bool_], cores: NDArray[np.int64], spread: Spread, room: Floats
) -> None:
    """Give each job over several nodes, one after the other, the parts that leave each of its nodes equally far below
    its `room`; `levels` and the parts of `spread` are changed."""
    free = np.zeros(np.diff(spread.offset).max())
    for one in range(taken.size):
        first, width = spread.offset[one], spread.offset[one + 1] - spread.offset[one]
        if width == 0 or not taken[one]:
            continue
        at = 0
        for run in range(spread.begin[spread.node_set[one]], spread.begin[spread.node_set[one] + 1]):
            for node in range(spread.first[run], spread.stop[run]):
                others = 0.0
                for row in range(levels.since[first + at], levels.until[first + at]):
                    if levels.counts[row]:
                        others = max(others, levels.held[row] - spread.parts[first + at])
                free[at] = room[node] - others
                at += 1
        least = min(1.0, cores[one] / width)
        # what is left free of those that have more than the least, the emptiest first
        left, total = np.inf, 0.0
        for above, of_one in enumerate(np.sort(free[:width])[::-1], 1):
            if above > 1 and of_one - left <= least:
                break
            total += of_one
            left = (total - (cores[one] - (width - above) * least)) / above
        parts = np.maximum(free[:width] - left, least)
        for at in range(width):
            more = parts[at] - spread.parts[first + at]
            spread.parts[first + at] = parts[at]
            for row in range(levels.since[first + at], levels.until[first + at]):
                levels.held[row] += more

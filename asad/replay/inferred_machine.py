"""The machine that a log describes: from SWF's header, from what jobs held of named nodes, or from what was in use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.errors import MachineError
from asad.model import Floats, Machine
from asad.replay.machine import MOST_NODES, machine_of, spread, uniform
from asad.replay.readers import Holdings, Recorded

MOST_PARTS = 20_000_000
"""Jobs over several nodes have whole cores of each if they have no more parts (8 bytes each)."""
MOST_TERMS = 200_000
MOST_S = 10.0
"""Uneven parts are looked for by a linear program of no more terms, for no longer than that."""
FULL_AGAIN = 3
"""A node that was so full on as many occasions is taken for full."""
DAY_S = 86400.0


def infer(recorded: Recorded) -> Machine:
    """The machine that the log describes; `origin` says how far that is an assumption.

    SWF says it in its header. Else, with node lists, nodes are as small as what they held at one time allows. Else the
    machine has the most cores that were in use at one time, in nodes as large as the most that a job held of one.
    Raises MachineError if that is more than any machine has.
    """
    if recorded.format == "swf" and (machine := _from_swf_header(recorded.header)):
        return machine
    if recorded.held is not None:
        return _from_holdings(recorded, recorded.held)
    jobs = recorded.jobs
    peak = _peak_cores(recorded)
    wide = jobs.nodes > 0
    if not wide.any():
        return spread(
            min(peak, MOST_NODES),
            peak,
            f"inferred: {peak} cores were in use at one time; nodes are not recorded: one core each",
        )
    per_node = int(np.ceil(jobs.cores[wide] / jobs.nodes[wide]).max())
    nodes = max(-(-peak // per_node), int(jobs.nodes.max()))
    return uniform(
        nodes,
        per_node,
        np.nan,
        f"inferred: {peak} cores were in use at one time, and a job held {per_node} cores of one node: "
        f"{nodes} nodes of {per_node} cores; where jobs share cores it is too many, and where some were never used at "
        "one time too few",
    )


def _from_swf_header(header: Mapping[str, str]) -> Machine | None:
    def leading_number(key: str) -> int:
        """The largest of a key that may be repeated, each perhaps with commas: `1,024`."""
        texts = header.get(key, "").split("\n")
        found = [re.match(r"\d{1,3}(?:,\d{3}){1,2}(?!\d)|\d{1,9}", text, re.ASCII) for text in texts]
        return max((int(match[0].replace(",", "")) for match in found if match), default=0)

    nodes, cores = leading_number("MaxNodes"), leading_number("MaxProcs")
    if not cores:
        return None
    if not 1 <= nodes <= min(cores, MOST_NODES):
        return spread(
            min(cores, MOST_NODES), cores, f"SWF header: MaxProcs {cores}; nodes not given: one core each"
        )
    how = "" if cores % nodes == 0 else ", spread as evenly as can be"
    return spread(nodes, cores, f"SWF header: MaxNodes {nodes}, MaxProcs {cores}{how}")


def _peak_cores(recorded: Recorded) -> int:
    """The most cores in use at one time, as recorded; from the submission on if no start is known. At least those of
    the largest job."""
    jobs = recorded.jobs
    start = np.where(np.isnan(jobs.start_s), jobs.submit_s, jobs.start_s)
    when = np.concatenate((start + jobs.run_s, start))  # ends first where both are at one time
    change = np.concatenate((-jobs.cores.astype(np.int64), jobs.cores))
    order = np.argsort(when, kind="stable")
    in_use = np.cumsum(change[order])
    if recorded.local_times:  # what was held when such a night is over counts
        night = _hours_that_come_twice(when[order])
        in_use[night & np.append(night[1:], False)] = 0
    return max(int(in_use.max()), int(jobs.cores.max()))


# ---------------------------------------------------------------------------------------------------- by node lists


class _Events(NamedTuple):
    """Begins and ends of holdings in order of time, ends before begins; one row an event."""

    holding: NDArray[np.int64]
    rises: NDArray[np.bool_]
    counts: NDArray[np.bool_]
    """It does not in an hour that may be two on the clock."""


class _Spread(NamedTuple):
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


def _from_holdings(recorded: Recorded, held: Holdings) -> Machine:
    """Nodes with as few cores as explain the log: that each job held what it held, where it did.

    How a job was spread over its nodes is not known. Even parts are assumed, and where uneven ones need fewer cores in
    all, those. Jobs that were suspended may have shared their cores: they count by themselves alone. What jobs
    without a node list held besides is put on nodes of its own.
    """
    path = recorded.path
    sets = held.lists.sets()
    if sets is None:
        raise MachineError(
            f"{path}: its node lists name more than {MOST_NODES} nodes; describe the machine with --machine or --nodes"
        )
    width = sets.sizes[held.node_set]
    several = width > 1
    offset = np.concatenate(([0], np.cumsum(np.where(several, width, 0))))
    where = (held.node_set, sets.begin, sets.first, sets.stop)
    nothing, nodes, together = np.zeros(0), len(sets.names), ~held.suspended
    events = _events(held, recorded.local_times)

    in_parts = bool(several.any()) and offset[-1] <= MOST_PARTS
    parts = _even_parts(held.cores, np.where(several, width, 0), offset) if in_parts else nothing
    even = _Spread(*where, held.cores / width, parts, offset, nodes)
    chosen, cores = even, _needed(events, together, even)
    how = "jobs over several nodes are taken to have held even parts of them; " if several.any() else ""
    if in_parts:
        uneven = _uneven_parts(events, together, held.cores, even)
        if uneven is not None:
            fewer = _needed(events, together, even._replace(parts=uneven))
            if fewer.sum() < cores.sum():
                chosen, cores = even._replace(parts=uneven), fewer
                how = "some jobs over several nodes are taken to have held uneven parts of them; "

    known = ~np.isnan(held.memory_bytes)
    of_memory = even._replace(each=np.where(known, held.memory_bytes, 0.0) / width, parts=nothing)
    memory = np.maximum(_peaks(events, known & together, of_memory, cores)[0], _largest(of_memory))
    memory[memory == 0] = np.nan
    _, full = _peaks(events, together, chosen, cores)
    sure = int(np.count_nonzero(full >= FULL_AGAIN))
    # of lists that no job of these has, nodes are named that nobody held
    order = sorted(np.flatnonzero(cores > 0).tolist(), key=lambda node: sets.names[node])
    names, sizes = [sets.names[node] for node in order], cores.astype(np.int64)[order].tolist()
    origin = (
        f"inferred: {len(order)} nodes of the log's node lists, with as few cores as explain what they held at each "
        f"time; {sure} of them were as full on {FULL_AGAIN} occasions or more, the others may be larger; {how}where "
        "partitions share cores (OverSubscribe) nodes are smaller"
    )
    missing = _peak_cores(recorded) - sum(sizes) if held.unlisted else 0
    if missing > 0:
        size = max(sizes)
        more = [size] * (missing // size) + [missing % size] * (missing % size > 0)
        names += [f"unlisted{number}" for number in range(1, len(more) + 1)]
        sizes += more
        origin += f"; {len(more)} nodes more for what {held.unlisted} jobs without a node list held besides"
    of_nodes = [*memory[order].tolist(), *[np.nan] * (len(sizes) - len(order))]
    return machine_of(path, names, sizes, of_nodes, origin)


def _even_parts(cores: NDArray[np.int64], width: NDArray[np.int64], offset: NDArray[np.int64]) -> Floats:
    """Whole cores of each node of holdings on so many (0: it has no parts), the first ones one more where that is
    needed."""
    first = np.repeat(offset[:-1], width)
    each, rest = np.divmod(cores, np.maximum(width, 1))
    return np.repeat(each, width) + (np.arange(len(first)) - first < np.repeat(rest, width)).astype(
        np.float64
    )


def _needed(events: _Events, together: NDArray[np.bool_], spread: _Spread) -> Floats:
    """(nodes,) the whole cores that the holdings need of each node."""
    peak, _ = _peaks(events, together, spread, np.zeros(spread.nodes))
    needed: Floats = np.ceil(np.maximum(peak, _largest(spread)) - 1e-6)
    return needed


def _events(held: Holdings, local_times: bool) -> _Events:
    count = len(held.start_s)
    # times are whole seconds: a job may begin in the second in which another ends
    stop = np.where(held.stop_s - held.start_s > 10.0, held.stop_s - 1.0, held.stop_s)
    when = np.concatenate((stop, held.start_s))
    order = np.argsort(when, kind="stable")
    counts = np.ones(2 * count, dtype=bool)
    if local_times:
        counts = ~_hours_that_come_twice(when[order])
    return _Events(order % count, order >= count, counts)


def _hours_that_come_twice(when_s: Floats) -> NDArray[np.bool_]:
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
def _peaks(
    events: _Events, taken: NDArray[np.bool_], spread: _Spread, full: Floats
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
def _largest(spread: _Spread) -> Floats:
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


def _uneven_parts(
    events: _Events, taken: NDArray[np.bool_], cores: NDArray[np.int64], even: _Spread
) -> Floats | None:
    """Parts of the holdings over several nodes with which all nodes together need the fewest cores, by a linear
    program.

    Each has at least one core of each of its nodes (or even parts, where it has fewer cores than nodes); of several
    such spreads one with small nodes is taken. None where that is too large a program, or takes too long.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    at_once = _held_at_once(events, taken, even)
    if at_once is None:
        return None
    least, rows = at_once
    parts, nodes = len(even.parts), even.nodes
    width = np.diff(even.offset)
    several = np.flatnonzero(width)
    # columns: parts, cores of nodes, cores of the largest node; rows: what is held at once, and every node
    held = [len(one) for _, _, one in rows]
    row = np.repeat(np.arange(len(rows)), held)
    column = np.fromiter((part for _, _, one in rows for part in one), np.int64, sum(held))
    on = np.array([node for node, _, _ in rows], dtype=np.int64)
    every, last = np.arange(nodes), parts + nodes
    values = np.concatenate((np.ones(len(row)), -np.ones(len(rows)), np.ones(nodes), -np.ones(nodes)))
    down = np.concatenate((row, np.arange(len(rows)), len(rows) + every, len(rows) + every))
    across = np.concatenate((column, parts + on, parts + every, np.full(nodes, last)))
    one_each = np.minimum(1.0, np.repeat(cores[several] / width[several], width[several]))
    bounds = np.concatenate((-np.array([alone for _, alone, _ in rows], dtype=float), np.zeros(nodes)))
    whole = csr_array(
        (np.ones(parts), np.arange(parts), even.offset[np.append(several, len(width))]),
        shape=(len(several), last + 1),
    )
    found = linprog(
        np.concatenate((np.zeros(parts), np.ones(nodes), [1e-3])),
        A_ub=csr_array((values, (down, across)), shape=(len(rows) + nodes, last + 1)),
        b_ub=bounds,
        A_eq=whole,
        b_eq=cores[several],
        bounds=np.column_stack((np.concatenate((one_each, least, [0.0])), np.full(last + 1, np.inf))),
        method="highs",
        options={"time_limit": MOST_S},
    )
    return found.x[:parts] if found.success else None


def _held_at_once(
    events: _Events, taken: NDArray[np.bool_], even: _Spread
) -> tuple[Floats, list[tuple[int, float, list[int]]]] | None:
    """(nodes,) the most that holdings on one node alone have of it; and by node what such have and which parts of
    others are held, each time that no more comes before something ends. None if that is more than `MOST_TERMS`."""
    least = _largest(
        even._replace(each=np.where(np.diff(even.offset) > 0, 1.0, even.each), parts=np.zeros(0))
    )
    rows: list[tuple[int, float, list[int]]] = []
    alone = [0.0] * even.nodes
    parts: list[dict[int, None]] = [{} for _ in range(even.nodes)]
    # of each node: has something begun since the last row, and at a time that counts?
    grown, sure = [False] * even.nodes, [False] * even.nodes
    terms = 0
    for one, rises, counts in zip(
        events.holding.tolist(), events.rises.tolist(), events.counts.tolist(), strict=True
    ):
        if not taken[one]:
            continue
        part = int(even.offset[one])
        several = even.offset[one + 1] > part
        for run in range(even.begin[even.node_set[one]], even.begin[even.node_set[one] + 1]):
            for node in range(int(even.first[run]), int(even.stop[run])):
                if grown[node] and (
                    sure[node] if rises and not counts else not rises and (sure[node] or counts)
                ):
                    if parts[node]:
                        rows.append((node, alone[node], list(parts[node])))
                        terms += len(parts[node])
                    least[node] = max(least[node], alone[node])
                    grown[node] = sure[node] = False
                if rises:
                    grown[node], sure[node] = True, sure[node] or counts
                if several:
                    if rises:
                        parts[node][part] = None
                    else:
                        del parts[node][part]
                    part += 1
                else:
                    alone[node] += even.each[one] if rises else -even.each[one]
        if terms > MOST_TERMS:
            return None
    # what counts at no time, a node has room for all the same
    seen = {part for _, _, one in rows for part in one}
    for one in np.flatnonzero(np.diff(even.offset)).tolist():
        part = int(even.offset[one])
        for run in range(even.begin[even.node_set[one]], even.begin[even.node_set[one] + 1]):
            for node in range(int(even.first[run]), int(even.stop[run])):
                if part not in seen:
                    rows.append((node, 0.0, [part]))
                part += 1
    return least, rows

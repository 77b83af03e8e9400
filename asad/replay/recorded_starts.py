"""What a log says of when and where its jobs ran, as the engine's scheduler `RECORDED` plays it.

Nodes come from node lists; a job without one, or on nodes that the machine does not have, gets nodes that were free at
its start. How a job was spread over its nodes no log says: evenly, unless the others there leave no room for that. A
node of which the log held more than it has is as large as that, and lends nothing: it is `closed`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.model import Floats, Ints, Machine
from asad.replay.engine import Slots
from asad.replay.readers import Holdings, Recorded
from asad.replay.workload_columns import Workload

MOST_PARTS = 20_000_000
"""Jobs may have so many parts, of single nodes, in all."""


@dataclass(frozen=True, slots=True)
class RecordedStarts:
    """Where and when jobs ran; J jobs of the log and E earlier runs of those that were requeued, which hold nodes as
    well."""

    machine: Machine
    """Each node as large as the most that the log held of it."""
    closed: NDArray[np.bool_]
    """(N,) of which the log held more than there is."""
    slots: Slots
    """J + E rows."""
    earlier: Workload
    """(E,) the earlier runs."""
    chosen: int
    """So many jobs have no nodes in the log that the machine has: theirs were chosen."""
    notes: tuple[str, ...]


class _Runs(NamedTuple):
    """What ran, J + E rows, and the nodes of each that are known, one row after the other."""

    start: Floats
    stop: Floats
    cores: NDArray[np.int64]
    memory: Floats
    """Bytes a core."""
    wide: Ints
    at: NDArray[np.int64]
    node: Ints


def lacks(recorded: Recorded) -> str:
    """Why the log cannot be played as it happened, or the empty string."""
    if recorded.format == "swf":
        return "an SWF log names no nodes"
    if np.isnan(recorded.jobs.start_s).any():
        return "some of its jobs have no start"
    held = recorded.held
    sets = None if held is None else held.lists.sets()
    if held is not None and (sets is None or int(sets.sizes[held.node_set].sum()) > MOST_PARTS):
        return f"its jobs have more than {MOST_PARTS} parts of nodes together"
    return ""


def recorded_starts(recorded: Recorded, machine: Machine, workload: Workload) -> RecordedStarts:
    """When and where the jobs of the log ran on `machine`; `workload` is of the same jobs, and has their memory."""
    earlier = _earlier_runs(recorded, workload)
    runs, notes = _runs(recorded, machine, workload, earlier)
    memory = machine.memory_bound_bytes
    at, node, cores, most, most_memory = _place_all(runs, machine.cores, memory)
    closed = (most > machine.cores) | (most_memory > memory * (1.0 + 1e-6))
    if closed.any():
        notes.append(
            f"{int(closed.sum())} nodes held more at some time than they have: they are as large as that, and lend "
            "nothing"
        )
    chosen = int(np.count_nonzero(np.diff(runs.at)[: len(workload)] == 0))
    if chosen:
        notes.append(
            f"{chosen} jobs name no nodes that the machine has: they are taken to have run on nodes that were free then"
        )
    larger = replace(
        machine,
        cores=np.maximum(machine.cores, most).astype(np.int32),
        memory_bytes=np.where(
            np.isnan(machine.memory_bytes), np.nan, np.maximum(machine.memory_bytes, most_memory)
        ),
    )
    reach, reach_at, reach_node = _reach(recorded, len(earlier), at, node, closed)
    slots = Slots(runs.start, at, node, cores, reach, reach_at, reach_node, len(workload), 0)
    return RecordedStarts(larger, closed, slots, earlier, chosen, tuple(notes))


def extended(workload: Workload, starts: RecordedStarts, hold: bool) -> tuple[Workload, Slots]:
    """The jobs, earlier runs after them, and with `hold` a row for each job that may hold its slot when it has been
    vacated. Those rows never arrive: they start."""
    if not len(starts.earlier) and not hold:
        return workload, starts.slots
    slots, parts = starts.slots, [workload, starts.earlier]
    if hold:
        held = len(workload) + len(starts.earlier)
        never = np.full(len(workload), np.inf)
        parts.append(replace(workload, submit_s=never, hints={}))
        count = len(workload)
        of_jobs = slots.at[1 : count + 1]
        # their parts are those of the jobs
        more = slots.node[: of_jobs[-1]], slots.cores[: of_jobs[-1]]
        slots = Slots(
            np.concatenate((slots.start, slots.start[:count])),
            np.concatenate((slots.at, slots.at[-1] + of_jobs)),
            np.concatenate((slots.node, more[0])),
            np.concatenate((slots.cores, more[1])),
            np.concatenate((slots.reach, np.full(count, -1, np.int32))),
            slots.reach_at,
            slots.reach_node,
            count,
            held,
        )
    columns: dict[str, Any] = {
        column.name: np.concatenate([_column(part, column.name, own) for part in parts])
        for column in fields(Workload)
        if isinstance(own := getattr(workload, column.name), np.ndarray)
    }
    return replace(workload, **columns), slots


def _column(part: Workload, name: str, of_jobs: NDArray[Any]) -> NDArray[Any]:
    """A column of some rows; where they have none, nothing: no array, no deadline."""
    column: NDArray[Any] | None = getattr(part, name)
    if column is not None:
        return column
    return np.full(len(part), np.nan if of_jobs.dtype.kind == "f" else -1, of_jobs.dtype)


def _earlier_runs(recorded: Recorded, workload: Workload) -> Workload:
    """The runs that ended in a requeue, in order of their starts, as rows that never arrive."""
    held = recorded.held
    rows = np.zeros(0, np.intp)
    if held is not None:
        rows = np.flatnonzero(held.earlier)
        rows = rows[np.argsort(held.start_s[rows], kind="stable")]
    none = workload.take(np.zeros(len(rows), np.intp))
    if held is None or not len(rows):
        return none
    cores = held.cores[rows].astype(np.int32)
    memory = np.zeros(len(rows))
    if (workload.memory_bytes_per_core > 0).any():
        memory = np.floor(np.nan_to_num(held.memory_bytes[rows]) / cores)
    run = held.stop_s[rows] - held.start_s[rows]
    nothing = np.full(len(rows), -1, np.int32)
    return replace(
        none,
        submit_s=np.full(len(rows), np.inf),
        work_s=run,
        planned_s=run,
        limit_s=np.full(len(rows), np.inf),
        cores=cores,
        nodes=np.zeros(len(rows), np.int32),
        memory_bytes_per_core=memory,
        demand=np.ones(len(rows)),
        depends_on=nothing,
        user=nothing,
    )


def _runs(
    recorded: Recorded, machine: Machine, workload: Workload, earlier: Workload
) -> tuple[_Runs, list[str]]:
    """What ran, and where as far as the machine has those nodes; and what is to be known of that."""
    jobs, held = recorded.jobs, recorded.held
    sets_of = np.full(len(jobs) + len(earlier), -1, np.int64)
    start = jobs.start_s
    if jobs.node_set is not None:
        sets_of[: len(jobs)] = jobs.node_set
    if held is not None and len(earlier):
        rows = np.flatnonzero(held.earlier)
        rows = rows[np.argsort(held.start_s[rows], kind="stable")]
        sets_of[len(jobs) :] = held.node_set[rows]
        start = np.concatenate((start, held.start_s[rows]))
    work = np.concatenate((workload.work_s, earlier.work_s))
    at, node = np.zeros(len(start) + 1, np.int64), np.zeros(0, np.int32)
    notes: list[str] = []
    if held is not None:
        of_log, notes = _nodes_of(held, machine)
        sets = held.lists.sets()
        assert sets is not None
        at, node = _spread_sets(sets_of, sets.begin, sets.first, sets.stop, of_log)
    return _Runs(
        start,
        start + work,
        np.concatenate((workload.cores, earlier.cores)).astype(np.int64),
        np.concatenate((workload.memory_bytes_per_core, earlier.memory_bytes_per_core)),
        np.concatenate((workload.nodes, earlier.nodes)),
        at,
        node,
    ), notes


def _nodes_of(held: Holdings, machine: Machine) -> tuple[Ints, list[str]]:
    """(names of the log,) the number of each node on the machine, -1 for one that it does not have."""
    sets = held.lists.sets()
    assert sets is not None
    number = {name: node for node, name in enumerate(machine.node_names)}
    found = np.array([number.get(name, -1) for name in sets.names], np.int32)
    used = np.zeros(len(sets.names) + 1, np.int64)
    for code in np.unique(held.node_set).tolist():
        for run in range(sets.begin[code], sets.begin[code + 1]):
            used[sets.first[run]] += 1
            used[sets.stop[run]] -= 1
    named = np.flatnonzero(np.cumsum(used)[:-1] > 0)
    if (found[named] >= 0).any() or len(named) > len(machine.node_names):
        return found, []
    # a machine that is given by numbers has names of its own
    found[named] = np.arange(len(named), dtype=np.int32)
    first, last = sets.names[named[0]], sets.names[named[-1]]
    return found, [
        f"the nodes of the log, {first} to {last}, are taken for the first {len(named)} of the machine, in their order"
    ]


@compiled
def _spread_sets(
    sets_of: NDArray[np.int64],
    begin: NDArray[np.int64],
    first: NDArray[np.int64],
    stop: NDArray[np.int64],
    of_log: Ints,
) -> tuple[NDArray[np.int64], Ints]:
    """The nodes of each row one after the other, and where those of each begin; none of a row of which one is not
    known."""
    at = np.zeros(len(sets_of) + 1, np.int64)
    for fill in (False, True):
        node = np.zeros(at[-1] if fill else 0, np.int32)
        for row in range(len(sets_of)):
            code, count = sets_of[row], 0
            known = code >= 0
            if known:
                for run in range(begin[code], begin[code + 1]):
                    for one in range(first[run], stop[run]):
                        if of_log[one] < 0:
                            known = False
                            break
                        if fill and at[row] + count < at[row + 1]:
                            node[at[row] + count] = of_log[one]
                        count += 1
            if not fill:
                at[row + 1] = at[row] + (count if known else 0)
    return at, node


@compiled
def _place_all(
    runs: _Runs, node_cores: Ints, node_memory: Floats
) -> tuple[NDArray[np.int64], Ints, Ints, NDArray[np.int64], Floats]:
    """The parts of each row (where they begin, node, cores), and the most cores and bytes held of each node."""
    rows, nodes = len(runs.start), len(node_cores)
    free = node_cores.astype(np.int64)
    left = node_memory.copy()
    least, least_memory = np.zeros(nodes, np.int64), np.zeros(nodes)
    least[:] = free
    least_memory[:] = left
    # parts in the order of starts; a row has as many as there is room for
    room = np.empty(rows, np.int64)
    for row in range(rows):
        known = runs.at[row + 1] - runs.at[row]
        room[row] = known if known > 0 else min(nodes, max(runs.cores[row], 1))
    begin = np.zeros(rows + 1, np.int64)
    begin[1:] = np.cumsum(room)
    node, cores = np.zeros(begin[-1], np.int32), np.zeros(begin[-1], np.int32)
    count = np.zeros(rows, np.int64)
    when = np.concatenate((runs.stop, runs.start))
    for event in np.argsort(when, kind="mergesort"):
        row = event % rows
        if event < rows:
            for k in range(begin[row], begin[row] + count[row]):
                free[node[k]] += cores[k]
                left[node[k]] += cores[k] * runs.memory[row]
            continue
        if runs.at[row + 1] > runs.at[row]:
            width = runs.at[row + 1] - runs.at[row]
            for k in range(width):
                node[begin[row] + k] = runs.node[runs.at[row] + k]
        else:
            width = _choose(
                runs.cores[row],
                runs.memory[row],
                runs.wide[row],
                free,
                left,
                node[begin[row] : begin[row + 1]],
            )
        _deal(
            runs.cores[row],
            free,
            node[begin[row] : begin[row] + width],
            cores[begin[row] : begin[row] + width],
        )
        count[row] = width
        for k in range(begin[row], begin[row] + width):
            free[node[k]] -= cores[k]
            left[node[k]] -= cores[k] * runs.memory[row]
            least[node[k]] = min(least[node[k]], free[node[k]])
            least_memory[node[k]] = min(least_memory[node[k]], left[node[k]])
    at = np.zeros(rows + 1, np.int64)
    for row in range(rows):
        for k in range(begin[row], begin[row] + count[row]):
            at[row + 1] += cores[k] > 0
    at = np.cumsum(at)
    of_node, of_cores = np.empty(at[-1], np.int32), np.empty(at[-1], np.int32)
    for row in range(rows):
        to = at[row]
        for k in range(begin[row], begin[row] + count[row]):
            if cores[k] > 0:
                of_node[to], of_cores[to] = node[k], cores[k]
                to += 1
    return at, of_node, of_cores, node_cores - least, node_memory - least_memory


@compiled
def _choose(cores: int, memory: float, wide: int, free: NDArray[np.int64], left: Floats, node: Ints) -> int:
    """Nodes for a job that names none, into `node`: as many as it had where they have room for even parts, else those
    with free cores, else the emptiest. How many they are."""
    most, count = len(node), 0
    if wide > 0:
        each = -(-cores // wide)
        for one in range(len(free)):
            if count < min(wide, most) and free[one] >= each and left[one] >= each * memory:
                node[count] = one
                count += 1
        if count == wide:
            return count
    count, wanted = 0, cores
    for one in range(len(free)):
        if wanted > 0 and count < most and free[one] > 0 and left[one] >= memory * min(wanted, free[one]):
            node[count] = one
            wanted -= free[one]
            count += 1
    if wanted > 0 and count == 0:
        node[0] = np.argmax(free)
        count = 1
    return count


@compiled
def _deal(wanted: int, free: NDArray[np.int64], node: Ints, cores: Ints) -> None:
    """Cores of each node, evenly; what there is no room for goes to those of its other nodes that have some, and what
    nobody has room for is even again."""
    width = len(node)
    over = np.int64(0)
    for k in range(width):
        cores[k] = wanted // width + (k < wanted % width)
        more = cores[k] - max(free[node[k]], 0)
        if more > 0:
            cores[k] -= more
            over += more
    for k in range(width):
        more = min(over, free[node[k]] - cores[k])
        if more > 0:
            cores[k] += more
            over -= more
    for k in range(width):
        cores[k] += over // width + (k < over % width)


def _reach(
    recorded: Recorded, earlier: int, at: NDArray[np.int64], node: Ints, closed: NDArray[np.bool_]
) -> tuple[Ints, NDArray[np.int64], Ints]:
    """(J + E,) where each job may start if its nodes are taken: on any that the log uses for its partition. Not with
    gres, whose nodes are not just any; earlier runs hold what they held."""
    jobs = recorded.jobs
    partition = jobs.partition.astype(np.int64) + 1
    reach = partition.astype(np.int32)
    if jobs.gres is not None:
        reach[jobs.gres >= 0] = -1
    parts = int(at[len(jobs)])
    of_part = np.repeat(partition, np.diff(at)[: len(jobs)])
    pairs = np.unique(of_part * len(closed) + node[:parts])
    pairs = pairs[~closed[pairs % len(closed)]]
    reach_at = np.searchsorted(pairs // len(closed), np.arange(int(partition.max(initial=0)) + 2))
    return (
        np.concatenate((reach, np.full(earlier, -1, np.int32))),
        reach_at.astype(np.int64),
        (pairs % len(closed)).astype(np.int32),
    )

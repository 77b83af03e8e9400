"""Nodes that stood empty beside jobs that waited and would have fitted: they were down, drained or somebody else's.

A log has no word of nodes that are gone, nor of jobs that it does not contain (those that ran on beyond its end). But
Slurm starts the first job that fits on a node within a minute or two. So where a node of a partition is empty for
`LEAST_S` while all the time a job waits there that fits on it, is held by no limit, asks for no gres and no feature,
and no job over several nodes waits there, for which nodes might be kept, it could not be used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.model import Floats, Ints, JobLog, Machine
from asad.replay.closed_nodes import Gone
from asad.replay.recorded_starts import RecordedStarts

LEAST_S = 900.0
"""Many times the interval of a scheduler's passes."""


def gone_nodes(
    jobs: JobLog, memory: Floats, machine: Machine, starts: RecordedStarts, limited: NDArray[np.bool_]
) -> Gone:
    """Which nodes could not be used, from when to when.

    `memory` (J,) in bytes a core, `limited` (J,) who waited for a limit at some time.
    """
    slots, count = starts.slots, len(jobs)
    partition = (jobs.partition + 1).astype(np.int64)
    partitions = int(partition.max(initial=0)) + 1
    nodes = len(machine.cores)
    width = np.diff(slots.at)[:count]
    pairs = np.unique(np.repeat(partition, width) * nodes + slots.node[: slots.at[count]])
    of_pair, node = pairs // nodes, (pairs % nodes).astype(np.int32)
    plain = ~limited & (jobs.nodes <= 1)
    for column in (jobs.gres, jobs.constraint, jobs.reservation):
        if column is not None:
            plain &= column < 0
    waits = jobs.queued_s < jobs.start_s
    # jobs of one kind want the same of the same partition
    wanted = np.column_stack((partition, jobs.cores, memory * jobs.cores))
    kinds, kind = np.unique(wanted[waits & plain], axis=0, return_inverse=True)
    kind_of = np.full(count, -1, np.int64)
    kind_of[waits & plain] = kind.reshape(-1)
    wide = waits & (jobs.nodes > 1)
    rows = len(slots.start)
    stop = slots.start + np.concatenate((jobs.run_s, starts.earlier.work_s))
    # of one moment ends come first, then who begins to wait, then starts
    when = np.concatenate((stop, jobs.queued_s, slots.start))
    order = np.lexsort((np.repeat([0, 1, 2], [rows, count, rows]), when))
    by_node = np.argsort(node, kind="stable")
    at_node = np.searchsorted(node[by_node], np.arange(nodes + 1))
    found = _sweep(
        order,
        when,
        rows,
        count,
        np.concatenate((partition, np.zeros(rows - count, np.int64))),
        kind_of,
        wide,
        np.searchsorted(kinds[:, 0], np.arange(partitions + 1)),
        kinds[:, 1].copy(),
        kinds[:, 2].copy(),
        machine.cores,
        machine.memory_bound_bytes,
        slots.at,
        slots.node,
        np.searchsorted(of_pair, np.arange(partitions + 1)),
        node,
        at_node,
        of_pair[by_node],
    )
    rows_of = np.argsort(found[1], kind="stable")
    return Gone(found[0][rows_of], found[1][rows_of], found[2][rows_of])


def known_gone(jobs: JobLog, memory: Floats, machine: Machine, starts: RecordedStarts) -> Gone:
    """The same as far as the log shows it by then: each from `LEAST_S` after its begin on. Limits do not count, since
    which there are is known later."""
    gone = gone_nodes(jobs, memory, machine, starts, np.zeros(len(jobs), np.bool_))
    return gone._replace(begin_s=gone.begin_s + LEAST_S)


@compiled
def _sweep(
    order: NDArray[np.int64],
    when: Floats,
    rows: int,
    count: int,
    partition: NDArray[np.int64],
    kind_of: NDArray[np.int64],
    wide: NDArray[np.bool_],
    kinds_of: NDArray[np.int64],
    wants_cores: Floats,
    wants_memory: Floats,
    cores: Ints,
    memory: Floats,
    at: NDArray[np.int64],
    node: Ints,
    of_partition: NDArray[np.int64],
    its_node: Ints,
    of_node: NDArray[np.int64],
    its_partition: NDArray[np.int64],
) -> tuple[Ints, Floats, Floats]:
    nodes = len(cores)
    waiting, wider = np.zeros(len(wants_cores), np.int64), np.zeros(len(of_partition), np.int64)
    busy, since = np.zeros(nodes, np.int64), np.full(nodes, np.nan)
    gone, begin, end = np.empty(64, np.int32), np.empty(64), np.empty(64)
    found = 0
    touched = np.empty(nodes, np.int64)
    for event in order:
        time, few = when[event], 0
        if rows <= event < rows + count:  # begins to wait
            row = event - rows
            flips = _count(waiting, wider, partition[row], kind_of[row], wide[row], 1)
        else:
            starts = event >= rows + count
            row = event - rows - count if starts else event
            flips = False
            if starts and row < count:
                flips = _count(waiting, wider, partition[row], kind_of[row], wide[row], -1)
            for k in range(at[row], at[row + 1]):
                busy[node[k]] += 1 if starts else -1
                touched[few] = node[k]
                few += 1
        of = partition[row]
        many = of_partition[of + 1] - of_partition[of] if flips else 0
        for i in range(few + many):
            one = touched[i] if i < few else its_node[of_partition[of] + i - few]
            idle = False
            if busy[one] == 0:
                for k in range(of_node[one], of_node[one + 1]):
                    if wider[its_partition[k]] > 0:
                        continue
                    for kind in range(kinds_of[its_partition[k]], kinds_of[its_partition[k] + 1]):
                        fits = wants_cores[kind] <= cores[one] and wants_memory[kind] <= memory[one]
                        idle |= fits and waiting[kind] > 0
            if idle and np.isnan(since[one]):
                since[one] = time
            elif not idle and not np.isnan(since[one]):
                if time - since[one] >= LEAST_S:
                    if found == len(gone):
                        gone, begin, end = (
                            np.concatenate((gone, gone)),
                            np.concatenate((begin, begin)),
                            np.concatenate((end, end)),
                        )
                    gone[found], begin[found], end[found] = one, since[one], time
                    found += 1
                since[one] = np.nan
    return gone[:found], begin[:found], end[:found]


@compiled
def _count(
    waiting: NDArray[np.int64], wider: NDArray[np.int64], of: int, kind: int, wide: bool, by: int
) -> bool:
    """One more or less waits; does that change for which kinds nodes are looked at?"""
    if wide:
        wider[of] += by
        return bool(wider[of] == 0 or wider[of] == by)
    if kind < 0:
        return False
    waiting[kind] += by
    return bool(waiting[kind] == 0 or waiting[kind] == by)

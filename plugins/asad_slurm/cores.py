"""Which job has which cores.

Only how many cores of a node a job holds is taken from Slurm; which ones is nominal, batch jobs and guests each from a
node's first core on. Nothing is decided by the number of a core, only by whether a node is wholly held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.model import Ints, Machine
from asad_slurm.nodesets import expand
from asad_slurm.records import JobRecord, NodeRecord


class Place(NamedTuple):
    """Where a job is."""

    record: JobRecord
    """What Slurm said when this was found: while that is the same, so is this."""
    nodes: Ints
    """Numbers of its nodes."""
    cpus: Ints
    """CPUs on each."""


def place(record: JobRecord, number: dict[str, int], nodes: Sequence[NodeRecord]) -> Place:
    """Where a job is; nodes that are not in `number` are left out.

    Where Slurm does not tell how its CPUs are spread, they are spread evenly.
    """
    if record.places:
        known = [(number[name], count) for name, count in record.places if name in number]
        where = np.array([node for node, _ in known], dtype=np.int32)
        cpus = np.array([count for _, count in known], dtype=np.int32)
        if record.places_are_cores:
            cpus *= np.array([nodes[node].threads for node, _ in known], dtype=np.int32)
        return Place(record, where, cpus)
    try:
        names = expand(record.nodes_text)
    except ValueError:
        names = ()
    where = np.array([number[name] for name in names if name in number], dtype=np.int32)
    cpus = np.full(len(where), int(record.cores) // max(1, len(where)), dtype=np.int32)
    cpus[: int(record.cores) - int(cpus.sum())] += 1
    return Place(record, where, cpus)


def keep(
    core_guest: Ints, row: int, cores: int, nodes: Sequence[int], first_core: Ints, threads: int = 1
) -> None:
    """Show an offered job on free cores of the nodes that are kept for it, so that nobody else is sent there.

    Spread evenly, as a gang is, and filled up where that leaves some over. Where cores have several `threads`, it gets
    whole cores on each node, although it counts as the threads that it asked for while it waits.
    """
    left = cores
    even = -(-cores // max(1, len(nodes)))
    if threads > 1:
        even = -(-even // threads) * threads
        left = cores = even * len(nodes)
    for most in (even, cores):
        for node in nodes:
            begin, end = first_core[node], first_core[node + 1]
            mine = int((core_guest[begin:end] == row).sum())
            free = np.flatnonzero(core_guest[begin:end] < 0)[: max(0, min(left, most - mine))]
            core_guest[begin + free] = row
            left -= len(free)


def holders(core_owner: Ints, machine: Machine) -> tuple[Ints, NDArray[np.bool_]]:
    """Of each node: the row of the batch job with the most cores there (-1 for none), and whether there are several."""
    count = len(machine.cores)
    main = np.full(count, -1, np.int32)
    several = np.zeros(count, dtype=bool)
    held = np.flatnonzero(core_owner >= 0)
    if not len(held):
        return main, several
    node = np.repeat(np.arange(count), machine.cores)[held]
    pairs, sizes = np.unique(node * (int(core_owner.max()) + 1) + core_owner[held], return_counts=True)
    nodes, rows = np.divmod(pairs, int(core_owner.max()) + 1)
    by_size = np.argsort(sizes, kind="stable")  # the largest is written last
    main[nodes[by_size]] = rows[by_size]
    several[nodes] = np.bincount(nodes, minlength=count)[nodes] > 1
    return main, several

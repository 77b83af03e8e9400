"""The nodes as sinfo showed them last: a machine of cores, which partitions have which, and which job has which cores.

Only how many cores of a node a job holds is taken from Slurm; which ones is nominal, batch jobs and guests each from a
node's first core on. Nothing is decided by the number of a core, only by whether a node is wholly held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.model import Ints, Machine
from asad_slurm.nodesets import expanded
from asad_slurm.records import JobRecord, NodeRecord
from asad_slurm.settings import Settings


class Nodes:
    """A node's number is its place in the list of sinfo, and in every array over nodes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.records: list[NodeRecord] = []
        self.machine = Machine((), np.zeros(0, np.int32), np.zeros(0), "sinfo")
        self.number: dict[str, int] = {}
        """By name."""
        self.of_partition: dict[str, Ints] = {}
        """By partition the numbers of its nodes."""
        self.takes_guests: dict[str, NDArray[np.bool_]] = {}
        """By guest partition (nodes,) which are in it."""

    def see(self, records: list[NodeRecord]) -> bool:
        """What sinfo shows now. Is it another machine: have nodes come, gone, or changed in size?"""
        if records is self.records:
            return False
        another = [node[:4] for node in records] != [node[:4] for node in self.records]
        if another:  # by name, CPUs, threads, memory
            self.machine = Machine(
                tuple(node.name for node in records),
                np.array([node.cpus for node in records], dtype=np.int32),
                np.array([node.memory_bytes for node in records]),
                "sinfo",
            )
            self.number = {node.name: number for number, node in enumerate(records)}
        self.records = records
        of_partition: dict[str, list[int]] = {}
        for number, node in enumerate(records):
            for name in node.partitions:
                of_partition.setdefault(name, []).append(number)
        self.of_partition = {name: np.array(at, np.int32) for name, at in of_partition.items()}
        self.takes_guests = {
            guest: np.array([guest in node.partitions for node in records], dtype=bool)
            for guest in self._settings.guest_partitions.values()
        }
        return another

    def numbers(self, names: Iterable[str]) -> list[int]:
        """Of those that are there."""
        return [self.number[name] for name in names if name in self.number]

    def keep(self, core_guest: Ints, row: int, cores: float, nodes: Sequence[int]) -> None:
        """Show the job in `row`, to whom these nodes are offered, on free ones of their cores, so that nobody else is
        sent there.

        Spread evenly, as a gang is, and filled up where that leaves some over. Where cores have several threads, it
        gets whole cores on each node, although it counts as the threads that it asked for while it waits.
        """
        first_core = self.machine.first_core
        threads = max((self.records[node].threads for node in nodes), default=1)
        even, left = -(-int(cores) // max(1, len(nodes))), int(cores)
        if threads > 1:
            even = -(-even // threads) * threads
            left = even * len(nodes)
        for most in (even, left):
            for node in nodes:
                begin, end = first_core[node], first_core[node + 1]
                mine = int((core_guest[begin:end] == row).sum())
                free = np.flatnonzero(core_guest[begin:end] < 0)[: max(0, min(left, most - mine))]
                core_guest[begin + free] = row
                left -= len(free)


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

    Where Slurm does not show how its CPUs are spread, they are spread evenly.
    """
    if record.places:
        known = [(number[name], count) for name, count in record.places if name in number]
        where = np.array([node for node, _ in known], dtype=np.int32)
        cpus = np.array([count for _, count in known], dtype=np.int32)
        if record.places_are_cores:
            cpus *= np.array([nodes[node].threads for node, _ in known], dtype=np.int32)
        return Place(record, where, cpus)
    names = expanded(record.nodes_text)
    where = np.array([number[name] for name in names if name in number], dtype=np.int32)
    cpus = np.full(len(where), int(record.cores) // max(1, len(where)), dtype=np.int32)
    cpus[: int(record.cores) - int(cpus.sum())] += 1
    return Place(record, where, cpus)


def holders(core_owner: Ints, machine: Machine) -> Ints:
    """(nodes,) the row of the batch job with the most cores of each node, -1 for none."""
    count = len(machine.cores)
    main = np.full(count, -1, np.int32)
    held, size = np.flatnonzero(core_owner >= 0), int(core_owner.max(initial=0)) + 1
    node = np.repeat(np.arange(count), machine.cores)[held]
    pairs, sizes = np.unique(node * size + core_owner[held], return_counts=True)
    nodes, rows = np.divmod(pairs[np.argsort(sizes, kind="stable")], size)  # the largest is written last
    main[nodes] = rows
    return main

"""The nodes as sinfo showed them last: a machine of cores, and which partitions have which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from asad.model import Ints, Machine
from asad_slurm.cores import keep
from asad_slurm.records import NodeRecord
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
        """Show the job in `row`, to whom these nodes are offered, on free ones of their cores (`cores.keep`)."""
        threads = max((self.records[node].threads for node in nodes), default=1)
        keep(core_guest, row, int(cores), nodes, self.machine.first_core, threads)

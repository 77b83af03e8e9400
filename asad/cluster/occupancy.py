"""Which job is shown on which cores, where a resource manager says only how many of a node's cores each holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from asad.model import Ints, Machine


class Placed(Protocol):
    """Where a job is."""

    @property
    def nodes(self) -> Ints:
        """Numbers of its nodes."""

    @property
    def cpus(self) -> Ints:
        """Cores on each."""


def occupy(rows: Sequence[int], places: Mapping[int, Placed], machine: Machine) -> Ints:
    """(cores,) the row of the job on each core, -1 for none, for the jobs in `rows`.

    Where they hold more than a node has, the last ones go short.
    """
    cores = np.full(machine.total_cores, -1, np.int32)
    if not rows:
        return cores
    nodes = np.concatenate([places[row].nodes for row in rows])
    counts = np.concatenate([places[row].cpus for row in rows])
    who = np.repeat(np.array(rows, np.int32), [len(places[row].nodes) for row in rows])
    by_node = np.argsort(nodes, kind="stable")
    nodes, counts, who = nodes[by_node], counts[by_node], who[by_node]
    before = np.cumsum(counts) - counts
    offset = before - before[np.searchsorted(nodes, nodes)]
    counts = np.minimum(counts, np.maximum(0, machine.cores[nodes] - offset))
    start = machine.first_core[nodes] + offset
    index = np.repeat(start - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    cores[index] = np.repeat(who, counts)
    return cores

"""The site of nodes and partitions that a file describes: names of nodes become numbers of the machine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from asad.model import Ints
from asad.replay.described_nodes import PLAIN, DescribedNodes
from asad.replay.partition_rules import partition_rules
from asad.replay.passed_over import PassedOver
from asad.replay.site import BackfillRules, PartitionRules, PriorityRules, Site
from asad.replay.slurm_conf_partitions import Partition

NO_RULES = (
    "the description of the nodes names partitions without their limits of time and size and their tiers: those are "
    "taken to be Slurm's defaults; give the output of `scontrol show partition` beside it"
)


def numbers_of(names: Iterable[str] | None, number: Mapping[str, int]) -> Ints:
    """The numbers of these nodes, ascending; of all for None. Names that are not there have none."""
    if names is None:
        return np.arange(len(number), dtype=np.int32)
    return np.array(sorted({number[name] for name in names if name in number}), np.int32)


def site_of_nodes(
    found: DescribedNodes,
    partitions: Sequence[tuple[Partition, Iterable[str] | None]],
    *,
    priority: PriorityRules | None = None,
    backfill: BackfillRules | None = None,
    over: PassedOver | None = None,
) -> Site:
    """The site of the nodes of `found` and of partitions with the names of their nodes (None: of all).

    `over` has what was passed over of the rest of the file.
    """
    number = {name: node for node, name in enumerate(found.nodes)}
    over = over or PassedOver()
    rules = {
        partition.name: partition_rules(partition, numbers_of(names, number), over)
        for partition, names in partitions
    }
    return _site(found, rules, priority, backfill, (*found.passed_over.notes(), *over.notes()))


def site_of_list(found: DescribedNodes, of_partition: Mapping[str, Iterable[str]]) -> Site:
    """The site of a list of nodes that has the names of partitions alone: the names of the nodes of each."""
    number = {name: node for node, name in enumerate(found.nodes)}
    rules = {
        name: PartitionRules(name, numbers_of(names, number)) for name, names in sorted(of_partition.items())
    }
    notes = (*found.passed_over.notes(), *((NO_RULES,) if rules else ()))
    return _site(found, rules, None, None, notes)


def _site(
    found: DescribedNodes,
    rules: Mapping[str, PartitionRules],
    priority: PriorityRules | None,
    backfill: BackfillRules | None,
    notes: tuple[str, ...],
) -> Site:
    offers = [found.offers.get(name, PLAIN) for name in found.nodes]
    return Site(
        partitions=rules,
        gres=tuple(one.gres for one in offers),
        features=tuple(one.features for one in offers),
        weight=np.array([one.weight for one in offers], np.float64),
        priority=priority,
        backfill=backfill,
        notes=notes,
    )

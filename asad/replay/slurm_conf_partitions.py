"""What the partitions of a slurm.conf say of its nodes: which of them jobs can use, and where jobs share cores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from asad.errors import MachineError
from asad.replay.described_nodes import (
    NO_NODE,
    DescribedNodes,
    is_template,
    may_be_nodes,
    names_in,
    shown_names,
    split_names,
)

JOBS_A_CORE = 4
"""What OverSubscribe=FORCE alone allows."""

_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9}(?::\d{1,9}){0,2})", re.ASCII)
_SHARED = re.compile(r"(force|yes)(?::(\d{1,5}))?", re.IGNORECASE | re.ASCII)


class Partition(NamedTuple):
    """A partition; settings have keys in lower case."""

    place: str
    name: str
    own: dict[str, str]
    """What its line says."""
    settings: dict[str, str]
    """The same, and what PartitionName=DEFAULT lines above it say."""


def partitions_of(lines: Sequence[tuple[str, dict[str, str]]]) -> list[Partition]:
    """The partitions of PartitionName lines, given as places and settings."""
    defaults: dict[str, str] = {}
    found = []
    for place, own in lines:
        name = own.get("partitionname", "")
        if name.upper() == "DEFAULT":
            defaults.update(own)
        else:
            found.append(Partition(place, name, own, {**defaults, **own}))
    return found


def time_limits_s(partitions: Sequence[Partition]) -> dict[str, float]:
    """By partition the longest that its jobs may run, `MaxTime`; where that is not given, what they get that ask for
    nothing, `DefaultTime`. What cannot be read is left out."""
    found = {}
    for partition in partitions:
        for key in ("maxtime", "defaulttime"):
            longest_s = limit_s(partition.settings.get(key, ""))
            if longest_s > 0:  # never of NaN
                found[partition.name] = longest_s
                break
    return found


def limit_s(text: str) -> float:
    """`30` (minutes), `30:00`, `1:00:00`, `2-0`, `2-00:00`, `2-00:00:00` or a word for no limit; NaN if it is none."""
    word = text.strip().lower()
    if word in ("unlimited", "infinite"):
        return math.inf
    match = _TIME.fullmatch(word)
    if not match:
        return math.nan
    days, *clock = match[1], *(int(one) for one in match[2].split(":"))
    if days is not None:
        hours, minutes, seconds = (*clock, 0, 0)[:3]
    elif len(clock) < 3:
        hours, (minutes, seconds) = 0, (*clock, 0)[:2]
    else:
        hours, minutes, seconds = clock
    return 86400.0 * int(days or 0) + 3600.0 * hours + 60.0 * minutes + seconds


class NodeLists:
    """The lists of nodes of partitions, each expanded once."""

    def __init__(self, sets: Sequence[tuple[str, dict[str, str]]], features: Mapping[str, set[str]]) -> None:
        """`sets` are NodeSet lines, as places and settings; `features` has the nodes of each feature."""
        self.sets: dict[str, tuple[str, dict[str, str]]] = {}
        for place, settings in sets:
            for name in split_names(settings.get("nodeset", "")):
                self.sets.setdefault(name, (place, settings))
        self.features = features
        self.known: dict[str, set[str] | None] = {}
        self.without_nodes: list[str] = []
        """Sets of a feature that no node has."""

    def names(self, place: str, text: str) -> set[str] | None:
        """The nodes of `Nodes=` of a partition; None if they are all that there are. Raises MachineError."""
        if text not in self.known:
            self.known[text] = self._expanded(place, text)
        return self.known[text]

    def _expanded(self, place: str, text: str) -> set[str] | None:
        found: set[str] = set()
        lists, seen = [(place, text)], set[str]()
        while lists:
            place, text = lists.pop()
            for part in split_names(text):
                if part.upper() == "ALL":
                    return None
                if part in self.sets and part not in seen:
                    seen.add(part)
                    where, settings = self.sets[part]
                    lists.append((where, settings.get("nodes", "")))
                    feature = settings.get("feature", "")
                    if feature and feature not in self.features:
                        self.without_nodes.append(part)
                    found |= self.features.get(feature, set())
                elif part.lower() not in NO_NODE and (may_be_nodes(part) or is_template(part)):
                    found.update(names_in(place, part))
        return found


def leave_out_of_no_partition(
    found: DescribedNodes, partitions: Sequence[Partition], lists: NodeLists
) -> None:
    """Leave out nodes in no partition, if any partition names nodes: no job can run there. Raises MachineError."""
    within: set[str] = set()
    for partition in partitions:
        names = lists.names(partition.place, partition.settings.get("nodes", ""))
        within |= found.nodes.keys() if names is None else names
    if without := sorted(set(lists.without_nodes)):
        found.assume(
            "no node that is described has the feature of some NodeSet, which is empty then", without
        )
    if within and found.nodes and within.isdisjoint(found.nodes):
        found.assume("no partition has a node that is described, so all of them count", list(found.nodes))
    found.leave_out_without(within)


def forgive_missing(
    found: DescribedNodes, missing: str, partitions: Sequence[Partition], lists: NodeLists
) -> None:
    """A file that is missing may only concern others: if every node of every partition is described.

    `missing` says which file. Raises MachineError else.
    """
    listed = False
    for partition in partitions:
        names = lists.names(partition.place, partition.settings.get("nodes", "")) or set()
        listed = listed or bool(names)
        if unknown := sorted(names - found.place_of.keys()):
            raise MachineError(
                f"{missing}, and {shown_names(unknown)} of a partition are not described; correct the path"
            )
    if not listed:
        raise MachineError(
            f"{missing}, and it may describe nodes; correct the path, or remove the line from a copy"
        )


def sharing_notes(partitions: Sequence[Partition]) -> Iterator[str]:
    """Notes of partitions whose jobs may share cores, which is not replayed."""
    always, asked = list[str](), list[str]()
    for partition in partitions:
        stated = partition.settings.get("oversubscribe", partition.settings.get("shared", ""))
        match = _SHARED.fullmatch(stated)
        if not match or int(match[2] or JOBS_A_CORE) < 2:
            continue
        (always if match[1].lower() == "force" else asked).append(partition.name)
    if always:
        yield (
            f"jobs of partitions with OverSubscribe=FORCE ({shown_names(always)}) share cores there, which is not "
            "replayed: they wait here where they did not wait there"
        )
    if asked:
        yield (
            f"jobs of partitions with OverSubscribe=YES ({shown_names(asked)}) share cores there if they ask for it, "
            "which is not replayed: they wait here where they did not wait there"
        )

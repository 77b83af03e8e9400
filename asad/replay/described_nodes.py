"""Nodes as a file describes them, and what Slurm leaves of them to jobs; what readers of such files share."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from asad.cluster import node_names
from asad.errors import MachineError
from asad.model import Machine
from asad.replay.gres_counts import gres_counts
from asad.replay.machine import machine_of
from asad.replay.passed_over import PassedOver
from asad.replay.readers.accounting_log import quoted

MEBIBYTE = 2.0**20
UNSET_MIB = 1
"""What Slurm takes RealMemory for where nobody gives it."""
NO_NODE = frozenset(
    {"n/a", "na", "none", "null", "(null)", "nil", "unknown", "undefined", "nonesuch", "0", "<none>"}
)
"""What stands for no node at all, in lower case."""
MOST_SHOWN = 3
WAYS = "slurm.conf, or the output of `scontrol show nodes --json`, `scontrol show node` or `sinfo --json`"
"""What describes a machine."""

_PARTS = re.compile(r"(?:[^,\s\[]|\[[^\]]*\]?)+")
"""What stands between commas or blanks that are not within brackets."""
_HOST = re.compile(r"[A-Za-z0-9_.\-]+", re.ASCII)
_HOSTS = re.compile(r"(?:[A-Za-z0-9_.\-]|\[[0-9,\-]+\])+", re.ASCII)
_OF_HOSTS = re.compile(r"[A-Za-z0-9_.\-\[\]]*", re.ASCII)
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_TEMPLATE = re.compile(r"\{[{%#]|[$<%@]")
UNFILLED = "{} is of a template that is not filled in; give the file that was made of it"
_WEIGHT = re.compile(r"\d{1,10}", re.ASCII)
_CPU_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII)


class Memory(NamedTuple):
    """Memory of one node."""

    for_jobs_bytes: float
    """NaN if it is not known."""
    kept_bytes: float
    """What is kept for the system."""
    limit_is_ignored: bool = False
    """Would more be kept than there is?"""


class Node(NamedTuple):
    """What is known of a node but its name."""

    cores: int
    """That jobs get."""
    memory: Memory
    kept_cpus: int
    """That are kept for the system."""


class Offer(NamedTuple):
    """What else a node has."""

    gres: Mapping[str, int]
    """`gpu:a100` → 4, and its family `gpu` → the sum over all types."""
    features: frozenset[str]
    weight: float


PLAIN = Offer({}, frozenset(), 1.0)
"""A node of which nothing else is known."""


@dataclass(slots=True)
class DescribedNodes:
    """The nodes that a file describes so far, and what of it is worth a note."""

    path: str
    nodes: dict[str, Node] = field(default_factory=dict)
    """By name, in the order of the file."""
    place_of: dict[str, str] = field(default_factory=dict)
    """By name of a node, where it is described; also of those that are left out."""
    future: int = 0
    """Nodes with State=FUTURE, which are left out."""
    down: set[str] = field(default_factory=set)
    """Nodes that are down by what the file says, and count nevertheless; names of others may be among them."""
    placeholders: dict[str, str] = field(default_factory=dict)
    """By name that stands for no node, where it stands."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """By what is so of them, nodes on which no job runs."""
    assumed: dict[str, list[str]] = field(default_factory=dict)
    """By what was assumed, of which nodes."""
    offers: dict[str, Offer] = field(default_factory=dict)
    """By name of a node, what else it has; also of those that are left out."""
    passed_over: PassedOver = field(default_factory=PassedOver)
    """What of gres, features and weights cannot be read."""

    def add(self, place: str, names: Sequence[str], cpus: int, kept: int, memory: Memory) -> None:
        """So many equal nodes: `cpus` of each, of which `kept` are for the system. Raises MachineError."""
        for name in names:
            self.claim(place, name)
        if memory.limit_is_ignored:
            self.assume("MemSpecLimit is RealMemory or more, so Slurm keeps no memory", names)
        if kept >= cpus > 0:
            self.leave_out("keep all of their CPUs for the system", names)
            return
        node = Node(cpus - kept, memory, kept)
        self.nodes.update((name, node) for name in names)

    def offer(self, place: str, names: Sequence[str], gres: str, features: str, weight: str) -> None:
        """What else these nodes have, by the texts of Slurm; empty where it says nothing."""
        read = _gres(gres)
        if read.strange:
            self.passed_over.say(
                "gres",
                f"{place}: {quoted(read.strange[0])} of Gres is no generic resource: it is passed over",
            )
        if read.not_consumed:
            self.passed_over.say(
                "no_consume",
                f"{place}: {quoted(read.not_consumed[0])} is never used up there (no_consume): here it counts as it is",
            )
        number = math.nan if not _WEIGHT.fullmatch(weight or "1") else float(weight or "1")
        if math.isnan(number):
            self.passed_over.say(
                "weight", f"{place}: Weight={quoted(weight)} is no number: it is taken for 1"
            )
            number = 1.0
        one = Offer(read.counts, _features(features), number)
        self.offers.update((name, one) for name in names)

    def claim(self, place: str, name: str) -> None:
        """A node is described there. Raises MachineError if it was already, as Slurm does not start with that."""
        if name in self.place_of:
            raise MachineError(
                f"{place}: node {quoted(name)} is also described at {self.place_of[name]}; remove one of them"
            )
        self.place_of[name] = place

    def assume(self, what: str, names: Sequence[str]) -> None:
        """Something was assumed of these nodes."""
        self.assumed.setdefault(what, []).extend(names)

    def leave_out(self, what: str, names: Sequence[str]) -> None:
        """Something is so of these nodes that no job runs there."""
        if names:
            self.left_out.setdefault(what, []).extend(names)
        for name in names:
            self.nodes.pop(name, None)

    def leave_out_without(self, partition_of: Container[str]) -> None:
        """Leave out the nodes that are in no partition, if some are in one."""
        outside = [name for name in self.nodes if name not in partition_of]
        if len(outside) < len(self.nodes):
            self.leave_out("are in no partition", outside)

    def instead(self) -> str | None:
        """Why no node is left, in words, where it is known."""
        if self.left_out:
            what, names = next(iter(self.left_out.items()))
            return f"no node is left: {len(names)} nodes {what} ({shown_names(names)})"
        return f"all of its {self.future} nodes have State=FUTURE" if self.future else None

    def machine(self, origin: str, *, memory_counts: bool = True, notes: Sequence[str] = ()) -> Machine:
        """The machine of these nodes; `origin` says of what in the file. Raises MachineError."""
        left_out = f", {self.future} nodes with State=FUTURE left out" if self.future else ""
        return machine_of(
            self.path,
            list(self.nodes),
            [node.cores for node in self.nodes.values()],
            [node.memory.for_jobs_bytes for node in self.nodes.values()],
            f"{self.path}: {len(self.nodes)} nodes of {origin}{left_out}",
            memory_counts=memory_counts,
            notes=(*self._notes(), *notes),
        )

    def memory_is_known(self) -> bool:
        """Of any node?"""
        return any(not math.isnan(node.memory.for_jobs_bytes) for node in self.nodes.values())

    def _notes(self) -> Iterator[str]:
        if self.placeholders:
            yield f"NodeName={shown_names(list(self.placeholders))} of {self.path} stands for no node: left out"
        for what, names in self.left_out.items():
            yield f"{len(names)} nodes {what}, so no job runs there: left out ({shown_names(names)})"
        if down := self.down & self.nodes.keys():
            yield f"{len(down)} nodes are down by what {self.path} says: they count nevertheless"
        keeping = [node for node in self.nodes.values() if node.kept_cpus or node.memory.kept_bytes]
        if keeping:
            cpus = sum(node.kept_cpus for node in keeping)
            kept_bytes = sum(node.memory.kept_bytes for node in keeping)
            parts = [f"{cpus} CPUs"] if cpus else []
            parts += [f"{kept_bytes / 2**30:.4g} GiB"] if kept_bytes else []
            yield f"{len(keeping)} nodes keep {' and '.join(parts)} for the system: jobs do not get them"
        for what, names in self.assumed.items():
            yield f"{what} ({shown_names(names)})"


_gres = lru_cache(maxsize=1000)(gres_counts)
"""Equal nodes share what is read of them."""


@lru_cache(maxsize=1000)
def _features(text: str) -> frozenset[str]:
    """`ib,fast` → the words; none of a text that stands for nothing."""
    listed = "" if text.strip().lower() in ("(null)", "n/a") else text
    return frozenset(map(str.strip, listed.split(","))) - {""}


def shown_names(names: Sequence[str]) -> str:
    """The first of some names, for a message."""
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return ", ".join(name if _HOST.fullmatch(name) else quoted(name) for name in names[:MOST_SHOWN]) + more


def split_names(text: str) -> list[str]:
    """`n[1-4],login1` in its parts, `n[1-4]` and `login1`."""
    return _PARTS.findall(text)


def names_in(place: str, part: str) -> list[str]:
    """The names that a part stands for. Raises MachineError."""
    if _HOST.fullmatch(part):
        return [part]
    if not _OF_HOSTS.fullmatch(_IN_BRACKETS.sub("", part)):
        raise MachineError(
            f"{place}: {UNFILLED.format(quoted(part))}"
            if is_template(part)
            else f"{place}: {quoted(part)} is no name of a node: that has letters, digits, `_`, `.` and `-`; correct it"
        )
    try:
        return list(node_names.expand(part))
    except ValueError as error:
        raise MachineError(f"{place}: {quoted(part)} is not a list of nodes; write it like n[1-4]") from error


def is_template(text: str) -> bool:
    """Does a text have what only a template has, for a value that is filled in later?"""
    return bool(_TEMPLATE.search(text))


def may_be_nodes(part: str) -> bool:
    """May nodes have the names of that part of a list? Brackets that are wrong are of nodes, and an error."""
    return bool(_HOSTS.fullmatch(part)) or "[" in part or "]" in part


# -------------------------------------------------------------------------------------------- what Slurm makes of it


def memory_of(real_mib: float | None, spec_limit_mib: float) -> Memory:
    """RealMemory less MemSpecLimit, which Slurm ignores where nothing would be left.

    1 MiB is what Slurm takes for RealMemory where nobody gives it: not known.
    """
    if real_mib is None or real_mib <= UNSET_MIB:
        return Memory(math.nan, 0.0)
    kept = spec_limit_mib if spec_limit_mib < real_mib else 0.0
    return Memory((real_mib - kept) * MEBIBYTE, kept * MEBIBYTE, spec_limit_mib > kept)


def threads_scheduled(cpus: int, cores: int, threads: int) -> int:
    """How many CPUs of Slurm one core is: its threads only where there are more CPUs than cores."""
    return threads if cpus > cores else 1


def cpus_kept(cpus: int, cores: int, threads: int, spec_count: int, spec_list: set[int] | None) -> int:
    """CPUs that Slurm keeps for the system of a node: whole cores, by number (CoreSpecCount) or by list (CpuSpecList).

    A list wins, and a number that leaves no core counts as 1.
    """
    each = threads_scheduled(cpus, cores, threads)
    if spec_list is not None:
        return len({cpu // each for cpu in spec_list}) * each
    return (spec_count if spec_count < cores else 1) * each if spec_count else 0


def cpu_numbers(text: str, most: int) -> set[int] | None:
    """`0-1,4` → the numbers; None if it is no such list, or names `most` or more: Slurm ignores it then."""
    found: set[int] = set()
    for part in text.strip("[] ").split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        if not match:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if not first <= last < most or step < 1:
            return None
        found.update(range(first, last + 1, step))
    return found

"""Nodes as a file describes them, and what Slurm leaves of them to jobs; what readers of such files share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from asad.cluster import node_names
from asad.errors import MachineError
from asad.model import Machine
from asad.replay.machine import machine_of
from asad.replay.readers.accounting_log import quoted

MEBIBYTE = 2.0**20
UNSET_MIB = 1
"""What Slurm takes RealMemory for where nobody gives it."""
NO_NODE = frozenset({"n/a", "na", "none", "null", "(null)", "nil", "unknown", "undefined", "nonesuch", "0"})
"""What stands for no node at all, in lower case."""
MOST_SHOWN = 3
WAYS = "slurm.conf, or the output of `scontrol show nodes --json`, `scontrol show node` or `sinfo --json`"
"""What describes a machine."""

_PARTS = re.compile(r"(?:[^,\s\[]|\[[^\]]*\]?)+")
"""What stands between commas or blanks that are not within brackets."""
_HOST = re.compile(r"[A-Za-z0-9_.\-]+", re.ASCII)
_HOSTS = re.compile(r"(?:[A-Za-z0-9_.\-]|\[[0-9,\-]+\])+", re.ASCII)
_CPU_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII)


@dataclass(slots=True)
class DescribedNodes:
    """The nodes that a file describes so far, and what of it is worth a note."""

    path: str
    names: list[str] = field(default_factory=list)
    cores: list[int] = field(default_factory=list)
    memory_bytes: list[float] = field(default_factory=list)
    place_of: dict[str, str] = field(default_factory=dict)
    """By name of a node, where it is described; also of those that are left out."""
    future: int = 0
    """Nodes with State=FUTURE, which are left out."""
    down: int = 0
    """Nodes that are down by what the file says, and count nevertheless."""
    placeholders: list[str] = field(default_factory=list)
    """Names that stand for no node."""
    kept_cpus: int = 0
    kept_bytes: float = 0.0
    keeping: int = 0
    """CPUs and bytes that so many nodes keep for the system."""
    assumed: dict[str, list[str]] = field(default_factory=dict)
    """By what was assumed, of which nodes."""

    def add(self, place: str, names: Sequence[str], cpus: int, kept: int, memory: Memory) -> None:
        """So many equal nodes: `cpus` of each, of which `kept` are for the system. Raises MachineError."""
        for name in names:
            self.claim(place, name)
        if kept or memory.kept_bytes:
            self.keeping += len(names)
            self.kept_cpus += kept * len(names)
            self.kept_bytes += memory.kept_bytes * len(names)
        if kept >= cpus > 0:
            raise MachineError(
                f"{place}: node {quoted(names[0])} keeps all of its {cpus} CPUs for the system, so no job runs there; "
                "correct CoreSpecCount or CpuSpecList"
            )
        self.names += names
        self.cores += [cpus - kept] * len(names)
        self.memory_bytes += [memory.for_jobs_bytes] * len(names)

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

    def machine(self, origin: str, *, memory_counts: bool = True, notes: Sequence[str] = ()) -> Machine:
        """The machine of these nodes; `origin` says of what in the file. Raises MachineError."""
        left_out = f", {self.future} nodes with State=FUTURE left out" if self.future else ""
        return machine_of(
            self.path,
            self.names,
            self.cores,
            self.memory_bytes,
            f"{self.path}: {len(self.names)} nodes of {origin}{left_out}",
            memory_counts=memory_counts,
            notes=(*self._notes(), *notes),
        )

    def _notes(self) -> Iterator[str]:
        if self.placeholders:
            yield f"NodeName={shown_names(self.placeholders)} of {self.path} stands for no node: left out"
        if self.down:
            yield f"{self.down} nodes are down by what {self.path} says: they count nevertheless"
        if self.keeping:
            parts = [f"{self.kept_cpus} CPUs"] if self.kept_cpus else []
            parts += [f"{self.kept_bytes / 2**30:.4g} GiB"] if self.kept_bytes else []
            yield f"{self.keeping} nodes keep {' and '.join(parts)} for the system: jobs do not get them"
        for what, names in self.assumed.items():
            yield f"{what} ({shown_names(names)})"


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
    try:
        return list(node_names.expand(part))
    except ValueError as error:
        raise MachineError(f"{place}: {quoted(part)} is not a list of nodes; write it like n[1-4]") from error


def may_be_nodes(part: str) -> bool:
    """May nodes have the names of that part of a list? Brackets that are wrong are of nodes, and an error."""
    return bool(_HOSTS.fullmatch(part)) or "[" in part or "]" in part


# -------------------------------------------------------------------------------------------- what Slurm makes of it


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one node."""

    for_jobs_bytes: float
    """NaN if it is not known."""
    kept_bytes: float
    """What is kept for the system."""


def memory_of(real_mib: float | None, spec_limit_mib: float) -> Memory:
    """RealMemory less MemSpecLimit, which Slurm ignores where nothing would be left.

    1 MiB is what Slurm takes for RealMemory where nobody gives it: not known.
    """
    if real_mib is None or real_mib <= UNSET_MIB:
        return Memory(math.nan, 0.0)
    kept = spec_limit_mib if spec_limit_mib < real_mib else 0.0
    return Memory((real_mib - kept) * MEBIBYTE, kept * MEBIBYTE)


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

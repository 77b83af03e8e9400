"""Nodes in Slurm's JSON: `scontrol show nodes --json`, and `sinfo --json` of all versions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

from asad.cluster import slurm_json
from asad.errors import MachineError
from asad.model import Machine
from asad.replay.described_nodes import (
    NO_NODE,
    DescribedNodes,
    Memory,
    cpu_numbers,
    cpus_kept,
    may_be_nodes,
    memory_of,
    names_in,
)
from asad.replay.node_records import memory_note
from asad.replay.readers.accounting_log import quoted

REMEDY = "give the output of `scontrol show nodes --json` or `sinfo --json`"
OTHERS = {
    "jobs": "jobs (squeue or sacct): that is a log, not a machine",
    "partitions": "partitions",
    "reservations": "reservations",
    "config": "a configuration",
    "licenses": "licenses",
    "steps": "steps of jobs",
    "statistics": "statistics of slurmctld",
}
"""What else Slurm writes as JSON, by key."""
UNKNOWN = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_TRES_CPUS = re.compile(r"(?:^|,)cpu=(\d{1,9})", re.ASCII)


def from_json(path: str, text: str) -> Machine:
    """The nodes of such a document. Raises MachineError, which names file and remedy."""
    try:
        whole = slurm_json.loads(text.encode("utf-8", "replace"))
    except orjson.JSONDecodeError as error:
        raise MachineError(
            f"{path}:{error.lineno}: column {error.colno}: this is not JSON: {error.msg}; write the file again"
        ) from error
    if not isinstance(whole, dict):
        raise MachineError(f"{path}: there is no list `nodes` or `sinfo`; {REMEDY}")
    found = DescribedNodes(path)
    try:
        if isinstance(whole.get("nodes"), list):
            for entry in whole["nodes"]:
                _take_node(found, entry)
        elif isinstance(whole.get("sinfo"), list):
            _take_groups(found, whole["sinfo"])
        else:
            other = next((what for key, what in OTHERS.items() if key in whole), None)
            problem = f"it lists {other}" if other else "there is no list `nodes` or `sinfo`"
            raise MachineError(f"{path}: {problem}; {REMEDY}")
    except UNKNOWN as error:
        raise MachineError(
            f"{path}: a node's description lacks or garbles {quoted(str(error))}; {REMEDY}"
        ) from error
    if not found.names:
        raise MachineError(f"{path}: it lists no nodes that jobs could run on; {REMEDY}")
    _sort(found)
    return found.machine("Slurm's JSON", notes=memory_note(found))


def _take_node(found: DescribedNodes, entry: Mapping[str, Any]) -> None:
    """Take in a node of the list `nodes`."""
    name = str(entry["name"])
    if not may_be_nodes(name) or name.lower() in NO_NODE:
        found.placeholders.append(name)
        return
    if _is_future(entry.get("state")):
        found.future += 1
        return
    cpus = int(_plain(entry["cpus"]))
    limit = _plain(entry.get("specialized_memory", entry.get("mem_spec_limit")), 0.0)
    memory = memory_of(_plain(entry.get("real_memory"), math.nan), limit)
    found.add(found.path, [name], cpus, _kept_of(entry, cpus), memory)


def _kept_of(entry: Mapping[str, Any], cpus: int) -> int:
    """CPUs of a node that are kept for the system."""
    effective = _plain(entry.get("effective_cpus"), 0.0)
    if effective > 0:
        return max(0, cpus - int(effective))
    count = int(_plain(entry.get("specialized_cores"), 0.0))
    if count:
        cores = int(_plain(entry.get("sockets"), 1.0) * _plain(entry.get("cores"), 1.0))
        return cpus_kept(cpus, cores, int(_plain(entry.get("threads"), 1.0)), count, None)
    tres = (
        _TRES_CPUS.search(entry["tres"]) if isinstance(entry.get("tres"), str) else None
    )  # what 22.05 has of it
    return max(0, cpus - int(tres[1])) if tres and int(tres[1]) else 0


def _take_groups(found: DescribedNodes, groups: list[Any]) -> None:
    """Take in the groups of equal nodes that newer versions of sinfo list: a node is in one for each partition."""
    nodes: dict[str, tuple[int, int, Memory]] = {}
    future: set[str] = set()
    unequal: set[str] = set()
    for group in groups:
        low, high = _plain(group["cpus"]["minimum"]), _plain(group["cpus"]["maximum"])
        reserved = group.get("resource_spec") or {}
        memory = memory_of(_plain(group["memory"]["minimum"]), _plain(reserved.get("memory"), 0.0))
        listed = reserved.get("cpus")
        numbers = cpu_numbers(listed, int(low)) if isinstance(listed, str) and listed else None
        names = [one for part in group["nodes"]["nodes"] for one in names_in(found.path, str(part))]
        if _is_future((group.get("node") or {}).get("state")):
            future.update(names)
            continue
        for name in names:
            before = nodes.get(name)
            if before is None or before[0] < low:
                nodes[name] = (int(low), len(numbers or ()), memory)
        if low != high or _plain(group["memory"].get("maximum"), 0.0) > _plain(group["memory"]["minimum"]):
            unequal.update(names)
    found.future = len(future - nodes.keys())
    for name, (cpus, kept, memory) in nodes.items():
        if may_be_nodes(name):
            found.add(found.path, [name], cpus, kept, memory)
    if unequal:
        found.assume(
            "groups of unequal nodes are taken as their smallest: `scontrol show nodes --json` has each by itself",
            sorted(unequal),
        )


def _sort(found: DescribedNodes) -> None:
    """Nodes by name, whatever the order of the document."""
    order = sorted(range(len(found.names)), key=found.names.__getitem__)
    found.names = [found.names[at] for at in order]
    found.cores = [found.cores[at] for at in order]
    found.memory_bytes = [found.memory_bytes[at] for at in order]


def _is_future(state: Any) -> bool:
    """Is FUTURE among the states, in any version's shape?"""
    words = [state] if isinstance(state, str) else state if isinstance(state, list) else []
    return any("FUTURE" in str(word).upper() for word in words)


def _plain(value: Any, default: float | None = None) -> float:
    """A number in any of Slurm's notations; `default` if it is not there, or not set. Raises ValueError for another."""
    number = slurm_json.plain(value)
    if number is None and default is not None:
        return default
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 2**53:
        raise ValueError(f"number {number}")
    return float(number)

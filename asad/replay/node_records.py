"""Nodes as `scontrol show node` prints them, with and without `-o`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.described_nodes import (
    NO_NODE,
    WAYS,
    DescribedNodes,
    cpu_numbers,
    cpus_kept,
    may_be_nodes,
    memory_of,
)
from asad.replay.readers.accounting_log import quoted

_TOTAL = re.compile(r"(?m)(?:^|\s)CPUTot=\d")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")
_BEGINS = re.compile(r"\s*NodeName=\S")


class Record(NamedTuple):
    """One node."""

    place: str
    fields: dict[str, str]
    """By key in lower case; of equal ones the first, since what comes last may be anybody's text."""


def is_node_records(text: str) -> bool:
    """Does a text look like the output of `scontrol show node`?"""
    if not _TOTAL.search(text):
        return False
    lines = [
        line for line in text.split("\n") if not line.lstrip().startswith("#")
    ]  # comments of a slurm.conf
    return any(map(_BEGINS.match, lines)) and any(map(_TOTAL.search, lines))


def from_node_records(path: str, text: str) -> Machine:
    """The nodes of such a text. Raises MachineError, which names file, line and remedy."""
    found = DescribedNodes(path)
    for record in _records(path, text):
        name, fields = record.fields["nodename"], record.fields
        if not may_be_nodes(name) or name.lower() in NO_NODE:
            found.placeholders.append(name)
            continue
        if "FUTURE" in fields.get("state", "").upper():
            found.future += 1
            found.claim(record.place, name)
            continue
        total = _whole(record, "cputot", None)
        cores = _whole(record, "sockets", 1) * _whole(record, "corespersocket", 1)
        if "cpuefctv" in fields:
            kept = max(0, total - _whole(record, "cpuefctv", None))
        else:
            listed = fields.get("cpuspeclist")
            numbers = cpu_numbers(listed, total) if listed else None
            threads = _whole(record, "threadspercore", 1)
            kept = cpus_kept(total, cores, threads, _whole(record, "corespeccount", 0), numbers)
        memory = memory_of(_whole(record, "realmemory", 0), _whole(record, "memspeclimit", 0))
        found.add(record.place, [name], total, kept, memory)
    if not found.names:
        raise MachineError(f"{path}: no record describes a node that jobs could run on; give {WAYS}")
    return found.machine("`scontrol show node`", notes=memory_note(found))


def memory_note(found: DescribedNodes) -> tuple[str, ...]:
    """Records of nodes do not say whether memory is scheduled."""
    if not any(size == size for size in found.memory_bytes):
        return ()
    return (
        f"{found.path} does not say whether memory is scheduled: jobs wait for it, as if SelectTypeParameters of "
        "slurm.conf had _Memory",
    )


def _records(path: str, text: str) -> Iterator[Record]:
    """Records begin with NodeName, and end where another begins."""
    begun: Record | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if _BEGINS.match(line):
            if begun is not None:
                yield begun
            begun = Record(f"{path}:{number}", {})
        if begun is not None:
            for key, value in _FIELD.findall(line):
                begun.fields.setdefault(key.lower(), value)
    if begun is not None:
        yield begun


def _whole(record: Record, key: str, default: int | None) -> int:
    """A number of a record; one without `default` must be there. Raises MachineError."""
    text = record.fields.get(key)
    if text is None and default is not None:
        return default
    if text is None or not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        problem = "is missing" if text is None else f"{quoted(text)} is not a number"
        raise MachineError(
            f"{record.place}: {key} of node {quoted(record.fields['nodename'])} {problem}; give the whole output of "
            "`scontrol show node`, or that of `scontrol show nodes --json`"
        )
    return int(text)

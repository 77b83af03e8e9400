"""Nodes as `scontrol show node` prints them, with and without `-o`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
from asad.replay.described_site import site_of_list
from asad.replay.readers.accounting_log import quoted
from asad.replay.scheduled_memory import memory_counts

_TOTAL = re.compile(r"(?:^|\s)CPUTot=\d")
_FIELD = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")
_MARK = re.compile(
    r"(?:^|(?<=\s))(?:(?P<text>Reason|Comment|Extra|InstanceId|InstanceType)=|NodeName=\S++"
    r"(?=(?P<surely>\s++(?:Arch=\S++\s++)?CoresPerSocket=\d)|\s++[A-Za-z_]++=|\s*+$))"
)
"""Where a record may begin, and where anybody's text: Slurm prints that last."""
_TEXT = re.compile(r"(?:^|\s)(?:Reason|Comment|Extra)=")
_OS = re.compile(r"(?:^|\s)OS=")


class Record(NamedTuple):
    """One node."""

    place: str
    fields: dict[str, str]
    """By key in lower case."""


def is_node_records(text: str) -> bool:
    """Does a text look like the output of `scontrol show node`?"""
    if "CPUTot=" not in text:
        return False
    begins = total = False
    for line in text.split("\n"):
        if not line.lstrip().startswith("#"):  # comments of a slurm.conf
            mark = _MARK.search(line)
            begins = begins or (mark is not None and not mark["text"] and not line[: mark.start()].strip())
            total = total or bool(_TOTAL.search(_TEXT.split(line, maxsplit=1)[0]))
    return begins and total


def from_node_records(path: str, text: str, configured: Mapping[str, str] | None = None) -> Machine:
    """The nodes of such a text; `configured` has settings of the cluster, keys in lower case.

    Raises MachineError, which names file, line and remedy.
    """
    found = DescribedNodes(path)
    of_partition: dict[str, list[str]] = {}
    for record in _records(path, text):
        name, fields = record.fields["nodename"], record.fields
        if not may_be_nodes(name) or name.lower() in NO_NODE:
            found.placeholders.setdefault(name, record.place)
            continue
        state = fields.get("state", "").upper()
        if "FUTURE" in state:
            found.future += 1
            found.claim(record.place, name)
            continue
        if is_down(re.split(r"[^A-Z_]+", state)):
            found.down.add(name)
        for partition in fields.get("partitions", "").split(","):
            if partition not in ("", "(null)"):
                of_partition.setdefault(partition, []).append(name)
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
        features = fields.get("activefeatures", fields.get("availablefeatures", fields.get("features", "")))
        found.offer(record.place, [name], fields.get("gres", ""), features, fields.get("weight", ""))
    if not found.nodes:
        why = found.instead() or "no record describes a node that jobs could run on"
        raise MachineError(f"{path}: {why}; give {WAYS}")
    found.leave_out_without({name for names in of_partition.values() for name in names})
    counts, notes = listed_memory(found, configured or {})
    machine = found.machine("`scontrol show node`", memory_counts=counts, notes=notes)
    return replace(machine, site=site_of_list(found, of_partition))


def is_down(words: list[str]) -> bool:
    """Is a node down by the words of its state, in upper case? Powered down it is not."""
    return any(word.startswith(("DOWN", "DRAIN", "FAIL")) or word == "ERROR" for word in words)


def listed_memory(found: DescribedNodes, configured: Mapping[str, str]) -> tuple[bool, tuple[str, ...]]:
    """Do jobs wait for memory there, and what is to be noted of it? Lists of nodes do not say, settings may."""
    if configured.keys() & {"selecttype", "selecttypeparameters"}:
        counts, why = memory_counts(found, configured, ())
        return counts, tuple(why)
    if not found.memory_is_known():
        return True, ()
    return True, (
        f"{found.path} does not say whether memory is scheduled: jobs wait for it, as if SelectTypeParameters of "
        "slurm.conf had _Memory",
    )


def _records(path: str, text: str) -> Iterator[Record]:
    """Records begin with NodeName, also several in a line, and end where text of anybody begins, or another.

    A line of such a text may begin with NodeName, too, but hardly as a record does.
    """
    begun: list[str] = []
    place, in_text = "", False
    for number, line in enumerate(text.split("\n"), 1):
        start, blanks = 0, len(line) - len(line.lstrip())
        for mark in _MARK.finditer(line):
            if mark["text"]:
                if begun and not in_text:
                    begun.append(line[start : mark.start()])
                in_text = True
            elif not in_text or mark["surely"] or mark.start() <= blanks:
                if begun:
                    yield _record(place, begun if in_text else [*begun, line[start : mark.start()]])
                place, begun, in_text = f"{path}:{number}", [""], False
                start = mark.start()
        if begun and not in_text:
            begun.append(line[start:])
    if begun:
        yield _record(place, begun)


def _record(place: str, lines: list[str]) -> Record:
    """A record of the lines before its text. The name of the system may have blanks, and fields may follow it."""
    before, *after = _OS.split("\n".join(lines), maxsplit=1)
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(before):
        fields.setdefault(key.lower(), value)
    later = {key.lower(): value for key, value in _FIELD.findall(after[0])} if after else {}
    return Record(place, {**later, **fields})


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

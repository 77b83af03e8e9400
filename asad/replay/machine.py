"""The machine on which a log is replayed: from slurm.conf, sinfo or flags, or inferred from the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from asad.errors import LogError, MachineError
from asad.model import Machine
from asad.replay.readers import fields, json_documents
from asad.replay.readers.accounting_log import BadValue, quoted

MOST_NODES = 1_000_000
MOST_CORES = 2**31 - 1
DEEPEST_INCLUDE = 8
SETTING = re.compile(r'([^\s=]+)=("[^"]*"|[^\s"]*)(?:\s+|$)')


def read_machine(path: str | Path) -> Machine:
    """The machine of a file: JSON of `sinfo --json` or `scontrol show nodes --json`, else slurm.conf.

    Raises MachineError, which names file, place and remedy.
    """
    text = _text(Path(path))
    return _from_json(str(path), text) if text.lstrip()[:1] == "{" else from_slurm_conf(path)


def from_flags(nodes: int, cores: int, memory: str | float | None = None) -> Machine:
    """`nodes` equal nodes of `cores` cores and `memory` (`128G`, or bytes; None: not known) each.

    Raises MachineError unless there are 1 to a million nodes and at least 1 core on each.
    """
    if not 1 <= nodes <= MOST_NODES:
        raise MachineError(f"--nodes {nodes}: a machine has 1 to {MOST_NODES} nodes")
    if not 1 <= cores <= MOST_CORES // nodes:
        raise MachineError(f"--cores {cores}: a node has at least 1 core, and the machine less than 2^31")
    try:
        memory_bytes = (
            np.nan if memory is None else parse_memory(memory) if isinstance(memory, str) else memory
        )
    except MachineError as error:
        raise MachineError(f"--memory: {error}") from error
    of_memory = f", {memory} of memory" if memory is not None else ""
    return uniform(nodes, cores, memory_bytes, f"flags: {nodes} nodes of {cores} cores{of_memory}")


def parse_memory(text: str) -> float:
    """`128G`, `64000M`, `64000` (mebibytes) → bytes, above 0; units are powers of 1024 as in Slurm.

    Raises MachineError.
    """
    try:
        memory_bytes = fields.memory(text)
    except BadValue as bad:
        raise MachineError(f"{bad.problem}; {bad.remedy}") from bad
    if memory_bytes <= 0:
        raise MachineError(f"{quoted(text)} is no memory at all; write it like 128G")
    return memory_bytes


# ------------------------------------------------------------------------------------------------- slurm.conf


def from_slurm_conf(path: str | Path) -> Machine:
    """The nodes of slurm.conf's `NodeName=` lines, as Slurm reads them.

    Keys in any case, `NodeName=DEFAULT`, continued lines, comments, `Include`. CPUs are those given, else
    boards × sockets × cores × threads. Nodes with State=FUTURE are left out. Raises MachineError, which names
    file, line and remedy.
    """
    path = Path(path)
    defaults: dict[str, str] = {}
    names: list[str] = []
    cores: list[int] = []
    memory: list[float] = []
    place_of: dict[str, str] = {}
    future = 0
    for place, line in _logical_lines(path, 0):
        if not line.lower().startswith("nodename"):
            continue
        settings = _settings(place, line)
        name = settings.pop("nodename", None)
        if name is None:
            continue  # another key that begins so
        if name.upper() == "DEFAULT":
            defaults.update(settings)
            continue
        settings = {**defaults, **settings}
        expanded = _expand(place, name)
        if settings.get("state", "").upper().startswith("FUTURE"):
            future += len(expanded)
            continue
        for node in expanded:
            if node in place_of:
                raise MachineError(
                    f"{place}: node {node} is also described at {place_of[node]}; remove one of them"
                )
            place_of[node] = place
        names += expanded
        cores += [_cpus(place, settings)] * len(expanded)
        real_memory = _count(place, settings, "realmemory", 0) * 2.0**20
        memory += [real_memory or np.nan] * len(expanded)
    if not names:
        raise MachineError(
            f"{path}: no NodeName line describes a node; give slurm.conf, or JSON of `sinfo --json`"
        )
    left_out = f", {future} nodes with State=FUTURE left out" if future else ""
    return machine_of(
        str(path), names, cores, memory, f"{path}: {len(names)} nodes of its NodeName lines{left_out}"
    )


def _logical_lines(path: Path, depth: int) -> Iterator[tuple[str, str]]:
    """Place and text of each line, comments taken off, continued lines joined, included files in place."""
    if depth > DEEPEST_INCLUDE:
        raise MachineError(
            f"{path}: Include goes deeper than {DEEPEST_INCLUDE} files; does a file include itself?"
        )
    joined, start = "", 0
    for number, line in enumerate([*_text(path).splitlines(), ""], 1):
        start = start or number
        text = re.sub(r"(?<!\\)#.*", "", line).rstrip()
        if text.endswith("\\"):
            joined += text[:-1] + " "
            continue
        whole, place = (joined + text).strip(), f"{path}:{start}"
        joined, start = "", 0
        if match := re.fullmatch(r"include\s+(\S.*)", whole, re.IGNORECASE):
            included = path.parent / match[1].strip("\"'")
            if not included.exists():
                raise MachineError(f"{place}: there is no file {included} to include; correct the path")
            yield from _logical_lines(included, depth + 1)
        elif whole:
            yield place, whole


def _settings(place: str, line: str) -> dict[str, str]:
    """`Key=value` pairs; keys in lower case, quotes taken off."""
    settings = {}
    position = 0
    while position < len(line):
        match = SETTING.match(line, position)
        if not match:
            raise MachineError(
                f"{place}: {quoted(line[position:])} is no Key=value; remove blanks around =, close quotes"
            )
        settings[match[1].lower()] = match[2].strip('"')
        position = match.end()
    return settings


def _expand(place: str, name: str) -> list[str]:
    try:
        names = list(fields.node_list(name))
    except BadValue as bad:
        raise MachineError(f"{place}: {bad.problem}; {bad.remedy}") from bad
    if not names:
        raise MachineError(f"{place}: NodeName names no node; write it like n[1-4]")
    return names


def _count(place: str, settings: Mapping[str, str], key: str, default: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII):
        raise MachineError(f"{place}: {key}={quoted(text)} is not a number; write a whole number")
    return int(text)


def _cpus(place: str, settings: Mapping[str, str]) -> int:
    cpus = _count(place, settings, "cpus", 0) or _count(place, settings, "procs", 0)
    if cpus:
        return cpus
    boards = max(_count(place, settings, "boards", 1), 1)
    sockets = _count(place, settings, "sockets", 0) or boards * _count(place, settings, "socketsperboard", 1)
    return (
        sockets * _count(place, settings, "corespersocket", 1) * _count(place, settings, "threadspercore", 1)
    )


# ------------------------------------------------------------------------------------------------------- JSON


def _from_json(path: str, text: str) -> Machine:
    """The nodes of `sinfo --json` or `scontrol show nodes --json`: 22.05 lists nodes, newer ones groups."""
    try:
        whole = json_documents.parsed(path, text)
    except LogError as error:
        raise MachineError(str(error)) from error
    remedy = "give the output of `sinfo --json` or `scontrol show nodes --json`"
    nodes: dict[str, tuple[int, float]] = {}
    assumed = 0
    try:
        if isinstance(whole.get("nodes"), list):
            for entry in whole["nodes"]:
                nodes[str(entry["name"])] = (
                    int(_plain(entry["cpus"])),
                    _plain(entry["real_memory"]) * 2.0**20,
                )
        elif isinstance(whole.get("sinfo"), list):
            for group in whole["sinfo"]:
                low, high = _plain(group["cpus"]["minimum"]), _plain(group["cpus"]["maximum"])
                memory = _plain(group["memory"]["minimum"]) * 2.0**20
                for name in group["nodes"]["nodes"]:
                    for node in fields.node_list(name):
                        # a node stands in one group for each partition and state
                        before = nodes.get(node, (0, 0.0))
                        nodes[node] = (max(int(low), before[0]), max(memory, before[1]))
                assumed += low != high
        else:
            raise MachineError(f"{path}: there is no list `nodes` or `sinfo`; {remedy}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MachineError(
            f"{path}: a node's description lacks or garbles {quoted(str(error))}; {remedy}"
        ) from error
    if not nodes:
        raise MachineError(f"{path}: it lists no nodes; {remedy}")
    names = sorted(nodes)
    note = f", {assumed} groups of unequal nodes taken as their smallest" if assumed else ""
    return machine_of(
        path,
        names,
        [nodes[name][0] for name in names],
        [nodes[name][1] or np.nan for name in names],
        f"{path}: {len(names)} nodes of Slurm's JSON{note}",
    )


def _plain(value: Any) -> float:
    """A number in either of Slurm's notations."""
    number = value["number"] if isinstance(value, dict) else value
    if isinstance(number, bool) or not 0 <= float(number) < 2**53:
        raise ValueError(f"number {number}")
    return float(number)


# ----------------------------------------------------------------------------------------------------- shared


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise MachineError(
            f"{path}: {error.strerror or error}; check the path and its permissions"
        ) from error


def machine_of(
    place: str, names: Sequence[str], cores: Sequence[int], memory: Sequence[float], origin: str
) -> Machine:
    for name, number in zip(names, cores, strict=True):
        if number < 1:
            raise MachineError(f"{place}: node {quoted(name)} has no CPUs; write CPUs= of it")
    if sum(cores) > MOST_CORES or len(names) > MOST_NODES:
        raise MachineError(
            f"{place}: {len(names)} nodes with {sum(cores)} CPUs are too many; check the numbers"
        )
    return Machine(
        node_names=tuple(names),
        cores=np.array(cores, dtype=np.int32),
        memory_bytes=np.array(memory, dtype=np.float64),
        origin=origin,
    )


def uniform(nodes: int, cores: int, memory_bytes: float, origin: str) -> Machine:
    if nodes > MOST_NODES or nodes * cores > MOST_CORES:
        raise MachineError(f"{nodes} nodes of {cores} cores ({origin}) are too many; describe the machine")
    return spread(nodes, nodes * cores, origin, memory_bytes)


def spread(nodes: int, cores: int, origin: str, memory_bytes: float = np.nan) -> Machine:
    """Nodes that share the cores as evenly as can be, the larger ones first."""
    if cores > MOST_CORES:
        raise MachineError(f"{cores} cores ({origin}) are too many; describe the machine")
    each = np.full(nodes, cores // nodes, dtype=np.int32)
    each[: cores % nodes] += 1
    names = tuple(f"node{number:0{len(str(nodes))}d}" for number in range(1, nodes + 1))
    return Machine(names, each, np.full(nodes, memory_bytes, dtype=np.float64), origin)

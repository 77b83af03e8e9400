"""The machine on which a log is replayed: from flags, or inferred from the log; of files see `machine_files`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from asad.errors import MachineError
from asad.model import JobLog, Machine
from asad.replay.readers import Recorded, fields
from asad.replay.readers.accounting_log import BadValue, quoted

MOST_NODES = 1_000_000
MOST_CORES = 2**31 - 1


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
    return _uniform(nodes, cores, memory_bytes, f"flags: {nodes} nodes of {cores} cores{of_memory}")


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


# ------------------------------------------------------------------------------------------------- from a log


def infer(recorded: Recorded) -> Machine:
    """The machine that the log describes; `origin` says how far that is an assumption.

    SWF says it in its header. Else, with node lists, each node has the most cores and memory that were held
    of it at one time. Else the machine has the most cores that were in use at one time, in nodes as large as
    the most that a job held of one. Raises MachineError if that is more than any machine has.
    """
    if recorded.format == "swf" and (machine := _from_swf_header(recorded.header)):
        return machine
    if recorded.nodes_seen:
        seen = recorded.nodes_seen
        names = sorted(seen)
        return machine_of(
            recorded.path,
            names,
            [max(seen[name].cores, 1) for name in names],
            [seen[name].memory_bytes for name in names],
            f"inferred: {len(names)} nodes of the log's node lists, each with the most cores "
            "and memory that were held of it at one time",
        )
    jobs = recorded.jobs
    peak = _peak_cores(jobs)
    wide = jobs.nodes > 0
    if not wide.any():
        return _spread(
            min(peak, MOST_NODES),
            peak,
            f"inferred: {peak} cores were in use at one time; nodes are not recorded: one core each",
        )
    per_node = int(np.ceil(jobs.cores[wide] / jobs.nodes[wide]).max())
    nodes = -(-peak // per_node)
    return _uniform(
        nodes,
        per_node,
        np.nan,
        f"inferred: {peak} cores were in use at one time, and a job held {per_node} cores of one node: "
        f"{nodes} nodes of {per_node} cores",
    )


def _from_swf_header(header: Mapping[str, str]) -> Machine | None:
    def leading_number(key: str) -> int:
        match = re.match(r"\d{1,9}", header.get(key, ""), re.ASCII)
        return int(match[0]) if match else 0

    nodes, cores = leading_number("MaxNodes"), leading_number("MaxProcs")
    if not cores:
        return None
    if not 1 <= nodes <= min(cores, MOST_NODES):
        return _spread(
            min(cores, MOST_NODES), cores, f"SWF header: MaxProcs {cores}; nodes not given: one core each"
        )
    how = "" if cores % nodes == 0 else ", spread as evenly as can be"
    return _spread(nodes, cores, f"SWF header: MaxNodes {nodes}, MaxProcs {cores}{how}")


def _peak_cores(jobs: JobLog) -> int:
    """The most cores in use at one time, as recorded; from the submission on if no start is known."""
    start = np.where(np.isnan(jobs.start_s), jobs.submit_s, jobs.start_s)
    when = np.concatenate((start + jobs.run_s, start))  # ends first where both are at one time
    change = np.concatenate((-jobs.cores.astype(np.int64), jobs.cores))
    return int(np.cumsum(change[np.argsort(when, kind="stable")]).max())


# ----------------------------------------------------------------------------------------------------- shared


def machine_of(
    place: str,
    names: Sequence[str],
    cores: Sequence[int],
    memory: Sequence[float],
    origin: str,
    *,
    memory_counts: bool = True,
    notes: Sequence[str] = (),
) -> Machine:
    """The machine of so many nodes; `memory` in bytes, NaN where it is not known.

    Raises MachineError for a node without CPUs, and for more than any machine has.
    """
    for name, number in zip(names, cores, strict=True):
        if number < 1:
            raise MachineError(f"{place}: node {quoted(name)} has no CPUs for jobs; write CPUs= of it")
    if sum(cores) > MOST_CORES or len(names) > MOST_NODES:
        raise MachineError(
            f"{place}: {len(names)} nodes with {sum(cores)} CPUs are too many; check the numbers"
        )
    return Machine(
        node_names=tuple(names),
        cores=np.array(cores, dtype=np.int32),
        memory_bytes=np.array(memory, dtype=np.float64),
        origin=origin,
        memory_counts=memory_counts,
        notes=tuple(notes),
    )


def _uniform(nodes: int, cores: int, memory_bytes: float, origin: str) -> Machine:
    if nodes > MOST_NODES or nodes * cores > MOST_CORES:
        raise MachineError(f"{nodes} nodes of {cores} cores ({origin}) are too many; describe the machine")
    return _spread(nodes, nodes * cores, origin, memory_bytes)


def _spread(nodes: int, cores: int, origin: str, memory_bytes: float = np.nan) -> Machine:
    """Nodes that share the cores as evenly as can be, the larger ones first."""
    if cores > MOST_CORES:
        raise MachineError(f"{cores} cores ({origin}) are too many; describe the machine")
    each = np.full(nodes, cores // nodes, dtype=np.int32)
    each[: cores % nodes] += 1
    names = tuple(f"node{number:0{len(str(nodes))}d}" for number in range(1, nodes + 1))
    return Machine(names, each, np.full(nodes, memory_bytes, dtype=np.float64), origin)

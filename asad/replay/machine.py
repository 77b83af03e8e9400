"""The machine on which a log is replayed: what all ways to describe one share, and flags.

`machine_files` reads it, `inferred_machine` infers it from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.readers import fields
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


def uniform(nodes: int, cores: int, memory_bytes: float, origin: str) -> Machine:
    """Equal nodes of `cores` and `memory_bytes` each. Raises MachineError for more than any machine has."""
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

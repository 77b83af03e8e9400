"""What a cluster has beside cores, what a statement needs of it in units of the mechanism, and whether a job fits that.

Gres and licences are counted as `Snapshot.tres` has them; of a gres all of which are of one type the type is left out.
Memory is no resource of its own: a job needs as many cores as its memory is the share of, if they are more than it
asks for (Slurm's `MAX_TRES`). So neither cores nor memory are promised beyond what there is, over the whole cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from asad.admit.slot_servers import only_type, wanted
from asad.admit.sow.announcements import Announcement
from asad.admit.sow.gres_text import MOST_UNITS
from asad.bounded import shown
from asad.errors import UsageError
from asad.model import Machine, Snapshot, Tres

SLACK = 0.05
"""Of a core: so much more memory than the share of its cores is none."""
MOST_NAMED = 8


def capacities(tres: Tres) -> dict[str, int]:
    """Whole units of the cluster by name, at most `MOST_UNITS`; 0 of a type that is all there is of its gres."""
    totals = np.floor(tres.nodes.sum(axis=0) + tres.cluster + 1e-9).tolist()
    return {
        name: 0 if only_type(tres, name) else int(min(total, MOST_UNITS))
        for name, total in zip(tres.names, totals, strict=True)
        if total >= 1.0
    }


def memory_share(machine: Machine) -> float:
    """Bytes for each core, over the whole cluster; inf where the memory of some node is not known."""
    memory = machine.memory_bytes.sum()
    return float(memory) / machine.total_cores if np.isfinite(memory) and memory > 0 else math.inf


def cores_of(cores: int, memory_bytes: float, share: float) -> int:
    """Cores, or as many as that memory is the share of."""
    return max(cores, math.ceil(memory_bytes / share - SLACK)) if memory_bytes > 0 else cores


def priced(stated: Mapping[str, int], there: Mapping[str, int]) -> dict[str, int]:
    """Units by name of what was stated, as `capacities` counts them. Raises UsageError for what the cluster has not."""
    for name in stated:
        if name not in there:
            has = ", ".join([*there][:MOST_NAMED]) or "neither gres nor licences"
            key = "licenses" if name.startswith("license/") else "gres"
            raise UsageError(f"{key}: the cluster has no {name}; it has {shown(has)}")
    return {name: units for name, units in stated.items() if there[name]}


def beyond(snapshot: Snapshot, row: int, number: int, one: Announcement, share: float) -> str:
    """Why a job is not that of statement `number`: it takes more than was stated; the empty string if it may be.

    Nor is one of which it is not known how much it takes.
    """
    stated, jobs = one.tres, snapshot.jobs
    more = {name: units for name, units in wanted(snapshot.tres, row).items() if units > stated.get(name, 0)}
    if more:
        asked = ", ".join(f"{units:g} of {name}" for name, units in more.items())
        if not stated:
            return f"it asks for {asked}, and statement {number} is of cores alone: state them too"
        of = ", ".join(f"{units:g} of {name}" for name, units in stated.items())
        return f"it asks for {asked}, and statement {number} is of {of}: state as many as it needs"
    if why := snapshot.tres.unknown.get(row, ""):
        of = "" if stated else f"statement {number} is of cores alone, and "
        return f"{of}what it takes beside cannot be counted: {why}"
    cores, memory = int(jobs.cores[row]), float(jobs.cores[row] * jobs.memory_bytes_per_core[row])
    if math.isfinite(memory) and cores_of(cores, memory, share) > cores_of(
        one.cores, one.memory_bytes, share
    ):
        has = max(one.memory_bytes, one.cores * share)
        gibibytes = f"{memory / 2**30:.4g} GiB of memory, and statement {number} is of {has / 2**30:.4g} GiB"
        return f"it asks for {gibibytes}: state its memory"
    return ""

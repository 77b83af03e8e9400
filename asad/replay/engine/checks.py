"""What the simulation is given, checked once: compiled code checks nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError
from asad.replay.engine.simulation_state import NEVER


def check_nodes(cores: NDArray[np.int32], memory: NDArray[np.float64], needed: bool) -> None:
    """Nodes have cores, and where memory is `needed` it is known. Raises UsageError that names column and node."""
    if len(memory) != len(cores):
        raise UsageError(
            f"machine: {len(memory)} nodes have memory and {len(cores)} cores; give one row a node"
        )
    _require("machine: column cores, node", cores, cores >= 1, "every node has at least 1 core")
    if needed:
        known = np.isfinite(memory) & (memory >= 0)
        _require("machine: column memory, node", memory, known, "memory counts, so give that of every node")


def check_jobs(jobs: dict[str, NDArray[Any]], total: int) -> None:
    """Every value is one that compiled code can bear.

    A row or an array beyond the table, or a job wider than the `total` cores, would have it write beyond an array; a
    time that is no number would stop its clock. Raises UsageError, which names column and row.
    """
    rows = np.arange(len(jobs["submit"]))
    for name, column in jobs.items():
        if len(column) != len(rows):
            raise UsageError(
                f"jobs: column {name} has {len(column)} rows, and submit {len(rows)}; give one a job"
            )
    submit = jobs["submit"]
    later = np.isfinite(submit)
    later[1:] &= submit[1:] >= submit[:-1]
    _require("jobs: column submit, row", submit, later, "give seconds, in order of submission")
    for name in ("work", "planned", "limit"):
        _require(
            f"jobs: column {name}, row", jobs[name], jobs[name] >= 0, "give seconds from 0, inf for no end"
        )
    for name in ("memory", "demand", "think"):
        finite = (jobs[name] >= 0) & (jobs[name] < NEVER)
        _require(f"jobs: column {name}, row", jobs[name], finite, "give a finite number from 0")
    cores, wide, depends = jobs["cores"], jobs["wide"], jobs["depends"]
    fitting = (cores >= 1) & (cores <= total)
    _require("jobs: column cores, row", cores, fitting, f"a job has 1 to the machine's {total} cores")
    _require("jobs: column wide, row", wide, wide >= 0, "give a number of nodes, 0 for any")
    earlier = (depends >= -1) & (depends < rows)
    _require("jobs: column depends, row", depends, earlier, "name the row of an earlier job, -1 for none")
    if "array" in jobs:
        within = (jobs["array"] >= -1) & (jobs["array"] < len(rows))
        _require("jobs: column array, row", jobs["array"], within, "number arrays from 0 on, -1 for no task")


def _require(place: str, column: NDArray[Any], good: NDArray[np.bool_], remedy: str) -> None:
    """Raise UsageError with the first row that is not good."""
    wrong = np.flatnonzero(~good)
    if len(wrong):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise UsageError(f"{place} {wrong[0]}: {column[wrong[0]]}{more}; {remedy}")

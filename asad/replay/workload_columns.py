"""The jobs of a replay, in columns, as the simulation runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError
from asad.model import Codes, Floats, Ints


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs as the simulation runs them; one row a job, in order of submission."""

    job_id: NDArray[np.generic]
    submit_s: Floats
    work_s: Floats
    """Isolated run time that will be executed (cut at the limit where jobs are killed there)."""
    planned_s: Floats
    """Run time that the scheduler plans with."""
    limit_s: Floats
    """Time limit, inf if unlimited, NaN if not recorded: nothing kills such a job, and asad offers it nothing."""
    cores: Ints
    nodes: Ints
    memory_bytes_per_core: Floats
    """0 where it does not count."""
    demand: Floats
    """CPU really wanted, as a fraction of the allocation."""
    depends_on: Ints
    think_s: Floats
    application: Ints
    user: Ints
    array: Ints | None = None
    """Number of the array that each is a task of, -1 for none; None: there are no arrays."""
    hints: Mapping[int, str] = field(default_factory=dict)
    """By row: what its user asks of asad."""
    partition: Ints | None = None
    """Code into `partitions`, -1 for none; None: they are not known."""
    partitions: tuple[str, ...] = ()
    deadline_s: Floats | None = None
    """By this each must have ended, NaN for none; None: nobody has one. Nothing ends a job for it here."""
    name: Ints | None = None
    """Code into `names` of what its user calls it, -1 for nothing; None: that is not known."""
    names: tuple[str, ...] = ()
    belief: Floats | None = None
    """What anybody can know of each one's demand, over what it is; None: 1."""
    memory_bound: NDArray[np.bool_] | None = None
    """Who is bound by memory bandwidth, whatever anybody knows of it; None: by the memory in use (contention.md)."""
    host_bar: Codes | None = None
    """Why each may not lend (numbers of `Ineligible`); None: all may. Its nodes take no guests, as live."""
    guest_bar: Codes | None = None
    """Why each may not be a guest (numbers of `Ineligible`); None: all may."""

    def __post_init__(self) -> None:
        """Raises UsageError for columns of unequal length, and for codes and rows that are none.

        What the simulation itself reads is checked where it begins (`engine.new_state`).
        """
        count = len(self)
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, np.ndarray) and len(value) != count:
                raise UsageError(
                    f"workload: column {column.name} has {len(value)} rows, and submit_s {count}; give one a job"
                )
        wrong = np.flatnonzero(self.application < 0)
        if len(wrong):
            raise UsageError(
                f"workload: column application, row {wrong[0]}: {self.application[wrong[0]]}; give codes from 0"
            )
        if beyond := [row for row in self.hints if not 0 <= row < count]:
            raise UsageError(
                f"workload: a hint of row {beyond[0]}, and there are {count} jobs; name rows from 0"
            )

    def __len__(self) -> int:
        return len(self.submit_s)

    def take(self, rows: NDArray[np.intp]) -> Workload:
        """Some of the jobs, to compute with; dependencies keep their old rows, hints are left out."""
        columns: dict[str, Any] = {
            column.name: value[rows]
            for column in fields(self)
            if isinstance(value := getattr(self, column.name), np.ndarray)
        }
        return Workload(**columns)

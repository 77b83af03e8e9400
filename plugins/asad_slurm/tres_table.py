"""The trackable resources of a snapshot: of the nodes as sinfo shows them, of jobs as squeue does, and licences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from asad.model import Floats, Tres, no_tres
from asad_slurm.gres import Amounts
from asad_slurm.records import JobRecord, NodeRecord, clean
from asad_slurm.rows import Rows

Value = TypeVar("Value")


class TresTable:
    """Made anew when nodes or licences change; what a job wants of it is looked up when somebody asks."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._seen: tuple[Sequence[Amounts], Mapping[str, float]] = (), {}
        self._shown = no_tres()

    def shown(self, nodes: Sequence[NodeRecord], licences: Mapping[str, float]) -> Tres:
        """Of these nodes, and so many licences by name."""
        seen = [node.gres for node in nodes], licences
        if self._seen != seen:
            self._seen = seen
            gres = sorted({name for node in nodes for name, _ in node.gres})
            names = (*gres, *(f"license/{clean(name)}" for name in licences))
            number = {name: at for at, name in enumerate(names)}
            amounts = np.zeros((len(nodes), len(names)))
            for at, node in enumerate(nodes):
                for name, amount in node.gres:
                    amounts[at, number[name]] = amount
            cluster = np.array([*[0.0] * len(gres), *licences.values()], np.float64)
            wants = _Wants(number)
            self._shown = Tres(
                names,
                amounts,
                cluster,
                _OfJobs(self._rows, wants.amounts),
                _OfJobs(self._rows, wants.unknown),
            )
        return self._shown


class _Wants:
    """What one job wants, in the numbers of a table."""

    def __init__(self, number: Mapping[str, int]) -> None:
        self._number = number
        self._made: dict[Amounts, Floats] = {}

    def amounts(self, job: JobRecord) -> Floats | None:
        """(R,) as far as the cluster has it; None of a job that wants none."""
        if not job.tres:
            return None
        made = self._made.get(job.tres)
        if made is None:
            made = np.zeros(len(self._number))
            for name, amount in job.tres:
                if name in self._number:
                    made[self._number[name]] = amount
            made.setflags(write=False)
            self._made[job.tres] = made
        return made

    def unknown(self, job: JobRecord) -> str | None:
        """Why it cannot be counted."""
        if job.uncounted:
            return job.uncounted
        missing = next((name for name, _ in job.tres if name not in self._number), None)
        return f"it wants {missing}, and Slurm does not show how many there are" if missing else None


class _OfJobs(Mapping[int, Value]):
    """By row of a job, what follows from its record; only of those for which something does."""

    def __init__(self, rows: Rows, find: Callable[[JobRecord], Value | None]) -> None:
        self._rows, self._find = rows, find

    def __getitem__(self, row: int) -> Value:
        record = self._rows.at(row)
        found = self._find(record) if record is not None else None
        if found is None:
            raise KeyError(row)
        return found

    def __iter__(self) -> Iterator[int]:
        return (row for row in sorted(self._rows.of.values()) if row in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

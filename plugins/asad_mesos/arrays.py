"""The tasks of elastic jobs as arrays of a snapshot."""

from __future__ import annotations

import numpy as np

from asad.model import Arrays
from asad_mesos.view import Unit

MOST_ARRAYS = 1000


class ArrayTable:
    """`Arrays`: an array keeps its number while it is there, and until another needs one."""

    def __init__(self) -> None:
        self._number: dict[tuple[str, int], int] = {}
        self._table: list[list[int]] = []

    def turn(self) -> None:
        """A new snapshot begins: nothing waits or runs yet."""
        for found in self._table:
            found[3] += found[1] + found[2]
            found[:3] = [-1, 0, 0]

    def see(self, unit: Unit, row: int) -> int:
        """The number of a unit's array."""
        at = (unit.job.job_id, unit.group)
        number = self._number.get(at)
        if number is None:
            number = self._number[at] = self._next()
        progress = unit.job.groups[unit.group]
        throttle = progress.target if progress.target < unit.job.spec.groups[unit.group].tasks else 0
        ended = progress.done + progress.failed
        waits = row if not unit.tasks else self._table[number][0]
        self._table[number] = [waits, len(progress.todo), progress.alive, ended, throttle]
        return number

    def _next(self) -> int:
        over = [at for at, number in self._number.items() if not any(self._table[number][1:3])]
        if len(self._table) < MOST_ARRAYS or not over:
            self._table.append([-1, 0, 0, 0, 0])
            return len(self._table) - 1
        return self._number.pop(over[0])

    def table(self) -> Arrays:
        """All that were seen."""
        columns = np.array(self._table, dtype=np.int32).reshape(-1, 5).T.copy()
        return Arrays(*columns)

"""What runs that have ended show of those that go on: by application (`asad.applications`) and by job array.

How the ended tasks of an array fared is the first thing that shows whether a running one is in time.
"""

from __future__ import annotations

import math

import numpy as np

from asad import model
from asad.model import Floats, Ints
from asad_slurm.records import LEAVES, RUNS, WAITS
from asad_slurm.rows import Rows

FEW_RUNS = 3
"""Of fewer nothing is concluded."""
MOST_ARRAYS = 10_000
"""Arrays of which something is kept; the one whose last task ended first is forgotten first."""


class Applications(model.Applications):
    """Codes of applications, with what their runs took; learned anew by each process."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[int, int] = {}
        self._cpu: dict[int, float] = {}
        self._work_core_s: dict[int, float] = {}

    def ended(self, code: int, cpu_fraction: float, core_s: float) -> None:
        """A run has ended that used this fraction of its CPU and held so many core-seconds; NaN says nothing."""
        work_core_s = cpu_fraction * core_s
        if not math.isnan(work_core_s):
            self._runs[code] = self._runs.get(code, 0) + 1
            self._cpu[code] = self._cpu.get(code, 0.0) + cpu_fraction
            self._work_core_s[code] = self._work_core_s.get(code, 0.0) + work_core_s

    def cpu_fraction(self, code: int) -> float:
        """Mean CPU use of its runs, NaN if none was measured."""
        runs = self._runs.get(code, 0)
        return self._cpu[code] / runs if runs else math.nan

    def work_core_s(self, code: int) -> float:
        """Mean CPU time of its runs (core-seconds), NaN while they are few."""
        runs = self._runs.get(code, 0)
        return self._work_core_s[code] / runs if runs >= FEW_RUNS else math.nan

    def _mean_anew(self, code: int) -> None:
        super()._mean_anew(code)
        for column in (self._runs, self._cpu, self._work_core_s):
            column.pop(code, None)


class Arrays:
    """Tasks that Slurm calls completed, by array. Guests are left out: what they took says nothing of their hosts."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[int, float]] = {}
        self._over: dict[int, int] = {}
        """By array, the tasks that are over, however they ended."""
        self.waiting: dict[int, int] = {}
        """By array of the last snapshot: row of the tasks that wait."""

    def over(self, array: int, tasks: int) -> None:
        """So many tasks of an array (0: of none) have ended, or were cancelled before they ran."""
        if array:
            self._over[array] = self._over.pop(array, 0) + tasks
            if len(self._over) > MOST_ARRAYS:
                del self._over[next(iter(self._over))]

    def shown(self, rows: Rows, alive: Ints, ended: Ints) -> model.Arrays:
        """The arrays of which a job is in `alive`, or in `ended` (it has just ended); fills the column `array`.

        Tasks that had been forgotten by Slurm when the daemon started are in no count.
        """
        extra, column = rows.extra, rows.jobs.array
        column[:] = -1
        self.waiting.clear()
        there = np.concatenate((alive, ended))
        there = there[extra.array[there] > 0]
        if not len(there):
            return model.no_arrays()
        arrays, at = np.unique(extra.array[there], return_inverse=True)
        column[there] = at
        count = len(arrays)
        shown = there[: len(there) - int((extra.array[ended] > 0).sum())]  # of those that have not ended
        phase = extra.phase[shown]
        waits = shown[phase == WAITS]
        waiting_row, throttle = np.full(count, -1, np.int32), np.zeros(count, np.int32)
        # the record of those that wait together comes first, and has the number of the array itself
        for row in sorted(waits.tolist(), key=lambda row: rows.record(row).task, reverse=True):
            record = rows.record(row)
            number = int(column[row])
            first = int(waiting_row[number])
            if first < 0 or rows.record(first).raw != record.array:
                waiting_row[number] = row
        for row in waiting_row[waiting_row >= 0].tolist():
            record = rows.record(row)
            throttle[column[row]] = record.throttle
            self.waiting[record.array] = row
        over = np.array([self._over.get(array, 0) for array in arrays.tolist()], np.int32)
        return model.Arrays(
            waiting_row=waiting_row,
            waiting=_sum(column[waits], extra.tasks[waits], count),
            running=_sum(column[shown[phase == RUNS]], np.ones(1, np.int32), count),
            # those that are just leaving run no more, and will be reported as soon as they have left
            ended=over + _sum(column[shown[phase == LEAVES]], np.ones(1, np.int32), count),
            throttle=throttle,
        )

    def ended(self, text: str, run_s: float) -> None:
        """The job `text` was completed after `run_s`. Jobs that are no task (`12_3`) are let be."""
        array, is_task, _ = text.partition("_")
        if not is_task or not run_s > 0:
            return
        tasks, total_s = self._ended.pop(array, (0, 0.0))
        self._ended[array] = tasks + 1, total_s + run_s
        if len(self._ended) > MOST_ARRAYS:
            del self._ended[next(iter(self._ended))]

    def happiness(self, rows: Rows, holding: Ints, now_s: float) -> dict[int, float]:
        """By row, for the batch tasks that run and whose array has at least `FEW_RUNS` ended tasks.

        It is the share of the array's tasks that have ended, over the share of the array's time (tasks times time
        limit) that was taken for it. How many tasks there are is in both and does not matter. A running task takes of
        that time what it has run beyond the mean of the ended ones: until then it counts neither as done nor as time.
        """
        if not self._ended:
            return {}
        jobs, running = rows.jobs, dict[str, list[int]]()
        for row in holding.tolist():
            array, is_task, _ = str(jobs.job_id[row]).partition("_")
            known = is_task and self._ended.get(array, (0, 0.0))[0] >= FEW_RUNS
            if known and rows.extra.phase[row] == RUNS and not rows.extra.guest[row]:
                running.setdefault(array, []).append(row)
        found = {}
        for array, tasks in running.items():
            done, taken_s = self._ended[array]
            over_s: Floats = now_s - jobs.start_s[tasks] - taken_s / done
            taken_s += float(over_s[over_s > 0].sum())
            for row in tasks:
                if 0 < jobs.time_limit_s[row] < float("inf"):
                    found[row] = done * float(jobs.time_limit_s[row]) / taken_s
        return found


def _sum(at: Ints, weights: Ints, count: int) -> Ints:
    """(count,) sum of the weights (or of one for all) by array."""
    spread = np.broadcast_to(weights, at.shape)
    return np.bincount(at, weights=spread, minlength=count).astype(np.int32)

"""How the tasks of arrays that have ended fared: the first thing that tells whether a running task is in time."""

from __future__ import annotations

from asad.model import Floats, Ints
from asad_slurm.applications import FEW_RUNS
from asad_slurm.records import RUNS
from asad_slurm.rows import Rows

MOST_ARRAYS = 10_000
"""Arrays that are remembered; the one whose last task ended first is forgotten first."""


class Arrays:
    """Tasks that Slurm calls completed, by array. Guests are left out: what they took tells nothing of their hosts."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[int, float]] = {}

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

"""What a snapshot leaves to deferrable jobs on the nodes where they may run, less what is promised in this cycle."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asad.capacity import usable_nodes
from asad.defer.deferrable_job import Deferrable
from asad.defer.deferrable_jobs import DeferrableJobs, tasks_of
from asad.defer.deferral_options import Options
from asad.defer.history import History
from asad.defer.room import CELL_S, cells, first_fits, left_over, places
from asad.hold import Hold, key_of
from asad.model import Floats, Snapshot


@dataclass(slots=True)
class Group:
    """The nodes on which some jobs may run, and what is left of them."""

    nodes: NDArray[np.bool_]
    left: Floats
    """(H,) cores, cell by cell."""
    foretold: Floats | None = None
    """(H,) of all nodes, the same by what the history foretells."""

    def fits(self, cores: int, cells_: int) -> bool:
        """Are so many cores left for so long?"""
        if self.foretold is not None and self.foretold[:cells_].min() < cores:
            return False
        return bool(self.left[:cells_].min() >= cores)

    def take(self, cores: int, cells_: int) -> None:
        """Promise them."""
        self.left[:cells_] -= cores
        if self.foretold is not None:
            self.foretold[:cells_] -= cores


class World:
    """Cores over time and places on nodes, beside what runs and what on-demand jobs are expected to take."""

    def __init__(self, snapshot: Snapshot, deferrable: DeferrableJobs, options: Options) -> None:
        """Before anything is promised in this cycle."""
        self.snapshot = snapshot
        self._horizon = max(1, math.ceil(options.horizon_s / CELL_S))
        jobs = snapshot.jobs
        self.running = [
            row for row in snapshot.running.tolist() if key_of(snapshot, row) in deferrable.running
        ]
        """Rows of the deferrable jobs that run."""
        usable = usable_nodes(snapshot)
        planned = _planned(snapshot, deferrable.jobs.values())
        self._groups = {
            text: self._group(text, usable, planned, options.reserve)
            for text in dict.fromkeys(["", *(self._where(job.row) for job in deferrable.jobs.values())])
        }
        """By partition text of the jobs; the empty text is all nodes."""
        self.held = float(jobs.cores[self.running].sum()) if self.running else 0.0
        """Cores that deferrable jobs hold."""
        self.capacity = max(0.0, float(self._groups[""].left[0]) + self.held)
        """C_t: what on-demand jobs leave of all nodes now."""
        self._places = places(snapshot, usable) if options.by_node else None

    def _group(
        self, text: str, usable: NDArray[np.bool_], planned: Sequence[tuple[int, int]], reserve: float
    ) -> Group:
        """The nodes of some partitions, less what is held back of them for others."""
        snapshot = self.snapshot
        nodes, there = usable, planned
        if text:
            nodes = usable & self._nodes(text)
            there = [(row, cores) for row, cores in planned if (nodes & self._nodes(self._where(row))).any()]
        left = left_over(snapshot, nodes, there, self._horizon)
        left -= math.floor(reserve * float(snapshot.machine.cores[nodes].sum()))
        return Group(nodes, left)

    def _where(self, row: int) -> str:
        """The partitions of a job, empty where the cluster does not report which nodes are whose."""
        return self.snapshot.classes.get(row, ("", ""))[0] if self.snapshot.partition_nodes else ""

    def _nodes(self, partitions: str) -> NDArray[np.bool_]:
        """(N,) The nodes of some partitions; all where it is not known."""
        count = len(self.snapshot.machine.cores)
        if not partitions:
            return np.ones(count, np.bool_)
        found = np.zeros(count, np.bool_)
        for name in partitions.split(","):
            found[self.snapshot.partition_nodes.get(name, np.arange(count))] = True
        return found

    def _cells(self, job: Deferrable) -> int:
        return cells(job.needs_s, self._horizon)

    def _memory(self, job: Deferrable) -> float:
        return float(self.snapshot.jobs.memory_bytes_per_core[job.row])

    # ------------------------------------------------------------------------------------------------- what is free

    def free(self, job: Deferrable) -> float:
        """Cores that are free now where it may run."""
        here, everywhere = self._groups[self._where(job.row)], self._groups[""]
        return max(0.0, float(min(here.left[0], everywhere.left[0])))

    def lacks(self, job: Deferrable) -> str:
        """Why there is no room for a job until its time limit; empty if there is."""
        everywhere, here, many = self._groups[""], self._groups[self._where(job.row)], self._cells(job)
        if not (here.left[0] >= job.cores and everywhere.left[0] >= job.cores):
            return f"{job.free:.0f} cores are free for its {job.cores}"
        if not (here.fits(job.cores, many) and everywhere.fits(job.cores, many)):
            return "on-demand jobs are expected to need its cores before it would end"
        if self._places is not None:
            idle, memory = self._places.idle.copy(), self._places.memory_bytes.copy()
            if not self._places.take(job.cores, job.nodes, self._memory(job), here.nodes):
                return f"no {'nodes have' if job.nodes > 1 else 'node has'} room for it"
            self._places.idle, self._places.memory_bytes = idle, memory  # `take` does it for good
        return ""

    def take(self, job: Deferrable) -> None:
        """Promise a job its cores, in every group that shares nodes with its own."""
        text = self._where(job.row)
        nodes = self._groups[text].nodes
        for other, group in self._groups.items():
            if not other or other == text or (group.nodes & nodes).any():
                group.take(job.cores, self._cells(job))
        if self._places is not None:
            self._places.take(job.cores, job.nodes, self._memory(job), nodes)

    # ----------------------------------------------------------------------------------------------------- what comes

    def expected_s(self, jobs: Sequence[Deferrable]) -> list[float]:
        """In how many seconds each would start in the cluster's queue, as far as is known now.

        Whose latest start comes first is put first where there is room for him, then the next.
        """
        texts = list(self._groups)
        left = np.array([group.left for group in self._groups.values()])
        order = sorted(range(len(jobs)), key=lambda k: (jobs[k].window.latest_s, k))
        by_latest = [jobs[k] for k in order]
        now_s = self.snapshot.time_s
        early = [math.ceil((job.window.earliest_s - now_s) / CELL_S) for job in by_latest]
        first = first_fits(
            left,
            np.array([texts.index(self._where(job.row)) for job in by_latest], np.int32),
            np.array([job.cores for job in by_latest], np.int32),
            np.array([self._cells(job) for job in by_latest], np.int32),
            np.clip(early, 0, self._horizon).astype(np.int32),
        )
        found = [0.0] * len(jobs)
        for k, cell in zip(order, first.tolist(), strict=True):
            found[k] = cell * CELL_S
        return found

    def foretell(self, history: History, options: Options) -> None:
        """Bound what is left of all nodes by what the history foretells, less what deferrable jobs hold."""
        group, jobs, now_s = self._groups[""], self.snapshot.jobs, self.snapshot.time_s
        if options.days < 1 or group.foretold is not None:
            return
        steps = math.ceil(options.horizon_s / options.step_s) + 1
        at = math.floor(now_s / options.step_s)
        ahead = history.forecast(at, self.capacity, steps, options.quantile)
        when = ((now_s + CELL_S * np.arange(self._horizon)) // options.step_s).astype(np.int64) - at
        foretold = ahead[np.minimum(when, steps - 1)]
        for row in self.running:
            left = cells(float(jobs.limit_end_s[row]) - now_s, self._horizon)
            foretold[:left] -= jobs.cores[row]
        promised = self.capacity - self.held - float(group.left[0])  # in this cycle, so far
        group.foretold = foretold - max(0.0, promised)
        group.foretold[0] = group.left[0]


def _planned(snapshot: Snapshot, known: Collection[Deferrable]) -> list[tuple[int, int]]:
    """The on-demand jobs that wait: rows, and cores that they take when they start.

    With them count jobs that are let go because their latest start comes, or that somebody took back by hand.
    """
    jobs = snapshot.jobs
    deferrable = {job.row for job in known if job.hold not in (Hold.USER_OVERRIDE, Hold.DEADLINE_RELEASED)}
    planned = []
    for row in snapshot.queue.tolist():
        array = int(jobs.array[row])
        lead = int(snapshot.arrays.waiting_row[array]) if array >= 0 else row
        if lead not in deferrable:
            tasks = 1 if array < 0 else tasks_of(snapshot, row, array)[0]
            planned.append((row, int(jobs.cores[row]) * tasks))
    return planned

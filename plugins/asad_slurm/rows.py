"""The rows of the snapshot: a job keeps its row while it lives.

A row is used again only after its job was told as finished (or was seen to be gone) and one more snapshot has passed,
so that a decision or a learner that still names it never means another job. Arrays grow by doubling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from asad.model import Codes, Floats, Ints, Jobs, blank_jobs
from asad_slurm.records import NUMBERS, JobRecord

FIRST_CAPACITY = 1024


class Rows:
    """Columns of `Jobs`, and what is remembered of a job besides."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        """Row by the job's name."""
        self.records: list[JobRecord | None] = []
        self.hints: dict[int, str] = {}
        """By row: what the user tells asad."""
        self.jobs = blank_jobs(0)
        self.extra = _Extra(0)
        self._free: list[int] = []
        self._gone: list[int] = []
        self._resting: list[int] = []
        self._grow(FIRST_CAPACITY)

    def __len__(self) -> int:
        return len(self.records)

    def record(self, row: int) -> JobRecord:
        """What Slurm said last of the job in a row that is in use."""
        record = self.records[row]
        assert record is not None, f"row {row} is not in use"
        return record

    def at(self, row: int) -> JobRecord | None:
        """The same of any row; None if no job lives in it."""
        record = self.records[row] if 0 <= row < len(self.records) else None
        return record if record is not None and self.of.get(record.text) == row else None

    def take(self, text: str) -> int:
        """A row for a new job."""
        if not self._free:
            self._grow(2 * len(self.records))
        row = self._free.pop()
        self.of[text] = row
        self.jobs.job_id[row] = text
        return row

    def drop(self, row: int) -> None:
        """The job is gone: its row is free after one more snapshot."""
        text = str(self.jobs.job_id[row])
        if self.of.get(text) == row:  # it may have been requeued since, and have another
            del self.of[text]
        self._gone.append(row)

    def rerun(self, row: int) -> None:
        """The job was requeued: what was measured of its last run says nothing of the next."""
        extra = self.extra
        self.jobs.lost_s[row] = 0.0
        extra.squeezed[row] = False
        for column in (extra.cpu_time_s, extra.cpu_time_at_s, extra.got, extra.most_got):
            column[row] = np.nan

    def turn(self) -> None:
        """A new snapshot begins."""
        self._clear(self._resting)
        self._free.extend(reversed(self._resting))
        self._resting, self._gone = self._gone, []

    def write(self, rows: Sequence[int], records: Sequence[JobRecord]) -> None:
        """What Slurm says of these jobs."""
        if not rows:
            return
        for row, record in zip(rows, records, strict=True):
            self.records[row] = record
        at = np.array(rows)
        numbers = np.array([record[: len(NUMBERS)] for record in records], dtype=np.float64)
        column = dict(zip(NUMBERS, numbers.T, strict=True))
        jobs, extra = self.jobs, self.extra
        jobs.cores[at] = column["cores"]
        jobs.nodes[at] = column["nodes"]
        for name in (
            "time_limit_s",
            "memory_bytes_per_core",
            "submit_s",
            "start_s",
            "begin_s",
            "deadline_s",
        ):
            getattr(jobs, name)[at] = column[name]
        jobs.limit_end_s[at] = column["end_s"]
        jobs.estimated_start_s[at] = column["estimate_s"]
        extra.priority[at] = column["priority"]
        extra.phase[at] = column["phase"]

    def _clear(self, rows: list[int]) -> None:
        if not rows:
            return
        for row in rows:
            self.records[row] = None
            self.hints.pop(row, None)
        blank = blank_jobs(1)
        for column in fields(Jobs):
            getattr(self.jobs, column.name)[rows] = getattr(blank, column.name)[0]
        self.extra.clear(rows)

    def _grow(self, capacity: int) -> None:
        old, new = self.jobs, blank_jobs(capacity)
        count = len(self.records)
        for column in fields(Jobs):
            getattr(new, column.name)[:count] = getattr(old, column.name)
        self.jobs = new
        self.extra = self.extra.grown(capacity)
        self.records.extend([None] * (capacity - count))
        self._free.extend(reversed(range(count, capacity)))


class Names(Mapping[int, str]):
    """By row, the name that a user gave his job."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getitem__(self, row: int) -> str:
        record = self._rows.records[row] if 0 <= row < len(self._rows) else None
        if record is None:
            raise KeyError(row)
        return record.name

    def __iter__(self) -> Iterator[int]:
        return (row for row, record in enumerate(self._rows.records) if record is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Extra:
    """Columns that nobody else sees."""

    def __init__(self, capacity: int) -> None:
        self.priority: Floats = np.zeros(capacity)
        self.phase: Codes = np.zeros(capacity, np.int8)
        self.tier: Floats = np.zeros(capacity)
        self.static_host_bar: Codes = np.zeros(capacity, np.int8)
        self.static_guest_bar: Codes = np.zeros(capacity, np.int8)
        self.tries: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        """Slurm would try to start it now."""
        self.guest: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        """It is in a guest partition."""
        self.cpu_time_s: Floats = np.full(capacity, np.nan)
        self.cpu_time_at_s: Floats = np.full(capacity, np.nan)
        self.lent_core_s: Floats = np.zeros(capacity)
        self.was_host: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        self.array: NDArray[np.int64] = np.zeros(capacity, np.int64)
        """Slurm's number of its array, 0 for none."""
        self.tasks: Ints = np.ones(capacity, np.int32)
        """Jobs that the row stands for."""
        self.squeezed: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        """It has not always got the CPU that it wanted."""
        self.got: Floats = np.full(capacity, np.nan)
        self.most_got: Floats = np.full(capacity, np.nan)
        """CPU fraction that a guest got at the last look, and the most that it got so far."""

    def clear(self, rows: list[int]) -> None:
        for name, column in vars(_Extra(1)).items():
            getattr(self, name)[rows] = column[0]

    def grown(self, capacity: int) -> _Extra:
        new = _Extra(capacity)
        for name, column in vars(self).items():
            getattr(new, name)[: len(column)] = column
        return new

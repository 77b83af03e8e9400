"""The rows of the snapshot (`asad.cluster.job_rows`), with what Slurm says of the job in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from asad.cluster import job_rows
from asad.cluster.job_rows import Measured, blank
from asad.model import Codes, Floats, Ints
from asad_slurm.records import NUMBERS, JobRecord

FIRST_CAPACITY = 1024
SAME_NAME = (
    "cores",
    "nodes",
    "time_limit_s",
    "memory_bytes_per_core",
    "submit_s",
    "start_s",
    "begin_s",
    "deadline_s",
)
"""Numbers of a record that are columns of the same name."""


@dataclass(slots=True)
class Extra(Measured):
    """Columns that nobody else sees."""

    priority: Floats = field(metadata=blank(0.0))
    phase: Codes = field(metadata=blank(np.int8(0)))
    tier: Floats = field(metadata=blank(0.0))
    static_host_bar: Codes = field(metadata=blank(np.int8(0)))
    static_guest_bar: Codes = field(metadata=blank(np.int8(0)))
    tries: NDArray[np.bool_] = field(metadata=blank(False))
    """Slurm would try to start it now."""
    guest: NDArray[np.bool_] = field(metadata=blank(False))
    """It is in a guest partition."""
    array: NDArray[np.int64] = field(metadata=blank(np.int64(0)))
    """Slurm's number of its array, 0 for none."""
    tasks: Ints = field(metadata=blank(np.int32(1)))
    """Jobs that the row stands for."""
    reason: Ints = field(metadata=blank(np.int32(0)))
    partition: Ints = field(metadata=blank(np.int32(0)))
    """Codes in `asad_slurm.wait_columns` of why it waits, and where."""
    squeezed: NDArray[np.bool_] = field(metadata=blank(False))
    """It has not always got the CPU that it wanted."""
    got: Floats = field(metadata=blank(np.nan))
    most_got: Floats = field(metadata=blank(np.nan))
    """CPU fraction that a guest got at the last look, and the most that it got so far."""


class Rows(job_rows.Rows[Extra]):
    """Columns of `Jobs`, and what is kept of a job besides."""

    latest_first = True

    def __init__(self) -> None:
        self.records: list[JobRecord | None] = []
        self.hints: dict[int, str] = {}
        """By row: what the user wrote for asad."""
        super().__init__(Extra, FIRST_CAPACITY)

    def record(self, row: int) -> JobRecord:
        """What Slurm said last of the job in a row that is in use."""
        record = self.records[row]
        assert record is not None, f"row {row} is not in use"
        return record

    def at(self, row: int) -> JobRecord | None:
        """The same of any row; None if no job lives in it."""
        record = self.records[row] if 0 <= row < len(self.records) else None
        return record if record is not None and self.of.get(record.text) == row else None

    def rerun(self, row: int) -> None:
        """The job was requeued: what was measured of its last run says nothing of the next."""
        extra = self.extra
        self.jobs.lost_s[row] = 0.0
        extra.squeezed[row] = False
        for measured in (extra.cpu_time_s, extra.cpu_time_at_s, extra.got, extra.most_got):
            measured[row] = np.nan

    def write(self, rows: Sequence[int], records: Sequence[JobRecord]) -> None:
        """What Slurm says of these jobs."""
        if not rows:
            return
        for row, record in zip(rows, records, strict=True):
            self.records[row] = record
        at = np.array(rows)
        numbers = np.array([record[: len(NUMBERS)] for record in records], dtype=np.float64)
        given = dict(zip(NUMBERS, numbers.T, strict=True))
        jobs, extra = self.jobs, self.extra
        for name in SAME_NAME:
            getattr(jobs, name)[at] = given[name]
        jobs.limit_end_s[at], jobs.estimated_start_s[at] = given["end_s"], given["estimate_s"]
        extra.priority[at], extra.phase[at] = given["priority"], given["phase"]

    def _clear(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.records[row] = None
            self.hints.pop(row, None)
        super()._clear(rows)

    def _grow(self, capacity: int) -> None:
        super()._grow(capacity)
        self.records.extend([None] * (capacity - len(self.records)))


class Texts(Mapping[int, str]):
    """By row, one of the texts that Slurm has of a job: the name that its user gave it, or its partition."""

    def __init__(self, rows: Rows, text_of: Callable[[JobRecord], str]) -> None:
        self._rows, self._text_of = rows, text_of

    def __getitem__(self, row: int) -> str:
        record = self._rows.records[row] if 0 <= row < len(self._rows) else None
        if record is None:
            raise KeyError(row)
        return self._text_of(record)

    def __iter__(self) -> Iterator[int]:
        return (row for row, record in enumerate(self._rows.records) if record is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

"""Slurm's job records as columns, whatever they were written in; readers fill them block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.replay.readers.accounting_log import BadValue, Reading
from asad.replay.readers.node_sets import UNKNOWN_NODES, NodeListTable

NUMBERS = {
    "line": np.dtype(np.int64),
    "submit_s": np.dtype(np.float64),
    "eligible_s": np.dtype(np.float64),
    "start_s": np.dtype(np.float64),
    "end_s": np.dtype(np.float64),
    "elapsed_s": np.dtype(np.float64),  # NaN: not recorded
    "suspended_s": np.dtype(np.float64),
    "cores": np.dtype(np.int64),
    "nodes": np.dtype(np.int64),
    "time_limit_s": np.dtype(np.float64),  # or PARTITION_LIMIT
    "memory_bytes": np.dtype(np.float64),
    "cpu_time_s": np.dtype(np.float64),  # of the job's own record: NaN or 0 if it was not measured
    "priority": np.dtype(np.float64),  # NaN: not recorded
}
"""Columns of numbers, one row a record in the order of the log."""
CODED = (
    *("user", "application", "partition", "hint", "gres", "account", "qos"),
    *("reason", "start_flag", "constraint", "reservation"),
)
"""Those columns of texts that are columns of a `JobLog`, too."""
NAMES = ("state", "cluster", *CODED)
"""Columns of texts, kept as codes in the order of appearance; the empty text is −1. `hint` is as `hint_of` has it,
`gres` as `fields.gres_text`."""

MOST_HINT = 1001
"""Characters of a hint that are kept: one more than any may have, so that nobody takes a part for the whole."""


def hint_of(comment: str) -> str:
    """What a job's comment has for asad: what stands after `asad:`, empty if it does not begin so."""
    return comment[5 : 5 + MOST_HINT] if comment.startswith("asad:") else ""


@dataclass(slots=True)
class Steps:
    """Steps that used CPU and stand in lines of their own, in the order of the log."""

    job_id: list[str] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    """NaN if not recorded."""
    cpu_time_s: list[float] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    """The record that stands before it, −1 for none."""


class JobRecords:
    """Records of jobs, steps apart. `job_id` is `12`, `12_3`, `12_[4-9]` (an array that waits) or `12+1` (a component
    of a heterogeneous job); every other column is an array, asked for by name."""

    def __init__(self) -> None:
        self.job_id: list[str] = []
        self.node_lists = NodeListTable()
        self.has_end = False
        """Does the log say when jobs ended? Else nothing follows from a job that has no end."""
        self.local_times = False
        """Some times have no zone: they may be local ones, in which an hour can come twice."""
        self._code: dict[str, dict[str, int]] = {name: {} for name in NAMES}
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*NUMBERS, *NAMES, "node_set")}

    def __len__(self) -> int:
        return len(self.job_id)

    def add(
        self,
        job_id: Sequence[str],
        numbers: Mapping[str, Sequence[float] | NDArray[Any]],
        names: Mapping[str, Sequence[str]],
        node_list: Sequence[str | None] | None,
        reading: Reading,
    ) -> None:
        """A block of records: `numbers` has all of `NUMBERS`, `names` those of `NAMES` that are recorded.

        A node list that cannot be read is noted in `reading`.
        """
        self.job_id += job_id
        for name, dtype in NUMBERS.items():
            self._parts[name].append(np.asarray(numbers[name], dtype=dtype))
        for name in NAMES:
            if name not in names:
                self._parts[name].append(np.full(len(job_id), -1, dtype=np.int32))
                continue
            code = self._code[name]
            column = names[name]
            distinct = dict.fromkeys(column)
            for text in distinct:
                code.setdefault(text, -1 if text == "" else len(code) - ("" in code))
            if len(distinct) == 1:  # as of columns that nobody fills in
                self._parts[name].append(np.full(len(job_id), code[text], dtype=np.int32))
            else:
                self._parts[name].append(np.array([code[text] for text in column], dtype=np.int32))
        sets = np.full(len(job_id), UNKNOWN_NODES, dtype=np.int64)
        for place, nodes in enumerate(node_list or ()):
            if nodes is None:
                continue
            try:
                sets[place] = self.node_lists.code(nodes)
            except BadValue as bad:
                reading.fault(int(numbers["line"][place]), "nodelist", bad)
        self._parts["node_set"].append(sets)

    def column(self, name: str) -> NDArray[Any]:
        """(records,) a column; of `NAMES` its codes, of `node_set` codes of `node_lists`."""
        parts = self._parts[name]
        if len(parts) != 1:
            dtype = NUMBERS.get(name, np.dtype(np.int64 if name == "node_set" else np.int32))
            parts[:] = [np.concatenate(parts) if parts else np.zeros(0, dtype)]
        return parts[0]

    def texts(self, name: str) -> list[str]:
        """What the codes of a column stand for; the last entry is the empty text, which −1 is."""
        return [*(text for text in self._code[name] if text != ""), ""]

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Only these records stay."""
        self.job_id = [self.job_id[row] for row in rows.tolist()]
        for name, parts in self._parts.items():
            parts[:] = [self.column(name)[rows]]

"""What the simulation is given is checked once, where it begins: compiled code checks nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asad.contention import Contention
from asad.errors import UsageError
from asad.model import Machine
from asad.replay import engine
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload

JOBS = 4
MACHINE = Machine(("a", "b"), np.array([2, 1], np.int32), np.full(2, math.nan), "made up")


def workload(**columns: Any) -> Workload:
    """Four jobs, the last after the first; `columns` instead of the usual ones."""
    plain = Workload(
        job_id=np.arange(JOBS),
        submit_s=np.arange(JOBS, dtype=float),
        work_s=np.full(JOBS, 10.0),
        planned_s=np.full(JOBS, 20.0),
        limit_s=np.full(JOBS, 20.0),
        cores=np.array([1, 2, 3, 1], np.int32),
        nodes=np.zeros(JOBS, np.int32),
        memory_bytes_per_core=np.zeros(JOBS),
        demand=np.full(JOBS, 0.5),
        depends_on=np.array([-1, -1, -1, 0], np.int32),
        think_s=np.zeros(JOBS),
        application=np.zeros(JOBS, np.int32),
        user=np.zeros(JOBS, np.int32),
    )
    return replace(plain, **columns)


def cluster(jobs: Workload, machine: Machine = MACHINE, **options: Any) -> RecordedCluster:
    return RecordedCluster(jobs, machine, Contention(1.0, 1.0, 1.0, 1.0, "made up"), **options)


def with_value(column: str, row: int, value: float) -> np.ndarray[Any, Any]:
    """The usual column with another value in one row, in whatever type holds it."""
    values = getattr(workload(array=np.full(JOBS, -1, np.int32)), column).tolist()
    values[row] = value
    return np.array(values)


@pytest.mark.parametrize(
    ("column", "row", "value", "seen"),
    [
        ("array", 2, JOBS, "number arrays from 0"),
        ("array", 2, 1_234_567, "number arrays from 0"),  # Slurm's own number of the array
        ("array", 0, 2**32, "number arrays from 0"),  # 0 to who looks at 32 bits of it
        ("array", 1, -2, "-1 for no task"),
        ("depends_on", 1, JOBS, "the row of an earlier job"),
        ("depends_on", 2, 2, "the row of an earlier job"),  # itself: it would never come
        ("depends_on", 1, 3, "the row of an earlier job"),
        ("depends_on", 1, -2, "-1 for none"),
        ("cores", 2, 4, "1 to the machine's 3 cores"),  # no end would make room for it
        ("cores", 0, 0, "1 to the machine's 3 cores"),
        ("nodes", 3, -1, "0 for any"),
        ("submit_s", 1, math.nan, "in order of submission"),
        ("submit_s", 3, 1.5, "in order of submission"),
        ("work_s", 0, math.nan, "seconds from 0"),
        ("work_s", 0, -1.0, "seconds from 0"),
        ("planned_s", 3, math.nan, "seconds from 0"),
        ("think_s", 3, math.inf, "a finite number from 0"),
        ("demand", 2, math.nan, "a finite number from 0"),
        ("memory_bytes_per_core", 2, math.nan, "a finite number from 0"),
    ],
)
def test_a_value_that_compiled_code_cannot_bear_is_refused(
    column: str, row: int, value: float, seen: str
) -> None:
    with pytest.raises(UsageError) as refused:
        cluster(workload(**{column: with_value(column, row, value)}))
    message = str(refused.value)
    name = {"depends_on": "depends", "nodes": "wide", "memory_bytes_per_core": "memory"}.get(column, column)
    assert message.startswith(f"jobs: column {name.removesuffix('_s')}, row {row}: ")
    assert seen in message


def test_how_many_more_rows_are_wrong_is_reported() -> None:
    with pytest.raises(UsageError, match=r"column array, row 1: 9 \(and 2 more\);"):
        cluster(workload(array=np.array([0, 9, 9, 4], np.int32)))


@pytest.mark.parametrize("array", [[3, 3, -1, 3], [0, 2, 0, 2], [3, 2, 1, 0], [-1] * JOBS])
def test_arrays_may_have_gaps_within_the_rows(array: list[int]) -> None:
    there = cluster(workload(array=np.array(array, np.int32)), gather_arrays=True)
    there.run()
    assert there.ended == JOBS
    assert there.snapshot().arrays.ended.tolist() == [array.count(number) for number in range(max(array) + 1)]


def test_without_admission_arrays_are_not_looked_at() -> None:
    there = cluster(workload(array=np.full(JOBS, 10**6, np.int32)), admission=False)
    there.run()
    assert there.ended == JOBS


def test_columns_of_another_length_are_refused() -> None:
    for column in ("cores", "application", "limit_s", "job_id"):
        with pytest.raises(UsageError, match=f"column {column} has 3 rows"):
            workload(**{column: np.ones(JOBS - 1)})
    with pytest.raises(UsageError, match="column array has 1 rows"):
        workload(array=np.zeros(1, np.int32))
    jobs = dict.fromkeys(engine.JOB_COLUMNS, np.ones(2)) | {"think": np.ones(1)}
    with pytest.raises(UsageError, match="column think has 1 rows, and submit 2"):
        engine.check_jobs(jobs, total=1)


def test_codes_and_hints_of_nobody_are_refused() -> None:
    with pytest.raises(UsageError, match="column application, row 2: -1"):
        workload(application=np.array([0, 0, -1, 0], np.int32))
    with pytest.raises(UsageError, match="a hint of row 4, and there are 4 jobs"):
        workload(hints={4: "utility=constant(1)"})


def test_nodes_have_cores_and_where_memory_counts_none_below_0() -> None:
    with pytest.raises(UsageError, match="column cores, node 1: 0; every node has at least 1 core"):
        cluster(workload(), replace(MACHINE, cores=np.array([3, 0], np.int32)))
    with pytest.raises(UsageError, match="2 nodes have memory and 1 cores"):
        cluster(workload(), replace(MACHINE, cores=np.array([3], np.int32)))
    heavy = workload(memory_bytes_per_core=np.ones(JOBS))
    with pytest.raises(UsageError, match=r"column memory, node 0: -1.0 \(and 1 more\); memory counts"):
        cluster(heavy, replace(MACHINE, memory_bytes=np.full(2, -1.0)), use_memory=True)
    for unknown in (math.nan, math.inf):  # what is not known fits anything
        cluster(heavy, replace(MACHINE, memory_bytes=np.full(2, unknown)), use_memory=True).run()
    cluster(workload(), use_memory=True).run()  # nobody asks for any
    cluster(heavy).run()

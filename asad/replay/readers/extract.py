"""From Slurm's job records, whatever they were written in, to a table of jobs.

Text and JSON readers fill an `Extract`; what is a job, what never ran and what belongs together is decided
here, once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, Ints, JobLog
from asad.replay.readers.accounting_log import BadValue, NodeSeen, Reading, Recorded, recorded_of
from asad.replay.readers.fields import PARTITION_LIMIT

RUNNING_STATES = frozenset({"RUNNING", "SUSPENDED", "R", "S"})
PENDING_STATES = frozenset({"PENDING", "PD"})


@dataclass(slots=True)
class Extract:
    """Job records (steps folded in), one entry a record in every list, in the order of the log."""

    line: list[int] = field(default_factory=list)
    job_id: list[str] = field(default_factory=list)
    """`12`, `12_3`, `12_[4-9]` (an array that waits) or `12+1` (a component of a heterogeneous job)."""
    cluster: list[str] = field(default_factory=list)
    submit_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    elapsed_s: list[float] = field(default_factory=list)
    """NaN: the time from start to end."""
    state: list[str] = field(default_factory=list)
    cores: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    time_limit_s: list[float] = field(default_factory=list)
    """Or PARTITION_LIMIT."""
    memory_bytes: list[float] = field(default_factory=list)
    cpu_time_s: list[float] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    application: list[str] = field(default_factory=list)
    partition: list[str] = field(default_factory=list)
    node_list: list[tuple[str, ...] | None] = field(default_factory=list)
    """None where the log has no node lists; empty where no node was assigned."""
    hint: list[str] = field(default_factory=list)
    """See `hint_of`."""
    gres: list[str] = field(default_factory=list)
    """As `fields.gres_text` writes it; empty for none, and where it is not recorded."""

    def add(self, **record: Any) -> None:
        """One record, with a value for every column."""
        for column, value in record.items():
            getattr(self, column).append(value)


MOST_HINT = 1001
"""Characters of a hint that are kept: one more than any may have, so that nobody takes a part for the whole."""


def hint_of(comment: str) -> str:
    """What a job's comment has for asad: what stands after `asad:`, empty if it does not begin so."""
    return comment[5 : 5 + MOST_HINT] if comment.startswith("asad:") else ""


def without(extract: Extract, lines: set[int]) -> Extract:
    """The extract without the records of `lines`."""
    if not lines:
        return extract
    keep = [record for record, line in enumerate(extract.line) if line not in lines]
    return Extract(
        **{
            column.name: [getattr(extract, column.name)[record] for record in keep]
            for column in fields(Extract)
        }
    )


def read_extract(extract: Extract, reading: Reading, log_format: str, skip_bad: bool) -> Recorded:
    """The jobs of an extract. Raises LogError for the first bad record unless `skip_bad`, and if no job ran."""
    check_times(extract, reading)
    bad = reading.settle(skip_bad)
    jobs, seen = to_jobs(without(extract, set(reading.faults)), reading)
    return recorded_of(jobs, reading, log_format, bad, nodes_seen=seen)


def check_times(extract: Extract, reading: Reading) -> None:
    """Note the records that ran without a submit time, or ended before they started."""
    submit, start, end = (np.array(column) for column in (extract.submit_s, extract.start_s, extract.end_s))
    for record in np.flatnonzero(np.isnan(submit)).tolist():
        bad = BadValue("there is no submit time", "write when the job was submitted")
        reading.fault(extract.line[record], "Submit", bad)
    for record in np.flatnonzero(end < start).tolist():
        problem = f"it ended {start[record] - end[record]:.0f} s before it started"
        bad = BadValue(problem, "check both times (clock change?)")
        reading.fault(extract.line[record], "End", bad)


def to_jobs(extract: Extract, reading: Reading) -> tuple[JobLog, dict[str, NodeSeen]]:
    """The jobs that ran, and what they held of each node.

    Counts in `reading`, by reason, the records that are not rows, and notes there what was assumed.
    """
    start, end = np.array(extract.start_s, dtype=float), np.array(extract.end_s, dtype=float)
    run = np.array(extract.elapsed_s, dtype=float)
    run = np.where(np.isnan(run), end - start, run)
    cores = np.array(extract.cores, dtype=np.int64)
    state = np.array(extract.state, dtype=object)
    rows = np.arange(len(run))

    def leave_out(reason: str, which: NDArray[np.bool_]) -> None:
        nonlocal rows
        reading.count(reason, int(np.count_nonzero(which)))
        rows = rows[~which]

    def among(names: frozenset[str]) -> NDArray[np.bool_]:
        return np.fromiter((name in names for name in state[rows]), dtype=bool, count=len(rows))

    no_node = [
        names == () or "[" in job_id for names, job_id in zip(extract.node_list, extract.job_id, strict=True)
    ]
    idle = np.isnan(run) | (run <= 0)
    leave_out(
        "never started",
        np.isnan(start) | among(PENDING_STATES) | (np.array(no_node, dtype=bool) & idle),
    )
    leave_out("still running", among(RUNNING_STATES))
    leave_out("no end and no elapsed time", np.isnan(run[rows]))
    leave_out("ran 0 s", run[rows] <= 0)
    leave_out("no cores", cores[rows] <= 0)
    repeated, earlier = _run_again(extract, start, run, rows)
    leave_out("repeated", repeated)
    leave_out("earlier run of a requeued job", earlier[~repeated])
    reading.note(
        int(np.count_nonzero(earlier)),
        "earlier runs of requeued jobs are left out: the last run of a job stands for it",
    )

    clusters = {extract.cluster[row] for row in rows.tolist()}
    if len(clusters) > 1:
        reading.notes.append(
            f"jobs of {len(clusters)} clusters are in this log: they are replayed as one machine's"
        )
    limit = _partition_limits(extract, rows, reading)
    table = {
        "submit_s": np.array(extract.submit_s, dtype=float)[rows],
        "start_s": start[rows],
        "run_s": run[rows],
        "cores": cores[rows],
        "nodes": np.array(extract.nodes, dtype=np.int64)[rows],
        "time_limit_s": limit,
        "memory_bytes": np.array(extract.memory_bytes, dtype=float)[rows],
        "cpu_time_s": np.array(extract.cpu_time_s, dtype=float)[rows],
    }
    seen = _nodes_seen(extract, table, rows)
    job_id = [extract.job_id[row] for row in rows.tolist()]
    kept = _fold_components(job_id, [extract.cluster[row] for row in rows.tolist()], table, reading)
    order = kept[np.argsort(table["submit_s"][kept], kind="stable")]
    chosen = rows[order].tolist()
    ids = [job_id[row] for row in order.tolist()]
    user, users = _codes(extract.user, chosen)
    application, applications = _codes(extract.application, chosen)
    partition, partitions = _codes(extract.partition, chosen)
    hint, hints = _codes(extract.hint, chosen)
    gres, gres_texts = _codes(extract.gres, chosen)
    submit_s, start_s = table["submit_s"][order], table["start_s"][order]
    early = int(np.count_nonzero(start_s < submit_s))
    reading.note(early, "jobs started before their submit time (requeued or edited): taken as recorded")
    jobs = JobLog(
        job_id=np.array(ids, dtype=np.int64) if all(map(str.isdecimal, ids)) else np.array(ids, dtype=str),
        submit_s=submit_s,
        start_s=start_s,
        run_s=table["run_s"][order],
        # a sum of components beyond int32 stays too large for any machine
        cores=np.minimum(table["cores"][order], 2**31 - 1).astype(np.int32),
        nodes=np.minimum(table["nodes"][order], 2**31 - 1).astype(np.int32),
        time_limit_s=table["time_limit_s"][order],
        memory_bytes=table["memory_bytes"][order],
        cpu_time_s=table["cpu_time_s"][order],
        user=user,
        application=application,
        partition=partition,
        depends_on=np.full(len(order), -1, dtype=np.int32),
        think_s=np.zeros(len(order)),
        users=users,
        applications=applications,
        partitions=partitions,
        hint=hint if hints else None,
        hints=hints,
        gres=gres if gres_texts else None,
        gres_texts=gres_texts,
    )
    return jobs, seen


def _run_again(
    extract: Extract, start: Floats, run: Floats, rows: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which records stand in the log twice (extracts of two months overlap), and which are all but the
    last run of a requeued job (`sacct --duplicates`).
    """
    first: dict[tuple[str, str], int] = {}
    same_job: dict[int, list[int]] = {}
    for place, row in enumerate(rows.tolist()):
        before = first.setdefault((extract.job_id[row], extract.cluster[row]), place)
        if before != place:
            same_job.setdefault(before, [before]).append(place)
    repeated, earlier = np.zeros((2, len(rows)), dtype=bool)
    for places in same_job.values():
        runs: dict[tuple[float, ...], int] = {}
        for place in places:
            row = rows[place]
            again = runs.setdefault((extract.submit_s[row], float(start[row]), float(run[row])), place)
            repeated[place] = again != place
        by_start = sorted(runs.values(), key=lambda place: (start[rows[place]], place))
        earlier[by_start[:-1]] = True
    return repeated, earlier


def _partition_limits(extract: Extract, rows: NDArray[np.intp], reading: Reading) -> Floats:
    """(rows,) time limits, with Partition_Limit replaced by the largest limit seen in the job's partition."""
    limit = np.array(extract.time_limit_s, dtype=float)
    if not (limit[rows] == PARTITION_LIMIT).any():
        return limit[rows]
    largest: dict[str, float] = {}
    for partition, seconds in zip(extract.partition, extract.time_limit_s, strict=True):
        if 0 < seconds < np.inf:
            largest[partition] = max(seconds, largest.get(partition, 0.0))
    asked = rows[limit[rows] == PARTITION_LIMIT]
    limit[asked] = [largest.get(extract.partition[row], np.nan) for row in asked.tolist()]
    known, lost = int(np.count_nonzero(limit[asked] > 0)), "taken as not recorded"
    reading.note(known, "jobs had their partition's limit: taken as the largest limit seen in that partition")
    reading.note(len(asked) - known, f"jobs had their partition's limit, which the log does not show: {lost}")
    return limit[rows]


def _fold_components(
    job_id: list[str], cluster: list[str], table: dict[str, Floats], reading: Reading
) -> NDArray[np.intp]:
    """Fold the components `12+0`, `12+1` of a heterogeneous job into one rigid job `12`.

    Returns the places that are kept. Components start together and Slurm ends them
    together, so cores, nodes, memory and CPU time add up.
    """
    components: dict[tuple[str, str], list[int]] = {}
    for place, name in enumerate(job_id):
        if "+" in name:
            components.setdefault((cluster[place], name.split("+", 1)[0]), []).append(place)
    folded = np.zeros(len(job_id), dtype=bool)
    for (_, name), places in components.items():
        places.sort(key=lambda place: int(job_id[place].split("+", 1)[1]))
        first = places[0]
        end = (table["start_s"][places] + table["run_s"][places]).max()
        table["submit_s"][first] = table["submit_s"][places].min()
        table["start_s"][first] = table["start_s"][places].min()
        table["run_s"][first] = end - table["start_s"][first]
        table["time_limit_s"][first] = table["time_limit_s"][places].max()
        for column in ("cores", "nodes", "memory_bytes", "cpu_time_s"):
            table[column][first] = table[column][places].sum()
        job_id[first] = name
        folded[places[1:]] = True
    if components:
        reading.counts["component of a heterogeneous job"] = int(np.count_nonzero(folded))
    reading.note(len(components), "heterogeneous jobs are replayed as one rigid job each")
    return np.flatnonzero(~folded)


def _nodes_seen(extract: Extract, table: dict[str, Floats], rows: NDArray[np.intp]) -> dict[str, NodeSeen]:
    """The most that was held of each node at one time; a job on k nodes holds a k-th of itself on each."""
    code: dict[str, int] = {}
    job: list[int] = []
    node: list[int] = []
    for place, row in enumerate(rows.tolist()):
        for name in extract.node_list[row] or ():
            job.append(place)
            node.append(code.setdefault(name, len(code)))
    if not code:
        return {}
    held = np.array(job)
    start = table["start_s"][held]
    width = np.bincount(held, minlength=len(rows))[held]
    when = np.concatenate((start, start + table["run_s"][held]))
    where = np.tile(np.array(node), 2)
    rises = np.repeat((True, False), len(held))
    order = np.lexsort((rises, when, where))  # by node, then time, ends before starts
    first_event = np.searchsorted(where[order], np.arange(len(code)))

    def peak(amount: Floats) -> Floats:
        change = np.concatenate((amount, -amount))[order]
        return np.maximum.reduceat(np.cumsum(change), first_event)

    cores = np.ceil(peak(table["cores"][held] / width) - 1e-6)
    memory = table["memory_bytes"][held] / width
    known = ~np.isnan(memory)
    memory_peak = peak(np.where(known, memory, 0.0))
    memory_peak[np.bincount(np.array(node), weights=known, minlength=len(code)) == 0] = np.nan
    return {name: NodeSeen(int(cores[number]), float(memory_peak[number])) for name, number in code.items()}


def _codes(names: list[str], rows: list[int]) -> tuple[Ints, tuple[str, ...]]:
    """Codes in the order of appearance, -1 for the empty name."""
    column = [names[row] for row in rows]
    distinct = tuple(name for name in dict.fromkeys(column) if name)
    code = {name: number for number, name in enumerate(distinct)}
    code[""] = -1
    return np.array([code[name] for name in column], dtype=np.int32), distinct

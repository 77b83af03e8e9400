"""From Slurm's job records, whatever they were written in, to a table of jobs.

Text and JSON readers fill `JobRecords`; what is a job, what never ran and what belongs together is decided here, once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.errors import LogError
from asad.model import Floats, Ints, JobLog
from asad.replay.readers.accounting_log import BadValue, Holdings, Reading, Recorded, quoted, recorded_of
from asad.replay.readers.fields import PARTITION_LIMIT
from asad.replay.readers.job_records import CODED, JobRecords, Steps

PENDING_STATES = frozenset({"PENDING", "PD"})
RUNNING_STATES = frozenset({"RUNNING", "SUSPENDED", "R", "S"})
ENDING_STATES = frozenset(
    ["COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED", "CG", "CF", "SI", "SO", "ST"]
)
"""A job in one of these runs where nothing says that it has ended."""
ENDED_STATES = frozenset(
    [
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "REVOKED",
        "REQUEUED",
        "RESIZING",
        "SPECIAL_EXIT",
        "CD",
        "F",
        "CA",
        "TO",
        "NF",
        "PR",
        "BF",
        "DL",
        "OOM",
        "RV",
        "RQ",
        "RS",
        "SE",
    ]
)
"""A job in one of these does not run, whatever its record says of its end."""

RESIZED_STATES = frozenset({"RESIZING", "RS"})

Flags = NDArray[np.bool_]


def read_records(
    records: JobRecords, steps: Steps, reading: Reading, log_format: str, skip_bad: bool, cluster: str | None
) -> Recorded:
    """The jobs of the records, of one cluster.

    Raises LogError for the first bad record unless `skip_bad`, for records of several clusters of which none is chosen,
    and if no job ran.
    """
    _check_times(records, reading)
    bad = reading.settle(skip_bad)
    _join_steps(records, steps, reading)
    good = ~np.isin(records.column("line"), list(reading.faults))
    chosen = _of_cluster(records, cluster, reading.path)
    reading.count("of another cluster", int(np.count_nonzero(good & ~chosen)))
    good &= chosen
    if not good.all():
        records.keep(np.flatnonzero(good))
    jobs, held = _to_jobs(records, reading)
    return recorded_of(jobs, reading, log_format, bad, held=held, local_times=records.local_times)


def _check_times(records: JobRecords, reading: Reading) -> None:
    """Note the records without a submit time, and those of which nothing says how long they ran but times in the wrong
    order. The hour that comes twice when summer time ends puts ends before starts, too; then the elapsed time says
    more."""
    line = records.column("line")
    for record in np.flatnonzero(np.isnan(records.column("submit_s"))).tolist():
        bad = BadValue("there is no submit time", "write when the job was submitted")
        reading.fault(int(line[record]), "Submit", bad)
    backwards = records.column("start_s") - records.column("end_s")
    # who was cancelled while it waited may have a planned start, but no nodes
    wrong = (backwards > 0) & np.isnan(records.column("elapsed_s")) & ~_names_no_node(records)
    for record in np.flatnonzero(wrong).tolist():
        problem = f"it ended {backwards[record]:.0f} s before it started"
        bad = BadValue(problem, "check both times (clock change?), or write Elapsed")
        reading.fault(int(line[record]), "End", bad)


def _of_cluster(records: JobRecords, cluster: str | None, path: str) -> Flags:
    """Which records are of the cluster that is chosen, or of the only one that the log names.

    Raises LogError, with their names, if there are several and none of them is chosen.
    """
    names = records.texts("cluster")
    code = records.column("cluster") % len(names)
    jobs_of: Counter[str] = Counter()
    for name, number in zip(names, np.bincount(code, minlength=len(names)).tolist(), strict=True):
        if name and number:
            jobs_of[name.lower()] += number  # Slurm takes them in any case
    shown = ", ".join(f"{quoted(name)} ({number} records)" for name, number in jobs_of.most_common(20))
    wanted = cluster.strip().lower() if cluster is not None else None
    if wanted is not None and wanted not in jobs_of:
        problem = f"no job of cluster {quoted(wanted)} is in this log"
        hint = f"choose from {shown}" if shown else "it names no cluster: leave --cluster away"
        raise LogError(path, None, "Cluster", problem, hint)
    if wanted is None and len(jobs_of) > 1:
        problem = f"it holds jobs of {len(jobs_of)} clusters"
        raise LogError(
            path,
            None,
            "Cluster",
            problem,
            f"choose one with --cluster of asactl, or write the log of one alone: {shown}",
        )
    if len(jobs_of) < 2:  # a record that does not name its cluster is of the only one
        return np.ones(len(records), dtype=bool)
    chosen: Flags = np.array([name.lower() == wanted for name in names])[code]
    return chosen


# --------------------------------------------------------------------------------------------------------- steps


def _join_steps(records: JobRecords, steps: Steps, reading: Reading) -> None:
    """Add up, for each record whose own CPU time is not known, that of the steps which belong to it.

    Runs of one id have steps of the same ids: a step belongs to the run in whose time it starts, else to the one that
    stands before it.
    """
    own = records.column("cpu_time_s")
    of_steps = np.zeros(len(records))
    runs: dict[str, list[int]] = {}
    stray = [
        step
        for step, (name, after) in enumerate(zip(steps.job_id, steps.after, strict=True))
        if after < 0 or records.job_id[after] != name
    ]
    names = set(steps.job_id)
    if stray or len(names) < len(records):
        for record, name in enumerate(records.job_id):
            if name in names:
                runs.setdefault(name, []).append(record)
    start, stop = records.column("start_s"), _stop(records)
    for name, moment, seconds, after in zip(
        steps.job_id, steps.start_s, steps.cpu_time_s, steps.after, strict=True
    ):
        candidates = runs.get(name, [])
        before = after if after >= 0 and records.job_id[after] == name else None
        within = (
            [run for run in candidates if start[run] <= moment <= stop[run]] if len(candidates) > 1 else []
        )
        if before in within or (before is not None and not within):
            of_steps[before] += seconds
        elif within or candidates:
            of_steps[(within or candidates)[0]] += seconds
    unmeasured = (own == 0) & (records.column("elapsed_s") != 0) & (of_steps == 0)
    reading.note(
        int(np.count_nonzero(unmeasured)), "jobs have a CPU time of exactly 0: taken as not measured"
    )
    own[:] = np.where(own > 0, own, np.where(of_steps > 0, of_steps, np.nan))


def _stop(records: JobRecords) -> Floats:
    """(records,) when each ended, NaN if it is not known."""
    stop = records.column("start_s") + records.column("elapsed_s")
    return np.where(np.isnan(stop), records.column("end_s"), stop)


# ---------------------------------------------------------------------------------------------------------- jobs


def _to_jobs(records: JobRecords, reading: Reading) -> tuple[JobLog, Holdings | None]:
    """The jobs that ran, and what the records held of nodes.

    Counts in `reading`, by reason, the records that are not jobs, and notes there what was assumed.
    """
    start = records.column("start_s")
    run = _stop(records) - start
    cores, state = records.column("cores"), records.column("state")
    states = records.texts("state")
    rows = np.arange(len(run))

    def leave_out(reason: str, which: Flags) -> None:
        nonlocal rows
        reading.count(reason, int(np.count_nonzero(which)))
        rows = rows[~which]

    def among(names: frozenset[str]) -> Flags:
        flags: Flags = np.array([name in names for name in states])[state[rows]]
        return flags

    idle = np.isnan(run) | (run <= 0)
    waits_for_nodes = _names_no_node(records) | np.array(["[" in name for name in records.job_id], dtype=bool)
    leave_out("never started", np.isnan(start) | among(PENDING_STATES) | (waits_for_nodes & idle))
    no_end = np.isnan(records.column("end_s")[rows])
    runs = no_end & (~among(ENDED_STATES) if records.has_end else among(ENDING_STATES))
    leave_out("still running", among(RUNNING_STATES) | runs)
    leave_out("no end and no elapsed time", np.isnan(run[rows]))
    leave_out("ran 0 s", run[rows] <= 0)
    leave_out("no cores", cores[rows] <= 0)
    again = _run_again(records, run, rows)
    leave_out("repeated", again.repeated)
    held = _holdings(records, rows, run, again.earlier[~again.repeated])
    leave_out("earlier run of a requeued job", again.earlier[~again.repeated])
    reading.note(
        int(np.count_nonzero(again.earlier)),
        "earlier runs of requeued jobs are left out: the last run of a job stands for it",
    )
    reading.note(again.resized, "records are parts of jobs that were resized: each part is a job of its own")
    reading.note(
        again.others,
        "ids stand for several jobs, by user, name or times (numbers that were used again, or clusters that the log "
        "does "
        "not name): all are jobs of one machine",
    )
    _note_window(records, run, rows, reading)

    table = {
        name: records.column(name)[rows]
        for name in ("submit_s", "start_s", "cores", "nodes", "memory_bytes", "cpu_time_s")
    }
    table["run_s"], table["time_limit_s"] = run[rows], _partition_limits(records, rows, reading)
    job_id = [records.job_id[row] for row in rows.tolist()]
    kept, folded = _fold_components(job_id, records.column("cluster")[rows], table, reading)
    order = kept[np.argsort(table["submit_s"][kept], kind="stable")]
    chosen = rows[order]
    ids = [job_id[row] for row in order.tolist()]
    coded = {name: _codes(records, name, chosen) for name in CODED}
    submit_s, start_s = table["submit_s"][order], table["start_s"][order]
    eligible_s = records.column("eligible_s")[chosen]
    early = int(np.count_nonzero(start_s < submit_s))
    reading.note(early, "jobs started before their submit time (requeued or edited): taken as recorded")
    priority = records.column("priority")[chosen]
    node_set = records.column("node_set")[chosen]
    node_set = np.where(np.append(records.node_lists.empty, True)[node_set], -1, node_set)
    node_set[folded[order]] = -1  # its components' nodes are several lists
    jobs = JobLog(
        job_id=_ids(ids),
        submit_s=submit_s,
        start_s=start_s,
        run_s=table["run_s"][order],
        # a sum of components beyond int32 stays too large for any machine
        cores=np.minimum(table["cores"][order], 2**31 - 1).astype(np.int32),
        nodes=np.minimum(table["nodes"][order], 2**31 - 1).astype(np.int32),
        time_limit_s=table["time_limit_s"][order],
        memory_bytes=table["memory_bytes"][order],
        cpu_time_s=table["cpu_time_s"][order],
        user=coded["user"][0],
        application=coded["application"][0],
        partition=coded["partition"][0],
        depends_on=np.full(len(order), -1, dtype=np.int32),
        think_s=np.zeros(len(order)),
        users=coded["user"][1],
        applications=coded["application"][1],
        partitions=coded["partition"][1],
        hint=_if_any(coded["hint"]),
        hints=coded["hint"][1],
        gres=_if_any(coded["gres"]),
        gres_texts=coded["gres"][1],
        # what became eligible before it was submitted, or after it started, says nothing of its wait
        eligible_s=None
        if np.isnan(eligible_s).all()
        else np.where((eligible_s > submit_s) & (eligible_s <= start_s), eligible_s, submit_s),
        account=_if_any(coded["account"]),
        accounts=coded["account"][1],
        qos=_if_any(coded["qos"]),
        qos_names=coded["qos"][1],
        reason=_if_any(coded["reason"]),
        reasons=coded["reason"][1],
        priority=None if np.isnan(priority).all() else priority,
        start_flag=_if_any(coded["start_flag"]),
        start_flags=coded["start_flag"][1],
        constraint=_if_any(coded["constraint"]),
        constraints=coded["constraint"][1],
        reservation=_if_any(coded["reservation"]),
        reservations=coded["reservation"][1],
        node_set=node_set.astype(np.int32) if (node_set >= 0).any() else None,
    )
    return jobs, held


def _ids(ids: list[str]) -> NDArray[Any]:
    if all(map(str.isdecimal, ids)):
        try:
            return np.array(ids, dtype=np.int64)
        except OverflowError:
            pass
    return np.array(ids, dtype=str)


def _names_no_node(records: JobRecords) -> Flags:
    """(records,) whose node list is there and empty."""
    empty = np.append(records.node_lists.empty, False)  # the last entry answers UNKNOWN_NODES
    without: Flags = empty[records.column("node_set")]
    return without


def _holdings(records: JobRecords, rows: NDArray[np.intp], run: Floats, earlier: Flags) -> Holdings | None:
    """What the jobs of `rows` held of which nodes, those that are `earlier` runs among them; None if no record names
    any."""
    sets = records.column("node_set")[rows]
    names_nodes = ~np.append(records.node_lists.empty, True)[sets]
    named = rows[names_nodes]
    if not len(named):
        return None
    start, end = records.column("start_s")[named], records.column("end_s")[named]
    return Holdings(
        start_s=start,
        # of two ends the earlier: across the end of summer time the clock says less than the time that passed
        stop_s=np.fmin(start + run[named], np.where(end > start, end, np.nan)),
        cores=records.column("cores")[named],
        memory_bytes=records.column("memory_bytes")[named],
        suspended=records.column("suspended_s")[named] > 0,
        node_set=records.column("node_set")[named],
        lists=records.node_lists,
        unlisted=len(rows) - len(named),
        earlier=earlier[names_nodes],
    )


class _Again(NamedTuple):
    """What records of one id are to each other; by record that is left."""

    repeated: Flags
    """It stands in the log twice: extracts of two months overlap."""
    earlier: Flags
    """It is a run of a requeued job, but not the last one (`sacct --duplicates`)."""
    others: int
    """Ids that several jobs have."""
    resized: int
    """Records that are parts of jobs which changed their size."""


def _run_again(records: JobRecords, run: Floats, rows: NDArray[np.intp]) -> _Again:
    """Which of the records of one id are one job.

    An id is not a job: numbers come again, and two clusters have the same ones. A later run is one of the same user and
    name, submitted when the earlier one had ended, and soon; other records of one id are other jobs. A job that changes
    its size has a record for each: all of them ran.
    """
    repeated, earlier = np.zeros((2, len(rows)), dtype=bool)
    ids = [records.job_id[row] for row in rows.tolist()]
    times = Counter(ids)
    states = records.texts("state")
    resized = np.array([state in RESIZED_STATES for state in states])[records.column("state")]
    parts = int(np.count_nonzero(resized[rows]))
    if len(times) == len(ids):
        return _Again(repeated, earlier, 0, parts)
    submit, start = records.column("submit_s"), records.column("start_s")
    user, name = records.column("user"), records.column("application")
    places_of: dict[str, list[int]] = {}
    for place, one in enumerate(ids):
        if times[one] > 1:
            places_of.setdefault(one, []).append(place)
    others = 0
    for places in places_of.values():
        distinct: dict[tuple[float, ...], int] = {}
        for place in places:
            row = rows[place]
            key = (submit[row], start[row], run[row], user[row], name[row])
            repeated[place] = distinct.setdefault(key, place) != place
        by_start = sorted(distinct.values(), key=lambda place: (start[rows[place]], place))
        jobs = 1
        for at, place in enumerate(by_start[:-1]):
            row = rows[place]
            ended = start[row] + run[row]
            earlier[place] = not resized[row] and any(
                _same(user[row], user[rows[later]])
                and _same(name[row], name[rows[later]])
                and submit[rows[later]] > submit[row]
                and 0 <= submit[rows[later]] - ended <= SOON_S
                for later in by_start[at + 1 : at + 1 + MOST_RUNS]
            )
            jobs += not earlier[place] and not resized[row]
        others += jobs > 1
    return _Again(repeated, earlier, others, parts)


SOON_S = 86400.0
"""A job is requeued when a run ends; numbers come again after months."""
MOST_RUNS = 50
"""So many later records of one id are asked whether they are runs of the same job."""


def _same(one: int, other: int) -> bool:
    """Are two codes the same, as far as both are recorded?"""
    return one == other or one < 0 or other < 0


def _note_window(records: JobRecords, run: Floats, rows: NDArray[np.intp], reading: Reading) -> None:
    """Note what the window of `sacct -S … -E …` cut off, which no column says."""
    if len(rows) < 2:
        return
    submit, start = records.column("submit_s")[rows], records.column("start_s")[rows]
    stop = start + run[rows]
    first, last = float(start.min()), float(stop.max())
    cut_first = (start == first) & (submit < first - 60.0)
    cut_last = stop == last
    # sacct --truncate writes one moment for all that began before it, or ended after it
    if np.count_nonzero(cut_first) >= MANY_AT_ONCE and len(np.unique(submit[cut_first])) >= MANY_AT_ONCE:
        reading.note(
            int(np.count_nonzero(cut_first)),
            "jobs start at the very first moment of this log, and were submitted before: if `sacct --truncate` wrote "
            "it, their run times are what fell into its window",
        )
    if np.count_nonzero(cut_last) >= MANY_AT_ONCE and len(np.unique(start[cut_last])) >= MANY_AT_ONCE:
        reading.note(
            int(np.count_nonzero(cut_last)),
            "jobs end at the very last moment of this log: if `sacct --truncate` wrote it, their run times are what "
            "fell into its window",
        )
    first_end = float(stop.min())
    before = int(np.count_nonzero(start < first_end))
    if before > 1 and first_end - first > LONG_BEFORE_S:
        reading.note(
            before,
            f"jobs began up to {(first_end - first) / 3600:.0f} h before the first one ended: if this is a window of "
            "`sacct -S`, what ended before it is not in the log, and until then the replay is emptier than the cluster "
            "was",
        )


MANY_AT_ONCE = 5
"""Jobs that begin or end in one second without a window that cut them are fewer."""
LONG_BEFORE_S = 86400.0
"""In a whole log a first job ends within a day."""


def _partition_limits(records: JobRecords, rows: NDArray[np.intp], reading: Reading) -> Floats:
    """(rows,) time limits, with Partition_Limit replaced by the largest limit seen in the job's partition."""
    every: Floats = records.column("time_limit_s")
    limit, asked = every[rows], every[rows] == PARTITION_LIMIT
    if not asked.any():
        return limit
    partition = records.column("partition")
    largest = np.full(
        len(records.texts("partition")), np.nan
    )  # the last entry is of jobs without a partition
    known = (every > 0) & np.isfinite(every)
    np.fmax.at(largest, partition[known], every[known])
    limit[asked] = largest[partition[rows][asked]]
    shown, lost = int(np.count_nonzero(limit[asked] > 0)), "taken as not recorded"
    reading.note(shown, "jobs had their partition's limit: taken as the largest limit seen in that partition")
    reading.note(
        int(np.count_nonzero(asked)) - shown,
        f"jobs had their partition's limit, which the log does not show: {lost}",
    )
    return limit


def _fold_components(
    job_id: list[str], cluster: Ints, table: dict[str, Floats], reading: Reading
) -> tuple[NDArray[np.intp], Flags]:
    """Fold the components `12+0`, `12+1` of a heterogeneous job into one rigid job `12`.

    Returns the places that are kept, and which places stand for several components. Components start together and Slurm
    ends them together, so cores, nodes, memory and CPU time add up.
    """
    named: dict[tuple[int, str], list[int]] = {}
    for place, name in enumerate(job_id):
        if "+" in name:
            named.setdefault((int(cluster[place]), name.split("+", 1)[0]), []).append(place)
    stop = table["start_s"] + table["run_s"]
    components: list[list[int]] = []
    for places in named.values():
        places.sort(key=lambda place: table["start_s"][place])
        for place in places:  # numbers come again: components of one job run at the same time
            if place == places[0] or table["start_s"][place] >= stop[components[-1]].max():
                components.append([])
            components[-1].append(place)
    folded, several = np.zeros((2, len(job_id)), dtype=bool)
    for places in components:
        places.sort(key=lambda place: int(job_id[place].split("+", 1)[1]))
        first = places[0]
        table["run_s"][first] = stop[places].max() - table["start_s"][places].min()
        table["submit_s"][first] = table["submit_s"][places].min()
        table["start_s"][first] = table["start_s"][places].min()
        table["time_limit_s"][first] = table["time_limit_s"][places].max()
        for column in ("cores", "nodes", "memory_bytes", "cpu_time_s"):
            table[column][first] = table[column][places].sum()
        job_id[first] = job_id[first].split("+", 1)[0]
        folded[places[1:]], several[first] = True, len(places) > 1
    if components:
        reading.counts["component of a heterogeneous job"] = int(np.count_nonzero(folded))
    reading.note(len(components), "heterogeneous jobs are replayed as one rigid job each")
    return np.flatnonzero(~folded), several


def _if_any(coded: tuple[Ints, tuple[str, ...]]) -> Ints | None:
    """The codes, None if they stand for nothing."""
    codes, texts = coded
    return codes if texts else None


def _codes(records: JobRecords, name: str, rows: NDArray[np.intp]) -> tuple[Ints, tuple[str, ...]]:
    """Codes of a column in the order in which they appear in `rows`, −1 for the empty text, and what they stand for."""
    texts = records.texts(name)
    if len(texts) == 1:
        return np.full(len(rows), -1, dtype=np.int32), ()
    column = records.column(name)[rows]
    distinct, first = np.unique(column, return_index=True)
    by_appearance = distinct[np.argsort(first)]
    by_appearance = by_appearance[by_appearance >= 0]
    new = np.full(len(texts), -1, dtype=np.int32)
    new[by_appearance] = np.arange(len(by_appearance), dtype=np.int32)
    new[-1] = -1
    return new[column], tuple(texts[code] for code in by_appearance.tolist())

"""`sacct -P` text, and comma-separated extracts with sacct's column names.

Columns are read one after the other, each text once (`fields.Memo`), since logs repeat themselves.
"""

from __future__ import annotations

import csv
import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asad.errors import LogError
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue, Reading, Recorded, quoted
from asad.replay.readers.extract import Extract, hint_of, read_extract

KNOWN = frozenset(
    re.findall(
        r"\w+",
        """
        account admincomment alloccpus allocgres allocnodes alloctres associd avecpu avecpufreq
        avediskread avediskwrite avepages averss avevmsize blockid cluster comment constraints
        consumedenergy consumedenergyraw container cputime cputimeraw dbindex derivedexitcode
        elapsed elapsedraw eligible end exitcode extra failednode flags gid group jobid jobidraw
        jobname layout licenses maxdiskread maxdiskreadnode maxdiskreadtask maxdiskwrite
        maxdiskwritenode maxdiskwritetask maxpages maxpagesnode maxpagestask maxrss maxrssnode
        maxrsstask maxvmsize maxvmsizenode maxvmsizetask mcslabel mincpu mincpunode mincputask ncpus
        nnodes nodelist ntasks partition planned plannedcpu plannedcpuraw priority qos qosraw qosreq
        reason reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin reqcpus reqgres reqmem reqnodes
        reqtres reservation reservationid reserved resvcpu resvcpuraw restarts segment start state
        stderr stdin stdout stepid submit submitline suspended systemcomment systemcpu timelimit
        timelimitraw totalcpu tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask
        tresusageinmin tresusageinminnode tresusageinmintask tresusageintot tresusageoutave
        tresusageoutmax tresusageoutmaxnode tresusageoutmaxtask tresusageouttot uid user usercpu
        wckey wckeyid workdir
        """,
    )
)
"""Every field of `sacct --helpformat`, 14.11 to 25.05, in lower case."""
FREE_TEXT = frozenset(
    [
        "jobname",
        "comment",
        "admincomment",
        "systemcomment",
        "submitline",
        "workdir",
        "wckey",
        "container",
        "constraints",
        "extra",
        "reason",
        "stdin",
        "stdout",
        "stderr",
    ]
)
"""Columns into which a user may write the delimiter."""
LISTS = frozenset(["nodelist", "alloctres", "reqtres", "licenses", "reqgres", "allocgres"])
"""Columns that hold commas by themselves, which matters when comma is the delimiter."""
DELIMITERS = ("|", ",", "\t", ";", "^", "~", ":")
JOB_ID = re.compile(
    r"\d{1,18}(?:_(?:\d{1,10}|\[[\d,:%.\-]{1,400}\]))?(?:\+\d{1,6})?(?:\.[\w+.\-]{1,64})?", re.ASCII
)
MOST_SURPLUS = 100
"""Delimiters in the names of one line; with more it counts as bad."""

TRANSPOSED_TOGETHER = 1024
"""Records turned into columns at a time: few enough to stay in the processor's cache."""


def job_id(text: str) -> str:
    """`12`, `12_3`, `12_[4-9%2]`, `12+1`, each perhaps with a step: `.batch`, `.0`."""
    if JOB_ID.fullmatch(text):
        return text
    if JOB_ID.fullmatch(text.strip()):
        return text.strip()
    raise BadValue(f"{quoted(text)} is not a job id", "write it like 123, 123_4, 123+1 or 123.batch")


PARSERS: dict[str, Callable[[str], Any]] = {
    "jobid": job_id,
    "jobidraw": job_id,
    "submit": fields.time,
    "start": fields.time,
    "end": fields.time,
    "eligible": fields.time,
    "elapsed": fields.duration,
    "elapsedraw": fields.duration,
    "timelimit": fields.time_limit,
    "timelimitraw": fields.time_limit_minutes,
    "totalcpu": fields.duration,
    "alloccpus": fields.count,
    "ncpus": fields.count,
    "reqcpus": fields.count,
    "nnodes": fields.count,
    "allocnodes": fields.count,
    "reqnodes": fields.count,
    "reqmem": fields.requested_memory,
    "alloctres": fields.tres,
    "reqtres": fields.tres,
    "state": fields.state,
    "nodelist": fields.node_list,
}
"""Typed columns: what is used, and what shows where a name with delimiters in it ends."""
NAMES = frozenset(("cluster", "user", "uid", "jobname", "partition", "comment"))
"""Columns that are used as they are."""
UNIQUE = frozenset(("jobid", "jobidraw", "submit", "start", "end"))
REQUIRED = (
    (("jobid", "jobidraw"), "JobID"),
    (("submit",), "Submit"),
    (("start",), "Start"),
    (("elapsedraw", "elapsed", "end"), "ElapsedRaw (or Elapsed, or End)"),
    (("alloccpus", "ncpus", "alloctres", "reqcpus", "reqtres"), "NCPUS (or AllocCPUS, AllocTRES, ReqCPUS)"),
)


def read(
    path: str,
    text: str,
    *,
    columns: Sequence[str] | None,
    delimiter: str | None,
    skip_bad: bool,
    log_format: str | None,
) -> Recorded:
    """The jobs of a table of accounting records.

    `columns` names them where the file has no header. Raises LogError for missing columns, for the first bad
    line unless `skip_bad`, and if no job ran.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    reading = Reading(path, counts={"lines": len(lines)})
    names, delimiter, header = _columns(path, lines, columns, delimiter)
    log_format = log_format or ("csv" if delimiter == "," else "sacct")
    _require(path, names)

    table = _split(lines, names, delimiter, header, log_format, reading)
    return read_extract(_extract(table, reading), reading, log_format, skip_bad)


def _names(fields_of_line: Sequence[str]) -> list[str]:
    return [name.strip().strip('"').split("%", 1)[0].lower() for name in fields_of_line]


def _is_header(names: Sequence[str]) -> bool:
    return ("jobid" in names or "jobidraw" in names) and sum(name in KNOWN for name in names) >= 3


def _columns(
    path: str, lines: list[str], columns: Sequence[str] | None, delimiter: str | None
) -> tuple[list[str], str, str | None]:
    """Names of the columns in lower case, the delimiter, and the header line if there is one."""
    candidates = (delimiter,) if delimiter else DELIMITERS
    number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (1, ""))
    header = max(candidates, key=lambda by: sum(name in KNOWN for name in _names(first.split(by))))
    has_header = _is_header(_names(first.split(header)))
    if columns is not None:
        names = _names(columns)
        if unknown := [name for name in names if name not in KNOWN]:
            raise LogError(
                path,
                None,
                unknown[0],
                "sacct has no such column",
                "name columns as `sacct --helpformat` lists them",
            )
        chosen = delimiter or max(candidates, key=lambda by: first.count(by) >= len(names) - 1 > 0)
        return names, chosen, first if has_header else None
    if has_header:
        names = _names(first.split(header))
        if names[-1] == "":  # sacct -p ends each line with the delimiter
            names.pop()
        return names, header, first
    if len(_names(first.split())) > 2 and _is_header(_names(first.split())):
        raise LogError(
            path, number, None, "columns are aligned by spaces and cut off", "write the log with `sacct -P`"
        )
    raise LogError(
        path,
        number,
        None,
        "this is no log that asad knows: not SWF, not JSON, no table whose first line names its columns",
        "if it is a table without a header, name its columns with --columns; or say what it is with --format",
    )


def _require(path: str, names: Sequence[str]) -> None:
    for any_of, wanted in REQUIRED:
        if not any(name in names for name in any_of):
            raise LogError(
                path, None, wanted, "the log does not have this column", "write the log again with it"
            )


@dataclass(slots=True)
class _Table:
    """What is used of the lines of the log, as text."""

    columns: dict[str, list[str]]
    """By name, one entry a job line."""
    line: list[int]
    """(job lines,) number of each."""
    identity: str
    """Name of the column by which jobs and steps differ."""
    steps: list[tuple[int, str, str]]
    """Line, id and CPU time of each step."""


def _split(
    lines: list[str],
    names: list[str],
    delimiter: str,
    header: str | None,
    log_format: str,
    reading: Reading,
) -> _Table:
    """Take the lines apart. Blank lines and headers, wherever they stand, are counted."""
    used = {  # of equal names the first one counts
        name: names.index(name) for name in names if name in PARSERS or name in NAMES
    }
    pick = operator.itemgetter(*used.values())
    identity = "jobid" if "jobid" in used else "jobidraw"
    id_place, cpu_place = used[identity], used.get("totalcpu")
    records: list[tuple[str, ...]] = []
    numbers: list[int] = []
    steps: list[tuple[int, str, str]] = []
    memo = {name: fields.Memo(parse) for name, parse in PARSERS.items()}
    for number, line in enumerate(lines, 1):
        record = line.split(delimiter)
        try:
            if log_format == "csv" and '"' in line:
                record = _unquoted(line, delimiter)
            if len(record) != len(names):
                if not line.strip():
                    reading.count("blank")
                    continue
                if len(record) == len(names) + 1 and record[-1] == "":  # sacct -p
                    record.pop()
                elif line != header:
                    record = _resolve(record, names, delimiter, memo)
        except BadValue as bad:
            reading.fault(number, None, bad)
            continue
        if line == header:
            reading.count("header")
        elif "." in record[id_place]:
            steps.append((number, record[id_place], record[cpu_place] if cpu_place is not None else ""))
        else:
            # tuples of text cost the garbage collector nothing, unlike the list that split made
            records.append(pick(record))
            numbers.append(number)
    columns: dict[str, list[str]] = {name: [] for name in used}
    for first in range(0, len(records), TRANSPOSED_TOGETHER):
        block = zip(*records[first : first + TRANSPOSED_TOGETHER], strict=True)
        for column, part in zip(columns.values(), block, strict=True):
            column += part
    return _Table(columns, numbers, identity, steps)


def _unquoted(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader((line,), delimiter=delimiter))
    except (csv.Error, TypeError) as error:
        raise BadValue(f"its quotes cannot be read ({error})", "close each quote on its line") from error


def _resolve(
    record: list[str], names: list[str], delimiter: str, memo: dict[str, fields.Memo[Any]]
) -> list[str]:
    """Give the surplus fields of a line to its names, so that every typed column can be read.

    There must be exactly one way to do so.
    """
    surplus = len(record) - len(names)
    if surplus < 0:
        raise BadValue(
            f"{len(record)} fields where there are {len(names)} columns",
            "correct the line, or skip it with --skip-bad",
        )
    free = [
        place for place, name in enumerate(names) if name in FREE_TEXT or (delimiter == "," and name in LISTS)
    ]
    if not free:
        raise BadValue(
            f"{len(record)} fields where there are {len(names)} columns, none of which is free text",
            "correct the line, or skip it with --skip-bad",
        )
    if surplus > MOST_SURPLUS:
        raise BadValue("too many delimiters in its names", "write the log with another --delimiter")
    width = len(names)
    # of the columns from `place` on, when `before` surplus fields are taken: ways to read them (2 for more), and how
    # many fields more the first of them takes in one of those
    ways = [[0] * (surplus + 1) for _ in range(width + 1)]
    takes = [[0] * (surplus + 1) for _ in range(width)]
    ways[width][surplus] = 1
    for place in reversed(range(width)):
        for before in range(surplus + 1):
            first = place + before
            for more in range(surplus - before + 1 if place in free else 1):
                following = ways[place + 1][before + more]
                if following and _readable(names[place], record[first : first + more + 1], delimiter, memo):
                    ways[place][before] = min(2, ways[place][before] + following)
                    takes[place][before] = more
    if ways[0][0] > 1:
        raise BadValue(
            f"it has {surplus} delimiters too many, and more than one way to read it",
            "write the log with another --delimiter",
        )
    if ways[0][0] == 0:
        raise BadValue(
            f"{len(record)} fields where there are {len(names)} columns, and no way to read it",
            "correct the line, or skip it with --skip-bad",
        )
    merged, before = [], 0
    for place in range(width):
        more = takes[place][before]
        merged.append(delimiter.join(record[place + before : place + before + more + 1]))
        before += more
    return merged


def _readable(name: str, parts: Sequence[str], delimiter: str, memo: dict[str, fields.Memo[Any]]) -> bool:
    """Can a column hold these fields as one?"""
    if name not in memo:
        return True
    try:
        memo[name][delimiter.join(parts)]
    except BadValue:
        return False
    return True


def _extract(table: _Table, reading: Reading) -> Extract:
    """Parse the columns, and fold the CPU time of the steps into their jobs."""
    size = len(table.line)

    def column(name: str, default: Any) -> list[Any]:
        """A column's values; what cannot be read is reported and becomes the default."""
        if name not in table.columns:
            return [default] * size
        memo = fields.Memo(PARSERS[name])
        try:
            # times and ids hardly ever repeat: keeping them would only cost memory
            return list(map(memo.parse if name in UNIQUE else memo.__getitem__, table.columns[name]))
        except BadValue:
            return _one_by_one(name, zip(table.line, table.columns[name], strict=True), default, reading)

    def first_of(names: Sequence[str], default: Any) -> list[Any]:
        return column(next((name for name in names if name in table.columns), ""), default)

    def names_of(*names: str) -> list[str]:
        return next((table.columns[name] for name in names if name in table.columns), [""] * size)

    job_ids = column(table.identity, "")
    nothing = fields.Tres(0, 0, math.nan)
    allocated, requested = column("alloctres", nothing), column("reqtres", nothing)
    cores = _first_positive(
        size,
        *(column(name, 0) for name in ("alloccpus", "ncpus") if name in table.columns),
        [tres.cores for tres in allocated],
        column("reqcpus", 0),
        [tres.cores for tres in requested],
    )
    nodes = _first_positive(
        size,
        *(column(name, 0) for name in ("nnodes", "allocnodes") if name in table.columns),
        [tres.nodes for tres in allocated],
        column("reqnodes", 0),
    )
    reqmem = column("reqmem", fields.ReservedMemory(math.nan, "job"))
    memory = [
        tres.memory_bytes
        if tres.memory_bytes > 0
        else asked.amount_bytes
        * (1 if asked.per == "job" else core if asked.per == "core" else node or math.nan)
        for tres, asked, core, node in zip(allocated, reqmem, cores.tolist(), nodes.tolist(), strict=True)
    ]
    reading.note(
        sum(asked.flagged for asked in reqmem),
        "jobs have Slurm's per-core flag in ReqMem: the rest is taken as MiB per core",
    )
    texts = [table.columns[name] for name in ("submit", "start", "end") if name in table.columns]
    if any(len(text) == 19 for column_of in texts for text in column_of[:100]):
        reading.notes.append("times without a zone are taken as UTC")

    of_steps = _cpu_of_steps(table.steps, reading)
    if table.steps:
        reading.counts["step"] = sum(number not in reading.faults for number, _, _ in table.steps)
    of_jobs = column("totalcpu", math.nan)
    elapsed = first_of(("elapsedraw", "elapsed"), math.nan)
    unmeasured = sum(
        seconds == 0 and run != 0 and name not in of_steps
        for seconds, run, name in zip(of_jobs, elapsed, job_ids, strict=True)
    )
    reading.note(unmeasured, "jobs have a CPU time of exactly 0: taken as not measured")
    return Extract(
        line=table.line,
        job_id=job_ids,
        cluster=names_of("cluster"),
        submit_s=column("submit", math.nan),
        start_s=column("start", math.nan),
        end_s=column("end", math.nan),
        elapsed_s=elapsed,
        state=column("state", ""),
        cores=cores.tolist(),
        nodes=nodes.tolist(),
        time_limit_s=first_of(("timelimitraw", "timelimit"), math.nan),
        memory_bytes=memory,
        cpu_time_s=[
            seconds if seconds > 0 else of_steps.get(name, math.nan)
            for seconds, name in zip(of_jobs, job_ids, strict=True)
        ],
        user=names_of("user", "uid"),
        application=names_of("jobname"),
        partition=names_of("partition"),
        node_list=column("nodelist", ()) if "nodelist" in table.columns else [None] * size,
        hint=list(map(hint_of, names_of("comment"))),
        gres=[tres.gres or asked.gres for tres, asked in zip(allocated, requested, strict=True)],
    )


def _first_positive(size: int, *columns: list[int]) -> Any:
    values = np.zeros(size, dtype=np.int64)
    for column in columns:
        values = np.where(values > 0, values, np.array(column, dtype=np.int64))
    return values


def _cpu_of_steps(steps: list[tuple[int, str, str]], reading: Reading) -> dict[str, float]:
    """Job id → CPU seconds of its steps, where there are any."""
    totals: defaultdict[str, float] = defaultdict(float)
    for number, name, text in steps:
        try:
            seconds = fields.duration(text)
            job_id(name)
        except BadValue as bad:
            reading.fault(number, "step", bad)
            continue
        if seconds > 0:
            totals[name.split(".", 1)[0]] += seconds
    return totals


def _one_by_one(name: str, texts: Iterable[tuple[int, str]], default: Any, reading: Reading) -> list[Any]:
    """The values of a column in which some cannot be read, which are reported."""
    values = []
    for line, text in texts:
        try:
            values.append(PARSERS[name](text))
        except BadValue as bad:
            reading.fault(line, name, bad)
            values.append(default)
    return values

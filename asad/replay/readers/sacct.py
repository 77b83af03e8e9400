"""`sacct -P` text, and comma-separated extracts with sacct's column names.

Columns are read block by block, and texts that come again once (`fields.Memo`), since logs repeat themselves.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from asad.errors import LogError
from asad.model import Floats
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue, Reading, Recorded, quoted
from asad.replay.readers.job_records import JobRecords, Steps, hint_of
from asad.replay.readers.node_sets import runs_of
from asad.replay.readers.raw_bytes import line_blocks
from asad.replay.readers.recorded_jobs import read_records
from asad.replay.readers.sacct_columns import FREE_TEXT, LISTS, SHAPES, USUAL_SHAPES, column_name
from asad.replay.readers.table_header import DELIMITERS, Header, check_columns, find_header, header_of
from asad.replay.readers.table_lines import Layout, Records, records_of

JOB_ID = re.compile(
    r"\d{1,19}(?:_(?:\d{1,10}|\[[\d,:%.\-]{1,65536}\]))?(?:\+\d{1,6})?(?:\.[\w+.\-]{1,64})?", re.ASCII
)
ISO_TIMES = re.compile(r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d )+", re.ASCII)
ROUNDED_ID = re.compile(r"\d(?:[.,]\d{1,15})?[Ee]\+?\d{1,2}", re.ASCII)
FLOAT_ID = re.compile(r"\d{1,15}\.0", re.ASCII)
MOST_KEPT_TEXTS = 100_000
"""Texts of one column whose values are kept from block to block."""
NOTHING = fields.Tres(0, 0, math.nan)


def job_id(text: str) -> str:
    """`12`, `12_3`, `12_[4-9%2]`, `12+1`, each perhaps with a step: `.batch`, `.0`."""
    word = text.strip()
    if ROUNDED_ID.fullmatch(word):
        raise BadValue(
            f"{quoted(text)} is no job id: a spreadsheet has rounded it", "write the log again, ids as text"
        )
    if JOB_ID.fullmatch(word):
        return word
    raise BadValue(f"{quoted(text)} is not a job id", "write it like 123, 123_4, 123+1 or 123.batch")


def _job_of(step: str) -> str:
    """The job's part of a step's id."""
    array, bracket, rest = step.rpartition("]")
    return array + bracket + rest.split(".", 1)[0]


PARSERS: dict[str, Callable[[str], Any]] = {
    "jobid": job_id,
    "jobidraw": job_id,
    "submit": fields.time,
    "eligible": fields.time,
    "start": fields.time,
    "end": fields.time,
    "elapsed": fields.duration,
    "elapsedraw": fields.duration,
    "suspended": fields.duration,
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
    "nodelist": runs_of,
    "priority": fields.priority,
}
"""Typed columns: what is used, and what shows where a name with delimiters in it ends."""
NAMES = {
    "user": ("user", "uid"),
    "application": ("jobname",),
    "partition": ("partition",),
    "cluster": ("cluster",),
    "hint": ("comment",),
    "account": ("account",),
    "qos": ("qos",),
    "reason": ("reason",),
    "start_flag": ("flags",),
    "constraint": ("constraints",),
    "reservation": ("reservation",),
}
"""Texts of a record, and the columns of which the first that is there has them."""
PLAIN_NAMES: dict[str, Callable[[str], str]] = {
    "application": str,
    "hint": hint_of,
    "reason": fields.reason,
    "start_flag": fields.start_flag,
}
"""What is taken as it stands, or has its own reader: a job may be called Unknown."""
REPEATED = ("reason", "start_flag", "constraint", "reservation")
"""Texts of which a log has few."""
OPTIONAL = frozenset(("reason", "flags", "constraints", "reservation", "priority"))
"""Columns that only add to what is known of a job: where a record can be read in several ways that differ in them
alone, they are taken as not recorded."""
TEXT_COLUMNS = frozenset(name for several in NAMES.values() for name in several)
REQUIRED = (
    (("jobid", "jobidraw"), "JobID"),
    (("submit",), "Submit"),
    (("start",), "Start"),
    (("elapsedraw", "elapsed", "end"), "ElapsedRaw (or Elapsed, or End)"),
    (("alloccpus", "ncpus", "alloctres", "reqcpus", "reqtres"), "NCPUS (or AllocCPUS, AllocTRES, ReqCPUS)"),
)


def read(
    path: str,
    raw: bytes,
    *,
    columns: Sequence[str] | None,
    delimiter: str | None,
    skip_bad: bool,
    log_format: str | None,
    cluster: str | None,
) -> Recorded:
    """The jobs of a table of accounting records, in UTF-8.

    `columns` names them where the file has no header. Raises LogError for missing columns, for the first bad line
    unless `skip_bad`, as `read_records` does, and if no job ran.
    """
    header, names, before = _columns(path, raw, columns, delimiter, log_format == "csv")
    log_format = log_format or ("csv" if header.delimiter == "," else "sacct")
    for any_of, wanted in REQUIRED:
        if not any(name in names for name in any_of):
            raise LogError(
                path, None, wanted, "the log does not have this column", "write the log again with it"
            )
    reading = Reading(path, counts={"lines": 0})
    table = _Table(names, header, log_format, reading)
    for block in records_of(line_blocks(raw), table.layout, reading, before):
        table.add(block)
        if reading.faults and not skip_bad:  # the first bad line is among those that were read
            break
    return read_records(table.finished(), table.steps, reading, log_format, skip_bad, cluster)


def _columns(
    path: str, raw: bytes, columns: Sequence[str] | None, delimiter: str | None, comma: bool
) -> tuple[Header, tuple[str, ...], int]:
    """How a table is written, the names of its columns in lower case, and how many lines stand before it.

    `comma`: what has no header is separated by commas.
    """
    lines = [line for block in line_blocks(raw[:1_000_000]) for line in block]
    if columns is None:
        before, header = find_header(path, lines, delimiter)
        return header, _names_of_rows(header, lines), before
    names = tuple(column_name(name, abbreviated=True) or "" for name in columns)
    for name, known in zip(columns, names, strict=True):
        if not known:
            hint = "name columns as `sacct --helpformat` lists them"
            raise LogError(path, None, quoted(name.lower()), "sacct has no such column", hint)
    number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (1, ""))
    named = header_of(first, delimiter)
    if named is not None and named.names_job:
        check_columns(path, number, named, names)
        return named, names, 0
    chosen = "," if comma else max(DELIMITERS, key=lambda by: first.count(by) >= len(names) - 1 > 0)
    return Header("", names, delimiter or chosen, 0, quoted=False, trailing=False), names, 0


def _names_of_rows(header: Header, lines: Sequence[str]) -> tuple[str, ...]:
    """The names of columns, with one before them where rows have names of their own, as R writes them."""
    names = header.names
    if not header.quoted:
        return names
    at = next((at for at, line in enumerate(lines) if line == header.line), len(lines))
    following = next((line for line in lines[at + 1 :] if line.strip()), "")
    return ("", *names) if following.count(header.delimiter) == len(names) and not header.trailing else names


class _Table:
    """The records of a log, of which blocks are added one after the other."""

    def __init__(self, names: Sequence[str], header: Header, log_format: str, reading: Reading) -> None:
        self.place = {  # of equal names the first one counts
            name: names.index(name)
            for name in dict.fromkeys(names)
            if name in PARSERS or name in TEXT_COLUMNS
        }
        self._identity = "jobid" if "jobid" in self.place else "jobidraw"
        if self._identity == "jobid":
            self.place.pop("jobidraw", None)
        self.records, self.steps, self.reading = JobRecords(), Steps(), reading
        self.records.has_end = "end" in self.place
        self._memo: dict[str, fields.Memo[Any]] = {
            name: fields.Memo(parse) for name, parse in PARSERS.items()
        }
        self._name = fields.name_in_csv if log_format == "csv" else fields.name
        for name in REPEATED:
            self._memo[name] = fields.Memo(PLAIN_NAMES.get(name, self._name))
        self._flagged = 0
        self._float_ids: bool | None = None
        comma = header.delimiter == ","
        self.layout = Layout(
            width=len(names),
            delimiter=header.delimiter,
            header=header if header.line else None,
            names=header.names,
            trailing=header.trailing,
            quoted=log_format == "csv" or (header.quoted and len(header.delimiter) == 1),
            used={at: hint_of if name == "comment" else str for name, at in self.place.items()},
            free=frozenset(
                at for at, name in enumerate(names) if name in FREE_TEXT or (comma and name in LISTS)
            ),
            readable={at: readable for at, name in enumerate(names) if (readable := self._readable(name))},
            optional=frozenset(at for name, at in self.place.items() if name in OPTIONAL),
            usual={at: _matches(USUAL_SHAPES[name]) for at, name in enumerate(names) if name in USUAL_SHAPES},
        )

    def _readable(self, name: str) -> Callable[[str], bool] | None:
        """What says whether a text can stand in a column; None where any can."""
        if name in self.place and name in PARSERS:
            can = _parses(PARSERS[name])
        elif name in SHAPES:
            can = _matches(SHAPES[name])
        else:
            return None
        return can if name in UNIQUE else _Kept(can).__getitem__

    def add(self, block: Records) -> None:
        """Take a block of records: jobs as columns, and what steps used."""
        for memo in self._memo.values():
            if len(memo) > MOST_KEPT_TEXTS:
                memo.clear()
        identity = self.place[self._identity]
        rows, lines = block.rows, block.line
        ids = [row[identity] for row in rows]
        if self._float_ids is None and ids:
            # with a gap in its column, a program writes the id 12 as 12.0, which is a step's
            self._float_ids = all(FLOAT_ID.fullmatch(one.strip()) or not one.strip() for one in ids)
        if self._float_ids:
            for row in rows:
                row[identity] = row[identity].strip().removesuffix(".0")
        elif any("." in one for one in ids):
            # dots within brackets are Slurm's, where it shortened a range of tasks: 10_[1,3,...]
            dots = ["." in one.rpartition("]")[2] for one in ids]
            rows, lines = self._without_steps(block, ids, dots)
        if rows:
            self._add_jobs(rows, lines)

    def finished(self) -> JobRecords:
        """All records, with notes of what was assumed."""
        self.reading.note(
            self._flagged, "jobs have Slurm's per-core flag in ReqMem: the rest is taken as MiB per core"
        )
        if self.records.local_times:
            self.reading.notes.append("times without a zone are taken as UTC")
        return self.records

    def _without_steps(
        self, block: Records, ids: list[str], of_step: list[bool]
    ) -> tuple[list[list[str]], list[int]]:
        """The rows and lines of jobs. What steps used is kept, and who stands before them."""
        cpu, start = self.place.get("totalcpu"), self.place.get("start")
        rows, lines = [], []
        before = len(self.records) - 1
        steps = self.steps
        for row, line, one, is_step in zip(block.rows, block.line, ids, of_step, strict=True):
            if not is_step:
                rows.append(row)
                lines.append(line)
                before += 1
                continue
            column = self._identity
            try:
                name = _job_of(job_id(one))
                column = "step"
                seconds = self._memo["totalcpu"][row[cpu]] if cpu is not None else math.nan
                moment = fields.time(row[start]) if seconds > 0 and start is not None else math.nan
            except BadValue as bad:
                self.reading.fault(line, column, bad)
                continue
            self.reading.count("step")
            if seconds > 0:
                steps.job_id.append(name)
                steps.start_s.append(moment)
                steps.cpu_time_s.append(seconds)
                steps.after.append(before)
        return rows, lines

    def _add_jobs(self, rows: list[list[str]], lines: list[int]) -> None:
        pick = operator.itemgetter(*self.place.values())
        text = dict(zip(self.place, zip(*map(pick, rows), strict=True), strict=True))

        def column(name: str, default: Any) -> Any:
            """A column's values; what cannot be read is reported and becomes the default."""
            if name not in text:
                return [default] * len(rows)
            try:
                if name in TIMES and (seconds := _iso_seconds(text[name])) is not None:
                    return seconds
                # times and ids hardly ever repeat: keeping them would only cost memory
                memo = self._memo[name]
                return list(map(memo.parse if name in UNIQUE else memo.__getitem__, text[name]))
            except BadValue:
                return self._one_by_one(name, zip(lines, text[name], strict=True), default)

        def first_of(*names: str) -> Any:
            return column(next((name for name in names if name in text), ""), math.nan)

        allocated, requested = column("alloctres", NOTHING), column("reqtres", NOTHING)
        cores = _first_positive(
            *(column(name, 0) for name in ("alloccpus", "ncpus") if name in text),
            [tres.cores for tres in allocated],
            column("reqcpus", 0),
            [tres.cores for tres in requested],
        )
        nodes = _first_positive(
            *(column(name, 0) for name in ("nnodes", "allocnodes") if name in text),
            [tres.nodes for tres in allocated],
            column("reqnodes", 0),
        )
        asked = column("reqmem", fields.ReservedMemory(math.nan, "job"))
        self._flagged += sum(one.flagged for one in asked)
        if not self.records.local_times:
            self.records.local_times = any(
                fields.is_local(one) for name in TIMES if name in text for one in text[name][:100]
            )
        memory_bytes = np.array(
            [
                tres.memory_bytes
                if tres.memory_bytes > 0
                else one.amount_bytes
                * (1 if one.per == "job" else core if one.per == "core" else node or math.nan)
                for tres, one, core, node in zip(
                    allocated, asked, cores.tolist(), nodes.tolist(), strict=True
                )
            ]
        )
        if "reqtres" in text and (unknown := np.isnan(memory_bytes)).any():
            memory_bytes[unknown] = np.array([tres.memory_bytes for tres in requested])[unknown]
        numbers: dict[str, Any] = {
            "line": lines,
            "submit_s": column("submit", math.nan),
            "eligible_s": column("eligible", math.nan),
            "start_s": column("start", math.nan),
            "end_s": column("end", math.nan),
            "elapsed_s": first_of("elapsedraw", "elapsed"),
            "suspended_s": column("suspended", math.nan),
            "cores": cores,
            "nodes": nodes,
            "time_limit_s": first_of("timelimitraw", "timelimit"),
            "memory_bytes": memory_bytes,
            "cpu_time_s": column("totalcpu", math.nan),
            "priority": column("priority", math.nan),
        }
        names = {
            "state": column("state", ""),
            "gres": [a.gres or b.gres for a, b in zip(allocated, requested, strict=True)],
        }
        for name, several in NAMES.items():
            found = next((one for one in several if one in text), None)
            if found is not None:
                read = self._memo[name].__getitem__ if name in REPEATED else PLAIN_NAMES.get(name, self._name)
                names[name] = list(map(read, text[found]))
        if "user" in text and "uid" in text:
            uids = map(self._name, text["uid"])
            names["user"] = [user or uid for user, uid in zip(names["user"], uids, strict=True)]
        job_ids = column(self._identity, "")
        self.records.add(job_ids, numbers, names, text.get("nodelist"), self.reading)

    def _one_by_one(self, name: str, texts: Iterable[tuple[int, str]], default: Any) -> list[Any]:
        """The values of a column in which some cannot be read, which are reported."""
        values = []
        for line, text in texts:
            try:
                values.append(PARSERS[name](text))
            except BadValue as bad:
                self.reading.fault(line, name, bad)
                values.append(default)
        return values


TIMES = ("submit", "eligible", "start", "end")
UNIQUE = frozenset(("jobid", "jobidraw", "dbindex", "sluid", "originalsluid", *TIMES))
"""Columns in which texts hardly ever come again."""


def _parses(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    """Whether a parser takes a text."""

    def can(text: str) -> bool:
        try:
            parse(text)
        except BadValue:
            return False
        return True

    return can


def _matches(shape: re.Pattern[str]) -> Callable[[str], bool]:
    """Whether a text has a shape."""
    return lambda text: shape.fullmatch(text.strip()) is not None


class _Kept(fields.Memo[bool]):
    """Answers of which so many are kept."""

    def __missing__(self, text: str) -> bool:
        if len(self) >= MOST_KEPT_TEXTS:
            self.clear()
        return super().__missing__(text)


def _iso_seconds(texts: Sequence[str]) -> Floats | None:
    """Times of the form `2024-01-31T12:00:00`, all of them, as `fields.time` has them; None if one is of another
    form."""
    if not ISO_TIMES.fullmatch(" ".join((*texts, ""))):
        return None
    try:
        seconds = np.array(texts, dtype="datetime64[s]").astype(np.int64).astype(np.float64)
    except ValueError:
        return None
    return np.where(seconds >= fields.FIRST_TIME_S, seconds, np.nan)


def _first_positive(*columns: Sequence[int]) -> Any:
    values = np.array(columns[0], dtype=np.int64)
    for column in columns[1:]:
        values = np.where(values > 0, values, np.array(column, dtype=np.int64))
    return values

"""Standard Workload Format 2.2 (Parallel Workloads Archive): 18 numbers a line, comments after `;`.

Numbers are read by a compiled scan over the bytes; a line it does not accept is read again, slowly, to say
what is wrong with it.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.model import Floats, Ints, JobLog
from asad.replay.readers.accounting_log import BadValue, Reading, Recorded, quoted, recorded_of

FIELDS = (
    "1 (job number)",
    "2 (submit time)",
    "3 (wait time)",
    "4 (run time)",
    "5 (allocated processors)",
    "6 (average CPU time)",
    "7 (used memory)",
    "8 (requested processors)",
    "9 (requested time)",
    "10 (requested memory)",
    "11 (status)",
    "12 (user)",
    "13 (group)",
    "14 (executable)",
    "15 (queue)",
    "16 (partition)",
    "17 (preceding job)",
    "18 (think time)",
)
WHOLE = (0, 4, 7, 10, 11, 13, 15, 16)
"""Fields that count or name something, so that a fraction in them is an error."""
PARTIAL_EXECUTIONS = (2.0, 3.0, 4.0)
"""Status of a line that is one of several executions of a job which has its own summary line as well."""
NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d*)?([eE][+-]?\d{1,2})?|[+-]?\.\d+", re.ASCII)
KEY = re.compile(r"[A-Za-z][A-Za-z0-9 ]{0,40}")
"""Of a line of the header, which is `; Key: value`."""
PARTITION = re.compile(r"^(\d+)[ \t]+(\S.*)$", re.ASCII | re.MULTILINE)
DATA, COMMENT, BLANK, REJECTED = 0, 1, 2, 3


@compiled(nogil=True)
def _scan(
    text: NDArray[np.uint8], first_byte: NDArray[np.int64], kind: NDArray[np.uint8], table: Floats
) -> None:
    """Fill, for each line, where it starts, what it is, and (18, lines) its numbers."""
    position = 0
    for line in range(kind.size):
        first_byte[line] = position
        kind[line] = BLANK
        fields = 0
        while position < text.size and text[position] != 10:
            byte = text[position]
            if byte == 32 or byte == 9 or byte == 13:
                position += 1
                continue
            if byte == 59 and fields == 0:
                kind[line] = COMMENT
                break
            kind[line] = DATA
            negative = byte == 45
            if negative:
                position += 1
            mantissa = np.int64(0)
            digits = 0
            scale = 1.0
            fraction = False
            while position < text.size:
                byte = text[position]
                if 48 <= byte <= 57:
                    mantissa = mantissa * 10 + np.int64(byte - 48)
                    digits += 1
                    if fraction:
                        scale *= 10.0
                elif byte == 46 and not fraction:
                    fraction = True
                else:
                    break
                position += 1
                if digits > 15:  # beyond it a float is no longer exact
                    break
            ended = position >= text.size
            if not ended:
                byte = text[position]
                ended = byte == 32 or byte == 9 or byte == 10 or byte == 13
            if digits == 0 or digits > 15 or not ended or fields == 18:
                kind[line] = REJECTED
                break
            value = mantissa / scale
            table[fields, line] = -value if negative else value
            fields += 1
        if kind[line] == DATA and fields != 18:
            kind[line] = REJECTED
        while position < text.size and text[position] != 10:
            position += 1
        position += 1


def read(path: str, raw: bytes, skip_bad: bool) -> Recorded:
    """The jobs of an SWF log.

    Usable are those with run time and processors (allocated, which is what they held; else requested) above 0.
    Raises LogError for the first bad line unless `skip_bad`, and if nothing is usable.
    """
    text = np.frombuffer(raw, dtype=np.uint8)
    lines = int(np.count_nonzero(text == 10)) + (len(raw) > 0 and not raw.endswith(b"\n"))
    first_byte = np.empty(lines, dtype=np.int64)
    kind = np.empty(lines, dtype=np.uint8)
    table = np.empty((len(FIELDS), lines))
    _scan(text, first_byte, kind, table)

    reading = Reading(path, counts={"lines": lines})
    for line in np.flatnonzero(kind == REJECTED).tolist():
        try:
            table[:, line] = _numbers(_line(raw, first_byte, line))
            kind[line] = DATA
        except BadValue as bad:
            reading.fault(line + 1, bad.column, bad)
    _check(table, kind, reading)
    reading.count("comment", int(np.count_nonzero(kind == COMMENT)))
    reading.count("blank", int(np.count_nonzero(kind == BLANK)))
    bad_lines = reading.settle(skip_bad)

    values: dict[str, list[str]] = {}
    for line in np.flatnonzero(kind == COMMENT).tolist():
        key, colon, value = _line(raw, first_byte, line).lstrip(";").partition(":")
        if colon and KEY.fullmatch(key := key.strip()):
            values.setdefault(key, []).append(value.strip())
    header = {key: "\n".join(lines) for key, lines in values.items()}

    jobs = _jobs(table, kind, header, reading)
    return recorded_of(jobs, reading, "swf", bad_lines, header)


def looks_like(line: str) -> bool:
    """Whether a line could be one of SWF's: 18 numbers, or a comment."""
    fields = line.split()
    return line.lstrip().startswith(";") or (
        len(fields) == len(FIELDS) and all(NUMBER.fullmatch(field) for field in fields)
    )


def _line(raw: bytes, first_byte: NDArray[np.int64], line: int) -> str:
    end = raw.find(b"\n", first_byte[line])
    return raw[first_byte[line] : end if end >= 0 else len(raw)].decode("utf-8", "replace")


def _numbers(line: str) -> list[float]:
    fields = line.split()
    if len(fields) != len(FIELDS):
        raise BadValue(
            f"{len(fields)} fields where SWF has 18",
            "write -1 for what is missing, or skip the line with --skip-bad",
        )
    numbers = []
    for column, text in zip(FIELDS, fields, strict=True):
        if not NUMBER.fullmatch(text):
            raise BadValue(f"{quoted(text)} is not a number", "write a number, -1 if it is missing", column)
        if abs(float(text)) > 1e15:
            hint = "write a number below 1e15, -1 if it is missing"
            raise BadValue(f"{quoted(text)} is too large", hint, column)
        numbers.append(float(text))
    return numbers


def _check(table: Floats, kind: NDArray[np.uint8], reading: Reading) -> None:
    """Mark as rejected the lines whose numbers cannot be what their field holds."""

    def refuse(wrong: NDArray[np.bool_], field: int, problem: str, remedy: str) -> None:
        for line in np.flatnonzero(wrong & (kind == DATA)).tolist():
            reading.fault(line + 1, FIELDS[field], BadValue(f"{table[field, line]:.15g} {problem}", remedy))
            kind[line] = REJECTED

    with np.errstate(invalid="ignore"):  # lines that hold no numbers are not initialised
        for field in WHOLE:
            refuse(table[field] != np.floor(table[field]), field, "is not whole", "write a whole number")
        refuse(table[1] < 0, 1, "is no submit time", "write seconds since the start of the log")
        for field in (4, 7):
            refuse(table[field] > 2**31 - 1, field, "processors are too many", "write less than 2^31")


def _jobs(table: Floats, kind: NDArray[np.uint8], header: dict[str, str], reading: Reading) -> JobLog:
    rows = np.flatnonzero(kind == DATA)

    def leave_out(reason: str, which: NDArray[np.bool_]) -> None:
        nonlocal rows
        reading.count(reason, int(np.count_nonzero(which)))
        rows = rows[~which]

    def processors() -> Floats:
        allocated: Floats = table[4, rows]
        return np.where(allocated > 0, allocated, table[7, rows])

    def recorded(field: int) -> Floats:
        column: Floats = table[field, rows]
        return np.where(column > 0, column, np.nan)

    partial = np.isin(table[10, rows], PARTIAL_EXECUTIONS)
    if partial.any():
        summarised = np.isin(table[0, rows], table[0, rows[~partial]])
        leave_out("partial execution of a job that has its own line", partial & summarised)
    leave_out("never started", (table[3, rows] <= 0) & (table[2, rows] < 0))
    leave_out("ran 0 s", table[3, rows] <= 0)
    leave_out("no processors", processors() <= 0)
    rows = rows[np.argsort(table[1, rows], kind="stable")]

    cores = processors()
    submit_s, wait_s, cpu_s = table[1, rows], table[2, rows], table[5, rows]
    memory_per_core = recorded(9) * 1024.0
    depends_on, think_s = _dependencies(table[0, rows], table[16, rows], table[17, rows], reading)
    user, users = _codes(table[11, rows])
    application, applications = _codes(table[13, rows])
    partition, partitions = _codes(table[15, rows])
    reading.note(
        int(np.count_nonzero(table[4, rows] <= 0)),
        "jobs do not say how many processors they were given: those that they requested are taken",
    )
    reading.note(
        int(
            np.count_nonzero((table[4, rows] > 0) & (table[7, rows] > 0) & (table[4, rows] != table[7, rows]))
        ),
        "jobs were given another number of processors than they requested: those that they were given are taken",
    )
    unknown = int(np.count_nonzero(wait_s < 0))
    reading.note(unknown, "jobs ran but have no wait time: when they started is not known")
    if np.isfinite(memory_per_core).any():
        reading.notes.append("requested memory is taken as KiB per processor, as SWF defines it")
    names = dict(PARTITION.findall(header.get("Partition", "")))
    return JobLog(
        job_id=table[0, rows].astype(np.int64),
        submit_s=submit_s,
        start_s=np.where(wait_s >= 0, submit_s + wait_s, np.nan),
        run_s=table[3, rows],
        cores=cores.astype(np.int32),
        nodes=np.zeros(len(rows), dtype=np.int32),
        time_limit_s=recorded(8),
        memory_bytes=memory_per_core * cores,
        cpu_time_s=np.where(cpu_s >= 0, cpu_s * cores, np.nan),
        user=user,
        application=application,
        partition=partition,
        depends_on=depends_on,
        think_s=think_s,
        users=users,
        applications=applications,
        partitions=tuple(names.get(number, number) for number in partitions),
    )


def _codes(numbers: Floats) -> tuple[Ints, tuple[str, ...]]:
    """Numbers of 0 and more → codes, and what each code stands for; -1 stays what it is."""
    unique, code = np.unique(numbers, return_inverse=True)
    missing = int(np.searchsorted(unique, 0.0))
    return (
        np.maximum(code - missing, -1).astype(np.int32),
        tuple(str(int(number)) for number in unique[missing:].tolist()),
    )


def _dependencies(number: Floats, preceding: Floats, think: Floats, reading: Reading) -> tuple[Ints, Floats]:
    """Row of the last earlier job that must precede each (-1: none), and the think time after it."""
    depends_on = np.full(len(number), -1, dtype=np.int32)
    waits = np.flatnonzero(preceding > 0)
    if len(waits):
        by_number = np.argsort(number, kind="stable")
        place = np.searchsorted(number, preceding[waits], side="right", sorter=by_number) - 1
        found = by_number[np.maximum(place, 0)]
        known = (place >= 0) & (number[found] == preceding[waits]) & (found < waits)
        depends_on[waits[known]] = found[known]
        reading.note(
            int(np.count_nonzero(~known)),
            "jobs depend on a job that is not among the earlier ones: taken as independent",
        )
    return depends_on, np.where((depends_on >= 0) & (think > 0), think, 0.0)

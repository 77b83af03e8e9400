"""`sacct --json`, of Slurm 22.05 (plain numbers) and of the data_parser plugins that came after it.

What versions mean by a number is in `asad.cluster.slurm_json`; here it is checked besides, since a log may be edited.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any

from asad.cluster.slurm_json import MEBIBYTE, plain
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue, Reading, Recorded, quoted
from asad.replay.readers.job_records import NAMES, NUMBERS, JobRecords, Steps, hint_of
from asad.replay.readers.json_documents import records_of
from asad.replay.readers.node_sets import runs_of
from asad.replay.readers.recorded_jobs import read_records

BLOCK = 4096
"""Records turned into columns at a time."""
KEYS = {"Submit": "time.submission", "End": "time.end", "nodelist": "nodes"}
"""Columns of sacct → keys of its JSON, of errors that are found later."""
_check_nodes = lru_cache(maxsize=4096)(runs_of)
_started = lru_cache(maxsize=4096)(fields.start_flag)


class _Parts(dict[str, tuple[str, ...]]):
    """Dotted key → its parts, each key split once."""

    def __missing__(self, key: str) -> tuple[str, ...]:
        parts = self[key] = tuple(key.split("."))
        return parts


PARTS = _Parts()
NO_MEMORY = frozenset(2**bits - mark for bits in (32, 64) for mark in (1, 2))
"""Slurm's marks, in a field that once had 32 bits."""


def _bad_key(key: str, problem: str) -> BadValue:
    """The error of a value that is not what its key holds."""
    return BadValue(
        problem, "write the log again with `sacct --json`, or skip the record with --skip-bad", key
    )


def read(path: str, raw: bytes, *, skip_bad: bool, cluster: str | None, before: int = 0) -> Recorded:
    """The jobs of `sacct --json`, in UTF-8; counts are of job records and their steps. So many lines `before` it are
    none of it.

    Raises LogError if it is not such JSON, for the first bad record unless `skip_bad`, as `read_records` does, and if
    no job ran.
    """
    records, reading = JobRecords(), Reading(path, numbered=False, keys=KEYS, counts={"lines": 0})
    if before:
        lines = raw.split(b"\n", before)
        raw = b"\n" * before + lines[-1]
        reading.note(
            before, f"lines before the JSON are left out: {quoted(lines[0].decode('utf-8', 'replace'))}"
        )
    flags: Counter[str] = Counter()
    rows = _rows(records_of(path, raw), reading, flags)
    columns = ("job_id", "nodes_text", *NUMBERS, *NAMES)
    values = itemgetter(*columns)
    while block := list(islice(rows, BLOCK)):
        column = dict(zip(columns, zip(*map(values, block), strict=True), strict=True))
        records.add(column["job_id"], column, column, column["nodes_text"], reading)
    records.has_end = bool(flags["end"])
    reading.note(
        flags["flagged"], "jobs have Slurm's per-core flag in their memory: the rest is MiB per core"
    )
    return read_records(records, Steps(), reading, "sacct-json", skip_bad, cluster)


def _rows(
    found: Iterator[tuple[str, Any]], reading: Reading, flags: Counter[str]
) -> Iterator[dict[str, Any]]:
    """The values of each record by column; bad ones are noted."""
    for number, (place, record) in enumerate(found):
        if place != f"jobs[{number}]":
            reading.places[number] = place
        steps = _steps(record)
        reading.count("lines", 1 + len(steps))
        try:
            row = _row(number, record, steps, flags)
        except BadValue as bad:
            reading.fault(number, bad.column, bad)
            reading.count("step of a bad record", len(steps))
            continue
        reading.count("step", len(steps))
        yield row


def _steps(record: Any) -> list[Any]:
    steps = record.get("steps") if isinstance(record, dict) else None
    return steps if isinstance(steps, list) else []


def _row(number: int, record: Any, steps: list[Any], flags: Counter[str]) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise BadValue("this is no job record", "write the log again with `sacct --json`")
    allocated = _tres(record, "tres.allocated")
    cores = _whole(allocated.get("cpu", 0), "tres.allocated") or _count(record, "required.CPUs")
    requested = {} if "cpu" in allocated and "mem" in allocated else _tres(record, "tres.requested")
    cores = cores or _whole(requested.get("cpu", 0), "tres.requested")
    nodes = _whole(allocated.get("node", 0), "tres.allocated") or _count(record, "allocation_nodes")
    elapsed = _number(record, "time.elapsed")
    memory, flagged = _memory(record, allocated, requested, cores, nodes)
    names = _text(record, "nodes")
    try:
        _check_nodes(names)
    except BadValue as bad:
        raise _bad_key("nodes", bad.problem) from bad
    # the administrator's and the system's comments are not the user's
    comment = record.get("comment")
    of_job = comment.get("job") if isinstance(comment, dict) else comment
    row = {
        "line": number,
        "job_id": _job_id(record),
        "submit_s": _moment(record, "time.submission"),
        "eligible_s": _moment(record, "time.eligible"),
        "start_s": _moment(record, "time.start"),
        "end_s": _moment(record, "time.end"),
        "elapsed_s": elapsed if 0 <= elapsed < math.inf else math.nan,
        "suspended_s": _number(record, "time.suspended"),
        "state": _state(record),
        "cores": cores,
        "nodes": nodes,
        "time_limit_s": _limit(record),
        "memory_bytes": memory,
        "cpu_time_s": _cpu_time(record, steps),
        "cluster": _text(record, "cluster"),
        "user": _text(record, "user") or _text(record, "association.user"),
        "application": _text(record, "name"),
        "partition": _text(record, "partition"),
        "account": _text(record, "account") or _text(record, "association.account"),
        "qos": _text(record, "qos"),
        "nodes_text": names if "nodes" in record else None,
        "hint": hint_of(_whole_characters(of_job) if isinstance(of_job, str) else ""),
        "gres": _gres(record),
        "priority": _priority(record),
        "reason": fields.reason(_plain_name(_within(record.get("state"), "reason"))),
        "start_flag": _start_flag(record.get("flags")),
        "constraint": _plain_name(record.get("constraints")),
        "reservation": _plain_name(_within(record.get("reservation"), "name")),
    }
    # only now that nothing of it can fail: of a bad record nothing counts
    flags["flagged"] += flagged
    flags["end"] += "end" in (record.get("time") or ())
    return row


def _at(record: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None if any part of it is missing."""
    first, *rest = PARTS[key]
    value = record.get(first)
    for part in rest:
        if value is None:
            return None
        if value.__class__ is not dict:
            raise _bad_key(key, f"{_shown(value)} stands where {part} was expected")
        value = value.get(part)
    return value


def _shown(value: Any) -> str:
    try:
        return quoted(str(value))
    except RecursionError:  # nested as deep as can be read, which is deeper than can be written
        return f"a nested {type(value).__name__}"


def _text(record: Mapping[str, Any], key: str) -> str:
    value = _at(record, key)
    if value is None:
        return ""
    if isinstance(value, str):
        return _whole_characters(value)
    raise _bad_key(key, f"{_shown(value)} is not text")


def _whole_characters(text: str) -> str:
    """Half of a character, which JSON may hold and no file does, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _number(record: Mapping[str, Any], key: str, bits: int = 32) -> float:
    """A number of 0 and more, in either notation; NaN if not set, inf if infinite."""
    value = _at(record, key)
    if value.__class__ is int and 0 <= value < 2**31:  # as nearly all are
        return float(value)
    return _as_number(value, key, bits)


def _as_number(value: Any, key: str, bits: int = 32) -> float:
    """A number as 22.05 prints it has Slurm's marks for "not set" and "infinite" in itself: the two largest of its
    width.

    In a field of another width they are numbers like others, and a number that says that it is set never is one of
    them."""
    if isinstance(value, dict):
        bits = 0
        if (value := plain(value)) == math.inf:
            return math.inf
    if value is None or value == "":
        return math.nan
    if isinstance(value, str) and re.fullmatch(r"\d{1,20}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad_key(key, f"{_shown(value)} is not a number")
    if bits and value == 2**bits - 2:
        return math.nan
    if bits and value == 2**bits - 1:
        return math.inf
    if not 0 <= value < 2**64:
        raise _bad_key(key, f"{_shown(value)} is out of range")
    return float(value)


def _count(record: Mapping[str, Any], key: str) -> int:
    return _whole(_number(record, key), key)


def _whole(value: float, key: str) -> int:
    if math.isnan(value) or math.isinf(value):
        return 0
    if value != int(value) or value >= 2**31:
        raise _bad_key(key, f"{value:.15g} is not a whole number below 2^31")
    return int(value)


def _moment(record: Mapping[str, Any], key: str) -> float:
    """Epoch seconds; NaN for 0, which stands for "not yet"."""
    value = _number(record, key)
    if 1e12 <= value < math.inf:
        raise _bad_key(key, f"{value:.0f} is no time in epoch seconds")
    return math.nan if math.isinf(value) else value or math.nan


def _limit(record: Mapping[str, Any]) -> float:
    """`time.limit`, in minutes → seconds. Not set means that the partition's limit held."""
    if _at(record, "time.limit") is None:
        return math.nan
    minutes = _number(record, "time.limit")
    return fields.PARTITION_LIMIT if math.isnan(minutes) else minutes * 60.0 or math.nan


def _state(record: Mapping[str, Any]) -> str:
    """`state`: a text or a list, by itself or as `current`."""
    value = record.get("state")
    if isinstance(value, dict):
        value = value.get("current")
    if isinstance(value, list):
        value = value[0] if value else ""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _bad_key("state", f"{_shown(value)} is not a state")
    return fields.state(value)


def _priority(record: Mapping[str, Any]) -> float:
    """NaN where none was set. It has 32 bits, and the marks of 22.05 in them."""
    value = _number(record, "priority")
    return value if math.isfinite(value) else math.nan


def _within(value: Any, key: str) -> Any:
    """What an object has under a key; None if it is none."""
    return value.get(key) if isinstance(value, dict) else None


def _start_flag(flags: Any) -> str:
    """Who started it, of a list of flags."""
    words = (flag for flag in flags if isinstance(flag, str)) if isinstance(flags, list) else ()
    return _started(" ".join(words))


def _plain_name(value: Any) -> str:
    """A text that only adds to what is known of a job; of no reservation the name is 0 in 22.05."""
    return fields.name(_whole_characters(value)) if isinstance(value, str) else ""


def _job_id(record: Mapping[str, Any]) -> str:
    number = _id(record, "job_id", bits=0)
    if not number:
        raise _bad_key("job_id", "there is no job id")
    name = str(number)
    if array := _id(record, "array.job_id"):
        task = _number(record, "array.task_id")
        waiting = _text(record, "array.task")
        # the record of tasks that still wait has no task id but their range
        if math.isfinite(task):
            name = f"{array}_{_whole(task, 'array.task_id')}"
        elif waiting:
            name = f"{array}_[{waiting[:100]}]"
    if leader := _id(record, "het.job_id"):
        offset = _number(record, "het.job_offset")
        if math.isfinite(offset):
            name = f"{leader}+{_whole(offset, 'het.job_offset')}"
    return name


def _id(record: Mapping[str, Any], key: str, bits: int = 32) -> int:
    """A job's number, 0 for none. Those of a federation use all 32 bits, and others may have more."""
    value = _number(record, key, bits)
    if not math.isfinite(value):
        return 0
    if value != int(value) or value >= 2**63:
        raise _bad_key(key, f"{value:.15g} is no job id")
    return int(value)


def _tres(record: Mapping[str, Any], key: str) -> dict[str, float]:
    """Type → amount of a list of trackable resources."""
    entries = _at(record, key)
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise _bad_key(key, "this is not a list of resources")
    amounts = {}
    for entry in entries:
        if entry.__class__ is not dict or (kind := entry.get("type")).__class__ is not str:
            raise _bad_key(key, f"{_shown(entry)} is not a resource")
        count = entry.get("count")
        # with a sign since data_parser/v0.0.42 at the latest: energy that nobody measured is -2, not 2^64 - 2
        amounts[kind] = _as_number(count + 2**64 if count in (-1, -2) else count, key, 64)
    return amounts


def _gres(record: Mapping[str, Any]) -> str:
    """The gres that a job held, or asked for where it is not known what it held."""
    for key in ("tres.allocated", "tres.requested"):
        listed = _at(record, key)
        entries = [entry for entry in listed if entry.__class__ is dict] if isinstance(listed, list) else []
        names = [(one.get("name"), one.get("count")) for one in entries if one.get("type") == "gres"]
        if names:
            counts = {
                name: count for name, count in names if isinstance(name, str) and isinstance(count, int)
            }
            return fields.gres_text(counts)
    return ""


def _memory(
    record: Mapping[str, Any],
    allocated: Mapping[str, float],
    requested: Mapping[str, float],
    cores: int,
    nodes: int,
) -> tuple[float, bool]:
    """Bytes reserved over all nodes (NaN: not known), and whether Slurm's per-core flag was in the number."""
    total = allocated.get("mem", math.nan)
    if 0 < total < 2**53:
        return total * MEBIBYTE, False
    for key, count in (("memory_per_cpu", cores), ("memory_per_node", nodes or math.nan)):
        each = _number(record, f"required.{key}")
        if 0 < each < 2**31:
            return each * count * MEBIBYTE, False
    value = _at(record, "required.memory")
    counts = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if counts and value not in NO_MEMORY:
        megabytes, flagged = fields.per_core_flag(value)
        if flagged or megabytes < 2**31:
            memory = megabytes * (cores if flagged else nodes) * MEBIBYTE
            if memory:
                return memory, flagged
    total = requested.get("mem", math.nan)
    return (total * MEBIBYTE if 0 < total < 2**53 else math.nan), False


def _cpu_time(record: Mapping[str, Any], steps: list[Any]) -> float:
    """CPU seconds of the job, else of its steps; 0 or NaN if they were not measured."""
    own = _seconds(record)
    if own > 0:
        return own
    of_steps = 0.0
    for step in steps:
        if not isinstance(step, dict):
            raise _bad_key("steps", f"{_shown(step)} is not a step")
        seconds = _seconds(step)
        of_steps += seconds if seconds > 0 else 0.0
    return of_steps or own


def _seconds(record: Mapping[str, Any]) -> float:
    value = _at(record, "time.total")
    if not isinstance(value, dict) or "number" in value:
        return _as_number(value, "time.total", 64)
    microseconds = _as_number(value.get("microseconds"), "time.total.microseconds", 64)
    seconds = _as_number(value.get("seconds"), "time.total.seconds", 64)
    return seconds + (microseconds / 1e6 if microseconds < 1e9 else 0.0)

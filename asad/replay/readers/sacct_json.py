"""`sacct --json`, of Slurm 22.05 (plain numbers) and of the data_parser plugins that came after it.

What versions mean by a number is in `asad.cluster.slurm_json`; here it is checked besides, since a log may be edited.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from asad.cluster.slurm_json import MEBIBYTE, plain
from asad.errors import LogError
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue, Reading, Recorded, quoted
from asad.replay.readers.extract import Extract, hint_of, read_extract

NO_VALUE = frozenset({2**16 - 2, 2**32 - 2, 2**64 - 2})
INFINITE = frozenset({2**16 - 1, 2**32 - 1, 2**64 - 1})
"""Slurm's own marks, which 22.05 prints as numbers."""


def _bad_key(key: str, problem: str) -> BadValue:
    """The error of a value that is not what its key holds."""
    return BadValue(
        problem, "write the log again with `sacct --json`, or skip the record with --skip-bad", key
    )


def read(path: str, text: str, *, skip_bad: bool) -> Recorded:
    """The jobs of `sacct --json`; counts are of job records and their steps.

    Raises LogError if it is not such JSON, for the first bad record unless `skip_bad`, and if no job ran.
    """
    records = _records(path, text)
    extract, reading = Extract(), Reading(path, numbered=False, counts={"lines": 0})
    flags: Counter[str] = Counter()
    for number, record in enumerate(records):
        steps = _steps(record)
        reading.count("lines", 1 + len(steps))
        try:
            _append(extract, number, record, steps, flags)
            reading.count("step", len(steps))
        except BadValue as bad:
            key = f".{bad.column}" if bad.column else ""
            reading.fault(number, f"jobs[{number}]{key}", bad)
            reading.count("step of a bad record", len(steps))
    reading.note(
        flags["flagged"], "jobs have Slurm's per-core flag in their memory: the rest is MiB per core"
    )
    reading.note(flags["unmeasured"], "jobs have a CPU time of exactly 0: taken as not measured")
    return read_extract(extract, reading, "sacct-json", skip_bad)


def load(path: str, text: str) -> Any:
    """Parsed JSON, strictly: no NaN, bounded depth. Raises LogError that names the line."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise LogError(
            path,
            error.lineno,
            str(error.colno),
            f"this is not JSON: {error.msg}",
            "write the log again (cut off?)",
        ) from error
    except (RecursionError, ValueError) as error:
        raise LogError(
            path, None, None, "this is not JSON as Slurm writes it", "write the log again with --json"
        ) from error


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _records(path: str, text: str) -> list[Any]:
    whole = load(path, text)
    records = whole.get("jobs") if isinstance(whole, dict) else None
    if not isinstance(records, list):
        raise LogError(path, None, "jobs", "there is no list of jobs", "give the output of `sacct --json`")
    return records


def _steps(record: Any) -> list[Any]:
    steps = record.get("steps") if isinstance(record, dict) else None
    return steps if isinstance(steps, list) else []


def _append(extract: Extract, number: int, record: Any, steps: list[Any], flags: Counter[str]) -> None:
    if not isinstance(record, dict):
        raise BadValue("this is no job record", "write the log again with `sacct --json`")
    allocated = _tres(record, "tres.allocated")
    asked = _tres(record, "tres.requested")
    cores = _whole(allocated.get("cpu", 0), "tres.allocated") or _count(record, "required.CPUs")
    cores = cores or _whole(asked.get("cpu", 0), "tres.requested")
    nodes = _whole(allocated.get("node", 0), "tres.allocated") or _count(record, "allocation_nodes")
    row: dict[str, Any] = {
        "elapsed_s": _number(record, "time.elapsed"),
        "start_s": _moment(record, "time.start"),
        "end_s": _moment(record, "time.end"),
        "submit_s": _moment(record, "time.submission"),
        "state": _state(record),
        "job_id": _job_id(record),
        "time_limit_s": _limit(record),
    }
    memory, flagged = _memory(record, allocated, cores, nodes)
    cpu, unmeasured = _cpu_time(record, steps)
    names = fields.node_list(_text(record, "nodes"))
    texts = {key: _text(record, key) for key in ("cluster", "user", "association.user", "name", "partition")}
    # the administrator's and the system's comments are not the user's
    comment = record.get("comment")
    of_job = comment.get("job") if isinstance(comment, dict) else comment
    flags["flagged"] += flagged
    flags["unmeasured"] += unmeasured and row["elapsed_s"] != 0
    if not 0 <= row["elapsed_s"] < math.inf:
        row["elapsed_s"] = math.nan
    # only now that nothing of it can fail, or a bad record would leave some columns longer than others
    extract.add(
        **row,
        line=number,
        cores=cores,
        nodes=nodes,
        memory_bytes=memory,
        cpu_time_s=cpu,
        cluster=texts["cluster"],
        user=texts["user"] or texts["association.user"],
        application=texts["name"],
        partition=texts["partition"],
        node_list=names if "nodes" in record else None,
        hint=hint_of(_whole_characters(of_job) if isinstance(of_job, str) else ""),
        gres=_gres(record, "tres.allocated"),
    )


def _at(record: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None if any part of it is missing."""
    value: Any = record
    for part in key.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
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


def _number(record: Mapping[str, Any], key: str) -> float:
    """A number of 0 and more, in either notation; NaN if not set, inf if infinite."""
    return _as_number(_at(record, key), key)


def _as_number(value: Any, key: str) -> float:
    if isinstance(value, dict) and (value := plain(value)) == math.inf:
        return math.inf
    if value is None or value == "":
        return math.nan
    if isinstance(value, str) and re.fullmatch(r"\d{1,20}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad_key(key, f"{_shown(value)} is not a number")
    if value in NO_VALUE:
        return math.nan
    if value in INFINITE:
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


def _job_id(record: Mapping[str, Any]) -> str:
    number = _count(record, "job_id")
    if not number:
        raise _bad_key("job_id", "there is no job id")
    name = str(number)
    if array := _count(record, "array.job_id"):
        task = _number(record, "array.task_id")
        waiting = _text(record, "array.task")
        # the record of tasks that still wait has no task id but their range
        if math.isfinite(task):
            name = f"{array}_{_whole(task, 'array.task_id')}"
        elif waiting:
            name = f"{array}_[{waiting[:100]}]"
    if leader := _count(record, "het.job_id"):
        offset = _number(record, "het.job_offset")
        if math.isfinite(offset):
            name = f"{leader}+{_whole(offset, 'het.job_offset')}"
    return name


def _tres(record: Mapping[str, Any], key: str) -> dict[str, float]:
    """Type → amount of a list of trackable resources."""
    entries = _at(record, key)
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise _bad_key(key, "this is not a list of resources")
    amounts = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
            raise _bad_key(key, f"{_shown(entry)} is not a resource")
        count = entry.get("count")
        # with a sign since data_parser/v0.0.42 at the latest: energy that nobody measured is -2, not 2^64 - 2
        amounts[entry["type"]] = _as_number(count + 2**64 if count in (-1, -2) else count, key)
    return amounts


def _gres(record: Mapping[str, Any], key: str) -> str:
    """The gres among them; `_tres` has refused what is no list of resources."""
    entries = [entry for entry in _at(record, key) or () if entry["type"] == "gres"]
    names = [(entry.get("name"), entry.get("count")) for entry in entries]
    return fields.gres_text(
        {name: count for name, count in names if isinstance(name, str) and isinstance(count, int)}
    )


def _memory(
    record: Mapping[str, Any], allocated: Mapping[str, float], cores: int, nodes: int
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
    if not counts or value in NO_VALUE | INFINITE:
        return math.nan, False
    megabytes, flagged = fields.per_core_flag(value)
    if not flagged and megabytes >= 2**31:
        return math.nan, False
    return megabytes * (cores if flagged else nodes) * MEBIBYTE or math.nan, flagged


def _cpu_time(record: Mapping[str, Any], steps: list[Any]) -> tuple[float, bool]:
    """CPU seconds of the job, else of its steps; NaN if not measured. Whether it was exactly 0."""
    own = _seconds(record)
    if own > 0:
        return own, False
    of_steps = 0.0
    for step in steps:
        if not isinstance(step, dict):
            raise _bad_key("steps", f"{_shown(step)} is not a step")
        seconds = _seconds(step)
        of_steps += seconds if seconds > 0 else 0.0
    return of_steps or math.nan, own == 0 and not of_steps


def _seconds(record: Mapping[str, Any]) -> float:
    value = _at(record, "time.total")
    if not isinstance(value, dict):
        return _as_number(value, "time.total")
    microseconds = _as_number(value.get("microseconds"), "time.total.microseconds")
    seconds = _as_number(value.get("seconds"), "time.total.seconds")
    return seconds + (microseconds / 1e6 if microseconds < 1e9 else 0.0)

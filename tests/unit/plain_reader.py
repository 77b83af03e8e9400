"""A second reader of accounting logs, slow and plain, to hold asad's own against.

It is written from docs/reference/logs.md and shares no code with `asad.replay.readers`. A line of a table or a
record of JSON becomes fields by sacct's names, fields a `Record`, and `settle` says which records are jobs.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import combinations_with_replacement, islice
from typing import Any, NamedTuple

UNITS = {unit: 1024.0**power for power, unit in enumerate("BKMGTPE")}
MISSING = {"", "unknown", "none", "n/a", "na", "nan", "nat", "null", "(null)", "invalid", "none assigned"}
NO_NAME = {"", "unknown", "n/a", "(null)", "<na>"}
RUNNING = "RUNNING|SUSPENDED|COMPLETING|CONFIGURING|STOPPED|SIGNALING|STAGE_OUT"
FINAL = "COMPLETED|FAILED|CANCELLED|TIMEOUT|(NODE|BOOT)_FAIL|PREEMPTED|DEADLINE|OUT_OF_MEMORY|REVOKED|REQUEUED|RESIZING"
TEXT = "jobname|comment|admincomment|systemcomment|submitline|workdir|wckey|container|constraints|extra"
JOB_ID = r"(\d+(?:_(?:\d+|\[.*\]))?)(?:\+(\d+))?(?:\.(.+))?"


class Record(NamedTuple):
    """What is used of one line. Times in seconds (epoch), memory in bytes, CPU time in core-seconds."""

    id: str
    component: str | None  # of a heterogeneous job: what stands after +
    step: str | None
    submit: float | None
    start: float | None
    end_missing: bool  # the log has ends, but none for this record
    state: str
    run: float | None
    cores: int
    nodes: int
    memory: float | None
    cpu: float | None
    who: tuple[str, str, str]  # user, job name, partition


def read_plain(raw: bytes, columns: Sequence[str] | None = None) -> tuple[list[Record], Counter[str]]:
    """The jobs of a log (`sacct -P`, CSV, `sacct --json`; in gzip or not), and how many records are none, by reason."""
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    text, found, counts = raw.decode("utf-8", "replace").lstrip("\ufeff"), list[Record](), Counter[str]()
    for fields in of_json(text) if text.lstrip()[:1] in ("{", "[") else of_table(text, columns):
        if fields is None or fields.get("submit", "").lower() == "submit":
            counts["header" if fields else "bad"] += 1
        else:
            found.append(record_of(fields))
    return settle(found, counts), counts


def given(text: str | None) -> str:
    """The text, empty if it says that there is nothing."""
    return "" if text is None or text.strip().lower() in MISSING else text.strip()


def named(text: str | None) -> str:
    """A user or a partition: less means that there is none."""
    return "" if text is None or text.strip().lower() in NO_NAME else text


def whole(text: str | None) -> int:
    """`4`, `4.0`, `4e0`, `2K`; 0 if it is missing."""
    text = given(text) or "0"
    return int(float(text.rstrip("KMG")) * UNITS.get(text[-1], 1.0))


def time(text: str | None) -> float | None:
    text = given(text)
    if re.fullmatch(r"\d+(\.\d+)?(e\d+)?|", text):
        return float(text or 0) or None
    moment = datetime.fromisoformat(text)
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if seconds >= 2 * 86400 else None


def duration(text: str | None) -> float | None:
    text = given(text)
    if re.fullmatch(r"\d+(\.\d+)?(e\d+)?|", text):
        return float(text) if text else None
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 86400 * days + 3600 * hours + 60 * minutes + seconds


def memory_of(text: str | None, cores: int, nodes: int) -> float:
    """Bytes of all of the job, MiB if no unit is there. What was rounded is read as the least that prints so."""
    found = re.fullmatch(r"(\d+(?:\.(\d+))?)([KMGTPE]?)([nc]?)", given(text) or "0")
    number, digits, unit, per = found.groups()
    least = (float(number) - (0.5 * 10.0 ** -len(digits) if digits else 0.0)) * UNITS[unit or "M"]
    if least >= 2.0**31 * UNITS["M"]:  # the flag "per core" stands in the number
        least, per = least - 2.0**31 * UNITS["M"], "c"
    return max(least, 0.0) * {"n": max(nodes, 1), "c": cores, "": 1}[per]


def record_of(fields: dict[str, str]) -> Record:
    """What is used of a record. Raises ValueError or AttributeError where a value cannot be one of its column."""
    get = fields.get
    id, component, step = re.fullmatch(JOB_ID, given(get("jobid") or get("jobidraw"))).groups()
    submit, start, end = (time(get(name)) for name in ("submit", "start", "end"))
    run = duration(given(get("elapsedraw")) or get("elapsed"))
    if run is None and start and end:
        run = end - start
    held, asked = (dict(re.findall(r"(\w+)=([^,]+)", get(name, ""))) for name in ("alloctres", "reqtres"))
    cores = whole(get("alloccpus")) or whole(get("ncpus")) or whole(held.get("cpu"))
    cores = cores or whole(get("reqcpus")) or whole(asked.get("cpu"))
    nodes = whole(get("nnodes")) or whole(get("allocnodes"))
    nodes = nodes or whole(held.get("node")) or whole(get("reqnodes"))
    memory = memory_of(held.get("mem"), cores, nodes) or memory_of(get("reqmem"), cores, nodes)
    memory = memory or memory_of(asked.get("mem"), cores, nodes) or None
    running = "end" in fields and end is None
    state = re.fullmatch(r"([A-Z_]*)(?:\+| by \S+)?", given(get("state"))).group(1)
    cpu = duration(get("totalcpu")) or None
    who = (named(get("user")) or named(get("uid")), given(get("jobname")), named(get("partition")))
    if submit is None and step is None:
        raise ValueError("a job without a time of submission")
    return Record(id, component, step, submit, start, running, state, run, cores, nodes, memory, cpu, who)


def of_table(text: str, columns: Sequence[str] | None) -> Iterator[dict[str, str] | None]:
    """The fields of each record of a table, None where they cannot be separated."""
    lines = [line.removesuffix("\r").lstrip("\ufeff") for line in text.split("\n") if line.strip()]
    between = re.match(r'"?\w+"?(.+?)"?(?=\w)', lines[0])
    by = between[1] if between and columns is None else "|"
    if by != ",":
        yield from logical(lines, [name.strip().lower() for name in columns or lines[0].split(by)], by)
        return
    whole_lists = re.sub(r"\[[\d,-]*\]", lambda found: found[0].replace(",", "\0"), "\n".join(lines))
    rows = list(csv.reader(io.StringIO(whole_lists)))
    names = [name.strip().lower() for name in columns or rows[0]]
    for row in ([value.replace("\0", ",") for value in row] for row in rows):
        yield dict(zip(reversed(names), reversed(row), strict=True)) if len(row) == len(names) else None


def logical(lines: list[str], names: list[str], by: str) -> Iterator[dict[str, str] | None]:
    """The fields of each record; None for a line of none. A line that can be read is a record, unless those after it
    cannot, and belong to it. Of the ways to make records of such lines the one with the most records counts."""
    alone = [ways(line, names, by) for line in lines]
    at = 0
    while at < len(lines):
        until = next((line for line in range(at + 1, len(lines)) if alone[line]), len(lines))
        best: list[list[list[dict[str, str]]]] = [[] for _ in range(until - at)] + [[[]]]
        for begin in range(until - 1, at - 1, -1):
            found = [
                [one, *rest]
                for stop in range(begin + 1, min(until, begin + 8) + 1)  # of 8 lines at most
                for one in ways("\n".join(lines[begin:stop]), names, by)
                for rest in best[stop - at]
            ]
            most = max(map(len, found), default=0)
            best[begin - at] = [way for way in found if len(way) == most][:2]
        if len(best[0]) == 1:
            yield from best[0][0]
        else:  # at least the lines that can be read by themselves
            yield from (alone[line][0] if len(alone[line]) == 1 else None for line in range(at, until))
        at = until


def ways(text: str, names: list[str], by: str) -> list[dict[str, str]]:
    """The ways to read `text` as one record that differ in what is used of it."""
    parts = text.split(by)
    if not 0 <= len(parts) - len(names) <= 30:
        return []
    if [part.strip().lower() for part in parts] == names:
        return [dict(zip(names, parts, strict=True))]
    found: dict[Record, dict[str, str]] = {}
    free = [name for name in names if name in TEXT.split("|")]
    for wider in combinations_with_replacement(free, len(parts) - len(names)):
        rest, fields = iter(parts), dict[str, str]()
        for name in names:  # of equal names the first counts
            fields.setdefault(name, by.join(islice(rest, 1 + wider.count(name))))
        if not any("\n" in value for name, value in fields.items() if name not in free):
            with suppress(ValueError, AttributeError):
                found.setdefault(record_of(fields), fields)
    return list(found.values())


def number(value: Any, bits: int = 64) -> Any:
    """A number as any release writes it, "" for none. Two of each width mean none, unless the record says it is set."""
    if isinstance(value, dict) and "seconds" in value:
        return float(value["seconds"]) + float(value.get("microseconds") or 0) / 1e6
    if isinstance(value, dict):
        return value["number"] if value.get("set") and not value.get("infinite") else ""
    return "" if value in (None, 2**bits - 1, 2**bits - 2) else value


def of_json(text: str) -> Iterator[dict[str, str]]:
    """Every record of every document, which is a list of them, or has it as `jobs`, or is a record."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        for job in value if isinstance(value, list) else value.get("jobs", [value]):
            yield from of_job(job)


def of_job(job: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The fields of a job and of its steps, as a table would have them."""
    times, array, het, required = (job.get(name) or {} for name in ("time", "array", "het", "required"))
    task, offset = number(array.get("task_id"), 32), number(het.get("job_offset"), 32)
    id = f"{job['job_id']:.0f}"
    if array.get("job_id") and (task != "" or array.get("task")):
        id = f"{array['job_id']}_{task}" if task != "" else f"{array['job_id']}_[{array['task']}]"
    elif het.get("job_id") and offset != "":
        id = f"{het['job_id']}+{offset}"
    counted = {
        when: ",".join(f"{entry['type']}={number(entry['count'])}" for entry in entries or ())
        for when, entries in (job.get("tres") or {}).items()
    }
    by_per = {"c": required.get("memory_per_cpu"), "n": required.get("memory_per_node")}
    if mib := number(required.get("memory")):  # Slurm 22.05: a bit says whether it is per core or per node
        by_per = {"c": mib - 2**63} if mib >= 2**63 else {"n": mib}
    states = (job.get("state") or {}).get("current") or ""
    end = {"end": str(number(times["end"]))} if "end" in times else {}
    yield end | {
        "jobid": id,
        "submit": str(number(times.get("submission"))),
        "start": str(number(times.get("start"))),
        "elapsed": str(number(times.get("elapsed"), 32)),
        "totalcpu": str(number(times.get("total"))),
        "state": states if isinstance(states, str) else states[0],
        "nnodes": str(number(job.get("allocation_nodes"), 32)),
        "alloctres": counted.get("allocated", ""),
        "reqcpus": str(number(required.get("CPUs"), 32)),
        "reqtres": counted.get("requested", ""),
        "reqmem": next((f"{number(mib)}M{per}" for per, mib in by_per.items() if number(mib)), ""),
        "user": job.get("user") or (job.get("association") or {}).get("user") or "",
        "jobname": job.get("name") or "",
        "partition": job.get("partition") or "",
    }
    for at, step in enumerate(job.get("steps") or ()):
        start = str(number(step["time"].get("start")))
        yield {"jobid": f"{id}.{at}", "start": start, "totalcpu": str(number(step["time"].get("total")))}


def settle(records: Sequence[Record], counts: Counter[str]) -> list[Record]:
    """The records that are jobs; the others are counted by reason."""
    cpu = cpu_of_steps(records)
    groups: dict[Any, dict[Any, Record]] = defaultdict(dict)
    for at, record in enumerate(records):
        group = groups[record.id, record.component is None, record.submit, record.start]
        run, final = (record.component, record.run, record.who[:2]), re.fullmatch(FINAL, record.state)
        if record.step is not None:
            counts["step"] += 1
        elif re.fullmatch(RUNNING, record.state) or (record.start and record.end_missing and not final):
            counts["still running"] += 1
        elif record.start is None:
            counts["never started"] += 1
        elif not record.run or record.run <= 0:
            counts["ran 0 s"] += 1
        elif run in group:
            counts["repeated"] += 1
        else:
            group[run] = record._replace(cpu=record.cpu or cpu[at])
    jobs: dict[str, list[Record]] = defaultdict(list)
    for parts in (list(group.values()) for group in groups.values() if group):
        if parts[0].component is not None:
            counts["component of a heterogeneous job"] += len(parts) - 1
            cores, nodes, memory, total = (sum(part[at] or 0 for part in parts) for at in range(8, 12))
            parts = [min(parts)._replace(cores=cores, nodes=nodes, memory=memory or None, cpu=total or None)]
        jobs[parts[0].id] += parts
    last = [job for runs in jobs.values() for job in runs if not any(follows(other, job) for other in runs)]
    counts["earlier run of a requeued job"] += sum(map(len, jobs.values())) - len(last)
    return last


def follows(later: Record, earlier: Record) -> bool:
    """Is it a later run of the same job, and not another job that got the same id?"""
    same = all(not a or not b or a == b for a, b in zip(later.who[:2], earlier.who[:2], strict=True))
    ended = (earlier.start or 0.0) + (earlier.run or 0.0)
    soon = later.submit - ended <= 86400.0 and not re.fullmatch("RESIZING|RS", earlier.state)
    return same and soon and later.submit > earlier.submit and min(later.submit, later.start or 0.0) >= ended


def cpu_of_steps(records: Sequence[Record]) -> list[float | None]:
    """For each record the CPU time of its steps: those that started while it ran, or, where steps have no times, stand
    after it. What the log says twice of a step counts once."""
    runs, before = defaultdict(list), dict[Any, int]()
    for at, record in enumerate(records):
        if record.step is None and record.start is not None:
            runs[record.id, record.component].append(at)
    found: list[dict[Any, float]] = [{} for _ in records]
    for at, record in enumerate(records):
        key = (record.id, record.component)
        if record.step is None:
            before[key] = at
            continue
        mine = runs[key] if record.start else [before[key]] if key in before else []
        if record.start and len({records[run].start for run in mine}) > 1:  # else all are of the one run
            begun = [run for run in mine if records[run].start <= record.start]
            since = max((records[run].start for run in begun), default=None)
            ends = {run: records[run].start + (records[run].run or 0.0) for run in begun}
            mine = [run for run in begun if records[run].start == since and record.start <= ends[run]]
        for run in mine:
            spent = found[run].get((record.step, record.start), 0.0)
            found[run][record.step, record.start] = max(record.cpu or 0.0, spent)
    return [sum(steps.values()) or None for steps in found]

"""Logs that are odd and legal: the same records as text of sacct, as CSV and as JSON.

Each oddity of a job is one small function of `ODDITIES`; how all of a log is written is a `Notation`. What is made here
is legal as Slurm has it, or as tools leave it that rewrite what sacct printed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from time import gmtime, strftime
from typing import Any

EPOCH_S = 1704067200.0
MISSING = (
    "",
    "Unknown",
    "None",
    "N/A",
    "NA",
    "nan",
    "NaN",
    "NaT",
    "null",
    "(null)",
    "Invalid",
    "None assigned",
    "NULL",
)
NO_NAME = ("", "Unknown", "N/A", "(null)")
"""Those of them that nobody is called."""
IDS_OF_OTHER_WIDTHS = (65534, 65535, 65536, 2**31 - 1, 2**31, 2**31 + 7, 2**32 - 2, 2**32 - 1, 67043328)


@dataclass(frozen=True)
class Entry:
    """A job or a step as Slurm has it. Times in seconds (epoch), memory in MiB, CPU time in seconds."""

    number: int
    oddity: str
    submit: float
    start: float | None
    run: float
    cores: int = 4
    nodes: int = 1
    memory: int = 4096
    memory_per: str = ""
    """Of what was asked for: `n` for a node, `c` for a core, else of all of the job."""
    cpu: float = 0.0
    state: str = "COMPLETED"
    user: str | None = "ann"
    name: str = "relax"
    partition: str | None = "batch"
    task: int | str | None = None
    array: int = 0
    offset: int | None = None
    leader: int = 0
    step: str | None = None
    ended: bool = True
    clock_back_s: float = 0.0
    """By how much the clock that showed its end was put back while it ran."""

    @property
    def id(self) -> str:
        """As sacct prints `JobID`."""
        id = str(self.number)
        if self.array:
            id = f"{self.array}_{self.task if isinstance(self.task, int) else f'[{self.task}]'}"
        elif self.offset is not None:
            id = f"{self.leader}+{self.offset}"
        return id if self.step is None else f"{id}.{self.step}"

    @property
    def end(self) -> float | None:
        return (
            None if not self.ended else self.start + self.run if self.start is not None else self.submit + 9
        )


def steps(job: Entry, *cpu_s: float) -> list[Entry]:
    """Steps of a job, which share its time; sacct prints neither user nor partition of them."""
    names = ("batch", "extern", "0", "1", "2")
    one = replace(job, submit=job.start, user=None, partition=None)
    return [replace(one, step=step, name=step, cpu=cpu) for step, cpu in zip(names, cpu_s, strict=False)]


def later(job: Entry, pause_s: float, **changes: Any) -> Entry:
    """Another run under the same id, submitted so long after this one ended."""
    submit = (job.start or job.submit) + job.run + pause_s
    return replace(job, **{"submit": submit, "start": submit + 30, "run": 900.0, **changes})


Oddity = Callable[[Random, Entry], list[Entry]]


def plain(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, cpu=draw.choice((0.0, 600.5)))]


def steps_beside_a_total(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, cpu=1000.25), *steps(job, 400.125, 0.0, 600.125)]


def cpu_time_in_steps_only(draw: Random, job: Entry) -> list[Entry]:
    return [job, *steps(job, 12.5, 0.001, 300.0, 90000.75)]


def no_cpu_time_at_all(draw: Random, job: Entry) -> list[Entry]:
    return [job, *steps(job, 0.0, 0.0)]


def array_of_tasks(draw: Random, job: Entry) -> list[Entry]:
    tasks = [replace(job, number=job.number + k, array=job.number, task=k, cpu=5.0 * k) for k in range(1, 4)]
    waits = replace(job, array=job.number, task="4-9%2", start=None, run=0.0, state="PENDING", ended=False)
    return [each for task in tasks for each in (task, *steps(task, 2.5))] + [waits]


def first_task_is_task_0(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, array=job.number, task=0)]


def heterogeneous(draw: Random, job: Entry) -> list[Entry]:
    parts = [
        replace(job, number=job.number + k, leader=job.number, offset=k, cores=2 + k, nodes=1 + k, cpu=0.0)
        for k in range(draw.choice((2, 3)))
    ]
    return [each for part in parts for each in (part, *steps(part, 7.5, 1.25))]


def requeued(draw: Random, job: Entry) -> list[Entry]:
    first = replace(job, state="NODE_FAIL", cpu=50.0)
    last = later(first, 3.0, state="COMPLETED", cpu=0.0)
    return [first, *steps(first, 50.0), last, *steps(last, 70.0)]


def requeued_twice_at_once(draw: Random, job: Entry) -> list[Entry]:
    first = replace(job, state="PREEMPTED")
    second = later(first, 0.0, state="REQUEUED")
    last = later(second, 0.0, state="TIMEOUT", cpu=11.0)
    return [first, second, last]


def last_run_used_no_cpu(draw: Random, job: Entry) -> list[Entry]:
    first = replace(job, state="REQUEUED")
    last = later(first, 10.0, cpu=0.0)
    return [first, *steps(first, 12600.0), last, *steps(last, 0.0)]


def id_of_another_user(draw: Random, job: Entry) -> list[Entry]:
    return [job, later(job, 90 * 86400.0, user="bob")]


def id_of_another_job(draw: Random, job: Entry) -> list[Entry]:
    return [job, later(job, 90 * 86400.0, name="other")]


def same_id_at_the_same_time(draw: Random, job: Entry) -> list[Entry]:
    """Of two clusters that nobody named."""
    return [job, replace(job, submit=job.submit + 60, start=(job.start or 0.0) + 90, cores=8)]


def submitted_again_before_it_ended(draw: Random, job: Entry) -> list[Entry]:
    first = replace(job, run=3600.0)
    return [first, later(first, 60.0, submit=first.submit + 120)]


def submitted_once_and_run_twice(draw: Random, job: Entry) -> list[Entry]:
    return [job, later(job, 60.0, submit=job.submit)]


def listed_twice(draw: Random, job: Entry) -> list[Entry]:
    return [job, job]


def in_two_months(draw: Random, job: Entry) -> list[Entry]:
    """The logs of both months have it, with its steps."""
    return [job, *steps(job, 80.0, 0.5), job, *steps(job, 80.0, 0.5)]


def running_when_the_month_ended(draw: Random, job: Entry) -> list[Entry]:
    """The first log shows what it had done until then."""
    now = replace(job, run=60.0, ended=False, state="RUNNING")
    return [now, *steps(now, 20.0), job, *steps(job, 200.0)]


def still_running(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, ended=False, state=draw.choice(("RUNNING", "SUSPENDED", "COMPLETING")))]


def still_running_and_its_state_is_missing(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, ended=False, state="")]


def ended_and_its_state_is_missing(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, state="")]


def waiting(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, start=None, run=0.0, ended=False, state="PENDING", cores=0, nodes=0)]


def cancelled_before_it_started(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, start=None, run=0.0, state="CANCELLED by 1000")]


def cancelled(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, state=draw.choice(("CANCELLED by 1000", "CANCELLED+", "CANCELLED")))]


def ran_no_time(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, run=0.0, state="FAILED")]


def clocks_put_back(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, clock_back_s=3600.0, run=1800.0)]


def clocks_put_back_before_a_step(draw: Random, job: Entry) -> list[Entry]:
    night = replace(job, clock_back_s=3600.0, run=7200.0)
    early, late = steps(night, 3.0, 500.0)
    return [night, early, replace(late, start=(job.start or 0.0) - 1800)]


def id_of_another_width(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, number=number) for number in draw.sample(IDS_OF_OTHER_WIDTHS, 4)]


def memory_of_another_width(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, memory=draw.choice((65534, 65535)), memory_per=draw.choice(("", "n", "c")))]


def memory_per_core(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, memory=2000, memory_per="c")]


def memory_per_node(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, memory=64000, memory_per="n", nodes=3)]


def memory_not_recorded(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, memory=0)]


def wide(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, cores=131072, nodes=2048, cpu=1e8 + 0.25, memory=2**21)]


def long(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, run=125 * 86400.0, cpu=3.25e7)]


def user_without_a_name(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, user=None)]


def name_of_many_letters(draw: Random, job: Entry) -> list[Entry]:
    name = draw.choice(
        (
            "größe",
            "a\u2028b",
            "a\x0bb",
            "a\x85b",
            "\x1b[31mred",
            '"quoted" b',
            "it's",
            " a b ",
            "日本語 x",
            "1.0",
        )
    )
    return [replace(job, name=name)]


def name_that_says_none(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, name=draw.choice(MISSING[1:]))]


def name_with_the_delimiter(draw: Random, job: Entry) -> list[Entry]:
    return [
        replace(
            job, name=draw.choice(("a|b", "|", "a|", "wc -l | sort | uniq", "a,b", '"a,b"', "a;b", "a\tb"))
        )
    ]


def name_with_line_breaks(draw: Random, job: Entry) -> list[Entry]:
    return [replace(job, name=draw.choice(("a\nb", "first line\nsecond, line\nthird", "a|b\nc")))]


ODDITIES: dict[str, Oddity] = {
    oddity.__name__: oddity
    for oddity in (
        plain, steps_beside_a_total, cpu_time_in_steps_only, no_cpu_time_at_all, array_of_tasks, first_task_is_task_0,
        heterogeneous, requeued, requeued_twice_at_once, last_run_used_no_cpu, id_of_another_user, id_of_another_job,
        same_id_at_the_same_time, submitted_again_before_it_ended, submitted_once_and_run_twice, listed_twice,
        in_two_months, running_when_the_month_ended, still_running, still_running_and_its_state_is_missing,
        ended_and_its_state_is_missing, waiting, cancelled_before_it_started, cancelled, ran_no_time, clocks_put_back,
        clocks_put_back_before_a_step, id_of_another_width, memory_of_another_width, memory_per_core, memory_per_node,
        memory_not_recorded, wide, long, user_without_a_name, name_of_many_letters, name_that_says_none,
        name_with_the_delimiter, name_with_line_breaks,
    )
}  # fmt: skip


def draw_entries(draw: Random, oddities: list[str]) -> list[Entry]:
    """A job of each of `oddities`, in the order of submission as sacct has it."""
    entries = []
    for k, oddity in enumerate(oddities):
        submit = EPOCH_S + 600.0 * k + draw.randrange(600)
        job = Entry(
            number=1000 + 20 * k,
            oddity=oddity,
            submit=submit,
            start=submit + draw.choice((0, 1, 30, 7200)),
            run=float(draw.choice((1, 59, 600, 86400, 100000))),
            cores=draw.choice((1, 4, 36)),
            memory=draw.choice((1, 1000, 4096, 515317)),
            user=draw.choice(("ann", "bob", "c.d-e_f", "na", "null", "none")),
        )
        entries += ODDITIES[oddity](draw, job)
    return entries


# --- how a log is written -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Notation:
    """How all of a table is written: the choice of a site, or of what rewrote it."""

    columns: tuple[str, ...]
    missing: tuple[str, ...] = ("",)
    delimiter: str = "|"
    number: str = "{}"
    """Of whole numbers: `4`, `4.0` (what pandas leaves where a field was empty), `4e0`; `K`: `2K` for 2048."""
    times: str = "iso"
    unit: str = "M"
    ends_with_delimiter: bool = False
    line_end: str = "\n"
    marked: bool = False
    """Does it begin with a byte-order mark?"""
    headers_at: tuple[int, ...] = ()
    """Before which records the header stands again, as where logs were put together; with a byte-order mark."""
    steps_have_times: bool = True
    draw: Random = field(default_factory=lambda: Random(0))


COLUMNS = {
    "id": ("JobID", "JobIDRaw", "JobID JobIDRaw"),
    "times": ("Submit Start", "Submit Start Eligible"),
    "run": ("Elapsed End", "ElapsedRaw End", "ElapsedRaw", "Elapsed ElapsedRaw End", "Elapsed"),
    "cores": ("AllocCPUS", "NCPUS", "AllocTRES", "AllocCPUS AllocTRES", "ReqCPUS AllocCPUS", "NCPUS ReqTRES"),
    "nodes": ("NNodes", "AllocNodes", "NNodes AllocNodes"),
    "memory": ("ReqMem", "AllocTRES ReqMem", "AllocTRES"),
    "state": ("State", "State", "State ExitCode", ""),
    "who": ("User JobName Partition", "User JobName", "JobName UID Partition", "UID User JobName", "JobName"),
    "cpu": ("TotalCPU", "TotalCPU", "TotalCPU UserCPU", ""),
    "others": ("", "NodeList", "NodeList QOS Account", "SubmitLine", "Suspended MaxRSS"),
}
USUAL = (
    "JobID JobName User Partition State Submit Start End Elapsed NNodes AllocCPUS ReqMem AllocTRES TotalCPU"
    " NodeList"
)


def draw_notation(draw: Random, entries: list[Entry], form: str) -> Notation:
    """A notation in which these entries can be read in one way."""
    names = "".join(entry.name for entry in entries)
    columns = list(dict.fromkeys(" ".join(draw.choice(of) for of in COLUMNS.values()).split()))
    draw.shuffle(columns)
    delimiter = "," if form == "csv" else draw.choice(("|", "|", ";", "\t", "@@", "\x1f"))
    if form == "text" and (delimiter in names or "\n" in names):
        columns = [
            column for column in columns if column != "SubmitLine"
        ]  # else there are two places for the rest
        columns.sort(
            key=lambda column: not column.startswith("JobID")
        )  # a line that begins with text begins nowhere
    if delimiter == ";" and form == "text":
        columns = [column for column in columns if column != "SubmitLine"]
    if "End" not in columns and "State" not in columns:
        columns.append("State")  # else nothing says that a job still runs
    odd = tuple(word for word in MISSING if draw.random() < 0.5) or ("",)
    units = "M" if any(entry.memory < 16 for entry in entries) else draw.choice("MMG")
    return Notation(
        columns=tuple(columns),
        missing=odd if draw.random() < 0.5 else ("",),
        delimiter=delimiter,
        number=draw.choice(("{}", "{}", "{}.0", "{}e0", "K")),
        times=draw.choice(("iso", "iso", "zone", "epoch", "epoch.0", "blank")),
        unit=units,
        ends_with_delimiter=form == "text" and delimiter != "@@" and draw.random() < 0.2,
        line_end=draw.choice(("\n", "\n", "\r\n")),
        marked=draw.random() < 0.1,
        headers_at=tuple(k for k in range(1, len(entries)) if draw.random() < 0.03),
        steps_have_times=draw.random() < 0.8,
        draw=draw,
    )


def cells(entry: Entry, notation: Notation) -> dict[str, str]:
    """What stands in each column."""
    nothing = notation.draw.choice(notation.missing)
    nobody = nothing if nothing in NO_NAME else ""
    is_step = entry.step is not None

    def when(moment: float | None) -> str:
        if moment is None:
            long_ago = "0" if notation.times.startswith("epoch") else "1970-01-01T00:00:00"
            return notation.draw.choice(("0", long_ago, nothing)) if not is_step else nothing
        if notation.times.startswith("epoch"):
            return f"{moment:.0f}{notation.times[5:]}"
        text = strftime("%Y-%m-%dT%H:%M:%S", gmtime(moment + (3600 if notation.times == "zone" else 0)))
        return (
            text + "+01:00"
            if notation.times == "zone"
            else text.replace("T", " ")
            if notation.times == "blank"
            else text
        )

    def whole(number: int) -> str:
        """What ReqNodes and AllocNodes do to thousands, others do to all counts."""
        thousands = notation.number == "K" and number and number % 1024 == 0
        return f"{number // 1024}K" if thousands else notation.number.replace("K", "{}").format(number)

    def clock(seconds: float, thousandths: bool = False) -> str:
        days, rest = divmod(round(seconds * 1000), 86_400_000)
        text = f"{rest // 3_600_000:02d}:{rest // 60_000 % 60:02d}:{rest // 1000 % 60:02d}"
        if thousandths and rest % 1000:  # sacct has hours or thousandths; others print both
            text = (
                f"{text}.{rest % 1000:03d}" if days or rest >= 3_600_000 else f"{text[3:]}.{rest % 1000:03d}"
            )
        return f"{days}-{text}" if days else text

    def memory(mib: float) -> str:
        return f"{mib / 1024:.2f}G" if notation.unit == "G" else f"{mib:.0f}M"

    total = entry.memory * {"": 1, "n": entry.nodes, "c": entry.cores}[entry.memory_per]
    held = f"billing={entry.cores},cpu={entry.cores},mem={memory(total)},node={entry.nodes}"
    asked = f"cpu={max(1, entry.cores)},mem={memory(total)},node={max(1, entry.nodes)}"
    end = entry.end if entry.end is None else entry.end - entry.clock_back_s
    start = entry.start if notation.steps_have_times or not is_step else None
    return {
        "JobID": entry.id,
        "JobIDRaw": str(entry.number) if entry.step is None else f"{entry.number}.{entry.step}",
        "JobName": entry.name,
        "User": entry.user or nobody,
        "UID": "1000" if not is_step else "",
        "Partition": entry.partition or nobody,
        "State": entry.state or nothing,
        "Submit": when(entry.submit),
        "Eligible": when(entry.submit),
        "Start": when(start),
        "End": when(end),
        "Elapsed": clock(entry.run),
        "ElapsedRaw": notation.number.replace("K", "{}").format(int(entry.run)),
        "NNodes": whole(entry.nodes or 1),
        "AllocNodes": whole(entry.nodes),
        "AllocCPUS": whole(entry.cores),
        "NCPUS": whole(entry.cores),
        "ReqCPUS": whole(max(1, entry.cores)),
        "AllocTRES": held
        if entry.cores and entry.memory
        else held.replace(f"mem={memory(total)},", "")
        if entry.cores
        else "",
        "ReqTRES": asked if not is_step else "",
        "ReqMem": (memory(entry.memory) if entry.memory else "0") + entry.memory_per
        if not is_step
        else nothing,
        "TotalCPU": clock(entry.cpu, thousandths=True),
        "UserCPU": clock(entry.cpu / 2),
        "NodeList": "n[1-2,7]" if entry.start else "None assigned",
        "QOS": "normal" if not is_step else "",
        "Account": "physics",
        "SubmitLine": "" if is_step else "sbatch --wrap 'ls'",
        "Suspended": "00:00:00",
        "MaxRSS": "1234.50K" if is_step else "",
        "ExitCode": "0:0",
        "DerivedExitCode": "0:0" if not is_step else "",
    }


def as_table(entries: list[Entry], notation: Notation, form: str) -> bytes:
    """`sacct -P` (form `text`) or CSV (`csv`) of the entries."""
    out = io.StringIO()
    rows: list[list[str]] = [list(notation.columns)]
    for k, entry in enumerate(entries):
        if k in notation.headers_at:
            rows.append(["\ufeff" + notation.columns[0], *notation.columns[1:]])
        cell = cells(entry, notation)
        rows.append([cell[column] for column in notation.columns])
    if form == "csv":
        csv.writer(out, lineterminator=notation.line_end).writerows(rows)
    else:
        last = notation.delimiter if notation.ends_with_delimiter else ""
        out.write("".join(notation.delimiter.join(row) + last + notation.line_end for row in rows))
    return out.getvalue().encode("utf-8-sig" if notation.marked else "utf-8")


LAYOUTS = ("one document", "two documents", "a list", "lines")


def as_json(entries: list[Entry], layout: str, old: bool) -> bytes:
    """`sacct --json` of the entries: `old` as Slurm 22.05 writes numbers, else as the data_parser versions do."""
    jobs: list[dict[str, Any]] = []
    for entry in entries:
        if entry.step is None:
            jobs.append(job_record(entry, old))
        else:
            jobs[-1]["steps"].append(step_record(entry, old))
    half = len(jobs) // 2
    if layout == "lines":
        text = "\n".join(json.dumps(job) for job in jobs)
    elif layout == "a list":
        text = json.dumps(jobs, indent=1)
    else:
        parts = [jobs] if layout == "one document" or not half else [jobs[:half], jobs[half:]]
        text = "\n".join(json.dumps({"meta": {}, "jobs": part, "errors": []}, indent=2) for part in parts)
    return text.encode()


def number_of(value: int | None, old: bool, bits: int = 32) -> Any:
    if old:
        return 2**bits - 2 if value is None else value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def cpu_of(seconds: float) -> dict[str, int]:
    return {"seconds": int(seconds), "microseconds": round(seconds % 1 * 1e6)}


def step_record(entry: Entry, old: bool) -> dict[str, Any]:
    start = int(entry.start or 0)
    return {
        "time": {
            "elapsed": int(entry.run),
            "start": start if old else number_of(start, old),
            "end": int(entry.end or 0) if old else number_of(int(entry.end or 0), old),
            "total": cpu_of(entry.cpu),
        },
        "state": "COMPLETED" if old else ["COMPLETED"],
        "step": {"id": entry.step if old else entry.id, "name": entry.name},
    }


def job_record(entry: Entry, old: bool) -> dict[str, Any]:
    total = entry.memory * {"": 1, "n": entry.nodes, "c": entry.cores}[entry.memory_per]
    held = [("cpu", entry.cores), ("mem", total), ("node", entry.nodes), ("billing", entry.cores)]
    per = {
        name: entry.memory if entry.memory_per == per else None for name, per in (("cpu", "c"), ("node", "n"))
    }
    asked: dict[str, Any] = {f"memory_per_{name}": number_of(mib, old, 64) for name, mib in per.items()}
    if old:
        asked = {"memory": entry.memory + (2**63 if entry.memory_per == "c" else 0)}
    state = entry.state.split(" ")[0].rstrip("+")
    task = entry.task if isinstance(entry.task, int) else None
    return {
        "job_id": entry.number,
        "array": {
            "job_id": entry.array,
            "task_id": number_of(task, old),
            "task": entry.task if isinstance(entry.task, str) else None if old else "",
        },
        "het": {"job_id": entry.leader, "job_offset": number_of(entry.offset, old)},
        "association": {"account": "physics", "cluster": "c", "user": entry.user or ""},
        "user": entry.user or "",
        "name": entry.name,
        "partition": entry.partition or "",
        "allocation_nodes": entry.nodes,
        "nodes": "n[1-2,7]" if entry.start else "None assigned",
        "required": {"CPUs": max(1, entry.cores), **asked},
        "time": {
            "submission": int(entry.submit),
            "start": int(entry.start or 0),
            "end": int(entry.end or 0),
            "elapsed": int(entry.run),
            "limit": number_of(65535, old),
            "total": cpu_of(entry.cpu),
        },
        "state": {"current": state if old else [state] if state else [], "reason": "None"},
        "tres": {
            "allocated": [
                {"type": kind, "name": "", "id": 1, "count": count}
                for kind, count in held
                if entry.cores and count
            ],
            "requested": [],
        },
        "steps": [],
    }

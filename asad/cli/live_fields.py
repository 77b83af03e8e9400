"""Fields of jobs and nodes for `asactl jobs` and `asactl nodes`: those of squeue and sinfo, and asad's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from asad.cli.listing_fields import Field
from asad.cli.screen import duration, gives_to, needs_text, nodes_text
from asad.cli.times import at

Facts = Mapping[str, Any]
PENDING, RUNNING = ("PD", "PENDING"), ("R", "RUNNING")
"""Slurm's states of a job, short and long."""


def number(key: str) -> Callable[[Facts, float], float | None]:
    """A number of a row, None where it is unknown."""

    def value(row: Facts, now_s: float) -> float | None:
        found = row.get(key)
        known = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        return found if known else None

    return value


def text(key: str) -> Callable[[Facts, float], str | None]:
    """A text of a row, None where there is none."""
    return lambda row, now_s: str(row[key]) if row.get(key) not in (None, "") else None


def names(key: str) -> Callable[[Facts, float], list[str] | None]:
    """Names in a row."""
    return lambda row, now_s: [str(name) for name in row.get(key) or []] or None


def waits(job: Facts) -> bool:
    return job.get("state") in ("waiting", "offered")


def why_not(job: Facts) -> str:
    """Why it may not lend or be a guest; of a job that waits only the second matters, of one that runs the first."""
    bar = job.get("guest_bar" if waits(job) else "host_bar")
    if not bar or job.get("state") == "guest":
        return ""
    return f"{'no guest' if waits(job) else 'lends nothing'}: {bar}"


def beside(job: Facts) -> str | None:
    """The host of a guest, or from whom it draws, or to whom a host gives."""
    return job.get("host") or needs_text(job) or gives_to(job) or None


def _state(short: int) -> Callable[[Facts, float], str]:
    return lambda job, now_s: (PENDING if waits(job) else RUNNING)[1 - short]


def _used_s(job: Facts, now_s: float) -> float:
    start_s = number("start_s")(job, now_s)
    return 0.0 if start_s is None else max(0.0, now_s - start_s)


def _limit_s(job: Facts, now_s: float) -> float | None:
    """As extended: of a job that runs from its start to the end of its limit."""
    start_s, end_s = number("start_s")(job, now_s), number("limit_end_s")(job, now_s)
    return number("time_limit_s")(job, now_s) if start_s is None or end_s is None else end_s - start_s


def _age_s(job: Facts, now_s: float) -> float | None:
    since_s = number("start_s")(job, now_s)
    since_s = number("submit_s")(job, now_s) if since_s is None else since_s
    return None if since_s is None else max(0.0, now_s - since_s)


def _left_s(job: Facts, now_s: float) -> float | None:
    limit_s = _limit_s(job, now_s)
    return None if limit_s is None else limit_s - _used_s(job, now_s)


def _reason(job: Facts, now_s: float) -> str | None:
    """Nodes of a job that runs; of one that waits, in brackets, why it is no guest."""
    if not waits(job):
        return nodes_text(job.get("nodes"))
    return f"({job.get('guest_bar') or 'None'})"


def date_text(time_s: float) -> str:
    """As squeue writes a time; a log's own clock in seconds."""
    date = at(time_s)
    return f"{date:%Y-%m-%dT%H:%M:%S}" if date else f"{time_s:.0f}"


def percent(value: float) -> str:
    return f"{value * 100:.0f}%"


def spaced_percent(value: float) -> str:
    return f"{value * 100:.0f} %"


def figure(value: float) -> str:
    return f"{value:.2f}"


def whole(value: float) -> str:
    return f"{value:.0f}"


def thousands(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def share_of(name: str, heading: str, about: str, key: str, column: str) -> Field:
    """A fraction, in per cent."""
    return Field(name, heading, about, number(key), "", percent, column, spaced_percent)


def cores_of(key: str, letter: str, column: str = "cores>*") -> Field:
    return Field("NumCPUs", "CPUS", "Number of its cores.", number(key), letter, whole, column, thousands)


JOB_FIELDS = (
    Field("JobID", "JOBID", "Number of the job.", text("job"), "i", column="job"),
    Field("Name", "NAME", "Its name.", text("name"), "j"),
    Field("UserName", "USER", "Its owner.", text("user"), "u", column="user*"),
    Field("Partition", "PARTITION", "Its partition, or those where it waits.", text("partition"), "P"),
    Field("Role", "ROLE", "waiting, offered, running or guest.", text("state"), column="state*"),
    Field("StateCompact", "ST", "PD or R, as Slurm sees it.", _state(True), "t"),
    Field("State", "STATE", "PENDING or RUNNING, as Slurm sees it.", _state(False), "T"),
    cores_of("cores", "C"),
    Field("NumNodes", "NODES", "Number of its nodes.", number("node_count"), "D", whole),
    Field("Age", "AGE", "Since its start; of one that waits, since it came.", _age_s, "", duration, "for>"),
    Field("TimeUsed", "TIME", "Since its start.", _used_s, "M", duration),
    Field("TimeLimit", "TIME_LIMIT", "Its limit, as it was extended.", _limit_s, "l", duration),
    Field("TimeLeft", "TIME_LEFT", "What is left of the limit.", _left_s, "L", duration),
    Field("NodeList", "NODELIST", "Its nodes, folded.", names("nodes"), "N", nodes_text),
    Field("ReasonList", "NODELIST(REASON)", "Its nodes, or why it is no guest.", _reason, "R"),
    Field("SubmitTime", "SUBMIT_TIME", "When it was submitted.", number("submit_s"), "V", date_text),
    Field("StartTime", "START_TIME", "When it started.", number("start_s"), "S", date_text),
    Field("EndTime", "END_TIME", "When its limit ends.", number("limit_end_s"), "e", date_text),
    share_of("CPUUse", "CPU", "Part of its cores that it uses.", "cpu_fraction", "CPU>"),
    share_of("Pressure", "PRESSURE", "Part of the time in which it waited for CPU.", "pressure", "pressure>"),
    Field(
        "Happiness", "HAPPINESS", "Happiness (ASAx, eq. 1).", number("happiness"), "", figure, "happiness>"
    ),
    Field("Host", "HOST", "The host of a guest that is one of a pair.", text("host")),
    Field("Beside", "BESIDE", "Host, needs or gifts in words.", lambda job, _: beside(job), column="beside"),
    share_of("Share", "SHARE", "Share of its host, or that it lends.", "share", "share>*"),
    share_of("Pace", "PACE", "Its speed as part of that alone.", "pace", ""),
    Field("Extended", "EXTENDED", "By how much its limit was extended.", number("extended_s"), text=duration),
    Field(
        "Why",
        "WHY",
        "Why it lends nothing or is no guest.",
        lambda job, _: why_not(job) or None,
        column="why not?",
    ),
)
NODE_FIELDS = (
    Field(
        "NodeList",
        "NODELIST",
        "Nodes, folded where all else is alike.",
        lambda n, _: [str(n["node"])],
        "N",
        folded=True,
    ),
    Field("NodeHost", "HOSTNAMES", "Its name.", text("node"), "n", column="node"),
    Field("Partition", "PARTITION", "Its partitions.", names("partitions"), "P", ",".join),
    Field("StateLong", "STATE", "As scontrol show node has it: IDLE+DRAIN.", text("state"), "T"),
    Field("CPUs", "CPUS", "Number of its cores.", number("cores"), "c", whole, "cores>*", thousands),
    Field(
        "Memory", "MEMORY", "Its memory, in MiB.", number("memory_bytes"), "m", lambda b: f"{b / 2**20:.0f}"
    ),
    Field("CPUsIdle", "IDLE", "Cores that no job has.", number("idle_cores"), text=whole),
    Field(
        "Actor",
        "ACTOR",
        "Whether its node actor answers.",
        lambda n, _: "answers" if n.get("actor") else "silent",
        column="actor*",
    ),
    Field(
        "Heard",
        "HEARD",
        "Seconds since the actor's last report.",
        number("report_age_s"),
        "",
        whole,
        "heard>",
        lambda age_s: f"{age_s:.0f} s ago",
    ),
    Field("CGroup", "CGROUP", "Version of its cgroups.", number("cgroup"), "", whole, "cgroup>"),
    Field("Jobs", "JOBS", "Jobs that have cores there.", names("jobs"), "", ",".join, "jobs", list),
    Field("Guests", "GUESTS", "Guests there.", names("guests"), "", ",".join, "guests", list),
    share_of("Lent", "LENT", "Part of its cores that is lent.", "lent", "lent>"),
    Field(
        "Why",
        "WHY",
        "Why nothing is lent there.",
        text("bar"),
        column="why not?",
        brief=lambda bar: f"lends nothing: {bar}",
    ),
)

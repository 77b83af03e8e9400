"""What rows of each command that lists some have: one table of fields a command, of which its columns, `--format`,
`--Format`, `--sort`, its help and the documentation are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from asad.cli.listing_fields import Facts, Field, field_options
from asad.cli.live_fields import (
    JOB_FIELDS,
    NODE_FIELDS,
    cores_of,
    date_text,
    number,
    text,
    thousands,
    whole,
)
from asad.cli.screen import duration
from asad.cli.times import at, moment

DEFERRAL_STATES = {
    "future": "waits for its earliest start",
    "held": "held back",
    "let go": "let go by its score",
    "urgent": "let go: its latest start comes",
    "by hand": "left alone: somebody took its deferral back",
    "runs": "runs",
    "missed": "gone, and has missed its latest start",
}


def short(value: float) -> str:
    return f"{value:.4g}"


def amount(value: float) -> str:
    return f"{value:+.6f}"


def signed(seconds: float) -> str:
    return duration(seconds, sign=True)


def mebibytes(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / 2**20:,.1f} MiB".replace(",", " ")


def _below(table: str, field: Callable[[Facts, float], Any]) -> Callable[[Facts, float], Any]:
    """A field of the object under a key."""
    return lambda row, now_s: field(row.get(table) or {}, now_s)


def _until(key: str) -> Callable[[Facts, float], float | None]:
    """Seconds from now to a time, at least none."""
    time_s = number(key)
    return lambda row, now_s: None if (then_s := time_s(row, now_s)) is None else max(0.0, then_s - now_s)


def _first(*keys: str) -> Callable[[Facts, float], float | None]:
    """The first number that is known."""
    return lambda row, now_s: next(
        (found for key in keys if (found := number(key)(row, now_s)) is not None), None
    )


def _count(name: str, key: str, about: str, column: str, letter: str = "") -> Field:
    return Field(name, name.upper(), about, number(key), letter, whole, column, thousands)


def _text(name: str, key: str, about: str, column: str, letter: str = "") -> Field:
    return Field(name, name.upper(), about, text(key), letter, column=column)


def _date(name: str, key: str, about: str, column: str = "", letter: str = "") -> Field:
    return Field(name, name.upper(), about, number(key), letter, date_text, column, _minutes)


def _log(run: Facts, now_s: float) -> str | None:
    path = (run.get("log") or {}).get("path")
    return Path(str(path)).name if path else None


def _minutes(time_s: float) -> str:
    date = at(time_s)
    return f"{date:%Y-%m-%d %H:%M}" if date else moment(time_s)


def _tasks(job: Facts, now_s: float) -> str:
    """Of a job on Mesos, those that run of all."""
    running = sum(1 for task in job.get("tasks") or [] if task.get("exit") is None)
    return f"{running}/{sum(group.get('tasks', 0) for group in (job.get('spec') or {}).get('groups') or [])}"


def _took_s(job: Facts, now_s: float) -> float | None:
    since_s, end_s = _first("start_s", "submit_s")(job, now_s), number("end_s")(job, now_s)
    return None if since_s is None else max(0.0, (now_s if end_s is None else end_s) - since_s)


def _each(table: Facts, now_s: float) -> float | None:
    size, rows = number("bytes")(table, now_s), number("rows")(table, now_s)
    return size / rows if size and rows else None


def _starts_in(statement: Facts, now_s: float) -> float | None:
    start_s = _first("started_s", "start_s")(statement, now_s)
    return None if start_s is None else start_s - now_s


def _spread(key: str, text_of: Callable[[float], str]) -> Callable[[Facts, float], str]:
    """The quantiles 10 %, 50 % and 90 % of a recurring job."""
    return lambda row, now_s: " ".join(text_of(row[key][k]) for k in (0, 2, 4))


JOB = _text("JobID", "job", "Number of the job.", "job", "i")
LISTINGS: Mapping[str, tuple[Field, ...]] = {
    "jobs": JOB_FIELDS,
    "nodes": NODE_FIELDS,
    "admit status": (
        JOB,
        _text("Verdict", "verdict", "admitted, declined or waiting for it.", "verdict"),
        _count("Workers", "workers", "Tasks that it may run in this slot.", "workers>"),
        Field("Next", "NEXT", "Until its next slot.", _until("next_s"), "", duration, "next>"),
        Field(
            "DoneIn", "DONE_IN", "Until it is done by its plan.", _until("end_s"), "", duration, "done in>"
        ),
        Field(
            "Payoff", "PAYOFF", "Utility less what its plan costs.", number("payoff"), "", short, "payoff>"
        ),
        _text("Utility", "utility", "What it is worth, by when it ends.", "utility"),
        _text("Reason", "reason", "Why.", "reason?", "r"),
    ),
    "defer status": (
        JOB,
        cores_of("cores", "C", "cores>"),
        _count("Rank", "rank", "Its place in the order of scores.", "rank>"),
        Field("Score", "SCORE", "By which it is let go.", number("score"), "", short, "score>"),
        Field(
            "Slack",
            "SLACK",
            "Until its latest start.",
            lambda job, now_s: None if (s := number("latest_s")(job, now_s)) is None else s - now_s,
            "",
            duration,
            "slack>",
        ),
        _date("LatestStart", "latest_s", "Its latest start."),
        Field(
            "State",
            "STATE",
            "future, held, let go, urgent, by hand, runs or missed.",
            text("state"),
            "T",
            column="state",
            brief=lambda state: DEFERRAL_STATES.get(state, state),
        ),
        _text("Reason", "reason", "Why.", "why?", "r"),
    ),
    "ledger": (
        _text("Account", "account", "Account of the jobs.", "account", "a"),
        _text("Role", "role", "host or guest.", "role*"),
        _count("Jobs", "jobs", "Jobs that have ended.", "jobs>"),
        Field(
            "CoreHours",
            "CORE_HOURS",
            "Given by hosts, or got by guests.",
            lambda one, _: float(one["lent_core_s"]) / 3600.0,
            "",
            lambda hours: f"{hours:.2f}",
            "core-hours>",
        ),
        Field(
            "Extended",
            "EXTENDED",
            "By how much limits were extended.",
            number("extended_s"),
            "",
            duration,
            "extended by>",
        ),
    ),
    "runs": (
        Field("ID", "ID", "Number of the run.", number("id"), "i", whole, "id>"),
        Field(
            "StartTime",
            "START_TIME",
            "When it started.",
            number("started_at"),
            "S",
            date_text,
            "when>",
            _minutes,
        ),
        _date("EndTime", "ended_at", "When it ended.", "", "e"),
        _text("Kind", "kind", "replay, live or another.", "kind"),
        Field("Log", "LOG", "Name of the log; a live run has none.", _log, column="log"),
        _text("Policy", "policy", "Its policy.", "policy*"),
        _text("State", "state", "running, done, failed or killed.", "state*", "T"),
        _count("Decisions", "decisions", "Decisions that are stored.", "decisions>"),
        Field(
            "Response",
            "RESPONSE",
            "Mean time from submission to end.",
            _below("metrics", number("response_mean_s")),
            "",
            duration,
            "response>",
        ),
        Field(
            "Losers",
            "LOSERS",
            "Jobs that ended later.",
            _below("metrics", number("losers")),
            "",
            whole,
            "losers>",
        ),
        _text("Reason", "failure", "Why it failed or was killed.", "", "r"),
    ),
    "sow infer": (
        _text("UserName", "user", "Whose it is.", "user", "u"),
        _text("Name", "name", "Its name.", "job*", "j"),
        cores_of("cores", "C", "cores>"),
        _text("Gres", "gres", "Its gres.", "gres"),
        _count("Runs", "runs", "So often it came.", "runs>"),
        Field("Period", "PERIOD", "Every so often it comes.", number("period_s"), "", duration, "every>"),
        Field(
            "Arrives",
            "ARRIVES",
            "After its time (10, 50 and 90 %).",
            _spread("offset_quantiles_s", signed),
            column="arrives (10 %, 50 %, 90 %)>",
        ),
        Field(
            "RunsFor", "RUNS_FOR", "How long.", _spread("duration_quantiles_s", duration), column="runs for>"
        ),
        _date("NextDue", "next_due_s", "When it is due next.", "next due>"),
    ),
    "sow ledger": (
        _date("Time", "time_s", "When it was charged.", "time>")._replace(brief=moment),
        _count("Statement", "statement", "Number of the statement.", "statement>*"),
        JOB,
        _text("Account", "account", "Who pays or is paid.", "account*", "a"),
        _text("What", "what", "For what.", "what*"),
        Field("Amount", "AMOUNT", "In the site's unit of value.", number("amount"), "", amount, "amount>"),
    ),
    "sow status": (
        _count("Statement", "statement", "Number of the statement.", "number>"),
        _text("UserName", "owner", "Its owner.", "owner*", "u"),
        _text("Name", "name", "Name of the job.", "job name", "j"),
        JOB._replace(column="job*"),
        _text("State", "state", "planned, running, completed and so on.", "state*", "T"),
        cores_of("cores", "C", "cores>"),
        _date("Due", "due_s", "When the job comes.", "comes>"),
        Field("StartsIn", "STARTS_IN", "From now to its start.", _starts_in, "", signed, "starts>"),
        _date("StartTime", "start_s", "When it starts by its plan.", "", "S"),
        Field(
            "Pays",
            "PAYS",
            "What it has paid, or should pay.",
            _first("paid", "expected_payment"),
            "",
            short,
            "pays>",
        ),
    ),
    "store size": (
        _text("Table", "table", "Name of the table.", "table"),
        _count("Rows", "rows", "Its rows.", "rows>"),
        Field(
            "Bytes", "BYTES", "On the disk, with its indexes.", number("bytes"), "", whole, "size>", mebibytes
        ),
        Field("EachRow", "EACH_ROW", "Bytes a row.", _each, "", whole, "bytes a row>"),
    ),
    "sweep list": (
        _text("Sweep", "sweep", "Name of the sweep.", "sweep"),
        _count("Logs", "logs", "Number of logs.", "logs>"),
        _count("Configurations", "configurations", "Number of configurations.", "configurations>"),
        _count("Seeds", "seeds", "Number of seeds.", "seeds>"),
        _count("Tasks", "tasks", "Number of tasks.", "tasks>"),
        _count("Done", "done", "Tasks that are done.", "done>"),
        _count("Failed", "failed", "Tasks that failed.", "failed>"),
        _date("EndTime", "ended_at", "When the newest ended.", "newest>", "e"),
    ),
    "tasks": (
        JOB,
        Field(
            "Name",
            "NAME",
            "Its name, or what it was made of.",
            lambda job, _: (spec := job.get("spec") or {}).get("name") or spec.get("origin"),
            "j",
            column="name",
        ),
        Field("UserName", "USER", "Its owner.", _below("spec", text("user")), "u", column="user*"),
        _text("State", "state", "queued, running, completed and so on.", "state*", "T"),
        Field("Tasks", "TASKS", "Tasks that run, of all.", _tasks, column="tasks>"),
        Field("TimeUsed", "TIME", "Since its start, or since it came.", _took_s, "M", duration, "for>"),
        _date("SubmitTime", "submit_s", "When it was submitted.", "", "V"),
        _date("StartTime", "start_s", "When it started.", "", "S"),
        _date("EndTime", "end_s", "When it ended.", "", "e"),
        _text("Reason", "why", "Why it waits, or has failed.", "why?", "r"),
    ),
}
"""By the words of the command."""


def listed(command: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of a command's listing, given to it as its parameter `chosen`."""
    return field_options(LISTINGS[command], f"ASACTL_{command.upper().replace(' ', '_')}_FORMAT")

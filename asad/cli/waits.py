"""`asactl waits`: why do jobs wait, and why did those of an accounting log?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from click.core import ParameterSource
from rich.text import Text

from asad.bounded import printable
from asad.cli.listing import Listing
from asad.cli.live import SOCKET
from asad.cli.replay import log_of, machine_for, replay
from asad.cli.screen import JSON, cells, respond, table_of
from asad.cli.state_store import Moment
from asad.cli.waits_live import show_history, show_now
from asad.errors import LogError, UsageError
from asad.model import Json
from asad.report import units

if TYPE_CHECKING:
    from asad.model import JobLog
    from asad.replay.readers import Recorded
    from asad.replay.waits.why_waited import WhyWaited

OF_LOG = frozenset(
    ("nodes", "cores", "memory", "machine", "columns", "delimiter", "log_format", "cluster", "skip_bad")
)
"""Options of `asactl replay` that describe log and machine."""
BY = {
    "partition": ("partition", "partitions"),
    "account": ("account", "accounts"),
    "qos": ("qos", "qos_names"),
    "user": ("user", "users"),
}
"""What waits are summed by → the column of the log, and the names of its codes."""
MOST_ROWS = 20
STARTED = {
    "SchedSubmit": "at submission",
    "SchedMain": "by the main scheduler",
    "SchedBackfill": "by backfill",
}
"""Slurm's flags in words."""


OF_LIMITS = ("limit_files", "no_infer")
OF_DAEMON = ("socket_path", "since", "store_url")


@click.command(
    short_help="Why jobs wait, and why those of an accounting log waited.",
    params=[parameter for parameter in replay.params if parameter.name in OF_LOG],
)
@click.argument("log", type=click.Path(dir_okay=False, allow_dash=True), required=False)
@click.option(
    "--by",
    default="partition",
    show_default=True,
    metavar="NAME,…",
    help="Sum waits by partition, account, qos or user, or several of these.",
)
@click.option(
    "--limits",
    "limit_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What sacctmgr -P show assoc tree and sacctmgr -P show qos print, in one file or several; then no limit is "
    "inferred.",
)
@click.option("--no-infer", is_flag=True, help="Infer no limits from what was held at one time.")
@click.option(
    "--since",
    type=Moment(),
    help="Without LOG: hours of waiting from then on, as the daemon has kept them: a date, seconds of the epoch, or an "
    "age (7d).",
)
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="With --since: state store of the daemon [default: as asad.toml says].",
)
@SOCKET
@JSON
def waits(
    log: str | None,
    by: str,
    limit_files: tuple[Path, ...],
    no_infer: bool,
    since: float | None,
    store_url: str | None,
    socket_path: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Without LOG ask the daemon why jobs wait now, by the reasons that the cluster itself gives, in five words: limit,
    no room, order, not eligible, other. With --since, for how many hours they did.

    Of LOG, the accounting log of a cluster, split the waits by what the log shows of their reasons. The first of these
    holds at each moment of a wait: a limit of the job's user, account or QOS; no room, for lack of
    cores, of enough of them on so many nodes, of memory or of gres; order, where there was room and others of the
    partition waited too (priority, reservations, the scheduler's depth); or nothing that the log shows. Lending CPU
    can only shorten what waits for room and for its turn.

    \b
    Examples:
      asactl waits --by account,user
      asactl waits --since 7d
      asactl waits log.txt --machine /etc/slurm/slurm.conf
      asactl waits log.txt --by account,user --json
    """
    columns = [name.strip().lower() for name in by.split(",") if name.strip()]
    if wrong := [name for name in columns if name not in BY]:
        raise UsageError(f"--by {wrong[0]}: choose from {', '.join(BY)}")
    if log is None:
        _refuse((*OF_LOG, *OF_LIMITS), "describes a log: name LOG as well, or leave it out")
        if since is None:
            _refuse(("store_url",), "is read with --since alone: give that as well, or leave it out")
            show_now(socket_path, columns, as_json)
        else:
            show_history(store_url, since, columns, as_json)
        return
    _refuse(OF_DAEMON, "asks the daemon: leave out LOG, or this option")
    from asad.replay.limits.limit_table import limit_table
    from asad.replay.limits.sacctmgr_output import read_limits
    from asad.replay.waits.slurms_word import last_reasons, started_by
    from asad.replay.waits.why_waited import why_jobs_waited

    recorded = log_of(
        log, given["columns"], given["delimiter"], given["log_format"], given["cluster"], given["skip_bad"]
    )
    never = recorded.counts.get("never started", 0)
    recorded, unknown = _with_start(recorded)
    jobs = recorded.jobs
    machine = machine_for(recorded, given["nodes"], given["cores"], given["memory"], given["machine"])
    known = given["memory"] is not None or bool(given["machine"])
    table = limit_table(read_limits(limit_files, given["cluster"]), jobs) if limit_files else None
    found = why_jobs_waited(
        recorded, machine, known and machine.memory_counts, infer=not no_infer, limits=table
    )
    document: dict[str, Json] = {
        "log": {
            "path": recorded.path,
            "jobs": len(jobs),
            "never_started": never,
            "start_unknown": unknown,
            "notes": list[Json]([*recorded.notes, *found.notes]),
        },
        "machine": machine.to_json(),
        **found.to_json(jobs.cores),
        "last_reasons": last_reasons(jobs, found.wait_s),
        "started_by": started_by(jobs, found.wait_s),
        "by": {name: rows_by(found, jobs, name) for name in columns},
    }
    respond(as_json, document, lambda: _shown(document), indent=1)


def _refuse(names: Iterable[str], why: str) -> None:
    """Raises UsageError for the first of these options that was given on the command line."""
    context, typed = click.get_current_context(), ParameterSource.COMMANDLINE
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is typed:
            raise UsageError(f"{parameter.opts[-1]} {why}")


def _with_start(recorded: Recorded) -> tuple[Recorded, int]:
    """The log without the jobs that ran at a time which it does not say, and how many they are. Raises LogError if
    none is left."""
    known = np.flatnonzero(~np.isnan(recorded.jobs.start_s))
    unknown = len(recorded.jobs) - len(known)
    if not len(known):
        problem = "no job of this log says when it started"
        raise LogError(
            recorded.path, None, None, problem, "write the log again with the time at which jobs started"
        )
    return (replace(recorded, jobs=recorded.jobs.take(known)) if unknown else recorded), unknown


def rows_by(found: WhyWaited, jobs: JobLog, name: str) -> list[Json]:
    """A row for each partition, account, QOS or user, those whose jobs waited longest first."""
    column, names_of = BY[name]
    code, names = getattr(jobs, column), getattr(jobs, names_of)
    if code is None:
        return []
    rows: list[tuple[float, Json]] = []
    for one in np.unique(code).tolist():
        here = code == one
        seconds = found.seconds(here)
        total = sum(seconds.values())
        row: Json = {
            "name": names[one] if 0 <= one < len(names) else "-",
            "jobs": int(here.sum()),
            "wait_mean_s": float(found.wait_s[here].mean()),
            "wait_h": total / 3600.0,
            "core_h": float((found.wait_s * jobs.cores)[here].sum()) / 3600.0,
            "reasons": {reason: value / 3600.0 for reason, value in seconds.items()},
        }
        rows.append((-total, row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _shown(document: dict[str, Any]) -> Iterator[str | Listing]:
    """The answer for a reader: a sentence, the reasons, the limits, and who waited."""
    from asad.report.wait_reasons import MEANING, sentence

    yield sentence(document["log"]["jobs"], document)
    yield ""
    table = table_of("reason", "hours>", "core-hours>", "share>", "which means")
    for row in document["reasons"]:
        if row["wait_h"] > 0:
            shown = (units.number(row["wait_h"]), units.number(row["core_h"]), units.percent(row["share"]))
            table.add_row(*_cells(row["reason"], *shown, MEANING[row["reason"]]))
    yield table
    if document["not_eligible_h"] > 0:
        hours = units.number(document["not_eligible_h"])
        yield f"Besides, jobs were not eligible for {hours} hours: begin times, dependencies, holds."
    yield from _left_out(document["log"])
    if document["limits"]:
        yield ""
        limits = table_of("limit", "jobs>", "hours>")
        for row in document["limits"][:MOST_ROWS]:
            sure = ["inferred"] if row["inferred"] else []
            if row["confirmed_by"]:
                sure.append(f"confirmed by Slurm's reason of {units.plural(row['confirmed_by'], 'job')}")
            how = f"{row['limit']} ({', '.join(sure)})" if sure else row["limit"]
            limits.add_row(*_cells(how, units.number(row["jobs"]), units.number(row["wait_h"])))
        yield limits
    yield from _slurms_word(document)
    for name, rows in document["by"].items():
        yield ""
        if not rows:
            yield f"The log does not record {name}: write it again with that column."
            continue
        reasons = [row["reason"] for row in document["reasons"] if row["wait_h"] > 0]
        table = table_of(name, "jobs>", "mean wait>", "hours>", *(f"{reason}>" for reason in reasons))
        for row in rows[:MOST_ROWS]:
            parts = [row["reasons"][reason] / row["wait_h"] if row["wait_h"] else 0.0 for reason in reasons]
            shown = (
                units.number(row["jobs"]),
                units.duration(row["wait_mean_s"]),
                units.number(row["wait_h"]),
            )
            table.add_row(*_cells(row["name"], *shown, *map(units.percent, parts)))
        if len(rows) > MOST_ROWS:
            table.notes.append(next(_cells(f"and {len(rows) - MOST_ROWS} more; --json has all")))
        yield table
    for note in document["log"]["notes"]:
        yield printable(f"Noted: {note}.")


def _slurms_word(document: dict[str, Any]) -> Iterator[str | Listing]:
    """What Slurm itself says: the last reason of each job, which has no time, and who started it."""
    if reasons := document["last_reasons"]:
        yield ""
        table = table_of("last reason", "jobs>", "their wait in hours>")
        for row in reasons[:MOST_ROWS]:
            table.add_row(*_cells(row["reason"], units.number(row["jobs"]), units.number(row["wait_h"])))
        if len(reasons) > MOST_ROWS:
            table.notes.append(next(_cells(f"and {len(reasons) - MOST_ROWS} more; --json has all")))
        yield table
        yield (
            "Slurm keeps the last reason that is neither priority nor resources, without its time: it need not be "
            "that of the whole wait."
        )
    if flags := document["started_by"]:
        shares = [f"{units.percent(row['share'])} {STARTED[row['flag']]}" for row in flags]
        yield ""
        yield f"Started, by Slurm's flags: {', '.join(shares)}."


def _left_out(log: dict[str, Any]) -> Iterator[str]:
    """Whose waits are in no figure."""
    for key, one, many in (
        (
            "never_started",
            "job never started: it was cancelled while it waited, or it waits still. Its wait is in no figure",
            "jobs never started: they were cancelled while they waited, or wait still. Their waits are in no figure",
        ),
        (
            "start_unknown",
            "job ran and has no start in the log: it is in no figure, and holds no node",
            "jobs ran and have no start in the log: they are in no figure, and hold no nodes",
        ),
    ):
        if count := log[key]:
            yield f"{units.number(count)} {one if count == 1 else many}."


def _cells(*texts: str) -> Iterator[Text]:
    """Cells whose figures have plain blanks in them: what is cleaned of users' texts would show any others."""
    return cells(*(text.replace(units.THIN, " ").replace(units.SPACE, " ") for text in texts))

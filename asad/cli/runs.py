"""`asactl runs`: what the state store holds. `asactl explain JOB`: the story of one job."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asad.config import DEFAULT_PATH
from asad.decisions import (
    Admit,
    CoAllocate,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.errors import ConfigError, UsageError
from asad.status import FREE
from asad.store.process import ProcessMark
from asad.store.records import NODE_NAMES, DecisionRecord, JobEnd, RunRecord
from asad.store.store import Store
from asad.store.urls import shown_text

EPOCH_FROM_S = 631_152_000.0
"""Times from here on (1990) are UTC epochs; logs whose clock starts at 0 stay below for twenty years."""

ADMISSION = {
    Admit.kind: "admitted: it is tried before those that are not",
    Decline.kind: "not admitted: it stays in the cluster's own queue",
    Defer.kind: "deferred until {until}",
    Start.kind: "no longer deferred",
    SetThrottle.kind: "at most {tasks} tasks of its array at one time",
    Evict.kind: "evicted, as its owner agreed ({how})",
    Withdraw.kind: "its offer is withdrawn",
}
"""Decisions that are one sentence about a job."""

STORE = click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="Path, sqlite:///path or postgresql://… of the state store [default: $XDG_STATE_HOME/asad/asad.db].",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
NARROW = 100
"""On a terminal of fewer columns the log would have no place beside all else that is told of a run."""
YES = click.option("--yes", is_flag=True, help="Do not ask.")


# ------------------------------------------------------------------------------------------------------- runs


@click.group(invoke_without_command=True)
@STORE
@JSON
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most so many, newest first.",
)
@click.pass_context
def runs(context: click.Context, store_url: str | None, as_json: bool, limit: int) -> None:
    """List the stored runs, or remove some (`rm`, `prune`).

    `killed` is a run whose process went away; what it had decided up to its last checkpoint can be read.
    """
    context.obj = (store_url, as_json)
    if context.invoked_subcommand is not None:
        return
    with Store.open(store_url, create=False) as store:
        records = store.runs(limit)
        place = str(store)
    if as_json:
        click.echo(json.dumps([record.to_json() for record in records], indent=2))
    elif records:
        _print_table(records)
    else:
        click.echo(f"{printable(place)} holds no runs yet; `asactl replay LOG` makes some")


@runs.command("rm", short_help="Remove runs.")
@click.argument("run_ids", metavar="ID...", type=int, nargs=-1, required=True)
@STORE
@YES
@click.option("--force", is_flag=True, help="Remove runs that are still being recorded, too.")
@JSON
@click.pass_obj
def remove(
    of_group: tuple[str | None, bool],
    run_ids: Sequence[int],
    store_url: str | None,
    yes: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove the runs ID… with all that they decided."""
    with Store.open(store_url or of_group[0], create=False) as store:
        records = [store.run(run_id) for run_id in dict.fromkeys(run_ids)]
        _remove(store, records, yes, force, as_json or of_group[1])


@runs.command(short_help="Keep the newest runs only.")
@click.option("--keep", type=click.IntRange(min=0), required=True, help="How many of the newest runs stay.")
@STORE
@YES
@JSON
@click.pass_obj
def prune(
    of_group: tuple[str | None, bool], keep: int, store_url: str | None, yes: bool, as_json: bool
) -> None:
    """Remove all but the newest runs; those that are still being recorded stay."""
    with Store.open(store_url or of_group[0], create=False) as store:
        old = [record for record in store.runs()[keep:] if record.state != "running"]
        _remove(store, old, yes, force=False, as_json=as_json or of_group[1])


def _remove(store: Store, records: Sequence[RunRecord], yes: bool, force: bool, as_json: bool) -> None:
    if not records and not as_json:
        click.echo("nothing to remove")
        return
    numbers = ", ".join(str(record.id) for record in records)
    decisions = sum(record.decisions for record in records)
    what = f"{_count(len(records), 'run')} ({numbers}) with {_count(decisions, 'decision')}"
    if records and not yes:
        click.confirm(f"Remove {what} from {printable(str(store))}?", abort=True, err=as_json)
    removed = [record.id for record in records]
    store.remove_runs(removed, force=force)
    click.echo(json.dumps({"removed": removed, "decisions": decisions}) if as_json else f"removed {what}")


def _print_table(records: Sequence[RunRecord]) -> None:
    # what a pipe reads is not cut to a width that nobody looks at
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200, highlight=False)
    narrow = console.width < NARROW
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "id>",
        "when (UTC)",
        "kind",
        "log",
        "policy",
        "state",
        "decisions>",
        "response>",
        "losers>",
    ):
        if heading == "kind" and narrow:  # a live one has no log
            continue
        right = heading.endswith(">")
        table.add_column(
            heading.rstrip(">"),
            justify="right" if right else "left",
            no_wrap=heading != "log",
            overflow="fold" if heading == "log" else "ellipsis",
        )
    for record in records:
        response, losers = record.metrics.get("response_mean_s"), record.metrics.get("losers")
        when = datetime.fromtimestamp(record.started_at, UTC)
        cells = (
            str(record.id),
            f"{when:%Y-%m-%d}" if narrow else f"{when:%Y-%m-%d %H:%M}",
            *(() if narrow else (record.kind,)),
            _log_name(record),
            record.policy,
            record.state,
            f"{record.decisions:,}".replace(",", " "),
            duration(response) if isinstance(response, int | float) else "-",
            str(losers) if isinstance(losers, int) else "-",
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))  # Text: names are no markup
    console.print(table)
    for record in records:
        if record.failure:
            click.echo(f"run {record.id} {record.state}: {printable(record.failure)}")


# ---------------------------------------------------------------------------------------------------- explain


@click.command(short_help="Tell the story of a job.")
@click.argument("job")
@click.option(
    "--run", "run_id", type=int, metavar="ID", help="Run to look in [default: the newest finished]."
)
@STORE
@click.option(
    "--socket", "socket_path", metavar="PATH", envvar="ASAD_SOCKET", help="The daemon's control socket."
)
@JSON
@click.option("-v", "--verbose", is_flag=True, help="Show the numbers behind every decision.")
def explain(
    job: str,
    run_id: int | None,
    store_url: str | None,
    socket_path: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Describe how JOB is now, and its story: as host, as guest, what was vetoed or refused, why, and how it ended.

    A daemon that runs and knows the job is asked first; --run or --store look at what is stored instead, which is
    also done of a job that the daemon does not know. Of a job on Mesos it is also the story of its gang: launched
    where, lost, queued again, what it waits for.
    """
    if run_id is None and store_url is None:
        answer = ask_about(job, "explain", socket_path)
        if answer is not None:
            told = [json.dumps(answer, indent=2)] if as_json else live_lines(job, answer, verbose)
            for line in told:
                click.echo(line)
            return
    with Store.open(store_url, create=False) as store:
        touched = store.runs_of(job)
        record = _choose(store, job, touched, run_id)
        story = sorted(store.decisions(record.id, job), key=lambda decision: (decision.time_s, decision.seq))
        ends = list(store.job_ends(record.id, job))
    others = [other for other in touched if other.id != record.id]
    if as_json:
        plain = {
            "job": job,
            "run": record.to_json(),
            "others": [{"id": other.id, "policy": other.policy, "state": other.state} for other in others],
            "decisions": [decision.to_json() for decision in story],
            "ends": [end.to_json() for end in ends],
        }
        click.echo(json.dumps(plain, indent=2))
        return
    for line in story_lines(job, record, others, story, ends, verbose):
        click.echo(line)


def ask_about(job: str, verb: str, socket_path: str | None) -> Mapping[str, Any] | None:
    """What the daemon answers to `verb` of a job; None if there is no daemon, or it does not know the job."""
    from asad.api.control import DaemonDown, Refused, ask
    from asad.cli.live import control_socket, daemon_store  # which words its screens as we do

    try:
        answer = ask(control_socket(socket_path), verb, job=job)
    except DaemonDown as down:
        if socket_path is not None:
            raise
        if "ASAD_CONFIG" in os.environ or DEFAULT_PATH.exists():  # there should be one
            with contextlib.suppress(ConfigError):
                theirs = shown_text(daemon_store())
                told = f"asactl: {down}. Told from your own store; --store {theirs} is the daemon's"
                click.echo(printable(told), err=True)
        return None
    except Refused as refusal:
        if refusal.exit_status != UsageError.exit_status:
            raise
        # a job of the same number in a log that was replayed is another one
        click.echo(
            printable(f"asactl: the daemon: {refusal}. Told from your own store, if it is there"), err=True
        )
        return None
    return answer if isinstance(answer, Mapping) else None


def live_lines(job: str, answer: Mapping[str, Any], verbose: bool) -> Iterator[str]:
    """The daemon's answer as lines that are safe to print: how the job is now, then its story."""
    now = answer.get("live")
    if isinstance(now, Mapping):
        yield printable(f"job {job} now: {_now(now)}")
        for key, what in (("host_bar", "lends nothing"), ("guest_bar", "is no guest")):
            if now.get(key):
                yield printable(f"  {what}: {now[key]}")
    deferral = answer.get("deferral")
    if isinstance(deferral, Mapping):
        from asad.cli.deferral import told_lines  # which words its screens as we do

        yield from (printable(line) for line in told_lines(deferral))
    gang = answer.get("gang")
    if isinstance(gang, Mapping):
        yield from (printable(line) for line in _gang_lines(gang))
    if not isinstance(answer.get("run"), Mapping):
        yield f"job {printable(job)}: no decision names it so far"
        return
    record = _run_of(answer["run"])
    others = [replace(record, id=other["id"], policy=other["policy"]) for other in answer.get("others", [])]
    story = [
        DecisionRecord(run_id=record.id, job_row=-1, host_row=None, **plain)
        for plain in answer.get("decisions", [])
    ]
    ends = [JobEnd(**plain) for plain in answer.get("ends", [])]
    yield from story_lines(job, record, others, story, ends, verbose)
    if verbose:
        for change in answer.get("quotas", []):
            yield printable(
                f"{moment(change['time_s'])}  {change.get('node', '-')}: {change['file']} "
                f"{change.get('old')} → {change.get('new')} ({change.get('why')})"
            )


def _gang_lines(gang: Mapping[str, Any]) -> Iterator[str]:
    """What became of a job on Mesos, and what it waits for; not yet safe to print."""
    lost = int(gang.get("retries") or 0)
    again = f", after {_count(lost, 'attempt')} that {'was' if lost == 1 else 'were'} lost" if lost else ""
    tasks = gang.get("tasks") or {}
    on = f": {_count(tasks['running'], 'task')} on {gang['nodes']}" if gang.get("nodes") else ""
    yield f"on Mesos {gang.get('job')} is {gang.get('state')}{again}{on}"
    if gang.get("waits"):
        yield f"  {_count(tasks.get('waiting', 0), 'task')} to be launched: {gang['waits']}"
    for time_s, sentence in gang.get("story") or []:
        yield f"  {moment(time_s)}  {sentence}"


def _run_of(plain: Mapping[str, Any]) -> RunRecord:
    columns = {column.name for column in fields(RunRecord)} - {"process"}
    mark = ProcessMark(str(plain["host"]), boot_id="", pid_namespace="", pid=int(plain["pid"]), pid_started=0)
    return RunRecord(**{key: plain[key] for key in columns}, process=mark)


def _now(job: Mapping[str, Any]) -> str:
    """How a job is, in one line."""
    cores = "1 core" if job.get("cores") == 1 else f"{job.get('cores', '-')} cores"
    words = [f"{job.get('state', '-')} of {job.get('user', '-')}, {cores}"]
    needs = job.get("needs")
    if isinstance(needs, Mapping) and needs:
        words.append(f"needs {cores_on(needs, sources_of(job))}")
    if job.get("host"):
        words.append(f"beside {job['host']}")
    of_share = "may take {:.0%} of it" if job.get("host") else "lends {:.0%} of itself"
    for key, what in (("share", of_share), ("cpu_fraction", "uses {:.0%} of its CPU")):
        if isinstance(job.get(key), int | float):
            words.append(what.format(job[key]))
    if gives := gives_to(job):
        words.append(gives)
    if isinstance(job.get("happiness"), int | float):
        words.append(f"happiness {job['happiness']:.2f}")
    if isinstance(job.get("estimated_start_s"), int | float) and job.get("start_s") is None:
        words.append(f"its own turn is estimated for {moment(job['estimated_start_s'])}")
    return ", ".join(words)


def sources_of(job: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """By node, who gives a guest what it needs there; as far as the daemon's answer makes sense."""
    given = job.get("from")
    return {
        str(node): _amounts(parts) for node, parts in (given.items() if isinstance(given, Mapping) else ())
    }


def gives_to(job: Mapping[str, Any]) -> str:
    """`gives 1.9 cores to 41400 and 1 to 41401`; nothing of a job that gives nothing."""
    amounts = _amounts(job.get("gives"))
    if not amounts:
        return ""
    first, *rest = sorted(amounts.items(), key=lambda part: -part[1])
    parts = [f"{first[1]:.2g} {'core' if f'{first[1]:.2g}' == '1' else 'cores'} to {first[0]}"]
    parts += [f"{cores:.2g} to {guest}" for guest, cores in rest[:2]]
    parts += [f"{sum(cores for _, cores in rest[2:]):.2g} to {len(rest) - 2} more"] if len(rest) > 2 else []
    return "gives " + (" and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0])


def _amounts(plain: object) -> dict[str, float]:
    """Numbers by name."""
    if not isinstance(plain, Mapping):
        return {}
    return {str(name): cores for name, cores in plain.items() if isinstance(cores, int | float)}


def _choose(store: Store, job: str, touched: Sequence[RunRecord], run_id: int | None) -> RunRecord:
    """The run to tell of: the one asked for, or the newest that was finished, or the newest."""
    if run_id is not None:
        record = store.run(run_id)
        if any(other.id == run_id for other in touched):
            return record
        where = f"run {run_id}"
        elsewhere = ", ".join(str(other.id) for other in touched)
        hint = f"it is in run {elsewhere}" if elsewhere else _near(job, store.jobs_touched(run_id))
    else:
        if touched:
            return next((record for record in touched if record.state == "done"), touched[0])
        stored = store.runs(limit=5)
        where = f"any run of {store}"
        hint = _near(job, [name for record in stored for name in store.jobs_touched(record.id)])
    raise UsageError(
        printable(f"job {job}: lending did not touch it in {where}, or there is no such job; {hint}")
    )


def _near(job: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(job, dict.fromkeys(names), n=5)
    return f"near: {', '.join(near)}" if near else "`asactl runs` lists what is stored"


def story_lines(
    job: str,
    record: RunRecord,
    others: Sequence[RunRecord],
    story: Sequence[DecisionRecord],
    ends: Sequence[JobEnd],
    verbose: bool,
) -> Iterator[str]:
    """The story of a job as lines that are safe to print; `story` in order of time."""
    started = f"{datetime.fromtimestamp(record.started_at, UTC):%Y-%m-%d %H:%M} UTC"
    log = f" of {_log_name(record)}" if record.log.get("path") else ""  # a live run has none
    yield printable(
        f"job {job} in run {record.id}: {record.kind}{log} under {record.policy}, {started}, {record.state}"
    )
    if record.state != "done" and record.checkpoint_s is not None:
        yield f"  the run is stored up to {moment(record.checkpoint_s)}{' of the log' if log else ''}"
    if others:
        names = ", ".join(f"{other.id} ({other.policy})" for other in others)
        yield printable(f"  also in run {names}: say --run ID")
    submit_s = next((end.submit_s for end in ends if end.submit_s is not None), None)
    if submit_s is not None:
        yield f"  submitted {moment(submit_s)}; times count from there"
    elif story:
        submit_s = story[0].time_s
        yield f"  times count from its first decision, {moment(submit_s)}"
    yield ""
    for decision in story:
        since = decision.time_s - submit_s if submit_s is not None else decision.time_s
        yield printable(
            f"{duration(since, sign=True):>12}  {moment(decision.time_s)}  {_deed(job, decision)}"
        )
        if decision.reason:
            yield printable(f"{'':14}because {decision.reason}")
        if decision.outcome != "done":
            yield printable(f"{'':14}but {_verdict(decision)}")
        if verbose:
            yield from (printable(f"{'':16}{line}") for line in detail_lines(decision.more | decision.detail))
    if not story:
        yield "no decision names it"
    yield from (printable(line) for end in ends for line in _end_lines(end))


def _deed(job: str, decision: DecisionRecord) -> str:
    """What was decided, seen from `job`, and what became of it."""
    share = "an unknown share" if decision.share is None else f"{decision.share * 100:.3g} %"
    of_host = f" of {decision.host}'s CPU" if decision.host is not None else " of its host's CPU"
    if decision.kind == CoAllocate.kind:
        if decision.more.get("demands"):
            deed = f"guest: needs {_on_nodes(decision, 'demands')}"
        elif decision.job == job:
            deed = f"guest: starts beside {decision.host}, with up to {share} of its CPU"
        else:
            deed = f"host: lends up to {share} of its CPU to {decision.job}, which starts beside it"
    elif decision.kind == SetQuota.kind:
        deed = f"guest: may use up to {_on_nodes(decision, 'cores')}"
    elif decision.kind == SetShare.kind:
        if decision.host == decision.job:
            deed = f"host: lends up to {share} of its CPU to the guests of its nodes"
        elif decision.job == job:
            deed = f"guest: may take up to {share}{of_host}"
        else:
            deed = f"host: lends up to {share} of its CPU to {decision.job}"
    elif decision.kind == SetMemory.kind:
        high_bytes = decision.more.get("high_bytes") or 0.0
        mib = f"{float(high_bytes) / 2**20:.0f} MiB"
        deed = (
            f"its memory above {mib} on a node is reclaimed" if high_bytes else "its memory limit is lifted"
        )
    elif decision.kind == ExtendLimit.kind and decision.seconds is not None:
        deed = f"time limit extended by {duration(decision.seconds)}"
    else:
        deed = ADMISSION.get(decision.kind, decision.kind).format(
            until=moment(decision.more.get("until_s") or 0.0),
            tasks=decision.more.get("tasks"),
            how=decision.more.get("how"),
        )
    return deed if decision.outcome == "done" else f"not done: {deed}"


def _on_nodes(decision: DecisionRecord, key: str) -> str:
    """`4.2 cores of node07 and 2 of node08`: how much CPU on which nodes, from lists that were stored."""
    more = decision.more
    nodes, amounts = more.get("nodes"), more.get(key)
    names = more.get(NODE_NAMES)
    if not isinstance(nodes, list) or not isinstance(amounts, list) or len(nodes) != len(amounts):
        return "an unknown amount"
    if not isinstance(names, list) or len(names) != len(nodes):
        names = [f"node {node}" for node in nodes]  # stored by its number alone
    return cores_on({str(name): float(amount) for name, amount in zip(names, amounts, strict=True)})


def cores_on(amounts: Mapping[str, float], sources: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """Cores' worth of CPU by node, in words, with who gives them; of many nodes, and of many who give, the first
    three."""
    amount = [(f"{cores:.3g}", node + _from((sources or {}).get(node))) for node, cores in amounts.items()]
    parts = [f"{cores} of {node}" for cores, node in amount]
    cores, node = amount[0]
    parts[0] = f"{cores} {'core' if cores == '1' else 'cores'} of {node}"
    if len(parts) > 4:
        parts = [*parts[:3], f"{sum(amounts.values()):.3g} in all on {len(parts)} nodes"]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _from(parts: object) -> str:
    """Who gives cores of one node: ` (1.9 from 41344, 1 free)`; nothing if that is not known."""
    if not isinstance(parts, Mapping) or not parts:
        return ""
    found = sorted(parts.items(), key=lambda part: (part[0] == FREE, -part[1]))
    words = [f"{cores:.2g} {'free' if who == FREE else f'from {who}'}" for who, cores in found]
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return f" ({', '.join(words[:3])}{more})"


def _verdict(decision: DecisionRecord) -> str:
    """Who did not let it happen, and why; the guard's reasons say themselves that they are vetoes."""
    if decision.outcome_reason.startswith(decision.outcome):
        return decision.outcome_reason
    return f"{decision.outcome}: {decision.outcome_reason or 'no reason given'}"


def _end_lines(end: JobEnd) -> Iterator[str]:
    if end.end_s is None:
        yield f"has not ended (as {end.role})"
        return
    line = f"ended {moment(end.end_s)} (as {end.role})"
    if end.submit_s is not None:
        line += f", {duration(end.end_s - end.submit_s)} after it was submitted"
    yield line
    if end.baseline_end_s is None:
        yield "  how it would have ended without lending is not known"
        return
    later_s = end.end_s - end.baseline_end_s
    if later_s == 0:
        verdict = "as it would have without lending"
    else:
        verdict = f"{duration(abs(later_s))} {'later' if later_s > 0 else 'earlier'} than without lending"
    yield f"  {verdict} ({moment(end.baseline_end_s)})" + (": a loser" if end.loser else "")


def detail_lines(detail: Mapping[str, Any]) -> Iterator[str]:
    """The numbers behind a decision, a line each; inner dicts indented. Not yet safe to print."""
    width = max((len(key) for key in detail), default=0)
    for key, value in detail.items():
        if isinstance(value, Mapping):
            yield key
            yield from (f"  {line}" for line in detail_lines(value))
        else:
            yield f"{key:<{width}}  {_number(value)}"


def _number(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.0f}"
    if isinstance(value, list):
        return " ".join(_number(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_number(item)}" for key, item in value.items())
    return "-" if value is None else str(value)


# --------------------------------------------------------------------------------------------------- wordings


def printable(text: str) -> str:
    """`text` with all that could steer a terminal spelt out (controls, direction marks, lone surrogates)."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def duration(seconds: float, *, sign: bool = False) -> str:
    """Slurm's way of writing a time: `1-02:03:04`, or `2:03:04` within a day; rounded to seconds."""
    if not math.isfinite(seconds):
        return "unknown"
    whole = round(abs(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    if days:
        clock = f"{days}-{clock:0>8}"
    if seconds < 0 and whole:
        return f"-{clock}"
    return f"+{clock}" if sign else clock


def moment(time_s: float) -> str:
    """A time of the log: the date where its clock is the UTC epoch, else the log's own seconds."""
    if EPOCH_FROM_S <= time_s < 253_402_300_800:  # datetime ends with the year 9999
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return f"t={time_s:.0f} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _log_name(record: RunRecord) -> str:
    path = record.log.get("path")
    return Path(str(path)).name if path else "-"

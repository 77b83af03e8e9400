"""`asactl explain JOB`: the story of one job, as the daemon or the state store has it."""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from asad.api.control import DaemonDown, Refused, ask
from asad.bounded import printable
from asad.cli import completion
from asad.cli.deferral import report_lines
from asad.cli.live import control_socket, daemon_store
from asad.cli.screen import (
    JSON,
    STORE,
    cores_on,
    counted,
    duration,
    gives_to,
    respond,
    sources_of,
)
from asad.cli.times import moment
from asad.cluster.reason_words import word_of
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
from asad.store.process import ProcessMark
from asad.store.records import NODE_NAMES, DecisionRecord, JobEnd, RunRecord
from asad.store.store import Store, Story
from asad.store.urls import shown_text

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


@click.command(short_help="Describe the story of a job.")
@click.argument("job", shell_complete=completion.jobs)
@click.option(
    "--run",
    "run_id",
    type=int,
    metavar="ID",
    shell_complete=completion.runs,
    help="This run alone [default: all of the daemon, or the newest finished].",
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
            respond(as_json, answer, lambda: live_lines(job, answer, verbose))
            return
    with Store.open(store_url, create=False) as store:
        touched = store.runs_of(job)
        record = _choose(store, job, touched, run_id)
        story = store.story(job, record, alone=run_id is not None)
    runs = [one.id for one in story.runs]
    others = [other for other in touched if other.id not in runs]
    plain = {
        "job": job,
        "run": record.to_json(),
        "runs": runs,
        "others": [{"id": other.id, "policy": other.policy, "state": other.state} for other in others],
        "decisions": [decision.to_json() for decision in story.decisions],
        "ends": [end.to_json() for end in story.ends],
    }
    respond(as_json, plain, lambda: story_lines(job, record, story, others, verbose))


def ask_about(job: str, verb: str, socket_path: str | None) -> Mapping[str, Any] | None:
    """What the daemon answers to `verb` of a job; None if there is no daemon, or it does not know the job."""
    try:
        answer = ask(control_socket(socket_path), verb, job=job)
    except DaemonDown as down:
        if socket_path is not None:
            raise
        if "ASAD_CONFIG" in os.environ or DEFAULT_PATH.exists():  # there should be one
            with contextlib.suppress(ConfigError):
                theirs = shown_text(daemon_store())
                reported = (
                    f"asactl: {down}. What follows is from your own store; --store {theirs} is the daemon's"
                )
                click.echo(printable(reported), err=True)
        return None
    except Refused as refusal:
        if refusal.exit_status != UsageError.exit_status:
            raise
        # a job of the same number in a log that was replayed is another one
        click.echo(
            printable(f"asactl: the daemon: {refusal}. What follows is from your own store, if it is there"),
            err=True,
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
        yield from (printable(line) for line in report_lines(deferral))
    gang = answer.get("gang")
    if isinstance(gang, Mapping):
        yield from (printable(line) for line in _gang_lines(gang))
    if not isinstance(answer.get("run"), Mapping):
        yield f"job {printable(job)}: no decision names it so far"
        return
    record = _run_of(answer["run"])
    others = [replace(record, id=other["id"], policy=other["policy"]) for other in answer.get("others", [])]
    story = Story(
        [replace(record, id=number) for number in answer.get("runs", [])],
        [
            DecisionRecord(run_id=record.id, job_row=-1, host_row=None, **plain)
            for plain in answer.get("decisions", [])
        ],
        [JobEnd(**plain) for plain in answer.get("ends", [])],
    )
    yield from story_lines(job, record, story, others, verbose)
    if verbose:
        for change in answer.get("quotas", []):
            yield printable(
                f"{moment(change['time_s'])}  {change.get('node', '-')}: {change['file']} "
                f"{change.get('old')} → {change.get('new')} ({change.get('why')})"
            )


def _gang_lines(gang: Mapping[str, Any]) -> Iterator[str]:
    """What became of a job on Mesos, and what it waits for; not yet safe to print."""
    lost = int(gang.get("retries") or 0)
    again = f", after {counted(lost, 'attempt')} that {'was' if lost == 1 else 'were'} lost" if lost else ""
    tasks = gang.get("tasks") or {}
    on = f": {counted(tasks['running'], 'task')} on {gang['nodes']}" if gang.get("nodes") else ""
    yield f"on Mesos {gang.get('job')} is {gang.get('state')}{again}{on}"
    if gang.get("waits"):
        yield f"  {counted(tasks.get('waiting', 0), 'task')} to be launched: {gang['waits']}"
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
    if job.get("lent_by"):
        words.append(f"{job['lent_by']} looks after it")
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
    if job.get("wait_reason"):
        words.append(f"waits for {job['wait_reason']} ({word_of(str(job['wait_reason']))})")
    if isinstance(job.get("estimated_start_s"), int | float) and job.get("start_s") is None:
        words.append(f"its own turn is estimated for {moment(job['estimated_start_s'])}")
    return ", ".join(words)


def _choose(store: Store, job: str, touched: Sequence[RunRecord], run_id: int | None) -> RunRecord:
    """The run to describe: the one asked for, or the newest that was finished or is a daemon's, or the newest."""
    if run_id is not None:
        record = store.run(run_id)
        if any(other.id == run_id for other in touched):
            return record
        where = f"run {run_id}"
        elsewhere = ", ".join(str(other.id) for other in touched)
        hint = f"it is in run {elsewhere}" if elsewhere else _near(job, store.jobs_touched(run_id))
    else:
        if touched:
            return next((run for run in touched if run.state == "done" or run.kind == "live"), touched[0])
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
    story: Story,
    others: Sequence[RunRecord],
    verbose: bool,
) -> Iterator[str]:
    """The story of a job as lines that are safe to print."""
    decisions, ends = story.decisions, story.ends
    started = moment(record.started_at)
    log = f" of {log_name(record)}" if record.log.get("path") else ""  # a live run has none
    yield printable(
        f"job {job} in run {record.id}: {record.kind}{log} under {record.policy}, {started}, {record.state}"
    )
    if record.state != "done" and record.checkpoint_s is not None:
        yield f"  the run is stored up to {moment(record.checkpoint_s)}{' of the log' if log else ''}"
    if len(story.runs) > 1:
        numbers = ", ".join(str(run.id) for run in story.runs[:-1])
        yield f"  the daemon was started anew meanwhile: what follows is of run {numbers} too"
    if others:
        names = ", ".join(f"{other.id} ({other.policy})" for other in others)
        yield printable(f"  also in run {names}: say --run ID")
    submit_s = next((end.submit_s for end in ends if end.submit_s is not None), None)
    if submit_s is not None:
        yield f"  submitted {moment(submit_s)}; times count from there"
    elif decisions:
        submit_s = decisions[0].time_s
        yield f"  times count from its first decision, {moment(submit_s)}"
    yield ""
    for decision in decisions:
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
    if not decisions:
        yield "no decision names it"
    recorded = record.settings.get("baseline") == "recorded"
    yield from (printable(line) for end in ends for line in _end_lines(end, recorded))


def _deed(job: str, decision: DecisionRecord) -> str:
    """What was decided, seen from `job`, and what became of it."""
    share = "an unknown share" if decision.share is None else f"{decision.share * 100:.3g} %"
    of_host = f" of {decision.host}'s CPU" if decision.host is not None else " of its host's CPU"
    if decision.kind == CoAllocate.kind:
        if decision.more.get("demands"):
            deed = f"guest of {decision.policy}: needs {_on_nodes(decision, 'demands')}"
        elif decision.job == job:
            deed = f"guest of {decision.policy}: starts beside {decision.host}, with up to {share} of its CPU"
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


def _verdict(decision: DecisionRecord) -> str:
    """Who did not let it happen, and why; the guard's reasons say themselves that they are vetoes."""
    if decision.outcome_reason.startswith(decision.outcome):
        return decision.outcome_reason
    return f"{decision.outcome}: {decision.outcome_reason or 'no reason given'}"


def _end_lines(end: JobEnd, recorded: bool) -> Iterator[str]:
    """How a job ended, and how it would have without lending; `recorded`: that is what the log says."""
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
    if end.start_s is not None and end.baseline_start_s is not None:
        whose = "in the log" if recorded else "without lending"
        yield f"  it started {moment(end.start_s)}; {whose} it started {moment(end.baseline_start_s)}"


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


def log_name(record: RunRecord) -> str:
    path = record.log.get("path")
    return Path(str(path)).name if path else "-"

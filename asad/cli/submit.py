"""`asactl submit`, `cancel`, `tasks`, `teardown`: a cluster without a queue of its own (Mesos), through the daemon."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from asad.api.control import ask
from asad.bounded import printable
from asad.cli import completion
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed
from asad.cli.live import SOCKET, clock_of, control_socket, rows_of
from asad.cli.screen import JSON, cells, duration, respond, table_of
from asad.errors import UsageError
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue

MOST_SCRIPT_BYTES = 512 << 10
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
GROUP_KEYS = ("tasks", "cpus", "mem", "gpus", "disk", "command")
STATES = ("queued", "launching", "running", "stopping", "completed", "failed", "cancelled", "timeout")


TYPED = "asad.cli.submit.typed"


class AsTyped(click.Command):
    """Keeps the words as they were typed: click drops `--`, which distinguishes a command from a script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)


# ------------------------------------------------------------------------------------------------------ submitting


@click.command(
    cls=AsTyped,
    short_help="Submit a job to Mesos.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--cluster",
    type=click.Choice(["mesos"]),
    default="mesos",
    show_default=True,
    help="Where; Slurm's own jobs are submitted with sbatch.",
)
@click.option(
    "--tasks",
    "-n",
    default="1",
    metavar="N[-M]",
    help="A gang of N tasks, or of as many as there is room for from N to M. [default: 1]",
)
@click.option("--cpus", "-c", default="1", metavar="C", help="CPUs of each task, fractions too. [default: 1]")
@click.option("--mem", default="256M", metavar="SIZE", help="Memory of each task. [default: 256M]")
@click.option("--gpus", default="0", metavar="G", help="GPUs of each task. [default: 0]")
@click.option("--disk", default="0", metavar="SIZE", help="Disk of each task. [default: 0]")
@click.option("--apart", is_flag=True, help="No two tasks on one agent.")
@click.option(
    "--worker",
    metavar="KEYS",
    help="Make the job elastic: tasks=N[-M],cpus=C,mem=SIZE,gpus=G,disk=SIZE,command=… of "
    "its workers. The command comes last and may hold commas; without it they run the"
    " job's own.",
)
@click.option(
    "--server", metavar="KEYS", help="The same of its parameter servers, which end with the last worker."
)
@click.option(
    "--time",
    "-t",
    "limit",
    metavar="LIMIT",
    help="Time limit: 90s, 20m, 2h, 1d, [D-]HH:MM:SS, or minutes; then it is ended. [default: none]",
)
@click.option("--name", "-J", metavar="NAME", help="Its name. [default: that of script or command]")
@click.option("--user", metavar="NAME", help="As whom it runs; for root [default: who asks].")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for its environment, without a value that of yours; repeatable. "
    "Nothing else of your environment is passed on.",
)
@click.option(
    "--chdir",
    "-D",
    metavar="PATH",
    help="Where it runs, on the agents. [default: a folder that Mesos makes for each task]",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="File for what it prints; %j is the job, %t the task. [default: stdout and stderr in that folder]",
)
@click.option(
    "--attribute",
    multiple=True,
    metavar="NAME=TEXT",
    help="A text attribute that an agent must have; repeatable.",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="How often it is queued again when tasks that ran were lost; without it retries of [mesos].",
)
@click.option("--utility", metavar="UTILITY", help="What it is worth, for admission: sigmoid(10,0.5,20m).")
@click.option("--dry-run", is_flag=True, help="Have it checked, and do not submit it.")
@SOCKET
@JSON
@click.argument("words", metavar="SCRIPT [ARGUMENTS]… | -- COMMAND…", nargs=-1)
@click.pass_context
def submit(
    context: click.Context, /, words: tuple[str, ...], socket_path: str | None, as_json: bool, **given: Any
) -> None:
    """Submit SCRIPT (a file with `#!`), or after `--` a command, as a gang: its tasks start together or not at all.

    With --worker and --server it is elastic: workers and parameter servers come and go together.
    """
    if given["worker"] or given["server"]:
        _no_tasks(context)
    plain = specification(words, _after_dashes(context, words), given)
    arguments: dict[str, Any] = {"spec": plain}
    if given["user"]:
        arguments["user"] = given["user"]
    if given["dry_run"]:
        arguments["dry_run"] = True
    answer = ask(control_socket(socket_path), "submit", **arguments)
    done = "it would be submitted" if given["dry_run"] else f"submitted {printable(str(answer['job']))}"
    respond(as_json, answer, lambda: [f"{done}: {reported(answer['spec'])}"])


def _after_dashes(context: click.Context, words: Sequence[str]) -> bool:
    """Is it a command that follows `--`?"""
    typed = context.meta[TYPED]
    return len(typed) > len(words) and typed[len(typed) - len(words) - 1] == "--"


def _no_tasks(context: click.Context) -> None:
    """Groups report their amounts themselves. Raises UsageError."""
    for key in ("tasks", "cpus", "mem", "gpus", "disk", "apart"):
        if context.get_parameter_source(key) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--{key} with --worker or --server: write it into them, --worker tasks=8,cpus=2,mem=4G"
            )


def specification(words: Sequence[str], is_command: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """The job as plain data. Raises UsageError that names the option and the hint."""
    plain: dict[str, Any] = {}
    if not words:
        if not given["worker"]:
            raise UsageError("there is nothing to run; name a script, or give a command after --")
        plain["command"] = ""  # each group has its own, or the daemon says which has none
    elif is_command:
        plain["command"] = shlex.join(words)
    else:
        plain["script"] = _script(Path(words[0]))
        plain["command"] = shlex.join(words[1:])
    own_name = Path(words[0]).name[:128] if words else ""
    plain["name"] = given["name"] if given["name"] is not None else own_name
    if given["worker"] or given["server"]:
        if not given["worker"]:
            raise UsageError(
                "--server without --worker: parameter servers serve workers; give --worker as well"
            )
        plain["elastic"] = True
        plain["groups"] = [_group("worker", given["worker"])]
        if given["server"]:
            plain["groups"].append(_group("server", given["server"]))
    else:
        keys = {key: given[key] for key in ("tasks", "cpus", "mem", "gpus", "disk")}
        plain["groups"] = [{"name": "task", **_amounts("--", keys)}]
        if given["apart"]:
            plain["groups"][0]["apart"] = True
    if given["limit"] is not None:
        limit_s = time_limit_s(given["limit"])
        plain["time_limit_s"] = None if math.isinf(limit_s) else limit_s
    plain["environment"] = dict(_variable(text) for text in given["env"])
    plain["attributes"] = dict(_pair("--attribute", text) for text in given["attribute"])
    if given["chdir"]:
        plain["directory"] = str(Path.cwd() / given["chdir"])
    if given["output"]:
        plain["output"] = given["output"]
    if given["retries"] is not None:
        plain["retries"] = given["retries"]
    if given["utility"]:
        plain["hint"] = f"utility={given['utility']}"
    return plain


def _script(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_SCRIPT_BYTES + 1)
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: it is no text; a program is a command: asactl submit -- {path}") from None
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; name a script that you can read, or give a command after --"
        ) from None
    if len(raw) > MOST_SCRIPT_BYTES:
        raise UsageError(
            f"{path}: larger than {MOST_SCRIPT_BYTES >> 10} KiB; put it where all nodes can read it, and submit "
            f"asactl submit -- {path}"
        )
    if not text.startswith("#!"):
        raise UsageError(f"{path}: it does not say by what it is run; begin it with #!/bin/sh or the like")
    return text


def _group(name: str, text: str) -> dict[str, Any]:
    """`tasks=8,cpus=2,mem=4G,gpus=1,command=python train.py`; the command comes last and may hold commas."""
    option = f"--{name}"
    given: dict[str, str] = {}
    rest = text
    while rest:
        key, equals, after = rest.partition("=")
        key = key.strip()
        if not equals or key not in GROUP_KEYS:
            raise UsageError(
                f"{option}: {key[:40]!r} is no key; there are {', '.join(GROUP_KEYS)}, each as KEY=VALUE"
            )
        if key in given:
            raise UsageError(f"{option}: {key} is given twice; give it once")
        given[key], _, rest = (after, "", "") if key == "command" else after.partition(",")
    command = given.pop("command", "")
    if "tasks" not in given:
        raise UsageError(f"{option}: tasks is missing; write {option} tasks=4,cpus=1")
    group = {"name": name, **_amounts(f"{option} ", given)}
    return group | {"command": command} if command else group


def _amounts(place: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Fields of a group. Raises UsageError."""
    group: dict[str, Any] = {}
    if "tasks" in given:
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", given["tasks"].strip(), re.ASCII)
        if found is None:
            raise UsageError(f"{place}tasks: {given['tasks'][:40]!r} is no number of tasks; write 4, or 4-16")
        least, most = int(found[1]), int(found[2] or found[1])
        if most < least:
            raise UsageError(f"{place}tasks: {least}-{most}: the second number is the larger one")
        group["tasks"] = most
        if found[2]:
            group["least"] = least
    if "cpus" in given:
        try:
            group["cpus"] = float(given["cpus"])
        except ValueError:
            raise UsageError(f"{place}cpus: {given['cpus'][:40]!r} is no number; write 2, or 0.5") from None
        if not math.isfinite(group["cpus"]):
            raise UsageError(f"{place}cpus: {given['cpus'][:40]!r} is no number; write 2, or 0.5")
    for key, field in (("mem", "memory_bytes"), ("disk", "disk_bytes")):
        if key in given:
            group[field] = _bytes(f"{place}{key}", given[key])
    if "gpus" in given:
        if not re.fullmatch(r"\d{1,6}", given["gpus"].strip(), re.ASCII):
            raise UsageError(f"{place}gpus: {given['gpus'][:40]!r} is no number of devices; write 1")
        group["gpus"] = int(given["gpus"])
    return group


def _bytes(place: str, text: str) -> float:
    try:
        found = fields.memory(text.strip())
    except BadValue:
        found = math.nan
    if text.strip() == "0":
        return 0.0
    if not math.isfinite(found):
        raise UsageError(f"{place}: {text[:40]!r} is no amount; write 512M, or 2G")
    return found


def time_limit_s(text: str) -> float:
    """`90s`, `20m`, `2h`, `1d`, Slurm's `[D-]HH:MM:SS`, or minutes → seconds. Raises UsageError."""
    text = text.strip()
    if text.lower() in ("unlimited", "infinite"):
        return math.inf
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)", text, re.ASCII)
    if found:
        seconds = float(found[1]) * UNITS[found[2] or "m"]
    else:
        try:
            seconds = fields.duration(text)
        except BadValue:
            seconds = math.nan
    if not seconds > 0:
        raise UsageError(f"--time: {text[:40]!r} is no time limit; write 90m, 2h or 1-12:00:00")
    return seconds


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    if name not in os.environ:
        raise UsageError(
            f"--env {name[:40]}: your environment has no such variable; write --env {name[:40]}=VALUE"
        )
    return name, os.environ[name]


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{option} {text[:40]!r}: write {option} NAME=TEXT")
    return name, value


# --------------------------------------------------------------------------------------------------------- looking


@click.command(short_help="Cancel a job that was submitted to Mesos.")
@click.argument("job", metavar="JOB", shell_complete=completion.mesos_jobs)
@SOCKET
@JSON
def cancel(job: str, socket_path: str | None, as_json: bool) -> None:
    """End JOB (m17): its tasks are asked to end, and killed if they do not. It must be yours, or you root."""
    answer = ask(control_socket(socket_path), "cancel", job=job)
    done = "is cancelled; its tasks end" if answer["cancelled"] else "has ended already"
    respond(as_json, answer, lambda: [f"{printable(job)} {done}"])


@click.command(short_help="Jobs submitted to Mesos, and their tasks.")
@click.argument("job", metavar="[JOB]", required=False, shell_complete=completion.mesos_jobs)
@click.option("--state", type=click.Choice(STATES), help="Only these.")
@click.option("--user", metavar="NAME", shell_complete=completion.users, help="Only this user's.")
@SOCKET
@listed("tasks")
@JSON
def tasks(
    job: str | None,
    state: str | None,
    user: str | None,
    socket_path: str | None,
    chosen: Chosen,
    as_json: bool,
) -> None:
    """List the jobs that were submitted to Mesos and the last that have ended; of JOB alone, its tasks too."""
    facts = ask(control_socket(socket_path), "tasks", job=job or "")
    found = [
        one
        for one in rows_of(facts, "jobs")
        if state in (None, one.get("state")) and user in (None, (one.get("spec") or {}).get("user"))
    ]
    found = chosen.ordered(found, now_s := clock_of(facts))
    more = found if job and not chosen.parts else []
    respond(
        as_json,
        {"jobs": found},
        lambda: [
            *chosen.shown(found, now_s, empty="no jobs"),
            *(part for one in more for part in _tasks_of(one)),
        ],
    )


@click.command(short_help="End the Mesos framework with all its tasks.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@SOCKET
@JSON
def teardown(yes: bool, socket_path: str | None, as_json: bool) -> None:
    """End asad's framework on Mesos, with every job of it and all that they run, after asking; for operators.

    Nothing else ends tasks in this way: a daemon that stops leaves them running."""
    path = control_socket(socket_path)
    if not yes:
        found = rows_of(ask(path, "tasks", job=""), "jobs")
        alive = [one for one in found if one.get("state") in STATES[:4]]
        count = sum(task.get("exit") is None for one in alive for task in one.get("tasks") or [])
        click.confirm(
            f"End the framework with all its {len(alive)} jobs and {count} tasks?", abort=True, err=True
        )
    answer = ask(path, "teardown")
    done = f"the framework ends: {answer['jobs']} jobs are cancelled, {answer['tasks']} tasks killed"
    respond(as_json, answer, lambda: [done])


def _tasks_of(one: Mapping[str, Any]) -> Iterator[RenderableType]:
    table = table_of("task", "group", "index>", "state*", "on*", "exit>")
    for task in one.get("tasks") or []:
        table.add_row(
            *cells(
                task.get("task"),
                task.get("group"),
                str(task.get("index")),
                task.get("state"),
                task.get("node") or task.get("host") or task.get("agent"),
                None if task.get("exit") is None else str(task["exit"]),
            )
        )
    yield Text("")
    yield table


def reported(spec: Mapping[str, Any]) -> str:
    """A job in one line."""
    parts = []
    for group in spec["groups"]:
        least = f"{group['least']} to " if group["least"] else ""
        gpus = f", {group['gpus']} GPUs" if group["gpus"] else ""
        kind = "tasks" if group["name"] == "task" else f"{group['name']}s"
        mebibytes = group["memory_bytes"] / 2**20
        parts.append(f"{least}{group['tasks']} {kind} of {group['cpus']:g} CPUs, {mebibytes:g} MiB{gpus}")
    limit = spec["time_limit_s"]
    ends = "no time limit" if limit is None else f"at most {duration(limit)}"
    return printable(f"{' and '.join(parts)}, {ends}, as {spec['user']}")

"""What is submitted to Mesos: a job is one or several groups of like tasks.

A rigid job is a gang: its tasks start together or not at all, and one that is lost takes the others along. An elastic
job (workers and parameter servers that come and go) needs its least number of tasks together for a start; after that
each task is for itself, and how many run at one time may be changed while it runs.

Everything here is plain data that round-trips to JSON: the control socket hands it on, the journal keeps it.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asad.errors import UsageError

MOST_TASKS = 100_000
MOST_TEXT = 1 << 20
"""Bytes of a script; it travels within the task's description."""
MOST_VARIABLES = 1000
REMEMBERED = 1000
"""Characters of each text of a job that has ended."""
MEBIBYTE = 2**20
NAME = re.compile(r"[A-Za-z0-9_.\-]{1,32}", re.ASCII)
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,31}\$?", re.ASCII)
HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which JSON may hold and no journal, file or environment does."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Group:
    """Like tasks of a job."""

    name: str = "task"
    tasks: int = 1
    """So many are to be run in all (1 to 100 000)."""
    least: int = 0
    """With so many a start makes sense, at most `tasks`; 0: with all."""
    cpus: float = 1.0
    """Of each task, as the other amounts; above 0."""
    memory_bytes: float = 256.0 * MEBIBYTE
    gpus: int = 0
    disk_bytes: float = 0.0
    command: str = ""
    """What its tasks run, if it is not the job's own."""
    apart: bool = False
    """Each of its tasks stands on an agent where no other task of its job does."""

    @property
    def start_tasks(self) -> int:
        """Tasks without which it does not start."""
        return self.least or self.tasks


@dataclass(frozen=True, slots=True)
class Spec:
    """A job as its user wants it. `user` and `uid` come from whoever took the request in, never from the user."""

    user: str
    uid: int
    command: str
    """A line for /bin/sh, or with `script` its arguments as one."""
    groups: tuple[Group, ...] = (Group(),)
    name: str = ""
    script: str = ""
    """Text of a program (`#!…`) that is written to a file and run instead; `command` is then appended to it."""
    elastic: bool = False
    time_limit_s: float = math.inf
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    """Where it runs; empty: the sandbox that Mesos gives each task."""
    output: str = ""
    """File for what it prints, `%j` job, `%t` task; empty: `stdout` and `stderr` of the sandbox."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Text attributes that an agent must have."""
    retries: int = -1
    """So often is it queued again when tasks were lost; -1: as the framework's settings say."""
    hint: str = ""
    """What its user tells asad (`utility=…`). Hostile text."""
    origin: str = ""
    """Who it stands for elsewhere (`slurm:17`); empty: nobody."""

    @property
    def tasks(self) -> int:
        """Tasks of all groups."""
        return sum(group.tasks for group in self.groups)

    @property
    def cpus(self) -> float:
        """CPUs of all tasks of all groups."""
        return sum(group.tasks * group.cpus for group in self.groups)

    def shortened(self) -> Spec:
        """What is remembered of it when it has ended: the beginnings of its texts, and no environment."""
        groups = tuple(
            dataclasses.replace(group, command=group.command[:REMEMBERED]) for group in self.groups
        )
        texts = {name: getattr(self, name)[:REMEMBERED] for name in ("command", "script", "hint", "output")}
        return dataclasses.replace(self, groups=groups, environment={}, attributes={}, **texts)

    def to_json(self) -> dict[str, Any]:
        """Plain data that `spec_from_json` turns back into an equal job; an unlimited time is null."""
        plain = dataclasses.asdict(self)
        plain["groups"] = [dataclasses.asdict(group) for group in self.groups]
        plain["environment"], plain["attributes"] = dict(self.environment), dict(self.attributes)
        plain["time_limit_s"] = None if math.isinf(self.time_limit_s) else self.time_limit_s
        return plain


def spec_from_json(plain: Any, *, user: str | None = None, uid: int | None = None) -> Spec:
    """Check what was asked for; `user` and `uid`, if given, stand instead of what is written there.

    Raises UsageError that names the field and the mend.
    """
    if not isinstance(plain, Mapping):
        raise UsageError("job: it is no object; give its fields by name")
    plain = dict(plain)
    if user is not None:
        plain["user"] = user
    if uid is not None:
        plain["uid"] = uid
    _known(plain, [column.name for column in dataclasses.fields(Spec)], "job")
    groups = plain.get("groups", [{}])
    if not isinstance(groups, list | tuple) or not 1 <= len(groups) <= 8:
        raise UsageError("job: groups: give a list of 1 to 8 groups of tasks")
    spec = Spec(
        user=_matching(plain, "user", USER, "a user's name"),
        uid=int(_number(plain, "uid", 0.0, 0, 2**32 - 2, whole=True, needed=True)),
        command=_text(plain, "command"),
        groups=tuple(_group(group, number) for number, group in enumerate(groups)),
        name=_text(plain, "name", most=128, line=True),
        script=_text(plain, "script"),
        elastic=_truth(plain, "elastic"),
        time_limit_s=_time_limit(plain.get("time_limit_s")),
        environment=_pairs(plain, "environment", VARIABLE),
        directory=_path(plain, "directory"),
        output=_text(plain, "output", most=4096, line=True),
        attributes=_pairs(plain, "attributes", NAME),
        retries=int(_number(plain, "retries", -1, -1, 1000, whole=True)),
        hint=_text(plain, "hint", most=4096, line=True),
        origin=_text(plain, "origin", most=128, line=True),
    )
    names = [group.name for group in spec.groups]
    if len(set(names)) != len(names):
        raise UsageError(f"job: groups: two are called {names[0]!r}; give each a name of its own")
    if not spec.script and not all(group.command or spec.command for group in spec.groups):
        raise UsageError("job: there is nothing to run; give a script, or a command after --")
    if spec.tasks > MOST_TASKS:
        raise UsageError(f"job: it has {spec.tasks} tasks; at most {MOST_TASKS} can be asked for")
    return spec


def _group(plain: Any, number: int) -> Group:
    place = f"job: group {number}"
    if not isinstance(plain, Mapping):
        raise UsageError(f"{place}: it is no object; give its fields by name")
    _known(plain, [column.name for column in dataclasses.fields(Group)], place)
    default = Group()
    group = Group(
        name=_matching({"name": "task", **plain}, "name", NAME, "a name of letters, digits, _ . -", place),
        tasks=int(_number(plain, "tasks", 1, 1, MOST_TASKS, whole=True, place=place)),
        least=int(_number(plain, "least", 0, 0, MOST_TASKS, whole=True, place=place)),
        cpus=_number(plain, "cpus", default.cpus, 0.01, 65_536, place=place),
        memory_bytes=_number(plain, "memory_bytes", default.memory_bytes, 4 * MEBIBYTE, 2.0**60, place=place),
        gpus=int(_number(plain, "gpus", 0, 0, 1024, whole=True, place=place)),
        disk_bytes=_number(plain, "disk_bytes", 0, 0, 2.0**60, place=place),
        command=_text(plain, "command", place=place),
        apart=_truth(plain, "apart", place),
    )
    if group.least > group.tasks:
        raise UsageError(
            f"{place}: at least {group.least} of {group.tasks} tasks cannot be; give no more than there are"
        )
    return group


def _known(plain: Mapping[str, Any], known: list[str], place: str) -> None:
    for key in plain:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:80], known, n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"{place}: {str(key)[:80]!r} is no field; {mend}")


def _text(
    plain: Mapping[str, Any], key: str, *, most: int = MOST_TEXT, line: bool = False, place: str = "job"
) -> str:
    value = plain.get(key, "")
    if not isinstance(value, str) or not _writable(value):
        raise UsageError(f"{place}: {key} is no text; write it as one, in UTF-8 and without zero bytes")
    if len(value.encode()) > most:
        raise UsageError(f"{place}: {key} is longer than {most} bytes; make it shorter")
    if line and not value.isprintable():
        raise UsageError(f"{place}: {key} holds control characters; remove them")
    return value


def _writable(text: str) -> bool:
    """JSON can carry halves of characters, which no journal, environment or file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _matching(
    plain: Mapping[str, Any], key: str, form: re.Pattern[str], what: str, place: str = "job"
) -> str:
    value = plain.get(key)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise UsageError(f"{place}: {key} {value!r:.80} is not {what}")
    return value


def _number(
    plain: Mapping[str, Any],
    key: str,
    default: float,
    least: float,
    most: float,
    *,
    whole: bool = False,
    needed: bool = False,
    place: str = "job",
) -> float:
    if needed and key not in plain:
        raise UsageError(f"{place}: {key} is not given")
    value = plain.get(key, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not least <= value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{place}: {key} {value!r:.80}; give {kind} from {least:g} to {most:g}")
    return float(value)


def _truth(plain: Mapping[str, Any], key: str, place: str = "job") -> bool:
    value = plain.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{place}: {key} {value!r:.80} is neither true nor false")
    return value


def _time_limit(value: Any) -> float:
    if value is None or value == math.inf:
        return math.inf
    return _number({"time_limit_s": value}, "time_limit_s", 0, 1, 10 * 31_536_000)


def _path(plain: Mapping[str, Any], key: str) -> str:
    value = _text(plain, key, most=4096, line=True)
    if value and not value.startswith("/"):
        raise UsageError(f"job: {key} {value!r:.80} is no absolute path; begin it with /")
    return value


def _pairs(plain: Mapping[str, Any], key: str, form: re.Pattern[str]) -> dict[str, str]:
    value = plain.get(key, {})
    if not isinstance(value, Mapping) or len(value) > MOST_VARIABLES:
        raise UsageError(f"job: {key} is no table of at most {MOST_VARIABLES} texts")
    total = 0
    for name, text in value.items():
        if not isinstance(name, str) or not form.fullmatch(name):
            raise UsageError(f"job: {key}: {name!r:.80} is no name for one")
        if not isinstance(text, str) or not _writable(text):
            raise UsageError(
                f"job: {key}: {name} is no text; write it as one, in UTF-8 and without zero bytes"
            )
        total += len(name) + len(text.encode())
    if total > MOST_TEXT:
        raise UsageError(f"job: {key} is longer than {MOST_TEXT} bytes; make it shorter")
    return dict(value)

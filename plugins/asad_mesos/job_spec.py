"""What is submitted to Mesos: a job is one or several groups of like tasks.

A rigid job is a gang: its tasks start together or not at all, and one that is lost takes the others along. An elastic
job (workers and parameter servers that come and go) needs its least number of tasks together for a start; after that
each task is for itself, and how many run at one time may be changed while it runs.

Everything here is plain data that round-trips to JSON: the control socket hands it on, the journal keeps it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from asad.errors import UsageError
from asad.tables import Is, Words, read_table

MOST_TASKS = 100_000
MOST_TEXT = 1 << 20
"""Bytes of a script; it travels within the task's description."""
MOST_VARIABLES = 1000
SHORTENED = 1000
"""Characters of each text of a job that has ended."""
MEBIBYTE = 2**20
NAME = re.compile(r"[A-Za-z0-9_.\-]{1,32}", re.ASCII)
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,31}\$?", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)


def _writable(text: str) -> bool:
    """JSON can carry halves of characters, which no journal, environment or file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _matching(value: Any, form: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ValueError(f"{value!r:.80} is not {what}")
    return value


def _text(value: Any, most: int = MOST_TEXT) -> str:
    if not isinstance(value, str) or not _writable(value):
        raise ValueError("is no text; write it as one, in UTF-8 and without zero bytes")
    if len(value.encode()) > most:
        raise ValueError(f"is longer than {most} bytes; make it shorter")
    return value


def _line(value: Any, most: int) -> str:
    if not _text(value, most).isprintable():
        raise ValueError("holds control characters; remove them")
    return str(value)


def _path(value: Any) -> str:
    if _line(value, 4096) and not value.startswith("/"):
        raise ValueError(f"{value!r:.80} is no absolute path; begin it with /")
    return str(value)


def _time_limit(value: Any) -> float:
    if value is None or value == math.inf:
        return math.inf
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 1 <= value <= 10 * 31_536_000:
        raise ValueError(f"{value!r:.80}; give a number from 1 to 3.1536e+08")
    return float(value)


def _pairs(value: Any, form: re.Pattern[str]) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > MOST_VARIABLES:
        raise ValueError(f"is no table of at most {MOST_VARIABLES} texts")
    total = 0
    for name, text in value.items():
        if not isinstance(name, str) or not form.fullmatch(name):
            raise ValueError(f"{name!r:.80} is no name for one")
        if not isinstance(text, str) or not _writable(text):
            raise ValueError(f"{name} is no text; write it as one, in UTF-8 and without zero bytes")
        total += len(name) + len(text.encode())
    if total > MOST_TEXT:
        raise ValueError(f"is longer than {MOST_TEXT} bytes; make it shorter")
    return dict(value)


Text = Annotated[str, Is(made=_text, raw=True)]
Line = Annotated[str, Is(made=partial(_line, most=4096), raw=True)]
ShortLine = Annotated[str, Is(made=partial(_line, most=128), raw=True)]
Variables = Annotated[Mapping[str, str], Is(made=partial(_pairs, form=VARIABLE), raw=True)]
Attributes = Annotated[Mapping[str, str], Is(made=partial(_pairs, form=NAME), raw=True)]
Bytes = Annotated[float, Is(0, 2.0**60)]
TaskName = Annotated[
    str, Is(made=partial(_matching, form=NAME, what="a name of letters, digits, _ . -"), raw=True)
]
UserName = Annotated[str, Is(made=partial(_matching, form=USER, what="a user's name"), raw=True)]


@dataclass(frozen=True, slots=True)
class Group:
    """Like tasks of a job."""

    name: TaskName = "task"
    tasks: Annotated[int, Is(1, MOST_TASKS)] = 1
    """So many are to be run in all (1 to 100 000)."""
    least: Annotated[int, Is(0, MOST_TASKS)] = 0
    """With so many a start makes sense, at most `tasks`; 0: with all."""
    cpus: Annotated[float, Is(0.01, 65_536)] = 1.0
    """Of each task, as the other amounts; above 0."""
    memory_bytes: Annotated[float, Is(4 * MEBIBYTE, 2.0**60)] = 256.0 * MEBIBYTE
    gpus: Annotated[int, Is(0, 1024)] = 0
    disk_bytes: Bytes = 0.0
    command: Text = ""
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

    user: UserName
    uid: Annotated[int, Is(0, 2**32 - 2)]
    command: Text
    """A line for /bin/sh, or with `script` its arguments as one."""
    groups: Annotated[tuple[Group, ...], Is(made=_groups, raw=True)] = (Group(),)
    name: ShortLine = ""
    script: Text = ""
    """Text of a program (`#!…`) that is written to a file and run instead; `command` is then appended to it."""
    elastic: bool = False
    time_limit_s: Annotated[float, Is(made=_time_limit, raw=True)] = math.inf
    environment: Variables = field(default_factory=dict)
    directory: Annotated[str, Is(made=_path, raw=True)] = ""
    """Where it runs; empty: the sandbox that Mesos gives each task."""
    output: Line = ""
    """File for what it prints, `%j` job, `%t` task; empty: `stdout` and `stderr` of the sandbox."""
    attributes: Attributes = field(default_factory=dict)
    """Text attributes that an agent must have."""
    retries: Annotated[int, Is(-1, 1000)] = -1
    """So often is it queued again when tasks were lost; -1: as the framework's settings say."""
    hint: Line = ""
    """What its user asks of asad (`utility=…`). Hostile text."""
    origin: ShortLine = ""
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
        """What is left of it when it has ended: the beginnings of its texts, and no environment."""
        groups = tuple(dataclasses.replace(group, command=group.command[:SHORTENED]) for group in self.groups)
        texts = {name: getattr(self, name)[:SHORTENED] for name in ("command", "script", "hint", "output")}
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

    Raises UsageError that names the field and the remedy.
    """
    if not isinstance(plain, Mapping):
        raise UsageError("job: it is no object; give its fields by name")
    plain = dict(plain)
    if user is not None:
        plain["user"] = user
    if uid is not None:
        plain["uid"] = uid
    spec: Spec = _read(Spec, {"command": "", **plain}, "job")
    names = [group.name for group in spec.groups]
    if len(set(names)) != len(names):
        raise UsageError(f"job: groups: two are called {names[0]!r}; give each a name of its own")
    if not spec.script and not all(group.command or spec.command for group in spec.groups):
        raise UsageError("job: there is nothing to run; give a script, or a command after --")
    if spec.tasks > MOST_TASKS:
        raise UsageError(f"job: it has {spec.tasks} tasks; at most {MOST_TASKS} can be asked for")
    return spec


WORDS = Words(
    place="{table}: {key}",
    unknown="{table}: '{key}' is no field; {nearest}",
    missing="{place} is not given",
    kind="{place} {value} is neither true nor false; write one of them",
    number="{place} {value}; give {form} {bounds}",
    range="{place} {value}; give {form} {bounds}",
    made="{place} {why}",
)


def _read(kind: Any, plain: Mapping[str, Any], place: str) -> Any:
    made, faults = read_table(kind, plain, WORDS, (place,))
    if faults:
        raise UsageError(faults[0].text)
    return made


def _groups(value: Any) -> tuple[Group, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= 8:
        raise UsageError("job: groups: give a list of 1 to 8 groups of tasks")
    return tuple(_group(group, number) for number, group in enumerate(value))


def _group(plain: Any, number: int) -> Group:
    place = f"job: group {number}"
    if not isinstance(plain, Mapping):
        raise UsageError(f"{place}: it is no object; give its fields by name")
    group: Group = _read(Group, plain, place)
    if group.least > group.tasks:
        raise UsageError(
            f"{place}: at least {group.least} of {group.tasks} tasks cannot be; give no more than there are"
        )
    return group

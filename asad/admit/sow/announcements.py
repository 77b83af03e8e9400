"""Statements of work as owners write them: TOML with times of the clock; and as the daemon gets them.

A file has `version = 1` and one `[[statement]]` for each job to come:

    name = "nightly"                   # of the job; empty: it is known by its hint alone (asad:sow=NUMBER)
    cores = 8
    gres = "gpu:a100:2"                # and other gres, of the whole job; "gpu:2" of any type; as --gres of Slurm
    licenses = "abaqus:1"
    memory = "64G"                     # of the whole job, where it is more than its cores' share
    due = 2026-01-31T02:00:00Z         # when it is expected; also "+2h" from now
    every = "24h"                      # of a job that comes again: by so much later each time
    runs = [["0m", "1h", 0.7], ["10m", "90m", 0.3]]   # offset of its arrival to `due`, duration, probability
    value = 12.0                       # on the scale of the site's prices
    shape = "deadline"                 # all of it until the deadline; "linear": falling evenly to 0 there
    deadline = "4h"                    # after `due`, by which it must have ended to be of value
    eviction = "requeue-hold"          # or "cancel": what becomes of it if who was born earlier needs its cores

The text is a user's: hostile, and every problem in it is named with its place and the remedy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from asad.admit.sow.gres_text import bytes_of, gres_of, licences_of, memory_text
from asad.bounded import shown, toml_of
from asad.decisions import EVICTIONS
from asad.errors import ConfigError, UsageError
from asad.model import Json
from asad.tables import NEEDED, Column, Fault, Is, Words, key_lines, read

SHAPES = ("deadline", "linear")
KEYS = (
    "name", "cores", "gres", "licenses", "memory", "due", "every", "runs", "value", "shape", "deadline", "eviction",
)  # fmt: skip
OTHER_WORDS = {"gpus": 'gres = "gpu:2"', "tres": "gres and licenses", "mem": 'memory = "64G"'}
"""What jobs ask of Slurm by other words, and what to write."""
MOST_CHARACTERS = 256 * 1024
MOST_STATEMENTS = 1000
MOST_ROWS = 64
"""Rows of `runs`: the cost of a plan is linear in them."""
MOST_NAME = 128
MOST_CORES = 2**31 - 1
MOST_VALUE = 1e9
LONGEST_S = 366 * 86_400.0
"""No offset, duration, period or deadline is longer."""
PROBABILITY_ERROR = 1e-3
"""So much may the sum of the probabilities be off 1: they are written by hand."""
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = re.compile(r"([+-]?)([0-9]{1,10}(?:\.[0-9]{1,6})?)(s|m|h|d)?", re.ASCII)


class Run(NamedTuple):
    """One way in which the job may come."""

    offset_s: float
    """Of its arrival to `due`; below 0 if it comes earlier."""
    duration_s: float
    probability: float


@dataclass(frozen=True, slots=True)
class Announcement:
    """A job that its owner expects."""

    name: str
    cores: int
    due_s: float
    """UTC epoch."""
    runs: tuple[Run, ...]
    """Probabilities sum to 1."""
    value: float
    shape: str
    deadline_s: float
    """After `due_s`."""
    eviction: str
    every_s: float = 0.0
    """0: it comes once."""
    gres: str = ""
    licences: str = ""
    """As `gres_of` and `licences_of` read them."""
    memory_bytes: int = 0
    """0: the share of its cores."""

    @property
    def tres(self) -> dict[str, int]:
        """Units of gres and licences by name, over all of its nodes."""
        gres = gres_of(self.gres) if self.gres else {}
        return gres | (licences_of(self.licences) if self.licences else {})

    @property
    def beside(self) -> dict[str, Json]:
        """What it needs beside cores, by key of a statement; only what there is."""
        memory = memory_text(self.memory_bytes) if self.memory_bytes else ""
        there = {"gres": self.gres, "licenses": self.licences, "memory": memory}
        return {key: text for key, text in there.items() if text}

    def later(self, times: int) -> Announcement:
        """The same job, so many periods later."""
        return replace(self, due_s=self.due_s + times * self.every_s)

    def to_json(self) -> dict[str, Json]:
        """A plain dict, times in seconds, that `announcement_of` takes."""
        return {
            "name": self.name,
            "cores": self.cores,
            "due": self.due_s,
            "every": self.every_s,
            "runs": [list(run) for run in self.runs],
            "value": self.value,
            "shape": self.shape,
            "deadline": self.deadline_s,
            "eviction": self.eviction,
            **self.beside,
        }


def announcement_of(plain: Mapping[str, Any], now_s: float) -> Announcement:
    """The announcement that `plain` holds, as of a table of the file or of `Announcement.to_json`.

    Raises UsageError with the first problem and its remedy.
    """
    made, faults = _checked(plain, now_s)
    if made is None:
        raise UsageError(faults[0].text)
    return made


def needing(cores: int, beside: Mapping[str, Any]) -> Announcement:
    """One of which only that is known; `beside` by key of a statement. Raises UsageError."""
    plain = {"cores": cores, "due": 0.0, "runs": [["0m", "1m", 1.0]], "value": 1.0, "deadline": "1m"}
    return announcement_of({**beside, **plain}, 0.0)


def read_announcements(text: str, path: str, now_s: float) -> list[Announcement]:
    """The statements of a file; `path` is only named in errors, and `now_s` is what `+2h` counts from.

    Raises ConfigError with file, line, statement and remedy, of the first problem.
    """
    place = "".join(char if char.isprintable() else "?" for char in path)
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{place}: over {MOST_CHARACTERS // 1024} KiB; write several files")
    try:
        document = toml_of(text)
    except ValueError as error:  # of TOML, and of numbers and dates that Python refuses to read
        raise ConfigError(f"{place}: not TOML: {shown(str(error)[:200])}; correct what it names") from None
    if document.get("version") != 1 or isinstance(document["version"], bool):
        raise ConfigError(
            f"{place}: the version of the format is missing or not known; write version = 1 at its top"
        )
    for key in document:
        if key not in ("version", "statement"):
            raise ConfigError(
                f"{place}: unknown key {shown(key)!r}; a file has version and [[statement]] alone"
            )
    tables = document.get("statement", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{place}: `statement` is no list of tables; write [[statement]] above each")
    if not tables:
        raise ConfigError(f"{place}: it holds no statement; write [[statement]] and its keys below it")
    if len(tables) > MOST_STATEMENTS:
        raise ConfigError(f"{place}: {len(tables)} statements; keep to {MOST_STATEMENTS} in a file")
    found = []
    for number, table in enumerate(tables, 1):
        made, faults = _checked(table, now_s)
        if made is None:
            lines, name = key_lines(text), "statement"
            if (name, str(len(tables))) not in lines or (name, str(len(tables) + 1)) in lines:
                lines = {}  # a text of several lines that looks like tables
            at = Fault((name, str(number), *faults[0].key), f"{name} {number}: {faults[0].text}")
            raise ConfigError(at.located(place, lines))
        found.append(made)
    return found


def written(announcements: Sequence[Announcement], dues: Sequence[str], notes: Sequence[str] = ()) -> str:
    """A file that `read_announcements` takes; `dues` are the values of `due` as TOML, `notes` comments above each."""
    parts = [
        "# Statements of work: see docs/how-to/statements.md. Change what you know better.\nversion = 1\n"
    ]
    for number, (one, due) in enumerate(zip(announcements, dues, strict=True)):
        note = notes[number] if number < len(notes) else ""
        rows = ",\n".join(
            f'    ["{_seconds(run.offset_s)}", "{_seconds(run.duration_s)}", {run.probability:.6g}]'
            for run in one.runs
        )
        lines = [
            *(f"# {line}" for line in note.splitlines()),
            "[[statement]]",
            f"name = {_basic(one.name)}",
            f"cores = {one.cores}",
            *(f"{key} = {_basic(str(text))}" for key, text in one.beside.items()),
            f"due = {due}",
            *([f'every = "{_seconds(one.every_s)}"'] if one.every_s else []),
            f"runs = [\n{rows},\n]",
            f"value = {one.value:.6g}",
            f'shape = "{one.shape}"',
            f'deadline = "{_seconds(one.deadline_s)}"',
            f'eviction = "{one.eviction}"',
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def time_s(value: object, *, signed: bool = False) -> float:
    """Seconds of `90`, `"90s"`, `"20m"`, `"1.5h"`, `"2d"`, at most a year; NaN if it is none. `signed`: or below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < 1e15 else math.nan
    else:
        found = _TIME.fullmatch(value) if isinstance(value, str) else None
        if found is None or (found[1] and not signed):
            return math.nan
        seconds = float(found[2]) * _UNITS_S[found[3] or ""] * (-1.0 if found[1] == "-" else 1.0)
    fits = abs(seconds) <= LONGEST_S and (signed or seconds >= 0)
    return seconds if fits else math.nan


# ------------------------------------------------------------------------------------------------------- checking


WORDS = Words(
    unknown=f"{{place}}: unknown key; use {', '.join(KEYS)}",
    missing="`{place}` is missing; write {place} = … below its [[statement]]",
    made="{place}: {why}",
)


def _checked(plain: Mapping[str, Any], now_s: float) -> tuple[Announcement | None, list[Fault]]:
    """The announcement, or what is wrong."""
    for key, instead in OTHER_WORDS.items():
        if key in plain:
            return None, [Fault((key,), f"{key}: it is written otherwise here; write {instead}")]
    columns = COLUMNS | {"due": _that(partial(_due_s, now_s=now_s), "time", DUE)}
    values, faults = read(columns, plain, WORDS, ())
    if faults:
        return None, faults
    given = {name: asked.default for name, asked in columns.items()} | values
    return Announcement(**{RENAMED.get(name, name): value for name, value in given.items()}), []


def _that(read_: Callable[[Any], Any], noun: str, hint: str, default: Any = NEEDED) -> Column:
    """A key of which `read_` makes None if it is wrong, or NaN."""

    def made(value: Any) -> Any:
        found = read_(value)
        if found is None or found != found:
            raise ValueError(f"{shown(str(value))} is no {noun}; {hint}")
        return found

    return Column(Any, default, Is(made=made, raw=True))


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_NAME:
        raise ValueError(f"it is no printable text; write at most {MOST_NAME} characters")
    return value


def _cores(value: Any) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_CORES
    return value if fits else None


def _asked(value: Any, read_: Callable[[Any], Any]) -> str:
    """The text itself, if it can be read; an empty one is as good as none."""
    if value == "":
        return ""
    read_(value)
    return str(value)


def _one_of(choices: Sequence[str], noun: str) -> Column:
    """The first is the default."""
    hint = f"choose {' or '.join(choices)}"
    return _that(lambda value: value if value in choices else None, noun, hint, choices[0])


def _runs(value: object) -> tuple[Run, ...]:
    form = 'write [["0m", "1h", 0.7], ["10m", "90m", 0.3]]: offset to due, duration, probability'
    if not isinstance(value, list) or not value or len(value) > MOST_ROWS:
        raise ValueError(f"it is no list of 1 to {MOST_ROWS} rows; {form}")
    found = []
    for number, row in enumerate(value, 1):
        if not isinstance(row, list) or len(row) != 3:
            raise ValueError(f"row {number} has not three parts; {form}")
        offset_s, duration_s, probability = time_s(row[0], signed=True), time_s(row[1]), row[2]
        if math.isnan(offset_s):
            raise ValueError(f"row {number}: offset {shown(str(row[0]))} is no time; {form}")
        if not duration_s > 0:  # NaN too
            raise ValueError(f"row {number}: duration {shown(str(row[1]))} is no time above 0; {form}")
        if not (_number(probability) and 0 < probability <= 1):
            problem = f"{shown(str(probability))} is no probability"
            raise ValueError(f"row {number}: {problem}; write a number above 0, at most 1")
        found.append(Run(offset_s, duration_s, float(probability)))
    total = math.fsum(run.probability for run in found)
    if abs(total - 1.0) > PROBABILITY_ERROR:
        raise ValueError(f"the probabilities sum to {total:.4g}; make them sum to 1")
    return tuple(run._replace(probability=run.probability / total) for run in found)


def _due_s(value: Any, now_s: float) -> float:
    """UTC epoch of a date-time with its zone, of `+2h` from now, or of seconds as they are; NaN if it is none."""
    if isinstance(value, str):
        ahead = time_s(value[1:]) if value.startswith("+") else math.nan
        return now_s + ahead
    if _number(value):
        return float(value) if abs(value) <= 1e11 else math.nan
    if (
        hasattr(value, "timestamp") and value.tzinfo is not None
    ):  # a local one means another time on each machine
        return float(value.timestamp())
    return math.nan


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


DUE = 'write 2026-01-31T02:00:00Z (with its zone), or "+2h" from now'
RENAMED = {
    "due": "due_s", "every": "every_s", "deadline": "deadline_s", "licenses": "licences", "memory": "memory_bytes",
}  # fmt: skip
COLUMNS: dict[str, Column] = {
    "name": Column(Any, "", Is(made=_name, raw=True)),
    "cores": _that(_cores, "number of cores", "write a whole number from 1"),
    "gres": Column(Any, "", Is(made=partial(_asked, read_=gres_of), raw=True)),
    "licenses": Column(Any, "", Is(made=partial(_asked, read_=licences_of), raw=True)),
    "memory": Column(Any, 0, Is(made=bytes_of, raw=True)),
    "every": _that(time_s, "period", 'write "24h", or leave it out for a job that comes once', 0.0),
    "runs": Column(Any, NEEDED, Is(made=_runs, raw=True)),
    "value": _that(
        lambda value: float(value) if _number(value) and 0 < value <= MOST_VALUE else None,
        "value",
        f"write a number above 0, to {MOST_VALUE:g}",
    ),
    "shape": _one_of(SHAPES, "shape"),
    "deadline": _that(lambda value: time_s(value) or None, "time after due", 'write "4h" or the like'),
    "eviction": _one_of(EVICTIONS, "way"),
}
"""All keys but `due`, which may count from now."""


# ---------------------------------------------------------------------------------------------------------- writing


def _seconds(seconds: float) -> str:
    """The shortest of the forms that `time_s` reads, to the second."""
    whole = round(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def _basic(text: str) -> str:
    """A basic string of TOML; the text is printable, but may hold its marks."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

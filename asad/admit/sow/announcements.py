"""Statements of work as owners write them: TOML with times of the clock; and what the daemon is told of them.

A file has `version = 1` and one `[[statement]]` for each job to come:

    name = "nightly"                   # of the job; empty: it is known by its hint alone (asad:sow=NUMBER)
    cores = 8
    due = 2026-01-31T02:00:00Z         # when it is expected; also "+2h" from now
    every = "24h"                      # of a job that comes again: by so much later each time
    runs = [["0m", "1h", 0.7], ["10m", "90m", 0.3]]   # offset of its arrival to `due`, duration, probability
    value = 12.0                       # on the scale of the site's prices
    shape = "deadline"                 # all of it until the deadline; "linear": falling evenly to 0 there
    deadline = "4h"                    # after `due`, by which it must have ended to be of value
    eviction = "requeue-hold"          # or "cancel": what becomes of it if who was born earlier needs its cores

The text is a user's: hostile, and every problem in it is told with its place and the mend.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from asad.admit.hints import shown
from asad.bounded import toml_of
from asad.decisions import EVICTIONS
from asad.errors import ConfigError, UsageError
from asad.model import Json

SHAPES = ("deadline", "linear")
KEYS = ("name", "cores", "due", "every", "runs", "value", "shape", "deadline", "eviction")
NEEDED = ("cores", "due", "runs", "value", "deadline")
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

    def later(self, times: int) -> Announcement:
        """The same job, so many periods later."""
        return Announcement(
            self.name,
            self.cores,
            self.due_s + times * self.every_s,
            self.runs,
            self.value,
            self.shape,
            self.deadline_s,
            self.eviction,
            self.every_s,
        )

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
        }


class Fault(NamedTuple):
    """Something wrong with one statement."""

    key: str
    """Where; empty: of the statement as a whole."""
    problem: str
    mend: str


def announcement_of(plain: Mapping[str, Any], now_s: float) -> Announcement:
    """The announcement that `plain` holds, as of a table of the file or of `Announcement.to_json`.

    Raises UsageError with the first problem and its mend.
    """
    made = _checked(plain, now_s)
    if isinstance(made, Announcement):
        return made
    raise UsageError(_told(made[0]))


def read_announcements(text: str, path: str, now_s: float) -> list[Announcement]:
    """The statements of a file; `path` is only named in errors, and `now_s` is what `+2h` counts from.

    Raises ConfigError with file, line, statement and mend, of the first problem.
    """
    place = "".join(char if char.isprintable() else "?" for char in path)
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{place}: over {MOST_CHARACTERS // 1024} KiB; write several files")
    try:
        document = toml_of(text)
    except ValueError as error:  # of TOML, and of numbers and dates that Python refuses to read
        raise ConfigError(f"{place}: not TOML: {shown(str(error)[:200])}; mend what it names") from None
    lines = list(_lines(text))
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
        made = _checked(table, now_s)
        if isinstance(made, Announcement):
            found.append(made)
            continue
        fault = made[0]
        at = lines[number - 1] if len(lines) == len(tables) else {}
        line = at.get(fault.key, at.get(""))
        raise ConfigError(f"{place}{f':{line}' if line else ''}: statement {number}: {_told(fault)}")
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


def _told(fault: Fault) -> str:
    return f"{f'{fault.key}: ' if fault.key else ''}{fault.problem}; {fault.mend}"


def _checked(plain: Mapping[str, Any], now_s: float) -> Announcement | list[Fault]:
    """The announcement, or what is wrong."""
    faults = list(_faults_of_keys(plain))
    name: Any = plain.get("name", "")
    cores: Any = plain.get("cores")
    value: Any = plain.get("value")
    shape, eviction = plain.get("shape", SHAPES[0]), plain.get("eviction", EVICTIONS[0])
    if not isinstance(name, str) or not name.isprintable() or len(name) > MOST_NAME:
        faults.append(Fault("name", "it is no printable text", f"write at most {MOST_NAME} characters"))
    if "cores" in plain and not (_whole(cores) and 1 <= cores <= MOST_CORES):
        faults.append(Fault("cores", f"{_word(cores)} is no number of cores", "write a whole number from 1"))
    if "value" in plain and not (_number(value) and 0 < value <= MOST_VALUE):
        faults.append(
            Fault("value", f"{_word(value)} is no value", f"write a number above 0, to {MOST_VALUE:g}")
        )
    if shape not in SHAPES:
        faults.append(Fault("shape", f"{_word(shape)} is no shape", f"choose {' or '.join(SHAPES)}"))
    if eviction not in EVICTIONS:
        faults.append(Fault("eviction", f"{_word(eviction)} is no way", f"choose {' or '.join(EVICTIONS)}"))
    due_s = _due_s(plain.get("due"), now_s) if "due" in plain else 0.0
    if math.isnan(due_s):
        mend = 'write 2026-01-31T02:00:00Z (with its zone), or "+2h" from now'
        faults.append(Fault("due", f"{_word(plain.get('due'))} is no time", mend))
    every_s = time_s(plain.get("every", 0))
    if math.isnan(every_s):
        mend = 'write "24h", or leave it out for a job that comes once'
        faults.append(Fault("every", f"{_word(plain.get('every'))} is no period", mend))
    deadline_s = time_s(plain["deadline"]) if "deadline" in plain else 0.0
    if math.isnan(deadline_s) or (deadline_s <= 0 and "deadline" in plain):
        faults.append(
            Fault("deadline", f"{_word(plain['deadline'])} is no time after due", 'write "4h" or the like')
        )
    runs = _runs(plain.get("runs"), faults) if "runs" in plain else ()
    if faults:
        return faults
    return Announcement(
        name, int(plain["cores"]), due_s, runs, float(plain["value"]), shape, deadline_s, eviction, every_s
    )


def _faults_of_keys(plain: Mapping[str, Any]) -> Iterator[Fault]:
    for key in plain:
        if key not in KEYS:
            yield Fault(shown(str(key)), "unknown key", f"use {', '.join(KEYS)}")
    for key in NEEDED:
        if key not in plain:
            yield Fault("", f"`{key}` is missing", f"write {key} = … below its [[statement]]")


def _runs(value: object, faults: list[Fault]) -> tuple[Run, ...]:
    form = 'write [["0m", "1h", 0.7], ["10m", "90m", 0.3]]: offset to due, duration, probability'
    if not isinstance(value, list) or not value or len(value) > MOST_ROWS:
        faults.append(Fault("runs", f"it is no list of 1 to {MOST_ROWS} rows", form))
        return ()
    found = []
    for number, row in enumerate(value, 1):
        if not isinstance(row, list) or len(row) != 3:
            faults.append(Fault("runs", f"row {number} has not three parts", form))
            return ()
        offset_s, duration_s, probability = time_s(row[0], signed=True), time_s(row[1]), row[2]
        if math.isnan(offset_s):
            faults.append(Fault("runs", f"row {number}: offset {_word(row[0])} is no time", form))
        elif not duration_s > 0:  # NaN too
            faults.append(Fault("runs", f"row {number}: duration {_word(row[1])} is no time above 0", form))
        elif not (_number(probability) and 0 < probability <= 1):
            mend = "write a number above 0, at most 1"
            faults.append(Fault("runs", f"row {number}: {_word(probability)} is no probability", mend))
        else:
            found.append(Run(offset_s, duration_s, float(probability)))
            continue
        return ()
    total = math.fsum(run.probability for run in found)
    if abs(total - 1.0) > PROBABILITY_ERROR:
        faults.append(Fault("runs", f"the probabilities sum to {total:.4g}", "make them sum to 1"))
        return ()
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


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _word(value: object) -> str:
    return shown(str(value))


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


def _lines(text: str) -> Iterator[dict[str, int]]:
    """Of each `[[statement]]` the line (from 1) of its keys, and of its own as the empty key."""
    at: dict[str, int] | None = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if re.fullmatch(r"\[\[\s*statement\s*\]\]\s*(#.*)?", line):
            if at is not None:
                yield at
            at = {"": number}
        elif at is not None and "=" in line and not line.startswith("#"):
            at.setdefault(line.partition("=")[0].strip().strip("\"'"), number)
    if at is not None:
        yield at

"""One field of an accounting record → a value. Each parser raises BadValue, which says what to write."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from asad.cluster.slurm_json import UNIT_BYTES
from asad.replay.readers.accounting_log import BadValue, quoted

PARTITION_LIMIT = -1.0
"""Time limit of a job that asked for none: its partition's holds."""
MISSING = frozenset(
    {"", "none", "unknown", "n/a", "na", "nan", "nat", "<na>", "null", "(null)", "invalid", "none assigned"}
)
"""What stands for nothing, in lower case: as Slurm writes it, and as what has read and written a table again does."""
NO_NAME = frozenset({"", "unknown", "n/a", "(null)", "<na>"})
"""The same in columns of names: `none`, `null` or `na` can be a user's."""
FIRST_TIME_S = 2 * 86400.0
"""A date before it (1970-01-03) is what programs write for no time, in whatever zone."""
NOT_A_TIME = MISSING | {"0", "0.0"}
WHOLE = re.compile(r"\d{1,18}(?:\.0{0,9})?(?:[eE]\+?\d{1,2})?|\d(?:\.\d{1,15})?[eE]\+?\d{1,2}", re.ASCII)
DURATION = re.compile(
    r"(?:(?P<days>\d{1,6})(?:-| days? ))?(?:(?P<hours>\d{1,7}):)?"
    r"(?P<minutes>\d{1,8}):(?P<seconds>\d{1,9}(?:\.\d{1,9})?)",
    re.ASCII,
)
SECONDS = re.compile(r"\d{1,12}(?:\.\d{0,15})?(?:[eE]\+?\d)?", re.ASCII)
LOCAL_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?)\d{0,3} ?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
MEMORY = re.compile(r"(\d{1,20})(\.\d{1,9})?\s*([KMGTPE]?)(i?B?)([nc]?)", re.ASCII | re.IGNORECASE)
GRES = re.compile(r"[A-Za-z][\w-]{0,40}(?::[A-Za-z][\w.-]{0,60})?", re.ASCII)
START_FLAGS = {
    "schedsubmit": "SchedSubmit",
    "schedmain": "SchedMain",
    "schedbackfill": "SchedBackfill",
    "started_on_submit": "SchedSubmit",
    "started_on_schedule": "SchedMain",
    "started_on_backfill": "SchedBackfill",
}
"""Who started a job, in small letters, as sacct's text and its JSON have it → the former."""
Value = TypeVar("Value")


class Memo(dict[str, Value], Generic[Value]):
    """Field text → value, each text parsed once: accounting logs repeat themselves."""

    def __init__(self, parse: Callable[[str], Value]) -> None:
        super().__init__()
        self.parse = parse

    def __missing__(self, text: str) -> Value:
        value = self[text] = self.parse(text)
        return value


class ReservedMemory(NamedTuple):
    """What `ReqMem` says: `amount_bytes` `per` job, node or core (NaN if it does not say)."""

    amount_bytes: float
    per: str
    flagged: bool = False
    """Slurm's MEM_PER_CPU bit had leaked into the number."""


class Tres(NamedTuple):
    """`AllocTRES` and `ReqTRES`: 0 and NaN where a resource is not named."""

    cores: int
    nodes: int
    memory_bytes: float
    gres: str = ""
    """See `gres_text`."""


def time(text: str) -> float:
    """`2024-01-31T12:00:00[+0100]` or epoch seconds → UTC epoch seconds; NaN for Unknown, None and dates before
    `FIRST_TIME_S`.

    A time without a zone is taken as UTC. Small numbers are times, as in logs that were generated.
    """
    if len(text) == 19 and text[10] == "T":
        try:
            return dated(_DAY[text[:10]] + _CLOCK[text[11:]])
        except ValueError:
            pass
    text = text.strip()
    if text.lower() in NOT_A_TIME:
        return math.nan
    if SECONDS.fullmatch(text):
        return float(text)
    if match := LOCAL_TIME.fullmatch(text):
        try:
            moment = datetime.fromisoformat(match[1] + (match[2] or "").replace("UTC", "Z"))
            return dated((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            pass
    raise BadValue(
        f"{quoted(text)} is not a time",
        "write 2024-01-31T12:00:00, epoch seconds, or Unknown (unset SLURM_TIME_FORMAT)",
    )


def dated(seconds: float) -> float:
    """Epoch seconds of a date; NaN for one that stands for no time."""
    return seconds if seconds >= FIRST_TIME_S else math.nan


def is_local(text: str) -> bool:
    """Is it a time without a zone, which may be a local one?"""
    match = LOCAL_TIME.fullmatch(text.strip())
    return match is not None and not match[2]


def _day(date: str) -> float:
    return datetime.fromisoformat(date + "T00:00:00+00:00").timestamp()


def _clock(time_of_day: str) -> float:
    return datetime.fromisoformat(f"1970-01-01T{time_of_day}+00:00").timestamp()


_DAY: Memo[float] = Memo(_day)
_CLOCK: Memo[float] = Memo(_clock)


def duration(text: str) -> float:
    """`[D-]HH:MM:SS[.mmm]`, `MM:SS.mmm` or seconds → seconds; NaN if empty or Unknown."""
    match = DURATION.fullmatch(text)
    if match:
        days, hours, minutes, seconds = match.groups(default="0")
        if match["days"] is None or match["hours"] is not None:
            return 86400.0 * int(days) + 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds)
    text = text.strip()
    if SECONDS.fullmatch(text):
        return float(text)
    if text.lower() in NOT_A_TIME:
        return math.nan
    raise BadValue(f"{quoted(text)} is not a duration", "write [days-]hours:minutes:seconds, or seconds")


def time_limit(text: str) -> float:
    """`[D-]HH:MM:SS` → seconds; inf for UNLIMITED, PARTITION_LIMIT for Partition_Limit, NaN if empty."""
    word = text.strip().lower()
    if word in ("unlimited", "infinite"):
        return math.inf
    if word == "partition_limit":
        return PARTITION_LIMIT
    if SECONDS.fullmatch(word) and word != "0":
        raise BadValue(
            f"{quoted(text)} is no time limit: minutes or seconds?",
            "name the column TimelimitRaw for minutes, or write hours:minutes:seconds",
        )
    # a limit of 0 limits nothing
    return duration(word) or math.nan


def time_limit_minutes(text: str) -> float:
    """`TimelimitRaw`: minutes → seconds, and the words of `time_limit`."""
    word = text.strip()
    return 60.0 * float(word) or math.nan if SECONDS.fullmatch(word) else time_limit(word)


def count(text: str) -> int:
    """A number of cores or nodes; 0 if missing.

    Old sacct writes 2K for 2048; what has read a table with gaps writes 4 as 4.0.
    """
    if text.isdecimal() and text.isascii() and len(text) <= 10 and int(text) < 2**31:
        return int(text)
    word = text.strip()
    if word.lower() in MISSING:
        return 0
    if re.fullmatch(r"\d{1,6}[Kk]", word, re.ASCII):
        return 1024 * int(word[:-1])
    if not WHOLE.fullmatch(word) or not float(word).is_integer():
        raise BadValue(f"{quoted(text)} is not a whole number", "write one, like 4")
    if float(word) >= 2**31:
        raise BadValue(f"{quoted(text)} is not a number below 2^31", "check the number")
    return int(float(word))


def priority(text: str) -> float:
    """`Priority`: a number of 0 and more; NaN if missing."""
    word = text.strip()
    if WHOLE.fullmatch(word):
        return float(word)
    if word.lower() in MISSING:
        return math.nan
    raise BadValue(f"{quoted(text)} is not a priority", "write a whole number, like 4294901759")


def memory(text: str, *, rounded: bool = False) -> float:
    """`128G`, `2800M`, `64000` (mebibytes) → bytes; units are powers of 1024.

    Of what sacct has `rounded` it is the least that is printed so.
    """
    match = MEMORY.fullmatch(text.strip())
    if not match or match[5]:
        raise BadValue(f"{quoted(text)} is not an amount of memory", "write it like 128G or 64000M")
    number = _least_amount(match[1], match[2]) if rounded else float(match[1] + (match[2] or ""))
    return number * UNIT_BYTES[match[3].upper()]


def _least_amount(whole: str, fraction: str | None) -> float:
    """The least number that is printed so: `sacct --units=G` rounds to two digits (503.24), and half of the last one
    more than a node has would keep a job from it."""
    if (
        fraction is None or fraction == ".0"
    ):  # which is how programs write whole numbers, not how sacct rounds
        return float(whole)
    return max(0.0, float(whole + fraction) - 0.5 * 10.0 ** -(len(fraction) - 1))


def requested_memory(text: str) -> ReservedMemory:
    """`ReqMem`: with `n` per node, with `c` per core, with neither per job (Slurm 21.08 and later).

    Some versions of sacct print Slurm's MEM_PER_CPU flag (2^31 or 2^63) as part of the megabytes:
    `2147486448Mn` is 2800 MiB per core. 0 means all of a node's memory, however much that is: not recorded.
    """
    match = MEMORY.fullmatch(text.strip())
    if not match:
        if text.strip().strip("?").lower() in MISSING:
            return ReservedMemory(math.nan, "job")
        raise BadValue(
            f"{quoted(text)} is not an amount of memory", "write it like 4G, 4Gn (per node) or 4Gc (per core)"
        )
    whole, fraction, unit, _, suffix = match.groups()
    per = {"n": "node", "c": "core", "": "job"}[suffix.lower()]
    if fraction is None and unit.upper() in ("", "M"):
        megabytes, flagged = per_core_flag(int(whole))
        if flagged:
            return ReservedMemory(megabytes * 2.0**20 or math.nan, "core", flagged=True)
    amount = _least_amount(whole, fraction) * UNIT_BYTES[unit.upper()]
    return ReservedMemory(amount or math.nan, per)


def per_core_flag(megabytes: int) -> tuple[int, bool]:
    """Megabytes without Slurm's MEM_PER_CPU flag (bit 63, or 31 in old databases), and whether it was set."""
    for flag in (2**63, 2**31):
        if flag <= megabytes < 2 * flag and megabytes - flag < 2**31:
            return megabytes - flag, True
    return megabytes, False


def gres_text(amounts: Mapping[str, int]) -> str:
    """`gpu:a100:2,gpu:1` of {"gpu": 3, "gpu:a100": 2}: a gres has what is of no type. Odd names count none."""
    found = {name: amount for name, amount in amounts.items() if GRES.fullmatch(name) and 0 < amount < 10**6}
    for name in [name for name in found if ":" in name]:
        family = name.partition(":")[0]
        if family in found:
            found[family] -= found[name]
    return ",".join(f"{name}:{amount}" for name, amount in sorted(found.items(), reverse=True) if amount > 0)


def tres(text: str) -> Tres:
    """`cpu=12,mem=48000M,node=1,gres/gpu=2` → cores, nodes, memory and gres."""
    cores, nodes, memory_bytes, gres = 0, 0, math.nan, dict[str, int]()
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if not equals:
            if part.strip():
                raise BadValue(
                    f"{quoted(text)} is not a list of resources", "write it like cpu=4,mem=8G,node=1"
                )
        elif name == "cpu":
            cores = count(amount)
        elif name == "node":
            nodes = count(amount)
        elif name == "mem":
            memory_bytes = memory(amount, rounded=True) or math.nan
        elif name.startswith("gres/") and amount.isascii() and amount.isdecimal():
            gres[name[5:]] = int(amount[:7])
    return Tres(cores, nodes, memory_bytes, gres_text(gres) if gres else "")


def state(text: str) -> str:
    """`CANCELLED by 0`, `CANCELLED+` → CANCELLED."""
    if text.strip().lower() in MISSING:
        return ""
    word = text.split(" ", 1)[0].rstrip("+").upper()
    if word and not word.replace("_", "").isalpha():
        raise BadValue(f"{quoted(text)} is not a state", "write COMPLETED, FAILED, TIMEOUT, …")
    return word


def reason(text: str) -> str:
    """`Reason`, Slurm's word for why a job waited; empty if there was none."""
    return "" if text.strip().lower() in MISSING else text.strip()


def start_flag(text: str) -> str:
    """Of `Flags` the one that says who started a job: `SchedBackfill` of `SchedBackfill,StartReceived`, or as JSON has
    it `STARTED_ON_BACKFILL`; empty if none does."""
    return next((START_FLAGS[word] for word in re.findall(r"\w+", text.lower()) if word in START_FLAGS), "")


def name(text: str) -> str:
    """A user's, partition's or cluster's name as it stands; empty if it is missing."""
    return "" if text.strip().lower() in NO_NAME else text


def name_in_csv(text: str) -> str:
    """The same in CSV, where programs write `NaN` and `nan` for what is missing."""
    return "" if text in ("NaN", "nan") else name(text)

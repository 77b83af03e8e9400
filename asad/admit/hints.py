"""What a user writes for asad about a job (Slurm: `--comment='asad:utility=sigmoid(10,0.5,20m);workers=8'`), as words;
and the rules of the configuration for those who write none.

Words are separated by `;`. Those that mean nothing here belong to others (`no`, `memory-bound`) and are passed over.
The text is hostile: its length is bounded, and what a message repeats of it is short and printable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from asad.bounded import shown

MOST_CHARACTERS = 1000
MOST_WORKERS = 1_000_000
WORKERS_PER_SERVER = 5.0
"""Of jobs that do not give it. In section V of the OASiS paper a parameter server has 5 to 20 Gbit/s and a worker 0.1
to 5: in the mean one serves 4.9."""


class Hint(NamedTuple):
    """The words that admission knows."""

    utility: str = ""
    """What the job is worth by the time it took, in the language of `asad.admit.utility`; empty for none."""
    workers: int = 0
    """Most tasks of the array at one time; 0 for no bound."""
    parameter_servers: str = ""
    """Name or number of the companion array whose tasks are its parameter servers; empty for none."""
    workers_per_server: float = WORKERS_PER_SERVER
    """How many workers one parameter server serves, at least 1 (B/b of the paper)."""
    by_rule: bool = False
    """The utility is that of a rule of the configuration; its user gave none."""


class Rule(NamedTuple):
    """A utility for jobs that have none; the first rule that fits holds."""

    utility: str = ""
    """Must be given: what such a job is worth, written as in a hint: `"sigmoid(10, 0.5, 20m)"`."""
    users: tuple[str, ...] = ()
    """Patterns of names of users; empty: any."""
    names: tuple[str, ...] = ()
    """Patterns of names of jobs; empty: any."""
    partitions: tuple[str, ...] = ()
    """Patterns of partitions, of which one of a job's is enough; empty: any. They fit nobody where the cluster
    reports none."""
    qos: tuple[str, ...] = ()
    """Patterns of QOS; empty: any. They fit nobody where the cluster reports none."""
    arrays: bool = True
    """Does it hold for job arrays?"""
    rigid: bool = True
    """Does it hold for jobs that are none?"""

    def fits(self, application: str, partitions: str, qos: str, *, array: bool) -> bool:
        """Does it hold for a job of this application (`user/name/size`), in one of these partitions?"""
        user, _, rest = application.partition("/")
        whose = _fits_any(user, self.users) and _fits_any(rest.rpartition("/")[0], self.names)
        where = _fits_any(qos, self.qos) and (
            not self.partitions or any(_fits_any(part, self.partitions) for part in partitions.split(","))
        )
        return (self.arrays if array else self.rigid) and whose and where


def read_hint(text: str) -> Hint:
    """The words of `text`. Raises ValueError with a sentence that says what is wrong and how to correct it."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the hint is longer than {MOST_CHARACTERS} characters; shorten it")
    found: dict[str, str] = {}
    for word in text.split(";"):
        key, equals, value = word.strip().partition("=")
        key = key.strip().removeprefix("asad:")
        if not equals or key not in ("utility", "workers", "ps"):
            continue
        if key in found:
            raise ValueError(f"{key} is given twice; give it once")
        if not value.strip():
            raise ValueError(f"{key} is empty; write {key}=… or leave it out")
        found[key] = value.strip()
    workers = found.get("workers", "0")
    # int() would take other scripts' digits too
    if not (workers.isascii() and workers.isdigit() and len(workers) <= 12) or int(workers) > MOST_WORKERS:
        raise ValueError(f"workers={shown(workers)} is no number up to {MOST_WORKERS}; write workers=8")
    if "workers" in found and int(workers) == 0:
        raise ValueError("workers=0 is none; leave it out for no bound")
    return Hint(found.get("utility", ""), int(workers), *_companion(found.get("ps", "")))


def _companion(text: str) -> tuple[str, float]:
    """`NAME` or `NAME:RATIO`. Raises ValueError."""
    name, colon, ratio = text.rpartition(":")
    if not colon:
        return text, WORKERS_PER_SERVER
    try:
        served = float(ratio) if ratio.isascii() else math.nan
    except ValueError:
        served = math.nan
    if not name.strip() or not 1.0 <= served <= MOST_WORKERS:
        raise ValueError(
            f"ps={shown(text)} is no name with the number of workers that one parameter server serves (1 or more); "
            "write ps=NAME or ps=NAME:4"
        )
    return name.strip(), served


def _fits_any(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

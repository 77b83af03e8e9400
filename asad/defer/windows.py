"""Who is deferrable on a cluster, and when it may start: the windows of jobs that wait.

A job is deferrable

- if it has both a begin time and a deadline of its own (Slurm: `--begin`, `--deadline`): it may start from the one to
  the other less its time limit, beyond which Slurm cancels it;
- if its user says so in a hint, `asad:deferrable=4h` (Slurm: `--comment`): it may start so long after its submission;
- if a rule of the configuration fits it.

It needs a time limit: without one nobody knows how long it holds what it is given. Hints are hostile text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(s|m|h|d)?", re.ASCII)
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
MOST_WINDOW_S = 365 * 86_400.0
WORD = "deferrable"


class Rule(NamedTuple):
    """A window for jobs that have none of their own; the first rule that fits holds."""

    window_s: float = 0.0
    """Must be given: the latest start is so long after submission, or after the begin time if there is one; at most a
    year."""
    users: tuple[str, ...] = ()
    """Patterns of names of users; empty: any."""
    names: tuple[str, ...] = ()
    """Patterns of names of jobs; empty: any."""
    partitions: tuple[str, ...] = ()
    """Patterns of partitions, of which one of a job's is enough; empty: any. They fit nobody where the cluster
    reports none."""
    qos: tuple[str, ...] = ()
    """Patterns of QOS; empty: any. They fit nobody where the cluster reports none."""

    def fits(self, application: str, partitions: str, qos: str) -> bool:
        """Does it hold for a job of this application (`user/name/size`), in one of these partitions?"""
        user, _, rest = application.partition("/")
        whose = _fits_any(user, self.users) and _fits_any(rest.rpartition("/")[0], self.names)
        where = not self.partitions or any(_fits_any(one, self.partitions) for one in partitions.split(","))
        return whose and where and _fits_any(qos, self.qos)


class Window(NamedTuple):
    """When a job may start (s, of the cluster's clock)."""

    earliest_s: float
    latest_s: float
    why: str
    """What makes it deferrable, in a few words."""


def window_of(
    *,
    submit_s: float,
    begin_s: float,
    deadline_s: float,
    needs_s: float,
    hint: str,
    rule: Rule | None,
    deadline_alone: bool,
) -> Window | None:
    """The window of a job, None if it is not deferrable.

    `begin_s` and `deadline_s` are its user's own, NaN for none; `needs_s` what it asks for from its start to its end;
    `rule` the one that fits it. With `deadline_alone` a deadline without a begin time is enough.
    """
    if not 0.0 < needs_s < math.inf:
        return None
    earliest_s = max(submit_s, begin_s) if begin_s > submit_s else submit_s
    by_deadline_s = deadline_s - needs_s
    asked_s = read_window(hint)
    if not math.isnan(asked_s):
        latest_s, why = earliest_s + asked_s, "its user says that it is deferrable"
    elif not math.isnan(deadline_s) and (not math.isnan(begin_s) or deadline_alone):
        latest_s, why = by_deadline_s, "it has a begin time and a deadline"
        if math.isnan(begin_s):
            why = "it has a deadline"
    elif rule is not None:
        latest_s, why = earliest_s + rule.window_s, "a rule says that it is deferrable"
    else:
        return None
    if latest_s > by_deadline_s:  # never of NaN
        latest_s = by_deadline_s
    return Window(earliest_s, latest_s, why)


def read_window(hint: str) -> float:
    """Seconds that `deferrable=4h` gives among the words of a hint; NaN if it gives none that can be read."""
    if WORD not in hint:
        return math.nan
    for word in hint.split(";"):
        key, equals, value = word.strip().partition("=")
        if equals and key.strip().removeprefix("asad:") == WORD:
            return read_duration(value)
    return math.nan


def read_duration(text: str) -> float:
    """`90s`, `20m`, `1.5h`, `2d` or seconds, above 0 and at most a year; NaN if it is none of these."""
    found = DURATION.fullmatch(text.strip())
    if found is None:
        return math.nan
    length_s = float(found[1]) * SECONDS[found[2] or ""]
    return length_s if 0.0 < length_s <= MOST_WINDOW_S else math.nan


def _fits_any(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

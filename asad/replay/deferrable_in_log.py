"""Which jobs of a log are deferrable, by their own word or because it is assumed, and what a schedule makes of them.

A log seldom has begin times and deadlines. A job's comment may (`asad:deferrable=4h`); else some can be declared
deferrable, which is an assumption and is reported as one. Of a job array all tasks are, or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.defer.windows import read_duration, read_window
from asad.errors import UsageError
from asad.model import Floats, Ints, JobLog
from asad.replay.worth import rows_of

KEYS = ("share", "window", "user", "partition")
EXAMPLE = "write for example --deferrable 'share=0.2,window=4h'"


class Declared(NamedTuple):
    """Some jobs of a log, declared deferrable."""

    window_s: float
    """Latest start, so long after the submission."""
    share: float = 1.0
    """Part of the jobs that are meant, drawn."""
    column: str = ""
    """`user`, `partition` or empty: all jobs."""
    name: str = ""


def read_declared(text: str) -> Declared:
    """`window=4h[,share=0.2][,user=NAME|,partition=NAME]`. Raises UsageError if it cannot be read."""
    found: dict[str, str] = {}
    for word in text.split(","):
        key, equals, value = word.strip().partition("=")
        if not equals or key not in KEYS or not value.strip():
            raise UsageError(
                f"--deferrable {text}: {word.strip()!r} is no KEY=VALUE of {', '.join(KEYS)}; {EXAMPLE}"
            )
        if key in found:
            raise UsageError(f"--deferrable {text}: {key} is given twice; give it once")
        found[key] = value.strip()
    window_s = read_duration(found.get("window", ""))
    if math.isnan(window_s):
        raise UsageError(
            f"--deferrable {text}: there is no window, or it is no time of at most a year; {EXAMPLE}"
        )
    try:
        share = float(found.get("share", "1"))
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise UsageError(f"--deferrable {text}: share is no number above 0 and at most 1; {EXAMPLE}")
    if "user" in found and "partition" in found:
        raise UsageError(f"--deferrable {text}: give user or partition, and the option twice for both")
    column = next((key for key in ("user", "partition") if key in found), "")
    return Declared(window_s, share, column, found.get(column, ""))


@dataclass(frozen=True, slots=True)
class Deferrable:
    """The deferrable jobs of a log; columns are (jobs,)."""

    rows: NDArray[np.bool_]
    latest_s: Floats
    """Latest start, NaN of the others."""
    deadline_s: Floats
    """By which those that were declared have ended if they run for all of their time limit; NaN of the others."""
    stated: int
    """How many say it themselves."""
    assumed: int
    """How many were declared."""

    def figures(
        self, submit_s: Floats, start_s: Floats, cores: Ints, done_s: Floats, capacity_core_s: float
    ) -> dict[str, float | int | None]:
        """The figures of one schedule.

        `deferrable` is how many they are, `missed` how many of them started after their latest start,
        `deferrable_delay_mean_s` the mean of start - submit over them and `on_demand_wait_mean_s`, `_p95_s` the same
        over all others; `deferrable_utilization` the work of those that did not miss it, over the `capacity_core_s`.
        """
        mine, wait_s = self.rows, start_s - submit_s
        late = np.zeros(len(mine), np.bool_)
        late[mine] = start_s[mine] > self.latest_s[mine] + 1e-6
        done = float((cores * done_s)[mine & ~late].sum())
        others = wait_s[~mine]
        return {
            "deferrable": int(mine.sum()),
            "missed": int(late.sum()),
            "deferrable_delay_mean_s": float(wait_s[mine].mean()) if mine.any() else None,
            "deferrable_utilization": done / capacity_core_s if capacity_core_s else None,
            "on_demand_wait_mean_s": float(others.mean()) if len(others) else None,
            "on_demand_wait_p95_s": float(np.percentile(others, 95)) if len(others) else None,
        }


def deferrable_of(
    jobs: JobLog, limit_s: Floats, array: Ints, declared: Sequence[Declared], seed: int
) -> Deferrable:
    """Who of a log is deferrable. Nobody without a time limit is; who says it himself is not declared besides."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0xDE)))
    count = len(jobs)
    # tasks of an array go together: each takes the draw of its first one
    lead = np.arange(count)
    first: dict[int, int] = {}
    for row in np.flatnonzero(array >= 0).tolist():
        lead[row] = first.setdefault(int(array[row]), row)
    window_s = np.full(count, np.nan)
    if jobs.hint is not None:
        codes = np.array([read_window(text) for text in jobs.hints] or [math.nan])
        window_s = np.where(jobs.hint >= 0, codes[jobs.hint], np.nan)[lead]
    limited = (np.isfinite(limit_s) & (limit_s > 0))[lead]
    stated = ~np.isnan(window_s) & limited
    assumed = np.zeros(count, np.bool_)
    for one in declared:
        meant = rng.random(count)[lead] < one.share
        if one.column and one.name not in getattr(jobs, f"{one.column}s"):
            raise UsageError(f"--deferrable: the log has no {one.column} {one.name!r:.60}; check the name")
        meant &= rows_of(jobs, one.column, one.name)[lead]
        meant &= limited & ~stated & ~assumed
        window_s[meant] = one.window_s
        assumed |= meant
    rows = stated | assumed
    window_s[~rows] = np.nan
    latest_s = jobs.submit_s[lead] + window_s
    deadline_s = np.where(assumed, latest_s + limit_s[lead], np.nan)
    return Deferrable(rows, latest_s, deadline_s, int(stated.sum()), int(assumed.sum()))

"""Statements of work from history: jobs that come again, when they come and how long they run.

A recurring job is one user's jobs of one name, one number of cores and the same gres that keep a period. From its past
runs:

- the period: the median gap, each gap divided by the number of periods that it spans, then the median slope of arrival
  against number of the run (Theil and Sen), snapped to an hour, a day and the like where it is within 2 % of one;
- the offset of each arrival to the nearest expected time, and the duration of each run, both as they were: the joint
  empirical distribution of the newest runs, thinned to a few rows;
- whether that can be relied on: `regular` if most expected times had a run and the offsets are small against the
  period, and a calibration: for the last part of the runs, each foreseen from those before it alone, how many fell at
  or below the quantiles that were foreseen. A quantile of 0.9 that 90 % of the runs keep is calibrated.

Quantiles are at k/(n+1) of the sorted sample (Weibull): one more run of the same kind falls at or below with just that
chance. Cost: O(jobs·log jobs) to group them, O(newest²) for each group and run that is held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from asad.admit.sow.announcements import Announcement, Run
from asad.decisions import EVICTIONS
from asad.model import Floats, Ints, JobLog, Json

LEAST_RUNS = 8
"""A job that has come less often is no recurring one yet."""
NEWEST = 50
"""So many runs are looked at, the newest: habits change."""
HELD_OUT = 0.3
"""Part of the runs, the last ones, that are foreseen and not learned from in the calibration."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
MOST_SPREAD = 0.15
"""Offsets of a regular job: their robust deviation (1.4826 MAD) over the period."""
MOST_WIDE = 0.5
"""Offsets of a regular job: from the 10 % to the 90 % quantile, over the period. What comes by chance is wide."""
LEAST_COVERED = 0.5
"""Expected times of a regular job that had a run."""
MOST_DOUBLE = 0.1
"""Runs of a regular job that share their expected time with another."""
LEAST_PERIOD_S = 60.0
"""What comes more often is a burst of jobs, and none that could be announced."""
NATURAL_S = (
    *(60.0 * m for m in (1, 2, 5, 10, 15, 20, 30)),
    *(3600.0 * h for h in (1, 2, 3, 4, 6, 8, 12)),
    *(86_400.0 * d for d in (1, 2, 7, 14, 28)),
)
SNAP = 0.02
TAIL = 1.5
"""One more run lasts longer than all n before it with a chance of 1/(n+1); it is then stated as so many times the
longest."""
OFFSET_ROWS, DURATION_ROWS = 6, 4
"""A distribution is thinned to so many offsets, with so many durations each."""


class Rhythm(NamedTuple):
    """When a job comes: at `anchor_s` and every `period_s` from there."""

    period_s: float
    anchor_s: float
    spread: float
    """Robust deviation of the offsets over the period."""
    wide: float
    """From the 10 % to the 90 % quantile of the offsets, over the period."""
    covered: float
    """Part of the expected times between the first and the last run that had one."""
    double: float
    """Part of the runs that share an expected time with an earlier one."""

    @property
    def fault(self) -> str:
        """Why it cannot be relied on; the empty string if it can."""
        if self.period_s < LEAST_PERIOD_S:
            return "its runs follow each other within a minute"
        if self.spread > MOST_SPREAD or self.wide > MOST_WIDE:
            return "it keeps no period"
        if self.covered < LEAST_COVERED:
            return "most of its expected times had no run"
        return "several of its runs come at one time" if self.double > MOST_DOUBLE else ""

    @property
    def regular(self) -> bool:
        """Can it be relied on?"""
        return not self.fault

    def turn(self, time_s: float | Floats) -> Floats:
        """Number of the expected time nearest to `time_s`."""
        return np.round((np.asarray(time_s, np.float64) - self.anchor_s) / self.period_s)

    def offset_s(self, time_s: float | Floats) -> Floats:
        """How much later than the nearest expected time."""
        return np.asarray(time_s, np.float64) - self.anchor_s - self.turn(time_s) * self.period_s

    def due_s(self, turn: float) -> float:
        """The expected time of that number."""
        return self.anchor_s + turn * self.period_s


@dataclass(frozen=True, slots=True)
class Calibration:
    """How what was foreseen compares with what came; Q quantiles."""

    runs: int = 0
    """Runs that were foreseen."""
    offset: tuple[int, ...] = (0,) * len(QUANTILES)
    duration: tuple[int, ...] = (0,) * len(QUANTILES)
    """(Q,) how many of them were at or below the quantile that was foreseen."""

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration(
            self.runs + other.runs,
            tuple(a + b for a, b in zip(self.offset, other.offset, strict=True)),
            tuple(a + b for a, b in zip(self.duration, other.duration, strict=True)),
        )

    def to_json(self) -> dict[str, Json]:
        """Parts of the runs by quantile; null where nothing was foreseen."""

        def parts(counts: tuple[int, ...]) -> list[Json]:
            return [count / self.runs if self.runs else None for count in counts]

        return {
            "runs": self.runs,
            "quantiles": list(QUANTILES),
            "offset": parts(self.offset),
            "duration": parts(self.duration),
        }


@dataclass(frozen=True, slots=True)
class Recurring:
    """One job that comes again."""

    user: str
    name: str
    cores: int
    runs: int
    """In the log, of which the newest are behind the rest."""
    rhythm: Rhythm
    offset_s: Floats
    duration_s: Floats
    """(n,) of the newest runs, oldest first."""
    last_s: float
    """Its last arrival."""
    calibration: Calibration
    gres: str = ""
    """As `--gres` of Slurm is written, over all of its nodes."""

    def next_due_s(self, now_s: float) -> float:
        """The first expected time that is after `now_s` and after the run that came last."""
        turn = max(
            float(self.rhythm.turn(self.last_s)) + 1.0,
            math.floor((now_s - self.rhythm.anchor_s) / self.rhythm.period_s) + 1.0,
        )
        return self.rhythm.due_s(turn)

    def announce(self, due_s: float, value_per_core_hour: float) -> Announcement:
        """The run that is due then; of value until the next one is due."""
        one = announced(
            self.name,
            self.cores,
            due_s,
            self.rhythm.period_s,
            self.offset_s,
            self.duration_s,
            value_per_core_hour,
        )
        return replace(one, gres=self.gres)

    def to_json(self) -> dict[str, Json]:
        """The figures behind it, without the runs."""
        at = np.quantile(self.offset_s, QUANTILES, method="weibull").tolist()
        takes = np.quantile(self.duration_s, QUANTILES, method="weibull").tolist()
        return {
            "user": self.user,
            "name": self.name,
            "cores": self.cores,
            **({"gres": self.gres} if self.gres else {}),
            "runs": self.runs,
            "period_s": self.rhythm.period_s,
            "anchor_s": self.rhythm.anchor_s,
            "spread": self.rhythm.spread,
            "covered": self.rhythm.covered,
            "last_s": self.last_s,
            "offset_quantiles_s": at,
            "duration_quantiles_s": takes,
            "calibration": self.calibration.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Inferred:
    """What was found in a log."""

    recurring: tuple[Recurring, ...]
    """Regular ones, those that use most core-seconds first."""
    jobs: int
    """Jobs that were looked at."""
    covered_jobs: int
    """Of them, runs of recurring jobs."""
    covered_core_s: float
    core_s: float
    """Core-seconds of the recurring ones, and of all."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Why groups of `LEAST_RUNS` and more are not recurring → how many."""

    @property
    def calibration(self) -> Calibration:
        """Over all of them."""
        return sum((one.calibration for one in self.recurring), Calibration())


def infer(log: JobLog, least_runs: int = LEAST_RUNS) -> Inferred:
    """The recurring jobs of an accounting log, those with at least `least_runs` runs (4 or more)."""
    found: list[tuple[float, Recurring]] = []
    rejected: dict[str, int] = {}
    covered_jobs, covered_core_s = 0, 0.0
    for user, name, rows in _groups(log, least_runs, by_gres=True):
        arrival_s, run_s = log.submit_s[rows], log.run_s[rows]
        rhythm = rhythm_of(arrival_s[-NEWEST:])
        why = "its runs were submitted at one time" if rhythm is None else rhythm.fault
        if rhythm is None or why:
            rejected[why] = rejected.get(why, 0) + 1
            continue
        core_s = float(log.cores[rows[0]]) * float(run_s.sum())
        covered_jobs, covered_core_s = covered_jobs + len(rows), covered_core_s + core_s
        one = Recurring(
            user=user,
            name=name,
            cores=int(log.cores[rows[0]]),
            runs=len(rows),
            rhythm=rhythm,
            offset_s=rhythm.offset_s(arrival_s[-NEWEST:]),
            duration_s=run_s[-NEWEST:].copy(),
            last_s=float(arrival_s[-1]),
            calibration=calibrated(arrival_s, run_s),
            gres="" if log.gres is None or log.gres[rows[0]] < 0 else log.gres_texts[log.gres[rows[0]]],
        )
        found.append((core_s, one))
    found.sort(key=lambda pair: (-pair[0], pair[1].user, pair[1].name, pair[1].cores, pair[1].gres))
    core_s = float((log.cores * log.run_s).sum())
    return Inferred(tuple(one for _, one in found), len(log), covered_jobs, covered_core_s, core_s, rejected)


class Foreseen(NamedTuple):
    """A statement that could have been made at the time, from runs that had ended by then alone."""

    user: str
    birth_s: float
    announcement: Announcement


def foresee(log: JobLog, value_per_core_hour: float = 1.0, least_runs: int = LEAST_RUNS) -> list[Foreseen]:
    """For a replay: what would have been announced as the log went on, in order of birth.

    At each arrival of a job that was regular by then its next run is announced, from the runs that had ended. Without
    gres, of which a replayed cluster has none.
    """
    found: list[Foreseen] = []
    for user, name, rows in _groups(log, least_runs + 1):
        arrival_s, run_s = log.submit_s[rows], log.run_s[rows]
        start_s = log.start_s[rows]
        end_s = np.where(np.isnan(start_s), arrival_s, start_s) + run_s
        for at in range(least_runs, len(rows)):
            now_s = float(arrival_s[at])
            rhythm = rhythm_of(arrival_s[max(0, at + 1 - NEWEST) : at + 1])
            known = np.flatnonzero(end_s[:at] <= now_s)[-NEWEST:]
            if rhythm is None or not rhythm.regular or len(known) < least_runs:
                continue
            due_s = rhythm.due_s(float(rhythm.turn(now_s)) + 1.0)
            if due_s <= now_s:
                continue
            statement = announced(
                name,
                int(log.cores[rows[0]]),
                due_s,
                rhythm.period_s,
                rhythm.offset_s(arrival_s[known]),
                run_s[known],
                value_per_core_hour,
            )
            found.append(Foreseen(user, now_s, statement))
    found.sort(key=lambda one: (one.birth_s, one.user, one.announcement.name, one.announcement.cores))
    return found


def rhythm_of(arrival_s: Floats) -> Rhythm | None:
    """The period and phase of arrivals (n,) in order; None if there are too few, or all at one time."""
    if len(arrival_s) < 4:
        return None
    gap = np.diff(arrival_s)
    period = float(np.median(gap))
    if period <= 0:
        return None
    for _ in range(3):
        spans = np.round(gap / period)
        whole = spans >= 1
        if not whole.any():
            return None
        period = float(np.median(gap[whole] / spans[whole]))
    turn = np.concatenate(([0.0], np.cumsum(np.round(gap / period))))
    first, second = np.triu_indices(len(turn), 1)
    apart = turn[second] - turn[first]
    slope = (arrival_s[second] - arrival_s[first])[apart > 0] / apart[apart > 0]
    if len(slope):
        period = float(np.median(slope))
    period = _snapped(period)
    turn = np.round((arrival_s - arrival_s[0]) / period)
    for _ in range(2):  # the first arrival may itself be an early or a late one
        anchor = float(np.median(arrival_s - turn * period))
        turn = np.round((arrival_s - anchor) / period)
    offset = arrival_s - anchor - turn * period
    spread = 1.4826 * float(np.median(np.abs(offset - np.median(offset)))) / period
    low, high = np.quantile(offset, (0.1, 0.9))
    distinct = len(np.unique(turn))
    covered = distinct / float(turn[-1] - turn[0] + 1.0)
    return Rhythm(period, anchor, spread, float(high - low) / period, covered, 1.0 - distinct / len(turn))


def calibrated(arrival_s: Floats, run_s: Floats, held_out: float = HELD_OUT) -> Calibration:
    """Foresee the last part of the runs (n,), each from those before it, and compare."""
    total = Calibration()
    for at in range(max(4, len(arrival_s) - math.ceil(held_out * len(arrival_s))), len(arrival_s)):
        past = slice(max(0, at - NEWEST), at)
        rhythm = rhythm_of(arrival_s[past])
        if rhythm is None:
            continue
        offsets = np.quantile(rhythm.offset_s(arrival_s[past]), QUANTILES, method="weibull")
        durations = np.quantile(run_s[past], QUANTILES, method="weibull")
        came = float(rhythm.offset_s(arrival_s[at]))
        total += Calibration(
            1,
            tuple(int(came <= value) for value in offsets.tolist()),
            tuple(int(run_s[at] <= value) for value in durations.tolist()),
        )
    return total


def announced(
    name: str,
    cores: int,
    due_s: float,
    period_s: float,
    offset_s: Floats,
    duration_s: Floats,
    value_per_core_hour: float,
) -> Announcement:
    """The announcement of one run. It is worth its mean core-hours until the next one is due.

    That a job is worth what it uses, and until the next comes, is an assumption: owners change it.
    """
    hours = cores * float(duration_s.mean()) / 3600.0
    return Announcement(
        name=name,
        cores=cores,
        due_s=due_s,
        runs=rows_of(offset_s, duration_s),
        value=max(1e-6, hours * value_per_core_hour),
        shape="deadline",
        deadline_s=max(period_s, float(offset_s.max() + duration_s.max())),
        eviction=EVICTIONS[0],
        every_s=period_s,
    )


def rows_of(offset_s: Floats, duration_s: Floats) -> tuple[Run, ...]:
    """The joint sample (n,), (n,) as a few rows: groups of like runs, each stated as its latest and its longest.

    What is planned for an arrival holds for any before it, and what is held for a duration for any shorter one. A run
    that lasts longer than all that were has a row of its own: who states that nothing of the kind may happen, and it
    does, pays dearly for rounds that are sold.
    """
    order = np.argsort(offset_s, kind="stable")
    rows: dict[tuple[float, float], float] = {}
    longer_s = float(math.ceil(TAIL * float(duration_s.max())))
    total = len(order) + 1.0
    for part in np.array_split(order, min(OFFSET_ROWS, len(order))):
        latest_s = round(float(offset_s[part].max()))
        rows[float(latest_s), longer_s] = rows.get((float(latest_s), longer_s), 0.0) + len(part) / len(order)
        by_length = part[np.argsort(duration_s[part], kind="stable")]
        for piece in np.array_split(by_length, min(DURATION_ROWS, len(by_length))):
            key = float(latest_s), float(max(1, math.ceil(float(duration_s[piece].max()))))
            rows[key] = rows.get(key, 0.0) + len(piece)
    return tuple(Run(*key, count / total) for key, count in sorted(rows.items()))


def _snapped(period_s: float) -> float:
    """The natural period that is near, or the period itself."""
    nearest = min(NATURAL_S, key=lambda natural: abs(period_s / natural - 1.0))
    return nearest if abs(period_s / nearest - 1.0) <= SNAP else period_s


def _groups(log: JobLog, least: int, by_gres: bool = False) -> Iterator[tuple[str, str, Ints]]:
    """User, name and rows (in order of submission) of all jobs of one user, name and number of cores (and gres).

    Tasks of arrays and jobs without a user or a name are left out: nobody would know which is which. Only where
    a log has no names at all, all jobs of a user and number of cores stand for one.
    """
    named = log.user >= 0
    if (log.application >= 0).any():
        named &= log.application >= 0
    if log.job_id.dtype.kind == "U":
        named &= np.char.find(log.job_id.astype(str), "_") < 0
    rows = np.flatnonzero(named)
    if not len(rows):
        return
    more = (log.gres[rows],) if by_gres and log.gres is not None else ()
    keys = np.column_stack((log.user[rows], log.application[rows], log.cores[rows], *more)).astype(np.int64)
    unique, code = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(code.ravel(), kind="stable")
    count = np.bincount(code.ravel(), minlength=len(unique))
    ends = np.cumsum(count)
    for number in np.flatnonzero(count >= least).tolist():
        user, application = unique[number, :2].tolist()
        members = rows[order[ends[number] - count[number] : ends[number]]]
        yield _name(log.users, user), _name(log.applications, application), members.astype(np.int32)


def _name(names: Sequence[str], code: int) -> str:
    """Of a code; `-` for what was not recorded, as in `JobLog.fingerprints`."""
    return names[code] if 0 <= code < len(names) else "-" if code < 0 else str(code)

"""What a run of a mix came to: figures from accounting and from the jobs' own clocks. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import zip_longest

GUEST_PARTITION = "guest"
ALONE = ("slurm", "fifo")
"""Policies without asad; where jobs state their worth it is called by its order."""
TOGETHER_S = 1.0
"""Jobs that met on a node for no longer than this (accounting counts whole seconds) were not beside each other."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One job of one run. Times in seconds since the epoch, from accounting."""

    number: int
    """Which job of the mix, from 0."""
    job_id: str
    name: str
    state: str
    partition: str
    submit_s: float
    start_s: float
    """NaN if it never started."""
    end_s: float
    cores: int
    cpu_s: float
    nodes: tuple[str, ...]
    own_elapsed_s: float
    """Run time by its own clock; NaN if it did not live to report it."""

    @property
    def completed(self) -> bool:
        return self.state == "COMPLETED"

    @property
    def guest(self) -> bool:
        """Did it run beside a host in the end? The partition is what accounting keeps of that."""
        return self.partition == GUEST_PARTITION and not math.isnan(self.start_s)


@dataclass(frozen=True, slots=True)
class ArrayLook:
    """How an array was seen at one time."""

    number: int
    """Which job of the mix."""
    time_s: float
    throttle: int
    """Most tasks that Slurm ran at one time, 0 for no bound; of no meaning when none waits."""
    running: int
    waits: bool
    """Some of its tasks waited."""
    deferred: bool
    """They waited for a time that was set."""


Worth = Mapping[int, Callable[[float], float]]
"""By job of the mix: what it is worth to have taken so many seconds, from submission to the end of its last task."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What `lab/result.json` keeps of a policy."""

    makespan_s: float
    """From the first submission to the last end."""
    response_mean_s: float
    """Mean of end - submission."""
    wait_mean_s: float
    """Mean of start - submission."""
    host_stretch_mean: float
    """Mean run time over run time alone, of jobs that had a guest; 1 if none had."""
    guest_stretch_mean: float
    """The same of guests; 1 if there were none."""
    runtime_stretch_mean: float
    """The same of all jobs."""
    cpu_utilization: float
    """CPU time used over the core-seconds from first submission to last end."""
    guests: float
    killed: float
    """Jobs that did not complete."""
    later: float
    """Guests that ended later than the same job did under Slurm alone."""
    utility: float = math.nan
    """Sum of what the jobs were worth by the time they took; NaN where none states it. Not completed is nothing."""
    throttle_changes: float = math.nan
    """How often the throttle of an array was seen to change while tasks of it waited; NaN without arrays."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All runs of all policies, and the median of each figure."""

    figures: Mapping[str, Figures]
    runs: Mapping[str, Sequence[Figures]] = field(default_factory=dict)

    def ratio(self, policy: str, figure: str) -> float:
        """A figure of a policy over that of Slurm alone; NaN where that is 0 or missing."""
        alone = next((name for name in ALONE if name in self.figures), None)
        base = getattr(self.figures[alone], figure) if alone else 0.0
        value: float = getattr(self.figures[policy], figure)
        return value / base if base else math.nan

    def to_json(self) -> dict[str, dict[str, float]]:
        """`{policy: {figure: value}}`, counts as whole numbers where they are, without figures that it has not."""
        return {
            policy: {name: _round(value) for name, value in asdict(figures).items() if not math.isnan(value)}
            for policy, figures in self.figures.items()
        }


def _round(value: float) -> float:
    return int(value) if float(value).is_integer() else round(value, 4)


def hosts_of(jobs: Sequence[JobRun]) -> set[int]:
    """Numbers of the jobs that had a guest beside them on one of their nodes."""
    guests = [job for job in jobs if job.guest]
    return {
        job.number
        for job in jobs
        if not job.guest and not math.isnan(job.start_s)
        for guest in guests
        if set(job.nodes) & set(guest.nodes)
        and min(job.end_s, guest.end_s) - max(job.start_s, guest.start_s) > TOGETHER_S
    }


def alone_s(alone_runs: Iterable[Sequence[JobRun]], nominal_s: Mapping[int, float]) -> dict[int, float]:
    """Run time of each job of the mix when nobody shares its cores: the median of what it took under Slurm alone.

    Where it was not run so, the nominal time stands in.
    """
    seen: dict[int, list[float]] = {}
    for jobs in alone_runs:
        for job in jobs:
            if job.completed and not job.guest and job.own_elapsed_s > 0:
                seen.setdefault(job.number, []).append(job.own_elapsed_s)
    return {
        number: statistics.median(seen[number]) if number in seen else nominal
        for number, nominal in nominal_s.items()
    }


def measure(
    jobs: Sequence[JobRun],
    cores: int,
    alone: Mapping[int, float],
    slurm_end_s: Mapping[int, float],
    worth: Worth | None = None,
    looks: Sequence[ArrayLook] = (),
) -> Figures:
    """The figures of one run of a mix on a cluster of so many cores.

    alone        run time alone by job number (s)
    slurm_end_s  when each job ended under Slurm alone, counted from the first submission (median)
    worth        what jobs are worth by the time they took
    looks        how arrays were seen during the run, in order of time

    Jobs that did not complete count in `killed`, in the makespan and in CPU use, and in no mean of run times.
    """
    first_s, last_s = min(job.submit_s for job in jobs), max(job.end_s for job in jobs)
    stretch = {
        job.number: job.own_elapsed_s / alone[job.number]
        for job in jobs
        if job.completed and not math.isnan(job.own_elapsed_s)
    }
    hosts = hosts_of(jobs)
    guests = {job.number for job in jobs if job.guest}
    started = [job for job in jobs if not math.isnan(job.start_s)]
    span_s = max(last_s - first_s, 1.0)
    return Figures(
        makespan_s=last_s - first_s,
        response_mean_s=_mean(job.end_s - job.submit_s for job in jobs),
        wait_mean_s=_mean(job.start_s - job.submit_s for job in started),
        host_stretch_mean=_mean((stretch[number] for number in hosts if number in stretch), empty=1.0),
        guest_stretch_mean=_mean((stretch[number] for number in guests if number in stretch), empty=1.0),
        runtime_stretch_mean=_mean(stretch.values(), empty=1.0),
        cpu_utilization=sum(job.cpu_s for job in jobs) / (span_s * cores),
        guests=len(guests),
        killed=sum(not job.completed for job in jobs),
        later=sum(
            job.guest and job.end_s - first_s > slurm_end_s.get(job.number, math.inf) + TOGETHER_S
            for job in jobs
        ),
        utility=sum(worths(jobs, worth).values()) if worth else math.nan,
        throttle_changes=throttle_changes(looks) if looks else math.nan,
    )


def worths(jobs: Sequence[JobRun], worth: Worth) -> dict[int, float]:
    """What each job of the mix came to: the time counts from its submission to the end of its last task."""
    parts: dict[int, list[JobRun]] = {number: [] for number in worth}
    for job in jobs:
        if job.number in parts:
            parts[job.number].append(job)
    return {
        number: worth[number](max(job.end_s for job in mine) - min(job.submit_s for job in mine))
        if mine and all(job.completed for job in mine)
        else 0.0
        for number, mine in parts.items()
    }


def throttle_changes(looks: Sequence[ArrayLook]) -> int:
    """How often the throttle of an array was another than at the look before, while tasks of it waited.

    Arrays are submitted without one.
    """
    last: dict[int, int] = {}
    changes = 0
    for look in looks:
        if look.waits:
            changes += look.throttle != last.get(look.number, 0)
            last[look.number] = look.throttle
    return changes


def by_slot(looks: Sequence[ArrayLook], slot_s: float) -> dict[int, dict[int, ArrayLook]]:
    """By slot (counted from the epoch, as asad's are) and job of the mix: the last look in that slot."""
    slots: dict[int, dict[int, ArrayLook]] = {}
    for look in looks:
        slots.setdefault(math.floor(look.time_s / slot_s), {})[look.number] = look
    return slots


def ends_s(runs: Iterable[Sequence[JobRun]]) -> dict[int, float]:
    """When each job of the mix ended, counted from the first submission: the median over runs."""
    ends: dict[int, list[float]] = {}
    for jobs in runs:
        first_s = min(job.submit_s for job in jobs)
        for job in jobs:
            ends.setdefault(job.number, []).append(job.end_s - first_s)
    return {number: statistics.median(seen) for number, seen in ends.items()}


def compare(
    runs: Mapping[str, Sequence[Sequence[JobRun]]],
    cores: int,
    nominal_s: Mapping[int, float],
    worth: Worth | None = None,
    looks: Mapping[str, Sequence[Sequence[ArrayLook]]] | None = None,
) -> Comparison:
    """Figures of all runs of all policies, run times against those under Slurm alone (out of `ALONE`).

    `looks` has for each run of a policy how its arrays were seen.
    """
    alone_runs = next((runs[name] for name in ALONE if name in runs), ())
    alone, ends = alone_s(alone_runs, nominal_s), ends_s(alone_runs)
    seen = looks or {}
    measured = {
        policy: [
            measure(jobs, cores, alone, ends, worth, its_looks)
            for jobs, its_looks in zip_longest(its_runs, seen.get(policy, ()), fillvalue=())
            if jobs
        ]
        for policy, its_runs in runs.items()
    }
    medians = {
        policy: Figures(
            **{
                column.name: statistics.median(getattr(figures, column.name) for figures in its_figures)
                for column in fields(Figures)
            }
        )
        for policy, its_figures in measured.items()
        if its_figures
    }
    return Comparison(medians, measured)


def _mean(values: Iterable[float], empty: float = math.nan) -> float:
    listed = list(values)
    return statistics.fmean(listed) if listed else empty

"""Deferrable jobs, and what a policy sees of them at one step.

A deferrable job is (c, d, e, l, g): cores, duration, earliest and latest start, submission, all but c in steps. It is
known from g on, may start at e to l, and then holds c cores for d steps without a break. C_t is the capacity that
on-demand jobs leave at step t; nobody knows it beforehand. Source: Dong et al., *An Advanced Reinforcement Learning
Framework for Online Scheduling of Deferrable Workloads in Cloud Computing* (OSDEC), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.defer import DeferPolicy
from asad.defer.deferral_options import Options
from asad.errors import UsageError
from asad.model import Floats, Ints
from asad.policy import Given, Policy, parameters, parted

MOST_STEPS = 10_000_000
"""Of a duration, a time or a capacity: far above what is meant, far below what overflows."""


class Past(NamedTuple):
    """What was seen before now, oldest first: one row a step, the last that before now. (h,) each."""

    capacity: Floats
    """C_t."""
    held: Floats
    """Cores that deferrable jobs held in the step, those it started with them; what exceeds C_t is the violation."""
    started: Floats
    """Cores that it started."""
    waiting: Floats
    """How many jobs were submitted and not started, before it started some."""
    mean_cores: Floats
    """Of those; 0 where there were none."""
    mean_duration: Floats
    """Of those, in steps; 0 where there were none."""


def nothing_past() -> Past:
    """At the first step."""
    return Past(*(np.zeros(0) for _ in Past._fields))


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """The state (2) of one decision: jobs that are submitted and neither started nor missed, and what is free.

    Jobs, one row each, (n,), in order of submission: those with `earliest` above `now` are known but may not start yet
    (B^fut in the paper), the others may (B^cur).
    """

    now: int
    """The step. Steps are numbered from an origin such that a day begins at a multiple of its length."""
    cores: Ints
    """c, above 0."""
    duration: Ints
    """d, in steps, above 0."""
    earliest: Ints
    """e, a step."""
    latest: Ints
    """l, a step: at least `now` and e."""
    submitted: Ints
    """g, a step: at most `now`."""
    capacity: float
    """C_t now. It may be below what runs already holds."""
    running_cores: Ints
    """(r,) Cores of the deferrable jobs that run (B^his)."""
    running_left: Ints
    """(r,) How many steps each goes on to run, this one with it; above 0."""
    past: Past = field(default_factory=nothing_past)
    end: int | None = None
    """The step before which a trajectory ends; None where time goes on. What runs beyond it still earns all of c·d."""

    def __len__(self) -> int:
        return len(self.cores)

    @property
    def free(self) -> float:
        """C_t less what runs; below 0 where capacity fell under it."""
        return self.capacity - float(self.running_cores.sum())

    @property
    def startable(self) -> NDArray[np.bool_]:
        """(n,) May it start now?"""
        return self.earliest <= self.now

    @property
    def history(self) -> Floats:
        """(h + 1,) C_t of the steps past and, last, of now."""
        return np.append(self.past.capacity, self.capacity)

    def held(self, steps: int) -> Floats:
        """(steps,) Cores that what runs holds now, a step later, and so on."""
        ends = np.bincount(
            np.minimum(self.running_left, steps), weights=self.running_cores, minlength=steps + 1
        )
        return np.asarray(self.running_cores.sum() - np.cumsum(ends)[:steps], np.float64)


class Scorer(Policy):
    """A policy of the stage: who starts sooner?

    Its scores follow from what it is shown alone, so that one object serves a benchmark, a replay and a daemon
    that was started anew. Chance, if any, comes from a seed among its options.
    """

    stage = "defer"
    option_type = Options

    def score(self, waiting: Waiting) -> Floats:
        """(n,) The highest starts first, as far as they fit; of equal scores the earlier row.

        Minus infinity holds a job back for this step (so does NaN). Scores of jobs that may not start yet do not
        count.
        """
        raise NotImplementedError

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Those of every policy on a cluster, too."""
        return super().defaults() | parameters(cls)

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> DeferPolicy:
        """The policy that drives it on a cluster."""
        from asad.defer.deferral_policy import Deferral  # falls back to one of these

        common, _ = parted(options, Options)
        make: Callable[..., Scorer] = cls
        own = {name: options[name] for name in parameters(cls)}
        return Deferral(
            given.called or cls.name,
            make(**own),
            given.applications,
            common,
            given.rules,
            poll_s=given.poll_s,
            most_lease_s=min(given.most_lease_s, given.most_defer_s),
        )


class Worth(NamedTuple):
    """The coefficients of the objective (1): Σ started (c·d − ω1·(t − e)) − ω2·Σ_t max(0, held_t − C_t)."""

    delay: float = 0.3
    """ω1: of each step that a job starts after its earliest start; 0 or more."""
    violation: float = 1.0
    """ω2: of each core above C_t in a step; 0 or more."""


PAPER_WORTH = Worth(2.0, 10.0)
"""Table 3 of the paper."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectories:
    """B stretches of the same number of steps T, each with its jobs and its capacity. Made by `Trajectories.of`."""

    cores: Ints
    duration: Ints
    earliest: Ints
    latest: Ints
    submitted: Ints
    """(N,) As in `Waiting`, the jobs of all; those of a trajectory stand together, in order of submission."""
    first: Ints
    """(B + 1,) Jobs of trajectory b are rows first[b] to first[b + 1] - 1."""
    capacity: Floats
    """(B, T) C_t of each step, 0 or more."""

    def __len__(self) -> int:
        return len(self.capacity)

    @property
    def steps(self) -> int:
        """T."""
        return int(self.capacity.shape[1])

    @classmethod
    def of(cls, jobs: Any, offsets: Any, capacity: Any, place: str = "trajectories") -> Trajectories:
        """From rows (c, d, e, l, g), the rows at which trajectories begin (and the last ends), and C.

        `jobs` (N, 5) and `offsets` (B + 1,) are whole numbers, `capacity` (B, T) numbers of 0 or more. Raises
        UsageError that names `place`, the table, the row and the remedy.
        """
        table = _whole(place, "jobs", jobs, 2)
        if table.shape[1] != 5:
            raise _wrong(
                place,
                "jobs",
                f"has {table.shape[1]} columns",
                "give cores, duration, earliest, latest, submitted",
            )
        first = _whole(place, "offsets", offsets, 1)
        free = np.asarray(capacity)
        if free.ndim != 2 or free.dtype.kind not in "iuf" or not free.size:
            raise _wrong(
                place, "capacity", f"is {free.dtype} {free.shape}", "give numbers (trajectory, step)"
            )
        free = np.ascontiguousarray(free, np.float64)
        if not ((free >= 0) & (free <= MOST_STEPS)).all():
            row, step = np.argwhere(~((free >= 0) & (free <= MOST_STEPS)))[0]
            raise _wrong(
                place,
                f"capacity of trajectory {row}, step {step},",
                f"is {free[row, step]:g}",
                f"give cores, 0 to {MOST_STEPS}",
            )
        if len(first) != len(free) + 1:
            raise _wrong(
                place,
                "offsets",
                f"has {len(first)} rows for {len(free)} trajectories of capacity",
                f"give {len(free) + 1}",
            )
        if first[0] != 0 or first[-1] != len(table) or (np.diff(first) < 0).any():
            raise _wrong(
                place,
                "offsets",
                f"does not rise from 0 to {len(table)}",
                "give the row at which each begins, and the end",
            )
        c, d, e, l, g = table.T  # noqa: E741
        for bad, problem, remedy in (
            ((c < 1) | (c > MOST_STEPS), "asks for no cores, or too many", f"give 1 to {MOST_STEPS}"),
            (
                (d < 1) | (d > MOST_STEPS),
                "has no duration, or too long a one",
                f"give 1 to {MOST_STEPS} steps",
            ),
            ((g < 0) | (l > MOST_STEPS), "lies outside of time", f"give steps from 0 to {MOST_STEPS}"),
            (e < g, "may start before it is submitted", "give an earliest start at or after submission"),
            (l < e, "has its latest start before its earliest", "give a latest start at or after it"),
        ):
            if bad.any():
                raise _wrong(place, f"jobs row {int(np.argmax(bad))}", problem, remedy)
        # in order of submission within each trajectory, ties as they stand
        of = np.repeat(np.arange(len(free)), np.diff(first))
        order = np.lexsort((g, of))
        cores, duration, earliest, latest, submitted = np.ascontiguousarray(table[order].T, np.int32)
        return cls(cores, duration, earliest, latest, submitted, first.astype(np.int32), free)

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> Trajectories:
        """Only those trajectories, in that order."""
        numbers = np.asarray(rows, np.intp)
        begin, many = self.first[numbers], np.diff(self.first)[numbers]
        first = np.concatenate(([0], np.cumsum(many))).astype(np.int32)
        jobs = np.repeat(begin - first[:-1], many) + np.arange(first[-1])
        return Trajectories(
            self.cores[jobs],
            self.duration[jobs],
            self.earliest[jobs],
            self.latest[jobs],
            self.submitted[jobs],
            first,
            np.ascontiguousarray(self.capacity[numbers]),
        )

    def real_time(self) -> Trajectories:
        """The same work without windows: each job is submitted at its earliest start, and starts then or never."""
        of = np.repeat(np.arange(len(self)), np.diff(self.first))
        order = np.lexsort((self.earliest, of))
        only = self.earliest[order]
        return Trajectories(
            self.cores[order], self.duration[order], only, only, only, self.first, self.capacity
        )


def _whole(place: str, key: str, given: Any, dimensions: int) -> NDArray[np.int64]:
    found = np.asarray(given)
    if found.ndim != dimensions or (found.dtype.kind not in "iu" and found.size):
        raise _wrong(
            place,
            key,
            f"is {found.dtype} {found.shape}",
            f"give whole numbers in {dimensions} dimension{'s' * (dimensions > 1)}",
        )
    if found.size and (found.max() > np.iinfo(np.int32).max or found.min() < np.iinfo(np.int32).min):
        raise _wrong(place, key, "holds numbers beyond 32 bits", "give smaller ones")
    return found.astype(np.int64)


def _wrong(place: str, what: str, problem: str, remedy: str) -> UsageError:
    return UsageError(f"{place}: {what} {problem}; {remedy}")

"""What a replay found, per policy: the figures of the JSON and what the report draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, Ints, Json

INELIGIBLE = "opted out or ineligible: "
"""Begins a reason of the funnel; what follows says why those jobs do not lend."""


@dataclass(frozen=True, slots=True)
class ExpertHistory:
    """How the learner's view of its experts moved, sampled at no more than a few hundred rounds."""

    names: tuple[str, ...]
    """The n experts."""
    round: Ints
    """(T,) number of the round, from 1."""
    weights: Floats
    """(T, n) cluster-wide weights α after the round; each row sums to 1."""
    risk: Floats
    """(T, n) accumulated risk Σ r of each expert."""
    excess_risk: Floats
    """(T,) E_t of eq. (4)."""
    bound: Floats
    """(T,) Theorem 1's bound on it."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy over one log. Arrays have one row a job of the log."""

    name: str
    metrics: dict[str, float | int | None]
    """The figures of the JSON, by key."""
    start_s: Floats
    end_s: Floats
    host: NDArray[np.bool_]
    """Lent something to a guest at some time."""
    guest: NDArray[np.bool_]
    """Started as a guest."""
    loser: NDArray[np.bool_]
    """Host, guest or managed job that ended later than without us by more than max(60 s, 5 % of its response)."""
    series_time_s: Floats
    """(B + 1,) edges of the bins of time of the two series."""
    allocated_fraction: Floats
    """(B,) cores held by batch jobs over cores of the machine."""
    used_fraction: Floats
    """(B,) cores really busy over cores of the machine."""
    experts: ExpertHistory | None = None
    managed: NDArray[np.bool_] | None = None
    """Admitted, deferred or throttled at some time; None of policies that do no such thing."""
    deferring: bool = False
    """It defers deferrable jobs, which end later because they may."""
    stating: bool = False
    """It plans statements of work."""
    stretched: NDArray[np.bool_] | None = None
    """Hosts and guests that are late because sharing slowed them; None if nobody counted them."""
    funnel: tuple[tuple[str, float], ...] = ()
    """(reason, core-hours) of the cores·time that batch left idle; empty if nobody counted. Reasons are
    in the order of `asad.share.pool.idle_funnel.REASONS`.

    Reasons exclude each other, so they sum to all that was idle.
    """

    @property
    def touched(self) -> NDArray[np.bool_]:
        """Hosts, guests and managed jobs: those whom `loser` counts."""
        return self.host | self.guest if self.managed is None else self.host | self.guest | self.managed

    def to_json(self) -> dict[str, Json]:
        """What `--json` prints of this policy."""
        funnel: list[Json] = [{"reason": reason, "core_h": core_h} for reason, core_h in self.funnel]
        return {**self.metrics, "funnel": funnel}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the answer moves when the assumed CPU demand is off by a factor."""

    demand_factor: float
    policy: str
    response_change: float
    """Mean response over that of `slurm`, minus 1 (negative is better)."""
    losers: int
    lent_jobs: int


class Kind(NamedTuple):
    """A property of jobs that a log records."""

    code: Ints
    """(jobs,) Into `names`, -1 where it is not recorded."""
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Everything that a report or the JSON needs."""

    log: dict[str, Json]
    """path, format, jobs, skipped, absent (columns), notes …"""
    machine: dict[str, Json]
    settings: dict[str, Json]
    demand_sources: dict[str, float]
    """Share of the jobs whose CPU demand was `measured`, `profiled` or `assumed`."""
    job_id: NDArray[np.generic]
    """(jobs,) the log's own names."""
    submit_s: Floats
    run_s: Floats
    """(jobs,) isolated run time, after any kill at the limit."""
    cores: Ints
    application: Ints
    application_names: tuple[str, ...]
    policies: dict[str, PolicyResult]
    """By name, in the order asked for; `slurm` is always there."""
    verdicts: list[Verdict] = field(default_factory=list)
    limited: NDArray[np.bool_] | None = None
    """(jobs,) whether it has a time limit, without which asad offers it nothing; None if that was not kept."""
    baseline: dict[str, Json] = field(default_factory=dict)
    """What policies are compared with (`asad.replay.baseline`): `kind` (recorded, simulated), `why` it is simulated
    where it could have been recorded, `recorded` (what the log says of waiting). On recorded starts, of one `policy`
    also `held` (vacated slots are not lent) and `simulated` (the queue moves up), where that was compared."""
    repeats: dict[str, Json] = field(default_factory=dict)
    """With several seeds: `seeds`, for each policy the mean and standard deviation of every figure over them, and in
    `response_change` what each seed came to against the cluster left alone."""
    recorded_wait_s: Floats | None = None
    """(jobs,) How long each waited by the log, NaN where that has no start; None if that was not kept."""
    kinds: dict[str, Kind] = field(default_factory=dict)
    """By what jobs can be grouped, as far as the log has it: `partition`, `account`, `qos`, `gres`."""

"""What a cluster's own description says of scheduling beyond the sizes of its nodes: plain data, in Slurm's terms.

Readers of slurm.conf and of what `scontrol` prints fill it in as far as these say it; what they do not say is None, NaN
or Slurm's own default, as each field has it. Numbers of nodes count along `Machine.node_names`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, Ints, Machine

WEEK_S = 7 * 86400.0


def _no_nodes() -> Ints:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class PartitionRules:
    """A partition, and what it demands of its jobs."""

    name: str
    nodes: Ints = field(default_factory=_no_nodes)
    """Numbers of its nodes on the machine, ascending, each once."""
    max_time_s: float = math.inf
    """The longest that its jobs may run (MaxTime), above 0; inf: for ever."""
    default_time_s: float = math.nan
    """The time limit of jobs that ask for none (DefaultTime), above 0; inf: for ever, NaN where it is not given, and
    then it is `max_time_s`."""
    max_nodes: float = math.inf
    """The most nodes of one job (MaxNodes); inf: no bound."""
    min_nodes: int = 0
    """The fewest nodes of one job (MinNodes)."""
    tier: int = 1
    """PriorityTier: jobs of a higher one go first, whatever their priority is."""
    job_factor: int = 1
    """PriorityJobFactor: its factor of the multifactor priority, before it is divided by the largest of all."""
    exclusive: bool = False
    """Do its jobs get nodes of their own (OverSubscribe=EXCLUSIVE, ExclusiveUser=YES)?"""
    default: bool = False
    """Do jobs go there that name no partition?"""
    up: bool = True
    """Are its jobs started (State=UP)?"""
    qos: str = ""
    """The QOS whose limits its jobs have besides their own; empty for none."""


@dataclass(frozen=True, slots=True)
class PriorityRules:
    """How jobs are ordered (PriorityType and what else begins with Priority). Weights are 0 or more."""

    multifactor: bool = True
    """By weighted factors; False: in the order of submission (priority/basic)."""
    age: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    max_age_s: float = WEEK_S
    """After waiting so long the factor of age is 1 (PriorityMaxAge)."""
    half_life_s: float = WEEK_S
    """After so long use counts half (PriorityDecayHalfLife); 0: it never decays."""
    calc_period_s: float = 300.0
    """How often use and factors are computed (PriorityCalcPeriod), above 0."""
    favor_small: bool = False
    """Is the factor of size larger for smaller jobs (PriorityFavorSmall)?"""
    fair_tree: bool = True
    """Is fair share that of Fair Tree? False with NO_FAIR_TREE in PriorityFlags."""
    small_relative_to_time: bool = False
    """Is a job's size divided by its time limit (SMALL_RELATIVE_TO_TIME in PriorityFlags)?"""
    tres: Mapping[str, float] = field(default_factory=dict)
    """Weights of the resources that a job asks for (PriorityWeightTRES), by Slurm's name in lower case: `cpu`,
    `gres/gpu`."""


@dataclass(frozen=True, slots=True)
class BackfillRules:
    """How far backfill looks (SchedulerType and SchedulerParameters)."""

    enabled: bool = True
    """False with sched/builtin: jobs start in order alone."""
    depth: int = 500
    """How many jobs a pass tries (bf_max_job_test)."""
    window_s: float = 86400.0
    """How far into the future it plans (bf_window), above 0."""
    interval_s: float = 30.0
    """How often there is a pass (bf_interval), above 0."""
    resolution_s: float = 60.0
    """Of the times that it plans with (bf_resolution), above 0."""
    per_user: int = 0
    """How many jobs of one user a pass tries (bf_max_job_user); 0: no bound."""
    per_partition: int = 0
    """The same of one partition (bf_max_job_part)."""
    user_start: int = 0
    """How many jobs a pass starts at the most (bf_max_job_start); 0: no bound."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes or cores that are kept for some from one time to another."""

    name: str
    start_s: float
    end_s: float
    """In the seconds of the log (a local time without a zone counts as UTC, as the readers of logs take it), start
    before end; `end_s` is inf for one without an end."""
    nodes: Ints = field(default_factory=_no_nodes)
    """Numbers of its nodes on the machine, ascending, each once."""
    cores: int | None = None
    """Cores that it keeps on them all together; None: all that they have."""
    flags: tuple[str, ...] = ()
    """In upper case: `MAINT`, `IGNORE_JOBS`, `SPEC_NODES`."""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Who may use it; a name with `-` before it may not. Hostile text."""


@dataclass(frozen=True, slots=True)
class Site:
    """What is known of how a cluster schedules; N nodes, in the order of `Machine.node_names`."""

    partitions: Mapping[str, PartitionRules] = field(default_factory=dict)
    """By name, in the order in which they are described; empty where no partition is described."""
    gres: tuple[Mapping[str, int], ...] = ()
    """(N,) what each node has: `gpu:a100` → 4, and its family `gpu` → the sum over all types."""
    features: tuple[frozenset[str], ...] = ()
    """(N,) the features of each node."""
    weight: Floats = field(default_factory=lambda: np.zeros(0))
    """(N,) nodes of less weight are taken first; 1 where it is not given."""
    priority: PriorityRules | None = None
    """None where the description does not have it."""
    backfill: BackfillRules | None = None
    """None where the description does not have it."""
    reservations: tuple[Reservation, ...] = ()
    notes: tuple[str, ...] = ()
    """What was assumed or passed over, a sentence each."""

    def of_nodes(self, nodes: NDArray[np.integer]) -> Site:
        """The same of a machine that has only these nodes of it, in their order: (M,) numbers, each once."""
        place = np.full(len(self.gres), -1, np.int32)
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        chosen = nodes.tolist()

        def placed(before: Ints) -> Ints:
            after = place[before]
            return np.sort(after[after >= 0])

        return replace(
            self,
            partitions={
                name: replace(rules, nodes=placed(rules.nodes)) for name, rules in self.partitions.items()
            },
            gres=tuple(self.gres[node] for node in chosen),
            features=tuple(self.features[node] for node in chosen),
            weight=self.weight[nodes],
            reservations=tuple(replace(one, nodes=placed(one.nodes)) for one in self.reservations),
        )

    def in_parts(self, parts: int) -> Site:
        """The same of a machine on which every core counts as so many."""
        reservations = tuple(
            replace(one, cores=None if one.cores is None else one.cores * parts) for one in self.reservations
        )
        return replace(self, reservations=reservations)


def site_of(machine: Machine) -> Site | None:
    """What is known of how that machine's cluster schedules; None if nothing is."""
    site: Site | None = machine.site
    return site

"""What the runs of one replay share: log, machine and workload, what is known of its jobs, clusters and policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.admit.admission_options import Options as AdmitOptions
from asad.admit.elastic import Scheme
from asad.admit.side_by_side import SideBySide
from asad.admit.sow.infer import LEAST_RUNS
from asad.admit.sow.mechanism import Posted
from asad.admit.sow.mechanisms import mechanism_of
from asad.admit.utility import site_utilities
from asad.config import Config
from asad.contention import load_contention
from asad.errors import UsageError
from asad.experts import Expert, load_experts
from asad.model import Machine
from asad.policy import Truth
from asad.replay.cpu_demand import Demand
from asad.replay.deferrable_in_log import Deferrable, deferrable_of, read_declared
from asad.replay.limits.limit_table import LimitTable, limit_table
from asad.replay.limits.sacctmgr_output import read_limits
from asad.replay.looking_back import Shown, follow_site, look_back, with_memory
from asad.replay.node_order import drawn_order
from asad.replay.policies import admits, defers, named, states, with_policy
from asad.replay.readers import Recorded
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.recorded_starts import RecordedStarts, extended, recorded_starts
from asad.replay.replay_settings import Settings
from asad.replay.site_rules import SiteRules
from asad.replay.stated import Stated, stated_of
from asad.replay.workload import build_workload
from asad.replay.workload_columns import Workload
from asad.replay.worth import Valued, arrays_of, hints_of, read_rule, value
from asad.stages import Circumstances, Stages, make_stages

LEASE_S = 12 * 3600.0
"""Nobody dies in a replay: jobs are held back for so long without a further look, so that it need not be looked at."""

Progress = Callable[[str, int, int], None]
"""(what is being done, jobs ended, jobs in all)"""


@dataclass(slots=True)
class Bench:
    """What the runs of one replay share."""

    recorded: Recorded
    machine: Machine
    settings: Settings
    workload: Workload
    application_names: tuple[str, ...]
    experts: tuple[Expert, ...]
    overran: NDArray[np.bool_]
    """(n,) Who asked for less time than he needed, and is killed for it."""
    progress: Progress | None = None
    valued: Valued | None = None
    """What jobs are worth, if that was asked for."""
    deferrable: Deferrable | None = None
    """Who is deferrable, if that was asked for."""
    stated: Stated | None = None
    """Statements of work, if that was asked for."""
    starts: RecordedStarts | None = None
    """When and where jobs ran, where that is the baseline."""
    demand: Demand | None = None
    """What the CPU demand of its jobs rests on."""
    limits: LimitTable | None = None
    """Limits of users, accounts and QOS, if they are given."""
    site: SiteRules | None = None
    """What the simulated Slurm goes by beside cores and time, if anything is known of that."""
    shown: Shown = field(default_factory=Shown)
    """What its log shows: why its jobs waited, nodes that were gone, limits."""

    @property
    def scheduler(self) -> str:
        """What starts jobs where nobody else is asked for."""
        if self.starts is not None:
            return "recorded"
        return "easy" if self.site is None else "slurm"

    def cluster(
        self,
        scheduler: str,
        held: str | None,
        workload: Workload | None = None,
        *,
        admission: bool = False,
        gather_arrays: bool = False,
        pooled: bool = False,
    ) -> RecordedCluster:
        """A fresh cluster; `held` says how guests are held, None for no lending, and so for no twin.

        With `admission` it shows arrays (one waiting task of each, if they are gathered) and hints, and obeys the admit
        stage.
        """
        settings, workload = self.settings, workload or self.workload
        machine, slots, closed, rules, gone = self.machine, None, None, None, None
        if scheduler == "recorded":
            assert self.starts is not None
            machine, closed = self.starts.machine, self.starts.closed
            workload, slots = extended(workload, self.starts, settings.hold_vacated and held is not None)
        if scheduler == "slurm":
            assert self.site is not None
            rules = self.site.rules
        if held is not None and scheduler in ("recorded", "slurm"):
            gone = self.shown.gone
        return RecordedCluster(
            workload,
            machine,
            load_contention(settings.contention, lending=held or "idle"),
            scheduler=scheduler,
            per_event=settings.per_event,
            kill=settings.overrun == "kill",
            lending=held is not None or admission,
            twin=held is not None,
            admission=admission,
            gather_arrays=gather_arrays,
            # where no job has any, it is nothing to keep account of
            use_memory=settings.use_memory and bool((workload.memory_bytes_per_core > 0).any()),
            poll_s=settings.poll_s,
            window_s=settings.window_s,
            depth=settings.depth,
            backfill_interval_s=settings.backfill_interval_s,
            widened=settings.widen,
            use_sd=settings.use_sd,
            seed=settings.seed,
            every=pooled,
            slots=slots,
            closed=closed,
            limits=None
            if held is None
            else self.limits or (self.shown.inferred if slots is not None else None),
            rules=rules,
            gone=gone,
        )

    def stages(self, name: str, seed: int) -> Stages:
        """The policies of all stages as the policy of that name is replayed."""
        config = self.configuration(name)
        _, mu_guest = load_contention(self.settings.contention, lending="idle").at(math.nan)
        truth = Truth(self.workload.demand, self.workload.work_s, mu_guest)
        made_in = Circumstances(self.application_names, seed, truth, lambda: self.experts)
        stages = make_stages(config, made_in)
        if states(config):
            assert self.stated is not None
            (part,) = named(config, Posted)
            mechanism = partial(mechanism_of, part)
            if stages.admit.parts:
                foretold = self.stated.policy(part, mechanism, self.application_names)
                parts = (foretold if one.name == part else one for one in stages.admit.parts)
                return stages._replace(admit=SideBySide(tuple(parts)))
            stages = stages._replace(admit=self.stated.policy(name, mechanism, self.application_names))
        return stages

    def configuration(self, name: str) -> Config:
        """That of the replay, with the policy of that name in its stage and what a replay knows better."""
        settings, config = self.settings, with_policy(self.settings.config, name)
        config = replace(config, daemon=replace(config.daemon, interval_s=settings.poll_s))
        # placed node by node if each job fits on one
        whole = bool((self.workload.cores > self.machine.cores.max()).any())
        if admits(config):
            own = {"slot_s": settings.slot_s, "whole": whole, "budget": settings.budget}
            for scheme in named(config, Scheme):
                config = _with_options(config, "admit", scheme, own)
        if defers(config):
            # the recorded cluster puts jobs on any nodes, so none is looked for
            own = {"lease_s": LEASE_S, "deadline_alone": True, "by_node": False}
            config = _with_options(config, "defer", config.policies.defer, own)
        return config


def _with_options(config: Config, stage: str, name: str, own: Mapping[str, Any]) -> Config:
    """With these options of a policy of the stage, beside those that the configuration gives."""
    tables = getattr(config, stage)
    options: dict[str, Any] = {stage: {**tables, name: {**own, **tables.get(name, {})}}}
    return replace(config, **options)


def prepare(
    recorded: Recorded,
    machine: Machine,
    settings: Settings,
    demand: Demand,
    notes: list[str],
    progress: Progress | None = None,
    stated: Stated | None = None,
    shown: Shown | None = None,
) -> Bench:
    """What the runs of a replay share; what is assumed of the jobs is added to `notes`.

    `stated` are its statements of work, where they are not to be found by `settings`, and `shown` what its log shows,
    where that is known already.

    Raises MachineError for a job that could not run even on the empty machine, UsageError where a policy would have
    no job to decide about, ConfigError and LogError for files that cannot be read.
    """
    jobs = recorded.jobs
    _, names = jobs.fingerprints()
    settings = with_memory(settings, recorded, machine)
    workload = build_workload(recorded, machine, settings, demand, notes)
    limit = np.where(np.isnan(workload.limit_s), np.inf, workload.limit_s)
    overran = (jobs.run_s > limit) & (settings.overrun == "kill") & (settings.baseline == "simulated")
    if overran.any():
        notes.append(f"{int(overran.sum())} jobs ran past their time limit: they are killed at it")
    experts = load_experts(settings.experts or settings.config.policies.experts or None)
    bench = Bench(recorded, machine, settings, workload, names, experts, overran, progress)
    bench.demand = demand
    if settings.baseline == "recorded":
        bench.starts = drawn_order(recorded_starts(recorded, machine, workload), settings.seed)
        notes += bench.starts.notes
    _limit(bench, notes)
    bench.shown = shown or look_back(recorded, machine, settings)
    notes.extend(bench.shown.notes())
    if settings.baseline == "simulated":
        follow_site(bench, notes)
        if bench.site is None and bench.limits is not None:
            notes.append(
                "the simulated scheduler starts jobs against limits: the log does not say what it would take"
            )
    _value(bench, notes)
    _declare(bench, notes)
    if stated is None:
        _state(bench, notes)
    bench.stated = stated or bench.stated
    return bench


def _limit(bench: Bench, notes: list[str]) -> None:
    """Give the bench the limits of its settings, if there are any. Raises LogError for files that cannot be read."""
    settings = bench.settings
    if not settings.limits:
        return
    bench.limits = table = limit_table(read_limits(settings.limits, settings.cluster), bench.recorded.jobs)
    notes.append("limits of associations and QOS keep jobs from being guests")
    notes.extend(f"not applied: {sentence}" for sentence in table.not_applied)
    for key, what in (
        ("jobs_without_association", "have no association in the files of --limits"),
        ("jobs_without_qos", "have a QOS that is not in the files of --limits, or none"),
    ):
        if table.facts[key]:
            notes.append(f"{table.facts[key]} jobs {what}: such limits do not bind them")
    if alone := int((table.alone >= 0).sum()):
        notes.append(
            f"{alone} jobs exceed a limit on a single job, though they ran (as {table.alone_texts[0]}): the limits "
            "may be of another time; they are offered nothing"
        )


def _value(bench: Bench, notes: list[str]) -> None:
    """Give the jobs of the bench their arrays and hints, if anybody asks what they are worth.

    Raises UsageError for a rule that cannot be read, and where jobs are to be admitted and none has a utility.
    """
    settings, jobs = bench.settings, bench.recorded.jobs
    if not settings.values:
        return
    most = AdmitOptions().most_worth
    own = site_utilities()
    rules = [read_rule(text, settings.slot_s, most, own) for text in settings.utilities]
    array, hints = arrays_of(jobs.job_id, jobs.user), hints_of(jobs, rules)
    bench.valued = valued = value(jobs, hints, array, settings.slot_s, most, own)
    bench.workload = replace(bench.workload, array=array, hints=hints)
    if not len(valued) and settings.any_of(admits):
        why = f" ({valued.wrong[0]})" if valued.wrong else ""
        raise UsageError(
            f"no job of {bench.recorded.path} states its utility{why}, so there is nobody to admit; "
            "give one with --utility 'sigmoid(10,0.5,2h)', or log the Comment column"
        )
    if valued.wrong:
        notes.append(f"{len(valued.wrong)} jobs have a hint that cannot be read, as {valued.wrong[0]}")
    tasks = int((array >= 0).sum())
    if tasks:
        notes.append(
            f"{tasks} jobs are tasks of {int(array.max()) + 1} arrays; their users may have throttled them "
            "(--array=…%N), which a log does not record: they are replayed without a bound of their own"
        )


def _declare(bench: Bench, notes: list[str]) -> None:
    """Find the deferrable jobs of the bench, if anybody asks for them.

    Raises UsageError where jobs are to be deferred and none is deferrable, or a name that is not in the log.
    """
    settings, jobs = bench.settings, bench.recorded.jobs
    if not settings.defers:
        return
    declared = [read_declared(text) for text in settings.deferrable]
    array = arrays_of(jobs.job_id, jobs.user)
    bench.deferrable = found = deferrable_of(jobs, jobs.time_limit_s, array, declared, settings.seed)
    if not found.rows.any() and settings.any_of(defers):
        raise UsageError(
            f"no job of {bench.recorded.path} is deferrable, so there is nobody to defer; declare some with "
            "--deferrable 'share=0.2,window=4h', or log the Comment column with asad:deferrable=4h in it"
        )
    if found.assumed:
        given = ", ".join(settings.deferrable)
        notes.append(
            f"that {found.assumed} jobs are deferrable is assumed ({given}): their users never said that they can wait"
        )


def _state(bench: Bench, notes: list[str]) -> None:
    """Find the statements of work of the bench, if anybody asks for them.

    Raises UsageError where they are to be planned and there are none, ConfigError for a file that cannot be read.
    """
    settings, jobs = bench.settings, bench.recorded.jobs
    if not settings.states:
        return
    bench.stated = found = stated_of(
        jobs, settings.statements, settings.slot_s, settings.value_per_core_hour, LEAST_RUNS
    )
    if not found.pairs and settings.any_of(states):
        why = (
            "no job of it comes again often and regularly enough"
            if found.inferred
            else "no job of it is stated"
        )
        raise UsageError(
            f"{bench.recorded.path}: {why}, so there is nobody to plan; see asactl sow infer, or give --statements FILE"
        )
    if found.inferred:
        notes.append(
            f"{len(found)} statements are inferred, each from the runs that had ended at its birth; that a run is "
            f"worth {settings.value_per_core_hour:g} a core-hour until the next is due is assumed"
        )

"""A replay: one recorded workload under several policies, each against the same cluster left alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asad.admit import AdmitPolicy
from asad.admit.everyone import Everyone
from asad.admit.live import Admission
from asad.admit.live import Options as AdmitOptions
from asad.admit.schemes import scheme_maker
from asad.admit.sow import mechanism_of
from asad.admit.sow.infer import LEAST_RUNS
from asad.admit.utility import Maker, site_utilities
from asad.cycle import Cycle, is_renewal
from asad.defer.at_once import AtOnce
from asad.defer.live import Deferral
from asad.defer.live import Options as DeferOptions
from asad.defer.scorers import make_scorer
from asad.errors import MachineError, UsageError
from asad.experts import Expert, load_experts
from asad.guard import guard_for
from asad.model import (
    Admit,
    Decline,
    Defer,
    Evict,
    Floats,
    Ints,
    JobLog,
    Json,
    Machine,
    Outcome,
    SetThrottle,
    Snapshot,
)
from asad.place import PlacePolicy
from asad.place.first_fit import FirstFit
from asad.place.live import PortPlacing
from asad.place.native import Native
from asad.replay.contention import Contention, load_contention
from asad.replay.deferrable import Deferrable, deferrable_of, read_declared
from asad.replay.demand import Demand, DemandProfile, assign
from asad.replay.metrics import figures, later, over_time
from asad.replay.readers import Recorded
from asad.replay.recorded import RecordedCluster, Workload
from asad.replay.results import ExpertHistory, PolicyResult, ReplayResult, Verdict
from asad.replay.stated import Foretold, Stated, stated_of
from asad.replay.worth import Valued, arrays_of, hints_of, read_rule, value
from asad.share import SharePolicy
from asad.share.asax import Asax, Options
from asad.share.asax_paper import AsaxPaper
from asad.share.exclusive import Exclusive
from asad.share.greedy_oracle import GreedyOracle
from asad.share.learner import Weights, bound, excess_risk
from asad.share.limits import extensions
from asad.share.static import Static
from asad.store.records import JobEnd
from asad.store.store import Run, Store

SCHEDULING = {"slurm": "easy", "fcfs": "fcfs", "conservative": "conservative"}
"""Policies that leave the cluster alone → its own scheduler."""

LENDING = {"static": "static", "asax-paper": "static", "asax": "idle", "greedy-oracle": "idle"}
"""Policies that lend → how the guest is held, which decides what sharing costs."""

PLACING = dict.fromkeys(("first-fit", "fairness", "drf", "binpack", "spread", "oga"), "idle")
"""Policies of the place stage, which lend by themselves → how the guest is held."""

ADMITTING = {
    "oasis": "oasis",
    "oasis-paper": "oasis-paper",
    "fifo-admit": "fifo",
    "drf-admit": "drf",
    "rrh-admit": "rrh",
    "dorm-admit": "dorm",
}
"""Policies that admit, defer and throttle → the scheme of the admit stage; nobody lends beside it."""

DEFERRING = {
    "fifo-defer": "fifo",
    "sjf-defer": "sjf",
    "edf-defer": "edf",
    "tetris-defer": "tetris",
    "biggest-defer": "biggest",
    "linear-defer": "linear",
    "lookahead-defer": "lookahead",
    "rollout-defer": "rollout",
    "osdec": "osdec",
}
"""Policies that put deferrable jobs off → the policy of the defer stage; nobody lends or admits beside it."""

STATING = {"sow": "sow", "sow-paper": "sow-paper"}
"""Policies that plan statements of work → the mechanism; nobody lends, admits or defers beside it."""

POLICIES = (*SCHEDULING, *LENDING, *PLACING, *ADMITTING, *DEFERRING, *STATING)

DEFAULT_POLICIES = ("slurm", "static", "asax", "greedy-oracle")

BEST = {"utilities": "oasis", "deferrable": "rollout-defer", "statements": "sow"}
"""What a replay is told about its jobs → the policy that is best for such jobs; the evaluations tell why."""

YEAR_S = 365 * 86400.0
"""What the scheduler plans with for a job of unlimited time."""

LEASE_S = 12 * 3600.0
"""Nobody dies in a replay: jobs are held back for so long without a further look, so that it need not be looked at."""

VERDICT_JOBS = 100_000
"""Above this many jobs the assumption of demand is not varied unless asked for."""

PLACEBOS, PLACEBOS_LONG = 20, 3
"""Draws of the placebo, and for logs above VERDICT_JOBS."""

Progress = Callable[[str, int, int], None]
"""(what is being done, jobs ended, jobs in all)"""


def usual_policies(*, utilities: bool, deferrable: bool, statements: bool) -> tuple[str, ...]:
    """What is replayed where nobody names a policy: lending, or the best for jobs of the kinds that are declared."""
    told = {"utilities": utilities, "deferrable": deferrable, "statements": statements}
    best = tuple(BEST[kind] for kind, given in told.items() if given)
    return ("slurm", *best) if best else DEFAULT_POLICIES


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides the outcome of a replay besides log and machine."""

    policies: tuple[str, ...] = DEFAULT_POLICIES
    seed: int = 0
    repeat: int = 1
    poll_s: float = 30.0
    overrun: str = "kill"
    """At the time limit: `kill`, or `run` on as recorded."""
    per_event: bool = False
    """A scheduling pass at each single event instead of one for each distinct second."""
    use_memory: bool = False
    lending: bool = True
    """Off: every lending policy is asked for nothing, and its schedule is Slurm's."""
    depth: int = 100
    backfill_interval_s: float = 30.0
    window_s: float = 60.0
    demand: DemandProfile = field(default_factory=DemandProfile)
    experts: Path | None = None
    contention: Path | None = None
    options: Options = field(default_factory=Options)
    slot_s: float = AdmitOptions().slot_s
    """Length of a slot of the admit stage."""
    utilities: tuple[str, ...] = ()
    """Rules for jobs that tell no utility, see `asad.replay.worth.read_rule`."""
    deferrable: tuple[str, ...] = ()
    """Jobs that are declared deferrable, see `asad.replay.deferrable.read_declared`."""
    statements: Path | None = None
    """Statements of work; None: those that could have been inferred as the log went on."""
    value_per_core_hour: float = 1.0
    """What the run of an inferred statement is taken to be worth."""
    vary_demand: bool | None = None
    """Whether to replay with assumed demands 20 % lower and higher; None: if assumed, up to VERDICT_JOBS jobs."""

    def __post_init__(self) -> None:
        for name in self.policies:
            if name not in POLICIES:
                raise UsageError(f"unknown policy {name!r}; there are {', '.join(POLICIES)}")
        if not self.policies:
            raise UsageError(f"no policy; name some of {', '.join(POLICIES)}")
        if self.overrun not in ("kill", "run"):
            raise UsageError(f"--overrun {self.overrun}: choose kill or run")
        if not self.poll_s > 0:
            raise UsageError(f"--poll {self.poll_s:g}: give seconds above 0")
        if not 1.0 <= self.slot_s <= 604_800.0:
            raise UsageError(f"--slot {self.slot_s:g}: give from 1 second to a week")
        if self.repeat < 1:
            raise UsageError(f"--repeat {self.repeat}: give at least 1")
        for text in self.deferrable:
            read_declared(text)
        if self.states and self.slot_s < 2.0:
            raise UsageError(f"--slot {self.slot_s:g}: rounds of statements are at least 2 seconds")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"--seed {self.seed}: give a whole number from 0")

    @property
    def values(self) -> bool:
        """Is it asked what jobs are worth?"""
        return bool(self.utilities) or any(name in ADMITTING for name in self.policies)

    @property
    def defers(self) -> bool:
        """Is it asked what becomes of deferrable jobs?"""
        return bool(self.deferrable) or any(name in DEFERRING for name in self.policies)

    @property
    def states(self) -> bool:
        """Is it asked what becomes of statements of work?"""
        return self.statements is not None or any(name in STATING for name in self.policies)

    def to_json(self) -> dict[str, Json]:
        """What a reader needs to run the same again."""
        stated: dict[str, Json] = {
            "slot_s": self.slot_s,
            "statements": "inferred" if self.statements is None else str(self.statements),
            "value_per_core_hour": self.value_per_core_hour,
        }
        worth: dict[str, Json] = {"slot_s": self.slot_s, "utilities": list(self.utilities)}
        return {
            "seed": self.seed,
            "repeat": self.repeat,
            "poll_s": self.poll_s,
            "overrun": self.overrun,
            "pass": "per-event" if self.per_event else "per-timestamp",
            "memory": self.use_memory,
            "lending": self.lending,
            "depth": self.depth,
            "backfill_interval_s": self.backfill_interval_s,
            "window_s": self.window_s,
            "demand_assumed": str(self.demand.assumption),
            "demand_profile": dict(self.demand.applications),
            "demand_measured": self.demand.use_measured,
            "vary_demand": self.vary_demand,
            "experts": "shipped" if self.experts is None else str(self.experts),
            "contention": "shipped" if self.contention is None else str(self.contention),
            "options": dict(self.options._asdict()),
            **(worth if self.values else {}),
            **({"deferrable": list(self.deferrable)} if self.defers else {}),
            **(stated if self.states else {}),
        }


def build_workload(
    recorded: Recorded, machine: Machine, settings: Settings, demand: Demand, notes: list[str]
) -> Workload:
    """The jobs of a log as they will be run on `machine`; assumptions are added to `notes`.

    Raises MachineError if a job could not run even on the empty machine.
    """
    jobs = recorded.jobs
    absent = np.isnan(jobs.time_limit_s)
    if absent.any():
        notes.append(
            f"{int(absent.sum())} jobs have no time limit: the scheduler plans them with the run time they had, "
            "nothing kills them, and asad offers them nothing"
        )
    limit = np.where(absent, np.inf, jobs.time_limit_s)
    planned = np.where(absent, jobs.run_s, np.where(np.isinf(limit), YEAR_S, limit))
    kill = settings.overrun == "kill"
    work = np.minimum(jobs.run_s, limit) if kill else jobs.run_s.copy()
    if not kill:
        planned = np.maximum(planned, jobs.run_s)
    fingerprint, _ = jobs.fingerprints()
    workload = Workload(
        job_id=jobs.job_id,
        submit_s=jobs.submit_s,
        work_s=work,
        planned_s=planned,
        limit_s=jobs.time_limit_s,
        cores=jobs.cores,
        nodes=jobs.nodes,
        memory_bytes_per_core=_memory_per_core(jobs, settings.use_memory),
        demand=demand.fraction,
        depends_on=jobs.depends_on,
        think_s=jobs.think_s,
        application=fingerprint,
        user=jobs.user,
    )
    _require_fit(workload, machine, recorded.path)
    return workload


def _fit_alone(cores: Ints, memory_per_core: Floats, machine: Machine) -> NDArray[np.bool_]:
    """Which jobs would run on the empty machine."""
    fits = cores <= machine.total_cores
    rows = np.flatnonzero(memory_per_core > 0)
    if len(rows):
        shapes, back = np.unique(memory_per_core[rows], return_inverse=True)
        room = [np.minimum(machine.cores, machine.memory_bytes // need).sum() for need in shapes.tolist()]
        fits[rows] &= cores[rows] <= np.array(room)[back]
    return fits


def _memory_per_core(jobs: JobLog, use_memory: bool) -> Floats:
    """Bytes a core; 0 where memory does not count or is not recorded."""
    if not use_memory:
        return np.zeros(len(jobs))
    return np.where(np.isfinite(jobs.memory_bytes), jobs.memory_bytes / jobs.cores, 0.0)


def _require_fit(workload: Workload, machine: Machine, path: str) -> None:
    """Every job runs on the empty machine, or MachineError says which does not."""
    rows = np.flatnonzero(~_fit_alone(workload.cores, workload.memory_bytes_per_core, machine))
    if len(rows) == 0:
        return
    row = int(rows[0])
    what = f"{workload.cores[row]} cores"
    if workload.cores[row] <= machine.total_cores:
        what += f" with {workload.memory_bytes_per_core[row] / 2**20:.0f} MiB each"
    raise MachineError(
        f"{path}: job {workload.job_id[row]} wants {what}, and {len(rows) - 1} more jobs do not fit either on "
        f"{len(machine.cores)} nodes with {machine.total_cores} cores ({machine.origin}); describe the machine "
        "with --nodes, --cores and --memory or --machine FILE, or leave such jobs out with --skip-bad"
    )


def fitting_rows(recorded: Recorded, machine: Machine, use_memory: bool) -> NDArray[np.intp]:
    """Rows of the jobs that would run on the empty machine."""
    jobs = recorded.jobs
    return np.flatnonzero(_fit_alone(jobs.cores, _memory_per_core(jobs, use_memory), machine))


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
    progress: Progress | None = None
    valued: Valued | None = None
    """What jobs are worth, if that was asked for."""
    own_utilities: Mapping[str, Maker] = field(default_factory=dict)
    deferrable: Deferrable | None = None
    """Who is deferrable, if that was asked for."""
    stated: Stated | None = None
    """Statements of work, if that was asked for."""

    def cluster(
        self,
        scheduler: str,
        held: str | None,
        workload: Workload | None = None,
        *,
        admission: bool = False,
        gather_arrays: bool = False,
    ) -> RecordedCluster:
        """A fresh cluster; `held` says how guests are held, None for no lending, and so for no twin.

        With `admission` it shows arrays (one waiting task of each, if they are gathered) and hints, and obeys the admit
        stage.
        """
        settings = self.settings
        return RecordedCluster(
            workload or self.workload,
            self.machine,
            load_contention(settings.contention, lending=held or "idle"),
            scheduler=scheduler,
            per_event=settings.per_event,
            kill=settings.overrun == "kill",
            lending=held is not None or admission,
            twin=held is not None,
            admission=admission,
            gather_arrays=gather_arrays,
            use_memory=settings.use_memory,
            poll_s=settings.poll_s,
            window_s=settings.window_s,
            depth=settings.depth,
            backfill_interval_s=settings.backfill_interval_s,
        )

    def policy(self, name: str, contention: Contention, seed: int) -> SharePolicy:
        """The share policy of that name."""
        rng = np.random.default_rng(np.random.SeedSequence((seed, 0xA5)))
        if name == "static":
            return Static()
        if name == "asax":
            return Asax(
                self.experts,
                self.application_names,
                rng,
                self.settings.options._replace(poll_s=self.settings.poll_s),
            )
        if name == "asax-paper":
            return AsaxPaper(self.experts, self.application_names, rng)
        _, mu_guest = contention.at(float("nan"))
        return GreedyOracle(self.workload.demand, self.workload.work_s, mu_guest, self.settings.poll_s)

    def placing(self, name: str) -> PlacePolicy:
        """The place policy of that name, with its usual options."""
        poll_s = self.settings.poll_s
        if name == "first-fit":
            return FirstFit(extend=extensions, poll_s=poll_s)
        return PortPlacing(name, self.application_names, extend=extensions, poll_s=poll_s)

    def admission(self, name: str) -> Admission:
        """The admit policy of that name; jobs are placed node by node if each fits on one."""
        whole = bool((self.workload.cores > self.machine.cores.max()).any())
        options = AdmitOptions(slot_s=self.settings.slot_s, whole=whole)
        make = scheme_maker(ADMITTING[name], {})
        return Admission(name, make, self.application_names, options, own_utilities=self.own_utilities)

    def deferral(self, name: str) -> Deferral:
        """The defer policy of that name; the recorded cluster puts jobs on any nodes, so none is looked for."""
        options = DeferOptions(lease_s=LEASE_S, deadline_alone=True, by_node=False)
        scorer = make_scorer(DEFERRING[name])
        return Deferral(name, scorer, self.application_names, options, poll_s=self.settings.poll_s)


@dataclass(slots=True)
class Played:
    """One policy over one workload, as the cluster left it."""

    cluster: RecordedCluster
    wall_s: float
    cycles: int = 0
    decisions: int = 0
    history: ExpertHistory | None = None
    managed: Managed | None = None
    """What was done to waiting jobs, by a policy that admits or defers."""
    foretold: Foretold | None = None
    """The policy, if it plans statements of work."""

    def column(self, name: str) -> NDArray[np.generic]:
        """A column of the simulation, one row a job."""
        return self.cluster.state.job[name]


def leave_alone(bench: Bench, name: str, workload: Workload | None = None, what: str | None = None) -> Played:
    """The cluster under its own scheduler."""
    cluster = bench.cluster(SCHEDULING[name], None, workload)
    jobs = len(cluster.workload)
    begin = time.perf_counter()
    if bench.progress is None or jobs == 0:
        cluster.run()
    else:
        bench.progress(what or name, 0, jobs)  # seen while the first replay compiles
        first, last = float(cluster.workload.submit_s[0]), float(cluster.workload.submit_s[-1])
        for until in np.linspace(first, last, 50)[1:].tolist():
            cluster.run(until)
            bench.progress(what or name, cluster.ended, jobs)
        cluster.run()
        bench.progress(what or name, cluster.ended, jobs)
    return Played(cluster, time.perf_counter() - begin)


def lend(bench: Bench, name: str, seed: int, run: Run | None = None, what: str | None = None) -> Played:
    """The same cluster with the cycle beside it."""
    held = LENDING.get(name) or PLACING[name]
    gangs = _with_gangs(bench.workload, bench.recorded.jobs) if name in PLACING else None
    cluster = bench.cluster("easy", held, gangs, admission=gangs is not None)
    policy: SharePolicy = Exclusive()
    place: PlacePolicy = Native()
    if name in PLACING:
        place = bench.placing(name)
    else:
        policy = bench.policy(name, load_contention(bench.settings.contention, lending=held), seed)
    names = cluster.workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        if run is not None:
            run.record(number, snapshot.time_s, outcomes, names, host_rows=snapshot.jobs.host)

    guard = guard_for(policy.properties | place.properties)
    cycle = Cycle(cluster, Everyone(), AtOnce(), place, policy, guard, record if run else None)
    watch = _ExpertWatch(policy)
    begin = time.perf_counter()
    if not bench.settings.lending:
        cluster.run()
    _drive(bench, cluster, cycle, what or name, watch.look)
    return Played(cluster, time.perf_counter() - begin, cycle.number, cycle.decisions, watch.history())


def _with_gangs(workload: Workload, jobs: JobLog) -> Workload | None:
    """The workload with its arrays and hints, if some of them tell how many components a gang has."""
    if not any("components=" in text for text in jobs.hints):
        return None
    return replace(workload, array=arrays_of(jobs.job_id, jobs.user), hints=hints_of(jobs, ()))


def admit(bench: Bench, name: str, run: Run | None = None) -> Played:
    """The same cluster with a policy of the admit stage in the cycle, and nobody who lends."""
    workload, foretold = bench.workload, None
    if name in STATING:
        assert bench.stated is not None
        jobs = bench.recorded.jobs
        array = arrays_of(jobs.job_id, jobs.user)
        workload = replace(workload, array=array, hints=bench.stated.hints)
        foretold = bench.stated.policy(name, partial(mechanism_of, STATING[name]), bench.application_names)
    cluster = bench.cluster("easy", None, workload, admission=True, gather_arrays=True)
    policy: AdmitPolicy = foretold or bench.admission(name)
    managed = Managed(cluster.workload)
    names = cluster.workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        managed.note(outcomes)
        if run is not None:
            run.record(number, snapshot.time_s, outcomes, names, host_rows=snapshot.jobs.host)

    share = Exclusive()
    guard = guard_for(share.properties, consents=None if foretold is None else foretold.consents)
    cycle = Cycle(cluster, policy, AtOnce(), Native(), share, guard, record)
    begin = time.perf_counter()
    _drive(bench, cluster, cycle, name)
    return Played(
        cluster,
        time.perf_counter() - begin,
        cycle.number,
        cycle.decisions,
        managed=managed,
        foretold=foretold,
    )


def put_off(bench: Bench, name: str, run: Run | None = None) -> Played:
    """The same cluster with a policy of the defer stage in the cycle, and nobody who lends or admits."""
    assert bench.deferrable is not None
    jobs = bench.recorded.jobs
    workload = replace(
        bench.workload,
        array=arrays_of(jobs.job_id, jobs.user),
        hints=hints_of(jobs, ()),
        deadline_s=bench.deferrable.deadline_s,
    )
    cluster = bench.cluster("easy", None, workload, admission=True, gather_arrays=True)
    policy = bench.deferral(name)
    managed = Managed(workload)
    names = workload.job_id

    def record(number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        managed.note(outcomes)
        news = [outcome for outcome in outcomes if not is_renewal(outcome)]
        if run is not None and news:
            run.record(number, snapshot.time_s, news, names, host_rows=snapshot.jobs.host)

    share = Exclusive()
    cycle = Cycle(cluster, Everyone(), policy, Native(), share, guard_for(share.properties), record)
    begin = time.perf_counter()
    _drive(bench, cluster, cycle, name)
    return Played(cluster, time.perf_counter() - begin, cycle.number, cycle.decisions, managed=managed)


def _drive(
    bench: Bench, cluster: RecordedCluster, cycle: Cycle, what: str, look: Callable[[], None] | None = None
) -> None:
    """The cycle at every poll until all is over; `look` is called every 256 cycles and at the end."""
    jobs = len(cluster.workload)
    if bench.progress is not None:
        bench.progress(what, 0, jobs)
    wake_s = np.inf
    while cluster.advance(wake_s):
        wake_s = cycle.run_once()
        if cycle.number % 256 == 0:
            if look is not None:
                look()
            if bench.progress is not None:
                bench.progress(what, cluster.ended, jobs)
    if look is not None:
        look()
    if bench.progress is not None:
        bench.progress(what, cluster.ended, jobs)


class Managed:
    """What admission did to whom, as far as the cluster did it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._admitted: dict[int, bool] = {}
        """By row of the job, of a task its array's number below 0: was it admitted at last?"""
        self._touched: set[int] = set()

    def _key(self, row: int) -> int:
        array = -1 if self._workload.array is None else int(self._workload.array[row])
        return row if array < 0 else -1 - array

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Take in what became of decisions."""
        for outcome in outcomes:
            decision = outcome.decision
            if not outcome.done:
                continue
            if isinstance(decision, Admit | Decline):
                self._admitted[self._key(decision.job)] = isinstance(decision, Admit)
            if isinstance(decision, Admit | Defer | SetThrottle | Evict):
                self._touched.add(self._key(decision.job))

    @property
    def rows(self) -> NDArray[np.bool_]:
        """(n,) who was admitted, deferred or throttled at some time; of an array all tasks."""
        touched = np.array(sorted(self._touched), np.int64)
        rows = np.isin(np.arange(len(self._workload)), touched)
        if self._workload.array is not None:
            rows |= np.isin(-1 - self._workload.array.astype(np.int64), touched) & (self._workload.array >= 0)
        return rows

    def figures(self) -> dict[str, float | int | None]:
        """Jobs (an array is one) that were admitted, and those that were not, by the last word on each."""
        admitted = sum(self._admitted.values())
        return {"admitted": admitted, "declined": len(self._admitted) - admitted}


class _ExpertWatch:
    """Samples the learner's cluster-wide weights; thins itself out so that a few hundred rounds remain."""

    def __init__(self, policy: SharePolicy) -> None:
        self.weights: Weights | None = getattr(policy, "weights", None)
        self.names = tuple(expert.name for expert in getattr(policy, "experts", ()))
        self.rows: list[tuple[int, Floats, Floats, float, float]] = []

    def look(self) -> None:
        w = self.weights
        if w is None or w.rounds[-1] < 1 or (self.rows and self.rows[-1][0] == w.rounds[-1]):
            return
        self.rows.append(
            (int(w.rounds[-1]), w.alpha[-1].copy(), w.risk[-1].copy(), excess_risk(w, -1), bound(w, -1))
        )
        if len(self.rows) >= 800:
            self.rows = self.rows[1::2]

    def history(self) -> ExpertHistory | None:
        if not self.rows:
            return None
        rounds, weights, risk, excess, limit = zip(*self.rows, strict=True)
        return ExpertHistory(
            self.names,
            np.array(rounds, np.int32),
            np.array(weights),
            np.array(risk),
            np.array(excess),
            np.array(limit),
        )


def _summarise(
    bench: Bench, name: str, played: Played, baseline: Played | None, displaced_placebo: float | None
) -> PolicyResult:
    workload, machine = bench.workload, bench.machine
    job = played.cluster.state.job
    done = workload.work_s - np.where(job["killed"], np.maximum(job["left"], 0.0), 0.0)
    start, end = job["start"].copy(), job["end"].copy()
    host, guest = job["was_host"].copy(), job["was_guest"].copy()
    baseline_end = None if baseline is None else baseline.cluster.state.job["end"]
    managed = None if played.managed is None else played.managed.rows
    metrics = figures(
        workload,
        machine.total_cores,
        start_s=start,
        end_s=end,
        done_s=done,
        demand=workload.demand,
        overran=bench.overran,
        cut=job["killed"].copy(),
        host=host,
        guest=guest,
        lent_core_s=float(job["lent"].sum()),
        baseline_end_s=baseline_end,
        displaced_placebo=displaced_placebo,
        managed=managed,
    )
    if bench.valued is not None:
        metrics |= bench.valued.figures(end)
        metrics |= (
            played.managed.figures()
            if played.managed is not None and name in ADMITTING
            else {"admitted": None, "declined": None}
        )
    if bench.deferrable is not None:
        capacity_core_s = machine.total_cores * float(metrics["makespan_s"] or 0.0)
        metrics |= bench.deferrable.figures(workload.submit_s, start, workload.cores, done, capacity_core_s)
    if bench.stated is not None:
        lost = job["killed"].copy()
        if played.foretold is not None:
            lost |= np.isin(workload.job_id.astype(str), sorted(played.foretold.evicted_jobs))
        metrics |= bench.stated.figures(end, np.flatnonzero(lost).tolist(), played.foretold)
    metrics["wall_s"] = played.wall_s
    busy = workload.cores * workload.demand * done / np.maximum(end - start, 1e-9)
    edges, allocated, used = over_time(workload, machine.total_cores, start, end, busy, ~guest)
    loser = np.zeros(len(workload), np.bool_)
    if baseline_end is not None:
        loser = later(workload, end, baseline_end)
    result = PolicyResult(
        name,
        metrics,
        start,
        end,
        host,
        guest,
        loser,
        edges,
        allocated,
        used,
        played.history,
        managed,
        deferring=name in DEFERRING,
        stating=name in STATING,
    )
    loser &= result.touched
    return result


def placebo(bench: Bench, baseline: Played, touched: int, seed: int) -> float:
    """How many jobs end later, beyond the tolerance, when `touched` run times are made 1 s longer and nothing else.

    The mean of several draws, since one may hit anything between nothing and a great many.
    """
    if touched == 0:
        return 0.0
    workload = bench.workload
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0x9A)))
    late = []
    for _ in range(PLACEBOS if len(workload) <= VERDICT_JOBS else PLACEBOS_LONG):
        rows = rng.choice(len(workload), size=min(touched, len(workload)), replace=False)
        work = workload.work_s.copy()
        work[rows] += 1.0
        moved = replace(
            workload,
            work_s=work,
            planned_s=np.maximum(workload.planned_s, work),
            limit_s=np.maximum(workload.limit_s, work),
        )
        played = leave_alone(bench, "slurm", moved, "placebo")
        worse = later(workload, played.cluster.state.job["end"], baseline.cluster.state.job["end"])
        worse[rows] = False
        late.append(int(worse.sum()))
    return float(np.mean(late))


def replay(
    recorded: Recorded,
    machine: Machine,
    settings: Settings,
    *,
    store: Store | None = None,
    log_facts: dict[str, Json] | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Replay `recorded` on `machine` under every policy of `settings`, and against Slurm left alone.

    With `store` every decision is kept as it is made, a run for each policy. The same arguments give the same result,
    wall times aside. Raises MachineError, ConfigError, StoreError.
    """
    jobs = recorded.jobs
    fingerprint, names = jobs.fingerprints()
    notes = list(recorded.notes)
    demand = assign(jobs, fingerprint, names, settings.demand, settings.seed)
    workload = build_workload(recorded, machine, settings, demand, notes)
    limit = np.where(np.isnan(jobs.time_limit_s), np.inf, jobs.time_limit_s)
    overran = (jobs.run_s > limit) & (settings.overrun == "kill")
    bench = Bench(
        recorded, machine, settings, workload, names, load_experts(settings.experts), overran, progress
    )
    if overran.any():
        notes.append(f"{int(overran.sum())} jobs ran past their time limit: they are killed at it")
    _value(bench, notes)
    _declare(bench, notes)
    _state(bench, notes)
    log: dict[str, Json] = {
        "path": recorded.path,
        "format": recorded.format,
        "jobs": len(jobs),
        "counts": dict(recorded.counts),
        "absent": list(recorded.absent),
        "skipped": len(recorded.bad),
        "skipped_lines": [str(error) for error in recorded.bad[:50]],
        "notes": list(notes),
        **(log_facts or {}),
    }
    results: dict[str, PolicyResult] = {}
    baseline = leave_alone(bench, "slurm")
    results["slurm"] = _summarise(bench, "slurm", baseline, None, None)
    for name in settings.policies:
        if name == "slurm":
            continue
        if name in SCHEDULING:
            played = leave_alone(bench, name)
            results[name] = _summarise(bench, name, played, None, None)
            continue
        results[name] = _play_and_keep(bench, name, baseline, store, log)
    order = ("slurm", *(name for name in settings.policies if name != "slurm"))
    result = ReplayResult(
        log=log,
        machine=machine.to_json(),
        settings=settings.to_json(),
        demand_sources=demand.shares(),
        job_id=jobs.job_id,
        submit_s=workload.submit_s,
        run_s=workload.work_s,
        cores=workload.cores,
        application=fingerprint,
        application_names=names,
        policies={name: results[name] for name in order},
    )
    assumed = demand.shares()["assumed"] > 0
    vary = settings.vary_demand
    if vary is None:
        vary = assumed and settings.lending and len(jobs) <= VERDICT_JOBS
        if assumed and not vary and "asax" in settings.policies:
            notes.append("the assumed demand was not varied by ±20 %; --vary-demand does that")
            log["notes"] = list(notes)
    if vary and assumed:
        result.verdicts.extend(_verdicts(bench, baseline, fingerprint))
    return result


def repeat(
    recorded: Recorded,
    machine: Machine,
    settings: Settings,
    *,
    store: Store | None = None,
    log_facts: dict[str, Json] | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """`replay` with `settings.repeat` seeds in a row: the first result, with mean and deviation over all of them.

    Its figures are then the means; what is drawn and listed is the first seed's. The store keeps every seed's runs.
    """
    results = [
        replay(
            recorded,
            machine,
            replace(settings, seed=settings.seed + k, vary_demand=settings.vary_demand if k == 0 else False),
            store=store,
            log_facts=log_facts,
            progress=progress,
        )
        for k in range(settings.repeat)
    ]
    first = results[0]
    if settings.repeat == 1:
        return first
    spread: dict[str, Json] = {}
    for name, policy in first.policies.items():
        means: dict[str, Json] = {}
        for key in policy.metrics:
            values = [value for r in results if (value := r.policies[name].metrics[key]) is not None]
            if not values:
                continue
            mean = float(np.mean(values))
            means[key] = {"mean": mean, "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}
            if key != "jobs":
                policy.metrics[key] = mean
        spread[name] = means
    first.repeats.update({"seeds": [settings.seed + k for k in range(settings.repeat)], "policies": spread})
    return first


def _value(bench: Bench, notes: list[str]) -> None:
    """Give the jobs of the bench their arrays and hints, if anybody asks what they are worth.

    Raises UsageError for a rule that cannot be read, and where jobs are to be admitted and none has a utility.
    """
    settings, jobs = bench.settings, bench.recorded.jobs
    if not settings.values:
        return
    most = AdmitOptions().most_worth
    bench.own_utilities = own = site_utilities()
    rules = [read_rule(text, settings.slot_s, most, own) for text in settings.utilities]
    array, hints = arrays_of(jobs.job_id, jobs.user), hints_of(jobs, rules)
    bench.valued = valued = value(jobs, hints, array, settings.slot_s, most, own)
    bench.workload = replace(bench.workload, array=array, hints=hints)
    if not len(valued) and any(name in ADMITTING for name in settings.policies):
        why = f" ({valued.wrong[0]})" if valued.wrong else ""
        raise UsageError(
            f"no job of {bench.recorded.path} tells its utility{why}, so there is nobody to admit; "
            "give one with --utility 'sigmoid(10,0.5,2h)', or log the Comment column"
        )
    if valued.wrong:
        notes.append(f"{len(valued.wrong)} jobs have a hint that cannot be read, as {valued.wrong[0]}")
    tasks = int((array >= 0).sum())
    if tasks:
        notes.append(
            f"{tasks} jobs are tasks of {int(array.max()) + 1} arrays; their users may have throttled them "
            "(--array=…%N), which a log does not tell: they are replayed without a bound of their own"
        )


def _declare(bench: Bench, notes: list[str]) -> None:
    """Find the deferrable jobs of the bench, if anybody asks for them.

    Raises UsageError where jobs are to be put off and none is deferrable, or a name that is not in the log.
    """
    settings, jobs = bench.settings, bench.recorded.jobs
    if not settings.defers:
        return
    declared = [read_declared(text) for text in settings.deferrable]
    array = arrays_of(jobs.job_id, jobs.user)
    bench.deferrable = found = deferrable_of(jobs, jobs.time_limit_s, array, declared, settings.seed)
    if not found.rows.any() and any(name in DEFERRING for name in settings.policies):
        raise UsageError(
            f"no job of {bench.recorded.path} is deferrable, so there is nobody to put off; declare some with "
            "--deferrable 'share=0.2,window=4h', or log the Comment column with asad:deferrable=4h in it"
        )
    if found.assumed:
        told = ", ".join(settings.deferrable)
        notes.append(
            f"that {found.assumed} jobs are deferrable is assumed ({told}): their users never said that they can wait"
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
    if not found.pairs and any(name in STATING for name in settings.policies):
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


def _play_and_keep(
    bench: Bench, name: str, baseline: Played, store: Store | None, log: dict[str, Json]
) -> PolicyResult:
    """One policy that lends, admits or defers, recorded in the store if there is one."""
    seed = bench.settings.seed

    def play(run: Run | None = None) -> Played:
        if name in DEFERRING:
            return put_off(bench, name, run)
        if name in ADMITTING or name in STATING:
            return admit(bench, name, run)
        return lend(bench, name, seed, run)

    if store is None:
        return _with_placebo(bench, name, play(), baseline)
    settings = {**bench.settings.to_json(), "policies": name}
    with store.begin_run(
        "replay", name, log, bench.machine.to_json(), settings, supersede_killed=True
    ) as run:
        result = _with_placebo(bench, name, play(run), baseline)
        run.record_ends(_job_ends(bench, result, baseline))
        run.finish(dict(result.metrics))
    return result


def _with_placebo(bench: Bench, name: str, played: Played, baseline: Played) -> PolicyResult:
    job = played.cluster.state.job
    touched = job["was_host"] | job["was_guest"]
    if played.managed is not None:
        touched = touched | played.managed.rows
    moved = placebo(bench, baseline, int(touched.sum()), bench.settings.seed)
    return _summarise(bench, name, played, baseline, moved)


def _job_ends(bench: Bench, result: PolicyResult, baseline: Played) -> list[JobEnd]:
    ends = baseline.cluster.state.job["end"]
    return [
        JobEnd(
            job=str(bench.workload.job_id[row]),
            role="guest" if result.guest[row] else "host",
            submit_s=float(bench.workload.submit_s[row]),
            start_s=float(result.start_s[row]),
            end_s=float(result.end_s[row]),
            baseline_end_s=float(ends[row]),
            loser=bool(result.loser[row]),
        )
        for row in np.flatnonzero(result.host | result.guest).tolist()
    ]


def _verdicts(bench: Bench, baseline: Played, fingerprint: NDArray[np.int32]) -> list[Verdict]:
    """The default policy again with every assumed demand 20 % lower and 20 % higher."""
    name = (
        "asax"
        if "asax" in bench.settings.policies
        else next((policy for policy in bench.settings.policies if policy in LENDING), "")
    )
    if not name:
        return []
    verdicts = []
    for factor in (0.8, 1.2):
        profile = replace(bench.settings.demand, factor=factor)
        demand = assign(
            bench.recorded.jobs, fingerprint, bench.application_names, profile, bench.settings.seed
        )
        moved = replace(bench.workload, demand=demand.fraction)
        other = replace(bench, workload=moved)
        played = lend(other, name, bench.settings.seed, what=f"{name}, demand ×{factor:g}")
        result = _summarise(other, name, played, baseline, None)
        own = baseline.cluster.state.job["end"] - bench.workload.submit_s
        change = float((result.end_s - bench.workload.submit_s).mean() / own.mean() - 1.0)
        verdicts.append(
            Verdict(factor, name, change, int(result.loser.sum()), int((result.host | result.guest).sum()))
        )
    return verdicts

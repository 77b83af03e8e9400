"""The nouns of asad: recorded jobs, machines and snapshots.

Everything here is plain data. Tables are columnar: one numpy array a column, one row a job, so that a stage can look
at a hundred thousand jobs without a Python object for each. Units are in the names (`_s` seconds, `_bytes`,
`_fraction` of an allocation in [0, 1]); what was not recorded is NaN in a float column, 0 in a count and -1 in a code.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.applications import Applications as Applications  # a noun that plugins need, too
from asad.applications import fingerprint

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Codes = NDArray[np.int8]
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


# ---------------------------------------------------------------------------------------------------------- recorded


@dataclass(frozen=True, slots=True)
class JobLog:
    """Jobs as an accounting log recorded them, in order of submission (ties in the order of the log).

    Every array has one row a job.
    """

    job_id: NDArray[Any]
    """The log's own name of the job: int64, or text where the log has `12_3` or `12+1`."""
    submit_s: Floats
    """When it was submitted (seconds; UTC epoch, or since the start of the log)."""
    start_s: Floats
    """When it started on the recorded cluster, NaN if it never did."""
    run_s: Floats
    """How long it ran there, above 0."""
    cores: Ints
    """Cores (Slurm: CPUs) it held, above 0."""
    nodes: Ints
    """Nodes it held, 0 if not recorded."""
    time_limit_s: Floats
    """What its user asked for: NaN if not recorded, inf if UNLIMITED."""
    memory_bytes: Floats
    """Memory it reserved, over all its nodes; NaN if not recorded."""
    cpu_time_s: Floats
    """CPU time it used, over all its cores (core-seconds); NaN if not recorded."""
    user: Ints
    application: Ints
    partition: Ints
    """Codes into `users`, `applications` (job names) and `partitions`, -1 if not recorded."""
    depends_on: Ints
    """Row of the job that must end first, -1 for none."""
    think_s: Floats
    """How long after that end it becomes eligible."""
    users: tuple[str, ...] = ()
    applications: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    hint: Ints | None = None
    """Code into `hints`, -1 for none; None if no job has one."""
    hints: tuple[str, ...] = ()
    """What users stated to asad (Slurm: `--comment='asad:…'`, without the prefix). Hostile text."""
    gres: Ints | None = None
    """Code into `gres_texts`, -1 for none; None if no job has any."""
    gres_texts: tuple[str, ...] = ()
    """What was allocated over all nodes of a job, as `--gres` of Slurm is written: `gpu:a100:2`."""
    eligible_s: Floats | None = None
    """When nothing but its turn kept it from starting (begin time, dependency, hold are over), never before
    `submit_s`; None if the log does not record it."""
    account: Ints | None = None
    """Code into `accounts`, -1 for none; None if no job has one."""
    accounts: tuple[str, ...] = ()
    qos: Ints | None = None
    """Code into `qos_names`, -1 for none; None if no job has one."""
    qos_names: tuple[str, ...] = ()
    reason: Ints | None = None
    """Code into `reasons`, -1 for none; None if no job has one."""
    reasons: tuple[str, ...] = ()
    """Why a job was kept waiting last, for something else than its priority or resources, in Slurm's words; the log
    does not say when."""
    priority: Floats | None = None
    """Slurm's priority of it, as it was last; NaN if not recorded, None if that of no job is."""
    start_flag: Ints | None = None
    """Code into `start_flags`, -1 for none; None if no job has one."""
    start_flags: tuple[str, ...] = ()
    """Who started it: `SchedSubmit` (at its submission), `SchedMain` or `SchedBackfill`."""
    constraint: Ints | None = None
    """Code into `constraints`, -1 for none; None if no job has one."""
    constraints: tuple[str, ...] = ()
    """The features that its nodes had to have, as `--constraint` is written. Hostile text."""
    reservation: Ints | None = None
    """Code into `reservations`, -1 for none; None if no job has one."""
    reservations: tuple[str, ...] = ()
    node_set: Ints | None = None
    """Code of its node list in `Recorded.held`, -1 for none; None if no job has one."""

    @property
    def queued_s(self) -> Floats:
        """(n,) from when on each waits for its turn: as it became eligible where that is recorded, else submitted."""
        return self.submit_s if self.eligible_s is None else self.eligible_s

    def __len__(self) -> int:
        return len(self.submit_s)

    def take(self, rows: NDArray[np.intp]) -> JobLog:
        """The same table with only `rows`, in that order; dependencies on rows left out are dropped."""
        new_row = np.full(len(self) + 1, -1, dtype=np.int32)  # the last entry answers "depends on nothing"
        new_row[rows] = np.arange(len(rows), dtype=np.int32)
        columns = {
            column.name: getattr(self, column.name)[rows]
            for column in fields(self)
            if isinstance(getattr(self, column.name), np.ndarray)
        }
        columns["depends_on"] = new_row[columns["depends_on"]]
        return replace(self, **columns)

    def fingerprints(self) -> tuple[Ints, tuple[str, ...]]:
        """Which jobs are runs of one application: same user, same job name but for numbers (`asad.applications`), same
        size class (power of two of cores).

        Returns a code a job and the names of the codes (`user/name/size`, with `-` for what was not recorded).
        """
        size_class = np.ceil(np.log2(self.cores)).astype(np.int64)
        key = ((self.user.astype(np.int64) + 1) * (len(self.applications) + 1) + self.application + 1) * 64
        unique, exact = np.unique(key + size_class, return_inverse=True)
        codes: dict[str, int] = {}
        code_of = []
        for value in unique.tolist():
            pair, size = divmod(value, 64)
            user, application = divmod(pair, len(self.applications) + 1)
            name = fingerprint(
                name_of(self.users, user - 1), name_of(self.applications, application - 1), 2.0**size
            )
            code_of.append(codes.setdefault(name, len(codes)))
        return np.array(code_of, np.int32)[exact], tuple(codes)


def name_of(names: tuple[str, ...], code: int) -> str:
    """What a code of a log stands for: `-` for what was not recorded, the number itself where it has no name."""
    return names[code] if 0 <= code < len(names) else "-" if code < 0 else str(code)


@dataclass(frozen=True, slots=True)
class Machine:
    """The nodes of a cluster. Cores are numbered through, node after node."""

    node_names: tuple[str, ...]
    cores: Ints
    """(N,) cores of each node."""
    memory_bytes: Floats
    """(N,) memory of each node, NaN if not known."""
    origin: str
    """Where this description comes from, in words an operator can check (`slurm.conf:12`, `inferred: …`)."""
    memory_counts: bool = True
    """Are jobs held against the memory of nodes? False where the scheduler does not count it."""
    notes: tuple[str, ...] = ()
    """What was assumed of it, a sentence each."""
    time_limits_s: Mapping[str, float] = field(default_factory=dict)
    """By partition the longest that its jobs may run (inf: for ever), as far as that is known."""
    site: Any = None
    """What is known of how its cluster schedules (`asad.replay.site.Site`, typed by `asad.replay.site.site_of`); None
    if nothing is. It has a row a node: whoever takes some of the nodes, or in another order, takes `of_nodes` of it."""

    @property
    def total_cores(self) -> int:
        return int(self.cores.sum())

    @property
    def memory_bound_bytes(self) -> Floats:
        """(N,) memory that jobs of a node may hold together: inf where it is not known, so that any job fits."""
        return np.where(np.isnan(self.memory_bytes), np.inf, self.memory_bytes)

    @property
    def first_core(self) -> Ints:
        """(N + 1,) number of each node's first core; the last entry is the number of cores."""
        return np.concatenate(([0], np.cumsum(self.cores))).astype(np.int32)

    def to_json(self) -> dict[str, Json]:
        memory = float(np.nansum(self.memory_bytes)) if np.isfinite(self.memory_bytes).all() else None
        return {
            "nodes": len(self.cores),
            "cores": self.total_cores,
            "memory_bytes": memory,
            "origin": self.origin,
        }


# ---------------------------------------------------------------------------------------------------------- snapshot


@dataclass(frozen=True, slots=True)
class Jobs:
    """What can be seen of the jobs of a cluster while it runs; one row a job.

    Of a job that runs, only the past is here: nobody knows how long it will take or what it will need.
    """

    job_id: NDArray[Any]
    application: Ints
    """Code of the application (user, name but for numbers, size class); given again once that is forgotten."""
    user: Ints
    cores: Ints
    nodes: Ints
    """Nodes asked for, 0 where any number will do."""
    time_limit_s: Floats
    memory_bytes_per_core: Floats
    submit_s: Floats
    start_s: Floats
    """NaN while pending."""
    limit_end_s: Floats
    """When the cluster will end it (start + time limit + extensions); NaN while pending."""
    estimated_start_s: Floats
    """The cluster's own estimate of when a pending job will start; NaN if it has none."""
    begin_s: Floats
    """Before this the cluster does not start it (Slurm: `--begin`); NaN for none."""
    deadline_s: Floats
    """By this it must have ended (Slurm: `--deadline`); NaN for none."""
    array: Ints
    """Row of its array in `Snapshot.arrays`; -1 where it is no task of an array."""
    counterfactual_start_s: Floats
    """When it would have started by itself, in a twin of the cluster on which nobody lends; the twin lags behind (see
    `Snapshot.own_known_s`), since it learns how long jobs run when they have ended here. NaN while it waits there, or
    if there is no twin."""
    own_estimate_s: Floats
    """The twin's estimate of that start while it waits there; NaN if it has none (yet)."""
    cpu_fraction: Floats
    """CPU used over CPU allocated (mean of the window) if nobody took any; NaN until it has been measured."""
    pace: Floats
    """Progress per second against the job running alone, since the last look: 1 is unharmed; NaN if unknown."""
    lost_s: Floats
    """Seconds that lending has taken from it so far, as far as its pace shows."""
    extended_s: Floats
    """Seconds by which its time limit has been extended for that."""
    host: Ints
    """Row of the batch job beside which the guest of a pair runs, -1 for none: a batch job, or a guest that draws from
    the pools of its nodes."""
    share: Floats
    """Share of its host's CPU that the guest of a pair may take, or share of itself that a batch job lends to the pools
    of its nodes; NaN: not decided."""
    demand: Floats
    """CPU that a guest which draws from pools is expected to use, as a fraction of its cores; NaN for everyone else."""
    happiness: Floats
    """How far the job itself reports to be in time, from its progress (1 and more: it is); NaN without a report."""
    pressure: Floats
    """Fraction of the last seconds in which it wanted CPU and got none because of its guests; NaN if not measured."""
    latest_end_s: Floats
    """Beyond this no extension may move its end (reservation, partition's or association's limit); inf for none."""
    offered_s: Floats
    """Since when a lending is offered to a pending job that has not started yet; NaN for no offer."""
    share_group: Ints
    """Jobs share only with jobs of the same group (of one user or account, as the site has it); 0 where all may."""
    memory_bound: Codes
    """1 where it is stated to be bound by memory bandwidth, which two such jobs on one node take from each other."""
    host_bar: Codes
    guest_bar: Codes
    """Why it may not lend, or may not be a guest: a number of `asad.ineligible.Ineligible`, 0 if nothing does."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The one column that had another name; clusters and policies of sites may still ask for that."""
            if name != "own_start_s":
                raise AttributeError(f"'Jobs' object has no attribute {name!r}", name=name, obj=self)
            warnings.warn(
                "Jobs.own_start_s is Jobs.counterfactual_start_s now", DeprecationWarning, stacklevel=2
            )
            return self.counterfactual_start_s


def blank_jobs(capacity: int) -> Jobs:
    """So many rows that say nothing, for a cluster to fill in."""
    columns: dict[str, NDArray[Any]] = {}
    for column in fields(Jobs):
        if column.name == "job_id":
            columns[column.name] = np.full(capacity, "", dtype=object)
        elif column.type == "Codes":
            columns[column.name] = np.zeros(capacity, np.int8)
        elif column.type == "Ints":
            none = -1 if column.name in ("application", "user", "host", "array") else 0
            columns[column.name] = np.full(capacity, none, np.int32)
        else:
            columns[column.name] = np.full(capacity, np.nan)
    columns["lost_s"][:] = columns["extended_s"][:] = 0.0
    columns["latest_end_s"][:] = np.inf
    return Jobs(**columns)


@dataclass(frozen=True, slots=True)
class Arrays:
    """The job arrays of a cluster; one row an array. Tasks are jobs, and those that wait may be one row of `Jobs`."""

    waiting_row: Ints
    """Row of `Jobs` that stands for the tasks that wait (the first of them), -1 if none does."""
    waiting: Ints
    running: Ints
    ended: Ints
    """Tasks; all three together are the array."""
    throttle: Ints
    """Most tasks that run at one time (Slurm: ArrayTaskThrottle), 0 for no bound."""

    def __len__(self) -> int:
        return len(self.waiting_row)


def no_arrays() -> Arrays:
    """A cluster without job arrays."""
    none = np.zeros(0, np.int32)
    return Arrays(none, none, none, none, none)


@dataclass(frozen=True, slots=True)
class Tres:
    """What a cluster counts besides cores and memory: gres of its nodes, licences of the whole of it.

    R resources under the names that Slurm gives trackable resources. A gres that has types is counted twice, as
    `gres/gpu` and as `gres/gpu:a100`: who has or wants some of a type has or wants as much of its gres, who wants any
    type wants the gres alone. So whoever keeps all sums within what there is has chosen a possible assignment.
    """

    names: tuple[str, ...]
    """`gres/gpu`, `gres/gpu:a100`, `license/abaqus`."""
    nodes: Floats
    """(N, R) what each node has; 0 of licences."""
    cluster: Floats
    """(R,) what the cluster has that belongs to no node: licences."""
    jobs: Mapping[int, Floats]
    """By row of a job: (R,) what it holds or wants over all its nodes, as far as that is known; only of those that want
    any. A job has its gres evenly over its nodes."""
    unknown: Mapping[int, str]
    """By row of a job: why what it holds or wants cannot be counted, in a sentence. Its `jobs` are too little then."""


def no_tres(nodes: int = 0) -> Tres:
    """A cluster of so many nodes that counts cores and memory alone."""
    return Tres((), np.zeros((nodes, 0)), np.zeros(0), {}, {})


@dataclass(frozen=True, slots=True)
class Waits:
    """Why jobs wait, in the cluster's own words; w rows, one for each job that waits, in the queue or not."""

    row: Ints
    """(w,) rows of `Jobs`."""
    tasks: Ints
    """(w,) jobs that each stands for: tasks of an array that wait together are one row."""
    reason: Ints
    """(w,) the code of its reason."""
    partition: Ints
    """(w,) the code of its partition (or of several, `a,b`)."""
    reasons: Sequence[str]
    """Names of the codes, as the cluster has them (Slurm: `QOSMaxCpuPerUserLimit`)."""
    partitions: Sequence[str]
    accounts: Mapping[int, str]
    qos: Mapping[int, str]
    """By row of a job."""


class Changed(NamedTuple):
    """Which of N nodes have changed, and where jobs are: so that a look costs what has changed.

    A node is listed when another job holds one of its cores, or is a guest on it, and when a 95th percentile of
    `Snapshot.core_peak` is another there; a job is measured on all of its nodes at one time. Once for each look at the
    most: who looks at every snapshot, before the cluster moves on, never falls behind by more than N. What else a pool
    depends on and changes (shares, pace, demand) whoever computes it compares by job; what neither says stays the same.
    """

    entries: NDArray[np.int64]
    """(1,) how many there have been."""
    nodes: Ints
    """(N,) the last of them: entry k at k mod N."""
    owner_first: Ints
    """(rows,) one core of each running batch job, and from there on, by `owner_skip`, one on each of its nodes."""
    owner_skip: Ints
    """(cores,) -1 after the last."""
    guest_first: Ints
    guest_skip: Ints
    """The same of each guest."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a cluster. Stages decide on this and on nothing else."""

    time_s: float
    version: int
    """Rises whenever anything that can be seen has changed; equal versions need no second cycle."""
    machine: Machine
    jobs: Jobs
    queue: Ints
    """Rows of `jobs` that wait, in the order in which the cluster would try them (its first `depth` ones)."""
    running: Ints
    """Rows of the batch jobs that run."""
    guests: Ints
    """Rows of the guests that run."""
    core_owner: Ints
    """(cores,) row of the batch job that holds each core, -1 if idle."""
    core_guest: Ints
    """(cores,) row of the guest on each core, -1 for none."""
    waiting: int
    """How many jobs wait in all, beyond the depth of `queue` too."""
    node_bar: Codes
    """(N,) why nothing is lent on a node: a number of `asad.ineligible.NodeIneligible`, 0 if nothing does."""
    own_known_s: float = math.inf
    """Until when it is known which jobs would have started by themselves: the twin's clock. At most `time_s` counts."""
    arrays: Arrays = field(default_factory=no_arrays)
    hints: Mapping[int, str] = field(default_factory=dict)
    """By row of a job: what its user states to asad (Slurm: `--comment='asad:…'`, without the prefix). Hostile text."""
    classes: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """By row of a job that waits: its partition (or several, `a,b`) and its QOS, where the cluster has them."""
    memory_used: Mapping[int, float] = field(default_factory=dict)
    """By row of a job that runs: bytes of memory that it uses, on that of its nodes where it uses most; only where that
    is measured."""
    memory_high: Mapping[int, float] = field(default_factory=dict)
    """By row of a job that runs: above so many bytes on a node its memory is reclaimed; only where that was decided."""
    gpus: Mapping[int, float] = field(default_factory=dict)
    """By row of a job: GPUs that it holds or asks for, over all its nodes; only of jobs whose gres says so."""
    node_gpus: Mapping[int, float] = field(default_factory=dict)
    """By number of a node: its GPUs; only of nodes that have some."""
    tres: Tres = field(default_factory=no_tres)
    """Gres and licences, GPUs among them; only where the cluster counts any."""
    guest_nodes: Mapping[int, Ints] = field(default_factory=dict)
    """By row of a job that waits or of a guest: the numbers of the nodes on which it may be one, by partition, features
    and the nodes that its user names; only of jobs that may not be on all."""
    own_begins: Mapping[int, float] = field(default_factory=dict)
    """By row of a job that waits and begins when asad decides: the begin time that its user gave, NaN for none."""
    partition_nodes: Mapping[str, Ints] = field(default_factory=dict)
    """By partition: the numbers of its nodes; empty where the cluster does not say."""
    core_peak: Floats | None = None
    """(cores,) 95th percentile of what the batch job on each core uses of a core on that node, over its last ten
    minutes; NaN until it has been measured. None: only the means of `Jobs.cpu_fraction` are known."""
    lends_free_cores: bool = False
    """May guests be offered cores that no batch job holds?"""
    whole_nodes: bool = True
    """Does only a node lend that one batch job holds wholly?"""
    widened: bool = False
    """May a guest run on every core of its nodes, or on its own alone?"""
    names: Mapping[int, str] = field(default_factory=dict)
    """By row of a job: the name that its user gave it, as it is; empty where the cluster reports applications alone.
    Hostile text."""
    partitions: Mapping[int, str] = field(default_factory=dict)
    """By row of a job that waits or runs: its partition (or several, `a,b`), where the cluster has them."""
    node_states: Sequence[str] = ()
    """(N,) states of each node as the cluster names them, `IDLE+DRAIN`; empty where it does not say."""
    waits: Waits | None = None
    """Why jobs wait; None where the cluster does not say."""
    changed: Changed | None = None
    """Which nodes have changed; None where the cluster does not keep account: all of them may have."""


class ShareCases(NamedTuple):
    """What hosts lent, in which state, and what it cost; n cases."""

    job: list[str]
    """Number of the host."""
    application: list[str]
    time_s: Floats
    """When the share was drawn."""
    state: NDArray[np.float32]
    """(n, features) what the experts saw then, in the order of `asad.experts.FEATURES`; NaN where unknown."""
    share: Floats
    probability: Floats
    """With which the share was drawn, in (0, 1]."""
    loss: Floats
    """In [0, 1]."""

    def take(self, rows: NDArray[np.intp]) -> ShareCases:
        """Those of these numbers, in their order."""
        return ShareCases(
            [self.job[row] for row in rows.tolist()],
            [self.application[row] for row in rows.tolist()],
            self.time_s[rows],
            self.state[rows],
            self.share[rows],
            self.probability[rows],
            self.loss[rows],
        )


@dataclass(frozen=True, slots=True)
class Finished:
    """Jobs that ended since the last look."""

    row: Ints
    end_s: Floats
    run_s: Floats
    """NaN, both, of a job that is over and of which nobody knows since when."""
    lost_s: Floats
    """Seconds of the run that lending took."""
    cpu_fraction: Floats
    """CPU wanted over CPU allocated in the whole run, NaN if not measured."""
    completed: NDArray[np.bool_] | None = None
    """Whether each ended well, by itself and within its limit; None where the cluster does not say."""


STATEMENTS_OVER = ("completed", "failed", "evicted", "cancelled", "missed", "withdrawn", "declined")
"""States of a statement of work of which nothing more will become."""
HOUSE = "(house)"
"""The account to which the owners of statements pay; no user has a name with brackets."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """What stood here before; plugins and policies of sites may still import it from here."""
        for room in () if name.startswith("__") else ("asad.decisions", "asad.port"):
            if hasattr(module := import_module(room), name):
                warnings.warn(f"asad.model.{name} is {room}.{name} now", DeprecationWarning, stacklevel=2)
                return getattr(module, name)
        raise AttributeError(f"module 'asad.model' has no attribute {name!r}", name=name, obj=None)

"""The nouns of asad: recorded jobs, machines, snapshots and decisions.

Everything here is plain data. Tables are columnar: one numpy array a column, one row a job, so that a stage can look
at a hundred thousand jobs without a Python object for each. Units are in the names (`_s` seconds, `_bytes`,
`_fraction` of an allocation in [0, 1]); what was not recorded is NaN in a float column, 0 in a count and -1 in a code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

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
    """When it was submitted (seconds; UTC epoch, or since the log's own start)."""
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
    """What users told asad (Slurm: `--comment='asad:…'`, without the prefix). Hostile text."""

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
        return JobLog(
            **columns,
            users=self.users,
            applications=self.applications,
            partitions=self.partitions,
            hints=self.hints,
        )

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

    @property
    def total_cores(self) -> int:
        return int(self.cores.sum())

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

    Of a job that runs, only the past is here: nothing tells how long it will take or what it will need.
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
    own_start_s: Floats
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
    """Seconds that lending has taken from it so far, as far as its pace tells."""
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
    """What the job itself tells of being in time, from its progress (1 and more: it is); NaN if it tells nothing."""
    pressure: Floats
    """Fraction of the last seconds in which it wanted CPU and got none because of its guests; NaN if not measured."""
    latest_end_s: Floats
    """Beyond this no extension may move its end (reservation, partition's or association's limit); inf for none."""
    offered_s: Floats
    """Since when a lending is offered to a pending job that has not started yet; NaN for no offer."""
    share_group: Ints
    """Jobs share only with jobs of the same group (of one user or account, as the site has it); 0 where all may."""
    memory_bound: Codes
    """1 where it is said to be bound by memory bandwidth, which two such jobs on one node take from each other."""
    host_bar: Codes
    guest_bar: Codes
    """Why it may not lend, or may not be a guest: an index into `BARS`, 0 if nothing bars it."""


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


BARS = (
    "",
    "it opted out",
    "its user opted out",
    "its account opted out",
    "its partition opted out",
    "its QOS opted out",
    "it runs on several nodes, and a host slowed on one is slowed on all",
    "it holds or wants gres",
    "it holds all memory of its nodes",
    "it has its nodes for itself (--exclusive)",
    "it shares its node with other batch jobs",
    "it wants licences",
    "it runs in a reservation",
    "it depends on a job that has not ended",
    "it has no time limit",
    "Slurm has not estimated its start",
    "it is held, or waits for something other than its turn",
    "its partition has no guest partition",
    "its user's jobs may share with that user's alone",
    "its node takes no guests",
    "it is a part of a heterogeneous job, whose parts wait for each other",
)
"""What bars a job from lending or from being a guest, as a sentence about the job."""
NODE_BARS = (
    "",
    "it is drained, down or not answering",
    "it opted out",
    "its node actor does not answer",
    "Slurm takes each of its hyper-threads for a core",
    "a job there may not lend",
)
"""What bars a node from lending."""


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
    """(N,) why nothing is lent on a node: an index into `NODE_BARS`, 0 if nothing bars it."""
    own_known_s: float = math.inf
    """Until when it is known which jobs would have started by themselves: the twin's clock. At most `time_s` counts."""
    arrays: Arrays = field(default_factory=no_arrays)
    hints: Mapping[int, str] = field(default_factory=dict)
    """By row of a job: what its user tells asad (Slurm: `--comment='asad:…'`, without the prefix). Hostile text."""
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
    own_begins: Mapping[int, float] = field(default_factory=dict)
    """By row of a job that waits and begins when asad has said: the begin time that its user gave, NaN for none."""
    partition_nodes: Mapping[str, Ints] = field(default_factory=dict)
    """By partition: the numbers of its nodes; empty where the cluster does not tell."""
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
    """By row of a job: the name that its user gave it, as it is; empty where the cluster tells applications alone.
    Hostile text."""


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
    """Whether each ended well, by itself and within its limit; None where the cluster does not tell."""


# ---------------------------------------------------------------------------------------------------------- decisions


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a decision was made."""

    policy: str
    reason: str
    """One sentence for an operator."""
    detail: Mapping[str, Json] = field(default_factory=dict)
    """Numbers behind it: the expert nodes reached, probabilities, weights, estimates."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Something to be done to the cluster, with its reason. Rows are those of the snapshot it was made on."""

    cause: Cause

    kind: ClassVar[str] = ""

    def to_json(self) -> dict[str, Json]:
        """A plain dict that `decision_from_json` turns back into an equal decision."""
        plain: dict[str, Json] = {"kind": self.kind}
        for column in fields(self):
            if column.name != "cause":
                value = getattr(self, column.name)
                plain[column.name] = list(value) if isinstance(value, tuple) else value
        plain["cause"] = {
            "policy": self.cause.policy,
            "reason": self.cause.reason,
            "detail": dict(self.cause.detail),
        }
        return plain


@dataclass(frozen=True, slots=True)
class CoAllocate(Decision):
    """Start the waiting job `guest` on `nodes`, where it draws `demands` from the pools, or beside one `host`.

    Policies that pair one guest with one host (`asax-paper`, `static`, `greedy-oracle`) give `host` and `share`, all
    others `demands`.
    """

    kind: ClassVar[str] = "co-allocate"
    guest: int
    nodes: tuple[int, ...]
    """Numbers of the nodes over which the guest's cores are spread evenly; of a pair all wholly held by the host."""
    demands: tuple[float, ...] = ()
    """Cores' worth of CPU that it is expected to use on each of the nodes; empty for a pair."""
    host: int = -1
    """The host of a pair."""
    share: float = 0.0
    """Of a pair: the share of the host's CPU that caps the guest."""
    capped: bool = False
    """Of a pair: quotas bind both, the host keeps `1 - share`. Otherwise the guest is in the idle class and the host is
    free."""

    @property
    def pooled(self) -> bool:
        """Does the guest draw from pools, and not from one host?"""
        return self.host < 0


@dataclass(frozen=True, slots=True)
class SetShare(Decision):
    """Change the share of the host's CPU that the guest of a pair may take, or that `host` lends to its pools."""

    kind: ClassVar[str] = "set-share"
    guest: int = -1
    """The guest of a pair, -1 where `host` is given."""
    share: float = 0.0
    capped: bool = False
    host: int = -1


@dataclass(frozen=True, slots=True)
class SetQuota(Decision):
    """From now on a running guest that draws from pools uses at most `cores[k]` cores' worth of CPU on `nodes[k]`."""

    kind: ClassVar[str] = "set-quota"
    guest: int
    nodes: tuple[int, ...]
    cores: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ExtendLimit(Decision):
    """Give a running job `by_s` seconds more, because lending took them from it."""

    kind: ClassVar[str] = "extend-limit"
    job: int
    by_s: float


@dataclass(frozen=True, slots=True)
class Withdraw(Decision):
    """Take back the offer to a job that has not started beside its host: it waits as if it had never been offered."""

    kind: ClassVar[str] = "withdraw"
    guest: int


@dataclass(frozen=True, slots=True)
class Admit(Decision):
    """The waiting job has a schedule: the cluster tries it before those that have none."""

    kind: ClassVar[str] = "admit"
    job: int


@dataclass(frozen=True, slots=True)
class Decline(Decision):
    """The waiting job has no schedule: it stays in the cluster's own queue as it is, and its user can read why."""

    kind: ClassVar[str] = "decline"
    job: int


@dataclass(frozen=True, slots=True)
class Defer(Decision):
    """The waiting job (or the waiting tasks of its array) starts no sooner than `until_s`, asad dead or alive."""

    kind: ClassVar[str] = "defer"
    job: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Start(Decision):
    """The waiting job (or the waiting tasks of its array) may start now: what deferred it is taken back."""

    kind: ClassVar[str] = "start"
    job: int


@dataclass(frozen=True, slots=True)
class SetThrottle(Decision):
    """At most `tasks` tasks of the array of `job` run at one time from now on; 0 for no bound. Running ones go on."""

    kind: ClassVar[str] = "set-throttle"
    job: int
    """Row of any of its tasks."""
    tasks: int


@dataclass(frozen=True, slots=True)
class SetMemory(Decision):
    """From now on memory of a job that shares its nodes is reclaimed when it uses more than `high_bytes` on a node.

    Nothing is killed for it: what the job does not touch is written out or dropped, and it waits for that.
    """

    kind: ClassVar[str] = "set-memory"
    job: int
    high_bytes: float
    """On each of its nodes; 0 for no such limit."""


@dataclass(frozen=True, slots=True)
class Evict(Decision):
    """The running job ends now, as its owner agreed when it was promised a start: who was promised earlier needs it."""

    kind: ClassVar[str] = "evict"
    job: int
    how: str
    """One of `EVICTIONS`, and the very one that its owner chose."""


EVICTIONS = ("requeue-hold", "cancel")
"""How a job may be evicted: it waits again, held until its owner releases it, or it is gone."""
STATEMENTS_OVER = ("completed", "failed", "evicted", "cancelled", "missed", "withdrawn", "declined")
"""States of a statement of work of which nothing more will become."""
HOUSE = "(house)"
"""The account to which the owners of statements pay; no user has a name with brackets."""


DECISIONS: dict[str, type[Decision]] = {
    kind.kind: kind
    for kind in (
        CoAllocate,
        SetShare,
        SetQuota,
        ExtendLimit,
        Withdraw,
        Admit,
        Decline,
        Defer,
        Start,
        SetThrottle,
        SetMemory,
        Evict,
    )
}


def decision_from_json(plain: Mapping[str, Any]) -> Decision:
    """The decision that `Decision.to_json` wrote.

    Raises KeyError for an unknown kind or a missing key.
    """
    rest = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in plain.items()
        if key not in ("kind", "cause")
    }
    return DECISIONS[plain["kind"]](cause=Cause(**plain["cause"]), **rest)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a decision."""

    decision: Decision
    done: bool
    reason: str
    """Why not, or the empty string."""
    transient: bool = False
    """It was refused for the moment alone: it is worth another try in the next cycle."""


class Cluster(Protocol):
    """The port: everything that touches the world sits behind it. A recorded cluster and a real one are alike."""

    def snapshot(self) -> Snapshot:
        """The cluster as it is now."""
        ...

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided, and say for each what became of it. Never raises for a decision that came too late."""
        ...

    def finished(self, since_s: float) -> Finished:
        """The jobs that ended after `since_s`."""
        ...


# ------------------------------------------------------------------------------------------------------- node reports


@dataclass(frozen=True, slots=True)
class JobSample:
    """What the node actor saw of one job on its node, over the window of its profile."""

    job_id: str
    guest: bool
    cores: int
    """Cores of this node that the job may run on."""
    core_ids: tuple[int, ...]
    """Their numbers on the node."""
    cpu_fraction: float
    """CPU used over those cores, mean of the window; NaN until it is full."""
    cpu_peak: float
    """95th percentile of the same; NaN until the window is full."""
    cpu_time_s: float
    memory_bytes: float
    """What it needs on this node: without clean page cache that nobody has mapped. NaN if nobody counts it."""
    throttled: float
    """Fraction of the periods in which its quota stopped it; NaN if it has none."""
    pressure: float
    """Fraction of the last second for which it waited for CPU: of any kind in the actor's own samples, that its guests
    cause in a report; NaN if the kernel does not tell."""
    read_bytes: float
    written_bytes: float
    threads: int
    parallel: bool
    """More than one core was busy (stage)."""
    progress: float
    """Part of its work that the job says it has done, in [0, 1]; NaN if it says nothing."""
    since_s: float
    """When the actor first saw it (UTC epoch)."""
    quota: float
    """Share of its cores that its quota leaves it; NaN for no quota."""
    idle_class: bool
    delayed: float = math.nan
    """Part of the time since the last look that waiting for a core can have cost it: run delay over CPU and run delay,
    and not more than all its threads have waited together; NaN if the kernel does not tell, or nobody asked."""
    steps_done: int = 0
    """Numbered steps (`srun`) that have ended, as far as this node has seen steps of it."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One look of a node actor at its node."""

    node: str
    time_s: float
    """When it was taken, by the daemon's clock."""
    cgroup: Literal[1, 2]
    jobs: Mapping[str, JobSample]
    hyperthreaded_cores: int = 0
    """Cores of the machine if they have several hyper-threads each, else 0."""
    widens: bool = False
    """Does the actor let guests that a lease says so of run on every core of the node?"""


@dataclass(frozen=True, slots=True)
class Lease:
    """What may bind one job on one node until the lease runs out."""

    job_id: str
    guest: bool
    host_id: str
    """The host of a guest; empty for a host itself and for a guest on idle cores."""
    quota: float
    """Share of `cores` that it may use; NaN: no quota, the idle class alone holds a guest."""
    cores: int
    memory_high_bytes: float = math.nan
    """Above this its memory on the node is reclaimed; NaN: no such limit."""
    widen: bool = False
    """It may run on every core of the node that the cluster may use; of a guest with a quota alone."""


class NodeLink(Protocol):
    """The node actors, as a cluster plugin sees them."""

    def reports(self) -> Mapping[str, NodeReport]:
        """The latest report of every node whose actor answers."""
        ...

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """Tell the actors of these nodes that a job will come as a guest; did all of them take note of it?"""
        ...

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """By node name, all that holds there until the lease runs out; what is not named is lifted.

        A daemon sends it when its cycle is completed; no leases at all are sent at once."""
        ...

"""What `--json` prints, command by command: one place for the schemas that are published, and for their versions.

Every answer is an object with the key `schema`: the words of the command and a version, as `jobs/1`. New keys may come
in any release; where a key goes or means something else the version grows (`asad.cli.output.VERSIONS`).
`docs/reference/schemas/` holds them as JSON Schema, written by `python -m docs.generate`. Points in time are seconds
since 1970 (`…_s`, UTC); beside each stands `…_iso`, the date with its offset in the zone of who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from asad.cli.sow_answers import SowCancel, SowInfer, SowLedger, SowQuote, SowStatus, SowSubmit
from asad.cli.waits_answer import Waits
from asad.store.records import AccountTotal, DecisionRecord, JobEnd, QuotaChange, RunRecord

KEYS = {"counterfactual_start_s": "own_start_s", "remedy": "mend"}
"""Fields of the classes below → their keys, where those stay as they were."""
Plain = dict[str, Any]
"""An object whose keys depend on the policy, the plugin or the site."""


class Job(TypedDict):
    """A job as the daemon saw it last."""

    job: str
    state: Literal["waiting", "offered", "running", "guest"]
    user: str
    name: str
    partition: str | None
    """Or several, `a,b`, of a job that waits; null where the cluster has none."""
    cores: int
    nodes: list[str]
    """Where it runs."""
    node_count: int
    """So many it has, or asks for."""
    time_limit_s: float | None
    submit_s: float | None
    start_s: float | None
    limit_end_s: float | None
    """When its time limit, as extended, ends."""
    estimated_start_s: float | None
    counterfactual_start_s: float | None
    """When it would have started without lending."""
    cpu_fraction: float | None
    """Part of its cores' CPU that it uses, in [0, 1]."""
    pace: float | None
    lost_s: float | None
    extended_s: float | None
    host: str | None
    share: float | None
    needs: dict[str, float]
    """By node: cores' worth of CPU."""
    gives: dict[str, float]
    """By guest: cores' worth of CPU."""
    happiness: float | None
    pressure: float | None
    host_bar: str
    """Why it lends nothing; empty if it may."""
    guest_bar: str
    """Why it is no guest; empty if it may be one."""
    wait_reason: NotRequired[str | None]
    """Why it waits, as the cluster says (Slurm: `QOSMaxCpuPerUserLimit`)."""


class Jobs(TypedDict):
    """`asactl jobs`"""

    jobs: list[Job]
    total: int
    """Jobs that match, shown or not."""
    now_s: float
    """By the daemon's clock."""


class Node(TypedDict):
    """A node as the daemon saw it last."""

    node: str
    partitions: list[str]
    state: str | None
    """As `scontrol show node` has it, `IDLE+DRAIN`; null where the cluster does not say."""
    cores: int
    memory_bytes: float | None
    idle_cores: int
    jobs: list[str]
    guests: list[str]
    lent: float | None
    """Part of its cores' CPU that is lent."""
    bar: str
    """Why nothing is lent there; empty if something may be."""
    actor: bool
    report_age_s: float | None
    cgroup: int | None


class Nodes(TypedDict):
    """`asactl nodes`"""

    nodes: list[Node]


class Status(TypedDict):
    """`asactl status`"""

    version: str
    mode: Literal["observe", "advise", "enforce"]
    paused: bool
    policy: str
    """Of the share stage."""
    admit: str
    defer: str
    place: str
    now_s: float
    doing: str | None
    """What the main thread is at if it takes long."""
    since_s: float
    cycle: Plain
    cycles: Plain
    cluster: Plain
    lending: list[Plain]
    """Who lends to whom."""
    waits: NotRequired[list[Plain]]
    """Why jobs wait, by reason."""
    gains: Plain
    forecasts: NotRequired[Plain]
    """Of starts by themselves, against what came, since the daemon started."""
    vetoes: dict[str, int]
    funnel: list[Plain]
    """Where the CPU goes that batch leaves idle."""
    actors: Plain
    store: Plain


class JobRows(TypedDict):
    """Jobs without the key `schema`."""

    jobs: list[Job]


class Top(TypedDict):
    """`asactl top`"""

    status: Status
    jobs: JobRows


class Change(TypedDict):
    """`asactl pause`, `asactl resume`"""

    paused: bool
    meanwhile: str | None
    """What the daemon is still at."""


class Release(TypedDict):
    """`asactl release`"""

    paused: bool
    done: list[str]


class Mode(TypedDict):
    """`asactl mode`"""

    mode: Literal["observe", "advise", "enforce"]
    before: NotRequired[str]


class OtherRun(TypedDict):
    """Another run that touched the job."""

    id: int
    policy: str
    state: str


class Explain(TypedDict):
    """`asactl explain`"""

    job: str
    run: RunRecord | None
    runs: list[int]
    """Those whose decisions these are: earlier ones of the daemon too."""
    others: list[OtherRun]
    decisions: list[DecisionRecord]
    ends: list[JobEnd]
    live: NotRequired[Job | None]
    deferral: NotRequired[Plain | None]
    gang: NotRequired[Plain | None]
    """Of a job on Mesos."""
    quotas: NotRequired[list[QuotaChange]]


class AdmitExplain(TypedDict):
    """`asactl admit explain`"""

    job: str
    policy: str
    verdict: NotRequired[str | None]
    decisions: NotRequired[list[Plain]]


class AdmitStatus(TypedDict):
    """`asactl admit status`"""

    policy: str
    jobs: list[Plain]
    slots: list[Plain]


class DeferStatus(TypedDict):
    """`asactl defer status`"""

    policy: str
    now_s: float | None
    step_s: float
    packing: str
    capacity: float | None
    held_cores: float | None
    known_days: float
    waiting: int
    running: int
    counts: dict[str, int]
    erred: str | None
    missed: list[list[Any]]
    forecast: list[list[Any]]
    jobs: list[Plain]


class DeferShow(TypedDict):
    """`asactl defer show`: the networks that ship, or one."""

    networks: NotRequired[dict[str, list[dict[str, str]]]]
    model: NotRequired[Plain]


class Finding(TypedDict):
    """What the doctor found."""

    check: str
    state: Literal["ok", "warn", "fail"]
    why: str
    remedy: str
    """What corrects it."""


class Doctor(TypedDict):
    """`asactl doctor`"""

    findings: list[Finding]
    slurm_conf: list[str]
    """Lines to add."""
    forecasts: NotRequired[Plain | None]
    """Of starts by themselves, against what came; null: nothing is known of any."""


class ConfigCheck(TypedDict):
    """`asactl config check`"""

    file: str
    ok: bool
    faults: list[str]


class ConfigShow(TypedDict):
    """`asactl config show`: tables by name."""

    daemon: Plain
    policies: Plain
    guard: Plain


class Runs(TypedDict):
    """`asactl runs`"""

    runs: list[RunRecord]


class Removed(TypedDict):
    """`asactl runs rm`, `asactl runs prune`"""

    removed: list[int]
    decisions: int


class Ledger(TypedDict):
    """`asactl ledger`"""

    accounts: list[AccountTotal]


class Tasks(TypedDict):
    """`asactl tasks`"""

    jobs: list[Plain]


class Submit(TypedDict):
    """`asactl submit`"""

    job: str
    """Empty after a dry run."""
    spec: Plain


class Cancel(TypedDict):
    """`asactl cancel`"""

    job: str
    cancelled: bool


class Teardown(TypedDict):
    """`asactl teardown`"""

    jobs: int
    tasks: int


class ExpertsCheck(TypedDict):
    """`asactl experts check`"""

    problems: list[Plain]
    experts: list[str]


class ExpertsShow(TypedDict):
    """`asactl experts show`"""

    experts: list[Plain]


class ExpertsEval(TypedDict):
    """`asactl experts eval`"""

    state: dict[str, float | None]
    actions: list[float]
    experts: list[Plain]
    mixture: list[float]
    mean: float


class ExpertsFit(TypedDict):
    """`asactl experts fit`"""

    file: str
    name: str
    nodes: int
    leaves: int
    depth: int
    rows: int
    ignored: list[str]
    comparison: NotRequired[Plain]


class Calibrate(TypedDict):
    """`asactl calibrate`"""

    measured: Plain


class Whatif(TypedDict):
    """`asactl whatif`"""

    log: Plain
    machine: Plain
    configurations: dict[str, str]
    settings: list[Plain]
    figures: list[Plain]


class ReplayBaseline(TypedDict):
    """What policies are compared with."""

    kind: Literal["recorded", "simulated"]
    why: str
    recorded: Plain
    why_waited: Plain | None
    chosen: int
    policy: str | None
    held: Plain | None
    simulated: Plain | None
    fidelity: list[Plain]
    goes_by: list[str]
    not_simulated: list[Plain]


class ReplayGroup(TypedDict):
    """Jobs that share a property."""

    by: Literal["partition", "account", "qos", "gres"]
    name: str
    jobs: int
    recorded_wait_mean_s: float | None
    policy: str | None
    response_change: float | None
    guests: int | None


class Replay(TypedDict):
    """`asactl replay`"""

    log: Plain
    machine: Plain
    settings: Plain
    policies: Plain
    baseline: ReplayBaseline
    repeats: Plain
    groups: list[ReplayGroup]


class Evaluation(TypedDict):
    """`asactl bench …`, `asactl defer fit`, `asactl defer train`: the page of each says what stands there."""


class Sweep(TypedDict):
    """`asactl sweep run`, `asactl sweep show`"""

    sweep: str
    tasks: int
    done: int
    failed: int
    baseline: str
    confidence: float
    figures: list[Plain]
    results: list[Plain]


class SweepList(TypedDict):
    """`asactl sweep list`"""

    sweeps: list[Plain]


class SweepRemoved(TypedDict):
    """`asactl sweep rm`"""

    removed: str
    results: int


class StoreSize(TypedDict):
    """`asactl store size`"""

    store: str
    bytes: int | None
    tables: list[Plain]


class StoreBackup(TypedDict):
    """`asactl store backup`"""

    store: str
    file: str
    bytes: int


class StoreVacuum(TypedDict):
    """`asactl store vacuum`"""

    store: str
    bytes_before: int | None
    bytes_after: int | None


class StoreErase(TypedDict):
    """`asactl store erase`"""

    user: str
    pseudonym: str
    """Under which ledgers go on; empty: nothing was erased."""
    jobs: int
    rows: dict[str, int]
    open_statements: int
    mentions: dict[str, int]
    dry_run: bool
    live_runs: list[int]


class NodeOnce(TypedDict):
    """`asad-node --once`"""

    node: str
    cgroup: int
    jobs: dict[str, Plain]
    """By job: what was measured of it."""


ANSWERS: Mapping[str, type] = {
    "admit explain": AdmitExplain,
    "admit status": AdmitStatus,
    "asad-node": NodeOnce,
    "bench": Evaluation,
    "calibrate": Calibrate,
    "cancel": Cancel,
    "config check": ConfigCheck,
    "config show": ConfigShow,
    "defer fit": Evaluation,
    "defer show": DeferShow,
    "defer status": DeferStatus,
    "defer train": Evaluation,
    "doctor": Doctor,
    "experts check": ExpertsCheck,
    "experts eval": ExpertsEval,
    "experts fit": ExpertsFit,
    "experts show": ExpertsShow,
    "explain": Explain,
    "jobs": Jobs,
    "ledger": Ledger,
    "mode": Mode,
    "nodes": Nodes,
    "pause": Change,
    "release": Release,
    "replay": Replay,
    "resume": Change,
    "runs": Runs,
    "runs prune": Removed,
    "runs rm": Removed,
    "sow cancel": SowCancel,
    "sow infer": SowInfer,
    "sow ledger": SowLedger,
    "sow quote": SowQuote,
    "sow status": SowStatus,
    "sow submit": SowSubmit,
    "status": Status,
    "store backup": StoreBackup,
    "store erase": StoreErase,
    "store size": StoreSize,
    "store vacuum": StoreVacuum,
    "submit": Submit,
    "sweep list": SweepList,
    "sweep rm": SweepRemoved,
    "sweep run": Sweep,
    "sweep show": Sweep,
    "tasks": Tasks,
    "teardown": Teardown,
    "top": Top,
    "waits": Waits,
    "whatif": Whatif,
}
"""By the words of the command; `bench` is of all below it, `asad-node` of `asad-node --once`."""

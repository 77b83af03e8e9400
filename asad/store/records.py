"""What the state store returns: plain rows, frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from asad.decisions import DECISIONS, Decision, SetShare, decision_from_json
from asad.model import Json
from asad.store.process import ProcessMark

RunKind = Literal["replay", "live", "bench"]
RunState = Literal["running", "done", "failed", "killed"]
Role = Literal["host", "guest"]

JOB_FIELDS = ("guest", "job")
COLUMNS = {
    "guest": "job_row",
    "job": "job_row",
    "host": "host_row",
    "share": "share",
    "by_s": "seconds",
}
"""Field of a decision → its column; the other fields are kept together in `more`."""
NODE_NAMES = "node_names"
"""In `more` of a decision about a guest that draws from pools: the names of its nodes, which no field of it holds."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of one policy."""

    id: int
    kind: RunKind
    policy: str
    log: dict[str, Any]
    """What the caller knows of the log: `path` and `sha256`, and whatever else."""
    machine: dict[str, Any]
    settings: dict[str, Any]
    started_at: float
    """Wall clock, UTC epoch."""
    ended_at: float | None
    state: RunState
    """`killed` too if it is stored as running but its process is gone."""
    failure: str
    """Why it failed or was killed, or the empty string."""
    checkpoint_s: float | None
    """Time of the log up to which everything is stored."""
    decisions: int
    """How many are stored."""
    metrics: dict[str, Any]
    process: ProcessMark

    def to_json(self) -> dict[str, Json]:
        """A plain dict of everything but the process, of which only host and pid are shown."""
        return {
            "id": self.id,
            "kind": self.kind,
            "policy": self.policy,
            "log": self.log,
            "machine": self.machine,
            "settings": self.settings,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "state": self.state,
            "failure": self.failure,
            "checkpoint_s": self.checkpoint_s,
            "decisions": self.decisions,
            "metrics": self.metrics,
            "host": self.process.host,
            "pid": self.process.pid,
        }


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, what became of it and why."""

    run_id: int
    seq: int
    """From 0, in the order of recording."""
    cycle: int
    time_s: float
    kind: str
    job: str
    """The log's own name of the job: the guest, or the job concerned."""
    job_row: int
    host: str | None
    host_row: int | None
    share: float | None
    """Of the host's CPU, in [0, 1]; None where the kind has none."""
    seconds: float | None
    more: dict[str, Any]
    """What else the decision holds, by field."""
    policy: str
    reason: str
    outcome: Literal["done", "refused", "vetoed"]
    outcome_reason: str
    detail: dict[str, Any]

    def decision(self) -> Decision | None:
        """The decision as it was recorded; None for a kind that this asad knows not, or otherwise."""
        if self.kind not in DECISIONS:
            return None
        cause = {"policy": self.policy, "reason": self.reason, "detail": self.detail}
        plain = {"kind": self.kind, "cause": cause, **self.more}
        plain.pop(NODE_NAMES, None)
        for column in fields(DECISIONS[self.kind]):
            if column.name in COLUMNS:
                value = getattr(self, COLUMNS[column.name])
                none = -1 if column.name == "host" else math.nan
                plain[column.name] = none if value is None else value
        if self.kind == SetShare.kind:  # of a guest, or of a host as both
            lends = self.host_row == self.job_row
            plain |= {"guest": -1 if lends else self.job_row, "host": self.job_row if lends else -1}
        try:
            return decision_from_json(plain)
        except TypeError:
            return None

    def to_json(self) -> dict[str, Json]:
        """A plain dict, without the rows of the snapshot, which mean nothing to a reader."""
        return {
            "seq": self.seq,
            "cycle": self.cycle,
            "time_s": self.time_s,
            "kind": self.kind,
            "job": self.job,
            "host": self.host,
            "share": self.share,
            "seconds": self.seconds,
            "more": self.more,
            "policy": self.policy,
            "reason": self.reason,
            "outcome": self.outcome,
            "outcome_reason": self.outcome_reason,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job that lending touched ended. Times by the clock of the log, None where there is none."""

    job: str
    role: Role
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    baseline_end_s: float | None
    """When the same job ended in the same replay without lending."""
    loser: bool
    """Ended later than there by more than the report tolerates."""

    def to_json(self) -> dict[str, Json]:
        """A plain dict of every column."""
        return {
            "job": self.job,
            "role": self.role,
            "submit_s": self.submit_s,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "baseline_end_s": self.baseline_end_s,
            "loser": self.loser,
        }


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What lending gave to a guest, or took from a host, that has ended."""

    job: str
    role: Role
    time_s: float
    """When it ended."""
    account: str
    lent_core_s: float
    """Core-seconds that it got (guest) or gave (host)."""
    extended_s: float
    """By how much its time limit was extended."""


@dataclass(frozen=True, slots=True)
class AccountTotal:
    """The ledger of one account in one role."""

    account: str
    role: Role
    jobs: int
    lent_core_s: float
    extended_s: float


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A file that a node actor wrote."""

    node: str
    time_s: float
    job: str
    file: str
    old: str | None
    new: str | None
    why: str


@dataclass(frozen=True, slots=True)
class StatementRecord:
    """A statement of work as it is now."""

    number: int
    owner: str
    name: str
    """Of the job that it is about."""
    job: str
    """The job that it was found to be about; empty until one has come."""
    state: str
    reason: str
    born_s: float
    changed_s: float
    announced: Mapping[str, Any]
    """What its owner announced."""
    progress: Mapping[str, Any]
    """What is known of its job."""

    def to_json(self) -> dict[str, Json]:
        """A plain dict of every column."""
        return {
            "number": self.number,
            "owner": self.owner,
            "name": self.name,
            "job": self.job,
            "state": self.state,
            "reason": self.reason,
            "born_s": self.born_s,
            "changed_s": self.changed_s,
            "announced": dict(self.announced),
            "progress": dict(self.progress),
        }


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The launch plan of a statement; it binds, so that there is one of each and it is never written again."""

    number: int
    made_s: float
    plan: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatementEntry:
    """One line of the statements' ledger: half of a posting, whose two lines sum to zero."""

    number: int
    account: str
    """The owner, or `asad.model.HOUSE`."""
    time_s: float
    job: str
    what: str
    """`paid`, or why nothing was: `evicted`, `cancelled`, `failed`."""
    amount_micro: int
    """Millionths of the site's unit of value; below 0 for who pays."""


@dataclass(frozen=True, slots=True)
class StatementBalance:
    """The statements' ledger of one account."""

    account: str
    entries: int
    paid: int
    """Entries with a payment."""
    evicted: int
    balance_micro: int


@dataclass(slots=True)
class StatementChanges:
    """What has changed of statements since it was last kept; kept in one transaction."""

    statements: dict[int, StatementRecord] = field(default_factory=dict)
    plans: dict[int, PlanRecord] = field(default_factory=dict)
    entries: list[StatementEntry] = field(default_factory=list)
    memory: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    """What the policy itself knows, see `asad.store.learned`."""

    def __bool__(self) -> bool:
        return bool(self.statements or self.plans or self.entries or self.memory)

    def before(self, later: StatementChanges) -> StatementChanges:
        """These and then those: of what changed twice the later one holds, but plans are never changed."""
        return StatementChanges(
            {**self.statements, **later.statements},
            {**later.plans, **self.plans},
            [*self.entries, *later.entries],
            {**self.memory, **later.memory},
        )

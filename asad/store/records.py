"""What the state store returns: plain rows, frozen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from sqlalchemy import Row

from asad.decisions import DECISIONS, Decision, SetShare, decision_from_json
from asad.model import Json
from asad.store.encoding import object_of, text, to_text
from asad.store.process import ProcessMark

RunKind = Literal["replay", "live", "bench"]
RunState = Literal["running", "done", "failed", "killed"]
Role = Literal["host", "guest"]
EndRole = Literal["host", "guest", "displaced"]
"""Displaced is who neither lent nor borrowed, and yet started late because others did."""

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
class Record:
    """A row as a frozen object: the fields are columns, those that hold dicts are JSON there.

    These are no mapped classes: SQLAlchemy's may be neither frozen nor slotted, and would keep state for each row.
    """

    HIDDEN: ClassVar[tuple[str, ...]] = ()
    """Fields that mean nothing to a reader."""

    @classmethod
    def of_row(cls, row: Row[Any]) -> Self:
        """The object of a row that was read; columns that it has no field for are passed over."""
        of_type = [(one.name, _DECODE.get(str(one.type), _as_it_is)) for one in fields(cls)]
        return cls(**{name: decode(getattr(row, name)) for name, decode in of_type})

    def to_row(self) -> dict[str, Any]:
        """Column → value, in such a form that every database takes it."""
        return {
            one.name: _ENCODE.get(str(one.type), _as_it_is)(getattr(self, one.name)) for one in fields(self)
        }

    def to_json(self) -> dict[str, Json]:
        """A plain dict of every column that means something to a reader."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in self.HIDDEN}


def _as_it_is(value: Any) -> Any:
    return value


def _object(encoded: str) -> dict[str, Any]:
    """A JSON object; an empty one where the text holds none, since a daemon that starts is worth more."""
    return object_of(encoded) or {}


def _text(value: Any) -> str | None:
    """None stays None, so that a column that must not be without refuses it."""
    return None if value is None else text(value)


_ENCODE: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "str | None": _text,
    "float": float,
    "int": int,
    "Mapping[str, Any]": to_text,
}
"""Type of a field → how it is written."""
_DECODE: dict[str, Callable[[Any], Any]] = {"dict[str, Any]": json.loads, "Mapping[str, Any]": _object}
"""Type of a field → how it is read. Mappings come from a policy, and are read however broken they are."""


@dataclass(frozen=True, slots=True)
class RunRecord(Record):
    """One run of one policy."""

    HIDDEN = ("process",)

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
        return {**super(RunRecord, self).to_json(), "host": self.process.host, "pid": self.process.pid}


@dataclass(frozen=True, slots=True)
class DecisionRecord(Record):
    """One decision, what became of it and why."""

    HIDDEN = ("run_id", "job_row", "host_row")  # rows of the snapshot

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


@dataclass(frozen=True, slots=True)
class JobEnd(Record):
    """How a job that lending touched ended. Times by the clock of the log, None where there is none."""

    job: str
    role: EndRole
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    baseline_start_s: float | None
    """When the same job started without lending: as the log has it, or a simulated Slurm."""
    baseline_end_s: float | None
    """When it ended there."""
    loser: bool
    """Ended later than there by more than the report tolerates."""


@dataclass(frozen=True, slots=True)
class LedgerEntry(Record):
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
class QuotaChange(Record):
    """A file that a node actor wrote."""

    node: str
    time_s: float
    job: str
    file: str
    old: str | None
    new: str | None
    why: str


@dataclass(frozen=True, slots=True)
class StatementRecord(Record):
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


@dataclass(frozen=True, slots=True)
class PlanRecord(Record):
    """The launch plan of a statement; it binds, so that there is one of each and it is never written again."""

    number: int
    made_s: float
    plan: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatementEntry(Record):
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

"""What stages decide to do to a cluster, with the reason of each, and what became of it.

Everything here is plain data that round-trips to JSON. Rows are those of the snapshot on which a decision was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from asad.model import Json


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
    veto: str = ""
    """Name of the guard's property that held it back; empty where none did."""


def vetoed(decision: Decision, name: str, why: str) -> Outcome:
    """The outcome of a decision that the property `name` of the guard held back."""
    return Outcome(decision, False, f"vetoed ({name}): {why}", veto=name)

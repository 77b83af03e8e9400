"""The admit stage: which jobs have a place in the slots to come, when, and how wide?

A policy is one file of this room. `asad.admit.admission_policy.Admission` turns snapshots into the slotted world of
`asad.admit.elastic` and drives any scheme there; `Everyone` lets the cluster be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from asad.decisions import Decision, Outcome
from asad.errors import UsageError
from asad.model import Finished, Snapshot
from asad.policy import Policy

if TYPE_CHECKING:
    from asad.admit.admission_policy import Admission
    from asad.admit.sow.statements_policy import Statements


class AdmitPolicy(Policy):
    """What the cycle and the daemon ask of a policy of this stage; every job is admitted unless it says otherwise."""

    stage = "admit"
    promises: ClassVar[bool] = False
    """Does it promise jobs something that outlives the daemon?"""
    consents: Mapping[str, str] = MappingProxyType({})
    """By number of a job that may be evicted: how its owner agreed to that."""

    parts: tuple[AdmitPolicy, ...] = ()
    """Of several side by side (`asad.admit.side_by_side`): each of them."""

    @property
    def changed(self) -> bool:
        """Has a promise changed since it was kept last?"""
        return False

    takes_statements: ClassVar[bool] = False
    """Does it take statements of work? The store keeps them as such."""

    @property
    def admission(self) -> Admission:
        """Itself, where it plans jobs in slots. Raises UsageError."""
        raise UsageError("every job is admitted here: [policies] admit is everyone")

    @property
    def statements(self) -> Statements:
        """Itself, where it takes statements of work. Raises UsageError."""
        raise UsageError(
            f"no statements of work are taken here: [policies] admit is {self.name}; sow and sow-paper take them"
        )

    @property
    def ready(self) -> bool:
        """Is it known what was promised before?"""
        return True

    @property
    def slot_s(self) -> float:
        """Length of the slots in which it promises; 0 without promises."""
        return 0.0

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Take in what has happened since the last cycle."""

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What changes; nothing where the cluster's own way will do, or where it is already as it should be."""
        return ()

    def decide_while_paused(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Of a paused daemon: only what holds jobs back less than now. Nothing new is admitted or deferred."""
        return ()

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What became of decisions of this cycle, of any stage; what was not done may be wished again."""

    def on_withdrawn(self) -> None:
        """All that this stage has changed of jobs is as their users had it; the next cycle may decide it again."""

    def decides_start(self, snapshot: Snapshot, row: int) -> bool:
        """Is it this policy's to say when the waiting job (or array) of that row starts? The defer stage leaves such
        jobs to it."""
        return False

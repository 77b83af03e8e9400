"""The defer stage: which deferrable jobs start now?

A policy is one file of this room: it scores the jobs that wait (`asad.defer.jobs.Scorer`), and who has the highest
scores starts as far as there is room. `asad.defer.deferral_policy.Deferral` drives any of them on a
cluster; `AtOnce` lets it be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from asad.decisions import Decision, Outcome
from asad.errors import UsageError
from asad.model import Finished, Json, Snapshot
from asad.policy import Policy

if TYPE_CHECKING:
    from asad.defer.deferral_policy import Deferral


class DeferPolicy(Policy):
    """What the cycle and the daemon ask of a policy of this stage; nothing is deferred unless it says otherwise."""

    stage = "defer"
    holds: ClassVar[bool] = False
    """Does it hold jobs back?"""

    @property
    def deferral(self) -> Deferral:
        """Itself, where it defers jobs. Raises UsageError."""
        raise UsageError("nothing is deferred here: [policies] defer is at-once")

    @property
    def changed(self) -> bool:
        """Has something changed that is to outlive the process at once?"""
        return False

    def learn(
        self,
        snapshot: Snapshot,
        finished: Finished,
        held_elsewhere: Callable[[Snapshot, int], bool] | None = None,
    ) -> None:
        """Take in what has happened since the last cycle.

        `held_elsewhere` answers of the row of a waiting job whether its start is a matter of the admit stage.
        """

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """What changes; nothing where the cluster's own way will do. The snapshot is the one that was learned from."""
        return ()

    def decide_while_paused(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Of a paused daemon: only what holds jobs back less than now."""
        return ()

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """What became of decisions of this cycle, of any stage; what was not done may be wished again."""

    def on_withdrawn(self) -> None:
        """All that this stage has changed of jobs is as their users had it; the next cycle may decide it again."""

    def words(self) -> str:
        """How it stands, for the sentence of a cycle; empty if there is nothing to say."""
        return ""

    def explain(self, job: str) -> Mapping[str, Json] | None:
        """What is known of a job; None if it is not one of those that may be deferred."""
        return None

    def reports(self) -> list[str]:
        """Sentences about what no decision describes, since the last call."""
        return []

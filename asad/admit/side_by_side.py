"""Several admit policies at once (`[policies] admit = "sow+oasis"`), each for its own jobs, by its own options.

A job is of the first policy that says that it decides its start. Later ones are shown it as another policy's, and so
plan nothing for it; what one had planned before is free again. What a later one decides of it all the same is left out,
so that two never decide about one job. Each counts what the jobs of the others hold as held by others, as far as it
runs. While an earlier one does not know yet which jobs are its own, later ones decide nothing.

Promises of a later one therefore never move what an earlier one has promised.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from asad.admit import AdmitPolicy
from asad.decisions import Admit, Decision, Decline, Defer, Outcome, SetThrottle, Start
from asad.errors import UsageError
from asad.ineligible import Ineligible
from asad.model import Finished, Snapshot

if TYPE_CHECKING:
    from asad.admit.admission_policy import Admission
    from asad.admit.sow.statements_policy import Statements


class SideBySide(AdmitPolicy):
    """Policies in the order in which they are asked."""

    promises = True

    def __init__(self, parts: Sequence[AdmitPolicy]) -> None:
        """Two or more, of different names."""
        self.parts = tuple(parts)
        self.name = "+".join(part.name for part in parts)
        # a view, not a copy: the guard keeps it for life, and looks at it anew in every check
        self.consents = ChainMap(*(cast("dict[str, str]", part.consents) for part in parts))

    @property
    def admission(self) -> Admission:
        """The first of them that plans jobs in slots. Raises UsageError."""
        for part in self.parts:
            if not part.takes_statements:
                return part.admission
        raise UsageError(f"no jobs are planned by utility here: [policies] admit is {self.name}")

    @property
    def statements(self) -> Statements:
        """The first of them that takes statements of work. Raises UsageError."""
        return next((part for part in self.parts if part.takes_statements), self.parts[0]).statements

    @property
    def changed(self) -> bool:
        """Has any of their promises changed?"""
        return any(part.changed for part in self.parts)

    @property
    def ready(self) -> bool:
        """Does each know what it has promised before?"""
        return all(part.ready for part in self.parts)

    @property
    def slot_s(self) -> float:
        """Of the first that counts in slots."""
        return next((part.slot_s for part in self.parts if part.slot_s), 0.0)

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        """Each learns of all jobs."""
        for part in self.parts:
            part.learn(snapshot, finished)

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Of each what it decides about its own jobs."""
        return self._each(snapshot, lambda part, seen: part.decide(seen))

    def decide_while_paused(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Likewise."""
        return self._each(snapshot, lambda part, seen: part.decide_while_paused(seen))

    def _each(
        self, snapshot: Snapshot, decide: Callable[[AdmitPolicy, Snapshot], Sequence[Decision]]
    ) -> list[Decision]:
        decisions: list[Decision] = []
        of_others: set[int] = set()
        for number, part in enumerate(self.parts):
            before = self.parts[:number]
            if not all(other.ready for other in before):
                break
            if number:
                of_others |= {row for row in _rows(snapshot) if before[-1].decides_start(snapshot, row)}
            for decision in decide(part, _without(snapshot, of_others)):
                if isinstance(decision, Admit | Decline | Defer | Start | SetThrottle):
                    row = decision.job
                    if row in of_others or any(other.decides_start(snapshot, row) for other in before):
                        continue
                decisions.append(decision)
        return decisions

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Each knows its own by its name."""
        for part in self.parts:
            part.on_outcomes(outcomes)

    def on_withdrawn(self) -> None:
        """Of each."""
        for part in self.parts:
            part.on_withdrawn()

    def decides_start(self, snapshot: Snapshot, row: int) -> bool:
        """Is it any of theirs?"""
        return any(part.decides_start(snapshot, row) for part in self.parts)

    def wake_s(self) -> float:
        """The earliest of theirs."""
        return min(part.wake_s() for part in self.parts)

    def warm_up(self) -> None:
        """Of each."""
        for part in self.parts:
            part.warm_up()


def _rows(snapshot: Snapshot) -> set[int]:
    """Of all jobs that wait; those with hints may be deferred and in no queue."""
    arrays, hinted = snapshot.arrays.waiting_row, np.fromiter(snapshot.hints, np.intp, len(snapshot.hints))
    waiting = hinted[np.isnan(snapshot.jobs.start_s[hinted])]
    return {*snapshot.queue.tolist(), *arrays[arrays >= 0].tolist(), *waiting.tolist()}


def _without(snapshot: Snapshot, rows: set[int]) -> Snapshot:
    """The same, with the jobs of these rows as another policy's."""
    if not rows:
        return snapshot
    reason = snapshot.jobs.guest_bar.copy()
    reason[np.array(sorted(rows))] = Ineligible.OTHER_POLICY
    return replace(snapshot, jobs=replace(snapshot.jobs, guest_bar=reason))

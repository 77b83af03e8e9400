"""How often what was decided, what became of it, and what of it is news."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from asad.cycle import is_renewal
from asad.decisions import Outcome


class Tally:
    """Outcomes since the daemon started."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[str, ...]] = Counter()
        """By kind of decision, and whether it was done, advised, refused or vetoed."""
        self.vetoes: Counter[str] = Counter()
        """By property of the guard."""
        self._in_vain: set[tuple[Any, ...]] = set()
        """Wishes of the last cycle that were not done, and why."""

    def count(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Count the outcomes of a cycle; those of them that are to be kept.

        A policy that wishes the same in every cycle in vain is kept once, and again when the answer changes.
        """
        in_vain: set[tuple[Any, ...]] = set()
        news = []
        for outcome in outcomes:
            decision, veto = outcome.decision, outcome.veto
            if veto:
                self.vetoes[veto] += 1
            advised = outcome.reason == "advise"
            verdict = "done" if outcome.done else "vetoed" if veto else "advised" if advised else "refused"
            self.outcomes[decision.kind, verdict] += 1
            if is_renewal(outcome) and (outcome.done or advised):
                continue
            if not outcome.done:
                wish = [getattr(decision, column.name) for column in dataclasses.fields(decision)[1:]]
                same = (decision.kind, *wish, veto or outcome.reason)  # the first field is the cause
                in_vain.add(same)
                if same in self._in_vain:
                    continue
            news.append(outcome)
        self._in_vain = in_vain
        return news

    def nothing_decided(self) -> None:
        """A cycle in which nobody wished anything: what is wished in vain after it is news again."""
        self._in_vain = set()

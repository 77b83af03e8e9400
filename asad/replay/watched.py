"""What is watched while a policy is played: whom it managed, and how its learner's view of the experts moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asad.decisions import Admit, Decline, Defer, Evict, Outcome, SetThrottle
from asad.model import Floats
from asad.replay.recorded_cluster import Workload
from asad.replay.results import ExpertHistory
from asad.share import SharePolicy
from asad.share.learner import Weights, bound, excess_risk


class Managed:
    """What admission did to whom, as far as the cluster did it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._admitted: dict[int, bool] = {}
        """By row of the job, of a task its array's number below 0: was it admitted at last?"""
        self._touched: set[int] = set()

    def _key(self, row: int) -> int:
        array = -1 if self._workload.array is None else int(self._workload.array[row])
        return row if array < 0 else -1 - array

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Take in what became of decisions."""
        for outcome in outcomes:
            decision = outcome.decision
            if not outcome.done:
                continue
            if isinstance(decision, Admit | Decline):
                self._admitted[self._key(decision.job)] = isinstance(decision, Admit)
            if isinstance(decision, Admit | Defer | SetThrottle | Evict):
                self._touched.add(self._key(decision.job))

    @property
    def rows(self) -> NDArray[np.bool_]:
        """(n,) who was admitted, deferred or throttled at some time; of an array all tasks."""
        touched = np.array(sorted(self._touched), np.int64)
        rows = np.isin(np.arange(len(self._workload)), touched)
        if self._workload.array is not None:
            rows |= np.isin(-1 - self._workload.array.astype(np.int64), touched) & (self._workload.array >= 0)
        return rows

    def figures(self) -> dict[str, float | int | None]:
        """Jobs (an array is one) that were admitted, and those that were not, by the last word on each."""
        admitted = sum(self._admitted.values())
        return {"admitted": admitted, "declined": len(self._admitted) - admitted}


class ExpertWatch:
    """Samples the learner's cluster-wide weights; thins itself out so that a few hundred rounds remain."""

    def __init__(self, policy: SharePolicy) -> None:
        self.weights: Weights | None = getattr(policy, "weights", None)
        self.names = tuple(expert.name for expert in getattr(policy, "experts", ()))
        self.rows: list[tuple[int, Floats, Floats, float, float]] = []

    def look(self) -> None:
        """Take a sample, if there was a round since the last."""
        w = self.weights
        if w is None or w.rounds[-1] < 1 or (self.rows and self.rows[-1][0] == w.rounds[-1]):
            return
        self.rows.append(
            (int(w.rounds[-1]), w.alpha[-1].copy(), w.risk[-1].copy(), excess_risk(w, -1), bound(w, -1))
        )
        if len(self.rows) >= 800:
            self.rows = self.rows[1::2]

    def history(self) -> ExpertHistory | None:
        """What was sampled; None if nothing learns."""
        if not self.rows:
            return None
        rounds, weights, risk, excess, limit = zip(*self.rows, strict=True)
        return ExpertHistory(
            self.names,
            np.array(rounds, np.int32),
            np.array(weights),
            np.array(risk),
            np.array(excess),
            np.array(limit),
        )

"""What a learner has learned, as plain data: kept over restarts, and restored application by application.

A live cluster meets applications one by one, so their number grows: `grow` makes room, and `fill` gives a new row what
is saved of its application. Experts are matched by name, since operators add and remove them: an expert that
was not there starts with the mean of what the others have lost, and is neither favoured nor doomed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from asad.applications import Turnover
from asad.model import Floats, Json
from asad.share.learner import Weights, gamma, new_weights
from asad.share.run_history import History, new_history, require_known

CLUSTER = "*"
"""The row of the whole cluster; no application is called that, since a fingerprint has slashes."""
Sums = TypeVar("Sums", History, Weights, tuple[Floats])
BY_EXPERT = ("prior", "round_risk", "risk")
LATER = ("peak", "peaks")
"""Columns of a history that one saved by an earlier version lacks."""
MOST_SUM = 1e30
"""No sum and no loss is as large; products of them are numbers."""
MOST_COUNT = 2**53
"""No count is as large: one more must still be more."""

Memory = Mapping[str, Mapping[str, Json]]
"""By application (and `CLUSTER`): its history, and its weights by name of the expert."""
Changes = Mapping[str, Mapping[str, Json] | None]
"""The same of those of which something else is known than before; None of those that are forgotten."""


def to_memory(
    weights: Weights | None,
    history: History,
    applications: Sequence[str],
    experts: Sequence[str],
    rows: Iterable[int] | None = None,
) -> dict[str, dict[str, Json]]:
    """What is known, for every application of which anything is known (or for `rows` alone); rows that stand for no
    application (yet) are left out.

    `weights` is None for a policy that keeps a history alone.
    """
    memory: dict[str, dict[str, Json]] = {}
    last = len(history.runs) - 1
    if rows is None:
        met = (marks(weights, history) != NOTHING).any(axis=1)
        met[last] = True
        rows = np.flatnonzero(met).tolist()
    for row in rows:
        if row < last and (row >= len(applications) or not applications[row]):
            continue
        entry: dict[str, Json] = {
            "history": {name: float(getattr(history, name)[row]) for name in History._fields}
        }
        if weights is not None and weights.rounds[row] >= 0:
            entry["learner"] = {
                "rounds": int(weights.rounds[row]),
                "cases": int(weights.cases[row]),
                "mixture_risk": float(weights.mixture_risk[row]),
                "gamma_squares": float(weights.gamma_squares[row]),
                "experts": {
                    name: {column: float(getattr(weights, column)[row, i]) for column in BY_EXPERT}
                    for i, name in enumerate(experts)
                },
            }
        memory[CLUSTER if row == last else applications[row]] = entry
    return memory


def grow(weights: Weights | None, history: History, applications: int) -> tuple[Weights | None, History]:
    """The same with rows for `applications` applications, at least as many as before; the cluster's row stays last."""
    history = _widened(history, new_history(applications))
    if weights is not None:
        weights = _widened(weights, new_weights(applications, weights.alpha.shape[1]))
    return weights, history


def _widened(old: Sums, new: Sums) -> Sums:
    """`new` with what `old` holds; the last row stays the last."""
    for before, after in zip(old, new, strict=True):
        after[: len(before) - 1], after[-1] = before[:-1], before[-1]
    return new


def forget(weights: Weights | None, history: History, rows: Sequence[int]) -> None:
    """Nothing is known of these applications."""
    for column in history:
        column[rows] = 0.0
    if weights is not None:
        blank = new_weights(1, weights.alpha.shape[1])
        for learned, nothing in zip(weights, blank, strict=True):
            learned[rows] = nothing[0]


NOTHING = np.array([0.0, 0.0, 0.0, -1.0, 0.0])
"""The `marks` of an application of which nothing is known."""


def marks(weights: Weights | None, history: History) -> NDArray[np.float64]:
    """(A + 1, 5) counts of which one differs whenever something has been learned of an application."""
    rounds = (np.full_like(history.runs, NOTHING[3]), np.zeros_like(history.runs))
    learned = rounds if weights is None else (weights.rounds, weights.cases)
    return np.column_stack((history.runs, history.measured, history.peaks, *learned)).astype(np.float64)


def fill(
    weights: Weights | None,
    history: History,
    rows: Iterable[int],
    applications: Sequence[str],
    experts: Sequence[str],
    memory: Memory,
) -> None:
    """Give `rows` what is saved of their applications (-1: of the cluster); the others stay as they are.

    An entry that cannot be read is passed over: what was learned is worth less than a daemon that starts.
    """
    for row in rows:
        entry = memory.get(CLUSTER if row < 0 else applications[row])
        if entry is None:
            continue
        known = _history(entry.get("history"))
        if known is not None:
            for name, value in known.items():
                getattr(history, name)[row] = value
        if weights is not None:
            _fill_learner(weights, row, entry.get("learner"), experts)


def _history(entry: Json) -> dict[str, float] | None:
    if not isinstance(entry, dict):
        return None
    values = {name: _number(entry.get(name, 0.0 if name in LATER else None)) for name in History._fields}
    known = {name: value for name, value in values.items() if value is not None}
    return known if len(known) == len(values) else None


def _fill_learner(weights: Weights, row: int, entry: Json, experts: Sequence[str]) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("experts"), dict):
        return
    plain = {name: _number(entry.get(name)) for name in ("rounds", "cases", "mixture_risk", "gamma_squares")}
    kept = entry["experts"]
    assert isinstance(kept, dict)
    columns: dict[str, list[float]] = {}
    for column in BY_EXPERT:
        found = [
            _number(values.get(column)) if isinstance(values, dict) else None
            for values in map(kept.get, experts)
        ]
        there = [value for value in found if value is not None]
        if not there:
            return
        mean = sum(there) / len(there)
        columns[column] = [mean if value is None else value for value in found]
    numbers = {name: value for name, value in plain.items() if value is not None}
    if len(numbers) < len(plain) or max(numbers["rounds"], numbers["cases"]) >= MOST_COUNT:
        return
    for name, value in numbers.items():
        getattr(weights, name)[row] = value
    for column, values in columns.items():
        getattr(weights, column)[row] = values
    rate = gamma(len(experts), int(numbers["rounds"]) + 1)
    loss = weights.prior[row] + weights.risk[row]
    alpha = np.exp(-rate * (loss - loss.min()))
    weights.alpha[row] = alpha / alpha.sum()


def _number(value: Json) -> float | None:
    """A number from 0; sums, losses and counts are no less, nor so large that they count nothing any more."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_SUM:
        return None
    return float(value)


class Learned:
    """What a policy has learned of applications: their history, and the weights of experts where any are asked.

    Rows follow the codes of applications as these come, go and are given again (`meet`); what `restore` was given of
    applications that are yet to come waits until they do.
    """

    def __init__(self, applications: Sequence[str], experts: Sequence[str] = ()) -> None:
        """`applications` are those of the codes in the snapshots' `application` column; a list may grow."""
        self._turnover = Turnover(applications)
        self.names = self._turnover.names
        self._experts = experts
        self.history = new_history(len(applications))
        self.weights = new_weights(len(applications), len(experts)) if experts else None
        self._to_come: dict[str, Mapping[str, Json]] = {}
        """What an earlier process knew of applications that were not met yet."""
        self._saved = marks(self.weights, self.history)
        """The marks of what was saved last."""
        self._forgotten: set[str] = set()
        """Applications of which something was saved, and that are forgotten since."""

    def meet(self) -> None:
        """Make room for the applications that have come since the last look, and forget those that are forgotten."""
        before = self._turnover.look()
        if not before:
            return
        codes = list(before)
        if len(self.names) > len(self.history.runs) - 1:
            size = max(64, 2 * len(self.names))
            self.weights, self.history = grow(self.weights, self.history, size)
            (self._saved,) = _widened((self._saved,), (np.tile(NOTHING, (size + 1, 1)),))
        known = (self._saved[codes] != NOTHING).any(axis=1).tolist()
        self._forgotten.update(name for name, was in zip(before.values(), known, strict=True) if was)
        forget(self.weights, self.history, codes)
        self._saved[codes] = NOTHING
        self._fill(codes)

    def require_known(self, application: NDArray[np.int32]) -> None:
        """`require_known` of `asad.share.run_history`, by the applications that have been met."""
        require_known(application, len(self.names))

    def state(self) -> Memory:
        """What is known of every application, met or to come, as plain data."""
        return {**self._to_come, **self._plain(None)}

    def changes(self) -> Changes:
        """What is known otherwise than when this was asked last, or restored."""
        now = marks(self.weights, self.history)
        rows = np.flatnonzero((now != self._saved).any(axis=1)).tolist()
        gone: dict[str, Mapping[str, Json] | None] = dict.fromkeys(self._forgotten)
        self._saved, self._forgotten = now, set()
        return gone | self._plain(rows)

    def restore(self, memory: Memory) -> None:
        """Know again what `state` returned, also of applications that are yet to come."""
        self._to_come = dict(memory)
        self._fill(range(-1, len(self.names)))

    def _plain(self, rows: Iterable[int] | None) -> dict[str, dict[str, Json]]:
        return to_memory(self.weights, self.history, self.names, self._experts, rows)

    def _fill(self, rows: Iterable[int]) -> None:
        """Give these rows what is saved of their applications; that is in the store already."""
        there = [row for row in rows if (self.names[row] if row >= 0 else CLUSTER) in self._to_come]
        if not there:
            return
        fill(self.weights, self.history, there, self.names, self._experts, self._to_come)
        self._saved[there] = marks(self.weights, self.history)[there]
        for row in there:
            if row >= 0:
                del self._to_come[self.names[row]]

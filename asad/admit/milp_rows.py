"""Constraints of a MILP, written one after the other, as HiGHS takes them through scipy."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.optimize import LinearConstraint
from scipy.sparse import coo_array


class Rows:
    """Constraints that are written one after the other: low ≤ Σ value·variable ≤ high."""

    def __init__(self) -> None:
        self.row: list[int] = []
        self.column: list[int] = []
        self.value: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        """`terms` are columns with their values."""
        for column, value in terms:
            self.row.append(len(self.low))
            self.column.append(column)
            self.value.append(value)
        self.low.append(low)
        self.high.append(high)

    def constraint(self, variables: int) -> LinearConstraint:
        """All of them, over so many variables."""
        shape = (len(self.low), variables)
        return LinearConstraint(
            coo_array((self.value, (self.row, self.column)), shape=shape).tocsr(), self.low, self.high
        )

"""What of statements has changed and nobody has kept yet: rows of statements and plans, and lines of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asad.admit.sow.promises import Promise
from asad.model import HOUSE, Json

MICRO = 1_000_000


class Book:
    """Everything in it is told once, by `unkept`."""

    def __init__(self) -> None:
        self.ended: list[Promise] = []
        """Over since it was told last."""
        self.lines: list[dict[str, Json]] = []
        """Of the ledger; those of one statement sum to zero."""
        self._changed: set[int] = set()
        self._unplanned: set[int] = set()
        """Numbers whose plan has not been told."""

    def plan(self, promise: Promise) -> None:
        """It has a plan, which is told once and never changes."""
        self._unplanned.add(promise.number)

    def change(self, promise: Promise) -> None:
        """Something of it has changed."""
        self._changed.add(promise.number)

    def end(self, promise: Promise) -> None:
        """Nothing more becomes of it."""
        self._changed.discard(promise.number)
        self.ended.append(promise)

    def charge(self, promise: Promise, price: float, time_s: float) -> None:
        """A line of its owner's account and one of the house; `price` 0 is told too."""
        promise.paid_micro = round(price * MICRO)
        what = "paid" if promise.state == "completed" else promise.state
        for account, amount in ((promise.owner, -promise.paid_micro), (HOUSE, promise.paid_micro)):
            self.lines.append(
                {
                    "number": promise.number,
                    "account": account,
                    "time_s": time_s,
                    "job": promise.job,
                    "what": what,
                    "amount_micro": amount,
                }
            )

    def unkept(self, promises: Mapping[int, Promise]) -> dict[str, Any]:
        """Statements, plans and lines, as rows of the store; the book is empty thereafter. `promises` are open."""
        changed = [promises[number] for number in sorted(self._changed) if number in promises] + self.ended
        plans = [promise for promise in changed if promise.number in self._unplanned]
        told = {
            "statements": [promise.to_row() for promise in changed],
            "plans": [promise.plan_row() for promise in plans],
            "entries": list(self.lines),
        }
        for promise in self.ended:
            promise.forget_prices()
        for what in (self._changed, self.ended, self.lines, self._unplanned):
            what.clear()
        return told

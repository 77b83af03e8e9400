"""The statements of work that are open, and those that were over last: what becomes of each, and what is to be kept."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from asad.admit.sow.promises import Promise, promise_from_json
from asad.model import HOUSE, STATEMENTS_OVER, Json

MOST_OVER = 1000
"""So many statements that are over are still described."""
MOST_DECLINED = 20
"""And so many of those that were not planned at all, which nobody keeps."""
MICRO = 1_000_000


class Register:
    """Every change of a statement goes through here, so that none is forgotten when it is kept."""

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self.open: dict[int, Promise] = {}
        """By number, in the order of their births."""
        self.of_job: dict[str, int] = {}
        self.known: set[int] = set()
        """Numbers that the mechanism knows."""
        self.over: deque[Promise] = deque(maxlen=MOST_OVER)
        """Those of which nothing more becomes, the newest last."""
        self.declined: deque[Promise] = deque(maxlen=MOST_DECLINED)
        """The last that were never planned."""
        self.next = 1
        self.now_s = -math.inf
        self.consents: dict[str, str] = {}
        """By number of a job: how its owner agreed to its eviction. The guard holds us to it."""
        self.changed = False
        """There is something that `unkept` has not described."""
        self.ended: list[Promise] = []
        """Over since then."""
        self.lines: list[dict[str, Json]] = []
        """Of the ledger, since then; those of one statement sum to zero."""
        self._changed: set[int] = set()
        self._unplanned: set[int] = set()
        """Open statements that have changed since then; and those whose plan, which never changes, is new."""
        self.counts = dict.fromkeys(("stated", "planned", *STATEMENTS_OVER), 0)
        self.paid_micro = 0

    def view(self, promise: Promise, own: bool = True) -> dict[str, Json]:
        """One statement as its owner may read it; others read no values and prices."""
        return promise.to_read(self._round_s, own=own)

    def release(self, promise: Promise, becomes: str, reason: str) -> None:
        """Nothing is promised any more to a job; one that waits, and is held back by us, is let go first."""
        if promise.state in ("arrived", "leaving") and (promise.reported or promise.may_be_held(self.now_s)):
            promise.become("leaving", becomes)
            promise.reason = reason
            self.touch(promise)
        else:
            self.close(promise, becomes, reason, charged=becomes == "cancelled")

    def let_go(self, promise: Promise) -> None:
        """Nothing is left to be reported or withdrawn of one that is leaving."""
        self.close(promise, promise.becomes, promise.reason, charged=promise.becomes == "cancelled")

    def close(
        self, promise: Promise, state: str, reason: str, *, price: float = 0.0, charged: bool = False
    ) -> None:
        """Nothing more becomes of it. `charged`: there is a line of the ledger, though it may be of nothing."""
        promise.state, promise.reason = state, reason
        self.open.pop(promise.number, None)
        self.of_job.pop(promise.job, None)
        self.consents.pop(promise.job, None)
        self.known.discard(promise.number)
        self.over.append(promise)
        self.counts[state] += 1
        self.touch(promise)
        self._changed.discard(promise.number)
        self.ended.append(promise)
        if not charged:
            return
        promise.paid_micro = round(price * MICRO)
        self.paid_micro += promise.paid_micro
        for account, amount in ((promise.owner, -promise.paid_micro), (HOUSE, promise.paid_micro)):
            self.lines.append(
                {
                    "number": promise.number,
                    "account": account,
                    "time_s": self.now_s if math.isnan(promise.ended_s) else promise.ended_s,
                    "job": promise.job,
                    "what": "paid" if state == "completed" else state,
                    "amount_micro": amount,
                }
            )

    def touch(self, promise: Promise) -> None:
        """Something of it has changed."""
        promise.changed_s = max(promise.changed_s, self.now_s)
        self._changed.add(promise.number)
        self.changed = True

    def explain(self, job: str) -> dict[str, Json] | None:
        """The statement of a job; None if it has none."""
        of_job = (promise for promise in reversed(self.over) if promise.job == job)
        found = self.open[self.of_job[job]] if job in self.of_job else next(of_job, None)
        return None if found is None else self.view(found)

    def rows(self) -> list[Promise]:
        """Those that are open, and those that were over or declined last."""
        return [*self.open.values(), *self.over, *self.declined]

    def add(self, promise: Promise) -> None:
        """A new one, which the mechanism knows, unless nothing was promised: then there is nothing to keep."""
        self.counts["stated"] += 1
        self.counts[promise.state] += 1
        if promise.plan.never:
            self.declined.append(promise)
            promise.forget_prices()
            return
        self.open[promise.number] = promise
        self._unplanned.add(promise.number)
        self.known.add(promise.number)
        self.touch(promise)

    def number(self) -> int:
        """That of the next statement."""
        given, self.next = self.next, self.next + 1
        self.changed = True
        return given

    def unkept(self) -> dict[str, Any]:
        """What has changed since the last time, as rows of the store: statements, plans and entries."""
        self.changed = False
        changed = [self.open[number] for number in sorted(self._changed & self.open.keys())] + self.ended
        rows = {
            "statements": [promise.to_row() for promise in changed],
            "plans": [promise.plan_row() for promise in changed if promise.number in self._unplanned],
            "entries": list(self.lines),
        }
        for promise in self.ended:
            promise.forget_prices()
        for what in (self._changed, self.ended, self.lines, self._unplanned):
            what.clear()
        return rows

    def to_json(self) -> dict[str, dict[str, Json]]:
        """All that are open, with their plans."""
        return {
            f"statement {number}": {"row": promise.to_row(), "plan": promise.plan_row()}
            for number, promise in self.open.items()
        }

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Go on from what `to_json` described; what cannot be read is passed over."""
        found = [
            promise_from_json(kept.get("row"), kept.get("plan"))
            for name, kept in memory.items()
            if name.startswith("statement ")
        ]
        for promise in found:
            if promise is None or promise.number in self.open:
                continue
            self.open[promise.number] = promise
            if promise.job:
                self.of_job[promise.job] = promise.number
                if promise.state in ("running", "evicting"):
                    self.consents[promise.job] = promise.announced.eviction
        self.open = dict(sorted(self.open.items()))
        following = memory.get("*", {}).get("next")
        self.next = max(
            max(self.open, default=0) + 1, following if isinstance(following, int) else 1, self.next
        )

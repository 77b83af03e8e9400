"""One job that this stage steers: what was wished of the cluster, and what the cluster has confirmed.

A job is held back by a begin time, so that it starts by itself when asad is dead. A begin time that we had set and that
is gone was taken back: by a restart of ours, then it is set again, or by hand, then the job is let go for good.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from asad.model import Admit, Decline, Defer, Json, Outcome, Start

EXACT_S = 1.5
"""Times that differ by less are one: clusters keep them in whole seconds."""
REFUSED_S = 120.0
"""What the cluster refused is not wished again sooner."""


@dataclass(slots=True, kw_only=True)
class Steered:
    """A job and its deferral. Times are seconds (UTC epoch), NaN for none."""

    told: bool = False
    """The cluster knows our verdict on it."""
    wished_s: float = math.nan
    """The deferral that we have asked for last: the cluster may have obeyed and we died of it."""
    deferred_s: float = math.nan
    """Until when we have deferred it, as the cluster confirmed."""
    let_go: bool = False
    """Somebody took our deferral back by hand: it is not deferred again."""
    found_deferred: bool = True
    """Our deferral has not been missed since the start of the process."""
    row: int = -1
    """Of the snapshot; of no meaning in another process."""
    again_s: float = -math.inf
    """Before this nothing is wished again that the cluster refused."""

    def defers(self, begin_s: float) -> bool:
        """Is a begin time of our making?"""
        return abs(begin_s - self.deferred_s) < EXACT_S or abs(begin_s - self.wished_s) < EXACT_S

    def held(self, now_s: float) -> bool:
        """May it be that we hold it back?"""
        return self.deferred_s > now_s or self.wished_s > now_s

    def accept(self, begin_s: float, now_s: float) -> bool:
        """See the begin time that it has now, NaN for none to come; has our deferral been taken back?"""
        if not self.deferred_s > now_s + EXACT_S:
            return False
        if not math.isnan(begin_s):
            self.found_deferred = True
            return False
        self.let_go = self.let_go or self.found_deferred
        self.deferred_s = math.nan
        return True

    def moves(self, until_s: float, begin_s: float) -> bool:
        """Would it wait for another time if it were deferred until then? What others made it wait for stays."""
        later = math.isnan(begin_s) or until_s > begin_s + EXACT_S
        return later or (self.defers(begin_s) and until_s < begin_s - EXACT_S)

    def wish(self, until_s: float) -> bool:
        """It is to be deferred until then; is that a new wish?"""
        if abs(until_s - self.wished_s) < EXACT_S:
            return False
        self.wished_s = until_s
        return True

    def heed(self, outcome: Outcome, now_s: float) -> bool:
        """What became of a wish; was it done?"""
        if not outcome.done:
            if outcome.reason != "advise" and not outcome.transient:
                self.again_s = now_s + REFUSED_S
            return False
        match outcome.decision:
            case Admit() | Decline():
                self.told = True
            case Defer(until_s=until_s):
                self.deferred_s, self.found_deferred = until_s, True
            case Start():
                self.deferred_s = math.nan
        return True


def before_deadline(until_s: float, deadline_s: float, limit_s: float, run_s: float) -> float:
    """A deferral that leaves a job its time limit (its expected `run_s` if it has none) before the cluster's deadline
    for it, if there is one."""
    if not math.isfinite(deadline_s):
        return until_s
    return min(until_s, deadline_s - (limit_s if math.isfinite(limit_s) else run_s))


def plain(value: object) -> Json:
    """A field as plain data; a number that is not known is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    assert isinstance(value, bool | int | str)
    return value

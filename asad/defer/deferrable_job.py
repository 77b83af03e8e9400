"""One deferrable job that waits: its window, what it asks for, and how far its deferral has come."""

from __future__ import annotations

import math
from dataclasses import dataclass

from asad.decisions import Defer, Outcome
from asad.defer.windows import Window
from asad.hold import HeldJob
from asad.model import Json

BY_HAND = "somebody has taken its deferral back by hand"


@dataclass(slots=True, kw_only=True)
class Deferrable(HeldJob):
    """One deferrable job that waits, an array as one."""

    key: str
    window: Window
    submit_s: float
    cores: int = 0
    """That it takes when it starts."""
    nodes: int = 0
    limit_s: float = 0.0
    needs_s: float = 0.0
    """From its start to its end at the latest."""
    since_s: float = math.nan
    """When it was let go."""
    tries: int = 0
    """How often it was let go and did not start."""
    again_s: float = -math.inf
    """Before this it is not tried again: it was let go, and that came to nothing."""
    reason: str = ""
    score: float = math.nan
    rank: int = 0
    """Among those that might start, by score; from 1."""
    of: int = 0
    free: float = math.nan
    """Cores that were free for it."""
    begin_s: float = math.nan
    hint: str = ""
    facts: tuple[float, bytes, int] = (math.nan, b"", 0)
    """What was seen of it last: its begin time, its hint; time limit, deadline and bar."""
    missed: bool = False
    seen: bool = True

    @property
    def place(self) -> str:
        """Among those that might start, in words."""
        return f"it is {_ordinal(self.rank)} of {self.of}"

    @property
    def identity(self) -> dict[str, Json]:
        """The numbers behind its decisions name it; admission's have the same kinds."""
        return {"stage": "defer"}

    def on_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """What became of a decision to hold it back or to let it go; was it done?"""
        if not HeldJob.on_outcome(self, outcome, now_s) and outcome.reason != "advise":
            if isinstance(outcome.decision, Defer):
                self.reported = False
            else:
                self.again_s = now_s if outcome.transient else self.retry_s
        return outcome.done


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

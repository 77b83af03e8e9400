"""One deferrable job that waits: its window, what it asks for, and how far its deferral has come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from asad.defer.windows import Window
from asad.model import Defer, Outcome

EXACT_S = 1.5
"""Times that differ by less are one: clusters keep whole seconds."""
REFUSED_S = 120.0
"""What the cluster refused is not wished again sooner."""
BY_HAND = "somebody has taken its deferral back by hand"

State = Literal["future", "held", "let go", "urgent", "by hand"]


@dataclass(slots=True)
class Known:
    """One deferrable job that waits, an array as one."""

    key: str
    row: int
    window: Window
    cores: int
    """That it takes when it starts."""
    nodes: int
    limit_s: float
    needs_s: float
    """From its start to its end at the latest."""
    submit_s: float
    state: State = "future"
    until_s: float = math.nan
    """Until when we hold it back, as the cluster confirmed."""
    wished_s: float = math.nan
    since_s: float = math.nan
    """When it was let go."""
    tries: int = 0
    """How often it was let go and did not start."""
    again_s: float = -math.inf
    """Before this it is not tried again: it was let go, and that came to nothing."""
    refused_s: float = -math.inf
    """Before this nothing is wished again that the cluster refused."""
    refused: str = ""
    """Why it did."""
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
    told: bool = False
    """It has been said that it is held back."""
    missed: bool = False
    seen: bool = True

    @property
    def place(self) -> str:
        """Among those that might start, in words."""
        return f"it is {_ordinal(self.rank)} of {self.of}"

    def defers(self, begin_s: float) -> bool:
        """Is a begin time of our making?"""
        return abs(begin_s - self.until_s) < EXACT_S or abs(begin_s - self.wished_s) < EXACT_S

    def taken_back(self) -> None:
        """Our begin time is there no more."""
        self.until_s = self.wished_s = math.nan
        if self.state == "held":
            self.state = "future"

    def heed(self, outcome: Outcome, now_s: float) -> None:
        """What became of a wish to hold it back or to let it go."""
        decision = outcome.decision
        if outcome.done:
            if isinstance(decision, Defer):
                self.until_s, self.state = decision.until_s, "held"
            else:
                self.until_s = math.nan
        elif outcome.reason != "advise":
            again_s = now_s if outcome.transient else now_s + REFUSED_S
            self.refused_s, self.refused = again_s, outcome.reason
            if isinstance(decision, Defer):
                self.told = False
            else:
                self.state, self.again_s = "future", self.refused_s


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

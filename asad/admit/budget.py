"""What the jobs of one user may claim together: hints are cut to his budget, so that a lie wins nothing.

A hint claims what its job would be worth if it were done at once. All that one user's jobs claim at one time counts
for no more than his budget: the site's for one share, times the shares that he has. What was counted of a job that was
admitted stays so for as long as the job waits or runs; what is left of the budget is parted among his other jobs in
proportion to their claims. So

- whoever claims ten times as much for all of his jobs has what he would have had, once they claim his budget;
- whoever claims ten times as much for one of them takes it from the others;
- two users who both claim all they can compete with equal sums, whatever they write.

What a rule of the configuration says is the site's own word: it is neither counted nor cut. Nobody is cut who claims
no more than his budget. Pure arithmetic; source: asad's own, after the budgets of proportional-share markets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from asad.admit.admission_options import Options, read_share
from asad.admit.commitments import Commitment
from asad.admit.hints import Hint
from asad.admit.utility import Maker, parse_utility
from asad.bounded import shown
from asad.errors import UsageError

NOBODY = ("", "-")
"""Users of logs that have none: nobody's jobs have no budget in common."""
NOTHING = 1e-9
"""What counts for less is worth nothing."""


class Claim(NamedTuple):
    """What one job claims, and what of it counts."""

    user: str
    worth: float
    """By its hint, if it were done at once."""
    counted: float
    budget: float
    """Of its user."""

    def enter(self, entry: Commitment) -> str:
        """Note it in what is known of the job; a sentence if less counts than is claimed, else the empty string."""
        entry.user, entry.claim, entry.counted, entry.budget = self
        if self.counted >= self.worth:
            return ""
        return (
            f"{self.counted:.3g} of the {self.worth:.3g} that its hint claims count, for the jobs of "
            f"{shown(self.user)} claim more than his budget of {self.budget:.3g}"
        )


class Budgets:
    """Of all users."""

    def __init__(self, options: Options, own: Mapping[str, Maker]) -> None:
        """`own` are the site's kinds of utilities. Raises UsageError for shares that cannot be read."""
        self._options, self._own = options, own
        self._shares = [read_share(text) for text in options.shares]

    def of(self, user: str) -> float:
        """What the user's jobs may claim together; inf for no bound."""
        worth = self._options.budget
        if not worth or user in NOBODY:
            return math.inf
        return worth * next((one.shares for one in self._shares if fnmatchcase(user, one.users)), 1.0)

    def worth(self, utility: str) -> float:
        """What a utility claims; 0 for one that cannot be read."""
        most = self._options.most_worth
        try:
            made = parse_utility(utility, self._options.slot_s, self._own)
        except UsageError:
            return 0.0
        try:
            worth = max(float(made(0.0)), float(made(1.0)))  # none rises with time
        except Exception:  # a site's own kind, which need not know of no time at all
            return most
        return min(most, max(0.0, worth)) if math.isfinite(worth) else most

    def claims(
        self, asked: Iterable[tuple[str, str, Hint | str]], known: Mapping[str, Commitment]
    ) -> dict[str, Claim]:
        """By job what those claim that are `asked` for (job, user, its hint) and whose users have a budget,
        beside all that is `known` of other jobs."""
        wanted = {
            key: (user, self.worth(hint.utility))
            for key, user, hint in asked
            if isinstance(hint, Hint) and not hint.by_rule and math.isfinite(self.of(user))
        }
        waiting: dict[str, float] = {}
        granted: dict[str, float] = {}
        for user, worth in wanted.values():
            waiting[user] = waiting.get(user, 0.0) + worth
        for key, entry in known.items():
            if key in wanted:
                continue
            if entry.state == "declined":
                waiting[entry.user] = waiting.get(entry.user, 0.0) + entry.claim
            granted[entry.user] = granted.get(entry.user, 0.0) + entry.granted
        claims = {}
        for key, (user, worth) in wanted.items():
            left = max(0.0, self.of(user) - granted.get(user, 0.0))
            part = 1.0 if left >= waiting[user] else left / waiting[user]
            claims[key] = Claim(user, worth, part * worth, self.of(user))
        return claims

"""What can be set of `sow` and `sow-paper` on a cluster."""

from __future__ import annotations

import math
from typing import NamedTuple

from asad.errors import UsageError


class Options(NamedTuple):
    """Options of `sow` and `sow-paper` on a cluster, by name as in asad.toml."""

    round_s: float = 600.0
    """Length of a round; from 2 seconds to a week. With another length, what was planned before is cancelled."""
    span: int = 288
    """A job starts at most so many rounds after it was announced."""
    most_rounds: int = 144
    """Rounds of the longest job that is planned."""
    most_cores: int = 0
    """Cores of the largest job that is planned; 0: a quarter of the cluster. As many stay unsold for it."""
    most_value: float = 1000.0
    """No statement is worth more."""
    least_value: float = 1.0
    """What is worth less counts as worth nothing."""
    window_s: float = 3600.0
    """A job is recognised by its name so long before the first time at which it was announced to come."""
    patience_s: float = 600.0
    """So long a job whose start has come waits for cores before anybody is evicted for it."""
    most_open: int = 200
    """Statements of one owner that are open at one time; who announces more is refused."""
    most_open_all: int = 2000
    """Statements of all owners together that are open at one time; who announces more is refused."""

    def check(self) -> None:
        """Raises UsageError for what is out of range."""
        if not 2.0 <= self.round_s <= 604_800.0:
            raise UsageError(f"round_s = {self.round_s:g}; give from 2 to 604800 seconds")
        if not 1 <= self.span <= 10_000:
            raise UsageError(f"span = {self.span}; give from 1 to 10000 rounds")
        if not 1 <= self.most_rounds <= 10_000:
            raise UsageError(f"most_rounds = {self.most_rounds}; give from 1 to 10000 rounds")
        if not 0 < self.least_value <= self.most_value <= 1e9:
            raise UsageError(
                f"values from {self.least_value:g} to {self.most_value:g}; give 0 < least_value ≤ most_value"
            )
        if not 0.0 <= self.patience_s < math.inf:
            raise UsageError(f"patience_s = {self.patience_s:g}; give 0 or more seconds")
        for name in ("most_open", "most_open_all"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} = {getattr(self, name)}; give at least 1")

"""What can be set of `sow` and `sow-paper` on a cluster."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from asad.errors import UsageError
from asad.tables import Is


class Options(NamedTuple):
    """Options of `sow` and `sow-paper` on a cluster, by name as in asad.toml."""

    round_s: Annotated[float, Is(least=2.0, most=604_800.0, unit="seconds")] = 600.0
    """Length of a round. With another length, what was planned before is cancelled."""
    span: Annotated[int, Is(least=1, most=10_000, unit="rounds")] = 288
    """A job starts at most so many rounds after it was announced."""
    most_rounds: Annotated[int, Is(least=1, most=10_000, unit="rounds")] = 144
    """Rounds of the longest job that is planned."""
    most_cores: int = 0
    """Cores of the largest job that is planned; 0: a quarter of the cluster. As many stay unsold for it."""
    most_tres: Annotated[float, Is(above=0.0, most=1.0)] = 0.25
    """Part of the cluster's gres, or licences, of one name that one planned job may have; one of them in any case. As
    many stay unsold for it."""
    most_value: Annotated[float, Is(above=0.0, most=1e9)] = 1000.0
    """No statement is worth more."""
    least_value: Annotated[float, Is(above=0.0, most=1e9)] = 1.0
    """What is worth less counts as worth nothing."""
    window_s: float = 3600.0
    """A job is recognised by its name so long before the first time at which it was announced to come."""
    patience_s: float = 600.0
    """So long a job whose start has come waits for cores before anybody is evicted for it."""
    most_open: Annotated[int, Is(least=1)] = 200
    """Statements of one owner that are open at one time; who announces more is refused."""
    most_open_all: Annotated[int, Is(least=1)] = 2000
    """Statements of all owners together that are open at one time; who announces more is refused."""


def require_values(options: Options) -> None:
    """The least value is not above the most; raises UsageError."""
    if options.least_value > options.most_value:
        raise UsageError(
            f"values from {options.least_value:g} to {options.most_value:g}; give least_value ≤ most_value"
        )

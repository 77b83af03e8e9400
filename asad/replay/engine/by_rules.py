"""What scheduling passes ask of the scheduler SLURM, compiled in only where a state has rules.

Its passes take long to compile, and most replays go by no rules: their `State.rules` is an empty
tuple, for which compiled code has nothing of this.
"""

from __future__ import annotations

from typing import Any

from numba.extending import overload

from asad.compiling import chosen_by_type
from asad.replay.engine.rules import are_rules
from asad.replay.engine.simulation_state import NEVER, State
from asad.replay.engine.site_backfill import next_opening, site_pass


@chosen_by_type(site_pass)
def pass_by_rules(s: State, now: float, freed: bool) -> None:
    """A scheduling pass; `freed` says whether anything has ended since the last one."""


@overload(pass_by_rules, strict=False)
def _pass_by_rules(s: Any, now: Any, freed: Any) -> Any:
    if are_rules(s):
        return lambda s, now, freed: site_pass(s, now, freed)
    return lambda s, now, freed: None


@chosen_by_type(next_opening)
def next_wake(s: State) -> float:
    """When a closed node opens next; inf if none does."""
    return NEVER


@overload(next_wake, strict=False)
def _next_wake(s: Any) -> Any:
    if are_rules(s):
        return lambda s: next_opening(s)
    return lambda s: NEVER

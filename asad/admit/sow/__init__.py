"""Statements of work: jobs that are announced before they come, with truthful prices and plans that bind.

Source: Truthful Online Scheduling of Cloud Workloads under Uncertainty (004), Algorithm 1. A mechanism is one file of
this room; who drives it asks, round by round:

    mechanism.step(round)                  a new round begins; who has to go is named after all arrivals (`evict`)
    mechanism.tables(demand)               the menu, before any statement of this round is seen
    mechanism.submit(job, statement)       its launch plan; any number a round, each sees the menu that is then in force
    mechanism.arrive(job, round, signal)   when it starts
    mechanism.evict(round)                 who has to go, latest born first, now that all of this round have arrived
    mechanism.complete(job, round)         what it pays

Nothing here knows a clock or a cluster: rounds are numbers that never fall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from asad.admit.sow.statement import Answer, Bounds, Eviction, Statement
from asad.model import Floats, Ints, Json


class Mechanism(Protocol):
    """Algorithm 1. Jobs are named by numbers that the caller chooses; the order of `submit` is the order of births."""

    name: str
    bounds: Bounds

    @property
    def counted(self) -> Mapping[str, Bounds]:
        """Resources that are priced beside the first, by name; `bounds` are of the first."""

    def count(self, name: str, capacity: int, max_demand: int) -> None:
        """Price another resource from now on; that `statement.tres` of one job holds at most `max_demand` of.

        Raises UsageError where it cannot be priced.
        """

    def step(self, round: int) -> None:
        """Round `round` has begun. Raises UsageError if time goes back."""

    def tables(self, demand: int, tres: Mapping[str, int] = ...) -> tuple[Floats, Floats]:
        """(S, D) price and failure of one demand, by start from the present round on and by rounds of the run.

        `tres`: beside it, of the resources that are counted, by name.
        """

    def submit(self, job: int, statement: Statement) -> Answer:
        """Plan it. Its birth is the present round, whatever it says.

        Raises UsageError for a number that is in use, and for a statement beyond `bounds`.
        """

    def arrive(self, job: int, round: int, signal: int = 0) -> int | None:
        """It has arrived: the round in which it starts; None: never (it is then forgotten)."""

    def evict(self, round: int, supply: int | Sequence[int] | None = None) -> tuple[Eviction, ...]:
        """Who has to go so that what runs or starts in `round` fits `supply` (units; None: the capacity).

        `supply` may name several: of the first resource, then of those in `counted`.
        Latest born first; they are forgotten and pay nothing.
        """

    def complete(self, job: int, round: int) -> float:
        """It has finished at `round`: what it pays. It is then forgotten."""

    def withdraw(self, job: int, round: int) -> None:
        """It failed, or its owner took it back: it holds nothing from `round` on, and pays nothing."""

    def occupy(self, round: int, held: Ints) -> None:
        """(n,) units that jobs without a statement hold in rounds `round`, `round` + 1, …; replaces what was given.

        Or (resources, n), in the order of `evict`.
        """

    def state(self) -> dict[str, Json]:
        """All that it needs to go on after a restart, as plain data."""

    def restore(self, kept: Mapping[str, Json]) -> None:
        """Go on from what `state` returned. Raises UsageError for what it did not return."""

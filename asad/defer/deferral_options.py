"""What can be set of every policy of deferral on a cluster."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from asad.tables import Is

DAY_S = 86_400.0
Packing = Literal["prefix", "skip-fit"]
PACKINGS: tuple[Packing, ...] = ("prefix", "skip-fit")


def _part_of_a_day(step_s: float) -> float:
    """Steps are counted from midnight on."""
    steps = DAY_S / step_s if step_s > 0 else 0.0
    if not (60.0 <= step_s <= DAY_S and abs(steps - round(steps)) < 1e-9):
        raise ValueError("is no part of a day; give seconds of which a day has a whole number, from 60")
    return step_s


class Options(NamedTuple):
    """Options of every policy on a cluster, by name as in asad.toml."""

    step_s: Annotated[float, Is(made=_part_of_a_day)] = 1800.0
    """Length of the steps in which policies plan, and in which history is stored; a whole number of them is a day;
    from 60."""
    packing: Annotated[str, Is(choices=PACKINGS)] = "skip-fit"
    """`prefix` stops at the first job, by falling score, that does not fit; `skip-fit` goes on."""
    reserve: Annotated[float, Is(least=0.0, most=0.99)] = 0.0
    """Part of the usable cores that deferrable jobs leave free besides."""
    quantile: Annotated[float, Is(least=0.0, most=1.0)] = 0.5
    """Of what the history foretells, the part of cases in which less is left: a smaller one is more conservative."""
    days: Annotated[int, Is(least=0, most=366)] = 14
    """Days of history that are stored; 0: nothing is foretold."""
    horizon_s: Annotated[float, Is(least=300.0, most=31 * DAY_S, unit="seconds")] = 86_400.0
    """So far ahead a policy looks, for a longer job too."""
    lease_s: float = 0.0
    """How long a job is held back without a further look; 0: five cycles, at least 10 s. With many jobs it is
    longer."""
    margin_s: float = 60.0
    """So long before its latest start a job is released."""
    lead: float = 0.5
    """A job is released earlier by this part of the time that it would now be expected to wait in Slurm's queue. What
    is expected rests on time limits, which are mostly too long; 0: only the margin counts."""
    patience_s: Annotated[float, Is(above=0.0)] = 120.0
    """A job that was released and has not started by then is held back again; after each further time twice as long,
    up to 16 times."""
    deadline_alone: bool = False
    """A job with a deadline and no begin time is deferrable too."""
    by_node: bool = True
    """A job starts only if there is room for it node by node, memory counted, not only in all."""

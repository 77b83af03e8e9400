"""What can be set of every policy of deferral on a cluster."""

from __future__ import annotations

from typing import Literal, NamedTuple

from asad.errors import UsageError

DAY_S = 86_400.0
Packing = Literal["prefix", "skip-fit"]
PACKINGS: tuple[Packing, ...] = ("prefix", "skip-fit")


class Options(NamedTuple):
    """Options of every policy on a cluster, by name as in asad.toml."""

    step_s: float = 1800.0
    """Length of the steps in which policies plan, and in which history is stored; a whole number of them is a day;
    from 60."""
    packing: str = "skip-fit"
    """`prefix` stops at the first job, by falling score, that does not fit; `skip-fit` goes on."""
    reserve: float = 0.0
    """Part of the usable cores that deferrable jobs leave free besides; 0 to 0.99."""
    quantile: float = 0.5
    """Of what the history foretells, the part of cases in which less is left: a smaller one is more conservative; 0
    to 1."""
    days: int = 14
    """Days of history that are stored; 0: nothing is foretold; at most 366."""
    horizon_s: float = 86_400.0
    """So far ahead a policy looks, for a longer job too; 300 seconds to 31 days."""
    lease_s: float = 0.0
    """How long a job is held back without a further look; 0: five cycles, at least 10 s. With many jobs it is
    longer."""
    margin_s: float = 60.0
    """So long before its latest start a job is released."""
    lead: float = 0.5
    """A job is released earlier by this part of the time that it would now be expected to wait in Slurm's queue. What
    is expected rests on time limits, which are mostly too long; 0: only the margin counts."""
    patience_s: float = 120.0
    """A job that was released and has not started by then is held back again; after each further time twice as long,
    up to 16 times."""
    deadline_alone: bool = False
    """A job with a deadline and no begin time is deferrable too."""
    by_node: bool = True
    """A job starts only if there is room for it node by node, memory counted, not only in all."""

    def check(self) -> None:
        """Raises UsageError for what is out of range."""
        steps = DAY_S / self.step_s if self.step_s > 0 else 0.0
        if not (60.0 <= self.step_s <= DAY_S and abs(steps - round(steps)) < 1e-9):
            raise UsageError(
                f"step_s = {self.step_s:g}; give seconds of which a day has a whole number, from 60"
            )
        if self.packing not in PACKINGS:
            raise UsageError(f"packing = {self.packing!r:.80}; give {' or '.join(PACKINGS)}")
        for key, most in (("reserve", 0.99), ("quantile", 1.0)):
            if not 0.0 <= getattr(self, key) <= most:
                raise UsageError(f"{key} = {getattr(self, key):g}; give from 0 to {most:g}")
        if self.days > 366:
            raise UsageError(f"days = {self.days}; give from 0 to 366")
        if not 300.0 <= self.horizon_s <= 31 * DAY_S:
            raise UsageError(f"horizon_s = {self.horizon_s:g}; give from 300 seconds to 31 days")
        if not self.patience_s > 0:
            raise UsageError(f"patience_s = {self.patience_s:g}; give seconds above 0")

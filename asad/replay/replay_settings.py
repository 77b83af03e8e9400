"""What decides the outcome of a replay besides log and machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from asad.admit.admission_options import Options as AdmitOptions
from asad.config import Config
from asad.errors import UsageError
from asad.model import Json
from asad.replay.cpu_demand import DemandProfile
from asad.replay.deferrable_in_log import read_declared
from asad.replay.policies import (
    CONFIGURED,
    DEFAULT_POLICIES,
    FLUID,
    PLAIN,
    SCHEDULING,
    admits,
    all_policies,
    defers,
    states,
    with_policy,
)
from asad.share.pool import Options

VERDICT_JOBS = 100_000
"""Above this many jobs the assumption of demand is not varied unless asked for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides the outcome of a replay besides log and machine."""

    policies: tuple[str, ...] = DEFAULT_POLICIES
    seed: int = 0
    repeat: int = 1
    poll_s: float = 30.0
    overrun: str = "kill"
    """At the time limit: `kill`, or `run` on as recorded."""
    baseline: Literal["auto", "recorded", "simulated"] = "simulated"
    """Jobs start when and where the log has it, or when a simulated Slurm starts them; `auto`: as recorded, if log and
    policies can carry that (`asad.replay.baseline.resolved`)."""
    compare: bool = False
    """On recorded starts, replay asad's own policy also with vacated slots held, and on the simulated Slurm."""
    hold_vacated: bool = False
    """On recorded starts: what a guest has vacated stays held, and is not lent."""
    per_event: bool = False
    """A scheduling pass at each single event instead of one for each distinct second."""
    use_memory: bool = False
    use_sd: float = 0.0
    """Stationary standard deviation of the CPU use of each job on each node, as a share of its cores."""
    demand_error: float = 0.0
    """How far off what is believed of an application's demand may be, as a fraction of it."""
    widen: bool = True
    """Guests run on every core of their nodes, not on their own alone."""
    lending: bool = True
    """Off: every lending policy is asked for nothing, and its schedule is Slurm's."""
    depth: int = 100
    backfill_interval_s: float = 30.0
    window_s: float = 60.0
    demand: DemandProfile = field(default_factory=DemandProfile)
    experts: Path | None = None
    contention: Path | None = None
    config: Config = PLAIN
    """Under which policies are made: each is put into its stage, and all others are as configured."""
    slot_s: float = AdmitOptions().slot_s
    """Length of a slot of the admit stage."""
    utilities: tuple[str, ...] = ()
    """Rules for jobs that state no utility, see `asad.replay.worth.read_rule`."""
    budget: float = 0.0
    """What the jobs of one user may claim together, by their own hints or by these rules; 0: no bound."""
    deferrable: tuple[str, ...] = ()
    """Jobs that are declared deferrable, see `asad.replay.deferrable_in_log.read_declared`."""
    statements: Path | None = None
    """Statements of work; None: those that could have been inferred as the log went on."""
    value_per_core_hour: float = 1.0
    """What the run of an inferred statement is taken to be worth."""
    limits: tuple[Path, ...] = ()
    """What sacctmgr prints of associations and QOS, whose limits bind guests; see `asad.replay.limits`."""
    infer_limits: bool = True
    """Without `limits`, on recorded starts: those that the log shows up to a moment bind guests from then on."""
    cluster: str | None = None
    """Whose associations count, where `limits` has those of several clusters."""
    vary_demand: bool | None = None
    """Whether to replay with assumed demands 20 % lower and higher; None: if assumed, up to VERDICT_JOBS jobs."""

    def __post_init__(self) -> None:
        names = ", ".join(all_policies())
        wrong = [name for name in self.policies if name not in all_policies()]
        if wrong:
            raise UsageError(f"unknown policy {wrong[0]!r}; there are {names}")
        if CONFIGURED in self.policies and self.config is PLAIN:
            raise UsageError(f"policy {CONFIGURED} is what a configuration names: give one with --config")
        if not self.policies:
            raise UsageError(f"no policy; name some of {names}")
        for option, right, value, hint in (
            ("overrun", self.overrun in ("kill", "run"), self.overrun, "choose kill or run"),
            ("poll", self.poll_s > 0, f"{self.poll_s:g}", "give seconds above 0"),
            ("slot", 1.0 <= self.slot_s <= 604_800.0, f"{self.slot_s:g}", "give from 1 second to a week"),
            (
                "budget",
                0.0 <= self.budget < math.inf,
                f"{self.budget:g}",
                "give a worth from 0, which is no bound",
            ),
            (
                "use-sd",
                0.0 <= self.use_sd <= 1.0,
                f"{self.use_sd:g}",
                "give a share of the cores from 0 to 1",
            ),
            (
                "demand-error",
                0.0 <= self.demand_error < 1.0,
                f"{self.demand_error:g}",
                "give a fraction from 0 to below 1",
            ),
            ("repeat", self.repeat >= 1, self.repeat, "give at least 1"),
            ("seed", 0 <= self.seed < 2**63, self.seed, "give a whole number from 0"),
        ):
            if not right:
                raise UsageError(f"--{option} {value}: {hint}")
        for text in self.deferrable:
            read_declared(text)
        if self.states and self.slot_s < 2.0:
            raise UsageError(f"--slot {self.slot_s:g}: rounds of statements are at least 2 seconds")

    @property
    def values(self) -> bool:
        """Is it asked what jobs are worth?"""
        return bool(self.utilities) or self.any_of(admits)

    @property
    def defers(self) -> bool:
        """Is it asked what becomes of deferrable jobs?"""
        return bool(self.deferrable) or self.any_of(defers)

    @property
    def states(self) -> bool:
        """Is it asked what becomes of statements of work?"""
        return self.statements is not None or self.any_of(states)

    def any_of(self, does: Callable[[Config], bool]) -> bool:
        """Is there a policy to replay under whose configuration something is done?"""
        return any(self.of(does, name) for name in self.policies)

    def of(self, does: Callable[[Config], bool], name: str) -> bool:
        """Is that done under the policy of that name? A cluster left alone does nothing."""
        return name not in (FLUID, *SCHEDULING) and does(with_policy(self.config, name))

    def to_json(self) -> dict[str, Json]:
        """What a reader needs to run the same again."""
        stated: dict[str, Json] = {
            "slot_s": self.slot_s,
            "statements": "inferred" if self.statements is None else str(self.statements),
            "value_per_core_hour": self.value_per_core_hour,
        }
        worth: dict[str, Json] = {
            "slot_s": self.slot_s,
            "utilities": list(self.utilities),
            "budget": self.budget,
        }
        return {
            "baseline": self.baseline,
            "seed": self.seed,
            "repeat": self.repeat,
            "poll_s": self.poll_s,
            "overrun": self.overrun,
            "pass": "per-event" if self.per_event else "per-timestamp",
            "memory": self.use_memory,
            "use_sd": self.use_sd,
            "demand_error": self.demand_error,
            "widen": self.widen,
            "lending": self.lending,
            "depth": self.depth,
            "backfill_interval_s": self.backfill_interval_s,
            "window_s": self.window_s,
            "demand_assumed": str(self.demand.assumption),
            "demand_profile": dict(self.demand.applications),
            "demand_measured": self.demand.use_measured,
            "vary_demand": self.vary_demand,
            "experts": "shipped" if self.experts is None else str(self.experts),
            "contention": "shipped" if self.contention is None else str(self.contention),
            "options": Options()._asdict() | dict(self.config.share.get("asax", {})),
            **({} if self.config is PLAIN else {"config": self.config.to_json()}),
            **(worth if self.values else {}),
            "infer_limits": self.infer_limits,
            **({"limits": [str(path) for path in self.limits]} if self.limits else {}),
            **({"deferrable": list(self.deferrable)} if self.defers else {}),
            **(stated if self.states else {}),
        }

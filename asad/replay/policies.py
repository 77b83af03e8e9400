"""What a replay can be asked for by name: the cluster left alone, policies of the catalogue, a whole configuration."""

from __future__ import annotations

from asad.admit.elastic import Scheme
from asad.admit.sow.mechanism import Posted
from asad.catalog import BASELINES, policy_class, run_names
from asad.config import Config, PolicySettings
from asad.guard import REPLAY
from asad.policy import Policy
from asad.stages import overlaid

SCHEDULING = {"slurm": "easy", "fcfs": "fcfs", "conservative": "conservative"}
"""Names of the cluster left alone → its own scheduler."""

FLUID = "fluid"
"""A yardstick, no bound: EASY where a job takes the CPU that it uses, and not the cores that it asks for."""

CONFIGURED = "configured"
"""The very policies that the configuration names, all stages together."""

DEFAULT_POLICIES = ("slurm", "measured", "asax")

BEST = {"utilities": "oasis", "deferrable": "rollout-defer", "statements": "sow"}
"""What a replay is given about its jobs → the policy that is best for such jobs; the evaluations say why."""

PLAIN = Config(policies=PolicySettings(share=BASELINES["share"]), guard=REPLAY)
"""Where no configuration is given: the daemon's own settings, but that each policy is replayed by itself, and all
others leave the cluster as it is."""


def all_policies() -> tuple[str, ...]:
    """Every name that can be asked for."""
    return (*SCHEDULING, FLUID, *run_names(), CONFIGURED)


def usual_policies(*, utilities: bool, deferrable: bool, statements: bool) -> tuple[str, ...]:
    """What is replayed where nobody names a policy: lending, or the best for jobs of the kinds that are declared."""
    given = {"utilities": utilities, "deferrable": deferrable, "statements": statements}
    best = tuple(BEST[kind] for kind, declared in given.items() if declared)
    return ("slurm", *best) if best else DEFAULT_POLICIES


def with_policy(config: Config, name: str) -> Config:
    """The configuration under which the policy of that name is replayed; that of the cluster left alone is as good as
    any."""
    return config if name in (CONFIGURED, FLUID, *SCHEDULING) else overlaid(config, name)


def lends(config: Config) -> bool:
    """Does a stage lend?"""
    return any(kind.held is not None for stage in ("share", "place") for kind in _kinds(config, stage))


def admits(config: Config) -> bool:
    """Does a scheme of the admit stage ask what jobs are worth?"""
    return any(issubclass(kind, Scheme) for kind in _kinds(config, "admit"))


def states(config: Config) -> bool:
    """Does the admit stage plan statements of work?"""
    return any(issubclass(kind, Posted) for kind in _kinds(config, "admit"))


def defers(config: Config) -> bool:
    """Are deferrable jobs deferred?"""
    return config.policies.defer != BASELINES["defer"]


def named(config: Config, kind: type[Policy]) -> list[str]:
    """Names of the admit policies of the configuration that derive from that class."""
    names = config.policies.admit.split("+")
    return [name for name in names if issubclass(policy_class("admit", name, yardsticks=True), kind)]


def _kinds(config: Config, stage: str) -> list[type[Policy]]:
    names = getattr(config.policies, stage).split("+")
    return [policy_class(stage, name, yardsticks=True) for name in names]

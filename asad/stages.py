"""The policies of all stages as a configuration names them, with their options: what daemon, replay and benches run.

A policy's options stand in a table of its own, `[stage.NAME]`, named and typed as its class declares them
(`asad.policy.Policy.defaults`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asad.admit import AdmitPolicy
from asad.admit.admission_options import Options as AdmitOptions
from asad.admit.hints import Rule
from asad.admit.utility import parse_utility, site_utilities
from asad.catalog import BASELINES, STAGES, policy_class, run_name, run_names
from asad.config import Config, GuardSettings
from asad.contention import load_contention
from asad.defer import DeferPolicy
from asad.defer.windows import MOST_WINDOW_S
from asad.defer.windows import Rule as DeferRule
from asad.errors import ConfigError, UsageError
from asad.experts import Expert, load_experts
from asad.guard import Guard, guard_for
from asad.place import PlacePolicy
from asad.policy import Given, Policy, Stateful, Truth
from asad.share import SharePolicy
from asad.tables import OPTION_WORDS, Column, Is, columns_of, read
from asad.two_lenders import both_lend, can_both
from asad.warm_up import warm_up as warm_up_lending

CHANCE = 0xA5
"""Sets what policies draw apart from all else that is drawn by a seed."""


class Stages(NamedTuple):
    """The policy of each stage."""

    admit: AdmitPolicy
    defer: DeferPolicy
    place: PlacePolicy
    share: SharePolicy

    @property
    def run(self) -> str:
        """Under which a run of these is kept: the share policy alone where the cluster places."""
        return self.share.name if self.place.name == "native" else f"{self.place.name}+{self.share.name}"

    @property
    def sentence(self) -> str:
        """Their names, for the log."""
        return f"{self.admit.name}, {self.defer.name}, {self.place.name} and {self.share.name}"

    @property
    def slots(self) -> list[tuple[str, float]]:
        """By which policies and in which slots jobs are promised something."""
        return [(policy.name, policy.slot_s) for policy in self.admitting.values()]

    @property
    def lending(self) -> SharePolicy | PlacePolicy:
        """Who lends: the place policy where no share policy does."""
        return self.place if self.share.held is None and self.place.held is not None else self.share

    @property
    def holds_back(self) -> bool:
        """Does a stage hold jobs back?"""
        return self.admit.promises or self.defer.holds

    @property
    def admitting(self) -> dict[str, AdmitPolicy]:
        """The admit policy as `admit`; several side by side each as `admit/NAME`."""
        parts = self.admit.parts
        return {f"admit/{part.name}": part for part in parts} if parts else {"admit": self.admit}

    @property
    def learners(self) -> dict[str, Stateful]:
        """By stage, the policies whose knowledge outlives the process; those of the admit stage as `admitting` has
        them."""
        policies = {**self.admitting, "defer": self.defer, "place": self.place, "share": self.share}
        return {stage: policy for stage, policy in policies.items() if isinstance(policy, Stateful)}

    def scope(self, stage: str) -> str:
        """Under which the knowledge of a stage's policy is kept, among all of a cluster: by the policy's own name,
        whether alone or beside others."""
        if stage == "defer":  # what it knows of the cluster is the same for every policy
            return "defer"
        if "/" in stage:
            return stage
        name: str = getattr(self, stage).name
        return name if stage == "share" else f"{stage}/{name}"

    @property
    def scopes(self) -> dict[str, str]:
        """By stage whose policy learns: that name."""
        return {stage: self.scope(stage) for stage in self.learners}

    def guard(self, settings: GuardSettings, memory_loss: float = 0.0) -> Guard:
        """The guard over them; `memory_loss` as in `asad.guard.guard_for`."""
        bound = self.share.properties | self.place.properties
        return guard_for(bound, settings, memory_loss, self.admit.consents, self.lending.poll_s)

    def take_over(self, before: Stages) -> None:
        """Know what policies of the same name knew before; of the cluster deferral knows the same by any name."""
        for stage, policy in self.learners.items():
            earlier = {before.scope(name): one for name, one in before.learners.items()}.get(
                self.scope(stage)
            )
            if earlier is None:
                continue
            if stage in self.admitting and not before.admit.ready:
                continue  # the store has still to give both of them what was promised, and which numbers are taken
            policy.restore(earlier.state())


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What policies are made in, besides the configuration."""

    applications: Sequence[str] = ()
    """Names of the codes of `Jobs.application`; a list that may grow."""
    seed: int | None = None
    """Of what they draw; None draws one."""
    truth: Truth | None = None
    """Of a replay. With it yardsticks can be made, and policies call themselves in decisions as replays do."""
    experts: Callable[[], Sequence[Expert]] | None = None
    """Instead of those that the configuration names."""


def stages_of(config: Config, applications: Sequence[str], seed: int | None = None) -> Stages:
    """The configured policies; `applications` names the codes of `Jobs.application` and may grow, `seed` None draws
    one.

    Raises ConfigError for whatever is wrong with one of them, or between them.
    """
    return make_stages(config, Circumstances(applications, seed))


def make_stages(config: Config, made_in: Circumstances) -> Stages:
    """`stages_of` in any circumstances."""
    names = config.policies.admit.split("+")
    of_one = {
        stage: policy_of(config, stage, made_in) for stage in STAGES if stage != "admit" or not names[1:]
    }
    if names[1:]:
        of_one["admit"] = _side_by_side(config, names, made_in)
    made = Stages(**of_one)
    if both_lend(made.place, made.share) and not can_both(made.place, made.share):
        raise ConfigError(
            f'[policies] place = "{made.place.name}": it lends from the pools of nodes, and share = '
            f'"{made.share.name}" otherwise; write share = "asax", or share = "exclusive"'
        )
    return made


def _side_by_side(config: Config, names: Sequence[str], made_in: Circumstances) -> AdmitPolicy:
    """Several admit policies, each by its own table of options. Raises ConfigError."""
    from asad.admit.side_by_side import SideBySide  # who names one alone needs none of it

    if len(set(names)) < len(names) or BASELINES["admit"] in names:
        raise ConfigError(
            f'[policies] admit = "{"+".join(names)}": name different ones, and not {BASELINES["admit"]}'
        )
    alone = (replace(config, policies=replace(config.policies, admit=name)) for name in names)
    return SideBySide([policy_of(one, "admit", made_in) for one in alone])


def policy_of(config: Config, stage: str, made_in: Circumstances | None = None) -> Any:
    """The policy of a stage that the configuration names, with its options and rules.

    Raises ConfigError for an unknown name, an unknown or wrong option, a rule or file that cannot be read.
    """
    made_in = made_in or Circumstances()
    name = getattr(config.policies, stage)
    try:
        kind = policy_class(stage, name, yardsticks=made_in.truth is not None)
    except ConfigError:
        raise
    except UsageError as error:
        raise ConfigError(f"[policies] {stage}: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        raise ConfigError(
            f"[policies] {stage}: {name} ({kind.__module__}) is no class that derives from asad.policy.Policy; see "
            "docs/how-to/write-a-policy.md"
        )
    given = _given(config, stage, made_in)
    table, raw, known = f"[{stage}.{name}]", getattr(config, stage).get(name, {}), kind.defaults()
    if raw and not known and not raw.keys() & kind.removed.keys():
        raise ConfigError(f"{table}: {name} has no options; remove the table")
    if "headroom" in known:
        known["headroom"] = given.headroom
    taken = known | _checked(table, raw, known, kind)
    try:
        return kind.of(given, taken)
    except ConfigError as error:
        if str(error).startswith("["):
            raise
        raise ConfigError(f"{table} {error}") from error
    except UsageError as error:
        option = str(error).partition(" ")[0].rstrip(":")
        raise ConfigError(f"{table}{'' if option in known else ':'} {error}") from error


def _given(config: Config, stage: str, made_in: Circumstances) -> Given:
    guard, name = config.guard, getattr(config.policies, stage)
    utilities = site_utilities() if stage == "admit" else {}
    rules: list[Any] = []
    for number, table in enumerate(getattr(config, stage).get("rules", ()), 1):
        rules.append(
            _admit_rule(number, table, utilities) if stage == "admit" else _defer_rule(number, table)
        )
    return Given(
        applications=made_in.applications,
        rng=np.random.default_rng(
            None if made_in.seed is None else np.random.SeedSequence((made_in.seed, CHANCE))
        ),
        experts=made_in.experts or (lambda: load_experts(config.policies.experts or None)),
        called=run_name(stage, name) if stage == "defer" or made_in.truth is not None else name,
        poll_s=config.daemon.interval_s,
        headroom=guard.host_floor,
        pressure=guard.pressure,
        most_defer_s=guard.most_defer_s,
        most_lease_s=guard.most_lease_s,
        rules=rules,
        utilities=utilities,
        shares=config.policies.share != BASELINES["share"],
        truth=made_in.truth,
    )


def _checked(
    table: str, given: Mapping[str, Any], defaults: Mapping[str, Any], kind: type[Policy] = Policy
) -> dict[str, Any]:
    """What is given, of the types of the defaults. Raises ConfigError for an unknown or wrong option."""
    for key in given:
        if key in kind.removed:
            raise ConfigError(f"{table} {key}: {kind.removed[key]}")
    plain = {
        key: Column(type(default), default, Is(None if key in kind.signed else 0))
        for key, default in defaults.items()
    }
    ranged = {key: column for key, column in columns_of(kind.option_type).items() if column.limits != Is()}
    columns = plain | {key: column for key, column in ranged.items() if key in plain}
    taken, faults = read(columns, given, OPTION_WORDS, (table,))
    if faults:
        raise ConfigError(faults[0].text)
    return taken


def _admit_rule(number: int, given: Mapping[str, Any], own: Mapping[str, Any]) -> Rule:
    """One of `[[admit.rules]]`. Raises ConfigError."""
    table = f"[[admit.rules]] number {number}:"
    rule = Rule(**_checked(table, given, Rule()._asdict()))
    if not rule.utility:
        raise ConfigError(f'{table} no utility; write utility = "sigmoid(10, 0.5, 20m)"')
    try:
        parse_utility(rule.utility, AdmitOptions().slot_s, own)
    except UsageError as error:
        raise ConfigError(f"{table} {error}") from error
    return rule


def _defer_rule(number: int, given: Mapping[str, Any]) -> DeferRule:
    """One of `[[defer.rules]]`. Raises ConfigError."""
    table = f"[[defer.rules]] number {number}:"
    rule = DeferRule(**_checked(table, given, DeferRule()._asdict()))
    if not 0.0 < rule.window_s <= MOST_WINDOW_S:
        raise ConfigError(f"{table} window_s = {rule.window_s:g}; give seconds above 0, at most a year")
    return rule


def memory_loss(config: Config) -> float:
    """What a memory-bound host loses beside a memory-bound guest, as calibrated. Raises ConfigError."""
    path = config.guard.calibration
    return 1.0 - load_contention(Path(path) if path else None).mu_host_memory


def live_guard(config: Config, stages: Stages) -> Guard:
    """The guard of a daemon over its policies. Raises ConfigError for a calibration that cannot be read."""
    return stages.guard(config.guard, memory_loss(config))


def overlaid(config: Config, policy: str) -> Config:
    """The configuration with a policy, called as replays do, in its stage. Raises UsageError for an unknown one."""
    if policy not in run_names():
        raise UsageError(f"unknown policy {policy!r}; there are {', '.join(run_names())}")
    stage, name = run_names()[policy]
    return replace(config, policies=replace(config.policies, **{stage: name}))


def decided_by(config: Config) -> tuple[Any, ...]:
    """The settings from which policies and guard are made."""
    options = config.share, config.admit, config.defer, config.place
    return config.policies, *options, config.guard, config.daemon.interval_s


def warm_up(config: Config) -> None:
    """Have the policies that the configuration names compiled, into numba's cache where there is one."""
    stages = make_stages(config, Circumstances(["made/up/1"], 0))
    warm_up_lending(stages.share)
    warm_up_lending(stages.place)
    stages.admit.warm_up()
    stages.defer.warm_up()

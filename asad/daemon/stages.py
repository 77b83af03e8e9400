"""The policies of all stages as the configuration names them, and the guard over them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from asad.admit import AdmitPolicy
from asad.admit.live import Admission
from asad.admit.sow.live import Statements
from asad.config import Config
from asad.daemon.clusters import NoNodes, open_cluster
from asad.defer import DeferPolicy
from asad.defer.live import Deferral
from asad.guard import Guard, guard_for
from asad.model import Json
from asad.place import PlacePolicy
from asad.policies import admit_policy, defer_policy, memory_loss, place_policy, share_policy
from asad.share import SharePolicy
from asad.store.urls import parse

Memory = Mapping[str, Mapping[str, Json]]
Changes = Mapping[str, Mapping[str, Json] | None]
"""What is known otherwise; None of what is forgotten."""


@runtime_checkable
class Remembers(Protocol):
    """A policy whose knowledge outlives the process."""

    def state(self) -> Memory:
        """What it knows, by application, as plain data."""
        ...

    def restore(self, memory: Memory) -> None:
        """Know again what `state` told."""
        ...


@runtime_checkable
class RemembersChanges(Remembers, Protocol):
    """One that keeps so much that only what has changed is worth telling."""

    def changes(self) -> Changes:
        """What `state` tells otherwise than when this was asked last, or when it was restored."""
        ...


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
    def promises(self) -> bool:
        """Does admission promise jobs something that outlives the daemon?"""
        return isinstance(self.admit, Admission | Statements)

    @property
    def defers(self) -> bool:
        """Are deferrable jobs held back?"""
        return isinstance(self.defer, Deferral)

    @property
    def slots(self) -> tuple[str, float]:
        """By which policy and in which slots jobs are promised something."""
        if isinstance(self.admit, Statements):
            return self.admit.name, self.admit.options.round_s
        return self.admit.name, self.admit.options.slot_s if isinstance(self.admit, Admission) else 0.0

    @property
    def learners(self) -> dict[str, Remembers]:
        """By stage, the policies whose knowledge outlives the process."""
        return {stage: policy for stage, policy in self._asdict().items() if isinstance(policy, Remembers)}

    def scope(self, stage: str) -> str:
        """Under which the knowledge of a stage's policy is kept, among all of a cluster."""
        if stage == "defer":  # what it knows of the cluster is the same for every policy
            return "defer"
        name: str = getattr(self, stage).name
        return name if stage == "share" else f"{stage}/{name}"

    @property
    def scopes(self) -> dict[str, str]:
        """By stage whose policy learns: that name."""
        return {stage: self.scope(stage) for stage in self.learners}

    def guard(self, config: Config) -> Guard:
        """The guard over them. Raises ConfigError for a calibration that cannot be read."""
        # nobody agreed to be evicted but owners of statements
        consents = self.admit.consents if isinstance(self.admit, Statements) else {}
        bound = self.share.properties | self.place.properties
        return guard_for(bound, config.guard, memory_loss(config), consents)

    def take_over(self, before: Stages) -> None:
        """Know what policies of the same name knew before; of the cluster deferral knows the same by any name."""
        for stage, policy in self.learners.items():
            earlier = before.learners.get(stage)
            if earlier is None or self.scope(stage) != before.scope(stage):
                continue
            if isinstance(earlier, Statements) and not earlier.ready:
                continue  # the store has still to tell both of them what was promised, and which numbers are given
            policy.restore(earlier.state())


def stages_of(config: Config, applications: Sequence[str]) -> Stages:
    """The configured policies; `applications` names the codes of `Jobs.application` and may grow.

    Raises ConfigError for whatever is wrong with one of them.
    """
    seed = config.recorded.seed if config.daemon.cluster == "recorded" else None
    return Stages(
        share=share_policy(config, applications, seed),
        admit=admit_policy(config, applications),
        defer=defer_policy(config, applications),
        place=place_policy(config, applications),
    )


def decided_by(config: Config) -> tuple[Any, ...]:
    """The settings from which policies and guard are made."""
    options = config.share, config.admit, config.defer, config.place
    return config.policies, *options, config.guard, config.daemon.interval_s


def check(config: Config) -> None:
    """Everything that can be told without running: options, experts, the store's URL, and the cluster plugin's own
    table.

    Raises ConfigError, or another UsageError for a log or a URL that cannot be read.
    """
    parse(config.store_url)
    stages_of(config, []).guard(config)
    with tempfile.TemporaryDirectory(prefix="asad-check-") as folder:
        open_cluster(config, NoNodes(), Path(folder)).close()

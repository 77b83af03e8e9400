"""What a daemon needs of a cluster beside the port, and how the configured one is opened."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from asad.catalog import BASELINES, policy_class
from asad.config import Config
from asad.decisions import Outcome
from asad.errors import ConfigError
from asad.model import Json
from asad.port import Cluster, Lease, NodeLink, NodeReport
from asad.replay.playback import Playback
from asad.stages import live_guard, stages_of
from asad.store.urls import parse

ACTING, LEAST_ACTING_S = 1 / 3, 1.0
"""Part of the time between two cycles that changes may take, and how long they may take however short that is (s)."""


class LiveCluster(Cluster, Protocol):
    """A cluster plugin's object: the port, and what a daemon needs beside it."""

    ledger: list[dict[str, Any]]
    """What lending gave to and took from jobs that ended; whoever reads it empties it."""
    notices: list[str]
    """Sentences about what happened besides; whoever reads them empties the list."""

    @property
    def applications(self) -> Sequence[str]:
        """Names of the codes in `Jobs.application`; a list that grows, or `asad.applications.Applications`."""
        ...

    def sentence(self) -> str:
        """The cluster and how it is reached, in one line."""
        ...

    def recover(self) -> list[str]:
        """Undo what an earlier daemon left; a sentence for each thing undone."""
        ...

    def release(self) -> list[str]:
        """Take back every offer that is not taken and every quota; a sentence for each."""
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


@runtime_checkable
class KeepsPromises(Protocol):
    """A cluster on which what is changed of jobs that wait outlives the daemon that did it."""

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Let every job that waits have its own again, with `begin` also its begin time; a sentence for each."""
        ...


@runtime_checkable
class TakesJobs(Protocol):
    """A cluster to which jobs are submitted through the daemon (Mesos has no queue of its own)."""

    def request(self, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
        """The answer to `submit`, `cancel` or `tasks`, asked in any thread, or to `teardown`, asked in the main one,
        by that user. Raises AsadError."""
        ...


@runtime_checkable
class HasStories(Protocol):
    """A cluster on which more becomes of a job than asad decides."""

    def story(self, job: str) -> Json:
        """What became of a job and what it waits for, asked in any thread: `job`, `state`, `retries`, `tasks`
        (`waiting`, `running`), `nodes`, `waits` and `story` ([time, sentence], …); None if it is not known."""
        ...


@runtime_checkable
class KeepsJobsPrivate(Protocol):
    """A cluster that can be configured to show users no jobs but their own (Slurm's PrivateData)."""

    def hides_jobs(self) -> bool:
        """Does it? Where it could not be asked: yes. Asked in the main thread."""
        ...


@runtime_checkable
class ActsByItself(Protocol):
    """A cluster that acts not only on decisions (it takes jobs out of another's queue)."""

    acted: list[tuple[str, Outcome]]
    """What it did: the job's name, and the outcome of a decision about row 0. Whoever reads it empties it."""

    def may_act(self, may: bool) -> None:
        """May it, until instructed otherwise? Not before the first time."""
        ...


@runtime_checkable
class ActsSlowly(Protocol):
    """A cluster whose every change takes time, more of it when its controller is slow."""

    acting_s: float
    """So long may changes take within one cycle (s); what is left over is done by the next."""


class NoNodes:
    """The node actors of a cluster that has none."""

    def reports(self) -> Mapping[str, NodeReport]:
        """None."""
        return {}

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """Nobody takes note."""
        return False

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """Nobody is granted anything."""


def open_cluster(
    config: Config, nodes: NodeLink, state_dir: Path, clock: Callable[[], float] = time.time
) -> LiveCluster:
    """The cluster that the configuration names. Raises ConfigError and what the plugin raises."""
    name = config.daemon.cluster
    if name == "recorded":
        played = config.recorded
        place, share = (policy_class(stage, getattr(config.policies, stage)) for stage in ("place", "share"))
        lending = share if share.held is not None or place.held is None else place
        if not played.log:
            raise ConfigError("[recorded] log: a recorded cluster needs a log; name one with --log FILE")
        return Playback(
            played.log,
            held=lending.held or "idle",
            pooled=lending.pooled,
            gather_arrays=any(
                getattr(config.policies, stage) != BASELINES[stage] for stage in ("admit", "defer")
            ),
            nodes=played.nodes,
            cores=played.cores,
            memory=played.memory,
            demand=played.demand,
            speed=played.speed,
            seed=played.seed,
            poll_s=config.daemon.interval_s,
            config=config,
            monotonic=time.monotonic,
        )
    found = {point.name: point for point in entry_points(group="asad.clusters")}
    if name not in found:
        there = ", ".join(sorted({*found, "recorded"}))
        raise ConfigError(f"[daemon] cluster: there is no cluster plugin {name!r}; there are {there}")
    opened: LiveCluster = found[name].load()(
        settings_of(config), nodes=nodes, state_dir=state_dir, clock=clock
    )
    if not hasattr(opened, "notices") and hasattr(opened, "said"):  # a site's plugin of the release before
        warnings.warn(
            f"{name}: `said` of a cluster is called `notices` now; rename it",
            DeprecationWarning,
            stacklevel=2,
        )
        opened.notices = opened.said
    allow_changes(opened, config)
    return opened


def allow_changes(cluster: LiveCluster, config: Config) -> None:
    """How long changes may take within a cycle, of a cluster on which they take time."""
    if isinstance(cluster, ActsSlowly):
        cluster.acting_s = max(LEAST_ACTING_S, ACTING * config.daemon.interval_s)


def settings_of(config: Config) -> Mapping[str, Any]:
    """The cluster plugin's own table. Of slurm+mesos (the queue of one, the nodes of the other) it is `[mesos]`."""
    return config.clusters.get(config.daemon.cluster.rpartition("+")[2], {})


def check(config: Config) -> None:
    """Everything that can be checked without running: options, experts, the store's URL, and the cluster plugin's own
    table.

    Raises ConfigError, or another UsageError for a log or a URL that cannot be read.
    """
    parse(config.store_url)
    live_guard(config, stages_of(config, []))
    with tempfile.TemporaryDirectory(prefix="asad-check-") as folder:
        open_cluster(config, NoNodes(), Path(folder)).close()

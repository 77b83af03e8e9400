"""What a new configuration can change of a daemon that runs, and what is left behind by doing so."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable

from asad.config import Config
from asad.daemon.clusters import LiveCluster, settings_of
from asad.guard import Guard
from asad.stages import Stages, decided_by, live_guard, stages_of
from asad.two_lenders import both_lend

log = logging.getLogger(__name__)

FIXED = ("cluster", "state_dir", "store", "socket")
"""Of `[daemon]`: what takes effect at a start alone."""
FIXED_TABLES = ("nodes", "metrics", "recorded")


def but_for_what_is_fixed(old: Config, new: Config) -> Config:
    """The new configuration with what a start alone can change as it was; the log states what that is."""
    fixed = {name: getattr(old.daemon, name) for name in FIXED}
    tables = {name: getattr(old, name) for name in FIXED_TABLES}
    later = [f"[daemon] {name}" for name, value in fixed.items() if getattr(new.daemon, name) != value]
    later += [f"[{name}]" for name, value in tables.items() if getattr(new, name) != value]
    if later:
        log.warning("%s changed, which takes effect at the next start", ", ".join(later))
    return dataclasses.replace(new, daemon=dataclasses.replace(new.daemon, **fixed), **tables)


def prepare(
    old: Config,
    new: Config,
    cluster: LiveCluster,
    stages: Stages,
    reopen: Callable[[Config], LiveCluster] | None,
    save: Callable[[], None],
) -> tuple[LiveCluster, Stages, Guard]:
    """What a new configuration needs: `cluster` and `stages` as they are, or made anew where their settings differ.

    It may raise anything, and then nothing has changed. `reopen` opens a cluster (None: this one stays), `save` is
    called before policies hand over what they know.
    """
    before = stages
    with contextlib.ExitStack() as failed:
        moves = reopen is not None and settings_of(new) != settings_of(old)
        if reopen is not None and moves:
            cluster = reopen(new)
            failed.callback(cluster.close)
        if moves or decided_by(new) != decided_by(old):
            stages = stages_of(new, cluster.applications, seed_of(new))
        guard = live_guard(new, stages)
        if stages is not before:
            save()
            stages.take_over(before)
        failed.pop_all()
    return cluster, stages, guard


def seed_of(config: Config) -> int | None:
    """Of what policies draw: a recorded cluster is played the same again."""
    return config.recorded.seed if config.daemon.cluster == "recorded" else None


def leaves_behind(before: Stages, now: Stages) -> bool:
    """Is something out that nobody would look after any more?"""
    return (
        now.slots != before.slots  # what was promised by other slots is no promise any more
        or (before.defer.holds and not now.defer.holds)  # nobody renews or ends what is held back
        # shares and memory limits that another policy has set, or that this one has set of jobs that are another's now
        or (now.place.name, both_lend(now.place, now.share))
        != (before.place.name, both_lend(before.place, before.share))
    )

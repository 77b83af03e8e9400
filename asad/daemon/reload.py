"""What a new configuration can change of a daemon that runs, and what is left behind by doing so."""

from __future__ import annotations

import dataclasses
import logging

from asad.config import Config
from asad.stages import Stages

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


def leaves_behind(before: Stages, now: Stages) -> bool:
    """Is something out that nobody would look after any more?"""
    return (
        now.slots != before.slots  # what was promised by other slots is no promise any more
        or (before.defer.holds and not now.defer.holds)  # nobody renews or ends what is held back
        or now.place.name != before.place.name  # shares and memory limits that another policy has set
    )

"""The policies that installed packages offer, by stage and name: the one list of names.

A package offers a policy by an entry point of the group `asad.policies`, called `stage.name`, which points at its class
(`asad.policy.Policy` describes what that declares). asad's own are offered in the same way, in setup.cfg. A class is
loaded when it is asked for, so that nobody waits for compilers and solvers of those that are not.

The group `asad.yardsticks` holds policies that are given what nobody can know (`asad.policy.Truth`): only replays can
run those.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from asad.errors import ConfigError, UsageError
from asad.tables import nearest_of

STAGES = ("admit", "defer", "place", "share")
POLICIES, YARDSTICKS = "asad.policies", "asad.yardsticks"
BASELINES = {"admit": "everyone", "defer": "at-once", "place": "native", "share": "exclusive"}
"""By stage, the policy that leaves the cluster as it is."""
STAND_ALONE = frozenset({"oasis", "oasis-paper", "sow", "sow-paper", "osdec"})
"""Policies of admit and defer that a replay calls by their name alone: no other stage has one of that name."""


def policy_names(stage: str, *, yardsticks: bool = False) -> tuple[str, ...]:
    """The names of a stage's policies, sorted; with `yardsticks` also of those that only a replay can run."""
    offered = _offered(POLICIES).get(stage, {})
    return tuple(sorted({*offered, *(_offered(YARDSTICKS).get(stage, {}) if yardsticks else ())}))


def policy_class(stage: str, name: str, *, yardsticks: bool = False) -> Any:
    """The class of a policy. Raises UsageError for a name that nobody offers, ConfigError for a class that cannot be
    loaded."""
    found = _offered(POLICIES).get(stage, {}).get(name)
    if found is None and yardsticks:
        found = _offered(YARDSTICKS).get(stage, {}).get(name)
    if found is None:
        names = policy_names(stage, yardsticks=yardsticks)
        raise UsageError(f"no policy of the {stage} stage is called {name!r:.80}; {nearest_of(name, names)}")
    return _loaded(stage, found)


@cache
def _loaded(stage: str, point: EntryPoint) -> Any:
    """Loaded once, and checked to be what its entry point calls it."""
    place = f"the {stage} policy {point.name.partition('.')[2]!r} ({point.value})"
    try:
        kind = point.load()
    except Exception as error:  # the module is anybody's
        raise ConfigError(f"{place} cannot be loaded: {type(error).__name__}: {error}") from error
    declared = (getattr(kind, "stage", None), getattr(kind, "name", None))
    if declared != (stage, point.name.partition(".")[2]):
        raise ConfigError(
            f"{place} declares stage {declared[0]!r} and name {declared[1]!r}; its entry point is to be called "
            "STAGE.NAME of these"
        )
    return kind


@cache
def _offered(group: str) -> dict[str, dict[str, EntryPoint]]:
    """By stage and name. Raises ConfigError where two packages offer different classes by one name."""
    found: dict[str, dict[str, EntryPoint]] = {stage: {} for stage in STAGES}
    for point in entry_points(group=group):
        stage, _, name = point.name.partition(".")
        if stage not in found or not name:
            raise ConfigError(
                f"entry point {point.name!r} of the group {group} ({point.value}): call it STAGE.NAME, with one of "
                f"the stages {', '.join(STAGES)}"
            )
        other = found[stage].setdefault(name, point)
        if other.value != point.value:
            raise ConfigError(
                f"two packages offer a {stage} policy {name!r}: {other.value} and {point.value}; remove one of them"
            )
    return found


def help_of(kind: Any) -> str:
    """The line of help of a policy: the first sentence of its module's docstring, which begins with its name."""
    text = " ".join((sys.modules[kind.__module__].__doc__ or kind.__doc__ or "").partition("\n\n")[0].split())
    text = text.partition(": ")[2] if text.startswith("`") else text
    return text[:1].upper() + text[1:].partition(". ")[0].rstrip(".") + "."


# ------------------------------------------------------------------------------------------------- names in replays


def run_name(stage: str, name: str) -> str:
    """How replays and decisions call a policy: names of admit and defer are those of other stages' policies too
    (`fifo`, `drf`), so that they carry their stage (`fifo-admit`, `edf-defer`)."""
    return name if stage in ("place", "share") or name in STAND_ALONE else f"{name}-{stage}"


@cache
def run_names() -> dict[str, tuple[str, str]]:
    """How replays call the policies that change anything → stage and name, yardsticks among them."""
    return {
        run_name(stage, name): (stage, name)
        for stage in ("share", "place", "admit", "defer")
        for name in policy_names(stage, yardsticks=True)
        if name != BASELINES[stage]
    }

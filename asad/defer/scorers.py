"""Policies of the stage on their own, without a cluster: for benchmarks, training and the environment.

The same objects serve a replay and the daemon, where `asad.defer.deferral_policy.Deferral` drives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asad.catalog import policy_class, policy_names
from asad.defer.jobs import Scorer
from asad.errors import UsageError
from asad.policy import parameters


def scorer_names() -> tuple[str, ...]:
    """Those that score jobs; `at-once` defers nothing, so it is none of them."""
    return tuple(name for name in policy_names("defer") if issubclass(policy_class("defer", name), Scorer))


def scorer_options(name: str) -> dict[str, Any]:
    """What can be set of a policy wherever it is used, with the defaults. Raises UsageError."""
    return parameters(_kind(name))


def make_scorer(name: str, options: Mapping[str, Any] | None = None) -> Scorer:
    """The policy of that name. Raises UsageError for a name or an option that is not there, or cannot be."""
    kind, known = _kind(name), scorer_options(name)
    for key in options or {}:
        if key not in known:
            listed = f"there are {', '.join(known)}" if known else "it has none"
            raise UsageError(f"defer {name}: it has no option {key!r}; {listed}")
    made: Scorer = kind(**(options or {}))
    return made


def _kind(name: str) -> type[Scorer]:
    kind: type[Scorer] = policy_class("defer", name)
    if not issubclass(kind, Scorer):
        raise UsageError(f"defer {name}: it scores no jobs; there are {', '.join(scorer_names())}")
    return kind

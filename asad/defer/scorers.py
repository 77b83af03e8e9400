"""Policies of the stage by name, with the options that each takes: the parameters of its class.

One is loaded when it is asked for, so that nobody waits for compilers and weights of those that are not. The same
object serves `asactl bench osdec`, the environment, a replay and the daemon (`asad.defer.live`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from asad.defer.jobs import Scorer
from asad.errors import UsageError

SCORERS = {
    "fifo": ("asad.defer.fifo", "Fifo"),
    "sjf": ("asad.defer.sjf", "Sjf"),
    "edf": ("asad.defer.edf", "Edf"),
    "tetris": ("asad.defer.tetris", "Tetris"),
    "biggest": ("asad.defer.biggest", "Biggest"),
    "linear": ("asad.defer.linear", "Linear"),
    "lookahead": ("asad.defer.lookahead", "Lookahead"),
    "rollout": ("asad.defer.rollout", "Rollout"),
    "osdec": ("asad.defer.osdec", "Osdec"),
}
"""Name → module and class. `at-once` puts nothing off, so it is none of them."""


def scorer_options(name: str) -> dict[str, Any]:
    """What can be set of a policy, with the defaults: numbers, truth values and texts. Raises UsageError."""
    return {
        key: parameter.default
        for key, parameter in inspect.signature(_load(name)).parameters.items()
        if isinstance(parameter.default, bool | int | float | str)
    }


def make_scorer(name: str, options: Mapping[str, Any] | None = None) -> Scorer:
    """The policy of that name. Raises UsageError for a name or an option that is not there, or cannot be."""
    kind = _load(name)
    known = scorer_options(name)
    for key in options or {}:
        if key not in known:
            raise UsageError(f"defer {name}: it has no option {key!r}; {_listed(known)}")
    made: Scorer = kind(**(options or {}))
    return made


def _listed(known: Mapping[str, Any]) -> str:
    return f"there are {', '.join(known)}" if known else "it has none"


def _load(name: str) -> Callable[..., Any]:
    if name not in SCORERS:
        raise UsageError(f"defer {name!r}: there are {', '.join(SCORERS)}")
    module, kind = SCORERS[name]
    loaded: Callable[..., Any] = getattr(import_module(module), kind)
    return loaded

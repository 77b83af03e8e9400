"""Schemes by name, with the options that each takes: the parameters of its class beyond servers and horizon.

A scheme is loaded when it is asked for, so that nobody waits for compilers and solvers of those that are not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from asad.admit.elastic import Scheme, Servers

SCHEMES = {
    "fifo": ("asad.admit.fifo", "Fifo"),
    "drf": ("asad.admit.drf", "Drf"),
    "rrh": ("asad.admit.rrh", "Rrh"),
    "dorm": ("asad.admit.dorm", "Dorm"),
    "oasis": ("asad.admit.oasis", "Oasis"),
    "oasis-paper": ("asad.admit.oasis_paper", "OasisPaper"),
}
"""Name → module and class."""


def scheme_options(name: str) -> dict[str, Any]:
    """What can be set of a scheme, with the defaults: numbers, truth values and texts. Raises KeyError."""
    parameters = inspect.signature(_load(name)).parameters
    return {
        key: parameter.default
        for key, parameter in parameters.items()
        if key not in ("servers", "horizon") and isinstance(parameter.default, bool | int | float | str)
    }


def scheme_maker(name: str, options: Mapping[str, Any]) -> Callable[[Servers, int], Scheme]:
    """How to make the scheme over servers, planning so many slots ahead if it plans at all. Raises KeyError."""
    kind = _load(name)
    plans = "horizon" in inspect.signature(kind).parameters

    def make(servers: Servers, horizon: int) -> Scheme:
        made: Scheme = kind(servers, horizon=horizon, **options) if plans else kind(servers, **options)
        return made

    return make


def _load(name: str) -> Callable[..., Any]:
    module, kind = SCHEMES[name]
    loaded: Callable[..., Any] = getattr(import_module(module), kind)
    return loaded

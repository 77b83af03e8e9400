"""Schemes by name, with the options that each takes: the parameters of its class beyond servers and horizon.

A scheme is loaded when it is asked for, so that nobody waits for compilers and solvers of those that are not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from asad.admit.elastic import ElasticJob, Scheme, Servers
from asad.admit.utility import Constant

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


def rehearse(make: Callable[[Servers, int], Scheme]) -> int:
    """Made-up jobs through a scheme that is thrown away, so that what it compiles is compiled before real ones come.

    Compiling takes up to a minute where nothing is cached. Returns the workers of the job's first slot.
    """
    servers = Servers(("cores", "memory"), np.full((2, 2), 8.0), np.zeros((0, 2)))
    scheme = make(servers, 8)
    none = np.zeros(2)
    job = ElasticJob("made up", 5, np.array([1.0, 2.0]), none, 0.0, 0.0, 4, 6, Constant(10.0), 8.0, 4)
    occupy, extend = getattr(scheme, "occupy", None), getattr(scheme, "extend", None)
    if occupy is not None:
        occupy(5, np.ones((8, 2, 2)))
    scheme.arrive(1, job)
    scheme.arrive(2, job)
    scheme.arrive(3, replace(job, rigid=True, most_workers=1, fixed_workers=1))
    if extend is not None:
        extend(1, 5, 2)
        extend(2, 5, 10_000)  # which fits nowhere: it is given all the room there is
    width = sum(there.width for there in scheme.allot(5, {1: 6, 2: 6, 3: 6}).values())
    leave = getattr(scheme, "leave", None)
    if leave is not None:
        leave(2, 5)
        leave(3, 5)
    return width


def _load(name: str) -> Callable[..., Any]:
    module, kind = SCHEMES[name]
    loaded: Callable[..., Any] = getattr(import_module(module), kind)
    return loaded

"""Schemes on their own, without a cluster: for benchmarks and generated instances, and to have them compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from asad.admit.elastic import ElasticJob, PlansAhead, Scheme, Servers
from asad.admit.utility import Constant
from asad.catalog import policy_class, policy_names


def scheme_names() -> tuple[str, ...]:
    """The policies of the stage that work on the job model of `asad.admit.elastic`."""
    return tuple(name for name in policy_names("admit") if issubclass(policy_class("admit", name), Scheme))


def scheme_maker(name: str, options: Mapping[str, Any]) -> Callable[[Servers, int], Scheme]:
    """How to make the scheme over servers, planning so many slots ahead if it plans at all. Raises UsageError."""
    kind: type[Scheme] = policy_class("admit", name)
    return kind.maker(**options)


def warm_up_scheme(make: Callable[[Servers, int], Scheme]) -> int:
    """Made-up jobs through a scheme that is thrown away, so that what it compiles is compiled before real ones come.

    Compiling takes up to a minute where nothing is cached. Returns the workers of the job's first slot.
    """
    servers = Servers(("cores", "memory"), np.full((2, 2), 8.0), np.zeros((0, 2)))
    scheme = make(servers, 8)
    none = np.zeros(2)
    job = ElasticJob("made up", 5, np.array([1.0, 2.0]), none, 0.0, 0.0, 4, 6, Constant(10.0), 8.0, 4)
    ahead = scheme if isinstance(scheme, PlansAhead) else None
    if ahead is not None:
        ahead.occupy(5, np.ones((8, 2, 2)))
    scheme.arrive(1, job)
    scheme.arrive(2, job)
    scheme.arrive(3, replace(job, rigid=True, most_workers=1, fixed_workers=1))
    if ahead is not None:
        ahead.extend(1, 5, 2)
        ahead.extend(2, 5, 10_000)  # which fits nowhere: it is given all the room there is
    width = sum(there.width for there in scheme.allot(5, {1: 6, 2: 6, 3: 6}).values())
    if ahead is not None:
        ahead.leave(2, 5)
        ahead.leave(3, 5)
    return width

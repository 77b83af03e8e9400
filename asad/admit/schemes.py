"""Schemes on their own, without a cluster: for benchmarks and generated instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asad.admit.elastic import Scheme, Servers
from asad.catalog import policy_class, policy_names


def scheme_names() -> tuple[str, ...]:
    """The policies of the stage that work on the job model of `asad.admit.elastic`."""
    return tuple(name for name in policy_names("admit") if issubclass(policy_class("admit", name), Scheme))


def scheme_maker(name: str, options: Mapping[str, Any]) -> Callable[[Servers, int], Scheme]:
    """How to make the scheme over servers, planning so many slots ahead if it plans at all. Raises UsageError."""
    kind: type[Scheme] = policy_class("admit", name)
    return kind.maker(**options)

"""Mechanisms on their own, without a cluster: for benchmarks and generated instances."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import Bounds
from asad.catalog import policy_class, policy_names


def mechanism_names() -> tuple[str, ...]:
    """The policies of the stage that plan statements of work."""
    return tuple(name for name in policy_names("admit") if issubclass(policy_class("admit", name), Posted))


def mechanism_of(
    name: str,
    bounds: Bounds,
    options: Mapping[str, Any] | None = None,
    counted: Mapping[str, Bounds] = MappingProxyType({}),
) -> Posted:
    """The mechanism of that name, that prices the resources of `counted` too.

    Raises UsageError, also for options out of range.
    """
    made: Posted = policy_class("admit", name)(bounds, **(options or {}))
    for resource, limits in counted.items():
        made.count(resource, limits.capacity, limits.max_demand)
    return made

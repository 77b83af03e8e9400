"""What an expert sees: the state x of a running host and of the guest that might join it.

The order and the names of `FEATURES` are part of the format of expert trees: append, never rename or reorder.
What is not known is NaN; every node of a tree says where unknown goes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asad.errors import UsageError

State = NDArray[np.float32]

ACTIONS: tuple[float, ...] = tuple(step / 10 for step in range(10))
"""Shares of a host's CPU that may be lent, unless an expert's file says otherwise: 0, 0.1, … 0.9."""

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Feature:
    """One number of the state; `low` and `high` bound what it may be (both included)."""

    name: str
    unit: str
    low: float
    high: float
    meaning: str

    @property
    def range(self) -> str:
        """`0 … 1`, or `0 …` where nothing bounds it from above."""
        return f"{self.low:g} … {self.high:g}" if math.isfinite(self.high) else f"{self.low:g} …"


FEATURES: tuple[Feature, ...] = (
    Feature(
        "cpu",
        "fraction",
        0,
        1,
        "mean CPU use of the host over its allocation, as measured, before that of earlier runs of its application",
    ),
    Feature("cpu_p95", "fraction", 0, 1, "95th percentile of that use"),
    Feature(
        "memory", "fraction", 0, 1, "memory of the host on one of its nodes over the memory of that node"
    ),
    Feature("memory_pair", "fraction", 0, math.inf, "the same of host and guest together"),
    Feature("stage", "0 or 1", 0, 1, "0: sequential, one core is busy; 1: parallel"),
    Feature("interval", "fraction", 0, math.inf, "time that the host has run over its time limit"),
    Feature(
        "happiness",
        "ratio",
        0,
        math.inf,
        "what the host can do before its limit over what is left; ≥ 1: in time",
    ),
    Feature("pressure", "fraction", 0, 1, "time in which the host waited for CPU or was throttled"),
    Feature("guest_cpu", "fraction", 0, 1, "CPU use of the guest over its allocation, by its history"),
    Feature("guest_memory", "fraction", 0, math.inf, "memory of the guest over that of the host's nodes"),
    Feature("fair_share", "factor", 0, 1, "Slurm's factor of the guest's user: 1 used nothing yet"),
    Feature("load", "ratio", 0, math.inf, "cores that running and waiting jobs want over cores there are"),
    Feature("size_ratio", "fraction", 0, 1, "cores of the guest over cores of the host"),
)
"""The features, in the order of the state vector."""

INDEX: dict[str, int] = {feature.name: place for place, feature in enumerate(FEATURES)}
"""Name of a feature → its place in the state vector."""
(
    F_CPU,
    F_CPU_P95,
    F_MEMORY,
    F_MEMORY_PAIR,
    F_STAGE,
    F_INTERVAL,
    F_HAPPINESS,
    F_PRESSURE,
    F_GUEST_CPU,
    F_GUEST_MEMORY,
    F_FAIR_SHARE,
    F_LOAD,
    F_SIZE_RATIO,
) = range(len(FEATURES))
"""The same places for compiled code, which looks nothing up by name."""


def state(**known: float) -> State:
    """The state (len(FEATURES),) in float32 with what is `known`; the rest is NaN: unknown.

    Raises UsageError for a name that is no feature and for a number outside the feature's range.
    """
    x = np.full(len(FEATURES), np.nan, dtype=np.float32)
    for name, value in known.items():
        if name not in INDEX:
            raise UsageError(
                f"state: no feature is called {name[:80]!r}; the features are {', '.join(INDEX)}"
            )
        feature = FEATURES[INDEX[name]]
        if not math.isnan(value) and not (feature.low <= value <= min(feature.high, LARGEST)):
            raise UsageError(
                f"state: {name} = {value:g} is out of range; give {feature.range}, or nan for unknown"
            )
        x[INDEX[name]] = value
    return x

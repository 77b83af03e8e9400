"""Means over seeds with their confidence intervals, and differences between configurations that share their seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from asad.store.sweeps import SweepResult

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean, and what it may be off by."""

    mean: float
    half_width: float | None
    """Half of the interval that holds the true mean with probability `CONFIDENCE`; None of a single value."""
    seeds: int

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval lies on one side of 0, else 0."""
        if self.half_width is None or abs(self.mean) <= self.half_width:
            return 0
        return 1 if self.mean > 0 else -1


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of independent values, one or more, with Student's interval: t(n - 1) · s / √n."""
    count = len(values)
    if count == 1:
        return Estimate(float(values[0]), None, 1)
    # of equal values numpy has a deviation of rounding
    error = float(np.std(values, ddof=1)) / math.sqrt(count) if len(set(values)) > 1 else 0.0
    return Estimate(float(np.mean(values)), float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * error, count)


class Cell(NamedTuple):
    """One figure of one configuration on one log."""

    log: str
    configuration: str
    figure: str
    value: Estimate
    difference: Estimate | None
    """From the baseline, seed by seed: what moves both alike is no part of it. None of the baseline itself, and where
    they share no seed."""
    relative: float | None
    """The mean difference over the mean of the baseline with the same seeds."""


def cells(results: Sequence[SweepResult], baseline: str) -> list[Cell]:
    """Every figure of every configuration on every log, in the order of the results."""
    of: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for one in results:
        log, configuration, seed = one.place
        figures = of.setdefault((log, configuration), {})
        for name, value in one.metrics.items():
            if isinstance(value, int | float) and math.isfinite(value):
                figures.setdefault(name, {})[seed] = float(value)
    return [
        Cell(log, configuration, name, estimate([*values.values()]), *_against(values, base))
        for (log, configuration), figures in of.items()
        for name, values in figures.items()
        for base in [of.get((log, baseline), {}).get(name, {}) if configuration != baseline else {}]
    ]


def _against(values: Mapping[int, float], base: Mapping[int, float]) -> tuple[Estimate | None, float | None]:
    shared = [seed for seed in values if seed in base]
    if not shared:
        return None, None
    difference = estimate([values[seed] - base[seed] for seed in shared])
    mean = float(np.mean([base[seed] for seed in shared]))
    return difference, difference.mean / abs(mean) if mean else None

"""The contention model's constants μ, from the rates of measured pairs (docs/explanation/contention.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from asad.calibrate.workloads import workload_kind
from asad.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Lending:
    """How CPU is lent.

    `static`: quotas hold host and guest both, as the paper does. `idle`: the guest is in the idle class,
    under a cap.
    """

    mode: str
    share: float
    """Share of the host's cores lent, in (0, 1]."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured pair: rates are work per second over work per second alone."""

    host: str
    guest: str
    lending: Lending
    host_demand: float
    guest_demand: float
    """CPU that each uses alone, as a fraction of its cores."""
    host_rate: float
    guest_rate: float
    other_fraction: float
    """CPU of the same cores that went to others (other work, the hypervisor), as a fraction of them."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Median and interquartile range of `samples` ratios."""

    median: float
    iqr: float
    samples: int


SMALLEST_PREDICTION = 0.05
"""A rate predicted below this shows nothing about μ: the guest starves, and the ratio is noise."""


def predicted_rates(lending: Lending, host_demand: float, guest_demand: float) -> tuple[float, float]:
    """Rates of host and guest on the same cores by the contention model with μ = 1, each in [0, 1]."""
    lent = lending.share
    if lending.mode == "static":
        return min(1.0, (1 - lent) / host_demand), min(1.0, lent / guest_demand)
    return 1.0, min(1.0, min(lent, max(0.0, 1 - host_demand)) / guest_demand)


def spread_of(values: Sequence[float]) -> Estimate:
    """Median and interquartile range of one or more values."""
    low, high = np.percentile(values, (25, 75))
    return Estimate(median(values), float(high - low), len(values))


def lendings(real_quotas: bool) -> tuple[Lending, ...]:
    """What is measured of each pair; without quotas only the idle class is left, uncapped."""
    if real_quotas:
        return (Lending("static", 0.5), Lending("idle", 0.5))
    return (Lending("idle", 1.0),)


def fit(samples: Iterable[Sample], mode: str) -> dict[str, Estimate]:
    """μ of host and guest under lending `mode`, for pairs that compute and for pairs that stream memory.

    μ is the median of measured over predicted rate, unclipped. Mixed pairs are left out: they check the
    interpolation between the two. Raises ClusterError when one of the four has no sample.
    """
    ratios: dict[str, list[float]] = {key: [] for key in MU}
    for sample in samples:
        kind = workload_kind(sample.host)
        if sample.lending.mode != mode or kind != workload_kind(sample.guest):
            continue
        predicted = predicted_rates(sample.lending, sample.host_demand, sample.guest_demand)
        for role, rate, expected in zip(
            ("host", "guest"), (sample.host_rate, sample.guest_rate), predicted, strict=True
        ):
            if expected >= SMALLEST_PREDICTION:
                ratios[f"mu_{role}_{kind}"].append(rate / expected)
    for key, values in ratios.items():
        if not values:
            raise ClusterError(f"calibration: no pair says anything about {key} ({mode}); measure all pairs")
    return {key: spread_of(values) for key, values in ratios.items()}


MU = ("mu_host_cpu", "mu_guest_cpu", "mu_host_memory", "mu_guest_memory")

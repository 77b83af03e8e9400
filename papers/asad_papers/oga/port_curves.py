"""Figures 2 and 5 of the OgaSched paper: mean and cumulative reward slot by slot, and OGA's over the baselines'.

Both are drawn from the paper's settings: Figure 2 at the default size with 8000 slots, β from 0.4 to 0.6 and contention
11; Figure 5 with 100 ports on 1024 instances, 10 000 slots, β from 0.01 to 0.015 and contention 5. Of Figure 5 the
paper does not say which utilities it has: both the mixed ones of Table II, and all linear as the recorded instance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from asad.model import Json
from asad_papers.harness import Step, quiet
from asad_papers.oga import port_figures
from asad_papers.oga.best_fixed import best_fixed
from asad_papers.oga.port_instances import draw_port_instance

FIGURES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "figure2": ({"slots": 8000, "beta": (0.4, 0.6), "contention": 11.0, "utility": "mixed"},),
    "figure5": tuple(
        port_figures.LARGE | {"slots": 10_000, "utility": utility} for utility in ("mixed", "linear")
    ),
}
"""By part the settings of each instance; the rest is as in Table II."""
POINTS = 40
"""So many slots of a curve are evenly spread, and as many in even ratios, for its steep beginning."""


def figure(name: str, step: Step = quiet) -> list[Json]:
    """For each instance {"utility", "slots", "edges", "slot", "average", "reward_mean", "seconds", "best_fixed"}.

    `average` has by policy the mean reward until each `slot`; `seconds` is dividing, learning and computing rewards.
    """
    return [_curves(f"{name}, {given['utility']}", given, step) for given in FIGURES[name]]


def _curves(title: str, given: Mapping[str, Any], step: Step) -> Json:
    instance = draw_port_instance(0, **given)
    ports, arrivals = instance.ports, instance.arrivals
    slots = len(arrivals)
    spread = np.concatenate((np.geomspace(1, slots, POINTS), np.linspace(1, slots, POINTS)))
    at = np.unique(spread.round().astype(np.int64))
    average: dict[str, Json] = {}
    means: dict[str, Json] = {}
    seconds: dict[str, Json] = {}
    for name in port_figures.POLICIES:
        step(f"{title}, {name}")
        policy, begun = port_figures.make(name, instance), time.perf_counter()
        total = np.cumsum([ports.reward(policy.allot(x), x) for x in arrivals])
        seconds[name] = time.perf_counter() - begun
        average[name] = (total[at - 1] / at).tolist()
        means[name] = float(total[-1]) / slots
    step(f"{title}, best fixed allocation")
    return {
        "utility": given["utility"],
        "slots": slots,
        "edges": ports.edges,
        "slot": at.tolist(),
        "average": average,
        "reward_mean": means,
        "seconds": seconds,
        "best_fixed": best_fixed(ports, arrivals.mean(axis=0), 1e-5).reward,
    }

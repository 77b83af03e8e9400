"""Weights of `linear` for trajectories that were seen, and the file that it reads them from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from asad.defer.deferral_options import Packing
from asad.defer.features import FEATURES
from asad.defer.jobs import Trajectories, Worth
from asad.defer.linear import SCHEMA
from asad.model import Floats
from asad_papers.osdec.environment import play_weights

SCALES = np.array([4.0, 4.0, 16.0, 4.0, 4.0, 8.0, 0.25, 1.0])
"""Of the features, about one deviation each: so far does the search look at first."""


def written_weights(found: Mapping[Packing, Floats], about: Mapping[str, Any]) -> str:
    """The text of a file for `read_weights`. `about`: numbers and plain texts on how they were found."""
    lines = [f"schema = {SCHEMA}", "", "[about]"]
    for key, value in about.items():
        text = f'"{value}"' if isinstance(value, str) else repr(value)
        lines.append(f"{key} = {text}")
    for packing, numbers in found.items():
        lines += ["", f"[{packing}]"]
        lines += [f"{name} = {float(value):.5g}" for name, value in zip(FEATURES, numbers, strict=True)]
    return "\n".join(lines) + "\n"


def tune(
    trajectories: Trajectories,
    rng: np.random.Generator,
    packing: Packing = "skip-fit",
    worth: Worth | None = None,
    *,
    rounds: int = 30,
    population: int = 48,
    elite: int = 8,
    batch: int = 24,
    progress: Callable[[int, float], None] | None = None,
) -> Floats:
    """(8,) Weights for `trajectories`, by the cross-entropy method.

    Each of `rounds` draws `population` weights from a normal law, plays the same `batch` trajectories with each, and
    takes mean and deviation of the `elite` best for the next. `progress(round, mean total of the elite)`.
    """
    worth = worth or Worth()
    mean, spread = np.zeros(len(FEATURES)), np.ones(len(FEATURES))
    # the scale of a score is free: EDF is where the search begins
    mean[FEATURES.index("slack")] = -1.0
    for number in range(rounds):
        some = trajectories.take(rng.permutation(len(trajectories))[:batch])
        drawn = mean + spread * rng.standard_normal((population, len(FEATURES)))
        drawn[0] = mean
        totals = np.array([play_weights(some, one / SCALES, packing).total(worth).mean() for one in drawn])
        best = np.argsort(-totals, kind="stable")[:elite]
        mean = drawn[best].mean(axis=0)
        # what is left of the first spread keeps the search from ending too soon
        spread = drawn[best].std(axis=0) + 0.3 * 0.9**number * 0.5
        mean, spread = mean / np.abs(mean).max(), spread / np.abs(mean).max()
        if progress is not None:
            progress(number + 1, float(totals[best].mean()))
    found: Floats = mean / SCALES
    return found

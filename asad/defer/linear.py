"""`linear`: a linear score of eight features, tuned by the cross-entropy method.

Options: `packing` ("skip-fit" or "prefix"): the weights tuned for that packing. They ship as `linear.toml` of the
installed profiles (`asad_profiles.defer`); `asactl defer fit` tunes others, and `weights` names their file. Cost:
O(n log n), with the sort. A yardstick beside the OSDEC paper; the method is Rubinstein's, *The Cross-Entropy Method for
Combinatorial and Continuous Optimization*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from asad.defer.deferral_options import PACKINGS, Packing
from asad.defer.environment import play_weights
from asad.defer.features import FEATURES, Weighted, weights
from asad.defer.jobs import Trajectories, Worth
from asad.errors import ConfigError, UsageError
from asad.model import Floats
from asad.tables import fitted

SCHEMA = 1
SCALES = np.array([4.0, 4.0, 16.0, 4.0, 4.0, 8.0, 0.25, 1.0])
"""Of the features, about one deviation each: so far does the search look at first."""


class Linear(Weighted):
    """A weighted sum with tuned weights."""

    name = "linear"

    def __init__(self, packing: str = "skip-fit", weights: str = "") -> None:
        """`weights`: a file of them; empty for those that ship. Raises UsageError, ConfigError."""
        if packing not in PACKINGS:
            raise UsageError(f"defer linear: packing {packing!r}; there are {', '.join(PACKINGS)}")
        self.weights = read_weights(packing, weights)


def read_weights(packing: str, path: str = "") -> Floats:
    """(8,) From a file (TOML), empty for the one that ships. Raises ConfigError with file, key and mend."""
    document, path = fitted(path, "asad_profiles.defer/linear.toml", SCHEMA, "tune anew")
    table = document.get(packing)
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: has no weights [{packing}]; tune them, or take the other packing")
    try:
        return weights(table, f"{path}: [{packing}]")
    except UsageError as error:
        raise ConfigError(str(error)) from error


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

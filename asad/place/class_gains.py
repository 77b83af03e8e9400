"""What application classes make of the CPU that they may use, and what it costs guests to be spread: as measured.

Utilities. A guest that may use a of a node (in units of y), wants the part u of its cores and goes at pace p has made
g = p·u·cores of it. The gain of a class is w·f with the configured form f; w is fitted by least squares of w·f(a) to g,
over the looks at its guests, and divided by the largest of all classes, so that no step is longer than without. So a
class that sleeps on half of what it may use counts half as much there as one that uses it all; one that has not been
measured counts fully.

Overhead. In (7), β is what a unit of y costs a job whose components have to talk to each other. Here that is the pace
that guests on several nodes lose beyond those on one: both against min(1, quota / use), which is what their CPU lets
them have. The difference of the means, if above 0, is β of CPU, one for all classes as in the paper; it is charged on
CPU alone, so that no two resources take turns in dominating.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from asad.model import Floats, Json
from asad.place.utilities import FORMS, gain

FADES = 0.999
"""What was seen before counts so much less with each look: the last thousand count."""
LOOKS = 30.0
"""Fewer looks say nothing."""
LEAST_WEIGHT = 0.1
"""So little is a class worth at the least, so that it is measured again."""


class ClassGains:
    """Sums over looks at guests, by class."""

    def __init__(self, form: str) -> None:
        self._form = FORMS.index(form)
        self._made: dict[str, Floats] = {}
        """(Σ g·f(a), Σ f(a)², looks) by class."""
        self._lost = np.zeros((2, 2))
        """(Σ lost, looks) of guests on one node, and on several."""

    def look(self, name: str, allotted: float, made: float) -> None:
        """A guest of the class makes so much of what it may use of a node; both in units of y."""
        if math.isfinite(made) and allotted > 0:
            f = gain(self._form, 1.0, allotted)
            self._made[name] = FADES * self._made.get(name, np.zeros(3)) + (made * f, f * f, 1.0)

    def look_at_pace(self, several: bool, pace: float, expected: float) -> None:
        """A guest on one or several nodes goes at this pace, where its CPU would let it go at that."""
        if math.isfinite(pace) and expected > 0:
            lost = min(1.0, max(0.0, 1.0 - pace / expected))
            self._lost[int(several)] = FADES * self._lost[int(several)] + (lost, 1.0)

    def weights(self, names: Sequence[str]) -> Floats:
        """(L,) w of each class, in (0, 1]."""
        fits = {name: float(made[0] / made[1]) for name, made in self._made.items() if made[2] >= LOOKS}
        best = max(fits.values(), default=0.0)
        if best <= 0:
            return np.ones(len(names))
        return np.array([max(LEAST_WEIGHT, fits.get(name, best) / best) for name in names])

    @property
    def overhead(self) -> float:
        """β of CPU, in [0, 1]; 0 until both kinds of guests have been seen."""
        looks = self._lost[:, 1]
        if looks.min() < LOOKS:
            return 0.0
        one, several = self._lost[:, 0] / looks
        return max(0.0, float(several - one))

    def forget(self, name: str) -> None:
        """The class is gone."""
        self._made.pop(name, None)

    def state(self, name: str) -> Json:
        """What is kept of a class."""
        made = self._made.get(name)
        return None if made is None else list(made.tolist())

    @property
    def lost(self) -> Json:
        """What is kept of the overhead."""
        return [list(row) for row in self._lost.tolist()] if self._lost.any() else None

    def restore(self, saved: Mapping[str, Json], lost: Json) -> None:
        """Go on from there; what cannot be read is passed over."""
        for name, made in saved.items():
            if (found := _table(made, (3,))) is not None and found[1] > 0:
                self._made[name] = found
        if (found := _table(lost, (2, 2))) is not None and (found[:, 0] <= found[:, 1]).all():
            self._lost = found


def _table(value: Json, shape: tuple[int, ...]) -> Floats | None:
    try:
        found = np.array(value, np.float64)
    except (TypeError, ValueError):
        return None
    good = found.shape == shape and np.isfinite(found).all() and (found >= 0).all()
    return found if good else None

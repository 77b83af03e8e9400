"""Made-up jobs through a policy, so that what it compiles is compiled before real jobs come."""

from __future__ import annotations

import numpy as np

from asad.defer.jobs import Scorer, Waiting, nothing_past
from asad.defer.packing import scores_of
from asad.defer.room import first_fits


def warm_up_scorer(scorer: Scorer) -> None:
    """Two made-up jobs through the policy's scores and what looks ahead for room."""
    two = np.ones(2, np.int32)
    none = np.zeros(0, np.int32)
    waiting = Waiting(10, two, two, 10 * two, 12 * two, 9 * two, 4.0, none, none, nothing_past())
    scores_of(scorer, waiting)
    first_fits(np.full((1, 4), 4.0), 0 * two, two, two, 0 * two)

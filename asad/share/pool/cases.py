"""Cases of the draw: in which state a host lent which share, how likely that was, and what it lost by it.

They are what `asactl experts fit --from-store` learns trees from. A buffer of fixed size takes them in compiled code;
when it is full every second one is dropped, and of those to come as many more, so that what is left stands for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.experts.state import FEATURES
from asad.model import ShareCases, Snapshot

MOST = 65_536
"""Cases that a buffer holds."""


class Cases(NamedTuple):
    """A buffer of `MOST` cases; what is behind `held[0]` is of no meaning."""

    row: NDArray[np.int32]
    """Of the host."""
    time: NDArray[np.float64]
    """When its share was drawn (s)."""
    state: NDArray[np.float32]
    """(MOST, features) what the experts saw then."""
    share: NDArray[np.float64]
    probability: NDArray[np.float64]
    """With which it was drawn."""
    loss: NDArray[np.float64]
    """In [0, 1]."""
    held: NDArray[np.int64]
    """(3,) cases that are held; one in so many is; cases since the last that was."""


def new_cases() -> Cases:
    """None yet. Memory is taken as it fills."""
    return Cases(
        np.empty(MOST, np.int32),
        np.empty(MOST),
        np.empty((MOST, len(FEATURES)), np.float32),
        np.empty(MOST),
        np.empty(MOST),
        np.empty(MOST),
        np.array([0, 1, 0]),
    )


@compiled
def add_to(
    cases: Cases,
    row: int,
    time: float,
    state: NDArray[np.float32],
    share: float,
    probability: float,
    loss: float,
) -> None:
    """Keep one case, if it is its turn."""
    cases.held[2] += 1
    if cases.held[2] < cases.held[1]:
        return
    cases.held[2] = 0
    if cases.held[0] == MOST:
        for k in range(MOST // 2):
            cases.row[k], cases.time[k] = cases.row[2 * k], cases.time[2 * k]
            cases.state[k] = cases.state[2 * k]
            cases.share[k], cases.probability[k] = cases.share[2 * k], cases.probability[2 * k]
            cases.loss[k] = cases.loss[2 * k]
        cases.held[0] = MOST // 2
        cases.held[1] *= 2
    k = cases.held[0]
    cases.row[k], cases.time[k], cases.state[k] = row, time, state
    cases.share[k], cases.probability[k], cases.loss[k] = share, probability, loss
    cases.held[0] += 1


def taken(cases: Cases, snapshot: Snapshot, applications: Sequence[str], most: int) -> ShareCases:
    """At the most so many of those that are held, by names; the buffer is empty then. Rows are those of `snapshot`."""
    number = int(cases.held[0])
    chosen = np.arange(number) if number <= most else np.linspace(0, number - 1, most).astype(np.intp)
    cases.held[:] = 0, 1, 0
    rows = cases.row[chosen]
    return ShareCases(
        [str(job) for job in snapshot.jobs.job_id[rows]],
        [applications[code] for code in snapshot.jobs.application[rows].tolist()],
        cases.time[chosen],
        cases.state[chosen],
        cases.share[chosen],
        cases.probability[chosen],
        cases.loss[chosen],
    )

"""Which starts of a schedule break a limit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.model import Floats, Ints
from asad.replay.limits.limit_table import LimitTable, count_in, lifts_above


def broken_starts(table: LimitTable, start_s: Floats, end_s: Floats) -> NDArray[np.intp]:
    """Rows of the jobs whose start lifts a group above its ceiling, where each runs from `start_s` to `end_s`.

    Both are (n,); NaN of a job that does not run. At one moment ends come before starts, and starts in the order of
    rows. A job that exceeds a limit by itself has broken one, too.
    """
    rows = np.flatnonzero(np.isfinite(start_s) & (end_s > start_s)).astype(np.int32)
    times = np.concatenate((end_s[rows], start_s[rows]))
    events = np.concatenate((-1 - rows, rows)).astype(np.int32)
    starts = events >= 0
    order = np.lexsort((np.where(starts, events, 0), starts, times))
    found = np.zeros(len(start_s), np.bool_)
    used = table.usage(np.zeros(0, np.int32))
    _sweep(table.need, table.class_of, table.class_groups, table.class_ceiling, used, events[order], found)
    runs = np.zeros(len(start_s), np.bool_)
    runs[rows] = True
    return np.flatnonzero(found | (runs & (table.alone >= 0)))


@compiled
def _sweep(
    need: Floats,
    class_of: Ints,
    class_groups: Ints,
    class_ceiling: Floats,
    used: Floats,
    events: Ints,
    found: NDArray[np.bool_],
) -> None:
    """`events` in order of time: a row for a start, -1 - row for an end."""
    for i in range(len(events)):
        row = events[i]
        if row >= 0:
            found[row] = lifts_above(need, class_of, class_groups, class_ceiling, used, row)
            count_in(need, class_of, class_groups, row, 1.0, used)
        else:
            count_in(need, class_of, class_groups, -1 - row, -1.0, used)

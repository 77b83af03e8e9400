"""When jobs would have started by themselves, how early that is learned to be, and who ends later than that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.share.asax.memo import SIZES, Memo
from asad.share.asax.options import Options
from asad.share.openings import View


@borrowing
def size_class(view: View, job: int) -> int:
    """0 for jobs of more than half of the cluster, 1 for more than a quarter, and so on."""
    return int(min(SIZES - 1, np.log2(len(view.core_owner) / view.cores[job])))


@borrowing
def own_start(view: View, memo: Memo, job: int) -> float:
    """When a job would start, or would have started, by itself (s); rather too early than too late."""
    if not np.isnan(view.own_start[job]):
        return view.own_start[job]
    if not np.isnan(view.own_estimate[job]):  # as far as is known, it still waits there
        known = view.own_known
        return known + memo.early[size_class(view, job), 0] * max(0.0, view.own_estimate[job] - known)
    return view.submit[job]  # nothing is known yet: it may have started at once


@borrowing
def watch_starts(view: View, o: Options, memo: Memo) -> None:
    """Track how early jobs start by themselves against the twin's first estimate.

    A running quantile for each size class, by stochastic approximation; each job counts once. Small jobs are
    backfilled long before their estimate, large ones hardly.
    """
    for rows in (view.queue, view.guests, view.running):
        for i in range(len(rows)):
            job = rows[i]
            if memo.counted[job] or np.isnan(memo.first_estimate[job]) or np.isnan(view.own_start[job]):
                continue
            memo.counted[job] = True
            estimated = memo.first_estimate[job] - memo.first_seen[job]
            if estimated >= 60.0:
                ratio = (view.own_start[job] - memo.first_seen[job]) / estimated
                early = memo.early[size_class(view, job)]
                early[1] += 1
                step = max(0.005, 1.0 / (10.0 + early[1]))
                early[0] += step * (o.early - (1.0 if ratio < early[0] else 0.0))
                early[0] = min(1.0, max(0.0, early[0]))


@borrowing
def count_losers(
    view: View,
    o: Options,
    memo: Memo,
    rows: NDArray[np.int32],
    end_s: NDArray[np.float64],
    run_s: NDArray[np.float64],
    lost_s: NDArray[np.float64],
) -> None:
    """Tell late jobs from others among those that shared, by the starts of the twin, as a report does.

    `rows` and what follows are the jobs that have ended. Where it is not known yet when one would have started by
    itself, that counts which is rather too early.
    """
    for i in range(len(rows)):
        row = rows[i]
        if memo.shared[row]:
            own_end = own_start(view, memo, row) + run_s[i] - lost_s[i]
            memo.tally[0] += 1
            if end_s[i] - own_end > np.maximum(o.slack_s, o.slack * (own_end - view.submit[row])):
                memo.tally[1] += 1
    for i in range(len(view.guests)):
        guest = view.guests[i]
        memo.shared[guest] = True
        if view.host[guest] >= 0:
            memo.shared[view.host[guest]] = True


@borrowing
def few_losers(o: Options, memo: Memo) -> bool:
    """May the policy be bold: have few of the jobs that shared ended late?"""
    return bool(memo.tally[1] <= o.free_losers + o.most_losers * memo.tally[0])

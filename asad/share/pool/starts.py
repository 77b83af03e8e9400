"""When jobs would have started by themselves, and how early that is against what was estimated."""

from __future__ import annotations

import numpy as np

from asad.capacity import View
from asad.compiling import borrowing
from asad.share.pool.memo import SIZES, Memo
from asad.share.pool.pool_options import Options
from asad.share.run_history import History, expected_run


@borrowing
def size_class(view: View, job: int) -> int:
    """0 for jobs of more than half of the cluster, 1 for more than a quarter, and so on."""
    return int(min(SIZES - 1, np.log2(len(view.c.core_owner) / view.c.cores[job])))


@borrowing
def counterfactual_start(view: View, memo: Memo, job: int) -> float:
    """When a job would start, or would have started, without lending (s); rather too early than too late.

    As far as the twin knows; where it has not come so far, by what the cluster itself estimates. NaN if nobody does.
    """
    c = view.c
    if not np.isnan(c.counterfactual_start_s[job]):
        return c.counterfactual_start_s[job]
    early = memo.early[size_class(view, job), 0]
    if not np.isnan(c.own_estimate_s[job]):  # as far as is known, it still waits there
        known = max(view.own_known, c.submit_s[job])
        return known + early * max(0.0, c.own_estimate_s[job] - known)
    if not np.isnan(c.estimated_start_s[job]):
        return view.now + early * max(0.0, c.estimated_start_s[job] - view.now)
    return np.nan


@borrowing
def find_late(view: View, history: History, o: Options, memo: Memo) -> None:
    """Which running jobs started later than they would have without lending, and have no time left to lose.

    Late is who ends later by more than `slack_s` and `slack` of its response; a guest beside it costs `host_loss`.
    """
    c = view.c
    for i in range(len(view.running)):
        host = view.running[i]
        memo.late[host] = False
        if not c.start_s[host] > c.counterfactual_start_s[host]:  # never of NaN: the twin has not come so far
            continue
        run = expected_run(history, c.application[host], c.time_limit_s[host])
        if np.isnan(run):
            continue
        left = max(0.0, run - (view.now - c.start_s[host] - c.lost_s[host]))
        lost = c.start_s[host] - c.counterfactual_start_s[host] + c.lost_s[host] + o.host_loss * left
        slack = max(o.slack_s, o.slack * (c.counterfactual_start_s[host] - c.submit_s[host] + run))
        memo.late[host] = lost > slack >= lost - o.host_loss * left  # and not later than that already


@borrowing
def watch_starts(view: View, o: Options, memo: Memo) -> None:
    """Track how early jobs start by themselves against the twin's first estimate.

    A running quantile for each size class, by stochastic approximation; each job counts once. Small jobs are
    backfilled long before their estimate, large ones hardly.
    """
    for i in range(len(view.queue)):
        job = view.queue[i]
        if np.isnan(memo.first_estimate[job]) and not np.isnan(view.c.own_estimate_s[job]):
            memo.first_estimate[job], memo.first_seen[job] = view.c.own_estimate_s[job], view.own_known
    for rows in (view.queue, view.guests, view.running):
        for i in range(len(rows)):
            job = rows[i]
            if (
                memo.counted[job]
                or np.isnan(memo.first_estimate[job])
                or np.isnan(view.c.counterfactual_start_s[job])
            ):
                continue
            memo.counted[job] = True
            estimated = memo.first_estimate[job] - memo.first_seen[job]
            if estimated >= 60.0:
                ratio = (view.c.counterfactual_start_s[job] - memo.first_seen[job]) / estimated
                early = memo.early[size_class(view, job)]
                early[1] += 1
                # with a least step, so that it follows a cluster that changes
                step = max(0.005, 1.0 / (10.0 + early[1]))
                early[0] += step * (o.early - (1.0 if ratio < early[0] else 0.0))
                early[0] = min(1.0, max(0.0, early[0]))

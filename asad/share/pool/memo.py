"""What the policies that lend from pools keep of single jobs from cycle to cycle, by their row in the snapshot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.capacity import View
from asad.compiling import borrowing
from asad.experts.state import FEATURES
from asad.share.pool.pool_options import Options

SIZES = 8
"""Size classes of jobs, by powers of two of their part of the cluster."""


class Memo(NamedTuple):
    """What is kept, by row of a job unless it says otherwise. Shares in [0, 1], times in seconds."""

    share: NDArray[np.float64]
    """What a host lends; 0 before it is drawn."""
    peak: NDArray[np.float64]
    """95th percentile of a running job's CPU use of a core to count with until it has been measured; NaN if unknown."""
    mean: NDArray[np.float64]
    """The same of its mean."""
    last_peak: NDArray[np.float64]
    """What has been measured of it last, on the node where it is highest; NaN before."""
    node: NDArray[np.int32]
    """One of its nodes."""
    late: NDArray[np.bool_]
    """It runs late already, and what a guest costs would make it noticeably late: its nodes take no more guests."""
    announced: NDArray[np.float64]
    """The share that was last recorded as a decision, NaN before."""
    drawn_at: NDArray[np.float64]
    """When a host's share was last drawn, NaN before."""
    probability: NDArray[np.float64]
    """Chance of that share."""
    opinion: NDArray[np.float64]
    """(rows, n) p_i(a_j): what each expert gave it."""
    mixture: NDArray[np.float64]
    """(rows, m) chance of every share."""
    leaf: NDArray[np.int32]
    """(rows, n) leaf that each expert reached."""
    state: NDArray[np.float32]
    """(rows, features) what they saw of the host when its share was drawn; none where no expert is asked."""
    slowdown: NDArray[np.float64]
    """Greatest slowdown of a host since its share was drawn."""
    withheld: NDArray[np.float64]
    """Greatest part of its spare that its share alone withheld from a guest since then."""
    retry_at: NDArray[np.float64]
    """When a waiting job is looked at again; inf while it has an offer."""
    counterfactual_start_s: NDArray[np.float64]
    """When a guest would have started by itself, as it was known at its offer."""
    first_seen: NDArray[np.float64]
    first_estimate: NDArray[np.float64]
    """When a waiting job was first given an estimated start, and which."""
    counted: NDArray[np.bool_]
    """Its counterfactual start has been compared with its first estimate."""
    quota: NDArray[np.float64]
    """Quota of a guest as it was last decided, as a fraction of its cores on each of its nodes; NaN before."""
    submit: NDArray[np.float64]
    """Submission of the job that the rest of the row is about: rows are used again."""
    early: NDArray[np.float64]
    """(SIZES, 2) of the cluster, by size class: quantile of real wait over estimated wait, number of jobs behind it."""


def new_memo(rows: int, experts: int, actions: int, known: Memo | None = None) -> Memo:
    """Nothing is known of `rows` jobs but what `known` holds, which may be of more jobs or of fewer.

    n `experts` have opinions on m `actions`; 0 of both where nobody is asked.
    """
    memo = Memo(
        share=np.zeros(rows),
        peak=np.full(rows, np.nan),
        mean=np.full(rows, np.nan),
        last_peak=np.full(rows, np.nan),
        node=np.zeros(rows, np.int32),
        late=np.zeros(rows, np.bool_),
        announced=np.full(rows, np.nan),
        drawn_at=np.full(rows, np.nan),
        probability=np.ones(rows),
        opinion=np.zeros((rows, experts)),
        mixture=np.zeros((rows, actions)),
        leaf=np.zeros((rows, experts), np.int32),
        state=np.full((rows, len(FEATURES) if experts else 0), np.nan, np.float32),
        slowdown=np.zeros(rows),
        withheld=np.zeros(rows),
        retry_at=np.full(rows, -np.inf),
        counterfactual_start_s=np.full(rows, np.inf),
        first_seen=np.full(rows, np.nan),
        first_estimate=np.full(rows, np.nan),
        counted=np.zeros(rows, np.bool_),
        quota=np.full(rows, np.nan),
        submit=np.full(rows, np.nan),
        early=np.tile((0.5, 0.0), (SIZES, 1)),
    )
    if known is not None:
        for name in Memo._fields:
            old, new = getattr(known, name), getattr(memo, name)
            new[: len(old)] = old[: len(new)]
    return memo


@borrowing
def meet_jobs(view: View, o: Options, memo: Memo) -> None:
    """Forget what is kept of a row's former job; a waiting job whose offer came to nothing may have another."""
    for rows in (view.queue, view.running, view.guests):
        for i in range(len(rows)):
            job = rows[i]
            # rows are used again: what another job left there must not be judged as this one's
            if memo.submit[job] != view.c.submit_s[job]:
                memo.submit[job] = view.c.submit_s[job]
                memo.share[job] = 0.0
                memo.last_peak[job] = np.nan
                memo.announced[job] = np.nan
                memo.drawn_at[job] = np.nan
                memo.slowdown[job] = 0.0
                memo.withheld[job] = 0.0
                memo.retry_at[job] = -np.inf
                memo.counterfactual_start_s[job] = np.inf
                memo.first_seen[job] = np.nan
                memo.first_estimate[job] = np.nan
                memo.counted[job] = False
                memo.quota[job] = np.nan
    for i in range(len(view.queue)):
        job = view.queue[i]
        if memo.retry_at[job] == np.inf and np.isnan(view.c.offered_s[job]):
            memo.retry_at[job] = view.now + o.patience_s

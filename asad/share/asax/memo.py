"""What `asax` remembers of single jobs from cycle to cycle, by their row in the snapshot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.share.asax.options import Options
from asad.share.openings import View

SIZES = 8
"""Size classes of jobs, by powers of two of their part of the cluster."""


class Memo(NamedTuple):
    """What is remembered, by row of a job unless it says otherwise. Shares in [0, 1], times in seconds."""

    ceiling: NDArray[np.float64]
    """Share of a host that may be lent in all; 0 if not measured."""
    ceiling_at: NDArray[np.float64]
    """When that was reckoned."""
    own_start: NDArray[np.float64]
    """When a guest would have started by itself."""
    retry_at: NDArray[np.float64]
    """When a waiting job is looked at again; inf while it has an offer."""
    first_seen: NDArray[np.float64]
    first_estimate: NDArray[np.float64]
    """When a waiting job was first given an estimated start, and which."""
    decided_at: NDArray[np.float64]
    """When the last share of a guest was decided, NaN once its loss is learned."""
    probability: NDArray[np.float64]
    """Chance of that share."""
    opinion: NDArray[np.float64]
    """(rows, n) p_i(a_j): what each expert gave it."""
    raise_share: NDArray[np.bool_]
    """Its share was too small for it: draw a greater one."""
    guest_room: NDArray[np.float64]
    """Share that a guest's nodes could lend it beyond what it has."""
    counted: NDArray[np.bool_]
    """Its own start has been compared with its first estimate."""
    shared: NDArray[np.bool_]
    """It was a guest or a host."""
    submit: NDArray[np.float64]
    """Submission of the job that the rest of the row is about: rows are used again."""
    tally: NDArray[np.int64]
    """(2,) of the cluster: [ended jobs that shared, those of them that ended later than by themselves]"""
    early: NDArray[np.float64]
    """(SIZES, 2) of the cluster, by size class: quantile of real wait over estimated wait, number of jobs behind it."""


def new_memo(rows: int, experts: int, known: Memo | None = None) -> Memo:
    """Nothing is remembered of `rows` jobs but what `known` tells, which may be of more jobs or of fewer."""
    memo = Memo(
        ceiling=np.zeros(rows),
        ceiling_at=np.full(rows, np.nan),
        own_start=np.full(rows, np.inf),
        retry_at=np.full(rows, -np.inf),
        first_seen=np.full(rows, np.nan),
        first_estimate=np.full(rows, np.nan),
        decided_at=np.full(rows, np.nan),
        probability=np.ones(rows),
        opinion=np.zeros((rows, experts)),
        raise_share=np.zeros(rows, np.bool_),
        guest_room=np.zeros(rows),
        counted=np.zeros(rows, np.bool_),
        shared=np.zeros(rows, np.bool_),
        submit=np.full(rows, np.nan),
        tally=np.zeros(2, np.int64),
        early=np.tile((0.5, 0.0), (SIZES, 1)),
    )
    if known is not None:
        for old, new in zip(known, memo, strict=True):
            new[: len(old)] = old[: len(new)]
    return memo


@borrowing
def meet_jobs(view: View, o: Options, memo: Memo) -> None:
    """Forget what is remembered of a row's former job; a waiting job whose offer came to nothing may have another."""
    for rows in (view.queue, view.running, view.guests):
        for i in range(len(rows)):
            job = rows[i]
            if memo.submit[job] != view.submit[job]:
                memo.submit[job] = view.submit[job]
                memo.ceiling_at[job] = np.nan
                memo.own_start[job] = np.inf
                memo.retry_at[job] = -np.inf
                memo.first_seen[job] = np.nan
                memo.first_estimate[job] = np.nan
                memo.decided_at[job] = np.nan
                memo.raise_share[job] = False
                memo.counted[job] = False
                memo.shared[job] = False
    for i in range(len(view.queue)):
        job = view.queue[i]
        if memo.retry_at[job] == np.inf and view.host[job] < 0:
            memo.retry_at[job] = view.now + o.patience_s

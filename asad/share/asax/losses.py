"""What lending has cost, as Algorithm 1 learns it: the host's slowdown, and idle CPU withheld from the guest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.share.asax.memo import Memo
from asad.share.asax.options import Options
from asad.share.learner import ASAD, Weights, add_case
from asad.share.openings import ROOM, View


@compiled
def learn_case(
    weights: Weights,
    application: int,
    opinion: NDArray[np.float64],
    loss: float,
    probability: float,
    o: Options,
) -> None:
    """One case of Algorithm 1, for the host's application and for the cluster; `opinion` (n,) is p_i(a_j)."""
    divisor = probability if o.importance else 1.0
    increments = np.minimum(1.0, opinion * (loss / divisor))
    add_case(weights, application, increments, ASAD, o.most_cases)
    add_case(weights, len(weights.rounds) - 1, increments, ASAD, o.most_cases)


@compiled
def learn_losses(view: View, weights: Weights, o: Options, memo: Memo) -> None:
    """Learn what the shares decided in earlier cycles have done to their hosts and guests."""
    for i in range(len(view.guests)):
        guest = view.guests[i]
        host = view.host[guest]
        if np.isnan(memo.decided_at[guest]) or memo.decided_at[guest] >= view.now:
            continue
        memo.decided_at[guest] = np.nan
        if host < 0 or np.isnan(view.share[guest]):
            continue
        slowdown = max(0.0, 1.0 / max(view.pace[host], 1e-3) - 1.0) / o.full_scale
        withheld = 0.0
        if view.pace[guest] < o.overhead - 0.02:
            withheld = max(0.0, memo.guest_room[guest])
        loss = min(1.0, slowdown + o.idle_weight * withheld)
        learn_case(weights, view.application[host], memo.opinion[guest], loss, memo.probability[guest], o)
        memo.raise_share[guest] = withheld >= 0.1 - ROOM

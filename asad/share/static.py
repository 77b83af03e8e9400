"""`static`: half of every host is lent to the first job in the queue that fits.

The baseline of the ASAx paper (§4.4): two jobs a server, 50 % CPU quota each, whatever they use. Quotas bind the host
as well, and no floor or limit protects it. Options: the share. Cost a cycle: O(cores + waiting · hosts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from asad.capacity import View, see, seen
from asad.compiling import borrowing, compiled
from asad.decisions import Cause
from asad.model import Floats, Snapshot
from asad.policy import Given
from asad.share.jit_args import JitArgs
from asad.share.pair import PairPolicy, choose, find, fit
from asad.tables import Is


@borrowing
def may_share(view: View, host: int, guest: int) -> bool:
    """Are the two of one group, and not both bound by the memory bus?"""
    c = view.c
    return c.share_group[host] == c.share_group[guest] and not (
        c.memory_bound[host] and c.memory_bound[guest]
    )


@compiled
def _first_fits(
    args: JitArgs,
    now: float,
    own_known: float,
    queue: NDArray[np.int32],
    running: NDArray[np.int32],
    guests: NDArray[np.int32],
    share: float,
) -> int:
    """The first in the queue beside the first host where each fits, into `Pairs`; how many."""
    columns, ceiling, candidates, pairs = args.all
    view = see(columns, now, own_known, queue, running, guests)
    find(view, ceiling, share, candidates)
    count = 0
    for i in range(len(view.queue)):
        guest = view.queue[i]
        if count == len(pairs.guest):
            break
        if view.c.guest_bar[guest] or view.c.host[guest] >= 0:
            continue
        for k in range(candidates.found[0]):
            host = candidates.hosts[k]
            used = fit(view, candidates, host, guest, share, 1.0)[0] if may_share(view, host, guest) else 0
            if used > 0:
                count = choose(view, candidates, pairs, count, guest, host, used, share, share)
                break
    return count


class Options(NamedTuple):
    """Of `[share.static]`."""

    share: Annotated[float, Is(above=0.0, most=1.0)] = 0.5
    """Of every host that is lent."""


class Static(PairPolicy):
    """First fit at a fixed share."""

    name = "static"
    option_type = Options
    held = "static"

    def __init__(self, share: float = 0.5) -> None:
        self.share = self.least = share

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the share that is given."""
        return cls(options["share"])

    def _without_share(self, share: Floats) -> NDArray[np.bool_]:
        """The guard may have relieved the host, and nobody else would undo that."""
        return np.isnan(share) | (share == 0)

    def _anew(self, snapshot: Snapshot, guest: int, host: int) -> tuple[str, float]:
        return f"half of its new host {snapshot.jobs.job_id[host]}", self.share

    def _ceilings(self, snapshot: Snapshot) -> Floats:
        return np.where(snapshot.jobs.host_bar[snapshot.running] == 0, self.share, 0.0)

    def _choose(self, snapshot: Snapshot) -> int:
        return _first_fits(self._args, *seen(snapshot), self.share)

    def _cause(self, snapshot: Snapshot, k: int, host: int, share: float) -> Cause:
        return Cause(self.name, f"the first in the queue that fits beside job {snapshot.jobs.job_id[host]}")

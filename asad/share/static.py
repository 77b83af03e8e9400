"""`static`: half of every host is lent to the first job in the queue that fits.

The baseline of the ASAx paper (§4.4): two jobs a server, 50 % CPU quota each, whatever they use. Quotas bind the host
as well, and no floor or limit protects it. Options: the share. Cost a cycle: O(cores + waiting · hosts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Cause, CoAllocate, Decision, Machine, SetShare, Snapshot
from asad.policy import Given
from asad.share import SharePolicy
from asad.share.openings import Openings, View, find, fit, new_openings, take, view_of
from asad.share.pair import may_share


@compiled
def _first_fits(
    view: View, openings: Openings, share: float, out: NDArray[np.int32], nodes: NDArray[np.int32]
) -> int:
    """(guest, host, where its nodes end in `nodes`) of each lending into `out`; how many."""
    count = 0
    end = 0
    for i in range(len(view.queue)):
        guest = view.queue[i]
        if view.guest_bar[guest] or view.host[guest] >= 0:
            continue
        for k in range(openings.found[0]):
            host = openings.hosts[k]
            if not may_share(view, host, guest):
                continue
            used, _, _ = fit(view, openings, host, guest, share, 1.0)
            if used == 0:
                continue
            take(view, openings, guest, used, share)
            nodes[end : end + used] = openings.chosen[:used]
            end += used
            out[count, 0], out[count, 1], out[count, 2] = guest, host, end
            count += 1
            break
        if count == len(out):
            break
    return count


class Options(NamedTuple):
    """Of `[share.static]`."""

    share: float = 0.5
    """Of every host that is lent; above 0, at most 1."""


class Static(SharePolicy):
    """First fit at a fixed share."""

    name = "static"
    option_type = Options
    held = "static"
    properties = frozenset({"waits", "whole nodes", "one guest a core", "memory"})

    def __init__(self, share: float = 0.5) -> None:
        self.share = share
        self._openings: Openings | None = None
        self._machine: Machine | None = None

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the share that is given."""
        if not 0 < options["share"] <= 1:
            raise UsageError(f"share = {options['share']:g}; give a share above 0 and at most 1")
        return cls(options["share"])

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        """Half of each host to whoever fits first; half again to a guest that has got a new host."""
        rows, nodes = len(snapshot.jobs.cores), len(snapshot.machine.cores)
        if (
            self._openings is None
            or len(self._openings.first) < rows
            or self._machine is not snapshot.machine
        ):
            self._machine = snapshot.machine
            self._openings = new_openings(nodes, rows)
            self._out = np.zeros((len(snapshot.queue) + 256, 3), np.int32)
            self._nodes = np.zeros(nodes + len(snapshot.core_owner), np.int32)
            self._first = snapshot.machine.first_core
        decisions: list[Decision] = []
        jobs = snapshot.jobs
        share = jobs.share[snapshot.guests]  # NaN beside a new host, 0 after the guard has relieved the host
        new_host = snapshot.guests[(np.isnan(share) | (share == 0)) & (jobs.host[snapshot.guests] >= 0)]
        for guest in np.sort(new_host).tolist():
            cause = Cause(self.name, f"half of its new host {jobs.job_id[jobs.host[guest]]}")
            decisions.append(SetShare(cause, guest, self.share, capped=True))
        if len(snapshot.queue) == 0:
            return decisions
        view = view_of(snapshot, self._first)
        ceiling = np.where(jobs.host_bar == 0, self.share, 0.0)
        find(view, ceiling, self.share, self._openings)
        begin = 0
        for guest, host, end in self._out[
            : _first_fits(view, self._openings, self.share, self._out, self._nodes)
        ].tolist():
            cause = Cause(self.name, f"the first in the queue that fits beside job {jobs.job_id[host]}")
            where = tuple(self._nodes[begin:end].tolist())
            decisions.append(CoAllocate(cause, guest, where, host=host, share=self.share, capped=True))
            begin = end
        return decisions

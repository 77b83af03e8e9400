"""How much of a host may be lent in all, and what its nodes could still lend their guests."""

from __future__ import annotations

import numpy as np

from asad.compiling import borrowing
from asad.share.asax.memo import Memo
from asad.share.asax.options import Options
from asad.share.asax.starts import own_start
from asad.share.history import History, expected_cpu
from asad.share.openings import Openings, View
from asad.share.pair import happiness


@borrowing
def reckon_ceilings(view: View, history: History, o: Options, memo: Memo, forecast: bool) -> None:
    """How much jobs that may hold whole nodes may lend: what CPU use and headroom leave, nothing if they are late.

    Where forecasts see late jobs through, those may lend too, and what is not measured yet is taken from history.
    """
    for node in range(len(view.node_first) - 1):
        host = view.core_owner[view.node_first[node]]
        if host < 0 or memo.ceiling_at[host] == view.now:
            continue
        memo.ceiling_at[host] = view.now
        memo.ceiling[host] = 0.0
        cpu = view.cpu[host]
        if np.isnan(cpu) and forecast:
            cpu = expected_cpu(history, view.application[host])
        if view.host_bar[host] or np.isnan(cpu):
            continue
        if not forecast and view.start[host] > own_start(view, memo, host) + o.poll_s:
            continue  # late already, or may be, and shall not be made later
        ceiling = 1.0 - cpu - o.headroom
        if ceiling > 0 and not happiness(view, history, host) < o.least_happiness:
            memo.ceiling[host] = ceiling


@borrowing
def reckon_guest_rooms(view: View, openings: Openings, memo: Memo) -> None:
    """For every guest, the share that its tightest node could still lend it."""
    for i in range(len(view.guests)):
        memo.guest_room[view.guests[i]] = np.inf
    for node in range(len(view.node_first) - 1):
        for core in range(view.node_first[node], view.node_first[node + 1]):
            guest = view.core_guest[core]
            if guest >= 0:
                room = openings.room[node] if openings.holder[node] >= 0 else 0.0
                memo.guest_room[guest] = min(memo.guest_room[guest], room)

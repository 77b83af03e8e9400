"""Shares of guests that run: anew beside a new host, greater where too small or where their own time has come."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.experts.compiled import CompiledExperts
from asad.share.asax.memo import Memo
from asad.share.asax.options import Options
from asad.share.asax.shares import MOST, Out, choose, new_choice, note
from asad.share.history import History
from asad.share.learner import Weights
from asad.share.openings import ROOM, Openings, View, share_held


@compiled
def revise(
    view: View,
    openings: Openings,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    o: Options,
    memo: Memo,
    actions: NDArray[np.float64],
    load: float,
    rng: np.random.Generator,
    out: Out,
) -> int:
    """Decide the shares that are due, the first decisions of the cycle; how many."""
    choice = new_choice(weights.alpha.shape[1], len(actions))
    count = 0
    for i in range(len(view.guests)):
        guest = view.guests[i]
        host = view.host[guest]
        if host < 0 or count == MOST or view.pace[guest] >= 1.0 or np.isnan(view.cpu[host]):
            continue
        if not _allow(view, o, memo, actions, guest, choice.allowed):
            continue
        drawn = choose(
            view,
            experts,
            weights,
            history,
            o.exploration,
            load,
            guest,
            host,
            _first_node(view, guest),
            rng.random(),
            choice,
            out.mixture[count],
        )
        note(view, weights, memo, out, count, guest, host, drawn, actions[drawn], choice)
        _take(view, openings, guest, actions[drawn] - share_held(view, guest))
        count += 1
    return count


@borrowing
def _allow(
    view: View,
    o: Options,
    memo: Memo,
    actions: NDArray[np.float64],
    guest: int,
    allowed: NDArray[np.bool_],
) -> bool:
    """Which shares a guest may have now, none below the one it has; is one due, and is there any?"""
    host, share = view.host[guest], view.share[guest]
    undecided = np.isnan(share) or share <= ROOM  # it was relieved of its share for a while
    most = memo.guest_room[guest] + share_held(view, guest)
    most = min(most, 1.0 - view.cpu[host] - o.headroom)  # its nodes may have several holders
    floor = 0.0 if undecided else share
    if view.now >= memo.own_start[guest] or view.now >= view.own_start[guest]:
        floor = max(floor, min(0.5, np.floor((most + ROOM) * 10) / 10))
    if undecided:
        if memo.ceiling[host] <= 0 or most < 0.1 - ROOM:
            return False
    elif not memo.raise_share[guest] and floor <= share + ROOM:
        return False
    memo.raise_share[guest] = False
    if most < floor - ROOM or (not undecided and most < share + 0.1 - ROOM):
        return False
    some = False
    for j in range(len(actions)):
        allowed[j] = 0 < actions[j] <= most + ROOM and actions[j] >= floor - ROOM
        if not undecided and actions[j] <= share + ROOM:
            allowed[j] = False
        some = some or allowed[j]
    return some


@borrowing
def _first_node(view: View, guest: int) -> int:
    """The lowest node that a guest is on."""
    for core in range(len(view.core_guest)):
        if view.core_guest[core] == guest:
            return int(np.searchsorted(view.node_first, core, side="right")) - 1
    return 0


@borrowing
def _take(view: View, openings: Openings, guest: int, more: float) -> None:
    """The guest's nodes have lent it so much more: later guests find that taken."""
    for node in range(len(view.node_first) - 1):
        for core in range(view.node_first[node], view.node_first[node + 1]):
            if view.core_guest[core] == guest:
                openings.room[node] -= more
                break

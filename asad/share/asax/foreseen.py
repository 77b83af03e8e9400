"""Waiting jobs beside running ones, in the pairs whose forecast is best: where jobs are few and well known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.experts.compiled import CompiledExperts
from asad.share.asax.forecast import TENTHS
from asad.share.asax.memo import Memo
from asad.share.asax.options import Options
from asad.share.asax.outlook import deviations, outlook
from asad.share.asax.prospects import rate_beside
from asad.share.asax.search import best_pairs
from asad.share.asax.shares import MOST, Out, choose, new_choice, note, promise
from asad.share.history import History
from asad.share.learner import Weights
from asad.share.openings import ROOM, Openings, View, fit


@compiled
def offer_by_forecast(
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
    count: int,
) -> int:
    """Offer waiting jobs a share beside the hosts that forecasts pair them with; how many decisions there are now.

    Of every pair with a host that runs already, the share is drawn among those that hardly slow the guest more than
    the greatest that its host has room for.
    """
    due = False
    for i in range(len(view.queue)):
        due = due or (view.host[view.queue[i]] < 0 and memo.retry_at[view.queue[i]] < np.inf)
    if not due:
        return count
    choice = new_choice(weights.alpha.shape[1], len(actions))
    a = outlook(view, openings, history, o)
    running, waiting = len(a.run_end), len(a.wait_run)
    for i in range(waiting):
        a.joins[i] = a.joins[i] and memo.retry_at[a.rows[running + i]] < np.inf
    beside = np.zeros(waiting, np.int32)
    alone_end, end = np.zeros(waiting), np.zeros(waiting)
    best_pairs(a, deviations(a, view, history), o, rng, beside, alone_end, end)
    for i in range(waiting):
        if beside[i] < 0 or beside[i] >= running or count == MOST:
            continue
        guest, host, cpu = a.rows[running + i], a.rows[beside[i]], a.cpu[running + i]
        used, room, ratio = fit(view, openings, host, guest, 0.1, cpu)
        if used == 0:
            continue
        full, burst = cpu / ratio, o.burst
        for other in range(waiting):
            if (
                other != i and beside[other] == beside[i]
            ):  # what it does not need on the mean is another one's
                room, burst = min(room, _least_action(actions, full)), 1.0
        if not _allow(actions, room, burst * full, o, choice.allowed):
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
            openings.chosen[0],
            rng.random(),
            choice,
            out.mixture[count],
        )
        note(view, weights, memo, out, count, guest, host, drawn, actions[drawn], choice)
        rate = rate_beside(o, actions[drawn], ratio, cpu)
        run = a.wait_run[i]
        promise(view, openings, memo, out, count, used, rate, end[i], alone_end[i] - run, run)
        count += 1
    return count


@borrowing
def _least_action(actions: NDArray[np.float64], share: float) -> float:
    """The least action that is not below `share`; 1 if none is."""
    least = 1.0
    for j in range(len(actions)):
        if actions[j] >= share - TENTHS:
            least = min(least, actions[j])
    return least


@borrowing
def _allow(
    actions: NDArray[np.float64], room: float, wanted: float, o: Options, allowed: NDArray[np.bool_]
) -> bool:
    """Which shares above 0 come near the one that is wanted, or near the greatest there is room for; is there any?"""
    most = 0.0
    for j in range(len(actions)):
        if actions[j] <= room + ROOM:
            most = max(most, actions[j])
    some = False
    for j in range(len(actions)):
        least = o.full_rate * min(most, wanted) - ROOM
        allowed[j] = 0 < actions[j] <= room + ROOM and actions[j] >= least
        some = some or allowed[j]
    return some

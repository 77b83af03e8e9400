"""The share of one pair: drawn from the experts' opinions, and noted among the decisions of the cycle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing, compiled
from asad.experts.compiled import CompiledExperts, evaluate_all
from asad.experts.state import FEATURES
from asad.share.asax.memo import Memo
from asad.share.history import History
from asad.share.learner import Weights, meet
from asad.share.openings import Openings, View, take
from asad.share.pair import F_FAIR_SHARE, describe, draw

MOST = 512
"""Decisions of one cycle at the most; the rest waits for the next."""
WIDTH = len(FEATURES)


class Out(NamedTuple):
    """Decisions of one cycle, in columns."""

    guest: NDArray[np.int32]
    host: NDArray[np.int32]
    share: NDArray[np.float64]
    nodes_end: NDArray[np.int32]
    nodes: NDArray[np.int32]
    """Nodes of all offers, one after the other; `nodes_end` says where those of a decision end."""
    rate: NDArray[np.float64]
    guest_end: NDArray[np.float64]
    wait_end: NDArray[np.float64]
    """Expected rate of a new guest, its end, and its end if it waited (s)."""
    probability: NDArray[np.float64]
    """Chance of the share that was drawn."""
    mixture: NDArray[np.float64]
    """(MOST, m) chance of every share."""
    leaf: NDArray[np.int32]
    """(MOST, n) leaf that each expert reached."""
    alpha: NDArray[np.float64]
    """(MOST, n) weights of the experts."""
    x: NDArray[np.float32]
    """(MOST, features) state of the pair."""
    new: NDArray[np.bool_]
    """An offer to a waiting job, not another share for a guest."""


def new_out(nodes: int, cores: int, experts: int, actions: int) -> Out:
    """No decisions yet, for a cluster of so many nodes and cores, n experts and m shares."""
    return Out(
        guest=np.zeros(MOST, np.int32),
        host=np.zeros(MOST, np.int32),
        share=np.zeros(MOST),
        nodes_end=np.zeros(MOST, np.int32),
        nodes=np.zeros(cores + nodes, np.int32),
        rate=np.zeros(MOST),
        guest_end=np.zeros(MOST),
        wait_end=np.zeros(MOST),
        probability=np.zeros(MOST),
        mixture=np.zeros((MOST, actions)),
        leaf=np.zeros((MOST, experts), np.int32),
        alpha=np.zeros((MOST, experts)),
        x=np.zeros((MOST, WIDTH), np.float32),
        new=np.zeros(MOST, np.bool_),
    )


class Choice(NamedTuple):
    """One choice among m shares by n experts."""

    allowed: NDArray[np.bool_]
    """(m,) shares that may be drawn: the caller's part."""
    x: NDArray[np.float32]
    """(features,) state of the pair."""
    p: NDArray[np.float64]
    """(n, m) what each expert says of it."""
    leaf: NDArray[np.int32]
    """(n,) leaf that each expert reached."""


@compiled
def new_choice(experts: int, actions: int) -> Choice:
    """Nothing is allowed or known yet but the fair share, which is not recorded: one half."""
    x = np.full(WIDTH, np.nan, np.float32)
    x[F_FAIR_SHARE] = 0.5
    return Choice(np.zeros(actions, np.bool_), x, np.empty((experts, actions)), np.empty(experts, np.int32))


@compiled
def choose(
    view: View,
    experts: CompiledExperts,
    weights: Weights,
    history: History,
    exploration: float,
    load: float,
    guest: int,
    host: int,
    node: int,
    u: float,
    choice: Choice,
    mixture: NDArray[np.float64],
) -> int:
    """Fill `choice` and `mixture` (m,), and draw one of the allowed shares by `u` in [0, 1); its index.

    `node` is one of the host's that the guest is on or would be on: memory is told of it.
    """
    describe(view, history, host, guest, load, node, choice.x)
    evaluate_all(experts, choice.x, choice.p, choice.leaf)
    row = view.application[host]
    meet(weights, row)
    return draw(choice.p, weights.alpha[row], choice.allowed, exploration, mixture, u)


@compiled
def note(
    view: View,
    weights: Weights,
    memo: Memo,
    out: Out,
    k: int,
    guest: int,
    host: int,
    drawn: int,
    share: float,
    choice: Choice,
) -> None:
    """Decision `k` gives the guest this share, the one of index `drawn`; its loss will be learned."""
    out.guest[k], out.host[k], out.share[k] = guest, host, share
    out.nodes_end[k] = out.nodes_end[k - 1] if k > 0 else 0
    out.new[k] = False
    out.probability[k] = out.mixture[k, drawn]
    out.leaf[k] = choice.leaf
    out.alpha[k] = weights.alpha[view.application[host]]
    out.x[k] = choice.x
    memo.decided_at[guest] = view.now
    memo.probability[guest] = out.mixture[k, drawn]
    memo.opinion[guest] = choice.p[:, drawn]


@borrowing
def promise(
    view: View,
    openings: Openings,
    memo: Memo,
    out: Out,
    k: int,
    used: int,
    rate: float,
    guest_end: float,
    own_start: float,
    run: float,
) -> None:
    """Decision `k` is an offer on the first `used` of `openings.chosen`, for what is expected of it."""
    guest = out.guest[k]
    out.new[k] = True
    out.rate[k], out.guest_end[k], out.wait_end[k] = rate, guest_end, own_start + run
    begin = out.nodes_end[k]
    for i in range(used):
        out.nodes[begin + i] = openings.chosen[i]
    out.nodes_end[k] = begin + used
    memo.own_start[guest] = own_start
    memo.retry_at[guest] = np.inf  # it has its offer
    take(view, openings, guest, used, out.share[k])

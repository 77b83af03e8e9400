"""Experts for people to look at: their trees, which leaves hosts reached, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asad.experts import Expert
from asad.model import Json, Snapshot
from asad.share.learner import Weights

MOST_APPLICATIONS = 20
"""Weights of so many applications are reported: of those of which most has been learned."""


@runtime_checkable
class HasExperts(Protocol):
    """A share policy that asks experts: the live page draws what it describes."""

    def drawn_experts(self, snapshot: Snapshot) -> dict[str, Json]:
        """Their trees, weights and the leaves that running hosts have reached, as plain data."""
        ...


def describe(
    experts: Sequence[Expert], weights: Weights, names: Sequence[str], reached: dict[str, Json]
) -> dict[str, Json]:
    """Trees, weights over the whole cluster and of some applications (by `names` of their codes), and what `leaves`
    reports."""
    order = np.argsort(-weights.rounds[:-1], kind="stable")[:MOST_APPLICATIONS]
    return {
        "actions": list(experts[0].actions),
        "experts": [expert.to_json() for expert in experts],
        "weights": weights.alpha[-1].round(4).tolist(),
        "applications": [
            [names[code], int(weights.rounds[code]), weights.alpha[code].round(4).tolist()]
            for code in order.tolist()
            if code < len(names) and weights.rounds[code] > 0
        ],
        **reached,
    }


def leaves(
    snapshot: Snapshot,
    drawn_at: NDArray[np.float64],
    leaf: NDArray[np.int32],
    share: NDArray[np.float64],
    leaf_names: Sequence[str],
) -> dict[str, Json]:
    """Which leaf each expert reached when a share was drawn last (`last`), and how many of the hosts that run now have
    reached which (`reached`, by expert). `drawn_at`, `share` (rows,) and `leaf` (rows, n) are the policy's own."""
    running = snapshot.running
    drawn = running[~np.isnan(drawn_at[running])]
    if len(drawn) == 0:
        return {"last": None, "reached": []}
    last = int(drawn[np.argmax(drawn_at[drawn])])
    counted: list[Json] = []
    for column in range(leaf.shape[1]):
        numbers, counts = np.unique(leaf[drawn, column], return_counts=True)
        counted.append(
            {
                leaf_names[number]: count
                for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
            }
        )
    return {
        "last": {
            "job": str(snapshot.jobs.job_id[last]),
            "time_s": float(drawn_at[last]),
            "share": round(float(share[last]), 3),
            "leaves": [leaf_names[number] for number in leaf[last].tolist()],
        },
        "reached": counted,
    }

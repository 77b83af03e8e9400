"""What a learner knows survives a restart, a growing number of applications and other experts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from asad.share.learner import ASAD, Weights, add_case, meet, new_weights
from asad.share.run_history import History, new_history
from asad.share.saved_state import CLUSTER, fill, grow, to_memory

EXPERTS = ("cpu", "load", "memory")
NAMES = ["ann/sim/8", "bob/fit/1"]


def learned(seed: int = 1) -> tuple[Weights, History]:
    """Two applications of which the first has been met and learned of."""
    rng = np.random.default_rng(seed)
    weights, history = new_weights(2, 3), new_history(2)
    for _ in range(40):
        meet(weights, 0)
        increments = rng.uniform(0, 1, 3) * np.array([1.0, 0.5, 0.1])
        add_case(weights, 0, increments, ASAD, 50)
        add_case(weights, 2, increments, ASAD, 50)
    for column in history:
        column[[0, 2]] = rng.uniform(1, 100, 2)
    return weights, history


def through_json(memory: Any) -> Any:
    return json.loads(json.dumps(memory, allow_nan=False))


def test_what_was_learned_comes_back_whole() -> None:
    weights, history = learned()
    memory = through_json(to_memory(weights, history, NAMES, EXPERTS))
    assert set(memory) == {"ann/sim/8", CLUSTER}
    again, history_again = new_weights(2, 3), new_history(2)
    fill(again, history_again, [0, 1, -1], NAMES, EXPERTS, memory)
    for name in Weights._fields:
        assert getattr(again, name) == pytest.approx(getattr(weights, name)), name
    for name in History._fields:
        assert getattr(history_again, name) == pytest.approx(getattr(history, name)), name
    assert again.rounds[1] == -1, "an application that nobody has met stays so"


def test_a_new_application_gets_what_is_kept_of_it_when_it_comes() -> None:
    weights, history = learned()
    memory = to_memory(weights, history, NAMES, EXPERTS)
    again, history_again = new_weights(0, 3), new_history(0)
    fill(again, history_again, [-1], [], EXPERTS, memory)
    wider, longer = grow(again, history_again, 2)
    assert wider is not None
    fill(wider, longer, [0, 1], ["new/one/1", "ann/sim/8"], EXPERTS, memory)
    assert longer.run[1] == history.run[0]
    assert wider.alpha[1] == pytest.approx(weights.alpha[0])
    assert wider.alpha[-1] == pytest.approx(weights.alpha[-1])
    assert longer.runs[0] == 0
    assert wider.rounds[0] == -1


def test_growing_keeps_rows_and_the_cluster_last() -> None:
    weights, history = learned()
    wider, longer = grow(weights, history, 5)
    assert wider is not None
    assert wider.alpha.shape == (6, 3)
    for old, new in zip((*weights, *history), (*wider, *longer), strict=True):
        assert np.array_equal(new[:2], old[:2])
        assert np.array_equal(new[-1], old[-1])
    assert (wider.rounds[2:5] == -1).all()
    assert grow(None, history, 5)[0] is None


def test_experts_are_matched_by_name() -> None:
    weights, history = learned()
    memory = to_memory(weights, history, NAMES, EXPERTS)
    others = ("memory", "fresh", "cpu")
    again, history_again = new_weights(2, 3), new_history(2)
    fill(again, history_again, [0, -1], NAMES, others, memory)
    assert again.risk[0, 0] == weights.risk[0, 2]
    assert again.risk[0, 2] == weights.risk[0, 0]
    assert again.risk[0, 1] == pytest.approx((weights.risk[0, 0] + weights.risk[0, 2]) / 2)
    assert again.alpha.sum(axis=1) == pytest.approx(1.0)
    assert again.alpha[0, 0] > again.alpha[0, 1] > again.alpha[0, 2]


def learner(rounds: float = 1, cases: float = 1, risk: float = 0.0) -> dict[str, Any]:
    """As it is kept."""
    each = {name: {"prior": risk, "round_risk": risk, "risk": risk} for name in EXPERTS}
    return {"rounds": rounds, "cases": cases, "mixture_risk": 0.0, "gamma_squares": 0.0, "experts": each}


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"history": 3, "learner": []},
        {"history": {"runs": -1}, "learner": {"experts": {}}},
        {"history": {"runs": "many"}, "learner": {"rounds": 3, "experts": {"cpu": 1}}},
        {
            "learner": {
                "rounds": True,
                "cases": 0,
                "mixture_risk": 0,
                "gamma_squares": 0,
                "experts": {"cpu": {}},
            }
        },
        {"history": dict.fromkeys(History._fields, 1e200), "learner": learner(rounds=10**17)},
        {"history": dict.fromkeys(History._fields, 10**400), "learner": learner(cases=1e100)},
        {"learner": learner(risk=1e300)},
    ],
)
def test_what_cannot_be_read_is_passed_over(entry: Any) -> None:
    weights, history = new_weights(2, 3), new_history(2)
    fill(weights, history, [0, 1, -1], NAMES, EXPERTS, {"ann/sim/8": entry, CLUSTER: entry})
    assert weights.rounds.tolist() == [-1, -1, 0]
    assert weights.alpha == pytest.approx(1 / 3)
    assert history.runs.tolist() == [0, 0, 0]


def test_rows_of_applications_without_a_name_yet_are_left_out() -> None:
    weights, history = learned()
    assert set(to_memory(weights, history, [], EXPERTS)) == {CLUSTER}
    assert "learner" not in to_memory(None, history, NAMES, EXPERTS)[CLUSTER]

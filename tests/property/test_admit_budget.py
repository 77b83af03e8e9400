"""Whatever a user claims, whenever: what counts of it together is no more than his budget, and lies change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from asad.admit.admission_options import Options
from asad.admit.budget import Budgets
from asad.admit.commitments import Commitment
from asad.admit.hints import Hint

BUDGET = 100.0
USERS = ("ann", "bob")
STEPS = some.lists(
    some.tuples(
        some.lists(some.tuples(some.sampled_from(USERS), some.integers(1, 90)), min_size=1, max_size=5),
        some.lists(some.booleans(), min_size=5, max_size=5),
        some.lists(some.integers(0, 30), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


def lived(steps: list[Any], factor: float) -> list[dict[str, tuple[str, float, str]]]:
    """Jobs come, are admitted or not as was drawn, and go; by step what counts of each that is there. Ann's claims are
    `factor` times what was drawn, and she always claims her budget by a job that is never admitted."""
    budgets = Budgets(Options(budget=BUDGET, most_worth=1e9), {})
    known: dict[str, Commitment] = {}
    worth: dict[str, tuple[str, float]] = {"all": ("ann", BUDGET)}
    after = []
    for number, (coming, admits, leaving) in enumerate(steps):
        for at, (user, drawn) in enumerate(coming):
            worth[f"{number}.{at}"] = (user, float(drawn))
        asked = [key for key in worth if key not in known or known[key].state == "declined"]
        hints = [
            (
                key,
                worth[key][0],
                Hint(f"constant({worth[key][1] * (factor if worth[key][0] == 'ann' else 1):.6f})"),
            )
            for key in asked
        ]
        for at, (key, claim) in enumerate(budgets.claims(hints, known).items()):
            admitted = admits[at % len(admits)] and claim.counted > 0 and key != "all"
            state = "admitted" if admitted else "declined"
            known[key] = Commitment(key, at, state, "", "", False, "", 0.0, 0)  # type: ignore[arg-type]
            claim.enter(known[key])
        after.append({key: (one.user, one.counted, one.state) for key, one in known.items()})
        for at in leaving:
            for key in [key for key in list(known)[at : at + 1] if key != "all"]:
                del known[key], worth[key]
    return after


@given(STEPS)
def test_what_counts_of_one_user_is_never_more_than_his_budget(steps: list[Any]) -> None:
    for known in lived(steps, 7.0):
        for user in USERS:
            held = sum(
                counted for owner, counted, state in known.values() if owner == user and state == "admitted"
            )
            assert held <= BUDGET * (1 + 1e-9)


@given(STEPS, some.sampled_from((2.0, 10.0, 1000.0)))
def test_whoever_claims_a_multiple_of_everything_has_what_he_had(steps: list[Any], factor: float) -> None:
    once, often = lived(steps, 1.0), lived(steps, factor)
    for one, other in zip(once, often, strict=True):
        assert one.keys() == other.keys()
        for key, (user, counted, state) in one.items():
            assert other[key] == (user, pytest.approx(counted, rel=1e-6, abs=1e-6), state)

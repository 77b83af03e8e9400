"""What a job is worth by the time it took, and the language users write it in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asad.admit import utility
from asad.admit.utility import (
    Constant,
    Deadline,
    Linear,
    Sigmoid,
    parse_utility,
    site_utilities,
    target_slots,
    worth_by_slot,
)
from asad.errors import ConfigError, UsageError

SLOT_S = 600.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constant(10)", Constant(10.0)),
        ("linear(10, 1h, 2h)", Linear(10.0, 6.0, 12.0)),
        ("sigmoid(10, 0.5, 20m)", Sigmoid(10.0, 0.5, 2.0)),
        ("sigmoid(10,0.05/m,1200)", Sigmoid(10.0, 0.5, 2.0)),
        ("sigmoid(10, 3/h, 0:20:00)", Sigmoid(10.0, 0.5, 2.0)),
        (" deadline( 7.5 , 1-12:00:00 ) ", Deadline(7.5, 216.0)),
        ("deadline(1, 90)", Deadline(1.0, 0.15)),
        ("deadline(1, 90s)", Deadline(1.0, 0.15)),
        ("deadline(1, 1.5h)", Deadline(1.0, 9.0)),
        ("deadline(1, 2d)", Deadline(1.0, 288.0)),
        ("deadline(1, 10:30)", Deadline(1.0, 1.05)),
        ("deadline(1, 1-06)", Deadline(1.0, 180.0)),
        ("deadline(1, 1-06:30)", Deadline(1.0, 183.0)),
    ],
)
def test_texts(text: str, expected: object) -> None:
    found = parse_utility(text, SLOT_S)
    assert type(found) is type(expected)
    assert tuple(found) == pytest.approx(tuple(expected))  # type: ignore[arg-type, call-overload]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no NAME"),
        ("10", "no NAME"),
        ("sigmoid", "no NAME"),
        ("sigmoid(10, 0.5)", "takes 3 arguments (worth, decay, target), not 2"),
        ("sigmoid(10, 0.5, 20m, 3)", "not 4"),
        ("constant()", "not 0"),
        ("constant(-1)", "worth -1"),
        ("constant(1e5)", "worth 1e5"),
        ("constant(9999999999999)", "worth"),
        ("constant(99999999999)", "more than 1e+09"),
        ("constant(10m)", "worth 10m"),
        ("constant(inf)", "worth inf"),
        ("constant(nan)", "worth nan"),
        ("sigmoid(10, 20m, 0.5)", "decay 20m"),
        ("deadline(10, 20x)", "by 20x"),
        ("deadline(10, 99999d)", "more than"),
        ("deadline(10, 1:2:3:4)", "by 1:2:3:4"),
        ("linear(10, 2h, 1h)", "zero must be later"),
        ("linear(10, 2h, 2h)", "zero must be later"),
        ("best(1)", "there are constant, linear, sigmoid, deadline"),
        ("constant(constant(1))", "no NAME"),
        ("constant(１)", "worth"),
        ("x" * 201, "too many"),
    ],
)
def test_texts_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_utility(text, SLOT_S)
    assert says in str(error.value)


@given(st.text(max_size=300))
def test_hostile_texts_are_refused_in_print(text: str) -> None:
    try:
        parse_utility(text, SLOT_S)
    except UsageError as error:
        assert str(error).isprintable() and len(str(error)) < 400


UTILITIES = st.one_of(
    st.builds(Constant, st.floats(0, 100)),
    st.builds(Sigmoid, st.floats(0, 100), st.floats(0, 1000), st.floats(0, 1000)),
    st.builds(Deadline, st.floats(0, 100), st.floats(0, 100)),
    st.builds(
        lambda w, by, more: Linear(w, by, by + more), st.floats(0, 100), st.floats(0, 50), st.floats(0.1, 50)
    ),
)


@given(UTILITIES)
def test_worth_never_rises_and_is_what_the_utility_says(what: Any) -> None:
    values = worth_by_slot(what, 40)
    assert (np.diff(values) <= 0).all() and (values >= 0).all()
    assert values == pytest.approx([what(slot) for slot in range(1, 41)], rel=1e-9, abs=1e-12)


def test_the_first_slot_counts_one() -> None:
    assert worth_by_slot(Deadline(3.0, 1.0), 3).tolist() == [3.0, 0.0, 0.0]
    assert Sigmoid(10.0, 2.0, 4.0)(4.0) == 5.0
    assert Sigmoid(10.0, 6.0, 1.0)(1e6) == 0.0
    assert Sigmoid(10.0, 0.0, 4.0)(1e9) == 5.0
    assert Linear(8.0, 2.0, 6.0)(4.0) == 4.0


def test_targets() -> None:
    assert target_slots(Sigmoid(1.0, 1.0, 4.5), 10) == 4.5
    assert target_slots(Linear(1.0, 3.0, 9.0), 10) == 3.0
    assert math.isinf(target_slots(Constant(1.0), 10))
    assert target_slots(lambda slots: 5.0 if slots <= 3 else 1.0, 10) == 3.0


def test_a_site_s_own_is_made_to_fall() -> None:
    wild = lambda slots: (math.nan, 3.0, 5.0, -1.0)[int(slots) - 1]  # noqa: E731
    assert worth_by_slot(wild, 4).tolist() == [0.0, 0.0, 0.0, 0.0]
    assert worth_by_slot(lambda slots: slots, 3).tolist() == [1.0, 1.0, 1.0]


def test_a_site_s_own_in_a_text() -> None:
    def steps(arguments: tuple[float, ...], slot_s: float) -> Deadline:
        worth, by_s = arguments
        return Deadline(worth, by_s / slot_s)

    assert parse_utility("steps(5, 1h)", SLOT_S, {"steps": steps}) == Deadline(5.0, 6.0)
    with pytest.raises(UsageError, match="steps refuses it"):
        parse_utility("steps(5)", SLOT_S, {"steps": steps})
    with pytest.raises(UsageError, match="sigmoid, deadline, steps"):
        parse_utility("other(5)", SLOT_S, {"steps": steps})


class Point:
    """Stands for an entry point."""

    value = "site.worth:make"

    def __init__(self, name: str, fails: bool = False) -> None:
        self.name, self._fails = name, fails

    def load(self) -> object:
        if self._fails:
            raise ImportError("no such module")
        return Deadline


def test_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*points: Point) -> None:
        monkeypatch.setattr(utility, "entry_points", lambda group: points)

    found(Point("steps"))
    assert site_utilities() == {"steps": Deadline}
    found(Point("sigmoid"))
    with pytest.raises(ConfigError, match="may not be its name"):
        site_utilities()
    found(Point("steps", fails=True))
    with pytest.raises(ConfigError, match="does not load"):
        site_utilities()

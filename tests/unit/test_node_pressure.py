"""Who must give way, and who beside whom."""

from __future__ import annotations

import math

import pytest

from asad.node.pressure import Fractions, gives_way, hosts_beside


def test_fractions_are_of_time_and_of_the_longest_waiter() -> None:
    waits = Fractions()
    assert math.isnan(waits.look({1: 5.0, 2: 7.0}, 10.0))
    assert waits.look({1: 5.1, 2: 7.4}, 10.5) == pytest.approx(0.8)
    assert waits.look({1: 5.1, 2: 7.4}, 11.0) == pytest.approx(0.4)  # mean of two looks
    assert waits.look({1: 5.1, 2: 7.4}, 11.5) == 0.0


def test_a_thread_born_between_looks_counts_from_its_birth() -> None:
    waits = Fractions()
    waits.look({1: 3.0}, 0.0)
    assert waits.look({1: 3.0, 9: 0.25}, 0.5) == pytest.approx(0.5)


def test_fractions_stay_in_bounds_whatever_counters_do() -> None:
    waits = Fractions()
    waits.look({0: 100.0}, 0.0)
    assert waits.look({0: 0.0}, 1.0) == 0.0
    assert waits.look({0: 50.0}, 2.0) == pytest.approx(0.5)
    assert waits.look({0: 60.0}, 2.0) == pytest.approx(0.5)  # no time has passed
    assert waits.look({}, 3.0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("stalled", "alone", "used", "way"),
    [
        (0.5, 0.0, 0.9, True),
        (0.5, math.nan, math.nan, True),
        (0.1, 0.0, 0.9, False),
        (0.5, 0.4, 0.9, False),  # it stalled as much alone
        (0.9, 0.0, 0.05, False),  # the guest did not run: others keep the host waiting
        (math.nan, 0.0, 0.9, False),
    ],
)
def test_a_guest_gives_way_only_to_what_it_can_have_caused(
    stalled: float, alone: float, used: float, way: bool
) -> None:
    assert gives_way(stalled, alone, used) is way


def test_hosts_are_those_on_the_same_cores_or_named_by_the_lease() -> None:
    cores = {
        name: frozenset(held)
        for name, held in {"h": {0, 1}, "i": {2}, "j": {3}, "g": {1, 2}, "k": {5}}.items()
    }
    named = {"g": "", "k": "j"}
    assert hosts_beside(["g", "k"], cores, lambda guest: named[guest]) == {"h": {"g"}, "i": {"g"}, "j": {"k"}}
    assert hosts_beside([], cores, lambda guest: "") == {}

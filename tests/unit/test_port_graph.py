"""Port policies on a cluster: who may be where, what classes make of what they have, and gangs that fall short."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_cluster import GUEST, NOW
from test_placing import NAMES, cycle, offers, placing, running, wide

from asad.decisions import SetQuota
from asad.model import Snapshot, Tres
from asad.place.class_gains import LEAST_WEIGHT, LOOKS, ClassGains
from asad.place.first_fit import FirstFit
from asad.place.gang_rounds import whole_gangs
from asad.place.port_classes import CPU
from asad.place.port_placing import PortPlacing
from asad.place.utilities import LOG, gain


def bound(count: int, where: dict[int, list[int]], **columns: Any) -> Snapshot:
    """Jobs that may be guests on these nodes alone."""
    return dataclasses.replace(
        wide(count, **columns), guest_nodes={row: np.array(at, np.int32) for row, at in where.items()}
    )


def nodes_of(policy: PortPlacing, name: str) -> set[str]:
    found = policy.state()[name]["y"]
    assert isinstance(found, dict)
    return set(found)


def test_a_class_has_y_where_its_jobs_may_be_and_nobody_is_sent_elsewhere() -> None:
    policy, snapshot = placing(), bound(3, {1: [0]})
    made = {offer.guest: offer.nodes for offer in offers(cycle(policy, snapshot))}
    assert made[1] == (0,)
    assert nodes_of(policy, NAMES[0]) == {"n0"} and nodes_of(policy, NAMES[1]) == {"n0", "n1", "n2"}
    assert offers(FirstFit().decide(snapshot))[0].nodes == (0,)
    assert offers(FirstFit().decide(bound(3, {1: []})))[0].guest == 2, "it may be nowhere"


def test_what_a_class_may_use_grows_with_its_jobs_and_outlives_a_restart() -> None:
    policy = placing()
    cycle(policy, bound(4, {1: [0]}))
    cycle(policy, bound(4, {1: [2]}))
    assert nodes_of(policy, NAMES[0]) == {"n0", "n2"}
    after = placing()
    after.restore(policy.state())
    cycle(after, bound(4, {1: [0]}))
    assert nodes_of(after, NAMES[0]) == {"n0", "n2"}
    cycle(after, wide(4))
    assert nodes_of(after, NAMES[0]) == {"n0", "n1", "n2", "n3"}
    cycle(after, bound(4, {1: [0]}))
    assert nodes_of(after, NAMES[0]) == {"n0", "n1", "n2", "n3"}


def test_jobs_of_one_class_may_be_where_one_of_them_may() -> None:
    policy = placing()
    cycle(policy, bound(4, {1: [0], 2: [1]}, application={1: 0, 2: 0, 3: 1}))
    assert nodes_of(policy, NAMES[0]) == {"n0", "n1"}
    other = placing()
    cycle(other, bound(4, {1: [0]}, application={1: 0, 2: 0, 3: 1}))
    assert nodes_of(other, NAMES[0]) == {"n0", "n1", "n2", "n3"}


def test_who_wants_gpus_has_y_where_there_are_some() -> None:
    policy = placing()
    made = cycle(policy, dataclasses.replace(wide(3), node_gpus={1: 2.0}, gpus={1: 1.0}))
    assert nodes_of(policy, NAMES[0]) == {"n1"}
    assert {offer.guest: offer.nodes for offer in offers(made)}[1] == (1,)


def test_who_wants_gres_has_y_where_there_is_all_of_it() -> None:
    names = ("gres/gpu", "gres/fpga", "license/abaqus")
    there = np.array([[2.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    tres = Tres(names, there, np.array([0.0, 0.0, 5.0]), {1: np.ones(3), 2: np.array([1.0, 0.0, 0.0])}, {})
    policy = placing()
    cycle(policy, dataclasses.replace(wide(3), tres=tres))
    assert [nodes_of(policy, name) for name in NAMES[:3]] == [{"n1"}, {"n0", "n1"}, {"n0", "n1", "n2"}]


@pytest.mark.parametrize("name", ["oga", "drf", "fairness", "binpack", "spread"])
def test_every_port_policy_holds_to_the_graph(name: str) -> None:
    for offer in offers(cycle(placing(name), bound(4, {1: [0], 2: [1], 3: [1]}))):
        assert offer.nodes == ((0,) if offer.guest == 1 else (1,))


def test_who_would_be_at_its_limit_before_that_is_moved_is_no_guest() -> None:
    made = offers(cycle(placing(), wide(3, time_limit_s={1: 119.0, 2: 120.0})))
    assert [offer.guest for offer in made] == [2, 3]


# ------------------------------------------------------------------------------------------- what classes make of it


def looked(uses: dict[str, float], looks: int = 2 * int(LOOKS)) -> ClassGains:
    gains = ClassGains("log")
    for name, used in uses.items():
        for _ in range(looks):
            gains.look(name, 2.0, 2.0 * used)
    return gains


def test_a_class_that_uses_half_of_what_it_may_is_worth_half_as_much() -> None:
    gains = looked({"a": 1.0, "b": 0.5, "c": 0.001})
    assert gains.weights(["b", "a", "new", "c"]) == pytest.approx([0.5, 1.0, 1.0, LEAST_WEIGHT])
    assert looked({"a": 1.0, "b": 0.5}, int(LOOKS) - 1).weights(["a", "b"]).tolist() == [1.0, 1.0]
    gains.forget("b")
    assert gains.weights(["b"]).tolist() == [1.0]


def test_the_fit_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(5)
    allotted, noise = rng.uniform(0.2, 4.0, 400), rng.normal(0.0, 0.02, 400)
    gains = looked({"full": 1.0})
    for a, e in zip(allotted, noise, strict=True):
        gains.look("concave", a, 0.6 * gain(LOG, 1.0, a) + e)
    full = 2.0 / gain(LOG, 1.0, 2.0)
    assert gains.weights(["concave"])[0] == pytest.approx(0.6 / full, rel=0.02)


def test_the_overhead_is_what_several_nodes_cost_beyond_one() -> None:
    gains = ClassGains("log")
    for _ in range(2 * int(LOOKS)):
        gains.look_at_pace(False, 0.9 * 0.5, 0.5)
    assert gains.overhead == 0.0, "nothing is known of several"
    for _ in range(2 * int(LOOKS)):
        gains.look_at_pace(True, 0.6, 1.0)
    assert gains.overhead == pytest.approx(0.3)
    after = ClassGains("log")
    after.restore({"a": [1.0, 2.0, 40.0], "b": "x", "c": [1, 2], "d": [1.0, 0.0, 3.0]}, gains.lost)
    assert after.overhead == pytest.approx(0.3)
    assert [after.state(name) is None for name in "abcd"] == [False, True, True, True]
    for wrong in ([[9.0, 1.0], [0.0, 1.0]], [[float("nan")] * 2] * 2, 7, {"x": 1}):
        again = ClassGains("log")
        again.restore({}, wrong)  # type: ignore[arg-type]
        assert again.lost is None


def test_what_is_measured_moves_y_and_can_be_switched_off() -> None:
    def held(measured: bool) -> tuple[float, float, float]:
        policy, snapshot = placing(measured=measured), wide(1, 2, guest_cores=4)
        cycle(policy, snapshot)
        for _ in range(2 * int(LOOKS)):
            for name, used in ((NAMES[0], 1.0), (NAMES[1], 0.4)):
                policy._classes.gains.look(name, 1.0, used)
            policy._classes.gains.look_at_pace(False, 1.0, 1.0)
            policy._classes.gains.look_at_pace(True, 0.8, 1.0)
        for _ in range(30):
            cycle(policy, dataclasses.replace(snapshot, time_s=NOW + 600))
        ports = policy._classes.ports
        assert ports is not None
        first, second, *_ = policy._classes.table(policy._y, CPU)[:, 0].tolist()
        return first, second, float(ports.beta[CPU])

    first, second, charged = held(True)
    assert first > 1.5 * second > 0 and charged == pytest.approx(0.2)
    first, second, charged = held(False)
    assert first == pytest.approx(second) and charged == 0.0


def test_guests_that_run_are_looked_at_once_they_have_a_quota() -> None:
    policy, snapshot = placing(), running(pace={GUEST: 0.7}, cpu_fraction={GUEST: 0.6})
    (quota,) = [made for made in cycle(policy, snapshot) if isinstance(made, SetQuota)]
    name = policy._classes.name(int(snapshot.jobs.application[GUEST]))
    assert "made" not in policy.state().get(name, {}), "nothing had been decided"
    cycle(policy, snapshot)
    # a core is a unit of y here
    of_it = gain(LOG, 1.0, quota.cores[0])
    assert policy.state()[name]["made"] == pytest.approx([0.7 * 0.6 * 2 * of_it, of_it**2, 1.0])
    again = placing()
    again.restore(policy.state())
    cycle(again, snapshot)
    assert again._classes.gains.state(name) == policy._classes.gains.state(name), (
        "it has no quota by this one yet"
    )


# ----------------------------------------------------------------------------------------------------------- gangs


def test_a_gang_that_falls_short_leaves_its_part_to_others() -> None:
    def left_to_others(snapshot: Snapshot) -> float:
        policy = placing()
        made = offers(cycle(policy, snapshot))
        assert [offer.guest for offer in made if offer.guest == 1] == []
        return sum(sum(offer.demands) for offer in made)

    # row 1 wants three nodes, of which its class may use two: it cannot run, whatever it has
    gang = bound(3, {1: [0, 1]}, guest_cores=4, estimated_start_s=dict.fromkeys((1, 2, 3), NOW + 5000))
    gang.jobs.nodes[1], gang.jobs.cores[1] = 3, 12
    nobody = dataclasses.replace(gang, queue=np.array([2, 3], np.int32))
    assert left_to_others(gang) == pytest.approx(left_to_others(nobody), rel=0.01)
    assert left_to_others(nobody) > 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.0, 4.0), min_size=1, max_size=8), st.integers(1, 12), st.integers(0, 2**31))
def test_no_gang_is_left_short_and_the_one_furthest_from_its_least_number_goes_first(
    least: list[float], capacity: int, seed: int
) -> None:
    wants, dropped = np.array(least), []
    present = (np.random.default_rng(seed).random(len(wants)) < 0.8).astype(np.float64)
    arrived = present.copy()

    def among(there: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return there * capacity / max(1.0, there.sum())

    def deal(y: np.ndarray[Any, Any], there: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        short = np.where(there > 0, np.maximum(0.0, 1.0 - y / np.maximum(wants, 1e-9)), 0.0)
        if short.any():
            dropped.append(int(np.argmax(short)))
        return y, short

    y = whole_gangs(among(present), present, deal, among)
    runs = present > 0
    assert (y[runs] >= wants[runs]).all() and (y[~runs] == 0).all()
    assert sorted(dropped) == np.flatnonzero((arrived > 0) & ~runs).tolist()
    # shortages that differ by less than a rounding are equal
    assert (np.diff(wants[dropped]) <= 1e-9).all()

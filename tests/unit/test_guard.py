"""The guard, property by property, on a small made-up cluster: two nodes of four cores, a host on each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_cluster import GUEST, HOST, NOW, OFFERED, OTHER_HOST, WAITING, cluster

from asad.config import GuardSettings
from asad.guard import ALWAYS, PROPERTIES, REPLAY, Guard, guard_for
from asad.model import (
    BARS,
    Admit,
    Arrays,
    Cause,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    SetShare,
    SetThrottle,
    Snapshot,
    Start,
    Withdraw,
)

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = GuardSettings()
CAUSE = Cause("test", "because", {"guest_end_s": 100.0, "wait_end_s": 200.0})


def offer(guest: int = WAITING, host: int = HOST, share: float = 0.3) -> CoAllocate:
    return CoAllocate(CAUSE, guest, host, (0 if host == HOST else 1,), share)


def vetoes(
    snapshot: Snapshot,
    *decisions: Decision,
    settings: GuardSettings = SETTINGS,
    properties: frozenset[str] = frozenset(PROPERTIES),
) -> list[str]:
    """Why each of the decisions that was vetoed was, in the words of the guard."""
    return [outcome.reason for outcome in guard_for(properties, settings).check(snapshot, decisions)[1]]


@pytest.mark.parametrize(
    ("rows", "loss", "vetoed"),
    [
        ({HOST: 1, WAITING: 1}, 0.05, True),
        ({HOST: 1, WAITING: 1}, 0.02, False),  # as much as may be lost
        ({HOST: 1}, 0.05, False),
        ({WAITING: 1}, 0.05, False),
    ],
)
def test_memory_bound_pairs_by_calibration(rows: dict[int, float], loss: float, vetoed: bool) -> None:
    guard = guard_for(frozenset(), SETTINGS, loss)
    allowed, outcomes = guard.check(cluster(memory_bound=rows), [offer()])
    assert bool(outcomes) == vetoed != bool(allowed)
    if vetoed:
        assert outcomes[0].reason == (
            "vetoed (memory bandwidth): both are memory-bound, which costs a host 5.0% of its pace here"
        )


def relieved(snapshot: Snapshot, settings: GuardSettings = SETTINGS) -> Sequence[Decision]:
    return Guard((), settings).relieve(snapshot)


def test_the_made_up_cluster_is_sound() -> None:
    assert vetoes(cluster(), offer(), SetShare(CAUSE, GUEST, 0.2), ExtendLimit(CAUSE, HOST, 600.0)) == []
    assert relieved(cluster()) == []


@pytest.mark.parametrize(
    ("columns", "decision", "why"),
    [
        ({"start_s": {WAITING: 5.0}}, offer(), "waits): the guest does not wait"),
        ({}, offer(OFFERED), "waits): it has an offer already"),
        ({"start_s": {HOST: math.nan}}, offer(), "waits): the host does not run"),
        ({}, CoAllocate(CAUSE, WAITING, HOST, (1,), 0.3), "whole nodes): node n1 is not wholly held"),
        ({"cores": {WAITING: 3}}, offer(), "one guest a core): there are not enough cores"),
        ({"memory_bytes_per_core": {WAITING: 6.0}}, offer(), "memory): its memory does not fit"),
        (
            {"memory_bytes_per_core": {HOST: math.nan, WAITING: 1.0}},
            offer(),
            "memory): it is not known how much memory is left",
        ),
        ({"cpu_fraction": {HOST: math.nan}}, offer(), "host floor): the CPU use of its host has not been"),
        ({}, offer(share=0.61), "host floor): the host uses 30% and keeps 10% of headroom"),
        ({}, SetShare(CAUSE, GUEST, 0.7), "host floor): the host uses 30%"),
        ({"time_limit_s": {WAITING: math.inf}}, offer(), "better off): it has no time limit"),
        ({"estimated_start_s": {WAITING: math.nan}}, offer(), "better off): its own start has not been"),
        ({"host_bar": {HOST: 2}}, offer(), f"opted out): the host cannot lend: {BARS[2]}"),
        ({"host_bar": {HOST: 2}}, SetShare(CAUSE, GUEST, 0.4), "opted out): the host cannot lend"),
        ({"guest_bar": {WAITING: 1}}, offer(), "opted out): it cannot be a guest: it opted out"),
        ({"node_bar": {0: 1}}, offer(), "opted out): node n0 cannot lend: it is drained"),
        (
            {"node_bar": {0: 3}},
            SetShare(CAUSE, GUEST, 0.4),
            "opted out): node n0 cannot lend: its node actor",
        ),
        ({"happiness": {HOST: 0.99}}, offer(), "happiness floor): the host's happiness is 0.99, below 1.00"),
        ({"happiness": {HOST: 0.5}}, SetShare(CAUSE, GUEST, 0.4), "happiness floor)"),
        ({"pressure": {HOST: 0.25}}, offer(), "pressure): the host waited for CPU 25% of the time"),
        ({"pressure": {HOST: 0.25}}, SetShare(CAUSE, GUEST, 0.4), "pressure)"),
        ({"latest_end_s": {HOST: 3650.0}}, ExtendLimit(CAUSE, HOST, 120.0), "latest end): a reservation"),
        ({"latest_end_s": {HOST: 3000.0}}, ExtendLimit(CAUSE, HOST, 60.0), "latest end): a reservation"),
    ],
)
def test_what_breaks_a_property_is_vetoed_in_its_name(
    columns: dict[str, Any], decision: Decision, why: str
) -> None:
    told = vetoes(cluster(**columns), decision)
    assert len(told) == 1
    assert told[0].startswith(f"vetoed ({why}")


@pytest.mark.parametrize(
    "columns",
    [
        {"host_bar": {HOST: 2}},
        {"node_bar": {0: 1}},
        {"happiness": {HOST: 0.5}},
        {"pressure": {HOST: 0.9}},
    ],
)
def test_nothing_stands_in_the_way_of_taking_less(columns: dict[str, Any]) -> None:
    assert vetoes(cluster(**columns), SetShare(CAUSE, GUEST, 0.1)) == []
    undecided = cluster(**columns, share={GUEST: math.nan})
    assert vetoes(undecided, SetShare(CAUSE, GUEST, 0.4)) == [], "until now nothing capped it"


def test_a_host_that_tells_nothing_of_its_happiness_may_lend() -> None:
    assert vetoes(cluster(happiness={HOST: math.nan}), offer()) == []
    assert vetoes(cluster(happiness={HOST: 1.0}), offer()) == []


def test_the_floor_of_the_host_is_a_setting() -> None:
    assert vetoes(cluster(), offer(share=0.4)) == []
    told = vetoes(cluster(), offer(share=0.4), settings=GuardSettings(host_floor=0.4))
    assert told == ["vetoed (host floor): the host uses 30% and keeps 40% of headroom"]


def test_the_cap_of_a_node_counts_guests_offers_and_this_cycle() -> None:
    cap = frozenset({"node share cap"})
    assert vetoes(cluster(), offer(share=0.6), properties=cap) == []
    assert vetoes(cluster(), offer(share=0.7), properties=cap) == [
        "vetoed (node share cap): node n0 would lend 100%, more than 90%"
    ]
    beside_the_offer = CoAllocate(CAUSE, WAITING, OTHER_HOST, (1,), 0.6)
    assert "n1 would lend 100%" in vetoes(cluster(), beside_the_offer, properties=cap)[0]
    assert vetoes(cluster(), SetShare(CAUSE, GUEST, 0.9), properties=cap) == []
    lowered = SetShare(CAUSE, GUEST, 0.1)
    assert vetoes(cluster(), lowered, offer(share=0.8), properties=cap) == []
    assert len(vetoes(cluster(share={GUEST: math.nan}), offer(share=0.1), properties=cap)) == 1
    assert vetoes(cluster(), offer(share=0.9), properties=cap, settings=REPLAY) == []


def test_two_offers_of_one_cycle_share_the_cap_of_their_node() -> None:
    free = cluster(offered_s={OFFERED: math.nan}, host={OFFERED: -1}, share={OFFERED: math.nan})
    one, other = offer(WAITING, OTHER_HOST, 0.5), offer(OFFERED, OTHER_HOST, 0.5)
    assert len(vetoes(free, one, other, properties=frozenset({"node share cap"}))) == 1


def test_the_cap_of_guests_counts_running_offered_and_new_ones() -> None:
    assert vetoes(cluster(), offer(), settings=GuardSettings(guests_cap=3)) == []
    assert vetoes(cluster(), offer(), settings=GuardSettings(guests_cap=2)) == [
        "vetoed (guests cap): there are 2 guests already"
    ]
    free = cluster(offered_s={OFFERED: math.nan}, host={OFFERED: -1}, share={OFFERED: math.nan})
    both = (offer(WAITING, HOST), offer(OFFERED, OTHER_HOST))
    assert len(vetoes(free, *both, settings=GuardSettings(guests_cap=2))) == 1


def test_a_job_changes_once_a_cycle() -> None:
    told = vetoes(cluster(), SetShare(CAUSE, GUEST, 0.2), SetShare(CAUSE, GUEST, 0.1))
    assert told == ["vetoed (one change): its lending changes in this cycle already (set-share)"]
    assert vetoes(cluster(), ExtendLimit(CAUSE, GUEST, 60.0), SetShare(CAUSE, GUEST, 0.2)) == []
    told = vetoes(cluster(), ExtendLimit(CAUSE, GUEST, 60.0), ExtendLimit(CAUSE, GUEST, 60.0))
    assert told == ["vetoed (one change): its limit has been moved in this cycle already"]


def test_an_extension_is_cut_to_whole_minutes_before_the_latest_end() -> None:
    snapshot = cluster(latest_end_s={HOST: 3600.0 + 200.0})
    allowed, vetoed = guard_for(frozenset(), SETTINGS).check(snapshot, [ExtendLimit(CAUSE, HOST, 600.0)])
    assert not vetoed
    assert isinstance(allowed[0], ExtendLimit)
    assert allowed[0].by_s == 180.0
    assert allowed[0].cause.reason == "because; 600 s would pass its latest end"
    kept, _ = guard_for(frozenset(), SETTINGS).check(snapshot, [ExtendLimit(CAUSE, HOST, 170.0)])
    assert kept == [ExtendLimit(CAUSE, HOST, 170.0)]


# ---------------------------------------------------------------------------------------------------- relief


def test_guests_beside_a_host_under_pressure_lose_their_share_at_once() -> None:
    (relief,) = relieved(cluster(pressure={HOST: 0.21}))
    assert (relief.kind, getattr(relief, "guest", None), getattr(relief, "share", None)) == (
        "set-share",
        GUEST,
        0.0,
    )
    assert relief.cause == Cause("guard", "its host 10 waited for CPU 21% of the time")
    undecided = cluster(pressure={HOST: 0.21}, share={GUEST: math.nan})
    assert [decision.kind for decision in relieved(undecided)] == ["set-share"]


def test_a_guest_that_has_nothing_is_not_relieved_again() -> None:
    assert relieved(cluster(pressure={HOST: 0.9}, share={GUEST: 0.0})) == []
    assert relieved(cluster(pressure={HOST: 0.2})) == [], "the threshold itself is no pressure"
    assert relieved(cluster(pressure={HOST: math.nan})) == []
    assert relieved(cluster(pressure={OTHER_HOST: 0.9}, offered_s={OFFERED: math.nan})) == []
    assert relieved(cluster(pressure={HOST: 0.9}, host={GUEST: -1})) == []


def test_an_offer_is_withdrawn_when_its_time_is_over_or_its_host_needs_its_cores() -> None:
    assert relieved(cluster(offered_s={OFFERED: NOW - 60.0})) == []
    (stale,) = relieved(cluster(offered_s={OFFERED: NOW - 61.0}))
    assert stale == Withdraw(Cause("guard", "the offer was not taken for 61 s"), OFFERED)
    (pressed,) = relieved(cluster(pressure={OTHER_HOST: 0.5}))
    assert pressed == Withdraw(Cause("guard", "its host 11 waits for CPU itself"), OFFERED)
    assert relieved(cluster(offered_s={OFFERED: NOW - 61.0}), replace(SETTINGS, offer_patience_s=100.0)) == []


def test_relief_comes_first_and_what_contradicts_it_is_vetoed() -> None:
    snapshot = cluster(pressure={HOST: 0.5}, offered_s={OFFERED: NOW - 61.0})
    guard = guard_for(frozenset(), SETTINGS)
    relief = guard.relieve(snapshot)
    wish = [SetShare(CAUSE, GUEST, 0.2), ExtendLimit(CAUSE, HOST, 60.0)]
    allowed, vetoed = guard.check(snapshot, wish, relief)
    assert allowed == [*relief, wish[1]]
    assert [outcome.reason for outcome in vetoed] == [
        "vetoed (one change): its lending changes in this cycle already (set-share)"
    ]


# ---------------------------------------------------------------------------------------------------- admission


@pytest.mark.parametrize(
    ("columns", "decision", "why"),
    [
        ({}, Defer(CAUSE, HOST, NOW + 60.0), "still waits): it does not wait any more"),
        ({}, Admit(CAUSE, HOST), "still waits): it does not wait"),
        ({}, Decline(CAUSE, GUEST), "still waits): it does not wait"),
        ({}, SetThrottle(CAUSE, HOST, 2), "still waits): it does not wait"),
        ({}, Defer(CAUSE, OFFERED, NOW + 60.0), "still waits): it has an offer to start as a guest"),
        ({"guest_bar": {WAITING: 1}}, Admit(CAUSE, WAITING), "opted out): it is left alone: it opted out"),
        (
            {"guest_bar": {WAITING: 5}},
            Defer(CAUSE, WAITING, NOW + 60.0),
            "opted out): it is left alone: its QOS",
        ),
        (
            {"guest_bar": {WAITING: 2}, "array": {WAITING: 0}},
            SetThrottle(CAUSE, WAITING, 2),
            "opted out): it is",
        ),
        ({}, SetThrottle(CAUSE, WAITING, 2), "throttle at least one): it is no array"),
        (
            {"array": {WAITING: 0}},
            SetThrottle(CAUSE, WAITING, 0),
            "throttle at least one): 0 tasks at one time",
        ),
        ({}, Defer(CAUSE, WAITING, NOW + 86_401.0), "most defer): 86401 s ahead, more than 86400 s"),
        ({}, Defer(CAUSE, WAITING, math.nan), "most defer)"),
        (
            {"deadline_s": {WAITING: NOW + 3700.0}},
            Defer(CAUSE, WAITING, NOW + 200.0),
            "never beyond deadline): it would end 100 s after its deadline",
        ),
    ],
)
def test_what_admission_may_not_do_is_vetoed(columns: dict[str, Any], decision: Decision, why: str) -> None:
    arrays = Arrays(*(np.array([value], np.int32) for value in (WAITING, 3, 0, 0, 0)))
    told = vetoes(replace(cluster(**columns), arrays=arrays), decision)
    assert len(told) == 1
    assert told[0].startswith(f"vetoed ({why}")


def test_what_admission_may_do() -> None:
    arrays = Arrays(*(np.array([value], np.int32) for value in (WAITING, 3, 1, 0, 0)))
    shown = replace(
        cluster(array={WAITING: 0, HOST: 0}, guest_bar={WAITING: 13}, deadline_s={WAITING: NOW + 4000.0}),
        arrays=arrays,
    )
    decisions = (
        Admit(CAUSE, WAITING),
        Defer(CAUSE, WAITING, NOW + 400.0),
        SetThrottle(CAUSE, WAITING, 1),
    )
    assert vetoes(shown, *decisions) == [], "bars of lending are none here"
    assert vetoes(shown, SetThrottle(CAUSE, HOST, 3)) == [], "by way of a task that runs"
    assert vetoes(cluster(guest_bar={WAITING: 1}), Start(CAUSE, WAITING)) == [], "to be let go is no harm"
    assert (
        vetoes(cluster(), Defer(CAUSE, WAITING, NOW + 90_000.0), settings=GuardSettings(most_defer_s=1e5))
        == []
    )


def test_a_job_is_told_one_verdict_one_start_and_one_throttle_a_cycle() -> None:
    arrays = Arrays(*(np.array([value], np.int32) for value in (WAITING, 3, 0, 0, 0)))
    shown = replace(cluster(array={WAITING: 0}), arrays=arrays)
    decisions = (Admit(CAUSE, WAITING), Defer(CAUSE, WAITING, NOW + 60.0), SetThrottle(CAUSE, WAITING, 2))
    again = (Decline(CAUSE, WAITING), Start(CAUSE, WAITING), SetThrottle(CAUSE, WAITING, 3))
    assert vetoes(shown, *decisions, *again) == [
        "vetoed (one change): whether it is admitted changes in this cycle already",
        "vetoed (one change): when it starts changes in this cycle already",
        "vetoed (one change): its throttle changes in this cycle already",
    ]
    assert vetoes(cluster(), Defer(CAUSE, WAITING, NOW + 60.0), offer()) == [
        "vetoed (one change): when it starts changes in this cycle already"
    ]


# ------------------------------------------------------------------------------------------------ properties


def test_every_guard_has_the_properties_that_bind_always() -> None:
    assert set(guard_for(frozenset({"waits"})).properties) == ALWAYS | {"waits"}
    with pytest.raises(KeyError, match="no such"):
        guard_for(frozenset({"no such"}))


def test_the_explanation_names_every_property_and_setting() -> None:
    page = (ROOT / "docs/explanation/guard.md").read_text(encoding="utf-8")
    for name in PROPERTIES:
        assert f"| {name} |" in page, name
    for column in fields(GuardSettings):
        assert f"`{column.name}`" in page, column.name


@pytest.mark.parametrize(
    ("columns", "consents", "decision", "why"),
    [
        ({}, {}, Evict(CAUSE, HOST, "cancel"), "its owner has not agreed to an eviction"),
        ({}, {"host": "cancel"}, Evict(CAUSE, OTHER_HOST, "cancel"), "its owner has not agreed"),
        (
            {},
            {"host": "requeue-hold"},
            Evict(CAUSE, HOST, "cancel"),
            "its owner chose requeue-hold, not cancel",
        ),
        ({}, {"waiting": "cancel"}, Evict(CAUSE, WAITING, "cancel"), "it does not run as a batch job"),
        ({}, {"guest": "cancel"}, Evict(CAUSE, GUEST, "cancel"), "it does not run as a batch job"),
        (
            {"host_bar": {HOST: 1}},
            {"host": "cancel"},
            Evict(CAUSE, HOST, "cancel"),
            "it is left alone: it opted out",
        ),
        ({}, {"host": "cancel"}, Evict(CAUSE, HOST, "cancel"), ""),
    ],
)
def test_nobody_is_evicted_who_has_not_agreed(
    columns: dict[str, dict[int, float]], consents: dict[str, str], decision: Evict, why: str
) -> None:
    seen = cluster(**columns)
    numbers = {"host": HOST, "other": OTHER_HOST, "waiting": WAITING, "guest": GUEST}
    agreed = {str(seen.jobs.job_id[numbers[name]]): how for name, how in consents.items()}
    allowed, vetoed = guard_for(frozenset(), SETTINGS, consents=agreed).check(seen, [decision])
    if why:
        assert not allowed and why in vetoed[0].reason
        assert vetoed[0].reason.startswith("vetoed (eviction consented): ")
    else:
        assert allowed == [decision] and not vetoed
        again = guard_for(frozenset(), SETTINGS, consents=agreed).check(seen, [decision, decision])
        assert again[0] == [decision] and "already" in again[1][0].reason

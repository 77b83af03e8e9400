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
from asad.decisions import (
    Admit,
    Cause,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.guard import ALWAYS, PROPERTIES, REPLAY, Guard, guard_for
from asad.ineligible import Ineligible
from asad.model import Arrays, Snapshot

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = GuardSettings()
CAUSE = Cause("test", "because", {"guest_end_s": 100.0, "wait_end_s": 200.0})


def offer(guest: int = WAITING, host: int = HOST, share: float = 0.3) -> CoAllocate:
    return CoAllocate(CAUSE, guest, (0 if host == HOST else 1,), host=host, share=share)


def pooled(*demands: float, guest: int = WAITING, nodes: tuple[int, ...] = (0,), **detail: Any) -> CoAllocate:
    """An offer that draws so much from the pools of these nodes."""
    cause = replace(CAUSE, detail={**CAUSE.detail, **detail})
    return CoAllocate(cause, guest, nodes, demands)


def beside(*rows: int, **columns: Any) -> Snapshot:
    """The made-up cluster where GUEST draws from the pool of its node; core after core of node 1 is held by `rows`."""
    shown = cluster(
        **{"host": {GUEST: -1, OFFERED: -1}, "share": {GUEST: math.nan}, "demand": {GUEST: 0.5}} | columns
    )
    shown.core_owner[4 : 4 + len(rows)] = rows
    return shown


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


def test_what_is_two_polls_from_its_limit_can_still_be_given_more() -> None:
    there, soon = frozenset({"time to extend"}), {"limit_end_s": {HOST: NOW + 60.0, GUEST: NOW + 60.0}}
    assert vetoes(beside(time_limit_s={WAITING: 60.0}, **soon), pooled(0.5), properties=there) == []
    guard = guard_for(there, SETTINGS, poll_s=31.0)
    assert len(guard.check(beside(**soon), [pooled(0.5)])[1]) == 1, (
        "two polls are a minute and two seconds there"
    )
    other = pooled(0.5, nodes=(1,))
    assert guard.check(beside(**soon), [other]) == ([other], []), "they are on another node"


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
        (
            {},
            CoAllocate(CAUSE, WAITING, (1,), host=HOST, share=0.3),
            "whole nodes): node n1 is not wholly held",
        ),
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
        ({"estimated_start_s": {WAITING: math.nan}}, offer(), "better off): its start has not been"),
        (
            {"time_limit_s": {WAITING: 59.0}},
            offer(),
            "time to extend): its limit of 59 s would end it before",
        ),
        (
            {"limit_end_s": {HOST: NOW + 59.0}},
            offer(),
            "time to extend): job 10 there is at its limit in 59 s, before that can be moved",
        ),
        ({"host_bar": {HOST: 2}}, offer(), f"opted out): the host cannot lend: {Ineligible(2).text}"),
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
    vetoed = vetoes(cluster(**columns), decision)
    assert len(vetoed) == 1
    assert vetoed[0].startswith(f"vetoed ({why}")


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


def test_a_host_that_shows_nothing_of_its_happiness_may_lend() -> None:
    assert vetoes(cluster(happiness={HOST: math.nan}), offer()) == []
    assert vetoes(cluster(happiness={HOST: 1.0}), offer()) == []


def test_the_floor_of_the_host_is_a_setting() -> None:
    assert vetoes(cluster(), offer(share=0.4)) == []
    vetoed = vetoes(cluster(), offer(share=0.4), settings=GuardSettings(host_floor=0.4))
    assert vetoed == ["vetoed (host floor): the host uses 30% and keeps 40% of headroom"]


def test_the_cap_of_a_node_counts_guests_offers_and_this_cycle() -> None:
    cap = frozenset({"node share cap"})
    assert vetoes(cluster(), offer(share=0.6), properties=cap) == []
    assert vetoes(cluster(), offer(share=0.7), properties=cap) == [
        "vetoed (node share cap): node n0 would lend 100%, more than 90%"
    ]
    beside_the_offer = CoAllocate(CAUSE, WAITING, (1,), host=OTHER_HOST, share=0.6)
    assert "n1 would lend 100%" in vetoes(cluster(), beside_the_offer, properties=cap)[0]
    assert vetoes(cluster(), SetShare(CAUSE, GUEST, 0.9), properties=cap) == []
    lowered = SetShare(CAUSE, GUEST, 0.1)
    assert vetoes(cluster(), lowered, offer(share=0.8), properties=cap) == []
    assert len(vetoes(cluster(share={GUEST: math.nan}), offer(share=0.1), properties=cap)) == 1
    assert len(vetoes(cluster(), offer(share=0.9), properties=cap, settings=REPLAY)) == 1, "as live"


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
    vetoed = vetoes(cluster(), SetShare(CAUSE, GUEST, 0.2), SetShare(CAUSE, GUEST, 0.1))
    assert vetoed == ["vetoed (one change): its lending changes in this cycle already (set-share)"]
    assert vetoes(cluster(), ExtendLimit(CAUSE, GUEST, 60.0), SetShare(CAUSE, GUEST, 0.2)) == []
    vetoed = vetoes(cluster(), ExtendLimit(CAUSE, GUEST, 60.0), ExtendLimit(CAUSE, GUEST, 60.0))
    assert vetoed == ["vetoed (one change): its limit changes in this cycle already"]


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


# ---------------------------------------------------------------------------------------------------- pools

POOLED = frozenset(PROPERTIES) - {"whole nodes"}
POOL = frozenset({"pool"})


def left(snapshot: Snapshot, node: int, *before: Decision, **detail: Any) -> float:
    """What the guard would let a guest take of a node after `before`, to a hundredth of a core."""
    offers = [pooled(number / 100, nodes=(node,), **detail) for number in range(1, 401)]
    free = replace(snapshot, machine=replace(snapshot.machine, memory_bytes=np.full(2, math.nan)))
    guard = guard_for(POOL, REPLAY)
    fits = [o.demands[0] for o in offers if o in guard.check(free, [*before, o])[0]]
    return max(fits, default=0.0)


def test_a_guest_takes_no_more_than_its_nodes_have_left() -> None:
    assert vetoes(beside(), pooled(0.6), properties=POOLED) == []
    assert vetoes(beside(), pooled(0.61), properties=POOLED) == [
        "vetoed (pool): node n0 has 0.60 cores' worth of CPU left, not 0.61"
    ]
    assert left(beside(), 1) == 2.8, "the host uses 20 % and keeps 10 %"
    gang = pooled(0.5, 3.0, nodes=(0, 1))
    assert vetoes(beside(), gang, properties=POOLED)[0].startswith("vetoed (pool): node n1 has 2.80")


def test_hosts_keep_the_95th_percentile_of_their_use() -> None:
    peaks = np.array([0.5] * 4 + [0.2, 0.2, 0.95, math.nan])
    shown = replace(beside(), core_peak=peaks)
    assert left(shown, 1) == 1.4, (
        "a core that is busy in its peaks lends nothing, nor one that is not measured"
    )
    assert left(shown, 0) == 0.0, "the guest takes more than is left"
    assert left(shown, 1, assumed_peak={"11": 0.5}) == 1.8
    assert left(shown, 1, assumed_peak={"10": 0.5}) == 1.4, "of another host"
    assert left(shown, 1, assumed_peak={"11": "half"}) == 1.4
    assert left(shown, 1, assumed_peak=[0.5]) == 1.4


def test_a_host_that_is_measured_counts_as_measured_whatever_is_assumed() -> None:
    assert left(beside(), 1, assumed_peak={"11": 0.0}) == 2.8
    assert left(beside(cpu_fraction={OTHER_HOST: math.nan}), 1) == 0.0
    assert left(beside(cpu_fraction={OTHER_HOST: math.nan}), 1, assumed_peak={"11": 0.4}) == 2.0


def test_what_guests_take_is_what_was_measured_of_them_at_their_pace_or_else_expected() -> None:
    assert left(beside(), 0) == 0.6, "2.4 less 90 % of two cores"
    assert left(beside(pace={GUEST: 0.5}), 0) == 1.5
    assert left(beside(pace={GUEST: math.nan}), 0) == 0.6
    assert left(beside(cpu_fraction={GUEST: math.nan}), 0) == 1.4
    assert left(beside(cpu_fraction={GUEST: math.nan}, demand={GUEST: math.nan}), 0) == 0.4


def test_free_cores_count_only_where_the_cluster_lends_them_as_a_usual_job_would_leave_them() -> None:
    shown = replace(beside(OTHER_HOST, OTHER_HOST, -1, -1), whole_nodes=False)
    assert left(shown, 1) == 1.4
    lent = replace(shown, lends_free_cores=True)
    assert left(lent, 1) == 1.4 + 1.3, "hosts use 25 % of their cores in the mean"
    unknown = replace(
        beside(-1, -1, -1, -1, cpu_fraction={HOST: math.nan, OTHER_HOST: math.nan}),
        whole_nodes=False,
        lends_free_cores=True,
    )
    assert left(unknown, 1) == 0.0, "nobody has been measured"


def test_only_nodes_that_one_job_holds_wholly_lend_where_the_cluster_wants_that() -> None:
    for rows in ((OTHER_HOST, OTHER_HOST, HOST, HOST), (OTHER_HOST, -1, OTHER_HOST, OTHER_HOST), (-1,) * 4):
        shown = replace(beside(*rows), lends_free_cores=True)
        assert left(shown, 1) == 0.0, rows
        assert left(replace(shown, whole_nodes=False), 1) > 2.0, rows


def test_ineligible_nodes_and_hosts_lend_nothing_to_pools() -> None:
    assert left(beside(host_bar={OTHER_HOST: 7}), 1) == 0.0
    mixed = replace(beside(HOST, HOST, host_bar={OTHER_HOST: 7}), whole_nodes=False)
    assert left(mixed, 1) == 1.2, "the other one does"
    for bar in (1, 3):
        assert left(beside(node_bar={1: bar}), 1) == 0.0
        assert vetoes(beside(node_bar={1: bar}), pooled(0.1, nodes=(1,)), properties=frozenset())[
            0
        ].startswith("vetoed (opted out): node n1 cannot lend: ")
    assert vetoes(beside(guest_bar={WAITING: 7}), pooled(0.1), properties=frozenset())[0].startswith(
        "vetoed (opted out): it cannot be a guest: "
    )


def test_what_was_promised_in_the_same_cycle_is_gone() -> None:
    free = beside(offered_s={OFFERED: math.nan})
    assert left(free, 1, pooled(1.0, guest=OFFERED, nodes=(1,))) == 1.8
    assert left(free, 1, pooled(0.5, guest=OFFERED, nodes=(0,))) == 2.8
    assert left(free, 1, pooled(9.0, guest=OFFERED, nodes=(1,))) == 2.8, "that was vetoed"


def test_headroom_of_pools_is_the_floor_of_hosts() -> None:
    settings = GuardSettings(host_floor=0.3)
    assert vetoes(beside(), pooled(2.0, nodes=(1,)), properties=POOLED, settings=settings) == []
    assert len(vetoes(beside(), pooled(2.1, nodes=(1,)), properties=POOLED, settings=settings)) == 1


@pytest.mark.parametrize("demands", [(), (0.1, 0.1), (math.nan,), (-0.1,), (math.inf,)])
def test_demands_that_are_none_are_vetoed(demands: tuple[float, ...]) -> None:
    (vetoed,) = vetoes(beside(), pooled(*demands), properties=POOL)
    assert vetoed.startswith("vetoed (pool): ")


def test_pools_do_not_bind_pairs_nor_whole_nodes_pools() -> None:
    assert vetoes(cluster(), offer(share=0.6), properties=POOL) == []
    assert vetoes(beside(), pooled(0.6), properties=frozenset({"whole nodes"})) == [
        "vetoed (whole nodes): node n0 is not wholly held by the host"
    ]


def test_memory_beside_a_pool_is_kept_for_whoever_starts_on_free_cores() -> None:
    half = replace(
        beside(OTHER_HOST, OTHER_HOST, -1, -1, memory_bytes_per_core={WAITING: 3.0}), whole_nodes=False
    )
    assert vetoes(half, pooled(0.5, nodes=(1,)), properties=frozenset({"memory"})) == []
    half.jobs.memory_bytes_per_core[WAITING] = 3.1
    vetoed = vetoes(half, pooled(0.5, nodes=(1,)), properties=frozenset({"memory"}))
    assert vetoed == ["vetoed (memory): its memory does not fit there"], "16 bytes, 8 of them for free cores"


def test_memory_that_was_promised_in_the_same_cycle_is_gone() -> None:
    free = beside(offered_s={OFFERED: math.nan}, memory_bytes_per_core={WAITING: 3.0, OFFERED: 3.0})
    both = pooled(0.5, guest=OFFERED, nodes=(1,)), pooled(0.5, nodes=(1,))
    assert vetoes(free, *both, properties=frozenset({"memory"})) == []
    free.jobs.memory_bytes_per_core[OFFERED] = 3.1
    assert len(vetoes(free, *both, properties=frozenset({"memory"}))) == 1


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"share_group": {HOST: 1}}, "share group): those there may not share with it"),
        ({"share_group": {GUEST: 1}}, "share group): those there may not share with it"),
        ({"happiness": {HOST: 0.9}}, "happiness floor): the host's happiness is 0.90"),
        ({"pressure": {HOST: 0.3}}, "pressure): the host waited for CPU 30% of the time"),
    ],
)
def test_whoever_is_on_a_node_counts(columns: dict[str, Any], why: str) -> None:
    (vetoed,) = vetoes(beside(**columns), pooled(0.1), properties=frozenset())
    assert vetoed.startswith(f"vetoed ({why}")
    assert vetoes(beside(**columns), pooled(0.1, nodes=(1,)), properties=frozenset()) == []


def test_who_is_offered_the_same_node_in_the_same_cycle_counts_too() -> None:
    free = beside(offered_s={OFFERED: math.nan}, share_group={OFFERED: 1, OTHER_HOST: 1})
    both = pooled(0.1, guest=OFFERED, nodes=(1,)), pooled(0.1, nodes=(1,))
    (vetoed,) = vetoes(free, *both, properties=frozenset())
    assert vetoed.startswith("vetoed (share group)")


def test_the_cap_of_a_node_counts_what_guests_of_pools_are_expected_to_use() -> None:
    capped, cap = frozenset({"node share cap"}), GuardSettings(node_share_cap=0.5)
    assert vetoes(beside(), pooled(1.0), properties=capped, settings=cap) == []
    assert vetoes(beside(), pooled(1.1), properties=capped, settings=cap) == [
        "vetoed (node share cap): node n0 would lend 52%, more than 50%"
    ]
    assert vetoes(beside(), pooled(2.0, nodes=(1,)), properties=capped, settings=cap) == []
    free = beside(offered_s={OFFERED: math.nan})
    both = pooled(1.0, guest=OFFERED, nodes=(1,)), pooled(1.1, nodes=(1,))
    assert len(vetoes(free, *both, properties=capped, settings=cap)) == 1


def test_a_quota_is_a_change_of_a_guests_lending() -> None:
    quota = SetQuota(CAUSE, GUEST, (0,), (1.0,))
    assert vetoes(beside(), quota, ExtendLimit(CAUSE, GUEST, 60.0), properties=POOLED) == []
    assert vetoes(beside(), quota, quota, properties=POOLED) == [
        "vetoed (one change): its lending changes in this cycle already (set-quota)"
    ]
    share = SetShare(CAUSE, share=0.3, host=HOST)
    assert vetoes(beside(), share, quota, properties=POOLED) == []
    assert vetoes(beside(), share, share, properties=POOLED) == [
        "vetoed (one change): what it lends changes in this cycle already"
    ]
    assert vetoes(beside(), pooled(0.1), SetQuota(CAUSE, WAITING, (0,), (1.0,)), properties=POOLED) == [
        "vetoed (one change): its lending changes in this cycle already (co-allocate)"
    ]


def two_guests(**columns: Any) -> Snapshot:
    """GUEST on node 0, and a newer one on its other half and on node 1."""
    shown = beside(
        **{
            "start_s": {OFFERED: 600.0},
            "offered_s": {OFFERED: math.nan},
            "demand": {GUEST: 0.5, OFFERED: 0.5},
        }
        | columns
    )
    shown.core_guest[[0, 1, 4]] = OFFERED
    return replace(shown, guests=np.array([GUEST, OFFERED], np.int32), queue=np.array([WAITING], np.int32))


def test_on_a_node_under_pressure_the_newest_guest_of_its_pool_gives_way() -> None:
    (relief,) = relieved(two_guests(pressure={HOST: 0.3}))
    assert isinstance(relief, SetQuota)
    assert (relief.guest, relief.nodes) == (OFFERED, (0, 1))
    assert relief.cores == pytest.approx((0.1, 0.05)), "it goes on with a twentieth of its cores"
    assert relief.cause == Cause("guard", "on node n0 job 10 waited for CPU 30% of the time")
    assert relieved(two_guests(pressure={HOST: 0.2})) == [], "the threshold itself is no pressure"
    assert relieved(two_guests(pressure={HOST: math.nan})) == []


def test_a_guest_gives_way_once_however_many_of_its_nodes_are_under_pressure() -> None:
    relief = relieved(two_guests(pressure={HOST: 0.3, OTHER_HOST: 0.3}))
    assert [(decision.kind, getattr(decision, "guest", None)) for decision in relief] == [
        ("set-quota", OFFERED)
    ]
    older = relieved(two_guests(pressure={HOST: 0.3}, start_s={OFFERED: 400.0}))
    assert [getattr(decision, "guest", None) for decision in older] == [GUEST]


def test_guests_of_pairs_lose_their_share_and_those_of_pools_their_quota() -> None:
    pair = cluster(pressure={HOST: 0.3}, demand={GUEST: math.nan})
    assert [decision.kind for decision in relieved(pair)] == ["set-share"]
    assert [decision.kind for decision in relieved(beside(pressure={HOST: 0.3}))] == ["set-quota"]
    assert relieved(beside(pressure={OTHER_HOST: 0.3})) == [], "no guest is there"


def test_the_quota_that_a_policy_wants_for_who_gives_way_is_vetoed() -> None:
    snapshot, guard = two_guests(pressure={HOST: 0.3}), guard_for(POOL, SETTINGS)
    relief = guard.relieve(snapshot)
    wish = [SetQuota(CAUSE, OFFERED, (0, 1), (2.0, 1.0)), SetQuota(CAUSE, GUEST, (0,), (1.0,))]
    allowed, vetoed = guard.check(snapshot, wish, relief)
    assert allowed == [*relief, wish[1]]
    assert [outcome.reason for outcome in vetoed] == [
        "vetoed (one change): its lending changes in this cycle already (set-quota)"
    ]


def test_an_offer_from_pools_is_withdrawn_when_its_time_is_over() -> None:
    (stale,) = relieved(beside(offered_s={OFFERED: NOW - 61.0}))
    assert stale == Withdraw(Cause("guard", "the offer was not taken for 61 s"), OFFERED)
    assert relieved(beside(pressure={OTHER_HOST: 0.5})) == [], "which of its nodes it is for nobody knows"


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
    vetoed = vetoes(replace(cluster(**columns), arrays=arrays), decision)
    assert len(vetoed) == 1
    assert vetoed[0].startswith(f"vetoed ({why}")


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


def test_a_job_is_given_one_verdict_one_start_and_one_throttle_a_cycle() -> None:
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

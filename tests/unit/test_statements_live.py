"""Statements of work on a made-up cluster: matched, held to their plans, charged, evicted as agreed."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from stated_cluster import APPLICATIONS, EPOCH, OPTIONS, ROUND_S, FirstFit, World, announced, job

from asad.admit.sow.arrivals import number_of
from asad.admit.sow.mechanisms import mechanism_of
from asad.admit.sow.statements_policy import Statements
from asad.decisions import Decline, Defer, Evict
from asad.errors import AsadError, UsageError
from asad.model import HOUSE, Finished, Snapshot, Tres


def round_of(time_s: float) -> float:
    return (time_s - EPOCH) / ROUND_S


def test_a_job_starts_in_its_planned_round_completes_and_is_charged() -> None:
    # its start is planned for round 4: another one holds all cores until there
    world = World([job("7", at=1, hint="sow=2", cores=2), job("8", 4, cores=4, hint="sow=1")])
    world.submit(announced("", due=0, cores=4, runs=[(0, 4, 1.0)]))
    (statement,) = world.submit(announced("", due=1, cores=2, runs=[(0, 2, 0.5), (1, 3, 0.5)]))
    assert statement["state"] == "planned"
    world.run(3)
    held = world.cluster.jobs[0]
    assert held.begin_s == EPOCH + 4 * ROUND_S and held.admitted
    assert world.state_of(2) == "arrived"
    world.run(5)
    assert round_of(held.all[0].start_s) == 4.0 and world.state_of(2) == "running"
    world.run(9)
    assert world.state_of(1) == world.state_of(2) == "completed"
    assert world.charged(2) == {"ann": -4_000_000, HOUSE: 4_000_000}  # 2 cores for 2 rounds
    assert world.charged(1) == {"ann": -16_000_000, HOUSE: 16_000_000}
    assert world.cluster.illegal == [] and not world.policy.consents
    assert world.policy.register.paid_micro == 20_000_000


def test_it_pays_for_the_rounds_that_it_ran_at_the_price_of_its_birth() -> None:
    world = World([job("7", run=3, hint="sow=1")])
    world.submit(announced("", due=1, runs=[(0, 2, 0.9), (0, 4, 0.1)]))
    price = world.plans[0]["plan"]["price"][0]  # type: ignore[index, call-overload]
    world.run(6)
    assert world.rows[1]["progress"]["rounds"] == 3  # type: ignore[index, call-overload]
    assert world.charged(1)["ann"] == -round(price[2] * 1e6)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "completed"),
        ({"cores": 2}, "missed"),  # another size
        ({"at": 0}, "missed"),  # it was there before it was announced
        ({"at": 9}, "missed"),  # long after it was announced to come
        ({"bar": 1}, "missed"),  # it opted out
    ],
)
def test_without_a_hint_a_job_is_known_by_user_name_and_cores_in_its_time(
    facts: dict[str, int], state: str
) -> None:
    world = World([job("7", **({"at": 2.5} | facts))])  # type: ignore[arg-type]
    world.run(1)
    world.submit(announced("train", due=3, runs=[(0, 2, 0.5), (1, 2, 0.5)]))
    world.run(16)
    assert world.state_of(1) == state
    assert (world.rows[1]["job"] == "7") == (state == "completed")


def test_another_users_job_of_that_name_is_not_it() -> None:
    world = World([job("7", at=2.5)])
    world.run(1)
    world.submit(announced("train", due=3), owner="bob")
    world.run(8)
    assert world.state_of(1) == "missed" and world.cluster.kinds("7") == []


def test_jobs_of_one_name_have_a_statement_each_in_the_order_of_their_times() -> None:
    world = World([job("7", at=2.5), job("8", at=3.5)])
    world.submit(announced("train", due=4), announced("train", due=3))
    world.run(9)
    assert (world.rows[2]["job"], world.rows[1]["job"]) == ("7", "8")
    assert len(world.plans) == 2


@pytest.mark.parametrize(
    ("hint", "facts", "why"),
    [
        ("sow=9", {}, "there is no open statement 9 of its user"),
        ("sow=1", {"cores": 2}, "it asks for 2 cores, and statement 1 is of 1"),
        ("sow=1", {"array": True}, "statement 1 is of one job, and it is an array"),
        ("sow=2", {}, "there is no open statement 2 of its user"),
    ],
)
def test_a_wrong_hint_is_reported_once_and_the_job_let_be(hint: str, facts: dict[str, int], why: str) -> None:
    blocker = job("1", run=5, cores=4)
    world = World([blocker, job("7", at=1, hint=hint, **facts)])  # type: ignore[arg-type]
    world.submit(announced("other", due=3))
    world.submit(announced("", due=3), owner="bob")
    world.run(4)
    declined = [decision for _, decision in world.cluster.done if isinstance(decision, Decline)]
    assert [why in decision.cause.reason for decision in declined] == [True]
    assert len(world.cluster.done) == 1
    world.run(9)
    assert not math.isnan(world.cluster.jobs[1].all[0].end_s)


@pytest.mark.parametrize("hint", ["sow=1", ""])
@pytest.mark.parametrize(
    ("amounts", "unknown", "why"),
    [
        ((2.0, 1.0), "", "it asks for 2 of gres/gpu, 1 of license/abaqus, and statement 1 is of cores alone"),
        ((0.0, 0.0), "it has gres by task", "takes beside cannot be counted: it has gres by task"),
        ((0.0, 0.0), "", None),
    ],
)
def test_who_wants_more_than_cores_is_not_priced_as_cores(
    monkeypatch: pytest.MonkeyPatch, hint: str, amounts: tuple[float, float], unknown: str, why: str | None
) -> None:
    world = World([job("1", run=2, cores=4), job("7", at=1, hint=hint)])
    world.submit(announced(due=3, runs=[(0, 2, 1.0)]))
    seen = world.cluster.snapshot

    def with_tres() -> Snapshot:
        names = ("gres/gpu", "license/abaqus")
        reasons = {1: unknown} if unknown else {}
        tres = Tres(names, np.array([[4.0, 0.0]]), np.array([0.0, 2.0]), {1: np.array(amounts)}, reasons)
        return replace(seen(), tres=tres)

    monkeypatch.setattr(world.cluster, "snapshot", with_tres)
    world.run(16)
    declined = [decision for _, decision in world.cluster.done if isinstance(decision, Decline)]
    assert [(one.job, str(why) in one.cause.reason) for one in declined] == ([(1, True)] if why else [])
    assert (world.rows[1]["job"] == "7") == (why is None)
    assert world.charged(1) == ({"ann": -2_000_000, HOUSE: 2_000_000} if why is None else {})
    assert not math.isnan(world.cluster.jobs[1].all[0].end_s)


def test_two_jobs_that_name_one_statement_at_once_have_it_once() -> None:
    first, second = job("7", run=5, at=1, hint="sow=1"), job("8", run=2, at=1, hint="sow=1")
    world = World([first, second])
    world.submit(announced("", due=1, runs=[(0, 5, 1.0)]))
    world.run(2)
    assert world.rows[1]["job"] == "7" and world.state_of(1) == "running"
    (listed,) = [decision for _, decision in world.cluster.done if isinstance(decision, Decline)]
    assert listed.cause.reason == "statement 1 is that of job 7" and listed.cause.detail["job"] == "8"
    world.run(9)
    assert world.state_of(1) == "completed" and world.rows[1]["job"] == "7"
    assert world.charged(1) == {"ann": -5_000_000, HOUSE: 5_000_000}
    assert not math.isnan(second.all[0].end_s)


@pytest.mark.parametrize("seen_to_run", [True, False])
def test_who_is_seen_while_the_cluster_completes_it_is_charged_when_it_has_ended(seen_to_run: bool) -> None:
    world = World([job("7", run=3, at=1, hint="sow=1")])
    world.submit(announced("", due=1, runs=[(0, 3, 1.0)]))
    world.run(2 if seen_to_run else 1)
    world.cluster.leaves.add("7")
    world.run(3)
    assert world.state_of(1) == ("running" if seen_to_run else "arrived")
    world.run(6)
    assert world.state_of(1) == "completed" and world.charged(1)["ann"] == -3_000_000


def test_nobody_is_charged_for_a_run_whose_end_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([job("7", run=2, at=1, hint="sow=1")])
    world.submit(announced("", due=1, runs=[(0, 2, 1.0)]))
    finished = world.cluster.finished

    def unknown(since_s: float) -> Finished:
        ended = finished(since_s)
        return replace(ended, end_s=np.nan * ended.end_s, run_s=np.nan * ended.run_s)

    monkeypatch.setattr(world.cluster, "finished", unknown)
    world.run(5)
    assert world.state_of(1) == "failed" and world.charged(1) == {"ann": 0, HOUSE: 0}
    assert world.rows[1]["reason"] == "how it ended is not known"


def test_a_plan_without_a_start_leaves_the_job_in_the_queue() -> None:
    world = World([job("7", at=1, hint="sow=1")])
    (statement,) = world.submit(announced("", due=3, value=1.0))
    assert statement["state"] == "declined" and "no start pays" in str(statement["reason"])
    world.run(5)
    assert 1 not in world.rows and world.plans == [], "nothing was promised, so nothing is kept"
    assert math.isnan(world.cluster.jobs[0].begin_s) and not world.cluster.jobs[0].admitted
    assert world.charged(1) == {}


def test_declined_statements_are_reported_and_kept_by_nobody() -> None:
    world = World([])
    for number in range(1, 60):
        (statement,) = world.submit(announced(f"cheap {number}", due=3, value=1.0))
        assert (statement["statement"], statement["state"]) == (number, "declined")
    assert world.rows == {} and world.plans == []
    status = world.policy.status("ann")
    assert status["counts"]["stated"] == status["counts"]["declined"] == 59  # type: ignore[index, call-overload]
    shown = [one["name"] for one in status["statements"]]  # type: ignore[index, union-attr, call-overload]
    assert shown == [f"cheap {number}" for number in range(40, 60)], "the last few, until the daemon stops"
    world.restart()
    (statement,) = world.submit(announced("good", due=3))
    assert (statement["statement"], statement["state"]) == (60, "planned"), "no number is given twice"
    assert len(world.policy.status()["statements"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "owner", "why"),
    [
        (
            {"most_open": 2},
            "ann",
            r"ann has 2 open statements, and 1 more are beyond the 2 .*\[admit\.sow\] most_open\)",
        ),
        ({"most_open_all": 2}, "bob", r"all owners together have 2 .* \(\[admit\.sow\] most_open_all\)"),
    ],
)
def test_no_more_statements_are_open_than_may_be(options: dict[str, int], owner: str, why: str) -> None:
    world = World([], options=OPTIONS._replace(**options))  # type: ignore[arg-type]
    world.submit(announced("a", due=3), announced("b", due=4))
    with pytest.raises(UsageError, match=why):
        world.submit(announced("c", due=5), owner=owner)
    world.policy.withdraw(1, "ann", world.cluster.now_s)
    assert world.submit(announced("c", due=5), owner=owner)[0]["state"] == "planned"


def test_prices_of_what_is_over_are_not_kept_in_memory() -> None:
    world = World([job("7", hint="sow=1")])
    world.submit(announced("", due=1), announced("gone", due=8))
    world.policy.withdraw(2, "ann", EPOCH)
    world.run(6)
    assert world.state_of(1) == "completed" and world.charged(1)["ann"] < 0
    assert [promise.price.size for promise in world.policy.register.over] == [0, 0]
    assert all(plan["plan"]["price"] for plan in world.plans)  # type: ignore[index, call-overload]


def test_who_comes_later_than_announced_has_no_plan_any_more() -> None:
    world = World([job("1", run=9, cores=4), job("7", at=4.6, hint="sow=1")])
    world.submit(announced("", due=3, runs=[(0, 2, 0.5), (1, 2, 0.5)]))
    world.run(6)
    assert world.state_of(1) == "declined" and "later than" in str(world.rows[1]["reason"])
    world.run(7)
    assert world.state_of(1) == "declined"


def test_who_does_not_end_well_pays_nothing() -> None:
    world = World([job("7", at=1, hint="sow=1")])
    world.cluster.fails.add("7")
    world.submit(announced("", due=1))
    world.run(6)
    assert world.state_of(1) == "failed" and world.charged(1) == {"ann": 0, HOUSE: 0}


def contended(how: str = "requeue-hold") -> World:
    """1 and 2 are planned side by side, 1 from round 4 on; then 9, which nobody has announced, takes what 1 needs."""
    first = job("7", run=4, at=3.5, hint="sow=1", cores=2)
    second = job("8", run=6, at=1, hint="sow=2", cores=2)
    world = World([first, second, job("9", run=20, at=1.5, cores=2)])
    world.submit(
        announced("", due=4, cores=2, runs=[(0, 4, 1.0)]),
        announced("", due=1, cores=2, runs=[(0, 6, 1.0)], eviction=how),
    )
    return world


@pytest.mark.parametrize("how", ["requeue-hold", "cancel"])
def test_the_latest_born_goes_when_an_earlier_born_is_due(how: str) -> None:
    world = contended(how)
    world.run(3)
    assert world.state_of(2) == "running" and world.policy.consents == {"8": how}
    world.run(6)
    assert world.cluster.evicted == ["8"] and world.state_of(2) == "evicted"
    assert world.charged(2) == {"ann": 0, HOUSE: 0}
    (evicted,) = [decision for _, decision in world.cluster.done if isinstance(decision, Evict)]
    assert evicted.how == how and evicted.cause.detail["statement"] == 2
    assert world.state_of(1) == "running" and not math.isnan(world.cluster.jobs[0].all[0].start_s)
    assert "7" in world.policy.consents and "8" not in world.policy.consents
    world.run(9)
    assert world.state_of(1) == "completed" and math.isnan(world.cluster.jobs[2].all[0].end_s)


def test_who_runs_before_his_start_goes_for_an_earlier_born_who_is_due() -> None:
    # 2 is planned behind 1 on all cores, but the cluster starts it at once
    early = job("8", run=9, at=1, hint="sow=2", cores=4)
    world = World([job("7", run=2, at=3, hint="sow=1", cores=4), early])
    world.submit(announced("", due=4, cores=4), announced("", due=1, cores=4, runs=[(0, 9, 1.0)], value=90.0))
    world.cluster.run(EPOCH + 120.0)
    assert not math.isnan(early.all[0].start_s)
    world.run(5)
    assert world.cluster.evicted == ["8"] and "ran before its start" in str(world.rows[2]["reason"])
    world.run(8)
    assert world.state_of(1) == "completed" and world.charged(2) == {"ann": 0, HOUSE: 0}


def test_a_deferral_that_came_too_late_does_not_delay_the_eviction() -> None:
    # 2 is planned behind 1, and starts between the look that saw it wait and its deferral
    early = job("8", run=9, at=2, hint="sow=2", cores=4)
    world = World([job("7", run=2, at=2, hint="sow=1", cores=4), early])
    world.submit(announced("", due=3, cores=4), announced("", due=2, cores=4, runs=[(0, 9, 1.0)], value=90.0))
    world.cluster.refuse.add("defer")
    world.cluster.jobs[0].begin_s = EPOCH + 3 * ROUND_S
    world.run(4)
    assert world.cluster.evicted == ["8"]
    ((when_s, _),) = [(at, one) for at, one in world.cluster.done if isinstance(one, Evict)]
    assert round_of(when_s) == 3, "it is not kept waiting for what was refused of the waiting job"


def test_what_the_cluster_refuses_to_evict_is_asked_again_later_and_not_charged() -> None:
    world = contended()
    world.cluster.refuse.add("evict")
    world.run(6)
    assert world.state_of(2) == "evicting"
    assert world.state_of(1) == "arrived", "it waits for what is about to be free, and keeps its plan"
    world.run(9)
    assert world.state_of(2) == "evicted" and "completed before" in str(world.rows[2]["reason"])
    assert world.charged(2) == {"ann": 0, HOUSE: 0}


def test_who_waits_for_a_start_that_has_no_room_waits_on_without_a_plan() -> None:
    hog = job("9", run=8, at=1, cores=4)
    world = World([job("7", at=1, hint="sow=1", cores=2), hog])
    world.submit(announced("", due=2, cores=2))
    world.run(4)
    assert world.state_of(1) == "cancelled" and world.charged(1) == {"ann": 0, HOUSE: 0}
    assert world.cluster.evicted == [] and "decline" in world.cluster.kinds("7")
    world.run(14)
    assert not math.isnan(world.cluster.jobs[0].all[0].end_s)


def test_what_others_hold_is_taken_from_the_capacity() -> None:
    world = World([job("9", run=5, cores=3), job("7", at=0.5, hint="sow=1", cores=2)])
    world.cluster.jobs[0].limit_s = 5 * ROUND_S
    world.run(1)
    world.submit(announced("", due=2, cores=2))
    world.run(3)
    assert world.cluster.jobs[1].begin_s == EPOCH + 5 * ROUND_S


def test_who_asks_for_prices_first_in_every_round_does_not_hide_what_others_hold() -> None:
    world = World([job("9", run=5, at=1.5, cores=3)])
    world.run(1)
    for half in range(3, 10):
        world.policy.quote(1, EPOCH + half * ROUND_S / 2)
        world.run(half / 2)
    (statement,) = world.submit(announced("later", due=5, cores=2))
    ((_, start_s, _),) = statement["plan"]  # type: ignore[misc]
    assert start_s == EPOCH + 12 * ROUND_S, "9 holds 3 of the 4 cores up to its time limit"


def test_a_statement_is_taken_back_before_its_job_runs() -> None:
    world = World([job("7", run=9, at=1, hint="sow=1")])
    world.submit(announced("", due=1), announced("later", due=8), announced("gone", due=8))
    with pytest.raises(UsageError, match="no open statement 2 of yours"):
        world.policy.withdraw(2, "bob", EPOCH)
    world.policy.withdraw(2, "ann", EPOCH)
    world.policy.withdraw(3, None, EPOCH)
    world.keep()
    assert world.state_of(2) == world.state_of(3) == "withdrawn"
    world.run(3)
    with pytest.raises(UsageError, match="its job 7 runs; scancel 7"):
        world.policy.withdraw(1, "ann", world.cluster.now_s)


@pytest.mark.parametrize("restarted", [False, True])
def test_who_takes_a_statement_back_has_his_waiting_job_back_too(restarted: bool) -> None:
    waits = job("7", at=1, hint="sow=1", cores=2)
    world = World([waits, job("1", run=1, cores=4)])
    world.submit(announced("", due=8, cores=2))
    world.run(2)
    assert waits.begin_s == EPOCH + 8 * ROUND_S and waits.admitted
    world.policy.withdraw(1, "ann", world.cluster.now_s)
    if restarted:
        world.restart()
    world.run(4)
    assert math.isnan(waits.begin_s) and not math.isnan(waits.all[0].start_s), (
        "nothing holds it back any more"
    )
    assert world.state_of(1) == "withdrawn" and world.charged(1) == {}
    assert "decline" in world.cluster.kinds("7"), "nor does it come before others"


def test_a_deferral_that_was_taken_back_by_hand_stays_so() -> None:
    world = World([job("1", run=3, cores=4), job("7", at=1, hint="sow=1", cores=2)])
    world.submit(announced("", due=8, cores=2))
    world.run(2)
    assert world.cluster.jobs[1].begin_s == EPOCH + 8 * ROUND_S
    world.cluster.jobs[1].begin_s = math.nan
    world.run(4)
    assert math.isnan(world.cluster.jobs[1].begin_s) and not math.isnan(world.cluster.jobs[1].all[0].start_s)


def test_a_job_with_a_begin_time_of_its_own_is_deferred_before_it_could_start() -> None:
    waits = job("7", at=1, hint="sow=2", cores=4, begin_s=EPOCH + 250)
    world = World([job("1", run=5, at=1, hint="sow=1", cores=4), waits])
    world.submit(announced("", due=1, cores=4, runs=[(0, 5, 1.0)]), announced("", due=3, cores=4))
    world.run(2)
    assert waits.begin_s == EPOCH + 6 * ROUND_S
    world.run(9)
    assert world.state_of(2) == "completed" and round_of(waits.all[0].start_s) == 6.0


def test_a_restart_finds_every_plan_and_makes_none_twice() -> None:
    world = World(
        [
            job("7", at=1, hint="sow=1", cores=2),
            job("8", 4, cores=4, hint="sow=2"),
            job("9", at=7, hint="sow=3"),
        ]
    )
    world.submit(announced("", due=4, cores=2))
    world.submit(announced("", due=0, cores=4, runs=[(0, 4, 1.0)]), announced("", due=7))
    for _ in range(20):
        world.restart()
        world.run(round_of(world.cluster.now_s) + 0.5)
    assert [world.state_of(number) for number in (1, 2, 3)] == ["completed"] * 3
    assert len(world.plans) == 3 and len(world.lines) == 6
    assert world.cluster.jobs[0].all[0].start_s == EPOCH + 4 * ROUND_S
    (statement,) = world.submit(announced("new", due=14))
    assert statement["statement"] == 4


def test_a_job_that_came_and_went_while_the_daemon_was_dead_has_no_line() -> None:
    world = World([job("7", at=1, hint="sow=1")])
    world.submit(announced("", due=4))
    world.run(2)
    assert world.state_of(1) == "arrived"
    # it is cancelled, and Slurm knows nothing of it any more
    world.cluster.jobs[0].all[0].end_s = world.cluster.now_s
    world.cluster.finished(math.inf)
    world.restart()
    world.run(8)
    assert world.state_of(1) == "withdrawn" and world.lines == []


def test_rounds_that_were_not_sold_are_not_charged() -> None:
    world = World([job("7", run=5, hint="sow=1")])
    world.submit(announced("", due=1))
    row = world.policy.register.open[1].price[0]
    # as mechanisms mark what is not sold: from the fourth round on
    row[3:] = [price + 2.0 * OPTIONS.most_value * at for at, price in enumerate(row[3:], 1)]
    world.run(9)
    assert world.state_of(1) == "completed" and world.charged(1)["ann"] == -3_000_000
    assert "of which 3 were sold" in str(world.rows[1]["reason"])


@pytest.mark.parametrize("name", ["sow", "sow-paper"])
def test_the_mechanisms_go_on_after_a_restart_as_if_there_had_been_none(name: str) -> None:
    options = OPTIONS._replace(most_cores=1)

    def lived(restarts: bool) -> tuple[dict[int, str], list[dict[str, object]], list[float]]:
        jobs = [job(str(k), run=3, at=k, hint=f"sow={k}", begin_s=EPOCH + 100.0 * k) for k in range(1, 7)]
        world = World([*jobs, job("9", run=7, at=2)], options=options, make=partial(mechanism_of, name))
        for k in range(1, 7):
            at = [(-1, 2, 0.3), (0, 3, 0.4), (2, 4, 0.3)]
            world.submit(announced("", due=k + 1, runs=at, value=30.0 + k, shape="linear"))
        for half in range(60):
            if restarts and half % 3 == 2:
                world.restart()
            world.run(half / 2)
        states = {number: world.state_of(number) for number in world.rows}
        return states, sorted(world.lines, key=str), [one.all[0].start_s for one in jobs]  # type: ignore[arg-type]

    once, often = lived(False), lived(True)
    assert once == often
    assert list(once[0].values()).count("completed") >= 3 and any(line["amount_micro"] for line in once[1])


def test_a_kill_before_an_eviction_was_confirmed_is_taken_up() -> None:
    world = contended()
    while not world.cluster.evicted:
        before = (dict(world.memory), {key: dict(row) for key, row in world.rows.items()}, len(world.lines))
        world.cycle.run_once()
        world.cluster.run(world.cluster.now_s + 25)
    # what was kept before the cluster was asked is all that is left of it
    assert world.state_of(2) == "evicting" and before[1][2]["state"] == "running"
    world.restart(keep=False)
    world.run(9)
    assert world.state_of(2) == "evicted" and world.charged(2) == {"ann": 0, HOUSE: 0}
    assert world.cluster.evicted == ["8"] and len(world.lines) == 4


@pytest.mark.parametrize("round_s", [50.0, 300.0])
def test_rounds_of_another_length_cancel_what_was_planned_in_the_old(round_s: float) -> None:
    waits = job("8", at=1, hint="sow=2")
    world = World([job("7", at=6, hint="sow=1"), waits])
    world.submit(announced("", due=6), announced("", due=8))
    world.run(2)
    assert waits.begin_s == EPOCH + 8 * ROUND_S
    world.options = OPTIONS._replace(round_s=round_s)
    world.restart()
    world.run(4)
    assert world.state_of(1) == world.state_of(2) == "cancelled"
    assert "announce it anew" in str(world.rows[1]["reason"])
    assert math.isnan(waits.begin_s) and not math.isnan(waits.all[0].start_s), "it waits for nothing any more"
    (statement,) = world.submit(announced("new", due=9))
    assert statement["statement"] == 3 and statement["state"] == "planned"
    assert statement["first_s"] == math.ceil((EPOCH + 900) / round_s) * round_s


def test_a_paused_daemon_starts_who_is_due_and_plans_nobody() -> None:
    world = World([job("1", run=3, cores=4), job("7", at=1, hint="sow=1", cores=2)])
    world.submit(announced("", due=4, cores=2))
    world.run(2)
    held = world.cluster.jobs[1]
    assert held.begin_s == EPOCH + 4 * ROUND_S
    world.cycle.paused = True
    world.run(3.5)
    assert held.begin_s == EPOCH + 4 * ROUND_S
    world.run(5)
    assert held.all[0].start_s == EPOCH + 4 * ROUND_S


def test_nothing_is_taken_before_it_is_known_what_was_promised() -> None:
    world = World([])
    with pytest.raises(AsadError, match="no node was seen yet"):
        world.policy.submit([announced()], "ann", EPOCH)

    fresh = Statements("sow", FirstFit, APPLICATIONS, OPTIONS)
    assert fresh.decide(world.cluster.snapshot()) == [] and not fresh.ready
    with pytest.raises(AsadError, match="the store has not answered yet"):
        fresh.submit([announced()], "ann", EPOCH)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"value": 101.0}, "value: 101 is more than the 100 that counts here"),
        ({"cores": 5}, "cores: 5 are more than the 4 that one job may have here"),
        ({"runs": [(0, 11, 1.0)]}, "runs: 1100 s are longer than the 1000 s"),
        ({"due": 25}, "due: it comes later than the 2000 s ahead"),
        ({"due": -9, "deadline_s": 2000.0}, "due: all of its times are past"),
        ({"due": -1, "deadline_s": 50.0}, "deadline: it is past"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_its_remedy(facts: dict[str, object], why: str) -> None:
    world = World([])
    world.cycle.run_once()
    with pytest.raises(UsageError, match="statement 2: ") as error:
        world.policy.submit([announced(), announced(**facts)], "ann", EPOCH)  # type: ignore[arg-type]
    assert why in str(error.value)
    assert world.policy.unkept()["statements"] == []


def test_one_owner_has_no_more_open_statements_than_allowed() -> None:
    world = World([], options=OPTIONS._replace(most_open=2))
    world.submit(announced("a", due=3), announced("b", due=4))
    with pytest.raises(UsageError, match="ann has 2 open statements"):
        world.submit(announced("c", due=5))
    world.submit(announced("c", due=5), owner="bob")


def test_others_read_neither_values_nor_prices() -> None:
    world = World([])
    world.submit(announced("a", due=3))
    (own,), (seen,) = (world.policy.status(owner)["statements"] for owner in ("ann", "bob"))
    assert own["value"] == 50.0 and "plan" in own  # type: ignore[index, call-overload, operator]
    hidden = {
        "value",
        "shape",
        "deadline_s",
        "expected_payment",
        "expected_utility",
        "paid",
        "plan",
        "reason",
    }
    assert not hidden & set(seen)  # type: ignore[arg-type]


def test_the_menu_of_a_shape() -> None:
    world = World([])
    world.cycle.run_once()
    menu = world.policy.quote(2, EPOCH)
    assert menu["first_s"] == EPOCH and menu["price"][0] == [None] * 10  # type: ignore[index, call-overload]
    assert menu["price"][1][2] == 6.0  # type: ignore[index, call-overload]
    with pytest.raises(UsageError, match="jobs of 1 to 4 cores"):
        world.policy.quote(5, EPOCH)


def test_the_defer_stage_leaves_them_alone() -> None:
    world = World([job("7", at=0, hint="sow=1"), job("8", at=0)])
    world.submit(announced("", due=8))
    world.run(1)
    seen = world.cluster.snapshot()
    assert world.policy.decides_start(seen, 0) and not world.policy.decides_start(seen, 1)


@pytest.mark.parametrize(
    ("text", "number"),
    [("sow=7", 7), ("asad:sow=7", 7), ("no;sow = 12", 12), ("sow=", None), ("sow=x", None), ("so=1", None)],
)
def test_the_hint(text: str, number: int | None) -> None:
    assert number_of(text) == number


def test_a_deferral_reaches_no_further_than_it_may() -> None:
    world = World([job("7", at=1, hint="sow=1", deadline_s=EPOCH + 900)])
    world.submit(announced("", due=8))
    world.run(2)
    # its own deadline leaves it the time that its limit asks for
    assert world.cluster.jobs[0].begin_s == EPOCH + 500
    until = [decision.until_s for _, decision in world.cluster.done if isinstance(decision, Defer)]
    assert until == [EPOCH + 500]

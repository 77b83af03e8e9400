"""A controller that takes seconds for every change: a cycle ends in time all the same, and releases first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from asad_slurm.cluster import LATER, in_turn
from asad_slurm.command import Answer
from slurm_samples import BECAUSE, START_S, Lab, SlurmInMemory, a_job, row, running, sample

from asad.decisions import CoAllocate, Decision, Defer, ExtendLimit, SetQuota, Start, Withdraw

CHANGE_S = 7.0


class SlowSlurm(SlurmInMemory):
    """Each change takes `CHANGE_S` by the clock of the lab."""

    lab: Lab

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        self.lab.now_s += CHANGE_S
        return super().update(raw, changes)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Hosts 1 to 4 on n1 to n4, jobs 10 to 59 that wait, and ten seconds a cycle for changes."""
    slurm = SlowSlurm()
    slurm.add(*(running(i, {f"n{i}": 2}) for i in range(1, 5)), *(a_job(i) for i in range(10, 60)))
    made = slurm.lab = Lab(tmp_path, slurm)
    for i in range(1, 5):
        made.actors.report(f"n{i}", sample(i))
    made.cluster.acting_s = 10.0
    return made


def test_what_a_cycle_has_no_time_for_is_left_to_the_next(lab: Lab) -> None:
    snapshot = lab.snapshot()
    rows = [row(snapshot, str(job)) for job in range(10, 60)]
    decisions: list[Decision] = [Defer(BECAUSE, one, START_S + 3600.0) for one in rows]
    begin_s = lab.now_s
    outcomes = list(lab.cluster.apply(decisions))
    assert lab.now_s - begin_s == 2 * CHANGE_S, "looked at between two changes"
    assert [outcome.done for outcome in outcomes] == [True, True] + 48 * [False]
    assert [outcome.decision for outcome in outcomes] == decisions
    assert {outcome.reason for outcome in outcomes[2:]} == {LATER}
    lab.snapshot(30)
    assert sum(outcome.done for outcome in lab.cluster.apply(decisions[2:])) == 2


def test_what_gives_back_comes_first_and_offers_come_last(lab: Lab) -> None:
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "10", "1", "n1") == ""
    lab.slurm.updates.clear()
    snapshot = lab.snapshot(5)
    lab.cluster.acting_s = math.inf
    snapshot = lab.snapshot(5)
    offer = CoAllocate(BECAUSE, row(snapshot, "11"), (1,), host=row(snapshot, "2"), share=0.5)
    held = Defer(BECAUSE, row(snapshot, "12"), START_S + 3600.0)
    longer = ExtendLimit(BECAUSE, row(snapshot, "3"), 60.0)
    back = Withdraw(BECAUSE, row(snapshot, "10"))
    outcomes = list(lab.cluster.apply([offer, held, longer, back]))
    assert all(outcome.done for outcome in outcomes)
    assert [job for job, _ in lab.slurm.updates] == ["10", "3", "12", "11"]


def test_decisions_about_one_job_stay_in_their_order(lab: Lab) -> None:
    snapshot = lab.snapshot()
    lab.cluster.acting_s = math.inf
    snapshot = lab.snapshot(5)
    later = Defer(BECAUSE, row(snapshot, "12"), START_S + 3600.0)
    decisions: list[Decision] = [later, Start(BECAUSE, later.job), Start(BECAUSE, row(snapshot, "13"))]
    assert in_turn(decisions) == [2, 0, 1]
    assert all(outcome.done for outcome in lab.cluster.apply(decisions[:1]))


def test_quotas_wait_for_nothing(lab: Lab) -> None:
    snapshot = lab.snapshot()
    lab.cluster.acting_s = 0.0
    snapshot = lab.snapshot(5)
    quota = SetQuota(BECAUSE, row(snapshot, "1"), (0,), (1.0,))
    longer = ExtendLimit(BECAUSE, row(snapshot, "3"), 60.0)
    first, second = lab.cluster.apply([longer, quota])
    assert first.reason == LATER and second.reason == "it does not run as a guest any more"


def test_offers_that_are_over_are_taken_back_over_several_looks(lab: Lab) -> None:
    lab.cluster.acting_s = math.inf
    snapshot = lab.snapshot()
    for i in range(4):
        assert lab.offer(snapshot, str(10 + i), str(1 + i), f"n{1 + i}") == ""
    lab.cluster.acting_s = 10.0
    lab.now_s += 61.0
    homes = []
    for _ in range(3):
        lab.snapshot()
        waits = [job for job in lab.slurm.jobs.values() if job["job_state"] == "PENDING"]
        homes.append(sum(job["partition"] == "batch" for job in waits))
    assert homes == [48, 50, 50]
    lab.snapshot()
    (outcome,) = lab.cluster.apply([ExtendLimit(BECAUSE, row(lab.snapshot(), "1"), 60.0)])
    assert outcome.done, "the next look has all its time for decisions"


def test_a_release_takes_its_time(lab: Lab) -> None:
    lab.cluster.acting_s = math.inf
    snapshot = lab.snapshot()
    for i in range(4):
        lab.offer(snapshot, str(10 + i), str(1 + i), f"n{1 + i}")
    lab.cluster.acting_s = 10.0
    lab.snapshot(5)
    assert len(lab.cluster.release()) == 4, "nothing comes after it"


# -------------------------------------------------------------------------------------------------------------- limits


def guest(lab: Lab, **facts: object) -> None:
    """Job 10 runs beside job 1, of a kind that is known to want half of its cores."""
    lab.cluster.acting_s = math.inf
    lab.slurm.add(running(4, {"n4": 2}, name="app10"))
    lab.snapshot()
    lab.actors.report("n4", sample(4, cpu_time_s=90.0), time_s=START_S + 30)
    lab.snapshot(30)
    lab.slurm.end(4, lab.now_s)
    lab.snapshot(5)
    assert lab.cluster.finished(0.0).cpu_fraction.tolist() == [0.5]
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", lab.now_s)
    lab.snapshot()


def test_a_guest_that_sleeps_loses_nothing(lab: Lab) -> None:
    guest(lab)
    asleep = sample(10, guest=True, cpu_fraction=0.0, delayed=0.0)
    for _ in range(10):
        lab.actors.report("n1", sample(1), asleep, time_s=lab.now_s)
        snapshot = lab.snapshot(60)
    at = row(snapshot, "10")
    assert snapshot.jobs.lost_s[at] == 0.0 and snapshot.jobs.pace[at] < 0.05


def test_a_guest_that_waits_for_cores_loses_what_it_waited(lab: Lab) -> None:
    guest(lab)
    waits = sample(10, guest=True, cpu_fraction=0.4, delayed=0.25)
    for _ in range(4):
        lab.actors.report("n1", sample(1), waits, time_s=lab.now_s)
        snapshot = lab.snapshot(60)
    assert snapshot.jobs.lost_s[row(snapshot, "10")] == pytest.approx(60.0)
    lab.actors.report("n1", sample(1), replace(waits, delayed=math.nan), time_s=lab.now_s)
    snapshot = lab.snapshot(60)
    assert snapshot.jobs.lost_s[row(snapshot, "10")] == pytest.approx(60.0 + 60.0 * (1.0 - 0.4 / 0.5)), (
        "an older actor does not say how long it waited"
    )


@pytest.mark.parametrize(("most", "minutes"), [(1.0, 10), (0.5, 5), (0.0, 0)])
def test_no_limit_grows_beyond_what_its_user_asked_for_again(lab: Lab, most: float, minutes: int) -> None:
    lab.settings["most_extension"] = most
    lab.settings["guest_partitions"] = {"batch": "guest"}
    lab.cluster = lab.open()
    guest(lab)
    for _ in range(20):
        lab.cluster.apply([ExtendLimit(BECAUSE, row(lab.snapshot(5), "10"), 120.0)])
    assert lab.slurm.jobs[10]["time_limit"] == 10 + minutes
    lab.cluster = lab.open()  # a daemon that starts anew does not begin to count again
    lab.cluster.recover()
    for _ in range(3):
        (outcome,) = lab.cluster.apply([ExtendLimit(BECAUSE, row(lab.snapshot(5), "10"), 120.0)])
    assert not outcome.done and lab.slurm.jobs[10]["time_limit"] == 10 + minutes

"""Deferral over the Slurm port in memory: what Slurm is asked, and what the journal knows of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from asad_slurm.undo import open_changes, undo_changes
from slurm_samples import START_S, Lab, SlurmInMemory, a_job, running

from asad.admit.everyone import Everyone
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.defer.deferral_options import Options
from asad.defer.deferral_policy import Deferral
from asad.defer.scorers import make_scorer
from asad.guard import guard_for
from asad.place.native import Native
from asad.share.exclusive import Exclusive

POLL_S = 30.0


def deferral(lab: Lab, **options: Any) -> tuple[Deferral, Cycle]:
    policy = Deferral(
        "edf-defer", make_scorer("edf"), lab.cluster.applications, Options(**options), poll_s=POLL_S
    )
    guard = guard_for(frozenset(), GuardSettings())
    return policy, Cycle(lab.cluster, Everyone(), policy, Native(), Exclusive(), guard)


def full(**more: Any) -> SlurmInMemory:
    """All cores are held for an hour; job 40 may start within two."""
    slurm = SlurmInMemory(nodes=2)
    slurm.add(
        *(running(50 + k, {node["name"]: 2}) for k, node in enumerate(slurm.nodes)),
        a_job(40, cpus=2, comment="asad:deferrable=2h", **more),
    )
    return slurm


def turn(lab: Lab, cycle: Cycle, seconds: float) -> None:
    """Time passes as for a daemon."""
    until_s = lab.now_s + seconds
    while lab.now_s < until_s:
        lab.now_s += POLL_S
        lab.slurm.now_s = lab.now_s
        for job in lab.slurm.jobs.values():
            if job.get("state_reason") == "BeginTime" and job["eligible_time"] <= lab.now_s:
                job["state_reason"] = "Priority"
        cycle.run_once()
        assert all(outcome.done for outcome in cycle.outcomes), cycle.outcomes


def begin_of(lab: Lab, job: int = 40) -> float:
    return float(lab.slurm.jobs[job].get("eligible_time") or 0.0)


def test_a_job_is_held_by_begin_time_and_let_go_when_there_is_room(tmp_path: Path) -> None:
    slurm = full()
    lab = Lab(tmp_path, slurm)
    policy, cycle = deferral(lab)
    turn(lab, cycle, POLL_S)
    assert begin_of(lab) == lab.now_s + 150.0
    turn(lab, cycle, 600.0)
    assert lab.now_s < begin_of(lab) <= lab.now_s + 150.0 and len(slurm.updates) < 12
    assert list(cycle.snapshot.own_begins.values()) == [pytest.approx(math.nan, nan_ok=True)]  # type: ignore[union-attr]
    slurm.end(50, lab.now_s)
    turn(lab, cycle, POLL_S)
    assert slurm.updates[-1] == ("40", {"StartTime": "now"})
    assert not open_changes(tmp_path / "offers.journal")
    slurm.start(40, "n1", lab.now_s)
    turn(lab, cycle, POLL_S)
    overview = policy.overview()
    assert overview["held_cores"] == 2.0 and overview["running"] == 1 and overview["waiting"] == 0


def test_a_users_own_begin_time_comes_back_from_the_journal(tmp_path: Path) -> None:
    own_s = START_S + 45.0
    slurm = full(eligible_time=int(own_s), state_reason="BeginTime")
    lab = Lab(tmp_path, slurm)
    _, cycle = deferral(lab)
    turn(lab, cycle, POLL_S)
    assert begin_of(lab) > own_s, "held before its time comes"
    lab.cluster = lab.open()  # the daemon is killed, and the next one goes on
    lab.cluster.recover()
    policy, cycle = deferral(lab)
    turn(lab, cycle, POLL_S)
    story = policy.explain("40")
    assert story is not None and story["earliest_s"] == own_s and story["latest_s"] == own_s + 7200.0
    assert list(cycle.snapshot.own_begins.values()) == [own_s]  # type: ignore[union-attr]


def test_a_lease_that_has_lapsed_is_taken_for_nobodys_own_begin_time(tmp_path: Path) -> None:
    lab = Lab(tmp_path, full())
    policy, cycle = deferral(lab)
    turn(lab, cycle, 60.0)
    before = policy.explain("40")
    lab.now_s += 1000.0  # the daemon was busy, or dead and started again
    turn(lab, cycle, POLL_S)
    assert begin_of(lab) > lab.now_s
    lab.cluster = lab.open()
    lab.cluster.recover()
    again, cycle = deferral(lab)
    turn(lab, cycle, POLL_S)
    after = again.explain("40")
    assert before is not None and after is not None
    assert (after["earliest_s"], after["latest_s"]) == (before["earliest_s"], before["latest_s"])


def test_a_daemon_that_dies_leaves_nothing_that_lasts(tmp_path: Path) -> None:
    lab = Lab(tmp_path, full())
    _, cycle = deferral(lab)
    turn(lab, cycle, 300.0)
    assert begin_of(lab) <= lab.now_s + 150.0, "Slurm starts it by itself then"
    assert set(open_changes(tmp_path / "offers.journal")) == {("40", "StartTime")}
    lines, _ = undo_changes(tmp_path / "none" / "offers.journal", older_than_s=0.0, now_s=lab.now_s)
    assert lines == []


def test_a_deadline_and_a_rule_of_a_qos(tmp_path: Path) -> None:
    from asad.defer.windows import Rule

    slurm = full()
    slurm.add(
        a_job(41, cpus=2, qos="night"),
        a_job(
            42,
            cpus=2,
            deadline=int(START_S) + 9000,
            eligible_time=int(START_S) + 900,
            state_reason="BeginTime",
        ),
    )
    lab = Lab(tmp_path, slurm)
    policy, cycle = deferral(lab)
    policy.deferrable.rules = (Rule(3600.0, qos=("night",), partitions=("batch",)),)
    turn(lab, cycle, POLL_S)
    windows = {key: policy.explain(key) for key in ("40", "41", "42")}
    assert windows["41"] is not None and windows["41"]["latest_s"] == START_S - 100.0 + 3600.0
    assert windows["42"] is not None and windows["42"]["latest_s"] == START_S + 9000.0 - 600.0
    assert windows["42"]["earliest_s"] == START_S + 900.0 and windows["42"]["state"] == "future"
    turn(lab, cycle, 900.0)
    again = policy.explain("41")
    assert again is not None and again["because"] == "a rule says that it is deferrable", (
        "while it is held too"
    )


def test_only_nodes_of_the_partition_count(tmp_path: Path) -> None:
    slurm = full()
    slurm.add(a_job(41, cpus=2, comment="asad:deferrable=2h", partition="gpu"))
    slurm.nodes.append({**slurm.nodes[0], "name": "g1", "partitions": ["gpu"]})
    lab = Lab(tmp_path, slurm)
    policy, cycle = deferral(lab)
    turn(lab, cycle, POLL_S)
    states = {key: policy.explain(key)["state"] for key in ("40", "41")}  # type: ignore[index]
    assert states == {"40": "held", "41": "let go"}


def test_a_hand_of_an_operator_is_let_be(tmp_path: Path) -> None:
    lab = Lab(tmp_path, full())
    policy, cycle = deferral(lab)
    turn(lab, cycle, 60.0)
    lab.slurm.jobs[40] |= {"eligible_time": int(lab.now_s), "state_reason": "Priority"}
    count = len(lab.slurm.updates)
    turn(lab, cycle, 300.0)
    assert len(lab.slurm.updates) == count and policy.explain("40")["state"] == "by hand"  # type: ignore[index]

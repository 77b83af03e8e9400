"""The admit stage on Slurm: what a snapshot shows of arrays and hints, what is changed of jobs and returned."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asad_slurm.admission import MOST_COMMENT
from asad_slurm.changes import SETTLES_S
from asad_slurm.command import Look
from asad_slurm.journal import MOST_LINES
from asad_slurm.records import MOST_HINT, hint
from asad_slurm.settings import read_settings
from asad_slurm.undo import ALIVE, open_changes
from slurm_samples import START_S, Lab, SlurmInMemory, a_job, names, row, running

from asad.decisions import Admit, Cause, Decision, Decline, Defer, SetThrottle, Start
from asad.errors import ClusterError, ConfigError
from asad.hold import Hold
from asad.model import Snapshot

WHY = Cause("oasis", "payoff 3.2; slots 5 to 9")
IN_AN_HOUR = START_S + 3600


def array(number: int = 20, tasks: str = "0-9", **facts: Any) -> dict[str, Any]:
    """An array of which these tasks wait."""
    return a_job(
        number,
        **{"array_job_id": number, "array_task_string": tasks, "array_max_tasks": 0, "cpus": 1, **facts},
    )


def task(number: int, index: int, of: int = 20, node: str = "n1") -> dict[str, Any]:
    """A task that runs."""
    return running(number, {node: 1}, array_job_id=of, array_task_id=index)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A job, 10, and an array, 20, that wait."""
    slurm = SlurmInMemory()
    slurm.add(a_job(10), array())
    return Lab(tmp_path, slurm)


def do(lab: Lab, decision: Decision) -> str:
    """Apply it, and say why it was not done."""
    (outcome,) = lab.cluster.apply([decision])
    assert outcome.done == (outcome.reason == "")
    return outcome.reason


def at(lab: Lab, job: str) -> int:
    return row(lab.snapshot(), job)


def iso(time_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time_s))


def changes(lab: Lab) -> dict[tuple[str, str], tuple[int, list[int]]]:
    """What the journal has open: what it was, and what we set it to."""
    found = open_changes(lab.state_dir / "offers.journal")
    return {key: (line["was"], line["ours"]) for key, line in found.items()}


# -------------------------------------------------------------------------------------------------------- snapshots


def test_a_snapshot_shows_partition_and_qos_of_what_waits(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    slurm.add(a_job(10, partition="batch", qos="gold"), array(20, "4-9", qos=""), running(30, {"n1": 4}))
    lab = Lab(tmp_path, slurm)
    snapshot = lab.snapshot()
    record = {str(snapshot.jobs.job_id[at]): classes for at, classes in snapshot.classes.items()}
    assert record == {"10": ("batch", "gold"), "20_4": ("batch", "")}


def test_a_snapshot_shows_arrays(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    slurm.add(
        a_job(10),
        array(20, "4-9,12", array_max_tasks=3),
        task(21, 2),
        task(22, 3, node="n2"),
        a_job(23, array_job_id=20, array_task_id=1, job_state="COMPLETED", start_time=1, end_time=5),
        task(41, 7, of=40, node="n3"),
        a_job(51, array_job_id=50, array_task_id=3),  # one task waits apart from the others
        array(50, "5-6"),
    )
    lab = Lab(tmp_path, slurm)
    snapshot = lab.snapshot()
    arrays, jobs = snapshot.arrays, snapshot.jobs
    assert len(arrays) == 3

    def shown(job: str) -> tuple[str | int, ...]:
        number = int(jobs.array[row(snapshot, job)])
        first = int(arrays.waiting_row[number])
        waits = str(jobs.job_id[first]) if first >= 0 else ""
        counts = (arrays.waiting, arrays.running, arrays.ended, arrays.throttle)
        return waits, *(int(count[number]) for count in counts)

    assert shown("20_2") == shown("20_3") == shown("20_4") == ("20_4", 7, 2, 1, 3)
    assert shown("40_7") == ("", 0, 1, 0, 0)
    assert shown("50_3") == shown("50_5") == ("50_5", 3, 0, 0, 0)
    assert jobs.array[row(snapshot, "10")] == -1
    assert snapshot.waiting == 1 + 7 + 3

    # task 2 is leaving: it runs no more
    slurm.jobs[21]["job_state"] = "COMPLETING"
    snapshot = lab.snapshot(5)
    arrays, jobs = snapshot.arrays, snapshot.jobs
    assert shown("20_2") == shown("20_4") == ("20_4", 7, 1, 2, 3)
    # task 4 starts, task 2 ends
    slurm.jobs[20]["array_task_string"] = "5-9,12"
    slurm.add(task(24, 4, node="n4"))
    slurm.end(21, lab.now_s + 5)
    snapshot = lab.snapshot(10)
    arrays, jobs = snapshot.arrays, snapshot.jobs
    assert shown("20_4") == shown("20_5") == ("20_5", 6, 2, 2, 3)
    finished = lab.cluster.finished(0.0).row.tolist()
    assert names(snapshot, finished) == ["20_2"] and shown("20_2") == shown("20_4")


def test_cancelled_tasks_are_over(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    slurm.add(array(), a_job(10))
    lab = Lab(tmp_path, slurm)
    lab.snapshot()
    # task 0 is cancelled before it ran, as scancel 20_0 does
    slurm.jobs[20]["array_task_string"] = "1-9"
    slurm.add(a_job(21, array_job_id=20, array_task_id=0, job_state="CANCELLED", end_time=int(START_S) + 1))
    arrays = lab.snapshot(5).arrays
    assert (arrays.waiting.tolist(), arrays.ended.tolist()) == ([9], [1])
    arrays = lab.snapshot(5).arrays
    assert (arrays.waiting.tolist(), arrays.ended.tolist()) == ([9], [1])
    # task 1 is cancelled and forgotten between two looks
    slurm.jobs[20]["array_task_string"] = "2-9"
    arrays = lab.snapshot(5).arrays
    assert (arrays.waiting.tolist(), arrays.ended.tolist()) == ([8], [2])
    # and then all of it
    del slurm.jobs[20], slurm.jobs[21]
    assert len(lab.snapshot(5).arrays) == 0


def test_begin_deadline_and_hints(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    begin, deadline = int(START_S) + 500, int(START_S) + 9000
    slurm.add(
        a_job(10, eligible_time=int(START_S) - 99),
        a_job(11, eligible_time=begin, deadline=deadline, state_reason="BeginTime", comment="asad:utility=x"),
        a_job(12, comment="note asad:utility=x"),
        running(1, {"n1": 2}, eligible_time=begin, comment="asad:\x1b[31mred\n"),
    )
    lab = Lab(tmp_path, slurm)
    snapshot = lab.snapshot()
    jobs = snapshot.jobs
    assert jobs.begin_s[row(snapshot, "11")] == begin and jobs.deadline_s[row(snapshot, "11")] == deadline
    assert np.isnan(jobs.begin_s[[row(snapshot, job) for job in ("10", "12", "1")]]).all()
    assert math.isnan(jobs.deadline_s[row(snapshot, "10")])
    assert snapshot.hints == {row(snapshot, "11"): "utility=x", row(snapshot, "1"): "�[31mred�"}
    slurm.jobs[11] |= {"comment": "", "eligible_time": begin + 60}
    snapshot = lab.snapshot(5)
    assert jobs.begin_s[row(snapshot, "11")] == begin + 60
    assert snapshot.hints.keys() == {row(snapshot, "1")}
    del slurm.jobs[1]
    for _ in range(3):
        snapshot = lab.snapshot(5)
        lab.cluster.finished(0.0)
    assert snapshot.hints == {}


def test_a_hint_that_is_too_long_is_not_taken_for_the_whole() -> None:
    assert hint("asad:" + "x" * MOST_HINT) == "x" * MOST_HINT
    seen = hint("asad:utility=constant(1)" + "x" * 100_000)
    assert len(seen) == MOST_HINT and seen.endswith("…")


# ------------------------------------------------------------------------------------------------- what is changed


def test_a_throttle_moves_and_the_users_own_is_kept(lab: Lab) -> None:
    lab.slurm.jobs[20]["array_max_tasks"] = 6
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    assert lab.slurm.updates == [("20", {"ArrayTaskThrottle": "3"})]
    assert lab.snapshot(5).arrays.throttle.tolist() == [3]
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""  # it is so already
    assert len(lab.slurm.updates) == 1
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 8)) == ""
    assert changes(lab) == {("20", "ArrayTaskThrottle"): (6, [3, 8])}
    lab.snapshot(5)
    assert lab.cluster.release() == ["20: it has its own throttle again"]
    assert lab.slurm.jobs[20]["array_max_tasks"] == 6 and changes(lab) == {}


def test_a_throttle_that_is_the_users_own_again_is_nothing_to_give_back(lab: Lab) -> None:
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 0)) == ""
    assert changes(lab) == {} and lab.cluster.release() == []


def test_a_throttle_by_a_task_that_runs(lab: Lab) -> None:
    lab.slurm.jobs[20]["array_task_string"] = "1-9"
    lab.slurm.add(task(21, 0))
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 2)) == ""
    assert lab.slurm.updates == [("20", {"ArrayTaskThrottle": "2"})]


def test_deferring_and_starting(lab: Lab) -> None:
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR - 0.5)) == ""
    assert lab.slurm.updates == [("10", {"StartTime": iso(IN_AN_HOUR)})]
    snapshot = lab.snapshot(5)
    assert snapshot.jobs.begin_s[row(snapshot, "10")] == IN_AN_HOUR and "10" not in names(
        snapshot, snapshot.queue
    )
    assert do(lab, Defer(WHY, row(snapshot, "10"), IN_AN_HOUR)) == ""  # it is so already
    assert len(lab.slurm.updates) == 1
    assert do(lab, Start(WHY, row(snapshot, "10"))) == ""
    assert lab.slurm.updates[1:] == [("10", {"StartTime": "now"})] and changes(lab) == {}
    snapshot = lab.snapshot(5)
    assert "10" in names(snapshot, snapshot.queue)
    assert do(lab, Start(WHY, row(snapshot, "10"))) == "" and len(lab.slurm.updates) == 2


def test_an_arrays_waiting_tasks_are_deferred_together(lab: Lab) -> None:
    lab.slurm.jobs[20]["array_task_string"] = "1-9"
    lab.slurm.add(task(21, 0))
    assert do(lab, Defer(WHY, at(lab, "20_0"), IN_AN_HOUR)) == ""
    assert lab.slurm.updates == [("20", {"StartTime": iso(IN_AN_HOUR)})]
    snapshot = lab.snapshot(5)
    assert snapshot.jobs.begin_s[snapshot.arrays.waiting_row[0]] == IN_AN_HOUR
    assert snapshot.arrays.running.tolist() == [1]


def test_nobody_starts_before_the_time_that_its_user_set(lab: Lab) -> None:
    own = int(START_S) + 1000
    lab.slurm.jobs[10] |= {"eligible_time": own, "state_reason": "BeginTime"}
    assert do(lab, Start(WHY, at(lab, "10"))) == "its user, or Slurm, has it begin later"
    assert do(lab, Defer(WHY, at(lab, "10"), START_S + 10)) == "" and lab.slurm.updates == []
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    assert do(lab, Defer(WHY, at(lab, "10"), START_S + 10)) == ""
    assert lab.slurm.jobs[10]["eligible_time"] == own and changes(lab) == {}
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    assert do(lab, Start(WHY, at(lab, "10"))) == "its user has it begin later"
    assert lab.slurm.jobs[10]["eligible_time"] == own


def test_admitted_jobs_keep_their_order_and_are_put_before_others(lab: Lab) -> None:
    lab.slurm.jobs[10]["nice"] = 100
    before = {job: lab.slurm.jobs[job]["priority"] for job in (10, 20)}
    for job in ("10", "20_0"):
        assert do(lab, Admit(WHY, at(lab, job))) == ""
    text = "asad: admitted by oasis: payoff 3.2; slots 5 to 9"
    assert lab.slurm.updates == [
        ("10", {"Nice": "-9900"}),
        ("10", {"AdminComment": text}),
        ("20", {"Nice": "-10000"}),
        ("20", {"AdminComment": text}),
    ]
    assert {job: lab.slurm.jobs[job]["priority"] - before[job] for job in (10, 20)} == {
        10: 10_000,
        20: 10_000,
    }
    assert do(lab, Admit(WHY, at(lab, "10"))) == "" and len(lab.slurm.updates) == 4
    lab.snapshot(5)
    assert sorted(lab.cluster.release()) == ["10: it has its own nice again", "20: it has its own nice again"]
    assert (lab.slurm.jobs[10]["nice"], lab.slurm.jobs[20]["nice"]) == (100, None)
    assert {job: lab.slurm.jobs[job]["priority"] for job in (10, 20)} == before


def test_a_nice_never_wraps_a_priority_around_nor_releases_a_held_job(lab: Lab) -> None:
    lab.slurm.jobs[10]["priority"] = 2**32 - 100
    assert do(lab, Admit(WHY, at(lab, "10"))) == ""
    assert lab.slurm.jobs[10]["priority"] < 2**32
    lab.slurm.jobs[20] |= {"priority": 0, "state_reason": "JobHeldUser"}
    assert do(lab, Admit(WHY, at(lab, "20_0"))) == "it is held, and its nice would release it"
    lab.slurm.jobs[10]["priority"] = 0
    lab.snapshot(5)
    assert lab.cluster.release() == [
        "10: its nice could not be restored: it is held, and its nice would release it"
    ]
    assert ("10", "Nice") in changes(lab)


@pytest.mark.parametrize("hangs", ["look", "update"])
def test_what_a_silent_slurm_leaves_changed_is_reported_at_the_release_beside_its_offers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    lab.slurm.jobs[10]["cpus"] = 1
    lab.slurm.add(a_job(11, cpus=1, memory_per_node=100), running(1, {"n1": 2}))
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "11", "1", "n1") == ""
    assert do(lab, Admit(WHY, row(snapshot, "10"))) == ""
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 2)) == ""
    assert len(changes(lab)) == 3

    def silent() -> Look:
        raise ClusterError("squeue: no answer within 1 s")

    if hangs == "look":
        monkeypatch.setattr(lab.slurm, "look", silent)
    lab.slurm.hangs = True
    lines = lab.cluster.release()
    assert [sentence.partition(":")[0] for sentence in lines] == ["11", "what was changed of 2 jobs stays so"]
    assert len(changes(lab)) == 3, "asad-undo restores it"


def test_a_site_may_leave_nice_alone(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    slurm.add(a_job(10))
    lab = Lab(tmp_path, slurm, admitted_nice=0)
    assert do(lab, Admit(WHY, at(lab, "10"))) == ""
    assert [words.keys() for _, words in slurm.updates] == [{"AdminComment"}]
    with pytest.raises(ConfigError, match=r"\[slurm\] admitted_nice: 5 is no number from -2000000000 to 0"):
        read_settings({"admitted_nice": 5})


def test_who_is_not_admitted_can_read_why_and_nothing_else_changes(lab: Lab) -> None:
    evil = Cause("oasis", 'its price\nis "high"; $(reboot) \x1b[31m' + "x" * 9999)
    assert do(lab, Decline(evil, at(lab, "10"))) == ""
    ((job, words),) = lab.slurm.updates
    assert job == "10" and list(words) == ["AdminComment"]
    text = words["AdminComment"]
    assert text.startswith('asad: not admitted by oasis: its price�is "high"; $(reboot) �[31mxxx')
    assert len(text) == MOST_COMMENT and text.isprintable() and text.endswith("…")
    assert do(lab, Decline(evil, at(lab, "10"))) == "" and len(lab.slurm.updates) == 1  # it says so already


def test_an_operator_may_not_comment_and_all_the_rest_goes_on(lab: Lab) -> None:
    lab.slurm.denies = "AdminComment"
    assert do(lab, Decline(WHY, at(lab, "10"))) == ""
    (text,) = lab.cluster.notices
    assert "only administrators" in text and lab.slurm.jobs[10].get("admin_comment") is None
    assert do(lab, Admit(WHY, at(lab, "20_0"))) == ""
    assert do(lab, Decline(WHY, at(lab, "10"))) == ""
    assert [list(words) for _, words in lab.slurm.updates] == [["AdminComment"], ["Nice"]]
    assert len(lab.cluster.notices) == 1


def test_what_others_wrote_stays(lab: Lab) -> None:
    lab.slurm.jobs[10]["admin_comment"] = "ticket 7"
    assert do(lab, Decline(WHY, at(lab, "10"))) == ""
    assert do(lab, Admit(WHY, at(lab, "10"))) == ""
    assert lab.slurm.jobs[10]["admin_comment"] == "ticket 7 asad: admitted by oasis: payoff 3.2; slots 5 to 9"


def test_decisions_that_come_too_late_are_answered(lab: Lab) -> None:
    lab.slurm.add(running(1, {"n1": 2}), task(31, 0, of=30, node="n2"), a_job(40, het_job_id=40))
    snapshot = lab.snapshot()
    waits_no_more = "it does not wait any more"
    for job in ("1", "30_0"):
        for decision in (
            Admit(WHY, row(snapshot, job)),
            Decline(WHY, row(snapshot, job)),
            Defer(WHY, row(snapshot, job), IN_AN_HOUR),
            Start(WHY, row(snapshot, job)),
            SetThrottle(WHY, row(snapshot, job), 2),
        ):
            assert do(lab, decision) == waits_no_more
    assert do(lab, Defer(WHY, 900, IN_AN_HOUR)) == do(lab, Defer(WHY, -1, IN_AN_HOUR)) == waits_no_more
    assert do(lab, Defer(WHY, 10**9, IN_AN_HOUR)) == waits_no_more
    waits = row(snapshot, "10")
    assert do(lab, SetThrottle(WHY, waits, 2)) == "it is no task of an array"
    assert do(lab, Defer(WHY, waits, START_S - 1)) == "that time has passed"
    for until_s in (math.inf, math.nan, 1e300):
        assert do(lab, Defer(WHY, waits, until_s)) == "there is no such time"
    assert "heterogeneous" in do(lab, Defer(WHY, row(snapshot, "40+0"), IN_AN_HOUR))
    assert lab.slurm.updates == [] and changes(lab) == {}


def test_a_job_with_an_offer_is_let_be(tmp_path: Path) -> None:
    slurm = SlurmInMemory()
    slurm.add(running(1, {"n1": 2}), a_job(10))
    lab = Lab(tmp_path, slurm)
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == "it has an offer to run as a guest"


def test_what_slurm_refuses_is_reported_and_not_journaled_on(lab: Lab) -> None:
    lab.slurm.refuses = "Access/permission denied"
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == "Slurm refused: Access/permission denied"
    assert changes(lab) == {}
    lab.slurm.refuses = ""
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    lab.slurm.refuses = "Access/permission denied"
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 5)) == "Slurm refused: Access/permission denied"
    assert changes(lab) == {("20", "ArrayTaskThrottle"): (0, [3, 5])}
    lab.slurm.refuses = ""
    lab.snapshot(5)
    lab.cluster.release()
    assert lab.slurm.jobs[20]["array_max_tasks"] == 0


def test_a_change_that_slurm_did_not_answer_is_kept_until_it_is_known(lab: Lab) -> None:
    snapshot = lab.snapshot()
    lab.slurm.hangs = True
    first, second = lab.cluster.apply(
        [Defer(WHY, row(snapshot, "10"), IN_AN_HOUR), Defer(WHY, row(snapshot, "20_0"), IN_AN_HOUR)]
    )
    assert "it is not known whether Slurm did it" in first.reason
    assert second.reason == "Slurm did not answer the change before this one"
    lab.slurm.hangs = False
    lab.snapshot(5)
    assert ("10", "StartTime") in changes(lab)
    # it did it in the end
    lab.slurm.jobs[10] |= {"eligible_time": int(IN_AN_HOUR), "state_reason": "BeginTime"}
    lab.snapshot(SETTLES_S)
    assert changes(lab) == {("10", "StartTime"): (0, [int(IN_AN_HOUR)])}
    lab.cluster.release()
    assert lab.slurm.jobs[10]["eligible_time"] == int(lab.now_s)
    # it never did
    lab.slurm.hangs = True
    assert "not known" in do(lab, SetThrottle(WHY, at(lab, "20_0"), 3))
    lab.slurm.hangs = False
    lab.snapshot(SETTLES_S / 2)
    assert ("20", "ArrayTaskThrottle") in changes(lab)
    lab.snapshot(SETTLES_S)
    assert changes(lab) == {} and lab.cluster.notices == []


def test_what_a_killed_predecessor_asked_for_last_may_come_after_it_was_returned(lab: Lab) -> None:
    array = 20
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    lab.slurm.hangs = True
    assert "not known" in do(lab, SetThrottle(WHY, at(lab, "20_0"), 5))
    lab.slurm.hangs = False
    lab.cluster = lab.open()
    lab.cluster.recover()
    lab.snapshot(1)
    lab.cluster.release()
    assert lab.slurm.jobs[array]["array_max_tasks"] == 0
    assert changes(lab) == {("20", "ArrayTaskThrottle"): (0, [3, 5])}, "the 5 may yet come"
    lab.slurm.jobs[array]["array_max_tasks"] = 5
    lab.snapshot(1)
    assert lab.cluster.notices == [], "that was nobody else"
    lab.cluster.release()
    assert lab.slurm.jobs[array]["array_max_tasks"] == 0 and changes(lab) == {}
    # what is wanted meanwhile does not make somebody else's of what comes late
    lab.slurm.hangs = True
    assert "not known" in do(lab, SetThrottle(WHY, at(lab, "20_0"), 3))
    lab.slurm.hangs = False
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 4)) == ""
    lab.slurm.jobs[array]["array_max_tasks"] = 3
    lab.snapshot(1)
    lab.cluster.release()
    assert lab.slurm.jobs[array]["array_max_tasks"] == 0 and lab.cluster.notices == []


def test_what_was_not_answered_may_come_though_what_was_asked_after_it_was_refused(lab: Lab) -> None:
    array = 20
    lab.slurm.hangs = True
    assert "not known" in do(lab, SetThrottle(WHY, at(lab, "20_0"), 3))
    lab.slurm.hangs, lab.slurm.refuses = False, "Access/permission denied"
    assert "denied" in do(lab, SetThrottle(WHY, at(lab, "20_0"), 4))
    lab.slurm.refuses = ""
    lab.cluster.release()
    assert changes(lab) == {("20", "ArrayTaskThrottle"): (0, [3, 4])}, "the 3 may yet come"
    lab.slurm.jobs[array]["array_max_tasks"] = 3
    lab.snapshot(1)
    lab.cluster.release()
    lab.snapshot(SETTLES_S)
    assert lab.slurm.jobs[array]["array_max_tasks"] == 0 and changes(lab) == {} and lab.cluster.notices == []


def test_the_life_of_a_change_is_that_of_a_hold(lab: Lab) -> None:
    def life() -> tuple[Hold, bool]:
        change = lab.cluster._obligations.changes._all[10, "StartTime"]
        return change.hold, change.unanswered

    lab.slurm.hangs = True
    assert "not known" in do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR))
    assert life() == (Hold.FREE, True)
    lab.slurm.hangs = False
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR + 60)) == ""
    assert life() == (Hold.HELD, False)
    lab.cluster = lab.open()
    lab.cluster.recover()
    assert life() == (Hold.FREE, True)
    lab.snapshot(1)
    assert life() == (Hold.HELD, True)  # it is there; whether it is the last that was asked for shows later
    lab.snapshot(3700)
    assert life() == (Hold.FREE, False) and lab.cluster._obligations.changes.open == {}
    lab.snapshot(-3000)
    assert life() == (Hold.HELD, False)
    change = lab.cluster._obligations.changes.open[10, "StartTime"]
    lab.slurm.jobs[10]["eligible_time"] = int(START_S) + 99_999
    lab.snapshot(5)
    assert change.hold is Hold.USER_OVERRIDE and lab.cluster._obligations.changes.jobs == set()


def test_what_somebody_else_has_changed_is_theirs(lab: Lab) -> None:
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    lab.slurm.jobs[20]["array_max_tasks"] = 7
    lab.slurm.jobs[10]["eligible_time"] = int(START_S) + 99_999
    lab.snapshot(5)
    assert sorted(lab.cluster.notices) == [
        "10: somebody else has set its begin time; it is let be",
        "20: somebody else has set its throttle; it is let be",
    ]
    assert changes(lab) == {} and lab.cluster.release() == []
    # from now on that is the user's own
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 2)) == ""
    assert changes(lab) == {("20", "ArrayTaskThrottle"): (7, [2])}


def test_changes_are_over_when_their_time_has_come_or_the_job_runs(lab: Lab) -> None:
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    assert do(lab, Admit(WHY, at(lab, "20_0"))) == ""
    lab.snapshot(3600)
    # its time has come; were the clock set back, it would be held by it again
    assert changes(lab).keys() == {("10", "StartTime"), ("20", "ArrayTaskThrottle"), ("20", "Nice")}
    lab.slurm.start(10, "n2", lab.now_s)
    lab.slurm.jobs[20] |= {"array_task_id": 9, "array_task_string": ""}
    lab.slurm.start(20, "n1", lab.now_s)
    lab.snapshot(5)
    assert changes(lab).keys() == {("20", "Nice")}  # were it requeued, it would wait with that
    lab.slurm.end(20, lab.now_s)
    lab.snapshot(5)
    assert changes(lab) == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_begin_time_that_had_come_is_returned_when_the_clock_is_set_back(lab: Lab, restarted: bool) -> None:
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    lab.snapshot(3700)
    if restarted:
        lab.cluster = lab.open()
        lab.cluster.recover()
    lab.snapshot(-3000)
    lab.cluster.release()
    assert lab.slurm.jobs[10]["eligible_time"] <= lab.now_s and changes(lab) == {}


def test_a_restart_keeps_the_changes_and_can_give_them_back(lab: Lab) -> None:
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    assert do(lab, Defer(WHY, at(lab, "10"), IN_AN_HOUR)) == ""
    lab.cluster = lab.open()
    assert lab.cluster.recover() == []
    snapshot = lab.snapshot(5)
    assert snapshot.arrays.throttle.tolist() == [3]
    assert snapshot.jobs.begin_s[row(snapshot, "10")] == IN_AN_HOUR
    assert len(changes(lab)) == 2 and len(lab.slurm.updates) == 2
    assert do(lab, SetThrottle(WHY, row(snapshot, "20_0"), 4)) == ""
    assert changes(lab)["20", "ArrayTaskThrottle"] == (0, [3, 4])
    # a daemon that admits no more
    assert lab.cluster.give_back() == [
        "20: it has its own throttle again",
        "10: it has its own begin time again",
    ]
    assert changes(lab) == {}


def test_the_daemons_pulse_is_there_while_there_are_changes(lab: Lab) -> None:
    alive = lab.state_dir / ALIVE
    lab.snapshot()
    assert not alive.exists()
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    lab.snapshot(5)
    assert abs(alive.stat().st_mtime - time.time()) < 60


def test_a_journal_that_cannot_be_written_changes_nothing(lab: Lab) -> None:
    decision = Defer(WHY, at(lab, "10"), IN_AN_HOUR)
    (lab.state_dir / "offers.journal").unlink()
    (lab.state_dir / "offers.journal").mkdir()
    assert "cannot be written" in do(lab, decision)
    assert lab.slurm.updates == []


def test_a_long_journal_is_shortened_to_what_is_open(lab: Lab) -> None:
    assert do(lab, SetThrottle(WHY, at(lab, "20_0"), 3)) == ""
    path = lab.state_dir / "offers.journal"
    lab.cluster._obligations.journal.lines = MOST_LINES + 1
    with path.open("a") as file:
        file.write('{"what": "closed", "time_s": 1, "job": "7"}\n' * 50)
    lab.snapshot(5)
    assert [json.loads(line)["what"] for line in path.read_text().splitlines()] == ["changed"]
    lab.cluster = lab.open()
    lab.cluster.recover()
    assert changes(lab) == {("20", "ArrayTaskThrottle"): (0, [3])}


def test_all_decisions_of_one_cycle(lab: Lab) -> None:
    """In the order in which a policy makes them for one job."""
    snapshot: Snapshot = lab.snapshot()
    at_10, at_20 = row(snapshot, "10"), row(snapshot, "20_0")
    outcomes = list(
        lab.cluster.apply(
            [
                Admit(WHY, at_20),
                SetThrottle(WHY, at_20, 4),
                Defer(WHY, at_20, IN_AN_HOUR),
                Decline(WHY, at_10),
            ]
        )
    )
    assert [outcome.reason for outcome in outcomes] == [""] * 4
    assert changes(lab).keys() == {("20", "Nice"), ("20", "ArrayTaskThrottle"), ("20", "StartTime")}
    lab.snapshot(5)
    lab.cluster.release()
    assert lab.slurm.updates[-1] == ("20", {"StartTime": "now", "ArrayTaskThrottle": "0", "Nice": "0"})
    assert changes(lab) == {}

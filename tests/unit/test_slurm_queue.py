"""Slurm's queue, served by Mesos: what is taken, held, reported, returned, and that nothing is lost or run twice."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from asad_mesos.driver import missing
from asad_mesos.gangs import began, outcome
from asad_mesos.handover import SlurmQueue
from asad_mesos.in_hand import AFTER, JOURNAL, Event, Handover, InHand, Stage
from asad_mesos.queue_settings import QueueSettings, read_queue
from asad_mesos.slurm_jobs import argued, arguments_of, file_name, not_taken, read_jobs, translated, wrap
from asad_mesos.slurm_queue import SlurmMesosCluster
from asad_mesos.slurm_side import Commands, Unknown
from asad_slurm.command import Unanswered
from slurm_side_on_paper import SCRIPT, Killed, PaperMesos, PaperSlurm, failing, job_of

from asad.config import parse
from asad.daemon import NoNodes, check, open_cluster
from asad.decisions import Start, Withdraw
from asad.errors import ClusterError, ConfigError, UsageError

MEBIBYTE = 2.0**20


class World:
    """Both sides, a clock, and a queue between them that can be killed and started again."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.slurm, self.mesos = PaperSlurm(), PaperMesos()
        self.folder, self.now_s = folder, 10_000.0
        self.settings = QueueSettings(**settings)  # type: ignore[arg-type]
        self.open()

    def open(self) -> None:
        self.queue = SlurmQueue(self.settings, self.slurm, self.mesos, self.folder, lambda: self.now_s)
        self.queue.may = True

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.now_s += 30.0
            self.queue.step()

    def comment(self, job: int) -> str:
        return self.slurm.comments.get(job, {}).get("AdminComment", "")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_head_job_is_held_run_under_its_user_reported_and_ended_in_slurm(world: World) -> None:
    world.slurm.add(17, admin_comment="the site's own")
    world.step()
    assert world.slurm.held == {17}
    (spec,) = world.mesos.specs.values()
    assert (spec.user, spec.uid, spec.retries) == ("nobody", 65534, -1)
    assert spec.origin.startswith("slurm:17:1000:")
    assert [(group.name, group.tasks) for group in spec.groups] == [("batch", 1), ("node", 1)]
    assert world.comment(17) == "the site's own asad: waits for Mesos as m1"
    world.mesos.start("m1", "a1", "a2")
    world.step(2)
    assert world.comment(17) == "the site's own asad: runs on Mesos as m1 on a1,a2"
    assert world.slurm.held == {17}
    world.mesos.finish("m1", 3)
    world.step(3)
    assert world.slurm.ended == {17: 1}
    text = "asad: failed on Mesos as m1: exit status 3, on a1,a2, in 60 s"
    assert world.comment(17) == f"the site's own {text}"
    assert world.slurm.accounts == {17: (3 << 8, f"the site's own {text}")}
    assert not world.queue.in_hand.now
    world.step(5)
    assert world.slurm.ended == {17: 1}
    assert world.mesos.ran == {"slurm:17:1000": 1}
    reasons = [outcome.decision.cause.reason for job, outcome in world.queue.acts if job == "17"]
    assert reasons == [
        "it waits for offers of Mesos as m1",
        "it runs on Mesos as m1 on a1,a2",
        "it failed on Mesos as m1: exit status 3, on a1,a2, in 60 s",
    ]
    assert all(isinstance(outcome.decision, Start) and outcome.done for _, outcome in world.queue.acts)


def test_a_job_that_mesos_cannot_serve_is_returned_untouched(world: World) -> None:
    world.slurm.add(17, comment="asad:utility=constant(1)", admin_comment="site")
    world.slurm.comments[17] = {"AdminComment": "site", "Comment": "asad:utility=constant(1)"}
    world.step()
    assert world.slurm.held == {17}
    world.step(21)
    assert world.slurm.waits(17)
    assert world.slurm.comments[17] == {"AdminComment": "site", "Comment": "asad:utility=constant(1)"}
    assert world.mesos.rows["m1"]["state"] == "cancelled"
    assert not world.queue.in_hand.now
    assert isinstance(world.queue.acts[-1][1].decision, Withdraw)
    world.step(10)
    assert world.slurm.waits(17), "it is left alone for a while"
    world.step(15)
    assert world.slurm.held == {17}, "and tried again"
    assert len(world.mesos.rows) == 2
    world.mesos.start("m2")
    world.mesos.finish("m2")
    world.step(4)
    assert world.slurm.ended == {17: 1}
    assert world.slurm.accounts[17][0] == 0


def test_a_clock_that_is_set_back_keeps_no_job_held_nor_left_alone(world: World) -> None:
    world.slurm.add(17)
    world.step()
    world.now_s -= 5000.0
    world.step()
    assert world.slurm.waits(17), "nobody knows how long it has waited"
    world.now_s -= 5000.0
    world.step()
    assert world.slurm.held == {17}, "nor how long it was left alone"


def test_a_job_that_starts_while_it_is_asked_back_runs_on(world: World) -> None:
    world.slurm.add(17)
    world.step()
    hold = world.mesos.hold

    def late(job: str, until_s: float) -> None:
        if until_s > 0:
            world.mesos.start(job)  # the offer came first
        hold(job, until_s)

    world.mesos.hold = late  # type: ignore[method-assign]
    world.step(21)
    assert world.mesos.rows["m1"]["state"] == "running"
    assert not world.mesos.held
    assert world.slurm.held == {17}


def test_only_so_many_wait_at_the_head_in_order_of_priority(tmp_path: Path) -> None:
    world = World(tmp_path, head=2)
    for job, priority in ((1, 10), (2, 30), (3, 20), (4, 5)):
        world.slurm.add(job, priority=priority)
    world.step(2)
    assert world.slurm.held == {2, 3}
    world.mesos.start("m1")
    world.step()
    assert world.slurm.held == {1, 2, 3}, "one that runs does not wait"


def test_in_observe_mode_nothing_is_taken_and_what_waits_goes_back(world: World) -> None:
    for job in (1, 2):
        world.slurm.add(job)
    world.queue.may = False
    world.step(3)
    assert not world.slurm.held
    world.queue.may = True
    world.step()
    world.mesos.start("m1")
    world.step()
    assert world.slurm.held == {1, 2}
    text = world.queue.return_waiting()
    assert world.slurm.held == {1}, "the one that runs goes on"
    assert any("slurm 2: it stays with Slurm: asad may not act" in sentence for sentence in text)
    world.mesos.finish("m1")
    world.queue.may = False
    world.step(3)
    assert world.slurm.ended == {1: 1}, "and is reported"


def test_users_who_cancel_in_slurm_cancel_on_mesos(world: World) -> None:
    world.slurm.add(17)
    world.step()
    world.mesos.start("m1")
    world.slurm.jobs[17] = replace(world.slurm.jobs[17], state="CANCELLED")
    world.step(3)
    assert world.mesos.rows["m1"]["state"] == "cancelled"
    assert world.slurm.ended == {}, "Slurm has ended it already"
    assert "cancelled on Mesos as m1" in world.slurm.accounts[17][1]
    assert not world.queue.in_hand.now


def test_a_hold_that_slurm_forgot_is_set_again(world: World) -> None:
    world.slurm.add(17)
    world.step()
    world.mesos.start("m1")
    world.slurm.held.clear()
    world.step()
    assert world.slurm.held == {17}


def test_an_end_that_slurm_forgot_is_reported_again_but_a_requeue_runs_anew(world: World) -> None:
    world.slurm.add(17)
    world.step()
    world.mesos.start("m1")
    world.mesos.finish("m1")
    world.step(3)
    assert world.slurm.ended == {17: 1}
    world.slurm.held.clear()
    world.slurm.jobs[17] = replace(world.slurm.jobs[17], state="PENDING")
    world.open()  # the next daemon knows it too
    world.step(2)
    assert world.slurm.ended == {17: 2}
    assert len(world.mesos.rows) == 1
    world.slurm.jobs[17] = replace(world.slurm.jobs[17], state="PENDING", restarts=1)
    world.step(3)
    assert world.slurm.held == {17}
    assert len(world.mesos.rows) == 2


def test_slurm_that_starts_it_first_is_let_be(world: World) -> None:
    world.slurm.add(17)

    def quick(verb: str) -> None:
        if verb == "hold done":
            world.slurm.jobs[17] = replace(world.slurm.jobs[17], state="RUNNING")

    world.slurm.trouble = quick
    world.step(2)
    assert not world.mesos.rows
    assert not world.slurm.held
    assert not world.queue.in_hand.now


def test_one_that_runs_in_slurm_after_all_has_its_own_comment_and_no_hold(world: World) -> None:
    world.slurm.add(17, admin_comment="site")
    world.step()
    world.slurm.jobs[17] = replace(world.slurm.jobs[17], state="RUNNING")
    world.step(3)
    assert world.mesos.rows["m1"]["state"] == "cancelled"
    assert world.slurm.comments[17] == {"AdminComment": "site"}
    assert not world.slurm.held, "a requeue would be held"
    assert not world.queue.in_hand.now and not world.slurm.ended


def test_one_that_ran_and_was_queued_again_while_it_was_held_is_released(world: World) -> None:
    world.slurm.add(17)

    def quick(verb: str) -> None:
        if verb == "hold done":
            world.slurm.jobs[17] = replace(world.slurm.jobs[17], submit_s=2000.0, restarts=1)

    world.slurm.trouble = quick
    world.step()
    assert world.slurm.waits(17) and not world.mesos.rows and not world.queue.in_hand.now


def test_a_job_that_is_gone_while_the_disk_is_full_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in (1, 2):
        world.slurm.add(job)
    world.step()
    for job in (1, 2):
        world.slurm.held.discard(job)  # slurmctld forgot it

    def gone(job: str) -> None:
        if job == "1":
            raise Unknown("scontrol: Invalid job id specified")
        world.slurm.held.add(int(job))

    def full(job: str, why: str) -> bool:
        raise ClusterError("mesos.journal: cannot be written")

    monkeypatch.setattr(world.slurm, "hold", gone)
    monkeypatch.setattr(world.mesos, "cancel", full)
    world.step()
    assert world.slurm.held == {2}
    assert "slurm 1: mesos.journal: cannot be written" in world.queue.messages


def test_an_operator_who_may_not_write_admin_comments_writes_comments(world: World) -> None:
    world.slurm.denied = {"AdminComment"}
    world.slurm.add(17, comment="mine")
    world.step()
    assert world.slurm.comments[17] == {"Comment": "mine asad: waits for Mesos as m1"}
    world.step(21)
    assert world.slurm.comments[17] == {"Comment": "mine"}


def test_who_may_not_hold_takes_nothing(world: World) -> None:
    world.slurm.denied = {"hold"}
    world.slurm.add(17)
    world.step(3)
    assert not world.mesos.rows
    assert not world.queue.in_hand.now
    assert any("may not hold" in sentence for sentence in world.queue.messages)


@pytest.mark.parametrize(
    "verb", ["look", "details", "script", "hold", "AdminComment", "end", "release", "account"]
)
def test_slurm_that_does_not_answer_is_asked_again(world: World, verb: str) -> None:
    world.slurm.add(1)
    world.slurm.trouble = failing(verb)
    world.step(2)
    for row in list(world.mesos.rows):
        world.mesos.start(row)
        world.mesos.finish(row)
    world.step(2)
    world.slurm.trouble = lambda verb: None
    world.step(3)
    for row, plain in world.mesos.rows.items():
        if plain["state"] == "queued":
            world.mesos.start(row)
            world.mesos.finish(row)
    world.step(4)
    assert world.slurm.ended == {1: 1}
    assert world.mesos.ran == {"slurm:1:1000": 1}


def test_a_cluster_without_accounting_is_no_reason_to_keep_jobs(world: World) -> None:
    world.slurm.trouble = failing("account")
    world.slurm.add(1)
    world.step()
    world.mesos.start("m1")
    world.mesos.finish("m1")
    world.step(6)
    assert not world.queue.in_hand.now
    assert any("accounting does not know" in sentence for sentence in world.queue.messages)


def test_a_full_disk_takes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.slurm.add(1)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    world.step(3)
    assert not world.slurm.held
    assert not world.mesos.rows
    monkeypatch.undo()
    world.step()
    assert world.slurm.held == {1}


def test_the_journal_is_private_and_damage_at_its_end_harms_nothing(world: World) -> None:
    world.slurm.add(1)
    world.step()
    path = world.folder / "slurm-queue.journal"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as file:
        file.write('{"job": 1, "state": "ov')
    world.open()
    world.mesos.start("m1")
    world.step()
    assert world.queue.in_hand.now[1].state == "served"
    world.mesos.finish("m1")
    world.step(3)
    assert world.slurm.ended == {1: 1}
    path.chmod(0o600)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="cannot be read"):
        world.open()


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_lost_or_run_twice_however_often_the_daemon_and_slurm_fail(
    tmp_path: Path, seed: int
) -> None:
    """Random deaths of the daemon before and after every call, commands that fail, holds that Slurm forgets."""
    rng = random.Random(seed)
    world = World(tmp_path, head=3, patience_s=120, again_s=60)
    for job in range(1, 6):
        world.slurm.add(job, priority=rng.randrange(1, 100))
    tasks = {"array_job_id": 6, "array_task_string": "0,4", "array_max_tasks": rng.randrange(3)}
    world.slurm.add(6, priority=rng.randrange(1, 100), **tasks)

    def trouble(verb: str) -> None:
        if rng.random() < 0.06:
            raise Killed
        if not verb.endswith("done") and rng.random() < 0.06:
            raise ClusterError(f"{verb}: no answer")

    def rounds(number: int) -> None:
        for _ in range(number):
            try:
                world.step()
            except Killed:
                world.open()
            for name, row in world.mesos.rows.items():
                if row["state"] == "queued" and rng.random() < 0.15:
                    world.mesos.start(name)
                elif row["state"] == "running" and rng.random() < 0.3:
                    world.mesos.finish(name, rng.choice((0, 0, 1)))
            if world.slurm.held and rng.random() < 0.05:
                world.slurm.held.discard(rng.choice(sorted(world.slurm.held)))
            for origin, times in world.mesos.ran.items():
                assert times == 1, f"{origin} has run {times} times"

    world.slurm.trouble = world.mesos.trouble = trouble
    rounds(60)
    world.slurm.trouble = world.mesos.trouble = lambda verb: None
    rounds(150)
    for job in range(1, 8):
        assert world.slurm.jobs[job].state == "CANCELLED", (
            f"{job} was lost: {world.queue.in_hand.now.get(job)}"
        )
        assert world.mesos.ran[f"slurm:{job}:1000"] == 1
        assert job in world.slurm.accounts
        assert job in world.queue.in_hand.over


def test_jobs_that_have_run_are_forgotten_in_the_end_and_the_journal_stays_short(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.queue.in_hand.lines = 6000
    world.slurm.add(1)
    world.step()
    world.mesos.start("m1")
    world.mesos.finish("m1")
    world.step(3)
    path = tmp_path / "slurm-queue.journal"
    assert len(path.read_text().splitlines()) < 20
    assert 1 in world.queue.in_hand.over
    del world.slurm.jobs[1]
    world.now_s += 8 * 86_400
    world.step()
    assert 1 not in world.queue.in_hand.over


def test_a_job_that_was_requeued_and_is_in_hand_again_is_still_in_hand_after_two_restarts(
    world: World,
) -> None:
    world.slurm.add(17)
    world.step()
    world.mesos.start("m1")
    world.mesos.finish("m1")
    world.step(3)
    assert 17 in world.queue.in_hand.over
    world.slurm.held.clear()
    world.slurm.add(17, restart_cnt=1)  # its user has requeued it
    world.step(2)
    assert world.queue.in_hand.now[17].mesos == "m2"
    for _ in range(2):
        world.open()
        world.step()
    assert world.queue.in_hand.now[17].mesos == "m2", "or it would be held for ever, and nobody would know"
    world.mesos.start("m2")
    world.mesos.finish("m2")
    world.step(3)
    assert world.slurm.ended == {17: 2}


def test_of_jobs_that_have_run_and_wait_again_one_that_slurm_refuses_to_end_keeps_no_other(
    world: World,
) -> None:
    for job in (1, 2):
        world.slurm.add(job)
    world.step()
    for name in ("m1", "m2"):
        world.mesos.start(name)
        world.mesos.finish(name)
    world.step(3)
    assert set(world.queue.in_hand.over) == {1, 2}
    for job in (1, 2):
        world.slurm.add(job)  # slurmctld was killed, and has forgotten their ends
    end = world.slurm.end

    def refused(job: str) -> None:
        if job == "1":
            raise ClusterError("scancel: it may not be")
        end(job)

    world.slurm.end = refused  # type: ignore[method-assign]
    world.step()
    assert world.slurm.ended == {1: 1, 2: 2}
    world.slurm.end = end  # type: ignore[method-assign]
    world.step()
    assert world.slurm.ended == {1: 2, 2: 2}


def test_jobs_whose_scripts_cannot_be_had_keep_nobody_else_from_being_taken(tmp_path: Path) -> None:
    world = World(tmp_path, head=1)
    for job in (1, 2, 3):
        world.slurm.add(job)
    whole = world.slurm.script

    def script(job: str) -> str:
        if job == "1":
            raise UsageError("its script is longer than 1024 KiB")
        if job == "2":
            raise ClusterError("scontrol: Error writing job script")
        return whole(job)

    world.slurm.script = script  # type: ignore[method-assign]
    world.step()
    assert world.slurm.held == {3}
    assert "stays with Slurm: its script is longer" in world.comment(1)


def test_a_comment_that_slurm_does_not_take_back_keeps_no_job(world: World) -> None:
    world.slurm.add(17)
    world.step()
    assert world.comment(17)
    world.slurm.trouble = failing("AdminComment")
    world.step(21)
    assert not world.slurm.waits(17), "it is tried again first"
    world.step(2)
    assert world.slurm.waits(17)
    assert not world.queue.in_hand.now
    assert any("its own AdminComment is not restored" in sentence for sentence in world.queue.messages)


def test_a_daemon_of_slurms_that_hangs_is_waited_for_once_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def finish(argv: Sequence[str], *others: object) -> tuple[int, bytes, bytes]:
        asked.append(argv[0])
        if argv[0] != "squeue":
            raise Unanswered(f"{argv[0]}: no answer within 10 s")
        return 0, b"17|17|PENDING|5|mesos|None\n", b""

    monkeypatch.setattr("asad_mesos.slurm_side.finish", finish)
    commands = Commands()
    for _ in range(2):
        assert list(commands.look()) == [17]
        for job in ("17", "18"):
            with pytest.raises(Unanswered):
                commands.hold(job)
            with pytest.raises(Unanswered):
                commands.account(job, 0, "done")
    assert asked == 2 * ["squeue", "scontrol", "sacctmgr"]


def test_a_script_that_is_too_long_for_mesos_is_no_fault_of_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asad_mesos.slurm_side.finish", lambda *others: (0, b"x" * (2**20 + 1), b""))
    with pytest.raises(UsageError, match="longer than 1024 KiB"):
        Commands().script("17")


def test_an_array_runs_task_by_task_no_more_at_one_time_than_its_user_allows(world: World) -> None:
    world.slurm.add(40, array_job_id=40, array_task_string="2,5,7", array_max_tasks=2)
    world.step()
    assert world.slurm.jobs[41].task == 2
    assert not world.slurm.held, "it is a job of its own first"
    world.step(3)
    assert world.slurm.held == {41, 42}, "the third waits until one of them has ended"
    origins = [spec.origin for spec in world.mesos.specs.values()]
    assert [origin.split(":")[1] for origin in origins] == ["41", "42"]
    spec = world.mesos.specs["m1"]
    assert spec.environment["SLURM_ARRAY_JOB_ID"] == "40"
    assert spec.environment["SLURM_ARRAY_TASK_ID"] == "2"
    assert "/tmp/slurm-40_2.out" in spec.script
    world.mesos.start("m1")
    world.mesos.finish("m1")
    world.step(8)
    assert world.slurm.ended == {41: 1}
    # the last task has the array's own number
    assert world.slurm.jobs[40].task == 7
    assert {40, 42} <= world.slurm.held
    for name in ("m2", "m3"):
        world.mesos.start(name)
        world.mesos.finish(name)
    world.open()
    world.step(5)
    assert world.slurm.ended == {40: 1, 41: 1, 42: 1}
    assert not world.queue.in_hand.now


@pytest.mark.parametrize("shown", ["7", "7%2"])
def test_the_last_task_of_an_array_is_taken_though_it_is_shown_as_a_list(world: World, shown: str) -> None:
    """26.05 shows it so for as long as it waits, however often it is split off."""
    world.slurm.denied = {"split"}
    world.slurm.add(40, array_job_id=40, array_task_string=shown, array_max_tasks=2)
    world.step(2)
    assert world.slurm.held == {40}
    assert world.slurm.jobs[40].task == 7
    assert world.mesos.specs["m1"].environment["SLURM_ARRAY_TASK_ID"] == "7"


@pytest.mark.parametrize(
    ("job", "found", "state"),
    [
        ("17", {"17": "17|COMPLETED\n"}, "COMPLETED"),
        ("17_3", {"17_3": "17_3|CANCELLED by 0\n"}, "CANCELLED"),
        # the last task, which never ran, on 26.05
        ("17_3", {"17": "17_[3%2]|CANCELLED by 0\n17_1|FAILED\n17_2|COMPLETED\n"}, "CANCELLED"),
        ("17_3", {"17": "17_1|FAILED\n17_[30]|PENDING\n17_[3-4]|PENDING\n"}, ""),
        ("17", {}, ""),
    ],
)
def test_what_accounting_says_became_of_a_job(
    monkeypatch: pytest.MonkeyPatch, job: str, found: dict[str, str], state: str
) -> None:
    def finish(argv: Sequence[str], *others: object) -> tuple[int, bytes, bytes]:
        return 0, found.get(argv[-1].removeprefix("--jobs="), "").encode(), b""

    monkeypatch.setattr("asad_mesos.slurm_side.finish", finish)
    assert Commands().past(job) == state


def test_each_waiting_task_of_an_array_is_seen_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `--array` 26.05 shows those that are held with those that are not, in one line."""

    def finish(argv: Sequence[str], *others: object) -> tuple[int, bytes, bytes]:
        assert "--array" in argv
        return 0, b"24|23|PENDING|0|mesos|JobHeldAdmin\n23|23|PENDING|5|mesos|None\n", b""

    monkeypatch.setattr("asad_mesos.slurm_side.finish", finish)
    assert {job: short.priority for job, short in Commands().look().items()} == {24: 0, 23: 5}


def test_jobs_that_want_nodes_of_their_own_are_distinguished_by_newer_slurms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """26.05 reports them in a form of JSON that is not its newest."""
    forms = "data_parser/v0.0.45\ndata_parser/v0.0.44\n"
    job = {"job_id": 7, "job_state": ["PENDING"], "shared": ["none"]}

    def finish(argv: Sequence[str], *others: object) -> tuple[int, bytes, bytes]:
        shown = {"--json=list": forms, "--json=v0.0.44": json.dumps({"jobs": [job]})}
        return 0, shown[argv[-1]].encode(), b""

    monkeypatch.setattr("asad_mesos.slurm_side.finish", finish)
    assert Commands().details([7])[7].bar == "it wants whole nodes (--exclusive)"


def test_an_array_task_that_mesos_cannot_serve_goes_back_alone(world: World) -> None:
    world.slurm.add(40, array_job_id=40, array_task_string="0,1")
    world.step(4)
    assert world.slurm.held == {40, 41}
    world.mesos.start("m1")
    world.step(22)
    assert world.slurm.held == {41}
    assert world.slurm.waits(40)


def test_a_job_that_waits_for_another_is_not_taken_before_and_not_complained_about(world: World) -> None:
    world.slurm.add(5, dependency="afterok:4(unfulfilled)", state_reason="Dependency")
    world.slurm.add(6, dependency="afterok:4(unfulfilled)")
    world.step(5)
    assert not world.slurm.held
    assert not world.queue.messages
    for job in (5, 6):
        world.slurm.jobs[job] = replace(world.slurm.jobs[job], dependency="", reason="PartitionDown")
    world.step(2)
    assert world.slurm.held == {5, 6}


def test_a_job_that_stays_with_slurm_says_why_in_its_comment(world: World) -> None:
    world.slurm.add(5, script="#!/bin/sh\nsrun ./a\n", admin_comment="site")
    world.slurm.add(6, licenses="matlab")
    world.slurm.add(7, state_reason="BeginTime")
    world.step(2)
    assert "asad: stays with Slurm: its script starts job steps" in world.comment(5)
    assert world.comment(5).startswith("site asad: ")
    assert world.comment(6) == "asad: stays with Slurm: it wants licences"
    assert 7 not in world.slurm.comments, "it need not always be so"
    before = dict(world.slurm.comments[6])
    world.step(40)
    assert world.slurm.comments[6] == before
    world.slurm.jobs[6] = replace(world.slurm.jobs[6], bar="", admin_comment=world.comment(6))
    world.step(25)
    assert world.comment(6) == "asad: waits for Mesos as m1"


# ------------------------------------------------------------------------------------------------- one job, translated


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"partition": "mesos,batch"}, "other partitions"),
        ({"state_reason": "Dependency"}, "other than its turn"),
        ({"state_reason": "JobHeldUser", "priority": 0}, "other than its turn"),
        ({"het_job_id": 5}, "heterogeneous"),
        ({"licenses": "matlab"}, "licences"),
        ({"features": "avx"}, "features"),
        ({"required_nodes": "n1"}, "certain nodes"),
        ({"resv_name": "r"}, "reservation"),
        ({"shared": "none"}, "whole nodes"),
        ({"tres_per_node": "gres:nvme:1"}, "gres"),
        ({"tres_per_node": "gres:gpu:tesla:1"}, "gres"),
        ({"tres_per_task": "gres:gpu:1"}, "by job, socket or task"),
        ({"tres_per_task": "cpu=2,gres/gpu=1"}, "by job, socket or task"),
        ({"batch_flag": False}, "no batch script"),
        ({"command": "/home/a/job.sh a  b"}, "arguments with blanks"),
        ({"command": "/home/a/job.sh "}, "arguments with blanks"),
        ({"memory_per_cpu": None, "flags": ["JOB_MEM_SET"]}, "all memory"),
        ({"memory_per_cpu": None, "flags": ["EXACT_MEMORY_REQUESTED"]}, "all memory"),
        ({"user_name": ""}, "has no name"),
        ({"job_state": "RUNNING"}, "does not wait"),
    ],
)
def test_what_mesos_cannot_serve_stays_with_slurm(changed: dict[str, object], why: str) -> None:
    assert not_taken(job_of(1), "mesos") == ""
    assert not_taken(job_of(1, tres_per_task="cpu=2"), "mesos") == "", "of newer Slurms: --cpus-per-task"
    assert why in not_taken(job_of(1, **changed), "mesos")


@pytest.mark.parametrize(
    ("command", "name", "found"),
    [
        ("/home/a/job.sh", "job.sh", ()),
        ("/home/a/job.sh x -y", "job.sh", ("x", "-y")),
        ("/home/a/my job.sh x", "my job.sh", ("x",)),
        ("/home/a/my job.sh x", "other", ("job.sh", "x")),
        ("/home/a/job.sh /b/job.sh", "job.sh", ("/b/job.sh",)),
        ("/home/a/job.sh $(id) `id`;", "job.sh", ("$(id)", "`id`;")),
        ("", "wrap", ()),
    ],
)
def test_arguments_are_distinguished_by_blanks(command: str, name: str, found: tuple[str, ...]) -> None:
    assert arguments_of(command, name) == found


@pytest.mark.parametrize(
    ("command", "line", "found"),
    [
        ("/home/a/job.sh", "sbatch --time=5 job.sh", ()),
        ("/home/a/job.sh", "sbatch job.sh x -y", ("x", "-y")),
        ("/home/a/job.sh", "sbatch ./job.sh $(id) /b/data", ("$(id)", "/b/data")),
        ("/home/a/my job.sh", "sbatch -p mesos /home/a/my job.sh x", ("x",)),
        ("/home/a/job.sh", "sbatch -J job.sh job.sh x", None),  # which of them is the script?
        ("/home/a/job.sh", "sbatch other.sh x", None),
        ("/home/a/job.sh", "sbatch job.sh a  b", None),  # an argument with blanks, or an empty one
        ("/home/a/job.sh", "sbatch job.sh ", None),
        ("/home/a/job.sh x", "sbatch job.sh x", None),  # a path with a blank, or an argument?
    ],
)
def test_arguments_that_newer_slurms_keep_from_squeue(
    command: str, line: str, found: tuple[str, ...] | None
) -> None:
    """24.11 shows accounting alone how a job was submitted, 26.05 squeue as well."""
    state = {"job_state": ["PENDING"], "name": "renamed"}
    shown = job_of(1, command=command, submit_line=line, **state)
    asked = job_of(1, command=command, **state)
    assert asked.name_alone and not_taken(asked, "mesos") == ""
    if found is None:
        assert "argument" in not_taken(shown, "mesos")
        with pytest.raises(UsageError, match="argument"):
            argued(asked, line)
    else:
        assert not_taken(shown, "mesos") == "" and not shown.name_alone
        assert shown.arguments == argued(asked, line).arguments == found


def test_a_job_whose_arguments_nobody_shows_stays_with_slurm(world: World) -> None:
    state = {"job_state": ["PENDING"]}
    world.slurm.add(7, command="/home/a/job.sh", **state)
    world.slurm.add(8, command="/home/a/job.sh", **state)
    world.slurm.lines[8] = "sbatch job.sh one two"
    for _ in range(3):
        world.step()
    assert world.slurm.held == {8}
    assert world.comment(7).endswith("stays with Slurm: Slurm does not show whether its script has arguments")
    (row,) = world.mesos.status()
    assert row["spec"]["script"].endswith('exec "$script" one two\n')


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ((0, b"sbatch job.sh one\n", b""), None, ""),
        ((0, b"", b""), ClusterError, "does not know it yet"),
        ((1, b"", b"Slurm accounting storage is disabled"), UsageError, "there is none"),
        ((1, b"", b"sacct: error: Connection refused"), ClusterError, "Connection refused"),
    ],
)
def test_accounting_is_asked_how_a_job_was_submitted(
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, bytes, bytes],
    error: type[Exception] | None,
    says: str,
) -> None:
    monkeypatch.setattr("asad_mesos.slurm_side.finish", lambda *others: answer)
    job = job_of(17, command="/home/a/job.sh", job_state=["PENDING"])
    if error is None:
        assert Commands().argued(job).arguments == ("one",)
    else:
        with pytest.raises(error, match=says):
            Commands().argued(job)


def test_arguments_may_be_left_to_slurm() -> None:
    job = job_of(1, command="/home/a/job.sh x")
    assert not_taken(job, "mesos") == ""
    assert "[mesos.queue] arguments" in not_taken(job, "mesos", arguments=False)


def test_scripts_with_job_steps_stay_with_slurm() -> None:
    for script in ("#!/bin/sh\nsrun ./a\n", "#!/bin/sh\ncd x; exec srun -n 4 ./a\n"):
        with pytest.raises(UsageError, match="job steps"):
            translated(job_of(1), script, "slurm:1:0:1")
    for script in ("#!/bin/sh\n# srun is not used\n./a\n", "#!/bin/sh\n./my-srun.py\n"):
        assert translated(job_of(1), script, "slurm:1:0:1").script
    with pytest.raises(UsageError, match="by what it is run"):
        translated(job_of(1), "echo hi\n", "slurm:1:0:1")


def test_shapes() -> None:
    """(count of tasks, CPUs, MiB, GPUs, apart) of the whole gang."""

    def shape(**changed: object) -> tuple[int, float, float, int, bool]:
        spec = translated(job_of(1, **changed), SCRIPT, "slurm:1:0:1")
        first = spec.groups[0]
        assert all(
            replace(group, name="", tasks=1, command="") == replace(first, name="", command="")
            for group in spec.groups
        )
        return spec.tasks, first.cpus, first.memory_bytes / MEBIBYTE, first.gpus, first.apart

    assert shape() == (2, 1.0, 200.0, 0, False)
    assert shape(tasks=1, cpus=1, tres_req_str="cpu=1,mem=200M,node=1") == (1, 1.0, 200.0, 0, False)
    assert shape(tasks=4, cpus=8, cpus_per_task=2) == (4, 2.0, 400.0, 0, False)
    nodes = {"tres_req_str": "cpu=8,mem=8G,node=2", "max_nodes": 2, "tasks": 4, "cpus": 8}
    assert shape(**nodes) == (2, 4.0, 800.0, 0, True)
    assert shape(**nodes, memory_per_node=4096, memory_per_cpu=None) == (2, 4.0, 4096.0, 0, True)
    assert shape(**nodes, tres_per_node="gres:gpu:2") == (2, 4.0, 800.0, 2, True)
    assert shape(**nodes, memory_per_cpu=None) == (2, 4.0, 4096.0, 0, True)
    assert shape(max_nodes=1) == (1, 2.0, 400.0, 0, False)
    assert shape(memory_per_cpu={"set": True, "infinite": False, "number": 100}) == (2, 1.0, 100.0, 0, False)


def test_a_job_that_must_not_be_requeued_is_not_started_again() -> None:
    assert translated(job_of(1, requeue=False), SCRIPT, "slurm:1:0:1").retries == 0


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("", "/tmp/slurm-17.out"),
        ("out-%j-%x.txt", "/tmp/out-17-job17.txt"),
        ("/a/%u/%4j%%", "/a/nobody/0017%"),
        ("%A_%a", "/tmp/17_4294967294"),
    ],
)
def test_output_files_are_those_of_sbatch(pattern: str, path: str) -> None:
    assert file_name(pattern, job_of(17), "slurm-%j.out") == path


def run_wrapped(tmp_path: Path, script: str, nodes: str, spread: bool, **changed: object) -> str:
    """What the wrapped script of a job writes to its output file."""
    job = job_of(17, current_working_directory=str(tmp_path), name="a 'b' $(id)", **changed)
    spec = translated(job, script, "slurm:17:0:1")
    path = tmp_path / "wrapped.sh"
    path.write_text(spec.script if not nodes else wrap(job, script, spread))
    path.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], "ASAD_NODES": nodes, **spec.environment}
    subprocess.run([str(path), "batch"], env=environment, check=True, cwd="/", timeout=300)
    return (tmp_path / "slurm-17.out").read_text()


def test_the_script_runs_where_sbatch_would_with_its_environment(tmp_path: Path) -> None:
    script = (
        '#!/bin/sh\nprintf \'%s\\n\' "$PWD" "$SLURM_JOB_ID" "$SLURM_JOB_NODELIST" "$SLURM_TASKS_PER_NODE" '
        '"$SLURM_JOB_NUM_NODES" "$SLURM_NTASKS" "$SLURM_JOB_NAME" "$SLURMD_NODENAME" "$SLURM_SUBMIT_DIR" "$#"\n'
        "echo to stderr >&2\n"
    )
    lines = run_wrapped(tmp_path, script, "n1*2,n2*1,n1*1", True, tasks=4, cpus=4).splitlines()
    assert lines == [
        str(tmp_path),
        *("17", "n1,n2", "3,1", "2", "4", "a 'b' $(id)", "n1"),
        *(str(tmp_path), "0", "to stderr"),
    ]
    lines = run_wrapped(tmp_path, script, "n1*1,n2*1,n3*1", False, tasks=7, cpus=7).splitlines()
    assert lines[2:5] == ["n1,n2,n3", "3,2(x2)", "3"]


def test_a_script_gets_its_arguments(tmp_path: Path) -> None:
    script = '#!/bin/sh\nprintf "%s\\n" "$#" "$@"\n'
    given = {"command": "/home/a/x.sh $(id) 'b -c"}
    assert run_wrapped(tmp_path, script, "n1*1", True, **given).splitlines() == ["3", "$(id)", "'b", "-c"]


def test_a_script_may_hold_anything(tmp_path: Path) -> None:
    """What looks like the end of the wrapping, quotes, and letters of all kinds."""
    script = "#!/bin/sh\ncat <<'END_OF_SCRIPT'\n$(id) `id` ' \" \\ é 漢\nEND_OF_SCRIPT\n"
    assert run_wrapped(tmp_path, script, "n1*1", True) == "$(id) `id` ' \" \\ é 漢\n"


def test_an_executor_that_does_not_show_where_the_gang_is(tmp_path: Path) -> None:
    """One task is where it is; several would be misled, so the script is not begun."""
    script = '#!/bin/sh\necho "$SLURM_JOB_NODELIST"\n'
    alone = {"tasks": 1, "cpus": 1, "tres_req_str": "cpu=1,node=1"}
    assert run_wrapped(tmp_path, script, "", True, **alone) == f"{socket.gethostname()}\n"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_wrapped(tmp_path, script, "", True)
    assert failed.value.returncode == 78


def test_how_jobs_end_is_reported_as_accounting_keeps_it() -> None:
    row = {"job": "m1", "state": "failed", "why": "task m1.1.0 failed", "start_s": 1.0, "end_s": 4.0}
    batch = {"group": "batch", "index": 0, "host": "a1", "state": "TASK_FAILED", "exit": -9}
    assert outcome({**row, "tasks": [], "endings": [batch]}) == (
        9,
        "failed on Mesos as m1: signal 9, on a1, in 3 s (task m1.1.0 failed)",
    )
    assert outcome({**row, "state": "timeout", "why": "its time limit is over", "tasks": []}) == (
        256,
        "timeout on Mesos as m1, in 3 s (its time limit is over)",
    )


def test_what_has_begun_is_never_returned() -> None:
    row = {"state": "queued", "start_s": None, "tasks": [], "retries": 0}
    assert not began(row)
    assert not began({**row, "endings": [{"state": "TASK_DROPPED", "exit": None}]})
    assert began({**row, "endings": [{"state": "TASK_LOST", "exit": None}]})
    assert began({**row, "tasks": [{"state": "TASK_STARTING", "exit": None}]})
    assert began({**row, "retries": 1})


# ----------------------------------------------------------------------------------------------------- configuration


def test_settings_are_checked() -> None:
    assert read_queue({}) == QueueSettings()
    assert read_queue({"partition": "m", "head": 3}).head == 3
    for table, seen in (
        ({"partitoin": "m"}, "did you mean 'partition'"),
        ({"partition": "a,b"}, "is no partition"),
        ({"head": 0}, "from 1 to 10000"),
        ({"head": 1.5}, "from 1 to 10000"),
        ({"arguments": "no"}, "no truth value"),
        ({"patience_s": "long"}, "from 1 to"),
        ([], "write \\[mesos.queue\\]"),
    ):
        with pytest.raises(ConfigError, match=seen):
            read_queue(table)


def test_the_configuration_of_both_is_that_of_mesos() -> None:
    text = '[daemon]\ncluster = "slurm+mesos"\n[mesos]\nmaster = "m:5050"\n[mesos.queue]\npartition = "m"\n'
    config = parse(text, Path("asad.toml"))
    assert config.clusters["mesos"] == {"master": "m:5050", "queue": {"partition": "m"}}


def test_an_answer_that_is_none_is_reported() -> None:
    for answer in (
        b"",
        b"{}",
        b'{"jobs": [{}]}',
        json.dumps({"jobs": [{"job_id": "x", "job_state": []}]}).encode(),
    ):
        with pytest.raises(ClusterError, match="squeue --json"):
            list(read_jobs(answer))


def test_the_daemon_opens_and_checks_it_by_name(tmp_path: Path) -> None:
    """Nobody is asked before the first look."""
    if missing():
        pytest.skip(f"not installed: {', '.join(missing())}")
    text = '[daemon]\ncluster = "slurm+mesos"\n[mesos]\nmaster = "127.0.0.1:9"\n[mesos.queue]\n'
    config = parse(text + 'partition = "m"\n', tmp_path / "asad.toml")
    cluster = open_cluster(config, NoNodes(), tmp_path)
    try:
        assert isinstance(cluster, SlurmMesosCluster)
        assert cluster.notices is cluster.mesos.notices
        assert "0 jobs of Slurm's are in hand" in cluster.sentence()
    finally:
        cluster.close()
    check(config)
    for wrong, seen in (('partitoin = "m"\n', "did you mean 'partition'"), ("head = 0\n", "from 1 to 10000")):
        with pytest.raises(ConfigError, match=seen):
            check(parse(text + wrong, tmp_path / "asad.toml"))


def test_what_has_run_is_never_returned_and_what_is_returned_never_runs() -> None:
    for stage in (Stage.ENDING, Stage.OVER):
        assert (stage, Event.RETURNED) not in AFTER
    assert {event for stage, event in AFTER if stage is Stage.RETURNING} == {Event.DROPPED}


def test_a_handover_is_known_again_by_its_line(tmp_path: Path) -> None:
    entry = Handover(17, 1.0, 0, 5, Stage.SERVED, mesos="m1", sentence="waits", facts={"wrote": "Comment"})
    assert Handover.from_line(entry.to_line()) == entry
    assert json.loads(entry.to_line())["said"] == "waits", "as earlier versions wrote it"
    odd = json.dumps(json.loads(entry.to_line()) | {"state": "elsewhere"})
    (tmp_path / JOURNAL).write_text(f"{entry.to_line()}\n{odd}\n")
    assert InHand(tmp_path, lambda: 0.0).now == {17: entry}

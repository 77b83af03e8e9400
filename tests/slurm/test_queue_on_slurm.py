"""Slurm's queue served by Mesos, with a real Slurm: what a partition that is down does, and how Slurm describes the
end.

Mesos is on paper here (its own tests have a master); the wrapped script of a job is run by the test itself.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asad_mesos.handover import SlurmQueue
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.slurm_side import Commands, Unknown
from slurm_side_on_paper import PaperMesos

from lab.slurm import RealSlurm, why_not

NOBODY = pwd.getpwnam("nobody")


@pytest.fixture(scope="module")
def down() -> Iterator[RealSlurm]:
    """A cluster with a partition that Slurm itself starts nothing in."""
    obstacle = why_not()
    if obstacle:
        pytest.skip(obstacle)
    with RealSlurm(extra_conf="PartitionName=mesos Nodes=ALL State=DOWN MaxTime=INFINITE") as slurm:
        yield slurm


class Between:
    """The queue, its Slurm, and a Mesos on paper."""

    def __init__(self, slurm: RealSlurm, folder: Path) -> None:
        self.slurm, self.mesos = slurm, PaperMesos()
        self.commands = Commands(20.0, slurm.env)
        self.folder, self.ahead_s = folder, 0.0
        self.open()

    def open(self) -> None:
        self.queue = SlurmQueue(
            QueueSettings(patience_s=600),
            self.commands,
            self.mesos,
            self.folder,
            lambda: time.time() + self.ahead_s,
        )
        self.queue.may = True

    def step_until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < end, f"{what}: {self.queue.messages} {self.queue.in_hand.now}"
            self.queue.step()
            time.sleep(0.3)

    def story_of(self, job: str) -> str:
        return self.commands.details({int(job)})[int(job)].admin_comment

    def task_story(self, array: str, task: int) -> str:
        for one in self.slurm.squeue():
            if one["array_job_id"] == int(array) and one["array_task_id"] == task:
                return str(one["admin_comment"])
        return ""

    def submit(self, script: str, *options: str) -> str:
        return self.slurm.submit(script, "--partition=mesos", "--time=10", *options, user="nobody")


@pytest.fixture
def between(down: RealSlurm, tmp_path: Path) -> Iterator[Between]:
    yield Between(down, tmp_path)
    down.clear()


def test_a_job_runs_its_own_script_under_its_user_and_slurm_shows_how_it_ended(between: Between) -> None:
    script = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_NTASKS $SLURM_TASKS_PER_NODE $(id -un)"; exit 3'
    job = between.submit(script, "--ntasks=2", "--output=queue-%j.txt", "--comment=mine")
    between.step_until(lambda: between.mesos.rows, "it is taken")
    shown = between.slurm.job(job)
    assert (shown["JobState"], shown["Reason"]) == ("PENDING", "JobHeldAdmin")
    assert between.story_of(job) == "asad: waits for Mesos as m1"
    (spec,) = between.mesos.specs.values()
    assert (spec.user, spec.uid, spec.time_limit_s) == ("nobody", NOBODY.pw_uid, 600.0)
    between.mesos.start("m1", "a1", "a2")
    between.step_until(
        lambda: between.story_of(job) == "asad: runs on Mesos as m1 on a1,a2", "it is reported"
    )

    folder = Path(spec.environment["SLURM_SUBMIT_DIR"])
    wrapped = between.slurm.folder / "jobs" / "wrapped.sh"
    wrapped.write_text(spec.script)
    wrapped.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "ASAD_NODES": "a1*1,a2*1", **spec.environment}
    done = subprocess.run(
        [str(wrapped), "batch"],
        env=environment,
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        cwd="/",
        check=False,
        timeout=300,
    )
    assert done.returncode == 3
    assert (folder / f"queue-{job}.txt").read_text() == f"{job} a1,a2 2 1(x2) nobody\n"

    between.mesos.finish("m1", done.returncode)
    between.step_until(lambda: not between.queue.in_hand.now, "it is over")
    # accounting: Slurm never ran it, so it says CANCELLED; the script's own status and a sentence stand beside that
    shown = subprocess.run(
        [
            *("sacct", "--noheader", "--parsable2", "--allocations", "--allusers", f"--jobs={job}"),
            "--format=State,DerivedExitCode,ElapsedRaw,AdminComment,Comment",
        ],
        env=between.slurm.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.strip()
    # sacctmgr of 22.05 writes small letters
    assert shown.lower() == (
        "cancelled by 0|3:0|0|asad: failed on mesos as m1: exit status 3, on a1,a2, in 60 s|mine"
    )


def test_slurm_starts_nothing_of_it_and_has_it_back_as_it_was(between: Between) -> None:
    job = between.submit("sleep 1", "--comment=mine")
    before = between.slurm.job(job)
    between.step_until(lambda: between.mesos.rows, "it is taken")
    refused = subprocess.run(
        ["scontrol", "release", job],
        env=between.slurm.env,
        user=NOBODY.pw_uid,
        group=NOBODY.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "denied" in refused.stderr, "its user cannot let Slurm run it meanwhile"
    between.ahead_s = 700.0
    between.step_until(lambda: not between.queue.in_hand.now, "it is released")
    after = between.slurm.job(job)
    differ = {
        key for key in before.keys() | after.keys() if before.get(key, "(null)") != after.get(key, "(null)")
    }
    assert differ <= {
        "Priority",
        "Reason",
        "LastSchedEval",
        "AccrueTime",
        "Scheduler",
        "AdminComment",
        "EligibleTime",
    }
    assert after.get("AdminComment", "") in ("", "(null)")
    assert int(after["Priority"]) > 0
    assert after["Comment"] == "mine"
    # asad or no asad: one word gives the whole partition to Slurm
    subprocess.run(
        ["scontrol", "update", "PartitionName=mesos", "State=UP"],
        env=between.slurm.env,
        check=True,
        timeout=300,
    )
    try:
        between.slurm.wait(job, timeout_s=300)
        assert between.slurm.state(job) == "COMPLETED"
    finally:
        subprocess.run(
            ["scontrol", "update", "PartitionName=mesos", "State=DOWN"],
            env=between.slurm.env,
            check=True,
            timeout=300,
        )


def test_a_cancelled_job_and_one_with_steps(between: Between) -> None:
    steps = between.submit("srun hostname")
    job = between.submit("sleep 1")
    between.step_until(lambda: between.mesos.rows, "it is taken")
    assert len(between.mesos.rows) == 1
    assert any(
        f"slurm {steps}: it stays with Slurm: its script starts job steps" in text
        for text in between.queue.messages
    )
    between.mesos.start("m1")
    subprocess.run(["scancel", job], env=between.slurm.env, check=True, timeout=300)
    between.open()  # another daemon finds it
    between.step_until(lambda: not between.queue.in_hand.now, "it is over")
    assert between.mesos.rows["m1"]["state"] == "cancelled"
    with pytest.raises(Unknown):
        between.commands.script("99999999")


def test_tasks_of_an_array_are_taken_one_by_one(between: Between) -> None:
    job = between.submit("echo", "--array=3,5,9%2", "--comment=mine", "--output=a-%A-%a.txt")
    between.step_until(lambda: len(between.mesos.rows) == 2, "two may run at one time")
    for _ in range(3):
        between.queue.step()
    assert len(between.mesos.rows) == 2
    specs = list(between.mesos.specs.values())
    assert [spec.environment["SLURM_ARRAY_TASK_ID"] for spec in specs] == ["3", "5"]
    assert {spec.environment["SLURM_ARRAY_JOB_ID"] for spec in specs} == {job}
    assert f"/a-{job}-3.txt" in specs[0].script
    held = {(one["array_task_id"], one["priority"]) for one in between.slurm.squeue()}
    assert (3, 0) in held
    assert (5, 0) in held
    for name, status in (("m1", 0), ("m2", 4)):
        between.mesos.start(name, "a1")
        between.mesos.finish(name, status)
    between.step_until(lambda: len(between.mesos.rows) == 3, "the third has its turn")
    assert between.mesos.specs["m3"].environment["SLURM_ARRAY_TASK_ID"] == "9"
    between.mesos.start("m3", "a1")
    between.mesos.finish("m3", 0)
    between.step_until(lambda: not between.queue.in_hand.now, "all are over")
    shown = subprocess.run(
        [
            *("sacct", "--noheader", "--parsable2", "--allocations", "--allusers", f"--jobs={job}"),
            "--format=JobID,DerivedExitCode,Comment,AdminComment",
        ],
        env=between.slurm.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout.lower()
    # on 26.05 the last one, which never ran, stays a list of tasks: `7_[9%2]`
    lines = sorted(re.sub(r"\[(\d+)(?:%\d+)?]", r"\1", line).split("|") for line in shown.splitlines())
    assert [line[:3] for line in lines] == [
        [f"{job}_3", "0:0", "mine"],
        [f"{job}_5", "4:0", "mine"],
        [f"{job}_9", "0:0", "mine"],
    ]
    assert all("on mesos as m" in line[3] for line in lines), lines
    assert {between.commands.past(f"{job}_{task}") for task in (3, 5, 9)} == {"CANCELLED"}


def test_a_task_of_an_array_goes_back_alone(between: Between) -> None:
    job = between.submit("sleep 1", "--array=0-1")
    between.step_until(lambda: len(between.mesos.rows) == 2, "both are taken")
    between.mesos.start("m1", "a1")
    between.step_until(lambda: "a1" in between.task_story(job, 0), "one runs")
    between.ahead_s = 700.0
    between.step_until(lambda: len(between.queue.in_hand.now) == 1, "the other is released")
    by_task = {one["array_task_id"]: one["priority"] for one in between.slurm.squeue()}
    assert by_task[0] == 0
    assert by_task[1] > 0
    between.mesos.finish("m1", 0)
    between.step_until(lambda: not between.queue.in_hand.now, "it is over")


def test_a_dependent_job_is_taken_when_slurm_says_that_it_may_be(between: Between) -> None:
    first = between.slurm.submit("sleep 2")
    second = between.submit("true", f"--dependency=afterok:{first}")
    for _ in range(2):
        between.queue.step()
    assert not between.mesos.rows
    assert not [text for text in between.queue.messages if second in text]
    between.slurm.wait(first, timeout_s=300)
    between.ahead_s = 60.0
    between.step_until(lambda: between.mesos.rows, "its dependency is fulfilled")


def test_arguments_reach_the_script_and_reasons_the_comment(between: Between) -> None:
    path = between.slurm.folder / "jobs" / "argued.sh"
    path.write_text('#!/bin/sh\necho "$#:$1:$2"\n')
    argv = [
        "sbatch",
        "--parsable",
        f"--chdir={path.parent}",
        "--partition=mesos",
        "--time=10",
        "--wait-all-nodes=0",
    ]
    job = between.slurm.run(
        *argv, f"--uid={NOBODY.pw_uid}", f"--gid={NOBODY.pw_gid}", str(path), "one", "two"
    ).strip()
    steps = between.submit("srun hostname")
    between.step_until(lambda: between.mesos.rows and between.story_of(steps), "one is taken, one is not")
    shown = between.commands.details({int(job)})[int(job)]
    assert between.commands.argued(shown).arguments == ("one", "two")
    (spec,) = between.mesos.specs.values()
    assert spec.script.endswith('exec "$script" one two\n')
    assert between.story_of(steps).startswith("asad: stays with Slurm: its script starts job steps")

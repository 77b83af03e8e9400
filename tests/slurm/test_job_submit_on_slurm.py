"""The shipped job_submit.lua in a real slurmctld: guests come by asad alone, all else passes, asad or not."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asad_under_test import Asad, nothing_is_lost_or_left, queue, until, until_exists

from lab.slurm import RealSlurm, why_not

SCRIPT = Path(__file__).resolve().parents[2] / "profiles" / "slurm" / "job_submit.lua"
USER, ASADS = "nobody", "games"
"""An ordinary user, and the one that the script takes for asad's: an operator, as the how-to says."""
SHIPPED_FOR = 'asad_user = "asad"'
REFUSED = "partition guest is asad's: it moves waiting jobs there by itself"


def script(user: str = ASADS) -> str:
    """The script as an operator makes it his own."""
    text = SCRIPT.read_text()
    assert SHIPPED_FOR in text
    return text.replace(SHIPPED_FOR, f'asad_user = "{user}"')


def installed(slurm: RealSlurm) -> Path:
    return slurm.folder / "job_submit.lua"


def install(slurm: RealSlurm, text: str) -> None:
    """Put a script where slurmctld looks before each submission; it reads again what is newer than its last reading."""
    installed(slurm).write_text(text)
    newer_s = time.time() + 2
    os.utime(installed(slurm), (newer_s, newer_s))


@pytest.fixture(scope="module")
def guarded_of_module() -> Iterator[RealSlurm]:
    """A cluster whose controller runs the script."""
    obstacle = why_not()
    if obstacle:
        pytest.skip(obstacle)
    slurm = RealSlurm(extra_conf="JobSubmitPlugins=lua")
    installed(slurm).write_text(script())  # without one slurmctld does not start
    with slurm:
        slurm.sacctmgr(f"modify user {ASADS} set adminlevel=operator")
        yield slurm


@pytest.fixture
def guarded(guarded_of_module: RealSlurm) -> Iterator[RealSlurm]:
    """The same, idle, with the script in order."""
    yield guarded_of_module
    install(guarded_of_module, script())
    guarded_of_module.clear()


def run_as(slurm: RealSlurm, user: str, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """One of Slurm's commands by a user of this machine: what root does in another's name the script sees as root's."""
    drop = ("setpriv", f"--reuid={user}", "--regid=games", "--clear-groups")
    return subprocess.run(
        (*drop, *argv), env=slurm.env, input=stdin, capture_output=True, text=True, check=False, timeout=300
    )


def sbatch(
    slurm: RealSlurm, *options: str, user: str = USER, body: str = "true"
) -> subprocess.CompletedProcess[str]:
    jobs = f"{slurm.folder}/jobs"
    where = (f"--chdir={jobs}", f"--output={jobs}/%j.out")
    return run_as(slurm, user, "sbatch", "--parsable", *where, *options, stdin=f"#!/bin/sh\n{body}\n")


def accepted(done: subprocess.CompletedProcess[str]) -> str:
    """The id of a job that was taken, without a word to its user."""
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.strip()


def change(slurm: RealSlurm, job: str, *what: str, user: str = USER) -> subprocess.CompletedProcess[str]:
    return run_as(slurm, user, "scontrol", "update", f"jobid={job}", *what)


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and "Access/permission denied" in done.stderr


def waiting(slurm: RealSlurm) -> str:
    """A job of the user that waits for its begin."""
    return accepted(sbatch(slurm, "--begin=now+1hour"))


def test_a_submission_passes_as_its_user_wrote_it(guarded: RealSlurm) -> None:
    node = guarded.node_names[1]
    options = (f"--nodelist={node}", "--time=7", "--job-name=guest", "--comment=asad:no", "--nice=3")
    job = accepted(sbatch(guarded, *options, body="echo ran"))
    guarded.wait(job)
    shown = guarded.job(job)
    fields = ("JobState", "Partition", "ReqNodeList", "TimeLimit", "JobName", "Nice")
    assert [shown[field] for field in fields] == ["COMPLETED", "batch", node, "00:07:00", "guest", "3"]
    assert guarded.output(job) == "ran\n"
    done = run_as(guarded, USER, "srun", "--partition=batch", "--chdir=/", "echo", "here")
    assert (done.returncode, done.stdout) == (0, "here\n"), done


@pytest.mark.parametrize("partition", ["guest", "batch,guest"])
def test_a_user_sends_no_job_to_a_guest_partition(guarded: RealSlurm, partition: str) -> None:
    for done in (
        sbatch(guarded, f"--partition={partition}"),
        run_as(guarded, USER, "srun", f"--partition={partition}", "--chdir=/", "true"),
    ):
        assert refused(done) and REFUSED in done.stderr, done
    job = waiting(guarded)
    assert refused(change(guarded, job, f"Partition={partition}"))
    assert guarded.job(job)["Partition"] == "batch"


@pytest.mark.parametrize("user", [ASADS, "root"])
def test_asads_user_sends_a_job_there_and_its_own_takes_it_home_alone(guarded: RealSlurm, user: str) -> None:
    first, second = guarded.node_names
    job = waiting(guarded)
    offer = ("Partition=guest", f"ReqNodeList={first}")
    until(  # the controller hears of operators from slurmdbd
        lambda: change(guarded, job, *offer, user=user).returncode == 0, f"{user} is an operator"
    )
    for what in (f"ReqNodeList={second}", "ReqNodeList=", "NumNodes=2"):
        assert refused(change(guarded, job, what)), what
    assert change(guarded, job, "JobName=renamed", "TimeLimit=5").returncode == 0
    shown = guarded.job(job)
    assert [shown[field] for field in ("Partition", "ReqNodeList", "JobName")] == ["guest", first, "renamed"]
    assert change(guarded, job, "Partition=batch", "ReqNodeList=").returncode == 0
    assert [guarded.job(job)[field] for field in ("Partition", "ReqNodeList")] == ["batch", "(null)"]


def test_nothing_is_refused_when_asad_is_gone(guarded: RealSlurm) -> None:
    """Users submit as before, and one whose job was left in the guest partition brings it home himself."""
    slurm = guarded
    with Asad(slurm) as asad:
        lent = queue(slurm, guests=0, witness=asad.last_words)
        script = until_exists(lent.gate)
        lent.guests.append(accepted(sbatch(slurm, "--time=10", body=script)))
        lent.await_lending()
        slurm.run("scontrol", "update", "PartitionName=guest", "State=DOWN")
        stuck = accepted(sbatch(slurm, "--time=10", body=script))
        lent.guests.append(stuck)
        until(lambda: slurm.job(stuck)["Partition"] == "guest", "it is offered a node")

        asad.kill("asad")
        lent.guests.append(accepted(sbatch(slurm, "--time=10", body=script)))
        assert change(slurm, stuck, "Partition=batch", "ReqNodeList=").returncode == 0
        at_home = slurm.job(stuck)
        assert [at_home[field] for field in ("Partition", "ReqNodeList")] == ["batch", "(null)"]
        asad.start("asad")
        asad.wait_until_whole()
        slurm.run("scontrol", "update", "PartitionName=guest", "State=UP")
        nothing_is_lost_or_left(asad, lent)


BROKEN = {
    "asad's user is in no passwd": script("nobody-knows-him"),
    "it is no lua": "this is no lua\n",
    "it has an error": script().replace("local why = asad_refuses(", "local why = is_nowhere("),
    "it is gone": None,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_script_refuses_nobody_while_slurmctld_runs(guarded: RealSlurm, how: str) -> None:
    accepted(sbatch(guarded, "--begin=now+1hour"))  # slurmctld has read the one that is right
    text = BROKEN[how]
    if text is None:
        installed(guarded).unlink()
    else:
        install(guarded, text)
    job = accepted(sbatch(guarded))
    assert change(guarded, waiting(guarded), "TimeLimit=5").returncode == 0
    guarded.wait(job)
    assert guarded.state(job) == "COMPLETED"
    if how != "it has an error":  # then slurmctld goes on by the script that it has read before
        assert REFUSED in sbatch(guarded, "--partition=guest").stderr
    install(guarded, script())
    assert REFUSED in sbatch(guarded, "--partition=guest").stderr

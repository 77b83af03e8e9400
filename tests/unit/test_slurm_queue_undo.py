"""`asad-undo` beside Mesos: jobs that wait for it are Slurm's again when the daemon is gone, and run once."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asad_mesos.agent_offers import read_offer
from asad_mesos.events import Cancelled, Event, Held, Offered, Submitted, Subscribed
from asad_mesos.framework import Framework
from asad_mesos.framework_journal import Journal
from asad_mesos.handover import SlurmQueue
from asad_mesos.job_spec import Spec
from asad_mesos.job_status import status_of
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.queue_undo import WAITS, gangs, held_jobs, undo_queue
from asad_mesos.settings import Settings
from asad_slurm.undo import main
from slurm_side_on_paper import PaperSlurm

NOW_S = 50_000.0
ROOM = {"id": {"value": "O"}, "agent_id": {"value": "S"}, "hostname": "a1"}
ROOM["resources"] = [
    {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"}
    for name, value in (("cpus", 2.0), ("mem", 1000.0))
]


class Beneath:
    """The submit interface over the framework and its journal; without a master."""

    def __init__(self, folder: Path) -> None:
        self.journal, self.framework = Journal(folder), Framework(Settings(executor_memory_mb=1.0))
        self.framework.restore(self.journal.load())

    def do(self, *events: Event) -> list[str]:
        """Have events taken in; kinds of the calls that follow."""
        records, calls = self.framework.handle(*events, now_s=NOW_S)
        self.journal.write(records)
        return [str(call["type"]) for call in calls]

    def submit(self, spec: Spec, *, bounded: bool = False) -> str:
        self.do(Submitted(spec))
        return f"m{self.framework.last_number}"

    def cancel(self, job: str, why: str) -> bool:
        self.do(Cancelled(job, why))
        return True

    def hold(self, job: str, until_s: float) -> None:
        self.do(Held(job, until_s))

    def status(self, job: str = "") -> list[dict[str, Any]]:
        known = self.framework
        found = [known.job(job)] if job else [*known.ended.values(), *known.jobs.values()]
        return [status_of(one, known) for one in found]


class World:
    """A Slurm, its commands as `asad-undo` finds them, and a daemon that dies and comes back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.slurm = folder, PaperSlurm()
        self.start()

    def start(self) -> None:
        self.mesos = Beneath(self.folder)
        self.queue = SlurmQueue(QueueSettings(), self.slurm, self.mesos, self.folder, lambda: NOW_S)
        self.queue.may = True

    def die(self) -> None:
        self.mesos.journal.close()

    def undo(self, older_than_s: float = 0.0) -> tuple[list[str], int]:
        """Run it over what Slurm shows, and have Slurm do what it was asked."""
        seen = self.folder / "calls"
        seen.unlink(missing_ok=True)
        for job, short in self.slurm.look().items():
            name = self.folder / "jobs" / str(job)
            name.write_text(f"{job}|{short.state}|{short.priority}\n")
        done = undo_queue(self.folder, older_than_s=older_than_s, now_s=NOW_S)
        for call in seen.read_text().splitlines() if seen.exists() else ():
            verb, *words = call.split(" ", 2)
            if verb == "release":
                self.slurm.release(words[0])
            else:
                key, _, text = words[1].partition("=")
                self.slurm.comment(words[0].removeprefix("jobid="), {key: text})
        return done


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    commands = tmp_path / "bin"
    commands.mkdir()
    (tmp_path / "jobs").mkdir()
    squeue = f"""\
        #!/bin/sh
        for word; do case "$word" in --jobs=*) job=${{word#--jobs=}};; esac; done
        [ -e {tmp_path}/jobs/"$job" ] || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }}
        cat {tmp_path}/jobs/"$job"
        """
    scontrol = f"""\
        #!/bin/sh
        [ -e {tmp_path}/refuse ] && echo 'Unable to contact slurm controller' >&2 && exit 1
        echo "$*" >> {tmp_path}/calls
        """
    for name, script in (("squeue", squeue), ("scontrol", scontrol)):
        (commands / name).write_text(textwrap.dedent(script))
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    world = World(tmp_path)
    yield world
    world.die()


def test_what_was_not_launched_is_slurms_again_with_its_own_comment(world: World) -> None:
    world.slurm.add(17, admin_comment="the site's own")
    world.queue.step()
    assert world.slurm.held == {17}
    assert world.undo() == ([], 0) and world.slurm.held == {17}, "a daemon lives, however old all is"
    world.die()
    assert world.undo(older_than_s=600.0) == ([], 0), "it may be about to start again"
    assert world.undo() == (["17: Slurm has it again"], 0)
    assert world.slurm.waits(17)
    assert world.slurm.comments[17] == {"AdminComment": "the site's own"}
    world.slurm.held.add(17)
    assert world.undo() == ([], 0) and world.slurm.held == {17}, "whoever holds it now is not asad"


def test_a_daemon_that_comes_back_does_not_run_it_beside_slurm(world: World) -> None:
    world.slurm.add(17)
    world.queue.step()
    world.die()
    world.undo()
    world.start()
    assert world.queue.recover() == ["slurm 17: asad-undo has returned it to Slurm; m1 is cancelled"]
    assert "ACCEPT" not in world.mesos.do(Subscribed("f"), Offered([read_offer(ROOM)]))
    world.slurm.held.add(17)  # an operator's
    world.queue.may = False
    world.queue.step()
    assert world.slurm.held == {17} and not world.queue.in_hand.now
    world.slurm.held.clear()
    world.queue.may = True
    world.queue.step()
    assert world.slurm.held == {17} and world.queue.in_hand.now[17].mesos == "m2", "it is taken anew"
    assert world.queue.recover() == []


@pytest.mark.parametrize("shortened", [False, True])
def test_what_was_launched_is_left_alone(world: World, shortened: bool) -> None:
    world.slurm.add(17)
    world.queue.step()
    assert "ACCEPT" in world.mesos.do(Subscribed("f"), Offered([read_offer(ROOM)]))
    if shortened:
        world.mesos.journal.rewrite(world.mesos.framework.dump())
    world.die()
    assert world.undo() == (["17: it runs on Mesos, or is over there, and is left alone"], 0)
    assert world.slurm.held == {17}


def test_a_gang_that_was_cancelled_is_over_but_one_that_was_asked_back_is_slurms(world: World) -> None:
    for job in (17, 18):
        world.slurm.add(job)
    world.queue.step()
    world.queue.in_hand.now[18].facts["back"] = "asad may not act"
    world.queue.in_hand.write(world.queue.in_hand.now[18])
    world.mesos.cancel("m1", "by its user")
    world.mesos.cancel("m2", "returned to Slurm")
    world.die()
    over = "17: it runs on Mesos, or is over there, and is left alone"
    assert world.undo() == ([over, "18: Slurm has it again"], 0)
    assert world.slurm.held == {17}


def test_a_slurm_that_hangs_is_waited_for_once(world: World) -> None:
    for job in (17, 18):
        world.slurm.add(job)
    world.queue.step()
    world.die()
    (world.folder / "bin" / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    lines, failed = undo_queue(world.folder, older_than_s=0.0, now_s=NOW_S, timeout_s=0.2)
    assert failed == 1 and len(lines) == 1 and "17: still held for Mesos, as those after it" in lines[0]


def test_a_kill_between_hold_and_submit_or_submit_and_journal(world: World) -> None:
    world.slurm.add(17)
    world.slurm.add(18)
    world.queue.step()
    path = world.folder / "slurm-queue.journal"
    first = [line for line in path.read_text().splitlines() if '"holding"' in line]
    path.write_text("\n".join(first) + "\n")  # neither has been noted to be a gang
    world.die()
    gangs = (world.folder / "mesos.journal").read_text().splitlines(keepends=True)
    (world.folder / "mesos.journal").write_text("".join(line for line in gangs if "slurm:18:" not in line))
    assert world.undo() == (["17: Slurm has it again", "18: Slurm has it again"], 0)
    assert not world.slurm.held
    world.start()
    assert world.queue.recover() == ["slurm 17: asad-undo has returned it to Slurm; m1 is cancelled"]


def test_where_it_is_not_known_what_ran_nothing_is_released(world: World) -> None:
    world.slurm.add(17)
    world.queue.step()
    world.die()
    journal = world.folder / "mesos.journal"
    whole = journal.read_text()
    journal.write_text('{"what": "lau\n' + whole)
    lines, failed = world.undo()
    assert failed == 1 and "mesos.journal:1: it is no record" in lines[0] and "1 jobs stay held" in lines[0]
    journal.unlink()
    assert world.undo() == (["17: it runs on Mesos, or is over there, and is left alone"], 0)
    journal.write_text(whole + '{"what": "launch", "jo')  # never acted upon
    assert set(gangs(journal).values()) == {WAITS}
    assert world.undo() == (["17: Slurm has it again"], 0)


def test_a_slurm_that_does_not_answer_is_asked_again(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.slurm.add(17)
    world.queue.step()
    world.die()
    (world.folder / "refuse").touch()
    world.undo()
    assert main(["--state-dir", str(world.folder)]) == 1
    assert capsys.readouterr().out == "17: still held for Mesos (Unable to contact slurm controller)\n"
    (world.folder / "refuse").unlink()
    assert world.undo() == (["17: Slurm has it again"], 0) and world.slurm.waits(17)


def test_jobs_that_have_run_or_are_slurms_are_nobodys_business(world: World) -> None:
    world.slurm.add(17)
    world.queue.step()
    world.mesos.cancel("m1", "by its user")
    world.queue.step()
    world.die()
    path = world.folder / "slurm-queue.journal"
    assert held_jobs(path) == {}
    path.write_text('{"job": 1\n[]\n{"job": "x", "state": "served"}\n\n{"job": 1, "state": "served"}\n')
    assert held_jobs(path) == {} and world.undo() == ([], 0)

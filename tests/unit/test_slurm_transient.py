"""Slurm refuses a change for the moment alone: nothing stays open, and it is tried again."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from asad_slurm import command, undo
from asad_slurm.command import CommandTransport
from asad_slurm.journal import Journal
from asad_slurm.undo import main, open_changes, open_offers
from slurm_samples import BECAUSE, START_S, Lab, SlurmInMemory, a_job, row, running, sample

from asad.decisions import Defer, Outcome, SetThrottle, Withdraw
from asad.defer.deferrable_job import Deferrable
from asad.defer.windows import Window
from asad.hold import HeldJob

FOR_NOW = "Resource temporarily unavailable for job 10"
HOME, AWAY = ("batch", ""), ("guest", "n1")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Job 1 runs on n1, known long enough; job 10 and the array 20 wait."""
    slurm = SlurmInMemory()
    array = {"array_job_id": 20, "array_task_string": "0-9", "array_max_tasks": 0, "cpus": 1}
    slurm.add(running(1, {"n1": 2}), a_job(10), a_job(20, **array))
    lab = Lab(tmp_path, slurm)
    lab.actors.report("n1", sample(1))
    return lab


def place(lab: Lab) -> tuple[str, str]:
    """Where job 10 waits, and the nodes that it requires."""
    job = lab.slurm.jobs[10]
    return job["partition"], job["required_nodes"]


def journal(lab: Lab) -> Path:
    return lab.state_dir / "offers.journal"


# ------------------------------------------------------------------------------------------------------- what is stated


@pytest.mark.parametrize(
    ("text", "transient", "certain"),
    [
        (FOR_NOW, True, True),
        ("Job update not available right now, the DB index is being set, try again in a bit for job 10", True, True),
        ("10_[4-9]: No error\n10_3: Resource temporarily unavailable", True, False),
        ("10_3: Resource temporarily unavailable", True, False),  # since 24.11 it says nothing of the others
        ("Access/permission denied for job 10", False, True),
        ("Unable to contact slurm controller (connect failure)", False, False),
    ],
)  # fmt: skip
def test_a_refusal_for_the_moment_is_reported_from_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, transient: bool, certain: bool
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\nprintf '{text}\\n' >&2; exit 1\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    transport = CommandTransport(5.0)
    answer = transport.update(10, {"Nice": "5"})
    assert (answer.done, answer.transient, answer.certain) == (False, transient, certain)
    assert transport.answers is (transient or certain), "it has answered: the next change may be asked for"


def test_what_is_refused_for_the_moment_is_asked_for_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26.05 refuses one of several by chance; the next is as good as done."""
    refusals = tmp_path / "refusals"
    refusals.write_text("\n\n")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f"#!/bin/sh\n[ -s {refusals} ] || exit 0\nsed -i 1d {refusals}\necho '{FOR_NOW}' >&2; exit 1\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(command, "AT_ONCE_S", 300.0)
    assert CommandTransport(5.0).update(10, {"Partition": "guest"}).done


# ---------------------------------------------------------------------------------------------------------- the daemon


def test_an_offer_leaves_nothing_open_and_is_made_as_soon_as_slurm_takes_it(lab: Lab) -> None:
    lab.slurm.refuses = FOR_NOW
    for _ in range(4):
        assert lab.offer(lab.snapshot(2), "10", "1", "n1") == f"Slurm refused: {FOR_NOW}"
        assert open_offers(journal(lab)) == {} and place(lab) == HOME
    lab.slurm.refuses = ""
    assert lab.offer(lab.snapshot(2), "10", "1", "n1") == ""
    assert place(lab) == AWAY


def test_an_offer_that_could_not_be_withdrawn_is_taken_back_by_the_next_look(lab: Lab) -> None:
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "10", "1", "n1") == ""
    lab.slurm.refuses = FOR_NOW
    (outcome,) = lab.cluster.apply([Withdraw(BECAUSE, row(snapshot, "10"))])
    assert (outcome.done, outcome.transient) == (False, True)
    lab.snapshot(2)
    assert place(lab) == AWAY and open_offers(journal(lab)).keys() == {"10"}
    lab.slurm.refuses = ""
    lab.snapshot(2)
    assert place(lab) == HOME and open_offers(journal(lab)) == {}


def test_an_offer_that_outlives_a_release_is_taken_back_by_the_next_look(lab: Lab) -> None:
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.refuses = FOR_NOW
    assert lab.cluster.release() == [f"10: its offer stays open: {FOR_NOW}"]
    lab.slurm.refuses = ""
    lab.snapshot(2)
    assert place(lab) == HOME and open_offers(journal(lab)) == {}


def test_a_change_that_was_refused_leaves_nothing_open(lab: Lab) -> None:
    lab.slurm.refuses = FOR_NOW
    (outcome,) = lab.cluster.apply([Defer(BECAUSE, row(lab.snapshot(), "10"), START_S + 3600)])
    assert (outcome.done, outcome.transient) == (False, True)
    assert open_changes(journal(lab)) == {}


def throttled(lab: Lab) -> None:
    """The array is throttled, and cannot have its own throttle back for now."""
    (outcome,) = lab.cluster.apply([SetThrottle(BECAUSE, row(lab.snapshot(), "20_0"), 3)])
    assert outcome.done
    lab.snapshot(2)
    lab.slurm.refuses = FOR_NOW
    assert lab.cluster.give_back() == [f"20: its throttle could not be restored: {FOR_NOW}"]
    lab.snapshot(2)
    assert lab.slurm.jobs[20]["array_max_tasks"] == 3
    lab.slurm.refuses = ""


def test_what_could_not_be_returned_is_returned_by_the_next_look(lab: Lab) -> None:
    throttled(lab)
    lab.snapshot(2)
    assert lab.slurm.jobs[20]["array_max_tasks"] == 0 and open_changes(journal(lab)) == {}
    asked = len(lab.slurm.updates)
    lab.snapshot(2)
    assert len(lab.slurm.updates) == asked


def test_what_is_decided_meanwhile_is_not_returned(lab: Lab) -> None:
    throttled(lab)
    lab.slurm.refuses = FOR_NOW
    snapshot = lab.snapshot(2)
    lab.slurm.refuses = ""
    (outcome,) = lab.cluster.apply([SetThrottle(BECAUSE, row(snapshot, "20_0"), 5)])
    assert outcome.done
    lab.snapshot(2)
    assert lab.slurm.jobs[20]["array_max_tasks"] == 5


@pytest.mark.parametrize("transient", [True, False])
def test_policies_wish_again_at_once_what_was_refused_for_the_moment(transient: bool) -> None:
    refused = Outcome(Defer(BECAUSE, 0, START_S + 3600), False, FOR_NOW, transient=transient)
    held = HeldJob()
    held.on_outcome(refused, START_S)
    job = Deferrable(key="10", window=Window(START_S, START_S + 3600, "its hint"), submit_s=START_S)
    job.on_outcome(refused, START_S)
    assert (held.retry_s <= START_S) is transient
    assert (job.retry_s <= START_S) is transient


# ----------------------------------------------------------------------------------------------------------- asad-undo


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """squeue, and a scontrol that refuses for the moment as often as the file `refusals` has lines."""
    folder = tmp_path / "bin"
    folder.mkdir()
    squeue = f"""\
        #!/bin/sh
        case "$*" in *--Format=*) cat {folder}/waiting;; *) cat {folder}/state;; esac
        """
    scontrol = f"""\
        #!/bin/sh
        case "$*" in "show job"*) cat {folder}/shown; exit 0;; esac
        echo "$*" >> {folder}/calls
        [ -s {folder}/refusals ] || exit 0
        sed -i 1d {folder}/refusals
        echo 'Resource temporarily unavailable for job 10' >&2
        exit 1
        """
    for name, script in (("squeue", squeue), ("scontrol", scontrol)):
        (folder / name).write_text(textwrap.dedent(script))
        (folder / name).chmod(0o755)
    (folder / "state").write_text("PENDING|guest|n2\n")
    (folder / "waiting").write_text(f"{'20':30}{'PENDING':30}{'0':30}{'0':30}{'900':30}\n")
    (folder / "shown").write_text("JobId=20 ArrayJobId=20 ArrayTaskId=0-9%3 ArrayTaskThrottle=3 JobName=x\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(undo, "AGAIN_S", 0.0)
    return folder


def left_open(folder: Path) -> Path:
    """A journal with an offer to 10, one to 11, and a throttle of 20."""
    journal = Journal(folder)
    offer = {"partition": "batch", "required_nodes": "", "guest_partition": "guest", "nodes": "n2"}
    for job in ("10", "11"):
        journal.write("offer", 1000.0, job, **offer)
    journal.write("changed", 1000.0, "20", key="ArrayTaskThrottle", was=0, ours=[3])
    return journal.path


def calls(slurm: Path) -> list[str]:
    return (slurm / "calls").read_text().splitlines()


def test_undo_tries_again_what_slurm_refuses_for_the_moment(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = left_open(tmp_path)
    (slurm / "refusals").write_text("\n" * 3)
    assert main(["--state-dir", str(tmp_path)]) == 0
    homeward = [f"update jobid={job} Partition=batch ReqNodeList=" for job in (10, 11)]
    assert calls(slurm) == [*homeward, *homeward, homeward[0], "update jobid=20 ArrayTaskThrottle=0"]
    listed = ["11: waits in batch again", "10: waits in batch again", "20: ArrayTaskThrottle=0 as before"]
    assert capsys.readouterr().out.splitlines() == listed
    assert open_offers(path) == {} and open_changes(path) == {}


def test_undo_looks_again_before_it_tries_again(tmp_path: Path, slurm: Path) -> None:
    """The job may have started meanwhile, and what is asked of one that waits could shrink it."""
    path = left_open(tmp_path)
    (slurm / "refusals").write_text("\n")
    scontrol = slurm / "scontrol"
    begins = f"echo 'RUNNING|guest|n2' > {slurm}/state\nexit 1\n"
    scontrol.write_text(scontrol.read_text().replace("exit 1\n", begins))
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert calls(slurm) == [
        "update jobid=10 Partition=batch ReqNodeList=",
        "update jobid=20 ArrayTaskThrottle=0",
    ]
    assert open_offers(path).keys() == {"10", "11"}


def test_undo_gives_up_after_a_while_and_says_so(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(undo, "PATIENCE_S", 0.0)
    path = left_open(tmp_path)
    (slurm / "refusals").write_text("\n" * 9)
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert len(calls(slurm)) == 3
    assert "10: not taken back (Resource temporarily unavailable for job 10)" in capsys.readouterr().out
    assert len(open_offers(path)) == 2 and len(open_changes(path)) == 1

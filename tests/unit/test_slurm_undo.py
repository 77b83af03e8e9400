"""`asad-undo` and the journal: what is offered is on the disk first, and can be taken back by anybody."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from asad_mesos import queue_undo
from asad_slurm import undo
from asad_slurm.command import CommandTransport
from asad_slurm.journal import Journal, JournalError
from asad_slurm.offers import Offers
from asad_slurm.undo import ALIVE, SETTLES_S, in_part, main, open_changes, open_offers, undo_changes

OFFER = {
    "raw": 12,
    "partition": "batch",
    "required_nodes": "n1",
    "guest_partition": "guest",
    "nodes": "n2",
    "host": "7",
    "estimate_s": None,
    "share": 0.5,
    "capped": False,
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """squeue and scontrol over the files state, calls and refuse in a folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    squeue = f"""\
        #!/bin/sh
        case "$*" in *--Format=*) cat {folder}/waiting 2>/dev/null; exit 0;; esac
        echo "$*" >> {folder}/asked
        [ -s {folder}/state ] || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }}
        cat {folder}/state
        """
    scontrol = f"""\
        #!/bin/sh
        case "$*" in "show job"*) cat {folder}/shown 2>/dev/null; exit 0;; esac
        echo "$*" >> {folder}/calls
        [ -e {folder}/says ] && cat {folder}/says >&2 && exit 1
        [ -e {folder}/refuse ] || exit 0
        echo 'slurm_update error: Unable to contact slurm controller' >&2
        exit 1
        """
    for name, script in (("squeue", squeue), ("scontrol", scontrol)):
        (folder / name).write_text(textwrap.dedent(script))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def offered(tmp_path: Path, time_s: float = 1000.0, job: str = "12") -> Path:
    journal = Journal(tmp_path)
    journal.write("offer", time_s, job, **OFFER)
    return journal.path


def test_a_waiting_job_gets_back_what_it_had(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest|n2\n")
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "12: waits in batch again\n"
    assert (slurm / "calls").read_text() == "update jobid=12 Partition=batch ReqNodeList=n1\n"
    assert open_offers(path) == {}
    assert main(["--state-dir", str(tmp_path)]) == 0  # nothing is left to do
    assert len((slurm / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("state", "text", "stays"),
    [
        ("RUNNING|guest", "12: it runs as a guest, and is left alone", True),
        ("PENDING|batch", "12: somebody else has moved it back", False),
        ("PENDING|long|n1", "12: somebody else has moved it back", False),
        ("RUNNING|batch|n2", "12: somebody else has moved it back", False),
        ("COMPLETED|guest", "12: it has ended", False),
        ("", "12: it has ended", False),
    ],
)
def test_other_jobs_are_left_alone(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str], state: str, text: str, stays: bool
) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text(state)
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == text
    assert not (slurm / "calls").exists() and bool(open_offers(path)) == stays


def test_a_job_that_was_moved_home_without_its_node_list_gets_that_too(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its user did: it would wait for the nodes of its offer for ever."""
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|batch|n2\n")
    (slurm / "refuse").touch()
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert "still bound to the nodes of its offer" in capsys.readouterr().out and open_offers(path)
    (slurm / "refuse").unlink()
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert (slurm / "calls").read_text().splitlines()[-1] == "update jobid=12 ReqNodeList=n1"
    assert open_offers(path) == {}


def test_the_last_task_of_an_array_is_not_taken_for_all_of_it(tmp_path: Path, slurm: Path) -> None:
    """It has the number of the array itself, by which squeue and scontrol mean every task."""
    offered(tmp_path, job="12_7")
    (slurm / "state").write_text("PENDING|guest|n2\n")
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert "--jobs=12_7" in (slurm / "asked").read_text()
    assert (slurm / "calls").read_text() == "update jobid=12_7 Partition=batch ReqNodeList=n1\n"


@pytest.mark.parametrize("state", ["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"])
def test_a_requeued_guest_is_restored(tmp_path: Path, slurm: Path, state: str) -> None:
    offered(tmp_path)
    Journal(tmp_path).write("started", 1001.0, "12")
    (slurm / "state").write_text(f"{state}|guest|n2\n")
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert "Partition=batch ReqNodeList=n1" in (slurm / "calls").read_text()


def test_what_could_not_be_taken_back_stays_open(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest\n")
    (slurm / "refuse").touch()
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert (
        "not taken back (slurm_update error: Unable to contact slurm controller)" in capsys.readouterr().out
    )
    assert list(open_offers(path)) == ["12"]


def test_slurm_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = offered(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert list(open_offers(path)) == ["12"]


def test_young_offers_are_left_to_the_daemon(tmp_path: Path, slurm: Path) -> None:
    offered(tmp_path, time_s=5000.0)
    (slurm / "state").write_text("PENDING|guest\n")
    lines, failed = undo.undo(tmp_path / "offers.journal", older_than_s=100.0, now_s=5099.0)
    assert (lines, failed) == ([], 0) and not (slurm / "calls").exists()
    lines, failed = undo.undo(tmp_path / "offers.journal", older_than_s=100.0, now_s=5100.0)
    assert lines == ["12: waits in batch again"] and failed == 0


def test_a_journal_that_others_may_write_is_not_believed(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest|n2\n")
    tmp_path.chmod(0o777)
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert "others may write there" in capsys.readouterr().err and not (slurm / "calls").exists()
    with pytest.raises(JournalError, match="others may write there"):
        Journal(tmp_path).open_offers()
    tmp_path.chmod(0o750)
    assert main(["--state-dir", str(tmp_path)]) == 0 and open_offers(path) == {}


def test_no_journal_is_no_offer(tmp_path: Path) -> None:
    assert main(["--state-dir", str(tmp_path)]) == 0


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path, slurm: Path) -> None:
    for module in (undo, queue_undo):
        tree = ast.parse(Path(module.__file__).read_text())
        imported = {
            name.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for name in node.names
        } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        others = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
        assert others <= {"asad_slurm.undo"}, module
    offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest\n")
    # with numpy, orjson and asad itself broken
    broken = tmp_path / "broken"
    for name in ("numpy", "orjson", "asad", "ClusterShell"):
        (broken / name).mkdir(parents=True)
        (broken / name / "__init__.py").write_text("raise RuntimeError('broken')")
    held = {"job": 17, "take": 1, "array": 0, "task": -1, "submit_s": 1.0, "facts": {}, "since_s": 1.0}
    (tmp_path / "slurm-queue.journal").write_text(json.dumps(held | {"state": "holding"}) + "\n")
    script = "import sys; from asad_slurm.undo import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, "--state-dir", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(broken)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "12: waits in batch again\n"), done.stderr
    assert (tmp_path / "mesos.journal.lock").exists(), "the step of the Mesos plugin has looked, too"


def test_a_broken_step_of_a_plugin_keeps_no_other_from_being_done(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest\n")
    names = ("gone:undo", "json:nothing")
    points = [EntryPoint(f"step{number}", name, "asad.undo") for number, name in enumerate(names)]
    monkeypatch.setattr(undo, "entry_points", lambda group: points)
    assert main(["--state-dir", str(tmp_path)]) == 1
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "12: waits in batch again" and len(others) == 2
    assert "step0: what it holds stays so (ModuleNotFoundError" in others[0]


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = offered(tmp_path)
    with path.open("a") as file:
        file.write('{"what": "offer", "job": "13", "time')
    journal = Journal(tmp_path)
    journal.write("offer", 1001.0, "14", **OFFER)
    path.write_bytes(path.read_bytes() + b'\xff\xfe[]\n"x"\n')
    assert list(journal.open_offers()) == ["12", "14"]


def test_an_offer_that_cannot_be_read_stays_until_it_is_over_and_stops_no_other(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another version, say."""
    journal = Journal(tmp_path)
    journal.write("offer", 1000.0, "11", guest_partition="guest", partition="batch")
    journal.write("offer", 1000.0, "13", nodes="n1")
    path = offered(tmp_path)
    offers = Offers(CommandTransport(5.0), journal, 60.0, lambda: 1000.0)
    offers.load()
    assert list(offers.open) == ["12"] and open_offers(path).keys() == {"11", "12", "13"}
    (slurm / "state").write_text("PENDING|guest|n2\n")
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert open_offers(path).keys() == {"13"}
    assert "13: its line in offers.journal makes no sense" in capsys.readouterr().out


def test_a_journal_is_compacted_to_what_is_open(tmp_path: Path) -> None:
    path = offered(tmp_path)
    journal = Journal(tmp_path)
    for number in range(50):
        journal.write("offer", 1001.0, f"2{number}", **OFFER)
        journal.write("withdrawn", 1002.0, f"2{number}")
    journal.compact(journal.open_offers())
    assert [json.loads(line)["job"] for line in path.read_text().splitlines()] == ["12"]


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "offers.journal").mkdir()
    with pytest.raises(JournalError, match=r"offers\.journal: cannot be written"):
        Journal(tmp_path).write("offer", 1.0, "12", **OFFER)
    with pytest.raises(JournalError):
        Journal(tmp_path / "missing").write("offer", 1.0, "12", **OFFER)


def test_a_full_disk_is_noticed() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.fail("this system has no /dev/full")
    journal = Journal(Path("/tmp"))
    journal.path = full
    with pytest.raises(JournalError):
        journal.write("offer", 1.0, "12", **OFFER)


# ------------------------------------------------------------------------------------------------------------ changes

BEGIN_S = 2_000_000_000


def change(tmp_path: Path, key: str, was: int, *ours: int, job: str = "20", time_s: float = 1000.0) -> Path:
    journal = Journal(tmp_path)
    journal.write("changed", time_s, job, key=key, was=was, ours=list(ours))
    return journal.path


def waits(
    slurm: Path, begin: int | str = 5, nice: int = 0, priority: int = 100, tasks: str = "1-9", job: str = "20"
) -> None:
    """What squeue says of job 20, and scontrol of its throttle: no list of squeue's does so everywhere."""
    (slurm / "waiting").write_text(f"{job:30}{'PENDING':30}{begin:<30}{nice:<30}{priority:<30}\n")
    throttle = tasks.partition("%")[2]
    bound = f"ArrayTaskThrottle={throttle} " if throttle else ""
    (slurm / "shown").write_text(f"JobId=20 ArrayJobId=20 ArrayTaskId={tasks} {bound}JobName=x UserId=a(1)\n")


def calls(slurm: Path) -> list[str]:
    path = slurm / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_what_was_changed_is_returned_in_one_call(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(tmp_path, "StartTime", 0, BEGIN_S)
    change(tmp_path, "ArrayTaskThrottle", 8, 3, 2)
    path = change(tmp_path, "Nice", 100, -9900)
    waits(slurm, BEGIN_S, -9900, tasks="1-9,12%2")
    assert main(["--state-dir", str(tmp_path)]) == 0
    words = "StartTime=now ArrayTaskThrottle=8 Nice=100"
    assert calls(slurm) == [f"update jobid=20 {words}"]
    assert capsys.readouterr().out == f"20: {words} as before\n"
    assert open_changes(path) == {}
    assert main(["--state-dir", str(tmp_path)]) == 0 and len(calls(slurm)) == 1


@pytest.mark.parametrize(
    ("shown", "restored"),
    [
        ("ArrayTaskId=7 ArrayTaskThrottle=3 JobName=x", True),  # the last one that waits
        ("ArrayTaskId=7%3 ArrayTaskThrottle=3 JobName=x", True),  # the same on 26.05
        ("ArrayTaskId=7-9 JobName=x", False),  # its user has lifted it
        (
            "ArrayTaskId=7-9 JobName=x\nJobId=20 ArrayJobId=20 ArrayTaskId=1 ArrayTaskThrottle=3 JobName=y",
            False,
        ),
        ("ArrayTaskId=7 JobName=x ArrayTaskThrottle=3 JobName=y", False),  # names are the users'
    ],
)
def test_a_throttle_is_known_of_whatever_tasks_wait(
    tmp_path: Path, slurm: Path, shown: str, restored: bool
) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    waits(slurm)
    (slurm / "shown").write_text(f"JobId=20 ArrayJobId=20 {shown} UserId=a(1)\n")
    assert undo_changes(path, older_than_s=0.0, now_s=1000.0 + SETTLES_S)[1] == 0
    assert calls(slurm) == (["update jobid=20 ArrayTaskThrottle=0"] if restored else [])
    assert open_changes(path) == {}


def test_the_users_own_begin_time_comes_back(tmp_path: Path, slurm: Path) -> None:
    own = 1_999_999_000
    change(tmp_path, "StartTime", own, BEGIN_S)
    waits(slurm, BEGIN_S)
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert calls(slurm) == [
        "update jobid=20 StartTime=2033-05-18T03:16:40"
    ]  # in UTC, as is scontrol's environment


def test_changes_are_the_daemons_business_while_it_lives(tmp_path: Path, slurm: Path) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    waits(slurm, tasks="1-9%3")
    alive = tmp_path / ALIVE
    alive.touch()
    os.utime(alive, (5000.0, 5000.0))
    assert undo_changes(path, older_than_s=600.0, now_s=5599.0) == ([], 0) and not calls(slurm)
    lines, failed = undo_changes(path, older_than_s=600.0, now_s=5600.0)
    assert (lines, failed) == (["20: ArrayTaskThrottle=0 as before"], 0)
    # a pulse from the future is of before the clock was set back: nobody knows how old it is
    change(tmp_path, "ArrayTaskThrottle", 0, 3)
    assert undo_changes(path, older_than_s=600.0, now_s=4000.0)[0]
    # without a pulse there is no daemon
    change(tmp_path, "ArrayTaskThrottle", 0, 3)
    alive.unlink()
    assert undo_changes(path, older_than_s=600.0, now_s=1001.0)[0]
    assert len(calls(slurm)) == 3


def test_what_somebody_else_has_changed_is_let_be(tmp_path: Path, slurm: Path) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    change(tmp_path, "StartTime", 0, BEGIN_S)
    waits(slurm, BEGIN_S + 7, tasks="1-9%5")
    assert undo_changes(path, older_than_s=0.0, now_s=1000.0 + SETTLES_S) == ([], 0)
    assert not calls(slurm) and open_changes(path) == {}


def test_a_change_that_is_not_seen_yet_stays_open(tmp_path: Path, slurm: Path) -> None:
    """The daemon was killed between the journal and Slurm's answer: it may yet come."""
    path = change(tmp_path, "StartTime", 0, BEGIN_S)
    waits(slurm)
    assert undo_changes(path, older_than_s=0.0, now_s=1001.0) == ([], 0)
    assert open_changes(path).keys() == {("20", "StartTime")} and not calls(slurm)
    waits(slurm, BEGIN_S)
    assert undo_changes(path, older_than_s=0.0, now_s=1301.0)[0] == ["20: StartTime=now as before"]


def test_what_a_killed_daemon_asked_for_last_is_returned_though_it_comes_late(
    tmp_path: Path, slurm: Path
) -> None:
    """It was killed while scontrol asked for the second of two begin times, and scontrol outlived it."""
    path = change(tmp_path, "StartTime", 0, BEGIN_S, BEGIN_S + 60)
    waits(slurm, BEGIN_S)
    assert undo_changes(path, older_than_s=0.0, now_s=1001.0)[0] == ["20: StartTime=now as before"]
    assert open_changes(path).keys() == {("20", "StartTime")}, "the other may yet come"
    waits(slurm)
    assert undo_changes(path, older_than_s=0.0, now_s=1002.0) == ([], 0)
    waits(slurm, BEGIN_S + 60)
    assert undo_changes(path, older_than_s=0.0, now_s=1003.0)[0] == ["20: StartTime=now as before"]
    assert open_changes(path) == {} and len(calls(slurm)) == 2
    # and if it never comes, it is waited for no longer than that
    change(tmp_path, "StartTime", 0, BEGIN_S, BEGIN_S + 60)
    waits(slurm)
    undo_changes(path, older_than_s=0.0, now_s=1000.0 + SETTLES_S)
    assert open_changes(path) == {}


def test_an_offer_that_slurm_has_not_heard_of_yet_stays_open(tmp_path: Path, slurm: Path) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|batch|\n")
    lines, failed = undo.undo(path, older_than_s=0.0, now_s=1001.0)
    assert failed == 0 and "it may come" in lines[0] and open_offers(path).keys() == {"12"}
    (slurm / "state").write_text("PENDING|guest|n2\n")
    assert undo.undo(path, older_than_s=0.0, now_s=1002.0) == (["12: waits in batch again"], 0)
    assert open_offers(path) == {}
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|batch|\n")
    undo.undo(path, older_than_s=0.0, now_s=1000.0 + SETTLES_S)
    assert open_offers(path) == {}, "it did not come"


def test_jobs_that_wait_no_more_keep_what_they_have(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "20: it does not wait any more\n"
    assert not calls(slurm) and open_changes(path) == {}


def test_a_held_job_keeps_the_nice_that_would_release_it(tmp_path: Path, slurm: Path) -> None:
    path = change(tmp_path, "Nice", 0, -10_000)
    change(tmp_path, "ArrayTaskThrottle", 0, 3)
    waits(slurm, nice=-10_000, priority=0, tasks="1-9%3")
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert calls(slurm) == ["update jobid=20 ArrayTaskThrottle=0"]
    assert open_changes(path).keys() == {("20", "Nice")}


def test_changes_that_slurm_refuses_stay_open(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    waits(slurm, tasks="1-9%3")
    (slurm / "refuse").touch()
    assert main(["--state-dir", str(tmp_path)]) == 1
    assert "ArrayTaskThrottle stay open" in capsys.readouterr().out and len(open_changes(path)) == 1


def test_an_array_of_which_tasks_run_is_returned_all_the_same(tmp_path: Path, slurm: Path) -> None:
    path = change(tmp_path, "StartTime", 0, BEGIN_S)
    waits(slurm, BEGIN_S)
    (slurm / "says").write_text("20_[3-9]: No error\n20_[0-2]: Job is no longer pending execution\n")
    assert main(["--state-dir", str(tmp_path)]) == 0 and open_changes(path) == {}


@pytest.mark.parametrize(
    ("job", "text", "done"),
    [
        ("20", "20_[3-9]: No error\n20_0: Job is no longer pending execution\n", True),
        ("20", "20_0-2: Job has already finished\n20_3-9: No error\n", True),
        (
            "20",
            "20_0-1: Job has already finished\n20_2: Job is no longer pending execution\n",
            True,
        ),  # since 24.11
        ("20_2", "20_2: Job is no longer pending execution\n", False),
        ("20", "20_[3-9]: Access/permission denied\n20_0: Job is no longer pending execution\n", False),
        ("20", "Job is no longer pending execution for job 20\n", False),
        ("20", "slurm_update error: Access/permission denied\n", False),
        ("20", "", False),
    ],
)
def test_what_scontrol_says_of_the_parts_of_an_array(job: str, text: str, done: bool) -> None:
    assert in_part(job, text) is done


def test_compacting_keeps_the_changes_and_the_offers(tmp_path: Path) -> None:
    path = offered(tmp_path)
    for throttle in range(1, 50):
        change(tmp_path, "ArrayTaskThrottle", 0, throttle)
    change(tmp_path, "Nice", 0, -10_000, job="21")
    Journal(tmp_path).write("given-back", 1001.0, "21", key="Nice")
    journal = Journal(tmp_path)
    journal.compact(journal.open_offers())
    assert [json.loads(line)["what"] for line in path.read_text().splitlines()] == ["offer", "changed"]
    assert list(journal.open_offers()) == ["12"]
    assert journal.open_changes()["20", "ArrayTaskThrottle"]["ours"] == [49]


@pytest.mark.parametrize(
    "line",
    [
        '{"what": "changed", "job": "20", "key": "ArrayTaskThrottle", "was": 0, "ours": [',
        '{"what": "changed", "job": "20", "key": "JobName", "was": 0, "ours": [1], "time_s": 1}',
        '{"what": "changed", "job": "20; reboot", "key": "Nice", "was": 0, "ours": [1], "time_s": 1}',
        '{"what": "changed", "job": "20", "key": "Nice", "was": "0 Priority=9", "ours": [1], "time_s": 1}',
        '{"what": "changed", "job": "20", "key": "Nice", "was": NaN, "ours": [1], "time_s": 1}',
        '{"what": "changed", "job": "20", "key": "Nice", "was": Infinity, "ours": [1], "time_s": 1}',
        '{"what": "changed", "job": "20", "key": "Nice", "was": 0, "ours": [], "time_s": 1}',
        '{"what": "changed", "job": "20", "key": "Nice", "was": 0, "ours": 7, "time_s": 1}',
        '{"what": "changed", "job": "20", "key": "Nice", "was": true, "ours": [1], "time_s": 1}',
        '{"what": "changed", "job": "20", "key": ["Nice"], "was": 0, "ours": [1], "time_s": 1}',
        '["changed"]',
        "\x00\xff",
    ],
)
def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path, line: str) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    with path.open("a") as file:
        file.write(line + "\n")
    change(tmp_path, "StartTime", 0, BEGIN_S, job="21")
    assert open_changes(path).keys() == {("20", "ArrayTaskThrottle"), ("21", "StartTime")}


def test_an_older_journal_has_no_changes(tmp_path: Path) -> None:
    path = offered(tmp_path)
    assert open_changes(path) == {} and list(open_offers(path)) == ["12"]


@pytest.mark.parametrize("set_s", [365 * 86_400.0, -365 * 86_400.0])
def test_a_clock_that_leaps_takes_no_daemon_for_dead(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch, set_s: float
) -> None:
    path = change(tmp_path, "ArrayTaskThrottle", 0, 3)
    waits(slurm, tasks="1-9%3")
    Journal(tmp_path).beat()
    now_s = time.time() + set_s
    assert undo_changes(path, older_than_s=600.0, now_s=now_s) == ([], 0)
    assert open_changes(path)
    monkeypatch.setattr(undo, "boot_id", lambda: "another")  # of which nothing is known but the file's date
    assert undo_changes(path, older_than_s=600.0, now_s=now_s)[0]
    assert not open_changes(path)


# --------------------------------------------------------------------------------------------- the configured folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[daemon]\nstate_dir = '/srv/asad'\n[node]\nstate_dir = '/srv/node'\n", "/srv/asad"),
        ('daemon.state_dir = "/srv/asad"\n', "/srv/asad"),
        ("[node]\nstate_dir = '/srv/node'\n", "/var/lib/asad"),
        ("", "/var/lib/asad"),
        ("[daemon]\nstate_dir = 3\n", "/var/lib/asad"),
        ("[daemon]\nstate_dir = 'relative'\n", "/var/lib/asad"),
        ("daemon = 3\n", "/var/lib/asad"),
    ],
)
def test_the_folder_is_that_of_the_configuration(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "asad.toml").write_text(text)
    assert undo.configured(tmp_path / "asad.toml")[0] == Path(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[node]\nstate_dir = '/n'\n[daemon]\n# that\nstate_dir = \"/srv/asad\"  # here\n[[[\n", "/srv/asad"),
        ("[daemon]\nmode = advise\n[node]\nstate_dir = '/srv/node'\n", "/var/lib/asad"),
        ("\x00\x1b[2J", "/var/lib/asad"),
    ],
)
def test_the_folder_is_found_in_a_configuration_that_is_broken(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "asad.toml").write_text(text)
    found, journal, why = undo.configured(tmp_path / "asad.toml")
    assert found == journal == Path(expected)
    assert "is not TOML" in why and f"{expected} is looked at" in why


def test_without_a_configuration_the_usual_folder_is_looked_at(tmp_path: Path) -> None:
    usual = Path("/var/lib/asad")
    assert undo.configured(tmp_path / "none") == (usual, usual, "")
    found, _, why = undo.configured(tmp_path)
    assert found == Path("/var/lib/asad") and "cannot be read" in why


def test_the_journal_may_lie_elsewhere_and_another_daemons_offers_are_let_be(
    tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state, shared, place = tmp_path / "state", tmp_path / "shared", tmp_path / "asad.toml"
    for folder in (state, shared):
        folder.mkdir()
    path = offered(shared)
    (slurm / "state").write_text("PENDING|guest|n2\n")
    place.write_text(f"[daemon]\nstate_dir = '{state}'\n[slurm]\njournal_dir = '{shared}'\n")
    monkeypatch.setenv("EXIT_STATUS", "7")
    assert main(["--config", str(place)]) == 0
    assert "another daemon has taken over" in capsys.readouterr().out and open_offers(path)
    monkeypatch.delenv("EXIT_STATUS")
    assert main(["--config", str(place)]) == 0
    assert not open_offers(path)


def test_an_offer_in_the_configured_folder_is_taken_back(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, place = tmp_path / "state", tmp_path / "asad.toml"
    folder.mkdir()
    path = offered(folder)
    (slurm / "state").write_text("PENDING|guest|n2\n")
    place.write_text(f"[daemon]\nstate_dir = '{folder}'\n[[[")
    assert main(["--config", str(place)]) == 0
    assert open_offers(path) == {}
    output = capsys.readouterr()
    assert "12: waits in batch again" in output.out and "is not TOML" in output.err
    assert main(["--config", str(place), "--state-dir", str(tmp_path)]) == 0, "which counts more"

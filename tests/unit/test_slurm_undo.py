"""`asad-undo` and the journal: what is offered is on the disk first, and can be taken back by anybody."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from asad_slurm import undo
from asad_slurm.journal import Journal, JournalError
from asad_slurm.undo import main, open_offers

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
        [ -s {folder}/state ] || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }}
        cat {folder}/state
        """
    scontrol = f"""\
        #!/bin/sh
        echo "$*" >> {folder}/calls
        [ -e {folder}/refuse ] || exit 0
        echo 'slurm_update error: Unable to contact slurm controller' >&2
        exit 1
        """
    for name, script in (("squeue", squeue), ("scontrol", scontrol)):
        (folder / name).write_text(textwrap.dedent(script))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def offered(tmp_path: Path, time_s: float = 1000.0) -> Path:
    journal = Journal(tmp_path)
    journal.write("offer", time_s, "12", **OFFER)
    return journal.path


def test_a_waiting_job_gets_back_what_it_had(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest\n")
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "12: waits in batch again\n"
    assert (slurm / "calls").read_text() == "update jobid=12 Partition=batch ReqNodeList=n1\n"
    assert open_offers(path) == {}
    assert main(["--state-dir", str(tmp_path)]) == 0  # nothing is left to do
    assert len((slurm / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("state", "said", "stays"),
    [
        ("RUNNING|guest", "12: it runs as a guest, and is left alone", True),
        ("PENDING|batch", "12: somebody else has moved it back", False),
        ("COMPLETED|guest", "12: it has ended", False),
        ("", "12: it has ended", False),
    ],
)
def test_other_jobs_are_left_alone(
    tmp_path: Path, slurm: Path, capsys: pytest.CaptureFixture[str], state: str, said: str, stays: bool
) -> None:
    path = offered(tmp_path)
    (slurm / "state").write_text(state)
    assert main(["--state-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == said
    assert not (slurm / "calls").exists() and bool(open_offers(path)) == stays


def test_a_requeued_guest_is_restored(tmp_path: Path, slurm: Path) -> None:
    offered(tmp_path)
    Journal(tmp_path).write("started", 1001.0, "12")
    (slurm / "state").write_text("PENDING|guest\n")
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
    said, failed = undo.undo(tmp_path / "offers.journal", older_than_s=100.0, now_s=5099.0)
    assert (said, failed) == ([], 0) and not (slurm / "calls").exists()
    said, failed = undo.undo(tmp_path / "offers.journal", older_than_s=100.0, now_s=5100.0)
    assert said == ["12: waits in batch again"] and failed == 0


def test_no_journal_is_no_offer(tmp_path: Path) -> None:
    assert main(["--state-dir", str(tmp_path)]) == 0


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path, slurm: Path) -> None:
    tree = ast.parse(Path(undo.__file__).read_text())
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    } | {
        node.module.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert imported <= sys.stdlib_module_names
    offered(tmp_path)
    (slurm / "state").write_text("PENDING|guest\n")
    # with numpy, orjson and asad itself broken
    broken = tmp_path / "broken"
    for name in ("numpy", "orjson", "asad", "ClusterShell"):
        (broken / name).mkdir(parents=True)
        (broken / name / "__init__.py").write_text("raise RuntimeError('broken')")
    script = "import sys; from asad_slurm.undo import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, "--state-dir", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(broken)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "12: waits in batch again\n"), done.stderr


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = offered(tmp_path)
    with path.open("a") as file:
        file.write('{"what": "offer", "job": "13", "time')
    journal = Journal(tmp_path)
    journal.write("offer", 1001.0, "14", **OFFER)
    path.write_bytes(path.read_bytes() + b'\xff\xfe[]\n"x"\n')
    assert list(journal.open_offers()) == ["12", "14"]


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

"""Another head node goes on where the first was lost: its journal is gone, and its offers are not."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asad_slurm.command import Answer
from asad_slurm.marks import Marks, unmarked
from slurm_samples import Lab, SlurmInMemory, a_job, running, sample

Make = Callable[..., Lab]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Whole-node hosts on n1 to n3, n4 idle, and job 10 that waits, as `facts` say."""

    def lab(settings: dict[str, Any] | None = None, **facts: Any) -> Lab:
        slurm = SlurmInMemory()
        slurm.add(*(running(i, {f"n{i}": 2}) for i in (1, 2, 3)), a_job(10, **facts))
        (tmp_path / "first").mkdir()
        made = Lab(tmp_path / "first", slurm, **(settings or {}))
        for i in (1, 2, 3):
            made.actors.report(f"n{i}", sample(i))
        return made

    return lab


def lose(lab: Lab, key: str = "") -> list[str]:
    """The head node is lost; what its successor says at its start. `key`: the file that both have."""
    lab.state_dir = lab.state_dir.with_name("second")
    lab.state_dir.mkdir()
    if key:
        lab.settings["mark_key"] = key
    lab.cluster = lab.open()
    return lab.cluster.recover()


def test_an_offer_of_a_lost_head_node_is_taken_back(make: Make) -> None:
    lab = make()
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lines = lose(lab)
    assert lines[0] == (
        "10: it waits in guest, and no offer of this daemon is why; which nodes its user wants is not known, and it "
        "waits for any"
    )
    job = lab.slurm.jobs[10]
    assert (job["partition"], job["required_nodes"]) == ("batch", "")
    lab.snapshot(5)
    assert lab.cluster.notices[-1] == "10: an offer to it was left over; it waits in batch again"
    count = len(lab.slurm.updates)
    lab.snapshot(5)
    assert len(lab.slurm.updates) == count, "it is done once"


def test_a_mark_gives_the_nodes_back_that_its_user_wants(make: Make, tmp_path: Path) -> None:
    key = str(tmp_path / "mark.key")
    lab = make({"mark_key": key}, required_nodes="n1", admin_comment="the site's own")
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    job = lab.slurm.jobs[10]
    assert job["admin_comment"].startswith("the site's own asad-home=") and job["required_nodes"] == "n1"
    (lines, _) = lose(lab, key)
    assert lines == "10: it waits in guest, and no offer of this daemon is why"
    assert (job["partition"], job["required_nodes"], job["admin_comment"]) == (
        "batch",
        "n1",
        "the site's own",
    )


def test_an_offer_that_is_withdrawn_takes_its_mark_along(make: Make) -> None:
    lab = make(required_nodes="n1", admin_comment="")
    lab.offer(lab.snapshot(), "10", "1", "n1")
    assert "asad-home=" in lab.slurm.jobs[10]["admin_comment"]
    lab.cluster.release()
    assert lab.slurm.jobs[10]["admin_comment"] == "" and lab.slurm.jobs[10]["required_nodes"] == "n1"


@pytest.mark.parametrize("denied", [False, True])
def test_a_mark_goes_with_its_offer_and_never_after_it(make: Make, denied: bool) -> None:
    # in between the daemon of another head node may have offered it anew, under a mark of its own
    lab = make(required_nodes="n1", admin_comment="")
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.denies = "AdminComment" if denied else ""
    made = len(lab.slurm.updates)
    lab.cluster.release()
    home = {"Partition", "ReqNodeList", "AdminComment"}
    asked = [home & changes.keys() for _, changes in lab.slurm.updates[made:]]
    assert asked == ([home, home - {"AdminComment"}] if denied else [home])
    job = lab.slurm.jobs[10]
    assert (job["partition"], job["required_nodes"]) == ("batch", "n1")
    assert ("asad-home=" in job["admin_comment"]) == denied


def test_a_job_whose_user_wants_any_nodes_is_not_marked(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    assert not any("AdminComment" in changes for _, changes in lab.slurm.updates)


def test_where_marks_may_not_be_written_offers_are_made_all_the_same(make: Make) -> None:
    lab = make(required_nodes="n1")
    lab.slurm.denies = "AdminComment"
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.cluster.release()
    lab.now_s += 3600.0
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    assert sum("AdminComment" in changes for _, changes in lab.slurm.updates) == 1, "it is tried once"


def test_a_job_that_could_not_be_marked_is_not_offered_anything_yet(make: Make) -> None:
    lab = make(required_nodes="n1")
    snapshot = lab.snapshot()
    update = lab.slurm.update
    lab.slurm.update = lambda raw, changes: (  # type: ignore[method-assign]
        Answer(False, "scontrol: no answer within 3 s", certain=False)
        if "AdminComment" in changes
        else update(raw, changes)
    )
    assert "could not be noted on it: scontrol: no answer" in lab.offer(snapshot, "10", "1", "n1")
    assert lab.slurm.jobs[10]["partition"] == "batch" and not lab.slurm.updates
    lab.slurm.update = update  # type: ignore[method-assign]
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    assert "asad-home=" in lab.slurm.jobs[10]["admin_comment"]


@pytest.mark.parametrize("forged", ["another key", "another job", "another node list", "nonsense"])
def test_a_mark_of_somebody_else_is_not_believed(make: Make, tmp_path: Path, forged: str) -> None:
    key = tmp_path / "mark.key"
    lab = make({"mark_key": str(key)}, required_nodes="n1")
    snapshot = lab.snapshot()
    assert lab.offer(snapshot, "10", "1", "n1") == ""
    job = lab.slurm.jobs[10]
    mark = job["admin_comment"]
    if forged == "another key":
        key.write_text("x" * 64)
    elif forged == "another job":
        job["submit_time"] -= 1
    elif forged == "another node list":
        home = base64.urlsafe_b64encode(json.dumps(["batch", "n4", ""]).encode()).decode().rstrip("=")
        job["admin_comment"] = f"asad-home={home}.{mark.rpartition('.')[2]}"
    else:
        job["admin_comment"] = "asad-home=" + 30 * "A" + "." + 32 * "0"
    lines = lose(lab, str(key))
    assert "is not known, and it waits for any" in lines[0]
    assert (job["partition"], job["required_nodes"]) == ("batch", "")


def test_two_head_nodes_may_share_the_journal(make: Make, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    lab = make({"journal_dir": str(shared)}, required_nodes="n1")
    lab.offer(lab.snapshot(), "10", "1", "n1")
    assert (shared / "offers.journal").exists() and not (lab.state_dir / "offers.journal").exists()
    lines = lose(lab)
    assert lines == ["10: an offer to it was left over; it waits in batch again"]
    assert lab.slurm.jobs[10]["required_nodes"] == "n1"


def test_of_several_partitions_the_one_where_it_waited_is_marked_or_the_first(make: Make) -> None:
    lab = make({"guest_partitions": {"batch": "guest", "urgent": "guest"}})
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lines = lose(lab)
    assert "where it waited is not known (batch or urgent)" in lines[0]
    assert lab.slurm.jobs[10]["partition"] == "batch"


def test_a_guest_that_runs_is_let_be_and_taken_home_when_it_is_requeued(make: Make) -> None:
    lab = make()
    lab.offer(lab.snapshot(), "10", "1", "n1")
    lab.slurm.start(10, "n1", lab.now_s)
    assert lose(lab) == []
    lab.snapshot(5)
    assert lab.slurm.jobs[10]["job_state"] == "RUNNING"
    lab.slurm.jobs[10] = a_job(10, partition="guest", required_nodes="n1", restart_cnt=1)
    lab.snapshot(5)
    assert lab.slurm.jobs[10]["partition"] == "batch"


def test_keys_that_others_can_read_or_that_are_short_are_refused(tmp_path: Path) -> None:
    for text, mode, why in (
        ("x" * 64, 0o644, "others may read or write the key"),
        ("short", 0o600, "a key of fewer than 16 bytes"),
    ):
        key = tmp_path / "key"
        key.write_text(text)
        key.chmod(mode)
        marks = Marks(key)
        marks.load()
        assert why in marks.trouble
        key.unlink()
    nowhere = Marks(tmp_path / "none" / "key")
    nowhere.load()
    assert "No such file" in nowhere.trouble
    made = Marks(tmp_path / "new.key")
    made.load()
    assert made.trouble == "" and made.key_file.stat().st_mode & 0o777 == 0o600
    assert unmarked("a asad-home=AA." + 32 * "0") == "a"

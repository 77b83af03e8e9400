"""The one writer: what it writes, in which order, what it keeps, and that it puts everything back."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from pathlib import Path

import pytest
from node_tree import Tree, write

from asad.node.cgroups import Cgroups, JobGroup
from asad.node.kernel_files import BURST, IDLE, KNOBS, LEAST_US, MEMORY, PAGE_BYTES, QUOTA, SHARES, UNLIMITED
from asad.node.memory_limits import MOST_RECLAIM
from asad.node.quotas import Quotas


class Node:
    """A made-up v2 node with one job."""

    def __init__(self, folder: Path, version: int = 2) -> None:
        self.tree = Tree(folder / "tree", version)
        self.base = self.tree.job("7", (100, 101))
        self.state = folder / "state"
        self.state.mkdir()
        self.quotas = self.successor()
        self.job = self.jobs()["7"]

    def jobs(self) -> dict[str, JobGroup]:
        return dict(Cgroups(self.tree.root, "n1", self.tree.proc).jobs(0.0))

    def successor(self) -> Quotas:
        return Quotas(Cgroups(self.tree.root, "n1", self.tree.proc), self.state, lambda: 1000.0)

    def read(self, name: str) -> str:
        return (self.base / name).read_text().strip()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_every_knob_has_both_paths_and_refuses_nonsense() -> None:
    for knob in KNOBS:
        controller = "memory." if knob is MEMORY else "cpu."
        assert knob.v1.startswith(controller)
        assert knob.v2.startswith(controller)
        for version in (1, 2):
            with pytest.raises(ValueError, match="is no value of"):
                knob.text(version, -2)
    assert QUOTA.text(1, UNLIMITED) == "-1"
    assert QUOTA.text(2, UNLIMITED) == "max 100000"
    assert QUOTA.text(2, 40_000) == "40000 100000"
    for bad in (999, 0, 1 << 40):
        with pytest.raises(ValueError, match="is no value of"):
            QUOTA.text(2, bad)
    assert (IDLE.text(2, 1), BURST.text(1, 0), SHARES.text(1, 2)) == ("1", "0", "2")


def test_a_quota_is_written_read_back_and_audited(node: Node) -> None:
    assert node.quotas.set_quota(node.job, 0.4, "leased: 20% of 2 cores")
    assert node.read("cpu.max") == "40000 100000"
    assert node.quotas.quota_cores("7") == pytest.approx(0.4)
    assert [row.to_json() for row in node.quotas.rows] == [
        {
            "time_s": 1000.0,
            "file": str(node.base / "cpu.max"),
            "job_id": "7",
            "old": "max 100000",
            "new": "40000 100000",
            "why": "leased: 20% of 2 cores",
        }
    ]


def test_the_same_quota_again_writes_nothing(node: Node) -> None:
    for _ in range(3):
        assert node.quotas.set_quota(node.job, 0.4, "leased")
    assert len(node.quotas.rows) == 1


def test_the_least_quota_is_what_the_kernel_takes(node: Node) -> None:
    assert node.quotas.set_quota(node.job, 0.0, "squeezed")
    assert node.read("cpu.max") == f"{LEAST_US} 100000"


def test_lifting_puts_back_what_the_site_had_set(node: Node) -> None:
    write(node.base / "cpu.max", "150000 50000\n")
    write(node.base / "cpu.max.burst", "20000\n")
    assert node.quotas.set_quota(node.job, 0.1, "leased")
    assert node.read("cpu.max.burst") == "0"
    assert node.quotas.set_quota(node.job, math.nan, "over")
    assert (node.read("cpu.max"), node.read("cpu.max.burst")) == ("150000 50000", "20000")
    assert math.isnan(node.quotas.quota_cores("7"))


def test_the_burst_falls_before_the_quota_and_rises_after_it(node: Node) -> None:
    write(node.base / "cpu.max", "150000 100000\n")
    write(node.base / "cpu.max.burst", "20000\n")
    node.quotas.set_quota(node.job, 0.01, "leased")
    node.quotas.set_quota(node.job, math.nan, "over")
    assert [Path(row.file).name for row in node.quotas.rows] == [
        "cpu.max.burst", "cpu.max", "cpu.max", "cpu.max.burst",
    ]  # fmt: skip


def test_a_job_that_has_ended_is_no_error(node: Node) -> None:
    node.quotas.set_quota(node.job, 0.4, "leased")
    shutil.rmtree(node.base)
    assert not node.quotas.set_quota(node.job, 0.2, "leased")
    node.quotas.set_quota(node.job, math.nan, "over")
    node.quotas.follow({})
    assert node.quotas.held == {}
    assert [row.new for row in node.quotas.rows] == ["40000 100000"]
    assert json.loads((node.state / "quotas.json").read_text()) == {"held": []}


@pytest.mark.parametrize("gone", [errno.ENOENT, errno.ENODEV])
def test_a_group_that_vanishes_between_read_and_write_is_no_error(
    node: Node, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    def vanish(path: Path, text: str) -> None:
        raise OSError(gone, "gone")

    monkeypatch.setattr("asad.node.kernel_files.put", vanish)
    assert not node.quotas.set_quota(node.job, 0.4, "leased")
    assert not node.quotas.rows
    assert math.isnan(node.quotas.quota_cores("7"))


def test_a_job_out_of_sight_for_a_moment_keeps_its_record(node: Node) -> None:
    node.quotas.set_quota(node.job, 0.4, "leased")
    node.quotas.follow({})
    node.quotas.set_quota(node.job, math.nan, "over")
    assert node.read("cpu.max") == "max 100000"


def test_what_the_kernel_refuses_is_reported_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr("asad.node.kernel_files.put", refuse)
    for _ in range(5):
        assert not node.quotas.set_quota(node.job, 0.4, "leased")
    assert [row.new for row in node.quotas.rows] == ["refused: Invalid argument"]


def test_a_quota_that_reads_back_otherwise_is_not_taken_for_set(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_text
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, *a, **k: "max 100000" if path.name == "cpu.max" else real(path, *a, **k),
    )
    assert not node.quotas.set_quota(node.job, 0.4, "leased")
    assert math.isnan(node.quotas.quota_cores("7"))


def test_a_killed_actor_is_repaired_by_its_successor(node: Node) -> None:
    write(node.base / "cpu.max", "150000 50000\n")
    write(node.base / "cpu.max.burst", "20000\n")
    node.quotas.set_quota(node.job, 0.1, "leased")  # and no more of this one
    successor = node.successor()
    successor.recover(node.jobs(), "the actor starts")
    assert (node.read("cpu.max"), node.read("cpu.max.burst")) == ("150000 50000", "20000")
    assert {row.why for row in successor.rows} == {"the actor starts"}
    assert json.loads((node.state / "quotas.json").read_text()) == {"held": []}


def test_mending_leaves_a_namesake_alone(node: Node, tmp_path: Path) -> None:
    node.quotas.set_quota(node.job, 0.1, "leased")
    node.base.rename(tmp_path / "kept so that its inode stays taken")
    node.tree.job("7", (100, 101))
    write(node.base / "cpu.max", "30000 100000\n")  # its site's own
    node.successor().recover(node.jobs(), "the actor starts")
    assert node.read("cpu.max") == "30000 100000"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"held": 3}', '{"held": [1, {"path": 5}, {}]}', '{"held": [{"path": "/etc"}]}']
)
def test_a_broken_state_file_stops_nobody(node: Node, text: str) -> None:
    (node.state / "quotas.json").write_text(text)
    node.quotas.recover(node.jobs(), "the actor starts")
    assert node.quotas.set_quota(node.job, 0.4, "leased")


def test_without_a_place_to_write_it_down_no_quota_is_set(node: Node) -> None:
    shutil.rmtree(node.state)
    assert not node.quotas.set_quota(node.job, 0.4, "leased")
    assert node.read("cpu.max") == "max 100000"
    assert "written down first" in node.quotas.rows[0].why


def test_stopping_lifts_quotas_and_leaves_guests_in_the_idle_class(node: Node) -> None:
    node.quotas.set_idle(node.job, True, "guest")
    node.quotas.set_quota(node.job, 0.4, "leased")
    node.quotas.lift_all("the actor stops")
    assert (node.read("cpu.max"), node.read("cpu.idle")) == ("max 100000", "1")
    assert node.successor().is_idle(node.job)


def test_a_kernel_without_the_idle_class_gets_the_lowest_weight(node: Node) -> None:
    (node.base / "cpu.idle").unlink()
    assert node.quotas.set_idle(node.job, True, "guest")
    assert node.read("cpu.weight") == "1"
    assert node.quotas.set_idle(node.job, False, "no guest")
    assert node.read("cpu.weight") == "100"


def test_a_job_that_never_was_a_guest_is_not_touched(node: Node) -> None:
    assert node.quotas.set_idle(node.job, False, "no guest")
    assert node.quotas.set_quota(node.job, math.nan, "nothing")
    assert not node.quotas.rows
    assert not node.quotas.held


def test_cpu_mounted_with_cpuacct_is_left_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, version=1)
    write(node.tree.root / "cpu/cpuacct.usage", "0\n")
    assert not node.quotas.set_idle(node.job, True, "guest")
    assert not node.quotas.set_quota(node.job, 0.5, "leased")
    assert not node.quotas.guests.exists()


MIB = 1 << 20
NONE = {1: "9223372036854771712", 2: "max"}


class Limited:
    """A made-up node with one job, whose memory is looked at."""

    def __init__(self, folder: Path, version: int) -> None:
        self.node, self.version = Node(folder, version), version
        names = ("memory.soft_limit_in_bytes", "memory.usage_in_bytes")
        place = self.node.tree.root / "memory" / self.node.job.path if version == 1 else self.node.base
        self.file, self.used = (
            place / name for name in (names if version == 1 else ("memory.high", "memory.current"))
        )

    def limit(self) -> str:
        return self.file.read_text().strip()

    def set(self, high_bytes: float, why: str = "leased") -> bool:
        return self.node.quotas.set_memory(self.node.job, high_bytes, why)


@pytest.fixture(params=[1, 2])
def limited(tmp_path: Path, request: pytest.FixtureRequest) -> Limited:
    return Limited(tmp_path, request.param)


def test_a_memory_limit_is_written_read_back_audited_and_lifted(limited: Limited) -> None:
    assert limited.set(64 * MIB + 1)
    assert limited.limit() == str(64 * MIB + PAGE_BYTES), "whole pages, rounded up"
    assert limited.node.quotas.memory_high("7") == 64 * MIB + PAGE_BYTES
    (row,) = limited.node.quotas.rows
    assert (row.file, row.job_id, row.old) == (str(limited.file), "7", NONE[limited.version])
    assert limited.set(64 * MIB + 1)
    assert len(limited.node.quotas.rows) == 1, "the same again writes nothing"
    assert limited.set(math.nan, "over")
    assert limited.limit() == NONE[limited.version]
    assert math.isnan(limited.node.quotas.memory_high("7"))
    assert "memory" not in json.loads((limited.node.state / "quotas.json").read_text())


def test_a_memory_limit_stays_above_what_is_used_and_follows_it(limited: Limited) -> None:
    write(limited.used, f"{100 * MIB}\n")
    assert limited.set(64 * MIB)
    assert int(limited.limit()) >= 110 * MIB
    held = limited.limit()
    write(limited.used, f"{99 * MIB}\n")
    assert limited.set(64 * MIB)
    assert limited.limit() == held, "it is not written again for every breath of the job"
    write(limited.used, f"{300 * MIB}\n")
    assert limited.set(64 * MIB)
    assert int(limited.limit()) >= 330 * MIB
    write(limited.used, f"{10 * MIB}\n")
    assert limited.set(64 * MIB)
    assert limited.limit() == str(64 * MIB)


def test_files_that_a_job_has_read_do_not_push_its_memory_limit_up(limited: Limited) -> None:
    write(limited.used, f"{200 * MIB}\n")
    cache = {1: "total_inactive_file", 2: "inactive_file"}[limited.version]
    write(limited.used.with_name("memory.stat"), f"anon {20 * MIB}\n{cache} {180 * MIB}\n")
    assert limited.set(64 * MIB)
    assert limited.limit() == str(64 * MIB)


def test_a_memory_limit_comes_down_in_steps_that_the_kernel_can_reclaim(limited: Limited) -> None:
    cache = {1: "total_active_file", 2: "active_file"}[limited.version]
    left, limits = 12 * MOST_RECLAIM + MIB, []
    while not limits or limits[-1] > 64 * MIB:
        write(limited.used, f"{left}\n")
        write(limited.used.with_name("memory.stat"), f"{cache} {left}\n")
        assert limited.set(64 * MIB)
        limits.append(int(limited.limit()))
        assert limits[-1] >= left - MOST_RECLAIM
        left = limits[-1]
    assert limits[-1] == 64 * MIB
    assert len(limits) == 12


def test_a_successor_lifts_the_memory_limits_of_a_killed_actor(limited: Limited) -> None:
    write(limited.file, f"{512 * MIB}\n")
    assert limited.set(64 * MIB)
    after = limited.node.successor()
    after.recover(limited.node.jobs(), "the actor starts")
    assert limited.limit() == str(512 * MIB), "what the site had set"
    assert after.memory == {}


def test_a_memory_group_that_vanishes_while_it_is_written_down_is_no_error(
    limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert limited.set(64 * MIB)
    place, real = limited.file.parent, Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        found = real(path, **how)
        if path == place:
            shutil.rmtree(place)
        return found

    monkeypatch.setattr(Path, "stat", stat)
    assert limited.node.quotas._save()
    limited.node.quotas.lift_all("the actor stops")
    assert limited.node.quotas.memory == {}


def test_all_memory_limits_are_lifted_at_the_end(limited: Limited) -> None:
    assert limited.set(64 * MIB)
    limited.node.quotas.lift_all("the actor stops")
    assert limited.limit() == NONE[limited.version]


def test_where_slurm_keeps_no_memory_group_nothing_is_limited(limited: Limited) -> None:
    limited.file.unlink()
    assert not limited.set(64 * MIB)
    assert not limited.set(64 * MIB)
    (row,) = limited.node.quotas.rows
    assert row.new == "refused: Slurm keeps no memory group here", "reported once"
    assert not limited.file.exists()


def test_a_job_that_has_ended_has_no_memory_limit_any_more(limited: Limited) -> None:
    assert limited.set(64 * MIB)
    shutil.rmtree(limited.node.base)
    shutil.rmtree(limited.file.parent, ignore_errors=True)
    limited.node.quotas.follow({})
    assert limited.node.quotas.memory == {}

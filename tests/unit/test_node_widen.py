"""Guests that run wide, in made-up cgroups v2: what is written, in which order, and what is put back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from node_tree import Tree, write

from asad.model import Json
from asad.node import widen as widen_module
from asad.node.actor import lease_from_json
from asad.node.cgroups import Cgroups, JobGroup
from asad.node.kernel_files import AuditRow
from asad.node.widen import Widening
from asad.port import Lease


class Node:
    """A node of four cores; job 7 has the first two, and two tasks: one on both, one that Slurm has bound to core 1."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree, self.state = Tree(folder / "tree", 2), folder / "state"
        self.state.mkdir()
        write(self.tree.root / self.tree.home / "cpuset.cpus.effective", "0-3\n")
        self.base = self.tree.job("7", (100, 101, 102, 103, 104))
        for place, text in (
            ("", "0-1"),
            ("step_0", "0-1"),
            ("step_0/user", "\n"),
            ("step_0/user/task_0", "1"),
        ):
            write(self.base / place / "cpuset.cpus", text)
        self.affinity: dict[int, set[int]] = {100: {0, 1, 2, 3}, 101: {0, 1}, 102: {1}, 103: {1}, 104: {0}}
        self.parents = {101: 100, 102: 100, 103: 102, 104: 102}
        for pid, parent in self.parents.items():
            write(
                self.tree.proc / str(pid) / "stat", f"{pid} (a) b) S {parent} " + "0 " * 17 + f"{pid}00 0\n"
            )
        self.rows: list[AuditRow] = []
        self.writes: list[tuple[str, str]] = []
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(self.affinity[pid]))
        monkeypatch.setattr(os, "sched_setaffinity", self._bind)
        monkeypatch.setattr(widen_module, "NODES", folder / "no-numa")
        put = widen_module.put

        def spy(path: Path, text: str) -> None:
            self.writes.append((str(path.relative_to(self.base)), text))
            put(path, text)

        monkeypatch.setattr(widen_module, "put", spy)
        self.widening = self.successor()
        self.job = self.jobs()["7"]

    def _bind(self, pid: int, cores: Iterable[int]) -> None:
        if pid not in self.affinity:
            raise ProcessLookupError(3, "gone")
        self.affinity[pid] = set(cores)

    def jobs(self) -> dict[str, JobGroup]:
        return dict(Cgroups(self.tree.root, "n1", self.tree.proc).jobs(0.0))

    def successor(self) -> Widening:
        cgroups = Cgroups(self.tree.root, "n1", self.tree.proc)
        return Widening(cgroups, self.state, lambda: 1000.0, self.rows.append)

    def cores_of(self) -> list[str]:
        """What the files say, from above."""
        places = ("", "step_0", "step_0/user", "step_0/user/task_0")
        return [(self.base / place / "cpuset.cpus").read_text().strip() for place in places]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


WIDE = {0, 1, 2, 3}


def test_cgroups_and_what_slurm_has_bound_are_widened_and_put_back(node: Node) -> None:
    before, bound = node.cores_of(), dict(node.affinity)
    assert node.widening.widen(node.job, "leased")
    assert node.cores_of() == ["0,1,2,3", "0,1,2,3", "", "0,1,2,3"]
    assert [path for path, _ in node.writes] == [
        f"{place}cpuset.cpus" for place in ("", "step_0/", "step_0/user/task_0/")
    ], "a group is never wider than the one above"
    # the tasks and what they have started; 104 was bound by its user
    assert [node.affinity[pid] for pid in (101, 102, 103, 104)] == [WIDE, WIDE, WIDE, {0}]
    assert (node.widening.own("7"), node.widening.cores("7")) == ((0, 1), (0, 1, 2, 3))
    node.writes.clear()
    assert node.widening.widen(node.job, "leased") and not node.writes, "nothing is written twice"
    assert node.widening.narrow("7", "its lease ran out")
    assert node.cores_of() == before
    assert next(path for path, _ in node.writes) == "step_0/user/task_0/cpuset.cpus"
    assert node.affinity == bound
    assert [(row.old, row.new) for row in node.rows] == [("0,1", "0,1,2,3"), ("0,1,2,3", "0,1")]
    assert node.widening.own("7") == () and json.loads((node.state / "widened.json").read_text()) == {
        "jobs": []
    }


def test_a_later_step_is_taken_along(node: Node) -> None:
    assert node.widening.widen(node.job, "leased")
    write(node.base / "step_1/cpuset.cpus", "0-1")
    write(node.base / "step_1/user/task_0/cgroup.threads", "105\n")
    node.tree.process(105, "system.slice/n1_slurmstepd.scope/job_7/step_1/user/task_0", uid=1000)
    node.affinity[105] = {0, 1}
    node.widening.follow({"7": node.job})
    assert (node.base / "step_1/cpuset.cpus").read_text() == "0,1,2,3" and node.affinity[105] == WIDE
    assert node.widening.narrow("7", "over")
    assert (node.base / "step_1/cpuset.cpus").read_text() == "0-1" and node.affinity[105] == {0, 1}


def test_a_task_that_slurm_has_not_bound_yet_is_taken_along_when_it_is(node: Node) -> None:
    comm = node.tree.proc / "101" / "comm"
    comm.write_text("slurmstepd\n")
    node.affinity[101] = set(WIDE)  # slurmstepd's own
    assert node.widening.widen(node.job, "leased")
    node.affinity[101] = {0, 1}  # now it is bound
    comm.write_text("sleep\n")
    node.widening.follow({"7": node.job})
    assert node.affinity[101] == WIDE
    assert node.widening.narrow("7", "over") and node.affinity[101] == {0, 1}


def test_a_successor_puts_back_what_a_killed_actor_has_left(node: Node) -> None:
    before, bound = node.cores_of(), dict(node.affinity)
    assert node.widening.widen(node.job, "leased")
    write(
        node.tree.proc / "104/stat", "104 (b) S 102 " + "0 " * 17 + "99999 0\n"
    )  # another thread by that number
    node.affinity[104] = set(WIDE)
    successor = node.successor()
    successor.recover(node.jobs(), "the actor starts")
    assert node.cores_of() == before
    assert {pid: node.affinity[pid] for pid in (100, 101, 102, 103)} == {
        pid: bound[pid] for pid in (100, 101, 102, 103)
    }
    assert node.affinity[104] == {0, 1}
    assert not successor.held


@pytest.mark.parametrize(
    "text", ["", "[]", '{"jobs": [{}]}', '{"jobs": 3}', '{"jobs": [{"files": {"/etc/x": "0"}}]}']
)
def test_a_broken_state_file_stops_nobody(node: Node, text: str) -> None:
    (node.state / "widened.json").write_text(text)
    node.widening.recover({}, "the actor starts")
    assert not node.widening.held and not node.writes


def test_a_broken_entry_or_one_of_files_elsewhere_keeps_no_other_job_wide(node: Node) -> None:
    before = node.cores_of()
    assert node.widening.widen(node.job, "leased")
    state = node.state / "widened.json"
    (entry,) = json.loads(state.read_text())["jobs"]
    outside = entry | {"files": {"/etc/x": "0"}}
    broken = [{"files": {"/etc/x": "0"}}, outside, 3, None, entry | {"masks": {"x": 1}}]
    state.write_text(json.dumps({"jobs": [*broken, entry]}))
    successor = node.successor()
    successor.recover(node.jobs(), "the actor starts")
    assert node.cores_of() == before and node.affinity[101] == {0, 1} and not successor.held


def test_without_a_place_to_write_it_down_nobody_is_widened(node: Node) -> None:
    node.widening.state = node.state / "gone" / "widened.json"
    before = node.cores_of()
    assert not node.widening.widen(node.job, "leased")
    assert node.cores_of() == before and not node.widening.held and node.affinity[101] == {0, 1}


def test_who_has_every_core_is_not_widened(node: Node) -> None:
    write(node.tree.root / node.tree.home / "cpuset.cpus.effective", "0-1\n")
    assert not node.widening.widen(node.job, "leased") and not node.writes and not node.widening.held


def test_which_cores_slurm_may_use(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (0, 1)
    node.tree.process(50, "system.slice/slurmd.service", comm="slurmd")
    node.affinity[50] = {0, 1, 2}
    assert node.widening.cpusets.wide(node.job, own) == (0, 1, 2), "as far as slurmd itself may go"
    node.tree.process(51, "system.slice/slurmd.service", comm="slurmd", cmdline="slurmd\0-D\0-N\0n2\0")
    node.tree.process(52, "system.slice/slurmd.service", comm="slurmd", cmdline="slurmd\0-Nn3\0")
    node.tree.process(53, "user.slice", comm="slurmd", uid=1000)  # anybody may call a process so
    assert node.widening.cpusets.wide(node.job, own) == (0, 1, 2), "the slurmds of other nodes do not count"
    node.affinity[50] = {15}
    assert node.widening.cpusets.wide(node.job, own) == (0, 1, 2, 3), (
        "slurmd on specialised cores binds nobody"
    )
    write(node.tree.root / node.tree.home / "cpuset.cpus.effective", "0-15\n")
    write(node.tree.root / node.tree.home / "system/cpuset.cpus", "15\n")
    for number, cores in enumerate(("0-7", "8-15")):
        write(tmp_path / f"nodes/node{number}/cpulist", cores + "\n")
    monkeypatch.setattr(widen_module, "NODES", tmp_path / "nodes")
    assert node.widening.cpusets.wide(node.job, own) == tuple(range(8)), "its own NUMA node is wide enough"
    assert node.widening.cpusets.wide(node.job, (0, 1, 2)) == tuple(range(15)), (
        "else all, but the specialised core"
    )


def test_a_job_that_has_ended_is_forgotten(node: Node) -> None:
    assert node.widening.widen(node.job, "leased")
    node.base.rename(node.base.with_name("job_gone"))
    node.widening.follow({})
    assert not node.widening.held and json.loads((node.state / "widened.json").read_text()) == {"jobs": []}


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ({}, False),
        ({"widen": True}, True),
        ({"widen": 1}, False),
        ({"widen": True, "quota": None}, False),
        ({"widen": True, "guest": False}, False),
    ],
)
def test_only_a_guest_with_a_quota_is_widened(text: dict[str, Json], wide: bool) -> None:
    plain: dict[str, Any] = {"job_id": "7", "guest": True, "host_id": "", "quota": 0.5, "cores": 1}
    assert lease_from_json(plain | text) == Lease("7", True, "", 0.5, 1, widen=True) if wide else True
    assert lease_from_json(plain | text).widen is wide

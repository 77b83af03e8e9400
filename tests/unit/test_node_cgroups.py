"""The cgroups of jobs are found from processes, wherever Slurm has put them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from node_tree import Tree, write

from asad.errors import ClusterError
from asad.node.cgroups import Cgroups, core_ids, memberships, node_of, place_of

V1 = """9:name=systemd:/
6:freezer:/slurm_n1/uid_0/job_1
4:memory:/slurm_n1/uid_0/job_1/step_batch
2:cpuacct,cpu:/
0::/
"""


def test_membership_of_v1_names_every_controller() -> None:
    assert memberships(V1)["freezer"] == "slurm_n1/uid_0/job_1"
    assert memberships(V1)["cpu"] == memberships(V1)["cpuacct"] == ""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("slurm_n1/uid_0/job_1", ("slurm_n1", "slurm_n1/uid_0/job_1")),
        ("slurm/uid_7/job_1/step_0/task_3", ("slurm", "slurm/uid_7/job_1")),
        ("s/slurmstepd.scope/job_9/step_0/user/task_0", ("s/slurmstepd.scope", "s/slurmstepd.scope/job_9")),
        (
            "h/n2_slurmstepd.scope/s5K1XY/step_batch/slurm",
            ("h/n2_slurmstepd.scope", "h/n2_slurmstepd.scope/s5K1XY"),
        ),
        ("system.slice/slurmstepd.scope/system", ("system.slice/slurmstepd.scope", "")),
        ("user.slice/user-1000.slice", None),
        ("uid_0/job_1", None),
        ("", None),
    ],
)
def test_place_of_a_process(path: str, place: tuple[str, str] | None) -> None:
    assert place_of(path) == place


@pytest.mark.parametrize(
    ("folder", "node"),
    [("slurm_n1", "n1"), ("slurm", ""), ("a/n-2.x_slurmstepd.scope", "n-2.x"), ("a/slurmstepd.scope", "")],
)
def test_node_of_a_folder(folder: str, node: str) -> None:
    assert node_of(folder) == node


def test_core_ids_as_the_kernel_lists_them() -> None:
    assert core_ids("0-2,8,10-11\n") == (0, 1, 2, 8, 10, 11)
    assert core_ids("\n") == ()


@pytest.mark.parametrize("version", [1, 2])
def test_jobs_with_processes_threads_owner_and_partition(tmp_path: Path, version: int) -> None:
    tree = Tree(tmp_path, version)
    tree.job("12", (100, 101, 102), uid=1234, partition="guest")
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    jobs = cgroups.jobs(0.0)
    assert list(jobs) == ["12"]
    job = jobs["12"]
    assert job.uid == 1234
    assert cgroups.pids(job) == [101, 102]
    assert cgroups.threads(job) == [101, 102]
    assert cgroups.stepds(job) == [100]
    assert cgroups.partition(job) == "guest"
    assert cgroups.job_of(101) == "12"
    tree.process(900, "user.slice")
    assert cgroups.job_of(900) == cgroups.job_of(4711) == ""


@pytest.mark.parametrize("version", [1, 2])
def test_each_actor_sees_the_jobs_of_its_own_node(tmp_path: Path, version: int) -> None:
    homes = {
        1: ("slurm_n1", "slurm_n2"),
        2: ("system.slice/n1_slurmstepd.scope", "system.slice/n2_slurmstepd.scope"),
    }
    first = Tree(tmp_path, version, homes[version][0])
    first.job("1", (100, 101))
    first.home = homes[version][1]
    first.job("2", (200, 201))
    for node, job in (("n1", "1"), ("n2", "2")):
        cgroups = Cgroups(first.root, node, first.proc)
        assert list(cgroups.jobs(0.0)) == [job]
        assert cgroups.job_of(int(job) * 100 + 1) == job
    assert Cgroups(first.root, "n1", first.proc).job_of(201) == ""


def test_a_scope_in_a_slice_of_the_site(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2, "hpc.slice/slurmstepd.scope")
    tree.job("3", (100, 101))
    assert list(Cgroups(tree.root, "n1", tree.proc).jobs(0.0)) == ["3"]


def test_a_job_named_by_sluid_is_reported_by_its_slurmstepd(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    tree.job("77", (100, 101), name="s5K1ABCDEFGH", environ={"SLURM_JOB_ID": "78"})  # its user says otherwise
    assert list(Cgroups(tree.root, "n1", tree.proc).jobs(0.0)) == ["77"]


def test_a_job_named_by_sluid_that_only_its_environment_shows(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    tree.job("77", (100, 101), name="s5K1ABCDEFGH")
    write(tree.proc / "100/cmdline", "slurmstepd: [s5K1ABCDEFGH.0]")
    assert list(Cgroups(tree.root, "n1", tree.proc).jobs(0.0)) == ["77"]


def test_a_sluid_that_claims_the_number_of_another_job_is_not_believed(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    tree.job("7", (100, 101))
    tree.job("8", (200, 201), name="sAAAA", environ={"SLURM_JOB_ID": "7"})
    write(tree.proc / "200/cmdline", "slurmstepd: [sAAAA.0]")
    jobs = Cgroups(tree.root, "n1", tree.proc).jobs(0.0)
    assert jobs["7"].path.endswith("/job_7")


def test_nobody_can_pass_for_a_slurmstepd(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 1)
    tree.process(100, "slurm_n1/uid_0/job_1", comm="slurmstepd", uid=1000)
    assert Cgroups(tree.root, "n1", tree.proc).jobs(0.0) == {}


def test_jobs_that_come_and_go_are_seen_at_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 1)
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    assert cgroups.jobs(0.0) == {}
    first = tree.job("1", (100, 101))
    assert list(cgroups.jobs(1.0)) == ["1"]
    second = tree.job("2", (200, 201), uid=5)
    assert set(cgroups.jobs(2.0)) == {"1", "2"}
    shutil.rmtree(first)
    assert list(cgroups.jobs(3.0)) == ["2"]
    shutil.rmtree(second.parents[1])
    assert cgroups.jobs(4.0) == {}


def test_a_job_that_is_requeued_here_is_another_one(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    folder = tree.job("1", (100, 101))
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    before = cgroups.jobs(0.0)["1"]
    folder.rename(tmp_path / "kept so that its inode stays taken")
    assert not cgroups.exists(before)
    tree.job("1", (100, 101))
    assert cgroups.jobs(1.0)["1"] != before


def test_the_owner_is_known_once_a_process_of_the_user_is_there(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    tree.job("1", (100,))
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    assert cgroups.jobs(0.0)["1"].uid == -1
    tree.job("1", (100, 101), uid=4242)
    assert cgroups.jobs(1.0)["1"].uid == 4242


def test_a_user_cannot_move_its_job_elsewhere_by_its_environment(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 2)
    tree.job("1", (100, 101), environ={"SLURM_JOB_ID": "2", "SLURM_JOB_PARTITION": "batch"})
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    job = cgroups.jobs(0.0)["1"]
    assert cgroups.partition(job) == ""


def test_without_freezer_slurmstepd_is_reported_by_its_name(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 1)
    tree.job("1", (100, 101))
    shutil.rmtree(tree.root / "freezer")
    for pid, path in (
        (100, "slurm_n1/uid_1000/job_1/step_0"),
        (101, "slurm_n1/uid_1000/job_1/step_0/task_0"),
    ):
        write(tree.proc / str(pid) / "cgroup", f"4:memory:/{path}\n1:cpu:/\n")
        write(tree.root / "memory" / path / "cgroup.procs", f"{pid}\n")
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    job = cgroups.jobs(0.0)["1"]
    assert (cgroups.pids(job), cgroups.stepds(job)) == ([101], [100])


def test_cpu_mounted_with_cpuacct_cannot_hold_guests(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 1)
    assert Cgroups(tree.root, "n1", tree.proc).can_hold
    write(tree.root / "cpu/cpuacct.usage", "0\n")
    assert not Cgroups(tree.root, "n1", tree.proc).can_hold


def test_no_cgroups_is_an_error_that_says_where(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no cgroups are mounted there.*--cgroup-root"):
        Cgroups(tmp_path, "n1")

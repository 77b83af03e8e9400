"""What asad relies on, tried on a real Slurm: how a running allocation is lent, and what must be undone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import LabError
from lab.mix import Mix, MixJob
from lab.run import MixRunner
from lab.slurm import CGROUP, RealSlurm, duration_s, job_folders, node_folders, sweep

REPOSITORY = Path(__file__).resolve().parents[2]
LONG = "sleep 300"
BUSY = "while :; do :; done"
MINUTES = "--time=10"


def until(condition: Callable[[], object], timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def stays(slurm: RealSlurm, job_id: str, state: str, seconds: float = 5) -> bool:
    """Does a job keep its state through two passes of the scheduler and of backfill?"""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if slurm.state(job_id) != state:
            return False
        time.sleep(0.1)
    return True


def full(slurm: RealSlurm, script: str = LONG, memory_mb: int = 200) -> list[str]:
    """A batch job on every node, in the order of the nodes."""
    jobs = [
        slurm.submit(script, MINUTES, f"--mem={memory_mb}", f"--nodelist={node}") for node in slurm.node_names
    ]
    slurm.wait(*jobs, state="RUNNING")
    return jobs


def offer(slurm: RealSlurm, job_id: str, nodes: str) -> None:
    slurm.run("scontrol", "update", f"jobid={job_id}", "Partition=guest", f"ReqNodeList={nodes}")


def test_every_node_has_a_core_of_its_own(slurm: RealSlurm) -> None:
    show = "grep Cpus_allowed_list /proc/self/status"
    jobs = [slurm.submit(show, f"--nodelist={node}") for node in slurm.node_names]
    slurm.wait(*jobs)
    cores = [slurm.output(job).split()[-1] for job in jobs]
    assert len(set(cores)) == len(slurm.node_names), cores


def test_ordinary_users_run_jobs_and_accounting_knows_whose_they_were(slurm: RealSlurm) -> None:
    jobs = {user: slurm.submit("id -un", "--time=1", user=user) for user in (*slurm.users, "root")}
    slurm.wait(*jobs.values())
    assert {slurm.output(job).strip() for job in jobs.values()} == set(jobs)
    seen: dict[str, str] = {}

    def accounted() -> bool:
        rows = slurm.sacct("-X", fields="JobID,User,State")
        seen.update({row["JobID"]: row["User"] for row in rows if row["State"] == "COMPLETED"})
        return set(jobs.values()) <= seen.keys()

    until(accounted)
    assert {user: seen[job] for user, job in jobs.items()} == {user: user for user in jobs}


def test_accounting_shows_cpu_time_that_was_used(slurm: RealSlurm) -> None:
    """Two busy seconds, then two that sleep."""
    job = slurm.submit("timeout 2 sh -c 'while :; do :; done'; sleep 2")
    slurm.wait(job)
    rows: list[dict[str, str]] = []

    def accounted() -> bool:
        # with -X it would report no CPU time: that is summed over the steps
        rows[:] = slurm.sacct("-j", job, fields="TotalCPU,ElapsedRaw,State")
        return bool(rows) and rows[0]["State"] == "COMPLETED"

    until(accounted)
    assert 0.5 < duration_s(rows[0]["TotalCPU"]) < 2.5, rows
    assert int(rows[0]["ElapsedRaw"]) >= 4


def test_a_moved_job_starts_beside_its_host_on_the_same_core_and_no_other_follows(slurm: RealSlurm) -> None:
    hosts = full(slurm, script=f"grep Cpus_allowed_list /proc/self/status; {LONG}")
    guest, other = (
        slurm.submit(f"grep Cpus_allowed_list /proc/self/status; {LONG}", MINUTES) for _ in range(2)
    )
    offer(slurm, guest, slurm.node_names[1])
    slurm.wait(guest, state="RUNNING")
    assert slurm.job(guest)["NodeList"] == slurm.node_names[1]
    until(lambda: slurm.output(guest) and slurm.output(hosts[1]))
    assert slurm.output(guest) == slurm.output(hosts[1]), "both run on the same cores"
    assert stays(slurm, other, "PENDING")


def test_a_job_that_was_moved_while_pending_says_guest_in_its_environment(slurm: RealSlurm) -> None:
    """The node actor reports guests by this when the daemon has never spoken to it."""
    full(slurm)
    guest = slurm.submit('echo "$SLURM_JOB_PARTITION"', MINUTES)
    offer(slurm, guest, slurm.node_names[0])
    slurm.wait(guest)
    assert slurm.output(guest).strip() == "guest"


def test_a_second_guest_on_the_same_core_waits(slurm: RealSlurm) -> None:
    full(slurm)
    first, second = (slurm.submit(LONG, MINUTES) for _ in range(2))
    offer(slurm, first, slurm.node_names[0])
    slurm.wait(first, state="RUNNING")
    offer(slurm, second, slurm.node_names[0])
    assert stays(slurm, second, "PENDING")


def test_a_guest_waits_until_its_memory_fits_beside_the_host(slurm: RealSlurm) -> None:
    hosts = full(slurm, memory_mb=slurm.memory_mb - 500)
    guest = slurm.submit(LONG, MINUTES, "--mem=1000")
    offer(slurm, guest, slurm.node_names[0])
    assert stays(slurm, guest, "PENDING")
    slurm.run("scancel", hosts[0])
    slurm.wait(guest, state="RUNNING")


def test_memory_of_a_guest_keeps_a_batch_job_waiting_but_its_core_does_not(slurm: RealSlurm) -> None:
    node, half = slurm.node_names[0], slurm.memory_mb // 2
    hosts = full(slurm)
    guest = slurm.submit(LONG, MINUTES, f"--mem={half + 200}")
    offer(slurm, guest, node)
    slurm.wait(guest, state="RUNNING")
    slurm.run("scancel", hosts[0])
    large = slurm.submit(LONG, MINUTES, f"--mem={half}", f"--nodelist={node}")
    assert stays(slurm, large, "PENDING")
    slurm.run("scancel", large)
    small = slurm.submit(LONG, MINUTES, "--mem=200", f"--nodelist={node}")
    slurm.wait(small, state="RUNNING")
    assert slurm.job(small)["NodeList"] == slurm.job(guest)["NodeList"] == node


def test_an_offer_that_is_taken_back_leaves_a_job_as_it_was(slurm: RealSlurm) -> None:
    hosts = full(slurm, memory_mb=slurm.memory_mb - 500)
    guest = slurm.submit(LONG, MINUTES, "--mem=1000")
    before = slurm.job(guest)
    offer(slurm, guest, slurm.node_names[0])
    assert slurm.job(guest)["Partition"] == "guest"
    slurm.run("scontrol", "update", f"jobid={guest}", "Partition=batch", "ReqNodeList=")
    after = slurm.job(guest)
    for field in ("Partition", "ReqNodeList", "JobState", "Priority", "SubmitTime", "TimeLimit"):
        assert after[field] == before[field], field
    slurm.run("scancel", hosts[1])
    slurm.wait(guest, state="RUNNING")
    assert slurm.job(guest)["Partition"] == "batch"
    assert slurm.job(guest)["NodeList"] == slurm.node_names[1]


def test_an_offer_that_cannot_start_stays_pinned_while_another_node_idles(slurm: RealSlurm) -> None:
    """Why offers are journaled and withdrawn: Slurm itself never takes one back."""
    hosts = full(slurm, memory_mb=slurm.memory_mb - 500)
    guest = slurm.submit(LONG, MINUTES, "--mem=1000")
    offer(slurm, guest, slurm.node_names[0])
    slurm.run("scancel", hosts[1])
    until(lambda: slurm.node_states()[slurm.node_names[1]] == "idle")
    assert stays(slurm, guest, "PENDING")


def test_clearing_the_node_list_of_an_offer_erases_what_the_user_asked_for(slurm: RealSlurm) -> None:
    """Why the journal keeps the original list, and a withdrawal writes that back instead of nothing."""
    full(slurm)
    guest = slurm.submit(LONG, MINUTES, f"--nodelist={slurm.node_names[1]}", "--mem=200")
    assert slurm.job(guest)["ReqNodeList"] == slurm.node_names[1]
    slurm.run("scontrol", "update", f"jobid={guest}", "Partition=batch", "ReqNodeList=")
    assert slurm.job(guest)["ReqNodeList"] == "(null)"
    slurm.run("scontrol", "update", f"jobid={guest}", f"ReqNodeList={slurm.node_names[1]}")
    assert slurm.job(guest)["ReqNodeList"] == slurm.node_names[1]


def test_a_guest_that_is_requeued_stays_in_the_guest_partition_on_its_node(slurm: RealSlurm) -> None:
    """Why a requeued guest is restored first."""
    full(slurm)
    guest = slurm.submit(LONG, MINUTES, "--requeue")
    offer(slurm, guest, slurm.node_names[0])
    slurm.wait(guest, state="RUNNING")
    slurm.run("scontrol", "requeue", guest)
    slurm.wait(guest, state="PENDING")
    job = slurm.job(guest)
    assert (job["Partition"], job["ReqNodeList"]) == ("guest", slurm.node_names[0])


def test_a_gang_starts_on_all_of_its_nodes_or_on_none(slurm: RealSlurm) -> None:
    full(slurm)
    single = slurm.submit(LONG, MINUTES)
    offer(slurm, single, slurm.node_names[0])
    slurm.wait(single, state="RUNNING")
    gang = slurm.submit(LONG, MINUTES, "--nodes=2")
    offer(slurm, gang, ",".join(slurm.node_names))
    assert stays(slurm, gang, "PENDING"), "one of its nodes has a guest"
    slurm.run("scancel", single)
    slurm.wait(gang, state="RUNNING")
    assert slurm.job(gang)["NumNodes"] == "2"


def test_a_running_jobs_limit_can_be_extended(slurm: RealSlurm) -> None:
    job = slurm.submit(LONG, "--time=10")
    slurm.wait(job, state="RUNNING")
    slurm.run("scontrol", "update", f"jobid={job}", "TimeLimit=+7")
    assert slurm.job(job)["TimeLimit"] == "00:17:00"


def test_a_pending_jobs_own_turn_is_estimated(slurm: RealSlurm) -> None:
    full(slurm)  # ten minutes each
    waiting = slurm.submit(LONG, MINUTES)

    def estimate() -> float:
        return next(float(job["start_time"]) for job in slurm.squeue() if str(job["job_id"]) == waiting)

    until(lambda: estimate() > time.time() + 300)
    assert estimate() < time.time() + 660


def test_a_host_that_ends_first_leaves_its_cores_to_batch_and_the_guest_running(slurm: RealSlurm) -> None:
    hosts = full(slurm)
    guest = slurm.submit(LONG, MINUTES)
    offer(slurm, guest, slurm.node_names[0])
    slurm.wait(guest, state="RUNNING")
    following = slurm.submit(LONG, MINUTES)
    slurm.run("scancel", hosts[0])
    slurm.wait(following, state="RUNNING")
    assert slurm.job(following)["NodeList"] == slurm.node_names[0]
    assert slurm.state(guest) == "RUNNING"


def test_a_guest_that_ends_first_leaves_its_host_running_and_room_for_the_next(slurm: RealSlurm) -> None:
    hosts = full(slurm)
    first, second = (slurm.submit(LONG, MINUTES) for _ in range(2))
    offer(slurm, first, slurm.node_names[0])
    slurm.wait(first, state="RUNNING")
    offer(slurm, second, slurm.node_names[0])
    slurm.run("scancel", first)
    slurm.wait(second, state="RUNNING")
    assert slurm.state(hosts[0]) == "RUNNING"


def test_an_exclusive_job_cannot_be_a_host(slurm: RealSlurm) -> None:
    jobs = [
        slurm.submit(LONG, MINUTES, "--exclusive", "--mem=200", f"--nodelist={node}")
        for node in slurm.node_names
    ]
    slurm.wait(*jobs, state="RUNNING")
    guest = slurm.submit(LONG, MINUTES)
    offer(slurm, guest, slurm.node_names[0])
    assert stays(slurm, guest, "PENDING")


# ------------------------------------------------------------------------------------------------------ the idle class


@pytest.fixture
def cpu_group() -> Iterator[Path]:
    """A cgroup (v1) of the controller that Slurm leaves alone; removed when its jobs have ended."""
    folder = CGROUP / "cpu" / f"asad-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no cgroup with CPU quotas can be written here")
    yield folder
    for pid in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (CGROUP / "cpu" / "cgroup.procs").write_text(pid)
    folder.rmdir()


def cpu_s(slurm: RealSlurm, job_id: str, node: str) -> float:
    """CPU time of a job so far, from Slurm's own cgroup of it."""
    used = [
        int((folder / "cpuacct.usage").read_text()) / 1e9
        for folder in job_folders(node)
        if folder.name == f"job_{job_id}" and (folder / "cpuacct.usage").exists()
    ]
    return max(used, default=0.0)


def pair(slurm: RealSlurm) -> tuple[str, str, str]:
    """A busy host and a busy guest on one core: host, guest, node."""
    node = slurm.node_names[0]
    host, _ = full(slurm, script=f"case $SLURM_JOB_NODELIST in {node}) {BUSY};; *) {LONG};; esac")
    guest = slurm.submit(BUSY, MINUTES)
    offer(slurm, guest, node)
    slurm.wait(guest, state="RUNNING")
    until(lambda: cpu_s(slurm, guest, node) > 0.1 and cpu_s(slurm, host, node) > 0.1)
    return host, guest, node


def cpu_used(slurm: RealSlurm, jobs: tuple[str, ...], node: str, seconds: float = 3) -> list[float]:
    """CPU used by each of some jobs over the next seconds, per second."""
    before, begin = [cpu_s(slurm, job, node) for job in jobs], time.monotonic()
    time.sleep(seconds)
    after, end = [cpu_s(slurm, job, node) for job in jobs], time.monotonic()
    return [(late - early) / (end - begin) for early, late in zip(before, after, strict=True)]


def test_a_guest_in_the_idle_class_takes_nothing_from_a_busy_host(slurm: RealSlurm, cpu_group: Path) -> None:
    host, guest, node = pair(slurm)
    of_host, of_guest = cpu_used(slurm, (host, guest), node)
    assert of_guest > 0.7 * of_host, "Slurm itself lets them share evenly"
    (cpu_group / "cpu.idle").write_text("1")
    for pid in slurm.job_processes(guest, node):
        (cpu_group / "cgroup.procs").write_text(str(pid))
    of_host, of_guest = cpu_used(slurm, (host, guest), node)
    assert of_guest < 0.03 * of_host


def test_a_quota_on_a_guest_holds(slurm: RealSlurm, cpu_group: Path) -> None:
    host, guest, node = pair(slurm)
    (cpu_group / "cpu.cfs_period_us").write_text("100000")
    (cpu_group / "cpu.cfs_quota_us").write_text("25000")
    for pid in slurm.job_processes(guest, node):
        (cpu_group / "cgroup.procs").write_text(str(pid))
    of_host, of_guest = cpu_used(slurm, (host, guest), node)
    assert 0 < of_guest < 0.28, "a quarter of a core, less where others want it too"
    assert of_host > of_guest


# ---------------------------------------------------------------------------------------------------------- the lab


def test_jobs_outlive_the_daemons_of_slurm(slurm: RealSlurm) -> None:
    """`kill -9` of controller and slurmd: the pair runs on, and both are there when the daemons are back."""
    hosts = full(slurm)
    node = slurm.node_names[0]
    guest = slurm.submit(LONG, MINUTES)
    offer(slurm, guest, node)
    slurm.wait(guest, state="RUNNING")
    slurm.wait_until_saved()
    for name in ("slurmctld", node):
        slurm.kill(name)
        assert slurm.job_processes(guest, node) and slurm.job_processes(hosts[0], node)
        slurm.start(name)
    until(lambda: slurm.run("scontrol", "ping", check=False).find("UP") > 0)
    assert stays(slurm, guest, "RUNNING") and slurm.state(hosts[0]) == "RUNNING"


def test_a_hung_controller_answers_nobody_until_it_goes_on(slurm: RealSlurm) -> None:
    slurm.stop("slurmctld")
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            slurm.run("squeue", timeout_s=2)
    finally:
        slurm.cont("slurmctld")
    assert slurm.run("squeue", "-h") == ""


def test_a_daemon_is_started_once(slurm: RealSlurm) -> None:
    with pytest.raises(LabError, match="slurmctld runs already"):
        slurm.start("slurmctld")


def test_a_command_that_fails_says_why(slurm: RealSlurm) -> None:
    with pytest.raises(LabError, match="Invalid partition"):
        slurm.submit("true", "--partition=nowhere")


ORPHAN = """
import sys
from lab.slurm import RealSlurm
slurm = RealSlurm(nodes=1, accounting=False)
slurm.__enter__()
job = slurm.submit("sleep 600")
slurm.wait(job, state="RUNNING")
print(slurm.node_names[0], slurm.folder, *(slurm.pid(name) for name in slurm.daemons), flush=True)
sys.stdin.read()
"""


def test_nothing_outlives_a_test_that_was_killed(slurm: RealSlurm) -> None:
    """The daemons end with their owner; its jobs are ended by the next cluster that starts."""
    owner = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdin is not None and owner.stdout is not None
    with owner.stdin, owner.stdout:
        node, folder, *pids = owner.stdout.readline().split()
        assert list(node_folders(node)), "its job has cgroups"
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    until(lambda: not any(Path("/proc", pid, "exe").exists() for pid in pids))
    sweep()
    assert not list(node_folders(node))
    assert not Path(folder).exists()
    assert list(node_folders(slurm.node_names[0])), "the cluster of a living owner is left alone"


SMALL_MIX = """
jobs = [
  { name = "light", kind = "io", user = "nobody", cpu_s = 1.0, busy = 0.2, time_limit_s = 120 },
  { name = "light", kind = "message", user = "games", cpu_s = 1.0, busy = 0.2, stages = 2, time_limit_s = 120 },
  { name = "busy", kind = "compute", user = "nobody", cpu_s = 2.0, busy = 1.0, time_limit_s = 120 },
  { name = "busy", kind = "memory", user = "games", cpu_s = 2.0, busy = 1.0, time_limit_s = 120 },
]
"""


def test_the_lab_measures_slurm_alone_and_lending(tmp_path: Path) -> None:
    """The whole of it, small: a cluster of its own, real programs, the real daemon and its node actors."""
    mix, out, sample = tmp_path / "mix.toml", tmp_path / "result.json", tmp_path / "sample.txt"
    mix.write_text(SMALL_MIX)
    argv = [sys.executable, "-m", "lab", str(mix), "--runs=1", "--policy=slurm", "--policy=static"]
    argv += [f"--out={out}", f"--sacct={sample}", f"--logs={tmp_path / 'logs'}"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert result.keys() == {"slurm", "static"}
    for figures in result.values():
        assert figures["killed"] == 0
        # two nodes, fourteen seconds of jobs: how long they take, and how much CPU they get, depends on the machine
        assert figures["makespan_s"] >= 4
        assert 0 < figures["cpu_utilization"] < 1
    assert result["slurm"]["guests"] == 0
    assert result["slurm"]["runtime_stretch_mean"] == pytest.approx(1)
    assert "CPU use" in done.stdout
    rows = [line.split("|") for line in sample.read_text().splitlines()]
    assert {row[1] for row in rows[1:]} == {"light", "busy", "batch"}
    assert {row[-2] for row in rows[1:]} == {"n1", "n2"}
    assert (tmp_path / "logs" / "asad-static-asad.log").exists()


def test_a_mix_with_a_refused_job_goes_on_and_says_so(slurm: RealSlurm) -> None:
    seen: list[str] = []
    runner = MixRunner(slurm, seen.append)
    runner.calibrate()
    good = MixJob(name="good", user="nobody", cpu_s=0.5, busy=1.0)
    huge = MixJob(name="huge", user="nobody", cpu_s=0.5, busy=1.0, memory_mb=10 * slurm.memory_mb)
    jobs = runner.run(Mix("mixed", (huge, good)), lambda ended, total: None)
    assert [(job.number, job.name, job.state) for job in jobs] == [(1, "good", "COMPLETED")]
    assert jobs[0].own_elapsed_s > 0.3
    assert len(seen) == 1 and "job 1 (huge) was refused" in seen[0]

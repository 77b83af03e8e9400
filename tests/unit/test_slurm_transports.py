"""The ways to Slurm: commands with time-outs, and pyslurm in a child process that hangs, grows and exits."""

from __future__ import annotations

import math
import os
import textwrap
import time
from pathlib import Path

import psutil
import pytest
from asad_slurm.cluster import SlurmCluster
from asad_slurm.command import CommandTransport, Ended, Partition, Reservation, Squeue, duration_s
from asad_slurm.pyslurm_transport import PyslurmTransport, choose_transport
from asad_slurm.settings import Settings, read_settings
from slurm_samples import BECAUSE, GOLDEN, Actors

from asad.decisions import CoAllocate, ExtendLimit
from asad.errors import ClusterError


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose commands come before the real ones."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def command(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text("#!/bin/sh\n" + textwrap.dedent(script))
    path.chmod(0o755)


def alive(group: int) -> list[int]:
    """Processes of a group that still run; one that is dead may wait for somebody to take note of it."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_one_squeue_and_one_sinfo_a_look(bin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")  # of an operator's shell
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    golden = GOLDEN / "22.05"
    for name in ("squeue", "sinfo"):
        script = (
            f'echo "{name} $* [$SQUEUE_STATES$SLURM_CLUSTERS]" >> {bin_dir}/calls; cat {golden}/{name}.json'
        )
        command(bin_dir, name, script)
    transport = CommandTransport(10.0)
    look = transport.look()
    assert len(look.jobs) == 20 and len(look.nodes) == 5
    assert calls(bin_dir) == [
        "squeue --json=list []",
        "squeue --all --states=all --json []",
        "sinfo --all --Node --json []",
    ]
    transport.look()
    assert len(calls(bin_dir)) == 5
    assert transport.sentence() == "Slurm 22.05.8 over squeue and scontrol"


TOO_OLD = "squeue: option '--json' doesn't allow an argument"
NEWEST = [*(f"data_parser/v0.0.{number}" for number in (43, 42, 45, 44)), ""]


@pytest.mark.parametrize(
    ("forms", "option"),
    [
        (None, "--json"),  # 22.05
        (["Possible data_parser plugins:", "data_parser/v0.0.42", "data_parser/v0.0.41"], "--json"),  # 24.11
        (["data_parser/v0.0.44", "data_parser/v0.0.43"], "--json"),  # 25.11
        (NEWEST, "--json=v0.0.44"),  # 26.05
        (["data_parser/v0.0.47", "data_parser/v0.0.46"], "--json"),  # there is nothing better
        (["x data_parser/v0.0.44 data_parser/v0.0.45"], "--json"),  # a list has nothing else in a line
    ],
)
def test_squeue_is_asked_for_a_form_that_shows_who_wants_nodes_of_his_own(
    forms: list[str] | None, option: str
) -> None:
    asked = []

    def run(argv: list[str]) -> bytes:
        asked.append(argv[-1])
        if argv[-1] == "--json=list":
            if forms is None:
                raise ClusterError(TOO_OLD)
            return "\n".join(forms).encode()
        return b"{}"

    now_s = [0.0]
    squeue = Squeue(run, lambda: now_s[0])
    for _ in range(3):
        assert squeue.jobs() == b"{}"
    assert asked == ["--json=list", option, option, option]
    now_s[0] += Squeue.AGAIN_S  # Slurm may have been upgraded
    squeue.jobs()
    assert asked[4:] == ["--json=list", option]


def test_a_squeue_that_does_not_write_that_form_any_more_is_asked_anew() -> None:
    forms, asked = list(NEWEST), []

    def run(argv: list[str]) -> bytes:
        asked.append(argv[-1])
        if argv[-1] == "--json=list":
            return "\n".join(forms).encode()
        if argv[-1] == "--json=v0.0.44" and "data_parser/v0.0.44" not in forms:
            raise ClusterError("squeue: load_plugins: unable to find plugin: data_parser/v0.0.44")
        return b"{}"

    squeue = Squeue(run)
    squeue.jobs()
    forms[:] = ["data_parser/v0.0.48"]
    with pytest.raises(ClusterError):
        squeue.jobs()
    assert squeue.jobs() == b"{}" and asked[-1] == "--json"


def test_a_cycle_asks_squeue_and_sinfo_once_whatever_it_does(bin_dir: Path, tmp_path: Path) -> None:
    for name in ("squeue", "sinfo", "scontrol", "sacct", "sacctmgr"):
        answer = GOLDEN / "22.05" / f"{name}.json"
        shown = f"cat {answer}" if answer.exists() else ":"
        command(bin_dir, name, f'[ "$*" = --json=list ] || echo {name} >> {bin_dir}/calls; {shown}')
    cluster = SlurmCluster(
        read_settings({"transport": "command", "share_users": "any"}),
        nodes=Actors("an1", "an2"),
        state_dir=tmp_path,
        clock=lambda: 1_795_171_600.0,
    )
    for cycle in range(1, 4):
        snapshot = cluster.snapshot()
        (waiting,) = [row for row in snapshot.queue.tolist() if snapshot.jobs.job_id[row] == "8"]
        host = int(snapshot.running[0])
        list(
            cluster.apply(
                [CoAllocate(BECAUSE, waiting, (0,), host=host, share=0.5), ExtendLimit(BECAUSE, host, 60.0)]
            )
        )
        cluster.finished(0.0)
        asked = calls(bin_dir)
        assert asked.count("squeue") == asked.count("sinfo") == cycle
    cluster.close()


def test_a_command_that_hangs_is_killed_with_its_children(bin_dir: Path) -> None:
    command(bin_dir, "squeue", f"echo $$ > {bin_dir}/pid; sleep 3600 & sleep 3600")
    begun = time.monotonic()
    with pytest.raises(ClusterError, match=r"squeue: no answer within 0.5 s; is slurmctld well\?"):
        CommandTransport(0.5).look()
    assert time.monotonic() - begun < 300
    group = int((bin_dir / "pid").read_text())
    deadline = time.monotonic() + 300.0
    while alive(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(group) == []


def test_a_controller_that_is_down_is_named(bin_dir: Path) -> None:
    command(
        bin_dir,
        "squeue",
        'printf "slurm_load_jobs error: Unable to contact\\033[2J slurm controller\\n" >&2; exit 1',
    )
    with pytest.raises(ClusterError) as failure:
        CommandTransport(5.0).look()
    assert str(failure.value) == (
        "squeue: slurm_load_jobs error: Unable to contact�[2J slurm controller; is slurmctld well? try `scontrol ping`"
    )


def test_a_command_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="install Slurm's client commands"):
        CommandTransport(5.0).look()


def test_changes_are_words_and_never_a_shells(bin_dir: Path) -> None:
    command(bin_dir, "scontrol", f'for word in "$@"; do echo "<$word>" >> {bin_dir}/calls; done')
    answer = CommandTransport(5.0).update(12, {"Partition": "guest; rm -rf $HOME", "ReqNodeList": ""})
    assert answer.done
    assert calls(bin_dir) == ["<update>", "<jobid=12>", "<Partition=guest; rm -rf $HOME>", "<ReqNodeList=>"]


def test_a_refused_change_is_certain_and_a_hung_one_is_not(bin_dir: Path) -> None:
    transport = CommandTransport(0.5)
    command(bin_dir, "scontrol", "echo 'slurm_update error: Job is no longer pending execution' >&2; exit 1")
    refused = transport.update(1, {"Partition": "guest"})
    assert not refused.done and refused.certain and "no longer pending" in refused.why and transport.answers
    command(bin_dir, "scontrol", "sleep 30")
    hung = transport.update(1, {"Partition": "guest"})
    assert not hung.done and not hung.certain and not transport.answers
    command(bin_dir, "scontrol", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1")
    assert not transport.update(1, {"Partition": "guest"}).certain


def test_partitions_and_reservations(bin_dir: Path) -> None:
    command(
        bin_dir,
        "scontrol",
        """
        case "$2" in
        partition)
          echo 'PartitionName=batch AllowGroups=ALL Default=YES QoS=N/A MaxTime=1-00:00:00 Nodes=n[1-3] PriorityTier=1'
          echo 'PartitionName=guest QoS=low MaxTime=UNLIMITED Nodes=n[1-3] PriorityTier=2';;
        reservation)
          echo "ReservationName=maint StartTime=1795178786 EndTime=1795182386 Nodes=n2 [$SLURM_TIME_FORMAT]";;
        esac
        """,
    )
    transport = CommandTransport(5.0)
    assert transport.partitions() == [
        Partition("batch", "n[1-3]", 86400.0, 1.0, ""),
        Partition("guest", "n[1-3]", math.inf, 2.0, "low"),
    ]
    assert transport.reservations() == [Reservation("maint", "n2", 1795178786.0, 1795182386.0)]
    command(bin_dir, "scontrol", "echo 'No reservations in the system'")
    assert transport.reservations() == []


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("ExclusiveUser=NO", False),
        ("ExclusiveUser=YES", True),
        ("Exclusive=NO", False),  # 26.05
        ("Exclusive=USER", True),
        ("Exclusive=TOPO", False),
        ("", False),
    ],
)
def test_partitions_whose_nodes_are_one_users_at_a_time(bin_dir: Path, text: str, alone: bool) -> None:
    command(bin_dir, "scontrol", f"echo 'PartitionName=batch {text} Nodes=n1 OverSubscribe=FORCE:1'")
    (partition,) = CommandTransport(5.0).partitions()
    assert partition.exclusive_user is alone


def test_limits_of_associations(bin_dir: Path) -> None:
    script = """
        case "$*" in
        *assoc*) printf 'root|||\\nphysics|ann||12:00:00\\n';;
        *) printf 'normal|\\nlong|7-00:00:00\\n';;
        esac
        """
    command(bin_dir, "sacctmgr", script)
    walls = CommandTransport(5.0).wall_limits()
    assert walls == ({("physics", "ann", ""): 43200.0}, {"long": 604800.0})
    command(
        bin_dir, "sacctmgr", "echo 'sacctmgr: error: Sending PersistInit msg: Connection refused' >&2; exit 1"
    )
    with pytest.raises(ClusterError, match="Connection refused"):
        CommandTransport(5.0).wall_limits()
    none = "Only 'accounting_storage/slurmdbd' is supported."
    command(bin_dir, "sacctmgr", f'echo x >> {bin_dir}/calls; echo "{none}" >&2; exit 1')
    transport = CommandTransport(5.0)
    assert transport.wall_limits() == transport.wall_limits() == ({}, {})
    assert len(calls(bin_dir)) == 1


def test_accounting_of_forgotten_jobs(bin_dir: Path) -> None:
    script = f"""
        echo "$*" >> {bin_dir}/calls
        echo '12|1795171543|1795171643|01:30.500|COMPLETED'
        echo '12.batch|1795171543|1795171643|01:30.500|COMPLETED'
        echo '13|Unknown|Unknown|00:00:00|PENDING'
        echo '14|1795171543|1795171553|00:00:00|CANCELLED by 0'
        """
    command(bin_dir, "sacct", script)
    transport = CommandTransport(5.0)
    known = transport.ended([12, 13, 14])
    assert known[12] == Ended(12, 1795171543.0, 1795171643.0, 90.5, completed=True)
    assert 13 not in known and math.isnan(known[14].cpu_time_s) and not known[14].completed
    assert len(calls(bin_dir)) == 1 and "--jobs=12,13,14" in calls(bin_dir)[0]
    assert transport.ended([]) == {} and len(calls(bin_dir)) == 1


def test_without_accounting_sacct_is_asked_once(bin_dir: Path) -> None:
    command(
        bin_dir,
        "sacct",
        f"echo x >> {bin_dir}/calls; echo 'Slurm accounting storage is disabled' >&2; exit 1",
    )
    transport = CommandTransport(5.0)
    assert transport.ended([1]) == transport.ended([2]) == {}
    assert len(calls(bin_dir)) == 1


def test_accounting_that_does_not_answer_is_no_accounting_that_knows_nothing(bin_dir: Path) -> None:
    command(bin_dir, "sacct", "echo 'sacct: error: Problem talking to the database: refused' >&2; exit 1")
    with pytest.raises(ClusterError, match="Problem talking to the database"):
        CommandTransport(5.0).ended([1])
    command(bin_dir, "sacct", "echo '12|1795171543|1795171643|soon|COMPLETED'")
    known = CommandTransport(5.0).ended([12])
    assert known[12].end_s == 1795171643.0 and math.isnan(known[12].cpu_time_s)


def test_a_task_is_split_and_keeps_its_nodes(bin_dir: Path) -> None:
    command(
        bin_dir,
        "scontrol",
        f"""
        echo "$*" >> {bin_dir}/calls
        [ "$1" = update ] || echo 'JobId=21 ArrayJobId=6 ArrayTaskId=3 ArrayTaskThrottle=2 JobName=x JobId=99'
        """,
    )
    transport = CommandTransport(5.0)
    assert transport.split_task("6_3", "n1") == 21
    assert calls(bin_dir) == ["update jobid=6_3 ExcNodeList=n1", "show job --oneliner 6_3"]
    assert transport.split_task("6_4", "") == 0  # another task than the one that was asked for


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-00:00:00", 86400.0),
        ("1-12", 129600.0),
        ("02:03:04", 7384.0),
        ("03:04", 184.0),
        ("00:07.991", 7.991),
        ("UNLIMITED", math.inf),
        ("N/A", math.inf),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


def test_what_is_no_duration() -> None:
    with pytest.raises(ClusterError, match="no duration"):
        duration_s("soon\x1b")


# ------------------------------------------------------------------------------------------------------------- pyslurm

FAKE = """
import os, sys, time
__version__ = "25.11.2"
{on_import}
class Thing:
    def __init__(self, **facts): self.__dict__.update(facts)
class Jobs(dict):
    @staticmethod
    def load():
        print("a library that prints")
        {on_load}
        host = Thing(id=1, name="host", user_name="ann", user_id=1000, account="physics", partition="batch", qos=None,
            state="RUNNING", state_reason="None", allocated_nodes="n[1-2]", num_nodes=2, cpus=4, time_limit=60,
            submit_time=10, start_time=20, end_time=3620, priority=7, memory_per_node=500, memory_per_cpu=None,
            gres_per_node=None, licenses=None, constraints=None, dependencies=None, resource_sharing="OK",
            array_id=None, array_task_id=None, array_tasks_waiting=None, heterogeneous_id=None)
        task = Thing(id=6, name="arr", user_name="ann", user_id=1000, partition="batch", state="PENDING", cpus=1,
            state_reason="Priority", num_nodes=1, time_limit=None, submit_time=10, start_time=None, end_time=None,
            priority=5, memory_per_cpu=100, gres_per_node={{"gpu": 1}}, licenses=["abaqus:2"], constraints=["fast"],
            dependencies={{"afterok": [1]}}, resource_sharing="NO", array_id=6, array_task_id=None,
            array_tasks_waiting="1-4%2", array_tasks_parallel=2, comment="asad:no", required_nodes="n1",
            excluded_nodes=None, eligible_time=60, deadline=900, nice=-5, admin_comment="asad: x")
        return Jobs({{1: host, 6: task}})
class Nodes(dict):
    @staticmethod
    def load():
        return Nodes({{"n1": Thing(name="n1", total_cpus=2, effective_cpus=2, real_memory=4000, state="ALLOCATED",
            threads_per_core=2, partitions=["batch", "guest"], active_features=["fast"], configured_gres={gres}),
            "n2": Thing(name="n2", total_cpus=2, real_memory=4000, state="IDLE+DRAIN")}})
"""


def fake_pyslurm(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    on_import: str = "",
    on_load: str = "pass",
    gres: str = "{}",
) -> None:
    folder = tmp_path / "fake"
    folder.mkdir(exist_ok=True)
    (folder / "pyslurm.py").write_text(FAKE.format(on_import=on_import, on_load=on_load, gres=gres))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)


@pytest.mark.usefixtures("many_descriptors")
def test_pyslurm_is_heard_beside_more_than_a_thousand_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pyslurm(tmp_path, monkeypatch)
    transport = PyslurmTransport(300.0)
    try:
        assert transport.look().jobs
    finally:
        transport.close()


def test_pyslurm_reads_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pyslurm(tmp_path, monkeypatch)
    transport = PyslurmTransport(20.0)
    try:
        look = transport.look()
        host, task = look.jobs
        assert (host.text, host.user, host.cores, host.nodes_text, host.time_limit_s) == (
            "1",
            "ann",
            4,
            "n[1-2]",
            3600,
        )
        assert not host.gres and not host.exclusive and not host.whole_memory and host.end_s == 3620
        assert (task.text, task.tasks, task.required_nodes) == ("6_1", 4, "n1")
        assert (
            task.gres
            and task.exclusive
            and task.licences
            and task.dependency
            and math.isinf(task.time_limit_s)
        )
        assert math.isnan(task.estimate_s) and task.comment == "asad:no"
        assert (task.array, task.throttle, task.begin_s, task.deadline_s) == (6, 2, 60, 900)
        assert (task.nice, task.admin_comment) == (-5, "asad: x") and math.isnan(host.begin_s)
        assert [node.usable for node in look.nodes] == [True, False]
        assert look.nodes[0].partitions == ("batch", "guest")
        assert [node.threads for node in look.nodes] == [2, 1]
        assert transport.look().jobs[0] is host  # what has not changed is the same object
        assert transport.started == 1
        assert transport.sentence() == "Slurm over pyslurm 25.11.2, in a child process (number 1)"
    finally:
        transport.close()


def test_a_child_that_hangs_is_killed_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "hang"
    fake_pyslurm(tmp_path, monkeypatch, on_load=f"time.sleep(600) if os.path.exists({str(flag)!r}) else None")
    transport = PyslurmTransport(20.0)
    try:
        transport.look()
        process = transport._process
        assert process is not None
        flag.touch()
        transport._timeout_s = 0.5
        with pytest.raises(ClusterError, match=r"did not answer within 0\.5 s"):
            transport.look()
        assert process.poll() == -9
        flag.unlink()
        transport._timeout_s = 20.0
        assert len(transport.look().jobs) == 2 and transport.started == 2
    finally:
        transport.close()


def test_a_child_that_exits_as_slurm_init_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pyslurm(tmp_path, monkeypatch, on_import="os._exit(1)")
    with pytest.raises(ClusterError, match="its process has ended"):
        PyslurmTransport(20.0).look()


def test_a_child_that_dies_between_calls_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pyslurm(tmp_path, monkeypatch)
    transport = PyslurmTransport(20.0)
    try:
        transport.look()
        assert transport._process is not None
        transport._process.kill()
        transport._process.wait()
        assert len(transport.look().jobs) == 2 and transport.started == 2
    finally:
        transport.close()


def test_a_child_is_recycled_when_it_grows_and_after_many_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pyslurm(tmp_path, monkeypatch, on_load="globals().setdefault('leak', []).append(b'x' * 80_000_000)")
    grows = PyslurmTransport(20.0, most_bytes=60_000_000)
    worn = PyslurmTransport(20.0, most_calls=2)
    try:
        for _ in range(3):
            grows.look()
        assert grows.started == 3
        fake_pyslurm(tmp_path, monkeypatch)
        for _ in range(5):
            worn.look()
        assert worn.started == 3
    finally:
        grows.close()
        worn.close()


def test_an_error_of_pyslurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pyslurm(tmp_path, monkeypatch, on_load="raise RuntimeError('RPC\\x1bfailed')")
    transport = PyslurmTransport(20.0)
    try:
        with pytest.raises(ClusterError, match="pyslurm: RuntimeError: RPC�failed"):
            transport.look()
    finally:
        transport.close()


def test_auto_takes_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(choose_transport(Settings())) is CommandTransport  # pyslurm is not installed
    with pytest.raises(ClusterError, match="pyslurm cannot be imported"):
        choose_transport(Settings(transport="pyslurm", timeout_s=20.0))
    fake_pyslurm(tmp_path, monkeypatch)
    chosen = choose_transport(Settings(timeout_s=20.0))
    try:
        assert type(chosen) is PyslurmTransport
    finally:
        chosen.close()
    assert type(choose_transport(Settings(transport="command"))) is CommandTransport
    fake_pyslurm(tmp_path, monkeypatch, gres="{'gpu': 4}")
    assert type(choose_transport(Settings(timeout_s=20.0))) is CommandTransport
    fake_pyslurm(tmp_path, monkeypatch, on_import="time.sleep(600)")
    assert type(choose_transport(Settings(timeout_s=0.5))) is CommandTransport


def test_where_nodes_have_gres_pyslurm_does_not_say_who_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pyslurm(tmp_path, monkeypatch, gres="{'gpu': 4}")
    transport = PyslurmTransport(20.0)
    try:
        with pytest.raises(ClusterError, match=r'--gpus, .* set transport = "command"'):
            transport.look()
    finally:
        transport.close()

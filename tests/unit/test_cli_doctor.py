"""`asactl doctor`: its checks on many shapes of configuration, and the command."""

from __future__ import annotations

import json
import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from pathlib import Path

import pytest
from asad_slurm import config_checks
from asad_slurm.config_checks import (
    SWITCHES,
    calibration_finding,
    clock_finding,
    cluster_findings,
    job_submit_finding,
    lending_findings,
    rights_finding,
    script_findings,
    threads_finding,
)
from asad_slurm.partition_checks import actor_finding, guest_line, partition_findings
from asad_slurm.slurm_conf import (
    Slurm,
    minutes,
    read_config,
    read_partitions,
    read_slurm_conf,
    read_threads,
)
from click.testing import CliRunner, Result

from asad.api.control import ControlServer
from asad.cli import doctor
from asad.cli.asactl import asactl
from asad.cli.machine_checks import cgroup_finding
from asad.cluster.eligibility import Lend
from asad.cluster.findings import Finding
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "doctor"
CONFIG = (GOLDEN / "config-22.05.txt").read_text()
PARTITIONS = (GOLDEN / "partitions-22.05.txt").read_text()
EXAMPLE = ROOT / "profiles" / "slurm" / "slurm.conf.example"
GUEST_OF = {"batch": "guest"}


def slurm(changed: dict[str, str] | None = None, **partitions: dict[str, str]) -> Slurm:
    """The real cluster of the golden texts, with some settings changed."""
    settings = read_config(CONFIG) | {key.lower(): value for key, value in (changed or {}).items()}
    found = read_partitions(PARTITIONS)
    for name, change in partitions.items():
        found.setdefault(name, {}).update({key.lower(): value for key, value in change.items()})
    return Slurm(settings, found)


def states(findings: Iterable[Finding]) -> dict[str, str]:
    """Check → its worst state."""
    worst: dict[str, str] = {}
    for finding in findings:
        order = ("ok", "warn", "fail")
        before = worst.get(finding.check, "ok")
        worst[finding.check] = max(before, finding.state, key=order.index)
        assert finding.state == "ok" or finding.why
    return worst


def partition_states(cluster: Slurm) -> dict[str, str]:
    return states(partition_findings(cluster, GUEST_OF))


def whys(findings: Iterable[Finding], state: str) -> str:
    return "\n".join(f"{each.why} → {each.remedy}" for each in findings if each.state == state)


# ------------------------------------------------------------------------------------------------------ reading


def test_what_a_real_slurm_prints_is_read() -> None:
    cluster = slurm()
    assert cluster.get("SelectType") == "select/cons_tres"
    assert cluster.words("SelectTypeParameters") == {"cr_core_memory"}
    assert cluster.get("Epilog") == ""
    assert cluster.of("guest", "PriorityTier") == "2"
    assert cluster.of("guest", "QoS") == ""


def test_one_line_or_many_are_the_same() -> None:
    many = PARTITIONS.replace(" Default=", "\n   Default=").replace(" Nodes=", "\n   Nodes=")
    assert read_partitions(many) == read_partitions(PARTITIONS)


def test_slurm_conf_is_read_as_slurm_reads_it() -> None:
    cluster = read_slurm_conf(
        "selecttype = select/cons_tres # whole line\n"
        "#SelectType=select/linear\n"
        "PARTITIONNAME=DEFAULT MaxTime=60 Shared=FORCE:1\n"
        'PartitionName=a,b Nodes=n[1-2] \\\n  TRESBillingWeights="CPU=1.0,Mem=0.25G" Priority=7\n'
        "PartitionName=c MaxTime=30\n"
    )
    assert cluster.get("SelectType") == "select/cons_tres"
    assert list(cluster.partitions) == ["a", "b", "c"]
    assert cluster.of("b", "TRESBillingWeights") == "CPU=1.0,Mem=0.25G"
    assert (cluster.of("a", "MaxTime"), cluster.of("c", "MaxTime")) == ("60", "30")
    assert cluster.of("a", "OverSubscribe") == "FORCE:1"
    assert cluster.of("a", "PriorityTier") == "7"
    assert cluster.of("c", "AllowGroups") == "ALL"


def test_hostile_text_is_no_error() -> None:
    for text in ("", "=", "PartitionName=", "\0\x1b[2J = x", "PartitionName=x\\\n", "a" * 100_000):
        read_config(text), read_partitions(text), read_slurm_conf(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("60", 60), ("60:30", 60.5), ("1:00:00", 60), ("2-0", 2880), ("2-00:00:00", 2880), ("1-1:1", 1501)],
)
def test_time_limits(text: str, value: float) -> None:
    assert minutes(text) == value
    assert minutes("UNLIMITED") == float("inf")


# --------------------------------------------------------------------------------------------------- the cluster


def test_a_cluster_that_is_ready_has_no_fault() -> None:
    ready = slurm({"ConstrainCores": "yes"})
    assert set(states(cluster_findings(ready)).values()) == {"ok"}
    assert set(partition_states(ready).values()) == {"ok"}


def test_the_shipped_example_is_ready() -> None:
    example = read_slurm_conf(EXAMPLE.read_text() + "ConstrainCores=yes\n")
    found = [*cluster_findings(example), *partition_findings(example, GUEST_OF)]
    assert set(states(found).values()) == {"ok"}


@pytest.mark.parametrize(
    ("changed", "check", "state", "line"),
    [
        ({"SelectType": "select/linear"}, "select", "fail", "SelectType=select/cons_tres"),
        ({"SelectType": "select/cons_res"}, "select", "ok", None),
        ({"SelectTypeParameters": "CR_CPU"}, "memory", "fail", "SelectTypeParameters=CR_CPU_Memory"),
        ({"SelectTypeParameters": "NONE"}, "memory", "fail", "SelectTypeParameters=CR_Core_Memory"),
        ({"SelectTypeParameters": "CR_SOCKET_MEMORY,CR_LLN"}, "memory", "ok", None),
        ({"SelectTypeParameters": "CR_MEMORY"}, "memory", "ok", None),
        ({"PreemptMode": "GANG,SUSPEND"}, "preemption", "fail", "PreemptMode=OFF"),
        ({"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}, "preemption", "warn", None),
        ({"PreemptType": "preempt/qos", "PreemptMode": "CANCEL"}, "preemption", "warn", None),
        ({"SchedulerType": "sched/builtin"}, "backfill", "warn", "SchedulerType=sched/backfill"),
        ({"ProctrackType": "proctrack/linuxproc"}, "proctrack", "fail", "ProctrackType=proctrack/cgroup"),
        ({"TaskPlugin": "task/none"}, "cores", "warn", None),
        ({"MinJobAge": "2 sec"}, "finished jobs", "warn", "MinJobAge=300"),
        ({"AccountingStorageEnforce": "associations,limits"}, "associations", "warn", None),
        ({"PrivateData": "accounts,jobs"}, "private data", "warn", None),
    ],
)
def test_faults_of_the_cluster(changed: dict[str, str], check: str, state: str, line: str | None) -> None:
    cluster = slurm({"ConstrainCores": "yes"} | changed)
    found = list(cluster_findings(cluster))
    assert states(found)[check] == state
    assert [text for each in found for text in each.lines] == ([line] if line else [])
    others = {name: other for name, other in states(found).items() if name != check}
    assert set(others.values()) == {"ok"}


# ------------------------------------------------------------------------------------------- who lends to whom


def test_what_lends_against_the_defaults_is_reported() -> None:
    ready = slurm({"AccountingStorageType": "accounting_storage/slurmdbd"}, batch={"DefaultTime": "01:00:00"})
    by_default = list(lending_findings(ready, GUEST_OF, Lend(), "same"))
    assert set(states(by_default).values()) == {"ok"}
    assert next(each.why for each in by_default if each.check == "lend").endswith(
        "jobs with gres, jobs with --mem=0, jobs with --exclusive"
    )
    for kind in ("gres", "whole_memory", "exclusive"):
        found = lending_findings(ready, GUEST_OF, Lend(**{kind: True}), "same")
        (warned,) = [each for each in found if each.state != "ok"]
        assert (warned.check, warned.state) == ("lend", "warn")
        assert warned.remedy == f"[slurm.lend] {kind} = false"
    one_node = list(lending_findings(ready, GUEST_OF, Lend(multi_node=False), "same"))
    assert "jobs on several nodes" in next(each.why for each in one_node if each.check == "lend")
    assert states(lending_findings(ready, GUEST_OF, Lend(), "account"))["share_users"] == "ok"
    assert states(lending_findings(ready, GUEST_OF, Lend(), "any"))["share_users"] == "warn"
    assert [*SWITCHES] == [switch.name for switch in fields(Lend)], "every kind that there is"


def test_who_has_no_limit_is_never_a_guest_and_limits_want_accounting() -> None:
    unlimited = slurm(
        {"AccountingStorageType": "(null)"}, batch={"DefaultTime": "NONE", "MaxTime": "UNLIMITED"}
    )
    found = states(lending_findings(unlimited, GUEST_OF, Lend(), "same"))
    assert (found["time limits"], found["accounting"]) == ("warn", "warn")
    limited = slurm(batch={"DefaultTime": "NONE", "MaxTime": "1-00:00:00"})
    assert states(lending_findings(limited, GUEST_OF, Lend(), "same"))["time limits"] == "ok"


def test_constants_of_another_machine_are_reported() -> None:
    assert calibration_finding("").state == "warn" and calibration_finding("/etc/asad/c.toml").state == "ok"


# ---------------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"OverSubscribe": "NO"}, "OverSubscribe=NO: guests never start beside its jobs"),
        ({"OverSubscribe": "EXCLUSIVE"}, "gives whole nodes"),
        ({"OverSubscribe": "FORCE:4"}, "Slurm itself puts several jobs on one core"),
        ({"OverSubscribe": "FORCE"}, "Slurm itself puts several jobs on one core"),
        ({"OverSubscribe": "YES:2"}, "Slurm itself puts several jobs on one core"),
    ],
)
def test_faults_of_a_partition_that_lends(change: dict[str, str], text: str) -> None:
    cluster = slurm(batch=change)
    assert partition_states(cluster)["partition batch"] == "fail"
    assert text in whys(partition_findings(cluster, GUEST_OF), "fail")
    assert "in the line PartitionName=batch: OverSubscribe=FORCE:1" in whys(
        partition_findings(cluster, GUEST_OF), "fail"
    )


def test_a_guest_must_not_preempt_its_host() -> None:
    prio = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}
    by_default = slurm(prio, batch={"PreemptMode": "REQUEUE"})
    assert "a guest would requeue its host" in whys(partition_findings(by_default, GUEST_OF), "fail")
    safe = slurm(prio, batch={"PreemptMode": "OFF"}, guest={"PreemptMode": "OFF"})
    assert set(partition_states(safe).values()) == {"ok"}


def test_exclusive_user_is_a_warning() -> None:
    assert partition_states(slurm(batch={"ExclusiveUser": "YES"}))["partition batch"] == "warn"
    assert (
        partition_states(slurm(batch={"Exclusive": "USER"}))["partition batch"] == "warn"
    )  # as 26.05 says it
    assert partition_states(slurm(batch={"Exclusive": "NODE"}))["partition batch"] == "fail"
    assert partition_states(slurm(batch={"Exclusive": "NO"}))["partition batch"] == "ok"


@pytest.mark.parametrize(
    ("change", "state", "remedy"),
    [
        ({"OverSubscribe": "NO"}, "fail", "OverSubscribe=FORCE:1"),
        ({"PriorityTier": "1"}, "fail", "PriorityTier=2"),
        ({"PreemptMode": "REQUEUE"}, "fail", "PreemptMode=OFF"),
        ({"Default": "YES"}, "fail", "Default=NO"),
        ({"State": "DOWN"}, "fail", "State=UP"),
        ({"RootOnly": "YES"}, "fail", "RootOnly=NO"),
        ({"ReqResv": "YES"}, "fail", "ReqResv=NO"),
        ({"AllocNodes": "head"}, "fail", "AllocNodes=ALL"),
        ({"AllowGroups": "staff"}, "fail", "AllowGroups=ALL"),
        ({"DenyAccounts": "guests"}, "fail", "remove DenyAccounts"),
        ({"QoS": "other"}, "fail", "remove QoS"),
        ({"MaxTime": "01:00:00"}, "fail", "MaxTime=UNLIMITED"),
        ({"MaxNodes": "1"}, "fail", "MaxNodes=UNLIMITED"),
        ({"Nodes": "dc1"}, "warn", "Nodes=dc[1-2]"),
    ],
)
def test_faults_of_a_guest_partition(change: dict[str, str], state: str, remedy: str) -> None:
    found = list(partition_findings(slurm(guest=change), GUEST_OF))
    assert partition_states(slurm(guest=change)) == {"partition batch": "ok", "partition guest": state}
    (fault,) = [each for each in found if each.state != "ok"]
    assert fault.remedy == f"in the line PartitionName=guest: {remedy}"
    assert fault.lines == (
        "PartitionName=guest Nodes=dc[1-2] OverSubscribe=FORCE:1 PriorityTier=2 PreemptMode=OFF",
    )


def test_what_means_the_same_is_no_fault() -> None:
    cluster = slurm(
        batch={"AllowGroups": "a,B", "MaxTime": "2-00:00:00", "Nodes": "n[1-2,5],m1", "DenyQos": "(null)"},
        guest={"AllowGroups": "b,a", "MaxTime": "48:00:00", "Nodes": "m1,n[1-2,5]"},
    )
    assert set(partition_states(cluster).values()) == {"ok"}


def test_guests_are_billed_like_the_others() -> None:
    weights = {"TRESBillingWeights": "CPU=1.0,Mem=0.25G"}
    assert partition_states(slurm(batch=weights))["partition guest"] == "warn"
    cheaper = {"TRESBillingWeights": "CPU=0.5"}
    assert partition_states(slurm(batch=weights, guest=cheaper))["partition guest"] == "ok", "a site's choice"


def test_the_line_of_a_missing_guest_partition_mirrors_its_source() -> None:
    cluster = slurm(
        batch={
            "AllowGroups": "staff",
            "MaxTime": "2-00:00:00",
            "PriorityTier": "5",
            "TRESBillingWeights": "CPU=1.0,Mem=0.25G",
            "DefMemPerCPU": "2000",
        }
    )
    del cluster.partitions["guest"]  # type: ignore[attr-defined]
    (fault,) = [each for each in partition_findings(cluster, GUEST_OF) if each.state == "fail"]
    assert fault.why == "there is no partition guest for the guests of batch"
    assert fault.lines == (
        "PartitionName=guest Nodes=dc[1-2] OverSubscribe=FORCE:1 PriorityTier=6 PreemptMode=OFF "
        'AllowGroups=staff MaxTime=2-00:00:00 DefMemPerCPU=2000 TRESBillingWeights="CPU=1.0,Mem=0.25G"',
    )
    corrected = read_slurm_conf(fault.lines[0])
    both = Slurm(cluster.settings, {**cluster.partitions, **corrected.partitions})
    assert set(partition_states(both).values()) == {"ok"}, "and with that line all is well"
    assert guest_line(both, "batch", "guest") == fault.lines[0]


def test_a_source_that_is_not_there_and_a_guest_partition_for_two() -> None:
    found = list(partition_findings(slurm(), {"long": "guest"}))
    assert [each.why for each in found] == ["there is no partition long; there are batch, guest"]
    found = list(partition_findings(slurm(long={}), {"batch": "guest", "long": "guest"}))
    assert "batch and long share the guest partition guest" in whys(found, "fail")


# ------------------------------------------------------------------------------------------------------- scripts


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ('pkill -KILL -u "$SLURM_JOB_USER"', "kills processes by their user"),
        ("/usr/bin/killall -u $SLURM_JOB_USER", "kills processes by their user"),
        ("pkill -9U $SLURM_JOB_UID", "kills processes by their user"),
        ("loginctl terminate-user $SLURM_JOB_USER", "kills processes by their user"),
        ("kill -9 $(ps -u $SLURM_JOB_USER -o pid=)", "kills processes by their user"),
        ("ps -u $SLURM_JOB_USER -o pid= | xargs kill", "kills processes by their user"),
        ("rm -rf /tmp/*", "wipes temporary files"),
        ("rm -fr $TMPDIR", "wipes temporary files"),
        ('find /tmp /dev/shm -user "$U" -delete', "wipes temporary files"),
        ("pkill -u $U\nrm -r /dev/shm/x", "kills processes by their user and wipes temporary files"),
    ],
)
def test_scripts_that_hurt_who_shares_a_node(code: str, text: str) -> None:
    (found,) = script_findings(slurm(), {"Epilog": [("/etc/slurm/epilog", f"#!/bin/sh\n{code}\n")]})
    assert (found.check, found.state) == ("Epilog", "warn")
    assert f"/etc/slurm/epilog {text}: " in found.why


@pytest.mark.parametrize(
    "code",
    [
        "# pkill -u was here once",
        "echo $SLURM_JOB_ID >> /var/log/epilog",
        "rm -f /run/job.$SLURM_JOB_ID",
        "pkill -P $$",
        "rm /tmp",
        "umask 077; logger done",
    ],
)
def test_scripts_that_hurt_nobody(code: str) -> None:
    (found,) = script_findings(slurm(), {"Prolog": [("/p", code)]})
    assert found.state == "ok"


def test_a_script_that_cannot_be_read_is_to_be_looked_at() -> None:
    (found,) = script_findings(slurm(), {"Epilog": [("/e", None)]})
    assert found.state == "warn"
    assert list(script_findings(slurm(), {"Epilog": []})) == []


def test_who_is_kept_out_of_the_guest_partition() -> None:
    lua = (ROOT / "profiles" / "slurm" / "job_submit.lua").read_text()
    with_lua = slurm({"JobSubmitPlugins": "all_partitions,lua"})

    def finding(text: str | None, user: str = "asad", *guests: str) -> Finding:
        return job_submit_finding(with_lua, text, user, guests or ("guest",))

    assert finding(lua).state == "ok"
    assert finding(lua, "root").state == "ok"
    assert finding(lua, "lender").remedy == 'job_submit.lua: asad_user = "lender"'
    assert finding('-- asad_user = "asad"').state == "fail"
    assert finding(None).state == "warn"
    another = finding(lua, "asad", "guest", "guest-long")
    assert another.why == "job_submit.lua does not guard guest-long"
    both = another.remedy.removeprefix("job_submit.lua: ")
    corrected = lua.replace("guest_partitions = { guest = true }", both)
    assert finding(corrected, "asad", "guest", "guest-long").state == "ok"
    without = job_submit_finding(slurm({"JobSubmitPlugins": "(null)"}), lua, "asad", ["guest"])
    assert (without.state, without.lines) == ("fail", ("JobSubmitPlugins=lua",))


def test_actors_know_the_guest_partitions() -> None:
    assert actor_finding({"batch": "guest"}, ["guest"]).state == "ok"
    lacking = actor_finding({"batch": "guest", "long": "guest-long"}, ["guest"])
    assert lacking.why.endswith("would not know guests in guest-long")
    assert lacking.remedy == 'asad.toml, [node]: guest_partitions = ["guest", "guest-long"]'


# ------------------------------------------------------------------------------------------ rights, clocks, kernel


def test_rights_of_the_daemons_user() -> None:
    dbd = slurm({"AccountingStorageType": "accounting_storage/slurmdbd", "SlurmUser": "slurm(64030)"})
    assert rights_finding(dbd, "", "root").state == "ok"
    assert rights_finding(dbd, "", "slurm").state == "ok"
    assert rights_finding(dbd, "asad|Operator\n", "asad").state == "ok"
    assert rights_finding(dbd, "asad|Administrator\n", "asad").state == "ok"
    lower = rights_finding(dbd, "asad|None\n", "asad")
    assert (lower.state, lower.remedy) == ("fail", "sacctmgr -i modify user asad set adminlevel=Operator")
    unknown = rights_finding(dbd, "", "asad")
    assert unknown.remedy == "sacctmgr -i add user asad account=root adminlevel=Operator"
    alone = rights_finding(slurm({"SlurmUser": "slurm(64030)"}), "", "asad")
    assert alone.state == "fail"
    assert "nobody but root and slurm may" in alone.why


def test_clocks() -> None:
    assert CONFIG.startswith("Configuration data as of 2026-")
    text = "Configuration data as of 2026-11-20T11:00:00\n"
    for second, state in ((0, "ok"), (4, "ok"), (30, "warn")):
        assert clock_finding(text, datetime(2026, 11, 20, 11, 0, second)).state == state
    late = clock_finding(text, datetime(2026, 11, 20, 10, 58, 0))
    assert (late.state, late.why) == ("fail", "this machine's clock and the controller's are 120 s apart")
    assert clock_finding("", datetime(2026, 11, 20)).state == "warn"


V1 = "".join(f"cgroup /sys/fs/cgroup/{name} cgroup rw,{name} 0 0\n" for name in ("cpu,cpuacct", "freezer"))
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


def test_cgroups() -> None:
    assert cgroup_finding(V2, "cpuset cpu io memory pids", True) == Finding(
        "cgroup", "ok", "cgroup v2 with cpu, cpuset and memory"
    )
    assert cgroup_finding(V2, "cpuset io pids", True).why == "cgroup v2 lacks cpu, memory"
    assert cgroup_finding(V1, "", False) == Finding(
        "cgroup",
        "ok",
        "cgroup v1 with cpu, cpuacct, freezer; it has no cpu.idle, so guests get the least weight",
    )
    hybrid = V1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    assert cgroup_finding(hybrid, "", True).why.startswith("cgroup v1")
    assert cgroup_finding("", "", True).state == "fail"


# --------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("parameters", "threads", "state"),
    [
        ("CR_Core_Memory", {2}, "ok"),
        ("CR_CPU_Memory", {1}, "ok"),
        ("CR_CPU_Memory,CR_LLN", {1, 2}, "fail"),
        ("CR_CPU_Memory", set(), "warn"),
    ],
)
def test_hyper_threads_are_not_counted_one_by_one(parameters: str, threads: set[int], state: str) -> None:
    finding = threads_finding(slurm({"SelectTypeParameters": parameters}), threads)
    assert finding.state == state
    if state == "fail":
        assert finding.lines == ("SelectTypeParameters=CR_Core_Memory,CR_LLN",)


def test_threads_of_sinfo_and_of_slurm_conf() -> None:
    assert read_threads("2\n1\n1\n") == {1, 2}
    assert read_threads("") == set()
    assert read_threads("NodeName=n1 CPUs=4\n nodename=n2 CPUs=4 threadspercore=2 # x\n") == {1, 2}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with slurm.conf, cgroup.conf, job_submit.lua, asad.toml and a scontrol that answers as Slurm did."""
    monkeypatch.setenv("ASAD_SOCKET", "")
    (tmp_path / "slurm.conf").write_text(
        EXAMPLE.read_text().replace("PartitionName=guest", "Include guest.conf\n#")
    )
    (tmp_path / "guest.conf").write_text(
        next(line for line in EXAMPLE.read_text().splitlines() if line.startswith("PartitionName=guest"))
    )
    (tmp_path / "cgroup.conf").write_text("ConstrainCores=yes\n")
    (tmp_path / "job_submit.lua").write_text((ROOT / "profiles" / "slurm" / "job_submit.lua").read_text())
    me = pwd.getpwuid(os.geteuid()).pw_name
    (tmp_path / "asad.toml").write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\nsocket = "{tmp_path}/none.sock"\n'
        f'[nodes]\nuser = "{me}"\nmunge_socket = "{tmp_path}/none"\n'
    )
    for name in ("config", "partitions"):
        (tmp_path / name).write_text((GOLDEN / f"{name}-22.05.txt").read_text())
    program(
        tmp_path / "bin" / "scontrol",
        f'case "$2" in config) cat {tmp_path}/config;; *) cat {tmp_path}/partitions;; esac',
    )
    program(tmp_path / "bin" / "sacctmgr", "echo asad'|'Operator")
    program(tmp_path / "bin" / "sinfo", "echo 2; echo 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def program(path: Path, code: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def call(site: Path, *words: str) -> Result:
    return CliRunner().invoke(asactl, ["doctor", "--config", str(site / "asad.toml"), *words])


def found(result: Result) -> dict[str, dict[str, str]]:
    return {finding["check"]: finding for finding in json.loads(result.output)["findings"]}


def test_a_slurm_conf_is_looked_at_without_a_controller(site: Path) -> None:
    result = call(site, "--slurm-conf", str(site / "slurm.conf"), "--json")
    assert result.exit_code == 1, "munged is not there"
    by_check = found(result)
    assert [name for name, finding in by_check.items() if finding["state"] == "fail"] == ["munge"]
    assert "is munged running" in by_check["munge"]["why"]
    assert by_check["partition guest"]["state"] == "ok", "its line is in an included file"
    assert by_check["cores"]["state"] == "ok", "cgroup.conf lies beside it"
    assert "clocks" not in by_check
    assert set(by_check["store"]) == {"check", "state", "why", "mend"}


def test_the_controller_is_asked(site: Path) -> None:
    by_check = found(call(site, "--json"))
    assert by_check["slurm"]["why"] == "the controller answers, Slurm 22.05.8"
    assert by_check["clocks"]["state"] == "fail", "the golden text is of another time"
    assert by_check["select"]["state"] == "ok"
    assert by_check["threads"]["why"] == "hyper-threads of one core go to one job"
    assert by_check["daemon"]["state"] == "warn"
    assert "no daemon answers" in by_check["daemon"]["why"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("echo 'Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
        ("sleep 60", "no answer within"),
    ],
)
def test_a_controller_that_is_down_or_hangs_is_one_finding(
    site: Path, code: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asad.cluster.findings.COMMAND_S", 0.5)
    program(site / "bin" / "scontrol", code.replace("sleep", "exec sleep"))
    by_check = found(call(site, "--json"))
    assert by_check["slurm"]["state"] == "fail"
    assert text in by_check["slurm"]["why"]
    assert "select" not in by_check
    assert by_check["store"]["state"] == "ok"


def test_a_wrong_configuration_is_a_finding_and_the_rest_is_looked_at(site: Path) -> None:
    (site / "asad.toml").write_text("[daemn]\n")
    by_check = found(call(site, "--slurm-conf", str(site / "slurm.conf"), "--json"))
    assert by_check["configuration"]["state"] == "fail"
    assert "daemon" in by_check["configuration"]["why"]
    assert by_check["select"]["state"] == "ok"


def test_options_of_a_policy_are_looked_at_and_each_fault_has_its_line(site: Path) -> None:
    with (site / "asad.toml").open("a") as file:
        file.write('[policies]\ndefer = "rollout"\n[defer.rollout]\nreserve = 5\n[share.asax]\nlate = 1\n')
    printed = call(site, "--slurm-conf", str(site / "slurm.conf")).output
    assert any("[share.asax] late: unknown option" in line for line in printed.splitlines())
    assert any("[defer.rollout] reserve = 5; give" in line for line in printed.splitlines())
    assert "\\n" not in printed


def test_of_a_recorded_cluster_neither_slurm_nor_the_machine_is_looked_at(site: Path) -> None:
    text = (site / "asad.toml").read_text().replace("[daemon]", '[daemon]\ncluster = "recorded"')
    (site / "asad.toml").write_text(text + f'[recorded]\nlog = "{site}/asad.toml"\n')
    result = call(site, "--json")
    assert result.exit_code == 0
    assert list(found(result)) == ["configuration", "store", "daemon"]


def test_a_daemon_whose_cycles_fail_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {
        "mode": "enforce",
        "cycles": {"failing": 3},
        "cycle": {"sentence": "cycle 9 skipped: no squeue"},
    }
    monkeypatch.setattr(doctor, "ask", lambda *_, **__: status)
    found = doctor._daemon(Path("asad.sock"))
    assert (found.state, found.why) == (
        "fail",
        "it runs, but its last 3 cycles failed: cycle 9 skipped: no squeue",
    )
    status["cycles"] = {"failing": 0}
    assert doctor._daemon(Path("asad.sock")).state == "ok"


def test_where_idle_cpu_goes_is_reported_with_what_would_free_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [{"reason": "headroom", "core_h": 30.0}, {"reason": "lent", "core_h": 10.0}]
    monkeypatch.setattr(doctor, "ask", lambda *_, **__: {"funnel": listed})
    (found,) = doctor._idle(Path("asad.sock"))
    text = found.why.replace("\u202f", " ")
    assert found.state == "ok" and "lower the option headroom" in text
    assert text.splitlines()[1:] == ["75 % headroom", "25 % lent"]
    monkeypatch.setattr(doctor, "ask", lambda *_, **__: {"funnel": []})
    assert list(doctor._idle(Path("asad.sock"))) == []


def test_the_daemon_is_asked_at_the_socket_that_is_given(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ControlServer(tmp_path / "other.sock", lambda request, peer: {"mode": "advise"})
    server.start()
    try:
        given = found(call(site, "--json", "--socket", str(server.path)))["daemon"]
        monkeypatch.setenv("ASAD_SOCKET", str(server.path))
        from_environment = found(call(site, "--json"))["daemon"]
    finally:
        server.stop()
    assert given == from_environment
    assert (given["state"], given["why"]) == ("ok", "it runs, mode advise")
    elsewhere = found(call(site, "--json", "--socket", str(tmp_path / "none.sock")))["daemon"]
    assert elsewhere["state"] == "warn"
    assert str(tmp_path / "none.sock") in elsewhere["why"]


def test_lines_to_add_are_printed(site: Path) -> None:
    text = EXAMPLE.read_text().replace("CR_Core_Memory", "CR_Core").replace("JobSubmitPlugins", "#")
    (site / "bad.conf").write_text("".join(line for line in text.splitlines(True) if "=guest" not in line))
    result = call(site, "--slurm-conf", str(site / "bad.conf"))
    assert result.exit_code == 1
    after = result.output.split("To slurm.conf, then")[1].splitlines()
    assert after[2:5] == [
        "SelectTypeParameters=CR_Core_Memory",
        "PartitionName=guest Nodes=n[1-16] OverSubscribe=FORCE:1 PriorityTier=2 PreemptMode=OFF MaxTime=2-00:00:00",
        "JobSubmitPlugins=lua",
    ]
    assert not any(line != line.rstrip() for line in result.output.splitlines())


def test_control_characters_of_a_configuration_do_not_reach_the_terminal(site: Path) -> None:
    (site / "slurm.conf").write_text("SelectType=\x1b[2Jlinear\nEpilog=/\x1b]0;x\x07\n")
    result = call(site, "--slurm-conf", str(site / "slurm.conf"))
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


def test_the_store_and_its_folder(site: Path) -> None:
    assert found(call(site, "--json"))["store"]["why"].endswith(f"can write to {site}")
    Store.open(str(site / "asad.db")).close()
    assert found(call(site, "--json"))["store"]["why"] == f"{site}/asad.db can be opened"
    mode = stat.S_IMODE(site.stat().st_mode)
    site.chmod(0o777)
    assert found(call(site, "--json"))["store"]["mend"].startswith(f"chmod o-w {site}")
    site.chmod(mode)
    (site / "asad.db").write_bytes(b"no database" * 1000)
    assert found(call(site, "--json"))["store"]["state"] == "fail"
    text = (site / "asad.toml").read_text().replace(f'state_dir = "{site}"', f'state_dir = "{site}/gone"')
    (site / "asad.toml").write_text(text)
    assert found(call(site, "--json"))["store"]["mend"].startswith("install -d -o ")


def test_without_a_configuration_the_defaults_are_looked_at(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "DEFAULT_PATH", site / "none.toml")
    words = ["doctor", "--slurm-conf", str(site / "slurm.conf"), "--json"]
    by_check = found(CliRunner().invoke(asactl, words))
    assert by_check["configuration"]["state"] == "warn"


def test_scripts_are_found_by_patterns(site: Path) -> None:
    for name in ("10-a.sh", "20-b.sh"):
        (site / name).write_text("pkill -u $SLURM_JOB_USER\n")
    with (site / "slurm.conf").open("a") as file:
        file.write(f"\nEpilog={site}/*.sh\nProlog={site}/missing\n")
    output = json.loads(call(site, "--slurm-conf", str(site / "slurm.conf"), "--json").output)["findings"]
    epilogs = [each["why"] for each in output if each["check"] == "Epilog"]
    assert len(epilogs) == 2
    assert all("kills processes by their user" in why for why in epilogs)
    assert [each["why"] for each in output if each["check"] == "Prolog"] == [
        f"{site}/missing cannot be read here"
    ]


def test_every_remedy_is_a_single_line() -> None:
    bad = slurm(
        {"SelectType": "select/linear", "PreemptMode": "GANG"},
        batch={"OverSubscribe": "NO"},
        guest={"State": "DOWN"},
    )
    for finding in (*cluster_findings(bad), *partition_findings(bad, GUEST_OF)):
        assert "\n" not in finding.remedy + finding.why
        assert finding.to_json()["mend"] == finding.remedy


def test_a_second_controller_wants_a_journal_that_both_see() -> None:
    slurm = Slurm({"statesavelocation": "/shared/slurm"}, {})
    mounts = "/dev/vda / ext4 rw 0 0\nfiler:/x /shared nfs4 rw 0 0\nnone /shared/local ext4 rw 0 0\n"

    def found(folder: str, controllers: int = 2) -> str:
        finding = config_checks.head_finding(slurm, controllers, Path(folder), mounts)
        return "" if finding is None else finding.state

    assert found("/var/lib/asad", 1) == ""
    assert found("/var/lib/asad") == found("/shared/local/asad") == found("/sharedness") == "warn"
    assert found("/shared/slurm/asad") == found("/shared") == "ok"

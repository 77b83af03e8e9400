"""asad on Debian 12 with systemd and cgroup v2, beside Slurm as Debian packs it, from installation to stop.

One boot, in chapters: each chapter is a fixture that builds on the one before, does something to the machine, and
hands on what it saw; the tests below it say what should have been seen. So any test may be run alone, and a chapter
that fails is reported by the tests that need it.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

import pytest
from machine import Answer, Machine
from steps import (
    BUSY,
    CONFIG,
    ETC,
    LEASED,
    LIGHT,
    UNLIMITED,
    USER,
    Slurm,
    await_field,
    await_quota,
    field_of,
    group_of,
    kill,
    look,
    main_pid,
    mode,
    override,
    since_boot_s,
    submit,
)

pytestmark = pytest.mark.vm

READER = (
    "head -c 200M /dev/zero > /tmp/reader && sync /tmp/reader && while :; do :; done & "
    "sleep 30; while :; do cat /tmp/reader > /dev/null; done"
)
"""Computes without a pause, and reads a file of 200 MB again and again: page cache, which the kernel can take back."""
UNDO = "/opt/asad/bin/asad-undo --state-dir /var/lib/asad"
WAYS = ("stopped", "killed", "killed, without its last rites")
"""How a daemon goes; after the last only the timer's unit is left to take offers back."""
LOG = ("journalctl", "--unit=asad", "--output=cat")


# ------------------------------------------------------------------------------------------------------- the machine


def test_the_machine_runs_systemd(machine: Machine) -> None:
    assert machine.do("systemctl", "is-system-running", "--wait").strip() == "running"
    assert machine.do("ps", "-o", "comm=", "-p", "1").strip() == "systemd"


def test_cgroups_are_version_2_with_cpu(machine: Machine) -> None:
    assert machine.do("stat", "--file-system", "--format=%T", "/sys/fs/cgroup").strip() == "cgroup2fs"
    assert {"cpu", "cpuset", "memory"} <= set(machine.do("cat", "/sys/fs/cgroup/cgroup.controllers").split())


# ------------------------------------------------------------------------------------------------------------- Slurm


def test_debians_own_units_run_slurm(slurm: Slurm) -> None:
    units = ("munge", "slurmdbd", "slurmctld", "slurmd")
    assert slurm.machine.do("systemctl", "is-active", *units).split() == ["active"] * len(units)


def test_there_is_a_batch_and_a_guest_partition(slurm: Slurm) -> None:
    assert set(slurm.machine.do("sinfo", "--noheader", "--format=%R").split()) == {"batch", "guest"}


# ------------------------------------------------------------------------------------- cgroup v2, before asad is here


@dataclass(frozen=True)
class Bare:
    """A host and a guest that an administrator has put together by hand, and a quota set by hand."""

    quota_before: str
    quota_after: str
    cores_used: float
    """CPU that two busy loops got under 40 % of one core."""
    idle: str


@pytest.fixture(scope="session")
def bare(slurm: Slurm) -> Bare:
    machine = slurm.machine
    job = submit(machine, "while :; do :; done & while :; do :; done", "--cpus-per-task=2", "--time=10")
    await_field(machine, job, "%T", "RUNNING")
    group = group_of(machine, job)
    before = machine.do("cat", f"{group}/cpu.max").strip()
    machine.do("tee", f"{group}/cpu.max", stdin="40000 100000")
    machine.do("tee", f"{group}/cpu.idle", stdin="1")
    machine.do("systemctl", "restart", "slurmd")
    machine.await_("sinfo", "--noheader", "--format=%T", shows="allocated")
    used_s, at_s = zip(*(look(machine, group) for _ in range(2)), strict=True)
    seen = Bare(
        before,
        machine.do("cat", f"{group}/cpu.max").strip(),
        (used_s[1] - used_s[0]) / (at_s[1] - at_s[0]),
        machine.do("cat", f"{group}/cpu.idle").strip(),
    )
    machine.do("scancel", job)
    machine.await_("sinfo", "--noheader", "--format=%T", shows="idle")
    return seen


def test_slurm_leaves_the_quota_of_a_job_alone(bare: Bare) -> None:
    assert bare.quota_before == UNLIMITED
    assert (bare.quota_after, bare.idle) == ("40000 100000", "1")


def test_a_quota_holds_busy_loops(bare: Bare) -> None:
    assert 0.2 < bare.cores_used < 0.5


# -------------------------------------------------------------------------------------------------- asad is installed

ASAD_UNITS = ("asad.service", "asad-node.service")


@dataclass(frozen=True)
class Installed:
    """asad as the how-to says, running."""

    machine: Machine
    active: list[str]
    enabled: list[str]
    owner: str
    """Whose process the daemon is."""
    doctor: Answer
    compiled_s: float
    """How long the first start took until the daemon's own process began: the policy was compiled in another."""


@pytest.fixture(scope="session")
def installed(slurm: Slurm, bare: Bare) -> Installed:
    machine, do = slurm.machine, slurm.machine.do
    pip = ("/opt/asad/bin/pip", "install", "--no-index", "--find-links=/mnt/payload/wheels")
    do(*pip, "asad-hpc", timeout_s=300.0)  # what asad needs is in the image: unpacking it takes minutes here
    kinds = ("-name", "*.service", "-o", "-name", "*.timer", "-o", "-name", "*.mount")
    for unit in do("find", "/mnt/payload/systemd", *kinds).split():
        do("install", "--mode=644", unit, "/etc/systemd/system/")
    do(
        "install",
        "-D",
        "--mode=644",
        "/mnt/payload/systemd/sysusers.d/asad.conf",
        "/etc/sysusers.d/asad.conf",
    )
    do(
        "install",
        "-D",
        "--mode=644",
        "/mnt/payload/systemd/tmpfiles.d/asad.conf",
        "/etc/tmpfiles.d/asad.conf",
    )
    do("systemd-sysusers")
    do("systemd-tmpfiles", "--create", "asad.conf")
    do("install", "-D", "--mode=644", f"{ETC}/asad.toml", "/etc/asad/asad.toml")
    do("sacctmgr", "--immediate", "add", "user", "asad", "account=lab", "adminlevel=Operator")
    do("systemctl", "daemon-reload")
    doctor = machine.run("asactl", "doctor", "--json", timeout_s=300.0)
    do("systemctl", "enable", "--now", *ASAD_UNITS, "asad-undo.timer", timeout_s=900.0)
    return Installed(
        machine,
        do("systemctl", "is-active", *ASAD_UNITS, "asad-undo.timer").split(),
        do("systemctl", "is-enabled", *ASAD_UNITS, "asad-undo.timer").split(),
        do("ps", "-o", "user=", "-p", main_pid(machine, "asad")).strip(),
        doctor,
        since_boot_s(machine, "ExecMainStart") - since_boot_s(machine, "InactiveExit"),
    )


def test_the_units_run_and_come_back_at_boot(installed: Installed) -> None:
    assert installed.active == ["active"] * 3
    assert installed.enabled == ["enabled"] * 3


def test_the_daemon_is_not_root(installed: Installed) -> None:
    assert installed.owner == "asad"


def test_the_doctor_finds_nothing_that_fails(installed: Installed) -> None:
    findings = installed.doctor.json()["findings"]
    assert [finding for finding in findings if finding["state"] == "fail"] == []
    assert installed.doctor.status == 0


def test_the_example_configuration_is_right(installed: Installed) -> None:
    checked = installed.machine.run("asactl", "config", "check", "/mnt/payload/profiles/asad.toml")
    assert checked.status == 0, checked


def test_users_cannot_send_their_own_jobs_to_the_guest_partition(installed: Installed) -> None:
    sbatch = ("sbatch", "--partition=guest", "--chdir=/tmp", "--time=1", "--wrap=true")
    refused = installed.machine.run("runuser", "-u", USER, "--", *sbatch)
    assert refused.status != 0
    assert "partition guest is asad's" in refused.err


# ------------------------------------------------------------------------------------------------------------ lending


@dataclass(frozen=True)
class Lent:
    """A light host with a guest beside it, as asad brought them together."""

    machine: Machine
    host: str
    guest: str
    guest_cores_used: float
    states: list[str]
    partition: str
    host_quota: str
    guest_quota: str
    guest_idle: str
    host_idle: str
    status: Answer
    asked_by_user: Answer
    released_by_user: Answer


@pytest.fixture(scope="session")
def lent(installed: Installed) -> Lent:
    machine, do = installed.machine, installed.machine.do
    host = submit(machine, LIGHT, "--cpus-per-task=2", "--time=120", "--mem=200")
    await_field(machine, host, "%T", "RUNNING")
    guest = submit(machine, BUSY, "--cpus-per-task=2", "--time=60", "--mem=200")
    await_field(machine, guest, "%T", "RUNNING", timeout_s=300.0)
    groups = {job: group_of(machine, job) for job in (host, guest)}
    machine.await_("cat", f"{groups[guest]}/cpu.max", shows=f"^{LEASED}$", timeout_s=300.0)
    status = machine.await_("asactl", "status", "--json", shows=f'"guest": *"{guest}"', timeout_s=300.0)
    used_s, at_s = zip(*(look(machine, groups[guest]) for _ in range(2)), strict=True)
    return Lent(
        machine,
        host,
        guest,
        (used_s[1] - used_s[0]) / (at_s[1] - at_s[0]),
        [field_of(machine, job, "%T") for job in (host, guest)],
        field_of(machine, guest, "%P"),
        do("cat", f"{groups[host]}/cpu.max").strip(),
        do("cat", f"{groups[guest]}/cpu.max").strip(),
        do("cat", f"{groups[guest]}/cpu.idle").strip(),
        do("cat", f"{groups[host]}/cpu.idle").strip(),
        status,
        machine.run("runuser", "-u", USER, "--", "/opt/asad/bin/asactl", "status"),
        machine.run("runuser", "-u", USER, "--", "/opt/asad/bin/asactl", "release"),
    )


def test_the_guest_runs_beside_its_host(lent: Lent) -> None:
    assert lent.states == ["RUNNING", "RUNNING"]
    assert lent.partition == "guest"


def test_cpu_max_is_set_as_leased(lent: Lent) -> None:
    assert lent.guest_quota == LEASED
    assert lent.host_quota == LEASED  # the static policy caps both


def test_the_guest_is_in_the_idle_class_and_the_host_is_not(lent: Lent) -> None:
    assert (lent.guest_idle, lent.host_idle) == ("1", "0")


def test_the_kernel_keeps_the_guest_to_its_quota(lent: Lent) -> None:
    assert 0.3 < lent.guest_cores_used < 1.1, "two busy loops, half of two cores"


def test_status_shows_who_lends_to_whom(lent: Lent) -> None:
    status = lent.status.json()
    assert status["mode"] == "enforce"
    (lending,) = [one for one in status["lending"] if one["guest"] == lent.guest]
    assert (lending["host"], lending["share"]) == (lent.host, 0.5)
    assert status["actors"] == {"connected": 1, "silent": []}


def test_progress_files_are_in_a_small_file_system_of_their_own(lent: Lent) -> None:
    find = ("findmnt", "--noheadings", "--output=FSTYPE,SIZE", "/run/asad-progress")
    assert lent.machine.do(*find).split() == ["tmpfs", "16M"]
    owner = lent.machine.do("stat", "--format=%U", f"/run/asad-progress/{lent.host}")
    assert owner.strip() == USER


def test_users_may_look_and_not_touch(lent: Lent) -> None:
    assert lent.asked_by_user.status == 0
    assert lent.guest in lent.asked_by_user.out
    assert lent.released_by_user.status == 4


# ------------------------------------------------------------------------------------------------------------- reload


@dataclass(frozen=True)
class Reloaded:
    """A reload of a configuration that is wrong, and of one that is right again."""

    machine: Machine
    log: Answer
    pids: list[str]
    modes: list[str]
    quota: str


@pytest.fixture(scope="session")
def reloaded(lent: Lent) -> Reloaded:
    machine, do = lent.machine, lent.machine.do
    pids = [main_pid(machine, "asad")]
    do("sed", "--in-place", "s/^interval_s = 5/intervall_s = 6/", CONFIG)
    do("systemctl", "reload", "asad")
    log = machine.until(*LOG, shows="old configuration stays", timeout_s=300.0)
    modes = [mode(machine)]
    do("sed", "--in-place", "s/^intervall_s = 6/interval_s = 5/; s/^mode = .*/mode = 'advise'/", CONFIG)
    do("systemctl", "reload", "asad")
    machine.await_(*LOG, shows="reloaded ", timeout_s=300.0)
    modes.append(mode(machine))
    do("sed", "--in-place", "s/^mode = .*/mode = 'enforce'/", CONFIG)
    do("systemctl", "reload", "asad")
    machine.await_(*LOG, shows="(?s)reloaded .*reloaded ", timeout_s=300.0)
    pids.append(main_pid(machine, "asad"))
    quota = await_quota(machine, lent.guest, LEASED)
    return Reloaded(machine, log, pids, modes, quota)


def test_a_wrong_configuration_is_reported_and_the_old_one_kept(reloaded: Reloaded) -> None:
    assert f"{CONFIG}:5: daemon.intervall_s: unknown key; did you mean 'interval_s'?" in reloaded.log.out
    assert reloaded.modes[0] == "enforce"


def test_a_right_configuration_is_taken_without_a_restart(reloaded: Reloaded) -> None:
    assert reloaded.modes[1] == "advise"
    assert len(set(reloaded.pids)) == 1
    assert reloaded.quota == LEASED


# ----------------------------------------------------------------------------------------------- the node actor dies


@dataclass(frozen=True)
class Killed:
    """The node actor was killed with quotas set."""

    machine: Machine
    pids: list[str]
    quota: str
    idle: str


@pytest.fixture(scope="session")
def killed(reloaded: Reloaded, lent: Lent) -> Killed:
    machine, do = lent.machine, lent.machine.do
    pids = [main_pid(machine, "asad-node")]
    do("kill", "-KILL", pids[0])
    machine.await_("systemctl", "show", "--property=NRestarts", "--value", "asad-node", shows="^1$")
    machine.await_("systemctl", "is-active", "asad-node", shows="^active$", timeout_s=300.0)
    pids.append(main_pid(machine, "asad-node"))
    return Killed(
        machine,
        pids,
        await_quota(machine, lent.guest, LEASED),
        do("cat", f"{group_of(machine, lent.guest)}/cpu.idle").strip(),
    )


def test_systemd_brings_a_killed_actor_back(killed: Killed) -> None:
    assert killed.pids[0] != killed.pids[1]


def test_leases_hold_again_after_the_actor_was_killed(killed: Killed) -> None:
    assert (killed.quota, killed.idle) == (LEASED, "1")


# ---------------------------------------------------------------------------------------------- the node actor stops


@dataclass(frozen=True)
class ActorStopped:
    """`systemctl stop asad-node` with quotas set, and its start afterwards."""

    machine: Machine
    quotas: dict[str, str]
    idle: str
    states: list[str]
    quota_after_start: str


@pytest.fixture(scope="session")
def actor_stopped(killed: Killed, lent: Lent) -> ActorStopped:
    machine, do = lent.machine, lent.machine.do
    do("systemctl", "stop", "asad-node", timeout_s=300.0)
    groups = {job: group_of(machine, job) for job in (lent.host, lent.guest)}
    quotas = {job: do("cat", f"{group}/cpu.max").strip() for job, group in groups.items()}
    idle = do("cat", f"{groups[lent.guest]}/cpu.idle").strip()
    states = [field_of(machine, job, "%T") for job in (lent.host, lent.guest)]
    do("systemctl", "start", "asad-node", timeout_s=600.0)
    return ActorStopped(machine, quotas, idle, states, await_quota(machine, lent.guest, LEASED))


def test_stopping_the_actor_restores_every_quota(actor_stopped: ActorStopped, lent: Lent) -> None:
    assert actor_stopped.quotas == {lent.host: UNLIMITED, lent.guest: UNLIMITED}


def test_jobs_run_on_without_the_actor_and_the_guest_stays_idle(actor_stopped: ActorStopped) -> None:
    assert actor_stopped.states == ["RUNNING", "RUNNING"]
    assert actor_stopped.idle == "1"


def test_the_lease_holds_again_when_the_actor_is_back(actor_stopped: ActorStopped) -> None:
    assert actor_stopped.quota_after_start == LEASED


# ------------------------------------------------------------------------------------------ the daemon dies, and stops


@dataclass(frozen=True)
class DaemonKilled:
    """The daemon was killed with quotas set, and did not come back until they had run out."""

    quotas: dict[str, str]
    idle: str
    states: list[str]
    quota_after_start: str


@pytest.fixture(scope="session")
def daemon_killed(actor_stopped: ActorStopped, lent: Lent) -> DaemonKilled:
    machine, do = lent.machine, lent.machine.do
    override(machine, "asad", "Restart=no")
    kill(machine)
    quotas = {job: await_quota(machine, job, UNLIMITED) for job in (lent.host, lent.guest)}
    idle = do("cat", f"{group_of(machine, lent.guest)}/cpu.idle").strip()
    states = [field_of(machine, job, "%T") for job in (lent.host, lent.guest)]
    do("systemctl", "start", "asad", timeout_s=600.0)
    return DaemonKilled(quotas, idle, states, await_quota(machine, lent.guest, LEASED))


def test_leases_run_out_without_the_daemon(daemon_killed: DaemonKilled, lent: Lent) -> None:
    assert daemon_killed.quotas == {lent.host: UNLIMITED, lent.guest: UNLIMITED}
    assert daemon_killed.states == ["RUNNING", "RUNNING"]
    assert daemon_killed.idle == "1"


def test_a_new_daemon_takes_the_guest_up(daemon_killed: DaemonKilled) -> None:
    assert daemon_killed.quota_after_start == LEASED


@dataclass(frozen=True)
class DaemonStopped:
    """`systemctl stop asad` with a guest that runs."""

    machine: Machine
    quotas: dict[str, str]
    idle: str
    states: list[str]
    partition: str
    result: str


@pytest.fixture(scope="session")
def daemon_stopped(daemon_killed: DaemonKilled, lent: Lent) -> DaemonStopped:
    machine, do = lent.machine, lent.machine.do
    do("systemctl", "stop", "asad", timeout_s=300.0)
    quotas = {job: await_quota(machine, job, UNLIMITED) for job in (lent.host, lent.guest)}
    return DaemonStopped(
        machine,
        quotas,
        do("cat", f"{group_of(machine, lent.guest)}/cpu.idle").strip(),
        [field_of(machine, job, "%T") for job in (lent.host, lent.guest)],
        field_of(machine, lent.guest, "%P"),
        do("systemctl", "show", "--property=Result", "--value", "asad").strip(),
    )


def test_stopping_the_daemon_lifts_every_quota(daemon_stopped: DaemonStopped, lent: Lent) -> None:
    assert daemon_stopped.quotas == {lent.host: UNLIMITED, lent.guest: UNLIMITED}


def test_nobody_is_ended_and_the_guest_stays_idle(daemon_stopped: DaemonStopped) -> None:
    assert daemon_stopped.states == ["RUNNING", "RUNNING"]
    assert (daemon_stopped.partition, daemon_stopped.idle) == ("guest", "1")


def test_the_daemon_stops_in_order(daemon_stopped: DaemonStopped) -> None:
    assert daemon_stopped.result == "success"


# ------------------------------------------------------------------------------------ offers that have not been taken


@dataclass(frozen=True)
class Withdrawn:
    """Offers that could not be taken, since the guest partition was down, when the daemon went."""

    machine: Machine
    offered: dict[str, str]
    """How the daemon went → the job's partition, requested nodes and state before it."""
    afterwards: dict[str, str]
    """The same when it was gone."""


@pytest.fixture(scope="session")
def withdrawn(daemon_stopped: DaemonStopped, lent: Lent) -> Withdrawn:
    machine, do = lent.machine, lent.machine.do
    do("scancel", lent.guest)
    do("scontrol", "update", "PartitionName=guest", "State=DOWN")
    offered, afterwards = {}, {}
    for way in WAYS:
        do("systemctl", "start", "asad", timeout_s=600.0)
        job = submit(machine, BUSY, "--cpus-per-task=2", "--time=10", "--mem=200", "--nodelist=n1")
        await_field(machine, job, "%P", "guest", timeout_s=300.0)
        offered[way] = field_of(machine, job, "%P %n %T")
        if way == "stopped":
            do("systemctl", "stop", "asad", timeout_s=300.0)
        elif way == "killed":
            kill(machine)
        else:
            override(machine, "asad", "Restart=no\nExecStopPost=")
            kill(machine)
            override(machine, "asad-undo", f"ExecStart=\nExecStart={UNDO} --older-than 0")
            do("systemctl", "start", "asad-undo", timeout_s=300.0)
        afterwards[way] = field_of(machine, job, "%P %n %T")
        do("scancel", job)
    return Withdrawn(machine, offered, afterwards)


@pytest.mark.parametrize("way", WAYS)
def test_an_offer_is_taken_back_with_the_nodes_its_user_asked_for(withdrawn: Withdrawn, way: str) -> None:
    assert withdrawn.offered[way] == "guest n1 PENDING"
    assert withdrawn.afterwards[way] == "batch n1 PENDING"


# --------------------------------------------------------------------------------- what `oga` lets a class of jobs use

FILES = ("cpu.max", "memory.high")
MIB = 1 << 20
READS_MB = 250
"""What the reader has reserved of the node's 2000 MB; its host has 1700, and another class wants the rest."""


@dataclass(frozen=True)
class Looked:
    """What the kernel says of a job at one time."""

    files: dict[str, str]
    throttled: int
    """Periods in which its quota has stopped it so far."""
    reclaimed: int
    """How often it has come to its memory limit so far."""
    charged: int
    """Bytes that it has."""


def look_at(machine: Machine, group: str) -> Looked:
    """The files of a job's group, after seconds in which it had time to come to its limits."""
    machine.do("sleep", "8")
    limits, counts = limits_of(machine, group), {}
    for file in ("cpu.stat", "memory.events"):
        counts |= dict(line.split() for line in machine.do("cat", f"{group}/{file}").splitlines())
    charged = int(machine.do("cat", f"{group}/memory.current"))
    return Looked(limits, int(counts["nr_throttled"]), int(counts["high"]), charged)


def limits_of(machine: Machine, group: str) -> dict[str, str]:
    """What the files of a job's limits say."""
    return {file: machine.do("cat", f"{group}/{file}").strip() for file in FILES}


def await_limits(machine: Machine, group: str, slurms: dict[str, str]) -> None:
    """Wait until both are others than Slurm's."""
    for file, text in slurms.items():
        machine.await_("cat", f"{group}/{file}", shows=rf"^(?!{text}$)\d", timeout_s=300.0)


def await_lifted(machine: Machine, group: str, slurms: dict[str, str]) -> dict[str, str]:
    """Wait until both are Slurm's again; what they say then."""
    for file, text in slurms.items():
        machine.until("cat", f"{group}/{file}", shows=f"^{text}$", timeout_s=300.0)
    return limits_of(machine, group)


@dataclass(frozen=True)
class Divided:
    """A guest of one class, which computes and reads, while another class waits; and what became of its limits."""

    machine: Machine
    slurms: dict[str, str]
    """What the files said before asad wrote them."""
    before: Looked
    """With limits."""
    after: Looked
    """The same, seconds later."""
    story: list[dict[str, Any]]
    lifted: dict[str, dict[str, str]]
    """What ended the limits → what the files said then."""
    free: tuple[Looked, Looked]
    """Two looks without limits."""
    states: list[str]


@pytest.fixture(scope="session")
def divided(withdrawn: Withdrawn, lent: Lent) -> Divided:
    machine, do = withdrawn.machine, withdrawn.machine.do
    do("scancel", lent.host)
    do("scontrol", "update", "PartitionName=guest", "State=UP")
    override(machine, "asad", "Restart=no")
    do("install", "--mode=644", f"{ETC}/asad-oga.toml", CONFIG)
    do("systemctl", "start", "asad", timeout_s=900.0)
    host = submit(machine, LIGHT, "--cpus-per-task=2", "--time=240", "--mem=1700")
    await_field(machine, host, "%T", "RUNNING")
    reader = submit(
        machine, READER, "--cpus-per-task=2", "--time=40", f"--mem={READS_MB}", "--job-name=reader"
    )
    await_field(machine, reader, "%T", "RUNNING", timeout_s=300.0)
    group = group_of(machine, reader)
    machine.await_("cat", f"{group}/cpu.max", shows=r"^\d+ 100000$", timeout_s=300.0)
    slurms = {"cpu.max": UNLIMITED, "memory.high": do("cat", f"{group}/memory.high").strip()}
    for _ in range(3):  # too large beside it: their class always waits, and has its part of the node
        submit(machine, BUSY, "--cpus-per-task=2", "--time=40", "--mem=100", "--job-name=other")
    await_limits(machine, group, slurms)
    machine.await_("cat", f"{group}/memory.events", shows=r"(?m)^high [1-9]", timeout_s=300.0)
    before, after = look_at(machine, group), look_at(machine, group)
    story = machine.run("asactl", "explain", reader, "--json").json()["decisions"]
    lifted = {}
    kill(machine)
    lifted["the lease ran out"] = await_lifted(machine, group, slurms)
    free = look_at(machine, group), look_at(machine, group)
    do("systemctl", "start", "asad", timeout_s=900.0)
    await_limits(machine, group, slurms)
    do("systemctl", "stop", "asad-node", timeout_s=300.0)
    lifted["the actor stopped"] = limits_of(machine, group)
    do("systemctl", "start", "asad-node", timeout_s=600.0)
    await_limits(machine, group, slurms)
    do("systemctl", "stop", "asad", timeout_s=300.0)
    lifted["the daemon stopped"] = await_lifted(machine, group, slurms)
    states = [field_of(machine, job, "%T") for job in (host, reader)]
    return Divided(machine, slurms, before, after, story, lifted, free, states)


def test_what_a_class_may_use_is_written_to_the_kernel_and_reported(divided: Divided) -> None:
    quota, limit = divided.after.files["cpu.max"].split()[0], divided.after.files["memory.high"]
    assert 10_000 <= int(quota) <= 180_000, "of two cores, less the headroom of the host"
    assert int(limit) < READS_MB * MIB
    assert limit != divided.slurms["memory.high"]
    kinds = {seen["kind"]: seen for seen in divided.story}
    assert kinds["co-allocate"]["policy"] == "oga"
    assert kinds["co-allocate"]["detail"]["class"].split("/")[1] == "reader"
    assert kinds["set-memory"]["outcome"] == "done"
    assert kinds["set-memory"]["detail"]["classes_present"] == 2


def test_the_kernel_keeps_a_class_to_its_quota_and_its_memory(divided: Divided) -> None:
    before, after = divided.before, divided.after
    assert after.throttled > before.throttled
    assert after.reclaimed > before.reclaimed
    for seen in (before, after):
        assert seen.charged <= 1.05 * int(seen.files["memory.high"]), "what it reads is taken back"


@pytest.mark.parametrize("way", ["the lease ran out", "the actor stopped", "the daemon stopped"])
def test_what_a_class_may_use_is_lifted(divided: Divided, way: str) -> None:
    assert divided.lifted[way] == divided.slurms


def test_without_limits_it_computes_and_reads_as_it_likes(divided: Divided) -> None:
    first, second = divided.free
    assert second.throttled == first.throttled
    assert second.reclaimed == first.reclaimed
    assert second.charged > divided.after.charged
    assert divided.states == ["RUNNING", "RUNNING"], "and nobody was stopped"


# ------------------------------------------------------------------------------------- a guest on all cores of its node

WAYS_BACK = ("the actor stopped", "the daemon stopped")


@dataclass(frozen=True)
class Widened:
    """A guest of one core on a node that two light jobs of one core share."""

    wide: tuple[str, set[str]]
    """Cores of its group, and of its processes."""
    quota: str
    after_kill: tuple[str, set[str]]
    """When the actor had been killed, and another was at work."""
    back: dict[str, tuple[str, set[str]]]
    """What ended it → its cores then."""
    states: list[str]


def cores_of(machine: Machine, group: str) -> tuple[str, set[str]]:
    """Cores on which a job's group and its processes may run."""
    allowed = set()
    found = machine.do("find", group, "-name", "cgroup.procs", "-exec", "cat", "{}", "+").split()
    for process in found:
        status = machine.run("cat", f"/proc/{process}/status").out
        if "slurmstepd" not in status.partition("\n")[0]:
            allowed |= set(re.findall(r"(?m)^Cpus_allowed_list:\s*(\S+)", status))
    return machine.do("cat", f"{group}/cpuset.cpus.effective").strip(), allowed


def await_cores(machine: Machine, group: str, cores: str) -> tuple[str, set[str]]:
    """Wait until a job's group has these cores and its processes have them too; what they have a few looks later."""
    machine.await_("cat", f"{group}/cpuset.cpus.effective", shows=f"^{cores}$", timeout_s=300.0)
    # the actor moves processes one by one after the group, and is slow where the machine is
    deadline = time.monotonic() + 300.0
    while time.monotonic() < deadline:
        effective, allowed = cores_of(machine, group)
        if allowed == {effective}:
            break
        machine.do("sleep", "2")
    machine.do("sleep", "8")
    return cores_of(machine, group)


@pytest.fixture(scope="session")
def widened(divided: Divided) -> Widened:
    machine, do = divided.machine, divided.machine.do
    do("scancel", f"--user={USER}")
    machine.await_("sinfo", "--noheader", "--format=%T", shows="idle", timeout_s=300.0)
    do("systemctl", "start", "asad", timeout_s=900.0)
    hosts = [submit(machine, LIGHT, "--cpus-per-task=1", "--time=240", "--mem=600") for _ in range(2)]
    for host in hosts:
        await_field(machine, host, "%T", "RUNNING")
    guest = submit(machine, BUSY, "--cpus-per-task=1", "--time=40", "--mem=100")
    await_field(machine, guest, "%T", "RUNNING", timeout_s=300.0)
    group = group_of(machine, guest)
    wide = await_cores(machine, group, "0-1")
    quota = do("cat", f"{group}/cpu.max").strip()
    pid = main_pid(machine, "asad-node")
    do("kill", "-KILL", pid)
    show = ("systemctl", "show", "--property=MainPID", "--value", "asad-node")
    machine.await_(*show, shows=rf"^(?!{pid}$)[1-9]", timeout_s=300.0)
    machine.await_("systemctl", "is-active", "asad-node", shows="^active$", timeout_s=300.0)
    after_kill = await_cores(machine, group, "0-1")
    back = {}
    do("systemctl", "stop", "asad-node", timeout_s=300.0)
    back["the actor stopped"] = cores_of(machine, group)
    do("systemctl", "start", "asad-node", timeout_s=600.0)
    await_cores(machine, group, "0-1")
    do("systemctl", "stop", "asad", timeout_s=300.0)
    back["the daemon stopped"] = await_cores(machine, group, "[01]")
    states = [field_of(machine, job, "%T") for job in (*hosts, guest)]
    return Widened(wide, quota, after_kill, back, states)


def test_a_guest_runs_on_all_cores_of_its_node(widened: Widened) -> None:
    assert widened.wide == ("0-1", {"0-1"})
    assert re.fullmatch(r"\d+ 100000", widened.quota), "and never without a quota"


def test_a_guest_is_wide_again_after_the_actor_was_killed(widened: Widened) -> None:
    assert widened.after_kill == ("0-1", {"0-1"})


@pytest.mark.parametrize("way", WAYS_BACK)
def test_a_guest_is_brought_back_to_its_own_core(widened: Widened, way: str) -> None:
    cores, processes = widened.back[way]
    assert cores in ("0", "1") and processes == {cores}
    assert widened.states == ["RUNNING"] * 3


# ------------------------------------------------------------------------------------------------------------ the log


def test_the_policy_is_compiled_once(installed: Installed, withdrawn: Withdrawn) -> None:
    compilations = re.findall(r"compiled .* and static in ([\d.]+) s", withdrawn.machine.do(*LOG))
    assert len(compilations) > 1
    assert max(map(float, compilations)) < installed.compiled_s / 2, compilations


def test_nothing_of_ours_complains(divided: Divided, widened: Widened) -> None:
    both = divided.machine.do("journalctl", "--unit=asad", "--unit=asad-node", "--output=cat")
    listed = [line for line in both.splitlines() if line.startswith("ERROR") or "Traceback" in line]
    assert [line for line in listed if "the old configuration stays" not in line] == []
    assert "Warning" not in both, "Python's own"

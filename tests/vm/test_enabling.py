"""The how-tos "Enable asad" and "Take everything back", typed as they stand there on a booted Debian 12.

The machine has a Slurm that knows nothing of asad yet. Every command of the pages' sections is copied from the page and
run in a shell, by root or by a user as its prompt says; what a page only describes is done by this script, and named
where it is. Chapters as in test_vm.py.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from machine import Answer, Machine, MachineError
from steps import CONFIG, LIGHT, USER, await_field, field_of, group_of, start_slurm, submit

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs"))

from pages import Command, blocks, commands_under

pytestmark = pytest.mark.vm

ENABLE, BACK = "docs/how-to/enable.md", "docs/how-to/take-it-back.md"
SLURM_CONF = (Path(__file__).resolve().parent / "etc" / "slurm.conf").read_text(encoding="utf-8")
BEFORE = re.sub(r"(?m)^(JobSubmitPlugins|PartitionName).*\n", "", SLURM_CONF) + (
    "PartitionName=batch Nodes=n1 Default=YES MaxTime=2-00:00:00\n"
)
"""The site's own slurm.conf, of one partition, before asad comes."""
COMPUTES = "while :; do :; done"
NOTE = re.compile(r"\s{2,}\((.*)\)$")
"""What a page says beside a command: on which machine, or what to write into the editor that it opens."""
PIP = "[install]\nno-index = true\nfind-links = /mnt/payload/wheels\n"
"""In place of Python's package index, which is out of reach."""
EDITOR = """#!/bin/sh
exec sed --in-place "/^### Anything between here/a [Service]\\n$DROP_IN" "$1"
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SLOW_S = 1800.0
"""The machine is emulated: compiling the policies takes minutes there."""


def follow(machine: Machine, commands: list[Command], job: str = "") -> list[str]:
    """Type commands of a page in the source tree; what each printed. job: stands for the one the page asks about.

    Raises MachineError for one that fails; but the doctor may find what is left to do.
    """
    printed, drop_in = [], ""
    for command in commands:
        note = NOTE.search(command.text)
        text = NOTE.sub("", command.text)
        text = text.replace("4711", job) if job else text
        if text.startswith("systemctl edit"):  # asks for a terminal
            named = re.search(r"below it (\S+)", note[1] if note else "")
            drop_in = named[1] if named else drop_in
            text = f"script --quiet --return --command '{text}' /dev/null"
        line = f"cd /mnt/payload\nexport PATH={PATH} SYSTEMD_EDITOR=/root/editor DROP_IN='{drop_in}'\n{text}"
        who = () if command.root else ("runuser", "-u", USER, "--")
        answer = machine.run(*who, "bash", "-euc", line, stdin="y\n", timeout_s=SLOW_S)
        if answer.status != 0 and not (text == "asactl doctor" and answer.status == 1):
            raise MachineError(f"{command}\n{answer}")
        printed.append(answer.out + answer.err)
    return printed


def doctor(machine: Machine) -> Answer:
    """What it finds now."""
    return machine.run("asactl", "doctor", "--json", timeout_s=SLOW_S)


def failed(found: Answer) -> list[str]:
    """What has to be set right."""
    return [str(finding) for finding in found.json()["findings"] if finding["state"] == "fail"]


def files_of_asad(machine: Machine) -> set[str]:
    """Every file that has asad in its name, but for the payload, what runs, and what users have at home."""
    pruned = [
        word
        for path in ("/proc", "/sys", "/mnt", "/tmp", "/home")
        for word in ("-path", path, "-prune", "-o")
    ]
    return set(machine.do("find", "/", *pruned, "-name", "*asad*", "-print").split())


# -------------------------------------------------------------------------------------------------------- installed


@dataclass(frozen=True)
class Installed:
    """After steps 1 and 2."""

    machine: Machine
    files_before: set[str]
    checked: str
    before_slurm: str
    """What the doctor says before Slurm is prepared."""


@pytest.fixture(scope="session")
def installed(machine: Machine) -> Installed:
    start_slurm(machine, BEFORE)
    machine.do("tee", "/etc/pip.conf", stdin=PIP)
    machine.do("rm", "-f", "/usr/local/bin/asactl")
    files = files_of_asad(machine)
    # the wheel is built out here: the checkout is read-only there, and building wants Python's package index
    steps = [step for step in commands_under(ENABLE, "1. Install") if "pip wheel" not in step.text]
    follow(machine, steps)
    # "In /etc/asad/asad.toml set at least …": the partitions of the example are those of this cluster
    machine.do("sed", "--in-place", "s/^daemon = .*/daemon = 'n1:6820'/", CONFIG)
    (checked,) = follow(machine, commands_under(ENABLE, "2. Configure asad", deeper=False))
    return Installed(machine, files, checked, machine.run("asactl", "doctor", timeout_s=SLOW_S).out)


def test_the_configuration_is_right(installed: Installed) -> None:
    assert CONFIG in installed.checked


def test_the_doctor_prints_what_slurm_lacks(installed: Installed) -> None:
    assert "JobSubmitPlugins=lua" in installed.before_slurm
    assert re.search(r"PartitionName=guest .*Nodes=n1", installed.before_slurm)


# ------------------------------------------------------------------------------------------------- Slurm is prepared


@dataclass(frozen=True)
class Prepared:
    """After step 3."""

    machine: Machine
    found: Answer


@pytest.fixture(scope="session")
def prepared(installed: Installed) -> Prepared:
    machine = installed.machine
    asked, operator = commands_under(ENABLE, "3. Prepare Slurm")
    follow(machine, [asked])
    (lines,) = [block.text for block in blocks(ENABLE) if block.text.startswith("JobSubmitPlugins=lua")]
    conf = re.sub(r"(?m)^PartitionName.*\n", "", BEFORE) + lines.replace("n[1-16]", "n1")
    machine.do("tee", "/etc/slurm/slurm.conf", stdin=conf)
    machine.do("install", "-m", "0644", "/mnt/payload/profiles/slurm/job_submit.lua", "/etc/slurm/")
    machine.do("systemctl", "restart", "slurmctld")  # since the job_submit plugins changed
    machine.await_("sinfo", "--noheader", "--partition=guest", "--format=%T", shows="idle")
    follow(machine, [operator])
    return Prepared(machine, doctor(machine))


def test_the_doctor_finds_nothing_that_fails(prepared: Prepared) -> None:
    assert failed(prepared.found) == []
    assert prepared.found.status == 0


# ------------------------------------------------------------------------------------------ observe, advise, enforce


@dataclass(frozen=True)
class Lending:
    """After steps 4 to 6, each with jobs in the cluster."""

    machine: Machine
    host: str
    guest: str
    modes: list[str]
    waited: list[str]
    """The guest's partition and state while asad observed, and while it advised."""
    explained: str
    states: list[str]
    partition: str
    idle: str
    quota: str


@pytest.fixture(scope="session")
def lending(prepared: Prepared) -> Lending:
    machine = prepared.machine
    host = submit(machine, LIGHT, "--cpus-per-task=2", "--time=1200", "--mem=200")
    await_field(machine, host, "%T", "RUNNING")
    guest = submit(machine, COMPUTES, "--cpus-per-task=1", "--time=30", "--mem=200")
    modes, waited = [], []

    def mode() -> str:
        asked = ("asactl", "status", "--json")
        return str(machine.await_(*asked, shows='"number": *[1-9]', timeout_s=SLOW_S).json()["mode"])

    follow(machine, commands_under(ENABLE, "4. Observe"))
    machine.await_("asactl", "nodes", "--json", shows='"n1"', timeout_s=SLOW_S)
    modes.append(mode())
    waited.append(field_of(machine, guest, "%P %T"))
    advise, *asked = commands_under(ENABLE, "5. Advise")
    follow(machine, [advise])
    machine.await_("asactl", "explain", guest, "--json", shows="co-allocate", timeout_s=SLOW_S)
    *_, explained = follow(machine, asked, job=guest)
    modes.append(mode())
    waited.append(field_of(machine, guest, "%P %T"))
    follow(machine, commands_under(ENABLE, "6. Enforce"))
    await_field(machine, guest, "%T", "RUNNING", timeout_s=SLOW_S)
    modes.append(mode())
    group = group_of(machine, guest)
    machine.await_("cat", f"{group}/cpu.max", shows=r"^\d+ 100000$", timeout_s=300.0)
    return Lending(
        machine,
        host,
        guest,
        modes,
        waited,
        explained,
        [field_of(machine, job, "%T") for job in (host, guest)],
        field_of(machine, guest, "%P"),
        machine.do("cat", f"{group}/cpu.idle").strip(),
        machine.do("cat", f"{group}/cpu.max").strip(),
    )


def test_nothing_is_lent_before_enforce(lending: Lending) -> None:
    assert lending.modes == ["observe", "advise", "enforce"]
    assert lending.waited == ["batch PENDING", "batch PENDING"]
    assert lending.guest in lending.explained


def test_the_cluster_lends(lending: Lending) -> None:
    assert lending.states == ["RUNNING", "RUNNING"]
    assert (lending.partition, lending.idle) == ("guest", "1")
    assert re.fullmatch(r"\d+ 100000", lending.quota)


# ------------------------------------------------------------------------------------------- another state folder


@dataclass(frozen=True)
class Moved:
    """After the section on another state folder."""

    machine: Machine
    found: Answer
    files: str


@pytest.fixture(scope="session")
def moved(lending: Lending) -> Moved:
    machine = lending.machine
    machine.do("systemctl", "stop", "asad", timeout_s=SLOW_S)
    machine.do("tee", "/root/editor", stdin=EDITOR)
    machine.do("chmod", "0755", "/root/editor")
    follow(machine, commands_under(ENABLE, "Another state folder"))
    # "`asactl mode` holds until the daemon starts again; write it into asad.toml to keep it"
    machine.do("sed", "--in-place", "s/^mode = .*/mode = 'enforce'/", CONFIG)
    machine.do("sed", "--in-place", "s|^# state_dir = .*|state_dir = '/srv/asad'|", CONFIG)
    machine.do("systemctl", "start", "asad", timeout_s=SLOW_S)
    machine.await_("asactl", "status", "--json", shows='"number": *[1-9]', timeout_s=SLOW_S)
    return Moved(machine, doctor(machine), machine.do("ls", "/srv/asad"))


def test_the_daemon_uses_another_folder_and_the_doctor_agrees(moved: Moved) -> None:
    assert "asad.db" in moved.files
    assert failed(moved.found) == []


# ------------------------------------------------------------------------------------------------------- taken back


@dataclass(frozen=True)
class TakenBack:
    """What each step of "Take everything back" has left."""

    machine: Machine
    quotas: dict[str, str]
    states: list[str]
    left_on_the_node: str
    files: set[str]
    users: Answer
    slurms: str
    job_after: str


@pytest.fixture(scope="session")
def taken_back(moved: Moved, lending: Lending, installed: Installed) -> TakenBack:
    machine, do = moved.machine, moved.machine.do
    group = group_of(machine, lending.guest)
    machine.await_("cat", f"{group}/cpu.max", shows=r"^\d+ 100000$", timeout_s=SLOW_S)
    quotas = {}
    for step in ("Lend nothing new", "Release everything now", "Stop the daemon"):
        follow(machine, commands_under(BACK, step))
        if step != "Lend nothing new":
            machine.until("cat", f"{group}/cpu.max", shows="^max 100000$", timeout_s=300.0)
            quotas[step] = do("cat", f"{group}/cpu.max").strip()
    *_, left = follow(machine, commands_under(BACK, "Stop the node actors"))
    states = [field_of(machine, job, "%T") for job in (lending.host, lending.guest)]
    # "remove the guest partitions once `squeue -p guest` shows no job"
    do("scancel", lending.guest)
    machine.await_("squeue", "--noheader", "--partition=guest", shows=r"\A\Z")
    do("tee", "/etc/slurm/slurm.conf", stdin=BEFORE)
    do("systemctl", "restart", "slurmctld")
    machine.await_("sinfo", "--noheader", "--format=%R", shows=r"\Abatch\n\Z")
    follow(machine, commands_under(BACK, "Undo what you set in Slurm"))
    follow(machine, commands_under(BACK, "Remove the files"))
    # the state folder and the drop-ins were the administrator's own
    do(
        "rm",
        "-r",
        "/srv/asad",
        "/etc/systemd/system/asad.service.d",
        "/etc/systemd/system/asad-undo.service.d",
    )
    do("systemctl", "daemon-reload")
    do("scancel", lending.host)
    after = submit(machine, "true", "--cpus-per-task=2", "--time=5", "--mem=200")
    await_field(machine, after, "%T", "COMPLETED")
    return TakenBack(
        machine,
        quotas,
        states,
        left,
        files_of_asad(machine) - installed.files_before,
        machine.run("grep", "asad", "/etc/passwd", "/etc/group"),
        do("sacctmgr", "--noheader", "show", "user", "format=user"),
        field_of(machine, after, "%T"),
    )


def test_quotas_are_lifted_and_nobody_is_ended(taken_back: TakenBack) -> None:
    assert set(taken_back.quotas.values()) == {"max 100000"}
    assert taken_back.states == ["RUNNING", "RUNNING"]


def test_the_page_finds_the_guest_that_is_left_in_the_idle_class(
    taken_back: TakenBack, lending: Lending
) -> None:
    assert re.findall(r"job_(\d+)/cpu\.idle", taken_back.left_on_the_node) == [lending.guest]


def test_nothing_of_asad_is_left_and_slurm_goes_on(taken_back: TakenBack) -> None:
    assert taken_back.files == set()
    assert taken_back.users.out == ""
    assert "asad" not in taken_back.slurms
    assert taken_back.job_after == "COMPLETED"

"""The Debian packages of build/deb in a booted Debian 12: installed, upgraded, removed and purged beside a real Slurm.

Chapters as in test_vm.py: each builds on the one before, and its tests say what should have been seen. The machine has
no network: what the packages depend on is in Debian's base system.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from machine import Answer, Machine
from steps import (
    BUSY,
    CONFIG,
    ETC,
    LEASED,
    LIGHT,
    UNLIMITED,
    Slurm,
    await_field,
    await_quota,
    field_of,
    group_of,
    kill,
    main_pid,
    override,
    submit,
)

from debian import ROOT, make_disk

pytestmark = pytest.mark.vm

HERE, BUILT = Path(__file__).resolve().parent, ROOT / "build" / "deb"
EARLIER = os.environ.get("ASAD_DEB_BEFORE")
"""Folder with the packages of an earlier commit, which are installed first."""
BEFORE = "0.0.1"
"""Version of the build before where no folder is given: it is this build under another name."""
UNITS = ("asad", "asad-node", "asad-undo.timer")
APT = ("apt-get", "install", "--yes", "--quiet")
REMOVE = ("apt-get", "remove", "--yes", "--quiet")
PURGE = ("apt-get", "purge", "--yes", "--quiet")
SLOW_S = 1800.0
"""The machine is emulated: compiling the policy takes minutes there."""


def renamed(package: Path, folder: Path) -> None:
    """The same package of version BEFORE, not compressed."""
    tree = folder / package.stem
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN/control"
    version = package.name.split("_")[1]
    text = control.read_text(encoding="utf-8")
    assert f"Version: {version}\n" in text
    control.write_text(text.replace(version, BEFORE), encoding="utf-8")
    name = package.name.replace(version, BEFORE)
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, folder / name], check=True)
    shutil.rmtree(tree)


@pytest.fixture(scope="session")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk that brings both builds into the machine, and the probe."""
    packages = sorted(BUILT.glob("*.deb"))
    assert {package.name.split("_")[0] for package in packages} >= {"asad", "asad-node"}, (
        "run `make deb` first"
    )
    folder = tmp_path_factory.mktemp("payload")
    shutil.copy(HERE / "probe.py", folder)
    shutil.copytree(HERE / "etc", folder / "etc")
    shutil.copytree(ROOT / "profiles", folder / "profiles", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("before", "now"):
        (folder / name).mkdir()
    for package in packages:
        shutil.copy(package, folder / "now")
        if not EARLIER and package.name.startswith(("asad_", "asad-node_")):
            renamed(package, folder / "before")
    for package in Path(EARLIER).glob("asad*.deb") if EARLIER else ():
        shutil.copy(package, folder / "before")
    disk = folder.with_suffix(".ext4")
    make_disk(folder, disk, "2G")
    shutil.rmtree(folder)
    return disk


def packages_of(machine: Machine, build: str, *names: str) -> list[str]:
    """The files of one build's packages."""
    there = machine.do("find", f"/mnt/payload/{build}", "-name", "*.deb").split()
    return [path for path in there if path.split("/")[-1].split("_")[0] in names]


def list_files(machine: Machine, moment: str) -> None:
    """Note every file there is in /tmp/MOMENT, but for what runs, and what others write while we look."""
    pruned = ("/proc", "/sys", "/run", "/tmp", "/mnt", "/dev", "/var/log", "/var/lib/mysql", "/var/lib/slurm")
    others = (
        "/var/cache",
        "/var/lib/apt",
        "/var/lib/dpkg",
        "/var/lib/systemd/timers",
        "/var/spool",
        "/var/tmp",
    )
    words = [word for path in (*pruned, *others) for word in ("-path", path, "-prune", "-o")]
    machine.do("find", "/", *words, "-fprint", f"/tmp/{moment}")
    named = machine.do("find", "/var", "/run", "-name", "*asad*", "-not", "-path", "/var/lib/dpkg/*")
    machine.do("tee", "--append", f"/tmp/{moment}", stdin=named)


def versions(machine: Machine) -> set[str]:
    """Of the two packages as installed."""
    query = ("dpkg-query", "--show", "--showformat", "${Version}\n", "asad", "asad-node")
    return set(machine.do(*query).split())


# -------------------------------------------------------------------------------------------------------- installed


@dataclass(frozen=True)
class Installed:
    """The build before, installed and not touched yet, then configured and started."""

    machine: Machine
    first_states: list[str]
    checked: Answer
    mode: str
    active: list[str]


@pytest.fixture(scope="session")
def installed(slurm: Slurm) -> Installed:
    machine, do = slurm.machine, slurm.machine.do
    list_files(machine, "before")
    do(*APT, *packages_of(machine, "before", "asad", "asad-node"), timeout_s=SLOW_S)
    states = [
        machine.run("systemctl", question, unit).out.strip()
        for unit in UNITS
        for question in ("is-active", "is-enabled")
    ]
    checked = machine.run("/usr/bin/asad", "--check", timeout_s=SLOW_S)
    mode = do("grep", "^mode", CONFIG).strip()
    do("install", "--mode=644", f"{ETC}/asad.toml", CONFIG)
    do("sacctmgr", "--immediate", "add", "user", "asad", "account=lab", "adminlevel=Operator")
    do("systemctl", "enable", "--now", *UNITS, timeout_s=SLOW_S)
    return Installed(machine, states, checked, mode, do("systemctl", "is-active", *UNITS).split())


def test_nothing_starts_by_itself(installed: Installed) -> None:
    assert installed.first_states == ["inactive", "disabled"] * len(UNITS)


def test_the_configuration_as_installed_is_right_and_observes(installed: Installed) -> None:
    assert installed.checked.status == 0, installed.checked
    assert installed.mode == 'mode = "observe"'


def test_an_operator_starts_it(installed: Installed) -> None:
    assert installed.active == ["active"] * len(UNITS)


# --------------------------------------------------------------------------------------------------------- upgraded


@dataclass(frozen=True)
class Upgraded:
    """What a guest and the store went through when the packages were upgraded while it ran."""

    machine: Machine
    host: str
    guest: str
    versions: tuple[set[str], set[str]]
    """Before and after."""
    restarted: list[bool]
    active: list[str]
    story: tuple[list[dict[str, object]], list[dict[str, object]]]
    """What `asactl explain GUEST` had before, and has afterwards."""
    quotas: list[str]
    states: list[str]
    kept: bool
    """Is the operator's configuration still there?"""


@pytest.fixture(scope="session")
def upgraded(installed: Installed) -> Upgraded:
    machine, do = installed.machine, installed.machine.do
    host = submit(machine, LIGHT, "--cpus-per-task=2", "--time=600", "--mem=200")
    await_field(machine, host, "%T", "RUNNING")
    guest = submit(machine, BUSY, "--cpus-per-task=2", "--time=300", "--mem=200")
    await_field(machine, guest, "%T", "RUNNING", timeout_s=SLOW_S)
    quotas = [await_quota(machine, guest, LEASED)]
    explain = ("asactl", "explain", guest, "--json")
    story = machine.await_(*explain, shows="co-allocate", timeout_s=SLOW_S).json()["decisions"]
    pids = [main_pid(machine, unit) for unit in UNITS[:2]]
    earlier = versions(machine)
    do(*APT, *packages_of(machine, "now", "asad", "asad-node"), timeout_s=SLOW_S)
    active = do("systemctl", "is-active", *UNITS).split()
    quotas.append(await_quota(machine, guest, LEASED))
    return Upgraded(
        machine,
        host,
        guest,
        (earlier, versions(machine)),
        [main_pid(machine, unit) != pid for unit, pid in zip(UNITS[:2], pids, strict=True)],
        active,
        (story, machine.await_(*explain, shows="co-allocate", timeout_s=SLOW_S).json()["decisions"]),
        quotas,
        [field_of(machine, job, "%T") for job in (host, guest)],
        machine.run("cmp", f"{ETC}/asad.toml", CONFIG).status == 0,
    )


def test_an_upgrade_restarts_what_runs(upgraded: Upgraded) -> None:
    before, after = upgraded.versions
    assert (len(before), len(after)) == (1, 1) and before != after
    assert upgraded.restarted == [True, True]
    assert upgraded.active == ["active"] * len(UNITS)


def test_an_upgrade_keeps_store_and_configuration(upgraded: Upgraded) -> None:
    before, after = upgraded.story
    assert [seen["kind"] for seen in before] == [seen["kind"] for seen in after][: len(before)]
    assert upgraded.kept


def test_an_upgrade_ends_no_job_and_the_guest_has_its_quota_again(upgraded: Upgraded) -> None:
    assert upgraded.states == ["RUNNING", "RUNNING"]
    assert upgraded.quotas == [LEASED, LEASED]


# ---------------------------------------------------------------------------------------------------------- removed


@dataclass(frozen=True)
class Removed:
    """Removed while actor and daemon lay dead, the one with a quota held, the other with an offer open."""

    machine: Machine
    left_by_the_actor: str
    quotas: list[str]
    offered: str
    afterwards: str
    states: list[str]
    active: list[str]
    kept: Answer


@pytest.fixture(scope="session")
def removed(upgraded: Upgraded) -> Removed:
    machine, do = upgraded.machine, upgraded.machine.do
    groups = [group_of(machine, job) for job in (upgraded.host, upgraded.guest)]
    override(machine, "asad-node", "Restart=no")
    do("kill", "-KILL", main_pid(machine, "asad-node"))
    state = ("systemctl", "show", "--property=ActiveState", "--value", "asad-node")
    machine.await_(*state, shows="failed", timeout_s=300.0)
    left = do("cat", f"{groups[1]}/cpu.max").strip()
    do(*REMOVE, "asad-node", timeout_s=SLOW_S)
    quotas = [do("cat", f"{group}/cpu.max").strip() for group in groups]
    states = [field_of(machine, job, "%T") for job in (upgraded.host, upgraded.guest)]
    do(*APT, *packages_of(machine, "now", "asad-node"), timeout_s=SLOW_S)
    do("systemctl", "start", "asad-node", timeout_s=SLOW_S)
    do("scancel", upgraded.guest)
    do("scontrol", "update", "PartitionName=guest", "State=DOWN")
    job = submit(machine, BUSY, "--cpus-per-task=2", "--time=10", "--mem=200", "--nodelist=n1")
    await_field(machine, job, "%P", "guest", timeout_s=SLOW_S)
    offered = field_of(machine, job, "%P %n %T")
    override(machine, "asad", "Restart=no\nExecStopPost=")
    kill(machine)
    do(*REMOVE, "asad", timeout_s=SLOW_S)
    return Removed(
        machine,
        left,
        quotas,
        offered,
        field_of(machine, job, "%P %n %T"),
        states,
        [machine.run("systemctl", "is-active", unit).out.strip() for unit in UNITS],
        machine.run("ls", CONFIG, "/var/lib/asad/asad.db"),
    )


def test_removal_lifts_the_quota_of_a_killed_actor(removed: Removed) -> None:
    assert removed.left_by_the_actor == LEASED
    assert removed.quotas == [UNLIMITED, UNLIMITED]
    assert removed.states == ["RUNNING", "RUNNING"]


def test_removal_takes_back_the_offer_of_a_killed_daemon(removed: Removed) -> None:
    assert removed.offered == "guest n1 PENDING"
    assert removed.afterwards == "batch n1 PENDING"


def test_removal_keeps_configuration_and_store_and_runs_nothing(removed: Removed) -> None:
    assert "active" not in removed.active
    assert removed.kept.status == 0, removed.kept


# ----------------------------------------------------------------------------------------------------------- purged


@dataclass(frozen=True)
class Purged:
    """What a purge has left."""

    machine: Machine
    more: str
    """Files that were not there before asad came."""
    users: Answer
    units: str
    limits: set[str]
    """Quotas of all jobs that still run."""


@pytest.fixture(scope="session")
def purged(removed: Removed) -> Purged:
    machine, do = removed.machine, removed.machine.do
    do(
        "rm", "-r", "/run/systemd/system/asad.service.d", "/run/systemd/system/asad-node.service.d"
    )  # ours, above
    do(*PURGE, "asad", "asad-node", timeout_s=SLOW_S)
    found = do("find", "/sys/fs/cgroup/system.slice", "-path", "*job_*", "-name", "cpu.max").split()
    list_files(machine, "after")
    return Purged(
        machine,
        machine.run("grep", "-vxF", "-f", "/tmp/before", "/tmp/after").out,
        machine.run("grep", "asad", "/etc/passwd", "/etc/group"),
        machine.run("systemctl", "list-unit-files", "--no-legend", "asad*", "run-asad*").out,
        {do("cat", path).strip() for path in found},
    )


def test_a_purge_leaves_nothing(purged: Purged) -> None:
    assert purged.more == ""
    assert purged.users.out == ""
    assert purged.units == ""
    assert purged.limits == {UNLIMITED}


# ----------------------------------------------------------------------------------------------- the first report


def test_two_commands_bring_a_first_report(purged: Purged) -> None:
    """How long it takes here says nothing of a real machine; build/vm/steps.txt has it."""
    machine = purged.machine
    machine.do(*APT, *packages_of(machine, "now", "asad"), timeout_s=SLOW_S)
    sample = "/usr/share/doc/asad/examples/lab-cluster.sacct"
    shown = machine.do(
        *("asactl", "replay", sample, "--nodes", "2", "--cores", "1", "--report", "/tmp/report.html"),
        timeout_s=SLOW_S,
    )
    assert "/tmp/report.html" in shown
    assert "<html" in machine.do("head", "-c", "4000", "/tmp/report.html")

"""asad on Debian 12 with systemd and cgroup v2, beside Slurm as Debian packs it, from installation to stop.

One boot, told in chapters: each chapter is a fixture that builds on the one before, does something to the machine, and
hands on what it saw; the tests below it say what should have been seen. So any test may be run alone, and a chapter
that fails is told by the tests that need it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from machine import Answer, Machine

pytestmark = pytest.mark.vm

USER = "alice"
ETC = "/mnt/payload/etc"


def submit(machine: Machine, script: str, *options: str) -> str:
    """Submit a job as an ordinary user; its id."""
    sbatch = ("runuser", "-u", USER, "--", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null")
    return machine.do(*sbatch, *options, f"--wrap={script}").strip()


def field_of(machine: Machine, job: str, what: str) -> str:
    """One field of a job, in squeue's words (%T state, %P partition, %n requested nodes)."""
    return machine.do("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={what}").strip()


def await_field(machine: Machine, job: str, what: str, value: str, timeout_s: float = 60.0) -> Answer:
    """Wait until squeue says so."""
    squeue = ("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={what}")
    return machine.await_(*squeue, shows=f"^{value}$", timeout_s=timeout_s)


# ------------------------------------------------------------------------------------------------------- the machine


def test_the_machine_runs_systemd(machine: Machine) -> None:
    assert machine.do("systemctl", "is-system-running", "--wait").strip() == "running"
    assert machine.do("ps", "-o", "comm=", "-p", "1").strip() == "systemd"


def test_cgroups_are_version_2_with_cpu(machine: Machine) -> None:
    assert machine.do("stat", "--file-system", "--format=%T", "/sys/fs/cgroup").strip() == "cgroup2fs"
    assert {"cpu", "cpuset", "memory"} <= set(machine.do("cat", "/sys/fs/cgroup/cgroup.controllers").split())


# ------------------------------------------------------------------------------------------------------------- Slurm


@dataclass(frozen=True)
class Slurm:
    """Debian's munge, MariaDB, slurmdbd, slurmctld and slurmd, all up."""

    machine: Machine


@pytest.fixture(scope="session")
def slurm(machine: Machine) -> Slurm:
    do = machine.do
    do("useradd", "--create-home", USER)
    do("install", "--mode=644", f"{ETC}/slurm.conf", f"{ETC}/cgroup.conf", "/etc/slurm/")
    do("install", "--mode=600", "--owner=slurm", "--group=slurm", f"{ETC}/slurmdbd.conf", "/etc/slurm/")
    do("systemctl", "start", "munge", "mariadb")
    do(
        "mariadb",
        "--execute=CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost; "
        "GRANT ALL ON slurm_acct_db.* TO slurm@localhost",
    )
    do("systemctl", "restart", "slurmdbd")
    machine.await_("sacctmgr", "--noheader", "show", "cluster", timeout_s=120.0)
    do("sacctmgr", "--immediate", "add", "cluster", "vm")
    do("sacctmgr", "--immediate", "add", "account", "lab")
    do("sacctmgr", "--immediate", "add", "user", USER, "account=lab")
    do("systemctl", "start", "slurmctld", "slurmd")
    machine.await_("sinfo", "--noheader", "--format=%T", shows="idle", timeout_s=120.0)
    return Slurm(machine)


def test_debians_own_units_run_slurm(slurm: Slurm) -> None:
    units = ("munge", "slurmdbd", "slurmctld", "slurmd")
    assert slurm.machine.do("systemctl", "is-active", *units).split() == ["active"] * len(units)


def test_there_is_a_batch_and_a_guest_partition(slurm: Slurm) -> None:
    assert set(slurm.machine.do("sinfo", "--noheader", "--format=%R").split()) == {"batch", "guest"}

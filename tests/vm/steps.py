"""What the tests in the machine do again and again: Slurm and its jobs, cgroups, quotas, units of systemd."""

from __future__ import annotations

from dataclasses import dataclass

from machine import Answer, Machine

USER = "alice"
ETC = "/mnt/payload/etc"
CONFIG = "/etc/asad/asad.toml"
LIGHT = "sleep 7200"  # a loop would wait for a busy emulated processor, and its guest give way
BUSY = "while :; do :; done & while :; do :; done"
LEASED, UNLIMITED = "100000 100000", "max 100000"
"""`cpu.max` of two cores at a share of one half: one core, in periods of 100 ms."""


@dataclass(frozen=True)
class Slurm:
    """Debian's munge, MariaDB, slurmdbd, slurmctld and slurmd, all up."""

    machine: Machine


def start_slurm(machine: Machine, slurm_conf: str) -> Slurm:
    """Set up Slurm as Debian packs it, by this `slurm.conf`, with an account and a user in its accounting."""
    do = machine.do
    do("useradd", "--create-home", USER)
    do("tee", "/etc/slurm/slurm.conf", stdin=slurm_conf)
    do("install", "--mode=644", f"{ETC}/cgroup.conf", "/etc/slurm/")
    do("install", "--mode=600", "--owner=slurm", "--group=slurm", f"{ETC}/slurmdbd.conf", "/etc/slurm/")
    do("systemctl", "start", "munge", "mariadb")
    do(
        "mariadb",
        "--execute=CREATE DATABASE slurm_acct_db; CREATE USER slurm@localhost; "
        "GRANT ALL ON slurm_acct_db.* TO slurm@localhost",
    )
    do("systemctl", "restart", "slurmdbd")
    machine.await_("sacctmgr", "--noheader", "show", "cluster", timeout_s=300.0)
    do("sacctmgr", "--immediate", "add", "cluster", "vm")
    do("sacctmgr", "--immediate", "add", "account", "lab")
    do("sacctmgr", "--immediate", "add", "user", USER, "account=lab")
    do("systemctl", "start", "slurmctld", "slurmd")
    machine.await_("sinfo", "--noheader", "--format=%T", shows="idle", timeout_s=300.0)
    return Slurm(machine)


def submit(machine: Machine, script: str, *options: str) -> str:
    """Submit a job as an ordinary user; its id."""
    sbatch = ("runuser", "-u", USER, "--", "sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null")
    return machine.do(*sbatch, *options, f"--wrap={script}").strip()


def field_of(machine: Machine, job: str, what: str) -> str:
    """One field of a job, in squeue's words (%T state, %P partition, %n requested nodes)."""
    return machine.do("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={what}").strip()


def await_field(machine: Machine, job: str, what: str, value: str, timeout_s: float = 300.0) -> Answer:
    """Wait until squeue says so."""
    squeue = ("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={what}")
    return machine.await_(*squeue, shows=f"^{value}$", timeout_s=timeout_s)


def group_of(machine: Machine, job: str) -> str:
    """The cgroup of a job, found by its name."""
    find = ("find", "/sys/fs/cgroup/system.slice", "-type", "d", "-name", f"job_{job}")
    return machine.await_(*find, shows=f"job_{job}").out.strip()


def look(machine: Machine, group: str) -> tuple[float, float]:
    """CPU that a cgroup has used until now, and when that was, both in seconds; the look takes four."""
    machine.do("sleep", "4")
    stat = dict(line.split() for line in machine.do("cat", f"{group}/cpu.stat").splitlines())
    return int(stat["usage_usec"]) / 1e6, float(machine.do("cat", "/proc/uptime").split()[0])


def await_quota(machine: Machine, job: str, quota: str) -> str:
    """Wait until the quota of a job is that; what it is then."""
    path = f"{group_of(machine, job)}/cpu.max"
    machine.until("cat", path, shows=f"^{quota}$", timeout_s=300.0)
    return machine.do("cat", path).strip()


def main_pid(machine: Machine, unit: str) -> str:
    """The process that systemd watches."""
    return machine.do("systemctl", "show", "--property=MainPID", "--value", unit).strip()


def since_boot_s(machine: Machine, moment: str) -> float:
    """When the daemon's unit came to a moment of systemd's, in seconds."""
    shown = ("systemctl", "show", f"--property={moment}TimestampMonotonic", "--value", "asad")
    return int(machine.do(*shown)) / 1e6


def mode(machine: Machine) -> str:
    """What the daemon says that it does."""
    return str(machine.run("asactl", "status", "--json").json()["mode"])


def override(machine: Machine, unit: str, lines: str) -> None:
    """Lines of `[Service]` that hold until the machine ends, on top of the unit as it is shipped."""
    folder = f"/run/systemd/system/{unit}.service.d"
    machine.do("install", "-d", folder)
    machine.do("tee", f"{folder}/test.conf", stdin=f"[Service]\n{lines}\n")
    machine.do("systemctl", "daemon-reload")


def kill(machine: Machine) -> None:
    """Kill the daemon, which systemd is not to bring back, and wait until its last rites are done."""
    machine.do("kill", "-KILL", main_pid(machine, "asad"))
    show = ("systemctl", "show", "--property=ActiveState", "--value", "asad")
    machine.await_(*show, shows="failed", timeout_s=300.0)

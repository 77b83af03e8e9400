"""A real Slurm on this machine: munge, MariaDB, slurmdbd, slurmctld and a slurmd for every node, started by hand.

Everything lies in one folder and listens on ports of its own, so that several clusters can run beside each other and
beside the machine's own Slurm. Two nodes are two processor cores: each slurmd runs under `taskset`, and the cpusets
of its jobs follow. Needs root (slurmd does), Debian's packages of Slurm (`make system-packages`) and writable cgroups.
"""

# Programs are named as PATH has them (Debian keeps daemons in /usr/sbin), and nothing here comes from others.
# ruff: noqa: S603, S607

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pwd
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from lab import LabError

PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "squeue": "slurm-client",
    "sinfo": "slurm-client",
    "scontrol": "slurm-client",
    "sacct": "slurm-client",
    "sacctmgr": "slurm-client",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "taskset": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
"""What must be installed, and the Debian package that brings it."""
ACCOUNTING_PROGRAMS = frozenset({"slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db"})
PLUGINS = "slurm-wlm-basic-plugins"

CGROUP = Path("/sys/fs/cgroup")
USERS = ("nobody", "games")
"""Ordinary accounts that every Debian has; jobs of the lab belong to them (or to root)."""
ACCOUNT = "lab"
PORTS = range(20_000, 32_000)
"""Below the ports that Linux hands out by itself, so that no outgoing connection takes one meanwhile."""
JOB_IDS_PER_CLUSTER = 1000
PREFIX = "lab"
BACKUP = "slurmctld-backup"
"""Name of the second controller among the daemons of a cluster."""
TAKEOVER_S = 5
"""Seconds for which a first controller may be silent before the second takes its place."""
START_S = 300.0
"""A daemon that ends is noticed at once; one that takes longer than this hangs, however busy the machine."""
_clusters = count()

GONE = frozenset(
    ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
)
"""States in which a job has ended for good."""


def why_not(accounting: bool = True) -> str:
    """Why no real Slurm can be started here, in words that name the remedy; empty if it can."""
    if os.geteuid() != 0:
        return "only root can start a real Slurm (slurmd makes cgroups and changes users)"
    missing = {
        package
        for program, package in PROGRAMS.items()
        if shutil.which(program, path=search_path()) is None
        and (accounting or program not in ACCOUNTING_PROGRAMS)
    }
    if not any(Path("/usr/lib").glob("*/slurm-wlm/task_cgroup.so")):
        missing.add(PLUGINS)
    if missing:
        return f"no real Slurm: install {' '.join(sorted(missing))} (make system-packages)"
    if not unified() and not os.access(CGROUP / "freezer", os.W_OK):
        return f"no real Slurm: {CGROUP}/freezer cannot be written; run where root may make cgroups"
    if unified() and not os.access(CGROUP / "cgroup.procs", os.W_OK):
        return f"no real Slurm: {CGROUP} cannot be written; run where root may make cgroups"
    return ""


def unified() -> bool:
    """Is this a machine with cgroup v2 alone?"""
    return (CGROUP / "cgroup.controllers").exists()


def search_path() -> str:
    """PATH with the folders of daemons, which an ordinary environment may lack."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


@dataclass(slots=True)
class Daemon:
    """One process of the cluster."""

    name: str
    argv: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class RealSlurm:
    """A context manager: on entry the cluster is up and idle, on exit nothing of it is left.

    folder       where everything lies; must be reachable by ordinary users, and is kept. Without one, a folder under
                 /tmp that is removed at exit.
    nodes, cpus  so many nodes with so many CPUs each; with `pin`, node K has the K-th share of this machine's cores
                 for itself (at least nodes x cpus cores are needed).
    memory_mb    memory of each node as Slurm counts it.
    accounting   with slurmdbd and MariaDB, so that sacct works.
    extra_conf   more lines of slurm.conf; they come last, so they win.
    backup       with a second controller (BACKUP), which takes over when the first (`slurmctld`) is silent.

    `env` is the environment in which Slurm's commands speak to this cluster; `node_names` are its nodes.
    Partitions: `batch` (default) and `guest`, as asad's documentation wants them, unless `partitions` has others.
    `partitions`, `node_words` and `gres_conf` are set before it is entered, as they need the names of nodes.
    Raises LabError if it cannot be started; the message holds the end of the log that says why.
    Start it in the main thread: Linux ends the daemons when the thread that started them ends, which is what cleans
    up after a killed test.
    """

    def __init__(
        self,
        folder: Path | None = None,
        nodes: int = 2,
        cpus: int = 1,
        memory_mb: int = 4000,
        accounting: bool = True,
        extra_conf: str = "",
        pin: bool = True,
        backup: bool = False,
    ) -> None:
        self.nodes, self.cpus, self.memory_mb = nodes, cpus, memory_mb
        self.accounting, self.extra_conf, self.pin, self.backup = accounting, extra_conf, pin, backup
        # the owner is in every name: leftovers of a dead owner can be distinguished from another's running cluster
        self.name = f"{PREFIX}{os.getpid()}{chr(ord('a') + next(_clusters) % 26)}"
        self.keep = folder is not None
        self.folder = folder if folder is not None else Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.node_names = tuple(f"{self.name}n{number}" for number in range(1, nodes + 1))
        host = socket.gethostname()
        self.heads = {"slurmctld": host, **({BACKUP: f"{self.name}-backup"} if backup else {})}
        self.users = USERS
        self.partitions = ""
        """Lines of slurm.conf in place of those of `batch` and `guest`."""
        self.node_words: dict[str, str] = {}
        """Name of a node → more words of its line in slurm.conf (`Feature=fast Gres=gpu:2`)."""
        self.gres_conf = ""
        """The text of gres.conf; without one there is none."""
        self.conf = self.folder / "slurm.conf"
        self.munge_socket = self.folder / "munge.socket"
        self.daemons: dict[str, Daemon] = {}
        self.env: dict[str, str] = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SLURM")},
            "PATH": search_path(),
            "SLURM_CONF": str(self.conf),
            "LC_ALL": "C.UTF-8",
        }

    # ------------------------------------------------------------------------------------------------ start and stop

    def __enter__(self) -> RealSlurm:
        atexit.register(self.close)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        obstacle = why_not(self.accounting)
        if obstacle:
            raise LabError(obstacle)
        sweep()
        self._make_folder()
        ports = free_ports(4 + self.nodes)
        self._write_configuration(ports)
        self._spawn("munged", ["munged", "--foreground", "--force", *self._munge_paths()])
        if self.accounting:
            self._start_database(ports[2])
        self._until(lambda: self._quiet("munge", "-S", str(self.munge_socket), "-n"), "munged")
        if self.accounting:
            self._spawn("slurmdbd", ["slurmdbd", "-D"])
            self._until(lambda: self._quiet("sacctmgr", "-n", "show", "cluster"), "slurmdbd")
            # known before the controller first asks, so that it never runs without its associations
            self.sacctmgr(
                f"add cluster {self.name}",
                f"add account {ACCOUNT}",
                f"add user {','.join(self.users)} account={ACCOUNT}",
            )
        for name in self.heads:
            self._spawn(name, self._controller(name))
        for number, node in enumerate(self.node_names):
            (self.folder / "spool" / node).mkdir(exist_ok=True)
            self._spawn(node, [*self._pinned(number), "slurmd", "-D", "-N", node])
        self._until(lambda: self._quiet("scontrol", "ping"), "slurmctld")
        self._until(lambda: set(self.node_states().values()) == {"idle"}, self.node_names[0])

    def close(self) -> None:
        """End every daemon, job and cgroup of this cluster. May be called twice."""
        atexit.unregister(self.close)
        # slurmd first and by force: asked kindly, it waits for its steps
        for daemon in reversed(self.daemons.values()):
            if daemon.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    daemon.process.kill()
                daemon.process.wait()
        for node in self.node_names:
            remove_node(node)
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        closed = [path for path in (self.folder, *self.folder.parents) if not path.stat().st_mode & 0o001]
        if closed:
            raise LabError(f"{closed[-1]}: ordinary users cannot pass; name a folder that they can reach")
        for name in ("state", "spool", "log", "jobs", "run"):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "jobs").chmod(0o1777)  # jobs of all users write their output here

    def _pinned(self, number: int) -> list[str]:
        if not self.pin:
            return []
        cores = sorted(os.sched_getaffinity(0))
        mine = cores[number * self.cpus : (number + 1) * self.cpus]
        if len(mine) < self.cpus:
            raise LabError(
                f"{self.nodes} nodes of {self.cpus} CPUs do not fit on the {len(cores)} cores of this machine; "
                "ask for fewer, or for pin=False"
            )
        # slurmd numbers a node's cores from the first that it sees, and the cpusets of jobs follow: show it a machine
        # that begins at our cores. It skips numbers above its count of cores, so the list is padded to be long enough.
        padding = range(mine[-1] + 1, mine[-1] + 1 + max(0, mine[-1] + 1 - self.cpus))
        seen = [*mine, *padding]
        topology = f"pack:1 core:{len(seen)} pu:1(indexes={','.join(map(str, seen))})"
        return ["taskset", "-c", ",".join(map(str, mine)), "env", f"HWLOC_SYNTHETIC={topology}"]

    def _controller(self, name: str) -> list[str]:
        if not self.backup:
            return ["slurmctld", "-D"]
        # A controller knows by the name of its machine which one it is, listens at the address of that name, and kills
        # whoever its pid file names: each sees a name, an /etc/hosts and a folder for that file of its own.
        hosts = self.folder / "hosts"
        hosts.write_text(
            "127.0.0.1 localhost\n"
            + "".join(f"127.0.0.{number} {host}\n" for number, host in enumerate(self.heads.values(), 1))
        )
        enter = 'hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs none "$3" && shift 3 && exec "$@"'
        seen = (self.heads[name], str(hosts), f"{self.folder}/run")
        log = f"{self.folder}/log/{name}.log"
        return [
            *("unshare", "--uts", "--mount", "sh", "-c", enter, "sh", *seen, "slurmctld", "-D", "-L", log)
        ]

    def _munge_paths(self) -> list[str]:
        key = self.folder / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        return [
            f"--key-file={key}",
            f"--socket={self.munge_socket}",
            f"--pid-file={self.folder}/munged.pid",
            f"--seed-file={self.folder}/munge.seed",
            f"--log-file={self.folder}/log/munged.log",
        ]

    def _start_database(self, port: int) -> None:
        data, temporary = self.folder / "database", self.folder / "database.tmp"
        # a server that starts removes the temporary tables of all others from a folder that they share
        temporary.mkdir(exist_ok=True)
        if not data.exists():
            folders = (f"--datadir={data}", f"--tmpdir={temporary}")
            self.run("mariadb-install-db", "--no-defaults", *folders, "--user=root", "--skip-test-db")
        begin = self.folder / "database.sql"
        begin.touch(mode=0o600)
        begin.write_text(
            # slurmdbd makes it itself, but its first query after that fails with the client library of MariaDB 11.8.9
            "CREATE DATABASE IF NOT EXISTS slurm;\n"
            f"CREATE USER IF NOT EXISTS slurm@'127.0.0.1' IDENTIFIED BY '{self._database_password()}';\n"
            "GRANT ALL ON slurm.* TO slurm@'127.0.0.1';\n"
        )
        options = {
            "datadir": data,
            "tmpdir": temporary,
            "socket": self.folder / "database.socket",
            "port": port,
            "bind-address": "127.0.0.1",
            "pid-file": self.folder / "mariadbd.pid",
            "user": "root",
            "init-file": begin,
            "innodb-buffer-pool-size": "128M",
            "innodb-lock-wait-timeout": 900,  # slurmdbd wants it
            "innodb-flush-log-at-trx-commit": 0,  # a lab's accounts need not survive a power cut
            "skip-name-resolve": "on",
            "performance-schema": "off",
        }
        self._spawn(
            "mariadbd", ["mariadbd", "--no-defaults", *(f"--{key}={value}" for key, value in options.items())]
        )
        self._until(lambda: answers(port), "mariadbd")

    def _database_password(self) -> str:
        path = self.folder / "database.password"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(16))
        return path.read_text()

    def _write_configuration(self, ports: Sequence[int]) -> None:
        host, folder = socket.gethostname(), self.folder
        node_list = ",".join(self.node_names)
        lines = [
            f"ClusterName={self.name}",
            *(
                f"SlurmctldHost={head}(127.0.0.{number})"
                for number, head in enumerate(self.heads.values(), 1)
            ),
            f"SlurmctldPort={ports[0]}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"AuthInfo=socket={self.munge_socket}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/run/slurmctld.pid",
            f"SlurmdPidFile={folder}/%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld.log",
            f"SlurmdLogFile={folder}/log/%n.log",
            # clusters on one machine must not meet in a cgroup that is named after a job
            f"FirstJobId={first_job_id(self.name)}",
            "MpiDefault=none",
            "ReturnToService=2",
            "MailProg=/bin/true",
            "KillWait=2",
            "ProctrackType=proctrack/cgroup",
            "TaskPlugin=task/affinity,task/cgroup",
            "JobAcctGatherType=jobacct_gather/cgroup",
            "JobAcctGatherFrequency=task=5",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU_Memory",
            "DefMemPerCPU=200",
            "SchedulerType=sched/backfill",
            "PriorityType=priority/basic",
            "PreemptMode=OFF",
            # quick: a pass every two seconds, estimates to the second
            "SchedulerParameters=bf_interval=2,sched_interval=2,bf_resolution=1,bf_continue",
            "SlurmdParameters=config_overrides",
        ]
        if self.backup:
            lines += ["CommunicationParameters=NoCtldInAddrAny", f"SlurmctldTimeout={TAKEOVER_S}"]
        if self.accounting:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                f"AccountingStorageHost={host}",
                f"AccountingStoragePort={ports[1]}",
                # with slurmdbd this is the socket of munge; AuthInfo counts for the controller alone
                f"AccountingStoragePass={self.munge_socket}",
                "AccountingStoreFlags=job_comment",
            ]
        for number, node in enumerate(self.node_names):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[4 + number]} "
                f"CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} ThreadsPerCore=1 "
                f"RealMemory={self.memory_mb} State=UNKNOWN {self.node_words.get(node, '')}".rstrip()
            )
        for_all = f"Nodes={node_list} OverSubscribe=FORCE:1 MaxTime=INFINITE"
        lines += [
            self.partitions
            or f"PartitionName=batch Default=YES PriorityTier=1 {for_all}\n"
            f"PartitionName=guest PriorityTier=2 {for_all}",
            self.extra_conf,
        ]
        self.conf.write_text("\n".join(lines) + "\n")
        if self.gres_conf:
            (folder / "gres.conf").write_text(self.gres_conf)
        (folder / "cgroup.conf").write_text(
            ("CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n" if unified() else "CgroupPlugin=cgroup/v1\n")
            + "ConstrainCores=yes\nConstrainRAMSpace=yes\n"
        )
        if self.accounting:
            secret = folder / "slurmdbd.conf"
            secret.touch(mode=0o600)
            secret.write_text(
                f"DbdHost={host}\nDbdAddr=127.0.0.1\nDbdPort={ports[1]}\nSlurmUser=root\n"
                f"AuthType=auth/munge\nAuthInfo=socket={self.munge_socket}\n"
                f"StorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\nStoragePort={ports[2]}\n"
                f"StorageUser=slurm\nStoragePass={self._database_password()}\nStorageLoc=slurm\n"
                f"LogFile={folder}/log/slurmdbd.log\nPidFile={folder}/slurmdbd.pid\n"
            )

    def _spawn(self, name: str, argv: list[str]) -> None:
        daemon = Daemon(name, argv, self.folder / "log" / f"{name}.out")
        self.daemons[name] = daemon
        self.start(name)

    def start(self, name: str) -> None:
        """Start a daemon that does not run, as it was started first."""
        daemon = self.daemons[name]
        if daemon.alive:
            raise LabError(f"{name} runs already (process {self.pid(name)}); kill it first")
        with daemon.log.open("ab") as log:
            # the kernel ends it when we die, however we die
            daemon.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *daemon.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )

    def _until(self, ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + START_S
        while not ready():
            if not self.daemons[name].alive or time.monotonic() > deadline:
                ended = "did not answer in time" if self.daemons[name].alive else "ended"
                raise LabError(f"{name} {ended}; its last words:\n{self.last_words(name)}")
            time.sleep(0.05)

    def last_words(self, name: str, lines: int = 15) -> str:
        """The end of what a daemon wrote into its logs."""
        text = ""
        for path in (self.folder / "log" / f"{name}.log", self.folder / "log" / f"{name}.out"):
            if path.exists():
                text += "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) + "\n"
        return text

    # ------------------------------------------------------------------------------------------------------- faults

    def pid(self, name: str) -> int:
        """Process id of a daemon: munged, mariadbd, slurmdbd, slurmctld, or a node's name for its slurmd."""
        process = self.daemons[name].process
        if process is None or process.poll() is not None:
            raise LabError(f"{name} does not run")
        return process.pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a daemon and wait until it has gone."""
        daemon = self.daemons[name]
        os.kill(self.pid(name), number)
        assert daemon.process is not None
        daemon.process.wait(timeout=30)

    def stop(self, name: str) -> None:
        """Let a daemon hang (SIGSTOP) until `cont`."""
        os.kill(self.pid(name), signal.SIGSTOP)

    def cont(self, name: str) -> None:
        os.kill(self.pid(name), signal.SIGCONT)

    def wait_until_saved(self, timeout_s: float = 300) -> None:
        """Until the controller has written its state to disk: what it learnt after that a `kill -9` makes it forget.

        It writes some seconds after something has changed.
        """
        state, now_s = self.folder / "state" / "job_state", time.time()
        deadline = time.monotonic() + timeout_s
        # something that changes nothing else, so that it has something to write
        self.run("scontrol", "reconfigure")
        while not state.exists() or state.stat().st_mtime < now_s:
            if time.monotonic() > deadline:
                raise LabError(
                    f"{state}: not written within {timeout_s:g} s; look into {self.folder}/log/slurmctld.log"
                )
            time.sleep(0.05)

    # ----------------------------------------------------------------------------------------------------- commands

    def run(
        self,
        *argv: str,
        script: str = "",
        env: Mapping[str, str] | None = None,
        timeout_s: float = 300,
        check: bool = True,
    ) -> str:
        """Standard output of one of Slurm's commands, given `script` on standard input.

        Raises LabError with its words if it failed and `check` is set.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            done = subprocess.run(
                argv,
                env={**self.env, **(env or {})},
                input=script,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
            # 26.05 says so at random of jobs whose user has no association; see asad_slurm.undo
            if "Resource temporarily unavailable" not in done.stderr or time.monotonic() > deadline:
                break
        if check and done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def sacctmgr(self, *commands: str) -> None:
        """Change the accounting database; one process for all commands, since each start of it takes a while."""
        answer = self.run("sacctmgr", "--immediate", script="\n".join((*commands, "exit")) + "\n")
        if "error" in answer.lower():  # it reads on after a line that failed
            raise LabError(f"sacctmgr {'; '.join(commands)}: {answer.strip()}")

    def _quiet(self, *argv: str) -> bool:
        # a command may wait for a daemon longer than we do
        try:
            return subprocess.run(argv, env=self.env, capture_output=True, timeout=10).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def submit(self, script: str, *options: str, user: str = "root") -> str:
        """Queue a shell script (its text, without `#!`) with options of sbatch; the job's id.

        Its output goes to `<folder>/jobs/<id>.out`, its working folder is `<folder>/jobs`.
        """
        account = pwd.getpwnam(user)
        identity = [f"--uid={account.pw_uid}", f"--gid={account.pw_gid}"] if account.pw_uid else []
        jobs = self.folder / "jobs"
        argv = ["sbatch", "--parsable", f"--chdir={jobs}", f"--output={jobs}/%j.out", *identity, *options]
        return self.run(*argv, script=f"#!/bin/sh\n{script}\n").strip().split(";")[0]

    def output(self, job_id: str) -> str:
        """What a job has written so far."""
        path = self.folder / "jobs" / f"{job_id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def job(self, job_id: str) -> dict[str, str]:
        """What `scontrol show job` says of a job, by field (`JobState`, `Partition`, `NodeList`, …)."""
        words = self.run("scontrol", "show", "job", "--oneliner", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def state(self, job_id: str) -> str:
        return self.job(job_id)["JobState"]

    def squeue(self) -> list[dict[str, Any]]:
        """The jobs of `squeue --json`, hidden and ended ones too, in the plain shape of 22.05 whatever wrote them."""
        jobs: list[dict[str, Any]] = json.loads(self.run("squeue", "--all", "--states=all", "--json"))["jobs"]
        shown = [{key: plain(value) for key, value in job.items()} for job in jobs]
        for job in shown:
            # on 26.05 the last waiting task of an array stays a list of tasks
            if alone := re.fullmatch(r"(\d+)(?:%\d+)?", job["array_task_string"] or ""):
                job |= {"array_task_id": int(alone[1]), "array_task_string": ""}
        return shown

    def node_states(self) -> dict[str, str]:
        """State of every node as sinfo shows it (`idle`, `alloc`, `down*`, …)."""
        chosen = () if self.partitions else ("-p", "batch")  # a node has a line for each of its partitions
        lines = self.run("sinfo", "-h", "-N", *chosen, "-o", "%N %t", check=False).splitlines()
        return dict(line.split(None, 1) for line in lines)

    def wait(self, *job_ids: str, state: str = "ended", timeout_s: float = 300) -> None:
        """Until all jobs are in `state` (RUNNING, PENDING, …; `ended`: any in which they will not run again).

        Raises LabError after `timeout_s`, saying what they were then.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            seen = {job_id: self.job(job_id) for job_id in job_ids}
            if all(
                job["JobState"] in GONE if state == "ended" else job["JobState"] == state
                for job in seen.values()
            ):
                return
            if time.monotonic() > deadline:
                states = ", ".join(
                    f"{job_id} {job['JobState']} ({job['Reason']})" for job_id, job in seen.items()
                )
                raise LabError(f"not {state} after {timeout_s:g} s: {states}")
            time.sleep(0.1)

    def clear(self) -> None:
        """Cancel every job, and wait until all nodes are idle again."""
        jobs = self.run("squeue", "-h", "--all", "-o", "%A").split()
        if jobs:
            self.run("scancel", *dict.fromkeys(jobs), check=False)  # one that has just ended is no failure
        deadline = time.monotonic() + 30
        while self.run("squeue", "-h", "--all") or set(self.node_states().values()) != {"idle"}:
            if time.monotonic() > deadline:
                raise LabError(
                    f"jobs or nodes do not come to rest: {self.node_states()}\n{self.run('squeue')}"
                )
            time.sleep(0.05)

    def sacct(
        self, *options: str, fields: str = "JobID,JobName,User,Partition,State"
    ) -> list[dict[str, str]]:
        """A row for every job and step of this cluster, by field; times are in seconds since the epoch."""
        argv = ("sacct", "-a", "-P", "--noheader", "-S", "now-7days", "-o", fields, *options)
        text = self.run(*argv, env={"SLURM_TIME_FORMAT": "%s"})
        names = fields.split(",")
        return [dict(zip(names, line.split("|"), strict=True)) for line in text.splitlines()]

    def job_processes(self, job_id: str, node: str) -> list[int]:
        """Processes of a job on a node, by its cgroups."""
        return sorted(
            {
                pid
                for folder in job_folders(node)
                if folder.name == f"job_{job_id}"
                for pid in processes(folder)
            }
        )


def duration_s(text: str) -> float:
    """Seconds of a duration as sacct writes it: `[days-][hours:]minutes:seconds`, with or without a fraction."""
    days, _, clock = text.rpartition("-")
    total = 86_400.0 * int(days or 0)
    for power, part in enumerate(reversed(clock.split(":"))):
        total += float(part or 0) * 60**power
    return total


def plain(value: Any) -> Any:
    """A value of Slurm's JSON as 22.05 writes it: a number, None for one that is not set, the first word of a state."""
    if isinstance(value, dict) and "return_code" in value:
        return plain(value["return_code"])
    if isinstance(value, dict) and value.keys() == {"set", "infinite", "number"}:
        return value["number"] if value["set"] else None
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else value


def first_job_id(name: str) -> int:
    """A range of job ids that another cluster on this machine will hardly use (Slurm allows up to 67 million)."""
    return 1 + JOB_IDS_PER_CLUSTER * (random.Random(name).randrange(1, 60_000))  # noqa: S311


def free_ports(number: int) -> list[int]:
    """Ports on which nobody listens."""
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            return found
    raise LabError(f"no {number} free ports between {PORTS[0]} and {PORTS[-1]}; stop what listens there")


def answers(port: int) -> bool:
    """Does anything listen on this port of this machine?"""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


# ------------------------------------------------------------------------------------------------------------- cgroups


def node_folders(node: str) -> Iterator[Path]:
    """The cgroups of a node, one of every hierarchy."""
    if unified():
        yield from CGROUP.glob(f"system.slice/{node}_slurmstepd.scope")
    else:
        yield from CGROUP.glob(f"*/slurm_{node}")


def job_folders(node: str) -> Iterator[Path]:
    """The cgroups of all jobs on a node."""
    for folder in node_folders(node):
        yield from folder.glob("job_*" if unified() else "uid_*/job_*")


def processes(folder: Path) -> Iterator[int]:
    """Process ids in a cgroup and below it; one that goes away meanwhile is passed over."""
    for path in folder.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            yield from map(int, path.read_text().split())


def leftovers(name: str) -> Iterator[Path]:
    """Cgroups that belong to a node, Slurm's and those of asad's node actor; `name` may be a pattern."""
    if unified():
        yield from CGROUP.glob(f"system.slice/{name}_slurmstepd.scope")
    else:
        yield from CGROUP.glob(f"*/slurm_{name}")
        yield from CGROUP.glob(f"cpu/asad*_{name}")


def remove_node(node: str) -> None:
    """Kill what runs in the cgroups of a node, and remove them."""
    deadline = time.monotonic() + 10
    while folders := list(leftovers(node)):
        for folder in folders:
            for pid in set(processes(folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for path in sorted(folder.rglob("*/"), key=lambda path: -len(path.parts)):
                if path.is_dir():
                    with contextlib.suppress(OSError):
                        path.rmdir()
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            print(f"lab: {folders[0]} cannot be removed; reboot, or remove it by hand", file=sys.stderr)
            return
        time.sleep(0.05)


def sweep() -> None:
    """Remove what clusters whose owner was killed have left: jobs, cgroups, folders. Daemons died with the owner."""
    for folder in leftovers(f"{PREFIX}*"):
        node = folder.name.removesuffix("_slurmstepd.scope").rpartition("_")[2]
        if owner_is_gone(node):
            remove_node(node)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        if owner_is_gone(folder.name) and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def owner_is_gone(name: str) -> bool:
    """Has the process ended whose number stands in the name of a cluster, node or folder? False for other names."""
    owner = re.match(PREFIX + r"(\d+)[a-z]", name)
    return owner is not None and not Path("/proc", owner[1]).exists()

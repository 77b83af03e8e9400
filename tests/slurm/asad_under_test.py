"""asad on a real Slurm, as tests break it: its processes one by one, its settings as a test wants them.

What is looked at is what an administrator would look at: Slurm's own answers, the files of the cgroups, the journal of
offers and the state store.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asad_slurm.undo import open_offers

from asad.api.auth import open_authenticator
from asad.api.control import ask
from asad.api.node_server import NodeServer
from asad.config import load
from asad.errors import AsadError
from asad.store.store import Store
from lab.live import LiveAsad, asad_toml
from lab.slurm import CGROUP, RealSlurm, free_ports

PATIENCE_S = 300.0
"""The machine is shared: what takes two seconds alone may take many."""
LEASE_S = 6.0
MINUTES = "--time=10"
_names = itertools.count()

SETTINGS: dict[str, dict[str, Any]] = {
    # what others do on this machine is no fault of the hosts here: neither pressure nor happiness may bar them
    "guard": {"pressure": 1.0, "happiness_floor": 0.0},
    "daemon": {"interval_s": 1.0},
    "nodes": {"lease_s": LEASE_S},
    "slurm": {"timeout_s": 3.0},
}


def until(
    condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = PATIENCE_S
) -> None:
    """Poll until something is so; `what` says what did not come to pass."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.1)


def toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of plain values as TOML."""

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{ " + ", ".join(f"{key} = {text(inner)}" for key, inner in value.items()) + " }"
        return json.dumps(value)  # numbers, strings, truth and lists of them are written alike

    return "\n".join(
        f"[{name}]\n" + "\n".join(f"{key} = {text(value)}" for key, value in table.items())
        for name, table in tables.items()
    )


class Asad(LiveAsad):
    """Daemon and node actors, each of which can be killed and started by itself.

    `settings` go over those of the lab, by table. With `daemon` False only the actors are started, and `server` stands
    in the daemon's place, in this very process.
    """

    def __init__(
        self,
        slurm: RealSlurm,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        daemon: bool = True,
    ) -> None:
        super().__init__(slurm, "static")
        self.folder = slurm.folder / f"asad-under-test-{next(_names)}"
        self.socket = self.folder / "asad.sock"
        self.settings, self.daemon = settings or {}, daemon
        self.server: NodeServer | None = None

    def __enter__(self) -> Asad:
        for name in ("state", "node"):
            (self.folder / name).mkdir(parents=True)
        plain = tomllib.loads(asad_toml(self.slurm, self.folder, self.share, free_ports(2)))
        for given in (SETTINGS, self.settings):
            for name, table in given.items():
                plain[name] = {**plain.get(name, {}), **table}
        port = plain["nodes"]["listen"].rpartition(":")[2]
        plain["nodes"]["listen"] = f"0.0.0.0:{port}"  # one of the tests comes from another network
        self.config.write_text(toml(plain))
        try:
            if self.daemon:
                self.start("asad")
            else:
                config = load(self.config)
                keys = open_authenticator(config.nodes, "daemon")
                self.server = NodeServer(config.nodes.listen, keys, config.lease_s)
                self.server.start()
            for node in self.slurm.node_names:
                self.start(node)
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        super().stop()
        if self.server is not None:
            self.server.stop()

    def start(self, name: str, config: Path | None = None, *before: str) -> None:
        """Start the daemon (`asad`) or the actor of a node, by a program that runs it or none."""
        path = str(config or self.config)
        if name == "asad":
            self._start("asad", "asad", "--config", path)
        elif before:
            # that program looks for it in PATH, where a virtual environment need not be
            actor = str(Path(sys.executable).parent / "asad-node")
            self._start(name, before[0], *before[1:], actor, "--config", path, "--node", name)
        else:
            self._start(name, "asad-node", "--config", path, "--node", name)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End one of the processes and wait until it has gone."""
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(PATIENCE_S)

    def wait_until_whole(self) -> None:
        """Until the daemon has completed a cycle and hears all actors."""
        server, nodes = self.server, self.slurm.node_names
        if server is None:
            self._wait()
        else:
            until(
                lambda: server.reports().keys() >= set(nodes),
                lambda: f"all actors report; one says\n{self.last_words(nodes[0])}",
            )

    def repair(self) -> None:
        """Bring back whatever a test has killed or stopped, of Slurm's daemons too."""
        slurm = self.slurm
        for name, daemon in slurm.daemons.items():
            if daemon.alive:
                slurm.cont(name)
            else:
                slurm.start(name)
        until(lambda: "UP" in slurm.run("scontrol", "ping", check=False), "slurmctld is up again")
        for name in ("asad", *slurm.node_names):
            process = self.processes.get(name)
            if (self.daemon or name != "asad") and (process is None or process.poll() is not None):
                self.start(name)
        self.wait_until_whole()

    # ---------------------------------------------------------------------------------------------- what can be seen

    def status(self) -> dict[str, Any]:
        """What `asactl status` shows."""
        answer = ask(self.socket, "status")
        assert isinstance(answer, dict)
        return answer

    def next_cycles(self, number: int = 1) -> None:
        """Until so many more cycles have been completed."""

        def completed() -> int:
            with contextlib.suppress(AsadError):
                return int(self.status()["cycles"]["completed"])
            return -1

        wanted = max(0, completed()) + number
        until(lambda: completed() >= wanted, lambda: f"{number} more cycles: {self.last_words('asad')}")

    def sentence(self) -> str:
        """What the last cycle said."""
        return str(self.status()["cycle"]["sentence"])

    @property
    def journal(self) -> Path:
        return self.folder / "state" / "offers.journal"

    @property
    def store_url(self) -> str:
        """The state store, as the configuration names it."""
        return load(self.config).store_url

    def offers(self) -> dict[str, dict[str, Any]]:
        """The offers that the journal has open, by job."""
        return open_offers(self.journal)

    def kinds_decided(self, job: str) -> set[str]:
        """What the state store says was done with a job, over all runs. Raises StoreError if it cannot be read."""
        with Store.open(self.store_url, create=False) as store:
            return {
                decision.kind
                for run in store.runs_of(job)
                for decision in store.decisions(run.id, job)
                if decision.outcome == "done"
            }


def held(slurm: RealSlurm) -> dict[str, int]:
    """Every quota that asad holds on the nodes of a cluster: microseconds in each tenth of a second, by group."""
    found = {}
    for node in slurm.node_names:
        for parent in (f"asad_{node}", f"asad-hosts_{node}"):
            for path in (CGROUP / "cpu" / parent).glob("job_*/cpu.cfs_quota_us"):
                with contextlib.suppress(OSError):  # it ended meanwhile
                    quota_us = int(path.read_text())
                    if quota_us >= 0:
                        found[f"{parent}/{path.parent.name}"] = quota_us
    return found


def groups_of_ours(slurm: RealSlurm) -> list[str]:
    """Every group of a job that asad has made on the nodes of a cluster, whether it holds a quota or not."""
    return [
        str(path)
        for node in slurm.node_names
        for parent in (f"asad_{node}", f"asad-hosts_{node}")
        for path in (CGROUP / "cpu" / parent).glob("job_*")
    ]


def idle_class(node: str, job: str) -> bool:
    """Does the kernel hold a guest in the idle class, with all of its processes?"""
    group = CGROUP / "cpu" / f"asad_{node}" / f"job_{job}"
    return (group / "cpu.idle").read_text().strip() == "1" and bool(
        (group / "cgroup.procs").read_text().strip()
    )


@dataclass
class Lent:
    """A host on every node, and a job that waits for a node: to be lent one."""

    slurm: RealSlurm
    hosts: list[str]
    guests: list[str]
    gate: Path
    witness: Callable[[], str] = str
    """What else reports why a lending does not come."""

    @property
    def guest(self) -> str:
        return self.guests[0]

    @property
    def node(self) -> str:
        """Where the first guest runs."""
        return self.slurm.job(self.guest)["NodeList"]

    @property
    def host(self) -> str:
        """The host beside it."""
        return self.hosts[self.slurm.node_names.index(self.node)]

    @property
    def jobs(self) -> list[str]:
        return [*self.hosts, *self.guests]

    def runs_as_guest(self, job: str = "") -> bool:
        facts = self.slurm.job(job or self.guest)
        return facts["JobState"] == "RUNNING" and facts["Partition"] == "guest"

    def quota(self, job: str = "") -> int | None:
        """The quota of a guest (the first) on its node; None for none."""
        job = job or self.guest
        return held(self.slurm).get(f"asad_{self.slurm.job(job)['NodeList']}/job_{job}")

    def await_lending(self, job: str = "") -> None:
        """Until a job (the first guest) runs as a guest under a quota."""
        until(
            lambda: self.runs_as_guest(job),
            lambda: f"job {job or self.guest} runs as a guest: {self.facts()}\n{self.witness()}",
        )
        until(lambda: self.quota(job) is not None, lambda: f"it has a quota; there are {held(self.slurm)}")

    def facts(self) -> str:
        """How all of its jobs are."""
        shown = {job: self.slurm.job(job) for job in self.jobs}
        return ", ".join(
            f"{job} {at['JobState']} in {at['Partition']} ({at['Reason']})" for job, at in shown.items()
        )

    def end(self) -> None:
        """Let every job come to its end."""
        self.gate.touch()

    def add(self, *options: str) -> str:
        """One more job that ends when it is let."""
        self.guests.append(self.slurm.submit(until_exists(self.gate), MINUTES, *options))
        return self.guests[-1]


def until_exists(gate: Path) -> str:
    """A script that ends when a file is there."""
    return f"until [ -e {gate} ]; do sleep 0.3; done"


def queue(slurm: RealSlurm, guests: int = 1, witness: Callable[[], str] = str) -> Lent:
    """A host on every node, running, and jobs that wait; all end when they are let."""
    gate = slurm.folder / "jobs" / f"gate-{next(_names)}"
    hosts = [slurm.submit(until_exists(gate), MINUTES, f"--nodelist={node}") for node in slurm.node_names]
    slurm.wait(*hosts, state="RUNNING")
    lent = Lent(slurm, hosts, [], gate, witness)
    for _ in range(guests):
        lent.add()
    return lent


def nothing_is_lost_or_left(asad: Asad, lent: Lent) -> None:
    """Let all jobs end; then each has completed, by Slurm and by accounting, and nothing of ours is there any more."""
    slurm = asad.slurm
    lent.end()
    slurm.wait(*lent.jobs, timeout_s=PATIENCE_S)
    shown = {job: slurm.job(job) for job in lent.jobs}
    ends = {(job["JobState"], job["ExitCode"], job["Restarts"]) for job in shown.values()}
    assert ends == {("COMPLETED", "0:0", "0")}, shown

    def accounted() -> bool:
        rows = slurm.sacct("-X", "-j", ",".join(lent.jobs), fields="JobID,State")
        return [row["State"] for row in rows] == ["COMPLETED"] * len(lent.jobs)

    until(accounted, "accounting has every job once, completed")
    until(lambda: not held(slurm), lambda: f"no quota is left: {held(slurm)}")
    until(lambda: not groups_of_ours(slurm), lambda: f"no group is left: {groups_of_ours(slurm)}")
    until(lambda: not asad.offers(), lambda: f"no offer is left open: {asad.offers()}")

    def recorded() -> bool:
        # a thread of the daemon writes it, and on a busy machine makes it long after the first cycle
        with contextlib.suppress(AsadError), Store.open(asad.store_url, create=False) as store:
            return bool(store.runs())
        return False

    until(recorded, lambda: f"the state store can be read: {asad.last_words()}")


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "asad-test", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def fill(folder: Path) -> Path:
    """Fill a disk to its last byte; the file that does it."""
    path = folder / "filler"
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    assert os.statvfs(folder).f_bavail == 0
    return path

"""The daemon itself over the made-up Slurm: its loop, store and control socket. Where it would wait, its clock goes on;
and what a thousand node actors would send is handed to its node server."""

from __future__ import annotations

import contextlib
import json
import select
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from asad_slurm.cluster import SlurmCluster
from asad_slurm.settings import read_settings

from asad.api.control import ask
from asad.api.node_server import NodeServer
from asad.config import parse
from asad.daemon import Daemon
from asad.errors import AsadError
from asad.port import Lease
from asad.stages import warm_up
from lab.soak.slurm import GUESTS, Job, MadeUpSlurm

START_S = 1_800_000_000
QUESTIONS = ("status", "jobs", "nodes", "metrics", "explain", "config")
"""What is asked at the control socket in turn."""
CONFIGURATION = """
[daemon]
mode = "enforce"
interval_s = {interval_s}
retention_days = {retention_days}
state_dir = "{folder}"
socket = "{folder}/s"
log_level = "warning"
[policies]
admit = "{admit}"
defer = "{defer}"
[[admit.rules]]
utility = "sigmoid(10, 0.5, 2h)"
[[defer.rules]]
window_s = 14400
users = ["user1?"]
[metrics]
listen = ""
"""


class Actors(NodeServer):
    """The daemon's node server, which listens to nobody: what actors would say is handed over, and they follow."""

    def __init__(self, slurm: MadeUpSlurm, lease_s: float) -> None:
        nobody = cast(Any, SimpleNamespace(server_tls=None, client_tls=None))
        super().__init__("127.0.0.1:0", nobody, lease_s, clock=lambda: float(slurm.now_s))
        self._slurm = slurm
        self._connections = [
            cast(Any, SimpleNamespace(node=f"cn{number + 1}", cgroup=2, version=""))
            for number in range(slurm.load.nodes)
        ]
        self._granted: dict[str, dict[str, float]] = {}
        """By node the quotas of its guests."""

    def start(self) -> None:
        """Nobody is listened to."""

    def stop(self) -> None:
        """Nothing is open."""

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """All take note."""
        return True

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """Actors follow, and report the files that they wrote."""
        for node in leases.keys() | self._granted.keys():
            quotas = {
                lease.job_id: lease.quota for lease in leases.get(node, ()) if lease.quota == lease.quota
            }
            before = self._granted.get(node, {})
            if quotas == before:
                continue
            rows = [
                {
                    "time_s": float(self._slurm.now_s),
                    "file": f"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_{job}/cpu.max",
                    "job_id": job,
                    "old": None if job not in before else f"{100000 * before[job]:.0f} 100000",
                    "new": None if job not in quotas else f"{100000 * quotas[job]:.0f} 100000",
                    "why": "leased",
                }
                for job in sorted(quotas.keys() | before.keys())
                if quotas.get(job) != before.get(job)
            ]
            self._hand(int(node[2:]) - 1, {"kind": "audit", "rows": rows})
            if quotas:
                self._granted[node] = quotas
            else:
                self._granted.pop(node, None)

    def report(self) -> None:
        """Every node that is up sends one report."""
        here: dict[int, list[Job]] = {}
        for job in self._slurm.running.values():
            for node in job.at:
                here.setdefault(node, []).append(job)
        for node in range(self._slurm.load.nodes):
            if self._slurm.is_up(node):
                jobs = {str(job.number): self._sample(job) for job in here.get(node, ())}
                self._hand(node, {"kind": "report", "cgroup": 2, "widens": True, "jobs": jobs})

    def _hand(self, node: int, message: dict[str, Any]) -> None:
        self.heard(self._connections[node], json.loads(json.dumps(message)))

    def _sample(self, job: Job) -> dict[str, Any]:
        age_s = self._slurm.now_s - job.start_s
        guest = job.partition == GUESTS
        busy = job.busy * (0.95 + 0.05 * ((job.number + self._slurm.now_s // 300) % 3 - 1))
        return {
            "job_id": str(job.number),
            "guest": guest,
            "cores": job.cores,
            "core_ids": list(range(job.cores)),
            "cpu_fraction": busy,
            "cpu_peak": min(1.0, 1.1 * busy),
            "cpu_time_s": busy * job.cores * age_s,
            "memory_bytes": 1e9 * job.cores,
            "throttled": None,
            "pressure": 0.0,
            "read_bytes": 0.0,
            "written_bytes": 0.0,
            "threads": job.cores,
            "parallel": True,
            "progress": None,
            "since_s": float(job.start_s),
            "quota": None,
            "idle_class": guest,
            "steps_done": int(100 * age_s / job.run_s) if job.comment else 0,
        }


class Asker:
    """Asks at the control socket, as `asactl` does, in a thread of its own: one question after another."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._answer: Future[Any] | None = None
        self.asked = self.failed = 0

    def ask(self, job: str) -> None:
        """One question more, if the last one is answered."""
        if self.busy:
            return
        verb = QUESTIONS[self.asked % len(QUESTIONS)]
        arguments = {"explain": {"job": job}, "jobs": {"limit": 20}}.get(verb, {})
        self.asked += 1
        answer: Future[Any] = Future()
        self._answer = answer

        def run() -> None:
            try:
                answer.set_result(ask(self._socket, verb, **cast(Any, arguments)))
            except AsadError as error:
                self.failed += "neither runs nor waits" not in str(error)
                answer.set_result(error)

        threading.Thread(target=run, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Is an answer waited for?"""
        return self._answer is not None and not self._answer.done()


class SoakDaemon(Daemon):
    """The daemon whose clock goes on where it would wait. It stops after so many cycles."""

    def __init__(self, folder: Path, slurm: MadeUpSlurm, settings: Mapping[str, Any], cycles: int) -> None:
        self.slurm, self.most_cycles = slurm, cycles
        folder.chmod(0o750)
        config = parse(CONFIGURATION.format(folder=folder, **settings), folder / "asad.toml")
        self.actors = Actors(slurm, config.lease_s)
        self.cluster = SlurmCluster(
            read_settings({"share_users": "any", "transport": "command"}),
            nodes=self.actors,
            state_dir=folder,
            clock=lambda: float(slurm.now_s),
            transport=slurm,
        )
        self._passed_s = 0.0
        super().__init__(
            config, cluster=self.cluster, monotonic=lambda: self._passed_s, clock=lambda: float(slurm.now_s)
        )
        self.asker = Asker(config.daemon.socket)
        self.task_queue.wait = self._pass  # type: ignore[method-assign]
        self.cpu_s = self.wall_s = 0.0
        """Of the last cycle, with all that follows from it, but without the made-up Slurm's own work."""
        self.after_cycle = lambda: None

    def _open_cluster(self, opened: contextlib.ExitStack) -> None:
        """The link, though the cluster was given."""
        super()._open_cluster(opened)
        self.link = self.nodes = self.actors

    def _start(self, opened: contextlib.ExitStack) -> None:
        warm_up(self.config)
        super()._start(opened)

    def _pass(self, seconds: float) -> None:
        """Time goes on by so much, unless somebody asks: then it stands until he has his answer."""
        if self.asker.busy:
            select.select([self.task_queue._wake_in], [], [], 0.02)
            with contextlib.suppress(BlockingIOError):
                while self.task_queue._wake_in.recv(4096):
                    pass
            return
        self._passed_s += min(seconds, 60.0)

    def _one_cycle(self) -> float:
        self.slurm.pass_until(START_S + int(self._passed_s))
        self.actors.report()
        before_s, begin_s = time.thread_time(), time.perf_counter()
        wake_s = super()._one_cycle()
        self.cpu_s = time.thread_time() - before_s - self.slurm.made_s
        self.wall_s = time.perf_counter() - begin_s
        # the store has five minutes for what it gets here in a moment
        self.writer.wait_until_written(60.0, removed=True)
        self.after_cycle()
        if self.cycle.number >= self.most_cycles:
            self.stop()
        return wake_s

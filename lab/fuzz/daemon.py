"""Readers of what comes to the daemon and to node actors over connections, and of what the daemon has kept."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from asad_slurm.cluster import SlurmCluster
from asad_slurm.settings import read_settings

from asad.api.control import REQUEST_BYTES, Peer
from asad.api.node_server import NodeServer, _Connection
from asad.api.wire import MAX_FRAME_BYTES, Frames, TrustedChannel, frame, pack, unpack
from asad.config import parse
from asad.daemon import Daemon
from asad.daemon.cycle_records import quota_changes
from asad.errors import AsadError
from asad.node.actor import Actor
from asad.node.guest_roles import GuestRoles
from asad.node.quota_leases import Leases
from asad.node.registered import Registered
from asad.port import NodeReport
from asad.stages import Circumstances, policy_of
from asad.store.encoding import object_of, to_text
from lab.fuzz import samples
from lab.fuzz.run import FaultError, Read, Reader, unfit
from lab.fuzz.samples import NOW_S
from lab.fuzz.slurm import _Link, _Slurm

SOMEBODY = Peer(65534, 65534, 1)
CONFIGURATION = """
[daemon]
mode = "enforce"
state_dir = "{folder}"
socket = "{folder}/s"
[policies]
admit = "{admit}"
defer = "{defer}"
[metrics]
listen = ""
"""


def readers() -> list[Reader]:
    """Frames, messages, requests, and what policies keep."""
    sealed = [frame(pack(message)) for message in _messages()]
    return [
        Reader("frames of node actors", "text", [*sealed, b"".join(sealed)], _frames, 8),
        Reader(
            "messages of node actors", "json", [pack(message) for message in _messages()], _messages_in, 12
        ),
        Reader("messages of the daemon", "json", [pack(message) for message in _orders()], _actor, 8),
        Reader("registration of executors", "json", [_registration()], _registered, 2),
        Reader("control requests: admission", "json", _requests(), _control("oasis", "edf"), 8),
        Reader("control requests: statements", "json", _requests(), _control("sow", "at-once"), 8),
        Reader(
            "what policies keep",
            "json",
            [json.dumps(one).encode() for one in _memories()],
            _policy_state,
            6,
        ),
    ]


# --------------------------------------------------------------------------------------------------------------- wire


def _messages() -> list[dict[str, Any]]:
    sample = {
        "job_id": "7", "guest": False, "cores": 2, "core_ids": [0, 1], "cpu_fraction": 0.5, "cpu_peak": 0.6,
        "cpu_time_s": 30.0, "memory_bytes": 1e8, "throttled": None, "pressure": 0.1, "read_bytes": 0.0,
        "written_bytes": 0.0, "threads": 1, "parallel": False, "progress": None, "since_s": NOW_S - 600,
        "quota": None, "idle_class": False, "steps_done": 3,
    }  # fmt: skip
    row = {
        "time_s": NOW_S, "file": "/sys/fs/cgroup/x/cpu.max", "job_id": "7", "old": "max 100000", "new": None,
        "why": "leased: 50% of 2 cores",
    }  # fmt: skip
    return [
        {"kind": "hello", "node": "n1", "version": "0.1", "cgroup": 2},
        {"kind": "report", "node": "n1", "cgroup": 2, "jobs": {"7": sample, "m1_3": sample | {"job_id": "m1_3"}},
         "hyperthreaded_cores": 0, "widens": True},
        {"kind": "audit", "rows": [row, row | {"time_s": 1, "old": None, "new": "5000 100000"}]},
        {"kind": "noted", "id": 3},
        {"kind": "pong"},
    ]  # fmt: skip


class _Transport:
    """Stands for a connection."""

    closed = False

    def abort(self) -> None:
        self.closed = True

    def write(self, data: bytes) -> None:
        """Nobody listens."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int) -> None:
        """There is no buffer."""


def _server(folder: Path) -> NodeServer:
    nobody = cast(Any, SimpleNamespace(server_tls=None, client_tls=None))
    return NodeServer("127.0.0.1:0", nobody, 90.0, clock=lambda: NOW_S)


def _frames(folder: Path) -> Read:
    """A stream of bytes in odd pieces, up to the store's rows."""
    server = _server(folder)

    def read(data: bytes, chance: Random) -> bool:
        refused = server.refused
        connection = _Connection(server, cast(Any, None))
        connection._transport = cast(Any, _Transport())
        connection.state, connection.node, connection.peer = "open", "n1", "127.0.0.1"
        connection._channel, connection._frames = TrustedChannel(), Frames(MAX_FRAME_BYTES)
        while data and connection.state != "closed":
            end = chance.choice((1, 3, 100, 1 << 20))
            connection.data_received(data[:end])
            data = data[end:]
        _drain(server)
        return server.refused == refused

    return read


def _messages_in(folder: Path) -> Read:
    """One message of an actor that has proved who it is."""
    framed = _frames(folder)
    return lambda data, chance: framed(frame(data[:MAX_FRAME_BYTES]), chance)


def _drain(server: NodeServer) -> None:
    """What the daemon makes of it in its next cycle."""
    for change in quota_changes(server):
        for text in (change.job, change.file, change.old or "", change.new or "", change.why):
            if len(text) > 1024:
                raise FaultError("a text of an audit that is longer than the store takes")
        if not math.isfinite(change.time_s):
            raise FaultError(f"an audit of no time: {change.time_s}")
    for report in server.reports().values():
        _require_bounded(report)


def _require_bounded(report: NodeReport) -> None:
    for job, sample in report.jobs.items():
        numbers = (sample.cpu_fraction, sample.cpu_time_s, sample.memory_bytes, sample.since_s, sample.quota)
        if job != sample.job_id or any(math.isinf(number) or number < 0 for number in numbers):
            raise FaultError(f"a sample that cannot be: {sample}")


# -------------------------------------------------------------------------------------------------------------- actor


def _orders() -> list[dict[str, Any]]:
    lease = {"job_id": "7", "guest": True, "host_id": "8", "quota": 0.5, "cores": 2, "memory_high_bytes": 1e9}
    return [
        {"kind": "lease", "lease_s": 90.0, "jobs": [lease | {"widen": True}, lease | {"guest": False}]},
        {"kind": "announce", "id": 3, "job": "12_3"},
        {"kind": "ping"},
    ]


def _actor(folder: Path) -> Read:
    """What an actor makes of what the daemon says. Its cgroups are not touched here."""
    nothing = lambda *_: None  # noqa: E731
    cgroups = cast(Any, SimpleNamespace(can_hold=True))
    actor = cast(
        Any,
        SimpleNamespace(
            leases=Leases(),
            jobs={},
            roles=GuestRoles(cgroups, folder, lambda: 0.0, (), lambda group: False),
            cgroups=cgroups,
            wall=lambda: NOW_S,
            clock=lambda: 0.0,
            link=None,
            **dict.fromkeys(("classify", "apply", "scan"), nothing),
        ),
    )
    actor._note = lambda message: Actor._note(actor, message)
    clock = [0.0]

    def read(data: bytes, chance: Random) -> bool:
        clock[0] += 5.0
        renewals = actor.leases.renewals
        message = _message(data)
        if message is None:
            return False
        Actor.follow(actor, message, clock[0])
        for cores, _ in actor.leases.caps(clock[0]).values():
            if not 0 <= cores <= 65536:
                raise FaultError(f"a quota of {cores} cores")
        actor.leases.memory(clock[0])
        return bool(actor.leases.renewals > renewals) or message.get("kind") != "lease"

    return read


def _message(data: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(AsadError):
        return unpack(data)
    return None


def _registration() -> bytes:
    return (
        json.dumps({"job": f"m7.{os.getuid()}", "inside": "m3.0", "memory_bytes": 1 << 30}).encode() + b"\n"
    )


def _registered(folder: Path) -> Read:
    (folder / "cgroup").mkdir()
    known = Registered(folder / "cgroup", 2, "n1", folder, started_by_agent=lambda pid: True)

    def read(data: bytes, chance: Random) -> bool:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data[:8000])
            theirs.shutdown(socket.SHUT_WR)
            try:
                answer = known._answer(ours, os.getpid(), chance.choice((0, os.getuid(), 65534)))
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                answer = f"it makes no sense ({error})"[:200]  # as `_serve` says it
        json.dumps(answer)
        return bool(answer) and "makes no sense" not in answer

    return read


# ------------------------------------------------------------------------------------------------------------ control


def _requests() -> list[bytes]:
    statement = {
        "name": "nightly", "cores": 2, "due": "+2h", "runs": [["0m", "1h", 1.0]], "value": 12.0, "shape": "linear",
        "deadline": "4h", "every": "24h",
    }  # fmt: skip
    requests: list[dict[str, Any]] = [
        *({"verb": verb} for verb in ("status", "metrics", "config", "nodes", "admission", "deferral")),
        *({"verb": verb} for verb in ("sow-status", "sow-ledger", "pause", "resume", "release")),
        *({"verb": verb, "job": "7"} for verb in ("explain", "admission", "deferral", "progress", "tasks")),
        {"verb": "jobs", "state": "running", "user": "ann", "job": "7", "limit": 5},
        {"verb": "mode", "mode": "advise"},
        {"verb": "sow-submit", "statements": [statement], "times": 2, "user": "ann"},
        {"verb": "sow-quote", "cores": 4},
        {"verb": "sow-cancel", "statement": 1},
    ]
    return [json.dumps(request).encode() + b"\n" for request in requests]


def _control(admit: str, defer: str) -> Any:
    """A daemon over a small Slurm; every request is answered as a worker of the control socket does."""

    def open_(folder: Path) -> Read:
        squeue = (samples.SLURM / "squeue.json").read_bytes()
        slurm = _Slurm(squeue, (samples.SLURM / "sinfo.json").read_bytes())
        link, now_s = _Link(), max(job["start_time"] for job in json.loads(squeue)["jobs"]) + 60.0
        text = CONFIGURATION.format(folder=folder, admit=admit, defer=defer)
        cluster = SlurmCluster(
            read_settings({"share_users": "any"}),
            nodes=link,
            state_dir=folder,
            clock=lambda: now_s,
            transport=slurm,
        )
        daemon = Daemon(parse(text, folder / "asad.toml"), cluster=cluster, clock=lambda: now_s)
        opened = contextlib.ExitStack()
        folder.chmod(0o750)
        daemon._start(opened)
        link.watch(slurm.look().jobs, now_s)
        daemon._one_cycle()
        daemon.task_queue.ask = lambda function, within_s=None: function()  # type: ignore[method-assign]

        def read(data: bytes, chance: Random) -> bool:
            daemon.cycle.paused, daemon.cycle.mode = False, "enforce"
            line = data.partition(b"\n")[0][:REQUEST_BYTES]
            peer = SOMEBODY if chance.random() < 0.5 else Peer(os.getuid(), os.getgid(), os.getpid())
            answer = json.loads(daemon.control._work(line, peer))
            return _answered(answer)

        return read

    return open_


def _answered(answer: dict[str, Any]) -> bool:
    """Was a request granted? Raises FaultError for an answer that reports a fault, or is not fit to be shown."""
    if not answer["ok"]:
        text = f"{answer['error']}; {answer['mend']}"
        if "failed to answer" in text:
            raise FaultError(text)
        if why := unfit(text):
            raise FaultError(f"an answer gives {why}: {text[:200]!r}")
    return bool(answer["ok"])


# ------------------------------------------------------------------------------------------------------------- memory


def _memories() -> list[dict[str, Any]]:
    """What the store keeps of policies, by stage, as they reported it."""
    return cast("list[dict[str, Any]]", json.loads((Path(__file__).parent / "memory.json").read_bytes()))


def _policy_state(folder: Path) -> Read:
    """Policies start with what the store shows, and look at the cluster once."""
    squeue = (samples.SLURM / "squeue.json").read_bytes()
    sinfo = (samples.SLURM / "sinfo.json").read_bytes()
    start_s = NOW_S + 43_200.0  # when what is kept was true
    configs = {
        name: parse(
            f'[policies]\nadmit = "{admit}"\ndefer = "edf"\nplace = "{place}"\n', folder / "asad.toml"
        )
        for name, admit, place in (("oasis", "oasis", "oga"), ("sow", "sow", "native"))
    }

    def read(data: bytes, chance: Random) -> bool:
        try:
            plain = object_of(data.decode("utf-8", "replace")) or {}
            stage, memory = plain["stage"], plain["memory"]
        except KeyError:
            return False
        if not isinstance(memory, dict) or not all(isinstance(known, dict) for known in memory.values()):
            return False  # `learned.load` leaves out what is no object
        cluster = SlurmCluster(
            read_settings({"share_users": "any", "transport": "command"}),
            nodes=_Link(),
            state_dir=folder,
            clock=lambda: start_s,
            transport=_Slurm(squeue, sinfo),
        )
        names = cluster.applications
        made = {
            "share": lambda: policy_of(configs["oasis"], "share", Circumstances(names, 1)),
            "admit": lambda: policy_of(configs["oasis"], "admit", Circumstances(names)),
            "admit/sow": lambda: policy_of(configs["sow"], "admit", Circumstances(names)),
            "defer": lambda: policy_of(configs["oasis"], "defer", Circumstances(names)),
            "place": lambda: policy_of(configs["oasis"], "place", Circumstances(names)),
        }
        if not isinstance(stage, str) or stage not in made:
            return False
        policy: Any = made[stage]()
        policy.restore(memory)
        snapshot, finished = cluster.snapshot(), cluster.finished(0.0)
        more = (None,) if stage == "defer" else ()
        policy.learn(snapshot, finished, *more)
        policy.decide(snapshot)
        to_text(policy.state()).encode()
        return True

    return read

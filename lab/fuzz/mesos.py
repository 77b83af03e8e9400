"""Readers of what a Mesos master says, of what users submit through the daemon, and of both journals beside Mesos."""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest import mock

import orjson
from asad_mesos import queue_undo
from asad_mesos.agent_offers import read_offer
from asad_mesos.events import Cancelled, Event, Offered, Submitted, Subscribed
from asad_mesos.framework import Framework, FrameworkFault
from asad_mesos.framework_journal import NAME
from asad_mesos.handover import SlurmQueue
from asad_mesos.in_hand import JOURNAL
from asad_mesos.job_requests import answer
from asad_mesos.job_spec import Group, Spec, spec_from_json
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.queue_settings import read_queue
from asad_mesos.session import Session
from asad_mesos.settings import Settings, read_settings
from asad_mesos.slurm_jobs import Queued, read_job
from asad_mesos.slurm_side import Short

from asad.api.control import ControlServer, Peer
from asad.errors import ClusterError, UsageError
from asad.model import Json
from lab.fuzz import samples
from lab.fuzz.daemon import SOMEBODY, _answered
from lab.fuzz.run import FaultError, Read, Reader, unfit
from lab.fuzz.samples import NOW_S
from lab.fuzz.slurm import _Link, unspeakable

AGENT = "1af08ea6-63cf-40dd-a6f0-2d55b5d4f396-S0"


def readers() -> list[Reader]:
    """Events, requests, journals."""
    return [
        Reader("events of a Mesos master", "lines", _events(), _session, 10),
        Reader("control requests: Mesos", "json", _requests(), _control, 8),
        Reader("journal of the framework", "lines", [_framework_journal()], _journal, 6),
        Reader("journal of the queue", "lines", samples.queue_journal(), _queue, 4),
    ]


def _spec(**facts: Any) -> dict[str, Any]:
    return Spec("ann", 1000, "sleep 1", (Group(tasks=2),), name="a gang").to_json() | facts


# ------------------------------------------------------------------------------------------------------------- events


def _offer(number: int) -> dict[str, Any]:
    scalar = [("cpus", 4.0), ("mem", 4096.0), ("disk", 1024.0)]
    return {
        "id": {"value": f"O{number}"},
        "agent_id": {"value": AGENT},
        "hostname": "n1",
        "url": {"scheme": "http", "address": {"hostname": "n1", "ip": "127.0.0.1", "port": 5051}},
        "resources": [
            {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 9}]}, "role": "*"},
            *(
                {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"}
                for name, value in scalar
            ),
            {"name": "cpus", "type": "SCALAR", "scalar": {"value": 1.0}, "role": "*", "revocable": {}},
        ],
        "attributes": [{"name": "rack", "type": "TEXT", "text": {"value": "r1"}}],
    }


def _status(state: str, **facts: Any) -> dict[str, Any]:
    return {
        "type": "UPDATE",
        "update": {
            "status": {
                "task_id": {"value": "TASK"},
                "state": state,
                "source": "SOURCE_EXECUTOR",
                "agent_id": {"value": AGENT},
                "executor_id": {"value": "TASK"},
                "timestamp": NOW_S,
                "uuid": "U4Nl5DSgQdmnrRQYWki66w==",
                "labels": {"labels": [{"key": "exit", "value": "1"}, {"key": "guests", "value": ""}]},
            }
            | facts
        },
    }


def _events() -> list[bytes]:
    info = {"id": "x", "version": "1.12.0", "hostname": "127.0.0.1"}
    subscribed = {"framework_id": {"value": "F"}, "heartbeat_interval_seconds": 15.0, "master_info": info}
    events: list[dict[str, Any]] = [
        {"type": "SUBSCRIBED", "subscribed": subscribed},
        {"type": "HEARTBEAT"},
        {"type": "OFFERS", "offers": {"offers": [_offer(7), _offer(8)]}},
        {"type": "RESCIND", "rescind": {"offer_id": {"value": "O7"}}},
        {"type": "FAILURE", "failure": {"agent_id": {"value": AGENT}}},
        {"type": "ERROR", "error": {"message": "Framework failed over"}},
        {"type": "ERROR", "error": {"message": "Framework has been removed"}},
        {"type": "ERROR", "error": {"message": "'FrameworkInfo.roles' contains invalid role: Role 'a/../b'"}},
        _status("TASK_RUNNING"),
        _status("TASK_FINISHED", message="Command exited with status 0"),
        _status("TASK_FAILED", reason="REASON_CONTAINER_LIMITATION_MEMORY", message="memory"),
        _status("TASK_LOST", source="SOURCE_MASTER", reason="REASON_AGENT_DISCONNECTED"),
        _status("TASK_UNREACHABLE", unreachable_time={"nanoseconds": 1795156866118917888}),
        _status("TASK_KILLED"),
    ]
    lines = [json.dumps(event).encode() for event in events]
    return [*lines, b"\n".join(lines[:4]), b"\n".join(lines[8:10]), b"\n".join((lines[0], *lines[8:]))]


class _Driver:
    """Stands for the process that speaks to the master: what it reads is in hand."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.sent = self.through = 0
        self.pid = 1
        self.waits_to_write = False

    def read(self) -> list[dict[str, Any]]:
        lines, self.lines = self.lines, []
        return [orjson.loads(b'{"event":' + line + b"}") for line in lines]

    def call(self, body: Mapping[str, Any]) -> None:
        orjson.dumps(body)
        self.sent = self.through = self.sent + 1

    def write(self) -> bool:
        return True

    def close(self) -> None:
        """There is no process."""


def _session(folder: Path) -> Read:
    """A framework whose gang has just been launched hears events; it must not stumble, nor lose what it knows."""
    clock, number = [0.0], [100]
    session = Session(read_settings({"hold_s": 10}), folder, lambda: NOW_S, lambda: clock[0])

    def hear(lines: list[bytes]) -> None:
        driver = _Driver()
        driver.lines = lines
        session.link.driver = cast(Any, driver)
        session.link.subscribed = True
        session._handle(*session.link.hear())

    def read(data: bytes, chance: Random) -> bool:
        clock[0] += 1.0
        number[0] += 1
        try:
            hear([_events()[0]])
            (job,) = session.submit(spec_from_json(_spec(elastic=chance.random() < 0.3)))
            offers = {"type": "OFFERS", "offers": {"offers": [_offer(number[0])]}}
            hear([json.dumps(offers).encode()])
            tasks = list(session.framework.tasks) or ["nobody"]
            trouble = session.link.starts, session.link.failures
            seen = data.replace(b'TASK"', chance.choice(tasks).encode() + b'"')
            hear([line for line in seen.split(b"\n") if line])
            session.do(Cancelled(job, "enough"))
            if chance.random() < 0.05:  # it reports a thousand jobs that have ended
                orjson.dumps(session.framework.dump())
        except FrameworkFault as error:
            raise FaultError(str(error)[:3000]) from error
        finally:
            if len(session.framework.jobs) > 20:  # those whose end was not heard
                session.framework = Framework(session.framework.settings)
        if why := unfit(
            f"{session.trouble}{session.link.version}{''.join(session.framework.sentences[-3:])}"
        ):
            raise FaultError(f"a session gives {why}")
        return trouble == (session.link.starts, session.link.failures)

    weakref.finalize(read, session.close)  # with the last input
    return read


# ----------------------------------------------------------------------------------------------------------- requests


class _Engine:
    """A framework without a master."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.framework = Framework(Settings())
        self.trouble, self.subscribed = "", True
        self.framework.handle(Subscribed("F"), now_s=NOW_S)

    def now_s(self) -> float:
        return NOW_S

    def start(self) -> None:
        """There is nobody to speak to."""

    def wait(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""

    def do(self, event: Event) -> None:
        instructions = self.framework.handle(event, now_s=NOW_S)
        orjson.dumps(instructions.records)
        orjson.dumps(instructions.calls)

    def submit(self, *specs: Spec) -> list[str]:
        first = self.framework.last_number + 1
        for spec in specs:
            self.do(Submitted(spec))
        self.do(Offered([read_offer(_offer(self.framework.last_number))]))
        return [f"m{first + number}" for number in range(len(specs))]


def _requests() -> list[bytes]:
    elastic = _spec(
        elastic=True,
        groups=[
            {"name": "worker", "tasks": 8, "least": 2, "cpus": 0.5},
            {"name": "server", "tasks": 1, "gpus": 0, "disk_bytes": 1e6, "apart": True},
        ],
        environment={"A": "b"}, attributes={"rack": "r1"}, hint="utility=constant(1)", time_limit_s=3600,
    )  # fmt: skip
    requests = [
        {
            "verb": "submit",
            "spec": {key: value for key, value in _spec().items() if key not in ("user", "uid")},
        },
        {"verb": "submit", "spec": elastic, "user": "root", "dry_run": False},
        {"verb": "cancel", "job": "m1"},
        {"verb": "tasks", "job": "m1"},
        {"verb": "tasks"},
        {"verb": "teardown"},
    ]
    return [json.dumps(request).encode() for request in requests]


def _control(folder: Path) -> Read:
    engine = _Engine()
    settings = read_settings({})
    cluster = MesosCluster(
        settings, nodes=_Link(), state_dir=folder, clock=lambda: NOW_S, engine=cast(Any, engine)
    )

    def handle(request: Any, peer: Peer) -> Json:
        return answer(cluster, request.verb, request.arguments, peer.user, peer.uid)

    server = ControlServer(folder / "s", handle)

    def read(data: bytes, chance: Random) -> bool:
        if len(engine.framework.jobs) > 50 or engine.framework.tearing:
            engine.framework = _Engine().framework
        peer = SOMEBODY if chance.random() < 0.5 else Peer(os.getuid(), os.getgid(), os.getpid())
        return _answered(json.loads(server._work(data, peer)))

    return read


# ----------------------------------------------------------------------------------------------------------- journals


def _framework_journal() -> bytes:
    framework = Framework(Settings())
    records = framework.handle(Subscribed("F"), now_s=NOW_S).records
    for elastic in (False, True):
        records += framework.handle(Submitted(spec_from_json(_spec(elastic=elastic))), now_s=NOW_S).records
        offered = Offered([read_offer(_offer(framework.last_number))])
        records += framework.handle(offered, now_s=NOW_S).records
    records += [
        {"what": "started", "job": "m1", "time_s": NOW_S},
        {"what": "held", "job": "m2", "until_s": None},
        {"what": "priority", "job": "m2", "priority": 3.0},
        {"what": "extended", "job": "m1", "by_s": 60.0, "task": ""},
        {"what": "target", "job": "m2", "group": 0, "tasks": 1},
        *framework.dump()[1:],
    ]
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def _journal(folder: Path) -> Read:
    """A daemon starts over the journal of another, hears the master, and writes it anew."""
    path = folder / NAME

    def read(data: bytes, chance: Random) -> bool:
        path.write_bytes(data)
        with mock.patch("os.fsync"):
            session = Session(read_settings({}), folder, lambda: NOW_S, lambda: 0.0)
            try:
                session._handle(Subscribed("F"))
                session._handle(Offered([read_offer(_offer(99))]))
                session.journal.rewrite(session.framework.dump())
                again = Framework(session.framework.settings)
                again.restore(session.journal.load())
            except FrameworkFault as error:
                raise FaultError(str(error)[:3000]) from error
            finally:
                session.close()
            try:
                queue_undo.gangs(path)
            except ValueError as error:
                raise UsageError(str(error)) from None
        return True

    return read


class _SlurmQueue:
    """A Slurm in which the jobs of the journal wait or run."""

    def look(self) -> dict[int, Short]:
        return {
            job: Short(job, state, priority, "mesos", "PartitionDown")
            for job, state, priority in (
                (17, "PENDING", 0),
                (18, "PENDING", 0),
                (19, "PENDING", 0),
                (21, "PENDING", 9),
            )
        }

    def details(self, jobs: Collection[int]) -> dict[int, Queued]:
        plain = {
            "job_state": "PENDING", "state_reason": "PartitionDown", "priority": 0, "partition": "mesos",
            "user_name": "nobody", "user_id": 65534, "name": "x", "submit_time": 1000, "tasks": 1, "cpus": 1,
            "time_limit": 10, "current_working_directory": "/home", "batch_flag": True,
        }  # fmt: skip
        return {job: read_job(plain | {"job_id": job}) for job in jobs}

    def argued(self, job: Queued) -> Queued:
        return job

    def script(self, job: str) -> str:
        return "#!/bin/sh\ntrue\n"

    def past(self, job: str) -> str:
        return ""

    def __getattr__(self, verb: str) -> Any:
        """Whatever is to be done is done, if a command can be given such words."""

        def do(*words: Any) -> None:
            for word in words:
                if any(map(unspeakable, map(str, word.values() if isinstance(word, dict) else [word]))):
                    raise ClusterError(f"{verb}: no command can be given that")

        return do


def _queue(folder: Path) -> Read:
    path = folder / JOURNAL
    settings = read_queue({"partition": "mesos"})

    def read(data: bytes, chance: Random) -> bool:
        path.write_bytes(data)
        mesos = MesosCluster(
            read_settings({}),
            nodes=_Link(),
            state_dir=folder,
            clock=lambda: NOW_S,
            engine=cast(Any, _Engine()),
        )
        with mock.patch("os.fsync"):
            queue = SlurmQueue(settings, cast(Any, _SlurmQueue()), mesos, folder, lambda: NOW_S)
            queue.may = True
            lines = queue.recover()
            queue.step()
            lines += [*queue.return_waiting(), *queue.messages]
        for sentence in lines:
            if why := unfit(sentence):
                raise FaultError(f"a sentence of the queue gives {why}")
        return True

    return read

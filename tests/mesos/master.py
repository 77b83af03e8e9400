"""A Mesos master for tests: it speaks the scheduler API as a real `mesos-master` 1.12.0 did (`data/mesos`).

Agents are rows of numbers, and tasks run by the clock; all else is what a framework sees of a real one: RecordIO over
chunks that split anywhere, stream ids, filters, offers that become stale, rescinds, updates that are sent until they
are acknowledged, reconciliation, failover, removal, redirects, authentication. Faults are methods: `disconnect`,
`hang`, `rescind`, `lose_agent`, `restart`.

Runs in a thread of the test, or as a process of its own: `python master.py --agents 100 --cpus 4`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import email.utils
import json
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
from protocol import (
    misfit,
    refused_call,
    refused_executor,
    refused_framework,
    refused_headers,
    refused_resources,
)

OVER = {
    "TASK_FINISHED",
    "TASK_FAILED",
    "TASK_KILLED",
    "TASK_LOST",
    "TASK_DROPPED",
    "TASK_GONE",
    "TASK_ERROR",
}
STREAM_MISMATCH = (
    "The stream ID '{stream}' included in this request didn't match the stream ID currently associated with "
    "framework ID {framework}"
)
CALLS = {
    "SUBSCRIBE",
    "TEARDOWN",
    "ACCEPT",
    "DECLINE",
    "REVIVE",
    "SUPPRESS",
    "KILL",
    "ACKNOWLEDGE",
    "RECONCILE",
    "MESSAGE",
}


@dataclass
class Agent:
    """An agent with scalars by name; `revocable` are CPUs beyond."""

    agent_id: str
    host: str
    port: int
    total: dict[str, float]
    revocable: float = 0.0
    attributes: dict[str, str] = field(default_factory=dict)
    role: str = "*"
    used: Counter[str] = field(default_factory=Counter)
    used_revocable: float = 0.0
    alive: bool = True
    offered: Counter[str] = field(default_factory=Counter)
    """In offers that are out; `ports` and `revocable` too."""

    def free(self) -> dict[str, float]:
        """What nobody uses and nobody is offered."""
        return {
            name: max(0.0, round(value - self.used[name] - self.offered[name], 3))
            for name, value in self.total.items()
        }

    def free_revocable(self) -> float:
        """The same of revocable CPUs."""
        return max(0.0, round(self.revocable - self.used_revocable - self.offered["revocable"], 3))


@dataclass
class Sent:
    """An offer that is out."""

    offer_id: str
    agent: Agent
    framework: str
    amounts: dict[str, float]
    revocable: float


@dataclass
class Task:
    """A task, on its agent."""

    info: dict[str, Any]
    agent: Agent
    framework: str
    states: list[str]
    """What is still to come."""
    state: str = "TASK_STAGING"
    queue: list[dict[str, Any]] = field(default_factory=list)
    """Updates that wait for their acknowledgement, one after the other."""
    sent_s: float = 0.0
    started_s: float = 0.0
    lasts_s: float = 0.0
    executor: str = ""
    held: tuple[dict[str, float], float] = ({}, 0.0)
    container: str = field(default_factory=lambda: str(uuid.uuid4()))
    message: str = ""
    reachable: bool = True
    unreachable_ns: int = 0

    @property
    def task_id(self) -> str:
        return str(self.info["task_id"]["value"])

    @property
    def over(self) -> bool:
        return self.state in OVER


@dataclass
class Container:
    """An executor on its agent, for as long as it has tasks."""

    info: dict[str, Any]
    held: dict[str, float]
    revocable: float
    tasks: set[str] = field(default_factory=set)


class Runner(Protocol):
    """Runs the tasks of an agent for real, and notifies the master by `hear` how they fare."""

    def launch(self, task: Task) -> None: ...

    def kill(self, task: Task, kill: dict[str, Any]) -> None: ...

    def acknowledge(self, task: Task, status: dict[str, Any]) -> None: ...


@dataclass
class Framework:
    """A framework that has subscribed."""

    framework_id: str
    info: dict[str, Any]
    stream: str = ""
    writer: asyncio.StreamWriter | None = None
    active: bool = False
    removed: bool = False
    suppressed: bool = False
    filters: dict[tuple[str, float], float] = field(default_factory=dict)
    """(agent, CPUs) → until when it is not offered."""
    gone_s: float = 0.0


class Master:
    """One master and its agents. Public methods may be called from any thread."""

    def __init__(
        self,
        agents: int = 2,
        cpus: float = 2.0,
        mem: float = 1024.0,
        *,
        revocable: float = 0.0,
        heartbeat_s: float = 15.0,
        allocation_s: float = 0.05,
        resend_s: float = 10.0,
        task_s: Callable[[dict[str, Any]], float] = lambda info: 0.0,
        master_id: str = "",
        split: random.Random | None = None,
        credentials: dict[str, str] | None = None,
        version: str = "1.12.0",
        disk: float = 1024.0,
        host: str = "node{}",
        quiet: bool = False,
    ) -> None:
        """`task_s` reports how long a task runs (0: until it is killed); `split` cuts the stream into odd chunks;
        `credentials` are secrets by principal; `quiet` sends no updates of running tasks but the first, and does not
        look at each field of a call."""
        self.master_id = master_id or str(uuid.uuid4())
        self.heartbeat_s, self.allocation_s, self.resend_s = heartbeat_s, allocation_s, resend_s
        self.task_s, self.split, self.credentials, self.version = task_s, split, credentials, version
        self.quiet = quiet
        self.agents = [
            Agent(
                f"{uuid.uuid4()}-S{number}",
                host.format(number),
                5051 + number % 60_000,
                {"cpus": cpus, "mem": mem, "disk": disk},
                revocable,
            )
            for number in range(agents)
        ]
        self.by_id = {agent.agent_id: agent for agent in self.agents}
        self.frameworks: dict[str, Framework] = {}
        self.offers: dict[str, Sent] = {}
        self.offered_at: dict[str, float] = {}
        self.longest_out_s = 0.0
        """The longest time that an offer was out before it was accepted or declined."""
        self.tasks: dict[str, Task] = {}
        self.launches: Counter[str] = Counter()
        """How often each task id was launched."""
        self.containers: dict[tuple[str, str, str], Container] = {}
        """By agent, framework and executor."""
        self.runners: dict[str, Runner] = {}
        """By agent, where tasks do not run by the clock."""
        self.calls: Counter[str] = Counter()
        self.subscriptions = 0
        self.teardowns = 0
        self.messages: list[dict[str, Any]] = []
        self.refused: list[str] = []
        """Why calls were refused that no framework should make, in the order in which they came."""
        self.leader = ""
        """Another master to redirect to."""
        self.open = True
        """Executors say that they take guests."""
        self.unavailable = self.hanging = self.deaf = False
        self.accepted_s = 0.0
        """When the last task was launched."""
        self.port = 0
        self._next_offer = self._next_framework = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._changed = threading.Condition()

    # ------------------------------------------------------------------------------------------------------- life

    @contextlib.contextmanager
    def running(self, port: int = 0) -> Iterator[Master]:
        """Serve in a thread until the block is left."""
        ready = threading.Event()

        def serve() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._open(port))
            ready.set()
            self._loop.run_forever()

        thread = threading.Thread(target=serve, name="mesos-master", daemon=True)
        thread.start()
        if not ready.wait(300.0):
            raise RuntimeError("the master did not come up")
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(300.0)
            self._loop.close()

    async def _open(self, port: int) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 26)
        self.port = self._server.sockets[0].getsockname()[1]
        self._timers = [
            self._loop.create_task(self._beat()),
            self._loop.create_task(self._allocate()),
            self._loop.create_task(self._live()),
        ]

    async def _close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()
        await asyncio.sleep(0.01)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def until(self, true: Callable[[], Any], timeout_s: float = 300.0) -> bool:
        """Wait until something is so."""
        end = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > end:
                return False
            with self._changed:
                self._changed.wait(0.02)
        return True

    def _send(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def do(self, function: Callable[[], Any]) -> Any:
        """Have the master's own thread do something."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10.0)

    # ----------------------------------------------------------------------------------------------------- faults

    def disconnect(self, mid_record: bool = False) -> None:
        """Cut every subscription, perhaps in the middle of a record."""

        def cut() -> None:
            for framework in self.frameworks.values():
                if framework.writer is not None:
                    if mid_record:
                        framework.writer.write(
                            b'40\r\n132\n{"type":"OFFERS","offers":{"offers":[{"id":{"value":"x\r\n'
                        )
                    framework.writer.close()

        self.do(cut)

    def drop_everything(self) -> None:
        """Cut every connection, calls under way too."""
        self.do(lambda: [writer.transport.abort() for writer in list(self._writers)])

    def hang(self, hanging: bool = True) -> None:
        """Say nothing any more on streams that stay open."""
        self.hanging = hanging

    def rescind(self, count: int = 1) -> None:
        """Take offers back."""

        def take() -> None:
            for offer_id in list(self.offers)[:count]:
                self._rescind(offer_id)

        self.do(take)

    def lose_agent(self, agent: Agent) -> None:
        """The agent is not heard of any more: offers rescinded, tasks unreachable, the agent removed."""

        def lose() -> None:
            agent.alive = False
            for offer_id, sent in list(self.offers.items()):
                if sent.agent is agent:
                    self._rescind(offer_id)
            for task in self.tasks.values():
                if task.agent is agent and not task.over:
                    task.reachable = False
                    task.unreachable_ns = time.time_ns()
                    self._event(task.framework, self._master_update(task, "TASK_UNREACHABLE"))
            for framework in self.frameworks.values():
                failure = {"type": "FAILURE", "failure": {"agent_id": {"value": agent.agent_id}}}
                self._event(framework.framework_id, failure)

        self.do(lose)

    def find_agent(self, agent: Agent) -> None:
        """It is back, with its tasks."""

        def find() -> None:
            agent.alive = True
            for task in self.tasks.values():
                if task.agent is agent and not task.reachable:
                    task.reachable = True
                    if not task.over:
                        self._event(task.framework, self._reconciled(task))

        self.do(find)

    def end_task(self, task_id: str, state: str, message: str = "", **more: Any) -> None:
        """A task ends so."""

        def end() -> None:
            task = self.tasks[task_id]
            task.states, task.message = [], message
            self._advance(task, state, **more)

        self.do(end)

    def restart(self) -> None:
        """A new leader knows agents and tasks, but no offers and no streams; frameworks must subscribe again."""

        def begin() -> None:
            for framework in self.frameworks.values():
                if framework.writer is not None:
                    framework.writer.close()
                framework.active, framework.stream, framework.writer = False, "", None
            for offer_id in list(self.offers):
                self._done_with(offer_id)

        self.do(begin)

    def running_tasks(self) -> list[str]:
        """Those that have not ended."""
        return [task_id for task_id, task in list(self.tasks.items()) if not task.over]

    # ------------------------------------------------------------------------------------------------------- HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *rest = head.decode("latin-1").split("\r\n")
                headers = {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in rest if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if self.deaf:
                    await asyncio.sleep(3600)
                framework = self._answer(first, headers, body, writer)
                if framework is not None:
                    await self._stay(framework, reader, writer)
                    return
                await writer.drain()
                if headers.get("connection", "").lower() == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _stay(
        self, framework: Framework, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until the subscriber is gone."""
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        if framework.writer is writer:
            framework.active, framework.writer = False, None
            framework.gone_s = time.monotonic()
            self._withdraw(framework.framework_id)
        self._send()

    def _reply(self, writer: asyncio.StreamWriter, status: str, text: str = "", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", f"Date: {email.utils.formatdate(usegmt=True)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if text:
            lines.append("Content-Type: text/plain; charset=utf-8")
        lines.append(f"Content-Length: {len(text.encode())}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n" + text).encode())

    def _answer(
        self, first: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> Framework | None:
        """Answer a request; the framework if it is to stay on the line."""
        method, path, _ = (*first.split(" "), "", "")[:3]
        if path == "/double":
            self._reply(writer, "200 OK", json.dumps(self.figures()))
            return None
        if path == "/version":
            self._reply(writer, "200 OK", json.dumps({"version": self.version}))
            return None
        if self.unavailable:
            self._reply(writer, "503 Service Unavailable", "No leader elected")
            return None
        if self.leader:
            self._reply(writer, "307 Temporary Redirect", Location=f"//{self.leader}{path}")
            return None
        principal = ""
        if self.credentials is not None:
            principal = self._principal(headers.get("authorization", ""))
            if not principal:
                self._reply(
                    writer,
                    "401 Unauthorized",
                    WWW_Authenticate='Basic realm="mesos-master-scheduler"',
                )
                return None
        if path != "/api/v1/scheduler" or method != "POST":
            self._reply(writer, "404 Not Found")
            return None
        try:
            call = orjson.loads(body)
        except ValueError as error:
            self._reply(writer, "400 Bad Request", f"Failed to parse body into JSON: {error}")
            return None
        kind = call.get("type")
        status, why = refused_headers(headers, str(kind))
        if not why:
            status, why = "400 Bad Request", self._refused(call, principal)
        if why:
            self.refused.append(why)
            self._reply(writer, status, why)
            return None
        self.calls[kind] += 1
        if kind == "SUBSCRIBE":
            return self._subscribe(call, writer)
        framework_id = str(call["framework_id"]["value"])
        framework = self.frameworks.get(framework_id)
        if framework is None or framework.removed:
            self._reply(writer, "400 Bad Request", "Framework cannot be found")
            return None
        if not framework.active:
            self._reply(writer, "403 Forbidden", "Framework is not subscribed")
            return None
        if "mesos-stream-id" not in headers:
            text = "All non-subscribe calls should include the 'Mesos-Stream-Id' header"
            self._reply(writer, "400 Bad Request", text)
            return None
        if headers["mesos-stream-id"] != framework.stream:
            text = STREAM_MISMATCH.format(stream=headers["mesos-stream-id"], framework=framework_id)
            self._reply(writer, "400 Bad Request", text)
            return None
        self._reply(writer, "202 Accepted")
        getattr(self, f"_on_{kind.lower()}")(framework, call)
        self._send()
        return None

    def _refused(self, call: dict[str, Any], principal: str) -> str:
        """Why a call is no valid one; empty if it is."""
        kind = call.get("type")
        invalid = "Failed to validate scheduler::Call"
        if kind not in CALLS:
            return f"{invalid}: Expecting 'type' to be present"
        if not self.quiet and (why := misfit(call, "Call")):
            return f"Failed to convert JSON into Call protobuf: {why}"
        if why := refused_call(call):
            return f"{invalid}: {why}"
        if kind != "SUBSCRIBE":
            return "" if "framework_id" in call else f"{invalid}: Expecting 'framework_id' to be present"
        seen = call["subscribe"]["framework_info"].get("principal", principal)
        if principal and seen != principal:
            why = f"Authenticated principal '{principal}' does not match principal '{seen}' set in `FrameworkInfo`"
            return f"{invalid}: {why}"
        return ""

    def _principal(self, authorization: str) -> str:
        with contextlib.suppress(ValueError):
            scheme, _, coded = authorization.partition(" ")
            name, _, secret = base64.b64decode(coded).decode().partition(":")
            if scheme == "Basic" and (self.credentials or {}).get(name) == secret:
                return name
        return ""

    # --------------------------------------------------------------------------------------------------- the stream

    def _subscribe(self, call: dict[str, Any], writer: asyncio.StreamWriter) -> Framework | None:
        self.subscriptions += 1
        info = call["subscribe"]["framework_info"]
        stream = str(uuid.uuid4())
        head = (
            f"HTTP/1.1 200 OK\r\nDate: {email.utils.formatdate(usegmt=True)}\r\nTransfer-Encoding: chunked\r\n"
            f"Mesos-Stream-Id: {stream}\r\nContent-Type: application/json\r\n\r\n"
        )
        writer.write(head.encode())
        given = call.get("framework_id", {}).get("value", "")
        framework = self.frameworks.get(given) if given else None
        error = refused_framework(info, framework.info if framework is not None else None)
        if not error and framework is not None and framework.removed:
            error = "Framework has been removed"
        if error:
            self._write(writer, {"type": "ERROR", "error": {"message": error}})
            writer.write(b"0\r\n\r\n")
            return None
        if framework is None:
            framework_id = given or f"{self.master_id}-{self._next_framework:04d}"
            self._next_framework += 1
            framework = self.frameworks[framework_id] = Framework(framework_id, info)
        elif framework.writer is not None:
            self._write(framework.writer, {"type": "ERROR", "error": {"message": "Framework failed over"}})
            framework.writer.write(b"0\r\n\r\n")
            framework.writer.close()
        self._withdraw(framework.framework_id)
        framework.info, framework.stream, framework.writer, framework.active = info, stream, writer, True
        framework.filters.clear()
        suppressed = set(call["subscribe"].get("suppressed_roles", ()))
        framework.suppressed = bool(suppressed) and suppressed >= set(info.get("roles", ()))
        ip, port = "127.0.0.1", self.port
        self._write(
            writer,
            {
                "type": "SUBSCRIBED",
                "subscribed": {
                    "framework_id": {"value": framework.framework_id},
                    "heartbeat_interval_seconds": self.heartbeat_s,
                    "master_info": {
                        "id": self.master_id,
                        "ip": 16777343,
                        "port": port,
                        "pid": f"master@{ip}:{port}",
                        "hostname": ip,
                        "version": self.version,
                        "address": {"hostname": ip, "ip": ip, "port": port},
                        "capabilities": [
                            {"type": "AGENT_UPDATE"},
                            {"type": "AGENT_DRAINING"},
                            {"type": "QUOTA_V2"},
                        ],
                    },
                },
            },
        )
        self._write(writer, {"type": "HEARTBEAT"})
        for task in self.tasks.values():
            if task.framework == framework.framework_id:
                task.sent_s = 0.0  # updates come again after a reconnect
        self._send()
        return framework

    def _write(self, writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
        text = orjson.dumps(event)
        record = str(len(text)).encode() + b"\n" + text
        pieces = [record]
        if self.split is not None:
            cuts = sorted(self.split.randrange(1, len(record)) for _ in range(self.split.randrange(4)))
            pieces = [record[a:b] for a, b in zip([0, *cuts], [*cuts, len(record)], strict=True) if b > a]
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")

    def _event(self, framework_id: str, event: dict[str, Any]) -> bool:
        framework = self.frameworks.get(framework_id)
        if framework is None or framework.writer is None or self.hanging or framework.writer.is_closing():
            return False
        self._write(framework.writer, event)
        return True

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_s)
            for framework in list(self.frameworks.values()):
                self._event(framework.framework_id, {"type": "HEARTBEAT"})

    # ------------------------------------------------------------------------------------------------------- offers

    async def _allocate(self) -> None:
        while True:
            await asyncio.sleep(self.allocation_s)
            if not self.hanging:
                self._allocate_now()

    def _allocate_now(self) -> None:
        now = time.monotonic()
        for framework in list(self.frameworks.values()):
            if not framework.active or framework.suppressed or framework.writer is None:
                continue
            made = []
            for agent in self.agents:
                if not agent.alive:
                    continue
                free = agent.free()
                revocable = agent.free_revocable()
                if free["cpus"] + revocable < 0.01 and free["mem"] < 32:
                    continue
                if framework.filters.get((agent.agent_id, free["cpus"] + revocable), 0.0) > now:
                    continue
                made.append(self._make_offer(framework, agent, free, revocable))
            for at in range(0, len(made), 500):
                self._event(
                    framework.framework_id, {"type": "OFFERS", "offers": {"offers": made[at : at + 500]}}
                )

    def _make_offer(
        self, framework: Framework, agent: Agent, free: dict[str, float], revocable: float
    ) -> dict[str, Any]:
        offer_id = f"{self.master_id}-O{self._next_offer}"
        self._next_offer += 1
        wanted = {capability["type"] for capability in framework.info.get("capabilities", [])}
        if "REVOCABLE_RESOURCES" not in wanted:
            revocable = 0.0
        amounts = free | {"ports": float(not agent.offered["ports"])}
        self.offers[offer_id] = Sent(offer_id, agent, framework.framework_id, amounts, revocable)
        self.offered_at[offer_id] = time.monotonic()
        whole = not agent.offered["ports"]
        agent.offered.update(free)
        agent.offered["revocable"] += revocable
        agent.offered["ports"] += whole
        role = framework.info.get("roles", ["*"])[0]

        def scalar(name: str, value: float, **more: Any) -> dict[str, Any]:
            return {
                "name": name,
                "type": "SCALAR",
                "scalar": {"value": value},
                "role": agent.role,
                "allocation_info": {"role": role},
                **more,
            }

        ports = {
            "name": "ports",
            "type": "RANGES",
            "ranges": {"range": [{"begin": 31000, "end": 31099}]},
            "role": agent.role,
            "allocation_info": {"role": role},
        }
        resources = ([ports] if whole else []) + [
            scalar(name, value) for name, value in free.items() if value > 0
        ]
        if revocable > 0:
            resources.append(scalar("cpus", revocable, revocable={}))
        offer = {
            "id": {"value": offer_id},
            "framework_id": {"value": framework.framework_id},
            "agent_id": {"value": agent.agent_id},
            "hostname": agent.host,
            "url": {
                "scheme": "http",
                "address": {"hostname": agent.host, "ip": "127.0.0.1", "port": agent.port},
                "path": "/slave(1)",
            },
            "resources": resources,
            "allocation_info": {"role": role},
        }
        if agent.attributes:
            offer["attributes"] = [
                {"name": name, "type": "TEXT", "text": {"value": value}}
                for name, value in agent.attributes.items()
            ]
        return offer

    def _done_with(self, offer_id: str) -> Sent | None:
        sent = self.offers.pop(offer_id, None)
        if sent is not None:
            offered = sent.agent.offered
            offered.subtract(sent.amounts)
            offered["revocable"] -= sent.revocable
            self.longest_out_s = max(self.longest_out_s, time.monotonic() - self.offered_at.pop(offer_id))
        return sent

    def _rescind(self, offer_id: str) -> None:
        sent = self._done_with(offer_id)
        if sent is not None:
            self._event(sent.framework, {"type": "RESCIND", "rescind": {"offer_id": {"value": offer_id}}})

    def _withdraw(self, framework_id: str) -> None:
        """Offers of a framework that is gone are nobody's."""
        for offer_id, sent in list(self.offers.items()):
            if sent.framework == framework_id:
                self._done_with(offer_id)

    def _filter(self, framework: Framework, sent: Sent, call: dict[str, Any]) -> None:
        seconds = float(call.get("filters", {}).get("refuse_seconds", 5.0))
        if seconds > 0:
            key = (sent.agent.agent_id, sent.agent.free()["cpus"] + sent.agent.free_revocable())
            framework.filters[key] = time.monotonic() + seconds

    # -------------------------------------------------------------------------------------------------------- calls

    def _on_decline(self, framework: Framework, call: dict[str, Any]) -> None:
        for offer in call["decline"]["offer_ids"]:
            sent = self._done_with(offer["value"])
            if sent is not None:
                self._filter(framework, sent, call["decline"])

    def _on_revive(self, framework: Framework, call: dict[str, Any]) -> None:
        framework.suppressed = False
        framework.filters.clear()

    def _on_suppress(self, framework: Framework, call: dict[str, Any]) -> None:
        framework.suppressed = True

    def _on_accept(self, framework: Framework, call: dict[str, Any]) -> None:
        body = call["accept"]
        ids = [offer["value"] for offer in body["offer_ids"]]
        invalid = next((offer_id for offer_id in ids if offer_id not in self.offers), None)
        given = [sent for sent in map(self._done_with, ids) if sent is not None]
        if invalid is None and len({sent.agent.agent_id for sent in given}) > 1:
            invalid = ids[0]
            why = "Aggregated offers must belong to one single agent"
        else:
            why = f"Offer {invalid} is no longer valid"
        infos = [
            info
            for operation in body.get("operations", [])
            if operation["type"] == "LAUNCH"
            for info in operation["launch"]["task_infos"]
        ]
        left: Counter[str] = Counter()
        soft = 0.0
        for sent in given:
            left.update(sent.amounts)
            soft += sent.revocable
        for info in infos:
            if invalid is not None:
                self._refuse_task(
                    framework, info, "TASK_DROPPED", f"Task launched with invalid offers: {why}"
                )
                continue
            agent = given[0].agent
            resources = list(info["resources"])
            executor = info.get("executor")
            known = None
            if executor is not None:
                key = (agent.agent_id, framework.framework_id, executor["executor_id"]["value"])
                known = self.containers.get(key)
            own = [] if executor is None or known is not None else executor.get("resources", [])
            wanted, revocable = _amounts(resources, agent.role)
            of_executor, soft_executor, total = {}, 0.0, wanted
            if own:
                of_executor, soft_executor = _amounts(own, agent.role)
                total = {
                    name: wanted.get(name, 0.0) + of_executor.get(name, 0.0) for name in wanted | of_executor
                }
            short = any(value > left[name] + 1e-6 for name, value in total.items())
            text = refused_resources(resources, [] if executor is None else executor.get("resources", []))
            if not resources:
                text = "Task uses no resources"
            elif info["task_id"]["value"] in self.tasks and not self.tasks[info["task_id"]["value"]].over:
                text = f"Task has duplicate ID: {info['task_id']['value']}"
            elif info["agent_id"]["value"] != agent.agent_id:
                text = f"Task uses invalid agent {info['agent_id']['value']} while agent {agent.agent_id} is expected"
            elif (executor is None) == ("command" not in info):
                text = "Task should have at least one (but not both) of CommandInfo or ExecutorInfo present"
            elif executor is not None and (wrong := refused_executor(executor, framework.framework_id)):
                text = wrong
            elif known is not None and known.info != executor:
                text = "ExecutorInfo is not compatible with existing ExecutorInfo with same ExecutorID"
            elif short or revocable + soft_executor > soft + 1e-6:
                text = f"Task uses more resources {dict(total)} than available {dict(left)}"
            if text:
                self._refuse_task(framework, info, "TASK_ERROR", text, "REASON_TASK_INVALID")
                continue
            left.subtract(total)
            soft -= revocable + soft_executor
            if executor is not None and known is None:
                self.containers[key] = Container(executor, of_executor, soft_executor)
                agent.used.update(of_executor)
                agent.used_revocable += soft_executor
            self._launch(framework, agent, info, wanted, revocable)
        for sent in given:
            self._filter(framework, sent, body)

    def _refuse_task(
        self,
        framework: Framework,
        info: dict[str, Any],
        state: str,
        message: str,
        reason: str = "REASON_INVALID_OFFERS",
    ) -> None:
        status = {
            "task_id": {"value": info["task_id"]["value"]},
            "state": state,
            "message": message,
            "source": "SOURCE_MASTER",
            "reason": reason,
            "agent_id": info["agent_id"],
            "timestamp": time.time(),
        }
        self._event(framework.framework_id, {"type": "UPDATE", "update": {"status": status}})

    def _launch(
        self,
        framework: Framework,
        agent: Agent,
        info: dict[str, Any],
        wanted: dict[str, float],
        revocable: float,
    ) -> None:
        task_id = str(info["task_id"]["value"])
        self.launches[task_id] += 1
        executor = info.get("executor", {}).get("executor_id", {}).get("value", task_id)
        runner = self.runners.get(agent.agent_id)
        lasts_s = self.task_s(info)
        states = ["TASK_STARTING", "TASK_RUNNING"] + (["TASK_FINISHED"] if lasts_s > 0 else [])
        task = Task(info, agent, framework.framework_id, ["TASK_RUNNING"] if self.quiet else states)
        task.executor, task.held = executor, (wanted, revocable)
        task.lasts_s = lasts_s
        task.started_s = self.accepted_s = time.monotonic()
        self.tasks[task_id] = task
        agent.used.update(wanted)
        agent.used_revocable += revocable
        container = self.containers.get((agent.agent_id, framework.framework_id, executor))
        if container is not None:
            container.tasks.add(task_id)
        if runner is not None:
            task.states = []
            runner.launch(task)
        elif len(task.states) == 1:
            self._advance(task, task.states.pop(0))

    def _on_kill(self, framework: Framework, call: dict[str, Any]) -> None:
        task_id = str(call["kill"]["task_id"]["value"])
        task = self.tasks.get(task_id)
        if task is None:
            self._event(framework.framework_id, self._unknown(task_id))
        elif not task.reachable:
            self._event(task.framework, self._master_update(task, "TASK_UNREACHABLE"))
        elif task.over:
            self._event(task.framework, self._reconciled(task))
        elif task.agent.agent_id in self.runners:
            self.runners[task.agent.agent_id].kill(task, call["kill"])
        else:
            task.states = []
            task.message = "Command terminated with signal Terminated"
            self._advance(task, "TASK_KILLED")

    def _on_acknowledge(self, framework: Framework, call: dict[str, Any]) -> None:
        body = call["acknowledge"]
        task = self.tasks.get(str(body["task_id"]["value"]))
        if task is not None and task.queue and task.queue[0]["uuid"] == body["uuid"]:
            status = task.queue.pop(0)
            if task.agent.agent_id in self.runners:
                self.runners[task.agent.agent_id].acknowledge(task, status)
            if task.queue:
                self._send_first(task)

    def _on_reconcile(self, framework: Framework, call: dict[str, Any]) -> None:
        asked = [task["task_id"]["value"] for task in call["reconcile"].get("tasks", [])]
        mine = [
            task_id
            for task_id, task in self.tasks.items()
            if task.framework == framework.framework_id and not (task.over and not task.queue)
        ]
        for task_id in asked or mine:
            task = self.tasks.get(task_id)
            if task is None or task.framework != framework.framework_id:
                self._event(framework.framework_id, self._unknown(task_id))
            elif not task.reachable:
                self._event(framework.framework_id, self._master_update(task, "TASK_UNREACHABLE"))
            else:
                self._event(framework.framework_id, self._reconciled(task))

    def _on_message(self, framework: Framework, call: dict[str, Any]) -> None:
        self.messages.append(call["message"])

    def _on_teardown(self, framework: Framework, call: dict[str, Any]) -> None:
        self.teardowns += 1
        self._remove(framework)

    def _remove(self, framework: Framework) -> None:
        framework.removed, framework.active = True, False
        self._withdraw(framework.framework_id)
        if framework.writer is not None:
            framework.writer.write(b"0\r\n\r\n")
            framework.writer.close()
            framework.writer = None
        for task in self.tasks.values():
            if task.framework == framework.framework_id and not task.over:
                task.state = "TASK_KILLED"
                self._free(task)

    def remove_framework(self, framework_id: str) -> None:
        """As if it had been away for longer than its failover timeout."""
        self.do(lambda: self._remove(self.frameworks[framework_id]))

    # -------------------------------------------------------------------------------------------------------- tasks

    def _free(self, task: Task) -> None:
        held, revocable = task.held
        task.held = ({}, 0.0)
        task.agent.used.subtract(held)
        task.agent.used_revocable -= revocable
        key = (task.agent.agent_id, task.framework, task.executor)
        container = self.containers.get(key)
        if container is not None:
            container.tasks.discard(task.task_id)
            if not container.tasks:
                del self.containers[key]
                task.agent.used.subtract(container.held)
                task.agent.used_revocable -= container.revocable

    def hear(self, task_id: str, status: dict[str, Any]) -> None:
        """What an executor says of its task, with its own uuid."""

        def take() -> None:
            task = self.tasks[task_id]
            more = {
                key: status[key] for key in ("message", "labels", "uuid", "source", "reason") if key in status
            }
            self._advance(task, status["state"], **more)

        self._loop.call_soon_threadsafe(take)

    def _advance(self, task: Task, state: str, **more: Any) -> None:
        """The task comes to a state, and its agent reports it until that is acknowledged."""
        if task.over:
            return
        task.state = state
        status = {
            "task_id": {"value": task.task_id},
            "state": state,
            **({"message": task.message} if task.message else {}),
            **({"message": "Command exited with status 0"} if state == "TASK_FINISHED" else {}),
            "source": "SOURCE_EXECUTOR",
            "agent_id": {"value": task.agent.agent_id},
            "executor_id": {"value": task.executor},
            "timestamp": time.time(),
            "uuid": base64.b64encode(uuid.uuid4().bytes).decode(),
            "container_status": self._container(task),
            **more,
        }
        if state == "TASK_RUNNING" and "executor" in task.info and self.open:  # as our executor says it
            status.setdefault("labels", {"labels": [{"key": "guests", "value": "yes"}]})
        if task.over:
            self._free(task)
        task.queue.append(status)
        if len(task.queue) == 1:
            self._send_first(task)
        self._send()

    def _send_first(self, task: Task) -> None:
        task.sent_s = time.monotonic()
        self._event(task.framework, {"type": "UPDATE", "update": {"status": task.queue[0]}})

    def _container(self, task: Task) -> dict[str, Any]:
        return {
            "container_id": {"value": task.container},
            "network_infos": [{"ip_addresses": [{"protocol": "IPv4", "ip_address": "127.0.0.1"}]}],
            "executor_pid": 26968,
        }

    def _master_update(self, task: Task, state: str) -> dict[str, Any]:
        status: dict[str, Any] = {
            "task_id": {"value": task.task_id},
            "state": state,
            "message": "Reconciliation: Task is unreachable",
            "source": "SOURCE_MASTER",
            "reason": "REASON_RECONCILIATION",
            "agent_id": {"value": task.agent.agent_id},
            "timestamp": time.time(),
        }
        if state == "TASK_UNREACHABLE":
            status["unreachable_time"] = {"nanoseconds": task.unreachable_ns}
        return {"type": "UPDATE", "update": {"status": status}}

    def _reconciled(self, task: Task) -> dict[str, Any]:
        status = {
            "task_id": {"value": task.task_id},
            "state": task.state,
            "message": "Reconciliation: Latest task state",
            "source": "SOURCE_MASTER",
            "reason": "REASON_RECONCILIATION",
            "agent_id": {"value": task.agent.agent_id},
            "timestamp": time.time(),
            "container_status": self._container(task),
        }
        return {"type": "UPDATE", "update": {"status": status}}

    def _unknown(self, task_id: str) -> dict[str, Any]:
        status = {
            "task_id": {"value": task_id},
            "state": "TASK_UNKNOWN",
            "message": "Reconciliation: Task is unknown",
            "source": "SOURCE_MASTER",
            "reason": "REASON_RECONCILIATION",
            "timestamp": time.time(),
        }
        return {"type": "UPDATE", "update": {"status": status}}

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(0.02 if len(self.tasks) < 2000 else 0.25)
            now = time.monotonic()
            for task in list(self.tasks.values()):
                if task.queue and now - task.sent_s > self.resend_s and task.reachable:
                    self._send_first(task)
                if task.states and task.reachable:
                    due = task.states[0] != "TASK_FINISHED" or now - task.started_s >= task.lasts_s
                    if due:
                        self._advance(task, task.states.pop(0))
            for framework in self.frameworks.values():
                away = framework.writer is None and framework.gone_s and not framework.removed
                if away and now - framework.gone_s > float(framework.info.get("failover_timeout", 0.0)):
                    self._remove(framework)

    def figures(self) -> dict[str, Any]:
        """For whoever asks over HTTP."""
        return {
            "launched": len(self.launches),
            "twice": sum(count > 1 for count in self.launches.values()),
            "longest_out_s": self.longest_out_s,
            "accepted_s": self.accepted_s,
            "calls": dict(self.calls),
            "offers": self._next_offer,
        }


def _amounts(resources: list[dict[str, Any]], role: str) -> tuple[dict[str, float], float]:
    """Regular resources by name, and revocable CPUs."""
    wanted: dict[str, float] = {}
    revocable = 0.0
    for resource in resources:
        if resource.get("role", "*") not in ("*", role):
            wanted["wrong role"] = 1.0
        name, value = resource["name"], resource["scalar"]["value"]
        if "revocable" in resource:
            revocable += value
        else:
            wanted[name] = wanted.get(name, 0.0) + value
    return wanted, revocable


def main() -> None:
    """Serve until stdin ends; the first line on stdout is the address."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--cpus", type=float, default=2.0)
    parser.add_argument("--mem", type=float, default=1024.0)
    parser.add_argument("--quiet", action="store_true")
    given = parser.parse_args()
    master = Master(given.agents, given.cpus, given.mem, quiet=given.quiet, allocation_s=1.0)
    with master.running():
        print(master.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()

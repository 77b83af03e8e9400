"""The daemon's end of the connections to its node actors.

It runs an event loop in a thread of its own; nothing that the other ends do, or fail to do, holds up the caller for
longer than `announce` may wait. A connection costs memory and nothing else; what waits to be sent is bounded.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import resource
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, cast

from asad.api.listening import LoopThread, listening
from asad.api.wire import (
    MAX_FRAME_BYTES,
    MAX_GREETING_BYTES,
    Answer,
    Authenticator,
    Frames,
    Message,
    WireError,
    frame,
    lease_to_json,
    node_name,
    pack,
    parse_address,
    report_from_json,
    unpack,
)
from asad.model import Json
from asad.port import Lease, NodeReport

log = logging.getLogger(__name__)

PING_S = 5.0
"""An end that has been sent nothing for so long is informed that we live; it answers."""
SILENCE_S = 4 * PING_S
"""An end that says nothing for so long is gone."""
GREETING_S = 10.0
"""Within this a connection proves who it is."""
WRITE_S = 5.0
"""An end that takes nothing for so long is let go; it will come back."""
STRANGERS = 4096
"""Connections that have not proved who they are; above it the oldest go."""
AUDIT_ROWS = 10_000
LATEST_S = 1e12
"""No audit is of a later time."""
BUFFER_BYTES = 256 << 10
ANNOUNCEMENTS = 256


class NodeServer:
    """The daemon's end; the `NodeLink` that cluster plugins see.

    `listen` is host:port (port 0: any; `address` reports), `lease_s` how long a granted lease holds without renewal,
    `answer_s` how long an announcement may wait for all nodes together, `clock` the daemon's (UTC epoch, s); silence
    is measured by the monotonic clock. `audit` holds the last rows that actors reported, oldest first, to be drained by
    `popleft`; `refused` counts connections closed because the other end did not prove who it is, or talked nonsense.
    """

    def __init__(
        self,
        listen: str,
        auth: Authenticator,
        lease_s: float,
        answer_s: float = 2.0,
        clock: Callable[[], float] = time.time,
        *,
        patience_s: float = 60.0,
        identity: tuple[str, int] = ("", 0),
        greeting_s: float = GREETING_S,
        write_s: float = WRITE_S,
    ) -> None:
        self.host, self.port = parse_address(listen, "[nodes] listen")
        self.auth, self.lease_s, self.answer_s, self.clock = auth, lease_s, answer_s, clock
        self.patience_s = patience_s
        """So long an offer stays open: actors count its job as a guest for not much longer."""
        self.identity = identity
        """Name and epoch of this daemon; without a name any other one is obeyed before it."""
        self._refusing: set[str] = set()
        self.greeting_s, self.write_s = greeting_s, write_s
        self.audit: deque[Message] = deque(maxlen=AUDIT_ROWS)
        self.refused = 0
        self.address = (self.host, self.port)
        self._loop = LoopThread("asad-nodes")
        self._workers = concurrent.futures.ThreadPoolExecutor(4, "asad-nodes-auth")
        self._strangers: dict[_Connection, None] = {}
        self._nodes: dict[str, _Connection] = {}
        self._reports: dict[str, tuple[float, NodeReport]] = {}
        self._known: dict[str, float] = {}
        self._notes: dict[int, _Note] = {}
        self._note_number = 0

    # -------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Listen. Raises WireError, naming the setting, if that address cannot be had."""
        _raise_file_limit()
        try:
            self._loop.start(self._serving())
        except OSError as error:
            raise WireError(
                f"[nodes] listen: {self.host}:{self.port} cannot be had: {error.strerror or error}"
            ) from None

    def stop(self) -> None:
        """Close every connection. Leases that are out run out by themselves."""
        self._loop.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self, loop), self.host, self.port, backlog=1024)
        self.address = server.sockets[0].getsockname()[:2]
        sweeper = loop.create_task(self._sweep())
        async with listening(server):
            yield
            sweeper.cancel()
        for connection in [*self._strangers, *self._nodes.values()]:
            connection.close("the daemon stops")

    async def _sweep(self) -> None:
        """Once a second: close what proves nothing, takes nothing or is gone; ping where nothing was stated."""
        while True:
            await asyncio.sleep(min(1.0, self.greeting_s / 2, self.write_s / 2))
            now = time.monotonic()
            for connection in list(self._strangers):
                if now - connection.opened > self.greeting_s:
                    self.refuse(connection, f"it did not prove who it is within {self.greeting_s:.0f} s")
            for connection in list(self._nodes.values()):
                if connection.stuck_since is not None and now - connection.stuck_since > self.write_s:
                    connection.close(f"it took nothing for {self.write_s:.0f} s")
                elif now - connection.heard > SILENCE_S:
                    connection.close(f"it said nothing for {SILENCE_S:.0f} s")
                elif now - connection.reported > PING_S:
                    connection.send({"kind": "ping"})

    # ------------------------------------------------------------------------------------ what others ask

    def reports(self) -> Mapping[str, NodeReport]:
        """The latest report of every node that has sent one within the lease."""
        oldest = time.monotonic() - self.lease_s
        return {node: report for node, (at, report) in list(self._reports.items()) if at >= oldest}

    @property
    def connected(self) -> list[str]:
        """Nodes whose actors are connected now."""
        return sorted(self._nodes.copy())

    def silent(self) -> list[str]:
        """Nodes whose actors have been here since the daemon started, and have sent nothing within the lease."""
        return sorted(self._known.copy().keys() - self.reports().keys())

    @property
    def superseded(self) -> bool:
        """Do most of the nodes that are connected obey another daemon, which was started later?"""
        nodes = self._nodes.copy()
        return bool(nodes) and 2 * len(self._refusing & nodes.keys()) > len(nodes)

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """Notify the actors of these nodes that a job will come as a guest; did all note it within `answer_s`?"""
        done: concurrent.futures.Future[bool] = concurrent.futures.Future()
        try:
            return self._loop.call(self._announce, list(node_names), job_id, done) and done.result(
                self.answer_s
            )
        except TimeoutError:
            return False

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """Send every node what holds there for the next `lease_s`. Does not wait."""
        self._loop.call(self._grant, {node: tuple(held) for node, held in leases.items()})

    # ---------------------------------------------------------------------------- in the event loop's thread

    def _announce(self, node_names: list[str], job_id: str, done: concurrent.futures.Future[bool]) -> None:
        connections = [self._nodes.get(node) for node in node_names]
        if None in connections:
            done.set_result(False)
            return
        self._note_number += 1
        number = self._note_number
        note = _Note(set(node_names), done)
        if not note.waits_for:
            done.set_result(True)
            return
        self._notes[number] = note
        asyncio.get_running_loop().call_later(self.answer_s, self._notes.pop, number, None)
        for connection in cast("list[_Connection]", connections):
            connection.lease_is_news()
            message: Message = {
                "kind": "announce",
                "id": number,
                "job": job_id,
                "patience_s": self.patience_s,
            }
            if not connection.send(message):
                note.settle(False)

    def _grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        for node, connection in self._nodes.items():
            connection.lease([lease_to_json(lease) for lease in leases.get(node, ())])

    def came(self, connection: _Connection) -> None:
        """A new connection, of a stranger so far."""
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS:
            self.refuse(next(iter(self._strangers)), "too many connections prove nothing")

    def proved(self, connection: _Connection) -> None:
        """The actor of `connection.node` has sent its first sealed frame; a connection it had before is dead."""
        del self._strangers[connection]
        before = self._nodes.get(connection.node)
        self._nodes[connection.node] = connection
        self._known[connection.node] = time.monotonic()
        if before is not None:
            before.close("its node connected anew")
        self._refusing.discard(connection.node)
        daemon, epoch = self.identity
        if daemon:
            connection.send({"kind": "daemon", "daemon": daemon, "epoch": epoch})
        log.info("node %s connected from %s", connection.node, connection.peer)

    def left(self, connection: _Connection, why: str) -> None:
        """The connection is closed."""
        self._strangers.pop(connection, None)
        if self._nodes.get(connection.node) is connection:
            del self._nodes[connection.node]
            log.info("node %s left: %s", connection.node, why)
            for note in list(self._notes.values()):
                if connection.node in note.waits_for:
                    note.settle(False)

    def refuse(self, connection: _Connection, why: str) -> None:
        """Close a connection whose other end is not to be believed."""
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:  # strangers cannot fill the log: the 1st, 2nd, 4th, 8th …
            log.warning("connection from %s refused (%d so far): %s", connection.peer, self.refused, why)
        connection.close(why)

    def heard(self, connection: _Connection, message: Message) -> None:
        """A message of a node's actor. Raises WireError for nonsense; kinds that we do not know are let be."""
        kind, node = message.get("kind"), connection.node
        if kind in ("hello", "report") and message.get("node", node) != node:
            raise WireError(f"the actor of {node} speaks for {node_name(message['node'])}")
        if kind == "hello":
            if message.get("cgroup") not in (0, 1, 2):
                raise WireError(f"cgroup version {message.get('cgroup')!r:.40} is neither 1 nor 2")
            connection.cgroup = cast("int", message["cgroup"]) or connection.cgroup
            version = message.get("version")
            connection.version = version[:64] if isinstance(version, str) else ""
        elif kind == "report":
            report = report_from_json(message, node, connection.cgroup, self.clock())
            self._reports[node] = (time.monotonic(), report)
        elif kind == "audit":
            rows = message.get("rows")
            if not isinstance(rows, list) or len(rows) > AUDIT_ROWS:
                raise WireError("an audit has no rows")
            self.audit.extend(_audit_row(row, node) for row in rows)
        elif kind == "refused":
            if node not in self._refusing:
                log.warning("node %s obeys another daemon: %s", node, str(message.get("daemon"))[:64])
            self._refusing.add(node)
        elif kind == "noted":
            number = message.get("id")
            note = self._notes.get(number) if isinstance(number, int) else None
            if note is not None:
                note.waits_for.discard(node)
                if not note.waits_for:
                    note.settle(True)


class _Note:
    """An announcement, until all nodes have noted it."""

    def __init__(self, waits_for: set[str], done: concurrent.futures.Future[bool]) -> None:
        self.waits_for, self._done = waits_for, done

    def settle(self, noted: bool) -> None:
        if not self._done.done():
            self._done.set_result(noted)


class _Connection(asyncio.Protocol):
    """One connection of the server: new → checking → greeted → open, or closed at any time."""

    state: Literal["new", "checking", "greeted", "open", "closed"]

    def __init__(self, server: NodeServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self._loop = server, loop
        self.state = "new"
        self.node = self.version = self.peer = ""
        self.cgroup = 2
        self.opened = self.heard = self.reported = time.monotonic()
        self.stuck_since: float | None = None
        self._frames = Frames(MAX_GREETING_BYTES)
        self._early: bytes | None = None
        self._waiting: deque[Message] = deque()
        self._lease: list[Json] | None = None
        self._lease_reported: bool | None = None

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str(transport.get_extra_info("peername", ("?",))[0])
        self.server.came(self)
        if self.server.auth.server_tls is not None:
            self._early = b""
            self._transport.pause_reading()
            self._task = self._loop.create_task(self._encrypt())
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def _encrypt(self) -> None:
        assert self.server.auth.server_tls is not None
        try:
            transport = await self._loop.start_tls(
                self._transport,
                self,
                self.server.auth.server_tls,
                server_side=True,
                ssl_handshake_timeout=self.server.greeting_s,
            )
        except (OSError, ConnectionError) as error:  # ssl.SSLError is an OSError
            if self.state != "closed":
                self.server.refuse(self, f"no TLS: {error}")
            return
        if transport is None or self.state == "closed":
            self.close("it went before it had stated who it is")
            return
        self._transport = transport
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        early, self._early = self._early, None
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self._early is not None:  # after TLS's handshake, and before we were informed that it is over
            self._early += data
            if len(self._early) > 2 * MAX_GREETING_BYTES:
                self.server.refuse(self, "it talks before it has stated who it is")
            return
        try:
            for sealed in self._frames.feed(data):
                self._take(sealed)
                if self.state == "closed":
                    return
        except (WireError, RecursionError) as error:  # what is nested too deeply can be read, and not shown
            self.server.refuse(self, str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(str(exc) if exc else "it closed the connection")

    def pause_writing(self) -> None:
        self.stuck_since = time.monotonic()

    def resume_writing(self) -> None:
        self.stuck_since = None
        while self._waiting and self.stuck_since is None:
            self._write(self._waiting.popleft())
        if self._lease is not None and self.stuck_since is None:
            held, self._lease = self._lease, None
            self.lease(held)

    # what the server reports

    def send(self, message: Message) -> bool:
        """Write it, or keep it until the other end takes something; False if too much is kept already."""
        if self.state != "open" or len(self._waiting) >= ANNOUNCEMENTS:
            return False
        if self.stuck_since is not None:
            self._waiting.append(message)
        else:
            self._write(message)
        return True

    def lease(self, jobs: list[Json]) -> None:
        """Grant; only the latest counts. Nothing is renewed where nothing was granted."""
        if self.state != "open" or (not jobs and self._lease_reported is False and self._lease is None):
            return
        if self.stuck_since is not None:
            self._lease = jobs
            return
        self._write({"kind": "lease", "lease_s": self.server.lease_s, "jobs": jobs})
        self._lease_reported = bool(jobs)

    def lease_is_news(self) -> None:
        """The next lease is sent even if it grants nothing: the other end has been sent something since the last."""
        self._lease_reported = None

    def close(self, why: str) -> None:
        """Now, whatever was still to be sent."""
        if self.state != "closed":
            self.state = "closed"
            self._waiting.clear()
            self._lease = None
            self._transport.abort()
            self.server.left(self, why)

    def _write(self, message: Message) -> None:
        self.reported = time.monotonic()
        self._transport.write(frame(self._channel.seal(pack(message))))

    # what the other end reports

    def _take(self, sealed: bytes) -> None:
        if self.state == "new":
            self.state = "checking"
            certificate = self._transport.get_extra_info("peercert")
            answer = self._loop.run_in_executor(
                self.server._workers, self.server.auth.answer, sealed, certificate
            )
            answer.add_done_callback(self._checked)
        elif self.state == "checking":
            raise WireError("it did not wait for our answer")
        else:
            payload = self._channel.open(sealed)
            self.heard = time.monotonic()
            if self.state == "greeted":  # only now is it sure that it holds its half of the secret
                self.state = "open"
                self._frames.limit = MAX_FRAME_BYTES
                self.server.proved(self)
            self.server.heard(self, unpack(payload))

    def _checked(self, answered: asyncio.Future[Answer]) -> None:
        if self.state != "checking" or answered.cancelled():
            return
        error = answered.exception()
        if error is not None:
            self.server.refuse(self, str(error))
            if not isinstance(error, WireError):
                log.error("checking who connects failed", exc_info=error)
            return
        answer = answered.result()
        self.node, self._channel = answer.node, answer.channel
        self.state = "greeted"
        self._transport.write(frame(answer.frame))


def _audit_row(row: Json, node: str) -> Message:
    """What an actor wrote, cut to sizes that the store takes."""
    if not isinstance(row, dict):
        raise WireError("a row of an audit is not an object")
    time_s = row.get("time_s")
    if not isinstance(time_s, int | float) or isinstance(time_s, bool) or not 0 <= time_s < LATEST_S:
        raise WireError("a row of an audit has no time_s")
    texts: Message = {}
    for key in ("file", "job_id", "old", "new", "why"):
        value = row.get(key)
        if value is not None and not isinstance(value, str | int | float):
            raise WireError(f"{key} of a row of an audit is no text")
        texts[key] = None if value is None else str(value)[:1024]
    return {"node": node, "time_s": float(time_s), **texts}


def _raise_file_limit() -> None:
    """A connection is an open file, and the usual limit of 1024 is less than the nodes of a large cluster."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

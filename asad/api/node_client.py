"""The node actor's end of its connection to a daemon; with several daemons one connection to each.

Each client runs an event loop in a thread of its own; nothing that the other end does, or fails to do, holds up the
caller. What waits to be sent is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from asad import __version__
from asad.api.listening import LoopThread
from asad.api.node_server import ANNOUNCEMENTS, AUDIT_ROWS, GREETING_S, SILENCE_S, WRITE_S
from asad.api.wire import (
    MAX_FRAME_BYTES,
    MAX_GREETING_BYTES,
    Authenticator,
    Channel,
    Message,
    WireError,
    frame,
    pack,
    parse_address,
    unpack,
)

log = logging.getLogger(__name__)

SENIOR_S = 60.0
"""A daemon that has been silent for so long does not keep another one from being obeyed any more."""
MOST_EPOCH = 1 << 53


class Seniority:
    """Which of several daemons a node obeys: the one of the highest epoch among those that are heard of.

    A daemon's epoch grows with every start of any of them, so the last that was started wins. May be used by several
    threads.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self._lock = monotonic, threading.Lock()
        self._senior, self._epoch, self._heard_s = "", 0, 0.0

    def obeys(self, daemon: str, epoch: int) -> bool:
        """A daemon was heard of: is it the one? An older version says neither its name nor an epoch."""
        with self._lock:
            now_s = self._monotonic()
            known = self._senior and now_s - self._heard_s < SENIOR_S
            if known and daemon != self._senior and epoch <= self._epoch:
                return False
            if known and daemon != self._senior:
                log.warning("daemon %s has taken over from daemon %s", daemon, self._senior)
            self._senior, self._epoch, self._heard_s = daemon, epoch, now_s
            return True

    @property
    def senior(self) -> tuple[str, int]:
        """Name and epoch of the daemon that is obeyed."""
        with self._lock:
            return self._senior, self._epoch


class NodeClient:
    """The actor's end: one connection to the daemon at `address` (host:port), made again whenever it is lost.

    `on_message` is given every lease and announcement, in the client's thread; what it raises is logged. `cgroup` is
    the version that the daemon is sent. Nothing here blocks its caller.
    """

    def __init__(
        self,
        address: str,
        node: str,
        auth: Authenticator,
        on_message: Callable[[Message], None],
        *,
        cgroup: int = 0,
        seniority: Seniority | None = None,
        retry_s: tuple[float, float] = (0.2, 15.0),
    ) -> None:
        self.host, self.port = parse_address(address, "[node] daemon")
        self.node, self.auth, self.on_message, self.cgroup = node, auth, on_message, cgroup
        self.retry_s = retry_s
        self.seniority = seniority or Seniority()
        self.obeyed = False
        """Is it this daemon's word that counts here?"""
        self._daemon, self._epoch = "", 0
        self.connected = False
        self.trouble = ""
        """Why there is no connection, as one sentence; empty while there is one."""
        self._lock, self._something = threading.Lock(), asyncio.Event()
        self._report: bytes | None = None
        self._queue: deque[bytes] = deque()
        self._audit: deque[bytes] = deque(maxlen=AUDIT_ROWS)
        self._loop = LoopThread("asad-node-client")

    def start(self) -> None:
        """Connect, in a thread of its own, and keep trying."""
        self._loop.start(self._connecting())

    def stop(self) -> None:
        """Close the connection and end the thread."""
        self._loop.stop()
        self.connected = False

    def send(self, message: Message) -> bool:
        """Hand over a message to be sent; False if it is dropped.

        Of reports only the latest is kept, and nothing but audits is kept while there is no connection. Raises
        ValueError for a message with a NaN (`wire.sample_to_json` writes none).
        """
        kind, payload = message.get("kind"), pack(message)
        with self._lock:
            if kind == "audit":
                self._audit.append(payload)
            elif not self.connected:
                return False
            elif kind == "report":
                self._report = payload
            elif len(self._queue) >= ANNOUNCEMENTS:
                return False
            else:
                self._queue.append(payload)
        self._loop.call(self._something.set)
        return True

    def _next(self) -> tuple[bytes, bool] | None:
        """What to send next, and is it an audit: answers go first, then audits, then the report."""
        with self._lock:
            if self._queue:
                return self._queue.popleft(), False
            if self._audit:
                return self._audit.popleft(), True
            report, self._report = self._report, None
            return None if report is None else (report, False)

    # ------------------------------------------------------------------------------ in the client's thread

    @contextlib.asynccontextmanager
    async def _connecting(self) -> AsyncIterator[None]:
        connecting = asyncio.create_task(self._connect_for_ever())
        yield
        connecting.cancel()

    async def _connect_for_ever(self) -> None:
        least_s, most_s = self.retry_s
        wait_s = least_s
        chance = random.SystemRandom()
        while True:
            before = time.monotonic()
            try:
                await self._talk()
            except (OSError, TimeoutError, WireError, EOFError) as error:
                trouble = str(error) or type(error).__name__
                if trouble != self.trouble:
                    log.warning("no connection to the daemon at %s:%d: %s", self.host, self.port, trouble)
                self.trouble = trouble
            except Exception:  # a fault of ours must not cut the node off for good
                log.exception("the connection to the daemon broke")
                self.trouble = "the connection broke by a fault of asad's; see the log"
            finally:
                with self._lock:
                    self.connected = self.obeyed = False
                    self._queue.clear()
                    self._report = None
            if time.monotonic() - before > most_s:
                wait_s = least_s
            # a daemon that starts again is not called by all nodes in one moment
            await asyncio.sleep(chance.uniform(wait_s / 2, wait_s))
            wait_s = min(2 * wait_s, most_s)

    async def _talk(self) -> None:
        """One connection from greeting to end. Raises what ended it."""
        loop = asyncio.get_running_loop()
        tls = self.auth.client_tls
        hostname: dict[str, Any] = {"ssl": tls, "server_hostname": self.host} if tls is not None else {}
        reader = asyncio.StreamReader(loop=loop)
        protocol = _Stream(reader, loop=loop)
        try:
            async with asyncio.timeout(GREETING_S):
                transport, _ = await loop.create_connection(
                    lambda: protocol, self.host, self.port, **hostname
                )
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                greeting = await loop.run_in_executor(None, self.auth.greet, self.node)
                writer.write(frame(greeting.frame))
                answer = await _read_frame(reader, MAX_GREETING_BYTES)
                channel = await loop.run_in_executor(None, self.auth.accept, greeting, answer)
            hello: Message = {
                "kind": "hello",
                "node": self.node,
                "version": __version__,
                "cgroup": self.cgroup,
            }
            writer.write(frame(channel.seal(pack(hello))))
            with self._lock:
                self.connected = True
            self.trouble = ""
            self._something.set()  # audits may have waited
            log.info("connected to the daemon at %s:%d", self.host, self.port)
            both = [
                loop.create_task(self._listen(reader, channel)),
                loop.create_task(self._speak(writer, channel)),
            ]
            try:
                done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        finally:
            if protocol.transport is not None:
                protocol.transport.abort()

    async def _listen(self, reader: asyncio.StreamReader, channel: Channel) -> None:
        while True:
            async with asyncio.timeout(SILENCE_S):
                sealed = await _read_frame(reader, MAX_FRAME_BYTES)
            message = unpack(channel.open(sealed))
            kind = message.get("kind")
            if kind == "daemon":
                self._daemon, self._epoch = _identity(message)
            self.obeyed = self.seniority.obeys(self._daemon, self._epoch)
            if kind == "ping":
                self.send({"kind": "pong"})
            if not self.obeyed:
                senior, epoch = self.seniority.senior
                self.send({"kind": "refused", "daemon": senior, "epoch": epoch})
            if kind in ("daemon", "ping") or not self.obeyed:
                continue
            try:
                self.on_message(message)
            except Exception:
                log.exception("a %s from the daemon could not be followed", message.get("kind"))

    async def _speak(self, writer: asyncio.StreamWriter, channel: Channel) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while (taken := self._next()) is not None:
                payload, audit = taken
                try:
                    writer.write(frame(channel.seal(payload)))
                    async with asyncio.timeout(WRITE_S):
                        await writer.drain()
                except BaseException:
                    if audit:  # reported twice is better than never
                        with self._lock:
                            self._audit.appendleft(payload)
                    raise


class Clients:
    """The connections of a node to all its daemons, as one link."""

    def __init__(self, clients: Sequence[NodeClient]) -> None:
        self.clients = clients

    @property
    def connected(self) -> bool:
        """Is there a daemon that could be sent something?"""
        return any(client.connected for client in self.clients)

    def send(self, message: Message) -> bool:
        """Reports go to all, so that whoever takes over knows the node; the rest to the daemon that is obeyed."""
        if message.get("kind") == "report":
            return max(client.send(message) for client in self.clients)
        return next((client for client in self.clients if client.obeyed), self.clients[0]).send(message)

    def start(self) -> None:
        """Connect, and keep trying."""
        for client in self.clients:
            client.start()

    def stop(self) -> None:
        """Close all connections."""
        for client in self.clients:
            client.stop()


def _identity(message: Message) -> tuple[str, int]:
    """Name and epoch of a daemon. Raises WireError."""
    daemon, epoch = message.get("daemon"), message.get("epoch")
    if not isinstance(daemon, str) or not 0 < len(daemon) <= 64 or not daemon.isalnum():
        raise WireError("a daemon has no name")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < MOST_EPOCH:
        raise WireError(f"the epoch of daemon {daemon} is none")
    return daemon, epoch


class _Stream(asyncio.StreamReaderProtocol):
    """A stream that knows its transport as soon as there is one: who stops in TLS's handshake can still close it."""

    transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        super().connection_made(transport)


async def _read_frame(reader: asyncio.StreamReader, limit: int) -> bytes:
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > limit:
        raise WireError(f"a frame of {length} bytes is announced; {limit} are allowed")
    return await reader.readexactly(length)

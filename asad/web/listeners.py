"""Where the page is offered, and what each place says of who comes there.

Of a unix socket that everybody may open the kernel names the peer; one that the proxy's group alone may open carries
the name that the proxy vouches for, in a header; at a TCP address of this machine nobody is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import ipaddress
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from asad.config import split_address
from asad.errors import AsadError, UsageError

Kind = Literal["peer", "proxy", "tcp"]
PEER = struct.Struct("3i")
REQUEST_S = 10.0
"""So long may a request take to arrive, a connection be without one, and an answer lie there unread."""
MOST_CONNECTIONS: dict[Kind, int] = {"peer": 64, "tcp": 256, "proxy": 1024}
"""Of one user at a unix socket, and of all who come to an address."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen."""

    kind: Kind
    address: str
    """Path of a unix socket, or `HOST:PORT`."""
    group: str = ""
    """Of a proxy: the group that alone may open the socket."""


def place_of(text: str) -> Place:
    """What `--listen` names: a path, or an address of this machine. Raises UsageError."""
    if "/" in text:
        return Place("peer", text)
    try:
        host, _ = split_address(text)
    except ValueError as error:
        raise UsageError(f"--listen {text[:80]!r} {error}; or a path of a unix socket") from None
    if not is_loopback(host):
        raise UsageError(
            f"--listen {text[:80]!r} can be reached from other machines, and the page encrypts nothing and asks for no "
            "password; put your site's proxy before it, with --proxy-socket"
        )
    return Place("tcp", text)


def is_loopback(host: str) -> bool:
    """Is it a name or number of this machine alone?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def opened(places: Sequence[Place]) -> Iterator[list[socket.socket]]:
    """Listening sockets, closed and removed at the end. Raises AsadError where one cannot be had."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_listening(place)) for place in places]


@contextlib.contextmanager
def _listening(place: Place) -> Iterator[socket.socket]:
    try:
        if place.kind == "tcp":
            host, port = split_address(place.address)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, port), family=family) as listener:
                yield listener
            return
        path = Path(place.address)
        _remove_dead(path)
        group = grp.getgrnam(place.group).gr_gid if place.group else -1
        with socket.socket(socket.AF_UNIX) as listener:
            before = os.umask(0o777)  # nobody connects before it is known who may
            try:
                listener.bind(str(path))
            finally:
                os.umask(before)
            inode = path.stat().st_ino
            try:
                if group >= 0:
                    os.chown(path, -1, group)
                path.chmod(0o660 if place.kind == "proxy" else 0o666)
                listener.listen(128)
                yield listener
            finally:
                with contextlib.suppress(OSError):
                    if path.stat().st_ino == inode:
                        path.unlink()
    except KeyError:
        raise UsageError(f"--proxy-group: there is no group {place.group[:80]!r}") from None
    except OSError as error:
        hint = "is its folder there, and ours? Of --proxy-group we must be a member ourselves"
        raise AsadError(f"{place.address} cannot be had: {error.strerror or error}; {hint}") from None


def _remove_dead(path: Path) -> None:
    """Remove the socket of a process that was killed. Raises AsadError if one listens there, or it is no socket."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise AsadError(f"{path} is there and is no socket; remove it")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        with contextlib.suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise AsadError(f"another process listens at {path}; stop it first")
    path.unlink()


class PageServer(uvicorn.Server):
    """Serves an application at opened places, until it is asked to end; then `close` ends what is being watched."""

    def __init__(self, app: ASGIApp, places: Sequence[Place], close: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_protocol(places),
                ws="none",
                loop="asyncio",
                lifespan="on",
                proxy_headers=False,
                server_header=False,
                access_log=False,
                log_config=None,
                log_level="error",  # what it warns of is what anybody may send, as often as they like
                timeout_graceful_shutdown=2,
            )
        )
        self._close = close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and leave nobody waiting."""
        self._close()
        await super().shutdown(sockets)


def _protocol(places: Sequence[Place]) -> type[H11Protocol]:
    """HTTP connections that know where they came in, and of a unix socket also whose they are: `scope["client"]` is
    (kind, uid), uid -1 where it is not known."""
    kinds: dict[object, Kind] = {
        str(Path(place.address)): place.kind for place in places if place.kind != "tcp"
    }
    opened_by: Counter[tuple[Kind, int]] = Counter()

    class KnowsPeer(H11Protocol):
        """uvicorn itself waits for ever for whoever sends nothing, or one byte at a time, and takes any number."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connection = transport.get_extra_info("socket")
            self._whose: tuple[Kind, int] = ("tcp", -1)
            self._answered: Any = None
            self._unread = 0
            if connection is not None and connection.family == socket.AF_UNIX:
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
                self._whose = (kinds[connection.getsockname()], PEER.unpack(peer)[1])
            self.client = self._whose
            opened_by[self._whose] += 1
            self._watch = self.loop.call_later(REQUEST_S, self._end_if_idle)
            if opened_by[self._whose] > MOST_CONNECTIONS[self._whose[0]]:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._watch.cancel()
            opened_by[self._whose] -= 1
            if not opened_by[self._whose]:
                del opened_by[self._whose]

        def _end_if_idle(self) -> None:
            """End it if no request has come since last time and none is being answered, or what was sent is not
            read; and look again."""
            answers = self.cycle is not None and not self.cycle.response_complete
            unread = self.transport.get_write_buffer_size()
            if (self.cycle is self._answered and not answers) or (unread and unread == self._unread):
                self.transport.abort()
                return
            self._answered, self._unread = self.cycle, unread
            self._watch = self.loop.call_later(REQUEST_S, self._end_if_idle)

    return KnowsPeer

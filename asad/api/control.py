"""The control socket: what `asactl` asks the daemon, one line of JSON each way over a unix socket.

Request `{"verb": "jobs", …arguments}`; answer `{"ok": true, "data": …}` or
`{"ok": false, "error": …, "mend": …, "code": N}`, where code is the exit status that `asactl` leaves with. The kernel
says who asks (`SO_PEERCRED`): everyone may read and submit jobs that run as himself, and root, the daemon's own user
and members of the operators' group may change something.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import grp
import json
import logging
import os
import pwd
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asad.api.listening import LoopThread, listening
from asad.errors import AsadError, ExitStatus, UsageError
from asad.model import Json

log = logging.getLogger(__name__)

READING = (
    "status",
    "jobs",
    "nodes",
    "waits",
    "explain",
    "config",
    "metrics",
    "progress",
    "admission",
    "deferral",
    "sow-quote",
    "sow-status",
    "tasks",
    "page",
)
OWN = ("submit", "cancel", "sow-submit", "sow-cancel", "sow-ledger")
"""What everyone may do with jobs of his own; whoever answers holds to that."""
CHANGING = ("pause", "resume", "release", "mode", "teardown")
VERBS = (*READING, *OWN, *CHANGING)
REQUEST_BYTES = 1 << 20
"""A job that is submitted brings its script along."""
ANSWER_BYTES = 512 << 20
REQUEST_S = 2.0
"""A client that has not asked within this is let go."""
ANSWER_S = 30.0
"""So long may an answer take to be made, and so long to be taken."""
PER_USER = 16
"""Requests of one user at one time; of twice as many the connection is closed unheard. Root has no limit."""
AT_ONCE = 2
"""Of those so many are answered at the same time: eight users, and not one, can keep all workers busy."""
PART = 0.1
"""Of one core each user may use so much for the making of answers; who has used more waits until he has not."""
PEER = struct.Struct("3i")


class DaemonDown(AsadError):
    """Nobody answers at the control socket."""

    exit_status = ExitStatus.NO_DAEMON


class NotAllowed(AsadError):
    """The caller may not do that."""

    exit_status = ExitStatus.NOT_ALLOWED


class Refused(AsadError):
    """The daemon answered that it cannot; `exit_status` is what it said."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that asks, as the kernel knows it."""

    uid: int
    gid: int
    pid: int

    @property
    def user(self) -> str:
        """Its user's name, or the number where there is no name."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)


@dataclass(frozen=True, slots=True)
class Request:
    """One of `VERBS`, and what came with it."""

    verb: str
    arguments: Mapping[str, Json] = field(default_factory=dict)

    def text(self, name: str, default: str | None = None) -> str:
        """The argument `name`, which must be a text. Raises UsageError."""
        value = self.arguments.get(name, default)
        if not isinstance(value, str):
            raise UsageError(f"{self.verb}: {name} is missing or is not a text")
        return value


def may_change(peer: Peer, operators: str) -> bool:
    """May this peer change something? `operators` is the name of a group, or empty."""
    if peer.uid in (0, os.geteuid()):
        return True
    if not operators:
        return False
    try:
        group = grp.getgrnam(operators).gr_gid
        return group == peer.gid or group in os.getgrouplist(pwd.getpwuid(peer.uid).pw_name, peer.gid)
    except KeyError:  # no such group, or a user without a name
        return False


class ControlServer:
    """The daemon's end, in a thread of its own.

    `handle` is given what may be asked by that peer, in one of a few worker threads, and returns the data. An
    AsadError of it is answered with its message and exit status. Anything else is logged.
    """

    def __init__(
        self,
        path: str | Path,
        handle: Callable[[Request, Peer], Json],
        operators: str = "",
        *,
        request_s: float = REQUEST_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.path, self.handle, self.operators = Path(path), handle, operators
        self.request_s, self.answer_s = request_s, answer_s
        self._workers = concurrent.futures.ThreadPoolExecutor(8, "asad-control")
        self._loop = LoopThread("asad-control")
        self._inode = 0
        """Of the socket while it is ours."""
        self._open: Counter[int] = Counter()
        self._turns: dict[int, _Turns] = {}

    def start(self) -> None:
        """Listen at `path` (mode 0666). Raises AsadError if another daemon does, or the place cannot be had."""
        listener = self._bind()
        self._inode = self.path.stat().st_ino
        self._loop.start(self._serving(listener))

    def stop(self) -> None:
        """Stop listening and remove the socket, if it is still ours. What is being answered is cut off."""
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._inode = 0
        self._loop.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _bind(self) -> socket.socket:
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if self.path.exists() and not stat.S_ISSOCK(self.path.stat().st_mode):
                raise AsadError(f"[daemon] socket: {self.path} is there and is no socket; remove it")
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(1.0)
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    probe.connect(str(self.path))
                    raise AsadError(f"another daemon answers at {self.path}; stop it first")
            self.path.unlink(missing_ok=True)  # of a daemon that was killed
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.bind(str(self.path))
                self.path.chmod(0o666)
                listener.listen(64)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            raise AsadError(
                f"[daemon] socket: {self.path} cannot be had: {error.strerror or error}; "
                "its folder must belong to the daemon's user, and the path be shorter than 108 bytes"
            ) from None
        return listener

    @contextlib.asynccontextmanager
    async def _serving(self, listener: socket.socket) -> AsyncIterator[None]:
        async with listening(
            await asyncio.start_unix_server(self._client, sock=listener, limit=REQUEST_BYTES)
        ):
            yield

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _peer(writer.get_extra_info("socket"))
        self._open[peer.uid] += 1
        crowd = 0 if peer.uid == 0 else self._open[peer.uid]
        try:
            if crowd > 2 * PER_USER:
                return
            async with asyncio.timeout(self.request_s):
                line = await reader.readline()
            if crowd > PER_USER:
                writer.write(_line(_failure("too many requests at once", "wait for those that go on", 1)))
            elif line:
                writer.write(await self._answer(line, peer))
            async with asyncio.timeout(self.answer_s):
                await writer.drain()
        except (OSError, TimeoutError, ValueError):  # gone, hung, or a line without an end
            writer.transport.abort()
        except asyncio.CancelledError:  # the daemon stops
            writer.transport.abort()
            raise
        finally:
            self._open[peer.uid] -= 1
            if not self._open[peer.uid]:
                del self._open[peer.uid]
            writer.close()

    async def _answer(self, line: bytes, peer: Peer) -> bytes:
        turns = self._turns.setdefault(peer.uid, _Turns())
        loop, begun = asyncio.get_running_loop(), False
        queues = peer.uid not in (0, os.geteuid())
        try:
            async with asyncio.timeout(self.answer_s):
                if queues:
                    await turns.come()
                begun = True
                work = loop.run_in_executor(self._workers, self._timed, line, peer)
                if queues:
                    work.add_done_callback(turns.over)
                return (await asyncio.shield(work))[0]
        except TimeoutError:
            if not begun:
                why = f"what the daemon has for one user is taken up by earlier requests of {peer.user}"
                return _line(_failure(why, "ask less often", 1))
            why = f"the daemon had no answer within {self.answer_s:.0f} s"
            return _line(_failure(why, "see its log: journalctl -u asad", 1))

    def _timed(self, line: bytes, peer: Peer) -> tuple[bytes, float]:
        """The answer to a line, and how long it kept a core busy (s)."""
        begin_s = time.thread_time()
        answer = self._work(line, peer)
        return answer, time.thread_time() - begin_s

    def _work(self, line: bytes, peer: Peer) -> bytes:
        """The whole answer to a line, in a worker thread."""
        try:
            request = read_request(line)
            if request.verb in CHANGING and not may_change(peer, self.operators):
                whom = ", ".join(dict.fromkeys(("root", Peer(os.geteuid(), 0, 0).user)))
                whom += f" and members of the group {self.operators}" if self.operators else ""
                hint = f"only {whom} may"
                return _line(_failure(f"{peer.user} may not {request.verb}", hint, NotAllowed.exit_status))
            if request.verb in (*CHANGING, *OWN):
                log.info("%s (uid %d, pid %d) asks: %s", peer.user, peer.uid, peer.pid, request.verb)
            return _line({"ok": True, "data": self.handle(request, peer)})
        except AsadError as error:
            return _line(_failure(str(error), "", error.exit_status))
        except Exception:
            log.exception("a request could not be answered")
            return _line(_failure("the daemon failed to answer", "see its log: journalctl -u asad", 1))


class _Turns:
    """The requests of one user: when the next is answered. Used in the event loop's thread alone."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)
        self._next_s = 0.0

    async def come(self) -> None:
        """Wait until few others are being answered, and the user has used no more than a part of a core."""
        await self._free.acquire()
        try:
            await asyncio.sleep(max(0.0, self._next_s - asyncio.get_running_loop().time()))
        except BaseException:
            self._free.release()
            raise

    def over(self, work: asyncio.Future[tuple[bytes, float]]) -> None:
        """A request is answered, whether anybody still waits for that or not."""
        self._free.release()
        if not work.cancelled() and work.exception() is None:
            self._next_s = max(self._next_s, work.get_loop().time()) + work.result()[1] / PART


def read_request(line: bytes) -> Request:
    """The request that a line holds. Raises UsageError."""
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageError("the request is not JSON") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("verb"), str):
        raise UsageError("the request is no JSON object with a verb")
    verb = plain.pop("verb")
    if verb not in VERBS:
        raise UsageError(f"unknown verb {verb[:32]!r}; there are {', '.join(VERBS)}")
    return Request(verb, plain)


def ask(path: str | Path, verb: str, *, timeout_s: float = ANSWER_S + 5.0, **arguments: Json) -> Any:
    """What the daemon at `path` answers.

    Raises DaemonDown, NotAllowed, Refused with the daemon's own words, or UsageError for a request that is too long.
    """
    line = _line({"verb": verb, **arguments})
    if len(line) > REQUEST_BYTES:
        raise UsageError(
            f"the request is {len(line)} bytes long and at most {REQUEST_BYTES} are taken; "
            "keep the script in a file that all nodes can read, and submit its path"
        )
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            with contextlib.suppress(BrokenPipeError):  # it may have an answer that does not need the request
                connection.sendall(line)
            with connection.makefile("rb") as answers:
                answer = answers.readline(ANSWER_BYTES)
    except PermissionError:
        raise NotAllowed(f"the control socket {path} is closed to you; ask whoever runs the daemon") from None
    except TimeoutError:
        raise DaemonDown(
            f"the daemon at {path} did not answer within {timeout_s:.0f} s; see journalctl -u asad"
        ) from None
    except OSError as error:
        raise DaemonDown(
            f"no daemon answers at {path} ({error.strerror or error}); start it: systemctl start asad, "
            "or name its socket with --socket"
        ) from None
    if not answer.endswith(b"\n"):
        raise DaemonDown(f"the daemon at {path} closed the connection without an answer; try again")
    try:
        plain = json.loads(answer)
        if plain["ok"]:
            return plain["data"]
        message, status = "; ".join(filter(None, (plain["error"], plain["mend"]))), int(plain["code"])
    except (ValueError, KeyError, TypeError):
        raise DaemonDown(f"what answers at {path} is not asad's daemon") from None
    if status == NotAllowed.exit_status:
        raise NotAllowed(message)
    raise Refused(message, status)


def _failure(error: str, hint: str, code: int) -> dict[str, Json]:
    return {"ok": False, "error": error, "mend": hint, "code": code}


def _line(plain: Mapping[str, Json]) -> bytes:
    """One line; JSON escapes line ends within."""
    return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _peer(connection: socket.socket) -> Peer:
    pid, uid, gid = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return Peer(uid, gid, pid)

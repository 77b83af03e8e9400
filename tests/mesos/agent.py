"""A Mesos agent for tests, as far as an executor sees of it: the executor API v1 over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from protocol import refused_executor_call, refused_headers

EXECUTOR = Path(__file__).resolve().parents[2] / "plugins" / "asad_mesos" / "executor.py"


def interpreter(user: str | None) -> str:
    """A Python that this user may run: one that is built in somebody's home is for him alone."""
    path = Path(sys.executable).resolve()
    open_to_all = all(parent.stat().st_mode & 0o001 for parent in path.parents)
    return sys.executable if user in (None, "root") or open_to_all else "/usr/bin/python3"


class Agent:
    """Takes one executor, hands it tasks, and keeps what it reports."""

    def __init__(self, data: str = "", heard: Callable[[dict[str, Any]], None] | None = None) -> None:
        """`heard` is given every new status instead of its being acknowledged at once."""
        self.data, self.heard = data, heard
        self.updates: list[dict[str, Any]] = []
        self.subscriptions: list[dict[str, Any]] = []
        self.acknowledges = True
        self.answer: tuple[int, str] | None = None
        """Status and sentence that subscribers get; None: they are taken."""
        self.attempts = 0
        """So often an executor wanted to subscribe."""
        self.refused: list[str] = []
        """Why calls were refused that no executor should make."""
        self._write: Callable[[bytes], Any] | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self.port = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Agent]:
        """Serve in threads."""
        agent = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subscribes = body.get("type") == "SUBSCRIBE"
                headers = {name.lower(): value for name, value in self.headers.items()}
                why = refused_headers(headers, str(body.get("type")))[1] or refused_executor_call(body)
                if why:
                    agent.refused.append(why)
                    self.reply(400, why)
                    return
                agent.attempts += subscribes
                if agent.answer is not None:
                    self.reply(*agent.answer)
                elif subscribes:
                    agent._subscribe(self, body)
                else:
                    agent._hear(body)  # before the answer: the next update is sent after it
                    self.reply(202, "")

            def reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: Any) -> None:
                return None

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._closed.set()
            server.shutdown()
            server.server_close()
            thread.join()
            assert not self.refused

    def _subscribe(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        closed = self._closed = threading.Event()
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        with self._lock:
            self._write = handler.wfile.write
        self.send(
            {
                "type": "SUBSCRIBED",
                "subscribed": {
                    "executor_info": {"executor_id": body["executor_id"], "data": self.data},
                    "framework_info": {"name": "asad", "user": "root"},
                    "agent_id": {"value": "S0"},
                    "agent_info": {"hostname": "n0"},
                },
            }
        )
        self.subscriptions.append(body["subscribe"])
        for update in body["subscribe"].get("unacknowledged_updates", ()):
            self._hear({"update": update})
        closed.wait()
        with contextlib.suppress(OSError):
            handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    def send(self, event: dict[str, Any]) -> None:
        """An event, in two chunks."""
        text = json.dumps(event).encode()
        record = str(len(text)).encode() + b"\n" + text
        with self._lock:
            assert self._write is not None
            for piece in (record[:7], record[7:]):
                self._write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")

    def disconnect(self) -> None:
        """As an agent that is restarted."""
        self._closed.set()

    def _hear(self, body: dict[str, Any]) -> None:
        status = body["update"]["status"]
        if all(status["uuid"] != known["uuid"] for known in self.updates):
            self.updates.append(status)
            if self.heard is not None:
                self.heard(status)
        if self.acknowledges and self.heard is None:
            self.acknowledge(status)

    def acknowledge(self, status: dict[str, Any]) -> None:
        """The framework has heard of it."""
        with contextlib.suppress(OSError):
            self.send(
                {
                    "type": "ACKNOWLEDGED",
                    "acknowledged": {"task_id": status["task_id"], "uuid": status["uuid"]},
                }
            )

    def states(self, task_id: str) -> list[str]:
        """What was reported of a task, in order."""
        return [status["state"] for status in self.updates if status["task_id"]["value"] == task_id]

    def until(self, true: Callable[[], Any], timeout_s: float = 300.0) -> bool:
        """Wait until something is so."""
        end = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    @contextlib.contextmanager
    def executor(
        self, sandbox: Path, user: str | None = None, **environment: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The executor as an agent starts it, as that user if it switches users."""
        with (sandbox / "stdout").open("ab") as out, (sandbox / "stderr").open("ab") as errors:
            process = subprocess.Popen(
                [interpreter(user), "-I", str(EXECUTOR)],
                cwd=sandbox,
                env={
                    "PATH": os.environ["PATH"],
                    "MESOS_AGENT_ENDPOINT": f"127.0.0.1:{self.port}",
                    "MESOS_FRAMEWORK_ID": "framework",
                    "MESOS_EXECUTOR_ID": "executor",
                    "MESOS_SANDBOX": str(sandbox),
                    "MESOS_CHECKPOINT": "1",
                    "MESOS_RECOVERY_TIMEOUT": "15mins",
                    "MESOS_SUBSCRIPTION_BACKOFF_MAX": "2secs",
                    "MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD": "1secs",
                    "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "secret",
                    **environment,
                },
                stdout=out,
                stderr=errors,
                user=user,
                group=None if user is None else pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

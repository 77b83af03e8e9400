"""The child process that runs pymesos, so that the daemon need not.

pymesos installs handlers for SIGINT and logging when it is imported, interrupts the main thread when its own fails, and
waits for ever on a connection that is half open. Here it may: the parent (`asad_mesos.driver`) watches the heartbeat,
kills this process and starts another, which subscribes with the same framework id.

The first line on stdin says how to subscribe; after that one JSON line a call of the scheduler API (`{"call":…}`), or
`{"beat":true}`. On the descriptor that was stdout one JSON line an event of the master (`{"event":…}`), or that the
first N calls are through (`{"done":N}`), or that the Nth has failed (`{"failed":N,"why":…}`). When stdin ends, or stays
silent for longer than offers may be held, this process ends: then the master takes every offer back. It never sends
TEARDOWN of itself.

Runs as a script, with the standard library, pymesos and what that needs alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 18
BACKOFF_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
LINE_BYTES = 1 << 30
CALL = b'{"call":'
"""A line that begins so is handed on as it is."""
WINDOW = 64
"""Most calls under way at a time."""


class Answers:
    """Lines to the parent, from any thread, each whole."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "wb", buffering=0)
        self._lock = threading.Lock()
        os.dup2(2, 1)  # a library that prints must not speak between our lines

    def send(self, **body: Any) -> None:
        """One line. A parent that is gone ends this process."""
        self._write(json.dumps(body, separators=(",", ":")).encode() + b"\n")

    def relay(self, event: str) -> None:
        """An event, as the master has written it."""
        self._write(b'{"event":' + event.encode() + b"}\n")

    def _write(self, line: bytes) -> None:
        try:
            with self._lock:
                view = memoryview(line)
                while view:
                    view = view[self._file.write(view) :]
        except OSError:
            os._exit(0)


class Verbatim:
    """Stands for `json` where pymesos reads: ten thousands of events only pass through here, and stay as they came."""

    @staticmethod
    def loads(text: str) -> str:
        """The text itself."""
        return text


def load_pymesos() -> Any:
    """The module, without the handlers that it installs. Raises ImportError."""
    # it takes its parser from a package that does not build on this Python
    path = Path(__file__).with_name("response_parser.py")
    spec = importlib.util.spec_from_file_location("http_parser.http", path)
    assert spec is not None and spec.loader is not None
    sys.modules["http_parser.http"] = parser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parser)
    import pymesos  # type: ignore[import-not-found, import-untyped, unused-ignore]

    # it interrupts the main thread when its own has failed: anywhere, also where that is being reported
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = logging.getLogger("pymesos")
    for handler in list(log.handlers):
        log.removeHandler(handler)
    log.propagate = False
    log.addHandler(logging.NullHandler())
    pymesos.process.SLEEP_TIMEOUT_INIT = 0.05  # `gen_request` waits
    pymesos.process.json = Verbatim
    pymesos.process.PIPE_BUF = READ_BYTES  # an event of ten thousand offers is megabytes long
    return pymesos


def make_driver(pymesos: Any, settings: dict[str, Any], answers: Answers) -> Any:
    """A driver that hands every event on, and never tears the framework down by itself."""

    class Driver(pymesos.MesosSchedulerDriver):  # type: ignore[misc, unused-ignore]
        """pymesos' driver, with its traps taken out."""

        _timeout = settings["timeout_s"]
        attempts = 0

        @property
        def framework(self) -> dict[str, Any]:
            return dict(self._framework)  # capabilities as configured: no GPU_RESOURCES unless wanted

        def _get_version(self, master: str) -> None:
            return None  # the master names it in SUBSCRIBED, and an odd one must not end the driver

        def _send(
            self, body: Any, path: str = "/api/v1/scheduler", method: str = "POST", headers: Any = None
        ) -> Any:
            return super()._send(body, path=path, method=method, headers={})  # never those of another driver

        def request(self, text: bytes) -> bytes:
            """A call as it goes out on a connection for calls. Raises ConnectionError while we are not subscribed."""
            with self._lock:
                stream, master = self.stream_id, self.master
            if not stream or not self.framework_id:
                raise ConnectionError("not connected")
            head = (
                f"POST /api/v1/scheduler HTTP/1.1\r\nHost: {master}\r\nContent-Type: application/json\r\n"
                f"Accept: application/json\r\nMesos-Stream-Id: {stream}\r\nContent-Length: {len(text)}\r\n"
            )
            if self._basic_credential:
                head += f"Authorization: {self._basic_credential}\r\n"
            return head.encode("latin-1") + b"\r\n" + text

        def gen_request(self) -> bytes:
            """Called for each connection: wait longer, the more of them have failed."""
            wait_s = BACKOFF_S[min(self.attempts, len(BACKOFF_S) - 1)]
            self.attempts += 1
            until = time.monotonic() + wait_s
            while time.monotonic() < until and not self.aborted:
                time.sleep(min(0.1, wait_s))
            return bytes(super().gen_request())  # json.dumps escapes what is not ASCII: bytes are characters

        def change_master(self, master: str | None) -> None:
            """Another one leads (a redirect, ZooKeeper)."""
            if master is not None:
                master = _address(master)
            answers.send(master=master)
            super().change_master(master)

        def on_event(self, text: str) -> None:
            """Everything goes to the parent; what is no JSON ends the driver, and the parent starts another."""
            if not any(word in text for word in ('"SUBSCRIBED"', '"ERROR"', "\n")):
                answers.relay(text)
                return
            event = json.loads(text)
            kind = event.get("type")
            if kind == "SUBSCRIBED":
                self.attempts = 1  # should it be cut, that is no refusal
                with contextlib.suppress(Exception):
                    self.framework_id = event["subscribed"]["framework_id"]["value"]
            answers.send(event=event)
            if kind == "ERROR":  # to go on would subscribe again at once, hundreds of times a second
                self.stop(failover=True)

        def on_close(self) -> None:
            self._close()
            answers.send(closed=True)

        def _shutdown(self) -> None:
            """Never TEARDOWN: that kills every task."""

    return Driver(
        None,  # events do not come that way
        settings["framework"],
        settings["master"],
        use_addict=False,
        implicit_acknowledgements=False,
        principal=settings.get("principal") or None,
        secret=settings.get("secret") or None,
        failover=True,
        timeout=settings["connect_s"],
    )


def _address(master: str) -> str:
    """`host:port`, whatever a Location header holds around it."""
    found = re.match(r"(?:[a-z]+:)?(?://)?([^/?#\s]+)", master)
    text = found[1] if found else master
    return text if ":" in text else f"{text}:5050"


def _why(error: BaseException) -> str:
    """Why pymesos has given up, with what a master has answered in a few words."""
    text = str(error)
    found = re.fullmatch(r"Failed with HTTP (\d+): b?['\"]?(.*?)['\"]?", text, re.DOTALL)
    return (f"it answers {found[1]} {found[2]}".rstrip() if found else text)[:1000]


class Calls:
    """Calls on a connection of their own, several under way at a time, answered in order.

    So does Mesos' own scheduler library; to wait for each answer would make ten thousand launches slow.
    """

    def __init__(self, driver: Any, answers: Answers, timeout_s: float) -> None:
        self._driver, self._answers, self._timeout_s = driver, answers, timeout_s
        self._socket: socket.socket | None = None
        self._peer = ""
        self._stream = ""
        self._received = b""
        self._unsent: list[bytes] = []
        self.under_way = 0
        """Calls that have not come to an end, those that are not sent yet too."""
        self.ended = self._reported = 0

    def send(self, text: bytes) -> None:
        """Hand a call to the master, perhaps with the next ones; what becomes of it is reported to the parent later."""
        try:
            request = self._driver.request(text)
            self._connect()
        except OSError as error:
            self.under_way += 1
            self._fail(error)
            return
        self.under_way += 1
        self._unsent.append(request)
        if self.under_way >= WINDOW:
            self.collect(WINDOW // 2)

    def collect(self, left: int = 0) -> None:
        """Wait until no more than `left` calls are under way."""
        try:
            if self._unsent and self._socket is not None:
                self._socket.sendall(b"".join(self._unsent))
            self._unsent.clear()
            while self.under_way > left:
                self._collect_one()
        except OSError as error:
            self._fail(error)
            return
        self._report_done()

    def _report_done(self) -> None:
        if self.ended > self._reported:
            self._answers.send(done=self.ended)
            self._reported = self.ended

    def _collect_one(self) -> None:
        """Take an answer, or wait for more of it. Raises OSError."""
        head, found, rest = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"\r\ncontent-length:\s*(\d+)", head, re.IGNORECASE) if found else None
        size = int(length[1]) if length else 0
        if not found or len(rest) < size:
            assert self._socket is not None
            self._report_done()  # it may take long, and the parent waits for a sign
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the master closed the connection of calls")
            self._received += piece
            return
        self._received = rest[size:]
        self.under_way -= 1
        self.ended += 1
        status = head.split(b" ", 2)[1:2]
        if not status or not status[0].startswith(b"2"):
            text = (head.split(b"\r\n")[0] + b": " + rest[:size]).decode(errors="replace")
            self._answers.send(failed=self.ended, why=text[:1000])

    def _connect(self) -> None:
        master, stream = str(self._driver.master), str(self._driver.stream_id)
        if self._socket is not None and (master, stream) == (self._peer, self._stream):
            return
        if self._socket is not None:
            self.collect()
            self.close()
        host, _, port = master.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), self._timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer, self._stream, self._received = master, stream, b""

    def _fail(self, error: OSError) -> None:
        """All that are under way have failed."""
        self.ended += self.under_way
        self.under_way = 0
        self._unsent.clear()
        self._reported = self.ended
        self._answers.send(failed=self.ended, why=f"{type(error).__name__}: {error}"[:1000])
        self.close()

    def close(self) -> None:
        """Let the connection go."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def lines(descriptor: int, silence: list[float]) -> Any:
    """Lines of stdin, and b"" when there is none just now; ends when it does, or with silence of `silence[0]` s."""
    buffer = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 0.0)
        if not ready:
            yield b""
            ready, _, _ = select.select([descriptor], [], [], silence[0])
        if not ready:
            return
        piece = os.read(descriptor, 1 << 20)
        if not piece or len(buffer) > LINE_BYTES:
            return
        parts = (buffer + piece).split(b"\n")
        buffer = parts.pop()
        yield from parts


def main() -> int:
    """Drive until stdin ends."""
    answers = Answers()
    try:
        pymesos = load_pymesos()
    except Exception as error:
        answers.send(fatal=f"pymesos cannot be imported: {type(error).__name__}: {error}")
        return 1
    silence = [60.0]
    incoming = lines(0, silence)
    first = next((line for line in incoming if line), b"null")
    settings = json.loads(first)
    if settings is None:
        return 0
    answers.send(ready=getattr(pymesos, "__VERSION__", ""))
    driver = make_driver(pymesos, settings, answers)
    calls = Calls(driver, answers, settings["timeout_s"])
    try:
        driver.start()
        silence[0] = settings["silence_s"]
        for line in incoming:
            if line.startswith(CALL):
                calls.send(line[len(CALL) : -1])
                continue
            calls.collect()
            if driver.aborted:
                driver.join()
                if pymesos.process._exc_info is not None:
                    answers.send(closed=True, why=_why(pymesos.process._exc_info[1]))
                break
    finally:
        with contextlib.suppress(Exception):
            driver.stop(failover=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

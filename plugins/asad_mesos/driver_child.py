"""The child process that runs pymesos, so that the daemon need not.

pymesos installs handlers for SIGINT and logging when it is imported, interrupts the main thread when its own fails, and
waits for ever on a connection that is half open. Here it may: the parent (`asad_mesos.driver`) watches the heartbeat,
kills this process and starts another, which subscribes with the same framework id.

The first line on stdin says how to subscribe; after that one JSON line a call of the scheduler API (`{"call": …}`),
or `{"beat": true}`. On the descriptor that was stdout one JSON line an event of the master (`{"event": …}`), a call
that is through (`{"done": N}`) or has failed (`{"failed": N, "why": …}`). When stdin ends, or stays silent for longer than
offers may be held, this process ends: then the master takes every offer back. It never sends TEARDOWN of itself.

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
import sys
import threading
import time
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 18
BACKOFF_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
CALM_S = 30.0
"""A connection that has lasted this long was a good one."""
LINE_BYTES = 1 << 30


class Answers:
    """Lines to the parent, from any thread, each whole."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "wb", buffering=0)
        self._lock = threading.Lock()
        os.dup2(2, 1)  # a library that prints must not speak between our lines

    def tell(self, **body: Any) -> None:
        """One line. A parent that is gone ends this process."""
        line = json.dumps(body, separators=(",", ":")).encode() + b"\n"
        try:
            with self._lock:
                view = memoryview(line)
                while view:
                    view = view[self._file.write(view) :]
        except OSError:
            os._exit(0)


def load_pymesos() -> Any:
    """The module, without the handlers that it installs. Raises ImportError."""
    here = Path(__file__).with_name("response_parser.py")
    loaded: dict[str, Any] = {}
    for name in ("http_parser", "http_parser.http"):
        spec = importlib.util.spec_from_file_location(name, here, submodule_search_locations=[])
        assert spec is not None and spec.loader is not None
        loaded[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    before = signal.getsignal(signal.SIGINT)
    try:
        import pymesos  # type: ignore[import-not-found, import-untyped, unused-ignore]
        import pymesos.process  # type: ignore[import-not-found, import-untyped, unused-ignore]
        import pymesos.scheduler  # type: ignore[import-not-found, import-untyped, unused-ignore]
    finally:
        signal.signal(signal.SIGINT, before)
    log = logging.getLogger("pymesos")
    for handler in list(log.handlers):
        log.removeHandler(handler)
    log.propagate = False
    log.addHandler(logging.NullHandler())
    pymesos.process.SLEEP_TIMEOUT_INIT = 0.05  # `gen_request` waits
    pymesos.process.PIPE_BUF = READ_BYTES  # an event of ten thousand offers is megabytes long
    return pymesos


def make_driver(pymesos: Any, settings: dict[str, Any], answers: Answers) -> Any:
    """A driver that hands every event on, and never tears the framework down by itself."""

    class Driver(pymesos.MesosSchedulerDriver):  # type: ignore[misc, unused-ignore]
        """pymesos' driver, with its traps taken out."""

        _timeout = settings["timeout_s"]
        attempts = 0
        connected_at = 0.0

        @property
        def framework(self) -> dict[str, Any]:
            return dict(self._framework)  # capabilities as configured: no GPU_RESOURCES unless wanted

        def _get_version(self, master: str) -> None:
            return None  # the master tells it in SUBSCRIBED, and an odd one must not end the driver

        def _send(
            self, body: Any, path: str = "/api/v1/scheduler", method: str = "POST", headers: Any = None
        ) -> Any:
            return super()._send(body, path=path, method=method, headers={})  # never those of another driver

        def gen_request(self) -> bytes:
            """Called for each connection: wait longer, the more of them have failed."""
            if time.monotonic() - self.connected_at > CALM_S:
                self.attempts = 0
            wait_s = BACKOFF_S[min(self.attempts, len(BACKOFF_S) - 1)]
            self.attempts += 1
            until = time.monotonic() + wait_s
            while time.monotonic() < until and not self.aborted:
                time.sleep(min(0.1, wait_s))
            self.connected_at = time.monotonic()
            request: bytes = super().gen_request()
            # text that is not ASCII is escaped by json.dumps, so bytes and characters are as many
            return request

        def change_master(self, master: str | None) -> None:
            """Another one leads (a redirect, ZooKeeper)."""
            if master is not None:
                master = _address(master)
            answers.tell(master=master)
            super().change_master(master)

        def on_event(self, event: dict[str, Any]) -> None:
            """Everything goes to the parent; nothing may raise, for that would tear the driver down."""
            kind = event.get("type")
            if kind == "SUBSCRIBED":
                with contextlib.suppress(Exception):
                    self.framework_id = event["subscribed"]["framework_id"]["value"]
            answers.tell(event=event)
            if kind == "ERROR":  # to go on would subscribe again at once, hundreds of times a second
                self.stop(failover=True)

        def on_close(self) -> None:
            self._close()
            answers.tell(closed=True)

        def _shutdown(self) -> None:
            """Never TEARDOWN: that kills every task."""

    class Nobody(pymesos.Scheduler):  # type: ignore[misc, unused-ignore]
        """Events do not come this way."""

    return Driver(
        Nobody(),
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


def lines(descriptor: int, silence: list[float]) -> Any:
    """Lines of stdin; ends when it does, or when none has come for `silence[0]` seconds."""
    buffer = b""
    while True:
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
        answers.tell(fatal=f"pymesos cannot be imported: {type(error).__name__}: {error}")
        return 1
    silence = [60.0]
    incoming = lines(0, silence)
    settings = json.loads(next(incoming, b"null"))
    if settings is None:
        return 0
    answers.tell(ready=getattr(pymesos, "__VERSION__", ""))
    driver = make_driver(pymesos, settings, answers)
    done = 0
    try:
        driver.start()
        silence[0] = settings["silence_s"]
        for line in incoming:
            if b'"call"' not in line:
                if driver.aborted:
                    break
                continue
            body = json.loads(line)["call"]
            done += 1
            try:
                if not driver.connected:
                    raise ConnectionError("not connected")
                body["framework_id"] = {"value": driver.framework_id}
                driver._send(body)
            except Exception as error:  # the parent decides what a failed call means
                answers.tell(failed=done, why=f"{type(error).__name__}: {error}"[:1000])
            else:
                answers.tell(done=done)
    except KeyboardInterrupt:
        answers.tell(closed=True, why="pymesos gave up")
    finally:
        with contextlib.suppress(Exception):
            driver.stop(failover=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A headless Chromium, spoken to over a pipe (the DevTools protocol): no driver, no port, no network."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root in a container; the browser only ever opens pages that a test wrote
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# Chromium reads commands on descriptor 3 and answers on 4; the launcher puts the pipe's ends there
LAUNCHER = """
import os, sys
reads, writes = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
spare = [os.dup(reads), os.dup(writes), os.dup(reads), os.dup(writes)][-2:]
os.dup2(spare[0], 3), os.dup2(spare[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE_S = 300.0


def program() -> Path | None:
    """Where Chromium is, or None."""
    return next((Path(path) for path in PROGRAMS if Path(path).exists()), None)


class Chromium:
    """One browser with one tab. What the tab says on the console or asks of the network is kept."""

    def __init__(self, path: Path, profile: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, str(commands), str(answers), str(path), *FLAGS,
                 f"--user-data-dir={profile}", "about:blank"],
                pass_fds=(commands, answers),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            os.close(commands)
            os.close(answers)
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        os.close(self._commands)
        os.close(self._answers)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; raises RuntimeError if the browser refuses it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], PATIENCE_S)
            block = os.read(self._answers, 1 << 20) if ready else b""
            if not block:
                raise RuntimeError("the browser does not answer")
            self._unread += block
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def show(self, page: Path, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Open a page in a window of that width and wait until it has loaded."""
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        until = time.monotonic() + PATIENCE_S
        while self.ask("document.readyState") != "complete" or self.ask("location.href") == "about:blank":
            if time.monotonic() > until:
                raise RuntimeError(f"{page} does not load")
            time.sleep(0.05)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page, however long, as a PNG file."""
        size = self.ask("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it would be printed on A4."""
        answer = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(answer["data"])

    def complaints(self) -> list[str]:
        """What the page put on the console, errors that it threw, policies that it broke."""
        self.ask("1")  # whatever was sent before this answer has been read
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own included."""
        self.ask("1")
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

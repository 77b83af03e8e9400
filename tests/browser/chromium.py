"""A headless Chromium: Debian's own, driven by Playwright, with one tab whose console and requests are kept."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, FloatRect, Page, sync_playwright

PROGRAMS = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
FLAGS = ("--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--hide-scrollbars")
PATIENCE_MS = 300_000.0


def program() -> Path | None:
    """Where Chromium is, or None."""
    return next((Path(path) for path in PROGRAMS if Path(path).exists()), None)


class Chromium:
    """One browser with one tab. What the tab says on the console or asks of the network is kept."""

    def __init__(self, path: Path) -> None:
        self._driver = sync_playwright().start()
        try:
            # --no-sandbox: CI runs as root in a container; the browser only ever opens pages that a test wrote
            self.browser: Browser = self._driver.chromium.launch(
                executable_path=path, args=list(FLAGS), chromium_sandbox=False
            )
        except BaseException:
            self._driver.stop()
            raise
        self._complaints: list[str] = []
        self._requests: list[str] = []
        self.page: Page = self.browser.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self._complaints.append(str(error)))
        self.page.on("request", lambda request: self._requests.append(request.url))

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.browser.close()
        self._driver.stop()

    def _heard(self, message: ConsoleMessage) -> None:
        self._complaints.append(f"{message.type}: {message.text}")

    def show(self, page: Path | str, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Open a file or an address in a window of that width and wait until it has loaded."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(
            media="print" if media == "print" else "screen", color_scheme="dark" if dark else "light"
        )
        self.page.goto("about:blank")
        self._complaints.clear()
        self._requests.clear()
        self.page.goto(page.as_uri() if isinstance(page, Path) else page, wait_until="load")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.page.evaluate(expression)

    def wait(self, expression: str) -> None:
        """Wait until a JavaScript expression is true. (Playwright's own would evaluate it in the page, which a policy
        may forbid.)"""
        until = time.monotonic() + PATIENCE_MS / 1000
        while not self.ask(expression):
            if time.monotonic() > until:
                raise RuntimeError(f"it never came true: {expression}")
            self.page.wait_for_timeout(20)

    def screenshot(self, path: Path, height: int | None = None) -> None:
        """The whole page, or so much of it from its top, as a PNG file."""
        if height is None:
            self.page.screenshot(path=path, full_page=True)
        else:
            width = self.ask("document.documentElement.clientWidth")
            clip: FloatRect = {"x": 0, "y": 0, "width": width, "height": height}
            self.page.screenshot(path=path, full_page=True, clip=clip)

    def pdf(self) -> bytes:
        """The page as it would be printed on A4."""
        return self.page.pdf(format="A4")

    def complaints(self) -> list[str]:
        """What the page put on the console, errors that it threw, policies that it broke."""
        self.ask("1")  # whatever was sent before this answer has been read
        return list(self._complaints)

    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own included."""
        self.ask("1")
        return list(self._requests)

"""The live page on a port of this machine, over a unix socket and a tunnel to it as ssh makes one: so the kernel says
who looks, and a browser comes there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asad.web.listeners import PageServer, Place, opened
from asad.web.page_feed import PageFeed
from asad.web.web_app import WebApp


class LiveServer:
    """Serves until it is closed. `ask` stands in for the daemon."""

    def __init__(self, ask: Callable[..., Any], folder: Path, interval_s: float = 0.2) -> None:
        self.feed = PageFeed(Path("no.sock"), interval_s, ask)
        self.web = WebApp(self.feed)
        self.sent = 0
        """Bytes that went to browsers."""
        self.url = ""
        self._tunnels: list[asyncio.Task[None] | None] = []
        self._path = folder / "page.sock"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        if not self._ready.wait(300):
            raise RuntimeError("the live page is not served")

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(300)

    async def _run(self) -> None:
        place = Place("peer", str(self._path))
        with opened([place]) as sockets:
            self._server = PageServer(self.web.asgi, [place], self.feed.close)
            tunnel = await asyncio.start_server(self._tunnel, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{tunnel.sockets[0].getsockname()[1]}/"
            serving = asyncio.create_task(self._server.serve(sockets))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            self._ready.set()
            await serving
            tunnel.close()
            await asyncio.gather(*filter(None, self._tunnels))

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tunnels.append(asyncio.current_task())
        there, to = await asyncio.open_unix_connection(str(self._path))

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter, counted: bool) -> None:
            with contextlib.suppress(OSError):
                while block := await source.read(65536):
                    self.sent += len(block) * counted
                    sink.write(block)
                    await sink.drain()
            sink.close()
            with contextlib.suppress(OSError):
                await sink.wait_closed()

        await asyncio.gather(pass_on(reader, to, False), pass_on(there, writer, True))


@contextlib.contextmanager
def serving(ask: Callable[..., Any], folder: Path, interval_s: float = 0.2) -> Iterator[LiveServer]:
    """A server that is closed at the end."""
    server = LiveServer(ask, folder, interval_s)
    try:
        yield server
    finally:
        server.close()

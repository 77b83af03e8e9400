"""Event loops in threads of their own, and servers in them that end without leaving anybody waiting."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


class LoopThread:
    """An event loop in a thread of its own. What runs in it is a context: entered by `start`, left by `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, running: AbstractAsyncContextManager[object]) -> None:
        """Enter the context, in the loop's thread. Raises what that raises."""
        entered: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def run() -> None:
            over = asyncio.Event()
            try:
                async with running:
                    self._loop, self._over = asyncio.get_running_loop(), over
                    entered.set_result(None)
                    await over.wait()
            except BaseException as error:
                if entered.done():
                    raise
                entered.set_exception(error)

        self._thread = threading.Thread(target=lambda: asyncio.run(run()), name=self._name, daemon=True)
        self._thread.start()
        try:
            entered.result()
        except BaseException:
            self._thread.join()
            self._thread = None
            raise

    def call(self, function: Callable[..., object], *arguments: Any) -> bool:
        """Call a function soon in the loop's thread; False where nothing runs (any more)."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # stopped meanwhile
            return False
        return True

    def stop(self) -> None:
        """Leave the context and end the thread, if there is one."""
        if self._thread is not None:
            self.call(self._over.set)
            self._thread.join()
            self._thread = self._loop = None


@asynccontextmanager
async def listening(server: asyncio.Server) -> AsyncIterator[None]:
    """A server that in the end accepts nobody any more: who was accepted already is let in, its sockets are closed.

    `Server.close` alone leaves a connection for ever open whose task has not begun when it is called: such a task
    fails (`Server._attach`), and nobody closes its socket.
    """
    yield
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    # an accepted client has a task in the next step, a connection in the one after, then a reader
    for _ in range(4):
        await asyncio.sleep(0)
    server.close()

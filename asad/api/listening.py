"""End a server of asyncio so that nobody who came at the last moment is left with an open connection."""

from __future__ import annotations

import asyncio


async def stop_listening(server: asyncio.Server) -> None:
    """Accept nobody any more, let those in who were accepted already, and close the listening sockets.

    `Server.close` alone leaves a connection for ever open whose task has not begun when it is called: such a task
    fails (`Server._attach`), and nobody closes its socket.
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    # an accepted client has a task in the next step, a connection in the one after, then a reader
    for _ in range(4):
        await asyncio.sleep(0)
    server.close()

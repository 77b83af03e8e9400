"""Clients that ask a server again and again, also while it stops."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator

CLIENTS = 3


@contextlib.contextmanager
def persistent_clients(ask_once: Callable[[], object], answered: Callable[[], object]) -> Iterator[None]:
    """Run the block once `answered`, while clients ask; what they leave open is collected afterwards."""
    stopped = threading.Event()

    def ask_on() -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError):
                ask_once()

    threads = [threading.Thread(target=ask_on) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        while not answered():
            time.sleep(0.001)
        yield
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    gc.collect()

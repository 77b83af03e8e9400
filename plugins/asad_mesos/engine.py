"""What drives the framework, as the cluster sees it."""

from __future__ import annotations

import threading
from typing import Protocol

from asad_mesos.events import Event
from asad_mesos.framework import Framework
from asad_mesos.jobs import Spec


class Engine(Protocol):
    """What drives the framework: a `Session`, or a test."""

    lock: threading.RLock
    framework: Framework
    trouble: str

    @property
    def subscribed(self) -> bool: ...

    def now_s(self) -> float: ...

    def start(self) -> None: ...

    def wait(self, timeout_s: float) -> bool: ...

    def submit(self, *specs: Spec) -> list[str]: ...

    def do(self, event: Event) -> None: ...

    def close(self) -> None: ...

"""A node of the double whose tasks are run by the real executor, as a Mesos agent runs it."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent import Agent
from master import Master, Task


class Node:
    """The `Runner` of one agent: an executor for each id, until it ends by itself."""

    def __init__(self, master: Master, folder: Path, *, switches: bool = False, **environment: str) -> None:
        """`switches`: executors run as the user that the framework names (an agent of root does that)."""
        self.master, self.folder = master, folder
        self.switches, self.environment = switches, environment
        self.executors: dict[str, tuple[Agent, subprocess.Popen[bytes]]] = {}
        self.started: list[str] = []
        """Executors, in the order of their starts."""
        self._opened = contextlib.ExitStack()
        self._worker = ThreadPoolExecutor(1)

    @contextlib.contextmanager
    def running(self, number: int = 0) -> Iterator[Node]:
        """It runs what is launched on that agent of the master."""
        self.master.runners[self.master.agents[number].agent_id] = self
        try:
            yield self
        finally:
            self._worker.shutdown(wait=True, cancel_futures=True)
            self._opened.close()

    def sandbox(self, executor: str) -> Path:
        """The folder of an executor."""
        return self.folder / executor

    def launch(self, task: Task) -> None:
        self._worker.submit(self._launch, task)

    def kill(self, task: Task, kill: dict[str, Any]) -> None:
        self._worker.submit(self._send, task, {"type": "KILL", "kill": kill})

    def acknowledge(self, task: Task, status: dict[str, Any]) -> None:
        record = {"task_id": status["task_id"], "uuid": status["uuid"]}
        self._worker.submit(self._send, task, {"type": "ACKNOWLEDGED", "acknowledged": record})

    def _launch(self, task: Task) -> None:
        name = task.executor
        if name not in self.executors:
            self._start(name, task.info["executor"])
        hosted, _ = self.executors[name]
        if hosted.until(lambda: hosted.subscriptions):
            hosted.send({"type": "LAUNCH", "launch": {"task": task.info}})

    def _start(self, name: str, info: dict[str, Any]) -> None:
        user = info["command"]["user"] if self.switches else None
        sandbox = self.sandbox(name)
        sandbox.mkdir(parents=True)
        sandbox.chmod(0o777 if user not in (None, "root") else 0o755)

        def heard(status: dict[str, Any]) -> None:
            self.master.hear(status["task_id"]["value"], status)

        hosted = self._opened.enter_context(Agent(info["data"], heard).running())
        process = self._opened.enter_context(hosted.executor(sandbox, user, **self.environment))
        self.executors[name] = (hosted, process)
        self.started.append(name)

    def _send(self, task: Task, event: dict[str, Any]) -> None:
        known = self.executors.get(task.executor)
        if known is not None:
            with contextlib.suppress(OSError):
                known[0].send(event)

    def end(self, executor: str) -> None:
        """An executor is killed, and its agent reports what that means for its tasks."""
        self.executors[executor][1].kill()
        for task in list(self.master.tasks.values()):
            if task.executor == executor and not task.over:
                status = {
                    "state": "TASK_FAILED",
                    "source": "SOURCE_AGENT",
                    "reason": "REASON_EXECUTOR_TERMINATED",
                    "message": "Executor terminated",
                    "uuid": base64.b64encode(uuid.uuid4().bytes).decode(),
                }
                self.master.hear(task.task_id, status)

"""What the daemon shows, asked for once for all who look, and handed on to each of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from asad.api.control import DaemonDown, ask
from asad.errors import AsadError
from asad.model import Json

IDLE_S = 30.0
"""So often is asked while nobody looks: what gains and weights were is drawn for who comes later."""
MOST_SAMPLES = 720
"""So many points of time are kept of what is drawn over time."""
MOST_STORIES = 100
"""Stories of so many jobs are kept until the next cycle."""
EXPLAIN_S = 10.0
"""So long may the story of a job take."""
Ask = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of the daemon."""

    number: int
    """Rises by one with each."""
    parts: Mapping[str, Any]
    """What the daemon answered; empty before the first answer."""
    trouble: str = ""
    """Why there is no newer answer; empty if this is the newest."""
    jobs: list[dict[str, Any]] = field(default_factory=list)
    """Its jobs, in rows."""
    samples: tuple[tuple[int, list[Json]], ...] = ()
    """What is drawn over time: number and values of each point, as `FIGURES` names them, then a weight an expert."""


FIGURES = (
    "time_s",
    "cores",
    "allocated",
    "used",
    "lent",
    "pool",
    "guests",
    "waiting",
    "lent_core_s",
    "saved_wait_s",
)


class PageFeed:
    """Asks the daemon at `socket`, every `interval_s` while somebody looks."""

    def __init__(self, socket: Path, interval_s: float, ask_daemon: Ask = ask) -> None:
        self.socket, self.interval_s, self._ask = socket, interval_s, ask_daemon
        self.page = Page(0, {}, "the daemon has not been asked yet")
        self.lookers = 0
        """How many watch."""
        self.asked = 0
        """How often the daemon was asked for the page."""
        self._samples: deque[tuple[int, list[Json]]] = deque(maxlen=MOST_SAMPLES)
        self._changed = asyncio.Event()
        self._closing = False
        self._wake = asyncio.Event()
        self._stories: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._explaining = asyncio.Semaphore(1)
        self._asked_at = 0.0

    async def run(self) -> None:
        """Ask, again and again."""
        while True:
            await self.look()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.interval_s if self.lookers else IDLE_S):
                    await self._wake.wait()
            # whoever comes and goes does not make us ask more often
            await asyncio.sleep(max(0.0, self._asked_at + self.interval_s - time.monotonic()))

    async def look(self) -> None:
        """Ask once; whoever waits for a change sees it."""
        self._asked_at, self.asked = time.monotonic(), self.asked + 1
        try:
            answer = await asyncio.to_thread(
                self._ask, self.socket, "page", as_of=self.page.parts.get("as_of", "")
            )
        except AsadError as error:
            if self.page.trouble != str(error):
                self._publish(self.page.parts, str(error))
            return
        parts = {**self.page.parts, **answer} if answer.get("same") else answer
        seen = ("as_of", "doing", "paused")
        if self.page.trouble or any(parts.get(key) != self.page.parts.get(key) for key in seen):
            self._publish(parts, "")

    def _publish(self, parts: Mapping[str, Any], trouble: str) -> None:
        number, known = self.page.number + 1, self.page.parts.get("as_of")
        jobs = self.page.jobs
        if parts.get("as_of") != known:
            jobs = rows_of(parts.get("jobs"))
            if parts.get("nodes"):
                self._samples.append((number, sample(parts)))
        self.page = Page(number, parts, trouble, jobs, tuple(self._samples))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def pages(self, at_most_s: float) -> AsyncGenerator[Page, None]:
        """The newest page, then whenever there is a newer one that, or after so long the same again; nothing is kept
        for who is slow."""
        self.lookers += 1
        self._wake.set()
        try:
            while not self._closing:
                page, changed = self.page, self._changed
                yield page
                if self.page is page:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(at_most_s):
                            await changed.wait()
        finally:
            self.lookers -= 1

    def close(self) -> None:
        """End what is being watched."""
        self._closing = True
        self._changed.set()

    async def story(self, job: str) -> Any:
        """What the daemon explains of a job, once a cycle; one at a time. Raises AsadError."""
        key = (str(self.page.parts.get("as_of", "")), job)
        if key not in self._stories:
            async with self._explaining:
                if key not in self._stories:
                    self._stories[key] = await self._explained(job)
                    while len(self._stories) > MOST_STORIES:
                        self._stories.popitem(last=False)
        return self._stories[key]

    async def _explained(self, job: str) -> Any:
        try:
            return await asyncio.to_thread(self._ask, self.socket, "explain", job=job, timeout_s=EXPLAIN_S)
        except DaemonDown:
            raise
        except AsadError as error:
            return {"error": str(error)}


def rows_of(columns: Mapping[str, list[Any]] | None) -> list[dict[str, Any]]:
    """Columns of one length as rows."""
    if not columns:
        return []
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def sample(parts: Mapping[str, Any]) -> list[Json]:
    """What is drawn over time of one answer."""
    nodes, status = parts["nodes"], parts["status"]
    cluster, gains = status["cluster"], status["gains"]
    weights = (parts.get("experts") or {}).get("weights") or []
    used = [value for value in nodes["used"] if value is not None]
    return [
        round(parts["now_s"]),
        sum(nodes["cores"]),
        sum(nodes["allocated"]),
        round(sum(used), 1) if used else None,
        round(sum(value or 0.0 for value in nodes["lent"]), 1),
        round(sum(value or 0.0 for value in nodes["pool"]), 1) if "pool" in nodes else None,
        cluster.get("guests"),
        cluster.get("waiting"),
        round(gains["lent_core_s"]),
        round(gains["saved_wait_s"]),
        *weights,
    ]

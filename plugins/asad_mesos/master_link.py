"""The way to the master: a child that subscribes, is watched, and is replaced when its connection is of no use."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from asad_mesos.driver import Driver
from asad_mesos.events import Disconnected, Event, Removed, Subscribed, read_event
from asad_mesos.master_calls import Call
from asad_mesos.settings import Settings

log = logging.getLogger(__name__)

NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What comes of records and events that make no sense; some are nested so deeply that they cannot even be shown."""
BEAT_S = 1.0
RESTART_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
CONNECT_S = 10.0
"""A child that is not subscribed by then is replaced, with the next master of the list."""
REFUSED_S = 30.0
"""A master that refuses us (a role, a principal) is asked again after this."""
SUPERSEDED_S = 1.0
"""The same where another scheduler took our id: it may be our own predecessor that dies."""
HEARTBEAT_S = 15.0
"""Of a master that does not give its own."""
BEHIND = 500
"""With more calls than this under way the master is not asked for tasks that nothing was heard of."""
HINTS = {
    "answers 401": "see [mesos] principal and secret_file",
    "answers 403": "see [mesos] principal and role",
    "does not match principal": "see [mesos] principal and secret_file",
    "principal is not allowed": "give [mesos] principal back, or end the framework under the old one (asactl teardown)",
}
"""Words of a refusal → what to do about it."""
NEVER = -float("inf")


class MasterLink:
    """Subscribed whenever a master takes us. What happens comes back as events for the state machine."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float]) -> None:
        """Raises ConfigError for a secret that cannot be read."""
        self.settings = settings
        self._secret, self._monotonic = settings.secret(), monotonic
        self.driver: Driver | None = None
        self.subscribed = self._ended = False
        self.first = threading.Event()
        """Has a master ever taken us?"""
        self.trouble = ""
        """Why nothing works just now; empty if it does."""
        self.master = self.version = ""
        """The master that has taken us, and its version."""
        self.starts = self.failures = 0
        """How many children there have been, and how many have failed since the last subscription."""
        self._masters, self._at_master = list(settings.master), 0
        self._next_start_s = self._started_s = self._heard_s = self._progress_s = self._beat_s = NEVER
        self._refused_s = NEVER
        self._heartbeat_s = HEARTBEAT_S

    @property
    def behind(self) -> bool:
        """Do many calls still wait for the master?"""
        return self.driver is not None and self.driver.sent - self.driver.through > BEHIND

    def close(self) -> None:
        """Kill the child, and start no other."""
        self._ended = True
        self._drop()

    def _drop(self) -> None:
        if self.driver is not None:
            self.driver.close()
        self.driver, self.subscribed = None, False

    def send(self, calls: Iterable[Call], framework_id: str) -> None:
        """Hand calls to the child. While we are not subscribed they are lost, and what they asked for is asked anew."""
        if self.driver is None or not self.subscribed:
            return
        if self.driver.sent == self.driver.through:
            self._progress_s = self._monotonic()
        for call in calls:
            self.driver.call({**call, "framework_id": {"value": framework_id}})

    def write(self) -> list[Event]:
        """Write what the child takes; it may have ended, and may have reported why."""
        return [] if self.driver is None or self.driver.write() else self.hear()

    def hear(self) -> list[Event]:
        """Read what the child has written. There is one."""
        assert self.driver is not None
        try:
            found = self.driver.read()
        except ValueError as error:
            return self.lose(f"the process that runs pymesos speaks nonsense ({error!r:.80})", 1)
        if found is None:
            return self.lose(self.trouble or "the process that runs pymesos has ended", 1)
        events: list[Event] = []
        now = self._monotonic()
        for line in found:
            if "event" in line:
                self._heard_s = now
                events += self._read(line["event"], now)
            elif "done" in line or "failed" in line:
                self.driver.through = line["failed" if "failed" in line else "done"]
                self._progress_s = now
                if "failed" in line and "not connected" not in line["why"]:
                    return events + self.lose(f"the master refused a call: {line['why']}", 1)
            elif "closed" in line:
                if "why" in line:
                    self.trouble = _refusal(str(line["why"]))
                others = not self.subscribed and len(self._masters) > 1 and now - self._started_s > 1.0
                self.subscribed = False
                if others:
                    return events + self.lose(self._no_answer(), 0)
                events.append(Disconnected())
            elif "master" in line:
                self.master = str(line["master"])
            elif "fatal" in line:
                self.trouble = str(line["fatal"])
        return events

    def _read(self, plain: Any, now: float) -> list[Event]:
        """What the state machine is to know of an event of the master; nothing of what makes no sense."""
        try:
            event = read_event(plain)
        except NONSENSE as error:
            log.warning("an event that makes no sense is let be: %s (%.80r)", _seen(plain), error)
            return []
        if isinstance(event, Subscribed):
            self._heartbeat_s, self.version = event.heartbeat_s or HEARTBEAT_S, event.version
            self.subscribed, self.trouble, self.failures = True, "", 0
            self.first.set()
        elif isinstance(event, Removed | Disconnected):
            self.trouble, self.subscribed = _refusal(event.message), False
            if isinstance(event, Disconnected):
                again_s = SUPERSEDED_S if "failed over" in event.message else REFUSED_S
                self._refused_s = now + again_s
        return [] if event is None else [event]

    def watch(self, framework_id: str) -> list[Event]:
        """Start, replace, and keep the child in touch."""
        driver, settings, now = self.driver, self.settings, self._monotonic()
        if driver is None:
            if now >= max(self._next_start_s, self._refused_s) and not self._ended:
                self._open(framework_id, now)
            return []
        if now - self._beat_s >= BEAT_S:
            self._beat_s = now
            driver.beat()
        silent_s = settings.heartbeats * self._heartbeat_s
        if self.subscribed and now - self._heard_s > silent_s:
            return self.lose(f"no heartbeat of the master for {silent_s:.0f} s", 0)
        if driver.sent > driver.through and now - self._progress_s > settings.timeout_s + 1.0:
            return self.lose(f"the master has not answered a call within {settings.timeout_s:g} s", 0)
        if not self.subscribed and now - max(self._started_s, self._heard_s) > CONNECT_S:
            return self.lose(self.trouble or self._no_answer(), 1)
        return []

    def _no_answer(self) -> str:
        return f"no answer from the master {self._masters[self._at_master]}"

    def _open(self, framework_id: str, now: float) -> None:
        """Another child."""
        settings = self.settings
        self.starts += 1
        self.driver = Driver(
            {
                "framework": framework_info(settings, framework_id),
                "master": self._masters[self._at_master],
                "principal": settings.principal,
                "secret": self._secret,
                "timeout_s": settings.timeout_s,
                "connect_s": 86_400.0,
                "silence_s": max(2.0, min(settings.hold_s, 60.0)),
            }
        )
        self._started_s = self._heard_s = self._progress_s = self._beat_s = now

    def lose(self, why: str, blame: int) -> list[Event]:
        """Give the child up; the next one subscribes with the same framework id, later the more have failed."""
        self._drop()
        if not self._ended:
            level = logging.WARNING if why != self.trouble else logging.DEBUG
            log.log(level, "Mesos: %s; subscribing again", why)
            self.trouble = why
        self.failures += blame
        self._at_master = (self._at_master + 1) % len(self._masters)
        self._next_start_s = self._monotonic() + RESTART_S[min(self.failures, len(RESTART_S) - 1)]
        return [Disconnected()]


def framework_info(settings: Settings, framework_id: str) -> dict[str, Any]:
    """FrameworkInfo: who subscribes; `framework_id` is empty the first time."""
    return {
        "user": settings.user,
        "name": settings.framework,
        "hostname": settings.hostname or socket.gethostname(),
        "failover_timeout": settings.failover_timeout_s,
        "checkpoint": True,
        "roles": [settings.role],
        "capabilities": [
            {"type": "MULTI_ROLE"},
            {"type": "PARTITION_AWARE"},
            {"type": "TASK_KILLING_STATE"},
            *([{"type": "REVOCABLE_RESOURCES"}] if settings.revocable else []),
            *([{"type": "GPU_RESOURCES"}] if settings.gpus else []),
        ],
        **({"principal": settings.principal} if settings.principal else {}),
        **({"id": {"value": framework_id}} if framework_id else {}),
    }


def _seen(event: Any) -> str:
    """An event for the log."""
    try:
        return repr(str(event)[:200])
    except RecursionError:
        return "it is nested too deeply"


def _refusal(message: str) -> str:
    """What an operator sees of a master that does not take us."""
    shown = "".join(c for c in message[:300] if c.isprintable())
    hint = next((f"; {hint}" for words, hint in HINTS.items() if words in message), "")
    return f"the master refuses the framework: {shown}{hint}"

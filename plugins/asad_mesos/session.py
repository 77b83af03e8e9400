"""The framework at work: a thread between the state machine, its journal, and the child that speaks to the master.

Order is all: events → state machine → records on the disk → calls. What has not been written down is not sent.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asad.errors import ClusterError, UsageError
from asad_mesos.driver import Driver, check_installed
from asad_mesos.events import (
    AgentLost,
    Cancelled,
    Disconnected,
    Event,
    Offered,
    Removed,
    Rescinded,
    Submitted,
    Subscribed,
    Ticked,
    Updated,
)
from asad_mesos.framework import Framework, FrameworkFault, Instructions
from asad_mesos.jobs import Spec
from asad_mesos.journal import Journal, JournalError
from asad_mesos.offers import read_offer
from asad_mesos.settings import Settings
from asad_mesos.state import Job
from asad_mesos.statuses import read_status

log = logging.getLogger(__name__)

NONSENSE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What comes of records and events that make no sense; some are nested so deeply that they cannot even be shown."""
TICK_S = 0.1
BEAT_S = 1.0
RESTART_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
CONNECT_S = 10.0
"""A child that is not subscribed by then is replaced, with the next master of the list."""
REFUSED_S = 30.0
"""A master that refuses us (a role, a principal) is asked again after this."""
HEARTBEAT_S = 15.0
JOIN_S = 10.0
BEHIND = 500
"""With more calls than this under way the master is not asked for tasks that nothing was heard of."""
REMEDIES = {
    "answers 401": "see [mesos] principal and secret_file",
    "answers 403": "see [mesos] principal and role",
    "does not match principal": "see [mesos] principal and secret_file",
    "principal is not allowed": "give [mesos] principal back, or end the framework under the old one (asactl teardown)",
}
"""Words of a refusal → what to do about it."""


class Session:
    """Subscribed as long as it is open. All methods may be called from any thread."""

    def __init__(
        self,
        settings: Settings,
        state_dir: Path,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads the journal. Raises ConfigError if pymesos is not there, JournalError if the journal cannot be used."""
        check_installed()
        self._settings = settings
        self._secret = settings.secret()
        self.journal = Journal(state_dir)
        self.framework = Framework(settings)
        try:
            self.framework.restore(self.journal.load())
        except (*NONSENSE, UsageError) as error:
            self.journal.close()
            raise JournalError(
                f"{self.journal.path}: it tells a story that cannot be ({error!r:.200}); move it away: then the "
                "framework starts anew, and Mesos ends its tasks after failover_timeout_s"
            ) from None
        except JournalError:
            self.journal.close()
            raise
        self.lock = threading.RLock()
        """Whoever looks at `framework` holds it."""
        self._monotonic = monotonic
        self._anchor_s = clock() - monotonic()
        self._backlog: list[Instructions] = []
        self.trouble = ""
        """Why nothing works just now; empty if it does."""
        self.master = ""
        """The master that has taken us, and its version."""
        self.version = ""
        self.starts = 0
        """How many children there have been."""
        self._driver: Driver | None = None
        self._masters = list(settings.master)
        self._at_master = 0
        self._failures = 0
        self._next_start_s = -float("inf")
        self._ticked_s = -float("inf")
        self._started_s = self._heard_s = self._progress_s = self._beat_s = self._refused_s = -float("inf")
        self._heartbeat_s = HEARTBEAT_S
        self._subscribed = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._stopping = False
        self._first = threading.Event()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------------- life

    def now_s(self) -> float:
        """UTC epoch when the session began, and a clock that is never set since then."""
        return self._anchor_s + self._monotonic()

    def start(self) -> None:
        """Begin to subscribe."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mesos", daemon=True)
            self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Until a master has taken us; False if none has in time."""
        self.start()
        return self._first.wait(timeout_s)

    def close(self) -> None:
        """End. Tasks go on; the master keeps them for `failover_timeout_s`."""
        with self.lock:  # who submits meanwhile has been kept, or is told
            self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._wake_in.close()
        self._wake_out.close()
        self.journal.close()

    # --------------------------------------------------------------------------------------------------- requests

    def submit(self, *specs: Spec) -> list[str]:
        """Queue jobs, on the disk when this returns; their ids. Raises JournalError if they cannot be kept."""
        with self.lock:
            if self._stopping:
                raise ClusterError("the daemon stops; submit it again when it runs")
            first = self.framework.last_number + 1
            jobs = [f"m{first + number}" for number in range(len(specs))]
            self._handle(*(Submitted(spec) for spec in specs))
            if any(left.records for left in self._backlog):
                self._handle(*(Cancelled(job, "the journal could not be written") for job in jobs))
                raise JournalError(self.trouble or f"{self.journal.path}: cannot be written")
        self._wake()
        return jobs

    def do(self, event: Event) -> None:
        """Have the state machine take an event in. Raises UsageError for what cannot be."""
        with self.lock:
            self._handle(event)
        self._wake()

    def job(self, job_id: str) -> Job:
        """A job by its id. Raises UsageError."""
        with self.lock:
            return self.framework.job(job_id)

    # -------------------------------------------------------------------------------------------------- the thread

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_out.send(b".")

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except FrameworkFault as error:
                self._break(f"a fault of asad's: {error}", 1)
                log.exception("a fault of asad's in the Mesos framework; it subscribes again")
            except Exception as error:
                self._break(f"a fault of asad's: {error}", 1)
                log.exception("the Mesos session stumbled; it subscribes again")

    def _turn(self) -> None:
        """Wait for something, and deal with it."""
        driver = self._driver
        watched = select.poll()  # unlike select, for any number of a descriptor
        watched.register(self._wake_in, select.POLLIN)
        if driver is not None:
            watched.register(driver.stdout, select.POLLIN)
            if driver.waits_to_write:
                watched.register(driver.stdin, select.POLLOUT)
        ready = {descriptor for descriptor, _ in watched.poll(1000.0 * TICK_S)}
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass
        with self.lock:
            now = self._monotonic()
            if driver is not None and driver.stdout in ready:
                self._hear(driver, now)
            if now - self._ticked_s >= TICK_S:
                self._ticked_s = now
                self._handle(Ticked(driver is not None and driver.sent - driver.through > BEHIND))
                self._watch(now)
            if self._driver is not None and not self._driver.write():
                self._hear(self._driver, now)  # it has ended, and may have said why
            if self.journal.has_grown and not self._backlog:
                with contextlib.suppress(JournalError):
                    self.journal.rewrite(self.framework.dump())

    def _handle(self, *events: Event) -> None:
        collects = gc.isenabled()
        gc.disable()  # ten thousand descriptions of tasks, and none refers to another
        try:
            instructions = self.framework.handle(*events, now_s=self.now_s())
        finally:
            if collects:
                gc.enable()
            self._flush()
        if instructions.records or instructions.calls:
            self._backlog.append(instructions)
            self._flush()

    def _flush(self) -> None:
        """Records to the disk, then calls to the child; nothing overtakes what could not be written."""
        while self._backlog:
            records, calls = self._backlog[0]
            try:
                self.journal.write(records)
            except JournalError as error:
                self.trouble = str(error)
                return
            if self.trouble.startswith(str(self.journal.path)):
                self.trouble = ""
            del self._backlog[0]
            if self._driver is not None and self._subscribed:
                if self._driver.sent == self._driver.through:
                    self._progress_s = self._monotonic()
                framework_id = {"value": self.framework.framework_id}
                for call in calls:
                    self._driver.call({**call, "framework_id": framework_id})

    def _hear(self, driver: Driver, now: float) -> None:
        try:
            found = driver.read()
        except ValueError as error:
            self._break(f"the process that runs pymesos speaks nonsense ({error!r:.80})", 1)
            return
        if found is None:
            self._break(self.trouble or "the process that runs pymesos has ended", 1)
            return
        events: list[Event] = []
        for line in found:
            if "event" in line:
                self._heard_s = now
                events += self._read_event(line["event"], now)
            elif "done" in line:
                driver.through = line["done"]
                self._progress_s = now
            elif "failed" in line:
                driver.through = line["failed"]
                self._progress_s = now
                if "not connected" not in line["why"]:
                    self._take(events)
                    self._break(f"the master refused a call: {line['why']}", 1)
                    return
            elif "closed" in line:
                if "why" in line:
                    self.trouble = _refusal(str(line["why"]))
                refused = not self._subscribed and len(self._masters) > 1
                self._subscribed = False
                events.append(Disconnected())
                if refused and now - self._started_s > 1.0:
                    self._take(events)
                    self._break(f"no answer from the master {self._masters[self._at_master]}", 0)
                    return
            elif "master" in line:
                self.master = str(line["master"])
            elif "fatal" in line:
                self.trouble = str(line["fatal"])
        self._take(events)

    def _take(self, events: list[Event]) -> None:
        """Events one by one where a fault of one must not take the others along."""
        if events:
            self._handle(*events)

    def _read_event(self, event: Any, now: float) -> list[Event]:
        """What the state machine is told of an event of the master; nothing of what makes no sense."""
        try:
            kind = event["type"]
            if kind == "SUBSCRIBED":
                body = event["subscribed"]
                self._heartbeat_s = float(body.get("heartbeat_interval_seconds", HEARTBEAT_S)) or HEARTBEAT_S
                info = body.get("master_info", {})
                self.version = "".join(c for c in str(info.get("version", "")) if c.isprintable())[:40]
                self._subscribed, self.trouble, self._failures = True, "", 0
                self._first.set()
                return [Subscribed(str(body["framework_id"]["value"]))]
            if kind == "OFFERS":
                return [Offered([read_offer(offer) for offer in event["offers"].get("offers", ())])]
            if kind == "UPDATE":
                return [Updated(read_status(event["update"]["status"]))]
            if kind == "RESCIND":
                return [Rescinded(str(event["rescind"]["offer_id"]["value"]))]
            if kind == "FAILURE":
                failure = event["failure"]
                return [] if "executor_id" in failure else [AgentLost(str(failure["agent_id"]["value"]))]
            if kind == "ERROR":
                return self._read_error(str(event["error"].get("message", "")), now)
        except NONSENSE as error:
            log.warning("an event that makes no sense is let be: %s (%.80r)", _seen(event), error)
        return []

    def _read_error(self, message: str, now: float) -> list[Event]:
        self.trouble = _refusal(message)
        self._subscribed = False
        if "has been removed" in message:
            return [Removed(message)]
        if "failed over" not in message:
            self._refused_s = now + REFUSED_S
        else:
            self._refused_s = (
                now + 1.0
            )  # another scheduler took our id; it may be our own predecessor that dies
        return [Disconnected()]

    def _watch(self, now: float) -> None:
        """Start, replace, and keep the child in touch."""
        driver, settings = self._driver, self._settings
        if driver is None:
            if now >= max(self._next_start_s, self._refused_s) and not self._stopping:
                self._open(now)
            return
        if now - self._beat_s >= BEAT_S:
            self._beat_s = now
            driver.beat()
        silent_s = settings.heartbeats * self._heartbeat_s
        if self._subscribed and now - self._heard_s > silent_s:
            self._break(f"no heartbeat of the master for {silent_s:.0f} s", 0)
        elif driver.sent > driver.through and now - self._progress_s > settings.timeout_s + 1.0:
            self._break(f"the master has not answered a call within {settings.timeout_s:g} s", 0)
        elif not self._subscribed and now - max(self._started_s, self._heard_s) > CONNECT_S:
            self._break(self.trouble or f"no answer from the master {self._masters[self._at_master]}", 1)

    def _open(self, now: float) -> None:
        """Another child."""
        settings, framework = self._settings, self.framework
        self.starts += 1
        info: dict[str, Any] = {
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
        }
        if settings.principal:
            info["principal"] = settings.principal
        if framework.framework_id:
            info["id"] = {"value": framework.framework_id}
        self._driver = Driver(
            {
                "framework": info,
                "master": self._masters[self._at_master],
                "principal": settings.principal,
                "secret": self._secret,
                "timeout_s": settings.timeout_s,
                "connect_s": 86_400.0,
                "silence_s": max(2.0, min(settings.hold_s, 60.0)),
            }
        )
        self._ticked_s = -float("inf")
        self._started_s = self._heard_s = self._progress_s = self._beat_s = now

    def _break(self, why: str, blame: int) -> None:
        """Give the child up; the next one subscribes with the same framework id."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        if why and not self._stopping:
            log.log(
                logging.WARNING if why != self.trouble else logging.DEBUG, "Mesos: %s; subscribing again", why
            )
            self.trouble = why
        self._subscribed = False
        self._failures += blame
        self._at_master = (self._at_master + 1) % len(self._masters)
        wait_s = RESTART_S[min(self._failures, len(RESTART_S) - 1)]
        self._next_start_s = self._monotonic() + wait_s
        with contextlib.suppress(ClusterError):
            self._handle(Disconnected())

    @property
    def subscribed(self) -> bool:
        """Has a master taken us?"""
        return self._subscribed

    @property
    def child(self) -> int:
        """Process that runs pymesos; 0 for none."""
        return self._driver.pid if self._driver is not None else 0


def _seen(event: Any) -> str:
    """An event for the log."""
    try:
        return repr(str(event)[:200])
    except RecursionError:
        return "it is nested too deeply"


def _refusal(message: str) -> str:
    """What an operator is told of a master that does not take us."""
    shown = "".join(c for c in message[:300] if c.isprintable())
    remedy = next((f"; {remedy}" for words, remedy in REMEDIES.items() if words in message), "")
    return f"the master refuses the framework: {shown}{remedy}"

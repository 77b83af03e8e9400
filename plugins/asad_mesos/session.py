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

from asad.errors import ClusterError, UsageError
from asad_mesos.driver import check_installed
from asad_mesos.events import Cancelled, Event, Submitted, Ticked
from asad_mesos.framework import Framework, Instructions
from asad_mesos.framework_journal import Journal, JournalError
from asad_mesos.framework_state import Job
from asad_mesos.job_spec import Spec
from asad_mesos.master_link import NONSENSE, MasterLink
from asad_mesos.settings import Settings

log = logging.getLogger(__name__)

TICK_S = 0.1
JOIN_S = 10.0


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
        self.link = MasterLink(settings, monotonic)
        self.framework = Framework(settings)
        self.journal = Journal(state_dir)
        try:
            self.framework.restore(self.journal.load())
        except (*NONSENSE, UsageError) as error:
            self.journal.close()
            raise JournalError(
                f"{self.journal.path}: it describes what cannot be ({error!r:.200}); move it away: then the "
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
        self._unwritten = ""
        """Why the journal cannot be written; empty if it can."""
        self._ticked_s = -float("inf")
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._stopping = False
        self._thread: threading.Thread | None = None

    @property
    def subscribed(self) -> bool:
        """Has a master taken us?"""
        return self.link.subscribed

    @property
    def trouble(self) -> str:
        """Why nothing works just now; empty if it does."""
        return self._unwritten or self.link.trouble

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
        return self.link.first.wait(timeout_s)

    def close(self) -> None:
        """End. Tasks go on; the master keeps them for `failover_timeout_s`."""
        with self.lock:  # who submits meanwhile has been written down, or hears that it was not
            self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        self.link.close()
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
            except Exception as error:
                log.exception("a fault of asad's in the Mesos framework; it subscribes again")
                with self.lock, contextlib.suppress(ClusterError):
                    self._handle(*self.link.lose(f"a fault of asad's: {error}", 1))

    def _turn(self) -> None:
        """Wait for something, and deal with it."""
        driver = self.link.driver
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
            if driver is not None and driver.stdout in ready:
                self._handle(*self.link.hear())
            now = self._monotonic()
            if now - self._ticked_s >= TICK_S:
                self._ticked_s = now
                self._handle(Ticked(self.link.behind))
                self._handle(*self.link.watch(self.framework.framework_id))
            self._handle(*self.link.write())
            if self.journal.has_grown and not self._backlog:
                with contextlib.suppress(JournalError):
                    self.journal.rewrite(self.framework.dump())

    def _handle(self, *events: Event) -> None:
        if not events:
            return
        collects = gc.isenabled()
        gc.disable()  # ten thousand descriptions of tasks, and none refers to another
        try:
            instructions = self.framework.handle(*events, now_s=self.now_s())
            if instructions.records or instructions.calls:
                self._backlog.append(instructions)
        finally:
            if collects:
                gc.enable()
            self._flush()

    def _flush(self) -> None:
        """Records to the disk, then calls to the child; nothing overtakes what could not be written."""
        while self._backlog:
            records, calls = self._backlog[0]
            try:
                self.journal.write(records)
            except JournalError as error:
                self._unwritten = str(error)
                return
            self._unwritten = ""
            del self._backlog[0]
            self.link.send(calls, self.framework.framework_id)

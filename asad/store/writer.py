"""Writes to a state store that may be away: full, locked, corrupt or on a server that does not answer.

A daemon hands over what it has to say and goes on at once. A thread writes it; while it cannot, what is stated waits in
memory, the newest of it when it is too much, and is written when the store is back.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from asad.applications import MOST
from asad.decisions import Outcome, SetShare
from asad.errors import AsadError, UsageError
from asad.model import Json, ShareCases
from asad.store import (
    learned,
    lending_ledger,
    quota_audit,
    retention,
    share_cases,
    start_forecasts,
    statements,
    wait_hours,
)
from asad.store.recording import Names, Rows, Run, pool_nodes
from asad.store.records import JobEnd, LedgerEntry, QuotaChange, StatementChanges
from asad.store.start_forecasts import Foreseen
from asad.store.store import Store
from asad.store.wait_hours import Waited

log = logging.getLogger(__name__)

MOST_WAITING = 20_000
"""Rows of each kind that wait for a store that is away; then the oldest are dropped, and counted."""
MOST_LEARNED = 3 * MOST
"""Entries of what was learned that wait; then what is forgotten is not passed on any more."""
UNASKED = 2 * MOST_WAITING
"""Rows after which a run would write by itself: never, so that a batch is written whole or not at all."""
FORGET_S = 3600.0
"""What is older than the retention is to be removed this often."""
PAUSE_S = 0.02
"""Between two steps, so that other processes that write get their turn."""
AGAIN_S, AGAIN_MOST_S = 2.0, 60.0
"""After a failure the store is tried again so soon, then twice as late each time, at most so late."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """What `Store.begin_run` is given of a live run."""

    policy: str
    machine: Mapping[str, Json]
    settings: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class _Decided:
    """What became of one decision, with names instead of rows: rows are given to other jobs in time."""

    cycle: int
    time_s: float
    outcome: Outcome
    names: Mapping[int, str]
    hosts: Mapping[int, int]
    nodes: Mapping[int, str] | None


@dataclass(slots=True)
class _Waiting:
    """What has not been written yet."""

    decided: deque[_Decided] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    ends: deque[JobEnd] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    cases: deque[ShareCases] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    ledger: deque[LedgerEntry] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    quotas: deque[QuotaChange] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    waits: deque[Waited] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    forecasts: deque[Foreseen] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    learned: dict[str, dict[str, Mapping[str, Json] | None]] = field(default_factory=dict)
    """By scope and application; newer knowledge replaces older, None is of those that are forgotten."""
    stated: dict[str, StatementChanges] = field(default_factory=dict)
    """By scope; never dropped: who was promised a start, and what was charged, is kept however long that takes."""
    forget: tuple[float, retention.Keep, float | None] | None = None
    """What `Writer.forget` was given last."""

    def __bool__(self) -> bool:
        rows = self.decided, self.ends, self.cases, self.ledger, self.quotas, self.waits, self.forecasts
        return any(rows) or bool(self.learned or self.stated) or self.forget is not None


class Writer:
    """The one that writes; all methods but `close` return at once.

    `trouble` is one sentence about a store that cannot be written, empty while all is well; `dropped` counts what was
    lost for it.
    """

    def __init__(
        self,
        url: str,
        start: RunStart,
        *,
        open_store: Callable[[str], Store] = Store.open,
        again_s: tuple[float, float] = (AGAIN_S, AGAIN_MOST_S),
    ) -> None:
        self.url, self.start = url, start
        self.trouble = ""
        self.dropped = 0
        self.run_id: int | None = None
        self._open, self._again_s = open_store, again_s
        self._waiting = _Waiting()
        self._changed = threading.Condition()
        self._store: Store | None = None
        self._run: Run | None = None
        self._steps: Iterator[int] | None = None
        """What is left to remove, and what was asked for."""
        self._asked: tuple[float, retention.Keep, float | None] | None = None
        self._metrics: Mapping[str, Json] | None = None
        self._stopping = False
        self._idle = True
        self._thread = threading.Thread(target=self._write_for_ever, name="asad-store", daemon=True)
        self._thread.start()

    # --------------------------------------------------------------------------------------- what the daemon says

    def record(
        self,
        cycle: int,
        time_s: float,
        outcomes: Sequence[Outcome],
        job_id: Names,
        host: Rows,
        node_names: Names | None = None,
    ) -> None:
        """Keep what became of the decisions of a cycle; `job_id` and `host` are those columns of its snapshot, and
        `node_names` are those of its machine."""
        decided = []
        for outcome in outcomes:
            decision = outcome.decision
            rows = {int(getattr(decision, key)) for key in ("guest", "host", "job") if hasattr(decision, key)}
            hosts = {}
            if isinstance(decision, SetShare) and decision.host < 0:
                hosts[decision.guest] = int(host[decision.guest])
                rows |= set(hosts.values())
            names = {row: str(job_id[row]) for row in rows if row >= 0}
            nodes = None
            if node_names is not None:
                nodes = {node: str(node_names[node]) for node in pool_nodes(decision)}
            decided.append(_Decided(cycle, time_s, outcome, names, hosts, nodes))
        self._add("decided", decided)

    def record_ends(self, ends: Sequence[JobEnd]) -> None:
        """Keep how jobs that lending touched ended."""
        self._add("ends", ends)

    def record_cases(self, cases: ShareCases) -> None:
        """Keep what hosts lent and what it cost."""
        if cases.job:
            self._add("cases", [cases])

    def add_ledger(self, entries: Sequence[LedgerEntry]) -> None:
        """Keep what lending gave and took."""
        self._add("ledger", entries)

    def add_quota_changes(self, changes: Sequence[QuotaChange]) -> None:
        """Keep what node actors wrote."""
        self._add("quotas", changes)

    def add_waits(self, entries: Sequence[Waited]) -> None:
        """Keep how long jobs waited, and why."""
        self._add("waits", entries)

    def add_forecasts(self, entries: Sequence[Foreseen]) -> None:
        """Keep when jobs were forecast to start, and when they did."""
        self._add("forecasts", entries)

    def save_learned(self, scope: str, memory: Mapping[str, Mapping[str, Json] | None]) -> None:
        """Keep what was learned of these applications; None: nothing any more."""
        if memory:
            with self._changed:
                waiting = self._waiting.learned.setdefault(scope, {})
                waiting.update(memory)
                if len(waiting) > MOST_LEARNED:  # a store that comes back forgets by itself, in time
                    for name in [name for name, entry in waiting.items() if entry is None]:
                        del waiting[name]
                self._changed.notify_all()

    def save_statements(self, scope: str, changes: StatementChanges) -> None:
        """Keep what has changed of statements of work, all of it in one transaction."""
        if changes:
            with self._changed:
                known = self._waiting.stated.get(scope, StatementChanges())
                self._waiting.stated[scope] = known.before(changes)
                self._changed.notify_all()

    def forget(self, time_s: float, keep: retention.Keep, passed_s: float | None) -> None:
        """Remove what is older than `keep` says at `time_s`. `passed_s` is by the monotonic clock, without which the
        other is believed (see `asad.store.retention.forget`).

        Done step by step while nothing else waits to be written, and left to the next time where that never comes.
        """
        with self._changed:
            self._waiting.forget = time_s, keep, passed_s
            self._changed.notify_all()

    def _add(self, kind: str, rows: Sequence[object]) -> None:
        with self._changed:
            queue = getattr(self._waiting, kind)
            self.dropped += max(0, len(queue) + len(rows) - MOST_WAITING)
            queue.extend(rows)
            self._changed.notify_all()

    def wait_until_written(self, timeout_s: float, *, removed: bool = False) -> bool:
        """Wait until nothing is left to write (`removed`: nor to remove); False if that took too long."""

        def written() -> bool:
            return self._idle and not self._waiting and not (removed and self._steps is not None)

        with self._changed:
            return self._changed.wait_for(written, timeout_s)

    def close(self, metrics: Mapping[str, Json], timeout_s: float = 5.0) -> bool:
        """Write what waits and the run's figures, and stop; False if the store did not take it in time.

        Called again it waits once more, for the same figures.
        """
        with self._changed:
            if not self._stopping:
                self._metrics, self._stopping = metrics, True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive() and not self._waiting

    # ------------------------------------------------------------------------------------------- in the thread

    def _write_for_ever(self) -> None:
        wait_s = self._again_s[0]
        while True:
            with self._changed:
                self._idle = True
                self._changed.notify_all()
                pause_s = None if self._steps is None else PAUSE_S
                self._changed.wait_for(lambda: self._waiting or self._stopping or self._run is None, pause_s)
                self._idle = False
                stopping = self._stopping
            try:
                self._write()
                if stopping:
                    self._finish()
                    return
                self._remove_some()
                if self.trouble:
                    log.warning("the state store works again; %d rows were dropped meanwhile", self.dropped)
                self.trouble, wait_s = "", self._again_s[0]
            except Exception as error:
                self._failed(error)
                if stopping:
                    return
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, wait_s)
                wait_s = min(2 * wait_s, self._again_s[1])

    def _failed(self, error: Exception) -> None:
        if not self.trouble:  # reported once, not at every try
            log.warning("the state store cannot be written; what is decided waits in memory: %s", error)
            if not isinstance(error, AsadError):
                log.error("writing to the store failed in a way nobody foresaw", exc_info=error)
        self.trouble = str(error) or type(error).__name__
        self._run = None
        if self._steps is not None:  # begun anew when the store is back
            self._steps = None
            with self._changed:
                self._waiting.forget = self._waiting.forget or self._asked
        if self._store is not None:
            self._store.close()
            self._store = None

    def _ready(self) -> tuple[Store, Run]:
        """The open store and the run in it, as it was before a failure if the store still has it."""
        if self._store is None:
            self._store = self._open(self.url)
        if self._run is None and self.run_id is not None:
            try:
                self._run = self._store.continue_run(self.run_id, flush_every=UNASKED)
            except UsageError:
                log.warning("the state store has lost run %d; a new one begins", self.run_id)
        if self._run is None:
            self._run = self._store.begin_run(
                "live",
                self.start.policy,
                None,
                self.start.machine,
                self.start.settings,
                flush_every=UNASKED,
            )
            self.run_id = self._run.id
        return self._store, self._run

    def _write(self) -> None:
        """Write what waits, each kind in a transaction of its own; what could not be written waits on."""
        with self._changed:
            batch, self._waiting = self._waiting, _Waiting()
        try:
            store, run = self._ready()
            for row in batch.decided:
                run.record(
                    row.cycle,
                    row.time_s,
                    [row.outcome],
                    row.names,
                    host_rows=row.hosts,
                    node_names=row.nodes,
                )
            run.record_ends(batch.ends)
            if batch.decided or batch.ends:
                run.flush()
            batch.decided.clear()
            batch.ends.clear()
            share_cases.add(store, run.id, batch.cases)
            batch.cases.clear()
            lending_ledger.add(store, batch.ledger)
            batch.ledger.clear()
            quota_audit.add(store, batch.quotas)
            batch.quotas.clear()
            wait_hours.add(store, batch.waits)
            batch.waits.clear()
            start_forecasts.add(store, batch.forecasts)
            batch.forecasts.clear()
            for scope in list(batch.learned):
                learned.save(store, scope, batch.learned[scope])
                del batch.learned[scope]
            for scope in list(batch.stated):
                statements.save(store, scope, batch.stated[scope])
                del batch.stated[scope]
            if batch.forget is not None:
                clock_s, keep, passed_s = batch.forget
                time_s, now_s = retention.believed(store, run.id, clock_s, keep, passed_s)
                self._steps, self._asked = retention.steps(store, time_s, now_s, keep), batch.forget
                batch.forget = None
        except BaseException:
            self._put_back(batch)
            raise

    def _remove_some(self) -> None:
        """One step, after which news are written first."""
        if self._steps is not None and next(self._steps, None) is None:
            self._steps = None

    def _put_back(self, batch: _Waiting) -> None:
        """What could not be written comes before what was stated meanwhile."""
        with self._changed:
            new = self._waiting
            for kind in ("decided", "ends", "cases", "ledger", "quotas", "waits", "forecasts"):
                rows = [*getattr(batch, kind), *getattr(new, kind)]
                self.dropped += max(0, len(rows) - MOST_WAITING)
                setattr(new, kind, deque(rows, maxlen=MOST_WAITING))
            for scope, memory in batch.learned.items():
                new.learned[scope] = {**memory, **new.learned.get(scope, {})}
            for scope, changes in batch.stated.items():
                new.stated[scope] = changes.before(new.stated.get(scope, StatementChanges()))
            if new.forget is None:
                new.forget = batch.forget

    def _finish(self) -> None:
        """All is written: the run is done."""
        if self._run is not None:
            self._run.finish(self._metrics or {})
        if self._store is not None:
            self._store.close()

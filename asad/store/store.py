"""The state store: what every run decided and why, how it ended, what the learner knows.

SQLite in WAL mode by default, PostgreSQL by URL; one process writes a run, any number read it meanwhile. A
run gathers its rows in memory and writes them in one transaction every few thousand, so what a killed run
leaves is whole up to its last flush (`RunRecord.checkpoint_s` says up to when).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, get_args

from sqlalchemy import (
    URL,
    Connection,
    Row,
    Select,
    create_engine,
    delete,
    event,
    func,
    insert,
    make_url,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from asad.errors import StoreError, UsageError
from asad.model import DECISIONS, STATEMENTS_OVER, Decision, Json, Outcome, SetShare
from asad.store import tables
from asad.store.migrations import check_version, installed_migrations, upgrade, version_of
from asad.store.process import ProcessMark, this_process
from asad.store.records import (
    COLUMNS,
    JOB_FIELDS,
    AccountTotal,
    DecisionRecord,
    JobEnd,
    LearnerState,
    LedgerEntry,
    QuotaChange,
    RunKind,
    RunRecord,
)

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another one's transaction."""
CHANGE_AGAIN_S = 0.01
"""Between two tries to change the journal of a new file."""
FLUSH_EVERY = 5_000
"""Rows that a run gathers before it writes them."""
PAGE = 2_000
"""Rows that a reader fetches at a time; no cursor stays open between pages."""
UPGRADE_LOCK = 0x61736164
"""PostgreSQL's advisory lock of whoever changes the schema ("asad")."""


class Names(Protocol):
    """Row of a job → the log's own name of it: a sequence, or a numpy array."""

    def __getitem__(self, row: int, /) -> Any:
        """The name of one row."""
        ...


class Rows(Protocol):
    """Row of a guest → row of its host, -1 for none: a sequence, or a numpy array."""

    def __getitem__(self, row: int, /) -> Any:
        """The host of one row."""
        ...


def default_path() -> Path:
    """`$XDG_STATE_HOME/asad/asad.db`, under `~/.local/state` where that is not set."""
    state_home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state_home) if Path(state_home).is_absolute() else Path.home() / ".local" / "state"
    return base / "asad" / "asad.db"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, by which the store knows a log again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Run:
    """One run being recorded. As a context manager: failed or killed if the block does not finish it."""

    def __init__(self, store: Store, number: int, flush_every: int) -> None:
        self._store, self.id, self._flush_every = store, number, flush_every
        self._decisions: list[tuple[Any, ...]] = []
        self._ends: list[tuple[Any, ...]] = []
        self._next_decision = 0
        self._next_end = 0
        self._time_s: float | None = None
        self._over = False

    def record(
        self,
        cycle: int,
        time_s: float,
        outcomes: Iterable[Outcome],
        job_names: Names,
        *,
        host_rows: Rows | None = None,
    ) -> None:
        """Keep what one cycle decided.

        `outcomes` are what the cluster answered and what the guard held back: an outcome that is not done is
        `vetoed` if its reason begins with that word, else `refused`. Decisions name rows of `job_names`, the
        log's own names. `host_rows` (`Jobs.host` of the snapshot) says beside which host a guest ran whose
        share was changed, so that its host's story tells it too.

        Raises StoreError if the rows gathered cannot be written or a kind is unknown, IndexError for a row
        that has no name, TypeError if the detail of a cause is no plain data.
        """
        self._time_s = float(time_s)
        for outcome in outcomes:
            self._add(cycle, outcome, job_names, host_rows)
        if len(self._decisions) >= self._flush_every:
            self.flush()

    def _add(self, cycle: int, outcome: Outcome, job_names: Names, host_rows: Rows | None) -> None:
        decision = outcome.decision
        held_back = "vetoed" if outcome.reason.startswith("vetoed") else "refused"
        job_row, host_row, share, seconds, more = _columns(decision)
        if host_row is None and host_rows is not None and isinstance(decision, SetShare):
            beside = int(host_rows[job_row])
            host_row = beside if beside >= 0 else None
        cause = decision.cause
        self._decisions.append(
            (
                self.id,
                self._next_decision,
                int(cycle),
                self._time_s,
                decision.kind,
                _name(job_names, job_row),
                job_row,
                None if host_row is None else _name(job_names, host_row),
                host_row,
                share,
                seconds,
                more,
                _text(cause.policy),
                _text(cause.reason),
                "done" if outcome.done else held_back,
                _text(outcome.reason),
                to_text(cause.detail),
            )
        )
        self._next_decision += 1

    def record_ends(self, ends: Iterable[JobEnd]) -> None:
        """Keep how jobs that lending touched ended.

        Raises StoreError if the rows gathered cannot be written.
        """
        for end in ends:
            self._ends.append(
                (
                    self.id,
                    self._next_end,
                    _text(end.job),
                    end.role,
                    _known(end.submit_s),
                    _known(end.start_s),
                    _known(end.end_s),
                    _known(end.baseline_end_s),
                    bool(end.loser),
                )
            )
            self._next_end += 1
            if len(self._ends) >= self._flush_every:
                self.flush()

    def save_learner(self, states: Mapping[str, LearnerState]) -> None:
        """Keep what this run's learner knows, by application, in place of what was kept before.

        Raises StoreError if it cannot be written.
        """
        self._store._save_learner(f"run {self.id}", self.id, states)

    def flush(self) -> None:
        """Write what was gathered, in one transaction; what could not be written stays gathered.

        Raises StoreError if it cannot be written, or if the run was removed meanwhile.
        """
        with self._store._writing("writing decisions") as connection:
            self._write(connection, {})
        self._decisions.clear()
        self._ends.clear()

    def finish(self, metrics: Mapping[str, Json]) -> None:
        """Write what was gathered and the run's figures: it is done.

        Raises StoreError if it cannot be written.
        """
        self._end("done", "", metrics)

    def fail(self, reason: str) -> None:
        """Write what was gathered, and why the run did not get to its end.

        Raises StoreError if it cannot be written.
        """
        self._end("failed", reason, {})

    def _end(self, state: str, failure: str, metrics: Mapping[str, Json]) -> None:
        ended = {
            "state": state,
            "failure": _text(failure),
            "metrics": to_text(metrics),
            "ended_at": time.time(),
        }
        with self._store._writing("ending a run") as connection:
            self._write(connection, ended)
        self._decisions.clear()
        self._ends.clear()
        self._over = True

    def _write(self, connection: Connection, ended: Mapping[str, Any]) -> None:
        checkpoint = {} if self._time_s is None else {"checkpoint_s": self._time_s}
        changed = connection.execute(
            update(tables.runs)
            .where(tables.runs.c.id == self.id)
            .values(decisions=self._next_decision, **checkpoint, **ended)
        )
        if changed.rowcount != 1:
            raise StoreError(f"run {self.id} was removed while it was being recorded; start it again")
        _insert(connection, tables.decisions.name, self._decisions)
        _insert(connection, tables.job_ends.name, self._ends)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if error is None:
            self.fail("ended without figures")
        elif isinstance(error, StoreError):
            return  # nothing more can be written; the run shows as killed once this process is gone
        elif isinstance(error, Exception):
            self.fail(f"{type(error).__name__}: {error}")
        else:
            self._end("killed", type(error).__name__, {})


class Store:
    """An open state store. Also a context manager that closes it.

    Every method raises StoreError, with the store's name and the mend, if the database fails it.
    """

    def __init__(self, url: URL) -> None:
        """Use `Store.open`."""
        self.url = url
        options: dict[str, Any] = {"pool_pre_ping": True} if url.get_backend_name() == "postgresql" else {}
        self._engine = create_engine(url, **options)
        if url.get_backend_name() == "sqlite":
            event.listen(self._engine, "connect", _set_up_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        self._write_engine = self._engine.execution_options(asad_begin="BEGIN IMMEDIATE")

    @classmethod
    def open(cls, url: str | None = None, *, create: bool = True) -> Store:
        """Open a store and bring its schema up to date.

        `url` is a path, `sqlite:///path`, or `postgresql://user@host/database`; None is `default_path()`. A
        missing SQLite file is made, with its folder, unless `create` is false.

        Raises UsageError for a URL that is none or a missing file, StoreError if the store cannot be opened,
        belongs to something else or is newer than this code.
        """
        parsed = _parse(url)
        _check_file(parsed, create)
        try:
            store = cls(parsed)
        except ModuleNotFoundError as error:
            raise StoreError(f"{_shown(parsed)}: {error}; pip install 'asad[postgres]'") from error
        try:
            store._bring_up_to_date()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        """How operators know it: the path, or the URL without its password."""
        return _shown(self.url)

    # --------------------------------------------------------------------------------------------------- runs

    def begin_run(
        self,
        kind: RunKind,
        policy: str,
        log: Mapping[str, Json] | None,
        machine: Mapping[str, Json],
        settings: Mapping[str, Json],
        *,
        supersede_killed: bool = False,
        flush_every: int = FLUSH_EVERY,
    ) -> Run:
        """Begin to record a run.

        `log` says what is replayed: its `path` and `sha256` (see `file_sha256`), and whatever else is known
        of it; None for a live cluster. `settings` hold the seed. With `supersede_killed` every killed run of
        the same kind, policy, log (by its sha256), machine and settings is removed with what it had decided,
        in the same transaction: a replay that was interrupted starts again and leaves nothing twice.
        """
        if kind not in get_args(RunKind):
            raise UsageError(f"a run is one of {', '.join(get_args(RunKind))}, not {kind!r}")
        log = dict(log or {})
        process = this_process()
        sha256 = log.get("sha256")
        row = {
            "kind": kind,
            "policy": _text(policy),
            "log_path": _text(log["path"]) if log.get("path") is not None else None,
            "log_sha256": _text(sha256) if sha256 is not None else None,
            "log": to_text(log),
            "machine": to_text(machine, canonical=True),
            "settings": to_text(settings, canonical=True),
            "started_at": time.time(),
            "state": "running",
            "failure": "",
            "decisions": 0,
            "metrics": "{}",
            "host": process.host,
            "boot_id": process.boot_id,
            "pid_namespace": process.pid_namespace,
            "pid": process.pid,
            "pid_started": process.pid_started,
        }
        identity = ("kind", "policy", "log_sha256", "machine", "settings")
        with self._writing("beginning a run") as connection:
            self._mark_killed(connection)
            if supersede_killed and sha256 is not None:
                same = [tables.runs.c[column] == row[column] for column in identity]
                connection.execute(delete(tables.runs).where(tables.runs.c.state == "killed", *same))
            connection.execute(update(tables.run_number).values(newest=tables.run_number.c.newest + 1))
            number = connection.execute(select(tables.run_number.c.newest)).scalar_one()
            connection.execute(insert(tables.runs).values(id=number, **row))
        return Run(self, number, flush_every)

    def continue_run(self, run_id: int, *, flush_every: int = FLUSH_EVERY) -> Run:
        """Go on recording a run of this process after its store was lost and found.

        Raises UsageError if the store does not hold it (any more).
        """
        self.run(run_id)
        run = Run(self, run_id, flush_every)
        with self._reading("finding the end of a run") as connection:
            for table, attribute in ((tables.decisions, "_next_decision"), (tables.job_ends, "_next_end")):
                last = connection.scalar(select(func.max(table.c.seq)).where(table.c.run_id == run_id))
                setattr(run, attribute, 0 if last is None else last + 1)
        return run

    def _mark_killed(self, connection: Connection) -> None:
        """Note which runs are gone while that can still be told: after a move or a reboot it may not be."""
        running = select(tables.runs).where(tables.runs.c.state == "running")
        for record in map(_run_record, connection.execute(running).all()):
            if record.state == "killed":
                connection.execute(
                    update(tables.runs)
                    .where(tables.runs.c.id == record.id)
                    .values(state="killed", failure=record.failure)
                )

    def runs(self, limit: int | None = None) -> list[RunRecord]:
        """The stored runs, newest first, at most `limit` of them."""
        with self._reading("listing runs") as connection:
            return _run_records(connection, select(tables.runs).limit(limit))

    def run(self, run_id: int) -> RunRecord:
        """One stored run.

        Raises UsageError if there is none of that number.
        """
        with self._reading("reading a run") as connection:
            found = _run_records(connection, select(tables.runs).where(tables.runs.c.id == run_id))
        if not found:
            raise UsageError(f"{self}: there is no run {run_id}; `asactl runs` lists those that there are")
        return found[0]

    def runs_of(self, job: str) -> list[RunRecord]:
        """The stored runs in which lending touched `job`, newest first."""
        name = _text(job)
        touched = union(
            select(tables.decisions.c.run_id).where(tables.decisions.c.job == name),
            select(tables.decisions.c.run_id).where(tables.decisions.c.host == name),
            select(tables.job_ends.c.run_id).where(tables.job_ends.c.job == name),
        )
        with self._reading("looking for a job") as connection:
            return _run_records(connection, select(tables.runs).where(tables.runs.c.id.in_(touched)))

    def interrupted(self) -> list[RunRecord]:
        """The runs whose process went away before they were done, newest first."""
        return [record for record in self.runs() if record.state == "killed"]

    def remove_runs(self, run_ids: Iterable[int], *, force: bool = False) -> int:
        """Remove runs with all that belongs to them; how many there were.

        Raises UsageError, and removes none, if one of them does not exist or (without `force`) still runs.
        """
        wanted = set(run_ids)
        with self._writing("removing runs") as connection:
            found = _run_records(connection, select(tables.runs).where(tables.runs.c.id.in_(wanted)))
            missing = wanted - {record.id for record in found}
            if missing:
                numbers = ", ".join(map(str, sorted(missing)))
                raise UsageError(
                    f"{self}: there is no run {numbers}; `asactl runs` lists those that there are"
                )
            for record in found:
                if record.state == "running" and not force:
                    raise UsageError(
                        f"{self}: run {record.id} is still being recorded by process {record.process.pid} "
                        f"on {record.process.host}; stop that first, or say --force"
                    )
            connection.execute(delete(tables.runs).where(tables.runs.c.id.in_(wanted)))
        self._give_back_space()
        return len(found)

    def _give_back_space(self) -> None:
        """SQLite keeps the pages of what was removed until it is asked; PostgreSQL minds its own."""
        if self.url.get_backend_name() != "sqlite":
            return
        with self._told("giving back space"), self._engine.connect() as connection:
            driver = connection.connection.driver_connection
            if driver is not None:
                # frees one page a step; of the driver's ways only a script is stepped to its end
                driver.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    # ---------------------------------------------------------------------------------------------- decisions

    def decisions(self, run_id: int, job: str | None = None) -> Iterator[DecisionRecord]:
        """The decisions of a run in order; only those of `job`, as guest or as host, if given."""
        columns = tables.decisions.c
        query = select(tables.decisions).where(columns.run_id == run_id).order_by(columns.seq).limit(PAGE)
        if job is not None:
            query = query.where(or_(columns.job == _text(job), columns.host == _text(job)))
        last = -1
        while True:
            with self._reading("reading decisions") as connection:
                page = connection.execute(query.where(columns.seq > last)).all()
            for row in page:
                yield _decision_record(row)
            if len(page) < PAGE:
                return
            last = page[-1].seq

    def job_ends(self, run_id: int, job: str | None = None) -> Iterator[JobEnd]:
        """How the jobs that lending touched ended, in the order of recording; only `job`, if given."""
        columns = tables.job_ends.c
        query = select(tables.job_ends).where(columns.run_id == run_id).order_by(columns.seq).limit(PAGE)
        if job is not None:
            query = query.where(columns.job == _text(job))
        last = -1
        while True:
            with self._reading("reading the ends of jobs") as connection:
                page = connection.execute(query.where(columns.seq > last)).all()
            for row in page:
                yield JobEnd(
                    job=row.job,
                    role=row.role,
                    submit_s=row.submit_s,
                    start_s=row.start_s,
                    end_s=row.end_s,
                    baseline_end_s=row.baseline_end_s,
                    loser=row.loser,
                )
            if len(page) < PAGE:
                return
            last = page[-1].seq

    def jobs_touched(self, run_id: int, limit: int = 20_000) -> list[str]:
        """Names of jobs that lending touched in a run, sorted, at most `limit` of them."""
        names = union(
            select(tables.decisions.c.job).where(tables.decisions.c.run_id == run_id),
            select(tables.decisions.c.host).where(
                tables.decisions.c.run_id == run_id, tables.decisions.c.host.is_not(None)
            ),
            select(tables.job_ends.c.job).where(tables.job_ends.c.run_id == run_id),
        ).subquery()
        with self._reading("listing jobs") as connection:
            return list(connection.scalars(select(names.c.job).order_by(names.c.job).limit(limit)))

    # ------------------------------------------------------------------------------------------------ learner

    def save_learner(self, scope: str, states: Mapping[str, LearnerState]) -> None:
        """Keep what a learner that outlives runs knows, by application, in place of what `scope` held."""
        self._save_learner(_text(scope), None, states)

    def _save_learner(self, scope: str, run_id: int | None, states: Mapping[str, LearnerState]) -> None:
        rows = [
            {
                "scope": scope,
                "run_id": run_id,
                "application": _text(application),
                "weights": to_text(state.weights),
                "risk": to_text(state.risk),
                "rounds": state.rounds,
            }
            for application, state in states.items()
        ]
        with self._writing("keeping what was learnt") as connection:
            connection.execute(delete(tables.learner).where(tables.learner.c.scope == scope))
            if rows:
                connection.execute(insert(tables.learner), rows)

    def load_learner(self, scope: str) -> dict[str, LearnerState]:
        """What is known, by application: of a scope, or of run 7 as `run 7`; empty if nothing was kept."""
        query = select(tables.learner).where(tables.learner.c.scope == _text(scope))
        with self._reading("reading what was learnt") as connection:
            return {
                row.application: LearnerState(json.loads(row.weights), row.rounds, json.loads(row.risk))
                for row in connection.execute(query.order_by(tables.learner.c.application))
            }

    # ------------------------------------------------------------------------------------------- live clusters

    def save_learned(self, scope: str, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Keep what a policy learned of these applications; what is kept of others stays."""
        saved_at = time.time()
        rows = [
            {
                "scope": _text(scope),
                "application": _text(application),
                "saved_at": saved_at,
                "memory": to_text(known),
            }
            for application, known in memory.items()
        ]
        if not rows:
            return
        names = [row["application"] for row in rows]
        with self._writing("keeping what was learned") as connection:
            for begin in range(0, len(rows), PAGE):
                of_page = tables.learned.c.application.in_(names[begin : begin + PAGE])
                connection.execute(
                    delete(tables.learned).where(tables.learned.c.scope == _text(scope), of_page)
                )
            connection.execute(insert(tables.learned), rows)

    def load_learned(self, scope: str) -> dict[str, dict[str, Json]]:
        """What was kept of a scope, by application; entries that are no JSON objects are left out."""
        query = select(tables.learned).where(tables.learned.c.scope == _text(scope))
        found: dict[str, dict[str, Json]] = {}
        with self._reading("reading what was learned") as connection:
            for row in connection.execute(query):
                try:
                    known = json.loads(row.memory)
                except ValueError:
                    continue
                if isinstance(known, dict):
                    found[row.application] = known
        return found

    def add_ledger(self, entries: Iterable[LedgerEntry]) -> None:
        """Add entries; one that is there already (same job, role and time) is there once."""
        rows = [
            {
                "job": _text(entry.job),
                "role": entry.role,
                "time_s": float(entry.time_s),
                "account": _text(entry.account),
                "lent_core_s": float(entry.lent_core_s),
                "extended_s": float(entry.extended_s),
            }
            for entry in entries
        ]
        if not rows:
            return
        of_dialect = sqlite.insert if self.url.get_backend_name() == "sqlite" else postgresql.insert
        with self._writing("writing the ledger") as connection:
            connection.execute(of_dialect(tables.ledger).on_conflict_do_nothing(), rows)

    def account_totals(self, since_s: float = -math.inf) -> list[AccountTotal]:
        """The ledger summed by account and role, from `since_s` on, in order of account."""
        columns = tables.ledger.c
        query = (
            select(
                columns.account,
                columns.role,
                func.count().label("jobs"),
                func.sum(columns.lent_core_s).label("lent_core_s"),
                func.sum(columns.extended_s).label("extended_s"),
            )
            .group_by(columns.account, columns.role)
            .order_by(columns.account, columns.role)
        )
        if since_s > -math.inf:
            query = query.where(columns.time_s >= since_s)
        with self._reading("reading the ledger") as connection:
            return [
                AccountTotal(row.account, row.role, row.jobs, row.lent_core_s, row.extended_s)
                for row in connection.execute(query)
            ]

    def add_quota_changes(self, changes: Iterable[QuotaChange]) -> None:
        """Add what node actors wrote."""
        rows = [
            {
                "node": _text(change.node),
                "time_s": float(change.time_s),
                "job": _text(change.job),
                "file": _text(change.file),
                "old": None if change.old is None else _text(change.old),
                "new": None if change.new is None else _text(change.new),
                "why": _text(change.why),
            }
            for change in changes
        ]
        if rows:
            with self._writing("writing changes of quotas") as connection:
                connection.execute(insert(tables.quota_audit), rows)

    def quota_changes(self, job: str, limit: int = 1000) -> list[QuotaChange]:
        """The newest changes of a job's quotas, oldest first, at most `limit` of them."""
        columns = tables.quota_audit.c
        query = (
            select(tables.quota_audit)
            .where(columns.job == _text(job))
            .order_by(columns.time_s.desc())
            .limit(limit)
        )
        with self._reading("reading changes of quotas") as connection:
            found = [QuotaChange(*row) for row in connection.execute(query)]
        return found[::-1]

    def forget_before(self, time_s: float) -> int:
        """Remove decisions and ends of live runs, lines of the ledgers, quota changes and statements that are over, all
        of them older than `time_s`; how many.

        Live runs that are over and of which nothing is left go with them. `time_s` is by the clock of the cluster.
        """
        live = select(tables.runs.c.id).where(tables.runs.c.kind == "live")
        removed = 0
        with self._writing("removing what is old") as connection:
            for table, when in (
                (tables.decisions, tables.decisions.c.time_s),
                (tables.job_ends, tables.job_ends.c.end_s),
            ):
                old = delete(table).where(table.c.run_id.in_(live), when < time_s)
                removed += connection.execute(old).rowcount
            # both lines of a posting have one time: what is left of the statements' ledger still sums to zero
            for table in (tables.ledger, tables.quota_audit, tables.statement_ledger):
                removed += connection.execute(delete(table).where(table.c.time_s < time_s)).rowcount
            removed += _forget_statements(connection, time_s)
            empty = delete(tables.runs).where(
                tables.runs.c.kind == "live",
                tables.runs.c.state != "running",
                tables.runs.c.checkpoint_s < time_s,
                tables.runs.c.id.not_in(select(tables.decisions.c.run_id)),
                tables.runs.c.id.not_in(select(tables.job_ends.c.run_id)),
            )
            removed += connection.execute(empty).rowcount
        return removed

    # ----------------------------------------------------------------------------------------------- database

    def _bring_up_to_date(self) -> None:
        migrations = installed_migrations()
        with self._reading("opening") as connection:
            version = version_of(connection, str(self))
        check_version(version, migrations, str(self))
        if version == len(migrations):
            return
        with self._writing("bringing the schema up to date") as connection:
            if self.url.get_backend_name() == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
            upgrade(connection, migrations, str(self))  # looks again: another process may have been quicker

    @contextmanager
    def _reading(self, doing: str) -> Iterator[Connection]:
        with self._told(doing), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self, doing: str) -> Iterator[Connection]:
        with self._told(doing), self._write_engine.begin() as connection:
            yield connection

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """Database errors become StoreErrors that say where, what and how to mend it."""
        try:
            yield
        except SQLAlchemyError as error:
            # the driver's own words, without the statement and its parameters (users' strings)
            words = str(error.orig if isinstance(error, DBAPIError) else error).strip()
            raise StoreError(f"{self}: {doing}: {words}; {_mend(words)}") from error


def _forget_statements(connection: Connection, time_s: float) -> int:
    """Remove statements that were over before then, with their plans."""
    stated, planned = tables.statements, tables.launch_plans
    old = (stated.c.changed_s < time_s, stated.c.state.in_(STATEMENTS_OVER))
    of_old = (
        select(stated.c.number)
        .where(stated.c.scope == planned.c.scope, stated.c.number == planned.c.number, *old)
        .exists()
    )
    removed = connection.execute(delete(planned).where(of_old)).rowcount
    return int(removed + connection.execute(delete(stated).where(*old)).rowcount)


def to_text(value: Any, *, canonical: bool = False) -> str:
    """JSON of plain data; what JSON does not have (NaN, infinities) becomes null.

    `canonical` sorts the keys, so that equal data give equal text.
    """
    encode = _CANONICAL if canonical else _ENCODE
    try:
        return encode(value)
    except ValueError:
        return encode(_finite(value))


def _plain(value: Any) -> Any:
    """numpy's scalars and arrays, and mappings that are no dicts, as JSON's own."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    raise TypeError(f"{type(value).__name__} is no plain data; a cause holds numbers, text, lists and dicts")


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain).encode
_CANONICAL = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return value


def _text(value: Any) -> str:
    """Text that every database takes: lone surrogates and NUL, which not all do, are spelt out."""
    text = str(value)
    if text.isprintable():
        return text
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _name(job_names: Names, row: int) -> str:
    if row < 0:
        raise IndexError(f"a decision names row {row}, which is no job")
    return _text(job_names[row])


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _columns(decision: Decision) -> tuple[int, int | None, float | None, float | None, str]:
    """Rows of job and host, share, seconds and the rest of a decision."""
    if type(decision) not in _FIELDS:
        raise StoreError(
            f"a decision {decision.kind!r} cannot be stored; list it in asad.model.DECISIONS, "
            f"with a field that names the job ({' or '.join(JOB_FIELDS)})"
        )
    job, host, share, seconds, rest = _FIELDS[type(decision)]
    return (
        int(getattr(decision, job)),
        None if host is None else int(getattr(decision, host)),
        None if share is None else _known(getattr(decision, share)),
        None if seconds is None else _known(getattr(decision, seconds)),
        _rest_text(rest, tuple([getattr(decision, name) for name in rest])),
    )


@lru_cache(maxsize=4096)
def _rest_text(names: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """JSON of the fields without a column; the same few nodes and flags come again and again."""
    return to_text(dict(zip(names, values, strict=True)))


def _fields(kind: type[Decision]) -> _Fields | None:
    names = [field.name for field in fields(kind) if field.name != "cause"]
    field_of = {COLUMNS[name]: name for name in names if name in COLUMNS}
    if "job_row" not in field_of:
        return None
    rest = tuple(name for name in names if name not in COLUMNS)
    return field_of["job_row"], field_of.get("host_row"), field_of.get("share"), field_of.get("seconds"), rest


_Fields = tuple[str, str | None, str | None, str | None, tuple[str, ...]]
_FIELDS: dict[type[Decision], _Fields] = {
    kind: known for kind in DECISIONS.values() if (known := _fields(kind)) is not None
}
"""Which fields of a kind of decision are job, host, share and seconds, and which have no column."""


def _insert(connection: Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows as the driver takes them: SQLAlchemy's own way through dicts costs as much again as the insert."""
    if rows:
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        marks = ", ".join([mark] * len(rows[0]))
        names = ", ".join(column.name for column in tables.METADATA.tables[table].columns)
        connection.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(rows))  # noqa: S608


def _run_records(connection: Connection, query: Select[Any]) -> list[RunRecord]:
    return [_run_record(row) for row in connection.execute(query.order_by(tables.runs.c.id.desc())).all()]


def _run_record(row: Row[Any]) -> RunRecord:
    process = ProcessMark(row.host, row.boot_id, row.pid_namespace, row.pid, row.pid_started)
    killed = row.state == "running" and process.is_gone()
    return RunRecord(
        id=row.id,
        kind=row.kind,
        policy=row.policy,
        log=json.loads(row.log),
        machine=json.loads(row.machine),
        settings=json.loads(row.settings),
        started_at=row.started_at,
        ended_at=row.ended_at,
        state="killed" if killed else row.state,
        failure=f"process {row.pid} went away" if killed else row.failure,
        checkpoint_s=row.checkpoint_s,
        decisions=row.decisions,
        metrics=json.loads(row.metrics),
        process=process,
    )


def _decision_record(row: Row[Any]) -> DecisionRecord:
    return DecisionRecord(
        run_id=row.run_id,
        seq=row.seq,
        cycle=row.cycle,
        time_s=row.time_s,
        kind=row.kind,
        job=row.job,
        job_row=row.job_row,
        host=row.host,
        host_row=row.host_row,
        share=row.share,
        seconds=row.seconds,
        more=json.loads(row.more),
        policy=row.policy,
        reason=row.reason,
        outcome=row.outcome,
        outcome_reason=row.outcome_reason,
        detail=json.loads(row.detail),
    )


def _parse(url: str | None) -> URL:
    if url is None:
        return URL.create("sqlite", database=str(default_path()))
    if "://" not in url:
        if not url:
            raise UsageError("the store's name is empty; give a path or a URL")
        return URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # the URL itself may hold a password and is not repeated
        raise UsageError(
            "the store's URL cannot be read; write sqlite:///path or postgresql://user@host/database"
        ) from error
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise UsageError(
            f"{_shown(parsed)}: the store is kept by SQLite or PostgreSQL, not by {parsed.drivername}; "
            "write sqlite:///path or postgresql://user@host/database"
        )
    return parsed


def _check_file(url: URL, create: bool) -> None:
    """The folder of a SQLite file is made; without `create` the file must be there."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return
    path = Path(str(url.database))
    if not create and not path.exists():
        raise UsageError(
            f"{path}: there is no store yet: a replay or the daemon makes it; name another with --store"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{path}: its folder cannot be made ({error.strerror}); name another with --store"
        ) from error


def _shown(url: URL) -> str:
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return url.render_as_string(hide_password=True)


def _mend(words: str) -> str:
    if "not a database" in words or "malformed" in words:
        return "move the file away, or name another store with --store"
    if "locked" in words:
        return f"another process has been writing for {BUSY_TIMEOUT_S:.0f} s; try again when it is done"
    if "readonly" in words or "unable to open" in words or "permission" in words.lower():
        return "make the file and its folder writable for this user, or name another store with --store"
    if "full" in words:
        return "make room on the disk"
    return "check that the database is there and takes connections"


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    """How every connection to SQLite begins."""
    connection.isolation_level = None  # the driver begins no transactions of its own, see _begin_sqlite
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        # names of jobs go into the indexes in no order: with SQLite's own 2 MB and its checkpoint every 4 MB
        # recording costs a fifth more
        cursor.execute("PRAGMA cache_size = -65536")
        cursor.execute("PRAGMA wal_autocheckpoint = 10000")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the file has a header, so before WAL
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone()[0] != "wal":  # asking needs no lock, changing does
            _change_to_wal(cursor)
        # in WAL mode a power cut loses the newest commits, never the file
        cursor.execute("PRAGMA synchronous = NORMAL")
    finally:
        cursor.close()


def _change_to_wal(cursor: sqlite3.Cursor) -> None:
    """Change the journal of a new file; waits here, for SQLite refuses at once when two change it together.

    Each of them reads and wants to write, so neither could ever go on: SQLite does not ask its busy timeout then.
    """
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(CHANGE_AGAIN_S)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: a reader that becomes a writer half-way is refused without waiting."""
    connection.exec_driver_sql(connection.get_execution_options().get("asad_begin", "BEGIN"))

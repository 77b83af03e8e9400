"""A run being recorded: its decisions and the ends of jobs, gathered in memory and written a few thousand at a time.

What a killed run leaves is whole up to its last flush (`RunRecord.checkpoint_s` says up to when).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from types import TracebackType
from typing import Any, Protocol

from sqlalchemy import Connection, Table, update

from asad.decisions import DECISIONS, CoAllocate, Decision, Outcome, SetQuota, SetShare
from asad.errors import StoreError
from asad.model import Json
from asad.store import schema
from asad.store.database import Database
from asad.store.encoding import text, to_text
from asad.store.records import COLUMNS, JOB_FIELDS, NODE_NAMES, JobEnd

FLUSH_EVERY = 5_000
"""Rows that a run gathers before it writes them."""


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


class Run:
    """One run being recorded. As a context manager: failed or killed if the block does not finish it."""

    def __init__(
        self, store: Database, number: int, flush_every: int, next_decision: int = 0, next_end: int = 0
    ) -> None:
        self._store, self.id, self._flush_every = store, number, flush_every
        self._decisions: list[tuple[Any, ...]] = []
        self._ends: list[tuple[Any, ...]] = []
        self._next_decision, self._next_end = next_decision, next_end
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
        node_names: Names | None = None,
    ) -> None:
        """Keep what one cycle decided.

        `outcomes` are what the cluster answered and what the guard held back: an outcome that is not done is
        `vetoed` if a property of the guard held it back, else `refused`. Decisions name rows of `job_names`, the
        log's own names. `host_rows` (`Jobs.host` of the snapshot) says beside which host a guest ran whose
        share was changed, so that its host's story has it too. `node_names` are those of the machine's nodes,
        for decisions about guests that have no host.

        Raises StoreError if the rows gathered cannot be written or a kind is unknown, IndexError for a row
        that has no name, TypeError if the detail of a cause is no plain data.
        """
        self._time_s = float(time_s)
        for outcome in outcomes:
            self._add(cycle, outcome, job_names, host_rows, node_names)
        if len(self._decisions) >= self._flush_every:
            self.flush()

    def _add(
        self,
        cycle: int,
        outcome: Outcome,
        job_names: Names,
        host_rows: Rows | None,
        node_names: Names | None,
    ) -> None:
        decision = outcome.decision
        held_back = "vetoed" if outcome.veto else "refused"
        nodes = pool_nodes(decision)
        named = None if node_names is None or not nodes else tuple(text(node_names[node]) for node in nodes)
        job_row, host_row, share, seconds, more = _columns(decision, named)
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
                text(cause.policy),
                text(cause.reason),
                "done" if outcome.done else held_back,
                text(outcome.reason),
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
                    text(end.job),
                    end.role,
                    _known(end.submit_s),
                    _known(end.start_s),
                    _known(end.end_s),
                    _known(end.baseline_start_s),
                    _known(end.baseline_end_s),
                    bool(end.loser),
                )
            )
            self._next_end += 1
            if len(self._ends) >= self._flush_every:
                self.flush()

    def flush(self) -> None:
        """Write what was gathered, in one transaction; what could not be written stays gathered.

        Raises StoreError if it cannot be written, or if the run was removed meanwhile.
        """
        with self._store.writing("writing decisions") as connection:
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
            "failure": text(failure),
            "metrics": to_text(metrics),
            "ended_at": time.time(),
        }
        with self._store.writing("ending a run") as connection:
            self._write(connection, ended)
        self._decisions.clear()
        self._ends.clear()
        self._over = True

    def _write(self, connection: Connection, ended: Mapping[str, Any]) -> None:
        checkpoint = {} if self._time_s is None else {"checkpoint_s": self._time_s}
        changed = connection.execute(
            update(schema.runs)
            .where(schema.runs.c.id == self.id)
            .values(decisions=self._next_decision, **checkpoint, **ended)
        )
        if changed.rowcount != 1:
            raise StoreError(f"run {self.id} was removed while it was being recorded; start it again")
        _insert(connection, schema.decisions, self._decisions)
        _insert(connection, schema.job_ends, self._ends)

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


def _name(job_names: Names, row: int) -> str:
    if row < 0:
        raise IndexError(f"a decision names row {row}, which is no job")
    return text(job_names[row])


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def pool_nodes(decision: Decision) -> tuple[int, ...]:
    """The nodes from whose pools a guest draws, if the decision is about one."""
    if isinstance(decision, SetQuota) or (isinstance(decision, CoAllocate) and decision.pooled):
        return decision.nodes
    return ()


def _columns(
    decision: Decision, node_names: tuple[str, ...] | None
) -> tuple[int, int | None, float | None, float | None, str]:
    """Rows of job and host, share, seconds and the rest of a decision. What a host lends is a decision about itself."""
    if type(decision) not in _FIELDS:
        raise StoreError(
            f"a decision {decision.kind!r} cannot be stored; list it in asad.decisions.DECISIONS, "
            f"with a field that names the job ({' or '.join(JOB_FIELDS)})"
        )
    job, host, share, seconds, rest = _FIELDS[type(decision)]
    job_row, host_row = int(getattr(decision, job)), -1 if host is None else int(getattr(decision, host))
    if isinstance(decision, SetShare) and host_row >= 0:
        job_row = host_row
    names = {} if node_names is None else {NODE_NAMES: node_names}
    return (
        job_row,
        host_row if host_row >= 0 else None,
        None if share is None else _known(getattr(decision, share)),
        None if seconds is None else _known(getattr(decision, seconds)),
        _rest_text((*rest, *names), (*[getattr(decision, name) for name in rest], *names.values())),
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


def _insert(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows as the driver takes them: SQLAlchemy's own way through dicts costs as much again as the insert."""
    if rows:
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        marks = ", ".join([mark] * len(rows[0]))
        names = ", ".join(column.name for column in table.columns)
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", list(rows))  # noqa: S608

"""Rows of live runs that are old become sums by hour, and those sums by day: a few rows at a time.

A row moves in one transaction: it is removed, and what it adds to is written. So whatever ends a process, each row is
counted once, in the one place or in the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Row, Table, case, delete, func, select

from asad.store import schema
from asad.store.database import Database

HOUR_S, DAY_S = 3600, 86_400
AT_ONCE = 2_000
"""Rows of one transaction: about a tenth of a second at the most, for which other writers wait."""
Totals = dict[tuple[Any, ...], list[Any]]


class Summary(NamedTuple):
    """How rows of a table are summed up."""

    rows: Table
    when: Column[Any]
    table: Table
    """Of the sums."""
    keys: tuple[str, ...]
    """Columns of both tables: one sum for each of their values (of a path its last part, since folders name jobs)."""
    amounts: Mapping[str, Callable[[Row[Any]], float | None]]
    """What is summed, of one row."""


def _response_s(row: Row[Any]) -> float | None:
    return None if row.submit_s is None or row.end_s is None else row.end_s - row.submit_s


DECISIONS = Summary(
    schema.decisions,
    schema.decisions.c.time_s,
    schema.decision_summaries,
    ("policy", "kind", "outcome"),
    {"share": lambda row: row.share},
)
JOB_ENDS = Summary(
    schema.job_ends,
    schema.job_ends.c.end_s,
    schema.job_end_summaries,
    ("role", "loser"),
    {"response_s": _response_s},
)
LEDGER = Summary(
    schema.ledger,
    schema.ledger.c.time_s,
    schema.ledger_summaries,
    ("account", "role"),
    {"lent_core_s": lambda row: row.lent_core_s, "extended_s": lambda row: row.extended_s},
)
QUOTAS = Summary(
    schema.quota_audit, schema.quota_audit.c.time_s, schema.quota_summaries, ("node", "file"), {}
)
SUMMARIES = (DECISIONS, JOB_ENDS, LEDGER, QUOTAS)
WAITS = Summary(
    schema.wait_summaries,
    schema.wait_summaries.c.time_s,
    schema.wait_summaries,
    ("partition", "reason"),
    {"job_s": lambda row: row.job_s_sum, "core_s": lambda row: row.core_s_sum},
)
"""Of looks at the queue there are sums alone (see `add_to_sums`); by day they become like all others."""


def _key(value: Any) -> Any:
    return value.rpartition("/")[2] if isinstance(value, str) and value.startswith("/") else value


def sum_up(store: Database, summary: Summary, *where: ColumnElement[bool], at_once: int = AT_ONCE) -> int:
    """Sum up by hour, and remove, the oldest rows of which this holds, about `at_once` of them; how many.

    Raises StoreError, and changes nothing, if the database fails it.
    """
    with store.writing("summing up what is old") as connection:
        gone = take_oldest(connection, summary.rows, summary.when, where, at_once)
        totals: Totals = {}
        for row in gone:
            if getattr(row, summary.when.name) is None:  # of no hour
                continue
            amounts = [part for of in summary.amounts.values() for part in [of(row)] * 2]
            _add(
                totals,
                HOUR_S,
                getattr(row, summary.when.name),
                [_key(getattr(row, key)) for key in summary.keys],
                1,
                amounts,
            )
        _write(store, connection, summary, totals)
    return len(gone)


def add_to_sums(
    store: Database,
    summary: Summary,
    entries: Iterable[tuple[float, Sequence[str], Sequence[float]]],
) -> None:
    """Add what is in no table of rows to the sums of its hours: time, keys and amounts of each.

    Raises StoreError, and changes nothing, if the database fails it.
    """
    totals: Totals = {}
    for time_s, keys, amounts in entries:
        _add(totals, HOUR_S, time_s, list(keys), 1, [part for amount in amounts for part in [amount] * 2])
    if totals:
        with store.writing("adding to sums by hour") as connection:
            _write(store, connection, summary, totals)


def sum_up_by_day(store: Database, summary: Summary, before_s: float, at_once: int = AT_ONCE) -> int:
    """The same of sums by hour that are older than `before_s`: they become sums by day; of whole days alone."""
    columns = summary.table.c
    before_s = math.floor(before_s / DAY_S) * DAY_S if math.isfinite(before_s) else before_s
    with store.writing("summing up by day") as connection:
        old = columns.step_s == HOUR_S, columns.time_s < before_s
        gone = take_oldest(connection, summary.table, columns.time_s, old, at_once)
        totals: Totals = {}
        for row in gone:
            amounts = [getattr(row, f"{name}_{what}") for name in summary.amounts for what in ("sum", "max")]
            _add(totals, DAY_S, row.time_s, [getattr(row, key) for key in summary.keys], row.entries, amounts)
        _write(store, connection, summary, totals)
    return len(gone)


def take_oldest(
    connection: Connection,
    table: Table,
    when: Column[Any],
    where: Sequence[ColumnElement[bool]],
    at_once: int = AT_ONCE,
) -> Sequence[Row[Any]]:
    """Remove the oldest rows of which all of `where` holds, about `at_once` of them: those of one moment together.
    What they were."""
    last = connection.scalar(select(when).where(*where).order_by(when).offset(at_once - 1).limit(1))
    if last is not None:
        where = (*where, when <= last)
    return connection.execute(delete(table).where(*where).returning(*table.c)).all()


def _add(
    totals: Totals, step_s: int, time_s: float, keys: list[Any], entries: int, amounts: Sequence[float | None]
) -> None:
    """Add to the sum of its hour or day; `amounts` are sum and maximum in turns."""
    key = step_s, float(math.floor(time_s / step_s) * step_s), *keys
    total = totals.setdefault(key, [0, *(part for _ in amounts[::2] for part in (0.0, None))])
    total[0] += entries
    for k, amount in enumerate(amounts, start=1):
        if amount is not None:
            total[k] = total[k] + amount if k % 2 else amount if total[k] is None else max(total[k], amount)


def _write(store: Database, connection: Connection, summary: Summary, totals: Totals) -> None:
    """Add to the sums that are there."""
    if not totals:
        return
    table, keys = summary.table, ["step_s", "time_s", *summary.keys]
    names = [column.name for column in table.c]
    upsert = store.insert(table)
    new: dict[str, Any] = {}
    for column in table.c:
        added = upsert.excluded[column.name]
        if column.name.endswith("_max"):
            known = func.coalesce(column, added)
            new[column.name] = case((added > known, added), else_=known)
        elif column.name not in keys:
            new[column.name] = column + added
    upsert = upsert.on_conflict_do_update(index_elements=keys, set_=new)
    connection.execute(
        upsert, [dict(zip(names, (*key, *total), strict=True)) for key, total in totals.items()]
    )

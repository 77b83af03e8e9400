"""Which files of quotas node actors have written, for which job and why.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import insert, select

from asad.store import schema
from asad.store.encoding import text
from asad.store.records import QuotaChange
from asad.store.store import Store


def add(store: Store, changes: Iterable[QuotaChange]) -> None:
    """Add what node actors wrote."""
    rows = [change.to_row() for change in changes]
    if rows:
        with store.writing("writing changes of quotas") as connection:
            connection.execute(insert(schema.quota_audit), rows)


def of_job(store: Store, job: str, limit: int = 1000) -> list[QuotaChange]:
    """The newest changes of a job's quotas, oldest first, at most `limit` of them."""
    columns = schema.quota_audit.c
    query = (
        select(schema.quota_audit)
        .where(columns.job == text(job))
        .order_by(columns.time_s.desc())
        .limit(limit)
    )
    with store.reading("reading changes of quotas") as connection:
        found = [QuotaChange.of_row(row) for row in connection.execute(query)]
    return found[::-1]

"""The ledger of a live cluster: what lending gave to guests and took from hosts that have ended.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sqlalchemy import func, select

from asad.store import schema
from asad.store.records import AccountTotal, LedgerEntry
from asad.store.store import Store


def add(store: Store, entries: Iterable[LedgerEntry]) -> None:
    """Add entries; one that is there already (same job, role and time) is there once."""
    rows = [entry.to_row() for entry in entries]
    if rows:
        with store.writing("writing the ledger") as connection:
            connection.execute(store.insert(schema.ledger).on_conflict_do_nothing(), rows)


def totals(store: Store, since_s: float = -math.inf) -> list[AccountTotal]:
    """The ledger summed by account and role, from `since_s` on, in order of account."""
    columns = schema.ledger.c
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
    with store.reading("reading the ledger") as connection:
        return [
            AccountTotal(row.account, row.role, row.jobs, row.lent_core_s, row.extended_s)
            for row in connection.execute(query)
        ]

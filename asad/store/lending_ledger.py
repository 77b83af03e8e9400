"""The ledger of a live cluster: what lending gave to guests and took from hosts that have ended.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from sqlalchemy import func, literal, select, union_all

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
    """The ledger summed by account and role, from `since_s` on, in order of account.

    Of entries that are summed up by hour or day (see `retention`) those of hours or days that begin from then on.
    """
    entries, sums = schema.ledger.c, schema.ledger_summaries.c
    single = select(
        entries.account,
        entries.role,
        literal(1).label("jobs"),
        entries.lent_core_s,
        entries.extended_s,
    ).where(*([entries.time_s >= since_s] if since_s > -math.inf else []))
    summed = select(sums.account, sums.role, sums.entries, sums.lent_core_s_sum, sums.extended_s_sum).where(
        *([sums.time_s >= since_s] if since_s > -math.inf else [])
    )
    rows = union_all(single, summed).subquery().c
    query = (
        select(rows.account, rows.role, *map(func.sum, (rows.jobs, rows.lent_core_s, rows.extended_s)))
        .group_by(rows.account, rows.role)
        .order_by(rows.account, rows.role)
    )
    with store.reading("reading the ledger") as connection:
        return [
            AccountTotal(account, role, int(jobs), lent_core_s, extended_s)
            for account, role, jobs, lent_core_s, extended_s in connection.execute(query)
        ]

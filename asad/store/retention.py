"""How long what live clusters have written is kept.

Every function raises StoreError, with the store's name and the mend, if the database fails it.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select

from asad.model import STATEMENTS_OVER
from asad.store import share_cases, tables
from asad.store.store import Store


def forget_before(store: Store, time_s: float) -> int:
    """Remove decisions, cases and ends of live runs, lines of the ledgers, quota changes and statements that are over,
    all of them older than `time_s`, and what is too much of cases; how many.

    Live runs that are over and of which nothing is left go with them. `time_s` is by the clock of the cluster.
    """
    live = select(tables.runs.c.id).where(tables.runs.c.kind == "live")
    removed = 0
    with store.writing("removing what is old") as connection:
        for table, when in (
            (tables.decisions, tables.decisions.c.time_s),
            (tables.job_ends, tables.job_ends.c.end_s),
            (tables.share_cases, tables.share_cases.c.time_s),
        ):
            old = delete(table).where(table.c.run_id.in_(live), when < time_s)
            removed += connection.execute(old).rowcount
        removed += share_cases.forget_oldest(connection)
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
            tables.runs.c.id.not_in(select(tables.share_cases.c.run_id)),
        )
        removed += connection.execute(empty).rowcount
    return removed


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

"""Statements of work in the state store: what was announced, planned and charged. Kept by the daemon, read by all.

`scope` names the cluster and policy. Every function raises StoreError, with the store's name and the hint, if the
database fails it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, case, delete, func, select

from asad.model import STATEMENTS_OVER, Json
from asad.store import learned, schema
from asad.store.database import PAGE
from asad.store.encoding import text
from asad.store.records import (
    PlanRecord,
    StatementBalance,
    StatementChanges,
    StatementEntry,
    StatementRecord,
)
from asad.store.store import Store

UNCHARGED = ("missed", "withdrawn", "declined")
"""Statements that are over, and by whose plans nobody was charged."""


def save(store: Store, scope: str, changes: StatementChanges) -> None:
    """Keep what has changed, all of it or nothing. A plan, or a line of the ledger, that is there stays as it is.

    Of a statement by which nobody is charged any more the plan is removed, and of one that its owner took back before
    its job came all: or who announces and withdraws without end would fill the store.
    """
    scope = text(scope)
    over = [one for one in changes.statements.values() if one.state in UNCHARGED]
    with store.writing("keeping statements of work") as connection:
        if changes.statements:
            upsert = store.insert(schema.statements)
            changed = [column.name for column in schema.statements.columns if not column.primary_key]
            upsert = upsert.on_conflict_do_update(
                index_elements=["scope", "number"], set_={name: upsert.excluded[name] for name in changed}
            )
            connection.execute(
                upsert, [{"scope": scope, **one.to_row()} for one in changes.statements.values()]
            )
        for table, rows in (
            (schema.launch_plans, [{"scope": scope, **one.to_row()} for one in changes.plans.values()]),
            (schema.statement_ledger, [{"scope": scope, **one.to_row()} for one in changes.entries]),
        ):
            if rows:
                connection.execute(store.insert(table).on_conflict_do_nothing(), rows)
        _remove(connection, schema.launch_plans, scope, [one.number for one in over])
        back = [one.number for one in over if one.state == "withdrawn" and not one.job]
        _remove(connection, schema.statements, scope, back)
        learned.replace(connection, scope, changes.memory)


def statements(
    store: Store,
    scope: str | None = None,
    *,
    over: bool = True,
    owner: str | None = None,
    limit: int | None = None,
) -> list[StatementRecord]:
    """Statements, newest first; of all scopes if none is given. `over`: those too of which nothing more will become."""
    columns = schema.statements.c
    query = select(schema.statements).order_by(columns.number.desc(), columns.scope).limit(limit)
    if scope is not None:
        query = query.where(columns.scope == text(scope))
    if not over:
        query = query.where(columns.state.not_in(STATEMENTS_OVER))
    if owner is not None:
        query = query.where(columns.owner == text(owner))
    with store.reading("reading statements of work") as connection:
        return [StatementRecord.of_row(row) for row in connection.execute(query)]


def plans(store: Store, scope: str, numbers: Sequence[int]) -> dict[int, PlanRecord]:
    """The launch plans of these statements, by number; those that have none are left out."""
    columns = schema.launch_plans.c
    found: dict[int, PlanRecord] = {}
    with store.reading("reading launch plans") as connection:
        for begin in range(0, len(numbers), PAGE):
            wanted = columns.number.in_(numbers[begin : begin + PAGE])
            for row in connection.execute(
                select(schema.launch_plans).where(columns.scope == text(scope), wanted)
            ):
                found[row.number] = PlanRecord.of_row(row)
    return found


def newest_number(store: Store, scope: str) -> int:
    """The highest number that a statement of the scope has had, as far as they are kept; 0 for none."""
    query = select(func.max(schema.statements.c.number)).where(schema.statements.c.scope == text(scope))
    with store.reading("reading statements of work") as connection:
        return connection.scalar(query) or 0


def entries(
    store: Store, scope: str | None = None, *, account: str | None = None, since_s: float = -math.inf
) -> list[StatementEntry]:
    """Lines of the ledger in order of time; of all scopes and accounts if none is given."""
    columns = schema.statement_ledger.c
    query = select(schema.statement_ledger).order_by(columns.time_s, columns.number, columns.account)
    if scope is not None:
        query = query.where(columns.scope == text(scope))
    if account is not None:
        query = query.where(columns.account == text(account))
    if since_s > -math.inf:
        query = query.where(columns.time_s >= since_s)
    with store.reading("reading the ledger of statements") as connection:
        return [
            StatementEntry(row.number, row.account, row.time_s, row.job, row.what, row.amount_micro)
            for row in connection.execute(query)
        ]


def balances(store: Store, scope: str | None = None, since_s: float = -math.inf) -> list[StatementBalance]:
    """The ledger summed by account, in order of account. All balances together are zero."""
    columns = schema.statement_ledger.c
    query = (
        select(
            columns.account,
            func.count().label("entries"),
            func.sum(case((columns.amount_micro != 0, 1), else_=0)).label("paid"),
            func.sum(case((columns.what == "evicted", 1), else_=0)).label("evicted"),
            func.sum(columns.amount_micro).label("balance"),
        )
        .group_by(columns.account)
        .order_by(columns.account)
    )
    if scope is not None:
        query = query.where(columns.scope == text(scope))
    if since_s > -math.inf:
        query = query.where(columns.time_s >= since_s)
    with store.reading("reading the ledger of statements") as connection:
        return [
            StatementBalance(row.account, int(row.entries), int(row.paid), int(row.evicted), int(row.balance))
            for row in connection.execute(query)
        ]


def _remove(connection: Connection, table: Table, scope: str, numbers: Sequence[int]) -> None:
    for begin in range(0, len(numbers), PAGE):
        wanted = table.c.number.in_(numbers[begin : begin + PAGE])
        connection.execute(delete(table).where(table.c.scope == scope, wanted))


# ---------------------------------------------------------------------------------------------------- plain data


def changes_of(plain: Mapping[str, Any]) -> StatementChanges:
    """What has changed of a policy: `statements`, `plans` and `entries` as rows by column, and `memory`."""
    return StatementChanges(
        {row["number"]: StatementRecord(**row) for row in plain["statements"]},
        {row["number"]: PlanRecord(**row) for row in plain["plans"]},
        [StatementEntry(**row) for row in plain["entries"]],
        dict(plain["memory"]),
    )


def memory(store: Store, scope: str) -> dict[str, dict[str, Json]]:
    """What a policy that starts is given: its own memory, and as `statement NUMBER` those that are open, with plans."""
    reported = learned.load(store, scope)
    open_still = statements(store, scope, over=False)
    planned = plans(store, scope, [one.number for one in open_still])
    for one in open_still:
        plan = planned.get(one.number)
        reported[f"statement {one.number}"] = {
            "row": one.to_json(),
            "plan": None if plan is None else plan.to_json(),
        }
    newest = newest_number(store, scope)
    following = reported.get("*", {}).get("next")
    if newest:  # numbers are never given again, whatever has become of the memory
        reported["*"] = {
            **reported.get("*", {}),
            "next": max(newest + 1, following if isinstance(following, int) else 1),
        }
    return reported


def ledger(
    store: Store, scope: str | None, account: str | None, since_s: float = -math.inf
) -> dict[str, Json]:
    """Lines and balances as plain data, of one account or (None) of all; amounts in units of value."""
    found = entries(store, scope, account=account, since_s=since_s)
    totals = [one for one in balances(store, scope, since_s) if account in (None, one.account)]
    return {
        "entries": [
            {
                "statement": one.number,
                "account": one.account,
                "time_s": one.time_s,
                "job": one.job or None,
                "what": one.what,
                "amount": one.amount_micro / 1e6,
            }
            for one in found
        ],
        "balances": [
            {
                "account": one.account,
                "entries": one.entries,
                "paid": one.paid,
                "evicted": one.evicted,
                "balance": one.balance_micro / 1e6,
            }
            for one in totals
        ],
        "sum": sum(one.balance_micro for one in totals) / 1e6 if account is None else None,
    }

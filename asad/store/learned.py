"""What the policies of a live cluster have learned, by application; kept over restarts.

`scope` names the cluster and the policy or stage.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, not_, select

from asad.applications import MOST, UNUSED_S
from asad.model import Json
from asad.store import schema
from asad.store.database import PAGE
from asad.store.encoding import object_of, text, to_text
from asad.store.store import Store


def save(store: Store, scope: str, memory: Mapping[str, Mapping[str, Json] | None]) -> None:
    """Keep what a policy learned of these applications (None: nothing any more); what is kept of others stays."""
    if memory:
        with store.writing("keeping what was learned") as connection:
            replace(connection, scope, memory)


def replace(connection: Connection, scope: str, memory: Mapping[str, Mapping[str, Json] | None]) -> None:
    """The same within a transaction of somebody else."""
    saved_at, table = time.time(), schema.learned
    # by the name that is stored: users may give two names that are spelt out alike
    reported = {text(name): None if known is None else to_text(known) for name, known in memory.items()}
    names = list(reported)
    for begin in range(0, len(names), PAGE):
        of_page = table.c.application.in_(names[begin : begin + PAGE])
        connection.execute(delete(table).where(table.c.scope == text(scope), of_page))
    rows = [
        {"scope": text(scope), "application": name, "saved_at": saved_at, "memory": known}
        for name, known in reported.items()
        if known is not None
    ]
    if rows:
        connection.execute(insert(table), rows)


def forget(connection: Connection, now_s: float) -> int:
    """Remove applications of which nothing was learned for `UNUSED_S`, and those beyond `MOST` of a scope of which
    something was learned longest ago; how many."""
    table = schema.learned
    unused = delete(table).where(_IS_APPLICATION, table.c.saved_at < now_s - UNUSED_S)
    removed = connection.execute(unused).rowcount
    for scope in connection.scalars(select(table.c.scope).distinct()).all():
        of_scope = _newest(scope).offset(MOST).with_only_columns(table.c.application)
        names = connection.scalars(of_scope).all()
        for begin in range(0, len(names), PAGE):
            of_page = table.c.application.in_(names[begin : begin + PAGE])
            removed += connection.execute(delete(table).where(table.c.scope == scope, of_page)).rowcount
    return removed


_IS_APPLICATION = schema.learned.c.application.contains("/")
"""Not the whole cluster, a day, or what was promised to a job: those are no fingerprints."""


def _newest(scope: str) -> Select[Any]:
    """What was kept of the applications of a scope, the last learned first."""
    table = schema.learned
    order = table.c.saved_at.desc(), table.c.application
    return select(table).where(table.c.scope == scope, _IS_APPLICATION).order_by(*order)


def load(store: Store, scope: str) -> dict[str, dict[str, Json]]:
    """What was kept of a scope, by application, of at the most `MOST` of them; entries that are no JSON objects are
    left out."""
    others = select(schema.learned).where(schema.learned.c.scope == text(scope), not_(_IS_APPLICATION))
    found: dict[str, dict[str, Json]] = {}
    with store.reading("reading what was learned") as connection:
        rows = [*connection.execute(others), *connection.execute(_newest(text(scope)).limit(MOST))]
        for row in rows:
            known = object_of(row.memory)
            if known is not None:
                found[row.application] = known
    return found

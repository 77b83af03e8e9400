"""What the policies of a live cluster have learned, by application; kept over restarts.

`scope` names the cluster and the policy or stage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from sqlalchemy import Connection, delete, insert, select

from asad.model import Json
from asad.store import tables
from asad.store.database import PAGE
from asad.store.encoding import text, to_text
from asad.store.store import Store


def save(store: Store, scope: str, memory: Mapping[str, Mapping[str, Json]]) -> None:
    """Keep what a policy learned of these applications; what is kept of others stays."""
    if memory:
        with store.writing("keeping what was learned") as connection:
            replace(connection, scope, memory)


def replace(connection: Connection, scope: str, memory: Mapping[str, Mapping[str, Json]]) -> None:
    """The same within a transaction of somebody else."""
    saved_at, table = time.time(), tables.learned
    # by the name that is stored: users may give two names that are spelt out alike
    told = {text(application): to_text(known) for application, known in memory.items()}
    names = list(told)
    for begin in range(0, len(names), PAGE):
        of_page = table.c.application.in_(names[begin : begin + PAGE])
        connection.execute(delete(table).where(table.c.scope == text(scope), of_page))
    if told:
        rows = [
            {"scope": text(scope), "application": name, "saved_at": saved_at, "memory": known}
            for name, known in told.items()
        ]
        connection.execute(insert(table), rows)


def load(store: Store, scope: str) -> dict[str, dict[str, Json]]:
    """What was kept of a scope, by application; entries that are no JSON objects are left out."""
    query = select(tables.learned).where(tables.learned.c.scope == text(scope))
    found: dict[str, dict[str, Json]] = {}
    with store.reading("reading what was learned") as connection:
        for row in connection.execute(query):
            try:
                known = json.loads(row.memory)
            except ValueError:
                continue
            if isinstance(known, dict):
                found[row.application] = known
    return found

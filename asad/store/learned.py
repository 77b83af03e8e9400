"""What the policies of a live cluster have learned, by application; kept over restarts.

`scope` names the cluster and the policy or stage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from sqlalchemy import delete, insert, select

from asad.model import Json
from asad.store import tables
from asad.store.database import PAGE
from asad.store.encoding import text, to_text
from asad.store.store import Store


def save(store: Store, scope: str, memory: Mapping[str, Mapping[str, Json]]) -> None:
    """Keep what a policy learned of these applications; what is kept of others stays."""
    saved_at = time.time()
    rows = [
        {
            "scope": text(scope),
            "application": text(application),
            "saved_at": saved_at,
            "memory": to_text(known),
        }
        for application, known in memory.items()
    ]
    if not rows:
        return
    names = [row["application"] for row in rows]
    with store.writing("keeping what was learned") as connection:
        for begin in range(0, len(rows), PAGE):
            of_page = tables.learned.c.application.in_(names[begin : begin + PAGE])
            connection.execute(delete(tables.learned).where(tables.learned.c.scope == text(scope), of_page))
        connection.execute(insert(tables.learned), rows)


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

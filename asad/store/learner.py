"""What the learner of a run knows, by application, and what one that outlives runs knows."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import delete, insert, select

from asad.store import tables
from asad.store.database import Database
from asad.store.encoding import text, to_text
from asad.store.records import LearnerState


def save(
    store: Database, scope: str, states: Mapping[str, LearnerState], *, run_id: int | None = None
) -> None:
    """Keep what a learner knows, in place of what `scope` held; what belongs to a run goes with it."""
    rows = [
        {
            "scope": text(scope),
            "run_id": run_id,
            "application": text(application),
            "weights": to_text(state.weights),
            "risk": to_text(state.risk),
            "rounds": state.rounds,
        }
        for application, state in states.items()
    ]
    with store.writing("keeping what was learnt") as connection:
        connection.execute(delete(tables.learner).where(tables.learner.c.scope == text(scope)))
        if rows:
            connection.execute(insert(tables.learner), rows)


def load(store: Database, scope: str) -> dict[str, LearnerState]:
    """What is known, by application: of a scope, or of run 7 as `run 7`; empty if nothing was kept."""
    query = select(tables.learner).where(tables.learner.c.scope == text(scope))
    with store.reading("reading what was learnt") as connection:
        return {
            row.application: LearnerState(json.loads(row.weights), row.rounds, json.loads(row.risk))
            for row in connection.execute(query.order_by(tables.learner.c.application))
        }

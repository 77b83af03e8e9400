"""What hosts lent, in which state, and what it cost: what trees are learned from.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
from sqlalchemy import Connection, delete, insert, select

from asad.experts.state import FEATURES, INDEX
from asad.model import ShareCases
from asad.store import schema
from asad.store.encoding import text, to_text
from asad.store.store import Store

MOST_LIVE = 200_000
"""So many cases of live clusters are kept, the newest: about 60 MB."""


def add(store: Store, run_id: int, batches: Iterable[ShareCases]) -> None:
    """Keep cases of a run."""
    rows = [
        {
            "run_id": run_id,
            "time_s": time_s,
            "job": text(job),
            "application": text(application),
            "share": share,
            "probability": probability,
            "loss": loss,
            "state": _state_text(state),
        }
        for cases in batches
        for job, application, time_s, state, share, probability, loss in zip(
            cases.job,
            cases.application,
            cases.time_s.tolist(),
            cases.state.tolist(),
            cases.share.tolist(),
            cases.probability.tolist(),
            cases.loss.tolist(),
            strict=True,
        )
    ]
    if rows:
        with store.writing("writing cases of lending") as connection:
            connection.execute(insert(schema.share_cases), rows)


def load(store: Store, run_ids: Sequence[int] = ()) -> ShareCases:
    """The cases of these runs, of all live ones if none is named, by time."""
    table = schema.share_cases
    live = select(schema.runs.c.id).where(schema.runs.c.kind == "live")
    query = select(table).where(table.c.run_id.in_(run_ids or live)).order_by(table.c.time_s)
    with store.reading("reading cases of lending") as connection:
        rows = connection.execute(query).all()
    states = np.full((len(rows), len(FEATURES)), np.nan, np.float32)
    for k, row in enumerate(rows):
        for name, value in json.loads(row.state).items():
            if name in INDEX:
                states[k, INDEX[name]] = value
    return ShareCases(
        [row.job for row in rows],
        [row.application for row in rows],
        np.array([row.time_s for row in rows], np.float64),
        states,
        np.array([row.share for row in rows], np.float64),
        np.array([row.probability for row in rows], np.float64),
        np.array([row.loss for row in rows], np.float64),
    )


def forget_oldest(connection: Connection, most: int = MOST_LIVE) -> int:
    """Remove all cases of live runs but the newest; how many."""
    table = schema.share_cases
    live = table.c.run_id.in_(select(schema.runs.c.id).where(schema.runs.c.kind == "live"))
    newest = select(table.c.time_s).where(live).order_by(table.c.time_s.desc()).offset(most).limit(1)
    return int(
        connection.execute(delete(table).where(live, table.c.time_s <= newest.scalar_subquery())).rowcount
    )


def _state_text(state: Sequence[float]) -> str:
    """What is known, in as many digits as a tree that people read distinguishes."""
    known = {
        feature.name: float(f"{value:.4g}")
        for feature, value in zip(FEATURES, state, strict=True)
        if value == value
    }
    return to_text(known)

"""Forecasts of starts that a live daemon made, and when the jobs did start; of nobody's job in particular.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, insert, select

from asad.model import Floats
from asad.store import schema
from asad.store.encoding import text
from asad.store.store import Store

MOST = 100_000
"""So many are kept, the newest: about 10 MB."""


class Foreseen(NamedTuple):
    """A forecast, and what came."""

    time_s: float
    """When the job started."""
    made_s: float
    """When it was forecast."""
    forecast_s: float
    """The start that was forecast then."""
    partition: str
    is_first: bool
    """Was it made when the job was first seen to wait? Else it is one of those of every hour thereafter."""

    def remaining(self) -> tuple[float, float]:
        """From the forecast on (s): the wait that it said was left, and the wait that was."""
        return max(0.0, self.forecast_s - self.made_s), max(0.0, self.time_s - self.made_s)


def add(store: Store, entries: Iterable[Foreseen]) -> None:
    """Keep these too."""
    rows = [one._asdict() | {"partition": text(one.partition)} for one in entries]
    if rows:
        with store.writing("writing forecasts of starts") as connection:
            connection.execute(insert(schema.forecasts), rows)


def load(store: Store, since_s: float = -math.inf) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Of jobs that started from then on, (n,) each: the remaining wait that was forecast (s), the one that came, and
    whether it is a job's first forecast."""
    table = schema.forecasts
    query = select(table.c.made_s, table.c.forecast_s, table.c.time_s, table.c.is_first).where(
        *([table.c.time_s >= since_s] if since_s > -math.inf else [])
    )
    with store.reading("reading forecasts of starts") as connection:
        rows = connection.execute(query).all()
    made_s, forecast_s, time_s = (np.array([row[k] for row in rows], np.float64) for k in range(3))
    is_first = np.array([row.is_first for row in rows], np.bool_)
    return np.maximum(forecast_s - made_s, 0.0), np.maximum(time_s - made_s, 0.0), is_first


def forget_oldest(connection: Connection, most: int = MOST) -> int:
    """Remove all but the newest; how many."""
    times = schema.forecasts.c.time_s
    newest = select(times).order_by(times.desc()).offset(most).limit(1)
    return int(connection.execute(delete(schema.forecasts).where(times <= newest.scalar_subquery())).rowcount)

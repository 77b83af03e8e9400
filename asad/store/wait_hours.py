"""For how long the jobs of a live cluster waited, by partition and reason: sums by hour, and later by day.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import func, select

from asad.store import schema
from asad.store.encoding import text
from asad.store.store import Store
from asad.store.summaries import WAITS, add_to_sums


class Waited(NamedTuple):
    """What one look at the queue adds: who waited since the look before it."""

    time_s: float
    """When the look was."""
    partition: str
    reason: str
    """One of `asad.cluster.reason_words.WORDS`."""
    job_s: float
    """Seconds times jobs."""
    core_s: float
    """Seconds times their cores."""


def add(store: Store, entries: Iterable[Waited]) -> None:
    """Add to the sums of the hours in which these looks were."""
    add_to_sums(
        store,
        WAITS,
        ((one.time_s, (text(one.partition), text(one.reason)), (one.job_s, one.core_s)) for one in entries),
    )


def hours(store: Store, since_s: float = -math.inf) -> dict[str, dict[str, tuple[float, float]]]:
    """By partition and reason, how many hours jobs waited, and core-hours with them.

    Of the hours (of what is summed up by day, of the days) that begin at `since_s` or later.
    """
    sums = schema.wait_summaries.c
    query = (
        select(sums.partition, sums.reason, func.sum(sums.job_s_sum), func.sum(sums.core_s_sum))
        .where(*([sums.time_s >= since_s] if since_s > -math.inf else []))
        .group_by(sums.partition, sums.reason)
        .order_by(sums.partition, sums.reason)
    )
    found: dict[str, dict[str, tuple[float, float]]] = {}
    with store.reading("reading how long jobs waited") as connection:
        for partition, reason, job_s, core_s in connection.execute(query):
            found.setdefault(partition, {})[reason] = job_s / 3600.0, core_s / 3600.0
    return found


def first_s(store: Store) -> float | None:
    """Since when there are sums; None without any."""
    with store.reading("reading how long jobs waited") as connection:
        found: float | None = connection.scalar(select(func.min(schema.wait_summaries.c.time_s)))
        return found

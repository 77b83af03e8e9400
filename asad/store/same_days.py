"""What lending brought in a live run, beside what a replay of the same days says: both counted alike, from how the jobs
that shared ended.

Raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, func, select

from asad.model import Json
from asad.store import schema
from asad.store.store import Store

LEAST_S = 3600.0
"""Days that overlap by less are not the same."""
MOST_RUNS = 50
"""So many of the newest runs are looked through for a replay."""


class Ends(NamedTuple):
    """Guests that ended within some time."""

    guests: int
    sooner_s: float
    """By how much they ended before they would have without lending, in sum."""
    losers: int
    """Guests and hosts that ended later than is tolerated."""


def beside_replay(store: Store, live_run: int) -> dict[str, Json] | None:
    """The newest finished replay, of the live run's policy if there is one, whose jobs ended while those of the live
    run did; None if there is none. `from_s` to `to_s` is the time that both know of."""
    runs = store.runs(limit=MOST_RUNS)
    policy = next((run.policy for run in runs if run.id == live_run), "")
    replays = [run for run in runs if run.kind == "replay" and run.state == "done"]
    replays.sort(key=lambda run: (run.policy == policy, run.id), reverse=True)
    with store.reading("comparing with a replay") as connection:
        own = _span(connection, live_run)
        for replay in replays if own is not None else []:
            assert own is not None
            other = _span(connection, replay.id)
            if other is None:
                continue
            from_s, to_s = max(own[0], other[0]), min(own[1], other[1])
            if to_s - from_s >= LEAST_S:
                live, played = (_ends(connection, run, from_s, to_s) for run in (live_run, replay.id))
                return {
                    "run": replay.id,
                    "policy": replay.policy,
                    "from_s": from_s,
                    "to_s": to_s,
                    "live": dict(live._asdict()),
                    "replay": dict(played._asdict()),
                }
    return None


def _span(connection: Connection, run: int) -> tuple[float, float] | None:
    """When the first and the last job of a run ended that had shared."""
    ends = schema.job_ends.c
    found = connection.execute(
        select(func.min(ends.end_s), func.max(ends.end_s)).where(ends.run_id == run)
    ).one()
    return None if found[0] is None else (float(found[0]), float(found[1]))


def _ends(connection: Connection, run: int, from_s: float, to_s: float) -> Ends:
    ends = schema.job_ends.c
    within = (ends.run_id == run) & ends.end_s.between(from_s, to_s)
    guests, sooner_s = connection.execute(
        select(func.count(), func.sum(ends.baseline_end_s - ends.end_s)).where(within, ends.role == "guest")
    ).one()
    losers = connection.execute(select(func.count()).where(within, ends.loser)).scalar_one()
    return Ends(int(guests), float(sooner_s or 0.0), int(losers))

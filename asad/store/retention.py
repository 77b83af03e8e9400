"""How long what live clusters have written is kept.

Nothing is removed on the word of a clock that leapt further than time has passed. So the store keeps a time that it
believes: from look to look this goes on by no more than the monotonic clock did. It follows a clock that is further
ahead only when as much has passed as rows are kept, since that leapt last: then what was written before is old by any
clock.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, delete, func, select

from asad.model import STATEMENTS_OVER, Json
from asad.store import learned, schema, share_cases
from asad.store.process import this_process
from asad.store.store import Store

SCOPE = "clock"
"""Under which `learned` has the time that is believed, by host."""
LEAP_S = 3600.0
"""A clock that is ahead by no more than this has not leapt: so long a restart of the host may take."""


@dataclass(frozen=True, slots=True)
class Believed:
    """What is known of a host's clock since the last look."""

    time_s: float
    """The time that is believed."""
    clock_s: float
    """What the clock said."""
    passed_s: float
    """What the monotonic clock said, which counts from the host's start."""
    boot_id: str
    even_s: float
    """How much has passed since the clock leapt last, while it is ahead of the time that is believed."""

    def go_on(self, clock_s: float, passed_s: float, boot_id: str, keep_s: float) -> Believed:
        """The same at a later look."""
        ran_s = max(0.0, passed_s - self.passed_s) if boot_id == self.boot_id else passed_s
        leapt = abs(clock_s - self.clock_s - ran_s) > LEAP_S
        time_s, even_s = self.time_s + ran_s, 0.0 if leapt else self.even_s + ran_s
        if clock_s <= time_s + LEAP_S or even_s >= keep_s:
            time_s, even_s = clock_s, 0.0
        return Believed(time_s, clock_s, passed_s, boot_id, even_s)


def forget(store: Store, run_id: int, clock_s: float, keep_s: float, passed_s: float | None) -> int:
    """Remove what is older than `keep_s` by the time that is believed (see `forget_before`); how many rows.

    `passed_s` is by the monotonic clock; None for the clock of a log, which is as it is. `run_id` is the run of the
    daemon that asks: at its first look the newest row of an earlier run shows how late it is at least.
    """
    time_s = clock_s
    if passed_s is not None:
        here = this_process()
        known = _known(learned.load(store, SCOPE).get(here.host))
        if known is None:
            newest_s = min(clock_s, _newest_s(store, run_id) or clock_s)
            known = Believed(newest_s, clock_s, passed_s, here.boot_id, 0.0)
        known = known.go_on(clock_s, passed_s, here.boot_id, keep_s)
        learned.save(store, SCOPE, {here.host: asdict(known)})
        time_s = known.time_s
    return forget_before(store, time_s - keep_s, None if passed_s is None else time_s)


def _known(plain: Mapping[str, Json] | None) -> Believed | None:
    """What was kept; None if it is nothing of the kind."""
    numbers: dict[str, float] = {}
    for column in fields(Believed):
        value = (plain or {}).get(column.name)
        if column.name != "boot_id" and isinstance(value, int | float) and math.isfinite(value):
            numbers[column.name] = float(value)
    boot_id = (plain or {}).get("boot_id")
    if not isinstance(boot_id, str) or len(numbers) < len(fields(Believed)) - 1:
        return None
    return Believed(boot_id=boot_id, **numbers)


def _newest_s(store: Store, run_id: int) -> float | None:
    """The time of the newest decision of other live runs."""
    newest = select(func.max(schema.runs.c.checkpoint_s)).where(
        schema.runs.c.kind == "live", schema.runs.c.id != run_id
    )
    with store.reading("looking for the newest row") as connection:
        found: float | None = connection.scalar(newest)
        return found


def forget_before(store: Store, time_s: float, now_s: float | None = None) -> int:
    """Remove decisions, cases and ends of live runs, lines of the ledgers, quota changes and statements that are over,
    all of them older than `time_s`, what is too much of cases, and what was learned of applications that are not used
    any more; how many.

    Live runs that are over and of which nothing is left go with them. `time_s` is by the clock of the cluster, `now_s`
    by that of this machine as far as it is believed (as it is, where nobody says).
    """
    live = select(schema.runs.c.id).where(schema.runs.c.kind == "live")
    removed = 0
    with store.writing("removing what is old") as connection:
        for table, when in (
            (schema.decisions, schema.decisions.c.time_s),
            (schema.job_ends, schema.job_ends.c.end_s),
            (schema.share_cases, schema.share_cases.c.time_s),
        ):
            old = delete(table).where(table.c.run_id.in_(live), when < time_s)
            removed += connection.execute(old).rowcount
        removed += share_cases.forget_oldest(connection)
        # both lines of a posting have one time: what is left of the statements' ledger still sums to zero
        for table in (schema.ledger, schema.quota_audit, schema.statement_ledger):
            removed += connection.execute(delete(table).where(table.c.time_s < time_s)).rowcount
        removed += _forget_statements(connection, time_s)
        removed += learned.forget(connection, time.time() if now_s is None else now_s)
        empty = delete(schema.runs).where(
            schema.runs.c.kind == "live",
            schema.runs.c.state != "running",
            schema.runs.c.checkpoint_s < time_s,
            schema.runs.c.id.not_in(select(schema.decisions.c.run_id)),
            schema.runs.c.id.not_in(select(schema.job_ends.c.run_id)),
            schema.runs.c.id.not_in(select(schema.share_cases.c.run_id)),
        )
        removed += connection.execute(empty).rowcount
    return removed


def _forget_statements(connection: Connection, time_s: float) -> int:
    """Remove statements that were over before then, with their plans."""
    stated, planned = schema.statements, schema.launch_plans
    old = (stated.c.changed_s < time_s, stated.c.state.in_(STATEMENTS_OVER))
    of_old = (
        select(stated.c.number)
        .where(stated.c.scope == planned.c.scope, stated.c.number == planned.c.number, *old)
        .exists()
    )
    removed = connection.execute(delete(planned).where(of_old)).rowcount
    return int(removed + connection.execute(delete(stated).where(*old)).rowcount)

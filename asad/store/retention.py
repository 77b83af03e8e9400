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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Table, delete, func, select

from asad.config import Config
from asad.model import STATEMENTS_OVER, Json
from asad.store import learned, schema, share_cases, start_forecasts
from asad.store.database import PAGE
from asad.store.process import this_process
from asad.store.store import Store
from asad.store.summaries import (
    AT_ONCE,
    DECISIONS,
    JOB_ENDS,
    LEDGER,
    QUOTAS,
    SUMMARIES,
    WAITS,
    sum_up,
    sum_up_by_day,
    take_oldest,
)

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


class Keep(NamedTuple):
    """How long rows of live runs are kept, in seconds."""

    rows_s: float
    """Whatever names a job or a user."""
    decisions_s: float = math.inf
    quotas_s: float = math.inf
    """Some of it for a shorter time."""
    hourly_s: float = math.inf
    daily_s: float = math.inf
    """Sums by hour, and by day."""

    @classmethod
    def of(cls, config: Config) -> Keep:
        """As a configuration says."""
        days = config.store
        return cls(
            *(
                86_400.0 * kept
                for kept in (
                    config.daemon.retention_days,
                    days.decisions_days,
                    days.quota_days,
                    days.hourly_days,
                    days.daily_days,
                )
            )
        )


def forget(store: Store, run_id: int, clock_s: float, keep: Keep, passed_s: float | None) -> int:
    """Remove what is older than `keep` says by the time that is believed (see `steps`); how many rows.

    `passed_s` is by the monotonic clock; None for the clock of a log, which is as it is. `run_id` is the run of the
    daemon that asks: at its first look the newest row of an earlier run shows how late it is at least.
    """
    return sum(steps(store, *believed(store, run_id, clock_s, keep, passed_s), keep))


def believed(
    store: Store, run_id: int, clock_s: float, keep: Keep, passed_s: float | None
) -> tuple[float, float | None]:
    """The time that is believed, by the clock of the cluster and by that of this machine (None: as it is), which is
    noted for the next look."""
    if passed_s is None:
        return clock_s, None
    here = this_process()
    known = _known(learned.load(store, SCOPE).get(here.host))
    if known is None:
        newest_s = min(clock_s, _newest_s(store, run_id) or clock_s)
        known = Believed(newest_s, clock_s, passed_s, here.boot_id, 0.0)
    known = known.go_on(clock_s, passed_s, here.boot_id, keep.rows_s)
    learned.save(store, SCOPE, {here.host: asdict(known)})
    return known.time_s, known.time_s


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


def forget_before(store: Store, time_s: float) -> int:
    """Remove whatever is older than `time_s`, but sums (see `steps`); how many rows."""
    return sum(steps(store, time_s, None, Keep(0.0)))


def steps(store: Store, time_s: float, now_s: float | None, keep: Keep) -> Iterator[int]:
    """Remove what is older than `keep` says: how many rows each step has removed; none is a long transaction.

    Of live runs that is decisions, cases and ends, and besides lines of the ledgers, quota changes, forecasts,
    statements that are over, what is too much of cases and forecasts, and what was learned of applications that are not
    used any more. Decisions, ends, quota changes and the ledger of lending are summed up by hour as they are removed,
    and all sums later by day. Live runs that are over and of which nothing is left go at the end. `time_s` is by the
    clock of the cluster, `now_s` by that of this machine as far as it is believed (as it is, where nobody says).

    Whoever takes no further step has lost nothing: the next look goes on where this one stopped.
    """
    before_s = time_s - keep.rows_s
    decisions_s = max(before_s, time_s - keep.decisions_s)
    for summary, from_s in ((DECISIONS, decisions_s), (JOB_ENDS, before_s)):
        for run_id in _live_runs_with(store, summary.rows, summary.when, from_s):
            of_run = summary.rows.c.run_id == run_id, summary.when < from_s
            yield from _until_none(partial(sum_up, store, summary, *of_run))
    cases, postings = schema.share_cases, schema.statement_ledger
    for run_id in _live_runs_with(store, cases, cases.c.time_s, before_s):
        yield from _until_none(
            partial(
                _remove, store, cases, cases.c.time_s, cases.c.run_id == run_id, cases.c.time_s < before_s
            )
        )
    quotas_s = max(before_s, time_s - keep.quotas_s)
    for summary, from_s in ((QUOTAS, quotas_s), (LEDGER, before_s)):
        yield from _until_none(partial(sum_up, store, summary, summary.when < from_s))
    # both lines of a posting have one time: what is left of the statements' ledger still sums to zero
    yield from _until_none(partial(_remove, store, postings, postings.c.time_s, postings.c.time_s < before_s))
    foreseen = schema.forecasts
    yield from _until_none(partial(_remove, store, foreseen, foreseen.c.time_s, foreseen.c.time_s < before_s))
    yield from _until_none(partial(_forget_statements, store, before_s))
    with store.writing("removing what is too much") as connection:
        removed = share_cases.forget_oldest(connection) + start_forecasts.forget_oldest(connection)
        removed += learned.forget(connection, time.time() if now_s is None else now_s)
    yield removed
    for summary in (*SUMMARIES, WAITS):
        for _ in _until_none(partial(sum_up_by_day, store, summary, time_s - keep.hourly_s)):
            yield 0  # they name nobody, and are still there
        sums = summary.table.c
        yield from _until_none(
            partial(_remove, store, summary.table, sums.time_s, sums.time_s < time_s - keep.daily_s)
        )
    yield _forget_empty_runs(store, before_s)


def _until_none(step: Callable[[], int]) -> Iterator[int]:
    """As many steps as remove something."""
    while removed := step():
        yield removed


def _live_runs_with(store: Store, table: Table, when: Column[Any], before_s: float) -> list[int]:
    """The live runs that have rows of a table that are as old."""
    runs = schema.runs.c
    old = select(table.c.run_id).where(table.c.run_id == runs.id, when < before_s).exists()
    with store.reading("looking for what is old") as connection:
        return list(connection.scalars(select(runs.id).where(runs.kind == "live", old).order_by(runs.id)))


def _remove(store: Store, table: Table, when: Column[Any], *where: ColumnElement[bool]) -> int:
    """Remove the oldest rows of which this holds; how many."""
    with store.writing("removing what is old") as connection:
        return len(take_oldest(connection, table, when, where))


def _forget_statements(store: Store, time_s: float) -> int:
    """Remove the oldest statements that were over before then, with their plans; how many rows."""
    stated, planned = schema.statements.c, schema.launch_plans.c
    with store.writing("removing statements that are old") as connection:
        old = stated.changed_s < time_s, stated.state.in_(STATEMENTS_OVER)
        gone = take_oldest(connection, schema.statements, stated.changed_s, old, AT_ONCE // 2)
        removed = len(gone)
        for scope in {row.scope for row in gone}:
            numbers = [row.number for row in gone if row.scope == scope]
            for begin in range(0, len(numbers), PAGE):
                of_page = planned.number.in_(numbers[begin : begin + PAGE])
                plans = delete(schema.launch_plans).where(planned.scope == scope, of_page)
                removed += connection.execute(plans).rowcount
    return removed


def _forget_empty_runs(store: Store, time_s: float) -> int:
    """Remove live runs that were over before then and of which nothing is left; how many."""
    runs = schema.runs.c
    tables = schema.decisions, schema.job_ends, schema.share_cases
    nothing = [~select(table.c.run_id).where(table.c.run_id == runs.id).exists() for table in tables]
    over = runs.kind == "live", runs.state != "running", runs.checkpoint_s < time_s
    with store.writing("removing runs that are old") as connection:
        return int(connection.execute(delete(schema.runs).where(*over, *nothing)).rowcount)

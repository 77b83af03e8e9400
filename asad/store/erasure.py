"""What the store knows of one user, erased: what can be summed is summed without names, the rest is removed or renamed.

Every function raises StoreError, with the store's name and the hint, if the database fails it. Each does its work in
short transactions: one that is interrupted has erased a part, and the next goes on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Table, Text, delete, func, or_, select, update

from asad.model import STATEMENTS_OVER
from asad.store import schema
from asad.store.database import Database
from asad.store.encoding import text
from asad.store.summaries import SUMMARIES, Summary, sum_up

NOBODY = "(erased)"
"""Instead of the job of a host that lent to jobs of others."""
JOBS_AT_ONCE = 500
Progress = Callable[[str, int], object]
"""Takes the table that is being erased, and how many of its rows are."""


@dataclass(slots=True)
class Erased:
    """What an erasure did, or (`pseudonym` is empty) would do."""

    user: str
    pseudonym: str
    """Under which the ledgers go on, so that they still sum to zero."""
    jobs: int
    """Jobs of the user of which the store is searched."""
    rows: dict[str, int] = field(default_factory=dict)
    """By table."""
    open_statements: int = 0
    """Statements of work that are not over, which the daemon holds; they stay until they are."""
    mentions: dict[str, int] = field(default_factory=dict)
    """By table and column: rows in which the name stands somewhere, whoever is meant."""


def jobs_of(store: Database, user: str, given: Iterable[str] = ()) -> list[str]:
    """The jobs of a user: those that are given, and those of which the store itself knows whose they are."""
    cases, stated = schema.share_cases, schema.statements.c
    of_cases = select(cases.c.job).where(_begins(cases, user)).distinct()
    of_statements = select(stated.job).where(stated.owner == text(user), stated.job != "").distinct()
    with store.reading("looking for jobs of a user") as connection:
        known = {*connection.scalars(of_cases), *connection.scalars(of_statements)}
    return sorted({*known, *map(text, given)} - {""})


def look(store: Database, user: str, jobs: list[str]) -> Erased:
    """What `erase` would do."""
    found = Erased(user, "", len(jobs))
    for table, where, _ in _parts(user, jobs):
        with store.reading("looking for a user") as connection:
            count = int(connection.scalar(select(func.count()).select_from(table).where(*where)) or 0)
        found.rows[table.name] = found.rows.get(table.name, 0) + count
    _look_around(store, found)
    return found


def erase(store: Database, user: str, jobs: list[str], progress: Progress) -> Erased:
    """Erase a user. Rows of live runs about the user's jobs become sums, as if they were old (see `retention`); what
    was learned of the user's applications, cases and statements that are over are removed; both ledgers go on under a
    pseudonym. SQLite overwrites what is removed."""
    done = Erased(user, f"erased-{secrets.token_hex(4)}", len(jobs))
    if store.url.get_backend_name() == "sqlite":
        with store.writing("erasing a user") as connection:
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
    for table, where, summary in _parts(user, jobs):
        for count in _until_none(store, table, where, summary, done.pseudonym):
            done.rows[table.name] = done.rows.get(table.name, 0) + count
            progress(table.name, done.rows[table.name])
        done.rows.setdefault(table.name, 0)
    store.give_back_space()
    _look_around(store, done)
    return done


def _parts(
    user: str, jobs: list[str]
) -> Iterator[tuple[Table, tuple[ColumnElement[bool], ...], Summary | None]]:
    """Tables with what holds of the user's rows, and how these are summed up (None: they are not)."""
    name, stated, plans = text(user), schema.statements.c, schema.launch_plans.c
    live = select(schema.runs.c.id).where(schema.runs.c.kind == "live")
    for begin in range(0, len(jobs), JOBS_AT_ONCE):
        page = jobs[begin : begin + JOBS_AT_ONCE]
        for summary in SUMMARIES:
            of_live = [summary.rows.c.run_id.in_(live)] if "run_id" in summary.rows.c else []
            yield summary.rows, (summary.rows.c.job.in_(page), *of_live), summary
        decided, cases = schema.decisions.c, schema.share_cases.c
        others = decided.host.in_(page), decided.job.not_in(page), decided.run_id.in_(live)
        yield schema.decisions, others, None
        yield schema.share_cases, (cases.job.in_(page), cases.run_id.in_(live)), None
    yield schema.share_cases, (_begins(schema.share_cases, user),), None
    yield schema.learned, (_begins(schema.learned, user),), None
    over = select(stated.number).where(
        stated.scope == plans.scope,
        stated.number == plans.number,
        stated.owner == name,
        stated.state.in_(STATEMENTS_OVER),
    )
    yield schema.launch_plans, (over.exists(),), None
    yield schema.statements, (stated.owner == name, stated.state.in_(STATEMENTS_OVER)), None
    for table in (schema.statement_ledger, schema.ledger, schema.ledger_summaries):
        yield table, (table.c.account == name,), None


def _until_none(
    store: Database,
    table: Table,
    where: tuple[ColumnElement[bool], ...],
    summary: Summary | None,
    pseudonym: str,
) -> Iterator[int]:
    """Erase rows of a table step by step; how many of each."""
    if summary is not None:
        while count := sum_up(store, summary, *where):
            yield count
        return
    change = delete(table).where(*where)
    if table is schema.decisions:  # of others, which this user's jobs were hosts of
        change = update(table).where(*where).values(host=NOBODY)  # type: ignore[assignment]
    elif table is schema.statement_ledger:
        change = update(table).where(*where).values(account=pseudonym, job="")  # type: ignore[assignment]
    elif "account" in table.c:
        change = update(table).where(*where).values(account=pseudonym)  # type: ignore[assignment]
    with store.writing("erasing a user") as connection:
        yield connection.execute(change).rowcount


def _begins(table: Table, user: str) -> ColumnElement[bool]:
    """Is the application one of this user's? (Not by LIKE, which takes `ann` for `Ann` in SQLite.)"""
    begin = f"{text(user)}/"
    return func.substr(table.c.application, 1, len(begin)) == begin


def _look_around(store: Database, found: Erased) -> None:
    """What stays: statements that are open, and wherever else the name stands."""
    stated = schema.statements.c
    still_open = stated.owner == text(found.user), stated.state.not_in(STATEMENTS_OVER)
    words = {text(found.user), json.dumps(found.user)[1:-1]}
    with store.reading("looking for a user") as connection:
        query = select(func.count()).select_from(schema.statements).where(*still_open)
        found.open_statements = int(connection.scalar(query) or 0)
        for table in schema.METADATA.sorted_tables:
            texts = [column for column in table.c if isinstance(column.type, Text)]
            if not texts:
                continue
            counts = [
                func.count().filter(or_(*(column.contains(word, autoescape=True) for word in words)))
                for column in texts
            ]
            row = connection.execute(select(*counts).select_from(table)).one()
            found.mentions |= {f"{table.name}.{c.name}": int(n) for c, n in zip(texts, row, strict=True) if n}

"""The state store's tables, as `sql/` makes them. A test holds these and the migrations to each other.

Where rows are read as records, the record's fields are the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, MetaData, Table, Text

from asad.store.records import (
    DecisionRecord,
    JobEnd,
    LedgerEntry,
    PlanRecord,
    QuotaChange,
    Record,
    StatementEntry,
    StatementRecord,
)

METADATA = MetaData()
TYPES = {"float": Double, "int": BigInteger, "bool": Boolean}
"""Type of a field → that of its column; all else is text, and dicts are JSON in it."""


def _table(name: str, record: type[Record], *before: Column[Any], keys: Sequence[str] = ()) -> Table:
    """The table whose rows are such records, with further columns before those of its fields."""
    columns: list[Column[Any]] = []
    for one in fields(record):
        kind, _, none = str(one.type).partition(" | ")
        sql = Integer if one.name == "run_id" else TYPES.get(kind, Text)
        key = one.name in keys
        columns.append(Column(one.name, sql, primary_key=key, nullable=bool(none), autoincrement=False))
    return Table(name, METADATA, *before, *columns)


def _scope() -> Column[Any]:
    """Whose statements they are: a cluster's and its policy's."""
    return Column("scope", Text, primary_key=True)


schema_version = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied_at", Double, nullable=False),
)

run_number = Table("run_number", METADATA, Column("newest", Integer, nullable=False))

runs = Table(
    "runs",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("log_path", Text),
    Column("log_sha256", Text),
    Column("log", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double),
    Column("state", Text, nullable=False),
    Column("failure", Text, nullable=False),
    Column("checkpoint_s", Double),
    Column("decisions", BigInteger, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("boot_id", Text, nullable=False),
    Column("pid_namespace", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("pid_started", BigInteger, nullable=False),
    Column("sweep", Text),
    Column("task", Text),
)

decisions = _table("decisions", DecisionRecord, keys=("run_id", "seq"))

job_ends = _table(
    "job_ends",
    JobEnd,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
)

learned = Table(
    "learned",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("application", Text, primary_key=True),
    Column("saved_at", Double, nullable=False),
    Column("memory", Text, nullable=False),
)

share_cases = Table(
    "share_cases",
    METADATA,
    Column("run_id", Integer, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("job", Text, nullable=False),
    Column("application", Text, nullable=False),
    Column("share", Double, nullable=False),
    Column("probability", Double, nullable=False),
    Column("loss", Double, nullable=False),
    Column("state", Text, nullable=False),
)

ledger = _table("ledger", LedgerEntry, keys=("job", "role", "time_s"))

quota_audit = _table("quota_audit", QuotaChange)

statements = _table("statements", StatementRecord, _scope(), keys=("number",))

launch_plans = _table("launch_plans", PlanRecord, _scope(), keys=("number",))

statement_ledger = _table("statement_ledger", StatementEntry, _scope(), keys=("number", "account"))


def _summary(name: str, keys: Sequence[tuple[str, Any]], amounts: Sequence[str] = ()) -> Table:
    """The table of what rows of live runs sum to by hour and day: by these keys how many there were, and of each amount
    the sum and the largest."""
    key_columns = [
        Column(key, kind, primary_key=True, autoincrement=False)
        for key, kind in (("step_s", BigInteger), ("time_s", Double), *keys)
    ]
    sums = [
        Column(f"{amount}_{what}", Double, nullable=what == "max")
        for amount in amounts
        for what in ("sum", "max")
    ]
    return Table(name, METADATA, *key_columns, Column("entries", BigInteger, nullable=False), *sums)


decision_summaries = _summary(
    "decision_summaries", (("policy", Text), ("kind", Text), ("outcome", Text)), ["share"]
)

job_end_summaries = _summary("job_end_summaries", (("role", Text), ("loser", Boolean)), ["response_s"])

ledger_summaries = _summary(
    "ledger_summaries", (("account", Text), ("role", Text)), ["lent_core_s", "extended_s"]
)

quota_summaries = _summary("quota_summaries", (("node", Text), ("file", Text)))

wait_summaries = _summary("wait_summaries", (("partition", Text), ("reason", Text)), ["job_s", "core_s"])

forecasts = Table(
    "forecasts",
    METADATA,
    Column("time_s", Double, nullable=False),
    Column("made_s", Double, nullable=False),
    Column("forecast_s", Double, nullable=False),
    Column("partition", Text, nullable=False),
    Column("is_first", Boolean, nullable=False),
)

"""The state store's tables, as `sql/` makes them. A test holds these and the migrations to each other."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, MetaData, Table, Text

METADATA = MetaData()

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
)

decisions = Table(
    "decisions",
    METADATA,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("cycle", BigInteger, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("job_row", BigInteger, nullable=False),
    Column("host", Text),
    Column("host_row", BigInteger),
    Column("share", Double),
    Column("seconds", Double),
    Column("more", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("outcome_reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
)

job_ends = Table(
    "job_ends",
    METADATA,
    Column("run_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("job", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("submit_s", Double),
    Column("start_s", Double),
    Column("end_s", Double),
    Column("baseline_end_s", Double),
    Column("loser", Boolean, nullable=False),
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

ledger = Table(
    "ledger",
    METADATA,
    Column("job", Text, primary_key=True),
    Column("role", Text, primary_key=True),
    Column("time_s", Double, primary_key=True, autoincrement=False),
    Column("account", Text, nullable=False),
    Column("lent_core_s", Double, nullable=False),
    Column("extended_s", Double, nullable=False),
)

quota_audit = Table(
    "quota_audit",
    METADATA,
    Column("node", Text, nullable=False),
    Column("time_s", Double, nullable=False),
    Column("job", Text, nullable=False),
    Column("file", Text, nullable=False),
    Column("old", Text),
    Column("new", Text),
    Column("why", Text, nullable=False),
)

statements = Table(
    "statements",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("born_s", Double, nullable=False),
    Column("changed_s", Double, nullable=False),
    Column("announced", Text, nullable=False),
    Column("progress", Text, nullable=False),
)

launch_plans = Table(
    "launch_plans",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("made_s", Double, nullable=False),
    Column("plan", Text, nullable=False),
)

statement_ledger = Table(
    "statement_ledger",
    METADATA,
    Column("scope", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("account", Text, primary_key=True),
    Column("time_s", Double, nullable=False),
    Column("job", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("amount_micro", BigInteger, nullable=False),
)

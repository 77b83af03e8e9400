"""Brings a store's schema up to date: numbered SQL files, each applied once, in order."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from sqlalchemy import Connection, func, insert, inspect, select

from asad.errors import StoreError
from asad.store.schema import schema_version

FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
VERSION_TABLE = """
CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at DOUBLE PRECISION NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    """From 1, without gaps."""
    name: str
    statements: tuple[str, ...]


def installed_migrations() -> tuple[Migration, ...]:
    """The migrations this code came with (package `asad_sql`), in order.

    Raises StoreError if the installation misses one.
    """
    found = [
        Migration(int(match[1]), match[2], statements(file.read_text(encoding="utf-8")))
        for file in files("asad_sql").iterdir()
        if (match := FILE_NAME.fullmatch(file.name))
    ]
    found.sort(key=lambda migration: migration.version)
    if not found or [migration.version for migration in found] != list(range(1, len(found) + 1)):
        numbers = ", ".join(str(migration.version) for migration in found) or "none"
        raise StoreError(f"asad_sql: migrations are missing (found: {numbers}); install asad again")
    return tuple(found)


def statements(script: str) -> tuple[str, ...]:
    """The statements of a script: each ends with a semicolon at a line's end, comments stand alone."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    return tuple(part.strip() for part in re.split(r";[ \t]*(?:\n|$)", code) if part.strip())


def version_of(connection: Connection, place: str) -> int:
    """The schema's version, 0 for an empty database; `place` is the store's name in errors.

    Raises StoreError if the database belongs to something else.
    """
    tables = inspect(connection).get_table_names()
    if schema_version.name in tables:
        return connection.scalar(select(func.max(schema_version.c.version))) or 0
    if tables:
        others = ", ".join(sorted(tables)[:3])
        raise StoreError(f"{place}: holds the tables of something else ({others}); name an empty database")
    return 0


def check_version(version: int, migrations: Sequence[Migration], place: str) -> None:
    """Raises StoreError if the schema is newer than the code."""
    if version > len(migrations):
        raise StoreError(
            f"{place}: has schema version {version}, this asad knows versions up to {len(migrations)}; "
            "upgrade asad, or name another store with --store"
        )


def upgrade(connection: Connection, migrations: Sequence[Migration], place: str) -> None:
    """Apply what is missing, in the transaction of `connection`: all of it or, if anything fails, nothing.

    Raises StoreError as `version_of` and `check_version` do.
    """
    version = version_of(connection, place)
    check_version(version, migrations, place)
    if version == 0:
        connection.exec_driver_sql(VERSION_TABLE)
    for migration in migrations[version:]:
        for statement in migration.statements:
            connection.exec_driver_sql(statement)
        connection.execute(
            insert(schema_version).values(
                version=migration.version, name=migration.name, applied_at=time.time()
            )
        )

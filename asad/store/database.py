"""An open database of the state store: how it is found, opened and set up, and its transactions.

SQLite in WAL mode by default, PostgreSQL by URL.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection, Table, create_engine, event, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from asad.errors import StoreError, UsageError, how_to_install
from asad.store.migrations import check_version, installed_migrations, upgrade, version_of
from asad.store.urls import parse, shown, without_secrets

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another one's transaction."""
CHANGE_AGAIN_S = 0.01
"""Between two tries to change the journal of a new file."""
CACHE_MIB = 8
"""Of SQLite, for each connection. The daemon has one for each thread that asks, so that a large cache is taken several
times over, page by page: with 64 MiB a daemon grows by 4 MiB a day for weeks."""
BULK_CACHE_MIB = 64
"""For whoever writes a whole replay: names of jobs go into the indexes in no order, and recording costs a fifth more
with SQLite's own 2 MiB."""
PAGE = 2_000
"""Rows that a reader fetches at a time; no cursor stays open between pages."""
UPGRADE_LOCK = 0x61736164
"""PostgreSQL's advisory lock of whoever changes the schema ("asad")."""


def default_path() -> Path:
    """`$XDG_STATE_HOME/asad/asad.db`, under `~/.local/state` where that is not set."""
    state_home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state_home) if Path(state_home).is_absolute() else Path.home() / ".local" / "state"
    return base / "asad" / "asad.db"


class Database:
    """An open database. Also a context manager that closes it.

    Every method raises StoreError, with the store's name and the hint, if the database fails it.
    """

    def __init__(self, url: URL, cache_mib: int = CACHE_MIB) -> None:
        """Use `Store.open`."""
        self.url = url
        options: dict[str, Any] = {"pool_pre_ping": True} if url.get_backend_name() == "postgresql" else {}
        self._engine = create_engine(url, **options)
        if url.get_backend_name() == "sqlite":
            event.listen(self._engine, "connect", partial(_set_up_sqlite, cache_mib=cache_mib))
            event.listen(self._engine, "begin", _begin_sqlite)
        self._write_engine = self._engine.execution_options(asad_begin="BEGIN IMMEDIATE")

    @classmethod
    def open(cls, url: str | None = None, *, create: bool = True, cache_mib: int = CACHE_MIB) -> Self:
        """Open a store and bring its schema up to date.

        `url` is a path, `sqlite:///path`, or `postgresql://user@host/database`; None is `default_path()`. A
        missing SQLite file is made, with its folder, unless `create` is false. `cache_mib` is what each connection
        to SQLite may hold of the file: `BULK_CACHE_MIB` for whoever records a whole replay.

        Raises UsageError for a URL that is none or a missing file, StoreError if the store cannot be opened,
        belongs to something else or is newer than this code.
        """
        parsed = URL.create("sqlite", database=str(default_path())) if url is None else parse(url)
        _check_file(parsed, create)
        try:
            store = cls(parsed, cache_mib)
        except ModuleNotFoundError as error:
            raise StoreError(f"{shown(parsed)}: {error}; {how_to_install('postgres')}") from error
        try:
            store._bring_up_to_date()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Release the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        """How operators know it: the path, or the URL without its password."""
        return shown(self.url)

    @contextmanager
    def reading(self, doing: str) -> Iterator[Connection]:
        """A transaction that only reads; `doing` is what an error says was being done."""
        with self._reported(doing), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, doing: str) -> Iterator[Connection]:
        """A transaction that writes, all of it or nothing; waits for other writers."""
        with self._reported(doing), self._write_engine.begin() as connection:
            yield connection

    @contextmanager
    def autocommit(self, doing: str) -> Iterator[Connection]:
        """Without a transaction, for what PostgreSQL does in none."""
        engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._reported(doing), engine.connect() as connection:
            yield connection

    def insert(self, table: Table) -> Any:
        """An INSERT of the database's own, which knows what to do about rows that are there; SQLAlchemy's does not."""
        of_dialect = sqlite.insert if self.url.get_backend_name() == "sqlite" else postgresql.insert
        return of_dialect(table)

    @contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        """Database errors become StoreErrors that say where, what and how to correct it."""
        try:
            yield
        except SQLAlchemyError as error:
            # the driver's own words, without the statement and its parameters (users' strings)
            words = str(error.orig if isinstance(error, DBAPIError) else error).strip()
            words = without_secrets(words, self.url)
            raise StoreError(f"{self}: {doing}: {words}; {_remedy(words)}") from error

    def give_back_space(self) -> None:
        """SQLite keeps the pages of what was removed until it is asked; PostgreSQL minds its own."""
        if self.url.get_backend_name() != "sqlite":
            return
        with self._reported("freeing space"), self._engine.connect() as connection:
            driver = connection.connection.driver_connection
            if driver is not None:
                # frees one page a step; of the driver's ways only a script is stepped to its end
                driver.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    def _bring_up_to_date(self) -> None:
        migrations = installed_migrations()
        with self.reading("opening") as connection:
            version = version_of(connection, str(self))
        check_version(version, migrations, str(self))
        if version == len(migrations):
            return
        with self.writing("bringing the schema up to date") as connection:
            if self.url.get_backend_name() == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
            upgrade(connection, migrations, str(self))  # looks again: another process may have been quicker


def _check_file(url: URL, create: bool) -> None:
    """The folder of a SQLite file is made; without `create` the file must be there."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return
    path = Path(str(url.database))
    if not create and not path.exists():
        raise UsageError(
            f"{path}: there is no store yet: a replay or the daemon makes it; name another with --store"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{path}: its folder cannot be made ({error.strerror}); name another with --store"
        ) from error


def _remedy(words: str) -> str:
    if "not a database" in words or "malformed" in words:
        return "move the file away, or name another store with --store"
    if "locked" in words:
        return f"another process has been writing for {BUSY_TIMEOUT_S:.0f} s; try again when it is done"
    if "readonly" in words or "unable to open" in words or "permission" in words.lower():
        return "make the file and its folder writable for this user, or name another store with --store"
    if "full" in words:
        return "make room on the disk"
    return "check that the database is there and takes connections"


def _set_up_sqlite(connection: Any, _record: Any, cache_mib: int) -> None:
    """How every connection to SQLite begins."""
    connection.isolation_level = None  # the driver begins no transactions of its own, see _begin_sqlite
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
        cursor.execute(f"PRAGMA cache_size = {-1024 * cache_mib}")
        cursor.execute("PRAGMA wal_autocheckpoint = 10000")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the file has a header, so before WAL
        cursor.execute("PRAGMA journal_mode")
        if cursor.fetchone()[0] != "wal":  # asking needs no lock, changing does
            _change_to_wal(cursor)
        # in WAL mode a power cut loses the newest commits, never the file
        cursor.execute("PRAGMA synchronous = NORMAL")
    finally:
        cursor.close()


def _change_to_wal(cursor: sqlite3.Cursor) -> None:
    """Change the journal of a new file; waits here, for SQLite refuses at once when two change it together.

    Each of them reads and wants to write, so neither could ever go on: SQLite does not ask its busy timeout then.
    """
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                raise
            time.sleep(CHANGE_AGAIN_S)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Writers take the lock at once: a reader that becomes a writer half-way is refused without waiting."""
    connection.exec_driver_sql(connection.get_execution_options().get("asad_begin", "BEGIN"))

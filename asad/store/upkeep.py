"""Looking after a store beside a daemon that writes it: how large it is, a copy of it, and the space it has to spare.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select

from asad.errors import StoreError, UsageError
from asad.store import schema
from asad.store.database import Database
from asad.store.urls import without_secrets

Progress = Callable[[int, int], object]
"""Takes how much is done, and of how much."""
PAGES = 2_000
"""Pages (of 4 KiB) that are copied or freed at a time."""
CHECKPOINT_MS = 1_000
"""So long a checkpoint may wait for readers and writers; it is made by the next writer otherwise."""
PAGES_OF_TABLES = """
SELECT s.tbl_name, sum(d.pgsize) FROM dbstat AS d JOIN sqlite_schema AS s ON s.name = d.name GROUP BY s.tbl_name
"""
HEADER = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table with its indexes."""

    table: str
    rows: int
    bytes: int | None
    """On the disk; None where SQLite was built without that table of its own (dbstat)."""


def sizes(store: Database) -> list[TableSize]:
    """Every table of the store, the largest first. Reads all of an SQLite file."""
    tables, found = schema.METADATA.tables, {}
    taken: dict[str, int] | None = None
    with store.reading("counting rows") as connection:
        for name, table in tables.items():
            found[name] = int(connection.scalar(select(func.count()).select_from(table)) or 0)
    try:
        with store.reading("measuring tables") as connection:
            if store.url.get_backend_name() == "postgresql":
                size = func.pg_total_relation_size
                taken = {name: int(connection.scalar(select(size(name))) or 0) for name in tables}
            else:
                taken = {name: int(size) for name, size in connection.exec_driver_sql(PAGES_OF_TABLES)}
    except StoreError as error:
        if "dbstat" not in str(error):
            raise
    sized = [
        TableSize(name, rows, None if taken is None else taken.get(name, 0)) for name, rows in found.items()
    ]
    return sorted(sized, key=lambda one: (-(one.bytes or 0), -one.rows, one.table))


def total_bytes(store: Database) -> int:
    """What the store takes on the disk: of SQLite the file and its journal."""
    if store.url.get_backend_name() == "postgresql":
        with store.reading("measuring the store") as connection:
            return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
    path = str(store.url.database)
    files = (Path(path), Path(f"{path}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


# ------------------------------------------------------------------------------------------------------- vacuum


def vacuum(store: Database, progress: Progress) -> tuple[int, int]:
    """Return free pages to the disk, some at a time; bytes before and after.

    Safe beside a daemon: it waits for none of these for more than the moment that a few thousand pages take. PostgreSQL
    vacuums (not fully, so that nobody is locked out) and keeps the files for its own use where it cannot shorten them.
    """
    before = total_bytes(store)
    if store.url.get_backend_name() == "postgresql":
        names = list(schema.METADATA.tables)
        for k, name in enumerate(names):
            progress(k, len(names))
            with store.autocommit("freeing space") as connection:
                connection.exec_driver_sql(f"VACUUM (ANALYZE) {name}")
        progress(len(names), len(names))
        return before, total_bytes(store)
    with _sqlite(store, "freeing space") as connection:
        if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != 2:
            raise StoreError(
                f"{store}: was not made by asad and cannot return space beside others; stop the daemon and run "
                f"sqlite3 {shlex.quote(str(store))} 'PRAGMA auto_vacuum = INCREMENTAL; VACUUM'"
            )
        free = whole = _free_pages(connection)
        while free > 0:
            progress(whole - free, whole)
            # one page a step, and of the driver's ways only a script is stepped to its end
            connection.executescript(f"PRAGMA incremental_vacuum({PAGES})")
            left = _free_pages(connection)
            if left >= free:  # somebody frees as much meanwhile
                break
            free = left
        progress(whole, whole)
        connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_MS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before, total_bytes(store)


def _free_pages(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])


@contextlib.contextmanager
def _sqlite(store: Database, doing: str) -> Iterator[sqlite3.Connection]:
    """A connection of the driver's own."""
    try:
        with closing(
            sqlite3.connect(str(store.url.database), timeout=30.0, isolation_level=None)
        ) as connection:
            yield connection
    except sqlite3.Error as error:
        raise StoreError(f"{store}: {doing}: {error}; check the file and the room on its disk") from error


# ------------------------------------------------------------------------------------------------------- backup


def backup(store: Database, path: Path, progress: Progress) -> int:
    """A copy of the store as it is at one moment, made while others write; its bytes.

    It is made beside `path`, checked, and takes its name when it is whole: whatever ends this process, at `path` is the
    old file or the new one. Only its owner may read it.

    Raises UsageError if `path` is the store itself or something that is no copy of one.
    """
    postgresql = store.url.get_backend_name() == "postgresql"
    check_target(store, path, b"PGDMP" if postgresql else HEADER)
    with whole_file(path) as made:
        if postgresql:
            _dump(store, made)
        else:
            _copy(store, made, progress)
        return made.stat().st_size


def check_target(store: Database, path: Path, begin: bytes = b"") -> None:
    """Raises UsageError if a file may not take the place of what is at `path`: of the store, or of a file that does not
    begin so."""
    if store.url.get_backend_name() != "postgresql":
        for name in (str(store.url.database), f"{store.url.database}-wal", f"{store.url.database}-shm"):
            if path.exists() and Path(name).exists() and path.samefile(name):
                raise UsageError(f"{path}: is the store itself; name another file")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it")
    if begin and path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(len(begin)) != begin:
                raise UsageError(f"{path}: is there and is no backup; name another file, or move it away")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its name when the block has ended well, and is gone otherwise; mode 0600.

    What killed processes have left beside it is removed: who still writes one holds a lock on it.
    """
    path = path.absolute()
    prefix, suffix = f".{path.name}.", ".partial"
    try:
        for left in path.parent.glob(f"{glob.escape(prefix)}*{suffix}"):
            with contextlib.suppress(OSError), left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for gone in (left, *_beside(left)):
                    gone.unlink(missing_ok=True)
        descriptor, name = tempfile.mkstemp(suffix, prefix, path.parent)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); name a file in a folder that you can write to"
        ) from error
    made = Path(name)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield made
        os.fsync(descriptor)
        made.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror or error}; make room on the disk, or name another"
        ) from error
    finally:
        made.unlink(missing_ok=True)
        for beside in _beside(made):
            beside.unlink(missing_ok=True)
        os.close(descriptor)


def _beside(path: Path) -> Sequence[Path]:
    return [path.with_name(path.name + end) for end in ("-journal", "-wal", "-shm")]


def _copy(store: Database, made: Path, progress: Progress) -> None:
    """SQLite's own copy, of one moment: the reader's transaction is open from the first page to the last, or every
    write of a daemon would let it begin anew."""
    with _sqlite(store, "copying") as source, closing(sqlite3.connect(made, isolation_level=None)) as copy:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        source.backup(copy, pages=PAGES, progress=lambda _, left, whole: progress(whole - left, whole))
        source.execute("ROLLBACK")
        copy.execute(
            "PRAGMA journal_mode = DELETE"
        ).fetchall()  # one file; who opens it as a store changes it
        found = [row[0] for row in copy.execute("PRAGMA integrity_check(5)")]
        if found != ["ok"]:
            raise StoreError(
                f"{store}: the copy is damaged ({'; '.join(found)[:300]}), and so is the store; see "
                f"sqlite3 {shlex.quote(str(store))} .recover"
            )


def _dump(store: Database, made: Path) -> None:
    """pg_dump's custom format, read back by pg_restore. The password goes by the environment."""
    url = store.url.set(drivername="postgresql")
    environment = os.environ | ({"PGPASSWORD": url.password} if url.password else {})
    place = url.set(password=None).render_as_string(hide_password=False)
    dump, restore = _program("pg_dump"), _program("pg_restore")
    line = f"pg_dump --format=custom --file=FILE {shlex.quote(str(store))}"
    if dump is None or restore is None:
        raise StoreError(f"{store}: pg_dump is not installed here; where it is, run: {line}")
    for command in (
        [dump, "--format=custom", "--no-password", f"--file={made}", f"--dbname={place}"],
        [restore, "--list", str(made)],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")  # noqa: S603
        if done.returncode:
            problem = without_secrets(done.stderr.strip()[-500:], url)
            raise StoreError(f"{store}: {Path(command[0]).name} failed: {problem}; run: {line}")


def _program(name: str) -> str | None:
    """In the path, or the newest that Debian has installed."""
    found = shutil.which(name)
    installed = [path for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}") if path.is_file()]
    newest = max(installed, key=lambda path: (len(path.parts[4]), path.parts[4]), default=None)
    return found or (None if newest is None else str(newest))

"""Rows of a table of the store for other programs: CSV, lines of JSON, Parquet. However many there are, a page is held.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, Table, column, select

from asad.errors import StoreError, UsageError, how_to_install
from asad.store import schema
from asad.store.database import PAGE, Database
from asad.tables import nearest_of

WHEN = {
    "runs": "started_at",
    "job_ends": "end_s",
    "learned": "saved_at",
    "statements": "changed_s",
    "launch_plans": "made_s",
    "schema_version": "applied_at",
}
"""Table → the column that a range of time is of; of all others `time_s`."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A cell that begins so may be carried out by a spreadsheet."""
GROUP = 25 * PAGE
"""Rows of a row group of Parquet."""
Page = Sequence[Sequence[Any]]


def table_of(name: str) -> Table:
    """A table by its name. Raises UsageError if there is none."""
    tables = schema.METADATA.tables
    if name not in tables:
        raise UsageError(f"{name!r}: there is no such table; {nearest_of(name, sorted(tables))}")
    return tables[name]


def columns_of(table: Table, names: Sequence[str]) -> list[Column[Any]]:
    """These columns of a table, in that order; all if none is named. Raises UsageError if there is no such."""
    for name in names:
        if name not in table.c:
            raise UsageError(
                f"{table.name}.{name}: there is no such column; {nearest_of(name, list(table.c.keys()))}"
            )
    return [table.c[name] for name in names or table.c.keys()]


def pages(
    store: Database,
    table: Table,
    columns: Sequence[Column[Any]],
    *,
    since_s: float = -math.inf,
    until_s: float = math.inf,
    run_id: int | None = None,
) -> Iterator[Page]:
    """Rows from `since_s` on and before `until_s`, by page, in the order of writing (SQLite) or none (PostgreSQL).

    SQLite's pages are transactions of their own, so that a slow reader keeps no daemon from shortening its journal; of
    PostgreSQL all is of one moment. Raises UsageError if the table has no such column to select by.
    """
    query = select(*columns)
    if math.isfinite(since_s) or math.isfinite(until_s):
        when = table.c.get(WHEN.get(table.name, "time_s"))
        if when is None:
            raise UsageError(f"{table.name}: has no time; leave out --since and --until")
        query = query.where(when >= since_s) if math.isfinite(since_s) else query
        query = query.where(when < until_s) if math.isfinite(until_s) else query
    if run_id is not None:
        if "run_id" not in table.c:
            raise UsageError(f"{table.name}: belongs to no run; leave out --run")
        query = query.where(table.c.run_id == run_id)
    if store.url.get_backend_name() == "postgresql":
        with store.reading("exporting") as connection:
            yield from connection.execution_options(yield_per=PAGE).execute(query).partitions(PAGE)
        return
    number: Column[int] = column("rowid", Integer)  # type: ignore[assignment]
    query, last = query.add_columns(number).order_by(number).limit(PAGE), -1
    while True:
        with store.reading("exporting") as connection:
            page = connection.execute(query.where(number > last)).all()
        if page:
            yield [row[:-1] for row in page]
        if len(page) < PAGE:
            return
        last = page[-1][-1]


class _Lines:
    """Ends lines with a line feed alone. (Were that given to csv, it would not quote a carriage return.)"""

    def __init__(self, file: TextIO) -> None:
        self._write = file.write

    def write(self, line: str) -> int:
        return self._write(line.removesuffix("\r\n") + "\n")


def write_csv(
    file: TextIO,
    columns: Sequence[Column[Any]],
    found: Iterator[Page],
    *,
    raw: bool = False,
    shown: Callable[[str], str] = str,
) -> Iterator[int]:
    """Lines of CSV with a heading; null is an empty cell. Yields how many rows are written, page by page.

    Text that a spreadsheet would carry out gets an apostrophe before it, unless `raw`. `shown` makes text harmless for
    a terminal.
    """
    write = csv.writer(_Lines(file)).writerow
    write([column.name for column in columns])
    is_text = [column.type.python_type is str for column in columns]

    def cell(value: Any, of_user: bool) -> Any:
        if not of_user or value is None:
            return value
        return shown(value if raw else defused(value))

    rows = 0
    for page in found:
        for row in page:
            write([cell(value, of_user) for value, of_user in zip(row, is_text, strict=True)])
        rows += len(page)
        yield rows


def defused(value: str) -> str:
    """Text as a spreadsheet shows it, and does not carry it out."""
    return f"'{value}" if value.startswith(FORMULAS) else value


def write_json_lines(file: TextIO, columns: Sequence[Column[Any]], found: Iterator[Page]) -> Iterator[int]:
    """An object of JSON a line, by column. Yields how many rows are written, page by page."""
    names, rows = [column.name for column in columns], 0
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for page in found:
        file.writelines(encode(dict(zip(names, map(_finite, row), strict=True))) + "\n" for row in page)
        rows += len(page)
        yield rows


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_parquet(path: Path, columns: Sequence[Column[Any]], found: Iterator[Page]) -> Iterator[int]:
    """A Parquet file, compressed by zstd. Yields how many rows are written, page by page.

    Raises UsageError where pyarrow is not installed.
    """
    arrow, parquet = arrow_modules()
    kinds = {
        Integer: arrow.int64(),
        BigInteger: arrow.int64(),
        Double: arrow.float64(),
        Boolean: arrow.bool_(),
    }
    fields = [(column.name, kinds.get(type(column.type), arrow.string())) for column in columns]
    of_file = arrow.schema(fields)
    rows, waiting = 0, list[Sequence[Any]]()
    try:
        with parquet.ParquetWriter(path, of_file, compression="zstd") as writer:

            def write() -> None:
                arrays = [
                    arrow.array(values, kind)
                    for values, (_, kind) in zip(zip(*waiting, strict=True), fields, strict=True)
                ]
                writer.write_table(arrow.Table.from_arrays(arrays, schema=of_file))
                waiting.clear()

            for page in found:
                waiting += page
                rows += len(page)
                if len(waiting) >= GROUP:
                    write()
                yield rows
            if waiting:
                write()
    except (arrow.ArrowException, OSError) as error:
        raise StoreError(f"{path}: {error}; make room on the disk, or export as CSV") from error


def arrow_modules() -> tuple[Any, Any]:
    """pyarrow and its Parquet. Raises UsageError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(f"Parquet is written by pyarrow ({error}); {how_to_install('parquet')}") from error
    return pyarrow, pyarrow.parquet

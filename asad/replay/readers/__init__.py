"""Accounting logs → tables of jobs: SWF, `sacct -P`, `sacct --json` and comma-separated extracts.

`read_log` is the one way in. What a log is, its content says, never its name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from asad.errors import LogError, UsageError
from asad.replay.readers import sacct, sacct_json, swf
from asad.replay.readers.accounting_log import Holdings, Recorded
from asad.replay.readers.foreign import MOST_CHARACTERS, foreign
from asad.replay.readers.raw_bytes import plain_bytes
from asad.replay.readers.table_header import MOST_BEFORE, header_of

__all__ = ["FORMATS", "Holdings", "Recorded", "read_log"]

FORMATS = ("swf", "sacct", "sacct-json", "csv")
JSON = re.compile(r"\s*[{\[]")
WARNED_JSON = re.compile(r"\s*(?:\{|\[)\s*(?:$|[\"{\[])")
"""How JSON begins on a line after a warning; not as `[root@head ~]#` does."""


def read_log(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    skip_bad: bool = False,
    format: str | None = None,
    cluster: str | None = None,
) -> Recorded:
    """Read an accounting log; `-` is standard input, and compression is undone wherever it is found.

    `columns` names the columns of a table that has no header, with sacct's names in any case; `delimiter`
    separates its fields (found out if not given); `format`, one of `FORMATS`, is found out if not given.
    With `skip_bad` bad lines are listed in `Recorded.bad`, else the first one is raised. Of a log of several
    clusters, `cluster` chooses one.

    Raises LogError (file, line, column, remedy), UsageError for wrong arguments.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"--format {format}: there is no such format; choose one of {', '.join(FORMATS)}")
    if delimiter is not None and (not delimiter or "\n" in delimiter or "\r" in delimiter):
        raise UsageError("--delimiter: it must be one character or more, and no line break")
    name = "standard input" if str(path) == "-" else str(path)
    raw = plain_bytes(name, str(path))
    if format is None and columns is None:
        _refuse_foreign(name, raw)
    if not raw or raw.isspace():
        raise LogError(name, None, None, "it is empty", "give a log of jobs that ended")
    found, before = (format, 0) if format else ("sacct", 0) if columns is not None else _sniff(raw)
    if found == "swf":
        return swf.read(name, raw, skip_bad)
    if found == "sacct-json":
        return sacct_json.read(name, raw, skip_bad=skip_bad, cluster=cluster, before=before)
    return sacct.read(
        name,
        raw,
        columns=columns,
        delimiter=delimiter,
        skip_bad=skip_bad,
        log_format=format,
        cluster=cluster,
    )


def _refuse_foreign(name: str, raw: bytes) -> None:
    """Raises LogError, with the way in, for a file that is known to be no log."""
    found = foreign(raw[:MOST_CHARACTERS].decode("utf-8", "replace"))
    if found is not None:
        raise LogError(name, None, None, *found)


def _sniff(raw: bytes) -> tuple[str, int]:
    """What a log is, from its first lines, and how many stand before it; a table if nothing else."""
    start = raw[:MOST_CHARACTERS].decode("utf-8", "replace")
    lines = start.replace("\r", "\n").split("\n")
    written = [number for number, line in enumerate(lines) if line.strip()][:MOST_BEFORE]
    if not written:
        return "sacct", 0
    first = lines[written[0]]
    if JSON.match(first.lstrip("\ufeff")):
        return "sacct-json", 0
    if swf.looks_like(first):
        return "swf", 0
    if any((header := header_of(lines[number])) and header.names_job for number in written):
        return "sacct", 0
    return next(
        (("sacct-json", number) for number in written if WARNED_JSON.match(lines[number])), ("sacct", 0)
    )

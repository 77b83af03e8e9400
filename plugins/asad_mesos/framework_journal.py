"""The journal of the framework: its id, jobs and tasks, on the disk before Mesos is asked for anything.

One JSON line a record (see `framework`). Read once at the start, line by line: an earlier version may have let it grow
beyond what fits into memory at one time. When it has grown, it is written anew from the state.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from asad.cluster.durable_lines import replace_lines
from asad.errors import ClusterError

NAME = "mesos.journal"
MOST_LINES = 50_000
MOST_BYTES = 64 << 20
"""So many lines or bytes after it was written anew it is again; a journal that is larger then, after as many more."""


class JournalError(ClusterError):
    """The journal cannot be written or read; nothing may be launched without it."""


class Journal:
    """`<folder>/mesos.journal`, held by one process. The folder is made if it is not there.

    Raises JournalError if another process holds it, or the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.lines = self.size_bytes = 0
        """Written since it was written anew."""
        self._least_bytes = 0
        """That it had then."""
        self._file: IO[bytes] | None = None
        self._end: int | None = None
        """Bytes up to which the file holds whole records, where more may follow."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / f"{NAME}.lock").open("a")
        except OSError as error:
            raise JournalError(
                f"{folder}: {error.strerror}; [daemon] state_dir must be a folder that the daemon may write"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise JournalError(
                f"{self.path}: another daemon holds it; stop that one, or give this one a state_dir of its own"
            ) from None

    @property
    def has_grown(self) -> bool:
        """Is it time to write it anew?"""
        return self.lines > MOST_LINES or self.size_bytes > max(MOST_BYTES, self._least_bytes)

    def load(self) -> Iterator[dict[str, Any]]:
        """All records. A last line that was cut short was never acted upon, and is left out.

        Raises JournalError that names the line for anything else that cannot be read.
        """
        self.lines = self._least_bytes = 0
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unreadable(error) from None
        with file:
            end = 0
            for number, line in enumerate(self._lines(file), 1):
                if line.strip():
                    try:
                        record = orjson.loads(line)
                        record["what"]
                    except (ValueError, KeyError, TypeError):
                        if next(self._lines(file), None) is None:
                            break
                        raise JournalError(
                            f"{self.path}:{number}: it is no record; correct the line, or move the file away: then the "
                            "framework starts anew, and Mesos ends its tasks after failover_timeout_s"
                        ) from None
                    self.lines += 1
                    yield record
                end += len(line)
        self.size_bytes = self._end = end

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Whole lines."""
        try:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
        except OSError as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: OSError) -> JournalError:
        return JournalError(f"{self.path}: {error.strerror}; without it running tasks are not known")

    def write(self, records: Iterable[dict[str, Any]]) -> None:
        """Append records, on the disk when this returns. Raises JournalError; then none of them counts."""
        lines = [orjson.dumps(record) for record in records]
        if not lines:
            return
        try:
            if self._file is None:
                self._file = self.path.open("ab", buffering=0)
                os.fchmod(self._file.fileno(), 0o600)  # environments may hold secrets
            self._cut(self._file)
            size = os.fstat(self._file.fileno()).st_size
            try:
                view = memoryview(b"\n".join(lines) + b"\n")
                while view:
                    view = view[self._file.write(view) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._end = size
                self._cut(self._file)
                raise
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        self.lines += len(lines)
        self.size_bytes += sum(map(len, lines)) + len(lines)

    def rewrite(self, records: Iterable[dict[str, Any]]) -> None:
        """Replace all records by these. Raises JournalError; then the old ones are still there."""
        try:
            size = replace_lines(self.path, map(orjson.dumps, records), 0o600)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        if self._file is not None:
            self._file.close()
            self._file = None
        self.lines, self.size_bytes, self._least_bytes, self._end = 0, 0, size, None

    def close(self) -> None:
        """Let another process have it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.close()

    def _cut(self, file: IO[bytes]) -> None:
        """Take off what was cut short: with records behind it, it would be a broken journal to the next daemon."""
        if self._end is not None:
            os.ftruncate(file.fileno(), self._end)
            self._end = None

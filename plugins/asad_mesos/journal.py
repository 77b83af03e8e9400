"""The journal of the framework: its id, jobs and tasks, on the disk before Mesos is asked for anything.

One JSON line a record (see `framework`). Read once at the start; when it has grown, it is written anew from the state.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import orjson

from asad.errors import ClusterError

NAME = "mesos.journal"
MOST_LINES = 50_000
"""So many lines after it was written anew, it is again."""


class JournalError(ClusterError):
    """The journal cannot be written or read; nothing may be launched without it."""


class Journal:
    """`<folder>/mesos.journal`, held by one process. The folder is made if it is not there.

    Raises JournalError if another process holds it, or the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.lines = 0
        """Written since it was written anew."""
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

    def load(self) -> list[dict[str, Any]]:
        """All records. A last line that was cut short was never acted upon, and is left out.

        Raises JournalError that names the line for anything else that cannot be read.
        """
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(
                f"{self.path}: {error.strerror}; without it running tasks are not known"
            ) from None
        lines = raw.split(b"\n")
        whole = len(lines) - 1
        records = []
        end = 0
        for number, line in enumerate(lines[:whole], 1):
            if line:
                try:
                    record = orjson.loads(line)
                    record["what"]
                except (ValueError, KeyError, TypeError):
                    if number == whole:
                        break
                    raise JournalError(
                        f"{self.path}:{number}: it is no record; mend the line, or move the file away: then the "
                        "framework starts anew, and Mesos ends its tasks after failover_timeout_s"
                    ) from None
                records.append(record)
            end += len(line) + 1
        self.lines, self._end = len(records), end
        return records

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

    def rewrite(self, records: Sequence[dict[str, Any]]) -> None:
        """Replace all records by these. Raises JournalError; then the old ones are still there."""
        fresh = self.path.with_suffix(".new")
        try:
            with fresh.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                for record in records:
                    file.write(orjson.dumps(record) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written ({error.strerror or error})") from None
        if self._file is not None:
            self._file.close()
            self._file = None
        self.lines, self._end = 0, None

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

"""The journal of offers and changes: written down and on the disk before Slurm is asked for anything.

One JSON line an event. An offer stays open from its `offer` line until a line that closes it (`withdrawn`, `restored`,
`refused`, `closed`); a change of a job from its last `changed` line until `given-back`. The format is read by
`asad_slurm.undo` as well, which must work when nothing else does; so reading lives there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from asad.cluster.durable_lines import append_line, replace_lines
from asad_slurm.undo import ALIVE, JOURNAL, LOCK, boot_id, exposed, open_changes, open_offers

MOST_LINES = 10_000
"""So many lines after it was compacted, it may be again."""


class JournalError(Exception):
    """The journal cannot be written; whoever makes offers must not."""


class Journal:
    """Appends lines to `<folder>/offers.journal`, each on the disk before `write` returns."""

    def __init__(self, folder: Path) -> None:
        """The folder must exist by the first `write`."""
        self.path = folder / JOURNAL
        self._lock = folder / LOCK
        self._alive = folder / ALIVE
        self.lines = 0
        """Written since it was compacted."""

    def write(self, what: str, time_s: float, job: str, **facts: Any) -> None:
        """Note an event. Raises JournalError if it could not be brought to the disk."""
        line = json.dumps({"what": what, "time_s": time_s, "job": job, **facts})
        with self._trying("written"), self._locked():
            append_line(self.path, line, 0o640)
        self.lines += 1

    def close(self, what: str, time_s: float, job: str, **facts: Any) -> None:
        """Note what only closes or describes: without the line it is looked at again, and no harm done."""
        with contextlib.suppress(JournalError):
            self.write(what, time_s, job, **facts)

    def beat(self) -> None:
        """Show `asad-undo` that a daemon stands behind the changes: when, by a clock that is never set."""
        with contextlib.suppress(OSError):
            self._alive.touch(mode=0o640)
            self._alive.write_text(f"{boot_id()} {time.monotonic()}\n", encoding="ascii")

    def open_changes(self) -> dict[tuple[str, str], dict[str, Any]]:
        """By job and key, the last `changed` line that nothing has closed. Raises JournalError as above."""
        with self._trying("read"):
            return open_changes(self.path)

    def open_offers(self) -> dict[str, dict[str, Any]]:
        """By job, the last `offer` line that nothing has closed.

        Raises JournalError if it cannot be read, or others may write where it is.
        """
        with self._trying("read"):
            if why := exposed(self.path.parent):
                raise JournalError(why)
            return open_offers(self.path)

    def compact(self, offers: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep only these offers, and the open changes. Raises JournalError; the old journal is then as it was."""
        with self._trying("written"), self._locked():
            lines = [*offers.values(), *open_changes(self.path).values()]
            replace_lines(self.path, [json.dumps(line).encode() for line in lines])
            self.lines = 0

    @contextlib.contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be {what} ({error})") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the journal: `asad-undo` appends to it as well."""
        with self._lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

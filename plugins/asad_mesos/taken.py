"""Jobs that were taken out of Slurm's queue, and the journal by which a successor knows them again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from asad.cluster.durable_lines import append_line, replace_lines
from asad.errors import ClusterError
from asad_mesos.kinds import require_kinds

JOURNAL = "slurm-queue.journal"
HOLDING, SERVED, RETURNING, ENDING, OVER = "holding", "served", "returning", "ending", "over"


@dataclass(slots=True)
class Taken:
    """A job of Slurm's that we have in hand."""

    job: int
    submit_s: float
    restarts: int
    """How often Slurm had queued it again; it may be run once each time."""
    take: int
    """Rises with every job that is taken; part of the origin."""
    state: str = HOLDING
    since_s: float = 0.0
    mesos: str = ""
    comment: str = ""
    """What its user wrote there."""
    admin_comment: str = ""
    said: str = ""
    """The sentence that stands in its comment."""
    why: str = ""
    status: int = 0
    """As of wait(2), once it is over."""
    facts: dict[str, str] = field(default_factory=dict)
    array: int = 0
    """Of a task of an array: the array's number."""
    task: int = -1

    @property
    def name(self) -> str:
        """By which Slurm's commands know it, and not its whole array."""
        return f"{self.array}_{self.task}" if self.array else str(self.job)

    @property
    def origin(self) -> str:
        """By which the gang is known."""
        return f"slurm:{self.job}:{self.submit_s:.0f}:{self.take}"


def _entry(plain: Any) -> Taken:
    """The entry of a line. Raises TypeError if it is none."""
    entry = Taken(**plain)
    require_kinds(entry)
    for name in ("mesos", "why", "said"):
        setattr(entry, name, _shown(getattr(entry, name)))
    entry.facts = {key: _shown(text) for key, text in entry.facts.items()}
    return entry


def _shown(text: str) -> str:
    """What is told of it goes into logs and comments."""
    return "".join(char if char.isprintable() else "?" for char in text)


class TakenJournal:
    """`<folder>/slurm-queue.journal`: one JSON line whenever an entry has changed; the last one of a job counts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        self.lines = 0

    def load(self) -> list[Taken]:
        """All lines, in their order. Raises ClusterError if they cannot be read."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(
                f"{self._path}: cannot be read ({error}); what is held in Slurm is in it"
            ) from None
        entries = []
        for line in filter(None, text.splitlines()):
            try:
                entries.append(_entry(json.loads(line)))
            except (ValueError, TypeError, RecursionError):
                continue  # cut short by a full disk: the line before it counts
        self.lines = len(entries)
        return entries

    def write(self, entry: Taken) -> None:
        """Bring an entry to the disk. Raises ClusterError; whoever calls must not go on then."""
        try:
            append_line(self._path, json.dumps(asdict(entry)), 0o600)
        except OSError as error:
            raise ClusterError(
                f"{self._path}: cannot be written ({error}); no job is taken until it can"
            ) from None
        self.lines += 1

    def rewrite(self, entries: Iterable[Taken]) -> None:
        """Keep these alone. Raises ClusterError; the old lines are then still there."""
        lines = [json.dumps(asdict(entry)).encode() for entry in entries]
        try:
            replace_lines(self._path, lines)
        except OSError as error:
            raise ClusterError(f"{self._path}: cannot be made shorter ({error})") from None
        self.lines = len(lines)

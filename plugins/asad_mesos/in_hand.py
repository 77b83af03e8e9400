"""Jobs on their way out of Slurm's queue, on Mesos, and on their way back: named states, named events, and no others.

An entry is in the journal before anything is done that follows from its state, so that a successor finds it there.
This is not the life of `asad.hold`: there a begin time keeps a job from starting in the one cluster that it stays in;
here it moves between two, its hold in Slurm ends by no clock, and whoever forgets where it is would run it twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Any

from asad.cluster.durable_lines import append_line, replace_lines
from asad.errors import ClusterError
from asad_mesos.kinds import require_kinds

JOURNAL = "slurm-queue.journal"
COMPACT_LINES = 5000
TRIES = 3
"""So often something is tried that nothing hangs on: no job is held for it."""


class Stage(StrEnum):
    """How far the handover of a job has come; the texts are those of the journal."""

    HOLDING = "holding"
    """Slurm is asked to hold it; Mesos has nothing of it yet, or the daemon was killed before it could note that."""
    SERVED = "served"
    """It is a gang on Mesos, which waits or runs."""
    RETURNING = "returning"
    """Nothing of it has run on Mesos: Slurm gets it back as it was."""
    ENDING = "ending"
    """It has run: Slurm has yet to end it, and accounting to know how."""
    OVER = "over"
    """All of that is done. Slurm may forget it, and is then reminded."""
    GONE = ""
    """It is in hand no more, and not known any more."""


class Event(Enum):
    """What can happen to a handover."""

    SUBMITTED = auto()
    """Mesos has it as a gang."""
    RETURNED = auto()
    """Slurm shall have it back."""
    ENDED = auto()
    """Its gang has ended, and may have run."""
    ACCOUNTED = auto()
    """Slurm knows what became of it, or never will."""
    DROPPED = auto()
    """Whatever becomes of it is no affair of ours."""


AFTER: Mapping[tuple[Stage, Event], Stage] = {
    (Stage.HOLDING, Event.SUBMITTED): Stage.SERVED,
    (Stage.HOLDING, Event.RETURNED): Stage.RETURNING,
    (Stage.SERVED, Event.RETURNED): Stage.RETURNING,
    (Stage.SERVED, Event.ENDED): Stage.ENDING,
    (Stage.ENDING, Event.ACCOUNTED): Stage.OVER,
    **{(stage, Event.DROPPED): Stage.GONE for stage in Stage},
}
"""Which state follows; there are no other events in a state. What has run is never returned."""


@dataclass(slots=True)
class Handover:
    """A job of Slurm's that we have in hand."""

    job: int
    submit_s: float
    restarts: int
    """How often Slurm had queued it again; it may be run once each time."""
    take: int
    """Rises with every job that is taken; part of the origin."""
    state: Stage = Stage.HOLDING
    since_s: float = 0.0
    mesos: str = ""
    comment: str = ""
    """What its user wrote there."""
    admin_comment: str = ""
    sentence: str = ""
    """What stands in its comment."""
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

    def tries_again(self) -> bool:
        """Something that nothing hangs on has failed: is it tried again in the next step?"""
        tries = int(self.facts.get("tries", "0")) + 1
        self.facts["tries"] = str(tries)
        return tries < TRIES

    def to_line(self) -> str:
        """Its line in the journal; `from_line` reads it."""
        plain = asdict(self)
        plain["said"] = plain.pop("sentence")  # as the journals of earlier versions have it
        return json.dumps(plain)

    @classmethod
    def from_line(cls, line: str) -> Handover:
        """Raises ValueError, TypeError, AttributeError or RecursionError for a line that is none."""
        plain: dict[str, Any] = json.loads(line)
        entry = cls(sentence=plain.pop("said", ""), **plain)
        require_kinds(entry)
        entry.state = Stage(entry.state)
        for name in ("mesos", "why", "sentence"):
            setattr(entry, name, _shown(getattr(entry, name)))
        entry.facts = {key: _shown(text) for key, text in entry.facts.items()}
        return entry


def _shown(text: str) -> str:
    """What a journal gives goes into logs and comments."""
    return "".join(char if char.isprintable() else "?" for char in text)


class InHand:
    """`<folder>/slurm-queue.journal`: one JSON line whenever an entry has changed; the last one of a job counts."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        """Know again what an earlier daemon had in hand. Raises ClusterError if the journal cannot be read."""
        self._path, self._clock = folder / JOURNAL, clock
        self.now: dict[int, Handover] = {}
        """By Slurm's number."""
        self.over: dict[int, Handover] = {}
        """Those that have run, lately."""
        self.lines = 0
        self._takes = 0
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(
                f"{self._path}: cannot be read ({error}); what is held in Slurm is in it"
            ) from None
        for line in filter(None, text.splitlines()):
            try:
                entry = Handover.from_line(line)
            except (ValueError, TypeError, AttributeError, RecursionError):
                continue  # cut short by a full disk: the line before it counts
            self.lines += 1
            self._takes = max(self._takes, entry.take)
            self._file(entry)

    def next_take(self) -> int:
        """No number twice, though the journal was made shorter: the gang of an earlier take is another."""
        self._takes = max(self._takes + 1, int(self._clock()))
        return self._takes

    def write(self, entry: Handover) -> None:
        """Bring an entry to the disk. Raises ClusterError; whoever calls must not go on then."""
        try:
            append_line(self._path, entry.to_line(), 0o600)
        except OSError as error:
            raise ClusterError(
                f"{self._path}: cannot be written ({error}); no job is taken until it can"
            ) from None
        self.lines += 1

    def add(self, entry: Handover) -> None:
        """Another one. Raises ClusterError as `write` does."""
        self.write(entry)
        self._file(entry)

    def on(self, event: Event, entry: Handover, why: str = "") -> None:
        """Go on to the state that follows, durably. Raises ClusterError; then nothing has changed."""
        before = entry.state, entry.since_s, entry.why
        entry.state, entry.since_s = AFTER[entry.state, event], self._clock()
        entry.why = why or entry.why
        try:
            self.write(entry)
        except ClusterError:
            entry.state, entry.since_s, entry.why = before
            raise
        self._file(entry)

    def _file(self, entry: Handover) -> None:
        """Among those in hand, among those that have run, or nowhere."""
        if entry.state in (Stage.OVER, Stage.GONE):
            self.now.pop(entry.job, None)
        else:
            self.now[entry.job] = entry
        if entry.state == Stage.OVER:
            self.over[entry.job] = entry
        else:
            self.over.pop(entry.job, None)  # it was requeued, and may be in hand again

    def compact(self) -> None:
        """Once there are many lines, keep those that count. Raises ClusterError; the old ones are then still there."""
        if self.lines <= COMPACT_LINES + 2 * len(self.now) + 2 * len(self.over):
            return
        lines = [entry.to_line().encode() for entry in (*self.over.values(), *self.now.values())]
        try:
            replace_lines(self._path, lines)
        except OSError as error:
            raise ClusterError(f"{self._path}: cannot be made shorter ({error})") from None
        self.lines = len(lines)

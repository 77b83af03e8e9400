"""What admission changes of users' jobs: begin time, throttle of an array, nice.

Whatever is changed is in the journal first, with what it was; the user's own value is restored when the change is taken
back, at the daemon's stop, and by `asad-undo`. What somebody else has changed meanwhile is theirs: it is let be.
A daemon that starts finds the changes of the one before, and goes on with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from asad.hold import Event, Hold, after
from asad_slurm.command import Answer, Transport
from asad_slurm.journal import Journal, JournalError
from asad_slurm.records import WAITS, JobRecord
from asad_slurm.undo import BEGIN, CHANGES, NICE, THROTTLE, changed_words

MOST_OURS = 4
"""So many values that we have set last count as ours: Slurm may do late what it did not answer."""
SETTLES_S = 60.0
"""A change that Slurm did not answer may yet come: for so long it stays open though nothing is seen of it."""
HELD = "it is held, and its nice would release it"


@dataclass(slots=True)
class Change:
    """One thing that is not as its user had it, while it is in the journal; its states are those of `asad.hold`."""

    job: int
    """Slurm's number of the job, or of the array."""
    key: str
    """Out of `CHANGES`."""
    was: int
    """The user's own value: begin time (s since the epoch, 0 for none), throttle (0 for none) or nice."""
    ours: tuple[int, ...]
    """What we have set it to, the latest last."""
    time_s: float
    hold: Hold = Hold.FREE
    """HELD once Slurm has done or shown it; FREE before that, and again once a begin time of ours has come."""
    unanswered: bool = True
    """It is not known that Slurm did the last: it did not answer us, or a killed predecessor."""

    @property
    def lapsed(self) -> bool:
        """Its begin time has come, and it waits still: what stands there is not its user's own."""
        return self.hold is Hold.FREE and not self.unanswered

    def on(self, event: Event) -> None:
        """Go on to the state that follows."""
        self.hold = after(self.hold, event)

    def to_json(self) -> dict[str, Any]:
        """The journal's line; states are not in it, since a successor goes by what Slurm shows."""
        of_line = {"key": self.key, "was": self.was, "ours": self.ours}
        return {"what": "changed", "time_s": self.time_s, "job": str(self.job), **of_line}


class Changes:
    """All changes that are not returned, by job and key."""

    def __init__(self, transport: Transport, journal: Journal, clock: Callable[[], float]) -> None:
        self._transport, self._journal, self._clock = transport, journal, clock
        self._all: dict[tuple[int, str], Change] = {}

    @property
    def open(self) -> dict[tuple[int, str], Change]:
        """Those that are to be returned: all but the lapsed."""
        return {where: change for where, change in self._all.items() if not change.lapsed}

    @property
    def jobs(self) -> set[int]:
        """All of which anything is in the journal."""
        return {job for job, _ in self._all}

    def load(self) -> None:
        """Take up what an earlier daemon has changed. Raises JournalError if the journal cannot be read."""
        for (job, key), line in self._journal.open_changes().items():
            change = Change(int(job), key, line["was"], tuple(line["ours"]), float(line.get("time_s", 0.0)))
            self._all[change.job, key] = change

    def ours(self, job: int, key: str, record: JobRecord) -> Change | None:
        """The open change of a waiting job that is still as we have made it."""
        change = self._all.get((job, key))
        return change if change is not None and not change.lapsed and is_ours(change, record) else None

    def make(self, job: int, wanted: Mapping[str, int], present: Mapping[str, int]) -> str:
        """Change a job as `wanted`, by key; `present` is what it is now. Why it was not done, or the empty string."""
        now_s = self._clock()
        made = {}
        for key, value in wanted.items():
            change = made[key] = Change(job, key, present[key], (value,), now_s)
            known = self._all.get((job, key))
            # back at what its user had, what we asked for before may yet come
            if known is not None and present[key] in (*known.ours, known.was):
                change.was, change.ours = known.was, (*known.ours, value)[-MOST_OURS:]
                change.hold = after(known.hold, Event.SHOWN) if present[key] in known.ours else known.hold
        try:
            for change in made.values():
                self._journal.write(**change.to_json())
                self._all[job, change.key] = change
        except JournalError as error:
            return str(error)
        answer = self._ask(job, wanted, now_s)
        if not answer.certain:
            return f"it is not known whether Slurm did it: {answer.why}"
        for key, change in made.items():
            if answer.done:
                change.on(Event.CONFIRMED)
            # refused, what was asked for before and never answered may yet come
            change.unanswered = change.hold is Hold.FREE
            # back at what its user had; or refused, and nothing was changed of it before
            if change.was == change.ours[-1] if answer.done else len(change.ours) == 1:
                self._close(job, key)
        return answer.refusal

    def _ask(self, job: int, wanted: Mapping[str, int], now_s: float) -> Answer:
        return self._transport.update(
            job, {key: changed_words(key, value, now_s) for key, value in wanted.items()}
        )

    def give_back(self, job: int, record: JobRecord | None, keys: tuple[str, ...] = CHANGES) -> str:
        """Set what was changed of a job to what its user had; why that failed, or the empty string.

        `record` is the job as it waits now, None if it does not wait any more: then there is nothing to restore.
        """
        now_s = self._clock()
        wanted: dict[str, int] = {}
        why = ""
        for key in keys:
            change = self._all.get((job, key))
            if change is None or change.lapsed:
                continue
            if record is None or not is_ours(change, record):
                if record is None or not self._may_come(change, record, now_s):
                    self._close(job, key)
            elif key == NICE and record.priority <= 0:
                why = HELD
            else:
                wanted[key] = change.was
        if not wanted:
            return why
        answer = self._ask(job, wanted, now_s)
        if not answer.done:
            return answer.why
        for key in wanted:
            if record is None or not self._may_come(self._all[job, key], record, now_s):
                self._close(job, key)
        return why

    def watch(self, waiting: Callable[[int], JobRecord | None], lives: Callable[[int], bool]) -> list[str]:
        """Close the changes that are over, or not ours any more; a sentence for each that somebody has changed.

        `waiting` gives a job as it waits (of an array those tasks), `lives` says whether it waits or runs.
        """
        sentences = []
        now_s = self._clock()
        for (job, key), change in list(self._all.items()):
            record = waiting(job)
            if record is None:
                if key != NICE or not lives(job):  # a job that is requeued waits with the nice that it had
                    self._close(job, key)
            elif change.lapsed:
                if is_ours(change, record) and value_of(key, record) > now_s:  # the clock was set back
                    change.on(Event.SHOWN)
            elif not is_ours(change, record):
                restored = value_of(key, record) == change.was
                if restored and 0.0 <= now_s - change.time_s < SETTLES_S:
                    continue
                change.on(Event.GONE if restored else Event.OVERRIDE)
                self._close(job, key)
                if change.hold is Hold.USER_OVERRIDE:
                    sentences.append(f"{job}: somebody else has set its {CHANGED_NAMES[key]}; it is let be")
            elif key == BEGIN and change.ours[-1] <= now_s and change.was <= now_s:
                # its time has come by itself; the journal has it open, for a clock that is set back makes it ours again
                change.on(Event.GONE)
                change.unanswered = False
            else:
                change.on(Event.SHOWN)
        return sentences

    def _may_come(self, change: Change, record: JobRecord, now_s: float) -> bool:
        """May what was asked for last still be done, since nobody heard an answer, and another value is there?"""
        late = change.unanswered and 0.0 <= now_s - change.time_s < SETTLES_S
        return late and value_of(change.key, record) != change.ours[-1]

    def _close(self, job: int, key: str) -> None:
        """Nothing is to be restored any more."""
        del self._all[job, key]
        self._journal.close("given-back", self._clock(), str(job), key=key)


CHANGED_NAMES = {BEGIN: "begin time", THROTTLE: "throttle", NICE: "nice"}


def value_of(key: str, record: JobRecord) -> int:
    """What a waiting job has there now."""
    begin_s = 0 if math.isnan(record.begin_s) else int(record.begin_s)
    return {BEGIN: begin_s, THROTTLE: record.throttle, NICE: record.nice}[key]


def is_ours(change: Change, record: JobRecord) -> bool:
    """Does a waiting job have what we have set?"""
    assert record.phase == WAITS
    return value_of(change.key, record) in change.ours


def waiting_by_number(jobs: Iterable[JobRecord]) -> dict[int, JobRecord]:
    """Of each job and array, by Slurm's number, the record of what waits; of an array that of its first tasks."""
    found: dict[int, JobRecord] = {}
    for record in jobs:
        if record.phase == WAITS:
            number = record.array or record.raw
            known = found.get(number)
            if known is None or known.raw != number:
                found[number] = record
    return found

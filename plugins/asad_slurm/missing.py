"""Jobs that squeue has forgotten: accounting is asked when they ended, some of them in each look.

After an outage of Slurm or of asad thousands may be missed at once. When a job ended that accounting does not know
either is only as certain as looks are close: where it was seen shortly before, it ended when it was missed; else nobody
knows, and it is reported so, never that it ran until now.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from asad.errors import ClusterError
from asad_slurm.command import MOST_IDS, Ended, Transport
from asad_slurm.records import NAN, JobRecord

NEAR_S = 120.0
"""A job that was seen so shortly before it was missed ended then, unless accounting knows better."""
AGAIN = 2
"""In so many looks accounting is asked again for what it did not know, or when it did not answer."""
ASKS = 10
"""So often; it hears of ends late when it was away itself."""
MOST_LOOKS = 1000
"""For no longer than so many looks, also if it does not answer."""


@dataclass(slots=True)
class Missed:
    """A job that was there in one look, and in the next was not."""

    record: JobRecord
    seen_s: float
    missed_s: float
    """The times of these looks."""
    held: bool
    """It was seen to hold cores."""
    since: int
    asks: int = 0
    due: int = 0
    """Numbers of looks: in which it was missed, and from which on accounting is asked again."""


class Missing:
    """Jobs whose ends are still to be found out, by row."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._missed: dict[int, Missed] = {}
        self._row: dict[str, int] = {}
        self._look = 0
        self._silent_until = 0
        """The look before which accounting is not asked, since it did not answer."""

    def __len__(self) -> int:
        return len(self._missed)

    def add(self, row: int, record: JobRecord, seen_s: float, now_s: float, held: bool) -> None:
        """A job is missed in this look."""
        self._missed[row] = Missed(record, seen_s, now_s, held, self._look)
        self._row[record.text] = row

    def found(self, text: str) -> int | None:
        """The row of a job that squeue shows again; it is missed no more."""
        row = self._row.pop(text, None)
        if row is not None:
            del self._missed[row]
        return row

    def settle(self) -> list[tuple[int, Missed, Ended]]:
        """Ask for some of them: those whose ends are known now, or never will be (NaN), which are missed no more."""
        self._look += 1
        due = (row for row, missed in self._missed.items() if missed.due <= self._look)
        rows = list(islice(due, MOST_IDS)) if self._look >= self._silent_until else []
        if not rows:
            return []
        known: dict[int, Ended] | None
        try:
            known = self._transport.ended([self._missed[row].record.raw for row in rows])
        except ClusterError:
            known, self._silent_until = None, self._look + AGAIN
        settled = []
        for row in rows:
            missed = self._missed.pop(row)
            end = self._end(missed, known)
            if end is None:
                missed.due = self._look + AGAIN
                self._missed[row] = missed  # behind those that were not asked for yet
            else:
                del self._row[missed.record.text]
                settled.append((row, missed, end))
        return settled

    def _end(self, missed: Missed, known: dict[int, Ended] | None) -> Ended | None:
        """When it ended, by accounting or without it; None while that may yet be found out."""
        record = missed.record
        if known is not None:
            missed.asks += 1
            if record.raw in known:
                return known[record.raw]
        if 0 <= missed.missed_s - missed.seen_s <= NEAR_S:
            return Ended(record.raw, record.start_s, missed.missed_s, NAN)
        if missed.asks < ASKS and self._look - missed.since < MOST_LOOKS:
            return None
        return Ended(record.raw, record.start_s, NAN, NAN)

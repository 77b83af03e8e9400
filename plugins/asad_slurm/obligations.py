"""What this daemon, or one before it, has offered and changed and not taken back yet: read from the journal, compared
with what Slurm shows, returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from asad.errors import ClusterError
from asad_slurm.changes import CHANGED_NAMES, Changes, waiting_by_number
from asad_slurm.command import Transport
from asad_slurm.journal import MOST_LINES, Journal, JournalError
from asad_slurm.marks import Marks, unmarked
from asad_slurm.nodesets import expanded
from asad_slurm.offers import Offer, Offers
from asad_slurm.records import ENDED, NAN, RUNS, WAITS, JobRecord
from asad_slurm.settings import Settings
from asad_slurm.undo import BEGIN, CHANGES, for_now

SILENT = "Slurm does not answer"


class Obligations:
    """Open offers and changes, and the journal in which they are."""

    def __init__(
        self,
        transport: Transport,
        settings: Settings,
        state_dir: Path,
        clock: Callable[[], float],
        has_time: Callable[[], bool],
        report: Callable[[Iterable[str]], None],
    ) -> None:
        """`has_time` says whether Slurm may be asked for one more change now; `report` takes sentences for the log."""
        self._transport, self._settings, self._clock = transport, settings, clock
        self._has_time, self._report = has_time, report
        self.journal = Journal(Path(settings.journal_dir or state_dir))
        self.marks = Marks(Path(settings.mark_key or state_dir / "mark.key"))
        self.offers = Offers(transport, self.journal, settings.offer_patience_s, clock)
        self.changes = Changes(transport, self.journal, clock)
        self.error = "the journal of offers has not been read yet"
        """Why nothing may be offered or changed; empty once the journal was read."""
        self._guest_partitions = frozenset(settings.guest_partitions.values())
        self._owed: dict[int, tuple[str, ...]] = {}
        """By job, what was to be restored and Slurm refused for the moment: each look asks for it again."""

    def load(self) -> None:
        """Read the journal, unless that is done; `error` says why it cannot be."""
        if not self.error:
            return
        try:
            self.offers.load()
            self.changes.load()
        except JournalError as error:
            self.error = str(error)
            return
        self.error = ""
        self.marks.load()
        if self.marks.trouble:
            self._report([f"offers leave no marks on jobs: {self.marks.trouble}"])

    def watch_offers(self, jobs: list[JobRecord]) -> list[str]:
        """Take back or close the offers that are over, those of a daemon whose journal is not here among them."""
        sentences = [] if self.error else self._adopt(jobs)
        if texts := self.offers.watched():
            # a job is found by Slurm's number: a task of an array goes by its array's name until it is split
            offered = {texts[job.raw]: job for job in jobs if job.raw in texts and job.tasks == 1}
            running = (job.text for job in jobs if job.phase == RUNS)
            sentences += self.offers.watch(offered, running, self._clock(), self._has_time)
        self._report(sentences)
        return sentences

    def _adopt(self, jobs: list[JobRecord]) -> list[str]:
        """Jobs that wait where only guests do, and nobody here has sent there: the next head node finds them so."""
        sentences = []
        for record in jobs:
            if record.phase != WAITS or record.partition not in self._guest_partitions or record.tasks != 1:
                continue
            if self.offers.knows(record.text):
                continue
            offer, lost = self._adopted(record)
            why = self.offers.adopt(offer)
            sentences.append(
                f"{record.text}: it waits in {record.partition}, and no offer of this daemon is why"
                + (f", but it cannot be taken back: {why}" if why else lost)
            )
        return sentences

    def _adopted(self, record: JobRecord) -> tuple[Offer, str]:
        """The offer that must have sent a waiting job into a guest partition, and what is not known of it, in words."""
        partition = record.partition
        sources = [source for source, guest in self._settings.guest_partitions.items() if guest == partition]
        home = self.marks.home(record)
        lost = ""
        if home is None and record.required_nodes:
            lost = "; which nodes its user wants is not known, and it waits for any"
        if home is None and len(sources) > 1:
            lost += f"; where it waited is not known ({' or '.join(sources)})"
        source, required, number = home or (sources[0], "", "")
        offer = Offer(
            job=record.text,
            raw=record.raw,
            partition=source,
            required_nodes=required,
            guest_partition=partition,
            nodes=expanded(record.required_nodes),
            host="",
            time_s=self._clock(),
            estimate_s=NAN,
            share=NAN,
            capped=False,
            num_nodes=number,
            restarts=record.restarts,
            admin_comment=None if home is None else unmarked(record.admin_comment),
        )
        return offer, lost

    def watch_changes(self, jobs: list[JobRecord]) -> None:
        """Close the changes that are over, and show `asad-undo` that somebody stands behind the others."""
        if self.journal.lines > MOST_LINES:
            with contextlib.suppress(JournalError):
                self.offers.compact()
        watched = self.changes.jobs
        if not watched or self.error:
            return
        self.journal.beat()
        of_them = [record for record in jobs if (record.array or record.raw) in watched]
        waiting = waiting_by_number(of_them)
        for job, keys in list(self._owed.items()):
            if not for_now(self.changes.give_back(job, waiting.get(job), keys)):
                del self._owed[job]
        lives = {record.array or record.raw for record in of_them if record.phase != ENDED}
        self._report(self.changes.watch(waiting.get, lives.__contains__))

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Restore throttle, nice and (with `begin`) begin time of every job that waits; one sentence for each.

        What cannot be restored now stays in the journal.
        """
        self.load()
        keys = tuple(key for key in CHANGES if begin or key != BEGIN)
        changed: dict[int, list[str]] = {}
        for job, key in self.changes.open:
            if key in keys:
                changed.setdefault(job, []).append(key)
        if not changed:
            return []
        try:
            waiting = waiting_by_number(self._transport.look().jobs)
        except ClusterError as error:
            return self.stays(error, keys)
        sentences = []
        self._transport.answers = True
        for job, of_job in changed.items():
            names, record = ", ".join(CHANGED_NAMES[key] for key in of_job), waiting.get(job)
            failure = self.changes.give_back(job, record, keys) if self._transport.answers else SILENT
            if for_now(failure):
                self._owed[job] = keys
            if failure:
                sentences.append(f"{job}: its {names} could not be restored: {failure}")
            elif record is not None:
                sentences.append(f"{job}: it has its own {names} again")
        return sentences

    def stays(self, why: object, keys: tuple[str, ...] = CHANGES) -> list[str]:
        """The sentence about what could not be restored now, if there is anything."""
        jobs = {job for job, key in self.changes.open if key in keys}
        return [f"what was changed of {len(jobs)} jobs stays so: {why}"] if jobs else []

    def decided_anew(self, job: int) -> None:
        """What is decided of a job now is the last word: nothing that was to be restored is asked for again."""
        self._owed.pop(job, None)

"""The port `Cluster` over a real Slurm."""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from asad.cluster.bounded_lists import Sentences
from asad.decisions import (
    EVICTIONS,
    Admit,
    CoAllocate,
    Decision,
    Decline,
    Defer,
    Evict,
    ExtendLimit,
    Outcome,
    SetMemory,
    SetQuota,
    SetShare,
    SetThrottle,
    Start,
    Withdraw,
)
from asad.errors import ClusterError
from asad.model import Finished, Snapshot
from asad.port import NodeLink
from asad_slurm.admission import Admission
from asad_slurm.assembly import Assembly
from asad_slurm.changes import CHANGED_NAMES, Changes, waiting_by_number
from asad_slurm.command import Transport
from asad_slurm.jobs import JobTable
from asad_slurm.journal import MOST_LINES, Journal, JournalError
from asad_slurm.lending import Lending
from asad_slurm.limits import Limits
from asad_slurm.marks import Marks
from asad_slurm.nodes import Nodes
from asad_slurm.nodesets import expand
from asad_slurm.offers import Offers
from asad_slurm.pyslurm_transport import choose_transport
from asad_slurm.records import ENDED, RUNS, WAITS, JobRecord
from asad_slurm.settings import Settings
from asad_slurm.undo import BEGIN, CHANGES, for_now

LATER = "not begun: the time that one cycle has for changes is used up"
"""Why a decision was not done that the next cycle may decide again."""


class SlurmCluster:
    """Jobs and nodes of a Slurm, lending by way of guest partitions, quotas by way of the node actors.

    Not thread-safe: one thread calls it. Arrays of a snapshot are views, true until the next one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        nodes: NodeLink,
        state_dir: Path,
        clock: Callable[[], float],
        transport: Transport | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        """`monotonic` tells how much time has passed, `clock` (which it is by default) when something was."""
        self._link, self._clock = nodes, clock
        self._monotonic = monotonic or clock
        self.acting_s = math.inf
        """So long may changes take from one look to the next (s); whoever runs the cycles sets it."""
        self._act_until = math.inf
        self.transport = transport or choose_transport(settings)
        self._journal = Journal(Path(settings.journal_dir or state_dir))
        self._marks = Marks(Path(settings.mark_key or state_dir / "mark.key"))
        self._guest_partitions = frozenset(settings.guest_partitions.values())
        self._journal_error = "the journal of offers has not been read yet"
        self._offers = Offers(self.transport, self._journal, settings.offer_patience_s, clock)
        self._changes = Changes(self.transport, self._journal, clock)
        self.said = Sentences()
        """Offers that were taken back, questions not answered."""
        self._admission = Admission(self.transport, self._changes, settings, clock, self.said.add)
        self._limits = Limits()
        self._nodes = Nodes(settings)
        self._jobs = JobTable(settings, self.transport, self._limits)
        self._lending = Lending(
            self.transport, self._offers, nodes, settings, clock, self._nodes, self._jobs, self._marks
        )
        self._assembly = Assembly(
            settings,
            self._nodes,
            self._jobs,
            self._offers,
            self._changes,
            self._lending,
            nodes,
            self._monotonic,
        )
        self.applications: Sequence[str] = self._jobs.applications
        """Names of the codes in `Jobs.application`: user/name/size."""
        self.ledger: list[dict[str, Any]] = self._jobs.ledger
        """Of every guest and host that has ended: what was lent, and by how much its limit was extended."""
        self._snapshot: Snapshot | None = None
        self._limits_recalled = False
        self._left_s = math.inf
        """How much of `acting_s` the look has left over."""
        self._owed: dict[int, tuple[str, ...]] = {}
        """By job, what was to be given back and Slurm refused for the moment: each look asks for it again."""

    # ------------------------------------------------------------------------------------------------------ lifecycle

    def sentence(self) -> str:
        """One line about the way to Slurm and what it shows."""
        return (
            f"{self.transport.sentence()}: {len(self._nodes.records)} nodes, "
            f"{self._nodes.machine.total_cores} cores, {len(self._jobs.rows.of)} jobs"
        )

    def recover(self) -> list[str]:
        """At start: take back what an earlier daemon has offered and nobody has taken; one sentence each.

        Offers that cannot be taken back now (Slurm does not answer) are taken back by a later snapshot. What admission
        has changed stays: it is the promise that this daemon keeps, or gives back by `give_back`.
        """
        self._load_offers()
        self._act_until = self._monotonic() + self.acting_s
        if self._journal_error:
            return [f"no offers will be made: {self._journal_error}"]
        try:
            jobs = self.transport.look().jobs
        except ClusterError as error:
            count = len(self._offers.open)
            return [f"{count} offers stay open until Slurm answers: {error}"] if count else []
        return self._watch_offers(jobs)

    def release(self) -> list[str]:
        """Take back all offers that have not been taken, give back what admission changed of jobs that wait, and lift
        every quota; one sentence each."""
        self._load_offers()
        self._lending.clear()
        self._link.grant({})
        self.transport.answers = True
        self._act_until = math.inf  # nothing comes after it
        said: list[str] = []
        if self._journal_error:
            said.append(f"what a daemon before this one has offered is not known: {self._journal_error}")
        waits = [job for job, offer in self._offers.open.items() if not offer.started]
        if waits:
            try:  # a job may have started since the last look, and what is asked of one that waits may shrink it
                said += self._watch_offers(self.transport.look().jobs)
            except ClusterError as error:
                return said + [f"{job}: its offer stays open: {error}" for job in waits] + self._stays(error)
        for job, offer in list(self._offers.open.items()):
            if offer.started:
                continue
            failure = self._offers.withdraw(job) if self.transport.answers else "Slurm does not answer"
            if failure:
                said.append(f"{job}: its offer stays open: {failure}")
            else:
                self._lending.forget_offer(self._jobs.rows.of.get(job, -1), self._snapshot)
                said.append(f"{job}: its offer is taken back; it waits in {offer.partition} again")
        if not self.transport.answers:
            return said + self._stays("Slurm does not answer")
        return said + self.give_back()

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Give every job that waits its own throttle, nice and (with `begin`) begin time back; one sentence for each.

        For a daemon that admits no more. What cannot be given back now stays in the journal.
        """
        self._load_offers()
        keys = tuple(key for key in CHANGES if begin or key != BEGIN)
        if not any(key in keys for _, key in self._changes.open):
            return []
        try:
            jobs = self.transport.look().jobs
        except ClusterError as error:
            return self._stays(error, keys)
        waiting = waiting_by_number(jobs)
        said = []
        self.transport.answers = True
        for job in dict.fromkeys(job for job, key in self._changes.open if key in keys):
            changed = [key for at, key in self._changes.open if at == job and key in keys]
            names = ", ".join(CHANGED_NAMES[key] for key in changed)
            waits = job in waiting
            failure = (
                self._changes.give_back(job, waiting.get(job), keys)
                if self.transport.answers
                else "Slurm does not answer"
            )
            if for_now(failure):
                self._owed[job] = keys
            if failure:
                said.append(f"{job}: its {names} could not be given back: {failure}")
            elif waits:
                said.append(f"{job}: it has its own {names} again")
        return said

    def _stays(self, why: object, keys: tuple[str, ...] = CHANGES) -> list[str]:
        """The sentence about what could not be given back now, if there is anything."""
        jobs = {job for job, key in self._changes.open if key in keys}
        return [f"what was changed of {len(jobs)} jobs stays so: {why}"] if jobs else []

    def close(self) -> None:
        """Let go of the transport. Offers stay as they are: `release` takes them back."""
        self.transport.close()

    # ----------------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The cluster as Slurm and the node actors show it now; hands over the leases that were decided.

        Raises ClusterError when Slurm does not answer: then nothing is renewed, and quotas run out by themselves.
        """
        with uncollected():
            look = self.transport.look()
            now_s = self._clock()
            self._load_offers()
            if self._nodes.see(look.nodes):
                self._jobs.places.clear()
            failure = self._limits.ask(self.transport, now_s)
            if failure is not None:
                self.said.add([failure] if failure else [])
                self._jobs.bound()
            self._act_until = self._monotonic() + self.acting_s
            self._watch_offers(look.jobs)
            left_s = self._act_until - self._monotonic()
            self._jobs.see(look.jobs, now_s)
            self._recall_limits()
        snapshot = self._assembly.snapshot(now_s)
        self._watch_changes(look.jobs)
        self._link.grant(self._lending.leases(snapshot))
        self._snapshot, self._left_s = snapshot, left_s
        return snapshot

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """Do what was decided on the last snapshot. A decision that came too late is answered, never raised.

        What gives back comes first, then limits, then what is held back, and offers last; outcomes are in the order of
        the decisions. Once `acting_s` is over, nothing more is asked of Slurm.
        """
        outcomes = [Outcome(decision, False, LATER) for decision in decisions]
        self.transport.answers = True
        self._act_until = self._monotonic() + self._left_s
        for index in in_turn(decisions):
            why = self._apply(decisions[index])
            outcomes[index] = Outcome(decisions[index], not why, why, transient=why == LATER or for_now(why))
        if self._snapshot is not None and any(outcome.done for outcome in outcomes):
            self._link.grant(self._lending.leases(self._snapshot))
        return outcomes

    def finished(self, since_s: float) -> Finished:
        """The jobs that have ended and were not told yet, whatever `since_s`: Slurm may be late to say that one ended.

        Only jobs that ran are told. Their rows stay as they are until one more snapshot has passed.
        """
        return self._jobs.finished()

    # ---------------------------------------------------------------------------------------------- offers and changes

    def _load_offers(self) -> None:
        if not self._journal_error:
            return
        try:
            self._offers.load(expand)
            self._changes.load()
        except JournalError as error:
            self._journal_error = str(error)
        else:
            self._journal_error = ""
            self._marks.load()
            if self._marks.trouble:
                self.said.add([f"offers leave no marks on jobs: {self._marks.trouble}"])

    def _recall_limits(self) -> None:
        """Once after the journal was read: guests whose limits an earlier daemon may have extended."""
        if self._limits_recalled or self._journal_error:
            return
        self._limits_recalled = True
        for job, offer in self._offers.open.items():
            row = self._jobs.rows.of.get(job)
            if offer.started and row is not None and self._jobs.rows.record(row).phase == RUNS:
                self._jobs.recall_limit(row, offer.limit_s)

    def _watch_offers(self, jobs: list[JobRecord]) -> list[str]:
        """Take back or close the offers that are over, those of a daemon whose journal is not here among them."""
        adopted = [] if self._journal_error else self._adopt(jobs)
        texts = self._offers.watched()
        if not texts:
            return adopted
        # a job is found by Slurm's number: a task of an array goes by its array's name until it is split
        offered = {texts[job.raw]: job for job in jobs if job.raw in texts and job.tasks == 1}
        running = (job.text for job in jobs if job.phase == RUNS)
        said = self._offers.watch(offered, running, self._clock(), self._has_time)
        self.said.add(said)
        return adopted + said

    def _adopt(self, jobs: list[JobRecord]) -> list[str]:
        """Jobs that wait where only guests do, and nobody here has sent there: the next head node finds them so."""
        said = []
        for record in jobs:
            if record.phase != WAITS or record.partition not in self._guest_partitions or record.tasks != 1:
                continue
            if self._offers.knows(record.text):
                continue
            offer, lost = self._lending.adopted(record)
            why = self._offers.adopt(offer)
            said.append(
                f"{record.text}: it waits in {record.partition}, and no offer of this daemon is why"
                + (f", but it cannot be taken back: {why}" if why else lost)
            )
        self.said.add(said)
        return said

    def _watch_changes(self, jobs: list[JobRecord]) -> None:
        """Close the changes that are over, and tell `asad-undo` that somebody stands behind the others."""
        if self._journal.lines > MOST_LINES:
            with contextlib.suppress(JournalError):
                self._offers.compact()
        if not (self._changes.open or self._changes.lapsed) or self._journal_error:
            return
        self._journal.beat()
        watched = {job for job, _ in self._changes.open} | self._changes.lapsed.keys()
        of_them = [record for record in jobs if (record.array or record.raw) in watched]
        waiting = waiting_by_number(of_them)
        for job, keys in list(self._owed.items()):
            if not for_now(self._changes.give_back(job, waiting.get(job), keys)):
                del self._owed[job]
        lives = {record.array or record.raw for record in of_them if record.phase != ENDED}
        self.said.add(self._changes.watch(waiting.get, lives.__contains__))

    # --------------------------------------------------------------------------------------------------------- acting

    def _apply(self, decision: Decision) -> str:
        """Do it; why not, or the empty string."""
        if self._snapshot is None:
            return "there is no snapshot yet"
        match decision:  # what does not ask Slurm, and needs no journal
            case SetShare():
                return self._lending.set_share(decision)
            case SetQuota():
                return self._lending.set_quota(decision)
            case SetMemory():
                return self._lending.set_memory(self._snapshot, decision)
        if not self.transport.answers:
            return "Slurm did not answer the change before this one"
        if not self._has_time():
            return LATER
        match decision:
            case ExtendLimit():
                return self._lending.extend(decision)
            case Withdraw():
                return self._lending.withdraw(self._snapshot, decision)
            case CoAllocate():
                return self._journal_error or self._lending.offer(self._snapshot, decision)
            case Admit() | Decline() | Defer() | Start() | SetThrottle():
                return self._journal_error or self._admit(decision)
            case Evict():
                return self._journal_error or self._evict(decision)
        return f"Slurm does not know how to {decision.kind or type(decision).__name__}"

    def _admit(self, decision: Admit | Decline | Defer | Start | SetThrottle) -> str:
        rows, row = self._jobs.rows, decision.job
        known = rows.records[row] if 0 <= row < len(rows) else None
        if known is not None and known.array:  # any of its tasks stands for the array
            row = self._jobs.arrays.waiting.get(known.array, -1)
        record = rows.at(row)
        if record is None or record.phase != WAITS:
            return "it does not wait any more"
        if record.text in self._offers.open:
            return "it has an offer to run as a guest"
        self._owed.pop(record.array or record.raw, None)  # what is decided now is the last word
        return self._admission.apply(decision, record)

    def _evict(self, decision: Evict) -> str:
        """End a running batch job as its owner chose. What is asked for is in the journal before Slurm hears of it."""
        record = self._jobs.rows.at(decision.job)
        if record is None or record.phase != RUNS:
            return "it does not run any more"
        if self._jobs.rows.extra.guest[decision.job]:
            return "it runs as a guest, and holds nothing that others could have"
        if decision.how not in EVICTIONS:
            return f"there is no way {decision.how!r:.40} to evict it"
        try:
            self._journal.write("evict", self._clock(), record.alone, how=decision.how)
        except JournalError as error:
            return str(error)
        return self.transport.evict(record.alone, decision.how).refusal

    def _has_time(self) -> bool:
        """May Slurm be asked for one more change before the next look?"""
        return self._monotonic() < self._act_until


TURN: dict[type[Decision], int] = {
    Withdraw: 1,
    Start: 1,
    ExtendLimit: 2,
    Evict: 3,
    Admit: 3,
    Decline: 3,
    SetThrottle: 3,
    Defer: 3,
    CoAllocate: 4,
}
"""The order in which decisions are carried out; first those that ask nothing of Slurm."""


def in_turn(decisions: Sequence[Decision]) -> list[int]:
    """Numbers of the decisions in the order in which they are carried out; those about one job stay in theirs."""
    turns, latest = list[int](), dict[int, int]()
    for decision in decisions:
        row = getattr(decision, "job", getattr(decision, "guest", -1))
        latest[row] = max(TURN.get(type(decision), 0), latest.get(row, 0))
        turns.append(latest[row])
    return sorted(range(len(decisions)), key=turns.__getitem__)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles: a hundred thousand records are made here, and none refers to another."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()

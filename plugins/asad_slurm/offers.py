"""Offers: a waiting job is sent into the guest partition and onto the nodes that lend, or brought back.

Whatever is changed of a user's job is in the journal first. An offer is taken back when it was not taken in time, when
the job's own turn has come, when its host has ended, and when the daemon that made it is gone; a guest that was
requeued is restored before anything else. An offer whose fate is not known (Slurm did not answer) stays open until it
is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asad.cluster.lending_rules import first_reason
from asad_slurm.command import Transport
from asad_slurm.journal import Journal, JournalError
from asad_slurm.nodesets import expand, fold
from asad_slurm.records import ANY_NODES, ENDED, RUNS, WAITS, JobRecord


@dataclass(slots=True)
class Offer:
    """A lending that was offered to a job, from then until the job has ended."""

    job: str
    """By this name Slurm's commands mean it alone (`12`, of an array `12_3`)."""
    raw: int
    """By this number its cgroups are named; of the last task of an array it is that of the whole array."""
    partition: str
    """Where it waited, and the nodes that its user asked for: what it returns to."""
    required_nodes: str
    guest_partition: str
    nodes: tuple[str, ...]
    host: str
    """Of a pair: the batch job beside which it runs. Empty for a guest that draws from pools."""
    time_s: float
    estimate_s: float
    """When Slurm would have started it; NaN if it had no idea."""
    share: float
    capped: bool
    demands: Mapping[str, float] = field(default_factory=dict)
    """Of a guest that draws from pools: by node, cores' worth of CPU that it is expected to use there, and its first
    quota. Empty for the guest of a pair, of which `share` and `capped` are of use."""
    demand: float = math.nan
    """The same as a fraction of its cores."""
    num_nodes: str = ""
    """What restores how many nodes its user wanted, where that had to be changed (`nodes_asked`); empty: nothing."""
    limit_s: float = math.nan
    """The time limit that its user asked for; NaN for none, and where an earlier version made the offer."""
    restarts: int = 0
    """How often it had been requeued."""
    started: bool = False
    stale: bool = False
    """Made by an earlier daemon, or its fate is unknown: taken back as soon as it is seen to wait."""
    admin_comment: str | None = None
    """Without the mark that the offer put there; None where it put none, or an earlier daemon did."""
    home_since_s: float = math.nan
    """Since when it has been seen where it was before the offer, as Slurm may yet do what it did not answer."""

    @property
    def pooled(self) -> bool:
        """Does the guest draw from the pools of its nodes, and not from one host?"""
        return bool(self.demands)

    @property
    def home(self) -> dict[str, str]:
        """What brings a job back to where it waited."""
        return {"Partition": self.partition, **self.own_nodes}

    @property
    def own_nodes(self) -> dict[str, str]:
        """What restores the nodes that its user asked for."""
        number = {"NumNodes": self.num_nodes} if self.num_nodes else {}
        return {"ReqNodeList": self.required_nodes, **number}

    def to_json(self) -> dict[str, Any]:
        """The journal's line."""
        line = {name: getattr(self, name) for name in SAVED} | {"what": "offer", "nodes": fold(self.nodes)}
        return line | {name: None for name in UNKNOWN if math.isnan(line[name])}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Offer:
        """The offer of a journal's line. Raises TypeError, ValueError or OverflowError if it is none."""
        # earlier versions knew of pairs alone
        given = {**dict.fromkeys((*UNKNOWN, "demands")), **line}
        saved = {name: read(given[name]) for name, read in SAVED.items() if name in given}
        if not all(str(line.get(name, "")).isprintable() for name in TEXTS):
            raise ValueError("a name holds what no name holds")
        offer = cls(**saved, stale=not saved.get("started"))
        demands = [*offer.demands.values(), offer.demand] if offer.pooled else []
        if not all(0 <= cores < math.inf for cores in demands):
            raise ValueError(f"{demands} are no demands")
        fold(offer.nodes)  # the journal will be written anew
        return offer


def _known(value: Any) -> float:
    return math.nan if value is None else float(value)


def _demands(value: Any) -> dict[str, float]:
    return {str(node): float(cores) for node, cores in dict(value or {}).items()}


TEXTS = ("partition", "required_nodes", "guest_partition", "nodes", "host", "num_nodes")
UNKNOWN = ("estimate_s", "demand", "limit_s")
"""What may be NaN, which JSON has not."""
SAVED: Mapping[str, Callable[[Any], Any]] = {
    "time_s": float,
    "job": str,
    "raw": int,
    "partition": str,
    "required_nodes": str,
    "num_nodes": str,
    "guest_partition": str,
    "nodes": lambda value: expand(str(value)),
    "host": str,
    "estimate_s": _known,
    "share": float,
    "capped": bool,
    "demands": _demands,
    "demand": _known,
    "limit_s": _known,
    "restarts": int,
    "started": bool,
}
"""Fields that are in the journal, and what reads each of them."""


class Offers:
    """All offers that are open, by job."""

    def __init__(
        self, transport: Transport, journal: Journal, patience_s: float, clock: Callable[[], float]
    ) -> None:
        self._transport, self._journal, self._patience_s, self._clock = transport, journal, patience_s, clock
        self.open: dict[str, Offer] = {}
        self._unread: dict[str, dict[str, Any]] = {}
        """Lines of the journal that make no sense to us; they stay there."""
        self._closed: dict[str, Offer] = {}
        """Over since a short time ago. Some come back: a controller that is killed forgets what it has not saved, and a
        guest that has ended may be requeued."""
        self._waits: dict[str, tuple[float, float]] = {}
        """By job whose offer was not taken: since when it gets no other, and for how long."""

    def load(self) -> None:
        """Take up what an earlier daemon left open. Raises JournalError if the journal cannot be read."""
        for job, line in self._journal.open_offers().items():
            try:
                self.open[job] = Offer.from_json(line)
            except (TypeError, ValueError, OverflowError):
                self._unread[job] = line  # asad-undo reads less of a line, and shows what it cannot take back
        self.compact()

    def compact(self) -> None:
        """Shorten the journal to what is open. Raises JournalError; the journal is then as it was."""
        self._journal.compact(self._unread | {job: offer.to_json() for job, offer in self.open.items()})

    def offer(self, offer: Offer) -> str:
        """Make an offer; why it was not made, or the empty string."""
        since_s, wait_s = self._waits.get(offer.job, (-math.inf, 0.0))
        if not passed(since_s, offer.time_s, wait_s):
            left_s = since_s + wait_s - offer.time_s
            return f"an earlier offer was not taken; it gets none for another {left_s:.0f} s"
        # before Slurm hears of it: a kill in between must not leave a job bound to nodes that nobody frees it from
        if why := self._write(offer):
            return why
        changes = {"Partition": offer.guest_partition, "ReqNodeList": fold(offer.nodes)}
        if offer.num_nodes:
            changes["NumNodes"] = f"{len(offer.nodes)}-{len(offer.nodes)}"
        answer = self._transport.update(offer.job, changes)
        if answer.done:
            self.open[offer.job] = offer
            return ""
        if answer.certain:
            self._journal.close("refused", self._clock(), offer.job)
            if not answer.transient:
                self._wait_longer(offer.job, offer.time_s, REFUSED_S)
            return f"Slurm refused: {answer.why}"
        # Slurm may do it late, when those nodes lend no more
        offer.stale = True
        self.open[offer.job] = offer
        return f"it is not known whether Slurm took it, so it is taken back: {answer.why}"

    def adopt(self, offer: Offer) -> str:
        """Take up an offer of a daemon whose journal is not here, to take it back; why not, or the empty string."""
        why = self._write(offer)
        if not why:
            offer.stale = True
            self.open[offer.job] = offer
        return why

    def _write(self, offer: Offer) -> str:
        """Into the journal with it; why that failed, or the empty string."""
        try:
            self._journal.write(**offer.to_json())
        except JournalError as error:
            return str(error)
        return ""

    def untaken(self) -> list[str]:
        """The jobs that have not started on what they were offered."""
        return [job for job, offer in self.open.items() if not offer.started]

    def knows(self, job: str) -> bool:
        """Is an offer to this job open, or in the journal with more than we can read?"""
        return job in self.open or job in self._closed or job in self._unread

    def withdraw(self, job: str, what: str = "withdrawn") -> str:
        """Take back the offer to a waiting job; why that failed, or the empty string.

        A job that did not take its offer in time waits for the next one.
        """
        offer = self.open.get(job)
        if offer is None:
            return "nothing is offered to it"
        # at once, so that the mark of another head node that offers it anew is never taken for ours
        unmarked = {} if offer.admin_comment is None else {"AdminComment": offer.admin_comment}
        answer = self._transport.update(offer.job, {**offer.home, **unmarked})
        if unmarked and answer.certain and not answer.done:
            # a mark that stays there means nothing to anybody
            answer = self._transport.update(offer.job, offer.home)
        if not answer.done:
            offer.stale = True  # the next look takes it back, whoever wanted that now
            return answer.why
        now_s = self._close(job, what)
        if not offer.started and not offer.stale and passed(offer.time_s, now_s, self._patience_s):
            self._wait_longer(job, now_s, self._patience_s)
        return ""

    def watch(
        self,
        jobs: Mapping[str, JobRecord],
        hosts: Iterable[str],
        now_s: float,
        has_time: Callable[[], bool] = lambda: True,
    ) -> list[str]:
        """Compare the open offers with what Slurm shows; one sentence for each that was taken back or closed.

        `jobs` has the jobs of the open offers as Slurm shows them now, without those it has forgotten; `hosts` are the
        batch jobs that run. What there is no time for stays open for the next look.
        """
        sentences = []
        self._reopen(jobs, now_s)
        running = frozenset(hosts)
        # requeued guests first: they wait for nodes that they never asked for
        for job, offer in sorted(self.open.items(), key=lambda item: not item[1].started):
            record = jobs.get(job)
            why = self._over(offer, record, running, now_s)
            if why is None:
                continue
            waits = record is not None and record.phase == WAITS
            if waits and not has_time():
                continue
            sentences.append(f"{job}: {why}{self._end(offer, record if waits else None)}")
        # a bound alone: who is forgotten may get an offer sooner, which does no harm
        if len(self._waits) > 100_000:
            self._waits.clear()
        return sentences

    def _end(self, offer: Offer, record: JobRecord | None) -> str:
        """An offer is over: undo what it changed of its job, if that waits (`record`); how that went."""
        job, how = offer.job, ""
        if record is not None and record.partition == offer.guest_partition:
            failure = self.withdraw(job, "restored" if offer.started else "withdrawn")
            offer.stale = bool(failure)
            if failure:
                return f", but it could not be brought back: {failure}"
            return f"; it waits in {offer.partition} again"
        if record is not None and is_pinned(offer, record):
            # whoever moved it need not have known of our node list: nobody else would ever take it off
            answer = self._transport.update(job, offer.own_nodes)
            if not answer.done:
                return f", but it is still bound to the nodes of its offer: {answer.why}"
            how = "; it is bound to the nodes of its offer no more"
        self._close(job, "closed")
        return how

    def _close(self, job: str, what: str) -> float:
        """An offer is over; when."""
        offer = self.open.pop(job)
        now_s = offer.home_since_s = self._clock()
        self._journal.close(what, now_s, job)
        self._closed[job] = offer
        return now_s

    def watched(self) -> dict[int, str]:
        """By Slurm's number, the jobs to whom something is offered, or was a short time ago."""
        return {offer.raw: job for offers in (self._closed, self.open) for job, offer in offers.items()}

    def _reopen(self, jobs: Mapping[str, JobRecord], now_s: float) -> None:
        """Look for jobs that wait in the guest partition again although their offers are over."""
        for job, offer in list(self._closed.items()):
            record = jobs.get(job)
            if job in self.open or passed(offer.home_since_s, now_s, CLOSED_S):
                del self._closed[job]
                continue
            back = record is not None and record.phase == WAITS and record.partition == offer.guest_partition
            if back and not self._write(offer):  # where it cannot be written, it is tried again
                offer.stale, offer.home_since_s = True, math.nan
                self.open[job] = self._closed.pop(job)

    def _over(
        self, offer: Offer, record: JobRecord | None, running: frozenset[str], now_s: float
    ) -> str | None:
        """Why an offer is over, None while it is not."""
        if record is None or record.phase == ENDED:
            return "it has ended"
        if record.partition != offer.guest_partition:
            if record.phase == WAITS:
                if math.isnan(offer.home_since_s):
                    offer.home_since_s = now_s
                sure = offer.started or not offer.stale or passed(offer.home_since_s, now_s, self._patience_s)
                return "somebody else has moved it back" if sure else None
            return "it had started by itself"
        if record.phase == RUNS and not offer.started:
            offer.started, offer.stale, offer.restarts = True, False, record.restarts
            self._journal.close("started", self._clock(), offer.job)
        if record.phase != WAITS:
            return None
        late = passed(offer.time_s, now_s, self._patience_s)
        why = first_reason(
            ("it was requeued", offer.started),
            ("an offer to it was left over", offer.stale),
            (f"it has not taken its offer within {self._patience_s:g} s", late),
            ("its host has ended", not offer.pooled and offer.host not in running),
            ("its own turn has come", now_s >= offer.estimate_s),
            ("somebody else has changed its node list", not is_bound(offer, record)),
        )
        return why or None

    def _wait_longer(self, job: str, now_s: float, first_s: float) -> None:
        """After an offer that came to nothing a job gets none for twice `first_s`, and twice as long each time."""
        _, last_s = self._waits.get(job, (0.0, first_s))
        self._waits[job] = (now_s, min(2.0 * last_s, 3600.0))


def nodes_asked(record: JobRecord, nodes: int) -> str | None:
    """What restores how many nodes a waiting job wants once it was bound to so many, as scontrol takes it.

    The empty string where nothing need be changed: it may have no more, and the nodes that it requires it gets in any
    case. None where it could not be restored: of a job of several nodes Slurm shows only how many it would take, not
    the fewest that its user would.
    """
    if record.most_nodes == nodes:
        return ""
    return f"1-{record.most_nodes or ANY_NODES}" if record.nodes <= 1 else None


def is_bound(offer: Offer, record: JobRecord) -> bool:
    """Does a job have the node list of its offer?"""
    try:
        return set(expand(record.required_nodes)) == set(offer.nodes)
    except ValueError:
        return False


def is_pinned(offer: Offer, record: JobRecord) -> bool:
    """Does a job have the node list of its offer, which is not its user's?"""
    return is_bound(offer, record) and record.required_nodes != offer.required_nodes


CLOSED_S = 600.0
"""Slurm saves what was changed within seconds, is back some minutes after it was killed, and shows jobs that have ended
for `MinJobAge`, five minutes by default: as long they may be requeued."""
REFUSED_S = 5.0
"""Slurm may refuse because a node or Slurm itself is just coming back: another offer is tried soon."""


def passed(since_s: float, now_s: float, length_s: float) -> bool:
    """Are `length_s` over since then? By a clock that was set back to before then it is not known, and they are."""
    return not 0.0 <= now_s - since_s < length_s

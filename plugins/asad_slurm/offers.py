"""Offers: a waiting job is sent into the guest partition and onto the nodes that lend, or brought back.

Whatever is changed of a user's job is in the journal first. An offer is taken back when it was not taken in time, when
the job's own turn has come, when its host has ended, and when the daemon that made it is gone; a guest that was
requeued is restored before anything else. An offer whose fate is not known (Slurm did not answer) stays open until it
is.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """Where it waited, and the nodes that its user asked for: what is given back."""
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
    quota. Empty for the guest of a pair, of which `share` and `capped` tell."""
    demand: float = math.nan
    """The same as a fraction of its cores."""
    num_nodes: str = ""
    """What gives back how many nodes its user wanted, where that had to be changed (`nodes_asked`); empty: nothing."""
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
        """What gives a job its user's nodes back."""
        return {
            "ReqNodeList": self.required_nodes,
            **({"NumNodes": self.num_nodes} if self.num_nodes else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The journal's line."""
        return {
            "what": "offer",
            "time_s": self.time_s,
            "job": self.job,
            "raw": self.raw,
            "partition": self.partition,
            "required_nodes": self.required_nodes,
            "num_nodes": self.num_nodes,
            "guest_partition": self.guest_partition,
            "nodes": fold(self.nodes),
            "host": self.host,
            "estimate_s": None if math.isnan(self.estimate_s) else self.estimate_s,
            "share": self.share,
            "capped": self.capped,
            "demands": dict(self.demands),
            "demand": None if math.isnan(self.demand) else self.demand,
            "limit_s": None if math.isnan(self.limit_s) else self.limit_s,
            "restarts": self.restarts,
            "started": self.started,
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any], nodes: Callable[[str], tuple[str, ...]]) -> Offer:
        """The offer of a journal's line. Raises KeyError, TypeError, ValueError or OverflowError if it is none."""
        estimate = line.get("estimate_s")
        # earlier versions knew of pairs alone
        demands = {str(node): float(cores) for node, cores in dict(line.get("demands") or {}).items()}
        demand = math.nan if line.get("demand") is None else float(line["demand"])
        if not all(0 <= cores < math.inf for cores in demands.values()) or (
            demands and not 0 <= demand < math.inf
        ):
            raise ValueError(f"{demand} and {demands} are no demands")
        texts = ("partition", "required_nodes", "guest_partition", "nodes", "host", "num_nodes")
        if not all(str(line.get(name, "")).isprintable() for name in texts):
            raise ValueError("a name holds what no name holds")
        there = nodes(str(line["nodes"]))
        fold(there)  # the journal will be written anew
        return cls(
            job=str(line["job"]),
            raw=int(line["raw"]),
            partition=str(line["partition"]),
            required_nodes=str(line["required_nodes"]),
            guest_partition=str(line["guest_partition"]),
            nodes=there,
            host=str(line["host"]),
            time_s=float(line["time_s"]),
            estimate_s=math.nan if estimate is None else float(estimate),
            share=float(line["share"]),
            capped=bool(line["capped"]),
            demands=demands,
            demand=demand,
            num_nodes=str(line.get("num_nodes", "")),
            limit_s=math.nan if line.get("limit_s") is None else float(line["limit_s"]),
            restarts=int(line.get("restarts", 0)),
            started=bool(line.get("started", False)),
            stale=not line.get("started", False),
        )


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

    def load(self, nodes: Callable[[str], tuple[str, ...]]) -> None:
        """Take up what an earlier daemon left open. Raises JournalError if the journal cannot be read."""
        for job, line in self._journal.open_offers().items():
            try:
                self.open[job] = Offer.from_json(line, nodes)
            except (KeyError, TypeError, ValueError, OverflowError):
                self._unread[job] = line  # asad-undo reads less of a line, and says what it cannot take back
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
        line = offer.to_json()
        try:
            self._journal.write(line.pop("what"), line.pop("time_s"), line.pop("job"), **line)
        except JournalError as error:
            return str(error)
        changes = {"Partition": offer.guest_partition, "ReqNodeList": fold(offer.nodes)}
        if offer.num_nodes:
            changes["NumNodes"] = f"{len(offer.nodes)}-{len(offer.nodes)}"
        answer = self._transport.update(offer.job, changes)
        if answer.done:
            self.open[offer.job] = offer
            return ""
        if answer.certain:
            self._note("refused", offer.job)
            if not answer.transient:
                self._wait_longer(offer.job, offer.time_s, REFUSED_S)
            return f"Slurm refused: {answer.why}"
        offer.stale = True
        self.open[offer.job] = offer
        return f"it is not known whether Slurm took it, so it is taken back: {answer.why}"

    def adopt(self, offer: Offer) -> str:
        """Take up an offer of a daemon whose journal is not here, to take it back; why not, or the empty string."""
        line = offer.to_json()
        try:
            self._journal.write(line.pop("what"), line.pop("time_s"), line.pop("job"), **line)
        except JournalError as error:
            return str(error)
        offer.stale = True
        self.open[offer.job] = offer
        return ""

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
        answer = self._transport.update(offer.job, offer.home)
        if not answer.done:
            offer.stale = True  # the next look takes it back, whoever wanted that now
            return answer.why
        if offer.admin_comment is not None:
            self._transport.update(
                offer.job, {"AdminComment": offer.admin_comment}
            )  # what stays there says nothing
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
        said = []
        self._reopen(jobs, now_s)
        running = frozenset(hosts)
        # requeued guests first: they wait for nodes that they never asked for
        for job, offer in sorted(self.open.items(), key=lambda item: not item[1].started):
            record = jobs.get(job)
            why = self._over(offer, record, running, now_s)
            if why is None:
                continue
            if record is not None and record.phase == WAITS and not has_time():
                continue
            if record is not None and record.phase == WAITS and record.partition == offer.guest_partition:
                failure = self.withdraw(job, "restored" if offer.started else "withdrawn")
                said.append(
                    f"{job}: {why}, but it could not be brought back: {failure}"
                    if failure
                    else f"{job}: {why}; it waits in {offer.partition} again"
                )
                offer.stale = bool(failure)
                continue
            if record is not None and record.phase == WAITS and is_pinned(offer, record):
                # whoever moved it need not have known of our node list: nobody else would ever take it off
                answer = self._transport.update(job, offer.own_nodes)
                if not answer.done:
                    said.append(
                        f"{job}: {why}, but it is still bound to the nodes of its offer: {answer.why}"
                    )
                    continue
                why += "; it is bound to the nodes of its offer no more"
            self._close(job, "closed")
            said.append(f"{job}: {why}")
        if len(self._waits) > 100_000:
            self._waits.clear()
        return said

    def _close(self, job: str, what: str) -> float:
        """An offer is over; when."""
        offer = self.open.pop(job)
        self._note(what, job)
        now_s = offer.home_since_s = self._clock()
        self._closed[job] = offer
        return now_s

    def watched(self) -> dict[int, str]:
        """By Slurm's number, the jobs to whom something is offered, or was a short time ago."""
        return {offer.raw: job for offers in (self._closed, self.open) for job, offer in offers.items()}

    def _reopen(self, jobs: Mapping[str, JobRecord], now_s: float) -> None:
        """Look for jobs that wait in the guest partition again although their offers are over."""
        for job, offer in list(self._closed.items()):
            record = jobs.get(job)
            if job in self.open or passed(offer.home_since_s, now_s, REMEMBERED_S):
                del self._closed[job]
            elif record is not None and record.phase == WAITS and record.partition == offer.guest_partition:
                line = offer.to_json()
                with contextlib.suppress(JournalError):  # then it is tried again
                    self._journal.write(line.pop("what"), line.pop("time_s"), line.pop("job"), **line)
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
        if record.phase == RUNS:
            if not offer.started:
                offer.started, offer.stale = True, False
                offer.restarts = record.restarts
                self._note("started", offer.job)
            return None
        if record.phase != WAITS:
            return None
        if offer.started:
            return "it was requeued"
        if offer.stale:
            return "an offer to it was left over"
        if passed(offer.time_s, now_s, self._patience_s):
            return f"it has not taken its offer within {self._patience_s:g} s"
        if not offer.pooled and offer.host not in running:
            return "its host has ended"
        if now_s >= offer.estimate_s:
            return "its own turn has come"
        if not is_bound(offer, record):
            return "somebody else has changed its node list"
        return None

    def _wait_longer(self, job: str, now_s: float, first_s: float) -> None:
        """After an offer that came to nothing a job gets none for twice `first_s`, and twice as long each time."""
        _, last_s = self._waits.get(job, (0.0, first_s))
        self._waits[job] = (now_s, min(2.0 * last_s, 3600.0))

    def _note(self, what: str, job: str) -> None:
        """Write a line that only closes or describes: without it the offer is looked at again, and no harm done."""
        try:
            self._journal.write(what, self._clock(), job)
        except JournalError:
            return


def nodes_asked(record: JobRecord, nodes: int) -> str | None:
    """What gives back how many nodes a waiting job wants once it was bound to so many, as scontrol takes it.

    The empty string where nothing need be changed: it may have no more, and the nodes that it requires it gets in any
    case. None where it could not be given back: of a job of several nodes Slurm tells only how many it would take, not
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


REMEMBERED_S = 600.0
"""Slurm saves what was changed within seconds, is back some minutes after it was killed, and shows jobs that have ended
for `MinJobAge`, five minutes by default: as long they may be requeued."""
REFUSED_S = 5.0
"""Slurm may refuse because a node or Slurm itself is just coming back: another offer is tried soon."""


def passed(since_s: float, now_s: float, length_s: float) -> bool:
    """Are `length_s` over since then? By a clock that was set back to before then it is not known, and they are."""
    return not 0.0 <= now_s - since_s < length_s

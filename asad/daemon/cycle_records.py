"""What a cycle leaves: its decisions and what became of jobs go into the state store, its sentence into the log."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from asad.api.node_server import NodeServer
from asad.cycle import Cycle
from asad.daemon.clusters import ActsByItself, LiveCluster
from asad.daemon.figures import Figures
from asad.daemon.waiting import WaitHistory
from asad.decisions import Outcome
from asad.model import Json, Snapshot
from asad.replay.playback import Playback
from asad.status import user_of
from asad.store.records import JOB_FIELDS, QuotaChange
from asad.store.retention import Keep
from asad.store.writer import FORGET_S, Writer
from asad.systemd import notify

log = logging.getLogger(__name__)

MOST_CASES = 10
"""So many cases of lending are kept of a cycle; a thousand hosts draw twenty times as many each minute."""
SENTENCE_S = 1.0
"""No more than one sentence goes into the log in this time: a log that is played has many cycles a second."""
MOST_NODES = 4
"""So many nodes of a recent decision are named."""
MOST_RECENT = 200
"""So many of the last decisions can be seen on the live page; the store has them all."""
T = TypeVar("T")


class CycleRecords:
    """Counts in `figures` what cycles leave, and hands to `writer` what is kept of it."""

    def __init__(
        self,
        figures: Figures,
        writer: Writer,
        monotonic: Callable[[], float],
        applications: Callable[[], Sequence[str]] = list,
    ) -> None:
        """`applications` gives the names of the codes of the newest snapshot."""
        self.figures, self.writer, self._monotonic, self._applications = (
            figures,
            writer,
            monotonic,
            applications,
        )
        self.recent: deque[dict[str, Json]] = deque(maxlen=MOST_RECENT)
        """The decisions that fell last, as the live page shows them; `number` rises by one from each to the next."""
        self.waits = WaitHistory(writer.add_waits)
        self._decided = 0
        self._reported_at = -math.inf
        self._forgot_at = monotonic()

    def record(self, number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        """What became of the decisions of a cycle: counted, and kept where it is news."""
        news = self.figures.tally.count(outcomes)
        if news:
            jobs, nodes = snapshot.jobs, snapshot.machine.node_names
            self.writer.record(number, snapshot.time_s, news, jobs.job_id, jobs.host, nodes)
            for outcome in news[-MOST_RECENT:]:
                self._decided += 1
                self.recent.append(recent_row(self._decided, snapshot, outcome, self._applications()))

    def keep(self, cycle: Cycle, cluster: LiveCluster, nodes: NodeServer | None, now_s: float) -> None:
        """What the cycle has left: ends of jobs, cases, ledger and quota changes into the store, and what cluster and
        policies report into the log."""
        figures, snapshot, finished = self.figures, cycle.snapshot, cycle.finished
        cycle.finished = None  # a cycle that fails early must not count the same ends twice
        if snapshot is not None and finished is not None:
            ends = figures.gains.take(snapshot, finished, cycle.outcomes)
            if ends:
                self.writer.record_ends(ends)
            # what is played would be taken for what this cluster has done
            if not isinstance(cluster, Playback):
                came = figures.forecasts.look(snapshot, finished, cycle.outcomes)
                if came:
                    self.writer.add_forecasts(came)
            self.waits.look(snapshot)
        if not cycle.outcomes:
            figures.tally.nothing_decided()
        for sentence in (*_emptied(cluster.notices), *cycle.defer.reports()):
            log.info("%s", sentence)
        if snapshot is not None:
            cases = cycle.share.take_cases(snapshot, MOST_CASES)
            # in other modes nothing is lent, which costs nothing
            if cases is not None and cycle.mode == "enforce" and not cycle.paused:
                self.writer.record_cases(cases)
        if isinstance(cluster, ActsByItself):
            for job, outcome in _emptied(cluster.acted):
                self.writer.record(cycle.number, now_s, [outcome], [job], [-1])
        rows = _emptied(cluster.ledger)
        if rows:
            self.writer.add_ledger(figures.gains.enter(rows))
        if nodes is not None and nodes.audit:
            self.writer.add_quota_changes(quota_changes(nodes))

    def forget(self, time_s: float, keep: Keep, steadily: bool) -> None:
        """Once in a while, let the store drop what is older than is to be kept. `steadily`: time passes as it does
        for us, and not as in a log that is played."""
        now_s = self._monotonic()
        if now_s - self._forgot_at >= FORGET_S:
            self._forgot_at = now_s
            self.writer.forget(time_s, keep, now_s if steadily else None)

    def close(self) -> bool:
        """Write what is left, and what the run came to; False if the store did not take it in time."""
        self.waits.hand_over()
        return self.writer.close(self.figures.of_run())

    def report(self, sentence: str) -> None:
        """The sentence of a cycle, for the log and systemd."""
        now = self._monotonic()
        if now - self._reported_at >= SENTENCE_S:
            self._reported_at = now
            log.info("%s", sentence)
            notify(f"STATUS={sentence[:500]}")
        else:
            log.debug("%s", sentence)


def recent_row(
    number: int, snapshot: Snapshot, outcome: Outcome, applications: Sequence[str]
) -> dict[str, Json]:
    """A decision and what became of it, in a line: whom it is about, with his user, so that it can be shown to those
    alone who may see it."""
    decision, jobs = outcome.decision, snapshot.jobs
    rows = [getattr(decision, name) for name in (*JOB_FIELDS, "host") if hasattr(decision, name)]
    named = [row for row in rows if row >= 0]
    verdict = "done" if outcome.done else "vetoed" if outcome.veto else "refused"
    if not outcome.done and outcome.reason == "advise":
        verdict = "advised"
    return {
        "number": number,
        "time_s": snapshot.time_s,
        "kind": decision.kind,
        "jobs": [str(jobs.job_id[row]) for row in named],
        "users": [user_of(snapshot, applications, row) for row in named],
        "nodes": [snapshot.machine.node_names[node] for node in getattr(decision, "nodes", ())[:MOST_NODES]],
        "reason": decision.cause.reason,
        "verdict": verdict,
        "outcome": "" if verdict == "advised" else outcome.reason,
    }


def quota_changes(nodes: NodeServer) -> list[QuotaChange]:
    """What node actors have reported of the files they wrote, and nobody has asked for before."""
    changes = []
    while nodes.audit:
        row = nodes.audit.popleft()
        old, new = row.get("old"), row.get("new")
        changes.append(
            QuotaChange(
                str(row.get("node")),
                float(cast(float, row.get("time_s"))),
                str(row.get("job_id")),
                str(row.get("file")),
                None if old is None else str(old),
                None if new is None else str(new),
                str(row.get("why")),
            )
        )
    return changes


def _emptied(rows: list[T]) -> list[T]:
    """What is in the list, which is empty thereafter."""
    taken = rows[:]
    del rows[: len(taken)]
    return taken

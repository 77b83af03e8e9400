"""What `asactl` asks of a daemon. Called in threads of the control socket: whatever needs the cluster or a policy is an
task of the main thread, the rest is answered from what the last cycle left and from the state store. Jobs for a
cluster that has a queue through us alone are handed to it at once, however long the main thread is at something else.

Tables of everything are made once a cycle, by the main thread, when somebody asks; who asks again gets the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from asad import __version__
from asad.api.control import Peer, Request
from asad.config import Config
from asad.daemon import task_queue
from asad.daemon.clusters import HasStories, TakesJobs
from asad.daemon.page_requests import PageRequests
from asad.daemon.statement_requests import WRITTEN_S, StatementRequests
from asad.daemon.task_queue import SOON_S
from asad.daemon.waiting import now_by, now_by_reason
from asad.errors import AsadError, UsageError
from asad.model import Json, Snapshot
from asad.status import job_rows, known, node_rows
from asad.store import quota_audit
from asad.store.store import Store, Story
from asad.store.urls import shown_text

if TYPE_CHECKING:
    from asad.admit.admission_policy import Admission
    from asad.daemon.daemon import Daemon
    from asad.defer.deferral_policy import Deferral

TABLES = ("jobs", "nodes", "waits", "admission", "deferral", "page")
"""What is made once a cycle at the most, whoever asks."""
NOT_KNOWN = {
    "admission": "admission does not know it: it is gone, or states no utility and no rule has one; "
    "asactl admit status lists those that it knows",
    "deferral": "the defer stage does not know it: it is gone, not deferrable, or steered by admission; "
    "asactl defer status lists those that it knows",
}
"""By verb, what is answered about a job of which its stage says nothing."""


class Requests:
    """Of one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._statements = StatementRequests(daemon)
        self._page = PageRequests(daemon, self._table)
        self._tables: dict[str, tuple[int, Json]] = {}
        """By name, a table and the reading of the figures that it is of."""
        self._making: dict[str, threading.Lock] = {name: threading.Lock() for name in TABLES}

    def handle(self, request: Request, peer: Peer) -> Json:
        """The answer to one request. Raises AsadError."""
        daemon, ask = self._daemon, self._daemon.task_queue.ask
        match request.verb:
            case "status":
                return self._status()
            case "metrics":
                return daemon.figures.readings.text()
            case "config":
                return cast(Json, plain_config(daemon.config))
            case "explain":
                return self._explain(request.text("job"))
            case "jobs":
                return self._jobs(request)
            case "nodes":
                return self._table("nodes", self._nodes)
            case "waits":
                return self._table("waits", self._waits)
            case "admission" | "deferral":
                return self._decided(request.verb, request.text("job", ""))
            case "page":
                return self._page.answer(request, peer, self._status)
            case "progress":
                return self._progress(request.text("job"))
            case "sow-submit" | "sow-cancel" | "sow-quote" | "sow-status":
                return ask(lambda: self._statements.answer(request, peer))
            case "sow-ledger":
                return self._statements.ledger(peer)
            case "submit" | "cancel" | "tasks":  # however long the main thread compiles
                return self._of_the_cluster(request, peer)
            case "teardown":
                return ask(lambda: self._of_the_cluster(request, peer))
            case "pause" | "resume":
                return self._pause(request.verb == "pause", peer)
            case "release":
                return self._release(peer)
            case "mode":
                return ask(lambda: daemon.change_mode(request.text("mode", daemon.cycle.mode), peer))
        raise UsageError(f"the daemon does not know how to {request.verb}")

    def _pause(self, paused: bool, peer: Peer) -> Json:
        """Pause or resume now; `meanwhile` reports what the main thread is still at, None if it has seen it."""
        self._daemon.pause(paused, peer)
        meanwhile = None
        try:
            self._daemon.task_queue.ask(self._daemon.read, SOON_S)
        except AsadError:
            meanwhile = self._daemon.task_queue.doing() or None
        return {"paused": paused, "meanwhile": meanwhile}

    def _release(self, peer: Peer) -> Json:
        """Pause now, and release everything as soon as the main thread comes to it."""
        self._daemon.pause(True, peer)
        try:
            return {"paused": True, "done": cast(Json, self._daemon.task_queue.ask(self._daemon.release))}
        except AsadError as error:
            raise AsadError(
                f"it is paused, so nothing new is lent, but not all is released: {error}"
            ) from None

    # ------------------------------------------------------------------------------------------- the daemon, and a job

    def _status(self) -> dict[str, Json]:
        """The state of the daemon as of the last cycle, and what keeps it from the next."""
        daemon, cycle = self._daemon, self._daemon.cycle
        return {
            "version": __version__,
            "mode": cycle.mode,
            "paused": cycle.paused,
            "policy": cycle.share.name,
            "admit": cycle.admit.name,
            "defer": cycle.defer.name,
            "place": cycle.place.name,
            "now_s": daemon.now_s,
            "doing": daemon.task_queue.doing(),
            **daemon.figures.to_json(),
            "store": {
                "url": shown_text(daemon.config.store_url),
                "run": daemon.writer.run_id,
                "trouble": daemon.writer.trouble,
                "dropped": daemon.writer.dropped,
            },
        }

    def _explain(self, job: str) -> Json:
        """The story of a job: what the store has of it, in earlier runs of the daemon too, and how it is now."""
        daemon = self._daemon
        with contextlib.suppress(AsadError):
            daemon.writer.wait_until_written(WRITTEN_S)
        live = deferral = None
        gang = daemon.cluster.story(job) if isinstance(daemon.cluster, HasStories) else None
        if daemon.figures.cycles:
            live, deferral = daemon.task_queue.ask(lambda: self._as_it_is(job))
        with Store.open(daemon.config.store_url, create=False) as store:
            runs = store.runs_of(job)
            if not runs and live is None and deferral is None and gang is None:
                self._first_cycle_is_over()
                raise UsageError(
                    f"job {job!r:.40}: it neither runs nor waits, and lending did not touch it in any run; "
                    "asactl jobs lists those that run and wait"
                )
            run = next((run for run in runs if run.id == daemon.writer.run_id), runs[0] if runs else None)
            story = Story([], [], []) if run is None else store.story(job, run)
            quotas = [dataclasses.asdict(change) for change in quota_audit.of_job(store, job, limit=100)]
        others = [
            {"id": other.id, "policy": other.policy, "state": other.state}
            for other in runs
            if other.id not in [one.id for one in story.runs]
        ]
        return {
            "job": job,
            "live": live,
            "deferral": deferral,
            "gang": gang,
            "run": None if run is None else run.to_json(),
            "runs": [one.id for one in story.runs],
            "others": cast(Json, others),
            "decisions": [decision.to_json() for decision in story.decisions],
            "ends": [end.to_json() for end in story.ends],
            "quotas": cast(Json, quotas),
        }

    def _as_it_is(self, job: str) -> tuple[Json, Json]:
        """A job as the last cycle saw it, and what the defer stage says of it; None each, if it is not known."""
        cycle = self._daemon.cycle
        rows, seen = [], cycle.snapshot
        if seen is not None:
            rows = self._rows(job)
            guest = next((row for row in seen.guests.tolist() if str(seen.jobs.job_id[row]) == job), None)
            if guest is not None:
                rows[0]["lent_by"] = cycle.lends_to(guest)
        deferral = cycle.defer.explain(job)
        return (cast(Json, rows[0]) if rows else None), cast(Json, deferral)

    # ---------------------------------------------------------------------------------------------------- the cluster

    def _table(self, name: str, make: Callable[[], Json]) -> Json:
        """A table of `TABLES` as of the last cycle, or as of the last change by request; `make` gives it, in the main
        thread. Nobody may change what is returned."""
        if name in ("jobs", "nodes", "waits"):
            self._first_cycle_is_over()
        begin_s, making = time.monotonic(), self._making[name]
        alone = making.acquire(timeout=task_queue.ANSWER_S)  # another has it made already
        try:
            known = self._tables.get(name)
            if known is None or known[0] != self._daemon.figures.number:
                left_s = max(0.0, task_queue.ANSWER_S - (time.monotonic() - begin_s))
                known = self._daemon.task_queue.ask(lambda: (self._daemon.figures.number, make()), left_s)
                self._tables[name] = known
        finally:
            if alone:
                making.release()
        return known[1]

    def _first_cycle_is_over(self) -> None:
        """Raises AsadError that says what is waited for, if it is not."""
        if not self._daemon.figures.cycles:
            doing = self._daemon.task_queue.doing() or "about to begin its first cycle"
            raise AsadError(
                f"nothing has been seen yet: the daemon is {doing}; asactl status shows when it is over"
            )

    def _snapshot(self) -> Snapshot:
        snapshot = self._daemon.cycle.snapshot
        if snapshot is None:
            raise AsadError(
                f"nothing has been seen yet: {self._daemon.figures.sentence}; try again after a cycle"
            )
        return snapshot

    def _rows(self, only: str | None = None) -> list[dict[str, Json]]:
        return job_rows(self._snapshot(), self._daemon.cluster.applications, only)

    def _all_jobs(self) -> Json:
        return {"now_s": self._daemon.now_s, "rows": cast(Json, self._rows())}

    def _jobs(self, request: Request) -> Json:
        """Jobs by `job`, `state` (`running`: guests too, for they run) and `user`, at most `limit` of them."""
        wanted = {key: request.arguments.get(key) for key in ("job", "state", "user")}
        states = {"running": ("running", "guest")}.get(str(wanted["state"]), (wanted["state"],))
        table = cast("dict[str, Any]", self._table("jobs", self._all_jobs))
        rows = [
            row
            for row in table["rows"]
            if (wanted["job"] in (None, row["job"]))
            and (wanted["state"] is None or row["state"] in states)
            and (wanted["user"] in (None, row["user"]))
        ]
        limit = request.arguments.get("limit")
        shown = rows[:limit] if isinstance(limit, int) and limit >= 0 else rows
        return {"now_s": table["now_s"], "total": len(rows), "jobs": cast(Json, shown)}

    def _nodes(self) -> Json:
        daemon = self._daemon
        rows = node_rows(self._snapshot(), daemon.link.reports(), daemon.clock())
        return {"now_s": daemon.now_s, "nodes": cast(Json, rows)}

    def _waits(self) -> Json:
        """Why jobs wait now: by reason, and by partition, account, QOS and user."""
        daemon, snapshot = self._daemon, self._snapshot()
        reasons = now_by_reason(snapshot)
        if not reasons:
            name = daemon.config.daemon.cluster
            raise UsageError(
                f"this cluster ({name}) does not say why its jobs wait; asactl waits LOG finds it out from its "
                "accounting log"
            )
        by = now_by(snapshot, daemon.cluster.applications)
        return {
            "now_s": daemon.now_s,
            "waiting": snapshot.waiting,
            "reasons": cast(Json, reasons),
            "by": cast(Json, by),
        }

    def _progress(self, job: str) -> Json:
        """What a job states of itself, by node, and its happiness."""
        table = cast("dict[str, Any]", self._table("jobs", self._all_jobs))
        row = next((row for row in table["rows"] if row["job"] == job), None)
        if row is None:
            raise UsageError(f"job {job!r:.40} neither runs nor waits; asactl jobs lists those that do")
        reported: dict[str, Json] = {
            name: known(report.jobs[job].progress)
            for name, report in self._daemon.link.reports().items()
            if job in report.jobs
        }
        return {"job": job, "state": row["state"], "happiness": row["happiness"], "progress": reported}

    def _of_the_cluster(self, request: Request, peer: Peer) -> Json:
        """What the cluster answers; jobs run as whom the kernel says that asks."""
        cluster = self._daemon.cluster
        if not isinstance(cluster, TakesJobs):
            name = self._daemon.config.daemon.cluster
            raise UsageError(
                f"jobs of this cluster ({name}) are submitted to it itself, not through asad; use its own commands "
                "(sbatch, scancel), or set [daemon] cluster to mesos"
            )
        return cluster.request(request.verb, request.arguments, peer.user, peer.uid)

    def _decided(self, verb: str, job: str) -> Json:
        """What admission or the defer stage says of a job and has planned for it; without a job, of all."""

        def stage() -> Admission | Deferral:
            cycle = self._daemon.cycle
            return cycle.admit.admission if verb == "admission" else cycle.defer.deferral

        if not job:
            return self._table(verb, lambda: cast(Json, stage().overview()))
        reported = self._daemon.task_queue.ask(lambda: stage().explain(job))
        if reported is None:
            raise UsageError(f"job {job!r:.40}: {NOT_KNOWN[verb]}")
        return cast(Json, reported)


def plain_config(config: Config) -> dict[str, Any]:
    """Settings as plain data, without a password."""
    reported = config.to_json()
    reported["daemon"]["store"] = shown_text(config.store_url)
    return reported

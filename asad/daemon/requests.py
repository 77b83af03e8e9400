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
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from asad import __version__
from asad.admit.sow.announcements import MOST_CORES, MOST_STATEMENTS, Announcement, announcement_of
from asad.api.control import Peer, Request, may_change
from asad.config import Config
from asad.daemon import task_queue
from asad.daemon.clusters import HasStories, TakesJobs
from asad.daemon.task_queue import SOON_S
from asad.errors import AsadError, UsageError
from asad.model import Json, Snapshot
from asad.status import job_rows, known, node_rows
from asad.store import quota_audit
from asad.store import statements as stated
from asad.store.store import Store
from asad.store.urls import shown_text

if TYPE_CHECKING:
    from asad.admit.sow.statements_policy import Statements
    from asad.daemon.daemon import Daemon

TABLES = ("jobs", "nodes", "admission", "deferral")
"""What is made once a cycle at the most, whoever asks."""
WRITTEN_S = 2.0
"""So long a reader of the store waits for what was stated before to be written."""


class Requests:
    """Of one daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
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
            case "admission":
                job = request.text("job", "")
                if not job:
                    return self._table(
                        "admission", lambda: cast(Json, self._daemon.cycle.admit.admission.overview())
                    )
                return ask(lambda: self._admission_of(job))
            case "deferral":
                job = request.text("job", "")
                if not job:
                    return self._table(
                        "deferral", lambda: cast(Json, self._daemon.cycle.defer.deferral.overview())
                    )
                return ask(lambda: self._deferral_of(job))
            case "progress":
                return self._progress(request.text("job"))
            case "sow-submit" | "sow-cancel" | "sow-quote" | "sow-status":
                return ask(lambda: self._statements(request, peer))
            case "sow-ledger":
                return self._statement_ledger(peer)
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
            return {"paused": True, "done": cast(Json, self._daemon.task_queue.ask(self._daemon.give_back))}
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
        """The story of a job: what the store has of it in the newest run that touched it, and how it is now."""
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
            story = [] if run is None else [decision.to_json() for decision in store.decisions(run.id, job)]
            ends = [] if run is None else [end.to_json() for end in store.job_ends(run.id, job)]
            quotas = [dataclasses.asdict(change) for change in quota_audit.of_job(store, job, limit=100)]
        others = [
            {"id": other.id, "policy": other.policy, "state": other.state}
            for other in runs
            if other is not run
        ]
        return {
            "job": job,
            "live": live,
            "deferral": deferral,
            "gang": gang,
            "run": None if run is None else run.to_json(),
            "others": cast(Json, others),
            "decisions": cast(Json, story),
            "ends": cast(Json, ends),
            "quotas": cast(Json, quotas),
        }

    def _as_it_is(self, job: str) -> tuple[Json, Json]:
        """A job as the last cycle saw it, and what the defer stage says of it; None each, if it is not known."""
        cycle = self._daemon.cycle
        rows = self._rows(job) if cycle.snapshot is not None else []
        deferral = cycle.defer.explain(job)
        return (cast(Json, rows[0]) if rows else None), cast(Json, deferral)

    # ---------------------------------------------------------------------------------------------------- the cluster

    def _table(self, name: str, make: Callable[[], Json]) -> Json:
        """A table of `TABLES` as of the last cycle, or as of the last change by request; `make` gives it, in the main
        thread. Nobody may change what is returned."""
        if name in ("jobs", "nodes"):
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

    # ----------------------------------------------------------------------------------------- admission and deferral

    def _admission_of(self, job: str) -> Json:
        """What admission says of a job and has planned for it."""
        reported = self._daemon.cycle.admit.admission.explain(job)
        if reported is None:
            raise UsageError(
                f"job {job!r:.40}: admission does not know it: it is gone, or states no utility and no rule has one; "
                "asactl admit status lists those that it knows"
            )
        return cast(Json, reported)

    def _deferral_of(self, job: str) -> Json:
        """What the defer stage says of a job."""
        reported = self._daemon.cycle.defer.deferral.explain(job)
        if reported is None:
            raise UsageError(
                f"job {job!r:.40}: the defer stage does not know it: it is gone, not deferrable, or steered by "
                "admission; asactl defer status lists those that it knows"
            )
        return cast(Json, reported)

    # ---------------------------------------------------------------------------------------------- statements of work

    def _statements(self, request: Request, peer: Peer) -> Json:
        """Statements of work: taken, taken back, quoted and described; his who asks, as the kernel says."""
        daemon = self._daemon
        admit = daemon.cycle.admit.statements
        whose = None if may_change(peer, daemon.control.operators) else peer.user
        match request.verb:
            case "sow-status":
                return cast(Json, admit.status(whose))
            case "sow-quote":
                return self._quote(admit, request)
            case "sow-cancel":
                return self._withdraw(admit, request, whose)
        return self._submit(admit, request, peer)

    def _quote(self, admit: Statements, request: Request) -> Json:
        cores = request.arguments.get("cores")
        if not isinstance(cores, int) or isinstance(cores, bool) or not abs(cores) <= MOST_CORES:
            raise UsageError("cores is missing or no whole number; write --cores 8")
        return cast(Json, admit.quote(cores, self._daemon.now_s))

    def _withdraw(self, admit: Statements, request: Request, whose: str | None) -> Json:
        number = request.arguments.get("statement")
        if not isinstance(number, int) or isinstance(number, bool):
            raise UsageError("the number of the statement is missing; asactl sow status lists them")
        reported = admit.withdraw(number, whose, self._daemon.now_s)
        return {"statement": cast(Json, reported), "kept": self._daemon.policy_state.kept_now()}

    def _submit(self, admit: Statements, request: Request, peer: Peer) -> Json:
        daemon, cycle, now_s = self._daemon, self._daemon.cycle, self._daemon.now_s
        if cycle.mode == "observe" or cycle.paused:
            why = "it is paused (asactl resume)" if cycle.paused else "its mode is observe"
            raise UsageError(f"nothing new is promised while the daemon only looks on: {why}")
        owner = peer.user
        if peer.uid == 0 and "user" in request.arguments:
            owner = request.text("user")
        answers = admit.submit(_announced(request, now_s), owner, now_s)
        return {
            "statements": cast(Json, answers),
            "acts": cycle.mode == "enforce",
            "kept": daemon.policy_state.kept_now(),
            "now_s": now_s,
            "round_s": admit.options.round_s,
        }

    def _statement_ledger(self, peer: Peer) -> Json:
        """The asker's own lines and balance; of an operator all. Read from the store."""
        daemon = self._daemon
        with contextlib.suppress(AsadError):
            daemon.writer.wait_until_written(WRITTEN_S)
        account = None if may_change(peer, daemon.control.operators) else peer.user
        with Store.open(daemon.config.store_url, create=False) as store:
            return cast(Json, stated.ledger(store, daemon.policy_state.scope("admit"), account))


def _announced(request: Request, now_s: float) -> list[Announcement]:
    """The statements of a request, those that come again as often as it says. Raises UsageError."""
    given, times = request.arguments.get("statements"), request.arguments.get("times", 1)
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise UsageError("there is no statement; asactl sow submit FILE sends those of a file")
    if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MOST_STATEMENTS:
        raise UsageError(f"times: write a whole number from 1 to {MOST_STATEMENTS}")
    found: list[Announcement] = []
    for number, plain in enumerate(given, 1):
        try:
            one = announcement_of(cast("Mapping[str, Any]", plain), now_s)
        except UsageError as error:
            raise UsageError(f"statement {number}: {error}") from None
        if times > 1 and not one.every_s:
            raise UsageError(
                f"statement {number}: every: it comes once, and {times} are asked for; write every"
            )
        found += [one.later(again) for again in range(times)]
    if len(found) > MOST_STATEMENTS:
        raise UsageError(f"{len(found)} statements; send at most {MOST_STATEMENTS} at one time")
    return found


def plain_config(config: Config) -> dict[str, Any]:
    """Settings as plain data, without a password."""
    reported = config.to_json()
    reported["daemon"]["store"] = shown_text(config.store_url)
    return reported

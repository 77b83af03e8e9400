"""Jobs on their way out of Slurm's queue, on Mesos, and on their way back: what is done about each at every look.

Nothing is lost and nothing runs twice: every step is in the journal before it is taken, each can be taken again, and
the gang carries its origin, by which a successor finds it. slurmctld may forget the last thing that it was asked for
when it is killed: a hold that is gone is set again, and a job that has run and waits once more is ended again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from asad.decisions import Cause, Outcome, Start, Withdraw
from asad.errors import ClusterError, UsageError
from asad.model import Json
from asad_mesos.gangs import began, hosts_of, outcome
from asad_mesos.in_hand import Event, Handover, InHand, Stage
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.queue_comments import QueueComments, with_ours
from asad_mesos.queue_head import QueueHead, reported
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.slurm_jobs import PENDING, RUNS, translated
from asad_mesos.slurm_side import Commands, Short, Unknown

KEEP_S = 7 * 86_400.0
"""For so long it is known that a job has run: slurmctld could show it once more as one that waits."""
HELD_S = 86_400.0
GONE_STATES = ("completed", "failed", "cancelled", "timeout")
POLICY = "slurm+mesos"


class SlurmQueue:
    """What of a partition is on its way to Mesos, there, or on its way back. Each `step` brings all of it further.

    Not thread-safe. Slurm not answering is reported once a step, and nothing changes by it.
    """

    def __init__(
        self,
        settings: QueueSettings,
        slurm: Commands,
        mesos: MesosCluster,
        folder: Path,
        clock: Callable[[], float],
    ) -> None:
        """Raises ClusterError if the journal in `folder` cannot be read."""
        self._settings, self._slurm, self._mesos, self._clock = settings, slurm, mesos, clock
        self.in_hand = InHand(folder, clock)
        self.messages: list[str] = []
        self.acts: list[tuple[str, Outcome]] = []
        """What was done, for the store: name of the job and outcome."""
        self.may = False
        """May jobs be taken?"""
        self._comments = QueueComments(slurm, self.in_hand)
        self._head = QueueHead(settings, slurm, self.in_hand, self._comments, clock, self.messages)

    # --------------------------------------------------------------------------------------------------------- step

    def recover(self) -> list[str]:
        """At start, before any offer comes: cancel the gangs of jobs that `asad-undo` has returned to Slurm, or they
        would run twice; a sentence each.
        """
        back = {entry.origin: entry for entry in self.in_hand.now.values() if entry.state == Stage.RETURNING}
        sentences = []
        for row in self._mesos.status():
            entry = back.get(str(row["spec"].get("origin", "")))
            if entry is not None and row["state"] not in GONE_STATES:
                self._mesos.cancel(str(row["job"]), "returned to Slurm by asad-undo")
                sentences.append(
                    f"slurm {entry.job}: asad-undo has returned it to Slurm; {row['job']} is cancelled"
                )
        return sentences

    def step(self) -> None:
        """Look at the partition and at Mesos, and bring everything further."""
        try:
            seen = self._slurm.look()
        except ClusterError as error:
            self.messages.append(f"the queue of Slurm is not looked at: {error}")
            return
        rows = {str(row["spec"].get("origin", "")): row for row in self._mesos.status()}
        known, now_s = self.in_hand, self._clock()
        self._advance(known.now.values(), seen, rows)
        for entry in list(known.over.values()):
            if now_s - entry.since_s > KEEP_S and entry.job not in seen:
                del known.over[entry.job]
        with reported(self.messages, "slurm: jobs that have run on Mesos wait in Slurm still"):
            self._end_again(seen)
        if self.may:
            waiting = sum(entry.state == Stage.HOLDING or self._waits(entry) for entry in known.now.values())
            with reported(self.messages, "the queue of Slurm is not read"):
                self._head.take(seen, waiting)
            # a job that Slurm has started just before it was held must be seen to run
            if held := [entry for entry in known.now.values() if entry.state == Stage.HOLDING]:
                with suppress(ClusterError):
                    self._advance(held, self._slurm.look(), rows)
        with reported(self.messages, "slurm"):
            known.compact()

    def return_waiting(self) -> list[str]:
        """Every job that waits for offers goes back to Slurm; a sentence for each. Those that run go on."""
        before, may = len(self.messages), self.may
        self.may = False
        try:
            self.step()
            self.step()  # what was cancelled in the first is gone in the second
        finally:
            self.may = may
        sentences = self.messages[before:]
        del self.messages[before:]
        return sentences

    def _end_again(self, seen: Mapping[int, Short]) -> None:
        """A job that has run and waits again (slurmctld forgot its end) is ended again; a requeued one is not."""
        over = self.in_hand.over
        back = {job for job in over if job in seen and seen[job].state == PENDING}
        details = self._slurm.details(back) if back else {}
        for job in sorted(back & details.keys()):
            with reported(self.messages, f"slurm {job}: it has run on Mesos, and waits in Slurm still"):
                if (details[job].submit_s, details[job].restarts) == (over[job].submit_s, over[job].restarts):
                    self._slurm.end(over[job].name)
                    self.messages.append(f"slurm {job}: it has run on Mesos, and is ended in Slurm once more")
                else:
                    self.in_hand.on(Event.DROPPED, over[job])

    # ------------------------------------------------------------------------------------------------- one further

    def _advance(
        self, entries: Iterable[Handover], seen: Mapping[int, Short], rows: Mapping[str, dict[str, Any]]
    ) -> None:
        """Bring each a step further. What fails is tried again in the next step."""
        advance = {
            Stage.HOLDING: self._submit,
            Stage.SERVED: self._serve,
            Stage.RETURNING: self._return,
            Stage.ENDING: self._end,
        }
        for entry in list(entries):
            with reported(self.messages, f"slurm {entry.job}"):
                try:
                    advance[entry.state](entry, seen.get(entry.job), rows.get(entry.origin))
                except Unknown:
                    self.messages.append(f"slurm {entry.job}: Slurm does not know it any more")
                    self._lost(entry)

    def _lost(self, entry: Handover) -> None:
        """Slurm does not know it."""
        if entry.state == Stage.ENDING:
            self.in_hand.on(Event.ACCOUNTED, entry)
        elif entry.mesos and entry.state != Stage.RETURNING:
            self._mesos.cancel(entry.mesos, "its job in Slurm is gone")
        else:
            self.in_hand.on(Event.DROPPED, entry)

    def _submit(self, entry: Handover, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """It is being held: once it is, it becomes a gang."""
        if row is not None:  # submitted, and the daemon was killed before it could note that
            entry.mesos = str(row["job"])
            self.in_hand.on(Event.SUBMITTED, entry)
            return
        if short is None or short.state != PENDING:
            if short is not None and short.state in RUNS and short.priority == 0:
                self._slurm.release(entry.name)  # Slurm was quicker; the hold would outlast a requeue
            self.in_hand.on(Event.DROPPED, entry)
            return
        if short.priority > 0:
            if self.may:
                self._slurm.hold(entry.name)  # the next look shows whether it is
            else:
                self.in_hand.on(Event.DROPPED, entry)
            return
        try:
            if not self.may:
                raise UsageError("asad may not act")
            job = self._slurm.details({entry.job}).get(entry.job)
            if job is None:
                self.in_hand.on(Event.DROPPED, entry)
                return
            if job.submit_s != entry.submit_s:
                raise UsageError("it was queued again meanwhile")  # the hold has outlasted that
            spec = translated(self._slurm.argued(job), self._slurm.script(entry.name), entry.origin)
            entry.mesos = self._mesos.submit(spec)
        except UsageError as error:
            self._release(entry, str(error))
            return
        self.in_hand.on(Event.SUBMITTED, entry)
        self._comments.show(entry, f"waits for Mesos as {entry.mesos}")
        reason = f"it waits for offers of Mesos as {entry.mesos}"
        self._started(entry, reason, tasks=spec.tasks, cpus=spec.cpus)

    def _serve(self, entry: Handover, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """It is a gang: watch it, and whoever touches it in Slurm."""
        row = row or self._row(entry)
        if row is None or row["state"] in GONE_STATES:
            self._settle(entry, short, row)
            return
        if why := self._why_end(entry, short):
            self._mesos.cancel(entry.mesos, why)
        if why or short is None:
            return
        if short.priority > 0:
            self._slurm.hold(entry.name)
        # by a clock that was set back it is not known how long it waits: long enough
        patient = self.may and 0.0 <= self._clock() - entry.since_s <= self._settings.patience_s
        if not patient and self._waits(entry, row):
            self._call_back(entry, "Mesos did not start it in time" if self.may else "asad may not act")
            row = self._row(entry)
            if row is not None and row["state"] in GONE_STATES:
                self._settle(entry, short, row)
            return
        hosts = hosts_of(row)
        doing = f"runs on Mesos as {entry.mesos} on {hosts}" if hosts else f"waits for Mesos as {entry.mesos}"
        self._comments.show(entry, doing)
        if hosts and entry.facts.get("hosts") != hosts:
            entry.facts["hosts"] = hosts
            self.in_hand.write(entry)
            self._started(entry, f"it {doing}")

    def _why_end(self, entry: Handover, short: Short | None) -> str:
        """Why it is to end on Mesos: Slurm has started or ended it. Empty if it has not, or nobody knows."""
        if short is not None and short.state in RUNS:
            self.messages.append(f"slurm {entry.job}: Slurm itself has started it; Mesos ends it")
            return "Slurm has started it"
        state = self._slurm.past(entry.name) if short is None else short.state
        return "" if state in ("", PENDING, *RUNS) else f"its job in Slurm is {state.lower()}"

    def _settle(self, entry: Handover, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """The gang is over: Slurm has the job back if it was called back before it ran, else it has run."""
        if row is None:  # so long ago that Mesos' side has forgotten it: it must not run again
            entry.status, sentence = 1 << 8, f"ended on Mesos as {entry.mesos}, nobody knows how"
        elif "back" in entry.facts and row["state"] == "cancelled" and not began(row):
            self.in_hand.on(Event.RETURNED, entry)
            self._return(entry, short, row)
            return
        else:
            entry.status, sentence = outcome(row)
        self.in_hand.on(Event.ENDED, entry, sentence)
        self._end(entry, short, row)

    def _call_back(self, entry: Handover, why: str) -> None:
        """End the gang if nothing of it runs: first it is held, so that none of it can start meanwhile."""
        self._mesos.hold(entry.mesos, self._clock() + HELD_S)
        if not self._waits(entry):
            self._mesos.hold(entry.mesos, -math.inf)
            return
        entry.facts["back"] = why
        self.in_hand.write(entry)
        self._mesos.cancel(entry.mesos, f"returned to Slurm: {why}")

    def _return(self, entry: Handover, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """The gang is gone and nothing of it has run: Slurm has the job again, as it was."""
        if row is not None and row["state"] not in GONE_STATES:
            return
        # of one that asad-undo has returned a hold that is there now is somebody else's
        if short is not None and short.state == PENDING and not entry.facts.get("undone"):
            self._release(entry, entry.facts.get("back") or "Mesos could not serve it")
        else:
            self.in_hand.on(Event.DROPPED, entry)

    def _release(self, entry: Handover, why: str) -> None:
        """Its comment first: while it is held it cannot start meanwhile."""
        if entry.state != Stage.RETURNING:
            self.in_hand.on(Event.RETURNED, entry)
        self._restore_comments(entry)
        self._slurm.release(entry.name)
        self._head.leave(entry.job, why)
        cause = Cause(POLICY, f"Slurm has it again: {why}")
        self.acts.append((str(entry.job), Outcome(Withdraw(cause, 0), True, "")))
        self.in_hand.on(Event.DROPPED, entry)

    def _restore_comments(self, entry: Handover) -> None:
        self.messages += [f"slurm {entry.job}: {text}" for text in self._comments.restore(entry)]

    def _end(self, entry: Handover, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """It has run: out of Slurm's queue, and into accounting what became of it."""
        if not entry.facts.get("ended"):
            entry.facts["ended"] = "yes"
            self.in_hand.write(entry)
            self._started(entry, f"it {entry.why}")
        state = short.state if short is not None else ""
        if state == PENDING:
            self._comments.show(entry, entry.why)
            self._slurm.end(entry.name)
            return  # accounting hears of it when it knows of the end, which would wipe that out again
        if short is not None and state in RUNS:
            self._restore_comments(entry)
            if short.priority == 0:
                self._slurm.release(entry.name)  # the hold would outlast a requeue
            self.messages.append(
                f"slurm {entry.job}: it {entry.why}, and Slurm runs it by itself; that is let be"
            )
            self.in_hand.on(Event.DROPPED, entry)
            return
        try:
            self._slurm.account(entry.name, entry.status, with_ours(entry.admin_comment, entry.why))
        except ClusterError as error:
            if entry.tries_again():
                return
            self.messages.append(f"slurm {entry.job}: accounting does not know that it {entry.why}: {error}")
        self.messages.append(f"slurm {entry.job}: it {entry.why}")
        self.in_hand.on(Event.ACCOUNTED, entry)

    # --------------------------------------------------------------------------------------------------- on Mesos

    def _row(self, entry: Handover) -> dict[str, Any] | None:
        """What Mesos' side knows of its gang."""
        try:
            return next(iter(self._mesos.status(entry.mesos)), None) if entry.mesos else None
        except UsageError:
            return None

    def _waits(self, entry: Handover, row: Mapping[str, Any] | None = None) -> bool:
        """Is it a gang of which nothing has run?"""
        if entry.state != Stage.SERVED:
            return False
        row = row or self._row(entry)
        return row is not None and row["state"] == "queued" and not began(row)

    def _started(self, entry: Handover, reason: str, **more: Json) -> None:
        cause = Cause(POLICY, reason, {"mesos": entry.mesos, "state": entry.state.value, **more})
        self.acts.append((str(entry.job), Outcome(Start(cause, 0), True, "")))

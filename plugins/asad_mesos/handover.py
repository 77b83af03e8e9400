"""Jobs on their way out of Slurm's queue, on Mesos, and on their way back: what is done about each at every look.

Nothing is lost and nothing runs twice: every step is in the journal before it is taken, each can be taken again, and
the gang carries its origin, by which a successor finds it. slurmctld may forget what it was told last when it is
killed: a hold that is gone is set again, and a job that has run and waits once more is ended again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from asad.decisions import Cause, Outcome, Start, Withdraw
from asad.errors import AsadError, ClusterError, UsageError
from asad.model import Json
from asad_mesos.gangs import began, hosts_of, outcome
from asad_mesos.jobs import MOST_TASKS, Spec
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.requests import Jobs
from asad_mesos.slurm_jobs import PENDING, RUNS, Queued, first_of, not_taken, translated
from asad_mesos.slurm_side import Denied, Short, SlurmSide, Unknown
from asad_mesos.taken import ENDING, HOLDING, OVER, RETURNING, SERVED, Taken, TakenJournal

MARK = "asad: "
"""What asad says in a comment begins with this; what stands before it is somebody else's, and stays."""
MOST_COMMENT = 400
KEEP_S = 7 * 86_400.0
"""So long is remembered that a job has run: slurmctld could show it once more as one that waits."""
COMPACT_LINES = 5000
TRIES = 3
"""So often accounting is told, and a comment given back: a job must not be kept for what nothing hangs on."""
MOST_ASKED = 50
"""Of so many waiting jobs the scripts are read at one look, or the users told: each is a command."""
HELD_S = 86_400.0
DEPENDENCY = "Dependency"
"""Why a job waits whose dependency Slurm will resolve: it is not taken before."""
DEPENDENT_S = 15.0
"""A job that waits for others is looked at again after this."""
GONE_STATES = ("completed", "failed", "cancelled", "timeout")
POLICY = "slurm+mesos"


class Gangs(Jobs, Protocol):
    """The submit interface of the cluster beneath."""

    def hold(self, job: str, until_s: float) -> None: ...


class SlurmQueue:
    """What of a partition is on its way to Mesos, there, or on its way back. Each `step` brings all of it further.

    Not thread-safe. Slurm not answering is told once a step, and nothing changes by it.
    """

    def __init__(
        self,
        settings: QueueSettings,
        slurm: SlurmSide,
        mesos: Gangs,
        folder: Path,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._slurm, self._mesos = settings, slurm, mesos
        self._journal, self._clock = TakenJournal(folder), clock
        self.taken: dict[int, Taken] = {}
        """Those in hand, by Slurm's number."""
        self.over: dict[int, Taken] = {}
        """Those that have run, lately."""
        self.said: list[str] = []
        self.acts: list[tuple[str, Outcome]] = []
        """What was done, for the store: name of the job and outcome."""
        self.may = False
        """May jobs be taken?"""
        self._left: dict[int, float] = {}
        """Jobs that are left to Slurm, and until when."""
        self._told: dict[int, str] = {}
        """Why, as it was said last."""
        self._takes = 0
        self._may_comment = {"AdminComment": True, "Comment": True}
        self._load()

    # ------------------------------------------------------------------------------------------------------ journal

    def _load(self) -> None:
        """Know again what an earlier daemon had in hand. Raises ClusterError if the journal cannot be read."""
        for entry in self._journal.load():
            self._takes = max(self._takes, entry.take)
            self.taken.pop(entry.job, None)
            self.over.pop(entry.job, None)  # it was requeued, and may be in hand again
            if entry.state == OVER:
                self.over[entry.job] = entry
            elif entry.state:
                self.taken[entry.job] = entry

    def _move(self, entry: Taken, state: str, why: str = "") -> None:
        """The entry is in another state; durably."""
        before = (entry.state, entry.since_s, entry.why)
        entry.state, entry.since_s = state, self._clock()
        entry.why = why or entry.why
        try:
            self._journal.write(entry)
        except ClusterError:
            entry.state, entry.since_s, entry.why = before
            raise

    def _close(self, entry: Taken) -> None:
        """It is not in hand any more. Forgotten, unless it has run."""
        if entry.state != OVER:
            self._move(entry, "")
        else:
            self.over[entry.job] = entry
        self.taken.pop(entry.job, None)

    def _compact(self) -> None:
        """Keep what is in hand, and what has run lately."""
        try:
            self._journal.rewrite([*self.over.values(), *self.taken.values()])
        except ClusterError as error:
            self.said.append(str(error))

    # --------------------------------------------------------------------------------------------------------- step

    def recover(self) -> list[str]:
        """At start, before any offer comes: cancel the gangs of jobs that `asad-undo` has given back to Slurm, or they
        would run twice; a sentence each.
        """
        back = {entry.origin: entry for entry in self.taken.values() if entry.state == RETURNING}
        said = []
        for row in self._mesos.status():
            entry = back.get(str(row["spec"].get("origin", "")))
            if entry is not None and row["state"] not in GONE_STATES:
                self._mesos.cancel(str(row["job"]), "given back to Slurm by asad-undo")
                said.append(
                    f"slurm {entry.job}: asad-undo has given it back to Slurm; {row['job']} is cancelled"
                )
        return said

    def step(self) -> None:
        """Look at the partition and at Mesos, and bring everything further."""
        try:
            seen = self._slurm.look()
        except ClusterError as error:
            self.said.append(f"the queue of Slurm is not looked at: {error}")
            return
        rows = {str(row["spec"].get("origin", "")): row for row in self._mesos.status()}
        now_s = self._clock()
        for entry in list(self.taken.values()):
            self._further(entry, seen.get(entry.job), rows)
        for job in [
            job for job, entry in self.over.items() if now_s - entry.since_s > KEEP_S and job not in seen
        ]:
            del self.over[job]
        self._end_again(seen)
        if self.may:
            self._take(seen)
            # a job that Slurm has started just before it was held must be seen to run
            if any(entry.state == HOLDING for entry in self.taken.values()):
                try:
                    seen = self._slurm.look()
                except ClusterError:
                    return
                for entry in list(self.taken.values()):
                    if entry.state == HOLDING:
                        self._further(entry, seen.get(entry.job), rows)
        if self._journal.lines > COMPACT_LINES + 2 * len(self.taken) + 2 * len(self.over):
            self._compact()

    def _end_again(self, seen: Mapping[int, Short]) -> None:
        """A job that has run and waits again (slurmctld forgot its end) is ended again; a requeued one is not."""
        back = {job for job in self.over if job in seen and seen[job].state == PENDING}
        if not back:
            return
        try:
            details = self._slurm.details(back)
        except ClusterError as error:
            self.said.append(f"slurm: jobs that have run on Mesos wait in Slurm still: {error}")
            return
        for job in sorted(back & details.keys()):
            entry = self.over[job]
            try:
                if (details[job].submit_s, details[job].restarts) == (entry.submit_s, entry.restarts):
                    self._slurm.end(entry.name)
                    self.said.append(f"slurm {job}: it has run on Mesos, and is ended in Slurm once more")
                else:
                    self._move(entry, "")
                    del self.over[job]
            except ClusterError as error:
                self.said.append(f"slurm {job}: it has run on Mesos, and waits in Slurm still: {error}")

    def _take(self, seen: Mapping[int, Short]) -> None:
        """Hold head jobs, as many as there is place for."""
        now_s = self._clock()
        waiting = sum(entry.state == HOLDING or self._waits(entry) for entry in self.taken.values())
        place = self._settings.head - waiting
        longest_s = max(self._settings.again_s, DEPENDENT_S)  # later than that: the clock was set back
        self._left = {
            job: until_s
            for job, until_s in self._left.items()
            if job in seen and 0.0 < until_s - now_s <= longest_s
        }
        self._told = {job: why for job, why in self._told.items() if job in seen}
        fresh = [
            short
            for short in seen.values()
            if short.state == PENDING
            and short.priority > 0
            and short.reason != DEPENDENCY
            and short.partition == self._settings.partition
            and short.job not in self.taken
            and short.job not in self._left
            and short.job not in self.over
        ]
        if place <= 0 or not fresh:
            return
        try:
            details = self._slurm.details({short.job for short in fresh})
        except ClusterError as error:
            self.said.append(f"the queue of Slurm is not read: {error}")
            return
        asked = 0
        for job in sorted(details.values(), key=_turn):
            if place <= 0 or asked >= MOST_ASKED:
                break
            if job.dependency:  # Slurm may give another reason first
                self._left[job.job] = now_s + DEPENDENT_S
                continue
            why = not_taken(job, self._settings.partition, self._settings.arguments)
            if why:
                self._leave(job.job, why)
                if job.bar or job.arguments:
                    asked += 1
                    self._tell(job, why)
                continue
            if self._full(job):
                continue
            asked += 1
            if job.tasks_left:
                place -= 1
                self._split(job)
                continue
            try:
                self._hold(job)
            except Denied:
                self._leave(job.job, "asad's user may not hold it")
            except AsadError as error:
                self.said.append(f"slurm {job.job}: it is not taken: {error}")
            place -= job.job in self.taken  # one that cannot be taken is in nobody's way

    def _full(self, job: Queued) -> bool:
        """Do as many tasks of its array run, or wait for offers, as may run at one time?"""
        in_hand = sum(entry.array == job.array for entry in self.taken.values()) if job.array else 0
        return 0 < job.most_running <= in_hand

    def _split(self, job: Queued) -> None:
        """The next task of an array becomes a job of its own, which the next step finds. A kill leaves nothing undone:
        to Slurm it is the task that it was."""
        try:
            self._slurm.split(job, first_of(job.tasks_left))
        except AsadError as error:
            self.said.append(f"slurm {job.job}: its next task is not taken: {error}")
            self._left[job.job] = self._clock() + max(self._settings.again_s, 1.0)

    def _tell(self, job: Queued, why: str) -> None:
        """Its user can read in its comment why it stays with Slurm."""
        text = self._text(f"stays with Slurm: {why}", job.admin_comment.partition(MARK)[0].rstrip())
        if not self._may_comment["AdminComment"] or job.admin_comment == text:
            return
        name = f"{job.array}_{job.task}" if job.array and job.task >= 0 else str(job.job)
        try:
            self._slurm.comment(name, {"AdminComment": text})
        except Denied:
            self._may_comment["AdminComment"] = False
        except AsadError as error:
            self.said.append(f"slurm {job.job}: it is not told why it stays: {error}")

    def _hold(self, job: Queued) -> None:
        """Make sure that Mesos could run it, then hold it."""
        # no number twice, though the journal was made shorter: the gang of an earlier take is another
        self._takes = max(self._takes + 1, int(self._clock()))
        entry = Taken(
            job.job,
            job.submit_s,
            job.restarts,
            self._takes,
            since_s=self._clock(),
            comment=job.comment,
            admin_comment=job.admin_comment.partition(MARK)[0].rstrip(),
            array=job.array if job.task >= 0 else 0,
            task=job.task,
        )
        try:
            job = self._slurm.argued(job)
            if why := not_taken(job, self._settings.partition, self._settings.arguments):
                raise UsageError(why)
            translated(job, self._slurm.script(entry.name), entry.origin)
        except UsageError as error:
            self._leave(job.job, str(error))
            self._tell(job, str(error))
            return
        self._journal.write(entry)
        self.taken[job.job] = entry
        try:
            self._slurm.hold(entry.name)
        except Denied:
            self._close(entry)
            raise

    def _leave(self, job: int, why: str) -> None:
        """It stays with Slurm, for a while."""
        self._left[job] = self._clock() + max(self._settings.again_s, 1.0)
        if self._told.get(job) != why:
            self._told[job] = why
            self.said.append(f"slurm {job}: it stays with Slurm: {why}")

    # ------------------------------------------------------------------------------------------------- one further

    def _further(self, entry: Taken, short: Short | None, rows: Mapping[str, dict[str, Any]]) -> None:
        """Bring one job a step further. What fails is tried again in the next step."""
        row = rows.get(entry.origin)
        try:
            try:
                if entry.state == HOLDING:
                    self._submit(entry, short, row)
                elif entry.state == SERVED:
                    self._serve(entry, short, row)
                elif entry.state == RETURNING:
                    self._return(entry, short, row)
                elif entry.state == ENDING:
                    self._end(entry, short)
            except Unknown:
                self.said.append(f"slurm {entry.job}: Slurm does not know it any more")
                self._lost(entry)
        except AsadError as error:
            self.said.append(f"slurm {entry.job}: {error}")

    def _lost(self, entry: Taken) -> None:
        if entry.state == ENDING:
            self._move(entry, OVER)
            self._close(entry)
        elif entry.mesos and entry.state != RETURNING:
            self._mesos.cancel(entry.mesos, "its job in Slurm is gone")
        else:
            self._close(entry)

    def _submit(self, entry: Taken, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """It is being held: once it is, it becomes a gang."""
        if row is not None:  # submitted, and the daemon was killed before it could note that
            entry.mesos = str(row["job"])
            self._move(entry, SERVED)
            return
        if short is None or short.state != PENDING:
            if short is not None and short.state in RUNS and short.priority == 0:
                self._slurm.release(entry.name)  # Slurm was quicker; the hold would outlast a requeue
            self._close(entry)
            return
        if short.priority > 0:
            if self.may:
                self._slurm.hold(entry.name)  # the next look tells whether it is
            else:
                self._close(entry)
            return
        if not self.may:
            self._release(entry, "asad may not act")
            return
        job = self._slurm.details({entry.job}).get(entry.job)
        if job is None:
            self._close(entry)
            return
        if job.submit_s != entry.submit_s:
            self._release(entry, "it was queued again meanwhile")  # the hold has outlasted that
            return
        try:
            spec = translated(self._slurm.argued(job), self._slurm.script(entry.name), entry.origin)
            entry.mesos = self._mesos.submit(spec)
        except UsageError as error:
            self._release(entry, str(error))
            return
        self._move(entry, SERVED)
        self._comment(entry, f"waits for Mesos as {entry.mesos}")
        self._act(entry, f"it waits for offers of Mesos as {entry.mesos}", spec)

    def _serve(self, entry: Taken, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """It is a gang: watch it, and whoever touches it in Slurm."""
        row = row or self._row(entry)
        if row is None or row["state"] in GONE_STATES:
            self._settle(entry, short, row)
            return
        why = self._taken_away(entry, short)
        if why:
            self._mesos.cancel(entry.mesos, why)
        if why or short is None:
            return
        if short.priority > 0:
            self._slurm.hold(entry.name)
        # by a clock that was set back it is not known how long it waits: long enough
        patient = self.may and 0.0 <= self._clock() - entry.since_s <= self._settings.patience_s
        if not patient and self._waits(entry, row):
            self._ask_back(entry, "Mesos did not start it in time" if self.may else "asad may not act")
            row = self._row(entry)
            if row is not None and row["state"] in GONE_STATES:
                self._settle(entry, short, row)
            return
        hosts = ",".join(dict.fromkeys(hosts_of(row)))
        self._comment(
            entry,
            f"runs on Mesos as {entry.mesos} on {hosts}" if hosts else f"waits for Mesos as {entry.mesos}",
        )
        if hosts and entry.facts.get("hosts") != hosts:
            entry.facts["hosts"] = hosts
            self._journal.write(entry)
            self._act(entry, f"it runs on Mesos as {entry.mesos} on {hosts}")

    def _taken_away(self, entry: Taken, short: Short | None) -> str:
        """Why it is to end on Mesos: Slurm has started or ended it. Empty if it has not, or nobody knows."""
        if short is None:
            past = self._slurm.past(entry.name)
            return f"its job in Slurm is {past.lower()}" if past and past not in (PENDING, *RUNS) else ""
        if short.state in RUNS:
            self.said.append(f"slurm {entry.job}: Slurm itself has started it; Mesos ends it")
            return "Slurm has started it"
        return "" if short.state == PENDING else f"its job in Slurm is {short.state.lower()}"

    def _settle(self, entry: Taken, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """The gang is over: Slurm has the job back if it was asked back before it ran, else it has run."""
        if row is not None and self._is_back(entry, row):
            self._move(entry, RETURNING)
            self._return(entry, short, row)
            return
        if row is None:  # so long ago that Mesos' side has forgotten it: it must not run again
            entry.status, sentence = 1 << 8, f"ended on Mesos as {entry.mesos}, nobody knows how"
        else:
            entry.status, sentence = outcome(row)
        self._move(entry, ENDING, sentence)
        self._end(entry, short)

    def _ask_back(self, entry: Taken, why: str) -> None:
        """End the gang if nothing of it runs: first it is held, so that none of it can start meanwhile."""
        self._mesos.hold(entry.mesos, self._clock() + HELD_S)
        if not self._waits(entry):
            self._mesos.hold(entry.mesos, -math.inf)
            return
        entry.facts["back"] = why
        self._journal.write(entry)
        self._mesos.cancel(entry.mesos, f"given back to Slurm: {why}")

    @staticmethod
    def _is_back(entry: Taken, row: Mapping[str, Any]) -> bool:
        """Has the gang ended because it was asked back, before anything of it ran?"""
        return "back" in entry.facts and row["state"] == "cancelled" and not began(row)

    def _return(self, entry: Taken, short: Short | None, row: Mapping[str, Any] | None) -> None:
        """The gang is gone and nothing of it has run: Slurm has the job again, as it was."""
        if row is not None and row["state"] not in GONE_STATES:
            return
        if entry.facts.get("undone"):
            self._close(entry)  # a hold that is there now is somebody else's
        elif short is not None and short.state == PENDING:
            self._release(entry, entry.facts.get("back", ""))
        else:
            self._close(entry)

    def _release(self, entry: Taken, why: str) -> None:
        """Its comment first: while it is held it cannot start meanwhile."""
        if entry.state != RETURNING:
            self._move(entry, RETURNING)
        self._own_comments(entry)
        self._slurm.release(entry.name)
        self._leave(entry.job, why or "Mesos could not serve it")
        cause = Cause(POLICY, f"Slurm has it again: {why or 'Mesos could not serve it'}")
        self.acts.append((str(entry.job), Outcome(Withdraw(cause, 0), True, "")))
        self._close(entry)

    def _own_comments(self, entry: Taken) -> None:
        """Give back what stood in its comments."""
        texts = {"AdminComment": entry.admin_comment, "Comment": entry.comment}
        for key in [word for word in entry.facts.get("wrote", "").split() if word in texts]:
            try:
                self._slurm.comment(entry.name, {key: texts[key]})
            except Unknown:
                raise
            except ClusterError as error:
                if self._tries_again(entry):
                    raise
                self.said.append(f"slurm {entry.job}: its own {key} is not given back: {error}")

    def _end(self, entry: Taken, short: Short | None) -> None:
        """It has run: out of Slurm's queue, and into accounting what became of it."""
        if not entry.facts.get("ended"):
            entry.facts["ended"] = "yes"
            self._journal.write(entry)
            self._act(entry, f"it {entry.why}")
        if short is not None and short.state == PENDING:
            self._comment(entry, entry.why)
            self._slurm.end(entry.name)
            return  # accounting is told when it knows of the end, which would wipe that out again
        if short is not None and short.state in RUNS:
            self._own_comments(entry)
            if short.priority == 0:
                self._slurm.release(entry.name)  # the hold would outlast a requeue
            self.said.append(
                f"slurm {entry.job}: it {entry.why}, and Slurm runs it by itself; that is let be"
            )
            self._close(entry)
            return
        try:
            self._slurm.account(entry.name, entry.status, self._text(entry.why, entry.admin_comment))
        except ClusterError as error:
            if self._tries_again(entry):
                return
            self.said.append(f"slurm {entry.job}: accounting does not know that it {entry.why}: {error}")
        self.said.append(f"slurm {entry.job}: it {entry.why}")
        self._move(entry, OVER)
        self._close(entry)

    @staticmethod
    def _tries_again(entry: Taken) -> bool:
        """Something that nothing hangs on has failed: is it tried again in the next step?"""
        tries = int(entry.facts.get("tries", "0")) + 1
        entry.facts["tries"] = str(tries)
        return tries < TRIES

    # -------------------------------------------------------------------------------------------------------- words

    def _row(self, entry: Taken) -> dict[str, Any] | None:
        try:
            return next(iter(self._mesos.status(entry.mesos)), None) if entry.mesos else None
        except UsageError:
            return None

    def _waits(self, entry: Taken, row: Mapping[str, Any] | None = None) -> bool:
        if entry.state != SERVED:
            return False
        if row is None:
            row = self._row(entry)
        return row is not None and row["state"] == "queued" and not began(row)

    def _comment(self, entry: Taken, sentence: str) -> None:
        """Its user can read what becomes of it. An operator may not write AdminComment (22.05), but Comment."""
        if entry.said == sentence:
            return
        for key, others in (("AdminComment", entry.admin_comment), ("Comment", entry.comment)):
            if not self._may_comment[key]:
                continue
            wrote = entry.facts.get("wrote", "").split()
            if key not in wrote:
                entry.facts["wrote"] = " ".join([*wrote, key])
                self._journal.write(entry)  # or it would not be given back
            try:
                self._slurm.comment(entry.name, {key: self._text(sentence, others)})
            except Denied:
                self._may_comment[key] = False
                entry.facts["wrote"] = " ".join(wrote)
                self._journal.write(entry)
                continue
            entry.said = sentence
            return

    @staticmethod
    def _text(sentence: str, others: str) -> str:
        text = "".join(char for char in f"{MARK}{sentence}" if char.isprintable())
        text = text if len(text) <= MOST_COMMENT else text[: MOST_COMMENT - 1] + "…"
        return f"{others} {text}" if others else text

    def _act(self, entry: Taken, reason: str, spec: Spec | None = None) -> None:
        detail: dict[str, Json] = {"mesos": entry.mesos, "state": entry.state}
        if spec is not None:
            detail["tasks"], detail["cpus"] = spec.tasks, spec.cpus
        self.acts.append((str(entry.job), Outcome(Start(Cause(POLICY, reason, detail), 0), True, "")))

    def give_back(self) -> list[str]:
        """Every job that waits for offers goes back to Slurm; a sentence for each. Those that run go on."""
        before, may = len(self.said), self.may
        self.may = False
        try:
            self.step()
            self.step()  # what was cancelled in the first is gone in the second
        finally:
            self.may = may
        told = self.said[before:]
        del self.said[before:]
        return told


def _turn(job: Queued) -> tuple[float, int, int, int]:
    """In which order jobs are taken: by priority and age, an array's tasks by their numbers."""
    return -job.priority, job.array or job.job, MOST_TASKS if job.task < 0 else job.task, job.job

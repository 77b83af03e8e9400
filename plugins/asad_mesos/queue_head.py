"""Which jobs at the head of Slurm's queue are taken out of it next, and which stay with Slurm for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from asad.errors import AsadError, UsageError
from asad_mesos.in_hand import Event, Handover, InHand
from asad_mesos.job_spec import MOST_TASKS
from asad_mesos.queue_comments import QueueComments, without_ours
from asad_mesos.queue_settings import QueueSettings
from asad_mesos.slurm_jobs import PENDING, Queued, first_of, not_taken, translated
from asad_mesos.slurm_side import Commands, Denied, Short

MOST_ASKED = 50
"""Of so many waiting jobs the scripts are read at one look, or the comments written: each is a command."""
DEPENDENCY = "Dependency"
"""Why a job waits whose dependency Slurm will resolve: it is not taken before."""
DEPENDENT_S = 15.0
"""A job that waits for others is looked at again after this."""


@contextmanager
def reported(messages: list[str], what: str) -> Iterator[None]:
    """An error becomes a message: what fails is tried again in the next step."""
    try:
        yield
    except AsadError as error:
        messages.append(f"{what}: {error}")


class QueueHead:
    """Holds head jobs of the partition, after it was made sure that Mesos could run them."""

    def __init__(
        self,
        settings: QueueSettings,
        slurm: Commands,
        in_hand: InHand,
        comments: QueueComments,
        clock: Callable[[], float],
        messages: list[str],
    ) -> None:
        self._settings, self._slurm, self._in_hand = settings, slurm, in_hand
        self._comments, self._clock, self._messages = comments, clock, messages
        self._left: dict[int, float] = {}
        """Jobs that are left to Slurm, and until when."""
        self._reasons: dict[int, str] = {}
        """Why, as it was logged last."""

    def leave(self, job: int, why: str) -> None:
        """It stays with Slurm, for a while."""
        self._left[job] = self._again_s()
        if self._reasons.get(job) != why:
            self._reasons[job] = why
            self._messages.append(f"slurm {job}: it stays with Slurm: {why}")

    def _again_s(self) -> float:
        return self._clock() + max(self._settings.again_s, 1.0)

    def take(self, seen: Mapping[int, Short], waiting: int) -> None:
        """Hold head jobs, as many as there is place for beside those that wait already. Raises ClusterError."""
        now_s, place = self._clock(), self._settings.head - waiting
        longest_s = max(self._settings.again_s, DEPENDENT_S)  # later than that: the clock was set back
        self._left = {
            job: until_s
            for job, until_s in self._left.items()
            if job in seen and 0.0 < until_s - now_s <= longest_s
        }
        self._reasons = {job: why for job, why in self._reasons.items() if job in seen}
        fresh = {
            short.job
            for short in seen.values()
            if short.state == PENDING
            and short.priority > 0
            and short.reason != DEPENDENCY
            and short.partition == self._settings.partition
            and not any(short.job in known for known in (self._in_hand.now, self._in_hand.over, self._left))
        }
        if place <= 0 or not fresh:
            return
        asked = 0
        for job in sorted(self._slurm.details(fresh).values(), key=_turn):
            if place <= 0 or asked >= MOST_ASKED:
                break
            if job.dependency:  # Slurm may give another reason first
                self._left[job.job] = now_s + DEPENDENT_S
            elif why := self._stays(job):
                self.leave(job.job, why)
                if job.bar or job.arguments:
                    asked += 1
                    self._explain(job, why)
            elif not self._full(job):
                asked += 1
                if job.tasks_left:
                    place -= 1
                    self._split(job)
                    continue
                with reported(self._messages, f"slurm {job.job}: it is not taken"):
                    self._hold(job)
                place -= job.job in self._in_hand.now  # one that cannot be taken is in nobody's way

    def _stays(self, job: Queued) -> str:
        return not_taken(job, self._settings.partition, self._settings.arguments)

    def _full(self, job: Queued) -> bool:
        """Do as many tasks of its array run, or wait for offers, as may run at one time?"""
        in_hand = sum(entry.array == job.array for entry in self._in_hand.now.values()) if job.array else 0
        return 0 < job.most_running <= in_hand

    def _split(self, job: Queued) -> None:
        """The next task of an array becomes a job of its own, which the next step finds. A kill leaves nothing undone:
        to Slurm it is the task that it was."""
        try:
            self._slurm.split(job, first_of(job.tasks_left))
        except AsadError as error:
            self._messages.append(f"slurm {job.job}: its next task is not taken: {error}")
            self._left[job.job] = self._again_s()

    def _explain(self, job: Queued, why: str) -> None:
        with reported(self._messages, f"slurm {job.job}: its comment does not say why it stays"):
            self._comments.explain(job, why)

    def _hold(self, job: Queued) -> None:
        """Make sure that Mesos could run it, then hold it. Raises AsadError if either cannot be done now."""
        entry = Handover(
            job.job,
            job.submit_s,
            job.restarts,
            self._in_hand.next_take(),
            since_s=self._clock(),
            comment=job.comment,
            admin_comment=without_ours(job.admin_comment),
            array=job.array if job.is_task else 0,
            task=job.task,
        )
        try:
            job = self._slurm.argued(job)
            if why := self._stays(job):
                raise UsageError(why)
            translated(job, self._slurm.script(entry.name), entry.origin)
            self._in_hand.add(entry)
            self._slurm.hold(entry.name)
        except UsageError as error:
            self.leave(job.job, str(error))
            self._explain(job, str(error))
        except Denied:
            self.leave(job.job, "asad's user may not hold it")
            if entry.job in self._in_hand.now:
                self._in_hand.on(Event.DROPPED, entry)


def _turn(job: Queued) -> tuple[float, int, int, int]:
    """In which order jobs are taken: by priority and age, an array's tasks by their numbers."""
    return -job.priority, job.array or job.job, MOST_TASKS if job.task < 0 else job.task, job.job

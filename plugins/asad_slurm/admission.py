"""What becomes of the decisions of the admit stage: begin time, throttle, nice, and a comment for the user.

Deferring is done by Slurm's own begin time, never by holding: when asad is gone the job starts by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from asad.cluster.lending_rules import first_reason
from asad.decisions import Admit, Decline, Defer, SetThrottle, Start
from asad_slurm.changes import HELD, Changes, value_of
from asad_slurm.command import Transport
from asad_slurm.records import JobRecord, clean
from asad_slurm.settings import Settings
from asad_slurm.undo import BEGIN, NICE, THROTTLE

MARK = "asad: "
"""What asad writes begins with this; what stands before it in AdminComment is the site's own and stays."""
MOST_COMMENT = 500
"""Longest sentence in AdminComment (characters)."""
DENIED = "permission denied"
MOST_PRIORITY = 2**32 - 3
"""Slurm keeps priorities in 32 bits: a nice that leads beyond this would wrap around and put the job last."""
LATEST_S = 2.0**32 - 1
"""Times beyond that are none that Slurm understands."""


class Admission:
    """Applies decisions of the admit stage to one job or array at a time."""

    def __init__(
        self,
        transport: Transport,
        changes: Changes,
        settings: Settings,
        clock: Callable[[], float],
        say: Callable[[list[str]], None],
    ) -> None:
        """`say` takes sentences about what no outcome has."""
        self._transport, self._changes, self._settings = transport, changes, settings
        self._clock, self._say = clock, say
        self._may_comment = True

    def apply(self, decision: Admit | Decline | Defer | Start | SetThrottle, record: JobRecord) -> str:
        """Do what was decided of a job that waits (of an array: those tasks of it); why not, or the empty string."""
        if record.het:
            return "it is a part of a heterogeneous job, whose parts wait for each other"
        job = record.array or record.raw
        match decision:
            case Admit():
                return self._admit(job, record, decision)
            case Decline():
                return self._comment(job, record, decision)
            case SetThrottle(tasks=tasks):
                return self._throttle(job, record, tasks)
            case Defer(until_s=until_s):
                return self._defer(job, record, until_s)
        return self._start(job, record)

    def _admit(self, job: int, record: JobRecord, decision: Admit) -> str:
        """Nice goes down from what its user has, so that the order among the admitted is as it was."""
        if record.priority <= 0:
            return HELD
        ours = self._changes.ours(job, NICE, record)
        lift = 0 if ours else max(0, min(-self._settings.admitted_nice, MOST_PRIORITY - int(record.priority)))
        if lift and (why := self._changes.make(job, {NICE: record.nice - lift}, {NICE: record.nice})):
            return why
        self._comment(job, record, decision)  # admitted it is, whether its user can read it or not
        return ""

    def _comment(self, job: int, record: JobRecord, decision: Admit | Decline) -> str:
        """Operators may do all of the rest, but this: then users learn of it by asactl alone."""
        text = comment(decision, record)
        if text == record.admin_comment or not self._may_comment:
            return ""
        answer = self._transport.update(job, {"AdminComment": text})
        if answer.done:
            return ""
        if not answer.certain or DENIED not in answer.why:
            return answer.refusal
        self._may_comment = False
        self._say(
            [
                "Slurm lets only administrators write an AdminComment, and this daemon's user is none; "
                "users learn of admission by `asactl admit explain` alone"
            ]
        )
        return ""

    def _throttle(self, job: int, record: JobRecord, tasks: int) -> str:
        why = first_reason(
            ("it is no task of an array", not record.array),
            ("none of its array's tasks wait together", record.raw != record.array),
            ("a throttle is at least 0", tasks < 0),
        )
        if why or tasks == record.throttle:
            return why
        return self._changes.make(job, {THROTTLE: tasks}, {THROTTLE: record.throttle})

    def _defer(self, job: int, record: JobRecord, until_s: float) -> str:
        if not math.isfinite(until_s) or until_s > LATEST_S:
            return "there is no such time"
        present, ours = value_of(BEGIN, record), self._changes.ours(job, BEGIN, record)
        # before its own begin time its user does not want it to start
        until = max(math.ceil(until_s), ours.was if ours else present)
        if until <= self._clock():
            return "that time has passed"
        return "" if until == present else self._changes.make(job, {BEGIN: until}, {BEGIN: present})

    def _start(self, job: int, record: JobRecord) -> str:
        if not value_of(BEGIN, record) > self._clock():
            return ""  # nothing defers it any more
        change = self._changes.ours(job, BEGIN, record)
        if change is None:
            return "its user, or Slurm, has it begin later"
        why = self._changes.give_back(job, record, (BEGIN,))
        return "its user has it begin later" if not why and change.was > self._clock() else why


def comment(decision: Admit | Decline, record: JobRecord) -> str:
    """AdminComment with the reason of a decision: one printable line, after whatever others have written there."""
    words = "admitted" if isinstance(decision, Admit) else "not admitted"
    reason = " ".join(clean(decision.cause.reason).split())
    text = f"{MARK}{words} by {clean(decision.cause.policy)}: {reason}"
    if len(text) > MOST_COMMENT:
        text = text[: MOST_COMMENT - 1] + "…"
    others = record.admin_comment.partition(MARK)[0].rstrip()
    return f"{others} {text}" if others else text

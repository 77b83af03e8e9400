"""The life of a job that asad holds back, the same for every stage and for what the Slurm plugin changes of jobs: named
states, named events, and no others.

A job is held back by a begin time of the cluster's own, never by holding it: when asad is dead it starts by itself.
What was asked for is kept before the cluster hears of it, so that a successor knows a begin time of asad's making from
one of its user's. A begin time of ours that is gone was taken back: by ourselves, then the job may be held again, or by
hand, then it is left alone for good. From every state a job can be let go, and none is held beyond its latest begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple, TypeVar

from asad.decisions import Admit, Cause, Decision, Decline, Defer, Evict, Outcome, SetThrottle, Start
from asad.model import Json, Snapshot

EXACT_S = 1.5
"""Times that differ by less are one: clusters keep them in whole seconds."""
REFUSED_S = 120.0
"""What the cluster refused is not asked for again sooner."""


class Hold(StrEnum):
    """How far the hold of a job has come; the texts are those that reports show."""

    FREE = "future"
    """Nothing of ours holds it; it may be held."""
    HELD = "held"
    """It has a begin time of our making, as the cluster has confirmed or shown."""
    RELEASED = "let go"
    """A plan or a score let it go; it may be held again later."""
    DEADLINE_RELEASED = "urgent"
    """Its latest begin came: it is the cluster's own affair from now on."""
    USER_OVERRIDE = "by hand"
    """Somebody took our begin time back by hand: it is left alone for good."""


class Event(Enum):
    """What can happen to a hold."""

    CONFIRMED = auto()
    """The cluster has done what was asked: it begins no sooner than then."""
    SHOWN = auto()
    """The cluster shows a begin time of our making."""
    RELEASE = auto()
    DEADLINE = auto()
    """The latest time at which it may begin has come."""
    GONE = auto()
    """Our begin time is over, or was taken back by ourselves."""
    OVERRIDE = auto()
    """Somebody has taken it back by hand."""
    NOT_STARTED = auto()
    """It was let go, and has not started for too long."""
    REFUSED = auto()
    """The cluster did not let it go."""


AFTER: Mapping[tuple[Hold, Event], Hold] = {
    (Hold.FREE, Event.CONFIRMED): Hold.HELD,
    (Hold.FREE, Event.SHOWN): Hold.HELD,
    (Hold.FREE, Event.RELEASE): Hold.RELEASED,
    (Hold.FREE, Event.DEADLINE): Hold.DEADLINE_RELEASED,
    (Hold.FREE, Event.OVERRIDE): Hold.USER_OVERRIDE,
    (Hold.HELD, Event.RELEASE): Hold.RELEASED,
    (Hold.HELD, Event.DEADLINE): Hold.DEADLINE_RELEASED,
    (Hold.HELD, Event.GONE): Hold.FREE,
    (Hold.HELD, Event.OVERRIDE): Hold.USER_OVERRIDE,
    (Hold.RELEASED, Event.CONFIRMED): Hold.HELD,
    (Hold.RELEASED, Event.DEADLINE): Hold.DEADLINE_RELEASED,
    (Hold.RELEASED, Event.OVERRIDE): Hold.USER_OVERRIDE,
    (Hold.RELEASED, Event.NOT_STARTED): Hold.FREE,
    # the cluster holds it still: were it taken for released, nobody would ask again
    (Hold.RELEASED, Event.REFUSED): Hold.FREE,
    (Hold.DEADLINE_RELEASED, Event.REFUSED): Hold.FREE,
}
"""Which state follows; events that are not here change nothing. USER_OVERRIDE is for good."""


def after(hold: Hold, event: Event) -> Hold:
    """The state that follows on an event."""
    return AFTER.get((hold, event), hold)


class Step(Enum):
    """What the cluster is to be asked for now."""

    NOTHING = auto()
    HOLD = auto()
    RELEASE = auto()


class Terms(NamedTuple):
    """By which a stage that counts in slots holds jobs back."""

    policy: str
    """Under which its decisions are reported."""
    slot_s: float
    """Length of a slot (of statements: of a round)."""
    most_defer_s: float
    """No job is held further ahead than this."""
    plans_ahead: bool = True
    """Schedules are fixed when a job arrives."""


@dataclass(slots=True, kw_only=True)
class HeldJob:
    """A job and its hold. Times are seconds (UTC epoch), NaN for none."""

    row: int = -1
    """Of the snapshot; of no meaning in another process."""
    hold: Hold = Hold.FREE
    until_s: float = math.nan
    """Until when we hold it back, as the cluster confirmed."""
    wished_s: float = math.nan
    """The begin time that we have asked for last: the cluster may have obeyed and we died of it."""
    seen_held: bool = True
    """Our begin time has not been missed since the start of the process."""
    reported: bool = False
    """The cluster knows what was decided of it."""
    retry_s: float = -math.inf
    """Before this nothing is asked for again that the cluster refused."""
    refused: str = ""
    """Why it did."""

    @property
    def identity(self) -> dict[str, Json]:
        """By which the reasons of decisions about it name it."""
        return {}

    def cause(self, policy: str, reason: str, detail: Mapping[str, Json] | None = None) -> Cause:
        """Why something is decided of it."""
        return Cause(policy, reason, {**self.identity, **(detail or {})})

    def on(self, event: Event) -> None:
        """Go on to the state that follows."""
        self.hold = after(self.hold, event)

    def defers(self, begin_s: float) -> bool:
        """Is a begin time of our making?"""
        return abs(begin_s - self.until_s) < EXACT_S or abs(begin_s - self.wished_s) < EXACT_S

    def may_be_held(self, now_s: float) -> bool:
        """May it be that we hold it back?"""
        return self.until_s > now_s or self.wished_s > now_s

    def observe(self, begin_s: float, now_s: float) -> bool:
        """See the begin time that it has now, NaN for none to come; has ours been taken back?"""
        # a begin time that comes about now goes by itself: nobody took it back
        if not self.until_s > now_s + EXACT_S:
            return False
        if not math.isnan(begin_s):
            self.seen_held = True
            return False
        # since a restart nobody has seen it: asad-undo may have taken it back, and that is no wish of the user
        self.on(Event.OVERRIDE if self.seen_held else Event.GONE)
        self.until_s = math.nan
        return True

    def withdrawn(self) -> None:
        """Our begin time is there no more, and nobody took it by hand."""
        self.until_s = self.wished_s = math.nan
        self.on(Event.GONE)

    def ask(self, until_s: float) -> bool:
        """It is to be held until then; is that asked for the first time?"""
        if abs(until_s - self.wished_s) < EXACT_S:
            return False
        self.wished_s = until_s
        return True

    def follow(self, until_s: float, begin_s: float, now_s: float) -> tuple[Step, bool]:
        """What makes it begin at `until_s` (NaN: as soon as the cluster can), where it would begin at `begin_s` now
        (NaN: at once). What others made it wait for stays.

        With whether anything is new that a successor has to know.
        """
        if not until_s > now_s:  # always of NaN
            return (Step.RELEASE if self.defers(begin_s) else Step.NOTHING), False
        later = math.isnan(begin_s) or until_s > begin_s + EXACT_S
        # a begin time that is not ours is its user's, and never moved to an earlier one
        sooner = self.defers(begin_s) and until_s < begin_s - EXACT_S
        if until_s > now_s + EXACT_S and (later or sooner):
            if abs(begin_s - self.wished_s) < EXACT_S:
                # asked for by one who never learned of it: if what is wished now is refused, it still holds the job
                self.until_s = begin_s
                self.on(Event.CONFIRMED)
            return Step.HOLD, self.ask(until_s)
        return Step.NOTHING, False

    def on_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """What became of a decision about it; was it done?"""
        decision = outcome.decision
        if outcome.done:
            match decision:
                case Admit() | Decline():
                    self.reported = True
                case Defer(until_s=until_s):
                    self.until_s, self.seen_held = until_s, True
                    self.on(Event.CONFIRMED)
                case Start():
                    self.until_s = math.nan
                    self.on(Event.RELEASE)
        elif outcome.reason != "advise":
            # what was refused for the moment alone is asked for again in the next cycle
            if not outcome.transient:
                self.retry_s, self.refused = now_s + REFUSED_S, outcome.reason
            if isinstance(decision, Start):
                self.on(Event.REFUSED)
        return outcome.done

    def hold_to_json(self) -> dict[str, Json]:
        """What a successor has to know of the hold; `hold_of` reads it."""
        return {
            "told": self.reported,
            "let_go": self.hold is Hold.USER_OVERRIDE,
            "wished_s": plain(self.wished_s),
            "deferred_s": plain(self.until_s),
        }


def hold_of(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `HeldJob` that `hold_to_json` described. Raises KeyError, ValueError for what it cannot be."""
    until_s, wished_s = as_number(kept["deferred_s"]), as_number(kept["wished_s"])
    free = Hold.FREE if math.isnan(until_s) else Hold.HELD
    return {
        "hold": Hold.USER_OVERRIDE if kept.get("let_go") is True else free,
        "until_s": until_s,
        "wished_s": wished_s,
        "reported": kept.get("told") is True,
        "seen_held": False,
    }


J = TypeVar("J", bound=HeldJob)


def outcomes_of(
    policy: str, jobs: Iterable[J], outcomes: Sequence[Outcome]
) -> Iterator[tuple[J, Outcome, Decision]]:
    """What became of the decisions of `policy` about these jobs."""
    by_row = {job.row: job for job in jobs if job.row >= 0}
    for outcome in outcomes:
        decision = outcome.decision
        if not isinstance(decision, Admit | Decline | Defer | Start | SetThrottle | Evict):
            continue
        job = by_row.get(decision.job)
        if job is not None and decision.cause.policy == policy:
            yield job, outcome, decision


def key_of(snapshot: Snapshot, row: int) -> str:
    """By which a job is known: of a task the number of its array, of another job its own."""
    name, array = str(snapshot.jobs.job_id[row]), int(snapshot.jobs.array[row])
    if array < 0:
        return name
    of_array, is_task, _ = name.partition("_")
    return of_array if is_task else f"array {array}"


def find_rows(jobs: Iterable[tuple[str, HeldJob]], job_id: Iterable[Any]) -> None:
    """Look up by name the rows of those whom only an earlier process has seen."""
    lost = [(name, job) for name, job in jobs if job.row < 0]
    if lost:
        row_of = {str(name): row for row, name in enumerate(job_id)}
        for name, job in lost:
            job.row = row_of.get(name, -1)


def latest_begin_s(deadline_s: float, limit_s: float, run_s: float) -> float:
    """The last begin that leaves a job its time limit (its expected `run_s` if it has none) before the cluster's
    deadline for it; inf if there is none."""
    if not math.isfinite(deadline_s):
        return math.inf
    return deadline_s - (limit_s if math.isfinite(limit_s) else run_s)


Saved = Mapping[str, Callable[[Any], Any]]
"""Fields that outlive the process, and what reads each of them; a truth value (`bool`) may be missing."""


def fields_to_json(job: object, saved: Saved) -> dict[str, Json]:
    """These fields as plain data."""
    return {name: plain(getattr(job, name)) for name in saved}


def fields_of(kept: Mapping[str, Any], saved: Saved) -> dict[str, Any]:
    """The fields that `fields_to_json` described. Raises KeyError, ValueError for what they cannot be."""
    return {
        name: kept.get(name) is True if read is bool else read(kept[name]) for name, read in saved.items()
    }


def plain(value: object) -> Json:
    """A field as plain data; a number that is not known, or not finite, is None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    assert isinstance(value, bool | int | str)
    return value


def as_number(value: Json) -> float:
    """A number that was kept as plain data, NaN for None. Raises ValueError."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("no number")
    return float(value)


def as_whole(value: Json) -> int:
    """A whole number that was kept as plain data. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("no whole number")
    return value

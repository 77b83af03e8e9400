"""Statements of work in a replay: given in a file, or such as could have been inferred as the log went on.

Each is put to the policy at its birth. What became of it is reported of the same statements for every policy: each
is paired with the first job of its owner, name and cores that was submitted after its birth and in its time, and is
worth to him what it says of the end of that job; nothing, if that job was evicted or killed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asad.admit.sow import Mechanism
from asad.admit.sow.announcements import MOST_CHARACTERS, Announcement, read_announcements
from asad.admit.sow.infer import Foreseen, foresee
from asad.admit.sow.promises import worth_of
from asad.admit.sow.statement import Bounds
from asad.admit.sow.statement_options import Options
from asad.admit.sow.statements_policy import Statements
from asad.decisions import Decision, Outcome
from asad.errors import AsadError, ConfigError, UsageError
from asad.model import Floats, JobLog, Snapshot, name_of

NEAR = 0.9
"""A statement is made when its time is nearer than this part of the span, and no sooner."""


class Pair(NamedTuple):
    """A statement and the job that it was about."""

    number: int
    """Of the statement, in the order of births."""
    row: int


class Stated:
    """The statements of a replay, and which jobs they are about."""

    def __init__(self, made: Sequence[Foreseen], jobs: JobLog, round_s: float, *, inferred: bool) -> None:
        """`made` in any order; owners may be empty, which is anybody."""
        self.inferred = inferred
        self.options = _options(made, round_s)
        ahead_s = NEAR * self.options.span * round_s
        births = [
            one._replace(birth_s=max(one.birth_s, _first_s(one.announcement) - ahead_s)) for one in made
        ]
        self.made = sorted(births, key=lambda one: (one.birth_s, one.user, one.announcement.name))
        self.pairs = _paired(self.made, jobs, self.options)

    def __len__(self) -> int:
        return len(self.made)

    @property
    def hints(self) -> dict[int, str]:
        """By row: what owners would write with their jobs, who know the numbers of their statements."""
        return {row: f"sow={number + 1}" for number, row in self.pairs}

    def policy(self, name: str, make: Callable[[Bounds], Mechanism], applications: Sequence[str]) -> Foretold:
        """A policy that learns of the statements as time goes on."""
        return Foretold(name, make, applications, self.options, self.made)

    def figures(
        self, end_s: Floats, killed: Iterable[int], policy: Foretold | None
    ) -> dict[str, float | int | None]:
        """The figures of one schedule; `end_s` is (n,) and `killed` rows of jobs that were evicted or killed."""
        lost = set(killed)
        round_s = self.options.round_s
        worth, most = 0.0, 0.0
        for number, row in self.pairs:
            one = self.made[number]
            most += one.announcement.value
            if row not in lost:
                birth = math.floor(one.birth_s / round_s)
                worth += worth_of(one.announcement, float(end_s[row]), birth, round_s)
        found: dict[str, float | int | None] = {
            "stated": len(self.made),
            "stated_jobs": len(self.pairs),
            "welfare": worth,
            "welfare_share": worth / most if most > 0 else None,
            "planned": None,
            "evicted": None,
            "cancelled": None,
            "payments": None,
        }
        if policy is not None:
            counts = policy.register.counts
            found |= {name: counts[name] for name in ("planned", "evicted", "cancelled")}
            found["payments"] = policy.register.paid_micro / 1e6
        return found


class Foretold(Statements):
    """Statements of work that are made as a log goes on."""

    def __init__(
        self,
        name: str,
        make: Callable[[Bounds], Mechanism],
        applications: Sequence[str],
        options: Options,
        made: Sequence[Foreseen],
    ) -> None:
        super().__init__(name, make, applications, options)
        self._coming = deque(enumerate(made, 1))
        self.refused = 0
        """Statements of jobs that are planned by nobody: too large, too long, too late."""
        self.evicted_jobs: set[str] = set()
        self.restore({})

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Who was born by now is put to the mechanism first."""
        if self._coming and self._coming[0][1].birth_s <= snapshot.time_s:
            self.planning.begin(snapshot)
            while self._coming and self._coming[0][1].birth_s <= snapshot.time_s:
                self.register.next, one = self._coming.popleft()  # the number that its job's hint names
                try:
                    self.submit([one.announcement], one.user, snapshot.time_s)
                except AsadError:
                    self.refused += 1
        return super().decide(snapshot)

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Nobody keeps what a replay promised: what is over is only counted."""
        super().on_outcomes(outcomes)
        self.evicted_jobs.update(promise.job for promise in self.register.ended if promise.state == "evicted")
        self.register.ended.clear()
        self.register.lines.clear()

    def wake_s(self) -> float:
        """The next birth, too."""
        return min(super().wake_s(), self._coming[0][1].birth_s if self._coming else math.inf)


def stated_of(
    jobs: JobLog, path: Path | None, round_s: float, value_per_core_hour: float, least_runs: int
) -> Stated:
    """The statements of a file, whose owners are those whose jobs have the name; without a file the inferred ones.

    Raises ConfigError for a file that cannot be read.
    """
    if path is None:
        made = foresee(jobs, value_per_core_hour, least_runs)
        return Stated(made, jobs, round_s, inferred=True)
    try:
        text = path.read_bytes()[: 4 * MOST_CHARACTERS + 1].decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file of statements") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    begin_s = float(jobs.submit_s[0]) if len(jobs) else 0.0
    found = read_announcements(text, str(path), begin_s)
    last_s = float(jobs.submit_s[-1]) if len(jobs) else 0.0
    made = []
    for one in found:
        if not one.name:
            raise UsageError(
                f"{path}: a statement has no name, and jobs of a log name no statements; give each a name"
            )
        times = 1 + max(0, math.floor((last_s - one.due_s) / one.every_s)) if one.every_s else 1
        made += [Foreseen("", begin_s, one.later(again)) for again in range(min(times, 100_000))]
    return Stated(made, jobs, round_s, inferred=False)


def _options(made: Sequence[Foreseen], round_s: float) -> Options:
    """As shipped, with values and cores on the scale of the statements."""
    plain = Options(round_s=round_s, most_open=2**31, most_open_all=2**31)
    values = [one.announcement.value for one in made]
    if not values:
        return plain
    return plain._replace(
        most_value=max(values),
        least_value=min(plain.least_value, min(values)),
        most_cores=max(one.announcement.cores for one in made),
    )


def _first_s(one: Announcement) -> float:
    return one.due_s + min(run.offset_s for run in one.runs)


def _paired(made: Sequence[Foreseen], jobs: JobLog, options: Options) -> list[Pair]:
    """Each statement with its job; those whose job never came are left out."""
    rows_of: dict[tuple[str, str, int], list[int]] = {}
    for row in range(len(jobs)):
        user, name = (
            name_of(names, code)
            for names, code in (
                (jobs.users, int(jobs.user[row])),
                (jobs.applications, int(jobs.application[row])),
            )
        )
        for owner in (user, ""):
            rows_of.setdefault((owner, name, int(jobs.cores[row])), []).append(row)
    taken: set[int] = set()
    pairs = []
    for number, one in enumerate(made):
        announcement = one.announcement
        rows = rows_of.get((one.user, announcement.name, announcement.cores), [])
        first_s = max(one.birth_s, _first_s(announcement) - options.window_s)
        last_s = announcement.due_s + max(run.offset_s for run in announcement.runs) + options.round_s
        begin = int(np.searchsorted(jobs.submit_s[rows], first_s, side="right")) if rows else 0
        for row in rows[begin:]:
            if jobs.submit_s[row] > last_s:
                break
            if row not in taken:
                taken.add(row)
                pairs.append(Pair(number, row))
                break
    return pairs

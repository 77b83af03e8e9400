"""Who is put to the scheme, when, and with what: each job once, and again when there is reason to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from asad.admit.admission_options import Options
from asad.admit.budget import NOTHING, Budgets, Claim
from asad.admit.commitment_book import CommitmentBook
from asad.admit.commitments import Commitment, commitment_of
from asad.admit.hints import Hint, Rule
from asad.admit.job_size import Companion, hint_of
from asad.admit.scheme_plans import SchemePlans
from asad.admit.seen import Seen, can_start, own_throttle_of
from asad.model import Snapshot

MOST_ASKED = 100
"""So many jobs are put to the scheme in one cycle; the others in the next ones."""


class Asking:
    """Looks for those who are to be asked for, and asks."""

    def __init__(
        self, options: Options, rules: Sequence[Rule], book: CommitmentBook, planning: SchemePlans
    ) -> None:
        self.options, self.rules = options, tuple(rules)
        self.book, self.planning = book, planning
        self.budgets = Budgets(options, planning.own_utilities)
        self.ignored: dict[str, str] = {}
        """Jobs that give no utility and have none by a rule, and their hints."""
        self.claimed: dict[str, str] = {}
        """Arrays that are companions, and of which workers; of this cycle."""
        self.patient_until_s = math.inf
        """When the patience of the next array that waits for its companion ends."""
        self.endings = 0
        """Jobs that have ended so far."""

    def candidates(self, snapshot: Snapshot, seen: Mapping[str, Seen]) -> list[tuple[str, Hint | str]]:
        """Who is to be asked for now, in order of submission, with their hints (a text: why that is wrong)."""
        jobs = snapshot.jobs
        found: list[tuple[float, str, Hint | str]] = []
        self.patient_until_s = math.inf
        for key, there in seen.items():
            row = there.row
            if row < 0 or key in self.claimed:
                continue
            entry = self.book.jobs.get(key)
            text = snapshot.hints.get(row, "")
            if entry is None:
                if self.ignored.get(key) == text:
                    continue
            elif not self.again(snapshot, entry, text):
                continue
            if not can_start(snapshot, there):
                continue
            hint = self.hint_of(snapshot, there, text)
            if hint is None:
                self.ignored[key] = text
                continue
            if isinstance(hint, Hint) and hint.parameter_servers and self.lacks_servers(seen, key):
                until_s = float(jobs.submit_s[row]) + self.options.ps_patience_s
                if snapshot.time_s < until_s:
                    self.patient_until_s = min(self.patient_until_s, until_s)
                    continue
            found.append((float(jobs.submit_s[row]), key, hint))
        found.sort(key=lambda one: one[:2])
        return [(key, hint) for _, key, hint in found[:MOST_ASKED]]

    def hint_of(self, snapshot: Snapshot, there: Seen, text: str) -> Hint | str | None:
        """Of the job's user, else by a rule (see `asad.admit.job_size.hint_of`)."""
        return hint_of(
            snapshot, there, text, self.book.run_times.application(snapshot, there.row), self.rules
        )

    def user(self, snapshot: Snapshot, there: Seen) -> str:
        """Whose job it is."""
        return self.book.run_times.application(snapshot, there.row).partition("/")[0]

    def again(self, snapshot: Snapshot, entry: Commitment, text: str) -> bool:
        """Is a job that we know to be asked for again?"""
        if entry.state in ("admitted", "released"):
            return False
        if entry.lacks_servers and entry.key in self.claimed.values():
            return True  # they have come
        if entry.hint != text or entry.state == "ended":  # a task of it was requeued
            return True
        asked_s = entry.arrival * self.options.slot_s
        return (
            entry.state in ("declined", "unfit")
            and snapshot.time_s - asked_s >= self.options.again_s
            and self.endings > entry.asked_at
        )

    def lacks_servers(self, seen: Mapping[str, Seen], key: str) -> bool:
        """It is an array that could have parameter servers here, and its companion is not there."""
        possible = len(self.planning.sizes.world.servers.parameter_servers) > 0 and seen[key].array >= 0
        return possible and key not in self.claimed.values()

    def ask(
        self,
        snapshot: Snapshot,
        seen: Mapping[str, Seen],
        key: str,
        hint: Hint | str,
        slot: int,
        claims: Mapping[str, Claim],
    ) -> None:
        """Put a job to the scheme; it is known from then on, admitted or not."""
        assert self.planning.scheme is not None
        there, before = seen[key], self.book.jobs.pop(key, None)
        entry = commitment_of(
            snapshot,
            there.row,
            key=key,
            number=self.book.number(),
            state="unfit",
            utility=hint.utility if isinstance(hint, Hint) else "",
            by_rule=isinstance(hint, Hint) and hint.by_rule,
            reason=hint if isinstance(hint, str) else "",
            arrival=slot,
            array=there.array >= 0,
            asked_at=self.endings,
        )
        self.book.jobs[key] = entry
        self.book.changed = True
        if isinstance(hint, Hint):
            companion = self.companion_of(snapshot, seen, key)
            entry.reason = self.planning.sizes.measure(snapshot, there, entry, hint, before, companion)
        cut = claims[key].enter(entry) if key in claims and not entry.reason else ""
        if cut and entry.counted <= NOTHING:
            entry.state, entry.reason = "declined", cut
        if not entry.reason:
            answer = self.planning.scheme.arrive(entry.number, self.planning.sizes.elastic(entry))
            entry.state = "admitted" if answer.admitted else "declined"
            entry.reason = f"{answer.reason}; {cut}" if cut else answer.reason
            entry.payoff, entry.cost, entry.worth = answer.payoff, answer.cost, answer.utility
            entry.schedule = dict(answer.schedule or {}) if answer.admitted else {}
            self.planning.stale = True
        # has its user got this very verdict already?
        same = before is not None and (before.state, before.reason) == (entry.state, entry.reason)
        entry.reported = same and before is not None and before.reported

    def companion_of(self, snapshot: Snapshot, seen: Mapping[str, Seen], key: str) -> Companion | None:
        """Who has come as the parameter servers of a job."""
        mate = next((mate for mate, workers in self.claimed.items() if workers == key), None)
        if mate is None:
            return None
        entry = self.book.jobs.get(mate)
        own = own_throttle_of(snapshot, seen[mate]) if entry is None else entry.own_throttle
        return Companion(mate, seen[mate], own)

"""The jobs that admission knows, by number, and the same as plain data that outlives the process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from asad.admit.commitments import Commitment, commitment_from_json
from asad.admit.run_times import RunTimes
from asad.admit.utility import Maker, parse_utility
from asad.errors import UsageError
from asad.model import Json

PLACE = "seat"
"""Before the number of a place, in the store."""


class CommitmentBook:
    """What is known of jobs; whoever changes something that outlives the process says so in `changed`."""

    def __init__(
        self, applications: Sequence[str], slot_s: float, own_utilities: Mapping[str, Maker]
    ) -> None:
        """`own_utilities` are the site's kinds."""
        self._slot_s, self._own = slot_s, own_utilities
        self.run_times = RunTimes(applications)
        self.jobs: dict[str, Commitment] = {}
        self.next = 1
        self.kept: Mapping[str, Mapping[str, Json]] | None = None
        """What an earlier process has kept, until the first snapshot is looked at; in mode observe none ever is."""
        self.kept_jobs: set[str] = set()
        """The jobs that it knew."""
        self.changed = False
        """Something has changed since `to_json` or `changes` was asked last."""
        self._places = SavedPlaces()
        self._described: dict[str, dict[str, Json]] = {}
        """By `changes`, when it was asked last."""

    def number(self) -> int:
        """By which the scheme is to know the next job."""
        number, self.next = self.next, self.next + 1
        return number

    def to_json(self, common: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
        """Everything that another process needs: commitments, by place, and how long applications ran. `common` is
        what the scheme and the machine add."""
        self.changed = False
        if self.kept is not None:  # nothing was seen yet
            return {name: dict(known) for name, known in self.kept.items()}
        return self.run_times.to_json() | self._commitments(common)

    def changes(self, common: Mapping[str, Json]) -> dict[str, dict[str, Json] | None]:
        """What `to_json` describes otherwise than when this was asked last; None of applications that are forgotten."""
        self.changed = False
        if self.kept is not None:
            return {}
        before, self._described = self._described, self._commitments(common)
        changed = {name: known for name, known in self._described.items() if before.get(name) != known}
        return self.run_times.changes() | changed

    def _commitments(self, common: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
        """Commitments, by place, and what they have in common."""
        kept: dict[str, dict[str, Json]] = {}
        for number, holder in enumerate(self._places.assign(self.jobs)):
            kept[f"{PLACE} {number}"] = {} if holder is None else self.jobs[holder].to_json()
        kept["*"] = {"next": self.next, "slot_s": self._slot_s, **common}
        return kept

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        """Know again what `to_json` described, as soon as `take_over` is asked to."""
        self.kept = memory
        self.kept_jobs = {
            str(known.get("key")) for name, known in memory.items() if name.startswith(f"{PLACE} ") and known
        }

    def take_over(self, memory: Mapping[str, Mapping[str, Json]]) -> Mapping[str, Json]:
        """Take over what was kept, and what the scheme and the machine of that time had added; what the scheme had
        learned is worth nothing in slots of another length."""
        common = memory.get("*", {})
        same_slots = common.get("slot_s") == self._slot_s
        numbers = {entry.number for entry in self.jobs.values()}
        for name, known in memory.items():
            if name.startswith(f"{PLACE} "):
                number = name.removeprefix(f"{PLACE} ")
                if not (number.isdecimal() and len(number) < 8):
                    continue
                entry = self._restored(known, same_slots)
                if entry is not None and (entry.key in self.jobs or entry.number in numbers):
                    entry = None
                self._places.give(int(number), None if entry is None else entry.key)
                if entry is not None:
                    self.jobs[entry.key] = entry
                    numbers.add(entry.number)
            elif name != "*":
                self.run_times.restore(name, known)
        following = common.get("next")
        self.next = max(
            max(numbers, default=0) + 1, following if isinstance(following, int) else 1, self.next
        )
        self.kept, self.kept_jobs = None, set()
        return common if same_slots else {**common, "scheme": None}

    def _restored(self, known: Mapping[str, Json], same_slots: bool) -> Commitment | None:
        """One job as it was kept; None if it cannot be read. What was planned in other slots is to be released."""
        entry = commitment_from_json(known) if known else None
        if entry is None:
            return None
        if not same_slots:
            return entry if entry.lose_plan("the site has changed the length of its slots") else None
        if entry.state == "admitted" and not entry.beside:
            try:
                parse_utility(entry.utility, self._slot_s, self._own)
            except UsageError:
                return None  # a site's own kind that is gone
            entry.reported = False  # whoever stopped may have taken it back
        return entry


class SavedPlaces:
    """Who has which numbered place in a store that only ever replaces entries.

    A place that is free again is taken by the next job: no more is kept than there were jobs at one time.
    """

    def __init__(self) -> None:
        self._holder: list[str | None] = []

    def assign(self, keys: Collection[str]) -> list[str | None]:
        """By place who has it, None for nobody: all of `keys` have one, and keep the one that they had."""
        taken = {key: number for number, key in enumerate(self._holder) if key is not None}
        for key in [key for key in taken if key not in keys]:
            self._holder[taken.pop(key)] = None
        free = [number for number, key in enumerate(self._holder) if key is None]
        for key in keys:
            if key not in taken:
                if not free:
                    free.append(len(self._holder))
                    self._holder.append(None)
                self._holder[free.pop(0)] = key
        return self._holder

    def give(self, place: int, key: str | None) -> None:
        """A place as it was kept; there are all before it, too."""
        while len(self._holder) <= place:
            self._holder.append(None)
        if key is not None:
            self._holder[place] = key

"""Numbered places for what is kept of jobs in a store which only ever replaces entries.

A place that is free again is taken by the next job, so that no more is kept than there were jobs at one time.
"""

from __future__ import annotations

from collections.abc import Collection


class SavedPlaces:
    """Who has which place."""

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

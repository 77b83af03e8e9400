"""Applications: what jobs are runs of. A bounded number of them is known at one time, those that were seen last.

An application is named by its fingerprint `user/name/size`: the user, the name of the job with `#` for numbers
(`normal`), and its cores rounded up to a power of two. Codes of applications index the tables of policies, so a code
is given again once its application is forgotten; `Turnover` names to a policy the codes that mean something else since
it looked last, so that no application is taken for another one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

MOST = 20_000
"""Applications that are known at one time; beyond these the least recently seen are forgotten."""
MOST_OF_ONE = 2_000
"""Applications of one user: whoever gives each job a name of its own makes nobody forget but himself."""
UNUSED_S = 180 * 86_400.0
"""An application of which no job was seen for so long is forgotten."""
MOST_STEP_S = 86_400.0
"""No more counts of the time between two looks: a clock that is set forward makes nobody forget everything."""
MOST_NAME = 128
"""Characters of a job's name that count."""
REST = "*"
"""The name of all further applications of a user and size, as long as jobs of all those that are known are there."""
AT_ONCE = 16
"""Where there is no room, this part of all is forgotten together."""

_NUMBER = re.compile(r"(?<![^\W_])[0-9]+(?![^\W_])|[0-9]{5,}")


def normal(name: str) -> str:
    """A job's name with `#` for numbers, so that `run-17` and `run-18` are one application.

    A number is a row of digits with no letter beside it, or of five digits and more, which is a date, a time or the
    number of a job, and no version. Digits that belong to a word stay (`resnet50`, `md5sum`, `step2`), and so does a
    name of digits alone: some logs number their applications.
    """
    short = name[:MOST_NAME]
    return short if short.isdigit() else _NUMBER.sub("#", short)


def size_of(cores: float) -> int:
    """Cores rounded up to a power of two."""
    return 1 << max(0, math.ceil(math.log2(cores)))


def fingerprint(user: str, name: str, cores: float) -> str:
    """`user/name/size`, with `-` for what is not known."""
    return f"{user or '-'}/{normal(name) or '-'}/{size_of(cores)}"


def named(fingerprint: str, name: str | None) -> str:
    """A fingerprint with the very name of a job, as its user gave it; as it is if that is not known (None)."""
    if name is None or not fingerprint:
        return fingerprint
    return f"{fingerprint.partition('/')[0]}/{name or '-'}/{fingerprint.rpartition('/')[2]}"


class Applications(Sequence[str]):
    """Fingerprints by code, the empty string where a code means nothing (any more)."""

    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._names: list[str] = []
        self._users: list[str] = []
        self._code: dict[str, int] = {}
        self._of: dict[str, set[int]] = {}
        """By user, the codes of his applications."""
        self._free: list[int] = []
        self._full: set[str] = set()
        """Users for whom there is no room in this look; the empty string: for nobody."""
        self._look, self._looked_s, self._now_s = 1, math.inf, 0.0
        """Number and time of the last look, and the time that has passed over all of them."""
        self._seen = np.zeros(0, np.int64)
        self._seen_s = np.zeros(0)
        """By code: the look in which it was seen last (0: it is free), and when that was."""
        self.changes = 0
        self.changed = np.zeros(0, np.int64)
        """How often a code has got another meaning, and by code the number of the change that gave it its own."""

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, code: int) -> str: ...

    @overload
    def __getitem__(self, code: slice) -> list[str]: ...

    def __getitem__(self, code: int | slice) -> str | list[str]:
        return self._names[code]

    def look(self, present: NDArray[np.int32], now_s: float) -> None:
        """A look begins: jobs have the codes `present` (-1: none), which mean the same until the next."""
        self._look += 1
        self._now_s += min(max(0.0, now_s - self._looked_s), MOST_STEP_S)
        self._looked_s = now_s
        self._full.clear()
        codes = present[present >= 0]
        self._seen[codes], self._seen_s[codes] = self._look, self._now_s
        self._forget(np.flatnonzero(self._seen_s[: len(self)] < self._now_s - UNUSED_S))

    def code(self, user: str, name: str, cores: float) -> int:
        """The code of a job's application."""
        label = fingerprint(user, name, cores)
        code = self._code.get(label)
        if code is None and not self._has_room(user):
            label = fingerprint(user, REST, cores)
            code = self._code.get(label)
        if code is None:
            code = self._give(user, label)
        self._seen[code], self._seen_s[code] = self._look, self._now_s
        return code

    def _has_room(self, user: str) -> bool:
        """May there be another application of this user? The least recently seen are forgotten for it."""
        if user in self._full:
            return False
        mine = self._of.get(user, set())
        if len(mine) >= self._most_of_one and not self._make_room(mine, self._most_of_one):
            self._full.add(user)
            return False
        if len(self._code) < self._most:
            return True
        if "" in self._full or not self._make_room(range(len(self)), self._most):
            self._full |= {user, ""}
            return False
        return True

    def _make_room(self, codes: Collection[int], most: int) -> bool:
        """Forget the least recently seen of these that no job has in this look; is there any?"""
        found = np.fromiter(codes, np.int64, len(codes))
        found = found[(self._seen[found] > 0) & (self._seen[found] < self._look)]
        order = np.lexsort((found, self._seen[found]))
        self._forget(found[order[: max(1, most // AT_ONCE)]])
        return len(found) > 0

    def _give(self, user: str, label: str) -> int:
        if self._free:
            code = self._free.pop()
            self._names[code], self._users[code] = label, user
        else:
            code = len(self._names)
            self._names.append(label)
            self._users.append(user)
            if code == len(self._seen):
                size = max(64, 2 * code)
                self._seen, self.changed = np.resize(self._seen, size), np.resize(self.changed, size)
                self._seen_s = np.resize(self._seen_s, size)
        self._code[label] = code
        self._of.setdefault(user, set()).add(code)
        self._mean_anew(code)
        return code

    def _forget(self, codes: NDArray[np.int64]) -> None:
        for code in codes.tolist():
            user = self._users[code]
            del self._code[self._names[code]]
            self._of[user].remove(code)
            if not self._of[user]:
                del self._of[user]
            self._names[code] = self._users[code] = ""
            self._seen[code], self._seen_s[code] = 0, math.inf
            self._free.append(code)
            self._mean_anew(code)

    def _mean_anew(self, code: int) -> None:
        """A code means something else from now on."""
        self.changes += 1
        self.changed[code] = self.changes


class Turnover:
    """Which codes of `applications` mean something else since the last look at them. A plain list only grows."""

    def __init__(self, applications: Sequence[str]) -> None:
        self._applications = applications
        self.names = list(applications)
        """By code, as of the last look."""
        self._change = applications.changes if isinstance(applications, Applications) else 0

    def look(self) -> dict[int, str]:
        """The codes whose meaning is another one, with the fingerprints that they had: those are forgotten."""
        now, names = self._applications, self.names
        codes: Iterable[int] = range(len(names), len(now))
        if isinstance(now, Applications):
            if now.changes == self._change:
                return {}
            codes = np.flatnonzero(now.changed[: len(now)] > self._change).tolist()
            self._change = now.changes
        names += [""] * (len(now) - len(names))
        before = {code: names[code] for code in codes}
        for code in before:
            names[code] = now[code]
        return before

"""Node lists of a log as runs of numbered nodes: `nid[01950-03949]` is one run, however many nodes it names.

A wide job costs what its list costs to write, and no entry for each of its nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asad.cluster.node_names import MOST_NODES
from asad.replay.readers.accounting_log import BadValue, quoted

NODE_LIST = re.compile(r"[A-Za-z0-9_.\-\[\],]+", re.ASCII)
NO_NODES = frozenset(
    {"", "0", "none", "unknown", "n/a", "na", "nan", "invalid", "(null)", "null", "none assigned"}
)
"""What stands for an empty list."""
MOST_OF_ALL = 1_000_000
"""Nodes that the lists of a log may name together."""
UNKNOWN_NODES = -1
"""Code of a list that was not recorded."""

_PARTS = re.compile(r"(?:[^,\[\]]+|\[[^\[\]]*\])+")
"""What stands between commas that are not within brackets."""
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d{1,18})([^\d]*)", re.ASCII)

Family = tuple[str, str, int]
"""Nodes whose names differ by a number alone: what stands before it, after it, and how many digits it is padded to
(0: not padded; -1: there is no number)."""
Run = tuple[Family, int, int]
"""Nodes of a family from a number to another, both included."""


def runs_of(text: str) -> list[Run]:
    """The nodes of a list as Slurm writes it, `n[1-3,07],login`; none for `None assigned` and its like.

    Raises BadValue if it is no such list, or one of more than `MOST_NODES`.
    """
    text = text.strip()
    if text.lower() in NO_NODES:
        return []
    parts = _PARTS.findall(text)
    if not NODE_LIST.fullmatch(text) or ",".join(parts) != text:
        raise BadValue(f"{quoted(text)} is not a list of nodes", "write it like n[1-4],login1")
    runs: list[Run] = []
    left = MOST_NODES
    for part in parts:
        for run in _runs_of_part(part, text, left):
            left -= run[2] - run[1] + 1
            if left < 0:
                raise _too_many(text)
            runs.append(run)
    return runs


def _too_many(text: str) -> BadValue:
    return BadValue(f"{quoted(text)} names more than {MOST_NODES} nodes", "check its ranges")


def _runs_of_part(part: str, text: str, left: int) -> Iterator[Run]:
    before, bracket, after = part.rpartition("[")
    if not bracket:
        yield _run_of_name(part)
        return
    inside, _, after = after.partition("]")
    if "[" in before:
        # of several brackets all but the last are written out
        ranges = [_range(one, text) for one in before[before.index("[") + 1 : before.index("]")].split(",")]
        if sum(last - first + 1 for first, last, _ in ranges) > left:
            raise _too_many(text)
        head, tail = before[: before.index("[")], before[before.index("]") + 1 :] + f"[{inside}]" + after
        for first, last, width in ranges:
            for number in range(first, last + 1):
                for run in _runs_of_part(f"{head}{number:0{width}d}{tail}", text, left):
                    left -= run[2] - run[1] + 1
                    if left < 0:
                        raise _too_many(text)
                    yield run
        return
    plain = not before[-1:].isdigit() and not any(map(str.isdigit, after))
    for one in inside.split(","):
        first, last, width = _range(one, text)
        if last - first >= left:
            raise _too_many(text)
        if plain:  # else digits beside the brackets belong to the number
            padded = min(last, 10 ** max(width - 1, 0) - 1)  # beyond it the number is as long without padding
            if first <= padded:
                yield (before, after, width), first, padded
            if padded < last:
                yield (before, after, 0), max(first, padded + 1), last
        else:
            for number in range(first, last + 1):
                yield _run_of_name(f"{before}{number:0{width}d}{after}")


def _range(one: str, text: str) -> tuple[int, int, int]:
    """First and last number of a range, and how many digits they are padded to."""
    match = _RANGE.fullmatch(one)
    if not match or (match[2] and int(match[2]) < int(match[1])):
        raise BadValue(f"{quoted(text)} is not a list of nodes", "write it like n[1-4],login1")
    return int(match[1]), int(match[2] or match[1]), len(match[1]) if _padded(match[1]) else 0


def _padded(digits: str) -> bool:
    return digits[0] == "0" and len(digits) > 1


def _run_of_name(name: str) -> Run:
    match = _NUMBERED.fullmatch(name)
    if not match or match[1][-1:].isdigit():  # a number of more than 18 digits is a part of the name
        return (name, "", -1), 0, 0
    family = (match[1], match[3], len(match[2]) if _padded(match[2]) else 0)
    return family, int(match[2]), int(match[2])


def _disjoint(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The same nodes, each named once."""
    if len(runs) < 2:
        return runs
    joined: list[tuple[int, int, int]] = []
    for family, first, last in sorted(runs):
        if joined and joined[-1][0] == family and first <= joined[-1][2] + 1:
            joined[-1] = (family, joined[-1][1], max(last, joined[-1][2]))
        else:
            joined.append((family, first, last))
    return joined


@dataclass(frozen=True, slots=True)
class NodeSets:
    """Sets of nodes by code. Set `c` is nodes `first[r]` to `stop[r]` − 1 of each r from `begin[c]` to `begin[c + 1]`
    − 1."""

    names: tuple[str, ...]
    """(N,) every node that a set names."""
    begin: NDArray[np.int64]
    """(sets + 1,)"""
    first: NDArray[np.int64]
    stop: NDArray[np.int64]
    """(runs,)"""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(sets,) how many nodes each names."""
        return np.diff(np.concatenate(([0], np.cumsum(self.stop - self.first)))[self.begin])


class NodeListTable:
    """Codes of node lists in the order in which they are met; each text is taken apart once."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}
        self._family: dict[Family, int] = {}
        self._begin: list[int] = [0]
        self._runs: list[tuple[int, int, int]] = []

    def code(self, text: str) -> int:
        """The code of a list. Raises BadValue as `runs_of`."""
        found = self._code.get(text)
        if found is None:
            runs = [
                (self._family.setdefault(family, len(self._family)), first, last)
                for family, first, last in runs_of(text)
            ]
            self._runs += _disjoint(runs)
            self._begin.append(len(self._runs))
            found = self._code[text] = len(self._code)
        return found

    @property
    def empty(self) -> NDArray[np.bool_]:
        """(sets,) which sets name no node."""
        empty: NDArray[np.bool_] = np.diff(np.array(self._begin)) == 0
        return empty

    def sets(self) -> NodeSets | None:
        """All sets that were met, with nodes numbered through by family and number; None if they name more than
        `MOST_OF_ALL`."""
        runs = np.array(self._runs, dtype=np.int64).reshape(-1, 3)
        families = list(self._family)
        names: list[str] = []
        # the union of the runs of each family: segments, whose nodes are numbered one after the other
        first, stop = np.zeros((2, len(runs)), dtype=np.int64)
        order = np.lexsort((runs[:, 1], runs[:, 0]))
        family, low, high = -1, 0, -1
        for row in order.tolist():
            of, begins, ends = runs[row].tolist()
            if of != family or begins > high + 1:
                family, low, high, base = of, begins, begins - 1, len(names)
            if ends > high:
                if len(names) + ends - high > MOST_OF_ALL:
                    return None
                before, after, width = families[of]
                if width < 0:
                    names.append(before)
                else:
                    names += [f"{before}{number:0{width}d}{after}" for number in range(high + 1, ends + 1)]
                high = ends
            first[row], stop[row] = base + begins - low, base + ends - low + 1
        return NodeSets(tuple(names), np.array(self._begin, dtype=np.int64), first, stop)

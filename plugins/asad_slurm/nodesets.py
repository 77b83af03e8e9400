"""Node sets as Slurm writes them (`n[1-3,7],gpu1`), expanded once for each text."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolver, GroupResolverError

_NO_GROUPS = GroupResolver()
"""`@group` must not read the groups of this machine."""
MOST_BYTES = 64 * 2**20
"""Answers that are remembered of each function here, as far as their memory can be told. A list of all nodes of a large
cluster takes a megabyte, and users choose which nodes their jobs exclude."""
OBJECT_BYTES = 64
"""Of an object beside what it holds."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def remembered(function: Callable[[K], V]) -> Callable[[K], V]:
    """The same that answers from memory what it was asked before; the oldest answers are forgotten."""
    known: dict[K, tuple[V, int]] = {}
    held = 0

    @wraps(function)
    def ask(key: K) -> V:
        nonlocal held
        answer = known.get(key)
        if answer is not None:
            return answer[0]
        value = function(key)
        size = bytes_of(key) + bytes_of(value)
        if size <= MOST_BYTES:
            known[key] = value, size
            held += size
        while held > MOST_BYTES:
            held -= known.pop(next(iter(known)))[1]
        return value

    return ask


def bytes_of(value: object) -> int:
    """Memory that a text or a tuple of texts takes, about."""
    if isinstance(value, tuple):
        return OBJECT_BYTES + sum(8 + bytes_of(one) for one in value)
    return OBJECT_BYTES + len(str(value))


@remembered
def expand(text: str) -> tuple[str, ...]:
    """The names in `text`, in its order; none for the empty text and `(null)`.

    Raises ValueError when it is no node set, or one of more than `MOST_NODES`.
    """
    if not text or text in ("(null)", "None"):
        return ()
    if _NAME.fullmatch(text):  # a group is no node's name, and is not looked up
        return (text,)
    if _size(text) > MOST_NODES:
        raise ValueError(f"{text[:80]!r} are more than {MOST_NODES} nodes")
    try:
        return tuple(map(sys.intern, NodeSet(text, resolver=_NO_GROUPS)))  # large sets share their names
    except (
        NodeSetException,
        GroupResolverError,
        AssertionError,
    ) as error:  # digits behind brackets lengthen ranges
        raise ValueError(f"{text[:80]!r} is no node set ({str(error)[:80]!r})") from None


def _size(text: str) -> int:
    """At least as many names as there are in `text`."""
    whole = 0
    for part in _PARTS.findall(text):
        names = 1
        for inside in _BRACKETS.findall(part):
            if _LONG_RANGE.search(
                inside
            ):  # no node has such a number, and ClusterShell takes them for its own fault
                return MOST_NODES + 1
            names *= sum(
                max(1, int(last) - int(first) + 1) if last else 1 for first, last in _RANGE.findall(inside)
            )
        whole += max(1, names)
    return whole


_NAME = re.compile(r"@?[\w.\-]{1,255}", re.ASCII)
_PARTS = re.compile(r"(?:[^,\[]+|\[[^\]]*\]?)+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?[^,]*", re.ASCII)
_LONG_RANGE = re.compile(r"(?<!\d)(?:\d{19,}-\d|\d{1,18}-\d{19})", re.ASCII)
MOST_NODES = 200_000
"""Of one set: more than any cluster has, and named in less than a second."""


@remembered
def fold(names: tuple[str, ...]) -> str:
    """The shortest text for `names`. Raises ValueError for what are no names of nodes."""
    try:
        return str(NodeSet.fromlist(names, resolver=_NO_GROUPS))
    except (NodeSetException, GroupResolverError) as error:
        raise ValueError(f"{names[:1]!r:.80} … is no node set ({str(error)[:80]!r})") from None

"""Node sets as Slurm writes them (`n[1-3,7],gpu1`), expanded once for each text."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolverError

from asad.cluster import node_names

MOST_BYTES = 64 * 2**20
"""Answers of each function here that are kept, by the memory that they take, about. A list of all nodes of a large
cluster takes a megabyte, and users choose which nodes their jobs exclude."""
OBJECT_BYTES = 64
"""Of an object beside what it holds."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def cached(function: Callable[[K], V]) -> Callable[[K], V]:
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


@cached
def expand(text: str) -> tuple[str, ...]:
    """The names in `text`, in its order; none for the empty text and `(null)`.

    Raises ValueError when it is no node set, or one that names too many.
    """
    if not text or text in ("(null)", "None"):
        return ()
    if _NAME.fullmatch(text):  # a group is no node's name, and is not looked up
        return (text,)
    return tuple(map(sys.intern, node_names.expand(text)))  # large sets share their names


def expanded(text: str) -> tuple[str, ...]:
    """The same; no names where it is no node set."""
    try:
        return expand(text)
    except ValueError:
        return ()


_NAME = re.compile(r"@?[\w.\-]{1,255}", re.ASCII)


@cached
def fold(names: tuple[str, ...]) -> str:
    """The shortest text for `names`. Raises ValueError for what are no names of nodes."""
    try:
        return str(NodeSet.fromlist(names, resolver=node_names.NO_GROUPS))
    except (NodeSetException, GroupResolverError) as error:
        raise ValueError(f"{names[:1]!r:.80} … is no node set ({str(error)[:80]!r})") from None

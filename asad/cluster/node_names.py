"""Node sets as Slurm writes them (`n[1-3,7],gpu1`), expanded within bounds: they come from users, too.

A dozen characters can name more nodes than memory holds, and ClusterShell takes some of them for its own fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.NodeUtils import GroupResolver, GroupResolverError

NO_GROUPS = GroupResolver()
"""`@group` must not read the groups of this machine."""
MOST_NODES = 200_000
"""Of one set: more than any cluster has, and named in less than a second."""

_PARTS = re.compile(r"(?:[^,\[]+|\[[^\]]*\]?)+")
"""What stands between commas that are not within brackets."""
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?[^,]*", re.ASCII)
_LONG_RANGE = re.compile(r"(?<!\d)(?:\d{19,}-\d|\d{1,18}-\d{19})", re.ASCII)
"""No node has such a number, and ClusterShell asserts that."""


def size(text: str) -> int:
    """At least as many names as there are in a node set."""
    whole = 0
    for part in _PARTS.findall(text):
        names = 1
        for inside in _BRACKETS.findall(part):
            if _LONG_RANGE.search(inside):
                return MOST_NODES + 1
            ranges = _RANGE.findall(inside)
            names *= sum(max(1, int(last) - int(first) + 1) if last else 1 for first, last in ranges)
        whole += max(1, names)
    return whole


def expand(text: str) -> NodeSet:
    """The names in a node set, in its order. Raises ValueError if it is none, or one of more than `MOST_NODES`."""
    if size(text) > MOST_NODES:
        raise ValueError(f"{text[:80]!r} are more than {MOST_NODES} nodes")
    try:
        return NodeSet(text, resolver=NO_GROUPS)
    except (
        NodeSetException,
        GroupResolverError,
        AssertionError,
    ) as error:  # digits behind brackets lengthen ranges
        raise ValueError(f"{text[:80]!r} is no node set ({str(error)[:80]!r})") from None


PLAIN = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_]", re.ASCII)
"""A name that ClusterShell takes for one node, whatever stands in it."""


def folded(names: Iterable[str]) -> str:
    """Names of nodes as Slurm writes them, `n[1-3,7],gpu1`, sorted; what is no name of a node follows as it is.

    Not yet safe to print.
    """
    unique = dict.fromkeys(names)
    plain = [name for name in unique if PLAIN.fullmatch(name)]
    strange = [name for name in unique if not PLAIN.fullmatch(name)]
    if len(plain) > 1:  # many ask for the nodes of one job
        whole = NodeSet(resolver=NO_GROUPS)
        whole.updaten([NodeSet(name, resolver=NO_GROUPS) for name in plain])
        plain = [str(whole)]
    return ",".join([*plain, *strange])

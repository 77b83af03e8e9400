"""Node sets as Slurm writes them (`n[1-3,7],gpu1`), expanded once for each text."""

from __future__ import annotations

from functools import lru_cache

from ClusterShell.NodeSet import NodeSet, NodeSetParseError
from ClusterShell.NodeUtils import GroupResolver

_NO_GROUPS = GroupResolver()
"""`@group` must not read the groups of this machine."""


@lru_cache(maxsize=65536)
def expand(text: str) -> tuple[str, ...]:
    """The names in `text`, in its order; none for the empty text and `(null)`.

    Raises ValueError when it is no node set.
    """
    if not text or text in ("(null)", "None"):
        return ()
    if "[" not in text and "," not in text:
        return (text,)
    try:
        return tuple(NodeSet(text, resolver=_NO_GROUPS))
    except NodeSetParseError as error:
        raise ValueError(f"{text[:80]!r} is no node set ({error})") from None


@lru_cache(maxsize=4096)
def fold(names: tuple[str, ...]) -> str:
    """The shortest text for `names`."""
    return str(NodeSet.fromlist(names, resolver=_NO_GROUPS))

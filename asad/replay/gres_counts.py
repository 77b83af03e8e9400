"""What a node has of generic resources, by the text that slurm.conf and scontrol have of it."""

from __future__ import annotations

import re
from typing import NamedTuple

from asad.replay.readers import fields

NOTHING = frozenset({"", "(null)", "n/a", "none", "null"})
_ONE = re.compile(
    r"(?P<name>[^:,()]+)(?P<parts>(?::[^:,()]*)*?)(?::(?P<count>\d{1,18})(?P<unit>[KMGTP]?))?(?:\([^()]*\)?)?",
    re.ASCII | re.IGNORECASE,
)
_PARTS = re.compile(r"(?:[^,(]|\([^)]*\)?)+")
"""What stands between commas that are not within brackets: `gpu:4(S:0,2),nvme:1`."""
UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class GresCounts(NamedTuple):
    """What a text says."""

    counts: dict[str, int]
    """`gpu:a100` → 4, and its family `gpu` → the sum over all types."""
    not_consumed: tuple[str, ...]
    """Names of those that jobs do not take anything of (no_consume)."""
    strange: tuple[str, ...]
    """Parts that are no gres, as they stand. Hostile text."""


def gres_counts(text: str) -> GresCounts:
    """`gpu:a100:4(S:0-1)`, `gpu:4`, `gpu` (one), `nvme:2T`, `gpu:a100:no_consume:2`, several with commas, `(null)`."""
    counts: dict[str, int] = {}
    free, strange = list[str](), list[str]()
    for part in [] if text.strip().lower() in NOTHING else _PARTS.findall(text):
        part = part.strip()
        if not part:
            continue
        match = _ONE.fullmatch(part)
        types = [one for one in match["parts"].split(":") if one] if match else []
        is_free = "no_consume" in (one.lower() for one in types)
        types = [one for one in types if one.lower() != "no_consume"]
        name = ":".join((match["name"], *types)) if match else ""
        if match is None or not _is_name(name) or (types and not match["count"] and types[-1].isdecimal()):
            strange.append(part)
            continue
        number = int(match["count"] or 1) * 1024 ** UNITS[(match["unit"] or "").upper()]
        for one in dict.fromkeys((name, match["name"])):
            counts[one] = counts.get(one, 0) + number
        if is_free:
            free.append(name)
    return GresCounts(counts, tuple(free), tuple(strange))


def _is_name(name: str) -> bool:
    """May gres have it? Types may begin with a digit, as `gpu:4090`."""
    family, colon, kind = name.partition(":")
    return bool(fields.GRES.fullmatch(family)) and (
        not colon or re.fullmatch(r"\w[\w.+\-]{0,60}", kind, re.ASCII) is not None
    )

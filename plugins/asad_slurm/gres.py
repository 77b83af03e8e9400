"""Gres and licences as Slurm writes them, read as names and amounts (`asad.model.Tres`).

Slurm writes gres in many ways: `gpu:a100:4(S:0-1)` of a node, `gpu:a100:2(IDX:0-1)` of each node of a job that runs,
`gres/gpu:a100:2` (`gres:gpu:…` before 23.02) by node, job, task or socket of one that waits, and `gres/gpu=2` among its
TRES where accounting tracks them. What cannot be counted becomes a sentence, never nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from asad.cluster.slurm_json import UNIT_BYTES, number

Amounts = tuple[tuple[str, float], ...]
"""Names of trackable resources, in their order, with how much of each."""

SHARES = frozenset(("mps", "shard"))
"""Gres that are parts of GPUs which others hold whole, at other times."""
_NO_GRES = frozenset(("cpu", "mem", "node", "billing", "energy", "vmem", "pages"))
_COUNT = re.compile(r"(\d{1,12})([KMGTPE]?)", re.ASCII | re.IGNORECASE)
_BESIDE = re.compile(r"\([^()]*\)")
_TRACKED = re.compile(r"(?:^|,)(gres/[^=,]{1,200})=(\d{1,12})([KMGTPE]?)", re.ASCII)


@lru_cache(maxsize=10_000)
def node_gres(text: str) -> Amounts:
    """What a node has. What nobody uses up (`no_consume`) is left out, and so are parts of GPUs. Raises ValueError."""
    return _ordered({name: amount for name, amount in _amounts(text).items() if not _is_share(name)})


def asked(job: Mapping[str, Any], runs: bool, nodes: float, tres: str) -> tuple[Amounts, str]:
    """What a job of squeue's JSON holds or wants of gres and licences, over all its nodes, and what of that cannot be
    counted, in a sentence. `tres` is its TRES, of a running job those that it was allocated."""
    found: dict[str, float] = {}
    why = ""
    try:
        detail = job.get("gres_detail") or ()
        if runs and detail:
            for text in detail:
                for name, amount in _amounts(text).items():
                    found[name] = found.get(name, 0.0) + amount
        else:
            found = _wanted(job, max(1.0, nodes))
    except ValueError as error:
        found, why = _tracked(tres), str(error)
        why = "" if found else why
    if shares := [name for name in found if _is_share(name)]:
        why = f"it wants {shares[0]}: parts of GPUs that others take whole"
    licences = str(job.get("licenses") or "")
    try:
        found |= _licences(licences)
    except ValueError as error:
        why = str(error)
    return _ordered(found), why


def _wanted(job: Mapping[str, Any], nodes: float) -> dict[str, float]:
    """By node, job and task; the most of what one name is wanted by. Raises ValueError."""
    found: dict[str, float] = {}
    tasks = number(job.get("tasks"), 0.0)
    for by, times in (("node", nodes), ("job", 1.0), ("task", tasks), ("socket", 0.0)):
        for name, amount in _amounts(job.get(f"tres_per_{by}") or "").items():
            if not times:
                raise ValueError(f"it wants {name} by {by}, and how many {by}s it gets is not known")
            found[name] = max(found.get(name, 0.0), times * amount)
    return found


def _amounts(text: str) -> dict[str, float]:
    """By name. Raises ValueError where a part is none that is known."""
    found: dict[str, float] = {}
    for word in _BESIDE.sub("", text).split(","):
        name, *rest = re.split("[:=]", word.strip().removeprefix("gres:").removeprefix("gres/"))
        if not name or name in _NO_GRES or "no_consume" in rest:
            continue
        count = _COUNT.fullmatch(rest[-1]) if rest else None
        kind = rest[: len(rest) - (count is not None)]
        if "/" in name or len(kind) > 1:
            raise ValueError(f"it wants {word.strip()[:60]}, which asad cannot count")
        amount = float(count[1]) * _times(count[2]) if count else 1.0
        for each in (f"gres/{name}", *(f"gres/{name}:{one}" for one in kind)):
            found[each] = found.get(each, 0.0) + amount
    return found


def _is_share(name: str) -> bool:
    return name.removeprefix("gres/").partition(":")[0] in SHARES


def _tracked(tres: str) -> dict[str, float]:
    """The gres among the TRES of a job; a gres is at least as much as all of its types."""
    found = {name: float(count) * _times(unit) for name, count, unit in _TRACKED.findall(tres)}
    for name in {name.partition(":")[0] for name in found}:
        typed = sum(amount for one, amount in found.items() if one.startswith(f"{name}:"))
        found[name] = max(found.get(name, 0.0), typed)
    return found


def _licences(text: str) -> dict[str, float]:
    """`abaqus:2,matlab@server`. Raises ValueError for one of several (`a|b`)."""
    found: dict[str, float] = {}
    for word in re.split("[,;]", text):
        name, _, count = re.sub(r"[*=]", ":", word.strip()).partition(":")
        if not name:
            continue
        if "|" in word or not re.fullmatch(r"\d{0,12}", count, re.ASCII):
            raise ValueError(f"it wants the licences {word.strip()[:60]}, which asad cannot count")
        found[f"license/{name}"] = found.get(f"license/{name}", 0.0) + float(count or 1)
    return found


def _times(unit: str) -> float:
    """Of a count with a unit, which are powers of 1024."""
    return UNIT_BYTES[unit.upper()] if unit else 1.0


def _ordered(found: Mapping[str, float]) -> Amounts:
    return tuple(sorted((name, amount) for name, amount in found.items() if amount > 0.0))

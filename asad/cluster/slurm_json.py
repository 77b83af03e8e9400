"""What all versions of Slurm mean by the numbers, lists and amounts in their JSON.

22.05 (`openapi/v0.0.38`) writes plain numbers, one word for a state and null for what is not set; from 23.02 on
(`data_parser/v0.0.39`) a number may be `{"set": …, "infinite": …, "number": …}`, and a state a list of words. Trackable
resources are a text (`cpu=2,mem=4G,node=1`).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import orjson

INF, NAN = math.inf, math.nan
MEBIBYTE = 2.0**20
MOST = 2**31 - 1
"""No number of cores, nodes or tasks is larger: so much does a column hold."""
UNIT_BYTES = {"": 2.0**20, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50, "E": 2.0**60}
"""Slurm's units are powers of 1024; without one it means mebibytes."""
_MEMORY = re.compile(r"(?:^|,)mem=(\d{1,18}(?:\.\d{1,18})?)([KMGTPE]?)", re.ASCII)


def loads(text: bytes) -> Any:
    """What JSON of Slurm's says. Raises ValueError if it is none.

    Slurm passes on the bytes of users, which need not be UTF-8 (`sbatch -J $'caf\\xe9'`): those that are not are
    replaced.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        return orjson.loads(text.decode("utf-8", "replace").encode())


def plain(value: Any) -> Any:
    """A number of any version's shape, whatever stands in its place; None if it is not set, inf for no bound."""
    if value.__class__ is dict:
        if value.get("infinite"):
            return INF
        return value.get("number") if value.get("set", True) else None
    return value


def number(value: Any, default: float = 0.0) -> float:
    """A number of any version's shape; `default` if it is not set. Raises LookupError, TypeError or ValueError if it is
    none."""
    if value.__class__ is dict:  # not by `plain`: this is asked fifteen times of each job that has changed
        if value["infinite"]:
            return INF
        return float(value["number"]) if value["set"] else default
    return default if value is None else float(value)


def whole(value: Any, default: float = 0.0, most: float = MOST) -> int:
    """The same as a whole number from 0 to `most`; what is beyond is cut."""
    return int(min(max(0.0, number(value, default)), most))


def words(value: Any) -> tuple[str, ...]:
    """A text, or a list of them."""
    return (value,) if isinstance(value, str) else tuple(value or ())


@lru_cache(maxsize=100_000)
def memory_bytes(tres: str) -> float:
    """Memory in a text of trackable resources, NaN if it names none."""
    found = _MEMORY.search(tres)
    return float(found[1]) * UNIT_BYTES[found[2]] if found else NAN

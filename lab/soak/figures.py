"""What is measured of the daemon, and whether it grows."""

from __future__ import annotations

import functools
import gc
import math
import os
import sys
import threading
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import func, select

from asad.store import schema
from asad.store.store import Store

MIB = 2.0**20
TABLES = {
    "decisions": schema.decisions.c.time_s,
    "job_ends": schema.job_ends.c.end_s,
    "share_cases": schema.share_cases.c.time_s,
    "ledger": schema.ledger.c.time_s,
    "quota_audit": schema.quota_audit.c.time_s,
    "learned": None,
}
"""Tables of the store, and by which column they are forgotten."""
FILLING = {"store_mib", *(f"rows {name}" for name, when in TABLES.items() if when is not None)}
"""Figures that grow until rows are old enough to be forgotten."""
SIGMA, PART = 3.0, 0.01
"""Something grows if its slope is above so many standard errors, and in ten days comes to more than this part of it."""


class Slope(NamedTuple):
    """Least squares of a figure over days."""

    mean: float
    a_day: float
    error: float
    """Standard error of `a_day`."""
    points: int

    @property
    def grows(self) -> bool:
        """More than chance and a hundredth in ten days?"""
        return self.a_day > SIGMA * self.error and 10.0 * self.a_day > PART * abs(self.mean)


def slope(days: Sequence[float], values: Sequence[float]) -> Slope:
    """Of whole days the means, where there are at least four of them: days differ less than their hours do."""
    x, y = np.array(days, np.float64), np.array(values, np.float64)
    known = np.isfinite(y)
    x, y = x[known], y[known]
    whole = np.floor(x)
    if len(x) and whole[-1] - whole[0] >= 4:
        numbers = np.unique(whole)[:-1]
        y = np.array([y[whole == day].mean() for day in numbers])
        x = numbers + 0.5
    if len(x) < 3:
        return Slope(float(y.mean()) if len(y) else math.nan, math.nan, math.nan, len(x))
    spread = x - x.mean()
    a_day = float(spread @ (y - y.mean()) / (spread @ spread))
    left = y - y.mean() - a_day * spread
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(spread @ spread))
    return Slope(float(y.mean()), a_day, error, len(x))


def of_process() -> dict[str, float]:
    """Memory (MiB), descriptors and threads of this process."""
    gc.collect()
    return {
        "rss_mib": _resident() / MIB,
        "descriptors": float(sum(1 for _ in Path("/proc/self/fd").iterdir())),
        "threads": float(threading.active_count()),
    }


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def of_store(url: str) -> dict[str, float]:
    """Size of the store's files, rows by table, and the time of the oldest row that is forgotten one day."""
    files = (Path(url), Path(f"{url}-wal"))
    found = {"store_mib": sum(path.stat().st_size for path in files if path.exists()) / MIB}
    with Store.open(url, create=False) as store, store.reading("counting rows") as connection:
        oldest = math.inf
        for name, when in TABLES.items():
            table = getattr(schema, name)
            found[f"rows {name}"] = float(
                connection.execute(select(func.count()).select_from(table)).scalar_one()
            )
            if when is not None:
                first = connection.execute(select(func.min(when))).scalar_one()
                oldest = min(oldest, math.inf if first is None else float(first))
        if oldest < math.inf:
            found["oldest_s"] = oldest
    return found


# ------------------------------------------------------------------------------------------------------------- census


def census(root: object, most: int = 200_000) -> dict[str, int]:
    """By the path from `root`: how many entries containers of asad's objects have, those with a hundred or more.

    What grows for ever is a container that somebody holds: this names it.
    """
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting: deque[tuple[str, object]] = deque([("daemon", root)])
    while waiting and len(seen) < most:
        path, value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | set | frozenset | deque):
            if len(value) >= 100:
                found[path] = len(value)
            elif isinstance(value, dict):
                waiting.extend((f"{path}[{str(key)[:20]}]", one) for key, one in list(value.items()))
            else:
                waiting.extend((f"{path}[]", one) for one in list(value)[:20])
        elif isinstance(value, np.ndarray):
            if value.size >= 100:
                found[path] = int(value.size)
        elif not isinstance(value, type | types.ModuleType | types.FunctionType | str | bytes | int | float):
            waiting.extend((f"{path}.{name}", one) for name, one in _parts(value))
    return found


def kept_by_modules() -> dict[str, int]:
    """The same of what modules of asad hold: tables, and caches of functions."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if not name.startswith("asad"):
            continue
        for key, value in vars(module).items():
            if isinstance(value, functools._lru_cache_wrapper):
                count = value.cache_info().currsize
            else:
                count = len(value) if isinstance(value, dict | list | set | deque) else 0
            if count >= 100 and id(value) not in seen and not key.startswith("__"):
                seen.add(id(value))  # others import it
                found[f"{name}.{key}"] = count
    return found


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Attributes of an object of asad's, and what a tuple or a bound method holds."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        yield from ((str(name), one) for name, one in zip(names, value, strict=False))
        return
    if isinstance(value, types.MethodType):
        yield "self", value.__self__
        return
    if not type(value).__module__.startswith(("asad", "lab.soak.daemon")):
        return
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name):
                yield name, getattr(value, name)


# -------------------------------------------------------------------------------------------------------------- result


class Series:
    """Figures over time, some of them seldom."""

    def __init__(self) -> None:
        self.days: dict[str, list[float]] = {}
        self.values: dict[str, list[float]] = {}

    def add(self, day: float, figures: Mapping[str, float]) -> None:
        """What was measured then."""
        for name, value in figures.items():
            self.days.setdefault(name, []).append(day)
            self.values.setdefault(name, []).append(value)

    def slopes(self, from_day: float, full_from_day: float) -> dict[str, Slope]:
        """Of every figure from a day on; of the store's rows and size, since it forgets as much as it is given."""
        found = {}
        for name, days in self.days.items():
            settled = full_from_day if name in FILLING else from_day
            first = next((at for at, day in enumerate(days) if day >= settled), len(days))
            found[name] = slope(days[first:], self.values[name][first:])
        return found

    def to_json(self) -> dict[str, Any]:
        """All of it, but for containers that never changed."""
        return {
            name: {"days": days, "values": self.values[name]}
            for name, days in self.days.items()
            if not name.startswith("entries") or len(set(self.values[name])) > 1
        }

"""Times as the site's clocks show them: by TZ of who asks, else by `[daemon] time_zone`, else by this machine's."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from asad.config import DEFAULT_PATH, load
from asad.errors import ConfigError

EPOCH_FROM_S = 631_152_000.0
"""Times from here on (1990) are UTC epochs; logs whose clock starts at 0 stay below for twenty years."""
EPOCH_TO_S = 253_402_214_400.0
"""The last day that datetime knows (of 9999) is left out, whatever the zone."""
MOMENTS = frozenset(
    {
        "time_s", "submit_s", "start_s", "end_s", "limit_end_s", "estimated_start_s", "own_start_s", "since_s",
        "now_s", "begin_s", "deadline_s", "earliest_s", "latest_s", "held_until_s", "deferred_s", "until_s",
        "due_s", "born_s", "first_s", "last_s", "baseline_end_s", "checkpoint_s", "next_s", "started_at",
        "finished_at",
    }
)  # fmt: skip
"""Keys of JSON that are points in time: beside each stands `…_iso`."""


@lru_cache(maxsize=8)
def _configured(path: str) -> str:
    with contextlib.suppress(ConfigError):  # `config check` is for that
        return load(path).daemon.time_zone
    return ""


def zone() -> tzinfo | None:
    """Where clocks stand; None is this process' own zone, by TZ or /etc/localtime."""
    if "TZ" not in os.environ and (name := _configured(os.environ.get("ASAD_CONFIG") or str(DEFAULT_PATH))):
        with contextlib.suppress(ZoneInfoNotFoundError):  # of another machine
            return ZoneInfo(name)
    return None


def at(time_s: float) -> datetime | None:
    """A time with its offset; None of a log's own clock, which is no date."""
    if not (math.isfinite(time_s) and EPOCH_FROM_S <= time_s < EPOCH_TO_S):
        return None
    return datetime.fromtimestamp(time_s, UTC).astimezone(zone())


def moment(time_s: float) -> str:
    """A time of the log: the date and the zone where its clock is the UTC epoch, else the log's own seconds."""
    date = at(time_s)
    return f"{date:%Y-%m-%d %H:%M:%S %Z}" if date else f"t={time_s:.0f} s"


def with_dates(plain: Any) -> Any:
    """Plain data in which beside each point in time (s since 1970) stands its date with the offset: `start_iso`."""
    if isinstance(plain, list | tuple):
        return [with_dates(one) for one in plain]
    if not isinstance(plain, Mapping):
        return plain
    found = {}
    for key, value in plain.items():
        found[key] = with_dates(value)
        if key in MOMENTS and isinstance(value, int | float) and not isinstance(value, bool):
            date = at(value)
            if date is not None:
                found[f"{key.removesuffix('_s')}_iso"] = date.isoformat(timespec="seconds")
    return found

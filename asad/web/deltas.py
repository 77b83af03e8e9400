"""What has changed of a view, so that no more than that goes over the line.

A view is a table of parts. `keyed` ones are tables of their own, of which changed rows are sent and keys that are gone;
of `growing` ones, lists of (number, item) whose numbers rise, what is new; of all others the whole, if it has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEYED = frozenset({"nodes", "jobs", "guests", "fragments"})
GROWING = frozenset({"decisions", "samples"})
View = Mapping[str, Any]


def delta(old: View, new: View) -> dict[str, Any]:
    """From `old` (empty for who has nothing) to `new`; empty if they are the same."""
    found: dict[str, Any] = {}
    for part, value in new.items():
        before = old.get(part)
        if part in KEYED:
            before = before or {}
            change: dict[str, Any] = {
                "set": {key: row for key, row in value.items() if before.get(key) != row},
                "drop": [key for key in before if key not in value],
            }
            if change["set"] or change["drop"]:
                found[part] = change
        elif part in GROWING:
            last = before[-1][0] if before else -1
            if value and value[-1][0] < last:  # of a daemon that has started anew
                last = -1
            if fresh := [entry for entry in value if entry[0] > last]:
                found[part] = fresh
        elif before != value:
            found[part] = value
    return found

"""The funnel: where the core-hours went that batch left idle, and what would let more of them be lent.

Of a replay and of a live daemon; `Funnel` is what both count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asad.replay.results import INELIGIBLE, ReplayResult
from asad.report import units
from asad.report.measures import ordered_policies

Funnel = Sequence[tuple[str, float]]
"""(reason, core-hours) in a fixed order."""
LENT = "lent"

MEANINGS = {
    "unmeasured": "Nobody knows yet what the job uses: it is young, and its application is new.",
    INELIGIBLE: "The job does not lend at all.",
    "p95 above the mean": "The host’s use varies: what it leaves idle on average it needs at times.",
    "headroom": "Left to hosts beyond what they need at their busiest.",
    "kept for batch on free cores": "No job holds these cores; kept for what batch would use if it started there.",
    "share groups": "Only strangers waited, and strangers may not share here.",
    "expert's share": "The experts would lend no more of the host.",
    "no memory": "The node’s memory was taken or kept, by jobs and for those that could start there.",
    "no cores": "Each core of the node had its guest, or no waiting job was narrow enough.",
    "no waiting job that would gain": "Nobody waited who would have ended sooner as a guest.",
    LENT: "Guests used it.",
}
"""What a reason means, in one sentence."""

CHANGES = {
    "unmeasured": "observe for longer, so that more applications are known, or replay a log with CPU times",
    INELIGIBLE: "where it is safe let such jobs lend, by the option lend",
    "headroom": "lower the option headroom, and watch whether hosts are stretched",
    "share groups": "widen share_users, where strangers may see each other’s load",
    "expert's share": "edit the expert trees, or fit them to history",
    "no memory": "bring memory requests closer to what jobs use",
}
"""What an operator can change about a reason; there is nothing to change about the others."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reason."""

    reason: str
    """Fit to be shown."""
    core_h: float
    share: float
    """Of all that was idle."""
    meaning: str
    """Empty of a reason that is not known here."""
    change: str
    """Empty if there is nothing to change about it."""


def rows(funnel: Funnel) -> list[Row]:
    """The reasons in their order; none if nobody counted, or nothing was idle."""
    total = sum(core_h for _, core_h in funnel)
    if not total > 0:
        return []
    found = []
    for reason, core_h in funnel:
        kind = INELIGIBLE if reason.startswith(INELIGIBLE) else reason
        change = CHANGES.get(kind, "")
        if kind == INELIGIBLE and reason.endswith("opted out"):
            change = "ask those who opted out"
        found.append(Row(units.plain(reason, 60), core_h, core_h / total, MEANINGS.get(kind, ""), change))
    return found


def counted(result: ReplayResult) -> list[str]:
    """The policies that have a funnel, in the order of the tables."""
    return [name for name in ordered_policies(result) if rows(result.policies[name].funnel)]


def advice(funnel: Funnel, *, live: bool = False) -> str:
    """One sentence: how much was lent, and the largest reason about which an operator can do something.

    `live`: it has come to pass.
    """
    found = rows(funnel)
    if not found:
        return ""
    total = sum(row.core_h for row in found)
    lent = sum(row.share for row in found if row.reason == LENT)
    left, given = ("left", "was lent") if live else ("would have left", "would have been lent")
    text = f"Of the {units.number(total)} core-h that batch {left} idle, {units.percent(lent)} {given}"
    largest = max((row for row in found if row.change), key=lambda row: row.share, default=None)
    if largest is None or not largest.share > 0:
        return f"{text}; nothing that kept the rest is for an operator to change."
    return (
        f"{text}; the largest reason against it that an operator can change is “{largest.reason}” "
        f"({units.percent(largest.share)}): {largest.change}."
    )
